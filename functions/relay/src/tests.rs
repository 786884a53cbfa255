use super::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use whittle_claims::PostKind;
use whittle_ports::QueueError;

const SECRET: &str = "s3cret-path";
/// Of the cluster `demo`: `printf %s demo | openssl dgst -sha256 -hmac s3cret-path`.
const DEMO: &str = "177c6c8cedfbbfd05052cbb9410fb36a6f7ff7b23036e69e268c2d8d2c6114b0";

fn settings() -> Settings {
    Settings { clusters: vec!["demo".into(), "second".into()], relay_secrets: vec![SECRET.to_owned()], ..Settings::default() }
}

fn review(resource: &str, dry_run: bool) -> Vec<u8> {
    let review = serde_json::json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u-1", "resource": {"group": "", "version": "v1", "resource": resource}, "dryRun": dry_run, "object": {"a": 1}}});
    review.to_string().into_bytes()
}

/// When requests come in.
fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("in range")
}

fn ask(path: &str, body: &[u8], signed_by: Option<&str>) -> Result<Verdict, Refusal> {
    decide(&settings(), Request { path, body, signed_by, alias: None }, now())
}

const WATCHER: &str = "arn:aws:sts::1:assumed-role/watcher-demo/pod";

/// A post at the URL of the cluster `demo`.
fn post(path: &str, body: &[u8], signed_by: Option<&str>) -> Result<Verdict, Refusal> {
    decide(&settings(), Request { path, body, signed_by, alias: Some("demo") }, now())
}

fn post_of(of: &str, age_seconds: i64, kinds: &[PostKind]) -> Vec<u8> {
    let sent_at = now() - SignedDuration::from_secs(age_seconds);
    serde_json::to_vec(&WatcherPost::new(of.into(), sent_at, kinds.iter().copied())).unwrap()
}

#[track_caller]
fn check_doorbell(resource: &str, dry_run: bool, want: Option<Doorbell>) {
    let verdict = ask(&format!("/{DEMO}/demo"), &review(resource, dry_run), None).unwrap();
    // The queue of plans leaves out repetitions itself.
    let is_gathered = resource != "events";
    // What is not stored yet would be missed until the scheduled refresh.
    let delay = SignedDuration::from_secs(i64::from(resource == "ec2nodeclasses"));
    let want = want.map(|doorbell| Ring { delay, is_gathered, ..Ring::now(doorbell) });
    assert_eq!(verdict.rings, Vec::from_iter(want), "{resource}");
    assert_eq!(verdict.response.status, 200);
    let answer: serde_json::Value = serde_json::from_str(&verdict.response.body).unwrap();
    assert_eq!(answer["response"], serde_json::json!({"uid": "u-1", "allowed": true}));
}

#[test]
fn every_review_is_allowed_and_sends_the_doorbell_of_its_resource() {
    let cluster = ClusterName::new("demo");
    check_doorbell("events", false, Some(Doorbell::Schedule { cluster: cluster.clone() }));
    check_doorbell("nodes", false, Some(Doorbell::register(cluster.clone())));
    check_doorbell("nodeclaims", false, Some(Doorbell::sweep(cluster.clone())));
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
        assert_eq!(
            decide(&open, Request { path, body: &body, signed_by: None, alias: None }, now()),
            Err(Refusal::NotAuthenticated),
            "{path}"
        );
    }
}

#[test]
fn an_unauthenticated_caller_learns_neither_clusters_nor_sizes() {
    let huge = vec![b' '; BODY_BYTES_MAX + 1];
    assert_eq!(ask("/nope/other", &huge, None), Err(Refusal::NotAuthenticated));
    let other = format!("/{}/other", cluster_secret(SECRET, "other"));
    assert_eq!(ask(&other, &huge, None), Err(Refusal::UnknownCluster("other".to_owned())));
    assert_eq!(ask(&format!("/{DEMO}/demo"), &huge, None), Err(Refusal::TooLarge(BODY_BYTES_MAX)));
}

#[test]
fn a_review_as_large_as_a_body_may_be_rings_and_a_larger_one_never() {
    let path = format!("/{DEMO}/demo");
    let callers = [(path.as_str(), None), ("/demo", Some(WATCHER))];
    let mut body = review("events", false);
    body.resize(BODY_BYTES_MAX, b' ');
    for (path, signed_by) in callers {
        assert_eq!(ask(path, &body, signed_by).unwrap().rings.len(), 1, "{path}");
    }
    body.push(b' ');
    for (path, signed_by) in callers {
        assert_eq!(ask(path, &body, signed_by), Err(Refusal::TooLarge(BODY_BYTES_MAX)), "{path}");
    }
}

/// EC2 takes 16 KiB of user data. `kubectl apply` keeps what it applied in an annotation, and a review has the object before and after.
#[test]
fn an_edited_node_class_with_the_largest_user_data_rings() {
    let user_data = "echo \"1\"\n".repeat(16 * 1024 / 9);
    let mut class = serde_json::json!({"metadata": {"name": "default"}, "spec": {"userData": user_data}});
    class["metadata"]["annotations"] = serde_json::json!({"kubectl.kubernetes.io/last-applied-configuration": class.to_string()});
    let resource = serde_json::json!({"group": "karpenter.k8s.aws", "version": "v1", "resource": "ec2nodeclasses"});
    let request = serde_json::json!({"uid": "u", "resource": resource, "operation": "UPDATE", "object": class, "oldObject": class});
    let body = serde_json::json!({"request": request}).to_string();
    assert!(body.len() > 100_000, "{}", body.len());
    let verdict = ask(&format!("/{DEMO}/demo"), body.as_bytes(), None).unwrap();
    assert_eq!(verdict.rings.into_iter().map(|ring| ring.doorbell).collect::<Vec<_>>(), [Doorbell::Refresh { cluster: "demo".into() }]);
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
    let ask = |path: &str| decide(&two, Request { path, body: &body, signed_by: None, alias: None }, now());
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
    let ask = |secret: &str| decide(&both, Request { path: &format!("/{secret}/demo"), body: &body, signed_by: None, alias: None }, now());
    assert!(ask(&cluster_secret("new", "demo")).is_ok() && ask(DEMO).is_ok());
    assert_eq!(ask(&cluster_secret("older", "demo")), Err(Refusal::NotAuthenticated));
}

#[test]
fn a_signed_caller_is_restricted_to_its_clusters() {
    let clusters = [ClusterName::new("demo"), ClusterName::new("prod")];
    let relay_callers = whittle_ports::NamePatterns::parse("demo=relay-demo").unwrap();
    let named = Settings { clusters: clusters.to_vec(), relay_callers, ..settings() };
    let body = review("events", false);
    let caller = Some("arn:aws:sts::1:assumed-role/relay-demo/pod");
    assert!(decide(&named, Request { path: "/demo", body: &body, signed_by: caller, alias: None }, now()).is_ok());
    assert_eq!(
        decide(&named, Request { path: "/prod", body: &body, signed_by: caller, alias: None }, now()),
        Err(Refusal::NotAuthenticated)
    );
}

#[test]
fn a_deletion_is_looked_at_once_it_is_stored() {
    for resource in ["nodes", "nodeclaims"] {
        let request = serde_json::json!({"uid": "u", "resource": {"resource": resource}, "operation": "DELETE", "oldObject": {}});
        let verdict = ask(&format!("/{DEMO}/demo"), serde_json::json!({"request": request}).to_string().as_bytes(), None).unwrap();
        let ring = Ring { delay: SignedDuration::from_secs(1), is_gathered: true, ..Ring::now(Doorbell::sweep("demo".into())) };
        assert_eq!(verdict.rings, [ring], "{resource}");
    }
}

/// Nobody reads the queue of `sweep` then.
#[test]
fn where_one_cluster_is_served_register_is_rung_for_deletions_and_everything_else_stays() {
    let one = Settings { clusters: vec!["demo".into()], ..settings() };
    let rings = |settings: &Settings, path: &str, body: &[u8], signed_by: Option<&str>| {
        let verdict = decide(settings, Request { path, body, signed_by, alias: None }, now()).expect("it is authenticated");
        assert_eq!(verdict.response.status, 200);
        verdict.rings
    };
    let deletions = Doorbell::Deletions { cluster: "demo".into() };
    for resource in ["nodes", "nodeclaims"] {
        let request = serde_json::json!({"uid": "u", "resource": {"resource": resource}, "operation": "DELETE", "oldObject": {}});
        let body = serde_json::json!({"request": request}).to_string().into_bytes();
        let ring = Ring { delay: SignedDuration::from_secs(1), is_gathered: true, ..Ring::now(deletions.clone()) };
        assert_eq!(rings(&one, &format!("/{DEMO}/demo"), &body, None), [ring], "{resource}");
        let several = rings(&settings(), &format!("/{DEMO}/demo"), &body, None);
        assert_eq!(several[0].doorbell, Doorbell::sweep("demo".into()), "{resource}");
    }
    let posted = post_of("demo", 0, &PostKind::ALL);
    let (of_one, of_several) = (rings(&one, "/demo", &posted, Some(WATCHER)), rings(&settings(), "/demo", &posted, Some(WATCHER)));
    let differ = |(one, several): &(Ring, Ring)| one != several;
    let changed: Vec<(Ring, Ring)> = of_one.into_iter().zip(of_several).filter(differ).collect();
    assert_eq!(changed, [(Ring::now(deletions), Ring::now(Doorbell::sweep("demo".into())))]);
}

#[test]
fn a_node_pool_or_node_class_is_looked_at_once_it_is_stored() {
    for (resource, operation, sub_resource) in [
        ("nodepools", "CREATE", None),
        ("nodepools", "UPDATE", None),
        ("nodepools", "UPDATE", Some("scale")),
        ("ec2nodeclasses", "CREATE", None),
        ("ec2nodeclasses", "UPDATE", None),
        ("ec2nodeclasses", "DELETE", None),
        ("provisioners", "UPDATE", None),
        ("awsnodetemplates", "UPDATE", None),
    ] {
        let request = serde_json::json!({
            "uid": "u", "resource": {"resource": resource}, "subResource": sub_resource, "operation": operation, "object": {},
        });
        let verdict = ask(&format!("/{DEMO}/demo"), serde_json::json!({"request": request}).to_string().as_bytes(), None).unwrap();
        let doorbell = Doorbell::Refresh { cluster: "demo".into() };
        let ring = Ring { delay: SignedDuration::from_secs(1), is_gathered: true, ..Ring::now(doorbell) };
        assert_eq!(verdict.rings, [ring], "{operation} {resource} {sub_resource:?}");
    }
}

#[test]
fn one_post_of_a_watcher_sends_the_doorbell_of_every_kind() {
    let cluster = ClusterName::new("demo");
    let verdict = post("/demo", &post_of("demo", 0, &PostKind::ALL), Some(WATCHER)).unwrap();
    let (schedule, register) = (Doorbell::Schedule { cluster: cluster.clone() }, Doorbell::register(cluster.clone()));
    let expected = [schedule, register, Doorbell::sweep(cluster.clone()), Doorbell::Refresh { cluster }];
    assert_eq!(verdict.rings, expected.map(Ring::now));
    assert_eq!(verdict.response.status, 200);
    assert_eq!(
        ask("/demo", &post_of("demo", 0, &[PostKind::Pods]), Some(WATCHER)).unwrap().rings.len(),
        1,
        "also where one URL serves all"
    );
}

#[test]
fn what_a_watcher_has_seen_of_pods_goes_with_the_doorbell_for_plans_alone() {
    let posted = |seen: &str| {
        let kinds = [PostKind::Pods, PostKind::Nodes];
        let body = WatcherPost { seen: Some(seen.to_owned()), ..WatcherPost::new("demo".into(), now(), kinds) };
        let verdict = post("/demo", &serde_json::to_vec(&body).unwrap(), Some("arn:aws:sts::1:assumed-role/watcher/x")).unwrap();
        verdict.rings.into_iter().map(|ring| ring.seen).collect::<Vec<_>>()
    };
    assert_eq!(posted("4711"), [Some("4711".to_owned()), None]);
    assert_eq!(posted("no version"), [None, None]);
}

#[test]
fn the_url_of_one_cluster_takes_no_other_cluster_and_no_secret() {
    let two = Settings { clusters: vec!["demo".into(), "prod".into()], ..settings() };
    let at = |alias: &str, path: &str, body: &[u8], signed_by: Option<&str>| {
        decide(&two, Request { path, body, signed_by, alias: Some(alias) }, now()).map(|_| ())
    };
    let of_demo = post_of("demo", 0, &[PostKind::Pods]);
    assert_eq!(at("demo", "/demo", &of_demo, Some(WATCHER)), Ok(()));
    assert_eq!(at("prod", "/demo", &of_demo, Some(WATCHER)), Err(Refusal::NotAuthenticated));
    assert_eq!(at("demo", "/prod", &post_of("prod", 0, &[PostKind::Pods]), Some(WATCHER)), Err(Refusal::NotAuthenticated));
    let other = Refusal::OtherCluster { path: "prod".into(), body: "demo".into() };
    assert_eq!(at("prod", "/prod", &of_demo, Some(WATCHER)), Err(other));
    assert_eq!(at("demo", "/demo", &of_demo, None), Err(Refusal::NotAuthenticated));
    assert_eq!(at("demo", &format!("/{DEMO}/demo"), &review("events", false), None), Err(Refusal::NotAuthenticated));
    assert!(matches!(at("demo", "/demo", &review("events", false), Some(WATCHER)), Err(Refusal::NotAPost(_))));
}

#[test]
fn a_webhook_cannot_post_as_a_watcher() {
    let refused = ask(&format!("/{DEMO}/demo"), &post_of("demo", 0, &[PostKind::Pods]), None);
    assert!(matches!(refused, Err(Refusal::NotAReview(_))), "{refused:?}");
}

#[test]
fn a_recorded_post_is_refused_after_a_minute() {
    for age in [-61, 61, 3600] {
        let refused = post("/demo", &post_of("demo", age, &[PostKind::Pods]), Some(WATCHER)).unwrap_err();
        assert!(matches!(refused, Refusal::Stale(_)) && refused.to_string().contains("60 s"), "{refused}");
    }
    assert!(post("/demo", &post_of("demo", 59, &[PostKind::Pods]), Some(WATCHER)).is_ok());
}

#[test]
fn an_invalid_post_is_refused_without_a_doorbell() {
    let of = |body: &[u8]| post("/demo", body, Some(WATCHER)).unwrap_err().status();
    for body in [&b""[..], b"{}", b"null", b"\xff\xfe", br#"{"version":1,"cluster":"demo","kinds":["pods"]}"#, b"[[[[[[[[[["] {
        assert_eq!(of(body), 400, "{}", String::from_utf8_lossy(body));
    }
    let next = String::from_utf8(post_of("demo", 0, &[PostKind::Pods])).unwrap().replace("\"version\":1", "\"version\":2");
    assert_eq!(post("/demo", next.as_bytes(), Some(WATCHER)), Err(Refusal::UnknownVersion(2)));
    let mut large = post_of("demo", 0, &[PostKind::Pods]);
    large.resize(POST_BYTES_MAX + 1, b' ');
    assert_eq!(post("/demo", &large, Some(WATCHER)), Err(Refusal::TooLarge(POST_BYTES_MAX)));
    large.pop();
    assert!(post("/demo", &large, Some(WATCHER)).is_ok(), "the limit is inclusive");
}

#[test]
fn kinds_of_a_later_watcher_are_ignored() {
    let later = String::from_utf8(post_of("demo", 0, &[PostKind::Nodes])).unwrap().replace("[", "[\"volumes\",");
    let verdict = post("/demo", later.as_bytes(), Some(WATCHER)).unwrap();
    assert_eq!(verdict.rings, [Ring::now(Doorbell::register("demo".into()))]);
}

/// Queues that take doorbells until they have as many as they may.
struct Room(Mutex<Vec<Doorbell>>, usize);

impl Queues for Room {
    async fn send(&self, doorbell: Doorbell, _: SignedDuration) -> Result<(), QueueError> {
        let mut sent = self.0.lock().unwrap();
        if sent.len() == self.1 {
            return Err(QueueError { cluster: doorbell.cluster().to_string(), reason: "throttled".to_owned() });
        }
        sent.push(doorbell);
        Ok(())
    }
}

/// A clock that stands.
struct At(Timestamp);

impl Clock for At {
    fn now(&self) -> Timestamp {
        self.0
    }
    fn deadline(&self) -> whittle_ports::Deadline {
        whittle_ports::Deadline(self.0)
    }
    fn unique(&self) -> String {
        "unique".to_owned()
    }
}

/// Handles a request when the queues take this many doorbells: the status, and what was counted.
fn handled(request: Request<'_>, room: usize) -> (u16, Report) {
    handled_after(&Recent::new(), request, room)
}

/// The same in an environment that sent doorbells before.
fn handled_after(recent: &Recent, request: Request<'_>, room: usize) -> (u16, Report) {
    let queues = Room(Mutex::default(), room);
    let ports = whittle_ports::Adapters { store: &(), cloud: &(), cluster: &(), queues: &queues, clock: &At(now()) };
    let settings = settings();
    let mut handling = std::pin::pin!(handle(ports, &settings, recent, request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match handling.as_mut().poll(&mut context) {
        std::task::Poll::Ready(outcome) => outcome.map(|(response, report)| (response.status, report)).unwrap(),
        std::task::Poll::Pending => panic!("nothing waits here"),
    }
}

#[test]
fn a_watcher_learns_that_a_doorbell_was_not_sent_and_a_webhook_does_not() {
    let body = post_of("demo", 0, &PostKind::ALL);
    let request = Request { path: "/demo", body: &body, signed_by: Some(WATCHER), alias: Some("demo") };
    let (status, report) = handled(request, 4);
    assert_eq!((status, report.counted("rung"), report.counted("not_rung")), (200, 4, 0));
    let (status, report) = handled(request, 3);
    assert_eq!((status, report.counted("rung"), report.counted("not_rung")), (503, 3, 1), "it posts again");
    let (path, body) = (format!("/{DEMO}/demo"), review("events", false));
    let (status, report) = handled(Request { path: &path, body: &body, signed_by: None, alias: None }, 0);
    assert_eq!((status, report.counted("not_rung")), (200, 1), "the API server is never told to refuse an event");
}

#[test]
fn a_refused_post_is_counted() {
    for body in [&b"{}"[..], &post_of("other", 0, &[PostKind::Pods]), &post_of("demo", 100, &[PostKind::Pods])] {
        let (status, report) = handled(Request { path: "/demo", body, signed_by: Some(WATCHER), alias: Some("demo") }, 3);
        assert!((400..500).contains(&status) && report.counted("refused") == 1 && report.counted("rung") == 0, "{status}");
    }
}

/// Nothing runs for such a cluster, so that no other function can say it.
#[test]
fn a_cluster_that_rings_and_is_not_served_raises_the_alarm_and_a_stranger_does_not() {
    let (body, of_watcher) = (review("events", false), post_of("other", 0, &[PostKind::Pods]));
    let path = |secret: &str, cluster: &str| format!("/{secret}/{cluster}");
    let of = |path: &str, body: &[u8], signed_by, alias| {
        let (status, report) = handled(Request { path, body, signed_by, alias }, 3);
        assert_eq!(report.counted("rung"), u64::from(status == 200));
        (status, whittle_ports::problems::found(&report).map(|problem| problem.name).collect::<Vec<_>>())
    };
    let webhook = path(&cluster_secret(SECRET, "other"), "other");
    assert_eq!(of(&webhook, &body, None, None), (404, vec!["cluster_not_served"]));
    assert_eq!(of("/other", &of_watcher, Some(WATCHER), Some("other")), (404, vec!["cluster_not_served"]));
    for stranger in [path(DEMO, "other"), path("guessed", "other"), "/other".to_owned(), path(SECRET, "other")] {
        assert_eq!(of(&stranger, &body, None, None), (403, vec![]), "{stranger}");
    }
    assert_eq!(of(&path(DEMO, "demo"), &body, None, None), (200, vec![]));
    assert_eq!(of(&path(DEMO, "demo"), b"{}", None, None), (400, vec![]), "what it says is wrong, not where");
}

#[test]
fn a_doorbell_of_nodes_that_was_not_sent_covers_nothing() {
    let (recent, path, body) = (Recent::new(), format!("/{DEMO}/demo"), review("nodes", false));
    let request = || Request { path: &path, body: &body, signed_by: None, alias: None };
    let counts = |room: usize| {
        let (status, report) = handled_after(&recent, request(), room);
        assert_eq!(status, 200);
        ["rung", "not_rung", "covered"].map(|word| report.counted(word))
    };
    assert_eq!(counts(0), [0, 1, 0]);
    assert_eq!(counts(1), [1, 0, 0], "at once");
    assert_eq!(counts(1), [1, 0, 0], "a second later: the first may have been read already");
    assert_eq!(counts(1), [0, 0, 1], "before that is delivered");
    let pods = review("pods", false);
    let post = post_of("demo", 0, &[PostKind::Nodes]);
    let of_pods = Request { body: &pods, ..request() };
    let of_watcher = Request { path: "/demo", body: &post, signed_by: Some(WATCHER), alias: Some("demo") };
    for request in [of_pods, of_pods, of_watcher, of_watcher] {
        let (_, report) = handled_after(&recent, request, 1);
        assert_eq!(report.counted("rung"), 1, "the queue of plans leaves out repetitions itself, and a watcher posts once a second");
    }
}

/// Whoever has the secret of a cluster, or edits its objects all the time, makes no more runs of it than a busy cluster has.
#[test]
fn no_resource_rings_a_queue_without_a_bound() {
    for (resource, operation) in [
        ("nodes", ""),
        ("nodes", "DELETE"),
        ("nodeclaims", ""),
        ("nodeclaims", "DELETE"),
        ("nodepools", ""),
        ("provisioners", ""),
        ("ec2nodeclasses", ""),
        ("awsnodetemplates", ""),
    ] {
        let request = serde_json::json!({"uid": "u", "resource": {"resource": resource}, "operation": operation});
        let (recent, path, body) = (Recent::new(), format!("/{DEMO}/demo"), serde_json::json!({"request": request}).to_string());
        let request = Request { path: &path, body: body.as_bytes(), signed_by: None, alias: None };
        let rung: u64 = (0..300).map(|_| handled_after(&recent, request, 1).1.counted("rung")).sum();
        assert!(rung <= 2, "{operation} {resource}: {rung} doorbells of one moment");
    }
}

/// Whoever has recorded a post may send it again for a minute: a queue makes no more of it than of the events of a busy minute.
#[test]
fn a_replayed_post_is_few_messages_and_one_where_the_queue_has_no_delay() {
    let kinds = [PostKind::Pods];
    let recorded =
        serde_json::to_vec(&WatcherPost { seen: Some("4711".to_owned()), ..WatcherPost::new("demo".into(), now(), kinds) }).unwrap();
    let (mut delayed, mut undelayed, mut taken) = (BTreeSet::new(), BTreeSet::new(), 0);
    for millis in (0..600_000).step_by(50) {
        let at = now() + SignedDuration::from_millis(millis);
        let request = Request { path: "/demo", body: &recorded, signed_by: Some(WATCHER), alias: Some("demo") };
        let Ok(verdict) = decide(&settings(), request, at) else { continue };
        taken += 1;
        for ring in verdict.rings {
            let seen = ring.seen.expect("it says what was seen");
            delayed.insert(ring.doorbell.deduplication_id_of(&seen, whittle_claims::PLAN_DELAY, at));
            undelayed.insert(ring.doorbell.deduplication_id_of(&seen, SignedDuration::ZERO, at));
        }
    }
    assert_eq!((taken, undelayed.len()), (1_201, 1), "for a minute");
    let windows = 60_000 / (whittle_claims::PLAN_DELAY * 3 / 4).as_millis() + 1;
    assert!(i128::try_from(delayed.len()).unwrap() <= windows, "{} of {windows}", delayed.len());
}

/// A flood rings nothing, is counted, and no answer, which a log may have, repeats what was sent.
#[test]
fn a_flood_of_what_is_refused_rings_nothing_and_is_never_told_in_full() {
    let text = serde_json::Value::from("x".repeat(60_000)).to_string();
    let of_text = |field: &str| format!(r#"{{"version":1,"cluster":{text},"{field}":{text}}}"#);
    let (path, odd_path) = (format!("/{DEMO}/demo"), format!("/{}/demo", "0".repeat(60_000)));
    let bodies = [text.clone(), of_text("kinds"), of_text("sentAt"), "[".repeat(60_000), "\u{0}".repeat(60_000), "{}".to_owned()];
    let mut refused = 0;
    for body in bodies.iter().cycle().take(300) {
        for (path, signed_by, alias) in [(&*path, None, None), ("/demo", Some(WATCHER), Some("demo")), ("/demo", Some(WATCHER), None)] {
            refused += check_refused(Request { path, body: body.as_bytes(), signed_by, alias });
        }
        refused += check_refused(Request { path: &odd_path, body: body.as_bytes(), signed_by: None, alias: None });
    }
    assert_eq!(refused, 1_200);
}

fn check_refused(request: Request<'_>) -> u64 {
    let queues = Room(Mutex::default(), 1_000);
    let ports = whittle_ports::Adapters { store: &(), cloud: &(), cluster: &(), queues: &queues, clock: &At(now()) };
    let (settings, recent) = (settings(), Recent::new());
    let mut handling = std::pin::pin!(handle(ports, &settings, &recent, request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(outcome) = handling.as_mut().poll(&mut context) else { panic!("nothing waits here") };
    let (response, report) = outcome.expect("a refusal is an answer");
    assert!((400..500).contains(&response.status), "{}", response.status);
    assert!(response.body.len() < 500, "{} bytes of answer", response.body.len());
    assert!(queues.0.lock().unwrap().is_empty());
    report.counted("refused")
}

/// Queues that note in how many milliseconds from now each doorbell is delivered.
#[derive(Default)]
struct Delays(Mutex<Vec<i128>>);

impl Queues for Delays {
    async fn send(&self, doorbell: Doorbell, delay: SignedDuration) -> Result<(), QueueError> {
        assert_eq!(doorbell, Doorbell::sweep("demo".into()));
        self.0.lock().unwrap().push(delay.as_millis());
        Ok(())
    }
}

/// The garbage collector deletes the NodeClaims of a deleted NodePool all at once: each look of `sweep` finds many of them.
#[test]
fn many_deletions_are_few_doorbells_and_each_is_told_of_once_it_is_stored() {
    let (recent, queues, path, settings) = (Recent::new(), Delays::default(), format!("/{DEMO}/demo"), settings());
    let request = serde_json::json!({"uid": "u", "resource": {"resource": "nodeclaims"}, "operation": "DELETE"});
    let body = serde_json::json!({"request": request}).to_string().into_bytes();
    let mut delivered = Vec::new();
    for millis in 0..3_000 {
        let clock = At(now() + SignedDuration::from_millis(millis));
        let ports = whittle_ports::Adapters { store: &(), cloud: &(), cluster: &(), queues: &queues, clock: &clock };
        let request = Request { path: &path, body: &body, signed_by: None, alias: None };
        let mut handling = std::pin::pin!(handle(ports, &settings, &recent, request));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(handling.as_mut().poll(&mut context).is_ready(), "nothing waits here");
        delivered.extend(queues.0.lock().unwrap().drain(..).map(|delay| i128::from(millis) + delay));
    }
    assert!((3..=4).contains(&delivered.len()), "{delivered:?}");
    for deleted in 0..3_000 {
        let is_told = delivered.iter().any(|at| (deleted + 1_000..=deleted + 2_000).contains(at));
        assert!(is_told, "deleted at {deleted} ms: {delivered:?}");
    }
}
