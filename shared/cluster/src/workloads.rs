//! Workloads: the selectors of all, and the pod templates of single ones.

use crate::connection::{ApiRequest, Clusters};
use crate::errors::Class;
use crate::pages::Consistency;
use crate::path;
use futures::try_join;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use whittle_api::k8s::{Deployment, Kind, PodSource, PodSourceKind, ReplicaSet, Service, StatefulSet, StoredPodTemplate, Workloads};
use whittle_api::{LabelSelector, ObjectMeta, Unreadable};
use whittle_ports::{ClusterAccess, ClusterError, WorkloadReader};
use whittle_units::ClusterName;

/// A workload with its selector only: templates may be most of a list's size, because every revision of a Deployment has one.
#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de>"))]
struct SelectorOnly<S, K> {
    metadata: ObjectMeta,
    spec: SelectorOnlySpec<S>,
    #[serde(skip)]
    kind: std::marker::PhantomData<K>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de>"))]
struct SelectorOnlySpec<S> {
    #[serde(default = "Option::default")]
    selector: Option<S>,
}

impl<S, K: Kind> Kind for SelectorOnly<S, K> {
    const API_VERSION: &'static str = K::API_VERSION;
    const KIND: &'static str = K::KIND;
    const PLURAL: &'static str = K::PLURAL;
    const NAMESPACED: bool = K::NAMESPACED;
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Only the kind's names are used; the list is parsed as [`SelectorOnly`].
#[derive(Deserialize)]
struct ReplicationController {
    metadata: ObjectMeta,
}

impl Kind for ReplicationController {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "ReplicationController";
    const PLURAL: &'static str = "replicationcontrollers";
    const NAMESPACED: bool = true;
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Joins the listed objects.
fn joined(
    services: Vec<Service>,
    sets: Vec<(String, Option<LabelSelector>)>,
    controllers: Vec<(String, Option<BTreeMap<String, String>>)>,
) -> Workloads {
    let services = services.into_iter().filter(|service| !service.spec.selector.is_empty());
    let plain = |pairs| LabelSelector { match_labels: pairs, ..LabelSelector::default() };
    let controllers = controllers.into_iter().filter_map(|(uid, pairs)| Some((uid, plain(pairs?))));
    Workloads {
        services: services.map(|service| (service.metadata.namespace, service.metadata.name, service.spec.selector)).collect(),
        owners: sets.into_iter().filter_map(|(uid, selector)| Some((uid, selector?))).chain(controllers).collect(),
    }
}

fn selector_of<S, K>(object: SelectorOnly<S, K>) -> (String, Option<S>) {
    (object.metadata.uid, object.spec.selector)
}

impl<A: ClusterAccess> Clusters<A> {
    /// The object of this name, if there is one; what is wrong with it if it cannot be read.
    async fn one<K: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<K, String>>, ClusterError> {
        if !path::is_name(name) {
            return Ok(None);
        }
        let object: Value = match self.send(cluster, &ApiRequest::get(path::object::<K>(namespace, name))).await {
            Ok(object) => object,
            Err(failed) if failed.class() == Some(Class::NotFound) => return Ok(None),
            Err(failed) => return Err(failed.into_error(cluster, &format!("{} {namespace}/{name}", K::KIND))),
        };
        // An API server that answers with what we cannot read is there, and others need not wait for it.
        Ok(Some(Unreadable::read(&object).map_err(|odd| odd.remedy())))
    }
}

impl<A: ClusterAccess> WorkloadReader for Clusters<A> {
    async fn selectors(&self, cluster: &ClusterName) -> Result<Workloads, ClusterError> {
        let cached = Consistency::Cached;
        let (services, replica_sets, stateful_sets, controllers) = try_join!(
            self.list_readable::<Service>(cluster, cached, None),
            self.list_readable::<SelectorOnly<LabelSelector, ReplicaSet>>(cluster, cached, None),
            self.list_readable::<SelectorOnly<LabelSelector, StatefulSet>>(cluster, cached, None),
            self.list_readable::<SelectorOnly<BTreeMap<String, String>, ReplicationController>>(cluster, cached, None),
        )?;
        let sets = replica_sets.into_iter().map(selector_of).chain(stateful_sets.into_iter().map(selector_of)).collect();
        Ok(joined(services, sets, controllers.into_iter().map(selector_of).collect()))
    }

    async fn pod_source(
        &self,
        cluster: &ClusterName,
        kind: PodSourceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<PodSource, String>>, ClusterError> {
        Ok(match kind {
            PodSourceKind::PodTemplate => {
                self.one::<StoredPodTemplate>(cluster, namespace, name).await?.map(|read| read.map(PodSource::of_template))
            }
            PodSourceKind::Deployment => {
                let found = self.one::<Deployment>(cluster, namespace, name).await?;
                found.map(|read| read.map(|o| PodSource::of_workload(&o.metadata, o.spec)))
            }
            PodSourceKind::ReplicaSet => {
                let found = self.one::<ReplicaSet>(cluster, namespace, name).await?;
                found.map(|read| read.map(|o| PodSource::of_workload(&o.metadata, o.spec)))
            }
            PodSourceKind::StatefulSet => {
                let found = self.one::<StatefulSet>(cluster, namespace, name).await?;
                found.map(|read| read.map(|o| PodSource::of_workload(&o.metadata, o.spec)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_parsed_without_templates_and_a_missing_selector_selects_nothing() {
        let service = |name: &str, selector: serde_json::Value| {
            serde_json::from_value::<Service>(
                serde_json::json!({"metadata": {"namespace": "a", "name": name}, "spec": {"selector": selector}}),
            )
            .expect("a service")
        };
        let text = r#"{"metadata":{"uid":"r"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"spec":{"containers":"any"}}}}"#;
        let set: SelectorOnly<LabelSelector, ReplicaSet> = serde_json::from_str(text).expect("its template is not parsed");
        let text = r#"{"metadata":{"uid":"c"},"spec":{"selector":{"app":"old"}}}"#;
        let controller: SelectorOnly<BTreeMap<String, String>, ReplicationController> = serde_json::from_str(text).expect("a controller");
        let services = vec![service("web", serde_json::json!({"app": "web"})), service("external", serde_json::Value::Null)];
        let workloads = joined(services, vec![selector_of(set), ("none".to_owned(), None)], vec![selector_of(controller)]);
        assert_eq!(workloads.services.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>(), ["web"]);
        assert_eq!(workloads.owners.keys().collect::<Vec<_>>(), ["c", "r"]);
        assert_eq!(workloads.owners["c"].match_labels["app"], "old");
        assert_eq!(SelectorOnly::<LabelSelector, ReplicaSet>::PLURAL, "replicasets");
    }
}
