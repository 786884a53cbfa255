//! Snapshots.

use crate::door::{Ask, Clusters};
use crate::errors::Class;
use crate::path;
use futures::try_join;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Kind, Node, Pod, VolumeAttachment};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::legacy::{self, AwsNodeTemplate, BetaNodeClaim, BetaNodeClass, BetaNodePool, LegacyObject, Provisioner};
use whittle_api::manifest::Object;
use whittle_ports::{ClusterAccess, ClusterError, ClusterReader, Scope};
use whittle_units::ClusterName;

/// Objects per page: about 5 MB of pods, of which a slim snapshot keeps a tenth.
const PAGE: u32 = 1000;
/// A list that takes longer than the server keeps its revision starts again; twice in a row means that it never ends.
const RESTARTS_MAX: u32 = 2;

/// How fresh a list has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// The newest state, as an etcd read would give it. A pod that is bound already must not get a second machine, and
    /// a node that joined must not count as missing. Servers from 1.31 on answer this from their watch cache as well.
    Newest,
    /// Whatever the server's watch cache holds (`resourceVersion=0`), some milliseconds behind as a rule: for what
    /// rarely changes, and for budgets, which the eviction API asks again by itself. Not paged: the cache answers whole.
    Cached,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Vec::new", deserialize_with = "null_as_empty")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMeta {
    #[serde(rename = "continue")]
    continue_token: String,
}

/// The API server writes `null` for an empty list of some kinds.
fn null_as_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// An item that is parsed only after its list, so that one odd object does not hide all others.
struct Lenient<T>(Result<T, String>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(Self(serde_json::from_value(value).map_err(|error| format!("{name}: {error}"))))
    }
}

/// Reads a page straight into our types: as JSON values it would take ten times the memory. Only a page with an odd
/// object goes that way, and loses that object alone.
fn parse<K: Kind + DeserializeOwned>(text: &str, cluster: &ClusterName) -> Result<List<K>, serde_json::Error> {
    if let Ok(page) = serde_json::from_str(text) {
        return Ok(page);
    }
    let page: List<Lenient<K>> = serde_json::from_str(text)?;
    let log = |error: &String| tracing::error!(%cluster, kind = K::KIND, %error, "an object is left out");
    let items = page.items.into_iter().filter_map(|item| item.0.inspect_err(log).ok()).collect();
    Ok(List { metadata: page.metadata, items })
}

fn page_query(fresh: Fresh, selector: Option<&str>, continue_token: &str) -> String {
    let mut query = match fresh {
        Fresh::Newest => format!("limit={PAGE}"),
        Fresh::Cached => "resourceVersion=0".to_owned(),
    };
    if let Some(selector) = selector {
        query += "&fieldSelector=";
        query += &selector.replace('=', "%3D").replace('!', "%21").replace(',', "%2C");
    }
    if !continue_token.is_empty() {
        query += "&continue=";
        query += &continue_token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('/', "%2F");
    }
    query
}

impl<A: ClusterAccess> Clusters<A> {
    /// All objects of a kind; `None` when the cluster does not know the kind.
    async fn list_known<K: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        fresh: Fresh,
        selector: Option<&str>,
    ) -> Result<Option<Vec<K>>, ClusterError> {
        let what = format!("{} of {}", K::PLURAL, K::API_VERSION);
        let mut restarts = 0;
        let mut items = Vec::new();
        let mut continue_token = String::new();
        loop {
            let path = format!("{}?{}", path::collection::<K>(""), page_query(fresh, selector, &continue_token));
            match self.send_text(cluster, &Ask::get(path)).await {
                Ok(text) => {
                    let page: List<K> = parse(&text, cluster).map_err(|error| ClusterError::Unavailable {
                        cluster: cluster.clone(),
                        what: what.clone(),
                        message: error.to_string(),
                    })?;
                    items.extend(page.items);
                    continue_token = page.metadata.continue_token;
                    if continue_token.is_empty() {
                        return Ok(Some(items));
                    }
                }
                Err(failed) if failed.class() == Some(Class::NotFound) => return Ok(None),
                Err(failed) if failed.class() == Some(Class::Expired) && restarts < RESTARTS_MAX => {
                    restarts += 1;
                    items.clear();
                    continue_token.clear();
                }
                Err(failed) => return Err(failed.into_error(cluster, &what)),
            }
        }
    }
}

impl<A: ClusterAccess> Clusters<A> {
    /// All objects of a kind; none when the cluster does not know the kind.
    pub(crate) async fn list<K: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        fresh: Fresh,
        selector: Option<&str>,
    ) -> Result<Vec<K>, ClusterError> {
        Ok(self.list_known(cluster, fresh, selector).await?.unwrap_or_default())
    }

    /// Objects of the served version of a kind; those of the version before where only that one is known.
    async fn list_versions<K, B>(
        &self,
        cluster: &ClusterName,
        of_v1: impl Fn(Box<K>) -> Object,
        of_beta: impl Fn(Box<B>) -> LegacyObject,
    ) -> Result<Vec<Object>, ClusterError>
    where
        K: Kind + DeserializeOwned + Send,
        B: Kind + DeserializeOwned + Send,
    {
        if let Some(objects) = self.list_known::<K>(cluster, Fresh::Newest, None).await? {
            return Ok(objects.into_iter().map(|object| of_v1(Box::new(object))).collect());
        }
        let objects = self.list::<B>(cluster, Fresh::Newest, None).await?;
        Ok(objects.into_iter().map(|object| Object::Legacy(of_beta(Box::new(object)))).collect())
    }

    /// NodePools, node classes and NodeClaims, old versions converted. They are read together, because a pool's
    /// settings can move to the class that it names.
    async fn read_karpenter(&self, cluster: &ClusterName, into: &mut ClusterObjects) -> Result<(), ClusterError> {
        let (pools, classes, claims, provisioners, templates) = try_join!(
            self.list_versions::<NodePool, BetaNodePool>(cluster, Object::NodePool, LegacyObject::NodePool),
            self.list_versions::<Ec2NodeClass, BetaNodeClass>(cluster, Object::NodeClass, LegacyObject::NodeClass),
            self.list_versions::<NodeClaim, BetaNodeClaim>(cluster, Object::NodeClaim, LegacyObject::NodeClaim),
            self.list::<Provisioner>(cluster, Fresh::Newest, None),
            self.list::<AwsNodeTemplate>(cluster, Fresh::Newest, None),
        )?;
        let mut objects: Vec<Object> = pools.into_iter().chain(classes).chain(claims).collect();
        objects.extend(provisioners.into_iter().map(|object| Object::Legacy(LegacyObject::Provisioner(Box::new(object)))));
        objects.extend(templates.into_iter().map(|object| Object::Legacy(LegacyObject::AwsNodeTemplate(Box::new(object)))));
        let converted = legacy::convert(objects, &self.convert);
        for note in &converted.warnings {
            tracing::warn!(%cluster, object = %note.object, "{}", note.text);
        }
        for error in &converted.errors {
            tracing::error!(%cluster, %error, "an object of an old version is left out");
        }
        for object in converted.objects {
            into.insert(object);
        }
        Ok(())
    }

    async fn read_all(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let mut objects = ClusterObjects::default();
        let (newest, cached) = (Fresh::Newest, Fresh::Cached);
        let (nodes, pods, daemon_sets, disruption_budgets, namespaces, priority_classes) = try_join!(
            self.list(cluster, newest, None),
            self.list(cluster, newest, None),
            self.list(cluster, cached, None),
            self.list(cluster, cached, None),
            self.list(cluster, cached, None),
            self.list(cluster, cached, None),
        )?;
        let (volume_claims, volumes, storage_classes, csi_nodes, volume_attachments, node_overlays, capacity_buffers) = try_join!(
            // A volume claim that was bound a moment ago decides about a zone.
            self.list(cluster, newest, None),
            self.list(cluster, newest, None),
            self.list(cluster, cached, None),
            self.list(cluster, cached, None),
            self.list(cluster, cached, None),
            // Custom kinds have no cache for a moment after their definition, and few objects ever.
            self.list(cluster, newest, None),
            self.list(cluster, newest, None),
        )?;
        self.read_karpenter(cluster, &mut objects).await?;
        Ok(ClusterObjects {
            nodes,
            pods,
            daemon_sets,
            disruption_budgets,
            namespaces,
            priority_classes,
            volume_claims,
            volumes,
            storage_classes,
            csi_nodes,
            volume_attachments,
            node_overlays,
            capacity_buffers,
            ..objects
        })
    }

    async fn read_nodes(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let mut objects = ClusterObjects { nodes: self.list(cluster, Fresh::Newest, None).await?, ..ClusterObjects::default() };
        self.read_karpenter(cluster, &mut objects).await?;
        Ok(objects)
    }

    async fn read_drain(&self, cluster: &ClusterName, name: &str) -> Result<ClusterObjects, ClusterError> {
        let selector = on_node(name);
        let (node, pods, disruption_budgets, attachments) = try_join!(
            self.one_node(cluster, name),
            self.list::<Pod>(cluster, Fresh::Newest, Some(&selector)),
            self.list(cluster, Fresh::Cached, None),
            // The wait for them ends with the last one, so an old list would end it early.
            self.list::<VolumeAttachment>(cluster, Fresh::Newest, None),
        )?;
        let volume_attachments: Vec<_> = attachments.into_iter().filter(|attachment| attachment.spec.node_name == name).collect();
        // Claims tell which attached volumes belong to pods that stay: needed only while something is attached.
        let volume_claims = if volume_attachments.is_empty() { vec![] } else { self.list(cluster, Fresh::Cached, None).await? };
        let nodes = node.into_iter().collect();
        Ok(ClusterObjects { nodes, pods, disruption_budgets, volume_attachments, volume_claims, ..ClusterObjects::default() })
    }

    async fn read_pods(&self, cluster: &ClusterName, node: &str) -> Result<ClusterObjects, ClusterError> {
        let pods = self.list::<Pod>(cluster, Fresh::Newest, Some(&on_node(node))).await?;
        Ok(ClusterObjects { pods, ..ClusterObjects::default() })
    }

    async fn one_node(&self, cluster: &ClusterName, name: &str) -> Result<Option<Node>, ClusterError> {
        match self.send(cluster, &Ask::get(path::object::<Node>("", name))).await {
            Ok(node) => Ok(Some(node)),
            Err(failed) if failed.class() == Some(Class::NotFound) => Ok(None),
            Err(failed) => Err(failed.into_error(cluster, &format!("Node {name:?}"))),
        }
    }
}

/// The field selector for what is on a node.
fn on_node(name: &str) -> String {
    format!("spec.nodeName={name}")
}

impl<A: ClusterAccess> ClusterReader for Clusters<A> {
    async fn read(&self, cluster: &ClusterName, scope: Scope, node: Option<&str>) -> Result<ClusterObjects, ClusterError> {
        match (scope, node) {
            (Scope::All, _) => self.read_all(cluster).await,
            (Scope::Nodes, _) => self.read_nodes(cluster).await,
            (Scope::Drain, Some(name)) => self.read_drain(cluster, name).await,
            (Scope::Pods, Some(name)) => self.read_pods(cluster, name).await,
            (Scope::Drain | Scope::Pods, None) => Ok(ClusterObjects::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_ask_for_the_newest_state_and_caches_for_all_at_once() {
        assert_eq!(page_query(Fresh::Newest, None, ""), "limit=1000");
        assert_eq!(page_query(Fresh::Newest, None, "eyJ2=="), "limit=1000&continue=eyJ2%3D%3D");
        assert_eq!(page_query(Fresh::Cached, Some("spec.nodeName=n1"), ""), "resourceVersion=0&fieldSelector=spec.nodeName%3Dn1");
    }

    #[test]
    fn an_odd_object_does_not_hide_the_others() {
        let text = r#"{"metadata":{"continue":"next"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b","labels":[]}},{"metadata":{"name":"c"}}]}"#;
        let page: List<Node> = parse(text, &ClusterName::new("c")).expect("a list");
        assert_eq!(page.metadata.continue_token, "next");
        assert_eq!(page.items.iter().map(|node| node.metadata.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        assert!(parse::<Node>(r#"{"items":null}"#, &ClusterName::new("c")).expect("an empty list").items.is_empty());
        assert!(parse::<Node>("<html>", &ClusterName::new("c")).is_err());
    }
}
