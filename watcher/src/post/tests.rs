use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn moment() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn header<'a>(request: &'a http::Request<Vec<u8>>, name: &str) -> &'a str {
    request.headers().get(name).map(|value| value.to_str().expect("it is text")).unwrap_or_default()
}

#[test]
fn a_post_is_signed_for_lambda_in_the_region_of_its_url() {
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", Some("token".to_owned()), None, "tests");
    let url: http::Uri = "https://abc.lambda-url.eu-central-1.on.aws/prod".parse().expect("it is a URL");
    let of =
        |region: &str, body: &[u8]| signed(&url, &Region::new(region), body.to_vec(), &credentials, moment()).expect("it can be signed");
    let request = of("eu-central-1", b"{}");
    let authorization = header(&request, "authorization").to_owned();
    let start =
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20270115/eu-central-1/lambda/aws4_request, SignedHeaders=content-type;host;x-amz-date";
    assert!(authorization.starts_with(start), "{authorization}");
    assert_eq!(header(&request, "x-amz-date"), "20270115T080000Z");
    assert_eq!((header(&request, "x-amz-security-token"), header(&request, "host")), ("token", "abc.lambda-url.eu-central-1.on.aws"));
    assert_ne!(header(&of("eu-central-1", b"{ }"), "authorization"), authorization, "the body is signed");
    assert!(!format!("{:?}", request.headers()).contains("secret"));
}

#[test]
fn what_the_relay_refuses_is_repeated_more_slowly() {
    for (status, failure) in [(400, Failure::Refused), (403, Failure::Refused), (429, Failure::Unavailable), (503, Failure::Unavailable)] {
        assert_eq!(PostError::Answered { status, text: String::new() }.failure(), failure, "{status}");
    }
    assert_eq!(PostError::TimedOut.failure(), Failure::Unavailable);
}

/// Credentials that last this long from the second call on, after which there are none.
#[derive(Debug)]
struct Provider(AtomicUsize, Duration);

impl ProvideCredentials for Provider {
    fn provide_credentials<'a>(&'a self) -> aws_credential_types::provider::future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let outcome = match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Credentials::new("AKID", "secret", None, Some(moment() + self.1), "tests")),
            _ => Err(CredentialsError::provider_error("out of order")),
        };
        aws_credential_types::provider::future::ProvideCredentials::ready(outcome)
    }
}

/// Credentials that last this long, and no answer from the second call on.
#[derive(Debug)]
struct Silent(AtomicUsize, Duration);

impl ProvideCredentials for Silent {
    fn provide_credentials<'a>(&'a self) -> aws_credential_types::provider::future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
        aws_credential_types::provider::future::ProvideCredentials::new(async move {
            if !is_first {
                std::future::pending::<()>().await;
            }
            Ok(Credentials::new("AKID", "secret", None, Some(moment() + self.1), "tests"))
        })
    }
}

fn poster(url: &str, provider: impl ProvideCredentials + 'static) -> Poster {
    Poster::new(url.parse().expect("a URL"), "prod".into(), "us-west-2".into(), SharedCredentialsProvider::new(provider))
        .expect("certificates")
}

#[tokio::test]
async fn credentials_are_kept_and_used_to_their_end_if_there_are_no_new_ones() {
    let poster = poster("http://127.0.0.1:9/prod", Provider(AtomicUsize::new(0), Duration::from_secs(900)));
    for seconds in [0, 599, 600, 899] {
        assert!(poster.credentials(moment() + Duration::from_secs(seconds), RENEWAL_MAX).await.is_ok(), "{seconds}");
    }
    assert!(matches!(poster.credentials(moment() + Duration::from_secs(900), RENEWAL_MAX).await, Err(PostError::Credentials(_))));
}

#[tokio::test]
async fn a_renewal_without_an_answer_costs_no_post_while_credentials_last() {
    let poster = poster("http://127.0.0.1:9/prod", Silent(AtomicUsize::new(0), Duration::from_secs(900)));
    let at = |seconds| poster.credentials(moment() + Duration::from_secs(seconds), Duration::from_millis(10));
    for seconds in [0, 600, 899] {
        let credentials = timeout(POST_MAX, at(seconds)).await.expect("it waits no longer than it has patience").expect("they last");
        assert_eq!(credentials.access_key_id(), "AKID", "{seconds}");
    }
    assert!(timeout(Duration::from_millis(50), at(900)).await.is_err(), "without any, it waits for as long as the post may");
    const { assert!(RENEWAL_MAX.as_secs() + CONNECT_MAX.as_secs() < POST_MAX.as_secs(), "the rest of the post has its time") };
}

#[tokio::test]
async fn credentials_that_were_refused_are_not_used_again() {
    let kinds = BTreeSet::from([PostKind::Pods]);
    let provider = || Provider(AtomicUsize::new(0), Duration::from_secs(1 << 40));
    for (answer, is_asked_again) in [
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", true),
        ("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\nno", false),
        ("HTTP/1.1 503 Unavailable\r\ncontent-length: 2\r\n\r\nno", false),
    ] {
        let (url, _) = answering(answer).await;
        let poster = poster(&url, provider());
        poster.post(&kinds, None).await.expect_err(answer);
        // There is nothing to be had when it asks again.
        let next = poster.credentials(SystemTime::now(), RENEWAL_MAX).await;
        assert_eq!(matches!(next, Err(PostError::Credentials(_))), is_asked_again, "{answer}");
    }
}

/// A server that gives one answer; returns its address, and what it has read.
async fn answering(answer: &'static str) -> (String, Arc<std::sync::Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let read = Arc::new(std::sync::Mutex::new(String::new()));
    let kept = Arc::clone(&read);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the poster connects");
        let mut bytes = [0; 4096];
        let mut text = String::new();
        while !text.ends_with('}') {
            let count = stream.read(&mut bytes).await.expect("the poster writes");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        *kept.lock().expect("not poisoned") = text;
        stream.write_all(answer.as_bytes()).await.expect("the poster reads");
    });
    (format!("http://{address}/prod"), read)
}

#[tokio::test]
async fn a_post_names_the_cluster_and_the_kinds_and_its_answer_counts() {
    let (url, read) = answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    let kinds = BTreeSet::from([PostKind::Pods, PostKind::Deletions]);
    let provider = || Provider(AtomicUsize::new(0), Duration::from_secs(1 << 40));
    poster(&url, provider()).post(&kinds, None).await.expect("it was taken");
    let read = read.lock().expect("not poisoned").clone();
    assert!(read.starts_with("POST /prod HTTP/1.1\r\n") && read.contains("AWS4-HMAC-SHA256"), "{read}");
    let body: WatcherPost = serde_json::from_str(read.rsplit("\r\n\r\n").next().expect("it has a body")).expect("it is a post");
    assert!(body.cluster.as_str() == "prod" && body.is_fresh(Timestamp::now()) && body.known_kinds().eq(kinds.iter().copied()), "{body:?}");

    let (url, _) = answering("HTTP/1.1 503 Unavailable\r\ncontent-length: 2\r\n\r\nno").await;
    let error = poster(&url, provider()).post(&kinds, None).await.expect_err("it was not taken");
    assert_eq!(error.to_string(), "the relay answered 503: no");
    let error = poster("http://127.0.0.1:9/prod", provider()).post(&kinds, None).await.expect_err("nobody listens");
    assert!(matches!(error, PostError::Unreachable(_)), "{error:?}");
}
