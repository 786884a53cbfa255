//! Which changes of requirements would give a pod a machine of a NodePool. Each was tried, and none removes more keys than necessary.

use super::alone::{self, DaemonFit};
use super::bits::Bits;
use super::ids::{CatalogId, GroupId, Key, PoolId, SetId};
use super::intern::{LabelsOf, Set, Val};
use super::limits;
use super::pod::{Class, Relaxation, allows_unnamed_host};
use super::pools::{Pool, Template};
use super::problem::Problem;
use super::state::State;
use super::topology::{Counts, GroupKind};
use std::collections::BTreeSet;
use whittle_api::k8s::TaintEffect;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::pods;
use whittle_model::requirements::Allowed;
use whittle_model::scheduling::{Change, Changes, ClassChange, Meant, OwnRule};
use whittle_model::state::StateNode;
use whittle_units::Price;

/// How many keys of the pod, and of the NodePool, are tried for removal: those that rule out the most types.
const KEYS_MAX: usize = 12;

/// With more topology groups than this, removing some of their domains is not tried.
const GROUPS_MAX: usize = 2_000;

/// Labels that the NodePool gives by its name, or that say how far a node has come.
const OWN_LABELS: [&str; 4] = [labels::NODE_POOL, labels::PROVISIONER_NAME, labels::REGISTERED, labels::INITIALIZED];

/// A pod and a NodePool, with what each requires.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'c> {
    pub(crate) class: &'c Class,
    pub(crate) relaxation: &'c Relaxation,
    pub(crate) pool: PoolId,
    /// What the NodePool requires and which labels it gives.
    pub(crate) template: SetId,
    /// What the pod requires.
    pub(crate) pod: SetId,
    /// Whether its volumes stay where they are.
    pub(crate) with_volumes: bool,
}

/// A key that may be removed, and whose requirement it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Pod(Key),
    NodePool(Key),
}

impl<'c> Ask<'c> {
    /// A pod as it is.
    pub(crate) fn of(problem: &Problem<'_>, class: &'c Class, relaxation: &'c Relaxation, pool: PoolId) -> Self {
        Self { class, relaxation, pool, template: problem.pools[pool].set, pod: relaxation.full, with_volumes: true }
    }
}

impl Ask<'_> {
    /// What would help, and what is required after each alternative; another volume is the last.
    pub(crate) fn changes(self, problem: &mut Problem<'_>, state: &State) -> (Changes, Vec<Self>) {
        let room = self.room(problem);
        self.changes_for(problem, state, room)
    }

    /// What would help a pod that any type has room for.
    pub(crate) fn changes_for_any_size(self, problem: &mut Problem<'_>, state: &State) -> (Changes, Vec<Self>) {
        let all = Bits::all(problem.catalogs[problem.pools[self.pool].catalog].len());
        let (changes, after) = self.changes_for(problem, state, all);
        // No type has room for this pod, so that waiting for EC2 to have one again would be in vain.
        (Changes { waits: false, ..changes }, after)
    }

    /// Tries types within the NodePool's limits first, then all in `room`; in the second case the result names the limits as well.
    fn changes_for(self, problem: &mut Problem<'_>, state: &State, room: Bits) -> (Changes, Vec<Self>) {
        let mut within = room.clone();
        let is_limited = self.keep_within_limits(problem, state, &mut within);
        let (changes, after) = self.changes_among(problem, state, &within);
        if !is_limited || !after.is_empty() {
            return (changes, after);
        }
        let (changes, after) = self.changes_among(problem, state, &room);
        let at = problem.pools[self.pool].catalog;
        let mut takers = Bits::none(problem.catalogs[at].len());
        for set in after.first().map(|after| after.sets(problem, state)).unwrap_or_default() {
            takers.union_with(&problem.view(at, set).usable);
        }
        takers.intersect_with(&room);
        let limits = limits::excluding(problem, state, self.pool, &takers);
        (Changes { limits, ..changes }, after)
    }

    fn changes_among(self, problem: &mut Problem<'_>, state: &State, room: &Bits) -> (Changes, Vec<Self>) {
        let (pool, pod) = self.sides(problem);
        let mut enough: Vec<Vec<Side>> = [&pool, &pod].into_iter().filter_map(|sides| self.least(problem, state, room, sides)).collect();
        if enough.is_empty() {
            enough.extend(self.least(problem, state, room, &[pool, pod].concat()));
        }
        let of_class = self.of_class(problem, &enough);
        let mut after: Vec<Self> = enough.iter().map(|sides| self.without(problem, sides)).collect();
        let told = |(sides, after): (&Vec<Side>, &Self)| {
            let price = after.price(problem, state, room).map(Price::from_nanos);
            Change { price, ..self.change(problem, sides) }
        };
        let enough = enough.iter().zip(&after).map(told).collect();
        let elsewhere = self.without_volumes();
        let another_volume = self.has_volumes() && elsewhere.takes(problem, state, room);
        after.extend(another_volume.then_some(elsewhere));
        (Changes { enough, of_class, waits: self.waits(problem, state, room), another_volume, ..Changes::default() }, after)
    }

    /// Removes types that exceed what is left of the NodePool's limits; returns whether there were any.
    fn keep_within_limits(self, problem: &Problem<'_>, state: &State, types: &mut Bits) -> bool {
        let catalog = &problem.catalogs[problem.pools[self.pool].catalog];
        let before = types.count();
        for (dim, left) in state.limits[self.pool].enumerate().filter_map(|(dim, left)| Some((dim, (*left)?))) {
            catalog.keep_no_larger(dim, left, types);
        }
        types.count() < before
    }

    /// Whether a type has room for the pod, wherever others are.
    pub(crate) fn fits_apart(self, problem: &mut Problem<'_>, state: &State) -> bool {
        let (at, mut room) = (problem.pools[self.pool].catalog, self.room(problem));
        self.keep_within_limits(problem, state, &mut room);
        let Some(merged) = problem.merge(self.template, self.pod, LabelsOf::NewNode) else { return false };
        problem.view(at, merged).usable.intersects(&room)
    }

    /// The pod's own rule about its domain, if a type would take it without that one.
    pub(crate) fn own_rule(self, problem: &mut Problem<'_>, state: &State) -> Option<OwnRule> {
        let groups = self.relaxation.owned.iter().map(|group| &problem.groups[*group]).filter(|group| !group.by_host);
        let mut rules = groups.filter_map(|group| match group.kind {
            GroupKind::Spread { .. } => Some(OwnRule::Spread),
            GroupKind::Anti => Some(OwnRule::AntiAffinity),
            GroupKind::Affinity | GroupKind::Inverse => None,
        });
        let rule = rules.next_back()?;
        self.fits_apart(problem, state).then_some(rule)
    }

    /// Domains of a spread without pods and without a type for this one: those that the NodePool should exclude, if that is enough.
    pub(crate) fn excluded(self, problem: &mut Problem<'_>, state: &State) -> Option<(String, Vec<String>)> {
        if state.counts.len() > GROUPS_MAX {
            return None;
        }
        let (at, mut room) = (problem.pools[self.pool].catalog, self.room(problem));
        self.keep_within_limits(problem, state, &mut room);
        let merged = problem.merge(self.template, self.pod, LabelsOf::NewNode)?;
        let spreads = |group: &GroupId| matches!(problem.groups[*group].kind, GroupKind::Spread { .. }) && !problem.groups[*group].by_host;
        let groups: Vec<GroupId> = self.relaxation.owned.iter().copied().filter(spreads).collect();
        let key = problem.groups[*groups.first()?].key;
        let empty: Vec<Val> = state.counts[groups[0]].domains.iter().filter(|(_, count)| *count == 0).map(|(val, _)| *val).collect();
        let mut bad: Vec<Val> = Vec::new();
        for val in empty {
            let set = problem.sets.narrow(merged, key, &Allowed::one(val));
            if !problem.view(at, set).usable.intersects(&room) && self.is_of_this_pool(problem, key, val) {
                bad.push(val);
            }
        }
        if bad.is_empty() {
            return None;
        }
        let mut counts = state.counts.clone();
        let of_key = groups.iter().filter(|group| problem.groups[**group].key == key);
        of_key.for_each(|group| bad.iter().for_each(|val| counts[*group].forget(*val)));
        let sets = alone::in_topology(problem, &counts, self.relaxation, merged).ok()?;
        let helps = sets.into_iter().any(|set| problem.view(at, set).usable.intersects(&room));
        let name = |val: &Val| problem.names.val_name(*val).to_owned();
        helps.then(|| (problem.names.key_name(key).to_owned(), bad.iter().map(name).collect()))
    }

    /// Whether a type would take the pod if its spreads counted only domains with nodes whose taints it tolerates: those that exist, and
    /// those that NodePools could launch.
    pub(crate) fn fits_with_honored_taints(self, problem: &mut Problem<'_>, state: &State) -> bool {
        if state.counts.len() > GROUPS_MAX || self.has_volumes() {
            return false;
        }
        let counts_tainted = |id: &&GroupId| {
            let group = &problem.groups[**id];
            matches!(group.kind, GroupKind::Spread { .. }) && !group.by_host && group.filter.tolerations.is_none()
        };
        let spreads = self.relaxation.owned.iter().filter(counts_tainted);
        let tainted = spreads.map(|id| (*id, self.tainted_domains(problem, problem.groups[*id].key, &state.counts[*id])));
        let tainted: Vec<(GroupId, Vec<Val>)> = tainted.filter(|(_, domains)| !domains.is_empty()).collect();
        if tainted.is_empty() {
            return false;
        }
        let mut counts = state.counts.clone();
        for (id, without) in &tainted {
            counts[*id].domains.retain(|(val, _)| !without.contains(val));
        }
        let (at, mut room) = (problem.pools[self.pool].catalog, self.room(problem));
        self.keep_within_limits(problem, state, &mut room);
        let Some(merged) = problem.merge(self.template, self.pod, LabelsOf::NewNode) else { return false };
        let Ok(sets) = alone::in_topology(problem, &counts, self.relaxation, merged) else { return false };
        sets.into_iter().any(|set| problem.view(at, set).usable.intersects(&room))
    }

    /// The domains in which there are no nodes whose taints the pod tolerates, and for which no NodePool launches any.
    fn tainted_domains(self, problem: &Problem<'_>, key: Key, counts: &Counts) -> Vec<Val> {
        let all = counts.domains.iter().map(|(val, _)| *val);
        let mut out: Vec<Val> = all.filter(|val| !self.is_launched_tolerated(problem, key, *val)).collect();
        if out.is_empty() {
            return out;
        }
        let (name, tolerations) = (problem.names.key_name(key), &problem.taint_table.tolerations[self.relaxation.tolerations]);
        let is_tolerated = |node: &&StateNode| {
            let untolerated = pods::untolerated(tolerations, &node.simulated_taints());
            untolerated.iter().all(|taint| taint.effect == TaintEffect::PreferNoSchedule)
        };
        let tolerated = problem.state_nodes.iter().filter(is_tolerated);
        let within_reach: BTreeSet<&str> = tolerated.filter_map(|node| node.labels().get(name).map(String::as_str)).collect();
        out.retain(|val| !within_reach.contains(problem.names.val_name(*val)));
        out
    }

    /// Whether a NodePool whose taints the pod tolerates has types that are sold in a domain, whether EC2 has them now or not.
    fn is_launched_tolerated(self, problem: &Problem<'_>, key: Key, val: Val) -> bool {
        let usable = problem.pools.iter().map(|pool| Template { catalog: pool.catalog, set: pool.set, taints: pool.taints });
        let unusable = problem.unusable_pools.iter().filter_map(|pool| pool.template);
        let mut tolerated = usable.chain(unusable).filter(|template| problem.tolerated(self.relaxation.tolerations, template.taints));
        tolerated.any(|template| {
            let (catalog, mut set) = (&problem.catalogs[template.catalog], problem.sets.get(template.set).clone());
            let has_domain = set.get(&key).map_or_else(|| problem.well_known.contains(&key), |own| own.has(&val));
            set.add(key, Allowed::one(val));
            has_domain && !catalog.sold(&set, &catalog.allowed_by(&set), |key| problem.well_known.contains(key)).is_empty()
        })
    }

    /// Whether nothing else makes a domain known: no other NodePool, and no node.
    fn is_of_this_pool(self, problem: &Problem<'_>, key: Key, val: Val) -> bool {
        let (name, domain) = (problem.names.key_name(key), problem.names.val_name(val));
        let of_other =
            |pool: PoolId| pool != self.pool && problem.sets.get(problem.pools[pool].set).get(&key).is_none_or(|allowed| allowed.has(&val));
        !problem.pools.ids().any(of_other)
            && !problem.state_nodes.iter().any(|node| node.labels().get(name).is_some_and(|own| own == domain))
    }

    /// The price of the cheapest type that takes the pod.
    fn price(self, problem: &mut Problem<'_>, state: &State, room: &Bits) -> Option<u64> {
        let at = problem.pools[self.pool].catalog;
        let sets = self.sets(problem, state);
        let price = |set| {
            let view = problem.view(at, set);
            let mut types = view.usable.clone();
            types.intersect_with(room);
            view.cheapest(&types).map(|(_, price)| price)
        };
        sets.into_iter().filter_map(price).min()
    }

    /// What of the NodePool and what of the pod may go.
    fn sides(self, problem: &mut Problem<'_>) -> (Vec<Side>, Vec<Side>) {
        let Pool { source, catalog, .. } = problem.pools[self.pool];
        let pool = droppable(problem, source, catalog, self.template);
        let pod = by_effect(problem, catalog, self.pod);
        (pool.into_iter().map(Side::NodePool).collect(), pod.into_iter().map(Side::Pod).collect())
    }

    /// The types that have room for the pod and for the daemons of the NodePool.
    fn room(self, problem: &Problem<'_>) -> Bits {
        let pool = &problem.pools[self.pool];
        let mut room = DaemonFit::of(problem, self.class, self.pool, &pool.types).fitting;
        // Which daemons run on types that the NodePool does not allow is not known: as many as on any that it allows.
        let need = self.class.requests.enumerate().map(|(dim, want)| {
            let daemons = pool.daemons.iter().map(|group| group.overhead[dim]).max().unwrap_or(0);
            want.saturating_add(daemons)
        });
        let mut others = Bits::all(problem.catalogs[pool.catalog].len());
        problem.catalogs[pool.catalog].keep_fitting(&need.collect::<Vec<i64>>(), &mut others);
        problem.catalogs[pool.catalog].keep_attaching(self.class.ebs_volumes(), &mut others);
        others.subtract(&pool.types);
        room.union_with(&others);
        room
    }

    /// As if its volumes were anywhere.
    pub(crate) const fn without_volumes(self) -> Self {
        Self { with_volumes: false, ..self }
    }

    /// Whether its volumes count, and are somewhere.
    pub(crate) const fn has_volumes(self) -> bool {
        self.with_volumes && !self.class.places.is_empty()
    }

    /// What of the class would have to be another for the places of its volumes.
    pub(crate) fn of_volumes(self, problem: &Problem<'_>) -> Vec<ClassChange> {
        self.of_class(problem, &[])
    }

    /// Whether there are types with room for the pod in a domain of `key` that the NodePool excludes.
    pub(crate) fn has_other_domain(self, problem: &mut Problem<'_>, key: Key) -> bool {
        let room = self.room(problem);
        let (at, mut template) = (problem.pools[self.pool].catalog, problem.sets.get(self.template).clone());
        let Some(own) = template.remove(&key).and_then(|own| own.members().map(<[_]>::to_vec)) else { return false };
        template.add(key, Allowed::except(own));
        let template = problem.sets.id(template);
        let Some(set) = problem.merge(template, self.pod, LabelsOf::NewNode) else { return false };
        problem.view(at, set).usable.intersects(&room)
    }

    /// A smallest part of `sides` without which a type takes the pod, if all of them are enough.
    /// Of those that are enough alone, the one with the cheapest machine.
    fn least(self, problem: &mut Problem<'_>, state: &State, room: &Bits, sides: &[Side]) -> Option<Vec<Side>> {
        least(sides, |sides| {
            let changed = self.without(problem, sides);
            changed.price(problem, state, room)
        })
    }

    /// Without these requirements. What the pod asks for, the NodePool allows instead.
    fn without(self, problem: &mut Problem<'_>, sides: &[Side]) -> Self {
        let (mut template, mut pod) = (problem.sets.get(self.template).clone(), problem.sets.get(self.pod).clone());
        for side in sides {
            if let Side::Pod(key) = side {
                pod.remove(key);
            }
        }
        for side in sides {
            if let Side::NodePool(key) = side {
                match pod.get(key) {
                    Some(asked) => template.replace(*key, asked.clone()),
                    None => drop(template.remove(key)),
                }
            }
        }
        Self { template: problem.sets.id(template), pod: problem.sets.id(pod), ..self }
    }

    /// The requirement sets of a machine for the pod, one for each place of its volumes.
    fn sets(self, problem: &mut Problem<'_>, state: &State) -> Vec<SetId> {
        let Some(merged) = problem.merge(self.template, self.pod, LabelsOf::NewNode) else { return Vec::new() };
        let places: Vec<Option<SetId>> = match self.has_volumes() {
            false => vec![Some(merged)],
            true => {
                let new = self.class.places.iter().filter(|place| allows_unnamed_host(place.host.as_ref()));
                new.map(|place| problem.merge(merged, place.set, LabelsOf::NewNode)).collect()
            }
        };
        places
            .into_iter()
            .flatten()
            .filter_map(|set| alone::in_topology(problem, &state.counts, self.relaxation, set).ok())
            .flatten()
            .collect()
    }

    /// Whether a type in `room` meets all requirements and is available.
    pub(crate) fn takes(self, problem: &mut Problem<'_>, state: &State, room: &Bits) -> bool {
        let at = problem.pools[self.pool].catalog;
        self.sets(problem, state).into_iter().any(|set| problem.view(at, set).usable.intersects(room))
    }

    /// Whether a type in `room` meets all requirements and is only out of stock: it is worth waiting until EC2 has it again.
    fn waits(self, problem: &mut Problem<'_>, state: &State, room: &Bits) -> bool {
        let at = problem.pools[self.pool].catalog;
        self.sets(problem, state).into_iter().any(|set| {
            let view = problem.view(at, set);
            let mut would = view.met.clone();
            would.intersect_with(room);
            let kinds = view.kinds.iter().map(|kind| &problem.catalogs[at].kinds[*kind]);
            // When a reservation has room again is unknown.
            kinds.filter(|kind| kind.reservation.is_none()).any(|kind| kind.sold.intersects(&would))
        })
    }

    /// Without what the pod requires of `key`.
    pub(crate) fn without_pods(self, problem: &mut Problem<'_>, key: Key) -> Self {
        self.without(problem, &[Side::Pod(key)])
    }

    /// With `values` of `key` in what the pod asks for.
    pub(crate) fn with(self, problem: &mut Problem<'_>, key: Key, values: &[String]) -> Self {
        let values: Vec<_> = values.iter().map(|value| problem.names.val(value)).collect();
        let mut pod: Set = problem.sets.get(self.pod).clone();
        pod.replace(key, Allowed::one_of(values));
        Self { pod: problem.sets.id(pod), ..self }
    }

    fn change(self, problem: &Problem<'_>, sides: &[Side]) -> Change {
        let (template, pod) = (problem.sets.get(self.template), problem.sets.get(self.pod));
        let name = |key: &Key| problem.names.key_name(*key).to_owned();
        let told = |set: &Set, key: &Key| (name(key), set.get(key).map(|v| problem.names.spell_vals(v).text()).unwrap_or_default());
        // Where its volumes are, if that is one place.
        let place = match self.class.places.as_slice() {
            [place] if self.with_volumes => Some(problem.sets.get(place.set)),
            _ => None,
        };
        let mut out = Change::default();
        for side in sides {
            match side {
                Side::Pod(key) => out.pod.push(name(key)),
                Side::NodePool(key) if pod.get(key).is_some() && !sides.contains(&Side::Pod(*key)) => out.allow.push(told(pod, key)),
                Side::NodePool(key) => match place.filter(|place| place.get(key).is_some()) {
                    Some(place) => out.allow.push(told(place, key)),
                    None => out.drop.push(told(template, key)),
                },
            }
        }
        out
    }

    /// What the class would have to offer for what the pod, or its volume, asks for and no type has.
    fn of_class(self, problem: &Problem<'_>, enough: &[Vec<Side>]) -> Vec<ClassChange> {
        let catalog = &problem.catalogs[problem.pools[self.pool].catalog];
        let all = Bits::all(catalog.len());
        let zone = problem.names.known_key(labels::ZONE).and_then(|key| catalog.values(key, &all)).unwrap_or_default();
        let of = |set: SetId, is_asked: &dyn Fn(&Key) -> bool| {
            let asked = problem.sets.get(set).iter().filter(|(key, _)| is_asked(key));
            let missing = asked.filter_map(|(key, allowed)| {
                let known = catalog.values(*key, &all)?;
                let values = allowed.members().filter(|values| !values.is_empty() && values.iter().all(|value| !known.contains(value)))?;
                let value = problem.names.val_name(values[0]);
                ClassChange::of(problem.names.key_name(*key), value, zone.iter().map(|zone| problem.names.val_name(*zone)))
            });
            missing.collect::<Vec<ClassChange>>()
        };
        let goes = |key: &Key| enough.iter().flatten().any(|side| *side == Side::Pod(*key));
        let mut out = of(self.pod, &goes);
        for place in self.class.places.iter().filter(|_| self.with_volumes) {
            out.extend(of(place.set, &|_| true));
        }
        out.dedup();
        // EC2 boots Windows on amd64 alone.
        let arch = problem.names.known_key(labels::ARCH).into_iter();
        let archs = |set: SetId| arch.clone().filter_map(move |key| Some(problem.names.spell_vals(problem.sets.get(set).get(&key)?)));
        let is_amd64 = |set| archs(set).all(|arch| arch.has(&"amd64".to_owned()));
        let boots =
            |change: &ClassChange| *change != ClassChange::Os("windows".to_owned()) || is_amd64(self.template) && is_amd64(self.pod);
        out.retain(boots);
        out
    }
}

/// Which requirements of a NodePool that has no type could go so that it has one.
pub(crate) fn of_template(problem: &mut Problem<'_>, source: &NodePool, template: Template) -> Changes {
    let keys = droppable(problem, source, template.catalog, template.set);
    let Some(least) = least(&keys, |without| price_without(problem, template, without)) else { return Changes::default() };
    let price = price_without(problem, template, &least).map(Price::from_nanos);
    let set = problem.sets.get(template.set);
    let told = |key: &Key| {
        let values = set.get(key).map(|allowed| problem.names.spell_vals(allowed).text()).unwrap_or_default();
        (problem.names.key_name(*key).to_owned(), values)
    };
    let change = Change { drop: least.iter().map(told).collect(), price, ..Change::default() };
    Changes { enough: vec![change], ..Changes::default() }
}

/// The price of the cheapest type of a NodePool without some of its requirements.
fn price_without(problem: &mut Problem<'_>, template: Template, without: &[Key]) -> Option<u64> {
    let mut set = problem.sets.get(template.set).clone();
    without.iter().for_each(|key| drop(set.remove(key)));
    let set = problem.sets.id(set);
    let view = problem.view(template.catalog, set);
    view.cheapest(&view.usable).map(|(_, price)| price)
}

/// Those values of `meant` with which the NodePool has a type.
pub(crate) fn helpful(problem: &mut Problem<'_>, template: Template, meant: Vec<Meant>) -> Vec<Meant> {
    let keys: Vec<Key> = meant.iter().map(|one| problem.names.key(&one.key)).collect();
    let all: Vec<Vec<String>> = meant.iter().map(|one| one.values.clone()).collect();
    let mut has_types = |at: usize, value: &String| {
        let mut set = problem.sets.get(template.set).clone();
        for (n, key) in keys.iter().enumerate() {
            let values = if n == at { std::slice::from_ref(value) } else { &all[n] };
            set.replace(*key, Allowed::one_of(values.iter().map(|value| problem.names.val(value)).collect::<Vec<_>>()));
        }
        let set = problem.sets.id(set);
        !problem.view(template.catalog, set).usable.is_empty()
    };
    let mut out = Vec::new();
    for (at, one) in meant.into_iter().enumerate() {
        let values: Vec<String> = one.values.iter().filter(|value| has_types(at, value)).cloned().collect();
        out.push(Meant { values, ..one });
    }
    if out.iter().any(|one| one.values.is_empty()) { Vec::new() } else { out }
}

/// A smallest part of `all` that has a price, if all together have one: preferably one alone, the cheapest.
fn least<T: Copy + PartialEq>(all: &[T], mut price: impl FnMut(&[T]) -> Option<u64>) -> Option<Vec<T>> {
    if all.is_empty() || price(all).is_none() {
        return None;
    }
    let alone = all.iter().filter_map(|one| Some((price(&[*one])?, *one)));
    if let Some((_, one)) = alone.min_by_key(|(price, _)| *price) {
        return Some(vec![one]);
    }
    let mut left = all.to_vec();
    for one in all {
        let fewer: Vec<T> = left.iter().copied().filter(|other| other != one).collect();
        if price(&fewer).is_some() {
            left = fewer;
        }
    }
    Some(left)
}

/// The keys of a NodePool's requirements and labels that a user may drop, the ones that the most types do not meet first.
fn droppable(problem: &mut Problem<'_>, source: &NodePool, catalog: CatalogId, set: SetId) -> Vec<Key> {
    let class = &source.spec.template.spec.node_class_ref;
    let of_class = format!("{}/{}", class.group, class.kind.to_lowercase());
    let mut keys = by_effect(problem, catalog, set);
    keys.retain(|key| {
        let name = problem.names.key_name(*key);
        !OWN_LABELS.contains(&name) && name != of_class
    });
    keys
}

/// The keys of a set, but those by which a NodePool is named: the ones that the most types do not meet first.
fn by_effect(problem: &mut Problem<'_>, catalog: CatalogId, set: SetId) -> Vec<Key> {
    let entries: Vec<_> = problem.sets.get(set).iter().map(|(key, allowed)| (*key, allowed.clone().with_min_values(None))).collect();
    let names_pool = |key: &Key| [labels::NODE_POOL, labels::PROVISIONER_NAME].contains(&problem.names.key_name(*key));
    let mut counted: Vec<(usize, Key)> = entries
        .into_iter()
        .filter(|(key, _)| !names_pool(key))
        .map(|(key, allowed)| (problem.catalogs[catalog].compatible_count(key, &allowed), key))
        .collect();
    counted.sort_unstable();
    counted.into_iter().map(|(_, key)| key).take(KEYS_MAX).collect()
}
