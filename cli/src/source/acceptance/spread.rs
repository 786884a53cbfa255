//! Topology spread constraints.

use super::pod::word;
use super::selectors::{label_key, label_selector, missing};
use std::collections::BTreeSet;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::TopologySpreadConstraint;

/// What is done with a pod that cannot be spread.
const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];

/// Adds the errors of a pod's constraints.
pub(super) fn constraints(constraints: &[TopologySpreadConstraint], path: &FieldPath, faults: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (at, one) in constraints.iter().enumerate() {
        let path = path.index(at);
        constraint(one, &path, faults);
        if !one.topology_key.is_empty() && !seen.insert((&one.topology_key, &one.when_unsatisfiable)) {
            let message = format!("{} is spread over twice with this whenUnsatisfiable: keep one of them", one.topology_key);
            faults.push(FieldError::new(path.key("topologyKey"), message));
        }
    }
}

fn constraint(one: &TopologySpreadConstraint, path: &FieldPath, faults: &mut Vec<FieldError>) {
    if one.max_skew < 1 {
        let message = format!("{} is no difference that pods can be spread by: write 1 or more", one.max_skew);
        faults.push(FieldError::new(path.key("maxSkew"), message));
    }
    label_key(&one.topology_key, &path.key("topologyKey"), faults);
    if one.when_unsatisfiable.is_empty() {
        faults.push(missing(path.key("whenUnsatisfiable"), "write DoNotSchedule or ScheduleAnyway"));
    }
    word(&one.when_unsatisfiable, &ACTIONS, path.key("whenUnsatisfiable"), faults);
    if let Some(least) = one.min_domains {
        if least < 1 {
            faults.push(FieldError::new(path.key("minDomains"), format!("{least} domains are none: write 1 or more, or leave it out")));
        } else if one.when_unsatisfiable == "ScheduleAnyway" {
            let message = "it only counts with whenUnsatisfiable DoNotSchedule: write that, or leave it out";
            faults.push(FieldError::new(path.key("minDomains"), message));
        }
    }
    let policies = [("nodeAffinityPolicy", &one.node_affinity_policy), ("nodeTaintsPolicy", &one.node_taints_policy)];
    for (field, policy) in policies {
        word(policy.as_deref().unwrap_or_default(), &["Honor", "Ignore"], path.key(field), faults);
    }
    if let Some(selector) = &one.label_selector {
        label_selector(selector, &path.key("labelSelector"), faults);
    }
    match_label_keys(one, &path.key("matchLabelKeys"), faults);
}

fn match_label_keys(one: &TopologySpreadConstraint, path: &FieldPath, faults: &mut Vec<FieldError>) {
    let Some(selector) = &one.label_selector else {
        if !one.match_label_keys.is_empty() {
            faults.push(FieldError::new(path.clone(), "it adds to a labelSelector, and there is none: write one, or leave this out"));
        }
        return;
    };
    for (at, key) in one.match_label_keys.iter().enumerate() {
        label_key(key, &path.index(at), faults);
        let is_selected = selector.match_labels.contains_key(key) || selector.match_expressions.iter().any(|each| each.key == *key);
        if is_selected {
            faults.push(FieldError::new(path.index(at), format!("{key:?} is in the labelSelector, too: leave one of them out")));
        }
    }
}
