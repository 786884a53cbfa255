//! HorizontalPodAutoscalers, and KEDA's ScaledObjects: how many replicas they leave a workload, whatever its own object says.

use super::acceptance::REPLICAS_MAX;
use super::documents::Document;
use super::expansion::{Key, PodMaker, Replicas, key, replicas_of};
use super::remarks::{NAMED_MAX, TOLD_EACH_MAX};
use crate::listing::first_named;
use serde_json::Value;
use std::collections::BTreeMap;

/// The annotation of a ScaledObject that leaves the replicas alone, and its values that say otherwise.
const PAUSED: &str = "autoscaling.keda.sh/paused";
const NOT_PAUSED: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];
/// The annotation of one that keeps this number of replicas meanwhile.
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";

/// Kinds of autoscalers. KEDA has each ScaledObject's pods scaled by an HPA, which a dump has as well and which follows the ScaledObject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    HorizontalPodAutoscaler,
    ScaledObject,
}

/// What scales a workload.
#[derive(Clone, Debug)]
struct Autoscaler {
    kind: Kind,
    /// Its kind, namespace and name.
    shown: String,
    least: i32,
    most: i32,
    /// Whether it starts workloads that have no replicas. An HPA leaves these alone, and so does a ScaledObject with another number for
    /// times without work.
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
        if self.0.get(&target).is_none_or(|other| other.precedence() <= autoscaler.precedence()) {
            self.0.insert(target, autoscaler);
        }
        true
    }

    /// Sets the replicas of workloads that no option names as their autoscalers would. Returns notes.
    pub(super) fn scale(&self, makers: &mut [PodMaker], asked: &[Replicas]) -> Vec<String> {
        let free = makers.iter_mut().filter(|maker| !asked.iter().any(|replicas| replicas.means(maker)));
        notes_or_sum(free.filter_map(|maker| self.0.get(&key(maker))?.scale(maker)))
    }

    /// The same where the workload or its autoscaler is changed.
    pub(super) fn scale_changed(&self, makers: &mut [PodMaker]) -> Vec<String> {
        let scaled = |maker: &mut PodMaker| self.0.get(&key(maker)).filter(|one| one.changed || maker.changed)?.scale(maker);
        notes_or_sum(makers.iter_mut().filter_map(scaled))
    }
}

impl Autoscaler {
    /// Which of several that scale the same workload counts: the last that was written, and of KEDA's not the one that it makes.
    const fn precedence(&self) -> (bool, bool, Kind) {
        (self.changed, !self.live, self.kind)
    }

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
        maker.autoscaled = true;
        maker.live = false;
        maker.changed |= self.changed;
        let workload = format!("{} {}", maker.kind, maker.metadata.key());
        let Self { shown, least, most, .. } = self;
        let note = format!("{workload} counts with {} instead of {before}: {shown} keeps {least} to {most}", replicas_of(after));
        Some((workload, note))
    }
}

/// The notes about workloads, or one if these are many.
fn notes_or_sum(scaled: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let (workloads, notes): (Vec<String>, Vec<String>) = scaled.unzip();
    if notes.len() <= TOLD_EACH_MAX {
        return notes;
    }
    vec![format!("{} count with the replicas that their autoscalers keep, instead of their own", first_named(&workloads, NAMED_MAX))]
}

/// An autoscaler, and what it scales.
fn read(document: &Document) -> Option<(Key, Autoscaler)> {
    let (metadata, spec) = (document.value.get("metadata")?, document.value.get("spec")?);
    let (kind, (least, most), of_absent) = match (document.version(), document.kind()) {
        ("autoscaling/v1" | "autoscaling/v2", "HorizontalPodAutoscaler") => {
            let bounds = (count(spec, "minReplicas", Some(1))?, count(spec, "maxReplicas", None)?);
            (Kind::HorizontalPodAutoscaler, bounds, None)
        }
        (version, "ScaledObject") if version.starts_with("keda.sh/") => {
            (Kind::ScaledObject, bounds_of_keda(metadata, spec)?, Some("Deployment"))
        }
        _ => return None,
    };
    let target = spec.get("scaleTargetRef")?;
    let text = |of: &Value, field: &str| of.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let scaled = text(target, "kind").or_else(|| of_absent.map(str::to_owned))?;
    let namespace = text(metadata, "namespace").unwrap_or_else(|| "default".to_owned());
    let shown = format!("{} {namespace}/{}", document.kind(), document.name());
    let starts = kind == Kind::ScaledObject && spec.get("idleReplicaCount").is_none();
    let Document { live, changed, .. } = *document;
    let autoscaler = Autoscaler { kind, shown, least, most, starts, live, changed };
    (least <= most).then_some(((namespace, scaled, text(target, "name")?), autoscaler))
}

/// The bounds of a ScaledObject. One that is paused keeps as many as its annotation says, or leaves the replicas as they are.
fn bounds_of_keda(metadata: &Value, spec: &Value) -> Option<(i32, i32)> {
    let annotation = |key: &str| metadata.get("annotations").and_then(|all| all.get(key)).and_then(Value::as_str);
    if let Some(kept) = annotation(PAUSED_REPLICAS) {
        let kept = kept.parse::<i32>().ok().filter(|kept| (0..=REPLICAS_MAX).contains(kept))?;
        return Some((kept, kept));
    }
    if annotation(PAUSED).is_some_and(|value| !NOT_PAUSED.contains(&value)) {
        return Some((0, REPLICAS_MAX));
    }
    Some((count(spec, "minReplicaCount", Some(0))?, count(spec, "maxReplicaCount", Some(100))?))
}

/// A number of replicas.
fn count(spec: &Value, field: &str, absent: Option<i32>) -> Option<i32> {
    let Some(count) = spec.get(field) else { return absent };
    count.as_i64().and_then(|count| i32::try_from(count).ok()).filter(|count| (0..=REPLICAS_MAX).contains(count))
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
        let many = scaled_object("{autoscaling.keda.sh/paused-replicas: many}", "{scaleTargetRef: {name: w}}");
        assert_eq!(bounds(&many), None);
        // No server has the versions before v2 any more.
        for version in ["autoscaling.example.com/v1", "autoscaling/v2beta2"] {
            let other = hpa(&format!("{{maxReplicas: 9, {web}}}")).replace("autoscaling/v2", version);
            assert_eq!(bounds(&other), None, "{version}");
        }
    }

    #[test]
    fn one_that_is_paused_keeps_what_its_annotation_says_or_what_there_is() {
        let of = |least: i32, most: i32| Some(("Deployment default/w".to_owned(), least, most));
        for (annotations, expected) in [
            ("{autoscaling.keda.sh/paused: 'true'}", of(0, REPLICAS_MAX)),
            ("{autoscaling.keda.sh/paused: ''}", of(0, REPLICAS_MAX)),
            ("{autoscaling.keda.sh/paused: 'false'}", of(2, 100)),
            ("{autoscaling.keda.sh/paused-replicas: '0'}", of(0, 0)),
            ("{autoscaling.keda.sh/paused: 'true', autoscaling.keda.sh/paused-replicas: '7'}", of(7, 7)),
        ] {
            assert_eq!(bounds(&scaled_object(annotations, "{minReplicaCount: 2, scaleTargetRef: {name: w}}")), expected, "{annotations}");
        }
    }

    /// A ScaledObject with an idle number has none at times, and that is where a dump finds it.
    #[test]
    fn only_a_scaled_object_without_an_idle_number_starts_what_has_no_replicas() {
        let starts = |text: &str| read(&document(text)).map(|(_, autoscaler)| autoscaler.starts);
        assert_eq!(starts(&scaled_object("{}", "{minReplicaCount: 2, scaleTargetRef: {name: w}}")), Some(true));
        assert_eq!(starts(&scaled_object("{}", "{idleReplicaCount: 0, minReplicaCount: 2, scaleTargetRef: {name: w}}")), Some(false));
        assert_eq!(starts(&hpa("{maxReplicas: 9, scaleTargetRef: {kind: Deployment, name: web}}")), Some(false));
    }

    /// In whatever order they are read.
    #[test]
    fn of_several_for_one_workload_the_changed_one_counts_and_no_hpa_that_keda_makes() {
        let scaled = |least: usize| {
            let spec = format!("{{minReplicaCount: {least}, scaleTargetRef: {{name: web}}}}");
            scaled_object("{}", &spec).replace("name: q,", "name: q, namespace: shop,")
        };
        let made = hpa("{minReplicas: 2, maxReplicas: 9, scaleTargetRef: {kind: Deployment, name: web}}");
        let least = |documents: &[(&str, bool)]| {
            let mut all = Autoscalers::default();
            for (text, changed) in documents {
                let mut one = document(text);
                one.changed = *changed;
                assert!(all.add(&one), "{text}");
            }
            all.0.values().map(|one| (one.least, one.kind)).collect::<Vec<_>>()
        };
        let (keda, changed) = (scaled(4), scaled(6));
        for documents in [[(&*made, false), (&*keda, false)], [(&*keda, false), (&*made, false)]] {
            assert_eq!(least(&documents), [(4, Kind::ScaledObject)]);
        }
        for documents in [[(&*changed, true), (&*made, false)], [(&*made, false), (&*changed, true)]] {
            assert_eq!(least(&documents), [(6, Kind::ScaledObject)]);
        }
        for documents in [[(&*made, true), (&*keda, false)], [(&*keda, false), (&*made, true)]] {
            assert_eq!(least(&documents), [(2, Kind::HorizontalPodAutoscaler)]);
        }
    }
}
