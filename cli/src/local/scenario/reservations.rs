//! Steps of scenarios about capacity: reservations, and zonal shifts.

use super::Shift;
use super::run::{Played, Player};
use serde::Deserialize;
use std::collections::BTreeMap;
use whittle_api::GoDuration;
use whittle_claims::{ShiftState, ZoneShift};
use whittle_ec2::network::CapacityReservation;
use whittle_sim::region::Reservation;

/// Creates or changes a capacity reservation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reserve {
    pub id: String,
    #[serde(rename = "type")]
    pub instance_type: String,
    pub zone: String,
    pub count: u32,
    /// `default` or `capacity-block`.
    #[serde(default = "ordinary")]
    pub kind: String,
    /// Time until its end; unlimited if absent.
    #[serde(default)]
    pub ends_in: Option<GoDuration>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

fn ordinary() -> String {
    "default".to_owned()
}

impl Player<'_> {
    /// Adds a zonal shift that is applied from now on.
    pub(super) fn shift(&mut self, shift: &Shift) {
        self.session.log(&format!("a zonal shift moves traffic away from {} for {}", shift.zone, shift.span));
        let mut world = self.session.simulation.world();
        let ends_at = world.now().saturating_add(shift.span.span()).unwrap_or(whittle_units::Timestamp::MAX);
        let zone = world.region.catalog.zones.iter().find(|zone| zone.name == shift.zone).map(|zone| zone.id.clone());
        world.region.zone_shifts.extend(zone.map(|away_from| ZoneShift { away_from, ends_at, state: ShiftState::Applied }));
    }

    pub(super) fn reserve(&mut self, wanted: &Reserve) -> Played {
        self.session.log(&format!("{} {} are reserved in {} as {}", wanted.count, wanted.instance_type, wanted.zone, wanted.id));
        let mut world = self.session.simulation.world();
        let ends_at = wanted.ends_in.as_ref().and_then(|span| world.now().checked_add(span.span()).ok());
        let described = CapacityReservation {
            id: wanted.id.clone(),
            zone: wanted.zone.clone(),
            instance_type: wanted.instance_type.clone(),
            owner: "111122223333".to_owned(),
            match_criteria: "targeted".to_owned(),
            kind: wanted.kind.clone(),
            state: "active".to_owned(),
            ends_at,
            tags: wanted.tags.clone(),
            ..CapacityReservation::default()
        };
        world.region.reserve(Reservation { described, total: wanted.count });
        world.touch_region();
        Ok(Ok(()))
    }

    pub(super) fn end_reservation(&mut self, id: &str) -> Played {
        self.session.log(&format!("capacity reservation {id} is given up"));
        let ended = self.session.simulation.world().region.end_reservation(id, "cancelled");
        Ok(if ended { Ok(()) } else { Err(format!("there is no capacity reservation {id}")) })
    }
}
