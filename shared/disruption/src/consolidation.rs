//! What multi-node and single-node consolidation share: the choice of candidates and the approval of commands.

use super::balanced::{PoolScore, Totals};
use super::candidates::Candidate;
use super::memory;
use super::pass::Pass;
use super::verdict::KeepReason;
use whittle_api::karpenter::{ConsolidationPolicy, NodePool};
use whittle_api::labels;
use whittle_model::disruption::{Command, Method};
use whittle_units::Price;

/// Consolidation candidates in the order of their savings ratio (disruption 8.1, 8.3).
pub(super) fn eligible<'w>(pass: &mut Pass<'w>, method: Method) -> Vec<Candidate<'w>> {
    let mut found = Vec::new();
    for candidate in pass.candidates.clone() {
        if !candidate.may_be_disrupted_by(method) {
            continue;
        }
        // It would spoil every set that it is in; by itself it may still go without a replacement.
        let facts = candidate.machine.facts;
        if method == Method::MultiNode && (facts.replacement_refused.is_some() || facts.was_refused_replacement) {
            continue;
        }
        match filter(pass, &candidate) {
            Ok(()) => found.push(candidate),
            Err(Some(keep)) => pass.keep(&candidate, keep),
            Err(None) => {}
        }
    }
    pass.count_eligible(method, found.len());
    found.sort_by(Candidate::by_savings_ratio);
    // Where EC2 refused the replacement of one, that of another may be of other types.
    found.sort_by_key(|candidate| candidate.machine.facts.was_refused_replacement);
    found
}

/// `Err(None)`: the verdict of emptiness applies.
pub(super) fn filter(pass: &Pass<'_>, candidate: &Candidate<'_>) -> Result<(), Option<KeepReason>> {
    let pool = candidate.pool_name().to_owned();
    let label = |key| candidate.machine.label(key);
    if candidate.pool.is_static() {
        return Err(None);
    }
    if candidate.instance_type.is_none() {
        let name = label(labels::INSTANCE_TYPE).unwrap_or_default().to_owned();
        return Err(Some(KeepReason::InstanceTypeUnknown(name)));
    }
    for key in [labels::CAPACITY_TYPE, labels::ZONE] {
        if label(key).is_none() {
            return Err(Some(KeepReason::LabelMissing(key)));
        }
    }
    let disruption = &candidate.pool.spec.disruption;
    if disruption.consolidate_after.span().is_none() {
        return Err(Some(KeepReason::ConsolidationDisabled { pool }));
    }
    if candidate.is_empty() {
        return Err(None);
    }
    if disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty {
        return Err(Some(KeepReason::NotEmpty { pool }));
    }
    if pass.is_consolidatable(candidate) { Ok(()) } else { Err(Some(pass.consolidate_after_reason(candidate))) }
}

/// Checks that a feasible command is worth executing: EC2 must not have refused a replacement of its nodes lately, it must not move pods
/// too often, the Balanced policy must approve it, and it must save the pool's minimum. The pools' scores are added to `weighed`.
pub(super) fn approve(
    pass: &Pass<'_>,
    totals: &Totals,
    nodes: &[&Candidate<'_>],
    command: &Command,
    scores: &mut Vec<PoolScore>,
) -> Result<(), KeepReason> {
    let refused = nodes.iter().filter_map(|node| node.machine.facts.replacement_refused.as_ref()).max_by_key(|refused| refused.until);
    if let Some(refused) = refused.filter(|_| !command.replacements.is_empty()) {
        return Err(KeepReason::of_refusal(refused));
    }
    memory::check_move_limit(&pass.memory, pass.view, nodes)?;
    let approval = totals.approve(nodes, command);
    scores.extend(totals.score_by_pool(nodes, command, approval.is_ok()));
    if let Err(thousandths) = approval {
        return Err(KeepReason::PoorScore { thousandths });
    }
    let minimum = nodes.iter().map(|node| minimum_saving(node.pool)).max().unwrap_or(Price::ZERO);
    let saved = u64::try_from(command.savings.nanos()).unwrap_or(0);
    if saved < minimum.nanos() {
        return Err(KeepReason::SavesTooLittle { savings: command.savings, minimum });
    }
    Ok(())
}

/// What a consolidation must save, in dollars per hour, from the pool's annotation; zero if it is absent or not a
/// positive number.
fn minimum_saving(pool: &NodePool) -> Price {
    let written = pool.metadata.annotation(labels::MINIMUM_SAVING).and_then(|text| text.trim().parse::<f64>().ok());
    written.map_or(Price::ZERO, Price::from_dollars)
}
