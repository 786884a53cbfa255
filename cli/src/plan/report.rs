//! A plan as a report.

use super::output::Costs;
use super::text::{alike, lead, names, to_launch, why_not};
use crate::report::{Report, Section};
use crate::source::remarks::{self, Remark};
use std::collections::BTreeMap;
use whittle_model::scheduling::{NewClaim, Plan, PodRef};
use whittle_solver::PreferenceCost;

pub(super) fn report(plan: &Plan, preference_cost: Option<&PreferenceCost>, costs: &Costs, remarks: &[Remark]) -> Report {
    let (header, launches) = to_launch(&plan.claims);
    let rejections = plan.unusable_pools.iter().map(|pool| vec![pool.node_pool.clone(), pool.cause.to_string()]).collect();
    let existing = plan.placements.iter().map(|placed| vec![placed.node.clone(), count_and_names(placed.pods.iter().collect())]).collect();
    let left_out = alike(&plan.left_out, why_not);
    let left_out = left_out.iter().map(|alike| {
        let why: Vec<String> = why_not(alike[0]).lines().map(|line| line.trim().to_owned()).collect();
        vec![count_and_names(alike.iter().map(|left| &left.pod).collect()), why.join("; ")]
    });
    let sections = [
        Section::of_table("Pods that are not placed", &["Pods", "Why"], left_out.collect()),
        Section::of_table("To launch", header, launches),
        Section::of_table(
            "Machines",
            &["Machines", "NodePool", "Cheapest offer", "Or one of", "Requests of each", "Pods"],
            machines(&plan.claims),
        ),
        Section::of_table("On nodes that exist", &["Node", "Pods"], existing),
        Section::of_table("NodePools with nothing to buy", &["NodePool", "Why"], rejections),
    ];
    Report {
        title: "Plan".to_owned(),
        lead: lead(plan, preference_cost, costs),
        sections: remarks::around(remarks, sections.into_iter().flatten()),
    }
}

/// A row for each kind of machine: those that differ in nothing but their pods.
fn machines(claims: &[NewClaim]) -> Vec<Vec<String>> {
    let mut kinds: BTreeMap<Vec<String>, (usize, Vec<&PodRef>)> = BTreeMap::new();
    for claim in claims {
        let requests: Vec<String> = claim.requests.iter().map(|(name, amount)| format!("{name} {}", amount.text_of(name))).collect();
        let offer = match (&claim.why.cheapest, claim.instance_types.first()) {
            (Some(offer), _) => offer.to_string(),
            (None, Some(name)) => format!("{name} at {}", claim.cheapest_price),
            (None, None) => "none".to_owned(),
        };
        let others = claim.instance_types.len().saturating_sub(1);
        let kind = vec![claim.node_pool.clone(), offer, format!("{others} other types"), requests.join(", ")];
        let (count, pods) = kinds.entry(kind).or_default();
        *count += 1;
        pods.extend(&claim.pods);
    }
    let row = |(kind, (count, pods)): (Vec<String>, (usize, Vec<&PodRef>))| {
        let ends = [count_and_names(pods)];
        std::iter::once(count.to_string()).chain(kind).chain(ends).collect()
    };
    kinds.into_iter().map(row).collect()
}

fn count_and_names(pods: Vec<&PodRef>) -> String {
    format!("{}: {}", pods.len(), names(pods.into_iter()))
}
