//! Zonal shifts of Application Recovery Controller: REST paths with the resource's ARN, and JSON.

use crate::api::Request;
use crate::errors::Fault;
use crate::place::Place;
use serde_json::{Value, json};
use whittle_claims::{ShiftState, ZoneShift};

/// The service as signatures and policies name it.
pub(crate) const SERVICE: &str = "arc-zonal-shift";
/// The name of the field, and of the policies' condition key, that has the resource's ARN.
pub(crate) const IDENTIFIER: &str = "ResourceIdentifier";

/// The action of a path; empty for an unsupported one.
pub(crate) fn action(request: &Request) -> &'static str {
    match (request.method.as_str(), resource_of(request)) {
        ("GET", Some(_)) => "GetManagedResource",
        _ => "",
    }
}

/// The ARN that a path has as one segment.
pub(crate) fn resource_of(request: &Request) -> Option<String> {
    let segment = request.path.strip_prefix("/managedresources/")?.split('?').next()?;
    let arn = segment.replace("%3A", ":").replace("%2F", "/");
    (!segment.contains('/') && arn.starts_with("arn:")).then_some(arn)
}

pub(crate) fn call(place: &mut dyn Place, request: &Request) -> Result<Value, Fault> {
    let missing = |what: String| Fault::new("ResourceNotFoundException", format!("The resource {what} was not found.")).with_status(404);
    let arn = resource_of(request).ok_or_else(|| missing(request.path.clone()))?;
    let (_, name) = arn.rsplit_once(":cluster/").ok_or_else(|| missing(arn.clone()))?;
    let cluster =
        place.cluster(&whittle_units::ClusterName::new(name)).filter(|info| info.arn == arn).ok_or_else(|| missing(arn.clone()))?;
    let shifts: Vec<Value> = place.region().zone_shifts.iter().map(|shift| described(shift, &arn)).collect();
    Ok(json!({
        "arn": arn, "name": cluster.name.as_str(), "appliedWeights": {}, "autoshifts": [], "zonalShifts": shifts,
        "zonalAutoshiftStatus": "DISABLED",
    }))
}

/// A shift begins an hour before it ends.
fn described(shift: &ZoneShift, arn: &str) -> Value {
    let applied = match shift.state {
        ShiftState::Applied => "APPLIED",
        ShiftState::NotApplied => "NOT_APPLIED",
    };
    json!({
        "appliedStatus": applied, "awayFrom": shift.away_from, "comment": "simulated", "expiryTime": shift.ends_at.as_second(),
        "resourceIdentifier": arn, "startTime": shift.ends_at.as_second() - 3600,
        "zonalShiftId": "00000000-0000-0000-0000-000000000001",
    })
}
