//! Requests and responses as text, without an SDK.

use crate::{Api, Limits, Lone, Place, Request, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

struct Stage {
    api: Api,
    lone: Lone,
}

impl Stage {
    fn new() -> Self {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        Self { api: Api::default(), lone: Lone::new("us-east-1", &ClusterName::new("demo"), now) }
    }

    fn ask(&mut self, service: &str, body: &str) -> Response {
        let version = if service == "ec2" { "2016-11-15" } else { "2010-05-08" };
        let body = format!("Version={version}&{body}");
        self.api.answer(&mut self.lone, &Request { service: service.into(), principal: "AKID".into(), body, ..Request::default() })
    }

    /// The body of a successful response.
    fn ec2(&mut self, body: &str) -> String {
        let answer = self.ask("ec2", body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.body);
        answer.body
    }

    #[track_caller]
    fn refused(&mut self, body: &str, status: u16, code: &str) {
        let answer = self.ask("ec2", body);
        assert!(
            answer.status == status && answer.body.contains(&format!("<Code>{code}</Code>")),
            "{body}: {} {}",
            answer.status,
            answer.body
        );
    }

    fn template(&mut self) {
        let user_data = STANDARD.encode("#!/bin/sh");
        let data = format!("LaunchTemplateData.ImageId=ami-00000000000000004&LaunchTemplateData.UserData={user_data}");
        self.ec2(&format!("Action=CreateLaunchTemplate&LaunchTemplateName=karpenter/1&{data}"));
    }

    fn wait(&mut self, seconds: i64) {
        let now = self.lone.now() + SignedDuration::from_secs(seconds);
        self.lone.set_time(now);
    }
}

/// A fleet of `target` machines of one type in the first two zones.
fn fleet(token: &str, target: u32) -> String {
    let mut body = format!(
        "Action=CreateFleet&Type=instant&ClientToken={token}&TargetCapacitySpecification.TotalTargetCapacity={target}\
         &TargetCapacitySpecification.DefaultTargetCapacityType=spot&SpotOptions.AllocationStrategy=price-capacity-optimized\
         &TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=a&TagSpecification.1.Tag.1.Value=b\
         &LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=karpenter%2F1\
         &LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=%24Latest"
    );
    for (number, letter) in ["a", "b"].iter().enumerate() {
        let place = format!("LaunchTemplateConfigs.1.Overrides.{}", number + 1);
        body += &format!(
            "&{place}.InstanceType=m5.large&{place}.AvailabilityZone=us-east-1{letter}&{place}.SubnetId=subnet-{:017x}",
            number + 1
        );
    }
    body
}

fn count(body: &str, element: &str) -> usize {
    body.matches(&format!("<{element}>")).count()
}

/// The text of the first element of this name.
fn first<'a>(body: &'a str, element: &str) -> &'a str {
    body.split(&format!("<{element}>")).nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default()
}

#[test]
fn an_unknown_parameter_action_or_filter_is_refused() {
    let mut stage = Stage::new();
    stage.refused("Action=DescribeSubnetz", 400, "InvalidAction");
    stage.refused("Action=DescribeSubnets&Filters.1.Name=vpc-id", 400, "UnknownParameter");
    stage.refused("Action=DescribeSubnets&Filter.1.Name=vpc&Filter.1.Value.1=x", 400, "InvalidParameterValue");
    stage.refused("Action=DescribeSubnets&Filter.1.Name=vpc-id&Filter.1.Value.2=x", 400, "UnknownParameter");
    stage.refused("Action=DescribeSubnets&MaxResults=4", 400, "InvalidParameterValue");
    stage.refused("Action=DescribeInstanceTypes&MaxResults=101", 400, "InvalidParameterValue");
    stage.refused("Action=DescribeInstances&InstanceId.1=i-1", 400, "InvalidInstanceID.Malformed");
    stage.refused("Action=DescribeInstances&InstanceId.1=i-00000000000000001", 400, "InvalidInstanceID.NotFound");
    stage.refused("Action=DescribeInstances&InstanceId.1=i-00000000000000001&MaxResults=5", 400, "InvalidParameterCombination");
    stage.refused("Action=DescribeSubnets&DryRun=true", 412, "DryRunOperation");
    assert!(stage.api.journal.iter().all(|entry| entry.refused.is_some()));
}

#[test]
fn a_refused_fleet_starts_nothing() {
    let mut stage = Stage::new();
    stage.refused(&fleet("t", 1), 400, "InvalidLaunchTemplateName.NotFoundException");
    stage.template();
    stage.refused(&(fleet("t", 1) + "&LaunchTemplateConfigs.1.Overrides.1.SubnetID=x"), 400, "UnknownParameter");
    stage.refused(&fleet("t", 0), 400, "InvalidTargetCapacitySpecification");
    stage.refused(&fleet("t", 1).replace("Type=instant", "Type=instantly"), 400, "InvalidParameterValue");
    stage.refused(&fleet("t", 1).replace("instance&", "instances&"), 400, "InvalidParameterValue");
    assert!(stage.lone.region.machines.is_empty());
}

#[test]
fn a_dry_run_is_refused_like_the_call_and_never_carried_out() {
    let mut stage = Stage::new();
    let instance =
        "Action=RunInstances&DryRun=true&MinCount=1&MaxCount=1&InstanceType=m5.large&LaunchTemplate.LaunchTemplateName=karpenter%2F1";
    stage.refused(instance, 400, "InvalidLaunchTemplateName.NotFoundException");
    stage.template();
    let with = |subnet: &str| format!("{instance}&NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId={subnet}");
    stage.refused(&with("subnet-00000000000000001"), 412, "DryRunOperation");
    stage.refused(&(fleet("t", 1) + "&DryRun=true"), 412, "DryRunOperation");
    stage.refused(&(fleet("t", 1) + "&DryRun=true&Dry=1"), 400, "UnknownParameter");
    stage.refused(&with("subnet-0"), 400, "InvalidSubnetID.NotFound");
    stage.refused(&(with("subnet-00000000000000001") + "&SubnetId=subnet-00000000000000001"), 400, "InvalidParameterCombination");
    stage.refused(&instance.replace("m5.large", "m5.huge"), 400, "InvalidParameterValue");
    stage.refused(&instance.replace("DryRun=true&", ""), 400, "UnsupportedOperation");
    assert!(stage.lone.region.machines.is_empty());
}

#[test]
fn the_same_token_is_the_same_fleet_and_another_content_a_mismatch() {
    let mut stage = Stage::new();
    stage.template();
    let once = stage.ec2(&fleet("t", 3));
    assert_eq!((count(&once, "instanceType"), stage.lone.region.machines.len()), (2, 3), "one entry for a pool, with its override");
    assert_eq!(stage.ec2(&fleet("t", 3)), once);
    stage.refused(&fleet("t", 2), 400, "IdempotentParameterMismatch");
    assert_eq!(stage.lone.region.machines.len(), 3);
    let id = first(&once, "fleetId").to_owned();
    let again = stage.ec2(&format!("Action=DescribeFleets&FleetId.1={id}"));
    assert_eq!(first(&again, "instanceIds"), first(&once, "instanceIds"));
    stage.refused("Action=DescribeFleets&FleetId.1=fleet-0", 400, "InvalidFleetId.NotFound");
}

#[test]
fn a_pool_that_runs_dry_ends_a_fleet_early() {
    let mut stage = Stage::new();
    stage.template();
    for zone in ["us-east-1a", "us-east-1b"] {
        stage.lone.region.supply.pools.insert(("m5.large".into(), zone.into(), "spot".into()), 2);
    }
    let answer = stage.ec2(&fleet("t", 5));
    assert_eq!((count(&answer, "errorCode"), stage.lone.region.machines.len()), (2, 4));
    assert_eq!(first(&answer, "errorCode"), "InsufficientInstanceCapacity");
    let id = stage.lone.region.machines.keys().next().unwrap().clone();
    stage.ec2(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    stage.wait(60);
    assert_eq!(stage.ec2(&fleet("u", 1)).matches("errorCode").count(), 0, "what has ended leaves its place");
}

#[test]
fn addresses_and_quotas_are_used_up() {
    let mut stage = Stage::new();
    stage.template();
    stage.lone.region.supply.counts_addresses = true;
    for subnet in &mut stage.lone.region.network.subnets {
        subnet.free_addresses = 1;
    }
    let answer = stage.ec2(&fleet("t", 4));
    assert_eq!((stage.lone.region.machines.len(), first(&answer, "errorCode")), (2, "InsufficientFreeAddressesInSubnet"));
    let mut stage = Stage::new();
    stage.template();
    stage.lone.region.supply.vcpus.insert(("standard".into(), "spot".into()), 5);
    let answer = stage.ec2(&fleet("t", 4));
    assert_eq!((stage.lone.region.machines.len(), first(&answer, "errorCode")), (2, "MaxSpotInstanceCountExceeded"));
}

#[test]
fn an_instance_is_shown_late_and_forgotten_later() {
    let mut stage = Stage::new();
    stage.template();
    stage.lone.region.supply.describe_lag = SignedDuration::from_secs(3);
    let id = first(&stage.ec2(&fleet("t", 1)), "instanceIds").to_owned();
    assert_eq!(id, "", "the id is in an item of its own");
    let id: InstanceId = stage.lone.region.machines.keys().next().unwrap().clone();
    stage.refused(&format!("Action=DescribeInstances&InstanceId.1={id}"), 400, "InvalidInstanceID.NotFound");
    stage.refused(&format!("Action=TerminateInstances&InstanceId.1={id}"), 400, "InvalidInstanceID.NotFound");
    assert_eq!(count(&stage.ec2("Action=DescribeInstances"), "instanceId"), 0);
    stage.wait(20);
    let shown = stage.ec2("Action=DescribeInstances&Filter.1.Name=tag%3Aa&Filter.1.Value.1=%3F");
    assert_eq!((first(&shown, "instanceId"), first(&shown, "instanceLifecycle")), (id.as_str(), "spot"));
    let ending = stage.ec2(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    assert!(ending.contains("<name>running</name>") && ending.contains("<name>shutting-down</name>"), "{ending}");
    stage.wait(60);
    let ended = stage.ec2(&format!("Action=DescribeInstances&InstanceId.1={id}"));
    assert!(ended.contains("<name>terminated</name>") && !ended.contains("<subnetId>"), "{ended}");
    stage.wait(2 * 3600);
    stage.refused(&format!("Action=DescribeInstances&InstanceId.1={id}"), 400, "InvalidInstanceID.NotFound");
    let kinds: Vec<bool> =
        ["running", "shutting-down", "terminated"].map(|state| stage.lone.events.iter().any(|event| event.contains(state))).into();
    assert_eq!(kinds, [true; 3]);
}

#[test]
fn pages_hold_what_was_asked_for_and_lead_to_the_end() {
    let mut stage = Stage::new();
    let (mut found, mut token) = (0, String::new());
    loop {
        let answer = stage.ec2(&format!("Action=DescribeInstanceTypes&MaxResults=100{token}"));
        let page = count(&answer, "instanceType");
        assert!(page <= 100);
        found += page;
        let next = first(&answer, "nextToken");
        if next.is_empty() {
            break;
        }
        token = format!("&NextToken={}", next.replace('=', "%3D"));
    }
    assert_eq!(found, stage.lone.region.catalog.types.len());
    stage.refused("Action=DescribeInstanceTypes&NextToken=x", 400, "InvalidPaginationToken");
}

#[test]
fn a_bucket_refuses_what_is_beyond_it_and_fills_up_again() {
    let mut stage = Stage::new();
    stage.template();
    stage.api.limits = Limits::documented();
    for number in 0..50 {
        stage.ec2(&fleet(&format!("t{number}"), 1));
    }
    stage.refused(&fleet("t50", 1), 503, "RequestLimitExceeded");
    assert_eq!(stage.lone.region.machines.len(), 50, "a throttled fleet starts nothing");
    stage.wait(1);
    for number in 50..55 {
        stage.ec2(&fleet(&format!("t{number}"), 1));
    }
    stage.refused(&fleet("t55", 1), 503, "RequestLimitExceeded");
    assert_eq!(stage.api.calls("CreateFleet"), 57);
}

#[test]
fn calls_without_filter_and_page_size_have_a_smaller_bucket_of_their_own() {
    let mut stage = Stage::new();
    stage.api.limits = Limits::documented();
    let unfiltered = "Action=DescribeInstances";
    let filtered = "Action=DescribeInstances&Filter.1.Name=instance-state-name&Filter.1.Value.1=running";
    for _ in 0..50 {
        stage.ec2(unfiltered);
    }
    stage.refused(unfiltered, 503, "RequestLimitExceeded");
    for _ in 0..50 {
        stage.ec2(filtered);
        stage.ec2("Action=DescribeInstances&MaxResults=5");
    }
    stage.refused(filtered, 503, "RequestLimitExceeded");
    stage.wait(1);
    for _ in 0..10 {
        stage.ec2(unfiltered);
    }
    stage.refused(unfiltered, 503, "RequestLimitExceeded");
}

#[test]
fn a_template_is_there_once_and_its_user_data_is_small() {
    let mut stage = Stage::new();
    stage.template();
    stage.refused(
        "Action=CreateLaunchTemplate&LaunchTemplateName=karpenter/1&LaunchTemplateData.ImageId=a",
        400,
        "InvalidLaunchTemplateName.AlreadyExistsException",
    );
    stage.refused(
        "Action=CreateLaunchTemplate&LaunchTemplateName=x*y&LaunchTemplateData.ImageId=a",
        400,
        "InvalidLaunchTemplateName.MalformedException",
    );
    stage.refused("Action=CreateLaunchTemplate&LaunchTemplateName=abc&LaunchTemplateData.UserData=%21", 400, "InvalidUserData.Malformed");
    let large = STANDARD.encode(vec![b'x'; 16 * 1024 + 1]);
    stage.refused(
        &format!("Action=CreateLaunchTemplate&LaunchTemplateName=abc&LaunchTemplateData.UserData={}", large.replace('=', "%3D")),
        400,
        "InvalidParameterValue",
    );
    assert_eq!(stage.lone.region.launch_templates["karpenter/1"].user_data, "#!/bin/sh");
    stage.ec2("Action=DeleteLaunchTemplate&LaunchTemplateName=karpenter/1");
    stage.refused("Action=DeleteLaunchTemplate&LaunchTemplateName=karpenter/1", 400, "InvalidLaunchTemplateName.NotFoundException");
}

#[test]
fn a_profile_holds_one_role_and_is_deleted_without_it() {
    let mut stage = Stage::new();
    let mut iam = |body: &str| stage.ask("iam", body);
    let named = |action: &str| format!("Action={action}&InstanceProfileName=p");
    assert_eq!(iam(&named("GetInstanceProfile")).status, 404);
    let created = iam(&(named("CreateInstanceProfile") + "&Path=%2Fk%2F&Tags.member.1.Key=a&Tags.member.1.Value=b"));
    assert!(created.status == 200 && created.body.contains("instance-profile/k/p</Arn>"), "{}", created.body);
    assert_eq!(iam(&named("CreateInstanceProfile")).status, 409);
    assert_eq!(iam(&(named("AddRoleToInstanceProfile") + "&RoleName=r")).status, 200);
    assert!(iam(&(named("AddRoleToInstanceProfile") + "&RoleName=s")).body.contains("<Code>LimitExceeded</Code>"));
    assert!(iam(&named("DeleteInstanceProfile")).body.contains("<Code>DeleteConflict</Code>"));
    assert!(iam("Action=ListInstanceProfiles&PathPrefix=%2Fk%2F").body.contains("<RoleName>r</RoleName>"));
    assert_eq!(iam(&(named("RemoveRoleFromInstanceProfile") + "&RoleName=r")).status, 200);
    assert_eq!(iam(&named("DeleteInstanceProfile")).status, 200);
    assert_eq!(iam(&named("DeleteInstanceProfile")).status, 404);
}

#[test]
fn a_new_profile_is_not_known_to_ec2_at_once() {
    let mut stage = Stage::new();
    stage.lone.region.supply.profile_lag = SignedDuration::from_secs(10);
    stage.ask("iam", "Action=CreateInstanceProfile&InstanceProfileName=p");
    stage.ec2("Action=CreateLaunchTemplate&LaunchTemplateName=karpenter/1&LaunchTemplateData.IamInstanceProfile.Name=p");
    let early = stage.ec2(&fleet("t", 1));
    assert!(first(&early, "errorMessage").contains("Invalid IAM Instance Profile name"), "{early}");
    stage.wait(10);
    stage.ec2(&fleet("u", 1));
    assert_eq!(stage.lone.region.machines.len(), 1);
}

#[test]
fn a_new_profile_is_not_shown_by_iam_at_once_and_cannot_be_made_twice() {
    let mut stage = Stage::new();
    stage.lone.region.supply.iam_lag = SignedDuration::from_secs(5);
    let named = |action: &str| format!("Action={action}&InstanceProfileName=p");
    let role = named("AddRoleToInstanceProfile") + "&RoleName=r";
    assert_eq!(stage.ask("iam", &named("CreateInstanceProfile")).status, 200);
    assert_eq!(stage.ask("iam", &named("GetInstanceProfile")).status, 404);
    assert_eq!(stage.ask("iam", &role).status, 404);
    assert!(!stage.ask("iam", "Action=ListInstanceProfiles").body.contains("instance-profile/p"));
    assert_eq!(stage.ask("iam", &named("CreateInstanceProfile")).status, 409);
    stage.wait(5);
    assert_eq!(stage.ask("iam", &role).status, 200);
    assert!(stage.ask("iam", "Action=ListInstanceProfiles").body.contains("<RoleName>r</RoleName>"));
}

#[test]
fn tag_keys_of_profiles_do_not_differ_in_case_alone() {
    let mut stage = Stage::new();
    let tags = "&Tags.member.1.Key=team&Tags.member.1.Value=a&Tags.member.2.Key=Team&Tags.member.2.Value=b";
    let answer = stage.ask("iam", &format!("Action=CreateInstanceProfile&InstanceProfileName=p{tags}"));
    assert!(answer.status == 400 && answer.body.contains("<Code>InvalidInput</Code>"), "{}", answer.body);
}

#[test]
fn the_strategy_of_a_fleet_decides_which_pools_it_uses() {
    let started = |strategy: &str| {
        let mut stage = Stage::new();
        stage.ec2("Action=CreateLaunchTemplate&LaunchTemplateName=karpenter/1&LaunchTemplateData.ImageId=ami-1");
        let key = |name: &str, zone: &str| (name.to_owned(), zone.to_owned(), "spot".to_owned());
        let pools = [(key("m5.large", "us-east-1a"), 1), (key("m5.large", "us-east-1b"), 1), (key("m5.24xlarge", "us-east-1a"), 9)];
        stage.lone.region.supply.pools.extend(pools);
        let place = "LaunchTemplateConfigs.1.Overrides.3";
        let body = fleet("t", 2).replace("price-capacity-optimized", strategy)
            + &format!("&{place}.InstanceType=m5.24xlarge&{place}.AvailabilityZone=us-east-1a&{place}.SubnetId=subnet-00000000000000001");
        stage.ec2(&body);
        stage.lone.region.machines.values().map(|machine| machine.instance.instance_type.clone()).collect::<Vec<_>>()
    };
    assert_eq!(started("price-capacity-optimized"), ["m5.24xlarge"; 2], "no cheap pool has enough for both");
    assert_eq!(started("lowest-price"), ["m5.large"; 2]);
}

#[test]
fn an_authorization_header_names_key_and_service() {
    let header = "AWS4-HMAC-SHA256 Credential=AKID/20260301/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0";
    assert_eq!(Request::signed_for(header), Some(("AKID", "ec2")));
    assert_eq!(Request::signed_for("Bearer x"), None);
}
