//! Compares the requests of `launch`, sent through the real SDK, with Karpenter's, field by field.

use super::{lines, root, run, validate};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, ResolvedPlacementGroup};
use whittle_aws::Machines;
use whittle_claims::{Claim, ClaimKey, ClaimSpec, NodeClassRecord, Revision};
use whittle_ec2::facts::describe::from_describe;
use whittle_ec2::facts::{Catalog, InstanceTypeFacts, Zone, tables};
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, ImageVariant, PlacementGroup, SecurityGroup, Subnet};
use whittle_fake_aws::Limits;
use whittle_ports::{Adapters, ClaimStore, Clock, ClusterRecord, Leases, Records, Settings};
use whittle_sim::region::{PoolRefusal, Reservation, VPC};
use whittle_sim::{Function, Functions, Input, SimPorts, Simulation, World, WorldOptions};
use whittle_tests::fake_aws::{FakeAws, Sent};
use whittle_units::{ClaimName, ClusterName, Price, SignedDuration, Timestamp};

struct Nothing;

impl Functions for Nothing {
    fn call(&self, _: Function, _: SimPorts, _: Input) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'static>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn golden() -> PathBuf {
    root().join("tests/golden/cloud/launch")
}

/// A golden case and its folder.
struct Case {
    class: Ec2NodeClass,
    claim: NodeClaim,
    facts: Value,
    folder: PathBuf,
}

impl Case {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let of = |kind: &str| documents.iter().find(|document| document["kind"] == kind).cloned().unwrap();
        let class: Ec2NodeClass = serde_json::from_value(of("EC2NodeClass")).unwrap();
        let claim = serde_json::from_value(of("NodeClaim")).unwrap();
        Self { class, claim, facts: of("Facts"), folder: path.parent().unwrap().to_owned() }
    }

    fn text(&self, pointer: &str) -> String {
        self.facts.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        self.facts[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn catalog(&self) -> Catalog {
        let all = std::fs::read_to_string(self.folder.join(self.text("/typesFile"))).unwrap();
        let all: Vec<Value> = serde_json::from_str(&all).unwrap();
        let wanted = self.texts("types");
        let known = all.iter().map(from_describe).filter(|facts| wanted.is_empty() || wanted.contains(&facts.name));
        let types: Vec<InstanceTypeFacts> = known.collect();
        let (region, zones) = (self.text("/region"), self.texts("zones"));
        let dollars = |value: &Value| Price::from_dollars(value.as_f64().unwrap());
        let prices =
            |of: &Value| of.as_object().into_iter().flatten().map(|(key, price)| (key.clone(), dollars(price))).collect::<BTreeMap<_, _>>();
        let offered = |name: &str| match self.facts["offered"][name].as_array() {
            Some(some) => some.iter().map(|zone| zone.as_str().unwrap().to_owned()).collect(),
            None => zones.clone(),
        };
        let mut on_demand = tables::static_on_demand_prices(&region);
        on_demand.extend(prices(&self.facts["onDemandPrices"]));
        let spot = self.facts["spotPrices"].as_object().into_iter().flatten().map(|(name, of)| (name.clone(), prices(of)));
        Catalog {
            region: region.as_str().into(),
            zones: zones.iter().map(|zone| Zone { name: zone.clone(), id: String::new() }).collect(),
            offered: types.iter().map(|facts| (facts.name.clone(), offered(&facts.name))).collect(),
            types,
            on_demand,
            spot: spot.collect(),
        }
        .normalized()
    }

    fn counts(&self, name: &str) -> BTreeMap<String, u32> {
        let given = self.facts[name].as_object().into_iter().flatten();
        given.map(|(id, count)| (id.clone(), u32::try_from(count.as_u64().unwrap()).unwrap())).collect()
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.scheduling.lower_min_values = self.facts["settings"]["minValuesPolicy"] == "BestEffort";
        settings.scheduling.reserved_capacity = self.facts["settings"]["reservedCapacity"].as_bool().unwrap_or(true);
        settings
    }

    fn placement_groups(&self) -> Vec<PlacementGroup> {
        let text = |group: &Value, name: &str| group[name].as_str().unwrap_or_default().to_owned();
        let given = self.facts["placementGroups"].as_array().into_iter().flatten();
        given
            .map(|group| PlacementGroup {
                id: text(group, "GroupId"),
                name: text(group, "GroupName"),
                strategy: text(group, "Strategy"),
                partition_count: u32::try_from(group["PartitionCount"].as_u64().unwrap_or_default()).unwrap(),
                state: text(group, "State"),
            })
            .collect()
    }

    fn is_selected(&self, group: &PlacementGroup) -> bool {
        let selector = self.class.spec.placement_group_selector.as_ref();
        selector.is_some_and(|selector| selector.id.as_ref() == Some(&group.id) || selector.name.as_ref() == Some(&group.name))
    }

    /// The record that `refresh` would have stored for the class.
    fn record(&self, now: Timestamp) -> NodeClassRecord {
        let status = &self.class.status;
        let mut free_addresses: BTreeMap<String, u32> = status.subnets.iter().map(|subnet| (subnet.id.clone(), 1000)).collect();
        free_addresses.extend(self.counts("freeIPs"));
        NodeClassRecord {
            subnets: status.subnets.clone(),
            security_groups: status.security_groups.clone(),
            amis: status.amis.clone(),
            instance_profile: status.instance_profile.clone().unwrap_or_default(),
            hash: String::new(),
            problems: Vec::new(),
            free_addresses,
            free_reserved: self.counts("reservations"),
            fence: None,
            placement_group: self.placement_groups().into_iter().find(|group| self.is_selected(group)).map(resolved),
            resolved_at: now,
            class: self.class.clone(),
        }
    }

    /// Adds the resources of the case to a region.
    fn add_resources(&self, world: &mut World, record: &NodeClassRecord) {
        let region = &mut world.region;
        region.catalog = Arc::new(self.catalog());
        region.supply.reports_all_errors = true;
        let errors = self.facts["fleetErrors"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        region.supply.refusals = errors
            .map(|error| PoolRefusal {
                instance_type: text(&error["type"]),
                zone: text(&error["zone"]),
                code: text(&error["code"]),
                message: text(&error["message"]),
            })
            .collect();
        for group in self.placement_groups() {
            region.place(group);
        }
        let network = &mut region.network;
        network.subnets = (record.subnets.iter())
            .map(|subnet| Subnet {
                id: subnet.id.clone(),
                zone: subnet.zone.clone(),
                zone_id: subnet.zone_id.clone(),
                free_addresses: record.free_addresses[&subnet.id],
                vpc: VPC.to_owned(),
                tags: BTreeMap::new(),
            })
            .collect();
        network.groups = (record.security_groups.iter())
            .map(|group| SecurityGroup { id: group.id.clone(), name: group.name.clone(), vpc: VPC.to_owned(), tags: BTreeMap::new() })
            .collect();
        network.images = record.amis.iter().map(|image| self.image(&image.id, &image.name)).collect();
        for each in &self.class.status.capacity_reservations {
            let described = CapacityReservation {
                id: each.id.clone(),
                zone: each.availability_zone.clone(),
                instance_type: each.instance_type.clone(),
                owner: each.owner_id.clone(),
                match_criteria: each.instance_match_criteria.clone(),
                kind: each.reservation_type.clone(),
                interruptible: each.interruptible,
                state: "active".to_owned(),
                ..CapacityReservation::default()
            };
            let total = self.counts("reservations").get(&each.id).copied().unwrap_or_default();
            region.reserve(Reservation { described, total });
        }
    }

    fn image(&self, id: &str, name: &str) -> Image {
        Image {
            id: id.to_owned(),
            name: name.to_owned(),
            owner: "self".to_owned(),
            architecture: "x86_64".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            deprecated: false,
            variant: ImageVariant::Any,
            tags: BTreeMap::new(),
        }
    }

    fn claim(&self, attempt: usize, now: Timestamp) -> Claim {
        let asked = &self.claim.spec;
        let spec = ClaimSpec {
            node_pool: self.claim.node_pool().unwrap_or_default().to_owned(),
            node_class: asked.node_class_ref.clone(),
            labels: self.claim.metadata.labels.clone(),
            annotations: self.claim.metadata.annotations.clone(),
            requirements: asked.requirements.clone(),
            taints: asked.taints.clone(),
            startup_taints: asked.startup_taints.clone(),
            requests: asked.resources.requests.clone(),
            ..ClaimSpec::default()
        };
        let name = format!("{}-{attempt}", self.claim.metadata.name);
        let key = ClaimKey { cluster: self.text("/cluster/name").as_str().into(), name: name.as_str().into() };
        Claim::planned(key, format!("uid-{attempt}"), spec, now)
    }

    /// A fresh world with the resources of the case, in which no function runs by itself.
    fn world(&self) -> Stage {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let cluster = ClusterName::new(self.text("/cluster/name"));
        let options =
            WorldOptions { seed: 1, cluster: cluster.clone(), region: self.text("/region"), kubernetes_version: "1.33".into(), start: now };
        let simulation = Simulation::new(World::new(&options), Arc::new(Nothing));
        let (ports, mut record) = (simulation.ports(), self.record(now));
        {
            let mut world = simulation.world();
            self.add_resources(&mut world, &record);
            let blob = world.region.catalog.encode();
            world.store.put_catalog(&blob, Revision::ABSENT).unwrap();
            world.cluster.objects.create(record.class.clone(), now);
            record.class = world.cluster.objects.get::<Ec2NodeClass>(&self.class.metadata.name).unwrap().clone();
        }
        let info = ClusterInfo {
            name: cluster.clone(),
            endpoint: self.text("/cluster/endpoint"),
            certificate_authority: self.text("/cluster/caBundle"),
            service_cidr: self.text("/cluster/serviceCIDR"),
            ..ClusterInfo::default()
        };
        let aws = FakeAws::new(Arc::new(ports.clone()));
        let machines = Machines::new(aws_sdk_ec2::Client::new(&aws.config(&options.region)), Arc::new(ports.clone()));
        run(async {
            ports.write(&cluster, &ClusterRecord { info }, Revision::ABSENT).await.unwrap();
            ports.write(&cluster, &record, Revision::ABSENT).await.unwrap();
        });
        Stage { simulation, ports, machines, aws, cluster }
    }

    /// Launches the claim as often as the case states, in a fresh world. Every attempt is another claim with the same content.
    fn launch(&self, name: &str) -> Vec<Sent> {
        let stage = self.world();
        for attempt in 1..=self.facts["attempts"].as_u64().unwrap_or(1) {
            stage.aws.label(format!("{name} {attempt}"));
            let claim = self.claim(usize::try_from(attempt).unwrap(), stage.ports.now());
            stage.keep(std::slice::from_ref(&claim));
            stage.launch(&self.settings(), std::slice::from_ref(&claim.key.name));
        }
        stage.aws.sent()
    }

    /// Which input of the case `launch` does not support.
    fn unsupported(&self) -> Option<&'static str> {
        let overlaid = self.claim.metadata.annotations.contains_key(whittle_api::labels::PRICE_OVERLAY_APPLIED);
        overlaid.then_some("overlaid prices, which do not change EC2's choice of pools (ADR 0009)")
    }
}

fn resolved(group: PlacementGroup) -> ResolvedPlacementGroup {
    ResolvedPlacementGroup { id: group.id, name: group.name, strategy: group.strategy, partition_count: group.partition_count }
}

/// A world with adapters connected to its region.
struct Stage {
    simulation: Simulation,
    ports: SimPorts,
    machines: Machines,
    aws: FakeAws,
    cluster: ClusterName,
}

impl Stage {
    fn keep(&self, claims: &[Claim]) {
        run(async {
            let lease = self.ports.acquire(&self.cluster, "test", self.ports.now(), SignedDuration::from_secs(5)).await.unwrap();
            for claim in claims {
                self.ports.create(&lease, claim).await.unwrap();
            }
            self.ports.release(&lease).await.unwrap();
        });
    }

    fn launch(&self, settings: &Settings, names: &[ClaimName]) {
        let ports = &self.ports;
        let adapters = Adapters { store: ports, cloud: &self.machines, cluster: ports, queues: ports, clock: ports };
        run(whittle_launch::handle(adapters, settings, &self.cluster, names)).unwrap();
    }
}

/// The requests of a golden case's launches.
pub(super) fn sent_for(name: &str) -> Vec<Sent> {
    Case::read(&golden().join(format!("{name}.yaml"))).launch(name)
}

#[test]
fn launches_send_the_requests_of_karpenter() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    let mut all = Vec::new();
    for path in &files {
        let (name, case) = (path.file_stem().unwrap().to_str().unwrap(), Case::read(path));
        let mut sent = case.launch(name);
        if let Some(unsupported) = case.unsupported() {
            println!("{name}: not compared, since launches do not support {unsupported}");
            sent.iter_mut().for_each(|sent| sent.label = format!("{name} with {unsupported}"));
        }
        let labels: BTreeSet<String> = sent.iter().map(|sent| sent.label.clone()).collect();
        let attempts = (1..=case.facts["attempts"].as_u64().unwrap_or(1)).map(|attempt| format!("{name} {attempt}"));
        // An attempt without requests is compared as well.
        let silent = attempts.filter(|label| case.unsupported().is_none() && !labels.contains(label));
        all.extend(silent.map(|label| serde_json::json!({"label": label, "service": ""}).to_string()));
        all.extend(lines(&sent));
    }
    let Some((passed, output)) = validate("launches", &all, Some(&golden())) else { return };
    println!("{output}");
    assert!(passed, "{output}");
}

/// The number of requests of a large scale-up under EC2's documented request limits.
#[test]
fn five_hundred_equal_claims_are_launched_by_five_fleets() {
    let case = Case::read(&golden().join("001-on-demand.yaml"));
    let mut stage = case.world();
    stage.aws.api.lock().unwrap().limits = Limits::documented();
    let claims: Vec<Claim> = (0..500).map(|number| case.claim(number, stage.ports.now())).collect();
    stage.keep(&claims);
    let started = |stage: &Stage| stage.simulation.world().region.machines.len();
    let mut seconds = 0;
    while started(&stage) < claims.len() && seconds < 60 {
        stage.launch(&case.settings(), &[]);
        stage.simulation.run_for(SignedDuration::from_secs(1));
        seconds += 1;
    }
    let api = stage.aws.api.lock().unwrap();
    let (fleets, templates) = (api.calls("CreateFleet"), api.calls("CreateLaunchTemplate"));
    let throttled = api.journal.iter().filter(|entry| entry.refused.as_deref() == Some("RequestLimitExceeded")).count();
    println!(
        "500 equal claims: {fleets} CreateFleet, {templates} CreateLaunchTemplate, {throttled} throttled, {seconds} rounds of a second"
    );
    assert_eq!((started(&stage), fleets, throttled), (claims.len(), 5, 0));
    assert!(templates <= 10 && seconds <= 15, "{templates} CreateLaunchTemplate in {seconds} s");
}
