//! `whittle sim diurnal`: a day of a workload that follows the sun, decided by Whittle and by the reference's packing.
//!
//! Both runs see the same Deployments scaled at the same moments under the same NodePool; what differs is how pods are
//! packed and which commands consolidation may find.

use super::{manifests, verdicts};
use crate::local::session::{Place, Session, SessionError};
use crate::savings::ledger_of;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write as _};
use whittle_core::disruption::{SavingsReport, savings};
use whittle_ports::{Scheduling, Settings};
use whittle_sim::World;

/// `whittle sim diurnal`
#[derive(Debug, Args)]
pub struct DiurnalArgs {
    /// Machines at the day's peak
    #[arg(long, default_value_t = 200)]
    pub nodes: u32,
    /// How long
    #[arg(long, default_value_t = 24)]
    pub hours: u32,
    /// The hour of the day to begin with, 0 for midnight
    #[arg(long, default_value_t = 0)]
    pub from: u32,
}

/// Share of the peak in each hour of the day, in percent.
const LOAD: [u32; 24] = [35, 30, 25, 25, 25, 30, 40, 55, 70, 85, 95, 100, 100, 95, 95, 95, 90, 90, 85, 75, 65, 55, 45, 40];
/// Deployments, each a little ahead of or behind the others.
const APPS: u32 = 20;
/// Cores of the largest machine that the pool buys.
const CORES: u32 = 8;
/// How often Deployments are scaled.
const SCALE_EVERY: u32 = 15;
/// Moves of one pod by consolidation that are too many within an hour.
const MOVES_MAX: usize = 2;
/// How often it is looked who took whose place: between a decision and its first eviction passes more.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);
/// How long after a pod went somebody may take its place. A controller does so at once, unless fewer are wanted by then: who
/// comes later was not made for a pod that went.
const TAKEN_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// From so many machines on, a day takes minutes, and each hour of it is told.
const LARGE: u32 = 50;

/// How a day went.
#[derive(Debug, Default)]
pub struct Day {
    /// Billionths of a dollar, summed minute by minute.
    pub nanos: u128,
    pub nodes_peak: usize,
    pub machines_started: usize,
    /// Minutes that pods waited for a place, summed over pods.
    pub waiting_minutes: usize,
    pub disrupted: SavingsReport,
    /// The moves of the pod (that is: it, and those that took its place) that consolidation moved most within an hour.
    pub most_moved: Vec<Move>,
    /// Seconds since the oldest verdict of a node of ours was known to hold, at the worst minute.
    pub verdict_age: i64,
    /// Invariants that were broken, in words.
    pub violations: Vec<String>,
}

/// Both days as a table, with what is wrong about ours.
///
/// # Errors
/// The manifests are refused.
pub fn run(args: &DiurnalArgs) -> Result<(String, Vec<String>), SessionError> {
    let minutes = args.from * 60..(args.from + args.hours) * 60;
    // Side by side: each has a world of its own.
    let (ours, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| day(args.nodes, minutes.clone(), true));
        (
            day(args.nodes, minutes.clone(), false),
            theirs.join().unwrap_or_else(|_| Err(SessionError::Refused("a day ended in a panic".to_owned()))),
        )
    });
    let (ours, theirs) = (ours?, theirs?);
    let mut wrong = ours.violations.clone();
    if ours.most_moved.len() > MOVES_MAX {
        let moves: Vec<String> = ours.most_moved.iter().map(Move::to_string).collect();
        wrong.push(format!("a pod was moved {} times within an hour: {}", moves.len(), moves.join(", ")));
    }
    if ours.verdict_age > verdicts::SECONDS_MAX {
        wrong.push(format!("the verdict of a node was {} seconds old", ours.verdict_age));
    }
    if ours.nanos > theirs.nanos {
        wrong.push("the day costs more than with the reference's packing".to_owned());
    }
    Ok((table(&ours, &theirs), wrong))
}

fn table(ours: &Day, theirs: &Day) -> String {
    let mut out = format!("{:<44}{:>14}{:>14}\n", "", "whittle", "reference");
    let mut row = |name: &str, value: &dyn Fn(&Day) -> String| {
        let _ = writeln!(out, "{name:<44}{:>14}{:>14}", value(ours), value(theirs));
    };
    row("dollars", &|day| format!("{:.2}", dollars(day.nanos)));
    row("machines at the peak", &|day| day.nodes_peak.to_string());
    row("machines started", &|day| day.machines_started.to_string());
    row("pod minutes without a place", &|day| day.waiting_minutes.to_string());
    row("commands of disruption", &|day| day.disrupted.commands.to_string());
    row("nodes removed or replaced", &|day| day.disrupted.nodes_removed.to_string());
    row("pods moved", &|day| day.disrupted.pods_moved.to_string());
    row("most moves of one pod within an hour", &|day| day.most_moved.len().to_string());
    row("oldest verdict of a node, in seconds", &|day| day.verdict_age.to_string());
    row("broken invariants", &|day| day.violations.len().to_string());
    out
}

#[expect(clippy::cast_precision_loss, reason = "output")]
fn dollars(nanos: u128) -> f64 {
    nanos as f64 / 1e9
}

/// Plays some minutes of a day. `reference`: with the reference's own packing and choice of commands.
///
/// # Errors
/// The manifests are refused.
pub fn day(nodes: u32, minutes: impl Iterator<Item = u32>, reference: bool) -> Result<Day, SessionError> {
    let mut session = Session::new(&Place::default());
    let scheduling = Scheduling { reference_packing: reference, ..Scheduling::default() };
    session.set(Settings { scheduling, ..session.settings() });
    session.apply_text("pool.yaml", &pool())?;
    for app in 0..APPS {
        session.apply_text("app.yaml", &manifests::deployment(app, 0, size(app), size(app) * 2))?;
    }
    let mut day = Day::default();
    let mut moves = Moves::default();
    let (mut gone, mut read) = (BTreeSet::new(), 0);
    for minute in minutes {
        if minute % SCALE_EVERY == 0 {
            for app in 0..APPS {
                session.scale(&format!("app-{app}"), replicas(app, nodes, minute))?;
            }
        }
        for _ in 0..60 / LOOK_EVERY.as_secs() {
            session.advance(LOOK_EVERY);
            let world = session.simulation.world();
            if world.cluster.objects.workloads() == moves.seen {
                continue;
            }
            // Only what is new is read: the log of a day is long.
            let decisions = world.store.decisions(&world.name());
            gone.extend(ledger_of(&decisions[read..]).into_iter().flat_map(|entry| entry.nodes));
            read = decisions.len();
            moves.look(&world, &gone);
            // A day starts so many machines that some get the name of one that has ended.
            gone.retain(|name: &String| world.cluster.objects.nodes.contains_key(name));
        }
        let world = session.simulation.world();
        day.nanos += u128::from(world.cost().nanos()) / 60;
        let running = world.region.machines.values().filter(|machine| machine.instance.is_alive()).count();
        day.nodes_peak = day.nodes_peak.max(running);
        let (_, starting, pending) = world.cluster.pod_counts(|_| true);
        day.waiting_minutes += starting + pending;
        day.verdict_age = day.verdict_age.max(verdicts::oldest(&world));
        if (minute + 1) % 60 == 0 && nodes >= LARGE {
            let who = if reference { "reference" } else { "whittle" };
            eprintln!(
                "{who}: hour {} done, ${:.2}, {running} machines, {} moves at most, {} commands; verdicts: {}",
                (minute + 1) / 60,
                dollars(day.nanos),
                moves.most.len(),
                ledger_of(world.store.decisions(&world.name())).len(),
                verdicts::by_code(&world)
            );
        }
    }
    let world = session.simulation.world();
    let entries = ledger_of(world.store.decisions(&world.name()));
    day.disrupted = savings(&entries, Timestamp::MIN, Timestamp::MAX);
    day.machines_started = world.region.started();
    day.most_moved = moves.most;
    day.violations.clone_from(&world.violations);
    Ok(day)
}

/// A pod as the day sees it.
#[derive(Clone, Debug, Default)]
struct Seen {
    app: String,
    node: String,
    created: Timestamp,
}

/// One move of a pod by consolidation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    at: Timestamp,
    pod: String,
    created: Timestamp,
    node: String,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} left {} at {}", self.pod, self.created, self.node, self.at)
    }
}

/// Follows pods through their successors: a pod that left a disrupted node hands its history to the next of its app that
/// comes.
#[derive(Debug, Default)]
struct Moves {
    /// What had been written of workloads at the last look.
    seen: u64,
    before: BTreeMap<String, Seen>,
    /// By pod: when it or its predecessors were moved.
    history: BTreeMap<String, Vec<Move>>,
    /// By app: histories that wait for a pod, with a moment at which their own was still there.
    open: BTreeMap<String, VecDeque<(Timestamp, Vec<Move>)>>,
    most: Vec<Move>,
}

impl Moves {
    fn look(&mut self, world: &World, gone: &BTreeSet<String>) {
        self.seen = world.cluster.objects.workloads();
        let pods = world.cluster.objects.pods.values().filter(|pod| !pod.metadata.is_deleting());
        let seen = pods.map(|pod| {
            let app = pod.metadata.labels.get("app").cloned().unwrap_or_default();
            let created = pod.metadata.creation_timestamp.unwrap_or_default();
            (pod.metadata.key(), Seen { app, node: pod.spec.node_name.clone(), created })
        });
        self.note(world.now(), seen.collect(), gone);
    }

    fn note(&mut self, now: Timestamp, pods: BTreeMap<String, Seen>, gone: &BTreeSet<String>) {
        let there_at = now.checked_sub(LOOK_EVERY).unwrap_or(now);
        for (pod, seen) in self.before.iter().filter(|(pod, _)| !pods.contains_key(*pod)) {
            let mut history = self.history.remove(pod).unwrap_or_default();
            if !gone.contains(&seen.node) {
                continue;
            }
            history.retain(|one| now.duration_since(one.at) < SignedDuration::from_hours(1));
            history.push(Move { at: now, pod: pod.clone(), created: seen.created, node: seen.node.clone() });
            if history.len() > self.most.len() {
                self.most.clone_from(&history);
            }
            self.open.entry(seen.app.clone()).or_default().push_back((there_at, history));
        }
        for (pod, seen) in pods.iter().filter(|(pod, _)| !self.before.contains_key(*pod)) {
            let Some(open) = self.open.get_mut(&seen.app) else { continue };
            open.retain(|(since, _)| now.duration_since(*since) <= TAKEN_WITHIN);
            let came_later = |(since, _): &&(Timestamp, Vec<Move>)| *since <= seen.created;
            if open.front().filter(came_later).is_some() {
                self.history.extend(open.pop_front().map(|(_, history)| (pod.clone(), history)));
            }
        }
        self.before = pods;
    }
}

/// Cores of one pod of an app, in thousandths.
fn size(app: u32) -> u32 {
    [250, 500, 750, 1_000, 2_000][(app % 5) as usize]
}

/// What the app runs at a minute of the day: its share of the load, a little earlier or later than the others.
fn replicas(app: u32, nodes: u32, minute: u32) -> i32 {
    let shifted = minute + 24 * 60 + app * 9 - 90;
    let at = |hour: u32| LOAD[(hour % 24) as usize];
    let (hour, part) = (shifted / 60, shifted % 60);
    let percent = (at(hour) * (60 - part) + at(hour + 1) * part) / 60;
    // A machine keeps a little for itself.
    let peak = u64::from(nodes * (CORES * 1_000 - 500) / APPS / size(app));
    i32::try_from(peak * u64::from(percent) / 100).unwrap_or(i32::MAX)
}

fn pool() -> String {
    let cores = format!("{{key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: [\"{}\"]}}", CORES + 1);
    let requirements = [
        "{key: kubernetes.io/arch, operator: In, values: [amd64]}",
        "{key: kubernetes.io/os, operator: In, values: [linux]}",
        "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}",
        "{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"4\"]}",
        &cores,
    ];
    manifests::pool(&requirements, "{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 60s, budgets: [{nodes: 10%}]}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noon_and_night_of_a_small_cluster_keep_the_invariants_and_pods_their_peace() {
        let day = day(3, (720..726).chain(1_380..1_392), false).unwrap();
        assert_eq!(day.violations, Vec::<String>::new());
        assert!(day.disrupted.commands > 0 && day.nodes_peak > 1, "{day:?}");
        assert!(day.most_moved.len() <= MOVES_MAX, "{day:?}");
        assert!(day.verdict_age <= verdicts::SECONDS_MAX, "{day:?}");
        assert!(day.disrupted.rate_nanos() > 0, "what was done saved money: {day:?}");
    }

    #[test]
    fn histories_pass_on_to_successors_and_fade() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let pods = |name: &str, node: &str, created: i64| {
            BTreeMap::from([(name.to_owned(), Seen { app: "web".to_owned(), node: node.to_owned(), created: at(created) })])
        };
        let mut moves = Moves::default();
        let gone: BTreeSet<String> = ["n1".to_owned(), "n2".to_owned(), "n4".to_owned()].into();
        moves.note(at(0), pods("a", "n1", 0), &gone);
        moves.note(at(1), pods("b", "n2", 1), &gone);
        assert_eq!(moves.most.len(), 1);
        moves.note(at(2), pods("c", "n3", 2), &gone);
        assert_eq!(moves.most.len(), 2, "b took a's place and had to go too");
        moves.note(at(3), pods("d", "n4", 3), &gone);
        assert_eq!(moves.most.len(), 2, "n3 was not disrupted");
        moves.note(at(4), BTreeMap::new(), &gone);
        moves.note(at(6), pods("e", "n1", 6), &gone);
        moves.note(at(7), pods("f", "n2", 6), &gone);
        moves.note(at(8), pods("g", "n2", 8), &gone);
        assert_eq!(moves.most.len(), 2, "e came minutes after d had gone, and f was there before e went");
    }
}
