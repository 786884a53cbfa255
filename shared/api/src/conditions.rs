//! Condition types and reasons of NodeClaims, NodePools, EC2NodeClasses, NodeOverlays and CapacityBuffers.

use crate::meta::{Condition, ConditionStatus};
use jiff::Timestamp;
use std::borrow::Cow;

pub const LAUNCHED: &str = "Launched";
pub const REGISTERED: &str = "Registered";
pub const INITIALIZED: &str = "Initialized";
pub const READY: &str = "Ready";
pub const CONSOLIDATABLE: &str = "Consolidatable";
pub const DRIFTED: &str = "Drifted";
pub const DRAINED: &str = "Drained";
pub const VOLUMES_DETACHED: &str = "VolumesDetached";
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
pub const DISRUPTION_REASON: &str = "DisruptionReason";
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// The reason of a NodePool whose template is invalid.
pub const POOL_INVALID: &str = "NodePoolValidationFailed";
pub const NODE_CLASS_READY: &str = "NodeClassReady";
pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
/// Of a CapacityBuffer: the template and number of its virtual pods are known.
pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
/// Of a CapacityBuffer: whether its capacity is available.
pub const PROVISIONING: &str = "Provisioning";
pub const AMIS_READY: &str = "AMIsReady";
pub const SUBNETS_READY: &str = "SubnetsReady";
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
/// Reasons of a part of an EC2NodeClass that was never looked up: the call failed for now, or AWS refuses it.
pub const LOOKUP_FAILED: &str = "LookupFailed";
pub const LOOKUP_REFUSED: &str = "LookupRefused";

/// What a condition says, besides its type and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionValue {
    pub status: ConditionStatus,
    /// Empty for the condition's type: an API server refuses a condition without a reason.
    pub reason: Cow<'static, str>,
    pub message: String,
}

impl ConditionValue {
    /// True, for the reason that is the condition's type.
    #[must_use]
    pub fn yes() -> Self {
        Self { status: ConditionStatus::True, reason: Cow::Borrowed(""), message: String::new() }
    }
    /// False.
    #[must_use]
    pub fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::False, reason: Cow::Borrowed(reason), message: message.into() }
    }
    /// Unknown.
    #[must_use]
    pub fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::Unknown, reason: Cow::Borrowed(reason), message: message.into() }
    }
    /// True if something holds, else False with a reason and message.
    #[must_use]
    pub fn of(holds: bool, reason: &'static str, message: &str) -> Self {
        if holds { Self::yes() } else { Self::no(reason, message) }
    }
    /// Sets the condition of a type to this, as [`set`] does.
    pub fn set_on(&self, conditions: &mut Vec<Condition>, type_: &str, now: Timestamp) -> bool {
        let reason: &str = if self.reason.is_empty() { type_ } else { &self.reason };
        set(conditions, type_, self.status, reason, &self.message, now)
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of a type is True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// Sets a condition; its transition time moves only when its status does. Returns whether anything changed.
pub fn set(conditions: &mut Vec<Condition>, type_: &str, status: ConditionStatus, reason: &str, message: &str, now: Timestamp) -> bool {
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.type_ == type_) {
        let moved = condition.status != status;
        let changed = moved || condition.reason != reason || condition.message != message;
        if moved {
            condition.status = status;
            condition.last_transition_time = Some(now);
        }
        reason.clone_into(&mut condition.reason);
        message.clone_into(&mut condition.message);
        return changed;
    }
    conditions.push(Condition {
        type_: type_.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Some(now),
        observed_generation: None,
    });
    true
}

/// Sets `Ready` after those that it depends on: False if one of them is, else Unknown if one is, else True. The message names all that
/// are not True.
pub fn set_ready(conditions: &mut Vec<Condition>, dependents: &[&str], now: Timestamp) -> bool {
    let all: &[Condition] = conditions;
    let known = dependents.iter().filter_map(|type_| find(all, type_));
    let unmet: Vec<&Condition> = known.filter(|condition| condition.status != ConditionStatus::True).collect();
    let message: Vec<String> = unmet.iter().map(|condition| format!("{}={:?}", condition.type_, condition.status)).collect();
    let (status, reason) = if unmet.is_empty() {
        (ConditionStatus::True, READY)
    } else if unmet.iter().any(|condition| condition.status == ConditionStatus::False) {
        (ConditionStatus::False, "UnhealthyDependents")
    } else {
        (ConditionStatus::Unknown, "ReconcilingDependents")
    };
    set(conditions, READY, status, reason, &message.join(", "), now)
}

/// Sets `observedGeneration` of all conditions.
pub fn observe(conditions: &mut [Condition], generation: Option<i64>) {
    conditions.iter_mut().for_each(|condition| condition.observed_generation = generation);
}

/// Removes a condition. Returns whether there was one.
pub fn clear(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConditionStatus::{False, True, Unknown};

    /// `Ready` after conditions `A`, `B` and, on which it does not depend, `C`.
    #[track_caller]
    fn check(statuses: [ConditionStatus; 3], expected: (ConditionStatus, &str, &str)) {
        let mut all = Vec::new();
        for (type_, status) in ["A", "B", "C"].into_iter().zip(statuses) {
            set(&mut all, type_, status, "why", "", Timestamp::UNIX_EPOCH);
        }
        set_ready(&mut all, &["A", "B"], Timestamp::UNIX_EPOCH);
        let ready = find(&all, READY).unwrap();
        assert_eq!((ready.status, ready.reason.as_str(), ready.message.as_str()), expected, "{statuses:?}");
    }

    #[test]
    fn a_value_without_a_reason_has_the_conditions_type_as_its_reason() {
        let mut all = Vec::new();
        assert!(ConditionValue::yes().set_on(&mut all, "A", Timestamp::UNIX_EPOCH));
        assert!(ConditionValue::no("Missing", "no b").set_on(&mut all, "B", Timestamp::UNIX_EPOCH));
        assert!(ConditionValue::of(true, "Missing", "no c").set_on(&mut all, "C", Timestamp::UNIX_EPOCH));
        assert!(!ConditionValue::yes().set_on(&mut all, "A", Timestamp::UNIX_EPOCH), "it was so before");
        let texts: Vec<String> = all.iter().map(|one| format!("{}={:?} {}: {}", one.type_, one.status, one.reason, one.message)).collect();
        assert_eq!(texts, ["A=True A: ", "B=False Missing: no b", "C=True C: "]);
    }

    #[test]
    fn ready_follows_from_all_that_it_depends_on() {
        check([True, True, False], (True, "Ready", ""));
        check([True, Unknown, False], (Unknown, "ReconcilingDependents", "B=Unknown"));
        check([Unknown, Unknown, True], (Unknown, "ReconcilingDependents", "A=Unknown, B=Unknown"));
        check([Unknown, False, True], (False, "UnhealthyDependents", "A=Unknown, B=False"));
        check([False, True, True], (False, "UnhealthyDependents", "A=False"));
    }
}
