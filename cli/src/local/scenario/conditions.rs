//! Conditions that a scenario waits for and expects.

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use whittle_api::k8s::{Node, Pod};
use whittle_api::karpenter::NodePool;
use whittle_api::{ConditionStatus, conditions, labels};
use whittle_sim::World;
use whittle_sim::cluster::PodCounts;

/// How many items are named if their number is wrong.
const NAMED_MAX: usize = 5;

/// A number, or a bound: `3`, `">=3"`, `"<=4"`, `"1..2"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    low: i64,
    high: i64,
}

impl Count {
    fn accepts(self, number: usize) -> bool {
        i64::try_from(number).is_ok_and(|number| self.low <= number && number <= self.high)
    }
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse::<i64>().ok();
        if let Some(rest) = text.strip_prefix(">=") {
            return Some(Self { low: number(rest)?, high: i64::MAX });
        }
        if let Some(rest) = text.strip_prefix("<=") {
            return Some(Self { low: i64::MIN, high: number(rest)? });
        }
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        Some(Self { low: number(low)?, high: number(high)? })
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low, self.high) {
            (low, high) if low == high => write!(f, "{low}"),
            (low, i64::MAX) => write!(f, "at least {low}"),
            (i64::MIN, high) => write!(f, "at most {high}"),
            (low, high) => write!(f, "{low} to {high}"),
        }
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count such as 3, \">=3\", \"<=4\" or \"1..2\"")
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Count, E> {
        Ok(Count { low: number, high: number })
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Count, E> {
        i64::try_from(number).map_err(E::custom).and_then(|number| self.visit_i64(number))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Count, E> {
        Count::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

/// A condition on the world; all given fields must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Condition {
    pub pods: Option<Pods>,
    pub nodes: Option<Nodes>,
    pub claims: Option<Claims>,
    /// NodeClaim objects in the cluster, whoever created them.
    pub node_claims: Option<Count>,
    pub machines: Option<Machines>,
    pub decision: Option<Message>,
    pub event: Option<Message>,
    pub class: Option<Class>,
    pub budget: Option<Budget>,
    pub launch_templates: Option<Count>,
    pub node_pool: Option<PoolObject>,
    /// All instance profiles, with their roles.
    pub profiles: Option<BTreeMap<String, String>>,
    /// Texts that occur in no launch template, tag, decision or event.
    pub nowhere: Vec<String>,
    /// Conditions that must all hold.
    pub all: Vec<Condition>,
}

/// Pods that are not of a DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Pods {
    /// Prefix of their names; all pods if absent.
    pub of: Option<String>,
    pub running: Option<Count>,
    pub starting: Option<Count>,
    pub pending: Option<Count>,
    pub total: Option<Count>,
    /// All bound ones are on nodes of this pool.
    pub pool: Option<String>,
    /// All bound ones are on nodes of pools converted from a Provisioner, or all on nodes of other pools.
    pub converted: Option<bool>,
    /// No bound one is on a node of any pool.
    pub unmanaged: Option<bool>,
    /// The number of nodes that they are on.
    pub nodes: Option<Count>,
    /// The first container's requests.
    pub request: BTreeMap<String, String>,
}

/// Nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Nodes {
    pub pool: Option<String>,
    /// Of a managed node group.
    pub group: Option<String>,
    /// Whether of a pool that was converted from a Provisioner.
    pub converted: Option<bool>,
    /// Only those with a taint of this key.
    pub tainted: Option<String>,
    /// Only those with (or without) pods of the user.
    pub busy: Option<bool>,
    pub count: Option<Count>,
    pub ready: Option<bool>,
    /// Labels of each of them.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub without_labels: Vec<String>,
    /// A taint of each of them, `key:Effect` or `key=value:Effect`.
    pub taint: Option<String>,
    pub without_taint: Option<String>,
    pub vcpus: Option<Count>,
    pub max_pods: Option<Count>,
    /// Instance category, one of these letters.
    pub category: Vec<String>,
    pub generation: Option<Count>,
    pub allocatable: BTreeMap<String, String>,
}

/// Claims in the store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Claims {
    pub pool: Option<String>,
    /// Whether of a pool that was converted from a Provisioner.
    pub converted: Option<bool>,
    pub live: Option<Count>,
    /// The number ever created.
    pub made: Option<Count>,
}

/// Machines in EC2 that Whittle launched.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Machines {
    pub running: Option<Count>,
    /// The number ever launched.
    pub started: Option<Count>,
    #[serde(rename = "type")]
    pub instance_type: Option<String>,
    pub capacity_type: Option<String>,
    pub zone: Option<String>,
    pub image: Option<String>,
    pub profile: Option<String>,
    pub architecture: Option<String>,
    pub tags: BTreeMap<String, String>,
    /// Text of the user data.
    pub user_data: Vec<String>,
    /// Metadata options by EC2's name.
    pub metadata: BTreeMap<String, String>,
    /// Size of the first volume.
    pub volume_size: Option<String>,
}

/// A message in the decision log or in an Event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Message {
    /// Part of the subject (`pod/`, `node/`, a name).
    pub about: String,
    /// Kind of a decision, reason of an Event.
    pub kind: Option<String>,
    /// Parts of the message or of its structured details, case-insensitive.
    pub says: Vec<String>,
    pub times: Option<Count>,
}

/// An EC2NodeClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Class {
    pub name: String,
    pub ready: Option<bool>,
    /// Parts of the message of a condition that is not True.
    pub says: Vec<String>,
    pub subnets: Option<Count>,
    pub security_groups: Option<Count>,
    /// Images that must be among those of the class.
    pub images: Vec<String>,
    /// The exact images of the class, if any are given.
    pub only_images: Vec<String>,
    pub only_groups: Vec<String>,
}

/// A NodePool object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PoolObject {
    pub name: String,
    pub converted: bool,
    /// Whether a NodePool of that name exists.
    pub exists: Option<bool>,
    pub ready: Option<bool>,
    /// Values of fields by JSON pointer without the leading slash, as JSON or text.
    pub fields: BTreeMap<String, String>,
}

/// A disruption budget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Budget {
    pub name: String,
    pub allowed: Option<Count>,
    pub healthy: Option<Count>,
}

/// Collects failed conditions.
struct Faults(Vec<String>);

impl Faults {
    fn count(&mut self, what: &str, wanted: Option<Count>, found: usize) {
        if let Some(wanted) = wanted.filter(|wanted| !wanted.accepts(found)) {
            self.0.push(format!("{what}: wanted {wanted}, found {found}"));
        }
    }
    /// The same for named items, some of which are listed.
    fn count_of(&mut self, what: &str, wanted: Option<Count>, found: &[String]) {
        if let Some(wanted) = wanted.filter(|wanted| !wanted.accepts(found.len())) {
            let some: Vec<&str> = found.iter().take(NAMED_MAX).map(String::as_str).collect();
            let named = if some.is_empty() { String::new() } else { format!(" ({})", some.join(", ")) };
            self.0.push(format!("{what}: wanted {wanted}, found {}{named}", found.len()));
        }
    }
    fn text(&mut self, what: &str, wanted: Option<&str>, found: &str) {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            self.0.push(format!("{what}: wanted {wanted:?}, found {found:?}"));
        }
    }
    fn map(&mut self, what: &str, wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>) {
        for (key, value) in wanted {
            self.text(&format!("{what} {key}"), Some(value), found.get(key).map_or("", String::as_str));
        }
    }
}

impl Condition {
    /// The failed conditions; empty if all hold.
    pub fn faults(&self, world: &World) -> Vec<String> {
        let mut faults = Faults(Vec::new());
        if let Some(pods) = &self.pods {
            pods.check(world, &mut faults);
        }
        if let Some(nodes) = &self.nodes {
            nodes.check(world, &mut faults);
        }
        if let Some(claims) = &self.claims {
            claims.check(world, &mut faults);
        }
        faults.count("NodeClaims in the cluster", self.node_claims, world.cluster.objects.node_claims.len());
        if let Some(machines) = &self.machines {
            machines.check(world, &mut faults);
        }
        if let Some(messages) = &self.decision {
            messages.check_decisions(world, &mut faults);
        }
        if let Some(messages) = &self.event {
            messages.check_events(world, &mut faults);
        }
        if let Some(class) = &self.class {
            class.check(world, &mut faults);
        }
        if let Some(budget) = &self.budget {
            budget.check(world, &mut faults);
        }
        if let Some(pool) = &self.node_pool {
            pool.check(world, &mut faults);
        }
        if let Some(profiles) = self.profiles.as_ref().filter(|wanted| **wanted != world.region.network.profiles) {
            faults.0.push(format!("instance profiles: wanted {profiles:?}, found {:?}", world.region.network.profiles));
        }
        if !self.nowhere.is_empty() {
            nowhere(&self.nowhere, world, &mut faults);
        }
        faults.count("launch templates", self.launch_templates, world.region.launch_templates.len());
        for part in &self.all {
            faults.0.extend(part.faults(world));
        }
        faults.0
    }
}

/// Searches for texts in everything that Whittle wrote to EC2, to the cluster's events and to its decision log.
fn nowhere(texts: &[String], world: &World, faults: &mut Faults) {
    let templates = world.region.launch_templates.values().map(|template| format!("{template:?}"));
    let tags = world.region.machines.values().map(|machine| format!("{:?}", machine.instance.tags));
    let decisions = world.store.decisions(&world.name()).iter().map(|decision| format!("{} {}", decision.message, decision.detail));
    let events = world.cluster.events.iter().map(|kept| kept.event.message.clone());
    for written in templates.chain(tags).chain(decisions).chain(events) {
        for text in texts.iter().filter(|text| written.contains(text.as_str())) {
            faults.0.push(format!("{text:?} stands in {written}"));
        }
    }
}

/// Whether a Node is of a pool that was converted from a Provisioner.
fn is_converted(node: &Node) -> bool {
    node.metadata.label(labels::PROVISIONER_NAME).is_some()
}

impl Pods {
    fn check(&self, world: &World, faults: &mut Faults) {
        let of = |pod: &Pod| self.of.as_ref().is_none_or(|prefix| pod.metadata.name.starts_with(prefix.as_str()));
        let PodCounts { running, starting, pending } = world.cluster.pod_counts(of);
        let who = self.of.as_deref().unwrap_or("all");
        faults.count(&format!("running pods of {who}"), self.running, running);
        faults.count(&format!("starting pods of {who}"), self.starting, starting);
        faults.count(&format!("pending pods of {who}"), self.pending, pending);
        faults.count(&format!("pods of {who}"), self.total, running + starting + pending);
        let objects = &world.cluster.objects;
        let bound: Vec<&Pod> = objects.pods.values().filter(|pod| !pod.is_daemon() && of(pod) && pod.is_bound()).collect();
        let nodes: BTreeSet<&str> = bound.iter().map(|pod| pod.spec.node_name.as_str()).collect();
        faults.count(&format!("nodes under {who}"), self.nodes, nodes.len());
        for node in nodes.iter().filter_map(|name| objects.nodes.get(*name)) {
            let pool = node.metadata.label(labels::NODE_POOL).unwrap_or_default();
            faults.text(&format!("pool of node {} under {who}", node.metadata.name), self.pool.as_deref(), pool);
            if self.converted.is_some_and(|wanted| wanted != is_converted(node)) {
                faults.0.push(format!("a pod of {who} runs on node {} of the other pool {pool}", node.metadata.name));
            }
            if self.unmanaged == Some(true) && !pool.is_empty() {
                faults.0.push(format!("a pod of {who} runs on node {} of pool {pool}", node.metadata.name));
            }
        }
        for pod in objects.pods.values().filter(|pod| !pod.is_daemon() && of(pod)) {
            let requests = pod.spec.containers.first().and_then(|first| first.resources.as_ref()).map(|all| all.requests.clone());
            for (name, amount) in &self.request {
                let found = requests.as_ref().map(|requests| requests.get(name).to_string()).unwrap_or_default();
                faults.text(&format!("request {name} of pod {}", pod.metadata.name), Some(amount), &found);
            }
        }
    }
}

impl Nodes {
    fn selects(&self, node: &Node, world: &World) -> bool {
        let pool = self.pool.as_ref().is_none_or(|pool| node.metadata.label(labels::NODE_POOL) == Some(pool));
        let group = self.group.as_ref().is_none_or(|group| node.metadata.label("eks.amazonaws.com/nodegroup") == Some(group));
        let ready = self.ready.is_none_or(|ready| node.is_ready() == ready);
        let converted = self.converted.is_none_or(|wanted| wanted == is_converted(node));
        let tainted = self.tainted.as_ref().is_none_or(|key| node.spec.taints.iter().any(|taint| taint.key == *key));
        let mut pods = world.cluster.objects.pods_on(&node.metadata.name);
        let busy = self.busy.is_none_or(|wanted| wanted == pods.any(|pod| !pod.is_daemon()));
        pool && group && ready && converted && tainted && busy
    }

    fn check(&self, world: &World, faults: &mut Faults) {
        let chosen: Vec<&Node> = world.cluster.objects.nodes.values().filter(|node| self.selects(node, world)).collect();
        let who = self.pool.as_deref().or(self.group.as_deref()).unwrap_or("the cluster");
        faults.count(&format!("nodes of {who}"), self.count, chosen.len());
        for node in chosen {
            self.check_node(node, world, faults);
        }
    }

    fn check_node(&self, node: &Node, world: &World, faults: &mut Faults) {
        let name = &node.metadata.name;
        faults.map(&format!("node {name}, label"), &self.labels, &node.metadata.labels);
        faults.map(&format!("node {name}, annotation"), &self.annotations, &node.metadata.annotations);
        for key in self.without_labels.iter().filter(|key| node.metadata.labels.contains_key(*key)) {
            faults.0.push(format!("node {name} carries label {key}"));
        }
        let taints: Vec<String> = node.spec.taints.iter().map(ToString::to_string).collect();
        if let Some(taint) = self.taint.as_ref().filter(|taint| !taints.contains(taint)) {
            faults.0.push(format!("node {name}: wanted taint {taint}, found {}", taints.join(", ")));
        }
        if let Some(taint) = self.without_taint.as_ref().filter(|taint| taints.iter().any(|there| there.starts_with(taint.as_str()))) {
            faults.0.push(format!("node {name} carries taint {taint}"));
        }
        let facts = node.metadata.label(labels::INSTANCE_TYPE).and_then(|name| world.region.catalog.facts(name));
        let vcpus = facts.and_then(|facts| usize::try_from(facts.vcpus).ok()).unwrap_or(0);
        faults.count(&format!("vCPUs of node {name}"), self.vcpus, vcpus);
        let pods = usize::try_from(node.status.allocatable.get("pods").units_floor()).unwrap_or(0);
        faults.count(&format!("pods that node {name} takes"), self.max_pods, pods);
        let category = node.metadata.label(labels::INSTANCE_CATEGORY).unwrap_or_default();
        if !self.category.is_empty() && !self.category.iter().any(|one| one == category) {
            faults.0.push(format!("node {name} is of category {category:?}"));
        }
        let generation = node.metadata.label(labels::INSTANCE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or(0);
        faults.count(&format!("generation of node {name}"), self.generation, generation);
        for (resource, amount) in &self.allocatable {
            let found = node.status.allocatable.get(resource).to_string();
            faults.text(&format!("allocatable {resource} of node {name}"), Some(amount), &found);
        }
    }
}

impl Claims {
    fn check(&self, world: &World, faults: &mut Faults) {
        let cluster = world.name();
        let of = |claim: &&whittle_claims::Claim| {
            let converted = claim.spec.owner.kind == "Provisioner";
            self.pool.as_ref().is_none_or(|pool| claim.spec.node_pool == *pool) && self.converted.is_none_or(|wanted| wanted == converted)
        };
        let all: Vec<_> = world.store.claims(&cluster).map(|stored| &stored.value).filter(of).collect();
        let live: Vec<String> =
            all.iter().filter(|claim| claim.is_live()).map(|claim| format!("{} {}", claim.key.name, claim.phase.name())).collect();
        faults.count_of("live claims", self.live, &live);
        if !world.has_lost_its_table() {
            faults.count("claims ever made", self.made, all.len());
        }
    }
}

impl Machines {
    fn check(&self, world: &World, faults: &mut Faults) {
        let machines = &world.region.machines;
        let running: Vec<_> = machines.values().filter(|machine| machine.instance.is_alive()).collect();
        faults.count("running machines", self.running, running.len());
        faults.count("machines ever started", self.started, world.region.started());
        for machine in running {
            let (instance, template) = (&machine.instance, &machine.launch_template);
            let what = |field: &str| format!("{field} of machine {}", instance.id);
            faults.text(&what("type"), self.instance_type.as_deref(), &instance.instance_type);
            faults.text(&what("capacity type"), self.capacity_type.as_deref(), &instance.capacity_type);
            faults.text(&what("zone"), self.zone.as_deref(), &instance.zone);
            faults.text(&what("image"), self.image.as_deref(), &instance.image_id);
            faults.text(&what("instance profile"), self.profile.as_deref(), &template.instance_profile);
            let architecture = world.region.catalog.facts(&instance.instance_type).map_or("", |facts| facts.arch());
            faults.text(&what("architecture"), self.architecture.as_deref(), architecture);
            faults.map(&what("tag"), &self.tags, &instance.tags);
            for part in self.user_data.iter().filter(|part| !template.user_data.contains(part.as_str())) {
                faults.0.push(format!("{} lacks {part:?}", what("user data")));
            }
            let options = serde_json::to_value(&template.metadata_options).unwrap_or_default();
            for (name, wanted) in &self.metadata {
                let found =
                    options.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).unwrap_or_default();
                faults.text(&what(name), Some(wanted), &found);
            }
            let volume = template.block_device_mappings.first().and_then(|one| one.ebs.as_ref()).and_then(|ebs| ebs.volume_size.clone());
            faults.text(&what("volume size"), self.volume_size.as_deref(), &volume.unwrap_or_default());
        }
    }
}

impl Message {
    fn matches(&self, subject: &str, kind: &str, message: &str) -> bool {
        let message = message.to_lowercase();
        subject.contains(&self.about)
            && self.kind.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
            && self.says.iter().all(|part| message.contains(&part.to_lowercase()))
    }

    fn check_count(&self, sort: &str, found: usize, faults: &mut Faults) {
        let wanted = self.times.unwrap_or(Count { low: 1, high: i64::MAX });
        if !wanted.accepts(found) {
            let kind = self.kind.as_deref().unwrap_or("any");
            let says = self.says.join("\", \"");
            faults.0.push(format!("{sort} of kind {kind} about {:?} that say \"{says}\": wanted {wanted}, found {found}", self.about));
        }
    }

    fn check_decisions(&self, world: &World, faults: &mut Faults) {
        let found = world.store.decisions(&world.name()).iter().filter(|decision| {
            let kind = serde_json::to_value(decision.kind).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
            self.matches(&decision.subject, &kind, &format!("{} {}", decision.message, decision.detail))
        });
        self.check_count("decisions", found.count(), faults);
    }

    fn check_events(&self, world: &World, faults: &mut Faults) {
        let found = world.cluster.events.iter().filter(|kept| {
            let event = &kept.event;
            let subject = format!("{}/{}/{}", event.kind.to_lowercase(), event.namespace, event.name);
            self.matches(&subject, &event.reason, &event.message)
        });
        self.check_count("events", found.count(), faults);
    }
}

impl Class {
    fn check(&self, world: &World, faults: &mut Faults) {
        let classes = &world.cluster.objects.node_classes;
        let Some(class) = classes.values().find(|class| class.metadata.name == self.name) else {
            faults.0.push(format!("there is no class {}", self.name));
            return;
        };
        let ready = conditions::is_true(&class.status.conditions, conditions::READY);
        if self.ready.is_some_and(|wanted| wanted != ready) {
            faults.0.push(format!("class {} is {}", self.name, if ready { "ready" } else { "not ready" }));
        }
        let messages: String = class
            .status
            .conditions
            .iter()
            .filter(|condition| condition.status != ConditionStatus::True)
            .map(|condition| format!("{} {} {}\n", condition.type_, condition.reason, condition.message))
            .collect();
        for part in self.says.iter().filter(|part| !messages.to_lowercase().contains(&part.to_lowercase())) {
            faults.0.push(format!("class {} does not say {part:?}; it says {messages:?}", self.name));
        }
        faults.count("subnets of the class", self.subnets, class.status.subnets.len());
        faults.count("security groups of the class", self.security_groups, class.status.security_groups.len());
        for image in self.images.iter().filter(|image| !class.status.amis.iter().any(|ami| ami.id == **image)) {
            faults.0.push(format!("class {} does not use image {image}", self.name));
        }
        let images = class.status.amis.iter().map(|ami| ami.id.as_str());
        only(&format!("images of class {}", self.name), &self.only_images, images, faults);
        let groups = class.status.security_groups.iter().map(|group| group.id.as_str());
        only(&format!("security groups of class {}", self.name), &self.only_groups, groups, faults);
    }
}

fn only<'a>(what: &str, wanted: &[String], found: impl Iterator<Item = &'a str>, faults: &mut Faults) {
    let (wanted, found): (BTreeSet<&str>, BTreeSet<&str>) = (wanted.iter().map(String::as_str).collect(), found.collect());
    if !wanted.is_empty() && wanted != found {
        faults.0.push(format!("{what}: wanted {wanted:?}, found {found:?}"));
    }
}

impl PoolObject {
    fn check(&self, world: &World, faults: &mut Faults) {
        let named = |pool: &&NodePool| pool.metadata.name == self.name && pool.is_converted_provisioner() == self.converted;
        let found = world.cluster.objects.node_pools.values().find(named);
        if self.exists == Some(false) {
            faults.0.extend(found.map(|_| format!("there is still a pool {}", self.name)));
            return;
        }
        let Some(pool) = found else {
            faults.0.push(format!("there is no pool {}", self.name));
            return;
        };
        let ready = conditions::is_true(&pool.status.conditions, conditions::READY);
        if self.ready.is_some_and(|wanted| wanted != ready) {
            faults.0.push(format!("pool {} is {}", self.name, if ready { "ready" } else { "not ready" }));
        }
        let json = serde_json::to_value(pool).unwrap_or_default();
        for (path, wanted) in &self.fields {
            let value = json.pointer(&format!("/{path}"));
            let value = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).unwrap_or_default();
            faults.text(&format!("{path} of pool {}", self.name), Some(wanted), &value);
        }
    }
}

impl Budget {
    fn check(&self, world: &World, faults: &mut Faults) {
        let Some(budget) = world.cluster.objects.budgets.values().find(|budget| budget.metadata.name == self.name) else {
            faults.0.push(format!("there is no disruption budget {}", self.name));
            return;
        };
        let status = world.cluster.budget_status(budget);
        let size = |number: i32| usize::try_from(number).unwrap_or(0);
        faults.count(&format!("disruptions that {} allows", self.name), self.allowed, size(status.disruptions_allowed));
        faults.count(&format!("healthy pods under {}", self.name), self.healthy, size(status.current_healthy));
    }
}
