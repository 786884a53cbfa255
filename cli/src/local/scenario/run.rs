//! Plays a scenario.

mod environment;

use super::conditions::Condition;
use super::{Scenario, Step, Target};
use crate::local::session::{Place, Session, SessionError};
use crate::local::wiring::Handlers;
use crate::savings::ledger_of;
use crate::source::files;
use jiff::SignedDuration;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::labels;
use whittle_api::manifest::{self, Object};
use whittle_disruption::LedgerEntry;
use whittle_sim::{Faults, Function, Functions, Line, Mutant, World};
use whittle_units::Timestamp;

/// How long a world may take to become quiescent before the invariants are checked.
const SETTLE: SignedDuration = SignedDuration::from_mins(30);

/// How much longer a wait may take with injected faults: a lost doorbell costs a tick, a claim whose machine never
/// joins its registration timeout.
const FAULT_ALLOWANCE: SignedDuration = SignedDuration::from_mins(35);

/// How long a quiescent world is observed: every schedule fires, and most functions run.
const QUIESCENT_TIME: SignedDuration = SignedDuration::from_secs(65);

/// Time within which every message of a crashed invocation is redelivered, except those of the slow functions that ticks call.
const REDELIVERED: SignedDuration = SignedDuration::from_secs(200);

/// The outcome of a scenario.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub name: String,
    pub shows: Vec<String>,
    pub seed: u64,
    /// The region, on which the currency of prices depends.
    pub region: String,
    /// Failed expectations and violated invariants; empty on success.
    pub failures: Vec<String>,
    pub lines: Vec<Line>,
    /// The cost effects of executed disruptions; `whittle savings` sums them.
    pub ledger: Vec<LedgerEntry>,
    pub summary: Summary,
    /// The machines that EC2 still knows at the end: it forgets them an hour after their end.
    pub machines: Vec<MachineSpan>,
    /// The function at each await point, in order; only for lenient plays.
    #[serde(skip)]
    pub gates: Vec<Function>,
}

/// How long a machine ran.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpan {
    pub instance_id: String,
    pub instance_type: String,
    pub capacity_type: String,
    pub zone: String,
    /// Seconds since the first moment.
    pub from_seconds: i64,
    /// The last moment, if it still runs.
    pub to_seconds: i64,
}

/// Statistics of a run.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Virtual time from the first to the last moment, in seconds.
    pub virtual_seconds: i64,
    /// The last moment.
    pub ended_at: Timestamp,
    pub machines_started: usize,
    pub machines_running: usize,
    pub pods_running: usize,
    pub pods_pending: usize,
    pub invocations: u64,
    pub await_points: u64,
    pub faults: u64,
    /// The maximum number of doorbells for one subject within a minute, and of runs of one function in a chain of calls.
    pub busiest: u64,
    pub longest_chain: u64,
}

/// How a scenario is played.
#[derive(Clone, Debug)]
pub struct Play {
    pub seed: u64,
    /// Faults that are injected until the last step is done.
    pub faults: Faults,
    /// Only waits and invariants count, and waits may take much longer: faults cost time.
    pub lenient: bool,
    /// How long random events continue after the last step, with faults.
    pub span: Option<SignedDuration>,
    /// A safeguard that is switched off, to test the checkers.
    pub mutant: Option<Mutant>,
}

impl Play {
    /// A play with faults, of which only waits and invariants count.
    pub fn lenient(seed: u64, faults: Faults) -> Self {
        Self { seed, faults, lenient: true, span: None, mutant: None }
    }
}

/// Plays a scenario in a fresh world, without faults. `seed` overrides the file's own.
///
/// # Errors
/// An impossible step; failed expectations are no error but part of the outcome.
pub fn run(scenario: &Scenario, seed: Option<u64>) -> Result<Outcome, SessionError> {
    let seed = seed.unwrap_or(scenario.seed);
    play(scenario, &Play { seed, faults: Faults::default(), lenient: false, span: None, mutant: None })
}

/// Plays a scenario in a fresh world.
///
/// # Errors
/// As [`run`].
pub fn play(scenario: &Scenario, play: &Play) -> Result<Outcome, SessionError> {
    play_with(scenario, play, |handlers| handlers)
}

/// Plays a scenario with functions that `wrap` makes of the usual ones.
///
/// # Errors
/// As [`run`].
pub fn play_with(
    scenario: &Scenario,
    play: &Play,
    wrap: impl FnOnce(Arc<Handlers>) -> Arc<dyn Functions>,
) -> Result<Outcome, SessionError> {
    Mutant::switch(play.mutant);
    let mut player = Player::new(scenario, play, wrap)?;
    // A region with few types lacks some that a scenario may name.
    if !play.lenient {
        for step in &scenario.steps {
            player.check_known(&step.value, step.referenced.line())?;
        }
    }
    for step in &scenario.steps {
        let line = step.referenced.line();
        let is_expectation = matches!(step.value, Step::Expect(_) | Step::Stays(_) | Step::Always(_));
        if play.lenient && is_expectation {
            continue;
        }
        if let Err(failure) = player.step(&step.value)? {
            player.failures.push(format!("line {line}: {failure}"));
            break;
        }
    }
    if let Some(span) = play.span {
        player.play_random_events(span)?;
    }
    Ok(player.finish(scenario, play.seed))
}

/// A scenario being played; also used by the fault commands.
pub(crate) struct Player<'a> {
    scenario: &'a Scenario,
    lenient: bool,
    pub(crate) session: Session,
    begun: Timestamp,
    always: Vec<Condition>,
    broken: BTreeSet<String>,
    /// Await points reached until the world was quiescent.
    await_points: u64,
    pub(crate) failures: Vec<String>,
}

/// The result of a step: a failed expectation, or an error.
pub(super) type Played = Result<Result<(), String>, SessionError>;

impl<'a> Player<'a> {
    /// The initial world of the scenario.
    pub(crate) fn new(
        scenario: &'a Scenario,
        play: &Play,
        wrap: impl FnOnce(Arc<Handlers>) -> Arc<dyn Functions>,
    ) -> Result<Self, SessionError> {
        let mut place = Place { seed: play.seed, ..Place::default() };
        for file in &scenario.setup {
            if let Some(config) = cluster_config(&scenario.file(file), scenario)? {
                place.describe(&config);
            }
        }
        let spec = &scenario.cluster;
        for (field, given) in
            [(&mut place.cluster, &spec.name), (&mut place.region, &spec.region), (&mut place.kubernetes_version, &spec.version)]
        {
            if let Some(given) = given {
                field.clone_from(given);
            }
        }
        let session = Session::with_functions(&place, wrap);
        let begun = session.now();
        {
            let mut world = session.simulation.world();
            world.faults = play.faults.clone();
            if let Some(mutant) = play.mutant {
                world.mutate(mutant);
            }
            if play.lenient {
                world.region.make_lean();
                world.gates = Some(Vec::new());
            }
        }
        let mut player = Self {
            lenient: play.lenient,
            scenario,
            session,
            begun,
            always: Vec::new(),
            broken: BTreeSet::new(),
            await_points: 0,
            failures: Vec::new(),
        };
        for file in &scenario.setup {
            player.session.apply_file(&scenario.file(file))?;
        }
        player.run_for(SignedDuration::from_secs(10));
        Ok(player)
    }

    /// Plays one step.
    pub(crate) fn step(&mut self, step: &Step) -> Played {
        match step {
            Step::Say(text) => self.session.log(text),
            Step::Apply(files) => {
                for file in files {
                    self.session.log(&format!("apply {file}"));
                    self.session.apply_file(&self.scenario.file(file))?;
                }
            }
            Step::ApplyText(text) => {
                self.session.apply_text("apply-text", text)?;
            }
            Step::ApplyEdited(edited) => self.apply_edited(&edited.file, &edited.replace)?,
            Step::Delete(objects) => {
                for object in objects {
                    self.session.log(&format!("delete {object}"));
                    let (kind, name) = object.split_once('/').unwrap_or(("deployment", object));
                    self.session.delete(kind, name)?;
                }
            }
            Step::DeleteInForeground(objects) => {
                for object in objects {
                    self.session.log(&format!("delete {object}, after what it owns"));
                    let (kind, name) = object.split_once('/').unwrap_or(("nodepool", object));
                    self.session.delete_in_foreground(kind, name)?;
                }
            }
            Step::DeleteFiles(files) => {
                for file in files {
                    self.session.log(&format!("delete {file}"));
                    self.session.delete_file(&self.scenario.file(file))?;
                }
            }
            Step::DeleteFirst(target) => {
                let nodes = self.nodes(target);
                let Some(node) = nodes.first() else { return Ok(Err("there is no such node to delete".to_owned())) };
                self.session.log(&format!("delete node/{node}"));
                self.session.delete("node", node)?;
            }
            Step::DeleteFirstClaim(target) => return self.delete_claim(target, false),
            Step::DeleteNewestClaim(target) => return self.delete_claim(target, true),
            Step::Scale(scale) => {
                self.session.log(&format!("scale {} to {}", scale.deployment, scale.replicas));
                self.session.scale(&scale.deployment, scale.replicas)?;
            }
            Step::Resize(resize) => {
                self.session.log(&format!("node group {} to {}/{}/{}", resize.group, resize.min, resize.desired, resize.max));
                let mut world = self.session.simulation.world();
                world.cluster.resize(&resize.group, resize.min, resize.max, resize.desired)?;
                world.touch_cluster();
            }
            Step::Advance(span) => {
                self.session.log(&format!("{span} pass"));
                self.run_for(span.span());
            }
            Step::Wait(wait) => return Ok(self.wait(&wait.until, wait.within.span())),
            Step::Expect(state) => return Ok(self.expect(state)),
            Step::Stays(stays) => return Ok(self.stays(&stays.state, stays.span.span())),
            Step::Always(state) => self.always.push(state.clone()),
            other => return self.change_environment(other),
        }
        Ok(Ok(()))
    }

    /// Refuses a step with an unknown instance type or zone.
    fn check_known(&self, step: &Step, line: u64) -> Result<(), SessionError> {
        let any = super::any();
        let (instance_type, zone) = match step {
            Step::StockOut(stock) | Step::Restock(stock) => (&stock.instance_type, &stock.zone),
            Step::Reserve(wanted) => (&wanted.instance_type, &wanted.zone),
            Step::ZonalShift(shift) => (&any, &shift.zone),
            _ => return Ok(()),
        };
        let world = self.session.simulation.world();
        let region = &world.region;
        let known = |name: &str, all: bool| name == "*" || all;
        let refused = |what: &str, name: &str| {
            SessionError::Refused(format!(
                "{}: line {line}: there is no {what} {name:?} in {}: name one that EC2 has there, or \"*\" for all",
                self.scenario.name,
                region.name()
            ))
        };
        if !known(instance_type, region.catalog.offered.contains_key(instance_type)) {
            return Err(refused("instance type", instance_type));
        }
        if !known(zone, region.catalog.zones.iter().any(|known| known.name == *zone)) {
            return Err(refused("zone", zone));
        }
        Ok(())
    }

    fn apply_edited(&mut self, file: &str, replace: &std::collections::BTreeMap<String, String>) -> Result<(), SessionError> {
        let path = self.scenario.file(file);
        let mut text = files::text(&path)?;
        for (old, new) in replace {
            if !text.contains(old.as_str()) {
                return Err(SessionError::Refused(format!("{} does not contain {old:?}", files::shown(&path))));
            }
            text = text.replace(old.as_str(), new);
        }
        self.session.log(&format!("apply {file}, changed"));
        self.session.apply_text(&files::shown(&path), &text)?;
        Ok(())
    }

    fn delete_claim(&mut self, target: &Target, newest: bool) -> Played {
        let name = {
            let world = self.session.simulation.world();
            let of = |claim: &&NodeClaim| {
                let pool = target.pool.as_ref().is_none_or(|pool| claim.metadata.label(labels::NODE_POOL) == Some(pool));
                pool && !claim.metadata.is_deleting()
            };
            let mut claims: Vec<&NodeClaim> = world.cluster.objects.node_claims.values().filter(of).collect();
            claims.sort_by_key(|claim| (claim.metadata.creation_timestamp, claim.metadata.name.clone()));
            let chosen = if newest { claims.last() } else { claims.first() };
            chosen.map(|claim| claim.metadata.name.clone())
        };
        // With random faults there may be none at this moment.
        let Some(name) = name else { return Ok(if self.lenient { Ok(()) } else { Err("there is no such NodeClaim".to_owned()) }) };
        self.session.log(&format!("delete nodeclaim/{name}"));
        self.session.delete("nodeclaim", &name)?;
        Ok(Ok(()))
    }

    fn nodes(&self, target: &Target) -> Vec<String> {
        let world = self.session.simulation.world();
        let claims = || world.cluster.objects.node_claims.values();
        let is_adopted = |node: &Node| {
            claims().any(|claim| claim.status.provider_id == node.spec.provider_id && claim.metadata.name.starts_with("karpenter-"))
        };
        let of = |node: &&Node| {
            let pool = target.pool.as_ref().is_none_or(|pool| node.metadata.label(labels::NODE_POOL) == Some(pool));
            let converted = node.metadata.label(labels::PROVISIONER_NAME).is_some();
            let converted = target.converted.is_none_or(|wanted| wanted == converted);
            let adopted = target.adopted.is_none_or(|wanted| wanted == is_adopted(node));
            pool && converted && adopted && target.node.as_ref().is_none_or(|name| node.metadata.name == *name)
        };
        world.cluster.objects.nodes.values().filter(of).map(|node| node.metadata.name.clone()).collect()
    }

    /// Runs until a time, checking the `always` conditions after every event.
    fn run_until(&mut self, limit: Timestamp, mut done: impl FnMut(&World) -> bool) -> bool {
        let (always, broken) = (&self.always, &mut self.broken);
        self.session.simulation.run_while_not(limit, |world| {
            for state in always {
                broken.extend(state.faults(world));
            }
            done(world)
        })
    }

    pub(super) fn run_for(&mut self, span: SignedDuration) {
        let limit = self.session.now().checked_add(span).unwrap_or(Timestamp::MAX);
        self.run_until(limit, |_| false);
    }

    fn wait(&mut self, state: &Condition, within: SignedDuration) -> Result<(), String> {
        let within = if self.lenient { within.checked_add(FAULT_ALLOWANCE).unwrap_or(within) } else { within };
        let limit = self.session.now().checked_add(within).unwrap_or(Timestamp::MAX);
        if self.run_until(limit, |world| state.faults(world).is_empty()) {
            return Ok(());
        }
        Err(format!("not within {within:#}: {}", state.faults(&self.session.simulation.world()).join("; ")))
    }

    fn expect(&mut self, state: &Condition) -> Result<(), String> {
        let faults = state.faults(&self.session.simulation.world());
        if faults.is_empty() { Ok(()) } else { Err(format!("expected otherwise: {}", faults.join("; "))) }
    }

    fn stays(&mut self, state: &Condition, span: SignedDuration) -> Result<(), String> {
        let limit = self.session.now().checked_add(span).unwrap_or(Timestamp::MAX);
        let mut faults = Vec::new();
        self.run_until(limit, |world| {
            faults = state.faults(world);
            !faults.is_empty()
        });
        if faults.is_empty() { Ok(()) } else { Err(format!("did not stay so for {span:#}: {}", faults.join("; "))) }
    }

    /// Lets the world become quiescent, then checks all invariants. The crash of one invocation may still happen: while
    /// nothing is left to do, functions run too.
    pub(crate) fn settle(&mut self) {
        let crash_at_gate = self.session.simulation.world().faults.crash_at_gate;
        self.session.simulation.world().faults = Faults { crash_at_gate, ..Faults::default() };
        if self.lenient {
            self.run_for(QUIESCENT_TIME);
        }
        self.await_points = self.session.simulation.world().counts.gates;
        self.session.simulation.world().faults = Faults::default();
        let died_at = self.session.simulation.world().died_at;
        if let Some(by) = died_at.and_then(|at| at.checked_add(REDELIVERED).ok()).filter(|by| *by > self.session.now()) {
            self.run_until(by, |_| false);
        }
        let limit = self.session.now().checked_add(SETTLE).unwrap_or(Timestamp::MAX);
        self.run_until(limit, |world| world.is_quiet() && world.verdict().is_empty());
        let verdict = self.session.simulation.world().verdict();
        self.failures.extend(verdict.into_iter().map(|text| format!("invariant: {text}")));
        self.failures.extend(self.broken.iter().map(|text| format!("did not hold always: {text}")));
    }

    fn finish(mut self, scenario: &Scenario, seed: u64) -> Outcome {
        let lines = self.session.simulation.world().story.lines().len();
        self.settle();
        let begun = self.begun;
        let world = self.session.simulation.world();
        let pods = world.cluster.pod_counts(|_| true);
        let summary = Summary {
            virtual_seconds: world.now().duration_since(begun).as_secs(),
            ended_at: world.now(),
            machines_started: world.region.started(),
            machines_running: world.region.machines.values().filter(|machine| machine.instance.is_alive()).count(),
            pods_running: pods.running,
            pods_pending: pods.starting + pods.pending,
            invocations: world.counts.invocations,
            await_points: self.await_points,
            faults: world.counts.faults,
            busiest: world.counts.busiest,
            longest_chain: world.counts.longest_chain,
        };
        let gates = world.gates.clone().unwrap_or_default();
        let region = world.region.name().to_string();
        let all_lines = world.story.lines();
        // Lines from settling are only included in case of failures.
        let lines = if self.failures.is_empty() { &all_lines[..lines] } else { all_lines }.to_vec();
        let ledger = ledger_of(world.store.decisions(&world.name()));
        let (name, shows, failures) = (scenario.name.clone(), scenario.shows.clone(), self.failures.clone());
        let machines = machine_spans(&world, begun);
        Outcome { name, shows, seed, region, failures, lines, ledger, summary, machines, gates }
    }
}

/// The machines that EC2 knows, in the order of their launch.
fn machine_spans(world: &World, begun: Timestamp) -> Vec<MachineSpan> {
    let since = |at: Timestamp| at.duration_since(begun).as_secs();
    let mut spans: Vec<MachineSpan> = world
        .region
        .machines
        .values()
        .map(|machine| MachineSpan {
            instance_id: machine.instance.id.to_string(),
            instance_type: machine.instance.instance_type.clone(),
            capacity_type: machine.instance.capacity_type.to_string(),
            zone: machine.instance.zone.clone(),
            from_seconds: since(machine.instance.launched_at),
            to_seconds: since(machine.ended_at.unwrap_or(world.now())),
        })
        .collect();
    spans.sort_by(|one, other| (one.from_seconds, &one.instance_id).cmp(&(other.from_seconds, &other.instance_id)));
    spans
}

/// The cluster that an eksctl file describes, with the scenario's names in its variables.
fn cluster_config(path: &Path, scenario: &Scenario) -> Result<Option<whittle_api::manifest::ClusterConfig>, SessionError> {
    let text = files::text(path)?;
    let name = scenario.cluster.name.clone().unwrap_or_default();
    let region = scenario.cluster.region.clone().unwrap_or_default();
    let text = text.replace("${CLUSTER_NAME}", &name).replace("${AWS_DEFAULT_REGION}", &region);
    let shown = files::shown(path);
    let objects =
        manifest::read(&shown, &text).map_err(|errors| SessionError::Manifest(errors.iter().map(ToString::to_string).collect()))?;
    Ok(objects.into_iter().find_map(|located| match located.value {
        Object::ClusterConfig(config) => Some(*config),
        _ => None,
    }))
}
