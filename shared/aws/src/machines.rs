//! EC2 instances: launched, described, tagged and terminated (aws 7, 9).

use crate::batches::{InstanceCalls, Terminated};
use crate::budget::send;
use crate::describe;
use crate::errors::{incomplete, of_resource};
use crate::made_templates::MadeTemplates;
use crate::template;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::operation::describe_instance_status::builders::DescribeInstanceStatusFluentBuilder;
use aws_sdk_ec2::types as sdk;
use aws_sdk_ec2::types::builders::FilterBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::labels;
use whittle_claims::{ShiftState, ZoneShift};
use whittle_ec2::fleet::{FleetAnswer, FleetInstance, FleetPoolError, FleetRequest, LaunchTemplate};
use whittle_ec2::instance::Instance;
use whittle_ec2::interruption::InstanceStatus;
use whittle_ports::{
    Clock, CloudError, CloudErrorKind, Fleets, InstanceChecks, InstanceTags, Instances, LaunchTemplateCleanup, LaunchTemplates, Terminator,
    ZonalShifts,
};
use whittle_units::{ClusterName, InstanceId, Timestamp};

/// The EC2 client behind the ports that launch, describe and terminate instances. The function's role decides which of these calls
/// succeed.
#[derive(Clone)]
pub struct Machines {
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) clock: Arc<dyn Clock + Send>,
    calls: Arc<InstanceCalls>,
    templates: Option<Arc<MadeTemplates>>,
    zonal_shift: Option<aws_sdk_arczonalshift::Client>,
}

/// The most instance ids in one call, of DescribeInstances as of DescribeInstanceStatus.
const IDS_MAX: usize = 100;

/// Every state but terminated: a terminated instance counts as absent.
const STATES_BEFORE_TERMINATED: &[&str] = &["pending", "running", "stopping", "stopped", "shutting-down"];
/// Every state. EC2 takes no page size together with ids, and grants calls without page size and filter half as many tokens, 10 a second
/// after 50, which are those of the whole account.
const STATES: &[&str] = &["pending", "running", "stopping", "stopped", "shutting-down", "terminated"];
/// The states of which EC2 tells statuses unless it is asked for all.
const STATES_WITH_STATUS: &[&str] = &["running"];
/// The filter of states.
const STATE: &str = "instance-state-name";
/// The largest page sizes that the API accepts.
const INSTANCE_PAGE: i32 = 1000;
const TEMPLATE_PAGE: i32 = 200;

pub(crate) fn filter(name: impl Into<String>, values: &[&str]) -> sdk::Filter {
    let builder: FilterBuilder = sdk::Filter::builder().name(name);
    builder.set_values(Some(values.iter().map(|value| (*value).to_owned()).collect())).build()
}

impl Machines {
    /// The instances of the client's region. The client may be shared by all invocations; the clock belongs to one.
    pub fn new(ec2: aws_sdk_ec2::Client, clock: Arc<dyn Clock + Send>) -> Self {
        Self { ec2, clock, calls: Arc::default(), templates: None, zonal_shift: None }
    }

    /// Batches the calls about single instances with those of the other adapters of the invocation.
    #[must_use]
    pub fn with_calls(self, calls: Arc<InstanceCalls>) -> Self {
        Self { calls, ..self }
    }

    /// Makes no launch template that is among these, and adds those that it makes.
    #[must_use]
    pub fn remembering(self, templates: Arc<MadeTemplates>) -> Self {
        Self { templates: Some(templates), ..self }
    }

    fn forget_templates(&self) {
        if let Some(made) = &self.templates {
            made.forget();
        }
    }

    /// The settings of a call that the SDK does not repeat.
    pub(crate) fn one_attempt(&self, call: &'static str) -> Result<aws_sdk_ec2::config::Builder, CloudError> {
        let limits = crate::budget::limits(&*self.clock, call)?;
        Ok(aws_sdk_ec2::config::Builder::new().timeout_config(limits).retry_config(RetryConfig::disabled()))
    }

    /// Reads zonal shifts as well. Only `sweep` does, so that no other function links the client.
    #[must_use]
    pub fn with_zonal_shift(self, client: aws_sdk_arczonalshift::Client) -> Self {
        Self { zonal_shift: Some(client), ..self }
    }

    /// Those of these instances that exist, including terminated ones that EC2 still returns. EC2 rejects a call that names an instance it
    /// does not know; then each one is looked up alone.
    pub(crate) async fn existing(&self, ids: Vec<InstanceId>) -> Result<Vec<Instance>, CloudError> {
        let mut found = Vec::new();
        for chunk in ids.chunks(IDS_MAX) {
            match self.describe_instances(chunk).await {
                Err(error) if error.kind == CloudErrorKind::NotFound && chunk.len() > 1 => {
                    for id in chunk {
                        found.extend(empty_if_not_found(self.describe_instances(std::slice::from_ref(id)).await)?);
                    }
                }
                answer => found.extend(empty_if_not_found(answer)?),
            }
        }
        Ok(found)
    }

    /// Terminates instances in as few calls as possible. EC2 may refuse a call because of one of its instances, and may leave instances out
    /// of its answer: these are then terminated one by one.
    async fn terminate_each(&self, ids: Vec<InstanceId>) -> Terminated {
        let mut results = Terminated::new();
        for chunk in ids.chunks(IDS_MAX) {
            let alone: Vec<&InstanceId> = match self.terminate_instances(chunk).await {
                Ok(named) => chunk.iter().filter(|id| chunk.len() > 1 && !named.contains(*id)).collect(),
                Err(error) if chunk.len() > 1 && is_about_an_instance(&error) => chunk.iter().collect(),
                Err(error) => {
                    results.extend(chunk.iter().map(|id| (id.clone(), ok_if_not_found(error.clone()))));
                    continue;
                }
            };
            results.extend(chunk.iter().map(|id| (id.clone(), Ok(()))));
            for id in alone {
                let result = self.terminate_instances(std::slice::from_ref(id)).await.map(|_| ()).or_else(ok_if_not_found);
                results.insert(id.clone(), result);
            }
        }
        results
    }

    /// The instances that the answer names.
    async fn terminate_instances(&self, ids: &[InstanceId]) -> Result<Vec<InstanceId>, CloudError> {
        let texts = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let answer = send!(self, aws_sdk_ec2, "TerminateInstances", self.ec2.terminate_instances().set_instance_ids(Some(texts)))?;
        Ok(answer.terminating_instances().iter().filter_map(|change| change.instance_id()).map(InstanceId::from).collect())
    }

    async fn describe_instances(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, CloudError> {
        let texts = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let request = self.ec2.describe_instances().set_instance_ids(Some(texts)).filters(filter(STATE, STATES));
        let answer = send!(self, aws_sdk_ec2, "DescribeInstances", request)?;
        let found: Vec<Instance> =
            answer.reservations().iter().flat_map(sdk::Reservation::instances).filter_map(describe::instance).collect();
        match found.iter().find(|instance| !ids.contains(&instance.id)) {
            Some(other) => Err(incomplete("DescribeInstances", format!("the response for {ids:?} contains {}", other.id))),
            None => Ok(found),
        }
    }

    /// All instances that match the filters. The deadline bounds the number of pages.
    async fn instances(&self, filters: Vec<sdk::Filter>) -> Result<Vec<Instance>, CloudError> {
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let request = self.ec2.describe_instances().set_filters(Some(filters.clone())).max_results(INSTANCE_PAGE).set_next_token(next);
            let page = send!(self, aws_sdk_ec2, "DescribeInstances", request)?;
            found.extend(page.reservations().iter().flat_map(sdk::Reservation::instances).filter_map(describe::instance));
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Sorted names of the launch templates that match the filters.
    pub(crate) async fn template_names(&self, filters: Vec<sdk::Filter>) -> Result<Vec<String>, CloudError> {
        let mut names = Vec::new();
        let mut next = None;
        loop {
            let request =
                self.ec2.describe_launch_templates().set_filters(Some(filters.clone())).max_results(TEMPLATE_PAGE).set_next_token(next);
            let page = send!(self, aws_sdk_ec2, "DescribeLaunchTemplates", request)?;
            names.extend(page.launch_templates().iter().filter_map(|template| template.launch_template_name.clone()));
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                names.sort();
                return Ok(names);
            }
        }
    }
}

/// Whether EC2 may have refused a call because of one of its instances.
fn is_about_an_instance(error: &CloudError) -> bool {
    matches!(error.kind, CloudErrorKind::NotFound | CloudErrorKind::Invalid | CloudErrorKind::Unauthorized)
}

/// An instance that does not exist is terminated.
fn ok_if_not_found(error: CloudError) -> Result<(), CloudError> {
    if error.kind == CloudErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// An instance that EC2 does not know does not exist.
fn empty_if_not_found(answer: Result<Vec<Instance>, CloudError>) -> Result<Vec<Instance>, CloudError> {
    match answer {
        Err(error) if error.kind == CloudErrorKind::NotFound => Ok(Vec::new()),
        answer => answer,
    }
}

impl LaunchTemplates for Machines {
    async fn ensure_launch_template(&self, wanted: &LaunchTemplate) -> Result<(), CloudError> {
        if self.has_launch_template(wanted) {
            return Ok(());
        }
        self.create_template(wanted).await
    }
    fn has_launch_template(&self, wanted: &LaunchTemplate) -> bool {
        self.templates.as_ref().is_some_and(|made| made.has(&wanted.name, self.clock.now()))
    }
}

impl Machines {
    /// Creates a launch template if none of its name exists, and remembers it.
    pub(crate) async fn create_template(&self, wanted: &LaunchTemplate) -> Result<(), CloudError> {
        let request = self
            .ec2
            .create_launch_template()
            .launch_template_name(&wanted.name)
            .launch_template_data(template::data(wanted))
            .tag_specifications(template::tag_specification(sdk::ResourceType::LaunchTemplate, &wanted.tags));
        let answer = send!(self, aws_sdk_ec2, "CreateLaunchTemplate", request);
        let (known, now) = (self.templates.as_ref(), self.clock.now());
        match answer {
            Ok(_) => known.into_iter().for_each(|known| known.remember_new(&wanted.name, now)),
            // The name is derived from the content: a template of that name is the one we want.
            Err(error) if error.kind == CloudErrorKind::AlreadyExists => {
                known.into_iter().for_each(|known| known.remember_found(&wanted.name, now));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl LaunchTemplateCleanup for Machines {
    async fn launch_templates(&self, cluster: &ClusterName) -> Result<Vec<String>, CloudError> {
        let filters = vec![filter(format!("tag:{}", labels::TAG_CLUSTER), &[cluster.as_str()])];
        self.template_names(filters).await
    }

    async fn delete_launch_template(&self, name: &str) -> Result<(), CloudError> {
        match send!(self, aws_sdk_ec2, "DeleteLaunchTemplate", self.ec2.delete_launch_template().launch_template_name(name)) {
            Err(error) if error.kind == CloudErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }
}

impl Fleets for Machines {
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, CloudError> {
        const CALL: &str = "CreateFleet";
        // No retries by the SDK: throttling is handled by the shared token bucket, and a lost response by the next
        // invocation, which looks for the instances first.
        let settings = self.one_attempt(CALL)?;
        let answer = self.fleet_input(request).customize().config_override(settings).send().await;
        let answer = answer.map_err(|error| crate::errors::cloud_error(CALL, error)).inspect_err(|error| {
            // A template may be gone, unless EC2 has not looked at them.
            if error.kind != CloudErrorKind::Throttled {
                self.forget_templates();
            }
        })?;
        if answer.errors().iter().filter_map(|error| error.error_code()).any(|code| code.contains("LaunchTemplate")) {
            self.forget_templates();
        }
        Ok(FleetAnswer {
            instances: answer.instances().iter().flat_map(|instance| fleet_instances(instance, request)).collect(),
            errors: answer.errors().iter().map(pool_error).collect(),
            fleet_id: answer.fleet_id.unwrap_or_default(),
        })
    }

    async fn fleet(&self, id: &str, request: &FleetRequest) -> Result<Option<FleetAnswer>, CloudError> {
        // DescribeFleets returns instant fleets only by their ids.
        let answer = match send!(self, aws_sdk_ec2, "DescribeFleets", self.ec2.describe_fleets().fleet_ids(id)) {
            Err(error) if error.kind == CloudErrorKind::NotFound => return Ok(None),
            answer => answer?,
        };
        Ok(answer.fleets().iter().find(|fleet| fleet.fleet_id() == Some(id)).map(|fleet| described_fleet(fleet, request)))
    }
}

/// A described instant fleet as the response of CreateFleet: EC2 repeats its instances and errors.
fn described_fleet(fleet: &sdk::FleetData, request: &FleetRequest) -> FleetAnswer {
    let machines = fleet.instances().iter().map(|entry| {
        sdk::CreateFleetInstance::builder()
            .set_launch_template_and_overrides(entry.launch_template_and_overrides.clone())
            .set_instance_ids(entry.instance_ids.clone())
            .set_instance_type(entry.instance_type.clone())
            .build()
    });
    let errors = fleet.errors().iter().map(|error| {
        sdk::CreateFleetError::builder()
            .set_launch_template_and_overrides(error.launch_template_and_overrides.clone())
            .set_error_code(error.error_code.clone())
            .set_error_message(error.error_message.clone())
            .build()
    });
    FleetAnswer {
        instances: machines.flat_map(|entry| fleet_instances(&entry, request)).collect(),
        errors: errors.map(|error| pool_error(&error)).collect(),
        fleet_id: fleet.fleet_id.clone().unwrap_or_default(),
    }
}

impl Machines {
    pub(crate) fn fleet_input(&self, request: &FleetRequest) -> aws_sdk_ec2::operation::create_fleet::builders::CreateFleetFluentBuilder {
        let target = sdk::TargetCapacitySpecificationRequest::builder()
            .total_target_capacity(i32::try_from(request.target_capacity).unwrap_or(i32::MAX))
            .default_target_capacity_type(sdk::DefaultTargetCapacityType::from(request.target_type()))
            .build();
        let spot = request
            .spot_strategy()
            .map(|name| sdk::SpotOptionsRequest::builder().allocation_strategy(sdk::SpotAllocationStrategy::from(name)).build());
        let on_demand = request.on_demand_strategy().map(|name| {
            sdk::OnDemandOptionsRequest::builder().allocation_strategy(sdk::FleetOnDemandAllocationStrategy::from(name)).build()
        });
        let interruptible = sdk::FleetReservationType::from("interruptible-capacity-reservation");
        let reserved = (request.target_type() == "reserved-capacity")
            .then(|| sdk::ReservedCapacityOptionsRequest::builder().reservation_types(interruptible).build());
        let kinds = [sdk::ResourceType::Instance, sdk::ResourceType::Volume, sdk::ResourceType::Fleet];
        self.ec2
            .create_fleet()
            .client_token(&request.client_token)
            .r#type(sdk::FleetType::Instant)
            .set_context(request.context.clone())
            .target_capacity_specification(target)
            .set_spot_options(spot)
            .set_on_demand_options(on_demand)
            .set_reserved_capacity_options(reserved)
            .set_launch_template_configs(Some(request.configs.iter().map(template::fleet_config).collect()))
            .set_tag_specifications(Some(kinds.into_iter().map(|kind| template::tag_specification(kind, &request.tags)).collect()))
    }
}

/// The instances that one entry, a capacity pool, launched.
fn fleet_instances(entry: &sdk::CreateFleetInstance, request: &FleetRequest) -> Vec<FleetInstance> {
    let overrides = entry.launch_template_and_overrides().and_then(sdk::LaunchTemplateAndOverridesResponse::overrides);
    let from_override = |field: fn(&sdk::FleetLaunchTemplateOverrides) -> Option<&str>| overrides.and_then(field).map(str::to_owned);
    let subnet_id = from_override(sdk::FleetLaunchTemplateOverrides::subnet_id).or_else(|| entry.subnet_id.clone()).unwrap_or_default();
    let requested = request.configs.iter().flat_map(|config| &config.overrides).find(|wanted| wanted.subnet_id == subnet_id);
    let zone = from_override(sdk::FleetLaunchTemplateOverrides::availability_zone).or_else(|| entry.availability_zone.clone());
    let one = |id: &String| FleetInstance {
        id: InstanceId::new(id.as_str()),
        instance_type: entry.instance_type().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        zone: zone.clone().or_else(|| requested.map(|wanted| wanted.zone.clone())).unwrap_or_default(),
        subnet_id: subnet_id.clone(),
        image_id: from_override(sdk::FleetLaunchTemplateOverrides::image_id).unwrap_or_default(),
        capacity_type: request.capacity_type.clone(),
    };
    entry.instance_ids().iter().map(one).collect()
}

fn pool_error(error: &sdk::CreateFleetError) -> FleetPoolError {
    let overrides = error.launch_template_and_overrides().and_then(sdk::LaunchTemplateAndOverridesResponse::overrides);
    FleetPoolError {
        code: error.error_code.clone().unwrap_or_default(),
        message: error.error_message.clone().unwrap_or_default(),
        instance_type: overrides.and_then(|pool| pool.instance_type()).map(|name| name.as_str().to_owned()).unwrap_or_default(),
        zone: overrides.and_then(|pool| pool.availability_zone()).unwrap_or_default().to_owned(),
    }
}

impl Instances for Machines {
    async fn of_cluster(&self, cluster: &ClusterName) -> Result<Vec<Instance>, CloudError> {
        self.instances(vec![
            filter("tag-key", &[labels::NODE_POOL]),
            filter("tag-key", &[labels::EC2_NODE_CLASS]),
            filter(format!("tag:{}", labels::TAG_CLUSTER), &[cluster.as_str()]),
            filter(STATE, STATES_BEFORE_TERMINATED),
        ])
        .await
    }

    async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>, CloudError> {
        let machines = self.clone();
        let found = self.calls.lookups.join(id, |ids| async move { machines.existing(ids).await }).await?;
        let mut own = found.into_iter().filter(|instance| instance.id == *id);
        match (own.next(), own.next()) {
            (found, None) => Ok(found),
            _ => Err(incomplete("DescribeInstances", format!("the response contains {id} twice"))),
        }
    }

    async fn tagged(&self, key: &str, value: &str) -> Result<Vec<Instance>, CloudError> {
        self.instances(vec![filter(format!("tag:{key}"), &[value])]).await
    }
}

/// Scheduled events that stop or reboot an instance.
const SCHEDULED_EVENTS: &[&str] = &["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];

/// The filters of the scans of a region. EC2 combines filters with AND: each cause is a scan of its own.
const SCANS: [(&str, &[&str]); 3] =
    [("instance-status.status", &["impaired"]), ("system-status.status", &["impaired"]), ("event.code", SCHEDULED_EVENTS)];

impl Machines {
    /// What a request for statuses finds, page by page. The deadline bounds the number of pages.
    async fn statuses(&self, request: DescribeInstanceStatusFluentBuilder) -> Result<Vec<InstanceStatus>, CloudError> {
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let page = send!(self, aws_sdk_ec2, "DescribeInstanceStatus", request.clone().set_next_token(next))?;
            found.extend(page.instance_statuses().iter().filter_map(|entry| describe::status(entry, SCHEDULED_EVENTS)));
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// The statuses of these instances. `None` if EC2 does not know one of them: it refuses the call, and says nothing of the others.
    async fn statuses_by_id(&self, instances: &[InstanceId]) -> Result<Option<Vec<InstanceStatus>>, CloudError> {
        let mut found = Vec::new();
        for chunk in instances.chunks(IDS_MAX) {
            let ids = chunk.iter().map(|id| id.as_str().to_owned()).collect();
            let request = self.ec2.describe_instance_status().set_instance_ids(Some(ids)).filters(filter(STATE, STATES_WITH_STATUS));
            match self.statuses(request).await {
                Err(error) if error.kind == CloudErrorKind::NotFound => return Ok(None),
                answer => found.extend(answer?),
            }
        }
        Ok(Some(found))
    }

    /// The statuses of all instances of the region that EC2 finds something wrong with, other clusters' and other people's included.
    async fn statuses_of_region(&self) -> Result<Vec<InstanceStatus>, CloudError> {
        let mut found = Vec::new();
        for (name, values) in SCANS {
            let request = self.ec2.describe_instance_status().filters(filter(name, values)).max_results(INSTANCE_PAGE);
            found.extend(self.statuses(request).await?);
        }
        Ok(found)
    }
}

impl InstanceChecks for Machines {
    async fn failing(&self, instances: &[InstanceId]) -> Result<Vec<InstanceStatus>, CloudError> {
        // By id where that takes no more calls than scans, whose pages grow with the account.
        let by_id = if instances.len() <= SCANS.len() * IDS_MAX { self.statuses_by_id(instances).await? } else { None };
        let statuses = match by_id {
            Some(statuses) => statuses,
            None => self.statuses_of_region().await?,
        };
        let own: BTreeSet<&InstanceId> = instances.iter().collect();
        let failing = statuses.into_iter().filter(|status| status.is_failing() && own.contains(&status.instance));
        // An instance may be found by several scans.
        let found: BTreeMap<InstanceId, InstanceStatus> = failing.map(|status| (status.instance.clone(), status)).collect();
        Ok(found.into_values().collect())
    }
}

impl ZonalShifts for Machines {
    async fn zone_shifts(&self, cluster_arn: &str) -> Result<Vec<ZoneShift>, CloudError> {
        const CALL: &str = "GetManagedResource";
        let client = self.zonal_shift.as_ref().ok_or_else(|| incomplete(CALL, "there is no client for zonal shifts"))?;
        let limits = crate::budget::brief_limits(&*self.clock, CALL)?;
        let settings = aws_sdk_arczonalshift::config::Builder::new().timeout_config(limits).retry_config(RetryConfig::disabled());
        let answer = client.get_managed_resource().resource_identifier(cluster_arn).customize().config_override(settings).send().await;
        let answer = answer.map_err(|error| of_resource(crate::errors::cloud_error(CALL, error)))?;
        // Those that AWS starts are among them; `autoshifts` lists these again, without their zones.
        Ok(answer.zonal_shifts().iter().map(zone_shift).collect())
    }
}

fn zone_shift(shift: &aws_sdk_arczonalshift::types::ZonalShiftInResource) -> ZoneShift {
    use aws_sdk_arczonalshift::types::AppliedStatus;
    let ends_at = Timestamp::from_second(shift.expiry_time().secs()).unwrap_or(Timestamp::MAX);
    let is_applied = *shift.applied_status() == AppliedStatus::Applied;
    let state = if is_applied { ShiftState::Applied } else { ShiftState::NotApplied };
    ZoneShift { away_from: shift.away_from().to_owned(), ends_at, state }
}

impl InstanceTags for Machines {
    async fn tag(&self, id: &InstanceId, tags: &[(String, String)]) -> Result<(), CloudError> {
        let tags = tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect();
        send!(self, aws_sdk_ec2, "CreateTags", self.ec2.create_tags().resources(id.as_str()).set_tags(Some(tags)))?;
        Ok(())
    }
}

impl Terminator for Machines {
    async fn terminate(&self, id: &InstanceId) -> Result<(), CloudError> {
        let machines = self.clone();
        let mut results = self.calls.terminations.join(id, |ids| async move { machines.terminate_each(ids).await }).await;
        results.remove(id).unwrap_or_else(|| Err(incomplete("TerminateInstances", format!("no result for {id}"))))
    }
}
