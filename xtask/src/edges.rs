//! Rules for dependencies between crates, direct and indirect.
//!
//! The table is the architecture: code that could reach a clock, a socket or an SDK is no longer a
//! pure function. `cargo tree` resolves features for one package at a time, so that a binary's feature in
//! one crate does not affect the result for another.

use crate::workspace::matches;
use crate::{rights, shell, workspace};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crates that do I/O, or bring a runtime for it.
const IO: &[&str] = &["tokio", "mio", "hyper", "hyper-util", "reqwest", "lambda_runtime"];
/// The Kubernetes client.
const KUBE: &[&str] = &["kube", "kube-client", "kube-runtime"];
/// Anything of the AWS SDK.
const AWS: &[&str] = &["aws-sdk-*", "aws-config", "aws-sigv4", "aws-smithy-*"];
/// The adapters.
const ADAPTERS: &[&str] = &["whittle-dynamo", "whittle-aws", "whittle-cluster", "whittle-runtime"];
/// The functions, which communicate only through the table and queues.
const FUNCTIONS: &[&str] = &[
    "whittle-relay",
    "whittle-schedule",
    "whittle-launch",
    "whittle-register",
    "whittle-consolidate",
    "whittle-interrupt",
    "whittle-terminate",
    "whittle-refresh",
    "whittle-sweep",
];

/// What tests build their cases from: a dev-dependency, of no crate that is part of a binary.
const TESTKIT: &str = "whittle-testkit";

/// Crates without rules, because only tests use them.
const UNRULED: &[&str] = &["whittle-tests", "whittle-alarms", "whittle-backends", "whittle-rig"];

/// The allowed dependencies of a crate in the workspace, and the forbidden ones, direct or indirect.
struct Rule {
    package: &'static str,
    /// Crates of the workspace that it may depend on, directly or not.
    may: &'static [&'static str],
    /// Crates, of any origin, that it must not depend on; a trailing `*` matches any ending.
    never: &'static [&'static [&'static str]],
}

const RULES: &[Rule] = &[
    Rule { package: "whittle-units", may: &[], never: &[IO, KUBE, AWS] },
    Rule { package: "whittle-api", may: &["whittle-units"], never: &[IO, KUBE, AWS] },
    Rule { package: "whittle-ec2", may: &["whittle-units", "whittle-api"], never: &[IO, KUBE, AWS] },
    Rule { package: "whittle-model", may: &["whittle-units", "whittle-api"], never: DECIDES_NEVER },
    Rule { package: "whittle-solver", may: MODEL_AND_BELOW, never: DECIDES_NEVER },
    Rule { package: "whittle-disruption", may: &["whittle-units", "whittle-api", "whittle-model", "whittle-solver"], never: DECIDES_NEVER },
    // A second opinion: it shares values with what it checks, and no code.
    Rule { package: "whittle-checker", may: MODEL_AND_BELOW, never: DECIDES_NEVER },
    Rule { package: "whittle-claims", may: &["whittle-units", "whittle-api"], never: &[IO, KUBE, AWS] },
    Rule { package: "whittle-ports", may: &["whittle-units", "whittle-api", "whittle-ec2", "whittle-claims"], never: &[IO, KUBE, AWS] },
    Rule {
        package: "whittle-snapshot",
        may: &["whittle-units", "whittle-api", "whittle-ec2", "whittle-claims", "whittle-ports", "whittle-model", "whittle-solver"],
        never: &[IO, KUBE, AWS, ADAPTERS],
    },
    Rule { package: "whittle-dynamo", may: PORTS_AND_BELOW, never: &[KUBE] },
    Rule { package: "whittle-aws", may: PORTS_AND_BELOW, never: &[KUBE] },
    Rule { package: "whittle-cluster", may: PORTS_AND_BELOW, never: &[AWS] },
    Rule {
        package: "whittle-sim",
        may: &[
            "whittle-units",
            "whittle-api",
            "whittle-ec2",
            "whittle-claims",
            "whittle-ports",
            "whittle-model",
            "whittle-solver",
            "whittle-disruption",
        ],
        never: &[KUBE, AWS],
    },
    Rule { package: "whittle-iam", may: &["whittle-units"], never: &[IO, KUBE, AWS] },
    Rule {
        package: "whittle-fake-aws",
        may: &[
            "whittle-iam",
            "whittle-units",
            "whittle-api",
            "whittle-ec2",
            "whittle-claims",
            "whittle-ports",
            "whittle-model",
            "whittle-solver",
            "whittle-disruption",
            "whittle-sim",
        ],
        never: &[KUBE, AWS],
    },
    Rule {
        package: "whittle-runtime",
        may: &[
            "whittle-units",
            "whittle-api",
            "whittle-ec2",
            "whittle-claims",
            "whittle-ports",
            "whittle-dynamo",
            "whittle-aws",
            "whittle-cluster",
        ],
        never: &[],
    },
    Rule {
        package: "whittle-testkit",
        may: &["whittle-units", "whittle-api", "whittle-ec2", "whittle-claims"],
        never: &[KUBE, AWS, ADAPTERS],
    },
    // It runs in clusters: it has a client for the cluster's API, and calls no service of AWS but the one that gives it credentials.
    Rule {
        package: "whittle-watcher",
        may: &["whittle-units", "whittle-api", "whittle-claims"],
        never: &[ADAPTERS, &["lambda_runtime", "aws-sdk-dynamodb", "aws-sdk-ec2", "aws-sdk-eks", "aws-sdk-lambda", "aws-sdk-sqs"]],
    },
    Rule { package: "whittle-cli", may: &["*"], never: &[KUBE, AWS, ADAPTERS, &[TESTKIT]] },
];

/// What a decision must not reach: the world, and chance.
const DECIDES_NEVER: &[&[&str]] = &[IO, KUBE, AWS, &["getrandom"]];

const MODEL_AND_BELOW: &[&str] = &["whittle-units", "whittle-api", "whittle-model"];

const PORTS_AND_BELOW: &[&str] = &["whittle-units", "whittle-api", "whittle-ec2", "whittle-claims", "whittle-ports"];

/// The allowed dependencies of a function's library: the pure crates and the ports.
const FUNCTION_MAY: &[&str] = &[
    "whittle-units",
    "whittle-api",
    "whittle-ec2",
    "whittle-claims",
    "whittle-ports",
    "whittle-model",
    "whittle-solver",
    "whittle-disruption",
    "whittle-checker",
    "whittle-snapshot",
];

/// All normal dependencies of each checked package, direct and indirect.
type Reached = BTreeMap<String, BTreeSet<String>>;

/// Checks the real graph.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut reached = Reached::new();
    for rule in rules() {
        let printed = shell::read(shell::command(
            root,
            "cargo",
            &["tree", "--locked", "-p", rule.package, "-e", "normal", "--prefix", "none", "--format", "{p}"],
        ))?;
        reached.insert(rule.package.to_owned(), names(rule.package, &printed));
    }
    let mut broken = violations(&reached);
    broken.extend(mutable(root)?);
    for package in workspace::members(root)?.packages {
        if package.name.starts_with("whittle-") && !UNRULED.contains(&package.name.as_str()) && !reached.contains_key(&package.name) {
            broken.push(format!("{}: no rule says what it may depend on; add one to xtask/src/edges.rs", package.name));
        }
    }
    broken.extend(rights::check(root)?);
    Ok(broken)
}

/// Checks that functions are never built with switchable safeguards (ADR 0027).
fn mutable(root: &Path) -> Result<Vec<String>> {
    let features: Vec<String> = FUNCTIONS.iter().map(|package| format!("{package}/lambda")).collect();
    let features = features.join(",");
    let mut arguments = vec!["tree", "--locked", "-e", "normal", "--prefix", "none", "--format", "{p} [{f}]", "--features", &features];
    for package in FUNCTIONS {
        arguments.extend(["-p", package]);
    }
    let printed = shell::read(shell::command(root, "cargo", &arguments))?;
    let mutable = |line: &&str| line.starts_with("whittle-ports ") && line.rsplit_once('[').is_some_and(|(_, on)| on.contains("mutants"));
    Ok(printed
        .lines()
        .filter(mutable)
        .take(1)
        .map(|line| format!("whittle-ports: functions are built with safeguards that can be switched off: {line}"))
        .collect())
}

/// The table, functions included.
fn rules() -> Vec<Rule> {
    let functions = FUNCTIONS.iter().map(|package| Rule { package, may: FUNCTION_MAY, never: &[IO, KUBE, AWS, ADAPTERS] });
    RULES.iter().map(|rule| Rule { package: rule.package, may: rule.may, never: rule.never }).chain(functions).collect()
}

/// The package names in the output of `cargo tree`, without the package itself.
fn names(package: &str, printed: &str) -> BTreeSet<String> {
    printed.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != package).map(str::to_owned).collect()
}

/// One sentence for each edge that the table does not allow.
fn violations(reached: &Reached) -> Vec<String> {
    let mut broken = Vec::new();
    for rule in rules() {
        let Some(names) = reached.get(rule.package) else {
            continue;
        };
        for name in names {
            let ours = name.starts_with("whittle-");
            if ours && !rule.may.iter().any(|pattern| matches(pattern, name)) {
                broken.push(format!("{} must not depend on {name}", rule.package));
            }
            if rule.never.iter().flat_map(|list| list.iter()).any(|pattern| matches(pattern, name)) {
                broken.push(format!(
                    "{} must never reach {name}; `cargo tree -p {} -e normal -i {name}` shows the way",
                    rule.package, rule.package
                ));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(package: &str, tree: &str, expected: &[&str]) {
        let reached = Reached::from([(package.to_owned(), names(package, tree))]);
        let broken = violations(&reached);
        let starts: Vec<&str> = broken.iter().map(|line| line.split(';').next().expect("split gives one part")).collect();
        assert_eq!(starts, expected);
    }

    #[test]
    fn an_allowed_graph_has_no_findings() {
        check("whittle-model", "whittle-model v0.1.0 (/x)\nwhittle-api v0.1.0 (/x)\nwhittle-units v0.1.0\nserde v1.0.0", &[]);
        check("whittle-dynamo", "whittle-ports v0.1.0\naws-sdk-dynamodb v1.0.0\ntokio v1.0.0", &[]);
    }

    #[test]
    fn a_runtime_in_a_pure_crate_is_reported() {
        check("whittle-solver", "tokio v1.50.0", &["whittle-solver must never reach tokio"]);
        check("whittle-claims", "aws-sdk-ec2 v1.0.0", &["whittle-claims must never reach aws-sdk-ec2"]);
    }

    #[test]
    fn the_checker_depends_on_neither_solver_nor_disruption() {
        check("whittle-checker", "whittle-model v0.1.0\nwhittle-api v0.1.0\nwhittle-units v0.1.0", &[]);
        for decides in ["whittle-solver", "whittle-disruption"] {
            check("whittle-checker", decides, &[&format!("whittle-checker must not depend on {decides}")]);
        }
    }

    #[test]
    fn adapters_depend_neither_on_each_other_nor_on_decisions() {
        check("whittle-aws", "whittle-dynamo v0.1.0", &["whittle-aws must not depend on whittle-dynamo"]);
        check("whittle-cluster", "whittle-solver v0.1.0", &["whittle-cluster must not depend on whittle-solver"]);
    }

    #[test]
    fn the_simulator_depends_on_no_adapter_and_no_sdk() {
        check("whittle-sim", "whittle-aws v0.1.0", &["whittle-sim must not depend on whittle-aws"]);
        check("whittle-sim", "kube-client v5.0.0", &["whittle-sim must never reach kube-client"]);
        check("whittle-fake-aws", "whittle-sim v0.1.0", &[]);
        check(
            "whittle-fake-aws",
            "whittle-aws v0.1.0\naws-smithy-types v1.0.0",
            &["whittle-fake-aws must never reach aws-smithy-types", "whittle-fake-aws must not depend on whittle-aws"],
        );
    }

    #[test]
    fn the_watcher_has_no_client_of_what_functions_call() {
        check("whittle-watcher", "whittle-claims v0.1.0\nkube-runtime v5.0.0\naws-sdk-sts v1.0.0", &[]);
        check("whittle-watcher", "aws-sdk-sqs v1.0.0", &["whittle-watcher must never reach aws-sdk-sqs"]);
        let broken = ["whittle-watcher must never reach whittle-aws", "whittle-watcher must not depend on whittle-aws"];
        let found = violations(&Reached::from([("whittle-watcher".to_owned(), names("whittle-watcher", "whittle-aws v0.1.0"))]));
        assert!(broken.iter().all(|line| found.iter().any(|found| found.starts_with(line))), "{found:?}");
    }

    #[test]
    fn functions_do_not_depend_on_each_other() {
        check("whittle-schedule", "whittle-launch v0.1.0", &["whittle-schedule must not depend on whittle-launch"]);
        check("whittle-relay", "aws-sdk-sqs v1.0.0", &["whittle-relay must never reach aws-sdk-sqs"]);
    }

    #[test]
    fn no_binary_contains_the_test_kit() {
        for package in ["whittle-cli", "whittle-sweep", "whittle-snapshot", "whittle-runtime"] {
            let broken = violations(&Reached::from([(package.to_owned(), names(package, "whittle-testkit v0.1.0"))]));
            assert!(!broken.is_empty(), "{package}");
        }
    }

    #[test]
    fn the_command_line_does_not_depend_on_the_sdk() {
        check("whittle-cli", "whittle-schedule v0.1.0\nwhittle-sim v0.1.0", &[]);
        check("whittle-cli", "whittle-aws v0.1.0", &["whittle-cli must never reach whittle-aws"]);
    }
}
