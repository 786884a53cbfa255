use super::*;
use serde_json::Value;

struct Ran {
    code: ExitCode,
    out: String,
    err: String,
}

impl Ran {
    fn objects(&self) -> Vec<Value> {
        let printed: Value = serde_json::from_str(&self.out).unwrap();
        assert_eq!(printed.as_object().unwrap().len(), 1, "{}", self.out);
        printed["objects"].as_array().unwrap().clone()
    }
}

fn json() -> Args {
    Args { filename: vec!["-".into()], output: Output::Json, update: false, strict: false }
}

fn text() -> Args {
    Args { output: Output::Text, ..json() }
}

#[track_caller]
fn run_on(args: &Args, input: &str) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args, &mut input.as_bytes(), &mut out, &mut err).unwrap();
    Ran { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

/// A NodePool with some more lines of its spec.
fn pool(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}\n      requirements: []\n{more}"
    )
}

fn claim(name: &str, class: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: {name}}}\nspec:\n  requirements: []\n  \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: {class}}}\n"
    )
}

fn overlay(requirements: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {{name: a}}\nspec: {{price: '1', requirements: {requirements}}}\n"
    )
}

fn buffer(metadata: &str, spec: &str) -> String {
    format!("---\napiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {metadata}\nspec: {spec}\n")
}

fn fields(errors: &Value) -> Vec<&str> {
    errors.as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect()
}

const DEPLOYMENT: &str = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: many}\n";

#[test]
fn an_accepted_object_is_printed_with_the_spec_that_a_server_stores() {
    let ran = run_on(&json(), &pool("a", "  weight: 1.0\n  limits: null\n"));
    assert_eq!(ran.code, ExitCode::SUCCESS, "{}", ran.err);
    let [object] = &ran.objects()[..] else { panic!("{}", ran.out) };
    assert_eq!((&object["object"], &object["accepted"]), (&"NodePool \"a\"".into(), &true.into()));
    assert_eq!((&object["errors"], &object["warnings"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!(
        object["defaulted"],
        serde_json::json!({
            "weight": 1,
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [],
                "expireAfter": "720h",
            }},
            "disruption": {
                "consolidateAfter": "0s",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "budgets": [{"nodes": "10%"}],
            },
        })
    );
}

#[test]
fn a_refused_object_ends_the_command_with_one_and_is_told_at_its_place() {
    let input = pool("a", "  weight: 101\n");
    let ran = run_on(&text(), &input);
    assert_eq!((ran.code, ran.out.as_str()), (ExitCode::from(1), "NodePool \"a\": refused\n"));
    assert!(ran.err.starts_with("error: standard input:10:3: document 1, NodePool \"a\", spec.weight: 101 is too large"), "{}", ran.err);
    let object = &run_on(&json(), &input).objects()[0];
    assert_eq!((&object["accepted"], &object["defaulted"]), (&false.into(), &Value::Null));
    assert_eq!(fields(&object["errors"]), ["spec.weight"]);
}

#[test]
fn what_a_server_finds_once_the_errors_are_corrected_is_a_warning() {
    // It does not look at values while a field is unknown, nor at rules while a value has the wrong type.
    let unknown = &run_on(&json(), &pool("a", "  weigth: 1\n  weight: 101\n")).objects()[0];
    assert_eq!((fields(&unknown["errors"]), fields(&unknown["warnings"])), (vec!["spec.weigth"], vec!["spec.weight"]));
    let wrong_type = &run_on(&json(), &pool("a", "  weight: heavy\n  replicas: 1\n")).objects()[0];
    assert_eq!((fields(&wrong_type["errors"]), fields(&wrong_type["warnings"])), (vec!["spec.weight"], vec!["spec"]));
}

#[test]
fn ten_broken_documents_hide_none_of_the_good_ones_among_them() {
    let broken = ["a: [", "\tb: 1", "- 1", "kind: NodePool", "x", "{", "a: b: c", "'", "apiVersion: v1", "*a"];
    let input: String = broken.iter().enumerate().map(|(at, text)| format!("{}---\n{text}\n", pool(&format!("good-{at}"), ""))).collect();
    let ran = run_on(&json(), &input);
    assert_eq!(ran.code, ExitCode::from(2));
    let objects = ran.objects();
    assert_eq!(objects.len(), 10);
    assert!(objects.iter().all(|object| object["accepted"] == true), "{}", ran.out);
    assert_eq!(ran.err.lines().filter(|line| line.starts_with("error: standard input:")).count(), 10, "{}", ran.err);
    // The line is that of the whole text, not of the document.
    assert!(ran.err.contains("error: standard input:33:1: document 6: "), "{}", ran.err);
}

#[test]
fn input_without_any_object_is_unreadable() {
    for input in ["", "---\n---\n", "# nothing\n", "null\n"] {
        let ran = run_on(&json(), input);
        assert_eq!(ran.code, ExitCode::from(2), "{input:?}");
        assert!(ran.objects().is_empty() && ran.err.contains("the input has no object"), "{}", ran.err);
    }
    let missing = Args { filename: vec!["no-such-file.yaml".into(), "-".into()], ..json() };
    let ran = run_on(&missing, &pool("a", ""));
    assert_eq!((ran.code, ran.objects().len()), (ExitCode::from(2), 1));
    assert!(ran.err.contains("no-such-file.yaml: cannot be read"), "{}", ran.err);
}

#[test]
fn kinds_of_others_are_named_and_never_judged() {
    let input = format!("{DEPLOYMENT}{}", pool("a", ""));
    let ran = run_on(&text(), &input);
    assert_eq!((ran.code, ran.err.as_str()), (ExitCode::SUCCESS, ""));
    assert_eq!(
        ran.out,
        "note: Deployment \"web\" is not judged: Deployment of apps/v1 is no kind of Karpenter's\nNodePool \"a\": accepted\n"
    );
    assert_eq!(run_on(&json(), &input).objects().len(), 1);
    let alone = run_on(&Args { strict: true, ..json() }, DEPLOYMENT);
    assert_eq!((alone.code, alone.objects().len()), (ExitCode::SUCCESS, 0));
}

#[test]
fn a_kind_that_a_group_of_ours_lacks_is_refused() {
    let ran = run_on(&json(), "apiVersion: karpenter.sh/v1\nkind: EC2NodeClass\nmetadata: {name: a}\n");
    assert_eq!(ran.code, ExitCode::from(1));
    assert_eq!(fields(&ran.objects()[0]["errors"]), ["kind"]);
}

#[test]
fn what_only_the_runtime_finds_is_a_warning_and_with_strict_an_error() {
    let template = "      taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]\n";
    for (input, field) in [
        (pool("a", template), "spec.template.spec.taints[1]"),
        // It has the form of a quantity, which is all that a schema knows of it.
        (pool("a", "  limits: {cpu: 1e0.5}\n"), "spec.limits.cpu"),
        // Any five words pass the schema's pattern.
        (
            pool("a", "  disruption: {budgets: [{nodes: '1', schedule: every day at nine sharp, duration: 1h}]}\n"),
            "spec.disruption.budgets[0].schedule",
        ),
        (
            pool("a", "").replace("{name: a}", "{name: a, annotations: {whittle.dev/machine-cost: much}}"),
            "metadata.annotations[whittle.dev/machine-cost]",
        ),
        (
            claim("a", "b").replace("requirements: []", "requirements: [{key: example.com/a, operator: In, values: [b c]}]"),
            "spec.requirements[0].values[0]",
        ),
        (overlay("[{key: example.com/a, operator: In, values: [b c]}]"), "spec"),
        (buffer("{name: a}", "{scalableRef: {kind: CronJob, name: a}}"), "spec"),
    ] {
        let ran = run_on(&json(), &input);
        let object = &ran.objects()[0];
        assert_eq!((ran.code, &object["accepted"]), (ExitCode::SUCCESS, &true.into()), "{field}");
        assert_eq!((fields(&object["warnings"]), fields(&object["errors"])), (vec![field], vec![]));
        let strict = run_on(&Args { strict: true, ..json() }, &input);
        let object = &strict.objects()[0];
        assert_eq!((strict.code, &object["accepted"], &object["defaulted"]), (ExitCode::from(1), &false.into(), &Value::Null), "{field}");
        assert_eq!((fields(&object["warnings"]), fields(&object["errors"])), (vec![], vec![field]));
    }
}

#[test]
fn two_documents_of_one_object_are_a_change_with_update_only() {
    let input = format!("{}{}", claim("a", "one"), claim("a", "two"));
    let apart = run_on(&json(), &input);
    let objects = apart.objects();
    assert_eq!((apart.code, objects.len()), (ExitCode::SUCCESS, 2));
    assert_eq!((fields(&objects[0]["warnings"]), fields(&objects[1]["warnings"])), (vec![], vec!["metadata.name"]));
    let change = run_on(&Args { update: true, ..json() }, &input);
    let objects = change.objects();
    assert_eq!((change.code, &objects[0]["accepted"]), (ExitCode::from(1), &true.into()));
    assert_eq!((fields(&objects[1]["errors"]), fields(&objects[1]["warnings"])), (vec!["spec"], vec![]));
    let other = run_on(&Args { update: true, ..json() }, &format!("{}{}", claim("a", "one"), claim("b", "two")));
    assert_eq!(other.code, ExitCode::SUCCESS, "{}", other.out);
}

#[test]
fn a_change_is_one_of_what_was_accepted_last() {
    // The second is refused, so the third changes the first and not the second.
    let input = [claim("a", "one"), claim("a", "two"), claim("a", "one")].concat();
    let verdicts = |input: &str| -> Vec<bool> {
        run_on(&Args { update: true, ..json() }, input).objects().iter().map(|object| object["accepted"] == true).collect()
    };
    assert_eq!(verdicts(&input), [true, false, true]);
    // Nothing was stored by a refused creation, so that the next one creates the object.
    let input = [pool("a", "  weight: 0\n"), pool("a", "  replicas: 1\n"), pool("a", "")].concat();
    assert_eq!(verdicts(&input), [false, true, false]);
}

#[test]
fn the_version_of_a_stored_object_is_a_warning_unless_the_object_is_changed() {
    let with_version =
        |name: &str| pool(name, "").replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, resourceVersion: \"7\"}}"));
    let ran = run_on(&json(), &with_version("a"));
    assert_eq!((ran.code, fields(&ran.objects()[0]["warnings"])), (ExitCode::SUCCESS, vec!["metadata.resourceVersion"]));
    let changed = run_on(&Args { update: true, ..json() }, &[pool("a", ""), with_version("a")].concat());
    assert!(fields(&changed.objects()[1]["warnings"]).is_empty(), "{}", changed.out);
}

#[test]
fn objects_that_work_cause_no_warning() {
    let claim =
        claim("a", "b").replace("requirements: []", "requirements: [{key: karpenter.sh/nodepool, operator: In, values: [general]}]");
    let input = [claim, overlay("[]"), buffer("{name: a}", "{podTemplateRef: {name: web}, replicas: 1}")].concat();
    let golden = include_str!("../../../tests/golden/api/172-class-every-field.yaml");
    for input in [&input, golden, include_str!("../../../tests/golden/api/002-pool-every-field.yaml")] {
        let ran = run_on(&Args { strict: true, ..json() }, input);
        assert_eq!(ran.code, ExitCode::SUCCESS, "{}", ran.out);
    }
}

#[test]
fn an_object_without_a_namespace_is_in_the_default_one() {
    let buffer = |metadata: &str| buffer(metadata, "{scalableRef: {kind: Deployment, name: web}}");
    let warnings = |second: &str| {
        let ran = run_on(&json(), &[buffer("{name: a}"), buffer(second)].concat());
        ran.objects()[1]["warnings"].as_array().unwrap().len()
    };
    assert_eq!(warnings("{name: a, namespace: default}"), 1);
    assert_eq!(warnings("{name: a, namespace: other}"), 0);
    assert_eq!(warnings("{generateName: a}"), 0);
    // A NodePool is in none, whatever it says.
    let ran = run_on(&json(), &[pool("a", ""), pool("a", "").replace("{name: a}", "{name: a, namespace: other}")].concat());
    assert_eq!(fields(&ran.objects()[1]["warnings"]), ["metadata.name"]);
}

#[test]
fn kinds_from_before_v1_are_judged_as_converted() {
    let pool = |more: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {{name: a}}\nspec:\n  template:\n    spec:\n      \
             nodeClassRef: {{name: default}}\n      requirements: []\n      kubelet: {{maxPods: 20}}\n{more}"
        )
    };
    let class = "---\napiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec:\n  amiFamily: AL2023\n  \
                 role: nodes\n  subnetSelectorTerms: [{id: subnet-0a}]\n  securityGroupSelectorTerms: [{id: sg-0a}]\n";
    let ran = run_on(&json(), &format!("{}{class}", pool("")));
    let objects = ran.objects();
    assert_eq!((ran.code, objects.len()), (ExitCode::SUCCESS, 2), "{}", ran.out);
    assert_eq!(objects[0]["defaulted"]["template"]["spec"]["nodeClassRef"]["group"], "karpenter.k8s.aws");
    // The settings of the kubelet belong into the class, which is why both are converted together.
    assert_eq!(objects[1]["defaulted"]["kubelet"]["maxPods"], 20, "{}", ran.out);
    let warnings = objects[0]["warnings"].to_string();
    assert!(warnings.contains("karpenter.sh/v1beta1 is not served by the CRDs: judged as NodePool of karpenter.sh/v1"), "{warnings}");

    let wrong = run_on(&json(), &pool("  weight: heavy\n"));
    assert_eq!((wrong.code, fields(&wrong.objects()[0]["errors"])), (ExitCode::from(1), vec!["spec.weight"]));
    let as_v1 = run_on(&json(), &pool("  weight: 101\n"));
    assert_eq!(as_v1.code, ExitCode::from(1), "{}", as_v1.out);
}

#[test]
fn many_objects_are_judged_each_in_its_turn() {
    let input: String = (0..3000).map(|at| pool(&format!("pool-{at}"), if at % 2 == 0 { "" } else { "  weight: 0\n" })).collect();
    let ran = run_on(&json(), &input);
    let objects = ran.objects();
    assert_eq!((ran.code, objects.len()), (ExitCode::from(1), 3000));
    for (at, object) in objects.iter().enumerate() {
        assert_eq!((&object["object"], &object["accepted"]), (&format!("NodePool \"pool-{at}\"").into(), &(at % 2 == 0).into()));
    }
}
