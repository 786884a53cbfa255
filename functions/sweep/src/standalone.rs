//! Standalone NodeClaims: each gets a claim, which is launched, mirrored and terminated like any other.

use crate::Rights;
use crate::adopt;
use crate::collect::CLAIM_LEASE;
use crate::compare::{Findings, SweepInput};
use crate::execute::Executor;
use crate::sightings::{SIGHTING_INTERVAL, Sightings};
use std::collections::BTreeMap;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodeClaimStatus};
use whittle_api::labels;
use whittle_api::runtime::is_label_value;
use whittle_claims::{Claim, ClaimKey, ClaimSpec, DecisionKind, Doorbell, Lease, NodeClassRecord, mirror};
use whittle_ec2::instance::Instance;
use whittle_model::requirements::{custom_labels, from_requirements};
use whittle_ports::{ClaimStore, Clock, ClusterError, HandleError, Leases, Mirrors, Queues, Report, release_lease, unless_conflict};
use whittle_units::{ClaimName, ClusterName, Price, Timestamp};

/// The annotation that `kubectl apply` stores.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether a standalone NodeClaim waits for us to launch it.
pub(crate) fn awaits_claim(node_claim: &NodeClaim) -> bool {
    is_unlaunched(node_claim) && marks_of(node_claim).is_empty()
}

/// Whether a NodeClaim of a class of ours shows nothing of a launch.
pub(crate) fn is_unlaunched(node_claim: &NodeClaim) -> bool {
    let meta = &node_claim.metadata;
    let class = &node_claim.spec.node_class_ref;
    let of_ours = class.group == labels::AWS_DOMAIN && class.kind == Ec2NodeClass::KIND && !class.name.is_empty();
    of_ours && node_claim.status == NodeClaimStatus::default() && !meta.is_deleting() && !meta.uid.is_empty()
}

/// What shows that a controller made a NodeClaim, or another one that it was copied or restored from. Backups keep no status, so that
/// nothing else tells it from a user's. A finalizer of anybody but Karpenter says nothing about machines.
pub(crate) fn marks_of(node_claim: &NodeClaim) -> Vec<String> {
    let meta = &node_claim.metadata;
    let of_pool = [labels::NODE_POOL, labels::PROVISIONER_NAME, labels::CONVERTED_FROM];
    let labelled = of_pool.iter().filter(|key| meta.labels.contains_key(**key)).map(|key| format!("label {key}"));
    let annotated = of_pool.iter().filter(|key| meta.annotations.contains_key(**key)).map(|key| format!("annotation {key}"));
    let owners = meta.owner_references.iter().filter(|owner| matches!(owner.kind.as_str(), "NodePool" | "Provisioner"));
    let owned = owners.map(|owner| format!("owner {} {}", owner.kind, owner.name));
    let held = adopt::has_finalizer(meta).then(|| format!("finalizer {}", labels::TERMINATION_FINALIZER));
    labelled.chain(annotated).chain(owned).chain(held).collect()
}

/// A machine of no claim that is tagged as that of a NodeClaim of this name: perhaps this one's, from before it was restored.
pub(crate) fn unclaimed_machine<'i>(name: &str, input: &SweepInput<'i>) -> Option<&'i Instance> {
    input.index.tagged(name).iter().copied().find(|instance| !input.index.is_claimed(&instance.id))
}

/// Finds standalone NodeClaims without a claim, at their second sighting.
pub(crate) fn find_unclaimed(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    for node_claim in input.objects.node_claims.iter().filter(|node_claim| awaits_claim(node_claim)) {
        let (name, uid) = (&node_claim.metadata.name, &node_claim.metadata.uid);
        // A live or unreadable claim of the same name has to end first; one with its uid is its own.
        let named = input.index.claim_named(name).map(|claim| &claim.value);
        let taken = named.is_some_and(|claim| claim.is_live() || claim.object_uid() == uid) || input.index.is_unreadable(name);
        // EC2 not showing its machine in a shifted zone proves nothing.
        let may_run = unclaimed_machine(name, input).is_some() || input.shifted.are_of(&node_claim.metadata.labels);
        if taken || may_run || !sightings.is_confirmed(format!("nodeclaim/{name} of {uid} made by hand"), SIGHTING_INTERVAL) {
            continue;
        }
        if is_class_known(&node_claim.spec.node_class_ref.name, input) {
            out.answer.push(node_claim.clone());
        } else {
            out.refresh = true; // its class is new and has not been resolved yet
        }
    }
}

/// Whether a class was resolved. One that does not exist counts, too: the launch reports it.
pub(crate) fn is_class_known(class: &str, input: &SweepInput<'_>) -> bool {
    let hidden = input.objects.is_unreadable(Ec2NodeClass::KIND, class) || input.objects.lacks_kind(Ec2NodeClass::KIND);
    let there = hidden || input.objects.node_classes.iter().any(|one| one.metadata.name == class && !one.is_converted_template());
    !there || NodeClassRecord::referenced(input.classes, class, false).is_some()
}

/// The claim of a standalone NodeClaim. It follows from the object alone, so that every run creates the same one.
pub(crate) fn claim_of(node_claim: &NodeClaim, cluster: &ClusterName, now: Timestamp) -> Claim {
    let meta = &node_claim.metadata;
    let mut annotations = meta.annotations.clone().into_inner();
    annotations.retain(|key, _| key != LAST_APPLIED && key != labels::MANAGED);
    let spec = ClaimSpec {
        labels: labels_of(node_claim),
        annotations,
        price: Price::ZERO,
        standalone_uid: Some(meta.uid.clone()),
        ..ClaimSpec::of_object(&node_claim.spec)
    };
    let key = ClaimKey { cluster: cluster.clone(), name: ClaimName::new(meta.name.as_str()) };
    Claim::planned(key, meta.uid.clone(), spec, now)
}

/// One value for each key of its requirements that is the user's own, as on machines of NodePools, overridden by the object's labels;
/// well-known ones are left to the machine. The API server does not look at the values of requirements: what is no label value labels
/// nothing.
fn labels_of(node_claim: &NodeClaim) -> BTreeMap<String, String> {
    let required = from_requirements(&node_claim.spec.requirements);
    let mut all = custom_labels(&required, |key| labels::WELL_KNOWN.contains(&key));
    all.retain(|_, value| is_label_value(value.as_str()));
    all.extend(node_claim.metadata.labels.clone());
    all
}

impl<P: Rights> Executor<'_, P> {
    /// Stores the claim of an object, then writes its mirror, which adds our finalizer, and only then has it launched. If the run
    /// dies in between, the next sweep finds the claim.
    pub(crate) async fn create_claim(&self, node_claim: &NodeClaim, report: &mut Report) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let claim = claim_of(node_claim, self.cluster, now);
        let lease: Lease = self.ports.store().acquire(self.cluster, &self.ports.clock().unique(), now, CLAIM_LEASE).await?;
        let stored = match self.index.claim(&claim.key.name) {
            // The claim of an earlier object of the same name, whose machine has ended. A late instance of that one finds no
            // claim.
            Some(ended) => self.ports.store().update(&claim, ended.revision).await,
            None => self.ports.store().create(&lease, &claim).await,
        };
        release_lease(self.ports.store(), &lease).await;
        if unless_conflict(stored)?.is_none() {
            return Ok(()); // a concurrent sweep created it
        }
        let name = claim.key.name.clone();
        report.count("answered");
        report.decide(now, DecisionKind::Planned, format!("nodeclaim/{name}"), "standalone NodeClaim: a machine is launched for it");
        match self.ports.cluster().apply_mirror(self.cluster, &mirror(&claim)).await {
            Ok(()) => {}
            Err(ClusterError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        Ok(self.ports.queues().send_now(Doorbell::Launch { cluster: self.cluster.clone(), claims: vec![name] }).await?)
    }
}

/// Whether the object of a claim allows a launch: a standalone one has to carry our finalizer first, so that it cannot vanish
/// while its machine runs.
pub(crate) fn may_launch(claim: &Claim, node_claim: &[NodeClaim]) -> bool {
    let held = |object: &NodeClaim| adopt::has_finalizer(&object.metadata);
    claim.spec.standalone_uid.is_none() || node_claim.iter().any(|object| claim.is_mirrored_by(object) && held(object))
}
