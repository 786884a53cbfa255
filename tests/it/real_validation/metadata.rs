//! Manifests whose metadata differs from that of a valid one. No CRD has a schema of it: the values are those that the API server's own
//! checks tell apart.

use super::mutations::Case;
use serde_json::{Value, json};

/// Names, and what is nearly a name.
const NAMES: &[&str] = &[
    "", "a", "A", "a.b", "a..b", ".a", "a.", "-a", "a-", "a-.b", "a_b", "a b", "a/b", "é", "0", "1.2", "a\n", "a--b", "general-",
    "general.",
];

/// Keys of labels, annotations and finalizers, and what is nearly one.
const KEYS: &[&str] = &[
    "",
    "a",
    "A",
    "a.b",
    "a/b",
    "a/",
    "/a",
    "a/b/c",
    "A/b",
    "a.B/c",
    "a_b/c",
    "a..b/c",
    "-a/b",
    "a/-b",
    "a/b-",
    "a/_b",
    "_a",
    "a b",
    "a/b c",
    "é",
    "a/é",
    "a\n",
    "example.com/Name",
    "kubernetes.io/x",
    "orphan",
    "foregroundDeletion",
];

const VALUES: &[&str] = &["", "a", "A-1_b.c", "-a", "a-", ".a", "a b", "a/b", "é", "a\n", "1"];

/// The fields that are set to values of every type; the last two do not exist.
const FIELDS: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "nothing",
    "Labels",
];

const TIMES: &[&str] = &[
    "2026-01-31T10:00:00Z",
    "2026-01-31T10:00:00.123+01:00",
    "2026-02-30T10:00:00Z",
    "2026-01-31 10:00:00Z",
    "2026-01-31T10:00:60Z",
    "2026-01-31",
    "2026-01-31T10:00:00",
];

/// All manifests made from `base` by changing one field of metadata.
pub(super) fn mutations(base: &Value) -> Vec<Case> {
    let title = format!("{} {}", base["kind"].as_str().unwrap_or_default(), base["metadata"]["name"].as_str().unwrap_or_default());
    let mut cases = Vec::new();
    let mut add = |about: String, edit: &dyn Fn(&mut Value)| {
        let mut manifest = base.clone();
        edit(&mut manifest);
        cases.push(Case { about: format!("{title}: metadata {about}"), manifest });
    };
    // An object in a namespace is sent there, and whether the namespace exists is not for its manifest to say.
    let is_namespaced = base["kind"] == "CapacityBuffer";
    let is_for_the_server = |setting: &Setting| !(is_namespaced && setting.field == "namespace" && setting.value == "x");
    for Setting { field, value } in settings().into_iter().filter(is_for_the_server) {
        add(format!("{field} {}", short(&value)), &|manifest| manifest["metadata"][field] = value.clone());
    }
    for value in [json!(null), json!("x"), json!(1), json!([]), json!({})] {
        add(short(&value), &|manifest| manifest["metadata"] = value.clone());
    }
    for prefix in
        ["", "a", "a-", "-", "A", "a..", "a.", "a/", "a--"].map(str::to_owned).into_iter().chain(["a".repeat(253), "a".repeat(254)])
    {
        add(format!("generateName {prefix:?}"), &|manifest| {
            manifest["metadata"] = json!({"generateName": prefix});
        });
    }
    add("absent".to_owned(), &|manifest| _ = manifest.as_object_mut().map(|map| map.remove("metadata")));
    cases
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}

/// A field of metadata and what it is set to.
struct Setting {
    field: &'static str,
    value: Value,
}

fn set(field: &'static str, value: Value) -> Setting {
    Setting { field, value }
}

fn settings() -> Vec<Setting> {
    let mut settings = names_and_keys();
    settings.extend(owners().into_iter().map(|owners| set("ownerReferences", owners)));
    for field in FIELDS {
        settings.extend(of_every_type().map(|value| set(field, value)));
    }
    for field in ["creationTimestamp", "deletionTimestamp"] {
        settings.extend(TIMES.iter().map(|time| set(field, json!(time))));
    }
    settings.extend([json!("5e1b2c1a-0000-4000-8000-000000000000"), json!(1)].map(|value| set("uid", value)));
    settings.push(set("resourceVersion", json!(1)));
    let managed = [
        json!([{"manager": "a", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]),
        json!([{"manager": "a", "operation": "Delete"}]),
        json!([{"manager": 1}]),
        json!([{"nothing": 1}]),
        json!([{"time": "x"}]),
    ];
    settings.extend(managed.map(|value| set("managedFields", value)));
    settings
}

fn names_and_keys() -> Vec<Setting> {
    let long = |length: usize| "a".repeat(length);
    let mut settings: Vec<Setting> = NAMES.iter().map(|name| set("name", json!(name))).collect();
    settings.extend([63, 253, 254].map(|length| set("name", json!(long(length)))));
    let keys =
        || KEYS.iter().map(|key| (*key).to_owned()).chain([long(63), long(64), format!("{}/a", long(253)), format!("{}/a", long(254))]);
    settings.extend(keys().map(|key| set("labels", json!({key: "a"}))));
    settings.extend(keys().map(|key| set("annotations", json!({key: "a b"}))));
    settings.extend(keys().map(|key| set("finalizers", json!([key]))));
    settings.extend(VALUES.iter().map(|value| set("labels", json!({"a": value}))));
    settings.extend([63, 64].map(|length| set("labels", json!({"a": long(length)}))));
    settings.extend([262_143, 262_144].map(|length| set("annotations", json!({"a": long(length)}))));
    let finalizers = [json!(["orphan", "foregroundDeletion"]), json!(["a/b", "a/b"]), json!([null])];
    settings.extend(finalizers.map(|value| set("finalizers", value)));
    let values = [json!(null), json!(1), json!(true), json!({}), json!(["b"])];
    settings.extend(values.into_iter().flat_map(|value| ["labels", "annotations"].map(|field| set(field, json!({"a": value})))));
    settings
}

fn of_every_type() -> [Value; 12] {
    [
        json!(null),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(1.0),
        json!(true),
        json!("x"),
        json!(""),
        json!([]),
        json!([1]),
        json!({}),
        json!({"a": {"b": 1}}),
    ]
}

fn owners() -> Vec<Value> {
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"});
    let with = |field: &str, value: Value| {
        let mut owner = owner.clone();
        owner[field] = value;
        owner
    };
    let mut owners = vec![json!([owner]), json!([null]), json!([{}]), json!(["x"]), json!([owner, owner])];
    let versions = ["", "v1", "a/b/c", "apps/", "/v1", "/"];
    owners.extend(versions.map(|version| json!([with("apiVersion", json!(version))])));
    for field in ["kind", "name", "uid", "controller", "blockOwnerDeletion", "nothing"] {
        owners.extend([json!(null), json!(""), json!(1), json!(true), json!({"a": 1})].map(|value| json!([with(field, value)])));
    }
    owners.push(json!([with("controller", json!(true)), with("controller", json!(true))]));
    let mut second = with("controller", json!(true));
    second["uid"] = json!("2");
    owners.push(json!([with("controller", json!(true)), second]));
    owners.push(json!([with("controller", json!(true)), with("controller", json!(false))]));
    owners.push(json!([{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}]));
    owners.push(json!([{"apiVersion": "events.k8s.io/v1", "kind": "Event", "name": "a", "uid": "1"}]));
    owners
}
