//! A serde deserializer over protobuf: what a type's JSON deserializer sees, from the same object's protobuf.

use super::Error;
use super::message::{Message, Shape};
use super::wire::{Payload, Run, Wire};
use crate::shared;
use jiff::Timestamp;
use serde::de::value::{BorrowedStrDeserializer, BytesDeserializer, CowStrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;

/// The bytes of longer values are not remembered.
const SHARED_BYTES_MAX: usize = 1024;

/// A value on the wire, of known shape.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'de> {
    Text(&'de [u8]),
    Number(i64),
    Flag(bool),
    /// A `Time` message: seconds since the epoch; `None` for the zero time, which JSON writes as null.
    Time(Option<i64>),
    Message(&'de [u8], &'static Message),
    List(Run<'de>, &'static Shape),
    Map(Run<'de>, &'static Shape),
}

impl<'de> Value<'de> {
    fn of(shape: &'static Shape, payload: Payload<'de>) -> Result<Self, Error> {
        Ok(match (shape, payload) {
            (Shape::Text, Payload::Bytes(text)) => Self::Text(text),
            (Shape::Number, Payload::Number(number)) => Self::Number(number.cast_signed()),
            (Shape::Flag, Payload::Number(number)) => Self::Flag(number != 0),
            (Shape::Time, Payload::Bytes(time)) => Self::Time(match time {
                [] => None,
                time => Some(first_of(time, Payload::Number(0), |payload| match payload {
                    Payload::Number(seconds) => Some(seconds.cast_signed()),
                    Payload::Bytes(_) | Payload::Fixed => None,
                })?),
            }),
            (Shape::Quantity, Payload::Bytes(quantity)) => Self::Text(first_of(quantity, Payload::Bytes(b""), bytes)?),
            (Shape::Message(message) | Shape::Inline(message), Payload::Bytes(bytes)) => Self::Message(bytes, message),
            _ => return Err(Error::Malformed("a field has another wire type than its message declares")),
        })
    }

    /// The bytes of a collection that make its value what it is, if they are few: without the fields that no type reads, such as the
    /// environments and images of containers.
    fn identity(&self) -> Result<Option<Cow<'de, [u8]>>, Error> {
        let bytes = match self {
            Self::List(run, Shape::Message(message)) => return Ok(read_fields(*run, message)?.map(Cow::Owned)),
            Self::List(run, _) | Self::Map(run, _) => run.wire.bytes(),
            _ => return Ok(None),
        };
        Ok((bytes.len() <= SHARED_BYTES_MAX).then_some(Cow::Borrowed(bytes)))
    }

    /// The value that JSON omits.
    const fn is_zero(&self) -> bool {
        matches!(self, Self::Text([]) | Self::Number(0) | Self::Flag(false))
    }
}

fn bytes(payload: Payload<'_>) -> Option<&[u8]> {
    match payload {
        Payload::Bytes(bytes) => Some(bytes),
        Payload::Number(_) | Payload::Fixed => None,
    }
}

/// Field 1 of a small message; `absent` if it is not written.
fn first_of<'de, T>(message: &'de [u8], absent: Payload<'de>, read: impl Fn(Payload<'de>) -> Option<T>) -> Result<T, Error> {
    let mut wire = Wire::new(message);
    let mut first = absent;
    while let Some((number, payload)) = wire.next()? {
        if number == 1 {
            first = payload;
        }
    }
    read(first).ok_or(Error::Malformed("a time or quantity has an unexpected wire type"))
}

/// Text as JSON has it: the API server replaces what is not UTF-8 in the same way.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Text(bytes) => match text(bytes) {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            Self::Number(number) => visitor.visit_i64(number),
            Self::Flag(flag) => visitor.visit_bool(flag),
            Self::Time(None) => visitor.visit_unit(),
            Self::Time(Some(seconds)) => match Timestamp::from_second(seconds) {
                Ok(time) => visitor.visit_string(time.to_string()),
                // Beyond the calendar: no type expects a number.
                Err(_) => visitor.visit_i64(seconds),
            },
            Self::Message(bytes, message) => visitor.visit_map(Fields::new(bytes, message)),
            Self::List(run, shape) => visitor.visit_seq(Elements { run, shape }),
            Self::Map(run, shape) => visitor.visit_map(Entries { run, shape, value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Time(None) => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        let identity = if name == shared::NAME { self.identity()? } else { None };
        match identity {
            Some(bytes) => visitor.visit_seq(BytesAndValue { bytes: Some(bytes), value: Some(self) }),
            None => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(bytes) => {
                let text: CowStrDeserializer<'_, Error> = text(bytes).into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        #[cfg(test)]
        if let Self::Message(_, message) = self {
            super::tests::note_fields(name, fields, message);
        }
        let _ = (name, fields);
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        identifier
    }
}

/// The fields of a message under their JSON names. Unknown ones are skipped, and zero values as JSON does.
struct Fields<'de> {
    wire: Wire<'de>,
    message: &'static Message,
    /// The messages around an inlined one, each with its unread rest.
    around: Vec<(Wire<'de>, &'static Message)>,
    value: Option<Value<'de>>,
}

impl<'de> Fields<'de> {
    const fn new(bytes: &'de [u8], message: &'static Message) -> Self {
        Self { wire: Wire::new(bytes), message, around: Vec::new(), value: None }
    }

    /// The name and value of the next field.
    fn next(&mut self) -> Result<Option<(&'static str, Value<'de>)>, Error> {
        loop {
            let start = self.wire;
            let Some((number, payload)) = self.wire.next()? else {
                let Some((wire, message)) = self.around.pop() else { return Ok(None) };
                (self.wire, self.message) = (wire, message);
                continue;
            };
            let Some(row) = self.message.row(number) else { continue };
            let value = match row.shape {
                Shape::List(shape) => Value::List(self.wire.run_since(start, number)?, shape),
                Shape::Map(shape) => Value::Map(self.wire.run_since(start, number)?, shape),
                _ => Value::of(&row.shape, payload)?,
            };
            if let (Shape::Inline(_), Value::Message(bytes, message)) = (&row.shape, value) {
                self.around.push((self.wire, self.message));
                (self.wire, self.message) = (Wire::new(bytes), message);
            } else if row.keeps_zero || !value.is_zero() {
                return Ok(Some((row.name, value)));
            }
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.next()? else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.value.take().ok_or_else(no_key)?)
    }
}

fn no_key() -> Error {
    de::Error::custom("a value was requested before its key")
}

/// The elements of a list, each as its fields that we read, in front of them their length; `None` if that is too long to be compared.
fn read_fields(mut list: Run<'_>, message: &Message) -> Result<Option<Vec<u8>>, Error> {
    let mut kept = Vec::with_capacity(SHARED_BYTES_MAX);
    while let Some((_, payload)) = list.wire.next()? {
        let mut fields = Wire::new(bytes(payload).ok_or(Error::Malformed("an element of a list is no message"))?);
        let element = kept.len();
        kept.extend([0; 2]);
        loop {
            let start = fields;
            let Some((number, _)) = fields.next()? else { break };
            if message.row(number).is_some() {
                kept.extend_from_slice(start.until(&fields));
            }
        }
        let Ok(length) = u16::try_from(kept.len() - element) else { return Ok(None) };
        kept[element..element + 2].copy_from_slice(&length.to_be_bytes());
        if kept.len() > SHARED_BYTES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(kept))
}

/// What a shared value is read from.
struct BytesAndValue<'de> {
    bytes: Option<Cow<'de, [u8]>>,
    value: Option<Value<'de>>,
}

impl<'de> SeqAccess<'de> for BytesAndValue<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        match self.bytes.take() {
            Some(bytes) => seed.deserialize(BytesDeserializer::new(&bytes)).map(Some),
            None => self.value.take().map(|value| seed.deserialize(value)).transpose(),
        }
    }
}

/// The elements of a repeated field.
struct Elements<'de> {
    run: Run<'de>,
    shape: &'static Shape,
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((_, payload)) = self.run.wire.next()? else { return Ok(None) };
        self.run.count -= 1;
        seed.deserialize(Value::of(self.shape, payload)?).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.run.count)
    }
}

/// The entries of a map: messages with a key in field 1 and a value in field 2.
struct Entries<'de> {
    run: Run<'de>,
    shape: &'static Shape,
    value: Option<Value<'de>>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((_, payload)) = self.run.wire.next()? else { return Ok(None) };
        self.run.count -= 1;
        let mut entry = Wire::new(bytes(payload).ok_or(Error::Malformed("an entry of a map is no message"))?);
        let (mut key, mut value) = (Payload::Bytes(b""), Payload::Bytes(b""));
        while let Some((number, payload)) = entry.next()? {
            match number {
                1 => key = payload,
                2 => value = payload,
                _ => {}
            }
        }
        self.value = Some(Value::of(self.shape, value)?);
        seed.deserialize(Value::of(&Shape::Text, key)?).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.value.take().ok_or_else(no_key)?)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.run.count)
    }
}
