//! Pod affinity and anti-affinity.

use super::world::{World, Z, all, expr, hard, left, near, reasons, required, sizes, soft, spread};
use crate::{Prepared, RecentNodes, solve};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::labels;
use whittle_model::scheduling::{Options, Packing, Simulation};

fn affine(key: &str, app: &str) -> Value {
    hard("podAffinity", near(key, app))
}

fn repelled(key: &str, app: &str) -> Value {
    hard("podAntiAffinity", near(key, app))
}

fn zone(zone: &str) -> Value {
    json!({"nodeSelector": {labels::ZONE: zone}})
}

#[test]
fn empty_affinities_ask_for_nothing() {
    let mut world = World::new();
    world.pod("it", json!({"affinity": {"podAffinity": {}, "podAntiAffinity": {}, "nodeAffinity": {}}}));
    assert!(left(&world.plan()).is_empty());
}

#[test]
fn pods_follow_others_to_their_host_or_architecture() {
    let mut world = World::new();
    let spread_others = json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "many", 1)]});
    world.pods("many", 10, &spread_others);
    world.pods("target", 1, &json!({"cpu": "1"}));
    world.pods("follower", 1, &affine(labels::HOSTNAME, "target"));
    world.pass();
    let host =
        |world: &World, app: &str| world.objects.pods.iter().find(|p| p.metadata.label("app") == Some(app)).unwrap().spec.node_name.clone();
    assert_eq!(host(&world, "target"), host(&world, "follower"));
    let mut world = World::new();
    let apart = json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "web", 1)]});
    world.pods("web", 1, &all(&[apart.clone(), json!({"cpu": "2", "nodeSelector": {labels::ARCH: "arm64"}})]));
    world.pods("web", 1, &all(&[apart, json!({"cpu": "1"}), affine(labels::ARCH, "web")]));
    world.pass();
    assert_eq!((world.counts(labels::ARCH, "web"), world.counts(labels::HOSTNAME, "web")), (vec![2], vec![1, 1]));
}

#[test]
fn a_zone_that_those_who_attract_open_later_is_found_though_nothing_was_left_before() {
    let mut world = World::new();
    world.node("old", 1, json!({labels::ZONE: Z[2]}));
    for app in ["friend", "foe"] {
        world.pods(app, 1, &json!({}));
        world.bind(app, "old");
    }
    // First in the queue: the largest, whose affinity only holds next to the pod that it repels.
    world.pods("it", 1, &all(&[json!({"cpu": "3"}), affine(labels::ZONE, "friend"), repelled(labels::ZONE, "foe")]));
    world.pods("friend", 1, &all(&[json!({"cpu": "2"}), zone(Z[0])]));
    let plan = world.pass();
    assert_eq!(left(&plan), [""; 0]);
    assert_eq!(world.label_of("it-2", labels::ZONE), Some(Z[0]));
}

#[test]
fn pods_that_attract_each_other_on_a_host_fill_one_and_no_second() {
    let spec = all(&[json!({"requests": {"cpu": "10m"}}), affine(labels::HOSTNAME, "web")]);
    let mut world = World::new();
    world.pods("web", 3, &spec);
    assert_eq!(sizes(&world.plan()), [3]);
    world.pods("web", 7, &spec);
    let plan = world.pass();
    assert_eq!((sizes(&plan), left(&plan).len()), (vec![5], 5));
    assert_eq!(left(&world.pass()).len(), 5, "nor in a later pass");
    let mut world = World::new();
    world.node("old", 4, json!({labels::ZONE: Z[0]})).spec.taints =
        serde_json::from_value(json!([{"key": "full", "effect": "NoSchedule"}])).unwrap();
    world.pods("web", 1, &json!({}));
    world.bind("web", "old");
    world.pods("web", 1, &all(&[zone(Z[1]), affine(labels::HOSTNAME, "web")]));
    assert_eq!(left(&world.plan()).len(), 1, "somewhere such a pod runs already");
}

#[test]
fn pods_that_attract_each_other_share_a_zone() {
    let spec = all(&[json!({"cpu": "3"}), affine(labels::ZONE, "web")]);
    let mut world = World::new();
    world.pods("web", 4, &spec);
    world.pass();
    assert_eq!(world.counts(labels::ZONE, "web"), [4]);
    let mut world = World::new();
    world.pods("web", 4, &all(&[spec, required(&[&[expr(labels::ZONE, "In", &[Z[2]])]])]));
    world.pass();
    assert!(world.objects.pods.iter().all(|p| world.label_of(&p.metadata.name, labels::ZONE) == Some(Z[2])));
}

/// As for kube-scheduler (scheduling 21): Karpenter launches a machine for a pod that is never bound.
#[test]
fn a_pod_that_may_not_reach_its_kind_has_no_place() {
    let mut world = World::new();
    for (n, z) in Z[..2].iter().enumerate() {
        world.pods("web", 1, &all(&[json!({"cpu": format!("{}", 2 - n)}), affine(labels::ZONE, "web"), zone(z)]));
    }
    assert_eq!(left(&world.pass()), ["web-1"]);
    assert_eq!((world.counts(labels::ZONE, "web"), left(&world.pass())), (vec![1], vec!["web-1"]), "nor in a later pass");
    for (pinned, placed) in [(Z[0], true), (Z[1], false)] {
        let mut world = World::new();
        world.node("old", 1, json!({labels::ZONE: Z[0]}));
        world.pods("web", 1, &json!({"cpu": "1"}));
        world.bind("web", "old");
        world.pods("web", 1, &all(&[json!({"cpu": "1"}), affine(labels::ZONE, "web"), zone(pinned)]));
        let plan = world.plan();
        assert_eq!(left(&plan).is_empty(), placed, "{pinned}");
        let says_so = |reason: &String| reason.contains("unsatisfiable topology constraint for pod affinity");
        assert!(super::world::reasons(&plan).iter().all(says_so), "{pinned}");
    }
}

#[test]
fn a_preference_for_a_kind_out_of_reach_keeps_no_pod_out() {
    let mut world = World::new();
    world.node("old", 1, json!({labels::ZONE: Z[0]}));
    world.pods("web", 1, &json!({"cpu": "1"}));
    world.bind("web", "old");
    world.pods("web", 2, &all(&[json!({"cpu": "1"}), soft("podAffinity", near(labels::ZONE, "web")), zone(Z[1])]));
    world.pass();
    assert_eq!(world.counts(labels::ZONE, "web"), [1, 2]);
}

#[test]
fn affinity_to_no_pod_has_no_place() {
    let mut world = World::new();
    world.pods("web", 10, &affine(labels::ZONE, "nobody"));
    let plan = world.plan();
    assert_eq!(left(&plan).len(), 10);
    assert!(
        super::world::reasons(&plan)[0].contains("unsatisfiable topology constraint for pod affinity, key=topology.kubernetes.io/zone")
    );
}

#[test]
fn a_target_whose_zone_is_open_is_followed_in_the_next_pass() {
    let mut world = World::new();
    world.pods("target", 1, &json!({"cpu": "2"}));
    world.pods("follower", 1, &affine(labels::ZONE, "target"));
    let plan = world.solve(&world.options.clone());
    assert_eq!(left(&plan), ["follower-1"]);
    world.pass();
    world.pass();
    assert_eq!((world.counts(labels::ZONE, "follower").len(), world.objects.pods.iter().filter(|p| p.is_bound()).count()), (1, 2));
    let mut world = World::new();
    world.pods("target", 1, &all(&[json!({"cpu": "2"}), required(&[&[expr(labels::ZONE, "In", &[Z[1]])]])]));
    world.pods("follower", 1, &affine(labels::ZONE, "target"));
    assert!(left(&world.plan()).is_empty(), "a target that is pinned is followed at once");
}

/// ADR 0019: the rules let it start anywhere; execution waits until the other's zone is known.
#[test]
fn a_pod_that_starts_while_the_zone_of_its_like_is_open_is_doubted_and_follows_in_the_next_pass() {
    let apart = json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "web", 1)]});
    let mut world = World::new();
    world.pods("web", 1, &all(&[apart.clone(), json!({"cpu": "3"})]));
    let second = all(&[apart, json!({"cpu": "1"}), affine(labels::ZONE, "web")]);
    world.pods("web", 1, &second);
    for packing in [Packing::Reference, Packing::Best] {
        let options = Options { packing, ..world.options.clone() };
        let plan = world.ask(|input| solve(input, &options));
        assert_eq!(left(&plan), [""; 0]);
        let (rest, wrong) = world.ask(|input| whittle_checker::without_violations(input, &options, plan));
        assert_eq!((wrong.len(), left(&rest)), (0, vec!["web-1"]), "{packing:?}");
    }
    world.objects.pods.truncate(1);
    world.pass();
    world.pods("web", 1, &second);
    world.pass();
    assert_eq!((world.counts(labels::ZONE, "web"), world.counts(labels::HOSTNAME, "web")), (vec![2], vec![1, 1]));
}

#[test]
fn chains_are_resolved_in_any_order() {
    let chain = [("db", None), ("web", Some("db")), ("cache", Some("web")), ("ui", Some("cache"))];
    for seed in 0..50_usize {
        let mut order: Vec<usize> = (0..4).collect();
        (0..4).for_each(|n| order.swap(n, (seed * 7 + n * 3) % 4));
        let mut world = World::new();
        for n in order {
            let (app, follows) = chain[n];
            world.pods(app, 1, &follows.map_or_else(|| json!({}), |f| affine(labels::HOSTNAME, f)));
        }
        assert_eq!(world.solve(&world.options).scheduled(), 4, "{seed}");
    }
    let mut world = World::new();
    world.pods("web", 1, &affine(labels::HOSTNAME, "db"));
    world.pods("cache", 1, &affine(labels::HOSTNAME, "web"));
    world.pods("ui", 1, &affine(labels::HOSTNAME, "cache"));
    assert_eq!(left(&world.plan()).len(), 3);
}

#[test]
fn namespaces_are_those_that_the_term_names() {
    let placed = |scope: Value| {
        let mut world = World::new();
        world.objects.namespaces =
            serde_json::from_value(json!([{"metadata": {"name": "other", "labels": {"team": "b"}}}, {"metadata": {"name": "default"}}]))
                .unwrap();
        world.pods("target", 1, &all(&[json!({"cpu": "2", "namespace": "other"}), zone(Z[0])]));
        world.pods("follower", 1, &hard("podAffinity", all(&[near(labels::ZONE, "target"), scope])));
        left(&world.plan()).is_empty()
    };
    assert!(!placed(json!({})));
    assert!(placed(json!({"namespaces": ["other"]})));
    assert!(placed(json!({"namespaceSelector": {}})));
    assert!(placed(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}})));
    assert!(!placed(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}})));
    assert!(placed(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}, "namespaces": ["other"]})));
}

/// Required affinity with these terms.
fn all_near(terms: &[Value]) -> Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

/// As for kube-scheduler (scheduling 21): Karpenter plans a pod that is never bound.
#[test]
fn one_pod_meets_all_required_terms_or_none() {
    let term = |key: &str, label: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {label: "yes"}}});
    let both = |[one, other]: [&str; 2]| all_near(&[term(one, "cache"), term(other, "db")]);
    let running = |pods: &[Value]| {
        let mut world = World::new();
        world.node("old", 4, json!({labels::ZONE: Z[0]}));
        for (n, own) in pods.iter().enumerate() {
            let name = format!("old{n}");
            world.pod(&name, json!({"labels": own}));
            world.bind(&name, "old");
        }
        world
    };
    for keys in [[labels::ZONE, labels::ZONE], [labels::ZONE, labels::HOSTNAME], [labels::HOSTNAME, labels::HOSTNAME]] {
        let mut apart = running(&[json!({"cache": "yes"}), json!({"db": "yes"})]);
        apart.pods("it", 1, &both(keys));
        let plan = apart.plan();
        assert_eq!(left(&plan), ["it-2"], "{keys:?}");
        assert!(super::world::reasons(&plan)[0].contains("unsatisfiable topology constraint for pod affinity"), "{keys:?}");
        let mut together = running(&[json!({"cache": "yes", "db": "yes"})]);
        together.pods("it", 1, &both(keys));
        let plan = together.plan();
        assert_eq!((left(&plan).len(), plan.placements.len()), (0, 1), "{keys:?}");
    }
    for (own, placed) in [(json!({"cache": "yes"}), 0), (json!({"cache": "yes", "db": "yes"}), 1)] {
        let mut world = World::new();
        world.pods("it", 1, &all(&[json!({"labels": own}), both([labels::ZONE, labels::HOSTNAME])]));
        assert_eq!(world.plan().claims.len(), placed, "the first of its kind, if all its terms select it");
    }
}

/// As for kube-scheduler (scheduling 21): Karpenter launches a machine for a pod that is never bound.
#[test]
fn a_pod_is_the_first_of_its_kind_for_all_required_terms_or_for_none() {
    let planned = |of_node: Value, keys: &[&str]| {
        let mut world = World::new();
        world.pool("default", json!({"requirements": [expr("rack", "In", &["r1", "r2"])]}));
        world.node("old", 4, of_node);
        world.pods("web", 1, &json!({"cpu": "1"}));
        world.bind("web", "old");
        let terms: Vec<Value> = keys.iter().map(|key| near(key, "web")).collect();
        world.pods("web", 1, &all(&[json!({"cpu": "1"}), all_near(&terms)]));
        let plan = world.plan();
        (plan.claims.len(), plan.placements.len())
    };
    let (in_zone, in_rack) = (|| json!({labels::ZONE: Z[0]}), || json!({"rack": "r1"}));
    assert_eq!(planned(in_zone(), &[labels::ZONE, "rack"]), (0, 0), "the other is in a zone and in no rack");
    assert_eq!(planned(in_rack(), &["rack", labels::ZONE]), (0, 0));
    assert_eq!(planned(all(&[in_zone(), in_rack()]), &[labels::ZONE, "rack"]), (0, 1), "beside the other");
    assert_eq!(planned(in_zone(), &["rack"]), (1, 0), "the other is in no domain that is asked for");
}

#[test]
fn one_pod_is_in_the_namespaces_of_all_required_terms() {
    for (namespace, left_out) in [("a", 1), ("b", 0)] {
        let mut world = World::new();
        world.node("old", 4, json!({labels::ZONE: Z[0]}));
        world.pod("old", json!({"namespace": namespace}));
        world.bind("old", "old");
        let term = |names: &[&str]| json!({"topologyKey": labels::ZONE, "labelSelector": {}, "namespaces": names});
        let anywhere = json!({"topologyKey": labels::ZONE, "labelSelector": {}, "namespaceSelector": {}});
        world.pods("it", 1, &all_near(&[anywhere, term(&["a", "b"]), term(&["b", "c"])]));
        assert_eq!(left(&world.plan()).len(), left_out, "{namespace}");
    }
}

#[test]
fn impossible_preferences_about_neighbours_are_dropped() {
    for spec in [soft("podAffinity", near(labels::HOSTNAME, "nobody")), soft("podAntiAffinity", near("undefined", "web"))] {
        let mut world = World::new();
        world.pods("web", 2, &spec);
        assert!(left(&world.plan()).is_empty(), "{spec}");
    }
    let mut world = World::new();
    world.pods("web", 3, &all(&[affine(labels::ZONE, "web"), soft("podAntiAffinity", near(labels::ZONE, "web"))]));
    world.pass();
    assert_eq!(world.counts(labels::ZONE, "web"), [3]);
}

#[test]
fn pods_that_repel_each_other_are_kept_apart() {
    let mut world = World::new();
    world.pods("web", 2, &repelled(labels::HOSTNAME, "web"));
    assert_eq!(sizes(&world.plan()), [1, 1]);
    let mut world = World::new();
    world.pods("web", 1, &json!({"cpu": "2", "nodeSelector": {labels::ARCH: "amd64"}}));
    world.pods("other", 1, &repelled(labels::ARCH, "web"));
    world.pass();
    assert_eq!(world.label_of("other-1", labels::ARCH), Some("arm64"));
}

#[test]
fn repelling_pods_do_not_go_where_the_others_are_or_may_be() {
    let mut world = World::new();
    for z in Z {
        world.pods("web", 1, &all(&[json!({"cpu": "2"}), zone(z)]));
    }
    world.pods("anti", 1, &repelled(labels::ZONE, "web"));
    assert_eq!(left(&world.plan()), ["anti-3"]);
    let mut world = World::new();
    world.pods("web", 1, &json!({"cpu": "2"}));
    world.pods("anti", 1, &repelled(labels::ZONE, "web"));
    assert_eq!(left(&world.solve(&world.options)), ["anti-1"], "the other's zone is still open");
}

#[test]
fn repelled_pods_stay_away_and_preferences_repel_none() {
    for (spec, expected) in [(repelled(labels::ZONE, "web"), 1), (soft("podAntiAffinity", near(labels::ZONE, "web")), 0)] {
        let mut world = World::new();
        for z in Z {
            world.pods("anti", 1, &all(&[json!({"cpu": "2"}), zone(z), spec.clone()]));
        }
        world.pods("web", 1, &json!({}));
        assert_eq!(left(&world.solve(&world.options)).len(), expected);
        let mut world = World::new();
        for z in Z {
            world.node(z, 4, json!({labels::ZONE: z}));
            world.pod(z, all(&[json!({"nodeName": z}), spec.clone()])).status =
                serde_json::from_value(json!({"phase": "Running"})).unwrap();
        }
        world.pods("web", 1, &json!({}));
        assert_eq!(left(&world.plan()).len(), expected, "existing nodes");
    }
}

#[test]
fn a_repelling_pod_without_a_place_blocks_no_other() {
    let tolerates = json!({"tolerations": [{"key": "k", "operator": "Exists"}]});
    for spec in [json!({}), zone(Z[0])] {
        let mut world = World::new();
        world.pool("default", json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}));
        world.pods("anti", 1, &repelled(labels::ZONE, "web"));
        world.pods("open", 1, &all(&[json!({"cpu": "1"}), tolerates.clone()]));
        world.pods("web", 1, &all(&[json!({"cpu": "500m"}), tolerates.clone(), spec]));
        let plan = world.plan();
        assert_eq!((left(&plan), sizes(&plan)), (vec!["anti-0"], vec![2]), "web joins the open machine");
    }
}

#[test]
fn a_node_without_the_label_repels_no_pod_that_mentions_it() {
    let speaking = || required(&[&[expr("rack", "NotIn", &["r9"])]]);
    for (spec, taken) in [
        (repelled("rack", "other"), 0),
        (all(&[speaking(), repelled("rack", "other")]), 1),
        // A pod that must be counted, or has affinity, cannot be there.
        (all(&[speaking(), json!({"topologySpreadConstraints": [spread("rack", "web", 1)]})]), 0),
        (all(&[speaking(), affine("rack", "web")]), 0),
    ] {
        let mut world = World::new();
        world.node("full", 4, json!({"rack": "r1"})).spec.taints =
            serde_json::from_value(json!([{"key": "full", "effect": "NoSchedule"}])).unwrap();
        world.node("n", 4, json!({}));
        world.pods("web", 1, &all(&[json!({"cpu": "1"}), spec.clone()]));
        assert_eq!(world.solve(&world.options).placements.len(), taken, "{spec}");
    }
}

#[test]
fn a_terminating_pod_repels_until_it_is_removed() {
    let mut world = World::new();
    world.types.clear();
    world.node("n", 4, json!({labels::ZONE: Z[0]}));
    let anti = world.pod("anti", all(&[json!({"nodeName": "n"}), repelled(labels::HOSTNAME, "web")]));
    anti.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
    anti.metadata.deletion_timestamp = Some(super::world::now());
    world.pods("web", 1, &json!({}));
    assert_eq!(left(&world.plan()).len(), 1);
    world.objects.pods.remove(0);
    assert!(left(&world.plan()).is_empty());
}

/// As for kube-scheduler (scheduling 21): Karpenter has the pod wait, on the node or for the machine, until the other has ended.
#[test]
fn a_terminating_pod_keeps_those_away_that_must_be_apart_from_it() {
    let beside = |spec: &Value| {
        let mut world = World::new();
        world.node("n", 4, json!({labels::ZONE: Z[0]}));
        let other = world.pod("other", json!({"nodeName": "n", "labels": {"app": "other"}}));
        other.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
        other.metadata.deletion_timestamp = Some(super::world::now());
        world.pods("it", 1, spec);
        world
    };
    let made = |world: &World| {
        let plan = world.plan();
        (plan.claims.len(), plan.placements.len())
    };
    for key in [labels::HOSTNAME, labels::ZONE] {
        let mut world = beside(&repelled(key, "other"));
        assert_eq!(made(&world), (1, 0), "{key}");
        if key == labels::ZONE {
            let zones = super::world::asks(&world.plan(), 0, key);
            assert!(zones.contains(Z[1]) && !zones.contains(Z[0]), "{zones}");
        }
        world.objects.pods.remove(0);
        assert_eq!(made(&world), (0, 1), "{key}: the other is gone");
    }
    assert_eq!(made(&beside(&soft("podAntiAffinity", near(labels::HOSTNAME, "other")))), (0, 1), "a preference is worth no machine");
    assert_eq!(made(&beside(&affine(labels::HOSTNAME, "other"))), (0, 0), "whoever is to be near it goes where its successor does");
}

/// The same where a machine with such pods is removed: a StatefulSet's is made anew elsewhere, and then it is not there any more.
#[test]
fn what_a_terminating_pod_keeps_away_does_not_depend_on_how_the_question_is_asked() {
    let mut world = World::new();
    for (name, at) in [("a", 0), ("b", 1)] {
        world.managed(name, "initialized", 4, json!({labels::ZONE: Z[at]}));
        let owner = json!({"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "uid": "u", "controller": true}]});
        let pod = world.pod(&format!("ends-{name}"), all(&[owner, json!({"nodeName": name, "labels": {"app": "other"}})]));
        pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
        pod.metadata.deletion_timestamp = Some(super::world::now());
    }
    world.pods("it", 1, &all(&[json!({"cpu": "1"}), repelled(labels::ZONE, "other")]));
    let none: &[&str] = &[];
    for leaves in [none, &["a"], &["a", "b"]] {
        let candidates: BTreeSet<String> = leaves.iter().map(|name| (*name).to_owned()).collect();
        let simulation = Some(Simulation { candidates: candidates.clone(), ..Simulation::default() });
        let options = Options { simulation, ..world.options.clone() };
        world.ask(|input| {
            let mut prepared = Prepared::new(input, &options).unwrap();
            let (prepared, scratch) = (prepared.without(&candidates, RecentNodes::Accept), solve(input, &options));
            assert_eq!((&prepared.claims, &prepared.placements), (&scratch.claims, &scratch.placements), "{leaves:?}");
        });
    }
}

#[test]
fn an_open_repelling_pod_blocks_every_zone_it_may_end_up_in() {
    let mut world = World::new();
    world.pods("anti", 1, &all(&[json!({"cpu": "2"}), repelled(labels::ZONE, "web")]));
    world.pods("web", 1, &json!({"cpu": "1"}));
    assert_eq!(left(&world.pass()), ["web-1"]);
    world.pass();
    assert!(world.objects.pods.iter().all(whittle_api::k8s::Pod::is_bound), "by now its zone is known");
}

/// A pod with this spec, labelled `app: web`, on a machine that is to be launched in one of these zones. Then another one is planned:
/// who has no place, and the zones of a new machine.
fn beside_a_launch(zones: &[&str], first: &Value, name: &str, spec: &Value) -> (usize, Option<String>) {
    let mut world = World::new();
    world.managed("n", "launched", 4, json!({})).1.spec.requirements =
        serde_json::from_value(json!([expr(labels::ZONE, "In", zones)])).unwrap();
    world.objects.nodes.clear();
    world.pod("first", all(&[json!({"nodeName": "aws:///n", "labels": {"app": "web"}}), first.clone()]));
    world.pods(name, 1, spec);
    let plan = world.plan();
    (left(&plan).len(), plan.claims.first().map(|_| super::world::asks(&plan, 0, labels::ZONE)))
}

/// Otherwise the second machine may be launched in the zone of the first, where its pod is not bound.
#[test]
fn a_repelling_pod_blocks_every_zone_in_which_its_machine_may_yet_be_launched() {
    let anti = repelled(labels::ZONE, "web");
    let third = Some(format!("In [{}]", Z[2]));
    // Each repels the other, the first repels the second, and the second the first.
    for (first, spec) in [(&anti, &anti), (&anti, &json!({})), (&json!({}), &anti)] {
        assert_eq!(beside_a_launch(&Z, first, "web", spec), (1, None), "{first} {spec}: it waits until the zone is known");
        assert_eq!(beside_a_launch(&Z[..2], first, "web", &all(&[zone(Z[2]), spec.clone()])), (0, third.clone()), "{first} {spec}");
    }
    assert_eq!(beside_a_launch(&Z[..2], &anti, "web", &anti), (0, third));
}

/// The same for a pod that gets a place on such a machine in the pass that plans the other.
#[test]
fn a_pod_that_is_put_on_a_machine_to_come_blocks_every_zone_in_which_that_may_be_launched() {
    let zones_of_second = |term: &str| {
        let mut world = World::new();
        world.managed("n", "launched", 4, json!({})).1.spec.requirements =
            serde_json::from_value(json!([expr(labels::ZONE, "In", &Z[..2])])).unwrap();
        world.objects.nodes.clear();
        // A pod that says nothing of the zone waits until that is known.
        world.pods("first", 1, &all(&[json!({"cpu": "2"}), required(&[&[expr(labels::ZONE, "NotIn", &[Z[2]])]])]));
        world.pods("second", 1, &all(&[json!({"cpu": "1"}), repelled(labels::ZONE, term)]));
        let plan = world.plan();
        assert!(left(&plan).is_empty(), "{:?}", reasons(&plan));
        plan.claims.first().map(|_| super::world::asks(&plan, 0, labels::ZONE))
    };
    let third = Some(format!("In [{}]", Z[2]));
    assert_eq!(zones_of_second("first"), third);
    assert_ne!(zones_of_second("others"), third, "nothing keeps it away from the others");
}

#[test]
fn what_a_machine_may_yet_become_blocks_no_preference_and_attracts_nobody() {
    let anti = soft("podAntiAffinity", near(labels::ZONE, "web"));
    let (left, zones) = beside_a_launch(&Z, &json!({}), "web", &anti);
    assert_eq!((left, zones.is_some()), (0, true), "a preference still has a machine of its own launched");
    assert_eq!(beside_a_launch(&Z, &json!({}), "it", &affine(labels::ZONE, "web")), (1, None), "its zone is still open");
}

#[test]
fn one_pod_per_zone_and_pass_until_all_zones_are_taken() {
    let mut world = World::new();
    for expected in [vec![1], vec![1, 1], vec![1, 1, 1], vec![1, 1, 1]] {
        world.objects.pods.retain(whittle_api::k8s::Pod::is_bound);
        world.pods("web", 2, &repelled(labels::ZONE, "web"));
        world.pass();
        assert_eq!(world.counts(labels::ZONE, "web"), expected);
    }
}
