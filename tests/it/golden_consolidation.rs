//! Every golden consolidation case, through `whittle consolidate`.

use crate::golden_scheduling::{answers, canonical_claim, expected, golden, list};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use whittle_cli::consolidate::{ConsolidateArgs, render};
use whittle_cli::source::Source;
use whittle_cli::source::{PackingArg, ReportFormat};

fn cases() -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = std::fs::read_dir(golden().join("consolidation")).unwrap().map(|e| e.unwrap().path()).collect();
    out.sort();
    assert!(out.len() >= 65, "only {} cases", out.len());
    out
}

fn consolidate(case: &Path, packing: PackingArg) -> Value {
    let source = Source::of_case(case.join("input.yaml"), golden().join("catalog.json"));
    let args = ConsolidateArgs { source, output: ReportFormat::Json, packing };
    serde_json::from_str(&render(&args).unwrap()).unwrap()
}

/// The order of types is left out, because Karpenter's is arbitrary among equal prices; the set of types and the cheapest price must agree.
fn canonical(answer: &Value) -> String {
    let claim = |claim: &Value| {
        let mut claim = claim.clone();
        let types: BTreeSet<&str> = list(&claim, "instanceTypes").filter_map(Value::as_str).collect();
        claim["instanceTypes"] = json!(types);
        canonical_claim(&claim)
    };
    let mut commands: Vec<String> = list(answer, "commands")
        .map(|command| {
            let mut replacements: Vec<String> = list(command, "replacements").map(claim).collect();
            replacements.sort();
            format!("{} {} {} {replacements:#?}", command["reason"], command["decision"], command["candidates"])
        })
        .collect();
    commands.sort();
    commands.join("\n")
}

/// The savings of all commands in dollars per hour.
fn saved(answer: &Value) -> f64 {
    list(answer, "commands").map(|command| command["savings"].as_f64().unwrap()).sum()
}

fn reason(answer: &Value) -> Option<&str> {
    list(answer, "commands").next().and_then(|command| command["reason"].as_str())
}

/// Nodes that Karpenter reports as blocked.
fn blocked(answer: &Value) -> BTreeSet<&str> {
    let blocked = list(answer, "notes").filter(|note| note["reason"] == "DisruptionBlocked");
    blocked.filter_map(|note| note["object"].as_str()?.strip_prefix("node/")).collect()
}

#[test]
fn packing_reference_consolidates_as_karpenter_does() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (expected, actual) = (expected(&case), consolidate(&case, PackingArg::Reference));
        if !answers(&expected).iter().any(|answer| canonical(answer) == canonical(&actual)) {
            wrong.push(format!("{}\nexpected {}\nactual {}", case.display(), canonical(&expected), canonical(&actual)));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn the_best_search_saves_as_much_for_the_same_reason_and_touches_no_blocked_node() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (expected, actual) = (expected(&case), consolidate(&case, PackingArg::Best));
        let as_good = reason(&actual) == reason(&expected) && saved(&actual) >= saved(&expected) - 1e-6;
        // With a terminationGracePeriod, drift disrupts nodes although their pods block it.
        let overridden = reason(&expected) == Some("Drifted");
        let mut candidates = list(&actual, "commands").flat_map(|command| list(command, "candidates")).filter_map(Value::as_str);
        if !as_good || !overridden && candidates.any(|node| blocked(&expected).contains(node)) {
            wrong.push(format!("{}\nexpected {}\nactual {}", case.display(), canonical(&expected), canonical(&actual)));
        }
    }
    assert!(wrong.is_empty(), "{} cases are worse:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn every_node_has_a_verdict_with_an_explanation() {
    for case in cases() {
        let answer = consolidate(&case, PackingArg::Best);
        let verdicts: Vec<&Value> = list(&answer, "verdicts").collect();
        assert!(!verdicts.is_empty(), "{}", case.display());
        for verdict in verdicts {
            let text = verdict["why"].as_str().unwrap();
            assert!(!text.is_empty() && verdict["code"] != "NotReached", "{}: {verdict}", case.display());
        }
    }
}
