//! HorizontalPodAutoscalers, and KEDA's ScaledObjects: how many replicas they leave a workload, whatever its own object says.

use super::acceptance::REPLICAS_MAX;
use super::documents::Document;
use super::expansion::{Key, PodMaker, Replicas, key};
use super::remarks::{NAMED_MAX, TOLD_EACH_MAX};
use crate::listing::first_named;
use serde_json::Value;
use std::collections::BTreeMap;

/// Annotations of a ScaledObject that leaves the replicas alone.
const PAUSED: [&str; 2] = ["autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"];

/// What scales a workload.
#[derive(Clone, Debug)]
struct Autoscaler {
    /// Its kind, namespace and name.
    shown: String,
    least: i32,
    most: i32,
    /// Whether it starts workloads that have no replicas. An HPA leaves these alone.
    starts: bool,
    live: bool,
    changed: bool,
}

/// All autoscalers, by what they scale.
#[derive(Clone, Debug, Default)]
pub(super) struct Autoscalers(BTreeMap<Key, Autoscaler>);

impl Autoscalers {
    /// Adds an object; returns whether it is an autoscaler that can be read.
    pub(super) fn add(&mut self, document: &Document) -> bool {
        let Some((target, autoscaler)) = read(document) else { return false };
        self.0.insert(target, autoscaler);
        true
    }

    /// Sets the replicas of workloads that no option names as their autoscalers would. Returns notes.
    pub(super) fn scale(&self, makers: &mut [PodMaker], asked: &[Replicas]) -> Vec<String> {
        let free = makers.iter_mut().filter(|maker| !asked.iter().any(|replicas| replicas.means(maker)));
        told(free.filter_map(|maker| self.0.get(&key(maker))?.scale(maker)))
    }

    /// The same where the workload or its autoscaler is changed.
    pub(super) fn scale_changed(&self, makers: &mut [PodMaker]) -> Vec<String> {
        let scaled = |maker: &mut PodMaker| self.0.get(&key(maker)).filter(|one| one.changed || maker.changed)?.scale(maker);
        told(makers.iter_mut().filter_map(scaled))
    }
}

impl Autoscaler {
    /// Scales a workload; returns its name and a note, if it has another number of replicas by that.
    fn scale(&self, maker: &mut PodMaker) -> Option<(String, String)> {
        // What a cluster has, its controllers have scaled.
        if (self.live && maker.live) || (maker.replicas == 0 && !self.starts) {
            return None;
        }
        let (before, after) = (maker.replicas, maker.replicas.clamp(self.least, self.most));
        if before == after {
            return None;
        }
        maker.replicas = after;
        maker.live = false;
        maker.changed |= self.changed;
        let workload = format!("{} {}", maker.kind, maker.metadata.key());
        let Self { shown, least, most, .. } = self;
        let note = format!("{workload} counts with {after} replicas instead of {before}: {shown} keeps {least} to {most}");
        Some((workload, note))
    }
}

/// The notes about workloads, or one if these are many.
fn told(scaled: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let (workloads, notes): (Vec<String>, Vec<String>) = scaled.unzip();
    if notes.len() <= TOLD_EACH_MAX {
        return notes;
    }
    vec![format!("{} count with the replicas that their autoscalers keep, instead of their own", first_named(&workloads, NAMED_MAX))]
}

/// An autoscaler, and what it scales.
fn read(document: &Document) -> Option<(Key, Autoscaler)> {
    let (group, _) = document.version().split_once('/')?;
    let metadata = document.value.get("metadata")?;
    let is_paused = || metadata.get("annotations").is_some_and(|annotations| PAUSED.iter().any(|key| annotations.get(key).is_some()));
    let (least, most, kind) = match (group, document.kind()) {
        ("autoscaling", "HorizontalPodAutoscaler") => (("minReplicas", Some(1)), ("maxReplicas", None), None),
        ("keda.sh", "ScaledObject") if !is_paused() => (("minReplicaCount", Some(0)), ("maxReplicaCount", Some(100)), Some("Deployment")),
        _ => return None,
    };
    let spec = document.value.get("spec")?;
    let count = |(field, absent): (&str, Option<i32>)| match spec.get(field) {
        None => absent,
        Some(count) => count.as_i64().and_then(|count| i32::try_from(count).ok()).filter(|count| (0..=REPLICAS_MAX).contains(count)),
    };
    let (least, most) = (count(least)?, count(most)?);
    let target = spec.get("scaleTargetRef")?;
    let text = |of: &Value, field: &str| of.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let kind = text(target, "kind").or_else(|| kind.map(str::to_owned))?;
    let namespace = text(metadata, "namespace").unwrap_or_else(|| "default".to_owned());
    let shown = format!("{} {namespace}/{}", document.kind(), document.name());
    let Document { live, changed, .. } = *document;
    let autoscaler = Autoscaler { shown, least, most, starts: group == "keda.sh", live, changed };
    (least <= most).then_some(((namespace, kind, text(target, "name")?), autoscaler))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ParsedDocuments;

    fn document(text: &str) -> Document {
        let mut found = ParsedDocuments::default();
        found.add_text("in.yaml", text);
        found.documents.remove(0)
    }

    fn hpa(spec: &str) -> String {
        format!("{{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {{name: web, namespace: shop}}, spec: {spec}}}")
    }

    fn scaled_object(annotations: &str, spec: &str) -> String {
        format!("{{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {{name: q, annotations: {annotations}}}, spec: {spec}}}")
    }

    /// What is scaled, and how many replicas it may have.
    fn bounds(text: &str) -> Option<(String, i32, i32)> {
        let ((namespace, kind, name), autoscaler) = read(&document(text))?;
        Some((format!("{kind} {namespace}/{name}"), autoscaler.least, autoscaler.most))
    }

    #[test]
    fn autoscalers_are_read_with_the_defaults_of_their_kinds() {
        let of = |target: &str, least: i32, most: i32| Some((target.to_owned(), least, most));
        let web = "scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}";
        assert_eq!(bounds(&hpa(&format!("{{minReplicas: 3, maxReplicas: 9, {web}}}"))), of("StatefulSet shop/web", 3, 9));
        assert_eq!(bounds(&hpa(&format!("{{maxReplicas: 9, {web}}}"))), of("StatefulSet shop/web", 1, 9));
        assert_eq!(bounds(&scaled_object("{}", "{scaleTargetRef: {name: w}}")), of("Deployment default/w", 0, 100));
        let counts = "{minReplicaCount: 2, maxReplicaCount: 4, scaleTargetRef: {kind: StatefulSet, name: w}}";
        assert_eq!(bounds(&scaled_object("{}", counts)), of("StatefulSet default/w", 2, 4));
    }

    #[test]
    fn what_scales_nothing_is_no_autoscaler() {
        let web = "scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}";
        for spec in [
            format!("{{minReplicas: 3, {web}}}"),
            format!("{{minReplicas: 9, maxReplicas: 3, {web}}}"),
            format!("{{minReplicas: -1, maxReplicas: 3, {web}}}"),
            format!("{{minReplicas: 1000000, maxReplicas: 2000000, {web}}}"),
            format!("{{minReplicas: many, maxReplicas: 3, {web}}}"),
            "{maxReplicas: 3, scaleTargetRef: {name: web}}".to_owned(),
            "{maxReplicas: 3, scaleTargetRef: {kind: Deployment}}".to_owned(),
            "{maxReplicas: 3}".to_owned(),
            "[]".to_owned(),
        ] {
            assert_eq!(bounds(&hpa(&spec)), None, "{spec}");
        }
        for annotations in ["{autoscaling.keda.sh/paused: 'true'}", "{autoscaling.keda.sh/paused-replicas: '0'}"] {
            assert_eq!(bounds(&scaled_object(annotations, "{minReplicaCount: 2, scaleTargetRef: {name: w}}")), None);
        }
        let other = hpa(&format!("{{maxReplicas: 9, {web}}}")).replace("autoscaling/v2", "autoscaling.example.com/v1");
        assert_eq!(bounds(&other), None);
    }
}
