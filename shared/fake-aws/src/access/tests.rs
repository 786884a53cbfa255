//! Policies against calls, as text. The template's own policies are in `tests/it/wire`.

use crate::{Api, Entry, Lone, Request, Response};
use serde_json::{Value, json};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

const FUNCTION: &str = "function";
const OWNER: &str = "owner";
const TAGS: &[(&str, &str)] = &[("eks:eks-cluster-name", "demo"), ("karpenter.sh/nodepool", "default")];

struct Stage {
    api: Api,
    lone: Lone,
}

impl Stage {
    /// With policies for the function; the owner has none and may do everything.
    fn new(statements: &Value) -> Self {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let mut stage = Self { api: Api::default(), lone: Lone::new("us-east-1", &ClusterName::new("demo"), now) };
        stage.allow(statements);
        stage
    }

    fn allow(&mut self, statements: &Value) {
        let document = json!({"Version": "2012-10-17", "Statement": statements});
        self.api.access.set_policies(FUNCTION, Some(&[document])).unwrap();
    }

    fn ask(&mut self, principal: &str, service: &str, body: &str) -> Response {
        let version = if service == "ec2" { "2016-11-15" } else { "2010-05-08" };
        let body = format!("Version={version}&{}", body.replace(':', "%3A").replace('/', "%2F"));
        self.api.answer(&mut self.lone, &Request { service: service.into(), principal: principal.into(), body, ..Request::default() })
    }

    #[track_caller]
    fn allowed(&mut self, service: &str, body: &str) {
        let answer = self.ask(FUNCTION, service, body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.body);
    }

    /// The call is refused for this right.
    #[track_caller]
    fn denied(&mut self, service: &str, body: &str, lacks: &str) {
        let answer = self.ask(FUNCTION, service, body);
        let code = if service == "ec2" { "UnauthorizedOperation" } else { "AccessDenied" };
        assert!(answer.status == 403 && answer.body.contains(&format!("<Code>{code}</Code>")), "{body}: {}", answer.body);
        let entry = self.last();
        assert_eq!((entry.status, entry.refused.as_deref()), (403, Some(code)));
        assert!(entry.lacks.as_deref().is_some_and(|found| found.starts_with(lacks)), "{body}: {:?}", entry.lacks);
    }

    fn last(&self) -> &Entry {
        self.api.journal.last().unwrap()
    }

    /// A machine with these tags, which the owner started; its id.
    fn machine(&mut self, token: &str, tags: &[(&str, &str)]) -> String {
        self.ask(OWNER, "ec2", &template(&format!("owner/{token}"), &[], ""));
        let answer = self.ask(OWNER, "ec2", &fleet(&format!("owner/{token}"), token, &[("instance", tags)]));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let later = crate::Place::now(&self.lone) + SignedDuration::from_secs(60);
        self.lone.set_time(later);
        let mut machines: Vec<_> = self.lone.region.machines.values().map(|machine| &machine.instance).collect();
        machines.sort_by_key(|instance| instance.launched_at);
        machines.last().unwrap().id.to_string()
    }
}

fn tag_list(prefix: &str, tags: &[(&str, &str)]) -> String {
    let one =
        |(number, (key, value)): (usize, &(&str, &str))| format!("&{prefix}Tag.{0}.Key={key}&{prefix}Tag.{0}.Value={value}", number + 1);
    tags.iter().enumerate().map(one).collect()
}

/// Tags of a kind of resource.
type OfKind<'a> = (&'a str, &'a [(&'a str, &'a str)]);

fn specifications(prefix: &str, kinds: &[OfKind<'_>]) -> String {
    let one = |(number, (kind, tags)): (usize, &OfKind<'_>)| {
        let place = format!("{prefix}TagSpecification.{}.", number + 1);
        format!("&{place}ResourceType={kind}{}", tag_list(&place, tags))
    };
    kinds.iter().enumerate().map(one).collect()
}

fn template(name: &str, tags: &[(&str, &str)], more: &str) -> String {
    let own: &[OfKind<'_>] = if tags.is_empty() { &[] } else { &[("launch-template", tags)] };
    let given = specifications("", own);
    format!("Action=CreateLaunchTemplate&LaunchTemplateName={name}&LaunchTemplateData.ImageId=ami-00000000000000004{given}{more}")
}

fn fleet(template: &str, token: &str, tags: &[OfKind<'_>]) -> String {
    let place = "LaunchTemplateConfigs.1.Overrides.1";
    format!(
        "Action=CreateFleet&Type=instant&ClientToken={token}&TargetCapacitySpecification.TotalTargetCapacity=1\
         &TargetCapacitySpecification.DefaultTargetCapacityType=spot\
         &LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName={template}\
         &LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=1\
         &{place}.InstanceType=m5.large&{place}.AvailabilityZone=us-east-1a&{place}.SubnetId=subnet-00000000000000001{}",
        specifications("", tags)
    )
}

#[test]
fn what_is_not_known_in_a_policy_is_an_error_when_it_is_loaded() {
    let statement = |condition: Value| json!({"Effect": "Allow", "Action": "ec2:*", "Resource": "*", "Condition": condition});
    for (document, expected) in [
        (
            json!({"Statement": [statement(json!({"NumericLessThan": {"aws:TagKeys": "1"}}))]}),
            "policies.p[0].Statement[0]: condition operator",
        ),
        (
            json!({"Statement": [{"Effect": "Deny", "Action": "s3:*", "Resource": "*"}, statement(json!({"StringEquals": {"ec2:Colour": "x"}}))]}),
            "policies.p[0].Statement[1].Condition: calls of ec2:",
        ),
        (json!({"Statement": statement(json!({"StringEquals": {"aws:TagKeysX": "x"}}))}), "policies.p[0].Statement[0].Condition"),
        (
            json!({"Statement": [{"Effect": "Maybe", "Action": "*", "Resource": "*"}]}),
            "policies.p[0].Statement[0]: a statement has the effect",
        ),
        (json!({}), "policies.p[0]: a policy document has statements"),
    ] {
        let mut api = Api::default();
        let error = api.access.set_policies("p", Some(std::slice::from_ref(&document))).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{document}: {error}");
        assert_eq!(api.access.principals(), [""; 0]);
    }
    // Condition keys of services that are not simulated.
    let other = json!({"Statement": [{"Effect": "Allow", "Action": "dynamodb:GetItem", "Resource": "*",
        "Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["A#*"]}}}]});
    Api::default().access.set_policies("p", Some(&[other])).unwrap();
}

#[test]
fn whoever_has_policies_may_do_what_they_allow_and_nothing_else() {
    let mut stage = Stage::new(&json!([{"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*",
        "Condition": {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}}]));
    stage.allowed("ec2", "Action=DescribeSubnets");
    stage.denied("iam", "Action=ListInstanceProfiles", "iam:ListInstanceProfiles on *");
    assert_eq!(stage.ask(OWNER, "iam", "Action=ListInstanceProfiles").status, 200);
    stage.allow(&json!([{"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Deny", "Action": "ec2:DescribeSubnets", "Resource": "*"}]));
    stage.denied("ec2", "Action=DescribeSubnets", "ec2:DescribeSubnets");
    let answer = stage.ask(FUNCTION, "ec2", "Action=DescribeSubnets&DryRun=true");
    assert!(answer.body.contains("explicit deny") && answer.body.contains("UnauthorizedOperation"), "{}", answer.body);
    stage.allowed("iam", "Action=ListInstanceProfiles");
    stage.allow(&json!([{"Effect": "Allow", "Action": "ec2:*", "Resource": "*",
        "Condition": {"StringEquals": {"aws:RequestedRegion": "eu-west-1"}}}]));
    stage.denied("ec2", "Action=DescribeSubnets", "ec2:DescribeSubnets");
}

#[test]
fn an_instance_without_the_clusters_tag_is_neither_terminated_nor_tagged() {
    let mut stage = Stage::new(&json!([
        {"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "arn:aws:ec2:us-east-1:000000000000:instance/*",
            "Condition": {"StringEquals": {"aws:ResourceTag/eks:eks-cluster-name": ["demo"]}}},
        {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": "arn:aws:ec2:*:*:instance/*", "Condition": {
            "StringEquals": {"aws:ResourceTag/eks:eks-cluster-name": "demo"},
            "ForAllValues:StringEquals": {"aws:TagKeys": ["Name"]}}},
    ]));
    let foreign = stage.machine("a", &[("eks:eks-cluster-name", "other")]);
    let own = stage.machine("b", TAGS);
    for id in [&foreign, &own] {
        let (end, tag) = (format!("Action=TerminateInstances&InstanceId.1={id}"), format!("Action=CreateTags&ResourceId.1={id}"));
        if *id == foreign {
            stage.denied("ec2", &end, "ec2:TerminateInstances on arn:aws:ec2:us-east-1:000000000000:instance/i-");
            stage.denied("ec2", &format!("Action=TerminateInstances&InstanceId.1={own}&InstanceId.2={id}"), "ec2:TerminateInstances");
            stage.denied("ec2", &format!("{tag}&Tag.1.Key=Name&Tag.1.Value=x"), "ec2:CreateTags");
        } else {
            stage.denied("ec2", &format!("{tag}&Tag.1.Key=team&Tag.1.Value=x"), "ec2:CreateTags");
            stage.allowed("ec2", &format!("{tag}&Tag.1.Key=Name&Tag.1.Value=x"));
            assert_eq!(stage.last().tags["instance"]["Name"], "x");
            stage.allowed("ec2", &end);
        }
    }
    let alive = |id: &str| stage.lone.region.machines[&whittle_units::InstanceId::new(id)].instance.is_alive();
    assert!(alive(&foreign) && !alive(&own), "a refused call ends nothing, not even what the caller might end");
    let unknown = stage.ask(FUNCTION, "ec2", "Action=TerminateInstances&InstanceId.1=i-0123456789abcdef0");
    assert!(
        unknown.body.contains("InvalidInstanceID.NotFound"),
        "an instance that does not exist is not found, whatever its tags were: {}",
        unknown.body
    );
}

/// The statements of a function that launches, as the template has them.
fn launcher() -> Value {
    let made = ["fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"]
        .map(|kind| format!("arn:aws:ec2:us-east-1:000000000000:{kind}/*"));
    let request = json!({"aws:RequestTag/eks:eks-cluster-name": ["demo"]});
    let pool = json!({"aws:RequestTag/karpenter.sh/nodepool": "*"});
    let mut at_launch = request.clone();
    at_launch["ec2:CreateAction"] = json!(["RunInstances", "CreateFleet", "CreateLaunchTemplate"]);
    json!([
        {"Effect": "Allow", "Action": ["ec2:RunInstances", "ec2:CreateFleet"], "Resource": ["arn:aws:ec2:us-east-1::image/*",
            "arn:aws:ec2:us-east-1:*:subnet/*", "arn:aws:ec2:us-east-1:*:security-group/*"]},
        {"Effect": "Allow", "Action": ["ec2:RunInstances", "ec2:CreateFleet"], "Resource": "arn:aws:ec2:us-east-1:000000000000:launch-template/*",
            "Condition": {"StringEquals": {"aws:ResourceTag/eks:eks-cluster-name": ["demo"]}}},
        {"Effect": "Allow", "Action": ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"], "Resource": made,
            "Condition": {"StringEquals": request, "StringLike": pool}},
        {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": made, "Condition": {"StringEquals": at_launch, "StringLike": pool}},
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:*:iam::*:role/nodes-*",
            "Condition": {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com"]}}},
    ])
}

/// A template whose data tag interfaces and spot requests, with the profile of a role.
fn tagged_template(name: &str, profile: &str) -> String {
    let kinds: [OfKind<'_>; 2] = [("network-interface", TAGS), ("spot-instances-request", TAGS)];
    let data = specifications("LaunchTemplateData.", &kinds);
    template(name, TAGS, &format!("{data}&LaunchTemplateData.IamInstanceProfile.Name={profile}"))
}

#[test]
fn a_launch_is_checked_for_each_resource_that_it_names_or_makes() {
    let mut stage = Stage::new(&launcher());
    stage.lone.region.network.profiles.extend([("mine".into(), "nodes-a".into()), ("theirs".into(), "admin".into())]);
    stage.denied(
        "ec2",
        &template("karpenter/0", &[], ""),
        "ec2:CreateLaunchTemplate on arn:aws:ec2:us-east-1:000000000000:launch-template/*",
    );
    stage.allowed("ec2", &tagged_template("karpenter/1", "mine"));
    let kinds: [OfKind<'_>; 3] = [("fleet", TAGS), ("instance", TAGS), ("volume", TAGS)];
    stage.allowed("ec2", &fleet("karpenter/1", "whole", &kinds));
    let entry = stage.last().clone();
    assert_eq!((entry.lacks, stage.lone.region.machines.len()), (None, 1));
    for part in [
        "fleet/*",
        "instance/*",
        "network-interface/*",
        "spot-instances-request/*",
        "launch-template/lt-",
        "role/nodes-a",
        "subnet/",
        ":image/",
    ] {
        assert!(entry.resources.iter().any(|resource| resource.contains(part)), "{part}: {:?}", entry.resources);
    }
    assert_eq!(entry.tags["volume"]["karpenter.sh/nodepool"], "default");
    // Each kind without its tags.
    for (kind, lacks) in [("fleet", "ec2:CreateFleet on"), ("instance", "ec2:CreateFleet on"), ("volume", "ec2:CreateFleet on")] {
        let others: Vec<_> = kinds.into_iter().filter(|(name, _)| *name != kind).collect();
        stage.denied("ec2", &fleet("karpenter/1", kind, &others), lacks);
        assert!(stage.last().lacks.as_deref().unwrap().ends_with(&format!("{kind}/*")));
    }
    // A template of somebody else's.
    stage.ask(OWNER, "ec2", &template("owner/1", &[("eks:eks-cluster-name", "other")], ""));
    stage.denied("ec2", &fleet("owner/1", "other", &kinds), "ec2:CreateFleet on arn:aws:ec2:us-east-1:000000000000:launch-template/lt-");
    let missing = stage.ask(FUNCTION, "ec2", &fleet("karpenter/2", "gone", &kinds));
    assert!(missing.body.contains("InvalidLaunchTemplateName.NotFoundException"), "{}", missing.body);
    assert_eq!(stage.lone.region.machines.len(), 1);
}

#[test]
fn a_launch_that_ec2_may_not_carry_out_is_an_error_of_its_pools() {
    let mut stage = Stage::new(&launcher());
    stage.lone.region.network.profiles.extend([("theirs".into(), "admin".into())]);
    let kinds: [OfKind<'_>; 3] = [("fleet", TAGS), ("instance", TAGS), ("volume", TAGS)];
    stage.allowed("ec2", &tagged_template("karpenter/role", "theirs"));
    stage.allowed("ec2", &template("karpenter/untagged", TAGS, ""));
    for (name, lacks) in [
        ("karpenter/role", "iam:PassRole on arn:aws:iam::000000000000:role/admin"),
        ("karpenter/untagged", "ec2:RunInstances on arn:aws:ec2:us-east-1:000000000000:network-interface/*"),
    ] {
        stage.allowed("ec2", &fleet(name, name, &kinds));
        let answer = stage.ask(FUNCTION, "ec2", &fleet(name, name, &kinds)).body;
        assert!(
            answer.contains("<errorCode>UnauthorizedOperation</errorCode>") && answer.contains("is not authorized to perform"),
            "{answer}"
        );
        assert_eq!(stage.last().lacks.as_deref(), Some(lacks));
    }
    assert!(stage.lone.region.machines.is_empty());
}

#[test]
fn profiles_are_made_with_tags_and_take_roles_that_may_be_passed() {
    let profiles = "arn:aws:iam::000000000000:instance-profile/karpenter/*";
    let mut stage = Stage::new(&json!([
        {"Effect": "Allow", "Action": "iam:GetInstanceProfile", "Resource": "arn:aws:iam::000000000000:instance-profile/*"},
        {"Effect": "Allow", "Action": "iam:CreateInstanceProfile", "Resource": profiles,
            "Condition": {"StringEquals": {"aws:RequestTag/eks:eks-cluster-name": "demo"}}},
        {"Effect": "Allow", "Action": "iam:TagInstanceProfile", "Resource": profiles, "Condition": {"StringEquals":
            {"aws:ResourceTag/eks:eks-cluster-name": "demo", "aws:RequestTag/eks:eks-cluster-name": "demo"}}},
        {"Effect": "Allow", "Action": ["iam:AddRoleToInstanceProfile", "iam:DeleteInstanceProfile"], "Resource": profiles,
            "Condition": {"StringEquals": {"aws:ResourceTag/eks:eks-cluster-name": "demo"}}},
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:*:iam::*:role/nodes-*",
            "Condition": {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com"]}}},
    ]));
    let made = |name: &str, path: &str, cluster: &str| {
        let tags = if cluster.is_empty() {
            String::new()
        } else {
            format!("&Tags.member.1.Key=eks:eks-cluster-name&Tags.member.1.Value={cluster}")
        };
        format!("Action=CreateInstanceProfile&InstanceProfileName={name}&Path={path}{tags}")
    };
    let absent = stage.ask(FUNCTION, "iam", "Action=GetInstanceProfile&InstanceProfileName=p");
    assert_eq!(absent.status, 404, "a profile that is not there is not found: {}", absent.body);
    stage.denied(
        "iam",
        &made("p", "/karpenter/", ""),
        "iam:CreateInstanceProfile on arn:aws:iam::000000000000:instance-profile/karpenter/p",
    );
    stage.denied("iam", &made("p", "/karpenter/", "other"), "iam:CreateInstanceProfile");
    stage.denied("iam", &made("p", "/", "demo"), "iam:CreateInstanceProfile on arn:aws:iam::000000000000:instance-profile/p");
    stage.allowed("iam", &made("p", "/karpenter/", "demo"));
    stage.denied(
        "iam",
        "Action=AddRoleToInstanceProfile&InstanceProfileName=p&RoleName=admin",
        "iam:PassRole on arn:aws:iam::000000000000:role/admin",
    );
    stage.allowed("iam", "Action=AddRoleToInstanceProfile&InstanceProfileName=p&RoleName=nodes-a");
    stage.ask(OWNER, "iam", "Action=CreateInstanceProfile&InstanceProfileName=q&Path=/karpenter/");
    stage.denied("iam", "Action=DeleteInstanceProfile&InstanceProfileName=q", "iam:DeleteInstanceProfile");
    stage.denied("iam", "Action=RemoveRoleFromInstanceProfile&InstanceProfileName=p&RoleName=nodes-a", "iam:RemoveRoleFromInstanceProfile");
}

#[test]
fn services_with_json_refuse_in_their_own_words() {
    let mut stage = Stage::new(&json!([
        {"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "arn:*:eks:*:*:cluster/demo"},
        {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "arn:aws:ssm:us-east-1::parameter/aws/service/*"},
    ]));
    let mut ask = |service: &str, path: &str, target: &str, body: &str| {
        let method = if path == "/" { "POST" } else { "GET" };
        let request = Request {
            service: service.into(),
            principal: FUNCTION.into(),
            method: method.into(),
            path: path.into(),
            target: target.into(),
            body: body.into(),
        };
        let answer = stage.api.answer(&mut stage.lone, &request);
        (answer.status, answer.error_type.unwrap_or_default())
    };
    let denied = |status: u16| (status, "AccessDeniedException".to_owned());
    assert_eq!(ask("eks", "/clusters/demo", "", "").0, 200);
    assert_eq!(ask("eks", "/clusters/other", "", ""), denied(403));
    let (public, own) = (r#"{"Name": "/aws/service/none"}"#, r#"{"Name": "/images/own"}"#);
    assert_eq!(ask("ssm", "/", "AmazonSSM.GetParameter", public).1, "ParameterNotFound");
    assert_eq!(ask("ssm", "/", "AmazonSSM.GetParameter", own), denied(400));
    assert_eq!(ask("pricing", "/", "AWSPriceListService.GetProducts", r#"{"ServiceCode": "AmazonEC2"}"#), denied(400));
    assert_eq!(stage.last().lacks.as_deref(), Some("pricing:GetProducts on *"));
    let parameters: Vec<_> = stage.api.journal.iter().flat_map(|entry| entry.parameters.values()).collect();
    assert!(parameters.iter().any(|value| *value == "/images/own"), "texts are written without quotes: {parameters:?}");
}
