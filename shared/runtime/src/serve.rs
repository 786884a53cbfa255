//! The invocation loop of a function that events wake.

use crate::Function;
use crate::clock::InvocationClock;
use crate::environment::Environment;
use crate::events::{self, Decoded, DoorbellToSend, UnservedMessage, Work, WorkItem};
use crate::in_flight::{InFlight, OwnQueue};
use crate::wiring::{Connections, Shell};
use crate::{started, telemetry, tries};
use futures::stream::{self, StreamExt};
use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use whittle_claims::{Doorbell, TickFacts};
use whittle_ports::{ClaimStore, Clock, Disposition, HandleError, Queues, Report, StoreError, error_chain, metrics};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

/// Work items of one event that run concurrently: a batch holds ten messages.
const CONCURRENCY_MAX: usize = 10;
/// Work that starts with less time than this would only be interrupted.
const WORK_TIME_MIN: SignedDuration = SignedDuration::from_millis(500);

/// Serves a function until its execution environment ends: `handler` is called for each work item.
///
/// Errors when the environment is not complete, before the first event is received.
pub async fn serve<H>(function: Function, handler: H) -> Result<(), Error>
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    telemetry::init_logs();
    let environment = Environment::read(|name| std::env::var(name).ok())?;
    let connections = &Connections::open(environment).await?;
    let handler = &handler;
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let clock = InvocationClock::until(event.context.deadline, Timestamp::now());
        let shell = connections.shell(function, clock);
        let decoded = match events::decode(function, &event.payload, &connections.settings().clusters) {
            Ok(decoded) => decoded,
            Err(reason) => {
                tracing::error!(%reason, "the event cannot be decoded");
                return Err(diagnostic("Unreadable", reason));
            }
        };
        if let Some(notice) = notice_of(&decoded) {
            return response_to_event(try_notice(function, connections, clock, notice, handler).await);
        }
        let is_batch = decoded.is_batch;
        let processed = ring_and_work(function, &shell, decoded, handler).await;
        response(is_batch, processed)
    }))
    .await
}

/// The error of a failed invocation, which Lambda reports and counts.
fn diagnostic(error_type: &str, reason: String) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: reason }
}

/// How the processing of some messages ended.
#[derive(Debug, Default)]
struct Processed {
    message_ids: Vec<String>,
    /// Whether SQS has to deliver the messages again.
    redeliver: bool,
    failure: Option<Failure>,
    /// Messages of the decisions that were made.
    decisions: Vec<String>,
}

impl Processed {
    /// Whether it failed in a way that may pass.
    fn may_pass(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.disposition == Disposition::RetryLater)
    }
}

#[derive(Debug)]
struct Failure {
    disposition: Disposition,
    reason: String,
}

/// The notice that EventBridge invoked the function for, if it did: an event that comes in no batch.
fn notice_of(decoded: &Decoded) -> Option<&WorkItem> {
    decoded.work.first().filter(|item| !decoded.is_batch && matches!(item.work, Work::Notice(_)))
}

/// Works on a notice, again and again while its failure may pass.
async fn try_notice<H>(function: Function, connections: &Connections, clock: InvocationClock, notice: &WorkItem, handler: &H) -> Processed
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    let attempt = async |is_repeated: bool| {
        // Nothing that one try has read is true for the next.
        let shell = connections.shell(function, clock.for_run(function, Timestamp::now()));
        run(function, &shell, notice.clone(), handler, is_repeated).await
    };
    let pause = async |wait: SignedDuration| tokio::time::sleep(wait.unsigned_abs()).await;
    tries::until_it_ends(function, &clock, attempt, Processed::may_pass, pause).await
}

/// Sends the doorbells for other invocations, then does the work.
async fn ring_and_work<H>(function: Function, shell: &Shell, mut decoded: Decoded, handler: &H) -> Vec<Processed>
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    let mut processed = Vec::new();
    if !decoded.started.is_empty() {
        let cluster_of = async |instance: &InstanceId| Ok(shell.store.by_instance(instance).await?.map(|claim| claim.value.key.cluster));
        let failures = started::assign(function, &shell.settings.clusters, cluster_of, &mut decoded).await;
        let failures: Vec<Processed> = failures.into_iter().map(|(message_id, error)| failed(vec![message_id], &error.into())).collect();
        retry_soon(function, &shell.queues, &decoded.in_flight, &failures).await;
        processed.extend(failures);
    }
    for poison in decoded.poison {
        tracing::error!(message_id = %poison.message_id, reason = %poison.reason, "a message is left for the dead-letter queue");
        processed.push(Processed { message_ids: vec![poison.message_id], redeliver: true, ..Processed::default() });
    }
    let (left, report) = left_aside(decoded.unserved);
    processed.extend(left);
    if !report.metrics.is_empty() {
        let (told, of_all) = ((shell.clock.now(), &shell.settings), Work::Notice(String::new()));
        for line in telemetry::lines(told, function, (&of_all, false), Duration::ZERO, &Ok(report)) {
            println!("{line}");
        }
    }
    let in_flight = &decoded.in_flight;
    let sent = stream::iter(decoded.doorbells).map(async |doorbell| {
        let sent = send(&shell.queues, doorbell).await;
        if !sent.redeliver {
            in_flight.release(function, &shell.queues, &sent.message_ids).await;
        }
        retry_soon(function, &shell.queues, in_flight, std::slice::from_ref(&sent)).await;
        sent
    });
    let has_claims = &async |cluster: &ClusterName| shell.store.has_claims(cluster).await;
    let (queues, is_shadow) = (&shell.queues, shell.settings.is_shadow());
    let rung = stream::iter(decoded.ticked).map(|cluster| ring_others(queues, is_shadow, has_claims, cluster));
    let sent = sent.buffer_unordered(CONCURRENCY_MAX).collect::<Vec<_>>();
    let rung = rung.buffer_unordered(CONCURRENCY_MAX).collect::<Vec<_>>();
    // The function's own doorbells do not wait for what the table answers.
    let (sent, rung) = futures::join!(sent, rung);
    processed.extend(sent.into_iter().chain(rung.into_iter().flatten()));
    let runs = stream::iter(decoded.work).map(async |item| {
        let is_tick = matches!(item.work, Work::Tick(_));
        let mut done = run(function, shell, item, handler, false).await;
        if is_tick {
            done = left_to_next_tick(function, in_flight, done);
        }
        retry_soon(function, &shell.queues, in_flight, std::slice::from_ref(&done)).await;
        done
    });
    processed.extend(runs.buffer_unordered(CONCURRENCY_MAX).collect::<Vec<_>>().await);
    processed
}

/// Doorbells for clusters that are not served. They are dropped with a warning and a problem that `WarningsAlarm` is based on, because
/// nothing else tells of a cluster that was taken out by mistake and has no webhook. Dead letters would keep their alarm on for two weeks
/// after one that was taken out on purpose.
fn left_aside(messages: Vec<UnservedMessage>) -> (Vec<Processed>, Report) {
    let mut report = Report::default();
    let left = messages.into_iter().map(|UnservedMessage { message_id, cluster, comes_again }| {
        if !comes_again {
            report.count("dropped");
            report.metric(metrics::UnservedRings);
            tracing::warn!(%cluster, "a doorbell is dropped: its cluster is not served, which the parameter Clusters would have to name");
        }
        Processed { message_ids: vec![message_id], redeliver: comes_again, ..Processed::default() }
    });
    (left.collect(), report)
}

/// Has the messages delivered again soon whose work may succeed then. What needs a person, and what cannot be decoded, waits for the
/// queue's visibility timeout. This is done as soon as they have failed: others of the batch may take as long as the invocation may.
async fn retry_soon(function: Function, queue: &impl OwnQueue, in_flight: &InFlight, processed: &[Processed]) {
    let message_ids: Vec<String> = processed.iter().filter(|one| one.may_pass()).flat_map(|one| one.message_ids.iter().cloned()).collect();
    in_flight.retry_soon(function, queue, &message_ids).await;
}

/// Failed work of ticks without the messages that would come again when the next tick has rung for the same: a cluster that fails for hours
/// would have five runs a minute instead of two, each of which may wait for an API server as long as it may, while other clusters have to
/// be swept (ADR 0069). The message of a run that died comes again.
fn left_to_next_tick(function: Function, in_flight: &InFlight, done: Processed) -> Processed {
    let may_pass = done.may_pass();
    let Processed { message_ids, redeliver, failure, decisions } = done;
    let coming = if redeliver && may_pass { in_flight.before_next_tick(function, message_ids) } else { Vec::new() };
    Processed { redeliver: !coming.is_empty(), message_ids: coming, failure, decisions }
}

/// Rings the other functions of a tick that may have work for a cluster. Claims that cannot be asked for may be there.
async fn ring_others(
    queues: &impl Queues,
    is_shadow: bool,
    has_claims: &impl AsyncFn(&ClusterName) -> Result<bool, StoreError>,
    cluster: ClusterName,
) -> Vec<Processed> {
    let has_claims = has_claims(&cluster).await.unwrap_or_else(|error| {
        tracing::warn!(%cluster, reason = %error_chain(&error), "whether the cluster has claims is unknown: it counts as if it had");
        true
    });
    let doorbells = TickFacts { has_claims, is_shadow }.doorbells(&cluster).into_iter();
    let sent = doorbells.map(|doorbell| send(queues, DoorbellToSend { doorbell, message_ids: Vec::new() }));
    futures::future::join_all(sent).await
}

/// Sends a doorbell. When that fails, so does the processing of the messages that requested it.
async fn send(queues: &impl Queues, doorbell: DoorbellToSend) -> Processed {
    let DoorbellToSend { doorbell, message_ids } = doorbell;
    let outcome = queues.send(doorbell, SignedDuration::ZERO).await;
    let failure = outcome.err().map(|error| {
        let reason = error_chain(&error);
        tracing::error!(%reason, "a doorbell could not be sent");
        Failure { disposition: Disposition::RetryLater, reason }
    });
    Processed { message_ids, redeliver: failure.is_some(), failure, decisions: Vec::new() }
}

/// The response of the invocation. For a batch it names the messages to redeliver, and never fails as a whole: runs that failed count in
/// `whittle_failed_runs` by their cluster. An invocation that fails counts for its function alone, so that a cluster without access would
/// keep the alarm on that tells when the function itself dies (ADR 0069). A direct call (a tick, `whittle uninstall`) fails, which is the
/// only way for its caller to learn of a failure.
fn response(is_batch: bool, processed: Vec<Processed>) -> Result<Value, Diagnostic> {
    let mut to_redeliver = Vec::new();
    let mut failures = Vec::new();
    let mut decisions = Vec::new();
    for one in processed {
        decisions.extend(one.decisions);
        failures.extend(one.failure);
        if one.redeliver {
            to_redeliver.extend(one.message_ids);
        }
    }
    if is_batch {
        return Ok(events::batch_response(&to_redeliver));
    }
    let permanent = failures.iter().find(|failure| failure.disposition == Disposition::Fail);
    match permanent.or(failures.first()) {
        Some(failure) => Err(diagnostic("Failed", format!("{} ({})", failure.reason, failure.disposition.as_str()))),
        // For people who invoke the function manually.
        None => Ok(json!({ "told": decisions })),
    }
}

/// The response to an event that EventBridge invoked the function with, and for which nobody waits. Lambda repeats an invocation that
/// fails, after one minute and after two, and then gives the event up: as SQS does with a message, only where that may help.
fn response_to_event(done: Processed) -> Result<Value, Diagnostic> {
    let failure = if done.redeliver { done.failure } else { None };
    response(false, vec![Processed { failure, ..done }])
}

/// Does a piece of work, and prints what it came to. `is_repeated` says that a failure that may pass is no failure yet: another try follows
/// within the invocation.
async fn run<H>(function: Function, shell: &Shell, item: WorkItem, handler: &H, is_repeated: bool) -> Processed
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    let (doorbell_of_tick, is_alone) = (events::doorbell_of_tick(function, &item), events::is_left_to_next_tick(&item));
    let WorkItem { work, message_ids } = item;
    if !shell.clock.has_time_for(WORK_TIME_MIN) {
        let reason = "the invocation has no time left to begin".to_owned();
        return Processed {
            message_ids,
            redeliver: true,
            failure: Some(Failure { disposition: Disposition::RetryLater, reason }),
            decisions: Vec::new(),
        };
    }
    let start = Instant::now();
    // On the heap: the compiler follows what a function awaits to a limited depth, and the loop's own layers count.
    let mut outcome = Box::pin(handler(shell, &work)).await;
    if let Some(doorbell) = doorbell_of_tick {
        outcome = handed_over(&shell.queues, doorbell, outcome).await;
    }
    // Taken after a failure as well: they are not those of the next message.
    let batches = shell.take_begun_batches();
    if let Ok(report) = &mut outcome {
        telemetry::add_batches(report, &batches);
    }
    let told = told_as(&outcome, is_repeated);
    let told = told.as_ref().unwrap_or(&outcome);
    for line in telemetry::lines((shell.clock.now(), &shell.settings), function, (&work, is_alone), start.elapsed(), told) {
        println!("{line}");
    }
    match outcome {
        Ok(report) => {
            for decision in &report.decisions {
                tracing::info!(subject = %decision.subject, kind = ?decision.kind, "{}", decision.message);
            }
            let decisions = report.decisions.into_iter().map(|decision| decision.message).collect();
            Processed { message_ids, decisions, ..Processed::default() }
        }
        Err(error) if is_alone => failed_alone(&error),
        Err(error) => failed(message_ids, &error),
    }
}

/// What the metrics get instead of the outcome of a try, if that is not its own: of a failure that another try follows, that it was tried
/// again. The invocation counts as one failed run at most, as its last try ends; the log has the reason of each.
fn told_as(outcome: &Result<Report, HandleError>, is_repeated: bool) -> Option<Result<Report, HandleError>> {
    let Err(error) = outcome else { return None };
    (is_repeated && error.disposition() == Disposition::RetryLater).then(|| {
        let mut report = Report::default();
        report.count("tried_again");
        Ok(report)
    })
}

/// The outcome of work that a schedule requested: what failed and may succeed later is handed over to the function's queue, which repeats
/// it as it repeats what other ticks ring for. The run of that message is the one that counts as failed, if it fails.
async fn handed_over(queues: &impl Queues, doorbell: Doorbell, outcome: Result<Report, HandleError>) -> Result<Report, HandleError> {
    let Err(error) = &outcome else { return outcome };
    if error.disposition() != Disposition::RetryLater {
        return outcome;
    }
    let sent = queues.send(doorbell, SignedDuration::ZERO).await;
    if let Err(refused) = sent {
        tracing::error!(reason = %error_chain(&refused), "work of a tick could not be handed over to its queue");
        return outcome;
    }
    tracing::warn!(reason = %error_chain(error), "the work of a tick stopped: a message repeats it");
    let mut report = Report::default();
    report.count("handed_over_to_queue");
    Ok(report)
}

/// The result of a handler that returned an error.
fn failed(message_ids: Vec<String>, error: &HandleError) -> Processed {
    let reason = error_chain(error);
    let disposition = error.disposition();
    if disposition == Disposition::Fail {
        tracing::error!(%reason, disposition = disposition.as_str(), "the work stopped");
    } else {
        tracing::warn!(%reason, disposition = disposition.as_str(), "the work stopped");
    }
    let redeliver = matches!(disposition, Disposition::RetryLater | Disposition::Fail);
    Processed { message_ids, redeliver, failure: Some(Failure { disposition, reason }), decisions: Vec::new() }
}

/// The same of a run that a schedule requested and the next tick alone repeats. What may pass is a failed run that was counted, and no
/// failed invocation, as where a message is tried again: the alarm on errors of `sweep` is to tell when the function dies (ADR 0071).
fn failed_alone(error: &HandleError) -> Processed {
    let done = failed(Vec::new(), error);
    let failure = done.failure.filter(|failure| failure.disposition != Disposition::RetryLater);
    Processed { redeliver: false, failure, message_ids: Vec::new(), decisions: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use whittle_ports::QueueError;

    fn done(message_id: &str) -> Processed {
        Processed { message_ids: vec![message_id.to_owned()], decisions: vec![format!("did {message_id}")], ..Processed::default() }
    }

    fn failing(disposition: Disposition) -> HandleError {
        let what = "the record".to_owned();
        match disposition {
            Disposition::RetryLater => HandleError::Store(StoreError::Throttled { what }),
            Disposition::Replan => HandleError::Store(StoreError::Conflict { what }),
            Disposition::Drop => HandleError::Unreadable { what, reason: "r".to_owned() },
            Disposition::Fail => HandleError::PlanRefused { cluster: "a".to_owned(), reason: "r".to_owned() },
        }
    }

    const ALL: [Disposition; 4] = [Disposition::RetryLater, Disposition::Replan, Disposition::Drop, Disposition::Fail];

    #[test]
    fn a_direct_invocation_whose_work_failed_returns_an_error() {
        for disposition in ALL {
            let error = failing(disposition);
            assert_eq!(error.disposition(), disposition);
            let processed = vec![Processed { message_ids: vec![], ..done("x") }, failed(vec![], &error)];
            let error = response(false, processed).expect_err("the caller has no other way to learn of it");
            assert!(error.error_message.contains(disposition.as_str()), "{}", error.error_message);
        }
        assert_eq!(response(false, vec![done("x")]).expect("nothing failed"), json!({ "told": ["did x"] }));
    }

    #[test]
    fn only_failed_messages_of_a_batch_are_redelivered() {
        for disposition in ALL {
            let redeliver = matches!(disposition, Disposition::RetryLater | Disposition::Fail);
            let processed = vec![done("m0"), failed(vec!["m1".to_owned()], &failing(disposition))];
            let response = response(true, processed).expect("one message succeeded and must not be redelivered");
            let redelivered = response["batchItemFailures"].as_array().map(Vec::len);
            assert_eq!(redelivered, Some(usize::from(redeliver)), "{disposition:?}");
        }
    }

    /// The alarms on errors are for invocations of which nothing else tells.
    #[test]
    fn a_batch_of_which_everything_failed_does_not_fail_as_a_whole() {
        for disposition in ALL {
            let of_one = |id: &str| failed(vec![id.to_owned()], &failing(disposition));
            let redeliver = matches!(disposition, Disposition::RetryLater | Disposition::Fail);
            let named = if redeliver { vec!["m0".to_owned(), "m1".to_owned()] } else { vec![] };
            let response = response(true, vec![of_one("m0"), of_one("m1")]).expect("runs that fail are counted by their cluster");
            assert_eq!(response, events::batch_response(&named), "{disposition:?}");
        }
    }

    /// A notice without a queue: Lambda repeats exactly what SQS would deliver again.
    #[test]
    fn an_event_fails_its_invocation_only_where_a_repetition_may_help() {
        for disposition in ALL {
            let redeliver = matches!(disposition, Disposition::RetryLater | Disposition::Fail);
            let response = response_to_event(failed(vec![], &failing(disposition)));
            assert_eq!(response.is_err(), redeliver, "{disposition:?}");
        }
        assert_eq!(response_to_event(done("x")).expect("nothing failed"), json!({ "told": ["did x"] }));
    }

    #[test]
    fn only_an_event_that_came_in_no_batch_is_tried_again_by_its_invocation() {
        let notice = json!({ "detail-type": "EC2 Spot Instance Interruption Warning" });
        let decoded = |event: &Value| events::decode(Function::Interrupt, event, &["a".into()]).expect("it is an event");
        let expected = WorkItem { work: Work::Notice(notice.to_string()), message_ids: vec![] };
        assert_eq!(notice_of(&decoded(&notice)), Some(&expected));
        let message = json!({ "messageId": "m", "receiptHandle": "of-m", "body": notice.to_string() });
        assert_eq!(notice_of(&decoded(&json!({ "Records": [message] }))), None, "its queue delivers it again");
        assert_eq!(notice_of(&decoded(&json!({ "kind": "tick" }))), None);
    }

    /// An outage of seconds is no failed run, and one of an hour not more of them than when a queue delivered notices five times.
    #[test]
    fn a_try_that_another_follows_counts_as_no_failure() {
        for disposition in ALL {
            let outcome = || Err(failing(disposition));
            let may_pass = disposition == Disposition::RetryLater;
            let told = told_as(&outcome(), true);
            assert_eq!(told.is_some(), may_pass, "{disposition:?}: what is not repeated is told as it is");
            assert!(told.is_none_or(|told| told.is_ok_and(|report| report.counted("tried_again") == 1)));
            assert!(told_as(&outcome(), false).is_none(), "{disposition:?}: the last try");
            assert_eq!(failed(vec![], &failing(disposition)).may_pass(), may_pass, "{disposition:?}");
        }
        assert!(told_as(&Ok(Report::default()), true).is_none() && !done("x").may_pass());
        assert!(Function::Interrupt.limits().receives <= 5, "an invocation is one failed run");
    }

    /// Notes the messages that are to come again early, and refuses that if it is told to.
    struct FakeOwnQueue(Mutex<Vec<String>>, bool);

    impl OwnQueue for FakeOwnQueue {
        async fn remove(&self, _: Function, _: &str) -> Result<(), QueueError> {
            Ok(())
        }
        async fn redeliver(&self, _: Function, receipts: &[&str], _: SignedDuration) -> Result<(), QueueError> {
            self.0.lock().expect("the lock is not poisoned").extend(receipts.iter().map(|&receipt| receipt.to_owned()));
            if self.1 { Err(QueueError { cluster: "a".to_owned(), reason: "throttled".to_owned() }) } else { Ok(()) }
        }
    }

    /// A batch with messages of these ids and clusters, each received for the first time.
    fn batch(messages: &[(&str, &str)]) -> Decoded {
        let record = |(id, cluster): &(&str, &str)| {
            let attributes = json!({ "MessageGroupId": cluster, "ApproximateReceiveCount": "1" });
            let body = json!({ "bell": "schedule", "cluster": cluster }).to_string();
            json!({ "messageId": id, "receiptHandle": format!("of-{id}"), "body": body, "attributes": attributes })
        };
        let event = json!({ "Records": messages.iter().map(record).collect::<Vec<_>>() });
        events::decode(Function::Schedule, &event, &["a".into(), "b".into()]).expect("it is a batch")
    }

    #[test]
    fn what_no_deployment_serves_is_dropped_and_counted() {
        let message = |id: &str, comes_again| UnservedMessage { message_id: id.to_owned(), cluster: "gone".into(), comes_again };
        let (left, report) = left_aside(vec![message("first", true), message("second", false), message("third", false)]);
        assert_eq!(response(true, left).expect("it is a batch"), events::batch_response(&["first".to_owned()]));
        assert_eq!(report.counted("dropped"), 2);
        assert_eq!(whittle_ports::problems::found(&report).map(|problem| problem.name).collect::<Vec<_>>(), ["cluster_not_served"]);
        let (left, report) = left_aside(vec![message("first", true)]);
        assert!(left[0].redeliver && left[0].failure.is_none() && report == Report::default(), "it may be served in a moment");
    }

    #[tokio::test]
    async fn only_what_may_succeed_later_comes_again_early() {
        let decoded = batch(&[("later", "a"), ("replan", "a"), ("drop", "a"), ("fail", "a"), ("poison", "nowhere"), ("done", "a")]);
        assert_eq!((decoded.poison.len(), decoded.unserved.len()), (0, 1));
        let poison = Processed { message_ids: vec!["poison".to_owned()], redeliver: true, ..Processed::default() };
        let mut processed: Vec<Processed> = ["later", "replan", "drop", "fail"]
            .into_iter()
            .zip(ALL)
            .map(|(id, disposition)| failed(vec![id.to_owned()], &failing(disposition)))
            .collect();
        processed.extend([poison, done("done")]);
        for refuses in [false, true] {
            let queue = FakeOwnQueue(Mutex::default(), refuses);
            retry_soon(Function::Schedule, &queue, &decoded.in_flight, &processed).await;
            assert_eq!(*queue.0.lock().expect("the lock is not poisoned"), ["of-later"], "refuses: {refuses}");
        }
        let response = response(true, processed).expect("one message succeeded");
        let named = ["later", "fail", "poison"].map(str::to_owned);
        assert_eq!(response, events::batch_response(&named), "what SQS is told does not depend on it");
    }

    #[test]
    fn a_ticks_message_that_failed_comes_again_before_the_next_tick_or_not_at_all() {
        let message = |id: &str, receives: u32| {
            let attributes = json!({ "ApproximateReceiveCount": receives.to_string() });
            let body = json!({ "bell": "sweep", "cluster": "a", "isTick": true }).to_string();
            json!({ "messageId": id, "receiptHandle": format!("of-{id}"), "body": body, "attributes": attributes })
        };
        let event = json!({ "Records": [message("first", 1), message("second", 2)] });
        let decoded = events::decode(Function::Sweep, &event, &["a".into(), "b".into()]).expect("it is a batch");
        assert_eq!(decoded.work, [WorkItem { work: Work::Tick("a".into()), message_ids: vec!["first".to_owned(), "second".to_owned()] }]);
        for disposition in ALL {
            let ran = failed(decoded.work[0].message_ids.clone(), &failing(disposition));
            let left = left_to_next_tick(Function::Sweep, &decoded.in_flight, ran);
            let expected = if disposition == Disposition::RetryLater { vec!["first".to_owned()] } else { vec![] };
            assert!(left.failure.is_some(), "{disposition:?}: it is told as before");
            assert_eq!(response(true, vec![left]).expect("it is a batch"), events::batch_response(&expected), "{disposition:?}");
        }
        let ended_well = left_to_next_tick(Function::Sweep, &decoded.in_flight, done("first"));
        assert_eq!((ended_well.redeliver, ended_well.decisions), (false, vec!["did first".to_owned()]));
    }

    /// With one cluster. The run is counted by what it printed (`telemetry`).
    #[test]
    fn a_tick_that_is_the_run_fails_its_invocation_only_for_what_needs_a_person() {
        for disposition in ALL {
            let of_schedule = left_to_next_tick(Function::Sweep, &InFlight::default(), failed_alone(&failing(disposition)));
            assert!(!of_schedule.redeliver, "there is no message: {disposition:?}");
            let may_pass = disposition == Disposition::RetryLater;
            assert_eq!(response(false, vec![of_schedule]).is_ok(), may_pass, "{disposition:?}");
        }
        // A run that had no time to begin printed nothing.
        let late = Failure { disposition: Disposition::RetryLater, reason: "no time".to_owned() };
        let late = Processed { redeliver: true, failure: Some(late), ..Processed::default() };
        assert!(response(false, vec![left_to_next_tick(Function::Sweep, &InFlight::default(), late)]).is_err());
    }

    #[tokio::test]
    async fn the_messages_of_each_group_of_a_batch_come_again_when_its_own_work_fails() {
        let decoded = batch(&[("b1", "b"), ("a1", "a"), ("b2", "b"), ("a2", "a")]);
        let (own, other) = (&decoded.work[0].message_ids, &decoded.doorbells[0].message_ids);
        let queue = FakeOwnQueue(Mutex::default(), false);
        let ran = failed(own.clone(), &failing(Disposition::RetryLater));
        retry_soon(Function::Schedule, &queue, &decoded.in_flight, std::slice::from_ref(&ran)).await;
        assert_eq!(*queue.0.lock().expect("the lock is not poisoned"), ["of-b1", "of-b2"]);
        let queue = FakeOwnQueue(Mutex::default(), false);
        let to_send = DoorbellToSend { doorbell: decoded.doorbells[0].doorbell.clone(), message_ids: other.clone() };
        let sent = send(&FakeQueues(Mutex::default(), true), to_send).await;
        retry_soon(Function::Schedule, &queue, &decoded.in_flight, std::slice::from_ref(&sent)).await;
        assert_eq!(*queue.0.lock().expect("the lock is not poisoned"), ["of-a1", "of-a2"]);
    }

    /// Records the doorbells, or refuses them.
    struct FakeQueues(Mutex<Vec<Doorbell>>, bool);

    impl Queues for FakeQueues {
        async fn send(&self, doorbell: Doorbell, _: SignedDuration) -> Result<(), QueueError> {
            if self.1 {
                return Err(QueueError { cluster: doorbell.cluster().to_string(), reason: "throttled".to_owned() });
            }
            self.0.lock().expect("the lock is not poisoned").push(doorbell);
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_doorbell_that_cannot_be_sent_fails_the_messages_that_requested_it() {
        let doorbell = Doorbell::sweep("a".into());
        let to_send =
            |ids: &[&str]| DoorbellToSend { doorbell: doorbell.clone(), message_ids: ids.iter().map(|&id| id.to_owned()).collect() };
        let queues = FakeQueues(Mutex::default(), false);
        let sent = send(&queues, to_send(&["m0"])).await;
        assert!(!sent.redeliver && sent.failure.is_none());
        assert_eq!(*queues.0.lock().expect("the lock is not poisoned"), std::slice::from_ref(&doorbell));
        let refused = send(&FakeQueues(Mutex::default(), true), to_send(&["m0"])).await;
        assert_eq!(response(true, vec![refused]).expect("it is a batch"), events::batch_response(&["m0".to_owned()]));
        let tick = send(&FakeQueues(Mutex::default(), true), to_send(&[])).await;
        assert!(response(false, vec![tick]).is_err(), "a tick without a doorbell fails");
    }

    #[tokio::test]
    async fn work_of_a_tick_that_may_succeed_later_is_repeated_by_a_message() {
        let doorbell = Doorbell::Schedule { cluster: "a".into() };
        for disposition in ALL {
            let queues = FakeQueues(Mutex::default(), false);
            let outcome = handed_over(&queues, doorbell.clone(), Err(failing(disposition))).await;
            let is_repeated = disposition == Disposition::RetryLater;
            assert_eq!(outcome.is_ok(), is_repeated, "{disposition:?}: what needs a person fails the invocation");
            assert_eq!(queues.0.into_inner().expect("the lock is not poisoned").len(), usize::from(is_repeated), "{disposition:?}");
        }
        let queues = FakeQueues(Mutex::default(), false);
        assert!(handed_over(&queues, doorbell.clone(), Ok(Report::default())).await.is_ok_and(|report| report == Report::default()));
        assert!(queues.0.into_inner().expect("the lock is not poisoned").is_empty(), "nothing is left to do");
        let refused = handed_over(&FakeQueues(Mutex::default(), true), doorbell, Err(failing(Disposition::RetryLater))).await;
        assert!(refused.is_err_and(|error| error.disposition() == Disposition::RetryLater), "the invocation fails: nobody repeats it");
    }

    /// What the tick of `sweep` rings for a cluster of which the table says this.
    async fn rung(answer: Result<bool, StoreError>, is_shadow: bool) -> Vec<Doorbell> {
        let queues = FakeQueues(Mutex::default(), false);
        let sent = ring_others(&queues, is_shadow, &async |_: &ClusterName| answer.clone(), "a".into()).await;
        assert!(sent.iter().all(|one| !one.redeliver && one.failure.is_none()));
        queues.0.into_inner().expect("the lock is not poisoned")
    }

    #[tokio::test]
    async fn a_tick_rings_for_machines_where_there_are_claims_or_may_be_some() {
        let register = Doorbell::Register { cluster: "a".into(), is_tick: true };
        let consolidate = Doorbell::Consolidate { cluster: "a".into() };
        let both = [register, consolidate.clone()];
        assert_eq!(rung(Ok(true), false).await, both);
        let throttled = StoreError::Throttled { what: "the claims".to_owned() };
        assert_eq!(rung(Err(throttled), false).await, both, "nothing waits because the table did not answer");
        assert!(rung(Ok(false), false).await.is_empty());
        assert_eq!(rung(Ok(false), true).await, [consolidate]);
    }

    #[tokio::test]
    async fn a_tick_that_cannot_ring_another_function_fails() {
        let queues = FakeQueues(Mutex::default(), true);
        let sent = ring_others(&queues, false, &async |_: &ClusterName| Ok::<_, StoreError>(true), "a".into()).await;
        assert_eq!(sent.len(), 2, "each of them is tried");
        assert!(response(false, sent).is_err());
    }
}
