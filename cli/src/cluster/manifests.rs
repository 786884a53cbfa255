//! The manifests of `infra` in the binary, and how they compare with what a cluster has.

use super::step::{Action, MARK};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The field manager of what is applied.
pub(crate) const MANAGER: &str = "whittle";

const CRDS: [&str; 7] = [
    include_str!("../../../infra/crds/karpenter.sh_nodepools.yaml"),
    include_str!("../../../infra/crds/karpenter.k8s.aws_ec2nodeclasses.yaml"),
    include_str!("../../../infra/crds/karpenter.sh_nodeclaims.yaml"),
    include_str!("../../../infra/crds/karpenter.sh_nodeoverlays.yaml"),
    include_str!("../../../infra/crds/autoscaling.x-k8s.io_capacitybuffers.yaml"),
    include_str!("../../../infra/crds/karpenter.sh_provisioners.yaml"),
    include_str!("../../../infra/crds/karpenter.k8s.aws_awsnodetemplates.yaml"),
];
const RBAC: &str = include_str!("../../../infra/cluster/rbac.yaml");
const GUARD: &str = include_str!("../../../infra/cluster/guard.yaml");
const FLOW: &str = include_str!("../../../infra/cluster/flow.yaml");
const WEBHOOK: &str = include_str!("../../../infra/cluster/webhook.yaml");
const WATCHER: &str = include_str!("../../../infra/watcher/watcher.yaml");
/// The only namespace of our objects.
pub(crate) const WATCHER_NAMESPACE: &str = "whittle";
/// What stands for the watcher's URL and role.
pub(crate) const WATCHER_URL: &str = "RELAY-URL";
pub(crate) const WATCHER_ROLE: &str = "ROLE-ARN";
const SAMPLE: &str = include_str!("../../../infra/sample.yaml");

/// The objects of a text; those of ours are valid, which a test shows.
fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    documents.filter_map(|document| serde_saphyr::from_str::<Value>(document).ok()).filter(Value::is_object).collect()
}

/// The CRDs, those that nodes need first.
pub(crate) fn crds() -> Vec<Value> {
    static PARSED: LazyLock<Vec<Value>> = LazyLock::new(|| CRDS.iter().flat_map(|text| objects(text)).collect());
    PARSED.clone()
}

pub(crate) fn rbac() -> Vec<Value> {
    objects(RBAC)
}

pub(crate) fn guard() -> Vec<Value> {
    objects(GUARD)
}

pub(crate) fn flow() -> Vec<Value> {
    objects(FLOW)
}

/// The doorbell of a cluster. `secret` is the cluster's own, no stored one.
pub(crate) fn webhook(host: &str, secret: &str, cluster: &str) -> Vec<Value> {
    objects(&WEBHOOK.replace("RELAY-HOST/SECRET/CLUSTER", &format!("{host}/{secret}/{cluster}")))
}

/// The watcher's objects, its namespace first.
pub(crate) fn watcher(cluster: &str, url: &str, role: &str, image: &str) -> Vec<Value> {
    let filled = WATCHER.replace("\"CLUSTER\"", &format!("{cluster:?}")).replace(WATCHER_URL, url).replace(WATCHER_ROLE, role);
    objects(&filled.replace("image: IMAGE", &format!("image: {}", json!(image))))
}

/// A node class and a pool. Without tags to go by, subnets and security groups are named by their ids.
pub(crate) fn sample(cluster: &str, role: &str, subnets: Option<&[String]>, groups: Option<&[String]>) -> Vec<Value> {
    let mut all = objects(&SAMPLE.replace("NODE-ROLE", role).replace("CLUSTER", cluster));
    let by_id = |ids: &[String]| ids.iter().map(|id| json!({"id": id})).collect::<Value>();
    if let Some(class) = all.iter_mut().find(|object| object["kind"] == "EC2NodeClass") {
        if let Some(ids) = subnets {
            class["spec"]["subnetSelectorTerms"] = by_id(ids);
        }
        if let Some(ids) = groups {
            class["spec"]["securityGroupSelectorTerms"] = by_id(ids);
        }
    }
    all
}

/// Kind and name as `kubectl get` takes them.
pub(crate) fn reference(object: &Value) -> String {
    let at = |place: &str| object.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let group = at("/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let group = group.split_once('/').map_or(group, |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", at("/kind").to_ascii_lowercase(), at("/metadata/name"))
}

/// Whether two values are the same object.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    reference(a) == reference(b)
}

/// Whether an object is one that `cluster add` made.
pub(crate) fn is_marked(object: &Value) -> bool {
    object["metadata"]["labels"].get(MARK).is_some()
}

/// Whether an object is one that `cluster add` made of the sample. A copy under another name has the label too, and is the user's.
pub(crate) fn is_made_of_sample(object: &Value) -> bool {
    is_marked(object) && sample("", "", None, None).iter().any(|one| same(one, object))
}

/// The object with our label.
pub(crate) fn marked(mut object: Value) -> Value {
    object["metadata"]["labels"][MARK] = json!("true");
    object
}

/// Whether an object has everything that is wanted of it; what it has besides (defaults, status) does not count.
pub(crate) fn contains(has: &Value, wanted: &Value) -> bool {
    match (has, wanted) {
        (Value::Object(has), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| has.get(key).map_or_else(|| is_empty(wanted), |has| contains(has, wanted)))
        }
        (Value::Array(has), Value::Array(wanted)) => {
            has.len() == wanted.len() && has.iter().zip(wanted).all(|(has, wanted)| contains(has, wanted))
        }
        (has, wanted) => has == wanted,
    }
}

/// What an API server does not keep.
fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null) || value.as_object().is_some_and(serde_json::Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Whether we applied it: such an object is ours to update.
pub(crate) fn is_applied_by_us(object: &Value) -> bool {
    let fields = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    is_marked(object) || fields.is_some_and(|fields| fields.iter().any(|one| one["manager"] == MANAGER && one["operation"] == "Apply"))
}

/// `kubectl apply` of some objects.
pub(super) fn apply(objects: &[Value], shown: &str, forced: bool) -> Action {
    let manager = format!("--field-manager={MANAGER}");
    let force: &[&str] = if forced { &["--force-conflicts"] } else { &[] };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    Action::kubectl(&[&["apply", "--server-side", &manager], force, &["-f", "-"]].concat()).reads(list, shown)
}

/// `kubectl delete` of some objects. Those in a namespace are all in the watcher's.
pub(super) fn delete(of: &[&Value]) -> Action {
    let references: Vec<String> = of.iter().map(|object| reference(object)).collect();
    let words: Vec<&str> = references.iter().map(String::as_str).collect();
    let is_namespaced = of.iter().any(|object| object["metadata"].get("namespace").is_some());
    let namespace: &[&str] = if is_namespaced { &["--namespace", WATCHER_NAMESPACE] } else { &[] };
    Action::kubectl(&[&["delete", "--ignore-not-found", "--timeout=60s"], namespace, words.as_slice()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_of_the_manifests_is_an_object_with_a_name() {
        let watcher = watcher("c", "https://u", "arn", "i");
        let all = [crds(), rbac(), guard(), flow(), webhook("h", "s", "c"), sample("c", "r", None, None), watcher];
        assert_eq!(all.each_ref().map(Vec::len), [7, 14, 2, 2, 1, 2, 7]);
        for object in all.iter().flatten() {
            assert!(reference(object).split('/').all(|part| !part.is_empty()), "{object}");
        }
        assert_eq!(reference(&all[0][0]), "customresourcedefinition.apiextensions.k8s.io/nodepools.karpenter.sh");
        let documents = |text: &str| text.lines().filter(|line| line.starts_with("kind:")).count();
        assert_eq!([RBAC, GUARD, FLOW, WEBHOOK, SAMPLE, WATCHER].map(documents), [14, 2, 2, 1, 2, 7]);
    }

    #[test]
    fn placeholders_are_filled_in_everywhere() {
        let hook = webhook("abc.lambda-url.aws", "5ec7e7", "shop");
        let urls: Vec<&str> =
            hook[0]["webhooks"].as_array().unwrap().iter().map(|one| one["clientConfig"]["url"].as_str().unwrap()).collect();
        assert_eq!(urls, ["https://abc.lambda-url.aws/5ec7e7/shop"; 5]);
        let tagged = sample("shop", "nodes", None, None);
        assert_eq!(tagged[0]["spec"]["role"], "nodes");
        assert_eq!(tagged[0]["spec"]["subnetSelectorTerms"], json!([{"tags": {"karpenter.sh/discovery": "shop"}}]));
        let named = sample("shop", "nodes", Some(&["subnet-1".into(), "subnet-2".into()]), Some(&["sg-1".into()]));
        assert_eq!(named[0]["spec"]["subnetSelectorTerms"], json!([{"id": "subnet-1"}, {"id": "subnet-2"}]));
        assert_eq!(named[0]["spec"]["securityGroupSelectorTerms"], json!([{"id": "sg-1"}]));
        let watcher = watcher("shop", "https://u/", "arn:aws:iam::1:role/w", "r.example/w@sha256:0a");
        let container = &watcher[4]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "r.example/w@sha256:0a");
        assert_eq!(
            container["env"],
            json!([{"name": "WHITTLE_CLUSTER", "value": "shop"}, {"name": "WHITTLE_RELAY_URL", "value": "https://u/"}])
        );
        assert_eq!(watcher[1]["metadata"]["annotations"]["eks.amazonaws.com/role-arn"], "arn:aws:iam::1:role/w");
        let text = json!([hook, tagged, named, watcher]).to_string().replace("WHITTLE_CLUSTER", "");
        for placeholder in ["RELAY-HOST", "SECRET", "CLUSTER", "NODE-ROLE", "RELAY-URL", "ROLE-ARN", "IMAGE"] {
            assert!(!text.contains(placeholder), "{placeholder}");
        }
    }

    #[test]
    fn the_relay_rings_for_all_that_the_webhook_reports_and_for_all_kinds_of_pools_and_classes() {
        let (clusters, relay_secrets) = (vec!["shop".into()], vec!["stored".to_owned()]);
        let settings = whittle_ports::Settings { clusters, relay_secrets, ..whittle_ports::Settings::default() };
        let path = format!("/{}/shop", whittle_relay::cluster_secret("stored", "shop"));
        let hook = webhook("h", "s", "shop");
        let words = |rule: &Value, key: &str| -> Vec<String> {
            rule[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        let mut reported = Vec::new();
        for rule in hook[0]["webhooks"].as_array().unwrap().iter().flat_map(|one| one["rules"].as_array().unwrap()) {
            for resource in words(rule, "resources") {
                // A subresource is named apart.
                let resource = resource.split('/').next().unwrap_or_default();
                for operation in words(rule, "operations") {
                    let body = json!({"request": {"uid": "u", "resource": {"resource": resource}, "operation": operation}}).to_string();
                    let request = whittle_relay::Request { path: &path, body: body.as_bytes(), signed_by: None, alias: None };
                    let verdict = whittle_relay::decide(&settings, request, whittle_units::Timestamp::UNIX_EPOCH).unwrap();
                    assert_eq!(verdict.rings.len(), 1, "{operation} {resource}");
                }
                reported.push(resource.to_owned());
            }
        }
        for kind in ["nodepools", "provisioners", "ec2nodeclasses", "awsnodetemplates"] {
            assert!(reported.iter().any(|one| one == kind), "{kind}");
        }
    }

    /// On a cluster whose lasting nodes are all kept for add-ons it would ring for a node of its own, and hold it.
    #[test]
    fn the_watcher_runs_on_nodes_that_are_kept_for_add_ons_and_on_no_others_with_a_taint() {
        let tolerated = &watcher("shop", "https://u/", "arn", "i")[4]["spec"]["template"]["spec"]["tolerations"];
        assert_eq!(*tolerated, json!([{"key": "CriticalAddonsOnly", "operator": "Exists"}]));
    }

    #[test]
    fn defaults_and_empty_fields_make_no_difference_and_values_do() {
        let has = json!({"spec": {"a": 1, "list": [{"x": 1, "default": true}]}, "status": {}});
        for (wanted, expected) in [
            (json!({"spec": {"a": 1}}), true),
            (json!({"spec": {"list": [{"x": 1}]}, "metadata": {}}), true),
            (json!({"spec": {"list": [{"x": 2}]}}), false),
            (json!({"spec": {"list": []}}), false),
            (json!({"spec": {"b": 1}}), false),
        ] {
            assert_eq!(contains(&has, &wanted), expected, "{wanted}");
        }
    }
}
