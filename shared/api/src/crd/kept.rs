//! Fields of a kind's other versions, which each version has in its schema too and refuses to be written.
//!
//! An API server without a conversion webhook stores an object of any version as the stored one, without the fields that this one does
//! not have, and cannot apply to an object if a version in which somebody wrote it lacks a field of it (ADR 0040).

use serde_json::{Map, Value, json};

/// What a schema says about structure; the rest restricts values.
const STRUCTURE: [&str; 4] = ["type", "anyOf", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];

/// Adds the fields that only another version's schema has, and rules against writing them.
pub(super) fn add_fields(schema: &mut Value, other: &Value, api_version: &str) {
    for inner in ["items", "additionalProperties"] {
        if let (Some(schema), Some(other)) = (schema.get_mut(inner), other.get(inner)) {
            add_fields(schema, other, api_version);
        }
    }
    let Some(fields) = other.get("properties").and_then(Value::as_object) else { return };
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let mut added = Vec::new();
    for (name, field) in fields {
        match properties.get_mut(name) {
            Some(schema) => add_fields(schema, field, api_version),
            None => {
                let mut kept = structure(field);
                kept["description"] = format!("Kept of objects that were written as {api_version}.").into();
                properties.insert(name.clone(), kept);
                added.push(rule(name, field.get("default"), api_version));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    match schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        Some(rules) => rules.append(&mut added),
        None => schema["x-kubernetes-validations"] = added.into(),
    }
}

/// The rule against a field. What the other version's default put there may stay, as no user wrote it.
fn rule(name: &str, default: Option<&Value>, api_version: &str) -> Value {
    let unless_default = default.map(|default| format!(" || self.{name} == {default}")).unwrap_or_default();
    let message =
        format!("{name} is a field of {api_version}, not of this version: leave it out; `whittle convert` prints an object as v1");
    json!({"rule": format!("!has(self.{name}){unless_default}"), "message": message, "fieldPath": format!(".{name}")})
}

/// The structure of a schema, without its defaults and its rules. (A server compares unchanged values field by field, so that an open
/// schema is not enough.)
fn structure(schema: &Value) -> Value {
    let mut kept: Map<String, Value> = STRUCTURE.iter().filter_map(|key| Some(((*key).to_owned(), schema.get(*key)?.clone()))).collect();
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(inner) {
            kept.insert(inner.to_owned(), structure(schema));
        }
    }
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        let fields: Map<String, Value> = fields.iter().map(|(name, field)| (name.clone(), structure(field))).collect();
        kept.insert("properties".to_owned(), fields.into());
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The added fields, as paths.
    fn added(schema: &Value, path: &str, into: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field["description"].as_str().is_some_and(|text| text.starts_with("Kept of")) {
                into.push(path.clone());
            }
            added(field, &path, into);
            added(&field["items"], &path, into);
        }
    }

    #[test]
    fn each_version_has_every_field_of_the_other() {
        let mut all = Vec::new();
        for (_, definition) in super::super::all() {
            for version in definition["spec"]["versions"].as_array().expect("a list") {
                let schema = &version["schema"]["openAPIV3Schema"];
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                added(schema, &format!("{} {}", word(&definition["spec"]["names"]["kind"]), word(&version["name"])), &mut all);
            }
        }
        let expected = [
            "NodePool v1.spec.disruption.expireAfter",
            "NodePool v1.spec.template.spec.kubelet",
            "NodePool v1.spec.template.spec.nodeClassRef.apiVersion",
            "NodePool v1.spec.template.spec.resources",
            "NodePool v1beta1.spec.replicas",
            "NodePool v1beta1.spec.template.spec.expireAfter",
            "NodePool v1beta1.spec.template.spec.nodeClassRef.group",
            "NodePool v1beta1.spec.template.spec.terminationGracePeriod",
            "NodeClaim v1.spec.kubelet",
            "NodeClaim v1.spec.nodeClassRef.apiVersion",
            "NodeClaim v1beta1.spec.expireAfter",
            "NodeClaim v1beta1.spec.nodeClassRef.group",
            "NodeClaim v1beta1.spec.terminationGracePeriod",
            "EC2NodeClass v1beta1.spec.amiSelectorTerms.alias",
            "EC2NodeClass v1beta1.spec.amiSelectorTerms.ssmParameter",
            "EC2NodeClass v1beta1.spec.capacityReservationSelectorTerms",
            "EC2NodeClass v1beta1.spec.connectionTracking",
            "EC2NodeClass v1beta1.spec.cpuOptions",
            "EC2NodeClass v1beta1.spec.ipPrefixCount",
            "EC2NodeClass v1beta1.spec.kubelet",
            "EC2NodeClass v1beta1.spec.networkInterfaces",
            "EC2NodeClass v1beta1.spec.placementGroupSelector",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn an_added_field_is_refused_unless_it_is_the_default_of_its_version() {
        let mut schema = json!({"properties": {"b": {"type": "object", "properties": {}}}});
        let other = json!({"properties": {
            "a": {"type": "string", "maxLength": 3, "default": "x"},
            "b": {"type": "object", "properties": {"c": {"type": "object", "properties": {"d": {"type": "string", "default": "y"}}, "required": ["d"]}}},
        }});
        add_fields(&mut schema, &other, "group/v0");
        let a = &schema["properties"]["a"];
        assert_eq!((&a["type"], a.get("default"), a.get("maxLength")), (&json!("string"), None, None));
        assert_eq!(schema["x-kubernetes-validations"][0]["rule"], r#"!has(self.a) || self.a == "x""#);
        let b = &schema["properties"]["b"];
        assert_eq!(b["x-kubernetes-validations"][0]["rule"], "!has(self.c)");
        assert_eq!(b["properties"]["c"]["properties"], json!({"d": {"type": "string"}}));
        assert_eq!(b["properties"]["c"].get("required"), None);
    }
}
