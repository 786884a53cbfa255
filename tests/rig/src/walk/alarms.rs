//! Each alarm of the template goes off for a cause of its own, and none while all is well.
//!
//! Causes, functions, queues and what they print are real. CloudWatch is not: the alarms are read from the template that is deployed, and
//! evaluated here, all that is observed of a cause being one period, and every period being like it. So no cause has to last for ten
//! minutes; how long each has to, and how often functions are called meanwhile, is tried in the simulator (`tests/it/alarms.rs`).

mod causes;
mod observed;

use super::outside::Outside;
use super::{BOUND_MAX, POOL};
use crate::deploy::STACK;
use crate::emulator::Emulator;
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use observed::Observed;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use whittle_alarms::{Alarm, Names, Point};

/// Makes every alarm go off on a rig that checks access and has the stack's parameter Alarms=full; the cluster must be empty of pods.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Alarms {
    /// The folder of the rig
    #[arg(long)]
    folder: PathBuf,
    /// The template as SAM transforms it, in JSON
    #[arg(long)]
    template: PathBuf,
}

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// One period of those alarms that count what happens.
const PERIOD: Duration = Duration::from_secs(300);
/// From a cause until its alarms go off: EC2's refusals are repeated twice a minute.
const RAISED_MAX: Duration = Duration::from_secs(300);
/// It goes off for what does not happen, and so for every cause that lasts less than a period.
const SILENT: &str = "SweepSilentAlarm";

pub(crate) fn run(alarms: &Alarms) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let rig = Outside::of(&alarms.folder).await?;
        let text = std::fs::read_to_string(&alarms.template).with_context(|| format!("{} cannot be read", alarms.template.display()))?;
        let stage = Stage::of(&rig, &serde_json::from_str(&text)?).await?;
        rig.apply(&POOL.replace("CLUSTER", rig.cluster())).await?;
        rig.until("the class is ready", BOUND_MAX, async |rig| rig.is_class_ready().await).await?;
        stage.all_is_well().await?;
        causes::all(&stage).await?;
        let raised = stage.raised.borrow();
        let silent: Vec<&str> = stage.alarms.iter().map(|alarm| alarm.name.as_str()).filter(|name| !raised.contains(*name)).collect();
        ensure!(silent.is_empty(), "nothing made these go off: {}", silent.join(", "));
        println!("{} alarms, and each went off", raised.len());
        Ok(())
    })
}

/// A rig and the alarms of its stack.
struct Stage<'a> {
    rig: &'a Outside,
    emulator: Emulator,
    alarms: Vec<Alarm>,
    /// Physical names by logical ids.
    stack: BTreeMap<String, String>,
    /// The alarms that went off for a cause that is meant for them.
    raised: RefCell<BTreeSet<String>>,
    sent: Cell<u64>,
}

impl<'a> Stage<'a> {
    async fn of(rig: &'a Outside, template: &Value) -> Result<Self> {
        let emulator = rig.emulator();
        let stack = emulator.resources(STACK).await?;
        let names = Names { resources: stack.clone(), has_one_cluster: true, ..Names::of_template(template) };
        let alarms = Alarm::all(template, &names)?;
        // The emulator takes no alarms on expressions, so that the template leaves these out there.
        let has_expression = |alarm: &Alarm| template["Resources"][&alarm.name]["Properties"]["Metrics"].is_array();
        let missing: Vec<&str> = alarms
            .iter()
            .filter(|alarm| !stack.contains_key(&alarm.name) && !has_expression(alarm))
            .map(|alarm| alarm.name.as_str())
            .collect();
        ensure!(missing.is_empty(), "the stack lacks {}: deploy it with Alarms=full", missing.join(", "));
        Ok(Self { rig, emulator, alarms, stack, raised: RefCell::default(), sent: Cell::new(0) })
    }

    /// The name of a resource of the stack.
    fn physical(&self, logical: &str) -> Result<&str> {
        self.stack.get(logical).map(String::as_str).with_context(|| format!("the stack has no {logical}"))
    }

    fn alarm(&self, name: &str) -> Result<&Alarm> {
        self.alarms.iter().find(|alarm| alarm.name == name).with_context(|| format!("the template has no alarm {name}"))
    }

    /// The alarms that are on if what was observed went on, with their contributors.
    fn on(&self, points: &[Point]) -> BTreeMap<&str, BTreeSet<String>> {
        let on = self.alarms.iter().map(|alarm| (alarm.name.as_str(), alarm.breaches_if_it_goes_on(points)));
        on.filter(|(_, contributors)| !contributors.is_empty()).collect()
    }

    /// A pod gets its node and runs: a whole period, in which everything that is counted is counted.
    async fn all_is_well(&self) -> Result<()> {
        let begun = Instant::now();
        let mut observed = Observed::from_now_on(&self.emulator).await?;
        self.rig.scale("web", 1, &json!({})).await?;
        let mut interval = tokio::time::interval(LOOK_EVERY);
        while begun.elapsed() < PERIOD {
            interval.tick().await;
            observed.look(&self.emulator).await?;
        }
        ensure!(self.rig.bound().await?.len() == 1, "the pod is not bound after {} s", PERIOD.as_secs());
        let on = self.on(&observed.points);
        ensure!(on.is_empty(), "while all is well these go off: {on:?}");
        self.rig.say("no alarm goes off while all is well", begun.elapsed());
        Ok(())
    }

    /// Waits until alarms go off for a cause that is there; `again` is done at every look.
    async fn until_raised(&self, cause: &str, expected: &[String], again: impl AsyncFn() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let mut observed = Observed::from_now_on(&self.emulator).await?;
        let mut interval = tokio::time::interval(LOOK_EVERY);
        while begun.elapsed() < RAISED_MAX {
            interval.tick().await;
            again().await?;
            observed.look(&self.emulator).await?;
            let on = self.on(&observed.points);
            if expected.iter().all(|name| on.contains_key(name.as_str())) {
                self.note(cause, expected, &on, begun.elapsed());
                return Ok(());
            }
        }
        bail!("not within {} s because {cause}: {expected:?}; these are on: {:?}", RAISED_MAX.as_secs(), self.on(&observed.points))
    }

    /// Says what went off, and what else did.
    fn note(&self, cause: &str, expected: &[String], on: &BTreeMap<&str, BTreeSet<String>>, took: Duration) {
        for name in expected {
            let contributors: Vec<&str> =
                on.get(name.as_str()).into_iter().flatten().map(String::as_str).filter(|name| !name.is_empty()).collect();
            let named = if contributors.is_empty() { String::new() } else { format!(" ({})", contributors.join("; ")) };
            self.rig.say(&format!("{name}{named}: {cause}"), took);
        }
        let also = on.keys().filter(|name| **name != SILENT && !expected.iter().any(|one| one == *name));
        let also: Vec<&str> = also.copied().collect();
        if !also.is_empty() {
            println!("           and with it {}", also.join(", "));
        }
        self.raised.borrow_mut().extend(expected.iter().cloned());
    }
}
