//! One representative pod per DaemonSet, for the resources that daemons use on a node.

use super::eligibility::is_daemon_owned;
use super::requests::limits_of_whole_become_requests;
use crate::requirements::{self, Requirements};
use std::collections::BTreeMap;
use whittle_api::ObjectMeta;
use whittle_api::k8s::{Container, DaemonSet, Pod};

/// A representative pod for each DaemonSet, sorted by namespace and name: a copy of its newest live pod, which includes
/// changes by admission, or else one from the template. The template's required node affinity takes precedence,
/// because the controller pins live pods to their nodes.
#[must_use]
pub fn daemon_pods(sets: &[DaemonSet], pods: &[Pod]) -> Vec<Pod> {
    let mut newest: BTreeMap<(&str, &str), &Pod> = BTreeMap::new();
    for pod in pods.iter().filter(|p| is_daemon_owned(p)) {
        let newest_pod = newest.entry(daemon_set_of(pod)).or_insert(pod);
        let age = |p: &Pod| (p.metadata.creation_timestamp, p.metadata.uid.clone());
        if age(pod) > age(newest_pod) {
            *newest_pod = pod;
        }
    }
    let mut out: Vec<Pod> = sets
        .iter()
        .map(|set| {
            let live = newest.get(&(set.metadata.namespace.as_str(), set.metadata.name.as_str()));
            live.map_or_else(|| from_template(set), |pod| with_template_affinity(pod, set))
        })
        .filter(|pod| !super::needs_resource_claims(pod))
        .collect();
    out.sort_by(|a, b| (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name)));
    out
}

/// The namespace and the name of the DaemonSet of a pod that is owned by one, or that [`daemon_pods`] has made of the template of one.
#[must_use]
pub fn daemon_set_of(pod: &Pod) -> (&str, &str) {
    let owner = pod.metadata.controller().or_else(|| pod.metadata.owner_references.first());
    (&pod.metadata.namespace, owner.map_or(pod.metadata.name.as_str(), |owner| owner.name.as_str()))
}

fn from_template(set: &DaemonSet) -> Pod {
    let mut spec = set.spec.template.spec.clone();
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut()) {
        limits_become_requests(container);
        if spec.host_network {
            ports_become_host_ports(container);
        }
    }
    limits_of_whole_become_requests(&mut spec);
    Pod {
        metadata: ObjectMeta {
            name: set.metadata.name.clone(),
            namespace: set.metadata.namespace.clone(),
            labels: set.spec.template.metadata.labels.clone(),
            ..ObjectMeta::default()
        },
        spec,
        ..Pod::default()
    }
}

fn with_template_affinity(live: &Pod, set: &DaemonSet) -> Pod {
    let mut pod = live.clone();
    let pinned = pod.is_bound();
    let template = set.spec.template.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.clone());
    let node_affinity = pod.spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    if template.is_some() {
        node_affinity.required = template;
    } else if pinned {
        // Without a template affinity, the match fields are the controller's pin to the node.
        if let Some(required) = &mut node_affinity.required {
            required.node_selector_terms.retain(|t| t.match_fields.is_empty());
            if required.node_selector_terms.is_empty() {
                node_affinity.required = None;
            }
        }
    }
    pod
}

/// A limit without a request becomes the request, as in the API server's defaulting.
fn limits_become_requests(container: &mut Container) {
    if let Some(resources) = &mut container.resources {
        for (name, amount) in &resources.limits.0 {
            resources.requests.0.entry(name.clone()).or_insert(*amount);
        }
    }
}

/// In the network of the host, a container's ports are the host's, as in the API server's defaulting.
fn ports_become_host_ports(container: &mut Container) {
    for port in container.ports.iter_mut().filter(|port| port.host_port == 0) {
        port.host_port = port.container_port;
    }
}

/// The required node constraints of a daemon, one per required affinity term: any one of them may hold.
#[must_use]
pub fn daemon_terms(pod: &Pod) -> Vec<Requirements> {
    let base = requirements::from_selector(&pod.spec.node_selector);
    let terms = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    match terms.map(|t| &t.node_selector_terms[..]) {
        None | Some([]) => vec![base],
        // An empty term matches no node.
        Some(terms) => terms
            .iter()
            .filter(|term| !term.is_empty())
            .map(|term| {
                let mut reqs = base.clone();
                reqs.add_all(&requirements::term_requirements(term));
                reqs
            })
            .collect(),
    }
}
