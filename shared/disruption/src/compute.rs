//! Whether a set of nodes can be consolidated, and into what (disruption 8.6).

use super::candidates::Candidate;
use super::cluster_view::ClusterView;
use super::memory;
use super::replacement::Replacement;
use super::simulate::{SimulationResult, Simulator, Targets};
use super::verdict::{KeepReason, SPOT_TYPES_MIN};
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_model::disruption::{Command, Gate, Method, Savings, VALIDATION_WAIT};
use whittle_model::requirements::{Requirements, from_labels};
use whittle_model::scheduling::{Packing, Placement};
use whittle_units::Price;

/// The best command for these nodes together, or why there is none.
pub(super) fn compute_consolidation(
    view: &ClusterView<'_>,
    simulator: &mut Simulator<'_>,
    nodes: &[&Candidate<'_>],
    method: Method,
) -> Result<Command, KeepReason> {
    let result = simulator.without(nodes, Targets::Stable, Packing::Reference)?;
    let SimulationResult { mut claims, destinations, placements } = result;
    if claims.len() > 1 {
        return Err(KeepReason::NeedsSeveralNodes(claims.len()));
    }
    let Some(claim) = claims.pop() else {
        return Ok(command(view, method, nodes, None, (destinations, placements)));
    };
    let mut replacement = Replacement::new(view, claim);
    let replaced_types = memory::types_replaced_by(view.input.memory, nodes, view.now());
    let ceiling: Price = nodes.iter().map(|node| node.price).sum();
    if are_spot(nodes) && replacement.allows(labels::CAPACITY_SPOT) {
        spot_to_spot(view, &mut replacement, ceiling, nodes.len())?;
    } else {
        require_cheaper(&mut replacement, ceiling)?;
        restrict_capacity_type(&mut replacement, nodes, ceiling)?;
    }
    if method == Method::MultiNode {
        filter_out_same_types(view, &mut replacement, nodes)?;
    }
    if let Some((at, types)) = replaced_types {
        replacement.retain(|instance_type| !types.contains(instance_type.name.as_str()));
        if replacement.len() == 0 {
            return Err(KeepReason::UndoesRecentMove { at });
        }
        replacement.has_min_values().map_err(KeepReason::MinValues)?;
    }
    Ok(command(view, method, nodes, Some(replacement), (destinations, placements)))
}

fn require_cheaper(replacement: &mut Replacement<'_>, ceiling: Price) -> Result<(), KeepReason> {
    replacement.keep_cheaper_than(ceiling).map_err(KeepReason::MinValues)?;
    if replacement.len() == 0 { Err(KeepReason::NothingCheaper) } else { Ok(()) }
}

fn are_spot(nodes: &[&Candidate<'_>]) -> bool {
    nodes.iter().all(|node| node.capacity_type() == labels::CAPACITY_SPOT)
}

/// Restricts a replacement that may be spot or on-demand to spot: if that ran out, on-demand could cost more than the removed nodes.
///
/// Where none of its types is sold as spot, all have been compared by their on-demand prices, and it becomes that. Karpenter asks for spot
/// all the same (ADR 0087).
pub(super) fn restrict_capacity_type(
    replacement: &mut Replacement<'_>,
    nodes: &[&Candidate<'_>],
    ceiling: Price,
) -> Result<(), KeepReason> {
    if !(replacement.allows(labels::CAPACITY_SPOT) && replacement.allows(labels::CAPACITY_ON_DEMAND)) {
        return Ok(());
    }
    if are_spot(nodes) || replacement.is_sold_as(labels::CAPACITY_SPOT) {
        replacement.restrict_to(labels::CAPACITY_SPOT);
        return Ok(());
    }
    replacement.restrict_to(labels::CAPACITY_ON_DEMAND);
    require_cheaper(replacement, ceiling)
}

fn spot_to_spot(view: &ClusterView<'_>, replacement: &mut Replacement<'_>, ceiling: Price, nodes: usize) -> Result<(), KeepReason> {
    if view.input.settings.spot_to_spot == Gate::Off {
        return Err(KeepReason::SpotToSpotDisabled);
    }
    replacement.restrict_to(labels::CAPACITY_SPOT);
    replacement.keep_launchable();
    require_cheaper(replacement, ceiling)?;
    if nodes > 1 {
        return Ok(());
    }
    if replacement.len() < SPOT_TYPES_MIN {
        return Err(KeepReason::SpotToSpotTooFewTypes { found: replacement.len() });
    }
    replacement.keep_cheapest(SPOT_TYPES_MIN);
    Ok(())
}

/// Replacing {large, large, small} by a small node is no better than deleting the large ones (disruption 8.7): the
/// replacement must be cheaper than the cheapest removed node whose type it may have. This also drops types that have
/// no offering left under the requirements, for example after restricting them to spot.
fn filter_out_same_types(view: &ClusterView<'_>, replacement: &mut Replacement<'_>, nodes: &[&Candidate<'_>]) -> Result<(), KeepReason> {
    let mut price_of: BTreeMap<&str, Price> = BTreeMap::new();
    for node in nodes {
        let Some(instance_type) = node.instance_type else { continue };
        let node_labels: Requirements = from_labels(node.machine.state.labels());
        let admitted = view.offerings.admitted(&node_labels);
        let fitting = view.offerings.kinds_of(instance_type).filter(|(kind, _)| admitted[*kind]);
        // Types without a known price set no bound.
        let Some(price) = fitting.map(|(_, offering)| offering.price).filter(|price| *price > Price::ZERO).min() else { continue };
        price_of.entry(&instance_type.name).and_modify(|known| *known = price.min(*known)).or_insert(price);
    }
    let shared = replacement.type_names().filter_map(|name| price_of.get(name)).min().copied();
    require_cheaper(replacement, shared.unwrap_or(Price::MAX))
}

pub(super) fn command(
    view: &ClusterView<'_>,
    method: Method,
    nodes: &[&Candidate<'_>],
    replacement: Option<Replacement<'_>>,
    (destinations, placements): (Vec<String>, Vec<Placement>),
) -> Command {
    let mut removals: Vec<_> = nodes.iter().map(|node| node.removal()).collect();
    removals.sort_by(|a, b| a.node.cmp(&b.node));
    let before: Price = removals.iter().map(|removal| removal.price).sum();
    let after = replacement.as_ref().map_or(Price::ZERO, Replacement::expected_price);
    let now = view.now();
    Command {
        method,
        removals,
        replacements: replacement.map(Replacement::into_claim).into_iter().collect(),
        destinations,
        placements,
        savings: Savings::between(before, after),
        execute_after: now.checked_add(VALIDATION_WAIT).unwrap_or(now),
    }
}
