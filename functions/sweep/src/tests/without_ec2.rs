//! Sweeps while EC2 does not answer.

use super::over_sim::{kept, start_machine, still, with_pool};
use futures::executor::block_on;
use whittle_claims::{DeletionReason, Function, ZoneShift, step};
use whittle_ec2::instance::Instance;
use whittle_ec2::interruption::InstanceStatus;
use whittle_ports::{
    Adapters, CloudError, CloudErrorKind, HandleError, InstanceChecks, InstanceTags, Instances, LaunchTemplateCleanup, Report, Settings,
    ZonalShifts,
};
use whittle_sim::SimPorts;
use whittle_testkit::{TestWorld, at};
use whittle_units::{ClusterName, InstanceId, SignedDuration};

pub(super) const INSTANCES: &str = "DescribeInstances";
pub(super) const TEMPLATES: &str = "DescribeLaunchTemplates";

/// EC2, with one call that fails.
pub(super) struct Failing<'a> {
    pub(super) ports: &'a SimPorts,
    pub(super) call: &'static str,
    pub(super) kind: CloudErrorKind,
}

impl Failing<'_> {
    fn pass(&self, call: &'static str) -> Result<(), CloudError> {
        if call != self.call {
            return Ok(());
        }
        let (code, message) = ("RequestLimitExceeded".to_owned(), "Request limit exceeded.".to_owned());
        Err(CloudError { kind: self.kind, call, code, message })
    }
}

impl Instances for Failing<'_> {
    async fn of_cluster(&self, cluster: &ClusterName) -> Result<Vec<Instance>, CloudError> {
        self.pass(INSTANCES)?;
        self.ports.of_cluster(cluster).await
    }
    async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>, CloudError> {
        self.pass(INSTANCES)?;
        self.ports.instance(id).await
    }
    async fn tagged(&self, key: &str, value: &str) -> Result<Vec<Instance>, CloudError> {
        self.pass(INSTANCES)?;
        self.ports.tagged(key, value).await
    }
}

impl LaunchTemplateCleanup for Failing<'_> {
    async fn launch_templates(&self, cluster: &ClusterName) -> Result<Vec<String>, CloudError> {
        self.pass(TEMPLATES)?;
        self.ports.launch_templates(cluster).await
    }
    async fn delete_launch_template(&self, name: &str) -> Result<(), CloudError> {
        self.ports.delete_launch_template(name).await
    }
}

impl InstanceChecks for Failing<'_> {
    async fn failing(&self, instances: &[InstanceId]) -> Result<Vec<InstanceStatus>, CloudError> {
        self.ports.failing(instances).await
    }
}

impl ZonalShifts for Failing<'_> {
    async fn zone_shifts(&self, cluster_arn: &str) -> Result<Vec<ZoneShift>, CloudError> {
        self.ports.zone_shifts(cluster_arn).await
    }
}

impl InstanceTags for Failing<'_> {
    async fn tag(&self, id: &InstanceId, tags: &[(String, String)]) -> Result<(), CloudError> {
        self.ports.tag(id, tags).await
    }
}

/// A sweep during which this call fails.
pub(super) fn sweep_without(call: &'static str, kind: CloudErrorKind, simulation: &TestWorld) -> Result<Report, HandleError> {
    let ports = simulation.ports();
    let cloud = Failing { ports: &ports, call, kind };
    let adapters = Adapters { store: &ports, cloud: &cloud, cluster: &ports, queues: &ports, clock: &ports };
    block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c")))
}

/// A machine that serves, whose Node or NodeClaim a user has deleted.
fn deleted_by_user(by_node: bool) -> TestWorld {
    let simulation = still();
    let (mut node, mut object) = (super::node(true), super::shown(&super::registered()));
    super::release::held(if by_node { &mut node.metadata } else { &mut object.metadata });
    with_pool(&simulation, node);
    simulation.create(object);
    start_machine(&simulation);
    simulation.store(&super::registered());
    simulation
}

#[test]
fn what_a_user_deletes_is_drained_while_ec2_throttles() {
    for by_node in [true, false] {
        let simulation = deleted_by_user(by_node);
        let outcome = sweep_without(INSTANCES, CloudErrorKind::Throttled, &simulation);
        assert!(matches!(outcome, Err(HandleError::Cloud(_))), "the run fails, for the alarm: {outcome:?}");
        assert_eq!(kept(&simulation).deletion.map(|deletion| deletion.reason), Some(DeletionReason::Requested), "by its Node: {by_node}");
        assert!(simulation.doorbells().contains(&Function::Terminate));
    }
}

#[test]
fn a_lost_doorbell_of_a_drain_is_sent_again_while_ec2_throttles() {
    let mut simulation = still();
    with_pool(&simulation, super::node(true));
    simulation.store(&step(&super::registered(), &super::deletion_requested(), at(10)).unwrap());
    simulation.run_until(at(100));
    assert!(sweep_without(INSTANCES, CloudErrorKind::Unknown, &simulation).is_err());
    assert!(simulation.doorbells().contains(&Function::Terminate));
}

/// Neither that EC2 lists no machine, nor a Node that is not ready, nor an age ends a claim.
#[test]
fn nothing_else_ends_while_ec2_throttles() {
    let mut simulation = still();
    with_pool(&simulation, super::node(false));
    let mut claim = super::registered();
    claim.spec.expire_after = "1s".parse().unwrap();
    simulation.store(&claim);
    for _ in 0..3 {
        simulation.run_for(SignedDuration::from_mins(1));
        assert!(sweep_without(INSTANCES, CloudErrorKind::Throttled, &simulation).is_err());
    }
    assert_eq!(kept(&simulation).deletion, None);
    assert!(!simulation.doorbells().contains(&Function::Terminate));
}

#[test]
fn launch_templates_that_ec2_does_not_list_hold_up_nothing() {
    let simulation = deleted_by_user(true);
    let report = sweep_without(TEMPLATES, CloudErrorKind::Throttled, &simulation).unwrap();
    assert_eq!(report.counted("ended"), 1);
    let denied = sweep_without(TEMPLATES, CloudErrorKind::Unauthorized, &deleted_by_user(true));
    assert!(matches!(denied, Err(HandleError::Cloud(_))), "a missing permission is told: {denied:?}");
}
