//! What a name on the command line means among objects.

use super::{ExplainError, groups};
use crate::local::kinds::{self, KindEntry};
use crate::similar::{nearest, nearest_name};
use crate::source::Manifests;
use whittle_api::ClusterObjects;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;

/// The object to explain.
pub(super) enum Subject<'a> {
    Pod(&'a Pod),
    Node(&'a str),
    NodeClaim(&'a str),
    NodePool(&'a NodePool),
    /// Its kind, namespace and name, and its pods.
    Workload(String, Vec<&'a Pod>),
}

impl Subject<'_> {
    /// Its form on the command line.
    fn written(&self) -> String {
        match self {
            Subject::Pod(pod) => format!("pod/{}", pod.metadata.key()),
            Subject::Node(name) => format!("node/{name}"),
            Subject::NodeClaim(name) => format!("nodeclaim/{name}"),
            Subject::NodePool(pool) if pool.metadata.name.starts_with(NodePool::TWIN_PREFIX) => {
                format!("provisioner/{}", NodePool::given_name(&pool.metadata.name))
            }
            Subject::NodePool(pool) => format!("nodepool/{}", pool.metadata.name),
            Subject::Workload(name, _) => name.clone(),
        }
    }

    /// Its namespace, if it is in one.
    fn namespace(&self) -> Option<&str> {
        match self {
            Subject::Pod(pod) => Some(&pod.metadata.namespace),
            Subject::Workload(name, _) => name.split('/').nth(1),
            Subject::Node(_) | Subject::NodeClaim(_) | Subject::NodePool(_) => None,
        }
    }
}

/// What a name means: that of an object, or else the id of a machine.
///
/// # Errors
/// It means nothing, or several objects.
pub(super) fn subject<'a>(read: &'a Manifests, wanted: &str, namespace: Option<&str>) -> Result<Subject<'a>, ExplainError> {
    let wanted = &in_full(wanted);
    match named(read, wanted, namespace) {
        Err(ExplainError::Unknown(..)) if let Some(machine) = of_machine(&read.objects, wanted) => named(read, &machine, namespace),
        found => found,
    }
}

/// What there is to say of the NodePool of another controller, if that is what a name means.
pub(super) fn of_another(read: &Manifests, wanted: &str) -> Option<String> {
    let wanted = in_full(wanted);
    read.others.get(wanted.strip_prefix("nodepool/").unwrap_or(&wanted)).cloned()
}

/// The name with its kind in full, where it is abbreviated.
fn in_full(wanted: &str) -> String {
    let found = wanted.split_once('/').and_then(|(of, name)| Some(format!("{}/{name}", explained_kind(of)?)));
    found.unwrap_or_else(|| wanted.to_owned())
}

/// A kind in full, by any name that kubectl knows for it; `None` if its objects are not explained.
pub(super) fn explained_kind(word: &str) -> Option<String> {
    kinds::find(word).ok().map(KindEntry::singular).filter(|kind| EXPLAINED.contains(&kind.as_str()))
}

/// Kinds that may be named.
const EXPLAINED: [&str; 9] =
    ["pod", "node", "nodeclaim", "nodepool", "provisioner", "deployment", "replicaset", "statefulset", "daemonset"];

fn named<'a>(read: &'a Manifests, wanted: &str, namespace: Option<&str>) -> Result<Subject<'a>, ExplainError> {
    let objects = &read.objects;
    let pods = objects.pods.iter().map(Subject::Pod);
    let nodes = objects.nodes.iter().map(|node| Subject::Node(&node.metadata.name));
    let claims = objects.node_claims.iter().map(|claim| Subject::NodeClaim(&claim.metadata.name));
    let pools = objects.node_pools.iter().map(Subject::NodePool);
    let mut workloads = groups::workloads(&objects.pods);
    for name in read.workloads.names().chain(objects.daemon_sets.iter().map(|set| format!("daemonset/{}", set.metadata.key()))) {
        workloads.entry(name).or_default();
    }
    let workloads = workloads.into_iter().map(|(name, pods)| Subject::Workload(name, pods));
    let all: Vec<Subject<'a>> = pods.chain(nodes).chain(claims).chain(pools).chain(workloads).collect();
    let means = |subject: &Subject<'_>| {
        let written = subject.written();
        // Written with its kind, without it, or by its name alone.
        let (_, bare) = written.split_once('/').unwrap_or(("", &written));
        let short = match subject {
            Subject::Workload(name, _) => {
                let mut parts = name.split('/');
                let (kind, _, own) = (parts.next().unwrap_or_default(), parts.next(), parts.next().unwrap_or_default());
                own == wanted || wanted.split_once('/') == Some((kind, own))
            }
            Subject::Pod(pod) => pod.metadata.name == wanted || format!("pod/{}", pod.metadata.name) == wanted,
            Subject::NodePool(pool) => {
                let alone = wanted.strip_prefix("provisioner/").filter(|_| pool.is_converted_provisioner());
                alone == Some(NodePool::given_name(&pool.metadata.name))
            }
            Subject::Node(_) | Subject::NodeClaim(_) => false,
        };
        let is_there = namespace.is_none_or(|wanted| subject.namespace().is_none_or(|own| own == wanted));
        is_there && (written == wanted || bare == wanted || short)
    };
    let near = near(&all, wanted);
    let mut found: Vec<Subject<'a>> = all.into_iter().filter(means).collect();
    // A node and its claim of the same name are one machine.
    if found.iter().all(|subject| matches!(subject, Subject::Node(_) | Subject::NodeClaim(_))) {
        found.truncate(1);
    }
    match found.len() {
        0 => Err(ExplainError::Unknown(wanted.to_owned(), near)),
        1 => Ok(found.remove(0)),
        _ => Err(ExplainError::Several(wanted.to_owned(), found.iter().map(Subject::written).collect())),
    }
}

/// The Node, or else the NodeClaim, of the machine with this id, such as `i-0a1b2c3d4e5f60718`, or provider id.
fn of_machine(objects: &ClusterObjects, id: &str) -> Option<String> {
    let id = ["node/", "nodeclaim/"].iter().find_map(|kind| id.strip_prefix(kind)).unwrap_or(id);
    let is_it = |provider_id: &str| provider_id.rsplit_once('/').is_some_and(|(_, last)| last == id || provider_id == id);
    let node = objects.nodes.iter().find(|node| is_it(&node.spec.provider_id)).map(|node| format!("node/{}", node.metadata.name));
    let claim = || objects.node_claims.iter().find(|claim| is_it(&claim.status.provider_id));
    node.or_else(|| claim().map(|claim| format!("nodeclaim/{}", claim.metadata.name)))
}

/// What may be meant by a name that nothing has: what contains it, else what differs from it by typing errors.
fn near(all: &[Subject<'_>], wanted: &str) -> Vec<String> {
    let name = wanted.rsplit('/').next().unwrap_or(wanted);
    let of_kind = |kind: &str| all.iter().any(|subject| subject.written().starts_with(&format!("{kind}/")));
    // A kind that nothing has is mistyped as well.
    let kind = wanted.split_once('/').map(|(kind, _)| kind).filter(|kind| !of_kind(kind));
    let kind = kind.and_then(|kind| nearest(kind, all.iter().filter_map(|subject| Some(subject.written().split_once('/')?.0.to_owned()))));
    let is_near = |written: &String| kind.as_ref().is_none_or(|kind| written.starts_with(&format!("{kind}/")));
    let written = || all.iter().map(Subject::written).filter(is_near);
    let containing: Vec<String> = written().filter(|written| !name.is_empty() && written.contains(name)).take(NEAR_MAX).collect();
    if !containing.is_empty() {
        return containing;
    }
    let own = |written: &String| written.rsplit('/').next().unwrap_or_default().to_owned();
    let Some(meant) = nearest_name(name, written().map(|written| own(&written))) else { return Vec::new() };
    written().filter(|written| own(written) == meant).take(NEAR_MAX).collect()
}

/// How many names are offered.
const NEAR_MAX: usize = 5;
