//! Requests against a fake API server with scripted responses.

mod followed;
mod looks;

use crate::Clusters;
use crate::connection::{ApiRequest, RequestError};
use base64::Engine;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use whittle_api::ObjectMeta;
use whittle_api::karpenter::NodePool;
use whittle_api::legacy::{ConvertOptions, Purpose};
use whittle_claims::PodKey;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{
    Clock, CloudError, CloudErrorKind, ClusterAccess, ClusterError, ClusterEvent, ClusterReader, Deadline, Disposition, Evictions,
    HandleError, Involved, Scope, StatusWriter,
};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Any valid certificate: the server speaks plain HTTP and never presents it.
const CERTIFICATE: &str = include_str!("../fixtures/ca.pem");

/// The server's response to a request.
enum Answer {
    /// A status, with `retryAfterSeconds`.
    Status(u16, u32),
    /// Headers, each with its line end, and a body.
    Body(&'static str, Vec<u8>),
    /// A status with this body.
    Failed(u16, Vec<u8>),
    /// The connection is closed without a response.
    Reset,
    /// The connection stays open without a response.
    Silence,
}
use Answer::{Body, Failed, Reset, Silence, Status};

const DONE: Answer = Status(200, 0);

/// A fake API server that records the heads of all requests.
struct Server {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// `answers` gets the number of the request, from 1, and its head.
    fn answering(answers: impl Fn(usize, &str) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let requests = Arc::clone(&heads);
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let number = {
                    let mut requests = requests.lock().expect("the lock is not poisoned");
                    requests.push(head.clone());
                    requests.len()
                };
                let (code, headers, body) = match answers(number, &head) {
                    Status(code, pause) => {
                        let body = format!(r#"{{"kind":"Status","code":{code},"details":{{"retryAfterSeconds":{pause}}}}}"#);
                        (code, "content-type: application/json\r\n", body.into_bytes())
                    }
                    Body(headers, body) => (200, headers, body),
                    Failed(code, body) => (code, "content-type: application/json\r\n", body),
                    Reset => continue,
                    Silence => {
                        open.push(stream);
                        continue;
                    }
                };
                let length = if headers.contains("content-length") { String::new() } else { format!("content-length: {}\r\n", body.len()) };
                let head = format!("HTTP/1.1 {code} X\r\n{headers}{length}connection: close\r\n\r\n");
                let _ = stream.write_all(&[head.into_bytes(), body].concat());
            }
        });
        Self { url, heads }
    }

    fn request_count(&self) -> usize {
        self.heads.lock().expect("the lock is not poisoned").len()
    }
}

/// Returns these endpoints in order (then always the last one), and a new token each time.
#[derive(Default)]
struct Access {
    urls: Vec<String>,
    /// The error of every endpoint lookup.
    fails: Option<CloudErrorKind>,
    endpoint_reads: AtomicUsize,
    tokens_issued: AtomicUsize,
}

/// An `Access` that the test keeps a handle to.
#[derive(Clone)]
struct Shared(Arc<Access>);

impl ClusterAccess for Shared {
    async fn endpoint(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        let number = self.0.endpoint_reads.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        if let Some(kind) = self.0.fails {
            return Err(CloudError { kind, call: "DescribeCluster", code: "Code".to_owned(), message: "refused".to_owned() });
        }
        Ok(ClusterInfo {
            name: cluster.clone(),
            endpoint: self.0.urls.get(number).or(self.0.urls.last()).expect("an endpoint").clone(),
            certificate_authority: base64::engine::general_purpose::STANDARD.encode(CERTIFICATE),
            ..ClusterInfo::default()
        })
    }

    async fn bearer_token(&self, _: &ClusterName) -> Result<String, CloudError> {
        tokio::task::yield_now().await;
        Ok(format!("token-{}", self.0.tokens_issued.fetch_add(1, Ordering::SeqCst)))
    }
}

/// The clock of an invocation with this much time left.
struct Left(SignedDuration);

impl Clock for Left {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
    fn deadline(&self) -> Deadline {
        Deadline(Timestamp::now() + self.0)
    }
    fn unique(&self) -> String {
        String::new()
    }
}

fn clusters(access: &Arc<Access>) -> Clusters<Shared> {
    Clusters::new(Shared(Arc::clone(access)), ConvertOptions::new(Purpose::OnRead), Arc::new(Left(SignedDuration::from_mins(1))))
}

fn access_to(urls: &[&str]) -> Arc<Access> {
    Arc::new(Access { urls: urls.iter().map(|&url| url.to_owned()).collect(), ..Access::default() })
}

/// The number of endpoint lookups and of tokens.
fn access_counts(access: &Access) -> (usize, usize) {
    (access.endpoint_reads.load(Ordering::SeqCst), access.tokens_issued.load(Ordering::SeqCst))
}

/// Six concurrent reads, as at the beginning of a run.
async fn six_reads(clusters: &Clusters<Shared>) -> Vec<Result<Vec<u8>, RequestError>> {
    let cluster = ClusterName::new("demo");
    let request = ApiRequest::get("/api/v1/nodes".to_owned());
    futures::future::join_all((0..6).map(|_| clusters.send_bytes(&cluster, &request))).await
}

fn error_of(failed: RequestError) -> ClusterError {
    failed.into_error(&"demo".into(), "nodes")
}

#[tokio::test]
async fn concurrent_reads_open_one_connection() {
    let server = Server::answering(|_, _| DONE);
    let access = access_to(&[&server.url]);
    let clusters = clusters(&access);
    assert!(six_reads(&clusters).await.iter().all(Result::is_ok));
    assert_eq!(access_counts(&access), (1, 1));
    assert!(six_reads(&clusters).await.iter().all(Result::is_ok));
    assert_eq!(access_counts(&access), (1, 1), "the connection is reused");
}

#[tokio::test]
async fn a_rejected_token_is_renewed_once_for_all_concurrent_requests() {
    let server = Server::answering(|_, head| if head.contains("token-0") { Status(401, 0) } else { DONE });
    let access = access_to(&[&server.url]);
    assert!(six_reads(&clusters(&access)).await.iter().all(Result::is_ok));
    assert_eq!(access_counts(&access), (2, 2));
}

#[tokio::test]
async fn a_failed_endpoint_lookup_is_cached_and_retried_only_if_transient() {
    for (kind, text, expected) in [
        (CloudErrorKind::NotFound, "no cluster of that name", Disposition::Fail),
        (CloudErrorKind::Unauthorized, "eks:DescribeCluster", Disposition::Fail),
        (CloudErrorKind::Throttled, "did not respond", Disposition::RetryLater),
        (CloudErrorKind::Unknown, "did not respond", Disposition::RetryLater),
    ] {
        let access = Arc::new(Access { fails: Some(kind), ..Access::default() });
        for answer in six_reads(&clusters(&access)).await {
            let error = error_of(answer.expect_err("there is no endpoint"));
            assert!(error.to_string().contains(text) && error.to_string().contains("demo"), "{error}");
            assert_eq!(HandleError::Cluster(error).disposition(), expected);
        }
        assert_eq!(access_counts(&access), (1, 0), "{kind:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_always_rejected_fails_the_run_and_names_the_remedy() {
    let server = Server::answering(|_, _| Status(401, 0));
    let answer = clusters(&access_to(&[&server.url])).send_bytes(&"demo".into(), &ApiRequest::get("/api".to_owned())).await;
    let error = error_of(answer.expect_err("it is rejected"));
    assert!(error.to_string().contains("access entry"), "{error}");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::Fail);
    assert_eq!(server.request_count(), 2);
}

#[tokio::test]
async fn a_recreated_cluster_is_reached_at_its_new_endpoint() {
    let server = Server::answering(|_, _| DONE);
    // Nothing listens on that port.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port was free");
    let access = access_to(&[&format!("http://{closed}"), &server.url]);
    let answer = clusters(&access).send_bytes(&"demo".into(), &ApiRequest::get("/api".to_owned())).await;
    assert!(answer.is_ok());
    assert_eq!(access_counts(&access), (2, 2));
}

#[tokio::test]
async fn an_unreachable_endpoint_is_reported_with_the_remedy_and_retried_later() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port was free");
    let clusters = clusters(&access_to(&[&format!("http://{closed}")]));
    let error = error_of(clusters.send_bytes(&"demo".into(), &ApiRequest::get("/api".to_owned())).await.expect_err("it is unreachable"));
    assert!(error.to_string().contains("VpcSubnets"), "{error}");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater);
}

#[tokio::test]
async fn a_read_is_retried_after_a_reset_or_throttling_within_limits() {
    let server = Server::answering(|number, _| match number {
        1 => Reset,
        2 => Status(429, 1),
        _ => DONE,
    });
    let cluster = ClusterName::new("demo");
    let request = ApiRequest::get("/api/v1/nodes".to_owned());
    assert!(clusters(&access_to(&[&server.url])).send_bytes(&cluster, &request).await.is_ok());
    assert_eq!(server.request_count(), 3);

    let server = Server::answering(|_, _| Reset);
    assert!(clusters(&access_to(&[&server.url])).send_bytes(&cluster, &request).await.is_err());
    assert_eq!(server.request_count(), 3);

    for code in [500, 502, 504] {
        let server = Server::answering(move |number, _| if number == 1 { Status(code, 0) } else { DONE });
        assert!(clusters(&access_to(&[&server.url])).send_bytes(&cluster, &request).await.is_ok());
        assert_eq!(server.request_count(), 2, "{code}");
    }

    // A body that ends too early.
    let server = Server::answering(|number, _| if number == 1 { Body("content-length: 9000\r\n", b"half of".to_vec()) } else { DONE });
    assert!(clusters(&access_to(&[&server.url])).send_bytes(&cluster, &request).await.is_ok());
    assert_eq!(server.request_count(), 2);

    let busy = Server::answering(|_, _| Status(503, 60));
    let error = clusters(&access_to(&[&busy.url])).send_bytes(&cluster, &request).await.expect_err("it is busy");
    assert!(matches!(error_of(error), ClusterError::Throttled { .. }));
    assert_eq!(busy.request_count(), 1, "a pause of a minute is not waited for");
}

#[tokio::test]
async fn a_write_is_never_sent_twice() {
    let body = serde_json::json!({});
    for answer in [|| Reset, || Status(429, 0), || Status(503, 0), || Status(500, 0)] {
        let server = Server::answering(move |_, _| answer());
        let cluster = ClusterName::new("demo");
        let clusters = clusters(&access_to(&[&server.url]));
        for request in [
            ApiRequest::post("/a".into(), &body),
            ApiRequest::merge("/a".into(), &body),
            ApiRequest::apply("/a".into(), &body),
            ApiRequest::delete("/a".into(), &body),
        ] {
            let before = server.request_count();
            assert!(clusters.send_bytes(&cluster, &request).await.is_err());
            assert_eq!(server.request_count() - before, 1, "{} to {}", request.method, server.url);
        }
    }
}

/// A list with one Node in protobuf: `n` is its name.
const NODE_IN_PROTOBUF: &[u8] = b"k8s\0\x0a\x0e\x0a\x02v1\x12\x08NodeList\x12\x09\x0a\x00\x12\x05\x0a\x03\x0a\x01n";

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory has room");
    encoder.finish().expect("memory has room")
}

#[tokio::test]
async fn nodes_and_pods_are_read_in_protobuf_all_else_in_json_and_everything_compressed() {
    let server = Server::answering(|_, head| match head {
        head if head.starts_with("GET /api/v1/nodes?") => {
            Body("content-type: application/vnd.kubernetes.protobuf\r\ncontent-encoding: gzip\r\n", gzipped(NODE_IN_PROTOBUF))
        }
        // A server without protobuf.
        head if head.starts_with("GET /api/v1/pods?") => {
            Body("content-type: application/json\r\n", br#"{"items":[{"metadata":{"name":"p","namespace":"a"}}]}"#.to_vec())
        }
        head if head.starts_with("GET /api/v1/namespaces?") => {
            Body("content-encoding: gzip\r\n", gzipped(br#"{"items":[{"metadata":{"name":"a"}}]}"#))
        }
        _ => Status(404, 0),
    });
    let clusters = clusters(&access_to(&[&server.url]));
    let objects = clusters.read(&"demo".into(), Scope::All, None).await.expect("all kinds are answered");
    let names = |names: Vec<&ObjectMeta>| names.into_iter().map(|meta| meta.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(objects.nodes.iter().map(|node| &node.metadata).collect()), ["n"]);
    assert_eq!(names(objects.pods.iter().map(|pod| &pod.metadata).collect()), ["p"]);
    assert_eq!(names(objects.namespaces.iter().map(|namespace| &namespace.metadata).collect()), ["a"]);
    for head in server.heads.lock().expect("the lock is not poisoned").iter().map(|head| head.to_lowercase()) {
        assert!(head.contains("accept-encoding: gzip\r\n"), "{head}");
        let in_protobuf = ["/api/v1/nodes", "/api/v1/pods"].iter().any(|path| head.starts_with(&format!("get {path}?")));
        let accept = if in_protobuf { "application/vnd.kubernetes.protobuf, application/json;q=0.9" } else { "application/json" };
        assert!(head.contains(&format!("\r\naccept: {accept}\r\n")), "{head}");
    }
}

#[tokio::test]
async fn a_list_that_is_cut_off_or_no_list_is_an_error() {
    for body in [&NODE_IN_PROTOBUF[..NODE_IN_PROTOBUF.len() - 1], NODE_IN_PROTOBUF, b"k8s\0", b"<html>", b"", b"{\"items\": 3}"] {
        let server = Server::answering(move |_, _| Body("", body.to_vec()));
        let error = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Pods, Some("n1")).await;
        let error = error.expect_err("the body is no list of pods");
        assert!(error.to_string().contains("pods of v1"), "{error}");
        assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater);
    }
}

#[tokio::test]
async fn a_list_whose_continue_token_expires_is_read_again_from_the_start() {
    let page = |name: &str, token: &str| {
        Body("", format!(r#"{{"metadata":{{"continue":"{token}"}},"items":[{{"metadata":{{"name":"{name}"}}}}]}}"#).into_bytes())
    };
    let server = Server::answering(move |number, head| match number {
        1 => page("a", "one"),
        2 if head.contains("continue=one") => Status(410, 0),
        3 if !head.contains("continue") => page("b", "two"),
        4 if head.contains("continue=two") => page("c", ""),
        _ => Status(404, 0),
    });
    let objects = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Pods, Some("n1")).await.expect("the second pass ends");
    assert_eq!(objects.pods.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);

    let server = Server::answering(move |_, head| if head.contains("continue") { Status(410, 0) } else { page("a", "one") });
    let error = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Pods, Some("n1")).await.expect_err("it never ends");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater);
    assert_eq!(server.request_count(), 6);
}

#[tokio::test]
async fn a_page_that_is_too_long_is_read_again_in_smaller_ones_and_no_object_is_left_out() {
    let page = |name: &str, token: &str| {
        Body("", format!(r#"{{"metadata":{{"continue":"{token}"}},"items":[{{"metadata":{{"name":"{name}"}}}}]}}"#).into_bytes())
    };
    // Longer than 64 MiB.
    let long = vec![b' '; (64 << 20) + 1];
    let server = Server::answering(move |number, head| match number {
        1 if head.contains("limit=2500&") => Body("", long.clone()),
        2 if head.contains("limit=250&") && !head.contains("continue") => page("a", "one"),
        // What follows is short: pages grow again.
        3 if head.contains("limit=500&") && head.contains("continue=one") => page("b", "two"),
        4 if head.contains("limit=1000&") && head.contains("continue=two") => page("c", ""),
        _ => Status(404, 0),
    });
    let objects = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Pods, Some("n1")).await.expect("all pages are read");
    assert_eq!(objects.pods.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(server.request_count(), 4);
}

#[tokio::test]
async fn a_list_whose_smallest_pages_are_too_long_is_an_error_and_no_empty_list() {
    let long = vec![b' '; (64 << 20) + 1];
    let server = Server::answering(move |_, _| Body("", long.clone()));
    let error = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Pods, Some("n1")).await.expect_err("nothing is read");
    assert!(error.to_string().contains("longer than 67108864 bytes"), "{error}");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater);
    assert_eq!(server.request_count(), 4, "of 2,500, 250, 25 and 10 objects");
}

/// An API server that validates whole objects, with one NodePool, and the requests that write it.
fn validating(nodeclass: &'static str) -> Server {
    Server::answering(move |_, head| {
        let stored = format!(
            r#"{{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{{"name":"default","uid":"u"}},
            "spec":{{"template":{{"spec":{{"nodeClassRef":{{{nodeclass}"name":"default"}}}}}}}}}}"#
        );
        match head {
            _ if head.starts_with("GET") => Body("", stored.into_bytes()),
            _ if head.contains("/v1beta1/") => DONE,
            _ => Status(422, 0),
        }
    })
}

#[tokio::test]
async fn what_was_written_as_v1beta1_is_written_so_where_v1_refuses_it_and_nothing_else_is() {
    let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    let paths = |server: &Server| -> Vec<String> {
        let heads = server.heads.lock().expect("the lock is not poisoned");
        heads.iter().map(|head| head.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let before = validating("");
    clusters(&access_to(&[&before.url])).write_node_pool_status(&"demo".into(), &pool).await.expect("it is written");
    let path = |version: &str| format!("/apis/karpenter.sh/{version}/nodepools/default/status");
    let look = "GET /apis/karpenter.sh/v1/nodepools/default";
    let requests = [format!("PATCH {}", path("v1")), look.to_owned(), format!("PATCH {}", path("v1beta1"))];
    assert_eq!(paths(&before), requests, "the role that may patch a status may not read it alone");
    let now = validating(r#""group":"karpenter.k8s.aws","#);
    let refused = clusters(&access_to(&[&now.url])).write_node_pool_status(&"demo".into(), &pool).await;
    assert!(matches!(refused, Err(ClusterError::Invalid { .. })), "{refused:?}");
    assert_eq!(paths(&now), [format!("PATCH {}", path("v1")), look.to_owned()]);
    let denied = Server::answering(|_, _| Status(403, 0));
    let refused = clusters(&access_to(&[&denied.url])).write_node_pool_status(&"demo".into(), &pool).await;
    assert!(refused.is_err() && denied.request_count() == 1, "a denied write is not repeated");
}

#[tokio::test]
async fn what_karpenter_left_in_a_status_takes_one_request_more_and_what_is_as_wanted_none() {
    let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    let storing = |status: &'static str, merged: u16| {
        Server::answering(move |_, head| match head.to_ascii_lowercase().contains("application/merge-patch+json") {
            true => Status(merged, 0),
            false => Body("", format!(r#"{{"metadata":{{"resourceVersion":"7"}},"status":{status}}}"#).into_bytes()),
        })
    };
    let write = async |server: &Server| clusters(&access_to(&[&server.url])).write_node_pool_status(&"demo".into(), &pool).await;
    let left = storing(r#"{"nodes":0,"resources":{"hugepages-2Mi":"0"}}"#, 200);
    write(&left).await.expect("it is written");
    assert_eq!(left.request_count(), 2);
    let changed_meanwhile = storing(r#"{"nodes":0,"resources":{"hugepages-2Mi":"0"}}"#, 409);
    write(&changed_meanwhile).await.expect("the next look tries again");
    assert_eq!(changed_meanwhile.request_count(), 2);
    let as_wanted = storing(r#"{"nodes":0}"#, 200);
    write(&as_wanted).await.expect("it is written");
    assert_eq!(as_wanted.request_count(), 1);
}

/// An older Karpenter's definition of NodePools has no `status.nodes`.
#[tokio::test]
async fn what_the_definition_of_a_kind_lacks_is_left_out_of_a_status_and_the_rest_is_written() {
    const LACKS: &str = r#"{"message":"failed to create typed patch object (/default; ...): .status.nodes: field not declared in schema"}"#;
    let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    let refusing = |body: &'static str| {
        Server::answering(move |_, head| match head.to_ascii_lowercase().contains("application/apply-patch+yaml") {
            true => Failed(500, body.as_bytes().to_vec()),
            false => Body("", br#"{"metadata":{"resourceVersion":"7"},"status":{}}"#.to_vec()),
        })
    };
    let write = async |server: &Server| clusters(&access_to(&[&server.url])).write_node_pool_status(&"demo".into(), &pool).await;
    let old = refusing(LACKS);
    write(&old).await.expect("it is written");
    let heads = old.heads.lock().expect("the lock is not poisoned").clone();
    assert!(heads.len() == 2 && heads[1].to_ascii_lowercase().contains("application/merge-patch+json"), "{heads:?}");
    let failing = refusing(r#"{"kind":"Status","code":500,"message":"etcdserver: leader changed"}"#);
    assert!(matches!(write(&failing).await, Err(ClusterError::Unavailable { .. })));
    assert_eq!(failing.request_count(), 1, "whether the apply was done is not known");
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_named_and_asked_again_later() {
    // Connections wait in its backlog.
    let slow = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", slow.local_addr().expect("it is bound"));
    let clusters = clusters(&access_to(&[&url])).with_clock(Arc::new(Left(SignedDuration::from_millis(500))));
    let begun = std::time::Instant::now();
    let error = clusters.read(&"demo".into(), Scope::Pods, Some("n1")).await.expect_err("there is no answer in time");
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "it is not waited for beyond the deadline");
    assert!(error.to_string().contains("no response within"), "{error}");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater);
}

#[tokio::test]
async fn an_item_that_is_null_hides_no_other() {
    let list =
        |items: &'static str| Server::answering(move |_, _| Body("", format!(r#"{{"metadata":{{}},"items":{items}}}"#).into_bytes()));
    let server = list(r#"[null,{"metadata":{"name":"a"}},3,null]"#);
    let objects = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Pods, Some("n1")).await.expect("a list");
    assert_eq!(objects.pods.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(objects.unreadable.len(), 3, "the others are known to be there");
    let server = list("null");
    let objects = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Pods, Some("n1")).await.expect("a list");
    assert!(objects.pods.is_empty() && objects.unreadable.is_empty());
}

/// An Event of a pod is published twice, by an API server that answers like this: the second answer, and how often it was asked.
async fn published_twice(code: u16, body: &'static str) -> (Result<(), ClusterError>, usize) {
    let server = Server::answering(move |_, _| Failed(code, body.as_bytes().to_vec()));
    let clusters = clusters(&access_to(&[&server.url]));
    let event = ClusterEvent::normal(Involved::pod(&pod_key()), "Evicted", "Evicted pod".to_owned());
    let _ = clusters.publish(&"demo".into(), &event).await;
    let second = clusters.publish(&"demo".into(), &event).await;
    (second, server.request_count())
}

#[tokio::test]
async fn an_event_that_did_not_arrive_is_said_again_and_no_other_is() {
    for code in [500, 503, 504] {
        let (answer, asked) = published_twice(code, "{}").await;
        assert!(answer.is_err() && asked == 2, "{code}: {answer:?} after {asked}");
    }
    for code in [201, 403, 404, 422] {
        let (answer, asked) = published_twice(code, "{}").await;
        assert!(answer.is_ok() && asked == 1, "{code}: {answer:?} after {asked}");
    }
}

#[tokio::test]
async fn in_a_namespace_that_is_being_deleted_nothing_is_said_and_elsewhere_a_refusal_is_an_error() {
    let first = async |body: &'static str| {
        let server = Server::answering(move |_, _| Failed(403, body.as_bytes().to_vec()));
        let event = ClusterEvent::normal(Involved::pod(&pod_key()), "Evicted", "Evicted pod".to_owned());
        clusters(&access_to(&[&server.url])).publish(&"demo".into(), &event).await
    };
    let ending = first(r#"{"message":"unable to create new content","details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#).await;
    assert!(ending.is_ok(), "{ending:?}");
    let refused = first(r#"{"message":"events is forbidden: User \"u\" cannot create resource"}"#).await;
    assert!(matches!(refused, Err(ClusterError::Invalid { .. })), "{refused:?}");
}

/// An API server that has one object, with a finalizer of ours, and answers its first changes with a conflict.
fn with_a_held_object(conflicts: usize) -> Server {
    const HELD: &[u8] = br#"{"metadata":{"name":"n","uid":"u-1","resourceVersion":"7","finalizers":["ours","theirs"]}}"#;
    Server::answering(move |number, head| match head {
        head if head.starts_with("GET ") => Body("content-type: application/json\r\n", HELD.to_vec()),
        // Each change follows a look.
        _ if number / 2 <= conflicts => Status(409, 0),
        _ => DONE,
    })
}

/// A finalizer is taken off the object of this uid: the answer, and how many requests that took.
async fn released(server: &Server, uid: &str, finalizer: &str) -> (Result<(), ClusterError>, usize) {
    let clusters = clusters(&access_to(&[&server.url]));
    let answer = clusters.remove_finalizer(&"demo".into(), "/api/v1/nodes/n", "Node n", uid, finalizer).await;
    (answer, server.request_count())
}

/// The finalizer of a Node is that of its machine, which may run.
#[tokio::test]
async fn a_finalizer_is_never_removed_from_another_object_of_the_name() {
    for (uid, finalizer, requests) in [("u-2", "ours", 1), ("u-1", "absent", 1), ("u-1", "ours", 2), ("", "ours", 2)] {
        let (answer, sent) = released(&with_a_held_object(0), uid, finalizer).await;
        assert!(answer.is_ok() && sent == requests, "{uid} {finalizer}: {answer:?} after {sent}");
    }
}

#[tokio::test]
async fn a_change_that_others_forestall_is_made_again_on_what_is_there_and_given_up_after_four_attempts() {
    for (conflicts, requests) in [(0, 2), (1, 4), (3, 8)] {
        let (answer, sent) = released(&with_a_held_object(conflicts), "u-1", "ours").await;
        assert!(answer.is_ok() && sent == requests, "{conflicts}: {answer:?} after {sent}");
    }
    let (answer, sent) = released(&with_a_held_object(4), "u-1", "ours").await;
    assert!(matches!(answer, Err(ClusterError::Conflict { .. })) && sent == 8, "{answer:?} after {sent}");
}

#[tokio::test]
async fn the_deletion_of_an_object_is_done_when_its_name_is_anothers_and_no_other_failure_counts_as_done() {
    for (code, of_uid, of_any) in [(200, true, true), (404, true, true), (409, true, false), (403, false, false), (500, false, false)] {
        let server = Server::answering(move |_, _| Status(code, 0));
        let clusters = clusters(&access_to(&[&server.url]));
        for (uid, is_done) in [("u-1", of_uid), ("", of_any)] {
            let answer = clusters.delete_of_uid(&"demo".into(), "/api/v1/nodes/n".to_owned(), "Node n", uid).await;
            assert_eq!(answer.is_ok(), is_done, "{code} {uid:?}: {answer:?}");
        }
    }
}

fn pod_key() -> PodKey {
    PodKey { namespace: "a".to_owned(), name: "p".to_owned(), uid: "u".to_owned() }
}

/// A deletion regardless of budgets, by an API server that answers evictions and deletions with these codes, and its requests.
async fn deletion(of_eviction: u16, of_deletion: u16) -> (Result<(), ClusterError>, Vec<String>) {
    let server = Server::answering(move |_, head| Status(if head.contains("/eviction") { of_eviction } else { of_deletion }, 0));
    let answer = clusters(&access_to(&[&server.url])).delete_pod(&"demo".into(), &pod_key(), 5).await;
    let heads = server.heads.lock().expect("the lock is not poisoned");
    let requests = heads.iter().map(|head| head.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" ")).collect();
    (answer, requests)
}

#[tokio::test]
async fn a_pod_is_deleted_by_an_eviction_if_nothing_forbids_it_and_in_any_case() {
    const EVICTION: &str = "POST /api/v1/namespaces/a/pods/p/eviction";
    const DELETION: &str = "DELETE /api/v1/namespaces/a/pods/p";
    let (answer, requests) = deletion(201, 500).await;
    assert!(answer.is_ok() && requests == [EVICTION], "{answer:?} {requests:?}");
    // A budget, a webhook, a namespace that is being deleted, another pod of this name, an API server in trouble.
    for code in [403, 404, 409, 422, 429, 500, 503] {
        let (answer, requests) = deletion(code, 200).await;
        assert!(answer.is_ok() && requests == [EVICTION, DELETION], "{code}: {answer:?} {requests:?}");
    }
    for gone in [404, 409] {
        let (answer, _) = deletion(gone, gone).await;
        assert!(matches!(answer, Err(ClusterError::NotFound { .. })), "{gone}: {answer:?}");
    }
    assert!(matches!(deletion(429, 403).await.0, Err(ClusterError::Invalid { .. })));
}

/// An API server that a webhook keeps waiting at each eviction, for longer than there is time for.
fn with_a_hanging_webhook() -> (Server, Arc<Access>, Clusters<Shared>) {
    let server = Server::answering(|_, head| if head.contains("/eviction") { Silence } else { DONE });
    let access = access_to(&[&server.url]);
    let left = Arc::new(Left(SignedDuration::from_millis(500)));
    let clusters = Clusters::new(Shared(Arc::clone(&access)), ConvertOptions::new(Purpose::OnRead), left);
    (server, access, clusters)
}

#[tokio::test]
async fn an_eviction_that_is_not_answered_is_the_matter_of_its_pod_alone() {
    let (server, access, clusters) = with_a_hanging_webhook();
    let answer = clusters.evict(&"demo".into(), &pod_key()).await;
    let Err(ClusterError::Invalid { what, message }) = &answer else { panic!("{answer:?}") };
    assert!(what == "Pod a/p" && message.contains("does an admission webhook"), "{what}: {message}");
    // The connection is as good as before.
    clusters.send_bytes(&"demo".into(), &ApiRequest::get("/x".to_owned())).await.expect("an answer");
    assert_eq!((server.request_count(), access_counts(&access)), (2, (1, 1)));
}

#[tokio::test]
async fn an_eviction_that_is_not_answered_costs_the_deletion_no_connection() {
    let (server, access, clusters) = with_a_hanging_webhook();
    let answer = clusters.delete_pod(&"demo".into(), &pod_key(), 5).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!((server.request_count(), access_counts(&access)), (2, (1, 1)));
}

#[tokio::test]
async fn a_webhook_that_fails_keeps_its_pod_and_no_other() {
    let refused = async |message: &'static str| {
        let server = Server::answering(move |_, _| Failed(500, message.as_bytes().to_vec()));
        clusters(&access_to(&[&server.url])).evict(&"demo".into(), &pod_key()).await
    };
    let silent = refused(r#"Internal error occurred: failed calling webhook "w": no endpoints available for service "w""#).await;
    let Err(ClusterError::Invalid { message, .. }) = &silent else { panic!("{silent:?}") };
    assert!(message.contains("no endpoints available"), "{message}");
    let other = refused("Internal error occurred: etcdserver: leader changed").await;
    assert!(matches!(other, Err(ClusterError::Unavailable { .. })), "{other:?}");
}
