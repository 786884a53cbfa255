//! Instance profiles that EC2 cannot use: it learns of new ones within a minute, and of others users are told.

use super::over_sim::{keep_as, run_over};
use super::repeated::with_class;
use whittle_api::conditions::{self, LAUNCHED};
use whittle_claims::Claim;
use whittle_sim::Function;
use whittle_testkit::{TestWorld, at};

const MISSING: &str = "Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
const EMPTY: &str = "IAM Instance Profile \"p\" has no associated IAM Roles";

/// A world in which EC2 says this of the instance profile of the class, and a claim that is planned at this second.
fn refused(message: &str, planned_at: i64) -> (TestWorld, Claim) {
    let simulation = with_class();
    simulation.world().region.refusal = Some(("InvalidParameterValue".into(), message.into()));
    let claim = keep_as(&simulation, 1, |claim| {
        claim.created_at = at(planned_at);
        claim.spec.node_pool = "default".into();
    });
    (simulation, claim)
}

/// For how long a run at this second leaves the claim to itself.
fn delay(simulation: &mut TestWorld, claim: &Claim, second: i64) -> i64 {
    simulation.run_until(at(second));
    run_over(&simulation.ports(), std::slice::from_ref(&claim.key.name));
    simulation.claim(&claim.key).look_again_at.unwrap().duration_since(at(second)).as_secs()
}

/// What the Events of a refused launch say of its NodePool.
fn told(simulation: &TestWorld) -> Vec<String> {
    let world = simulation.world();
    let refused = world.cluster.events.iter().filter(|kept| kept.event.reason == "LaunchRefused" && kept.event.kind == "NodePool");
    refused.map(|kept| kept.event.message.clone()).collect()
}

#[test]
fn an_instance_profile_that_stays_unusable_is_told_of_after_a_minute_and_tried_rarely_from_then_on() {
    for (message, advice) in [(MISSING, "correct spec.instanceProfile of the node class"), (EMPTY, "add one to the profile that")] {
        let (mut simulation, claim) = refused(message, 1);
        assert_eq!([1, 56].map(|second| delay(&mut simulation, &claim, second)), [5, 5], "{message}");
        assert_eq!((told(&simulation), simulation.doorbells().contains(&Function::Refresh)), (Vec::new(), false), "it may be new");
        assert_eq!(delay(&mut simulation, &claim, 61), 30, "{message}");
        // The class was looked at before the claim was planned: IAM may say by now what is wrong.
        assert!(simulation.doorbells().contains(&Function::Refresh));
        assert_eq!(delay(&mut simulation, &claim, 91), 30, "{message}");
        assert!(!simulation.doorbells().contains(&Function::Refresh), "all classes would be looked at with each refusal");
        let events = told(&simulation);
        assert!(!events.is_empty());
        let words = [advice, "spec.instanceProfile", "by node class gone", message];
        assert!(events.iter().all(|event| words.iter().all(|word| event.contains(word))), "{events:?}");
        let shown = simulation.claim(&claim.key);
        let launched = conditions::find(&shown.conditions, LAUNCHED).unwrap();
        assert!(launched.message.contains(advice), "{}", launched.message);
    }
}

#[test]
fn a_profile_that_ec2_learns_of_within_a_minute_is_never_told_of() {
    for message in [MISSING, EMPTY] {
        let (mut simulation, claim) = refused(message, 1);
        assert_eq!([1, 6, 59].map(|second| delay(&mut simulation, &claim, second)), [5, 5, 5]);
        simulation.world().region.refusal = None;
        simulation.run_until(at(70));
        assert_eq!(run_over(&simulation.ports(), &[claim.key.name]).counted("launched"), 1);
        assert_eq!(told(&simulation), [""; 0]);
    }
}

#[test]
fn a_class_that_was_looked_at_while_the_claim_waited_is_not_looked_at_again() {
    let (mut simulation, claim) = refused(MISSING, 0);
    assert_eq!([0, 60].map(|second| delay(&mut simulation, &claim, second)), [5, 30]);
    assert!(!simulation.doorbells().contains(&Function::Refresh));
}
