//! Taints and who puts up with them.

use whittle_api::k8s::{Taint, Toleration};

/// Whether one toleration covers `taint`.
fn covers(toleration: &Toleration, taint: &Taint) -> bool {
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
            (Ok(there), Ok(bound)) if toleration.operator == "Lt" => there < bound,
            (Ok(there), Ok(bound)) => there > bound,
            _ => false,
        },
        _ => false,
    }
}

/// Whether some toleration covers `taint`.
#[must_use]
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|t| covers(t, taint))
}

/// The taints that no toleration covers, whatever their effect.
#[must_use]
pub fn untolerated(tolerations: &[Toleration], taints: &[Taint]) -> Vec<Taint> {
    taints.iter().filter(|t| !tolerates(tolerations, t)).cloned().collect()
}
