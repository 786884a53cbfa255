//! Decodes the events that invoke a function into work. Messages with the same work share one call of the handler.

use crate::Function;
use crate::in_flight::InFlight;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsMessage};
use serde::Deserialize;
use serde_json::{Value, json};
use whittle_claims::{ClaimKey, Doorbell, UninstallRequest};
use whittle_ports::HandleError;
use whittle_units::{ClaimName, ClusterName, InstanceId};

/// One call of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Run the function for a cluster.
    Cluster(ClusterName),
    /// The same, where nothing is known to have happened.
    Tick(ClusterName),
    /// Drain what users have deleted in a cluster.
    Deletions(ClusterName),
    /// Launch these claims; all that are due when the list is empty.
    Launch(ClusterName, Vec<ClaimName>),
    /// Terminate this claim.
    Terminate(ClaimKey),
    /// An EventBridge envelope about an instance.
    Notice(String),
    /// Uninstall Whittle from a cluster.
    Uninstall(UninstallRequest),
}

impl Work {
    /// The cluster, if the work names one.
    pub const fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::Cluster(cluster)
            | Self::Tick(cluster)
            | Self::Deletions(cluster)
            | Self::Launch(cluster, _)
            | Self::Terminate(ClaimKey { cluster, .. }) => Some(cluster),
            Self::Uninstall(request) => Some(&request.cluster),
            Self::Notice(_) => None,
        }
    }

    /// The error of a handler that does not do this kind of work.
    pub fn refused(&self) -> HandleError {
        HandleError::Unreadable { what: "the message".to_owned(), reason: format!("{self:?} is another function's work") }
    }
}

/// Work with the ids of the messages that requested it; empty when a schedule did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkItem {
    pub work: Work,
    pub message_ids: Vec<String>,
}

/// A doorbell to send instead of doing the work: each cluster gets its own invocation, so that a cluster that exhausts the memory
/// or whose API server hangs affects no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorbellToSend {
    pub doorbell: Doorbell,
    /// The messages that requested it; empty when a schedule did.
    pub message_ids: Vec<String>,
}

/// A message that cannot be decoded: it is redelivered until SQS moves it to the dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoisonMessage {
    pub message_id: String,
    pub reason: String,
}

/// A doorbell for a cluster that the deployment does not serve (any more). It is dropped: nothing may be done for that cluster, and should
/// it be served again, ticks find what there is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedMessage {
    pub message_id: String,
    pub cluster: ClusterName,
    /// Whether it comes once more instead: while a deployment adds the cluster, one function may know it before another.
    pub comes_again: bool,
}

/// A message that says that an instance has started. It names no cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedMessage {
    pub instance: InstanceId,
    pub message_id: String,
}

/// An event, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Work on whole clusters is of one cluster only.
    pub work: Vec<WorkItem>,
    pub doorbells: Vec<DoorbellToSend>,
    /// Clusters for which a tick rings other functions as well, where these may have work.
    pub ticked: Vec<ClusterName>,
    /// Work for the clusters of these instances, which are still to be looked up.
    pub started: Vec<StartedMessage>,
    pub poison: Vec<PoisonMessage>,
    pub unserved: Vec<UnservedMessage>,
    /// The messages, while nobody else may receive them.
    pub in_flight: InFlight,
    /// Whether the response has to name the messages that failed.
    pub is_batch: bool,
}

impl Decoded {
    /// Adds a run for a cluster.
    pub(crate) fn add_cluster(&mut self, cluster: &ClusterName, message_ids: Vec<String>) {
        for message_id in message_ids {
            add_work(&mut self.work, Work::Cluster(cluster.clone()), message_id);
        }
    }
}

/// Decodes an event of Lambda: a batch of SQS, a schedule's input, or an EventBridge envelope.
///
/// The error is a sentence for the log.
pub fn decode(function: Function, event: &Value, clusters: &[ClusterName]) -> Result<Decoded, String> {
    if let Some(records) = event.get("Records").and_then(Value::as_array) {
        return batch(function, records, clusters);
    }
    if let Some(notice) = notice_in(event).filter(|_| function == Function::Interrupt) {
        let work = Work::Notice(notice.to_string());
        return Ok(Decoded { work: vec![WorkItem { work, message_ids: vec![] }], ..Decoded::default() });
    }
    if let Some(request) = event.get("uninstall").filter(|_| function == Function::Sweep) {
        let request = UninstallRequest::deserialize(request).map_err(|error| format!("the uninstallation cannot be read: {error}"))?;
        if !clusters.contains(&request.cluster) {
            return Err(format!("cluster {} is not served here", request.cluster));
        }
        return Ok(Decoded { work: vec![WorkItem { work: Work::Uninstall(request), message_ids: vec![] }], ..Decoded::default() });
    }
    // Once a day, so that Lambda does not put away a function that nobody calls for weeks (ADR 0070).
    if event.get("kind").is_some_and(|kind| kind == "wake") {
        return Ok(Decoded::default());
    }
    // The kind of any other only documents the schedule: handlers decide by the state they read.
    if event.get("kind").is_some_and(Value::is_string) {
        return Ok(tick(function, clusters));
    }
    Err("the event is neither a batch of SQS, nor a schedule's input such as {\"kind\":\"tick\"}, nor an EventBridge envelope".to_owned())
}

/// The EventBridge envelope in an event: the event itself, or the `requestPayload` of the record that Lambda sends to the dead-letter queue
/// for an event it gave up on. Users may so invoke the function with a message of that queue unchanged. If that invocation fails too, its
/// record contains the first one.
fn notice_in(event: &Value) -> Option<&Value> {
    if event.get("detail-type").is_some() { Some(event) } else { notice_in(event.get("requestPayload")?) }
}

/// What a tick does: where the deployment serves one cluster, the work of a function that has a schedule, and otherwise it rings a doorbell
/// for each cluster.
fn tick(function: Function, clusters: &[ClusterName]) -> Decoded {
    let ticked = if function == Function::Sweep { clusters.to_vec() } else { Vec::new() };
    let decoded = Decoded { ticked, ..Decoded::default() };
    match (clusters, function) {
        ([cluster], Function::Schedule | Function::Refresh | Function::Sweep) => {
            let work = if function == Function::Sweep { Work::Tick(cluster.clone()) } else { Work::Cluster(cluster.clone()) };
            Decoded { work: vec![WorkItem { work, message_ids: vec![] }], ..decoded }
        }
        _ => {
            let doorbells = clusters.iter().filter_map(|cluster| own_doorbell(function, cluster.clone()));
            Decoded { doorbells: doorbells.map(|doorbell| DoorbellToSend { doorbell, message_ids: vec![] }).collect(), ..decoded }
        }
    }
}

/// The doorbell of work that a schedule requested, and no message: it repeats the work if that fails. That of `sweep` is not repeated:
/// nobody reads its queue where there is one cluster, and the next tick does the same (ADR 0071).
pub(crate) fn doorbell_of_tick(function: Function, item: &WorkItem) -> Option<Doorbell> {
    match &item.work {
        Work::Cluster(cluster) if item.message_ids.is_empty() => own_doorbell(function, cluster.clone()),
        _ => None,
    }
}

/// Whether a schedule requested the work, and the next tick alone repeats it.
pub(crate) fn is_left_to_next_tick(item: &WorkItem) -> bool {
    matches!(item.work, Work::Tick(_)) && item.message_ids.is_empty()
}

fn batch(function: Function, records: &[Value], clusters: &[ClusterName]) -> Result<Decoded, String> {
    let mut decoded = Decoded { is_batch: true, ..Decoded::default() };
    for record in records {
        let record = SqsMessage::deserialize(record).map_err(|error| format!("a record is not a message of SQS: {error}"))?;
        let message_id = record.message_id.clone().ok_or("a record is not a message of SQS: it has no messageId")?;
        decoded.in_flight.add(function, &message_id, &record);
        let body = record.body.unwrap_or_default();
        if let Some(instance) = started_instance(function, &body) {
            decoded.started.push(StartedMessage { instance, message_id });
            continue;
        }
        match work_of_message(function, &body, clusters) {
            Ok(work) => add_work(&mut decoded.work, work, message_id),
            Err(NoWork::Unreadable(reason)) => decoded.poison.push(PoisonMessage { message_id, reason }),
            Err(NoWork::Unserved(cluster)) => {
                let comes_again = decoded.in_flight.receives(&message_id) < UNSERVED_RECEIVES;
                decoded.unserved.push(UnservedMessage { message_id, cluster, comes_again });
            }
        }
    }
    forward_other_clusters(function, &mut decoded);
    Ok(decoded)
}

fn add_work(items: &mut Vec<WorkItem>, work: Work, message_id: String) {
    // A run for a cluster serves a tick too.
    let is_tick_of =
        |other: &Work| matches!((&work, other), (Work::Cluster(one) | Work::Tick(one), Work::Cluster(two) | Work::Tick(two)) if one == two);
    match items.iter_mut().find(|item| item.work == work || is_tick_of(&item.work)) {
        Some(item) => {
            item.message_ids.push(message_id);
            if matches!(work, Work::Cluster(_)) {
                item.work = work;
            }
        }
        None => items.push(WorkItem { work, message_ids: vec![message_id] }),
    }
}

/// Keeps the work on the first cluster of a batch, and sends doorbells for the others, which get separate invocations.
pub(crate) fn forward_other_clusters(function: Function, decoded: &mut Decoded) {
    let first = decoded.work.first().and_then(|item| item.work.cluster()).cloned();
    let (own, others): (Vec<WorkItem>, Vec<WorkItem>) = std::mem::take(&mut decoded.work).into_iter().partition(|item| {
        !matches!(item.work, Work::Cluster(_) | Work::Tick(_) | Work::Deletions(_)) || item.work.cluster() == first.as_ref()
    });
    decoded.work = own;
    for WorkItem { work, message_ids } in others {
        let doorbell = match work {
            Work::Cluster(cluster) if function == Function::Register => Some(Doorbell::register(cluster)),
            Work::Cluster(cluster) if function == Function::Sweep => Some(Doorbell::sweep(cluster)),
            Work::Deletions(cluster) => Some(Doorbell::Deletions { cluster }),
            work => work.cluster().and_then(|cluster| own_doorbell(function, cluster.clone())),
        };
        decoded.doorbells.extend(doorbell.map(|doorbell| DoorbellToSend { doorbell, message_ids }));
    }
}

/// The instance of an EventBridge envelope about a started one.
fn started_instance(function: Function, body: &str) -> Option<InstanceId> {
    let body = serde_json::from_str::<Value>(body).ok().filter(|_| function == Function::Register)?;
    body.get("detail-type")?;
    Some(InstanceId::new(body.get("detail")?.get("instance-id")?.as_str()?))
}

/// The doorbell that wakes a function for a whole cluster: what a tick sends. `cargo xtask ci --only template` reads the arms to
/// know which function needs permission for which queue.
fn own_doorbell(function: Function, cluster: ClusterName) -> Option<Doorbell> {
    match function {
        Function::Schedule => Some(Doorbell::Schedule { cluster }),
        Function::Consolidate => Some(Doorbell::Consolidate { cluster }),
        Function::Launch => Some(Doorbell::Launch { cluster, claims: vec![] }),
        Function::Register => Some(Doorbell::Register { cluster, is_tick: true }),
        Function::Refresh => Some(Doorbell::Refresh { cluster }),
        Function::Sweep => Some(Doorbell::Sweep { cluster, is_tick: true }),
        // They need a message that names their work; `sweep` resends lost ones.
        Function::Terminate | Function::Interrupt | Function::Relay => None,
    }
}

/// Why there is nothing to do for a message.
enum NoWork {
    /// A sentence for the log.
    Unreadable(String),
    Unserved(ClusterName),
}

/// The delivery of a message from which on it is believed that its cluster is not served.
const UNSERVED_RECEIVES: u32 = 2;

fn work_of_message(function: Function, body: &str, clusters: &[ClusterName]) -> Result<Work, NoWork> {
    if function == Function::Interrupt {
        return Ok(Work::Notice(body.to_owned()));
    }
    let doorbell: Doorbell =
        serde_json::from_str(body).map_err(|error| NoWork::Unreadable(format!("the body is not a doorbell: {error}")))?;
    if !clusters.contains(doorbell.cluster()) {
        return Err(NoWork::Unserved(doorbell.cluster().clone()));
    }
    match (function, doorbell) {
        (Function::Schedule, Doorbell::Schedule { cluster })
        | (Function::Consolidate, Doorbell::Consolidate { cluster })
        | (Function::Register, Doorbell::Register { cluster, is_tick: false })
        | (Function::Refresh, Doorbell::Refresh { cluster })
        | (Function::Sweep, Doorbell::Sweep { cluster, is_tick: false }) => Ok(Work::Cluster(cluster)),
        (Function::Register, Doorbell::Register { cluster, is_tick: true })
        | (Function::Sweep, Doorbell::Sweep { cluster, is_tick: true }) => Ok(Work::Tick(cluster)),
        (Function::Register, Doorbell::Deletions { cluster }) => Ok(Work::Deletions(cluster)),
        (Function::Launch, Doorbell::Launch { cluster, claims }) => Ok(Work::Launch(cluster, claims)),
        (Function::Terminate, Doorbell::Terminate { cluster, claim }) => Ok(Work::Terminate(ClaimKey { cluster, name: claim })),
        (_, doorbell) => Err(NoWork::Unreadable(format!("{} does not handle {doorbell:?}", function.name()))),
    }
}

/// The response to a batch: SQS deletes all messages that it does not name.
pub fn batch_response(failed: &[String]) -> Value {
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
        let expected: Vec<WorkItem> = expected
            .iter()
            .map(|(work, ids)| WorkItem { work: work.clone(), message_ids: ids.iter().map(|&id| id.to_owned()).collect() })
            .collect();
        assert_eq!((decoded.work, decoded.poison), (expected, vec![]));
    }

    #[track_caller]
    fn check_doorbells(function: Function, event: &Value, expected: &[(Doorbell, &[&str])]) {
        let decoded = decode(function, event, &clusters()).expect("the event can be decoded");
        let doorbells: Vec<(Doorbell, Vec<&str>)> =
            decoded.doorbells.iter().map(|sent| (sent.doorbell.clone(), sent.message_ids.iter().map(String::as_str).collect())).collect();
        assert_eq!(doorbells, expected.iter().map(|(doorbell, ids)| (doorbell.clone(), ids.to_vec())).collect::<Vec<_>>());
    }

    fn body(doorbell: &Doorbell) -> String {
        serde_json::to_string(doorbell).expect("plain data")
    }

    #[test]
    fn messages_with_the_same_work_share_one_work_item() {
        let doorbell = body(&Doorbell::Schedule { cluster: "a".into() });
        check(Function::Schedule, &batch(&[&doorbell, &doorbell]), &[(Work::Cluster("a".into()), &["m0", "m1"])]);
    }

    #[test]
    fn an_invocation_processes_one_cluster_and_forwards_the_others() {
        let schedule = |cluster: &str| Doorbell::Schedule { cluster: cluster.into() };
        let event = batch(&[&body(&schedule("b")), &body(&schedule("a")), &body(&schedule("b")), &body(&schedule("a"))]);
        check(Function::Schedule, &event, &[(Work::Cluster("b".into()), &["m0", "m2"])]);
        check_doorbells(Function::Schedule, &event, &[(schedule("a"), &["m1", "m3"])]);
        // Work on single claims is small, and stays in one invocation.
        let end = |cluster: &str| Doorbell::Terminate { cluster: cluster.into(), claim: "x".into() };
        let event = batch(&[&body(&end("a")), &body(&end("b"))]);
        let work = |cluster: &str| Work::Terminate(ClaimKey { cluster: cluster.into(), name: "x".into() });
        check(Function::Terminate, &event, &[(work("a"), &["m0"]), (work("b"), &["m1"])]);
    }

    #[test]
    fn a_bell_beside_a_tick_is_a_run_that_looks_at_all() {
        let bell = |cluster: &str| body(&Doorbell::sweep(cluster.into()));
        let tick = |cluster: &str| body(&own_doorbell(Function::Sweep, cluster.into()).expect("it has a doorbell"));
        let (run, quiet) = (Work::Cluster("a".into()), Work::Tick("a".into()));
        check(Function::Sweep, &batch(&[&tick("a"), &tick("a")]), &[(quiet, &["m0", "m1"])]);
        check(Function::Sweep, &batch(&[&tick("a"), &bell("a")]), &[(run.clone(), &["m0", "m1"])]);
        check(Function::Sweep, &batch(&[&bell("a"), &tick("a")]), &[(run.clone(), &["m0", "m1"])]);
        check(Function::Sweep, &batch(&[r#"{"bell":"sweep","cluster":"a"}"#]), &[(run, &["m0"])]);
        let of_others = batch(&[&tick("a"), &bell("b")]);
        check_doorbells(Function::Sweep, &of_others, &[(Doorbell::sweep("b".into()), &["m1"])]);
        let of_others = batch(&[&tick("a"), &tick("b")]);
        check_doorbells(Function::Sweep, &of_others, &[(Doorbell::Sweep { cluster: "b".into(), is_tick: true }, &["m1"])]);
        assert_eq!(tick("a"), r#"{"bell":"sweep","cluster":"a","isTick":true}"#, "which an older function takes for a bell");
        let bell = |cluster: &str| Doorbell::register(cluster.into());
        let tick = |cluster: &str| own_doorbell(Function::Register, cluster.into()).expect("it has a doorbell");
        let (run, quiet) = (Work::Cluster("a".into()), Work::Tick("a".into()));
        check(Function::Register, &batch(&[&body(&tick("a"))]), &[(quiet, &["m0"])]);
        check(Function::Register, &batch(&[&body(&tick("a")), &body(&bell("a"))]), &[(run, &["m0", "m1"])]);
        let deletions = |cluster: &str| Doorbell::Deletions { cluster: cluster.into() };
        let both = batch(&[&body(&deletions("a")), &body(&bell("a")), &body(&deletions("a"))]);
        check(Function::Register, &both, &[(Work::Deletions("a".into()), &["m0", "m2"]), (Work::Cluster("a".into()), &["m1"])]);
        for other in [bell("b"), tick("b"), deletions("b")] {
            check_doorbells(Function::Register, &batch(&[&body(&tick("a")), &body(&other)]), &[(other, &["m1"])]);
        }
    }

    #[test]
    fn a_tick_of_several_clusters_sends_one_doorbell_for_each_and_does_no_work() {
        let tick = json!({ "kind": "tick" });
        for function in
            [Function::Schedule, Function::Consolidate, Function::Launch, Function::Register, Function::Refresh, Function::Sweep]
        {
            check(function, &tick, &[]);
            let doorbells = ["a", "b"].map(|cluster| own_doorbell(function, cluster.into()).expect("it has a doorbell"));
            check_doorbells(function, &tick, &doorbells.map(|doorbell| (doorbell, &[][..])));
            let decoded = decode(function, &batch(&[&body(&own_doorbell(function, "a".into()).expect("it has a doorbell"))]), &clusters());
            let decoded = decoded.expect("its own doorbell is decoded");
            assert_eq!((decoded.work.len(), decoded.poison), (1, vec![]), "{function:?} processes the doorbell of its tick");
        }
        check_doorbells(Function::Terminate, &tick, &[]);
        let ticked = |function| decode(function, &tick, &clusters()).expect("a tick can be decoded").ticked;
        assert_eq!(ticked(Function::Sweep), clusters(), "which rings others");
        assert!(ticked(Function::Schedule).is_empty());
        check_doorbells(
            Function::Refresh,
            &json!({ "kind": "catalog" }),
            &["a", "b"].map(|cluster| (Doorbell::Refresh { cluster: cluster.into() }, &[][..])),
        );
    }

    #[test]
    fn a_function_that_is_woken_does_nothing() {
        for function in Function::ALL {
            for clusters in [&clusters()[..], &clusters()[..1]] {
                let decoded = decode(function, &json!({ "kind": "wake" }), clusters);
                assert_eq!(decoded, Ok(Decoded::default()), "{function}: no work, no doorbell, and no response that names messages");
            }
        }
    }

    #[test]
    fn a_tick_of_one_cluster_is_its_run() {
        let one = [ClusterName::from("a")];
        let tick = |function| decode(function, &json!({ "kind": "tick" }), &one).expect("a tick can be decoded");
        for (function, work) in [
            (Function::Schedule, Work::Cluster("a".into())),
            (Function::Refresh, Work::Cluster("a".into())),
            (Function::Sweep, Work::Tick("a".into())),
        ] {
            let decoded = tick(function);
            let item = WorkItem { work, message_ids: vec![] };
            assert_eq!((decoded.doorbells, decoded.is_batch), (vec![], false), "{function:?}");
            let is_repeated_by_a_tick = function == Function::Sweep;
            let doorbell = own_doorbell(function, "a".into()).filter(|_| !is_repeated_by_a_tick);
            assert_eq!(doorbell_of_tick(function, &item), doorbell, "its queue repeats what failed: {function:?}");
            assert_eq!(is_left_to_next_tick(&item), is_repeated_by_a_tick, "{function:?}");
            assert_eq!(decoded.work, [item], "{function:?}");
        }
        assert_eq!(tick(Function::Sweep).ticked, one, "which rings others");
        // One after the other, in the order of their queue: a run of `consolidate` beside another waits for the lease.
        let consolidate = tick(Function::Consolidate);
        assert_eq!((consolidate.work.len(), consolidate.doorbells.len()), (0, 1));
    }

    #[test]
    fn work_that_a_message_or_a_person_requested_has_no_doorbell_of_a_tick() {
        let of = |work: Work, ids: &[&str]| {
            let message_ids = ids.iter().map(|&id| id.to_owned()).collect();
            doorbell_of_tick(Function::Sweep, &WorkItem { work, message_ids })
        };
        assert_eq!(of(Work::Tick("a".into()), &["m0"]), None, "its message comes again");
        assert!(!is_left_to_next_tick(&WorkItem { work: Work::Tick("a".into()), message_ids: vec!["m0".to_owned()] }));
        let request = UninstallRequest { cluster: "a".into(), nodes: whittle_claims::LeftNodes::Keep, dry_run: true };
        assert_eq!(of(Work::Uninstall(request), &[]), None);
        assert_eq!(of(Work::Notice("{}".to_owned()), &[]), None);
    }

    #[test]
    fn a_started_instance_is_to_be_looked_up() {
        let running = r#"{"detail-type":"EC2 Instance State-change Notification","detail":{"state":"running","instance-id":"i-1"}}"#;
        let event = batch(&[running, r#"{"bell":"register","cluster":"b"}"#, r#"{"detail-type":"EC2"}"#]);
        let decoded = decode(Function::Register, &event, &clusters()).expect("the event can be decoded");
        assert_eq!(decoded.work, [WorkItem { work: Work::Cluster("b".into()), message_ids: vec!["m1".to_owned()] }]);
        assert_eq!(decoded.started, [StartedMessage { instance: InstanceId::new("i-1"), message_id: "m0".to_owned() }]);
        assert_eq!(decoded.poison.iter().map(|poison| poison.message_id.as_str()).collect::<Vec<_>>(), ["m2"]);
        let elsewhere = decode(Function::Launch, &batch(&[running]), &clusters()).expect("the batch can be decoded");
        assert!(elsewhere.started.is_empty() && elsewhere.poison.len() == 1, "{elsewhere:?}");
    }

    #[test]
    fn an_interruption_notice_is_passed_on_unchanged() {
        let notice = r#"{"detail-type":"EC2 Spot Instance Interruption Warning"}"#;
        check(Function::Interrupt, &batch(&[notice]), &[(Work::Notice(notice.to_owned()), &["m0"])]);
        check(Function::Interrupt, &serde_json::from_str(notice).expect("JSON"), &[(Work::Notice(notice.to_owned()), &[])]);
    }

    #[test]
    fn a_notice_that_was_given_up_is_handled_as_it_lies_in_the_dead_letter_queue() {
        let record = |payload: &Value| {
            json!({
                "version": "1.0", "timestamp": "2026-11-30T12:00:00.000Z",
                "requestContext": {"requestId": "r", "functionArn": "f", "condition": "RetriesExhausted", "approximateInvokeCount": 3},
                "requestPayload": payload,
                "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
                "responsePayload": {"errorType": "Failed", "errorMessage": "m"},
            })
        };
        let notice = json!({ "detail-type": "EC2 Spot Instance Interruption Warning" });
        let work = Work::Notice(notice.to_string());
        check(Function::Interrupt, &record(&notice), &[(work.clone(), &[])]);
        check(Function::Interrupt, &record(&record(&notice)), &[(work, &[])]);
        assert!(decode(Function::Interrupt, &record(&json!({ "hello": 1 })), &clusters()).is_err());
        assert!(decode(Function::Terminate, &record(&notice), &clusters()).is_err(), "it is no other function's");
    }

    #[test]
    fn a_poison_message_affects_no_other_of_its_batch() {
        let launch = r#"{"bell":"launch","cluster":"a","claims":["x"]}"#;
        let event = batch(&["{", launch, r#"{"bell":"launch","cluster":"elsewhere","claims":[]}"#, r#"{"bell":"sweep","cluster":"a"}"#]);
        let decoded = decode(Function::Launch, &event, &clusters()).expect("the batch can be decoded");
        assert_eq!(decoded.work, [WorkItem { work: Work::Launch("a".into(), vec!["x".into()]), message_ids: vec!["m1".to_owned()] }]);
        let poisoned: Vec<(&str, bool)> =
            decoded.poison.iter().map(|poison| (poison.message_id.as_str(), poison.reason.is_empty())).collect();
        assert_eq!(poisoned, [("m0", false), ("m3", false)]);
        let unserved = UnservedMessage { message_id: "m2".to_owned(), cluster: "elsewhere".into(), comes_again: true };
        assert_eq!(decoded.unserved, [unserved]);
    }

    #[test]
    fn a_doorbell_of_a_cluster_that_is_not_served_comes_once_more_and_no_oftener() {
        for (receives, comes_again) in [(None, true), (Some("1"), true), (Some("2"), false), (Some("5"), false)] {
            let attributes = receives.map_or_else(|| json!({}), |receives| json!({ "ApproximateReceiveCount": receives }));
            let body = body(&Doorbell::Schedule { cluster: "elsewhere".into() });
            let record = json!({ "messageId": "m", "receiptHandle": "of-m", "body": body, "attributes": attributes });
            let decoded = decode(Function::Schedule, &json!({ "Records": [record] }), &clusters()).expect("the batch can be decoded");
            assert_eq!(decoded.unserved.iter().map(|one| one.comes_again).collect::<Vec<_>>(), [comes_again], "{receives:?}");
            assert!(decoded.work.is_empty() && decoded.doorbells.is_empty() && decoded.poison.is_empty(), "{decoded:?}");
        }
    }

    #[test]
    fn an_uninstall_request_is_accepted_by_sweep_alone_and_for_served_clusters_only() {
        let event = json!({ "uninstall": { "cluster": "a", "nodes": "keep", "dryRun": true } });
        let request = UninstallRequest { cluster: "a".into(), nodes: whittle_claims::LeftNodes::Keep, dry_run: true };
        check(Function::Sweep, &event, &[(Work::Uninstall(request), &[])]);
        assert!(decode(Function::Schedule, &event, &clusters()).is_err());
        assert!(decode(Function::Sweep, &json!({ "uninstall": { "cluster": "elsewhere" } }), &clusters()).is_err());
        assert!(
            decode(Function::Sweep, &json!({ "uninstall": { "cluster": "a", "dryrun": true } }), &clusters()).is_err(),
            "a misspelled field is rejected"
        );
    }

    #[test]
    fn an_event_of_another_kind_is_rejected() {
        assert!(decode(Function::Schedule, &json!({ "hello": 1 }), &clusters()).is_err());
        assert!(decode(Function::Schedule, &json!({ "Records": [{}] }), &clusters()).is_err());
    }
}
