//! The contracts of the cloud's ports over another project's model of AWS, for what it models.

use super::run;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_ec2::types::Tag;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use whittle_aws::{Ec2Discovery, Isolation, Machines};
use whittle_ec2::network::{ClusterInfo, Image, SecurityGroup, Subnet};
use whittle_ports::contracts::{self, CloudPlace, OwnImage};
use whittle_tests::clock::FixedClock;
use whittle_tests::moto::Moto;
use whittle_units::Timestamp;

pub(super) const REGION: &str = "us-east-1";
/// moto's.
const ACCOUNT: &str = "123456789012";

pub(super) fn config(moto: &Moto) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .endpoint_url(moto.endpoint())
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("testing", "testing", None, None, "tests")))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .retry_config(aws_smithy_types::retry::RetryConfig::disabled())
        .sleep_impl(aws_sdk_ec2::config::SharedAsyncSleep::new(whittle_tests::fake_aws::Forever))
        .build()
}

/// The network that moto begins with, tagged.
async fn place(ec2: &aws_sdk_ec2::Client) -> CloudPlace {
    let described = ec2.describe_subnets().send().await.unwrap();
    let known = |subnet: &aws_sdk_ec2::types::Subnet| Subnet {
        id: subnet.subnet_id().unwrap().to_owned(),
        zone: subnet.availability_zone().unwrap().to_owned(),
        ..Subnet::default()
    };
    let subnets: Vec<Subnet> = described.subnets().iter().take(3).map(known).collect();
    let groups = ec2.describe_security_groups().send().await.unwrap();
    let group = groups.security_groups().first().unwrap();
    let (id, name) = (group.group_id().unwrap().to_owned(), group.group_name().unwrap().to_owned());
    let resources = subnets.iter().map(|subnet| subnet.id.clone()).chain([id.clone()]).collect();
    let tag = Tag::builder().key("karpenter.sh/discovery").value("demo").build();
    ec2.create_tags().set_resources(Some(resources)).tags(tag).send().await.unwrap();
    let images = ec2.describe_images().send().await.unwrap();
    let tags = [("karpenter.sh/discovery".to_owned(), "demo".to_owned())].into();
    CloudPlace {
        cluster: "demo".into(),
        subnets,
        group: SecurityGroup { id, name, tags, ..SecurityGroup::default() },
        image_id: images.images().first().and_then(|image| image.image_id()).unwrap().to_owned(),
        instance_type: "m5.large".to_owned(),
    }
}

/// A cluster, as EKS has created it.
async fn cluster(config: &SdkConfig) -> ClusterInfo {
    let network = aws_sdk_eks::types::VpcConfigRequest::builder().subnet_ids("subnet-1").build();
    let request = aws_sdk_eks::Client::new(config).create_cluster().name("demo").version("1.33");
    let created = request.role_arn("arn:aws:iam::123456789012:role/eks").resources_vpc_config(network).send().await.unwrap();
    let created = created.cluster().unwrap();
    ClusterInfo {
        name: "demo".into(),
        endpoint: created.endpoint().unwrap().to_owned(),
        certificate_authority: created.certificate_authority().and_then(|authority| authority.data()).unwrap().to_owned(),
        version: "1.33".to_owned(),
        service_cidr: created.kubernetes_network_config().and_then(|network| network.service_ipv4_cidr()).unwrap().to_owned(),
        ipv6: false,
        vpc: String::new(),
        arn: format!("arn:aws:eks:{REGION}:{ACCOUNT}:cluster/demo"),
    }
}

/// An image of moto's account, a copy of this one, in a parameter.
async fn own_image(config: &SdkConfig, source: &str) -> OwnImage {
    let ec2 = aws_sdk_ec2::Client::new(config);
    let wanted = OwnImage::of_account(ACCOUNT, "");
    // moto forgets the architecture of an image that is registered; a copy has that of its source.
    let copied = ec2.copy_image().name(&wanted.image.name).source_image_id(source).source_region(REGION).send().await.unwrap();
    let id = copied.image_id().unwrap();
    let tags = wanted.image.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
    ec2.create_tags().resources(id).set_tags(Some(tags)).send().await.unwrap();
    let described = ec2.describe_images().image_ids(id).send().await.unwrap();
    let created_at = described.images()[0].creation_date().unwrap().parse().unwrap();
    let ssm = aws_sdk_ssm::Client::new(config);
    for (name, value) in [(&wanted.parameter, id), (&wanted.text_parameter, "no image")] {
        ssm.put_parameter().name(name).value(value).r#type("String".into()).send().await.unwrap();
    }
    OwnImage { image: Image { id: id.to_owned(), created_at, ..wanted.image.clone() }, ..wanted }
}

/// How far moto keeps the contracts.
#[derive(Default)]
struct Kept {
    kept: Vec<&'static str>,
    broken: Vec<String>,
}

impl Kept {
    fn holds(&mut self, name: &'static str, contract: impl Future<Output = ()>) {
        match catch_unwind(AssertUnwindSafe(|| run(contract))) {
            Ok(()) => self.kept.push(name),
            Err(_) => self.broken.push(format!("{name} is broken; the reason is above")),
        }
    }

    /// A contract that moto cannot keep. The day that it does, the reason is to be taken away.
    fn skipped(&mut self, name: &'static str, reason: &str, contract: impl Future<Output = ()>) {
        println!("{name}: skipped, because {reason}");
        if catch_unwind(AssertUnwindSafe(|| run(contract))).is_ok() {
            self.broken.push(format!("{name} is kept by now: it need not be skipped"));
        }
    }
}

/// The contracts about what moto does not model.
fn not_modelled(all: &mut Kept, discovery: &Ec2Discovery, machines: &Machines, place: &CloudPlace, now: Timestamp) {
    let published: [(&str, &[&str]); 1] = [("al2023@latest", &["ami-0123456789abcdef0"])];
    all.skipped("aliases", "moto has no parameters of EKS", contracts::aliases(discovery, &published));
    let (reservation, group) = (contracts::reservation_of_account(ACCOUNT, "us-east-1a"), contracts::partition_group());
    all.skipped("capacity_reservations", "moto has none", contracts::capacity_reservations(discovery, &reservation));
    all.skipped("placement_groups", "moto has none", contracts::placement_groups(discovery, &group));
    all.skipped("instance_checks", "every check is passed in moto", async {
        contracts::instance_checks(machines, place, now, &mut || {}, &mut |_| {}).await;
    });
    all.skipped("zonal_shifts", "moto has none", async {
        let arn = format!("arn:aws:eks:{REGION}:{ACCOUNT}:cluster/demo");
        contracts::zonal_shifts(machines, &arn, now, &mut |_| {}).await;
    });
}

#[test]
fn the_contracts_hold_over_another_model_of_aws() {
    let Some(moto) = Moto::start() else { return };
    let config = config(&moto);
    let ec2 = aws_sdk_ec2::Client::new(&config);
    let clock = Arc::new(FixedClock::new());
    let now = clock.now;
    let machines = Machines::new(ec2.clone(), clock.clone());
    let machines = machines.with_zonal_shift(aws_sdk_arczonalshift::Client::new(&config));
    let discovery = Ec2Discovery::new(&config, REGION.into(), Isolation::Reachable, clock);
    let place = run(place(&ec2));
    let mut all = Kept::default();
    all.holds("network", contracts::network(&discovery, &place));
    all.skipped(
        "a_template_is_created_once_and_deleted_once",
        "moto asks for a name where a launch template is gone",
        contracts::a_template_is_created_once_and_deleted_once(&machines, &place),
    );
    // Its instances run and end at once.
    all.holds("a_fleet_launches_what_it_returns", contracts::a_fleet_launches_what_it_returns(&machines, &place, &mut || {}));
    all.holds("an_instance_takes_tags_and_terminates", contracts::an_instance_takes_tags_and_terminates(&machines, &place, &mut || {}));
    all.skipped(
        "missing_instances_are_no_failure",
        "moto tags what does not exist",
        contracts::missing_instances_are_no_failure(&machines),
    );
    all.skipped("fleet_tokens", "moto takes no notice of client tokens", contracts::fleet_tokens(&machines, &place));
    all.skipped("instance_profiles", "moto has no filter of instances by their profile", async {
        let iam = aws_sdk_iam::Client::new(&config);
        iam.create_role().role_name("contract-role").assume_role_policy_document("{}").send().await.unwrap();
        contracts::instance_profiles(&discovery, &place.cluster).await;
    });
    all.holds("dry_runs", contracts::dry_runs(&machines, &place));
    all.holds("cluster_info", async { contracts::cluster_info(&discovery, &cluster(&config).await).await });
    all.holds("images", async { contracts::images(&discovery, &own_image(&config, &place.image_id).await).await });
    all.holds("catalog", async { drop(contracts::catalog(&discovery).await) });
    not_modelled(&mut all, &discovery, &machines, &place, now);
    println!("over moto: {}", all.kept.join(", "));
    assert!(all.broken.is_empty(), "{}", all.broken.join("\n"));
}
