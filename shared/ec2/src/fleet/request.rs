//! The fleet request of a claim (aws 7.1 to 7.5, 9.4, 14.2).

use super::filters::{Candidate, DEDICATED, Demand, FilterError, MinValuesPolicy, keep_min_values, select};
use super::template::{self, EfaInterface, IpFamily, LaunchTemplate, ReservationTarget};
use super::{FleetConfig, FleetOverride, FleetRequest, ReservationKind};
use crate::errors::CreateReason;
use crate::facts::Catalog;
use crate::instance_types::{Context, Unavailable, kubelet_of, takes_prefixes};
use crate::kubelet::{KubeletError, Resolved};
use crate::requirements::Wanted;
use crate::user_data::{self, Bootstrap, ClusterAccess, UserDataError};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, Requirement, ResolvedAmi};
use whittle_api::labels;
use whittle_units::Price;

/// All inputs of a launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchInput<'a> {
    pub claim: &'a NodeClaim,
    /// Of the claim's node class.
    pub context: &'a Context<'a>,
    pub catalog: &'a Catalog,
    /// The instance types of the class, with price overlays applied.
    pub types: &'a [InstanceType],
    pub cluster: &'a ClusterAccess,
    /// Free addresses by subnet, minus those of launches in progress.
    pub free_addresses: &'a BTreeMap<String, u32>,
    pub min_values: MinValuesPolicy,
}

/// Why a claim cannot be launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    #[error("node class {0} does not exist or is being deleted")]
    NodeClassGone(String),
    #[error("node class {class} is not ready: {message}")]
    NodeClassNotReady { class: String, message: String },
    #[error("it is not known yet whether node class {0} is ready")]
    NodeClassUnknown(String),
    #[error("node class {0} was changed: what it selects is looked up again")]
    NodeClassChanged(String),
    #[error("nothing can be bought for the claim")]
    Insufficient(#[from] FilterError),
    #[error(
        "no instance type fits the images of node class {0}: select images of their architecture by spec.amiSelectorTerms, or other types by \
         the requirements"
    )]
    NoImage(String),
    #[error(
        "node class {0} has a subnet in none of the zones that the claim can use: select one there by spec.subnetSelectorTerms, or allow \
         other zones in the requirements"
    )]
    NoSubnet(String),
    #[error("the kubelet settings of node class {class} cannot be resolved")]
    Kubelet { class: String, source: Box<KubeletError> },
    #[error("the user data cannot be made")]
    UserData(#[from] UserDataError),
    #[error("no Node can have the taints of the claim: {0}; leave it out, or make the NodeClaim again with another")]
    Taint(String),
}

/// The outcome for a claim that could not be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchDisposition {
    /// The claim is given up and its pods are planned again.
    InsufficientCapacity,
    /// The claim is given up until the class is corrected.
    NodeClassNotReady,
    /// Retried; the condition has the reason.
    Retry(CreateReason),
}

impl LaunchError {
    /// The outcome of the error for the claim (aws 7.1).
    pub const fn disposition(&self) -> LaunchDisposition {
        match self {
            Self::NodeClassGone(_) | Self::Insufficient(_) => LaunchDisposition::InsufficientCapacity,
            Self::NodeClassNotReady { .. } | Self::UserData(UserDataError::NoServiceCidr { .. }) => LaunchDisposition::NodeClassNotReady,
            Self::NodeClassUnknown(_) | Self::NodeClassChanged(_) => LaunchDisposition::Retry(CreateReason::NodeClassReadinessUnknown),
            Self::NoSubnet(_) => LaunchDisposition::Retry(CreateReason::SubnetResolutionFailed),
            Self::Kubelet { .. } => LaunchDisposition::Retry(CreateReason::InstanceTypeResolutionFailed),
            Self::UserData(UserDataError::TooLarge { .. }) => LaunchDisposition::Retry(CreateReason::UserDataSizeLimitExceeded),
            Self::NoImage(_) | Self::UserData(_) | Self::Taint(_) => LaunchDisposition::Retry(CreateReason::LaunchFailed),
        }
    }
}

/// A prepared launch: create the templates, then the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub templates: Vec<LaunchTemplate>,
    /// For one machine; see [`batched`].
    pub request: FleetRequest,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// The requested partition of the placement group.
    pub partition: Option<u32>,
    /// Reservation by (type, zone), for reserved capacity.
    pub reservations: BTreeMap<(String, String), String>,
    /// Addresses to reserve in each chosen subnet until the launch is over (aws 14.2).
    pub addresses_in_flight: u32,
}

/// The tags of everything that a claim of a pool and class creates (aws 9.4).
pub fn tags(cluster: &str, claim: &NodeClaim, class: &Ec2NodeClass) -> Result<BTreeMap<String, String>, LaunchError> {
    let own = class.spec.tags.clone().unwrap_or_default();
    if let Some(key) = own.keys().find(|key| is_reserved_tag(key)) {
        let message = format!("spec.tags may not set {key}: Whittle needs it to find its machines");
        return Err(LaunchError::NodeClassNotReady { class: class.metadata.name.clone(), message });
    }
    let pool = claim.node_pool().unwrap_or_default();
    let mut tags = own;
    tags.insert(format!("{}{cluster}", labels::TAG_CLUSTER_OWNED_PREFIX), "owned".to_owned());
    tags.insert(labels::NODE_POOL.to_owned(), pool.to_owned());
    tags.insert(labels::TAG_CLUSTER.to_owned(), cluster.to_owned());
    tags.insert(labels::EC2_NODE_CLASS.to_owned(), class.metadata.name.clone());
    if let Some(provisioner) = claim.metadata.label(labels::PROVISIONER_NAME) {
        tags.insert(labels::PROVISIONER_NAME.to_owned(), provisioner.to_owned());
    }
    Ok(tags)
}

/// Tag keys that the user may not set, in any case: IAM's conditions on tags are case-insensitive, and would
/// deny the termination of a machine with both.
pub fn is_reserved_tag(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let key = key.as_str();
    const RESERVED: &[&str] = &[labels::NODE_POOL, labels::TAG_CLUSTER, labels::EC2_NODE_CLASS, labels::TAG_NODE_CLAIM];
    RESERVED.contains(&key)
        || key.starts_with(labels::OWN_TAGS)
        || key.strip_prefix(labels::TAG_CLUSTER_OWNED_PREFIX).is_some_and(|cluster| !cluster.is_empty())
}

/// Plans the launch of one machine. The class must be ready, and its status up to date with its spec.
pub fn prepare(input: &LaunchInput<'_>) -> Result<Launch, LaunchError> {
    let class = input.context.class;
    let tags = tags(&input.cluster.name, input.claim, class)?;
    let requirements = &input.claim.spec.requirements;
    let wanted = Wanted::new(requirements);
    let demand = Demand { requirements, requests: &input.claim.spec.resources.requests, policy: input.min_values };
    let candidates = select(input.types, &demand)?;
    let capacity_type = capacity_type(&candidates, &wanted);
    let candidates = narrowed(candidates, |offering| offering.capacity_type() == capacity_type);
    let tenancy = tenancy_among(&candidates, requirements);
    let candidates = narrowed(candidates, |offering| is_of_tenancy(offering, tenancy));
    let partition = partition(&candidates, &wanted);
    let candidates = narrowed(candidates, |offering| partition.is_none_or(|wanted| partition_of(offering) == Some(wanted)));
    let reservation = candidates.iter().flat_map(|candidate| &candidate.offerings).find_map(|offering| kind_of(offering));
    let shared = Shared { capacity_type, reservation, partition, tenancy, tags: &tags };
    let subnets = subnets(class, input.free_addresses, input.context.unavailable, input.context.ipv6);
    let (templates, configs) = configs(input, &candidates, &shared, &subnets)?;
    if configs.is_empty() {
        return Err(LaunchError::NoSubnet(class.metadata.name.clone()));
    }
    let reservations = reservations(&candidates, &configs);
    let relaxed = input.claim.metadata.annotation(labels::MIN_VALUES_RELAXED) == Some("true");
    let pods = candidates.iter().map(|candidate| candidate.instance_type.capacity.get("pods").units_floor()).min().unwrap_or_default();
    let request = FleetRequest {
        client_token: String::new(),
        target_capacity: 1,
        capacity_type: capacity_type.to_owned(),
        reservation,
        configs,
        tags,
        prioritized: input.claim.metadata.annotations.contains_key(PRICE_OVERLAY_APPLIED),
        context: class.spec.context.clone().filter(|_| !relaxed),
    };
    Ok(Launch {
        templates,
        request,
        tenancy: tenancy.to_owned(),
        partition,
        reservations,
        addresses_in_flight: u32::try_from(pods).unwrap_or_default(),
    })
}

/// Annotation of claims whose prices came from a NodeOverlay.
const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";

/// The name of a batch of claims in one fleet: the same claims have the same name, whatever else has changed. It
/// is a tag of the machines, by which a repeated launch finds them.
pub fn batch_id<'a>(cluster: &str, claims: impl IntoIterator<Item = &'a str>) -> String {
    let mut claims: Vec<&str> = claims.into_iter().collect();
    claims.sort_unstable();
    digest(&serde_json::json!([cluster, claims])).chars().take(32).collect()
}

/// The request for `count` machines of one batch, with an idempotency token.
///
/// The token covers the batch and all parameters: EC2 refuses a known token with other parameters, so a changed request
/// has to search for the machines of the batch first.
#[must_use]
pub fn batched(mut request: FleetRequest, batch: &str, count: u32) -> FleetRequest {
    request.target_capacity = count;
    request.tags.insert(labels::TAG_LAUNCH.to_owned(), batch.to_owned());
    request.client_token.clear();
    let parameters = serde_json::to_value(&request).expect("maps have text keys");
    request.client_token = digest(&parameters);
    request
}

/// 64 hexadecimal digits: the longest token that EC2 accepts.
fn digest(value: &serde_json::Value) -> String {
    let bytes = Sha256::digest(value.to_string().as_bytes());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What all templates of a launch have in common.
struct Shared<'a> {
    capacity_type: &'static str,
    reservation: Option<ReservationKind>,
    partition: Option<u32>,
    tenancy: &'static str,
    tags: &'a BTreeMap<String, String>,
}

fn narrowed<'a>(mut candidates: Vec<Candidate<'a>>, keep: impl Fn(&Offering) -> bool) -> Vec<Candidate<'a>> {
    candidates.iter_mut().for_each(|candidate| candidate.offerings.retain(|offering| keep(offering)));
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    candidates
}

/// The first of reserved and spot that is allowed and available; else on-demand.
fn capacity_type(candidates: &[Candidate<'_>], wanted: &Wanted<'_>) -> &'static str {
    let has = |kind: &str| {
        wanted.allows(labels::CAPACITY_TYPE, kind)
            && candidates.iter().any(|candidate| candidate.offerings.iter().any(|offering| offering.capacity_type() == kind))
    };
    [labels::CAPACITY_RESERVED, labels::CAPACITY_SPOT].into_iter().find(|kind| has(kind)).unwrap_or(labels::CAPACITY_ON_DEMAND)
}

/// The tenancy of machines with these requirements: default unless only dedicated is allowed.
pub fn tenancy(requirements: &[Requirement]) -> &'static str {
    if Wanted::new(requirements).allows(labels::INSTANCE_TENANCY, "default") { "default" } else { DEDICATED }
}

/// Whether machines of a tenancy start in an offering. A reservation is for those of one.
fn is_of_tenancy(offering: &Offering, tenancy: &str) -> bool {
    offering.label(labels::INSTANCE_TENANCY).is_none_or(|own| own == tenancy)
}

/// The tenancy of a launch from these candidates, which the requirements allow: as of [`tenancy`], unless all of them are in reservations
/// for dedicated machines, which are there only where the requirements name that tenancy. Those are paid for.
fn tenancy_among(candidates: &[Candidate<'_>], requirements: &[Requirement]) -> &'static str {
    let usual = tenancy(requirements);
    let has = |tenancy: &str| candidates.iter().flat_map(|candidate| &candidate.offerings).any(|offering| is_of_tenancy(offering, tenancy));
    if has(usual) || !has(DEDICATED) { usual } else { DEDICATED }
}

fn partition_of(offering: &Offering) -> Option<u32> {
    offering.label(labels::PLACEMENT_GROUP_PARTITION)?.parse().ok()
}

/// The lowest allowed partition with an offering; EC2 chooses if the claim does not restrict it. Those that are left are allowed.
fn partition(candidates: &[Candidate<'_>], wanted: &Wanted<'_>) -> Option<u32> {
    let left = candidates.iter().flat_map(|candidate| &candidate.offerings).filter_map(|offering| partition_of(offering));
    left.min().filter(|_| wanted.restricts(labels::PLACEMENT_GROUP_PARTITION))
}

fn kind_of(offering: &Offering) -> Option<ReservationKind> {
    let kind = offering.label(labels::RESERVATION_TYPE)?;
    Some(match (kind, offering.label(labels::RESERVATION_INTERRUPTIBLE)) {
        ("capacity-block", _) => ReservationKind::CapacityBlock,
        (_, Some("true")) => ReservationKind::Interruptible,
        _ => ReservationKind::Ordinary,
    })
}

/// Those that the fleet may use.
fn reservations(candidates: &[Candidate<'_>], configs: &[FleetConfig]) -> BTreeMap<(String, String), String> {
    let entries = configs.iter().flat_map(|config| &config.overrides);
    let pools: BTreeSet<(&str, &str)> = entries.map(|entry| (entry.instance_type.as_str(), entry.zone.as_str())).collect();
    let all = candidates.iter().flat_map(|candidate| candidate.offerings.iter().map(|offering| (candidate.instance_type, *offering)));
    let used = all.filter(|(each, offering)| pools.contains(&(each.name.as_str(), offering.zone())));
    used.filter_map(|(each, offering)| {
        let id = offering.label(labels::RESERVATION_ID)?;
        Some(((each.name.clone(), offering.zone().to_owned()), id.to_owned()))
    })
    .collect()
}

impl Launch {
    /// The subnets in which it may start machines.
    pub fn subnets(&self) -> BTreeSet<String> {
        self.request.configs.iter().flat_map(|config| &config.overrides).map(|entry| entry.subnet_id.clone()).collect()
    }
    /// Sets the subnets of its machines, by zone. Other zones stay as they are.
    pub fn move_to(&mut self, subnets: &BTreeMap<String, String>) {
        for entry in self.request.configs.iter_mut().flat_map(|config| &mut config.overrides) {
            if let Some(id) = subnets.get(&entry.zone) {
                entry.subnet_id.clone_from(id);
            }
        }
    }
}

/// The subnet of each zone with the most free addresses; the earlier in the status if equal (aws 14.2). One that
/// is known to be full, or to have no prefixes where the class takes some, is never chosen.
pub fn subnets(class: &Ec2NodeClass, free: &BTreeMap<String, u32>, unavailable: &Unavailable, ipv6: bool) -> BTreeMap<String, String> {
    let with_prefixes = takes_prefixes(class, ipv6);
    let mut chosen: BTreeMap<&str, (u32, &str)> = BTreeMap::new();
    for subnet in class.status.subnets.iter().filter(|subnet| !unavailable.is_full(&subnet.id, with_prefixes)) {
        let addresses = free.get(&subnet.id).copied().unwrap_or_default();
        let entry = chosen.entry(&subnet.zone).or_insert((addresses, &subnet.id));
        if addresses > entry.0 {
            *entry = (addresses, &subnet.id);
        }
    }
    chosen.into_iter().map(|(zone, (_, id))| (zone.to_owned(), id.to_owned())).collect()
}

/// The first image of the class whose requirements a type meets (aws 11.3).
pub fn image_for<'a>(amis: &'a [ResolvedAmi], instance_type: &InstanceType) -> Option<&'a ResolvedAmi> {
    amis.iter().find(|ami| Wanted::new(&ami.requirements).meets(&instance_type.requirements))
}

/// Types that share a template: the same image, kubelet settings, EFA interfaces and reservation.
type Group<'a> = (&'a str, (u32, &'a BTreeMap<String, String>, &'a BTreeMap<String, String>), Vec<EfaInterface>, Option<&'a str>);

/// The kubelet settings of a group and what it can start.
type Members<'a> = (&'a Resolved, Vec<(&'a Candidate<'a>, &'a Offering)>);

fn configs(
    input: &LaunchInput<'_>,
    candidates: &[Candidate<'_>],
    shared: &Shared<'_>,
    subnets: &BTreeMap<String, String>,
) -> Result<(Vec<LaunchTemplate>, Vec<FleetConfig>), LaunchError> {
    let class = input.context.class;
    let are_named = class.spec.network_interfaces.as_ref().is_some_and(|named| !named.is_empty());
    let asks_for_efa = !are_named && !input.claim.spec.resources.requests.get(EFA).is_zero();
    let mut resolved: BTreeMap<&str, Resolved> = BTreeMap::new();
    for candidate in candidates {
        let name = candidate.instance_type.name.as_str();
        let Some(facts) = input.catalog.facts(name) else { continue };
        let failed = |source| LaunchError::Kubelet { class: class.metadata.name.clone(), source: Box::new(source) };
        resolved.insert(name, kubelet_of(facts, input.context).map_err(failed)?);
    }
    let mut groups: BTreeMap<Group<'_>, Members<'_>> = BTreeMap::new();
    let mut has_image = false;
    for candidate in candidates {
        let each = candidate.instance_type;
        let (Some(image), Some(kubelet)) = (image_for(&class.status.amis, each), resolved.get(each.name.as_str())) else { continue };
        has_image = true;
        let efa = if asks_for_efa { u32::try_from(each.capacity.get(EFA).units_floor()).unwrap_or_default() } else { 0 };
        let efa = input.catalog.facts(&each.name).map(|facts| template::efa_interfaces(facts, efa)).unwrap_or_default();
        for offering in &candidate.offerings {
            let settings = (kubelet.max_pods, &kubelet.kube_reserved, &kubelet.system_reserved);
            let group: Group<'_> = (&image.id, settings, efa.clone(), offering.label(labels::RESERVATION_ID));
            groups.entry(group).or_insert_with(|| (kubelet, Vec::new())).1.push((candidate, offering));
        }
    }
    if !has_image {
        return Err(LaunchError::NoImage(class.metadata.name.clone()));
    }
    let mut templates: BTreeMap<String, LaunchTemplate> = BTreeMap::new();
    let mut configs = Vec::new();
    for ((image, _, efa, reservation), (kubelet, offers)) in groups {
        let overrides = overrides(&offers, image, subnets);
        if overrides.is_empty() {
            continue;
        }
        let template = launch_template(input, shared, image, kubelet, &efa, reservation)?;
        configs.push(FleetConfig { launch_template: template.name.clone(), overrides });
        templates.insert(template.name.clone(), template);
    }
    configs.sort_by_key(|config| config.overrides.first().cloned().map(|first| (first.price, first.instance_type, first.zone)));
    truncate(input, candidates, &mut templates, &mut configs)?;
    Ok((templates.into_values().collect(), configs))
}

/// The launch template configs that one CreateFleet takes: the maximum of the list `FleetLaunchTemplateConfigListRequest` in
/// EC2's service model. For the overrides of an instant fleet there is none.
pub const MAX_CONFIGS: usize = 50;

/// Keeps the cheapest configs, and the templates of these. What is left still has to satisfy `minValues`.
fn truncate(
    input: &LaunchInput<'_>,
    candidates: &[Candidate<'_>],
    templates: &mut BTreeMap<String, LaunchTemplate>,
    configs: &mut Vec<FleetConfig>,
) -> Result<(), FilterError> {
    if configs.len() <= MAX_CONFIGS {
        return Ok(());
    }
    configs.truncate(MAX_CONFIGS);
    templates.retain(|name, _| configs.iter().any(|config| config.launch_template == *name));
    if input.min_values == MinValuesPolicy::BestEffort {
        return Ok(());
    }
    let types: BTreeSet<&str> = configs.iter().flat_map(|config| &config.overrides).map(|entry| entry.instance_type.as_str()).collect();
    let left: Vec<Candidate<'_>> =
        candidates.iter().filter(|candidate| types.contains(candidate.instance_type.name.as_str())).cloned().collect();
    keep_min_values(&left, &Wanted::new(&input.claim.spec.requirements))
}

const EFA: &str = "vpc.amazonaws.com/efa";
/// Resource of pods that need a Nitro enclave.
const NITRO_SANDBOX: &str = "eks.amazonaws.com/nitro-sandbox";

/// One override per (type, zone), cheapest first.
fn overrides(offers: &[(&Candidate<'_>, &Offering)], image: &str, subnets: &BTreeMap<String, String>) -> Vec<FleetOverride> {
    let mut all: BTreeMap<(Price, &str, &str), FleetOverride> = BTreeMap::new();
    for (candidate, offering) in offers {
        let (name, zone) = (candidate.instance_type.name.as_str(), offering.zone());
        let Some(subnet_id) = subnets.get(zone) else { continue };
        let entry = FleetOverride {
            instance_type: name.to_owned(),
            zone: zone.to_owned(),
            subnet_id: subnet_id.clone(),
            image_id: image.to_owned(),
            price: offering.price,
        };
        all.entry((offering.price, name, zone)).or_insert(entry);
    }
    all.into_values().collect()
}

fn launch_template(
    input: &LaunchInput<'_>,
    shared: &Shared<'_>,
    image: &str,
    kubelet: &Resolved,
    efa: &[EfaInterface],
    reservation: Option<&str>,
) -> Result<LaunchTemplate, LaunchError> {
    let (class, family) = (input.context.class, input.context.family);
    let spec = &class.spec;
    let ip_family = IpFamily::of_dns(input.cluster.dns_address.as_deref());
    let bootstrap = Bootstrap {
        cluster: input.cluster,
        class,
        kubelet: input.context.kubelet,
        resolved: kubelet,
        labels: user_data::node_labels(input.claim, shared.capacity_type, family),
        taints: user_data::node_taints(input.claim),
    };
    let market = match shared.reservation {
        Some(ReservationKind::CapacityBlock) => Some("capacity-block"),
        Some(ReservationKind::Interruptible) => Some("interruptible-capacity-reservation"),
        _ => None,
    };
    let gate = input.context.settings.reserved_capacity;
    let template = LaunchTemplate {
        name: String::new(),
        image_id: image.to_owned(),
        user_data: user_data::render(family, &bootstrap)?,
        instance_profile: class.status.instance_profile.clone().unwrap_or_default(),
        security_group_ids: class.status.security_groups.iter().map(|group| group.id.clone()).collect(),
        block_device_mappings: template::volumes(spec, family),
        metadata_options: template::metadata_options(spec, input.catalog.region.as_str(), ip_family),
        detailed_monitoring: spec.detailed_monitoring.unwrap_or(false),
        interfaces: template::interfaces(spec, efa, ip_family),
        nested_virtualization: spec.cpu_options.as_ref().and_then(|options| options.nested_virtualization.clone()),
        tenancy: shared.tenancy.to_owned(),
        placement_group_id: input.context.placement_group.map(|group| group.id.clone()),
        partition: shared.partition,
        enclave: !input.claim.spec.resources.requests.get(NITRO_SANDBOX).is_zero(),
        reservation: gate.then(|| reservation.map_or(ReservationTarget::None, |id| ReservationTarget::Only(id.to_owned()))),
        market_type: market.filter(|_| gate).map(str::to_owned),
        spot: shared.capacity_type == labels::CAPACITY_SPOT,
        tags: shared.tags.clone(),
    };
    Ok(template.named())
}
