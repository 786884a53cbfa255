//! Requests and limits.

use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::ResourceRequirements;
use whittle_api::runtime::{KEY_FORM, is_qualified_name};
use whittle_units::{Quantity, Resources};

const HUGE_PAGES: &str = "hugepages-";

/// Whether Kubernetes itself counts a resource, and not a device plugin.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// The requests and limits of a container.
pub(super) fn of_container(resources: &ResourceRequirements, path: &FieldPath, faults: &mut Vec<FieldError>) {
    let (requests, limits) = (path.key("requests"), path.key("limits"));
    for (amounts, path) in [(&resources.requests, &requests), (&resources.limits, &limits)] {
        for (name, amount) in amounts.iter() {
            if let Some(message) = name_fault(name) {
                faults.push(FieldError::new(path.clone(), message));
            } else if !is_native(name) && amount.milli() % 1000 != 0 {
                let message = format!("{} is no whole number, and {name} is only given as a whole: write one", amount.text_of(name));
                faults.push(FieldError::new(path.key(name), message));
            }
        }
    }
    of_pod(resources, path, faults);
    // What is not shared cannot be promised beyond what is there. A request without a limit is none that a server has either, but what is
    // meant is clear, and Karpenter plans for it.
    for (name, amount) in resources.requests.iter().filter(|(name, _)| !is_native(name) || name.starts_with(HUGE_PAGES)) {
        if amount < resources.limits.get(name) {
            let (text, limit) = (amount.text_of(name), resources.limits.get(name).text_of(name));
            let message = format!("{text} is less than the limit, {limit}, and {name} is never shared: write the same amount in both");
            faults.push(FieldError::new(requests.key(name), message));
        }
    }
}

/// The requests and limits of a whole pod.
pub(super) fn of_pod(resources: &ResourceRequirements, path: &FieldPath, faults: &mut Vec<FieldError>) {
    let (requests, limits) = (path.key("requests"), path.key("limits"));
    amounts(&resources.requests, &requests, faults);
    amounts(&resources.limits, &limits, faults);
    for (name, amount) in resources.requests.iter() {
        let limit = resources.limits.0.get(name).filter(|limit| **limit < amount && Quantity::ZERO <= **limit);
        if let Some(limit) = limit {
            let (text, limit) = (amount.text_of(name), limit.text_of(name));
            faults.push(FieldError::new(
                requests.key(name),
                format!("{text} is more than the limit, {limit}: raise the limit, or request less"),
            ));
        }
    }
}

/// Amounts of anything.
pub(super) fn amounts(amounts: &Resources, path: &FieldPath, faults: &mut Vec<FieldError>) {
    for (name, amount) in amounts.iter().filter(|(_, amount)| *amount < Quantity::ZERO) {
        let message = format!("{} is less than nothing: write 0 or more", amount.text_of(name));
        faults.push(FieldError::new(path.key(name), message));
    }
}

/// What is wrong with the name of a container's resource.
fn name_fault(name: &str) -> Option<String> {
    let known =
        ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.strip_prefix(HUGE_PAGES).is_some_and(|size| !size.is_empty());
    if name.contains('/') {
        let is_name = is_qualified_name(name) && !name.starts_with("requests.");
        return (!is_name).then(|| format!("{name:?} is no name of a resource: write {KEY_FORM}"));
    }
    (!known).then(|| format!("{name:?} is no resource of a container: write cpu, memory, ephemeral-storage, or a name with its domain, such as nvidia.com/gpu"))
}
