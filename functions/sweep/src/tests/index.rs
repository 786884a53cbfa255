//! What is looked for by a name, beside what a scan of the lists would find.

use super::{instance, node, registered, shown};
use crate::index::Index;
use whittle_api::k8s::Node;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_testkit::stored;

fn named(name: &str, provider_id: &str) -> Node {
    let mut node = Node { metadata: ObjectMeta::named(name), ..node(true) };
    node.spec.provider_id = provider_id.into();
    node
}

#[test]
fn what_several_have_in_common_is_found_in_the_order_of_the_lists() {
    let mut other = registered();
    other.key.name = "default-0".into();
    other.spec.standalone_uid = Some("second".into());
    let claims = stored(vec![registered(), other.clone()]);
    let of = |uid: &str| {
        let mut object = shown(&other);
        object.metadata.uid = uid.into();
        object
    };
    let objects = ClusterObjects {
        nodes: vec![named("b", "aws:///z/i-1"), named("c", ""), named("a", "aws:///z/i-1")],
        node_claims: vec![of("first"), of("second"), shown(&claims[0].value)],
        ..ClusterObjects::default()
    };
    let index = Index::of(&claims, &[], &objects, &[]);
    let names = |nodes: &[&Node]| nodes.iter().map(|node| node.metadata.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(index.nodes_of(&claims[0].value)), ["b", "a"]);
    assert_eq!(names(index.nodes_at("")), ["c"]);
    assert!(index.nodes_at("aws:///z/i-2").is_empty());
    assert_eq!(index.mirror_of(&other).map(|object| object.metadata.uid.as_str()), Some("second"), "not its predecessor of the same name");
    let at: Vec<_> = index.claims_at("aws:///z/i-1").iter().map(|claim| claim.value.key.name.as_str()).collect();
    assert_eq!(at, ["default-1", "default-0"]);
    assert_eq!(index.node_claims_at("aws:///z/i-1").len(), 3);
}

#[test]
fn only_instances_that_are_alive_run_and_serve_the_claim_in_their_tag() {
    let tagged = |id: &str, state: InstanceState| {
        let mut instance = Instance { state, ..instance(id) };
        instance.tags.insert(labels::TAG_NODE_CLAIM.to_owned(), "default-1".to_owned());
        instance
    };
    let instances = [tagged("i-1", InstanceState::Terminated), tagged("i-2", InstanceState::Running)];
    let (claims, objects, unreadable) = (stored(vec![registered()]), ClusterObjects::default(), ["odd".to_owned()]);
    let index = Index::of(&claims, &unreadable, &objects, &instances);
    assert!(index.runs("aws:///z/i-2") && !index.runs("aws:///z/i-1"));
    assert_eq!(index.tagged("default-1").iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["i-2"]);
    assert!(index.instance(&"i-1".into()).is_some() && index.instance(&"i-3".into()).is_none());
    assert!(index.is_claimed(&"i-1".into()) && !index.is_claimed(&"i-2".into()));
    assert!(index.has_claim("odd") && index.has_claim("default-1") && !index.has_claim("default-2"));
}
