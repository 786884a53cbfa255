//! Filling in defaults as the API server does before it validates and stores.

use super::check::whole;
use super::{Schema, Shape};
use serde_json::Value;

/// Sets absent fields to their defaults, removes nulls that mean absence, and writes whole numbers as such.
pub(crate) fn apply_defaults(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::Object(fields), Value::Object(map)) => {
            for field in fields {
                let absent = map.get(field.name).is_none_or(Value::is_null);
                if absent && (!field.required || field.schema.default.is_some()) {
                    map.remove(field.name);
                    if let Some(default) = &field.schema.default {
                        map.insert(field.name.to_owned(), default.clone());
                    }
                }
                if let Some(value) = map.get_mut(field.name) {
                    apply_defaults(&field.schema, value);
                }
            }
        }
        (Shape::Map { values, .. }, Value::Object(map)) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(|value| apply_defaults(values, value));
        }
        (Shape::List { items, .. }, Value::Array(list)) => list.iter_mut().for_each(|value| apply_defaults(items, value)),
        (Shape::Integer { .. } | Shape::Quantity | Shape::IntOrText, value) if value.is_f64() => {
            if let Some(number) = whole(value) {
                *value = number.into();
            }
        }
        _ => {}
    }
}
