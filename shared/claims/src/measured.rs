//! The memory that nodes have reported, and of what they had too little (aws 3.8). Pure.

use crate::claim::Claim;
use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_units::{Quantity, Resources, SignedDuration, Timestamp};

/// How long an image's measurements are kept after the last one: it is no longer in use by then.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Measurements that are older than this are written again, so that those of an image in use do not expire.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Settings of node classes for which an image's shortfalls are kept. For each one more those of another are forgotten: if they are in use,
/// they are found again, by one machine for each type.
const SETTINGS_MAX: usize = 16;
/// What a node may have too little of, and whether it is not believed that it has less than half of what was planned (ADR 0035). How many
/// pods and how much storage a machine has is mostly a matter of settings, which may be anything.
const CHECKED: [(&str, bool); 4] = [("cpu", true), ("memory", true), ("ephemeral-storage", false), ("pods", false)];

/// What nodes of one image reported: the memory as `status.capacity.memory`. Written by `register` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredMemory {
    pub image_id: String,
    /// The smallest amount by instance type.
    pub by_type: BTreeMap<String, Quantity>,
    /// Of what nodes had too little allocatable for the pods that they were launched for, and the least that they had: by the hash of their
    /// node class, whose user data may be the cause, and by instance type (ADR 0078).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub too_little: BTreeMap<String, BTreeMap<String, Resources>>,
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

/// A node that has less allocatable than was planned, and than the pods need that it was launched for: they do not fit, and another machine
/// of its type would be launched for them, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    pub image_id: String,
    /// The hash of the node class that the machine was launched with.
    pub class_hash: String,
    pub instance_type: String,
    /// What it has too little of: what the pods need, what was planned, and what it has.
    pub amounts: Vec<ShortAmount>,
}

/// One resource of a [`Shortfall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortAmount {
    pub resource: &'static str,
    pub requested: Quantity,
    pub planned: Quantity,
    pub found: Quantity,
    /// The same before the huge pages that NodeOverlays give the type, which are taken from the memory of each NodePool's types: what types
    /// are planned with.
    pub of_types: Quantity,
    /// Whether the types of the node class are planned with it from now on.
    pub is_believed: bool,
}

impl Shortfall {
    /// The shortfall of the claim's node, which has this allocatable. `None` if all that was planned for it fits.
    #[must_use]
    pub fn of(claim: &Claim, allocatable: &Resources) -> Option<Self> {
        let machine = claim.machine()?;
        let amount = |(resource, is_bounded): (&'static str, bool)| {
            let (requested, planned) = (claim.spec.requests.get(resource), machine.allocatable.get(resource));
            let found = allocatable.get(resource);
            // Where the plan did not fit either, the node is not the cause. What it does not report yet it has all the same.
            let is_short = found < requested && requested <= planned && !found.is_zero();
            let is_believed = !is_bounded || found.times(2) >= planned;
            let of_types = if resource == "memory" { found.plus(huge_pages(&machine.allocatable)) } else { found };
            is_short.then_some(ShortAmount { resource, requested, planned, found, of_types, is_believed })
        };
        let amounts: Vec<ShortAmount> = CHECKED.into_iter().filter_map(amount).collect();
        let class_hash = claim.annotations.get(labels::NODE_CLASS_HASH).cloned().unwrap_or_default();
        let (image_id, instance_type) = (machine.image_id.clone(), machine.instance_type.clone());
        (!amounts.is_empty()).then_some(Self { image_id, class_hash, instance_type, amounts })
    }

    /// Whether something of it is used for later plans.
    #[must_use]
    pub fn is_believed(&self) -> bool {
        let is_known = !self.image_id.is_empty() && !self.class_hash.is_empty() && !self.instance_type.is_empty();
        is_known && self.amounts.iter().any(|amount| amount.is_believed)
    }
}

fn huge_pages(allocatable: &Resources) -> Quantity {
    let pages = allocatable.iter().filter(|(name, _)| name.starts_with("hugepages-"));
    pages.fold(Quantity::ZERO, |sum, (_, amount)| sum.plus(amount))
}

impl MeasuredMemory {
    /// The measurements of an image after some more; `None` if nothing has to be written.
    #[must_use]
    pub fn after(known: Option<&Self>, image_id: &str, new: &[Measurement], short: &[Shortfall], now: Timestamp) -> Option<Self> {
        let mut next = known.cloned().unwrap_or_else(|| Self {
            image_id: image_id.to_owned(),
            by_type: BTreeMap::new(),
            too_little: BTreeMap::new(),
            updated_at: now,
        });
        for one in new.iter().filter(|one| one.image_id == image_id) {
            let least = next.by_type.entry(one.instance_type.clone()).or_insert(one.memory);
            *least = one.memory.min(*least);
        }
        for one in short.iter().filter(|one| one.image_id == image_id && one.is_believed()) {
            next.add(one);
        }
        let is_news = match known {
            None => !next.by_type.is_empty() || !next.too_little.is_empty(),
            Some(known) => known.by_type != next.by_type || known.too_little != next.too_little,
        };
        let is_old = known.is_some_and(|known| now.duration_since(known.updated_at) >= RENEWED_AFTER);
        next.updated_at = now;
        (is_news || is_old).then_some(next)
    }

    fn add(&mut self, short: &Shortfall) {
        if !self.too_little.contains_key(&short.class_hash) && self.too_little.len() >= SETTINGS_MAX {
            self.too_little.pop_first();
        }
        let of_settings = self.too_little.entry(short.class_hash.clone()).or_default();
        let of_type = of_settings.entry(short.instance_type.clone()).or_default();
        for amount in short.amounts.iter().filter(|amount| amount.is_believed) {
            let known = of_type.get(amount.resource);
            let is_less = known.is_zero() || amount.of_types < known;
            of_type.set(amount.resource, if is_less { amount.of_types } else { known });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * 24 * 3600).unwrap()
    }

    fn one(instance_type: &str, mebibytes: i64) -> Measurement {
        Measurement { image_id: "ami-1".into(), instance_type: instance_type.into(), memory: Quantity::from_mebibytes(mebibytes) }
    }

    #[test]
    fn the_smallest_reported_memory_of_a_type_is_kept() {
        let first = MeasuredMemory::after(None, "ami-1", &[one("m5.large", 7700), one("m5.large", 7690)], &[], at(0)).unwrap();
        assert_eq!(first.by_type["m5.large"], Quantity::from_mebibytes(7690));
        assert_eq!(MeasuredMemory::after(Some(&first), "ami-1", &[one("m5.large", 7800)], &[], at(1)), None);
        let less = MeasuredMemory::after(Some(&first), "ami-1", &[one("m5.large", 7600), one("c5.large", 3500)], &[], at(1)).unwrap();
        assert_eq!(less.by_type.len(), 2);
        assert_eq!(less.by_type["m5.large"], Quantity::from_mebibytes(7600));
        assert_eq!(MeasuredMemory::after(Some(&less), "ami-2", &[one("m5.large", 1)], &[], at(1)), None, "of another image");
        assert_eq!(MeasuredMemory::after(None, "ami-1", &[], &[], at(0)), None);
    }

    #[test]
    fn measurements_of_an_image_in_use_do_not_expire() {
        let known = MeasuredMemory::after(None, "ami-1", &[one("m5.large", 7700)], &[], at(0)).unwrap();
        assert_eq!(known.expires_at(), Some(at(90)));
        assert_eq!(MeasuredMemory::after(Some(&known), "ami-1", &[one("m5.large", 7700)], &[], at(29)), None);
        let renewed = MeasuredMemory::after(Some(&known), "ami-1", &[one("m5.large", 7700)], &[], at(30)).unwrap();
        assert_eq!((renewed.expires_at(), renewed.by_type), (Some(at(120)), known.by_type));
    }

    /// A machine for which this much was planned, whose pods need so much.
    fn planned(requested: &[(&str, &str)]) -> Claim {
        let amounts = |pairs: &[(&str, &str)]| -> Resources {
            pairs.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse::<Quantity>().unwrap())).collect()
        };
        let allocatable = amounts(&[("cpu", "4"), ("memory", "16Gi"), ("ephemeral-storage", "80Gi"), ("pods", "110")]);
        let machine = crate::Machine { image_id: "ami-1".into(), allocatable, ..fixtures::machine("i-1") };
        let spec = crate::ClaimSpec { requests: amounts(requested), ..fixtures::default_spec() };
        let launched = [fixtures::begun("t"), crate::Event::FleetAnswered(machine)];
        let mut claim = fixtures::after(&fixtures::planned("a", spec), &launched, at(0));
        claim.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), "7".to_owned());
        claim
    }

    /// What a node lacks that reports this much of a resource, and whether it is believed.
    fn lacking(requested: &str, resource: &'static str, found: &str) -> Option<(Shortfall, bool)> {
        let mut allocatable: Resources = planned(&[]).machine().unwrap().allocatable.clone();
        allocatable.set(resource, found.parse().unwrap());
        Shortfall::of(&planned(&[(resource, requested)]), &allocatable).map(|short| (short.clone(), short.is_believed()))
    }

    #[test]
    fn a_node_is_short_of_what_its_own_pods_need_and_of_nothing_else() {
        for (resource, requested, found) in
            [("cpu", "3500m", "3200m"), ("memory", "15Gi", "14Gi"), ("ephemeral-storage", "60Gi", "18Gi"), ("pods", "30", "8")]
        {
            let (short, is_believed) = lacking(requested, resource, found).unwrap();
            assert_eq!((short.amounts.len(), short.amounts[0].resource, is_believed), (1, resource, true));
            assert_eq!(short.amounts[0].found, found.parse().unwrap());
            assert_eq!((short.class_hash.as_str(), short.instance_type.as_str()), ("7", "m5.large"));
        }
        assert_eq!(lacking("3", "cpu", "3200m"), None, "they fit");
        assert_eq!(lacking("3500m", "cpu", "3900m"), None, "a little less is nobody's loss");
        assert_eq!(lacking("5", "cpu", "4"), None, "they did not fit the plan either");
        assert_eq!(lacking("30", "pods", "0"), None, "it has not reported them");
        let mut elsewhere = planned(&[("cpu", "3500m")]);
        elsewhere.phase = crate::Phase::Planned;
        assert_eq!(Shortfall::of(&elsewhere, &Resources::new()), None);
    }

    /// The memory that a node reports is without its huge pages, and so is that of a type once a NodeOverlay has given it some.
    #[test]
    fn huge_pages_are_not_taken_from_the_memory_of_a_type_twice() {
        let mut claim = planned(&[("memory", "15Gi")]);
        let crate::Phase::Launched { machine } = &mut claim.phase else { panic!("{:?}", claim.phase) };
        machine.allocatable.set("hugepages-2Mi", "2Gi".parse().unwrap());
        machine.allocatable.set("hugepages-1Gi", "1Gi".parse().unwrap());
        let mut allocatable = machine.allocatable.clone();
        allocatable.set("memory", "14Gi".parse().unwrap());
        let short = Shortfall::of(&claim, &allocatable).unwrap();
        assert_eq!(short.amounts[0].found, "14Gi".parse().unwrap(), "this is what the node has");
        let known = MeasuredMemory::after(None, "ami-1", &[], &[short], at(0)).unwrap();
        assert_eq!(known.too_little["7"]["m5.large"].get("memory"), "17Gi".parse().unwrap());
    }

    #[test]
    fn less_than_half_of_cpu_or_memory_is_told_and_never_used_for_plans() {
        for (resource, requested, found) in [("cpu", "3", "1999m"), ("memory", "15Gi", "7Gi")] {
            let (short, is_believed) = lacking(requested, resource, found).unwrap();
            assert!(!is_believed, "{resource}");
            assert_eq!(MeasuredMemory::after(None, "ami-1", &[], &[short], at(0)), None);
        }
        let unknown = Shortfall { class_hash: String::new(), ..lacking("3500m", "cpu", "3200m").unwrap().0 };
        assert!(!unknown.is_believed(), "it is not known what it was launched with");
    }

    #[test]
    fn the_least_that_nodes_had_is_kept_by_the_settings_of_their_class() {
        let short = |hash: &str, found: &str| Shortfall { class_hash: hash.to_owned(), ..lacking("3500m", "cpu", found).unwrap().0 };
        let first = MeasuredMemory::after(None, "ami-1", &[], &[short("7", "3200m"), short("8", "3400m")], at(0)).unwrap();
        let cpu = |known: &MeasuredMemory, hash: &str| known.too_little[hash]["m5.large"].get("cpu").milli();
        assert_eq!((cpu(&first, "7"), cpu(&first, "8")), (3200, 3400));
        assert_eq!(MeasuredMemory::after(Some(&first), "ami-1", &[], &[short("7", "3300m")], at(1)), None, "it is no less");
        let less = MeasuredMemory::after(Some(&first), "ami-1", &[], &[short("7", "3100m")], at(1)).unwrap();
        assert_eq!((cpu(&less, "7"), cpu(&less, "8")), (3100, 3400));
        assert_eq!(MeasuredMemory::after(Some(&less), "ami-2", &[], &[short("7", "2500m")], at(1)), None, "of another image");
        let many: Vec<Shortfall> = (0..1_000).map(|hash| short(&hash.to_string(), "3200m")).collect();
        let bounded = MeasuredMemory::after(Some(&less), "ami-1", &[], &many, at(1)).unwrap();
        assert!(bounded.too_little.len() <= SETTINGS_MAX && bounded.too_little.contains_key("999"));
        let one_more = MeasuredMemory::after(Some(&bounded), "ami-1", &[], &[short("9999", "3200m")], at(1)).unwrap();
        let kept = bounded.too_little.keys().filter(|hash| one_more.too_little.contains_key(*hash)).count();
        assert_eq!((one_more.too_little.len(), kept), (SETTINGS_MAX, SETTINGS_MAX - 1), "one makes room, and not all");
        let text = serde_json::to_value(MeasuredMemory::after(None, "ami-1", &[one("m5.large", 7700)], &[], at(0))).unwrap();
        assert_eq!(text.get("too_little"), None, "nothing is stored for none");
    }
}
