//! What a tick rings besides the function that it invokes (ADR 0065).

use crate::doorbell::Doorbell;
use whittle_units::ClusterName;

/// What the tick of `sweep` knows of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickFacts {
    /// Whether the table has any claim of the cluster, or may have one: none that cannot be read is overlooked.
    pub has_claims: bool,
    /// Whether the deployment is in shadow mode.
    pub is_shadow: bool,
}

impl TickFacts {
    /// The doorbells that the tick of `sweep` rings besides it. Without a claim there is no machine, and for a day there has been none:
    /// nothing is to be registered, and of machines nothing to be decided. Only in shadow mode are those of another controller judged.
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
