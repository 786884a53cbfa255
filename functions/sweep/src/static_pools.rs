//! NodePools with `replicas` in a cluster without claims. No tick rings `consolidate` there (ADR 0065), and the table does not show that
//! there is such a pool.

use crate::Rights;
use whittle_api::ClusterObjects;
use whittle_api::karpenter::NodePool;
use whittle_claims::Doorbell;
use whittle_ports::{Queues, Report, Settings, error_chain};
use whittle_units::ClusterName;

/// Rings `consolidate`, which launches for such pools, if there is one. The next sweep repeats a doorbell that cannot be sent.
pub(crate) async fn ring<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName, objects: &ClusterObjects, report: &mut Report) {
    if !settings.static_capacity || !objects.node_pools.iter().any(wants_machines) {
        return;
    }
    report.count("static_pools_without_claims");
    if let Err(error) = ports.queues().send_now(Doorbell::Consolidate { cluster: cluster.clone() }).await {
        tracing::warn!(%cluster, reason = %error_chain(&error), "consolidate could not be rung for static NodePools: the next sweep does");
        report.count("doorbells_failed");
    }
}

/// Whether a pool of ours is to have machines whatever the pods. Pure.
fn wants_machines(pool: &NodePool) -> bool {
    pool.is_managed() && !pool.metadata.is_deleting() && pool.spec.replicas.is_some_and(|replicas| replicas > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use whittle_claims::{Claim, Function, LeftNodes, Revision, Uninstall};
    use whittle_ports::{Adapters, Mode, Records};
    use whittle_testkit::{TestWorld, at, default_spec, key, pool_named};

    fn world(replicas: Option<i64>) -> TestWorld {
        let world = TestWorld::still(at(0));
        let mut pool = pool_named("default");
        pool.spec.replicas = replicas;
        world.create(pool);
        world
    }

    /// Whether a sweep rings `consolidate`.
    fn rings(world: &TestWorld, settings: &Settings) -> bool {
        let ports = world.ports();
        block_on(crate::tick(Adapters::all(&ports), settings, &crate::Looks::new(), &key("a").cluster)).unwrap();
        world.doorbells().contains(&Function::Consolidate)
    }

    #[test]
    fn a_static_pool_without_any_claim_is_launched_for() {
        let settings = Settings::default();
        assert!(rings(&world(Some(2)), &settings));
        assert!(!rings(&world(Some(0)), &settings), "it wants none");
        assert!(!rings(&world(None), &settings), "pods ask for those of this one");
        assert!(!rings(&world(Some(2)), &Settings { static_capacity: false, ..Settings::default() }));
        assert!(!rings(&world(Some(2)), &Settings { mode: Mode::Shadow, ..Settings::default() }), "its tick rings anyway");
    }

    #[test]
    fn where_there_is_a_claim_ticks_ring() {
        let world = world(Some(2));
        world.store(&Claim::planned(key("a"), "uid".into(), default_spec(), at(0)));
        assert!(!rings(&world, &Settings::default()));
    }

    #[test]
    fn a_pool_of_another_controller_is_its_own_affair() {
        let world = world(None);
        let mut theirs = pool_named("theirs");
        theirs.spec.replicas = Some(3);
        let reference = &mut theirs.spec.template.spec.node_class_ref;
        (reference.group, reference.kind) = ("eks.amazonaws.com".into(), "NodeClass".into());
        world.create(theirs);
        assert!(!rings(&world, &Settings::default()));
    }

    #[test]
    fn nothing_is_launched_while_whittle_is_uninstalled() {
        let world = world(Some(2));
        let asked = Uninstall { asked_at: at(0), nodes: LeftNodes::Keep };
        block_on(world.ports().write(&key("a").cluster, &asked, Revision::ABSENT)).unwrap();
        assert!(!rings(&world, &Settings::default()));
    }
}
