//! From planned claims to fleet calls: one call for claims with equal requests. Pure.

use crate::addresses::{self, Use};
use crate::batch::Batch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::field::FieldPath;
use whittle_api::karpenter::adjusted_price;
use whittle_api::runtime::taint_faults;
use whittle_api::{ConditionStatus, conditions, labels};
use whittle_claims::{Claim, ClaimSpec, NodeClassRecord, Record, StockOut, Stored, mirror};
use whittle_ec2::facts::Catalog;
use whittle_ec2::fleet::{FleetRequest, Launch, LaunchError, LaunchInput, MinValuesPolicy, batch_id, batched, prepare, subnets};
use whittle_ec2::instance_types::{Context, resolve_some};
use whittle_ec2::user_data::ClusterAccess;
use whittle_snapshot::{ClassParts, TypeInputs, unavailable};
use whittle_units::{ClaimName, ClusterName, Price, Timestamp};

/// Instances of one call. A fleet allows more, but a call's errors should concern few claims.
const BATCH_MAX: usize = 100;

/// The facts that launches are planned from.
pub(crate) struct Facts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) classes: Vec<NodeClassRecord>,
    /// Names of the records whose class has changed since.
    pub(crate) changed: BTreeSet<String>,
    /// As stored, to count further failures.
    pub(crate) stock_outs: Vec<StockOut>,
    /// Addresses that earlier launches use.
    pub(crate) uses: Vec<Use>,
    /// What instance types depend on.
    pub(crate) inputs: TypeInputs,
    pub(crate) access: ClusterAccess,
    /// What happens to a claim whose `minValues` the types of one call cannot satisfy.
    pub(crate) min_values: MinValuesPolicy,
    /// How many tokens for calls a run leaves to other clusters, once it has made calls itself.
    pub(crate) left_to_others: u32,
    /// When all this was read.
    pub(crate) now: Timestamp,
}

/// Claims with equal requests.
pub(crate) struct Group {
    pub(crate) node_class: String,
    pub(crate) launch: Launch,
    pub(crate) claims: Vec<Stored<Claim>>,
}

/// Groups of claims that share a call, and the claims for which no call can be made.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<Group>,
    pub(crate) refused: Vec<(Stored<Claim>, LaunchError)>,
}

impl Facts {
    /// Offerings that are not requested now, by the rule for pending pods. Plans that replace nodes leave out more, which their claims no
    /// longer name (ADR 0073).
    fn stock_outs_for_pods(&self) -> Vec<StockOut> {
        self.stock_outs.iter().map(StockOut::for_pods).collect()
    }
    /// The class of a batch, by the name of its record.
    pub(crate) fn class(&self, name: &str) -> Option<&NodeClassRecord> {
        self.classes.iter().find(|record| record.name() == name)
    }
    /// What determines the instance types of a batch's class; `None` for a class that was deleted or cannot be read.
    pub(crate) fn parts(&self, name: &str) -> Option<ClassParts> {
        ClassParts::of(self.class(name)?, &self.inputs, &self.catalog).ok()
    }
    /// The uid of a batch's class; `None` for a class that was deleted.
    pub(crate) fn class_uid(&self, name: &str) -> Option<String> {
        self.class(name).map(|record| record.class.metadata.uid.clone()).filter(|uid| !uid.is_empty())
    }
    /// The id of a zone in which a class has a subnet; empty if it has none there.
    pub(crate) fn zone_id(&self, class: &str, zone: &str) -> &str {
        let subnet = self.class(class).and_then(|record| record.subnets.iter().find(|subnet| subnet.zone == zone));
        subnet.map_or("", |subnet| subnet.zone_id.as_str())
    }
    /// The class that a claim refers to.
    pub(crate) fn class_of(&self, claim: &Claim) -> Option<&NodeClassRecord> {
        NodeClassRecord::referenced(&self.classes, &claim.spec.node_class.name, claim.spec.owner.kind == "Provisioner")
    }

    /// The launch of a single claim.
    fn launch(&self, claim: &Claim) -> Result<Launch, LaunchError> {
        if let Some(fault) = taint_fault(&claim.spec) {
            return Err(LaunchError::Taint(fault));
        }
        let name = &claim.spec.node_class.name;
        let record = self.class_of(claim).filter(|record| !record.class.metadata.is_deleting());
        let record = record.ok_or_else(|| LaunchError::NodeClassGone(name.clone()))?;
        if self.changed.contains(&record.name()) {
            return Err(LaunchError::NodeClassChanged(name.clone()));
        }
        if !record.is_ready() && is_readiness_unknown(record) {
            return Err(LaunchError::NodeClassUnknown(name.clone()));
        }
        if !record.is_ready() {
            return Err(LaunchError::NodeClassNotReady { class: name.clone(), message: record.problems.join("; ") });
        }
        // Even if the stored class is ready: a machine outside of its group cannot be moved into it.
        if record.lacks_placement_group() {
            let message = "its placement group is not known".to_owned();
            return Err(LaunchError::NodeClassNotReady { class: name.clone(), message });
        }
        let failed = |source| LaunchError::Kubelet { class: name.clone(), source: Box::new(source) };
        let unavailable = self.inputs.unavailable(&self.stock_outs_for_pods(), self.now);
        let parts = ClassParts::of(record, &self.inputs, &self.catalog).map_err(failed)?;
        let context = parts.context(&unavailable);
        let catalog = self.catalog.with_missing_prices(&absolute_prices(&claim.spec));
        let types = types(&catalog, &context, claim);
        let mut launch = prepare(&LaunchInput {
            claim: &mirror(claim),
            context: &context,
            catalog: &catalog,
            types: &types,
            cluster: &self.access,
            free_addresses: &addresses::free_addresses(record, &self.uses),
            min_values: self.min_values,
        })?;
        // EC2 chooses better among spot pools where no overlay changes their prices.
        launch.request.prioritized &= is_overlaid(&launch.request, &claim.spec);
        Ok(launch)
    }

    /// Groups claims with equal launches, in the order of their names.
    pub(crate) fn plan(&self, mut claims: Vec<Stored<Claim>>) -> Plan {
        claims.sort_by(|a, b| a.value.key.name.cmp(&b.value.key.name));
        let mut plan = Plan::default();
        let mut known: BTreeMap<String, Result<Launch, LaunchError>> = BTreeMap::new();
        for claim in claims {
            let outcome = known.entry(launch_key(&claim.value)).or_insert_with(|| self.launch(&claim.value));
            match outcome {
                Err(error) => plan.refused.push((claim, error.clone())),
                Ok(launch) => {
                    let open = plan.groups.iter_mut().find(|group| group.claims.len() < BATCH_MAX && group.launch == *launch);
                    match open {
                        Some(group) => group.claims.push(claim),
                        None => plan.groups.push(Group {
                            node_class: self.class_of(&claim.value).map(NodeClassRecord::name).unwrap_or_default(),
                            launch: launch.clone(),
                            claims: vec![claim],
                        }),
                    }
                }
            }
        }
        self.choose_subnets(&mut plan.groups);
        plan
    }

    /// Each group uses the subnets in which the groups before it leave most addresses.
    fn choose_subnets(&self, groups: &mut [Group]) {
        let unavailable = unavailable(&self.stock_outs_for_pods(), self.now);
        let mut uses = self.uses.clone();
        for group in groups {
            let Some(record) = self.class(&group.node_class).filter(|record| addresses::has_choice(&record.subnets)) else { continue };
            let free = addresses::free_addresses(record, &uses);
            let chosen = subnets(&record.resolved_class(), &free, &unavailable, record.ipv6);
            group.launch.move_to(&chosen);
            let machines = u32::try_from(group.claims.len()).unwrap_or(u32::MAX);
            let addresses = group.launch.addresses_in_flight.saturating_mul(machines);
            let used = group.launch.subnets().into_iter().map(|subnet| Use { batch: String::new(), subnet, addresses, at: self.now });
            uses.extend(used);
        }
    }
}

/// The types that the plan named; no other is ever launched for it. A static pool's claim names none: any type that its
/// requirements allow will do.
fn types(catalog: &Catalog, context: &Context<'_>, claim: &Claim) -> Vec<InstanceType> {
    let named: BTreeSet<&str> = claim.spec.instance_types.iter().map(String::as_str).collect();
    let mut types = resolve_some(catalog, context, |name| named.is_empty() || named.contains(name)).unwrap_or_default();
    types.iter_mut().for_each(|each| apply_overlays(each, &claim.spec));
    types
}

/// The absolute prices of types under NodeOverlays, which also apply to types without a price of EC2's.
fn absolute_prices(planned: &ClaimSpec) -> BTreeMap<String, Price> {
    let absolute = planned.overlaid_prices.iter().filter(|each| !each.price.starts_with(['+', '-']));
    let priced = absolute.filter_map(|each| Some((adjusted_price(Price::ZERO, &each.price)?, &each.instance_types)));
    priced.flat_map(|(price, names)| names.iter().map(move |name| (name.clone(), price))).collect()
}

/// Gives a type the capacity and the prices that the claim was planned with. NodeOverlays may have changed since; the plan has not.
pub(crate) fn apply_overlays(instance_type: &mut InstanceType, planned: &ClaimSpec) {
    for (name, amount) in planned.extra_of(&instance_type.name).into_iter().flat_map(|extra| extra.iter()) {
        instance_type.capacity.set(name, amount);
    }
    for offering in &mut instance_type.offerings {
        let text = planned.overlaid_price(&instance_type.name, offering.capacity_type(), offering.zone());
        if let Some(price) = text.and_then(|text| adjusted_price(offering.price, text)) {
            offering.price = price;
        }
    }
}

/// Whether NodeOverlays changed the price of something that may be launched. Which ones a claim of an older release had is not known.
fn is_overlaid(request: &FleetRequest, planned: &ClaimSpec) -> bool {
    let mut overrides = request.configs.iter().flat_map(|config| &config.overrides);
    planned.overlaid_prices.is_empty()
        || overrides.any(|each| planned.overlaid_price(&each.instance_type, &request.capacity_type, &each.zone).is_some())
}

/// A taint of the claim that no Node can have, so that its machine would never join. NodePools with one launch nothing; of a NodeClaim that
/// a user makes nobody else looks at it.
fn taint_fault(planned: &ClaimSpec) -> Option<String> {
    let spec = FieldPath::of("spec");
    for (field, taints) in [("taints", &planned.taints), ("startupTaints", &planned.startup_taints)] {
        for (index, taint) in taints.iter().enumerate() {
            if let Some(fault) = taint_faults(taint, &spec.key(field).index(index)).first() {
                return Some(fault.to_string());
            }
        }
    }
    None
}

/// Whether a class is not ready only because not all of it is known yet, such as its instance profile.
fn is_readiness_unknown(record: &NodeClassRecord) -> bool {
    let ready = conditions::find(&record.class.status.conditions, conditions::READY);
    ready.is_some_and(|ready| ready.status == ConditionStatus::Unknown)
}

/// Everything of a claim that its launch depends on: equal claims are computed once.
pub(crate) fn launch_key(claim: &Claim) -> String {
    let spec = &claim.spec;
    let parts = (&spec.node_pool, &spec.node_class, &spec.labels, &spec.annotations, &spec.requirements);
    let rest = (
        &spec.instance_types,
        &spec.extra_capacity,
        &spec.overlaid_prices,
        &spec.taints,
        &spec.startup_taints,
        &spec.requests,
        &spec.owner.kind,
    );
    serde_json::to_string(&(parts, rest)).unwrap_or_else(|_| claim.key.name.to_string())
}

/// What identifies a claim in the ids of batches. A standalone NodeClaim may have had a predecessor of the same name, whose
/// instance must not be taken for its own.
pub(crate) fn token_of(claim: &Claim) -> ClaimName {
    match &claim.spec.standalone_uid {
        Some(uid) => ClaimName::new(format!("{}/{uid}", claim.key.name)),
        None => claim.key.name.clone(),
    }
}

/// The id of the batch that these claims form.
pub(crate) fn id_of(cluster: &ClusterName, claims: &[ClaimName]) -> String {
    batch_id(cluster.as_str(), claims.iter().map(ClaimName::as_str))
}

/// The request for the machines of these claims.
pub(crate) fn request_of(mut request: FleetRequest, id: &str, members: &[ClaimName]) -> FleetRequest {
    if let [only] = members {
        request.tags.insert(labels::TAG_NODE_CLAIM.to_owned(), only.as_str().to_owned());
    }
    batched(request, id, u32::try_from(members.len()).unwrap_or(u32::MAX))
}

/// The call for the claims that are launching as `id`.
pub(crate) fn batch(id: &str, members: Vec<ClaimName>, node_class: &str, launch: &Launch, now: Timestamp) -> Batch {
    let request = request_of(launch.request.clone(), id, &members);
    Batch {
        id: id.to_owned(),
        members,
        node_class: node_class.to_owned(),
        request,
        templates: launch.templates.clone(),
        tenancy: launch.tenancy.clone(),
        partition: launch.partition,
        reservations: launch.reservations.iter().map(|((name, zone), id)| (name.clone(), zone.clone(), id.clone())).collect(),
        created_at: now,
        addresses: launch.addresses_in_flight,
        fleet_id: String::new(),
        open_since: None,
        looks_first: false,
        looked_at: None,
        refused_since: None,
        made_from: None,
    }
}
