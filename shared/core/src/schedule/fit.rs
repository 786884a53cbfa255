//! Whether a pod fits a machine, old or new, and what would become of the machine.

use super::bits::Bits;
use super::catalog::View;
use super::intern::{Key, SetId, Val, Vals};
use super::limits;
use super::meter;
use super::pod::{Class, Form};
use super::problem::{Machine, Problem};
use super::state::{MachineNow, State};
use super::topology::{Asked, Leave, Refused, Spot};
use super::{MinValuesPolicy, Options, ReservedMode};
use crate::pods::HostPort;
use crate::requirements::{Allowed, Operator};
use std::rc::Rc;

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum No {
    /// And never in this pass, whatever else is placed.
    ForGood,
    /// But counts may change.
    ForNow,
    /// Reserved capacity fits and is promised to others; `lost` when the claim would lose what it holds.
    Reserved { lost: bool },
}

/// What a new machine would become with the pod.
#[derive(Debug)]
pub(crate) struct Fit {
    pub(crate) set: SetId,
    pub(crate) types: Bits,
    /// Reservations that it would hold.
    pub(crate) held: Vec<usize>,
    /// `minValues` were lowered.
    pub(crate) relaxed: bool,
}

/// A new machine to test, in flight or only imagined.
#[derive(Clone, Copy)]
pub(crate) struct Target<'t> {
    pub(crate) pool: usize,
    pub(crate) set: SetId,
    pub(crate) types: &'t Bits,
    pub(crate) requests: &'t [i64],
    pub(crate) ports: &'t [HostPort],
    pub(crate) held: &'t [usize],
    /// Its number as a host; `None` while only imagined.
    pub(crate) host: Option<usize>,
}

/// So many combinations of domains are tried on one machine.
const MAX_TRIES: usize = 16;

/// How freely the solver chooses where the reference leaves it to chance or to later passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freedom {
    /// Try all domains that topology allows, not only those with the lowest count.
    pub(crate) all_domains: bool,
    /// Pin a repelling pod to one domain instead of blocking all that its machine may take.
    pub(crate) pin: bool,
    /// Hold one reservation per machine instead of all that it might use.
    pub(crate) one_reservation: bool,
    /// Give a machine only the smallest types that `minValues` allow, so that more machines fit the limits of a NodePool.
    pub(crate) narrow: bool,
    /// Of domains that are as good, take the one that the fewest offerings can serve, before others take what it needs.
    pub(crate) scarce: bool,
    /// Charge limits with so many of a claim's types, revised as it grows; 0: with all that it could be when opened.
    pub(crate) keep: usize,
}

impl Freedom {
    /// As the reference does it.
    pub(crate) const NONE: Self = Self { all_domains: false, pin: false, one_reservation: false, narrow: false, scarce: false, keep: 0 };
    /// Whatever places more.
    pub(crate) const FULL: Self =
        Self { all_domains: true, pin: true, one_reservation: true, narrow: false, scarce: false, keep: limits::GUARD };
}

/// Whether the pod fits a machine that exists; its requirements with the pod's if so.
pub(crate) fn machine(p: &mut Problem<'_>, st: &State, m: usize, class: &Class, form: &Form) -> Result<SetId, No> {
    let now = st.machine(p, m);
    p.meter.spend(meter::MACHINE);
    for (have, want) in now.remaining.iter().zip(&class.requests) {
        if *want > 0 && want > have {
            return Err(No::ForGood);
        }
    }
    p.meter.spend(meter::MACHINE_CLOSER);
    let machine = &p.machines[m];
    if !p.tolerated(form.tolerations, machine.taints) || (machine.rests && class.avoids_resting) || over_attach_limit(machine, now, class) {
        return Err(No::ForGood);
    }
    if class.ports.iter().any(|want| now.ports.iter().any(|taken| want.conflicts_with(taken))) {
        return Err(No::ForGood);
    }
    let (host, hostname, own) = (machine.host, machine.hostname, now.set);
    if !may_be_called(form.host.as_ref(), hostname) {
        return Err(No::ForGood);
    }
    let Some(merged) = p.merge(own, form.full, false) else { return Err(No::ForGood) };
    let mut no = No::ForGood;
    for at in 0..class.places.len().max(1) {
        let mut set = merged;
        if let Some(place) = class.places.get(at) {
            if !may_be_called(place.host.as_ref(), hostname) {
                continue;
            }
            let Some(narrowed) = p.merge(merged, place.set, false) else { continue };
            set = narrowed;
        }
        let mut leaves = Vec::new();
        match ask(p, st, form, Spot { host: Some(host), set }, &mut leaves) {
            Ok(()) => {}
            Err(refused) if refused.for_good => continue,
            Err(_) => {
                no = No::ForNow;
                continue;
            }
        }
        if let Some(set) = settle_on_machine(p, form, set, &leaves) {
            return Ok(set);
        }
        no = No::ForNow;
    }
    Err(no)
}

/// Narrows an existing machine's requirements to what topology leaves; nothing if it lacks a key.
fn settle_on_machine(p: &mut Problem<'_>, form: &Form, mut set: SetId, leaves: &[Leave]) -> Option<SetId> {
    for leave in leaves {
        if p.sets.get(set).get(&leave.key).is_none() {
            // Where the label is missing nobody is in the way. The reference sees that if the pod itself speaks of the label.
            if p.sets.get(form.full).get(&leave.key).is_some() && only_repelled(p, form, leave.key) {
                continue;
            }
            return None;
        }
        let allowed = Allowed::one_of(leave.vals[..if leave.pick { 1 } else { leave.vals.len() }].iter().copied());
        set = p.sets.narrow(set, leave.key, &allowed);
    }
    Some(set)
}

/// Whether all that a pod has to do with others over `key` is to stay apart.
fn only_repelled(p: &Problem<'_>, form: &Form, key: Key) -> bool {
    let groups = form.owned.iter().chain(&form.repelled_by).map(|g| &p.groups[g.0 as usize]);
    groups.filter(|group| group.key == key).all(|group| matches!(group.kind, super::topology::Kind::Anti | super::topology::Kind::Inverse))
}

fn over_attach_limit(machine: &Machine, now: &MachineNow, class: &Class) -> bool {
    if class.volumes.is_empty() || machine.attach_limits.is_empty() {
        return false;
    }
    machine.attach_limits.iter().any(|(driver, limit)| {
        let used = now.volumes.get(driver);
        let mine = class.volumes.iter().filter(|v| v.driver == *driver);
        let new = mine.clone().filter(|v| used.is_none_or(|u| !u.contains(&v.claim))).count();
        mine.count() > 0 && used.map_or(0, std::collections::BTreeSet::len) + new > *limit
    })
}

fn may_be_called(wish: Option<&Vals>, hostname: Val) -> bool {
    wish.is_none_or(|w| w.has(&hostname))
}

/// A new machine's host name is not known: it can be any, but no particular one.
pub(crate) fn may_be_new(wish: Option<&Vals>) -> bool {
    wish.is_none_or(|w| matches!(w.operator(), Operator::Exists | Operator::NotIn))
}

fn ask(p: &Problem<'_>, st: &State, form: &Form, spot: Spot, leaves: &mut Vec<Leave>) -> Result<(), Refused> {
    if form.owned.is_empty() && form.repelled_by.is_empty() {
        leaves.clear();
        return Ok(());
    }
    let domains = |g: &super::topology::GroupId| st.counts[g.0 as usize].domains.len();
    let groups = form.owned.iter().chain(&form.repelled_by);
    p.meter.spend(groups.map(|g| meter::GROUP + 2 * domains(g)).sum());
    Asked { groups: &p.groups, counts: &st.counts, sets: &p.sets }.ask(form, spot, leaves)
}

/// Whether the pod fits a new machine. `lower` allows lowering `minValues`.
pub(crate) fn claim(
    p: &mut Problem<'_>,
    st: &State,
    options: &Options,
    freedom: Freedom,
    t: Target<'_>,
    class: &Class,
    form: &Form,
) -> Result<Fit, No> {
    let mut fitting = Bits::default();
    p.meter.spend(meter::CLAIM + p.pools[t.pool].daemons.len() * meter::DAEMONS);
    room(p, &t, class, &mut fitting);
    if fitting.is_empty() {
        return Err(No::ForGood);
    }
    if !p.tolerated(form.tolerations, p.pools[t.pool].taints) || !may_be_new(form.host.as_ref()) {
        return Err(No::ForGood);
    }
    let Some(merged) = p.merge(t.set, form.full, true) else { return Err(disagrees(p, &t, form.full)) };
    let mut no = No::ForGood;
    for at in 0..class.places.len().max(1) {
        let mut set = merged;
        if let Some(place) = class.places.get(at) {
            let narrowed = p.merge(merged, place.set, true).filter(|_| may_be_new(place.host.as_ref()));
            let Some(narrowed) = narrowed else {
                if no == No::ForGood {
                    no = disagrees(p, &t, place.set);
                }
                continue;
            };
            set = narrowed;
        }
        match in_place(p, st, options, freedom, &t, form, set, &fitting) {
            Ok(fit) => return Ok(fit),
            Err(No::ForGood) => {}
            Err(other) => no = other,
        }
    }
    Err(no)
}

/// For how long requirements disagree: a machine to be asked for may yet get a label that its NodePool does not define.
fn disagrees(p: &Problem<'_>, t: &Target<'_>, asked: SetId) -> No {
    let may_come = |key: &Key| p.shunned.contains(key) && p.sets.get(t.set).get(key).is_none();
    let comes = t.host.is_some() && !p.shunned.is_empty() && p.sets.get(asked).iter().any(|(key, _)| may_come(key));
    if comes { No::ForNow } else { No::ForGood }
}

/// Types of the target with room for its pods, the new one, and their daemons, whose ports do not clash.
fn room(p: &Problem<'_>, t: &Target<'_>, class: &Class, out: &mut Bits) {
    let pool = &p.pools[t.pool];
    let catalog = &p.catalogs[pool.catalog];
    if class.ports.iter().any(|want| t.ports.iter().any(|taken| want.conflicts_with(taken))) {
        *out = Bits::none(catalog.len());
        return;
    }
    let mut need: [i64; 8] = [0; 8];
    let mut spill: Vec<i64> = Vec::new();
    let dims = t.requests.len();
    let need: &mut [i64] = if dims <= 8 {
        &mut need[..dims]
    } else {
        spill.resize(dims, 0);
        &mut spill
    };
    let one = pool.daemons.len() == 1;
    if !one {
        *out = Bits::none(catalog.len());
    }
    for group in &pool.daemons {
        if class.ports.iter().any(|want| group.ports.iter().any(|taken| want.conflicts_with(taken))) {
            if one {
                *out = Bits::none(catalog.len());
            }
            continue;
        }
        for (d, n) in need.iter_mut().enumerate() {
            *n = t.requests[d].saturating_add(class.requests[d]).saturating_add(group.overhead[d]);
        }
        if one {
            out.copy_from(t.types);
            catalog.keep_fitting(need, out);
        } else {
            let mut some = t.types.clone();
            some.keep(&group.types);
            catalog.keep_fitting(need, &mut some);
            out.unite(&some);
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "one step of claim(), which holds the loop over volume alternatives")]
fn in_place(
    p: &mut Problem<'_>,
    st: &State,
    options: &Options,
    freedom: Freedom,
    t: &Target<'_>,
    form: &Form,
    set: SetId,
    fitting: &Bits,
) -> Result<Fit, No> {
    let mut leaves = Vec::new();
    if let Err(refused) = ask(p, st, form, Spot { host: t.host, set }, &mut leaves) {
        return Err(if refused.for_good { No::ForGood } else { No::ForNow });
    }
    if leaves.is_empty() {
        return with_set(p, st, options, freedom, t, set, fitting);
    }
    for leave in &mut leaves {
        let defined = p.sets.get(set).get(&leave.key).is_some() || p.well_known.contains(&leave.key);
        if !defined {
            return Err(if t.host.is_some() && p.shunned.contains(&leave.key) { No::ForNow } else { No::ForGood });
        }
        if freedom.pin && !leave.pick && leave.vals.len() > 1 && owns_repulsion(p, form, leave.key) {
            leave.pick = true;
        }
    }
    let volatile = form.volatile;
    let mut no = No::ForGood;
    for narrowed in combinations(p, freedom, t, set, &leaves, fitting) {
        match with_set(p, st, options, freedom, t, narrowed, fitting) {
            Ok(fit) => return Ok(fit),
            Err(No::ForGood) if volatile => no = No::ForNow,
            Err(other) => no = other,
        }
    }
    Err(no)
}

/// `set` narrowed to each combination of domains that may be tried, in the order in which they are.
fn combinations(p: &mut Problem<'_>, freedom: Freedom, t: &Target<'_>, set: SetId, leaves: &[Leave], fitting: &Bits) -> Vec<SetId> {
    // The reference takes the first, or any that is as good; more freedom takes what comes later, too.
    let open = |leave: &Leave| match leave {
        Leave { pick: false, .. } => 1,
        _ if freedom.all_domains => leave.vals.len(),
        _ => leave.ties.clamp(1, leave.vals.len()),
    };
    let tries = leaves.iter().map(open).fold(1, usize::saturating_mul).min(MAX_TRIES);
    let mut out = Vec::with_capacity(tries);
    p.meter.spend(meter::NARROW * tries * leaves.len());
    for attempt in 0..tries {
        let (mut narrowed, mut rest, mut worse) = (set, attempt, 0);
        for leave in leaves {
            let allowed = if leave.pick {
                let at = rest % open(leave);
                rest /= open(leave);
                worse += usize::from(at >= leave.ties);
                Allowed::one(leave.vals[at])
            } else {
                Allowed::one_of(leave.vals.iter().copied())
            };
            narrowed = p.sets.narrow(narrowed, leave.key, &allowed);
        }
        out.push((worse, narrowed));
    }
    if freedom.scarce && out.len() > 1 {
        let catalog = p.pools[t.pool].catalog;
        out.sort_by_cached_key(|(worse, narrowed)| {
            let view = p.view(catalog, *narrowed);
            let kinds = view.kinds.iter().map(|k| &p.catalogs[catalog].kinds[*k]);
            (*worse, kinds.map(|kind| kind.available.shared(fitting)).sum::<usize>())
        });
    }
    out.into_iter().map(|(_, narrowed)| narrowed).collect()
}

fn owns_repulsion(p: &Problem<'_>, form: &Form, key: Key) -> bool {
    form.owned.iter().any(|g| {
        let group = &p.groups[g.0 as usize];
        group.kind == super::topology::Kind::Anti && group.key == key
    })
}

/// With all requirements settled: types, `minValues`, reservations.
fn with_set(
    p: &mut Problem<'_>,
    st: &State,
    options: &Options,
    freedom: Freedom,
    t: &Target<'_>,
    set: SetId,
    fitting: &Bits,
) -> Result<Fit, No> {
    let view = p.view(p.pools[t.pool].catalog, set);
    let mut types = fitting.clone();
    types.keep(&view.usable);
    if types.is_empty() {
        return Err(No::ForGood);
    }
    let mut fit = Fit { set, types, held: Vec::new(), relaxed: false };
    if !view.min_values.is_empty() {
        let lower = t.host.is_none() && options.min_values == MinValuesPolicy::BestEffort;
        settle_min_values(p, t, &view, lower, &mut fit)?;
    }
    if options.reserved_capacity && !p.reservations.ids.is_empty() {
        settle_reservations(p, st, options, freedom, t, &view, &mut fit)?;
    }
    if freedom.narrow && t.host.is_none() && fit.held.is_empty() {
        // What was settled so far holds of the types that stay, too.
        let view = p.view(p.pools[t.pool].catalog, fit.set);
        fit.types = limits::smallest(p, t.pool, &view, &fit.types);
    }
    Ok(fit)
}

fn settle_min_values(p: &mut Problem<'_>, t: &Target<'_>, view: &View, lower: bool, fit: &mut Fit) -> Result<(), No> {
    let catalog = &p.catalogs[p.pools[t.pool].catalog];
    let short: Vec<(Key, u32)> = view
        .min_values
        .iter()
        .map(|(key, wanted)| (*key, catalog.distinct(*key, &fit.types), *wanted))
        .filter(|(_, has, wanted)| has < wanted)
        .map(|(k, has, _)| (k, has))
        .collect();
    if short.is_empty() {
        return Ok(());
    }
    if !lower {
        return Err(No::ForGood);
    }
    let mut set = p.sets.get(fit.set).clone();
    for (key, has) in short {
        let lowered = set.get(&key).cloned().unwrap_or_else(Allowed::any).with_min_values(Some(has));
        set.replace(key, lowered);
    }
    fit.set = p.sets.id(set);
    fit.relaxed = true;
    Ok(())
}

fn settle_reservations(
    p: &Problem<'_>,
    st: &State,
    options: &Options,
    freedom: Freedom,
    t: &Target<'_>,
    view: &Rc<View>,
    fit: &mut Fit,
) -> Result<(), No> {
    let catalog = &p.catalogs[p.pools[t.pool].catalog];
    let mut some = false;
    for kind in view.kinds.iter().map(|k| &catalog.kinds[*k]) {
        let Some(id) = kind.reservation else { continue };
        if !kind.available.meets(&fit.types) {
            continue;
        }
        some = true;
        if (t.held.contains(&id) || st.reserved_left[id] > 0) && !fit.held.contains(&id) {
            fit.held.push(id);
        }
    }
    fit.held.sort_unstable();
    if freedom.one_reservation && fit.held.len() > 1 {
        let keep = fit.held.iter().copied().find(|id| t.held.contains(id)).unwrap_or(fit.held[0]);
        fit.held = vec![keep];
    }
    if options.reserved == ReservedMode::Strict && fit.held.is_empty() {
        if !t.held.is_empty() {
            return Err(No::Reserved { lost: true });
        }
        if some {
            return Err(No::Reserved { lost: false });
        }
    }
    Ok(())
}
