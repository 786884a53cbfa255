//! Every golden scheduling case, through `whittle plan`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use whittle_cli::plan::{PlanArgs, render};
use whittle_cli::source::Source;
use whittle_cli::source::{PackingArg, ReportFormat};
use whittle_units::Quantity;

pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn cases() -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = std::fs::read_dir(golden().join("scheduling")).unwrap().map(|e| e.unwrap().path()).collect();
    out.sort();
    assert!(out.len() >= 119, "only {} cases", out.len());
    out
}

fn plan(case: &Path, packing: PackingArg) -> Value {
    let source = Source::of_case(case.join("input.yaml"), golden().join("catalog.json"));
    let args = PlanArgs { source, output: ReportFormat::Json, packing, detailed_exitcode: false };
    serde_json::from_str(&render(&args).unwrap()).unwrap()
}

pub(crate) fn expected(case: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(case.join("expected.json")).unwrap()).unwrap()
}

/// Counts pods by name without its trailing number: such pods are interchangeable.
pub(crate) fn copies<'a>(pods: impl Iterator<Item = &'a Value>) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for pod in pods {
        let name = pod.as_str().unwrap();
        let kind = name.rsplit_once('-').filter(|(_, n)| n.parse::<u32>().is_ok()).map_or(name, |(kind, _)| kind);
        *out.entry(kind.to_owned()).or_insert(0) += 1;
    }
    out
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().unwrap().iter()
}

pub(crate) fn canonical_claim(claim: &Value) -> String {
    let mut requirements: Vec<String> = list(claim, "requirements")
        .map(|r| {
            let mut values: Vec<&str> = r["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            values.sort_unstable();
            format!("{} {} {values:?} {}", r["key"], r["operator"], r["minValues"].as_u64().unwrap_or(0))
        })
        .collect();
    requirements.sort();
    let mut taints: Vec<String> =
        list(claim, "taints").map(|t| format!("{} {} {}", t["key"], t["value"].as_str().unwrap_or_default(), t["effect"])).collect();
    taints.sort();
    let requests: BTreeMap<&String, i64> = claim["requests"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, amount)| (name, amount.as_str().unwrap().parse::<Quantity>().unwrap().milli()))
        .filter(|(_, milli)| *milli != 0)
        .collect();
    let price = (claim["cheapestPrice"].as_f64().unwrap() * 1e5).round();
    format!(
        "{} {} {requirements:?} {taints:?} {requests:?} {:?} {price}",
        claim["nodePool"],
        claim["instanceTypes"],
        copies(list(claim, "pods"))
    )
}

fn canonical(answer: &Value) -> String {
    let mut claims: Vec<String> = list(answer, "nodeClaims").map(canonical_claim).collect();
    claims.sort();
    let mut existing: Vec<String> = list(answer, "existingNodes").map(|n| format!("{} {:?}", n["name"], copies(list(n, "pods")))).collect();
    existing.sort();
    let left = copies(list(answer, "unschedulable").map(|u| &u["pod"]));
    format!("{claims:#?}\n{existing:#?}\n{left:?}")
}

pub(crate) fn answers(expected: &Value) -> Vec<&Value> {
    std::iter::once(expected).chain(expected["alternatives"].as_array().into_iter().flatten()).collect()
}

fn total(answer: &Value, key: &str) -> f64 {
    answer["totals"][key].as_f64().unwrap()
}

/// More pods placed than in any answer of Karpenter, or as many at no higher price.
fn no_worse(expected: &Value, actual: &Value) -> bool {
    let answers = answers(expected);
    let dearest = answers.iter().map(|a| total(a, "price")).fold(0.0, f64::max);
    let most = answers.iter().map(|a| total(a, "scheduled")).fold(0.0, f64::max);
    let least = answers.iter().map(|a| total(a, "scheduled")).fold(f64::MAX, f64::min);
    let actual_count = total(actual, "scheduled");
    (total(actual, "pods") - total(expected, "pods")).abs() < 0.5
        && (actual_count > most || (actual_count >= least && total(actual, "price") <= dearest + 1e-6))
}

#[test]
fn packing_reference_plans_as_karpenter_does() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (expected, actual) = (expected(&case), plan(&case, PackingArg::Reference));
        let equal = answers(&expected).iter().any(|a| canonical(a) == canonical(&actual));
        let better = expected["accept"] == "noWorse" && no_worse(&expected, &actual);
        if !equal && !better {
            wrong.push(format!("{}\nexpected {}\nactual {}", case.display(), canonical(&expected), canonical(&actual)));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn the_best_packing_places_as_many_pods_at_no_higher_price() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (expected, actual) = (expected(&case), plan(&case, PackingArg::Best));
        if !no_worse(&expected, &actual) {
            wrong.push(format!("{}: expected {}, got {}", case.display(), expected["totals"], actual["totals"]));
        }
    }
    assert!(wrong.is_empty(), "{} cases are worse:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn equal_input_gives_equal_bytes() {
    for case in cases().iter().step_by(7) {
        let first = plan(case, PackingArg::Best);
        let again = plan(case, PackingArg::Best);
        let strip = |mut v: Value| {
            v["elapsed_ms"].take();
            v["solve_ms"].take();
            v
        };
        assert_eq!(strip(first), strip(again), "{}", case.display());
    }
}
