//! How much a pod takes of a node.

use whittle_api::k8s::{Container, Pod};
use whittle_units::{Quantity, Resources};

/// What the pod takes: the larger of what runs side by side and of the start-up peak, with overhead, and one of `pods`.
#[must_use]
pub fn effective_requests(pod: &Pod) -> Resources {
    let spec = &pod.spec;
    let mut total = Resources::new();
    for container in spec.containers.iter().chain(spec.init_containers.iter().filter(|c| is_sidecar(c))) {
        add_requests(&mut total, container);
    }
    let mut sidecars = Resources::new();
    for container in &spec.init_containers {
        let mut at_once = sidecars.clone();
        add_requests(&mut at_once, container);
        if is_sidecar(container) {
            sidecars = at_once.clone();
        }
        total.raise_to(&at_once);
    }
    if let Some(whole) = &spec.resources {
        for (name, amount) in whole.requests.iter() {
            if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
                total.set(name, amount);
            }
        }
    }
    total.add(&spec.overhead);
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

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy == "Always"
}

fn add_requests(total: &mut Resources, container: &Container) {
    if let Some(resources) = &container.resources {
        total.add(&resources.requests);
    }
}
