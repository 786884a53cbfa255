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
    ClaimsReadLate,
    /// The token of a fleet call is ignored.
    TokenForgotten,
    /// Pods are evicted without respecting their budgets.
    BudgetsUnasked,
    /// A pod whose eviction was refused is deleted instead.
    RefusedPodsDeleted,
    /// Finalizers are removed as soon as EC2 was asked to terminate the machine.
    FinalizersGoEarly,
    /// An instance without claim is terminated at first sight.
    OrphanAtFirstSight,
    /// The disruption budgets of pools are ignored.
    PoolBudgetsIgnored,
    /// Pods of terminating nodes are planned for only once they are pending.
    ReplacementNotAhead,
    /// A machine that is shutting down counts as ended.
    EndUnconfirmed,
    /// A notice of EC2 is acknowledged as soon as it is received.
    AcknowledgedEarly,
    /// One read without a NodePool is believed, whatever the API server says, and one read of a standalone NodeClaim.
    OneLookBelieved,
    /// A machine is launched at any price, many times that of the one before.
    PriceNotKept,
    /// Unreadable objects are omitted from answers.
    UnreadableDropped,
    /// What lists do not contain counts as deleted, without asking the API server by name.
    AbsenceBelieved,
    /// A handler lacks one of its safeguards.
    Without(Safeguard),
}

impl Mutant {
    /// Mutants of the ports.
    const AT_PORTS: [Self; 17] = [
        Self::FencingUnchecked,
        Self::LeaseIgnored,
        Self::RevisionIgnored,
        Self::ClaimsReadLate,
        Self::TokenForgotten,
        Self::BudgetsUnasked,
        Self::RefusedPodsDeleted,
        Self::FinalizersGoEarly,
        Self::OrphanAtFirstSight,
        Self::PoolBudgetsIgnored,
        Self::ReplacementNotAhead,
        Self::EndUnconfirmed,
        Self::AcknowledgedEarly,
        Self::OneLookBelieved,
        Self::PriceNotKept,
        Self::UnreadableDropped,
        Self::AbsenceBelieved,
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::AT_PORTS.into_iter().chain(Safeguard::ALL.iter().copied().map(Self::Without))
    }

    /// The safeguard, in a sentence.
    pub const fn text(self) -> &'static str {
        match self {
            Self::FencingUnchecked => "table: a claim is created only under the newest lease",
            Self::LeaseIgnored => "table: a lease is given to one at a time",
            Self::RevisionIgnored => "table: a claim is written only over the revision that was read",
            Self::ClaimsReadLate => "table: claims are listed as they are",
            Self::TokenForgotten => "EC2: a fleet call that is repeated brings the same machines",
            Self::BudgetsUnasked => "eviction API: budgets are asked",
            Self::RefusedPodsDeleted => "eviction API: a pod that was refused is left alone",
            Self::FinalizersGoEarly => "terminate: finalizers go after the machine",
            Self::OrphanAtFirstSight => "sweep: a machine without claim is looked at twice",
            Self::PoolBudgetsIgnored => "consolidate: disruption budgets of pools are asked",
            Self::ReplacementNotAhead => "schedule: pods of nodes that end are planned for ahead",
            Self::EndUnconfirmed => "terminate: a machine that is shutting down has not ended",
            Self::AcknowledgedEarly => "queue: a message is acknowledged after its work",
            Self::OneLookBelieved => "sweep: a NodePool is missed twice, a NodeClaim made by hand is seen twice",
            Self::PriceNotKept => "consolidate: what replaces a machine costs less",
            Self::UnreadableDropped => "API server: objects that cannot be read are there",
            Self::AbsenceBelieved => "sweep, refresh: what a list lacks is asked for by name",
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
            Mutant::TokenForgotten => self.region.forget_tokens = true,
            Mutant::BudgetsUnasked => self.cluster.skip_budgets = true,
            Mutant::PriceNotKept => self.region.overcharge = true,
            Mutant::AcknowledgedEarly => self.queues.acknowledge_early = true,
            _ => {}
        }
    }

    /// Whether this world is broken in this way.
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
