//! Sums of money that `whittle consolidate` prints.

use crate::{err, out, seed, tests, whittle};
use std::path::Path;

#[test]
fn the_savings_of_a_command_are_not_those_of_each_of_its_nodes() {
    let input = tests().join("golden/consolidation/003-empty-several/input.yaml").display().to_string();
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let output = whittle(&["consolidate", "-f", &input, "--instance-types", &catalog], "");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let printed = out(&output);
    let together: Vec<&str> = printed.lines().filter(|line| line.contains("(savings: $0.38 an hour, of 2 nodes together)")).collect();
    assert_eq!(together.len(), 2, "{printed}");
    assert!(printed.contains("together: $0.38 an hour saved, $280.32 a month"), "{printed}");
}

/// A cluster of one node, and a pod that waits.
fn cluster(region: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: n.{region}.compute.internal, labels: {{topology.kubernetes.io/region: {region}, \
         topology.kubernetes.io/zone: us-east-1a, node.kubernetes.io/instance-type: c5.2xlarge, karpenter.sh/capacity-type: on-demand}}}}\n\
         spec: {{providerID: 'aws:///us-east-1a/i-1'}}\nstatus: {{allocatable: {{cpu: 1, memory: 1Gi, pods: 5}}}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: 3}}}}}}]}}\n"
    )
}

#[track_caller]
fn plan(input: &str, more: &[&str], code: i32) -> String {
    plan_with(&tests().join("golden/catalog.json"), input, more, code)
}

/// The same with another catalog.
#[track_caller]
fn plan_with(catalog: &Path, input: &str, more: &[&str], code: i32) -> String {
    let (pool, catalog) = (seed("004-provisioner-default.yaml"), catalog.display().to_string());
    let words = [&["plan", "-f", "-", "-f", &pool, "--instance-types", &catalog], more].concat();
    let planned = whittle(&words, input);
    assert_eq!(planned.status.code(), Some(code), "{}{}", out(&planned), err(&planned));
    out(&planned)
}

#[test]
fn a_plan_says_what_is_paid_now_and_then() {
    let text = plan(&cluster("us-east-1"), &[], 0);
    let line = text.lines().find(|line| line.starts_with("now ")).unwrap();
    assert!(line.starts_with("now $0.3400/h (1 node) -> then $0."), "{line}");
    assert!(line.contains("/h (2 nodes): +") && line.ends_with(" a month"), "{line}");
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("LAUNCH")).take(2).collect();
    assert!(table[1].starts_with("1       default"), "{text}");

    let unknown = plan(&cluster("us-east-1").replace("c5.2xlarge", "x9.huge"), &[], 0);
    assert!(unknown.contains("no price is known of their types: n.us-east-1.compute.internal (x9.huge)"), "{unknown}");
}

#[test]
fn what_is_being_deleted_is_not_paid_then() {
    let leaving = cluster("us-east-1").replacen("labels: {", "deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [a/b], labels: {", 1);
    let text = plan(&leaving, &[], 0);
    let line = text.lines().find(|line| line.starts_with("now ")).unwrap();
    assert!(line.starts_with("now $0.3400/h (1 node) -> then $0.") && line.contains("/h (1 node): -"), "{line}");
    assert!(text.contains("  then without what is being deleted: 1 node\n"), "{text}");
    assert!(plan(&leaving, &["-o", "json"], 0).contains("\"leaving\": 1"));
    assert!(!plan(&cluster("us-east-1"), &[], 0).contains("being deleted"));
    // What replaces it is no command of a pass of consolidation, which saves nothing by it.
    let (pool, catalog) = (seed("004-provisioner-default.yaml"), tests().join("golden/catalog.json").display().to_string());
    let decided = whittle(&["consolidate", "-f", "-", "-f", &pool, "--instance-types", &catalog], &leaving);
    assert!(out(&decided).contains("now $0.3400/h (1 node) -> then $0.3400/h (1 node)"), "{}{}", out(&decided), err(&decided));
}

#[test]
fn what_an_overlay_makes_free_costs_nothing_and_saves_nothing() {
    let free = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: paid}\nspec: {weight: 1, price: '0', requirements: \
                [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.xlarge]}]}\n";
    let input = tests().join("golden/consolidation/003-empty-several/input.yaml").display().to_string();
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let output = whittle(&["consolidate", "-f", &input, "-f", "-", "--instance-types", &catalog], free);
    let told = out(&output);
    assert!(told.contains("Empty: delete: [node-one, node-two] (saves $0.00 an hour)\n"), "{told}{}", err(&output));
    assert!(told.contains("now $0.0000/h (3 nodes) -> then $0.0000/h (1 node): -$0.00 a month"), "{told}");
}

#[test]
fn changes_of_what_stays_as_it_was_created_are_refused() {
    let (input, catalog) = (tests().join("golden/consolidation/003-empty-several/input.yaml"), tests().join("golden/catalog.json"));
    let text = std::fs::read_to_string(&input).unwrap();
    let pool = text.split("---\n").next().unwrap();
    let changed = |command: &str, changed: &str| {
        let (input, catalog) = (input.display().to_string(), catalog.display().to_string());
        let output = whittle(&[command, "-f", &input, "--changed", "-", "--instance-types", &catalog], changed);
        (output.status.code(), err(&output))
    };
    // What is refused may protect nodes, so that nothing is decided about them; and a plan without it tells nothing of the change.
    for (command, refused) in [("plan", 2), ("consolidate", 2), ("compare", 1)] {
        let (code, told) = changed(command, &pool.replacen("spec:\n", "spec:\n  replicas: 2\n", 1));
        assert_eq!(code, Some(refused), "{command}: {told}");
        assert!(told.contains("document 1, NodePool \"default\", spec: a pool stays static or dynamic"), "{command}: {told}");
        assert!(told.contains("NodePool \"default\" of --changed is refused, and changes nothing"), "{command}: {told}");
        let (code, told) = changed(command, &pool.replacen("spec:\n", "spec:\n  weight: 2\n", 1));
        assert_eq!(code, Some(0), "{command}: {told}");
    }
}

#[test]
fn equal_machines_and_equal_reasons_are_told_once() {
    let pods = |count, cpu| {
        let pod =
            |n| cluster("us-east-1").split_once("---\n").unwrap().1.replace("name: web", &format!("name: web-{n}")).replace("cpu: 3", cpu);
        (0..count).map(pod).collect::<Vec<_>>().join("---\n")
    };
    let text = plan(&pods(12, "cpu: 60"), &["--objective", "cheapest"], 0);
    assert!(text.matches("from nodepool default").count() < 12, "{text}");
    let text = plan(&pods(7, "cpu: 6000"), &[], 0);
    assert_eq!(text.matches("not placed: ").count(), 1, "{text}");
    assert!(text.contains("default/web-4, and 2 more"), "{text}");
}

#[test]
fn the_detailed_exit_code_says_whether_machines_are_launched() {
    plan(&cluster("us-east-1"), &["--detailed-exitcode"], 2);
    plan(&cluster("us-east-1").replace("cpu: 3}", "cpu: 100m}"), &["--detailed-exitcode"], 0);
    let refused =
        format!("{}---\n{}", cluster("us-east-1"), cluster("us-east-1").replace("name: web", "name: Web_").replace("name: n.", "name: m."));
    plan(&refused, &["--detailed-exitcode"], 1);
    let nothing = whittle(&["plan", "-f", "there-is-no-such-file.yaml", "--detailed-exitcode"], "");
    assert_eq!(nothing.status.code(), Some(1), "a file that cannot be read is no machine to launch");
}

#[test]
fn amounts_are_in_the_currency_of_the_region() {
    let catalog = std::env::temp_dir().join(format!("whittle-money-{}.json", std::process::id()));
    let golden = std::fs::read_to_string(tests().join("golden/catalog.json")).unwrap();
    std::fs::write(&catalog, golden.replace("us-east-1", "cn-north-1")).unwrap();
    let cluster = cluster("cn-north-1").replace("us-east-1a", "cn-north-1a");
    let text = plan_with(&catalog, &cluster, &[], 0);
    assert!(text.contains("now ¥0.3400/h") && !text.contains('$'), "{text}");
    let json: serde_json::Value = serde_json::from_str(&plan_with(&catalog, &cluster, &["-o", "json"], 0)).unwrap();
    std::fs::remove_file(&catalog).unwrap();
    assert_eq!((json["costs"]["currency"].as_str(), json["costs"]["now"]["price"].as_f64()), (Some("CNY"), Some(0.34)));
    let session = "apply -f 001-provisioner-default.yaml\nsavings\n".replace("001-", &seed("001-"));
    let prompt = whittle(&["local", "--region", "cn-north-1"], &session);
    assert!(!out(&prompt).contains('$'), "{}", out(&prompt));
}

#[test]
fn consolidation_says_what_is_paid_now_and_then() {
    let input = tests().join("golden/consolidation/003-empty-several/input.yaml").display().to_string();
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let text = out(&whittle(&["consolidate", "-f", &input, "--instance-types", &catalog], ""));
    assert!(text.contains("now $0.5760/h (3 nodes) -> then $0.1920/h (1 node): -67 %, -$280.32 a month"), "{text}");
}

#[test]
fn what_the_tables_of_a_region_lack_is_told() {
    let plan = |region: &str| err(&whittle(&["plan", "-f", &seed("000-state-nodes.yaml"), "--region", region], ""));
    for region in ["eu-west-1", "us-west-2"] {
        let told = plan(region);
        assert!(
            told.contains(&format!("note: the tables have no on-demand prices of {region}: those of us-east-1 stand for them")),
            "{told}"
        );
    }
    let told = plan("cn-north-1");
    assert!(
        told.contains("note: the tables do not say which zones of cn-north-1 sell a type") && !told.contains("on-demand prices"),
        "{told}"
    );
    assert!(!plan("us-east-1").contains("the tables"), "{}", plan("us-east-1"));
    let local = |region: &str| err(&whittle(&["local", "--region", region], "get nodes\n"));
    assert!(local("eu-central-1").starts_with("note: the tables have no on-demand prices of eu-central-1"), "{}", local("eu-central-1"));
    assert_eq!((local("us-east-1"), local("cn-north-1")), (String::new(), String::new()));
}

#[test]
fn a_plan_says_that_windows_counts_without_its_licence() {
    let class = |family: &str| {
        format!(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: c}}\nspec: {{amiSelectorTerms: [{{alias: {family}@latest}}], role: r, \
             subnetSelectorTerms: [{{id: subnet-1}}], securityGroupSelectorTerms: [{{id: sg-1}}]}}\n"
        )
    };
    let said = |family: &str| err(&whittle(&["plan", "-f", "-", "--region", "eu-west-1"], &class(family)));
    assert!(said("windows2022").contains("note: machines for Windows are counted at the price of Linux"), "{}", said("windows2022"));
    assert!(!said("al2023").contains("Windows"), "{}", said("al2023"));
}

#[test]
fn a_plan_that_would_cost_less_is_named_with_the_reason_why_it_is_not_taken() {
    let input = |families: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: few}}\nspec: {{template: {{spec: {{nodeClassRef: {{group: \
             karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, requirements: [{{key: karpenter.k8s.aws/instance-family, operator: In, \
             values: [{families}]}}, {{key: karpenter.k8s.aws/instance-size, operator: In, values: [large, xlarge, 2xlarge, 4xlarge, \
             8xlarge]}}, {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}]}}}}}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec: {{replicas: 14, selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: \
             [{{name: c, image: i, resources: {{requests: {{cpu: 2250m, memory: 1Gi}}}}}}]}}}}}}\n"
        )
    };
    let planned = |families: &str, more: &[&str]| {
        let words = [&["plan", "-f", "-", "--region", "us-east-1"], more].concat();
        out(&whittle(&words, &input(families)))
    };
    let text = planned("m5, m6i, m7i", &[]);
    assert!(text.starts_with("14 of 14 pods placed, 2 new machines, $1.5360/h"), "{text}");
    let line = text.lines().find(|line| line.starts_with("passed over: ")).unwrap();
    assert!(line.starts_with("passed over: 1 machine for $1.5360/h, $1.58") && line.contains("would be left 3 instance types, "), "{line}");
    let json: serde_json::Value = serde_json::from_str(&planned("m5, m6i, m7i", &["-o", "json"])).unwrap();
    let narrower = &json["totals"]["narrower"];
    assert_eq!((&narrower["nodes"], &narrower["price"], &narrower["instanceTypes"]), (&1.into(), &1.536.into(), &3.into()), "{narrower}");
    // One type of each size is all that this pool has: nothing to be had for another machine.
    let text = planned("m5", &[]);
    assert!(text.starts_with("14 of 14 pods placed, 1 new machine, ") && !text.contains("passed over: "), "{text}");
}

#[test]
fn top_says_whose_prices_count_for_nodes_of_another_region() {
    let (nodes, missing) = (seed("002-state-nodes.yaml"), "the tables have no on-demand prices of ap-southeast-1: those of us-east-1");
    let told = |words: &[&str]| out(&whittle(&[&["top", "-f"], words].concat(), ""));
    let of_region = told(&[&nodes]);
    assert!(of_region.lines().nth(1).is_some_and(|line| line.contains(missing)), "{of_region}");
    let of_another = told(&[&nodes, "--region", "us-east-1"]);
    let wanted = "there are nodes in ap-southeast-1: the prices of us-east-1 count for them, and may differ";
    assert!(of_another.lines().nth(1).is_some_and(|line| line.contains(wanted)) && !of_another.contains(missing), "{of_another}");
    let own = std::fs::read_to_string(&nodes).unwrap().replace("ap-southeast-1", "us-east-1");
    let of_own = out(&whittle(&["top", "-f", "-"], &own));
    assert!(of_own.starts_with("3 nodes") && !of_own.contains("prices of"), "{of_own}");
}
