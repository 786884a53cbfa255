//! Scenarios whose functions call the simulated region through the real SDK, each with its own role: they end as always, what they
//! send is what AWS's models know, and the roles of the template suffice.

use super::roles::{enforce, principal, rendered};
use super::{lines, root, validate};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use std::sync::{Arc, Once};
use whittle_aws::{Ec2Discovery, Isolation, Machines};
use whittle_cli::local::scenario::{self, Play};
use whittle_cli::local::wiring::{Cloud, Handlers, outcome, run};
use whittle_sim::{Faults, Function, Functions, Input, RunFailure, SimPorts};
use whittle_tests::fake_aws::FakeAws;

/// Scenarios with a little of everything: stock-outs, node classes that change, reservations, interruptions, nodes that go.
const SCENARIOS: &[&str] = &["s1_scale_up_and_down", "s1_stock_out", "s1_ami", "reserved", "rebalance", "zonal_shift", "price_overlay"];

/// The version that the images of every simulated region are for.
const IMAGES_ARE_FOR: &str = "1.33";

/// The usual functions, with the real adapters in front of the region.
struct OverTheWire {
    handlers: Arc<Handlers>,
    aws: FakeAws,
    /// The rendered template, whose roles the functions have.
    template: Option<Value>,
    enforced: Once,
}

impl Functions for OverTheWire {
    fn call(&self, function: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        let settings = self.handlers.settings();
        let cluster = ports.cluster().clone();
        let region = ports.inspect(|world| {
            // The simulated ports take any profile for granted.
            let installed = settings.default_instance_profile.iter();
            let role = |profile: &String| (profile.clone(), profile.replace("InstanceProfile", "Role"));
            world.region.network.profiles.extend(installed.map(role));
            // They take images for those of any Kubernetes version, which their names distinguish.
            let version = world.cluster_info(&cluster).map(|info| info.version).unwrap_or_default();
            for image in &mut world.region.network.images {
                image.name = image.name.replace(IMAGES_ARE_FOR, &version);
            }
            world.region.name().to_owned()
        });
        if let Some(template) = &self.template {
            self.enforced.call_once(|| enforce(&self.aws, template, &region, cluster.as_str()));
        }
        let config = self.aws.at(Arc::new(ports.clone())).config_of(principal(function), &region);
        async move {
            let clock = Arc::new(ports.clone());
            let machines = Machines::new(aws_sdk_ec2::Client::new(&config), clock.clone());
            let machines = machines.with_zonal_shift(aws_sdk_arczonalshift::Client::new(&config));
            let discovery = Ec2Discovery::new(&config, region.as_str().into(), Isolation::Reachable, clock);
            let cloud = Cloud { machines: &machines, discovery: &discovery };
            outcome(run(&cloud, &ports, &settings, function, input).await)
        }
        .boxed()
    }
}

#[test]
fn scenarios_end_the_same_over_the_wire_with_the_roles_of_the_template() {
    let template = rendered();
    let (mut sent, mut failures) = (Vec::new(), Vec::new());
    for name in SCENARIOS {
        let read = scenario::read(&root().join(format!("tests/scenarios/{name}.yaml"))).unwrap_or_else(|error| panic!("{error}"));
        let aws = FakeAws::new(Arc::new(Unreached));
        aws.label(format!("scenario {name}"));
        let play = Play { lenient: false, ..Play::lenient(read.seed, Faults::default()) };
        let wrap = |handlers| {
            Arc::new(OverTheWire { handlers, aws: aws.clone(), template: template.clone(), enforced: Once::new() }) as Arc<dyn Functions>
        };
        let played = scenario::play_with(&read, &play, wrap).unwrap_or_else(|error| panic!("{name}: {error}"));
        failures.extend(played.failures.iter().map(|failure| format!("{name}: {failure}")));
        let api = aws.api.lock().unwrap();
        let lacking = api.journal.iter().filter_map(|entry| Some(format!("{name}: {} lacks {}", entry.principal, entry.lacks.as_ref()?)));
        failures.extend(lacking);
        assert!(api.journal.iter().all(|entry| entry.principal != "AKIDEXAMPLE"), "every call is a function's own");
        println!("{name}: {} requests, {} machines started", api.journal.len(), played.summary.machines_started);
        drop(api);
        sent.extend(aws.sent());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let Some((passed, said)) = validate("scenarios", &lines(&sent), None) else { return };
    println!("{said}");
    assert!(passed, "{said}");
}

/// Where a call has no region to go to.
struct Unreached;

impl whittle_tests::fake_aws::Reach for Unreached {
    fn with(&self, _: &mut dyn FnMut(&mut dyn whittle_fake_aws::Place)) {
        unreachable!("every run of a function names its own region")
    }
}
