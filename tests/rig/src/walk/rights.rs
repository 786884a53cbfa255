//! What the functions were allowed in a whole walk: nothing was refused, and every statement of their roles is there for a reason.

use super::outside::Outside;
use crate::access;
use crate::deploy::STACK;
use crate::roles;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Statements that no call of a walk needs, by role and `Sid`, and what they are for; a role of `*` is any.
const NOT_WALKED: &[(&str, &str, &str)] = &[
    ("*", "Consume", "Lambda receives messages in the role's name, the emulator in nobody's"),
    ("*", "Logs", "Lambda writes logs in the role's name, the emulator in nobody's"),
    ("InterruptRole", "GiveUp", "Lambda sends events that were given up in the role's name, the emulator in nobody's"),
    ("LaunchRole", "Look", "what a call started that was cut off: the launch that a walk kills may have stored it already"),
    ("RefreshRole", "OwnImages", "there with ImageParameters; the emulator takes the empty list for one"),
    ("ScheduleRole", "ForgetState", "pages of what a plan remembers of pods that it left out, once there are fewer: a walk fills none"),
    (
        "SweepRole",
        "ForgetTemplates",
        "launch templates that nothing has used for ten minutes, which is longer than a class of a walk is there",
    ),
    ("SweepRole", "MarkMachine", "adoption, and hand-over to Karpenter: `cargo xtask e2e first-pod --migrate`"),
    ("TickRole", "Tick", "EventBridge Scheduler invokes functions in the role's name, the emulator in nobody's"),
    ("TickRole", "Wake", "the same, and once a day"),
];

/// No call lacked a right in the account or the cluster so far.
pub(crate) async fn nothing_was_refused(rig: &Outside) -> Result<()> {
    let refused = refused(rig).await?;
    ensure!(refused.is_empty(), "rights are lacking:\n{}", refused.into_iter().collect::<Vec<_>>().join("\n"));
    Ok(())
}

/// How long the last run of a function may go on after what it was to do has been seen: `refresh` deletes what was made for a class, and
/// then records that.
const LAST_RUN_MAX: Duration = Duration::from_secs(30);

/// Every statement that allows something was used, or is in [`NOT_WALKED`].
pub(crate) async fn each_statement_is_needed(rig: &Outside) -> Result<()> {
    let is_known = |statement: &Allowing| NOT_WALKED.iter().any(|known| is_about(known, statement));
    let all = statements(rig).await?;
    let all_used = async |rig: &Outside| {
        let used = used(rig).await?;
        Ok(all.iter().all(|statement| used.contains(&(statement.name.clone(), statement.sid.clone())) || is_known(statement)))
    };
    // What is idle even so is told below.
    let _ = rig.until("every statement is used", LAST_RUN_MAX, all_used).await;
    let used = used(rig).await?;
    let idle: Vec<_> = all.iter().filter(|statement| !used.contains(&(statement.name.clone(), statement.sid.clone()))).collect();
    println!("{} statements of the functions' roles gave the rights that they used, {} did not:", all.len() - idle.len(), idle.len());
    let mut unknown = Vec::new();
    for statement in idle {
        let Allowing { role, sid, .. } = statement;
        let reason = NOT_WALKED.iter().find(|known| is_about(known, statement)).map(|(_, _, reason)| *reason);
        println!("  {role} {sid}: {}", reason.unwrap_or("no reason is known"));
        if reason.is_none() {
            unknown.push(format!("{role} {sid}"));
        }
    }
    ensure!(unknown.is_empty(), "remove these statements, or say what they are for: {}", unknown.join(", "));
    Ok(())
}

/// Whether what is known of statements that no walk uses is about this one.
fn is_about((role, sid, _): &(&str, &str, &str), statement: &Allowing) -> bool {
    (*role == "*" || *role == statement.role) && *sid == statement.sid
}

/// Calls that lacked a right.
async fn refused(rig: &Outside) -> Result<BTreeSet<String>> {
    let decisions = decisions(rig).await?;
    let denied = decisions["refused"].as_array().into_iter().flatten();
    let emulated = denied.map(|call| format!("{} may not {} {}", call[0], call[1], call[2]));
    let journal = rig.control_page("/journal").await?;
    let lacking = journal.as_array().into_iter().flatten().filter(|call| !call["lacks"].is_null());
    let simulated = lacking.map(|call| format!("{} lacks {}", call["principal"], call["lacks"]));
    let cluster = std::fs::read_to_string(rig.folder().join(access::REFUSED)).unwrap_or_default();
    Ok(emulated.chain(simulated).chain(cluster.lines().map(str::to_owned)).collect())
}

/// Role and `Sid` of the statements that allowed calls.
async fn used(rig: &Outside) -> Result<BTreeSet<(String, String)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let decisions = decisions(rig).await?;
    let allowed = decisions["allowed"].as_array().into_iter().flatten();
    let emulated = allowed.filter_map(|call| Some((roles::role_of(call[0].as_str()?)?, text(&call[1]))));
    let state = rig.control_page("").await?;
    let simulated = state["usedStatements"].as_object().into_iter().flatten();
    let simulated = simulated.flat_map(|(role, sids)| sids.as_array().into_iter().flatten().map(|sid| (role.clone(), text(sid))));
    Ok(emulated.chain(simulated).collect())
}

async fn decisions(rig: &Outside) -> Result<Value> {
    let answer = rig.emulator().look("/_rig/decisions", &[]).await?;
    serde_json::from_str(&answer).context("the emulator's decisions")
}

/// A statement that allows something.
struct Allowing {
    /// In the template.
    role: String,
    /// Of the role that was made of it.
    name: String,
    sid: String,
}

/// The statements of the functions' roles that allow something.
async fn statements(rig: &Outside) -> Result<Vec<Allowing>> {
    let emulator = rig.emulator();
    let stack = emulator.resources(STACK).await?;
    let mut all = Vec::new();
    for (role, name) in stack.iter().filter(|(role, _)| role.ends_with("Role")) {
        for policy in roles::policies(&emulator, name).await?.values() {
            let statements = policy["Statement"].as_array().into_iter().flatten().filter(|statement| statement["Effect"] == "Allow");
            let sids = statements.map(|statement| statement["Sid"].as_str().unwrap_or_default().to_owned());
            all.extend(sids.map(|sid| Allowing { role: role.clone(), name: name.clone(), sid }));
        }
    }
    Ok(all)
}
