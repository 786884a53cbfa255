//! What a name on the command line means among objects.

use super::{ExplainError, groups};
use crate::similar::nearest_name;
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
            Subject::NodePool(pool) => format!("nodepool/{}", NodePool::given_name(&pool.metadata.name)),
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

pub(super) fn subject<'a>(objects: &'a ClusterObjects, wanted: &str, namespace: Option<&str>) -> Result<Subject<'a>, ExplainError> {
    let of_machine = of_machine(objects, wanted);
    let wanted = of_machine.as_deref().unwrap_or(wanted);
    let pods = objects.pods.iter().map(Subject::Pod);
    let nodes = objects.nodes.iter().map(|node| Subject::Node(&node.metadata.name));
    let claims = objects.node_claims.iter().map(|claim| Subject::NodeClaim(&claim.metadata.name));
    let pools = objects.node_pools.iter().map(Subject::NodePool);
    let workloads = groups::workloads(&objects.pods).into_iter().map(|(name, pods)| Subject::Workload(name, pods));
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
            _ => false,
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

/// The Node, or else the NodeClaim, of the machine with this id, such as `i-0a1b2c3d4e5f60718`.
fn of_machine(objects: &ClusterObjects, id: &str) -> Option<String> {
    let is_it = |provider_id: &str| provider_id.rsplit_once('/').is_some_and(|(_, last)| last == id);
    let node = objects.nodes.iter().find(|node| is_it(&node.spec.provider_id)).map(|node| format!("node/{}", node.metadata.name));
    let claim = || objects.node_claims.iter().find(|claim| is_it(&claim.status.provider_id));
    node.or_else(|| claim().map(|claim| format!("nodeclaim/{}", claim.metadata.name)))
}

/// What may be meant by a name that nothing has: what contains it, else what differs from it by typing errors.
fn near(all: &[Subject<'_>], wanted: &str) -> Vec<String> {
    let name = wanted.rsplit('/').next().unwrap_or(wanted);
    let written = || all.iter().map(Subject::written);
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
