mod beside;
mod changed;
mod dry_runs;
mod failure;
mod many;
mod over_sim;
mod overlaid;
mod placed;
mod profiles;
mod refused;
mod repeated;
mod requests;
mod type_settings;
mod shifted;
mod tenancies;
mod used_up;

use crate::addresses::SubnetUse;
use crate::batch::Batch;
use crate::call::Call;
use crate::plan::{batch, id_of, launch_key};
use crate::retry::NextTry;
use crate::{is_due, unstored_call};
use std::collections::BTreeSet;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimSpec, DeletionReason, Event, ExtraCapacity, OverlaidPrice, PodKey, Record};
use whittle_ec2::fleet::{FleetRequest, Launch};
use whittle_testkit::{after, at, begun, deletion, out_of_capacity};
use whittle_units::{ClaimName, ClusterName, Price, Quantity, SignedDuration};

fn planned() -> Claim {
    whittle_testkit::planned("a", ClaimSpec::default())
}

fn launching() -> Claim {
    after(&planned(), &[begun("t")], at(0))
}

fn deleted(claim: &Claim) -> Claim {
    after(claim, &[Event::DeletionRequested(deletion(DeletionReason::Requested, at(0)))], at(0))
}

#[track_caller]
fn check_due(claim: &Claim, now: i64, expected: bool) {
    assert_eq!(is_due(claim, at(now)), expected, "{} at {now}", claim.phase.name());
}

#[test]
fn a_launch_is_due_when_it_is_new_or_abandoned() {
    check_due(&planned(), 0, true);
    check_due(&launching(), 29, false);
    check_due(&launching(), 30, true);
    let delayed = Claim { look_again_at: Some(at(40)), ..launching() };
    check_due(&delayed, 39, false);
    check_due(&delayed, 40, true);
}

#[test]
fn a_deleted_claim_is_never_launched() {
    check_due(&deleted(&planned()), 1000, false);
    check_due(&deleted(&launching()), 1000, false);
    check_due(&after(&launching(), &[out_of_capacity()], at(0)), 1000, false);
}

/// A restored table is older than that. Whoever looks once may be told of a moment at which EC2 did not show the machines yet.
#[test]
fn a_call_that_is_not_in_the_table_counts_as_lost_from_four_minutes_on() {
    let which = |seconds: i64| unstored_call(SignedDuration::from_secs(seconds));
    assert_eq!([0, 239, 240, 3600].map(which), [Call::New, Call::New, Call::Lost, Call::Lost]);
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
fn the_id_of_a_batch_depends_on_its_claims_alone() {
    let cluster = ClusterName::new("c");
    assert_eq!(id_of(&cluster, &names(&["a", "b"])), id_of(&cluster, &names(&["b", "a"])));
    assert_ne!(id_of(&cluster, &names(&["a", "b"])), id_of(&cluster, &names(&["a"])));
    assert_ne!(id_of(&cluster, &names(&["a"])), id_of(&ClusterName::new("d"), &names(&["a"])));
}

#[test]
fn a_call_requests_one_instance_per_member_and_tags_the_batch() {
    let two = stored(&["a", "b"]);
    assert_eq!(two.request.target_capacity, 2);
    assert_eq!(two.request.tags[labels::TAG_LAUNCH], two.id);
    assert!(!two.request.tags.contains_key(labels::TAG_NODE_CLAIM), "a fleet tag cannot distinguish two instances");
    let one = stored(&["a"]);
    assert_eq!(one.request.tags[labels::TAG_NODE_CLAIM], "a");
    assert_ne!(one.request.client_token, two.request.client_token);
}

/// A machine would start with the labels, taints or types of another claim.
#[test]
fn claims_that_differ_in_what_their_launch_depends_on_never_share_one() {
    let key_after = |change: fn(&mut ClaimSpec)| {
        let mut claim = planned();
        change(&mut claim.spec);
        launch_key(&claim)
    };
    let changes: [fn(&mut ClaimSpec); 12] = [
        |spec| spec.node_pool = "b".into(),
        |spec| spec.owner.kind = "Provisioner".into(),
        |spec| spec.node_class.name = "b".into(),
        |spec| _ = spec.labels.insert("team".into(), "a".into()),
        |spec| _ = spec.annotations.insert("team".into(), "a".into()),
        |spec| spec.requirements.push(Requirement::is_in(labels::ZONE, ["z"])),
        |spec| spec.instance_types.push("m5.large".into()),
        |spec| spec.extra_capacity.push(ExtraCapacity::default()),
        |spec| spec.overlaid_prices.push(OverlaidPrice::default()),
        |spec| spec.taints.push(Taint::new("team", TaintEffect::NoSchedule)),
        |spec| spec.startup_taints.push(Taint::new("team", TaintEffect::NoSchedule)),
        |spec| spec.requests.set("cpu", Quantity::from_units(1)),
    ];
    let keys: BTreeSet<String> = changes.iter().map(|change| key_after(*change)).collect();
    let unchanged = key_after(|_| ());
    assert!(keys.len() == changes.len() && !keys.contains(&unchanged), "{keys:#?}");
    let others: [fn(&mut ClaimSpec); 4] = [
        |spec| spec.pods.push(PodKey::default()),
        |spec| spec.replaces = Some("c1".into()),
        |spec| spec.price = Price::from_nanos(1),
        |spec| spec.is_awaited = true,
    ];
    assert!(others.iter().all(|change| key_after(*change) == unchanged), "their call is the same");
}

#[test]
fn equal_batches_make_equal_calls() {
    assert_eq!(stored(&["a", "b"]).request, stored(&["a", "b"]).request);
    let kept = stored(&["a"]);
    let read: Batch = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
    assert_eq!(read, kept);
    assert_eq!(read.launch().reservations.len(), 1);
    assert_eq!(read.name(), read.id);
    assert!(read.expires_at().unwrap() > at(24 * 3600), "the record outlives EC2's memory of the token");
}

#[test]
fn a_recreated_standalone_nodeclaim_gets_a_new_token() {
    let token = |uid: Option<&str>| {
        let mut claim = planned();
        claim.spec.standalone_uid = uid.map(str::to_owned);
        id_of(&ClusterName::new("c"), &[crate::plan::token_of(&claim)])
    };
    assert_eq!(token(Some("uid-1")), token(Some("uid-1")), "every run derives the same token");
    assert_ne!(token(Some("uid-1")), token(Some("uid-2")));
    assert_ne!(token(Some("uid-1")), token(None));
    assert_eq!(token(None), id_of(&ClusterName::new("c"), &[planned().key.name]), "the same id as in every release");
}

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

#[test]
fn stored_calls_and_doorbells_of_every_release_round_trip() {
    let read = golden::check::<Batch>(Batch::KIND, Batch::VERSION);
    assert_eq!((read.members.len(), read.request.target_capacity), (2, 2));
    let next = golden::check::<NextTry>(NextTry::KIND, NextTry::VERSION);
    assert_eq!(next.claims.len(), 1);
    let uses = golden::check::<SubnetUse>(SubnetUse::KIND, SubnetUse::VERSION);
    assert_eq!(uses.recent[0].addresses, 29);
}
