//! A simulated world for tests of whole handlers.

use futures::executor::block_on;
use futures::future::BoxFuture;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use whittle_claims::{Claim, ClaimKey};
use whittle_ec2::fleet::LaunchTemplate;
use whittle_ec2::instance::Instance;
use whittle_ports::{ClaimStore, Leases};
use whittle_sim::cluster::objects::Tabled;
use whittle_sim::region::Machine;
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts, Simulation, World, WorldOptions};
use whittle_units::{ClusterName, InstanceId, Price, SignedDuration, Timestamp};

/// Functions that do nothing: a world in which nothing moves by itself.
pub struct NoFunctions;

impl Functions for NoFunctions {
    fn call(&self, _: Function, _: SimPorts, _: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A simulation of cluster `c` in us-west-2, of one seed.
pub struct TestWorld(Simulation);

impl Deref for TestWorld {
    type Target = Simulation;
    fn deref(&self) -> &Simulation {
        &self.0
    }
}

impl DerefMut for TestWorld {
    fn deref_mut(&mut self) -> &mut Simulation {
        &mut self.0
    }
}

impl TestWorld {
    /// One in which nothing moves by itself.
    #[must_use]
    pub fn still(start: Timestamp) -> Self {
        Self::with_functions("c", start, Arc::new(NoFunctions))
    }

    /// One whose doorbells run these functions.
    #[must_use]
    pub fn with_functions(cluster: &str, start: Timestamp, functions: Arc<dyn Functions>) -> Self {
        let (cluster, region, kubernetes_version) = (ClusterName::new(cluster), "us-west-2".into(), "1.33".into());
        let options = WorldOptions { seed: 1, cluster, region, kubernetes_version, start };
        Self(Simulation::new(World::new(&options), functions))
    }

    /// Creates an object of the cluster.
    #[track_caller]
    pub fn create<T: Tabled>(&self, object: T) {
        let mut world = self.world();
        let now = world.now();
        assert!(world.cluster.objects.create(object, now), "an object of that name exists");
    }

    /// Changes an object of the cluster; `key` is its name, with its namespace if it has one.
    #[track_caller]
    pub fn change<T: Tabled>(&self, key: &str, change: impl FnOnce(&mut T)) {
        assert!(self.world().cluster.objects.change::<T>(key, change), "there is no {key}");
    }

    /// An object of the cluster.
    #[must_use]
    pub fn get<T: Tabled>(&self, key: &str) -> Option<T> {
        self.world().cluster.objects.get::<T>(key).cloned()
    }

    /// Stores a claim.
    ///
    /// # Panics If there is one of its name.
    #[track_caller]
    pub fn store(&self, claim: &Claim) {
        let (ports, now) = (self.ports(), self.world().now());
        let stored = block_on(async {
            let lease = ports.acquire(&claim.key.cluster, "test", now, SignedDuration::from_secs(5)).await?;
            ports.create(&lease, claim).await?;
            ports.release(&lease).await
        });
        assert_eq!(stored, Ok(()));
    }

    /// A claim as it is stored.
    ///
    /// # Panics If there is none.
    #[must_use]
    #[track_caller]
    pub fn claim(&self, key: &ClaimKey) -> Claim {
        let found = block_on(self.ports().get(key)).expect("the table answers");
        found.expect("there is such a claim").value
    }

    /// Puts an instance into the region, without a launch; its id.
    pub fn start_machine(&self, instance: Instance) -> InstanceId {
        self.start_machine_from(LaunchTemplate::default(), instance)
    }

    /// The same, of a launch template.
    pub fn start_machine_from(&self, launch_template: LaunchTemplate, instance: Instance) -> InstanceId {
        let id = instance.id.clone();
        let machine = Machine { instance, launch_template, price: Price::ZERO, never_joins: false, ended_at: None };
        self.world().region.machines.insert(id.clone(), machine);
        id
    }

    /// The functions whose doorbells wait in the queues.
    #[must_use]
    pub fn doorbells(&self) -> Vec<Function> {
        self.world().queues.waiting().map(|message| message.function).collect()
    }
}
