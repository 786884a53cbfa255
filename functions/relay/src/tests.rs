use super::*;

const SECRET: &str = "s3cret-path";
/// Of the cluster `demo`: `printf %s demo | openssl dgst -sha256 -hmac s3cret-path`.
const DEMO: &str = "177c6c8cedfbbfd05052cbb9410fb36a6f7ff7b23036e69e268c2d8d2c6114b0";

fn settings() -> Settings {
    Settings { clusters: vec!["demo".into()], relay_secrets: vec![SECRET.to_owned()], ..Settings::default() }
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
fn check_doorbell(resource: &str, dry_run: bool, want: Option<Doorbell>) {
    let verdict = ask(&format!("/{DEMO}/demo"), &review(resource, dry_run), None).unwrap();
    assert_eq!(verdict.doorbell, want, "{resource}");
    assert_eq!(verdict.response.status, 200);
    let answer: serde_json::Value = serde_json::from_str(&verdict.response.body).unwrap();
    assert_eq!(answer["response"], serde_json::json!({"uid": "u-1", "allowed": true}));
}

#[test]
fn every_review_is_allowed_and_sends_the_doorbell_of_its_resource() {
    let cluster = ClusterName::new("demo");
    check_doorbell("events", false, Some(Doorbell::Schedule { cluster: cluster.clone() }));
    check_doorbell("nodes", false, Some(Doorbell::Register { cluster: cluster.clone() }));
    check_doorbell("nodeclaims", false, Some(Doorbell::Sweep { cluster: cluster.clone() }));
    check_doorbell("ec2nodeclasses", false, Some(Doorbell::Refresh { cluster }));
    check_doorbell("secrets", false, None);
}

#[test]
fn a_dry_run_sends_no_doorbell() {
    check_doorbell("events", true, None);
}

#[test]
fn only_the_secret_path_or_a_signature_authenticates() {
    let body = review("events", false);
    assert!(ask(&format!("/{DEMO}/demo"), &body, None).is_ok());
    assert!(ask("/demo", &body, Some("arn:aws:iam::1:role/relay")).is_ok());
    let (shorter, longer, wrong) = (&DEMO[1..], format!("{DEMO}0"), format!("0{}", &DEMO[1..]));
    for path in ["/demo", "//demo", "", "/", &format!("/{shorter}/demo"), &format!("/{longer}/demo"), &format!("/{wrong}/demo")] {
        assert_eq!(ask(path, &body, None), Err(Refusal::NotAuthenticated), "{path}");
    }
}

#[test]
fn an_empty_secret_authenticates_nothing() {
    let open = Settings { relay_secrets: vec![String::new()], ..settings() };
    let body = review("events", false);
    for path in ["/demo", "//demo", "/ /demo", &format!("/{}/demo", cluster_secret("", "demo"))] {
        assert_eq!(decide(&open, Request { path, body: &body, signed_by: None }), Err(Refusal::NotAuthenticated), "{path}");
    }
}

#[test]
fn an_unauthenticated_caller_learns_neither_clusters_nor_sizes() {
    let huge = vec![b' '; BODY_BYTES_MAX + 1];
    assert_eq!(ask("/nope/other", &huge, None), Err(Refusal::NotAuthenticated));
    let other = format!("/{}/other", cluster_secret(SECRET, "other"));
    assert_eq!(ask(&other, &huge, None), Err(Refusal::UnknownCluster("other".to_owned())));
    assert_eq!(ask(&format!("/{DEMO}/demo"), &huge, None), Err(Refusal::TooLarge));
}

#[test]
fn an_invalid_body_is_refused_without_a_doorbell() {
    for body in [&b"{}"[..], b"", b"null", b"{\"request\":{}}", b"\xff\xfe"] {
        assert!(matches!(ask(&format!("/{DEMO}/demo"), body, None), Err(Refusal::NotAReview(_))));
    }
}

#[test]
fn a_cluster_secret_equals_the_hmac_of_openssl() {
    assert_eq!(cluster_secret(SECRET, "demo"), DEMO);
    // RFC 4231, test cases 2 and 1.
    let known = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(cluster_secret("Jefe", "what do ya want for nothing?"), known);
    let known = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
    assert_eq!(cluster_secret(&"\u{b}".repeat(20), "Hi There"), known);
}

#[test]
fn the_secret_of_one_cluster_does_not_authenticate_another() {
    let two = Settings { clusters: vec!["demo".into(), "prod".into()], ..settings() };
    let body = review("events", false);
    let ask = |path: &str| decide(&two, Request { path, body: &body, signed_by: None });
    assert!(ask(&format!("/{DEMO}/demo")).is_ok());
    assert_eq!(ask(&format!("/{DEMO}/prod")), Err(Refusal::NotAuthenticated));
}

#[test]
fn a_path_of_an_earlier_release_is_refused_with_its_own_error() {
    assert_eq!(ask("/s3cret-path/demo", &review("events", false), None), Err(Refusal::OldPath));
    assert_eq!(ask("/s3cret-pat/demo", &review("events", false), None), Err(Refusal::NotAuthenticated));
    assert!(!Refusal::OldPath.to_string().contains(SECRET));
}

#[test]
fn a_replaced_secret_is_accepted_during_rotation() {
    let both = Settings { relay_secrets: vec!["new".to_owned(), SECRET.to_owned()], ..settings() };
    let body = review("events", false);
    let ask = |secret: &str| decide(&both, Request { path: &format!("/{secret}/demo"), body: &body, signed_by: None });
    assert!(ask(&cluster_secret("new", "demo")).is_ok() && ask(DEMO).is_ok());
    assert_eq!(ask(&cluster_secret("older", "demo")), Err(Refusal::NotAuthenticated));
}

#[test]
fn a_signed_caller_is_restricted_to_its_clusters() {
    let clusters = [ClusterName::new("demo"), ClusterName::new("prod")];
    let relay_callers = whittle_ports::NamePatterns::parse("demo=relay-demo", &clusters).unwrap();
    let named = Settings { clusters: clusters.to_vec(), relay_callers, ..settings() };
    let body = review("events", false);
    let caller = Some("arn:aws:sts::1:assumed-role/relay-demo/pod");
    assert!(decide(&named, Request { path: "/demo", body: &body, signed_by: caller }).is_ok());
    assert_eq!(decide(&named, Request { path: "/prod", body: &body, signed_by: caller }), Err(Refusal::NotAuthenticated));
}
