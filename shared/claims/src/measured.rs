//! How much memory new nodes report, and which of their resources turned out smaller than planned (aws 3.8). Pure.

use crate::claim::{Claim, Machine};
use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_units::{InstanceId, Quantity, Resources, SignedDuration, Timestamp};

/// How long an image's measurements are kept after the last one: it is no longer in use by then.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Measurements that are older than this are written again, so that those of an image in use do not expire.
const RENEWED_AFTER: SignedDuration = SignedDuration::from_hours(24 * 30);
/// A node that is smaller than planned counts once a second one of its kind within this time confirms it. A single one may be an exception,
/// such as one whose disks were not formatted in time.
const CONFIRMED_WITHIN: SignedDuration = SignedDuration::from_hours(48);
/// A node with less than seven eighths of the memory that was planned has much less. Nodes of one type and image differ by far less.
const MUCH_LESS: (i64, i64) = (7, 8);
/// How long types are planned with the smaller amounts that two nodes reported. Then one machine is planned with EC2's amounts again: the
/// cause may be over.
const BELIEVED_FOR: SignedDuration = SignedDuration::from_hours(24);
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
    /// The smallest amount by instance type, without that of a single node that has much less than others.
    pub by_type: BTreeMap<String, Quantity>,
    /// By instance type, the last node that reported much less memory than was planned, and that no other has confirmed yet (ADR 0035).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub small_memory: BTreeMap<String, SmallNode>,
    /// Nodes that had too little allocatable for the pods that they were launched for (ADR 0078). An earlier release kept `too_little`
    /// instead, the least that any node had: nobody knows of how many, so that is not read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub small_nodes: SmallNodes,
    pub updated_at: Timestamp,
}

/// By the hash of the node class, whose user data may be the cause, by instance type and by resource: the last two nodes, the latest last.
pub type SmallNodes = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<SmallNode>>>>;

/// A node that had too little of a resource, or much less than was planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallNode {
    pub instance: InstanceId,
    /// What it had, or another node of its kind that has more.
    pub amount: Quantity,
    /// When it was found.
    pub at: Timestamp,
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
    /// The hash of the node class that the machine was launched with; empty if it is not known.
    pub class_hash: String,
    pub instance_type: String,
    pub instance: InstanceId,
    pub memory: Quantity,
    /// The memory that was planned for it.
    pub planned: Quantity,
    /// What it has for pods, before the huge pages that NodeOverlays give the type are taken from its memory.
    pub allocatable: Resources,
}

impl Measurement {
    /// The measurement of the claim's machine, whose node has this memory. `None` if it is less than half of the estimate, or more than
    /// twice: a node writes its own status, and no hypervisor takes that much.
    #[must_use]
    pub fn of(claim: &Claim, reported: Quantity, allocatable: &Resources) -> Option<Self> {
        let machine = claim.machine()?;
        let estimated = machine.capacity.get("memory");
        let is_plausible = !reported.is_zero() && reported.is_about(estimated);
        let is_known = !machine.image_id.is_empty() && !machine.instance_type.is_empty();
        (is_plausible && is_known).then(|| Self {
            image_id: machine.image_id.clone(),
            class_hash: class_hash(claim),
            instance_type: machine.instance_type.clone(),
            instance: machine.instance_id.clone(),
            memory: reported,
            planned: estimated,
            allocatable: CHECKED.map(|(resource, _)| (resource, of_types(resource, allocatable, machine))).into(),
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
    pub instance: InstanceId,
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
    /// Whether the types of the node class are planned with it if a second node has as little.
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
            // If the request exceeded the planned amount already, the node is not the cause. Zero means that it has not reported yet.
            let is_short = found < requested && requested <= planned && !found.is_zero();
            let is_believed = !is_bounded || found.times(2) >= planned;
            let of_types = of_types(resource, allocatable, machine);
            is_short.then_some(ShortAmount { resource, requested, planned, found, of_types, is_believed })
        };
        let amounts: Vec<ShortAmount> = CHECKED.into_iter().filter_map(amount).collect();
        (!amounts.is_empty()).then(|| Self {
            image_id: machine.image_id.clone(),
            class_hash: class_hash(claim),
            instance_type: machine.instance_type.clone(),
            instance: machine.instance_id.clone(),
            amounts,
        })
    }

    /// Whether something of it is used for later plans, once a second node confirms it.
    #[must_use]
    pub fn is_believed(&self) -> bool {
        let is_known = !self.image_id.is_empty() && !self.class_hash.is_empty() && !self.instance_type.is_empty();
        is_known && self.amounts.iter().any(|amount| amount.is_believed)
    }
}

fn class_hash(claim: &Claim) -> String {
    claim.annotations.get(labels::NODE_CLASS_HASH).cloned().unwrap_or_default()
}

/// What a node has of a resource, before the huge pages that were planned for its machine.
fn of_types(resource: &str, allocatable: &Resources, machine: &Machine) -> Quantity {
    let found = allocatable.get(resource);
    let pages = machine.allocatable.iter().filter(|(name, _)| resource == "memory" && name.starts_with("hugepages-"));
    pages.fold(found, |sum, (_, amount)| sum.plus(amount))
}

/// What the last two nodes that were too small had, if that is still used for plans: the larger of the two amounts.
fn believed(nodes: &[SmallNode], now: Timestamp) -> Option<Quantity> {
    let is_current = nodes.last().is_some_and(|latest| now.duration_since(latest.at) < BELIEVED_FOR);
    let is_confirmed = nodes.len() > 1;
    nodes.iter().map(|node| node.amount).max().filter(|_| is_current && is_confirmed)
}

impl MeasuredMemory {
    /// The measurements of an image after some more; `None` if nothing has to be written.
    #[must_use]
    pub fn after(known: Option<&Self>, image_id: &str, new: &[Measurement], short: &[Shortfall], now: Timestamp) -> Option<Self> {
        let mut next = known.cloned().unwrap_or_else(|| Self {
            image_id: image_id.to_owned(),
            by_type: BTreeMap::new(),
            small_memory: BTreeMap::new(),
            small_nodes: SmallNodes::new(),
            updated_at: now,
        });
        next.forget_old(now);
        for one in new.iter().filter(|one| one.image_id == image_id) {
            next.add_memory(one, now);
        }
        for one in short.iter().filter(|one| one.image_id == image_id && one.is_believed()) {
            next.add(one, now);
        }
        // Afterwards: nodes that were found together may be as different as others.
        new.iter().filter(|one| one.image_id == image_id).for_each(|one| next.raise(one));
        let is_news = match known {
            None => !next.by_type.is_empty() || !next.small_memory.is_empty() || !next.small_nodes.is_empty(),
            Some(known) => {
                (&known.by_type, &known.small_memory, &known.small_nodes) != (&next.by_type, &next.small_memory, &next.small_nodes)
            }
        };
        let is_old = known.is_some_and(|known| now.duration_since(known.updated_at) >= RENEWED_AFTER);
        next.updated_at = now;
        (is_news || is_old).then_some(next)
    }

    /// For each instance type, the amounts to plan with instead of EC2's, where two nodes with these settings of a node class had less.
    #[must_use]
    pub fn too_little_of(&self, class_hash: &str, now: Timestamp) -> BTreeMap<String, Resources> {
        let mut found: BTreeMap<String, Resources> = BTreeMap::new();
        for (instance_type, by_resource) in self.small_nodes.get(class_hash).into_iter().flatten() {
            for (resource, nodes) in by_resource {
                if let Some(most) = believed(nodes, now) {
                    found.entry(instance_type.clone()).or_default().set(resource, most);
                }
            }
        }
        found
    }

    /// Keeps the memory of a node if it is the smallest of its type. An amount far below the planned one may come from an exceptional node,
    /// such as one with a kernel option of its own: a second node has to confirm it, and the larger of the two amounts counts.
    fn add_memory(&mut self, one: &Measurement, now: Timestamp) {
        let known = self.by_type.get(&one.instance_type).copied();
        if known.is_some_and(|known| known <= one.memory) {
            return;
        }
        let usual = known.map_or(one.planned, |known| known.min(one.planned));
        let mut least = one.memory;
        if least.times(MUCH_LESS.1) < usual.times(MUCH_LESS.0) {
            let confirms = |other: &&SmallNode| other.instance != one.instance && now.duration_since(other.at) < CONFIRMED_WITHIN;
            let Some(other) = self.small_memory.get(&one.instance_type).filter(confirms) else {
                let small = SmallNode { instance: one.instance.clone(), amount: one.memory, at: now };
                self.small_memory.insert(one.instance_type.clone(), small);
                return;
            };
            least = least.max(other.amount);
            self.small_memory.remove(&one.instance_type);
        }
        self.by_type.insert(one.instance_type.clone(), known.map_or(least, |known| known.min(least)));
    }

    /// Drops what confirms nothing any more.
    fn forget_old(&mut self, now: Timestamp) {
        self.small_memory.retain(|_, node| now.duration_since(node.at) < CONFIRMED_WITHIN);
        self.small_nodes.retain(|_, by_type| {
            by_type.retain(|_, by_resource| {
                by_resource.retain(|_, nodes| nodes.last().is_some_and(|latest| now.duration_since(latest.at) < CONFIRMED_WITHIN));
                !by_resource.is_empty()
            });
            !by_type.is_empty()
        });
    }

    fn add(&mut self, short: &Shortfall, now: Timestamp) {
        if !self.small_nodes.contains_key(&short.class_hash) && self.small_nodes.len() >= SETTINGS_MAX {
            self.small_nodes.pop_first();
        }
        let of_settings = self.small_nodes.entry(short.class_hash.clone()).or_default();
        let of_type = of_settings.entry(short.instance_type.clone()).or_default();
        for amount in short.amounts.iter().filter(|amount| amount.is_believed) {
            let nodes = of_type.entry(amount.resource.to_owned()).or_default();
            nodes.retain(|node| node.instance != short.instance && now.duration_since(node.at) < CONFIRMED_WITHIN);
            // The last two: if they have less than another before them, that was the odd one.
            if nodes.len() > 1 {
                nodes.remove(0);
            }
            nodes.push(SmallNode { instance: short.instance.clone(), amount: amount.of_types, at: now });
        }
    }

    /// A node has more than others of its kind that were too small: so may the next.
    fn raise(&mut self, one: &Measurement) {
        let of_settings = self.small_nodes.get_mut(&one.class_hash);
        let Some(of_type) = of_settings.and_then(|by_type| by_type.get_mut(&one.instance_type)) else { return };
        for (resource, nodes) in of_type {
            let has = one.allocatable.get(resource);
            nodes.iter_mut().for_each(|node| node.amount = node.amount.max(has));
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
        Measurement {
            image_id: "ami-1".into(),
            class_hash: "7".into(),
            instance_type: instance_type.into(),
            instance: "i-1".into(),
            memory: Quantity::from_mebibytes(mebibytes),
            planned: Quantity::from_mebibytes(mebibytes),
            allocatable: Resources::new(),
        }
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

    /// A node of type m5.large that has so many MiB instead of the 8000 that were planned.
    fn instead_of_8000(instance: &str, mebibytes: i64) -> Measurement {
        Measurement { instance: instance.into(), planned: Quantity::from_mebibytes(8_000), ..one("m5.large", mebibytes) }
    }

    /// The memory that the type is planned with, in MiB, after these nodes were found, each some days after the one before.
    fn memory_after(found: &[(i64, Measurement)]) -> Option<Quantity> {
        let mut known: Option<MeasuredMemory> = None;
        for (day, node) in found {
            known = MeasuredMemory::after(known.as_ref(), "ami-1", std::slice::from_ref(node), &[], at(*day)).or(known);
        }
        known?.by_type.get("m5.large").copied()
    }

    #[test]
    fn one_node_with_much_less_memory_changes_no_plan() {
        let usual = || (0, one("m5.large", 7_700));
        let odd = || (0, instead_of_8000("i-9", 4_000));
        let planned = Some(Quantity::from_mebibytes(7_700));
        assert_eq!(memory_after(&[odd()]), None, "it is planned with the estimate");
        assert_eq!((memory_after(&[usual(), odd()]), memory_after(&[odd(), usual()])), (planned, planned));
        assert_eq!(memory_after(&[usual(), odd(), (0, instead_of_8000("i-9", 3_900))]), planned, "it is the same node");
        assert_eq!(memory_after(&[usual(), odd(), (2, instead_of_8000("i-8", 4_000))]), planned, "a long time after");
        let of_another_type = Measurement { instance_type: "c5.large".into(), ..instead_of_8000("i-8", 4_000) };
        assert_eq!(memory_after(&[usual(), odd(), (0, of_another_type)]), planned);
    }

    #[test]
    fn much_less_memory_that_two_nodes_have_is_planned_with() {
        let usual = (0, one("m5.large", 7_700));
        for (first, second) in [(4_000, 3_900), (3_900, 4_000)] {
            let two = [(0, instead_of_8000("i-9", first)), (1, instead_of_8000("i-8", second))];
            assert_eq!(memory_after(&two), Some(Quantity::from_mebibytes(4_000)), "the larger of both");
            assert_eq!(memory_after(&[&[usual.clone()][..], &two].concat()), Some(Quantity::from_mebibytes(4_000)));
            let [one_of_them, other] = two.clone();
            assert_eq!(memory_after(&[one_of_them, usual.clone(), other]), Some(Quantity::from_mebibytes(4_000)));
            let third = (1, instead_of_8000("i-7", 3_950));
            assert_eq!(memory_after(&[&two[..], &[third]].concat()), Some(Quantity::from_mebibytes(3_950)), "which is usual now");
        }
        let together = [instead_of_8000("i-9", 4_000), instead_of_8000("i-8", 3_900)];
        let known = MeasuredMemory::after(None, "ami-1", &together, &[], at(0)).unwrap();
        assert_eq!((known.by_type["m5.large"], known.small_memory.len()), (Quantity::from_mebibytes(4_000), 0));
    }

    #[test]
    fn a_little_less_memory_is_planned_with_at_once() {
        for (found, planned) in [(7_000, 7_000), (6_738, 6_738), (6_737, 7_700)] {
            let nodes = [(0, one("m5.large", 7_700)), (0, instead_of_8000("i-9", found))];
            assert_eq!(memory_after(&nodes), Some(Quantity::from_mebibytes(planned)), "{found}");
        }
        assert_eq!(memory_after(&[(0, instead_of_8000("i-9", 7_000))]), Some(Quantity::from_mebibytes(7_000)));
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
        let second = Shortfall { instance: "i-2".into(), ..short.clone() };
        let known = MeasuredMemory::after(None, "ami-1", &[], &[short, second], at(0)).unwrap();
        assert_eq!(known.too_little_of("7", at(0))["m5.large"].get("memory"), "17Gi".parse().unwrap());
        let crate::Phase::Launched { machine } = &mut claim.phase else { panic!("{:?}", claim.phase) };
        machine.capacity.set("memory", "17Gi".parse().unwrap());
        let shown = Measurement::of(&claim, "17Gi".parse().unwrap(), &allocatable);
        assert_eq!(shown.map(|shown| shown.allocatable.get("memory")), Some("17Gi".parse().unwrap()), "both are compared");
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

    /// A node of type m5.large that has so much cpu, in thousandths, where its pods need 3500.
    fn small(hash: &str, instance: &str, found: i64) -> Shortfall {
        let short = lacking("3500m", "cpu", &format!("{found}m")).unwrap().0;
        Shortfall { class_hash: hash.to_owned(), instance: instance.into(), ..short }
    }

    /// A node of the same type that has so much cpu.
    fn shown(hash: &str, found: i64) -> Measurement {
        let allocatable = Resources::from([("cpu", Quantity::from_milli(found))]);
        Measurement { class_hash: hash.into(), allocatable, ..one("m5.large", 7700) }
    }

    /// After these nodes were found, each a day after the one before; the first on day 0.
    fn found_daily(nodes: &[Shortfall]) -> MeasuredMemory {
        let mut known = None;
        for (day, node) in (0..).zip(nodes) {
            known = MeasuredMemory::after(known.as_ref(), "ami-1", &[], std::slice::from_ref(node), at(day)).or(known);
        }
        known.unwrap()
    }

    /// What the type is planned with.
    fn cpu(known: &MeasuredMemory, hash: &str, now: Timestamp) -> Option<i64> {
        known.too_little_of(hash, now).get("m5.large").map(|most| most.get("cpu").milli())
    }

    fn hours(hours: i64) -> Timestamp {
        at(0) + SignedDuration::from_hours(hours)
    }

    #[test]
    fn one_odd_node_changes_no_plan() {
        let first = found_daily(&[small("7", "i-1", 3200)]);
        assert_eq!(cpu(&first, "7", at(0)), None);
        let again = MeasuredMemory::after(Some(&first), "ami-1", &[], &[small("7", "i-1", 3100)], at(0)).unwrap();
        assert_eq!(cpu(&again, "7", at(0)), None, "it is the same node");
        let others = [small("8", "i-2", 3200), Shortfall { instance_type: "c5.large".into(), ..small("7", "i-3", 3200) }];
        let beside = MeasuredMemory::after(Some(&first), "ami-1", &[], &others, at(0)).unwrap();
        assert!(["7", "8"].iter().all(|hash| beside.too_little_of(hash, at(0)).is_empty()), "they are of other kinds");
        assert_eq!(MeasuredMemory::after(Some(&first), "ami-2", &[], &[small("7", "i-2", 3200)], at(0)), None, "of another image");
        let late = MeasuredMemory::after(Some(&first), "ami-1", &[], &[small("7", "i-2", 3200)], at(2)).unwrap();
        assert_eq!(cpu(&late, "7", at(2)), None, "two odd nodes in a long time are two odd nodes");
    }

    #[test]
    fn what_two_nodes_had_is_planned_with_for_a_day_and_the_larger_amount_of_both() {
        let two = [small("7", "i-1", 3200), small("7", "i-2", 3100)];
        for (nodes, most) in [(&two[..], 3200), (&[two[1].clone(), two[0].clone()][..], 3200)] {
            let known = MeasuredMemory::after(None, "ami-1", &[], nodes, at(0)).unwrap();
            assert_eq!((cpu(&known, "7", at(0)), cpu(&known, "7", hours(23))), (Some(most), Some(most)));
            assert_eq!((cpu(&known, "7", hours(24)), cpu(&known, "8", at(0))), (None, None));
        }
        let both = MeasuredMemory::after(None, "ami-1", &[], &two, at(0)).unwrap();
        let third = MeasuredMemory::after(Some(&both), "ami-1", &[], &[small("7", "i-3", 3000)], hours(1)).unwrap();
        assert_eq!(cpu(&third, "7", hours(1)), Some(3100), "the one with more was the odd one");
    }

    #[test]
    fn one_machine_a_day_tries_again() {
        let known = found_daily(&[small("7", "i-1", 3200), small("7", "i-2", 3200)]);
        assert_eq!((cpu(&known, "7", hours(47)), cpu(&known, "7", hours(48))), (Some(3200), None));
        let tried = MeasuredMemory::after(Some(&known), "ami-1", &[], &[small("7", "i-3", 3200)], hours(49)).unwrap();
        assert_eq!((cpu(&tried, "7", hours(72)), cpu(&tried, "7", hours(73))), (Some(3200), None));
        let forgotten = MeasuredMemory::after(Some(&tried), "ami-1", &[], &[], hours(49 + 48)).unwrap();
        assert_eq!(forgotten.small_nodes, SmallNodes::new());
    }

    #[test]
    fn a_node_of_the_same_kind_that_has_more_raises_what_is_planned_with() {
        let known = MeasuredMemory::after(None, "ami-1", &[], &[small("7", "i-1", 3200), small("7", "i-2", 3100)], at(0)).unwrap();
        let after = |shown: Measurement| {
            let next = MeasuredMemory::after(Some(&known), "ami-1", &[shown], &[], hours(1));
            cpu(next.as_ref().unwrap_or(&known), "7", hours(1))
        };
        assert_eq!((after(shown("7", 3300)), after(shown("7", 4000))), (Some(3300), Some(4000)));
        assert_eq!((after(shown("7", 3000)), after(shown("8", 4000))), (Some(3200), Some(3200)));
        assert_eq!(after(Measurement { instance_type: "c5.large".into(), ..shown("7", 4000) }), Some(3200));
        // The node that joins with the odd one shows it as such, whichever comes first.
        let mixed = MeasuredMemory::after(None, "ami-1", &[shown("7", 4000)], &[small("7", "i-1", 3200)], at(0)).unwrap();
        let mixed = MeasuredMemory::after(Some(&mixed), "ami-1", &[], &[small("7", "i-2", 3200)], at(0)).unwrap();
        assert_eq!(cpu(&mixed, "7", at(0)), Some(4000));
    }

    #[test]
    fn small_nodes_are_bounded_and_an_earlier_release_reads_past_them() {
        let many: Vec<Shortfall> = (0..1_000).map(|hash| small(&hash.to_string(), "i-1", 3200)).collect();
        let bounded = MeasuredMemory::after(None, "ami-1", &[], &many, at(1)).unwrap();
        assert!(bounded.small_nodes.len() <= SETTINGS_MAX && bounded.small_nodes.contains_key("999"));
        let one_more = MeasuredMemory::after(Some(&bounded), "ami-1", &[], &[small("9999", "i-1", 3200)], at(1)).unwrap();
        let kept = bounded.small_nodes.keys().filter(|hash| one_more.small_nodes.contains_key(*hash)).count();
        assert_eq!((one_more.small_nodes.len(), kept), (SETTINGS_MAX, SETTINGS_MAX - 1), "one makes room, and not all");
        let burst: Vec<Shortfall> = (0..1_000).map(|node| small("7", &format!("i-{node}"), 3200)).collect();
        let of_one = MeasuredMemory::after(None, "ami-1", &[], &burst, at(1)).unwrap();
        assert_eq!(of_one.small_nodes["7"]["m5.large"]["cpu"].len(), 2);
        let text = serde_json::to_value(MeasuredMemory::after(None, "ami-1", &[one("m5.large", 7700)], &[], at(0))).unwrap();
        assert_eq!((text.get("small_nodes"), text.get("small_memory")), (None, None), "nothing is stored for none");
    }

    #[test]
    fn what_an_earlier_release_learned_of_one_node_is_not_planned_with() {
        let stored = r#"{"image_id": "ami-1", "by_type": {"m5.large": "7690Mi"}, "updated_at": "2026-11-01T00:00:00Z",
            "too_little": {"7": {"m5.large": {"cpu": "3200m"}}}}"#;
        let known: MeasuredMemory = serde_json::from_str(stored).unwrap();
        assert_eq!((known.by_type["m5.large"], cpu(&known, "7", known.updated_at)), (Quantity::from_mebibytes(7690), None));
        let now = serde_json::to_string(&found_daily(&[small("7", "i-1", 3200)])).unwrap();
        assert_eq!(serde_json::from_str::<MeasuredMemory>(&now).unwrap(), found_daily(&[small("7", "i-1", 3200)]));
    }
}
