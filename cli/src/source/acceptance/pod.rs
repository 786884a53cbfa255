//! The spec of a pod, in the fields that scheduling reads.

use super::super::identity::{name_fault, namespace_fault};
use super::selectors::{label_key, label_selector, labels, missing, node_selector, node_selector_term};
use super::{resources, spread};
use std::collections::BTreeSet;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::{Affinity, Container, PodAffinity, PodAffinityTerm, PodSpec, Toleration, Volume};
use whittle_api::runtime::{KEY_FORM, LABEL_VALUE_FORM, is_label_value, is_qualified_name};

/// What weighs a preference.
const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=100;

/// The longest name of a container or a volume.
const PART_MAX: usize = 63;

/// Adds the errors of a spec.
pub(super) fn spec(spec: &PodSpec, path: &FieldPath, faults: &mut Vec<FieldError>) {
    containers(spec, path, faults);
    if let Some(whole) = &spec.resources {
        resources::of_pod(whole, &path.key("resources"), faults);
    }
    resources::amounts(&spec.overhead, &path.key("overhead"), faults);
    labels(&spec.node_selector, &path.key("nodeSelector"), faults);
    if let Some(wanted) = &spec.affinity {
        affinity(wanted, &path.key("affinity"), faults);
    }
    spread::constraints(&spec.topology_spread_constraints, &path.key("topologySpreadConstraints"), faults);
    for (at, one) in spec.tolerations.iter().enumerate() {
        toleration(one, &path.key("tolerations").index(at), faults);
    }
    volumes(&spec.volumes, &path.key("volumes"), faults);
    word(&spec.restart_policy, &["Always", "OnFailure", "Never"], path.key("restartPolicy"), faults);
    word(&spec.preemption_policy, &["PreemptLowerPriority", "Never"], path.key("preemptionPolicy"), faults);
    let names =
        [("nodeName", &spec.node_name), ("priorityClassName", &spec.priority_class_name), ("runtimeClassName", &spec.runtime_class_name)];
    for (field, name) in names {
        faults.extend(
            Some(name)
                .filter(|name| !name.is_empty())
                .and_then(|name| name_fault(name))
                .map(|fault| FieldError::new(path.key(field), fault)),
        );
    }
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|seconds| *seconds < 0) {
        let message = format!("{seconds} is less than nothing: write 0 or more seconds");
        faults.push(FieldError::new(path.key("terminationGracePeriodSeconds"), message));
    }
}

/// One of a few words, or nothing, which is the first of them.
pub(super) fn word(given: &str, known: &[&str], path: FieldPath, faults: &mut Vec<FieldError>) {
    if !given.is_empty() && !known.contains(&given) {
        faults.push(FieldError::new(path, format!("{given:?} is none of its values: write {}", known.join(" or "))));
    }
}

fn containers(spec: &PodSpec, path: &FieldPath, faults: &mut Vec<FieldError>) {
    if spec.containers.is_empty() {
        faults.push(missing(path.key("containers"), "a pod needs a container"));
    }
    let (mut names, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for (field, list) in [("containers", &spec.containers), ("initContainers", &spec.init_containers)] {
        for (at, container) in list.iter().enumerate() {
            let path = path.key(field).index(at);
            part_name(&container.name, &mut names, &path.key("name"), faults);
            if let Some(wanted) = &container.resources {
                resources::of_container(wanted, &path.key("resources"), faults);
            }
            word(&container.restart_policy, &["Always", "OnFailure", "Never"], path.key("restartPolicy"), faults);
            container_ports(container, spec.host_network, &path.key("ports"), faults);
            // Init containers end before the others begin.
            if field == "containers" {
                host_ports(container, spec.host_network, &mut ports, &path.key("ports"), faults);
            }
        }
    }
}

/// The name of a container or a volume, of which a pod has each once.
fn part_name<'a>(name: &'a str, names: &mut BTreeSet<&'a str>, path: &FieldPath, faults: &mut Vec<FieldError>) {
    if name.is_empty() {
        faults.push(missing(path.clone(), "give it a name"));
    } else if PART_MAX < name.len() || name.contains('.') || name_fault(name).is_some() {
        let form = "use lower-case letters, digits and -, letters or digits at both ends";
        faults.push(FieldError::new(path.clone(), format!("{name:?} is no name: {form}, at most {PART_MAX}")));
    } else if !names.insert(name) {
        faults.push(FieldError::new(path.clone(), format!("{name:?} is there twice: give each its own name")));
    }
}

fn container_ports(container: &Container, host_network: bool, path: &FieldPath, faults: &mut Vec<FieldError>) {
    for (at, port) in container.ports.iter().enumerate() {
        let path = path.index(at);
        let is_port = |number: i32| (1..=65535).contains(&number);
        if !is_port(port.container_port) {
            let message = format!("{} is no port: write a number from 1 to 65535", port.container_port);
            faults.push(FieldError::new(path.key("containerPort"), message));
        }
        if port.host_port != 0 && !is_port(port.host_port) {
            faults.push(FieldError::new(path.key("hostPort"), format!("{} is no port: write a number from 1 to 65535", port.host_port)));
        } else if host_network && port.host_port != 0 && port.host_port != port.container_port {
            let message = format!("{} is another port than containerPort, and with hostNetwork they are one: leave it out", port.host_port);
            faults.push(FieldError::new(path.key("hostPort"), message));
        }
        word(&port.protocol, &["TCP", "UDP", "SCTP"], path.key("protocol"), faults);
    }
}

/// Ports of the node that the pod takes, each once.
fn host_ports<'a>(
    container: &'a Container,
    host_network: bool,
    taken: &mut BTreeSet<(&'a str, &'a str, i32)>,
    path: &FieldPath,
    faults: &mut Vec<FieldError>,
) {
    for (at, port) in container.ports.iter().enumerate() {
        let number = if port.host_port == 0 && host_network { port.container_port } else { port.host_port };
        let protocol = if port.protocol.is_empty() { "TCP" } else { port.protocol.as_str() };
        if number != 0 && !taken.insert((port.host_ip.as_str(), protocol, number)) {
            let message = format!("port {number} of the node is taken by the pod itself already: give each its own");
            faults.push(FieldError::new(path.index(at).key("hostPort"), message));
        }
    }
}

fn affinity(affinity: &Affinity, path: &FieldPath, faults: &mut Vec<FieldError>) {
    if let Some(of_nodes) = &affinity.node_affinity {
        let path = path.key("nodeAffinity");
        if let Some(required) = &of_nodes.required {
            node_selector(required, &path.key("requiredDuringSchedulingIgnoredDuringExecution"), faults);
        }
        for (at, preferred) in of_nodes.preferred.iter().enumerate() {
            let path = path.key("preferredDuringSchedulingIgnoredDuringExecution").index(at);
            weight(preferred.weight, &path, faults);
            node_selector_term(&preferred.preference, &path.key("preference"), faults);
        }
    }
    for (field, of_pods) in [("podAffinity", &affinity.pod_affinity), ("podAntiAffinity", &affinity.pod_anti_affinity)] {
        if let Some(of_pods) = of_pods {
            pod_affinity(of_pods, &path.key(field), faults);
        }
    }
}

fn weight(weight: i32, path: &FieldPath, faults: &mut Vec<FieldError>) {
    if !WEIGHTS.contains(&weight) {
        faults.push(FieldError::new(path.key("weight"), format!("{weight} is no weight: write a number from 1 to 100")));
    }
}

fn pod_affinity(affinity: &PodAffinity, path: &FieldPath, faults: &mut Vec<FieldError>) {
    for (at, term) in affinity.required.iter().enumerate() {
        pod_affinity_term(term, &path.key("requiredDuringSchedulingIgnoredDuringExecution").index(at), faults);
    }
    for (at, preferred) in affinity.preferred.iter().enumerate() {
        let path = path.key("preferredDuringSchedulingIgnoredDuringExecution").index(at);
        weight(preferred.weight, &path, faults);
        pod_affinity_term(&preferred.pod_affinity_term, &path.key("podAffinityTerm"), faults);
    }
}

fn pod_affinity_term(term: &PodAffinityTerm, path: &FieldPath, faults: &mut Vec<FieldError>) {
    label_key(&term.topology_key, &path.key("topologyKey"), faults);
    for (field, selector) in [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)] {
        if let Some(selector) = selector {
            label_selector(selector, &path.key(field), faults);
        }
    }
    for (at, namespace) in term.namespaces.iter().enumerate() {
        let fault = if namespace.is_empty() { name_fault("") } else { namespace_fault(namespace) };
        faults.extend(fault.map(|message| FieldError::new(path.key("namespaces").index(at), message)));
    }
    let keys = [("matchLabelKeys", &term.match_label_keys), ("mismatchLabelKeys", &term.mismatch_label_keys)];
    for (field, keys) in keys {
        for (at, key) in keys.iter().enumerate() {
            label_key(key, &path.key(field).index(at), faults);
        }
        if !keys.is_empty() && term.label_selector.is_none() {
            faults.push(FieldError::new(path.key(field), "it adds to a labelSelector, and there is none: write one, or leave this out"));
        }
    }
    for (at, key) in term.mismatch_label_keys.iter().enumerate().filter(|(_, key)| term.match_label_keys.contains(key)) {
        let message = format!("{key:?} is in matchLabelKeys, too: leave one of them out");
        faults.push(FieldError::new(path.key("mismatchLabelKeys").index(at), message));
    }
}

pub(super) fn toleration(toleration: &Toleration, path: &FieldPath, faults: &mut Vec<FieldError>) {
    let Toleration { key, operator, value, effect, toleration_seconds } = toleration;
    let mut fault = |field: &str, message: String| faults.push(FieldError::new(path.key(field), message));
    if !key.is_empty() && !is_qualified_name(key) {
        fault("key", format!("{key:?} is no key of a taint: write {KEY_FORM}"));
    }
    if toleration_seconds.is_some() && effect != "NoExecute" {
        fault("effect", "with tolerationSeconds only NoExecute is tolerated: write it, or leave tolerationSeconds out".to_owned());
    }
    match operator.as_str() {
        "Exists" if !value.is_empty() => fault("value", "Exists takes no value: leave it out, or write the operator Equal".to_owned()),
        "" | "Equal" if key.is_empty() => {
            fault("key", "missing: write the key of a taint, or the operator Exists, which tolerates every taint".to_owned());
        }
        "" | "Equal" if !is_label_value(value) => fault("value", format!("{value:?} is no value of a taint: write {LABEL_VALUE_FORM}")),
        _ => {}
    }
    word(operator, &["Equal", "Exists"], path.key("operator"), faults);
    word(effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"], path.key("effect"), faults);
}

fn volumes(volumes: &[Volume], path: &FieldPath, faults: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (at, volume) in volumes.iter().enumerate() {
        let path = path.index(at);
        part_name(&volume.name, &mut names, &path.key("name"), faults);
        if volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name.is_empty()) {
            let path = path.key("persistentVolumeClaim").key("claimName");
            faults.push(missing(path, "write the name of a PersistentVolumeClaim in the pod's namespace"));
        }
        if volume.ephemeral.as_ref().is_some_and(|volume| volume.volume_claim_template.is_none()) {
            let path = path.key("ephemeral").key("volumeClaimTemplate");
            faults.push(missing(path, "write the claim that is made for each pod"));
        }
    }
}
