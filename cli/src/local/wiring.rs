//! The real functions over the simulated ports: the only place in local mode that depends on them.

use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Mutex;
use whittle_claims::{ClaimKey, Doorbell};
use whittle_ports::{
    Adapters, Cached, Discovery, DryRuns, Fleets, HandleError, InstanceChecks, InstanceTags, Instances, LaunchTemplateCleanup,
    LaunchTemplates, Once, Report, Settings, Terminator, ZonalShifts, error_chain,
};
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts};
use whittle_sweep::Looks;

/// All functions, with the settings of an installation.
#[derive(Debug)]
pub struct Handlers {
    settings: Mutex<Settings>,
}

impl Handlers {
    /// Functions with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings: Mutex::new(settings) }
    }
    /// Replaces the settings: runs that begin later see them.
    pub fn set(&self, settings: Settings) {
        *self.settings.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = settings;
    }
    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.settings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Functions for Handlers {
    fn call(&self, function: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        let settings = self.settings();
        async move { outcome(run(&Cloud { machines: &ports, discovery: &ports }, &ports, &settings, function, input).await) }.boxed()
    }
}

/// The adapters of EC2 and its neighbours: the simulated ports themselves, or others in front of the same region.
#[derive(Clone, Copy, Debug)]
pub struct Cloud<'a, M, D> {
    pub machines: &'a M,
    pub discovery: &'a D,
}

/// Every port of instances and what they are launched from.
pub trait MachinePorts:
    LaunchTemplates + LaunchTemplateCleanup + Fleets + DryRuns + Instances + InstanceChecks + ZonalShifts + InstanceTags + Terminator
{
}
impl<M: LaunchTemplates + LaunchTemplateCleanup + Fleets + DryRuns + Instances + InstanceChecks + ZonalShifts + InstanceTags + Terminator>
    MachinePorts for M
{
}

/// The result for the queue: after an error the message is redelivered.
///
/// # Errors
/// The chain of the error, if another delivery may help, and whether it may do so soon.
pub fn outcome(result: Result<Report, HandleError>) -> Result<(), RunFailure> {
    use whittle_ports::Disposition::{Drop, Fail, Replan, RetryLater};
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.disposition() {
            Drop | Replan => Ok(()),
            disposition @ (RetryLater | Fail) => Err(RunFailure { reason: error_chain(&error), may_pass: disposition == RetryLater }),
        },
    }
}

/// Runs a function over the simulated ports, with these adapters of the cloud.
///
/// # Errors
/// As the function.
pub async fn run<M: MachinePorts, D: Discovery>(
    cloud: &Cloud<'_, M, D>,
    ports: &SimPorts,
    settings: &Settings,
    function: Function,
    input: Input,
) -> Result<Report, HandleError> {
    run_warm(&Looks::new(), cloud, ports, settings, (function, input)).await
}

/// The same in an environment in which `sweep` has had these looks.
///
/// # Errors
/// As the function.
pub async fn run_warm<M: MachinePorts, D: Discovery>(
    looks: &Looks,
    cloud: &Cloud<'_, M, D>,
    ports: &SimPorts,
    settings: &Settings,
    (function, input): (Function, Input),
) -> Result<Report, HandleError> {
    let adapters = Adapters { store: ports, cloud: cloud.machines, cluster: ports, queues: ports, clock: ports };
    match (function, input) {
        (Function::Relay, Input::Review(body)) => {
            let cluster = ports.cluster();
            let stored = settings.relay_secrets.first().map_or("", String::as_str);
            let path = format!("/{}/{cluster}", whittle_relay::cluster_secret(stored, cluster.as_str()));
            let request = whittle_relay::Request { path: &path, body: body.as_bytes(), signed_by: None, alias: None };
            whittle_relay::handle(adapters, settings, &whittle_relay::Recent::new(), request).await.map(|(_, report)| report)
        }
        (Function::Schedule, Input::Doorbell(doorbell)) => whittle_schedule::handle(adapters, settings, doorbell.cluster()).await,
        (Function::Consolidate, Input::Doorbell(doorbell)) => whittle_consolidate::handle(adapters, settings, doorbell.cluster()).await,
        (Function::Interrupt, Input::Notice(body)) => whittle_interrupt::handle(adapters, settings, &Once::default(), &body).await,
        (Function::Register, Input::Doorbell(Doorbell::Deletions { cluster })) => {
            whittle_register::deletions(adapters, settings, &cluster).await
        }
        (Function::Register, Input::Doorbell(doorbell)) => whittle_register::handle(adapters, settings, doorbell.cluster()).await,
        (Function::Terminate, Input::Doorbell(Doorbell::Terminate { cluster, claim })) => {
            whittle_terminate::handle(adapters, settings, &Cached::default(), &ClaimKey { cluster, name: claim }).await
        }
        (Function::Launch, Input::Doorbell(Doorbell::Launch { cluster, claims })) => {
            whittle_launch::handle(adapters, settings, &cluster, &claims).await
        }
        (Function::Refresh, Input::Doorbell(doorbell)) => {
            let adapters = Adapters { store: ports, cloud: cloud.discovery, cluster: ports, queues: ports, clock: ports };
            whittle_refresh::handle(adapters, settings, doorbell.cluster()).await
        }
        (Function::Sweep, Input::Doorbell(Doorbell::Sweep { cluster, is_tick: true })) => {
            whittle_sweep::tick(adapters, settings, looks, &cluster).await
        }
        (Function::Sweep, Input::Doorbell(doorbell)) => whittle_sweep::handle(adapters, settings, doorbell.cluster()).await,
        _ => Ok(Report::default()),
    }
}
