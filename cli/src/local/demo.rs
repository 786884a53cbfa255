//! `whittle demo`: the getting-started walkthrough in a simulated region, in a minute.

use super::report;
use super::session::{Place, Session, SessionError};
use crate::printing::{self, say};
use jiff::SignedDuration;
use std::process::ExitCode;
use whittle_sim::World;
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
        let cost = self.printed_lines.checked_sub(1).and_then(|last| lines.get(last)).map_or(Price::ZERO, |line| line.cost);
        say!("{}", report::timeline(&lines[self.printed_lines..], begun, cost, printing::paints()));
        self.printed_lines = lines.len();
    }
}

fn ours(world: &World) -> usize {
    world.region.machines.values().filter(|machine| machine.instance.is_alive()).count()
}

fn walkthrough() -> Result<bool, SessionError> {
    say!("Whittle in a simulated region: every function of it runs here, unchanged; the cluster, EC2 and the clock are made up.\n");
    let mut narrator = Narrator { session: Session::new(&Place::default()), printed_lines: 0, fine: true };
    narrator.chapter("A cluster without a single node gets a NodePool, and a Deployment of five pods");
    narrator.session.apply_text("demo/pool.yaml", POOL)?;
    narrator.session.apply_text("demo/inflate.yaml", INFLATE)?;
    narrator.session.advance(SignedDuration::from_secs(5));
    narrator.session.log("kubectl scale deployment inflate --replicas 5");
    narrator.session.scale("inflate", 5)?;
    narrator.until("all five pods running", 5, |world| world.cluster.pod_counts(|_| true).0 == 5);

    narrator.chapter("EC2 announces that it takes a spot machine back: the replacement comes first");
    let node = narrator.session.simulation.world().cluster.objects.nodes.keys().next().cloned();
    if let Some(node) = node {
        let id = narrator.session.interrupt(&node)?;
        narrator.session.log(&format!("spot interruption of {node} ({id}), two minutes from now"));
        narrator.until("all pods on another node", 8, |world| {
            !world.cluster.objects.nodes.contains_key(&node) && world.cluster.pod_counts(|_| true).0 == 5
        });
    }

    narrator.chapter("The pods go, and the empty node after them");
    narrator.session.log("kubectl scale deployment inflate --replicas 0");
    narrator.session.scale("inflate", 0)?;
    narrator.until("the end of all machines", 8, |world| ours(world) == 0 && world.cluster.objects.nodes.is_empty());
    narrator.until("rest", 5, |world| world.is_quiet() && world.verdict().is_empty());
    let world = narrator.session.simulation.world();
    let verdict = world.verdict();
    say!("\n{} machines started, {} running, {} invocations.\n", world.region.started(), ours(&world), world.counts.invocations);
    for broken in &verdict {
        say!("!! {broken}\n");
    }
    drop(world);
    say!("Go on with `whittle local` (a prompt) or `whittle local run tests/scenarios/*.yaml`.\n");
    Ok(narrator.fine && verdict.is_empty())
}
