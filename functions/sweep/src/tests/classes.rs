//! Node classes: when `refresh` is rung for them before its own tick, and what becomes of machines without one.

use super::*;
use whittle_api::conditions;

/// A scene with a class that is resolved.
fn resolved() -> Scene {
    change(super::reservations::reserved(), |s| s.objects.node_classes = vec![s.classes[0].class.clone()])
}

/// Whether a sweep rings `refresh` for the class of a scene.
fn refreshes(scene: &Scene) -> bool {
    scene.compare(&[], 100).refresh
}

#[test]
fn a_class_that_is_not_resolved_is_refreshed_before_the_next_tick() {
    assert!(!refreshes(&resolved()), "it is resolved");
    assert!(refreshes(&change(resolved(), |s| s.classes.clear())), "it has no record");
    let renamed = change(resolved(), |s| s.objects.node_classes[0].metadata.name = "other".into());
    assert!(refreshes(&renamed), "the record is another class's");
    let replaced = change(resolved(), |s| s.classes[0].class.metadata.deletion_timestamp = Some(at(80)));
    assert!(refreshes(&replaced), "the record is that of a deleted class of the same name");
}

#[test]
fn a_class_is_refreshed_if_a_part_of_it_could_not_be_looked_up() {
    let with_unknown_images = |reason: &str| {
        change(resolved(), |s| {
            let list = &mut s.classes[0].class.status.conditions;
            conditions::set(list, conditions::AMIS_READY, ConditionStatus::Unknown, reason, "", at(80));
        })
    };
    assert!(refreshes(&with_unknown_images("LookupFailed")));
    assert!(refreshes(&with_unknown_images("LookupRefused")));
    assert!(!refreshes(&with_unknown_images("Another")), "nobody knows whether a refresh would help");
}

#[test]
fn a_class_is_refreshed_if_its_spec_has_changed_since() {
    let of_generations = |resolved_at: Option<i64>, now: Option<i64>| {
        change(resolved(), |s| {
            s.classes[0].class.metadata.generation = resolved_at;
            s.objects.node_classes[0].metadata.generation = now;
        })
    };
    assert!(refreshes(&of_generations(Some(1), Some(2))));
    assert!(!refreshes(&of_generations(Some(2), Some(2))));
    assert!(!refreshes(&of_generations(Some(2), None)));
    assert!(!refreshes(&of_generations(Some(3), Some(2))), "the record is newer than what was listed");
}

#[test]
fn a_class_that_nothing_is_launched_with_is_not_refreshed() {
    type Change = fn(&mut Scene);
    let unused: [(&str, Change); 3] = [
        ("Whittle is being uninstalled", |s| s.uninstalling = true),
        ("it is being deleted", |s| s.objects.node_classes[0].metadata.deletion_timestamp = Some(at(80))),
        ("there is none", |s| s.objects.node_classes.clear()),
    ];
    for (why, make) in unused {
        let unresolved = change(change(resolved(), make), |s| s.classes.clear());
        assert!(!refreshes(&unresolved), "{why}");
    }
}

#[test]
fn a_machine_of_a_missing_class_is_kept() {
    // Neither the class nor its record exists in these scenes.
    let scene = scene(registered());
    assert!(scene.objects.node_classes.is_empty() && scene.classes.is_empty());
    check_never_ends(&scene);
    let claims = stored(scene.claims.clone());
    let noted = crate::drift::find_drift(&claims, &scene.objects, &[], &scene.instances, at(100));
    let drifted = |claim: &Claim| conditions::find(&claim.conditions, conditions::DRIFTED).is_some();
    assert!(noted.iter().all(|(_, next)| !drifted(next) && next.deletion.is_none()), "nor has it drifted");
}
