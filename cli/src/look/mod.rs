//! A cluster that runs, read with `kubectl` as files are read: with the user's own rights, and never changed (ADR 0051).

mod kinds;
mod rights;
#[cfg(test)]
mod tests;
pub(crate) mod view;
pub(crate) mod waiting;

use crate::printing::{complain, on_one_line};
use crate::programs::{Program, ProgramError, Words};
use crate::source::ParsedDocuments;
use crate::source::files::Readable;
use clap::Args;
use kinds::{GROUPS, Kind};
use rights::Forbidden;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Which cluster to look at.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterArgs {
    /// Look at a cluster that runs: a context of the kubeconfig, or the current one if none is named. It is read with kubectl, with your
    /// own rights, and not changed
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = CURRENT, value_parser = context)]
    pub context: Option<String>,
    /// The kubeconfig with the context; without it kubectl's own
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// What `--context` without a value stands for: no argument of a process contains this letter.
const CURRENT: &str = "\0";

/// The name of a context; the current one has none.
fn context(name: &str) -> Result<String, String> {
    match name {
        CURRENT => Ok(String::new()),
        "" => Err("an empty value names no context: name one, or leave the value out for the current one".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// What the objects of a cluster are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To decide: what is hidden could change the answer.
    Decide,
    /// To show it: only what is shown matters.
    Show,
    /// To check what users write.
    Check,
}

/// Why a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// `kubectl` cannot be run, or has no answer.
    #[error("the cluster cannot be read: {0}")]
    Program(#[from] ProgramError),
    /// Objects that cannot be used.
    #[error("{}", .0.join("\n"))]
    Objects(Vec<String>),
    /// Kinds that matter may not be listed.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
}

/// The way to a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    kubectl: Program,
    /// Whether nothing is said on standard error, because a screen is shown there.
    quiet: bool,
}

impl ClusterArgs {
    /// The way to the cluster that is asked for, if one is.
    pub(crate) fn live(&self) -> Option<Live> {
        (self.context.is_some() || self.kubeconfig.is_some()).then(|| self.current())
    }

    /// The same, or to that of the current context.
    pub(crate) fn current(&self) -> Live {
        let context = self.context.as_deref().filter(|name| !name.is_empty());
        let kubeconfig = self.kubeconfig.as_ref().map(|file| file.to_string_lossy());
        Live { kubectl: Program::kubectl(context, kubeconfig.as_deref()), quiet: false }
    }

    /// The options that lead to the same cluster, quoted for a shell. The one of the current context stays that of the current context.
    pub(crate) fn shown(&self) -> String {
        let kubeconfig = self.kubeconfig.as_ref().map(|file| file.to_string_lossy());
        let mut words = vec!["--context"];
        words.extend(self.context.as_deref().filter(|name| !name.is_empty()));
        words.extend(kubeconfig.as_deref().into_iter().flat_map(|file| ["--kubeconfig", file]));
        on_one_line(&shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" ")))
    }
}

/// What one list gave.
struct Listed<T> {
    found: Option<T>,
    /// What kubectl said about kinds that may not be listed.
    hidden: Vec<String>,
}

impl Live {
    /// The same, silent.
    pub(crate) fn quiet(self) -> Self {
        Self { quiet: true, kubectl: self.kubectl.silent() }
    }

    /// The same; what gives no answer for longer is ended.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { kubectl: self.kubectl.within(limit), ..self }
    }

    /// The objects of the cluster that matter, in several lists at once. On standard error it says how far it is, and what is hidden
    /// that does not matter much.
    ///
    /// # Errors
    /// The cluster cannot be read, or something that matters must not be.
    pub(crate) fn read(&self, purpose: Purpose) -> Result<ParsedDocuments, LiveError> {
        let mut found = ParsedDocuments::default();
        let lists = self.lists(purpose, |list| {
            let mut found = ParsedDocuments::default();
            found.add_live("the cluster", list);
            found
        })?;
        lists.into_iter().for_each(|list| found.append(list));
        Ok(found)
    }

    /// What users write, and what is wrong with that of it which cannot be read.
    ///
    /// # Errors
    /// As `read`.
    pub(crate) fn written(&self) -> Result<Readable, LiveError> {
        let lists = self.lists(Purpose::Check, |list| {
            let mut found = Readable::default();
            found.add("the cluster", &list.to_string());
            found
        })?;
        let mut found = Readable::default();
        lists.into_iter().for_each(|list| found.append(list));
        Ok(found)
    }

    /// Several lists at once, each as `parse` makes it of what kubectl prints.
    fn lists<T: Send>(&self, purpose: Purpose, parse: impl Fn(Value) -> T + Sync) -> Result<Vec<T>, LiveError> {
        let served = self.served()?;
        let lists: Vec<Vec<&Kind>> =
            GROUPS.iter().map(|group| group.iter().filter(|kind| kind.is_asked(purpose, &served)).collect()).collect();
        let lists: Vec<Vec<&Kind>> = lists.into_iter().filter(|kinds| !kinds.is_empty()).collect();
        // How far they are is said already.
        let asking = Self { kubectl: self.kubectl.clone().silent(), ..*self };
        let listed = waiting::at_once((!self.quiet).then_some("reading the cluster"), &lists, |kinds| asking.list(kinds, &parse));
        let (mut found, mut hidden) = (Vec::new(), Vec::new());
        for one in listed {
            let mut one = one?;
            found.extend(one.found);
            hidden.append(&mut one.hidden);
        }
        // Words of kubectl that name no kind could be about one that protects pods.
        let is_understood = |said: &&String| lists.iter().flatten().any(|kind| kind.is_meant(said));
        if let Some(said) = hidden.iter().find(|said| !is_understood(said)) {
            return Err(LiveError::Objects(vec![format!("the cluster cannot be read: {said}")]));
        }
        let (matter, others): (Vec<&Kind>, Vec<&Kind>) =
            lists.iter().flatten().filter(|kind| hidden.iter().any(|said| kind.is_meant(said))).partition(|kind| kind.matters(purpose));
        if !matter.is_empty() {
            return Err(Forbidden::of(&matter, &others, &hidden).into());
        }
        for kind in others.iter().filter(|_| !self.quiet) {
            complain!("warning: you may not list {} of this cluster: {}", kind.resource, kind.without);
        }
        Ok(found)
    }

    /// The kinds that the cluster serves. An API of another server that does not answer hides none of those that are read. Pods every
    /// cluster serves; what is printed without them is no list, but a question such as that for a name of the user.
    fn served(&self) -> Result<BTreeSet<String>, LiveError> {
        let arguments = ["api-resources", "--verbs=list", "-o", "name"];
        let answer = self.kubectl.answer(&arguments)?;
        let served: BTreeSet<String> = String::from_utf8_lossy(&answer.text).lines().map(|line| line.trim().to_owned()).collect();
        if served.contains("pods") { Ok(served) } else { Err(failure(answer)) }
    }

    /// One list of some kinds; kubectl prints what it may see of them.
    fn list<T>(&self, kinds: &[&Kind], parse: impl Fn(Value) -> T) -> Result<Listed<T>, LiveError> {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.resource).collect();
        let answer = match names.as_slice() {
            // What the server says, as it says it: kubectl takes longer to print a large cluster's pods than the server to list them.
            ["pods"] => self.kubectl.answer(&["get", "--raw", "/api/v1/pods"])?,
            names => self.kubectl.answer(&["get", &names.join(","), "--all-namespaces", "-o", "json"])?,
        };
        let (hidden, wrong): (Vec<String>, Vec<String>) = answer.complaints().partition(|said| said.contains("(Forbidden)"));
        if !wrong.is_empty() || (answer.failed() && hidden.is_empty()) {
            return Err(failure(answer));
        }
        // Nothing is printed if nothing may be listed.
        if answer.text.iter().all(u8::is_ascii_whitespace) {
            let nothing = || Err(answer.into_unusable("the answer is empty").into());
            return if hidden.is_empty() { nothing() } else { Ok(Listed { found: None, hidden }) };
        }
        let found = match serde_json::from_slice(&answer.text) {
            Ok(list) if is_list(&list) => Some(parse(list)),
            Ok(_) => return Err(answer.into_unusable(NO_LIST).into()),
            Err(error) => return Err(answer.into_not_json(error).into()),
        };
        Ok(Listed { found, hidden })
    }

    /// The region in the address of an EKS cluster's API server, without asking it.
    pub(crate) fn region(&self) -> Option<String> {
        region_of_server(&self.setting("/clusters/0/cluster/server")?).map(str::to_owned)
    }

    /// The version of the API server; empty if it does not say.
    pub(crate) fn version(&self) -> String {
        let answer = self.kubectl.json(&["get", "--raw", "/version"]).unwrap_or_default();
        answer.get("gitVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// What the kubeconfig calls the cluster of the context: with EKS its ARN.
    pub(crate) fn cluster_entry(&self) -> Option<String> {
        self.setting("/contexts/0/context/cluster")
    }

    /// A text of the kubeconfig, as far as the context uses it.
    fn setting(&self, at: &str) -> Option<String> {
        let config = self.kubectl.json(&["config", "view", "--minify", "-o", "json"]).ok()?;
        config.pointer(at)?.as_str().map(str::to_owned)
    }

    /// The Events that Whittle wrote; clusters keep them for an hour.
    ///
    /// # Errors
    /// They cannot be read; an answer lacks only these.
    pub(crate) fn events(&self) -> Result<Vec<Value>, ProgramError> {
        let mut list = self.kubectl.json(&["get", "events", "--all-namespaces", "--field-selector", "source=whittle", "-o", "json"])?;
        if !is_list(&list) {
            return Err(ProgramError::Unusable { command: self.kubectl.shown(&["get", "events"]), what: NO_LIST });
        }
        Ok(list.get_mut("items").map(Value::take).and_then(|items| serde_json::from_value(items).ok()).unwrap_or_default())
    }
}

/// What is said of an answer without objects.
const NO_LIST: &str = "the answer is no list of objects: it has no `items` that could be read";

/// Whether an answer is a list of objects; null stands for an empty one.
fn is_list(answer: &Value) -> bool {
    answer.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
        && answer.get("items").is_some_and(|items| items.is_array() || items.is_null())
}

impl Words {
    /// What it said on standard error, but for its warnings and its log.
    fn complaints(&self) -> impl Iterator<Item = String> {
        let is_complaint = |line: &&str| !line.is_empty() && !line.starts_with("Warning:") && !is_logged(line);
        self.said.lines().map(str::trim).filter(is_complaint).map(|line| line.strip_prefix("error: ").unwrap_or(line).to_owned())
    }
}

/// Whether a line is one of kubectl's log, such as `E1126 09:44:34.038176    6182 memcache.go:265] …`.
fn is_logged(line: &str) -> bool {
    let mut letters = line.chars();
    letters.next().is_some_and(|level| "IWEF".contains(level)) && letters.by_ref().take(4).filter(char::is_ascii_digit).count() == 4
}

/// An answer as an error, without kubectl's log if it says anything else.
fn failure(mut answer: Words) -> LiveError {
    let complaints = answer.complaints().collect::<Vec<_>>().join("\n  ");
    if !complaints.is_empty() {
        answer.said = complaints;
    }
    if let Some(remedy) = remedy(&answer.said) {
        answer.said = format!("{}\n  {remedy}", answer.said);
    }
    answer.into_failure().into()
}

/// What helps where kubectl says only what is wrong.
fn remedy(said: &str) -> Option<&'static str> {
    // Without a kubeconfig kubectl asks a server that was once on every machine.
    if said.contains("server localhost:8080") {
        return Some(
            "(kubectl has no kubeconfig that names a cluster: `aws eks update-kubeconfig --name CLUSTER` writes one, --kubeconfig names \
             another file)",
        );
    }
    if said.starts_with("context ") && said.contains(" does not exist") {
        return Some("(`kubectl config get-contexts` lists those that there are)");
    }
    let is_unknown = said.contains("You must be logged in to the server");
    is_unknown.then_some(
        "(the cluster does not know the credentials of the kubeconfig, or they have expired: sign in again, until `kubectl auth whoami` \
         answers)",
    )
}

/// The region in `https://0123ABCD.gr7.eu-west-1.eks.amazonaws.com`.
fn region_of_server(server: &str) -> Option<&str> {
    let host = server.split("://").last()?.split([':', '/']).next()?;
    let (before, _) = host.split_once(".eks.amazonaws.com").or_else(|| host.split_once(".api.aws"))?;
    let before = before.strip_suffix(".eks-cluster").or_else(|| before.strip_suffix(".eks")).unwrap_or(before);
    before.rsplit('.').find(|part| part.split('-').count() >= 3)
}
