//! Regression tests of packings, through `whittle plan`.

use crate::golden_scheduling::list;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use whittle_cli::plan::{PlanArgs, render};
use whittle_cli::source::Source;
use whittle_cli::source::{PackingArg, ReportFormat};

/// The plans of both packings for a case of `tests/plans` with additional manifests.
fn plans(case: &str, more: &[&str]) -> [Value; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    [PackingArg::Best, PackingArg::Reference].map(|packing| {
        let mut source = Source::of_case(folder.join(case).join("input.yaml"), folder.join("catalog.json"));
        source.files.extend(more.iter().map(|name| folder.join(name)));
        serde_json::from_str(&render(&PlanArgs { source, output: ReportFormat::Json, packing, detailed_exitcode: false }).unwrap()).unwrap()
    })
}

/// The number of instance sizes of each claim, and its minValues.
fn sizes(plan: &Value) -> Vec<(usize, u64)> {
    let of = |claim: &Value| {
        let sizes: BTreeSet<&str> =
            list(claim, "instanceTypes").filter_map(|t| t.as_str()?.split_once('.')).map(|(_, size)| size).collect();
        let requirement = list(claim, "requirements").find(|r| r["key"] == "karpenter.k8s.aws/instance-size").unwrap();
        (sizes.len(), requirement["minValues"].as_u64().unwrap())
    };
    list(plan, "nodeClaims").map(of).collect()
}

#[test]
fn a_claim_of_a_limited_pool_has_as_many_sizes_as_its_min_values() {
    for plan in plans("min-values-within-a-limit", &[]) {
        assert_eq!(sizes(&plan), [(6, 6)], "{}", plan["packing"]);
        assert_eq!(plan["totals"]["scheduled"], 1);
    }
    // The limit leaves one size fewer for the second claim, whose minValues is lowered, and none for a third.
    for plan in plans("min-values-within-a-limit", &["best-effort.yaml"]) {
        assert_eq!(sizes(&plan), [(6, 6), (5, 5)], "{}", plan["packing"]);
    }
}

#[test]
fn a_pod_with_required_affinity_is_not_placed_without_a_matching_pod() {
    for plan in plans("affinity-to-a-pod-placed-elsewhere", &[]) {
        let placed: Vec<&Value> = list(&plan, "nodeClaims").flat_map(|claim| list(claim, "pods")).collect();
        assert_eq!(placed, ["default/a-0"], "{}", plan["packing"]);
        assert_eq!(list(&plan, "unschedulable").map(|pod| &pod["pod"]).collect::<Vec<_>>(), ["default/near-0"]);
    }
}
