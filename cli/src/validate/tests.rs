use super::*;
use crate::schema::Document;
use crate::schema::tests::assert_valid;
use serde_json::Value;

struct Ran {
    code: ExitCode,
    out: String,
    err: String,
}

impl Ran {
    fn objects(&self) -> Vec<Value> {
        let printed: Value = serde_json::from_str(&self.out).unwrap();
        assert_valid(Document::Validate, &printed);
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
    let in_json = run_on(&json(), &input);
    assert_eq!(in_json.objects().len(), 1);
    assert_eq!(in_json.err, "note: Deployment \"web\" is not judged: Deployment of apps/v1 is no kind of Karpenter's\n");
    let alone = run_on(&Args { strict: true, ..json() }, DEPLOYMENT);
    assert_eq!((alone.code, alone.objects().len()), (ExitCode::SUCCESS, 0));
}

/// A dump of a cluster has fifty thousand pods, whose lines hid what was refused.
#[test]
fn many_objects_of_a_kind_of_others_are_told_in_one_line() {
    let node = |number: usize| format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{number}}}\n");
    let nodes = |count: usize| (0..count).map(node).collect::<String>();
    let input = format!("{}{DEPLOYMENT}{}{}", nodes(3), pool("a", ""), node(3));
    let note = "note: 4 objects are not judged: Node of v1 is no kind of Karpenter's\n";
    let deployment = "note: Deployment \"web\" is not judged: Deployment of apps/v1 is no kind of Karpenter's\n";
    let ran = run_on(&text(), &input);
    assert_eq!((ran.code, ran.out), (ExitCode::SUCCESS, format!("{note}{deployment}NodePool \"a\": accepted\n")));
    let in_json = run_on(&json(), &input);
    assert_eq!((in_json.objects().len(), in_json.err), (1, format!("{note}{deployment}")));
    assert_eq!(run_on(&text(), &nodes(3)).out.lines().count(), 3, "a few are named");
}

#[test]
fn a_disk_that_ec2_refuses_at_each_launch_is_warned_of() {
    let class = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec:\n  role: r\n  \
                 amiSelectorTerms: [{alias: al2023@latest}]\n  subnetSelectorTerms: [{id: subnet-1}]\n  \
                 securityGroupSelectorTerms: [{id: sg-1}]\n  blockDeviceMappings: [{deviceName: /dev/xvda}]\n";
    let ran = run_on(&json(), class);
    let object = &ran.objects()[0];
    assert_eq!((ran.code, fields(&object["warnings"])), (ExitCode::SUCCESS, vec!["spec.blockDeviceMappings[0].ebs"]), "{}", ran.out);
    assert_eq!(run_on(&Args { strict: true, ..json() }, class).code, ExitCode::from(1));
    let whole = class.replace("/dev/xvda}", "/dev/xvda, ebs: {volumeSize: 20Gi}}");
    assert_eq!(fields(&run_on(&json(), &whole).objects()[0]["warnings"]), [""; 0]);
}

#[test]
fn a_kind_that_a_group_of_ours_lacks_is_refused() {
    let ran = run_on(&json(), "apiVersion: karpenter.sh/v1\nkind: EC2NodeClass\nmetadata: {name: a}\n");
    assert_eq!(ran.code, ExitCode::from(1));
    assert_eq!(fields(&ran.objects()[0]["errors"]), ["apiVersion"], "it is one of another group");
}

#[test]
fn a_kind_of_ours_in_a_misspelt_group_is_refused_and_never_passed_over() {
    for api_version in ["karpentr.sh/v1", "v1"] {
        let ran = run_on(&json(), &pool("a", "").replace("karpenter.sh/v1", api_version));
        let object = &ran.objects()[0];
        assert_eq!((ran.code, fields(&object["errors"])), (ExitCode::from(1), vec!["apiVersion"]), "{api_version}");
        assert!(object["errors"][0]["message"].as_str().unwrap().ends_with("did you mean karpenter.sh/v1?"), "{object}");
    }
    let others = "---\napiVersion: eks.amazonaws.com/v1\nkind: NodePool\nmetadata: {name: a}\n---\n\
                  apiVersion: autoscaling.x-k8s.io/v1\nkind: ProvisioningRequest\nmetadata: {name: b}\n";
    let ran = run_on(&json(), others);
    assert_eq!((ran.code, ran.objects().len(), ran.err.lines().count()), (ExitCode::SUCCESS, 0, 2), "{}", ran.err);
}

#[test]
fn an_object_beyond_three_mebibytes_is_refused_and_beyond_half_of_it_warned_of() {
    let with_status = |bytes: usize| {
        let message = "x".repeat(bytes);
        let status = format!("type: Ready, status: 'True', reason: a, lastTransitionTime: '2026-01-31T10:00:00Z', message: {message}");
        format!("{}status: {{conditions: [{{{status}}}]}}\n", claim("a", "b"))
    };
    let large = |bytes: usize| run_on(&json(), &with_status(bytes)).objects()[0].clone();
    let refused = large(3 << 20);
    assert_eq!((&refused["accepted"], fields(&refused["errors"])), (&false.into(), vec![""]), "{}", refused["errors"]);
    let warned = large(2 << 20);
    assert_eq!((&warned["accepted"], fields(&warned["warnings"])), (&true.into(), vec![""]), "{}", warned["errors"]);
    assert_eq!(fields(&large(1 << 20)["warnings"]), Vec::<&str>::new());
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
            pool("a", "  disruption: {consolidateAfter: 0s, budgets: [{nodes: '1', schedule: every day at nine sharp, duration: 1h}]}\n"),
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
fn what_karpenters_crds_refuse_and_ours_accept_is_a_warning() {
    for more in ["  disruption: {}\n", "  disruption: {consolidationPolicy: WhenEmpty}\n"] {
        let ran = run_on(&json(), &pool("a", more));
        let object = &ran.objects()[0];
        assert_eq!((ran.code, fields(&object["warnings"])), (ExitCode::SUCCESS, vec!["spec.disruption.consolidateAfter"]), "{more}");
        assert_eq!(object["defaulted"]["disruption"]["consolidateAfter"], "0s");
        let strict = run_on(&Args { strict: true, ..json() }, &pool("a", more));
        assert_eq!((strict.code, &strict.objects()[0]["accepted"]), (ExitCode::from(1), &false.into()), "{more}");
    }
    for more in ["", "  disruption: {consolidateAfter: 30s}\n", "  disruption: {consolidateAfter: Never}\n"] {
        assert_eq!(fields(&run_on(&json(), &pool("a", more)).objects()[0]["warnings"]), Vec::<&str>::new(), "{more}");
    }
    let before = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: a}\nspec: {disruption: {consolidationPolicy: \
                  WhenUnderutilized}, template: {spec: {requirements: [], nodeClassRef: {name: default}}}}\n";
    assert_eq!(fields(&run_on(&json(), before).objects()[0]["warnings"]), [""], "that it is converted, and then it says the field");
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
fn a_new_object_with_the_version_of_a_stored_one_is_refused_and_a_changed_one_is_not() {
    let with_version =
        |name: &str| pool(name, "").replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, resourceVersion: \"7\"}}"));
    let ran = run_on(&json(), &with_version("a"));
    assert_eq!((ran.code, fields(&ran.objects()[0]["errors"])), (ExitCode::from(1), vec!["metadata.resourceVersion"]));
    // A server comes to it once the object is valid.
    let invalid = &run_on(&json(), &format!("{}  weight: 0\n", with_version("a"))).objects()[0];
    assert_eq!((fields(&invalid["errors"]), fields(&invalid["warnings"])), (vec!["spec.weight"], vec!["metadata.resourceVersion"]));
    // To the store, zero is no version.
    assert_eq!(run_on(&json(), &with_version("a").replace("\"7\"", "\"0\"")).code, ExitCode::SUCCESS);
    let changed = run_on(&Args { update: true, ..json() }, &[pool("a", ""), with_version("a")].concat());
    assert_eq!((changed.code, fields(&changed.objects()[1]["warnings"])), (ExitCode::SUCCESS, vec![]), "{}", changed.out);
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

/// A NodePool of v1beta1 with settings of the kubelet, which belong into its class, and some more lines of its spec.
fn old_pool(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
         nodeClassRef: {{name: default}}\n      requirements: []\n      kubelet: {{maxPods: 20}}\n{more}"
    )
}

const OLD_CLASS: &str = "---\napiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec:\n  amiFamily: AL2023\n  \
                         role: nodes\n  subnetSelectorTerms: [{id: subnet-0a}]\n  securityGroupSelectorTerms: [{id: sg-0a}]\n";

#[test]
fn strict_refuses_no_flawless_object_from_before_v1() {
    let input = format!("{}{OLD_CLASS}", old_pool("a", ""));
    let ran = run_on(&Args { strict: true, ..json() }, &input);
    assert_eq!(ran.code, ExitCode::SUCCESS, "{}", ran.out);
    for object in ran.objects() {
        assert!(object["warnings"].to_string().contains("judged as"), "{object}");
    }
    // A note about the conversion is none of an error.
    let alone = run_on(&Args { strict: true, ..json() }, &old_pool("a", ""));
    assert_eq!(alone.code, ExitCode::SUCCESS, "{}", alone.out);
    assert!(alone.out.contains("which is not among the files"), "{}", alone.out);
    // What does not work is refused all the same.
    let input = old_pool("a", "")
        .replace("requirements: []", "requirements: []\n      taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]");
    assert_eq!(run_on(&Args { strict: true, ..json() }, &input).code, ExitCode::from(1));
}

#[test]
fn a_repeated_object_from_before_v1_replaces_its_earlier_copy_among_the_others() {
    let update = Args { update: true, ..json() };
    let changed = old_pool("a", "").replace("maxPods: 20", "maxPods: 30");
    let ran = run_on(&update, &[&old_pool("a", ""), OLD_CLASS, &changed, OLD_CLASS].concat());
    let objects = ran.objects();
    assert_eq!((ran.code, objects.len()), (ExitCode::SUCCESS, 4), "{}", ran.out);
    // The pool finds its class, and the class the settings of the pool that it has by then.
    assert!(!objects[2]["warnings"].to_string().contains("not among the files"), "{}", objects[2]);
    let pods = |object: &Value| object["defaulted"]["kubelet"]["maxPods"].clone();
    assert_eq!((pods(&objects[1]), pods(&objects[3])), (20.into(), 30.into()), "{}", ran.out);
}

#[test]
fn a_repeated_node_claim_from_before_v1_has_the_expiry_of_its_pool_by_then() {
    let pool = |hours: u32| old_pool("a", &format!("  disruption: {{consolidationPolicy: WhenUnderutilized, expireAfter: {hours}h}}\n"));
    let claim = "---\napiVersion: karpenter.sh/v1beta1\nkind: NodeClaim\nmetadata: {name: c, labels: {karpenter.sh/nodepool: a}}\nspec:\n  \
                 requirements: []\n  nodeClassRef: {name: default}\n";
    let ran = run_on(&json(), &[&pool(10), claim, &pool(20), claim, OLD_CLASS, &pool(30)].concat());
    let objects = ran.objects();
    let expiry = |at: usize| objects[at]["defaulted"]["expireAfter"].to_string();
    assert!(expiry(1).contains("10h") && expiry(3).contains("20h"), "{}", ran.out);
    // Nor do NodeClaims hide from a pool its class.
    assert_eq!(objects[4]["defaulted"]["kubelet"]["maxPods"], 20, "{}", ran.out);
    assert!(!objects[5]["warnings"].to_string().contains("not among the files"), "{}", ran.out);
}

#[test]
fn the_namespace_of_an_object_from_before_v1_hides_neither_its_notes_nor_why_it_is_refused() {
    let in_namespace = |text: &str| text.replace("{name: a}", "{name: a, namespace: x}");
    let ran = run_on(&json(), &in_namespace(&old_pool("a", "")));
    assert!(ran.out.contains("which is not among the files"), "{}", ran.out);
    // A NodePool is in no namespace, so it is the same.
    let twice = run_on(&json(), &[in_namespace(&old_pool("a", "")), old_pool("a", "")].concat());
    assert_eq!(fields(&twice.objects()[1]["warnings"])[0], "metadata.name", "{}", twice.out);
    let reason = |text: &str| run_on(&json(), text).objects()[0]["errors"].to_string();
    let template = "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: a}\nspec:\n  launchTemplate: lt-0a\n  \
                    subnetSelector: {a: b}\n  securityGroupSelector: {a: b}\n";
    assert!(reason(template).contains("it cannot be converted to v1"), "{}", reason(template));
    assert_eq!(reason(&in_namespace(template)), reason(template));
    // Each selector that has no equivalent is told, not the first alone.
    let mixed = template.replace("  launchTemplate: lt-0a\n", "").replace("{a: b}", "{a: b, aws-ids: x}");
    assert_eq!(fields(&run_on(&json(), &mixed).objects()[0]["errors"]), ["spec.subnetSelector", "spec.securityGroupSelector"]);
}

#[test]
fn an_unreadable_file_hides_no_other_of_its_directory() {
    let folder = std::env::temp_dir().join(format!("whittle-validate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.yaml"), pool("a", "")).unwrap();
    std::fs::write(folder.join("b.yaml"), [0x61, 0xff, 0xfe]).unwrap();
    std::os::unix::fs::symlink(folder.join("nothing"), folder.join("c.yaml")).unwrap();
    std::fs::write(folder.join("d.yaml"), pool("d", "  weight: 0\n")).unwrap();
    let ran = run_on(&Args { filename: vec![folder.clone()], ..text() }, "");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (ExitCode::from(2), "NodePool \"a\": accepted\nNodePool \"d\": refused\n"));
    for (name, why) in [("b.yaml", "this is no text in UTF-8"), ("c.yaml", "cannot be read")] {
        assert!(ran.err.contains(&format!("{name}: {why}")), "{}", ran.err);
    }
}

/// Output and errors of one terminal.
#[derive(Clone, Default)]
struct Terminal(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn errors_follow_the_line_of_their_object() {
    let terminal = Terminal::default();
    let input = [pool("a", "  weight: 0\n"), pool("b", ""), pool("c", "  weight: 0\n")].concat();
    run(&text(), &mut input.as_bytes(), &mut terminal.clone(), &mut terminal.clone()).unwrap();
    let shown = String::from_utf8(terminal.0.take()).unwrap();
    let begins: Vec<&str> = shown.lines().map(|line| line.split([':', ',']).next().unwrap()).collect();
    assert_eq!(begins, ["NodePool \"a\"", "error", "NodePool \"b\"", "NodePool \"c\"", "error"], "{shown}");
}

#[test]
fn kinds_from_before_v1_are_judged_as_converted() {
    let pool = |more: &str| old_pool("a", more);
    let ran = run_on(&json(), &format!("{}{OLD_CLASS}", pool("")));
    let objects = ran.objects();
    assert_eq!((ran.code, objects.len()), (ExitCode::SUCCESS, 2), "{}", ran.out);
    assert_eq!(objects[0]["defaulted"]["template"]["spec"]["nodeClassRef"]["group"], "karpenter.k8s.aws");
    // The settings of the kubelet belong into the class, which is why both are converted together.
    assert_eq!(objects[1]["defaulted"]["kubelet"]["maxPods"], 20, "{}", ran.out);
    let warnings = objects[0]["warnings"].to_string();
    assert!(warnings.contains("karpenter.sh/v1beta1 is read as v1: judged as NodePool of karpenter.sh/v1"), "{warnings}");

    let wrong = run_on(&json(), &pool("  weight: heavy\n"));
    assert_eq!((wrong.code, fields(&wrong.objects()[0]["errors"])), (ExitCode::from(1), vec!["spec.weight"]));
    let as_v1 = run_on(&json(), &pool("  weight: 101\n"));
    assert_eq!(as_v1.code, ExitCode::from(1), "{}", as_v1.out);
}

#[test]
fn each_object_from_before_v1_is_judged_as_what_became_of_it() {
    let class = |name: &str| OLD_CLASS.replace("{name: default}", &format!("{{name: {name}}}"));
    let pool = |name: &str, class: &str, pods: u64| {
        let pool = old_pool(name, "").replace("{name: default}", &format!("{{name: {class}}}"));
        pool.replace("maxPods: 20", &format!("maxPods: {pods}"))
    };
    let input = [pool("x", "b", 11), class("a"), pool("w", "a", 22), class("b"), pool("z", "missing", 33)].concat();
    let ran = run_on(&json(), &input);
    let objects = ran.objects();
    assert_eq!((ran.code, objects.len()), (ExitCode::SUCCESS, 5), "{}", ran.out);
    let pods = |at: usize| objects[at]["defaulted"]["kubelet"]["maxPods"].clone();
    assert_eq!((pods(1), pods(3)), (22.into(), 11.into()), "{}", ran.out);
    let class_of = |at: usize| objects[at]["defaulted"]["template"]["spec"]["nodeClassRef"]["name"].clone();
    assert_eq!((class_of(0), class_of(2), class_of(4)), ("b".into(), "a".into(), "missing".into()));
    let noted: Vec<bool> =
        objects.iter().map(|object| object["warnings"].to_string().contains("EC2NodeClass \\\"missing\\\", which is not among")).collect();
    assert_eq!(noted, [false, false, false, false, true], "{}", ran.out);
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
