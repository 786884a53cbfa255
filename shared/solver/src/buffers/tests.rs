use super::*;
use serde_json::{Value, json};
use whittle_api::k8s::PodTemplate;
use whittle_model::scheduling::{LeftOut, NewClaim, Placement};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn buffer(spec: Value) -> CapacityBuffer {
    serde_json::from_value(json!({"metadata": {"name": "spare", "namespace": "shop", "uid": "u"}, "spec": spec})).unwrap()
}

/// Pods of two CPUs and 1 GiB.
fn source(replicas: i32) -> PodSource {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "tmp"}],
        "nodeSelector": {"disk": "ssd"}}});
    PodSource { template: serde_json::from_value::<PodTemplate>(template).unwrap(), replicas, generation: Some(3) }
}

fn ready(buffer: &Buffer) -> (ConditionStatus, &str) {
    let condition = conditions::find(&buffer.object.status.conditions, conditions::READY_FOR_PROVISIONING).unwrap();
    (condition.status, &condition.reason)
}

#[track_caller]
fn check_replicas(spec: Value, of: i32, expected: i32) {
    let resolved = resolve(&buffer(spec.clone()), Ok(&source(of)), now());
    assert_eq!(resolved.object.status.replicas, Some(expected), "{spec}");
    assert_eq!(resolved.pods.len(), usize::try_from(expected).unwrap(), "{spec}");
    assert_eq!(ready(&resolved), (ConditionStatus::True, "Resolved"));
}

#[test]
fn the_larger_of_number_and_share_counts_up_to_the_limits() {
    let template = json!({"name": "web"});
    let scalable = json!({"kind": "Deployment", "name": "web", "apiGroup": "apps"});
    check_replicas(json!({"podTemplateRef": template, "replicas": 3}), 1, 3);
    check_replicas(json!({"scalableRef": scalable, "replicas": 3, "percentage": 50}), 10, 5);
    check_replicas(json!({"scalableRef": scalable, "replicas": 3, "percentage": 50, "limits": {"cpu": "9"}}), 10, 4);
    check_replicas(json!({"scalableRef": scalable, "percentage": 10}), 3, 1);
    check_replicas(json!({"scalableRef": scalable, "percentage": 0}), 3, 0);
    check_replicas(json!({"scalableRef": scalable, "percentage": 50}), 0, 0);
    check_replicas(json!({"podTemplateRef": template, "limits": {"cpu": "9", "memory": "3Gi"}}), 1, 3);
    check_replicas(json!({"podTemplateRef": template, "limits": {"nvidia.com/gpu": "9"}}), 1, 0);
    check_replicas(json!({"podTemplateRef": template, "replicas": 2, "limits": {"nvidia.com/gpu": "1"}}), 1, 2);
    check_replicas(json!({"podTemplateRef": template, "replicas": 2, "percentage": 900}), 50, 2);
    check_replicas(json!({"podTemplateRef": template, "replicas": 2, "limits": {"cpu": "1"}}), 1, 0);
}

#[test]
fn excessive_replicas_are_capped_with_a_message() {
    let resolved = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 2_000_000})), Ok(&source(1)), now());
    assert_eq!(resolved.pods.len(), 5000);
    let condition = conditions::find(&resolved.object.status.conditions, conditions::READY_FOR_PROVISIONING).unwrap();
    let shortfall = "5000 of its 2000000 pods are kept free: a buffer has no more than 5000; ask for fewer and larger pods, or for the \
                     others in another buffer";
    assert_eq!((condition.message.as_str(), condition.status), (shortfall, ConditionStatus::True));
    assert_eq!(resolved.object.status.replicas, Some(5000));
    // All that are kept fit, and it does not claim to be served.
    let all = (0..5000).collect::<Vec<_>>();
    assert_eq!(provisioning_of(&resolved, &all, &[], &[], &[]), reduced(shortfall));
    let (_, reason, message) = provisioning_of(&resolved, &all[1..], &[0], &[], &[]).unwrap();
    let both = format!("1/5000 virtual pods required new capacity, 0 failed; {shortfall}");
    assert_eq!((reason.as_str(), message), ("RequiresNewCapacity", both));
}

/// What the condition `ReadyForProvisioning` says of a buffer of so many pods with this spec.
fn told_of(replicas: i64, spec: Value) -> String {
    let template = serde_json::from_value::<PodTemplate>(json!({"spec": spec})).unwrap();
    let source = PodSource { template, replicas: 1, generation: None };
    let resolved = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": replicas})), Ok(&source), now());
    assert_eq!(ready(&resolved), (ConditionStatus::True, "Resolved"));
    let condition = conditions::find(&resolved.object.status.conditions, conditions::READY_FOR_PROVISIONING).unwrap();
    condition.message.clone()
}

/// Real pods of the same template ask for them: an API server takes their limits for requests.
#[test]
fn resources_that_a_template_has_as_limits_alone_are_named_in_the_status() {
    let of = |resources: Value| json!({"containers": [{"name": "c", "resources": resources}]});
    let limited = of(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1", "memory": "1Gi"}}));
    let wanted = "no room is kept for memory, nvidia.com/gpu, which the template of its pods has in resources.limits alone: write it into \
                  resources.requests as well";
    assert_eq!(told_of(2, limited.clone()), wanted);
    let both = told_of(6000, limited.clone());
    assert!(both.starts_with("5000 of its 6000 pods are kept free") && both.ends_with(&format!("; {wanted}")), "{both}");
    assert_eq!(told_of(0, limited), "", "it has no pods");
    assert_eq!(told_of(2, of(json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}))), "");
    let mut whole = of(json!({"limits": {"memory": "1Gi"}}));
    whole["resources"] = json!({"requests": {"memory": "1Gi"}});
    assert_eq!(told_of(2, whole), "", "the pod as a whole asks for it");
    let mut limited_whole = of(json!({"requests": {"cpu": "1"}}));
    limited_whole["resources"] = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
    let told = told_of(2, limited_whole);
    assert!(told.starts_with("no room is kept for memory, which"), "{told}: its requests of CPUs are those of its containers");
}

/// The message of `ReadyForProvisioning` of a buffer with this spec, which is ready and empty.
fn told_of_empty(spec: Value) -> String {
    let resolved = resolve(&buffer(spec), Ok(&source(1)), now());
    assert_eq!((ready(&resolved), resolved.pods.len()), ((ConditionStatus::True, "Resolved"), 0));
    let condition = conditions::find(&resolved.object.status.conditions, conditions::READY_FOR_PROVISIONING).unwrap();
    assert_eq!(condition.message, resolved.unlimited);
    condition.message.clone()
}

#[test]
fn a_buffer_whose_limits_alone_are_of_nothing_that_its_pods_request_says_so() {
    let template = json!({"name": "web"});
    let told = told_of_empty(json!({"podTemplateRef": template, "limits": {"nvidia.com/gpu": "9", "ephemeral-storage": "1Gi"}}));
    let expected = "it has no pods, for the template requests nothing of what spec.limits has (ephemeral-storage, nvidia.com/gpu): give \
                    spec.replicas, or a limit on a resource that the template has in resources.requests";
    assert_eq!(told, expected);
    // Of these it is known why.
    assert_eq!(told_of_empty(json!({"podTemplateRef": template, "replicas": 0, "limits": {"nvidia.com/gpu": "9"}})), "");
    assert_eq!(told_of_empty(json!({"podTemplateRef": template, "limits": {"nvidia.com/gpu": "9", "cpu": "1"}})), "");
    assert_eq!(told_of_empty(json!({"podTemplateRef": template})), "");
}

/// An API server refuses a status with a message of more than 32,768 characters, and nobody would be told anything.
#[test]
fn a_message_names_ten_resources_and_repeats_no_long_text() {
    let names = |prefix: &str| -> serde_json::Map<String, Value> { (0..25).map(|n| (format!("{prefix}{n:02}"), json!("1"))).collect() };
    let told = told_of_empty(json!({"podTemplateRef": {"name": "web"}, "limits": names("a.b/r")}));
    let ten = "a.b/r00, a.b/r01, a.b/r02, a.b/r03, a.b/r04, a.b/r05, a.b/r06, a.b/r07, a.b/r08, a.b/r09 and 15 more";
    assert!(told.contains(&format!("({ten})")), "{told}");
    let limited = told_of(2, json!({"containers": [{"name": "c", "resources": {"limits": names("a.b/r")}}]}));
    assert!(limited.starts_with(&format!("no room is kept for {ten}, which")), "{limited}");
    let long = "x".repeat(70_000);
    let told = told_of_empty(json!({"podTemplateRef": {"name": "web"}, "limits": names(&long)}));
    let of_name = Unresolved::missing(PodSourceKind::PodTemplate, &long).message;
    let unsupported = |kind: &str, group: &str| {
        let buffer = buffer(json!({"scalableRef": {"kind": kind, "name": "web", "apiGroup": group}, "replicas": 1}));
        source_of(&buffer).unwrap_err().message
    };
    for message in [told, of_name, unsupported(&long, "apps"), unsupported("Deployment", &long)] {
        assert!(message.len() < 4_000 && message.contains(&format!("{}...", "x".repeat(317))), "{message}");
    }
}

/// The condition Provisioning of a buffer with fewer pods than it asks for.
fn reduced(message: &str) -> Option<(ConditionStatus, String, String)> {
    Some((ConditionStatus::False, "ReplicasReduced".to_owned(), message.to_owned()))
}

/// A buffer of so many pods that is ready.
fn buffer_of(name: &str, replicas: i64) -> Buffer {
    let mut spare = buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": replicas}));
    spare.metadata.name = name.into();
    spare.metadata.uid = name.into();
    resolve(&spare, Ok(&source(1)), now())
}

#[test]
fn all_buffers_together_have_a_limit_that_they_share_and_name() {
    let mut buffers = [buffer_of("a", 5000), buffer_of("b", 4000), buffer_of("c", 6000), buffer_of("d", 3), buffer_of("e", 0)];
    limit_pods(&mut buffers, now());
    let kept = buffers.each_ref().map(|buffer| (buffer.pods.len(), buffer.object.status.replicas));
    assert_eq!(kept, [(3332, Some(3332)), (3332, Some(3332)), (3333, Some(3333)), (3, Some(3)), (0, Some(0))]);
    let why = "all buffers of a cluster together have no more than 10000, which namespaces share evenly, and buffers within one; ask for \
               fewer and larger pods";
    let short = |kept: usize, asked_for: usize| format!("{kept} of its {asked_for} pods are kept free: {why}");
    let expected = [short(3332, 5000), short(3332, 4000), short(3333, 6000), String::new(), String::new()];
    assert_eq!(buffers.each_ref().map(|buffer| buffer.shortfall.clone()), expected);
    let told = buffers.each_ref().map(|buffer| provisioning_of(buffer, &[], &[], &[], &[]));
    let empty = Some((ConditionStatus::False, "BufferEmpty".to_owned(), String::new()));
    let [first, second, third, ..] = expected.each_ref().map(|short| reduced(short));
    assert_eq!(told, [first, second, third, None, empty]);
    // The status is that of now: what was there before does not stay.
    let again = resolve(&buffers[2].object, Ok(&source(1)), now());
    assert_eq!((again.pods.len(), again.object.status.replicas, ready(&again)), (5000, Some(5000), (ConditionStatus::True, "Resolved")));
    let mut within = [resolve(&CapacityBuffer { spec: buffer_of("c", 2).object.spec, ..buffers[2].object.clone() }, Ok(&source(1)), now())];
    limit_pods(&mut within, now());
    let condition = conditions::find(&within[0].object.status.conditions, conditions::READY_FOR_PROVISIONING).unwrap();
    assert_eq!((within[0].shortfall.as_str(), condition.message.as_str()), ("", ""));
}

#[test]
fn no_namespace_takes_the_pods_of_another() {
    let kept = |wanted: &[(&str, i64)]| {
        let of = |(number, (namespace, replicas)): (usize, &(&str, i64))| {
            let mut buffer = buffer_of(&format!("b{number}"), *replicas);
            buffer.object.metadata.namespace = (*namespace).into();
            buffer
        };
        let mut buffers: Vec<Buffer> = wanted.iter().enumerate().map(of).collect();
        limit_pods(&mut buffers, now());
        let has_all = |buffer: &Buffer| usize::try_from(buffer.asked_for).unwrap() == buffer.pods.len();
        assert!(buffers.iter().all(|buffer| buffer.shortfall.is_empty() == has_all(buffer)));
        buffers.iter().map(|buffer| buffer.pods.len()).collect::<Vec<_>>()
    };
    assert_eq!(kept(&[("a", 5000), ("b", 5000)]), [5000, 5000], "within the limit nobody has less");
    assert_eq!(kept(&[("a", 5000), ("a", 5000), ("a", 5000), ("b", 4000)]), [2000, 2000, 2000, 4000]);
    assert_eq!(kept(&[("a", 5000), ("a", 5000), ("b", 10), ("c", 3000)]), [3495, 3495, 10, 3000]);
    assert_eq!(kept(&[]), [0; 0]);
}

/// Of thousands of buffers at 5,000 pods each, the pods alone would fill the memory of a function.
#[test]
fn all_buffers_at_once_have_what_each_has_after_the_limit() {
    let named = |(name, namespace, replicas): &(&str, &str, i64)| {
        let mut one = buffer_of(name, *replicas).object;
        one.status = buffer(json!({})).status;
        one.metadata.namespace = (*namespace).into();
        one
    };
    let sizes = [("a", "a", 7000), ("b", "a", 5000), ("c", "a", 2), ("d", "b", 4000), ("e", "c", 0)];
    let (buffers, source): (Vec<CapacityBuffer>, PodSource) = (sizes.iter().map(named).collect(), source(1));
    let missing = Unresolved::missing(PodSourceKind::PodTemplate, "web");
    let measured = MeasuredSource::of(&source);
    let mut asked: Vec<_> = buffers.iter().map(|buffer| (buffer, Ok(&measured))).collect();
    asked[4].1 = Err(missing);
    let at_once = resolve_all(&asked, now());
    let alone = |buffer: &CapacityBuffer, found: &Result<&MeasuredSource<'_>, Unresolved>| {
        resolve(buffer, found.as_ref().map(|measured| measured.source), now())
    };
    let mut one_by_one: Vec<Buffer> = asked.iter().map(|(buffer, found)| alone(buffer, found)).collect();
    limit_pods(&mut one_by_one, now());
    assert_eq!(at_once, one_by_one);
    assert_eq!(at_once.iter().map(|buffer| buffer.pods.len()).collect::<Vec<_>>(), [2999, 2999, 2, 4000, 0]);
    let mut again = at_once.clone();
    limit_pods(&mut again, now());
    assert_eq!(again, at_once, "they are within the limit");
}

#[test]
fn pods_of_a_long_template_count_as_many() {
    let template = json!({"spec": {"nodeSelector": {"disk": "x".repeat(40_960)}, "containers": [{"name": "c"}]}});
    let long = PodSource { template: serde_json::from_value(template).unwrap(), replicas: 1, generation: None };
    let wide = buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 5000}));
    let [kept]: [Buffer; 1] = resolve_all(&[(&wide, Ok(&MeasuredSource::of(&long)))], now()).try_into().unwrap();
    assert_eq!(kept.pods.len(), 909, "10,000 by 11");
    assert!(kept.shortfall.contains("no more than 10000 (a pod of this template counts as 11, for its affinity"), "{}", kept.shortfall);
    let template = json!({"spec": {"containers": [{"name": "c".repeat(40_960)}]}});
    let shared = PodSource { template: serde_json::from_value(template).unwrap(), replicas: 1, generation: None };
    let [kept]: [Buffer; 1] = resolve_all(&[(&wide, Ok(&MeasuredSource::of(&shared)))], now()).try_into().unwrap();
    assert_eq!((kept.pods.len(), kept.shortfall.as_str()), (5000, ""), "its pods share their containers");
}

#[test]
fn whoever_names_many_templates_leaves_the_others_theirs() {
    let names: Vec<String> = (0..2000).map(|number| format!("t{number:04}")).collect();
    let of = |namespace: &'static str, many: usize| {
        names.iter().take(many).map(move |name| (namespace, PodSourceKind::PodTemplate, name.as_str()))
    };
    let asked = limit_sources(of("a", 2000).chain(of("b", 1)).collect());
    assert_eq!((asked.len(), asked.last().unwrap().0, asked[998].2), (1000, "b", "t0998"));
    assert_eq!(limit_sources(of("a", 1000).collect()).len(), 1000);
    assert!(limit_sources(BTreeSet::new()).is_empty());
}

#[test]
fn pods_whose_names_are_taken_are_left_out_and_missed() {
    let mut spare = buffer_of("spare", 3);
    spare.omit(&["shop/capacity-buffer-spare-2".to_owned(), "shop/capacity-buffer-another-1".to_owned()].into(), now());
    let names: Vec<_> = spare.pods.iter().map(|pod| pod.metadata.name.as_str()).collect();
    assert_eq!(names, ["capacity-buffer-spare-1", "capacity-buffer-spare-3"]);
    let shortfall = "2 of its 3 pods are kept free: there are pods with the names of the others (capacity-buffer-*); delete those, or \
                     rename the buffer";
    assert_eq!(provisioning_of(&spare, &[0, 1], &[], &[], &[]), reduced(shortfall));
    let mut whole = buffer_of("spare", 3);
    whole.omit(&["shop/capacity-buffer-another-1".to_owned()].into(), now());
    assert_eq!(whole, buffer_of("spare", 3));
}

#[test]
fn virtual_pods_have_stable_names_and_no_volumes() {
    let resolved = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 2})), Ok(&source(1)), now());
    let names: Vec<_> = resolved.pods.iter().map(|pod| (pod.metadata.key(), pod.metadata.uid.as_str())).collect();
    assert_eq!(names, [("shop/capacity-buffer-spare-1".to_owned(), "u-1"), ("shop/capacity-buffer-spare-2".to_owned(), "u-2")]);
    let pod = &resolved.pods[0];
    assert!(is_virtual(pod));
    assert_eq!(pod.spec.volumes.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>(), ["tmp"]);
    assert_eq!(pod.spec.node_selector["disk"], "ssd");
    let status = &resolved.object.status;
    assert_eq!(status.pod_template_ref.as_ref().map(|template| template.name.as_str()), Some("web"));
    assert_eq!((status.pod_template_generation, status.provisioning_strategy.as_deref()), (Some(3), Some(DEFAULT_STRATEGY)));
}

#[track_caller]
fn check_unresolved(spec: Value, reason: &str) {
    let buffer = buffer(spec);
    let unresolved = match source_of(&buffer) {
        Ok((kind, name)) => Unresolved::missing(kind, name),
        Err(unresolved) => unresolved,
    };
    let resolved = resolve(&buffer, Err(&unresolved), now());
    assert_eq!(ready(&resolved), (ConditionStatus::False, reason));
    assert!(resolved.pods.is_empty());
    let updated = updated_statuses(&[resolved], &Plan::default(), &[], now());
    let condition = conditions::find(&updated[0].status.conditions, conditions::PROVISIONING).unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "NotReadyForProvisioning"));
}

#[test]
fn an_unresolved_buffer_has_a_reason_and_no_pods() {
    check_unresolved(json!({"podTemplateRef": {"name": "gone"}, "replicas": 1}), "PodTemplateNotFound");
    check_unresolved(json!({"scalableRef": {"kind": "StatefulSet", "name": "gone"}, "replicas": 1}), "ScalableRefNotFound");
    check_unresolved(json!({"scalableRef": {"kind": "Job", "name": "x"}, "replicas": 1}), "ResolutionFailed");
    check_unresolved(json!({"scalableRef": {"kind": "Deployment", "name": "x", "apiGroup": "batch"}, "replicas": 1}), "ResolutionFailed");
    check_unresolved(json!({"replicas": 1}), "ResolutionFailed");
}

/// A plan that placed these pods of the buffer on node `n` and on a new machine, and left these out.
fn plan_of(buffer: &Buffer, old: &[usize], new: &[usize], left_out: &[(usize, Reason)]) -> Plan {
    let pod = |n: &usize| PodRef::of(&buffer.pods[*n]);
    let pods = |list: &[usize]| list.iter().map(pod).collect::<Vec<_>>();
    let mut plan = Plan::default();
    plan.placements.push(Placement { node: "n".into(), initialized: true, pods: pods(old) });
    plan.placements.push(Placement {
        node: "other".into(),
        initialized: true,
        pods: vec![PodRef { namespace: "shop".into(), name: "capacity-buffer-spare-1".into(), uid: "real".into() }],
    });
    if !new.is_empty() {
        let template = whittle_model::scheduling::TypeNames::default();
        plan.claims.push(NewClaim { pods: pods(new), ..empty_claim(template) });
    }
    plan.left_out = left_out.iter().map(|(n, reason)| LeftOut { pod: pod(n), reason: reason.clone() }).collect();
    plan
}

/// The condition Provisioning after such a pass, with these pods on machines that are being launched.
fn provisioning_of(
    buffer: &Buffer,
    old: &[usize],
    new: &[usize],
    on_the_way: &[usize],
    left_out: &[(usize, Reason)],
) -> Option<(ConditionStatus, String, String)> {
    let plan = plan_of(buffer, old, new, left_out);
    let on_the_way: Vec<PodRef> = on_the_way.iter().map(|n| PodRef::of(&buffer.pods[*n])).collect();
    let updated = updated_statuses(std::slice::from_ref(buffer), &plan, &on_the_way, now());
    let condition = conditions::find(&updated[0].status.conditions, conditions::PROVISIONING)?;
    Some((condition.status, condition.reason.clone(), condition.message.clone()))
}

/// The condition after a pass that placed `old`, `new`, `on_the_way` and `failed` of the four pods.
#[track_caller]
fn check_condition(old: &[usize], new: &[usize], on_the_way: &[usize], failed: &[usize], expected: Option<(ConditionStatus, &str, &str)>) {
    let buffer = buffer_of("spare", 4);
    let failed: Vec<(usize, Reason)> = failed.iter().map(|n| (*n, Reason::NoNodePools)).collect();
    let told = provisioning_of(&buffer, old, new, on_the_way, &failed);
    assert_eq!(told, expected.map(|(status, reason, message)| (status, reason.to_owned(), message.to_owned())));
    let on = virtual_pods_by_machine(&plan_of(&buffer, old, new, &failed), &[buffer]);
    assert_eq!(on.get("n").copied().unwrap_or(0), u32::try_from(old.len()).unwrap());
    assert_eq!(on.get("other"), None, "a real pod of that name is no buffer pod");
}

fn empty_claim(instance_types: whittle_model::scheduling::TypeNames) -> NewClaim {
    NewClaim {
        node_pool: "default".into(),
        instance_types,
        requirements: Vec::new(),
        instance_type_min_values: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        node_class_ref: whittle_api::karpenter::NodeClassReference::default(),
        expire_after: whittle_api::NillableDuration::default(),
        termination_grace_period: None,
        requests: whittle_units::Resources::new(),
        pods: Vec::new(),
        cheapest_price: whittle_units::Price::ZERO,
        offerings: 0,
        why: whittle_model::scheduling::ClaimWhy::default(),
    }
}

#[test]
fn a_buffers_condition_tells_whether_it_fits() {
    use ConditionStatus::{False, True};
    let requires = |message| Some((False, "RequiresNewCapacity", message));
    check_condition(&[0, 1, 2, 3], &[], &[], &[], Some((True, "FitsExistingCapacity", "All 4 virtual pods fit on existing capacity")));
    check_condition(&[0, 1], &[2, 3], &[], &[], requires("2/4 virtual pods required new capacity, 0 failed"));
    check_condition(&[0, 1], &[], &[2, 3], &[], requires("2/4 virtual pods required new capacity, 0 failed"));
    check_condition(&[0, 1], &[], &[], &[2, 3], requires("0/4 virtual pods required new capacity, 2 failed"));
    check_condition(&[0], &[1], &[2], &[], requires("2/4 virtual pods required new capacity, 0 failed"));
    check_condition(&[], &[], &[], &[], None);
}

#[test]
fn a_buffer_that_is_served_in_part_does_not_claim_to_fit() {
    let buffer = buffer_of("spare", 4);
    let later = [(2, Reason::OutOfBudget), (3, Reason::OutOfBudget)];
    let message = "2/4 virtual pods fit on existing capacity, the others were not planned in this pass";
    let partly = Some((ConditionStatus::Unknown, "NotAllPlanned".to_owned(), message.to_owned()));
    assert_eq!(provisioning_of(&buffer, &[0, 1], &[], &[], &later), partly);
    // Not even if all did before.
    let plan = plan_of(&buffer, &[0, 1, 2, 3], &[], &[]);
    let fitting = Buffer { object: updated_statuses(std::slice::from_ref(&buffer), &plan, &[], now()).remove(0), ..buffer };
    assert_eq!(provisioning_of(&fitting, &[0, 1], &[], &[], &later), partly);
    let unplanned = [0, 1, 2, 3].map(|n| (n, Reason::OutOfBudget));
    let (status, ..) = provisioning_of(&fitting, &[], &[], &[], &unplanned).unwrap();
    assert_eq!(status, ConditionStatus::True, "a pass without any of its pods says nothing about it");
}

#[test]
fn an_empty_buffer_has_a_condition() {
    let empty = resolve(&buffer(json!({"podTemplateRef": {"name": "web"}, "replicas": 0})), Ok(&source(1)), now());
    let updated = updated_statuses(&[empty], &Plan::default(), &[], now());
    let condition = conditions::find(&updated[0].status.conditions, conditions::PROVISIONING).unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "BufferEmpty"));
}

/// The generations of the conditions of a buffer, by their types.
fn observed(object: &CapacityBuffer) -> Vec<(&str, Option<i64>)> {
    object.status.conditions.iter().map(|condition| (condition.type_.as_str(), condition.observed_generation)).collect()
}

#[test]
fn conditions_say_which_generation_of_the_buffer_they_are_about() {
    let mut first = buffer_of("spare", 4).object;
    first.metadata.generation = Some(1);
    ConditionValue::yes().set_on(&mut first.status.conditions, "LimitedByQuotas", now());
    let first = resolve(&first, Ok(&source(1)), now());
    let plan = plan_of(&first, &[0, 1, 2, 3], &[], &[]);
    let mut fits = updated_statuses(std::slice::from_ref(&first), &plan, &[], now()).remove(0);
    let (ready, provisioning) = (conditions::READY_FOR_PROVISIONING, conditions::PROVISIONING);
    assert_eq!(observed(&fits), [(ready, Some(1)), ("LimitedByQuotas", None), (provisioning, Some(1))], "others' conditions are theirs");
    // Its spec was changed, and the pass reached none of its pods.
    fits.metadata.generation = Some(2);
    let second = resolve(&fits, Ok(&source(1)), now());
    let unreached = updated_statuses(std::slice::from_ref(&second), &Plan::default(), &[], now()).remove(0);
    assert_eq!(observed(&unreached), [(ready, Some(2)), ("LimitedByQuotas", None), (provisioning, Some(1))]);
    let reached = updated_statuses(std::slice::from_ref(&second), &plan, &[], now()).remove(0);
    assert_eq!(observed(&reached), [(ready, Some(2)), ("LimitedByQuotas", None), (provisioning, Some(2))]);
}
