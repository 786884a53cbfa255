//! Where a volume is.

use crate::requirements::{Allowed, Requirements, term_requirements};
use whittle_api::k8s::PersistentVolume;
use whittle_api::labels;

/// Limit on combinations of alternatives: real pods have far fewer, and one pod must not slow down all others.
pub(super) const MAX_ALTERNATIVES: usize = 64;

/// Labels of volumes that kube-scheduler compares with the zone of nodes.
const ZONE_LABELS: [&str; 2] = [labels::ZONE, "failure-domain.beta.kubernetes.io/zone"];

/// Where a volume can be attached: by its node affinity, and by its label of the zone, which kube-scheduler compares as well. Several zones
/// in a label are joined by two underscores.
pub(super) fn volume_terms(volume: &PersistentVolume) -> Vec<Requirements> {
    let mut terms = affinity_terms(volume);
    if let Some(zones) = ZONE_LABELS.iter().find_map(|key| volume.metadata.label(key)) {
        if terms.is_empty() {
            terms.push(Requirements::new());
        }
        for term in &mut terms {
            term.add(labels::ZONE.to_owned(), Allowed::one_of(zones.split("__").map(str::to_owned)));
        }
    }
    terms
}

fn affinity_terms(volume: &PersistentVolume) -> Vec<Requirements> {
    let required = volume.spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
    let on_host = volume.spec.local.is_some() || volume.spec.host_path.is_some();
    let terms = required.map(|r| &r.node_selector_terms[..]).unwrap_or_default();
    terms
        .iter()
        .filter(|t| !t.match_expressions.is_empty())
        .map(|t| {
            let mut reqs = term_requirements(t);
            if on_host {
                reqs.remove(labels::HOSTNAME);
            }
            reqs
        })
        .collect()
}
