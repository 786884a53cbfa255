//! What follows from a list of instance types alone: names as numbers, types as bit sets, amounts in steps.

use super::bits::Bits;
use super::hash::Map;
use super::ids::{IdVec, Key, KindId, TypeId};
use super::intern::{NameTable, Names, Set, Val, Vals};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::labels;
use whittle_model::requirements;
use whittle_model::scheduling::InstanceTypes;

/// The price of what is not available.
pub(crate) const NO_PRICE: u64 = u64::MAX;

/// A list of types, in the order in which the solver tries them: by ascending base price, then name.
#[derive(Debug)]
pub(crate) struct CatalogIndex {
    /// The label keys and values of the list, to which the numbers below refer.
    pub(crate) name_table: Arc<NameTable>,
    pub(crate) names: Arc<IdVec<TypeId, String>>,
    /// By type: its position in the list that it came from.
    pub(crate) place: Arc<IdVec<TypeId, usize>>,
    pub(crate) sets: Arc<IdVec<TypeId, Set>>,
    pub(crate) by_key: Arc<ByKey>,
    pub(crate) kinds: IdVec<KindId, SharedOfferingKind>,
    /// Reservations in the order of their first occurrence, with the smallest number of free instances that an offering states.
    pub(crate) reservations: Vec<(String, i64)>,
    /// Label keys that the types define.
    pub(crate) label_keys: BTreeSet<String>,
    resources: BTreeMap<String, Resource>,
    /// A resource that no type has.
    nothing: Resource,
    /// `None` if no type has a limit.
    pub(crate) attachments: Option<Arc<Attachments>>,
}

/// How many EBS volumes of pods each type attaches.
#[derive(Debug)]
pub(crate) struct Attachments {
    /// The maximum where nothing limits them.
    pub(crate) most: IdVec<TypeId, i64>,
    steps: Steps,
}

impl Attachments {
    fn of(order: &IdVec<TypeId, &InstanceType>) -> Option<Self> {
        order.iter().find_map(|t| t.ebs_attachments)?;
        let most: IdVec<TypeId, i64> = order.iter().map(|t| t.ebs_attachments.map_or(i64::MAX, i64::from)).collect();
        Some(Self { steps: Steps::at_least(&most), most })
    }

    /// Keeps in `types` those that attach as many volumes.
    pub(crate) fn keep(&self, volumes: i64, types: &mut Bits) {
        match self.steps.at.partition_point(|step| *step < volumes) {
            0 => {}
            at if at == self.steps.at.len() => types.clear(),
            at => types.intersect_with(&self.steps.types[at]),
        }
    }
}

/// Offerings with equal requirements, over all types.
#[derive(Clone, Debug)]
pub(crate) struct SharedOfferingKind {
    pub(crate) set: Set,
    pub(crate) capacity_type: String,
    pub(crate) zone: String,
    /// The id of the reservation.
    pub(crate) reservation: Option<String>,
    /// The key that requirements must name to allow it: that of the tenancy, if it is for dedicated machines.
    pub(crate) named_by: Option<Key>,
    /// Types with an available offering of the kind.
    pub(crate) available: Arc<Bits>,
    /// Types with any offering of the kind: also those that EC2 is out of for now, but none without a price.
    pub(crate) sold: Arc<Bits>,
    /// By type, billionths of a dollar per hour; [`NO_PRICE`] where not available.
    pub(crate) price: Arc<IdVec<TypeId, u64>>,
}

/// Types by their requirement on a label: few types have one that no other type has.
#[derive(Debug, Default)]
pub(crate) struct ByKey(Vec<(Key, Vec<(Vals, Bits)>)>);

/// Amounts of one resource.
#[derive(Debug)]
struct Resource {
    allocatable: IdVec<TypeId, i64>,
    capacity: IdVec<TypeId, i64>,
    /// Types by what pods can use.
    room: Arc<Steps>,
    /// Types by the capacity of the whole machine, which limits count.
    bulk: Arc<Steps>,
}

/// The distinct amounts of a resource, ascending, and the types with at least (or at most) that much.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) at: Vec<i64>,
    pub(crate) types: Vec<Bits>,
}

impl Steps {
    /// By ascending amount, the types with at least that amount.
    fn at_least(amounts: &IdVec<TypeId, i64>) -> Self {
        let mut order = by_amount(amounts);
        order.reverse();
        let mut out = Self::collect(amounts, &order);
        out.at.reverse();
        out.types.reverse();
        out
    }

    /// By ascending amount, the types with at most that amount.
    fn at_most(amounts: &IdVec<TypeId, i64>) -> Self {
        Self::collect(amounts, &by_amount(amounts))
    }

    /// In this order, with the types so far at each step.
    fn collect(amounts: &IdVec<TypeId, i64>, order: &[TypeId]) -> Self {
        let (mut out, mut so_far) = (Self { at: Vec::new(), types: Vec::new() }, Bits::none(amounts.len()));
        for run in order.chunk_by(|a, b| amounts[*a] == amounts[*b]) {
            run.iter().for_each(|n| so_far.insert(*n));
            out.at.push(amounts[run[0]]);
            out.types.push(so_far.clone());
        }
        out
    }
}

fn by_amount(amounts: &IdVec<TypeId, i64>) -> Vec<TypeId> {
    let mut order: Vec<TypeId> = amounts.ids().collect();
    order.sort_by_key(|id| amounts[*id]);
    order
}

impl Resource {
    fn of(allocatable: IdVec<TypeId, i64>, capacity: IdVec<TypeId, i64>) -> Self {
        let (room, bulk) = (Arc::new(Steps::at_least(&allocatable)), Arc::new(Steps::at_most(&capacity)));
        Self { allocatable, capacity, room, bulk }
    }
}

impl ByKey {
    pub(crate) fn of(sets: &IdVec<TypeId, Set>) -> Self {
        let mut found: BTreeMap<Key, BTreeMap<&Vals, Bits>> = BTreeMap::new();
        for (id, set) in sets.enumerate() {
            for (key, vals) in set.iter() {
                found.entry(*key).or_default().entry(vals).or_insert_with(|| Bits::none(sets.len())).insert(id);
            }
        }
        let owned = |own: BTreeMap<&Vals, Bits>| own.into_iter().map(|(vals, bits)| (vals.clone(), bits)).collect();
        Self(found.into_iter().map(|(key, own)| (key, owned(own))).collect())
    }

    /// Of `size` types, those whose own requirement on `key` is compatible with `required`; a type without one is compatible.
    pub(crate) fn compatible_types(&self, size: usize, key: Key, required: &Vals) -> Bits {
        let mut bits = Bits::all(size);
        let Ok(at) = self.0.binary_search_by_key(&key, |(key, _)| *key) else { return bits };
        for (own, types) in &self.0[at].1 {
            let both_may_be_absent = required.allows_absence() && own.allows_absence();
            if !both_may_be_absent && !own.overlaps(required) {
                bits.subtract(types);
            }
        }
        bits
    }

    /// The values of `key` that `types` can have; `None` if they cannot be listed.
    pub(crate) fn values(&self, key: Key, types: &Bits) -> Option<Vec<Val>> {
        let at = self.0.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        let (mut undefined, mut out) = (types.clone(), Vec::new());
        for (own, bits) in self.0[at].1.iter().filter(|(_, bits)| bits.intersects(types)) {
            out.extend_from_slice(own.members()?);
            undefined.subtract(bits);
        }
        out.sort_unstable();
        out.dedup();
        undefined.is_empty().then_some(out)
    }

    /// The same with other numbers.
    pub(crate) fn renumbered(&self, key: impl Fn(Key) -> Key, vals: impl Fn(&Vals) -> Vals) -> Self {
        let renumber = |(of, own): &(Key, Vec<(Vals, Bits)>)| (key(*of), own.iter().map(|(v, bits)| (vals(v), bits.clone())).collect());
        let mut out: Vec<_> = self.0.iter().map(renumber).collect();
        out.sort_by_key(|(key, _)| *key);
        Self(out)
    }
}

/// The index of a list.
pub(crate) fn index_of(types: &InstanceTypes) -> Arc<CatalogIndex> {
    types.derived(CatalogIndex::of)
}

impl CatalogIndex {
    fn of(types: &[InstanceType]) -> Self {
        let base = |t: &InstanceType| t.offerings.iter().filter(|o| o.available).map(|o| o.price).min();
        let mut place: Vec<usize> = (0..types.len()).collect();
        place.sort_by_cached_key(|at| (base(&types[*at]).is_none(), base(&types[*at]), &types[*at].name));
        let order: IdVec<TypeId, &InstanceType> = place.iter().map(|at| &types[*at]).collect();
        let mut names = Names::default();
        let sets: IdVec<TypeId, Set> = order.iter().map(|t| names.set(&requirements::from_requirements(&t.requirements))).collect();
        let (kinds, reservations) = kinds(&order, &mut names);
        let label_keys = types.iter().flat_map(|t| &t.requirements).map(|r| labels::normalized(&r.key));
        let label_keys: BTreeSet<&str> = label_keys.collect();
        Self {
            names: Arc::new(order.iter().map(|t| t.name.clone()).collect()),
            place: Arc::new(place.into()),
            by_key: Arc::new(ByKey::of(&sets)),
            sets: Arc::new(sets),
            kinds,
            reservations,
            label_keys: label_keys.into_iter().map(str::to_owned).collect(),
            resources: resources(&order),
            attachments: Attachments::of(&order).map(Arc::new),
            nothing: Resource::of(IdVec::filled(0, &order), IdVec::filled(0, &order)),
            name_table: Arc::new(names.into_table()),
        }
    }

    fn resource(&self, name: &str) -> &Resource {
        self.resources.get(name).unwrap_or(&self.nothing)
    }

    /// By type: what pods can use of a resource, in milli-units.
    pub(crate) fn allocatable(&self, resource: &str) -> &IdVec<TypeId, i64> {
        &self.resource(resource).allocatable
    }

    /// By type: what the machine has of a resource, in milli-units.
    pub(crate) fn capacity(&self, resource: &str) -> &IdVec<TypeId, i64> {
        &self.resource(resource).capacity
    }

    /// Types by the amount that pods can use.
    pub(crate) fn room(&self, resource: &str) -> &Arc<Steps> {
        &self.resource(resource).room
    }

    /// Types by the amount that the machine has.
    pub(crate) fn bulk(&self, resource: &str) -> &Arc<Steps> {
        &self.resource(resource).bulk
    }
}

/// The kinds of offerings and the reservations, in the order of their first occurrence.
fn kinds(order: &IdVec<TypeId, &InstanceType>, names: &mut Names) -> (IdVec<KindId, SharedOfferingKind>, Vec<(String, i64)>) {
    struct Draft<'t> {
        set: Set,
        first: &'t Offering,
        named_by: Option<Key>,
        available: Bits,
        sold: Bits,
        price: IdVec<TypeId, u64>,
    }
    let mut drafts: IdVec<KindId, Draft<'_>> = IdVec::new();
    let mut kind_of: Map<Set, KindId> = Map::default();
    let mut reservations: Vec<(String, i64)> = Vec::new();
    for (id, t) in order.enumerate() {
        // A type that cannot even hold its own overhead is never bought.
        let usable = t.holds_its_overhead();
        for offering in &t.offerings {
            let set = names.set(&requirements::from_requirements(&offering.requirements));
            let at = *kind_of.entry(set.clone()).or_insert_with(|| {
                let price = IdVec::filled(NO_PRICE, order);
                let none = || Bits::none(order.len());
                let named_by = offering.is_dedicated().then(|| names.key(labels::INSTANCE_TENANCY));
                drafts.push(Draft { set, first: offering, named_by, available: none(), sold: none(), price })
            });
            if let Some(reservation) = reservation(offering) {
                let free = i64::from(offering.reservation_capacity.unwrap_or(0));
                match reservations.iter_mut().find(|(known, _)| known == reservation) {
                    Some((_, left)) => *left = free.min(*left),
                    None => reservations.push((reservation.to_owned(), free)),
                }
            }
            let kind = &mut drafts[at];
            if usable && offering.is_sold() {
                kind.sold.insert(id);
            }
            if offering.available && usable {
                kind.available.insert(id);
                kind.price[id] = kind.price[id].min(offering.price.nanos());
            }
        }
    }
    let kinds = drafts.into_iter().map(|draft| SharedOfferingKind {
        set: draft.set,
        capacity_type: draft.first.capacity_type().to_owned(),
        zone: draft.first.zone().to_owned(),
        reservation: reservation(draft.first).map(str::to_owned),
        named_by: draft.named_by,
        available: Arc::new(draft.available),
        sold: Arc::new(draft.sold),
        price: Arc::new(draft.price),
    });
    (kinds.collect(), reservations)
}

/// The id of the reservation that an offering belongs to.
fn reservation(offering: &Offering) -> Option<&str> {
    offering.label(labels::RESERVATION_ID).filter(|_| offering.capacity_type() == labels::CAPACITY_RESERVED)
}

/// By name: the amounts of each resource that some type has.
fn resources(order: &IdVec<TypeId, &InstanceType>) -> BTreeMap<String, Resource> {
    let usable: Vec<_> = order.iter().map(|t| t.allocatable()).collect();
    let names: BTreeSet<&str> = order.iter().flat_map(|t| t.capacity.iter().map(|(name, _)| name)).collect();
    let of = |name: &&str| {
        let allocatable = usable.iter().map(|amounts| amounts.get(name).milli()).collect();
        let capacity = order.iter().map(|t| t.capacity.get(name).milli()).collect();
        ((*name).to_owned(), Resource::of(allocatable, capacity))
    };
    names.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::catalog::{Catalog, Dims, Reservations};
    use super::super::ids::Id as _;
    use super::*;
    use whittle_api::karpenter::Requirement;
    use whittle_model::requirements::Allowed;
    use whittle_units::{Price, Quantity};

    fn instance_type(name: &str, zones: &[&str], cores: i64) -> InstanceType {
        let offering = |zone: &&str| Offering {
            requirements: vec![Requirement::is_in(labels::ZONE, [*zone]), Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])],
            price: Price::from_dollars(1.0),
            available: true,
            reservation_capacity: None,
        };
        InstanceType {
            name: name.to_owned(),
            requirements: vec![
                Requirement::is_in(labels::INSTANCE_TYPE, [name]),
                Requirement::is_in(labels::ZONE, zones.iter().copied()),
                Requirement::is_in("cores", [cores.to_string().as_str()]),
            ],
            offerings: zones.iter().map(offering).collect(),
            capacity: [("cpu", Quantity::from_units(cores))].into(),
            ..InstanceType::default()
        }
    }

    /// The names of the types of a list that are available in `zone`, and of those with this number of cores.
    fn found(catalog: &mut Catalog, names: &mut Names, zone: &str, cores: &str) -> (Vec<String>, Vec<String>) {
        let required = |names: &mut Names, key: &str, value: &str| -> Set {
            let (key, value) = (names.key(key), names.val(value));
            [(key, Allowed::one(value))].into_iter().collect()
        };
        let (in_zone, of_size) = (required(names, labels::ZONE, zone), required(names, "cores", cores));
        let mut listed = |set: &Set| catalog.view(set, |_| true).usable.iter().map(|t| catalog.names[t].clone()).collect();
        (listed(&in_zone), listed(&of_size))
    }

    #[test]
    fn a_list_says_the_same_in_its_own_numbers_and_in_those_of_another() {
        let lists = [
            CatalogIndex::of(&[instance_type("a2", &["x", "y"], 2), instance_type("a4", &["y"], 4)]),
            CatalogIndex::of(&[instance_type("b4", &["z"], 4), instance_type("b2", &["y", "x"], 2)]),
        ];
        for (base, other) in [(0, 1), (1, 0)] {
            let (mut names, mut reservations, mut dims) =
                (Names::based_on(&lists[base].name_table), Reservations::default(), Dims::default());
            let cpu = dims.of("cpu");
            let mut catalogs = [base, other].map(|at| Catalog::of(&lists[at], &mut names, &dims, &mut reservations));
            if base == 1 {
                catalogs.reverse();
            }
            let [a, b] = &mut catalogs;
            assert_eq!(found(a, &mut names, "y", "4"), (vec!["a2".to_owned(), "a4".to_owned()], vec!["a4".to_owned()]));
            assert_eq!(found(b, &mut names, "y", "4"), (vec!["b2".to_owned()], vec!["b4".to_owned()]));
            assert_eq!(found(b, &mut names, "q", "9"), (vec![], vec![]));
            assert_eq!((a.allocatable[TypeId::at(1)][cpu], b.allocatable[TypeId::at(1)][cpu]), (4_000, 4_000));
        }
    }
}
