//! Releases objects whose machine has ended. Our finalizer is all that keeps an instance from being leaked: EC2 is queried for it
//! by id, and has to deny it twice.

use crate::Rights;
use crate::compare::{Findings, Missing};
use crate::execute::{Executor, TIME_PER_STEP};
use crate::sightings::Sightings;
use whittle_api::k8s::Node;
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{DecisionKind, Revision, Sighting};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{
    Clock, ClusterError, HandleError, Instances, Mirrors, NodePatch, Nodes, ObjectKind, RecordRemoval, Records, Report, Safeguard,
    unless_conflict,
};
use whittle_units::{InstanceId, ProviderId, SignedDuration, Timestamp};

/// Time between two denials of EC2: a single one may be stale.
const DENIAL_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// A denial that is not repeated within this time expires.
const DENIAL_EXPIRY: SignedDuration = SignedDuration::from_mins(10);

/// The sighting of an object whose machine EC2 denies.
fn denial_subject(object: &str) -> String {
    format!("{object} without machine in EC2")
}

/// The uid of the NodeClaim that was found under a name: one that a user makes anew meanwhile stays.
fn uid_of_node_claim<'o>(objects: &'o ClusterObjects, name: &str) -> &'o str {
    let found = objects.node_claims.iter().find(|node_claim| node_claim.metadata.name == name);
    found.map_or("", |node_claim| node_claim.metadata.uid.as_str())
}

impl Sightings<'_> {
    /// Keeps the denial of an object's machine while the object is to be released.
    pub(crate) fn retain_denial(&mut self, object: &str) {
        self.retain(denial_subject(object));
    }
}

impl<P: Rights> Executor<'_, P> {
    /// Releases the objects in the findings, while there is time.
    pub(crate) async fn release_objects(&mut self, findings: &Findings, report: &mut Report) {
        let (ports, cluster, objects) = (self.ports, self.cluster, self.index.objects);
        let has_time = || ports.clock().has_time_for(TIME_PER_STEP);
        for name in findings.abandoned.iter().take_while(|_| has_time()) {
            if self.awaits_claim_denial(name, report).await {
                continue;
            }
            let uid = uid_of_node_claim(objects, name);
            let outcome = self.keep_failure(ports.cluster().delete_mirror(cluster, name, uid).await);
            if outcome.is_some() && self.keep_failure(ports.cluster().release_mirror(cluster, name, uid).await).is_some() {
                report.count("forsaken_released");
                let message = "it has neither claim nor machine: the NodeClaim is released";
                report.decide(ports.clock().now(), DecisionKind::Kept, format!("nodeclaim/{name}"), message);
            }
        }
        for name in findings.handed_over.iter().take_while(|_| has_time()) {
            if self.keep_failure(ports.cluster().hand_over_mirror(cluster, name).await).is_some() {
                report.count("marks_removed");
            }
        }
        for name in findings.release_mirrors.iter().take_while(|_| has_time()) {
            if self.awaits_claim_denial(name, report).await {
                continue;
            }
            let uid = uid_of_node_claim(objects, name);
            if self.keep_failure(ports.cluster().release_mirror(cluster, name, uid).await).is_some() {
                report.count("mirrors_released");
            }
        }
        for name in findings.release_nodes.iter().take_while(|_| has_time()) {
            self.release_node(name, report).await;
        }
    }

    /// Releases a Node once EC2 has denied its machine twice. A policy that keeps it, or a webhook that fails, is no failure of the sweep,
    /// whose report would be lost for as long: `terminate` has told of it in an Event.
    async fn release_node(&mut self, name: &str, report: &mut Report) {
        let objects = self.index.objects;
        let Some(node) = objects.nodes.iter().find(|node| node.metadata.name == name) else { return };
        let is_deleting = node.metadata.is_deleting();
        let id = ProviderId::new(node.spec.provider_id.as_str()).instance_id();
        match id {
            Ok(id) => {
                let there = if is_deleting { self.may_exist(&id).await } else { self.is_anywhere(&id).await };
                if self.awaits_denial(&format!("node/{name}"), there, report).await {
                    return;
                }
            }
            Err(_) if !is_deleting => return,
            Err(_) => {}
        }
        let outcome = self.let_node_go(node).await;
        match outcome {
            Ok(true) => report.count("nodes_released"),
            Ok(false) => {}
            Err(HandleError::Cluster(error @ (ClusterError::Invalid { .. } | ClusterError::Unavailable { .. }))) => {
                tracing::warn!(%error, "left for the next sweep");
                report.count("releases_refused");
            }
            failed => {
                self.keep_failure(failed);
            }
        }
    }

    /// Removes our finalizer from a Node, which is deleted first if a policy has not let `terminate` do it. False if it is gone, or if
    /// another has its name by now: a later machine's, which serves.
    async fn let_node_go(&self, node: &Node) -> Result<bool, HandleError> {
        let (ports, cluster) = (self.ports, self.cluster);
        let (name, uid) = (&node.metadata.name, &node.metadata.uid);
        if !node.metadata.is_deleting() {
            let provider_id = node.spec.provider_id.clone();
            let seen = Missing { kind: ObjectKind::Node, name: name.clone(), uid: uid.clone(), provider_id };
            if self.is_gone(&seen).await? {
                return Ok(false);
            }
            ports.cluster().delete_node(cluster, name, uid).await?;
        }
        let remove_finalizer = Some(labels::TERMINATION_FINALIZER.to_owned());
        let patch = NodePatch { uid: uid.clone(), remove_finalizer, ..NodePatch::default() };
        match ports.cluster().patch_node(cluster, name, "", &patch).await {
            Ok(()) => Ok(true),
            Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn awaits_claim_denial(&mut self, name: &str, report: &mut Report) -> bool {
        let node_claim = self.index.objects.node_claims.iter().find(|node_claim| node_claim.metadata.name == name);
        let id = node_claim.map_or("", |node_claim| node_claim.status.provider_id.as_str());
        let there = self.may_have_machine(name, id).await;
        self.awaits_denial(&format!("nodeclaim/{name}"), there, report).await
    }

    /// Whether EC2 has not yet denied the machine of an object twice.
    async fn awaits_denial(&mut self, object: &str, there: bool, report: &mut Report) -> bool {
        let (subject, now) = (denial_subject(object), self.ports.clock().now());
        let known = self.sightings.iter().find(|known| known.value.subject == subject);
        let lasts = known.filter(|known| known.value.expires_at > now);
        let again = lasts.is_some_and(|known| now.duration_since(known.value.first_seen_at) >= DENIAL_INTERVAL);
        let doubted = Safeguard::ReleasesAskedByName.stops(there || !again);
        if doubted {
            report.count("releases_doubted");
        }
        let revision = known.map_or(Revision::ABSENT, |known| known.revision);
        let written = if there && known.is_some() {
            self.ports.store().remove::<Sighting>(self.cluster, &subject, revision).await
        } else if !there && lasts.is_none() {
            let expires_at = now.checked_add(DENIAL_EXPIRY).unwrap_or(Timestamp::MAX);
            let sighting = Sighting { subject, first_seen_at: now, expires_at };
            self.ports.store().write(self.cluster, &sighting, revision).await.map(|_| ())
        } else {
            Ok(())
        };
        // Another sweep records the same.
        self.keep_failure(unless_conflict(written));
        doubted
    }

    /// Whether an instance that the listing lacks may still exist, according to a request by id.
    async fn may_exist(&mut self, id: &InstanceId) -> bool {
        let answer = self.ports.cloud().instance(id).await.map_err(HandleError::from);
        let found = self.keep_failure(answer);
        found.is_none_or(|instance| instance.is_some_and(|instance| self.should_be_listed(&instance)))
    }

    /// The same of the machine of a Node that nobody has deleted, whatever its tags are by now.
    async fn is_anywhere(&mut self, id: &InstanceId) -> bool {
        let answer = self.ports.cloud().instance(id).await.map_err(HandleError::from);
        let found = self.keep_failure(answer);
        found.is_none_or(|instance| instance.is_some_and(|instance| instance.state != InstanceState::Terminated))
    }

    /// Whether the instance of a NodeClaim may still exist; found by tag if the object does not name it.
    async fn may_have_machine(&mut self, name: &str, provider_id: &str) -> bool {
        if let Ok(id) = ProviderId::new(provider_id).instance_id() {
            return self.may_exist(&id).await;
        }
        let answer = self.ports.cloud().tagged(labels::TAG_NODE_CLAIM, name).await.map_err(HandleError::from);
        let found = self.keep_failure(answer);
        found.is_none_or(|found| found.iter().any(|instance| self.should_be_listed(instance)))
    }

    /// Whether an instance belongs in the listing of this cluster. One that is tagged with another cluster, or none, is not
    /// ours to wait for.
    fn should_be_listed(&self, instance: &Instance) -> bool {
        let cluster = instance.tags.get(labels::TAG_CLUSTER).map(String::as_str);
        instance.state != InstanceState::Terminated && cluster == Some(self.cluster.as_str())
    }
}
