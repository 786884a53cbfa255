use super::*;

const SECRET: &str = "s3cret-path";

fn settings() -> Settings {
    Settings { clusters: vec!["demo".into()], relay_secret: SECRET.to_owned(), ..Settings::default() }
}

fn review(resource: &str, dry_run: bool) -> Vec<u8> {
    let review = serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u-1", "resource": {"group": "", "version": "v1", "resource": resource}, "dryRun": dry_run, "object": {"a": 1}}});
    review.to_string().into_bytes()
}

fn ask(path: &str, body: &[u8], signed_by: Option<&str>) -> Result<Verdict, Refusal> {
    decide(&settings(), Request { path, body, signed_by })
}

#[track_caller]
fn check_bell(resource: &str, dry_run: bool, want: Option<Doorbell>) {
    let verdict = ask("/s3cret-path/demo", &review(resource, dry_run), None).unwrap();
    assert_eq!(verdict.bell, want, "{resource}");
    assert_eq!(verdict.response.status, 200);
    let answer: serde_json::Value = serde_json::from_str(&verdict.response.body).unwrap();
    assert_eq!(answer["response"], serde_json::json!({"uid": "u-1", "allowed": true}));
}

#[test]
fn every_review_is_allowed_and_rings_for_its_resource() {
    let cluster = ClusterName::new("demo");
    check_bell("events", false, Some(Doorbell::Schedule { cluster: cluster.clone() }));
    check_bell("nodes", false, Some(Doorbell::Register { cluster: cluster.clone() }));
    check_bell("nodeclaims", false, Some(Doorbell::Sweep { cluster: cluster.clone() }));
    check_bell("ec2nodeclasses", false, Some(Doorbell::Refresh { cluster }));
    check_bell("secrets", false, None);
}

#[test]
fn a_dry_run_rings_nothing() {
    check_bell("events", true, None);
}

#[test]
fn only_the_secret_path_or_a_signature_lets_in() {
    let body = review("events", false);
    assert!(ask("/s3cret-path/demo", &body, None).is_ok());
    assert!(ask("/demo", &body, Some("arn:aws:iam::1:role/relay")).is_ok());
    for path in ["/demo", "/wrong-secrt/demo", "/s3cret-pat/demo", "/s3cret-path-and-more/demo", "//demo", "", "/"] {
        assert_eq!(ask(path, &body, None), Err(Refusal::NotAuthenticated), "{path}");
    }
}

#[test]
fn an_empty_secret_lets_nobody_in() {
    let open = Settings { relay_secret: String::new(), ..settings() };
    let body = review("events", false);
    for path in ["/demo", "//demo", "/ /demo"] {
        assert_eq!(decide(&open, Request { path, body: &body, signed_by: None }), Err(Refusal::NotAuthenticated), "{path}");
    }
}

#[test]
fn a_stranger_learns_neither_clusters_nor_sizes() {
    let huge = vec![b' '; BODY_BYTES_MAX + 1];
    assert_eq!(ask("/nope/other", &huge, None), Err(Refusal::NotAuthenticated));
    assert_eq!(ask("/s3cret-path/other", &huge, None), Err(Refusal::UnknownCluster("other".to_owned())));
    assert_eq!(ask("/s3cret-path/demo", &huge, None), Err(Refusal::TooLarge(BODY_BYTES_MAX + 1)));
}

#[test]
fn what_is_no_review_is_refused_without_a_bell() {
    for body in [&b"{}"[..], b"", b"null", b"{\"request\":{}}", b"\xff\xfe"] {
        assert!(matches!(ask("/s3cret-path/demo", body, None), Err(Refusal::NotAReview(_))));
    }
}
