//! What is judged of each kind.

use super::super::identity::naming_faults;
use super::selectors::{label_key, label_selector, labels, metadata, missing, node_selector};
use super::{budget_fault, pod, resources};
use std::collections::BTreeSet;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::{
    ConfigMap, CsiNode, DaemonSet, Deployment, DeploymentSpec, Job, Kind, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    PodDisruptionBudget, PodTemplate, PriorityClass, ReplicaSet, ReplicationController, RuntimeClass, Service, StatefulSet, StorageClass,
    StoredPodTemplate, VolumeAttachment,
};
use whittle_api::karpenter::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use whittle_api::runtime::{KEY_FORM, LABEL_VALUE_FORM, is_qualified_name};
use whittle_api::words::is_printable;
use whittle_api::{LabelSelector, ObjectMeta};

/// The largest priority of a class that is not the system's own.
const PRIORITY_MAX: i32 = 1_000_000_000;

/// A kind of which an API server refuses some objects.
pub(crate) trait Judged: Kind {
    /// What it refuses in the fields that are read here, but for numbers of replicas.
    fn faults(&self) -> Vec<FieldError>;
    /// How many pods it asks for, and where.
    fn replicas(&self) -> Option<(&'static str, i32)> {
        None
    }
}

/// The errors of the metadata by which an object is known.
fn naming<T: Kind>(object: &T) -> Vec<FieldError> {
    let fault = |(field, message): (&str, String)| FieldError::new(FieldPath::of(field), message);
    naming_faults(object).into_iter().map(fault).collect()
}

/// Implements the judgement of a kind: that of its metadata, and a function.
macro_rules! judged {
    ($($kind:ty: $judge:expr $(, of $replicas:expr)?;)*) => {$(
        impl Judged for $kind {
            $(fn replicas(&self) -> Option<(&'static str, i32)> {
                let replicas: fn(&Self) -> Option<(&'static str, i32)> = $replicas;
                replicas(self)
            }
            )?
            fn faults(&self) -> Vec<FieldError> {
                let mut faults = naming(self);
                metadata(&self.metadata, &FieldPath::of("metadata"), &mut faults);
                let judge: fn(&Self, &mut Vec<FieldError>) = $judge;
                judge(self, &mut faults);
                faults
            }
        }
    )*};
}

judged! {
    Pod: |one, faults| pod::spec(&one.spec, &FieldPath::of("spec"), faults);
    Deployment: |one, faults| workload(&one.spec, faults), of |one| Some(("spec.replicas", one.spec.replicas?));
    ReplicaSet: |one, faults| workload(&one.spec, faults), of |one| Some(("spec.replicas", one.spec.replicas?));
    StatefulSet: |one, faults| workload(&one.spec, faults), of |one| Some(("spec.replicas", one.spec.replicas?));
    DaemonSet: |one, faults| selecting(&one.spec.selector, &one.spec.template, faults);
    ReplicationController: |one, faults| {
        template(&one.spec.template, "spec.template", faults);
        labels(&one.spec.selector.clone().unwrap_or_default(), &FieldPath::of("spec.selector"), faults);
    }, of |one| Some(("spec.replicas", one.spec.replicas?));
    Job: |one, faults| template(&one.spec.template, "spec.template", faults), of |one| Some((one.pods_field(), one.pods_at_a_time()));
    StoredPodTemplate: |one, faults| template(&one.template, "template", faults);
    Service: |one, faults| labels(&one.spec.selector, &FieldPath::of("spec.selector"), faults);
    PodDisruptionBudget: budget;
    PersistentVolume: |one, faults| {
        let required = one.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        required.into_iter().for_each(|required| node_selector(required, &FieldPath::of("spec.nodeAffinity.required"), faults));
    };
    StorageClass: storage_class;
    PriorityClass: priority_class;
    RuntimeClass: runtime_class;
    ConfigMap: |_, _| {};
    CsiNode: |_, _| {};
    Namespace: |_, _| {};
    PersistentVolumeClaim: |_, _| {};
    VolumeAttachment: |_, _| {};
}

/// A kubelet makes a Node, with labels that it has from others: only the taints are a user's.
impl Judged for Node {
    fn faults(&self) -> Vec<FieldError> {
        let mut faults = naming(self);
        unprintable_labels(&self.metadata, &mut faults);
        node(self, &mut faults);
        faults
    }
}

/// A NodePool is validated with its schema, metadata included.
impl Judged for NodePool {
    fn faults(&self) -> Vec<FieldError> {
        Vec::new()
    }
}

/// Of Karpenter's other kinds only what is read is looked at.
macro_rules! validated {
    ($($kind:ty),*) => {$(
        impl Judged for $kind {
            fn faults(&self) -> Vec<FieldError> {
                let mut faults = naming(self);
                unprintable_labels(&self.metadata, &mut faults);
                faults
            }
        }
    )*};
}

validated!(NodeClaim, NodeOverlay, CapacityBuffer);

/// Adds the errors of labels that would not be one line in what is printed. Others a dump may have, and files with variables such as
/// `${CLUSTER_NAME}`.
fn unprintable_labels(metadata: &ObjectMeta, faults: &mut Vec<FieldError>) {
    let odd = metadata.labels.iter().filter(|(key, value)| !is_printable(key) || !is_printable(value));
    let path = FieldPath::of("metadata.labels");
    faults.extend(odd.map(|(key, value)| FieldError::new(path.key(key), format!("{value:?} is no label value: write {LABEL_VALUE_FORM}"))));
}

/// Adds the errors of a spec of a Deployment, a ReplicaSet or a StatefulSet.
fn workload(spec: &DeploymentSpec, faults: &mut Vec<FieldError>) {
    selecting(&spec.selector, &spec.template, faults);
}

/// Adds the errors of a selector and of the template whose pods it selects.
fn selecting(selector: &LabelSelector, pods: &PodTemplate, faults: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec.selector");
    let before = faults.len();
    label_selector(selector, &path, faults);
    if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
        faults.push(missing(path, "write the labels of the template, by which its pods are known"));
    } else if faults.len() == before && !selector.matches(&pods.metadata.labels) {
        let message = "the labels of the template do not match it, so that its own pods are not known: write the same labels in both";
        faults.push(FieldError::new(path, message));
    }
    template(pods, "spec.template", faults);
}

fn template(template: &PodTemplate, path: &str, faults: &mut Vec<FieldError>) {
    let path = FieldPath::of(path);
    metadata(&template.metadata, &path.key("metadata"), faults);
    pod::spec(&template.spec, &path.key("spec"), faults);
}

fn budget(budget: &PodDisruptionBudget, faults: &mut Vec<FieldError>) {
    if let Some((field, message)) = budget_fault(&budget.spec) {
        faults.push(FieldError::new(FieldPath::of("spec").key(field), message));
    }
    if let Some(selector) = &budget.spec.selector {
        label_selector(selector, &FieldPath::of("spec.selector"), faults);
    }
}

fn node(node: &Node, faults: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (at, taint) in node.spec.taints.iter().enumerate() {
        let path = FieldPath::of("spec.taints").index(at);
        if !is_qualified_name(&taint.key) {
            faults.push(FieldError::new(path.key("key"), format!("{:?} is no key of a taint: write {KEY_FORM}", taint.key)));
        }
        if !seen.insert((&taint.key, taint.effect)) {
            faults.push(FieldError::new(path, format!("{taint} has the key and effect of another taint: keep one of them")));
        }
    }
}

fn storage_class(class: &StorageClass, faults: &mut Vec<FieldError>) {
    pod::word(&class.volume_binding_mode, &["Immediate", "WaitForFirstConsumer"], FieldPath::of("volumeBindingMode"), faults);
    for (at, term) in class.allowed_topologies.iter().enumerate() {
        for (number, expression) in term.match_label_expressions.iter().enumerate() {
            let path = FieldPath::of("allowedTopologies").index(at).key("matchLabelExpressions").index(number);
            label_key(&expression.key, &path.key("key"), faults);
            if expression.values.is_empty() {
                faults.push(missing(path.key("values"), "write where volumes may be, such as the names of zones"));
            }
        }
    }
}

fn priority_class(class: &PriorityClass, faults: &mut Vec<FieldError>) {
    if PRIORITY_MAX < class.value && !class.metadata.name.starts_with("system-") {
        let message = format!("{} is kept for the system's own classes: write at most {PRIORITY_MAX}", class.value);
        faults.push(FieldError::new(FieldPath::of("value"), message));
    }
    pod::word(&class.preemption_policy, &["PreemptLowerPriority", "Never"], FieldPath::of("preemptionPolicy"), faults);
}

fn runtime_class(class: &RuntimeClass, faults: &mut Vec<FieldError>) {
    if let Some(overhead) = &class.overhead {
        resources::amounts(&overhead.pod_fixed, &FieldPath::of("overhead.podFixed"), faults);
    }
    if let Some(scheduling) = &class.scheduling {
        labels(&scheduling.node_selector, &FieldPath::of("scheduling.nodeSelector"), faults);
        for (at, one) in scheduling.tolerations.iter().enumerate() {
            pod::toleration(one, &FieldPath::of("scheduling.tolerations").index(at), faults);
        }
    }
}
