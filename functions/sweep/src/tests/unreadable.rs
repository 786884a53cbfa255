//! What cannot be read, what lists do not show and what is not served: nothing ends for it.

use super::over_sim::{kept, still, with_pool};
use super::*;
use futures::executor::block_on;
use whittle_api::Unreadable;
use whittle_api::k8s::Kind;
use whittle_claims::Claim;
use whittle_ports::{Adapters, Settings};
use whittle_units::{ClusterName, SignedDuration};

/// Something of a kind that cannot be read, by name and uid.
fn odd<K: Kind>(name: &str, uid: &str) -> Unreadable {
    let meta = ObjectMeta { uid: uid.into(), ..ObjectMeta::named(name) };
    Unreadable::refused(K::API_VERSION, K::KIND, meta, "spec", "it is of tomorrow")
}

/// A cluster whose only pool is as `hide` leaves it.
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
fn a_pool_that_cannot_be_read_keeps_its_machines() {
    check_never_ends_for_long(&missing_pool(|o| o.unreadable = vec![odd::<NodePool>("default", "pool-uid")]));
    // Where not even a name is left it may be any pool.
    check_never_ends_for_long(&missing_pool(|o| {
        o.unreadable = vec![odd::<NodePool>("", "")];
        o.node_pools = vec![another()];
    }));
    // Its name with another uid: what was made anew cannot be told from what is there.
    check_never_ends_for_long(&missing_pool(|o| o.unreadable = vec![odd::<NodePool>("default", "new")]));
}

#[test]
fn a_pool_that_cannot_be_read_and_is_being_deleted_takes_its_claims_along() {
    let mut going = odd::<NodePool>("default", "pool-uid");
    going.metadata.deletion_timestamp = Some(at(90));
    check_ends(&missing_pool(|o| o.unreadable = vec![going]), DeletionReason::NodePoolDeleted);
}

#[test]
fn a_pool_of_another_kind_that_cannot_be_read_hides_none() {
    let mut provisioner = odd::<NodePool>("default", "pool-uid");
    provisioner.kind = "Provisioner".into();
    let scene = missing_pool(|o| {
        o.unreadable = vec![provisioner];
        o.node_pools = vec![another()];
    });
    check_ends_at_second_sight(&scene, DeletionReason::NodePoolDeleted);
}

#[test]
fn a_kind_that_is_not_served_keeps_the_machines_of_its_pools() {
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
    // One of several is gone after half a minute, if the API server says so itself.
    let one = missing_pool(|o| o.node_pools = vec![another()]);
    let (_, second) = one.twice(30);
    let gone = second.end[0].gone.as_ref().expect("has to be asked for");
    assert_eq!((gone.name.as_str(), gone.uid.as_str()), ("default", "pool-uid"));
}

#[test]
fn that_a_claim_cannot_be_read_for_a_while_does_not_begin_the_wait_for_its_pool_anew() {
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
    assert!(since(&back.compare(&first.note, 500)), "its pool is there again");
}

#[test]
fn claims_whose_pool_is_missing_are_counted_and_told_of_before_they_end() {
    let missing = missing_pool(|_| {});
    let (first, second) = missing.twice(60);
    let told: Vec<&str> = first.events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!((first.missing_pool.get("default"), told), (Some(&1), vec!["NodePoolNotFound"]));
    assert!(first.end.is_empty() && second.events.is_empty(), "once in a quarter of an hour");
}

#[test]
fn what_cannot_be_read_says_so_on_the_object_once_in_a_quarter_of_an_hour() {
    let (first, second) = missing_pool(|o| o.unreadable = vec![odd::<NodePool>("default", "pool-uid")]).twice(60);
    let [event] = first.events.as_slice() else { panic!("{:?}", first.events) };
    assert_eq!((event.kind.as_str(), event.name.as_str(), event.uid.as_str()), ("NodePool", "default", "pool-uid"));
    assert!(event.warning && event.reason == "Unreadable" && event.message.starts_with("spec: it is of tomorrow; "), "{event:?}");
    assert!(second.events.is_empty());
}

fn by_hand() -> Claim {
    let mut claim = registered();
    claim.spec.standalone_uid = Some("hand".into());
    claim.spec.owner = OwnerReference::default();
    claim
}

#[test]
fn a_node_claim_made_by_hand_that_cannot_be_read_keeps_its_machine() {
    let hidden = |hide: fn(&mut ClusterObjects)| {
        change(scene(by_hand()), |s| {
            s.objects.node_claims = vec![NodeClaim { metadata: ObjectMeta::named("another"), ..NodeClaim::default() }];
            hide(&mut s.objects);
        })
    };
    check_ends(&hidden(|_| {}), DeletionReason::Requested);
    check_never_ends_for_long(&hidden(|o| o.unreadable = vec![odd::<NodeClaim>("default-1", "hand")]));
    check_never_ends_for_long(&hidden(|o| o.unreadable = vec![odd::<NodeClaim>("", "")]));
    check_never_ends_for_long(&hidden(|o| o.absent_kinds = vec!["NodeClaim".into()]));
    // Another of its name.
    check_ends(&hidden(|o| o.unreadable = vec![odd::<NodeClaim>("default-1", "other")]), DeletionReason::Requested);
    let none_left = change(hidden(|_| {}), |s| s.objects.node_claims.clear());
    assert!(none_left.compare(&[], 100).end.iter().all(|ending| ending.gone.is_some()), "an empty list alone ends nothing");
}

#[test]
fn the_deletion_of_what_cannot_be_read_is_honoured() {
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
fn a_mirror_that_cannot_be_read_is_not_written_over() {
    let hidden = change(scene(registered()), |s| {
        s.objects.node_claims.clear();
        s.objects.unreadable = vec![odd::<NodeClaim>("default-1", "uid")];
    });
    assert!(hidden.compare(&[], 100).mirrors.is_empty());
}

#[test]
fn a_machine_whose_node_cannot_be_read_is_not_lost() {
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
    check_ends_at_second_sight(&lost(|node| node.provider_id = "aws:///z/i-2".into()), DeletionReason::InstanceGone);
}

#[test]
fn a_machine_that_may_be_somebodys_is_no_orphan() {
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
    // Whose machine it names cannot be read: it may be any.
    check_orphans(&beside(Some(odd::<NodeClaim>("theirs", "u"))), &[]);
    // Unless its own tag names another's.
    let tagged = |name: &str| {
        change(beside(Some(odd::<NodeClaim>("theirs", "u"))), |s| {
            for orphan in s.instances.iter_mut().filter(|instance| instance.id.as_str() == "i-9") {
                orphan.tags.insert(labels::TAG_NODE_CLAIM.into(), name.into());
            }
        })
    };
    check_orphans(&tagged("theirs"), &[]);
    check_orphans(&tagged("default-9"), &["i-9"]);
    // Of one that shows a claim of ours the claim knows the machine.
    check_orphans(&beside(Some(odd::<NodeClaim>("default-1", "u"))), &["i-9"]);
    // Its Node would have to be drained, and cannot be.
    check_orphans(&beside(named(odd::<Node>("theirs", "u"), "aws:///z/i-9")), &[]);
    check_orphans(&change(beside(None), |s| s.objects.absent_kinds = vec!["NodeClaim".into()]), &[]);
}

#[test]
fn a_node_claim_that_cannot_be_read_spares_no_machine_for_ever_but_those_that_are_its_own() {
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
        theirs.metadata.owner_references = vec![whittle_api::OwnerReference { uid: "u".into(), ..whittle_api::OwnerReference::default() }];
        s.objects.nodes.push(theirs);
    };
    let (_, second) = aged(600, owned).twice(60);
    assert!(second.orphans.is_empty() && second.adopt.is_empty(), "it owns the Node");
}

#[test]
fn where_not_one_node_claim_is_shown_what_others_may_have_started_is_left_alone() {
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
fn no_finalizer_goes_while_a_node_claim_that_cannot_be_read_may_hold_the_machine() {
    let left = |odd: Unreadable| {
        change(scene(registered()), |s| {
            s.claims.clear();
            s.instances.clear();
            s.objects.nodes = vec![node(false)];
            held(&mut s.objects.nodes[0].metadata);
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

/// A cluster of two pools, of which one is missing from lists, cannot be read, or is gone.
fn of_two_pools() -> whittle_testkit::TestWorld {
    let simulation = still();
    with_pool(&simulation, super::node(true));
    simulation.create(another());
    simulation.store(&registered());
    simulation
}

#[test]
fn a_pool_that_lists_do_not_show_and_the_api_server_has_keeps_its_machines() {
    let mut simulation = of_two_pools();
    simulation.world().hide_always(NodePool::KIND, "default", false);
    assert!(sweeps(&mut simulation, 30) > 20, "it was doubted each time");
    assert_eq!(kept(&simulation).deletion, None);
}

#[test]
fn a_pool_that_cannot_be_read_keeps_its_machines_as_long_as_it_lasts() {
    let mut simulation = of_two_pools();
    simulation.world().hide_always(NodePool::KIND, "default", true);
    assert_eq!(sweeps(&mut simulation, 30), 0);
    assert_eq!(kept(&simulation).deletion, None);
}

#[test]
fn a_pool_that_is_gone_takes_its_claims_along() {
    let mut simulation = of_two_pools();
    simulation.world().cluster.objects.node_pools.remove("default");
    sweeps(&mut simulation, 2);
    // By its own absence, or by its claims' objects that the collector deletes with it.
    assert!(kept(&simulation).deletion.is_some());
}
