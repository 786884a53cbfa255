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

/// Of nobody: the server speaks plain HTTP.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIBdjCCARugAwIBAgIUIFk8P9SiZOVY6iU9Ry0ZiVbcv0gwCgYIKoZIzj0EAwIw\nDzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjMwMjU3NDBaGA8yMTI2MTAzMDAyNTc0\nMFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC2/\nXxTlN1ieqTIy7mtcDL2LgO4E+glZ1xcdaQV9Jwbp0Dyb+bFKb+2PpcYOyKsF3hob\nrvpMX4/Vf3Uwo8LodTGjUzBRMB0GA1UdDgQWBBTgkxDxx24lcVolHbXDbKxfuQt4\ngDAfBgNVHSMEGDAWgBTgkxDxx24lcVolHbXDbKxfuQt4gDAPBgNVHRMBAf8EBTAD\nAQH/MAoGCCqGSM49BAMCA0kAMEYCIQDogJ+Wnc1w9H+R6uJXd6hPCgIMxdxNdcjb\nY9b51zLMkAIhAM4Qk12tQS64ZSUS8TAtjdyQgifUe0PA1LHTZbbIT1ew\n-----END CERTIFICATE-----";

/// What the server does with a request.
enum Answer {
    /// A status, and how many seconds to wait (0: it does not say).
    Status(u16, u32),
    Reset,
}
use Answer::{Reset, Status};

const DONE: Answer = Status(200, 0);

/// A server that answers each request with the next answer of the list, and with the last one from then on.
struct Server {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
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
                    let mut requests = requests.lock().expect("nobody panics");
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
        self.heads.lock().expect("nobody panics").len()
    }
}

/// Gives these addresses one after the other (the last one for good), and a new token each time.
#[derive(Default)]
struct Access {
    urls: Vec<String>,
    fails: Option<CloudErrorKind>,
    doors: AtomicUsize,
    tokens: AtomicUsize,
}

/// The same for all that look at it.
#[derive(Clone)]
struct Shared(Arc<Access>);

impl ClusterAccess for Shared {
    async fn door(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        let number = self.0.doors.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        if let Some(kind) = self.0.fails {
            return Err(CloudError { kind, call: "DescribeCluster", code: "Code".to_owned(), message: "said no".to_owned() });
        }
        Ok(ClusterInfo {
            name: cluster.clone(),
            endpoint: self.0.urls.get(number).or(self.0.urls.last()).expect("an address").clone(),
            certificate_authority: base64::engine::general_purpose::STANDARD.encode(CERTIFICATE),
            ..ClusterInfo::default()
        })
    }

    async fn bearer_token(&self, _: &ClusterName) -> Result<String, CloudError> {
        tokio::task::yield_now().await;
        Ok(format!("token-{}", self.0.tokens.fetch_add(1, Ordering::SeqCst)))
    }
}

/// An invocation that has a minute left.
struct Minute;

impl Clock for Minute {
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
    Clusters::new(Shared(Arc::clone(access)), ConvertOptions::new(Purpose::OnRead), Arc::new(Minute))
}

fn access_to(urls: &[&str]) -> Arc<Access> {
    Arc::new(Access { urls: urls.iter().map(|&url| url.to_owned()).collect(), ..Access::default() })
}

fn opened(access: &Access) -> (usize, usize) {
    (access.doors.load(Ordering::SeqCst), access.tokens.load(Ordering::SeqCst))
}

/// Six reads at once, as a run begins.
async fn six(clusters: &Clusters<Shared>) -> Vec<Result<String, RequestError>> {
    let cluster = ClusterName::new("demo");
    let request = ApiRequest::get("/api/v1/nodes".to_owned());
    futures::future::join_all((0..6).map(|_| clusters.send_text(&cluster, &request))).await
}

fn error_of(failed: RequestError) -> ClusterError {
    failed.into_error(&"demo".into(), "nodes")
}

#[tokio::test]
async fn six_reads_at_once_open_one_door() {
    let server = Server::answering(|_, _| DONE);
    let access = access_to(&[&server.url]);
    let clusters = clusters(&access);
    assert!(six(&clusters).await.iter().all(Result::is_ok));
    assert_eq!(opened(&access), (1, 1));
    assert!(six(&clusters).await.iter().all(Result::is_ok));
    assert_eq!(opened(&access), (1, 1), "it stays open");
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_all_that_had_it() {
    let server = Server::answering(|_, head| if head.contains("token-0") { Status(401, 0) } else { DONE });
    let access = access_to(&[&server.url]);
    assert!(six(&clusters(&access)).await.iter().all(Result::is_ok));
    assert_eq!(opened(&access), (2, 2));
}

#[tokio::test]
async fn a_cluster_that_does_not_exist_is_asked_for_once_and_is_a_persons_to_mend() {
    for (kind, text, expected) in [
        (CloudErrorKind::NotFound, "no cluster of that name", Disposition::Fail),
        (CloudErrorKind::Unauthorized, "eks:DescribeCluster", Disposition::Fail),
        (CloudErrorKind::Throttled, "did not answer", Disposition::RetryLater),
        (CloudErrorKind::Unknown, "did not answer", Disposition::RetryLater),
    ] {
        let access = Arc::new(Access { fails: Some(kind), ..Access::default() });
        for answer in six(&clusters(&access)).await {
            let error = error_of(answer.expect_err("it cannot be opened"));
            assert!(error.to_string().contains(text) && error.to_string().contains("demo"), "{error}");
            assert_eq!(HandleError::Cluster(error).disposition(), expected);
        }
        assert_eq!(opened(&access), (1, 0), "{kind:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_never_accepted_is_a_persons_to_mend() {
    let server = Server::answering(|_, _| Status(401, 0));
    let answer = clusters(&access_to(&[&server.url])).send_text(&"demo".into(), &ApiRequest::get("/api".to_owned())).await;
    let error = error_of(answer.expect_err("it is refused"));
    assert!(error.to_string().contains("access entry"), "{error}");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::Fail);
    assert_eq!(server.request_count(), 2);
}

#[tokio::test]
async fn a_cluster_that_was_made_anew_is_found_at_its_new_address() {
    let server = Server::answering(|_, _| DONE);
    // Nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port was free");
    let access = access_to(&[&format!("http://{closed}"), &server.url]);
    let answer = clusters(&access).send_text(&"demo".into(), &ApiRequest::get("/api".to_owned())).await;
    assert!(answer.is_ok());
    assert_eq!(opened(&access), (2, 2));
}

#[tokio::test]
async fn an_endpoint_that_nobody_answers_at_is_named_with_the_remedy_and_tried_again_later() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port was free");
    let clusters = clusters(&access_to(&[&format!("http://{closed}")]));
    let error = error_of(clusters.send_text(&"demo".into(), &ApiRequest::get("/api".to_owned())).await.expect_err("nobody answers"));
    assert!(error.to_string().contains("VpcSubnets"), "{error}");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater);
}

#[tokio::test]
async fn a_read_is_sent_again_after_a_reset_or_a_throttle_but_not_for_ever() {
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
    assert_eq!(busy.request_count(), 1, "a minute is not waited for");
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
