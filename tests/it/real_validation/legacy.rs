//! The kinds from before v1. A server judges them by their own version, the command also by what they become in v1.

use super::mutations::{self, Case, Definition};
use super::{Outcome, all_definitions, created_as, documents, head, judged, kind, sample};
use crate::real_admission::server;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The versions that v1 replaced.
pub(super) const VERSIONS: [&str; 4] =
    ["karpenter.sh/v1alpha5", "karpenter.k8s.aws/v1alpha1", "karpenter.sh/v1beta1", "karpenter.k8s.aws/v1beta1"];
/// How many manifests are compared where nothing else is asked for.
const SAMPLE: usize = 1_000;

fn bases() -> Vec<Value> {
    documents("legacy_bases.yaml", include_str!("legacy_bases.yaml"))
}

fn definition<'a>(all: &'a BTreeMap<(String, String), Definition>, manifest: &Value) -> &'a Definition {
    let version = manifest["apiVersion"].as_str().expect("a base has a version");
    &all[&(version.to_owned(), kind(manifest).to_owned())]
}

#[test]
fn every_field_of_the_versions_before_v1_occurs_in_a_base() {
    let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
    for ((version, kind), definition) in all_definitions().iter().filter(|((version, _), _)| VERSIONS.contains(&version.as_str())) {
        mutations::fields(&definition.schema()["properties"]["spec"], &format!("{version} {kind}"), &mut known);
    }
    for base in bases() {
        mutations::used_fields(&base["spec"], &format!("{} {}", base["apiVersion"].as_str().unwrap_or_default(), kind(&base)), &mut used);
    }
    let missing: Vec<&String> = known.difference(&used).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(120 < known.len(), "{}", known.len());
}

/// Whether the command refuses what the server accepts for what becomes of it in v1, and for nothing else.
fn is_of_v1(ours: &Outcome) -> bool {
    let errors: Vec<Value> = serde_json::from_str(&ours.message).expect("the errors are JSON");
    let of_v1 = ["as NodePool of karpenter.sh/v1, ", "as NodeClaim of karpenter.sh/v1, ", "as EC2NodeClass of karpenter.k8s.aws/v1, "];
    let is_of_v1 =
        |message: &str| message.starts_with("it cannot be converted to v1: ") || of_v1.iter().any(|start| message.starts_with(start));
    !errors.is_empty() && errors.iter().all(|error| is_of_v1(error["message"].as_str().unwrap_or_default()))
}

fn difference(theirs: &Outcome, ours: &Outcome) -> Option<String> {
    let answers = || format!("\n    server:  {}\n    command: {}", head(&theirs.message), head(&ours.message));
    match (theirs.accepted, ours.accepted) {
        (true, true) => None,
        (true, false) => (!is_of_v1(ours)).then(|| format!("refused by the command alone, and not for what it is in v1{}", answers())),
        (false, true) => Some(format!("accepted by the command alone{}", answers())),
        // An object that could not be decoded is refused without the name of a field.
        (false, false) => theirs
            .fields
            .as_ref()
            .filter(|fields| ours.fields.as_ref() != Some(*fields))
            .map(|fields| format!("fields: {fields:?} by the server, {:?} by the command{}", ours.fields, answers())),
    }
}

#[test]
fn what_a_real_api_server_refuses_of_the_versions_before_v1_validate_refuses_too() {
    let Some(cluster) = server() else { return };
    let definitions = all_definitions();
    let bases = bases();
    let all: Vec<Case> = bases.iter().flat_map(|base| mutations::mutations(definition(&definitions, base), base)).collect();
    let of = all.len();
    let whole =
        bases.iter().map(|base| Case { about: format!("{} {} as it is", kind(base), base["metadata"]["name"]), manifest: base.clone() });
    let mut cases: Vec<Case> = whole.chain(sample(all, SAMPLE, of)).collect();
    // Objects of one name would be changes of one another.
    for (number, case) in cases.iter_mut().enumerate() {
        case.manifest["metadata"]["name"] = json!(format!("object-{number}"));
    }
    let theirs = created_as(&cluster, |manifest| definition(&definitions, manifest).resource(), &cases);
    // Objects are converted together, as those of one user.
    let ours: Vec<Outcome> =
        cases.chunks(200).flat_map(|some| judged(&some.iter().map(|case| &case.manifest).collect::<Vec<_>>(), false)).collect();
    for (base, (theirs, ours)) in bases.iter().zip(theirs.iter().zip(&ours)) {
        // A launch template of the user's own has no equivalent.
        assert!(
            theirs.accepted && (ours.accepted || base["metadata"]["name"] == "launched"),
            "{}: {} {}",
            base["metadata"]["name"],
            theirs.message,
            ours.message
        );
    }
    let pairs = || theirs.iter().zip(&ours);
    let differences: Vec<String> = cases
        .iter()
        .zip(pairs())
        .filter_map(|(case, (theirs, ours))| Some(format!("{}: {}", case.about, difference(theirs, ours)?)))
        .collect();
    let accepted = theirs.iter().filter(|outcome| outcome.accepted).count();
    let stricter = pairs().filter(|(theirs, ours)| theirs.accepted && !ours.accepted).count();
    println!(
        "{} manifests from before v1, {} differences ({accepted} accepted by the server, {stricter} of them refused for what they are in v1)",
        cases.len(),
        differences.len()
    );
    let first = differences.iter().take(60).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{first}", differences.len());
}
