//! Where pods of DaemonSets will be: who has to be on the host of one, or in its zone, goes where that one goes, and who must not be there
//! goes elsewhere (scheduling 21).

use super::builder::ProblemBuilder;
use super::groups::PodSelection;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_api::k8s::{DaemonSet, Pod, PodAffinityTerm, PodSpec, Taint, TaintEffect, Toleration};
use whittle_api::{conditions, labels};
use whittle_model::pods;
use whittle_model::requirements::{Allowed, Requirements, from_labels};
use whittle_model::state::StateNode;
use whittle_units::{SignedDuration, Timestamp};

/// How long a node that is initialized may lack pods of DaemonSets that are still expected, since it was or since they ended there: their
/// controllers make them within seconds.
const EXPECTED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// The DaemonSets that stay and whose pods need no others. They are read when the first pod needs them: few clusters have one that does.
#[derive(Default)]
pub(crate) struct FutureDaemons {
    list: OnceCell<Vec<FutureDaemon>>,
    /// By what pods have to be near: the zones in which such pods run.
    kin_zones: RefCell<BTreeMap<PodSelection, Names>>,
    /// The hosts that lack such pods for good; `None` if the daemons are refused on one of these.
    lacking: RefCell<BTreeMap<NearDaemons, Option<Names>>>,
}

/// Names of zones or hosts.
type Names = Rc<BTreeSet<String>>;

/// What pods have to be near, and which daemons are such pods.
type NearDaemons = (PodSelection, Vec<usize>);

struct FutureDaemon {
    /// As the template has it: the pods that run may be of an older one.
    pod: Pod,
    /// The alternatives of its node constraints; none if a NodeClaim could not have them.
    places: Vec<Requirements>,
    /// It has pods.
    runs: bool,
    is_made: OnceCell<bool>,
}

impl FutureDaemons {
    /// The node constraints of the DaemonSet whose pods meet the required affinity of `pod`, which selects `near`, on each node that `pod`
    /// may use, without the nodes that lack such a pod for good; `places` are those of its volumes. `None` if that affinity is by keys
    /// other than host and zone, or by zone alone and met in a zone where the pod may go, or by its own kind, or if no DaemonSet meets it,
    /// or not in one place alone, or if its pods are refused on some node.
    pub(crate) fn place_beside(
        &self,
        builder: &ProblemBuilder<'_>,
        (pod, places): (&Pod, &[Requirements]),
        near: &PodSelection,
    ) -> Option<Requirements> {
        let terms = &pod.spec.affinity.as_ref()?.pod_affinity.as_ref()?.required;
        let has_key = |key: &str| terms.iter().any(|term| term.topology_key == key);
        if terms.iter().any(|term| ![labels::HOSTNAME, labels::ZONE].contains(&term.topology_key.as_str())) {
            return None;
        }
        let own = alternatives(pod, places);
        let counted = self.meeting(builder, pod, near, &own);
        let daemons = self.list(builder);
        // Of alternatives the pod could not know which will hold.
        let first = &daemons[*counted.first()?].places;
        let [place] = &first[..] else { return None };
        if counted.iter().any(|other| daemons[*other].places != *first) {
            return None;
        }
        let is_own_kind = || near.selects(&pod.metadata.namespace, &pod.metadata.labels);
        if !has_key(labels::HOSTNAME) && (is_own_kind() || self.has_kin_in_reach(builder, &own, near)) {
            return None;
        }
        let lacking = self.lacking(builder, near, counted)?;
        let is_outside = |node: &&StateNode| has_key(labels::ZONE) && node.node.is_some() && !node.labels().contains_key(labels::ZONE);
        let without_zone = builder.input.nodes.iter().filter(is_outside).map(StateNode::hostname);
        let closed: BTreeSet<&str> = lacking.iter().map(String::as_str).chain(without_zone).collect();
        let mut place = place.clone();
        if !closed.is_empty() {
            place.add(labels::HOSTNAME.to_owned(), Allowed::except(closed.into_iter().map(str::to_owned)));
        }
        Some(place)
    }

    /// The daemons that are pods which `near` selects, and run on all nodes whose taints the pod tolerates; `own` are the alternatives of
    /// where the pod may go.
    fn meeting(&self, builder: &ProblemBuilder<'_>, pod: &Pod, near: &PodSelection, own: &[Requirements]) -> Vec<usize> {
        let meets = |daemon: &FutureDaemon| {
            let Pod { metadata, spec, .. } = &daemon.pod;
            near.selects(&metadata.namespace, &metadata.labels)
                && tolerates_as_much(&spec.tolerations, &pod.spec.tolerations)
                && daemon.places.iter().any(|place| own.iter().any(|own| own.intersects(place).is_ok()))
                && daemon.is_made(builder)
        };
        let daemons = self.list(builder);
        let meeting: Vec<usize> = (0..daemons.len()).filter(|at| meets(&daemons[*at])).collect();
        // Of two for different nodes, as those of Linux and of Windows, the one without pods has no nodes.
        let running: Vec<usize> = meeting.iter().copied().filter(|at| daemons[*at].runs).collect();
        if running.is_empty() { meeting } else { running }
    }

    /// Whether pods that `near` selects run in a zone that one of the pod's alternatives allows: then it has to go to such a zone.
    fn has_kin_in_reach(&self, builder: &ProblemBuilder<'_>, own: &[Requirements], near: &PodSelection) -> bool {
        let zones = self.kin_zones(builder, near);
        zones.iter().any(|zone| own.iter().any(|own| own.get(labels::ZONE).is_none_or(|allowed| allowed.has(zone))))
    }

    /// The zones in which pods run that `near` selects, but for those on a node that is being removed: with it its daemons end.
    fn kin_zones(&self, builder: &ProblemBuilder<'_>, near: &PodSelection) -> Names {
        if let Some(known) = self.kin_zones.borrow().get(near) {
            return Rc::clone(known);
        }
        let input = builder.input;
        let is_kin = |pod: &Pod| !pod.metadata.is_deleting() && near.selects(&pod.metadata.namespace, &pod.metadata.labels);
        let has_kin = |node: &&StateNode| !node.marked_for_deletion && node.pods.iter().any(|&at| is_kin(&input.objects.pods[at]));
        let zones = input.nodes.iter().filter(has_kin).filter_map(|node| node.labels().get(labels::ZONE).cloned());
        let zones = Rc::new(zones.collect::<BTreeSet<String>>());
        self.kin_zones.borrow_mut().insert(near.clone(), Rc::clone(&zones));
        zones
    }

    /// The hosts of these daemons' nodes that lack pods which `near` selects for good; `None` if the daemons are refused on one of them.
    fn lacking(&self, builder: &ProblemBuilder<'_>, near: &PodSelection, counted: Vec<usize>) -> Option<Names> {
        let key = (near.clone(), counted);
        if let Some(known) = self.lacking.borrow().get(&key) {
            return known.clone();
        }
        let daemons: Vec<&FutureDaemon> = key.1.iter().map(|at| &self.list(builder)[*at]).collect();
        let is_place = |node: &&StateNode| !node.marked_for_deletion && daemons.iter().any(|daemon| daemon.suits(node));
        let nodes = builder.input.nodes.iter().filter(is_place);
        let restarting = restarting(builder, near);
        let lacking: Vec<&StateNode> = nodes.filter(|node| lacks(builder, node, near, (&daemons[..], &restarting))).collect();
        let hosts = || Rc::new(lacking.iter().map(|node| node.hostname().to_owned()).collect::<BTreeSet<String>>());
        let found = (!are_refused(builder, &lacking, &daemons)).then(hosts);
        self.lacking.borrow_mut().insert(key, found.clone());
        found
    }

    /// The DaemonSets whose pods are made, and whose template `concerns` holds for: their place in the list, and a pod as it has it.
    pub(crate) fn selected(&self, builder: &ProblemBuilder<'_>, concerns: impl Fn(&Pod) -> bool) -> Vec<(usize, &Pod)> {
        let daemons = self.list(builder).iter().enumerate();
        daemons.filter(|(_, daemon)| concerns(&daemon.pod) && daemon.is_made(builder)).map(|(at, daemon)| (at, &daemon.pod)).collect()
    }

    /// A pod of one that [`Self::selected`] has found.
    pub(crate) fn pod(&self, at: usize) -> Option<&Pod> {
        self.list.get()?.get(at).map(|daemon| &daemon.pod)
    }

    fn list(&self, builder: &ProblemBuilder<'_>) -> &[FutureDaemon] {
        self.list.get_or_init(|| read(builder))
    }
}

impl FutureDaemon {
    /// Whether its controller makes its pods. Where it has none although a node should have one, as for lack of a quota, a machine would be
    /// launched for a pod that is not bound there, removed as empty, and launched again.
    fn is_made(&self, builder: &ProblemBuilder<'_>) -> bool {
        *self.is_made.get_or_init(|| self.runs || !builder.input.nodes.iter().any(|node| self.is_due_on(node)))
    }

    fn is_due_on(&self, node: &StateNode) -> bool {
        if !node.initialized() {
            return false;
        }
        let mut taints = node.simulated_taints();
        taints.retain(|taint: &Taint| taint.effect != TaintEffect::PreferNoSchedule && taint.key != labels::UNSCHEDULABLE_TAINT);
        pods::untolerated(&self.pod.spec.tolerations, &taints).is_empty() && self.suits(node)
    }

    /// Whether a node has the labels that it asks for.
    fn suits(&self, node: &StateNode) -> bool {
        let has_label = from_labels(node.labels());
        self.places.iter().any(|place| has_label.compatible(place, |_| false).is_ok())
    }

    /// The nodes that its pods are on or are made for.
    fn nodes<'p>(&self, builder: &ProblemBuilder<'p>) -> Vec<&'p str> {
        let own = &self.pod.metadata;
        let is_own = |pod: &&Pod| {
            let mut owners = pod.metadata.owner_references.iter();
            pods::is_daemon_owned(pod) && pod.metadata.namespace == own.namespace && owners.any(|owner| owner.name == own.name)
        };
        builder.input.objects.pods.iter().filter(is_own).flat_map(named_nodes).collect()
    }
}

/// The alternatives of where a pod may go: those of its own constraints, in each of the places of its volumes.
fn alternatives(pod: &Pod, places: &[Requirements]) -> Vec<Requirements> {
    let own = pods::daemon_terms(pod);
    if places.is_empty() {
        return own;
    }
    let in_place = |own: &Requirements, place: &Requirements| {
        let mut both = own.clone();
        both.add_all(place);
        both
    };
    own.iter().flat_map(|own| places.iter().map(move |place| in_place(own, place))).collect()
}

/// Whether no pod that `near` selects is on an initialized node, and none of these daemons is expected there any more, as where its pod has
/// no room, or is refused. One that is terminating will have a successor, and so will one that has just ended.
fn lacks(
    builder: &ProblemBuilder<'_>,
    node: &StateNode,
    near: &PodSelection,
    (daemons, restarting): (&[&FutureDaemon], &BTreeSet<&str>),
) -> bool {
    let input = builder.input;
    let is_near = |pod: &Pod| near.selects(&pod.metadata.namespace, &pod.metadata.labels);
    let restarts = || node.node.as_ref().is_some_and(|node| restarting.contains(node.metadata.name.as_str()));
    let is_expected = || (is_new(node, input.now) || restarts()) && daemons.iter().any(|daemon| daemon.is_due_on(node));
    node.initialized() && !node.pods.iter().any(|&at| is_near(&input.objects.pods[at])) && !is_expected()
}

/// The names of the Nodes on which pods of DaemonSets that `near` selects have ended a short time ago: their controllers delete them, and
/// make others, at first within seconds, and later each time after twice as long.
fn restarting<'p>(builder: &ProblemBuilder<'p>, near: &PodSelection) -> BTreeSet<&'p str> {
    let input = builder.input;
    let has_ended = |pod: &&Pod| {
        pod.is_terminal()
            && pods::is_daemon_owned(pod)
            && near.selects(&pod.metadata.namespace, &pod.metadata.labels)
            && pod.last_event().is_some_and(|at| input.now.duration_since(at) < EXPECTED_FOR)
    };
    input.objects.pods.iter().filter(has_ended).map(|pod| pod.spec.node_name.as_str()).collect()
}

/// Whether one of these nodes should have a pod of the daemons for which none is made, as for lack of a quota: then it would be missing on
/// a new machine, too.
fn are_refused(builder: &ProblemBuilder<'_>, lacking: &[&StateNode], daemons: &[&FutureDaemon]) -> bool {
    if lacking.is_empty() {
        return false;
    }
    let nodes: BTreeSet<&str> = daemons.iter().flat_map(|daemon| daemon.nodes(builder)).collect();
    let is_made_for = |state: &StateNode| state.node.as_ref().is_some_and(|node| nodes.contains(node.metadata.name.as_str()));
    lacking.iter().any(|node| !is_made_for(node) && daemons.iter().any(|daemon| daemon.is_due_on(node)))
}

/// The node of a pod of a DaemonSet: while it is pending, its controller names it in the node affinity.
fn named_nodes(pod: &Pod) -> Vec<&str> {
    if pod.is_bound() {
        return vec![pod.spec.node_name.as_str()];
    }
    let required = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    let terms = required.map(|required| &required.node_selector_terms[..]).unwrap_or_default();
    terms.iter().flat_map(|term| &term.match_fields).flat_map(|field| &field.values).map(String::as_str).collect()
}

/// Whether the node was initialized a short time ago. One without a NodeClaim counts from its creation.
fn is_new(node: &StateNode, now: Timestamp) -> bool {
    let since = match (&node.claim, &node.node) {
        (Some(claim), _) => {
            conditions::find(&claim.status.conditions, conditions::INITIALIZED).and_then(|initialized| initialized.last_transition_time)
        }
        (None, node) => node.as_ref().and_then(|node| node.metadata.creation_timestamp),
    };
    since.is_some_and(|since| now.duration_since(since) < EXPECTED_FOR)
}

fn read(builder: &ProblemBuilder<'_>) -> Vec<FutureDaemon> {
    let objects = builder.input.objects;
    let mut running: BTreeSet<(&str, &str)> = BTreeSet::new();
    for pod in objects.pods.iter().filter(|pod| pods::is_daemon_owned(pod)) {
        running.extend(pod.metadata.owner_references.iter().map(|owner| (pod.metadata.namespace.as_str(), owner.name.as_str())));
    }
    let lasts = |set: &&DaemonSet| !set.metadata.is_deleting() && !needs_others(&set.spec.template.spec);
    let lasting: Vec<DaemonSet> = objects.daemon_sets.iter().filter(lasts).cloned().collect();
    let of = |pod: Pod| {
        let faults = pods::node_constraint_errors(&pod, |key| builder.well_known(key));
        let places = if faults.is_empty() { pods::daemon_terms(&pod) } else { Vec::new() };
        let runs = running.contains(&(pod.metadata.namespace.as_str(), pod.metadata.name.as_str()));
        FutureDaemon { pod, places, runs, is_made: OnceCell::new() }
    };
    pods::daemon_pods(&lasting, &[]).into_iter().map(of).collect()
}

/// Whether other pods decide on which nodes kube-scheduler binds such pods: on a new one it may bind none.
fn needs_others(spec: &PodSpec) -> bool {
    let Some(affinity) = &spec.affinity else { return false };
    let is_wide = |term: &PodAffinityTerm| term.topology_key != labels::HOSTNAME;
    affinity.pod_affinity.as_ref().is_some_and(|near| !near.required.is_empty())
        || affinity.pod_anti_affinity.as_ref().is_some_and(|apart| apart.required.iter().any(is_wide))
}

/// Whether a daemon runs on all nodes whose taints a pod tolerates. Its controller lets it tolerate those by which Kubernetes marks nodes.
fn tolerates_as_much(daemon: &[Toleration], pod: &[Toleration]) -> bool {
    let of_kubernetes = |t: &Toleration| t.key.starts_with("node.kubernetes.io/");
    tolerates_everything(daemon) || pod.iter().all(|t| of_kubernetes(t) || daemon.contains(t))
}

/// Whether these tolerations are for every taint that keeps pods off nodes.
pub(crate) fn tolerates_everything(tolerations: &[Toleration]) -> bool {
    let all_of = |effect: &str| {
        let is_for_all = |t: &Toleration| t.key.is_empty() && t.operator == "Exists" && (t.effect.is_empty() || t.effect == effect);
        tolerations.iter().any(is_for_all)
    };
    all_of("NoSchedule") && all_of("NoExecute")
}
