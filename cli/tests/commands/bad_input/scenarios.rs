//! Files of scenarios, and how they are to be played.

use super::*;

#[test]
fn a_scenario_goes_only_forward_in_time() {
    let folder = Folder::new("scenario-time");
    for step in ["advance: -5m", "ticks: -1s", "stays: {state: {}, for: -1m}", "faults: {api-server-down: -1m}"] {
        let file = folder.file("back.yaml", &format!("name: back\nsteps:\n  - say: hello\n  - {step}\n"));
        let ended = whittle(&["local", "run", &file], "");
        assert_eq!(ended.status.code(), Some(2), "{step}: {}{}", out(&ended), err(&ended));
        assert!(out(&ended).is_empty() && !err(&ended).is_empty(), "{step}: {}{}", out(&ended), err(&ended));
    }
    let file = folder.file("back.yaml", "name: back\nsteps:\n  - advance: -5m\n");
    refused(&whittle(&["local", "run", &file], ""), 2, &["back.yaml:3: -5m: time only goes forward"]);
}

#[test]
fn a_value_that_no_scenario_can_have_is_told_on_one_line() {
    let folder = Folder::new("scenario-values");
    for (text, said) in [
        ("name: a\nsteps:\n  - advance: 9999999h\n", ":3: 9999999h is too long: at most 8784 hours, 366 days"),
        ("name: \"a\\n  forged\"\nsteps: []\n", "would be printed in one line"),
        ("name: a\nsteps:\n  - say: \"\\e[2J\"\n", "would be printed in one line"),
        ("name: a\ncluster: {region: mars}\nsteps: []\n", "cluster.region mars: no region has this name"),
        ("name: a\ncluster: {version: '9.9'}\nsteps: []\n", "cluster.version 9.9: EKS has no such version"),
        ("name: a\nsteps:\n  - notice: {kind: spot, times: 200000}\n", ":3: times 200000: at most 10000"),
        ("name: a\nsteps:\n  - stock-out: {capacity-type: spto}\n", ":3: capacity-type \"spto\": write spot, on-demand or reserved"),
        ("name: a\nsteps:\n  - end-reservation: \"a\\n00:00:09  ec2\"\n", "would be printed in one line"),
        ("name: a\nsteps:\n  - expect: {nodes: {labels: {\"k\\n   a: passed\": \"1\"}}}\n", "would be printed in one line"),
        ("name: a\nsteps:\n- {advance: 1m\n", "unclosed bracket"),
    ] {
        let file = folder.file("odd.yaml", text);
        let ended = whittle(&["local", "run", &file], "");
        refused(&ended, 2, &[said]);
        assert!(err(&ended).lines().count() == 1 && !err(&ended).contains("error: error"), "{}", err(&ended));
    }
}

#[test]
fn a_simulation_of_no_runs_is_refused() {
    let folder = Folder::new("scenario-runs");
    let file = folder.file("some.yaml", "name: some\nsteps: []\n");
    for arguments in
        [["sim", "crash", "--every", "0", &file], ["sim", "storm", "--seeds", "0", &file], ["sim", "mutants", "--seeds", "0", &file]]
    {
        refused(&whittle(&arguments, ""), 2, &["write a whole number from 1 to 18446744073709551615"]);
    }
}

#[test]
fn a_file_that_is_no_scenario_is_told_what_one_is() {
    let folder = Folder::new("scenario-none");
    for (text, is) in [("", "is empty"), ("# nothing\n", "is empty"), ("[]", "is a list")] {
        let wanted = format!("other.yaml: the file {is}, and no scenario, which is a mapping: write the keys name and steps");
        let ended = whittle(&["local", "run", &folder.file("other.yaml", text)], "");
        refused(&ended, 2, &[&wanted]);
        assert_eq!(err(&ended).matches("error").count(), 1, "{}", err(&ended));
    }
    for text in [WEB.to_owned(), format!("# two\n---\n{WEB}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: a}}\n")] {
        let file = folder.file("web.yaml", &text);
        let wanted = format!("{file}: the file is a manifest, and no scenario: `whittle local -f {file}` applies it");
        for command in [["local", "run"], ["sim", "crash"]] {
            refused(&whittle(&[command[0], command[1], &file], ""), 2, &[&wanted]);
        }
        let applied = whittle(&["local", "-f", &file], "");
        assert!(applied.status.success() && out(&applied).contains("deployment/web created"), "{}{}", out(&applied), err(&applied));
    }
}
