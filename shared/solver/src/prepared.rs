//! Many simulations of one moment: what if these machines were removed?
//!
//! A consolidation pass asks that of every machine. The problem is built once with all machines in place; a question takes some
//! of them out, puts their pods into the queue, and is solved. The answers equal those of [`super::solve()`].

use super::assemble::{self, ReusableProblem};
use super::bits::Bits;
use super::ids::{DimId, GroupId, HostId, Id as _, IdVec, MachineId};
use super::intern::Val;
use super::packing;
use super::pod::Entry;
use super::pods_to_place::Rejected;
use super::problem::Problem;
use super::solve::plan_without_pools;
use super::topology::Counts;
use super::topology_membership::{CountedIn, TopologyMembership};
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::scheduling::{Input, Options, Packing, Plan};

/// A problem from which each question is derived.
pub struct Prepared<'a> {
    input: &'a Input<'a>,
    options: &'a Options,
    problem: Problem<'a>,
    membership: TopologyMembership,
    /// Pods to place in every question, in queue order.
    always: Vec<Ranked>,
    /// By machine: its pods that would have to move, in queue order.
    moving: IdVec<HostId, Vec<Ranked>>,
    rejected: Vec<Rejected>,
    /// Counts with every pod where it is.
    counts: IdVec<GroupId, Counts>,
    /// By NodePool: what its limits leave next to all machines.
    limits: Vec<PoolLimits>,
    /// By name: position in the input.
    host_of: BTreeMap<&'a str, HostId>,
    /// By position in the input: position among the machines.
    machine_of: IdVec<HostId, Option<MachineId>>,
    /// By position among the machines: whether it accepts only pending pods when recent machines are spared.
    spared: IdVec<MachineId, bool>,
    /// How the problem's machines are marked now.
    recent: RecentNodes,
}

/// What becomes of machines whose own pods changed recently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecentNodes {
    /// They accept moving pods like all others.
    Accept,
    /// They accept only pods that are pending anyway.
    Spare,
}

/// What the limits of a NodePool leave; `None` where there is no limit.
struct PoolLimits {
    resources: IdVec<DimId, Option<i64>>,
    nodes: Option<i64>,
}

/// An entry with its position in the queue of all pods.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    rank: usize,
    entry: Entry,
}

impl<'a> Prepared<'a> {
    /// `options` are those of a simulation that spares recent machines; its candidates are ignored. `None` if only a solve from
    /// scratch gives the right answer.
    pub fn new(input: &'a Input<'a>, options: &'a Options) -> Option<Self> {
        // Other packings compare the pods of the question with all others.
        if options.packing != Packing::Reference || options.work_budget.is_some() {
            return None;
        }
        // A terminating pod with anti-affinity of its own repels others: undoing that is not worth the code.
        let repels = |pod: &whittle_api::k8s::Pod| pod.spec.affinity.as_ref().is_some_and(|affinity| affinity.pod_anti_affinity.is_some());
        if input.objects.pods.iter().any(|pod| pod.metadata.is_deleting() && repels(pod)) {
            return None;
        }
        let ReusableProblem { problem, simulated_from, rejected, membership } = assemble::build_reusable(input, options);
        let mut always = Vec::new();
        let mut moving: IdVec<HostId, Vec<Ranked>> = vec![Vec::new(); input.nodes.len()].into();
        for (rank, entry) in problem.queue.iter().enumerate() {
            let ranked = Ranked { rank, entry: *entry };
            simulated_from[entry.pod].map_or(&mut always, |host| &mut moving[host]).push(ranked);
        }
        let mut machine_of = IdVec::filled(None, &moving);
        for (id, machine) in problem.machines.enumerate() {
            machine_of[machine.host] = Some(id);
        }
        let mut out = Self {
            input,
            options,
            membership,
            always,
            moving,
            rejected,
            counts: problem.counts.clone(),
            limits: problem.pools.iter().map(|pool| PoolLimits { resources: pool.limits.clone(), nodes: pool.node_limit }).collect(),
            host_of: input.nodes.iter().enumerate().map(|(at, node)| (node.name(), HostId::at(at))).collect(),
            machine_of,
            spared: problem.machines.iter().map(|machine| machine.spared).collect(),
            recent: RecentNodes::Spare,
            problem,
        };
        for host in out.moving.ids() {
            for (group, counted_in) in out.counted_on(host) {
                match counted_in {
                    CountedIn::Host => out.counts[group].hosts.add(host, 1),
                    CountedIn::Domain(val) => out.counts[group].add(val, 1, &out.problem.names),
                }
            }
        }
        Some(out)
    }

    /// Whether the question can be asked: all its machines are known and are not being deleted already.
    #[must_use]
    pub fn can_answer(&self, candidates: &BTreeSet<String>) -> bool {
        candidates.iter().all(|name| self.host_of.get(name.as_str()).is_some_and(|host| self.membership.offered(*host)))
    }

    /// The plan without `candidates`, as a solve from scratch would find it.
    pub fn without(&mut self, candidates: &BTreeSet<String>, recent: RecentNodes) -> Plan {
        let hosts: Vec<HostId> = candidates.iter().filter_map(|name| self.host_of.get(name.as_str()).copied()).collect();
        let mut queue: Vec<Ranked> = self.always.clone();
        queue.extend(hosts.iter().flat_map(|host| &self.moving[*host]));
        queue.sort_unstable_by_key(|ranked| ranked.rank);
        self.problem.queue = queue.into_iter().map(|ranked| ranked.entry).collect();
        let rejected = self.rejected.iter().filter(|rejected| rejected.simulated_from.is_none_or(|host| hosts.contains(&host)));
        self.problem.refused = rejected.map(|rejected| rejected.left_out.clone()).collect();
        self.problem.excluded = Bits::none(self.problem.machines.len());
        for machine in hosts.iter().filter_map(|host| self.machine_of[*host]) {
            self.problem.excluded.insert(machine);
        }
        if self.recent != recent {
            self.recent = recent;
            let machines = self.problem.machines.iter_mut().zip(&self.spared);
            machines.for_each(|(machine, spared)| machine.spared = *spared && recent == RecentNodes::Spare);
        }
        self.problem.counts = self.counts_without(&hosts);
        self.set_limits_without(&hosts);
        if !self.problem.any_pool {
            return plan_without_pools(&self.problem);
        }
        packing::best(&mut self.problem, self.options)
    }

    /// The groups that count a moving pod of the machine, once for each pod.
    fn counted_on(&self, host: HostId) -> Vec<(GroupId, CountedIn)> {
        let mut out = Vec::new();
        for ranked in &self.moving[host] {
            let is_terminating = self.problem.pods[ranked.entry.pod].metadata.is_deleting();
            let class = &self.problem.classes[ranked.entry.class];
            let groups = class.counted_by.iter().chain(&class.repels);
            for id in groups.filter(|id| !is_terminating || self.problem.groups[**id].counts_terminating) {
                let counted_in = self.membership.counted_in(*id, &self.problem.groups[*id], host, &self.problem.sets);
                out.extend(counted_in.map(|counted_in| (*id, counted_in)));
            }
        }
        out
    }

    fn counts_without(&self, hosts: &[HostId]) -> IdVec<GroupId, Counts> {
        let mut out = self.counts.clone();
        for &host in hosts {
            for (group, counted_in) in self.counted_on(host) {
                match counted_in {
                    CountedIn::Host => out[group].hosts.take(host),
                    CountedIn::Domain(val) => out[group].take(val),
                }
            }
        }
        // A domain that only these machines provide, and in which no pod remains, is no longer a domain.
        for (at, group) in self.problem.groups.enumerate().filter(|(_, group)| !group.by_host) {
            let mut leaving: BTreeMap<Val, u32> = BTreeMap::new();
            for &host in hosts {
                if let Some(CountedIn::Domain(val)) = self.membership.counted_in(at, group, host, &self.problem.sets) {
                    *leaving.entry(val).or_default() += 1;
                }
            }
            for (val, count) in leaving {
                if !self.membership.has_others(at, val, count) {
                    out[at].vacate(val);
                }
                if self.membership.provided_only_by(at, val, count) {
                    out[at].forget(val);
                }
            }
        }
        out
    }

    /// The limits of NodePools without the removed machines.
    fn set_limits_without(&mut self, hosts: &[HostId]) {
        for (pool, PoolLimits { resources, nodes }) in self.problem.pools.iter_mut().zip(&self.limits) {
            pool.limits.clone_from(resources);
            pool.node_limit = *nodes;
            if nodes.is_none() && resources.iter().all(Option::is_none) {
                continue;
            }
            let own = |host: &&HostId| self.input.nodes[host.position()].limited_by() == Some(pool.source.metadata.name.as_str());
            for host in hosts.iter().filter(own) {
                let capacity = self.input.nodes[host.position()].capacity();
                for (left, name) in pool.limits.iter_mut().zip(&self.problem.dims.names) {
                    *left = left.map(|left| left.saturating_add(capacity.get(name).milli()));
                }
                pool.node_limit = pool.node_limit.map(|left| left.saturating_add(capacity.get("nodes").milli()));
            }
        }
    }
}
