//! `whittle sim day`: a day of a workload, planned by Whittle and with Karpenter's packing.
//!
//! Both runs have the same Deployments, scaled at the same times, and the same NodePool; they differ in how pods are
//! packed and which commands consolidation may find.

mod load;
mod moves;
mod replan;

pub use load::{CapacityType, Kind, Memory};
pub use moves::Move;

use super::verdicts;
use crate::local::session::{Place, Session, SessionError};
use crate::numbers;
use crate::printing::complain;
use crate::savings::ledger_of;
use crate::source::ObjectiveArg;
use clap::Args;
use jiff::Timestamp;
use load::APPS;
use moves::{Moves, OBSERVE_EVERY};
use replan::Replanned;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use whittle_api::objective::MACHINE_COST;
use whittle_disruption::{SavingsReport, savings};
use whittle_ports::{Scheduling, Settings};
use whittle_sim::World;
use whittle_units::Price;

/// `whittle sim day`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim day
  whittle sim day --nodes 50 --hours 8 --from 6

Exit code: 0 if every limit and invariant held, 1 if one did not or the output cannot be written, 2 if the input is invalid.")]
pub struct DayArgs {
    /// How the load goes
    #[arg(long, value_enum, default_value_t)]
    pub kind: Kind,
    /// The peak load, in machines of eight cores
    #[arg(long, default_value_t = 200, value_parser = numbers::within::<u32>(1..=100_000), allow_negative_numbers = true)]
    pub nodes: u32,
    /// How long; a day by default, or a week for growth
    #[arg(long, value_parser = numbers::within::<u32>(1..=10_000), allow_negative_numbers = true)]
    pub hours: Option<u32>,
    /// The hour to begin with, 0 for midnight
    #[arg(long, default_value_t = 0, value_parser = numbers::within::<u32>(0..=10_000), allow_negative_numbers = true)]
    pub from: u32,
    /// The memory requests of pods
    #[arg(long, value_enum, default_value_t)]
    pub memory: Memory,
    /// What may be bought
    #[arg(long, value_enum, default_value_t)]
    pub capacity_type: CapacityType,
    /// Cores of the largest machine that the pool buys, 0 for any
    #[arg(long, default_value_t = 8, value_parser = numbers::within::<u32>(0..=1_000), allow_negative_numbers = true)]
    pub cores: u32,
    /// Which plans Whittle takes for the best. Karpenter's are the cheapest that its packing finds
    #[arg(long, value_enum, default_value = "balanced")]
    pub objective: ObjectiveArg,
    /// Also print what a moment cost, each time before the load changes
    #[arg(long)]
    pub trace: bool,
}

/// The maximum number of moves of one pod by consolidation within an hour.
const MOVES_MAX: usize = 2;

/// From this number of machines on, a day takes minutes, and its progress is printed hourly.
const LARGE: u32 = 50;

/// The outcome of a day.
#[derive(Debug, Default)]
pub struct Day {
    /// Billionths of a dollar, summed minute by minute.
    pub nanos: u128,
    pub nodes_peak: usize,
    /// Machines that were there, summed minute by minute.
    pub machine_minutes: u128,
    pub machines_started: usize,
    /// Minutes that pods were pending, summed over pods.
    pub waiting_minutes: usize,
    pub disrupted: SavingsReport,
    /// The moves of the pod (with its replacements) that consolidation moved most often within an hour.
    pub most_moved: Vec<Move>,
    /// The age of the oldest verdict on a managed node at the worst minute, in seconds.
    pub verdict_age: i64,
    /// Violated invariants, as text.
    pub violations: Vec<String>,
    /// Moments before the load changed.
    pub samples: Vec<Sample>,
}

impl Day {
    /// Adds a minute of a world. Returns how many machines run.
    fn add_minute(&mut self, world: &World) -> usize {
        self.nanos += u128::from(world.cost().nanos()) / 60;
        let running = world.region.machines.values().filter(|machine| machine.instance.is_alive()).count();
        self.nodes_peak = self.nodes_peak.max(running);
        self.machine_minutes += running as u128;
        let pods = world.cluster.pod_counts(|_| true);
        self.waiting_minutes += pods.starting + pods.pending;
        self.verdict_age = self.verdict_age.max(verdicts::oldest(world));
        running
    }

    /// With the constant that each machine costs besides its price, under the objective `balanced`.
    fn with_machine_costs(&self) -> u128 {
        self.nanos + self.machine_minutes * u128::from(MACHINE_COST.nanos()) / 60
    }
}

/// The machines at the end of a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub minute: u32,
    /// Per hour.
    pub rate: Price,
    pub machines: usize,
}

/// Both days as a table, with the violations of ours.
///
/// # Errors
/// The manifests are refused.
pub fn run(args: &DayArgs) -> Result<(String, Vec<String>), SessionError> {
    let hours = args.hours.unwrap_or_else(|| args.kind.hours());
    let minutes = args.from * 60..(args.from + hours) * 60;
    // Concurrently: each has a world of its own.
    let (ours, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| day(args, minutes.clone(), true));
        (
            day(args, minutes.clone(), false),
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
        wrong.push("the day costs more than with Karpenter's packing".to_owned());
    }
    let moments: Vec<u32> = minutes.filter(|minute| minute % args.kind.step() == 0).collect();
    let replanned = moments.iter().map(|minute| Replanned::at(args, *minute)).collect::<Result<Vec<Replanned>, _>>()?;
    let mut out = if args.trace { trace((&ours, &theirs), &replanned) } else { String::new() };
    out.push_str(&table(&ours, &theirs));
    let sum = |of: fn(&Replanned) -> Price| {
        replanned.iter().map(|costs| u128::from(of(costs).nanos())).sum::<u128>() * u128::from(args.kind.step()) / 60
    };
    let _ = writeln!(
        out,
        "{:<44}{:>14.2}{:>14.2}",
        "dollars, replanned at every step",
        dollars(sum(|a| a.ours)),
        dollars(sum(|a| a.reference))
    );
    let _ = writeln!(out, "{:<44}{:>14.2}", "dollars, lower bound: no plan costs less", dollars(sum(|a| a.bound)));
    Ok((out, wrong))
}

/// Dollars per hour and machines at the end of each step of the load.
fn trace((ours, theirs): (&Day, &Day), replanned: &[Replanned]) -> String {
    let mut out = String::from("minute  whittle    replanned Karpenter    replanned     bound\n");
    for ((ours, theirs), costs) in ours.samples.iter().zip(&theirs.samples).zip(replanned) {
        let hourly = |price: Price| dollars(u128::from(price.nanos()));
        let _ = writeln!(
            out,
            "{:>6}  {:>7.2} {:>4} {:>7.2}   {:>7.2} {:>4} {:>7.2}   {:>7.2}",
            ours.minute,
            hourly(ours.rate),
            ours.machines,
            hourly(costs.ours),
            hourly(theirs.rate),
            theirs.machines,
            hourly(costs.reference),
            hourly(costs.bound)
        );
    }
    out.push('\n');
    out
}

fn table(ours: &Day, theirs: &Day) -> String {
    let mut out = format!("{:<44}{:>14}{:>14}\n", "", "whittle", "Karpenter");
    let mut row = |name: &str, value: &dyn Fn(&Day) -> String| {
        let _ = writeln!(out, "{name:<44}{:>14}{:>14}", value(ours), value(theirs));
    };
    row("dollars", &|day| format!("{:.2}", dollars(day.nanos)));
    row("dollars, with what machines cost besides", &|day| format!("{:.2}", dollars(day.with_machine_costs())));
    row("machines at the peak", &|day| day.nodes_peak.to_string());
    row("machines started", &|day| day.machines_started.to_string());
    row("minutes of pending pods", &|day| day.waiting_minutes.to_string());
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

/// Plays some minutes of a day. `reference`: with Karpenter's packing and choice of commands.
///
/// # Errors
/// The manifests are refused.
pub fn day(args: &DayArgs, minutes: impl Iterator<Item = u32>, reference: bool) -> Result<Day, SessionError> {
    let mut session = Session::new(&Place::default());
    let objective = args.objective.objective();
    let scheduling = Scheduling { reference_packing: reference, objective, ..Scheduling::default() };
    session.set(Settings { scheduling, ..session.settings() });
    session.apply_text("pool.yaml", &args.pool())?;
    for app in 0..APPS {
        session.apply_text("app.yaml", &args.deployment(app))?;
    }
    let mut day = Day::default();
    let mut moves = Moves::default();
    let (mut disrupted_nodes, mut read) = (BTreeSet::new(), 0);
    for minute in minutes {
        if minute % args.kind.step() == 0 {
            for app in 0..APPS {
                session.scale(&format!("app-{app}"), i32::try_from(args.replicas(app, minute)).unwrap_or(i32::MAX))?;
            }
        }
        for _ in 0..60 / OBSERVE_EVERY.as_secs() {
            session.advance(OBSERVE_EVERY);
            let world = session.simulation.world();
            if world.cluster.objects.workloads() == moves.seen {
                continue;
            }
            // Only new decisions are read: the log of a day is long.
            let decisions = world.store.decisions(&world.name());
            disrupted_nodes.extend(ledger_of(&decisions[read..]).into_iter().flat_map(|entry| entry.nodes));
            read = decisions.len();
            moves.observe(&world, &disrupted_nodes);
            // A day starts so many machines that some reuse the name of a terminated one.
            disrupted_nodes.retain(|name: &String| world.cluster.objects.nodes.contains_key(name));
        }
        let world = session.simulation.world();
        let running = day.add_minute(&world);
        if (minute + 1) % args.kind.step() == 0 {
            day.samples.push(Sample { minute: minute + 1, rate: world.cost(), machines: running });
        }
        if (minute + 1) % 60 == 0 && args.nodes >= LARGE {
            let who = if reference { "Karpenter" } else { "whittle" };
            complain!(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn args(kind: Kind, nodes: u32) -> DayArgs {
        DayArgs {
            kind,
            nodes,
            hours: None,
            from: 0,
            memory: Memory::Mixed,
            capacity_type: CapacityType::OnDemand,
            cores: 8,
            objective: ObjectiveArg::Balanced,
            trace: false,
        }
    }

    #[test]
    fn a_day_of_a_small_cluster_keeps_the_invariants_and_the_limit_of_moves() {
        let day = day(&args(Kind::Diurnal, 3), (720..726).chain(1_380..1_392), false).unwrap();
        assert_eq!(day.violations, Vec::<String>::new());
        assert!(day.disrupted.commands > 0 && day.nodes_peak > 1, "{day:?}");
        assert!(day.most_moved.len() <= MOVES_MAX, "{day:?}");
        assert!(day.verdict_age <= verdicts::SECONDS_MAX, "{day:?}");
        assert!(day.disrupted.rate_nanos() > 0, "what was done saved money: {day:?}");
    }

    #[test]
    fn a_day_of_batches_costs_at_least_the_lower_bound() {
        let args = args(Kind::Batch, 4);
        let day = day(&args, 0..40, false).unwrap();
        assert_eq!(day.violations, Vec::<String>::new());
        let wanted = |minute| (0..APPS).map(|app| args.replicas(app, minute)).sum::<u32>();
        assert!(wanted(20) * 4 <= wanted(0) && wanted(0) == wanted(60), "a fifth remains when a batch is done");
        let [full, low] = [0, 20].map(|minute| Replanned::at(&args, minute).unwrap());
        assert!(low.bound < full.bound && full.bound <= full.ours && full.ours <= full.reference, "{full:?} {low:?}");
        let last = day.samples.iter().find(|sample| sample.minute == 20).unwrap();
        assert!(last.rate >= full.bound, "{last:?} {full:?}");
    }
}
