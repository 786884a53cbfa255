use super::*;
use crate::{Accepted, Ec2Discovery, EksAccess, Isolation, QueueUrls, SqsQueues};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::time::Duration;
use whittle_claims::{Doorbell, Function};
use whittle_ports::{CloudErrorKind, ClusterAccess, Discovery, Queues};

const NO_SUCH: &str = "<ErrorResponse><Error><Type>Sender</Type><Code>NoSuchEntity</Code><Message>none</Message></Error></ErrorResponse>";

fn profile(roles: &str) -> String {
    format!(
        "<GetInstanceProfileResponse><GetInstanceProfileResult><InstanceProfile><Path>/karpenter/us-east-1/demo/default/</Path><InstanceProfileName>p</InstanceProfileName><InstanceProfileId>1</InstanceProfileId><Arn>a</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate><Roles>{roles}</Roles></InstanceProfile></GetInstanceProfileResult></GetInstanceProfileResponse>"
    )
}

fn role(name: &str) -> String {
    format!(
        "<member><Path>/</Path><RoleName>{name}</RoleName><RoleId>1</RoleId><Arn>a</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></member>"
    )
}

const DONE: &str = "<Response><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></Response>";

fn ensured(wire: &Wire) -> Result<String, whittle_ports::CloudError> {
    run(Ec2Discovery::new(&wire.config(), "us-east-1".into(), Isolation::Isolated, clock()).ensure_instance_profile(
        &"demo".into(),
        "default",
        "team/NodeRole",
        &[("team", "a"), ("topology.kubernetes.io/region", "elsewhere")].map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    ))
}

/// The actions that ensuring a profile takes.
fn actions(wire: &Wire) -> Vec<String> {
    let name = ensured(wire).unwrap();
    assert!(name.starts_with("demo_"));
    (0..wire.bodies().len()).map(|index| wire.form(index)["Action"].clone()).collect()
}

#[test]
fn an_instance_profile_is_created_once_and_completed_when_its_role_is_missing_or_wrong() {
    let created = profile("").replace("GetInstanceProfile", "CreateInstanceProfile");
    let wire = Wire::answering([(404, NO_SUCH), (200, &created), (200, DONE)]);
    assert_eq!(actions(&wire), ["GetInstanceProfile", "CreateInstanceProfile", "AddRoleToInstanceProfile"]);
    assert_eq!(wire.form(2)["RoleName"], "NodeRole");
    assert_eq!(wire.form(1)["Path"], "/karpenter/us-east-1/demo/default/");
    let request = wire.form(1);
    let keys = (1..).map_while(|index| request.get(&format!("Tags.member.{index}.Key")));
    let tags: Vec<_> = keys.zip(1..).map(|(key, index)| (key.as_str(), request[&format!("Tags.member.{index}.Value")].as_str())).collect();
    let own = ("topology.kubernetes.io/region", "us-east-1");
    let expected = [
        ("eks:eks-cluster-name", "demo"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("kubernetes.io/cluster/demo", "owned"),
        ("team", "a"),
        own,
    ];
    assert_eq!(tags, expected, "a class's tags never replace those by which its profile is found");
    assert_eq!(actions(&Wire::answering([(200, &profile(&role("NodeRole")))])), ["GetInstanceProfile"]);
    assert_eq!(actions(&Wire::answering([(200, &profile("")), (200, DONE)])), ["GetInstanceProfile", "AddRoleToInstanceProfile"]);
    let other = Wire::answering([(200, &profile(&role("Other"))), (200, DONE), (200, DONE)]);
    assert_eq!(actions(&other), ["GetInstanceProfile", "RemoveRoleFromInstanceProfile", "AddRoleToInstanceProfile"]);
}

/// Several runs see to a new class at once, and IAM shows a role only some seconds after it was added.
#[test]
fn a_role_that_another_run_has_added_is_no_refusal() {
    let full = NO_SUCH.replace("NoSuchEntity", "LimitExceeded");
    let full = full.replace("none", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1");
    let wire = Wire::answering([(200, &profile("")), (409, &full), (200, &profile(&role("NodeRole")))]);
    assert_eq!(actions(&wire), ["GetInstanceProfile", "AddRoleToInstanceProfile", "GetInstanceProfile"]);
    for shown in [String::new(), role("Other")] {
        let wire = Wire::answering([(200, &profile("")), (409, &full), (200, &profile(&shown))]);
        let error = ensured(&wire).unwrap_err();
        assert_eq!((error.kind, error.code.as_str()), (CloudErrorKind::Unknown, "LimitExceeded"), "the next run asks again");
    }
    let of_account = full.replace("InstanceSessionsPerInstanceProfile: 1", "InstanceProfilesPerAccount: 1000");
    let wire = Wire::answering([(200, &profile("")), (409, &of_account)]);
    assert_eq!(ensured(&wire).unwrap_err().kind, CloudErrorKind::Invalid, "a quota of the account is for a person to raise");
}

/// The same of a profile: IAM says that both wanted to change it, which is no fault of the class.
#[test]
fn a_profile_that_another_run_makes_at_the_same_time_is_no_refusal() {
    let contended = NO_SUCH.replace("NoSuchEntity", "ConcurrentModification");
    let wire = Wire::answering([(404, NO_SUCH), (409, &contended)]);
    let error = ensured(&wire).unwrap_err();
    assert_eq!((error.kind, error.code.as_str()), (CloudErrorKind::Unknown, "ConcurrentModification"), "the next run asks again");
}

/// Names are hashes of class and role, so those of two classes can collide.
#[test]
fn the_role_of_a_profile_of_another_class_is_never_changed() {
    for roles in [role("Other"), String::new()] {
        let wire = Wire::answering([(200, &profile(&roles).replace("/demo/default/", "/demo/other/"))]);
        let error = ensured(&wire).unwrap_err();
        assert!(error.kind == CloudErrorKind::Invalid && error.message.contains("/demo/other/"), "{error}");
        assert_eq!(wire.bodies().len(), 1, "nothing was changed");
    }
}

#[test]
fn resources_of_a_class_are_deleted_launch_templates_first() {
    let templates = "<DescribeLaunchTemplatesResponse><launchTemplates><item><launchTemplateName>t</launchTemplateName></item></launchTemplates></DescribeLaunchTemplatesResponse>";
    let listed = profile(&role("NodeRole"))
        .replace("GetInstanceProfile", "ListInstanceProfiles")
        .replace("<InstanceProfile>", "<InstanceProfiles><member>")
        .replace("</InstanceProfile>", "</member></InstanceProfiles><IsTruncated>false</IsTruncated>");
    let deleted = "<DeleteLaunchTemplateResponse><launchTemplate/></DeleteLaunchTemplateResponse>";
    let wire = Wire::answering([(200, templates), (200, deleted), (200, &listed), (200, &running("")), (200, DONE), (404, NO_SUCH)]);
    let discovery = Ec2Discovery::new(&wire.config(), "us-east-1".into(), Isolation::Reachable, clock());
    assert_eq!(run(discovery.release_class(&"demo".into(), "default")).unwrap(), [""; 0]);
    let actions: Vec<String> = (0..wire.bodies().len()).map(|index| wire.form(index)["Action"].clone()).collect();
    let expected = [
        "DescribeLaunchTemplates",
        "DeleteLaunchTemplate",
        "ListInstanceProfiles",
        "DescribeInstances",
        "RemoveRoleFromInstanceProfile",
        "DeleteInstanceProfile",
    ];
    assert_eq!(actions, expected);
    assert_eq!(wire.form(0)["Filter.2.Value.1"], "default");
    assert_eq!(wire.form(1)["LaunchTemplateName"], "t");
    assert_eq!(wire.form(2)["PathPrefix"], "/karpenter/us-east-1/demo/default/");
    assert_eq!(wire.form(3)["Filter.1.Name"], "iam-instance-profile.arn");
    assert_eq!(wire.form(4)["RoleName"], "NodeRole");
}

#[test]
fn in_an_isolated_vpc_a_class_is_released_without_asking_iam() {
    let templates = "<DescribeLaunchTemplatesResponse><launchTemplates><item><launchTemplateName>t</launchTemplateName></item></launchTemplates></DescribeLaunchTemplatesResponse>";
    let deleted = "<DeleteLaunchTemplateResponse><launchTemplate/></DeleteLaunchTemplateResponse>";
    let wire = Wire::answering([(200, templates), (200, deleted)]);
    let discovery = Ec2Discovery::new(&wire.config(), "us-east-1".into(), Isolation::Isolated, clock());
    assert_eq!(run(discovery.release_class(&"demo".into(), "default")).unwrap(), [""; 0]);
    let actions: Vec<String> = (0..wire.bodies().len()).map(|index| wire.form(index)["Action"].clone()).collect();
    assert_eq!(actions, ["DescribeLaunchTemplates", "DeleteLaunchTemplate"]);
}

#[test]
fn an_instance_profile_in_use_is_not_deleted() {
    let no_templates = "<DescribeLaunchTemplatesResponse><launchTemplates/></DescribeLaunchTemplatesResponse>";
    let listed = profile(&role("NodeRole"))
        .replace("GetInstanceProfile", "ListInstanceProfiles")
        .replace("<InstanceProfile>", "<InstanceProfiles><member>")
        .replace("</InstanceProfile>", "</member></InstanceProfiles><IsTruncated>false</IsTruncated>");
    let arn = listed.split_once("<Arn>").unwrap().1.split_once("</Arn>").unwrap().0.to_owned();
    let with = |arn: &str| running(&format!("<iamInstanceProfile><arn>{arn}</arn></iamInstanceProfile>"));
    let wire = Wire::answering([(200, no_templates), (200, &listed), (200, &with(&arn))]);
    let discovery = Ec2Discovery::new(&wire.config(), "us-east-1".into(), Isolation::Reachable, clock());
    assert_eq!(run(discovery.release_class(&"demo".into(), "default")).unwrap().len(), 1);
    assert_eq!(wire.bodies().len(), 3, "no role is removed and nothing is deleted");
}

/// The response for one running instance.
fn running(profile: &str) -> String {
    format!(
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId>{profile}</item>\
         </instancesSet></item></reservationSet></DescribeInstancesResponse>"
    )
}

fn access(wire: &Wire, region: &str) -> EksAccess {
    let eks = aws_sdk_eks::Client::new(&wire.config());
    EksAccess::new(eks, SharedCredentialsProvider::new(credentials()), region.into(), clock())
}

#[test]
fn endpoint_certificate_and_network_of_a_cluster_are_read() {
    let cluster = |network: Value| {
        json!({"cluster": {"name": "demo", "endpoint": "https://e", "version": "1.33", "certificateAuthority": {"data": "Y2E="}, "kubernetesNetworkConfig": network}}).to_string()
    };
    let wire = Wire::answering([
        (200, &cluster(json!({"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"}))),
        (200, &cluster(json!({"serviceIpv6Cidr": "fd00::/108", "ipFamily": "ipv6"}))),
        (200, r#"{"cluster": {"name": "demo"}}"#),
        (404, r#"{"__type": "ResourceNotFoundException", "message": "none"}"#),
    ]);
    let access = access(&wire, "us-east-1");
    let info = run(access.endpoint(&"demo".into())).unwrap();
    assert_eq!((info.endpoint.as_str(), info.certificate_authority.as_str(), info.version.as_str()), ("https://e", "Y2E=", "1.33"));
    assert_eq!((info.service_cidr.as_str(), info.ipv6), ("10.100.0.0/16", false));
    let info = run(access.endpoint(&"demo".into())).unwrap();
    assert_eq!((info.service_cidr.as_str(), info.ipv6), ("fd00::/108", true));
    assert_eq!(run(access.endpoint(&"demo".into())).unwrap_err().kind, CloudErrorKind::Unknown, "it is still being created");
    assert_eq!(run(access.endpoint(&"demo".into())).unwrap_err().kind, CloudErrorKind::NotFound, "there is none of that name");
}

#[test]
fn a_token_is_a_presigned_request_for_one_cluster() {
    let wire = Wire::default();
    let token = run(access(&wire, "us-east-1").bearer_token(&"demo".into())).unwrap();
    let url = String::from_utf8(URL_SAFE_NO_PAD.decode(token.strip_prefix("k8s-aws-v1.").unwrap()).unwrap()).unwrap();
    let (endpoint, query) = url.split_once('?').unwrap();
    let fields: BTreeMap<String, String> =
        query.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (decoded(key), decoded(value))).collect();
    assert_eq!(endpoint, "https://sts.us-east-1.amazonaws.com/");
    for (field, value) in [
        ("Action", "GetCallerIdentity"),
        ("Version", "2011-06-15"),
        ("X-Amz-Expires", "60"),
        ("X-Amz-SignedHeaders", "host;x-k8s-aws-id"),
        ("X-Amz-Date", "20260301T120000Z"),
        ("X-Amz-Credential", "AKIDEXAMPLE/20260301/us-east-1/sts/aws4_request"),
        ("X-Amz-Security-Token", "session"),
    ] {
        assert_eq!(fields.get(field).map(String::as_str), Some(value), "{field}");
    }
    let other = run(access(&wire, "us-east-1").bearer_token(&"other".into())).unwrap();
    assert_ne!(token, other, "the cluster is part of the signature");
    for (region, endpoint) in [
        ("cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn/"),
        ("us-iso-east-1", "https://sts.us-iso-east-1.c2s.ic.gov/"),
        ("eusc-de-east-1", "https://sts.eusc-de-east-1.amazonaws.eu/"),
    ] {
        let token = run(access(&wire, region).bearer_token(&"demo".into())).unwrap();
        let url = String::from_utf8(URL_SAFE_NO_PAD.decode(token.strip_prefix("k8s-aws-v1.").unwrap()).unwrap()).unwrap();
        assert!(url.starts_with(endpoint), "{url}");
    }
}

#[test]
fn doorbells_are_sent_to_the_queue_of_their_kind() {
    let sent = json!({"MessageId": "1", "MD5OfMessageBody": "x"}).to_string();
    let wire = Wire::answering([(200, &sent), (200, &sent)]);
    let plan_delay = SignedDuration::from_secs(1);
    let urls = QueueUrls {
        plan: "https://sqs/1/plan.fifo".into(),
        terminate: "https://sqs/1/terminate".into(),
        plan_delay,
        ..QueueUrls::default()
    };
    let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls, clock());
    let doorbell = Doorbell::Schedule { cluster: "demo".into() };
    run(queues.send(doorbell.clone(), SignedDuration::ZERO)).unwrap();
    // A FIFO queue cannot delay single messages, and a message sent now would be repeated until it is due: the tick sends it.
    run(queues.send(doorbell.clone(), SignedDuration::from_secs(5))).unwrap();
    run(queues.send(Doorbell::Terminate { cluster: "demo".into(), claim: "c-1".into() }, SignedDuration::from_hours(2))).unwrap();
    let bodies: Vec<Value> = wire.bodies().iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    assert_eq!(bodies.len(), 2, "no delayed doorbell is sent to a FIFO queue");
    assert_eq!((&bodies[0]["QueueUrl"], &bodies[0]["MessageGroupId"]), (&json!("https://sqs/1/plan.fifo"), &json!("demo")));
    let id = doorbell.deduplication_id(plan_delay, NOW.parse().unwrap(), || panic!("a queue with a delay merges doorbells"));
    assert_eq!(bodies[0]["MessageDeduplicationId"], json!(id));
    assert_eq!(bodies[0].get("DelaySeconds"), None, "FIFO queues have no delay per message");
    assert_eq!((&bodies[1]["QueueUrl"], &bodies[1]["DelaySeconds"]), (&json!("https://sqs/1/terminate"), &json!(900)));
    let body: Doorbell = serde_json::from_str(bodies[0]["MessageBody"].as_str().unwrap()).unwrap();
    assert_eq!(body, doorbell);
    let without_queue = run(queues.send(Doorbell::sweep("demo".into()), SignedDuration::ZERO)).unwrap_err();
    assert!(without_queue.reason.contains("no queue"), "{without_queue}");
}

/// A plan for a hundred thousand pods may have so many claims.
#[test]
fn a_doorbell_for_thousands_of_claims_is_a_message_that_a_queue_takes() {
    let sent = json!({"MessageId": "1", "MD5OfMessageBody": "x"}).to_string();
    let urls = QueueUrls { launch: "https://sqs/1/launch".into(), ..QueueUrls::default() };
    // How many of so many claims the message names.
    let named = |claims: usize| {
        let name = |number: usize| whittle_units::ClaimName::new(format!("{}-{number:05}", "n".repeat(247)));
        let wire = Wire::answering([(200, sent.as_str())]);
        let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls.clone(), clock());
        let doorbell = Doorbell::Launch { cluster: "demo".into(), claims: (0..claims).map(name).collect() };
        run(queues.send(doorbell, SignedDuration::from_secs(2))).unwrap();
        let [body]: [String; 1] = wire.bodies().try_into().expect("one message, with one run that reads the claims");
        let request: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(request["DelaySeconds"], json!(2));
        let body = request["MessageBody"].as_str().unwrap();
        assert!(body.len() < 256 * 1024, "{} bytes", body.len());
        let rung: Doorbell = serde_json::from_str(body).unwrap();
        let Doorbell::Launch { claims: names, cluster } = rung else { panic!("it rings launch") };
        assert_eq!(cluster.as_str(), "demo");
        assert!(names.is_empty() || names.iter().cloned().eq((0..claims).map(name)), "all of them, or all that are due");
        names.len()
    };
    assert_eq!([0, 1, 1000, 1001, 20_000].map(named), [0, 1, 1000, 0, 0]);
}

#[test]
fn messages_of_several_clusters_name_theirs_in_standard_queues_too() {
    let sent = json!({"MessageId": "1", "MD5OfMessageBody": "x"}).to_string();
    let urls = QueueUrls { plan: "https://sqs/1/plan.fifo".into(), sweep: "https://sqs/1/sweep".into(), ..QueueUrls::default() };
    let rung = |clusters, doorbell: Doorbell| {
        let wire = Wire::answering([(200, &sent)]);
        let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls.clone(), clock()).shared_by(clusters);
        run(queues.send(doorbell, SignedDuration::ZERO)).unwrap();
        serde_json::from_str::<Value>(&wire.bodies()[0]).unwrap()
    };
    let longest = format!("{}_1-Z", "a".repeat(96));
    for name in ["demo", longest.as_str(), "b".repeat(128).as_str()] {
        let body = rung(2, Doorbell::sweep(name.into()));
        assert_eq!((&body["MessageGroupId"], &body["DelaySeconds"]), (&json!(name), &json!(0)));
        assert_eq!(body.get("MessageDeduplicationId"), None, "standard queues refuse it");
    }
    for clusters in [0, 1] {
        let body = rung(clusters, Doorbell::sweep("demo".into()));
        assert_eq!(body.get("MessageGroupId"), None, "there is nobody else to be fair to");
        assert_eq!(rung(clusters, Doorbell::Schedule { cluster: "demo".into() })["MessageGroupId"], json!("demo"), "FIFO queues demand it");
    }
    // SQS would refuse the message.
    for name in ["", "two words", "größer", "tab\t", "c".repeat(129).as_str()] {
        assert_eq!(rung(2, Doorbell::sweep(name.into())).get("MessageGroupId"), None, "{name:?}");
    }
}

#[test]
fn a_message_whose_cluster_sqs_takes_for_no_group_is_sent_without() {
    let sent = json!({"MessageId": "1", "MD5OfMessageBody": "x"}).to_string();
    let refused = json!({"__type": "InvalidParameterValue", "message": "a parameter that is not valid for this queue type"});
    let denied = json!({"__type": "AccessDenied", "message": "no"});
    let urls = QueueUrls { plan: "https://sqs/1/plan.fifo".into(), sweep: "https://sqs/1/sweep".into(), ..QueueUrls::default() };
    let (sweep, schedule) = (Doorbell::sweep("demo".into()), Doorbell::Schedule { cluster: "demo".into() });
    for (answer, doorbell, clusters, expected) in [
        (&refused, &sweep, 2, &[json!("demo"), Value::Null][..]),
        (&refused, &sweep, 1, &[Value::Null][..]),
        (&refused, &schedule, 2, &[json!("demo")][..]),
        (&denied, &sweep, 2, &[json!("demo")][..]),
    ] {
        let wire = Wire::answering([(400, answer.to_string().as_str()), (200, &sent)]);
        let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls.clone(), clock()).shared_by(clusters);
        let outcome = run(queues.send(doorbell.clone(), SignedDuration::ZERO));
        let groups: Vec<Value> =
            wire.bodies().iter().map(|body| serde_json::from_str::<Value>(body).unwrap()["MessageGroupId"].clone()).collect();
        assert_eq!((groups.as_slice(), outcome.is_ok()), (expected, expected.len() == 2), "{answer}");
    }
}

#[test]
fn what_a_queue_would_drop_is_not_sent_and_what_failed_is_sent_again() {
    let sent = json!({"MessageId": "1", "MD5OfMessageBody": "x"}).to_string();
    let denied = json!({"__type": "AccessDenied", "message": "no"}).to_string();
    let wire = Wire::answering([(400, &denied), (200, &sent), (200, &sent), (200, &sent)]);
    let urls = QueueUrls { plan: "https://sqs/1/plan.fifo".into(), plan_delay: SignedDuration::from_secs(1), ..QueueUrls::default() };
    let accepted = Arc::new(Accepted::default());
    let ring = |milliseconds, cluster: &str| {
        let later = Arc::new(Later(SignedDuration::from_millis(milliseconds)));
        let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls.clone(), later).remembering(Arc::clone(&accepted));
        run(queues.send_now(Doorbell::Schedule { cluster: cluster.into() }))
    };
    ring(100, "demo").unwrap_err();
    ring(100, "demo").unwrap();
    ring(400, "demo").unwrap();
    ring(400, "other").unwrap();
    ring(750, "demo").unwrap();
    let ids = wire.bodies().into_iter().map(|body| serde_json::from_str::<Value>(&body).unwrap()["MessageDeduplicationId"].clone());
    let ids: Vec<Value> = ids.collect();
    assert_eq!((&ids[0], ids.len()), (&ids[1], 4), "{ids:?}");
    assert!(ids[2] != ids[1] && ids[3] != ids[1], "{ids:?}");
}

#[test]
fn messages_that_failed_are_delayed_in_their_own_queue_ten_in_a_request() {
    let changed = json!({"Successful": [], "Failed": []}).to_string();
    let wire = Wire::answering([(200, changed.as_str()); 3]);
    let urls = QueueUrls { plan: "https://sqs/1/plan.fifo".into(), nodes: "https://sqs/1/nodes".into(), ..QueueUrls::default() };
    let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls, clock());
    let receipts: Vec<String> = (0..12).map(|number| format!("of-{number}")).collect();
    let receipts: Vec<&str> = receipts.iter().map(String::as_str).collect();
    let soon = SignedDuration::from_secs(5);
    run(queues.delay_again(Function::Register, &receipts, soon)).unwrap();
    run(queues.delay_again(Function::Schedule, &receipts[..1], soon)).unwrap();
    run(queues.delay_again(Function::Schedule, &[], soon)).unwrap();
    // Nothing is asked for a queue that is not known, nor for a function without one.
    run(queues.delay_again(Function::Launch, &receipts, soon)).unwrap();
    run(queues.delay_again(Function::Relay, &receipts, soon)).unwrap();
    run(queues.delay_again(Function::Interrupt, &receipts, soon)).unwrap();
    let bodies: Vec<Value> = wire.bodies().iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    let sent: Vec<_> = bodies.iter().map(|body| (body["QueueUrl"].as_str().unwrap(), body["Entries"].as_array().unwrap().len())).collect();
    assert_eq!(sent, [("https://sqs/1/nodes", 10), ("https://sqs/1/nodes", 2), ("https://sqs/1/plan.fifo", 1)]);
    assert_eq!(bodies[1]["Entries"][1], json!({"Id": "1", "ReceiptHandle": "of-11", "VisibilityTimeout": 5}));
}

#[test]
fn a_refused_delay_is_an_error_that_says_why() {
    let entry = json!({"Id": "0", "Code": "ReceiptHandleIsInvalid", "Message": "it expired", "SenderFault": true});
    let refused = json!({"Successful": [], "Failed": [entry]}).to_string();
    let denied = json!({"__type": "AccessDenied", "message": "no"}).to_string();
    let wire = Wire::answering([(200, &refused), (400, &denied)]);
    let urls = QueueUrls { sweep: "https://sqs/1/sweep".into(), ..QueueUrls::default() };
    let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls, clock());
    let delay = || run(queues.delay_again(Function::Sweep, &["expired"], SignedDuration::from_secs(30))).unwrap_err().reason;
    assert_eq!(delay(), "1 of 1 messages: ReceiptHandleIsInvalid: it expired");
    assert!(delay().contains("AccessDenied"));
}

#[test]
fn without_a_delay_two_posts_that_tell_of_the_same_are_one_message() {
    let sent = json!({"MessageId": "1", "MD5OfMessageBody": "x"}).to_string();
    let wire = Wire::answering([(200, sent.as_str()); 4]);
    let urls = QueueUrls { plan: "https://sqs/1/plan.fifo".into(), ..QueueUrls::default() };
    let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls, clock());
    let doorbell = || Doorbell::Schedule { cluster: "demo".into() };
    for seen in ["17", "17", "18"] {
        run(queues.send_seen(doorbell(), seen)).unwrap();
    }
    run(queues.send_now(doorbell())).unwrap();
    let ids = wire.bodies().into_iter().map(|body| serde_json::from_str::<Value>(&body).unwrap()["MessageDeduplicationId"].clone());
    let ids: Vec<String> = ids.map(|id| id.as_str().unwrap().to_owned()).collect();
    assert_eq!((&ids[0], ids.len()), (&ids[1], 4));
    assert!(ids[2] != ids[1] && ids[3] != ids[2] && ids[3] != ids[1], "{ids:?}");
}

#[test]
fn a_fifo_doorbell_due_soon_is_sent_at_once_and_a_later_one_is_left_to_the_tick() {
    let sent = json!({"MessageId": "1", "MD5OfMessageBody": "x"}).to_string();
    let plan = || Doorbell::Schedule { cluster: "demo".into() };
    let consolidate = || Doorbell::Consolidate { cluster: "demo".into() };
    for (doorbell, seconds, messages) in
        [(plan(), 2, 1), (plan(), 4, 1), (plan(), 5, 0), (plan(), 10, 0), (consolidate(), 10, 1), (consolidate(), 14, 0)]
    {
        let wire = Wire::answering([(200, &sent)]);
        let urls = QueueUrls {
            plan: "https://sqs/1/plan.fifo".into(),
            consolidate: "https://sqs/1/consolidate.fifo".into(),
            ..QueueUrls::default()
        };
        let queues = SqsQueues::new(aws_sdk_sqs::Client::new(&wire.config()), urls, clock());
        run(queues.send(doorbell.clone(), SignedDuration::from_secs(seconds))).unwrap();
        assert_eq!(wire.bodies().len(), messages, "{doorbell:?} after {seconds} s");
        // SQS rejects a message with both a group and a delay.
        assert!(wire.bodies().iter().all(|body| !body.contains("DelaySeconds")), "{doorbell:?}");
    }
}

/// A connection may be gone since Lambda froze the environment, and nobody says so: the message is sent by another one.
#[test]
fn a_message_that_is_not_answered_is_sent_again_within_the_time_that_is_left() {
    for (left, operation, attempt) in [(60, 30, 2), (10, 10, 2), (4, 4, 2), (1, 1, 1)] {
        let clock = StoppedClock { left: SignedDuration::from_secs(left) };
        let limits = crate::budget::message_limits(&clock, "SendMessage").unwrap();
        let found = (limits.operation_timeout(), limits.operation_attempt_timeout());
        assert_eq!(found, (Some(Duration::from_secs(operation)), Some(Duration::from_secs(attempt))), "{left} s are left");
    }
    let nothing_left = crate::budget::message_limits(&StoppedClock { left: SignedDuration::ZERO }, "SendMessage");
    assert_eq!(nothing_left.unwrap_err().kind, CloudErrorKind::Unknown);
}
