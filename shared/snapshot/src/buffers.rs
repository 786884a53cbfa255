//! Capacity buffers for one decision: what each resolves to, and its virtual pods.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Pod, PodSource, PodSourceKind};
use whittle_api::karpenter::CapacityBuffer;
use whittle_claims::{Claim, Phase, Stored};
use whittle_model::scheduling::PodRef;
use whittle_ports::{Clock, ClusterError, HandleError, Ports, WorkloadReader, concurrently};
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
        Self { list, pods, on_the_way }
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
/// several at a time, and measured once: whoever may create buffers may create thousands.
pub(crate) async fn read<P: Ports<Cluster: WorkloadReader>>(
    ports: P,
    cluster: &ClusterName,
    buffers: &[CapacityBuffer],
) -> Result<Vec<Buffer>, HandleError> {
    let mut buffers: Vec<&CapacityBuffer> = buffers.iter().filter(|buffer| !buffer.metadata.is_deleting()).collect();
    buffers.sort_by_cached_key(|buffer| buffer.metadata.key());
    let named = buffers.iter().copied().filter_map(|buffer| {
        let (kind, name) = source_of(buffer).ok()?;
        Some((buffer.metadata.namespace.as_str(), kind, name))
    });
    let asked = limit_sources(named.collect());
    let answers = concurrently(asked.iter().map(|(namespace, kind, name)| source(ports, cluster, *kind, namespace, name))).await;
    let mut found = BTreeMap::new();
    for (key, answer) in asked.into_iter().zip(answers) {
        found.insert(key, answer?);
    }
    let measured: BTreeMap<_, _> =
        found.iter().map(|(key, answer)| (*key, answer.as_ref().map(MeasuredSource::of).map_err(Unresolved::clone))).collect();
    let with_source = buffers.into_iter().map(|buffer| {
        let known = source_of(buffer).and_then(|(kind, name)| match measured.get(&(buffer.metadata.namespace.as_str(), kind, name)) {
            Some(known) => known.as_ref().map_err(Unresolved::clone),
            None => Err(Unresolved::beyond_limit()),
        });
        (buffer, known)
    });
    let with_source: Vec<_> = with_source.collect();
    Ok(resolve_all(&with_source, ports.clock().now()))
}

async fn source<P: Ports<Cluster: WorkloadReader>>(
    ports: P,
    cluster: &ClusterName,
    kind: PodSourceKind,
    namespace: &str,
    name: &str,
) -> Result<Result<PodSource, Unresolved>, HandleError> {
    match ports.cluster().pod_source(cluster, kind, namespace, name).await {
        Ok(found) => Ok(found.ok_or_else(|| Unresolved::missing(kind, name))),
        // Our role lacks the permission, or the object is invalid: only this buffer is unresolved, and planning continues.
        Err(ClusterError::Invalid { message, .. }) => Ok(Err(Unresolved::failed(message))),
        // An unavailable server says nothing about the buffer, whose capacity must not be given up for that.
        Err(error) => Err(error.into()),
    }
}
