//! How soon a pod that the real scheduler finds no node for becomes a message of the plan queue, by either doorbell, and that a relay which
//! hangs delays no other pod.

use crate::real_admission::root;
use crate::watcher::{CLUSTER, Now, Rung, Running, SOON, kubectl, node, plane, pod};
use futures::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use whittle_ports::{Adapters, Settings};
use whittle_relay::{Recent, Request, cluster_secret};
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::kubernetes::client;
use whittle_watcher::objects::{self, WirePod};

/// A secret of the account.
const STORED: &str = "stored";
const PODS: usize = 200;
/// One pod after another, at other moments of the second each.
const PAUSE: Duration = Duration::from_millis(87);
/// The promises (SPECIFICATION P22).
const P50: Duration = Duration::from_millis(1_500);
const P99: Duration = Duration::from_secs(3);

/// When each of something happened, by the pod's name.
type Times = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Creates the pods; returns when each request began.
async fn create_pods(admin: &kube::Client) -> BTreeMap<String, Instant> {
    let mut created = BTreeMap::new();
    for number in 0..PODS {
        let name = format!("p{number:03}");
        let body: serde_json::Value = serde_saphyr::from_str(&pod(&name, "nodeSelector: {nowhere: here},")).expect("it is YAML");
        let request = http::Request::post("/api/v1/namespaces/default/pods").header("content-type", "application/json");
        created.insert(name, Instant::now());
        let request = request.body(body.to_string().into_bytes()).expect("it is a request");
        admin.request::<serde_json::Value>(request).await.expect("it is created");
        // tidy: allow(sleep), because pods arrive over time
        tokio::time::sleep(PAUSE).await;
    }
    created
}

/// Watches when the scheduler has called each pod unschedulable.
fn watch_pods(admin: kube::Client) -> Times {
    let seen = Times::default();
    let times = Arc::clone(&seen);
    tokio::spawn(async move {
        let pods: Api<WirePod> = Api::all_with(admin, &objects::pods());
        let mut changes = pods.watch(&WatchParams::default(), "0").await.expect("it watches").boxed();
        while let Some(change) = changes.next().await {
            let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = change.expect("the watch goes on") else { continue };
            let name = pod.metadata.name.clone().unwrap_or_default();
            if objects::Pod::from(pod).state().is_unschedulable {
                times.lock().unwrap().entry(name).or_insert_with(Instant::now);
            }
        }
    });
    seen
}

/// Prints the delays, and compares them with the promise.
fn judge(by: &str, mut delays: Vec<Duration>) {
    assert_eq!(delays.len(), PODS, "every pod has rung");
    delays.sort_unstable();
    let (p50, p99, most) = (delays[PODS / 2 - 1], delays[PODS * 99 / 100 - 1], delays[PODS - 1]);
    println!("pod created -> plan message by the {by}, {PODS} pods: p50 {p50:.2?}, p99 {p99:.2?}, most {most:.2?}");
    assert!(p50 <= P50 && p99 <= P99, "p50 {p50:?}, p99 {p99:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_becomes_a_plan_message_soon_by_the_watcher() {
    let Some(plane) = plane("kcm scheduler") else { return };
    let rung = Arc::new(Rung::default());
    let url = rung.serve().await;
    let watchers = [Running::start(&plane, &url).await, Running::start(&plane, &url).await];
    // Both have listed their objects when both have told of a node.
    kubectl(&plane, &["create", "-f", "-"], &node("n1")).expect("it is created");
    rung.wait(&crate::watcher::doorbell(whittle_claims::Doorbell::register), 1).await;
    let admin = client(&plane, plane.token()).await;
    let unschedulable = watch_pods(admin.clone());
    let created = create_pods(&admin).await;
    let begun = Instant::now();
    // A message tells of what was seen before it was sent; that of the last pod may be due in the next second.
    let told = |at: Instant| rung.plans_at.lock().unwrap().iter().copied().find(|sent| *sent >= at);
    loop {
        let times = unschedulable.lock().unwrap().clone();
        if times.len() == PODS && times.values().all(|at| told(*at).is_some()) {
            let delay = |(name, at): (&String, &Instant)| told(*at).expect("it was told") - created[name];
            judge("watcher", times.iter().map(delay).collect());
            break;
        }
        assert!(begun.elapsed() < SOON, "{} of {PODS} pods are unschedulable", times.len());
        // tidy: allow(sleep), because the scheduler runs in real time
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for watcher in watchers {
        watcher.end().await;
    }
}

/// Applies the webhook of `infra/cluster`, with this host.
fn apply_webhook(plane: &ControlPlane, host: &str) {
    apply_webhook_as(plane, host, "doorbell");
}

/// The same with another word in the names of its parts.
fn apply_webhook_as(plane: &ControlPlane, host: &str, word: &str) {
    let text = std::fs::read_to_string(root().join("infra/cluster/webhook.yaml")).expect("it exists");
    let authority = std::fs::read(plane.ca()).expect("the control plane wrote its certificate");
    let authority = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, authority);
    let url = format!("\"https://{host}/{}/{CLUSTER}\"", cluster_secret(STORED, CLUSTER));
    let ours = text.replace("\"https://RELAY-HOST/SECRET/CLUSTER\"", &format!("{url}, caBundle: {authority}"));
    assert_eq!(ours.matches("caBundle").count(), 5, "all webhooks call the relay");
    let ours = ours.replace(".doorbell.whittle.dev", &format!(".{word}.whittle.dev"));
    kubectl(plane, &["apply", "-f", "-"], &ours).expect("the manifest is valid");
}

/// The name of the pod that a review's Event is about.
fn reviewed_pod(body: &[u8]) -> Option<String> {
    let review: serde_json::Value = serde_json::from_slice(body).ok()?;
    let event = &review["request"]["object"];
    [&event["regarding"], &event["involvedObject"]].into_iter().find_map(|about| Some(about["name"].as_str()?.to_owned()))
}

/// Answers a review as the function behind its URL would.
async fn review(rung: &Rung, told: &Times, request: http::Request<Incoming>) -> http::Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("the body arrives").to_bytes();
    // For one alone, deletions ring `register`.
    let clusters = vec![CLUSTER.into(), "second".into()];
    let settings = Settings { clusters, relay_secrets: vec![STORED.to_owned()], ..Settings::default() };
    let ports = Adapters { store: &(), cloud: &(), cluster: &(), queues: rung, clock: &Now };
    let request = Request { path: &path, body: &body, signed_by: None, alias: None };
    let (response, _) = whittle_relay::handle(ports, &settings, &Recent::new(), request).await.expect("the handler answers");
    if let Some(name) = reviewed_pod(&body) {
        told.lock().unwrap().entry(name).or_insert_with(Instant::now);
    }
    let mut answer = http::Response::new(Full::from(response.body));
    *answer.status_mut() = http::StatusCode::from_u16(response.status).expect("it is a status");
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}

/// Serves the relay behind TLS, which answers after `delay`; returns its host and port, and when it was told of each pod.
async fn serve(plane: &ControlPlane, rung: Arc<Rung>, delay: Duration) -> (String, Times) {
    let (certificate, key) = plane.loopback_identity();
    let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider())).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key).expect("they fit");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let (host, told) = (listener.local_addr().expect("it listens").to_string(), Times::default());
    let times = Arc::clone(&told);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("it accepts");
            let (acceptor, rung, told) = (acceptor.clone(), Arc::clone(&rung), Arc::clone(&told));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(|request| {
                    let (rung, told) = (Arc::clone(&rung), Arc::clone(&told));
                    async move {
                        // tidy: allow(sleep), because the relay is slow
                        tokio::time::sleep(delay).await;
                        Ok::<_, Infallible>(review(&rung, &told, request).await)
                    }
                });
                drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    (host, times)
}

/// The API server calls a new webhook some time after it was stored: Nodes are created until it does.
fn wait_until_called(plane: &ControlPlane, rung: &Rung) {
    let register = crate::watcher::doorbell(whittle_claims::Doorbell::register);
    let begun = Instant::now();
    for number in 0.. {
        kubectl(plane, &["create", "-f", "-"], &node(&format!("n{number}"))).expect("it is created");
        if rung.count(&register) > 0 {
            break;
        }
        assert!(begun.elapsed() < SOON, "the webhook is not called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_becomes_a_plan_message_soon_by_the_webhook() {
    let Some(plane) = plane("kcm scheduler") else { return };
    let rung = Arc::new(Rung::default());
    let (host, told) = serve(&plane, Arc::clone(&rung), Duration::ZERO).await;
    apply_webhook(&plane, &host);
    wait_until_called(&plane, &rung);
    let admin = client(&plane, plane.token()).await;
    let created = create_pods(&admin).await;
    let begun = Instant::now();
    while told.lock().unwrap().len() < PODS {
        assert!(begun.elapsed() < SOON, "{} of {PODS} pods have rung", told.lock().unwrap().len());
        // tidy: allow(sleep), because the scheduler runs in real time
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(rung.plans_at.lock().unwrap().len() >= PODS);
    let told = told.lock().unwrap().clone();
    judge("webhook", created.iter().map(|(name, at)| told[name] - *at).collect());
}

/// Deletions ring before they are stored, so that `sweep` is told a second later; ours, and those of what is being deleted, ring nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_or_node_claim_rings_by_the_webhook_and_ours_do_not() {
    let Some(plane) = plane("kcm") else { return };
    kubectl(&plane, &["apply", "-f", "-"], include_str!("../../infra/crds/karpenter.sh_nodeclaims.yaml")).expect("it is applied");
    kubectl(&plane, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "").expect("it is served");
    let rung = Arc::new(Rung::default());
    let (host, _) = serve(&plane, Arc::clone(&rung), Duration::ZERO).await;
    apply_webhook(&plane, &host);
    let sweep = crate::watcher::doorbell(whittle_claims::Doorbell::sweep);
    wait_until_called(&plane, &rung);
    kubectl(&plane, &["create", "-f", "-"], &node("ours")).expect("it is created");
    kubectl(&plane, &["create", "-f", "-"], &crate::watcher::node_claim("ours")).expect("it is created");
    assert_eq!(rung.count(&sweep), 0, "nothing was deleted");
    let delete = |kind: &str, name: &str, more: &[&str]| {
        let arguments: Vec<&str> = ["delete", kind, name, "--wait=false"].into_iter().chain(more.iter().copied()).collect();
        kubectl(&plane, &arguments, "").expect("it is marked");
        rung.count(&sweep)
    };
    let by_whittle = ["--as=function", "--as-group=whittle:read", "--as-group=system:masters"];
    assert_eq!((delete("node", "ours", &by_whittle), delete("nodeclaim", "ours", &by_whittle)), (0, 0));
    for kind in ["node", "nodeclaim"] {
        let (before, begun) = (rung.count(&sweep), Instant::now());
        // On a busy machine a call may take longer than it may.
        for number in 0.. {
            let name = format!("theirs-{number}");
            let object = if kind == "node" { node(&name) } else { crate::watcher::node_claim(&name) };
            kubectl(&plane, &["create", "-f", "-"], &object).expect("it is created");
            let rings = delete(kind, &name, &[]);
            assert!(rings <= before + 1, "each rings once");
            assert_eq!(delete(kind, &name, &[]), rings, "it is being deleted already");
            if rings > before {
                break;
            }
            assert!(begun.elapsed() < SOON, "no deletion of a {kind} rings");
        }
    }
}

/// What makes room for pods, or asks for machines, rings. What is written to a status does not, nor does what Whittle says of pods.
#[tokio::test(flavor = "multi_thread")]
async fn an_edited_node_pool_rings_by_the_webhook_and_what_we_write_does_not() {
    let Some(plane) = plane("kcm") else { return };
    let crd = include_str!("../../infra/crds/karpenter.sh_nodepools.yaml");
    kubectl(&plane, &["apply", "--server-side", "-f", "-"], crd).expect("it is applied");
    kubectl(&plane, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "").expect("it is served");
    let rung = Arc::new(Rung::default());
    let (host, _) = serve(&plane, Arc::clone(&rung), Duration::ZERO).await;
    apply_webhook(&plane, &host);
    wait_until_called(&plane, &rung);
    let refresh = crate::watcher::doorbell(|cluster| whittle_claims::Doorbell::Refresh { cluster });
    let schedule = crate::watcher::doorbell(|cluster| whittle_claims::Doorbell::Schedule { cluster });
    // On a busy machine a call may take longer than it may.
    let rings = |bell: &whittle_claims::Doorbell, what: &str, change: &dyn Fn(usize)| {
        let (before, begun) = (rung.count(bell), Instant::now());
        for number in 1.. {
            change(number);
            if rung.count(bell) > before {
                assert_eq!(rung.count(bell), before + 1, "{what} rings once");
                return;
            }
            assert!(begun.elapsed() < SOON, "{what} rings nothing");
        }
    };
    let create = |object: &str, more: &[&str]| {
        let arguments: Vec<&str> = ["create", "-f", "-"].into_iter().chain(more.iter().copied()).collect();
        kubectl(&plane, &arguments, object).expect("it is created");
    };
    rings(&refresh, "a new NodePool", &|number| create(&crate::watcher::node_pool(&format!("p{number}"), Some(1)), &[]));
    rings(&refresh, "an edited NodePool", &|number| {
        let limit = format!(r#"{{"spec":{{"limits":{{"nodes":"{number}"}}}}}}"#);
        kubectl(&plane, &["patch", "nodepool", "p1", "--type=merge", "-p", &limit], "").expect("it is edited");
    });
    rings(&refresh, "a scaled NodePool", &|number| {
        kubectl(&plane, &["scale", "nodepool", "p1", &format!("--replicas={}", number + 1)], "").expect("it is scaled");
    });
    let before = rung.count(&refresh);
    crate::watcher::write_pool_status(&plane, "p1", "Fine");
    kubectl(&plane, &["annotate", "nodepool", "p1", "a.example/b=c"], "").expect("it is annotated");
    assert_eq!(rung.count(&refresh), before, "neither its status nor its metadata");

    let event = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Event, metadata: {{name: {name}, namespace: default}}, reason: FailedScheduling, type: Warning, \
             involvedObject: {{kind: Pod, namespace: default, name: a}}}}"
        )
    };
    let by_whittle = ["--as=function", "--as-group=whittle:read", "--as-group=system:masters"];
    create(&event("ours"), &by_whittle);
    assert_eq!(rung.count(&schedule), 0, "it is what a plan has found");
    rings(&schedule, "the scheduler's", &|number| create(&event(&format!("theirs-{number}")), &[]));
}

/// Creates thirty pods that fit nowhere and then one that fits; returns how long that one was not bound.
fn bound_after(plane: &ControlPlane, round: &str) -> Duration {
    let create = |object: String| kubectl(plane, &["create", "-f", "-"], &object).expect("it is created");
    let nowhere: Vec<String> = (0..30).map(|number| pod(&format!("nowhere-{round}-{number}"), "nodeSelector: {nowhere: here},")).collect();
    create(nowhere.join("\n---\n"));
    let begun = Instant::now();
    // No kubelet makes the node ready.
    create(pod(&format!("fits-{round}"), "tolerations: [{operator: Exists}],"));
    let name = format!("pod/fits-{round}");
    kubectl(plane, &["wait", "--for=condition=PodScheduled", &name, "--timeout=60s"], "").expect("it is bound");
    begun.elapsed()
}

/// How often the API server has called the webhook whose names have this word.
fn calls(plane: &ControlPlane, word: &str) -> u64 {
    let name = format!(".{word}.whittle.dev\"");
    let metrics = kubectl(plane, &["get", "--raw", "/metrics"], "").expect("the API server has metrics");
    let of_calls = |line: &&str| line.starts_with("apiserver_admission_webhook_admission_duration_seconds_count") && line.contains(&name);
    metrics.lines().filter(of_calls).filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Relays with which each call ends with its time limit, without a connection, or shortly before its time limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_hangs_is_dead_or_is_slow_delays_no_pod_that_fits() {
    let Some(plane) = plane("kcm scheduler") else { return };
    kubectl(&plane, &["create", "-f", "-"], &node("n1")).expect("it is created");
    let before = bound_after(&plane, "without");
    // What it accepts is never answered.
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    // Bound, so that nobody else listens there, and closed to all.
    let closed = TcpSocket::new_v4().expect("there are sockets");
    closed.bind("127.0.0.1:0".parse().expect("an address")).expect("a port is free");
    let dead = closed.local_addr().expect("it is bound");
    let (slow, _) = serve(&plane, Arc::default(), Duration::from_millis(900)).await;
    let relays = [("hanging", hanging.local_addr().expect("it listens").to_string()), ("dead", dead.to_string()), ("slow", slow)];
    for (how, host) in relays {
        apply_webhook_as(&plane, &host, how);
        let begun = Instant::now();
        for number in 0.. {
            kubectl(&plane, &["create", "-f", "-"], &node(&format!("{how}-{number}"))).expect("nothing is refused");
            if calls(&plane, how) > 0 {
                break;
            }
            assert!(begun.elapsed() < SOON, "{how}: the webhook is not called");
        }
        let called = calls(&plane, how);
        let after = bound_after(&plane, how);
        println!("a pod that fits was bound after {before:.2?}, and behind thirty others and a webhook that is {how} after {after:.2?}");
        // One call that it waited for would take a second.
        assert!(after < before + Duration::from_secs(2), "{how}: {before:?}, {after:?}");
        let begun = Instant::now();
        while calls(&plane, how) == called {
            assert!(begun.elapsed() < SOON, "{how}: the Events of those pods did not call the webhook");
        }
    }
}
