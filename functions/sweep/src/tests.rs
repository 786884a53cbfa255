mod adopt;
mod broken;
mod checks;
mod classes;
mod deadlines;
mod gauges;
mod index;
mod looks;
mod many;
mod over_sim;
mod release;
mod reservations;
mod standalone;
mod uninstall;
mod unreadable;
mod without_ec2;
mod zonal_shift;

use crate::compare::{Findings, SweepInput, compare};
use crate::index::Index;
use crate::templates::{InUse, LaunchedFrom};
use whittle_api::conditions::CONSISTENT_STATE_FOUND;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus, NodePool};
use whittle_api::{ClusterObjects, Condition, ConditionStatus, NillableDuration, ObjectMeta, OwnerReference, labels};
use whittle_claims::{
    BlockEnds, Claim, ClaimSpec, Deletion, DeletionReason, Event, Machine, NodeClassRecord, ShiftedZones, Sighting, mirror, step,
};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ec2::interruption::InstanceStatus;
use whittle_testkit::{at, default_spec, deletion, instance_of, joined, machine, node_class_reference, pool_named, pool_owner, stored};
use whittle_units::{Resources, SignedDuration};

fn planned() -> Claim {
    let spec = ClaimSpec { owner: pool_owner(), node_class: node_class_reference("default"), ..default_spec() };
    whittle_testkit::planned("default-1", spec)
}

fn after(events: &[Event]) -> Claim {
    whittle_testkit::after(&planned(), events, at(10))
}

fn begun() -> Event {
    whittle_testkit::begun("batch")
}
fn launched() -> Claim {
    after(&[begun(), Event::FleetAnswered(machine("i-1"))])
}
/// Of a machine that EC2 has to list by [`Scene::compare`]'s time.
fn registered() -> Claim {
    after(&[begun(), Event::FleetAnswered(Machine { launched_at: at(-60), ..machine("i-1") }), joined("n")])
}
fn deletion_requested() -> Event {
    Event::DeletionRequested(deletion(DeletionReason::Requested, at(10)))
}

fn instance(id: &str) -> Instance {
    let tags =
        [(labels::NODE_POOL, "default"), (labels::EC2_NODE_CLASS, "default"), (labels::TAG_CLUSTER, "c"), (labels::TAG_LAUNCH, "lost")];
    Instance { tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(), ..instance_of(&machine(id)) }
}

fn node(ready: bool) -> Node {
    let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    node.metadata.labels = [(labels::NODE_POOL, "default"), (labels::EC2_NODE_CLASS, "default")].map(|(k, v)| (k.into(), v.into())).into();
    node.spec.provider_id = "aws:///z/i-1".into();
    let status = if ready { ConditionStatus::True } else { ConditionStatus::Unknown };
    node.status.conditions = vec![Condition { type_: "Ready".into(), status, ..Condition::default() }];
    node
}

/// A cluster with one healthy claim: pool, mirror, Node and instance exist.
#[derive(Clone)]
struct Scene {
    claims: Vec<Claim>,
    unreadable: Vec<String>,
    objects: ClusterObjects,
    instances: Vec<Instance>,
    statuses: Vec<InstanceStatus>,
    templates: Vec<String>,
    in_use: InUse,
    classes: Vec<NodeClassRecord>,
    blocks: Option<BlockEnds>,
    shifted: ShiftedZones,
    repair: bool,
    uninstalling: bool,
}

/// The object of a claim as the API server keeps it.
fn shown(claim: &Claim) -> NodeClaim {
    let mut object = mirror(claim);
    whittle_api::conditions::observe(&mut object.status.conditions, object.metadata.generation);
    object
}

fn scene(claim: Claim) -> Scene {
    let consistent = |mut claim: Claim| {
        if claim.machine().is_some() && claim.deletion.is_none() {
            claim.note(CONSISTENT_STATE_FOUND, ConditionStatus::True, CONSISTENT_STATE_FOUND, "", at(10));
        }
        claim
    };
    let claim = consistent(claim);
    Scene {
        objects: ClusterObjects {
            node_pools: vec![pool_named("default")],
            node_claims: vec![shown(&claim)],
            nodes: vec![node(true)],
            ..ClusterObjects::default()
        },
        claims: vec![claim],
        unreadable: Vec::new(),
        instances: vec![instance("i-1")],
        statuses: Vec::new(),
        templates: Vec::new(),
        in_use: InUse { is_whole: true, ..InUse::default() },
        classes: Vec::new(),
        blocks: None,
        shifted: ShiftedZones::default(),
        repair: false,
        uninstalling: false,
    }
}

impl Scene {
    fn compare(&self, sightings: &[Sighting], now: i64) -> Findings {
        let claims = stored(self.claims.clone());
        compare(&SweepInput {
            claims: &claims,
            unreadable: &self.unreadable,
            objects: &self.objects,
            nodes: crate::Freshness::Newest,
            instances: &self.instances,
            index: Index::of(&claims, &self.unreadable, &self.objects, &self.instances),
            statuses: &self.statuses,
            templates: &self.templates,
            in_use: &self.in_use,
            sightings,
            classes: &self.classes,
            blocks: self.blocks.as_ref(),
            shifted: &self.shifted,
            repair: self.repair,
            uninstalling: self.uninstalling,
            now: at(now),
        })
    }
    /// What a sweep at 100 s finds, and one `later` seconds after it that sees the same.
    fn twice(&self, later: i64) -> (Findings, Findings) {
        let first = self.compare(&[], 100);
        let second = self.compare(&first.note, 100 + later);
        (first, second)
    }
}

fn change(mut scene: Scene, change: impl FnOnce(&mut Scene)) -> Scene {
    change(&mut scene);
    scene
}

#[track_caller]
fn check_ends(scene: &Scene, reason: DeletionReason) {
    let ends: Vec<DeletionReason> = scene.compare(&[], 100).end.iter().map(|end| end.reason).collect();
    assert_eq!(ends, [reason]);
}

/// Nothing at the first sighting nor 29 s later; the claim ends 30 s later.
#[track_caller]
fn check_ends_at_second_sighting(scene: &Scene, reason: DeletionReason) {
    let (first, early) = scene.twice(29);
    assert!(first.end.is_empty() && early.end.is_empty(), "{first:?} {early:?}");
    let (_, second) = scene.twice(30);
    assert_eq!(second.end.iter().map(|end| end.reason).collect::<Vec<_>>(), [reason]);
}

#[track_caller]
fn check_never_ends(scene: &Scene) {
    let (first, second) = scene.twice(60);
    assert!(first.end.is_empty() && second.end.is_empty(), "{second:?}");
}

#[test]
fn a_consistent_cluster_has_no_findings() {
    assert_eq!(scene(registered()).compare(&[], 100), Findings::default());
}

#[test]
fn deletion_by_a_user_is_honoured_at_once() {
    check_ends(
        &change(scene(registered()), |s| s.objects.node_claims[0].metadata.deletion_timestamp = Some(at(90))),
        DeletionReason::Requested,
    );
    check_ends(&change(scene(registered()), |s| s.objects.nodes[0].metadata.deletion_timestamp = Some(at(90))), DeletionReason::Requested);
}

#[test]
fn the_deletion_of_another_node_with_the_same_provider_id_ends_nothing() {
    let twins = |deleted: &'static str| {
        change(scene(registered()), |s| {
            let mut twin = s.objects.nodes[0].clone();
            twin.metadata.name = "twin".into();
            s.objects.nodes.push(twin);
            for node in s.objects.nodes.iter_mut().filter(|node| node.metadata.name == deleted) {
                node.metadata.deletion_timestamp = Some(at(90));
            }
        })
    };
    check_never_ends(&twins("neither"));
    check_never_ends(&twins("twin"));
    check_ends(&twins("n"), DeletionReason::Requested);
}

#[test]
fn claims_of_a_deleted_pool_are_deleted() {
    check_ends(
        &change(scene(registered()), |s| s.objects.node_pools[0].metadata.deletion_timestamp = Some(at(90))),
        DeletionReason::NodePoolDeleted,
    );
    check_ends_at_second_sighting(
        &change(scene(registered()), |s| s.objects.node_pools[0].metadata.name = "renamed".into()),
        DeletionReason::NodePoolDeleted,
    );
    check_ends_at_second_sighting(
        &change(scene(registered()), |s| s.objects.node_pools[0].metadata.uid = "another".into()),
        DeletionReason::NodePoolDeleted,
    );
}

#[test]
fn a_provisioner_and_a_nodepool_of_one_name_are_two_pools() {
    let mut claim = registered();
    claim.spec.owner.kind = "Provisioner".into();
    check_ends_at_second_sighting(&scene(claim.clone()), DeletionReason::NodePoolDeleted);
    let converted = change(scene(claim), |s| {
        s.objects.node_pools[0].metadata.annotations.insert(labels::CONVERTED_FROM.into(), "Provisioner".into());
    });
    check_never_ends(&converted);
}

#[test]
fn the_order_of_conditions_makes_no_mirror_out_of_date() {
    let reordered = change(scene(registered()), |s| s.objects.node_claims[0].status.conditions.reverse());
    assert!(1 < reordered.objects.node_claims[0].status.conditions.len());
    assert_eq!(reordered.compare(&[], 100), Findings::default());
    let lacking = change(scene(registered()), |s| {
        s.objects.node_claims[0].status.conditions.pop();
    });
    assert_eq!(lacking.compare(&[], 100).mirrors.len(), 1);
}

#[test]
fn conditions_follow_the_generation_of_the_object_which_grows_when_it_is_deleted() {
    let shown_of = |generation: i64, observed: i64| {
        change(scene(registered()), |s| {
            let shown = &mut s.objects.node_claims[0];
            shown.metadata.generation = Some(generation);
            whittle_api::conditions::observe(&mut shown.status.conditions, Some(observed));
        })
    };
    assert!(shown_of(1, 1).compare(&[], 100).mirrors.is_empty());
    assert!(shown_of(2, 2).compare(&[], 100).mirrors.is_empty());
    assert_eq!(shown_of(2, 1).compare(&[], 100).mirrors.len(), 1);
}

#[test]
fn an_instance_counts_as_lost_only_if_its_kubelet_is_silent() {
    let lost = change(scene(registered()), |s| s.instances.clear());
    check_never_ends(&lost);
    check_ends_at_second_sighting(&change(lost.clone(), |s| s.objects.nodes = vec![node(false)]), DeletionReason::InstanceGone);
    check_ends_at_second_sighting(&change(lost, |s| s.objects.nodes.clear()), DeletionReason::InstanceGone);
    let ending = change(scene(registered()), |s| {
        s.instances[0].state = InstanceState::ShuttingDown;
        s.objects.nodes = vec![node(false)];
    });
    check_ends_at_second_sighting(&ending, DeletionReason::InstanceGone);
    // Of a machine as new as that EC2 says what has ended, and may not list yet what has not.
    let new = |scene: &Scene| {
        let claim = after(&[begun(), Event::FleetAnswered(machine("i-1")), joined("n")]);
        change(scene.clone(), |s| s.claims = vec![claim])
    };
    check_ends_at_second_sighting(&new(&ending), DeletionReason::InstanceGone);
    let unlisted = new(&change(ending, |s| s.instances.clear())).compare(&[], 119);
    assert!(unlisted.note.iter().all(|sighting| !sighting.subject.contains("without instance")), "{unlisted:?}");
}

#[test]
fn an_unregistered_claim_is_left_to_its_timeout() {
    let unregistered = change(scene(launched()), |s| {
        s.instances.clear();
        s.objects.nodes.clear();
    });
    check_never_ends(&unregistered);
}

#[test]
fn a_claim_ends_whose_node_was_deleted_unseen_and_made_anew_by_its_kubelet() {
    let made = |seconds: i64, taint: &str| {
        change(scene(registered()), |s| {
            let node = &mut s.objects.nodes[0];
            node.metadata.creation_timestamp = Some(at(seconds));
            node.spec.taints = vec![Taint::new(taint, TaintEffect::NoExecute)];
        })
    };
    check_ends_at_second_sighting(&made(50, labels::UNREGISTERED_TAINT), DeletionReason::Requested);
    check_never_ends(&made(5, labels::UNREGISTERED_TAINT));
    check_never_ends(&made(50, "team"));
    let twins =
        change(made(50, labels::UNREGISTERED_TAINT), |s| s.objects.nodes.push(Node { metadata: ObjectMeta::named("m"), ..node(true) }));
    check_never_ends(&twins);
    let joins = change(made(50, labels::UNREGISTERED_TAINT), |s| s.claims = vec![launched()]);
    check_never_ends(&joins);
}

/// It may have ended before its launch was stored: then nobody was told.
#[test]
fn an_instance_that_never_joined_counts_as_lost_once_ec2_must_list_it() {
    let aged = |launched_at: i64| after(&[begun(), Event::FleetAnswered(Machine { launched_at: at(launched_at), ..machine("i-1") })]);
    let lost = |launched_at: i64| {
        change(scene(aged(launched_at)), |s| {
            s.instances.clear();
            s.objects.nodes.clear();
        })
    };
    check_ends_at_second_sighting(&lost(-20), DeletionReason::InstanceGone);
    let noted = lost(-19).compare(&[], 100).note;
    assert!(noted.iter().all(|sighting| !sighting.subject.contains("without instance")), "EC2 may not list it yet: {noted:?}");
    let (_, second) = lost(-20).twice(30);
    assert_eq!(second.end[0].message, "its instance has ended before its Node joined");
    check_never_ends(&change(lost(-20), |s| s.instances = vec![instance("i-1")]));
    check_never_ends(&change(lost(-20), |s| s.objects.nodes = vec![node(true)]));
}

#[test]
fn an_expired_claim_is_deleted_once() {
    let mut claim = registered();
    claim.spec.expire_after = NillableDuration::from_secs(100);
    check_ends(&scene(claim.clone()), DeletionReason::Expired);
    assert!(scene(claim.clone()).compare(&[], 99).end.is_empty());
    let ending = step(&claim, &deletion_requested(), at(20)).unwrap();
    assert!(scene(ending).compare(&[], 200).end.is_empty());
}

#[test]
fn a_resolved_contradiction_starts_over() {
    let lost = change(scene(registered()), |s| {
        s.instances.clear();
        s.objects.nodes = vec![node(false)];
    });
    let first = lost.compare(&[], 100);
    assert_eq!(first.note.len(), 1);
    let well = scene(registered()).compare(&first.note, 130);
    assert_eq!(well.forget, ["claim/default-1 without instance"]);
    assert!(lost.compare(&[], 160).end.is_empty());
}

/// The table may keep it for days after that.
#[test]
fn a_sighting_that_has_expired_confirms_nothing() {
    let with_orphan = change(scene(registered()), |s| s.instances.push(instance("i-9")));
    let first = with_orphan.compare(&[], 100);
    assert_eq!(with_orphan.compare(&first.note, 100 + 1199).orphans.len(), 1);
    let late = with_orphan.compare(&first.note, 100 + 1200);
    assert!(late.orphans.is_empty(), "twenty minutes later it may be another matter");
    assert!(late.note.iter().any(|sighting| sighting.subject == "instance/i-9 without claim" && sighting.first_seen_at == at(1300)));
}

/// The orphans that a sweep confirms half a minute after it first saw them.
#[track_caller]
fn check_orphans(scene: &Scene, expected: &[&str]) {
    let (first, second) = scene.twice(30);
    assert!(first.orphans.is_empty(), "never at the first sighting");
    assert_eq!(second.orphans.iter().map(|orphan| orphan.id.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn an_orphan_is_collected_at_the_second_sighting() {
    check_orphans(&change(scene(registered()), |s| s.instances.push(instance("i-9"))), &["i-9"]);
}

/// Its claim may not have been stored before.
#[test]
fn an_instance_without_a_claim_is_never_an_orphan_before_it_is_half_a_minute_old() {
    let young = change(scene(registered()), |s| s.instances.push(Instance { launched_at: at(100), ..instance("i-9") }));
    let is_noted = |now: i64| young.compare(&[], now).note.iter().any(|sighting| sighting.subject == "instance/i-9 without claim");
    assert_eq!([100, 129, 130].map(is_noted), [false, false, true]);
    let first = young.compare(&[], 130).note;
    assert_eq!([159, 160].map(|now| young.compare(&first, now).orphans.len()), [0, 1]);
}

#[test]
fn an_instance_with_an_owner_is_no_orphan() {
    let with = |instance: Instance| change(scene(registered()), |s| s.instances.push(instance));
    let tagged = |key: &str, value: &str| {
        let mut instance = instance("i-9");
        instance.tags.insert(key.into(), value.into());
        instance
    };
    let mut foreign = instance("i-9");
    foreign.tags.remove(labels::EC2_NODE_CLASS);
    check_orphans(&with(foreign), &[]);
    // Karpenter's, or one that a user tagged.
    let mut foreign = instance("i-9");
    foreign.tags.remove(labels::TAG_LAUNCH);
    check_orphans(&with(foreign), &[]);
    // Tagged as another cluster's, too.
    check_orphans(&with(tagged("kubernetes.io/cluster/other", "owned")), &[]);
    check_orphans(&with(tagged("kubernetes.io/cluster/c", "owned")), &["i-9"]);
    check_orphans(&with(Instance { state: InstanceState::Terminated, ..instance("i-9") }), &[]);
    check_orphans(&with(Instance { launched_at: at(101), ..instance("i-9") }), &[]);
    // Another controller's NodeClaim names it.
    let mut other = NodeClaim { metadata: ObjectMeta::named("theirs"), ..NodeClaim::default() };
    other.status.provider_id = "aws:///z/i-9".into();
    check_orphans(&change(with(instance("i-9")), |s| s.objects.node_claims.push(other)), &[]);
    // It might belong to a claim that this version cannot read.
    check_orphans(&change(with(instance("i-9")), |s| s.unreadable = vec!["default-7".into()]), &[]);
    // Its launch is in progress.
    let launching = change(scene(after(&[begun()])), |s| s.instances = vec![tagged(labels::TAG_LAUNCH, "batch")]);
    check_orphans(&launching, &[]);
    check_orphans(&change(launching, |s| s.instances = vec![tagged(labels::TAG_LAUNCH, "other")]), &["i-9"]);
}

#[test]
fn overdue_doorbells_are_sent_again() {
    let launch = |claim: &Claim, now| scene(claim.clone()).compare(&[], now).launch.len();
    assert_eq!((launch(&planned(), 9), launch(&planned(), 10)), (0, 1));
    let mut launching = after(&[begun()]);
    launching.look_again_at = Some(at(60));
    assert_eq!((launch(&launching, 69), launch(&launching, 70)), (0, 1));
    let mut ending = step(&registered(), &deletion_requested(), at(10)).unwrap();
    let terminate = |claim: &Claim, now| scene(claim.clone()).compare(&[], now).terminate.len();
    assert_eq!((terminate(&ending, 19), terminate(&ending, 20)), (0, 1));
    ending.look_again_at = Some(at(60));
    assert_eq!((terminate(&ending, 69), terminate(&ending, 70)), (0, 1));
}

#[test]
fn mirrors_follow_their_claims() {
    let missing = change(scene(registered()), |s| s.objects.node_claims.clear());
    assert_eq!(missing.compare(&[], 100).mirrors.len(), 1);
    let stale = change(scene(registered()), |s| s.objects.node_claims[0].status.node_name.clear());
    assert_eq!(stale.compare(&[], 100).mirrors.len(), 1);
    let labelled = change(scene(registered()), |s| {
        s.objects.node_claims[0].metadata.labels.insert("users".into(), "own".into());
    });
    assert!(labelled.compare(&[], 100).mirrors.is_empty(), "others may add labels");
    let unshown = |claim: Claim| change(scene(claim), |s| s.objects.node_claims[0].status = NodeClaimStatus::default());
    for claim in [planned(), after(&[begun()])] {
        let written = |now| unshown(claim.clone()).compare(&[], now).mirrors.len();
        assert_eq!((written(9), written(10)), (0, 1), "its conditions come with its launch, or without one from here");
    }
    assert_eq!(unshown(registered()).compare(&[], 9).mirrors.len(), 1);
    let gone = after(&[begun(), Event::FleetAnswered(machine("i-1")), deletion_requested(), Event::TerminationSent, Event::MachineGone]);
    let left = scene(gone).compare(&[], 100);
    assert_eq!((left.terminate.len(), left.mirrors.len()), (1, 0), "the mirror of an ended claim has to be released");
}

#[test]
fn unused_launch_templates_are_deleted_after_a_while() {
    let idle = change(scene(registered()), |s| s.templates = vec!["t".into()]);
    assert!(idle.twice(599).1.delete_templates.is_empty());
    assert_eq!(idle.twice(600).1.delete_templates, ["t"]);
    let busy = change(idle.clone(), |s| s.claims.push(planned()));
    assert_eq!(busy.twice(600).1.delete_templates, ["t"], "no call in progress uses it");
    let named = change(idle.clone(), |s| s.in_use.names = ["t".to_owned()].into());
    assert!(named.twice(600).1.delete_templates.is_empty(), "a call uses it");
    let unknown = change(idle, |s| s.in_use.is_whole = false);
    let (first, second) = unknown.twice(600);
    assert!(second.delete_templates.is_empty(), "an unknown call may need it");
    assert!(!second.forget.iter().any(|subject| first.note.iter().any(|noted| noted.subject == *subject)), "its sighting is kept");
}

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

#[test]
fn templates_of_stored_calls_of_every_release_are_readable() {
    use whittle_claims::Record as _;
    let call = golden::check::<LaunchedFrom>(LaunchedFrom::KIND, LaunchedFrom::VERSION);
    assert_eq!(call.name(), "b-1");
}
