//! The order in which pods are tried.

use super::ids::{DimId, Id as _, IdVec, PodId};
use super::pod::Entry;
use super::pod_classes::Classes;
use super::pods_to_place::PodToPlace;
use std::cmp::Reverse;
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

/// The first eight bytes of a text as a number that sorts like the text.
fn first_bytes(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    u64::from_be_bytes(bytes)
}
