//! The labels that a new machine has because its requirements name them.

use super::{Allowed, Operator, Requirements};
use crate::pods::is_restricted;
use std::collections::BTreeMap;

/// How many numbers are tried where any value will do.
const TRIES: i64 = 1000;

/// One value for each key that is the user's own: neither `is_known`, which the instance type decides, nor restricted. A key that must
/// be absent, or has no value, is left out.
#[must_use]
pub fn custom_labels(requirements: &Requirements, is_known: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let own = requirements.iter().filter(|(key, _)| !is_known(key) && !is_restricted(key, |_| false));
    own.filter_map(|(key, allowed)| Some((key.clone(), any_value(allowed)?))).collect()
}

fn any_value(allowed: &Allowed<String>) -> Option<String> {
    match allowed.operator() {
        Operator::In => allowed.listed().first().cloned(),
        Operator::Exists | Operator::NotIn => {
            let from = allowed.bounds().0.unwrap_or(0);
            (from..from.saturating_add(TRIES)).map(|n| n.to_string()).find(|value| allowed.has(value))
        }
        Operator::DoesNotExist => None,
    }
}
