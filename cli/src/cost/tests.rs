//! The command on small clusters, and that its constants are those of the template.

use super::*;
use crate::money::HOURS_A_MONTH;
use crate::schema::tests::assert_valid;

fn args(nodes: Option<u32>) -> CostArgs {
    CostArgs {
        nodes,
        pods: None,
        pools: None,
        launches_per_hour: None,
        clusters: 1,
        region: "us-east-1".to_owned(),
        all_metrics: false,
        all_alarms: false,
        measure: false,
        output: Output::Text,
    }
}

fn of(args: &CostArgs) -> Computed {
    computed(&sizes(args).unwrap(), false).unwrap().pop().unwrap()
}

fn total(computed: &Computed) -> f64 {
    sum(&computed.bill(Architecture::Arm), |line| line.list)
}

#[test]
fn an_idle_deployment_and_one_with_nodes_have_a_bill() {
    let idle = of(&args(Some(0)));
    let few = of(&CostArgs { launches_per_hour: Some(6), ..args(Some(3)) });
    assert_eq!(few.simulated.left, (3, 30), "the nodes of the last wave are gone");
    assert!(total(&idle) > 1.0 && total(&few) > total(&idle), "{} {}", total(&idle), total(&few));
    let runs = |hourly: &stretch::Hourly, function| hourly.functions.get(&function).map_or(0.0, |rates| rates.runs);
    for quiet in [&idle.simulated.quiet, &few.simulated.quiet] {
        assert!(runs(quiet, Function::Launch) <= 2.0, "nothing is launched for nothing, but every half hour on trial: {quiet:?}");
    }
    assert!(runs(&few.simulated.busy, Function::Launch) > 0.0 && runs(&few.simulated.busy, Function::Terminate) > 0.0);
    for function in Function::ALL {
        let ticks = idle.simulated.quiet.functions.get(&function).map_or(0.0, |rates| rates.ticks);
        assert_eq!(ticks >= 59.0, section(&name(function)).contains("ScheduleExpression: rate(1 minute)"), "{function}: {ticks}");
    }
    for function in [Function::Register, Function::Consolidate] {
        assert_eq!(runs(&idle.simulated.quiet, function), 0.0, "{function} has nothing to do without machines");
        assert!(runs(&few.simulated.quiet, function) >= 56.0, "{function}: {:?}", few.simulated.quiet);
    }
    let lines = few.bill(Architecture::Arm);
    assert!(lines.iter().all(|line| line.list >= line.rest && line.rest >= 0.0 && line.quantity > 0.0), "{lines:?}");
    assert!(sum(&few.bill(Architecture::X86), |line| line.list) > total(&few));
    let both = [idle, few];
    let printed = document(&both);
    assert_valid(Document::Cost, &printed);
    assert_eq!((printed["months"].as_array().unwrap().len(), &printed["months"][1]["nodes"]), (2, &json!(3)));
    assert!(printed["months"][1]["hours"]["busy"]["functions"]["launch"]["runs"].as_f64().unwrap() > 0.0, "{printed}");
    let text = text(&both);
    for part in ["idle", "3 nodes", "SQS, polls of empty FIFO queues", "x86_64, after the always-free tier", "Not included"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn more_clusters_share_queues_and_alarms_only() {
    let two = of(&CostArgs { clusters: 2, ..args(Some(0)) });
    let (eight, simulated) = (Size { clusters: 8, ..two.size.clone() }, two.simulated.clone());
    let many = Computed { size: eight, simulated };
    let line = |of: &Computed, name: &str| of.bill(Architecture::Arm).into_iter().find(|line| line.name == name).unwrap().list;
    for name in ["SQS, polls of empty standard queues", "CloudWatch, alarms", "Scheduler"] {
        assert!((line(&two, name) - line(&many, name)).abs() < 1e-9, "{name}");
    }
    assert!((line(&many, "SQS, messages of FIFO queues") / line(&two, "SQS, messages of FIFO queues") - 4.0).abs() < 1e-9);
    let standard = line(&many, "SQS, messages of standard queues") / line(&two, "SQS, messages of standard queues");
    assert!((standard - 4.0).abs() < 1e-9, "messages of several clusters are told apart: {standard}");
    assert!(line(&two, "CloudWatch, custom metrics").abs() < 1e-9, "a cluster without machines and problems has none");
    let invocations = line(&many, "Lambda, invocations") / line(&two, "Lambda, invocations");
    assert!(invocations > 2.0 && invocations < 4.0, "a tick is one invocation for all clusters: {invocations}");
}

#[test]
fn ticks_of_a_deployment_with_one_cluster_work_themselves() {
    let (one, two) = (of(&args(Some(0))), of(&CostArgs { clusters: 2, ..args(Some(0)) }));
    let line = |of: &Computed, name: &str| of.bill(Architecture::Arm).into_iter().find(|line| line.name == name).unwrap();
    assert!(line(&one, "SQS, messages of FIFO queues").quantity.abs() < 1e-9, "nobody rings where nothing happens");
    assert!(line(&two, "SQS, messages of FIFO queues").quantity > 0.0);
    let minutes = 60.0 * HOURS_A_MONTH;
    let ticks = line(&one, "Scheduler").quantity;
    assert!((line(&two, "Scheduler").quantity - ticks).abs() < 1e-9 && ticks > 2.0 * minutes, "those of schedule, sweep and refresh");
    let polls = |of: &Computed| line(of, "SQS, polls of empty standard queues").quantity;
    assert!(
        (polls(&two) - polls(&one) - 15.0 * minutes).abs() < 1e-3,
        "nobody reads the queue of sweep: {} of {}",
        polls(&one),
        polls(&two)
    );
    let invocations = line(&one, "Lambda, invocations").quantity;
    assert!(invocations >= ticks && invocations < 1.1 * ticks, "a tick is a run: {invocations} of {ticks}");
}

/// Once for all clusters.
#[test]
fn functions_that_are_woken_once_a_day_are_on_the_bill() {
    for function in Function::ALL {
        let text = section(&name(function));
        assert_eq!(bill::WOKEN.contains(&function), text.contains(r#"{"kind":"wake"}"#), "{function}");
        assert_eq!(bill::WOKEN.contains(&function), text.contains("ScheduleExpression: rate(24 hours)"), "{function}");
    }
    for clusters in [1, 8] {
        let size = Size { clusters, ..sizes(&args(Some(0))).unwrap().remove(0) };
        let nothing = Computed { size, simulated: Simulated::default() };
        let quantity = |name: &str| nothing.bill(Architecture::Arm).into_iter().find(|line| line.name == name).unwrap().quantity;
        for name in ["Scheduler", "Lambda, invocations"] {
            assert!((quantity(name) - 5.0 * HOURS_A_MONTH / 24.0).abs() < 1e-6, "{name}: {}", quantity(name));
        }
        let compute = quantity("Lambda, compute");
        assert!((0.5..1.0).contains(&compute), "some milliseconds each: {compute}");
        assert!(quantity("CloudWatch, logs taken in") > 0.0);
    }
}

#[test]
fn what_is_written_of_a_catalog_is_its_spot_prices() {
    let blob = whittle_ec2::facts::offline::catalog("us-east-1").unwrap().encode();
    let parts = whittle_claims::catalog_parts(&blob);
    assert_eq!(parts.len(), 2);
    let units = stretch::real(u64::try_from(parts[1].len().div_ceil(1_024)).unwrap());
    assert!((2.0 * units - bill::CATALOG_WRITE_UNITS).abs() <= 6.0, "{units} units for {} and {} bytes", parts[0].len(), parts[1].len());
}

#[test]
fn what_cannot_be_computed_is_said() {
    let refused = |args: &CostArgs| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(args, &mut out, &mut err).unwrap();
        assert_eq!((format!("{code:?}"), out), (format!("{:?}", ExitCode::from(2)), Vec::new()));
        String::from_utf8(err).unwrap()
    };
    assert!(refused(&CostArgs { region: "eu-north-9".to_owned(), ..args(None) }).contains("name one of us-east-1"));
    assert!(refused(&CostArgs { pods: Some(3), ..args(Some(4)) }).starts_with("error: --pods 3: each of the 4 nodes"));
}

const TEMPLATE: &str = include_str!("../../../template.yaml");

/// A resource or parameter of the template.
fn section(name: &str) -> String {
    let from = TEMPLATE.split_once(&format!("\n  {name}:\n")).unwrap().1;
    from.lines().take_while(|line| line.starts_with("    ")).collect::<Vec<&str>>().join("\n")
}

/// A function's name in the template.
fn name(function: Function) -> String {
    let mut name = function.name().to_owned();
    name[..1].make_ascii_uppercase();
    name
}

/// The parts of the template that a bill depends on.
#[test]
fn queues_memory_and_alarms_are_those_of_the_template() {
    for function in Function::ALL {
        let name = name(function);
        assert!(section(&name).contains(&format!("MemorySize: {}", durations::memory(function))), "{name}");
    }
    assert!(section("SpotPriceRefreshMinutes").contains(&format!("Default: {}\n", bill::SPOT_PRICE_MINUTES)));
    let (mut basic, mut all) = (0, 0);
    for alarm in TEMPLATE.split("\n  ").filter(|part| part.trim_end().ends_with("Alarm:")) {
        let text = section(alarm.trim_end().trim_end_matches(':'));
        let metrics = u32::try_from(text.matches("MetricStat:").count().max(1)).unwrap();
        all += metrics;
        basic += if text.contains("Condition: WantsAll") { 0 } else { metrics };
    }
    assert_eq!(bill::WATCHED, (f64::from(basic), f64::from(all)));
    let unread = "Enabled: !If [HasOneCluster, false, true]";
    assert!(section("Sweep").contains(unread) && TEMPLATE.matches(" Enabled: !If").count() == 1);
    assert!((bill::UNREAD_BY_ONE - 1.0).abs() < 1e-9);
    let mapped = TEMPLATE.matches("Queue: !GetAtt").count();
    let fifo = ["PlanQueue", "ConsolidateQueue"].iter().filter(|name| section(name).contains("FifoQueue: true")).count();
    assert_eq!(bill::QUEUES, (f64::from(u32::try_from(mapped - fifo).unwrap()), f64::from(u32::try_from(fifo).unwrap())));
}
