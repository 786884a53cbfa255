//! Taints and tolerations.

use whittle_api::k8s::{Taint, Toleration};

fn tolerates_taint(toleration: &Toleration, taint: &Taint) -> bool {
    if !toleration.effect.is_empty() && toleration.effect != taint.effect.to_string() {
        return false;
    }
    if !toleration.key.is_empty() && toleration.key != taint.key {
        return false;
    }
    match toleration.operator.as_str() {
        "" | "Equal" => !toleration.key.is_empty() && toleration.value == taint.value,
        "Exists" => true,
        "Lt" | "Gt" => match (taint.value.parse::<i64>(), toleration.value.parse::<i64>()) {
            (Ok(value), Ok(bound)) if toleration.operator == "Lt" => value < bound,
            (Ok(value), Ok(bound)) => value > bound,
            _ => false,
        },
        _ => false,
    }
}

/// Whether any toleration tolerates `taint`.
#[must_use]
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|t| tolerates_taint(t, taint))
}

/// The taints that are not tolerated, whatever their effect.
#[must_use]
pub fn untolerated(tolerations: &[Toleration], taints: &[Taint]) -> Vec<Taint> {
    taints.iter().filter(|t| !tolerates(tolerations, t)).cloned().collect()
}
