//! Dry runs of node classes: what they decide, and that they launch nothing.

use super::over_sim::{class_in, keep_as, know, run_over};
use super::repeated::with_class;
use crate::dry_runs::profile_failure;
use crate::plan::Facts;
use futures::executor::block_on;
use std::sync::Arc;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Bucket, BucketName, ClassDryRun, DryRunFailure, DryRunPool, Function, NodeClassRecord, Revision, ShiftedZones};
use whittle_ec2::fleet::{LaunchError, MinValuesPolicy};
use whittle_ec2::user_data::ClusterAccess;
use whittle_ports::{Adapters, CloudError, CloudErrorKind, Mode, RecordReader, Records, Settings, TokenBuckets};
use whittle_snapshot::{Reserved, TypeInputs};
use whittle_testkit::{TestWorld, at};
use whittle_units::ClusterName;

const CLASS: &str = "gone";

fn pool(name: &str, requirements: Vec<Requirement>) -> DryRunPool {
    DryRunPool { name: name.into(), requirements }
}

fn request(simulation: &TestWorld, subject: &str) {
    let known = known(simulation);
    let requested = ClassDryRun::requested(known.as_ref(), CLASS, subject, &[pool("default", Vec::new())], at(0)).unwrap();
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
    // Other launches have used up the rate of CreateFleet.
    let (bucket, full) = (BucketName("CreateFleet".to_owned()), Bucket::full(5, 2, at(0)));
    assert!(block_on(ports.take_tokens(&bucket, &full, 5, at(0))).unwrap());
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
