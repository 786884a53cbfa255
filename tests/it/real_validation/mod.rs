//! `whittle validate` against a real API server with our CRDs: for thousands of manifests that differ from a valid one in a place or two,
//! as new objects and as changes of stored ones, both accept the same, name the same fields and store the same spec. Of the kinds from
//! before v1 the command refuses all that the server refuses, and more: what cannot be converted to v1, or is invalid there.
//!
//! One thing is not compared: a new object with a `metadata.resourceVersion`. The command refuses it as a server's store does, and the
//! requests here are dry runs, which never come to the store and accept it.

mod legacy;
mod metadata;
mod mutations;
mod server;

use crate::api_requests::{Request, send};
use crate::real_admission::{root, server};
use mutations::{Case, Definition, Sequence};
use serde_json::{Value, json};
use server::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use whittle_backends::control_plane::ControlPlane;
use whittle_cli::validate::{self, Args, Output};

const JSON: &str = "application/json";
/// How many manifests are compared where nothing else is asked for; `WHITTLE_MANIFESTS=all` compares every one.
const SAMPLE: usize = 2400;

fn documents(file: &str, text: &str) -> Vec<Value> {
    let documents = whittle_api::manifest::documents(file, text);
    documents.into_iter().map(|document| document.expect("the file is YAML").value().clone()).collect()
}

/// The definitions of the kinds that are current, by kind.
fn definitions() -> BTreeMap<String, Definition> {
    let mut all = all_definitions();
    all.retain(|(api_version, _), _| !legacy::VERSIONS.contains(&api_version.as_str()));
    all.into_iter().map(|((_, kind), definition)| (kind, definition)).collect()
}

/// All definitions, by version and kind.
fn all_definitions() -> BTreeMap<(String, String), Definition> {
    let files = std::fs::read_dir(root().join("infra/crds")).expect("the CRDs are there").map(|entry| entry.expect("is listed").path());
    let texts = files.map(|file| std::fs::read_to_string(file).expect("is text"));
    texts
        .flat_map(|text| documents("CRD", &text))
        .flat_map(Definition::each_version)
        .map(|definition| ((definition.api_version(), definition.kind().to_owned()), definition))
        .collect()
}

fn bases() -> Vec<Value> {
    documents("bases.yaml", include_str!("bases.yaml"))
}

fn kind(manifest: &Value) -> &str {
    manifest["kind"].as_str().expect("a base has a kind")
}

/// Runs the command on documents, and returns its verdicts in their order.
fn judged(documents: &[&Value], update: bool) -> Vec<Outcome> {
    let text: String = documents.iter().map(|document| format!("---\n{document}\n")).collect();
    let args = Args { filename: vec!["-".into()], output: Output::Json, update, strict: false };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = validate::run(&args, &mut text.as_bytes(), &mut out, &mut err).expect("memory can be written");
    assert_ne!(code, ExitCode::from(2), "{}", String::from_utf8_lossy(&err));
    let printed: Value = serde_json::from_slice(&out).expect("the command prints JSON");
    let objects = printed["objects"].as_array().expect("a list of objects");
    assert_eq!(objects.len(), documents.len(), "every document is judged");
    let field = |error: &Value| server::plain(error["field"].as_str().unwrap_or_default());
    let outcome = |object: &Value| Outcome {
        accepted: object["accepted"] == true,
        fields: Some(object["errors"].as_array().into_iter().flatten().map(field).collect()),
        spec: object["defaulted"].clone(),
        message: object["errors"].to_string(),
    };
    objects.iter().map(outcome).collect()
}

/// What the server and the command disagree about.
fn difference(theirs: &Outcome, ours: &Outcome) -> Option<String> {
    let answers = || format!("\n    server:  {}\n    command: {}", head(&theirs.message), head(&ours.message));
    if theirs.accepted != ours.accepted {
        return Some(format!("accepted by {}{}", if theirs.accepted { "the server alone" } else { "the command alone" }, answers()));
    }
    let undecoded = || ours.fields.iter().flatten().all(|field| field.starts_with("metadata"));
    match &theirs.fields {
        None if undecoded() => return None,
        fields if *fields == ours.fields => {}
        fields => return Some(format!("fields: {fields:?} by the server, {:?} by the command{}", ours.fields, answers())),
    }
    (theirs.spec != ours.spec)
        .then(|| format!("stored: {} by the server, {} by the command", head(&theirs.spec.to_string()), head(&ours.spec.to_string())))
}

fn head(text: &str) -> String {
    text.chars().take(700).collect()
}

/// A reproducible sample of the cases, in their order.
fn sample(cases: Vec<Case>, share: usize, of: usize) -> Vec<Case> {
    if std::env::var("WHITTLE_MANIFESTS").is_ok_and(|given| given == "all") {
        return cases;
    }
    let mut random = Sequence(19);
    cases.into_iter().filter(|_| usize::try_from(random.next()).expect("31 bits fit") % of < share).collect()
}

fn created(cluster: &ControlPlane, definitions: &BTreeMap<String, Definition>, cases: &[Case]) -> Vec<Outcome> {
    let resource = |manifest: &Value| definitions[kind(manifest)].resource();
    created_as(cluster, resource, cases)
}

/// What the server answers to each as a new object of its resource.
fn created_as(cluster: &ControlPlane, resource: impl Fn(&Value) -> String, cases: &[Case]) -> Vec<Outcome> {
    let request = |case: &Case| {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", resource(&case.manifest));
        Request { method: "POST", path, content_type: JSON, body: server::encoded(&case.manifest) }
    };
    let requests: Vec<Request> = cases.iter().map(request).collect();
    send(cluster, &requests).iter().map(server::outcome).collect()
}

fn report(cases: &[Case], theirs: &[Outcome], ours: &[Outcome]) {
    let differences: Vec<String> = cases
        .iter()
        .zip(theirs.iter().zip(ours))
        .filter_map(|(case, (theirs, ours))| Some(format!("{}: {}", case.about, difference(theirs, ours)?)))
        .collect();
    let accepted = theirs.iter().filter(|outcome| outcome.accepted).count();
    println!("{} manifests, {} differences ({accepted} accepted by the server)", cases.len(), differences.len());
    let first = differences.iter().take(60).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{first}", differences.len());
}

#[test]
fn every_field_of_the_crds_occurs_in_a_base() {
    let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
    for (kind, definition) in definitions() {
        mutations::fields(&definition.schema()["properties"]["spec"], &kind, &mut known);
    }
    for base in bases() {
        mutations::used_fields(&base["spec"], kind(&base), &mut used);
    }
    let missing: Vec<&String> = known.difference(&used).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(120 < known.len(), "{}", known.len());
}

#[test]
fn validate_judges_new_objects_as_a_real_api_server_does() {
    let Some(cluster) = server() else { return };
    let definitions = definitions();
    let mut cases: Vec<Case> =
        bases().into_iter().map(|manifest| Case { about: format!("{} as it is", manifest["metadata"]["name"]), manifest }).collect();
    let all: Vec<Case> = bases().iter().flat_map(|base| mutations::mutations(&definitions[kind(base)], base)).collect();
    let of = all.len();
    cases.extend(sample(all, SAMPLE, of));
    // Metadata is checked alike for every kind; one is namespaced, one not.
    cases.extend(
        bases()
            .iter()
            .filter(|base| ["static", "workload"].contains(&base["metadata"]["name"].as_str().unwrap_or_default()))
            .flat_map(metadata::mutations),
    );
    let manifests: Vec<&Value> = cases.iter().map(|case| &case.manifest).collect();
    report(&cases, &created(&cluster, &definitions, &cases), &judged(&manifests, false));
}

#[test]
fn validate_judges_changes_as_a_real_api_server_does() {
    let Some(cluster) = server() else { return };
    let definitions = definitions();
    let (mut cases, mut requests, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
    for base in bases() {
        let resource = definitions[kind(&base)].resource();
        let path = format!("{resource}?fieldValidation=Strict");
        let stored = send(&cluster, &[Request { method: "POST", path, content_type: JSON, body: server::encoded(&base) }]).remove(0);
        assert_eq!(stored["kind"], base["kind"], "{stored}");
        let name = base["metadata"]["name"].as_str().expect("a base has a name").to_owned();
        let all = [mutations::mutations(&definitions[kind(&base)], &base), metadata::mutations(&base)].concat();
        let of = all.len();
        let keeps_its_name = |case: &Case| case.manifest["metadata"]["name"] == name && case.manifest["metadata"]["uid"].is_null();
        for case in sample(all, SAMPLE / 12, of).into_iter().filter(keeps_its_name) {
            let mut sent = case.manifest.clone();
            if sent["metadata"].get("resourceVersion").is_none() {
                sent["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            }
            let path = format!("{resource}/{name}?dryRun=All&fieldValidation=Strict");
            requests.push(Request { method: "PUT", path, content_type: JSON, body: server::encoded(&sent) });
            // For the command, each change is one of an object of its own.
            for document in [&base, &case.manifest] {
                let mut document = document.clone();
                document["metadata"]["name"] = json!(format!("object-{}", cases.len()));
                pairs.push(document);
            }
            cases.push(case);
        }
    }
    let theirs: Vec<Outcome> = send(&cluster, &requests).iter().map(server::outcome).collect();
    let ours: Vec<Outcome> = judged(&pairs.iter().collect::<Vec<_>>(), true).into_iter().skip(1).step_by(2).collect();
    report(&cases, &theirs, &ours);
}
