//! XML documents from values: an object is a sequence of elements, a list one element for each item, null nothing.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use serde_json::Value;
use std::io;

/// How a protocol formats its documents.
pub(crate) struct Spelling {
    pub(crate) namespace: &'static str,
    /// The element of a list's item.
    pub(crate) item: &'static str,
}

pub(crate) const EC2: Spelling = Spelling { namespace: "http://ec2.amazonaws.com/doc/2016-11-15/", item: "item" };
pub(crate) const IAM: Spelling = Spelling { namespace: "https://iam.amazonaws.com/doc/2010-05-08/", item: "member" };

/// A document with this root. Writing to memory does not fail.
pub(crate) fn document(root: &str, content: &Value, spelling: &Spelling) -> String {
    let mut writer = Writer::new(Vec::new());
    let start = BytesStart::new(root).with_attributes([("xmlns", spelling.namespace)]);
    let written = element(&mut writer, start, content, spelling);
    written.map(|()| String::from_utf8_lossy(&writer.into_inner()).into_owned()).unwrap_or_default()
}

fn element(writer: &mut Writer<Vec<u8>>, start: BytesStart<'_>, content: &Value, spelling: &Spelling) -> io::Result<()> {
    let end: BytesEnd<'static> = start.to_end().into_owned();
    writer.write_event(Event::Start(start))?;
    match content {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                match value {
                    // Only a few lists of EC2 have items of this name.
                    Value::Array(items) if name == "member" => {
                        for item in items {
                            element(writer, BytesStart::new(name), item, spelling)?;
                        }
                    }
                    _ => element(writer, BytesStart::new(name), value, spelling)?,
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                element(writer, BytesStart::new(spelling.item), item, spelling)?;
            }
        }
        Value::String(text) => writer.write_event(Event::Text(BytesText::new(text)))?,
        Value::Null => {}
        other => writer.write_event(Event::Text(BytesText::new(&other.to_string())))?,
    }
    writer.write_event(Event::End(end))
}
