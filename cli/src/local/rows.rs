//! The objects of each kind as rows of a table.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use whittle_api::k8s::{
    DaemonSet, Deployment, IntOrString, Kind, Node, Pod, PodDisruptionBudget, PodSpec, PodTemplate, PriorityClass, ReplicaSet, Service,
    StatefulSet,
};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_api::{Condition, LabelSelector, ObjectMeta, OwnerReference, conditions, labels};
use whittle_claims::{Claim, NodeClassRecord, Stored};
use whittle_model::pods::effective_requests;
use whittle_sim::World;
use whittle_sim::cluster::{Cluster, KeptEvent};
use whittle_units::{InstanceId, Resources};

/// The cells of a row: those that are always shown, and those of `-o wide`.
pub(crate) type Cells = (Vec<String>, Vec<String>);

/// An object as a command lists it. Cells and JSON are made when they are shown.
pub(crate) struct Listed<'a> {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// When it was created; when it was last seen for an Event.
    pub(crate) since: Option<Timestamp>,
    pub(crate) cells: Box<dyn Fn() -> Cells + 'a>,
    pub(crate) json: Box<dyn Fn() -> Value + 'a>,
}

static UNLABELLED: BTreeMap<String, String> = BTreeMap::new();

/// Objects as rows.
fn all<'a, T: Kind + Serialize + 'a>(
    world: &'a World,
    objects: impl IntoIterator<Item = &'a T>,
    cells: fn(&World, &T) -> Cells,
) -> Vec<Listed<'a>> {
    let listed = |object: &'a T| Listed {
        namespace: object.meta().namespace.clone(),
        name: NodePool::given_name(&object.meta().name).to_owned(),
        labels: &object.meta().labels,
        since: object.meta().creation_timestamp,
        cells: Box::new(move || cells(world, object)),
        json: Box::new(move || tagged(T::API_VERSION, T::KIND, object)),
    };
    objects.into_iter().map(listed).collect()
}

fn tagged<T: Serialize>(api_version: &str, kind: &str, object: &T) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = Value::from(api_version);
    value["kind"] = Value::from(kind);
    value
}

fn nothing<T>(_: &World, _: &T) -> Cells {
    (Vec::new(), Vec::new())
}

fn dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

/// A list in a cell.
fn joined(parts: impl IntoIterator<Item = String>) -> String {
    let parts: Vec<String> = parts.into_iter().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(",") }
}

fn selector(selector: &LabelSelector) -> String {
    let expressions = selector.match_expressions.iter().map(|each| format!("{} {}", each.key, each.operator));
    joined(selector.match_labels.iter().map(|(key, value)| format!("{key}={value}")).chain(expressions))
}

/// The pool of a node. A Provisioner may have the name of a NodePool, so that its nodes are marked.
pub(crate) fn pool_of(node: &Node) -> String {
    match node.metadata.label(labels::PROVISIONER_NAME) {
        Some(provisioner) => format!("{}{provisioner}", NodePool::TWIN_PREFIX),
        None => dash(node.metadata.label(labels::NODE_POOL)),
    }
}

pub(crate) fn nodes(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.nodes.values(), node_cells)
}

fn node_cells(world: &World, node: &Node) -> Cells {
    let label = |key: &str| dash(node.metadata.label(key));
    let mut status = vec![if node.is_ready() { "Ready" } else { "NotReady" }];
    if node.spec.unschedulable {
        status.push("SchedulingDisabled");
    }
    if node.has_disrupted_taint() {
        status.push("Disrupted");
    }
    if node.metadata.is_deleting() {
        status.push("Deleting");
    }
    let id = node.spec.provider_id.rsplit('/').next().map(InstanceId::new).unwrap_or_default();
    let machine = world.region.machines.get(&id);
    let on_it: Vec<&Pod> = world.cluster.objects.pods_on(&node.metadata.name).filter(|pod| !pod.is_terminal()).collect();
    let mut used = Resources::new();
    on_it.iter().for_each(|pod| used.add(&effective_requests(pod)));
    let share = |resource: &str| format!("{}/{}", amount(&used, resource), amount(&node.status.allocatable, resource));
    let shown = vec![
        status.join(","),
        pool_of(node),
        label(labels::INSTANCE_TYPE),
        label(labels::CAPACITY_TYPE),
        label(labels::ZONE),
        on_it.iter().filter(|pod| !pod.is_daemon()).count().to_string(),
        machine.map_or("-".to_owned(), |machine| machine.price.to_string()),
    ];
    let wide = vec![
        share("cpu"),
        share("memory"),
        dash(Some(id.as_str())),
        dash(Some(&node.status.node_info.kubelet_version)),
        joined(node.spec.taints.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect))),
    ];
    (shown, wide)
}

/// An amount in Kubernetes' canonical form.
fn amount(resources: &Resources, name: &str) -> String {
    resources.get(name).text_of(name)
}

/// What `kubectl get pods` calls the state of a pod.
pub(crate) fn pod_status(pod: &Pod) -> String {
    if pod.metadata.is_deleting() { "Terminating".to_owned() } else { pod.status.phase.clone() }
}

pub(crate) fn pods(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.pods.values(), |_, pod| {
        let requests = effective_requests(pod);
        let waits = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
        let wide = vec![amount(&requests, "cpu"), amount(&requests, "memory"), dash(waits.map(|waits| waits.message.as_str()))];
        (vec![pod_status(pod), dash(Some(&pod.spec.node_name))], wide)
    })
}

/// Pods of an owner: those that are there, and those that are ready.
fn owned<'a>(pods: impl Iterator<Item = &'a Pod>) -> (usize, usize) {
    let (mut there, mut ready) = (0, 0);
    for pod in pods.filter(|pod| !pod.metadata.is_deleting() && !pod.is_terminal()) {
        there += 1;
        ready += usize::from(pod.condition("Ready").is_some_and(|condition| condition.status == "True"));
    }
    (there, ready)
}

/// The progress of a Deployment: pods that it wants, that have its newest template, and that are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) wanted: usize,
    pub(crate) there: usize,
    pub(crate) updated: usize,
    pub(crate) updated_ready: usize,
    pub(crate) ready: usize,
}

/// How far a Deployment has come.
pub(crate) fn progress(world: &World, deployment: &Deployment) -> Progress {
    let key = deployment.metadata.key();
    let is_its = |pod: &&Pod| world.cluster.deployment_of(pod).is_some_and(|owner| owner.metadata.key() == key);
    let pods: Vec<&Pod> = world.cluster.objects.pods.values().filter(is_its).collect();
    let hash = Cluster::template_hash(deployment);
    let newest = |pod: &&&Pod| pod.metadata.label("pod-template-hash") == Some(hash.as_str());
    let ((there, ready), (updated, updated_ready)) = (owned(pods.iter().copied()), owned(pods.iter().filter(newest).copied()));
    let wanted = usize::try_from(deployment.spec.replicas.unwrap_or(1)).unwrap_or(0);
    Progress { wanted, there, updated, updated_ready, ready }
}

pub(crate) fn deployments(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.deployments.values(), |world, deployment: &Deployment| {
        let Progress { wanted, updated, ready, .. } = progress(world, deployment);
        (vec![format!("{ready}/{wanted}"), updated.to_string(), ready.to_string()], vec![selector(&deployment.spec.selector)])
    })
}

pub(crate) fn daemon_sets(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.daemon_sets.values(), |world, set: &DaemonSet| {
        let is_its = |pod: &&Pod| {
            let owner = pod.metadata.controller();
            pod.is_daemon()
                && pod.metadata.namespace == set.metadata.namespace
                && owner.is_some_and(|owner| owner.name == set.metadata.name)
        };
        let (there, ready) = owned(world.cluster.objects.pods.values().filter(is_its));
        (vec![there.to_string(), ready.to_string()], vec![selector(&set.spec.selector)])
    })
}

/// The ReplicaSets that were applied, and those of Deployments, which are only known by their pods.
pub(crate) fn replica_sets(world: &World) -> Vec<Listed<'_>> {
    let objects = &world.cluster.objects;
    let mut listed = all(world, objects.replica_sets.values(), |_, set: &ReplicaSet| {
        (vec![set.spec.replicas.unwrap_or(1).to_string(), "0".to_owned(), "0".to_owned()], Vec::new())
    });
    let mut sets: BTreeMap<(&str, &str), Vec<&Pod>> = BTreeMap::new();
    for pod in objects.pods.values() {
        if let Some(owner) = pod.metadata.controller().filter(|owner| owner.kind == ReplicaSet::KIND) {
            sets.entry((&pod.metadata.namespace, &owner.name)).or_default().push(pod);
        }
    }
    for ((namespace, name), pods) in sets {
        let Some(first) = pods.first().copied() else { continue };
        let since = pods.iter().filter_map(|pod| pod.metadata.creation_timestamp).min();
        let count = pods.len();
        let cells = move || {
            let (there, ready) = owned(pods.iter().copied());
            (vec![there.to_string(), there.to_string(), ready.to_string()], Vec::new())
        };
        let json = move || {
            let mut metadata = ObjectMeta { labels: first.metadata.labels.clone(), ..ObjectMeta::namespaced(namespace, name) };
            metadata.uid = first.metadata.controller().map(|owner| owner.uid.clone()).unwrap_or_default();
            metadata.owner_references = world.cluster.deployment_of(first).map(owner_reference).into_iter().collect::<Vec<_>>().into();
            let template = PodTemplate {
                metadata: ObjectMeta { labels: first.metadata.labels.clone(), ..ObjectMeta::default() },
                spec: PodSpec { node_name: String::new(), ..first.spec.clone() },
            };
            let spec = json!({"replicas": count, "selector": {"matchLabels": first.metadata.labels}, "template": template});
            json!({"apiVersion": ReplicaSet::API_VERSION, "kind": ReplicaSet::KIND, "metadata": metadata, "spec": spec})
        };
        let labels = &first.metadata.labels;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        listed.push(Listed { namespace, name, labels, since, cells: Box::new(cells), json: Box::new(json) });
    }
    listed
}

/// The reference by which a ReplicaSet belongs to its Deployment.
fn owner_reference(deployment: &Deployment) -> OwnerReference {
    OwnerReference {
        api_version: Deployment::API_VERSION.to_owned(),
        kind: Deployment::KIND.to_owned(),
        name: deployment.metadata.name.clone(),
        uid: deployment.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

pub(crate) fn stateful_sets(world: &World) -> Vec<Listed<'_>> {
    let cells =
        |_: &World, set: &StatefulSet| (vec![format!("0/{} (its pods are not simulated)", set.spec.replicas.unwrap_or(1))], Vec::new());
    all(world, world.cluster.objects.stateful_sets.values(), cells)
}

pub(crate) fn budgets(world: &World) -> Vec<Listed<'_>> {
    fn bound(value: Option<&IntOrString>) -> String {
        match value {
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::Text(text)) => text.clone(),
            None => "N/A".to_owned(),
        }
    }
    all(world, world.cluster.objects.budgets.values(), |_, budget: &PodDisruptionBudget| {
        let spec = &budget.spec;
        let allowed = budget.status.disruptions_allowed.to_string();
        (vec![bound(spec.min_available.as_ref()), bound(spec.max_unavailable.as_ref()), allowed], Vec::new())
    })
}

/// `True`, or `False` with the reason of the first condition that is not met.
fn readiness(all: &[Condition]) -> String {
    if conditions::is_true(all, conditions::READY) {
        return "True".to_owned();
    }
    let unmet = whittle_model::scheduling::unmet(all);
    unmet.map_or_else(|| "Unknown".to_owned(), |condition| format!("{:?} ({})", condition.status, condition.reason))
}

/// Of an object without any status what Whittle knows of its class: in shadow mode it writes none.
fn unwritten(record: Option<&NodeClassRecord>) -> String {
    match record {
        Some(record) if record.is_ready() => "True (shadow)".to_owned(),
        Some(_) => "False (shadow)".to_owned(),
        None => "Unknown".to_owned(),
    }
}

/// What Whittle found of the classes.
fn class_records(world: &World) -> Vec<NodeClassRecord> {
    world.store.read_all::<NodeClassRecord>(&world.name(), world.now()).into_iter().map(|stored| stored.value).collect()
}

fn pool_cells(world: &World, pool: &NodePool) -> Cells {
    let status = &pool.status;
    let limits = pool.spec.limits.iter().map(|(name, limit)| format!("{name}={}", limit.text_of(name)));
    let class = pool.spec.template.spec.node_class_ref.name.clone();
    let weight = pool.spec.weight.map_or("-".to_owned(), |weight| weight.to_string());
    let wide = vec![weight, amount(&status.resources, "cpu"), amount(&status.resources, "memory"), joined(limits)];
    let ready = if status.conditions.is_empty() {
        unwritten(NodeClassRecord::referenced(&class_records(world), &class, pool.is_converted_provisioner()))
    } else {
        readiness(&status.conditions)
    };
    (vec![class, status.nodes.to_string(), ready], wide)
}

pub(crate) fn node_pools(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.node_pools.values().filter(|pool| !pool.is_converted_provisioner()), pool_cells)
}

/// NodePools that were converted from Provisioners.
pub(crate) fn provisioners(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.node_pools.values().filter(|pool| pool.is_converted_provisioner()), pool_cells)
}

fn class_cells(world: &World, class: &Ec2NodeClass) -> Cells {
    let records = class_records(world);
    let record = records.iter().find(|record| record.is_of(class)).filter(|_| class.status.conditions.is_empty());
    let found = record.map(NodeClassRecord::resolved_class);
    let status = found.as_ref().map_or(&class.status, |found| &found.status);
    let counts = [status.amis.len(), status.subnets.len(), status.security_groups.len()];
    let ready = if class.status.conditions.is_empty() { unwritten(record) } else { readiness(&class.status.conditions) };
    let shown = std::iter::once(ready).chain(counts.map(|count| count.to_string())).collect();
    (shown, vec![dash(status.instance_profile.as_deref()), joined(status.subnets.iter().map(|subnet| subnet.zone.clone()))])
}

pub(crate) fn node_classes(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.node_classes.values().filter(|class| !class.is_converted_template()), class_cells)
}

/// EC2NodeClasses that were converted from AWSNodeTemplates.
pub(crate) fn node_templates(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.node_classes.values().filter(|class| class.is_converted_template()), class_cells)
}

/// Live claims, which are the truth, and NodeClaims that no claim has answered yet.
pub(crate) fn claims(world: &World) -> Vec<Listed<'_>> {
    let cluster = world.name();
    let objects = &world.cluster.objects.node_claims;
    let live: Vec<&Stored<Claim>> = world.store.claims(&cluster).filter(|stored| stored.value.is_live()).collect();
    let unanswered = |claim: &&NodeClaim| !live.iter().any(|stored| stored.value.key.name.as_str() == claim.metadata.name);
    let mut listed = all(world, objects.values().filter(unanswered), |_, claim: &NodeClaim| {
        let mut shown = vec!["-".to_owned(); 7];
        shown[1] = dash(claim.metadata.label(labels::NODE_POOL));
        (shown, vec!["-".to_owned(); 2])
    });
    listed.extend(live.iter().map(|stored| listed_claim(world, &stored.value)));
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    listed
}

fn listed_claim<'a>(world: &'a World, claim: &'a Claim) -> Listed<'a> {
    let name = claim.key.name.to_string();
    let mirror = world.cluster.objects.node_claims.get(&name);
    let since = mirror.and_then(|mirror| mirror.metadata.creation_timestamp).or(claim.machine().map(|machine| machine.launched_at));
    let bare = json!({"apiVersion": NodeClaim::API_VERSION, "kind": NodeClaim::KIND, "metadata": {"name": name.clone()}});
    let json = move || mirror.map_or_else(|| bare.clone(), |mirror| tagged(NodeClaim::API_VERSION, NodeClaim::KIND, mirror));
    Listed {
        namespace: String::new(),
        name,
        labels: mirror.map_or(&UNLABELLED, |mirror| &mirror.metadata.labels),
        since,
        cells: Box::new(move || claim_cells(claim)),
        json: Box::new(json),
    }
}

fn claim_cells(claim: &Claim) -> Cells {
    let machine = claim.machine();
    let old = claim.spec.owner.kind == "Provisioner";
    let pool = if old { format!("{}{}", NodePool::TWIN_PREFIX, claim.spec.owner.name) } else { claim.spec.node_pool.clone() };
    let of = |text: fn(&whittle_claims::Machine) -> String| machine.map_or("-".to_owned(), text);
    let shown = vec![
        claim.phase.name().to_owned(),
        pool,
        of(|machine| machine.instance_type.clone()),
        of(|machine| machine.capacity_type.clone()),
        of(|machine| machine.zone.clone()),
        of(|machine| machine.instance_id.to_string()),
        dash(claim.node_name()),
    ];
    (shown, vec![of(|machine| machine.price.to_string()), of(|machine| machine.image_id.clone())])
}

pub(crate) fn overlays(world: &World) -> Vec<Listed<'_>> {
    let cells = |_: &World, overlay: &NodeOverlay| (vec![readiness(&overlay.status.conditions)], Vec::new());
    all(world, world.cluster.objects.node_overlays.values(), cells)
}

pub(crate) fn buffers(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.capacity_buffers.values(), |_, buffer: &CapacityBuffer| {
        let replicas = buffer.status.replicas.map_or("-".to_owned(), |replicas| replicas.to_string());
        let ready = conditions::is_true(&buffer.status.conditions, conditions::READY_FOR_PROVISIONING);
        (vec![replicas, if ready { "True" } else { "False" }.to_owned()], Vec::new())
    })
}

/// The name of an Event as an object: that of what it is about, and something that tells it from others.
fn event_name(event: &whittle_ports::ClusterEvent) -> String {
    let mut hasher = DefaultHasher::new();
    (&event.kind, &event.reason, &event.message).hash(&mut hasher);
    format!("{}.{:016x}", event.name, hasher.finish())
}

/// Events, the same one about the same object once with its count, last seen last.
pub(crate) fn events(world: &World) -> Vec<Listed<'_>> {
    let mut once: BTreeMap<_, (&KeptEvent, u32)> = BTreeMap::new();
    for kept in &world.cluster.events {
        let (last, count) = once.entry(&kept.event).or_insert((kept, 0));
        (*last, *count) = (kept, *count + kept.count);
    }
    let mut seen: Vec<(&KeptEvent, u32)> = once.into_values().collect();
    seen.sort_by_key(|(kept, _)| kept.last);
    let listed = |(kept, count): (&'_ KeptEvent, u32)| (kept.last, count, kept.event.clone());
    let row = |(at, count, event): (Timestamp, u32, whittle_ports::ClusterEvent)| {
        let object = format!("{}/{}", event.kind.to_lowercase(), event.name);
        // Where Kubernetes keeps Events about what is in no namespace.
        let namespace = if event.namespace.is_empty() { "default".to_owned() } else { event.namespace.clone() };
        let times = if count < 2 { String::new() } else { format!(" (x{count})") };
        let kind = if event.warning { "Warning" } else { "Normal" }.to_owned();
        let cells = (vec![object, kind, event.reason.clone(), format!("{}{times}", event.message)], Vec::new());
        let json = json!({
            "apiVersion": "v1", "kind": "Event", "type": cells.0[1], "reason": event.reason, "message": event.message, "count": count,
            "lastTimestamp": at,
            "metadata": {"name": event_name(&event), "namespace": namespace, "creationTimestamp": at},
            "involvedObject": {"apiVersion": event.api_version, "kind": event.kind, "namespace": event.namespace, "name": event.name},
        });
        Listed {
            namespace,
            name: event.name,
            labels: &UNLABELLED,
            since: Some(at),
            cells: Box::new(move || cells.clone()),
            json: Box::new(move || json.clone()),
        }
    };
    seen.into_iter().map(listed).map(row).collect()
}

pub(crate) fn services(world: &World) -> Vec<Listed<'_>> {
    all(world, world.cluster.objects.services.values(), |_, service: &Service| {
        (vec![joined(service.spec.selector.iter().map(|(key, value)| format!("{key}={value}")))], Vec::new())
    })
}

pub(crate) fn config_maps(world: &World) -> Vec<Listed<'_>> {
    let cells = |_: &World, map: &whittle_api::k8s::ConfigMap| (vec![map.data.len().to_string()], Vec::new());
    all(world, world.cluster.objects.config_maps.values(), cells)
}

pub(crate) fn priority_classes(world: &World) -> Vec<Listed<'_>> {
    let cells = |_: &World, class: &PriorityClass| (vec![class.value.to_string(), class.global_default.to_string()], Vec::new());
    all(world, world.cluster.objects.priority_classes.values(), cells)
}

macro_rules! plain_rows {
    ($($name:ident: $table:ident),* $(,)?) => {$(
        pub(crate) fn $name(world: &World) -> Vec<Listed<'_>> {
            all(world, world.cluster.objects.$table.values(), nothing)
        }
    )*};
}

plain_rows! {
    namespaces: namespaces,
    volume_claims: volume_claims,
    volumes: volumes,
    storage_classes: storage_classes,
    pod_templates: pod_templates,
    csi_nodes: csi_nodes,
    volume_attachments: volume_attachments,
}
