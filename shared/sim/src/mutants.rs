//! Deliberately broken variants: each takes one protection away, and the checkers must notice.
//!
//! None of them is in the product. They sit at the ports, where a broken function and a broken adapter look the same.

use crate::world::World;

/// One protection that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// A claim is created under whatever lease.
    FencingUnchecked,
    /// A lease is given although another holds it.
    LeaseIgnored,
    /// A claim is written over whatever revision.
    RevisionIgnored,
    /// Claims are listed from an index that lags.
    ClaimsReadLate,
    /// The token of a fleet call is not looked at.
    TokenForgotten,
    /// Pods are evicted without asking their budgets.
    BudgetsUnasked,
    /// A pod whose eviction was refused is deleted instead.
    RefusedPodsDeleted,
    /// The finalizers go as soon as EC2 was asked to end the machine.
    FinalizersGoEarly,
    /// An instance without claim is ended when it is first seen.
    OrphanAtFirstSight,
    /// The disruption budgets of pools are not seen.
    PoolBudgetsIgnored,
    /// Pods of ending nodes are planned for only once they wait.
    ReplacementNotAhead,
    /// A machine that is shutting down counts as ended.
    EndUnconfirmed,
    /// A notice of EC2 is gone as soon as it is received.
    AcknowledgedEarly,
    /// One look without a NodePool is believed, whatever the API server says of it, and one look at a NodeClaim that was made by hand.
    OneLookBelieved,
    /// A machine is bought at whatever price, many times that of the one before.
    PriceNotKept,
    /// Objects that cannot be read are left out of answers.
    UnreadableDropped,
    /// What lists do not show is gone, whatever the API server says when it is asked for it.
    AbsenceBelieved,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 17] = [
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
            Mutant::AcknowledgedEarly => self.queues.forget_early = true,
            _ => {}
        }
    }

    /// Whether this world is broken in this way.
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
