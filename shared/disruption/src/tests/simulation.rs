//! Where the pods of a removed node may be placed, and what keeps a node for lack of a place.

use crate::candidates::candidate;
use crate::cluster_view::ClusterView;
use crate::simulate::{Simulator, Targets};
use crate::testing::{Scene, instance_type, noon, reason_of, render};
use jiff::ToSpan as _;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{Affinity, Pod, PodAffinity, PodAffinityTerm, PodDisruptionBudget, TopologySpreadConstraint};
use whittle_api::karpenter::{NodePool, Operator, Requirement};
use whittle_api::{ConditionStatus, LabelSelector, NillableDuration, conditions, labels};
use whittle_model::disruption::{Gate, Method};
use whittle_model::scheduling::Packing;
use whittle_units::Price;

fn scene(nodes: &[(&str, i64, &str)]) -> Scene {
    let mut scene = Scene::new();
    for (node, cpu, pod) in nodes {
        scene.node(node, "default", *cpu);
        scene.pod(&format!("pod-{node}"), node, pod);
    }
    scene
}

fn keep(scene: &mut Scene, node: &str) {
    scene.parts(node).0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
}

fn web() -> LabelSelector {
    LabelSelector { match_labels: [("app".to_owned(), "web".to_owned())].into(), ..LabelSelector::default() }
}

fn relabel(scene: &mut Scene, capacity_type: &str, nodes: &[&str]) {
    for name in nodes {
        let (node, claim) = scene.parts(name);
        for labels in [&mut node.metadata.labels, &mut claim.metadata.labels] {
            labels.insert(labels::CAPACITY_TYPE.to_owned(), capacity_type.to_owned());
        }
    }
}

#[test]
fn a_node_that_a_large_pending_pod_needs_is_neither_deleted_nor_shrunk() {
    let mut scene = scene(&[("big", 16, "500m")]);
    scene.pod("large", "", "14");
    scene.the_pool("default").spec.limits.set("cpu", whittle_units::Quantity::from_units(16));
    scene.expect(&[]);
    assert_eq!(reason_of(&scene.best().decide(), "big").code(), "NothingCheaper");
}

#[test]
fn a_node_that_reports_more_than_its_machine_can_have_draws_no_pods_of_others() {
    let cases: [(i64, &[&str]); 3] = [(4, &[]), (8, &["single delete [honest]"]), (1_000_000, &[])];
    for (reported, want) in cases {
        let mut scene = scene(&[("honest", 4, "3"), ("odd", 4, "3")]);
        keep(&mut scene, "odd");
        scene.parts("odd").0.status.allocatable.set("cpu", whittle_units::Quantity::from_units(reported));
        scene.expect(want);
    }
}

#[test]
fn pods_may_move_to_nodes_that_no_pool_owns() {
    let mut scene = scene(&[("a", 4, "1")]);
    let (mut node, _) = { scene.node("foreign", "default", 4) };
    node.metadata.labels.retain(|key, _| key == labels::HOSTNAME || key == labels::ZONE);
    scene.objects.node_claims.pop();
    let decision = scene.expect(&["single delete [a]"]);
    assert_eq!(decision.commands[0].destinations, ["foreign"]);
    node = scene.objects.nodes.last_mut().unwrap();
    node.spec.taints.push(whittle_api::k8s::Taint::new("team", whittle_api::k8s::TaintEffect::NoSchedule));
    assert_eq!(scene.decide().commands[0].replacements.len(), 1);
}

#[test]
fn a_pool_without_instance_types_does_not_block_others() {
    for broken in [0, 1, 2] {
        let mut scene = scene(&[("a", 16, "1")]);
        let pool = scene.pool("broken");
        match broken {
            0 => conditions::clear(&mut pool.status.conditions, conditions::READY),
            1 => {
                let impossible = Requirement { operator: Operator::In, ..Requirement::is_in(labels::INSTANCE_TYPE, ["unheard-of"]) };
                pool.spec.template.spec.requirements = vec![impossible];
                false
            }
            _ => scene.catalog.remove("broken").is_none(),
        };
        scene.expect(&["single replace [a] -> x1|x2|x4|x8"]);
        scene.node("room", "default", 4);
        scene.pod("resident", "room", "1");
        keep(&mut scene, "room");
        scene.expect(&["single delete [a]"]);
    }
}

#[test]
fn a_node_whose_pods_changed_recently_is_kept_while_others_are_deleted() {
    let mut scene = scene(&[("a", 4, "1"), ("b", 4, "1"), ("room", 8, "1")]);
    keep(&mut scene, "room");
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(60);
    scene.parts("a").1.status.last_pod_event_time = Some(noon() - 59.seconds());
    scene.expect(&["single delete [b]"]);
    scene.expect_reason("a", "ConsolidateAfter");
}

#[test]
fn pods_without_an_owner_move_like_others() {
    let mut scene = scene(&[("a", 4, "1"), ("room", 4, "1")]);
    keep(&mut scene, "room");
    scene.objects.pods[0].metadata.owner_references.clear();
    scene.expect(&["single delete [a]"]);
}

#[test]
fn nodes_that_have_not_initialized_receive_no_moved_pods() {
    let mut scene = scene(&[("a", 4, "3")]);
    scene.node("young", "default", 4).0.metadata.labels.remove(labels::INITIALIZED);
    scene.expect(&[]);
    scene.node("ready", "default", 4);
    scene.pod("on-ready", "ready", "100m");
    keep(&mut scene, "ready");
    let decision = scene.expect(&["single delete [a]"]);
    assert_eq!(decision.commands[0].destinations, ["ready"], "initialized ones come first");
}

#[test]
fn pods_of_deleting_nodes_may_wait_for_nodes_that_have_not_initialized() {
    let mut scene = scene(&[("going", 4, "3500m"), ("a", 4, "1"), ("room", 4, "1")]);
    keep(&mut scene, "room");
    scene.marks.insert("going".to_owned(), (true, None));
    scene.node("young", "default", 4).0.metadata.labels.remove(labels::INITIALIZED);
    scene.expect(&["single delete [a]"]);
}

#[test]
fn a_pod_that_was_pending_before_blocks_no_command() {
    let mut scene = scene(&[("a", 4, "1"), ("room", 4, "1")]);
    keep(&mut scene, "room");
    scene.pod("rules_out", "", "1").spec.node_selector.insert("disk".to_owned(), "ssd".to_owned());
    scene.expect(&["single delete [a]"]);
}

#[test]
fn a_pool_that_never_consolidates_receives_pods_of_others() {
    let mut scene = scene(&[("a", 4, "1")]);
    scene.pool("still").spec.disruption.consolidate_after = NillableDuration::Never;
    scene.node("room", "still", 4).1.status.last_pod_event_time = Some(noon());
    scene.pod("resident", "room", "1");
    scene.expect(&["single delete [a]"]);
}

#[test]
fn a_static_pool_receives_pods_of_others_whatever_its_consolidate_after() {
    let scene_of = |replicas: Option<i64>| {
        let mut scene = scene(&[("a", 4, "1")]);
        let fixed = scene.pool("fixed");
        fixed.spec.replicas = replicas;
        fixed.spec.disruption.consolidate_after = NillableDuration::from_secs(3600);
        scene.node("room", "fixed", 4).1.status.last_pod_event_time = Some(noon());
        scene.pod("resident", "room", "1");
        scene
    };
    scene_of(Some(1)).expect(&["single delete [a]"]);
    scene_of(Some(1)).best().expect(&["single delete [a]"]);
    scene_of(None).expect(&["single replace [a] -> x1|x2"]);
}

#[test]
fn a_pool_that_gets_no_nodes_for_pods_receives_those_of_others_whatever_its_consolidate_after() {
    let check = |close: fn(&mut NodePool), commands: &[&str]| {
        let scene_of = || {
            let mut scene = scene(&[("a", 4, "1")]);
            let pool = scene.pool("closed");
            pool.spec.disruption.consolidate_after = NillableDuration::from_secs(3600);
            close(pool);
            scene.node("room", "closed", 4).1.status.last_pod_event_time = Some(noon());
            scene.pod("resident", "room", "1");
            scene
        };
        scene_of().expect(commands);
        scene_of().best().expect(commands);
    };
    check(|_| {}, &["single replace [a] -> x1|x2"]);
    let unready = |pool: &mut NodePool| {
        conditions::set(&mut pool.status.conditions, conditions::READY, ConditionStatus::False, "", "", noon());
    };
    check(unready, &["single delete [a]"]);
    check(|pool| pool.metadata.deletion_timestamp = Some(noon()), &["single delete [a]"]);
}

#[test]
fn a_pod_that_does_not_run_yet_may_move_to_a_node_whose_pods_changed_recently() {
    for (phase, moves) in [("Pending", true), ("Running", false)] {
        let scene_of = || {
            let mut scene = scene(&[("old", 4, "1"), ("young", 4, "1")]);
            let types: Vec<InstanceType> = vec![instance_type(4)];
            scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
            scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(3600);
            scene.parts("young").1.status.last_pod_event_time = Some(noon() - 1.minute());
            phase.clone_into(&mut scene.objects.pods[0].status.phase);
            scene
        };
        let commands: &[&str] = if moves { &["single delete [old]"] } else { &[] };
        scene_of().expect(commands);
        scene_of().best().expect(commands);
    }
}

/// Gives a pod a required anti-affinity to the pods of app `web`.
fn repel_web(pod: &mut Pod, topology_key: &str) {
    let term = PodAffinityTerm { label_selector: Some(web()), topology_key: topology_key.to_owned(), ..PodAffinityTerm::default() };
    let apart = PodAffinity { required: vec![term], ..PodAffinity::default() };
    pod.spec.affinity = Some(Affinity { pod_anti_affinity: Some(apart), ..Affinity::default() });
}

#[test]
fn pods_with_anti_affinity_are_not_put_together() {
    let mut scene = scene(&[("a", 2, "500m"), ("b", 2, "500m")]);
    for pod in &mut scene.objects.pods {
        pod.metadata.labels.insert("app".to_owned(), "web".to_owned());
        repel_web(pod, labels::HOSTNAME);
    }
    let decision = scene.decide();
    assert!(decision.commands.iter().all(|command| !command.replacements.is_empty()), "{:?}", decision.commands);
}

/// Two anti-affinities repel the pod of `b`. A prepared simulation has read that by NodePool first, a solve from scratch that by
/// zone, since the pods of the removed node come first.
#[test]
fn a_reason_names_the_same_anti_affinity_whichever_pod_was_read_first() {
    let mut scene = Scene::new();
    scene.pool("other");
    for (node, pool) in [("a", "other"), ("b", "default"), ("c", "other")] {
        scene.node(node, pool, 4);
    }
    repel_web(scene.pod("by-pool", "a", "100m"), labels::NODE_POOL);
    repel_web(scene.pod("by-zone", "b", "100m"), labels::ZONE);
    repel_web(scene.pod("also-by-zone", "c", "100m"), labels::ZONE);
    for (pod, node) in [("web-a", "a"), ("web-b", "b")] {
        scene.pod(pod, node, "100m").metadata.labels.insert("app".to_owned(), "web".to_owned());
    }
    scene.with(|input| {
        let view = ClusterView::new(input);
        let b = candidate(&view, view.machines.iter().find(|machine| machine.name() == "b").unwrap()).unwrap();
        let reason = |simulations: u32| {
            let simulated = Simulator::new(&view, simulations).without(&[&b], Targets::All, Packing::Reference);
            simulated.unwrap_err().to_string()
        };
        let (prepared, from_scratch) = (reason(2), reason(1));
        assert!(prepared.contains("pod anti-affinity, key=karpenter.sh/nodepool"), "{prepared}");
        assert_eq!(prepared, from_scratch);
    });
}

#[test]
fn a_replacement_stays_in_the_zone_that_the_spread_needs() {
    let mut scene = scene(&[("a", 16, "1"), ("b", 2, "1500m")]);
    relabel(&mut scene, "on-demand", &["a", "b"]);
    let (node, claim) = scene.parts("b");
    for labels in [&mut node.metadata.labels, &mut claim.metadata.labels] {
        labels.insert(labels::ZONE.to_owned(), "b".to_owned());
    }
    keep(&mut scene, "b");
    for pod in &mut scene.objects.pods {
        pod.metadata.labels.insert("app".to_owned(), "web".to_owned());
        pod.spec.topology_spread_constraints = vec![TopologySpreadConstraint {
            max_skew: 1,
            label_selector: Some(web()),
            topology_key: labels::ZONE.to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            ..TopologySpreadConstraint::default()
        }]
        .into();
    }
    let decision = scene.expect(&["single replace [a] -> x1|x2|x4|x8"]);
    let zone = decision.commands[0].replacements[0].requirements.iter().find(|asked| asked.key == labels::ZONE).unwrap();
    assert_eq!(zone.values, ["a"]);
}

#[test]
fn a_lenient_budget_lets_an_unhealthy_pod_move() {
    let mut scene = scene(&[("big", 16, "1")]);
    let mut pdb = PodDisruptionBudget::default();
    pdb.metadata.namespace = "default".to_owned();
    pdb.spec.selector = Some(LabelSelector::default());
    scene.objects.disruption_budgets.push(pdb);
    let ready = whittle_api::k8s::PodCondition { type_: "Ready".to_owned(), status: "False".to_owned(), ..Default::default() };
    scene.objects.pods[0].status.conditions.push(ready);
    scene.expect_reason("big", "PodDisruptionBudget");
    "AlwaysAllow".clone_into(&mut scene.objects.disruption_budgets[0].spec.unhealthy_pod_eviction_policy);
    scene.expect(&["single replace [big] -> x1|x2|x4|x8"]);
}

/// It runs, however it came there: evicted, it would find no node again.
#[test]
fn a_pod_that_no_node_matches_is_never_moved() {
    let mut scene = scene(&[("big", 16, "1")]);
    let affinity = r#"{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}"#;
    scene.objects.pods[0].spec.affinity = serde_json::from_str(affinity).unwrap();
    scene.expect_reason("big", "PodsWouldNotSchedule");
    scene.objects.pods[0].spec.affinity = None;
    scene.expect(&["single replace [big] -> x1|x2|x4|x8"]);
}

/// A type with a reservation in zone a, nearly free.
fn reserved(cpu: i64, id: &str) -> InstanceType {
    let mut of = instance_type(cpu);
    let own = vec![
        Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_RESERVED]),
        Requirement::is_in(labels::ZONE, ["a"]),
        Requirement::is_in(labels::RESERVATION_ID, [id]),
    ];
    let price = Price::from_nanos(of.offerings[0].price.nanos() / 10_000_000);
    of.offerings.push(Offering { requirements: own, price, available: true, reservation_capacity: Some(1) });
    of.requirements[4] = Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "reserved", "spot"]);
    of.requirements.push(Requirement::is_in(labels::RESERVATION_ID, [id]));
    of
}

#[test]
fn a_reservation_replaces_on_demand_spot_and_larger_reservations() {
    for from in ["on-demand", "spot", "reserved"] {
        let mut scene = scene(&[("n", 8, "1500m")]);
        let all = ["on-demand", "spot", "reserved"];
        scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, all)];
        scene.catalog.insert("default".to_owned(), Arc::new(vec![reserved(2, "cr-2"), reserved(8, "cr-8")].into()));
        relabel(&mut scene, from, &["n"]);
        scene.settings.spot_to_spot = Gate::Off;
        let decision = scene.decide();
        assert_eq!(decision.commands.len(), 1, "from {from}: {:?}", decision.verdicts);
        let claim = &decision.commands[0].replacements[0];
        let capacity = claim.requirements.iter().find(|asked| asked.key == labels::CAPACITY_TYPE).unwrap();
        assert_eq!(capacity.values, ["reserved"], "from {from}");
    }
}

#[test]
fn a_spot_replacement_that_costs_more_is_rejected() {
    let mut scene = scene(&[("n", 2, "1500m")]);
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    relabel(&mut scene, "spot", &["n"]);
    scene.settings.spot_to_spot = Gate::On;
    scene.expect(&[]);
    scene.expect_reason("n", "NothingCheaper");
}

#[test]
fn spot_and_on_demand_nodes_merge_below_the_sum_of_their_prices() {
    let mut scene = scene(&[("a", 4, "1500m"), ("b", 4, "1500m"), ("c", 4, "1500m")]);
    relabel(&mut scene, "spot", &["a"]);
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot", "on-demand"])];
    scene.settings.spot_to_spot = Gate::On;
    let decision = scene.decide();
    let command = &decision.commands[0];
    assert_eq!(command.method, Method::MultiNode, "{}", render(command));
    assert!(command.savings.nanos() > 0 && command.removals.len() > 1);
}

#[test]
fn nodes_are_not_merged_into_one_of_their_own_type() {
    // Neither has a cheaper replacement alone; together they fit on one more of the same type.
    let mut scene = scene(&[("a", 2, "900m"), ("b", 2, "900m")]);
    let types: Vec<InstanceType> = vec![instance_type(2)];
    scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
    let decision = scene.expect(&["single delete [a]"]);
    assert_eq!(decision.commands[0].destinations, ["b"]);
}

#[test]
fn min_values_are_never_relaxed_for_a_consolidation_and_break_no_search() {
    let ask = |scene: &mut Scene, types: u32| {
        let requirement = Requirement { operator: Operator::Exists, ..Requirement::default() };
        let requirement = Requirement { key: labels::INSTANCE_TYPE.to_owned(), min_values: Some(types), ..requirement };
        scene.the_pool("default").spec.template.spec.requirements.push(requirement);
    };
    let mut alone = scene(&[("n", 4, "1500m")]);
    ask(&mut alone, 3);
    alone.settings.solve.min_values = whittle_model::scheduling::MinValuesPolicy::BestEffort;
    alone.expect(&[]);
    alone.expect_reason("n", "MinValues");
}

#[test]
fn min_values_that_break_when_own_types_are_left_out_stop_the_search_and_nothing_else() {
    // Nothing may be placed on the nodes themselves. Together they could be replaced by x4 or y4; x4 is their own type,
    // and nothing is cheaper than that.
    let mut scene = scene(&[("a", 4, "1900m"), ("b", 4, "1900m")]);
    for node in ["a", "b"] {
        let taint = whittle_api::k8s::Taint::new("maintenance", whittle_api::k8s::TaintEffect::NoSchedule);
        scene.parts(node).0.spec.taints.push(taint);
    }
    let mut types: Vec<InstanceType> = [1, 2, 4, 8, 4].map(instance_type).into();
    "y4".clone_into(&mut types[4].name);
    types[4].requirements[0] = Requirement::is_in(labels::INSTANCE_TYPE, ["y4"]);
    types[4].offerings.iter_mut().for_each(|offering| offering.price = Price::from_dollars(0.25));
    scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
    scene.expect(&["single replace [a] -> x2"]);
    let requirement = Requirement { operator: Operator::Exists, ..Requirement::default() };
    let two = Requirement { key: labels::INSTANCE_TYPE.to_owned(), min_values: Some(2), ..requirement };
    scene.the_pool("default").spec.template.spec.requirements.push(two);
    scene.expect(&[]);
    scene.expect_reason("a", "MinValues");
}

#[test]
fn a_shared_type_whose_price_is_unknown_does_not_count_as_free() {
    // Nothing may be placed on the nodes themselves. Together they fit on x4, which has no price any more where a is, and costs
    // less than b.
    let mut scene = scene(&[("a", 4, "1900m"), ("b", 8, "1900m")]);
    for node in ["a", "b"] {
        let taint = whittle_api::k8s::Taint::new("maintenance", whittle_api::k8s::TaintEffect::NoSchedule);
        scene.parts(node).0.spec.taints.push(taint);
    }
    let mut types: Vec<InstanceType> = [4, 8].map(instance_type).into();
    for offering in types[0].offerings.iter_mut().filter(|offering| offering.zone() == "a") {
        (offering.price, offering.available) = (Price::ZERO, false);
    }
    scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
    let decision = scene.decide();
    let command = &decision.commands[0];
    let mut removed: Vec<&str> = command.removals.iter().map(|removal| removal.node.as_str()).collect();
    removed.sort_unstable();
    assert_eq!((command.method, removed), (Method::MultiNode, vec!["a", "b"]), "{}", render(command));
}

#[test]
fn several_nodes_are_replaced_only_by_types_available_as_spot() {
    // Together they fit on x8 and on an accelerator without spot offerings at the moment.
    let mut scene = scene(&[("a", 4, "3"), ("b", 4, "3")]);
    let mut types: Vec<InstanceType> = [4, 8, 8].map(instance_type).into();
    "y8".clone_into(&mut types[2].name);
    types[2].requirements[0] = Requirement::is_in(labels::INSTANCE_TYPE, ["y8"]);
    for offering in &mut types[2].offerings {
        offering.available = offering.capacity_type() == labels::CAPACITY_ON_DEMAND;
        offering.price = Price::from_dollars(0.39);
    }
    scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot", "on-demand"])];
    scene.expect(&["multi replace [a b] -> x8"]);
}

#[test]
fn a_pass_out_of_simulations_returns_its_best_command_and_records_a_timeout() {
    let mut scene = scene(&[("a", 4, "500m"), ("b", 4, "500m"), ("c", 4, "500m"), ("d", 4, "500m")]);
    scene.settings.simulations_max = 1;
    let decision = scene.decide();
    assert_eq!(decision.commands.len(), 1, "the first set was enough");
    assert!(decision.commands[0].removals.len() >= 2);
}

#[test]
fn no_more_than_a_hundred_nodes_are_removed_at_once() {
    let mut scene = Scene::new();
    for at in 0..130 {
        let name = format!("n{at:03}");
        scene.node(&name, "default", 2);
        scene.pod(&format!("pod-{name}"), &name, "10m");
    }
    let decision = scene.decide();
    let taken = decision.commands[0].removals.len();
    assert!((2..=101).contains(&taken), "{taken}");
}

#[test]
fn a_protected_pod_that_arrives_during_the_wait_rejects_a_command() {
    let spec = scene(&[("big", 16, "1500m")]);
    let proposal = spec.decide().commands[0].proposal(noon());
    let change: [fn(&mut Scene); 3] = [
        |scene| {
            scene.pod("late", "big", "100m").metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        },
        |scene| {
            let mut pdb = PodDisruptionBudget::default();
            pdb.metadata.namespace = "default".to_owned();
            pdb.spec.selector = Some(LabelSelector::default());
            scene.objects.disruption_budgets.push(pdb);
        },
        |scene| {
            scene.marks.insert("big".to_owned(), (false, Some(noon() + 1.minute())));
        },
    ];
    for change in change {
        let mut later = scene(&[("big", 16, "1500m")]);
        later.now = noon() + 15.seconds();
        change(&mut later);
        let rejection = later.validate(&proposal).unwrap_err();
        assert_eq!((rejection.cause, rejection.failed), (crate::RejectionCause::Churn, 1));
    }
    // Prices have risen since, so the replacement costs more than what it replaces.
    let mut later = scene(&[("big", 16, "1500m")]);
    later.now = noon() + 15.seconds();
    let mut types: Vec<InstanceType> = [1, 2, 4, 8, 16].map(instance_type).into();
    for offering in &mut types[1].offerings {
        offering.price = Price::from_dollars(9.0);
    }
    later.catalog.insert("default".to_owned(), Arc::new(types.into()));
    assert_eq!(later.validate(&proposal).unwrap_err().cause, crate::RejectionCause::Scheduling);
}

#[test]
fn pods_beside_virtual_ones_may_move_and_virtual_pods_alone_keep_a_node() {
    let mut scene = scene(&[("mixed", 16, "1")]);
    let facts = whittle_model::disruption::ClaimFacts { buffer_pods: 2, ..Default::default() };
    scene.facts.insert("claim-mixed".to_owned(), facts.clone());
    scene.expect(&["single replace [mixed] -> x1|x2|x4|x8"]);
    scene.objects.pods.clear();
    scene.expect(&[]);
    scene.expect_reason("mixed", "BufferPods");
    scene.facts.clear();
    scene.expect(&["empty delete [mixed]"]);
}

#[test]
fn a_node_has_a_price_even_if_its_offering_is_unavailable() {
    let mut scene = scene(&[("n", 4, "1500m")]);
    let mut types: Vec<InstanceType> = [2, 4].map(instance_type).into();
    types[1].offerings.iter_mut().for_each(|offering| offering.available = false);
    scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
    let decision = scene.expect(&["single replace [n] -> x2"]);
    assert_eq!(decision.commands[0].savings.nanos(), 100_000_000);
}
