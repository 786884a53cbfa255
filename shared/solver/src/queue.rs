//! The order in which pods are tried.

use super::avoided_daemons::priority;
use super::ids::{DimId, Id as _, IdVec, PodId};
use super::pod::Entry;
use super::pod_classes::Classes;
use super::pods_to_place::PodToPlace;
use super::problem::Problem;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whittle_api::k8s::Pod;
use whittle_model::scheduling::{Options, Packing};

/// The pods in the order in which they are tried: large before small, old before young. The placeholder pods of buffers
/// come last, except in Karpenter's own packing.
pub(crate) fn order(classes: &Classes, pods: &IdVec<PodId, PodToPlace<'_>>, options: &Options) -> Vec<Entry> {
    let is_placeholder: IdVec<PodId, bool> = if options.packing == Packing::Reference {
        IdVec::filled(false, pods)
    } else {
        pods.iter().map(|p| whittle_model::pods::is_virtual(p.pod)).collect()
    };
    // As `dims` has them.
    let (cpu, memory) = (DimId::at(0), DimId::at(1));
    let key = |entry: &Entry| {
        let (requests, meta) = (&classes.list[entry.class].requests, &pods[entry.pod].pod.metadata);
        (is_placeholder[entry.pod], Reverse(requests[cpu]), Reverse(requests[memory]), meta.creation_timestamp, first_bytes(&meta.uid))
    };
    let name = |entry: &Entry| {
        let meta = &pods[entry.pod].pod.metadata;
        (&meta.uid, &meta.namespace, &meta.name)
    };
    let entries = classes.of.enumerate().map(|(pod, &class)| Entry { class, pod });
    let mut keyed: Vec<_> = entries.map(|entry| (key(&entry), entry)).collect();
    keyed.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| name(x).cmp(&name(y))));
    keyed.into_iter().map(|(_, entry)| entry).collect()
}

/// Lets pods that would use the same claim, which one pod at a time may use, take turns as kube-scheduler does: higher priorities first,
/// then older ones. Who has a node uses the claim already. Rivals change places only with each other.
pub(crate) fn rivals_in_turn(problem: &Problem<'_>, order: &mut [Entry]) {
    let claims_of = |entry: &Entry| problem.classes[entry.class].one_pod_claims.iter();
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for claim in order.iter().flat_map(claims_of) {
        *users.entry(claim.as_str()).or_default() += 1;
    }
    if users.values().all(|count| *count < 2) {
        return;
    }
    let is_rival = |entry: &Entry| claims_of(entry).any(|claim| users[claim.as_str()] > 1);
    let places: Vec<usize> = (0..order.len()).filter(|at| is_rival(&order[*at])).collect();
    let mut rivals: Vec<Entry> = places.iter().map(|at| order[*at]).collect();
    rivals.sort_by_cached_key(|entry| {
        let pod: &Pod = problem.pods[entry.pod];
        let meta = &pod.metadata;
        let first = Reverse(priority(pod, &problem.objects.priority_classes));
        (!pod.is_bound(), first, meta.creation_timestamp, &meta.namespace, &meta.name, &meta.uid)
    });
    places.into_iter().zip(rivals).for_each(|(at, rival)| order[at] = rival);
}

/// The first eight bytes of a text as a number that sorts like the text.
fn first_bytes(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    u64::from_be_bytes(bytes)
}
