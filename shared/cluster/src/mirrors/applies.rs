//! What an apply of metadata would change of an object, as the API server answered with it.

use serde_json::{Value, json};

/// Whether a server-side apply of `wanted` would leave the metadata of `stored` as it is: all of it is there, and what our applies wrote
/// before is still wanted. Whose a field is the API server tells in `managedFields`; of an object that we have never applied nothing is
/// known.
pub(super) fn changes_nothing(wanted: &Value, stored: &Value) -> bool {
    let (wanted, stored) = (&wanted["metadata"], &stored["metadata"]);
    let Some(ours) = applied_fields(stored) else { return false };
    ["labels", "annotations"].into_iter().all(|field| has_entries(&wanted[field], &stored[field], &ours[format!("f:{field}")]))
        && has_items(&wanted["finalizers"], &stored["finalizers"], &ours["f:finalizers"], |finalizer| format!("v:{finalizer}"))
        && has_items(&owners(wanted), &owners(stored), &ours["f:ownerReferences"], |owner| format!("k:{owner}"))
}

/// The metadata that our applies have written, in the API server's form: a key for each field.
fn applied_fields(stored: &Value) -> Option<&Value> {
    let is_ours = |entry: &&Value| {
        entry["manager"] == crate::FIELD_MANAGER && entry["operation"] == "Apply" && entry["subresource"].as_str().is_none_or(str::is_empty)
    };
    let ours = stored["managedFields"].as_array()?.iter().find(is_ours)?;
    Some(&ours["fieldsV1"]["f:metadata"])
}

/// Their uids, by which lists of owners are merged.
fn owners(metadata: &Value) -> Value {
    metadata["ownerReferences"].as_array().into_iter().flatten().map(|owner| json!({ "uid": owner["uid"] })).collect()
}

fn has_entries(wanted: &Value, stored: &Value, ours: &Value) -> bool {
    let there = |(key, value): (&String, &Value)| &stored[key] == value;
    let still_wanted = |field: &String| field.strip_prefix("f:").is_none_or(|key| !wanted[key].is_null());
    wanted.as_object().into_iter().flatten().all(there) && ours.as_object().into_iter().flat_map(|fields| fields.keys()).all(still_wanted)
}

/// The same for a list whose items have such a key.
fn has_items(wanted: &Value, stored: &Value, ours: &Value, key: impl Fn(&Value) -> String) -> bool {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let (wanted, stored) = (items(wanted), items(stored));
    let keys: Vec<String> = wanted.iter().map(key).collect();
    wanted.iter().all(|item| stored.contains(item))
        && ours.as_object().into_iter().flat_map(|fields| fields.keys()).all(|field| field == "." || keys.contains(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Value {
        json!({"metadata": {
            "name": "a",
            "labels": {"zone": "a", "pool": "default"},
            "annotations": {"hash": "1"},
            "finalizers": ["karpenter.sh/termination"],
            "ownerReferences": [{"kind": "NodePool", "name": "default", "uid": "u-1"}],
        }})
    }

    /// As an API server answers to an apply of the above after somebody else has added a label and a finalizer.
    fn stored() -> Value {
        json!({"metadata": {
            "name": "a",
            "generation": 1,
            "labels": {"zone": "a", "pool": "default", "team": "b"},
            "annotations": {"hash": "1"},
            "finalizers": ["karpenter.sh/termination", "example.com/backup"],
            "ownerReferences": [{"kind": "NodePool", "name": "default", "uid": "u-1", "apiVersion": "karpenter.sh/v1"}],
            "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}},
                {"manager": "whittle", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
                {"manager": "whittle", "operation": "Apply", "fieldsV1": {"f:metadata": {
                    "f:labels": {"f:zone": {}, "f:pool": {}},
                    "f:annotations": {"f:hash": {}},
                    "f:finalizers": {"v:\"karpenter.sh/termination\"": {}},
                    "f:ownerReferences": {"k:{\"uid\":\"u-1\"}": {}},
                }}},
            ],
        }})
    }

    #[test]
    fn what_is_there_need_not_be_applied_again() {
        assert!(changes_nothing(&wanted(), &stored()));
    }

    #[test]
    fn what_others_changed_is_applied_again() {
        for (field, value) in [
            ("labels", json!({"zone": "b", "pool": "default"})),
            ("labels", json!({"pool": "default"})),
            ("annotations", Value::Null),
            ("finalizers", json!(["example.com/backup"])),
            ("ownerReferences", json!([{"kind": "NodePool", "name": "default", "uid": "u-2"}])),
        ] {
            let mut changed = stored();
            changed["metadata"][field] = value;
            assert!(!changes_nothing(&wanted(), &changed), "{changed}");
        }
    }

    #[test]
    fn what_is_wanted_besides_or_no_longer_is_applied() {
        for (field, value) in [
            ("labels", json!({"zone": "a", "pool": "default", "new": "c"})),
            ("labels", json!({"zone": "a"})),
            ("annotations", json!({})),
            ("finalizers", json!([])),
            ("ownerReferences", json!([])),
        ] {
            let mut other = wanted();
            other["metadata"][field] = value;
            assert!(!changes_nothing(&other, &stored()), "{other}");
        }
    }

    #[test]
    fn nothing_is_known_of_what_was_never_applied() {
        let mut created = stored();
        created["metadata"]["managedFields"][2]["operation"] = json!("Update");
        assert!(!changes_nothing(&wanted(), &created));
        created["metadata"]["managedFields"] = Value::Null;
        assert!(!changes_nothing(&wanted(), &created));
    }
}
