//! Capacity buffers: what is asked of the API server for them, and whose status is written.

use super::over_sim::world;
use super::pod;
use crate::status_writes::{OF_BUFFERS, OF_NAMESPACES, first_of};
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::Mutex;
use whittle_api::k8s::{PodSourceKind, PodTemplate, StoredPodTemplate};
use whittle_api::karpenter::{BufferReference, CapacityBuffer};
use whittle_api::{ObjectMeta, conditions};
use whittle_claims::{Expectation, ExpectedPage, Revision};
use whittle_ports::{ClusterError, HandleError, RecordReader, Records, Report, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, TestWorld, at, key};
use whittle_units::{ClusterName, SignedDuration};

/// What an API server says instead of an answer.
type Failure = fn(PodSourceKind, &str) -> Option<ClusterError>;

/// An API server that answers so for what defines the pods of buffers, and what it was asked for.
struct Templates {
    failure: Failure,
    asked: Mutex<Vec<(PodSourceKind, String)>>,
}

impl Templates {
    fn failing(failure: Failure) -> Self {
        Self { failure, asked: Mutex::default() }
    }

    /// How often it was asked for an object of this kind, since this was looked at the last time.
    fn asked_for(&self, kind: PodSourceKind) -> usize {
        let mut asked = self.asked.lock().unwrap();
        let before = asked.len();
        asked.retain(|(other, _)| *other != kind);
        before - asked.len()
    }
}

impl Interceptor for &Templates {
    fn pod_source(&self, kind: PodSourceKind, _: &str, name: &str) -> Result<(), ClusterError> {
        self.asked.lock().unwrap().push((kind, name.to_owned()));
        (self.failure)(kind, name).map_or(Ok(()), Err)
    }
}

fn cluster() -> ClusterName {
    key("a").cluster
}

fn silence() -> ClusterError {
    ClusterError::Unavailable { cluster: cluster(), what: "a PodTemplate".into(), message: "no response within 20s".into() }
}

fn run(world: &TestWorld, templates: &Templates) -> Report {
    let ports = world.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: templates };
    block_on(crate::handle(server.adapters(), &Settings::default(), &cluster())).unwrap()
}

/// A template of pods of one CPU.
fn template(name: &str) -> StoredPodTemplate {
    let template = PodTemplate { spec: pod("any", 1).spec, ..PodTemplate::default() };
    StoredPodTemplate { metadata: ObjectMeta::namespaced("default", name), template }
}

/// A buffer of one pod of this object.
fn buffer(name: &str, kind: PodSourceKind, of: &str) -> CapacityBuffer {
    let mut buffer = CapacityBuffer { metadata: ObjectMeta::namespaced("default", name), ..CapacityBuffer::default() };
    let reference = BufferReference { name: of.into(), ..BufferReference::default() };
    if kind == PodSourceKind::PodTemplate {
        buffer.spec.pod_template_ref = Some(reference);
    } else {
        buffer.spec.scalable_ref = Some(BufferReference { kind: kind.as_str().into(), api_group: "apps".into(), ..reference });
    }
    buffer.spec.replicas = Some(1);
    buffer
}

/// Forty buffers, each of a template of its own.
fn forty_templates(world: &TestWorld) {
    for number in 0..40 {
        let name = format!("b{number:02}");
        world.create(template(&name));
        world.create(buffer(&name, PodSourceKind::PodTemplate, &name));
    }
}

/// The reason of a buffer's condition `ReadyForProvisioning`, if it has one.
fn ready(world: &TestWorld, name: &str) -> Option<String> {
    let buffer: CapacityBuffer = world.get(&format!("default/{name}")).unwrap();
    conditions::find(&buffer.status.conditions, conditions::READY_FOR_PROVISIONING).map(|condition| condition.reason.clone())
}

#[test]
fn a_template_that_many_buffers_name_is_asked_for_once() {
    let world = world();
    world.create(template("web"));
    for name in ["a", "b", "c"] {
        world.create(buffer(name, PodSourceKind::PodTemplate, "web"));
    }
    let templates = Templates::failing(|_, _| None);
    run(&world, &templates);
    assert_eq!(templates.asked_for(PodSourceKind::PodTemplate), 1);
    assert!(["a", "b", "c"].iter().all(|name| ready(&world, name).as_deref() == Some("Resolved")));
}

/// Each answer that does not come may take as long as a run.
#[test]
fn an_api_server_that_does_not_answer_is_asked_no_more_and_pods_are_planned() {
    let world = world();
    forty_templates(&world);
    world.create(pod("waits", 1));
    let silent = Templates::failing(|_, name| (name == "b03").then(silence));
    let report = run(&world, &silent);
    assert_eq!(silent.asked_for(PodSourceKind::PodTemplate), 16, "those that were asked for at once");
    assert_eq!(report.counted("buffers_unanswered"), 1);
    assert!(report.decisions.iter().any(|told| told.subject == "pod/default/waits"), "{:?}", report.decisions);
    let told = ["b02", "b03", "b04", "b20"].map(|name| ready(&world, name));
    assert_eq!(told, [Some("Resolved".to_owned()), None, Some("Resolved".to_owned()), None], "it says nothing about the others");
    let answering = Templates::failing(|_, _| None);
    assert_eq!(run(&world, &answering).counted("buffers_unanswered"), 0);
    assert_eq!((answering.asked_for(PodSourceKind::PodTemplate), ready(&world, "b20").as_deref()), (40, Some("Resolved")));
}

#[test]
fn a_template_that_does_not_exist_keeps_no_other_from_being_read() {
    let world = world();
    world.create(buffer("a", PodSourceKind::PodTemplate, "absent"));
    forty_templates(&world);
    let templates = Templates::failing(|_, _| None);
    assert_eq!(run(&world, &templates).counted("buffers_unanswered"), 0);
    assert_eq!(templates.asked_for(PodSourceKind::PodTemplate), 41);
    let told = ["a", "b39"].map(|name| ready(&world, name));
    assert_eq!(told, ["PodTemplateNotFound", "Resolved"].map(|reason| Some(reason.to_owned())));
}

/// Otherwise a node on which room is kept would be empty, and go, because of one request that was not answered.
#[test]
fn the_room_of_buffers_for_which_the_api_server_does_not_answer_is_not_given_up() {
    let world = world();
    forty_templates(&world);
    let kept = Expectation { nominated_until: None, buffer_pods: 2 };
    let page = ExpectedPage { page: 0, machines: [("serves".to_owned(), kept)].into() };
    block_on(world.ports().write(&cluster(), &page, Revision::ABSENT)).unwrap();
    let expected = || {
        let pages = block_on(world.ports().read_all::<ExpectedPage>(&cluster())).unwrap();
        ExpectedPage::joined(pages.into_iter().map(|page| page.value)).get("serves").cloned()
    };
    let silent = Templates::failing(|_, _| Some(silence()));
    run(&world, &silent);
    assert_eq!(expected(), Some(kept));
    // Whatever ends nodes decides nothing meanwhile.
    let ports = world.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: &silent };
    let of_nodes = block_on(whittle_snapshot::load(server.adapters(), &Settings::default(), &cluster()));
    assert!(matches!(&of_nodes, Err(HandleError::Cluster(error)) if *error == silence()), "{of_nodes:?}");
    assert_eq!(silent.asked_for(PodSourceKind::PodTemplate), 32, "sixteen in each run");
    run(&world, &Templates::failing(|_, _| None));
    assert_eq!(expected(), None, "its buffer has no pod there");
}

#[test]
fn an_api_server_that_refuses_templates_is_still_asked_for_workloads() {
    let world = world();
    forty_templates(&world);
    world.create(buffer("scaled", PodSourceKind::Deployment, "web"));
    let refusal = |kind: PodSourceKind, name: &str| {
        let refused = ClusterError::Invalid { what: format!("PodTemplate default/{name}"), message: format!("{name} is forbidden") };
        (kind == PodSourceKind::PodTemplate).then_some(refused)
    };
    let refusing = Templates::failing(refusal);
    let report = run(&world, &refusing);
    let asked = [PodSourceKind::PodTemplate, PodSourceKind::Deployment].map(|kind| refusing.asked_for(kind));
    assert_eq!((asked, report.counted("buffers_unanswered")), ([16, 1], 0));
    let told = ["b00", "b39", "scaled"].map(|name| ready(&world, name));
    assert_eq!(told, ["ResolutionFailed", "ResolutionFailed", "ScalableRefNotFound"].map(|reason| Some(reason.to_owned())));
    let message = |name: &str| {
        let buffer: CapacityBuffer = world.get(&format!("default/{name}")).unwrap();
        buffer.status.conditions[0].message.clone()
    };
    assert_eq!(message("b00"), "b00 is forbidden");
    assert!(message("b39").starts_with("the API server refuses to show a PodTemplate"), "{}", message("b39"));
    // A run that decides about nodes goes on as well.
    let ports = world.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: &refusing };
    let of_nodes = block_on(whittle_snapshot::load(server.adapters(), &Settings::default(), &cluster())).unwrap();
    assert!(of_nodes.buffers.list.len() == 41 && of_nodes.buffers.pods.is_empty());
}

/// Buffers without a template, by their keys: so many in each of these namespaces.
fn unresolved(world: &TestWorld, namespaces: &[(String, usize)]) -> Vec<String> {
    let create = |namespace: &str, number: usize| {
        let metadata = ObjectMeta::namespaced(namespace, format!("b{number:03}"));
        let key = metadata.key();
        world.create(CapacityBuffer { metadata, ..CapacityBuffer::default() });
        key
    };
    namespaces.iter().flat_map(|(namespace, count)| (0..*count).map(move |number| create(namespace, number))).collect()
}

fn is_told(world: &TestWorld, key: &str) -> bool {
    !world.get::<CapacityBuffer>(key).unwrap().status.conditions.is_empty()
}

/// Each status is a request, and a run with thousands of them would not end in its time.
#[test]
fn a_run_tells_some_of_many_buffers_and_of_every_namespace() {
    let world = world();
    let keys = unresolved(&world, &[("many".to_owned(), 250), ("one".to_owned(), 1)]);
    let templates = Templates::failing(|_, _| None);
    assert_eq!(run(&world, &templates).counted("buffers_told"), 200);
    assert!(is_told(&world, "one/b000"));
    assert_eq!(run(&world, &templates).counted("buffers_told"), 51, "the others");
    assert!(keys.iter().all(|key| is_told(&world, key)));
}

/// Whether all buffers in these namespaces are told within so many ticks, if each of them has to be told again in every run.
fn are_all_told_within(ticks: usize, namespaces: &[(String, usize)]) -> bool {
    let mut world = world();
    let keys = unresolved(&world, namespaces);
    let templates = Templates::failing(|_, _| None);
    let mut told: BTreeSet<&String> = BTreeSet::new();
    for _ in 0..ticks {
        assert_eq!(run(&world, &templates).counted("buffers_told"), 200, "as many as a run may");
        for key in keys.iter().filter(|key| is_told(&world, key)) {
            told.insert(key);
            world.change::<CapacityBuffer>(key, |buffer| buffer.status = CapacityBuffer::default().status);
        }
        world.run_for(SignedDuration::from_mins(1));
    }
    told.len() == keys.len()
}

#[test]
fn where_every_status_changes_in_every_run_each_buffer_has_its_turn() {
    assert!(are_all_told_within(15, &[("many".to_owned(), 500)]), "in one namespace");
    let namespaces: Vec<(String, usize)> = (0..450).map(|number| (format!("n{number:03}"), 1)).collect();
    assert!(are_all_told_within(15, &namespaces), "in more namespaces than there are statuses in a run");
}

/// Otherwise some buffers would only be the first of their namespace when others have their turn.
#[test]
fn each_buffer_of_a_namespace_is_the_first_when_its_namespace_is() {
    for interval in [1, 5, 55, 60, 300] {
        let times = (0..500).map(|run| at(run * interval));
        let turns: BTreeSet<(usize, usize)> = times.map(|now| (first_of(7, OF_NAMESPACES, now), first_of(7, OF_BUFFERS, now))).collect();
        assert_eq!(turns.len(), 49, "every {interval} s");
    }
    assert_eq!([0, 1].map(|count| first_of(count, OF_BUFFERS, at(1))), [0, 0]);
}
