//! Instance types and offerings as bit sets: "which types satisfy this" is an AND.

use super::bits::Bits;
use super::catalog_index::{Attachments, ByKey, CatalogIndex, NO_PRICE, SharedOfferingKind, Steps};
use super::hash::Map;
use super::ids::{DimId, IdVec, Key, KindId, ReservationId, TypeId, ValId};
use super::intern::{Names, Set, Val, Vals};
use std::sync::Arc;
use whittle_api::labels;

/// A spot claim keeps this many types where its pods allow it: with fewer, it is interrupted sooner.
pub(crate) const SPOT_TYPES_KEPT: usize = 15;
/// An on-demand claim keeps this many, in case one of them is out of capacity.
const ON_DEMAND_TYPES_KEPT: usize = 5;
/// But at most one in this many of its NodePool's types: a user who allows only a few types has given up the rest already, and to keep two
/// types more, machines would have to be so small that this costs more than it saves.
const TYPES_PER_TYPE_KEPT: usize = 3;

/// The resource names of a problem, as dimensions of vectors.
#[derive(Debug, Default)]
pub(crate) struct Dims {
    pub(crate) names: IdVec<DimId, String>,
}

impl Dims {
    pub(crate) fn of(&mut self, name: &str) -> DimId {
        self.known(name).unwrap_or_else(|| self.names.push(name.to_owned()))
    }

    pub(crate) fn known(&self, name: &str) -> Option<DimId> {
        self.names.enumerate().find(|(_, known)| *known == name).map(|(dim, _)| dim)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Milli amounts by dimension; names without a dimension are dropped.
    pub(crate) fn vector(&self, resources: &whittle_units::Resources) -> IdVec<DimId, i64> {
        self.names.iter().map(|name| resources.get(name).milli()).collect()
    }
}

/// Offerings with equal requirements, over all types.
#[derive(Debug)]
pub(crate) struct OfferingKind {
    pub(crate) set: Set,
    pub(crate) capacity_type: String,
    pub(crate) zone: String,
    /// Number of the reservation.
    pub(crate) reservation: Option<ReservationId>,
    /// The key that requirements must name to allow it.
    named_by: Option<Key>,
    /// Types with an available offering of the kind.
    pub(crate) available: Arc<Bits>,
    /// Types with any offering of the kind: also those that EC2 is out of for now, but none without a price.
    pub(crate) sold: Arc<Bits>,
    /// By type, billionths of a dollar per hour; [`NO_PRICE`] where not available.
    pub(crate) price: Arc<IdVec<TypeId, u64>>,
}

impl OfferingKind {
    /// Whether requirements allow it.
    fn is_allowed_by(&self, set: &Set, well_known: impl Fn(&Key) -> bool) -> bool {
        self.named_by.is_none_or(|key| set.get(&key).is_some()) && set.compatible(&self.set, well_known).is_ok()
    }
}

/// One list of instance types, with the numbers of a problem.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// By ascending base price, then name.
    pub(crate) names: Arc<IdVec<TypeId, String>>,
    /// By type: its position in the list that it came from.
    pub(crate) place: Arc<IdVec<TypeId, usize>>,
    pub(crate) sets: Arc<IdVec<TypeId, Set>>,
    pub(crate) kinds: IdVec<KindId, OfferingKind>,
    pub(crate) allocatable: IdVec<TypeId, IdVec<DimId, i64>>,
    pub(crate) capacity: IdVec<TypeId, IdVec<DimId, i64>>,
    /// Types by what pods can use.
    room: IdVec<DimId, Arc<Steps>>,
    /// Types by the capacity of the whole machine, which limits count.
    bulk: IdVec<DimId, Arc<Steps>>,
    by_key: Arc<ByKey>,
    by_value: Map<(Key, Vals), Bits>,
    /// `None` if no type has a limit.
    pub(crate) attachments: Option<Arc<Attachments>>,
}

/// What a requirement set leaves of a catalog.
#[derive(Debug)]
pub(crate) struct View {
    /// Types whose own requirements are compatible.
    pub(crate) met: Bits,
    /// Types with a compatible available offering.
    pub(crate) offered: Bits,
    /// Both.
    pub(crate) usable: Bits,
    /// By type: the price of its cheapest compatible available offering.
    pub(crate) price: IdVec<TypeId, u64>,
    /// The usable types by price, then number.
    order: Vec<TypeId>,
    /// Whether `order` is ascending by number.
    ascending: bool,
    /// Compatible kinds of offerings.
    pub(crate) kinds: Vec<KindId>,
    /// Keys with `minValues`, and the number of distinct values required.
    pub(crate) min_values: Vec<(Key, u32)>,
}

impl Catalog {
    /// The list with the numbers of `names` and the dimensions of `dims`. Data that other problems share is not copied.
    pub(crate) fn of(index: &CatalogIndex, names: &mut Names, dims: &Dims, reservations: &mut Reservations) -> Self {
        let number = names.adopt(&index.name_table);
        let set = |set: &Set| match &number {
            None => set.clone(),
            Some(number) => set.iter().map(|(key, vals)| (number.key(*key), number.vals(vals))).collect(),
        };
        let (sets, by_key) = match &number {
            None => (Arc::clone(&index.sets), Arc::clone(&index.by_key)),
            Some(number) => {
                let by_key = index.by_key.renumbered(|key| number.key(key), |vals| number.vals(vals));
                (Arc::new(index.sets.iter().map(set).collect()), Arc::new(by_key))
            }
        };
        reservations.add(&index.reservations);
        let kind = |kind: &SharedOfferingKind| OfferingKind {
            set: set(&kind.set),
            capacity_type: kind.capacity_type.clone(),
            zone: kind.zone.clone(),
            reservation: kind.reservation.as_deref().and_then(|id| reservations.known(id)),
            named_by: kind.named_by.map(|key| number.as_ref().map_or(key, |number| number.key(key))),
            available: Arc::clone(&kind.available),
            sold: Arc::clone(&kind.sold),
            price: Arc::clone(&kind.price),
        };
        let by_type = |amounts: Vec<&IdVec<TypeId, i64>>| index.names.ids().map(|t| amounts.iter().map(|of| of[t]).collect()).collect();
        Self {
            names: Arc::clone(&index.names),
            place: Arc::clone(&index.place),
            kinds: index.kinds.iter().map(kind).collect(),
            allocatable: by_type(dims.names.iter().map(|name| index.allocatable(name)).collect()),
            capacity: by_type(dims.names.iter().map(|name| index.capacity(name)).collect()),
            room: dims.names.iter().map(|name| Arc::clone(index.room(name))).collect(),
            bulk: dims.names.iter().map(|name| Arc::clone(index.bulk(name))).collect(),
            sets,
            by_key,
            by_value: Map::default(),
            attachments: index.attachments.clone(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The values of `key` that `types` can have; `None` if they cannot be listed.
    pub(crate) fn values(&self, key: Key, types: &Bits) -> Option<Vec<Val>> {
        self.by_key.values(key, types)
    }

    /// Keeps in `types` those with room for `need`, by dimension.
    pub(crate) fn keep_fitting(&self, need: &[i64], types: &mut Bits) {
        for (steps, &amount) in self.room.iter().zip(need) {
            if amount <= 0 {
                continue;
            }
            match steps.at.partition_point(|step| *step < amount) {
                0 => {}
                at if at == steps.at.len() => return types.clear(),
                at => types.intersect_with(&steps.types[at]),
            }
        }
    }

    /// Keeps in `types` those that attach as many EBS volumes.
    pub(crate) fn keep_attaching(&self, volumes: usize, types: &mut Bits) {
        if let Some(attachments) = self.attachments.as_ref().filter(|_| volumes > 0) {
            attachments.keep(i64::try_from(volumes).unwrap_or(i64::MAX), types);
        }
    }

    /// Keeps in `types` those whose machines are no larger than `most` in dimension `dim`.
    pub(crate) fn keep_no_larger(&self, dim: DimId, most: i64, types: &mut Bits) {
        let steps = &self.bulk[dim];
        match steps.at.partition_point(|step| *step <= most) {
            0 => types.clear(),
            at if at == steps.at.len() => {}
            at => types.intersect_with(&steps.types[at - 1]),
        }
    }

    /// The largest amount that one of `types` has for pods, in dimension `dim`.
    pub(crate) fn most_allocatable(&self, dim: DimId, types: &Bits) -> i64 {
        let steps = &self.room[dim];
        if let Some(most) = steps.at.last().filter(|_| steps.types[steps.at.len() - 1].intersects(types)) {
            return *most; // as with most machines that may yet become anything
        }
        // The last step that contains some of them.
        let at = steps.types.partition_point(|from| from.intersects(types));
        at.checked_sub(1).map_or(0, |at| steps.at[at])
    }

    /// The capacity of the largest machine of all, in dimension `dim`.
    pub(crate) fn largest_of_all(&self, dim: DimId) -> i64 {
        self.bulk[dim].at.last().copied().unwrap_or(0)
    }

    /// The capacity of the largest machine among `types`, in dimension `dim`.
    pub(crate) fn largest(&self, dim: DimId, types: &Bits) -> i64 {
        let steps = &self.bulk[dim];
        if let [.., before, _] = &steps.types[..]
            && !types.is_subset(before)
        {
            return self.largest_of_all(dim);
        }
        // The first step that contains all of them.
        let at = steps.types.partition_point(|upto| !types.is_subset(upto));
        steps.at.get(at).copied().filter(|_| !types.is_empty()).unwrap_or(0)
    }

    /// Types whose own requirement on `key` is compatible with `allowed`.
    fn compatible_types(&mut self, key: Key, allowed: &Vals) -> &Bits {
        let (size, by_key) = (self.names.len(), &self.by_key);
        self.by_value.entry((key, allowed.clone())).or_insert_with(|| by_key.compatible_types(size, key, allowed))
    }

    /// Types whose own requirements are compatible with `set`, whether EC2 has them now or not.
    pub(crate) fn allowed_by(&self, set: &Set) -> Bits {
        let mut types = Bits::all(self.len());
        for (key, allowed) in set.iter() {
            types.intersect_with(&self.by_key.compatible_types(self.len(), *key, allowed));
        }
        types
    }

    /// The requirements of the offerings that are compatible with `set`, each with those of `types` that are sold so, whether EC2 has them
    /// now or not.
    pub(crate) fn sold(&self, set: &Set, types: &Bits, well_known: impl Fn(&Key) -> bool) -> Vec<(&Set, Bits)> {
        let mut out = Vec::new();
        for kind in self.kinds.iter().filter(|kind| kind.sold.intersects(types) && kind.is_allowed_by(set, &well_known)) {
            let mut sold = types.clone();
            sold.intersect_with(&kind.sold);
            out.push((&kind.set, sold));
        }
        out
    }

    /// How many types are compatible with this requirement alone.
    pub(crate) fn compatible_count(&mut self, key: Key, allowed: &Vals) -> usize {
        self.compatible_types(key, allowed).count()
    }

    /// How many types a claim with the offerings of `view` should keep, where its NodePool has `all` types.
    pub(crate) fn types_to_keep(&self, view: &View, all: usize) -> usize {
        let is_spot = |kind: &KindId| self.kinds[*kind].capacity_type == labels::CAPACITY_SPOT;
        let wanted = if view.kinds.iter().any(is_spot) { SPOT_TYPES_KEPT } else { ON_DEMAND_TYPES_KEPT };
        wanted.min((all / TYPES_PER_TYPE_KEPT).max(1))
    }

    pub(crate) fn view(&mut self, set: &Set, well_known: impl Fn(&Key) -> bool) -> View {
        let n = self.len();
        let mut met = Bits::all(n);
        for (key, allowed) in set.iter() {
            let plain = allowed.clone().with_min_values(None);
            let bits = self.compatible_types(*key, &plain);
            met.intersect_with(bits);
        }
        let mut offered = Bits::none(n);
        let mut price: IdVec<TypeId, u64> = IdVec::filled(NO_PRICE, &self.names);
        let mut kinds = Vec::new();
        for (id, kind) in self.kinds.enumerate() {
            if kind.is_allowed_by(set, &well_known) {
                kinds.push(id);
                offered.union_with(&kind.available);
                for (best, offer) in price.iter_mut().zip(kind.price.iter()) {
                    *best = (*best).min(*offer);
                }
            }
        }
        let mut usable = met.clone();
        usable.intersect_with(&offered);
        let mut order: Vec<TypeId> = usable.iter().collect();
        order.sort_by_key(|t| price[*t]);
        let ascending = order.is_sorted();
        let min_values = set.iter().filter_map(|(key, allowed)| Some((*key, allowed.min_values()?))).collect();
        View { met, offered, usable, price, order, ascending, kinds, min_values }
    }

    /// How many distinct values of `key` the types have.
    pub(crate) fn distinct(&self, key: Key, types: &Bits) -> u32 {
        let mut seen: Vec<ValId> =
            types.iter().filter_map(|t| self.sets[t].get(&key)).flat_map(|a| a.listed().iter().map(|v| v.id)).collect();
        seen.sort_unstable();
        seen.dedup();
        u32::try_from(seen.len()).unwrap_or(u32::MAX)
    }
}

impl View {
    /// The cheapest of `types` and its price.
    pub(crate) fn cheapest(&self, types: &Bits) -> Option<(TypeId, u64)> {
        if self.ascending {
            return types.first().map(|t| (t, self.price[t]));
        }
        self.by_price(types).next().map(|t| (t, self.price[t]))
    }

    /// Those of `types` that are usable, cheapest first, then by number.
    pub(crate) fn by_price<'v>(&'v self, types: &'v Bits) -> impl Iterator<Item = TypeId> + 'v {
        self.order.iter().copied().filter(|t| types.has(*t))
    }
}

/// Capacity reservations, with the number of instances left in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    pub(crate) ids: IdVec<ReservationId, String>,
    pub(crate) left: IdVec<ReservationId, i64>,
}

impl Reservations {
    fn known(&self, id: &str) -> Option<ReservationId> {
        self.ids.enumerate().find(|(_, known)| *known == id).map(|(at, _)| at)
    }

    /// Where lists differ about a reservation, the smallest number counts.
    fn add(&mut self, more: &[(String, i64)]) {
        for (id, left) in more {
            match self.known(id) {
                Some(at) => self.left[at] = self.left[at].min(*left),
                None => {
                    self.ids.push(id.clone());
                    self.left.push(*left);
                }
            }
        }
    }
}
