//! RuntimeClasses: what the API server adds to pods that name one, as they are created.

use super::remarks::Remark;
use crate::listing::first_named;
use std::collections::BTreeMap;
use whittle_api::k8s::{DaemonSet, Pod, PodSpec, RuntimeClass};

/// The RuntimeClasses of some manifests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeClasses {
    by_name: BTreeMap<String, RuntimeClass>,
    /// DaemonSets of files whose class is not given, with its name.
    unknown_of_daemons: Vec<(String, String)>,
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
            for fault in admit(&mut pod.spec, class).into_iter().filter(|_| !pod.is_bound()) {
                refused.entry(fault).or_default().push(format!("{:?}", pod.metadata.key()));
            }
        }
        refused.into_iter().map(|(fault, pods)| format!("Pod {}, {fault}", first_named(&pods, 1))).collect()
    }

    /// Adds to the templates of DaemonSets that no cluster has had what the classes say, as their pods get it; returns of which a server
    /// would refuse the pods, and why.
    pub(super) fn admit_templates<'s>(&mut self, sets: impl Iterator<Item = &'s mut DaemonSet>) -> Vec<String> {
        let mut refused = Vec::new();
        for set in sets {
            let (key, spec) = (set.metadata.key(), &mut set.spec.template.spec);
            match self.by_name.get(&spec.runtime_class_name) {
                Some(class) => {
                    refused.extend(admit(spec, class).into_iter().map(|fault| format!("DaemonSet {key:?}, spec.template.{fault}")));
                }
                None if !spec.runtime_class_name.is_empty() && spec.overhead.is_empty() => {
                    self.unknown_of_daemons.push((key, spec.runtime_class_name.clone()));
                }
                None => {}
            }
        }
        refused
    }

    /// Of classes that waiting pods or DaemonSets of files name and that are not given. A pod with an overhead has what its class says.
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
        let of_daemon = |(set, name): &(String, String)| {
            Remark::note(format!(
                "RuntimeClass {name:?} is not given: DaemonSet {set:?} lacks what it adds (overhead, nodeSelector, tolerations), and a \
                 server without it refuses its pods"
            ))
        };
        unknown.into_iter().map(remark).chain(self.unknown_of_daemons.iter().map(of_daemon)).collect()
    }
}

/// Adds to the spec of a pod what its class says, as the plugin RuntimeClass of the API server does; returns what it would refuse.
fn admit(spec: &mut PodSpec, class: &RuntimeClass) -> Vec<String> {
    let (name, mut faults) = (&class.metadata.name, Vec::new());
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

    /// A DaemonSet with more in the spec of its pods.
    fn daemon_set(more: &str) -> String {
        format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: agent, namespace: default}}\nspec:\n  \
             selector: {{matchLabels: {{app: agent}}}}\n  template:\n    metadata: {{labels: {{app: agent}}}}\n    \
             spec: {{{more}containers: [{{name: c, image: i}}]}}\n"
        )
    }

    #[test]
    fn machines_have_room_for_what_a_class_adds_to_the_pods_of_a_new_daemon_set() {
        let text = format!("{}---\n{CLASS}", daemon_set("runtimeClassName: boxed, "));
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "boxed"}, "handler": "boxed",
            "overhead": {"podFixed": {"cpu": "250m"}}});
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {"metadata": {"labels": {"app": "agent"}},
                "spec": {"runtimeClassName": "boxed", "containers": [{"name": "c", "image": "i"}]}}}});
        let of_cluster = [class, set].map(|object| object.to_string()).join("\n---\n");
        for (read, cpu) in [(read_text("in.yaml", &text).unwrap(), "250m"), (read_stored(&of_cluster).unwrap(), "0")] {
            let daemons = whittle_model::pods::daemon_pods(&read.objects.daemon_sets, &read.objects.pods);
            let spec = &daemons[0].spec;
            assert_eq!(whittle_model::pods::effective_requests(&daemons[0]).get("cpu").to_string(), cpu);
            assert_eq!((spec.node_selector.len(), spec.tolerations.len()), if cpu == "0" { (0, 0) } else { (1, 1) }, "{cpu}");
            assert!(read.warnings.is_empty(), "{:?}", read.warnings);
            assert!(read.workloads.runtime_classes.remarks(&read.objects.pods).is_empty());
        }
    }

    #[test]
    fn a_daemon_set_is_told_of_a_class_that_it_contradicts_or_that_is_not_given() {
        let read = |more: &str| read_text("in.yaml", &format!("{}---\n{CLASS}", daemon_set(more))).unwrap();
        let wanted = "DaemonSet \"default/agent\", spec.template.spec.overhead: it is not that of RuntimeClass \"boxed\": leave it out";
        assert_eq!(read("runtimeClassName: boxed, overhead: {cpu: 1}, ").warnings, [wanted]);
        let remarks = |more: &str| {
            let read = read(more);
            read.workloads.runtime_classes.remarks(&read.objects.pods).into_iter().map(|remark| remark.text).collect::<Vec<_>>()
        };
        let told = remarks("runtimeClassName: other, ");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("RuntimeClass \"other\" is not given: DaemonSet \"default/agent\" lacks"), "{told:?}");
        assert_eq!(remarks("runtimeClassName: other, overhead: {cpu: 1}, "), [""; 0]);
        assert_eq!(remarks(""), [""; 0]);
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
