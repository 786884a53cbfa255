//! What a solve has decided so far.

use super::bits::Bits;
use super::hash::Map;
use super::ids::{ClaimId, DimId, GroupId, HostId, Id as _, IdVec, MachineId, PodId, PoolId, RelaxationId, ReservationId, SetId, TaintsId};
use super::intern::Val;
use super::meter;
use super::pod::Class;
use super::problem::{MachineNow, Problem};
use super::topology::{Counts, Group, GroupKind};
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::pods::HostPort;
use whittle_model::requirements::Allowed;

/// What a claim would become with the pod.
#[derive(Debug)]
pub(crate) struct Fit {
    pub(crate) set: SetId,
    pub(crate) types: Bits,
    /// Reservations that it would hold.
    pub(crate) reservations: Vec<ReservationId>,
    /// `minValues` was lowered.
    pub(crate) relaxed: bool,
}

/// A NodeClaim to be created.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) pool: PoolId,
    pub(crate) set: SetId,
    pub(crate) types: Bits,
    pub(crate) requests: IdVec<DimId, i64>,
    pub(crate) ports: Vec<HostPort>,
    /// The claims of its pods' EBS volumes.
    pub(crate) ebs_volumes: BTreeSet<String>,
    pub(crate) reservations: Vec<ReservationId>,
    /// `minValues` was lowered when it was opened.
    pub(crate) relaxed: bool,
    /// The resources that its NodePool's limits are charged with, if that amount is revised as the claim gets pods.
    pub(crate) charged: IdVec<DimId, i64>,
    pub(crate) pods: Vec<PodId>,
}

/// Refusals that hold for the rest of the pass, for one relaxation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusalCache {
    pub(crate) machines: Bits<MachineId>,
    pub(crate) claims: Bits<ClaimId>,
    pub(crate) pools: Bits<PoolId>,
}

/// The claims with certain requirements.
#[derive(Clone, Debug)]
pub(crate) struct ClaimsOfSet {
    pub(crate) set: SetId,
    pub(crate) claims: Bits<ClaimId>,
}

/// A machine on which something was placed.
#[derive(Clone, Debug)]
struct ChangedMachine {
    machine: MachineId,
    now: MachineNow,
}

/// The claims with a certain number of pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodCount {
    /// How many they are.
    pub(crate) count: usize,
    pub(crate) claims: Bits<ClaimId>,
}

/// All decisions so far, with the resulting counts.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Machines on which something was placed: in most questions, few of a large cluster.
    changed: Vec<ChangedMachine>,
    /// By machine: its position in `changed` plus one, or zero.
    change_of: IdVec<MachineId, u32>,
    pub(crate) claims: IdVec<ClaimId, Claim>,
    /// By number of pods: the claims that have that many.
    pub(crate) by_pod_count: Vec<PodCount>,
    /// Claims by their requirements.
    pub(crate) by_set: Vec<ClaimsOfSet>,
    /// All claims.
    pub(crate) all: Bits<ClaimId>,
    pub(crate) limits: IdVec<PoolId, IdVec<DimId, Option<i64>>>,
    pub(crate) node_limits: IdVec<PoolId, Option<i64>>,
    pub(crate) counts: IdVec<GroupId, Counts>,
    pub(crate) reserved_left: IdVec<ReservationId, i64>,
    pub(crate) refusals: Map<RelaxationId, RefusalCache>,
    /// By pod: the relaxation with which it was placed, unless that is the first.
    relaxation_of: Map<PodId, u16>,
    /// By claim that one pod at a time may use: the pod that has a place and is to use it.
    users: BTreeMap<String, PodId>,
    /// Incremented by every placement.
    pub(crate) version: u64,
}

impl State {
    pub(crate) fn start(problem: &Problem<'_>) -> Self {
        Self {
            changed: Vec::new(),
            change_of: IdVec::filled(0, &problem.machines),
            claims: IdVec::new(),
            by_pod_count: Vec::new(),
            by_set: Vec::new(),
            all: Bits::default(),
            limits: problem.pools.iter().map(|pool| pool.limits.clone()).collect(),
            node_limits: problem.pools.iter().map(|pool| pool.node_limit).collect(),
            counts: problem.counts.clone(),
            reserved_left: problem.reservations.left.clone(),
            refusals: Map::default(),
            relaxation_of: Map::default(),
            users: BTreeMap::new(),
            version: 0,
        }
    }

    /// An existing machine in its current state.
    pub(crate) fn machine<'s>(&'s self, problem: &'s Problem<'_>, machine: MachineId) -> &'s MachineNow {
        match self.change_of[machine] {
            0 => &problem.machines[machine].start,
            at => &self.changed[at as usize - 1].now,
        }
    }

    /// Existing machines that got pods, ascending.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (MachineId, &MachineNow)> {
        let mut filled: Vec<(MachineId, &MachineNow)> = self.changed.iter().map(|changed| (changed.machine, &changed.now)).collect();
        filled.retain(|(_, now)| !now.pods.is_empty());
        filled.sort_unstable_by_key(|(machine, _)| *machine);
        filled.into_iter()
    }

    /// The relaxation of its class with which a pod was placed.
    pub(crate) fn relaxation_of(&self, pod: PodId) -> usize {
        self.relaxation_of.get(&pod).copied().unwrap_or(0).into()
    }

    /// Records the relaxation with which the pod was placed.
    pub(crate) fn set_relaxation(&mut self, pod: PodId, n: usize) {
        if n > 0 {
            self.relaxation_of.insert(pod, u16::try_from(n).expect("few relaxations"));
        } else {
            self.relaxation_of.remove(&pod);
        }
    }

    /// Places a pod on an existing machine.
    pub(crate) fn put_on_machine(&mut self, problem: &Problem<'_>, machine: MachineId, set: SetId, class: &Class, pod: PodId) {
        if self.change_of[machine] == 0 {
            self.changed.push(ChangedMachine { machine, now: problem.machines[machine].start.clone() });
            self.change_of[machine] = u32::try_from(self.changed.len()).expect("fewer than 2^32 machines");
        }
        let now = &mut self.changed[self.change_of[machine] as usize - 1].now;
        for (have, want) in now.remaining.iter_mut().zip(&class.requests) {
            *have -= want;
        }
        now.set = set;
        now.ports.extend(class.ports.iter().cloned());
        for volume in &class.volumes {
            now.volumes.entry(volume.driver.clone()).or_default().insert(volume.claim.clone());
        }
        now.pods.push(pod);
        self.give_claims(class, pod);
        let machine = &problem.machines[machine];
        self.record(problem, class, set, machine.host, machine.taints);
    }

    /// Opens an empty claim and returns its number.
    pub(crate) fn open_claim(&mut self, problem: &Problem<'_>, pool: PoolId) -> ClaimId {
        self.claims.push(Claim {
            pool,
            set: problem.pools[pool].set,
            types: Bits::default(),
            requests: IdVec::filled(0, &problem.dims.names),
            ports: Vec::new(),
            ebs_volumes: BTreeSet::new(),
            reservations: Vec::new(),
            relaxed: false,
            charged: IdVec::new(),
            pods: Vec::new(),
        })
    }

    /// Charges the NodePool's limits with the largest type that the claim may become.
    pub(crate) fn charge(&mut self, problem: &Problem<'_>, claim: ClaimId) {
        let claim = &self.claims[claim];
        let catalog = &problem.catalogs[problem.pools[claim.pool].catalog];
        for (dim, limit) in self.limits[claim.pool].enumerate_mut() {
            if let Some(left) = limit {
                *left -= catalog.largest(dim, &claim.types);
            }
        }
    }

    /// Counts an opened claim against its NodePool's limit of nodes.
    pub(crate) fn count_node(&mut self, pool: PoolId) {
        if let Some(left) = &mut self.node_limits[pool] {
            *left -= 1000;
        }
    }

    /// Places a pod on an open claim.
    pub(crate) fn put_on_claim(&mut self, problem: &Problem<'_>, at: ClaimId, fit: Fit, class: &Class, pod: PodId) {
        for id in &fit.reservations {
            if !self.claims[at].reservations.contains(id) {
                self.reserved_left[*id] -= 1;
            }
        }
        for id in &self.claims[at].reservations {
            if !fit.reservations.contains(id) {
                self.reserved_left[*id] += 1;
            }
        }
        self.file_under(at, fit.set);
        let claim = &mut self.claims[at];
        claim.set = fit.set;
        claim.types = fit.types;
        claim.reservations = fit.reservations;
        claim.relaxed |= fit.relaxed;
        for (sum, more) in claim.requests.iter_mut().zip(&class.requests) {
            *sum = sum.saturating_add(*more);
        }
        claim.ports.extend(class.ports.iter().cloned());
        claim.ebs_volumes.extend(class.volumes.iter().filter(|volume| volume.is_ebs()).map(|volume| volume.claim.clone()));
        claim.pods.push(pod);
        let (count, set, taints) = (claim.pods.len(), claim.set, problem.pools[claim.pool].taints);
        if self.by_pod_count.len() <= count {
            self.by_pod_count.resize(count + 1, PodCount::default());
        }
        if count > 1 {
            let before = &mut self.by_pod_count[count - 1];
            before.count -= 1;
            before.claims.remove(at);
        }
        let now = &mut self.by_pod_count[count];
        now.count += 1;
        now.claims.grow(at.position() + 1);
        now.claims.insert(at);
        self.give_claims(class, pod);
        self.record(problem, class, set, problem.host_of_claim(at), taints);
    }

    /// A claim of the class that one pod at a time may use, and the pod that is to use it.
    pub(crate) fn claim_user(&self, class: &Class) -> Option<(&str, PodId)> {
        let mut taken = class.one_pod_claims.iter().filter_map(|claim| self.users.get_key_value(claim));
        taken.next().map(|(claim, pod)| (claim.as_str(), *pod))
    }

    /// Records the user of claims that one pod at a time may use.
    fn give_claims(&mut self, class: &Class, pod: PodId) {
        for claim in &class.one_pod_claims {
            self.users.entry(claim.clone()).or_insert(pod);
        }
    }

    /// Moves a claim to those with requirements `set`.
    fn file_under(&mut self, at: ClaimId, set: SetId) {
        let before = self.claims[at].set;
        if before == set && !self.claims[at].pods.is_empty() {
            return;
        }
        if let Some(known) = self.by_set.iter_mut().find(|known| known.set == before)
            && known.claims.has(at)
        {
            known.claims.remove(at);
        }
        let slot = self.by_set.iter().position(|known| known.set == set).unwrap_or_else(|| {
            self.by_set.push(ClaimsOfSet { set, claims: Bits::default() });
            self.by_set.len() - 1
        });
        self.by_set[slot].claims.grow(at.position() + 1);
        self.by_set[slot].claims.insert(at);
        self.all.grow(at.position() + 1);
        self.all.insert(at);
    }

    /// Removes placed pods again. Claims without pods are dropped, which renumbers the others.
    pub(crate) fn unplace(&mut self, problem: &Problem<'_>, pods: &BTreeSet<PodId>) {
        let class_of = |pod: PodId| std::rc::Rc::clone(&problem.classes[problem.class_of[pod]]);
        self.users.retain(|_, pod| !pods.contains(pod));
        let mut less = Vec::new();
        for ChangedMachine { machine, now } in &mut self.changed {
            let (going, staying) = now.pods.iter().partition(|pod| pods.contains(pod));
            now.pods = staying;
            for class in Vec::<PodId>::into_iter(going).map(class_of) {
                now.remaining.iter_mut().zip(&class.requests).for_each(|(have, gone)| *have += gone);
                let machine = &problem.machines[*machine];
                less.push((class, (now.set, machine.taints), machine.host));
            }
        }
        less.into_iter().for_each(|(class, on, host)| self.uncount(problem, &class, on, host));
        for at in self.claims.ids() {
            let (going, staying) = self.claims[at].pods.iter().partition(|pod| pods.contains(pod));
            self.claims[at].pods = staying;
            for class in Vec::<PodId>::into_iter(going).map(class_of) {
                self.claims[at].requests.iter_mut().zip(&class.requests).for_each(|(sum, less)| *sum -= less);
                let Claim { pool, set, .. } = self.claims[at];
                self.uncount(problem, &class, (set, problem.pools[pool].taints), problem.host_of_claim(at));
            }
            if self.claims[at].pods.is_empty() {
                self.release_claim(at);
            }
        }
        self.claims.retain(|claim| !claim.pods.is_empty());
    }

    /// Returns what an opened claim is charged with.
    fn release_claim(&mut self, at: ClaimId) {
        let Claim { pool, reservations, charged, .. } = &self.claims[at];
        reservations.iter().for_each(|id| self.reserved_left[*id] += 1);
        for (left, back) in self.limits[*pool].iter_mut().zip(charged) {
            *left = left.map(|n| n.saturating_add(*back));
        }
        if let Some(left) = &mut self.node_limits[*pool] {
            *left += 1000;
        }
    }

    /// Undoes [`State::record`], as far as the machine's requirements still tell the domain.
    fn uncount(&mut self, problem: &Problem<'_>, class: &Class, (set, taints): (SetId, TaintsId), host: HostId) {
        for id in class.counted_by.iter().chain(&class.repels) {
            let (group, counts) = (&problem.groups[*id], &mut self.counts[*id]);
            if !is_counted(problem, group, (set, taints), host) {
                continue;
            }
            if group.by_host {
                counts.hosts.take(host);
                continue;
            }
            let allowed = problem.sets.get(set).get(&group.key);
            match group.kind {
                GroupKind::Spread { .. } | GroupKind::Affinity => {
                    allowed.and_then(|a| a.single()).into_iter().for_each(|val| counts.take(*val))
                }
                GroupKind::Anti | GroupKind::Inverse => kept_apart(problem, group, set, host).iter().for_each(|val| counts.take(*val)),
            }
        }
    }

    /// Counts a placed pod in every group that concerns it.
    fn record(&mut self, problem: &Problem<'_>, class: &Class, set: SetId, host: HostId, taints: TaintsId) {
        self.version += 1;
        let reqs = problem.sets.get(set);
        for id in class.counted_by.iter().chain(&class.repels) {
            let group = &problem.groups[*id];
            problem.meter.spend(meter::COUNT + meter::FILTER * group.filter.any_of.len());
            if !is_counted(problem, group, (set, taints), host) {
                continue;
            }
            let counts = &mut self.counts[*id];
            if group.by_host {
                counts.hosts.add(host, 1);
                continue;
            }
            match group.kind {
                GroupKind::Spread { .. } | GroupKind::Affinity => {
                    if let Some(only) = reqs.get(&group.key).and_then(Allowed::single) {
                        counts.add(*only, 1, &problem.names);
                    }
                }
                GroupKind::Anti | GroupKind::Inverse => {
                    for v in kept_apart(problem, group, set, host) {
                        counts.add(*v, 1, &problem.names);
                    }
                }
            }
        }
    }
}

/// The domains in which a pod on a machine with requirements `set` keeps others away: all that it may get. An existing machine without the
/// label, whose launch still decides, may get those that its claim lists; preferences do not heed that.
fn kept_apart<'p>(problem: &'p Problem<'_>, group: &Group, set: SetId, host: HostId) -> &'p [Val] {
    let members = |of: SetId| problem.sets.get(of).get(&group.key).and_then(Allowed::members);
    let open = || problem.open.get(host).copied().flatten().filter(|_| group.keeps_apart()).and_then(members);
    members(set).or_else(open).unwrap_or_default()
}

/// Whether the group counts the pods of a machine with these requirements and taints.
fn is_counted(problem: &Problem<'_>, group: &Group, on: (SetId, TaintsId), host: HostId) -> bool {
    let is_new = problem.state_nodes.len() <= host.position();
    group.filter.counts(&problem.sets, &problem.tolerance, on, |key| is_new && problem.well_known.contains(key))
}
