//! How the end of a machine is confirmed, and what is not taken for it.

use super::NODE;
use super::over_sim::{Scene, abandoned_beside, ending, own_machine, planned, running, serving};
use crate::LastPlanned;
use futures::executor::block_on;
use whittle_api::k8s::{Kind as _, Node, Pod};
use whittle_api::karpenter::NodeClaim;
use whittle_api::labels;
use whittle_claims::{Claim, DeletionReason, Event, OfferingKey, Phase, StockOut, step};
use whittle_ec2::instance::{InstanceState, StateReason};
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{Adapters, Mode, RegionStore, Report, Settings};
use whittle_testkit::{TestWorld, after, at, begun, deletion};
use whittle_units::Timestamp;

/// The claim after EC2 was asked to terminate its machine, at second 0.
fn terminating() -> Claim {
    step(&ending(None), &Event::TerminationSent, at(0)).unwrap()
}

#[test]
fn in_shadow_mode_a_deletion_is_left_as_it_is() {
    for claim in [ending(Some(at(-10))), terminating()] {
        let scene = Scene::of(&claim);
        scene.create(running("web-0"));
        let ports = scene.ports();
        let shadow = Settings { mode: Mode::Shadow, ..Settings::default() };
        let report = block_on(crate::handle(Adapters::all(&ports), &shadow, &LastPlanned::default(), &planned().key)).unwrap();
        assert_eq!((report, scene.claim(), scene.state()), (Report::default(), claim, InstanceState::Running));
        assert!(scene.get::<Node>(NODE).unwrap().spec.taints.is_empty() && scene.is_held());
        assert!(!scene.get::<Pod>("default/web-0").unwrap().metadata.is_deleting());
        assert!(scene.doorbells().is_empty());
    }
}

/// It may never have reached EC2, or its machine have been protected then.
#[test]
fn a_request_to_terminate_is_sent_again_while_ec2_shows_the_machine_running() {
    let scene = Scene::of(&terminating());
    assert_eq!(scene.run().counted("terminated"), 0);
    assert_ne!(scene.state(), InstanceState::Running);
    assert!(scene.is_held() && scene.claim().phase.name() == "Terminating");
}

/// One that nobody needs costs money, and a call that EC2 throttles is repeated.
#[test]
fn a_machine_is_terminated_though_the_table_does_not_tell_whether_the_limit_allows_it() {
    let scene = Scene::of(&terminating());
    let ports = scene.ports();
    // The claim is read, and then a token taken.
    let table = Faulty::scripted(&ports, [None, Some(Fault::Throttle)]);
    let adapters = Adapters { store: &table, cloud: &ports, cluster: &ports, queues: &ports, clock: &ports };
    let report = block_on(crate::handle(adapters, &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
    assert_eq!((report.counted("termination_postponed"), table.counts().into_values().sum::<u32>()), (0, 1));
    assert_ne!(scene.state(), InstanceState::Running);
}

#[test]
fn a_machine_that_takes_long_to_end_is_looked_up_less_often() {
    let mut scene = Scene::of(&terminating());
    scene.set_state(InstanceState::ShuttingDown);
    let mut delay = |second: i64| {
        scene.set_time(second);
        scene.run();
        scene.claim().look_again_at.unwrap().duration_since(at(second)).as_secs()
    };
    assert_eq!([1, 59, 71, 84, 120, 360, 900].map(&mut delay), [5, 5, 5, 7, 10, 30, 30]);
    scene.set_state(InstanceState::Running);
    scene.set_time(1000);
    scene.run();
    assert_eq!(scene.claim().look_again_at, Some(at(1005)), "EC2 was asked again");
    assert_eq!(scene.claim().phase.name(), "Terminating");
}

/// Whether the claim has ended by the last of these looks, while EC2 does not show a machine that it started at second 0.
fn has_young_ended(looks: &[i64]) -> bool {
    let mut claim = terminating();
    if let Phase::Terminating { machine, .. } = &mut claim.phase {
        machine.launched_at = at(0);
    }
    let mut scene = Scene::of(&claim);
    scene.world().region.machines.clear();
    for second in looks {
        scene.set_time(*second);
        scene.run();
    }
    scene.claim().phase.name() == "Gone"
}

#[test]
fn a_machine_that_ec2_may_not_show_yet_has_not_ended() {
    assert!(!has_young_ended(&[10, 50, 90, 119]));
    assert!(!has_young_ended(&[89, 119, 120, 149]), "what was not shown before says nothing");
    assert!(has_young_ended(&[89, 119, 120, 150]));
}

#[test]
fn a_machine_that_ec2_shows_once_more_has_to_be_missing_anew() {
    let mut scene = Scene::of(&terminating());
    scene.set_state(InstanceState::ShuttingDown);
    let id = own_machine().instance_id;
    let machine = scene.world().region.machines.remove(&id).unwrap();
    let mut look = |second: i64, is_shown: bool| {
        if is_shown {
            scene.world().region.machines.insert(id.clone(), machine.clone());
        } else {
            scene.world().region.machines.remove(&id);
        }
        scene.set_time(second);
        scene.run();
        (scene.claim().instance_missing_since, scene.claim().phase.name())
    };
    assert_eq!(look(100, false), (Some(at(100)), "Terminating"));
    assert_eq!(look(115, true), (None, "Terminating"));
    assert_eq!(look(131, false), (Some(at(131)), "Terminating"));
    assert_eq!(look(160, false), (Some(at(131)), "Terminating"));
    assert_eq!(look(161, false).1, "Gone");
}

/// A kubelet that never spoke has no condition that says since when it is silent.
#[test]
fn a_machine_missing_in_ec2_whose_kubelet_never_spoke_is_drained_until_its_node_is_old_enough() {
    let phase_after = |age: Option<i64>| {
        let mut scene = Scene::of(&ending(None));
        scene.create(running("web-0"));
        scene.world().region.machines.clear();
        scene.change::<Node>(NODE, |node| {
            node.status.conditions.clear();
            node.metadata.creation_timestamp = age.map(|age| at(1000 - age));
        });
        scene.set_time(1000);
        scene.run();
        scene.claim().phase.name()
    };
    assert_eq!([None, Some(299), Some(300)].map(phase_after), ["Draining", "Draining", "Terminating"]);
}

/// Until then a call that another run is making may start the machine.
#[test]
fn a_launch_is_awaited_for_two_minutes_after_its_deletion() {
    let launching = after(&planned(), &[begun("t")], at(-3600));
    let deleted = Event::DeletionRequested(deletion(DeletionReason::Requested, at(0)));
    let mut world = TestWorld::still(at(0));
    world.store(&after(&launching, &[deleted], at(0)));
    for (second, abandoned) in [(0, 0), (119, 0), (120, 1)] {
        world.run_until(at(second));
        assert_eq!(Scene::run_over(&world.ports()).counted("abandoned"), abandoned, "at {second}");
    }
    assert_eq!(world.claim(&planned().key).phase.name(), "Gone");
}

#[test]
fn a_machine_of_the_same_call_that_serves_another_claim_is_never_drained() {
    let mut other = serving();
    other.key.name = "default-2".into();
    let (world, report) = abandoned_beside(Some(other.clone()), &[]);
    assert_eq!((report.counted("late_machines"), report.counted("abandoned")), (0, 1));
    assert_eq!((world.claim(&other.key), world.claim(&planned().key).instance()), (other, None));
}

/// The table was restored to a time before the launch.
#[test]
fn a_nodeclaim_of_a_machine_that_ec2_may_not_show_yet_is_kept_for_two_minutes() {
    let requested = Event::DeletionRequested(deletion(DeletionReason::Requested, at(0)));
    let mut scene = Scene::of(&step(&planned(), &requested, at(0)).unwrap());
    scene.world().region.machines.clear();
    scene.change::<NodeClaim>("default-1", |shown| {
        shown.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
        shown.status.provider_id = own_machine().provider_id.as_str().into();
    });
    for (second, is_there) in [(0, true), (119, true), (120, false)] {
        scene.set_time(second);
        scene.run();
        assert_eq!(scene.get::<NodeClaim>("default-1").is_some(), is_there, "at {second}");
    }
}

/// A scene in which lists lack the Node, though they have a pod on it.
fn unlisted(deadline: Option<Timestamp>) -> Scene {
    let scene = Scene::of(&ending(deadline));
    scene.create(running("web-0"));
    scene.world().hide_always(Node::KIND, NODE, false);
    scene
}

#[test]
fn a_node_that_lists_lack_ends_no_running_machine_whose_pods_they_show() {
    let mut scene = unlisted(None);
    for second in [0, 20, 3600] {
        scene.set_time(second);
        let report = scene.run();
        assert_eq!((report.counted("node_not_seen"), report.counted("termination_sent")), (1, 0), "at {second}");
    }
    assert_eq!(scene.state(), InstanceState::Running);
}

#[test]
fn pods_on_a_node_that_lists_lack_hold_a_machine_until_its_deadline_or_its_end() {
    let mut due = unlisted(Some(at(60)));
    for (second, sent) in [(0, 0), (20, 0), (60, 0), (61, 1)] {
        due.set_time(second);
        assert_eq!(due.run().counted("termination_sent"), sent, "at {second}");
    }
    let mut ended = unlisted(None);
    ended.set_state(InstanceState::Terminated);
    for (second, sent) in [(0, 0), (9, 0), (10, 1)] {
        ended.set_time(second);
        assert_eq!(ended.run().counted("termination_sent"), sent, "at {second}");
    }
}

/// What is out of stock after EC2 has ended a machine with these labels for lack of capacity, and what was known of that before.
fn out_of_stock(own: &[(&str, &str)], known: &[StockOut]) -> Vec<StockOut> {
    let mut claim = terminating();
    if let Phase::Terminating { machine, .. } = &mut claim.phase {
        machine.labels.extend(own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    }
    let scene = Scene::of(&claim);
    block_on(scene.ports().put_stock_outs(known)).unwrap();
    scene.set_state(InstanceState::Terminated);
    let reason = StateReason { code: "Server.InsufficientInstanceCapacity".into(), message: "none is left".into() };
    scene.world().region.machines.get_mut(&own_machine().instance_id).unwrap().instance.state_reason = Some(reason);
    assert_eq!(scene.run().counted("terminated"), 1);
    block_on(scene.ports().stock_outs(at(0))).unwrap()
}

#[test]
fn what_a_machine_was_ended_for_is_closed_for_its_own_reservation_or_placement_group_alone() {
    let keys = |own: &[(&str, &str)]| out_of_stock(own, &[]).into_iter().map(|out| out.offering).collect::<Vec<_>>();
    assert_eq!(keys(&[(labels::RESERVATION_ID, "cr-1")]), [OfferingKey::of_reservation("cr-1")]);
    let pool = OfferingKey { instance_type: "m5.large".into(), zone: "z".into(), capacity_type: "spot".into(), ..OfferingKey::default() };
    let in_group = OfferingKey { placement_group: Some("pg-1".into()), partition: Some(2), ..pool.clone() };
    assert_eq!(keys(&[(labels::PLACEMENT_GROUP_ID, "pg-1"), (labels::PLACEMENT_GROUP_PARTITION, "2")]), [in_group]);
    assert_eq!(keys(&[]), [pool]);
}

#[test]
fn an_offering_that_ends_machines_again_stays_closed_for_longer() {
    let first = out_of_stock(&[], &[]).remove(0);
    assert_eq!((first.strikes, first.until), (1, at(180)));
    let before = StockOut { until: at(-60), ..first };
    let again = out_of_stock(&[], &[before]).remove(0);
    assert_eq!((again.strikes, again.until), (2, at(360)));
}
