//! The memory that nodes have reported (aws 3.8). Pure.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{Quantity, SignedDuration, Timestamp};

/// How long an image's measurements are kept after the last one: it is no longer in use by then.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Measurements that are older than this are written again, so that those of an image in use do not expire.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(24 * 30);

/// What nodes of one image reported as `status.capacity.memory`. Written by `register` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredMemory {
    pub image_id: String,
    /// The smallest amount by instance type.
    pub by_type: BTreeMap<String, Quantity>,
    pub updated_at: Timestamp,
}

impl Record for MeasuredMemory {
    const KIND: &'static str = "measured-memory";
    fn name(&self) -> String {
        self.image_id.clone()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.updated_at.checked_add(RETENTION).ok()
    }
}

/// What one node reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    pub image_id: String,
    pub instance_type: String,
    pub memory: Quantity,
}

impl Measurement {
    /// The measurement of a machine. `None` if its node reports less than half of the estimate, or more than twice: a node
    /// writes its own status, and no hypervisor takes that much.
    #[must_use]
    pub fn of(machine: &crate::Machine, reported: Quantity) -> Option<Self> {
        let estimated = machine.capacity.get("memory");
        let is_plausible = !reported.is_zero() && reported.times(2) >= estimated && reported <= estimated.times(2);
        let is_known = !machine.image_id.is_empty() && !machine.instance_type.is_empty();
        (is_plausible && is_known).then(|| Self {
            image_id: machine.image_id.clone(),
            instance_type: machine.instance_type.clone(),
            memory: reported,
        })
    }
}

impl MeasuredMemory {
    /// The measurements of an image after some more; `None` if nothing has to be written.
    #[must_use]
    pub fn after(known: Option<&Self>, image_id: &str, new: &[Measurement], now: Timestamp) -> Option<Self> {
        let mut next = known.cloned().unwrap_or_else(|| Self { image_id: image_id.to_owned(), by_type: BTreeMap::new(), updated_at: now });
        for one in new.iter().filter(|one| one.image_id == image_id) {
            let least = next.by_type.entry(one.instance_type.clone()).or_insert(one.memory);
            *least = one.memory.min(*least);
        }
        let is_news = known.map_or(!next.by_type.is_empty(), |known| known.by_type != next.by_type);
        let is_old = known.is_some_and(|known| now.duration_since(known.updated_at) >= RENEWED_AFTER);
        next.updated_at = now;
        (is_news || is_old).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * 24 * 3600).unwrap()
    }

    fn one(instance_type: &str, mebibytes: i64) -> Measurement {
        Measurement { image_id: "ami-1".into(), instance_type: instance_type.into(), memory: Quantity::from_mebibytes(mebibytes) }
    }

    #[test]
    fn the_smallest_reported_memory_of_a_type_is_kept() {
        let first = MeasuredMemory::after(None, "ami-1", &[one("m5.large", 7700), one("m5.large", 7690)], at(0)).unwrap();
        assert_eq!(first.by_type["m5.large"], Quantity::from_mebibytes(7690));
        assert_eq!(MeasuredMemory::after(Some(&first), "ami-1", &[one("m5.large", 7800)], at(1)), None);
        let less = MeasuredMemory::after(Some(&first), "ami-1", &[one("m5.large", 7600), one("c5.large", 3500)], at(1)).unwrap();
        assert_eq!(less.by_type.len(), 2);
        assert_eq!(less.by_type["m5.large"], Quantity::from_mebibytes(7600));
        assert_eq!(MeasuredMemory::after(Some(&less), "ami-2", &[one("m5.large", 1)], at(1)), None, "of another image");
        assert_eq!(MeasuredMemory::after(None, "ami-1", &[], at(0)), None);
    }

    #[test]
    fn measurements_of_an_image_in_use_do_not_expire() {
        let known = MeasuredMemory::after(None, "ami-1", &[one("m5.large", 7700)], at(0)).unwrap();
        assert_eq!(known.expires_at(), Some(at(90)));
        assert_eq!(MeasuredMemory::after(Some(&known), "ami-1", &[one("m5.large", 7700)], at(29)), None);
        let renewed = MeasuredMemory::after(Some(&known), "ami-1", &[one("m5.large", 7700)], at(30)).unwrap();
        assert_eq!((renewed.expires_at(), renewed.by_type), (Some(at(120)), known.by_type));
    }
}
