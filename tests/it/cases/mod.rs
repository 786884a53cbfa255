//! Karpenter's answers about EC2, reached as a cluster reaches them: `refresh` and `launch` over AWS's protocols.
//!
//! The cases are those of `tests/golden/cloud`, or of any folder of that layout (`WHITTLE_CASES=DIR`): a line for each case and a
//! total are printed (`cargo test -p whittle-tests --test it golden_cases -- --nocapture`).

mod case;
mod hashes;
mod launches;
mod region;
mod stage;
mod types;
mod user_data;

pub(crate) use case::Case;
pub(crate) use launches::launched;
pub(crate) use stage::Stage;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use whittle_tests::tools;

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Same,
    Differs(Vec<String>),
    /// Not compared, and why.
    Skipped(String),
}

impl Outcome {
    fn of(differences: Vec<String>) -> Self {
        if differences.is_empty() { Self::Same } else { Self::Differs(differences) }
    }

    fn line(&self, name: &str) -> String {
        match self {
            Self::Same => format!("{name}: same"),
            Self::Differs(what) => format!("{name}: differs: {}", what.join("; ")),
            Self::Skipped(why) => format!("{name}: not compared: {why}"),
        }
    }
}

/// By name, as `launch/001-on-demand`.
type Outcomes = BTreeMap<String, Outcome>;

fn folder() -> PathBuf {
    std::env::var_os("WHITTLE_CASES").map_or_else(|| crate::wire::root().join("tests/golden/cloud"), PathBuf::from)
}

/// The YAML files of a folder, in order; none where there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

/// Compares each file of a folder. A case that panics differs, and the others go on.
fn each(folder: &Path, part: &str, compare: impl Fn(&Path) -> Result<Outcome, String>) -> Outcomes {
    let outcome = |path: &Path| match catch_unwind(AssertUnwindSafe(|| compare(path))) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(message)) => Outcome::Differs(vec![message]),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::Differs(vec![format!("panicked: {}", text.unwrap_or_default())])
        }
    };
    files(&folder.join(part)).iter().map(|path| (format!("{part}/{}", stem(path)), outcome(path))).collect()
}

/// The outcomes of all cases in a folder of the layout of `tests/golden/cloud`.
fn outcomes(folder: &Path) -> Outcomes {
    let mut all = launches::outcomes(folder);
    all.extend(each(folder, "types/variants", types::compare));
    all.extend(each(folder, "userdata", user_data::compare));
    all.extend(each(folder, "hashes", hashes::compare));
    all
}

/// A fault that refuses every class must not pass for cases that cannot be compared.
fn check_compared(all: &Outcomes) {
    for part in ["launch", "types", "userdata", "hashes"] {
        if part == "launch" && tools::find(tools::MODELS).is_none() {
            continue;
        }
        let of_part: Vec<&Outcome> = all.iter().filter(|(name, _)| name.starts_with(part)).map(|(_, outcome)| outcome).collect();
        let skipped = of_part.iter().filter(|outcome| matches!(outcome, Outcome::Skipped(_))).count();
        assert!(!of_part.is_empty() && skipped * 8 <= of_part.len(), "{skipped} of {} cases of {part} are not compared", of_part.len());
    }
}

#[test]
fn golden_cases_through_refresh_and_launch_are_karpenters() {
    let folder = folder();
    let all = outcomes(&folder);
    let mut counts = [0; 3];
    for (name, outcome) in &all {
        println!("{}", outcome.line(name));
        counts[match outcome {
            Outcome::Same => 0,
            Outcome::Differs(_) => 1,
            Outcome::Skipped(_) => 2,
        }] += 1;
    }
    let [same, differ, skipped] = counts;
    println!("{} cases: {same} the same, {differ} differ, {skipped} not compared", all.len());
    assert!(!all.is_empty(), "no cases in {}", folder.display());
    if std::env::var_os("WHITTLE_CASES").is_none() {
        check_compared(&all);
    }
    let differing: Vec<String> =
        all.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Differs(_))).map(|(name, outcome)| outcome.line(name)).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Each kind of case, with one fact of the answer changed, and a file that is no case.
#[test]
fn a_case_with_another_answer_differs_and_the_others_go_on() {
    let golden = crate::wire::root().join("tests/golden/cloud");
    let copy = std::env::temp_dir().join(format!("whittle-cases-{}", std::process::id()));
    let write = |name: &str, text: String| {
        let path = copy.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let read = |name: &str| std::fs::read_to_string(golden.join(name)).unwrap();
    write("types/facts.json", read("types/facts.json"));
    let changed = [
        ("launch/001-on-demand", "json", "\"cpu\": 1930", "\"cpu\": 1931"),
        ("types/variants/al2023-max-pods", "json", "\"pods\":", "\"pods \":"),
        ("userdata/005-al2023-plain", "txt", "10.100.0.0/16", "10.100.0.0/17"),
    ];
    for (name, ending, from, to) in changed {
        let answer = read(&format!("{name}.{ending}"));
        assert!(answer.contains(from), "{name} has no {from}");
        write(&format!("{name}.yaml"), read(&format!("{name}.yaml")));
        write(&format!("{name}.{ending}"), answer.replacen(from, to, 1));
    }
    write("hashes/001-class-plain.yaml", read("hashes/001-class-plain.yaml"));
    write("hashes/expected.json", "{\"001-class-plain\": {\"hash\": \"1\", \"version\": \"v6\"}}".to_owned());
    write("userdata/002-al2-labels-taints.yaml", read("userdata/002-al2-labels-taints.yaml"));
    write("userdata/002-al2-labels-taints.txt", read("userdata/002-al2-labels-taints.txt"));
    write("userdata/999-broken.yaml", "kind: [".to_owned());
    let all = outcomes(&copy);
    std::fs::remove_dir_all(&copy).unwrap();
    let differing = all.values().filter(|outcome| matches!(outcome, Outcome::Differs(_))).count();
    assert_eq!((all.len(), differing, &all["userdata/002-al2-labels-taints"]), (6, 5, &Outcome::Same), "{all:?}");
}
