//! Pools of old kinds in `whittle plan`.

use crate::{err, out, seed, tests, whittle};

const PODS: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: a}\nspec: {containers: [{name: c, image: i, resources: {requests: {cpu: \"1\"}}}]}\n";

fn planned(pool: &str) -> serde_json::Value {
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let arguments = ["plan", "-f", "-", "-f", &seed(pool), "--instance-types", &catalog, "-o", "json"];
    let output = whittle(&arguments, PODS);
    assert!(output.status.success(), "{}", err(&output));
    let plan: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    plan["nodeClaims"].clone()
}

#[test]
fn s4_5_explicit_defaults_give_the_same_plan() {
    let plan = planned("004-provisioner-default.yaml");
    assert_eq!(plan.as_array().map(Vec::len), Some(1), "{plan}");
    assert_eq!(plan, planned("004-provisioner-requirements.yaml"));
}

#[test]
fn a_pool_of_v1beta1_in_a_dump_which_has_it_as_v1_gives_the_same_plan() {
    let pool = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: p}\nspec: {template: {spec: {requirements: [], nodeClassRef: {name: c}}}}\n";
    let dumped = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p, uid: u}\nspec: {disruption: {budgets: [{nodes: 10%}], \
                  consolidateAfter: 0s, consolidationPolicy: WhenUnderutilized, expireAfter: 720h}, template: {spec: {expireAfter: 720h, \
                  requirements: [], nodeClassRef: {name: c}}}}\n";
    let plan = |pool: &str| {
        let catalog = tests().join("golden/catalog.json").display().to_string();
        let output = whittle(&["plan", "-f", "-", "--instance-types", &catalog, "-o", "json"], &format!("{PODS}---\n{pool}"));
        assert!(output.status.success(), "{}", err(&output));
        serde_json::from_str::<serde_json::Value>(&out(&output)).unwrap()["nodeClaims"].clone()
    };
    assert_eq!(plan(dumped).as_array().map(Vec::len), Some(1));
    assert_eq!(plan(dumped), plan(pool));
}
