//! Runs of the whole command; a script stands for aws and kubectl.

use super::*;
use crate::programs::Program;
use std::path::PathBuf;

const STACK: &str = r#"{"Stacks": [{"StackId": "arn:aws:cloudformation:eu-west-1:1:stack/whittle/x", "StackName": "whittle",
    "StackStatus": "CREATE_COMPLETE", "Parameters": [{"ParameterKey": "Clusters", "ParameterValue": "dev"}]}]}"#;
const CLUSTER: &str = r#"{"cluster": {"status": "ACTIVE", "endpoint": "https://shop", "accessConfig": {"authenticationMode": "API"}}}"#;
const ROLE: &str = r#"{"Role": {"Arn": "arn:aws:iam::1:role/KarpenterNodeRole-shop",
    "Tags": [{"Key": "whittle.dev/cluster-add", "Value": "shop"}]}}"#;
const MACHINE: &str = r#"{"Reservations": [{"Instances": [{"InstanceId": "i-1"}]}]}"#;

/// A folder with the answers.
fn answers(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("whittle-cluster-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    folder
}

/// Exit code, what was printed, and the commands that were run.
fn removed(name: &str, gone: bool, files: &[(&str, &str)]) -> (String, String, String) {
    let folder = answers(name, files);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cluster/account.sh");
    let place = folder.to_str().unwrap();
    let (aws, kubectl) = (Program::aws(None, Some(place)).at(script), Program::kubectl(Some(place), None).at(script));
    let deployment = DeploymentArgs { stack: "whittle".into(), region: None, profile: None };
    let reach = ReachArgs { context: None, kubeconfig: None, trust_context: false };
    let manner = MannerArgs { dry_run: false, yes: true, output: Output::Text };
    let wanted = Wanted { cluster: "shop".into(), node_role: "KarpenterNodeRole-shop".into(), removes: true, gone, ..Wanted::default() };
    let job = Job { deployment: &deployment, reach: &reach, manner: &manner, wanted, plan: remove::remove };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = job.by(Tools { aws: &aws, kubectl: &kubectl }, None, &mut out, &mut err).unwrap();
    let asked = std::fs::read_to_string(folder.join("asked")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    (format!("{code:?}"), String::from_utf8([out, err].concat()).unwrap(), asked)
}

#[test]
fn what_is_left_goes_only_if_nothing_is_in_its_way_when_it_is_done() {
    let (stack, cluster, later) = (("stack", STACK), ("cluster", CLUSTER), ("later", MACHINE));
    for (at, (there, gone, code, says)) in [
        (vec![stack, cluster], false, 0, "done: node role KarpenterNodeRole-shop"),
        (vec![stack, cluster], true, 0, "done: node role"),
        (vec![stack, cluster, later], false, 1, "It is not any more as it was"),
        (vec![cluster], false, 2, "if it was deleted, add --gone"),
        (vec![stack], false, 2, "if it was deleted, add --gone"),
        (vec![cluster], true, 0, "Left alone: stack whittle"),
        (vec![stack], true, 0, "Left alone: cluster shop"),
        (vec![], true, 0, "done: node role"),
        (vec![stack, later], true, 1, "terminate-instances --instance-ids i-1"),
    ]
    .into_iter()
    .enumerate()
    {
        let files = [there, vec![("role", ROLE)]].concat();
        let (ended, printed, asked) = removed(&at.to_string(), gone, &files);
        assert_eq!(ended, format!("{:?}", ExitCode::from(code)), "{at}: {printed}");
        assert!(printed.contains(says), "{at}: {printed}");
        assert_eq!(asked.contains("iam delete-role"), code == 0, "{at}: {asked}");
    }
}

/// Without its profile the command would write of the cluster of this name in another account.
#[test]
fn a_context_of_another_cluster_is_told_with_what_reaches_this_one() {
    let other = CLUSTER.replacen("https://shop", "https://other", 1);
    let (ended, printed, asked) = removed("context", false, &[("stack", STACK), ("cluster", other.as_str()), ("role", ROLE)]);
    assert_eq!(ended, format!("{:?}", ExitCode::from(2)), "{printed}");
    assert!(printed.contains("run aws eks update-kubeconfig --name shop --profile ") && !printed.contains("--output"), "{printed}");
    assert!(!asked.contains("delete"), "{asked}");
}

/// The endpoint of a cluster that is being made is not there yet, which is no fault of the context.
#[test]
fn a_cluster_that_does_not_serve_is_told_by_its_state_and_left_as_it_is() {
    for (status, remedy) in [("CREATING", "wait cluster-active"), ("DELETING", "--gone"), ("FAILED", "create it again")] {
        let cluster = CLUSTER.replacen("ACTIVE", status, 1).replacen("https://shop", "", 1);
        let files = [("stack", STACK), ("cluster", cluster.as_str()), ("role", ROLE)];
        let (ended, printed, asked) = removed(status, false, &files);
        assert_eq!(ended, format!("{:?}", ExitCode::from(2)), "{printed}");
        assert!(printed.contains(&format!("in state {status}: ")) && printed.contains(remedy), "{printed}");
        assert!(!printed.contains("context") && !asked.contains("delete"), "{printed} {asked}");
    }
    let updating = CLUSTER.replacen("ACTIVE", "UPDATING", 1);
    let (ended, printed, _) = removed("UPDATING", false, &[("stack", STACK), ("cluster", updating.as_str()), ("role", ROLE)]);
    assert_eq!(ended, format!("{:?}", ExitCode::SUCCESS), "{printed}");
}

/// What EKS says of Auto Mode is read; `false` is said of clusters where it was disabled.
#[test]
fn auto_mode_is_read_of_the_cluster() {
    for (config, has) in [("{\"enabled\": true}", true), ("{\"enabled\": false}", false), ("null", false)] {
        let cluster = CLUSTER.replacen("\"status\"", &format!("\"computeConfig\": {config}, \"status\""), 1);
        let folder = answers(&format!("auto-{has}-{}", config.len()), &[("cluster", cluster.as_str())]);
        let aws = Program::aws(None, folder.to_str()).at(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cluster/account.sh"));
        let read = crate::live::account::Account(&aws).cluster("shop").unwrap().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.has_auto_mode, has, "{config}");
    }
}
