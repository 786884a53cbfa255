//! Options and arguments.

use super::*;

#[test]
fn an_option_without_a_value_is_not_its_default() {
    for arguments in [
        &["status", "--context", ""][..],
        &["plan", "--context="],
        &["plan", "--kubeconfig", ""],
        &["plan", "--region", ""],
        &["doctor", "shop", "--context", ""],
        &["doctor", "shop", "--region", ""],
        &["doctor", "shop", "--profile", ""],
        &["savings", "--stack", ""],
        &["savings", "--stack", "a", "--cluster", ""],
        &["uninstall", "--cluster", "", "--function", "a"],
        &["uninstall", "--cluster", "a", "--function", ""],
    ] {
        let ended = whittle(arguments, "");
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", err(&ended));
        let option = arguments.iter().rev().find(|word| word.starts_with("--")).unwrap().trim_end_matches('=');
        let named = arguments.windows(2).find(|pair| pair[1].is_empty()).map_or(option, |pair| pair[0]);
        assert!(err(&ended).contains(named) && err(&ended).contains("value"), "{arguments:?}: {}", err(&ended));
    }
}

#[test]
fn a_number_out_of_its_range_is_told_the_range_also_if_it_is_negative() {
    let all = "18446744073709551615";
    for (arguments, least, most) in [
        (&["cost", "--nodes", "1", "--launches-per-hour", "1e9"][..], 0, "2000"),
        (&["cost", "--clusters", all], 1, "100"),
        (&["cost", "--nodes", "-1"], 0, "5000"),
        (&["local", "--seed", "-1"], 0, all),
        (&["local", "--web", "--web-port", "70000"], 0, "65535"),
        (&["local", "run", "--seed", "-1", "some.yaml"], 0, all),
        (&["sim", "storm", "--from", "-1", "some.yaml"], 0, all),
        (&["sim", "day", "--hours", "x"], 1, "10000"),
        (&["top", "--watch", "--every", "-1"], 1, "3600"),
        (&["console", "--port", "-1"], 0, "65535"),
    ] {
        refused(&whittle(arguments, ""), 2, &[&format!("write a whole number from {least} to {most}, in digits")]);
    }
}

#[test]
fn standard_input_named_twice_is_refused_by_every_command() {
    for command in [&["plan", "--region", "us-east-1"][..], &["check"], &["validate"], &["convert"]] {
        let ended = whittle(&[command, &["-f", "-", "-f", "-"]].concat(), WEB);
        refused(&ended, 2, &["standard input: it is named more than once with -"]);
    }
}

#[test]
fn a_file_without_its_option_is_told_how_it_is_named() {
    let folder = Folder::new("named");
    let file = folder.file("pool.yaml", WEB);
    for command in ["plan", "consolidate", "compare", "explain"] {
        refused(&whittle(&[command, &file], ""), 2, &[&format!("note: files are named with -f: -f {file}")]);
    }
    // And the other way round.
    for command in [&["savings"][..], &["local", "run"], &["sim", "crash"], &["sim", "storm"]] {
        refused(&whittle(&[command, &["-f", &file]].concat(), ""), 2, &["note: this command takes its files without -f"]);
    }
    let none = whittle(&["schema", "-f", &file], "");
    refused(&none, 2, &["unexpected argument '-f'"]);
    assert!(!err(&none).contains("note: "), "{}", err(&none));
}

#[test]
fn amounts_and_times_that_cannot_be_are_refused_for_what_they_are() {
    let folder = Folder::new("numbers");
    let none = folder.file("none.yaml", WEB);
    for (arguments, wanted) in [
        (&["plan", "-f", &none, "--machine-cost", "-1"][..], "\"-1\" is no cost of a machine"),
        (&["savings", "--since", "-1d"], "write numbers with units"),
        (&["plan", "-f", &none, "--now", "9999-12-31T23:59:59Z"], "write one up to 9999-12-30T22:00:00Z"),
        (&["plan", "-f", &none, "--now", "yesterday"], "write date, time and zone"),
    ] {
        refused(&whittle(arguments, ""), 2, &[wanted]);
    }
    let ended = whittle(&["local"], "advance\n");
    assert_eq!(err(&ended).matches("error: ").count(), 1, "{}", err(&ended));
    refused(&ended, 2, &["<TIME>", "usage: advance <TIME>"]);
}

#[test]
fn a_job_of_too_many_pods_is_refused() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 2000000000, template: {spec: {containers: [{name: c, \
               image: i}]}}}\n";
    refused(&whittle(&["plan", "-f", "-", "--region", "us-east-1"], job), 2, &["spec.parallelism: 2000000000 pods at a time are too many"]);
}

#[test]
fn a_wrong_argument_is_quoted_on_one_line() {
    for words in [
        &["plan", "--now", "a\nFORGED: x"][..],
        &["plan", "--replicas", "a\nFORGED: x"],
        &["pl\nFORGED: x"],
        &["check", "--node-role", "a\nFORGED: x", "-f", "-"],
    ] {
        let output = whittle(words, WEB);
        assert!(!output.status.success(), "{words:?}: {}", out(&output));
        let said = format!("{}{}", out(&output), err(&output));
        assert!(said.contains("FORGED") && !said.lines().any(|line| line.starts_with("FORGED")), "{words:?}: {said}");
    }
    let forged = whittle(&["plan", "-f", "-", "--replicas", "db\nnote: forged\n=3"], "");
    refused(&forged, 2, &["invalid value 'db\\nnote: forged\\n=3' for '--replicas"]);
}
