//! Dry runs of node classes: what they decide, and that they launch nothing.

use super::over_sim::{class_in, keep_as, know, run_over};
use super::repeated::with_class;
use super::requests::leave_tokens;
use crate::dry_runs::profile_failure;
use crate::plan::Facts;
use futures::executor::block_on;
use std::sync::Arc;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{ClassDryRun, DryRunFailure, DryRunPool, Function, NodeClassRecord, Revision, ShiftedZones};
use whittle_ec2::fleet::{FleetAnswer, FleetRequest, LaunchError, LaunchTemplate, MinValuesPolicy};
use whittle_ec2::instance::Instance;
use whittle_ec2::user_data::ClusterAccess;
use whittle_ports::{
    Adapters, Answer, CloudError, CloudErrorKind, DryRuns, Fleets, InstanceRun, Instances, LaunchTemplates, Mode, RecordReader, Records,
    Settings,
};
use whittle_sim::SimPorts;
use whittle_snapshot::{Reserved, TypeInputs};
use whittle_testkit::{TestWorld, at};
use whittle_units::{ClusterName, InstanceId};

const CLASS: &str = "gone";

fn pool(name: &str, requirements: Vec<Requirement>) -> DryRunPool {
    DryRunPool { name: name.into(), requirements }
}

fn request(simulation: &TestWorld, subject: &str) {
    let (known, now) = (known(simulation), simulation.world().now());
    let requested = ClassDryRun::requested(known.as_ref(), CLASS, subject, &[pool("default", Vec::new())], now).unwrap();
    let ports = simulation.ports();
    let expected = block_on(ports.read::<ClassDryRun>(&cluster(), CLASS)).unwrap().map_or(Revision::ABSENT, |known| known.revision);
    block_on(ports.write(&cluster(), &requested, expected)).unwrap();
}

fn cluster() -> ClusterName {
    ClusterName::new("c")
}

fn known(simulation: &TestWorld) -> Option<ClassDryRun> {
    block_on(simulation.ports().read::<ClassDryRun>(&cluster(), CLASS)).unwrap().map(|known| known.value)
}

/// The outcome of the pending dry run; `None` if it is still pending.
fn outcome(simulation: &TestWorld) -> Option<Option<DryRunFailure>> {
    known(simulation)?.result.map(|result| result.failure)
}

#[test]
fn a_dry_run_that_is_permitted_passes_and_launches_nothing() {
    let simulation = with_class();
    request(&simulation, "a");
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!(report.counted("dry_runs_passed"), 1);
    assert_eq!(outcome(&simulation), Some(None));
    assert!(simulation.world().region.machines.is_empty());
    assert_eq!(simulation.world().region.launch_templates.len(), 1, "a template is made, as for any launch");
    assert_eq!(simulation.doorbells(), [], "nothing has to be shown");
    assert_eq!(run_over(&simulation.ports(), &[]).counted("dry_runs_passed"), 0, "it is made once");
}

#[test]
fn a_call_that_is_not_permitted_is_named_and_shown() {
    for (call, reason) in [("CreateFleet", "CreateFleetAuthCheckFailed"), ("RunInstances", "RunInstancesAuthCheckFailed")] {
        let simulation = with_class();
        simulation.world().region.denied.insert(call);
        request(&simulation, "a");
        assert_eq!(run_over(&simulation.ports(), &[]).counted("dry_runs_failed"), 1);
        let failure = outcome(&simulation).unwrap().unwrap();
        assert_eq!(failure.reason, reason);
        assert!(failure.message.starts_with(&format!("{call} failed: UnauthorizedOperation: ")), "{}", failure.message);
        assert!(failure.message.contains("Remedy: allow this call for the role of launch"), "{}", failure.message);
        assert_eq!(simulation.doorbells(), [Function::Refresh]);
        assert!(simulation.world().region.machines.is_empty());
    }
}

/// EC2, which says this of the instance profile of each instance.
struct OfProfile<'a> {
    inner: &'a SimPorts,
    message: &'static str,
}

impl DryRuns for OfProfile<'_> {
    fn ensure_tried_template(&self, template: &LaunchTemplate) -> impl Answer<(), CloudError> {
        self.inner.ensure_tried_template(template)
    }
    fn dry_run_fleet(&self, request: &FleetRequest) -> impl Answer<(), CloudError> {
        self.inner.dry_run_fleet(request)
    }
    async fn dry_run_instance(&self, _: &InstanceRun<'_>) -> Result<(), CloudError> {
        let (code, message) = ("InvalidParameterValue".to_owned(), self.message.to_owned());
        Err(CloudError { kind: CloudErrorKind::Invalid, call: "RunInstances", code, message })
    }
}

impl Fleets for OfProfile<'_> {
    fn create_fleet(&self, request: &FleetRequest) -> impl Answer<FleetAnswer, CloudError> {
        self.inner.create_fleet(request)
    }
    fn fleet(&self, id: &str, request: &FleetRequest) -> impl Answer<Option<FleetAnswer>, CloudError> {
        self.inner.fleet(id, request)
    }
}

impl LaunchTemplates for OfProfile<'_> {
    fn ensure_launch_template(&self, template: &LaunchTemplate) -> impl Answer<(), CloudError> {
        self.inner.ensure_launch_template(template)
    }
}

impl Instances for OfProfile<'_> {
    fn of_cluster(&self, cluster: &ClusterName) -> impl Answer<Vec<Instance>, CloudError> {
        self.inner.of_cluster(cluster)
    }
    fn instance(&self, id: &InstanceId) -> impl Answer<Option<Instance>, CloudError> {
        self.inner.instance(id)
    }
    fn tagged(&self, key: &str, value: &str) -> impl Answer<Vec<Instance>, CloudError> {
        self.inner.tagged(key, value)
    }
}

/// A class that names its instance profile.
fn with_own_profile() -> TestWorld {
    let simulation = with_class();
    let ports = simulation.ports();
    let mut stored = block_on(ports.read::<NodeClassRecord>(&cluster(), CLASS)).unwrap().unwrap();
    stored.value.class.spec.instance_profile = Some("p".into());
    block_on(ports.write(&cluster(), &stored.value, stored.revision)).unwrap();
    simulation
}

/// A run while EC2 says this of the profile: what it counts, and the seconds at which `refresh` is rung for from then on.
fn run_while(simulation: &TestWorld, message: &'static str) -> (u64, Vec<i64>) {
    let ports = simulation.ports();
    let cloud = OfProfile { inner: &ports, message };
    let adapters = Adapters { store: &ports, cloud: &cloud, cluster: &ports, queues: &ports, clock: &ports };
    let report = block_on(crate::handle(adapters, &Settings::default(), &cluster(), &[])).unwrap();
    (report.counted("dry_runs_failed"), refreshes(simulation))
}

fn refreshes(simulation: &TestWorld) -> Vec<i64> {
    let world = simulation.world();
    let rung = world.queues.waiting().filter(|message| message.function == Function::Refresh);
    rung.map(|message| message.visible_at.duration_since(at(0)).as_secs()).collect()
}

#[test]
fn a_profile_or_role_that_ec2_does_not_know_yet_is_asked_for_again_soon() {
    for (message, reason) in [
        ("Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", "InstanceProfileNotFound"),
        ("IAM Instance Profile \"p\" has no associated IAM Roles", "InstanceProfileWithoutRole"),
    ] {
        let mut simulation = with_own_profile();
        request(&simulation, "a");
        assert_eq!(run_while(&simulation, message), (1, vec![0, 16]), "it is shown, and due fifteen seconds later");
        let failure = outcome(&simulation).unwrap().unwrap();
        assert_eq!((failure.reason.as_str(), failure.may_pass), (reason, true));
        assert!(failure.message.contains("Remedy: wait if it is new"), "{}", failure.message);
        for (second, expected) in [(18, vec![79]), (81, vec![142]), (144, Vec::new())] {
            simulation.run_until(at(second));
            request(&simulation, "a");
            assert_eq!(run_while(&simulation, message), (1, expected), "nothing new at {second}");
        }
        simulation.run_until(at(444));
        request(&simulation, "a");
        assert_eq!(run_over(&simulation.ports(), &[]).counted("dry_runs_passed"), 1);
        assert_eq!((outcome(&simulation), refreshes(&simulation)), (Some(None), vec![444]), "the class is ready");
    }
}

#[test]
fn neither_an_error_about_something_else_nor_a_refusal_rings_for_a_second_look() {
    let simulation = with_own_profile();
    request(&simulation, "a");
    assert_eq!(run_while(&simulation, "The volume size is invalid"), (0, Vec::new()));
    assert!(known(&simulation).unwrap().is_pending(), "the next run asks again");
    simulation.world().region.denied.insert("RunInstances");
    assert_eq!(run_over(&simulation.ports(), &[]).counted("dry_runs_failed"), 1);
    assert_eq!(refreshes(&simulation), [0]);
    assert!(!outcome(&simulation).unwrap().unwrap().may_pass);
}

#[test]
fn an_instance_profile_that_cannot_be_used_is_told_apart_from_calls_that_are_not_permitted() {
    let failure = |code: &str, message: &str| {
        let (kind, code) = (CloudErrorKind::Invalid, code.to_owned());
        profile_failure(&CloudError { kind, call: "RunInstances", code, message: message.to_owned() })
    };
    let missing = failure("InvalidParameterValue", "Invalid IAM Instance Profile name").unwrap();
    assert_eq!(missing.reason, "InstanceProfileNotFound");
    let empty = failure("InvalidParameterValue", "IAM Instance Profile \"p\" has no associated IAM Roles").unwrap();
    assert_eq!(empty.reason, "InstanceProfileWithoutRole");
    assert!(empty.message.ends_with("add a role to the instance profile that spec.instanceProfile names, or correct the field"));
    assert_eq!(failure("UnauthorizedOperation", "not authorized to perform iam:PassRole"), None);
    assert_eq!(failure("InvalidParameterValue", "The volume size is invalid"), None);
}

#[test]
fn a_dry_run_without_an_answer_stays_pending_and_blames_nobody() {
    let simulation = with_class();
    request(&simulation, "a");
    let ports = simulation.ports();
    leave_tokens(&simulation, 0);
    assert_eq!(run_over(&ports, &[]).counted("dry_runs_postponed"), 1);
    assert!(known(&simulation).unwrap().is_pending());
    assert_eq!(outcome(&simulation), None);
}

#[test]
fn launches_come_before_dry_runs_and_named_ones_make_none() {
    let simulation = with_class();
    request(&simulation, "a");
    let claim = keep_as(&simulation, 1, |_| {});
    let report = run_over(&simulation.ports(), std::slice::from_ref(&claim.key.name));
    assert_eq!((report.counted("launched"), report.counted("dry_runs_passed")), (1, 0));
    keep_as(&simulation, 2, |_| {});
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("launched"), report.counted("dry_runs_passed")), (1, 1));
    assert_eq!(simulation.world().region.machines.len(), 2);
}

#[test]
fn no_dry_run_is_made_where_the_setting_is_off_or_in_shadow_mode() {
    let unasked = Settings { node_class_dry_runs: false, ..Settings::default() };
    let shadow = Settings { mode: Mode::Shadow, ..Settings::default() };
    for settings in [unasked, shadow] {
        let simulation = with_class();
        request(&simulation, "a");
        let ports = simulation.ports();
        block_on(crate::handle(Adapters::all(&ports), &settings, &cluster(), &[])).unwrap();
        assert_eq!(outcome(&simulation), None);
        assert!(simulation.world().region.launch_templates.is_empty());
    }
}

#[test]
fn a_dry_run_of_a_class_that_is_gone_changes_nothing() {
    let simulation = with_class();
    let requested = ClassDryRun::requested(None, "other", "a", &[], at(0)).unwrap();
    block_on(simulation.ports().write(&cluster(), &requested, Revision::ABSENT)).unwrap();
    run_over(&simulation.ports(), &[]);
    assert!(block_on(simulation.ports().read::<ClassDryRun>(&cluster(), "other")).unwrap().unwrap().value.is_pending());
    assert_eq!(simulation.doorbells(), []);
}

/// Facts with the class of the simulated region, and that class.
fn facts() -> (Facts, NodeClassRecord) {
    let simulation = with_class();
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let record = class_in(&catalog);
    let facts = Facts {
        catalog: Arc::clone(&catalog),
        classes: vec![record.clone()],
        changed: std::collections::BTreeSet::new(),
        stock_outs: Vec::new(),
        uses: Vec::new(),
        inputs: TypeInputs {
            settings: Settings::default().instance_types(),
            reserved: Reserved::default(),
            measured: Vec::new(),
            now: at(0),
            shifted: ShiftedZones::default(),
            prices: Default::default(),
        },
        access: ClusterAccess {
            name: "c".into(),
            endpoint: "https://c".into(),
            ca_bundle: Some("Yw==".into()),
            service_cidr: Some("10.0.0.0/16".into()),
            dns_address: None,
        },
        min_values: MinValuesPolicy::Strict,
        left_to_others: 0,
        now: at(0),
    };
    (facts, record)
}

/// The type and the capacity type that is tried for these pools.
fn tried(pools: &[DryRunPool]) -> (String, String) {
    let (facts, record) = facts();
    let trial = facts.trial(pools, &record).unwrap().expect("something can be launched");
    let overrides: Vec<_> = trial.launch.request.configs.iter().flat_map(|config| &config.overrides).collect();
    assert_eq!((trial.launch.templates.len(), overrides.len(), trial.launch.request.target_capacity), (1, 1, 1));
    assert!(!trial.subnets.is_empty());
    (overrides[0].instance_type.clone(), trial.launch.request.capacity_type.clone())
}

#[test]
fn the_tried_type_is_one_that_a_pool_may_launch_and_on_demand() {
    let of_type = |name: &str| Requirement::is_in(labels::INSTANCE_TYPE, [name]);
    let spot = Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_SPOT]);
    let on_demand = |name: &str| (name.to_owned(), labels::CAPACITY_ON_DEMAND.to_owned());
    assert_eq!(tried(&[pool("default", vec![of_type("m5.4xlarge"), spot])]), on_demand("m5.4xlarge"));
    // The first pool that can launch something counts, and without any pool any type does.
    assert_eq!(tried(&[pool("empty", vec![of_type("none")]), pool("b", vec![of_type("c5.large")])]), on_demand("c5.large"));
    assert_eq!(tried(&[]).1, labels::CAPACITY_ON_DEMAND);
    assert_eq!(tried(&[pool("empty", vec![of_type("none")])]).1, labels::CAPACITY_ON_DEMAND);
}

#[test]
fn user_data_that_is_too_large_fails_the_class_before_any_call() {
    let (facts, mut record) = facts();
    record.class.spec.user_data = Some(format!("#!/bin/sh\n# {}", "x".repeat(17_000)));
    let error = facts.trial(&[], &record).unwrap_err();
    assert!(matches!(error, LaunchError::UserData(_)), "{error}");
    let simulation = with_class();
    let mut large = record.clone();
    large.class.metadata.name = "large".into();
    know(&simulation, large);
    let requested = ClassDryRun::requested(None, "large", "a", &[], at(0)).unwrap();
    block_on(simulation.ports().write(&cluster(), &requested, Revision::ABSENT)).unwrap();
    run_over(&simulation.ports(), &[]);
    let made = block_on(simulation.ports().read::<ClassDryRun>(&cluster(), "large")).unwrap().unwrap().value;
    assert_eq!(made.failure().unwrap().reason, "UserDataSizeLimitExceeded");
    assert!(simulation.world().region.launch_templates.is_empty());
}
