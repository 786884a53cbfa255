//! Unreadable objects, incomplete lists and unserved kinds: no claim is deleted for them.

use super::over_sim::{kept, still, with_pool};
use super::*;
use futures::executor::block_on;
use whittle_api::Unreadable;
use whittle_api::k8s::Kind;
use whittle_claims::Claim;
use whittle_ports::{Adapters, ObjectKind, Settings};
use whittle_units::{ClusterName, SignedDuration};

/// An unreadable object of a kind.
fn odd<K: Kind>(name: &str, uid: &str) -> Unreadable {
    let meta = ObjectMeta { uid: uid.into(), ..ObjectMeta::named(name) };
    Unreadable::refused(K::API_VERSION, K::KIND, meta, "spec", "written by a later release")
}

/// A cluster whose only pool is missing, changed by `hide`.
fn missing_pool(hide: impl FnOnce(&mut ClusterObjects)) -> Scene {
    change(scene(registered()), |s| {
        s.objects.node_pools.clear();
        hide(&mut s.objects);
    })
}

/// Another pool, so that not all are missing.
fn another() -> NodePool {
    NodePool { metadata: ObjectMeta::named("another"), ..NodePool::default() }
}

#[track_caller]
fn check_never_ends_for_long(scene: &Scene) {
    let (first, second) = scene.twice(3_600);
    assert!(first.end.is_empty() && second.end.is_empty(), "{second:?}");
}

#[test]
fn an_unreadable_pool_keeps_its_machines() {
    check_never_ends_for_long(&missing_pool(|o| o.unreadable = vec![odd::<NodePool>("default", "pool-uid")]));
    // Without a readable name it may be any pool.
    check_never_ends_for_long(&missing_pool(|o| {
        o.unreadable = vec![odd::<NodePool>("", "")];
        o.node_pools = vec![another()];
    }));
    // Its name with another uid: a recreated pool cannot be distinguished.
    check_never_ends_for_long(&missing_pool(|o| o.unreadable = vec![odd::<NodePool>("default", "new")]));
}

#[test]
fn an_unreadable_pool_that_is_being_deleted_deletes_its_claims() {
    let mut going = odd::<NodePool>("default", "pool-uid");
    going.metadata.deletion_timestamp = Some(at(90));
    check_ends(&missing_pool(|o| o.unreadable = vec![going]), DeletionReason::NodePoolDeleted);
}

#[test]
fn an_unreadable_pool_of_another_kind_is_irrelevant() {
    let mut provisioner = odd::<NodePool>("default", "pool-uid");
    provisioner.kind = "Provisioner".into();
    let scene = missing_pool(|o| {
        o.unreadable = vec![provisioner];
        o.node_pools = vec![another()];
    });
    check_ends_at_second_sighting(&scene, DeletionReason::NodePoolDeleted);
}

#[test]
fn an_unserved_kind_keeps_the_machines_of_its_pools() {
    check_never_ends_for_long(&missing_pool(|o| o.absent_kinds = vec!["NodePool".into()]));
    check_never_ends_for_long(&missing_pool(|o| {
        o.absent_kinds = vec!["NodePool".into()];
        o.node_pools = vec![another()];
    }));
}

#[test]
fn pools_that_are_missing_all_at_once_are_doubted_for_a_quarter_of_an_hour() {
    let all = missing_pool(|_| {});
    assert!(all.twice(899).1.end.is_empty());
    assert_eq!(all.twice(900).1.end.len(), 1);
    // One of several counts as gone after half a minute, if a request by name confirms it.
    let one = missing_pool(|o| o.node_pools = vec![another()]);
    let (_, second) = one.twice(30);
    let gone = second.end[0].gone.as_ref().expect("has to be confirmed by name");
    assert_eq!((gone.name.as_str(), gone.uid.as_str()), ("default", "pool-uid"));
}

#[test]
fn a_temporarily_unreadable_claim_does_not_restart_the_wait_for_its_pool() {
    let gone = missing_pool(|_| ());
    let first = gone.compare(&[], 100);
    let since = |found: &Findings| found.forget.iter().any(|subject| subject.contains("without NodePool"));
    let hidden = change(missing_pool(|_| ()), |s| {
        s.unreadable = s.claims.drain(..).map(|claim| claim.key.name.to_string()).collect();
    });
    let between = hidden.compare(&first.note, 500);
    assert!(!since(&between) && between.end.is_empty());
    assert_eq!(gone.compare(&first.note, 1_000).end.len(), 1);
    let back = change(scene(registered()), |_| ());
    assert!(since(&back.compare(&first.note, 500)), "its pool has reappeared");
}

#[test]
fn claims_without_a_pool_are_counted_and_reported_before_they_are_deleted() {
    let missing = missing_pool(|_| {});
    let (first, second) = missing.twice(60);
    let reasons: Vec<&str> = first.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!((first.missing_pool.get("default"), reasons), (Some(&1), vec!["NodePoolNotFound"]));
    assert!(first.end.is_empty() && second.events.is_empty(), "once per quarter of an hour");
}

#[test]
fn unreadable_objects_get_an_event_every_quarter_of_an_hour() {
    let (first, second) = missing_pool(|o| o.unreadable = vec![odd::<NodePool>("default", "pool-uid")]).twice(60);
    let [event] = first.events.as_slice() else { panic!("{:?}", first.events) };
    assert_eq!((event.kind.as_str(), event.name.as_str(), event.uid.as_str()), ("NodePool", "default", "pool-uid"));
    assert!(event.warning && event.reason == "Unreadable" && event.message.starts_with("spec: written by a later release; "), "{event:?}");
    assert!(second.events.is_empty());
}

fn standalone() -> Claim {
    let mut claim = registered();
    claim.spec.standalone_uid = Some("hand".into());
    claim.spec.owner = OwnerReference::default();
    claim
}

#[test]
fn an_unreadable_standalone_nodeclaim_keeps_its_machine() {
    let hidden = |hide: fn(&mut ClusterObjects)| {
        change(scene(standalone()), |s| {
            s.objects.node_claims = vec![NodeClaim { metadata: ObjectMeta::named("another"), ..NodeClaim::default() }];
            hide(&mut s.objects);
        })
    };
    check_ends(&hidden(|_| {}), DeletionReason::Requested);
    check_never_ends_for_long(&hidden(|o| o.unreadable = vec![odd::<NodeClaim>("default-1", "hand")]));
    check_never_ends_for_long(&hidden(|o| o.unreadable = vec![odd::<NodeClaim>("", "")]));
    check_never_ends_for_long(&hidden(|o| o.absent_kinds = vec!["NodeClaim".into()]));
    // A later object of its name.
    check_ends(&hidden(|o| o.unreadable = vec![odd::<NodeClaim>("default-1", "other")]), DeletionReason::Requested);
    let none_left = change(hidden(|_| {}), |s| s.objects.node_claims.clear());
    assert!(none_left.compare(&[], 100).end.iter().all(|ending| ending.gone.is_some()), "an empty list alone ends nothing");
}

#[test]
fn the_deletion_of_unreadable_objects_is_honoured() {
    let mut claim = odd::<NodeClaim>("default-1", "uid");
    claim.metadata.deletion_timestamp = Some(at(90));
    let deleted = change(scene(registered()), |s| {
        s.objects.node_claims.clear();
        s.objects.unreadable = vec![claim];
    });
    check_ends(&deleted, DeletionReason::Requested);
    let mut node = odd::<Node>("n", "");
    (node.provider_id, node.metadata.deletion_timestamp) = ("aws:///z/i-1".into(), Some(at(90)));
    let deleted = change(scene(registered()), |s| {
        s.objects.nodes.clear();
        s.objects.unreadable = vec![node];
    });
    check_ends(&deleted, DeletionReason::Requested);
}

#[test]
fn an_unreadable_mirror_is_not_overwritten() {
    let hidden = change(scene(registered()), |s| {
        s.objects.node_claims.clear();
        s.objects.unreadable = vec![odd::<NodeClaim>("default-1", "uid")];
    });
    assert!(hidden.compare(&[], 100).mirrors.is_empty());
}

#[test]
fn a_machine_with_an_unreadable_node_is_not_lost() {
    let lost = |hide: fn(&mut Unreadable)| {
        let mut node = odd::<Node>("n", "");
        node.provider_id = "aws:///z/i-1".into();
        hide(&mut node);
        change(scene(registered()), |s| {
            s.instances.clear();
            s.objects.nodes.clear();
            s.objects.unreadable = vec![node];
        })
    };
    check_never_ends_for_long(&lost(|_| {}));
    check_never_ends_for_long(&lost(|node| node.provider_id.clear()));
    check_ends_at_second_sighting(&lost(|node| node.provider_id = "aws:///z/i-2".into()), DeletionReason::InstanceGone);
}

/// A machine whose Node is not listed, beside one of another.
fn without_node(hide: impl FnOnce(&mut Scene)) -> Scene {
    change(scene(registered()), |s| {
        s.objects.nodes[0].metadata.name = "other".into();
        s.objects.nodes[0].spec.provider_id = "aws:///z/i-2".into();
        hide(s);
    })
}

#[test]
fn a_machine_whose_node_is_gone_ends_if_a_request_by_name_confirms_it() {
    check_ends_at_second_sighting(&without_node(|_| {}), DeletionReason::Requested);
    let (_, second) = without_node(|_| {}).twice(30);
    let gone = second.end[0].gone.as_ref().expect("has to be confirmed by name");
    assert_eq!((gone.kind, gone.name.as_str(), gone.provider_id.as_str()), (ObjectKind::Node, "n", "aws:///z/i-1"));
    let none = without_node(|s| s.objects.nodes.clear());
    assert!(none.twice(899).1.end.is_empty(), "all Nodes at once are hardly gone");
    assert_eq!(none.twice(900).1.end.len(), 1);
}

#[test]
fn a_machine_whose_node_may_be_there_does_not_end() {
    check_never_ends_for_long(&without_node(|s| s.objects.absent_kinds = vec!["Node".into()]));
    check_never_ends_for_long(&without_node(|s| s.objects.unreadable = vec![odd::<Node>("", "")]));
    check_never_ends_for_long(&without_node(|s| s.objects.unreadable = vec![odd::<Node>("n", "")]));
    check_never_ends_for_long(&without_node(|s| {
        s.objects.nodes[0].spec.provider_id = "aws:///z/i-1".into();
    }));
    // One that has not registered times out.
    check_never_ends_for_long(&without_node(|s| s.claims = vec![launched()]));
    // It is seen again before the second look.
    let first = without_node(|_| {}).compare(&[], 100);
    let back = scene(registered()).compare(&first.note, 130);
    assert!(back.end.is_empty() && back.forget.iter().any(|subject| subject.contains("without Node")), "{back:?}");
}

#[test]
fn a_machine_with_a_possible_owner_is_no_orphan() {
    let beside = |odd: Option<Unreadable>| {
        change(scene(registered()), |s| {
            s.instances.push(instance("i-9"));
            s.objects.unreadable.extend(odd);
        })
    };
    let named = |mut odd: Unreadable, id: &str| {
        odd.provider_id = id.into();
        Some(odd)
    };
    check_orphans(&beside(None), &["i-9"]);
    check_orphans(&beside(named(odd::<NodeClaim>("theirs", "u"), "aws:///z/i-9")), &[]);
    check_orphans(&beside(named(odd::<NodeClaim>("theirs", "u"), "aws:///z/i-8")), &["i-9"]);
    // Its provider id is unreadable: it may own any machine.
    check_orphans(&beside(Some(odd::<NodeClaim>("theirs", "u"))), &[]);
    // Unless the instance's tag names another NodeClaim.
    let tagged = |name: &str| {
        change(beside(Some(odd::<NodeClaim>("theirs", "u"))), |s| {
            for orphan in s.instances.iter_mut().filter(|instance| instance.id.as_str() == "i-9") {
                orphan.tags.insert(labels::TAG_NODE_CLAIM.into(), name.into());
            }
        })
    };
    check_orphans(&tagged("theirs"), &[]);
    check_orphans(&tagged("default-9"), &["i-9"]);
    // For a mirror of our own claim, the claim knows the machine.
    check_orphans(&beside(Some(odd::<NodeClaim>("default-1", "u"))), &["i-9"]);
    // Its Node would have to be drained, and cannot be.
    check_orphans(&beside(named(odd::<Node>("theirs", "u"), "aws:///z/i-9")), &[]);
    check_orphans(&change(beside(None), |s| s.objects.absent_kinds = vec!["NodeClaim".into()]), &[]);
}

#[test]
fn an_unreadable_nodeclaim_spares_foreign_machines_only_for_a_while() {
    let aged = |minutes: i64, change_it: fn(&mut Scene)| {
        let mut late = change(scene(registered()), |s| {
            let mut orphan = instance("i-9");
            orphan.launched_at = at(100 - minutes * 60);
            s.instances.push(orphan);
            s.objects.unreadable = vec![odd::<NodeClaim>("theirs", "u")];
        });
        change_it(&mut late);
        late
    };
    check_orphans(&aged(58, |_| {}), &[]);
    check_orphans(&aged(60, |_| {}), &["i-9"]);
    check_orphans(&aged(600, |s| s.objects.unreadable[0].metadata.name.clear()), &[]);
    let owned = |s: &mut Scene| {
        let mut theirs = node(true);
        theirs.metadata.name = "theirs".into();
        theirs.spec.provider_id = "aws:///z/i-9".into();
        theirs.metadata.labels.insert(labels::REGISTERED.into(), "true".into());
        theirs.metadata.owner_references =
            vec![whittle_api::OwnerReference { uid: "u".into(), ..whittle_api::OwnerReference::default() }].into();
        s.objects.nodes.push(theirs);
    };
    let (_, second) = aged(600, owned).twice(60);
    assert!(second.orphans.is_empty() && second.adopt.is_empty(), "it owns the Node");
}

#[test]
fn without_any_listed_nodeclaim_possibly_foreign_machines_are_left_alone() {
    let alone = |launch: bool| {
        change(scene(registered()), |s| {
            s.objects.node_claims.clear();
            let mut orphan = instance("i-9");
            if !launch {
                orphan.tags.remove(labels::TAG_LAUNCH);
            }
            s.instances.push(orphan);
        })
    };
    check_orphans(&alone(true), &["i-9"]);
    check_orphans(&alone(false), &[]);
    assert_eq!(alone(false).twice(900).1.orphans.len(), 0);
}

#[test]
fn no_finalizer_is_removed_while_an_unreadable_nodeclaim_may_own_the_machine() {
    let left = |odd: Unreadable| {
        change(scene(registered()), |s| {
            s.claims.clear();
            s.instances.clear();
            s.objects.nodes = vec![node(false)];
            super::release::held(&mut s.objects.nodes[0].metadata);
            s.objects.node_claims.clear();
            s.objects.unreadable = vec![odd];
        })
    };
    let mut theirs = odd::<NodeClaim>("theirs", "u");
    assert!(left(theirs.clone()).twice(60).1.release_nodes.is_empty());
    theirs.provider_id = "aws:///z/i-1".into();
    assert!(left(theirs.clone()).twice(60).1.release_nodes.is_empty());
    theirs.provider_id = "aws:///z/i-8".into();
    assert_eq!(left(theirs).twice(60).1.release_nodes, ["n"]);
}

fn sweeps(simulation: &mut whittle_sim::Simulation, minutes: u32) -> u64 {
    let mut doubted = 0;
    for _ in 0..minutes {
        let ports = simulation.ports();
        let adapters = Adapters::all(&ports);
        doubted += block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c"))).unwrap().counted("endings_doubted");
        simulation.run_for(SignedDuration::from_mins(1));
    }
    doubted
}

/// A cluster of two pools, one of which is unlisted, unreadable or gone.
fn of_two_pools() -> whittle_testkit::TestWorld {
    let simulation = still();
    with_pool(&simulation, super::node(true));
    simulation.create(another());
    simulation.store(&registered());
    simulation
}

#[test]
fn an_unlisted_pool_that_exists_by_name_keeps_its_machines() {
    let mut simulation = of_two_pools();
    simulation.world().hide_always(NodePool::KIND, "default", false);
    assert!(sweeps(&mut simulation, 30) > 20, "it was checked each time");
    assert_eq!(kept(&simulation).deletion, None);
}

#[test]
fn a_permanently_unreadable_pool_keeps_its_machines() {
    let mut simulation = of_two_pools();
    simulation.world().hide_always(NodePool::KIND, "default", true);
    assert_eq!(sweeps(&mut simulation, 30), 0);
    assert_eq!(kept(&simulation).deletion, None);
}

#[test]
fn claims_of_a_missing_pool_are_deleted() {
    let mut simulation = of_two_pools();
    simulation.world().cluster.objects.node_pools.remove("default");
    sweeps(&mut simulation, 2);
    // By its absence, or because the garbage collector deletes its NodeClaims.
    assert!(kept(&simulation).deletion.is_some());
}
