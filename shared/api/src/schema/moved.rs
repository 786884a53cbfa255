//! Fields and words that another version of a kind has, or another kind, and what stands for them here: the errors of people who change the
//! version of a manifest, or copy a part of an older one. A list of the fields that are known would not help them.

use super::Kind;
use crate::field::{FieldError, FieldPath, Stage, Step};

/// Paths of fields, without the places in lists, and what to do instead.
type Table = &'static [(&'static str, &'static str)];

const BELONGS_INTO_TEMPLATE: &str = "of a NodePool it belongs into spec.template.spec: move it there";
const LABELS: &str = "labels of nodes belong into spec.template.metadata.labels: move them there";
const ANNOTATIONS: &str = "annotations of nodes belong into spec.template.metadata.annotations: move them there";
const NO_OPERATOR: &str = "only tolerations have an operator: leave it out of the taint";
const IN_DISRUPTION: &str = "it belongs into spec.disruption: move it there";
const KUBELET_OF_CLASS: &str = "since v1 it is spec.kubelet of the EC2NodeClass: move it there";

/// What NodePools of no version have.
const NODE_POOLS: Table = &[
    ("spec.requirements", BELONGS_INTO_TEMPLATE),
    ("spec.taints", BELONGS_INTO_TEMPLATE),
    ("spec.startupTaints", BELONGS_INTO_TEMPLATE),
    ("spec.nodeClassRef", BELONGS_INTO_TEMPLATE),
    ("spec.template.requirements", BELONGS_INTO_TEMPLATE),
    ("spec.template.taints", BELONGS_INTO_TEMPLATE),
    ("spec.template.startupTaints", BELONGS_INTO_TEMPLATE),
    ("spec.template.nodeClassRef", BELONGS_INTO_TEMPLATE),
    ("spec.labels", LABELS),
    ("spec.template.spec.labels", LABELS),
    ("spec.template.labels", LABELS),
    ("spec.annotations", ANNOTATIONS),
    ("spec.template.spec.annotations", ANNOTATIONS),
    ("spec.template.spec.taints.operator", NO_OPERATOR),
    ("spec.template.spec.startupTaints.operator", NO_OPERATOR),
    ("spec.consolidationPolicy", IN_DISRUPTION),
    ("spec.consolidateAfter", IN_DISRUPTION),
    ("spec.budgets", IN_DISRUPTION),
    ("spec.template.spec.disruption", "it is spec.disruption, beside the template: move it there"),
    ("spec.template.disruption", "it is spec.disruption, beside the template: move it there"),
    ("spec.template.spec.limits", "it is spec.limits, beside the template: move it there"),
    ("spec.template.limits", "it is spec.limits, beside the template: move it there"),
    ("spec.template.spec.weight", "it is spec.weight, beside the template: move it there"),
    ("spec.template.weight", "it is spec.weight, beside the template: move it there"),
    ("spec.providerRef", "it is a field of Provisioners: name the EC2NodeClass in spec.template.spec.nodeClassRef"),
    (
        "spec.ttlSecondsAfterEmpty",
        "it is a field of Provisioners: write spec.disruption with consolidationPolicy: WhenEmpty and consolidateAfter, such as 30s",
    ),
    ("spec.consolidation", "it is a field of Provisioners: write spec.disruption.consolidationPolicy instead"),
];

const NODE_POOLS_V1: Table = &[
    ("spec.template.spec.kubelet", KUBELET_OF_CLASS),
    ("spec.template.spec.kubeletConfiguration", KUBELET_OF_CLASS),
    ("spec.kubeletConfiguration", KUBELET_OF_CLASS),
    ("spec.kubelet", KUBELET_OF_CLASS),
    ("spec.expireAfter", BELONGS_INTO_TEMPLATE),
    ("spec.template.expireAfter", BELONGS_INTO_TEMPLATE),
    ("spec.terminationGracePeriod", BELONGS_INTO_TEMPLATE),
    ("spec.template.terminationGracePeriod", BELONGS_INTO_TEMPLATE),
    ("spec.disruption.expireAfter", "since v1 it is spec.template.spec.expireAfter: move it there"),
    ("spec.disruption.terminationGracePeriod", "it is spec.template.spec.terminationGracePeriod: move it there"),
    ("spec.ttlSecondsUntilExpired", "it is a field of Provisioners: write spec.template.spec.expireAfter, such as 720h"),
    ("spec.template.spec.nodeClassRef.apiVersion", "since v1 it is group, without a version: write group: karpenter.k8s.aws"),
];

const NODE_POOLS_V1BETA1: Table = &[
    (
        "spec.template.spec.expireAfter",
        "before v1 it is spec.disruption.expireAfter: move it there, or write the NodePool as karpenter.sh/v1",
    ),
    ("spec.template.spec.terminationGracePeriod", "it exists since v1: write the NodePool as karpenter.sh/v1"),
    ("spec.replicas", "it exists since v1: write the NodePool as karpenter.sh/v1"),
    ("spec.ttlSecondsUntilExpired", "it is a field of Provisioners: write spec.disruption.expireAfter, such as 720h"),
    (
        "spec.template.spec.nodeClassRef.group",
        "before v1 it is apiVersion: write apiVersion: karpenter.k8s.aws/v1beta1, or the NodePool as karpenter.sh/v1",
    ),
    ("spec.template.spec.kubeletConfiguration", "of a NodePool of v1beta1 it is called kubelet"),
];

/// What classes of no version have.
const CLASSES: Table = &[
    ("spec.subnetSelector", "it is a field of AWSNodeTemplates: write a list of terms, as in subnetSelectorTerms: [{tags: {KEY: VALUE}}]"),
    (
        "spec.securityGroupSelector",
        "it is a field of AWSNodeTemplates: write a list of terms, as in securityGroupSelectorTerms: [{tags: {KEY: VALUE}}]",
    ),
    ("spec.amiSelector", "it is a field of AWSNodeTemplates: write a list of terms, as in amiSelectorTerms: [{tags: {KEY: VALUE}}]"),
    (
        "spec.launchTemplate",
        "launch templates of your own are not used: write what it holds (AMI, user data, groups, disks) into the class",
    ),
    ("spec.instanceTypes", "NodePools choose types: require node.kubernetes.io/instance-type there"),
    ("spec.requirements", "they belong into spec.template.spec of the NodePool: move them there"),
];

const CLASSES_V1BETA1: Table =
    &[("spec.kubelet", "before v1 it is spec.template.spec.kubelet of the NodePool: move it there, or write both objects as v1")];

const PROVISIONERS: Table = &[
    ("spec.template", "it is a field of NodePools: write the object as a NodePool of karpenter.sh/v1"),
    ("spec.disruption", "it is a field of NodePools: write ttlSecondsAfterEmpty, or consolidation: {enabled: true}"),
    ("spec.kubelet", "of a Provisioner it is called kubeletConfiguration"),
    ("spec.nodeClassRef", "of a Provisioner it is called providerRef, and names an AWSNodeTemplate"),
    ("spec.limits.cpu", "limits of a Provisioner stand in spec.limits.resources: move it there"),
    ("spec.limits.memory", "limits of a Provisioner stand in spec.limits.resources: move it there"),
];

const TEMPLATES: Table = &[
    ("spec.subnetSelectorTerms", "of an AWSNodeTemplate it is subnetSelector, one map of tags; terms are those of an EC2NodeClass"),
    (
        "spec.securityGroupSelectorTerms",
        "of an AWSNodeTemplate it is securityGroupSelector, one map of tags; terms are those of an EC2NodeClass",
    ),
    ("spec.amiSelectorTerms", "of an AWSNodeTemplate it is amiSelector, one map of tags; terms are those of an EC2NodeClass"),
    ("spec.role", "an AWSNodeTemplate has instanceProfile instead; a role is that of an EC2NodeClass"),
];

fn tables(kind: &Kind) -> [Table; 2] {
    match (kind.kind, kind.api_version) {
        ("NodePool", "karpenter.sh/v1") => [NODE_POOLS, NODE_POOLS_V1],
        ("NodePool", _) => [NODE_POOLS, NODE_POOLS_V1BETA1],
        ("EC2NodeClass", "karpenter.k8s.aws/v1") => [CLASSES, &[]],
        ("EC2NodeClass", _) => [CLASSES, CLASSES_V1BETA1],
        ("Provisioner", _) => [PROVISIONERS, &[]],
        ("AWSNodeTemplate", _) => [TEMPLATES, &[]],
        _ => [&[], &[]],
    }
}

/// A value that is none here: the version or kind of the object, its field, how the error begins, and what to do instead.
const VALUES: [(&str, &str, &str, &str, &str); 4] = [
    (
        "karpenter.sh/v1",
        "NodePool",
        "spec.disruption.consolidationPolicy",
        "\"WhenUnderutilized\"",
        "since v1 it is called WhenEmptyOrUnderutilized",
    ),
    (
        "karpenter.sh/v1beta1",
        "NodePool",
        "spec.disruption.consolidationPolicy",
        "\"WhenEmptyOrUnderutilized\"",
        "before v1 it is called WhenUnderutilized: write that, or the NodePool as karpenter.sh/v1",
    ),
    (
        "karpenter.k8s.aws/v1",
        "EC2NodeClass",
        "spec.amiFamily",
        "\"Ubuntu\"",
        "since v1 Ubuntu is no family: select its images with amiSelectorTerms and write AL2, whose bootstrap script they have",
    ),
    (
        "karpenter.sh/v1",
        "NodePool",
        "spec.limits.resources",
        "{",
        "limits of a NodePool stand in spec.limits itself: move what is in resources there",
    ),
];

/// Says of unknown fields and words where they belong and what they are called now, if that is known.
pub(crate) fn explain(kind: &Kind, errors: &mut [FieldError]) {
    for error in errors {
        let path = keys(&error.path);
        let told = if error.stage == Stage::Unknown { of_field(kind, &path) } else { of_value(kind, &path, &error.message) };
        if let Some(told) = told {
            error.message = told;
        }
    }
}

fn of_field(kind: &Kind, path: &str) -> Option<String> {
    let (_, remedy) = tables(kind).into_iter().flatten().find(|(known, _)| *known == path)?;
    Some(format!("there is no such field: {remedy}"))
}

fn of_value(kind: &Kind, path: &str, message: &str) -> Option<String> {
    let wanted = (kind.api_version, kind.kind, path);
    let mut of_field = VALUES.into_iter().filter(|(version, name, field, ..)| (*version, *name, *field) == wanted);
    let (.., remedy) = of_field.find(|(_, _, _, begins, _)| message.starts_with(*begins))?;
    // What was said stays, without the advice.
    let said = message.split(": ").next().unwrap_or_default();
    Some(format!("{said}: {remedy}"))
}

/// A path without its places in lists.
fn keys(path: &FieldPath) -> String {
    let key = |step: &Step| match step {
        Step::Key(key) => Some(key.clone()),
        Step::Index(_) => None,
    };
    path.steps().iter().filter_map(key).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::kinds;
    use crate::validate::document;
    use serde_json::{Map, Value, json};

    /// An object that has a value at a path and nothing else.
    fn with(path: &str, value: Value) -> Value {
        path.rsplit('.').fold(value, |inner, key| {
            let is_list = ["taints", "startupTaints"].contains(&key) && inner.is_object();
            let inner = if is_list { Value::Array(vec![inner]) } else { inner };
            Value::Object(Map::from_iter([(key.to_owned(), inner)]))
        })
    }

    #[track_caller]
    fn message(kind: &Kind, path: &str, value: Value) -> String {
        let errors = document(kind.api_version, kind.kind, &with(path, value));
        errors.iter().find(|error| keys(&error.path) == path).map(|error| error.message.clone()).unwrap_or_default()
    }

    /// A field that a version has after all would be refused for nothing.
    #[test]
    fn each_field_of_the_tables_is_unknown_to_its_kind_and_explained() {
        let mut explained = 0;
        for kind in kinds() {
            for (path, remedy) in tables(kind).into_iter().flatten() {
                let wanted = format!("there is no such field: {remedy}");
                assert_eq!(message(kind, path, json!(1)), wanted, "{} {} {path}", kind.api_version, kind.kind);
                explained += 1;
            }
        }
        assert!(60 < explained, "{explained}");
    }

    #[test]
    fn words_of_another_version_are_told_todays() {
        for (version, name, path, begins, remedy) in VALUES {
            let kind = crate::schema::find(version, name).expect(name);
            let value = if begins == "{" { json!({"cpu": 10}) } else { json!(begins.trim_matches('"')) };
            let told = message(kind, path, value);
            assert!(told.starts_with(begins) && told.ends_with(&format!(": {remedy}")), "{told}");
            // What is merely wrong is told what is known.
            assert!(!message(kind, path, json!("Sometimes")).contains(remedy));
        }
    }

    #[test]
    fn what_no_version_has_is_told_what_is_known() {
        let kind = crate::schema::find("karpenter.sh/v1", "NodePool").expect("a kind");
        assert!(message(kind, "spec.template.spec.zone", json!(1)).starts_with("there is no such field here: known are requirements"));
        assert!(message(kind, "spec.weigth", json!(1)).ends_with("did you mean weight?"));
    }
}
