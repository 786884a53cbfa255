use crate::Snapshot;
use crate::inflight::{being_replaced, decision_view, promises, with_chosen_nodes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{Container, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceRequirements};
use whittle_api::karpenter::{NodePool, Operator, Requirement};
use whittle_api::{ClusterObjects, ConditionStatus, ObjectMeta, OwnerReference, Unreadable, conditions, labels};
use whittle_claims::{Claim, ClaimKey, ClaimSpec, Deletion, DeletionReason, Event, Machine, NOMINATION, PodKey, mirror, step};
use whittle_model::scheduling::InstanceTypes;
use whittle_model::state::ClusterState;
use whittle_testkit::{at, machine, stored};
use whittle_units::{Quantity, Resources, SignedDuration, Timestamp};

fn now() -> Timestamp {
    at(0)
}

fn cpu(units: i64) -> Resources {
    Resources::from([("cpu", Quantity::from_units(units))])
}

fn pod(uid: &str) -> Pod {
    let resources = ResourceRequirements { requests: cpu(1), ..ResourceRequirements::default() };
    let mut pod = Pod { metadata: ObjectMeta { uid: uid.into(), ..ObjectMeta::namespaced("default", uid) }, ..Pod::default() };
    pod.spec.containers = vec![Container { name: "c".into(), resources: Some(resources), ..Container::default() }].into();
    pod
}

/// A claim that was planned for two pods and a daemon of one CPU.
fn planned() -> Claim {
    let key = |uid: &str| PodKey { namespace: "default".into(), name: uid.into(), uid: uid.into() };
    let spec = ClaimSpec {
        node_pool: "default".into(),
        requests: cpu(3),
        instance_types: vec!["small".into(), "large".into()],
        pods: vec![key("a"), key("b")],
        ..ClaimSpec::default()
    };
    Claim::planned(ClaimKey { cluster: "c".into(), name: "default-1".into() }, "uid".into(), spec, now())
}

/// The pods that no machine is being launched for, and the CPUs that the others leave on theirs.
fn unplanned(decided: &ClusterObjects) -> (Vec<&str>, Option<Quantity>) {
    let (planned, others): (Vec<&Pod>, Vec<&Pod>) = decided.pods.iter().partition(|pod| pod.spec.node_name.starts_with("planned:///"));
    let machines = decided.node_claims.iter().filter(|claim| claim.status.provider_id.starts_with("planned:///"));
    let free = machines.map(|claim| {
        let on_it = planned.iter().filter(|pod| pod.spec.node_name == claim.status.provider_id).count();
        claim.status.allocatable.get("cpu").minus(Quantity::from_units(i64::try_from(on_it).unwrap()))
    });
    (others.iter().map(|pod| pod.metadata.uid.as_str()).collect(), free.into_iter().next())
}

/// Names of the pods that a decision sees, and the CPUs free on the claim; `None` when it does not count.
#[track_caller]
fn check(claim: &Claim, pods: &[Pod], waiting: &[&str], free: Option<i64>) {
    let objects = ClusterObjects { pods: pods.to_vec().into(), ..ClusterObjects::default() };
    let size = |name: &str, units| InstanceType { name: name.into(), capacity: cpu(units), ..InstanceType::default() };
    let (small, large) = (size("small", 4), size("large", 64));
    let types = BTreeMap::from([("small", &small), ("large", &large)]);
    let decided = decision_view(&objects, &stored([claim.clone()]), &BTreeSet::new(), &types);
    assert_eq!(unplanned(&decided), (waiting.to_vec(), free.map(Quantity::from_units)));
    if let Some(mirror) = decided.node_claims.first() {
        assert_eq!(mirror.status.capacity.get("cpu"), Quantity::from_units(64), "limits count the largest machine that may be launched");
    }
}

#[test]
fn pods_of_an_unlaunched_claim_are_not_planned_again() {
    check(&planned(), &[pod("a"), pod("b"), pod("c")], &["c"], Some(1));
}

#[test]
fn capacity_planned_for_deleted_pods_is_free_for_their_successors() {
    check(&planned(), &[pod("b"), pod("a-again")], &["a-again"], Some(2));
}

/// A pod that asks for one of several would wait for a machine that may be of another.
#[test]
fn a_claim_without_a_machine_has_the_zone_and_type_that_its_machine_must_have_and_none_that_it_may() {
    let labels_of = |operator: Operator, zones: &[&str], types: &[&str]| {
        let requirements = vec![Requirement { operator, ..Requirement::is_in(labels::ZONE, zones.iter().copied()) }];
        let instance_types = types.iter().map(|name| (*name).to_owned()).collect();
        let claim = Claim { spec: ClaimSpec { requirements, instance_types, ..planned().spec }, ..planned() };
        let shown = decided(&ClusterObjects::default(), &[claim]).node_claims.remove(0);
        [labels::ZONE, labels::INSTANCE_TYPE].map(|key| shown.metadata.label(key).map(str::to_owned))
    };
    let known = |name: &str| Some(name.to_owned());
    assert_eq!(labels_of(Operator::In, &["a"], &["small"]), [known("a"), known("small")]);
    assert_eq!(labels_of(Operator::In, &["a", "b"], &["small", "large"]), [None, None]);
    assert_eq!(labels_of(Operator::NotIn, &["a"], &["small"]), [None, known("small")]);
}

/// A pod that excludes one of these values would be put on a machine that may get it, and a DaemonSet that selects all of them forgotten.
#[test]
fn a_claim_without_a_machine_lists_the_values_that_its_types_leave_open() {
    let of_type = |name: &str, arch: &str, zones: &[&str]| {
        let place = [Requirement::is_in(labels::ARCH, [arch]), Requirement::is_in(labels::ZONE, zones.iter().copied())];
        InstanceType { name: name.into(), requirements: place.to_vec(), capacity: cpu(4), ..InstanceType::default() }
    };
    // Other pools may have the same types in other zones.
    let of_default = vec![of_type("small", "amd64", &["a", "b"]), of_type("large", "arm64", &["b", "c"])];
    let of_other = vec![of_type("small", "amd64", &["z"]), of_type("unknown", "amd64", &["z"])];
    let catalog: BTreeMap<String, Arc<InstanceTypes>> =
        [("default", of_default), ("other", of_other)].map(|(pool, types)| (pool.to_owned(), Arc::new(types.into()))).into();
    let node_pools = ["default", "other"].map(|name| NodePool { metadata: ObjectMeta::named(name), ..NodePool::default() });
    let objects = ClusterObjects { node_pools: node_pools.to_vec(), ..ClusterObjects::default() };
    let listed = |requirements: Vec<Requirement>, names: &[&str], events: &[Event]| {
        let instance_types = names.iter().map(|name| (*name).to_owned()).collect();
        let claim = Claim { spec: ClaimSpec { requirements, instance_types, ..planned().spec }, ..planned() };
        let claim = events.iter().fold(claim, |claim, event| step(&claim, event, now()).unwrap());
        let snapshot = Snapshot::of(now(), objects.clone(), stored([claim]), Vec::new(), catalog.clone());
        let shown = &snapshot.objects.node_claims[0];
        let of_key = |key: &str| shown.spec.requirements.iter().find(|listed| listed.key == key).map(|listed| listed.values.join(" "));
        [labels::ARCH, labels::ZONE].map(|key| of_key(key).unwrap_or_default())
    };
    let zone =
        |operator: Operator, zones: &[&str]| vec![Requirement { operator, ..Requirement::is_in(labels::ZONE, zones.iter().copied()) }];
    assert_eq!(listed(Vec::new(), &["small", "large"], &[]), ["amd64 arm64", "a b c"]);
    assert_eq!(listed(zone(Operator::In, &["b"]), &["small", "large"], &[]), ["amd64 arm64", "b"]);
    assert_eq!(listed(zone(Operator::NotIn, &["a"]), &["small"], &[]), ["amd64", "b"]);
    assert_eq!(listed(zone(Operator::In, &["a", "b"]), &["small", "unknown"], &[]), ["", "a b"], "nobody knows what that has");
    assert_eq!(listed(vec![Requirement::is_in(labels::ARCH, ["arm64"])], &[], &[]), ["arm64", "b c"], "it may be any type that it allows");
    let launched = [Event::LaunchBegun { client_token: "t".into() }, Event::FleetAnswered(machine("i-1"))];
    assert_eq!(listed(Vec::new(), &["small", "large"], &launched), ["", ""], "its machine has all labels that it will get");
}

#[test]
fn a_claim_of_a_static_pool_has_the_capacity_of_its_smallest_type() {
    let room = |sizes: &[&str]| {
        let requirements = vec![Requirement::is_in("size", sizes.iter().copied())];
        let spec = ClaimSpec { requirements, ..ClaimSpec::default() };
        let claim = Claim { spec, ..planned() };
        let sized = |name: &str, units| {
            let requirements = vec![Requirement::is_in("size", [name])];
            InstanceType { name: name.into(), requirements, capacity: cpu(units), ..InstanceType::default() }
        };
        let (small, middle, large) = (sized("small", 4), sized("middle", 8), sized("large", 64));
        let types = BTreeMap::from([("small", &small), ("middle", &middle), ("large", &large)]);
        let objects = ClusterObjects { pods: vec![pod("a")].into(), ..ClusterObjects::default() };
        let decided = decision_view(&objects, &stored([claim]), &BTreeSet::new(), &types);
        assert_eq!(decided.pods.len(), 1, "the claim was planned for no pod");
        decided.node_claims[0].status.allocatable.get("cpu")
    };
    assert_eq!(room(&["middle", "large"]), Quantity::from_units(8));
    assert_eq!(room(&["large"]), Quantity::from_units(64));
    assert_eq!(room(&["huge"]), Quantity::ZERO, "no known type matches");
}

#[test]
fn a_pod_that_was_bound_elsewhere_leaves_its_place_to_another() {
    let mut bound = pod("a");
    bound.spec.node_name = "other".into();
    // kube-scheduler gave it the machine that was planned for c, which was there first: c needs no third machine.
    check(&planned(), &[bound, pod("b"), pod("c")], &["a", "c"], Some(2));
}

#[test]
fn a_pod_on_a_node_that_goes_keeps_its_place() {
    let (old, _) = replaced(&[]);
    let old = step(&old, &Event::DeletionRequested(Deletion::without_deadline(DeletionReason::Requested, now(), "")), now());
    let mut leaving = pod("a");
    leaving.spec.node_name = "node-old".into();
    let objects = ClusterObjects { pods: vec![leaving, pod("b")].into(), ..ClusterObjects::default() };
    let decided = decided(&objects, &[old.unwrap(), planned()]);
    assert_eq!(unplanned(&decided), (Vec::new(), Some(Quantity::from_units(1))));
}

#[test]
fn a_pod_that_was_killed_leaves_its_place_to_its_successor() {
    let (old, _) = replaced(&[]);
    let old = step(&old, &Event::DeletionRequested(Deletion::without_deadline(DeletionReason::Unhealthy, now(), "")), now()).unwrap();
    let mut killed = pod("a");
    killed.spec.node_name = "node-old".into();
    killed.metadata.deletion_timestamp = Some(now());
    let seen = |killed: &Pod| {
        let objects = ClusterObjects { pods: vec![killed.clone(), pod("b"), pod("a-again")].into(), ..ClusterObjects::default() };
        let decided = decided(&objects, &[old.clone(), planned()]);
        let (others, free) = unplanned(&decided);
        (others.into_iter().map(str::to_owned).collect::<Vec<_>>(), free)
    };
    assert_eq!(seen(&killed), (vec!["a".to_owned(), "a-again".to_owned()], Some(Quantity::from_units(2))));
    // That of a StatefulSet has a successor only once it is gone.
    let owner = OwnerReference { api_version: "apps/v1".into(), kind: "StatefulSet".into(), ..OwnerReference::default() };
    killed.metadata.owner_references = vec![owner].into();
    assert_eq!(seen(&killed), (vec!["a-again".to_owned()], Some(Quantity::from_units(1))));
}

#[test]
fn the_deadline_of_a_drain_is_that_of_its_machine() {
    let (claim, objects) = serving();
    let forced_at = |deadline: Option<Timestamp>| {
        let deletion = Deletion { deadline, ..Deletion::without_deadline(DeletionReason::SpotInterruption, now(), "") };
        let ending = step(&claim, &Event::DeletionRequested(deletion), now()).unwrap();
        let state = ClusterState::of(&decided(&objects, &[ending]));
        let machine = state.nodes.iter().find(|node| node.node.is_some()).unwrap();
        assert!(machine.marked_for_deletion);
        machine.forced_at()
    };
    assert_eq!((forced_at(Some(at(120))), forced_at(None)), (Some(at(120)), None));
}

#[test]
fn a_failed_or_deleted_claim_has_no_capacity() {
    let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: String::new() };
    check(&step(&planned(), &failed, now()).unwrap(), &[pod("a")], &["a"], None);
    let begun = step(&planned(), &Event::LaunchBegun { client_token: "t".into() }, now()).unwrap();
    let deletion = Deletion::without_deadline(DeletionReason::Requested, now(), "");
    let ending = step(&begun, &Event::DeletionRequested(deletion), now()).unwrap();
    check(&ending, &[pod("a")], &["a"], None);
}

fn large(id: &str) -> Machine {
    Machine { instance_type: "large".into(), capacity_type: "on-demand".into(), ..machine(id) }
}

/// A machine that is marked for disruption, and its replacement.
fn replaced(events: &[Event]) -> (Claim, Claim) {
    let key = ClaimKey { cluster: "c".into(), name: "old".into() };
    let old = Claim::planned(key, "uid-old".into(), ClaimSpec::default(), now());
    let begun = [Event::LaunchBegun { client_token: "t".into() }, Event::FleetAnswered(large("i-1"))];
    let joined = [&begun[..], &[Event::NodeJoined { node_name: "node-old".into() }, Event::NodeReady]].concat();
    let mut old = joined.iter().fold(old, |claim, event| step(&claim, event, now()).unwrap());
    conditions::set(&mut old.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Underutilized", "", now());
    let new = Claim { spec: ClaimSpec { replaces: Some("c1".into()), ..planned().spec }, ..planned() };
    let new = events.iter().fold(new, |claim, event| step(&claim, event, now()).unwrap());
    (old, new)
}

#[track_caller]
fn check_being_replaced(events: &[Event], expected: &[&str]) {
    let (old, new) = replaced(events);
    let claims = stored([old, new]);
    let found: Vec<String> = being_replaced(&claims).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_machine_counts_as_being_replaced_until_its_replacement_is_ready_or_lost() {
    let launched = [Event::LaunchBegun { client_token: "t".into() }, Event::FleetAnswered(large("i-2"))];
    let ready = [&launched[..], &[Event::NodeJoined { node_name: "node-new".into() }, Event::NodeReady]].concat();
    let lost = Deletion::without_deadline(DeletionReason::LaunchTimeout, now(), "");
    check_being_replaced(&[], &["old"]);
    check_being_replaced(&launched, &["old"]);
    check_being_replaced(&ready, &[]);
    check_being_replaced(&[Event::DeletionRequested(lost)], &[]);
}

/// As it does while a pod on it is protected: no machine is launched for pods that may stay.
#[test]
fn a_machine_whose_replacement_is_ready_is_not_being_replaced_because_another_is() {
    let launched = [Event::LaunchBegun { client_token: "t".into() }, Event::FleetAnswered(large("i-2"))];
    let ready = [&launched[..], &[Event::NodeJoined { node_name: "node-new".into() }, Event::NodeReady]].concat();
    let found = |begun: Timestamp| -> Vec<String> {
        let ((waits, of_it), (mut other, mut starting)) = (replaced(&ready), replaced(&[]));
        other.key.name = "other".into();
        conditions::clear(&mut other.conditions, conditions::DISRUPTION_REASON);
        conditions::set(&mut other.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Drifted", "", begun);
        starting.key.name = "default-2".into();
        starting.created_at = begun;
        being_replaced(&stored([waits, of_it, other, starting])).iter().map(ToString::to_string).collect()
    };
    assert_eq!(found(at(1)), ["other"]);
    assert_eq!(found(now()), ["old", "other"], "of one pass: nothing tells whose replacement it is");
}

/// Its command has ended, and the mark could not be taken away yet; or it was begun later, is held and may be rolled back.
#[test]
fn a_machine_that_was_marked_at_another_time_than_a_replacement_was_made_is_not_being_replaced() {
    for (marked, is_replaced) in [(-30, false), (0, true), (30, false)] {
        let (mut old, new) = replaced(&[]);
        conditions::clear(&mut old.conditions, conditions::DISRUPTION_REASON);
        conditions::set(&mut old.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Drifted", "", at(marked));
        let found = being_replaced(&stored([old, new]));
        assert_eq!(found.iter().any(|name| name.as_str() == "old"), is_replaced, "{marked}");
        assert!(found.iter().all(|name| name.as_str() == "old"), "{marked}");
    }
}

#[test]
fn a_machine_is_promised_to_its_pods_from_launch_to_initialization() {
    let events = [
        Event::LaunchBegun { client_token: "t".into() },
        Event::FleetAnswered(large("i-1")),
        Event::NodeJoined { node_name: "node".into() },
        Event::NodeReady,
    ];
    let ends = Event::DeletionRequested(Deletion::without_deadline(DeletionReason::LaunchTimeout, now(), ""));
    let after = |events: &[&Event]| events.iter().fold(planned(), |claim, event| step(&claim, event, now()).unwrap());
    let promised = |events: &[&Event]| promises(&stored([after(events)])).into_values().collect::<Vec<String>>();
    let [begun, launched, joined, ready] = &events;
    let kept = vec!["default-1".to_owned(); 2];
    assert_eq!((promised(&[]), promised(&[begun])), (vec![], vec![]), "before the launch its pods are omitted");
    assert_eq!((promised(&[begun, launched]), promised(&[begun, launched, joined])), (kept.clone(), kept));
    assert_eq!(promised(&[begun, launched, joined, ready]), Vec::<String>::new(), "a pod that is still pending does not fit there");
    assert_eq!(promised(&[begun, launched, &ends]), Vec::<String>::new());
    // Pods that were planned twice belong to the younger claim.
    let first = after(&[begun, launched]);
    let mut second = Claim { created_at: now() + SignedDuration::from_secs(1), ..first.clone() };
    second.key.name = "default-0".into();
    let both = promises(&stored([first, second]));
    assert_eq!(both.into_values().collect::<Vec<String>>(), ["default-0", "default-0"]);
}

#[test]
fn pods_of_a_machine_that_is_being_replaced_are_not_planned_again() {
    let (old, new) = replaced(&[]);
    let mut bound = pod("a");
    bound.spec.node_name = "node-old".into();
    let objects = ClusterObjects { pods: vec![bound, pod("c")].into(), ..ClusterObjects::default() };
    let claims = stored([old, new]);
    let decided = decision_view(&objects, &claims, &being_replaced(&claims), &BTreeMap::new());
    assert_eq!(unplanned(&decided).0, ["c"]);
}

/// The claim of a running machine with one pod, and the cluster's objects.
fn serving() -> (Claim, ClusterObjects) {
    let (old, _) = replaced(&[]);
    let mut bound = pod("a");
    bound.spec.node_name = "node-old".into();
    let mut node = Node { metadata: ObjectMeta::named("node-old"), ..Node::default() };
    node.spec.provider_id = "aws:///z/i-1".into();
    node.metadata.labels = [labels::REGISTERED, labels::INITIALIZED].map(|key| (key.to_owned(), "true".to_owned())).into();
    let objects =
        ClusterObjects { pods: vec![bound].into(), nodes: vec![node], node_claims: vec![mirror(&old)], ..ClusterObjects::default() };
    (old, objects)
}

/// A kubelet may take them off. Its machine would seem to be empty, and the pods of others would be planned onto it.
#[test]
fn a_machine_that_has_initialized_keeps_its_node_and_its_pods_without_the_labels() {
    let (claim, mut objects) = serving();
    objects.nodes[0].metadata.labels = [(labels::NODE_POOL.to_owned(), "default".to_owned())].into();
    let state = ClusterState::of(&decided(&objects, &[claim]));
    assert_eq!((state.nodes.len(), state.nodes[0].node.is_some(), state.nodes[0].pods.len()), (1, true, 1));
}

/// Checks whether the machine of [`serving`] counts as deleting. If it does, its pod counts on the machine that was planned for it, and no
/// longer on this one.
#[track_caller]
fn check_deleting(claim: &Claim, objects: &ClusterObjects, expected: bool) {
    let decided = decided(objects, &[claim.clone(), planned()]);
    let state = ClusterState::of(&decided);
    let machine = state.nodes.iter().find(|node| node.node.is_some()).unwrap();
    let is_pod_moved = unplanned(&decided).0.is_empty();
    assert_eq!((machine.marked_for_deletion, machine.pods.is_empty(), is_pod_moved), (expected, expected, expected));
}

#[test]
fn a_machine_deleted_by_a_user_counts_as_deleting_before_a_sweep_records_it() {
    let (claim, objects) = serving();
    check_deleting(&claim, &objects, false);
    let mut by_claim = objects.clone();
    by_claim.node_claims[0].metadata.deletion_timestamp = Some(now());
    check_deleting(&claim, &by_claim, true);
    let mut by_node = objects.clone();
    by_node.nodes[0].metadata.deletion_timestamp = Some(now());
    check_deleting(&claim, &by_node, true);
    let mut of_another = objects;
    of_another.node_claims[0].metadata.name = "another".into();
    of_another.node_claims[0].metadata.deletion_timestamp = Some(now());
    check_deleting(&claim, &of_another, false);
}

#[test]
fn planned_pods_of_a_deleted_node_without_a_claim_are_not_planned_again() {
    let (_, mut objects) = serving();
    objects.nodes[0].metadata.deletion_timestamp = Some(now());
    assert!(unplanned(&decided(&objects, &[planned()])).0.is_empty());
    objects.nodes[0].metadata.deletion_timestamp = None;
    assert_eq!(unplanned(&decided(&objects, &[planned()])).0.len(), 1, "it is bound there");
}

/// As where a policy lets nobody delete Nodes. A static pool would count it as one of its machines.
#[test]
fn the_node_of_an_ended_machine_counts_as_deleting_unless_it_is_ready() {
    let (serving, objects) = serving();
    let deletion = Event::DeletionRequested(Deletion::without_deadline(DeletionReason::Requested, now(), ""));
    let ends = [deletion, Event::TerminationSent, Event::MachineGone];
    let ended = ends.iter().fold(serving.clone(), |claim, event| step(&claim, event, now()).unwrap());
    let mut handed_over = ended.clone();
    handed_over.annotations.insert(labels::HANDED_OVER.into(), "true".into());
    let is_going = |claim: &Claim, ready: ConditionStatus| {
        let mut read = ClusterObjects { node_claims: Vec::new(), ..objects.clone() };
        conditions::set(&mut read.nodes[0].status.conditions, conditions::READY, ready, "", "", now());
        let claims = stored([claim.clone()]);
        let snapshot = Snapshot::of(now(), read, claims, Vec::new(), BTreeMap::new());
        let [machine] = snapshot.nodes.as_slice() else { panic!("one machine: {:?}", snapshot.nodes) };
        machine.marked_for_deletion
    };
    assert!(is_going(&ended, ConditionStatus::Unknown) && is_going(&ended, ConditionStatus::False));
    assert!(!is_going(&ended, ConditionStatus::True), "its kubelet speaks");
    assert!(!is_going(&serving, ConditionStatus::Unknown), "its machine is there");
    assert!(!is_going(&handed_over, ConditionStatus::Unknown), "its machine is another controller's");
    let left = step(&serving, &Event::LetGo, now()).unwrap();
    assert!(!is_going(&left, ConditionStatus::Unknown), "an uninstallation left its machine to the user");
}

#[test]
fn an_unlaunched_claim_deleted_by_a_user_has_no_capacity() {
    let claim = planned();
    let mut object = mirror(&claim);
    object.metadata.deletion_timestamp = Some(now());
    let objects = ClusterObjects { pods: vec![pod("a")].into(), node_claims: vec![object], ..ClusterObjects::default() };
    let decided = decided(&objects, &[claim]);
    assert_eq!((decided.pods.len(), decided.node_claims.len()), (1, 0), "its pods are planned again");
}

/// Both may be there for a moment in a list that is brought up to date.
#[test]
fn a_standalone_claim_is_deleted_with_the_object_of_its_uid_and_not_with_another_of_its_name() {
    let mut claim = planned();
    claim.spec.standalone_uid = Some("own".into());
    let deleted = |uid: &str| {
        let mut object = mirror(&claim);
        object.metadata.uid = uid.into();
        object.metadata.deletion_timestamp = Some(now());
        object
    };
    let shown = |node_claims| decided(&ClusterObjects { node_claims, ..ClusterObjects::default() }, std::slice::from_ref(&claim));
    assert_eq!(shown(vec![deleted("another")]).node_claims.len(), 1);
    assert_eq!(shown(vec![deleted("another"), deleted("own")]).node_claims.len(), 0);
}

#[test]
fn volumes_and_their_claims_are_not_copied_for_a_decision() {
    let (volumes, volume_claims) = (vec![PersistentVolume::default()].into(), vec![PersistentVolumeClaim::default()].into());
    let read = ClusterObjects { volumes, volume_claims, ..ClusterObjects::default() };
    let snapshot = Snapshot::of(now(), read, Vec::new(), Vec::new(), BTreeMap::new());
    assert!(std::ptr::eq(snapshot.read.volumes.as_slice(), snapshot.objects.volumes.as_slice()));
    assert!(std::ptr::eq(snapshot.read.volume_claims.as_slice(), snapshot.objects.volume_claims.as_slice()));
}

/// What decisions see of these, if no claim is being replaced and no instance type is known.
fn decided(objects: &ClusterObjects, claims: &[Claim]) -> ClusterObjects {
    decision_view(objects, &stored(claims.to_vec()), &BTreeSet::new(), &BTreeMap::new())
}

fn unreadable_pod(node: &str) -> Unreadable {
    let value = serde_json::json!({
        "metadata": {"name": "odd", "namespace": "shop", "uid": "odd"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}], "tolerations": 7},
        "status": {"phase": "Running"},
    });
    *Unreadable::read::<Pod>(&value).unwrap_err()
}

#[test]
fn an_unreadable_pod_uses_resources_of_its_node_and_gets_no_machine() {
    let seen = |node: &str| decided(&ClusterObjects { unreadable: vec![unreadable_pod(node)], ..ClusterObjects::default() }, &[]);
    let bound = seen("n");
    assert_eq!(whittle_model::pods::total_requests(&bound.pods).get("cpu"), Quantity::from_units(2));
    assert!(seen("").pods.is_empty(), "its requests are not known");
}

#[test]
fn an_unreadable_budget_forbids_every_eviction_in_its_namespace() {
    let meta = ObjectMeta::namespaced("shop", "web");
    let unreadable = Unreadable::refused("policy/v1", "PodDisruptionBudget", meta, "spec", "a newer version wrote it");
    let seen = decided(&ClusterObjects { unreadable: vec![unreadable], ..ClusterObjects::default() }, &[]);
    let [budget] = seen.disruption_budgets.as_slice() else { panic!("there is one placeholder") };
    assert_eq!((budget.metadata.key(), budget.status.disruptions_allowed), ("shop/web".to_owned(), 0));
    assert!(budget.spec.selector.as_ref().is_some_and(|selector| selector.matches(&BTreeMap::new())));
}

/// A pod that kube-scheduler has chosen a node for and not bound yet.
fn chosen(uid: &str, node: &str) -> Pod {
    let mut pod = pod(uid);
    pod.status.nominated_node_name = node.into();
    pod
}

#[test]
fn a_pod_that_kube_scheduler_has_a_node_for_counts_there() {
    let (claim, objects) = serving();
    let node_of = |pod: &Pod, claims: &[Claim]| {
        let objects = ClusterObjects { pods: vec![pod.clone()].into(), ..objects.clone() };
        decided(&objects, claims).pods[0].spec.node_name.clone()
    };
    let waiting = chosen("a", "node-old");
    let serves = std::slice::from_ref(&claim);
    assert_eq!(node_of(&waiting, serves), "node-old");
    assert_eq!(node_of(&waiting, &[claim.clone(), planned()]), "node-old", "the machine that was planned for it is another's");
    assert_eq!(node_of(&chosen("a", "gone"), serves), "", "there is no such node");
    let mut deleted = waiting.clone();
    deleted.metadata.deletion_timestamp = Some(now());
    assert_eq!(node_of(&deleted, serves), "", "it is never bound");
    let deletion = Deletion::without_deadline(DeletionReason::Requested, now(), "");
    let ending = step(&claim, &Event::DeletionRequested(deletion), now()).unwrap();
    assert_eq!(node_of(&waiting, &[ending]), "", "the node goes");
}

#[test]
fn a_decision_from_objects_alone_counts_such_a_pod_there_too() {
    let (_, objects) = serving();
    let node_of = |pod: Pod, objects: &ClusterObjects| {
        let read = ClusterObjects { pods: vec![pod].into(), ..objects.clone() };
        with_chosen_nodes(&read).map(|objects| objects.pods[0].spec.node_name.clone())
    };
    assert_eq!(node_of(chosen("a", "node-old"), &objects).as_deref(), Some("node-old"));
    assert_eq!(node_of(chosen("a", "gone"), &objects).as_deref(), Some(""), "there is no such node");
    assert_eq!(node_of(chosen("a", "gone"), &ClusterObjects::default()), None, "files may be without Nodes");
    assert_eq!(node_of(pod("a"), &objects), None);
    let mut going = objects.clone();
    going.nodes[0].metadata.deletion_timestamp = Some(now());
    assert_eq!(node_of(chosen("a", "node-old"), &going).as_deref(), Some(""), "the node goes");
}

/// Kube-scheduler leaves the name on a pod with `preemptionPolicy: Never` when it starts anew: it would be planned for never again.
#[test]
fn a_pod_whose_chosen_node_is_gone_is_planned_for() {
    let (claim, objects) = serving();
    let waits = |node: &str| {
        let mut pod = chosen("a", node);
        pod.spec.preemption_policy = "Never".into();
        let unschedulable = serde_json::json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
        pod.status.conditions = vec![serde_json::from_value(unschedulable).unwrap()];
        pod
    };
    let is_planned_for = |node: &str, unreadable: Vec<Unreadable>| {
        let read = ClusterObjects { pods: vec![waits(node)].into(), unreadable, ..objects.clone() };
        let seen = decided(&read, std::slice::from_ref(&claim));
        let without_claims = with_chosen_nodes(&read).unwrap_or(read);
        let planned_for = whittle_model::pods::is_provisionable(&seen.pods[0]);
        assert_eq!(whittle_model::pods::is_provisionable(&without_claims.pods[0]), planned_for);
        planned_for
    };
    assert!(is_planned_for("gone", Vec::new()));
    assert!(!is_planned_for("node-old", Vec::new()), "it counts there");
    let odd = Unreadable::refused("v1", "Node", ObjectMeta::named("odd"), "spec", "a newer version wrote it");
    assert!(!is_planned_for("odd", vec![odd]), "what cannot be read exists");
}

#[test]
fn a_node_that_kube_scheduler_is_about_to_bind_a_pod_to_is_nominated() {
    let (claim, objects) = serving();
    let nominated_until = |pod: Pod| {
        let read = ClusterObjects { pods: vec![pod].into(), ..objects.clone() };
        let claims = stored([claim.clone()]);
        let seen = Snapshot::of(now(), read, claims, Vec::new(), BTreeMap::new()).expecting(BTreeMap::new());
        seen.nodes.iter().find(|state| state.node.is_some()).unwrap().nominated_until
    };
    assert_eq!(nominated_until(chosen("a", "node-old")), Some(now() + NOMINATION));
    assert_eq!(nominated_until(chosen("a", "another")), None);
    assert_eq!(nominated_until(pod("a")), None);
}
