//! JSON in which no key occurs twice. The usual readers take the last of two values, which may not be the one that was meant.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// A value of which no map has a key twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // A whole number is one however it is written, as for an API server.
        #[expect(clippy::cast_possible_truncation, reason = "a whole number, and small enough to be one exactly")]
        let whole = (value.fract() == 0.0 && value.abs() < 2f64.powi(53)).then_some(value as i64);
        Ok(whole.map_or_else(|| Number::from_f64(value).map_or(Value::Null, Value::Number), Value::from))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} stands twice in one map: keep one of them")));
            }
            let Unique(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The value of a text.
///
/// # Errors
/// It is no JSON, or a key stands twice in one map; with line and column.
pub(crate) fn json(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).map(|Unique(value)| value)
}

/// All values of a stream, one after the other.
pub(crate) fn stream(input: impl std::io::Read) -> impl Iterator<Item = serde_json::Result<Value>> {
    serde_json::Deserializer::from_reader(input).into_iter::<Unique>().map(|read| read.map(|Unique(value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_value_that_the_usual_reader_makes_of_it() {
        let text = r#"{"a": [1, -2, 2.5, 18446744073709551615, 1e300, true, null, "x\u00e9"], "b": {"a": {}}}"#;
        assert_eq!(json(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(json("[50.0, 5e1, -2.0]").unwrap(), json("[50, 50, -2]").unwrap());
        assert_eq!(stream("1 {\"a\": 2}\n[3]".as_bytes()).map(Result::unwrap).collect::<Vec<_>>().len(), 3);
    }

    #[test]
    fn a_key_that_stands_twice_is_named_with_its_line() {
        let error = json("{\"a\": 1,\n \"b\": {\"c\": 1,\n  \"c\": 1}}").unwrap_err();
        assert!(error.to_string().contains("the key \"c\" stands twice in one map: keep one of them"), "{error}");
        assert_eq!(error.line(), 3);
        assert!(json(r#"[{"a": 1}, {"a": 2}]"#).is_ok(), "two maps may have the same key");
        assert!(stream("{\"a\": 1, \"a\": 2}".as_bytes()).next().unwrap().is_err());
    }
}
