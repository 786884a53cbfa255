//! Objects that stood for a machine are let go when it has ended. Our finalizer is all that keeps a machine from being forgotten:
//! EC2 is asked for it by name, and has to deny it twice.

use crate::Rights;
use crate::act::Act;
use crate::judge::{Findings, Sights};
use whittle_api::labels;
use whittle_claims::{DecisionKind, Revision, Sighting};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{Clock, HandleError, Instances, Mirrors, NodePatch, Nodes, RecordRemoval, Records, Report, Safeguard, StoreError};
use whittle_units::{InstanceId, ProviderId, SignedDuration, Timestamp};

/// Between two answers of EC2 that deny a machine: one of them may be behind.
const BETWEEN_DENIALS: SignedDuration = SignedDuration::from_secs(30);
/// A denial that is not repeated within so long counts for nothing.
const DENIAL_LASTS: SignedDuration = SignedDuration::from_mins(10);

/// What is noted of an object whose machine EC2 denies.
fn denied(object: &str) -> String {
    format!("{object} without machine in EC2")
}

impl Sights<'_> {
    /// A denial of an object's machine is not forgotten while the object is to be let go.
    pub(crate) fn keep_denial(&mut self, object: &str) {
        self.keep(denied(object));
    }
}

impl<P: Rights> Act<'_, P> {
    /// Lets the objects go that the findings name.
    pub(crate) async fn released(&mut self, findings: &Findings, report: &mut Report) {
        let (ports, cluster) = (self.ports, self.cluster);
        for name in &findings.forsaken {
            if self.claim_is_doubted(name, report).await {
                continue;
            }
            let outcome = self.tried(ports.cluster().delete_mirror(cluster, name, "").await);
            if outcome.is_some() && self.tried(ports.cluster().release_mirror(cluster, name, "").await).is_some() {
                report.count("forsaken_released");
                let message = "no claim and no machine is behind it: the NodeClaim is let go";
                report.decide(ports.clock().now(), DecisionKind::Kept, format!("nodeclaim/{name}"), message);
            }
        }
        for name in &findings.release_mirrors {
            if self.claim_is_doubted(name, report).await {
                continue;
            }
            if self.tried(ports.cluster().release_mirror(cluster, name, "").await).is_some() {
                report.count("mirrors_released");
            }
        }
        for name in &findings.release_nodes {
            let node = self.objects.nodes.iter().find(|node| node.metadata.name == *name);
            let id = ProviderId::new(node.map_or("", |node| node.spec.provider_id.as_str())).instance_id();
            if let Ok(id) = id {
                let there = self.is_left(&id).await;
                if self.is_doubted(&format!("node/{name}"), there, report).await {
                    continue;
                }
            }
            let patch = NodePatch { remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()), ..NodePatch::default() };
            if self.tried(ports.cluster().patch_node(cluster, name, "", &patch).await).is_some() {
                report.count("nodes_released");
            }
        }
    }

    async fn claim_is_doubted(&mut self, name: &str, report: &mut Report) -> bool {
        let shown = self.objects.node_claims.iter().find(|shown| shown.metadata.name == name);
        let id = shown.map_or("", |shown| shown.status.provider_id.as_str());
        let there = self.has_machine(name, id).await;
        self.is_doubted(&format!("nodeclaim/{name}"), there, report).await
    }

    /// Whether EC2 has not denied the machine of an object twice.
    async fn is_doubted(&mut self, object: &str, there: bool, report: &mut Report) -> bool {
        let (subject, now) = (denied(object), self.ports.clock().now());
        let known = self.sightings.iter().find(|known| known.value.subject == subject);
        let lasts = known.filter(|known| known.value.expires_at > now);
        let again = lasts.is_some_and(|known| now.duration_since(known.value.first_seen_at) >= BETWEEN_DENIALS);
        let doubted = Safeguard::ReleasesAskedByName.stops(there || !again);
        if doubted {
            report.count("releases_doubted");
        }
        let revision = known.map_or(Revision::ABSENT, |known| known.revision);
        let noted = if there && known.is_some() {
            self.ports.store().remove::<Sighting>(self.cluster, &subject, revision).await
        } else if !there && lasts.is_none() {
            let expires_at = now.checked_add(DENIAL_LASTS).unwrap_or(Timestamp::MAX);
            let sighting = Sighting { subject, first_seen_at: now, expires_at };
            self.ports.store().write(self.cluster, &sighting, revision).await.map(|_| ())
        } else {
            Ok(())
        };
        // Another sweep notes the same.
        if let Err(error) = noted
            && !matches!(error, StoreError::Conflict { .. })
        {
            self.tried::<()>(Err(error));
        }
        doubted
    }

    /// Whether a machine of this cluster that its listing lacks may still be there, by EC2's answer to a request for its id.
    async fn is_left(&mut self, id: &InstanceId) -> bool {
        let answer = self.ports.cloud().instance(id).await.map_err(HandleError::from);
        let found = self.tried(answer);
        found.is_none_or(|instance| instance.is_some_and(|instance| self.should_be_listed(&instance)))
    }

    /// Whether the machine of a NodeClaim may still be there, which its tag names where the object does not.
    async fn has_machine(&mut self, name: &str, provider_id: &str) -> bool {
        if let Ok(id) = ProviderId::new(provider_id).instance_id() {
            return self.is_left(&id).await;
        }
        let answer = self.ports.cloud().tagged(labels::TAG_NODE_CLAIM, name).await.map_err(HandleError::from);
        let found = self.tried(answer);
        found.is_none_or(|found| found.iter().any(|instance| self.should_be_listed(instance)))
    }

    /// Whether a listing of this cluster's machines shows an instance as soon as EC2 has it there. One that carries another
    /// cluster's name, or none, is not ours to wait for.
    fn should_be_listed(&self, instance: &Instance) -> bool {
        let cluster = instance.tags.get(labels::TAG_CLUSTER).map(String::as_str);
        instance.state != InstanceState::Terminated && cluster == Some(self.cluster.as_str())
    }
}
