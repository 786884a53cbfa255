//! One life: a class is resolved, its claims are launched, their machines end, and the class is deleted, while calls of an action fail.

use super::rows::{Ending, Error, Failure, Row, Since, started};
use crate::cases::{Case, Stage};
use std::collections::BTreeSet;
use whittle_api::{conditions, labels};
use whittle_claims::{Claim, DeletionReason, Phase, StockOut};
use whittle_fake_aws::NextError;
use whittle_ports::Clock;
use whittle_sim::Function;
use whittle_sim::region::PoolRefusal;
use whittle_tests::fake_aws::Reply;
use whittle_units::{ClaimName, SignedDuration};

/// Runs of a function in which all that is to fail has failed.
const RUNS_FAILING: usize = 2;
/// Rounds of `launch`, ten seconds apart, after which a claim hangs: its launch times out as well.
const LAUNCH_ROUNDS: usize = 30;
/// Minutes in which a class becomes ready again, with two dry runs that fail.
const RECOVERY_MINUTES: usize = 15;
/// Half minutes in which a node is registered and its machine named.
const JOIN_ROUNDS: usize = 10;
/// Minutes after which what is left stays.
const END_MINUTES: usize = 60;
/// How long EC2 does not show the machines of a fleet that told nothing.
const UNSEEN: SignedDuration = SignedDuration::from_secs(90);
/// Events for users.
const EVENTS: &[&str] = &["LaunchRefused", "QuotaExceeded"];

struct Life<'a> {
    stage: Stage,
    row: &'a Row,
    names: Vec<ClaimName>,
    /// Calls of the action before it began to fail.
    before: usize,
}

/// How the claims of a row end, or what is wrong.
pub(super) fn live_and_die(case: &Case, row: &Row) -> Result<Ending, String> {
    let mut life = Life { stage: Stage::new(case), row, names: Vec::new(), before: 0 };
    life.resolve_class();
    let ending = life.launch(case)?;
    if ending.given_up_for.contains(&DeletionReason::NodeClassNotReady) {
        life.recover()?;
    }
    if row.since == Since::Node {
        life.join()?;
    }
    if row.action == "DescribeInstanceStatus" {
        life.check();
    }
    life.die()?;
    if life.failures() == 0 {
        return Err("nothing meets the failure".to_owned());
    }
    Ok(ending)
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn is_launched(claim: &Claim) -> bool {
    matches!(claim.phase, Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. })
}

fn has_failed(claim: &Claim) -> bool {
    matches!(claim.phase, Phase::Failed { .. } | Phase::Gone { .. })
}

/// What kind of thing is used up.
fn kind(out: &StockOut) -> &'static str {
    let key = &out.offering;
    match () {
        () if key.subnet().or(key.subnet_prefixes()).is_some() => "subnets",
        () if key.quota().is_some() => "quotas",
        () if key.full_group().is_some() => "groups",
        () if key.reservation().is_some() => "reservations",
        () if key.instance_type == whittle_snapshot::EVERY => "capacity types",
        () => "pools",
    }
}

impl Life<'_> {
    fn pass(&mut self, span: SignedDuration) {
        self.stage.simulation.run_for(span);
    }

    /// From now on the action fails, if that is when it begins to.
    fn begin(&mut self, since: Since) {
        if self.row.since != since {
            return;
        }
        let (action, times) = (self.row.action, self.row.times);
        self.before = self.stage.aws.api.lock().unwrap().calls(action);
        match self.row.failure {
            Failure::Refused(Error { status, code, message }) => {
                let error = NextError { status, code: code.to_owned(), message: message.to_owned() };
                self.stage.aws.api.lock().unwrap().refusals.insert(action.to_owned(), vec![error; times]);
            }
            Failure::InAnswer(Error { code, message, .. }) => {
                let after = u32::try_from(started(self.row.asked)).unwrap();
                let of_all = PoolRefusal { code: code.to_owned(), message: message.to_owned(), after, ..PoolRefusal::default() };
                self.stage.simulation.world().region.supply.refusals = vec![of_all];
            }
            Failure::Reply(reply) => self.stage.aws.spoil(action, vec![reply; times]),
        }
        match since {
            Since::LostFleet => self.stage.aws.spoil("CreateFleet", vec![Reply::Lost]),
            Since::OpenFleet => {
                self.stage.aws.spoil("CreateFleet", vec![Reply::IdAlone; times + 1]);
                self.stage.simulation.world().region.supply.describe_lag = UNSEEN;
            }
            _ => {}
        }
    }

    /// How many calls have failed.
    fn failures(&self) -> usize {
        let (action, times) = (self.row.action, self.row.times);
        let api = self.stage.aws.api.lock().unwrap();
        match self.row.failure {
            Failure::Refused(_) => times - api.refusals.get(action).map_or(times, Vec::len),
            Failure::InAnswer(_) => (api.calls(action) - self.before).min(times),
            Failure::Reply(_) => times - self.stage.aws.replies_to_spoil(action),
        }
    }

    /// `refresh` resolves the class, and `launch` makes its dry run.
    fn resolve_class(&mut self) {
        if self.row.action == "GetManagedResource" {
            self.stage.settings.zonal_shift = true;
        }
        {
            let mut world = self.stage.simulation.world();
            let arn = world.region.cluster_arn(&world.name());
            if let Some(info) = &mut world.cluster.info {
                info.arn = arn;
            }
        }
        self.begin(Since::Class);
        let failing = |since| if self.row.since == since { RUNS_FAILING } else { 0 };
        let (refreshes, dry_runs) = (1 + failing(Since::Class), failing(Since::DryRun).max(1));
        for _ in 0..refreshes {
            let _ = self.stage.refresh();
            self.pass(seconds(60));
        }
        self.begin(Since::DryRun);
        for _ in 0..dry_runs {
            let _ = self.stage.launch(&[]);
            let _ = self.stage.refresh();
            self.pass(seconds(60));
        }
    }

    fn claims(&self) -> Vec<Claim> {
        self.names.iter().filter_map(|name| self.stage.claim(name)).collect()
    }

    /// Claims are planned, and `launch` has them until each has a machine or is given up.
    fn launch(&mut self, case: &Case) -> Result<Ending, String> {
        for since in [Since::Launch, Since::LostFleet, Since::OpenFleet] {
            self.begin(since);
        }
        let planned: Vec<Claim> = (0..self.row.asked.claims()).map(|number| case.planned(number, self.stage.ports.now())).collect();
        self.names = planned.iter().map(|claim| claim.key.name.clone()).collect();
        self.stage.store(&planned);
        let mut ending = Ending::default();
        for _ in 0..LAUNCH_ROUNDS {
            let _ = self.stage.launch(&[]);
            self.observe(&mut ending);
            if self.claims().iter().all(|claim| is_launched(claim) || has_failed(claim)) {
                break;
            }
            if matches!(self.row.failure, Failure::InAnswer(_)) && self.failures() == self.row.times {
                self.stage.simulation.world().region.supply.refusals.clear();
            }
            self.pass(seconds(10));
        }
        self.stage.simulation.world().region.supply.refusals.clear();
        self.count(&mut ending)?;
        Ok(ending)
    }

    /// What shows while claims wait.
    fn observe(&self, ending: &mut Ending) {
        for claim in self.claims().iter().filter(|claim| !is_launched(claim) && !has_failed(claim)) {
            let launched = conditions::find(&claim.conditions, conditions::LAUNCHED);
            ending.waited_for.extend(launched.map(|condition| condition.reason.clone()));
        }
        ending.unavailable.extend(self.stage.stock_outs().iter().map(kind));
        let world = self.stage.simulation.world();
        ending.replanned |= world.queues.waiting().any(|message| message.function == Function::Schedule);
        let reasons = world.cluster.events.iter().map(|kept| kept.event.reason.as_str());
        ending.events.extend(reasons.filter(|reason| EVENTS.contains(reason)).map(str::to_owned));
    }

    fn count(&self, ending: &mut Ending) -> Result<(), String> {
        let claims = self.claims();
        let (launched, failed): (Vec<_>, Vec<_>) = claims.iter().partition(|claim| is_launched(claim));
        if let Some(claim) = failed.iter().find(|claim| !has_failed(claim)) {
            return Err(format!("a claim hangs: {:?}, {:?}", claim.phase, claim.conditions));
        }
        let machines: BTreeSet<_> = launched.iter().filter_map(|claim| claim.machine()).map(|machine| &machine.instance_id).collect();
        let running = self.running();
        if machines.len() != launched.len() || running != launched.len() {
            return Err(format!("{running} machines run, and {} launched claims have {}", launched.len(), machines.len()));
        }
        (ending.launched, ending.failed) = (launched.len(), failed.len());
        ending.given_up_for = failed.iter().filter_map(|claim| Some(claim.deletion.as_ref()?.reason)).collect();
        Ok(())
    }

    fn running(&self) -> usize {
        self.stage.simulation.world().region.machines.values().filter(|machine| machine.instance.is_alive()).count()
    }

    /// The class becomes ready again once its dry run is permitted.
    fn recover(&mut self) -> Result<(), String> {
        for _ in 0..RECOVERY_MINUTES {
            let _ = self.stage.refresh();
            let _ = self.stage.launch(&[]);
            self.pass(seconds(60));
            if conditions::is_true(&self.stage.class().status.conditions, conditions::READY) && self.failures() == self.row.times {
                return Ok(());
            }
        }
        Err(format!("the class does not become ready again: {:?}", self.stage.class().status.conditions))
    }

    /// The node joins and is registered, and its machine gets its name.
    fn join(&mut self) -> Result<(), String> {
        self.begin(Since::Node);
        for _ in 0..JOIN_ROUNDS {
            self.pass(seconds(30));
            self.stage.register();
        }
        let registered = self.claims().iter().all(|claim| matches!(claim.phase, Phase::Registered { .. } | Phase::Initialized { .. }));
        let world = self.stage.simulation.world();
        let named = world.region.machines.values().all(|machine| machine.instance.tags.contains_key(labels::TAG_NAME));
        if registered && named { Ok(()) } else { Err(format!("registered: {registered}, named: {named}")) }
    }

    /// `sweep` asks for the checks of machines that run.
    fn check(&mut self) {
        for _ in 0..RUNS_FAILING {
            self.pass(seconds(60));
            let _ = self.stage.sweep();
        }
    }

    /// Everything is deleted. What stays is wrong.
    fn die(&mut self) -> Result<(), String> {
        self.stage.delete_claims();
        self.stage.delete_class();
        for _ in 0..END_MINUTES {
            self.stage.terminate(&self.names);
            let _ = self.stage.refresh();
            let _ = self.stage.sweep();
            self.pass(seconds(60));
            if self.left() == Left::default() {
                return Ok(());
            }
        }
        Err(format!("{:?}", self.left()))
    }

    fn left(&self) -> Left {
        let claims = self.claims().iter().filter(|claim| !has_failed(claim)).count();
        let machines = self.running();
        let world = self.stage.simulation.world();
        let (region, objects) = (&world.region, world.cluster.objects.snapshot());
        Left {
            claims,
            machines,
            templates: region.launch_templates.len(),
            profiles: region.network.profiles.len(),
            nodes: objects.nodes.len(),
            node_claims: objects.node_claims.len(),
        }
    }
}

/// What there is of the machines and of their class.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    claims: usize,
    machines: usize,
    templates: usize,
    profiles: usize,
    nodes: usize,
    node_claims: usize,
}
