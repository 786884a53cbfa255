//! The control API as text, without a server.

use crate::{Api, Lone, Request, control, is_control};
use serde_json::{Value, json};
use whittle_ec2::interruption::InterruptionKind;
use whittle_units::{ClusterName, Timestamp};

struct Owner {
    api: Api,
    lone: Lone,
}

impl Owner {
    fn new() -> Self {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        Self { api: Api::default(), lone: Lone::new("us-east-1", &ClusterName::new("demo"), now) }
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = control(&mut self.api, &mut self.lone, method, path, body);
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    }

    fn change(&mut self, change: &Value) -> Value {
        let (status, state) = self.ask("POST", "/_control", &change.to_string());
        assert_eq!(status, 200, "{state}");
        state
    }

    #[track_caller]
    fn refused(&mut self, change: &str, expected: &str) {
        let before = self.ask("GET", "/_control", "");
        let (status, answer) = self.ask("POST", "/_control", change);
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && error.starts_with(expected), "{change}: {status} {answer}");
        assert_eq!(self.ask("GET", "/_control", ""), before, "a refused change changes nothing");
    }

    fn ec2(&mut self, body: &str) -> (u16, String) {
        let body = format!("Version=2016-11-15&{body}");
        let request = Request { service: "ec2".into(), principal: "AKID".into(), body, ..Request::default() };
        let answer = self.api.answer(&mut self.lone, &request);
        (answer.status, answer.body)
    }

    /// Starts this many spot machines and returns their ids.
    fn start(&mut self, count: usize) -> Vec<String> {
        self.ec2("Action=CreateLaunchTemplate&LaunchTemplateName=karpenter/1&LaunchTemplateData.ImageId=ami-00000000000000004");
        let place = "LaunchTemplateConfigs.1.Overrides.1";
        let (status, body) = self.ec2(&format!(
            "Action=CreateFleet&Type=instant&ClientToken=t{count}&TargetCapacitySpecification.TotalTargetCapacity={count}\
             &TargetCapacitySpecification.DefaultTargetCapacityType=spot\
             &LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=karpenter%2F1\
             &LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=1\
             &{place}.InstanceType=m5.large&{place}.AvailabilityZone=us-east-1a&{place}.SubnetId=subnet-00000000000000001"
        ));
        assert_eq!(status, 200, "{body}");
        self.lone.region.machines.keys().map(ToString::to_string).collect()
    }
}

#[test]
fn a_field_that_is_not_known_or_not_of_its_kind_is_named() {
    let mut owner = Owner::new();
    for (change, expected) in [
        (r#"{"spotPrice": {}}"#, "spotPrice: unknown field `spotPrice`"),
        (
            r#"{"pools": [{"instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "spot", "size": 1}]}"#,
            "pools[0].size: unknown field `size`",
        ),
        (r#"{"pools": [{"zone": "us-east-1a"}]}"#, "pools[0]: missing field `instanceType`"),
        (r#"{"advanceSeconds": -1}"#, "advanceSeconds: invalid value"),
        (r#"{"requestLimits": "some"}"#, "requestLimits: unknown variant `some`"),
        (r#"{"advanceSeconds": 1} {}"#, ".: trailing characters"),
        ("", ".: EOF"),
    ] {
        owner.refused(change, expected);
    }
}

#[test]
fn what_the_region_does_not_have_is_refused_as_a_whole() {
    let mut owner = Owner::new();
    for (change, expected) in [
        (json!({"spotPrices": {"m5.large": {"us-east-1a": 0.01}, "m5.lrge": {}}}), "spotPrices.m5.lrge: the region has no instance type"),
        (json!({"spotPrices": {"m5.large": {"us-east-2a": 0.01}}}), "spotPrices.m5.large.us-east-2a: there is no zone"),
        (json!({"onDemandPrices": {"m5.large": -0.1}}), "onDemandPrices.m5.large: -0.1 is no price"),
        (
            json!({"pools": [{"instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "Spot", "left": 1}]}),
            "pools[0].capacityType: there is no capacity type \"Spot\"; use one of spot",
        ),
        (json!({"quotas": [{"instanceType": "m5", "capacityType": "spot", "vcpus": 1}]}), "quotas[0].instanceType"),
        (json!({"refusals": [{"code": "X"}, {"code": "X", "zone": "a"}]}), "refusals[1].zone"),
        (json!({"nextAnswers": {"CreateFleets": []}}), "nextAnswers.CreateFleets: there is no such action"),
        (json!({"nextAnswers": {"CreateFleet": [{"status": 200, "code": "X"}]}}), "nextAnswers.CreateFleet[0]"),
        (json!({"interrupt": ["i-1"], "advanceSeconds": 5}), "interrupt[0]: no spot instance i-1"),
        (json!({"advanceSeconds": 1_000_000_000}), "advanceSeconds: 1000000000 is more than ten years"),
    ] {
        owner.refused(&change.to_string(), expected);
    }
    let price = owner.lone.region.catalog.spot_price("m5.large", "us-east-1a").unwrap();
    assert!(price.dollars() > 0.011, "the sound part of a refused change is not applied either: {price:?}");
}

#[test]
fn a_change_is_seen_in_the_state_and_by_those_who_call() {
    let mut owner = Owner::new();
    let state = owner.change(&json!({
        "spotPrices": {"m5.large": {"us-east-1a": 0.01}},
        "onDemandPrices": {"m5.large": 0.05},
        "pools": [{"instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "spot", "left": 2}],
        "quotas": [{"instanceType": "m5.large", "capacityType": "on-demand", "vcpus": 8}],
        "refusals": [{"instanceType": "c5.large", "code": "Unsupported"}],
        "nextAnswers": {"DescribeSubnets": [{"status": 500, "code": "InternalError", "message": "again"}]},
        "countsAddresses": true,
        "describeLagSeconds": 5,
        "advanceSeconds": 60,
    }));
    assert_eq!((&state["now"], &state["describeLagSeconds"]), (&json!("2026-03-01T12:01:00Z"), &json!(5)));
    assert_eq!(state["quotas"], json!([{"quota": "standard", "capacityType": "on-demand", "vcpus": 8}]));
    assert_eq!(state["nextAnswers"], json!({"DescribeSubnets": [{"status": 500, "code": "InternalError", "message": "again"}]}));
    assert_eq!(state["refusals"][0]["code"], "Unsupported");
    let (status, body) = owner.ec2("Action=DescribeSubnets");
    assert!(status == 500 && body.contains("<Message>again</Message>"), "{status} {body}");
    assert_eq!(owner.ec2("Action=DescribeSubnets").0, 200, "the answer is used up");
    let prices = owner.ec2("Action=DescribeSpotPriceHistory&InstanceType.1=m5.large&ProductDescription.1=Linux%2FUNIX");
    assert!(prices.1.contains("<spotPrice>0.01"), "{}", prices.1);
    owner.start(3);
    let (_, state) = owner.ask("GET", "/_control", "");
    assert_eq!((state["machines"].as_array().unwrap().len(), &state["pools"][0]["left"]), (2, &json!(0)));
    let machine = &state["machines"][0];
    assert_eq!((&machine["capacityType"], &machine["state"], &machine["price"]), (&json!("spot"), &json!("pending"), &json!(0.01)));
    let state = owner.change(&json!({"pools": [{"instanceType": "m5.large", "zone": "us-east-1a", "capacityType": "spot", "left": null}],
        "quotas": [{"instanceType": "m5.large", "capacityType": "on-demand", "vcpus": null}], "refusals": []}));
    assert_eq!((&state["pools"], &state["quotas"], &state["refusals"]), (&json!([]), &json!([]), &json!([])));
}

#[test]
fn a_fleet_is_filled_in_part_by_pools_that_then_refuse() {
    let mut owner = Owner::new();
    let state = owner.change(&json!({"refusals": [{"code": "VcpuLimitExceeded", "message": "no more", "after": 2}]}));
    assert_eq!(state["refusals"][0]["after"], 2);
    assert_eq!(owner.start(5).len(), 2);
    assert_eq!(owner.start(4).len(), 2, "from then on they start none");
    let (_, state) = owner.ask("GET", "/_control", "");
    assert_eq!(state["refusals"][0]["after"], 0);
}

#[test]
fn request_limits_are_switched_on_and_off() {
    let mut owner = Owner::new();
    owner.change(&json!({"requestLimits": "documented"}));
    let refused = (0..101).filter(|_| owner.ec2("Action=DescribeSubnets").0 == 503).count();
    assert_eq!(refused, 1);
    owner.change(&json!({"requestLimits": "none"}));
    assert_eq!(owner.ec2("Action=DescribeSubnets").0, 200);
}

#[test]
fn only_the_paths_of_the_control_api_are_answered() {
    let mut owner = Owner::new();
    assert!(is_control("/_control") && is_control("/_control/journal") && !is_control("/_controls") && !is_control("/clusters/demo"));
    assert_eq!(owner.ask("GET", "/_control/state", "").0, 404);
    assert_eq!(owner.ask("DELETE", "/_control", "").0, 405);
    assert_eq!(owner.ask("POST", "/_control/journal", "").0, 405);
}

#[test]
fn the_journal_tells_every_call_in_order() {
    let mut owner = Owner::new();
    owner.ec2("Action=DescribeSubnets&SubnetId.1=subnet-00000000000000001");
    owner.ec2("Action=DescribeSubnetz");
    let (status, journal) = owner.ask("GET", "/_control/journal", "");
    assert_eq!(status, 200);
    let calls: Vec<(&str, &str, &Value)> =
        journal.as_array().unwrap().iter().map(|entry| (text(entry, "principal"), text(entry, "action"), &entry["refused"])).collect();
    assert_eq!(calls, [("AKID", "DescribeSubnets", &Value::Null), ("AKID", "DescribeSubnetz", &json!("InvalidAction"))]);
    assert_eq!(journal[0]["parameters"]["SubnetId.1"], "subnet-00000000000000001");
    assert_eq!(journal[0]["at"], "2026-03-01T12:00:00Z");
}

/// What the functions take an event for.
fn parsed(event: &Value) -> Option<InterruptionKind> {
    let notice = whittle_ec2::interruption::parse(&event.to_string()).unwrap()?;
    assert_eq!(notice.instances.first().map(|id| id.as_str()), event["detail"]["instance-id"].as_str());
    assert!(notice.time.is_some(), "{event}");
    Some(notice.kind)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[test]
fn an_interruption_warns_first_and_takes_the_machine_two_minutes_later() {
    let mut owner = Owner::new();
    let id = owner.start(1).remove(0);
    owner.change(&json!({"advanceSeconds": 30}));
    owner.ask("GET", "/_control/events", "");
    owner.change(&json!({"interrupt": [id], "rebalance": [id]}));
    let (_, events) = owner.ask("GET", "/_control/events", "");
    let kinds: Vec<&str> = events.as_array().unwrap().iter().map(|event| text(event, "detail-type")).collect();
    assert_eq!(kinds, ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"]);
    assert_eq!(events[0]["detail"], json!({"instance-id": id, "instance-action": "terminate"}));
    let notices: Vec<_> = events.as_array().unwrap().iter().map(parsed).collect();
    assert_eq!(notices, [Some(InterruptionKind::SpotInterrupted), Some(InterruptionKind::RebalanceRecommendation)]);
    assert_eq!((text(&events[0], "region"), text(&events[0], "source")), ("us-east-1", "aws.ec2"));
    assert_eq!(owner.ask("GET", "/_control/events", "").1, json!([]), "an event is returned once");
    let state = owner.change(&json!({"advanceSeconds": 119}));
    assert_eq!(state["machines"][0]["state"], "running");
    let state = owner.change(&json!({"advanceSeconds": 60}));
    assert_eq!(state["machines"][0]["state"], "terminated");
    let (_, events) = owner.ask("GET", "/_control/events", "");
    let states: Vec<&str> = events.as_array().unwrap().iter().map(|event| text(&event["detail"], "state")).collect();
    assert_eq!(states, ["shutting-down", "terminated"]);
    let notices: Vec<_> = events.as_array().unwrap().iter().map(parsed).collect();
    assert_eq!(notices, [Some(InterruptionKind::InstanceTerminated); 2]);
    owner.refused(&json!({"interrupt": [id]}).to_string(), "interrupt[0]");
}

#[test]
fn failed_checks_and_scheduled_events_are_told_of_running_instances() {
    let mut owner = Owner::new();
    let id = owner.start(1).remove(0);
    let check = json!({"instanceId": id, "instance": "impaired", "system": "ok", "scheduledEvent": true});
    let of = |name: &str, value: &str| format!("Action=DescribeInstanceStatus&Filter.1.Name={name}&Filter.1.Value.1={value}");
    owner.change(&json!({"checks": [check]}));
    assert!(!owner.ec2("Action=DescribeInstanceStatus").1.contains(&id), "it does not run yet");
    assert!(owner.ec2("Action=DescribeInstanceStatus&IncludeAllInstances=true").1.contains("<status>not-applicable</status>"));
    owner.change(&json!({"advanceSeconds": 60, "checks": [check]}));
    let (_, impaired) = owner.ec2(&of("instance-status.status", "impaired"));
    assert!(impaired.contains(&id) && impaired.contains("<impairedSince>2026-03-01T12:00:00Z</impairedSince>"), "{impaired}");
    assert!(owner.ec2(&of("event.code", "instance-retirement")).1.contains("<code>instance-retirement</code>"));
    assert!(!owner.ec2(&of("system-status.status", "impaired")).1.contains(&id));
    owner.change(&json!({"checks": [{"instanceId": id, "instance": "ok", "system": "ok"}]}));
    let (_, sound) = owner.ec2("Action=DescribeInstanceStatus");
    assert!(sound.contains("<status>ok</status>") && !sound.contains("<code>instance-retirement"), "{sound}");
    assert_eq!(owner.ec2(&of("colour", "red")).0, 400);
    owner.refused(
        r#"{"checks": [{"instanceId": "i-1", "instance": "ok", "system": "ok"}]}"#,
        "checks[0].instanceId: there is no instance i-1",
    );
    owner.refused(r#"{"checks": [{"instanceId": "i-1", "instance": "bad", "system": "ok"}]}"#, "checks[0].instance: unknown variant `bad`");
}

#[test]
fn zonal_shifts_are_of_the_regions_own_zones() {
    let mut owner = Owner::new();
    let arn = owner.lone.region.cluster_arn(&"demo".into()).replace(':', "%3A").replace('/', "%2F");
    let read = |owner: &mut Owner| {
        let request = Request {
            service: "arc-zonal-shift".into(),
            principal: "AKID".into(),
            method: "GET".into(),
            path: format!("/managedresources/{arn}"),
            ..Request::default()
        };
        let answer: Value = serde_json::from_str(&owner.api.answer(&mut owner.lone, &request).body).unwrap();
        answer["zonalShifts"].as_array().unwrap().clone()
    };
    let shifts = json!([{"awayFrom": "use1-az1", "endsAt": "2026-03-01T13:00:00Z"}, {"awayFrom": "use1-az2", "endsAt": "2026-03-01T13:00:00Z", "applied": false}]);
    owner.change(&json!({"zonalShifts": shifts}));
    let read_back: Vec<_> =
        read(&mut owner).iter().map(|one| (text(one, "awayFrom").to_owned(), text(one, "appliedStatus").to_owned())).collect();
    assert_eq!(read_back, [("use1-az1".into(), "APPLIED".into()), ("use1-az2".into(), "NOT_APPLIED".into())]);
    owner.refused(
        r#"{"zonalShifts": [{"awayFrom": "us-east-1a", "endsAt": "2026-03-01T13:00:00Z"}]}"#,
        "zonalShifts[0].awayFrom: there is no zone with the id us-east-1a: use1-az",
    );
    owner.change(&json!({"zonalShifts": []}));
    assert_eq!(read(&mut owner), Vec::<Value>::new());
}

#[test]
fn policies_are_set_and_taken_back() {
    let mut owner = Owner::new();
    let document = json!({"Version": "2012-10-17", "Statement": [
        {"Sid": "Used", "Effect": "Allow", "Action": "ec2:DescribeImages", "Resource": "*"},
        {"Sid": "Unused", "Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"},
        {"Sid": "Against", "Effect": "Deny", "Action": "ec2:DescribeVpcs", "Resource": "*"}]});
    let state = owner.change(&json!({"policies": {"AKID": [document]}}));
    assert_eq!((&state["principals"], &state["usedStatements"]), (&json!(["AKID"]), &json!({})));
    assert_eq!((owner.ec2("Action=DescribeSubnets").0, owner.ec2("Action=DescribeImages").0), (403, 200));
    assert_eq!(owner.change(&json!({}))["usedStatements"], json!({"AKID": ["Used"]}), "what was refused uses none");
    owner.refused(r#"{"policies": {"AKID": [{"Statement": [{"Effect": "Allow", "Action": "ec2:*"}]}, {}]}}"#, "policies.AKID[1]");
    owner.refused(r#"{"policies": {"AKID": {}}}"#, "policies.AKID: invalid type: map, expected a sequence");
    assert_eq!(owner.change(&json!({"policies": {"AKID": null}}))["principals"], json!([]));
    assert_eq!(owner.ec2("Action=DescribeSubnets").0, 200);
}

#[test]
fn every_action_that_is_listed_is_answered() {
    let mut owner = Owner::new();
    for (service, actions) in crate::api::ACTIONS {
        for action in *actions {
            let version = if *service == "ec2" { "2016-11-15" } else { "2010-05-08" };
            let query = matches!(*service, "ec2" | "iam");
            let rest = match *service {
                "eks" => Some("/clusters/none"),
                "arc-zonal-shift" => Some("/managedresources/arn%3Aaws%3Aeks%3Aus-east-1%3A000000000000%3Acluster%2Fnone"),
                _ => None,
            };
            let request = Request {
                service: (*service).into(),
                principal: "AKID".into(),
                method: if rest.is_some() { "GET".into() } else { "POST".into() },
                path: rest.unwrap_or("/").into(),
                target: if query { String::new() } else { format!("T.{action}") },
                body: if query { format!("Version={version}&Action={action}") } else { "{}".into() },
            };
            let answer = owner.api.answer(&mut owner.lone, &request);
            let unknown = ["InvalidAction", "UnknownOperation"].iter().any(|code| answer.body.contains(code));
            assert!(!unknown, "{service} {action}: {}", answer.body);
            assert_eq!(owner.api.journal.last().unwrap().action, *action);
        }
    }
}
