//! Interruption notices as EventBridge delivers them (aws 21) and as instance status checks show them (aws 22).

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use whittle_units::InstanceId;

/// The kind of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterruptionKind {
    SpotInterrupted,
    RebalanceRecommendation,
    InstanceStopped,
    InstanceTerminated,
    CapacityReservationInterrupted,
    ScheduledChange,
    /// A failed instance status check (from DescribeInstanceStatus, not from an event).
    InstanceStatus,
    /// A failed system status check.
    SystemStatus,
    /// A scheduled event seen by DescribeInstanceStatus.
    EventStatus,
}

impl InterruptionKind {
    /// The value in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Self::ScheduledChange => "scheduled_change",
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::EventStatus => "event_status",
        }
    }
    /// What happens, in words, before the id of the instance.
    pub const fn text(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "EC2 announced a spot interruption",
            Self::RebalanceRecommendation => "EC2 made a rebalance recommendation",
            Self::InstanceStopped => "EC2 reported a stop",
            Self::InstanceTerminated => "EC2 reported a termination",
            Self::CapacityReservationInterrupted => "EC2 announced an interruption of the capacity reservation",
            Self::ScheduledChange => "AWS Health announced a scheduled change",
            Self::InstanceStatus => "the instance status check failed",
            Self::SystemStatus => "the system status check failed",
            Self::EventStatus => "EC2 has scheduled an event",
        }
    }
    /// Reason of the Kubernetes Event on claim and node (aws 21.3).
    pub const fn event_reason(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "SpotInterrupted",
            Self::RebalanceRecommendation => "SpotRebalanceRecommendation",
            Self::InstanceStopped => "InstanceStopping",
            Self::InstanceTerminated => "InstanceTerminating",
            Self::CapacityReservationInterrupted => "CapacityReservationInstanceInterrupted",
            Self::ScheduledChange | Self::InstanceStatus | Self::SystemStatus | Self::EventStatus => "InstanceUnhealthy",
        }
    }
    /// Whether the claim has to be deleted; a rebalance recommendation only informs.
    pub const fn ends_claim(self) -> bool {
        !matches!(self, Self::RebalanceRecommendation)
    }
    /// Whether drain and volume waits are shortened, because the machine has failed already.
    pub const fn ends_at_once(self) -> bool {
        matches!(self, Self::InstanceStatus | Self::SystemStatus)
    }
}

/// One notice: instances in the order in which they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    pub kind: InterruptionKind,
    pub instances: Vec<InstanceId>,
    /// When AWS sent the notice; `None` if it is not stated.
    pub time: Option<Timestamp>,
}

/// A message that is not an EventBridge event; to be logged and deleted.
#[derive(Debug, thiserror::Error)]
pub enum ParseInterruptionError {
    #[error("the message is not JSON")]
    Json(#[from] serde_json::Error),
    #[error("the message is not a JSON object but {0}")]
    NotAnObject(&'static str),
    #[error("field {field} of the event is not {expected}")]
    Field { field: &'static str, expected: &'static str },
}

/// Parses the body of a queue message. `None`: an irrelevant event.
///
/// Field names are case-insensitive, `null` means absent, and an event without an instance id names the
/// empty id, which no claim has (aws 21.1).
pub fn parse(body: &str) -> Result<Option<Interruption>, ParseInterruptionError> {
    if body.is_empty() {
        return Ok(None);
    }
    let event = match serde_json::from_str(body)? {
        Value::Null => return Ok(None),
        Value::Object(fields) => fields,
        Value::Array(_) => return Err(ParseInterruptionError::NotAnObject("an array")),
        _ => return Err(ParseInterruptionError::NotAnObject("a plain value")),
    };
    let time = match text(&event, "time")? {
        "" => None,
        moment => Some(moment.parse().map_err(|_| ParseInterruptionError::Field { field: "time", expected: "an RFC 3339 time" })?),
    };
    if text(&event, "version")? != "0" {
        return Ok(None);
    }
    let empty = Map::new();
    let detail = match field(&event, "detail") {
        None => &empty,
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(ParseInterruptionError::Field { field: "detail", expected: "an object" }),
    };
    let kind = match (text(&event, "source")?, text(&event, "detail-type")?) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => InterruptionKind::SpotInterrupted,
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => InterruptionKind::RebalanceRecommendation,
        // Karpenter knows the first name; EC2's page on interruptible reservations has the second.
        (
            "aws.ec2",
            "EC2 Capacity Reservation Instance Interruption Warning"
            | "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
        ) => InterruptionKind::CapacityReservationInterrupted,
        ("aws.ec2", "EC2 Instance State-change Notification") => match text(detail, "state")?.to_ascii_lowercase().as_str() {
            "stopping" | "stopped" => InterruptionKind::InstanceStopped,
            "shutting-down" | "terminated" => InterruptionKind::InstanceTerminated,
            _ => return Ok(None),
        },
        ("aws.health", "AWS Health Event") => {
            let is_change = text(detail, "service")? == "EC2" && text(detail, "eventTypeCategory")? == "scheduledChange";
            if !is_change || is_over(detail, "statusCode", "closed") {
                return Ok(None);
            }
            return Ok(Some(Interruption { kind: InterruptionKind::ScheduledChange, instances: affected(detail)?, time }));
        }
        _ => return Ok(None),
    };
    Ok(Some(Interruption { kind, instances: vec![InstanceId::new(text(detail, "instance-id")?)], time }))
}

/// Whether a status says that a change was made or cancelled. AWS Health then sends the event once more, with the same instances.
fn is_over(fields: &Map<String, Value>, status: &str, over: &str) -> bool {
    field(fields, status).and_then(Value::as_str).is_some_and(|text| text.eq_ignore_ascii_case(over))
}

/// The value of a field; absent and `null` are the same.
fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let exact = fields.get(name);
    let value = exact.or_else(|| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))?;
    (!value.is_null()).then_some(value)
}

fn text<'a>(fields: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, ParseInterruptionError> {
    match field(fields, name) {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ParseInterruptionError::Field { field: name, expected: "a text" }),
    }
}

/// The instances that a change is still to be made of.
fn affected(detail: &Map<String, Value>) -> Result<Vec<InstanceId>, ParseInterruptionError> {
    const NAME: &str = "affectedEntities";
    match field(detail, NAME) {
        None => Ok(Vec::new()),
        Some(Value::Array(entities)) => entities
            .iter()
            .filter(|entity| entity.as_object().is_none_or(|fields| !is_over(fields, "status", "RESOLVED")))
            .map(|entity| match entity {
                Value::Object(fields) => text(fields, "entityValue").map(InstanceId::new),
                Value::Null => Ok(InstanceId::default()),
                _ => Err(ParseInterruptionError::Field { field: NAME, expected: "a list of objects" }),
            })
            .collect(),
        Some(_) => Err(ParseInterruptionError::Field { field: NAME, expected: "a list" }),
    }
}

/// The relevant fields of a DescribeInstanceStatus entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceStatus {
    pub instance: InstanceId,
    /// Since when the instance status check has failed.
    pub instance_impaired_since: Option<Timestamp>,
    /// Since when the system status check has failed.
    pub system_impaired_since: Option<Timestamp>,
    /// A scheduled reboot, retirement, stop or maintenance.
    pub has_scheduled_event: bool,
}

impl InstanceStatus {
    /// Whether a check fails or an event is scheduled.
    pub const fn is_failing(&self) -> bool {
        self.instance_impaired_since.is_some() || self.system_impaired_since.is_some() || self.has_scheduled_event
    }
}

/// How long checks must have failed before they count (aws 22).
const IMPAIRED_FOR: jiff::SignedDuration = jiff::SignedDuration::from_secs(120);

/// The notice kinds of an instance at `now`, worst first.
pub fn unhealthy(status: &InstanceStatus, now: Timestamp) -> Vec<InterruptionKind> {
    let failing = |since: Option<Timestamp>| since.is_some_and(|since| now.duration_since(since) >= IMPAIRED_FOR);
    let all = [
        (InterruptionKind::InstanceStatus, failing(status.instance_impaired_since)),
        (InterruptionKind::SystemStatus, failing(status.system_impaired_since)),
        (InterruptionKind::EventStatus, status.has_scheduled_event),
    ];
    all.into_iter().filter(|(_, holds)| *holds).map(|(kind, _)| kind).collect()
}

#[cfg(test)]
mod tests;
