//! Objects of kinds that are not read here, whose controllers make pods of a template: Rollouts, Services of Knative, CronJobs. Without a
//! word the plan of a file would lack these pods.

use super::documents::Document;
use super::remarks::{NAMED_MAX, Remark};
use crate::listing::first_named;
use serde_json::Value;
use std::collections::BTreeMap;

/// How deep below `spec` a template of pods may be: that of a CronJob is at `jobTemplate.spec.template`, others are in lists.
const DEPTH: usize = 6;

/// Groups whose objects have templates that pods are compared with, or changed by, and of which none is made.
const POLICIES: &str = "kyverno.io";

/// Objects whose pods are not planned, by version and kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Unplanned(BTreeMap<(String, String), Vec<String>>);

impl Unplanned {
    /// Adds an object; returns whether it makes pods of a template. What a cluster has is left alone: its pods are among the others, if it
    /// has made any.
    pub(super) fn add(&mut self, document: &Document) -> bool {
        let is_new = !document.live && document.value.pointer("/metadata/uid").is_none();
        let is_policy = document.version().split_once('/').is_some_and(|(group, _)| group.ends_with(POLICIES));
        if !is_new || is_policy || !document.value.get("spec").is_some_and(|spec| has_template(spec, DEPTH)) {
            return false;
        }
        let namespace = document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
        let name = format!("{namespace}/{}", document.name());
        self.0.entry((document.version().to_owned(), document.kind().to_owned())).or_default().push(name);
        true
    }

    /// A warning for each kind.
    pub(super) fn remarks(&self) -> impl Iterator<Item = Remark> {
        self.0.iter().map(|((version, kind), names)| {
            let named = first_named(names, NAMED_MAX);
            let remedy = if (version.as_str(), kind.as_str()) == ("batch/v1", "CronJob") {
                "add a Job with its spec.jobTemplate.spec to plan for a run"
            } else {
                "add a Deployment with its template and replicas to plan them"
            };
            Remark::warning(format!("no pods are planned for {version} {kind} {named}, which is of no kind that is read here: {remedy}"))
        })
    }
}

/// Whether there is a template of pods, with containers.
fn has_template(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let is_template = |(key, value): (&String, &Value)| {
        let containers = || value.pointer("/spec/containers").and_then(Value::as_array);
        key.to_ascii_lowercase().ends_with("template") && containers().is_some_and(|containers| !containers.is_empty())
    };
    match value {
        Value::Object(fields) => fields.iter().any(is_template) || fields.values().any(|field| has_template(field, depth)),
        Value::Array(elements) => elements.iter().any(|element| has_template(element, depth)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ParsedDocuments;

    const TEMPLATE: &str = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}";

    /// What is said of these objects.
    fn said(documents: &[String]) -> Vec<String> {
        let mut found = ParsedDocuments::default();
        found.add_text("in.yaml", &documents.join("\n---\n"));
        let mut unplanned = Unplanned::default();
        found.documents.iter().for_each(|document| {
            unplanned.add(document);
        });
        unplanned.remarks().map(|remark| remark.text).collect()
    }

    fn object(version: &str, kind: &str, metadata: &str, spec: &str) -> String {
        format!("{{apiVersion: {version}, kind: {kind}, metadata: {metadata}, spec: {spec}}}")
    }

    #[test]
    fn objects_that_make_pods_are_told_by_kind() {
        let rollout = |name: &str| object("argoproj.io/v1alpha1", "Rollout", &format!("{{name: {name}}}"), &format!("{{{TEMPLATE}}}"));
        let all = [
            object("batch/v1", "CronJob", "{name: nightly, namespace: etl}", &format!("{{jobTemplate: {{spec: {{{TEMPLATE}}}}}}}")),
            object("ray.io/v1", "RayCluster", "{name: ray}", &format!("{{workerGroupSpecs: [{{replicas: 2, {TEMPLATE}}}]}}")),
            rollout("a"),
            rollout("b"),
            rollout("c"),
            rollout("d"),
        ];
        let begins = [
            "no pods are planned for argoproj.io/v1alpha1 Rollout default/a, default/b, default/c and 1 more, which",
            "no pods are planned for batch/v1 CronJob etl/nightly, which",
            "no pods are planned for ray.io/v1 RayCluster default/ray, which",
        ];
        let said = said(&all);
        assert_eq!(said.len(), begins.len(), "{said:?}");
        said.iter().zip(begins).for_each(|(text, begin)| assert!(text.starts_with(begin), "{text}"));
        assert!(said[1].ends_with("add a Job with its spec.jobTemplate.spec to plan for a run"), "{}", said[1]);
    }

    #[test]
    fn what_makes_no_pods_or_has_made_them_is_not_told() {
        let spec = format!("{{{TEMPLATE}}}");
        let nothing = [
            object("argoproj.io/v1alpha1", "Rollout", "{name: a, uid: u-1}", &spec),
            object("argoproj.io/v1alpha1", "Rollout", "{name: a}", "{workloadRef: {kind: Deployment, name: web}}"),
            object("example.com/v1", "Gadget", "{name: a}", "{template: {spec: {containers: []}}}"),
            object("example.com/v1", "Gadget", "{name: a}", "{template: text, containers: [{name: c}]}"),
            object("example.com/v1", "Gadget", "{name: a}", "none"),
            // What pods of others have to be like.
            object("kyverno.io/v1", "ClusterPolicy", "{name: a}", &format!("{{rules: [{{validate: {{pattern: {{spec: {spec}}}}}}}]}}")),
            object("policies.kyverno.io/v1", "MutatingPolicy", "{name: a}", &spec),
        ];
        assert_eq!(said(&nothing), Vec::<String>::new());
    }
}
