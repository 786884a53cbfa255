//! Reads the objects of a cluster.

use crate::catch_up::All;
use crate::connection::{ApiRequest, Clusters};
use crate::errors::Class;
use crate::kept::Followed;
use crate::pages::{Consistency, Listed, parse, parse_versions};
use crate::path;
use crate::quiet::together;
use futures::try_join;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use whittle_api::k8s::{ClaimReference, Kind, Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::legacy::{self, AwsNodeTemplate, BetaNodeClaim, BetaNodeClass, BetaNodePool, LegacyObject, Provisioner, Versioned};
use whittle_api::manifest::Object;
use whittle_api::{ClusterObjects, ObjectMeta, Pool, Unreadable};
use whittle_ports::{ClusterAccess, ClusterError, ClusterReader, ObjectKind, Presence, Scope};
use whittle_units::{ClusterName, Timestamp};

/// Claims of volumes on one node that are read by their names. No node has as many volumes attached, and whoever may create a pod may have
/// it name thousands that do not exist.
const CLAIMS_MAX: usize = 256;
/// The longest that reading one small object by name may take.
const ONE_OBJECT_MAX: Duration = Duration::from_secs(3);

impl<A: ClusterAccess> Clusters<A> {
    /// Objects of a kind that v1beta1 has as well, each in the version in which it was written. Where v1 is not served they are read as
    /// v1beta1; `None` where neither is.
    async fn list_versions<K: Versioned>(&self, cluster: &ClusterName) -> Result<Option<Listed<Object>>, ClusterError> {
        if let Some(listed) =
            Box::pin(self.list_pages::<K, Object>(cluster, Consistency::Newest, None, parse_versions::<K>, &mut Pool::default())).await?
        {
            return Ok(Some(listed));
        }
        let old = self.list_known::<K::Before>(cluster, Consistency::Newest, None).await?;
        Ok(old.map(|listed| listed.map(K::before_into_object)))
    }

    /// The same of NodeClaims, of which there are as many as machines.
    async fn list_node_claims(&self, cluster: &ClusterName) -> Result<Option<Listed<Object>>, ClusterError> {
        if let Some(all) = Box::pin(self.list_followed::<NodeClaim, Object>(cluster, parse_versions::<NodeClaim>)).await? {
            let mut listed = Listed::default();
            listed.items = all.into_items(&mut listed.unreadable).into_inner();
            return Ok(Some(listed));
        }
        self.list_versions::<NodeClaim>(cluster).await
    }

    /// All objects of a kind whose changes are followed; empty when the API server does not serve it.
    pub(crate) async fn followed<K: Kind + DeserializeOwned + Followed>(&self, cluster: &ClusterName) -> Result<All<K>, ClusterError> {
        Ok(self.followed_known(cluster).await?.unwrap_or_default())
    }

    /// The same; `None` when the API server does not serve it.
    async fn followed_known<K: Kind + DeserializeOwned + Followed>(&self, cluster: &ClusterName) -> Result<Option<All<K>>, ClusterError> {
        Box::pin(self.list_followed::<K, K>(cluster, parse::<K>)).await
    }

    /// Objects of a kind that was replaced by another.
    async fn list_old<B: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        of: impl Fn(Box<B>) -> LegacyObject,
    ) -> Result<Option<Listed<Object>>, ClusterError> {
        let old = self.list_known::<B>(cluster, Consistency::Newest, None).await?;
        Ok(old.map(|listed| listed.map(|object| Object::Legacy(of(Box::new(object))))))
    }

    /// NodePools, node classes and NodeClaims, old versions converted. They are read together, because a pool's
    /// settings can move to the class that it names.
    pub(crate) async fn read_karpenter(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let (pools, classes, claims, provisioners, templates) = try_join!(
            self.list_versions::<NodePool>(cluster),
            self.list_versions::<Ec2NodeClass>(cluster),
            self.list_node_claims(cluster),
            self.list_old::<Provisioner>(cluster, LegacyObject::Provisioner),
            self.list_old::<AwsNodeTemplate>(cluster, LegacyObject::AwsNodeTemplate),
        )?;
        let mut into = ClusterObjects::default();
        let mut objects: Vec<Object> = Vec::new();
        let kinds = [NodePool::KIND, Ec2NodeClass::KIND, NodeClaim::KIND, Provisioner::KIND, AwsNodeTemplate::KIND];
        for (kind, listed) in kinds.into_iter().zip([pools, classes, claims, provisioners, templates]) {
            match listed {
                Some(listed) => objects.extend(listed.into_items(&mut into.unreadable)),
                None => into.absent_kinds.push(kind.to_owned()),
            }
        }
        self.convert(cluster, objects, &mut into);
        Ok(into)
    }

    /// Converts old objects to the current kinds. One that has no equivalent is kept as unreadable.
    fn convert(&self, cluster: &ClusterName, objects: Vec<Object>, into: &mut ClusterObjects) {
        let old: Vec<LegacyIdentity> = objects.iter().filter_map(legacy_identity).collect();
        let converted = legacy::convert(objects, &self.convert);
        for note in &converted.warnings {
            tracing::warn!(%cluster, object = %note.object, "{}", note.text);
        }
        for error in &converted.errors {
            tracing::error!(%cluster, %error, "an object of an old version cannot be converted");
            if let Some(old) = old.iter().find(|old| old.name == error.object) {
                into.unreadable.push(Unreadable::refused(old.api_version, old.kind, old.metadata.clone(), &error.field, &error.message));
            }
        }
        for object in converted.objects {
            into.insert(object);
        }
    }

    async fn read_all(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let looked_at = self.clock.now();
        self.forget_seldom(cluster).await;
        let (nodes, seldom, often) = try_join!(self.followed_known::<Node>(cluster), self.read_seldom(cluster), self.read_often(cluster))?;
        self.keep_seldom(cluster, looked_at, &seldom).await;
        let mut often = often.objects;
        let nodes = known_nodes(nodes, &mut often);
        Ok(together(nodes, seldom, often))
    }

    /// The objects, and the signs of Karpenter beside them.
    async fn with_karpenter(
        &self,
        cluster: &ClusterName,
        objects: impl Future<Output = Result<ClusterObjects, ClusterError>> + Send,
    ) -> Result<ClusterObjects, ClusterError> {
        let (objects, karpenter) = try_join!(objects, self.karpenter(cluster))?;
        Ok(ClusterObjects { karpenter, ..objects })
    }

    /// The same of a quiet look.
    async fn with_karpenter_if_kept(
        &self,
        cluster: &ClusterName,
        kept: impl Future<Output = Result<Option<ClusterObjects>, ClusterError>> + Send,
    ) -> Result<Option<ClusterObjects>, ClusterError> {
        let Some(objects) = kept.await? else { return Ok(None) };
        self.with_karpenter(cluster, std::future::ready(Ok(objects))).await.map(Some)
    }

    async fn read_nodes(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let (nodes, mut objects) = try_join!(self.followed_known::<Node>(cluster), self.read_karpenter(cluster))?;
        let nodes = known_nodes(nodes, &mut objects);
        objects.nodes = nodes.into_items(&mut objects.unreadable).into_inner();
        Ok(objects)
    }

    async fn read_nodes_and_claims(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let (nodes, claims) = try_join!(self.followed_known::<Node>(cluster), self.list_node_claims(cluster))?;
        let mut objects = ClusterObjects::default();
        match claims {
            Some(claims) => {
                let claims = claims.into_items(&mut objects.unreadable);
                self.convert(cluster, claims, &mut objects);
            }
            None => objects.absent_kinds.push(NodeClaim::KIND.to_owned()),
        }
        let nodes = known_nodes(nodes, &mut objects);
        objects.nodes = nodes.into_items(&mut objects.unreadable).into_inner();
        Ok(objects)
    }

    async fn read_drain(&self, cluster: &ClusterName, name: &str) -> Result<ClusterObjects, ClusterError> {
        let (node, pods) = try_join!(self.one_object::<Node>(cluster, "", name), self.pods_on(cluster, name))?;
        let mut unreadable = Vec::new();
        Ok(ClusterObjects {
            nodes: node.into_items(&mut unreadable),
            pods: pods.into_items(&mut unreadable).into(),
            unreadable,
            ..ClusterObjects::default()
        })
    }

    async fn read_volumes(&self, cluster: &ClusterName, name: &str) -> Result<ClusterObjects, ClusterError> {
        // Draining waits until the last attachment is deleted, so a stale list could end the wait early.
        let attachments = self.followed_known::<VolumeAttachment>(cluster).await?;
        let attachments = attachments.ok_or_else(|| not_served(cluster, format!("the volumes attached to {name}")))?;
        let of_node = attachments.items.iter().filter(|attachment| attachment.spec.node_name == name);
        let volume_attachments: Vec<VolumeAttachment> = of_node.cloned().collect();
        let mut unreadable = attachments.unreadable;
        unreadable.retain(|attachment| attachment.node_name == name);
        // Volume claims show which attached volumes belong to pods that are not evicted: needed only while a volume is attached.
        let volume_claims = if volume_attachments.is_empty() {
            vec![]
        } else {
            self.claims_on(cluster, name, &volume_attachments).await?.into_items(&mut unreadable)
        };
        Ok(ClusterObjects { volume_attachments, volume_claims: volume_claims.into(), unreadable, ..ClusterObjects::default() })
    }

    /// The volume claims of the pods on a node. These are few, and the cluster's may be tens of thousands. Of many, those of attached
    /// volumes.
    async fn claims_on(
        &self,
        cluster: &ClusterName,
        node: &str,
        attached: &[VolumeAttachment],
    ) -> Result<Listed<PersistentVolumeClaim>, ClusterError> {
        let listed = self.list::<Pod>(cluster, Consistency::Newest, Some(&on_node(node))).await?;
        let pods = listed.items.iter().chain(listed.unreadable.iter().filter_map(|odd| odd.pod.as_deref()));
        let named = pods.flat_map(|pod| pod.volume_claim_names().map(move |name| (pod.metadata.namespace.as_str(), name)));
        let mut named: BTreeSet<(&str, String)> = named.filter(|(_, name)| path::is_name(name)).collect();
        if named.len() > CLAIMS_MAX {
            let bound = self.claims_of(cluster, attached).await?;
            named.retain(|(namespace, name)| bound.iter().any(|claim| claim.namespace == *namespace && claim.name == *name));
        }
        let mut found = Listed::default();
        for (namespace, name) in named {
            let claim = self.one_object::<PersistentVolumeClaim>(cluster, namespace, &name).await?;
            found.items.extend(claim.items);
            found.unreadable.extend(claim.unreadable);
        }
        Ok(found)
    }

    /// The claims to which attached volumes are bound.
    async fn claims_of(&self, cluster: &ClusterName, attached: &[VolumeAttachment]) -> Result<Vec<ClaimReference>, ClusterError> {
        let names = attached.iter().map(|attachment| attachment.spec.source.persistent_volume_name.as_str());
        let names: BTreeSet<&str> = names.filter(|name| path::is_name(name)).collect();
        let mut claims = Vec::with_capacity(names.len());
        for name in names {
            let volume = self.one_object::<PersistentVolume>(cluster, "", name).await?;
            claims.extend(volume.items.into_iter().filter_map(|volume| volume.spec.claim_ref));
        }
        Ok(claims)
    }

    /// The pods on a node. Every API server has them: from one that says otherwise nothing follows, least of all that a drain has ended.
    async fn pods_on(&self, cluster: &ClusterName, node: &str) -> Result<Listed<Pod>, ClusterError> {
        let listed = self.list_known::<Pod>(cluster, Consistency::Newest, Some(&on_node(node))).await?;
        listed.ok_or_else(|| not_served(cluster, format!("the pods on {node}")))
    }

    async fn read_pods(&self, cluster: &ClusterName, node: &str) -> Result<ClusterObjects, ClusterError> {
        let mut objects = ClusterObjects::default();
        let pods = self.pods_on(cluster, node).await?;
        objects.pods = pods.into_items(&mut objects.unreadable).into();
        Ok(objects)
    }

    async fn read_unbound(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let newest = Consistency::Newest;
        let (pods, capacity_buffers, node_overlays) =
            try_join!(self.list(cluster, newest, Some(UNBOUND)), self.list(cluster, newest, None), self.list(cluster, newest, None))?;
        let mut unreadable = Vec::new();
        Ok(ClusterObjects {
            pods: pods.into_items(&mut unreadable).into(),
            capacity_buffers: capacity_buffers.into_items(&mut unreadable),
            node_overlays: node_overlays.into_items(&mut unreadable),
            unreadable,
            ..ClusterObjects::default()
        })
    }

    /// The object of this name, if it exists.
    async fn one_object<K: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        namespace: &str,
        name: &str,
    ) -> Result<Listed<K>, ClusterError> {
        let value: Option<Value> = match self.send(cluster, &ApiRequest::get(path::object::<K>(namespace, name))).await {
            Ok(object) => Some(object),
            Err(failed) if failed.class() == Some(Class::NotFound) => None,
            Err(failed) => return Err(failed.into_error(cluster, &format!("{} {name:?}", K::KIND))),
        };
        let (items, unreadable) = match value.as_ref().map(Unreadable::read) {
            Some(Ok(object)) => (vec![object], vec![]),
            Some(Err(unreadable)) => (vec![], vec![*unreadable]),
            None => (vec![], vec![]),
        };
        Ok(Listed { items, unreadable, ..Listed::default() })
    }

    /// Whether an object exists; looked up in the previous version where the current one is not served.
    async fn presence<K: Kind, B: Kind>(&self, cluster: &ClusterName, name: &str) -> Result<Presence, ClusterError> {
        match self.presence_in::<K>(cluster, name).await? {
            Presence::KindNotServed if K::API_VERSION != B::API_VERSION => self.presence_in::<B>(cluster, name).await,
            found => Ok(found),
        }
    }

    async fn presence_in<K: Kind>(&self, cluster: &ClusterName, name: &str) -> Result<Presence, ClusterError> {
        match self.send::<Value>(cluster, &ApiRequest::get(path::object::<K>("", name)).with_timeout(ONE_OBJECT_MAX)).await {
            Ok(found) => {
                let meta = &found["metadata"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let with_provider_id = if K::KIND == Node::KIND { &found["spec"] } else { &found["status"] };
                let (uid, provider_id) = (text(&meta["uid"]), text(&with_provider_id["providerID"]));
                Ok(Presence::Exists { uid, generation: meta["generation"].as_i64(), provider_id })
            }
            // A 404 with the object's name is about the object; one for an unserved kind has no name.
            Err(failed) if failed.class() == Some(Class::NotFound) => {
                Ok(if failed.object() == Some(name) { Presence::NotFound } else { Presence::KindNotServed })
            }
            Err(failed) => Err(failed.into_error(cluster, &format!("{} {name:?}", K::KIND))),
        }
    }
}

/// That an API server says that it lacks a kind which every one has.
fn not_served(cluster: &ClusterName, what: String) -> ClusterError {
    ClusterError::Unavailable { cluster: cluster.clone(), what, message: "it says that it does not know this kind".to_owned() }
}

/// The Nodes that were listed. From an API server that says that it lacks their kind it does not follow that any is gone.
fn known_nodes(listed: Option<All<Node>>, objects: &mut ClusterObjects) -> All<Node> {
    if listed.is_none() {
        objects.absent_kinds.push(Node::KIND.to_owned());
    }
    listed.unwrap_or_default()
}

/// An object of an old version, as it was before its conversion.
struct LegacyIdentity {
    /// As conversion errors name it.
    name: String,
    api_version: &'static str,
    kind: &'static str,
    metadata: ObjectMeta,
}

fn legacy_identity(object: &Object) -> Option<LegacyIdentity> {
    let Object::Legacy(old) = object else { return None };
    let (api_version, kind) = old.type_meta();
    Some(LegacyIdentity { name: format!("{kind} {:?}", old.meta().name), api_version, kind, metadata: old.meta().clone() })
}

/// The field selector for pods that are bound to no node.
const UNBOUND: &str = "spec.nodeName=";

/// The field selector for pods on a node.
fn on_node(name: &str) -> String {
    format!("spec.nodeName={name}")
}

impl<A: ClusterAccess> ClusterReader for Clusters<A> {
    async fn read(&self, cluster: &ClusterName, scope: Scope, node: Option<&str>) -> Result<ClusterObjects, ClusterError> {
        match (scope, node) {
            (Scope::All, _) => self.with_karpenter(cluster, Box::pin(self.read_all(cluster))).await,
            (Scope::Nodes, _) => self.with_karpenter(cluster, Box::pin(self.read_nodes(cluster))).await,
            (Scope::Karpenter, _) => self.with_karpenter(cluster, Box::pin(self.read_karpenter(cluster))).await,
            (Scope::NodesAndClaims, _) => Box::pin(self.read_nodes_and_claims(cluster)).await,
            (Scope::Drain, Some(name)) => self.read_drain(cluster, name).await,
            (Scope::Volumes, Some(name)) => self.read_volumes(cluster, name).await,
            (Scope::Pods, Some(name)) => self.read_pods(cluster, name).await,
            (Scope::Unbound, _) => self.read_unbound(cluster).await,
            (Scope::Drain | Scope::Volumes | Scope::Pods, None) => Ok(ClusterObjects::default()),
        }
    }

    async fn read_kept(&self, cluster: &ClusterName, scope: Scope) -> Result<Option<ClusterObjects>, ClusterError> {
        match scope {
            Scope::All => self.with_karpenter_if_kept(cluster, Box::pin(self.read_all_kept(cluster))).await,
            Scope::Nodes => self.with_karpenter_if_kept(cluster, Box::pin(self.read_nodes_kept(cluster))).await,
            _ => Ok(None),
        }
    }

    async fn departures(&self, cluster: &ClusterName) -> BTreeMap<String, Timestamp> {
        let kinds = self.keeper.of(cluster);
        let kept = Pod::slot(&kinds).lock().await;
        kept.as_ref().map(|kept| kept.departures.clone()).unwrap_or_default()
    }

    async fn look_up(&self, cluster: &ClusterName, kind: ObjectKind, name: &str) -> Result<Presence, ClusterError> {
        match kind {
            ObjectKind::NodePool => self.presence::<NodePool, BetaNodePool>(cluster, name).await,
            ObjectKind::Provisioner => self.presence::<Provisioner, Provisioner>(cluster, name).await,
            ObjectKind::NodeClaim => self.presence::<NodeClaim, BetaNodeClaim>(cluster, name).await,
            ObjectKind::NodeClass => self.presence::<Ec2NodeClass, BetaNodeClass>(cluster, name).await,
            ObjectKind::NodeTemplate => self.presence::<AwsNodeTemplate, AwsNodeTemplate>(cluster, name).await,
            ObjectKind::Node => self.presence::<Node, Node>(cluster, name).await,
        }
    }
}
