//! A plan as text.

use std::fmt::Write as _;
use whittle_model::scheduling::{LeftOut, NewClaim, Plan, PodRef, PoolRejection, Reason};
use whittle_solver::PreferenceCost;
use whittle_units::Price;

/// The maximum number of pods that are named; more are only counted.
const NAMED: usize = 5;

pub(crate) fn text(plan: &Plan, preference_cost: Option<&PreferenceCost>) -> String {
    let mut out = String::new();
    let _ = write!(out, "{} of {} pods placed, {} new machines, {}", plan.scheduled(), plan.pods, plan.claims.len(), plan.price());
    let besides = plan.machine_costs.filter(|besides| besides.cost > Price::ZERO);
    let _ = match besides {
        Some(besides) => writeln!(out, "; {} with what machines cost besides", plan.price() + besides.cost),
        None => writeln!(out),
    };
    if let Some(bound) = plan.lower_bound {
        let _ = match besides {
            Some(besides) => {
                writeln!(out, "no plan can cost less than {bound}, or than {} with what machines cost besides", besides.lower_bound)
            }
            None => writeln!(out, "no plan can cost less than {bound}"),
        };
    }
    if let Some(cost) = preference_cost {
        let (with, without) = cost.machines;
        let _ = writeln!(
            out,
            "preferences of {} pods are respected: {with} new machines for {}; without them it would be {without} for {}",
            cost.pods, cost.price, cost.without
        );
    }
    for rejection in &plan.unusable_pools {
        let _ = writeln!(out, "\nnodepool {} has nothing to buy: {}", rejection.node_pool, rejection.cause);
        ruled_out(&mut out, rejection);
    }
    for claim in &plan.claims {
        new_machine(&mut out, claim);
    }
    for placement in &plan.placements {
        let _ = writeln!(out, "\nexisting node {}\n  pods: {}", placement.node, names(&placement.pods));
    }
    plan.left_out.iter().for_each(|left| not_placed(&mut out, left));
    out
}

/// An unplaced pod, with the reason.
pub(crate) fn not_placed(out: &mut String, left: &LeftOut) {
    let _ = writeln!(out, "\nnot placed: {}\n  {}", left.pod.key(), left.reason);
    if let Reason::Pools(rejections) | Reason::NoTemplates(rejections) = &left.reason {
        rejections.iter().for_each(|rejection| ruled_out(out, rejection));
    }
}

/// The constraints that rule out a pool's types, with their numbers.
fn ruled_out(out: &mut String, rejection: &PoolRejection) {
    for ruled in rejection.ruled_out.iter().take(NAMED) {
        let _ = writeln!(
            out,
            "  nodepool {}: {} rules out {} of {} instance types",
            rejection.node_pool, ruled.constraint, ruled.types, ruled.of
        );
    }
}

/// A machine to launch, with the reason for its choice.
pub(crate) fn new_machine(out: &mut String, claim: &NewClaim) {
    let first = claim.instance_types.first().map_or("no type", String::as_str);
    let more = claim.instance_types.len().saturating_sub(1);
    let _ =
        writeln!(out, "\nnew machine from nodepool {}: {first} at {}, or one of {more} other types", claim.node_pool, claim.cheapest_price);
    if let Some(offer) = &claim.why.cheapest {
        let _ = writeln!(out, "  cheapest: {offer}; {} offerings to launch from", claim.offerings);
    }
    if let Some(offer) = &claim.why.next_offer {
        let _ = writeln!(out, "  next best offering: {offer}");
    }
    if let Some((name, price)) = &claim.why.next_best {
        let _ = writeln!(out, "  next best type: {name} at {price}");
    }
    for rejection in &claim.why.passed_over {
        let _ = writeln!(out, "  nodepool {} comes first, but: {}", rejection.node_pool, rejection.cause);
    }
    for narrowed in &claim.why.narrowed {
        let _ = writeln!(out, "  narrowed by its pods: {narrowed}");
    }
    let asks: Vec<String> = claim.requests.iter().map(|(name, amount)| format!("{name} {}", amount.text_of(name))).collect();
    let _ = writeln!(out, "  requests: {}", asks.join(", "));
    let _ = writeln!(out, "  pods: {}", names(&claim.pods));
}

fn names(pods: &[PodRef]) -> String {
    let mut list: Vec<String> = pods.iter().take(NAMED).map(PodRef::key).collect();
    if pods.len() > NAMED {
        list.push(format!("and {} more", pods.len() - NAMED));
    }
    list.join(", ")
}
