//! How much a pod takes of a node.

use std::collections::BTreeMap;
use whittle_api::k8s::{Container, Pod};
use whittle_units::{Quantity, Resources};

/// What the pod takes: the larger of what runs side by side and of the start-up peak, with overhead, and one of `pods`.
/// Amounts below zero, which no API server accepts, count as nothing: no pod makes room for another.
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
        let mut at_once = sidecars.clone();
        add_requests(&mut at_once, pod, container, is_sidecar(container));
        if is_sidecar(container) {
            sidecars = at_once.clone();
        }
        total.raise_to(&at_once);
    }
    if let Some(whole) = &spec.resources {
        for (name, amount) in whole.requests.iter() {
            if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
                total.set(name, amount.max(Quantity::ZERO));
            }
        }
    }
    total.add_demand(&spec.overhead);
    total.set("pods", Quantity::from_units(1));
    total
}

/// The sum over several pods; `pods` counts them.
pub fn total_requests<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Resources {
    let mut total = Resources::new();
    for pod in pods {
        total.add(&effective_requests(pod));
    }
    total
}

/// The resources of which some part of the pod asks for less than nothing, with what it asks.
#[must_use]
pub fn negative_requests(pod: &Pod) -> BTreeMap<&str, Quantity> {
    let spec = &pod.spec;
    let containers = spec.containers.iter().chain(&spec.init_containers).filter_map(|c| c.resources.as_ref());
    let lists = containers.chain(&spec.resources).map(|r| &r.requests).chain([&spec.overhead]);
    lists.flat_map(Resources::iter).filter(|(_, amount)| *amount < Quantity::ZERO).collect()
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy == "Always"
}

/// Adds what a container takes. While one that `stays` is being resized in place, it takes the most of what is asked,
/// what runs and what the node has set aside; a growth that the node has refused for good does not count.
fn add_requests(total: &mut Resources, pod: &Pod, container: &Container, stays: bool) {
    let asked = container.resources.as_ref().map(|r| &r.requests);
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let status = statuses.filter(|_| stays).find(|s| s.name == container.name);
    let Some((status, running)) = status.and_then(|s| Some((s, s.resources.as_ref()?))) else {
        if let Some(asked) = asked {
            total.add_demand(asked);
        }
        return;
    };
    let mut most = running.requests.clone();
    most.raise_to(&status.allocated_resources);
    let refused = pod.condition("PodResizePending").is_some_and(|c| c.reason == "Infeasible");
    if let (Some(asked), false) = (asked, refused) {
        most.raise_to(asked);
    }
    total.add_demand(&most);
}
