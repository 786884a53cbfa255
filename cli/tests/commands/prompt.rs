//! The prompt of `whittle local`: files are applied together or not at all, and what is gone can still be explained.

use crate::{err, out, whittle};
use std::path::PathBuf;

fn demo(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/local/demo").join(name).display().to_string()
}

#[test]
fn several_files_are_applied_together_or_not_at_all() {
    let wrong = std::env::temp_dir().join(format!("whittle-half-{}.yaml", std::process::id()));
    std::fs::write(
        &wrong,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, resources: {requests: {cpu: abc}}}]}\n",
    )
    .unwrap();
    let session = whittle(&["local"], &format!("apply -f {} {} /no/such/file.yaml\n", demo("pool.yaml"), wrong.display()));
    assert_eq!(session.status.code(), Some(2));
    assert_eq!(out(&session), "", "nothing of the first file is applied");
    assert!(
        err(&session).contains("abc") && err(&session).contains("/no/such/file.yaml: cannot be read: No such file"),
        "{}",
        err(&session)
    );
    std::fs::remove_file(&wrong).unwrap();
    let session = whittle(&["local"], &format!("apply -f {} {}\n", demo("inflate.yaml"), demo("pool.yaml")));
    let text = out(&session);
    for created in ["nodepool/default created", "ec2nodeclass/default created", "deployment/inflate created"] {
        assert!(text.contains(created), "{text}{}", err(&session));
    }
}

#[test]
fn explain_knows_what_is_gone_and_names_what_it_chose() {
    let steps =
        format!("apply -f {} {}\nscale deploy/inflate --replicas 3\nadvance 3m\nget nodes\n", demo("pool.yaml"), demo("inflate.yaml"));
    let text = out(&whittle(&["local"], &steps));
    let node =
        text.lines().find(|line| line.contains(" Ready ")).and_then(|line| line.split(' ').next()).unwrap_or_else(|| panic!("{text}"));
    let asked = format!(
        "{steps}explain {node}\nexplain infl\nscale deploy/inflate --replicas 0\nadvance 10m\nget nodes\nexplain node/{node}\nexplain \n"
    );
    let session = whittle(&["local"], &asked);
    let text = out(&session);
    let (before, after) = text.rsplit_once(&format!("{node}\n")).unwrap_or_else(|| panic!("{text}{}", err(&session)));
    assert!(before.contains("of nodepool default\n"), "{before}");
    assert!(before.contains("the first of 3 that begin with \"infl\"; others are inflate-"), "{before}");
    assert!(after.starts_with("  is gone\n"), "{after}");
    assert!(after.contains("Empty"), "why it went: {after}");
    let absent = whittle(&["local"], "explain ip-10-0-0-1\n");
    assert!(err(&absent).contains("and there was none"), "{}", err(&absent));
}
