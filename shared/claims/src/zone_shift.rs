//! Zones that traffic is shifted away from by Amazon Application Recovery Controller (aws 23). Pure.

use crate::claim::Machine;
use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::labels;
use whittle_units::Timestamp;

/// A zonal shift as GetManagedResource reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneShift {
    /// Id of the zone, such as `use1-az1`: names of zones differ between accounts.
    pub away_from: String,
    pub ends_at: Timestamp,
    pub state: ShiftState,
}

/// Whether a zonal shift has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShiftState {
    Applied,
    NotApplied,
}

/// The zonal shifts of a cluster as of the last poll that succeeded. Written by `sweep` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneShifts {
    /// By the id of the zone.
    #[serde(default)]
    shifts: BTreeMap<String, KnownShift>,
    /// The names, by which machines are known, of the zones with these ids. A zone stays known after its last subnet has gone: machines
    /// may still run there.
    #[serde(default)]
    names: BTreeMap<String, String>,
    /// Ids of the zones whose shift Events have reported, so that its end is reported as well.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    announced: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownShift {
    ends_at: Timestamp,
    state: ShiftState,
}

/// A zone whose shift has begun or ended since Events last reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShiftChange {
    pub zone_id: String,
    pub zone: String,
    pub now: ZoneTraffic,
}

/// Whether traffic is shifted away from a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneTraffic {
    Shifted,
    Normal,
}

/// The zones that are shifted at one time; none while the setting is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShiftedZones {
    pub ids: BTreeSet<String>,
    /// The names of the same zones.
    pub names: BTreeSet<String>,
}

impl ShiftedZones {
    /// Whether a machine is in one of the zones.
    #[must_use]
    pub fn have(&self, machine: &Machine) -> bool {
        self.names.contains(&machine.zone) || self.are_of(&machine.labels)
    }
    /// Whether the zone of an object with these labels, a Node or a NodeClaim, is one of them. The id is known where the name is not.
    #[must_use]
    pub fn are_of(&self, of_object: &BTreeMap<String, String>) -> bool {
        let has = |key: &str, zones: &BTreeSet<String>| of_object.get(key).is_some_and(|zone| zones.contains(zone));
        has(labels::ZONE, &self.names) || has(labels::ZONE_ID, &self.ids)
    }
}

impl ZoneShifts {
    /// There is one for each cluster.
    pub const NAME: &'static str = "cluster";

    /// The record after a poll: the answer replaces all earlier shifts. (Karpenter adds an answer with shifts to those it knew, so that a
    /// shift that is cancelled while another one is in force lasts until its planned end.) `names` has the names of zones by id, from the
    /// subnets.
    #[must_use]
    pub fn after(known: Option<&Self>, answer: &[ZoneShift], names: &BTreeMap<String, String>) -> Self {
        let mut next = known.cloned().unwrap_or_default();
        next.names.extend(names.clone());
        next.shifts.clear();
        for one in answer {
            let shift = KnownShift { ends_at: one.ends_at, state: one.state };
            let entry = next.shifts.entry(one.away_from.clone()).or_insert_with(|| shift.clone());
            // An applied shift counts beside one of the same zone that is not, such as a practice run that it has replaced.
            if (shift.state == ShiftState::Applied, shift.ends_at) > (entry.state == ShiftState::Applied, entry.ends_at) {
                *entry = shift;
            }
        }
        next
    }

    /// The zones that are shifted at `now`: by shifts that are applied and have not ended.
    #[must_use]
    pub fn shifted(&self, now: Timestamp) -> ShiftedZones {
        let holds = |shift: &KnownShift| shift.state == ShiftState::Applied && shift.ends_at > now;
        let ids: BTreeSet<String> = self.shifts.iter().filter(|(_, shift)| holds(shift)).map(|(id, _)| id.clone()).collect();
        let names = ids.iter().filter_map(|id| self.names.get(id).cloned()).collect();
        ShiftedZones { ids, names }
    }

    /// The record once the changes since the last Events have been reported, and these changes.
    #[must_use]
    pub fn announce(mut self, now: Timestamp) -> (Self, Vec<ShiftChange>) {
        let shifted = self.shifted(now).ids;
        let zone = |id: &String| self.names.get(id).cloned().unwrap_or_default();
        let change = |id: &String, now| ShiftChange { zone_id: id.clone(), zone: zone(id), now };
        let begun = shifted.difference(&self.announced).map(|id| change(id, ZoneTraffic::Shifted));
        let ended = self.announced.difference(&shifted).map(|id| change(id, ZoneTraffic::Normal));
        let changes = begun.chain(ended).collect();
        self.announced = shifted;
        (self, changes)
    }
}

impl Record for ZoneShifts {
    const KIND: &'static str = "zone-shifts";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    fn shift(zone: &str, ends: i64, state: ShiftState) -> ZoneShift {
        ZoneShift { away_from: zone.into(), ends_at: at(ends), state }
    }

    fn poll(known: Option<&ZoneShifts>, answer: &[ZoneShift]) -> ZoneShifts {
        let names = ["az1", "az2"].map(|id| (id.to_owned(), id.replace("az", "zone")));
        ZoneShifts::after(known, answer, &names.into())
    }

    fn ids(shifts: &ZoneShifts, second: i64) -> Vec<String> {
        shifts.shifted(at(second)).ids.into_iter().collect()
    }

    #[test]
    fn a_zone_is_shifted_while_an_applied_shift_has_not_ended() {
        let known = poll(None, &[shift("az1", 60, ShiftState::Applied), shift("az2", 60, ShiftState::NotApplied)]);
        assert_eq!(ids(&known, 59), ["az1"]);
        assert_eq!(known.shifted(at(59)).names, ["zone1".to_owned()].into());
        assert_eq!(known.shifted(at(60)), ShiftedZones::default());
    }

    #[test]
    fn a_cancelled_shift_ends_even_while_another_is_in_force() {
        let both = poll(None, &[shift("az1", 60, ShiftState::Applied), shift("az2", 60, ShiftState::Applied)]);
        let one = poll(Some(&both), &[shift("az2", 90, ShiftState::Applied)]);
        assert_eq!(ids(&one, 30), ["az2"]);
        assert_eq!(ids(&one, 80), ["az2"], "and an extended one lasts longer");
        assert_eq!(ids(&poll(Some(&one), &[]), 30), Vec::<String>::new());
        assert_eq!(ids(&poll(Some(&one), &[shift("az2", 90, ShiftState::NotApplied)]), 30), Vec::<String>::new());
    }

    #[test]
    fn of_two_shifts_of_one_zone_the_applied_one_counts() {
        let (applied, practice) = (shift("az1", 60, ShiftState::Applied), shift("az1", 90, ShiftState::NotApplied));
        assert_eq!(ids(&poll(None, &[applied.clone(), practice.clone()]), 30), ["az1"]);
        assert_eq!(ids(&poll(None, &[practice, applied]), 30), ["az1"]);
    }

    #[test]
    fn a_zone_without_a_known_name_is_shifted_by_id_alone() {
        let known = poll(None, &[shift("az9", 60, ShiftState::Applied)]);
        let shifted = known.shifted(at(0));
        assert_eq!((shifted.ids.len(), shifted.names.len()), (1, 0));
    }

    #[test]
    fn a_zone_keeps_its_name_when_its_last_subnet_has_gone() {
        let known = poll(None, &[]);
        let known = ZoneShifts::after(Some(&known), &[shift("az1", 60, ShiftState::Applied)], &BTreeMap::new());
        assert_eq!(known.shifted(at(0)).names, ["zone1".to_owned()].into());
    }

    #[test]
    fn each_beginning_and_each_end_is_announced_once() {
        let (known, begun) = poll(None, &[shift("az1", 60, ShiftState::Applied)]).announce(at(0));
        let change = |now| ShiftChange { zone_id: "az1".into(), zone: "zone1".into(), now };
        assert_eq!(begun, [change(ZoneTraffic::Shifted)]);
        let (known, again) = known.announce(at(30));
        assert_eq!(again, []);
        let (known, ended) = poll(Some(&known), &[]).announce(at(40));
        assert_eq!(ended, [change(ZoneTraffic::Normal)]);
        assert_eq!(known.announce(at(50)).1, []);
    }
}
