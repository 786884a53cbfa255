//! The deadline that a user states on a NodeClaim that is being deleted.

use super::*;
use whittle_api::Unreadable;
use whittle_units::Timestamp;

#[test]
fn deletion_by_a_user_keeps_its_deadline() {
    let deleted = |stated: &str| {
        change(scene(registered()), |s| {
            let meta = &mut s.objects.node_claims[0].metadata;
            meta.deletion_timestamp = Some(at(90));
            meta.annotations.insert(labels::TERMINATION_TIMESTAMP.into(), stated.into());
        })
    };
    let end = deleted(&at(500).to_string()).compare(&[], 100).end.remove(0);
    assert_eq!((end.requested_at, end.stated), (Some(at(90)), Some(at(500))));
    let end = deleted("soon").compare(&[], 100).end.remove(0);
    assert_eq!((end.reason, end.stated), (DeletionReason::Requested, None), "an invalid time is no deadline");
}

#[test]
fn a_deadline_that_a_nodeclaim_states_is_kept_whatever_ends_it() {
    let ends = |what: fn(&mut Scene), stated: Option<String>| {
        let scene = change(scene(registered()), |s| {
            let stated = stated.map(|text| (labels::TERMINATION_TIMESTAMP.to_owned(), text));
            s.objects.node_claims[0].metadata.annotations.extend(stated);
            what(s);
        });
        scene.compare(&[], 100).end.iter().map(|end| (end.reason, end.stated)).collect::<Vec<_>>()
    };
    let expired: fn(&mut Scene) = |s| s.claims[0].spec.expire_after = NillableDuration::from_secs(50);
    let of_pool: fn(&mut Scene) = |s| s.objects.node_pools[0].metadata.deletion_timestamp = Some(at(90));
    let of_node: fn(&mut Scene) = |s| s.objects.nodes[0].metadata.deletion_timestamp = Some(at(90));
    for (what, reason) in
        [(expired, DeletionReason::Expired), (of_pool, DeletionReason::NodePoolDeleted), (of_node, DeletionReason::Requested)]
    {
        assert_eq!(ends(what, Some(at(500).to_string())), [(reason, Some(at(500)))]);
        assert_eq!(ends(what, Some("soon".to_owned())), [(reason, None)]);
        assert_eq!(ends(what, None), [(reason, None)]);
    }
    assert!(ends(|_| (), Some(at(50).to_string())).is_empty(), "it ends nothing by itself");
}

/// What the second of two sweeps ends, of a claim with this status, whose NodeClaim states second 500, and may be unreadable.
fn stated_of(status: InstanceStatus, readable: bool) -> Vec<(DeletionReason, Option<Timestamp>)> {
    let scene = change(scene(registered()), |s| {
        s.statuses.push(InstanceStatus { instance: "i-1".into(), ..status });
        let meta = &mut s.objects.node_claims[0].metadata;
        meta.annotations.insert(labels::TERMINATION_TIMESTAMP.into(), at(500).to_string());
        if !readable {
            let metadata = s.objects.node_claims.remove(0).metadata;
            s.objects.unreadable.push(Unreadable { kind: "NodeClaim".into(), metadata, ..Unreadable::default() });
        }
    });
    scene.twice(30).1.end.iter().map(|end| (end.reason, end.stated)).collect()
}

#[test]
fn an_event_that_ec2_has_scheduled_keeps_a_stated_deadline_and_a_failed_check_never_waits_for_it() {
    for readable in [true, false] {
        let scheduled = InstanceStatus { has_scheduled_event: true, ..InstanceStatus::default() };
        assert_eq!(stated_of(scheduled, readable), [(DeletionReason::ScheduledChange, Some(at(500)))], "{readable}");
        let failed = InstanceStatus { system_impaired_since: Some(at(-20)), ..InstanceStatus::default() };
        assert_eq!(stated_of(failed, readable), [(DeletionReason::Unhealthy, None)], "{readable}");
    }
}

/// What a sweep at 100 s finds of a claim that drains with this deadline, and whose NodeClaim states another.
fn restated(deadline: Option<Timestamp>, stated: Option<i64>) -> Findings {
    let deletion = Deletion { deadline, ..deletion(DeletionReason::Underutilized, at(10)) };
    let draining = step(&registered(), &Event::DeletionRequested(deletion), at(20)).unwrap();
    let scene = change(scene(draining), |s| {
        let meta = &mut s.objects.node_claims[0].metadata;
        meta.deletion_timestamp = Some(at(20));
        let stated = stated.map(|seconds| (labels::TERMINATION_TIMESTAMP.to_owned(), at(seconds).to_string()));
        meta.annotations.extend(stated);
    });
    scene.compare(&[], 100)
}

#[test]
fn a_deadline_is_brought_forward_during_the_drain_and_never_put_off() {
    for (deadline, stated) in [(Some(at(500)), 400), (Some(at(500)), 50), (None, 400), (None, 50)] {
        let found = restated(deadline, Some(stated));
        let ends: Vec<_> = found.end.iter().map(|end| (end.reason, end.requested_at, end.stated)).collect();
        assert_eq!(ends, [(DeletionReason::Requested, None, Some(at(stated)))]);
        assert!(found.mirrors.is_empty(), "the NodeClaim is not written with the deadline of before");
    }
    let later = restated(Some(at(500)), Some(600));
    assert_eq!((later.end.len(), later.mirrors.len()), (0, 1), "the annotation is corrected");
    let same = at(500) + SignedDuration::from_millis(700);
    for deadline in [None, Some(at(500)), Some(same)] {
        let found = restated(deadline, None);
        assert_eq!((found.end.len(), found.mirrors.len()), (0, 0), "it states what the claim has");
    }
}

#[test]
fn a_deadline_counts_while_it_matters_and_once_the_nodeclaim_is_being_deleted() {
    let requested = |claim: &Claim| step(claim, &deletion_requested(), at(20)).unwrap();
    let ends = |claim: Claim, deleted: bool| {
        let scene = change(scene(claim), |s| {
            (s.objects.nodes, s.instances) = (Vec::new(), Vec::new());
            let meta = &mut s.objects.node_claims[0].metadata;
            meta.deletion_timestamp = deleted.then(|| at(20));
            meta.annotations.insert(labels::TERMINATION_TIMESTAMP.into(), at(400).to_string());
        });
        scene.compare(&[], 100).end.len()
    };
    let draining = requested(&registered());
    assert_eq!((ends(draining.clone(), true), ends(draining.clone(), false)), (1, 0));
    assert_eq!(ends(requested(&after(&[begun()])), true), 1, "its launch is awaited");
    assert_eq!(ends(step(&draining, &Event::TerminationSent, at(30)).unwrap(), true), 0, "its machine is being terminated");
}
