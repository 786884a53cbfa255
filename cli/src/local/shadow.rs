//! Shadow mode through the whole system: commands are decided and recorded, but not executed.

use super::prompt::Prompt;
use super::session::{Place, Session};
use jiff::SignedDuration;
use whittle_api::labels;
use whittle_claims::DecisionKind;
use whittle_ports::Mode;
use whittle_sim::World;
use whittle_sim::cluster::PodCounts;

const POOL: &str = include_str!("demo/pool.yaml");
const INFLATE: &str = include_str!("demo/inflate.yaml");

/// A session with pods running on our machines.
fn busy(pool: &str) -> Session {
    let mut session = Session::new(&Place::default());
    session.apply_text("pool.yaml", pool).unwrap();
    session.apply_text("inflate.yaml", INFLATE).unwrap();
    session.scale("inflate", 2).unwrap();
    session.advance(SignedDuration::from_mins(3));
    assert_eq!(session.simulation.world().cluster.pod_counts(|_| true).running, 2);
    session
}

/// What a command that is executed changes.
#[derive(Debug, PartialEq, Eq)]
struct DisruptionCounts {
    machines_launched: usize,
    machines_running: usize,
    nodes_tainted: usize,
    claims_ending: usize,
}

fn disruption_counts(world: &World) -> DisruptionCounts {
    DisruptionCounts {
        machines_launched: world.region.started(),
        machines_running: world.region.machines.values().filter(|machine| machine.instance.is_alive()).count(),
        nodes_tainted: world.cluster.objects.nodes.values().filter(|node| node.has_disrupted_taint()).count(),
        claims_ending: world.store.claims(&world.name()).filter(|stored| stored.value.is_ending()).count(),
    }
}

#[track_caller]
fn check_undisrupted(mut session: Session) {
    let before = disruption_counts(&session.simulation.world());
    assert!(before.machines_running > 0);
    session.scale("inflate", 0).unwrap();
    session.advance(SignedDuration::from_mins(5));
    let world = session.simulation.world();
    assert_eq!(disruption_counts(&world), before, "nothing is launched, tainted or terminated");
    let recorded = world.store.decisions(&world.name()).iter().any(|decision| decision.message.starts_with("would (shadow mode) "));
    assert!(recorded, "the command is recorded");
    let found = world.store.decisions(&world.name()).iter().filter(|decision| decision.subject.starts_with("command/")).count();
    assert!((1..=3).contains(&found), "an unchanged command is recorded once: {found}");
    let sums = crate::savings::of_decisions(world.store.decisions(&world.name()), world.now());
    assert!(sums.starts_with("No disruption command was executed"), "{sums}");
    let (_, shadow_sums) = sums.split_once("In shadow mode ").expect("the savings in shadow mode are summed");
    assert!(shadow_sums.contains("NodePool default: $0."), "{shadow_sums}");
}

/// What was decided to launch.
fn planned(world: &World) -> Vec<String> {
    let decisions = world.store.decisions(&world.name()).iter();
    decisions.filter(|decision| decision.kind == DecisionKind::Planned).map(|decision| decision.message.clone()).collect()
}

#[test]
fn a_machine_that_shadow_mode_would_launch_is_told_once_and_explained_to_its_pods() {
    let mut prompt = Prompt::new(&Place::default());
    prompt.answer("mode shadow").unwrap();
    prompt.session.apply_text("pool.yaml", POOL).unwrap();
    prompt.session.apply_text("inflate.yaml", INFLATE).unwrap();
    prompt.session.scale("inflate", 3).unwrap();
    prompt.session.advance(SignedDuration::from_mins(10));
    let told = planned(&prompt.session.simulation.world());
    assert!(told.iter().all(|text| text.starts_with("would launch a machine (shadow mode) for ")), "{told:?}");
    assert_eq!(told.len(), 1, "it is planned each minute: {told:?}");
    let explained = prompt.answer("explain inflate").unwrap();
    assert!(explained.contains("would launch a machine (shadow mode) for 3 pods from nodepool default"), "{explained}");
    prompt.session.scale("inflate", 4).unwrap();
    prompt.session.advance(SignedDuration::from_mins(10));
    assert_eq!(planned(&prompt.session.simulation.world()).len(), 2, "another pod makes it another machine");
    assert_eq!(prompt.session.simulation.world().region.started(), 0, "nothing was launched");
    for kind in ["nodepools", "ec2nodeclasses"] {
        let shown = prompt.answer(&format!("get {kind}")).unwrap();
        assert!(shown.contains("True (shadow)"), "{shown}");
    }
}

/// A pool keeps the status from before shadow mode: no tick writes one.
#[test]
fn shadow_mode_writes_no_status_and_goes_by_none_of_before() {
    let mut prompt = Prompt::new(&Place::default());
    let elsewhere = POOL.replace("kind: EC2NodeClass, name: default", "kind: EC2NodeClass, name: later");
    prompt.session.apply_text("pool.yaml", &elsewhere).unwrap();
    prompt.session.advance(SignedDuration::from_secs(150));
    let status = |prompt: &Prompt| {
        let pools = prompt.session.simulation.world().cluster.objects.node_pools.clone();
        pools.into_values().map(|pool| pool.status).collect::<Vec<_>>()
    };
    let before = status(&prompt);
    assert!(
        before[0].conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status != whittle_api::ConditionStatus::True)
    );
    prompt.answer("mode shadow").unwrap();
    prompt.session.apply_text("pool.yaml", POOL).unwrap();
    prompt.session.apply_text("inflate.yaml", INFLATE).unwrap();
    prompt.session.scale("inflate", 3).unwrap();
    prompt.session.advance(SignedDuration::from_mins(3));
    assert_eq!(status(&prompt), before, "nothing is written");
    let told = planned(&prompt.session.simulation.world());
    assert!(told.first().is_some_and(|text| text.contains("(shadow mode) for 3 pods")), "{told:?}");
    assert_eq!(disruption_counts(&prompt.session.simulation.world()).machines_running, 0);
}

#[test]
fn what_shadow_mode_would_have_launched_is_launched_once_it_ends() {
    let mut prompt = Prompt::new(&Place::default());
    prompt.answer("mode shadow").unwrap();
    prompt.session.apply_text("pool.yaml", POOL).unwrap();
    prompt.session.apply_text("inflate.yaml", INFLATE).unwrap();
    prompt.session.scale("inflate", 3).unwrap();
    prompt.session.advance(SignedDuration::from_mins(2));
    prompt.answer("mode active").unwrap();
    prompt.session.advance(SignedDuration::from_mins(5));
    let told = planned(&prompt.session.simulation.world());
    assert!(told.last().is_some_and(|text| text.starts_with("for 3 pods")), "{told:?}");
    assert_eq!(disruption_counts(&prompt.session.simulation.world()).machines_running, 1);
    let shown = prompt.answer("get nodepools").unwrap();
    assert!(shown.contains("True") && !shown.contains("(shadow)"), "{shown}");
}

#[test]
fn commands_for_a_cluster_in_shadow_mode_are_recorded_and_not_executed() {
    let session = busy(POOL);
    session.set_mode(Mode::Shadow);
    check_undisrupted(session);
}

/// A command that waits when shadow mode begins is not executed.
#[test]
fn shadow_mode_stops_a_waiting_command() {
    let mut session = busy(POOL);
    let before = disruption_counts(&session.simulation.world());
    session.scale("inflate", 0).unwrap();
    let limit = session.now() + SignedDuration::from_mins(5);
    let found = |world: &World| world.store.decisions(&world.name()).iter().any(|one| one.subject.starts_with("command/"));
    assert!(session.simulation.run_while_not(limit, found));
    session.set_mode(Mode::Shadow);
    session.advance(SignedDuration::from_mins(3));
    assert_eq!(disruption_counts(&session.simulation.world()), before);
}

#[test]
fn the_end_of_shadow_mode_is_told_as_that_and_not_as_one_of_its_findings() {
    let mut session = busy(POOL);
    session.set_mode(Mode::Shadow);
    session.scale("inflate", 0).unwrap();
    session.advance(SignedDuration::from_mins(5));
    let told = |session: &Session, text: &str| {
        let world = session.simulation.world();
        world.store.decisions(&world.name()).iter().any(|one| one.subject == "shadow" && one.message.starts_with(text))
    };
    assert!(told(&session, "would (shadow mode) "));
    session.set_mode(Mode::Active);
    session.advance(SignedDuration::from_mins(5));
    assert!(told(&session, "shadow mode was switched off"));
    assert!(!told(&session, "would (shadow mode) do nothing now"));
}

/// A session in which a command is executed: its node is tainted and its replacement launched.
fn replacing() -> Session {
    let sizes = "{key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"2\", \"16\"]}";
    let pool =
        POOL.replace("spot", "on-demand").replace("{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"2\"]}", sizes);
    let mut session = Session::new(&Place::default());
    session.apply_text("pool.yaml", &pool.replace("[c, m, r]", "[m]")).unwrap();
    session.apply_text("inflate.yaml", INFLATE).unwrap();
    session.scale("inflate", 10).unwrap();
    session.advance(SignedDuration::from_mins(3));
    session.scale("inflate", 1).unwrap();
    let limit = session.now() + SignedDuration::from_mins(10);
    let replaces = |world: &World| {
        let new = world.store.claims(&world.name()).any(|stored| stored.value.spec.replaces.is_some() && stored.value.machine().is_some());
        new && disruption_counts(world).nodes_tainted > 0
    };
    assert!(session.simulation.run_while_not(limit, replaces), "a replacement is launched");
    session
}

/// Nothing is tainted or terminated, and the pod keeps running on its node.
#[track_caller]
fn check_rolled_back(session: &mut Session) {
    session.advance(SignedDuration::from_mins(3));
    let world = session.simulation.world();
    let counts = disruption_counts(&world);
    assert_eq!((counts.nodes_tainted, counts.claims_ending), (0, 0), "no taint is left, and nothing is deleted");
    let shown = |stored: &whittle_claims::Stored<whittle_claims::Claim>| {
        whittle_api::conditions::find(&stored.value.conditions, whittle_api::conditions::DISRUPTION_REASON).is_some()
    };
    assert!(!world.store.claims(&world.name()).any(shown), "no claim has a disruption reason");
    let recorded = world.store.decisions(&world.name()).iter().any(|one| one.message == "Kept after all: shadow mode was switched on");
    assert!(recorded);
    assert_eq!(world.cluster.pod_counts(|_| true), PodCounts::all_running(1));
}

#[test]
fn shadow_mode_of_the_cluster_rolls_back_a_running_command() {
    let mut session = replacing();
    session.set_mode(Mode::Shadow);
    check_rolled_back(&mut session);
    session.set_mode(Mode::Active);
    session.advance(SignedDuration::from_mins(10));
    let world = session.simulation.world();
    let counts = disruption_counts(&world);
    assert_eq!((counts.machines_running, counts.nodes_tainted), (1, 0), "the command is executed after shadow mode ends");
}

#[test]
fn shadow_mode_of_a_pool_rolls_back_a_running_command() {
    let mut session = replacing();
    let pools: Vec<String> = session.simulation.world().cluster.objects.node_pools.keys().cloned().collect();
    {
        let mut world = session.simulation.world();
        for pool in &pools {
            let pool = world.cluster.objects.node_pools.get_mut(pool).expect("it was listed");
            pool.metadata.annotations.insert(labels::SHADOW.to_owned(), "true".to_owned());
        }
    }
    check_rolled_back(&mut session);
}

#[test]
fn commands_for_a_pool_in_shadow_mode_are_recorded_and_not_executed() {
    let shadow = format!("metadata:\n  annotations: {{{}: \"true\"}}\n", labels::SHADOW);
    check_undisrupted(busy(&POOL.replacen("metadata:\n", &shadow, 1)));
}
