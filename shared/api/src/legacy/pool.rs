//! Pools and claims.

use super::{
    BetaConsolidationPolicy, BetaNodeClaim, BetaNodePool, KUBELET_ANNOTATION, Kubelet, LegacyReference, Provisioner, ProvisionerSpec,
    Purpose, REFERENCE_ANNOTATION, Refusal, Work,
};
use crate::duration::NillableDuration;
use crate::karpenter::{
    Budget, ConsolidationPolicy, Disruption, NodeClaim, NodeClaimSpec, NodeClaimTemplate, NodeClaimTemplateSpec, NodeClassReference,
    NodePool, NodePoolSpec, Operator, Requirement, TemplateMeta,
};
use crate::labels;
use crate::manifest::Object;
use crate::meta::ObjectMeta;
use std::collections::BTreeMap;

/// Origin of a pool that was converted from a Provisioner.
const PROVISIONER: &str = "Provisioner";

impl Work<'_> {
    pub(super) fn provisioner(&mut self, old: Provisioner) -> Result<(), Refusal> {
        let name = old.metadata.name.clone();
        let mut spec = old.spec;
        let inline = match spec.provider.take() {
            Some(provider) => Some(self.inline_class(&name, provider)?),
            None => None,
        };
        let reference = match (&inline, spec.provider_ref.take()) {
            (None, Some(reference)) => reference,
            // Without either, the pool refers to a template of its own name.
            _ => LegacyReference { name: name.clone(), ..LegacyReference::default() },
        };
        let kubelet = spec.kubelet_configuration.take();
        let mut metadata = self.metadata(old.metadata, Some(PROVISIONER));
        annotate(&mut metadata, &reference, kubelet.as_ref());
        if spec.consolidation.as_ref().and_then(|consolidation| consolidation.enabled) != Some(true)
            && spec.ttl_seconds_after_empty.is_none()
        {
            self.note_in_output(
                "NodePool",
                &name,
                "the Provisioner had neither ttlSecondsAfterEmpty nor consolidation: consolidateAfter Never keeps its nodes, empty ones too",
            );
        }
        if !self.options.ignore_defaults {
            add_defaults(&mut spec.requirements);
        }
        let pool = NodePool { metadata, spec: provisioner_spec(spec, &reference, self.options.purpose), ..NodePool::default() };
        self.push(Object::NodePool(Box::new(pool)), Some(PROVISIONER), kubelet.as_ref().and_then(Kubelet::to_document));
        if let Some(class) = inline {
            self.push(class, Some("AWSNodeTemplate"), None);
        }
        Ok(())
    }

    pub(super) fn beta_pool(&mut self, old: BetaNodePool) {
        let template = old.spec.template.spec;
        let mut metadata = self.metadata(old.metadata, None);
        annotate(&mut metadata, &template.node_class_ref, template.kubelet.as_ref());
        let kubelet = template.kubelet.as_ref().and_then(Kubelet::to_document);
        let old_disruption = old.spec.disruption;
        let (consolidation_policy, consolidate_after) = match old_disruption.consolidation_policy {
            BetaConsolidationPolicy::WhenUnderutilized => (ConsolidationPolicy::WhenEmptyOrUnderutilized, NillableDuration::from_secs(0)),
            BetaConsolidationPolicy::WhenEmpty => (ConsolidationPolicy::WhenEmpty, old_disruption.consolidate_after.unwrap_or_default()),
        };
        let budgets = match old_disruption.budgets {
            Some(budgets) => {
                budgets.into_iter().map(|budget| Budget { duration: budget.duration.map(|d| d.canonical()), ..budget }).collect()
            }
            None => vec![Budget::default()],
        };
        let spec = NodePoolSpec {
            template: NodeClaimTemplate {
                metadata: old.spec.template.metadata,
                spec: NodeClaimTemplateSpec {
                    requirements: template.requirements,
                    node_class_ref: reference_to_v1(&template.node_class_ref),
                    taints: template.taints,
                    startup_taints: template.startup_taints,
                    expire_after: old_disruption.expire_after,
                    termination_grace_period: None,
                },
            },
            disruption: Disruption::of_older_version(consolidate_after, consolidation_policy, budgets),
            limits: old.spec.limits,
            weight: old.spec.weight,
            replicas: None,
        };
        self.push(Object::NodePool(Box::new(NodePool { metadata, spec, ..NodePool::default() })), None, kubelet);
    }

    /// A NodeClaim of v1beta1, or a Machine (whose pool was a Provisioner).
    pub(super) fn claim(&mut self, old: BetaNodeClaim, pool_origin: Option<&'static str>) {
        let mut metadata = self.metadata(old.metadata, None);
        if let Some(pool) = metadata.labels.get(labels::PROVISIONER_NAME).cloned() {
            metadata.labels.entry(labels::NODE_POOL.to_owned()).or_insert(pool);
        }
        annotate(&mut metadata, &old.spec.node_class_ref, old.spec.kubelet.as_ref());
        let spec = NodeClaimSpec {
            requirements: old.spec.requirements,
            node_class_ref: reference_to_v1(&old.spec.node_class_ref),
            resources: old.spec.resources,
            taints: old.spec.taints,
            startup_taints: old.spec.startup_taints,
            expire_after: NillableDuration::Never,
            termination_grace_period: None,
        };
        let status = if self.options.purpose == Purpose::OnRead { old.status } else { Default::default() };
        self.claims.push((self.slots.len(), pool_origin));
        self.push(Object::NodeClaim(Box::new(NodeClaim { metadata, spec, status })), None, None);
    }

    /// Gives converted claims the expiry of the pool in their label; without such a pool they never expire.
    pub(super) fn set_expiry_of_claims(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        if claims.is_empty() {
            return;
        }
        // By name and origin of the pool; of several the first counts.
        let mut expiries: BTreeMap<(String, Option<&'static str>), NillableDuration> = BTreeMap::new();
        for slot in &self.slots {
            if let Object::NodePool(pool) = &slot.object {
                let expiry = || pool.spec.template.spec.expire_after.clone();
                expiries.entry((pool.metadata.name.clone(), slot.origin)).or_insert_with(expiry);
            }
        }
        for (position, origin) in claims {
            let Object::NodeClaim(claim) = &mut self.slots[position].object else { continue };
            if let Some(expiry) = claim.node_pool().and_then(|name| expiries.get(&(name.to_owned(), origin))) {
                claim.spec.expire_after.clone_from(expiry);
            }
        }
    }
}

fn provisioner_spec(spec: ProvisionerSpec, reference: &LegacyReference, purpose: Purpose) -> NodePoolSpec {
    let consolidates = spec.consolidation.and_then(|consolidation| consolidation.enabled) == Some(true);
    let (consolidation_policy, consolidate_after) = match (consolidates, spec.ttl_seconds_after_empty) {
        (true, _) => (ConsolidationPolicy::WhenEmptyOrUnderutilized, NillableDuration::from_secs(0)),
        (false, Some(seconds)) => (ConsolidationPolicy::WhenEmpty, NillableDuration::from_secs(seconds)),
        (false, None) => (ConsolidationPolicy::WhenEmpty, NillableDuration::Never),
    };
    NodePoolSpec {
        template: NodeClaimTemplate {
            metadata: TemplateMeta { labels: spec.labels, annotations: spec.annotations },
            spec: NodeClaimTemplateSpec {
                requirements: spec.requirements,
                node_class_ref: reference_to_v1(reference),
                taints: spec.taints,
                startup_taints: spec.startup_taints,
                expire_after: spec.ttl_seconds_until_expired.map_or(NillableDuration::Never, NillableDuration::from_secs),
                termination_grace_period: None,
            },
        },
        disruption: Disruption::of_older_version(consolidate_after, consolidation_policy, vec![provisioner_budget(purpose)]),
        limits: spec.limits.unwrap_or_default().resources,
        weight: spec.weight,
        replicas: None,
    }
}

/// Provisioners had no budget: all their empty nodes were removed together. A pool converted on read keeps that; a printed manifest
/// gets the default budget.
fn provisioner_budget(purpose: Purpose) -> Budget {
    let reasons = (purpose == Purpose::OnRead).then(|| vec!["Drifted".to_owned(), "Underutilized".to_owned()]);
    Budget { reasons, ..Budget::default() }
}

/// Adds the requirements that v1alpha5 added at admission, in its order, unless one for the key, or its deprecated form, exists.
fn add_defaults(requirements: &mut Vec<Requirement>) {
    let has = |requirements: &[Requirement], keys: &[&str]| {
        requirements.iter().any(|requirement| keys.contains(&labels::normalized(&requirement.key)))
    };
    for (key, value) in [(labels::OS, "linux"), (labels::ARCH, "amd64"), (labels::CAPACITY_TYPE, labels::CAPACITY_ON_DEMAND)] {
        if !has(requirements, &[key]) {
            requirements.push(Requirement::is_in(key, [value]));
        }
    }
    if !has(requirements, &[labels::INSTANCE_TYPE, labels::INSTANCE_FAMILY, labels::INSTANCE_CATEGORY, labels::INSTANCE_GENERATION]) {
        requirements.push(Requirement::is_in(labels::INSTANCE_CATEGORY, ["c", "m", "r"]));
        let generation = labels::INSTANCE_GENERATION.to_owned();
        requirements.push(Requirement { key: generation, operator: Operator::Gt, values: vec!["2".to_owned()], min_values: None });
    }
}

/// An old reference means an EC2NodeClass, whatever kind it names; other groups are kept.
fn reference_to_v1(old: &LegacyReference) -> NodeClassReference {
    let group = match old.api_version.split_once('/').map_or(old.api_version.as_str(), |(group, _)| group) {
        "" => labels::AWS_DOMAIN,
        group => group,
    };
    let kind = match old.kind.as_str() {
        "" | "AWSNodeTemplate" => "EC2NodeClass",
        kind => kind,
    };
    NodeClassReference { group: group.to_owned(), kind: kind.to_owned(), name: old.name.clone() }
}

/// Keeps settings without a field in v1 as annotations.
fn annotate(metadata: &mut ObjectMeta, reference: &LegacyReference, kubelet: Option<&Kubelet>) {
    if let Ok(json) = serde_json::to_string(reference) {
        metadata.annotations.insert(REFERENCE_ANNOTATION.to_owned(), json);
    }
    if let Some(json) = kubelet.and_then(Kubelet::to_annotation) {
        metadata.annotations.insert(KUBELET_ANNOTATION.to_owned(), json);
    }
}
