//! All other calls of the adapters, over the simulated region behind AWS's protocols: port contracts and adapter-specific behaviour.

use super::{lines, place_in, run, validate};
use std::sync::{Arc, Mutex, PoisonError};
use whittle_api::karpenter::{AmiSelectorTerm, CapacityReservationSelectorTerm, PlacementGroupSelector};
use whittle_aws::{Ec2Discovery, EksAccess, Isolation, Machines};
use whittle_ec2::facts::Catalog;
use whittle_ec2::network::{CapacityReservation, PlacementGroup};
use whittle_fake_aws::{Limits, Lone, NextError};
use whittle_ports::contracts::{self, CloudPlace};
use whittle_ports::{CloudErrorKind, ClusterAccess, Discovery, LaunchTemplates};
use whittle_sim::region::{Reservation, glob};
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
        contracts::zonal_shifts(&self.machines, &arn, now, &mut |shifts| self.lone().region.zone_shifts = shifts).await;
    }

    /// Images by each kind of term, including every alias.
    async fn images(&self) {
        let term = |change: fn(&mut AmiSelectorTerm)| {
            let mut term = AmiSelectorTerm::default();
            change(&mut term);
            term
        };
        self.lone().region.network.parameters.insert("/images/own".into(), "ami-00000000000000005".into());
        let cases = [
            (term(|term| term.alias = Some("al2023@latest".into())), 4),
            (term(|term| term.alias = Some("al2023@v20250601".into())), 4),
            (term(|term| term.alias = Some("bottlerocket@latest".into())), 3),
            (term(|term| term.alias = Some("bottlerocket@v1.40.0".into())), 3),
            (term(|term| term.alias = Some("windows2022@latest".into())), 1),
            (term(|term| term.id = Some("ami-00000000000000001".into())), 1),
            (term(|term| term.id = Some("ami-0123456789abcdef0".into())), 0),
            (term(|term| term.ssm_parameter = Some("/images/own".into())), 1),
            (term(|term| term.ssm_parameter = Some("/images/none".into())), 0),
            (
                term(|term| {
                    term.name = Some("amazon-eks-node-al2023-*".into());
                    term.owner = Some("amazon".into());
                }),
                4,
            ),
            (
                term(|term| {
                    term.name = Some("amazon-eks-node-al2023-*".into());
                    term.owner = Some("self".into());
                }),
                0,
            ),
        ];
        for (term, expected) in cases {
            let found = self.discovery.images(std::slice::from_ref(&term), "1.33").await.unwrap();
            let ids: std::collections::BTreeSet<&str> = found.iter().map(|image| image.id.as_str()).collect();
            assert_eq!(ids.len(), expected, "{term:?}: {found:?}");
            let names = term.name.as_deref().unwrap_or("*");
            assert!(found.iter().all(|image| glob(names, &image.name)), "{found:?}");
        }
    }

    async fn reservations(&self) {
        let described = CapacityReservation {
            id: "cr-0123456789abcdef0".into(),
            zone: "us-east-1a".into(),
            instance_type: "m5.large".into(),
            owner: "000000000000".into(),
            match_criteria: "targeted".into(),
            kind: "default".into(),
            interruptible: true,
            state: "active".into(),
            ends_at: Some("2027-03-01T00:00:00Z".parse().unwrap()),
            free: 0,
            tags: [("team".to_owned(), "a".to_owned())].into(),
        };
        self.lone().region.reserve(Reservation { described: described.clone(), total: 3 });
        let by_tag = |value: &str| CapacityReservationSelectorTerm {
            tags: Some([("team".to_owned(), value.to_owned())].into()),
            ..CapacityReservationSelectorTerm::default()
        };
        let by_id = |id: &str| CapacityReservationSelectorTerm { id: Some(id.into()), ..CapacityReservationSelectorTerm::default() };
        let expected = CapacityReservation { free: 3, ..described };
        for (term, found) in [
            (by_tag("a"), true),
            (by_tag("*"), true),
            (by_tag("b"), false),
            (by_id("cr-0123456789abcdef0"), true),
            (by_id("cr-0123456789abcdef1"), false),
        ] {
            let reservations = self.discovery.capacity_reservations(std::slice::from_ref(&term)).await.unwrap();
            assert_eq!(reservations, if found { vec![expected.clone()] } else { Vec::new() }, "{term:?}");
        }
    }

    async fn placement_groups(&self) {
        let group = PlacementGroup {
            id: "pg-0123456789abcdef0".into(),
            name: "wide".into(),
            strategy: "partition".into(),
            partition_count: 3,
            state: "available".into(),
        };
        self.lone().region.place(group.clone());
        let by_id = |id: &str| PlacementGroupSelector { id: Some(id.into()), ..PlacementGroupSelector::default() };
        let by_name = |name: &str| PlacementGroupSelector { name: Some(name.into()), ..PlacementGroupSelector::default() };
        for (selector, found) in [
            (by_id("pg-0123456789abcdef0"), true),
            (by_name("wide"), true),
            (by_id("pg-0123456789abcdef1"), false),
            (by_name("narrow"), false),
        ] {
            let groups = self.discovery.placement_groups(&selector).await.unwrap();
            assert_eq!(groups, if found { vec![group.clone()] } else { Vec::new() }, "{selector:?}");
        }
    }

    /// Compares the catalog read over the wire with the region's own.
    async fn catalog(&self) {
        let blob = self.discovery.catalog(None).await.unwrap();
        let blob = self.discovery.with_spot_prices(&blob).await.unwrap();
        let read = Catalog::decode(&blob).unwrap();
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
        assert_eq!(self.discovery.cluster_info(&self.cluster).await.unwrap(), known);
        let error = self.discovery.cluster_info(&"other".into()).await.unwrap_err();
        assert_eq!(error.code, "ResourceNotFoundException");
        let config = self.aws.config(REGION);
        let credentials = config.credentials_provider().unwrap();
        let access = EksAccess::new(aws_sdk_eks::Client::new(&config), credentials, REGION.into(), Arc::new(FixedClock::new()));
        assert_eq!(access.endpoint(&self.cluster).await.unwrap(), known);
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
