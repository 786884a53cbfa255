//! The doorbells that a tick of `sweep` sends to other functions (ADR 0065).

use crate::doorbell::Doorbell;
use whittle_units::ClusterName;

/// What the tick of `sweep` knows of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickFacts {
    /// Whether the table has a claim of the cluster; also true if a claim, or the table, cannot be read.
    pub has_claims: bool,
    /// Whether the deployment is in shadow mode.
    pub is_shadow: bool,
}

impl TickFacts {
    /// The doorbells that the tick sends. A cluster without a claim has no machine, and has had none for a day: there is nothing to
    /// register and nothing to consolidate. Only in shadow mode `consolidate` runs nevertheless, for another controller's machines.
    ///
    /// `cargo xtask ci --only template` reads the doorbells here to know which queues `sweep` needs permission for.
    #[must_use]
    pub fn doorbells(self, cluster: &ClusterName) -> Vec<Doorbell> {
        let register = self.has_claims.then(|| Doorbell::Register { cluster: cluster.clone(), is_tick: true });
        let consolidate = (self.has_claims || self.is_shadow).then(|| Doorbell::Consolidate { cluster: cluster.clone() });
        register.into_iter().chain(consolidate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::Function;

    fn rung(has_claims: bool, is_shadow: bool) -> Vec<Function> {
        let doorbells = TickFacts { has_claims, is_shadow }.doorbells(&"a".into());
        assert!(doorbells.iter().all(|doorbell| doorbell.cluster().as_str() == "a"));
        let marked = |doorbell: &Doorbell| doorbell.is_tick() == (doorbell.function() == Function::Register);
        assert!(doorbells.iter().all(marked), "a standard queue would repeat what failed beside the next tick");
        doorbells.iter().map(Doorbell::function).collect()
    }

    #[test]
    fn functions_that_work_on_machines_are_rung_where_there_may_be_some() {
        assert_eq!(rung(true, false), [Function::Register, Function::Consolidate]);
        assert_eq!(rung(true, true), [Function::Register, Function::Consolidate]);
        assert_eq!(rung(false, true), [Function::Consolidate], "which judges the machines of another controller");
        assert!(rung(false, false).is_empty());
    }
}
