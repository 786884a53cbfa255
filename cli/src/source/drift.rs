//! Machines of NodePools and EC2NodeClasses that --changed changes: their templates differ from what was launched.

use super::documents::Document;
use std::collections::{BTreeMap, BTreeSet};
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
    classes: BTreeSet<String>,
}

/// Whether what is launched from an object differs from what was launched before it was changed.
pub(super) fn differs(before: &Document, after: &Document) -> bool {
    template_hash(before).zip(template_hash(after)).is_some_and(|(before, after)| before != after)
}

/// The hash of an object as a server stores it, with the defaults that a file leaves out.
fn template_hash(document: &Document) -> Option<String> {
    let stored = || {
        let mut value = document.value.clone();
        value["spec"] = validate::defaulted(document.version(), document.kind(), &document.value)?;
        Some(value)
    };
    match document.kind() {
        NodePool::KIND => serde_json::from_value(stored()?).ok().map(|pool: NodePool| hashes::node_pool(&pool)),
        // The certificates that nodes trust stay what they were.
        Ec2NodeClass::KIND => serde_json::from_value(stored()?).ok().map(|class: Ec2NodeClass| hashes::node_class(&class, "")),
        _ => None,
    }
}

impl ChangedTemplates {
    pub(super) fn among(documents: &[Document]) -> Self {
        let changed = documents.iter().filter(|document| document.template_changed);
        let (pools, classes): (Vec<&Document>, Vec<&Document>) = changed.partition(|document| document.kind() == NodePool::KIND);
        let hash = |pool: &Document| Some((pool.name(), template_hash(pool)?));
        Self { pools: pools.into_iter().filter_map(hash).collect(), classes: classes.into_iter().map(Document::name).collect() }
    }

    /// Writes what the controllers of a cluster would find: the new hash of a pool, and that machines of a class have drifted. Returns what
    /// nobody knows here.
    pub(super) fn note(&self, objects: &mut ClusterObjects, now: Timestamp) -> Vec<String> {
        for pool in &mut objects.node_pools {
            let Some(hash) = self.pools.get(&pool.metadata.name) else { continue };
            pool.metadata.annotations.insert(labels::NODE_POOL_HASH.to_owned(), hash.clone());
            let version = || hashes::NODE_POOL_VERSION.to_owned();
            pool.metadata.annotations.entry(labels::NODE_POOL_HASH_VERSION.to_owned()).or_insert_with(version);
        }
        let Some(reason) = CloudDrift::NodeClass.reason() else { return Vec::new() };
        let hash_of =
            |class: &Ec2NodeClass| Some((class.metadata.name.clone(), class.metadata.annotation(labels::NODE_CLASS_HASH)?.to_owned()));
        let before: BTreeMap<String, String> = objects.node_classes.iter().filter_map(hash_of).collect();
        let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
        let of_class = |claim: &&mut NodeClaim| {
            self.classes.contains(&claim.spec.node_class_ref.name) && claim.metadata.label(labels::PROVISIONER_NAME).is_none()
        };
        for claim in objects.node_claims.iter_mut().filter(of_class) {
            let class = &claim.spec.node_class_ref.name;
            let launched_with = claim.metadata.annotation(labels::NODE_CLASS_HASH);
            if launched_with.zip(before.get(class)).is_some_and(|(hash, before)| hash != before) {
                *unknown.entry(class.clone()).or_default() += 1;
            } else {
                conditions::set(&mut claim.status.conditions, conditions::DRIFTED, ConditionStatus::True, reason, reason, now);
            }
        }
        let told = |(class, machines)| {
            format!(
                "EC2NodeClass {class}: {machines} of its machines had drifted before the change, and count as before: whether they match it now is \
                 not known here"
            )
        };
        unknown.into_iter().map(told).collect()
    }
}
