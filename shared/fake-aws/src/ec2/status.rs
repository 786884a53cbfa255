//! EC2's checks of instances, and the events that it has scheduled for them.

use super::instances::{all_exist, ids, state};
use super::selection::{Filters, page};
use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ec2::interruption::InstanceStatus;
use whittle_units::{SignedDuration, Timestamp};

const FILTERS: &[&str] = &[
    "availability-zone",
    "event.code",
    "instance-state-name",
    "instance-status.reachability",
    "instance-status.status",
    "system-status.reachability",
    "system-status.status",
];
/// The code of every scheduled event.
const EVENT: &str = "instance-retirement";

pub(super) fn describe(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let ids = ids(params)?;
    if !ids.is_empty() && params.fields().contains_key("MaxResults") {
        return Err(Fault::combination("The parameter instancesSet cannot be used with the parameter maxResults"));
    }
    // Only running instances are checked; the others are returned on request.
    let all = params.parsed::<bool>("IncludeAllInstances")?.unwrap_or(false);
    let filters = Filters::take(params, FILTERS, false)?;
    let (seen, now) = (place.instances(), place.now());
    all_exist(&ids, |id| seen.iter().any(|instance| instance.id == *id))?;
    let statuses = &place.region().statuses;
    let none = BTreeMap::new();
    let named = seen.iter().filter(|instance| ids.is_empty() || ids.contains(&instance.id));
    let matching = named
        .filter(|instance| all || instance.state == InstanceState::Running)
        .map(|instance| Report { instance, status: statuses.get(&instance.id) })
        .filter(|report| filters.match_all(&none, |name| report.field(name).into_iter().collect()));
    let (found, next) = page(params, matching.collect(), 5..=1000)?;
    let described: Vec<Value> = found.iter().map(|report| report.described(now)).collect();
    Ok(json!({"instanceStatusSet": described, "nextToken": next}))
}

/// An instance with what is wrong with it, if anything is.
struct Report<'a> {
    instance: &'a Instance,
    status: Option<&'a InstanceStatus>,
}

impl Report<'_> {
    fn instance_impaired(&self) -> Option<Timestamp> {
        self.status.and_then(|status| status.instance_impaired_since)
    }

    fn system_impaired(&self) -> Option<Timestamp> {
        self.status.and_then(|status| status.system_impaired_since)
    }

    /// The word for a check, which needs a running instance.
    fn word(&self, since: Option<Timestamp>, words: (&'static str, &'static str)) -> &'static str {
        match (self.instance.state, since) {
            (InstanceState::Running, None) => words.0,
            (InstanceState::Running, Some(_)) => words.1,
            _ => "not-applicable",
        }
    }

    fn field(&self, name: &str) -> Option<String> {
        let (sound, reached) = (("ok", "impaired"), ("passed", "failed"));
        let text = match name {
            "availability-zone" => self.instance.zone.as_str(),
            "event.code" => self.has_event().then_some(EVENT)?,
            "instance-state-name" => state(self.instance.state).0,
            "instance-status.status" => self.word(self.instance_impaired(), sound),
            "instance-status.reachability" => self.word(self.instance_impaired(), reached),
            "system-status.status" => self.word(self.system_impaired(), sound),
            _ => self.word(self.system_impaired(), reached),
        };
        Some(text.to_owned())
    }

    fn has_event(&self) -> bool {
        self.status.is_some_and(|status| status.has_scheduled_event)
    }

    fn described(&self, now: Timestamp) -> Value {
        let (name, code) = state(self.instance.state);
        let check = |since: Option<Timestamp>| {
            let detail = json!({
                "name": "reachability",
                "status": self.word(since, ("passed", "failed")),
                "impairedSince": since.map(|since| since.to_string()),
            });
            json!({"status": self.word(since, ("ok", "impaired")), "details": [detail]})
        };
        let event = json!({
            "instanceEventId": format!("instance-event-{}", self.instance.id.as_str().trim_start_matches("i-")),
            "code": EVENT,
            "description": "The instance is running on degraded hardware",
            "notBefore": (now + SignedDuration::from_hours(24)).to_string(),
        });
        json!({
            "instanceId": self.instance.id.as_str(),
            "availabilityZone": self.instance.zone,
            "instanceState": {"code": code, "name": name},
            "instanceStatus": check(self.instance_impaired()),
            "systemStatus": check(self.system_impaired()),
            "eventsSet": self.has_event().then(|| vec![event]),
        })
    }
}
