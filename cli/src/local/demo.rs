//! `whittle demo`: the getting-started walkthrough in a simulated region, in a minute.

use super::report;
use super::session::{Place, Session, SessionError};
use crate::money::counted;
use crate::printing::{self, say};
use crate::savings::ledger_of;
use jiff::{SignedDuration, Timestamp};
use std::process::ExitCode;
use whittle_disruption::savings;
use whittle_sim::region::Machine;
use whittle_sim::{Line, LineKind, World};
use whittle_units::Price;

const POOL: &str = include_str!("demo/pool.yaml");
const INFLATE: &str = include_str!("demo/inflate.yaml");

/// Plays the walkthrough. Exit status 1 if it fails.
pub fn main() -> ExitCode {
    match walkthrough() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            printing::errors(&error);
            ExitCode::from(2)
        }
    }
}

struct Narrator {
    session: Session,
    printed_lines: usize,
    /// The cost per hour that was told last.
    cost: Price,
    fine: bool,
}

impl Narrator {
    fn chapter(&mut self, title: &str) {
        say!("\n── {title}\n");
    }

    /// Runs until a condition holds, and prints the new lines of the timeline.
    fn until(&mut self, what: &str, minutes: i64, holds: impl FnMut(&World) -> bool) {
        let limit = self.session.now().checked_add(SignedDuration::from_mins(minutes)).unwrap_or_else(|_| self.session.now());
        let held = self.session.simulation.run_while_not(limit, holds);
        self.print();
        if !held {
            self.fine = false;
            say!("!! {what} did not happen within {minutes} minutes\n");
        }
    }

    fn print(&mut self) {
        let world = self.session.simulation.world();
        let lines = world.story.lines();
        let begun = lines.first().map_or(world.now(), |line| line.at);
        let told: Vec<Line> = lines[self.printed_lines..].iter().filter(|line| is_told(line)).cloned().collect();
        say!("{}", report::timeline(&told, begun, self.cost, printing::paints()));
        self.cost = told.last().map_or(self.cost, |line| line.cost);
        self.printed_lines = lines.len();
    }
}

/// Whether a line is part of the story: what the user does, what Whittle decides, what EC2 and the cluster make of it. That a decision is
/// carried out, Whittle records as well: it is told where it happens.
fn is_told(line: &Line) -> bool {
    match line.kind {
        LineKind::Step | LineKind::Cluster | LineKind::Cloud | LineKind::Fault => true,
        LineKind::Decision => match line.text.split_once(": ") {
            Some((subject, message)) if subject.starts_with("nodeclaim/") => message.starts_with("for "),
            Some((subject, message)) if subject.starts_with("node/") => message.starts_with("all drainable pods"),
            Some((subject, _)) => subject.starts_with("command/"),
            None => false,
        },
        // Of the Events of one thing, that of the Node.
        LineKind::Event => line.text.starts_with("node ") && line.text.contains("TerminatingOnInterruption"),
    }
}

/// What was bought, what it cost, and what consolidation saved.
fn sum(world: &World, begun: Timestamp) -> String {
    let now = world.now();
    let mut machines: Vec<&Machine> = world.region.machines.values().collect();
    machines.sort_by_key(|machine| machine.instance.launched_at);
    let bought = |machine: &&Machine| {
        let instance = &machine.instance;
        format!("{} {} at {}", instance.capacity_type, instance.instance_type, machine.price)
    };
    let bought: Vec<String> = machines.iter().map(bought).collect();
    let most = world.story.lines().iter().map(|line| line.cost).max().unwrap_or_default();
    let cost = |machine: &&Machine| {
        let until = machine.ended_at.unwrap_or(now);
        machine.price.dollars() * until.duration_since(machine.instance.launched_at).as_secs_f64() / 3600.0
    };
    let paid: f64 = machines.iter().map(cost).sum();
    let saved = savings(&ledger_of(world.store.decisions(&world.name())), Timestamp::MIN, Timestamp::MAX);
    let rate = Price::from_nanos(u64::try_from(saved.rate_nanos()).unwrap_or(0));
    format!(
        "In {}: {} bought ({}), at most {most} at once and ${paid:.4} in all; consolidation removed {} and saves {rate}; \
         {} left, after {} of Whittle's functions.",
        report::clock(begun, now),
        counted(machines.len(), "machine"),
        bought.join(", "),
        counted(saved.nodes_removed, "node"),
        ours(world),
        counted(usize::try_from(world.counts.invocations).unwrap_or(usize::MAX), "run"),
    )
}

fn ours(world: &World) -> usize {
    world.region.machines.values().filter(|machine| machine.instance.is_alive()).count()
}

fn walkthrough() -> Result<bool, SessionError> {
    say!(
        "Whittle in a simulated region: every function of it runs here, unchanged; the cluster, EC2 and the clock are made up. In brackets: what all machines cost from then on.\n"
    );
    let mut narrator = Narrator { session: Session::new(&Place::default()), printed_lines: 0, cost: Price::ZERO, fine: true };
    narrator.chapter("A cluster without a single node gets a NodePool, and a Deployment of five pods");
    narrator.session.apply_text("demo/pool.yaml", POOL)?;
    narrator.session.apply_text("demo/inflate.yaml", INFLATE)?;
    narrator.session.advance(SignedDuration::from_secs(5));
    narrator.session.log("kubectl scale deployment inflate --replicas 5");
    narrator.session.scale("inflate", 5)?;
    narrator.until("all five pods running", 5, |world| world.cluster.pod_counts(|_| true).running == 5);

    narrator.chapter("EC2 announces that it takes a spot machine back: the replacement comes first");
    let node = narrator.session.simulation.world().cluster.objects.nodes.keys().next().cloned();
    if let Some(node) = node {
        let id = narrator.session.interrupt(&node)?;
        narrator.session.log(&format!("spot interruption of {node} ({id}), two minutes from now"));
        narrator.until("all pods on another node", 8, |world| {
            !world.cluster.objects.nodes.contains_key(&node) && world.cluster.pod_counts(|_| true).running == 5
        });
    }

    narrator.chapter("The pods go, and the empty node after them");
    narrator.session.log("kubectl scale deployment inflate --replicas 0");
    narrator.session.scale("inflate", 0)?;
    narrator.until("the end of all machines", 8, |world| ours(world) == 0 && world.cluster.objects.nodes.is_empty());
    narrator.until("rest", 5, |world| world.is_quiet() && world.verdict().is_empty());
    let world = narrator.session.simulation.world();
    let verdict = world.verdict();
    let begun = world.story.lines().first().map_or(world.now(), |line| line.at);
    say!("\n{}\n", sum(&world, begun));
    for broken in &verdict {
        say!("!! {broken}\n");
    }
    drop(world);
    say!("Go on with `whittle local` (a prompt) or `whittle local run tests/scenarios/*.yaml`.\n");
    Ok(narrator.fine && verdict.is_empty())
}
