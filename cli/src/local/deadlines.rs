//! Runs close to their deadline: they finish what they start, and leave the rest to the next run.

use super::session::{Place, Session};
use futures::FutureExt as _;
use jiff::SignedDuration;
use whittle_ports::{Adapters, Report};
use whittle_sim::cluster::PodCounts;
use whittle_sim::{Function, SimPorts, World};

const POOL: &str = include_str!("demo/pool.yaml");
const INFLATE: &str = include_str!("demo/inflate.yaml");

/// Calls a function directly, with `left` until its deadline; every port call costs a tenth of a second.
fn run_with_time_left(session: &Session, function: Function, left: SignedDuration) -> (Report, SimPorts) {
    let ports = session.simulation.ports().with_time_left(SignedDuration::from_millis(100), left);
    let cluster = session.simulation.world().name();
    let settings = session.settings();
    let adapters = Adapters::all(&ports);
    let report = match function {
        Function::Schedule => whittle_schedule::handle(adapters, &settings, &cluster).now_or_never(),
        _ => whittle_consolidate::handle(adapters, &settings, &cluster).now_or_never(),
    };
    (report.expect("ports answer at once").unwrap(), ports)
}

/// Calls a function with ever more time, until it plans something: then it has time for one request that stores claims, and no more.
fn run_with_time_for_one_request(session: &Session, function: Function) -> (Report, SimPorts) {
    let tenths = |n: i32| SignedDuration::from_millis(100) * n;
    let runs = (40..400).map(|n| run_with_time_left(session, function, tenths(n)));
    runs.into_iter().find(|(report, _)| report.counted("planned") > 0).expect("forty seconds are enough")
}

fn live_claims(world: &World) -> usize {
    world.store.claims(&world.name()).filter(|stored| stored.value.is_live()).count()
}

/// The demo's pool, limited to machines of two cores.
fn pool_of_small_machines(more: &str) -> String {
    let sizes = "{key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"2\"]}";
    let pool =
        POOL.replace("spot", "on-demand").replace("{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"2\"]}", sizes);
    pool.replacen("spec:\n", &format!("spec:\n{more}"), 1)
}

#[test]
fn a_schedule_run_out_of_time_leaves_the_rest_to_the_next_run() {
    let mut session = Session::new(&Place::default());
    session.apply_text("pool.yaml", &pool_of_small_machines("")).unwrap();
    session.apply_text("inflate.yaml", INFLATE).unwrap();
    session.advance(SignedDuration::from_mins(2));
    session.scale("inflate", 120).unwrap();
    let limit = session.now() + SignedDuration::from_mins(1);
    assert!(session.simulation.run_while_not(limit, |world| world.cluster.pod_counts(|_| true).pending == 120), "all are pending");
    let (report, ports) = run_with_time_for_one_request(&session, Function::Schedule);
    let planned = report.counted("planned");
    assert!((1..120).contains(&planned) && report.counted("handed_over") == 1, "{report}");
    assert!(ports.is_in_time(), "it ended at {}", whittle_ports::Clock::now(&ports));
    let begun = live_claims(&session.simulation.world());
    assert_eq!(u64::try_from(begun).unwrap(), planned);
    session.advance(SignedDuration::from_mins(5));
    let world = session.simulation.world();
    assert!(live_claims(&world) > begun, "the next run created the others");
    assert_eq!(world.cluster.pod_counts(|_| true), PodCounts::all_running(120));
}

#[test]
fn a_static_pool_is_scaled_over_several_runs_if_one_is_too_short() {
    const FIXED: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fixed}
spec:
  replicas: 0
  template:
    spec:
      requirements: [{key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"2\"]}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
";
    let mut session = Session::new(&Place::default());
    session.apply_text("pool.yaml", &pool_of_small_machines("")).unwrap();
    session.apply_text("fixed.yaml", FIXED).unwrap();
    session.advance(SignedDuration::from_mins(2));
    session.apply_text("fixed.yaml", &FIXED.replace("replicas: 0", "replicas: 120")).unwrap();
    let (report, ports) = run_with_time_for_one_request(&session, Function::Consolidate);
    let planned = report.counted("planned");
    assert!((1..120).contains(&planned) && report.counted("handed_over") > 0, "{report}");
    assert!(ports.is_in_time(), "it ended at {}", whittle_ports::Clock::now(&ports));
    session.advance(SignedDuration::from_mins(6));
    assert_eq!(live_claims(&session.simulation.world()), 120);
    session.apply_text("fixed.yaml", &FIXED.replace("replicas: 0", "replicas: 5")).unwrap();
    let (report, _) = run_with_time_left(&session, Function::Consolidate, SignedDuration::from_secs(11));
    let ended = report.counted("scaled_down");
    assert!((1..115).contains(&ended) && report.counted("handed_over") > 0, "{report}");
    session.advance(SignedDuration::from_mins(6));
    assert_eq!(live_claims(&session.simulation.world()), 5, "exactly the surplus was terminated");
}

#[test]
fn a_consolidation_run_out_of_time_stores_its_decisions_and_continues_at_once() {
    let mut session = Session::new(&Place::default());
    session.apply_text("pool.yaml", &pool_of_small_machines("")).unwrap();
    session.apply_text("inflate.yaml", INFLATE).unwrap();
    session.scale("inflate", 20).unwrap();
    session.advance(SignedDuration::from_mins(3));
    session.scale("inflate", 0).unwrap();
    session.advance(SignedDuration::from_secs(1));
    let (report, ports) = run_with_time_left(&session, Function::Consolidate, SignedDuration::from_secs(9));
    assert!(report.counted("handed_over") > 0, "{report}");
    assert!(ports.is_in_time(), "it ended at {}", whittle_ports::Clock::now(&ports));
    session.advance(SignedDuration::from_mins(10));
    assert_eq!(live_claims(&session.simulation.world()), 0);
}
