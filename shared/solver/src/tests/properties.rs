//! Properties of whole solves, on a small version of the benchmark.

#[allow(dead_code, reason = "shared with the benchmark, which uses all of it")]
#[path = "../../benches/mix.rs"]
pub(crate) mod mix;

use crate::solve;
use std::collections::BTreeSet;
use whittle_api::k8s::{Affinity, Node, NodeAffinity, NodeSelectorTerm, Pod, PreferredSchedulingTerm, Workloads};
use whittle_api::{SelectorRequirement, labels};
use whittle_model::scheduling::{Input, InstanceTypes, Options, Packing, Plan};
use whittle_model::state::ClusterState;
use whittle_units::{Price, Quantity, Resources};

fn decide(pods: Vec<Pod>, nodes: Vec<Node>, options: &Options) -> Plan {
    let (objects, catalog) = mix::cluster(pods, nodes);
    let state = ClusterState::of(&objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let plan = solve(&input, options);
    let wrong = whittle_checker::check(&input, options, &plan);
    assert!(wrong.is_empty(), "{}", wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    plan
}

fn karpenter() -> Options {
    Options { packing: Packing::Reference, ..Options::provisioning() }
}

fn diverse(count: usize) -> Vec<Pod> {
    mix::diverse(count, &mut mix::Dice::new(42))
}

fn asks(pod: &mut Pod) -> &mut Resources {
    &mut pod.spec.containers[0].resources.as_mut().unwrap().requests
}

#[test]
fn the_mix_is_placed_completely_and_cheaper_than_by_first_fit() {
    let first_fit = decide(diverse(300), Vec::new(), &karpenter());
    let best = decide(diverse(300), Vec::new(), &Options::provisioning());
    assert_eq!((first_fit.scheduled(), best.scheduled()), (300, 300));
    assert!(first_fit.claims.len() >= 60 && best.claims.len() >= 60, "every fifth pod needs a machine of its own");
    assert!(best.price().nanos() * 10 <= first_fit.price().nanos() * 9, "{} is not well below {}", best.price(), first_fit.price());
    assert!(best.lower_bound.unwrap() <= best.price());
}

#[test]
fn five_hundred_pods_cost_a_fifth_less_than_by_first_fit_and_more_effort_buys_more() {
    let first_fit = decide(diverse(500), Vec::new(), &karpenter());
    let best = decide(diverse(500), Vec::new(), &Options::provisioning());
    assert_eq!((first_fit.scheduled(), best.scheduled()), (500, 500));
    assert!(best.price().nanos() * 10 <= first_fit.price().nanos() * 8, "{} of {}", best.price(), first_fit.price());
    let plain = decide(diverse(500), Vec::new(), &Options { effort: 0, ..Options::provisioning() });
    let bound = best.lower_bound.unwrap();
    assert!(best.price() < plain.price(), "{} is not below {}", best.price(), plain.price());
    assert!(best.price().nanos() * 100 <= bound.nanos() * 115, "{} is far above {bound}", best.price());
    assert!(best.claims.iter().all(|c| c.instance_types.len() >= 15));
}

/// Memory is limited so that a claim may not be charged with the largest type: as in the benchmark with 100,000 pods.
#[test]
fn limits_that_the_largest_types_would_exceed_leave_no_pod_out() {
    let (mut objects, catalog) = mix::cluster(diverse(300), Vec::new());
    objects.node_pools[0].spec.limits = Resources::from([("memory", Quantity::from_mebibytes(1600 * 1024))]);
    let state = ClusterState::of(&objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let plans = [karpenter(), Options::provisioning()].map(|options| {
        let plan = solve(&input, &options);
        let wrong = whittle_checker::check(&input, &options, &plan);
        assert!(wrong.is_empty(), "{}", wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        plan
    });
    assert!(plans[0].scheduled() < 300, "Karpenter has no trouble with these limits");
    assert_eq!(plans[1].scheduled(), 300);
    let free = decide(diverse(300), Vec::new(), &Options::provisioning());
    assert!(plans[1].price().nanos() * 10 <= free.price().nanos() * 11, "{} instead of {}", plans[1].price(), free.price());
}

/// The checker checks once what equal claims share, and still each of them.
#[test]
fn one_wrong_claim_among_alike_ones_is_found() {
    let (objects, catalog) = mix::cluster(diverse(100), Vec::new());
    let state = ClusterState::of(&objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let options = Options::provisioning();
    let right = solve(&input, &options);
    assert!(right.claims.len() >= 20, "every fifth pod needs a machine of its own");
    for at in 0..right.claims.len() {
        let wrong = |spoil: &dyn Fn(&mut Plan)| {
            let mut plan = right.clone();
            spoil(&mut plan);
            let found = whittle_checker::check(&input, &options, &plan);
            found.into_iter().map(|v| (v.object, v.rule)).collect::<BTreeSet<_>>()
        };
        let object = format!("claim {at}");
        let dearer = wrong(&|plan| plan.claims[at].cheapest_price = Price::from_nanos(plan.claims[at].cheapest_price.nanos() + 1));
        assert_eq!(dearer, BTreeSet::from([(object.clone(), "price")]));
        let lighter = wrong(&|plan| plan.claims[at].requests = Resources::new());
        assert_eq!(lighter, BTreeSet::from([(object.clone(), "requests")]));
        let crowded = wrong(&|plan| {
            let next = (at + 1) % plan.claims.len();
            let pods = std::mem::take(&mut plan.claims[next].pods);
            plan.claims[at].pods.extend(pods);
        });
        let noticed = |(o, rule): &(String, &str)| *o == object && ["anti-affinity", "overfull"].contains(rule);
        assert!(crowded.iter().any(noticed), "{object}: {crowded:?}");
    }
}

#[test]
fn existing_machines_are_filled_first() {
    let plan = decide(diverse(100), mix::machines(12), &Options::provisioning());
    assert_eq!(plan.scheduled(), 100);
    assert_eq!(plan.placements.len(), 12);
}

#[test]
fn preferences_open_a_machine_per_pod() {
    let plan = decide(mix::preferring(40, &mut mix::Dice::new(42)), Vec::new(), &Options::provisioning());
    assert_eq!((plan.scheduled(), plan.claims.len()), (40, 40));
}

#[test]
fn the_order_of_the_objects_does_not_show() {
    let mut turned = diverse(150);
    turned.reverse();
    let (a, b) = (decide(diverse(150), mix::machines(3), &Options::provisioning()), {
        let mut nodes = mix::machines(3);
        nodes.reverse();
        decide(turned, nodes, &Options::provisioning())
    });
    assert_eq!(a, b);
}

#[test]
fn a_small_budget_starves_no_pod() {
    let mut pods = diverse(60);
    for (n, pod) in pods.iter_mut().enumerate() {
        pod.spec.affinity = None;
        pod.spec.topology_spread_constraints.clear();
        asks(pod).set("cpu", Quantity::from_units(1000 + i64::try_from(n).unwrap()));
    }
    let mut options = Options { work_budget: Some(7), ..Options::provisioning() };
    let mut considered: BTreeSet<String> = BTreeSet::new();
    for run in 0..60 {
        let plan = decide(pods.clone(), Vec::new(), &options);
        let Some(cursor) = plan.cursor else {
            assert!(run > 3, "the budget was no limit");
            assert!(considered.len() >= 50, "only {} of 60 pods had their turn before the last run", considered.len());
            return;
        };
        assert!(cursor.considered.len() > considered.len(), "run {run} got nowhere");
        assert!(considered.is_subset(&cursor.considered));
        considered.clone_from(&cursor.considered);
        options.cursor = cursor;
    }
    panic!("60 runs were not enough");
}

#[test]
fn absurd_pods_are_explained_and_do_not_disturb_the_others() {
    let mut pods = diverse(10);
    for pod in &mut pods {
        pod.spec.affinity = None;
        pod.spec.topology_spread_constraints.clear();
    }
    asks(&mut pods[0]).set("cpu", Quantity::from_units(-4));
    asks(&mut pods[1]).set("memory", Quantity::MAX);
    let requirement =
        |operator: &str, value: &str| SelectorRequirement { key: "zone".into(), operator: operator.into(), values: vec![value.into()] };
    let term = |expressions| NodeSelectorTerm { match_expressions: expressions, ..NodeSelectorTerm::default() };
    let wanting = |terms: Vec<NodeSelectorTerm>| {
        let required = Some(whittle_api::k8s::NodeSelector { node_selector_terms: terms });
        Some(Affinity { node_affinity: Some(NodeAffinity { required, ..NodeAffinity::default() }), ..Affinity::default() })
    };
    pods[2].spec.affinity = wanting(vec![term(vec![requirement("Near", "a")])]);
    pods[3].spec.affinity = wanting(vec![term(vec![requirement("In", "a"), requirement("In", "b")])]);
    let preferred =
        (0..2000).map(|n| PreferredSchedulingTerm { weight: n % 100, preference: term(vec![requirement("In", &n.to_string())]) });
    pods[4].spec.affinity = Some(Affinity {
        node_affinity: Some(NodeAffinity { preferred: preferred.collect(), ..NodeAffinity::default() }),
        ..Affinity::default()
    });
    pods[5].spec.node_selector.insert(labels::HOSTNAME.into(), "me".into());
    let plan = decide(pods, Vec::new(), &Options::provisioning());
    let left: Vec<(&str, &str)> = plan.left_out.iter().map(|l| (l.pod.name.as_str(), l.reason.category())).collect();
    let expected =
        [("pod-0", "ignored"), ("pod-1", "instance-types"), ("pod-2", "ignored"), ("pod-3", "requirements"), ("pod-5", "ignored")];
    assert_eq!(left, expected);
}

#[path = "../../benches/odd.rs"]
pub(crate) mod odd;

/// Cases that are each large in one respect, in small.
fn odd_cases() -> Vec<(&'static str, odd::Case<InstanceTypes>)> {
    let names = ["labelled", "sizes", "full", "crowded", "pools", "types", "social", "preferences", "selected", "deployments", "hopeless"];
    let mut out: Vec<(&str, odd::Case<InstanceTypes>)> = names.iter().map(|name| (*name, odd::case(name, 60).unwrap())).collect();
    out.push(("preferring", mix::cluster(mix::preferring(120, &mut mix::Dice::new(42)), Vec::new())));
    out.push(("mix", mix::cluster(diverse(120), Vec::new())));
    out.push(("machines", mix::cluster(diverse(120), mix::machines(20))));
    out
}

/// A checked plan.
fn checked(name: &str, (objects, catalog): &odd::Case<InstanceTypes>, options: &Options) -> Plan {
    let state = ClusterState::of(objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let input = Input { now, objects, nodes: &state.nodes, catalog, virtual_pods: &[], workloads: &workloads };
    let plan = solve(&input, options);
    let wrong = whittle_checker::check(&input, options, &plan);
    assert!(wrong.is_empty(), "{name}: {}", wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    plan
}

#[test]
fn no_benchmark_case_costs_more_or_leaves_out_more_than_by_first_fit() {
    for (name, case) in odd_cases() {
        let first_fit = checked(name, &case, &karpenter());
        let best = checked(name, &case, &Options::provisioning());
        assert!(best.left_out.len() <= first_fit.left_out.len(), "{name}: {} left out", best.left_out.len());
        assert!(best.price() <= first_fit.price(), "{name}: {} is more than {}", best.price(), first_fit.price());
        assert!(best.work >= first_fit.work && best.work < 400_000, "{name}: {} units of work", best.work);
    }
}

#[test]
fn an_odd_input_that_is_cut_off_goes_on_until_every_pod_had_its_turn() {
    for (name, mut case) in odd_cases() {
        let whole = checked(name, &case, &karpenter());
        let mut options = Options { work_budget: Some((whole.work / 2).max(1)), ..karpenter() };
        let mut placed = 0;
        for run in 0.. {
            assert!(run < 80, "{name}: {placed} placed in {run} runs");
            let plan = checked(name, &case, &options);
            let done: BTreeSet<String> = plan.claims.iter().flat_map(|c| &c.pods).map(|p| p.name.clone()).collect();
            let bound: Vec<(String, String)> =
                plan.placements.iter().flat_map(|p| p.pods.iter().map(|pod| (pod.name.clone(), p.node.clone()))).collect();
            placed += plan.scheduled();
            case.0.pods.retain(|p| !done.contains(&p.metadata.name));
            for pod in &mut case.0.pods {
                if let Some((_, node)) = bound.iter().find(|(name, _)| *name == pod.metadata.name) {
                    pod.spec.node_name.clone_from(node);
                    pod.status.phase = "Running".into();
                    pod.status.conditions.clear();
                }
            }
            let Some(cursor) = plan.cursor else { break };
            options.cursor = cursor;
        }
        // Pods on claims are not there for their neighbours yet, so more pods may find a place.
        assert!(placed >= whole.scheduled(), "{name}: {placed} of {} placed", whole.scheduled());
    }
}
