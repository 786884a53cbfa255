//! Schemas as in a CRD.

use super::check::QUANTITY;
use super::{Field, Holds, ListType, MapType, Schema, Shape};
use serde_json::{Map, Value, json};

/// The schema as a structural OpenAPI v3 schema with CEL rules.
pub(crate) fn openapi(schema: &Schema) -> Value {
    let mut out = shape(&schema.shape);
    if !schema.about.is_empty() {
        out.insert("description".to_owned(), sentence(schema.about).into());
    }
    if let Some(default) = &schema.default {
        out.insert("default".to_owned(), default.clone());
    }
    if !schema.rules.is_empty() {
        let rules: Vec<Value> = schema
            .rules
            .iter()
            .map(|rule| match rule.holds {
                Holds::Of(_) | Holds::Between(_) => json!({"rule": rule.cel, "message": rule.message}),
            })
            .collect();
        out.insert("x-kubernetes-validations".to_owned(), rules.into());
    }
    Value::Object(out)
}

fn sentence(about: &str) -> String {
    let mut letters = about.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

fn shape(shape: &Shape) -> Map<String, Value> {
    let value = match shape {
        Shape::Object(fields) => object(fields),
        Shape::Map { values, max, map_type } => {
            let out = with(json!({"type": "object", "additionalProperties": openapi(values)}), "maxProperties", *max);
            with(out, "x-kubernetes-map-type", map_type.map(MapType::as_str))
        }
        Shape::Open => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        Shape::List { items, min, max, list_type } => {
            let mut out = with(json!({"type": "array", "items": openapi(items)}), "maxItems", *max);
            out = with(out, "minItems", (0 < *min).then_some(*min));
            if let Some(ListType::Map(field)) = list_type {
                out["x-kubernetes-list-map-keys"] = json!([field]);
            }
            with(out, "x-kubernetes-list-type", list_type.map(ListType::as_str))
        }
        Shape::Text { pattern, min, max, one_of } => {
            let mut out = with(json!({"type": "string"}), "maxLength", *max);
            out = with(out, "minLength", (0 < *min).then_some(*min));
            out = with(out, "pattern", *pattern);
            if !one_of.is_empty() {
                out["enum"] = json!(one_of);
            }
            out
        }
        Shape::Time => json!({"type": "string", "format": "date-time"}),
        Shape::Integer { bits, min, max } => {
            let out = with(json!({"type": "integer", "format": format!("int{bits}")}), "minimum", *min);
            with(out, "maximum", *max)
        }
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::Number => json!({"type": "number"}),
        Shape::IntOrText => json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}),
        Shape::Quantity => json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        }),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn object(fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|field| (field.name.to_owned(), openapi(&field.schema))).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut out = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    out
}

fn with<T: Into<Value>>(mut value: Value, key: &str, entry: Option<T>) -> Value {
    if let Some(entry) = entry {
        value[key] = entry.into();
    }
    value
}
