//! Objects that were written as v1beta1 and are read as v1: an API server without a conversion webhook changes nothing of them but
//! their version (ADR 0040).

use super::{BetaNodeClaim, BetaNodeClass, BetaNodePool, LegacyObject};
use crate::k8s::Kind;
use crate::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use crate::manifest::Object;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Families that v1 has no more.
const FAMILIES_BEFORE_V1: [&str; 3] = ["Ubuntu", "Ubuntu2004", "Ubuntu2204"];

/// A kind of v1 that v1beta1 has as well.
pub trait Versioned: Kind + DeserializeOwned + Send {
    /// The kind in v1beta1.
    type Before: Kind + DeserializeOwned + Send;

    /// Whether an object that was read as v1 was written as v1beta1: v1 would not have let it pass.
    fn is_before(object: &Value) -> bool;

    /// The same for an object that was parsed as v1. Of pools and claims of v1beta1 none can be.
    fn is_parsed_before(&self) -> bool {
        false
    }

    /// The object as one of any kind.
    fn into_object(self) -> Object;
    /// The same for one of v1beta1.
    fn before_into_object(before: Self::Before) -> Object;
}

impl Versioned for NodePool {
    type Before = BetaNodePool;

    fn is_before(object: &Value) -> bool {
        has_no_group(object.pointer("/spec/template/spec/nodeClassRef"))
    }
    fn into_object(self) -> Object {
        Object::NodePool(Box::new(self))
    }
    fn before_into_object(before: BetaNodePool) -> Object {
        Object::Legacy(LegacyObject::NodePool(Box::new(before)))
    }
}

impl Versioned for NodeClaim {
    type Before = BetaNodeClaim;

    fn is_before(object: &Value) -> bool {
        has_no_group(object.pointer("/spec/nodeClassRef"))
    }
    fn into_object(self) -> Object {
        Object::NodeClaim(Box::new(self))
    }
    fn before_into_object(before: BetaNodeClaim) -> Object {
        Object::Legacy(LegacyObject::NodeClaim(Box::new(before)))
    }
}

/// Where a class could have been written in either version, both mean the same.
impl Versioned for Ec2NodeClass {
    type Before = BetaNodeClass;

    fn is_before(object: &Value) -> bool {
        let spec = &object["spec"];
        let has_terms = spec["amiSelectorTerms"].as_array().is_some_and(|terms| !terms.is_empty());
        spec.is_object() && (!has_terms || spec["amiFamily"].as_str().is_some_and(|family| FAMILIES_BEFORE_V1.contains(&family)))
    }
    fn is_parsed_before(&self) -> bool {
        let spec = &self.spec;
        spec.ami_selector_terms.is_empty() || spec.ami_family.as_deref().is_some_and(|family| FAMILIES_BEFORE_V1.contains(&family))
    }
    fn into_object(self) -> Object {
        Object::NodeClass(Box::new(self))
    }
    fn before_into_object(before: BetaNodeClass) -> Object {
        Object::Legacy(LegacyObject::NodeClass(Box::new(before)))
    }
}

/// The version in which an object of v1 was written, if that was v1beta1. Only of objects that come from a server: in a manifest it is a
/// mistake.
#[must_use]
pub fn version_before(api_version: &str, kind: &str, object: &Value) -> Option<&'static str> {
    let of = |api: &str, is_before: fn(&Value) -> bool, before| (api == api_version && is_before(object)).then_some(before);
    object.pointer("/metadata/uid")?;
    match kind {
        NodePool::KIND => of(NodePool::API_VERSION, NodePool::is_before, BetaNodePool::API_VERSION),
        NodeClaim::KIND => of(NodeClaim::API_VERSION, NodeClaim::is_before, BetaNodeClaim::API_VERSION),
        Ec2NodeClass::KIND => of(Ec2NodeClass::API_VERSION, Ec2NodeClass::is_before, BetaNodeClass::API_VERSION),
        _ => None,
    }
}

fn has_no_group(reference: Option<&Value>) -> bool {
    reference.and_then(Value::as_object).is_some_and(|reference| !reference.contains_key("group"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_that_v1_would_refuse_was_written_before() {
        let pool = |reference: Value| json!({"spec": {"template": {"spec": {"nodeClassRef": reference}}}});
        assert!(NodePool::is_before(&pool(json!({"name": "a"}))));
        assert!(NodePool::is_before(&pool(json!({"name": "a", "apiVersion": "karpenter.k8s.aws/v1beta1"}))));
        assert!(!NodePool::is_before(&pool(json!({"name": "a", "group": "karpenter.k8s.aws"}))));
        assert!(!NodePool::is_before(&pool(json!("a"))), "it is unreadable in either version");
        assert!(NodeClaim::is_before(&json!({"spec": {"nodeClassRef": {"name": "a"}}})));
        assert!(!NodeClaim::is_before(&json!({"spec": {}})));
    }

    #[test]
    fn a_class_was_written_before_if_it_has_no_terms_or_a_family_that_v1_has_no_more() {
        for (spec, before) in [
            (json!({"amiFamily": "AL2"}), true),
            (json!({"amiFamily": "AL2", "amiSelectorTerms": []}), true),
            (json!({"amiFamily": "AL2", "amiSelectorTerms": [{"id": "ami-1"}]}), false),
            (json!({"amiFamily": "Ubuntu", "amiSelectorTerms": [{"id": "ami-1"}]}), true),
            (json!({"amiFamily": "OfTomorrow", "amiSelectorTerms": [{"id": "ami-1"}]}), false),
        ] {
            let object = json!({"metadata": {"name": "a"}, "spec": spec});
            assert_eq!(Ec2NodeClass::is_before(&object), before, "{object}");
            let parsed: Ec2NodeClass = serde_json::from_value(object).expect("v1 can read each");
            assert_eq!(parsed.is_parsed_before(), before);
        }
    }

    #[test]
    fn only_a_server_shows_an_object_in_another_version_than_it_was_written_in() {
        let pool = json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"nodeClassRef": {"name": "a"}}}}});
        assert_eq!(version_before("karpenter.sh/v1", "NodePool", &pool), None);
        let mut stored = pool;
        stored["metadata"]["uid"] = "u".into();
        assert_eq!(version_before("karpenter.sh/v1", "NodePool", &stored), Some("karpenter.sh/v1beta1"));
        assert_eq!(version_before("karpenter.sh/v1beta1", "NodePool", &stored), None);
    }
}
