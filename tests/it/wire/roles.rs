//! The roles of `template.yaml` at work: what each function's role allows it to call, and what it refuses.

use super::{place_in, root, run};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use whittle_aws::{Ec2Discovery, EksAccess, Isolation, Machines};
use whittle_claims::Function;
use whittle_ec2::fleet::FleetRequest;
use whittle_fake_aws::Lone;
use whittle_iam::{Deployment, Resolver, statements_of_roles};
use whittle_ports::contracts::CloudPlace;
use whittle_ports::{
    CloudError, CloudErrorKind, ClusterAccess, Discovery, DryRuns, Fleets, InstanceChecks, InstanceRun, InstanceTags, Instances,
    LaunchTemplateCleanup, LaunchTemplates, Terminator, ZonalShifts,
};
use whittle_tests::clock::FixedClock;
use whittle_tests::fake_aws::FakeAws;
use whittle_tests::tools;
use whittle_units::{ClusterName, InstanceId};

const REGION: &str = "us-east-1";
/// The account of the simulated region.
const ACCOUNT: &str = "000000000000";

/// The template as CloudFormation gets it, or nothing where the tool that renders it is missing.
pub(crate) fn rendered() -> Option<Value> {
    let environment = tools::find(tools::SAM)?;
    let mut command = Command::new(environment.join("bin/python"));
    command.current_dir(root()).args(["-B", "tests/python/transform.py", "template.yaml"]).env("AWS_DEFAULT_REGION", REGION);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Gives each function the policies of its role, as its principal.
pub(super) fn enforce(aws: &FakeAws, template: &Value, region: &str, cluster: &str) {
    let parameters =
        [("Clusters", cluster), ("NodeRoles", "KarpenterNodeRole-*"), ("ImageParameters", "/images/*"), ("ZonalShift", "true")];
    let parameters: BTreeMap<String, String> = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let resolver = Resolver::new(template, Deployment { account: ACCOUNT, region }, &parameters).unwrap();
    let roles = statements_of_roles(template, &resolver).unwrap();
    let mut api = aws.api.lock().unwrap();
    for function in Function::ALL {
        let statements = &roles[&format!("{function:?}Role")];
        let document = json!({"Version": "2012-10-17", "Statement": statements});
        api.access.set_policies(principal(function), Some(&[document])).unwrap_or_else(|error| panic!("{function:?}: {error}"));
    }
}

/// The access key of a function.
pub(super) fn principal(function: Function) -> &'static str {
    function.name()
}

/// A region in which everybody has the rights of the template.
struct Stage {
    aws: FakeAws,
    lone: Arc<Mutex<Lone>>,
    cluster: ClusterName,
}

impl Stage {
    fn new() -> Option<Self> {
        let template = rendered()?;
        let cluster = ClusterName::new("demo");
        let lone = Arc::new(Mutex::new(Lone::new(REGION, &cluster, FixedClock::new().now)));
        let aws = FakeAws::new(lone.clone());
        enforce(&aws, &template, REGION, cluster.as_str());
        Some(Self { aws, lone, cluster })
    }

    fn machines(&self, function: Function) -> Machines {
        let config = self.aws.config_of(principal(function), REGION);
        let machines = Machines::new(aws_sdk_ec2::Client::new(&config), Arc::new(FixedClock::new()));
        machines.with_zonal_shift(aws_sdk_arczonalshift::Client::new(&config))
    }

    fn discovery(&self, function: Function) -> Ec2Discovery {
        let config = self.aws.config_of(principal(function), REGION);
        Ec2Discovery::new(&config, REGION.into(), Isolation::Reachable, Arc::new(FixedClock::new()))
    }

    fn place(&self) -> CloudPlace {
        place_in(&self.lone.lock().unwrap(), &self.cluster)
    }

    fn arn(&self, cluster: &str) -> String {
        self.lone.lock().unwrap().region.cluster_arn(&ClusterName::new(cluster))
    }

    fn set_role(&self, profile: &str, role: &str) {
        self.lone.lock().unwrap().region.network.profiles.insert(profile.to_owned(), role.to_owned());
    }

    /// The machines of a fleet that `launch` starts for a cluster, with the profile of a node role.
    async fn launched(&self, batch: &str, cluster: &str) -> Vec<InstanceId> {
        self.set_role("profile", "KarpenterNodeRole-demo");
        let (template, request) = self.launch(batch, cluster, "profile");
        let launch = self.machines(Function::Launch);
        launch.ensure_launch_template(&template).await.unwrap();
        let answer = launch.create_fleet(&request).await.unwrap();
        assert_eq!(answer.errors, []);
        answer.instances.into_iter().map(|instance| instance.id).collect()
    }

    fn launch(&self, batch: &str, cluster: &str, profile: &str) -> (whittle_ec2::fleet::LaunchTemplate, FleetRequest) {
        let place = CloudPlace { cluster: cluster.into(), ..self.place() };
        let mut template = place.template(batch);
        template.instance_profile = profile.to_owned();
        template.spot = true;
        let template = template.named();
        let mut request = place.request(batch, &template, 2);
        "spot".clone_into(&mut request.capacity_type);
        (template, request)
    }

    /// A machine of somebody else's, started by an administrator.
    async fn foreign(&self) -> InstanceId {
        let config = self.aws.config(REGION);
        let owner = Machines::new(aws_sdk_ec2::Client::new(&config), Arc::new(FixedClock::new()));
        let (template, request) = self.launch("foreign", "another-cluster", "");
        owner.ensure_launch_template(&template).await.unwrap();
        owner.create_fleet(&request).await.unwrap().instances.remove(0).id
    }

    /// What was refused so far for want of a right, by principal.
    fn lacking(&self) -> Vec<(String, String)> {
        let api = self.aws.api.lock().unwrap();
        api.journal.iter().filter_map(|entry| Some((entry.principal.clone(), entry.lacks.clone()?))).collect()
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, CloudError>, right: &str) {
    let error = outcome.expect_err(right);
    assert_eq!(error.kind, CloudErrorKind::Unauthorized, "{error}");
    assert!(error.message.contains(right), "{error}");
}

/// Tags that a class gives to what is made for it.
fn class_tags() -> BTreeMap<String, String> {
    BTreeMap::from([("team".to_owned(), "a".to_owned())])
}

#[test]
fn each_function_may_do_its_part_of_a_machines_life() {
    let Some(stage) = Stage::new() else { return };
    run(async {
        let refresh = stage.discovery(Function::Refresh);
        let place = stage.place();
        whittle_ports::contracts::network(&refresh, &place).await;
        refresh.cluster_info(&stage.cluster).await.unwrap();
        let catalog = refresh.catalog(None).await.unwrap().blob;
        assert_ne!(refresh.with_spot_prices(&catalog).await.unwrap(), catalog);
        let term = whittle_api::karpenter::AmiSelectorTerm { alias: Some("al2023@latest".into()), ..Default::default() };
        assert_ne!(refresh.images(&[term], "1.33").await.unwrap(), []);
        let profile = refresh.ensure_instance_profile(&stage.cluster, "default", "KarpenterNodeRole-demo", &class_tags()).await.unwrap();
        assert_eq!(refresh.profile_role(&profile).await.unwrap().as_deref(), Some("KarpenterNodeRole-demo"));

        let own = refresh.profiles(&stage.cluster).await.unwrap();
        assert_eq!(own.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>(), [profile.as_str()]);
        assert!(refresh.delete_profile(&own[0]).await.unwrap());

        let ids = stage.launched("own", "demo").await;
        let launch = stage.machines(Function::Launch);
        let later = whittle_fake_aws::Place::now(&*stage.lone.lock().unwrap()) + whittle_units::SignedDuration::from_secs(60);
        stage.lone.lock().unwrap().set_time(later);
        assert_eq!(launch.tagged(whittle_api::labels::TAG_LAUNCH, "own").await.unwrap().len(), 2);

        let register = stage.machines(Function::Register);
        let name = [("Name".to_owned(), "default/a".to_owned()), (whittle_api::labels::TAG_NODE_CLAIM.to_owned(), "a".to_owned())];
        register.tag(&ids[0], &name).await.unwrap();
        let sweep = stage.machines(Function::Sweep);
        assert_eq!(sweep.of_cluster(&stage.cluster).await.unwrap().len(), 2);
        assert_eq!(sweep.failing(&ids).await.unwrap(), []);
        assert_eq!(sweep.zone_shifts(&stage.arn("demo")).await.unwrap(), []);
        for name in sweep.launch_templates(&stage.cluster).await.unwrap() {
            sweep.delete_launch_template(&name).await.unwrap();
        }
        let terminate = stage.machines(Function::Terminate);
        for id in &ids {
            terminate.terminate(id).await.unwrap();
            assert!(terminate.instance(id).await.unwrap().is_some_and(|instance| !instance.is_alive()));
        }
        terminate.terminate(&InstanceId::new("i-0123456789abcdef0")).await.unwrap();
        assert_eq!(refresh.release_class(&stage.cluster, "default").await.unwrap(), [""; 0]);
        for function in [Function::Schedule, Function::Consolidate, Function::Interrupt, Function::Sweep] {
            let config = stage.aws.config_of(principal(function), REGION);
            let credentials = config.credentials_provider().unwrap();
            let clock = Arc::new(FixedClock::new());
            let access = EksAccess::new(aws_sdk_eks::Client::new(&config), credentials, REGION.into(), clock);
            access.endpoint(&stage.cluster).await.unwrap();
        }
    });
    assert_eq!(stage.lacking(), []);
    assert!(stage.lone.lock().unwrap().region.launch_templates.is_empty(), "the templates of the cluster are deleted");
}

#[test]
fn no_role_but_that_of_terminate_ends_a_machine_and_it_none_of_another_cluster() {
    let Some(stage) = Stage::new() else { return };
    run(async {
        let (foreign, own) = (stage.foreign().await, stage.launched("own", "demo").await);
        refused(stage.machines(Function::Terminate).terminate(&foreign).await, "ec2:TerminateInstances");
        for function in Function::ALL.into_iter().filter(|function| *function != Function::Terminate) {
            refused(stage.machines(function).terminate(&own[0]).await, "ec2:TerminateInstances");
        }
    });
    let lone = stage.lone.lock().unwrap();
    assert!(lone.region.machines.values().all(|machine| machine.instance.is_alive()), "none has ended");
}

#[test]
fn zonal_shifts_are_read_by_sweep_alone_and_of_its_own_clusters() {
    let Some(stage) = Stage::new() else { return };
    run(async {
        let right = "arc-zonal-shift:GetManagedResource";
        refused(stage.machines(Function::Sweep).zone_shifts(&stage.arn("another-cluster")).await, right);
        for function in Function::ALL.into_iter().filter(|function| *function != Function::Sweep) {
            refused(stage.machines(function).zone_shifts(&stage.arn("demo")).await, right);
        }
    });
}

#[test]
fn a_machine_of_another_cluster_gets_no_tags_and_an_own_one_no_others() {
    let Some(stage) = Stage::new() else { return };
    run(async {
        let (foreign, own) = (stage.foreign().await, stage.launched("own", "demo").await);
        let tags = |key: &str, value: &str| [(key.to_owned(), value.to_owned())];
        let register = stage.machines(Function::Register);
        refused(register.tag(&foreign, &tags("Name", "mine")).await, "ec2:CreateTags");
        // Taking over a machine with the cluster's own tag is what the condition is for.
        refused(register.tag(&foreign, &tags("eks:eks-cluster-name", "demo")).await, "ec2:CreateTags");
        refused(register.tag(&own[0], &tags("team", "a")).await, "ec2:CreateTags");
        refused(register.tag(&own[0], &tags("eks:eks-cluster-name", "another-cluster")).await, "ec2:CreateTags");
        for function in [Function::Launch, Function::Terminate, Function::Refresh, Function::Interrupt] {
            refused(stage.machines(function).tag(&own[0], &tags("Name", "x")).await, "ec2:CreateTags");
        }
    });
}

#[test]
fn launch_starts_nothing_without_the_clusters_tag_and_with_no_other_role() {
    let Some(stage) = Stage::new() else { return };
    run(async {
        let launch = stage.machines(Function::Launch);
        let (other, request) = stage.launch("other", "another-cluster", "");
        refused(launch.ensure_launch_template(&other).await, "ec2:CreateLaunchTemplate");
        // An own template, but machines that are tagged for another cluster.
        let (own, sound) = stage.launch("own", "demo", "");
        launch.ensure_launch_template(&own).await.unwrap();
        let stolen = FleetRequest { configs: sound.configs.clone(), ..request };
        refused(launch.create_fleet(&stolen).await, "ec2:CreateFleet");
        let untagged = FleetRequest { tags: BTreeMap::new(), client_token: "untagged".into(), ..sound.clone() };
        refused(launch.create_fleet(&untagged).await, "ec2:CreateFleet");
        // The profile of a role that nodes must not have.
        stage.set_role("admin", "Administrator");
        let (template, request) = stage.launch("admin", "demo", "admin");
        launch.ensure_launch_template(&template).await.unwrap();
        let answer = launch.create_fleet(&request).await.unwrap();
        assert!(answer.instances.is_empty() && answer.errors.iter().all(|error| error.code == "UnauthorizedOperation"), "{answer:?}");
        assert!(answer.errors[0].message.contains("iam:PassRole on resource: arn:aws:iam::000000000000:role/Administrator"), "{answer:?}");
        for function in Function::ALL.into_iter().filter(|function| *function != Function::Launch) {
            refused(stage.machines(function).create_fleet(&sound).await, "ec2:CreateFleet");
        }
    });
    assert!(stage.lone.lock().unwrap().region.machines.is_empty());
}

#[test]
fn a_dry_run_is_answered_as_the_launch_would_be() {
    let Some(stage) = Stage::new() else { return };
    run(async {
        let launch = stage.machines(Function::Launch);
        let subnet = stage.place().subnets.remove(0);
        stage.set_role("profile", "KarpenterNodeRole-demo");
        stage.set_role("admin", "Administrator");
        let tried = async |machines: &Machines, profile: &str| {
            let (template, request) = stage.launch(&format!("tried-{profile}"), "demo", profile);
            launch.ensure_launch_template(&template).await.unwrap();
            let pool = &request.configs[0].overrides[0];
            let run = InstanceRun { template: &template, instance_type: &pool.instance_type, subnet_id: &subnet.id, tags: &request.tags };
            (machines.dry_run_fleet(&request).await, machines.dry_run_instance(&run).await)
        };
        assert_eq!(tried(&launch, "profile").await, (Ok(()), Ok(())));
        // CreateFleet answers for itself alone; the launch in its name is what RunInstances answers for.
        let (fleet, instance) = tried(&launch, "admin").await;
        assert_eq!(fleet, Ok(()));
        refused(instance, "iam:PassRole");
        let (_, instance) = tried(&launch, "missing").await;
        let error = instance.expect_err("the profile does not exist");
        assert!(error.kind == CloudErrorKind::Invalid && error.message.contains("Invalid IAM Instance Profile name"), "{error}");
        for function in Function::ALL.into_iter().filter(|function| *function != Function::Launch) {
            let (fleet, instance) = tried(&stage.machines(function), "profile").await;
            refused(fleet, "ec2:CreateFleet");
            refused(instance, "ec2:RunInstances");
        }
    });
    assert!(stage.lone.lock().unwrap().region.machines.is_empty());
}

#[test]
fn refresh_gives_no_profile_a_role_that_nodes_must_not_have() {
    let Some(stage) = Stage::new() else { return };
    run(async {
        let refresh = stage.discovery(Function::Refresh);
        refused(refresh.ensure_instance_profile(&stage.cluster, "default", "Administrator", &class_tags()).await, "iam:PassRole");
        let other = ClusterName::new("another-cluster");
        refused(
            refresh.ensure_instance_profile(&other, "default", "KarpenterNodeRole-demo", &class_tags()).await,
            "iam:CreateInstanceProfile",
        );
        refused(refresh.cluster_info(&other).await, "eks:DescribeCluster");
        let parameter = whittle_api::karpenter::AmiSelectorTerm { ssm_parameter: Some("/secrets/relay".into()), ..Default::default() };
        let _ = refresh.images(&[parameter], "1.33").await;
        let lacking = stage.lacking();
        let expected = ("refresh".to_owned(), format!("ssm:GetParameter on arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/secrets/relay"));
        assert!(lacking.contains(&expected), "{lacking:?}");
        let launch = stage.discovery(Function::Launch);
        refused(launch.ensure_instance_profile(&stage.cluster, "default", "KarpenterNodeRole-demo", &class_tags()).await, "iam:");
    });
    let roles = &stage.lone.lock().unwrap().region.network.profiles;
    assert!(!roles.values().any(|role| role == "Administrator"), "{roles:?}");
}

#[test]
fn nodes_get_their_role_by_the_name_that_ec2_has_in_the_partition() {
    let Some(template) = rendered() else { return };
    let parameters: BTreeMap<String, String> =
        [("Clusters", "demo"), ("NodeRoles", "KarpenterNodeRole-*")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    for (region, expected) in [
        ("us-east-1", json!("ec2.amazonaws.com")),
        ("us-gov-west-1", json!("ec2.amazonaws.com")),
        ("cn-north-1", json!(["ec2.amazonaws.com", "ec2.amazonaws.com.cn"])),
        ("us-iso-east-1", json!(["ec2.amazonaws.com", "ec2.c2s.ic.gov"])),
        ("us-isob-east-1", json!(["ec2.amazonaws.com", "ec2.sc2s.sgov.gov"])),
    ] {
        let resolver = Resolver::new(&template, Deployment { account: ACCOUNT, region }, &parameters).unwrap();
        let roles = statements_of_roles(&template, &resolver).unwrap();
        for role in ["LaunchRole", "RefreshRole"] {
            let passes = roles[role].iter().find(|statement| statement["Sid"] == "NodeRole").expect("the function passes roles");
            assert_eq!(passes["Condition"]["StringEquals"]["iam:PassedToService"], expected, "{role} in {region}");
        }
    }
}
