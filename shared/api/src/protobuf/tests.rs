//! Objects from protobuf are those from JSON.

use super::message::{CONTAINER, NODE, POD, Row, STATUS, Shape};
use super::*;
use crate::Pool;
use crate::k8s::{Node, Pod};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The structs that were read from a message, and their fields that it lacks.
type Noted = (BTreeSet<&'static str>, BTreeSet<(&'static str, &'static str)>);

thread_local! {
    static NOTED: RefCell<Noted> = RefCell::default();
}

/// Called for every struct that is read from a message.
pub(super) fn note_fields(name: &'static str, fields: &'static [&'static str], message: &'static Message) {
    let lacks = |field: &&&'static str| !names(message).contains(**field);
    NOTED.with_borrow_mut(|(structs, missing)| {
        structs.insert(name);
        missing.extend(fields.iter().filter(lacks).map(|field| (name, *field)));
    });
}

/// The JSON names of a message's fields.
fn names(message: &'static Message) -> BTreeSet<&'static str> {
    let inlined = message.rows.iter().filter_map(|row| match row.shape {
        Shape::Inline(inner) => Some(names(inner)),
        _ => None,
    });
    message.rows.iter().map(|row| row.name).chain(inlined.flatten()).collect()
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

fn field(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn number_field(out: &mut Vec<u8>, number: u32, value: i64) {
    varint(out, u64::from(number) << 3);
    varint(out, value.cast_unsigned());
}

/// A value as its shape is written.
fn write(out: &mut Vec<u8>, number: u32, shape: &'static Shape, value: &Json) {
    let mut inner = Vec::new();
    match shape {
        Shape::Text => inner.extend_from_slice(value.as_str().expect("a text").as_bytes()),
        Shape::Number | Shape::Flag => {
            return number_field(out, number, value.as_i64().or(value.as_bool().map(i64::from)).expect("a number"));
        }
        Shape::Time if value.is_null() => {}
        Shape::Time => {
            let time: jiff::Timestamp = value.as_str().expect("a time").parse().expect("a time");
            number_field(&mut inner, 1, time.as_second());
            number_field(&mut inner, 2, 0);
        }
        Shape::Quantity => field(&mut inner, 1, value.as_str().expect("a quantity").as_bytes()),
        Shape::Message(message) | Shape::Inline(message) => inner = encode(message, value),
        Shape::List(element) => return value.as_array().expect("a list").iter().for_each(|value| write(out, number, element, value)),
        Shape::Map(element) => {
            for (key, value) in value.as_object().expect("a map") {
                let mut entry = Vec::new();
                field(&mut entry, 1, key.as_bytes());
                write(&mut entry, 2, element, value);
                field(out, number, &entry);
            }
            return;
        }
    }
    field(out, number, &inner);
}

/// An object of JSON as protobuf; fields that the message lacks are left out.
fn encode(message: &'static Message, object: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    for Row { number, name, shape, .. } in message.rows {
        match shape {
            Shape::Inline(_) => write(&mut out, *number, shape, object),
            _ if object.get(name).is_some() => write(&mut out, *number, shape, &object[name]),
            _ => {}
        }
    }
    out
}

fn enveloped(kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    field(&mut type_meta, 1, b"v1");
    field(&mut type_meta, KIND, kind.as_bytes());
    let mut bytes = MAGIC.to_vec();
    field(&mut bytes, TYPE_META, &type_meta);
    field(&mut bytes, RAW, raw);
    field(&mut bytes, 3, b"");
    bytes
}

fn list(kind: &str, items: &[Vec<u8>], token: &str) -> Vec<u8> {
    let (mut raw, mut metadata) = (Vec::new(), Vec::new());
    field(&mut metadata, 2, b"4711");
    field(&mut metadata, CONTINUE, token.as_bytes());
    field(&mut raw, LIST_METADATA, &metadata);
    items.iter().for_each(|item| field(&mut raw, ITEMS, item));
    enveloped(kind, &raw)
}

fn read<T: DeserializeOwned>(bytes: &[u8], message: &'static Message) -> Result<T, Error> {
    T::deserialize(Value::Message(bytes, message))
}

/// A value with every field set, and two elements in each list.
fn sample(name: &str, shape: &'static Shape) -> Json {
    match shape {
        Shape::Text if name == "effect" => json!("NoExecute"),
        Shape::Text if name == "status" => json!("True"),
        Shape::Text => json!(format!("{name}-ä")),
        Shape::Number => json!(-7),
        Shape::Flag => json!(true),
        Shape::Time => json!("2026-11-25T17:30:00Z"),
        Shape::Quantity => json!("1500m"),
        Shape::List(element) => json!([sample(name, element), sample(name, element)]),
        Shape::Map(element) => json!({"b": sample(name, element), "a": sample(name, element)}),
        Shape::Message(message) | Shape::Inline(message) => full(message),
    }
}

fn full(message: &'static Message) -> Json {
    let mut object = serde_json::Map::new();
    for Row { name, shape, .. } in message.rows {
        match (shape, sample(name, shape)) {
            (Shape::Inline(_), Json::Object(inner)) => object.extend(inner),
            (_, value) => drop(object.insert((*name).to_owned(), value)),
        }
    }
    Json::Object(object)
}

#[test]
fn a_type_reads_no_field_that_its_message_lacks() {
    NOTED.with_borrow_mut(|noted| *noted = Default::default());
    let _: Pod = read(&encode(&POD, &full(&POD)), &POD).unwrap();
    let _: Node = read(&encode(&NODE, &full(&NODE)), &NODE).unwrap();
    let (structs, missing) = NOTED.take();
    // Conditions of nodes have none.
    assert_eq!(Vec::from_iter(missing), [("Condition", "observedGeneration")]);
    for name in ["Affinity", "ContainerStatus", "EphemeralTemplate", "NodeSystemInfo", "OwnerReference", "PodAffinityTerm", "Taint"] {
        assert!(structs.contains(name), "{name} is not among {structs:?}");
    }
}

#[test]
fn with_every_field_set_an_object_is_what_it_is_from_json() {
    let (pod, node) = (full(&POD), full(&NODE));
    let read_pod: Pod = read(&encode(&POD, &pod), &POD).unwrap();
    let read_node: Node = read(&encode(&NODE, &node), &NODE).unwrap();
    assert_eq!(read_pod, Pod::deserialize(&pod).unwrap());
    assert_eq!(read_node, Node::deserialize(&node).unwrap());
    assert_eq!(read::<Json>(&encode(&POD, &pod), &POD).unwrap(), pod);
    assert_eq!(read::<Json>(&encode(&NODE, &node), &NODE).unwrap(), node);
    assert_eq!(read_pod.spec.volumes[1].ephemeral, read_pod.spec.volumes[0].ephemeral);
    assert_eq!(read_pod.spec.priority, Some(-7));
}

#[test]
fn messages_are_well_formed() {
    fn check(message: &'static Message) {
        assert!(message.rows.is_sorted_by(|a, b| a.number < b.number), "{message:?}");
        let mut seen = BTreeSet::new();
        for row in message.rows {
            assert!(seen.insert(row.name), "{}", row.name);
            assert_eq!(row.name.is_empty(), matches!(row.shape, Shape::Inline(_)), "{message:?}");
            inner(&row.shape);
        }
    }
    fn inner(shape: &'static Shape) {
        match shape {
            Shape::Message(message) | Shape::Inline(message) => check(message),
            Shape::List(element) | Shape::Map(element) => inner(element),
            Shape::Text | Shape::Number | Shape::Flag | Shape::Time | Shape::Quantity => {}
        }
    }
    [&POD, &NODE, &STATUS].into_iter().for_each(check);
}

#[test]
fn a_zero_is_a_value_only_where_json_shows_it() {
    let zeros = json!({
        "metadata": {"generation": 0, "creationTimestamp": null, "deletionGracePeriodSeconds": 0, "name": ""},
        "spec": {"priority": 0, "affinity": {}, "hostNetwork": false, "volumes": [{"name": "", "ephemeral": {"volumeClaimTemplate": {"spec":
            {"storageClassName": ""}}}}], "resourceClaims": [{"name": ""}], "containers": [{"name": "", "resources": {}}]},
    });
    let shown = json!({
        "metadata": {"creationTimestamp": null, "deletionGracePeriodSeconds": 0},
        "spec": {"priority": 0, "affinity": {}, "volumes": [{"name": "", "ephemeral": {"volumeClaimTemplate": {"spec":
            {"storageClassName": ""}}}}], "resourceClaims": [{"name": ""}], "containers": [{"name": "", "resources": {}}]},
    });
    let bytes = encode(&POD, &zeros);
    assert_eq!(read::<Json>(&bytes, &POD).unwrap(), shown);
    let pod: Pod = read(&bytes, &POD).unwrap();
    assert_eq!(pod, Pod::deserialize(&shown).unwrap());
    assert_eq!((pod.metadata.generation, pod.spec.priority, pod.metadata.creation_timestamp), (None, Some(0), None));
}

#[test]
fn unknown_fields_are_skipped_and_order_does_not_matter() {
    let mut bytes = Vec::new();
    field(&mut bytes, 3, &encode(&NODE, &json!({"status": {"nodeInfo": {"architecture": "arm64"}}}))[2..]);
    varint(&mut bytes, 99 << 3 | 1);
    bytes.extend([0; 8]);
    varint(&mut bytes, 98 << 3 | 5);
    bytes.extend([0; 4]);
    number_field(&mut bytes, 97, i64::MIN);
    field(&mut bytes, 96, b"anything");
    let mut metadata = Vec::new();
    field(&mut metadata, 17, b"managed fields");
    field(&mut metadata, 5, b"u\xff");
    field(&mut metadata, 1, b"n");
    field(&mut bytes, 1, &metadata);
    let node: Node = read(&bytes, &NODE).unwrap();
    assert_eq!((node.metadata.name.as_str(), node.metadata.uid.as_str()), ("n", "u\u{fffd}"));
    assert_eq!(node.status.node_info.architecture, "arm64");
}

#[test]
fn an_unreadable_object_is_reported_as_from_json_and_hides_no_other() {
    let wrong = |at: &str, value: Json| {
        let mut pod = full(&POD);
        *pod.pointer_mut(at).expect("a field") = value;
        pod
    };
    let pods = [
        wrong("/metadata/name", json!("good")),
        wrong("/spec/priority", json!(i64::MAX)),
        wrong("/spec/containers/1/resources/requests/a", json!("many")),
        wrong("/metadata/name", json!("also good")),
    ];
    let items: Vec<Vec<u8>> = pods.iter().map(|pod| encode(&POD, pod)).collect();
    let page: Page<Pod> = read_page(&list("PodList", &items, "next"), &POD).unwrap();
    assert_eq!(page.items.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["good", "also good"]);
    assert_eq!(page.continue_token, "next");
    let from_json: Vec<Unreadable> = pods.iter().filter_map(|pod| Unreadable::read::<Pod>(pod).err()).map(|boxed| *boxed).collect();
    assert_eq!(page.unreadable, from_json);
    let fields: Vec<&str> = page.unreadable.iter().map(|object| object.field.as_str()).collect();
    assert_eq!(fields, ["spec.priority", "spec.containers[1].resources.requests.a"]);
    assert!(page.unreadable.iter().all(|object| object.node_name == "nodeName-ä" && object.pod.is_some()));

    let taint = json!({"metadata": {"name": "n"}, "spec": {"providerID": "aws:///z/i-1", "taints": [{"key": "k", "effect": "Sometimes"}]}});
    let page: Page<Node> = read_page(&list("NodeList", &[encode(&NODE, &taint)], ""), &NODE).unwrap();
    assert_eq!((page.items.len(), page.unreadable[0].provider_id.as_str()), (0, "aws:///z/i-1"));
}

#[test]
fn objects_that_share_values_are_equal_to_those_that_do_not() {
    let pods: Vec<Vec<u8>> = (0..6)
        .map(|number| {
            let mut pod = full(&POD);
            pod["metadata"]["labels"]["a"] = json!(format!("{}", number % 2));
            pod["spec"]["containers"][1]["resources"]["limits"]["b"] = json!(format!("{}", number % 3));
            pod["spec"]["tolerations"] = json!([{"key": format!("{}", number % 2)}]);
            // The same fields of other containers, and of other positions.
            let named = |restarts: bool| if restarts { json!({"name": "a", "restartPolicy": "Always"}) } else { json!({"name": "a"}) };
            pod["spec"]["initContainers"] = json!([named(number % 2 == 0), named(number % 2 == 1), {"name": "b"}]);
            pod["status"]["initContainerStatuses"] = json!((0..number % 3).map(|_| json!({"name": "a"})).collect::<Vec<_>>());
            encode(&POD, &pod)
        })
        .collect();
    let alone: Page<Pod> = read_page(&list("PodList", &pods, ""), &POD).unwrap();
    let mut pool = Pool::default();
    for _ in 0..2 {
        let shared: Page<Pod> = pool.during(|| read_page(&list("PodList", &pods, ""), &POD)).unwrap();
        assert_eq!(shared.items, alone.items);
    }
    assert_ne!(alone.items[0].metadata.labels, alone.items[1].metadata.labels);
}

#[test]
fn containers_that_differ_in_what_nobody_reads_are_shared() {
    const ENVIRONMENT: u32 = 7;
    let with_environment = |value: &str| {
        let mut container = encode(&CONTAINER, &json!({"name": "web", "resources": {"requests": {"cpu": "1"}}}));
        field(&mut container, ENVIRONMENT, value.repeat(500).as_bytes());
        let (mut spec, mut pod) = (Vec::new(), Vec::new());
        field(&mut spec, 2, &container);
        field(&mut pod, 2, &spec);
        pod
    };
    let pods = ["a", "b"].map(with_environment);
    let page: Page<Pod> = Pool::default().during(|| read_page(&list("PodList", &pods, ""), &POD)).unwrap();
    let [first, second] = [0, 1].map(|index| &page.items[index].spec.containers);
    assert!(std::ptr::eq(&**first, &**second) && first[0].name == "web", "{first:?}");
}

#[test]
fn a_time_beyond_the_calendar_makes_its_object_unreadable() {
    let (mut time, mut metadata, mut pod) = (Vec::new(), Vec::new(), Vec::new());
    number_field(&mut time, 1, i64::MAX);
    field(&mut metadata, 1, b"p");
    field(&mut metadata, 8, &time);
    field(&mut pod, 1, &metadata);
    let page: Page<Pod> = read_page(&list("PodList", &[pod], ""), &POD).unwrap();
    assert_eq!((page.items.len(), page.unreadable.len()), (0, 1));
    assert_eq!((page.unreadable[0].metadata.name.as_str(), page.unreadable[0].field.as_str()), ("p", "metadata.creationTimestamp"));
}

#[test]
fn a_page_that_is_cut_off_is_an_error() {
    let bytes = list("PodList", &[encode(&POD, &full(&POD)), encode(&POD, &full(&POD))], "");
    let whole: Page<Pod> = read_page(&bytes, &POD).unwrap();
    assert_eq!(whole.items.len(), 2);
    // What follows the object in the envelope is a field of two bytes.
    for length in (0..bytes.len()).filter(|&length| length != bytes.len() - 2) {
        assert!(read_page::<Pod>(&bytes[..length], &POD).is_err(), "{length} of {} bytes", bytes.len());
    }
}

#[test]
fn another_object_is_no_list() {
    let status = enveloped("Status", &encode(&STATUS, &json!({"status": "Failure", "code": 500})));
    let error = read_page::<Pod>(&status, &POD).unwrap_err();
    assert_eq!(error.to_string(), r#"it is a "Status", not a PodList"#);
    assert!(read_page::<Node>(&list("PodList", &[], ""), &NODE).is_err());
}

#[test]
fn malformed_bytes_are_errors() {
    for bytes in [&b""[..], b"k8s", b"{}", b"k8s\0", b"k8s\0\x12", b"k8s\0\x12\x05\x12", b"k8s\0\x0b\x12\x00"] {
        assert!(matches!(read_page::<Pod>(bytes, &POD), Err(Error::Malformed(_))), "{bytes:?}");
    }
    let longer_than_64_bits = [&[0x12][..], &[0xff; 10], &[1]].concat();
    for raw in [&b"\x12\x05"[..], b"\x10\x01", b"\x00\x00", b"\x12", b"\x0c", &longer_than_64_bits] {
        assert!(matches!(read_page::<Pod>(&enveloped("PodList", raw), &POD), Err(Error::Malformed(_))), "{raw:?}");
    }
    let mut number_for_text = Vec::new();
    number_field(&mut number_for_text, 1, 3);
    let mut pod = Vec::new();
    field(&mut pod, 1, &number_for_text);
    assert!(matches!(read_page::<Pod>(&list("PodList", &[pod], ""), &POD), Err(Error::Malformed(_))));
    assert!(read_page::<Pod>(&enveloped("PodList", b""), &POD).unwrap().items.is_empty());
}

#[test]
fn a_status_is_read() {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Details {
        name: String,
        retry_after_seconds: i32,
    }
    #[derive(Deserialize)]
    struct Status {
        code: u16,
        details: Details,
    }
    let status = json!({"status": "Failure", "code": 429, "details": {"name": "a", "retryAfterSeconds": 3}});
    let read: Status = read_status(&enveloped("Status", &encode(&STATUS, &status))).unwrap();
    assert_eq!((read.code, read.details.name.as_str(), read.details.retry_after_seconds), (429, "a", 3));
    // The answer of Kubernetes 1.37.1 to a wrong token.
    let refused = b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x120\n\x06\n\0\x12\0\x1a\0\x12\x07Failure\x1a\x0cUnauthorized\"\x0cUnauthorized0\x91\x03\x1a\0\"\0";
    let read: Json = read_status(refused).unwrap();
    assert_eq!(read, json!({"status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut with_prefix = MAGIC.to_vec();
        with_prefix.extend_from_slice(&bytes);
        let _ = read_page::<Pod>(&with_prefix, &POD);
        let _ = read_page::<Node>(&enveloped("NodeList", &bytes), &NODE);
        let _ = read_page::<Pod>(&list("PodList", &[bytes], ""), &POD);
    }

    #[test]
    fn a_changed_byte_never_makes_it_panic(position in 0_usize..10_000, byte in any::<u8>()) {
        let mut bytes = list("PodList", &[encode(&POD, &full(&POD)), encode(&POD, &full(&POD))], "");
        let position = position % bytes.len();
        bytes[position] = byte;
        let _ = read_page::<Pod>(&bytes, &POD);
    }
}
