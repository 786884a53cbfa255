//! All other calls of the adapters, over the simulated region behind AWS's protocols: port contracts and adapter-specific behaviour.

use super::{lines, place_in, run, validate};
use std::sync::{Arc, Mutex, PoisonError};
use whittle_aws::{Ec2Discovery, EksAccess, Isolation, Machines};
use whittle_ec2::interruption::InstanceStatus;
use whittle_fake_aws::{Limits, Lone, NextError};
use whittle_ports::contracts::{self, CloudPlace};
use whittle_ports::{CloudErrorKind, ClusterAccess, LaunchTemplates};
use whittle_sim::region::{ACCOUNT, ALIASES, Reservation};
use whittle_tests::clock::FixedClock;
use whittle_tests::fake_aws::{FakeAws, Sent};
use whittle_units::{ClusterName, SignedDuration};

const REGION: &str = "us-east-1";

/// The fake and the adapters in front of it.
struct Stage {
    aws: FakeAws,
    lone: Arc<Mutex<Lone>>,
    machines: Machines,
    discovery: Ec2Discovery,
    cluster: ClusterName,
}

impl Stage {
    fn new() -> Self {
        let clock = Arc::new(FixedClock::new());
        let cluster = ClusterName::new("demo");
        let lone = Arc::new(Mutex::new(Lone::new(REGION, &cluster, clock.now)));
        let aws = FakeAws::new(lone.clone());
        aws.label("calls");
        let config = aws.config(REGION);
        let machines = Machines::new(aws_sdk_ec2::Client::new(&config), clock.clone());
        let machines = machines.with_zonal_shift(aws_sdk_arczonalshift::Client::new(&config));
        let discovery = Ec2Discovery::new(&config, REGION.into(), Isolation::Reachable, clock);
        Self { aws, lone, machines, discovery, cluster }
    }

    fn place(&self) -> CloudPlace {
        place_in(&self.lone(), &self.cluster)
    }

    fn lone(&self) -> std::sync::MutexGuard<'_, Lone> {
        self.lone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let mut lone = self.lone();
        let later = whittle_fake_aws::Place::now(&*lone) + SignedDuration::from_secs(60);
        lone.set_time(later);
    }

    async fn contracts(&self) {
        let place = self.place();
        contracts::machinery(&self.machines, &place, &mut || self.wait()).await;
        contracts::fleet_tokens(&self.machines, &place).await;
        contracts::dry_runs(&self.machines, &place).await;
        contracts::network(&self.discovery, &place).await;
        contracts::instance_profiles(&self.discovery, &self.cluster).await;
        let (arn, now) = {
            let lone = self.lone();
            (lone.region.cluster_arn(&self.cluster), whittle_fake_aws::Place::now(&*lone))
        };
        let mut check = |status: InstanceStatus| _ = self.lone().region.statuses.insert(status.instance.clone(), status);
        contracts::instance_checks(&self.machines, &place, now, &mut || self.wait(), &mut check).await;
        contracts::zonal_shifts(&self.machines, &arn, now, &mut |shifts| self.lone().region.zone_shifts = shifts).await;
    }

    /// Images by each kind of term, including every alias.
    async fn images(&self) {
        let own = contracts::OwnImage::of_account(ACCOUNT, "ami-0fedcba9876543210");
        {
            let network = &mut self.lone().region.network;
            network.images.push(own.image.clone());
            network.parameters.insert(own.parameter.clone(), own.image.id.clone());
            network.parameters.insert(own.text_parameter.clone(), "no image".to_owned());
        }
        contracts::images(&self.discovery, &own).await;
        contracts::aliases(&self.discovery, ALIASES).await;
    }

    async fn reservations(&self) {
        let known = contracts::reservation_of_account(ACCOUNT, "us-east-1a");
        self.lone().region.reserve(Reservation { described: known.clone(), total: known.free });
        contracts::capacity_reservations(&self.discovery, &known).await;
    }

    async fn placement_groups(&self) {
        let known = contracts::partition_group();
        self.lone().region.place(known.clone());
        contracts::placement_groups(&self.discovery, &known).await;
    }

    /// Compares the catalog read over the wire with the region's own.
    async fn catalog(&self) {
        let read = contracts::catalog(&self.discovery).await;
        let own = self.lone().region.catalog.clone();
        assert_eq!(read.types.len(), own.types.len());
        for (read, own) in read.types.iter().zip(&own.types) {
            assert_eq!(read, own);
        }
        assert_eq!((&read.offered, &read.spot), (&own.offered, &own.spot));
        for (name, price) in &own.on_demand {
            assert_eq!(read.on_demand_price(name), Some(*price), "{name}");
        }
    }

    async fn cluster(&self) {
        let known = self.lone().clusters[&self.cluster].clone();
        contracts::cluster_info(&self.discovery, &known).await;
        let config = self.aws.config(REGION);
        let credentials = config.credentials_provider().unwrap();
        let access = EksAccess::new(aws_sdk_eks::Client::new(&config), credentials, REGION.into(), Arc::new(FixedClock::new()));
        assert_eq!(access.endpoint(&self.cluster).await.unwrap(), known);
        let missing = access.endpoint(&"another-cluster".into()).await.unwrap_err();
        assert_eq!(missing.kind, CloudErrorKind::NotFound, "{missing}");
    }
}

/// The requests of all these calls.
pub(super) fn sent() -> Vec<Sent> {
    let stage = Stage::new();
    run(async {
        stage.cluster().await;
        stage.images().await;
        stage.reservations().await;
        stage.placement_groups().await;
    });
    stage.aws.sent()
}

#[test]
fn the_adapters_meet_the_port_contracts_with_requests_that_aws_accepts() {
    let stage = Stage::new();
    run(async {
        stage.contracts().await;
        stage.cluster().await;
        stage.images().await;
        stage.reservations().await;
        stage.placement_groups().await;
        stage.catalog().await;
    });
    let Some((passed, output)) = validate("calls", &lines(&stage.aws.sent()), None) else { return };
    println!("{output}");
    assert!(passed, "{output}");
}

/// A throttled call is not a lack of capacity, and a call denied for missing permissions is never classified as retryable.
#[test]
fn errors_on_the_wire_are_classified() {
    let stage = Stage::new();
    let template = whittle_ec2::fleet::LaunchTemplate { tenancy: "default".into(), ..Default::default() }.named();
    for (status, code, kind) in [
        (503, "RequestLimitExceeded", CloudErrorKind::Throttled),
        (403, "UnauthorizedOperation", CloudErrorKind::Unauthorized),
        (500, "InternalError", CloudErrorKind::Unknown),
        (503, "Unavailable", CloudErrorKind::Unknown),
        (400, "InvalidParameterValue", CloudErrorKind::Invalid),
    ] {
        let next = vec![NextError { status, code: code.to_owned(), message: String::new() }];
        stage.aws.api.lock().unwrap().refusals.insert("CreateLaunchTemplate".into(), next);
        let error = run(stage.machines.ensure_launch_template(&template)).unwrap_err();
        assert_eq!((error.kind, error.code.as_str()), (kind, code));
    }
    run(stage.machines.ensure_launch_template(&template)).unwrap();
    stage.aws.api.lock().unwrap().limits = Limits::documented();
    let refused = (0..60).filter_map(|_| run(stage.machines.ensure_launch_template(&template)).err()).collect::<Vec<_>>();
    assert_eq!((refused.len(), refused[0].kind), (10, CloudErrorKind::Throttled), "the bucket has fifty tokens");
}
