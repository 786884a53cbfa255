//! What commands print is valid by their schemas, and the schemas have nothing that no command prints.

use super::*;
use crate::Cli;
use crate::local::{self, scenario};
use crate::source::{Format, PackingArg, ReportFormat, Source};
use crate::{check, compare, consolidate, explain, plan, validate};
use clap::Parser as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A pod that is too large for the types that the pool's limit leaves, and one that is to be near a pod that gets a machine.
const LIMITED: &str = "
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default}, spec: {limits: {cpu: 2}, template: {spec: {requirements: [],
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, resources: {requests: {cpu: 1950m}}}]}}
---
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: other}, spec: {template: {spec: {requirements: [], taints: [{key: a, effect: NoSchedule}],
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: near}, spec: {containers: [{name: c}], tolerations: [{key: a, operator: Exists}], affinity: {podAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: first}}}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: first, labels: {app: first}}, spec: {containers: [{name: c}], tolerations: [{key: a, operator: Exists}]}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}}
";

/// Whether a document is as its schema says.
#[track_caller]
pub(crate) fn assert_valid(document: Document, value: &Value) {
    if let Err(error) = validity(document, value) {
        panic!("{document:?}: {error}\n{value:#}");
    }
}

fn validity(document: Document, value: &Value) -> Result<(), String> {
    let mut compiler = boon::Compiler::new();
    compiler.enable_format_assertions();
    let name = format!("urn:whittle:{}:{}", document.name(), document.version());
    compiler.add_resource(&name, document.schema().unwrap()).unwrap();
    let mut schemas = boon::Schemas::new();
    let schema = compiler.compile(&name, &mut schemas).unwrap_or_else(|error| panic!("{document:?}: {error:#}"));
    schemas.validate(value, schema).map_err(|error| format!("{error:#}"))
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests")
}

/// The files of the golden cases of a room.
fn golden(room: &str) -> Vec<Source> {
    let folder = tests().join("golden").join(room);
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("input.yaml")).collect();
    cases.sort();
    cases.into_iter().map(|case| Source::of_case(case, tests().join("golden/catalog.json"))).collect()
}

/// Names of fields that documents have, and that their schemas have.
#[derive(Default)]
struct Seen(BTreeMap<Document, BTreeSet<String>>);

impl Seen {
    #[track_caller]
    fn add(&mut self, document: Document, text: &str) {
        let value = serde_json::from_str(text).unwrap();
        assert_valid(document, &value);
        keys(&value, self.0.entry(document).or_default());
    }

    /// Fields of a schema that no document had. Definitions that plans have, too, are looked at with these.
    fn missing(&self, document: Document) -> Vec<String> {
        let mut schema = document.schema().unwrap();
        if document != Document::Plan {
            let plan = Document::Plan.schema().unwrap();
            schema["$defs"].as_object_mut().unwrap().retain(|name, _| plan["$defs"].get(name).is_none());
        }
        let mut named = BTreeSet::new();
        properties(&schema, &mut |fields, _| named.extend(fields.keys().cloned()));
        named.difference(&self.0[&document]).cloned().collect()
    }
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.keys().cloned());
            fields.values().for_each(|field| keys(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

/// Calls `each` with the properties of every object of a schema, and its part of the schema.
fn properties(part: &Value, each: &mut dyn FnMut(&Map<String, Value>, &Value)) {
    if let Some(Value::Object(fields)) = part.get("properties") {
        each(fields, part);
    }
    match part {
        Value::Object(fields) => fields.values().for_each(|field| properties(field, each)),
        Value::Array(items) => items.iter().for_each(|item| properties(item, each)),
        _ => {}
    }
}

#[test]
fn every_schema_names_all_fields_and_refuses_others() {
    for document in Document::value_variants() {
        let schema = document.schema().unwrap();
        assert_eq!(schema["title"], format!("whittle {} -o json", document.name().replace('-', " ")));
        assert!(validity(*document, &json!({"formatVersion": 2})).is_err(), "it is a schema, and refuses another version");
        properties(&schema, &mut |fields, part| {
            // An `if` or a `properties` of values would need more; there is none.
            assert_eq!(part["additionalProperties"], json!(false), "{document:?}: {part}");
            let required = part["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            assert!(required.into_iter().all(|name| fields.contains_key(name)), "{document:?}: {part}");
        });
        let defined: BTreeSet<String> = schema["$defs"].as_object().unwrap().keys().cloned().collect();
        let mut referred = BTreeSet::new();
        references(&schema, &mut referred);
        assert_eq!(defined, referred, "{document:?}");
    }
}

#[test]
fn plans_are_as_their_schema_says() {
    let mut seen = Seen::default();
    for source in golden("scheduling") {
        let args = plan::PlanArgs { source, output: ReportFormat::Json, packing: PackingArg::Best, detailed_exitcode: false };
        seen.add(Document::Plan, &plan::render(&args).unwrap());
    }
    // No golden case has a limit that leaves types too small for the pod.
    let path = std::env::temp_dir().join(format!("whittle-schema-{}.yaml", std::process::id()));
    std::fs::write(&path, LIMITED).unwrap();
    let source = Source::of_case(path.clone(), tests().join("golden/catalog.json"));
    let args = plan::PlanArgs { source, output: ReportFormat::Json, packing: PackingArg::Reference, detailed_exitcode: false };
    let limited = plan::render(&args);
    std::fs::remove_file(&path).unwrap();
    seen.add(Document::Plan, &limited.unwrap());
    assert_eq!(seen.missing(Document::Plan), [""; 0]);
}

#[test]
fn a_field_that_the_schema_does_not_name_is_refused() {
    let source = golden("scheduling").remove(0);
    let args = plan::PlanArgs { source, output: ReportFormat::Json, packing: PackingArg::Reference, detailed_exitcode: false };
    let mut plan: Value = serde_json::from_str(&plan::render(&args).unwrap()).unwrap();
    assert_valid(Document::Plan, &plan);
    plan["nodeClaims"][0]["weight"] = json!(1);
    assert!(validity(Document::Plan, &plan).unwrap_err().contains("weight"));
}

#[test]
fn decisions_and_comparisons_of_nodes_are_as_their_schemas_say() {
    let mut seen = Seen::default();
    for source in golden("consolidation") {
        let args = consolidate::ConsolidateArgs { source: source.clone(), output: ReportFormat::Json, packing: PackingArg::Best };
        let decided = consolidate::render(&args).unwrap();
        seen.add(Document::Consolidate, &decided);
        let decided: Value = serde_json::from_str(&decided).unwrap();
        let machine = ["node", "nodeClaim"].iter().filter_map(|kind| decided["verdicts"][0][kind].as_str()).find(|name| !name.is_empty());
        let pool = decided["budgets"][0]["nodePool"].as_str().map(|name| format!("nodepool/{name}"));
        for name in machine.map(str::to_owned).into_iter().chain(pool) {
            let args = explain::ExplainArgs {
                name,
                name_of_kind: None,
                namespace: None,
                source: source.clone(),
                stack: crate::live::deployment::StackArgs::default(),
                output: Format::Json,
                packing: PackingArg::Best,
            };
            seen.add(Document::Explain, &explain::render(&args).unwrap());
        }
        let args = compare::CompareArgs { source, output: ReportFormat::Json, packing: PackingArg::Best };
        if let Ok(compared) = compare::render(&args) {
            seen.add(Document::Compare, &compared);
        }
    }
    assert_eq!(seen.missing(Document::Consolidate), [""; 0]);
    assert_eq!(seen.missing(Document::Compare), [""; 0]);
}

#[test]
fn what_is_said_of_manifests_is_as_the_schemas_say() {
    let mut seen = Seen::default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(tests().join("seeds")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = check::Args { filename: vec![file.clone()], output: crate::local::Output::Json, ..check::Args::default() };
        check::run(&args, &BTreeMap::new(), &mut io::empty(), &mut out, &mut err).unwrap();
        if !out.is_empty() {
            seen.add(Document::Check, std::str::from_utf8(&out).unwrap());
        }
        out.clear();
        let args = validate::Args { filename: vec![file], output: validate::Output::Json, update: false, strict: false };
        validate::run(&args, &mut io::empty(), &mut out, &mut err).unwrap();
        seen.add(Document::Validate, std::str::from_utf8(&out).unwrap());
    }
    assert_eq!(seen.missing(Document::Check), [""; 0]);
    assert_eq!(seen.missing(Document::Validate), [""; 0]);
}

#[test]
fn outcomes_of_scenarios_are_as_their_schema_says() {
    let mut seen = Seen::default();
    let outcomes: Vec<_> = ["s4_scale_up_and_down.yaml", "s1_scale_up_and_down.yaml"]
        .iter()
        .map(|name| scenario::run(&scenario::read(&tests().join("scenarios").join(name)).unwrap(), None).unwrap())
        .collect();
    assert!(outcomes.iter().any(|outcome| !outcome.ledger.is_empty()));
    seen.add(Document::LocalRun, &local::document(&outcomes).to_string());
    assert_eq!(seen.missing(Document::LocalRun), [""; 0]);
}

#[test]
fn schemas_are_listed_and_printed() {
    let printed = |words: &[&str]| {
        let cli = Cli::try_parse_from([&["whittle", "schema"], words].concat()).unwrap();
        let crate::Command::Schema(args) = cli.command else { panic!("another command") };
        let mut out = Vec::new();
        assert_eq!(run(&args, &mut out).unwrap(), ExitCode::SUCCESS);
        String::from_utf8(out).unwrap()
    };
    let list = printed(&[]);
    for document in Document::value_variants() {
        let name = document.name();
        assert!(list.lines().any(|line| line.starts_with(&format!("{name} "))), "{list}");
        let schema: Value = serde_json::from_str(&printed(&[&name])).unwrap();
        assert_eq!(schema["$id"], format!("urn:whittle:{name}:{}", document.version()));
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
    let error = Cli::try_parse_from(["whittle", "schema", "plam"]).unwrap_err().to_string();
    assert!(error.contains("'plan'") && error.contains("consolidate"), "{error}");
}
