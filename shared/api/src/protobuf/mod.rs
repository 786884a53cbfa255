//! Kubernetes' protobuf encoding, for the kinds of which clusters have most: read into the same types as JSON, several times faster.
//!
//! A type has one serde implementation for both encodings. The deserializer here gives it the names and values that JSON has, from
//! tables of field numbers (`message`); other fields are skipped unread. So an object is equal whichever way it comes.

mod deserializer;
mod message;
#[cfg(test)]
mod tests;
mod wire;

pub use message::Message;
pub(crate) use message::{NODE, NODE_METADATA, POD};

use crate::Unreadable;
use crate::k8s::Kind;
use deserializer::Value;
use serde::de::{self, DeserializeOwned};
use std::fmt;
use wire::{Payload, Wire};

/// The media type of the encoding.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// What every encoded object begins with.
const MAGIC: &[u8] = b"k8s\0";
/// The fields of the envelope: the object's type, and the object.
const TYPE_META: u32 = 1;
const RAW: u32 = 2;
/// The field of a type with its kind.
const KIND: u32 = 2;
/// The fields of a list.
const LIST_METADATA: u32 = 1;
const ITEMS: u32 = 2;
/// The fields of a list's metadata: its version, and the token of its next page.
const RESOURCE_VERSION: u32 = 2;
const CONTINUE: u32 = 3;

/// The fields of a change that a watch tells: its type, and its object, as the bytes of an extension.
const CHANGE_TYPE: u32 = 1;
const CHANGE_OBJECT: u32 = 2;
const EXTENSION_RAW: u32 = 1;

/// Why protobuf cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not protobuf, or cut off.
    #[error("malformed protobuf: {0}")]
    Malformed(&'static str),
    /// Another object than was asked for.
    #[error("it is a {found:?}, not a {wanted}")]
    Kind { found: String, wanted: String },
    /// Protobuf, but not what the type expects.
    #[error("{0}")]
    Value(String),
}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }
}

/// The objects of a page.
#[derive(Debug)]
pub struct Page<K> {
    pub items: Vec<K>,
    /// What is known of objects that the type cannot read.
    pub unreadable: Vec<Unreadable>,
    /// The version of the list, the same on all pages.
    pub resource_version: String,
    /// Empty on the last page.
    pub continue_token: String,
}

/// Whether bytes are an object in this encoding; otherwise they should be JSON.
pub fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads a page of a list. An object that the type cannot read hides no other.
///
/// # Errors
/// The bytes are no such list, or are cut off.
pub fn read_page<K: Kind + DeserializeOwned>(bytes: &[u8], message: &'static Message) -> Result<Page<K>, Error> {
    let (kind, raw) = unwrapped(bytes)?;
    if kind.strip_suffix("List") != Some(K::KIND) {
        return Err(Error::Kind { found: kind, wanted: format!("{}List", K::KIND) });
    }
    let mut list = Wire::new(raw);
    let mut page = Page { items: Vec::new(), unreadable: Vec::new(), resource_version: String::new(), continue_token: String::new() };
    while let Some((number, payload)) = list.next()? {
        match (number, payload) {
            (LIST_METADATA, Payload::Bytes(metadata)) => {
                page.resource_version = text_in(metadata, RESOURCE_VERSION)?;
                page.continue_token = text_in(metadata, CONTINUE)?;
            }
            (ITEMS, Payload::Bytes(item)) => match read_item(item, message)? {
                Ok(object) => page.items.push(object),
                Err(unreadable) => page.unreadable.push(*unreadable),
            },
            (LIST_METADATA | ITEMS, _) => return Err(Error::Malformed("it is not a list")),
            _ => {}
        }
    }
    Ok(page)
}

/// The type of a change that a watch tells, such as `ADDED`, and its object in its envelope.
///
/// # Errors
/// The bytes are no such change.
pub fn read_change(bytes: &[u8]) -> Result<(String, &[u8]), Error> {
    let mut change = Wire::new(bytes);
    let (mut kind, mut object) = (String::new(), None);
    while let Some((number, payload)) = change.next()? {
        match (number, payload) {
            (CHANGE_TYPE, Payload::Bytes(text)) => kind = String::from_utf8_lossy(text).into_owned(),
            (CHANGE_OBJECT, Payload::Bytes(extension)) => object = bytes_in(extension, EXTENSION_RAW)?,
            _ => {}
        }
    }
    Ok((kind, object.ok_or(Error::Malformed("a change has no object"))?))
}

/// Reads an object in its envelope, or what is known of one that the type cannot read.
///
/// # Errors
/// The bytes are no such object.
pub fn read_object<K: Kind + DeserializeOwned>(bytes: &[u8], message: &'static Message) -> Result<Result<K, Box<Unreadable>>, Error> {
    let (kind, raw) = unwrapped(bytes)?;
    if kind != K::KIND {
        return Err(Error::Kind { found: kind, wanted: K::KIND.to_owned() });
    }
    read_item(raw, message)
}

/// Reads the status that an API server answers with when a request fails.
///
/// # Errors
/// The bytes are no status.
pub fn read_status<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    T::deserialize(Value::Message(unwrapped(bytes)?.1, &message::STATUS))
}

/// The kind and the bytes of the object in the envelope.
fn unwrapped(bytes: &[u8]) -> Result<(String, &[u8]), Error> {
    let mut envelope = Wire::new(bytes.strip_prefix(MAGIC).ok_or(Error::Malformed("it lacks the prefix"))?);
    let (mut kind, mut raw) = (String::new(), None);
    while let Some((number, payload)) = envelope.next()? {
        match (number, payload) {
            (TYPE_META, Payload::Bytes(type_meta)) => kind = text_in(type_meta, KIND)?,
            (RAW, Payload::Bytes(bytes)) => raw = Some(bytes),
            _ => {}
        }
    }
    Ok((kind, raw.ok_or(Error::Malformed("it contains no object"))?))
}

/// The bytes in a field of a message, if it is written.
fn bytes_in(message: &[u8], field: u32) -> Result<Option<&[u8]>, Error> {
    let mut fields = Wire::new(message);
    let mut found = None;
    while let Some((number, payload)) = fields.next()? {
        if let (true, Payload::Bytes(bytes)) = (number == field, payload) {
            found = Some(bytes);
        }
    }
    Ok(found)
}

/// The text in a field of a message; empty if it is not written.
fn text_in(message: &[u8], field: u32) -> Result<String, Error> {
    Ok(bytes_in(message, field)?.map(String::from_utf8_lossy).unwrap_or_default().into_owned())
}

fn read_item<K: Kind + DeserializeOwned>(item: &[u8], message: &'static Message) -> Result<Result<K, Box<Unreadable>>, Error> {
    let item = Value::Message(item, message);
    match K::deserialize(item) {
        Ok(object) => Ok(Ok(object)),
        // As JSON: so that it is reported, and its identifying fields are kept, as if it had come as JSON.
        Err(Error::Value(_)) => {
            let object: serde_json::Value = serde::Deserialize::deserialize(item)?;
            Ok(Unreadable::read(&object))
        }
        Err(malformed) => Err(malformed),
    }
}
