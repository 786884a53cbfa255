//! What wakes a function, decoded into work. The same work that several messages ask for is done once.

use crate::Function;
use serde::Deserialize;
use serde_json::{Value, json};
use whittle_claims::{ClaimKey, Doorbell, UninstallRequest};
use whittle_ports::HandleError;
use whittle_units::{ClaimName, ClusterName};

/// One call of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Look at a cluster.
    Cluster(ClusterName),
    /// Launch these claims; all that are due when there are none.
    Launch(ClusterName, Vec<ClaimName>),
    /// End this claim.
    Terminate(ClaimKey),
    /// An EventBridge envelope about an instance.
    Notice(String),
    /// Leave a cluster.
    Uninstall(UninstallRequest),
}

impl Work {
    /// The cluster, where the work names one.
    pub const fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::Cluster(cluster) | Self::Launch(cluster, _) | Self::Terminate(ClaimKey { cluster, .. }) => Some(cluster),
            Self::Uninstall(request) => Some(&request.cluster),
            Self::Notice(_) => None,
        }
    }

    /// The error of a handler that this work is not meant for.
    pub fn refused(&self) -> HandleError {
        HandleError::Unreadable { what: "the message".to_owned(), reason: format!("{self:?} is another function's work") }
    }
}

/// Work with the messages that asked for it; none when a schedule did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub work: Work,
    pub messages: Vec<String>,
}

/// A message that cannot be work: it comes back until it rests in the dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    pub message: String,
    pub reason: String,
}

/// An event, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    pub asked: Vec<Asked>,
    pub poison: Vec<Poison>,
    /// Whether the answer has to name the messages that failed.
    pub is_batch: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    #[serde(default)]
    body: String,
}

/// Decodes an event of Lambda: a batch of SQS, a schedule's input, or an EventBridge envelope.
///
/// Errors with a sentence when the event is none of them.
pub fn decode(function: Function, event: &Value, clusters: &[ClusterName]) -> Result<Decoded, String> {
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        let mut decoded = Decoded { is_batch: true, ..Decoded::default() };
        for record in records {
            let message = Message::deserialize(record).map_err(|error| format!("a record is no message of SQS: {error}"))?;
            if is_of_the_region(function, &message.body) {
                for work in clusters.iter().filter_map(|cluster| tick(function, cluster)) {
                    ask(&mut decoded.asked, work, Some(message.message_id.clone()));
                }
                continue;
            }
            match work_of_message(function, &message.body, clusters) {
                Ok(work) => ask(&mut decoded.asked, work, Some(message.message_id)),
                Err(reason) => decoded.poison.push(Poison { message: message.message_id, reason }),
            }
        }
        return Ok(decoded);
    }
    if event.get("detail-type").is_some() && function == Function::Interrupt {
        let work = Work::Notice(event.to_string());
        return Ok(Decoded { asked: vec![Asked { work, messages: vec![] }], ..Decoded::default() });
    }
    if let Some(request) = event.get("uninstall").filter(|_| function == Function::Sweep) {
        let request = UninstallRequest::deserialize(request).map_err(|error| format!("the uninstallation cannot be read: {error}"))?;
        if !clusters.contains(&request.cluster) {
            return Err(format!("cluster {} is not served here", request.cluster));
        }
        return Ok(Decoded { asked: vec![Asked { work: Work::Uninstall(request), messages: vec![] }], ..Decoded::default() });
    }
    // The kind of a tick is for people who read the schedule: handlers look at the state.
    if event.get("kind").is_some_and(Value::is_string) {
        let asked = clusters.iter().filter_map(|cluster| tick(function, cluster)).map(|work| Asked { work, messages: vec![] }).collect();
        return Ok(Decoded { asked, ..Decoded::default() });
    }
    Err("the event is neither a batch of SQS, nor a schedule's input such as {\"kind\":\"tick\"}, nor an EventBridge envelope".to_owned())
}

fn ask(asked: &mut Vec<Asked>, work: Work, message: Option<String>) {
    match asked.iter_mut().find(|known| known.work == work) {
        Some(known) => known.messages.extend(message),
        None => asked.push(Asked { work, messages: message.into_iter().collect() }),
    }
}

/// An envelope about an instance that has started: it names no cluster, so that all of them are looked at.
fn is_of_the_region(function: Function, body: &str) -> bool {
    function == Function::Register && serde_json::from_str::<Value>(body).is_ok_and(|body| body.get("detail-type").is_some())
}

fn tick(function: Function, cluster: &ClusterName) -> Option<Work> {
    match function {
        Function::Schedule | Function::Consolidate | Function::Register | Function::Refresh | Function::Sweep => {
            Some(Work::Cluster(cluster.clone()))
        }
        Function::Launch => Some(Work::Launch(cluster.clone(), vec![])),
        // Both work on what a message names; the sweep rings for what was lost.
        Function::Terminate | Function::Interrupt | Function::Relay => None,
    }
}

fn work_of_message(function: Function, body: &str, clusters: &[ClusterName]) -> Result<Work, String> {
    if function == Function::Interrupt {
        return Ok(Work::Notice(body.to_owned()));
    }
    let bell: Doorbell = serde_json::from_str(body).map_err(|error| format!("the body is no doorbell: {error}"))?;
    if !clusters.contains(bell.cluster()) {
        return Err(format!("cluster {} is not served here: add it to the stack's parameter Clusters", bell.cluster()));
    }
    match (function, bell) {
        (Function::Schedule, Doorbell::Schedule { cluster })
        | (Function::Consolidate, Doorbell::Consolidate { cluster })
        | (Function::Register, Doorbell::Register { cluster })
        | (Function::Refresh, Doorbell::Refresh { cluster })
        | (Function::Sweep, Doorbell::Sweep { cluster }) => Ok(Work::Cluster(cluster)),
        (Function::Launch, Doorbell::Launch { cluster, claims }) => Ok(Work::Launch(cluster, claims)),
        (Function::Terminate, Doorbell::Terminate { cluster, claim }) => Ok(Work::Terminate(ClaimKey { cluster, name: claim })),
        (_, bell) => Err(format!("{} has no use for {bell:?}", function.name())),
    }
}

/// The answer to a batch: SQS deletes all other messages.
pub fn batch_answer(failed: &[String]) -> Value {
    let failures: Vec<Value> = failed.iter().map(|message| json!({ "itemIdentifier": message })).collect();
    json!({ "batchItemFailures": failures })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters() -> Vec<ClusterName> {
        vec!["a".into(), "b".into()]
    }

    fn batch(bodies: &[&str]) -> Value {
        let record = |(number, body): (usize, &&str)| json!({ "messageId": format!("m{number}"), "body": body, "eventSource": "aws:sqs" });
        json!({ "Records": bodies.iter().enumerate().map(record).collect::<Vec<_>>() })
    }

    #[track_caller]
    fn check(function: Function, event: &Value, expected: &[(Work, &[&str])]) {
        let decoded = decode(function, event, &clusters()).expect("the event can be decoded");
        let expected: Vec<Asked> = expected
            .iter()
            .map(|(work, messages)| Asked { work: work.clone(), messages: messages.iter().map(|&message| message.to_owned()).collect() })
            .collect();
        assert_eq!((decoded.asked, decoded.poison), (expected, vec![]));
    }

    #[test]
    fn the_same_work_is_done_once_for_all_its_messages() {
        let bell = |cluster: &str| serde_json::to_string(&Doorbell::Schedule { cluster: cluster.into() }).expect("plain data");
        let event = batch(&[&bell("a"), &bell("b"), &bell("a")]);
        check(Function::Schedule, &event, &[(Work::Cluster("a".into()), &["m0", "m2"]), (Work::Cluster("b".into()), &["m1"])]);
    }

    #[test]
    fn a_tick_is_for_every_cluster() {
        let tick = json!({ "kind": "tick" });
        check(Function::Sweep, &tick, &[(Work::Cluster("a".into()), &[]), (Work::Cluster("b".into()), &[])]);
        check(Function::Launch, &tick, &[(Work::Launch("a".into(), vec![]), &[]), (Work::Launch("b".into(), vec![]), &[])]);
        check(Function::Terminate, &tick, &[]);
        check(Function::Refresh, &json!({ "kind": "catalog" }), &[(Work::Cluster("a".into()), &[]), (Work::Cluster("b".into()), &[])]);
    }

    #[test]
    fn a_started_instance_may_belong_to_any_cluster() {
        let running = r#"{"detail-type":"EC2 Instance State-change Notification","detail":{"state":"running"}}"#;
        check(Function::Register, &batch(&[running]), &[(Work::Cluster("a".into()), &["m0"]), (Work::Cluster("b".into()), &["m0"])]);
    }

    #[test]
    fn a_notice_stays_as_it_came() {
        let notice = r#"{"detail-type":"EC2 Spot Instance Interruption Warning"}"#;
        check(Function::Interrupt, &batch(&[notice]), &[(Work::Notice(notice.to_owned()), &["m0"])]);
        check(Function::Interrupt, &serde_json::from_str(notice).expect("JSON"), &[(Work::Notice(notice.to_owned()), &[])]);
    }

    #[test]
    fn one_poisoned_message_spoils_no_other() {
        let launch = r#"{"bell":"launch","cluster":"a","claims":["x"]}"#;
        let event = batch(&["{", launch, r#"{"bell":"launch","cluster":"elsewhere","claims":[]}"#, r#"{"bell":"sweep","cluster":"a"}"#]);
        let decoded = decode(Function::Launch, &event, &clusters()).expect("the batch can be decoded");
        assert_eq!(decoded.asked, [Asked { work: Work::Launch("a".into(), vec!["x".into()]), messages: vec!["m1".to_owned()] }]);
        let poisoned: Vec<(&str, bool)> = decoded.poison.iter().map(|poison| (poison.message.as_str(), poison.reason.is_empty())).collect();
        assert_eq!(poisoned, [("m0", false), ("m2", false), ("m3", false)]);
        assert!(decoded.poison[1].reason.contains("parameter Clusters"), "{:?}", decoded.poison[1]);
    }

    #[test]
    fn an_uninstallation_is_for_sweep_alone_and_for_a_cluster_that_is_served() {
        let asked = json!({ "uninstall": { "cluster": "a", "nodes": "keep", "dryRun": true } });
        let request = UninstallRequest { cluster: "a".into(), nodes: whittle_claims::LeftNodes::Keep, dry_run: true };
        check(Function::Sweep, &asked, &[(Work::Uninstall(request), &[])]);
        assert!(decode(Function::Schedule, &asked, &clusters()).is_err());
        assert!(decode(Function::Sweep, &json!({ "uninstall": { "cluster": "elsewhere" } }), &clusters()).is_err());
        assert!(
            decode(Function::Sweep, &json!({ "uninstall": { "cluster": "a", "dryrun": true } }), &clusters()).is_err(),
            "a typo is no yes"
        );
    }

    #[test]
    fn an_event_of_another_kind_is_refused() {
        assert!(decode(Function::Schedule, &json!({ "hello": 1 }), &clusters()).is_err());
        assert!(decode(Function::Schedule, &json!({ "Records": [{}] }), &clusters()).is_err());
    }
}
