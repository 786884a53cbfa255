//! NodeClaims that somebody made by hand: each gets a claim of its own, which is launched, mirrored and ended like any other.

use crate::Rights;
use crate::act::Act;
use crate::judge::{BETWEEN_SIGHTINGS, Findings, Seen, Sights};
use std::collections::BTreeMap;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodeClaimStatus, Operator};
use whittle_api::labels;
use whittle_claims::{Claim, ClaimKey, ClaimSpec, DecisionKind, Doorbell, Lease, NodeClassRecord, mirror};
use whittle_ports::{ClaimStore, Clock, ClusterError, HandleError, Leases, Mirrors, Queues, Report, StoreError};
use whittle_units::{ClaimName, ClusterName, Price, SignedDuration, Timestamp};

/// Making a claim takes a moment under the cluster's lease.
const LEASE: SignedDuration = SignedDuration::from_secs(10);
/// What `kubectl apply` keeps for itself.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether an object waits for somebody to launch it, and for nobody else but us. A controller that has it in hand shows by
/// the finalizer, the status or the owner that it gives it.
pub(crate) fn waits(shown: &NodeClaim) -> bool {
    let meta = &shown.metadata;
    let class = &shown.spec.node_class_ref;
    let of_ours = class.group == labels::AWS_DOMAIN && class.kind == Ec2NodeClass::KIND && !class.name.is_empty();
    let of_pool = [labels::NODE_POOL, labels::PROVISIONER_NAME, labels::CONVERTED_FROM];
    let planned = of_pool.iter().any(|key| meta.labels.contains_key(*key) || meta.annotations.contains_key(*key))
        || meta.owner_references.iter().any(|owner| matches!(owner.kind.as_str(), "NodePool" | "Provisioner"));
    let in_hand = !meta.finalizers.is_empty() || shown.status != NodeClaimStatus::default();
    of_ours && !planned && !in_hand && !meta.is_deleting() && !meta.uid.is_empty()
}

/// Objects that nobody has answered yet, at their second sight.
pub(crate) fn unanswered(seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    for shown in seen.objects.node_claims.iter().filter(|shown| waits(shown)) {
        let (name, uid) = (&shown.metadata.name, &shown.metadata.uid);
        // A claim of its name that lives or cannot be read has a machine to end first; one of its uid is its own.
        let named = seen.claims.iter().map(|claim| &claim.value).find(|claim| claim.key.name.as_str() == name);
        let taken = named.is_some_and(|claim| claim.is_live() || claim.object_uid() == uid) || seen.unreadable.contains(name);
        if taken || !sights.confirmed(format!("nodeclaim/{name} of {uid} made by hand"), BETWEEN_SIGHTINGS) {
            continue;
        }
        if is_known(&shown.spec.node_class_ref.name, seen) {
            out.answer.push(shown.clone());
        } else {
            out.refresh = true; // its class was made with it, and nobody has looked at it yet
        }
    }
}

/// Whether a class was looked at. One that does not exist is known not to: the launch says so.
pub(crate) fn is_known(class: &str, seen: &Seen<'_>) -> bool {
    let hidden = seen.objects.is_unreadable(Ec2NodeClass::KIND, class) || seen.objects.lacks_kind(Ec2NodeClass::KIND);
    let there = hidden || seen.objects.node_classes.iter().any(|one| one.metadata.name == class);
    !there || NodeClassRecord::meant(seen.classes, class, false).is_some()
}

/// The claim that answers an object. Everything of it follows from the object, so that whoever makes it makes the same one.
pub(crate) fn claim_of(shown: &NodeClaim, cluster: &ClusterName, now: Timestamp) -> Claim {
    let (meta, asked) = (&shown.metadata, &shown.spec);
    let mut annotations = meta.annotations.clone();
    annotations.retain(|key, _| key != LAST_APPLIED && key != labels::MANAGED);
    let spec = ClaimSpec {
        node_class: asked.node_class_ref.clone(),
        labels: labels_of(shown),
        annotations,
        requirements: asked.requirements.clone(),
        taints: asked.taints.clone(),
        startup_taints: asked.startup_taints.clone(),
        requests: asked.resources.requests.clone(),
        expire_after: asked.expire_after.clone(),
        termination_grace_period: asked.termination_grace_period.clone(),
        price: Price::ZERO,
        made_by_hand: Some(meta.uid.clone()),
        ..ClaimSpec::default()
    };
    let key = ClaimKey { cluster: cluster.clone(), name: ClaimName::new(meta.name.as_str()) };
    Claim::planned(key, meta.uid.clone(), spec, now)
}

/// The object's own labels over those that its requirements leave no choice about; what a machine says of itself is left to it.
fn labels_of(shown: &NodeClaim) -> BTreeMap<String, String> {
    let only = shown.spec.requirements.iter().filter_map(|asked| match (asked.operator, asked.values.as_slice()) {
        (Operator::In, [only]) if !labels::WELL_KNOWN.contains(&labels::normalized(&asked.key)) => Some((asked.key.clone(), only.clone())),
        _ => None,
    });
    let mut all: BTreeMap<String, String> = only.collect();
    all.extend(shown.metadata.labels.clone());
    all
}

impl<P: Rights> Act<'_, P> {
    /// Stores the claim of an object, then shows it there, which puts our finalizer on it, and only then has it launched. Whoever
    /// dies in between is followed by the next sweep, which finds the claim.
    pub(crate) async fn answer(&self, shown: &NodeClaim, report: &mut Report) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let claim = claim_of(shown, self.cluster, now);
        let lease: Lease = self.ports.store().acquire(self.cluster, &self.ports.clock().unique(), now, LEASE).await?;
        let stored = match self.claims.iter().find(|known| known.value.key == claim.key) {
            // Of an object of the same name, whose machine has ended. What still comes for that one finds no claim.
            Some(ended) => self.ports.store().update(&claim, ended.revision).await,
            None => self.ports.store().create(&lease, &claim).await,
        };
        let _ = self.ports.store().release(&lease).await;
        match stored {
            Ok(_) => {}
            // A sweep beside us made it.
            Err(StoreError::Conflict { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let name = claim.key.name.clone();
        report.count("answered");
        report.decide(now, DecisionKind::Planned, format!("nodeclaim/{name}"), "somebody made the NodeClaim by hand: it gets a machine");
        match self.ports.cluster().apply_mirror(self.cluster, &mirror(&claim)).await {
            Ok(()) => {}
            Err(ClusterError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        Ok(self.ports.queues().ring(Doorbell::Launch { cluster: self.cluster.clone(), claims: vec![name] }, SignedDuration::ZERO).await?)
    }
}

/// Whether a claim may be launched as far as its object is concerned: one that was made by hand has to carry our finalizer
/// first, so that it cannot vanish with its machine running.
pub(crate) fn is_guarded(claim: &Claim, shown: &[NodeClaim]) -> bool {
    let held = |object: &NodeClaim| object.metadata.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER);
    claim.spec.made_by_hand.is_none() || shown.iter().any(|object| claim.is_shown_by(object) && held(object))
}
