//! Capacity buffers for one decision: what each resolves to, and its virtual pods.

use crate::Purpose;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Pod, PodSource, PodSourceKind};
use whittle_api::karpenter::CapacityBuffer;
use whittle_claims::{Claim, Phase, Stored};
use whittle_model::scheduling::PodRef;
use whittle_ports::{CONCURRENT_REQUESTS, Clock, ClusterError, HandleError, Ports, WorkloadReader, concurrently};
use whittle_solver::buffers::{Buffer, MeasuredSource, Unresolved, limit_pods, limit_sources, resolve_all, source_of};
use whittle_units::{ClusterName, Timestamp};

/// The buffers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    pub list: Vec<Buffer>,
    /// Virtual pods that have to be scheduled: no unlaunched claim was planned for them.
    pub pods: Vec<Pod>,
    /// The others: their machine is being launched.
    pub on_the_way: Vec<PodRef>,
    /// Buffers that the others are without.
    pub unanswered: Option<Unanswered>,
}

/// Buffers about which nothing is known, because the API server does not answer for the objects that define their pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub buffers: usize,
    pub why: ClusterError,
}

impl Buffers {
    /// Partitions the buffers' pods by whether an unlaunched claim was planned for them.
    pub(crate) fn of(mut list: Vec<Buffer>, read: &ClusterObjects, claims: &[Stored<Claim>], now: Timestamp) -> Self {
        list.sort_by_cached_key(|buffer| buffer.object.metadata.key());
        let promised: BTreeSet<&str> = claims
            .iter()
            .map(|stored| &stored.value)
            .filter(|claim| matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) && claim.deletion.is_none())
            .flat_map(|claim| claim.spec.pods.iter().map(|pod| pod.uid.as_str()))
            .collect();
        let taken: BTreeSet<String> =
            read.pods.iter().filter(|pod| pod.metadata.name.starts_with("capacity-buffer-")).map(|pod| pod.metadata.key()).collect();
        list.iter_mut().for_each(|buffer| buffer.omit(&taken, now));
        limit_pods(&mut list, now);
        let pods = list.iter().flat_map(|buffer| &buffer.pods);
        let (planned, pods): (Vec<&Pod>, Vec<&Pod>) = pods.partition(|pod| promised.contains(pod.metadata.uid.as_str()));
        let (pods, on_the_way) = (pods.into_iter().cloned().collect(), planned.into_iter().map(PodRef::of).collect());
        Self { list, pods, on_the_way, unanswered: None }
    }
}

impl Buffers {
    /// The pods whose machine is being launched.
    pub(crate) fn promised(&self) -> impl Iterator<Item = &Pod> {
        let uids: BTreeSet<&str> = self.on_the_way.iter().map(|pod| pod.uid.as_str()).collect();
        self.list.iter().flat_map(|buffer| &buffer.pods).filter(move |pod| uids.contains(pod.metadata.uid.as_str()))
    }
}

/// Resolves buffers through their references. One that cannot be resolved gets a condition in its status. Each object is asked for once,
/// several at a time, and measured once: whoever may create buffers may create thousands. Those for which the API server does not answer
/// are left out of plans for pods; other decisions fail without them.
pub(crate) async fn read<P: Ports<Cluster: WorkloadReader>>(
    ports: P,
    cluster: &ClusterName,
    buffers: &[CapacityBuffer],
    purpose: Purpose,
) -> Result<(Vec<Buffer>, Option<Unanswered>), HandleError> {
    let mut buffers: Vec<&CapacityBuffer> = buffers.iter().filter(|buffer| !buffer.metadata.is_deleting()).collect();
    buffers.sort_by_cached_key(|buffer| buffer.metadata.key());
    let named = buffers.iter().copied().filter_map(|buffer| {
        let (kind, name) = source_of(buffer).ok()?;
        Some((buffer.metadata.namespace.as_str(), kind, name))
    });
    let asked = limit_sources(named.collect());
    let Sources { found, silence } = sources(ports, cluster, &asked).await;
    if let (Purpose::Nodes, Some(error)) = (purpose, &silence) {
        return Err(error.clone().into());
    }
    let measured: BTreeMap<_, _> =
        found.iter().map(|(key, answer)| (*key, answer.as_ref().map(MeasuredSource::of).map_err(Unresolved::clone))).collect();
    let (mut with_source, mut left_out) = (Vec::with_capacity(buffers.len()), 0);
    for buffer in buffers {
        let known = match source_of(buffer) {
            Ok((kind, name)) => {
                let key = (buffer.metadata.namespace.as_str(), kind, name);
                match measured.get(&key) {
                    Some(known) => known.as_ref().map_err(Unresolved::clone),
                    // They are in the order of a set.
                    None if asked.binary_search(&key).is_err() => Err(Unresolved::beyond_limit()),
                    None => {
                        left_out += 1;
                        continue;
                    }
                }
            }
            Err(unresolved) => Err(unresolved),
        };
        with_source.push((buffer, known));
    }
    let list = resolve_all(&with_source, ports.clock().now());
    Ok((list, silence.map(|why| Unanswered { buffers: left_out, why })))
}

/// Namespace, kind and name of an object that defines the pods of buffers.
type Key<'a> = (&'a str, PodSourceKind, &'a str);

/// Objects that define the pods of buffers, as far as the API server has answered for them.
#[derive(Default)]
struct Sources<'a> {
    found: BTreeMap<Key<'a>, Result<PodSource, Unresolved>>,
    /// What it said instead of an answer: nothing about the object, or the buffer.
    silence: Option<ClusterError>,
}

/// Asks for objects in turn. An API server that does not answer is not asked for the others, for each of which a run might wait as long,
/// nor one that refuses a kind for others of that kind.
async fn sources<'a, P: Ports<Cluster: WorkloadReader>>(ports: P, cluster: &ClusterName, asked: &[Key<'a>]) -> Sources<'a> {
    let api = ports.cluster();
    let mut sources = Sources::default();
    let mut refused: BTreeSet<PodSourceKind> = BTreeSet::new();
    for some in asked.chunks(CONCURRENT_REQUESTS) {
        let (closed, open): (Vec<Key<'a>>, Vec<Key<'a>>) = some.iter().copied().partition(|(_, kind, _)| refused.contains(kind));
        sources.found.extend(closed.into_iter().map(|key| (key, Err(Unresolved::refused(key.1)))));
        let answers = concurrently(open.iter().map(|(namespace, kind, name)| api.pod_source(cluster, *kind, namespace, name))).await;
        for (key, answer) in open.into_iter().zip(answers) {
            let known = match answer {
                Ok(Some(Ok(source))) => Ok(source),
                Ok(Some(Err(what))) => Err(Unresolved::failed(what)),
                Ok(None) => Err(Unresolved::missing(key.1, key.2)),
                // As where our role lacks the right: planning continues without these buffers.
                Err(ClusterError::Invalid { message, .. }) => {
                    refused.insert(key.1);
                    Err(Unresolved::failed(message))
                }
                Err(error) => {
                    sources.silence.get_or_insert(error);
                    continue;
                }
            };
            sources.found.insert(key, known);
        }
        if sources.silence.is_some() {
            break;
        }
    }
    sources
}
