//! Every call in the life of a machine, with every way in which it fails: nothing is left over, and the claim ends right.

use super::root;
use crate::cases::{Case, Stage};
use std::collections::BTreeMap;
use whittle_claims::Phase;
use whittle_ports::Clock;
use whittle_tests::fake_aws::Reply;
use whittle_units::{ClaimName, SignedDuration};

/// A way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Failure {
    /// It is refused, with this status and code.
    Refused(u16, &'static str),
    /// It is carried out.
    Reply(Reply),
}

/// Statuses and codes.
type Errors = [(u16, &'static str)];

/// How many calls of an action fail before one succeeds.
const FAILURES: usize = 2;
/// Errors that each service returns whatever is asked.
const OF_ALL: [Failure; 3] = [Failure::Reply(Reply::Lost), Failure::Reply(Reply::Late), Failure::Reply(Reply::Empty)];
const OF_EC2: &Errors = &[
    (503, "RequestLimitExceeded"),
    (500, "InternalError"),
    (503, "Unavailable"),
    (403, "UnauthorizedOperation"),
    (400, "InvalidParameterValue"),
];
const OF_IAM: &Errors =
    &[(400, "Throttling"), (500, "ServiceFailure"), (403, "AccessDenied"), (404, "NoSuchEntity"), (409, "LimitExceeded")];
const OF_OTHERS: &Errors = &[(400, "ThrottlingException"), (500, "InternalServerError"), (400, "AccessDeniedException")];

/// The actions of the functions, with the errors that are theirs alone.
const ACTIONS: &[(&str, &Errors, &Errors)] = &[
    ("DescribeCluster", OF_OTHERS, &[(404, "ResourceNotFoundException")]),
    ("DescribeInstanceTypes", OF_EC2, &[]),
    ("DescribeInstanceTypeOfferings", OF_EC2, &[]),
    ("DescribeSpotPriceHistory", OF_EC2, &[]),
    ("GetProducts", OF_OTHERS, &[]),
    ("DescribeSubnets", OF_EC2, &[(400, "InvalidSubnetID.NotFound")]),
    ("DescribeSecurityGroups", OF_EC2, &[(400, "InvalidGroup.NotFound")]),
    ("DescribeImages", OF_EC2, &[(400, "InvalidAMIID.NotFound")]),
    ("GetParameter", OF_OTHERS, &[(400, "ParameterNotFound")]),
    ("GetInstanceProfile", OF_IAM, &[]),
    ("CreateInstanceProfile", OF_IAM, &[(409, "EntityAlreadyExists")]),
    ("AddRoleToInstanceProfile", OF_IAM, &[]),
    ("RemoveRoleFromInstanceProfile", OF_IAM, &[]),
    ("ListInstanceProfiles", OF_IAM, &[]),
    // An answer that the profile does not exist would be true.
    ("DeleteInstanceProfile", &[(400, "Throttling"), (500, "ServiceFailure"), (403, "AccessDenied")], &[(409, "DeleteConflict")]),
    ("CreateLaunchTemplate", OF_EC2, &[(400, "InvalidLaunchTemplateName.AlreadyExistsException"), (400, "LaunchTemplateLimitExceeded")]),
    ("DescribeLaunchTemplates", OF_EC2, &[]),
    ("DeleteLaunchTemplate", OF_EC2, &[(400, "InvalidLaunchTemplateName.NotFoundException")]),
    (
        "CreateFleet",
        OF_EC2,
        &[
            (400, "InsufficientInstanceCapacity"),
            (400, "VcpuLimitExceeded"),
            (400, "UnfulfillableCapacity"),
            (400, "InvalidLaunchTemplateName.NotFoundException"),
            (400, "InsufficientFreeAddressesInSubnet"),
        ],
    ),
    ("DescribeInstances", OF_EC2, &[(400, "InvalidInstanceID.NotFound")]),
    ("TerminateInstances", OF_EC2, &[(400, "OperationNotPermitted"), (400, "InvalidInstanceID.NotFound")]),
];

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It got one machine.
    Launched,
    /// It was given up, without a machine.
    Failed,
}

fn failures(of_service: &Errors, own: &Errors) -> Vec<Failure> {
    let refused = of_service.iter().chain(own).map(|(status, code)| Failure::Refused(*status, code));
    refused.chain(OF_ALL).collect()
}

fn running(stage: &Stage) -> usize {
    stage.simulation.world().region.machines.values().filter(|machine| machine.instance.is_alive()).count()
}

/// Lets a machine live and die while the first calls of an action fail. What the claim came to, or what is wrong.
fn live_and_die(case: &Case, action: &str, failure: Failure) -> Result<End, String> {
    let mut stage = Stage::new(case);
    match failure {
        Failure::Refused(status, code) => {
            stage.aws.api.lock().unwrap().refusals.insert(action.to_owned(), vec![(status, code.to_owned()); FAILURES]);
        }
        Failure::Reply(reply) => stage.aws.spoil(action, vec![reply; FAILURES]),
    }
    for _ in 0..=FAILURES {
        let _ = stage.refresh();
        stage.simulation.run_for(SignedDuration::from_secs(60));
    }
    let claim = case.planned(1, stage.ports.now());
    let name = claim.key.name.clone();
    stage.store(std::slice::from_ref(&claim));
    let settled = |stage: &Stage| match stage.claim(&name).map(|claim| claim.phase) {
        Some(Phase::Launched { .. }) => Some(End::Launched),
        Some(Phase::Failed { .. } | Phase::Gone { .. }) => Some(End::Failed),
        _ => None,
    };
    for _ in 0..30 {
        if settled(&stage).is_none() {
            let _ = stage.launch(&[]);
            stage.simulation.run_for(SignedDuration::from_secs(10));
        }
    }
    let end = settled(&stage).ok_or_else(|| format!("the claim hangs: {:?}", stage.claim(&name).map(|claim| claim.phase)))?;
    let machines = running(&stage);
    if machines != usize::from(end == End::Launched) {
        return Err(format!("{machines} machines for a claim that is {end:?}"));
    }
    stage.delete_claims();
    stage.delete_class();
    let mut left = Left::of(&stage, &name);
    for _ in 0..60 {
        stage.terminate(std::slice::from_ref(&name));
        let _ = stage.refresh();
        let _ = stage.sweep();
        stage.simulation.run_for(SignedDuration::from_secs(60));
        left = Left::of(&stage, &name);
        if left == Left::default() {
            break;
        }
    }
    if stage.aws.api.lock().unwrap().calls(action) == 0 {
        return Err("nothing calls it".to_owned());
    }
    if left == Left::default() { Ok(end) } else { Err(format!("{left:?}")) }
}

/// What there is of a machine and of its class.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    claims: usize,
    machines: usize,
    templates: usize,
    profiles: usize,
}

impl Left {
    fn of(stage: &Stage, name: &ClaimName) -> Self {
        let claim = stage.claim(name).map(|claim| claim.phase);
        let ended = matches!(claim, None | Some(Phase::Failed { .. } | Phase::Gone { .. }));
        let machines = running(stage);
        let region = &stage.simulation.world().region;
        Self { claims: usize::from(!ended), machines, templates: region.launch_templates.len(), profiles: region.network.profiles.len() }
    }
}

#[test]
fn whatever_call_fails_nothing_is_left_over_and_the_claim_ends_right() {
    let case = Case::read(&root().join("tests/golden/cloud/launch/001-on-demand.yaml")).unwrap();
    let mut table: BTreeMap<&str, BTreeMap<Failure, Result<End, String>>> = BTreeMap::new();
    for (action, of_service, own) in ACTIONS {
        for failure in failures(of_service, own) {
            table.entry(action).or_default().insert(failure, live_and_die(&case, action, failure));
        }
    }
    let all = || table.iter().flat_map(|(action, row)| row.iter().map(move |(failure, end)| (action, failure, end)));
    for (action, failure, end) in all() {
        println!("{action:<32} {:<52} {}", format!("{failure:?}"), end.as_ref().map_or_else(String::clone, |end| format!("{end:?}")));
    }
    let wrong = all().filter(|(_, _, end)| end.is_err()).count();
    println!("{} failures of {} calls: {wrong} end wrong", all().count(), table.len());
    assert_eq!(wrong, 0);
}
