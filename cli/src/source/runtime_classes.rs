//! RuntimeClasses: what the API server adds to pods that name one, as they are created.

use super::remarks::Remark;
use crate::listing::first_named;
use std::collections::BTreeMap;
use whittle_api::k8s::{Pod, RuntimeClass};

/// The RuntimeClasses of some manifests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeClasses {
    by_name: BTreeMap<String, RuntimeClass>,
}

impl RuntimeClasses {
    pub(super) fn add(&mut self, class: RuntimeClass) {
        self.by_name.insert(class.metadata.name.clone(), class);
    }

    /// Adds to pods what their classes say; returns which of those that wait a server would refuse, and why.
    pub(super) fn admit(&self, pods: &mut [Pod]) -> Vec<String> {
        let mut refused: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in pods {
            let Some(class) = self.by_name.get(&pod.spec.runtime_class_name) else { continue };
            // What runs was accepted, and its class may have been another then.
            for fault in admit(pod, class).into_iter().filter(|_| !pod.is_bound()) {
                refused.entry(fault).or_default().push(format!("{:?}", pod.metadata.key()));
            }
        }
        refused.into_iter().map(|(fault, pods)| format!("Pod {}, {fault}", first_named(&pods, 1))).collect()
    }

    /// Of classes that waiting pods name and that are not given. A pod with an overhead has what its class says.
    pub(super) fn remarks(&self, pods: &[Pod]) -> Vec<Remark> {
        let waits = |pod: &&Pod| !pod.is_bound() && !pod.is_terminal() && pod.spec.overhead.is_empty();
        let mut unknown: BTreeMap<&str, usize> = BTreeMap::new();
        for name in pods.iter().filter(waits).map(|pod| pod.spec.runtime_class_name.as_str()) {
            if !name.is_empty() && !self.by_name.contains_key(name) {
                *unknown.entry(name).or_default() += 1;
            }
        }
        let remark = |(name, pods): (&str, usize)| {
            let lack = if pods == 1 { "1 pod that names it lacks".to_owned() } else { format!("{pods} pods that name it lack") };
            Remark::note(format!(
                "RuntimeClass {name:?} is not given: {lack} what it adds (overhead, nodeSelector, tolerations), and a server without it \
                 refuses such pods"
            ))
        };
        unknown.into_iter().map(remark).collect()
    }
}

/// Adds to a pod what its class says, as the plugin RuntimeClass of the API server does; returns what it would refuse.
fn admit(pod: &mut Pod, class: &RuntimeClass) -> Vec<String> {
    let (name, spec, mut faults) = (&class.metadata.name, &mut pod.spec, Vec::new());
    let fixed = class.overhead.as_ref().map(|overhead| overhead.pod_fixed.clone()).unwrap_or_default();
    if spec.overhead.is_empty() {
        spec.overhead = fixed;
    } else if spec.overhead != fixed {
        faults.push(format!("spec.overhead: it is not that of RuntimeClass {name:?}: leave it out"));
    }
    let Some(scheduling) = &class.scheduling else { return faults };
    for (key, value) in &scheduling.node_selector {
        let own = spec.node_selector.entry(key.clone()).or_insert_with(|| value.clone());
        if *own != *value {
            faults.push(format!("spec.nodeSelector.{key}: RuntimeClass {name:?} has {value:?}, this {own:?}: leave it out"));
        }
    }
    for toleration in &scheduling.tolerations {
        if !spec.tolerations.contains(toleration) {
            spec.tolerations.push(toleration.clone());
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use crate::source::{Manifests, read_stored, read_text};
    use serde_json::json;

    const CLASS: &str = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: boxed}\nhandler: boxed\n\
                         overhead: {podFixed: {cpu: 250m, memory: 64Mi}}\n\
                         scheduling: {nodeSelector: {sandbox: \"yes\"}, tolerations: [{key: sandbox, operator: Exists}]}\n";

    /// A pod with more in its spec, and the class.
    fn read(more: &str) -> Manifests {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{runtimeClassName: boxed, {more}containers: [{{name: c, image: i}}]}}\n"
        );
        read_text("in.yaml", &format!("{pod}---\n{CLASS}")).unwrap()
    }

    #[test]
    fn a_pod_gets_what_its_class_adds_once() {
        let all = "overhead: {cpu: 250m, memory: 64Mi}, nodeSelector: {sandbox: \"yes\"}, \
                   tolerations: [{key: sandbox, operator: Exists}], ";
        for more in ["", all] {
            let read = read(more);
            let spec = &read.objects.pods[0].spec;
            assert_eq!(spec.overhead.get("cpu").to_string(), "250m", "{more}");
            assert_eq!(spec.node_selector.get("sandbox").map(String::as_str), Some("yes"), "{more}");
            assert_eq!(spec.tolerations.len(), 1, "{more}");
            assert!(read.warnings.is_empty() && read.skipped.is_empty(), "{:?} {:?}", read.warnings, read.skipped);
            assert!(read.workloads.runtime_classes.remarks(&read.objects.pods).is_empty());
        }
    }

    #[test]
    fn what_contradicts_the_class_is_refused_and_stays() {
        for (more, wanted) in [
            ("overhead: {cpu: 1}, ", "Pod \"default/a\", spec.overhead: it is not that of RuntimeClass \"boxed\": leave it out"),
            (
                "nodeSelector: {sandbox: \"no\"}, ",
                "Pod \"default/a\", spec.nodeSelector.sandbox: RuntimeClass \"boxed\" has \"yes\", this \"no\": leave it out",
            ),
        ] {
            assert_eq!(read(more).warnings, [wanted]);
            let bound = read(&format!("nodeName: n, {more}"));
            assert!(bound.warnings.is_empty(), "it was accepted: {:?}", bound.warnings);
        }
        assert_eq!(read("nodeSelector: {sandbox: \"no\"}, ").objects.pods[0].spec.node_selector["sandbox"], "no");
    }

    #[test]
    fn a_class_that_is_not_given_is_told_of_pods_that_wait_for_it() {
        let pod =
            |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{spec}containers: [{{name: c, image: i}}]}}\n");
        for (spec, told) in [
            ("runtimeClassName: other, ", 1),
            ("runtimeClassName: other, nodeName: n, ", 0),
            ("runtimeClassName: other, overhead: {cpu: 1}, ", 0),
            ("", 0),
        ] {
            let read = read_text("in.yaml", &format!("{}---\n{CLASS}", pod(spec))).unwrap();
            let remarks = read.workloads.runtime_classes.remarks(&read.objects.pods);
            assert_eq!(remarks.len(), told, "{spec}: {remarks:?}");
            assert!(remarks.iter().all(|remark| remark.text.starts_with("RuntimeClass \"other\" is not given: 1 pod that names it lacks")));
        }
    }

    #[test]
    fn a_pod_of_a_cluster_has_what_its_class_said() {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "boxed"}, "handler": "boxed",
            "overhead": {"podFixed": {"cpu": "250m"}}});
        let pod = |class: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": class, "namespace": "default"},
                "spec": {"runtimeClassName": class, "containers": [{"name": "c", "image": "i"}]}})
        };
        let read = read_stored(&[class, pod("boxed"), pod("other")].map(|object| object.to_string()).join("\n---\n")).unwrap();
        assert!(read.objects.pods.iter().all(|pod| pod.spec.overhead.is_empty()));
        assert!(read.workloads.runtime_classes.remarks(&read.objects.pods).is_empty());
    }

    #[test]
    fn a_class_that_no_server_accepts_is_refused() {
        let read = read_text("in.yaml", &CLASS.replace("250m", "-1")).unwrap_err().to_string();
        assert!(read.contains("RuntimeClass \"boxed\"") && read.contains("overhead.podFixed.cpu: -1 is less than nothing"), "{read}");
    }
}
