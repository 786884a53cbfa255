//! Objects with our finalizer but no claim, on a real API server: `kubectl delete` of each completes, and no finalizer is removed while its
//! machine runs.

use crate::functions_in_a_cluster::clusters_of;
use crate::unreadable::Stage;
use std::time::SystemTime;
use whittle_api::karpenter::NodeClassReference;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimSpec, Event, Function, Machine, mirror, step};
use whittle_ec2::instance::Instance;
use whittle_ports::{Adapters, ClaimStore, Mirrors, Settings, contracts};
use whittle_terminate::LastPlanned;
use whittle_tests::kubernetes::{apply, kubectl};
use whittle_units::{InstanceId, ProviderId, SignedDuration, Timestamp};

/// Longer than the interval between two sightings.
const ROUND: SignedDuration = SignedDuration::from_secs(35);
/// The number of rounds in which everything terminates that can.
const ROUNDS: usize = 12;

impl Stage {
    /// The NodeClaim of a lost claim, optionally with a running machine.
    async fn create_node_claim(&self, name: &str, runs: bool, now: Timestamp) {
        let id = InstanceId::new(format!("i-0{name}"));
        if runs {
            self.run_machine(id.as_str(), now - SignedDuration::from_hours(1), &[(labels::TAG_LAUNCH, "lost")]);
        }
        let [group, kind, class] = ["karpenter.k8s.aws", "EC2NodeClass", "default"].map(str::to_owned);
        let spec = ClaimSpec {
            node_pool: "default".into(),
            owner: self.owner("default").await,
            node_class: NodeClassReference { group, kind, name: class },
            ..ClaimSpec::default()
        };
        let planned = Claim { spec, ..contracts::planned_claim(&self.name, name, now) };
        let known = contracts::machine_launched_at(&id, now);
        let machine = Machine { provider_id: ProviderId::of_instance(&known.zone, &id), ..known };
        let claim = step(&planned, &Event::FleetAnswered(machine), now).unwrap();
        self.clusters.apply_mirror(&self.name, &mirror(&claim)).await.unwrap();
    }

    /// The Node of a machine. If not `ready`, its kubelet never reports.
    fn create_node(&self, name: &str, ready: bool) {
        let zone = contracts::machine_launched_at(&InstanceId::new("i-0"), Timestamp::UNIX_EPOCH).zone;
        let annotations = if ready { "" } else { "annotations: {test/ready-after: 1h}, " };
        apply(
            &self.plane,
            &format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, {annotations}finalizers: [{}], labels: {{{}: 'true', {}: 'true', \
                 {}: default}}}}, spec: {{providerID: 'aws:///{zone}/i-0{name}'}}, status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}}}",
                labels::TERMINATION_FINALIZER,
                labels::REGISTERED,
                labels::INITIALIZED,
                labels::NODE_POOL
            ),
        );
        if ready {
            let _ = kubectl(&self.plane, &["wait", &format!("node/{name}"), "--for=condition=Ready", "--timeout=60s"]);
        }
    }

    /// Creates a pod on the Node whose budget forbids its eviction.
    fn create_undrainable_pod(&self, node: &str) {
        apply(
            &self.plane,
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: on-{node}, namespace: default, labels: {{app: {node}}}}}, spec: {{nodeName: {node}, \
                 containers: [{{name: c, image: fake}}]}}}}"
            ),
        );
        apply(
            &self.plane,
            &format!(
                "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: on-{node}, namespace: default}}, spec: {{minAvailable: 1, \
                 selector: {{matchLabels: {{app: {node}}}}}}}}}"
            ),
        );
        let healthy = "--for=jsonpath={.status.currentHealthy}=1";
        let _ = kubectl(&self.plane, &["wait", &format!("pdb/on-{node}"), healthy, "--timeout=60s"]);
    }

    /// One tick of the functions involved.
    async fn round(&mut self) {
        self.sweep().await;
        let ports = self.simulation.ports();
        let terminate = clusters_of(&self.plane, Function::Terminate);
        let adapters = Adapters { store: &ports, cloud: &ports, cluster: &terminate, queues: &ports, clock: &ports };
        for claim in ports.list(&self.name).await.unwrap() {
            whittle_terminate::handle(adapters, &Settings::default(), &LastPlanned::default(), &claim.value.key).await.unwrap();
        }
        self.simulation.run_for(ROUND);
    }

    /// The Nodes and NodeClaims with our finalizer.
    fn objects_with_finalizer(&self) -> Vec<String> {
        let each = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.finalizers}{'\\n'}{end}";
        let listed = kubectl(&self.plane, &["get", "nodes,nodeclaims", "-o", each]);
        let ours = listed.lines().filter(|line| line.contains(labels::TERMINATION_FINALIZER));
        let mut held: Vec<String> = ours.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
        held.sort_unstable();
        held
    }

    fn running(&self) -> usize {
        self.simulation.world().region.machines.values().filter(|machine| Instance::is_alive(&machine.instance)).count()
    }
}

#[tokio::test]
async fn a_deleted_object_without_a_claim_keeps_its_finalizer_until_its_node_is_drained() {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let now = Timestamp::UNIX_EPOCH + SignedDuration::try_from(since).unwrap();
    let Some(mut stage) = Stage::with_crds_at(now) else { return };
    for name in ["by-claim", "by-node"] {
        stage.create_node_claim(name, true, now).await;
        stage.create_node(name, true);
        stage.create_undrainable_pod(name);
    }
    stage.create_node_claim("ended", false, now).await;
    stage.create_node("alone", false);
    let _ = kubectl(&stage.plane, &["delete", "--wait=false", "nodeclaim", "by-claim", "ended"]);
    let _ = kubectl(&stage.plane, &["delete", "--wait=false", "node", "by-node", "alone"]);

    for _ in 0..ROUNDS {
        stage.round().await;
        let held = stage.objects_with_finalizer();
        for kept in ["Node/by-claim", "Node/by-node", "NodeClaim/by-claim", "NodeClaim/by-node"] {
            assert!(held.iter().any(|known| known == kept), "{kept} was released although its pod still runs: {held:?}");
        }
        assert_eq!(stage.running(), 2, "no machine is terminated");
    }
    assert_eq!(stage.objects_with_finalizer().len(), 4, "objects without a machine are deleted: {:?}", stage.objects_with_finalizer());
    let _ = kubectl(&stage.plane, &["get", "pod", "on-by-claim", "on-by-node"]);

    let _ = kubectl(&stage.plane, &["delete", "pdb", "--all"]);
    for _ in 0..ROUNDS {
        stage.round().await;
    }
    assert_eq!((stage.objects_with_finalizer(), stage.running()), (vec![], 0));
    assert_eq!(kubectl(&stage.plane, &["get", "nodes,nodeclaims", "-o", "name"]), "");
}
