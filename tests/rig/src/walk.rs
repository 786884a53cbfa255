//! Walks through what users meet, on a rig that is up: from the outside, by the Kubernetes API and the owner's API of the simulated
//! AWS alone. It only ends functions' processes, as Lambda may.

pub(crate) mod alarms;
mod outside;
mod processes;
mod rights;
pub(crate) mod upgrade;

use anyhow::{Result, ensure};
use clap::Parser;
use outside::Outside;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Walks on a rig that is up; the cluster must be empty of pods.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Walk {
    /// The folder of the rig
    #[arg(long)]
    folder: PathBuf,
}

/// From a pod to a place for it. Usually two seconds; the tick is the net below, and machines are busy.
const BOUND_MAX: Duration = Duration::from_secs(90);
/// Until nodes are gone that nobody needs: looks ten seconds apart, two of them, and the end of a machine.
const GONE_MAX: Duration = Duration::from_secs(240);
/// EC2 takes a machine two minutes after it said so.
const WARNED: Duration = Duration::from_secs(115);
/// A message whose run died comes again after 180 seconds, unless the tick's sweep is first.
const REPEATED_MAX: Duration = Duration::from_secs(300);

pub(crate) fn run(walk: &Walk) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let rig = Outside::of(&walk.folder).await?;
        rig.apply(&POOL.replace("CLUSTER", rig.cluster())).await?;
        rig.until("the class is ready", BOUND_MAX, async |rig| rig.is_class_ready().await).await?;
        a_pod_gets_a_node(&rig).await?;
        a_spot_interruption_is_met_with_a_replacement(&rig).await?;
        a_node_that_nobody_needs_goes(&rig).await?;
        a_launch_that_is_killed_buys_nothing_twice(&rig).await?;
        nodes_without_pods_are_kept_as_long_as_they_are_asked_for(&rig).await?;
        rights::nothing_was_refused(&rig).await?;
        a_right_that_is_taken_away_is_missed(&rig).await?;
        a_class_takes_what_was_made_for_it_along(&rig).await?;
        rights::each_statement_is_needed(&rig).await
    })
}

const POOL: &str = include_str!("walk/pool.json");

/// One pod, one node, and everything that shows it is right.
async fn a_pod_gets_a_node(rig: &Outside) -> Result<()> {
    rig.scale("web", 1, &json!({})).await?;
    let took = rig.until("the pod is bound", BOUND_MAX, async |rig| Ok(rig.bound().await?.len() == 1)).await?;
    rig.until("its claim is ready", BOUND_MAX, async |rig| Ok(rig.ready_claims().await?.len() == 1)).await?;
    rig.check_books().await?;
    rig.say("a pod gets a node", took);
    Ok(())
}

/// EC2 warns: the pod is on another node before it takes the machine.
async fn a_spot_interruption_is_met_with_a_replacement(rig: &Outside) -> Result<()> {
    let before = rig.bound().await?;
    let machine = rig.running().await?.pop_first();
    let Some(machine) = machine else { anyhow::bail!("no machine runs") };
    rig.control(&json!({"interrupt": [machine]})).await?;
    let moved = async |rig: &Outside| {
        let now = rig.bound().await?;
        Ok(now.len() == 1 && now.values().next() != before.values().next())
    };
    let took = rig.until("the pod is on another node", WARNED, moved).await?;
    ensure!(rig.running().await?.len() <= 2, "more than one replacement runs");
    rig.say("a spot interruption is met with a replacement", took);
    let took = rig.until("only the replacement is left", GONE_MAX, async |rig| {
        let running = rig.running().await?;
        Ok(running.len() == 1 && !running.contains(&machine) && rig.nodes().await?.len() == 1 && rig.claims().await?.len() == 1)
    });
    let took = took.await?;
    rig.check_books().await?;
    rig.say("the interrupted machine and its objects are gone", took);
    Ok(())
}

/// No pods: no node, no claim, no machine.
async fn a_node_that_nobody_needs_goes(rig: &Outside) -> Result<()> {
    rig.scale("web", 0, &json!({})).await?;
    let took = rig.until("nothing is left", GONE_MAX, Outside::is_bare).await?;
    rig.say("a node that nobody needs goes", took);
    Ok(())
}

const KEPT: &str = include_str!("walk/kept.json");

/// A static NodePool and a NodeClaim of a user have their nodes until they are deleted.
async fn nodes_without_pods_are_kept_as_long_as_they_are_asked_for(rig: &Outside) -> Result<()> {
    rig.apply(KEPT).await?;
    let took = rig.until("both have a node", REPEATED_MAX, async |rig| Ok(rig.ready_claims().await?.len() == 2)).await?;
    rig.check_books().await?;
    rig.say("a static NodePool and a NodeClaim of a user get their nodes", took);
    for path in ["nodepools/kept", "nodeclaims/alone"] {
        rig.delete(&format!("/apis/karpenter.sh/v1/{path}")).await?;
    }
    let took = rig.until("nothing is left", GONE_MAX, Outside::is_bare);
    rig.say("and give them back", took.await?);
    Ok(())
}

/// With the last NodePool and the class go its launch templates and its instance profile.
async fn a_class_takes_what_was_made_for_it_along(rig: &Outside) -> Result<()> {
    for path in ["karpenter.sh/v1/nodepools/walk", "karpenter.k8s.aws/v1/ec2nodeclasses/walk"] {
        rig.delete(&format!("/apis/{path}")).await?;
    }
    let took = rig.until("nothing is left of the class", GONE_MAX, async |rig| {
        let state = rig.control_page("").await?;
        Ok(state["launchTemplates"] == json!([]) && state["instanceProfiles"] == json!({}))
    });
    rig.say("a class takes what was made for it along", took.await?);
    Ok(())
}

/// How long a pod waits while `launch` has no rights: with them it takes a tenth of this.
const DENIED: Duration = Duration::from_secs(20);

/// Without the policy of its role `launch` starts nothing, and with it again it goes on: so the policies of the template are what lets all
/// the other stories happen.
async fn a_right_that_is_taken_away_is_missed(rig: &Outside) -> Result<()> {
    let known = rig.machines().await?;
    let policy = rig.take_policy("LaunchRole", "launch").await?;
    rig.scale("web", 1, &json!({})).await?;
    rig.until("the pod is planned for", BOUND_MAX, async |rig| Ok(rig.claims().await?.len() == 1)).await?;
    let started = rig.until("a machine is started", DENIED, async |rig| Ok(rig.machines().await? != known)).await;
    policy.give_back(rig).await?;
    ensure!(started.is_err(), "launch started a machine without a right to");
    let took = rig.until("the pod is bound", REPEATED_MAX, async |rig| Ok(rig.bound().await?.len() == 1)).await?;
    rig.check_books().await?;
    rig.say("a right that was taken away is given back, and the pod gets its node", took);
    Ok(())
}

const APART: usize = 4;

/// The affinity of pods `apart`, no two of which go onto one node.
fn apart() -> Value {
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}]}})
}

/// The process of `launch` dies once EC2 has started machines: each machine still gets a claim, and no pod gets two.
async fn a_launch_that_is_killed_buys_nothing_twice(rig: &Outside) -> Result<()> {
    let known: BTreeSet<String> = rig.machines().await?;
    rig.scale("apart", APART, &apart()).await?;
    // What comes after the call takes a tenth of a second.
    let at_once = Duration::from_millis(5);
    let started = async |rig: &Outside| Ok(rig.machines().await?.difference(&known).count() > 0);
    rig.until_looking_every(at_once, "EC2 has started a machine", BOUND_MAX, started).await?;
    let killed = processes::kill(rig.ministack_process(), "Launch")?;
    ensure!(killed > 0, "no process of launch runs");
    let took = rig.until("all pods are bound", REPEATED_MAX, async |rig| Ok(rig.bound().await?.len() == APART)).await?;
    rig.until("each machine has its claim", REPEATED_MAX, async |rig| Ok(rig.check_books().await.is_ok())).await?;
    rig.check_books().await?;
    let bought = rig.machines().await?.difference(&known).count();
    ensure!(bought == APART, "{bought} machines were started for {APART} pods");
    rig.say("a launch that is killed buys nothing twice", took);
    rig.scale("apart", 0, &json!({})).await?;
    let took = rig.until("nothing is left", GONE_MAX, Outside::is_bare);
    rig.say("and everything goes again", took.await?);
    Ok(())
}
