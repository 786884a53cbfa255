//! `explain`: why an object is as it is, or why it went.

use crate::local::report;
use crate::local::rows::pool_of;
use crate::source::preferences;
use std::collections::BTreeSet;
use whittle_api::k8s::Node;
use whittle_api::labels;
use whittle_sim::World;

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
pub(in crate::local) fn explain(world: &World, name: &str) -> Result<String, String> {
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
            if let Some(dropped) = preferences::dropped(pod) {
                text.push_str(&format!("  it has no place, {dropped}\n"));
            }
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
