//! The loop of the watcher: watches in, posts out.

use crate::bells::{Bells, Failure, Jitter, Next};
use crate::changes::{Change, DefinitionChanges, NodeChanges, NodeClaimChanges, PodChanges};
use crate::health::{self, Ready};
use crate::objects::{self, WireMetadata, WireNode, WirePod};
use crate::post::{PostError, Poster};
use anyhow::Context;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use kube::Api;
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, watcher::Error as WatchError};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;
use whittle_claims::PostKind;
use whittle_units::Timestamp;

/// Pods that no node has been found for. A pod leaves the watch when it is bound.
const UNBOUND: &str = "spec.nodeName=,status.phase=Pending";
/// A cluster may lack the definition of a kind for good, and then this is how often it is asked for them.
const MISSING_AGAIN: Duration = Duration::from_secs(30);
/// After other failures it is asked again as soon.
const FAILED_AGAIN: Duration = Duration::from_secs(1);
/// The API server ends a watch after this, and it is begun again where it ended. A little later the watcher gives up one that the server
/// did not end: its connection leads to a server that is gone. About as long as until a tick.
const WATCH_SECONDS: u32 = 60;
/// A connection on which nothing has come for this long is given up, also while a list or the start of a watch is waited for. Longer than
/// a watch may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Objects of a page of a list. A page is in memory as text, twice, before it is read: five hundred Nodes, which are usual, would take more
/// than all that is remembered of a large cluster.
const PAGE: u32 = 100;
/// What is posted when the process is told to stop may take this long; the kubelet waits for the pod's grace period.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Ends the loop: it completes when the process is told to stop.
pub type Stop = BoxFuture<'static, ()>;

/// The result of a post, with what it told.
type Outcome = Result<(), PostError>;

/// A client of the cluster. It gives up connections on which nothing comes any more.
///
/// Errors when the configuration cannot be used.
pub fn client(config: kube::Config) -> anyhow::Result<kube::Client> {
    client_within(config, SILENCE_MAX)
}

/// The same, which gives up a connection after that silence.
fn client_within(mut config: kube::Config, silence: Duration) -> anyhow::Result<kube::Client> {
    config.read_timeout = Some(silence);
    // Counted from a request on, not from when its connection fell idle.
    config.reset_reader_on_write = true;
    Ok(kube::Client::try_from(config)?)
}

/// What every watch has in common.
fn watched() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
}

/// Watches until `stop` completes, and then tells the relay what it has not been told yet.
///
/// Errors when a probe could not be answered because the port is taken, before anything is watched.
pub async fn run(client: kube::Client, poster: Poster, listen: std::net::SocketAddr, stop: Stop) -> anyhow::Result<()> {
    let ready = Ready::default();
    let listener = TcpListener::bind(listen).await.with_context(|| format!("{listen} cannot be listened on: set --listen"))?;
    let probes = tokio::spawn(health::serve(listener, Arc::clone(&ready)));
    Watcher::new(client, poster, ready).watch(stop).await;
    probes.abort();
    Ok(())
}

/// The state of the loop.
struct Watcher {
    pods: BoxStream<'static, Result<Change<objects::Pod>, WatchError>>,
    nodes: BoxStream<'static, Result<Change<objects::Node>, WatchError>>,
    node_claims: Optional<objects::NodeClaim>,
    pools: Optional<objects::Definition>,
    classes: Optional<objects::Definition>,
    pod_changes: PodChanges,
    node_changes: NodeChanges,
    node_claim_changes: NodeClaimChanges,
    pool_changes: DefinitionChanges,
    class_changes: DefinitionChanges,
    bells: Bells,
    poster: Arc<Poster>,
    listed: Listed,
    ready: Ready,
}

/// Which of the first lists are complete.
#[derive(Default)]
struct Listed {
    pods: bool,
    nodes: bool,
}

impl Watcher {
    fn new(client: kube::Client, poster: Poster, ready: Ready) -> Self {
        let pods: Api<WirePod> = Api::all_with(client.clone(), &objects::pods());
        let nodes: Api<WireNode> = Api::all_with(client.clone(), &objects::nodes());
        let unbound = watched().fields(UNBOUND);
        Self {
            pods: watcher(pods, unbound).default_backoff().map(|event| event.map(change)).boxed(),
            nodes: watcher(nodes, watched()).default_backoff().map(|event| event.map(change)).boxed(),
            node_claims: Optional::new("NodeClaims", client.clone(), &objects::node_claims()),
            pools: Optional::new("NodePools", client.clone(), &objects::node_pools()),
            classes: Optional::new("node classes", client, &objects::node_classes()),
            pod_changes: PodChanges::default(),
            node_changes: NodeChanges::default(),
            node_claim_changes: NodeClaimChanges::default(),
            pool_changes: DefinitionChanges::default(),
            class_changes: DefinitionChanges::default(),
            bells: Bells::default(),
            poster: Arc::new(poster),
            listed: Listed::default(),
            ready,
        }
    }

    async fn watch(mut self, stop: Stop) {
        let mut stop = stop;
        let mut under_way: Option<BoxFuture<'static, Outcome>> = None;
        loop {
            let now = Timestamp::now();
            let mut wait = None;
            match self.bells.next(now) {
                Next::Post(kinds) => under_way = Some(self.begin(kinds, now)),
                Next::Wait(until) => wait = Some(Duration::try_from(until.duration_since(now)).unwrap_or_default()),
                Next::Idle => {}
            }
            tokio::select! {
                () = &mut stop => break,
                outcome = some(&mut under_way) => {
                    under_way = None;
                    self.end(outcome);
                }
                Some(change) = self.pods.next() => self.take_pod(change),
                Some(change) = self.nodes.next() => self.take_node(change),
                Some(change) = self.node_claims.next() => {
                    let rung = change.and_then(|change| self.node_claim_changes.take(change));
                    self.ring(rung);
                }
                Some(change) = self.pools.next() => {
                    let rung = change.and_then(|change| self.pool_changes.take(change));
                    self.ring(rung);
                }
                Some(change) = self.classes.next() => {
                    let rung = change.and_then(|change| self.class_changes.take(change));
                    self.ring(rung);
                }
                () = some_sleep(wait) => {}
            }
        }
        self.stop(under_way).await;
    }

    fn begin(&mut self, kinds: BTreeSet<PostKind>, now: Timestamp) -> BoxFuture<'static, Outcome> {
        self.bells.begin(kinds.clone(), now);
        let (poster, seen) = (Arc::clone(&self.poster), self.pod_changes.newest().map(str::to_owned));
        Box::pin(async move { poster.post(&kinds, seen).await })
    }

    fn end(&mut self, outcome: Outcome) {
        match outcome {
            Ok(()) => {
                if self.bells.failures() > 0 {
                    tracing::info!(failures = self.bells.failures(), "the relay takes posts again");
                }
                self.bells.delivered();
            }
            Err(error) => {
                self.bells.failed(error.failure(), Timestamp::now(), Jitter::new(random()));
                let is_refused = error.failure() == Failure::Refused;
                tracing::warn!(failures = self.bells.failures(), is_refused, error = %chain(&error), "a post failed, and is repeated");
            }
        }
    }

    fn take_pod(&mut self, change: Result<Change<objects::Pod>, WatchError>) {
        match change {
            Ok(change) => {
                self.listed.pods |= change == Change::ListEnds;
                let rung = self.pod_changes.take(change);
                self.ring(rung);
            }
            Err(error) => tracing::warn!(error = %chain(&error), "the watch of pods failed, and is repeated"),
        }
    }

    fn take_node(&mut self, change: Result<Change<objects::Node>, WatchError>) {
        match change {
            Ok(change) => {
                self.listed.nodes |= change == Change::ListEnds;
                let rung = self.node_changes.take(change);
                self.ring(rung);
            }
            Err(error) => tracing::warn!(error = %chain(&error), "the watch of nodes failed, and is repeated"),
        }
    }

    fn ring(&mut self, rung: Option<PostKind>) {
        if let Some(kind) = rung {
            tracing::debug!(kind = kind.as_str(), "rung");
            self.bells.ring(kind);
        }
        if self.listed.pods && self.listed.nodes && !self.ready.swap(true, Ordering::Relaxed) {
            tracing::info!("pods and nodes have been listed, and are watched");
        }
    }

    /// Tells what has been rung and not been told, once.
    async fn stop(mut self, under_way: Option<BoxFuture<'static, Outcome>>) {
        let last = async {
            if let Some(under_way) = under_way {
                let outcome = under_way.await;
                self.end(outcome);
            }
            let due = self.bells.last();
            if !due.is_empty() {
                let post = self.begin(due, Timestamp::now());
                let outcome = post.await;
                self.end(outcome);
            }
        };
        let told = tokio::time::timeout(STOP_MAX, last).await.is_ok();
        if told && self.bells.is_quiet() {
            tracing::info!("stopped");
        } else {
            tracing::warn!("stopped, and not everything was posted: another watcher, or the tick, finds it");
        }
    }
}

/// The watch of a kind that the watcher is ready without: a cluster may lack its definition for now, and a role of an earlier release the
/// rights.
struct Optional<T> {
    /// What is watched, for messages.
    what: &'static str,
    changes: BoxStream<'static, Result<Change<T>, WatchError>>,
    /// It has been said that it cannot be watched.
    is_missing_told: bool,
}

impl<T: From<WireMetadata> + PartialEq + Send + 'static> Optional<T> {
    fn new(what: &'static str, client: kube::Client, resource: &ApiResource) -> Self {
        let api: Api<WireMetadata> = Api::all_with(client, resource);
        let changes = patient(watcher(api, watched()).map(|event| event.map(change)), pause).boxed();
        Self { what, changes, is_missing_told: false }
    }

    /// The next message: a change, or nothing after an error, which is logged.
    async fn next(&mut self) -> Option<Option<Change<T>>> {
        let message = self.changes.next().await?;
        match message {
            Ok(change) => {
                // Each attempt to list them begins with that.
                self.is_missing_told &= change == Change::ListBegins;
                return Some(Some(change));
            }
            Err(error) if !is_missing(&error) => {
                tracing::warn!(error = %chain(&error), "the watch of {} failed, and is repeated", self.what);
            }
            Err(_) if self.is_missing_told => {}
            Err(error) => {
                self.is_missing_told = true;
                let remedy = "apply infra/crds and infra/watcher/watcher.yaml of this release; until then ticks find what has changed";
                tracing::warn!(error = %chain(&error), "{} cannot be watched: {remedy}", self.what);
            }
        }
        Some(None)
    }
}

fn change<T, U: From<T>>(event: Event<T>) -> Change<U> {
    match event {
        Event::Init => Change::ListBegins,
        Event::InitApply(object) | Event::Apply(object) => Change::Present(object.into()),
        Event::InitDone => Change::ListEnds,
        Event::Delete(object) => Change::Gone(object.into()),
    }
}

/// Whether a kind is not defined, or not any more, or may not be listed or watched.
fn is_missing(error: &WatchError) -> bool {
    // A watch that was there once is begun again without a list.
    let (WatchError::InitialListFailed(cause) | WatchError::WatchStartFailed(cause)) = error else { return false };
    matches!(cause, kube::Error::Api(answer) if matches!(answer.code, 403 | 404))
}

/// How long the watch of a kind that may be missing waits after an error.
fn pause(error: &WatchError) -> Duration {
    if is_missing(error) { MISSING_AGAIN } else { FAILED_AGAIN }
}

/// The same with a pause before what follows an error: a watch tries again at once.
fn patient<T: Send, E: Send>(
    stream: impl Stream<Item = Result<T, E>> + Send,
    pause: fn(&E) -> Duration,
) -> impl Stream<Item = Result<T, E>> + Send {
    let paused = Box::pin(stream);
    futures::stream::unfold((paused, None), move |(mut stream, wait)| async move {
        if let Some(wait) = wait {
            sleep(wait).await;
        }
        let item = stream.next().await?;
        let wait = item.as_ref().err().map(pause);
        Some((item, (stream, wait)))
    })
}

/// The output of a future, if there is one; never completes otherwise.
async fn some<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn some_sleep(wait: Option<Duration>) {
    let Some(wait) = wait else { return std::future::pending().await };
    pin!(sleep(wait)).await;
}

fn random() -> u32 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    u32::try_from(high >> 32).unwrap_or_default()
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    #[tokio::test]
    async fn what_cannot_be_watched_is_asked_for_now_and_then() {
        const PAUSE: Duration = Duration::from_millis(20);
        let (asked, begun) = (AtomicUsize::new(0), Instant::now());
        let failing = futures::stream::repeat_with(|| {
            asked.fetch_add(1, Ordering::Relaxed);
            Err::<(), ()>(())
        });
        assert_eq!(patient(failing, |()| PAUSE).take(6).collect::<Vec<_>>().await.len(), 6);
        assert!(begun.elapsed() >= PAUSE * 5 && asked.load(Ordering::Relaxed) <= 7);
        let fine = patient(futures::stream::iter((0..1_000).map(Ok::<_, ()>)), |()| Duration::from_secs(60));
        assert_eq!(fine.collect::<Vec<_>>().await.len(), 1_000, "what is told is told at once");
        let once = patient(futures::stream::iter([Err::<(), _>(())]), |()| Duration::from_secs(60));
        assert_eq!(pin!(once).next().await, Some(Err(())), "so are errors");
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_given_up() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let server = tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                silent.push(stream);
            }
        });
        let config = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
        let client = client_within(config, Duration::from_millis(50)).expect("it can be used");
        let nodes: Api<WireNode> = Api::all_with(client, &objects::nodes());
        let listed = tokio::time::timeout(Duration::from_secs(60), nodes.list(&kube::api::ListParams::default())).await;
        assert!(listed.expect("it does not wait for ever").is_err());
        server.abort();
        // A watch that is only silent is ended by the server, and given up as a watch five seconds later.
        assert!(Duration::from_secs(u64::from(WATCH_SECONDS) + 5) < SILENCE_MAX);
        assert_eq!(watched().timeout, Some(WATCH_SECONDS));
    }

    /// Pods with large templates in their environment or annotations, and Nodes with many images, all listed at once.
    #[test]
    fn pages_of_large_objects_take_less_than_half_of_the_memory_that_the_manifest_permits() {
        const LARGE: u32 = 100 << 10;
        let (kinds, copies) = (5, 2);
        assert!(include_str!("../../infra/watcher/watcher.yaml").contains("limits: {memory: 256Mi}"));
        let page = watched().page_size.expect("lists have pages");
        assert!(page * LARGE * kinds * copies < 128 << 20, "{page}");
        assert_eq!(watched().fields(UNBOUND).page_size, Some(page), "of pods too");
    }

    #[test]
    fn only_a_kind_that_is_not_there_or_not_permitted_is_waited_for_long() {
        let api = |code: u16| kube::Error::Api(Box::new(kube::core::Status::failure("no", "Because").with_code(code)));
        for (error, expected) in [
            (WatchError::InitialListFailed(api(404)), MISSING_AGAIN),
            (WatchError::InitialListFailed(api(403)), MISSING_AGAIN),
            (WatchError::InitialListFailed(api(500)), FAILED_AGAIN),
            (WatchError::WatchStartFailed(api(404)), MISSING_AGAIN),
            (WatchError::WatchStartFailed(api(403)), MISSING_AGAIN),
            (WatchError::WatchStartFailed(api(500)), FAILED_AGAIN),
            (WatchError::NoResourceVersion, FAILED_AGAIN),
        ] {
            assert_eq!(pause(&error), expected, "{error}");
        }
    }
}
