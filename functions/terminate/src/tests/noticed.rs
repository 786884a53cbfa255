//! Notices of EC2 that come while a machine is drained for another reason, and deletions that come after a notice.

use super::grace;
use super::over_sim::{Scene, budget, running, serving};
use whittle_claims::{Claim, Deletion, DeletionReason, Event};
use whittle_testkit::{after, at, deletion};

fn deleted(claim: &Claim, deletion: Deletion) -> Claim {
    let requested_at = deletion.at;
    after(claim, &[Event::DeletionRequested(deletion)], requested_at)
}

/// EC2 takes the machine at second 120.
fn noticed(claim: &Claim) -> Claim {
    deleted(claim, claim.deletion_for(DeletionReason::SpotInterruption, "", at(0)))
}

/// A claim whose drain has lasted for ten minutes when the notice comes.
fn noticed_while_draining(reason: DeletionReason, deadline: Option<i64>) -> Claim {
    let deletion = Deletion { deadline: deadline.map(at), ..deletion(reason, at(-600)) };
    noticed(&deleted(&serving(), deletion))
}

/// A pod with this grace period, which a budget holds, is deleted after second `last` and not before.
#[track_caller]
fn check_forced_after(claim: &Claim, grace_seconds: i64, last: i64) {
    let mut scene = Scene::of(claim);
    scene.create(budget());
    scene.create(grace(running("web-0"), grace_seconds));
    for seconds in [last - 10, last] {
        scene.set_time(seconds);
        let report = scene.run();
        assert_eq!((report.counted("held_by_budget"), report.counted("forced")), (1, 0), "at {seconds}");
    }
    scene.set_time(last + 1);
    assert_eq!(scene.run().counted("forced"), 1, "at {}", last + 1);
}

#[test]
fn a_notice_during_a_drain_keeps_budgets_until_its_last_half_minute() {
    for reason in [DeletionReason::Drifted, DeletionReason::Underutilized, DeletionReason::Requested, DeletionReason::Expired] {
        for deadline in [None, Some(121), Some(3600)] {
            let claim = noticed_while_draining(reason, deadline);
            let deletion = claim.deletion.as_ref().unwrap();
            assert_eq!((deletion.reason, deletion.deadline), (reason, Some(at(120))), "the first reason stays");
            check_forced_after(&claim, 600, 90);
            check_forced_after(&claim, 60, 90);
            check_forced_after(&claim, 10, 110);
        }
    }
}

#[test]
fn a_notice_never_takes_the_time_of_pods_before_a_users_earlier_deadline() {
    check_forced_after(&noticed_while_draining(DeletionReason::Drifted, Some(119)), 60, 59);
    check_forced_after(&noticed_while_draining(DeletionReason::Requested, Some(100)), 80, 20);
}

#[test]
fn a_deadline_that_a_user_brings_forward_after_a_notice_leaves_pods_their_whole_grace_period() {
    let brought_to = |seconds: i64| {
        let stated = Deletion { deadline: Some(at(seconds)), ..deletion(DeletionReason::Requested, at(5)) };
        deleted(&noticed(&serving()), stated)
    };
    check_forced_after(&brought_to(110), 60, 50);
    check_forced_after(&brought_to(300), 60, 90);
    check_forced_after(&brought_to(300), 600, 90);
}
