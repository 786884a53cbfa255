//! Resolves node classes: looks up what they select, stores the result and writes it to their status.

use crate::unanswered::{self, FailedCall, selects_the_same};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{AmiSelectorTerm, Ec2NodeClass, NodePool, ResolvedPlacementGroup};
use whittle_api::meta::Condition;
use whittle_api::{ConditionStatus, conditions, hashes, labels};
use whittle_claims::{DryRunFailure, FenceFacts, NodeClassRecord};
use whittle_ec2::facts::Catalog;
use whittle_ec2::fleet::tenancy;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image};
use whittle_ec2::node_class::{
    Checks, ClassMachines, Found, PlacementGroupError, PlacementGroups, ProfileError, choose_placement_group, choose_reservations, remarks,
    ssm_images, status,
};
use whittle_ports::{ClassRefusal, CloudError, CloudErrorKind, ClusterEvent, Discovery, Involved, Settings};
use whittle_units::{ClusterName, Timestamp};

/// The class with defaults: one without role and instance profile gets the operator's, if there is one.
pub(crate) fn with_defaults(class: &Ec2NodeClass, settings: &Settings) -> Ec2NodeClass {
    let mut class = class.clone();
    if class.spec.role.is_none() && class.spec.instance_profile.is_none() {
        class.spec.instance_profile.clone_from(&settings.default_instance_profile);
        if class.spec.instance_profile.is_none() {
            class.spec.role.clone_from(&settings.default_node_role);
        }
    }
    class
}

/// What was looked up for a class.
pub(crate) struct Lookup {
    pub(crate) started_at: Timestamp,
    /// Without reservations, of which [`resolve`] chooses.
    pub(crate) found: Found,
    /// `None` if they are not looked up, or the call failed.
    reservations: Option<Vec<CapacityReservation>>,
    pub(crate) free_addresses: BTreeMap<String, u32>,
    pub(crate) fence: FenceFacts,
    /// The calls that failed: nothing of their parts is above.
    pub(crate) failed: Vec<FailedCall>,
}

/// The images that a run has found, by the terms that select them. The parameter store takes 40 calls a second of an account, of which an
/// alias needs several, and classes of a cluster mostly differ in something else.
#[derive(Debug, Default)]
pub(crate) struct FoundImages(Vec<(Vec<AmiSelectorTerm>, Vec<Image>)>);

impl FoundImages {
    /// What these terms select, looked up for the first class that has them.
    async fn select<C: Discovery>(&mut self, cloud: &C, terms: &[AmiSelectorTerm], kubernetes: &str) -> Result<Vec<Image>, CloudError> {
        if let Some((_, found)) = self.0.iter().find(|(known, _)| known == terms) {
            return Ok(found.clone());
        }
        let found = cloud.images(terms, kubernetes).await?;
        self.0.push((terms.to_vec(), found.clone()));
        Ok(found)
    }
}

/// Looks up everything that a class selects, each part even if another fails. `known` has the images of the run's classes before it.
pub(crate) async fn look_up<C: Discovery>(
    cloud: &C,
    cluster: &ClusterName,
    info: &ClusterInfo,
    class: &Ec2NodeClass,
    settings: &Settings,
    known: &mut FoundImages,
    started_at: Timestamp,
) -> Lookup {
    let spec = &class.spec;
    let aliases = spec.ami_selector_terms.iter().filter_map(|term| term.alias.as_deref());
    let alias_error = aliases.filter_map(|alias| ssm_images(alias, &info.version).err()).next();
    let images = async {
        let terms = &spec.ami_selector_terms;
        if alias_error.is_some() { Ok(Vec::new()) } else { known.select(cloud, terms, &info.version).await }
    };
    let reservations = async {
        let terms = spec.capacity_reservation_selector_terms.as_deref().unwrap_or_default();
        if settings.scheduling.reserved_capacity { cloud.capacity_reservations(terms).await.map(Some) } else { Ok(None) }
    };
    let placement_groups = placement_groups(cloud, class);
    // Launches wait for all of it, and no part needs another. A profile is made whatever becomes of the other parts.
    let subnets = cloud.subnets(&spec.subnet_selector_terms);
    let security_groups = cloud.security_groups(&spec.security_group_selector_terms);
    let profile = profile(cloud, cluster, class, settings);
    let (subnets, security_groups, images, reservations, placement_groups, profile) =
        futures::join!(subnets, security_groups, images, reservations, placement_groups, profile);
    let mut failed = Vec::new();
    let subnets = answered(subnets, conditions::SUBNETS_READY, &mut failed);
    let security_groups = answered(security_groups, conditions::SECURITY_GROUPS_READY, &mut failed);
    let images = answered(images, conditions::AMIS_READY, &mut failed);
    let reservations = answered(reservations, conditions::CAPACITY_RESERVATIONS_READY, &mut failed);
    let placement_groups = answered(placement_groups, conditions::PLACEMENT_GROUP_READY, &mut failed);
    let Profile { name: instance_profile, role, error: profile_error } = answered(profile, conditions::INSTANCE_PROFILE_READY, &mut failed);
    // A class that names a role has that one, whatever IAM says of it.
    let role = role.or_else(|| spec.role.clone().filter(|_| spec.instance_profile.is_none()));
    let free_addresses = subnets.iter().map(|subnet| (subnet.id.clone(), subnet.free_addresses)).collect();
    let mut vpcs: Vec<String> =
        subnets.iter().map(|subnet| &subnet.vpc).chain(security_groups.iter().map(|group| &group.vpc)).cloned().collect();
    vpcs.sort_unstable();
    vpcs.dedup();
    let found = Found {
        subnets,
        security_groups,
        images,
        reservations: None,
        placement_groups,
        alias_error,
        instance_profile,
        profile_error,
        unanswered: BTreeMap::new(),
    };
    Lookup { started_at, found, reservations, free_addresses, fence: FenceFacts { role, vpcs }, failed }
}

/// What a call answered about a part of a class; nothing if it failed, which is added to the failed ones.
fn answered<T: Default>(answer: Result<T, CloudError>, part: &'static str, failed: &mut Vec<FailedCall>) -> T {
    answer.unwrap_or_else(|error| {
        failed.push(FailedCall { part, error });
        T::default()
    })
}

/// Looks up the placement group of a class. A refusal concerns this class alone, and its status shows it.
async fn placement_groups<C: Discovery>(cloud: &C, class: &Ec2NodeClass) -> Result<PlacementGroups, CloudError> {
    let Some(selector) = &class.spec.placement_group_selector else { return Ok(PlacementGroups::NotSelected) };
    match cloud.placement_groups(selector).await {
        Ok(found) => Ok(PlacementGroups::Found(found)),
        Err(error) if matches!(error.kind, CloudErrorKind::Unauthorized | CloudErrorKind::Invalid) => {
            Ok(PlacementGroups::Refused(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// The instance profile of a class.
#[derive(Default)]
struct Profile {
    /// `None` if there is none, or none that may be used.
    name: Option<String>,
    /// `None` if it is not known.
    role: Option<String>,
    error: Option<ProfileError>,
}

/// Looks up or creates the instance profile of a class. None is created for a role that the cluster may not use.
async fn profile<C: Discovery>(cloud: &C, cluster: &ClusterName, class: &Ec2NodeClass, settings: &Settings) -> Result<Profile, CloudError> {
    let (spec, class) = (&class.spec, &class.metadata.name);
    let tags = spec.tags.clone().unwrap_or_default();
    if let Some(name) = &spec.instance_profile {
        return match cloud.profile_role(name).await {
            Ok(role) if role.as_deref() == Some("") => {
                Ok(Profile { name: None, role, error: Some(ProfileError::ProfileWithoutRole(name.clone())) })
            }
            Ok(role) => Ok(Profile { name: Some(name.clone()), role, error: None }),
            Err(error) if error.kind == CloudErrorKind::NotFound => {
                Ok(Profile { error: Some(ProfileError::ProfileNotFound(name.clone())), ..Profile::default() })
            }
            Err(error) if error.kind == CloudErrorKind::Invalid => {
                let (name, problem) = (name.clone(), error.message);
                Ok(Profile { error: Some(ProfileError::ProfileNameInvalid { name, problem }), ..Profile::default() })
            }
            Err(error) => Err(error),
        };
    }
    let Some(role) = &spec.role else { return Ok(Profile { error: Some(ProfileError::NotSet), ..Profile::default() }) };
    let of_role = |name, error| Profile { name, role: Some(role.clone()), error };
    if !settings.permits_node_role(cluster, role) {
        return Ok(of_role(None, None));
    }
    // Nothing is created in shadow mode; plans only need the name.
    if settings.is_shadow() {
        return Ok(of_role(Some(cloud.instance_profile_name(cluster, class, role)), None));
    }
    match cloud.ensure_instance_profile(cluster, class, role, &tags).await {
        Ok(name) => Ok(of_role(Some(name), None)),
        // The class waits for its profile, and its status shows that; everything else is known.
        Err(error) if is_role_missing(&error) => Ok(of_role(None, Some(ProfileError::RoleNotFound(role.clone())))),
        // IAM does not show a profile at once that was just created.
        Err(error) if error.kind == CloudErrorKind::NotFound => Ok(of_role(None, None)),
        Err(error) if matches!(error.kind, CloudErrorKind::Invalid | CloudErrorKind::Unauthorized) => {
            let problem = error.to_string();
            Ok(of_role(None, Some(ProfileError::Refused { role: role.clone(), problem })))
        }
        Err(error) => Err(error),
    }
}

/// Whether IAM lacks the role; otherwise it is the profile that it does not find. Only its text says which.
fn is_role_missing(error: &CloudError) -> bool {
    let text = error.message.to_ascii_lowercase();
    let names_role = text.contains("role") && !text.starts_with("instance profile");
    error.kind == CloudErrorKind::NotFound && error.call == "AddRoleToInstanceProfile" && names_role
}

/// What of a class has no effect on its nodes, unless its former record says the same: it is logged once.
pub(crate) fn new_remarks(class: &Ec2NodeClass, known: Option<&NodeClassRecord>) -> Vec<String> {
    let told = known.map(|known| remarks(&known.class)).unwrap_or_default();
    let now = remarks(class);
    if now == told { Vec::new() } else { now }
}

/// What is told of reservations that a class selects and cannot use, unless its former record says the same: it is logged once.
pub(crate) fn left_out_reservations<'a>(updated: &'a Ec2NodeClass, known: Option<&NodeClassRecord>) -> Option<&'a str> {
    fn told(class: &Ec2NodeClass) -> &str {
        let condition = conditions::find(&class.status.conditions, conditions::CAPACITY_RESERVATIONS_READY);
        condition.map_or("", |condition| condition.message.as_str())
    }
    let now = told(updated);
    (!now.is_empty() && known.is_none_or(|known| told(&known.class) != now)).then_some(now)
}

/// What decides about a class besides what was looked up for it.
pub(crate) struct ClassContext<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) info: &'a ClusterInfo,
    /// The region's types, if the class computes something from them.
    pub(crate) region: Option<&'a Catalog>,
    /// Its NodePools.
    pub(crate) pools: &'a [&'a NodePool],
}

/// The class with its new status and hash, and the record for launches. `known` is its former record.
pub(crate) fn resolve(
    class: &Ec2NodeClass,
    lookup: Lookup,
    context: &ClassContext<'_>,
    known: Option<&NodeClassRecord>,
) -> (Ec2NodeClass, NodeClassRecord) {
    let ClassContext { settings, info, region, pools } = *context;
    let (class, Lookup { started_at: now, mut found, reservations, free_addresses, fence, .. }) = unanswered::keep(class, lookup, known);
    let class = &class;
    let is_unanswered = |part: &str| found.unanswered.contains_key(part);
    let uncounted = known.filter(|_| is_unanswered(conditions::CAPACITY_RESERVATIONS_READY));
    // Launches since then are subtracted from what was free: numbers that stay keep their time.
    let counted_at = uncounted.or(known.filter(|_| is_unanswered(conditions::SUBNETS_READY))).map_or(now, |known| known.resolved_at);
    let is_role_unknown = fence.role.is_none() && is_unanswered(conditions::INSTANCE_PROFILE_READY);
    let has_no_profile = found.profile_error.is_some() || is_role_unknown;
    let placement_group = placement_group(class, &found, known);
    let of_subnets = || found.subnets.iter().filter_map(|subnet| subnet.outpost.as_deref()).collect();
    let machines = ClassMachines {
        spec: &class.spec,
        tenancies: tenancies(pools),
        placement_group: placement_group.as_ref(),
        outposts: (!is_unanswered(conditions::SUBNETS_READY)).then(of_subnets),
    };
    let chosen = reservations.map(|all| choose_reservations(&all, &machines, now));
    let free_reserved = chosen.as_ref().map(|chosen| chosen.free.clone()).unwrap_or_default();
    let of_reserved = chosen.as_ref().map(|chosen| chosen.tenancies.clone()).unwrap_or_default();
    let unused = chosen.as_ref().map(|chosen| &chosen.unused).or_else(|| known.map(|known| &known.unused_reservations));
    let unused_reservations = unused.cloned().unwrap_or_default();
    found.reservations = chosen;
    let mut updated = class.clone();
    let checks = Checks { settings: &settings.instance_types(), cluster: info, catalog: region };
    updated.status = status(class, found, checks, now);
    let hash = hashes::node_class(class, &info.certificate_authority);
    updated.metadata.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), hash.clone());
    updated.metadata.annotations.insert(labels::NODE_CLASS_HASH_VERSION.to_owned(), hashes::NODE_CLASS_VERSION.to_owned());
    let mut record = NodeClassRecord {
        subnets: updated.status.subnets.clone(),
        security_groups: updated.status.security_groups.clone(),
        amis: updated.status.amis.clone(),
        instance_profile: String::new(),
        hash,
        problems: Vec::new(),
        free_addresses,
        free_reserved: uncounted.map_or(free_reserved, |known| known.free_reserved.clone()),
        reservation_tenancies: uncounted.map_or(of_reserved, |known| known.reservation_tenancies.clone()),
        unused_reservations,
        placement_group,
        ipv6: info.ipv6,
        fence: Some(fence),
        resolved_at: counted_at,
        class: class.clone(),
    };
    for refusal in settings.class_refusals(&info.name, &info.vpc, &record) {
        tracing::error!(class = %class.metadata.name, "the class may not be used: {refusal}");
        // The status says what is missing; there is no role yet that could be refused.
        if !(has_no_profile && matches!(refusal, ClassRefusal::Role { .. })) {
            refuse_use(&mut updated, &class.status.conditions, &refusal, now);
        }
    }
    record.instance_profile = updated.status.instance_profile.clone().unwrap_or_default();
    record.problems = problems(&updated, class);
    record.class = updated.clone();
    (updated, record)
}

/// The tenancies that pools launch with. Without a pool it is the default.
fn tenancies(pools: &[&NodePool]) -> BTreeSet<&'static str> {
    let of_pool = |pool: &&NodePool| {
        let template = &pool.spec.template;
        let is_dedicated = template.metadata.labels.get(labels::INSTANCE_TENANCY).is_some_and(|label| label == DEDICATED);
        if is_dedicated { DEDICATED } else { tenancy(&template.spec.requirements) }
    };
    if pools.is_empty() { BTreeSet::from([tenancy(&[])]) } else { pools.iter().map(of_pool).collect() }
}

const DEDICATED: &str = "dedicated";

/// The placement group that the machines of a class start in. While it cannot be looked up, no machine of the known one has drifted; if
/// the lookup is refused, nothing is launched meanwhile.
fn placement_group(class: &Ec2NodeClass, found: &Found, known: Option<&NodeClassRecord>) -> Option<ResolvedPlacementGroup> {
    let part = conditions::PLACEMENT_GROUP_READY;
    let same = || known.filter(|known| selects_the_same(part, &known.class, class)).and_then(|known| known.placement_group.clone());
    if found.unanswered.contains_key(part) {
        return same();
    }
    match choose_placement_group(class.spec.placement_group_selector.as_ref(), &found.placement_groups) {
        Ok(group) => group,
        Err(PlacementGroupError::Refused(_)) => same(),
        Err(_) => None,
    }
}

/// An Event for each condition that has become False, or False for another reason.
pub(crate) fn events(before: &Ec2NodeClass, after: &Ec2NodeClass) -> Vec<ClusterEvent> {
    let is_news = |condition: &&Condition| {
        let known = conditions::find(&before.status.conditions, &condition.type_).filter(|known| known.status == ConditionStatus::False);
        // These two repeat what the others say.
        let repeats = condition.type_ == conditions::READY || condition.reason == "DependenciesNotReady";
        condition.status == ConditionStatus::False && !repeats && known.is_none_or(|known| known.reason != condition.reason)
    };
    let event = |condition: &Condition| ClusterEvent::warning(Involved::object(after), &condition.reason, condition.message.clone());
    after.status.conditions.iter().filter(is_news).map(event).collect()
}

/// The Events of a written change of a class: its conditions and its finalizer.
pub(crate) fn changes(before: &Ec2NodeClass, after: &Ec2NodeClass) -> Vec<ClusterEvent> {
    ClusterEvent::of_change(before, after, |class| class.status.conditions.as_slice())
}

/// The class and its record after a dry run of its launches has failed.
pub(crate) fn fail_dry_run(
    class: &Ec2NodeClass,
    (mut updated, mut record): (Ec2NodeClass, NodeClassRecord),
    failure: &DryRunFailure,
    now: Timestamp,
) -> (Ec2NodeClass, NodeClassRecord) {
    let part = (conditions::VALIDATION_SUCCEEDED, failure.reason.as_str(), failure.message.as_str());
    refuse(&mut updated, &class.status.conditions, part, now);
    record.problems = problems(&updated, class);
    record.class = updated.clone();
    (updated, record)
}

/// Says in the status of a class that the operator does not permit to use it.
fn refuse_use(updated: &mut Ec2NodeClass, before: &[Condition], refusal: &ClassRefusal, now: Timestamp) {
    let (part, reason) = match refusal {
        ClassRefusal::Role { .. } => {
            updated.status.instance_profile = None;
            (conditions::INSTANCE_PROFILE_READY, "NodeRoleNotPermitted")
        }
        ClassRefusal::Vpc { .. } => (conditions::SUBNETS_READY, "OtherVPC"),
    };
    refuse(updated, before, (part, reason, &refusal.to_string()), now);
}

/// Sets a condition of a class, and with it Ready, to False: by type, reason and message.
fn refuse(updated: &mut Ec2NodeClass, before: &[Condition], (part, reason, message): (&str, &str, &str), now: Timestamp) {
    let ready = format!("{part}: {message}");
    for (name, reason, message) in [(part, reason, message), (conditions::READY, "UnhealthyDependents", &ready)] {
        conditions::set(&mut updated.status.conditions, name, ConditionStatus::False, reason, message, now);
        // The status computed by the lookup must not reset the transition time.
        let since = conditions::find(before, name).filter(|known| known.status == ConditionStatus::False);
        let own = updated.status.conditions.iter_mut().find(|condition| condition.type_ == name);
        if let (Some(since), Some(own)) = (since, own) {
            own.last_transition_time = since.last_transition_time;
        }
    }
}

/// One sentence per problem that keeps the class from being used.
fn problems(updated: &Ec2NodeClass, class: &Ec2NodeClass) -> Vec<String> {
    if class.metadata.is_deleting() {
        return vec!["the class is being deleted".to_owned()];
    }
    if conditions::is_true(&updated.status.conditions, conditions::READY) {
        return Vec::new();
    }
    let all: Vec<String> = updated
        .status
        .conditions
        .iter()
        .filter(|condition| condition.type_ != conditions::READY && condition.status != ConditionStatus::True)
        .filter(|condition| condition.type_ != conditions::VALIDATION_SUCCEEDED || condition.reason != "DependenciesNotReady")
        .map(|condition| format!("{}: {}", condition.type_, condition.message))
        .collect();
    if all.is_empty() { vec!["the class is not ready".to_owned()] } else { all }
}
