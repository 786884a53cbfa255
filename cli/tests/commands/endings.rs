//! How commands end: their exit codes, and what happens when their output cannot be written.

use crate::{err, out, seed, tests, whittle};
use std::process::{Command, Output, Stdio};

fn catalog() -> String {
    tests().join("golden/catalog.json").display().to_string()
}

fn pod(name: &str, cpu: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\n"
    )
}

fn pool(operator: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: default}}\nspec: {{template: {{spec: {{\
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, \
         requirements: [{{key: karpenter.sh/capacity-type, operator: {operator}, values: [on-demand]}}]}}}}}}\n"
    )
}

/// Runs a command whose output goes to `stdout` and `stderr`.
fn into(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whittle"));
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr).output().unwrap()
}

/// Commands that print something, and need no input but files.
fn printing() -> Vec<Vec<String>> {
    let (pool, catalog) = (seed("001-provisioner-default.yaml"), catalog());
    let scenario = tests().join("scenarios/faults/scale_up.yaml").display().to_string();
    let commands: [&[&str]; 17] = [
        &["schema"],
        &["catalog", "--region", "us-east-1", "--type", "m7i.large"],
        &["completion", "bash"],
        &["explain", "nodepool/default", "-f", &pool, "--instance-types", &catalog],
        &["cluster", "remove", "--help"],
        &["sim", "drain", "--help"],
        &["cost", "--help"],
        &["--help"],
        &["plan", "-f", &pool, "--instance-types", &catalog],
        &["plan", "-f", &pool, "--instance-types", &catalog, "-o", "json"],
        &["consolidate", "-f", &pool, "--instance-types", &catalog],
        &["convert", "-f", &pool],
        &["validate", "-f", &pool],
        &["check", "-f", &pool],
        &["local", "run", &scenario],
        &["demo"],
        &["sim", "storm", "--seeds", "1", "--story", &scenario],
    ];
    commands.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_no_panic() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    for words in printing() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = into(&words, full(), Stdio::piped());
        let message = err(&ended);
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {message}");
        assert!(message.contains("the output cannot be written") && message.contains("space"), "{words:?}: {message}");
        assert!(!message.contains("panicked"), "{words:?}: {message}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_unwritable_standard_error_is_no_panic() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    for words in [&["plan", "-f", "/no/such/file"][..], &["local", "run", "/no/such/file"], &["savings", "/no/such/file"], &["plna"]] {
        let ended = into(words, Stdio::piped(), full());
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{words:?}: {:?}", ended.status);
    }
}

#[test]
fn a_reader_that_goes_ends_every_command_silently() {
    for words in printing() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whittle"));
        let mut child = command.args(&words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        let message = err(&ended);
        assert!(!message.contains("panicked") && !message.contains("cannot be written"), "{words:?}: {message}");
        assert_ne!(ended.status.code(), Some(134), "{words:?}");
        #[cfg(unix)]
        assert_ne!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(6), "{words:?}: SIGABRT");
    }
}

/// Checks the exit code of a command on some documents, and that its errors contain `wanted`.
#[track_caller]
fn ends(words: &[&str], documents: &[String], code: i32, wanted: &str) -> String {
    let catalog = catalog();
    let words = [words, &["-f", "-", "--instance-types", &catalog]].concat();
    let ended = whittle(&words, &documents.join("---\n"));
    let message = err(&ended);
    assert_eq!(ended.status.code(), Some(code), "{words:?}: {message}");
    assert!(message.contains(wanted), "{words:?} does not say {wanted:?}: {message}");
    out(&ended)
}

#[test]
fn the_exit_code_says_that_objects_were_refused() {
    let fine = [pod("a", "1"), pool("In")];
    ends(&["plan"], &fine, 0, "");
    ends(&["consolidate"], &fine, 0, "");
    ends(&["explain", "a"], &fine, 0, "");

    let no_quantity = [pod("a", "1"), pod("b", "abc"), pool("In")];
    let text = ends(&["plan"], &no_quantity, 1, "refused: ");
    assert!(text.contains("1 of 1 pods placed"), "the others are planned nevertheless: {text}");
    ends(&["explain", "a"], &no_quantity, 1, "refused: ");
    ends(&["consolidate"], &no_quantity, 2, "may protect pods");
    let once = err(&whittle(&["consolidate", "-f", "-", "--instance-types", &catalog()], &no_quantity.join("---\n")));
    assert_eq!(once.matches("\"abc\" is not a quantity").count(), 1, "what is refused is told once: {once}");

    let no_operator = [pod("a", "1"), pool("Inn")];
    ends(&["plan"], &no_operator, 1, "Inn");
    ends(&["consolidate"], &no_operator, 1, "Inn");
    ends(&["explain", "a"], &no_operator, 1, "Inn");

    ends(&["plan"], &[pod("b", "abc")], 2, "abc");
}

#[test]
fn the_help_documents_the_exit_codes() {
    for command in ["plan", "consolidate", "compare", "explain", "validate", "check", "savings", "uninstall", "sim"] {
        let text = out(&whittle(&[command, "--help"], ""));
        let (_, codes) = text.split_once("Exit code: ").unwrap_or_else(|| panic!("{command}: {text}"));
        let codes = codes.split_whitespace().collect::<Vec<_>>().join(" ");
        for code in ["0 if", "1 if", "2 if"] {
            assert!(codes.contains(code), "{command} does not document {code}");
        }
    }
    // These never have all three.
    for words in [&["convert"][..], &["local"], &["local", "run"], &["demo"], &["completion"], &["man"]] {
        let text = out(&whittle(&[words, &["--help"]].concat(), ""));
        assert!(text.contains("Exit code: 0 if"), "{words:?}: {text}");
        assert!(words == ["demo"] || text.contains("\nExamples:\n  "), "{words:?}: {text}");
    }
}

#[test]
fn every_command_tells_alike_of_a_file_that_is_missing() {
    for words in [
        &["plan", "-f"][..],
        &["consolidate", "-f"],
        &["compare", "-f"],
        &["explain", "a", "-f"],
        &["top", "-f"],
        &["check", "-f"],
        &["validate", "-f"],
        &["convert", "-f"],
        &["savings"],
        &["local", "run"],
        &["sim", "crash"],
    ] {
        let ended = whittle(&[words, &["/no/such"]].concat(), "");
        let wanted = "error: /no/such: cannot be read: No such file or directory: correct its name";
        assert!(err(&ended).contains(wanted), "{words:?}: {}", err(&ended));
        assert_eq!((ended.status.code(), out(&ended).as_str()), (Some(2), ""), "{words:?}");
    }
}

#[test]
fn a_type_that_a_catalog_lacks_is_told_with_a_way_on() {
    for (name, wanted) in
        [("m5.lrage", "did you mean m5.large?"), ("nope", "`whittle catalog --region us-east-1` prints those that it has")]
    {
        let ended = whittle(&["catalog", "--region", "us-east-1", "--type", name], "");
        assert_eq!((ended.status.code(), out(&ended).as_str()), (Some(2), ""), "{name}");
        assert!(err(&ended).contains(&format!("--type {name}: ")) && err(&ended).trim_end().ends_with(wanted), "{}", err(&ended));
    }
}

/// The words that lead to each command, and to those below it.
fn paths(command: &clap::Command, path: &[String], into: &mut Vec<Vec<String>>) {
    into.push(path.to_vec());
    for below in command.get_subcommands() {
        let path = [path, &[below.get_name().to_owned()]].concat();
        paths(below, &path, into);
    }
}

#[test]
fn help_is_as_wide_as_a_page_but_for_commands_to_copy() {
    let mut all = Vec::new();
    paths(&<whittle_cli::Cli as clap::CommandFactory>::command(), &[], &mut all);
    assert!(all.iter().any(|path| *path == ["cluster", "add"]), "{all:?}");
    for (path, option) in all.iter().flat_map(|path| [(path, "-h"), (path, "--help")]) {
        let words: Vec<&str> = path.iter().map(String::as_str).chain([option]).collect();
        let text = out(&whittle(&words, ""));
        assert!(text.contains("\nUsage: whittle") && text.ends_with('\n') && !text.ends_with("\n\n"), "{words:?}: {text}");
        let is_command = |line: &str| ["  whittle ", "  kubectl ", "  aws "].iter().any(|start| line.starts_with(start));
        for line in text.lines() {
            assert!(is_command(line) || line.chars().count() <= 100, "{words:?}: {line}");
        }
    }
    // Without arguments it is the same help, for people who asked for something else.
    let bare = whittle(&[], "");
    assert_eq!((bare.status.code(), out(&bare).as_str()), (Some(2), ""));
    assert!(err(&bare).lines().all(|line| line.chars().count() <= 100), "{}", err(&bare));
    assert!(!err(&bare).contains('\u{1b}'), "{}", err(&bare));
}

#[test]
fn every_line_of_standard_error_says_what_it_is() {
    let odd = [pod("a", "1"), pod("b", "abc"), pool("Inn"), "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\n".to_owned()];
    let input = odd.join("---\n");
    let catalog = catalog();
    for words in [
        &["plan", "-f", "-", "--instance-types", &catalog][..],
        &["consolidate", "-f", "-", "--instance-types", &catalog],
        &["explain", "a", "-f", "-", "--instance-types", &catalog],
        &["compare", "-f", "-", "--instance-types", &catalog],
        &["convert", "-f", "-"],
        &["check", "-f", "-"],
        &["validate", "-f", "-"],
        &["savings", "/no/such/file"],
        &["local", "run", "/no/such/file"],
        &["plan", "-f", "/no/such/file"],
    ] {
        let ended = whittle(words, &input);
        let message = err(&ended);
        assert!(!message.is_empty(), "{words:?}");
        for line in message.lines().filter(|line| !line.starts_with(' ')) {
            assert!(["error: ", "warning: ", "note: "].iter().any(|start| line.starts_with(start)), "{words:?}: {line}");
        }
    }
    let session = whittle(&["local"], "fly\n");
    assert!(err(&session).starts_with("error: \"fly\" is no command"), "{}", err(&session));
}

#[test]
fn colours_are_a_matter_of_choice() {
    let escapes = |words: &[&str]| {
        let ended = whittle(words, "");
        (out(&ended) + &err(&ended)).matches('\u{1b}').count()
    };
    let scenario = tests().join("scenarios/s2_budget.yaml").display().to_string();
    assert_eq!(escapes(&["local", "run", &scenario]), 0);
    assert!(escapes(&["local", "run", &scenario, "--color", "always"]) > 0);
    let (input, catalog) = (tests().join("golden/consolidation/003-empty-several/input.yaml"), tests().join("golden/catalog.json"));
    for command in ["plan", "consolidate", "compare"] {
        let of = |more: &[&str]| {
            let words =
                [command, "-f", &input.display().to_string(), "--instance-types", &catalog.display().to_string()].map(str::to_owned);
            escapes(&words.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
        };
        assert!(of(&["--color", "always"]) > 0, "{command}");
        assert_eq!((of(&[]), of(&["--color", "always", "-o", "json"])), (0, 0), "{command}");
    }
    assert_eq!(escapes(&["--color=never", "plna"]), 0);
    assert!(escapes(&["--color=always", "plna"]) > 0);
}
