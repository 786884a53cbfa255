//! Manifests that differ from a valid one in one or two places: for every field of a CRD's schema, values of every type, at and beyond each
//! bound, and the words that its rules speak of.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A manifest and how it was made.
#[derive(Clone)]
pub(super) struct Case {
    /// The base and the change, for the report.
    pub(super) about: String,
    pub(super) manifest: Value,
}

/// The definition of one kind, as it is applied, and which of its versions is meant.
pub(super) struct Definition {
    applied: Value,
    version: usize,
}

impl Definition {
    /// Without the fields that a version keeps for the other one: the server knows and refuses them, the command does not know them, as no
    /// server with Karpenter's own definitions does.
    pub(super) fn each_version(mut applied: Value) -> Vec<Self> {
        without_kept(&mut applied);
        let versions = applied["spec"]["versions"].as_array().map_or(0, Vec::len);
        (0..versions).map(|version| Self { applied: applied.clone(), version }).collect()
    }

    pub(super) fn kind(&self) -> &str {
        self.applied["spec"]["names"]["kind"].as_str().expect("a definition names its kind")
    }

    /// As objects name it, as in `karpenter.sh/v1`.
    pub(super) fn api_version(&self) -> String {
        let word = |value: &Value| value.as_str().expect("a definition is complete").to_owned();
        format!("{}/{}", word(&self.applied["spec"]["group"]), word(&self.version()["name"]))
    }

    fn version(&self) -> &Value {
        &self.applied["spec"]["versions"][self.version]
    }

    /// The path of its objects below `/apis`, as in `karpenter.sh/v1/nodepools`.
    pub(super) fn resource(&self) -> String {
        let spec = &self.applied["spec"];
        let namespace = if spec["scope"] == "Namespaced" { "namespaces/default/" } else { "" };
        format!("{}/{namespace}{}", self.api_version(), spec["names"]["plural"].as_str().expect("a definition is complete"))
    }

    pub(super) fn schema(&self) -> &Value {
        &self.version()["schema"]["openAPIV3Schema"]
    }
}

fn without_kept(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, field| !field["description"].as_str().is_some_and(|about| about.starts_with("Kept of objects")));
            map.values_mut().for_each(without_kept);
        }
        Value::Array(list) => list.iter_mut().for_each(without_kept),
        _ => {}
    }
}

/// Something that takes the place of a value; `None` takes it away.
#[derive(Clone)]
struct Change {
    /// Where, as a JSON pointer.
    at: String,
    about: String,
    value: Option<Value>,
}

/// All manifests that differ from `base` in one place of its spec or status, then as many again that differ in two.
pub(super) fn mutations(definition: &Definition, base: &Value) -> Vec<Case> {
    let mut changes = Vec::new();
    for part in ["spec", "status"] {
        let at = format!("/{part}");
        if let Some(value) = base.pointer(&at) {
            walk(&definition.schema()["properties"][part], value, &at, &mut changes);
        }
    }
    changes.push(Change { at: "/spec".to_owned(), about: "absent".to_owned(), value: None });
    changes.push(Change { at: "/nothing".to_owned(), about: "unknown".to_owned(), value: Some(json!({"a": 1})) });
    let name = base["metadata"]["name"].as_str().unwrap_or_default();
    let title = format!("{} {name}", definition.kind());
    let one = changes.iter().filter_map(|change| Some(Case { about: describe(&title, &[change]), manifest: changed(base, change)? }));
    let mut random = Sequence(changes.len() as u64);
    let pairs = (0..changes.len()).map(|_| [random.choose(&changes), random.choose(&changes)]);
    let two = pairs.filter_map(|[first, second]| {
        let manifest = changed(&changed(base, first)?, second)?;
        Some(Case { about: describe(&title, &[first, second]), manifest })
    });
    one.chain(two).collect()
}

fn describe(title: &str, changes: &[&Change]) -> String {
    let changes: Vec<String> = changes.iter().map(|change| format!("{} {}", change.at, change.about)).collect();
    format!("{title}: {}", changes.join(", "))
}

fn changed(base: &Value, change: &Change) -> Option<Value> {
    let mut manifest = base.clone();
    let (parent, key) = change.at.rsplit_once('/')?;
    let key = key.replace("~1", "/").replace("~0", "~");
    match (manifest.pointer_mut(parent)?, &change.value) {
        (Value::Object(map), Some(value)) => _ = map.insert(key, value.clone()),
        (Value::Object(map), None) => _ = map.remove(&key)?,
        (Value::Array(list), Some(value)) => *list.get_mut(key.parse::<usize>().ok()?)? = value.clone(),
        (Value::Array(list), None) => {
            let index = key.parse::<usize>().ok().filter(|index| *index < list.len())?;
            list.remove(index);
        }
        _ => return None,
    }
    Some(manifest)
}

/// A reproducible sequence of choices.
pub(super) struct Sequence(pub(super) u64);

impl Sequence {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(super) fn choose<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.next()).expect("31 bits fit") % all.len()]
    }
}

fn walk(schema: &Value, value: &Value, at: &str, changes: &mut Vec<Change>) {
    let mut add = |about: &str, value: Option<Value>| changes.push(Change { at: at.to_owned(), about: about.to_owned(), value });
    add("absent", None);
    let mut values = of_every_type();
    values.extend(match kind_of(schema) {
        "string" => texts(schema, value),
        "integer" => integers(schema),
        "number-or-text" => amounts(),
        "array" => lists(schema, value),
        "object" => objects(schema, value),
        _ => Vec::new(),
    });
    for replacement in values {
        add(&shortened(&replacement), Some(replacement));
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let below = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
                walk(below, value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), changes);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                walk(&schema["items"], value, &format!("{at}/{index}"), changes);
            }
        }
        _ => {}
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 160 { text } else { format!("{}… ({} bytes)", text.chars().take(120).collect::<String>(), text.len()) }
}

fn kind_of(schema: &Value) -> &str {
    if schema["x-kubernetes-int-or-string"] == true { "number-or-text" } else { schema["type"].as_str().unwrap_or_default() }
}

fn of_every_type() -> Vec<Value> {
    vec![
        Value::Null,
        json!(""),
        json!("x"),
        json!("no such word"),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(true),
        json!([]),
        json!([null]),
        json!([{"nothing": 1}]),
        json!([["x"]]),
        json!({}),
        json!({"nothing": null}),
        json!({"nothing": "x"}),
    ]
}

/// Texts that some pattern, rule or parser treats in its own way.
const TEXTS: &[&str] = &[
    "0",
    "-1",
    "1",
    "+1",
    "1.",
    ".5",
    "01",
    "1_000",
    "0x10",
    "1e3",
    "1E",
    "1Ei",
    "1e0.5",
    "१",
    "x\n",
    "\nx",
    "é",
    "a b",
    " a",
    "a ",
    "a/b",
    "a.b/c",
    "a//b",
    "/a",
    "a/",
    "a.b",
    "-a",
    "a-",
    "_a",
    "A/b",
    "a_b/c",
    "1h",
    "1h1m",
    "1m1h",
    "1h0s",
    "30m0s",
    "0s",
    "1d",
    "1.5h",
    "-1s",
    "2562048h",
    "99999999999999999999h",
    "Never",
    "never",
    "100%",
    "101%",
    "1000%",
    "0%",
    "5.5%",
    "%",
    "@daily",
    "@every 1h",
    "@dailyx",
    "* * * * *",
    "* * * *",
    "* * * * * *",
    "0 9 * * mon-fri",
    "1Gi",
    "59000Gi",
    "59001Gi",
    "0Gi",
    "64000G",
    "64001G",
    "58Ti",
    "59Ti",
    "Ti",
    "64T",
    "65T",
    "20gi",
    "1.5Ti",
    "al2@v1",
    "al2023@",
    "@latest",
    "al2023",
    "al2023@a@b",
    "custom@x",
    "windows2022@v1",
    "windows2022@latest",
    "Bottlerocket@latest",
    "sg-0",
    "sg-",
    "xsg-0a",
    "sg-0A",
    "ami-0",
    "ami-",
    "subnet-0",
    "subnet-",
    "cr-0a",
    "cr-0A",
    "cr-",
    "pg-0",
    "pg-",
    "123456789012",
    "12345678901",
    "1234567890123",
    "x.karpenter.sh/y",
    "karpenter.sh/x",
    "karpenter.sh",
    "xkarpenter.sh/y",
    "karpenter.k8s.aws/x",
    "x.karpenter.k8s.aws/y",
    "k8s.aws/x",
    "kubernetes.io/hostname",
    "+0.1",
    "-0.1",
    "+10%",
    "-10%",
    "-100%",
    "-101%",
    "-99.9%",
    "+.5",
    "+",
    "10%",
    "+1000%",
    "0.1",
    "1.1.1",
    "2026-02-30T10:00:00Z",
    "2026-01-31t10:00:00z",
    "2026-01-31 10:00:00Z",
    "2026-01-31T24:00:00Z",
    "2026-01-31T10:00:60Z",
    "2026-01-31T10:00Z",
    "2026-01-31T10:00:00",
    "2026-01-31T10:00:00,5Z",
    "2026-01-31T10:00:00+0200",
    "2026-01-31T10:00:00+99:00",
    "0000-01-01T00:00:00Z",
    "true",
    "null",
];

fn texts(schema: &Value, value: &Value) -> Vec<Value> {
    let own = value.as_str().unwrap_or_default();
    let mut texts: BTreeSet<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    texts.extend([
        own.to_uppercase(),
        own.to_lowercase(),
        format!("{own} "),
        format!(" {own}"),
        format!("{own}\n"),
        format!("{own}é"),
        format!("{own}{own}"),
    ]);
    texts.extend(literals(schema));
    texts.extend(["a".repeat(63), "a".repeat(64), "a".repeat(5000), format!("{}/a", "a".repeat(253)), format!("{}/a", "a".repeat(254))]);
    if let Some(max) = schema["maxLength"].as_u64().and_then(|max| usize::try_from(max).ok()) {
        texts.extend(["a".repeat(max), "a".repeat(max + 1), "é".repeat(max), "é".repeat(max + 1)]);
    }
    texts.into_iter().map(Value::from).collect()
}

/// The words of a schema's enumerations and rules.
fn literals(schema: &Value) -> Vec<String> {
    let words = schema["enum"].as_array().into_iter().flatten().filter_map(|word| Some(word.as_str()?.to_owned()));
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten().filter_map(|rule| rule["rule"].as_str());
    let quoted = rules.flat_map(|rule| rule.split('\'').skip(1).step_by(2).map(str::to_owned));
    words.flat_map(|word| [word.to_lowercase(), word]).chain(quoted).collect()
}

fn integers(schema: &Value) -> Vec<Value> {
    let bounds = ["minimum", "maximum"].into_iter().filter_map(|bound| schema[bound].as_i64());
    let mut numbers: Vec<Value> = bounds.flat_map(|bound| [bound - 1, bound, bound + 1]).map(Value::from).collect();
    let powers = [
        1,
        i64::from(i32::MAX),
        i64::from(i32::MAX) + 1,
        i64::from(i32::MIN),
        i64::from(i32::MIN) - 1,
        (1 << 53) - 1,
        1 << 53,
        i64::MAX,
        i64::MIN,
    ];
    numbers.extend(powers.map(Value::from));
    numbers.extend([json!(9_223_372_036_854_775_808_u64), json!(1.0), json!(100.0), json!(1e3), json!(1e30), json!(-1.0), json!("1")]);
    numbers
}

fn amounts() -> Vec<Value> {
    let texts = [
        "1",
        "-1",
        "+1",
        "1.5",
        "1.",
        ".5",
        ".",
        "500m",
        "1k",
        "1K",
        "1M",
        "1Mi",
        "1Ki",
        "1Ei",
        "1E",
        "1e3",
        "1E3",
        "1e-3",
        "1e0.5",
        "1e.5",
        "1e99999",
        "1ki",
        "1KI",
        "1n",
        "1u",
        "1g",
        " 1",
        "1 ",
        "1\n",
        "1kk",
        "0x1",
        "१",
        "1,5",
        "1_000",
        "99999999999999999999",
        "a",
        "--1",
        "1mi",
    ];
    let numbers =
        [json!(1), json!(i64::MAX), json!(9_223_372_036_854_775_808_u64), json!(1.0), json!(1e3), json!(1e30), json!(-1.0), json!(0.1)];
    texts.map(Value::from).into_iter().chain(numbers).collect()
}

fn lists(schema: &Value, value: &Value) -> Vec<Value> {
    let Some(list) = value.as_array().filter(|list| !list.is_empty()) else { return Vec::new() };
    let mut lists: Vec<Vec<Value>> = (0..list.len()).map(|index| vec![list[index].clone()]).collect();
    lists.extend(list.iter().map(|item| [&list[..], std::slice::from_ref(item)].concat()));
    lists.push(list.iter().rev().cloned().collect());
    lists.push([&list[..], &[Value::Null]].concat());
    lists.push(vec![json!({})]);
    lists.push(vec![json!({}), list[0].clone()]);
    for count in ["minItems", "maxItems"].into_iter().filter_map(|bound| schema[bound].as_u64()) {
        let count = usize::try_from(count).expect("bounds are small");
        lists.extend([count.saturating_sub(1), count, count + 1].map(|count| list.iter().cycle().take(count).cloned().collect()));
    }
    if let Some(count) = schema["maxItems"].as_u64() {
        let items = || list.iter().cycle().zip(0..count);
        lists.push(items().map(|(item, number)| numbered(item, number)).collect());
        lists.push(items().map(|(_, number)| numbered(&list[0], number)).collect());
    }
    let words = literals(&schema["items"]);
    lists.extend(words.iter().map(|word| vec![Value::from(word.clone())]));
    lists.extend(words.iter().map(|word| [&list[..], &[Value::from(word.clone())]].concat()));
    lists.into_iter().map(Value::Array).collect()
}

/// An element unlike the others: what identifies it is its own.
fn numbered(item: &Value, number: u64) -> Value {
    match item {
        Value::String(text) => json!(format!("{text}{number}")),
        Value::Number(_) => json!(number),
        Value::Object(map) => {
            let own = |(key, value): (&String, &Value)| {
                (
                    key.clone(),
                    if ["id", "name", "key", "deviceIndex", "networkCardIndex"].contains(&key.as_str()) {
                        numbered(value, number)
                    } else {
                        value.clone()
                    },
                )
            };
            map.iter().map(own).collect::<Map<String, Value>>().into()
        }
        other => other.clone(),
    }
}

fn objects(schema: &Value, value: &Value) -> Vec<Value> {
    let Some(map) = value.as_object() else { return Vec::new() };
    let mut maps: Vec<Map<String, Value>> = Vec::new();
    let with = |key: &str, value: Value| {
        let mut map = map.clone();
        map.insert(key.to_owned(), value);
        map
    };
    let without =
        |keys: &[&String]| map.iter().filter(|(key, _)| !keys.contains(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    maps.extend([with("nothing", Value::Null), with("nothing", json!("x")), with("", json!("x")), with("no.thing/x", json!({"y": 1}))]);
    let keys: Vec<&String> = map.keys().collect();
    for (at, first) in keys.iter().enumerate() {
        maps.push([((*first).clone(), map[*first].clone())].into_iter().collect());
        maps.extend(keys[at + 1..].iter().map(|second| without(&[first, second])));
        maps.push(with(&first.to_lowercase(), map[*first].clone()));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten().filter(|(name, _)| !map.contains_key(*name)) {
        maps.extend(samples(property).into_iter().map(|sample| with(name, sample)));
    }
    if let (false, Some((_, sample))) = (schema["additionalProperties"].is_null(), map.iter().next()) {
        let keys = TEXTS.iter().map(|text| (*text).to_owned()).chain(literals(schema));
        maps.extend(keys.map(|key| with(&key, sample.clone())));
        maps.extend(["a".repeat(63), "a".repeat(64), "a".repeat(317)].map(|key| with(&key, sample.clone())));
        if let Some(max) = schema["maxProperties"].as_u64() {
            let many = |count: u64| (0..count).map(|number| (format!("key{number}"), sample.clone())).collect();
            maps.extend([many(max), many(max + 1)]);
        }
    }
    maps.into_iter().map(Value::Object).collect()
}

/// Values of the type of a field that the base does not have.
fn samples(schema: &Value) -> Vec<Value> {
    match kind_of(schema) {
        "string" => literals(schema).into_iter().chain(["x".to_owned(), "1".to_owned(), "ami-0a".to_owned()]).map(Value::from).collect(),
        "integer" => vec![json!(1), json!(100)],
        "number-or-text" => vec![json!(1), json!("1")],
        "boolean" => vec![json!(true), json!(false)],
        "array" => vec![json!([]), json!(["x"]), json!([{}])],
        _ => vec![json!({}), json!({"a": "b"}), json!({"name": "x"})],
    }
}

/// The paths of all fields of a schema: `.template.spec.taints[].key`.
pub(super) fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        found.insert(path.clone());
        fields(property, &path, found);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], &format!("{path}[]"), found);
    }
}

/// The paths of all fields that a value has, named as by [`fields`].
pub(super) fn used_fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = format!("{path}.{name}");
                found.insert(path.clone());
                used_fields(value, &path, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| used_fields(value, &format!("{path}[]"), found)),
        _ => {}
    }
}
