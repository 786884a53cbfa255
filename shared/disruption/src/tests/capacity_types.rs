//! What a replacement that may be spot or on-demand is bought as.

use crate::RejectionCause;
use crate::testing::{Scene, instance_type, noon};
use jiff::ToSpan as _;
use std::sync::Arc;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_model::disruption::Command;
use whittle_units::Price;

/// An on-demand node `n` with a pod of one and a half cores, in a pool of both capacity types. Only `sold` are available as spot.
fn scene(cpu: i64, sold: &[&str]) -> Scene {
    let mut scene = Scene::new();
    scene.node("n", "default", cpu);
    scene.pod("p", "n", "1500m");
    scene.the_pool("default").spec.template.spec.requirements.clear();
    let mut types = [1, 2, 4, 8, 16].map(instance_type);
    for found in &mut types {
        let is_sold = sold.contains(&found.name.as_str());
        for offering in &mut found.offerings {
            offering.available = is_sold || offering.capacity_type() != labels::CAPACITY_SPOT;
        }
    }
    scene.catalog.insert("default".to_owned(), Arc::new(types.into_iter().collect()));
    scene
}

fn capacity_types(command: &Command) -> Vec<String> {
    let names_it = |requirement: &&Requirement| requirement.key == labels::CAPACITY_TYPE;
    let requirements = command.replacements[0].requirements.iter();
    requirements.filter(names_it).flat_map(|requirement| requirement.values.clone()).collect()
}

/// The spot of x16 costs more than the node, and of x2 none is sold: a claim for spot could never be launched.
#[test]
fn a_replacement_whose_types_are_all_out_of_spot_is_bought_on_demand() {
    let decision = scene(4, &["x16"]).expect(&["single replace [n] -> x2"]);
    let command = &decision.commands[0];
    assert_eq!(capacity_types(command), ["on-demand"]);
    assert_eq!(command.replacements[0].cheapest_price, Price::from_nanos(100_000_000));
    assert_eq!(command.savings.nanos(), 100_000_000, "the replacement is paid for");
}

#[test]
fn a_replacement_is_never_bought_on_demand_while_one_of_its_types_is_sold_as_spot() {
    let decision = scene(8, &["x4"]).expect(&["single replace [n] -> x4|x2"]);
    let command = &decision.commands[0];
    assert_eq!(capacity_types(command), ["spot"]);
    assert_eq!(command.replacements[0].cheapest_price, Price::from_nanos(64_000_000));
}

#[test]
fn a_replacement_is_never_bought_on_demand_for_what_the_node_costs() {
    let scene = scene(2, &["x16"]);
    scene.expect(&[]);
    scene.expect_reason("n", "NothingCheaper");
}

#[test]
fn a_proposal_is_bought_as_what_is_sold_after_its_wait() {
    let proposal = scene(4, &["x16"]).decide().commands[0].proposal(noon());
    let validated = |sold: &[&str]| {
        let mut scene = scene(4, sold);
        scene.now = noon() + 15.seconds();
        scene.validate(&proposal)
    };
    assert_eq!(capacity_types(&validated(&["x16"]).unwrap()), ["on-demand"]);
    assert_eq!(capacity_types(&validated(&["x2", "x16"]).unwrap()), ["spot"]);
    let mut full = scene(4, &["x16"]);
    full.now = noon() + 15.seconds();
    full.pod("more", "n", "1");
    assert_eq!(full.validate(&proposal).unwrap_err().cause, RejectionCause::Scheduling, "no type that was proposed has room");
}
