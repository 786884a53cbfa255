//! The adapters and boto3, asked the same of another project's model of AWS: their answers are equal, field by field, and so is what their
//! requests have made of it.

use super::moto::{REGION, config};
use super::{root, run};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use whittle_api::karpenter::{
    AmiSelectorTerm, BlockDevice, BlockDeviceMapping, CapacityReservationSelectorTerm, MetadataOptions, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use whittle_api::labels;
use whittle_aws::{Ec2Discovery, Isolation, Machines};
use whittle_ec2::facts::Catalog;
use whittle_ec2::fleet::{FleetAnswer, FleetRequest, LaunchTemplate, TemplateInterface};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ec2::network::{SecurityGroup, Subnet};
use whittle_ec2::node_class::instance_profile;
use whittle_ports::contracts::CloudPlace;
use whittle_ports::{
    CloudError, Discovery, DryRuns, Fleets, InstanceChecks, InstanceRun, InstanceTags, Instances, LaunchTemplateCleanup, LaunchTemplates,
    Terminator, ZonalShifts,
};
use whittle_tests::clock::FixedClock;
use whittle_tests::moto::Moto;
use whittle_tests::tools;
use whittle_units::{ClusterName, InstanceId};

/// Who makes a call, and what it calls its things after itself.
const WRITERS: [&str; 2] = ["adapter", "boto3"];
const MISSING_INSTANCE: &str = "i-0123456789abcdef0";
/// Of one answer, so that a difference in every instance type is not printed for each.
const DIFFERENCES_MAX: usize = 5;

/// boto3 as a process that answers one call after the other.
struct Boto3 {
    process: Child,
    /// Closed to end the process.
    calls: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Boto3 {
    fn start(endpoint: &str) -> Option<Self> {
        let environment = tools::find(tools::MODELS)?;
        let mut command = Command::new(environment.join("bin/python"));
        command.arg("-B").arg(root().join("tests/python/moto_answers.py")).arg(endpoint);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (calls, answers) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        Some(Self { process, calls, answers })
    }

    fn call(&mut self, name: &str, with: &Value) -> Value {
        writeln!(self.calls.as_mut().unwrap(), "{}", json!({"call": name, "with": with})).unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("boto3 did not answer {name}; its own words are above: {error}"))
    }
}

impl Drop for Boto3 {
    fn drop(&mut self) {
        drop(self.calls.take());
        let _ = self.process.wait();
    }
}

/// An adapter's answer in the form of boto3's.
fn answered<T: Serialize>(answer: Result<T, CloudError>) -> Value {
    match answer {
        Ok(value) => json!({"answer": value}),
        Err(error) => json!({"refused": error.code}),
    }
}

/// What both answers must be, besides equal: two that say nothing prove nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Something,
    /// Nothing is there, or it is done.
    Nothing,
    Refused,
}

fn kind(answer: &Value) -> Expected {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match answer.get("answer") {
        None => Expected::Refused,
        Some(value) if is_empty(value) => Expected::Nothing,
        Some(_) => Expected::Something,
    }
}

/// The paths at which two answers differ.
fn differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                differences(&format!("{path}.{key}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{index}]"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            found.push(format!("{path} has {} entries, and {} for boto3: {ours} and {theirs}", a.len(), b.len()));
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path} is {ours}, and {theirs} for boto3")),
    }
}

/// How far the two were answered alike.
#[derive(Default)]
struct Compared {
    alike: Vec<String>,
    broken: Vec<String>,
}

impl Compared {
    fn same(&mut self, call: &str, expected: Expected, ours: &Value, theirs: &Value) {
        let mut found = Vec::new();
        differences("", ours, theirs, &mut found);
        let count = found.len();
        found.truncate(DIFFERENCES_MAX);
        if count > DIFFERENCES_MAX {
            found.push(format!("and {} more", count - DIFFERENCES_MAX));
        }
        if count == 0 && kind(ours) != expected {
            found.push(format!(" is {ours} for both, where {expected:?} was expected"));
        }
        if found.is_empty() {
            self.alike.push(call.to_owned());
        }
        self.broken.extend(found.into_iter().map(|difference| format!("{call}: {}", difference.trim_start_matches('.'))));
    }

    /// A call that moto does not answer as AWS does. The day that it does, the call is to be compared.
    fn skipped(&mut self, call: &str, expected: Expected, reason: &str, [ours, theirs]: [&Value; 2]) {
        println!("{call}: skipped, because {reason}");
        if ours == theirs && kind(ours) == expected {
            self.broken.push(format!("{call} is answered alike by now: it need not be skipped"));
        }
    }
}

/// Both sides, and the region that they ask.
struct Sides {
    machines: Machines,
    discovery: Ec2Discovery,
    boto3: Boto3,
    now: String,
    place: CloudPlace,
    /// A security group without the tag for discovery.
    other_group: String,
    /// Another image than that of the place.
    other_image: String,
    compared: Compared,
}

impl Sides {
    fn over(moto: &Moto) -> Option<Self> {
        let config = config(moto);
        let clock = Arc::new(FixedClock::new());
        let machines = Machines::new(aws_sdk_ec2::Client::new(&config), clock.clone());
        let machines = machines.with_zonal_shift(aws_sdk_arczonalshift::Client::new(&config));
        let discovery = Ec2Discovery::new(&config, REGION.into(), Isolation::Reachable, clock.clone());
        let mut boto3 = Boto3::start(&moto.endpoint())?;
        let made = boto3.call("prepare", &json!({}))["answer"].take();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let subnet = |value: &Value| Subnet { id: text(&value["id"]), zone: text(&value["zone"]), ..Subnet::default() };
        let place = CloudPlace {
            cluster: "demo".into(),
            subnets: made["subnets"].as_array().unwrap().iter().map(subnet).collect(),
            group: SecurityGroup { id: text(&made["group"]), ..SecurityGroup::default() },
            image_id: text(&made["images"][0]),
            instance_type: "m5.large".to_owned(),
        };
        let (other_group, other_image) = (text(&made["other"]), text(&made["images"][1]));
        let now = clock.now.to_string();
        Some(Self { machines, discovery, boto3, now, place, other_group, other_image, compared: Compared::default() })
    }

    /// Compares an adapter's answer with boto3's to the call of this name.
    fn same<T: Serialize>(&mut self, call: &str, with: &Value, expected: Expected, ours: Result<T, CloudError>) {
        let theirs = self.boto3.call(call, with);
        self.compared.same(&format!("{call} {with}"), expected, &answered(ours), &theirs);
    }

    /// Compares what the two writers have made, as boto3 describes both, without what is new in each.
    fn same_whole(&mut self, what: &str, [ours, theirs]: [&Value; 2]) {
        let [ours, theirs] = [self.boto3.call(what, ours), self.boto3.call(what, theirs)];
        self.compared.same(what, Expected::Something, &ours, &theirs);
    }

    fn network(&mut self) {
        let tags = |key: &str, value: &str| json!({"tags": {key: value}});
        let terms = [
            (tags("karpenter.sh/discovery", "demo"), Expected::Something),
            (tags("karpenter.sh/discovery", "*"), Expected::Something),
            (tags("Name", "with a space"), Expected::Something),
            (tags("team", "b"), Expected::Nothing),
        ];
        let id = |id: &str| json!({"id": id});
        let (subnet, group) = (id(&self.place.subnets[1].id), id(&self.other_group));
        let unknown = (id("subnet-0123456789abcdef0"), Expected::Nothing);
        for (term, expected) in terms.iter().cloned().chain([(subnet, Expected::Something), unknown]) {
            let ours: SubnetSelectorTerm = serde_json::from_value(term.clone()).unwrap();
            self.same("subnets", &json!({"term": term}), expected, run(self.discovery.subnets(&[ours])));
        }
        let named = (json!({"name": "other"}), Expected::Something);
        let unknown = (id("sg-0123456789abcdef0"), Expected::Nothing);
        for (term, expected) in terms.into_iter().chain([(group, Expected::Something), named, unknown]) {
            let ours: SecurityGroupSelectorTerm = serde_json::from_value(term.clone()).unwrap();
            self.same("security_groups", &json!({"term": term}), expected, run(self.discovery.security_groups(&[ours])));
        }
        for (cluster, expected) in [("demo", Expected::Something), ("other", Expected::Refused)] {
            self.same("cluster_info", &json!({"cluster": cluster}), expected, run(self.discovery.cluster_info(&cluster.into())));
        }
    }

    fn images(&mut self) {
        let (something, nothing) = (Expected::Something, Expected::Nothing);
        for (term, expected) in [
            (json!({"id": self.place.image_id}), something),
            (json!({"id": "ami-0123456789abcdef0"}), nothing),
            (json!({"name": "amzn2-ami-ecs-hvm-*"}), something),
            (json!({"name": "amzn2-ami-ecs-hvm-*", "owner": "amazon"}), something),
            (json!({"name": "amzn2-ami-ecs-hvm-*", "owner": "591542846629"}), something),
            (json!({"name": "amzn2-ami-ecs-hvm-*", "owner": "self"}), nothing),
            (json!({"name": "no such image"}), nothing),
            (json!({"tags": {"team": "a"}}), something),
            (json!({"tags": {"team": "*", "Name": "with a space"}}), something),
            (json!({"tags": {"team": "b"}}), nothing),
            (json!({"ssmParameter": "/images/own"}), something),
            (json!({"ssmParameter": "/images/text"}), nothing),
            (json!({"ssmParameter": "/images/none"}), nothing),
        ] {
            let ours: AmiSelectorTerm = serde_json::from_value(term.clone()).unwrap();
            let ours = run(self.discovery.images(&[ours], "1.33"));
            self.same("images", &json!({"term": term, "now": self.now}), expected, ours);
        }
        let alias = AmiSelectorTerm { alias: Some("al2023@latest".to_owned()), ..AmiSelectorTerm::default() };
        let ours = answered(run(self.discovery.images(&[alias], "1.33")));
        let theirs = self.boto3.call("images", &json!({"term": {"alias": "al2023@latest"}, "now": self.now}));
        self.compared.skipped(
            "images of an alias",
            Expected::Something,
            "moto has no parameters of EKS, and nobody can write them",
            [&ours, &theirs],
        );
    }

    /// The profile of a class that is named after the writer and has tags of its own.
    fn profile(&self, writer: &str) -> Value {
        let made = instance_profile(self.place.cluster.as_str(), REGION, writer, "nodes/contract-role").with_tags(&class_tags());
        json!({"name": made.name, "path": made.path, "role": made.role, "tags": made.tags, "own": [made.name, writer]})
    }

    fn profiles(&mut self) {
        let cluster = self.place.cluster.clone();
        let [own, other] = WRITERS.map(|writer| self.profile(writer));
        for _ in 0..2 {
            let ours = run(self.discovery.ensure_instance_profile(&cluster, WRITERS[0], "nodes/contract-role", &class_tags()));
            assert_eq!(answered(ours), json!({"answer": own["name"]}), "the class and its role name the profile");
            assert_eq!(self.boto3.call("ensure_instance_profile", &other), json!({"answer": other["name"]}));
        }
        self.same_whole("whole_profile", [&own, &other]);
        for name in [&own["name"], &other["name"]] {
            let ours = run(self.discovery.profile_role(name.as_str().unwrap()));
            self.same("profile_role", &json!({"name": name}), Expected::Something, ours);
        }
        self.same("profile_role", &json!({"name": "none"}), Expected::Refused, run(self.discovery.profile_role("none")));
        for cluster in ["demo", "other"] {
            let found = run(self.discovery.profiles(&cluster.into())).map(|mut found| {
                found.sort();
                let line =
                    |one: &whittle_ports::ClassProfile| json!({"name": one.name, "arn": one.arn, "class": one.class, "role": one.role});
                found.iter().map(line).collect::<Vec<_>>()
            });
            let (ours, theirs) = (answered(found), self.boto3.call("profiles", &json!({"cluster": cluster})));
            if cluster == "demo" {
                self.compared.same("profiles", Expected::Something, &ours, &theirs);
            } else {
                let reason = "moto takes no notice of the path that they are asked for by";
                self.compared.skipped("profiles of another cluster", Expected::Nothing, reason, [&ours, &theirs]);
            }
        }
    }

    /// Takes away the profiles, the last things of all.
    fn no_profiles(&mut self) {
        let [_, other] = WRITERS.map(|writer| self.profile(writer));
        let found = run(self.discovery.profiles(&self.place.cluster)).unwrap();
        let own = found.iter().find(|profile| profile.class == WRITERS[0]).unwrap();
        let ours = answered(run(self.discovery.delete_profile(own)));
        let theirs = self.boto3.call("delete_profile", &other);
        self.compared.skipped("delete_profile", Expected::Something, "moto has no filter of instances by their profile", [&ours, &theirs]);
    }

    /// A launch template with a value in every field that one machine can have, that of this writer.
    fn template(&self, writer: &str) -> LaunchTemplate {
        let word = |word: &str| Some(word.to_owned());
        let root = BlockDevice {
            delete_on_termination: Some(true),
            encrypted: Some(true),
            iops: Some(3000),
            throughput: Some(125),
            volume_size: word("20Gi"),
            volume_type: word("gp3"),
            ..BlockDevice::default()
        };
        let interface = |device_index| TemplateInterface {
            card_index: Some(0),
            device_index,
            interface_type: word("interface"),
            associate_public_ip: Some(false),
            ..TemplateInterface::default()
        };
        LaunchTemplate {
            user_data: "#!/bin/sh\necho \"näme\"\n".to_owned(),
            instance_profile: self.profile(writer)["name"].as_str().unwrap().to_owned(),
            security_group_ids: vec![self.place.group.id.clone(), self.other_group.clone()],
            block_device_mappings: vec![BlockDeviceMapping { device_name: word("/dev/sda1"), ebs: Some(root), root_volume: false }],
            metadata_options: MetadataOptions {
                http_endpoint: word("enabled"),
                http_protocol_ipv6: word("disabled"),
                http_put_response_hop_limit: Some(1),
                http_tokens: word("required"),
            },
            detailed_monitoring: true,
            interfaces: vec![interface(0), interface(1)],
            ..self.place.template(writer)
        }
        .named()
    }

    fn templates(&mut self) {
        let own = WRITERS.map(|writer| self.template(writer));
        for _ in 0..2 {
            let ours = run(self.machines.ensure_launch_template(&own[0]));
            self.same("ensure_launch_template", &json!({"template": own[1]}), Expected::Nothing, ours);
        }
        let documents = [0, 1].map(|index| whole_template(&own[index], WRITERS[index]));
        self.same_whole("whole_template", [&documents[0], &documents[1]]);
        for (cluster, expected) in [("demo", Expected::Something), ("other", Expected::Nothing)] {
            let ours = run(self.machines.launch_templates(&cluster.into()));
            self.same("launch_templates", &json!({"cluster": cluster}), expected, ours);
        }
    }

    fn no_templates(&mut self) {
        let own = WRITERS.map(|writer| self.template(writer));
        for expected in [Expected::Nothing, Expected::Refused] {
            // moto asks for a name where a template is gone; AWS says that it is not found, which is as good as done.
            let ours = run(self.machines.delete_launch_template(&own[0].name));
            self.same("delete_launch_template", &json!({"name": own[1].name}), expected, ours);
        }
        let ours = run(self.machines.launch_templates(&self.place.cluster));
        self.same("launch_templates", &json!({"cluster": "demo"}), Expected::Nothing, ours);
    }

    fn request(&self, writer: &str, capacity_type: &str) -> FleetRequest {
        let batch = format!("{writer}-{capacity_type}");
        let mut request = self.place.request(&batch, &self.template(writer), 2);
        request.capacity_type = capacity_type.to_owned();
        for pool in &mut request.configs[0].overrides {
            pool.image_id.clone_from(&self.other_image);
        }
        request
    }

    fn dry_runs(&mut self) {
        let [own, other] = WRITERS.map(|writer| self.request(writer, "on-demand"));
        self.same("dry_run_fleet", &json!({"request": other}), Expected::Nothing, run(self.machines.dry_run_fleet(&own)));
        let [template, others] = WRITERS.map(|writer| self.template(writer));
        let (instance_type, subnet_id) = (self.place.instance_type.clone(), self.place.subnets[0].id.clone());
        let ours = InstanceRun { template: &template, instance_type: &instance_type, subnet_id: &subnet_id, tags: &own.tags };
        let ours = run(self.machines.dry_run_instance(&ours));
        let with = json!({"template": others, "instance_type": instance_type, "subnet_id": subnet_id});
        self.same("dry_run_instance", &with, Expected::Nothing, ours);
        self.tagged("adapter-on-demand", Expected::Nothing);
        self.tagged("boto3-on-demand", Expected::Nothing);
    }

    fn tagged(&mut self, launch: &str, expected: Expected) {
        let ours = run(self.machines.tagged(labels::TAG_LAUNCH, launch)).map(sorted);
        self.same("tagged", &json!({"key": labels::TAG_LAUNCH, "value": launch}), expected, ours);
    }

    fn of_cluster(&mut self, cluster: &str, expected: Expected) {
        let ours = run(self.machines.of_cluster(&ClusterName::new(cluster))).map(sorted);
        self.same("of_cluster", &json!({"cluster": cluster}), expected, ours);
    }

    fn instance(&mut self, id: &str, expected: Expected) {
        self.same("instance_of", &json!({"id": id}), expected, run(self.machines.instance(&InstanceId::from(id))));
    }

    /// Starts machines, tags one of them and ends it, once by each writer.
    fn machines(&mut self, capacity_type: &str) {
        let requests = WRITERS.map(|writer| self.request(writer, capacity_type));
        let ours = run(self.machines.create_fleet(&requests[0])).unwrap();
        let theirs = self.boto3.call("create_fleet", &json!({"request": requests[1]}))["answer"].take();
        let theirs: FleetAnswer = serde_json::from_value(theirs).unwrap();
        let answers = [ours, theirs];
        let own = [0, 1].map(|index| json!([answers[index].fleet_id, requests[index].client_token, self.template(WRITERS[index]).name]));
        let values = [0, 1].map(|index| json!({"value": answers[index], "own": own[index]}));
        self.same_whole("whole_value", [&values[0], &values[1]]);
        let ids = [0, 1].map(|index| answers[index].instances.iter().map(|one| one.id.as_str()).collect::<Vec<_>>());
        let documents = [0, 1].map(|index| {
            let mut own = own[index].clone();
            own.as_array_mut().unwrap().extend([self.profile(WRITERS[index])["name"].clone(), WRITERS[index].into()]);
            json!({"ids": ids[index], "fleet": answers[index].fleet_id, "own": own})
        });
        self.same_whole("whole_instances", [&documents[0], &documents[1]]);
        for (answer, request) in answers.iter().zip(&requests) {
            let ours = run(self.machines.fleet(&answer.fleet_id, request));
            self.same("fleet", &json!({"id": answer.fleet_id, "request": request}), Expected::Something, ours);
            self.tagged(&request.client_token, Expected::Something);
        }
        let name = [("Name".to_owned(), "default/a machine".to_owned())];
        let ours = run(self.machines.tag(&InstanceId::from(ids[0][0]), &name));
        self.same("tag", &json!({"id": ids[1][0], "tags": {"Name": "default/a machine"}}), Expected::Nothing, ours);
        self.same_whole("whole_instances", [&documents[0], &documents[1]]);
        self.of_cluster("demo", Expected::Something);
        for _ in 0..2 {
            let ours = run(self.machines.terminate(&InstanceId::from(ids[0][0])));
            self.same("terminate", &json!({"id": ids[1][0]}), Expected::Nothing, ours);
        }
        self.same_whole("whole_instances", [&documents[0], &documents[1]]);
        for id in ids.iter().flatten() {
            self.instance(id, Expected::Something);
        }
        self.of_cluster("demo", Expected::Something);
        self.of_cluster("other", Expected::Nothing);
    }

    /// What is said of machines that do not exist, and of all machines.
    fn other_machines(&mut self) {
        let missing = InstanceId::from(MISSING_INSTANCE);
        self.instance(MISSING_INSTANCE, Expected::Nothing);
        self.same("terminate", &json!({"id": MISSING_INSTANCE}), Expected::Nothing, run(self.machines.terminate(&missing)));
        // moto tags what does not exist.
        let ours = run(self.machines.tag(&missing, &[("a".to_owned(), "b".to_owned())]));
        self.same("tag", &json!({"id": MISSING_INSTANCE, "tags": {"a": "b"}}), Expected::Nothing, ours);
        let own = run(self.machines.of_cluster(&ClusterName::new("demo"))).unwrap();
        let running = own.into_iter().filter(|instance| instance.state == InstanceState::Running);
        let ids: Vec<InstanceId> = running.map(|instance| instance.id).collect();
        assert!(!ids.is_empty(), "machines run");
        let ours = run(self.machines.failing(&ids)).map(|found| {
            let line = |one: &whittle_ec2::interruption::InstanceStatus| {
                let impaired = [one.instance_impaired_since, one.system_impaired_since];
                json!({"instance": one.instance, "impaired": impaired, "event": one.has_scheduled_event})
            };
            found.iter().map(line).collect::<Vec<_>>()
        });
        // In moto every check is passed.
        self.same("failing", &json!({"ids": ids}), Expected::Nothing, ours);
    }

    fn catalog(&mut self) {
        let blob = run(async {
            let read = self.discovery.catalog(None).await?;
            self.discovery.with_spot_prices(&read.blob).await
        });
        let read = Catalog::decode(&blob.unwrap()).unwrap();
        self.same("instance_types", &json!({}), Expected::Something, Ok(&read.types));
        for (call, ours) in [("offerings", json!(read.offered)), ("spot_prices", json!(read.spot))] {
            let mut theirs = self.boto3.call(call, &json!({"now": self.now}));
            if let Some(by_type) = theirs["answer"].as_object_mut() {
                // The catalog has only the types that it describes.
                by_type.retain(|name, _| read.types.iter().any(|facts| facts.name == *name));
            }
            self.compared.same(call, Expected::Something, &json!({"answer": ours}), &theirs);
        }
        let fields = json!({"instanceType": "m5.large", "regionCode": REGION, "operatingSystem": "Linux", "tenancy": "Shared"});
        let theirs = self.boto3.call("on_demand_price", &json!({"fields": fields}));
        let ours = answered(Ok(read.on_demand_price("m5.large")));
        self.compared.skipped("on_demand_price", Expected::Something, "moto has no price list", [&ours, &theirs]);
    }

    /// Calls that moto does not model.
    fn not_modelled(&mut self) {
        let tags = json!({"team": "a"});
        let theirs = self.boto3.call("capacity_reservations", &json!({"term": {"tags": tags}, "zone": self.place.subnets[0].zone}));
        let term = CapacityReservationSelectorTerm {
            tags: Some([("team".to_owned(), "a".to_owned())].into()),
            ..CapacityReservationSelectorTerm::default()
        };
        let ours = run(self.discovery.capacity_reservations(&[term]))
            .map(|found| found.iter().map(|one| json!({"id": one.id, "free": one.free})).collect::<Vec<_>>());
        self.compared.skipped("capacity_reservations", Expected::Something, "moto has none", [&answered(ours), &theirs]);
        let theirs = self.boto3.call("placement_groups", &json!({"name": "wide"}));
        let selector = PlacementGroupSelector { name: Some("wide".to_owned()), ..PlacementGroupSelector::default() };
        let line = |one: &whittle_ec2::network::PlacementGroup| json!({"id": one.id, "name": one.name, "strategy": one.strategy, "state": one.state});
        let ours = run(self.discovery.placement_groups(&selector)).map(|found| found.iter().map(line).collect::<Vec<_>>());
        self.compared.skipped("placement_groups", Expected::Something, "moto has none", [&answered(ours), &theirs]);
        let arn = format!("arn:aws:eks:{REGION}:123456789012:cluster/demo");
        let theirs = self.boto3.call("zone_shifts", &json!({"arn": arn}));
        let ours = run(self.machines.zone_shifts(&arn)).map(|found| found.into_iter().map(|one| one.away_from).collect::<Vec<_>>());
        self.compared.skipped("zone_shifts", Expected::Nothing, "moto has no zonal shifts", [&answered(ours), &theirs]);
    }
}

fn sorted(mut found: Vec<Instance>) -> Vec<Instance> {
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found
}

/// Tags that a class gives to what is made for it.
fn class_tags() -> BTreeMap<String, String> {
    BTreeMap::from([("team".to_owned(), "a b/c".to_owned())])
}

fn whole_template(template: &LaunchTemplate, writer: &str) -> Value {
    json!({"name": template.name, "own": [template.name, template.instance_profile, writer]})
}

#[test]
fn the_adapters_and_boto3_are_answered_alike() {
    let Some(moto) = Moto::start() else { return };
    let Some(mut sides) = Sides::over(&moto) else { return };
    sides.network();
    sides.images();
    sides.profiles();
    sides.templates();
    sides.dry_runs();
    for capacity_type in ["on-demand", "spot"] {
        sides.machines(capacity_type);
    }
    sides.other_machines();
    sides.catalog();
    sides.not_modelled();
    sides.no_templates();
    sides.no_profiles();
    let Compared { alike, broken } = &sides.compared;
    let calls: std::collections::BTreeSet<&str> = alike.iter().filter_map(|call| call.split(' ').next()).collect();
    println!("{} answers of {} calls are alike: {}", alike.len(), calls.len(), calls.into_iter().collect::<Vec<_>>().join(", "));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn an_adapter_that_boto3_contradicts_is_detected() {
    let Some(moto) = Moto::start() else { return };
    let Some(mut sides) = Sides::over(&moto) else { return };
    let id = sides.place.subnets[0].id.clone();
    let term = SubnetSelectorTerm { id: Some(id.clone()), ..SubnetSelectorTerm::default() };
    let read = run(sides.discovery.subnets(&[term]));
    sides.boto3.call("retag", &json!({"id": id, "tags": {"team": "b"}}));
    sides.same("subnets", &json!({"term": {"id": id}}), Expected::Something, read);
    let mut own = WRITERS.map(|writer| sides.template(writer));
    own[0].metadata_options.http_tokens = Some("optional".to_owned());
    run(sides.machines.ensure_launch_template(&own[0])).unwrap();
    sides.boto3.call("ensure_launch_template", &json!({"template": own[1]}));
    let documents = [0, 1].map(|index| whole_template(&own[index], WRITERS[index]));
    sides.same_whole("whole_template", [&documents[0], &documents[1]]);
    let with = json!({"cluster": "other"});
    sides.same("launch_templates", &with, Expected::Something, run(sides.machines.launch_templates(&"other".into())));
    let alike = json!({"answer": [1]});
    sides.compared.skipped("what both answer", Expected::Something, "somebody said so", [&alike, &alike]);
    let expected = [
        format!("subnets {}: answer[0].tags.team is \"a\", and \"b\" for boto3", json!({"term": {"id": id}})),
        "whole_template: answer[1][0].LaunchTemplateData.MetadataOptions.HttpTokens is \"optional\", and \"required\" for boto3".to_owned(),
        format!("launch_templates {with}:  is {{\"answer\":[]}} for both, where Something was expected"),
        "what both answer is answered alike by now: it need not be skipped".to_owned(),
    ];
    assert_eq!(sides.compared.broken, expected);
    assert!(sides.compared.alike.is_empty(), "{:?}", sides.compared.alike);
}
