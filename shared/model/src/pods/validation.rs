//! Validation of a pod's node constraints.

use crate::requirements::canonical_key;
use whittle_api::k8s::{NodeSelectorTerm, Pod};
use whittle_api::karpenter::Operator;
use whittle_api::labels;
use whittle_api::runtime::is_label_value;

/// Whether users must not set `key` as a label: Karpenter's domains except the well-known keys, and the hostname.
#[must_use]
pub fn is_restricted(key: &str, well_known: impl Fn(&str) -> bool) -> bool {
    // Nodes of pools converted from a Provisioner have its label, so workloads may refer to it.
    if well_known(key) || key == labels::PROVISIONER_NAME {
        return false;
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |root: &str| domain == root || domain.strip_suffix(root).is_some_and(|rest| rest.ends_with('.'));
    key == labels::HOSTNAME || within(labels::KARPENTER_DOMAIN) || within(labels::AWS_DOMAIN)
}

/// That the required terms of a pod are all empty, so that no node is left for it wherever it runs now.
#[must_use]
pub fn empty_affinity(pod: &Pod) -> Option<String> {
    let terms = &pod.spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
    let all = !terms.is_empty() && terms.iter().all(NodeSelectorTerm::is_empty);
    all.then(|| "its required node affinity has empty terms alone, and an empty term matches no node: give a term an expression".to_owned())
}

/// The errors in a pending pod's node selector and required node affinity. Preferences are not validated.
#[must_use]
pub fn node_constraint_errors(pod: &Pod, well_known: impl Fn(&str) -> bool + Copy) -> Vec<String> {
    let mut out = Vec::new();
    for (key, value) in &pod.spec.node_selector {
        check(key, "In", std::slice::from_ref(value), well_known, &mut out);
    }
    let required = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    out.extend(empty_affinity(pod));
    for term in required.iter().flat_map(|r| &r.node_selector_terms) {
        if !term.match_fields.is_empty() {
            out.push("node selector term with matchFields is not supported".to_owned());
        }
        for e in &term.match_expressions {
            check(&e.key, &e.operator, &e.values, well_known, &mut out);
        }
    }
    out
}

/// What is wrong with one requirement of a pod, a sentence for each fault; empty if nothing is. `well_known` are the labels that may
/// be named although their domain is restricted.
#[must_use]
pub fn requirement_errors(key: &str, operator: &str, values: &[String], well_known: impl Fn(&str) -> bool) -> Vec<String> {
    let mut out = Vec::new();
    check(key, operator, values, well_known, &mut out);
    out
}

fn check(key: &str, operator: &str, values: &[String], well_known: impl Fn(&str) -> bool, out: &mut Vec<String>) {
    let key = canonical_key(key);
    let Some(parsed) = Operator::parse(operator) else {
        out.push(format!("key {key} has an unsupported operator {operator}: use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte"));
        return;
    };
    if is_restricted(key, well_known) {
        out.push(format!("label {key} is restricted; specify a well known label, or a custom label that does not use a restricted domain"));
    }
    if !is_qualified_name(key) {
        out.push(format!("key {key:?} is not a qualified label name"));
    }
    for value in values.iter().filter(|v| !is_label_value(v)) {
        out.push(format!("value {value:?} for key {key} is not a label value"));
    }
    match parsed {
        Operator::In if values.is_empty() => out.push(format!("key {key} with operator In must have a value")),
        Operator::In => known_values(key, values, out),
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte if !matches!(values, [only] if only.parse::<i64>().is_ok_and(|n| n >= 0)) =>
        {
            out.push(format!("key {key} with operator {operator} must have a single integer value of at least 0"));
        }
        _ => {}
    }
}

/// At least one value must be known for keys with a fixed set of values.
fn known_values(key: &str, values: &[String], out: &mut Vec<String>) {
    let known: &[&str] = match key {
        labels::CAPACITY_TYPE => &[labels::CAPACITY_ON_DEMAND, labels::CAPACITY_SPOT, labels::CAPACITY_RESERVED],
        labels::INSTANCE_TENANCY => &["default", "dedicated"],
        _ => return,
    };
    if !values.iter().any(|v| known.contains(&v.as_str())) {
        out.push(format!("no valid values found in {values:?} for {key}, expected one of: {}", known.join(", ")));
    }
}

fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(p, n)| (Some(p), n));
    let dns = |p: &str| !p.is_empty() && p.len() <= 253 && p.split('.').all(is_dns_label);
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(dns)
}

fn is_dns_label(part: &str) -> bool {
    let is_alphanumeric = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    is_alphanumeric(part.as_bytes().first())
        && is_alphanumeric(part.as_bytes().last())
        && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}
