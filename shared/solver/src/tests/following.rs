//! Remedies are followed: of random NodePools and pods, each pod that has no place gets one by any alternative that it is told of.

use super::properties::mix::Dice;
use super::volumes::bound;
use super::world::{World, Z, absent, all, expr, pod, required};
use serde_json::{Value, json};
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_model::scheduling::{Cause, Change, Changes, PoolRejection, Reason};

/// What is required, by key: values that types have, alone or not together, and values that none has.
const ASKED: &[(&str, &[&str])] = &[
    (labels::ZONE, &[Z[0], Z[1], Z[2], "test-zone-9", "eu-west-1a"]),
    (labels::ARCH, &["amd64", "arm64", "x86_64"]),
    (labels::OS, &["linux", "windows", "ios", "plan9"]),
    (labels::CAPACITY_TYPE, &["spot", "on-demand", "reserved", "ondemand"]),
    (labels::INSTANCE_TYPE, &["default-instance-type", "arm-instance-type", "small-instance-type", "small-instance-typ", "none"]),
    ("integer", &["2", "4", "16", "32"]),
    ("size", &["small", "large"]),
    ("team", &["a", "b"]),
];

fn some(dice: &mut Dice, one_in: usize) -> Vec<Value> {
    let mut out = Vec::new();
    for (key, values) in ASKED {
        if dice.below(one_in) == 0 {
            let first = values[dice.below(values.len())];
            let more = values[dice.below(values.len())];
            let operator = if dice.below(6) == 0 { "NotIn" } else { "In" };
            let mut values = vec![first, more];
            values.truncate(if dice.below(3) == 0 && more != first { 2 } else { 1 });
            out.push(expr(key, operator, &values));
        }
    }
    out
}

/// One NodePool and one pod.
fn drawn(dice: &mut Dice) -> World {
    let mut world = World::new();
    let mut spec = json!({"requirements": some(dice, 4)});
    if dice.below(8) == 0 {
        spec["taints"] = json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]);
    }
    if dice.below(8) == 0 {
        spec["limits"] = json!({"cpu": "1"});
    }
    world.pool("default", spec);
    let cpu = ["1", "3", "12", "500"][[0, 0, 1, 1, 2, 3][dice.below(6)]];
    // One that stays: a term without any would match nothing.
    let asked = [some(dice, 4), vec![expr(labels::NODE_POOL, "In", &["default"])]].concat();
    let mut wanted = all(&[json!({"cpu": cpu}), required(&[&asked])]);
    if dice.below(6) == 0 {
        bound(&mut world, "data", [Z[0], Z[2], "nowhere"][dice.below(3)]);
        wanted["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    }
    world.objects.pods = vec![pod("it", wanted)].into();
    for instance_type in &mut world.types {
        // EC2 is out of some for now.
        let sold_out = dice.below(5) == 0;
        instance_type.offerings.iter_mut().for_each(|offering| offering.available &= !sold_out);
    }
    world
}

fn terms(world: &mut World) -> &mut Vec<whittle_api::SelectorRequirement> {
    let affinity = world.objects.pods[0].spec.affinity.as_mut().unwrap().node_affinity.as_mut().unwrap();
    &mut affinity.required.as_mut().unwrap().node_selector_terms[0].match_expressions
}

fn apply(world: &mut World, change: &Change) {
    let template = &mut world.objects.node_pools[0].spec.template;
    for (key, _) in change.drop.iter().chain(&change.allow) {
        template.spec.requirements.retain(|own| own.key != *key);
    }
    for (key, values) in change.allow.iter().filter(|(_, values)| values != "DoesNotExist") {
        let (operator, listed) = values.split_once(" [").unwrap();
        template.spec.requirements.push(Requirement {
            key: key.clone(),
            operator: serde_json::from_value(json!(operator)).unwrap(),
            values: listed.trim_end_matches(']').split(' ').map(str::to_owned).collect(),
            min_values: None,
        });
    }
    terms(world).retain(|asked| !change.pod.contains(&asked.key));
}

/// The world after each way of following the remedy; none if there is no remedy to be followed.
fn followed(world: &World, rejection: &PoolRejection) -> Vec<World> {
    let mut after: Vec<World> = Vec::new();
    let mut way = |change: &dyn Fn(&mut World)| {
        let mut next = world.clone();
        change(&mut next);
        after.push(next);
    };
    match (&rejection.cause, &rejection.changes) {
        (Cause::Taints(_), _) => way(&|next| {
            next.objects.pods[0].spec.tolerations = serde_json::from_value(json!([{"operator": "Exists"}])).unwrap();
        }),
        (Cause::LimitsExceeded { .. }, _) => way(&|next| next.objects.node_pools[0].spec.limits = Default::default()),
        (Cause::UndefinedLabel { key, .. }, _) => way(&|next| terms(next).retain(|asked| asked.key != *key)),
        _ if !rejection.meant.is_empty() => {
            for value in &rejection.meant[0].values {
                way(&|next| {
                    for (at, meant) in rejection.meant.iter().enumerate() {
                        let value = if at == 0 { value } else { &meant.values[0] };
                        let own = terms(next).iter_mut().filter(|asked| asked.key == meant.key);
                        own.for_each(|asked| asked.values = vec![value.clone()]);
                    }
                });
            }
        }
        (_, Some(changes)) if rejection.nearest.is_none() && rejection.limits.is_empty() => {
            let raise = |next: &mut World| next.objects.node_pools[0].spec.limits = Default::default();
            let beyond = !changes.limits.is_empty();
            changes.enough.iter().for_each(|change| {
                way(&|next| {
                    apply(next, change);
                    beyond.then(|| raise(next));
                });
            });
            if changes.another_volume {
                way(&|next| next.objects.pods[0].spec.volumes.clear());
            }
        }
        _ => {}
    }
    if let Some(limit) = rejection.limits.first().filter(|_| after.is_empty()) {
        assert_eq!(limit.resource, "cpu");
        let mut next = world.clone();
        next.objects.node_pools[0].spec.limits = Default::default();
        after.push(next);
    } else if let Some(miss) = &rejection.nearest.as_ref().filter(|_| after.is_empty()) {
        let mut next = world.clone();
        let requests = &mut next.objects.pods[0].spec.containers[0].resources.as_mut().unwrap().requests;
        requests.set(&miss.resource, miss.largest);
        after.push(next);
    }
    match &rejection.besides {
        Some(besides) => {
            // What is in the way of any type may be all that there is to say.
            let from = if after.is_empty() { vec![world.clone()] } else { after };
            from.iter().flat_map(|next| followed(next, besides)).collect()
        }
        None => after,
    }
}

#[test]
fn each_alternative_of_a_remedy_gives_the_pod_its_place() {
    let mut dice = Dice::new(7);
    let (mut left, mut ways, mut silent) = (0, 0, 0);
    for _ in 0..800 {
        let world = drawn(&mut dice);
        let plan = world.plan();
        let Some(out) = plan.left_out.first() else { continue };
        let Reason::Pools(rejections) = &out.reason else { continue };
        let (Some(rejection), Some(remedy)) = (rejections.first(), out.reason.remedies().pop()) else {
            silent += 1;
            continue;
        };
        left += 1;
        for next in followed(&world, rejection) {
            ways += 1;
            let after = next.plan();
            let of_next = serde_json::to_string(&(&next.objects.node_pools[0].spec, &next.objects.pods[0].spec)).unwrap();
            assert!(after.left_out.is_empty(), "{}\n{}\n{of_next}\n{}", out.reason, remedy.text, after.left_out[0].reason);
        }
    }
    assert!(left > 300 && ways > 320 && silent < left / 20, "{left} pods without a place, {ways} ways to give them one, {silent} without");
}

#[test]
fn what_no_type_has_is_not_offered_as_a_remedy() {
    let changes = |pool: Value, pod: Value| -> Changes {
        let mut world = World::new();
        world.types.iter_mut().for_each(|t| t.requirements.retain(|r| r.key != "special"));
        world.types.iter_mut().for_each(|t| t.requirements.push(absent("special")));
        world.pool("default", pool);
        world.pod("it", pod);
        match &world.plan().left_out[0].reason {
            Reason::Pools(rejections) => rejections[0].changes.clone().unwrap(),
            other => panic!("{other}"),
        }
    };
    let linux = json!({"requirements": [expr(labels::OS, "In", &["linux"])]});
    let told = changes(linux, json!({"nodeSelector": {labels::OS: "plan9"}}));
    let price = told.enough[0].price;
    assert_eq!(told.enough, [Change { pod: vec![labels::OS.into()], price, ..Change::default() }]);
    assert!(price.is_some(), "it is tried with a type that has one");
    // The type that has the zone is not one that the NodePool allows: both have to change.
    let one = json!({"requirements": [expr(labels::ARCH, "In", &["amd64"]), expr(labels::INSTANCE_TYPE, "In", &["small-instance-type"])]});
    let told = changes(one, json!({"nodeSelector": {labels::ARCH: "arm64"}}));
    let [of_pool, of_pod] = &told.enough[..] else { panic!("{told:?}") };
    assert_eq!(of_pool.allow, [(labels::ARCH.to_owned(), "In [arm64]".to_owned())]);
    assert_eq!(of_pool.drop, [(labels::INSTANCE_TYPE.to_owned(), "In [small-instance-type]".to_owned())]);
    assert_eq!((of_pod.pod.as_slice(), told.waits), (&[labels::ARCH.to_owned()][..], false));
}
