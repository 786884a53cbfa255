//! Which changes of requirements would give a pod a machine of a NodePool. Each is tried; and none asks for more than it must.

use super::alone::{self, DaemonFit};
use super::bits::Bits;
use super::ids::{CatalogId, Key, PoolId, SetId};
use super::intern::{LabelsOf, Set};
use super::pod::{Class, Relaxation, allows_unnamed_host};
use super::pools::{Pool, Template};
use super::problem::Problem;
use super::state::State;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::requirements::Allowed;
use whittle_model::scheduling::{Change, Changes, ClassChange, Meant};

/// Of so many keys on each side it is tried what would be without them: those that the most types do not meet.
const KEYS_MAX: usize = 12;

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

/// A key that may go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Pod(Key),
    NodePool(Key),
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
        self.changes_for(problem, state, all)
    }

    fn changes_for(self, problem: &mut Problem<'_>, state: &State, room: Bits) -> (Changes, Vec<Self>) {
        let (pool, pod) = self.sides(problem);
        let mut enough: Vec<Vec<Side>> = [&pool, &pod].into_iter().filter_map(|sides| self.least(problem, state, &room, sides)).collect();
        if enough.is_empty() {
            enough.extend(self.least(problem, state, &room, &[pool, pod].concat()));
        }
        let of_class = self.of_class(problem, &enough);
        let mut after: Vec<Self> = enough.iter().map(|sides| self.without(problem, sides)).collect();
        let enough = enough.iter().map(|sides| self.change(problem, sides)).collect();
        let elsewhere = self.without_volumes();
        let another_volume = self.has_volumes() && elsewhere.takes(problem, state, &room);
        after.extend(another_volume.then_some(elsewhere));
        (Changes { enough, of_class, waits: self.waits(problem, state, &room), another_volume, other_domain: false }, after)
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
    fn least(self, problem: &mut Problem<'_>, state: &State, room: &Bits, sides: &[Side]) -> Option<Vec<Side>> {
        least(sides, |sides| {
            let changed = self.without(problem, sides);
            changed.takes(problem, state, room)
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
        places.into_iter().flatten().filter_map(|set| alone::in_topology(problem, state, self.relaxation, set).ok()).collect()
    }

    /// Whether a type with room for the pod meets everything and is to be had.
    pub(crate) fn takes(self, problem: &mut Problem<'_>, state: &State, room: &Bits) -> bool {
        let at = problem.pools[self.pool].catalog;
        self.sets(problem, state).into_iter().any(|set| problem.view(at, set).usable.intersects(room))
    }

    /// Whether a type would, once EC2 has it again.
    fn waits(self, problem: &mut Problem<'_>, state: &State, room: &Bits) -> bool {
        let at = problem.pools[self.pool].catalog;
        self.sets(problem, state).into_iter().any(|set| {
            let view = problem.view(at, set);
            let mut would = view.met.clone();
            would.intersect_with(room);
            let kinds = view.kinds.iter().map(|kind| &problem.catalogs[at].kinds[*kind]);
            // Of a reservation nobody knows when it has room.
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
        out
    }
}

/// Which requirements of a NodePool that has no type could go so that it has one.
pub(crate) fn of_template(problem: &mut Problem<'_>, source: &NodePool, template: Template) -> Changes {
    let keys = droppable(problem, source, template.catalog, template.set);
    let has_types = |without: &[Key]| {
        let mut set = problem.sets.get(template.set).clone();
        without.iter().for_each(|key| drop(set.remove(key)));
        let set = problem.sets.id(set);
        !problem.view(template.catalog, set).usable.is_empty()
    };
    let Some(least) = least(&keys, has_types) else { return Changes::default() };
    let set = problem.sets.get(template.set);
    let told = |key: &Key| {
        let values = set.get(key).map(|allowed| problem.names.spell_vals(allowed).text()).unwrap_or_default();
        (problem.names.key_name(*key).to_owned(), values)
    };
    let change = Change { drop: least.iter().map(told).collect(), ..Change::default() };
    Changes { enough: vec![change], ..Changes::default() }
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

/// A smallest part of `all` that is enough, if all together are: preferably one alone.
fn least<T: Copy + PartialEq>(all: &[T], mut enough: impl FnMut(&[T]) -> bool) -> Option<Vec<T>> {
    if all.is_empty() || !enough(all) {
        return None;
    }
    if let Some(one) = all.iter().find(|one| enough(&[**one])) {
        return Some(vec![*one]);
    }
    let mut left = all.to_vec();
    for one in all {
        let fewer: Vec<T> = left.iter().copied().filter(|other| other != one).collect();
        if enough(&fewer) {
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
