//! Resource requests of pods.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Container, Pod, PodSpec};
use whittle_units::{Quantity, Resources};

/// Effective requests of the pod: the larger of its running containers and the startup peak, plus overhead and one
/// `pods`. Negative amounts, which the API server rejects, count as zero.
#[must_use]
pub fn effective_requests(pod: &Pod) -> Resources {
    let spec = &pod.spec;
    let mut total = Resources::new();
    for container in &spec.containers {
        add_requests(&mut total, pod, container, true);
    }
    for sidecar in spec.init_containers.iter().filter(|c| is_sidecar(c)) {
        add_requests(&mut total, pod, sidecar, true);
    }
    let mut sidecars = Resources::new();
    for container in &spec.init_containers {
        let mut peak = sidecars.clone();
        add_requests(&mut peak, pod, container, is_sidecar(container));
        if is_sidecar(container) {
            sidecars = peak.clone();
        }
        total.raise_to(&peak);
    }
    raise_to_reported(&mut total, pod);
    replace_by_whole(&mut total, pod);
    total.add_demand(&spec.overhead);
    total.set("pods", Quantity::from_units(1));
    total
}

/// A limit of the pod as a whole becomes its request, of resources that no container requests, as in the API server's defaulting.
pub fn limits_of_whole_become_requests(spec: &mut PodSpec) {
    let Some(whole) = &mut spec.resources else { return };
    let containers = spec.containers.iter().chain(&spec.init_containers).filter_map(|container| container.resources.as_ref());
    let requested: BTreeSet<&String> = containers.flat_map(|resources| resources.requests.0.keys()).collect();
    for (name, amount) in whole.limits.0.iter().filter(|(name, _)| !requested.contains(name)) {
        whole.requests.0.entry(name.clone()).or_insert(*amount);
    }
}

/// The sum over several pods, with their count as `pods`.
pub fn total_requests<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Resources {
    let mut total = Resources::new();
    for pod in pods {
        total.add(&effective_requests(pod));
    }
    total
}

/// The negative requests of a pod, by resource.
#[must_use]
pub fn negative_requests(pod: &Pod) -> BTreeMap<&str, Quantity> {
    let spec = &pod.spec;
    let containers = spec.containers.iter().chain(&spec.init_containers).filter_map(|c| c.resources.as_ref());
    let lists = containers.chain(&spec.resources).map(|r| &r.requests).chain([&spec.overhead]);
    lists.flat_map(Resources::iter).filter(|(_, amount)| *amount < Quantity::ZERO).collect()
}

/// Whether an init container keeps running beside the containers.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy == "Always"
}

/// Raises the sum over the containers to what the kubelet reports of the pod as a whole, if it reports both what is in force and what
/// is allocated: as kube-scheduler does, whether the pod has requests as a whole or not. What kubelets allocate includes the overhead,
/// which is added once more, there as here: if a pod took less than kube-scheduler counts, others would be planned where they are not
/// bound.
fn raise_to_reported(total: &mut Resources, pod: &Pod) {
    let allocated = &pod.status.allocated_resources;
    let Some(running) = pod.status.resources.as_ref().map(|running| &running.requests) else { return };
    if !running.is_empty() && !allocated.is_empty() {
        total.raise_to(running);
        total.raise_to(allocated);
    }
}

/// Replaces the sum over the containers by what the pod requests as a whole. While that is resized in place, the pod uses the largest of
/// its request, its running resources and what the node has allocated; an infeasible resize does not count.
fn replace_by_whole(total: &mut Resources, pod: &Pod) {
    let Some(requested) = pod.spec.resources.as_ref().map(|whole| &whole.requests) else { return };
    if !requested.iter().any(|(name, _)| is_of_whole(name)) {
        return;
    }
    let mut largest = requested.clone();
    if let Some(running) = &pod.status.resources {
        if is_resize_infeasible(pod) {
            largest = Resources::new();
        }
        largest.raise_to(&running.requests);
        largest.raise_to(&pod.status.allocated_resources);
    }
    for (name, amount) in largest.iter().filter(|(name, _)| is_of_whole(name)) {
        total.set(name, amount.max(Quantity::ZERO));
    }
}

/// Whether a pod may request it as a whole.
fn is_of_whole(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// Whether the node has refused the resize that is asked of it.
fn is_resize_infeasible(pod: &Pod) -> bool {
    pod.condition("PodResizePending").is_some_and(|condition| condition.reason == "Infeasible")
}

/// Adds the requests of a container. While a container that keeps running is resized in place, it uses the largest of
/// its request, its running resources and what the node has allocated; an infeasible resize does not count.
fn add_requests(total: &mut Resources, pod: &Pod, container: &Container, keeps_running: bool) {
    let requested = container.resources.as_ref().map(|r| &r.requests);
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let status = statuses.filter(|_| keeps_running).find(|s| s.name == container.name);
    let Some((status, running)) = status.and_then(|s| Some((s, s.resources.as_ref()?))) else {
        if let Some(requested) = requested {
            total.add_demand(requested);
        }
        return;
    };
    let mut largest = running.requests.clone();
    largest.raise_to(&status.allocated_resources);
    if let (Some(requested), false) = (requested, is_resize_infeasible(pod)) {
        largest.raise_to(requested);
    }
    total.add_demand(&largest);
}
