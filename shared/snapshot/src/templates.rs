//! Conditions of AWSNodeTemplates. Their API has none, so that no API server keeps any: why a template cannot be used is only in the
//! record of the class that it was converted to.

use whittle_api::karpenter::Ec2NodeClass;
use whittle_claims::NodeClassRecord;
use whittle_ports::Mode;

/// Gives classes that were converted from AWSNodeTemplates the status that `refresh` found. Other classes have it already, except in shadow
/// mode, which writes none: their status is then old, or somebody else's.
pub(crate) fn show_status(classes: &mut [Ec2NodeClass], records: &[NodeClassRecord], mode: Mode) {
    let lacks = |class: &&mut Ec2NodeClass| mode == Mode::Shadow || class.is_converted_template() && class.status.conditions.is_empty();
    for class in classes.iter_mut().filter(lacks) {
        let name = NodeClassRecord::name_of(class);
        let of_class =
            |record: &&NodeClassRecord| NodeClassRecord::name_of(&record.class) == name && record.class.metadata.uid == class.metadata.uid;
        if let Some(record) = records.iter().find(of_class) {
            class.status.clone_from(&record.class.status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use whittle_api::k8s::Kind;
    use whittle_api::karpenter::NodePool;
    use whittle_api::{ClusterObjects, ObjectMeta, labels};
    use whittle_model::scheduling::Unready;

    fn converted(from: &str, uid: &str) -> ObjectMeta {
        let annotations = [(labels::CONVERTED_FROM.to_owned(), from.to_owned())].into();
        ObjectMeta { uid: uid.to_owned(), annotations, ..ObjectMeta::named("main") }
    }

    /// What `refresh` found about a class.
    fn record(metadata: ObjectMeta) -> NodeClassRecord {
        let condition = json!({"type": "SubnetsReady", "status": "False", "reason": "SubnetsNotFound", "message": "no subnet matches"});
        let class = json!({"metadata": metadata, "status": {"conditions": [condition]}});
        let record = json!({
            "class": class, "subnets": [], "security_groups": [], "amis": [], "instance_profile": "", "hash": "",
            "problems": ["no subnet matches"], "resolved_at": "2026-01-05T09:00:00Z",
        });
        serde_json::from_value(record).unwrap()
    }

    /// Why a Provisioner creates no nodes, whose template the API server keeps without a status.
    fn said(records: &[NodeClassRecord]) -> String {
        let class = Ec2NodeClass { metadata: converted("AWSNodeTemplate", "uid"), ..Ec2NodeClass::default() };
        let mut pool = NodePool { metadata: converted("Provisioner", "pool"), ..NodePool::default() };
        let reference = &mut pool.spec.template.spec.node_class_ref;
        (reference.kind, reference.name) = (Ec2NodeClass::KIND.to_owned(), "main".to_owned());
        let mut objects = ClusterObjects { node_classes: vec![class], ..ClusterObjects::default() };
        show_status(&mut objects.node_classes, records, Mode::Active);
        Unready::of(&pool, &objects).map(|why| why.to_string()).unwrap_or_default()
    }

    #[test]
    fn pods_that_wait_for_a_template_are_told_what_it_lacks() {
        let looked_up = "AWSNodeTemplate \"main\" is being looked up, which takes some seconds";
        assert_eq!(said(&[]), looked_up);
        let not_ready = "AWSNodeTemplate \"main\" is not ready: SubnetsNotFound: no subnet matches";
        let unrelated = record(ObjectMeta { uid: "uid".to_owned(), ..ObjectMeta::named("main") });
        assert_eq!(said(&[unrelated.clone(), record(converted("AWSNodeTemplate", "uid"))]), not_ready);
        assert_eq!(said(&[unrelated, record(converted("AWSNodeTemplate", "of-an-earlier-object"))]), looked_up);
    }

    #[test]
    fn a_class_has_its_own_status_but_in_shadow_mode() {
        let mut classes =
            [Ec2NodeClass { metadata: ObjectMeta { uid: "uid".to_owned(), ..ObjectMeta::named("main") }, ..Ec2NodeClass::default() }];
        let found = record(classes[0].metadata.clone());
        show_status(&mut classes, std::slice::from_ref(&found), Mode::Active);
        assert!(classes[0].status.conditions.is_empty());
        show_status(&mut classes, &[found], Mode::Shadow);
        assert!(!classes[0].status.conditions.is_empty(), "shadow mode writes none");
    }
}
