//! Plays with faults: the checkers notice missing safeguards, and failures found by storms stay fixed.

use crate::local::scenario::{self, Play, Scenario};
use jiff::SignedDuration;
use std::path::Path;
use whittle_sim::{Faults, Function, Mutant, TableLoss};

fn scenario(name: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/scenarios/faults/{name}.yaml"));
    scenario::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn play(name: &str, seed: u64, faults: &Faults, mutant: Option<Mutant>) -> scenario::Outcome {
    let play = Play { mutant, ..Play::lenient(seed, faults.clone()) };
    scenario::play(&scenario(name), &play).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The number of seeds to try, because the faults of a seed change with every added draw.
const SEEDS: u64 = 80;

/// The whole system keeps its invariants under these faults; without the safeguard, the checkers report `text` for one of the
/// seeds from `seed` on.
#[track_caller]
fn check(mutant: Mutant, name: &str, seed: u64, faults: &Faults, text: &str) {
    let caught = (seed..seed + SEEDS).find(|seed| {
        let broken = play(name, *seed, faults, Some(mutant));
        broken.failures.iter().any(|failure| failure.contains(text))
    });
    let Some(seed) = caught else { panic!("{name} with {mutant:?}: no checker noticed") };
    let whole = play(name, seed, faults, None);
    assert_eq!(whole.failures, Vec::<String>::new(), "{name} without {mutant:?}");
}

fn calm() -> Faults {
    Faults::default()
}

#[test]
fn a_lost_fencing_check_is_noticed() {
    // No invocation outlives its lease; only one with a fast clock can acquire it early. Then two may hold a lease,
    // and only the fencing check remains.
    let faults = Faults { slow_replies: 100, doubled_runs: 1000, clock_skew_ms: 20_000, ..calm() };
    let noticed = |seed, mutant| {
        let failures = play("scale_up", seed, &faults, mutant).failures;
        failures.iter().any(|failure| failure.contains("under an outdated lease"))
    };
    let caught = (10..10 + SEEDS).find(|seed| noticed(*seed, Some(Mutant::FencingUnchecked)));
    assert!(!noticed(caught.expect("a checker notices"), None));
}

#[test]
fn an_ignored_lease_is_noticed() {
    check(Mutant::LeaseIgnored, "scale_up", 1, &Faults { doubled_runs: 1000, ..calm() }, "was held by two owners at once");
}

#[test]
fn an_ignored_revision_is_noticed() {
    check(Mutant::RevisionIgnored, "scale_down", 1, &Faults { doubled_runs: 1000, ..calm() }, "had not read");
}

#[test]
fn a_stale_listing_of_claims_is_noticed() {
    // NodeClaims that are newer than the listing are waited for.
    check(
        Mutant::ClaimListingStale,
        "scale_up",
        2,
        &Faults { stale_reads: 1000, late_messages: 1000, repeated_messages: 1000, ..calm() },
        "were planned already",
    );
}

#[test]
fn a_missing_client_token_is_noticed() {
    let faults = Faults { lost_fleets: 500, stale_reads: 1000, ..calm() };
    check(Mutant::ClientTokenIgnored, "scale_up", 2, &faults, "of 1 brought 2 machines");
}

#[test]
fn evictions_without_budgets_are_noticed() {
    check(Mutant::EvictionBudgetsIgnored, "drain_with_budget", 1, &calm(), "violated the disruption budget");
}

#[test]
fn deleting_pods_whose_eviction_is_forbidden_is_noticed() {
    check(Mutant::RefusedPodsDeleted, "drain_with_budget", 1, &calm(), "force-deleted before any deadline");
}

#[test]
fn finalizers_removed_early_are_noticed() {
    check(Mutant::FinalizersRemovedEarly, "scale_down", 1, &calm(), "lost its finalizer before");
}

#[test]
fn an_orphan_terminated_at_first_sight_is_noticed() {
    check(Mutant::OrphanAtFirstSight, "orphan", 1, &calm(), "an orphan at first sight");
}

#[test]
fn a_consolidation_that_raises_the_cost_is_noticed() {
    check(Mutant::PriceIgnored, "consolidation", 1, &calm(), "raised the cost");
}

#[test]
fn ignored_disruption_budgets_of_a_pool_are_noticed() {
    check(Mutant::PoolBudgetsIgnored, "empty_with_budget", 1, &calm(), "disruptions (Empty) more and");
}

#[test]
fn a_node_drained_before_its_replacement_is_planned_is_noticed() {
    check(Mutant::ReplacementPlannedLate, "spot_held", 1, &calm(), "was evicted before a replacement was planned");
}

#[test]
fn a_claim_ended_before_its_machine_is_noticed() {
    check(Mutant::TerminationUnconfirmed, "scale_down", 1, &calm(), "was not confirmed to be terminated");
}

#[test]
fn acting_on_a_single_read_is_noticed() {
    check(Mutant::SingleReadTrusted, "drain_with_budget", 1, &Faults { partial_reads: 60, ..calm() }, "although its NodePool exists");
}

#[test]
fn a_standalone_node_claim_adopted_at_first_sight_is_noticed() {
    check(Mutant::SingleReadTrusted, "made_by_hand", 1, &calm(), "was adopted at first sight");
}

#[test]
fn ignored_unreadable_objects_are_noticed() {
    // More of them, and replacements are planned too seldom: no plan is made while an object that it needs cannot be read.
    check(Mutant::UnreadableDropped, "drain_with_budget", 1, &Faults { unreadable: 100, ..calm() }, "while pod ");
}

#[test]
fn an_unproven_absence_is_noticed() {
    check(
        Mutant::AbsenceUnverified,
        "made_by_hand",
        1,
        &Faults { vanished: 200, ..calm() },
        "neither its Node nor its NodeClaim was deleted",
    );
}

#[test]
fn a_message_acknowledged_before_its_work_is_noticed() {
    let gates = play("spot_loss", 1, &calm(), None).gates;
    let first = 1 + gates.iter().position(|function| *function == Function::Interrupt).expect("notices come");
    // Notices of machines that start to run come first; the interruption is among the later ones.
    let points = (0..gates.len()).filter(|at| gates[*at] == Function::Interrupt).map(|at| at + 1).filter(|point| *point >= first);
    let caught = points.step_by(2).any(|point| {
        let faults = Faults { crash_at_gate: u64::try_from(point).ok(), ..calm() };
        let broken = play("spot_loss", 1, &faults, Some(Mutant::AcknowledgedEarly));
        let noticed = broken.failures.iter().any(|failure| failure.contains("the notice had no effect"));
        assert!(!noticed || play("spot_loss", 1, &faults, None).failures.is_empty());
        noticed
    });
    assert!(caught, "no checker noticed");
}

#[test]
fn a_spot_notice_is_not_lost_to_concurrent_writers_of_its_claim() {
    for seed in 1..=12 {
        let outcome = play("spot_loss", seed, &Faults { busy_writers: 400, ..calm() }, None);
        assert_eq!(outcome.failures, Vec::<String>::new(), "seed {seed}");
    }
}

/// Storm 206: a response without Nodes was treated as a Node deleted by a user, and the machine was terminated under its pods.
#[test]
fn a_node_missing_from_one_response_does_not_terminate_its_machine() {
    for seed in 1..=4 {
        let outcome = play("drain_with_budget", seed, &Faults { partial_reads: 300, ..calm() }, None);
        assert_eq!(outcome.failures, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn ticks_and_sweeps_recover_everything_if_all_other_doorbells_are_lost() {
    for name in ["scale_up", "scale_down", "orphan"] {
        let outcome = play(name, 1, &Faults { lost_messages: 1000, ..calm() }, None);
        assert_eq!(outcome.failures, Vec::<String>::new(), "{name}");
        assert!(outcome.summary.faults > 0);
    }
}

/// Storms 353 and 673: EC2 had no capacity for a replacement, twice, and the pods, although still running, counted as moved twice.
#[test]
fn pods_of_a_node_without_replacement_do_not_count_as_moved() {
    let all = super::storm(&[scenario("consolidation")], &[353, 673]).unwrap();
    assert_eq!(all.violations, Vec::<String>::new());
}

/// Storm 71303: a claim whose response was lost got, from the retried call, the terminated machine of another claim. It
/// waited a quarter of an hour for its node, and its own machine was orphaned.
#[test]
fn a_retried_launch_never_assigns_a_terminated_machine() {
    let faults = Faults { partial_fleets: 270, empty_repeats: 600, lost_replies: 30, unreadable_claims: 35, ..calm() };
    for seed in 1..=12 {
        let outcome = play("static_pool", seed, &faults, None);
        assert_eq!(outcome.failures, Vec::<String>::new(), "seed {seed}");
    }
}

/// Storm 83224: `refresh` failed at every tick, and for twenty-five minutes there was no current catalog.
#[test]
fn a_class_that_refresh_failed_to_resolve_is_retried_before_the_next_tick() {
    let all = super::storm(&[scenario("empty_with_budget")], &[83_224]).unwrap();
    assert_eq!(all.violations, Vec::<String>::new());
}

/// Storm 90232: for two minutes the cluster's endpoint was unknown, and doorbells of `launch` that were duplicated, or whose run died
/// after sending one, sent two more each, until no concurrency was left for anything else.
#[test]
fn doorbells_that_are_sent_again_do_not_multiply() {
    let all = super::storm(&[scenario("consolidation")], &[90_232]).unwrap();
    assert_eq!(all.violations, Vec::<String>::new());
}

/// Storm 91975: a claim that a user deleted, whose machine ran before its id was recorded, did not count against the
/// limit of its static pool.
#[test]
fn a_claim_deleted_by_a_user_during_its_launch_counts_against_the_limit_of_its_pool() {
    let all = super::storm(&[scenario("static_pool")], &[91_975]).unwrap();
    assert_eq!(all.violations, Vec::<String>::new());
}

/// Storm 90032: a pod was bound to a machine that had been launched for an identical one, which got a machine of its own:
/// that is correct, and not a duplicate launch.
#[test]
fn a_pod_whose_machine_is_taken_by_another_pod_is_planned_again() {
    let all = super::storm(&[scenario("reserved")], &[90_032]).unwrap();
    assert_eq!(all.violations, Vec::<String>::new());
}

/// Crash point 1819 of `spot_held`: a machine launched for pods whose budget kept them on a terminating node stayed
/// empty, was removed as empty, and launched again at the next tick, forever.
#[test]
fn a_machine_for_pods_held_by_a_budget_is_not_launched_repeatedly() {
    let outcome = scenario::run(&scenario("../drain_blocked"), None).unwrap();
    assert_eq!(outcome.failures, Vec::<String>::new());
}

/// Plays each scenario with the table lost at each of these seconds, or restored to a copy from `ago` seconds before.
fn check_table_loss(names: &[&str], moments: &[i64], ago: Option<i64>) {
    let seconds = SignedDuration::from_secs;
    for name in names {
        for moment in moments {
            let loss = TableLoss { after: seconds(*moment), as_of: ago.map(|ago| seconds((moment - ago).max(0))) };
            let outcome = play(name, 7, &Faults { table_loss: Some(loss), ..calm() }, None);
            assert_eq!(outcome.failures, Vec::<String>::new(), "{name}: {loss:?}");
        }
    }
}

#[test]
fn a_lost_table_loses_no_pod_and_leaves_no_orphan() {
    check_table_loss(&["scale_up", "scale_down", "drain_with_budget"], &[20, 75, 130, 240], None);
}

#[test]
fn a_restored_older_table_loses_no_pod_and_leaves_no_orphan() {
    check_table_loss(&["scale_up", "scale_down", "drain_with_budget"], &[20, 75, 130, 240], Some(15));
    check_table_loss(&["scale_up", "scale_down", "drain_with_budget"], &[130, 240], Some(100));
}
