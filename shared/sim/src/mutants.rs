//! Deliberately broken variants: each removes one safeguard, and the checkers must notice.
//!
//! None of them is in the product. Some are in the ports, where a broken function and a broken adapter look the same; the
//! others are the safeguards of handlers, which tests can switch off one at a time (ADR 0027).

use crate::world::World;
use whittle_ports::Safeguard;

/// One missing safeguard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// A claim is created under any lease.
    FencingUnchecked,
    /// A lease is acquired although another holds it.
    LeaseIgnored,
    /// A claim is written over any revision.
    RevisionIgnored,
    /// Claims are listed from a lagging index.
    ClaimListingStale,
    /// The token of a fleet call is ignored.
    ClientTokenIgnored,
    /// Pods are evicted without respecting their budgets.
    EvictionBudgetsIgnored,
    /// A pod whose eviction was refused is deleted instead.
    RefusedPodsDeleted,
    /// Finalizers are removed as soon as EC2 was asked to terminate the machine.
    FinalizersRemovedEarly,
    /// An instance without claim is terminated at first sight.
    OrphanAtFirstSight,
    /// The disruption budgets of pools are ignored.
    PoolBudgetsIgnored,
    /// Pods of terminating nodes are planned for only once they are pending.
    ReplacementPlannedLate,
    /// A machine that is shutting down counts as ended.
    TerminationUnconfirmed,
    /// A notice of EC2 is acknowledged as soon as it is received.
    AcknowledgedEarly,
    /// A single read without a NodePool, or with a standalone NodeClaim, is trusted.
    SingleReadTrusted,
    /// Every machine costs many times more than the one before.
    PriceIgnored,
    /// Unreadable objects are omitted from answers.
    UnreadableDropped,
    /// What lists do not contain counts as deleted, without asking the API server by name.
    AbsenceUnverified,
    /// A handler lacks one of its safeguards.
    Without(Safeguard),
}

impl Mutant {
    /// Mutants of the ports.
    const AT_PORTS: [Self; 17] = [
        Self::FencingUnchecked,
        Self::LeaseIgnored,
        Self::RevisionIgnored,
        Self::ClaimListingStale,
        Self::ClientTokenIgnored,
        Self::EvictionBudgetsIgnored,
        Self::RefusedPodsDeleted,
        Self::FinalizersRemovedEarly,
        Self::OrphanAtFirstSight,
        Self::PoolBudgetsIgnored,
        Self::ReplacementPlannedLate,
        Self::TerminationUnconfirmed,
        Self::AcknowledgedEarly,
        Self::SingleReadTrusted,
        Self::PriceIgnored,
        Self::UnreadableDropped,
        Self::AbsenceUnverified,
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::AT_PORTS.into_iter().chain(Safeguard::ALL.iter().copied().map(Self::Without))
    }

    /// The safeguard, in a sentence.
    pub const fn text(self) -> &'static str {
        match self {
            Self::FencingUnchecked => "table: a claim is created only under the newest lease",
            Self::LeaseIgnored => "table: a lease has one holder at a time",
            Self::RevisionIgnored => "table: a claim is written only over the revision that was read",
            Self::ClaimListingStale => "table: listings of claims are consistent",
            Self::ClientTokenIgnored => "EC2: a repeated fleet call returns the same machines",
            Self::EvictionBudgetsIgnored => "eviction API: PodDisruptionBudgets are enforced",
            Self::RefusedPodsDeleted => "eviction API: a pod whose eviction was refused is not deleted",
            Self::FinalizersRemovedEarly => "terminate: finalizers are removed after the machine is terminated",
            Self::OrphanAtFirstSight => "sweep: a machine without a claim needs two sightings",
            Self::PoolBudgetsIgnored => "consolidate: disruption budgets of pools are respected",
            Self::ReplacementPlannedLate => "schedule: pods of terminating nodes are planned in advance",
            Self::TerminationUnconfirmed => "terminate: a machine that is shutting down is not terminated yet",
            Self::AcknowledgedEarly => "queue: a message is acknowledged after it was processed",
            Self::SingleReadTrusted => "sweep: a missing NodePool and a standalone NodeClaim need two sightings",
            Self::PriceIgnored => "consolidate: a replacement costs less",
            Self::UnreadableDropped => "API server: unreadable objects count as existing",
            Self::AbsenceUnverified => "sweep, refresh: what a list lacks is read by name",
            Self::Without(safeguard) => safeguard.text(),
        }
    }

    /// Switches the safeguards of handlers on this thread: all on, except that of a mutant.
    pub fn switch(mutant: Option<Self>) {
        Safeguard::switch_off(match mutant {
            Some(Self::Without(safeguard)) => Some(safeguard),
            _ => None,
        });
    }
}

impl World {
    /// Breaks this world.
    pub fn mutate(&mut self, mutant: Mutant) {
        self.mutant = Some(mutant);
        match mutant {
            Mutant::FencingUnchecked => self.store.ignore_fencing = true,
            Mutant::ClientTokenIgnored => self.region.forget_tokens = true,
            Mutant::EvictionBudgetsIgnored => self.cluster.skip_budgets = true,
            Mutant::PriceIgnored => self.region.overcharge = true,
            Mutant::AcknowledgedEarly => self.queues.acknowledge_early = true,
            _ => {}
        }
    }

    /// Whether this world is broken in this way.
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
