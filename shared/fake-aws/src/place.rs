//! What the protocols serve: a region, its cluster and its clock.

use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_ec2::fleet::{FleetAnswer, FleetRequest};
use whittle_ec2::instance::Instance;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::CloudError;
use whittle_sim::cluster::JoiningMachine;
use whittle_sim::region::{Allocation, Region, RegionEffect};
use whittle_sim::{Dice, World};
use whittle_units::{ClusterName, InstanceId, Timestamp};

/// A region with its clock. Calls with effects outside the region have methods of their own.
pub trait Place {
    fn now(&self) -> Timestamp;
    fn region(&mut self) -> &mut Region;
    /// The cluster of this name.
    fn cluster(&self, name: &ClusterName) -> Option<ClusterInfo>;
    fn create_fleet(&mut self, request: &FleetRequest, allocation: Allocation) -> Result<FleetAnswer, CloudError>;
    /// An instant fleet as a reader sees it.
    fn fleet(&mut self, id: &str) -> Option<FleetAnswer>;
    /// Instances as a reader sees them.
    fn instances(&mut self) -> Vec<Instance>;
    /// Whether an instance is visible to calls already.
    fn knows(&mut self, id: &InstanceId) -> bool;
    /// Terminates an instance that exists.
    fn terminate(&mut self, id: &InstanceId) -> Result<(), CloudError>;
}

impl Place for World {
    fn now(&self) -> Timestamp {
        World::now(self)
    }
    fn region(&mut self) -> &mut Region {
        &mut self.region
    }
    fn cluster(&self, name: &ClusterName) -> Option<ClusterInfo> {
        self.cluster_info(name)
    }
    fn create_fleet(&mut self, request: &FleetRequest, allocation: Allocation) -> Result<FleetAnswer, CloudError> {
        self.start_fleet(request, allocation)
    }
    fn fleet(&mut self, id: &str) -> Option<FleetAnswer> {
        self.fleet_seen(id)
    }
    fn instances(&mut self) -> Vec<Instance> {
        self.machines_seen(|_| true)
    }
    fn knows(&mut self, id: &InstanceId) -> bool {
        self.region.machines.contains_key(id) && !self.is_not_yet_visible(id)
    }
    fn terminate(&mut self, id: &InstanceId) -> Result<(), CloudError> {
        self.terminate_on_request(id)
    }
}

/// A region without a world, with a clock that its owner sets.
#[derive(Debug)]
pub struct Lone {
    pub region: Region,
    /// By name.
    pub clusters: BTreeMap<ClusterName, ClusterInfo>,
    /// The events of the region so far, as EventBridge delivers them.
    pub events: Vec<String>,
    /// The machines whose kubelets have registered since somebody took them from here.
    pub joined: Vec<JoiningMachine>,
    now: Timestamp,
    dice: Dice,
}

impl Lone {
    /// The region of a cluster at this time.
    pub fn new(region: &str, cluster: &ClusterName, now: Timestamp) -> Self {
        let region = Region::new(region, cluster);
        let clusters = BTreeMap::from([(cluster.clone(), region.cluster_info(cluster, "1.33"))]);
        Self { region, clusters, events: Vec::new(), joined: Vec::new(), now, dice: Dice::new(1) }
    }

    /// Sets the clock and applies everything that is due by then.
    pub fn set_time(&mut self, now: Timestamp) {
        while let Some(due) = self.region.next_at().filter(|due| *due <= now) {
            self.now = due.max(self.now);
            let effects = self.region.step(self.now, &mut self.dice);
            self.note(effects);
        }
        self.now = now.max(self.now);
    }

    /// Sends a spot interruption warning. False if the instance does not run.
    pub fn interrupt(&mut self, id: &InstanceId) -> bool {
        if !self.runs_on_spot(id) {
            return false;
        }
        let notice = self.region.interrupt(id, self.now);
        let warned = notice.is_some();
        self.events.extend(notice);
        warned
    }

    /// Says that a spot instance is at risk. False if there is none that runs.
    pub fn advise(&mut self, id: &InstanceId) -> bool {
        let advised = self.runs_on_spot(id);
        self.events.extend(advised.then(|| self.region.subject(id).rebalance(self.now)));
        advised
    }

    /// Whether there is a spot instance with this id that has not begun to end.
    pub fn runs_on_spot(&self, id: &InstanceId) -> bool {
        let machine = self.region.machines.get(id);
        machine.is_some_and(|machine| machine.instance.is_alive() && machine.instance.capacity_type == labels::CAPACITY_SPOT)
    }

    fn note(&mut self, effects: Vec<RegionEffect>) {
        for effect in effects {
            match effect {
                RegionEffect::Notice(text) => self.events.push(text),
                RegionEffect::Join(machine) => self.joined.push(*machine),
                _ => {}
            }
        }
    }
}

impl Place for Lone {
    fn now(&self) -> Timestamp {
        self.now
    }
    fn region(&mut self) -> &mut Region {
        &mut self.region
    }
    fn cluster(&self, name: &ClusterName) -> Option<ClusterInfo> {
        self.clusters.get(name).cloned()
    }
    fn create_fleet(&mut self, request: &FleetRequest, allocation: Allocation) -> Result<FleetAnswer, CloudError> {
        self.region.create_fleet(request, allocation, false, self.now, &mut self.dice)
    }
    fn fleet(&mut self, id: &str) -> Option<FleetAnswer> {
        self.region.fleet(id).cloned()
    }
    fn instances(&mut self) -> Vec<Instance> {
        let visible = |machine: &&whittle_sim::region::Machine| self.region.is_described(machine, self.now);
        self.region.machines.values().filter(visible).map(|machine| machine.instance.clone()).collect()
    }
    fn knows(&mut self, id: &InstanceId) -> bool {
        self.region.machines.get(id).is_some_and(|machine| self.region.is_described(machine, self.now))
    }
    fn terminate(&mut self, id: &InstanceId) -> Result<(), CloudError> {
        let (_, effects) = self.region.terminate(id, self.now, &mut self.dice);
        self.note(effects);
        Ok(())
    }
}
