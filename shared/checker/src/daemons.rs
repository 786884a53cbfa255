//! Checks that no new machine takes a pod beside one of a DaemonSet that is sure to be there, if the required anti-affinity by host of
//! either selects the other (scheduling 21). What only may be is for the solver to see to.

use super::Findings;
use super::kube::{self, PossibleLabels};
use super::type_lists::TypeLists;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{DaemonSet, Pod, PodAffinityTerm, PodSpec, Taint, TaintEffect};
use whittle_api::karpenter::NodePool;
use whittle_api::{ObjectMeta, labels};
use whittle_model::scheduling::{Input, Plan};

pub(crate) fn check<'a>(
    input: &Input<'a>,
    plan: &'a Plan,
    lists: &TypeLists<'a>,
    pods: &BTreeMap<String, &'a Pod>,
    findings: &mut Findings,
) {
    let daemons: Vec<Daemon> = input.objects.daemon_sets.iter().filter_map(|set| Daemon::of(set, input)).collect();
    if daemons.is_empty() {
        return;
    }
    let pools: BTreeMap<&str, &NodePool> = input.objects.node_pools.iter().rev().map(|p| (p.metadata.name.as_str(), p)).collect();
    // By list and daemon: a type of the list on which the daemon is sure to run.
    let mut sure: HashMap<(usize, usize), Option<&str>> = HashMap::new();
    for (n, claim) in plan.claims.iter().enumerate() {
        let Some(pool) = pools.get(claim.node_pool.as_str()) else { continue };
        let list = lists.index(n);
        for pod in claim.pods.iter().filter_map(|pod| pods.get(&pod.key())) {
            for (at, daemon) in daemons.iter().enumerate().filter(|(_, daemon)| daemon.excludes(pod, input)) {
                let first = || lists.all[list].known().find(|t| daemon.is_sure_on(pool, t)).map(|t| t.name.as_str());
                if let Some(name) = sure.entry((list, at)).or_insert_with(first) {
                    let detail = format!("{} may not be beside {}, which runs on {name}", pod.metadata.key(), daemon.pod.metadata.key());
                    findings.add(&format!("claim {n}"), "anti-affinity", detail);
                }
            }
        }
    }
}

/// A DaemonSet whose pods its controller makes, which need no others, and which tolerate every taint: they are on a node before that is
/// ready. The pods of others are made when taints are gone, by which time other pods may be bound.
struct Daemon {
    /// As the template has it.
    pod: Pod,
    priority: i32,
    /// The labels that say where it runs.
    keys: BTreeSet<String>,
}

impl Daemon {
    fn of(set: &DaemonSet, input: &Input<'_>) -> Option<Self> {
        let template = &set.spec.template;
        let named = ObjectMeta::namespaced(set.metadata.namespace.clone(), set.metadata.name.clone());
        let metadata = ObjectMeta { labels: template.metadata.labels.clone(), ..named };
        let pod = Pod { metadata, spec: template.spec.clone(), ..Pod::default() };
        let needs_others = pod.spec.affinity.iter().filter_map(|a| a.pod_affinity.as_ref()).any(|near| !near.required.is_empty())
            || anti_affinity_terms(&pod).any(|term| term.topology_key != labels::HOSTNAME);
        let live: Vec<&Pod> = input.objects.pods.iter().filter(|pod| is_owned(pod, set)).collect();
        let is_made = !live.is_empty() || input.nodes.is_empty();
        // While pods of an older template run, which of both counts is not checked.
        let is_same = live.iter().all(|live| is_as(live, &pod));
        let every = |effect: TaintEffect| kube::tolerates(&pod, &Taint::new("any.example.com/taint", effect));
        let is_first = every(TaintEffect::NoSchedule) && every(TaintEffect::NoExecute);
        if set.metadata.is_deleting() || needs_others || !is_made || !is_same || !is_first || !pod.spec.resource_claims.is_empty() {
            return None;
        }
        let priorities = live.iter().map(|live| priority(&live.spec, input)).chain([priority(&pod.spec, input)]);
        let least = priorities.min().unwrap_or_default();
        Some(Self { priority: least, keys: kube::referenced_label_keys(std::iter::once(&pod)), pod })
    }

    /// Whether kube-scheduler binds the pod nowhere beside this one. A pod of higher priority has it evicted.
    fn excludes(&self, pod: &Pod, input: &Input<'_>) -> bool {
        let selects = |owner: &Pod, other: &Pod| {
            let mut terms = anti_affinity_terms(owner).filter(|term| term.topology_key == labels::HOSTNAME);
            terms.any(|term| kube::all_select(std::slice::from_ref(term), owner, other, &input.objects.namespaces))
        };
        // One that tolerates what a node joins with may be bound before the daemon is made.
        let waits = || {
            let joining = [(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute), ("node.kubernetes.io/not-ready", TaintEffect::NoSchedule)];
            joining.into_iter().any(|(key, effect)| !kube::tolerates(pod, &Taint::new(key, effect)))
        };
        (selects(pod, &self.pod) || selects(&self.pod, pod)) && waits() && priority(&pod.spec, input) <= self.priority
    }

    /// Whether it runs on each machine that the NodePool may have of the type, from its start.
    fn is_sure_on(&self, pool: &NodePool, instance_type: &InstanceType) -> bool {
        let spec = &pool.spec.template.spec;
        let possible = possible_labels(pool, instance_type);
        // A label that something is asked of, and that no list of values says, may have any.
        let asked = spec.requirements.iter().chain(instance_type.requirements.iter().filter(|r| r.operator.as_str() != "DoesNotExist"));
        let is_open = |key: &str| self.keys.contains(key) && !possible.contains_key(key);
        let is_known = asked.map(|r| labels::normalized(&r.key)).chain([labels::PROVISIONER_NAME]).all(|key| !is_open(key));
        let mut taints = spec.taints.iter().chain(&spec.startup_taints);
        is_known && taints.all(|taint| kube::tolerates(&self.pod, taint)) && kube::node_fits(&self.pod, &possible)
    }
}

/// The values of labels on machines of a NodePool and type, whatever their pods ask for.
fn possible_labels(pool: &NodePool, instance_type: &InstanceType) -> PossibleLabels {
    let template = &pool.spec.template;
    let class = &template.spec.node_class_ref;
    let one = |value: &str| BTreeSet::from([Some(value.to_owned())]);
    let mut out: PossibleLabels =
        template.metadata.labels.iter().map(|(key, value)| (labels::normalized(key).to_owned(), one(value))).collect();
    out.insert(labels::NODE_POOL.to_owned(), one(&pool.metadata.name));
    out.insert(format!("{}/{}", class.group, class.kind.to_lowercase()), one(&class.name));
    out.insert(labels::HOSTNAME.to_owned(), one("?"));
    for key in [labels::REGISTERED, labels::INITIALIZED] {
        out.insert(key.to_owned(), one("true"));
    }
    for own in instance_type.requirements.iter().filter(|r| r.operator.as_str() == "In") {
        let key = labels::normalized(&own.key);
        let asked = || template.spec.requirements.iter().filter(|r| labels::normalized(&r.key) == key);
        let is_allowed = |value: &&String| asked().all(|r| kube::admits(r.operator.as_str(), &r.values, Some(value.as_str())));
        out.entry(key.to_owned()).or_default().extend(own.values.iter().filter(is_allowed).cloned().map(Some));
    }
    out
}

fn anti_affinity_terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    pod.spec.affinity.iter().filter_map(|a| a.pod_anti_affinity.as_ref()).flat_map(|a| &a.required)
}

/// Whether the DaemonSet's controller has made the pod.
fn is_owned(pod: &Pod, set: &DaemonSet) -> bool {
    let mut owners = pod.metadata.owner_references.iter();
    pod.metadata.namespace == set.metadata.namespace
        && owners.any(|o| o.kind == "DaemonSet" && o.api_version == "apps/v1" && o.name == set.metadata.name)
}

/// Whether a pod of a DaemonSet goes where those of its template go, and is apart from the same pods.
fn is_as(live: &Pod, template: &Pod) -> bool {
    live.metadata.labels.iter().filter(|(key, _)| template.metadata.labels.contains_key(*key)).eq(&template.metadata.labels)
        && live.spec.node_selector == template.spec.node_selector
        && template.spec.tolerations.iter().all(|toleration| live.spec.tolerations.contains(toleration))
        && anti_affinity_terms(live).eq(anti_affinity_terms(template))
}

/// The priority of a pod, or of a template, which names its class alone.
fn priority(spec: &PodSpec, input: &Input<'_>) -> i32 {
    let classes = &input.objects.priority_classes;
    let named = || match spec.priority_class_name.as_str() {
        "system-node-critical" => Some(2_000_001_000),
        "system-cluster-critical" => Some(2_000_000_000),
        "" => classes.iter().find(|class| class.global_default).map(|class| class.value),
        name => classes.iter().find(|class| class.metadata.name == name).map(|class| class.value),
    };
    spec.priority.or_else(named).unwrap_or_default()
}
