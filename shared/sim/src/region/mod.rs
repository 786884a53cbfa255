//! EC2 and related services in one region.

mod allocation;
mod fleet;
mod network;
pub mod notices;
mod placement;
mod reservations;
mod supply;
mod user_data;

pub use allocation::Allocation;
pub use network::{ACCOUNT, ALIASES, Network, ProfileOrigin, VPC, glob};
pub use reservations::Reservation;
pub use supply::{PoolRefusal, Supply};

use crate::cluster::JoiningMachine;
use crate::dice::{Dice, Stream};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use whittle_api::karpenter::AmiFamily;
use whittle_api::karpenter::{Ec2NodeClass, Ec2NodeClassSpec};
use whittle_claims::ZoneShift;
use whittle_ec2::facts::{Catalog, CatalogError, Zone, offline, tables};
use whittle_ec2::fleet::{FleetAnswer, FleetRequest, LaunchTemplate};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ec2::instance_types::{Context, Settings, Unavailable, type_resources};
use whittle_ec2::interruption::InstanceStatus;
use whittle_ec2::network::{ClusterInfo, PlacementGroup};
use whittle_units::{ClusterName, InstanceId, Partition, Price, Resources};

/// The time between the warning and the interruption of a spot machine.
const SPOT_WARNING: SignedDuration = SignedDuration::from_mins(2);
/// How long EC2 still describes terminated machines.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

/// A machine and its launch template.
#[derive(Clone, Debug)]
pub struct Machine {
    pub instance: Instance,
    pub launch_template: LaunchTemplate,
    pub price: Price,
    /// It never joins the cluster, because of a faulty network or image.
    pub never_joins: bool,
    /// When its termination began.
    pub ended_at: Option<Timestamp>,
}

/// A fleet that was requested.
#[derive(Clone, Debug)]
struct Fleet {
    request: FleetRequest,
    allocation: Allocation,
    answer: FleetAnswer,
    /// When it was requested: EC2 forgets tokens.
    at: Timestamp,
}

/// The next state change of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Run,
    Join,
    /// The warning's two minutes are over.
    Reclaim,
    End,
    Forget,
    /// A machine that was stopping has stopped.
    Halt,
}

/// The effects of a step outside the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionEffect {
    Log(String),
    Notice(String),
    /// A spot machine is reclaimed now.
    Reclaimed(InstanceId),
    Join(Box<JoiningMachine>),
    Lost(String),
}

#[derive(Debug)]
pub struct Region {
    name: String,
    pub catalog: Arc<Catalog>,
    blobs: Arc<Blobs>,
    pub network: Network,
    pub machines: BTreeMap<InstanceId, Machine>,
    /// By id.
    pub reservations: BTreeMap<String, Reservation>,
    /// Failed checks and scheduled events of machines.
    pub statuses: BTreeMap<InstanceId, InstanceStatus>,
    /// Zonal shifts of the clusters of the region.
    pub zone_shifts: Vec<ZoneShift>,
    /// By id.
    pub placement_groups: BTreeMap<String, PlacementGroup>,
    pub launch_templates: BTreeMap<String, LaunchTemplate>,
    /// By client token.
    fleets: BTreeMap<String, Fleet>,
    /// Pools (type, zone, capacity type) without capacity; `*` stands for any.
    pub out_of_stock: BTreeSet<(String, String, String)>,
    /// Calls that the caller's policies do not allow.
    pub denied: BTreeSet<&'static str>,
    /// The error code and message of every pool.
    pub refusal: Option<(String, String)>,
    pub supply: Supply,
    changes: BTreeMap<(Timestamp, InstanceId, Change), ()>,
    /// Machines started from now on never join.
    pub launches_never_join: bool,
    /// Client tokens are ignored: a mutant that the checkers must catch.
    pub forget_tokens: bool,
    /// Every machine costs many times more than the one before.
    pub overcharge: bool,
    fleet_sequence: u64,
    started: usize,
}

/// Whether a region belongs to the Chinese partition.
fn is_chinese(region: &str) -> bool {
    region.starts_with("cn-")
}

/// The families of a lean region: all sizes of three families, so that there is still a choice.
const LEAN_FAMILIES: &[&str] = &["c5", "m5", "r5"];

/// The catalog of a region: its own tables, or what the types of us-east-1 would be there.
fn catalog_of(region: &str) -> Catalog {
    with_retired_types(offline::catalog(region).unwrap_or_else(|| offline::assumed(region)))
}

/// A catalog as blobs, which are encoded at the first use.
#[derive(Debug, Default)]
struct Blobs {
    /// With spot prices.
    priced: OnceLock<Vec<u8>>,
    /// Without.
    unpriced: OnceLock<Vec<u8>>,
}

type CachedCatalog = (Arc<Catalog>, Arc<Blobs>);

/// The catalogs of all regions simulated in this process: they never change, and building one takes a while.
fn cached_catalog(region: &str, lean: bool) -> CachedCatalog {
    static CACHE: Mutex<BTreeMap<(String, bool), CachedCatalog>> = Mutex::new(BTreeMap::new());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let mut catalog = catalog_of(region);
        if lean {
            catalog.types.retain(|facts| LEAN_FAMILIES.contains(&facts.name.split('.').next().unwrap_or_default()));
            let kept: BTreeSet<String> = catalog.types.iter().map(|facts| facts.name.clone()).collect();
            catalog.offered.retain(|name, _| kept.contains(name));
            catalog.on_demand.retain(|name, _| kept.contains(name));
            catalog.spot.retain(|name, _| kept.contains(name));
        }
        (Arc::new(catalog), Arc::default())
    };
    cache.entry((region.to_owned(), lean)).or_insert_with(make).clone()
}

/// Adds p3.8xlarge, which EC2 has withdrawn and a walkthrough still names, where it had a price.
fn with_retired_types(mut catalog: Catalog) -> Catalog {
    let price = tables::static_on_demand_prices(catalog.region.as_str()).remove("p3.8xlarge");
    let Some(price) = price.filter(|_| catalog.facts("p3.8xlarge").is_none()) else { return catalog };
    let Some(mut facts) = catalog.facts("g4dn.12xlarge").or_else(|| catalog.types.first()).cloned() else { return catalog };
    "p3.8xlarge".clone_into(&mut facts.name);
    facts.vcpus = 32;
    facts.memory_mib = 249_856;
    "Intel".clone_into(&mut facts.cpu_manufacturer);
    "xen".clone_into(&mut facts.hypervisor);
    facts.architectures = vec!["x86_64".to_owned()];
    facts.usage_classes = vec!["on-demand".to_owned(), "spot".to_owned()];
    facts.gpus = vec![whittle_ec2::facts::Gpu { count: 4, manufacturer: "NVIDIA".to_owned(), name: "V100".to_owned(), memory_mib: 16_384 }];
    facts.storage_gb = None;
    facts.storage_nvme.clear();
    facts.network_cards = vec![whittle_ec2::facts::NetworkCard { interfaces: 8, ..Default::default() }];
    facts.ipv4_per_interface = 30;
    facts.efa_interfaces = 0;
    catalog.types.push(facts);
    let zones: Vec<String> = catalog.zones.iter().map(|zone| zone.name.clone()).collect();
    catalog.offered.insert("p3.8xlarge".to_owned(), zones);
    catalog.on_demand.insert("p3.8xlarge".to_owned(), price);
    catalog.normalized()
}

impl Region {
    /// A region with the network of a cluster and no machines.
    pub fn new(name: &str, cluster: &ClusterName) -> Self {
        let (catalog, blobs) = cached_catalog(name, false);
        let network = Network::of_cluster(cluster, &catalog.zones[..catalog.zones.len().min(3)], "1.33");
        Self {
            name: name.to_owned(),
            catalog,
            blobs,
            network,
            machines: BTreeMap::new(),
            reservations: BTreeMap::new(),
            statuses: BTreeMap::new(),
            zone_shifts: Vec::new(),
            placement_groups: BTreeMap::new(),
            launch_templates: BTreeMap::new(),
            fleets: BTreeMap::new(),
            out_of_stock: BTreeSet::new(),
            denied: BTreeSet::new(),
            refusal: None,
            supply: Supply::default(),
            changes: BTreeMap::new(),
            launches_never_join: false,
            forget_tokens: false,
            overcharge: false,
            fleet_sequence: 0,
            started: 0,
        }
    }

    /// Restricts the region to a few families. Faults do not depend on the number of types, but the cost of a decision
    /// does, and there are many runs with faults.
    pub fn make_lean(&mut self) {
        (self.catalog, self.blobs) = cached_catalog(&self.name, true);
    }

    pub fn name(&self) -> &str {
        &self.name
    }
    /// The zones that have a subnet.
    pub fn zones(&self) -> Vec<Zone> {
        let used = |zone: &&Zone| self.network.subnets.iter().any(|subnet| subnet.zone == zone.name);
        self.catalog.zones.iter().filter(used).cloned().collect()
    }
    /// The API server's address.
    pub fn endpoint(&self) -> String {
        let suffix = if is_chinese(&self.name) { ".cn" } else { "" };
        format!("https://0123456789ABCDEF0123456789ABCDEF.sk1.{}.eks.amazonaws.com{suffix}", self.name)
    }
    /// The answer of EKS about a cluster in this region.
    pub fn cluster_info(&self, cluster: &ClusterName, version: &str) -> ClusterInfo {
        ClusterInfo {
            name: cluster.clone(),
            endpoint: self.endpoint(),
            certificate_authority: "c2ltdWxhdGVk".to_owned(),
            version: version.to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
            ipv6: false,
            vpc: VPC.to_owned(),
            arn: self.cluster_arn(cluster),
        }
    }
    /// The ARN of a cluster in this region.
    pub fn cluster_arn(&self, cluster: &ClusterName) -> String {
        format!("arn:{}:eks:{}:{ACCOUNT}:cluster/{cluster}", self.partition(), self.name)
    }
    /// As in ARNs.
    pub fn partition(&self) -> &'static str {
        Partition::of(&self.name).name
    }
    /// A machine as events name it; one that is not known is in no zone.
    pub fn subject<'a>(&'a self, id: &'a InstanceId) -> notices::Subject<'a> {
        let zone = self.machines.get(id).map_or("", |machine| machine.instance.zone.as_str());
        notices::Subject { partition: self.partition(), region: &self.name, zone, instance: id.as_str() }
    }
    /// A private DNS name that no machine has: the one that is drawn, or the next free one.
    pub fn private_name(&self, dice: &mut Dice) -> String {
        const THIRDS: u64 = 96;
        const FOURTHS: u64 = 251;
        let domain = if self.name == "us-east-1" { "ec2.internal".to_owned() } else { format!("{}.compute.internal", self.name) };
        let name = |number: u64| format!("ip-192-168-{}-{}.{domain}", number / FOURTHS % THIRDS, 4 + number % FOURTHS);
        let drawn = dice.below(Stream::Names, THIRDS) * FOURTHS + dice.between(Stream::Names, 4, 254) - 4;
        let is_taken = |name: &String| self.machines.values().any(|machine| machine.instance.private_dns_name == *name);
        (drawn..drawn + THIRDS * FOURTHS).map(name).find(|name| !is_taken(name)).unwrap_or_else(|| name(drawn))
    }

    /// The catalog as `refresh` stores it. Encoded once, since nothing changes it.
    pub fn catalog_blob(&self) -> Vec<u8> {
        self.blobs.priced.get_or_init(|| self.catalog.encode()).clone()
    }

    fn unpriced_blob(&self) -> Vec<u8> {
        let encode = || Catalog { spot: BTreeMap::new(), ..(*self.catalog).clone() }.encode();
        self.blobs.unpriced.get_or_init(encode).clone()
    }

    /// The region's catalog with the spot prices of a known one; without one, without any.
    pub fn catalog_over(&self, known: Option<&[u8]>) -> Vec<u8> {
        let current = self.catalog_blob();
        if known.is_some_and(|known| *known == current) {
            return current;
        }
        match known.and_then(|known| Catalog::decode(known).ok()) {
            Some(known) => Catalog { spot: known.spot, ..(*self.catalog).clone() }.normalized().encode(),
            None => self.unpriced_blob(),
        }
    }

    /// The same while no on-demand price can be read: those of the known catalog stand in, before the first those of the built-in tables.
    pub fn catalog_with_old_prices(&self, known: Option<&[u8]>) -> Vec<u8> {
        let Catalog { on_demand, spot, .. } = known.and_then(|known| Catalog::decode(known).ok()).unwrap_or_default();
        let on_demand = if on_demand.is_empty() { tables::static_on_demand_prices(&self.name) } else { on_demand };
        Catalog { on_demand, spot, ..(*self.catalog).clone() }.normalized().encode()
    }

    /// A catalog with the region's spot prices; an error for what is none.
    pub fn with_spot_prices(&self, known: &[u8]) -> Result<Vec<u8>, CatalogError> {
        let current = self.catalog_blob();
        if known == current || known == self.unpriced_blob() {
            return Ok(current);
        }
        let known = Catalog::decode(known)?;
        Ok(Catalog { spot: self.catalog.spot.clone(), ..known }.normalized().encode())
    }

    /// Running machines whose checks fail, or for which an event is scheduled.
    pub fn failing(&self) -> Vec<InstanceStatus> {
        let runs = |id: &InstanceId| self.machines.get(id).is_some_and(|machine| machine.instance.state == InstanceState::Running);
        let fails = |status: &InstanceStatus| {
            status.instance_impaired_since.is_some() || status.system_impaired_since.is_some() || status.has_scheduled_event
        };
        self.statuses.values().filter(|status| runs(&status.instance) && fails(status)).cloned().collect()
    }

    /// How many machines were ever started.
    pub fn started(&self) -> usize {
        self.started
    }

    /// Whether a machine that is not ended runs with an instance profile.
    pub fn runs_with(&self, profile: &str) -> bool {
        self.machines.values().any(|machine| machine.instance.is_alive() && machine.launch_template.instance_profile == profile)
    }

    /// The cost per hour of all running machines with our tags.
    pub fn cost(&self) -> Price {
        self.machines.values().filter(|machine| machine.instance.is_alive()).map(|machine| machine.price).sum()
    }

    /// Capacity and allocatable of a plain machine of a managed group.
    pub fn plain_size(&self, instance_type: &str) -> (Resources, Resources) {
        self.size(instance_type, AmiFamily::Al2, &LaunchTemplate::default(), &user_data::Boot::default())
    }

    /// Capacity and allocatable as the kubelet of a family reports them: of what the machine was launched and booted with alone, which says
    /// what its node class said.
    fn size(&self, instance_type: &str, family: AmiFamily, template: &LaunchTemplate, boot: &user_data::Boot) -> (Resources, Resources) {
        let Some(facts) = self.catalog.facts(instance_type) else { return (Resources::new(), Resources::new()) };
        let spec = Ec2NodeClassSpec {
            ami_family: Some(family.name().to_owned()),
            block_device_mappings: (!template.block_device_mappings.is_empty()).then(|| template.block_device_mappings.clone()),
            instance_store_policy: boot.joins_local_disks.then(|| "RAID0".to_owned()),
            network_interfaces: network::named_interfaces(&template.interfaces),
            ..Ec2NodeClassSpec::default()
        };
        let class = Ec2NodeClass { spec, ..Ec2NodeClass::default() };
        let settings = Settings::standard();
        let context = Context {
            class: &class,
            family: class.spec.family(),
            kubelet: &boot.kubelet,
            settings: &settings,
            unavailable: &Unavailable::default(),
            reservation_capacity: &BTreeMap::new(),
            reservation_tenancies: &BTreeMap::new(),
            placement_group: None,
            ipv6: false,
            measured_memory: &BTreeMap::new(),
            measured_allocatable: &BTreeMap::new(),
        };
        let Ok(resources) = type_resources(facts, &context) else { return (Resources::new(), Resources::new()) };
        let overhead = resources.overhead();
        let capacity = resources.capacity;
        let mut allocatable = capacity.clone();
        allocatable.subtract(&overhead);
        allocatable.0.retain(|name, _| capacity.0.contains_key(name));
        (capacity, allocatable)
    }

    /// The time of the next state change of a machine.
    pub fn next_at(&self) -> Option<Timestamp> {
        let of_machines = self.changes.keys().next().map(|(at, _, _)| *at);
        of_machines.into_iter().chain(self.next_reservation_at()).min()
    }

    fn plan(&mut self, at: Timestamp, id: &InstanceId, change: Change) {
        self.changes.insert((at, id.clone(), change), ());
    }
    fn plan_after(&mut self, now: Timestamp, seconds: u64, id: &InstanceId, change: Change) {
        let span = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(0));
        self.plan(now.checked_add(span).unwrap_or(Timestamp::MAX), id, change);
    }

    /// Applies the state changes that are due.
    pub fn step(&mut self, now: Timestamp, dice: &mut Dice) -> Vec<RegionEffect> {
        let mut effects = Vec::new();
        while let Some((at, id, change)) = self.changes.keys().next().cloned().filter(|(at, _, _)| *at <= now) {
            self.changes.remove(&(at, id.clone(), change));
            self.apply_change(&id, change, now, dice, &mut effects);
        }
        self.step_reservations(now, dice, &mut effects);
        effects
    }

    fn apply_change(&mut self, id: &InstanceId, change: Change, now: Timestamp, dice: &mut Dice, effects: &mut Vec<RegionEffect>) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        match change {
            Change::Run if machine.instance.state == InstanceState::Pending => {
                machine.instance.state = InstanceState::Running;
                effects.push(RegionEffect::Notice(self.subject(id).state_change("running", now)));
                let seconds = dice.between(Stream::Latency, 20, 35);
                match self.supply.boot {
                    Some(boot) => self.plan(now.checked_add(boot).unwrap_or(Timestamp::MAX), id, Change::Join),
                    None => self.plan_after(now, seconds, id, Change::Join),
                }
            }
            Change::Join if machine.instance.state == InstanceState::Running && !machine.never_joins => {
                let joining = self.joining(id);
                effects.extend(joining.map(|machine| RegionEffect::Join(Box::new(machine))));
            }
            Change::Reclaim if machine.instance.is_alive() => {
                effects.push(RegionEffect::Reclaimed(id.clone()));
                effects.push(RegionEffect::Log(format!("EC2 reclaims spot machine {id}")));
                self.begin_termination(id, now, dice, effects);
            }
            Change::End if machine.instance.state == InstanceState::ShuttingDown => {
                machine.instance.state = InstanceState::Terminated;
                let ended = machine.clone();
                self.occupy(&ended, supply::Occupancy::Returned);
                effects.push(RegionEffect::Log(format!("machine {id} has ended")));
                effects.push(RegionEffect::Notice(self.subject(id).state_change("terminated", now)));
                self.plan(now.checked_add(REMEMBERED).unwrap_or(Timestamp::MAX), id, Change::Forget);
            }
            Change::Forget => {
                self.machines.remove(id);
            }
            Change::Halt if machine.instance.state == InstanceState::Stopping => {
                machine.instance.state = InstanceState::Stopped;
                effects.push(RegionEffect::Log(format!("machine {id} has stopped")));
                effects.push(RegionEffect::Notice(self.subject(id).state_change("stopped", now)));
            }
            Change::Run | Change::Join | Change::Reclaim | Change::End | Change::Halt => {}
        }
    }

    fn begin_termination(&mut self, id: &InstanceId, now: Timestamp, dice: &mut Dice, effects: &mut Vec<RegionEffect>) {
        let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.instance.is_alive()) else { return };
        machine.instance.state = InstanceState::ShuttingDown;
        machine.ended_at = Some(now);
        effects.push(RegionEffect::Lost(id.to_string()));
        effects.push(RegionEffect::Notice(self.subject(id).state_change("shutting-down", now)));
        let seconds = dice.between(Stream::Latency, 15, 30);
        self.plan_after(now, seconds, id, Change::End);
    }

    /// Terminates a machine. True if EC2 still knows one with that id.
    pub fn terminate(&mut self, id: &InstanceId, now: Timestamp, dice: &mut Dice) -> (bool, Vec<RegionEffect>) {
        let mut effects = Vec::new();
        let known = self.machines.contains_key(id);
        self.begin_termination(id, now, dice, &mut effects);
        (known, effects)
    }

    /// Somebody stops a running machine, which stays in EC2 until it is terminated. Nothing happens to one in another state.
    pub fn stop(&mut self, id: &InstanceId, now: Timestamp, dice: &mut Dice) -> Vec<RegionEffect> {
        let running = |machine: &&mut Machine| machine.instance.state == InstanceState::Running;
        let Some(machine) = self.machines.get_mut(id).filter(running) else { return Vec::new() };
        machine.instance.state = InstanceState::Stopping;
        let seconds = dice.between(Stream::Latency, 15, 30);
        self.plan_after(now, seconds, id, Change::Halt);
        vec![RegionEffect::Lost(id.to_string()), RegionEffect::Notice(self.subject(id).state_change("stopping", now))]
    }

    /// Sends a spot interruption warning. Returns the notice, if there is such a machine.
    pub fn interrupt(&mut self, id: &InstanceId, now: Timestamp) -> Option<String> {
        self.machines.get(id).filter(|machine| machine.instance.is_alive())?;
        self.plan(now.checked_add(SPOT_WARNING).unwrap_or(Timestamp::MAX), id, Change::Reclaim);
        Some(self.subject(id).spot_interruption(now))
    }

    /// Adds an orphaned machine with our tags, as after the loss of its record. It is copied from the given machine, or
    /// from the first running one; `None` if there is none.
    pub fn orphan(&mut self, like: Option<&InstanceId>, now: Timestamp, dice: &mut Dice) -> Option<InstanceId> {
        let matching = |machine: &&Machine| machine.instance.is_alive() && like.is_none_or(|id| machine.instance.id == *id);
        let mut machine = self.machines.values().find(matching)?.clone();
        let id = InstanceId::new(format!("i-{}", dice.hex(17)));
        machine.instance.id = id.clone();
        machine.instance.launched_at = now;
        machine.instance.private_dns_name = self.private_name(dice);
        machine.instance.tags.remove(whittle_api::labels::TAG_NODE_CLAIM);
        machine.instance.tags.insert(whittle_api::labels::TAG_LAUNCH.to_owned(), "lost".to_owned());
        machine.never_joins = true;
        self.machines.insert(id.clone(), machine);
        Some(id)
    }

    fn joining(&self, id: &InstanceId) -> Option<JoiningMachine> {
        let machine = self.machines.get(id)?;
        let instance = &machine.instance;
        let image = self.network.images.iter().find(|image| image.id == instance.image_id);
        let family = image.map_or(AmiFamily::Al2, network::family_of);
        let boot = user_data::read(&machine.launch_template.user_data);
        let (capacity, allocatable) = self.size(&instance.instance_type, family, &machine.launch_template, &boot);
        let windows_build = family.windows_build();
        Some(JoiningMachine {
            instance_id: id.to_string(),
            node_name: instance.private_dns_name.clone(),
            provider_id: instance.provider_id(),
            instance_type: instance.instance_type.clone(),
            region: self.name.clone(),
            zone: instance.zone.clone(),
            zone_id: self.catalog.zone_id(&instance.zone).to_owned(),
            architecture: self.catalog.facts(&instance.instance_type).map_or("amd64", |facts| facts.arch()).to_owned(),
            operating_system: if windows_build.is_some() { "windows" } else { "linux" }.to_owned(),
            windows_build: windows_build.map(str::to_owned),
            capacity,
            allocatable,
            labels: boot.labels,
            taints: boot.taints,
        })
    }
}
