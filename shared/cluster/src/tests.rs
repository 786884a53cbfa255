//! Requests against a fake API server with scripted responses.

use crate::Clusters;
use crate::connection::{ApiRequest, RequestError};
use base64::Engine;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use whittle_api::legacy::{ConvertOptions, Purpose};
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{Clock, CloudError, CloudErrorKind, ClusterAccess, ClusterError, Deadline, Disposition, HandleError};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Any valid certificate: the server speaks plain HTTP and never presents it.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIBdjCCARugAwIBAgIUIFk8P9SiZOVY6iU9Ry0ZiVbcv0gwCgYIKoZIzj0EAwIw\nDzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjMwMjU3NDBaGA8yMTI2MTAzMDAyNTc0\nMFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC2/\nXxTlN1ieqTIy7mtcDL2LgO4E+glZ1xcdaQV9Jwbp0Dyb+bFKb+2PpcYOyKsF3hob\nrvpMX4/Vf3Uwo8LodTGjUzBRMB0GA1UdDgQWBBTgkxDxx24lcVolHbXDbKxfuQt4\ngDAfBgNVHSMEGDAWgBTgkxDxx24lcVolHbXDbKxfuQt4gDAPBgNVHRMBAf8EBTAD\nAQH/MAoGCCqGSM49BAMCA0kAMEYCIQDogJ+Wnc1w9H+R6uJXd6hPCgIMxdxNdcjb\nY9b51zLMkAIhAM4Qk12tQS64ZSUS8TAtjdyQgifUe0PA1LHTZbbIT1ew\n-----END CERTIFICATE-----";

/// The server's response to a request.
enum Answer {
    /// A status, with `retryAfterSeconds`.
    Status(u16, u32),
    /// The connection is closed without a response.
    Reset,
}
use Answer::{Reset, Status};

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
                if let Status(code, pause) = answers(number, &head) {
                    let body = format!(r#"{{"kind":"Status","code":{code},"details":{{"retryAfterSeconds":{pause}}}}}"#);
                    let length = body.len();
                    let answer = format!(
                        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                    );
                    let _ = stream.write_all(answer.as_bytes());
                }
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

/// The clock of an invocation with a minute left.
struct OneMinuteLeft;

impl Clock for OneMinuteLeft {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
    fn deadline(&self) -> Deadline {
        Deadline(Timestamp::now() + SignedDuration::from_mins(1))
    }
    fn unique(&self) -> String {
        String::new()
    }
}

fn clusters(access: &Arc<Access>) -> Clusters<Shared> {
    Clusters::new(Shared(Arc::clone(access)), ConvertOptions::new(Purpose::OnRead), Arc::new(OneMinuteLeft))
}

fn access_to(urls: &[&str]) -> Arc<Access> {
    Arc::new(Access { urls: urls.iter().map(|&url| url.to_owned()).collect(), ..Access::default() })
}

/// The number of endpoint lookups and of tokens.
fn access_counts(access: &Access) -> (usize, usize) {
    (access.endpoint_reads.load(Ordering::SeqCst), access.tokens_issued.load(Ordering::SeqCst))
}

/// Six concurrent reads, as at the beginning of a run.
async fn six_reads(clusters: &Clusters<Shared>) -> Vec<Result<String, RequestError>> {
    let cluster = ClusterName::new("demo");
    let request = ApiRequest::get("/api/v1/nodes".to_owned());
    futures::future::join_all((0..6).map(|_| clusters.send_text(&cluster, &request))).await
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
    let answer = clusters(&access_to(&[&server.url])).send_text(&"demo".into(), &ApiRequest::get("/api".to_owned())).await;
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
    let answer = clusters(&access).send_text(&"demo".into(), &ApiRequest::get("/api".to_owned())).await;
    assert!(answer.is_ok());
    assert_eq!(access_counts(&access), (2, 2));
}

#[tokio::test]
async fn an_unreachable_endpoint_is_reported_with_the_remedy_and_retried_later() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port was free");
    let clusters = clusters(&access_to(&[&format!("http://{closed}")]));
    let error = error_of(clusters.send_text(&"demo".into(), &ApiRequest::get("/api".to_owned())).await.expect_err("it is unreachable"));
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
    assert!(clusters(&access_to(&[&server.url])).send_text(&cluster, &request).await.is_ok());
    assert_eq!(server.request_count(), 3);

    let server = Server::answering(|_, _| Reset);
    assert!(clusters(&access_to(&[&server.url])).send_text(&cluster, &request).await.is_err());
    assert_eq!(server.request_count(), 3);

    let busy = Server::answering(|_, _| Status(503, 60));
    let error = clusters(&access_to(&[&busy.url])).send_text(&cluster, &request).await.expect_err("it is busy");
    assert!(matches!(error_of(error), ClusterError::Throttled { .. }));
    assert_eq!(busy.request_count(), 1, "a pause of a minute is not waited for");
}

#[tokio::test]
async fn a_write_is_never_sent_twice() {
    let body = serde_json::json!({});
    for answer in [|| Reset, || Status(429, 0), || Status(503, 0)] {
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
            assert!(clusters.send_text(&cluster, &request).await.is_err());
            assert_eq!(server.request_count() - before, 1, "{} to {}", request.method, server.url);
        }
    }
}
