//! Dry runs of node classes (aws 18.4): whether this function's role may launch with them. `refresh` requests them and shows the
//! results.

use crate::plan::{self, Facts};
use crate::{Rights, Run, has_time};
use std::collections::BTreeSet;
use whittle_api::karpenter::{NodeClaim, Requirement, ResolvedSubnet};
use whittle_api::{ObjectMeta, labels};
use whittle_claims::{ClassDryRun, Doorbell, DryRunFailure, DryRunPool, DryRunResult, NodeClassRecord, Stored};
use whittle_ec2::errors::ApiError;
use whittle_ec2::fleet::{Launch, LaunchError, LaunchInput, MinValuesPolicy, prepare};
use whittle_ec2::instance_types::Unavailable;
use whittle_ec2::user_data::UserDataError;
use whittle_ports::{Clock, CloudError, CloudErrorKind, DryRuns, HandleError, InstanceRun, Queues, Records, error_chain, unless_conflict};
use whittle_snapshot::{ClassParts, every_type};
use whittle_units::{ClaimName, SignedDuration};

/// The batch of a dry run: part of the tags, on which permissions may depend.
const BATCH: &str = "dry-run";

/// What a user does about a call that is refused. It may be the account's own policies that refuse it.
const REMEDY: &str = "allow this call for the role of launch, in its policy, its permissions boundary and the organization's policies";

/// Clocks of two functions differ by less: a dry run is due by the time at which `refresh` is rung for it.
const CLOCKS_DIFFER_BY: SignedDuration = SignedDuration::from_secs(1);

/// What a dry run changed.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    /// Whether the class has to be shown otherwise than before.
    is_news: bool,
    /// When the class is tried again, if that is soon.
    again_after: Option<SignedDuration>,
}

/// A launch that is tried with one class.
#[derive(Debug)]
pub(crate) struct Trial {
    /// One template, and one instance type in one zone.
    pub(crate) launch: Launch,
    /// The subnets of the class in which the instance could start, in their order.
    pub(crate) subnets: Vec<String>,
}

impl<P: Rights> Run<'_, P> {
    /// Makes the dry runs that are pending. One that EC2 does not answer stays pending.
    pub(crate) async fn make_dry_runs(&mut self, pending: Vec<Stored<ClassDryRun>>) -> Result<(), HandleError> {
        let (mut is_news, mut again) = (false, BTreeSet::new());
        for run in pending {
            if !has_time(self.ports.clock()) || !self.take_token().await? {
                self.report.count("dry_runs_postponed");
                break;
            }
            let made = self.make_dry_run(&run).await?;
            is_news |= made.is_news;
            again.extend(made.again_after);
        }
        let refresh = || Doorbell::Refresh { cluster: self.cluster.clone() };
        if is_news {
            self.ports.queues().send_now(refresh()).await?;
        }
        // It requests those that are due. Once for each result: if it is lost, the next refresh by schedule does it.
        for delay in again {
            self.ports.queues().send(refresh(), delay + CLOCKS_DIFFER_BY).await?;
        }
        Ok(())
    }

    async fn make_dry_run(&mut self, run: &Stored<ClassDryRun>) -> Result<Made, HandleError> {
        let Some(record) = self.facts.class(&run.value.class) else { return Ok(Made::default()) };
        let names_profile = record.class.spec.instance_profile.is_some();
        let failure = match self.facts.trial(&run.value.pools, record) {
            Ok(Some(trial)) => match self.try_launch(&trial, names_profile).await {
                Ok(failure) => failure,
                Err(error) => {
                    tracing::warn!(cluster = %self.cluster, class = %run.value.class, %error, "the dry run has no result");
                    self.report.count("dry_runs_undecided");
                    return Ok(Made::default());
                }
            },
            // There is nothing to try: what keeps the class from launching is shown elsewhere.
            Ok(None) => None,
            Err(error) => {
                let reason = "UserDataSizeLimitExceeded".to_owned();
                Some(DryRunFailure { reason, message: error_chain(&error), may_pass: false })
            }
        };
        self.report.count(if failure.is_none() { "dry_runs_passed" } else { "dry_runs_failed" });
        let made = run.value.made(failure, self.ports.clock().now());
        // A conflict: the class has changed meanwhile, and another dry run was requested.
        let written = unless_conflict(self.ports.store().write(self.cluster, &made, run.revision).await)?;
        if written.is_none() {
            return Ok(Made::default());
        }
        let again_after = made.result.as_ref().and_then(DryRunResult::again_after);
        Ok(Made { is_news: made.failure() != run.value.failure(), again_after })
    }

    /// Why the launch is not permitted, if so; an error if EC2 does not say.
    async fn try_launch(&mut self, trial: &Trial, names_profile: bool) -> Result<Option<DryRunFailure>, CloudError> {
        for template in &trial.launch.templates {
            // It is made, as any launch would make it, and collected like any other that no launch uses.
            if let Err(error) = self.ports.cloud().ensure_tried_template(template).await {
                return refusal("CreateLaunchTemplateAuthCheckFailed", error).map(Some);
            }
            self.templates.insert(template.name.clone());
        }
        if let Err(error) = self.ports.cloud().dry_run_fleet(&trial.launch.request).await {
            return refusal("CreateFleetAuthCheckFailed", error).map(Some);
        }
        let overrides = trial.launch.request.configs.iter().flat_map(|config| &config.overrides);
        let (Some(template), Some(first)) = (trial.launch.templates.first(), overrides.into_iter().next()) else { return Ok(None) };
        let mut refused = None;
        for subnet_id in &trial.subnets {
            let run = InstanceRun { template, instance_type: &first.instance_type, subnet_id, tags: &trial.launch.request.tags };
            match self.ports.cloud().dry_run_instance(&run).await {
                Ok(()) => return Ok(None),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let Some(error) = refused else { return Ok(None) };
        match profile_failure(&error).filter(|_| names_profile) {
            Some(failure) => Ok(Some(failure)),
            None => refusal("RunInstancesAuthCheckFailed", error).map(Some),
        }
    }
}

/// The failure of a class, if the error says that a call is not permitted.
fn refusal(reason: &str, error: CloudError) -> Result<DryRunFailure, CloudError> {
    if error.kind == CloudErrorKind::Unauthorized { Ok(failure(reason, &error, REMEDY)) } else { Err(error) }
}

fn failure(reason: &str, error: &CloudError, remedy: &str) -> DryRunFailure {
    DryRunFailure { reason: reason.to_owned(), message: format!("{error}. Remedy: {remedy}"), may_pass: false }
}

/// Why nothing can be launched with the instance profile that a class names, if the error says so. EC2 learns of a profile, and of its
/// role, some seconds after IAM.
pub(crate) fn profile_failure(error: &CloudError) -> Option<DryRunFailure> {
    let known = ApiError::client(error.code.as_str(), error.message.as_str());
    let (reason, remedy) = if known.is_instance_profile_missing() {
        ("InstanceProfileNotFound", "create the instance profile that spec.instanceProfile names, or correct the field")
    } else if known.is_instance_profile_empty() {
        ("InstanceProfileWithoutRole", "add a role to the instance profile that spec.instanceProfile names, or correct the field")
    } else {
        return None;
    };
    let remedy = format!("wait if it is new, because EC2 learns of it within a minute and is asked again; otherwise {remedy}");
    Some(DryRunFailure { may_pass: true, ..failure(reason, error, &remedy) })
}

impl Facts {
    /// The launch to try with a class: of the cheapest on-demand type that one of the pools allows, or of any type if there is
    /// none. `None` if no type can be launched at all; an error if the user data is too large.
    pub(crate) fn trial(&self, pools: &[DryRunPool], record: &NodeClassRecord) -> Result<Option<Trial>, LaunchError> {
        // Its kubelet settings are shown as invalid by other means.
        let Ok(parts) = ClassParts::of(record, &self.inputs, &self.catalog) else { return Ok(None) };
        // A stock-out says nothing about permissions.
        let unavailable = Unavailable::default();
        let context = parts.context(&unavailable);
        let types = every_type(record, &self.inputs, &self.catalog);
        let any = DryRunPool { name: pools.first().map(|pool| pool.name.clone()).unwrap_or_default(), requirements: Vec::new() };
        for pool in pools.iter().chain([&any]) {
            let prepared = prepare(&LaunchInput {
                claim: &claim_of(pool),
                context: &context,
                catalog: &self.catalog,
                types: &types,
                cluster: &self.access,
                free_addresses: &record.free_addresses,
                min_values: MinValuesPolicy::BestEffort,
            });
            match prepared {
                Ok(launch) => return Ok(Some(Trial::of(launch, &record.subnets))),
                Err(error @ LaunchError::UserData(UserDataError::TooLarge { .. })) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(None)
    }
}

impl Trial {
    /// The launch reduced to its first template and the first pool of that.
    fn of(mut launch: Launch, subnets: &[ResolvedSubnet]) -> Self {
        let zones: BTreeSet<String> =
            launch.request.configs.iter().flat_map(|config| &config.overrides).map(|each| each.zone.clone()).collect();
        launch.request.configs.truncate(1);
        launch.request.configs.iter_mut().for_each(|config| config.overrides.truncate(1));
        let used = launch.request.configs.first().map(|config| config.launch_template.clone()).unwrap_or_default();
        launch.templates.retain(|template| template.name == used);
        launch.request = plan::request_of(launch.request, BATCH, &[ClaimName::new(BATCH)]);
        let subnets = subnets.iter().filter(|subnet| zones.contains(&subnet.zone)).map(|subnet| subnet.id.clone()).collect();
        Self { launch, subnets }
    }
}

/// A claim that any instance on demand of the pool fulfils.
fn claim_of(pool: &DryRunPool) -> NodeClaim {
    let mut claim = NodeClaim { metadata: ObjectMeta::named(BATCH), ..NodeClaim::default() };
    if !pool.name.is_empty() {
        claim.metadata.labels.insert(labels::NODE_POOL.to_owned(), pool.name.clone());
    }
    let of_pool = pool.requirements.iter().filter(|requirement| requirement.key != labels::CAPACITY_TYPE).cloned();
    let on_demand = Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_ON_DEMAND]);
    claim.spec.requirements = of_pool.chain([on_demand]).collect();
    claim
}
