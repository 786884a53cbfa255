//! Capacity reservations: created, used by machines that target them, and ended at their end date or cancelled.

use super::{Region, RegionEffect};
use crate::dice::Dice;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use whittle_api::karpenter::CapacityReservationSelectorTerm;
use whittle_api::labels;
use whittle_ec2::fleet::{FleetOverride, FleetPoolError};
use whittle_ec2::network::CapacityReservation;
use whittle_ec2::node_class::{Query, capacity_reservation_queries, matches_tags};
use whittle_units::InstanceId;

/// How long before the end of a capacity block EC2 terminates its machines.
const BLOCK_CLEARED: SignedDuration = SignedDuration::from_mins(30);
/// How long before the end of a block its machines should be drained.
const BLOCK_DRAINED: SignedDuration = SignedDuration::from_mins(40);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// As EC2 describes it, except for the free count.
    pub described: CapacityReservation,
    /// Its total number of machines.
    pub total: u32,
}

impl Reservation {
    fn is_block(&self) -> bool {
        self.described.kind == "capacity-block"
    }
    fn is_active(&self) -> bool {
        self.described.state == "active"
    }
    /// When its machines are terminated, if they end with it.
    fn cleared_at(&self) -> Option<Timestamp> {
        self.described.ends_at.filter(|_| self.is_block())?.checked_sub(BLOCK_CLEARED).ok()
    }
}

impl Region {
    /// Creates a reservation, or changes its size, end and tags.
    pub fn reserve(&mut self, reservation: Reservation) {
        self.reservations.insert(reservation.described.id.clone(), reservation);
    }

    /// Ends a reservation now. Its machines keep running as on-demand ones. False if there is none.
    pub fn end_reservation(&mut self, id: &str, state: &str) -> bool {
        let Some(reservation) = self.reservations.get_mut(id) else { return false };
        state.clone_into(&mut reservation.described.state);
        let left: Vec<InstanceId> = self.users_of(id);
        for id in &left {
            let Some(machine) = self.machines.get_mut(id) else { continue };
            machine.instance.reservation = None;
            labels::CAPACITY_ON_DEMAND.clone_into(&mut machine.instance.capacity_type);
            if let Some(price) = self.catalog.on_demand_price(&machine.instance.instance_type) {
                machine.price = price;
            }
        }
        true
    }

    /// Machines that run in a reservation.
    pub fn users_of(&self, id: &str) -> Vec<InstanceId> {
        let uses = |machine: &&super::Machine| machine.instance.is_alive() && machine.instance.reservation.as_deref() == Some(id);
        self.machines.values().filter(uses).map(|machine| machine.instance.id.clone()).collect()
    }

    /// Whether the machine runs in a capacity block that ends within forty minutes.
    pub fn must_leave_block(&self, id: &InstanceId, now: Timestamp) -> bool {
        let used = self.machines.get(id).and_then(|machine| machine.instance.reservation.as_ref());
        let block = used.and_then(|id| self.reservations.get(id)).filter(|known| known.is_block());
        block.and_then(|block| block.described.ends_at).is_some_and(|end| end.duration_since(now) <= BLOCK_DRAINED)
    }

    /// How many machines can still be started in a reservation.
    pub fn free_in(&self, id: &str) -> u32 {
        let total = self.reservations.get(id).filter(|known| known.is_active()).map_or(0, |known| known.total);
        total.saturating_sub(u32::try_from(self.users_of(id).len()).unwrap_or(u32::MAX))
    }

    /// What DescribeCapacityReservations answers to the queries of a class's terms.
    pub fn reservations_of(&self, terms: &[CapacityReservationSelectorTerm]) -> Vec<CapacityReservation> {
        let queries = capacity_reservation_queries(terms);
        let named = self.reservations.values().filter(|known| queries.iter().any(|query| answers(query, &known.described)));
        named.map(|known| CapacityReservation { free: self.free_in(&known.described.id), ..known.described.clone() }).collect()
    }

    /// EC2's error if a machine of this tenancy cannot be started in a reservation.
    pub(super) fn reservation_refuses(&self, id: &str, tenancy: &str, pool: &FleetOverride, now: Timestamp) -> Option<FleetPoolError> {
        let fits = self.reservations.get(id).is_some_and(|known| {
            let cleared = known.cleared_at();
            let here = &known.described;
            let is_its_tenancy = here.tenancy.is_empty() || here.tenancy == tenancy;
            cleared.is_none_or(|at| at > now) && is_its_tenancy && here.instance_type == pool.instance_type && here.zone == pool.zone
        });
        if fits && self.free_in(id) > 0 {
            return None;
        }
        Some(FleetPoolError {
            code: "ReservationCapacityExceeded".to_owned(),
            message: format!("The requested capacity reservation ({id}) does not have sufficient capacity."),
            instance_type: pool.instance_type.clone(),
            zone: pool.zone.clone(),
        })
    }

    pub(super) fn next_reservation_at(&self) -> Option<Timestamp> {
        let active = self.reservations.values().filter(|known| known.is_active());
        let clears = |known: &Reservation| known.cleared_at().filter(|_| !self.users_of(&known.described.id).is_empty());
        active.flat_map(|known| known.described.ends_at.into_iter().chain(clears(known))).min()
    }

    /// Capacity blocks are cleared half an hour before they end; ended reservations release their machines.
    pub(super) fn step_reservations(&mut self, now: Timestamp, dice: &mut Dice, effects: &mut Vec<RegionEffect>) {
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let active: Vec<Reservation> = self.reservations.values().filter(|known| known.is_active()).cloned().collect();
        for known in active {
            let id = &known.described.id;
            if due(known.cleared_at()) {
                for machine in self.users_of(id).into_iter().collect::<BTreeSet<_>>() {
                    effects.push(RegionEffect::Reclaimed(machine.clone()));
                    effects.push(RegionEffect::Log(format!("EC2 terminates {machine}, whose capacity block {id} is about to end")));
                    self.begin_termination(&machine, now, dice, effects);
                }
            }
            if due(known.described.ends_at) {
                effects.push(RegionEffect::Log(format!("capacity reservation {id} has ended")));
                self.end_reservation(id, "expired");
            }
        }
    }
}

/// Whether a query matches a reservation.
fn answers(query: &Query, known: &CapacityReservation) -> bool {
    let holds = |(name, values): (&String, &Vec<String>)| {
        let has = |value: &str| values.iter().any(|wanted| wanted == value);
        match name.as_str() {
            "state" => has(&known.state),
            "owner-id" => has(&known.owner),
            "instance-match-criteria" => has(&known.match_criteria),
            "tag-key" => matches_tags(query, &known.tags),
            tag => tag.strip_prefix("tag:").and_then(|key| known.tags.get(key)).is_some_and(|value| has(value)),
        }
    };
    (query.ids.is_empty() || query.ids.contains(&known.id)) && query.filters.iter().all(holds)
}
