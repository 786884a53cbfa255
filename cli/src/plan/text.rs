//! A plan for people.

use std::fmt::Write as _;
use whittle_core::schedule::{NewClaim, Plan, PodRef, Reason};

/// More pods than this are counted, not named.
const NAMED: usize = 5;

pub(crate) fn text(plan: &Plan) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} of {} pods placed, {} new machines, {}", plan.scheduled(), plan.pods, plan.claims.len(), plan.price());
    if let Some(bound) = plan.lower_bound {
        let _ = writeln!(out, "no plan can cost less than {bound}");
    }
    for claim in &plan.claims {
        new_machine(&mut out, claim);
    }
    for placement in &plan.placements {
        let _ = writeln!(out, "\nexisting node {}\n  pods: {}", placement.node, names(&placement.pods));
    }
    for left in &plan.left_out {
        let _ = writeln!(out, "\nnot placed: {}\n  {}", left.pod.key(), left.reason);
        if let Reason::Pools(says) = &left.reason {
            for say in says {
                for ruled in say.ruled_out.iter().take(NAMED) {
                    let _ = writeln!(
                        out,
                        "  nodepool {}: {} rules out {} of {} instance types",
                        say.node_pool, ruled.constraint, ruled.types, ruled.of
                    );
                }
            }
        }
    }
    out
}

fn new_machine(out: &mut String, claim: &NewClaim) {
    let first = claim.instance_types.first().map_or("no type", String::as_str);
    let more = claim.instance_types.len().saturating_sub(1);
    let _ =
        writeln!(out, "\nnew machine from nodepool {}: {first} at {}, or one of {more} other types", claim.node_pool, claim.cheapest_price);
    if let Some((_, zone, capacity_type)) = &claim.why.cheapest {
        let _ = writeln!(out, "  cheapest in {zone}, {capacity_type}; {} offerings to launch from", claim.offerings);
    }
    if let Some((name, price)) = &claim.why.next_best {
        let _ = writeln!(out, "  next best: {name} at {price}");
    }
    for narrowed in &claim.why.narrowed {
        let _ = writeln!(out, "  narrowed by its pods: {narrowed}");
    }
    let asks: Vec<String> = claim.requests.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
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
