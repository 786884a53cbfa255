//! A world with the resources of a case, and the functions in front of AWS's protocols.

use super::case::Case;
use crate::wire::run;
use std::pin::Pin;
use std::sync::Arc;
use whittle_api::ObjectMeta;
use whittle_api::conditions;
use whittle_api::k8s::Node;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim};
use whittle_aws::{Ec2Discovery, Isolation, Machines};
use whittle_claims::{Claim, ClaimKey, Deletion, DeletionReason, Event, NodeClassRecord, StockOut};
use whittle_ports::{Adapters, ClaimStore, Clock, HandleError, Leases, RecordReader, RegionStore, Report, Settings, advance, error_chain};
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts, Simulation, World, WorldOptions};
use whittle_terminate::LastPlanned;
use whittle_tests::fake_aws::FakeAws;
use whittle_units::{ClaimName, ClusterName, ProviderId, SignedDuration, Timestamp};

/// Reasons for which Karpenter's own validation refuses a class, whose answer to such a case left that validation out, or EC2 each launch.
const REFUSALS: &[&str] = &["UnsupportedKubeletConfiguration", "KubeletExpressionsDisabled", "TagValidationFailed", "PublicAddressRefused"];

/// Why nothing is ever launched with a class, if nothing would be by Karpenter either.
pub(crate) fn refusal(record: &NodeClassRecord) -> Option<String> {
    let validation = conditions::find(&record.class.status.conditions, conditions::VALIDATION_SUCCEEDED)?;
    REFUSALS.contains(&validation.reason.as_str()).then(|| format!("the class is refused: {}", validation.message))
}

/// Nothing happens by itself.
struct NoFunctions;

impl Functions for NoFunctions {
    fn call(&self, _: Function, _: SimPorts, _: Input) -> Pin<Box<dyn Future<Output = Result<(), RunFailure>> + Send + 'static>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A world, and the adapters in front of its region.
pub(crate) struct Stage {
    pub(crate) simulation: Simulation,
    pub(crate) ports: SimPorts,
    pub(crate) aws: FakeAws,
    pub(crate) settings: Settings,
    machines: Machines,
    discovery: Ec2Discovery,
    cluster: ClusterName,
    class: String,
}

impl Stage {
    /// A fresh world with the resources of the case, in which `refresh` has not run.
    pub(crate) fn new(case: &Case) -> Self {
        let start: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a literal time");
        let options = WorldOptions {
            seed: 1,
            cluster: case.cluster(),
            region: case.text("/region"),
            kubernetes_version: case.kubernetes_version(),
            start,
        };
        let simulation = Simulation::new(World::new(&options), Arc::new(NoFunctions));
        {
            let mut world = simulation.world();
            case.add_resources(&mut world.region);
            world.cluster.info = Some(case.cluster_info());
            world.cluster.objects.create(case.class.clone(), start);
        }
        let ports = simulation.ports();
        let aws = FakeAws::new(Arc::new(ports.clone()));
        let config = aws.config(&options.region);
        let clock = Arc::new(ports.clone());
        Self {
            machines: Machines::new(aws_sdk_ec2::Client::new(&config), clock.clone())
                .with_zonal_shift(aws_sdk_arczonalshift::Client::new(&config)),
            discovery: Ec2Discovery::new(&config, options.region.as_str().into(), Isolation::Reachable, clock),
            settings: case.settings(),
            cluster: options.cluster,
            class: case.class.metadata.name.clone(),
            simulation,
            ports,
            aws,
        }
    }

    /// The same after `refresh`, with what it stored about the class.
    pub(crate) fn refreshed(case: &Case) -> Result<(Self, NodeClassRecord), String> {
        let stage = Self::new(case);
        stage.aws.label("refresh");
        stage.refresh().map_err(|error| format!("refresh: {}", error_chain(&error)))?;
        let record = stage.record().ok_or("refresh stored nothing about the class")?;
        Ok((stage, record))
    }

    pub(crate) fn refresh(&self) -> Result<(), HandleError> {
        let ports = &self.ports;
        let adapters = Adapters { store: ports, cloud: &self.discovery, cluster: ports, queues: ports, clock: ports };
        run(whittle_refresh::handle(adapters, &self.settings, &self.cluster)).map(|_| ())
    }

    fn record(&self) -> Option<NodeClassRecord> {
        let all = run(self.ports.read_all::<NodeClassRecord>(&self.cluster)).expect("the simulated table answers");
        all.into_iter().map(|stored| stored.value).find(|record| record.class.metadata.name == self.class)
    }

    /// The class as it is in the cluster.
    pub(crate) fn class(&self) -> Ec2NodeClass {
        self.simulation.world().cluster.objects.get::<Ec2NodeClass>(&self.class).expect("the class").clone()
    }

    pub(crate) fn node_claim(&self, name: &ClaimName) -> Option<NodeClaim> {
        self.simulation.world().cluster.objects.get::<NodeClaim>(name.as_str()).cloned()
    }

    pub(crate) fn claim(&self, name: &ClaimName) -> Option<Claim> {
        self.claims().into_iter().find(|claim| claim.key.name == *name)
    }

    pub(crate) fn store(&self, claims: &[Claim]) {
        run(async {
            let lease = self.ports.acquire(&self.cluster, "test", self.ports.now(), SignedDuration::from_secs(5)).await.expect("a lease");
            for claim in claims {
                self.ports.create(&lease, claim).await.expect("a new claim");
            }
            self.ports.release(&lease).await.expect("a lease that is held");
        });
    }

    /// Runs `launch` for the claims of these names, or for all that wait.
    pub(crate) fn launch(&self, names: &[ClaimName]) -> Result<(), HandleError> {
        let ports = &self.ports;
        let adapters = Adapters { store: ports, cloud: &self.machines, cluster: ports, queues: ports, clock: ports };
        run(whittle_launch::handle(adapters, &self.settings, &self.cluster, names)).map(|_| ())
    }

    /// Runs this many launchers at once, each for all claims that wait.
    pub(crate) fn launch_concurrently(&self, launchers: usize) {
        let ports = &self.ports;
        let adapters = Adapters { store: ports, cloud: &self.machines, cluster: ports, queues: ports, clock: ports };
        let launch = |_| whittle_launch::handle(adapters, &self.settings, &self.cluster, &[]);
        run(futures::future::join_all((0..launchers).map(launch)));
    }

    /// Marks all claims as deleted.
    pub(crate) fn delete_claims(&self) {
        let now = self.ports.now();
        let deletion = Deletion::without_deadline(DeletionReason::Requested, now, "");
        run(async {
            for claim in self.ports.list(&self.cluster).await.expect("the simulated table answers") {
                advance(&self.ports, &claim, &Event::DeletionRequested(deletion.clone()), now).await.expect("a claim that can be deleted");
            }
        });
    }

    pub(crate) fn delete_class(&self) {
        let mut world = self.simulation.world();
        let now = world.now();
        world.cluster.objects.delete::<Ec2NodeClass>(&self.class, now);
    }

    pub(crate) fn sweep(&self) -> Result<(), HandleError> {
        let ports = &self.ports;
        let adapters = Adapters { store: ports, cloud: &self.machines, cluster: ports, queues: ports, clock: ports };
        run(whittle_sweep::handle(adapters, &self.settings, &self.cluster)).map(|_| ())
    }

    /// Lets every launched machine join as a node that is ready.
    pub(crate) fn join_nodes(&self) {
        let claims = self.claims();
        let mut world = self.simulation.world();
        let now = world.now();
        for machine in claims.iter().filter_map(Claim::machine) {
            let name = format!("node-{}", machine.instance_id);
            let mut node = Node { metadata: ObjectMeta::named(&name), ..Node::default() };
            node.spec.provider_id = ProviderId::of_instance(&machine.zone, &machine.instance_id).to_string();
            world.cluster.objects.create(node, now);
        }
    }

    /// One run of `register`.
    pub(crate) fn register(&self) -> Report {
        let ports = &self.ports;
        let machines = self.machines.clone().with_calls(Arc::default());
        let adapters = Adapters { store: ports, cloud: &machines, cluster: ports, queues: ports, clock: ports };
        run(whittle_register::handle(adapters, &self.settings, &self.cluster)).expect("a run of register")
    }

    /// One invocation of `terminate` with a message for each of these claims.
    pub(crate) fn terminate(&self, names: &[ClaimName]) {
        let ports = &self.ports;
        let machines = self.machines.clone().with_calls(Arc::default());
        let adapters = Adapters { store: ports, cloud: &machines, cluster: ports, queues: ports, clock: ports };
        let keys: Vec<ClaimKey> = names.iter().map(|name| ClaimKey { cluster: self.cluster.clone(), name: name.clone() }).collect();
        let last_planned = LastPlanned::default();
        let runs = keys.iter().map(|key| whittle_terminate::handle(adapters, &self.settings, &last_planned, key));
        // A run that fails leaves its message in the queue.
        run(futures::future::join_all(runs));
    }

    pub(crate) fn claims(&self) -> Vec<Claim> {
        run(self.ports.list(&self.cluster)).expect("the simulated table answers").into_iter().map(|stored| stored.value).collect()
    }

    /// What is taken for exhausted.
    pub(crate) fn stock_outs(&self) -> Vec<StockOut> {
        run(self.ports.stock_outs(self.ports.now())).expect("the simulated table answers")
    }

    /// What a plan of the cluster would see.
    pub(crate) fn snapshot(&self) -> Result<whittle_snapshot::Snapshot, HandleError> {
        let ports = &self.ports;
        let adapters = Adapters { store: ports, cloud: &(), cluster: ports, queues: ports, clock: ports };
        run(whittle_snapshot::load(adapters, &self.settings, &self.cluster))
    }
}
