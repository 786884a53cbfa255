mod changed;
mod many;
mod over_sim;
mod overlaid;
mod placed;
mod repeated;
mod type_settings;
mod used_up;

use crate::addresses::SubnetUse;
use crate::batch::Batch;
use crate::is_due;
use crate::plan::{batch, id_of};
use crate::retry::NextTry;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimSpec, DeletionReason, Event, Record};
use whittle_ec2::fleet::{FleetRequest, Launch};
use whittle_testkit::{after, at, begun, deletion, out_of_capacity};
use whittle_units::{ClaimName, ClusterName};

fn planned() -> Claim {
    whittle_testkit::planned("a", ClaimSpec::default())
}

fn launching() -> Claim {
    after(&planned(), &[begun("t")], at(0))
}

fn to_end(claim: &Claim) -> Claim {
    after(claim, &[Event::DeletionAsked(deletion(DeletionReason::Requested, at(0)))], at(0))
}

#[track_caller]
fn check_due(claim: &Claim, now: i64, expected: bool) {
    assert_eq!(is_due(claim, at(now)), expected, "{} at {now}", claim.phase.name());
}

#[test]
fn a_launch_is_taken_up_when_it_is_new_or_was_left_behind() {
    check_due(&planned(), 0, true);
    check_due(&launching(), 29, false);
    check_due(&launching(), 30, true);
    let delayed = Claim { look_again_at: Some(at(40)), ..launching() };
    check_due(&delayed, 39, false);
    check_due(&delayed, 40, true);
}

#[test]
fn what_is_to_end_is_never_launched() {
    check_due(&to_end(&planned()), 1000, false);
    check_due(&to_end(&launching()), 1000, false);
    check_due(&after(&launching(), &[out_of_capacity()], at(0)), 1000, false);
}

fn names(names: &[&str]) -> Vec<ClaimName> {
    names.iter().map(|name| ClaimName::new(*name)).collect()
}

fn stored(members: &[&str]) -> Batch {
    let request = FleetRequest {
        client_token: String::new(),
        target_capacity: 1,
        capacity_type: "spot".into(),
        reservation: None,
        configs: Vec::new(),
        tags: [("team".to_owned(), "a".to_owned())].into(),
        prioritized: false,
        context: None,
    };
    let launch = Launch {
        templates: Vec::new(),
        request,
        tenancy: "default".into(),
        partition: None,
        reservations: [(("m5.large".to_owned(), "z".to_owned()), "cr-1".to_owned())].into(),
        addresses_in_flight: 0,
    };
    let members = names(members);
    let id = id_of(&ClusterName::new("c"), &members);
    batch(&id, members, "default", &launch, at(0))
}

#[test]
fn the_name_of_a_batch_follows_from_its_claims_alone() {
    let cluster = ClusterName::new("c");
    assert_eq!(id_of(&cluster, &names(&["a", "b"])), id_of(&cluster, &names(&["b", "a"])));
    assert_ne!(id_of(&cluster, &names(&["a", "b"])), id_of(&cluster, &names(&["a"])));
    assert_ne!(id_of(&cluster, &names(&["a"])), id_of(&ClusterName::new("d"), &names(&["a"])));
}

#[test]
fn a_call_asks_for_as_many_machines_as_it_has_members_and_names_them() {
    let two = stored(&["a", "b"]);
    assert_eq!(two.request.target_capacity, 2);
    assert_eq!(two.request.tags[labels::TAG_LAUNCH], two.id);
    assert!(!two.request.tags.contains_key(labels::TAG_NODE_CLAIM), "a tag of the fleet cannot tell two machines apart");
    let one = stored(&["a"]);
    assert_eq!(one.request.tags[labels::TAG_NODE_CLAIM], "a");
    assert_ne!(one.request.client_token, two.request.client_token);
}

#[test]
fn the_same_batch_is_the_same_call() {
    assert_eq!(stored(&["a", "b"]).request, stored(&["a", "b"]).request);
    let kept = stored(&["a"]);
    let read: Batch = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
    assert_eq!(read, kept);
    assert_eq!(read.launch().reservations.len(), 1);
    assert_eq!(read.name(), read.id);
    assert!(read.expires_at().unwrap() > at(24 * 3600), "EC2 must have forgotten the token before we do");
}

#[test]
fn a_name_that_is_used_again_by_hand_is_another_launch() {
    let token = |uid: Option<&str>| {
        let mut claim = planned();
        claim.spec.standalone_uid = uid.map(str::to_owned);
        id_of(&ClusterName::new("c"), &[crate::plan::token_of(&claim)])
    };
    assert_eq!(token(Some("uid-1")), token(Some("uid-1")), "whoever begins it begins the same");
    assert_ne!(token(Some("uid-1")), token(Some("uid-2")));
    assert_ne!(token(Some("uid-1")), token(None));
    assert_eq!(token(None), id_of(&ClusterName::new("c"), &[planned().key.name]), "as every release named it");
}

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

#[test]
fn calls_and_doorbells_that_every_release_stored_stay_readable_and_are_written_again_as_they_were() {
    let read = golden::check::<Batch>(Batch::KIND, Batch::VERSION);
    assert_eq!((read.members.len(), read.request.target_capacity), (2, 2));
    let next = golden::check::<NextTry>(NextTry::KIND, NextTry::VERSION);
    assert_eq!(next.claims.len(), 1);
    let uses = golden::check::<SubnetUse>(SubnetUse::KIND, SubnetUse::VERSION);
    assert_eq!(uses.recent[0].addresses, 29);
}
