//! `SCHEDULER_CONFIG`: spread constraints of pods that have none of their own, as configured for the cluster's kube-scheduler
//! (scheduling 22). YAML or JSON, parsed strictly: a typo must not disable the defaults.

use crate::k8s::TopologySpreadConstraint;
use crate::yaml;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// An error of the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerConfigError {
    #[error("this is no YAML: {0}")]
    Text(String),
    #[error("{0}")]
    Field(String),
    #[error("podTopologySpread.defaultConstraints[{at}].{field}: {remedy}")]
    Constraint { at: usize, field: &'static str, remedy: String },
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Document {
    pod_topology_spread: Option<Spread>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Spread {
    default_constraints: Vec<Constraint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Constraint {
    max_skew: i32,
    topology_key: String,
    when_unsatisfiable: String,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
    label_selector: Option<Value>,
    match_label_keys: Option<Vec<String>>,
}

/// The default constraints of a document; none for an empty one.
///
/// # Errors
/// The first error.
pub fn default_spread(text: &str) -> Result<Vec<TopologySpreadConstraint>, SchedulerConfigError> {
    let documents = yaml::documents(text).map_err(|error| SchedulerConfigError::Text(error.to_string()))?;
    let Some(document) = documents.iter().find(|document| !document.is_null()) else { return Ok(Vec::new()) };
    let document: Document =
        serde_path_to_error::deserialize(document.to_json()).map_err(|error| SchedulerConfigError::Field(error.to_string()))?;
    let constraints = document.pod_topology_spread.unwrap_or_default().default_constraints;
    let mut seen = BTreeSet::new();
    constraints
        .into_iter()
        .enumerate()
        .map(|(at, constraint)| {
            let key = (constraint.topology_key.clone(), constraint.when_unsatisfiable.clone());
            let constraint = checked(constraint).map_err(|(field, remedy)| SchedulerConfigError::Constraint { at, field, remedy })?;
            let remedy = || format!("{:?} with {} stands above already: keep one", key.0, key.1);
            if seen.insert(key.clone()) {
                Ok(constraint)
            } else {
                Err(SchedulerConfigError::Constraint { at, field: "topologyKey", remedy: remedy() })
            }
        })
        .collect()
}

fn checked(from: Constraint) -> Result<TopologySpreadConstraint, (&'static str, String)> {
    let one_of = |field, value: &str, allowed: &[&str]| {
        let remedy = || (field, format!("{value:?} is none of {}", allowed.join(", ")));
        if allowed.contains(&value) { Ok(()) } else { Err(remedy()) }
    };
    if from.max_skew <= 0 {
        return Err(("maxSkew", format!("{} is not greater than zero", from.max_skew)));
    }
    if !crate::runtime::is_qualified_name(&from.topology_key) {
        return Err(("topologyKey", format!("{:?} is no label key: write one such as topology.kubernetes.io/zone", from.topology_key)));
    }
    one_of("whenUnsatisfiable", &from.when_unsatisfiable, &["DoNotSchedule", "ScheduleAnyway"])?;
    for (field, policy) in [("nodeAffinityPolicy", &from.node_affinity_policy), ("nodeTaintsPolicy", &from.node_taints_policy)] {
        policy.as_deref().map_or(Ok(()), |policy| one_of(field, policy, &["Honor", "Ignore"]))?;
    }
    if from.min_domains.is_some_and(|least| least <= 0) {
        return Err(("minDomains", "it is not greater than zero".to_owned()));
    }
    let deduced = |field| Err((field, "leave it out: it is found from the pod's Services and its controller".to_owned()));
    if from.label_selector.is_some() {
        return deduced("labelSelector");
    }
    if from.match_label_keys.is_some() {
        return deduced("matchLabelKeys");
    }
    Ok(TopologySpreadConstraint {
        max_skew: from.max_skew,
        topology_key: from.topology_key,
        when_unsatisfiable: from.when_unsatisfiable,
        min_domains: from.min_domains,
        node_affinity_policy: from.node_affinity_policy,
        node_taints_policy: from.node_taints_policy,
        ..TopologySpreadConstraint::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "podTopologySpread:\n  defaultConstraints:\n  - maxSkew: 1\n    topologyKey: topology.kubernetes.io/zone\n    whenUnsatisfiable: ScheduleAnyway\n";

    #[test]
    fn yaml_and_json_are_equivalent_and_an_empty_document_has_no_defaults() {
        let json = r#"{"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]}}"#;
        let read = default_spread(YAML).unwrap();
        assert_eq!((read.len(), read[0].max_skew, read[0].topology_key.as_str()), (1, 1, "topology.kubernetes.io/zone"));
        assert_eq!(default_spread(json).unwrap(), read);
        assert_eq!(default_spread("").unwrap(), []);
        assert_eq!(default_spread("podTopologySpread: {}").unwrap(), []);
    }

    /// Parses `YAML` with a replacement; the error must contain `says`.
    #[track_caller]
    fn check(from: &str, to: &str, says: &str) {
        let error = default_spread(&YAML.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn invalid_documents_are_errors_that_name_the_field() {
        check("maxSkew: 1", "maxSkew: 0", "[0].maxSkew: 0 is not greater than zero");
        check("maxSkew: 1", "maxSkew: many", "maxSkew");
        check("topology.kubernetes.io/zone", "'a b'", "[0].topologyKey");
        check("topology.kubernetes.io/zone", "''", "[0].topologyKey");
        check("ScheduleAnyway", "Sometimes", "[0].whenUnsatisfiable: \"Sometimes\" is none of DoNotSchedule, ScheduleAnyway");
        check("maxSkew: 1", "maxSkew: 1\n    labelSelector: {}", "[0].labelSelector: leave it out");
        check("maxSkew: 1", "maxSkew: 1\n    matchLabelKeys: [a]", "[0].matchLabelKeys: leave it out");
        check("maxSkew: 1", "maxSkew: 1\n    nodeTaintsPolicy: Maybe", "[0].nodeTaintsPolicy");
        check("defaultConstraints", "defaults", "defaults");
        check("podTopologySpread", "spread", "spread");
        let twice = YAML.to_owned() + YAML.split_once("Constraints:\n").unwrap().1;
        assert!(default_spread(&twice).unwrap_err().to_string().contains("[1].topologyKey"), "one key and action stands once");
        let other = YAML.to_owned() + &YAML.split_once("Constraints:\n").unwrap().1.replace("ScheduleAnyway", "DoNotSchedule");
        assert_eq!(default_spread(&other).unwrap().len(), 2, "one key may have both actions");
    }
}
