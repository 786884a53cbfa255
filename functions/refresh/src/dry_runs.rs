//! Dry runs of node classes (aws 18.4): `launch` makes them, with the role that they are about; here they are requested, and their
//! results shown.

use crate::{Done, Rights, Run, classes};
use std::collections::BTreeSet;
use whittle_api::ClusterObjects;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_claims::{ClassDryRun, DryRunPool, NodeClassRecord, Record, Revision};
use whittle_ports::{Clock, HandleError, RecordReader, Records, unless_conflict};
use whittle_units::fnv1a;

impl<P: Rights> Run<'_, P> {
    /// The class and its record after its latest dry run, which is requested anew when it is due. Until there is a result, a class
    /// counts as permitted: the first launch does not wait for one.
    pub(crate) async fn after_dry_run(
        &self,
        class: &Ec2NodeClass,
        resolved: (Ec2NodeClass, NodeClassRecord),
        objects: &ClusterObjects,
        done: &mut Done,
    ) -> Result<(Ec2NodeClass, NodeClassRecord), HandleError> {
        let (updated, record) = &resolved;
        if !self.settings.node_class_dry_runs || self.settings.is_shadow() || !record.is_ready() {
            return Ok(resolved);
        }
        let one = |pool: &NodePool| {
            let requirements = pool.spec.template.spec.requirements.clone();
            DryRunPool { name: pool.metadata.name.clone(), requirements }
        };
        let pools: Vec<DryRunPool> = pools_of(class, objects).into_iter().map(one).collect();
        let (name, now) = (record.name(), self.ports.clock().now());
        let subject = subject(updated, &pools);
        let known = self.ports.store().read::<ClassDryRun>(self.cluster, &name).await?;
        let latest = known.as_ref().map(|known| &known.value);
        let requested = ClassDryRun::requested(latest, &name, &subject, &pools, now);
        if let Some(requested) = &requested {
            let expected = known.as_ref().map_or(Revision::ABSENT, |known| known.revision);
            unless_conflict(self.ports.store().write(self.cluster, requested, expected).await)?;
        }
        let current = requested.as_ref().or(latest);
        if current.is_some_and(ClassDryRun::is_pending) {
            done.request_dry_runs();
        }
        match current.and_then(ClassDryRun::failure) {
            Some(failure) => Ok(classes::fail_dry_run(class, resolved, failure, now)),
            None => Ok(resolved),
        }
    }
}

/// The pools that launch with a class.
pub(crate) fn pools_of<'o>(class: &Ec2NodeClass, objects: &'o ClusterObjects) -> Vec<&'o NodePool> {
    let record = NodeClassRecord::name_of(class);
    let uses = |pool: &&NodePool| pool.class_in(&objects.node_classes).is_some_and(|own| NodeClassRecord::name_of(own) == record);
    objects.node_pools.iter().filter(uses).filter(|pool| !pool.metadata.is_deleting()).collect()
}

/// Digest of what the result of a dry run depends on. Any annotation is part of it, so that a user can request another one; the
/// order of subnets, which follows their free addresses, is not.
fn subject(class: &Ec2NodeClass, pools: &[DryRunPool]) -> String {
    let status = &class.status;
    let subnets: BTreeSet<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    let found = (subnets, &status.security_groups, &status.amis, &status.instance_profile);
    let parts = (&class.metadata.uid, &class.metadata.annotations, &class.spec, found, pools);
    format!("{:016x}", fnv1a(serde_json::to_string(&parts).unwrap_or_default()))
}
