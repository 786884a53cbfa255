mod answers;
mod awaited;
mod blocked;
mod counts;
mod endings;
mod evictions;
mod forced;
mod guarded;
mod noticed;
mod over_sim;
mod refused;
mod same_name;
mod shifted;
mod unnamed;

pub(crate) use over_sim::{planned, serving};

use crate::drain::{Deadline, Drain, Told, attached, held_by_budget, in_turn, kept_by_owners, older_than_deadline, plan};
use whittle_api::k8s::{
    ClaimSource, PersistentVolumeClaim, Pod, PodCondition, Toleration, Volume, VolumeAttachment, VolumeAttachmentSource,
    VolumeAttachmentSpec,
};
use whittle_api::{ClusterObjects, ObjectMeta, OwnerReference, Unreadable, labels};
use whittle_claims::{ClaimSpec, DeletionReason};
use whittle_testkit::at;

pub(crate) const NODE: &str = "node-1";

pub(crate) fn pod(name: &str) -> Pod {
    let metadata = ObjectMeta { uid: format!("uid-{name}"), ..ObjectMeta::namespaced("default", name) };
    let mut pod = Pod { metadata, ..Pod::default() };
    pod.spec.node_name = NODE.into();
    pod.spec.termination_grace_period_seconds = Some(30);
    pod.status.phase = "Running".into();
    pod
}

fn with(mut pod: Pod, change: impl FnOnce(&mut Pod)) -> Pod {
    change(&mut pod);
    pod
}

pub(crate) fn owned_by(pod: Pod, kind: &str, api_version: &str) -> Pod {
    with(pod, |pod| {
        pod.metadata.owner_references = vec![OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "owner".into(),
            controller: Some(true),
            ..OwnerReference::default()
        }]
        .into();
    })
}

pub(crate) fn tolerating(pod: Pod, key: &str, operator: &str) -> Pod {
    let toleration = Toleration { key: key.into(), operator: operator.into(), ..Toleration::default() };
    with(pod, |pod| pod.spec.tolerations = vec![toleration].into())
}

fn critical(pod: Pod) -> Pod {
    with(pod, |pod| pod.spec.priority_class_name = "system-cluster-critical".into())
}

fn protected(pod: Pod, key: &str, value: &str) -> Pod {
    with(pod, |pod| {
        pod.metadata.annotations.insert(key.into(), value.into());
        pod.status.start_time = Some(at(0));
    })
}

pub(crate) fn terminating(pod: Pod, seconds: i64) -> Pod {
    with(pod, |pod| pod.metadata.deletion_timestamp = Some(at(seconds)))
}

fn names(keys: &[whittle_claims::PodKey]) -> Vec<&str> {
    keys.iter().map(|key| key.name.as_str()).collect()
}

/// Plans the drain of these pods at second 100.
#[track_caller]
fn check(pods: &[Pod], waiting: usize, evict: &[&str]) -> Drain {
    let drain = plan(pods, NODE, None, at(100));
    assert_eq!(drain.waiting, waiting);
    assert_eq!(names(&drain.evict), evict);
    assert!(drain.force.is_empty(), "nothing is forced without a deadline");
    drain
}

#[test]
fn groups_are_evicted_in_order() {
    let daemon = |name| owned_by(pod(name), "DaemonSet", "apps/v1");
    let all = [critical(daemon("d")), critical(pod("c")), daemon("b"), pod("a"), pod("a2")];
    check(&all, 5, &["a", "a2"]);
    check(&all[..3], 3, &["b"]);
    check(&all[..2], 2, &["c"]);
    check(&all[..1], 1, &["d"]);
}

#[test]
fn pods_that_are_critical_for_the_node_or_the_cluster_are_evicted_after_the_others() {
    for class in ["system-node-critical", "system-cluster-critical"] {
        let critical = with(pod("a"), |pod| pod.spec.priority_class_name = class.into());
        check(&[critical.clone(), pod("b")], 2, &["b"]);
        check(&[critical], 1, &["a"]);
    }
    check(&[with(pod("a"), |pod| pod.spec.priority_class_name = "critical".into()), pod("b")], 2, &["a", "b"]);
}

#[test]
fn a_terminating_pod_blocks_later_groups_and_is_not_evicted_again() {
    check(&[terminating(pod("a"), 90), critical(pod("c"))], 2, &[]);
}

#[test]
fn pods_that_belong_to_the_node_are_not_drained() {
    check(&[tolerating(pod("a"), labels::DISRUPTED_TAINT, "Exists")], 0, &[]);
    check(&[tolerating(pod("a"), labels::DISRUPTED_TAINT, "Equal")], 0, &[]);
    check(&[tolerating(pod("a"), "", "Exists")], 0, &[]);
    check(&[owned_by(pod("a"), "Node", "v1")], 0, &[]);
    check(&[with(pod("a"), |pod| pod.status.phase = "Succeeded".into())], 0, &[]);
    check(&[with(pod("a"), |pod| pod.spec.node_name = "other".into())], 0, &[]);
}

#[test]
fn pods_that_only_tolerate_unschedulable_are_drained() {
    check(&[tolerating(pod("a"), "node.kubernetes.io/unschedulable", "Exists")], 1, &["a"]);
    check(&[pod("a")], 1, &["a"]);
}

#[test]
fn a_protected_pod_is_waited_for_and_never_evicted() {
    check(&[protected(pod("a"), labels::DO_NOT_DISRUPT, "true")], 1, &[]);
    check(&[protected(pod("a"), labels::DO_NOT_EVICT, "true")], 1, &[]);
    check(&[protected(pod("a"), labels::DO_NOT_DISRUPT, "200s")], 1, &[]);
    check(&[protected(pod("a"), labels::DO_NOT_DISRUPT, "60s")], 1, &["a"]);
    check(&[protected(pod("a"), labels::DO_NOT_DISRUPT, "true"), pod("b")], 2, &["b"]);
}

#[test]
fn pods_that_their_owners_keep_are_named_and_no_others() {
    let kept = |pods: &[Pod]| kept_by_owners(&plan(pods, NODE, None, at(100)).protected);
    let quiet = |name: &str| protected(pod(name), labels::DO_NOT_DISRUPT, "true");
    assert_eq!(kept(&[pod("a"), terminating(quiet("b"), 120), protected(pod("c"), labels::DO_NOT_DISRUPT, "60s")]), None);
    let until_removed = "pods with the annotation karpenter.sh/do-not-disrupt are not evicted until it is removed: ";
    let both = [critical(quiet("c")), pod("a"), quiet("b"), protected(pod("d"), labels::DO_NOT_EVICT, "true")];
    assert_eq!(kept(&both), Some(format!("{until_removed}default/b, default/c")));
    let text = kept(&[protected(pod("d"), labels::DO_NOT_EVICT, "true")]).unwrap();
    assert!(text.contains("karpenter.sh/do-not-evict") && text.ends_with(": default/d"), "{text}");
    let many: Vec<Pod> = (0..7).map(|number| quiet(&format!("p-{number}"))).collect();
    assert!(kept(&many).unwrap().ends_with("default/p-4 and 2 other(s)"));
    // A pod that is deleted for the deadline leaves.
    let forced = plan(&[quiet("a")], NODE, Some(Deadline { at: at(110), is_notice: false }), at(100));
    assert_eq!((forced.force.len(), forced.protected.len()), (1, 0));
}

#[test]
fn a_pod_that_is_not_ready_and_kept_by_a_budget_is_told_first_with_what_helps() {
    let with_ready = |name: &str, status: &str| {
        let ready = PodCondition { type_: "Ready".into(), status: status.into(), ..PodCondition::default() };
        with(pod(name), |pod| pod.status.conditions.push(ready))
    };
    let pods = [with_ready("a", "True"), with_ready("b", "False"), pod("c")];
    let held = |name: &str, message: &str| {
        let key = whittle_claims::PodKey { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}") };
        held_by_budget(&pods, &key, message)
    };
    let (order, text) = held("b", "needs 3 and has 2");
    assert!(order == Told::First && text.starts_with("evicting pod default/b violates a PDB (needs 3 and has 2); "), "{text}");
    assert!(text.contains("unhealthyPodEvictionPolicy: AlwaysAllow"), "{text}");
    for name in ["a", "c"] {
        let plain = format!("evicting pod default/{name} violates a PDB (needs 3 and has 2)");
        assert_eq!(held(name, "needs 3 and has 2"), (Told::Later, plain), "it is ready, or not known not to be");
    }
    let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(held("b", two), (Told::Later, format!("evicting pod default/b violates a PDB ({two})")), "no policy helps");
    let mut all = [held("a", "x"), held("b", "x"), held("c", "x")];
    all.sort();
    assert!(all[0].1.contains("default/b") && all[1].1.contains("default/a"), "{all:?}");
}

#[test]
fn a_stuck_pod_is_not_waited_for() {
    check(&[terminating(pod("a"), 40)], 1, &[]);
    check(&[terminating(pod("a"), 39)], 0, &[]);
}

/// The pods forced at `now` under a user's deadline at 300 s, with their seconds.
#[track_caller]
fn check_forced(pods: &[Pod], now: i64, expected: &[(&str, i64)]) -> Drain {
    check_forced_by(Deadline { at: at(300), is_notice: false }, pods, now, expected)
}

#[track_caller]
fn check_forced_by(deadline: Deadline, pods: &[Pod], now: i64, expected: &[(&str, i64)]) -> Drain {
    let drain = plan(pods, NODE, Some(deadline), at(now));
    let forced: Vec<(&str, i64)> = drain.force.iter().map(|(key, grace)| (key.name.as_str(), *grace)).collect();
    assert_eq!(forced, expected, "at {now}");
    drain
}

pub(crate) fn grace(pod: Pod, seconds: i64) -> Pod {
    with(pod, |pod| pod.spec.termination_grace_period_seconds = Some(seconds))
}

#[test]
fn a_pod_is_deleted_in_time_for_its_whole_grace_period() {
    let quiet = [grace(protected(pod("a"), labels::DO_NOT_DISRUPT, "true"), 60)];
    let early = check_forced(&quiet, 90, &[]);
    assert_eq!(early.next_force_at, Some(at(240)));
    assert!(early.evict.is_empty());
    check_forced(&quiet, 240, &[]);
    check_forced(&quiet, 241, &[("a", 59)]);
    check_forced(&[grace(pod("a"), 300)], 1, &[("a", 299)]);
}

/// The API server accepts any number of seconds: 2^63 - 1 keep no machine past its deadline.
#[test]
fn no_grace_period_is_too_long_for_a_deadline() {
    // No time that can be written is so long before the deadline, but for the last.
    for seconds in [i64::MAX, 400_000_000_000, 300_000_000_000] {
        let quiet = [grace(protected(pod("a"), labels::DO_NOT_DISRUPT, "true"), seconds)];
        check_forced(&quiet, 10, &[("a", 290)]);
        check_forced(&quiet, 400, &[("a", 1)]);
        // A notice has no regard to it, and without a deadline nothing is forced.
        check_forced_by(Deadline { at: at(120), is_notice: true }, &quiet, 90, &[]);
        check_forced_by(Deadline { at: at(120), is_notice: true }, &quiet, 91, &[("a", 29)]);
        let endless = plan(&quiet, NODE, None, at(1_000));
        assert_eq!((endless.waiting, endless.force.len(), endless.evict.len()), (1, 0, 0));
    }
}

#[test]
fn a_notice_forces_pods_in_its_last_half_minute_alone() {
    let notice = Deadline { at: at(120), is_notice: true };
    for seconds in [30, 90, 119, 120, 300, 3600] {
        let pods = [grace(pod("a"), seconds), grace(protected(pod("b"), labels::DO_NOT_DISRUPT, "true"), seconds)];
        for now in [0, 31, 90] {
            let drain = check_forced_by(notice, &pods, now, &[]);
            assert_eq!((names(&drain.evict), drain.next_force_at), (vec!["a"], Some(at(90))), "with {seconds} at {now}");
        }
        check_forced_by(notice, &pods, 91, &[("a", 29), ("b", 29)]);
    }
    check_forced_by(notice, &[grace(pod("a"), 5)], 115, &[]);
    check_forced_by(notice, &[grace(pod("a"), 5)], 116, &[("a", 4)]);
}

#[test]
fn the_deadline_of_a_user_is_no_notice_even_if_a_notice_came() {
    let with_grace = |period: Option<&str>, reason| {
        let spec = ClaimSpec { termination_grace_period: period.map(|text| text.parse().unwrap()), ..ClaimSpec::default() };
        let mut claim = whittle_testkit::planned("n", spec);
        claim.deletion = Some(claim.deletion_for(reason, "", at(0)));
        Deadline::of(&claim)
    };
    let notice = |seconds, is_notice| Some(Deadline { at: at(seconds), is_notice });
    assert_eq!(with_grace(None, DeletionReason::SpotInterruption), notice(120, true));
    assert_eq!(with_grace(Some("1h"), DeletionReason::SpotInterruption), notice(120, true));
    assert_eq!(with_grace(Some("60s"), DeletionReason::SpotInterruption), notice(60, false));
    assert_eq!(with_grace(Some("2m"), DeletionReason::Expired), notice(120, false));
    assert_eq!(with_grace(None, DeletionReason::Unhealthy), notice(0, false));
    assert_eq!(with_grace(None, DeletionReason::Expired), None);
}

#[test]
fn a_forced_deletion_ignores_the_order_of_groups() {
    let pods = [pod("blocked"), critical(grace(pod("big"), 600))];
    let drain = check_forced(&pods, 10, &[("big", 290)]);
    assert_eq!(names(&drain.evict), ["blocked"]);
}

#[test]
fn past_the_deadline_pods_get_one_second_never_zero() {
    check_forced(&[pod("a")], 400, &[("a", 1)]);
    check_forced(&[grace(pod("a"), 0)], 301, &[("a", 1)]);
}

/// Of a Node that cannot be closed: others come for as long as it is there. Whoever waited for them as well would end no machine, and
/// whoever waited for none would end it under pods that were there in time.
#[test]
fn past_the_deadline_the_pods_that_were_there_by_then_are_waited_for_and_no_later_ones() {
    let made = |name: &str, second: Option<i64>| with(pod(name), |pod| pod.metadata.creation_timestamp = second.map(at));
    let in_time = [made("a", Some(299)), made("b", Some(300)), made("c", None)];
    let not_its = [
        with(made("elsewhere", Some(1)), |pod| pod.spec.node_name = "other".into()),
        tolerating(made("stays", Some(1)), "", "Exists"),
        with(made("ended", Some(1)), |pod| pod.status.phase = "Succeeded".into()),
    ];
    let pods = [&in_time[..], &not_its[..], &[made("late", Some(301))]].concat();
    let waiting = |deadline: Option<Deadline>| older_than_deadline(&pods, NODE, deadline, at(310));
    assert_eq!(waiting(Some(Deadline { at: at(300), is_notice: false })), 3);
    assert_eq!(waiting(Some(Deadline { at: at(301), is_notice: false })), 4);
    assert_eq!(waiting(None), 4, "without a deadline none is late");
}

/// A pod that is leaving: how many seconds it was given, if that is known, and until when.
fn leaving(granted: Option<i64>, until: i64) -> Pod {
    with(terminating(grace(pod("a"), 6000), until), |pod| pod.metadata.deletion_grace_period_seconds = granted)
}

/// The API server counts a shorter grace period from the first deletion, which may be long ago: told sooner, it would end at once.
#[test]
fn a_pod_that_was_given_longer_than_the_deadline_is_deleted_again_once_it_has_passed_and_no_sooner() {
    for pod in [leaving(Some(6000), 6000), leaving(Some(6000), 301), leaving(Some(2), 301), leaving(None, 6000)] {
        for now in [0, 90, 300] {
            let drain = check_forced(std::slice::from_ref(&pod), now, &[]);
            assert_eq!((drain.waiting, drain.evict.len(), drain.next_force_at), (1, 0, Some(at(300))), "at {now}");
        }
        check_forced(std::slice::from_ref(&pod), 301, &[("a", 1)]);
        // Of EC2's deadlines as well, and by none without one.
        let notice = Deadline { at: at(120), is_notice: true };
        check_forced_by(notice, std::slice::from_ref(&pod), 120, &[]);
        check_forced_by(notice, std::slice::from_ref(&pod), 121, &[("a", 1)]);
        assert!(plan(&[pod], NODE, None, at(301)).force.is_empty());
    }
}

#[test]
fn a_pod_that_ends_by_the_deadline_or_has_its_last_second_is_never_deleted_again() {
    let in_time = [(Some(210), 300, 90), (Some(30), 120, 90), (Some(30), 300, 301), (Some(30), 300, 360)];
    let in_its_last_second = [(Some(1), 302, 301), (Some(1), 302, 362), (Some(0), 301, 301)];
    for (granted, until, now) in in_time.into_iter().chain(in_its_last_second) {
        let drain = check_forced(&[leaving(granted, until)], now, &[]);
        assert_eq!((drain.waiting, drain.next_force_at), (1, None), "until {until} at {now}");
    }
}

#[test]
fn a_pod_without_a_grace_period_is_only_evicted() {
    let drain = check_forced(&[with(pod("a"), |pod| pod.spec.termination_grace_period_seconds = None)], 299, &[]);
    assert_eq!(names(&drain.evict), ["a"]);
}

fn attachment(name: &str, volume: &str, node: &str) -> VolumeAttachment {
    VolumeAttachment {
        metadata: ObjectMeta::named(name),
        spec: VolumeAttachmentSpec {
            attacher: "ebs.csi.aws.com".into(),
            node_name: node.into(),
            source: VolumeAttachmentSource { persistent_volume_name: volume.into() },
        },
    }
}

fn using(pod: Pod, claim: &str) -> Pod {
    let source = ClaimSource { claim_name: claim.into() };
    let volume = Volume { name: "v".into(), persistent_volume_claim: Some(source), ..Volume::default() };
    with(pod, |pod| pod.spec.volumes = vec![volume])
}

#[test]
fn volumes_of_undrained_pods_and_inline_volumes_are_not_waited_for() {
    let mut volume_claim =
        PersistentVolumeClaim { metadata: ObjectMeta::namespaced("default", "data"), ..PersistentVolumeClaim::default() };
    volume_claim.spec.volume_name = "pv-1".into();
    let attachments =
        [attachment("a", "pv-1", NODE), attachment("b", "pv-2", NODE), attachment("c", "", NODE), attachment("d", "pv-3", "x")];
    let mut objects = ClusterObjects {
        pods: vec![using(pod("leaves"), "data")].into(),
        volume_claims: vec![volume_claim].into(),
        volume_attachments: attachments.into(),
        ..ClusterObjects::default()
    };
    assert_eq!(attached(&objects.pods, &objects, NODE, at(100)), ["a", "b"]);
    let staying = [tolerating(pod("stays"), "", "Exists"), owned_by(pod("static"), "Node", "v1"), terminating(pod("stuck"), 39)];
    for pod in staying {
        objects.pods = vec![using(pod, "data")].into();
        assert_eq!(attached(&objects.pods, &objects, NODE, at(100)), ["b"]);
    }
    // The kubelet reports the end of a pod before it unmounts its volumes.
    let ended = |phase: &str| with(pod("ended"), |pod| pod.status.phase = phase.into());
    for pod in [ended("Succeeded"), ended("Failed"), terminating(pod("leaves"), 90), terminating(ended("Succeeded"), 90)] {
        objects.pods = vec![using(pod, "data")].into();
        assert_eq!(attached(&objects.pods, &objects, NODE, at(100)), ["a", "b"]);
    }
    let stays = tolerating(ended("Succeeded"), labels::DISRUPTED_TAINT, "Exists");
    objects.pods = vec![using(stays, "data")].into();
    assert_eq!(attached(&objects.pods, &objects, NODE, at(100)), ["b"], "nor are those of a finished pod that is not drained");
}

/// How many runs at this interval it takes until each of some pods was among the first 50.
fn runs_until_all_were_first(pods: usize, interval: i64) -> usize {
    let keys = |pod: usize| whittle_claims::PodKey { namespace: "default".into(), name: format!("p-{pod:03}"), uid: String::new() };
    let all: Vec<whittle_claims::PodKey> = (0..pods).map(keys).collect();
    let mut had = std::collections::BTreeSet::new();
    let mut runs = 0;
    while had.len() < pods {
        let now = at(i64::try_from(runs).unwrap() * interval);
        let turn: Vec<&str> = in_turn(&all, now).map(|key| key.name.as_str()).collect();
        assert_eq!(turn.iter().collect::<std::collections::BTreeSet<_>>().len(), pods, "each once");
        had.extend(turn.into_iter().take(50).map(str::to_owned));
        runs += 1;
        assert!(runs < 1000, "{} of {pods} at {interval} s", had.len());
    }
    runs
}

#[test]
fn every_pod_is_among_the_first_in_some_run_whatever_the_interval() {
    assert_eq!((runs_until_all_were_first(0, 1), runs_until_all_were_first(50, 1)), (0, 1));
    for pods in [51, 61, 120, 250, 737] {
        for interval in [1, 2, 5] {
            let runs = runs_until_all_were_first(pods, interval);
            assert!(runs <= 4 * pods / 50 + 4, "{pods} pods at {interval} s: {runs} runs");
        }
        // Intervals that divide the number of pods, or follow its multiples, do no harm.
        for interval in [50, 60, 61, 89, 120] {
            runs_until_all_were_first(pods, interval);
        }
    }
}

#[test]
fn a_volume_attachment_that_cannot_be_read_is_waited_for() {
    let odd = |node: &str| Unreadable { kind: "VolumeAttachment".into(), node_name: node.into(), ..Unreadable::default() };
    let objects = |node| ClusterObjects { unreadable: vec![odd(node)], ..ClusterObjects::default() };
    assert_eq!(attached(&[], &objects(NODE), NODE, at(100)).len(), 1);
    assert!(attached(&[], &objects("another"), NODE, at(100)).is_empty());
}

#[test]
fn more_than_five_volumes_are_counted() {
    let names: Vec<String> = (1..=7).map(|number| format!("va-{number}")).collect();
    assert_eq!(crate::steps::awaiting(&names), "Awaiting deletion of VolumeAttachments va-1, va-2, va-3, va-4, va-5 and 2 other(s)");
    assert_eq!(crate::steps::awaiting(&names[..5]), "Awaiting deletion of VolumeAttachments va-1, va-2, va-3, va-4, va-5");
}
