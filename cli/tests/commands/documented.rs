//! Commands in the documentation are accepted by the programs that they name, and what it refers to exists.

use crate::tests;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::collections::BTreeMap;
use std::path::PathBuf;
use whittle_cli::Cli;

/// Pages with commands for users, besides all of `docs` and `docs/guide`.
const PAGES: [&str; 4] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "infra/README.md"];
/// Folders of the repository, as paths in commands begin.
const FOLDERS: [&str; 5] = ["infra/", "tests/", "docs/", "cli/", "functions/"];
/// How pages refer to a section of another page.
const REFERENCES: [(&str, &str); 6] = [
    ("runbook \"", "docs/runbooks.md"),
    ("Runbook \"", "docs/runbooks.md"),
    ("`docs/runbooks.md`, \"", "docs/runbooks.md"),
    ("(../runbooks.md), \"", "docs/runbooks.md"),
    ("`infra/README.md`, \"", "infra/README.md"),
    ("(`infra/README.md`, \"", "infra/README.md"),
];

fn root() -> PathBuf {
    tests().join("..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Names and texts of all pages.
fn pages() -> Vec<(String, String)> {
    let mut names: Vec<String> = PAGES.map(str::to_owned).to_vec();
    for folder in ["docs", "docs/guide"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.extend(files.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")));
    }
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(&name))).collect()
}

/// A command line of a page.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    /// In a block that users run as it is; otherwise named in a sentence, perhaps without what it requires.
    in_block: bool,
}

/// The lines of all `sh` blocks, continued ones joined, and the code in sentences.
fn lines(page: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let (mut block, mut prose, mut continued): (Option<&str>, String, String) = (None, String::new(), String::new());
    for line in page.lines() {
        let trimmed = line.trim();
        match (trimmed.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
            (None, Some("sh")) => match trimmed.strip_suffix('\\') {
                Some(start) => continued.push_str(start),
                None => found.push(Line { text: std::mem::take(&mut continued) + trimmed, in_block: true }),
            },
            (None, Some(_)) => {}
        }
    }
    // A span ends with its paragraph or its row.
    for paragraph in prose.replace("\n|", "\n\n|").split("\n\n") {
        let spans = paragraph.split('`').skip(1).step_by(2);
        found.extend(spans.map(|span| Line { text: span.split_whitespace().collect::<Vec<_>>().join(" "), in_block: false }));
    }
    found
}

/// The words of each command of a line: without comments, redirections and `$( )` around it.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split_once("=$(").map_or(line, |(_, inner)| inner.strip_suffix(')').unwrap_or(inner));
    let words = shlex::split(line).unwrap_or_else(|| panic!("a quote does not end: {line}"));
    let mut all = vec![Vec::new()];
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "|" | "&&" | ";" => all.push(Vec::new()),
            ">" | "<" => drop(words.next()),
            // A variable stands for any value: its name will do.
            _ => all.last_mut().unwrap().push(word.replace('$', "")),
        }
    }
    let own = |words: Vec<String>| match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cargo", "run", "--release", "--", ..] => [vec!["whittle".to_owned()], words[4..].to_vec()].concat(),
        _ => words,
    };
    all.into_iter().map(own).collect()
}

/// The lines of the parameters of a CloudFormation template, each with the name of its parameter. The first line of each is the name.
fn parameter_lines(template: &str) -> Vec<(&str, &str)> {
    let (_, section) = template.split_once("\nParameters:\n").expect("a template has parameters");
    let mut name = "";
    let mut found = Vec::new();
    for line in section.lines().take_while(|line| line.is_empty() || line.starts_with([' ', '#'])) {
        if let Some(start) = line.strip_prefix("  ").filter(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase())) {
            name = start.split(':').next().unwrap_or_default();
        }
        found.push((name, line));
    }
    found
}

/// The parameters of a CloudFormation template with the values that they allow; empty means any.
fn parameters(template: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, line) in parameter_lines(template).into_iter().filter(|(name, _)| !name.is_empty()) {
        let allowed = found.entry(name.to_owned()).or_default();
        if let Some(values) = line.trim().strip_prefix("AllowedValues: [") {
            let values = values.trim_end_matches(']').split(',').map(|value| value.trim().trim_matches('"').to_owned());
            *allowed = values.collect();
        }
    }
    found
}

/// What is wrong with the values of `--parameter-overrides`, if the command has some.
fn wrong_parameters(words: &[String]) -> Vec<String> {
    let after = |option: &str| words.iter().position(|word| word == option).map(|at| &words[at + 1..]);
    let Some(overrides) = after("--parameter-overrides") else { return Vec::new() };
    // One that an earlier command has written has the parameters of the stack's own.
    let named = after("--template-file").and_then(<[String]>::first).filter(|name| root().join(name).exists());
    let template = named.map_or("template.yaml", String::as_str);
    let known = parameters(&read(template));
    let mut wrong = Vec::new();
    for word in overrides.iter().take_while(|word| !word.starts_with("--")) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match known.get(name) {
            None => wrong.push(format!("{template} has no parameter {name}")),
            Some(allowed) if allowed.is_empty() || allowed.iter().any(|one| one == value) => {}
            Some(allowed) => wrong.push(format!("{name} of {template} is one of {}, not {value:?}", allowed.join(", "))),
        }
    }
    wrong
}

/// What is wrong with a command.
fn wrong(words: &[String], in_block: bool) -> Vec<String> {
    let mut wrong = wrong_parameters(words);
    let named = words.iter().filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)) && !word.contains('*'));
    wrong.extend(named.filter(|path| !root().join(path).exists()).map(|path| format!("{path} does not exist")));
    if words.first().is_some_and(|program| program == "whittle")
        && let Err(error) = Cli::try_parse_from(words)
    {
        let named_only =
            [ErrorKind::MissingRequiredArgument, ErrorKind::MissingSubcommand, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
        let shown = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
        if !shown.contains(&error.kind()) && (in_block || !named_only.contains(&error.kind())) {
            wrong.push(error.to_string().lines().next().unwrap_or_default().to_owned());
        }
    }
    wrong
}

#[test]
fn every_command_of_the_documentation_is_accepted() {
    let mut found = Vec::new();
    let mut counts: BTreeMap<(String, bool), usize> = BTreeMap::new();
    for (name, page) in pages() {
        for line in lines(&page) {
            let is_command = ["whittle ", "sam ", "kubectl ", "aws "].iter().any(|program| line.text.starts_with(program));
            if !line.in_block && !is_command {
                continue;
            }
            for words in commands(&line.text).iter().filter(|words| !words.is_empty()) {
                *counts.entry((words[0].clone(), line.in_block)).or_default() += 1;
                found.extend(wrong(words, line.in_block).into_iter().map(|why| format!("{name}: `{}`: {why}", line.text)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (program, in_block, least) in [("whittle", true, 60), ("whittle", false, 40), ("sam", true, 20), ("kubectl", true, 15)] {
        let count = counts.get(&(program.to_owned(), in_block)).copied().unwrap_or_default();
        assert!(least <= count, "only {count} commands of {program} were found: {counts:?}");
    }
}

#[test]
fn sections_and_files_that_pages_refer_to_exist() {
    let mut found = Vec::new();
    let mut count = 0;
    for (name, page) in pages() {
        let folder = root().join(&name).parent().unwrap().to_owned();
        let links = page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        let files = links.filter(|link| !link.contains("://")).map(|link| link.split('#').next().unwrap_or_default());
        found.extend(files.filter(|file| !folder.join(file).exists()).map(|file| format!("{name}: there is no {file}")));
        let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for (before, target) in REFERENCES {
            for (title, _) in text.split(before).skip(1).filter_map(|rest| rest.split_once('"')) {
                count += 1;
                let headings = read(target);
                let exists = headings.lines().filter(|line| line.starts_with("## ")).any(|line| line[3..].starts_with(title));
                if !exists {
                    found.push(format!("{name}: {target} has no section {title:?}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(20 <= count, "only {count} references were found");
}

/// A dump is to have what `--context` reads for a decision: what the pods of files get as they are created, and whose pods there are.
#[test]
fn the_dumps_that_helps_and_readme_advise_have_the_same_kinds() {
    let command = Cli::command();
    let help = |name: &str| command.find_subcommand(name).and_then(|one| one.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let texts =
        [("README.md", read("README.md")), ("plan", help("plan")), ("consolidate", help("consolidate")), ("compare", help("compare"))];
    let mut kinds: Vec<(&str, String)> = Vec::new();
    for (name, text) in &texts {
        let of_dump = |line: &str| Some(line.trim().strip_prefix("kubectl get -A -o json ")?.strip_suffix(" > cluster.json")?.to_owned());
        kinds.extend(text.lines().filter_map(of_dump).map(|kinds| (*name, kinds)));
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    let all = &kinds[0].1;
    for kind in ["deployments", "replicasets", "statefulsets", "jobs", "limitranges", "runtimeclasses", "namespaces"] {
        assert!(all.split(',').any(|one| one == kind), "{kind}: {all}");
    }
    // Who has no NodePools yet dumps no kinds of which a server knows nothing.
    let without = all.strip_prefix("nodepools,ec2nodeclasses,nodeclaims,").unwrap();
    for (name, kinds) in &kinds {
        assert!(kinds == all || (kinds == without && *name == "compare"), "{name}: {kinds}");
    }
}

/// Default of each parameter of a CloudFormation template; `required` if it has none.
fn defaults(template: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, line) in parameter_lines(template).into_iter().filter(|(name, _)| !name.is_empty()) {
        let default = found.entry(name.to_owned()).or_insert_with(|| "required".to_owned());
        if let Some(value) = line.strip_prefix("    Default: ") {
            let value = if value == "\"\"" { value } else { value.trim_matches('"') };
            *default = format!("`{value}`");
        }
    }
    found
}

#[test]
fn every_parameter_of_the_stack_is_documented_with_its_default() {
    let mut expected = defaults(&read("template.yaml"));
    assert!(expected.remove("TestEndpoint").is_some(), "no user sets the parameter for tests");
    let page = read("docs/parameters.md");
    let (parameters, _) = page.split_once("\n## Annotations").expect("the page ends with annotations");
    let rows = parameters.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split_once("` | "));
    let documented: BTreeMap<String, String> =
        rows.map(|(name, rest)| (name.to_owned(), rest.split(" | ").next().unwrap_or_default().to_owned())).collect();
    assert_eq!(documented, expected);
}

#[test]
fn a_wrong_command_is_found() {
    let why = |text: &str, in_block: bool| commands(text).iter().flat_map(|words| wrong(words, in_block)).collect::<Vec<_>>();
    for text in [
        "whittle plan --contxt prod",
        "whittle uninstal --cluster shop",
        "whittle top --sort colour   # by colour",
        "kubectl get pods -o json | whittle plan --nothing -f -",
        "cargo run --release -- demonstration",
        "sam deploy --parameter-overrides Cluster=shop",
        "sam deploy --parameter-overrides Clusters=shop Mode=off --region eu-west-1",
        "kubectl apply -f infra/crd",
    ] {
        assert_eq!(why(text, true).len(), 1, "{text}");
    }
    for text in [
        "whittle plan -f a.yaml > plan.txt",
        "sam deploy --parameter-overrides Clusters=shop,web Mode=shadow",
        "kubectl apply -f infra/crds",
    ] {
        assert_eq!(why(text, true), Vec::<String>::new(), "{text}");
    }
    assert_eq!((why("whittle uninstall --nodes keep", true).len(), why("whittle uninstall --nodes keep", false).len()), (1, 0));
}

#[test]
fn lines_are_joined_and_other_languages_left_out() {
    let page = "Run `whittle\nstatus`, or\n\n  ```sh\n  whittle top \\\n    --watch\n  ```\n\n```json\n{}\n```\n| `a` | b` |\n| `c` |\n";
    let found: Vec<(String, bool)> = lines(page).into_iter().map(|line| (line.text, line.in_block)).collect();
    let want = [("whittle top --watch", true), ("whittle status", false), ("a", false), ("|", false), ("c", false)];
    assert_eq!(found.iter().map(|(text, in_block)| (text.as_str(), *in_block)).take(3).collect::<Vec<_>>(), want[..3]);
    assert_eq!(found.last().map(|(text, _)| text.as_str()), Some("c"));
}
