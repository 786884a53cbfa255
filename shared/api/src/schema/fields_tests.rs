//! Compares the fields of each kind's schema and struct: serde drops fields that the struct lacks, and the API server those that the
//! schema lacks, both silently.

use super::{Schema, Shape, find, matches};
use crate::k8s::Kind;
use crate::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use serde::Deserialize;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::{Error, Map, Value, json};
use std::cell::RefCell;

/// Strings such that each pattern of a schema matches one.
const TEXTS: &[&str] = &[
    "1",
    "1h",
    "0s",
    "10%",
    "@daily",
    "20Gi",
    "a",
    "sg-0123456789abcdef0",
    "subnet-0123456789abcdef0",
    "ami-0123456789abcdef0",
    "123456789012",
    "cr-0a",
    "pg-0a",
    "+1",
];

/// A value with all fields of a schema.
fn sample(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::Object(fields) => fields.iter().map(|field| (field.name.to_owned(), sample(&field.schema))).collect::<Map<_, _>>().into(),
        Shape::Map { values, .. } => json!({ "a": sample(values) }),
        Shape::Open => json!({}),
        Shape::List { items, .. } => json!([sample(items)]),
        Shape::Text { one_of: [first, ..], .. } => json!(first),
        Shape::Text { pattern: Some(pattern), .. } => {
            json!(TEXTS.iter().find(|text| matches(pattern, text)).unwrap_or_else(|| panic!("no text matches {pattern}")))
        }
        Shape::Text { .. } => json!("a"),
        Shape::Time => json!("2026-01-01T00:00:00Z"),
        Shape::Integer { min, .. } => json!(min.unwrap_or(1)),
        Shape::Boolean => json!(true),
        Shape::Quantity | Shape::IntOrText => json!("1"),
        Shape::Number => json!(1),
    }
}

/// Passes a value to serde, and records where the fields of a struct and of the value differ.
#[derive(Clone, Copy)]
struct Probe<'a> {
    value: &'a Value,
    differences: &'a RefCell<Vec<String>>,
}

impl<'a> Probe<'a> {
    fn of(self, value: &'a Value) -> Self {
        Self { value, ..self }
    }
}

impl<'a> IntoDeserializer<'a, Error> for Probe<'a> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'a> Deserializer<'a> for Probe<'a> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(fields) => {
                visitor.visit_map(MapDeserializer::new(fields.iter().map(|(name, value)| (name.as_str(), self.of(value)))))
            }
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(|item| self.of(item)))),
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let has: Vec<&str> = self.value.as_object().into_iter().flatten().map(|(field, _)| field.as_str()).collect();
        let mut differences = self.differences.borrow_mut();
        let lacking = fields.iter().filter(|field| !has.contains(field));
        differences.extend(lacking.map(|field| format!("the schema lacks {field} of {name}")));
        let unknown = has.iter().filter(|field| !fields.contains(field));
        differences.extend(unknown.map(|field| format!("{name} lacks {field} of the schema")));
        drop(differences);
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// Some enums are only restricted by CEL rules, so any variant is taken.
    fn deserialize_enum<W: Visitor<'a>>(self, _: &'static str, variants: &'static [&'static str], visitor: W) -> Result<W::Value, Error> {
        visitor.visit_enum(variants.first().copied().unwrap_or_default().into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        identifier ignored_any
    }
}

/// The differences between a kind's schema and its struct.
fn differences<T: Kind + DeserializeOwned>() -> Vec<String> {
    let kind = find(T::API_VERSION, T::KIND).expect("it has a schema");
    let mut object = json!({ "metadata": {}, "spec": sample(&kind.spec) });
    object["status"] = sample(kind.status.as_ref().expect("it has a status"));
    let differences = RefCell::default();
    T::deserialize(Probe { value: &object, differences: &differences }).expect("a full object can be read");
    let mut differences = differences.into_inner();
    // Every object has metadata, whose schema is Kubernetes' own.
    differences.retain(|difference| !difference.ends_with(" of ObjectMeta"));
    differences
}

#[test]
fn a_schema_and_its_struct_have_the_same_fields() {
    assert_eq!(differences::<NodePool>(), [""; 0]);
    assert_eq!(differences::<NodeClaim>(), [""; 0]);
    assert_eq!(differences::<Ec2NodeClass>(), [""; 0]);
    // Structs that several kinds share, some of whose fields these kinds do not have: an overlay matches types and has no
    // flexibility to keep, and a buffer refers to a PodTemplate by its name alone, in its spec and its status.
    assert_eq!(differences::<NodeOverlay>(), ["the schema lacks minValues of Requirement"]);
    let by_name = ["the schema lacks apiGroup of BufferReference", "the schema lacks kind of BufferReference"];
    assert_eq!(differences::<CapacityBuffer>(), [by_name, by_name].concat());
}

#[test]
fn a_field_that_only_schema_or_struct_has_is_reported() {
    #[derive(Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    #[derive(Default)]
    struct Half {
        weight: i64,
        mood: String,
    }
    let differences = RefCell::default();
    let value = json!({ "weight": 1, "limits": {} });
    Half::deserialize(Probe { value: &value, differences: &differences }).expect("serde drops what it does not know");
    assert_eq!(differences.into_inner(), ["the schema lacks mood of Half", "Half lacks limits of the schema"]);
}
