//! The interactive session: a prompt, or commands from standard input.

use super::report;
use super::session::{Place, Session};
use crate::printing::{complain, say};
use crate::savings;
use crate::source::classes;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use whittle_api::k8s::Node;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{GoDuration, conditions, labels};
use whittle_sim::World;
use whittle_units::Price;

const HELP: &str = "\
apply -f FILE…                    apply manifests (old versions too)
delete KIND/NAME                  delete a deployment, pod, node, nodeclaim, nodepool, …
scale deploy/NAME --replicas N    change a Deployment
advance 10m                       let time pass
get nodes|nodeclaims|pods|events  what there is
interrupt NODE                    EC2 takes a spot node back in two minutes
explain POD|NODE                  why it is as it is
savings                           what disruption did to the bill
help, quit
";

/// Reads commands until the end. A wrong command from a pipe ends the session with status 2.
pub fn main(place: &Place) -> ExitCode {
    let mut prompt = Prompt { session: Session::new(place), printed_lines: 0 };
    let stdin = std::io::stdin();
    let interactive = stdin.is_terminal();
    if interactive {
        say!("A simulated cluster {} in {}; nothing here is real. `help` lists the commands.\n", place.cluster, place.region);
    }
    loop {
        if interactive {
            say!("whittle> ");
            let _ = std::io::stdout().flush();
        }
        let mut line = String::new();
        match stdin.lock().read_line(&mut line) {
            Ok(0) | Err(_) => return ExitCode::SUCCESS,
            Ok(_) => {}
        }
        match prompt.command(line.trim()) {
            Ok(Some(text)) => say!("{text}"),
            Ok(None) => return ExitCode::SUCCESS,
            Err(error) => {
                complain!("{error}");
                if !interactive {
                    return ExitCode::from(2);
                }
            }
        }
    }
}

/// A session, and how much of its timeline was printed.
pub struct Prompt {
    session: Session,
    printed_lines: usize,
}

impl Prompt {
    /// A session for commands that come from elsewhere.
    pub fn new(place: &Place) -> Self {
        Self { session: Session::new(place), printed_lines: 0 }
    }

    /// Runs one command. `None` ends the session.
    pub fn command(&mut self, line: &str) -> Result<Option<String>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let text = match words[..] {
            [] => String::new(),
            ["quit" | "exit"] => return Ok(None),
            ["help"] => HELP.to_owned(),
            ["apply", "-f", ref files @ ..] if !files.is_empty() => self.apply(files)?,
            ["delete", object] => {
                let (kind, name) = object.split_once('/').ok_or("name what to delete as KIND/NAME, such as deploy/web")?;
                self.session.delete(kind, name).map_err(|error| error.to_string())?;
                format!("{object} deleted\n")
            }
            ["scale", object, "--replicas", number] => self.scale(object, number)?,
            ["scale", object, option] if option.starts_with("--replicas=") => self.scale(object, &option["--replicas=".len()..])?,
            ["advance", span] => self.advance(span)?,
            ["get", what] => self.get(what)?,
            ["interrupt", node] => {
                let id = self.session.interrupt(node).map_err(|error| error.to_string())?;
                format!("EC2 announces that it takes {node} ({id}) back in two minutes\n")
            }
            ["explain", name] => self.explain(name)?,
            ["savings"] => self.savings(),
            _ => return Err(format!("{line:?} is no command; `help` lists them")),
        };
        Ok(Some(text))
    }

    fn apply(&mut self, files: &[&str]) -> Result<String, String> {
        let paths: Vec<&Path> = files.iter().map(Path::new).collect();
        let messages = self.session.apply_files(&paths).map_err(|error| error.to_string())?;
        let mut text: String = messages.iter().map(|line| format!("{line}\n")).collect();
        let world = self.session.simulation.world();
        let objects = &world.cluster.objects;
        let classes: Vec<Ec2NodeClass> = objects.node_classes.values().cloned().collect();
        for missing in classes::dangling(objects.node_pools.values(), &classes) {
            text.push_str(&format!("warning: {missing}\n"));
        }
        Ok(text)
    }

    fn scale(&mut self, object: &str, number: &str) -> Result<String, String> {
        let name = object.split_once('/').map_or(object, |(_, name)| name);
        let replicas = number.parse().map_err(|_| format!("{number:?} is no number of replicas"))?;
        self.session.scale(name, replicas).map_err(|error| error.to_string())?;
        Ok(format!("{object} scaled\n"))
    }

    fn advance(&mut self, span: &str) -> Result<String, String> {
        let span: GoDuration = span.parse().map_err(|error| format!("{error}"))?;
        self.session.advance(span.span());
        let world = self.session.simulation.world();
        let lines = world.story.lines();
        let begun = lines.first().map_or(world.now(), |line| line.at);
        let cost = self.printed_lines.checked_sub(1).and_then(|last| lines.get(last)).map_or(Price::ZERO, |line| line.cost);
        let text = report::timeline(&lines[self.printed_lines..], begun, cost, report::paints());
        self.printed_lines = lines.len();
        Ok(text)
    }

    fn get(&self, what: &str) -> Result<String, String> {
        let world = self.session.simulation.world();
        match what {
            "nodes" | "node" | "no" => Ok(nodes(&world)),
            "nodeclaims" | "nodeclaim" => Ok(claims(&world)),
            "pods" | "pod" | "po" => Ok(pods(&world)),
            "events" | "event" | "ev" => Ok(events(&world)),
            other => Err(format!("{other:?} cannot be shown: nodes, nodeclaims, pods or events")),
        }
    }

    fn savings(&self) -> String {
        let world = self.session.simulation.world();
        // Include commands executed at this moment.
        let until = world.now().checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
        savings::of_decisions(world.store.decisions(&world.name()), until)
    }

    fn explain(&self, name: &str) -> Result<String, String> {
        explain(&self.session.simulation.world(), name)
    }
}

/// Columns as wide as their widest cell.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let heading: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The pool of a node. A Provisioner may have the name of a NodePool, so that its nodes are marked.
fn pool_of(node: &Node) -> String {
    match node.metadata.label(labels::PROVISIONER_NAME) {
        Some(provisioner) => format!("{}{provisioner}", NodePool::TWIN_PREFIX),
        None => node.metadata.label(labels::NODE_POOL).unwrap_or("-").to_owned(),
    }
}

fn nodes(world: &World) -> String {
    let row = |node: &Node| {
        let label = |key: &str| node.metadata.label(key).unwrap_or("-").to_owned();
        let ready = if conditions::is_true(&node.status.conditions, conditions::READY) { "Ready" } else { "NotReady" };
        let pods = world.cluster.objects.pods_on(&node.metadata.name).filter(|pod| !pod.is_daemon()).count();
        vec![
            node.metadata.name.clone(),
            ready.to_owned(),
            pool_of(node),
            label(labels::INSTANCE_TYPE),
            label(labels::CAPACITY_TYPE),
            label(labels::ZONE),
            pods.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = world.cluster.objects.nodes.values().map(row).collect();
    table(&["NAME", "STATUS", "POOL", "TYPE", "CAPACITY", "ZONE", "PODS"], &rows)
}

fn claims(world: &World) -> String {
    let cluster = world.name();
    let live = world.store.claims(&cluster).map(|stored| &stored.value).filter(|claim| claim.is_live());
    let rows: Vec<Vec<String>> = live
        .map(|claim| {
            let machine = claim.machine();
            let old = claim.spec.owner.kind == "Provisioner";
            let pool = if old { format!("{}{}", NodePool::TWIN_PREFIX, claim.spec.owner.name) } else { claim.spec.node_pool.clone() };
            vec![
                claim.key.name.to_string(),
                claim.phase.name().to_owned(),
                pool,
                machine.map_or("-".to_owned(), |machine| machine.instance_type.clone()),
                machine.map_or("-".to_owned(), |machine| machine.instance_id.to_string()),
                claim.node_name().unwrap_or("-").to_owned(),
            ]
        })
        .collect();
    table(&["NAME", "PHASE", "POOL", "TYPE", "INSTANCE", "NODE"], &rows)
}

fn pods(world: &World) -> String {
    let shown = world.cluster.objects.pods.values().filter(|pod| !pod.is_daemon());
    let rows: Vec<Vec<String>> = shown
        .map(|pod| {
            let node = if pod.is_bound() { pod.spec.node_name.clone() } else { "-".to_owned() };
            let status = if pod.metadata.is_deleting() { "Terminating".to_owned() } else { pod.status.phase.clone() };
            vec![pod.metadata.namespace.clone(), pod.metadata.name.clone(), status, node]
        })
        .collect();
    table(&["NAMESPACE", "NAME", "STATUS", "NODE"], &rows)
}

fn events(world: &World) -> String {
    let rows: Vec<Vec<String>> = world
        .cluster
        .events
        .iter()
        .map(|kept| {
            let event = &kept.event;
            vec![kept.at.to_string(), event.reason.clone(), format!("{}/{}", event.kind.to_lowercase(), event.name), event.message.clone()]
        })
        .collect();
    table(&["TIME", "REASON", "OBJECT", "MESSAGE"], &rows)
}

/// The object that a name, or its beginning, means, and a remark if it may mean others too. Objects that are gone are known by what
/// was decided and published about them.
fn meant(world: &World, name: &str) -> Result<(String, Option<String>), String> {
    let objects = &world.cluster.objects;
    let bare = name.rsplit('/').next().unwrap_or(name);
    let pods = objects.pods.values().map(|pod| pod.metadata.name.as_str());
    let living: BTreeSet<&str> =
        pods.chain(objects.nodes.keys().map(String::as_str)).chain(objects.node_claims.keys().map(String::as_str)).collect();
    let subjects = world.store.decisions(&world.name()).iter().map(|decision| decision.subject.as_str());
    let gone = |subject: &'_ str| ["pod/", "node/", "nodeclaim/"].iter().any(|kind| subject.starts_with(kind));
    let events = world.cluster.events.iter().map(|kept| &kept.event);
    let published = events.filter(|event| ["Pod", "Node", "NodeClaim"].contains(&event.kind.as_str())).map(|event| event.name.as_str());
    let last = |text: &'_ str| text.rsplit('/').next().unwrap_or(text).to_owned();
    let past: BTreeSet<String> = subjects.filter(|subject| gone(subject)).map(last).chain(published.map(last)).collect();
    if bare.is_empty() {
        return Err("name a pod, a node or a nodeclaim".to_owned());
    }
    if living.contains(bare) || past.contains(bare) {
        return Ok((bare.to_owned(), None));
    }
    let begins = |known: &String| known.starts_with(bare);
    let mut matching: Vec<String> = living.iter().map(|known| (*known).to_owned()).filter(begins).collect();
    if matching.is_empty() {
        matching = past.into_iter().filter(begins).collect();
    }
    let others = matching.iter().skip(1).take(5).cloned().collect::<Vec<_>>().join(", ");
    let remark = (1 < matching.len()).then(|| format!("the first of {} that begin with {bare:?}; others are {others}", matching.len()));
    let first = matching.into_iter().next();
    first.map(|first| (first, remark)).ok_or_else(|| format!("there is no pod, node or nodeclaim {name:?}, and there was none"))
}

/// What a node is.
fn described(world: &World, node: &Node) -> String {
    let label = |key: &str| node.metadata.label(key).unwrap_or("-");
    let pods = world.cluster.objects.pods_on(&node.metadata.name).filter(|pod| !pod.is_daemon()).count();
    let machine = format!("{}, {}, {}", label(labels::INSTANCE_TYPE), label(labels::CAPACITY_TYPE), label(labels::ZONE));
    match node.metadata.label(labels::NODE_POOL) {
        Some(_) => format!("  {machine}; {pods} pods; of nodepool {}\n", pool_of(node)),
        None => format!("  {machine}; {pods} pods; it is no node of Whittle's, which neither launched it nor removes it\n"),
    }
}

/// Everything that was decided and published about a pod, a node or a claim, oldest first.
pub fn explain(world: &World, name: &str) -> Result<String, String> {
    let objects = &world.cluster.objects;
    let (subject, remark) = meant(world, name)?;
    let begun = world.story.lines().first().map_or(world.now(), |line| line.at);
    let mut text = remark.map_or_else(|| format!("{subject}\n"), |remark| format!("{subject} ({remark})\n"));
    if let Some(node) = objects.nodes.get(&subject) {
        text.push_str(&described(world, node));
    } else if !objects.node_claims.contains_key(&subject) && !objects.pods.values().any(|pod| pod.metadata.name == subject) {
        text.push_str("  is gone\n");
    }
    if let Some(pod) = objects.pods.values().find(|pod| pod.metadata.name == subject) {
        let place = if pod.is_bound() { format!("runs on {}", pod.spec.node_name) } else { "waits for a node".to_owned() };
        text.push_str(&format!("  {} and {place}\n", pod.status.phase.to_lowercase()));
        if let Some(condition) = pod.condition("PodScheduled").filter(|condition| condition.status == "False") {
            text.push_str(&format!("  the scheduler says: {}\n", condition.message));
        }
    }
    let cluster = world.name();
    let claim = world
        .store
        .claims(&cluster)
        .find(|stored| stored.value.node_name() == Some(&subject))
        .map(|stored| stored.value.key.name.to_string());
    let about = |text: &str| text.ends_with(&subject) || claim.as_ref().is_some_and(|claim| text.ends_with(claim.as_str()));
    let mut messages = Vec::new();
    for decision in world.store.decisions(&cluster).iter().filter(|decision| about(&decision.subject)) {
        messages.push((decision.at, format!("{} ({})", decision.message, decision.subject)));
    }
    for kept in world.cluster.events.iter().filter(|kept| about(&kept.event.name)) {
        messages.push((kept.at, format!("{}: {}", kept.event.reason, kept.event.message)));
    }
    messages.sort();
    messages.dedup();
    for (at, line) in messages {
        text.push_str(&format!("  {}  {line}\n", report::clock(begun, at)));
    }
    Ok(text)
}
