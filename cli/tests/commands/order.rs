//! Equal input gives equal bytes, and the order of the input does not affect decisions.

use crate::{out, tests, whittle};
use std::collections::BTreeMap;
use std::path::PathBuf;
use whittle_cli::local::scenario::{self, Play};
use whittle_sim::Faults;

#[test]
fn delayed_duplicated_and_reordered_messages_do_not_change_the_launches() {
    let scenario = scenario::read(&tests().join("scenarios/faults/scale_up.yaml")).unwrap();
    let launched = |faults: Faults| {
        let outcome = scenario::play(&scenario, &Play::lenient(3, faults)).unwrap();
        assert_eq!(outcome.failures, Vec::<String>::new());
        let mut started: Vec<String> =
            outcome.lines.iter().filter_map(|line| line.text.strip_prefix("EC2 starts ")).map(|text| text[20..].to_owned()).collect();
        started.sort();
        started
    };
    let calm = launched(Faults::default());
    assert_eq!(calm.len(), 1, "{calm:?}");
    assert_eq!(calm, launched(Faults { late_messages: 500, repeated_messages: 500, ..Faults::default() }));
}

#[test]
fn two_runs_with_the_same_seed_print_the_same_bytes() {
    let file = tests().join("scenarios/s4_scale_up_and_down.yaml").display().to_string();
    let play = |seed: &str| out(&whittle(&["local", "run", &file, "--seed", seed, "-o", "json"], ""));
    let first = play("7");
    assert!(first.contains("\"failures\": []"), "{first}");
    assert_eq!(first, play("7"));
    assert_ne!(first, play("8"), "another seed gives another run");
}

/// Writes documents of pods and pools to a directory, with files and map keys in one order or the reverse.
fn written(directory: &str, backwards: bool) -> PathBuf {
    let path = std::env::temp_dir().join(format!("whittle-{directory}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let pool = |name: &str, weight: u32| {
        [
            ("apiVersion", "karpenter.sh/v1".to_owned()),
            ("kind", "NodePool".to_owned()),
            ("metadata", format!("{{name: {name}}}")),
            (
                "spec",
                format!(
                    "{{weight: {weight}, template: {{spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, \
                     requirements: [{{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}]}}}}}}"
                ),
            ),
        ]
    };
    let pod = |number: u32| {
        [
            ("apiVersion", "v1".to_owned()),
            ("kind", "Pod".to_owned()),
            ("metadata", format!("{{name: pod-{number}, uid: uid-{number}}}")),
            (
                "spec",
                format!("{{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {}00m, memory: 1Gi}}}}}}]}}", 3 + number % 5),
            ),
        ]
    };
    let mut documents: Vec<_> = (0..12).map(pod).collect();
    documents.extend([pool("one", 10), pool("two", 10)]);
    if backwards {
        documents.reverse();
    }
    for (at, fields) in documents.into_iter().enumerate() {
        let mut lines: Vec<String> = fields.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        if backwards {
            lines.reverse();
        }
        std::fs::write(path.join(format!("{at:03}.yaml")), lines.join("\n")).unwrap();
    }
    path
}

/// The plan: machines with their pods, without its duration.
fn decided(directory: &str, backwards: bool) -> BTreeMap<String, serde_json::Value> {
    let path = written(directory, backwards);
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let output = whittle(&["plan", "-f", &path.display().to_string(), "--instance-types", &catalog, "-o", "json"], "");
    std::fs::remove_dir_all(&path).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert!(plan["totals"]["scheduled"] == 12, "{plan}");
    ["nodeClaims", "existingNodes", "unschedulable", "totals"].into_iter().map(|key| (key.to_owned(), plan[key].clone())).collect()
}

#[test]
fn the_order_of_files_and_map_keys_does_not_change_the_plan() {
    assert_eq!(decided("forwards", false), decided("backwards", true));
}

/// The lines of the plan for some documents, without its duration.
fn answer(documents: &[String]) -> Vec<String> {
    let catalog = tests().join("golden/catalog.json").display().to_string();
    let output = whittle(&["plan", "-f", "-", "--instance-types", &catalog, "-o", "json"], &documents.join("---\n"));
    out(&output).lines().filter(|line| !line.contains("_ms") && !line.contains("Ms")).map(str::to_owned).collect()
}

#[test]
fn the_order_of_documents_does_not_change_the_reasons_of_unplaced_pods() {
    let pool = "apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata: {labels: {rack: r1}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: tier, operator: DoesNotExist}]
";
    let pod = |name: &str, wants: &str| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: u-{name}, creationTimestamp: '2025-12-31T00:00:00Z'}}
spec:
  affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{wants}]}}]}}}}}}
  containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]
"
        )
    };
    let (tier, rack) = ("{key: tier, operator: Exists}", "{key: rack, operator: DoesNotExist}");
    let mut documents = vec![pool.to_owned(), pod("a", tier), pod("b", rack), pod("c", &format!("{tier}, {rack}"))];
    let first = answer(&documents);
    assert!(first.iter().any(|line| line.contains("rack") && line.contains("tier")), "{first:#?}");
    documents.reverse();
    assert_eq!(first, answer(&documents));
}
