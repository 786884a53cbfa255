//! Hands machines over to Karpenter: NodeClaim, Node and finalizers stay, and only what marks them as Whittle's goes (ADR 0026).
//!
//! The end of the claim is stored first. From then on no function of Whittle changes the objects, and what is left to do follows from
//! the claim and the mark of its NodeClaim, whatever was interrupted. A write that began before may still mark the NodeClaim again: then
//! the empty tag of the machine counts, also if the table has been lost since.

use crate::Rights;
use crate::adopt;
use crate::index::Index;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{Claim, DecisionKind, Event, Stored, mirror, step};
use whittle_ec2::instance::Instance;
use whittle_ports::{Clock, CloudErrorKind, ClusterError, HandleError, InstanceTags, Mirrors, Report, save};
use whittle_units::{ClusterName, InstanceId, ProviderId};

/// Whether an instance was handed over: no tag shows any more that Whittle started it.
pub(crate) fn is_handed_over(instance: &Instance) -> bool {
    instance.tags.get(labels::TAG_LAUNCH).is_some_and(String::is_empty)
}

/// Whether the machine of a NodeClaim was handed over and runs.
pub(crate) fn is_machine_handed_over(node_claim: &NodeClaim, index: &Index<'_>) -> bool {
    let id = ProviderId::new(node_claim.status.provider_id.as_str()).instance_id();
    let instance = id.ok().and_then(|id| index.instance(&id));
    instance.is_some_and(|instance| instance.is_alive() && is_handed_over(instance))
}

/// Machines whose claims ended because they were handed over, with the names of their NodeClaims, which are still marked.
pub(crate) fn unfinished(claims: &[Stored<Claim>], objects: &ClusterObjects) -> Vec<(String, InstanceId)> {
    let ended = claims.iter().map(|claim| &claim.value).filter(|claim| is_ended_by_it(claim));
    let marked = |claim: &&Claim| objects.node_claims.iter().any(|object| adopt::is_marked(object) && claim.is_mirrored_by(object));
    ended.filter(marked).filter_map(|claim| Some((claim.key.name.to_string(), claim.instance()?.clone()))).collect()
}

/// Whether a claim ended because its machine was handed over.
pub(crate) fn is_ended_by_it(claim: &Claim) -> bool {
    !claim.is_live() && claim.annotations.get(labels::HANDED_OVER).is_some_and(|told| told == "true")
}

/// Hands the machine of a claim over.
pub(crate) async fn hand_over<P: Rights>(ports: P, claim: &Stored<Claim>, report: &mut Report) -> Result<(), HandleError> {
    let key = &claim.value.key;
    let Some(id) = claim.value.instance().cloned() else { return Ok(()) };
    // With all that Karpenter needs to know of the machine, and its finalizer.
    show(ports, &claim.value).await?;
    let now = ports.clock().now();
    let mut ended = step(&claim.value, &Event::LetGo, now)?;
    ended.annotations.insert(labels::HANDED_OVER.to_owned(), "true".to_owned());
    save(ports.store(), claim, ended).await?;
    finish(ports, &key.cluster, key.name.as_str(), &id).await?;
    report.count("handed_over_to_karpenter");
    let message = format!("instance {id} keeps running, for Karpenter to continue with");
    report.decide(now, DecisionKind::Kept, format!("nodeclaim/{}", key.name), message);
    Ok(())
}

/// Removes the marks of a machine and its NodeClaim.
pub(crate) async fn finish<P: Rights>(ports: P, cluster: &ClusterName, name: &str, id: &InstanceId) -> Result<(), HandleError> {
    match unmark(ports, id).await {
        // Karpenter finds out by itself.
        Err(HandleError::Cloud(error)) if error.kind == CloudErrorKind::NotFound => {}
        tagged => tagged?,
    }
    Ok(ports.cluster().hand_over_mirror(cluster, name).await?)
}

/// Removes the value of the tag by which a machine is known as Whittle's.
pub(crate) async fn unmark<P: Rights>(ports: P, id: &InstanceId) -> Result<(), HandleError> {
    Ok(ports.cloud().tag(id, &[(labels::TAG_LAUNCH.to_owned(), String::new())]).await?)
}

/// Writes the NodeClaim of a claim. A standalone one may be gone already.
pub(crate) async fn show<P: Rights>(ports: P, claim: &Claim) -> Result<(), HandleError> {
    match ports.cluster().apply_mirror(&claim.key.cluster, &mirror(claim)).await {
        Ok(()) | Err(ClusterError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
