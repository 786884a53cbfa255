//! Encodes values as items: JSON, and the attributes that conditions refer to.

use crate::keys::Key;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::HashMap;
use whittle_claims::{AtRest, Revision, text_at_rest};
use whittle_ports::StoreError;
use whittle_units::Timestamp;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// Names of the attributes. All expressions refer to them through `#…` placeholders, since some are reserved words.
pub(crate) mod attribute {
    pub(crate) const PK: &str = "pk";
    pub(crate) const SK: &str = "sk";
    /// Revision: a number that grows by one with each write.
    pub(crate) const REV: &str = "rev";
    /// Version of the JSON's schema.
    pub(crate) const VERSION: &str = "v";
    /// The value as JSON; of a claim or a record compressed, where that is smaller.
    pub(crate) const DATA: &str = "data";
    /// When the table may delete the item, seconds since 1970.
    pub(crate) const TTL: &str = "ttl";
    /// Id of the write, by which a retry recognizes its own earlier attempt whose response was lost.
    pub(crate) const WRITE: &str = "w";
    /// A claim's instance, or the claim's key on an instance pointer.
    pub(crate) const INSTANCE: &str = "instance";
    pub(crate) const CLUSTER: &str = "cluster";
    pub(crate) const NAME: &str = "name";
    /// Fencing token of a lease.
    pub(crate) const TOKEN: &str = "token";
    /// End of a stock-out, milliseconds since 1970.
    pub(crate) const UNTIL: &str = "until";
    pub(crate) const SUBJECT: &str = "subject";
    /// Binary part of the catalog, the names of its parts, and their number where an earlier release wrote it.
    pub(crate) const BLOB: &str = "blob";
    pub(crate) const NAMES: &str = "names";
    pub(crate) const PARTS: &str = "parts";
}

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// An item with only its key.
pub(crate) fn of_key(key: &Key) -> Item {
    HashMap::from([(attribute::PK.to_owned(), text(&key.pk)), (attribute::SK.to_owned(), text(&key.sk))])
}

/// An item with a value: key, JSON and version.
pub(crate) fn of_value(key: &Key, version: u32, value: &impl Serialize) -> Item {
    of_json(key, version, AtRest::Text(json_of(value)))
}

/// The same with the smaller form of the JSON, where only Whittle reads it.
pub(crate) fn of_value_at_rest(key: &Key, version: u32, value: &impl Serialize) -> Item {
    of_json(key, version, AtRest::of(json_of(value)))
}

fn json_of(value: &impl Serialize) -> String {
    // Our own types have string keys and no fallible serializers.
    serde_json::to_string(value).expect("stored types are plain data, which JSON can always express")
}

/// The same with a value in one of its forms.
pub(crate) fn of_json(key: &Key, version: u32, json: AtRest) -> Item {
    let data = match json {
        AtRest::Text(json) => text(json),
        AtRest::Compressed(bytes) => AttributeValue::B(Blob::new(bytes)),
    };
    let mut item = of_key(key);
    item.insert(attribute::VERSION.to_owned(), number(version));
    item.insert(attribute::DATA.to_owned(), data);
    item
}

/// Adds the attributes of a compare-and-swap write.
pub(crate) fn with_revision(mut item: Item, revision: Revision, write: &str, expires_at: Option<Timestamp>) -> Item {
    item.insert(attribute::REV.to_owned(), number(revision.0));
    item.insert(attribute::WRITE.to_owned(), text(write));
    if let Some(at) = expires_at {
        item.insert(attribute::TTL.to_owned(), number(at.as_second()));
    }
    item
}

pub(crate) fn text_of<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

pub(crate) fn number_of(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

/// Whether the item's TTL has expired: DynamoDB deletes such items up to days later, and until then they count as deleted.
pub(crate) fn is_expired(item: &Item, now: Timestamp) -> bool {
    let expires_at = item.get(attribute::TTL).and_then(|ttl| ttl.as_n().ok()).and_then(|ttl| ttl.parse::<i64>().ok());
    expires_at.is_some_and(|expires_at| expires_at <= now.as_second())
}

pub(crate) fn revision_of(item: &Item, what: &str) -> Result<Revision, StoreError> {
    number_of(item, attribute::REV).map(Revision).ok_or_else(|| unreadable(what, "it has no revision"))
}

/// Decodes the value of an item.
///
/// An item of a newer version is rejected without parsing: it could parse and still have another meaning.
pub(crate) fn value_of<T: DeserializeOwned>(item: &Item, known_version: u32, what: &str) -> Result<T, StoreError> {
    let version = number_of(item, attribute::VERSION).ok_or_else(|| unreadable(what, "it has no version"))?;
    if version > u64::from(known_version) {
        let reason = format!("its version is {version}, this release reads up to {known_version}; deploy the newer release");
        return Err(unreadable(what, reason));
    }
    let json = match item.get(attribute::DATA) {
        Some(AttributeValue::S(text)) => Cow::Borrowed(text.as_str()),
        Some(AttributeValue::B(bytes)) => Cow::Owned(text_at_rest(bytes.as_ref()).map_err(|error| unreadable(what, error.to_string()))?),
        _ => return Err(unreadable(what, "it has no data")),
    };
    serde_json::from_str(&json).map_err(|error| unreadable(what, error.to_string()))
}

pub(crate) fn unreadable(what: &str, reason: impl Into<String>) -> StoreError {
    StoreError::Unreadable { what: what.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn item(data: AttributeValue) -> Item {
        HashMap::from([(attribute::VERSION.to_owned(), number(1)), (attribute::DATA.to_owned(), data)])
    }

    fn read(data: AttributeValue) -> Result<Value, StoreError> {
        value_of(&item(data), 1, "claim prod/a")
    }

    #[test]
    fn values_are_read_in_both_forms() {
        let value = json!({"name": "a".repeat(1000)});
        let compressed = of_json(&Key { pk: "p".into(), sk: "s".into() }, 1, AtRest::of(value.to_string()));
        assert!(compressed[attribute::DATA].as_b().is_ok_and(|bytes| bytes.as_ref().len() < 100));
        assert_eq!(value_of::<Value>(&compressed, 1, "x"), Ok(value.clone()));
        assert_eq!(read(text(value.to_string())), Ok(value));
    }

    #[test]
    fn what_cannot_be_read_says_which_item_it_is() {
        for data in [text("{"), AttributeValue::B(Blob::new(b"odd")), AttributeValue::B(Blob::new([])), number(1)] {
            let error = read(data).unwrap_err();
            assert!(matches!(&error, StoreError::Unreadable { what, .. } if what == "claim prod/a"), "{error:?}");
        }
    }
}
