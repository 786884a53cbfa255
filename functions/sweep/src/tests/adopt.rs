//! Machines and NodeClaims that the table no longer knows, and those of Karpenter.

use super::over_sim::{start_machine, still};
use super::{Scene, begun, change, instance, node, planned, registered, scene, shown};
use crate::adopt::Place;
use crate::execute::Executor;
use crate::index::Index;
use futures::executor::block_on;
use whittle_api::conditions::INITIALIZED;
use whittle_api::k8s::{Kind as _, Node};
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus, Requirement};
use whittle_api::{ObjectMeta, OwnerReference, Unreadable, labels};
use whittle_claims::{
    Claim, ClaimKey, DeletionReason, Event, LeftNodes, Sighting, UninstallRequest, annotations_of, holds, labels_of, mirror, step,
};
use whittle_ec2::instance::Instance;
use whittle_ports::{Adapters, ClaimStore, Leases, Mirrors, Report, Settings};
use whittle_sim::Simulation;
use whittle_testkit::{TestWorld, at, machine, pool_named};
use whittle_units::{ClusterName, Quantity, SignedDuration};

/// A planned and launched claim whose node serves.
fn serving() -> Claim {
    let mut claim = planned();
    claim.spec.labels.insert("team".into(), "web".into());
    claim.spec.annotations.insert(labels::NODE_POOL_HASH.into(), "17".into());
    claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large"])];
    claim.spec.expire_after = whittle_api::NillableDuration::from_secs(86_400);
    claim.spec.requests.set("cpu", Quantity::from_units(1));
    let mut machine = machine("i-1");
    machine.labels = [(labels::INSTANCE_TYPE, "m5.large"), (labels::ZONE, "z"), (labels::CAPACITY_TYPE, "spot")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    machine.capacity.set("cpu", Quantity::from_units(2));
    let events = [Event::FleetAnswered(machine), Event::NodeJoined { node_name: "n".into() }, Event::NodeReady];
    let mut claim = events.iter().fold(claim, |claim, event| step(&claim, event, at(10)).unwrap());
    claim.annotations.insert(labels::NODE_CLASS_HASH.into(), "18".into());
    claim
}

fn joined() -> Node {
    let mut node = node(true);
    node.metadata.labels.extend([(labels::REGISTERED, "true"), (labels::INITIALIZED, "true")].map(|(k, v)| (k.into(), v.into())));
    node
}

/// The cluster of a claim that serves, after the table was lost.
fn lost() -> Scene {
    change(scene(serving()), |scene| {
        scene.objects.nodes = vec![joined()];
        scene.claims.clear();
    })
}

fn ids<'f>(found: impl IntoIterator<Item = &'f Instance>) -> Vec<&'f str> {
    found.into_iter().map(|instance| instance.id.as_str()).collect()
}

#[test]
fn a_serving_machine_gets_an_equal_claim_at_the_second_sighting() {
    let (first, second) = lost().twice(30);
    assert!(first.adopt.is_empty() && first.orphans.is_empty(), "never at the first sighting");
    assert_eq!((ids(second.adopt.iter().map(|found| &found.instance)), second.orphans.len()), (vec!["i-1"], 0));
    let found = &second.adopt[0];
    assert_eq!((found.name().as_str(), found.place(None)), ("default-1", Place::New));
    let key = ClaimKey { cluster: "c".into(), name: found.name() };
    let back = found.claim(key, "uid".into(), &lost().objects, None, at(130)).unwrap();
    let before = serving();
    assert_eq!((labels_of(&back), annotations_of(&back)), (labels_of(&before), annotations_of(&before)), "adoption causes no drift");
    let (owner, expires) = (&back.spec.owner, back.expires_at());
    assert_eq!((owner.name.as_str(), owner.uid.as_str(), expires), ("default", "pool-uid", before.expires_at()));
    assert_eq!((&back.spec.node_class, &back.spec.requirements), (&before.spec.node_class, &before.spec.requirements));
    assert_eq!((&back.spec.requests, &back.spec.node_pool), (&before.spec.requests, &before.spec.node_pool));
    assert_eq!((back.phase.name(), back.node_name(), &back.deletion), ("Initialized", Some("n"), &None));
    assert_eq!(back.machine().unwrap().capacity, before.machine().unwrap().capacity);
    assert!(holds(&back, INITIALIZED));
}

#[test]
fn a_machine_is_adopted_from_its_node_alone() {
    let bare = change(lost(), |scene| {
        let mut another = scene.objects.node_claims[0].clone();
        (another.metadata.name, another.status.provider_id) = ("another".into(), "aws:///z/i-2".into());
        scene.objects.node_claims = vec![another];
    });
    let (_, second) = bare.twice(30);
    let found = &second.adopt[0];
    let key = ClaimKey { cluster: "c".into(), name: found.name() };
    let back = found.claim(key, "uid".into(), &bare.objects, None, at(130)).unwrap();
    assert_eq!((back.key.name.as_str(), back.phase.name()), ("adopted-i-1", "Initialized"));
    assert_eq!((back.spec.owner.uid.as_str(), back.spec.node_class.name.as_str()), ("pool-uid", "default"));
    assert!(!labels_of(&back).contains_key(labels::REGISTERED));
}

#[test]
fn a_machine_without_a_node_is_adopted_as_launched() {
    let coming = change(lost(), |scene| {
        scene.objects.nodes.clear();
        scene.objects.node_claims[0].status.node_name.clear();
    });
    let (_, second) = coming.twice(30);
    let key = whittle_testkit::key("default-1");
    assert_eq!(second.adopt[0].claim(key, "uid".into(), &coming.objects, None, at(130)).unwrap().phase.name(), "Launched");
}

#[test]
fn a_machine_gets_no_new_name_while_all_nodeclaims_are_missing() {
    let none = change(lost(), |scene| scene.objects.node_claims.clear());
    let (first, second) = none.twice(899);
    assert!(first.adopt.is_empty() && second.adopt.is_empty(), "its NodeClaim may reappear");
    assert_eq!(lost().compare(&first.note, 130).adopt[0].name().as_str(), "default-1", "then it keeps its name");
    assert_eq!(none.twice(900).1.adopt[0].name().as_str(), "adopted-i-1");
}

#[test]
fn a_machine_gets_no_new_name_while_its_nodeclaim_is_unreadable() {
    let hidden = change(lost(), |scene| {
        let own = scene.objects.node_claims.pop().unwrap();
        let mut another = own.clone();
        (another.metadata.name, another.status.provider_id) = ("another".into(), "aws:///z/i-2".into());
        scene.objects.node_claims = vec![another];
        let mut odd =
            whittle_api::Unreadable::refused(NodeClaim::API_VERSION, NodeClaim::KIND, own.metadata, "spec", "written by a later release");
        odd.provider_id = own.status.provider_id;
        scene.objects.unreadable = vec![odd];
    });
    let (first, second) = hidden.twice(3_600);
    assert!(first.adopt.is_empty() && second.adopt.is_empty() && second.orphans.is_empty(), "it would have two NodeClaims");
    let (_, second) = lost().twice(30);
    assert_eq!(second.adopt[0].name().as_str(), "default-1", "it is adopted under its name");
}

#[test]
fn one_response_without_nodes_and_nodeclaims_neither_collects_nor_adopts() {
    let partial = change(lost(), |scene| {
        scene.objects.nodes.clear();
        scene.objects.node_claims.clear();
    });
    let first = lost().compare(&[], 100);
    let second = partial.compare(&first.note, 130);
    assert_eq!((second.orphans.len(), second.adopt.len()), (0, 0), "one response without its Node does not make it an orphan");
    let first = partial.compare(&[], 100);
    let second = lost().compare(&first.note, 130);
    assert_eq!((second.orphans.len(), second.adopt.len()), (0, 0));
}

#[test]
fn machines_of_karpenter_are_neither_terminated_nor_adopted() {
    let nothing = |scene: Scene| {
        let (first, second) = scene.twice(600);
        for found in [&first, &second] {
            assert!(found.orphans.is_empty() && found.adopt.is_empty() && found.abandoned.is_empty(), "{found:?}");
            assert!(found.release_mirrors.is_empty() && found.release_nodes.is_empty(), "{found:?}");
        }
    };
    nothing(change(lost(), karpenters));
    nothing(change(change(lost(), karpenters), |scene| scene.objects.node_claims.clear()));
    nothing(change(change(lost(), karpenters), |scene| scene.objects.nodes.clear()));
    nothing(change(change(lost(), karpenters), |scene| {
        scene.objects.nodes.clear();
        scene.objects.node_claims.clear();
    }));
    // A NodeClaim of Karpenter without a machine is Karpenter's to launch.
    nothing(change(change(lost(), karpenters), |scene| {
        scene.instances.clear();
        scene.objects.nodes.clear();
        scene.objects.node_claims[0].status = whittle_api::karpenter::NodeClaimStatus::default();
    }));
}

fn karpenters(scene: &mut Scene) {
    scene.instances[0].tags.remove(labels::TAG_LAUNCH);
    for shown in &mut scene.objects.node_claims {
        shown.metadata.annotations.remove(labels::MANAGED);
    }
}

#[test]
fn a_machine_of_karpenter_is_adopted_on_request_and_otherwise_reported() {
    let left = change(lost(), karpenters).compare(&[], 100);
    assert_eq!(left.events.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(), ["NotAdopted"]);
    assert!(change(lost(), karpenters).compare(&left.note, 160).events.is_empty(), "not repeated before the interval");
    let by_pool = change(change(lost(), karpenters), |scene| {
        scene.objects.node_pools[0].metadata.annotations.insert(labels::ADOPT.into(), "true".into());
    });
    let by_claim = change(change(lost(), karpenters), |scene| {
        scene.objects.node_claims[0].metadata.annotations.insert(labels::ADOPT.into(), "true".into());
    });
    for scene in [by_pool, by_claim] {
        let (first, second) = scene.twice(30);
        assert!(first.adopt.is_empty() && second.orphans.is_empty());
        let key = whittle_testkit::key("default-1");
        let claim = second.adopt[0].claim(key, "uid".into(), &scene.objects, None, at(130)).unwrap();
        assert_eq!((claim.phase.name(), &claim.deletion), ("Initialized", &None));
        assert_eq!(annotations_of(&claim).get(labels::ADOPT), None);
    }
    // No object in the cluster names it, so its owner is unknown.
    let bare = change(change(lost(), karpenters), |scene| {
        scene.objects.node_pools[0].metadata.annotations.insert(labels::ADOPT.into(), "true".into());
        scene.objects.nodes.clear();
        scene.objects.node_claims.clear();
    });
    let (_, second) = bare.twice(600);
    assert!(second.adopt.is_empty() && second.orphans.is_empty());
}

#[test]
fn while_karpenter_runs_a_sweep_changes_nothing_and_reports_it() {
    let mut simulation = world_of(Some(&serving()));
    let sign = whittle_api::KarpenterSign { object: "lease/karpenter-leader-election in namespace kube-system".into(), renewed_at: None };
    simulation.world().cluster.karpenter = vec![sign];
    let before = (claims(&simulation), simulation.world().cluster.objects.node_claims.clone());
    simulation.run_for(SignedDuration::from_hours(48));
    for _ in 0..3 {
        let report = sweep(&simulation);
        assert_eq!((report.counted("held_by_karpenter"), report.metrics[0].metric), (1, "whittle_held_by_karpenter_total"));
        simulation.run_for(SignedDuration::from_secs(60));
    }
    assert_eq!((claims(&simulation), simulation.world().cluster.objects.node_claims.clone()), before, "expired, but not deleted");
    let reported =
        simulation.world().cluster.events.iter().any(|kept| kept.event.reason == "KarpenterRuns" && kept.event.kind == "NodePool");
    assert!(reported);
    simulation.world().cluster.karpenter.clear();
    assert_eq!(sweep(&simulation).counted("ended"), 1);
}

#[test]
fn a_machine_of_an_ended_claim_is_terminated_again() {
    let ended = change(lost(), |scene| {
        let mut claim = serving();
        claim.phase = whittle_claims::Phase::Gone { machine: Some(machine("i-1")), since: at(50) };
        claim.key.name = "another".into();
        scene.claims = vec![claim];
        scene.objects.node_claims.clear();
    });
    let (_, second) = ended.twice(30);
    assert_eq!((second.adopt.len(), ids(&second.orphans)), (0, vec!["i-1"]));
}

/// The cluster of a machine that is tagged as released, after the table was lost.
fn tagged_released() -> Scene {
    change(lost(), |scene| {
        scene.instances[0].tags.insert(labels::TAG_LET_GO.into(), "since".into());
    })
}

/// A finalizer on the Node of a scene.
fn held(scene: &mut Scene) {
    scene.objects.nodes[0].metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
}

/// Its tag comes before its Node: a run ended between them, or the Node was being deleted.
#[test]
fn a_machine_that_is_tagged_as_released_is_adopted_while_our_finalizer_holds_its_node() {
    for is_deleting in [false, true] {
        let half_released = change(change(tagged_released(), held), |scene| {
            scene.objects.nodes[0].metadata.deletion_timestamp = is_deleting.then(|| at(50));
        });
        let (first, second) = half_released.twice(30);
        assert!(first.adopt.is_empty() && first.orphans.is_empty(), "never at the first sighting");
        assert_eq!((ids(second.adopt.iter().map(|found| &found.instance)), second.orphans.len()), (vec!["i-1"], 0), "{is_deleting}");
    }
}

#[test]
fn a_machine_that_was_released_is_neither_adopted_nor_collected() {
    let mut ended = serving();
    ended.phase = whittle_claims::Phase::Gone { machine: Some(machine("i-1")), since: at(50) };
    ended.key.name = "another".into();
    let scenes = [
        tagged_released(),
        change(tagged_released(), |scene| scene.objects.nodes.clear()),
        change(tagged_released(), |scene| scene.objects.node_claims.clear()),
        // Its claim has ended with its release, and an old list shows its Node as it was.
        change(change(tagged_released(), held), |scene| {
            scene.objects.node_claims.clear();
            scene.claims = vec![ended];
        }),
    ];
    for (number, scene) in scenes.into_iter().enumerate() {
        let (first, second) = scene.twice(900);
        for found in [&first, &second] {
            assert!(found.adopt.is_empty() && found.orphans.is_empty(), "{number}: {found:?}");
        }
    }
}

#[test]
fn an_abandoned_nodeclaim_is_released_and_a_standalone_one_gets_a_claim() {
    let unlaunched = |is_standalone: bool| {
        change(scene(planned()), |scene| {
            scene.claims.clear();
            scene.instances.clear();
            scene.objects.nodes.clear();
            let meta = &mut scene.objects.node_claims[0].metadata;
            meta.uid = "object-uid".into();
            if is_standalone {
                meta.labels.remove(labels::NODE_POOL);
                meta.owner_references.clear();
            }
        })
    };
    let (first, early) = unlaunched(false).twice(179);
    assert!(first.abandoned.is_empty() && early.abandoned.is_empty());
    let (_, late) = unlaunched(false).twice(180);
    assert_eq!((late.abandoned.as_slice(), late.answer.len()), (["default-1".to_owned()].as_slice(), 0));
    let failed = change(unlaunched(false), |scene| scene.objects.node_claims[0].metadata.finalizers.clear());
    assert_eq!(failed.twice(180).1.abandoned.len(), 1, "the finalizer of a failed launch has been removed");
    let (_, late) = unlaunched(true).twice(180);
    assert_eq!((late.abandoned.len(), late.answer.len()), (0, 1), "a user's object is never deleted");
    let running = change(unlaunched(false), |scene| {
        scene.instances = vec![instance("i-1")];
        scene.instances[0].tags.insert(labels::TAG_NODE_CLAIM.into(), "default-1".into());
    });
    let (_, late) = running.twice(180);
    assert_eq!((late.abandoned.len(), late.adopt.len()), (0, 1), "its machine has launched");
    let shifted = change(unlaunched(false), |scene| {
        scene.shifted.names.insert("us-east-1a".into());
        scene.objects.node_claims[0].metadata.labels.insert(labels::ZONE.into(), "us-east-1a".into());
    });
    assert!(shifted.twice(600).1.abandoned.is_empty(), "EC2 may hide its machine");
    let unreadable = change(unlaunched(false), |scene| scene.unreadable = vec!["default-1".into()]);
    assert!(unreadable.twice(600).1.abandoned.is_empty(), "its claim may be unreadable");
}

/// A copy of a mirror under another name: the API server keeps no status of what is created.
fn copied() -> Scene {
    change(scene(registered()), |scene| {
        let mut copy = scene.objects.node_claims[0].clone();
        (copy.metadata.name, copy.metadata.uid) = ("copy".into(), "copy-uid".into());
        copy.status = NodeClaimStatus::default();
        scene.objects.node_claims.push(copy);
    })
}

#[test]
fn a_copy_of_a_nodeclaim_is_told_why_it_is_deleted_and_once() {
    let (first, early) = copied().twice(179);
    assert!(first.events.is_empty() && early.events.is_empty());
    let second = copied().compare(&first.note, 280);
    let [event] = second.events.as_slice() else { panic!("{:?}", second.events) };
    assert_eq!(second.abandoned, ["copy"]);
    assert_eq!((event.reason.as_str(), event.name.as_str(), event.uid.as_str(), event.warning), ("Abandoned", "copy", "copy-uid", true));
    let marks = "without annotation whittle.dev/managed, label karpenter.sh/nodepool, owner NodePool default, finalizer \
                 karpenter.sh/termination, and it gets a machine";
    assert!(event.message.contains(marks), "{}", event.message);
    let third = copied().compare(&[first.note, second.note].concat(), 340);
    assert_eq!((third.events.len(), third.abandoned.len()), (0, 1), "EC2 is asked again meanwhile");
}

/// A NodeClaim that Karpenter left, whose machine has ended.
fn left() -> Scene {
    change(change(lost(), karpenters), |scene| {
        scene.instances.clear();
        scene.objects.nodes.clear();
    })
}

#[test]
fn a_nodeclaim_of_karpenter_without_a_machine_is_reported_with_what_to_do() {
    let (first, early) = left().twice(29);
    assert!(first.events.is_empty() && early.events.is_empty(), "never at the first sighting");
    let second = left().compare(&first.note, 130);
    let [event] = second.events.as_slice() else { panic!("{:?}", second.events) };
    assert_eq!((event.reason.as_str(), event.name.as_str(), event.warning), ("NoMachine", "default-1", true));
    assert!(event.message.contains("kubectl delete nodeclaim default-1"), "{}", event.message);
    assert!(second.abandoned.is_empty() && second.release_mirrors.is_empty(), "it is not ours to delete");
    assert_eq!(left().compare(&second.note, 250), crate::compare::Findings::default(), "a quiet tick");
    let again = left().compare(&second.note, 130 + 6 * 3600);
    assert_eq!(left().compare(&again.note, 190 + 6 * 3600).events, second.events, "a reminder");
}

#[test]
fn no_nodeclaim_is_reported_that_may_have_a_machine_or_is_in_hand() {
    let changes: [fn(&mut Scene); 7] = [
        |scene| scene.instances = vec![instance("i-1")],
        |scene| scene.objects.nodes = vec![joined()],
        |scene| scene.objects.node_claims[0].metadata.deletion_timestamp = Some(at(90)),
        |scene| scene.objects.node_claims[0].spec.node_class_ref.group = "eks.amazonaws.com".into(),
        |scene| scene.claims = vec![serving()],
        |scene| scene.unreadable = vec!["default-1".into()],
        |scene| scene.uninstalling = true,
    ];
    for (number, spoil) in changes.into_iter().enumerate() {
        let (first, second) = change(left(), spoil).twice(30);
        assert!(first.events.iter().chain(&second.events).all(|event| event.reason != "NoMachine"), "{number}: {:?}", second.events);
    }
    let shifted = change(left(), |scene| {
        scene.shifted.names.insert("z".into());
    });
    assert!(shifted.twice(30).1.events.is_empty(), "EC2 may hide its machine");
}

#[test]
fn a_claim_restored_from_before_its_machine_is_not_launched_again() {
    let behind = change(scene(serving()), |scene| scene.claims = vec![planned()]);
    let (_, second) = behind.twice(30);
    assert!(second.launch.is_empty(), "its machine runs");
    assert_eq!(second.adopt[0].place(Some(&planned())), Place::Waiting);
    let taken = change(behind, |scene| {
        let mut another = serving();
        another.key.name = "default-2".into();
        scene.claims.push(another);
    });
    assert_eq!(taken.twice(30).1.launch.len(), 1, "unless the machine belongs to another claim");
    let mut launching = step(&planned(), &begun(), at(0)).unwrap();
    launching.look_again_at = None;
    assert_eq!(second.adopt[0].place(Some(&launching)), Place::Waiting);
    assert_eq!(second.adopt[0].place(Some(&registered())), Place::New, "that claim has a machine");
}

/// The NodeClaim could not be written when its machine was launched.
#[test]
fn a_claim_restored_from_before_its_machine_is_not_deleted_while_its_nodeclaim_owns_a_node() {
    let owned_by = |uid: &str| {
        let owner = OwnerReference { kind: NodeClaim::KIND.into(), uid: uid.into(), ..OwnerReference::default() };
        change(scene(serving()), |scene| {
            scene.claims = vec![planned()];
            let object = &mut scene.objects.node_claims[0];
            object.metadata.uid = "object".into();
            object.metadata.deletion_timestamp = Some(at(90));
            object.status = NodeClaimStatus::default();
            let mut node = joined();
            node.metadata.owner_references = vec![owner].into();
            scene.objects.nodes = vec![node];
        })
    };
    let (first, second) = owned_by("object").twice(30);
    assert!(first.end.is_empty() && second.end.is_empty(), "its NodeClaim would be released, and nobody would know that it was deleted");
    assert_eq!(second.adopt[0].place(Some(&planned())), Place::Waiting);
    assert_eq!(owned_by("another").twice(30).0.end.len(), 1, "that Node is another's");
}

#[test]
fn a_claim_restored_from_before_its_machine_is_not_deleted_without_it() {
    let deleted = change(scene(serving()), |scene| {
        scene.claims = vec![planned()];
        scene.objects.node_claims[0].metadata.deletion_timestamp = Some(at(90));
    });
    let (first, second) = deleted.twice(30);
    assert!(first.end.is_empty() && second.end.is_empty(), "its NodeClaim would be released and the machine leaked");
    assert_eq!(second.adopt[0].place(Some(&planned())), Place::Waiting);
    let joined = second.adopt[0].join(&planned(), None, at(130)).unwrap();
    let known = change(deleted, |scene| scene.claims = vec![joined.clone()]);
    let knows = known.compare(&[], 140);
    assert_eq!((knows.join.as_slice(), knows.end.len()), (&[(joined.key.name.clone(), "n".to_owned())][..], 0), "its Node is recorded");
    assert!(knows.mirrors.is_empty(), "nor removed from the NodeClaim");
    let drained = step(&joined, &Event::NodeJoined { node_name: "n".into() }, at(140)).unwrap();
    let known = change(known, |scene| scene.claims = vec![drained]);
    assert_eq!(known.compare(&[], 150).end[0].reason, DeletionReason::Requested, "with both, it is drained");
}

#[test]
fn a_claim_restored_from_before_its_node_learns_the_node() {
    let simulation = world_of(Some(&serving()));
    let launched = step(&planned(), &Event::FleetAnswered(serving().machine().unwrap().clone()), at(10)).unwrap();
    let ports = simulation.ports();
    let stored = block_on(ports.get(&launched.key)).unwrap().unwrap();
    block_on(ports.update(&launched, stored.revision)).unwrap();
    simulation.world().hide_always(Node::KIND, "n", false);
    let report = sweep(&simulation);
    let claim = block_on(ports.get(&launched.key)).unwrap().unwrap().value;
    assert_eq!((report.counted("joined_again"), claim.node_name()), (1, Some("n")));
    assert_eq!(claim.deletion, None);
}

#[test]
fn a_claim_learns_no_node_that_is_not_its_machines_whatever_its_nodeclaim_says() {
    let launched = || step(&planned(), &Event::FleetAnswered(serving().machine().unwrap().clone()), at(10)).unwrap();
    let named = |name: &str, nodes: Vec<Node>| {
        change(scene(launched()), |scene| {
            scene.objects.nodes = nodes;
            scene.objects.node_claims = vec![shown(&serving())];
            scene.objects.node_claims[0].status.node_name = name.into();
        })
    };
    let mut another = joined();
    (another.metadata.name, another.spec.provider_id) = ("of-another".into(), "aws:///z/i-2".into());
    assert!(named("of-another", vec![another]).compare(&[], 140).join.is_empty(), "the list has it with another machine");
    assert!(named("nowhere", vec![joined()]).compare(&[], 140).join.is_empty(), "the list has the machine's by another name");
    let unlisted = named("nowhere", Vec::new());
    let first = unlisted.compare(&[], 140);
    assert_eq!(first.join.len(), 1, "the API server is asked");
    assert!(unlisted.compare(&first.note, 140 + 300).join.is_empty(), "not for ever: a claim that waits for it is not ended");

    let simulation = world_of(Some(&serving()));
    let ports = simulation.ports();
    let stored = block_on(ports.get(&launched().key)).unwrap().unwrap();
    block_on(ports.update(&launched(), stored.revision)).unwrap();
    simulation.world().hide_always(Node::KIND, "n", false);
    simulation.change::<NodeClaim>("default-1", |shown| shown.status.node_name = "nowhere".into());
    assert_eq!((sweep(&simulation).counted("joined_again"), claims(&simulation)[0].node_name()), (0, None));
}

fn sweep(simulation: &Simulation) -> Report {
    super::over_sim::sweep(simulation, &Settings::default())
}

/// A world in which this claim serves: pool, NodeClaim, Node and machine exist.
fn world_of(claim: Option<&Claim>) -> TestWorld {
    let mut simulation = still();
    simulation.create(pool_named("default"));
    simulation.create(joined());
    simulation.create(shown(&serving()));
    start_machine(&simulation);
    if let Some(claim) = claim {
        simulation.store(claim);
    }
    simulation.run_for(SignedDuration::from_mins(2));
    simulation
}

fn claims(simulation: &Simulation) -> Vec<Claim> {
    let stored = block_on(simulation.ports().list(&ClusterName::new("c"))).unwrap();
    stored.into_iter().map(|claim| claim.value).collect()
}

#[test]
fn an_empty_table_adopts_its_machines_and_deletes_nothing() {
    let mut simulation = world_of(None);
    assert_eq!(sweep(&simulation).counted("adopted"), 0);
    simulation.run_for(SignedDuration::from_secs(60));
    let report = sweep(&simulation);
    assert_eq!((report.counted("adopted"), report.counted("collected"), report.counted("ended")), (1, 0, 0));
    let [claim] = claims(&simulation).try_into().unwrap();
    assert_eq!((claim.key.name.as_str(), claim.phase.name()), ("default-1", "Initialized"));
    simulation.run_for(SignedDuration::from_secs(60));
    let again = sweep(&simulation);
    assert_eq!((again.counted("adopted"), again.counted("ended"), claims(&simulation).len()), (0, 0, 1), "once");
}

/// A machine and NodeClaim of Karpenter that the user hands over.
fn handed_over() -> TestWorld {
    let simulation = world_of(None);
    let mut world = simulation.world();
    world.region.machines.values_mut().for_each(|machine| {
        machine.instance.tags.remove(labels::TAG_LAUNCH);
    });
    world.cluster.objects.change::<NodeClaim>("default-1", |shown| {
        shown.metadata.annotations.remove(labels::MANAGED);
        shown.metadata.annotations.insert(labels::ADOPT.into(), "true".into());
    });
    drop(world);
    simulation
}

#[test]
fn a_machine_that_is_handed_over_gets_the_launch_tag() {
    let mut simulation = handed_over();
    let mark = |simulation: &Simulation| {
        simulation.world().region.machines.values().next().unwrap().instance.tags.get(labels::TAG_LAUNCH).cloned()
    };
    sweep(&simulation);
    assert_eq!((claims(&simulation).len(), mark(&simulation)), (0, None), "not at the first sighting");
    simulation.run_for(SignedDuration::from_secs(60));
    assert_eq!(sweep(&simulation).counted("adopted"), 1);
    assert_eq!(mark(&simulation).as_deref(), Some("adopted"));
    let launched = world_of(None);
    let before = mark(&launched);
    assert!(before.is_some());
    sweep(&launched);
    assert_eq!(mark(&launched), before, "an existing launch tag is never replaced");
}

#[test]
fn a_machine_that_cannot_be_tagged_gets_no_claim() {
    let simulation = handed_over();
    let (objects, ports) = (simulation.world().cluster.objects.snapshot(), simulation.ports());
    let instance = simulation.world().region.machines.values().next().unwrap().instance.clone();
    let index = Index::of(&[], &[], &objects, &[]);
    let found = crate::adopt::find_adoptable(&instance, &index).unwrap();
    simulation.world().region.machines.clear();
    let adapters = Adapters::all(&ports);
    let (cluster, now) = (ClusterName::new("c"), simulation.world().now());
    let failure = block_on(async {
        let lease = ports.acquire(&cluster, "test", now, SignedDuration::from_secs(5)).await.unwrap();
        let mut executor = Executor { ports: adapters, cluster: &cluster, index: &index, sightings: &[], failure: None };
        executor.adopt_machines(&lease, std::slice::from_ref(&found), None, &mut Report::default()).await;
        executor.failure
    });
    assert!(failure.is_some() && claims(&simulation).is_empty(), "{failure:?}");
}

/// Whose a machine without a claim is, of which the NodeClaim says that it is Whittle's.
#[test]
fn the_launch_tag_counts_more_than_the_mark_of_the_nodeclaim() {
    let check = |tag: Option<&str>, adopted: usize, unmarked: &[&str]| {
        let scene = change(lost(), |scene| {
            let tags = &mut scene.instances[0].tags;
            tags.remove(labels::TAG_LAUNCH);
            tags.extend(tag.map(|tag| (labels::TAG_LAUNCH.to_owned(), tag.to_owned())));
        });
        let (first, second) = scene.twice(30);
        assert_eq!((first.adopt.len(), first.handed_over.len()), (0, 0), "{tag:?}");
        assert_eq!((second.adopt.len(), second.orphans.len(), second.abandoned.len()), (adopted, 0, 0), "{tag:?}");
        assert_eq!(second.handed_over, unmarked, "{tag:?}");
    };
    check(Some("batch"), 1, &[]);
    check(None, 1, &[]);
    check(Some(""), 0, &["default-1"]);
}

/// Violations that tell of the adoption of a machine of Karpenter's.
fn wrongly_adopted(simulation: &Simulation) -> Vec<String> {
    simulation.world().violations.iter().filter(|text| text.contains("was adopted")).cloned().collect()
}

/// Another run had read the claim before it ended, and wrote its NodeClaim after all else; then the table was lost.
#[test]
fn a_machine_that_was_handed_over_is_never_adopted_for_a_late_mark() {
    let mut simulation = world_of(Some(&serving()));
    let ports = simulation.ports();
    let request = UninstallRequest { cluster: ClusterName::new("c"), nodes: LeftNodes::HandOver, dry_run: false };
    let report = block_on(crate::uninstall(Adapters::all(&ports), &Settings::default(), &request)).unwrap();
    assert_eq!(report.counted("handed_over_to_karpenter"), 1);
    let object = || simulation.get::<NodeClaim>("default-1").unwrap().metadata;
    assert_eq!(object().annotation(labels::MANAGED), None);
    block_on(ports.apply_mirror(&request.cluster, &mirror(&serving()))).unwrap();
    assert!(object().annotation(labels::MANAGED).is_some());
    simulation.world().restore_table(); // of which there is no copy
    for (unmarked, is_marked) in [(0, true), (1, false), (0, false)] {
        let report = sweep(&simulation);
        assert_eq!((report.counted("adopted"), report.counted("collected"), report.counted("marks_removed")), (0, 0, unmarked));
        let left = simulation.get::<NodeClaim>("default-1").unwrap().metadata;
        assert_eq!((left.annotation(labels::MANAGED).is_some(), left.is_deleting()), (is_marked, false));
        assert_eq!(left.finalizers, [labels::TERMINATION_FINALIZER]);
        simulation.run_for(SignedDuration::from_secs(60));
    }
    assert!(claims(&simulation).is_empty());
    assert!(simulation.world().region.machines.values().all(|machine| machine.instance.is_alive()));
    assert_eq!(wrongly_adopted(&simulation), Vec::<String>::new());
}

/// Only the lost table knew that it was handed over: neither its tag nor its NodeClaim had been changed.
#[test]
fn a_machine_whose_hand_over_had_ended_its_claim_alone_is_adopted_after_a_loss() {
    let mut simulation = world_of(Some(&serving()));
    let ports = simulation.ports();
    simulation.world().uninstall(LeftNodes::HandOver);
    let known = block_on(ports.get(&whittle_testkit::key("default-1"))).unwrap().unwrap();
    let mut ended = step(&known.value, &Event::LetGo, at(120)).unwrap();
    ended.annotations.insert(labels::HANDED_OVER.into(), "true".into());
    block_on(ports.update(&ended, known.revision)).unwrap();
    simulation.world().restore_table();
    assert_eq!(sweep(&simulation).counted("adopted"), 0);
    simulation.run_for(SignedDuration::from_secs(60));
    assert_eq!(sweep(&simulation).counted("adopted"), 1);
    assert_eq!(wrongly_adopted(&simulation), Vec::<String>::new());
}

#[test]
fn a_restored_waiting_claim_gets_its_machine() {
    let mut simulation = world_of(Some(&planned()));
    sweep(&simulation);
    simulation.run_for(SignedDuration::from_secs(60));
    assert_eq!(sweep(&simulation).counted("adopted"), 1);
    let [claim] = claims(&simulation).try_into().unwrap();
    assert_eq!((claim.uid.as_str(), claim.phase.name()), ("uid", "Initialized"), "the existing claim");
    let by_instance = block_on(simulation.ports().by_instance(&"i-1".into())).unwrap().unwrap();
    assert_eq!(by_instance.value.key, claim.key);
}

#[test]
fn deletion_of_a_node_or_nodeclaim_unknown_to_the_table_completes() {
    for node in [true, false] {
        let mut simulation = world_of(None);
        {
            let mut world = simulation.world();
            let now = world.now();
            world.cluster.objects.change::<Node>("n", |node| node.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()]);
            if node {
                world.cluster.objects.delete::<Node>("n", now);
            } else {
                world.cluster.objects.delete::<NodeClaim>("default-1", now);
            }
        }
        for _ in 0..2 {
            sweep(&simulation);
            simulation.run_for(SignedDuration::from_secs(60));
        }
        let report = sweep(&simulation);
        let [claim] = claims(&simulation).try_into().unwrap();
        let reason = claim.deletion.as_ref().map(|deletion| deletion.reason);
        assert_eq!((report.counted("ended"), reason), (1, Some(DeletionReason::Requested)), "terminate drains it and releases both");
        assert_eq!(mirror(&claim).status.node_name, "n");
    }
}

#[test]
fn the_first_sighting_of_a_nodeclaim_without_a_claim_is_kept() {
    let (first, second) = lost().twice(3600);
    let subject = Sighting::unclaimed("default-1");
    assert!(first.note.iter().any(|noted| noted.subject == subject));
    assert!(second.note.iter().all(|noted| noted.subject != subject) && !second.forget.contains(&subject));
}

/// Plans wait for ten minutes from that sighting on, and for ever without it.
#[test]
fn a_nodeclaim_without_a_claim_is_sighted_also_while_others_cannot_be_read() {
    let odd = || {
        let meta = ObjectMeta { uid: "theirs".into(), ..ObjectMeta::named("theirs") };
        Unreadable::refused(NodeClaim::API_VERSION, NodeClaim::KIND, meta, "spec", "written by a later release")
    };
    let subject = Sighting::unclaimed("copy");
    let of_claims = |scene: &mut Scene| scene.unreadable = vec!["other".into()];
    let of_objects = |scene: &mut Scene| scene.objects.unreadable = vec![odd()];
    let both: [&dyn Fn(&mut Scene); 2] = [&of_claims, &of_objects];
    for hide in both {
        let hidden = change(copied(), hide);
        let (first, second) = hidden.twice(3_600);
        assert!(first.note.iter().any(|noted| noted.subject == subject), "{first:?}");
        assert!(second.note.iter().all(|noted| noted.subject != subject) && !second.forget.contains(&subject), "{second:?}");
        assert_eq!((second.abandoned.len(), second.answer.len()), (0, 0), "its machine may be hidden");
    }
    let own = change(copied(), |scene| scene.unreadable = vec!["copy".into()]);
    assert!(own.compare(&[], 100).note.iter().all(|noted| noted.subject != subject), "a claim that cannot be read exists");
}
