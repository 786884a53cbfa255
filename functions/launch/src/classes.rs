//! Whether the classes that launches go by are still those of the cluster: what is stored of a class is as old as its last look.

use crate::{Rights, Run};
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions::{self, LAUNCHED};
use whittle_claims::{Claim, Doorbell, NodeClassRecord, Record, Stored};
use whittle_ec2::errors::CreateReason;
use whittle_ports::{ClusterReader, HandleError, Presence, Queues, Sought};
use whittle_units::SignedDuration;

impl<P: Rights> Run<'_, P> {
    /// The stored classes that these claims mean and that somebody has changed since, or deleted. An API server that does not answer
    /// keeps nobody from launching: what it would say matters less than the machines.
    pub(crate) async fn changed(&mut self, due: &[Stored<Claim>]) -> BTreeSet<String> {
        let meant: BTreeMap<String, &NodeClassRecord> =
            due.iter().filter_map(|claim| self.facts.class_of(&claim.value)).map(|record| (record.name(), record)).collect();
        let (ports, cluster) = (self.ports, self.cluster);
        let asked = meant.into_iter().map(|(name, record)| async move {
            let sought = if record.class.is_converted_template() { Sought::NodeTemplate } else { Sought::NodeClass };
            (name, record, ports.cluster().seek(cluster, sought, &record.class.metadata.name).await)
        });
        let mut changed = BTreeSet::new();
        for (name, record, answer) in join_all(asked).await {
            match answer {
                Ok(presence) if is_other(record, &presence) => {
                    changed.insert(name);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%cluster, class = %name, %error, "it is not known whether the class was changed: launches go by its last look");
                    self.report.count("classes_unseen");
                }
            }
        }
        changed
    }

    /// Has changed classes looked at, once for the claims that wait for it: should that get lost, `sweep` asks for it again.
    pub(crate) async fn look(&self, due: &[Stored<Claim>]) -> Result<(), HandleError> {
        let waits = |claim: &Claim| self.facts.class_of(claim).is_some_and(|record| self.facts.changed.contains(&record.name()));
        if due.iter().any(|claim| waits(&claim.value) && !has_waited(&claim.value)) {
            self.ports.queues().ring(Doorbell::Refresh { cluster: self.cluster.clone() }, SignedDuration::ZERO).await?;
        }
        Ok(())
    }
}

/// Whether the cluster has another class, or another spec of it, than was looked at. Pure.
fn is_other(record: &NodeClassRecord, presence: &Presence) -> bool {
    let known = &record.class.metadata;
    match presence {
        Presence::There { uid, generation, .. } => {
            let other = !uid.is_empty() && !known.uid.is_empty() && *uid != known.uid;
            other || generation.is_some() && known.generation.is_some() && *generation != known.generation
        }
        // `refresh` makes sure, and closes what is stored.
        Presence::Gone => true,
        Presence::KindUnknown => false,
    }
}

/// Whether an earlier run has said of a claim that it waits for its class.
fn has_waited(claim: &Claim) -> bool {
    let said = conditions::find(&claim.conditions, LAUNCHED);
    said.is_some_and(|said| said.reason == CreateReason::NodeClassReadinessUnknown.as_str())
}
