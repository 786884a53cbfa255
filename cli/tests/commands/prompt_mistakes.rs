//! The prompt of `whittle local`: what kubectl refuses, or says once, is refused and said here as well.

use crate::{err, out, seed, whittle};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n";

/// Runs commands, of which the last one is refused; returns what is said of it.
#[track_caller]
fn refused(commands: &str) -> String {
    let ended = whittle(&["local"], commands);
    assert_eq!(ended.status.code(), Some(2), "{commands}: {}{}", out(&ended), err(&ended));
    err(&ended)
}

/// Output of commands that are all accepted.
#[track_caller]
fn accepted(commands: &str) -> String {
    let ended = whittle(&["local"], commands);
    assert!(ended.status.success(), "{commands}: {}{}", out(&ended), err(&ended));
    out(&ended)
}

#[test]
fn an_apply_without_an_object_is_refused() {
    let file = std::env::temp_dir().join(format!("whittle-no-object-{}.yaml", std::process::id()));
    let empty = "apiVersion: v1\nkind: List\nitems: []\n";
    for text in ["", "# only a remark\n---\n\n", empty] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(refused(&format!("apply -f {}\n", file.display())), "error: no objects passed to apply\n", "{text:?}");
    }
    assert_eq!(refused(&format!("apply --dry-run=client -f {}\n", file.display())), "error: no objects passed to apply\n");
    assert_eq!(refused("apply -f /dev/null\n"), "error: no objects passed to apply\n");
    assert_eq!(refused("apply -f -\nEOF\n"), "error: no objects passed to apply\n");
    let applied = accepted(&format!("apply -f {} -f -\n{POD}EOF\n", file.display()));
    std::fs::remove_file(&file).unwrap();
    assert!(applied.contains("pod/a created"), "an empty file beside another: {applied}");
}

#[test]
fn files_between_commas_are_several_and_a_pattern_is_none() {
    let files = ["004-provisioner-default.yaml", "004-deployment-inflate.yaml"].map(seed);
    let applied = accepted(&format!("k apply -f {}\nk delete -f {}\n", files.join(","), files.join(",")));
    for object in ["provisioner/default", "deployment/inflate"] {
        assert!(applied.contains(&format!("{object} created")) && applied.contains(&format!("{object} deleted")), "{applied}");
    }
    let pattern = files[0].replace("004-", "0*4-");
    let told = refused(&format!("apply -f {pattern}\n"));
    assert!(told.contains("there is no file of this name, and * is not expanded here: name each file, or their directory"), "{told}");
}

#[test]
fn a_node_to_interrupt_is_named_as_elsewhere() {
    let told = ["n", "node/n", "node n", "no/n", "nodes n"].map(|named| refused(&format!("interrupt {named}\n")));
    assert!(told.iter().all(|one| *one == told[0] && one.contains("\"n\"")), "{told:?}");
    assert!(refused("interrupt a b\n").contains("EC2 takes back one machine after another: name one node"));
}

#[test]
fn lines_are_applied_and_deleted_once() {
    for verb in ["apply", "delete"] {
        let told = refused(&format!("{verb} -f - -f -\n{POD}EOF\n"));
        assert!(told.contains("standard input: it is named more than once with -, and can be read only once"), "{told}");
    }
}

#[test]
fn what_no_object_can_be_deleted_of_is_said_once() {
    let pods = format!("apply -f -\n{POD}---\n{}EOF\nadvance 5m\n", POD.replace("name: a", "name: b"));
    let events = accepted(&format!("{pods}get events --no-headers\n"));
    assert!(2 <= events.lines().filter(|line| line.contains("pod/")).count(), "{events}");
    let told = refused(&format!("{pods}delete events --all\n"));
    assert_eq!(told, "error: events cannot be deleted here: nothing would follow from it\n");
}

#[test]
fn all_and_labels_are_not_both_given() {
    for command in ["delete node --all -l a=b", "label nodes --all -l a=b c=d", "taint nodes --all -l a=b c=d:NoSchedule"] {
        let told = refused(&format!("{command}\n"));
        assert!(told.contains("only one of --all and --selector (-l)"), "{command}: {told}");
    }
    let applied = format!("apply -f -\n{POD}EOF\n");
    assert!(accepted(&format!("{applied}delete pod -l a=b\nget pods\n")).contains("No resources found\nNAME"), "nothing is deleted");
    assert!(accepted(&format!("{applied}delete pod --all\nget pods\n")).contains("pod/a deleted\nthere are no pods"));
}

#[test]
fn a_selector_that_kubectl_refuses_is_refused() {
    for command in ["get nodes -l a=b=c", "describe nodes -l a=b=c", "delete node -l a===b"] {
        let told = refused(&format!("{command}\n"));
        assert!(told.contains("is no selector here: write app=web"), "{command}: {told}");
    }
}

#[test]
fn what_is_created_without_a_manifest_is_told_the_way() {
    for kind in ["ns", "namespace", "deployment"] {
        let told = refused(&format!("create {kind} x\n"));
        assert!(told.contains(&format!("`create {kind}` does not work here")) && told.contains("`apply -f FILE`"), "{told}");
        assert!(!told.contains("usage:"), "{told}");
    }
    assert!(accepted(&format!("create -f -\n{POD}EOF\n")).contains("pod/a created"));
}

#[test]
fn a_pool_of_another_version_is_named_under_its_kind() {
    let applied = format!("apply -f {}\n", seed("004-provisioner-default.yaml"));
    for command in ["explain nodepool/default", "describe nodepool default", "delete nodepool default", "get np default"] {
        let told = refused(&format!("{applied}{command}\n"));
        assert!(told.contains("; there is provisioner/default"), "{command}: {told}");
        let other = refused(&format!("{applied}{}\n", command.replace("default", "other")));
        assert!(!other.contains("there is provisioner"), "{command}: {other}");
    }
    assert!(accepted(&format!("{applied}explain default\n")).contains("\nprovisioner/default\n"), "by its name alone");
    assert!(accepted(&format!("{applied}delete provisioner default\n")).contains("provisioner/default deleted"));
}

#[test]
fn one_taint_is_added_once_in_a_command() {
    let node = "apply -f -\napiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nEOF\n";
    let told = refused(&format!("{node}taint node node-1 a=b:NoSchedule a=c:NoSchedule\n"));
    assert!(told.contains("duplicate key and effect a:NoSchedule") && !told.contains("already"), "{told}");
    assert!(accepted(&format!("{node}taint node node-1 a=b:NoSchedule a=c:PreferNoSchedule\n")).contains("node/node-1 tainted"));
}
