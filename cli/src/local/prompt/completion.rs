//! Completion of commands, kinds, names, options and files.

use super::command_line::{self, Line, Mode};
use super::ec2::{Announced, Ec2, Shown};
use crate::local::kinds::{self, KINDS};
use clap::{CommandFactory as _, ValueEnum};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::collections::BTreeMap;
use whittle_sim::World;

/// Names of one kind that are offered: nobody reads more.
const NAMES_MAX: usize = 500;

/// The names of all objects, by the plural of their kind.
#[derive(Default)]
pub(super) struct Names(BTreeMap<&'static str, Vec<String>>);

impl Names {
    pub(super) fn of(world: &World) -> Self {
        let of_kind = |entry: &kinds::KindEntry| (entry.list)(world).into_iter().take(NAMES_MAX).map(|row| row.name).collect();
        Self(KINDS.iter().filter(|entry| entry.kind != "Event").map(|entry| (entry.plural, of_kind(entry))).collect())
    }

    fn called(&self, plural: &str) -> Vec<String> {
        self.0.get(plural).cloned().unwrap_or_default()
    }
}

/// Completes what is written in front of the cursor.
pub(super) struct Completion {
    pub(super) names: Names,
    files: FilenameCompleter,
}

impl Default for Completion {
    fn default() -> Self {
        Self { names: Names::default(), files: FilenameCompleter::new() }
    }
}

/// What can stand at the cursor.
enum Expected {
    Words(Vec<String>),
    File,
}

impl Completion {
    /// The words that can follow `before`, the last of which may be begun as `partial`.
    fn expected(&self, before: &[&str], partial: &str) -> Expected {
        let before = if before.first() == Some(&"kubectl") { &before[1..] } else { before };
        let Some((verb, arguments)) = before.split_first() else { return Expected::Words(command_line::verbs()) };
        let last = arguments.last().copied().unwrap_or_default();
        let words = |list: &[&str]| Expected::Words(list.iter().map(|word| (*word).to_owned()).collect());
        match last {
            "-f" | "--filename" => return Expected::File,
            "-o" | "--output" => return words(&["wide", "yaml", "json", "name"]),
            "-n" | "--namespace" => return Expected::Words(self.names.called("namespaces")),
            _ => {}
        }
        if partial.starts_with('-') {
            return Expected::Words(options(verb));
        }
        let named: Vec<&str> = arguments.iter().copied().filter(|word| !word.starts_with('-')).collect();
        match (*verb, named.as_slice()) {
            ("help", _) => Expected::Words(command_line::verbs()),
            ("apply" | "create", _) => Expected::File,
            ("cordon" | "uncordon", _) | ("interrupt", []) => Expected::Words(self.names.called("nodes")),
            ("explain", _) => Expected::Words(["pods", "nodes", "nodeclaims"].iter().flat_map(|kind| self.names.called(kind)).collect()),
            ("ec2", rest) => Expected::Words(self.of_ec2(rest)),
            ("rollout", []) => words(&["status", "restart"]),
            ("rollout", [_, rest @ ..]) => Expected::Words(self.objects(rest, partial, &["deployment"])),
            ("scale", rest) => Expected::Words(self.objects(rest, partial, &["deployment"])),
            ("mode", []) => Expected::Words(values::<Mode>()),
            ("taint", rest) => Expected::Words(self.objects(rest, partial, &["node"])),
            ("get" | "describe" | "delete" | "annotate" | "label", rest) => {
                let plurals: Vec<&str> = KINDS.iter().map(|entry| entry.plural).collect();
                Expected::Words(self.objects(rest, partial, &plurals))
            }
            _ => Expected::Words(Vec::new()),
        }
    }

    /// What can follow `ec2`: its commands, what it shows, events, and nodes.
    fn of_ec2(&self, written: &[&str]) -> Vec<String> {
        match written {
            [] => Ec2::names(),
            ["show"] => values::<Shown>(),
            ["announce"] => values::<Announced>(),
            ["announce", _] | ["terminate" | "stop" | "describe"] => self.names.called("nodes"),
            _ => Vec::new(),
        }
    }

    /// Kinds, or the names of the kind that was written.
    fn objects(&self, written: &[&str], partial: &str, kinds: &[&str]) -> Vec<String> {
        if let Some((kind, _)) = partial.split_once('/') {
            let names = kinds::find(kind).map(|entry| self.names.called(entry.plural)).unwrap_or_default();
            return names.into_iter().map(|name| format!("{kind}/{name}")).collect();
        }
        match written.first() {
            None => kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            Some(kind) => kinds::find(kind).map(|entry| self.names.called(entry.plural)).unwrap_or_default(),
        }
    }
}

/// The values that an argument can have.
fn values<T: ValueEnum>() -> Vec<String> {
    T::value_variants().iter().filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned())).collect()
}

fn options(verb: &str) -> Vec<String> {
    let command = Line::command();
    let verb = command.find_subcommand(verb);
    let all = verb.into_iter().chain([&command]).flat_map(|command| command.get_arguments());
    all.filter(|argument| !argument.is_hide_set()).filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect()
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let begun = &line[..position];
        let start = begun.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let before: Vec<&str> = begun[..start].split_whitespace().collect();
        match self.expected(&before, &begun[start..]) {
            Expected::File => self.files.complete_path(line, position),
            Expected::Words(words) => {
                let fitting = words.into_iter().filter(|word| word.starts_with(&begun[start..]));
                Ok((start, fitting.map(|word| Pair { display: word.clone(), replacement: format!("{word} ") }).collect()))
            }
        }
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Vec<String> {
        let names = [("deployments", "inflate"), ("nodes", "ip-10-0-0-1"), ("pods", "inflate-1")];
        let names = names.into_iter().map(|(kind, name)| (kind, vec![name.to_owned()])).collect();
        let completion = Completion { names: Names(names), ..Completion::default() };
        let history = rustyline::history::DefaultHistory::new();
        let (_, found) = completion.complete(line, line.len(), &Context::new(&history)).unwrap();
        found.into_iter().map(|pair| pair.replacement).collect()
    }

    #[test]
    fn every_argument_of_a_command_says_what_it_is() {
        fn gather(command: &clap::Command, silent: &mut Vec<String>) {
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set() && argument.get_help().is_none());
            silent.extend(shown.map(|argument| format!("{} {}", command.get_name(), argument.get_id())));
            command.get_subcommands().for_each(|below| gather(below, silent));
        }
        let mut silent = Vec::new();
        gather(&Line::command(), &mut silent);
        assert_eq!(silent, Vec::<String>::new());
    }

    #[test]
    fn verbs_kinds_names_options_and_files_are_completed() {
        assert_eq!(completed("adv"), ["advance "]);
        assert_eq!(completed("kubectl sc"), ["scale "]);
        assert_eq!(completed("get nodep"), ["nodepools "]);
        assert_eq!(completed("delete po i"), ["inflate-1 "]);
        assert_eq!(completed("scale deployment "), ["inflate "]);
        assert_eq!(completed("get deploy/i"), ["deploy/inflate "]);
        assert_eq!(completed("rollout status deployment "), ["inflate "]);
        assert_eq!(completed("interrupt "), ["ip-10-0-0-1 "]);
        assert_eq!(completed("explain i"), ["inflate-1 ", "ip-10-0-0-1 "]);
        assert_eq!(completed("get pods --all"), ["--all-namespaces "]);
        assert_eq!(completed("get pods -o y"), ["yaml "]);
        assert_eq!(completed("ec2 st"), ["stock-out ", "stop "]);
        assert_eq!(completed("ec2 stop "), ["ip-10-0-0-1 "]);
        assert_eq!(completed("ec2 show im"), ["images "]);
        assert_eq!(completed("ec2 announce rebalance "), ["ip-10-0-0-1 "]);
        assert_eq!(completed("cordon "), ["ip-10-0-0-1 "]);
        assert_eq!(completed("annotate node i"), ["ip-10-0-0-1 "]);
        assert_eq!(completed("taint "), ["node "]);
        assert_eq!(completed("mode s"), ["shadow "]);
        assert_eq!(completed("savings "), [""; 0]);
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/src/local/demo/po");
        assert_eq!(completed(&format!("apply -f {manifest}")).len(), 1, "the file pool.yaml");
    }
}
