//! What a Node needs to be registered, and what it lacks to be initialized (lifecycle 7, 8). Pure.

use whittle_api::k8s::{Kind, Node, Pod, Taint, TaintEffect};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, Condition, OwnerReference, conditions, labels};
use whittle_claims::{Claim, annotations_of, labels_of};
use whittle_model::state::is_ephemeral;
use whittle_ports::{NodePatch, Safeguard};
use whittle_units::Quantity;

/// The reason for which a Node is not initialized that lacks a resource of its claim.
pub(crate) const RESOURCE_NOT_REGISTERED: &str = "ResourceNotRegistered";

/// Whether an unreadable Node may be that of a claim's machine: then it may have joined.
pub(crate) fn may_have_joined(claim: &Claim, objects: &ClusterObjects) -> bool {
    let Some(machine) = claim.machine() else { return false };
    let mut odd = objects.unreadable_of(Node::KIND);
    odd.any(|odd| odd.provider_id.is_empty() || odd.provider_id == machine.provider_id.as_str())
}

/// Why a claim is given up at its timeout: what it waited for, and what its condition says about that. The NodeClaim goes, and its
/// conditions with it.
pub(crate) fn timeout_message(claim: &Claim) -> String {
    /// Reasons that say no more than the timeout does.
    const OF_WAITING: [&str; 2] = ["AwaitingReconciliation", "NodeNotFound"];
    let (waited, type_) = match claim.machine() {
        Some(_) => ("no node joined in time", conditions::REGISTERED),
        None => ("no machine was launched in time", conditions::LAUNCHED),
    };
    let tells = |known: &&Condition| !known.message.is_empty() && !OF_WAITING.contains(&known.reason.as_str());
    match conditions::find(&claim.conditions, type_).filter(tells) {
        Some(known) => format!("{waited}: {}", known.message),
        None => waited.to_owned(),
    }
}

/// Whether a Node joined without the taint that keeps pods away until it has its labels.
pub(crate) fn lacks_unregistered_taint(node: &Node) -> bool {
    let unregistered = unregistered();
    !node.metadata.labels.contains_key(labels::REGISTERED) && !node.spec.taints.iter().any(|taint| taint.same(&unregistered))
}

/// The taint that a kubelet sets where it makes the Node.
fn unregistered() -> Taint {
    Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute)
}

/// The patch that registers a Node, or `None` when nothing is missing. `mirror_uid` is the mirror's uid in the API server;
/// without it no owner is set, because the garbage collector deletes a Node whose owner does not exist.
pub(crate) fn registration(claim: &Claim, node: &Node, mirror_uid: Option<&str>) -> Option<NodePatch> {
    let mut wanted = labels_of(claim);
    wanted.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    wanted.retain(|key, value| node.metadata.labels.get(key) != Some(value));
    let mut annotations = annotations_of(claim);
    annotations.remove(labels::TERMINATION_TIMESTAMP);
    annotations.retain(|key, value| node.metadata.annotations.get(key) != Some(value));
    let has = |taint: &Taint| node.spec.taints.iter().any(|there| there.same(taint));
    let unregistered = unregistered();
    // Its taints came with the label, in one patch, and whoever a startup taint waited for may have removed it since: the run that sent the
    // patch died, or the table was restored to a time before it.
    let is_done = node.metadata.label(labels::REGISTERED) == Some("true") && !has(&unregistered);
    let sync = !is_done && node.metadata.label(labels::DO_NOT_SYNC_TAINTS) != Some("true");
    let own = claim.spec.taints.iter().chain(&claim.spec.startup_taints);
    let add_taints: Vec<Taint> = own.filter(|taint| sync && !has(taint)).cloned().collect();
    let finalizer = labels::TERMINATION_FINALIZER;
    let patch = NodePatch {
        labels: wanted,
        annotations,
        add_taints,
        remove_taints: if has(&unregistered) { vec![unregistered] } else { Vec::new() },
        add_finalizer: Safeguard::FinalizerSet
            .stops(!node.metadata.finalizers.iter().any(|f| f == finalizer))
            .then(|| finalizer.to_owned()),
        owner: mirror_uid.and_then(|uid| owner(claim, node, uid)),
        ..NodePatch::default()
    };
    (patch != NodePatch::default()).then_some(patch)
}

/// The Node after its registration, as far as initialization depends on it: the one that was read may still lack startup taints.
pub(crate) fn registered(claim: &Claim, node: &Node) -> Node {
    let mut after = node.clone();
    if let Some(patch) = registration(claim, node, None) {
        after.spec.taints.retain(|taint| !patch.remove_taints.iter().any(|gone| gone.same(taint)));
        after.spec.taints.extend(patch.add_taints);
    }
    after
}

fn owner(claim: &Claim, node: &Node, uid: &str) -> Option<OwnerReference> {
    let there = node.metadata.owner_references.iter().any(|owner| owner.uid == uid);
    (!there).then(|| OwnerReference {
        api_version: NodeClaim::API_VERSION.to_owned(),
        kind: NodeClaim::KIND.to_owned(),
        name: claim.key.name.as_str().to_owned(),
        uid: uid.to_owned(),
        controller: None,
        block_owner_deletion: Some(true),
    })
}

/// Why a registered Node is not initialized yet: reason and message of the `Initialized` condition.
pub(crate) fn not_initialized(claim: &Claim, node: &Node) -> Option<(&'static str, String)> {
    if !node.is_ready() {
        return Some(("NodeNotReady", "Node status is NotReady".to_owned()));
    }
    let starting = |taint: &&Taint| claim.spec.startup_taints.iter().any(|startup| startup.same(taint));
    if let Some(taint) = node.spec.taints.iter().find(starting) {
        return Some(("StartupTaintsExist", format!("StartupTaint {taint:?} still exists", taint = taint.to_string())));
    }
    if let Some(taint) = node.spec.taints.iter().find(|taint| is_ephemeral(taint)) {
        return Some(("KnownEphemeralTaintsExist", format!("KnownEphemeralTaint {taint:?} still exists", taint = taint.to_string())));
    }
    let missing = claim.spec.requests.iter().find(|(name, amount)| !amount.is_zero() && node.status.allocatable.get(name).is_zero());
    missing.map(|(name, _)| (RESOURCE_NOT_REGISTERED, format!("Resource {name:?} was requested but not registered")))
}

/// The Node with the extended resources that pods on it have from DRA drivers, which publish devices in ResourceSlices: a Node reports
/// those of device plugins alone.
pub(crate) fn with_claimed_resources(node: &Node, pods: &[Pod]) -> Node {
    let mut with = node.clone();
    for name in pods.iter().flat_map(Pod::claimed_resources) {
        let amount = with.status.allocatable.get(name).max(Quantity::from_units(1));
        with.status.allocatable.set(name, amount);
    }
    with
}
