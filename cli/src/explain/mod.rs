//! `whittle explain`: what would be decided about a pod, a machine, a workload or a NodePool, and what was decided about it before.

pub(crate) mod besides;
mod groups;
pub(crate) mod history;
mod remedies;
mod subject;

#[cfg(test)]
mod tests;

use crate::consolidate;
use crate::live::deployment::{DeploymentError, StackArgs};
use crate::plan::{self, output, text};
use crate::printing::complain;
use crate::schema::Document;
use crate::source::left_aside::Known;
use crate::source::preferences;
use crate::source::remarks;
use crate::source::{Answer, Format, InstanceTypesByPool, Manifests, Market, PackingArg, ReadError, Source};
use clap::Args;
use history::History;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use subject::{Subject, explained_kind, of_another, subject};
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_disruption::Decision;
use whittle_model::disruption::Command;
use whittle_model::scheduling::{Plan, PodRef};

/// Explain what would be decided about a pod, node or NodeClaim of some manifests.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Decides from files or from what --context names, as `whittle plan` does for a pod and `whittle consolidate` for a node.

With --stack it shows what was decided before, as long as the table keeps decisions (thirty days): also of a node that is gone.

Examples:
  whittle explain web/api-7d9f -f cluster.yaml
  whittle explain web/api-7d9f --context prod
  whittle explain deployment/web --context prod -n shop
  whittle explain ip-10-0-1-7.ec2.internal --context prod --stack whittle      (why did it go at 03:12?)
  whittle explain node/ip-10-0-1-7.ec2.internal -f cluster.yaml --region eu-west-1

Exit code: 0 if there is an answer, 1 if it leaves out or relies on objects that are refused or the output cannot be
written, 2 if there is none.")]
pub struct ExplainArgs {
    /// What to explain: a pod (NAME or NAMESPACE/NAME), a node, a NodeClaim, a NodePool or a workload. If several objects have the name,
    /// write pod/, node/, nodeclaim/, nodepool/ or its kind, such as deployment/, before it.
    #[arg(value_name = "POD|NODE|NODECLAIM|NODEPOOL|WORKLOAD")]
    pub name: String,
    /// The name, where its kind is a word of its own, as kubectl takes it: pod web/api
    #[arg(value_name = "NAME")]
    pub name_of_kind: Option<String>,
    /// The namespace of the pod or workload, if NAME does not say it
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub stack: StackArgs,
    /// How to print the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// Whose decision to explain
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
}

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    #[error(
        "{0:?} is no pod, node, nodeclaim, nodepool or workload of those that are given{hint}; name one of them, or add its file with -f",
        hint = like(.1)
    )]
    Unknown(String, Vec<String>),
    #[error("{0:?} is not there{hint}, and no decision of the stack names it: decisions are kept for thirty days", hint = like(.1))]
    Forgotten(String, Vec<String>),
    #[error("{0:?} may be any of {list}; write it as here", list = .1.join(", "))]
    Several(String, Vec<String>),
    #[error(
        "{kind:?} is not a kind that `explain` knows, so that {name:?} after it is one name too many: name one pod, node, nodeclaim, \
         nodepool or workload, as in pod/NAME; files are named with -f"
    )]
    NoKind { kind: String, name: String },
}

impl ExplainArgs {
    /// The name of what to explain, with its kind if that was a word of its own.
    fn wanted(&self) -> Result<String, ExplainError> {
        let Some(name) = &self.name_of_kind else { return Ok(self.name.clone()) };
        let no_kind = || ExplainError::NoKind { kind: self.name.clone(), name: name.clone() };
        explained_kind(&self.name).map(|kind| format!("{kind}/{name}")).ok_or_else(no_kind)
    }
}

fn like(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" (there is {})", names.join(", ")) }
}

/// Runs the command; [`Answer`] has its exit codes.
#[must_use]
pub fn run(args: &ExplainArgs) -> ExitCode {
    let answered = answer(args);
    let nothing = matches!(answered, Err(ExplainError::Read(ReadError::Nothing { .. })));
    let code = Answer::finish(answered);
    if nothing && std::path::Path::new(&args.name).exists() {
        complain!("note: files are named with -f: -f {}", args.name);
    }
    code
}

/// The output of the command.
///
/// # Errors
/// Unreadable input, and a name that is unknown or ambiguous.
pub fn render(args: &ExplainArgs) -> Result<String, ExplainError> {
    answer(args).map(|answer| answer.text)
}

fn answer(args: &ExplainArgs) -> Result<Answer, ExplainError> {
    let wanted = args.wanted()?;
    let history = history::of(args, &wanted)?;
    let asked_of_stack_alone = history.is_some() && args.source.files.is_empty() && args.source.cluster.live().is_none();
    let region = history.as_ref().map(|history| history.region.as_str()).filter(|region| !region.is_empty());
    let answered = if asked_of_stack_alone {
        Err(ExplainError::Unknown(wanted.clone(), Vec::new()))
    } else {
        let (read, market) = args.source.read_in("explain", region)?;
        let findings = remarks::json(&read.remarks);
        let answered = present((&wanted, args.namespace.as_deref()), read, market, args.packing, args.output);
        if args.output == Format::Json { answered.map(|answer| with_field(answer, "findings", findings)) } else { answered }
    };
    with_history(answered, history, &wanted, args.output)
}

/// What `explain` says of something among objects that were read, as text.
///
/// # Errors
/// A name that is unknown or ambiguous, and objects without which nothing is decided.
pub(crate) fn text_about(name: &str, read: Manifests, market: Market, history: Option<History>) -> Result<String, ExplainError> {
    let answered = present((name, None), read, market, PackingArg::Best, Format::Text);
    with_history(answered, history, name, Format::Text).map(|answer| answer.text)
}

/// An answer in JSON with one more field.
fn with_field(answer: Answer, name: &str, field: Value) -> Answer {
    let mut document: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    document[name] = field;
    answer.with(format!("{document:#}\n"))
}

/// An answer with what was decided before.
fn with_history(
    answered: Result<Answer, ExplainError>,
    history: Option<History>,
    name: &str,
    format: Format,
) -> Result<Answer, ExplainError> {
    let Some(history) = history else { return answered };
    match (answered, format) {
        (Ok(answer), _) if history.is_empty() => Ok(answer),
        (Ok(answer), Format::Json) => Ok(with_field(answer, "history", history.json())),
        (Ok(answer), Format::Text) => {
            let text = format!("{}\n{}", answer.text, history.text(name, false));
            Ok(answer.with(text))
        }
        (Err(ExplainError::Unknown(..)), Format::Json) if !history.is_empty() => {
            Ok(Answer::of(document(json!({"name": name, "history": history.json()}))))
        }
        (Err(ExplainError::Unknown(..)), Format::Text) if !history.is_empty() => Ok(Answer::of(history.text(name, true))),
        (Err(ExplainError::Unknown(name, near)), _) => Err(ExplainError::Forgotten(name, near)),
        (Err(error), _) => Err(error),
    }
}

/// What would be decided now about something, of a namespace if one is given.
fn present(
    (asked, namespace): (&str, Option<&str>),
    mut read: Manifests,
    market: Market,
    packing: PackingArg,
    format: Format,
) -> Result<Answer, ExplainError> {
    let Market { types: offered, prices, currency, .. } = market;
    if let Some(told) = of_another(&read, asked).filter(|_| subject(&read, asked, namespace).is_err()) {
        return Ok(read.answer(group_answer(asked, format!("{told}\n"), format)));
    }
    let name = match subject(&read, asked, namespace)? {
        Subject::Pod(pod) => {
            let text = pod_answer(pod, &read, &offered, packing, format);
            return Ok(read.answer(currency.shown(text)));
        }
        Subject::NodePool(pool) => {
            let text = groups::pool_text(pool, &read, &plan::decide(&read, offered, packing).plan);
            return Ok(read.answer(group_answer(asked, currency.shown(text), format)));
        }
        Subject::Workload(name, pods) => {
            let text = groups::workload_text(&name, &pods, &plan::decide(&read, offered, packing).plan, &Known::of(&read.objects));
            return Ok(read.answer(group_answer(asked, currency.shown(text), format)));
        }
        Subject::Node(_) | Subject::NodeClaim(_) if !read.blocks_disruption.is_empty() => {
            return Err(ReadError::BlocksDisruption.into());
        }
        Subject::Node(name) | Subject::NodeClaim(name) => name.to_owned(),
    };
    let plan = plan::decide(&read, offered.clone(), packing).plan;
    // Consolidation decides about the pods that there are.
    read.remove_added();
    let mut decision = consolidate::decide(&read, &offered, packing);
    consolidate::price_removals(&mut decision, &read, &prices);
    let facts: (&Decision, &[NodePool]) = (&decision, &read.objects.node_pools);
    Ok(read.answer(match format {
        Format::Json => document(machine_json(&name, &plan, facts)),
        Format::Text => {
            let text = machine_text(&name, &plan, facts);
            let node = read.objects.nodes.iter().find(|node| node.metadata.name == name);
            let taints = node.map(|node| besides::startup_taints_line(node, &read.objects)).unwrap_or_default();
            let ends = consolidate::expiry::line(&name, &read) + &consolidate::surplus::line(&name, &read, &offered, packing);
            currency.shown(text + &taints + &ends)
        }
    }))
}

/// What would be decided now about a pod.
fn pod_answer(pod: &Pod, read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg, format: Format) -> String {
    let plan = plan::decide(read, offered.clone(), packing).plan;
    let known = Known::of(&read.objects);
    let move_ = if pod.is_bound() { move_of(pod, read, offered, packing) } else { None };
    match (move_, format) {
        (Some(move_), Format::Json) => document(move_.json(pod)),
        (Some(move_), Format::Text) => format!("{} is not to be placed: {}\n", pod.metadata.key(), move_.message(pod)),
        (None, Format::Json) => {
            let mut value = pod_json(pod, &plan, &known);
            if let Some(message) = besides::scheduler_says(pod) {
                value["scheduler"] = json!(message);
            }
            document(value)
        }
        (None, Format::Text) => {
            let text = pod_text(pod, &named_first(plan.clone(), pod), &known);
            let startup = besides::startup_taints(pod, &read.objects, &text);
            let text = text + &startup;
            let waits = plan.left_out.iter().any(|left| has(std::slice::from_ref(&left.pod), pod));
            let besides = if waits { besides::lines(pod, &read.objects, &read.others, &text) } else { String::new() };
            text + &besides + &besides::scheduler_line(pod)
        }
    }
}

/// The answer about several objects, which is a text for programs too.
fn group_answer(name: &str, text: String, format: Format) -> String {
    match format {
        Format::Json => document(json!({"name": name, "message": text})),
        Format::Text => text,
    }
}

/// The output for programs.
fn document(value: Value) -> String {
    format!("{:#}\n", Document::Explain.versioned(value))
}

/// What becomes of a removal where pods that wait have a place: provisioning nominates the node for them first.
const KEPT_FOR_PODS: &str = "; while they are expected on it, it is kept";

/// Where a running pod goes when its node is removed.
struct Move {
    /// Why the node goes.
    reason: String,
    /// `None` for a pod that ends with its node, such as a daemon.
    to: Option<Destination>,
}

enum Destination {
    Node(String),
    /// A machine that is launched for it, from this NodePool.
    NewMachine(String),
}

/// What consolidation would do with a running pod; `None` if it stays, or if that cannot be decided.
fn move_of(pod: &Pod, read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg) -> Option<Move> {
    if !read.blocks_disruption.is_empty() {
        return None;
    }
    let mut read = read.clone();
    read.remove_added();
    let decision = consolidate::decide(&read, offered, packing);
    let command = decision.commands.iter().find(|command| command.removals.iter().any(|removal| removal.node == pod.spec.node_name))?;
    let new = command.replacements.iter().find(|claim| has(&claim.pods, pod)).map(|claim| Destination::NewMachine(claim.node_pool.clone()));
    let old = || command.placements.iter().find(|at| has(&at.pods, pod)).map(|at| Destination::Node(at.node.clone()));
    Some(Move { reason: command.method.reason().as_str().to_owned(), to: new.or_else(old) })
}

impl Move {
    fn message(&self, pod: &Pod) -> String {
        let node = &pod.spec.node_name;
        let then = match &self.to {
            Some(Destination::Node(to)) => format!("it moves to {to}"),
            Some(Destination::NewMachine(pool)) => format!("it moves to a new machine from nodepool {pool}"),
            None => "it ends there".to_owned(),
        };
        format!("it runs on {node}, which is to be removed ({}), and {then}", self.reason)
    }

    fn json(&self, pod: &Pod) -> Value {
        let to = match &self.to {
            Some(Destination::Node(node)) => json!({"node": node}),
            Some(Destination::NewMachine(pool)) => json!({"nodePool": pool}),
            None => Value::Null,
        };
        json!({
            "pod": pod.metadata.key(),
            "outcome": "notToBePlaced",
            "message": self.message(pod),
            "node": pod.spec.node_name,
            "move": {"reason": self.reason, "to": to},
        })
    }
}

fn has(list: &[PodRef], pod: &Pod) -> bool {
    list.iter().any(|p| p.namespace == pod.metadata.namespace && p.name == pod.metadata.name)
}

/// A plan in which a pod is the first of those of its new machine, if it would not be among the few that are named.
fn named_first(mut plan: Plan, pod: &Pod) -> Plan {
    for claim in &mut plan.claims {
        let at = claim.pods.iter().position(|one| has(std::slice::from_ref(one), pod));
        if let Some(at) = at.filter(|at| text::NAMED <= *at) {
            claim.pods[..=at].rotate_right(1);
        }
    }
    plan
}

fn pod_text(pod: &Pod, plan: &Plan, known: &Known<'_>) -> String {
    let key = pod.metadata.key();
    if let Some(claim) = plan.claims.iter().find(|claim| has(&claim.pods, pod)) {
        let mut out = format!("{key} needs a new machine\n");
        text::new_machine(&mut out, claim);
        return out;
    }
    if let Some(placement) = plan.placements.iter().find(|placement| has(&placement.pods, pod)) {
        let state = if placement.initialized { "" } else { ", which has not initialized yet" };
        return format!("{key} goes to the existing node {}{state}\n", placement.node);
    }
    if let Some(left) = plan.left_out.iter().find(|left| has(std::slice::from_ref(&left.pod), pod)) {
        let mut out = String::new();
        text::not_placed(&mut out, left);
        left.reason.remedies().iter().for_each(|remedy| out.push_str(&remedies::line(remedy)));
        if let Some(dropped) = preferences::dropped(pod) {
            let _ = writeln!(out, "  {dropped}");
        }
        return out.trim_start().to_owned();
    }
    format!("{key} is not to be placed: {}\n", known.why(pod))
}

fn pod_json(pod: &Pod, plan: &Plan, known: &Known<'_>) -> Value {
    let key = pod.metadata.key();
    if let Some(claim) = plan.claims.iter().find(|claim| has(&claim.pods, pod)) {
        return json!({"pod": key, "outcome": "newMachine", "nodeClaim": output::claim(claim)});
    }
    if let Some(placement) = plan.placements.iter().find(|placement| has(&placement.pods, pod)) {
        return json!({"pod": key, "outcome": "existingNode", "node": placement.node, "initialized": placement.initialized});
    }
    if let Some(left) = plan.left_out.iter().find(|left| has(std::slice::from_ref(&left.pod), pod)) {
        let mut out = output::left_out(left);
        out["outcome"] = json!("unschedulable");
        out["remedies"] = left.reason.remedies().iter().map(remedies::json_of).collect();
        let dropped = preferences::of(pod);
        if !dropped.is_empty() {
            out["droppedPreferences"] = json!(dropped);
        }
        return out;
    }
    json!({"pod": key, "outcome": "notToBePlaced", "message": known.why(pod)})
}

fn removes(command: &Command, name: &str) -> bool {
    command.removals.iter().any(|removal| removal.node == name || removal.node_claim == name)
}

fn machine_text(name: &str, plan: &Plan, (decision, pools): (&Decision, &[NodePool])) -> String {
    let mut out = format!("{name}\n");
    for verdict in decision.verdicts.iter().filter(|v| v.node == name || v.node_claim == name) {
        let drifted = consolidate::output::drifted_text(decision, verdict);
        let _ = writeln!(out, "  {}{drifted}", verdict.reason);
        out.extend(verdict.remedy(pools).map(|remedy| remedies::line(&remedy)));
    }
    for command in decision.commands.iter().filter(|command| removes(command, name)) {
        let _ = writeln!(out, "  {command} ({})", consolidate::output::saves(command));
        let pods: Vec<&String> = command.removals.iter().filter(|r| r.node == name || r.node_claim == name).flat_map(|r| &r.pods).collect();
        let moved = |placed: &[PodRef]| placed.iter().map(PodRef::key).filter(|key| pods.contains(&key)).collect::<Vec<_>>().join(", ");
        for (moved, place) in command.placements.iter().map(|placement| (moved(&placement.pods), placement.node.clone())).chain(
            command.replacements.iter().map(|claim| (moved(&claim.pods), format!("a new machine from nodepool {}", claim.node_pool))),
        ) {
            if !moved.is_empty() {
                let _ = writeln!(out, "  moves to {place}: {moved}");
            }
        }
    }
    for placement in plan.placements.iter().filter(|p| p.node == name) {
        let pods: Vec<String> = placement.pods.iter().map(PodRef::key).collect();
        let kept = if decision.commands.iter().any(|command| removes(command, name)) { KEPT_FOR_PODS } else { "" };
        let _ = writeln!(out, "  takes pending pods: {}{kept}", pods.join(", "));
    }
    if out.lines().count() == 1 {
        let _ = writeln!(
            out,
            "  nothing would be done with it: no machine of ours among what is given has its provider id or label {}",
            labels::NODE_POOL
        );
    }
    out
}

fn machine_json(name: &str, plan: &Plan, (decision, pools): (&Decision, &[NodePool])) -> Value {
    let verdict = decision.verdicts.iter().find(|v| v.node == name || v.node_claim == name);
    let commands = decision.commands.iter().filter(|command| removes(command, name));
    let pods = plan.placements.iter().filter(|p| p.node == name).flat_map(|p| &p.pods).map(PodRef::key);
    json!({
        "machine": name,
        "verdict": verdict.map(|verdict| consolidate::output::verdict(decision, verdict)),
        "remedy": verdict.and_then(|verdict| verdict.remedy(pools)).map(|remedy| remedy.text),
        "commands": commands.map(consolidate::output::command).collect::<Vec<_>>(),
        "pods": pods.collect::<Vec<_>>(),
    })
}
