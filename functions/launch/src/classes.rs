//! Whether the stored classes are still those of the cluster: a stored class is as old as its last refresh.

use crate::plan::Facts;
use crate::{Rights, Run};
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions::{self, LAUNCHED};
use whittle_claims::{Claim, Doorbell, NodeClassRecord, Record, Stored};
use whittle_ec2::errors::CreateReason;
use whittle_ports::{ClusterReader, HandleError, ObjectKind, Presence, Queues, Report};
use whittle_units::ClusterName;

/// The stored classes of these claims that have been changed or deleted since their refresh. An API server that does not
/// respond blocks no launch: capacity matters more than the latest spec.
pub(crate) async fn changed<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    facts: &Facts,
    due: &[Stored<Claim>],
    report: &mut Report,
) -> BTreeSet<String> {
    let meant: BTreeMap<String, &NodeClassRecord> =
        due.iter().filter_map(|claim| facts.class_of(&claim.value)).map(|record| (record.name(), record)).collect();
    let lookups = meant.into_iter().map(|(name, record)| async move {
        let kind = if record.class.is_converted_template() { ObjectKind::NodeTemplate } else { ObjectKind::NodeClass };
        (name, record, ports.cluster().look_up(cluster, kind, &record.class.metadata.name).await)
    });
    let mut changed = BTreeSet::new();
    for (name, record, answer) in join_all(lookups).await {
        match answer {
            Ok(presence) if has_changed(record, &presence) => {
                changed.insert(name);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%cluster, class = %name, %error, "cannot check whether the class has changed: launching from its last refresh");
                report.count("classes_unseen");
            }
        }
    }
    changed
}

impl<P: Rights> Run<'_, P> {
    /// Requests a refresh of changed classes, once for the claims that wait for it. If the request is lost, `sweep` repeats it.
    pub(crate) async fn request_refresh(&self, due: &[Stored<Claim>]) -> Result<(), HandleError> {
        let waits = |claim: &Claim| self.facts.class_of(claim).is_some_and(|record| self.facts.changed.contains(&record.name()));
        if due.iter().any(|claim| waits(&claim.value) && !has_waited(&claim.value)) {
            self.ports.queues().send_now(Doorbell::Refresh { cluster: self.cluster.clone() }).await?;
        }
        Ok(())
    }
}

/// Whether the cluster has another class, or another spec of it, than the stored one. Pure.
fn has_changed(record: &NodeClassRecord, presence: &Presence) -> bool {
    let known = &record.class.metadata;
    match presence {
        Presence::Exists { uid, generation, .. } => {
            let other = !uid.is_empty() && !known.uid.is_empty() && *uid != known.uid;
            other || generation.is_some() && known.generation.is_some() && *generation != known.generation
        }
        // `refresh` confirms it and closes the stored class.
        Presence::NotFound => true,
        Presence::KindNotServed => false,
    }
}

/// Whether an earlier run has recorded that a claim waits for its class.
fn has_waited(claim: &Claim) -> bool {
    let launched = conditions::find(&claim.conditions, LAUNCHED);
    launched.is_some_and(|launched| launched.reason == CreateReason::NodeClassReadinessUnknown.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a stored class of this uid and generation is another one than what the API server shows.
    fn changed((uid, generation): (&str, Option<i64>), shown: (&str, Option<i64>)) -> bool {
        let mut record = whittle_testkit::resolved_class("default");
        (record.class.metadata.uid, record.class.metadata.generation) = (uid.to_owned(), generation);
        has_changed(&record, &Presence::Exists { uid: shown.0.to_owned(), generation: shown.1, provider_id: String::new() })
    }

    /// What one side does not know says nothing: claims would wait for a refresh that changes nothing.
    #[test]
    fn a_class_has_changed_if_both_sides_know_its_uid_or_generation_and_it_differs() {
        assert!(!changed(("a", Some(1)), ("a", Some(1))));
        assert!(changed(("a", Some(1)), ("b", Some(1))), "it was made anew");
        assert!(changed(("a", Some(1)), ("a", Some(2))) && changed(("a", Some(2)), ("a", Some(1))), "its spec was changed");
        for (known, shown) in [(("a", Some(1)), ("", None)), (("", None), ("a", Some(1))), (("", None), ("", None))] {
            assert!(!changed(known, shown), "{known:?} {shown:?}");
        }
        assert!(changed(("", Some(1)), ("a", Some(2))) && changed(("a", None), ("b", Some(1))), "the other one is known");
    }

    #[test]
    fn a_class_that_is_gone_has_changed_and_one_whose_kind_is_not_served_has_not() {
        let record = whittle_testkit::resolved_class("default");
        assert!(has_changed(&record, &Presence::NotFound));
        assert!(!has_changed(&record, &Presence::KindNotServed));
    }
}
