//! The contracts of the cloud's ports over another project's model of AWS, for what it models.

use super::run;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_ec2::types::Tag;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use whittle_aws::{Ec2Discovery, Isolation, Machines};
use whittle_ec2::network::{SecurityGroup, Subnet};
use whittle_ports::contracts::{self, CloudPlace};
use whittle_tests::clock::FixedClock;
use whittle_tests::moto::Moto;

pub(super) const REGION: &str = "us-east-1";

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

#[test]
fn the_contracts_hold_over_another_model_of_aws() {
    let Some(moto) = Moto::start() else { return };
    let config = config(&moto);
    let ec2 = aws_sdk_ec2::Client::new(&config);
    let clock = Arc::new(FixedClock::new());
    let machines = Machines::new(ec2.clone(), clock.clone());
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
    println!("over moto: {}", all.kept.join(", "));
    assert!(all.broken.is_empty(), "{}", all.broken.join("\n"));
}
