//! The commands of the prompt, in kubectl's spelling.

use super::ec2::Ec2;
use crate::printing::fitted;
use crate::similar;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};

/// One line: a command, and the namespace that it is about.
#[derive(Debug, Parser)]
#[command(
    name = "whittle local",
    no_binary_name = true,
    bin_name = "",
    disable_help_flag = false,
    help_template = "{subcommands}{after-help}",
    after_help = EXAMPLES
)]
pub(super) struct Line {
    #[command(subcommand)]
    pub(super) verb: Verb,
    /// Namespace of the objects
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
}

const EXAMPLES: &str = "
`kubectl` in front of a command is left out, and KIND NAME and KIND/NAME mean the same. For example:
  apply -f pool.yaml -f deployment.yaml
  scale deployment inflate --replicas 5
  advance 10m
  get nodes -o wide
  explain NAME
  annotate node NAME karpenter.sh/do-not-disrupt=true
`help COMMAND` has the options of a command; Ctrl-C stops one, Ctrl-D ends the session.";

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Apply manifests (old versions too): files, directories, or `-` for the lines up to EOF
    #[command(alias = "create")]
    Apply(ApplyArgs),
    /// Delete objects, by name or as files have them
    Delete(DeleteArgs),
    /// Change the replicas of Deployments
    Scale(ScaleArgs),
    /// Add or remove annotations, such as karpenter.sh/do-not-disrupt=true, or that with - at its end
    Annotate(ChangeArgs),
    /// Add or remove labels
    Label(ChangeArgs),
    /// Add or remove taints of nodes, such as team=a:NoSchedule, or team-
    Taint(ChangeArgs),
    /// Close nodes to new pods
    Cordon(NodesArgs),
    /// Open nodes to new pods again
    Uncordon(NodesArgs),
    /// Let time pass, such as 30s, 10m, 1h30m or 1d, and print what happens
    Advance {
        /// How long: numbers with units, such as 30s, 10m, 1h30m or 1d
        #[arg(value_name = "TIME", allow_hyphen_values = true)]
        span: String,
    },
    /// List objects: nodes, pods, deployments, nodepools, nodeclaims, events, …
    Get(GetArgs),
    /// Everything about objects: fields, conditions, pods, events
    Describe(DescribeArgs),
    /// Wait for a Deployment, or restart it
    Rollout {
        #[command(subcommand)]
        command: RolloutCommand,
    },
    /// EC2 takes a spot node back in two minutes
    Interrupt {
        /// NAME, node NAME or node/NAME
        #[arg(value_name = "NODE", required = true, num_args = 1..=2)]
        node: Vec<String>,
    },
    /// The simulated EC2: what it has, stock-outs, events, images
    Ec2 {
        #[command(subcommand)]
        command: Ec2,
    },
    /// Whether Whittle acts, or only decides and reports (shadow); without a value, which of them it does
    Mode {
        /// What it does from now on
        #[arg(value_enum)]
        mode: Option<Mode>,
    },
    /// Why a pod, node, Deployment or pool is as it is, or why it went
    Explain {
        /// NAME, KIND NAME or KIND/NAME
        #[arg(required = true, num_args = 1..=2, value_name = "POD|NODE|KIND/NAME")]
        name: Vec<String>,
    },
    /// What disruption did to the bill
    Savings,
    /// End the session
    #[command(alias = "exit")]
    Quit,
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// `apply -f`
#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// Files or directories; `-` reads the lines that follow, up to one that says EOF
    #[arg(short = 'f', long = "filename", required = true, num_args = 1.., value_delimiter = ',', value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Only say what would be created or configured; client and server do the same here
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value_t, default_missing_value = "client", value_name = "HOW")]
    pub(super) dry_run: DryRun,
    #[arg(long, hide = true)]
    server_side: bool,
    #[arg(long, hide = true)]
    force_conflicts: bool,
}

/// Whether a command only says what it would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum DryRun {
    #[default]
    None,
    Client,
    Server,
}

impl DryRun {
    pub(super) fn is_dry(self) -> bool {
        self != Self::None
    }
    /// What kubectl writes behind each object.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

impl ApplyArgs {
    pub(super) fn of(files: &[PathBuf]) -> Self {
        Self { files: files.to_vec(), dry_run: DryRun::None, server_side: false, force_conflicts: false }
    }
    pub(super) fn reads_lines(&self) -> bool {
        self.files.iter().any(|file| file == Path::new("-"))
    }
}

/// `delete`
#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// KIND NAME… or KIND/NAME…
    #[arg(value_name = "OBJECT", required_unless_present = "files")]
    pub(super) objects: Vec<String>,
    /// Delete what these files name
    #[arg(short = 'f', long = "filename", num_args = 1.., value_delimiter = ',', value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Only objects with these labels, such as app=web
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(super) selector: Option<String>,
    /// All objects of the kind
    #[arg(long)]
    pub(super) all: bool,
    /// What happens to what the object owns; foreground deletes a pool after its nodes, a workload after its pods
    #[arg(long, value_enum, num_args = 0..=1, default_value_t = Cascade::Background, default_missing_value = "background")]
    pub(super) cascade: Cascade,
    /// Succeed if there is no such object
    #[arg(long)]
    pub(super) ignore_not_found: bool,
    /// Seconds that a pod gets to end
    #[arg(long, value_name = "SECONDS")]
    pub(super) grace_period: Option<i64>,
    /// Delete pods within a second
    #[arg(long)]
    pub(super) now: bool,
    #[arg(long, hide = true)]
    force: bool,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    wait: Option<bool>,
}

impl DeleteArgs {
    pub(super) fn reads_lines(&self) -> bool {
        self.files.iter().any(|file| file == Path::new("-"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Cascade {
    Background,
    Foreground,
    Orphan,
}

/// `scale`
#[derive(Debug, Args)]
pub(super) struct ScaleArgs {
    /// deployment NAME… or deployment/NAME…
    #[arg(required = true, value_name = "OBJECT")]
    pub(super) objects: Vec<String>,
    /// How many pods each of them is to have
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    pub(super) replicas: String,
}

/// `annotate`, `label` and `taint`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  annotate node NAME karpenter.sh/do-not-disrupt=true
  annotate node NAME karpenter.sh/do-not-disrupt-
  label nodes --all team=a --overwrite
  taint node NAME team=a:NoSchedule
  taint node NAME team-
  taint node NAME team:NoSchedule-")]
pub(super) struct ChangeArgs {
    /// KIND NAME… or KIND/NAME…, and what to change: KEY=VALUE adds, KEY- removes; with :EFFECT of a taint
    #[arg(required = true, value_name = "OBJECT|CHANGE")]
    pub(super) words: Vec<String>,
    /// Only objects with these labels, such as app=web
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(super) selector: Option<String>,
    /// All objects of the kind
    #[arg(long)]
    pub(super) all: bool,
    /// Replace other values
    #[arg(long)]
    pub(super) overwrite: bool,
}

/// `cordon` and `uncordon`
#[derive(Debug, Args)]
pub(super) struct NodesArgs {
    /// NAME… or node/NAME…
    #[arg(required = true, value_name = "NODE")]
    pub(super) nodes: Vec<String>,
}

/// What Whittle does with what it decides, as the parameter `Mode` of a stack says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// It acts
    #[default]
    Active,
    /// It decides and reports, and changes nothing
    Shadow,
}

impl From<Mode> for whittle_ports::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Active => Self::Active,
            Mode::Shadow => Self::Shadow,
        }
    }
}

/// `get`
#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// KIND[,KIND] [NAME…] or KIND/NAME…; `all` for workloads and their pods
    #[arg(required = true, value_name = "OBJECT")]
    pub(super) objects: Vec<String>,
    /// How to print: with more columns, as manifests, or the names alone
    #[arg(short, long, value_enum)]
    pub(super) output: Option<Format>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub(super) all_namespaces: bool,
    /// Only objects with these labels, such as app=web
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(super) selector: Option<String>,
    /// Show the labels in a column
    #[arg(long)]
    pub(super) show_labels: bool,
    /// Show these labels in columns of their own, such as karpenter.sh/nodepool,topology.kubernetes.io/zone
    #[arg(short = 'L', long, value_name = "KEYS", value_delimiter = ',')]
    pub(super) label_columns: Vec<String>,
    /// In the order of a field, such as .metadata.name or .status.capacity.cpu
    #[arg(long, value_name = "FIELD")]
    pub(super) sort_by: Option<String>,
    /// Leave out the header
    #[arg(long)]
    pub(super) no_headers: bool,
    #[arg(short, long, hide = true)]
    pub(super) watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Wide,
    Yaml,
    Json,
    Name,
}

/// `describe`
#[derive(Debug, Args)]
pub(super) struct DescribeArgs {
    /// KIND [NAME…] or KIND/NAME…
    #[arg(required = true, value_name = "OBJECT")]
    pub(super) objects: Vec<String>,
    /// Only objects with these labels, such as app=web
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(super) selector: Option<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub(super) all_namespaces: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum RolloutCommand {
    /// Let time pass until a Deployment has all its pods
    Status(RolloutArgs),
    /// Replace the pods of a Deployment
    Restart(RolloutArgs),
}

#[derive(Debug, Args)]
pub(super) struct RolloutArgs {
    /// deployment NAME or deployment/NAME
    #[arg(required = true, value_name = "OBJECT")]
    pub(super) objects: Vec<String>,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(super) timeout: String,
    #[arg(short, long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    watch: Option<bool>,
}

/// Commands of AWS's own command line that are commands here: `aws` in front of them is left out.
const TAGGING: [&str; 2] = ["create-tags", "delete-tags"];

/// The words of a line, and the line that ends the text after it.
pub(super) struct Words {
    pub(super) words: Vec<String>,
    pub(super) until: Option<String>,
}

/// Splits a line as a shell does. `cat <<EOF | kubectl apply -f -` is `apply -f -` with the lines up to EOF. `None` for an empty line.
pub(super) fn split(line: &str) -> Result<Option<Words>, String> {
    let mut words = shlex::split(line).ok_or_else(|| format!("a quote or a backslash is left open in {line:?}"))?;
    let mut until = None;
    if let Some(position) = words.iter().position(|word| word.starts_with("<<")) {
        let word = words.remove(position);
        let bare = word.trim_start_matches("<<").trim_start_matches('-').to_owned();
        let next = (bare.is_empty() && position < words.len()).then(|| words.remove(position));
        until = Some(next.unwrap_or(bare));
    }
    if let Some(pipe) = words.iter().position(|word| word == "|") {
        if words[..pipe] != ["cat"] || until.is_none() {
            return Err("there are no pipes here: -l, a name, or -o name choose what is listed".to_owned());
        }
        words.drain(..=pipe);
    }
    if words.first().is_some_and(|word| word == "$" || word == "whittle>") {
        words.remove(0);
    }
    if matches!(&words[..], [aws, ec2, command, ..] if aws == "aws" && ec2 == "ec2" && TAGGING.contains(&command.as_str())) {
        words.remove(0);
    }
    if words.first().is_some_and(|word| word == "kubectl" || word == "k") {
        words.remove(0);
        if words.is_empty() {
            words.push("help".to_owned());
        }
    }
    Ok((!words.is_empty()).then_some(Words { words, until }))
}

/// The command of some words: `Ok(Err(text))` is help that was asked for.
pub(super) fn parse(words: &[String]) -> Result<Result<Line, String>, String> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand};
    if let [create, rest @ ..] = words
        && create == "create"
        && rest.first().is_some_and(|word| !word.starts_with('-'))
        && !rest.iter().any(|word| word.starts_with("-f") || word.starts_with("--filename"))
    {
        let kind = &rest[0];
        return Err(format!(
            "`create {kind}` does not work here: objects are created from manifests, with `apply -f FILE`, or with `apply -f -` \
             and their lines up to EOF"
        ));
    }
    match Line::try_parse_from(words) {
        Ok(line) => Ok(Ok(line)),
        Err(error) => {
            let text = error.render().to_string();
            if matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand) {
                return Ok(Err(fitted(&text)));
            }
            Err(error_text(&text))
        }
    }
}

/// What is wrong with a command, in one paragraph: what follows the first line belongs to it.
fn error_text(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    // Nobody wants to pass an unknown option as a name, which is what the parser's tip is about.
    let is_said = |line: &&str| !line.is_empty() && !["For more information", "tip: to pass "].iter().any(|start| line.starts_with(start));
    let lines = text.lines().map(str::trim).filter(is_said);
    lines.map(|line| line.replace("Usage:  ", "usage: ")).collect::<Vec<_>>().join("\n  ")
}

/// The names of all commands.
pub(super) fn verbs() -> Vec<String> {
    let command = Line::command();
    let mut names: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    names.push("help".to_owned());
    names
}

/// The node that is named as NAME, node NAME or node/NAME.
pub(super) fn node_named(words: &[String]) -> Result<&str, String> {
    const KINDS: [&str; 3] = ["node", "nodes", "no"];
    match words {
        [word] => Ok(word.split_once('/').filter(|(kind, _)| KINDS.contains(kind)).map_or(word.as_str(), |(_, name)| name)),
        [kind, name] if KINDS.contains(&kind.as_str()) => Ok(name),
        _ => Err("EC2 takes back one machine after another: name one node".to_owned()),
    }
}

/// Commands of a shell or of kubectl that cannot work here, and what to do instead.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["logs"],
        "no containers run here that could log: `advance` prints what Whittle decides, and `explain NAME` repeats it for one object",
    ),
    (&["exec", "attach", "cp", "debug", "run", "port-forward", "proxy"], "no containers run here: a pod is only what it requests"),
    (&["edit", "patch", "set", "replace"], "change the manifest and `apply` it again, also one with `-f -`"),
    (&["expose"], "networks are not simulated: a Service would change nothing; `apply -f` stores one"),
    (&["drain"], "delete the node, which drains it: `delete node NAME`"),
    (&["autoscale"], "autoscaling of pods is not simulated: `scale deployment NAME --replicas N` does its work"),
    (&["top"], "`get nodes -o wide` shows what the pods of a node request"),
    (&["wait"], "`rollout status deployment NAME` waits for a Deployment, and `advance 5m` for anything else"),
    (&["watch"], "the clock stands still between commands: `advance` prints what changes while it runs"),
    (
        &["config", "cluster-info", "version", "auth"],
        "`whittle local --cluster NAME --region REGION --kubernetes-version VERSION` chooses the cluster",
    ),
    (&["diff"], "`apply` says what is created, configured or unchanged"),
    (&["helm"], "Whittle is installed here, with its default settings; `whittle check --values FILE` judges Helm values"),
    (
        &["eksctl"],
        "`apply -f` of a ClusterConfig makes its node groups and resizes them; \
         --cluster, --region and --kubernetes-version of `whittle local` the rest",
    ),
    (
        &["aws"],
        "the account is simulated: `ec2 show instances` and its other lists show what it has, `ec2 help` what can happen to it, \
         `ec2 create-tags` and `ec2 delete-tags` work as printed, \
         and a ClusterConfig that is applied again resizes its node groups",
    ),
    (
        &["export", "cd", "ls", "sleep", "echo", "source"],
        "this is no shell; `advance` lets time pass, and files are named from where `whittle` was started",
    ),
];

/// Why a command is none.
pub(super) fn refusal(words: &[String]) -> String {
    let verb = words.first().map_or("", String::as_str);
    if let Some((_, remedy)) = ELSEWHERE.iter().find(|(verbs, _)| verbs.contains(&verb)) {
        return format!("`{verb}` does not work here: {remedy}");
    }
    match similar::nearest(verb, verbs()) {
        Some(near) => format!("{verb:?} is no command; did you mean `{near}`? `help` lists them"),
        None => format!("{verb:?} is no command; `help` lists them"),
    }
}
