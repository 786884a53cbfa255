//! NodeOverlays that exclude each other.

use crate::source::Offers;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::karpenter::{NodeOverlay, NodePool};
use whittle_ec2::facts::offline;
use whittle_model::scheduling::InstanceTypes;
use whittle_solver::overlays::{OverlayStatus, apply};

/// By name of the overlay that does not count: the remark about it. Which types two overlays have in common the tables of a region say, and
/// which labels their nodes have the NodePools; without any, one that takes all types.
pub(super) fn conflicts(overlays: &[NodeOverlay], pools: &[NodePool]) -> BTreeMap<String, String> {
    let mut weights: Vec<_> = overlays.iter().map(|overlay| overlay.spec.weight.unwrap_or(0)).collect();
    weights.sort_unstable();
    // Most inputs have none, and a region has many types.
    if weights.windows(2).all(|pair| pair[0] != pair[1]) {
        return BTreeMap::new();
    }
    // A region with tables has types.
    let Ok(types) = Offers::of_region(region_of(overlays)) else { return BTreeMap::new() };
    let types: Arc<InstanceTypes> = Arc::new(types.into());
    let any = [NodePool::default()];
    let pools = if pools.is_empty() { &any[..] } else { pools };
    let catalog = pools.iter().map(|pool| (pool.metadata.name.clone(), Arc::clone(&types))).collect();
    let told = |(name, status)| match status {
        OverlayStatus::Conflict(other) => {
            let message = format!(
                "spec.weight: NodeOverlay {other:?} has the same, and changes the same of the same instance types, so that this one is left \
                 aside: give one of them another weight"
            );
            Some((name, message))
        }
        // The types are those of a region that may be another.
        OverlayStatus::Used | OverlayStatus::Unmatched | OverlayStatus::Invalid(_) => None,
    };
    apply(overlays, pools, catalog).statuses.into_iter().filter_map(told).collect()
}

/// The region that is named by zones, or one that sells most types.
fn region_of(overlays: &[NodeOverlay]) -> &'static str {
    let mut values = overlays.iter().flat_map(|overlay| &overlay.spec.requirements).flat_map(|requirement| &requirement.values);
    let named = |value: &String| offline::REGIONS.iter().copied().find(|region| value.starts_with(region));
    values.find_map(named).unwrap_or("us-east-1")
}
