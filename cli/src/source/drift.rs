//! Machines of NodePools and EC2NodeClasses that --changed changes: their templates differ from what was launched.

use super::documents::Document;
use crate::money;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;
use whittle_api::k8s::Kind as _;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::{ClusterObjects, ConditionStatus, conditions, hashes, labels, validate};
use whittle_model::disruption::CloudDrift;
use whittle_units::Timestamp;

/// The objects whose templates are changed.
#[derive(Debug, Default)]
pub(super) struct ChangedTemplates {
    /// The new hashes, by name.
    pools: BTreeMap<String, String>,
    /// By name.
    classes: BTreeMap<String, ChangedClass>,
}

/// A class as it was and as it is.
#[derive(Debug)]
struct ChangedClass {
    before: Ec2NodeClass,
    after: Ec2NodeClass,
}

/// Whether what is launched from an object differs from what was launched before it was changed.
pub(super) fn differs(before: &Document, after: &Document) -> bool {
    let hash = |document: &Document| template_hash(document.kind(), &stored(document, &document.value)?);
    hash(before).zip(hash(after)).is_some_and(|(before, after)| before != after)
}

/// An object as a server stores it, with the defaults that a file leaves out.
fn stored(document: &Document, value: &Value) -> Option<Value> {
    let mut stored = value.clone();
    stored["spec"] = validate::defaulted(document.version(), document.kind(), value)?;
    Some(stored)
}

fn template_hash(kind: &str, stored: &Value) -> Option<String> {
    match kind {
        NodePool::KIND => NodePool::deserialize(stored).ok().map(|pool| hashes::node_pool(&pool)),
        // The certificates that nodes trust stay what they were.
        Ec2NodeClass::KIND => Ec2NodeClass::deserialize(stored).ok().map(|class| hashes::node_class(&class, "")),
        _ => None,
    }
}

impl ChangedTemplates {
    pub(super) fn among(documents: &[Document]) -> Self {
        let mut changed = Self::default();
        for (document, before) in documents.iter().filter_map(|document| Some((document, document.before.as_ref()?))) {
            let Some(after) = stored(document, &document.value) else { continue };
            if document.kind() == NodePool::KIND {
                changed.pools.extend(template_hash(document.kind(), &after).map(|hash| (document.name(), hash)));
            } else if let Some(before) = stored(document, before) {
                let class = |stored: &Value| Ec2NodeClass::deserialize(stored).ok();
                let both = class(&before).zip(class(&after));
                changed.classes.extend(both.map(|(before, after)| (document.name(), ChangedClass { before, after })));
            }
        }
        changed
    }

    /// What the change makes of the costs of a machine's volumes, which are part of no price.
    pub(super) fn volume_costs(&self) -> Vec<String> {
        let remark = |(name, ChangedClass { before, after }): (&String, &ChangedClass)| {
            let [was, is] = [before, after].map(whittle_solver::volume_cost);
            let change = money::signed(money::a_month(was, is));
            let line =
                format!("EC2NodeClass {name}: the volumes of each machine cost {is} instead of {was}, {change} a month: no price has them");
            (was != is).then_some(line)
        };
        self.classes.iter().filter_map(remark).collect()
    }

    /// Writes what the controllers of a cluster would find: the new hash of a pool, and which machines of a class have drifted. Returns
    /// what cannot be known from manifests.
    pub(super) fn note(&self, objects: &mut ClusterObjects, now: Timestamp) -> Vec<String> {
        for pool in &mut objects.node_pools {
            let Some(hash) = self.pools.get(&pool.metadata.name) else { continue };
            pool.metadata.annotations.insert(labels::NODE_POOL_HASH.to_owned(), hash.clone());
            let version = || hashes::NODE_POOL_VERSION.to_owned();
            pool.metadata.annotations.entry(labels::NODE_POOL_HASH_VERSION.to_owned()).or_insert_with(version);
        }
        let Some(reason) = CloudDrift::NodeClass.reason() else { return Vec::new() };
        let mut unknown: BTreeMap<&str, usize> = BTreeMap::new();
        for claim in objects.node_claims.iter_mut().filter(|claim| claim.metadata.label(labels::PROVISIONER_NAME).is_none()) {
            let Some((name, class)) = self.classes.get_key_value(&claim.spec.node_class_ref.name) else { continue };
            let Some(has_drifted) = class.has_drifted(claim) else {
                *unknown.entry(name).or_default() += 1;
                continue;
            };
            let all = &mut claim.status.conditions;
            if has_drifted {
                conditions::set(all, conditions::DRIFTED, ConditionStatus::True, reason, reason, now);
            } else {
                all.retain(|condition| condition.type_ != conditions::DRIFTED || condition.reason != reason);
            }
        }
        let remark = |(class, machines)| {
            format!(
                "EC2NodeClass {class}: {machines} of its machines had drifted before the change, and count as before: whether they match it now is \
                 not known here"
            )
        };
        unknown.into_iter().map(remark).collect()
    }
}

impl ChangedClass {
    /// Whether a machine differs from the class as it is now; `None` if that is not known.
    fn has_drifted(&self, claim: &NodeClaim) -> Option<bool> {
        let was = self.before.metadata.annotation(labels::NODE_CLASS_HASH);
        let Some((launched_with, was)) = claim.metadata.annotation(labels::NODE_CLASS_HASH).zip(was) else { return Some(true) };
        if launched_with == was {
            return Some(true);
        }
        let is_ours = |version: Option<&str>| version == Some(hashes::NODE_CLASS_VERSION);
        let versions = [&self.before.metadata, &claim.metadata].map(|metadata| metadata.annotation(labels::NODE_CLASS_HASH_VERSION));
        let hash = versions.into_iter().all(is_ours).then(|| hashes::changed_node_class(was, &self.before, &self.after)).flatten();
        hash.map(|hash| launched_with != hash)
    }
}
