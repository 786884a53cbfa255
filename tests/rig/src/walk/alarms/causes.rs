//! What makes each alarm go off, and is mended again.

use super::observed::Observed;
use super::{LOOK_EVERY, SILENT, Stage};
use crate::walk::outside::Outside;
use crate::walk::{BOUND_MAX, GONE_MAX, REPEATED_MAX, apart, processes};
use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The queues, whose resources and alarms begin with these words.
const QUEUES: [&str; 7] = ["Plan", "Consolidate", "Launch", "Terminate", "Nodes", "Refresh", "Sweep"];
/// Those of them that keep messages of a group in order.
const ORDERED: [&str; 2] = ["Plan", "Consolidate"];
const FUNCTIONS: [&str; 9] = ["Relay", "Schedule", "Launch", "Register", "Consolidate", "Interrupt", "Terminate", "Refresh", "Sweep"];
/// A variable without which no function starts.
const VARIABLE: &str = "WHITTLE_TABLE";
/// How long a process of `launch` is held, which may take thirty seconds for an invocation.
const HELD: Duration = Duration::from_millis(27_600);
/// More than a tick: sweep would have been invoked.
const QUIET: Duration = Duration::from_secs(66);
/// Lambda drops a request that has come through more functions.
const HOPS_MAX: u32 = 16;
/// The name of a policy that denies something.
const DENIAL: &str = "denied";
const LAMBDA: &str = "/2015-03-31";

/// All causes, one after the other; a pod `web` runs.
pub(super) async fn all(stage: &Stage<'_>) -> Result<()> {
    // That of `sweep` is off where a deployment has one cluster; its queue is to be read here, as with several.
    switch_mappings(stage, true).await?;
    messages_are_given_up(stage).await?;
    queues_are_not_read(stage).await?;
    functions_do_not_start(stage).await?;
    runs_fail(stage).await?;
    launches_are_refused(stage).await?;
    terminations_are_refused(stage).await?;
    concurrency_is_used_up(stage).await?;
    a_function_is_slow(stage).await?;
    a_request_goes_round(stage).await?;
    ticks_stop(stage).await
}

fn alarms_of(words: &[&str], what: &str) -> Vec<String> {
    words.iter().map(|word| format!("{word}{what}Alarm")).collect()
}

fn one(alarm: &str) -> [String; 1] {
    [alarm.to_owned()]
}

/// Nobody can read a message; a notice of EC2 is always read, and cannot be handled without a right to the table. To see the last delivery
/// within seconds, messages come again after one. The notice is tried after 5 and 15 s in each invocation, which the emulator repeats after
/// one and two seconds.
async fn messages_are_given_up(stage: &Stage<'_>) -> Result<()> {
    let mut usual = Vec::new();
    for queue in QUEUES {
        usual.push((queue, visibility(stage, queue).await?));
        set_visibility(stage, queue, "1").await?;
    }
    let policy = stage.rig.take_policy("InterruptRole", "interrupt").await?;
    for queue in QUEUES {
        send(stage, queue, "no doorbell").await?;
    }
    stage.emulator.invoke_with_event(stage.physical("Interrupt")?, &notice()).await?;
    let cause = "messages that cannot be read, and a notice that cannot be handled, come for the last time";
    let kept = [&QUEUES[..], &["Interruption"]].concat();
    stage.until_raised(cause, &alarms_of(&kept, "DeadLetters"), async || Ok(())).await?;
    policy.give_back(stage.rig).await?;
    purge(stage, "InterruptionDeadLetters").await?;
    for (queue, seconds) in usual {
        set_visibility(stage, queue, &seconds).await?;
        purge(stage, &format!("{queue}DeadLetters")).await?;
    }
    Ok(())
}

/// The mappings of the functions to their queues are switched off. A message is then said to have been sent as long ago as its alarm asks:
/// that of `refresh` goes off after three quarters of an hour.
async fn queues_are_not_read(stage: &Stage<'_>) -> Result<()> {
    switch_mappings(stage, false).await?;
    for queue in QUEUES {
        send(stage, queue, "no doorbell").await?;
        let url = stage.physical(&format!("{queue}Queue"))?;
        let name = url.rsplit('/').next().unwrap_or_default();
        let seconds = stage.alarm(&format!("{queue}AgeAlarm"))?.threshold() + 1.0;
        stage.emulator.look(&format!("/_rig/age?queue={name}&seconds={seconds}"), &[]).await?;
    }
    stage.until_raised("no queue is read", &alarms_of(&QUEUES, "Age"), async || Ok(())).await?;
    purge_all(stage).await?;
    switch_mappings(stage, true).await
}

/// A variable of every function is missing: none starts.
async fn functions_do_not_start(stage: &Stage<'_>) -> Result<()> {
    let mut usual = Vec::new();
    for function in FUNCTIONS {
        let path = format!("{LAMBDA}/functions/{}/configuration", stage.physical(function)?);
        let configuration = stage.emulator.rest("lambda", Method::GET, &path, &Value::Null).await?;
        let variables = configuration["Environment"]["Variables"].clone();
        let mut fewer = variables.clone();
        let removed = fewer.as_object_mut().and_then(|fewer| fewer.remove(VARIABLE));
        ensure!(removed.is_some(), "{function} has no variable {VARIABLE}");
        set_variables(stage, &path, &fewer).await?;
        usual.push((path, variables));
    }
    let without_queue = [stage.physical("Relay")?, stage.physical("Interrupt")?];
    let ring = async || {
        for queue in QUEUES {
            send(stage, queue, "no doorbell").await?;
        }
        for function in without_queue {
            // It fails, as the others do.
            drop(stage.emulator.invoke(function, &json!({})).await);
        }
        anyhow::Ok(())
    };
    stage.until_raised(&format!("the variable {VARIABLE} is missing"), &alarms_of(&FUNCTIONS, "Errors"), ring).await?;
    for (path, variables) in usual {
        set_variables(stage, &path, &variables).await?;
    }
    purge_all(stage).await?;
    for queue in QUEUES {
        purge(stage, &format!("{queue}DeadLetters")).await?;
    }
    Ok(())
}

/// `sweep` and `refresh` have no rights in the account: their runs begin, and end with errors.
async fn runs_fail(stage: &Stage<'_>) -> Result<()> {
    let policies = [stage.rig.take_policy("SweepRole", "sweep").await?, stage.rig.take_policy("RefreshRole", "refresh").await?];
    let ring = async || {
        for (queue, bell) in [("Sweep", "sweep"), ("Refresh", "refresh")] {
            send(stage, queue, &json!({"bell": bell, "cluster": stage.rig.cluster()}).to_string()).await?;
        }
        anyhow::Ok(())
    };
    let expected = ["FailedRunsAlarm", "RefreshFailsAlarm"].map(str::to_owned);
    stage.until_raised("the policies of sweep and refresh are taken away", &expected, ring).await?;
    for policy in policies {
        policy.give_back(stage.rig).await?;
    }
    for queue in ["Sweep", "Refresh"] {
        purge(stage, &format!("{queue}Queue")).await?;
    }
    Ok(())
}

/// A policy denies CreateFleet; then pods get their nodes.
async fn launches_are_refused(stage: &Stage<'_>) -> Result<()> {
    deny(stage, "LaunchRole", "ec2:CreateFleet").await?;
    stage.rig.scale("apart", 2, &apart()).await?;
    stage.until_raised("a policy denies CreateFleet", &one("ProblemsAlarm"), async || Ok(())).await?;
    allow(stage, "LaunchRole").await?;
    let took = stage.rig.until("all pods are bound", REPEATED_MAX, async |rig| Ok(rig.bound().await?.len() == 3)).await?;
    stage.rig.say("allowed again, all pods are bound", took);
    Ok(())
}

/// A policy denies TerminateInstances for a NodeClaim that a user deletes; then everything goes.
async fn terminations_are_refused(stage: &Stage<'_>) -> Result<()> {
    stage.rig.until("each machine has its claim", BOUND_MAX, async |rig| Ok(rig.check_books().await.is_ok())).await?;
    deny(stage, "TerminateRole", "ec2:TerminateInstances").await?;
    let claim = stage.rig.claims().await?.into_keys().next().context("there is no NodeClaim")?;
    stage.rig.delete(&format!("/apis/karpenter.sh/v1/nodeclaims/{claim}")).await?;
    stage.until_raised("a policy denies TerminateInstances", &one("WarningsAlarm"), async || Ok(())).await?;
    allow(stage, "TerminateRole").await?;
    for name in ["apart", "web"] {
        stage.rig.scale(name, 0, &json!({})).await?;
    }
    let took = stage.rig.until("nothing is left", GONE_MAX, Outside::is_bare).await?;
    stage.rig.say("allowed again, everything goes", took);
    Ok(())
}

/// The relay may not run at all, as when the account's concurrency is used up.
async fn concurrency_is_used_up(stage: &Stage<'_>) -> Result<()> {
    let relay = stage.physical("Relay")?;
    let path = format!("{LAMBDA}/functions/{relay}/concurrency");
    let usual = stage.emulator.rest("lambda", Method::GET, &path, &Value::Null).await?;
    stage.emulator.rest("lambda", Method::PUT, &path, &json!({"ReservedConcurrentExecutions": 0})).await?;
    let call = async || {
        ensure!(stage.emulator.invoke(relay, &json!({})).await.is_err(), "the relay is invoked without concurrency");
        anyhow::Ok(())
    };
    stage.until_raised("no concurrency is left for the relay", &one("ThrottlesAlarm"), call).await?;
    let (method, body) =
        if usual["ReservedConcurrentExecutions"].is_number() { (Method::PUT, usual) } else { (Method::DELETE, Value::Null) };
    stage.emulator.rest("lambda", method, &path, &body).await.map(drop)
}

/// The process of `launch` is held in the midst of an invocation.
async fn a_function_is_slow(stage: &Stage<'_>) -> Result<()> {
    let (function, group) = (stage.physical("Launch")?, stage.rig.ministack_process());
    let nothing = json!({"Records": []});
    let slow = async || {
        // So that a process of it is there.
        stage.emulator.invoke(function, &nothing).await?;
        ensure!(processes::signal(group, "Launch", "STOP")? > 0, "no process of launch runs");
        let resume = async {
            let mut interval = tokio::time::interval(HELD);
            interval.tick().await;
            interval.tick().await;
            processes::signal(group, "Launch", "CONT")
        };
        let (invoked, resumed) = tokio::join!(stage.emulator.invoke(function, &nothing), resume);
        resumed?;
        invoked.map(drop)
    };
    stage.until_raised("launch takes nearly as long as it may", &one("DurationAlarm"), slow).await
}

/// A request has come through many functions, and the function does not allow that.
async fn a_request_goes_round(stage: &Stage<'_>) -> Result<()> {
    let function = stage.physical("Launch")?;
    let path = format!("{LAMBDA}/functions/{function}/recursion-config");
    stage.emulator.rest("lambda", Method::PUT, &path, &json!({"RecursiveLoop": "Terminate"})).await?;
    let call = async || {
        let dropped = stage.emulator.invoke_after(HOPS_MAX, function, &json!({"Records": []})).await.is_err();
        ensure!(dropped, "a request that went round is not dropped");
        anyhow::Ok(())
    };
    stage.until_raised("a request went round, and RecursiveLoop is not Allow", &one("RecursionAlarm"), call).await?;
    stage.emulator.rest("lambda", Method::PUT, &path, &json!({"RecursiveLoop": "Allow"})).await?;
    stage.emulator.invoke_after(HOPS_MAX, function, &json!({"Records": []})).await.context("with Allow it is not dropped")
}

/// The schedule of `sweep` is switched off: for more than a minute nothing invokes it.
async fn ticks_stop(stage: &Stage<'_>) -> Result<()> {
    let path = format!("/schedules/{}", stage.physical("SweepTick")?);
    let mut schedule = stage.emulator.rest("scheduler", Method::GET, &path, &Value::Null).await?;
    schedule["State"] = json!("DISABLED");
    stage.emulator.rest("scheduler", Method::PUT, &path, &schedule).await?;
    let (begun, sweep) = (Instant::now(), stage.physical("Sweep")?);
    // What was rung for before is still swept.
    let mut invoked = usize::MAX;
    for _ in 0..3 {
        let mut observed = Observed::from_now_on(&stage.emulator).await?;
        let since = Instant::now();
        let mut interval = tokio::time::interval(LOOK_EVERY);
        while since.elapsed() < QUIET {
            interval.tick().await;
            observed.look(&stage.emulator).await?;
        }
        invoked = observed.invocations(sweep);
        let on = stage.on(&observed.points);
        if invoked == 0 && on.contains_key(SILENT) {
            stage.note("the schedule of sweep is switched off", &one(SILENT), &on, begun.elapsed());
            break;
        }
    }
    ensure!(invoked == 0, "sweep is invoked {invoked} times within {} s without its schedule", QUIET.as_secs());
    schedule["State"] = json!("ENABLED");
    stage.emulator.rest("scheduler", Method::PUT, &path, &schedule).await.map(drop)
}

/// Sends a message to a queue, in a group of its own where messages have groups: one that fails holds back no other.
async fn send(stage: &Stage<'_>, queue: &str, body: &str) -> Result<()> {
    let mut message = json!({"QueueUrl": stage.physical(&format!("{queue}Queue"))?, "MessageBody": body});
    if ORDERED.contains(&queue) {
        stage.sent.set(stage.sent.get() + 1);
        let unique = format!("alarms-{}", stage.sent.get());
        message["MessageGroupId"] = json!(unique);
        message["MessageDeduplicationId"] = json!(unique);
    }
    stage.emulator.json("sqs", "AmazonSQS.SendMessage", &message).await.map(drop)
}

/// A notice of EC2 for a machine that nobody knows.
fn notice() -> Value {
    let detail = json!({"instance-id": "i-0a1a2a3a4a5a6a7a8", "instance-action": "terminate"});
    json!({"version": "0", "id": "alarms", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "2026-01-01T00:00:00Z", "region": "us-west-2", "resources": [], "detail": detail})
}

async fn visibility(stage: &Stage<'_>, queue: &str) -> Result<String> {
    let asked = json!({"QueueUrl": stage.physical(&format!("{queue}Queue"))?, "AttributeNames": ["VisibilityTimeout"]});
    let answer = stage.emulator.json("sqs", "AmazonSQS.GetQueueAttributes", &asked).await?;
    let seconds = answer["Attributes"]["VisibilityTimeout"].as_str();
    seconds.map(str::to_owned).with_context(|| format!("the queue {queue} has no VisibilityTimeout"))
}

async fn set_visibility(stage: &Stage<'_>, queue: &str, seconds: &str) -> Result<()> {
    let change = json!({"QueueUrl": stage.physical(&format!("{queue}Queue"))?, "Attributes": {"VisibilityTimeout": seconds}});
    stage.emulator.json("sqs", "AmazonSQS.SetQueueAttributes", &change).await.map(drop)
}

/// Empties all queues. What is lost is rung for by the next tick.
async fn purge_all(stage: &Stage<'_>) -> Result<()> {
    for queue in QUEUES {
        purge(stage, &format!("{queue}Queue")).await?;
    }
    Ok(())
}

async fn purge(stage: &Stage<'_>, resource: &str) -> Result<()> {
    let queue = json!({"QueueUrl": stage.physical(resource)?});
    stage.emulator.json("sqs", "AmazonSQS.PurgeQueue", &queue).await.map(drop)
}

/// Switches all mappings of functions to queues on or off.
async fn switch_mappings(stage: &Stage<'_>, is_on: bool) -> Result<()> {
    let path = format!("{LAMBDA}/event-source-mappings");
    let listed = stage.emulator.rest("lambda", Method::GET, &path, &Value::Null).await?;
    let ids = listed["EventSourceMappings"].as_array().into_iter().flatten().filter_map(|mapping| mapping["UUID"].as_str());
    let ids: Vec<&str> = ids.collect();
    ensure!(ids.len() == QUEUES.len(), "{} mappings for {} queues", ids.len(), QUEUES.len());
    for id in ids {
        stage.emulator.rest("lambda", Method::PUT, &format!("{path}/{id}"), &json!({"Enabled": is_on})).await?;
    }
    Ok(())
}

async fn set_variables(stage: &Stage<'_>, path: &str, variables: &Value) -> Result<()> {
    let change = json!({"Environment": {"Variables": variables}});
    stage.emulator.rest("lambda", Method::PUT, path, &change).await.map(drop)
}

/// Adds a policy to a role that denies it an action.
async fn deny(stage: &Stage<'_>, role: &str, action: &str) -> Result<()> {
    let statement = json!({"Effect": "Deny", "Action": action, "Resource": "*"});
    let document = json!({"Version": "2012-10-17", "Statement": [statement]}).to_string();
    let name = stage.physical(role)?;
    let put = [
        ("Action", "PutRolePolicy"),
        ("Version", "2010-05-08"),
        ("RoleName", name),
        ("PolicyName", DENIAL),
        ("PolicyDocument", document.as_str()),
    ];
    stage.emulator.query("iam", &put).await.map(drop)
}

/// Takes that policy away.
async fn allow(stage: &Stage<'_>, role: &str) -> Result<()> {
    let taken = [("Action", "DeleteRolePolicy"), ("Version", "2010-05-08"), ("RoleName", stage.physical(role)?), ("PolicyName", DENIAL)];
    stage.emulator.query("iam", &taken).await.map(drop)
}
