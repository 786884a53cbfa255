//! LimitRanges: the requests and limits that the API server gives to containers without, as their pods are created.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ObjectMeta;
use whittle_api::k8s::{Container, Pod, PodSpec, ResourceRequirements};
use whittle_units::Resources;

/// As far as it is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitRange {
    pub(super) metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    limits: Vec<Item>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Item {
    /// Container, Pod or PersistentVolumeClaim.
    #[serde(rename = "type")]
    type_: String,
    /// Of limits.
    default: Resources,
    default_request: Resources,
    max: Resources,
    min: Resources,
}

impl Item {
    /// What a container gets. A server completes a LimitRange itself: a maximum is a limit, a limit is a request, and so is a minimum.
    fn defaults(self) -> ResourceRequirements {
        let Self { default: mut limits, default_request: mut requests, max, min, .. } = self;
        fill(&mut limits, &max);
        fill(&mut requests, &limits);
        fill(&mut requests, &min);
        ResourceRequirements { requests, limits, ..ResourceRequirements::default() }
    }
}

/// What the LimitRanges of each namespace give to containers.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitRanges(BTreeMap<String, ResourceRequirements>);

impl LimitRanges {
    pub(super) fn add(&mut self, range: LimitRange) {
        let all = self.0.entry(range.metadata.namespace).or_default();
        for item in range.spec.limits.into_iter().filter(|item| item.type_ == "Container") {
            let defaults = item.defaults();
            fill(&mut all.limits, &defaults.limits);
            fill(&mut all.requests, &defaults.requests);
        }
    }

    /// The resources that containers of a namespace request by default, although their template does not name them.
    pub(super) fn given_in(&self, namespace: &str) -> BTreeSet<String> {
        self.0.get(namespace).map(|defaults| defaults.requests.0.keys().cloned().collect()).unwrap_or_default()
    }

    /// Gives pods that are created what they lack.
    pub(super) fn admit<'p>(&self, pods: impl IntoIterator<Item = &'p mut Pod>) {
        for pod in pods {
            self.complete(&pod.metadata.namespace, &mut pod.spec);
        }
    }

    /// Gives pods of a namespace that are made of a template what this one lacks.
    pub(super) fn complete(&self, namespace: &str, spec: &mut PodSpec) {
        let Some(defaults) = self.0.get(namespace) else { return };
        for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
            let ResourceRequirements { requests, limits, .. } = container.resources.get_or_insert_default();
            // The limits of the pod itself become requests before it is admitted, those of the namespace do not.
            fill(requests, limits);
            fill(limits, &defaults.limits);
            fill(requests, &defaults.requests);
        }
    }

    /// The resources that containers of a namespace get of it alone: their template has neither requests nor limits of these.
    pub(super) fn added_to(&self, namespace: &str, spec: &PodSpec) -> BTreeSet<String> {
        let given = self.given_in(namespace);
        let lacks = |container: &Container, name: &String| {
            let has = |own: &ResourceRequirements| own.requests.0.contains_key(name) || own.limits.0.contains_key(name);
            !container.resources.as_ref().is_some_and(has)
        };
        let containers = || spec.containers.iter().chain(spec.init_containers.iter());
        given.into_iter().filter(|name| containers().any(|container| lacks(container, name))).collect()
    }
}

/// Adds the amounts of what there is none of.
fn fill(own: &mut Resources, defaults: &Resources) {
    for (name, amount) in &defaults.0 {
        own.0.entry(name.clone()).or_insert(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Checks what a container with these resources has in namespace `team`, where there are LimitRanges of these items.
    #[track_caller]
    fn check(items: &[&Value], resources: &Value, expected: &Value) {
        let mut ranges = LimitRanges::default();
        for item in items {
            let range = json!({"metadata": {"name": "r", "namespace": "team"}, "spec": {"limits": [item]}});
            ranges.add(serde_json::from_value(range).unwrap());
        }
        let container = json!({"name": "c", "image": "i", "resources": resources});
        let pod = |namespace: &str| -> Pod {
            let spec = json!({"containers": [container], "initContainers": [container]});
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": namespace}, "spec": spec})).unwrap()
        };
        let mut pods = [pod("team"), pod("other")];
        ranges.admit(&mut pods);
        let expected: ResourceRequirements = serde_json::from_value(expected.clone()).unwrap();
        let [own, other] = &pods;
        assert_eq!(own.spec.containers[0].resources.as_ref(), Some(&expected));
        assert_eq!(own.spec.init_containers[0].resources.as_ref(), Some(&expected));
        assert_eq!(*other, pod("other"), "the LimitRange is of another namespace");
    }

    #[test]
    fn a_container_gets_what_it_lacks() {
        let range = json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}});
        let all = json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        check(&[&range], &json!({}), &all);
        let own = json!({"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "3", "memory": "3Gi"}});
        check(&[&range], &own, &own);
        // A limit of the pod is its request.
        let limited = json!({"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}});
        check(&[&range], &json!({"limits": {"cpu": "4"}}), &limited);
        let asks = json!({"requests": {"cpu": "200m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        let other = json!({"type": "Container", "default": {"cpu": "9"}});
        check(&[&range, &other], &json!({"requests": {"cpu": "200m"}}), &asks);
    }

    #[test]
    fn what_is_given_is_named_by_namespace() {
        let mut ranges = LimitRanges::default();
        let item = json!({"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}});
        let range = json!({"metadata": {"name": "r", "namespace": "team"}, "spec": {"limits": [item]}});
        ranges.add(serde_json::from_value(range).unwrap());
        assert_eq!(ranges.given_in("team"), BTreeSet::from(["cpu".to_owned(), "memory".to_owned()]));
        assert_eq!(ranges.given_in("other"), BTreeSet::new());
    }

    #[test]
    fn what_a_template_lacks_is_named() {
        let mut ranges = LimitRanges::default();
        let item = json!({"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}});
        let range = json!({"metadata": {"name": "r", "namespace": "team"}, "spec": {"limits": [item]}});
        ranges.add(serde_json::from_value(range).unwrap());
        let added = |namespace: &str, resources: &[Value]| {
            let containers: Vec<Value> = resources.iter().map(|own| json!({"name": "c", "image": "i", "resources": own})).collect();
            let spec: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
            ranges.added_to(namespace, &spec).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(added("team", &[json!({})]), ["cpu", "memory"]);
        assert_eq!(added("team", &[json!({"requests": {"cpu": "1"}})]), ["memory"]);
        assert_eq!(added("team", &[json!({"requests": {"cpu": "1"}}), json!({"limits": {"memory": "1Gi"}})]), ["cpu", "memory"]);
        assert_eq!(added("team", &[json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}})]), Vec::<String>::new());
        assert_eq!(added("other", &[json!({})]), Vec::<String>::new());
    }

    #[test]
    fn a_maximum_is_a_limit_and_a_minimum_a_request() {
        let range = json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "50m", "memory": "64Mi"}});
        check(&[&range], &json!({}), &json!({"requests": {"cpu": "2", "memory": "64Mi"}, "limits": {"cpu": "2"}}));
    }

    #[test]
    fn what_limits_whole_pods_or_claims_gives_containers_nothing() {
        let of_pods = json!({"type": "Pod", "max": {"cpu": "2"}});
        let of_claims = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}});
        let own = json!({"requests": {"memory": "1Gi"}});
        check(&[&of_pods, &of_claims], &own, &own);
    }
}
