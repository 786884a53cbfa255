//! What `launch` sends, beside what Karpenter sent, and the machine that the NodeClaim shows.

use super::region::twin_for_arm;
use super::stage::refusal;
use super::{Case, Outcome, Outcomes, Stage, files, stem};
use crate::wire::{lines, validate};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use whittle_claims::NodeClassRecord;
use whittle_ports::error_chain;
use whittle_tests::fake_aws::Sent;
use whittle_units::Resources;

/// A case that has been launched as often as it says.
pub(crate) struct Launched {
    pub(crate) sent: Vec<Sent>,
    /// See [`refusal`].
    refused: Option<String>,
    /// What the NodeClaims show otherwise than Karpenter's.
    differences: Vec<String>,
}

/// Refreshes and launches a case over a fresh world. Every attempt is another claim of the same content.
pub(crate) fn launched(path: &Path) -> Result<Launched, String> {
    let (name, case) = (stem(path), Case::read(path)?);
    let (stage, record) = Stage::refreshed(&case)?;
    let answers = std::fs::read_to_string(path.with_extension("json")).map_err(|error| format!("no answer: {error}"))?;
    let answers: Vec<Value> = serde_json::from_str(&answers).map_err(|error| format!("no JSON: {error}"))?;
    let mut differences = record.problems.clone();
    for (number, answer) in (1..).zip(&answers) {
        stage.aws.label(format!("{name} {number}"));
        let now = stage.simulation.world().now();
        let claim = case.planned(number, now);
        stage.store(std::slice::from_ref(&claim));
        stage.launch(std::slice::from_ref(&claim.key.name)).map_err(|error| format!("launch {number}: {}", error_chain(&error)))?;
        let found = match (stage.node_claim(&claim.key.name), answer["claim"].is_object()) {
            (Some(shown), true) => other_machine(&shown, &answer["claim"]),
            (None, true) => vec!["no NodeClaim shows a machine".to_owned()],
            (_, false) => Vec::new(),
        };
        differences.extend(found.into_iter().map(|what| format!("claim {number}: {what}")));
    }
    let mut sent = stage.aws.sent();
    sent.iter_mut().for_each(|sent| in_terms_of_the_case(sent, &case, &record));
    sent.iter_mut().filter(|sent| sent.label == "refresh").for_each(|sent| sent.label = format!("{name} refresh"));
    Ok(Launched { sent, refused: refusal(&record), differences })
}

/// Names that the case chose and that differ in any cluster: of the instance profile, which has a hash in it, and of the image for
/// arm64 ([`twin_for_arm`]).
fn in_terms_of_the_case(sent: &mut Sent, case: &Case, record: &NodeClassRecord) {
    let body = &mut sent.request.body;
    if let Some(theirs) = &case.resolved.instance_profile {
        *body = body.replace(&format!("IamInstanceProfile.Name={}", record.instance_profile), &format!("IamInstanceProfile.Name={theirs}"));
    }
    for ami in &case.resolved.amis {
        *body = body.replace(&twin_for_arm(&ami.id), &ami.id);
    }
}

fn amounts(resources: &Resources) -> BTreeMap<String, i64> {
    let amount = |name: &str, amount: whittle_units::Quantity| if name == "cpu" { amount.milli() } else { amount.units_ceil() };
    resources.iter().filter(|(_, each)| !each.is_zero()).map(|(name, each)| (name.to_owned(), amount(name, each))).collect()
}

/// What the machine of a NodeClaim has that Karpenter's has not, and the reverse.
fn other_machine(shown: &whittle_api::karpenter::NodeClaim, theirs: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    let mut differ = |what: &str, ours: Value, theirs: &Value| {
        if ours != *theirs && !theirs.is_null() {
            differences.push(format!("{what} {ours} and not {theirs}"));
        }
    };
    differ("capacity", json!(amounts(&shown.status.capacity)), &theirs["capacity"]);
    differ("allocatable", json!(amounts(&shown.status.allocatable)), &theirs["allocatable"]);
    differ("image", json!(shown.status.image_id), &theirs["imageID"]);
    for (key, value) in theirs["labels"].as_object().into_iter().flatten() {
        differ(key, json!(shown.metadata.labels.get(key)), value);
    }
    differences
}

/// The outcome of each case of `launch/`.
pub(super) fn outcomes(folder: &Path) -> Outcomes {
    let folder = folder.join("launch");
    let (mut outcomes, mut all) = (Outcomes::new(), Vec::new());
    for path in files(&folder) {
        let name = format!("launch/{}", stem(&path));
        let outcome = match launched(&path) {
            Err(message) => Outcome::Differs(vec![message]),
            Ok(Launched { refused: Some(why), .. }) => Outcome::Skipped(why),
            Ok(launched) => {
                let attempts = attempts(&path, &launched.sent);
                all.extend(attempts);
                all.extend(lines(&launched.sent));
                Outcome::of(launched.differences)
            }
        };
        outcomes.insert(name, outcome);
    }
    let compared = all.is_empty().then(|| (true, String::new())).or_else(|| validate("launches", &all, Some(&folder)));
    for (name, outcome) in &mut outcomes {
        let Some((_, findings)) = &compared else {
            *outcome = Outcome::Skipped("AWS's models are not here (WHITTLE_MODELS)".to_owned());
            continue;
        };
        let stem = name.trim_start_matches("launch/");
        let is_its = |line: &&str| line.starts_with(&format!("{stem} ")) || line.contains(&format!(" ({stem} "));
        let found: Vec<String> = findings.lines().filter(is_its).map(str::to_owned).collect();
        match outcome {
            Outcome::Same if !found.is_empty() => *outcome = Outcome::Differs(found),
            Outcome::Differs(known) => known.extend(found),
            _ => {}
        }
    }
    if let Some((false, findings)) = compared {
        // What belongs to no case must not be lost.
        let unclaimed = outcomes.values().all(|outcome| !matches!(outcome, Outcome::Differs(_)));
        if unclaimed {
            outcomes.insert("launch".to_owned(), Outcome::Differs(vec![findings]));
        }
    }
    outcomes
}

/// Lines for attempts that sent nothing, so that these are compared too.
fn attempts(path: &Path, sent: &[Sent]) -> Vec<String> {
    let answers = std::fs::read_to_string(path.with_extension("json")).unwrap_or_default();
    let count = serde_json::from_str::<Vec<Value>>(&answers).map_or(0, |all| all.len());
    let labels: BTreeSet<&str> = sent.iter().map(|sent| sent.label.as_str()).collect();
    let all = (1..=count).map(|number| format!("{} {number}", stem(path)));
    all.filter(|label| !labels.contains(label.as_str())).map(|label| json!({"label": label, "service": ""}).to_string()).collect()
}
