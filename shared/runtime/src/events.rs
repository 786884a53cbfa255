//! What wakes a function, decoded into work. The same work that several messages ask for is done once.

use crate::Function;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsMessage};
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

/// A doorbell that is rung in place of work: each cluster has an invocation of its own, so that one whose objects fill the
/// memory or whose API server hangs takes no other with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToRing {
    pub bell: Doorbell,
    /// What asked for it; none when a schedule did.
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
    /// Of the functions that look at clusters as a whole, all of one cluster.
    pub asked: Vec<Asked>,
    pub to_ring: Vec<ToRing>,
    pub poison: Vec<Poison>,
    /// Whether the answer has to name the messages that failed.
    pub is_batch: bool,
}

/// Decodes an event of Lambda: a batch of SQS, a schedule's input, or an EventBridge envelope.
///
/// Errors with a sentence when the event is none of them.
pub fn decode(function: Function, event: &Value, clusters: &[ClusterName]) -> Result<Decoded, String> {
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        return batch(function, records, clusters);
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
        let bells = clusters.iter().filter_map(|cluster| own_bell(function, cluster.clone()));
        return Ok(Decoded { to_ring: bells.map(|bell| ToRing { bell, messages: vec![] }).collect(), ..Decoded::default() });
    }
    Err("the event is neither a batch of SQS, nor a schedule's input such as {\"kind\":\"tick\"}, nor an EventBridge envelope".to_owned())
}

fn batch(function: Function, records: &[Value], clusters: &[ClusterName]) -> Result<Decoded, String> {
    let mut decoded = Decoded { is_batch: true, ..Decoded::default() };
    for record in records {
        let record = SqsMessage::deserialize(record).map_err(|error| format!("a record is no message of SQS: {error}"))?;
        let message = record.message_id.ok_or("a record is no message of SQS: it has no messageId")?;
        let body = record.body.unwrap_or_default();
        if is_of_the_region(function, &body) {
            for cluster in clusters {
                ask(&mut decoded.asked, Work::Cluster(cluster.clone()), message.clone());
            }
            continue;
        }
        match work_of_message(function, &body, clusters) {
            Ok(work) => ask(&mut decoded.asked, work, message),
            Err(reason) => decoded.poison.push(Poison { message, reason }),
        }
    }
    hand_on(function, &mut decoded);
    Ok(decoded)
}

fn ask(asked: &mut Vec<Asked>, work: Work, message: String) {
    match asked.iter_mut().find(|known| known.work == work) {
        Some(known) => known.messages.push(message),
        None => asked.push(Asked { work, messages: vec![message] }),
    }
}

/// Keeps the work for the first cluster of a batch; the others' doorbells are rung again, for invocations of their own.
fn hand_on(function: Function, decoded: &mut Decoded) {
    let first = decoded.asked.first().and_then(|asked| asked.work.cluster()).cloned();
    let (mine, others): (Vec<Asked>, Vec<Asked>) = std::mem::take(&mut decoded.asked)
        .into_iter()
        .partition(|asked| !matches!(asked.work, Work::Cluster(_)) || asked.work.cluster() == first.as_ref());
    decoded.asked = mine;
    for Asked { work, messages } in others {
        let bell = work.cluster().and_then(|cluster| own_bell(function, cluster.clone()));
        decoded.to_ring.extend(bell.map(|bell| ToRing { bell, messages }));
    }
}

/// An envelope about an instance that has started: it names no cluster, so that all of them are looked at.
fn is_of_the_region(function: Function, body: &str) -> bool {
    function == Function::Register && serde_json::from_str::<Value>(body).is_ok_and(|body| body.get("detail-type").is_some())
}

/// The doorbell of a function's own queue that says "look at this cluster": what a tick rings. `cargo xtask ci --only template`
/// reads the arms to know which function may send where.
fn own_bell(function: Function, cluster: ClusterName) -> Option<Doorbell> {
    match function {
        Function::Schedule => Some(Doorbell::Schedule { cluster }),
        Function::Consolidate => Some(Doorbell::Consolidate { cluster }),
        Function::Launch => Some(Doorbell::Launch { cluster, claims: vec![] }),
        Function::Register => Some(Doorbell::Register { cluster }),
        Function::Refresh => Some(Doorbell::Refresh { cluster }),
        Function::Sweep => Some(Doorbell::Sweep { cluster }),
        // They work on what a message names; the sweep rings for what was lost.
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
    let mut response = SqsBatchResponse::default();
    response.set_failures(failed);
    json!(response)
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

    #[track_caller]
    fn check_rung(function: Function, event: &Value, expected: &[(Doorbell, &[&str])]) {
        let decoded = decode(function, event, &clusters()).expect("the event can be decoded");
        let rung: Vec<(Doorbell, Vec<&str>)> =
            decoded.to_ring.iter().map(|rung| (rung.bell.clone(), rung.messages.iter().map(String::as_str).collect())).collect();
        assert_eq!(rung, expected.iter().map(|(bell, messages)| (bell.clone(), messages.to_vec())).collect::<Vec<_>>());
    }

    fn body(bell: &Doorbell) -> String {
        serde_json::to_string(bell).expect("plain data")
    }

    #[test]
    fn the_same_work_is_done_once_for_all_its_messages() {
        let bell = body(&Doorbell::Schedule { cluster: "a".into() });
        check(Function::Schedule, &batch(&[&bell, &bell]), &[(Work::Cluster("a".into()), &["m0", "m1"])]);
    }

    #[test]
    fn an_invocation_never_looks_at_two_clusters() {
        let schedule = |cluster: &str| Doorbell::Schedule { cluster: cluster.into() };
        let event = batch(&[&body(&schedule("b")), &body(&schedule("a")), &body(&schedule("b")), &body(&schedule("a"))]);
        check(Function::Schedule, &event, &[(Work::Cluster("b".into()), &["m0", "m2"])]);
        check_rung(Function::Schedule, &event, &[(schedule("a"), &["m1", "m3"])]);
        // What names claims is small, and stays together.
        let end = |cluster: &str| Doorbell::Terminate { cluster: cluster.into(), claim: "x".into() };
        let event = batch(&[&body(&end("a")), &body(&end("b"))]);
        let work = |cluster: &str| Work::Terminate(ClaimKey { cluster: cluster.into(), name: "x".into() });
        check(Function::Terminate, &event, &[(work("a"), &["m0"]), (work("b"), &["m1"])]);
    }

    #[test]
    fn a_tick_only_rings_once_for_every_cluster() {
        let tick = json!({ "kind": "tick" });
        for function in
            [Function::Schedule, Function::Consolidate, Function::Launch, Function::Register, Function::Refresh, Function::Sweep]
        {
            check(function, &tick, &[]);
            let bells = ["a", "b"].map(|cluster| own_bell(function, cluster.into()).expect("it has a doorbell"));
            check_rung(function, &tick, &bells.map(|bell| (bell, &[][..])));
            let decoded = decode(function, &batch(&[&body(&own_bell(function, "a".into()).expect("it has a doorbell"))]), &clusters());
            let decoded = decoded.expect("its own doorbell can be read");
            assert_eq!((decoded.asked.len(), decoded.poison), (1, vec![]), "{function:?} works on what its tick rings");
        }
        check_rung(Function::Terminate, &tick, &[]);
        check_rung(
            Function::Refresh,
            &json!({ "kind": "catalog" }),
            &["a", "b"].map(|cluster| (Doorbell::Refresh { cluster: cluster.into() }, &[][..])),
        );
    }

    #[test]
    fn a_started_instance_may_belong_to_any_cluster() {
        let running = r#"{"detail-type":"EC2 Instance State-change Notification","detail":{"state":"running"}}"#;
        let event = batch(&[running, running]);
        check(Function::Register, &event, &[(Work::Cluster("a".into()), &["m0", "m1"])]);
        check_rung(Function::Register, &event, &[(Doorbell::Register { cluster: "b".into() }, &["m0", "m1"])]);
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
