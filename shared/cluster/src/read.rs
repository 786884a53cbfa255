//! Reads the objects of a cluster.

use crate::catch_up::All;
use crate::connection::{ApiRequest, Clusters};
use crate::errors::Class;
use crate::kept::Followed;
use crate::path;
use crate::quiet::together;
use futures::try_join;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use whittle_api::k8s::{Kind, Node, PersistentVolumeClaim, Pod, VolumeAttachment};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::legacy::{self, AwsNodeTemplate, BetaNodeClaim, BetaNodeClass, BetaNodePool, LegacyObject, Provisioner, Versioned};
use whittle_api::manifest::Object;
use whittle_api::protobuf::{self, Page};
use whittle_api::{ClusterObjects, ObjectMeta, Pool, Unreadable};
use whittle_ports::{ClusterAccess, ClusterError, ClusterReader, ObjectKind, Presence, Scope};
use whittle_units::{ClusterName, Timestamp};

/// Objects per page in protobuf: about 14 MB of pods, of which a snapshot keeps a tenth. With pages of 1,000 a look takes half as
/// long again, since the server makes sure for each that it is up to date; larger ones take more memory of ours (SPECIFICATION P19).
const PAGE: u32 = 2500;
/// Of other kinds, whose objects take several times the memory while they are parsed.
const PAGE_OF_JSON: u32 = 1000;
/// The most bytes of a page, decompressed: one with more is read again in smaller ones. Whoever may create pods may make each of a
/// hundred times the usual size, by its annotations, and 2,500 of those do not fit into the memory of a function.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// By how much a page is made smaller, and how many objects one has at least: etcd takes 1.5 MB of each.
const PAGE_SHRINKS_BY: u32 = 10;
const PAGE_MIN: u32 = 10;
/// Restarts of a list whose continue token expired. After two it is assumed never to finish.
const RESTARTS_MAX: u32 = 2;
/// The longest that reading one small object by name may take.
const ONE_OBJECT_MAX: Duration = Duration::from_secs(3);

/// How current a list has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// The newest state, as from a quorum read of etcd. A pod that is bound already must not get a second machine, and
    /// a node that joined must not count as missing. Servers from 1.31 on serve this from their watch cache as well.
    Newest,
    /// Whatever the server's watch cache holds (`resourceVersion=0`), usually some milliseconds old: for objects that
    /// rarely change. Not paged: the cache returns whole lists.
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
    #[serde(rename = "resourceVersion")]
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: String,
}

impl ListMeta {
    /// The list of these objects.
    fn with<K>(self, items: Vec<K>) -> Listed<K> {
        Listed { items, unreadable: Vec::new(), version: self.resource_version, continue_token: self.continue_token }
    }
}

/// The API server writes `null` for an empty list of some kinds.
fn null_as_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// Objects of a kind, and those that cannot be parsed.
pub(crate) struct Listed<K> {
    pub(crate) items: Vec<K>,
    pub(crate) unreadable: Vec<Unreadable>,
    /// The resource version of the list.
    pub(crate) version: String,
    continue_token: String,
}

impl<K> Default for Listed<K> {
    fn default() -> Self {
        Self { items: Vec::new(), unreadable: Vec::new(), version: String::new(), continue_token: String::new() }
    }
}

impl<K> Listed<K> {
    fn map<T>(self, of: impl Fn(K) -> T) -> Listed<T> {
        let Self { items, unreadable, version, continue_token } = self;
        Listed { items: items.into_iter().map(of).collect(), unreadable, version, continue_token }
    }

    /// The objects; those that cannot be parsed are added to `unreadable`.
    pub(crate) fn into_items(self, unreadable: &mut Vec<Unreadable>) -> Vec<K> {
        unreadable.extend(self.unreadable);
        self.items
    }
}

/// Parses a page directly into our types: as JSON values it would take ten times the memory. Only a page with an object that
/// cannot be parsed is parsed as JSON values, and of such an object only the essentials are kept.
pub(crate) fn parse<K: Kind + DeserializeOwned>(page: &[u8], cluster: &ClusterName) -> Result<Listed<K>, String> {
    if let Some(message) = K::PROTOBUF.filter(|_| protobuf::is_protobuf(page)) {
        let page = protobuf::read_page(page, message).map_err(|error| error.to_string())?;
        let Page { items, unreadable, resource_version: version, continue_token } = page;
        unreadable.iter().for_each(|object| log(object, cluster));
        return Ok(Listed { items, unreadable, version, continue_token });
    }
    if let Ok(List { metadata, items }) = serde_json::from_slice::<List<K>>(page) {
        return Ok(metadata.with(items));
    }
    each(page, cluster, Unreadable::read::<K>)
}

/// The same for a kind that v1beta1 has as well, of which a server stores both versions as v1.
fn parse_versions<K: Versioned>(page: &[u8], cluster: &ClusterName) -> Result<Listed<Object>, String> {
    if let Ok(List { metadata, items }) = serde_json::from_slice::<List<K>>(page)
        && !items.iter().any(K::is_parsed_before)
    {
        let items = items.into_iter().map(K::into_object).collect();
        return Ok(metadata.with(items));
    }
    each(page, cluster, |value| {
        if K::is_before(value) {
            Unreadable::read::<K::Before>(value).map(K::before_into_object)
        } else {
            Unreadable::read::<K>(value).map(K::into_object)
        }
    })
}

/// Parses the objects of a page one by one.
fn each<T>(page: &[u8], cluster: &ClusterName, read: impl Fn(&Value) -> Result<T, Box<Unreadable>>) -> Result<Listed<T>, String> {
    let page: List<Value> = serde_json::from_slice(page).map_err(|error| error.to_string())?;
    let mut listed = page.metadata.with(Vec::new());
    for value in &page.items {
        match read(value) {
            Ok(item) => listed.items.push(item),
            Err(unreadable) => {
                log(&unreadable, cluster);
                listed.unreadable.push(*unreadable);
            }
        }
    }
    Ok(listed)
}

fn log(unreadable: &Unreadable, cluster: &ClusterName) {
    let kind = unreadable.kind.as_str();
    tracing::error!(%cluster, kind, object = %unreadable.metadata.key(), field = %unreadable.field, "{unreadable}");
}

/// How a page of objects is parsed.
pub(crate) type Parse<T> = fn(&[u8], &ClusterName) -> Result<Listed<T>, String>;

fn page_query(page: u32, consistency: Consistency, selector: Option<&str>, continue_token: &str) -> String {
    let mut query = match consistency {
        Consistency::Newest => format!("limit={page}"),
        Consistency::Cached => "resourceVersion=0".to_owned(),
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

/// The number of objects of the page after one of `bytes`: a few large objects do not make all pages small.
const fn size_after(size: u32, bytes: usize, most: u32) -> u32 {
    let doubled = size.saturating_mul(2);
    if bytes >= PAGE_BYTES_MAX / 4 {
        size
    } else if doubled < most {
        doubled
    } else {
        most
    }
}

impl<A: ClusterAccess> Clusters<A> {
    /// All objects of a kind; `None` when the API server does not serve the kind.
    async fn list_known<K: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        consistency: Consistency,
        selector: Option<&str>,
    ) -> Result<Option<Listed<K>>, ClusterError> {
        // On the heap, as below: twenty of these run at once.
        Box::pin(self.list_pages::<K, K>(cluster, consistency, selector, parse, &mut Pool::default())).await
    }

    /// The same with the objects as `parse` makes them. They share equal values with what `pool` has.
    pub(crate) async fn list_pages<K: Kind, T: Send>(
        &self,
        cluster: &ClusterName,
        consistency: Consistency,
        selector: Option<&str>,
        parse: Parse<T>,
        pool: &mut Pool,
    ) -> Result<Option<Listed<T>>, ClusterError> {
        let what = format!("{} of {}", K::PLURAL, K::API_VERSION);
        let most = if K::PROTOBUF.is_some() { PAGE } else { PAGE_OF_JSON };
        let (mut size, is_paged) = (most, consistency == Consistency::Newest);
        let mut restarts = 0;
        let mut all = Listed::default();
        // Pages are alike: where the last one had room, the next one does not grow.
        let mut length = 0;
        loop {
            let path = format!("{}?{}", path::collection::<K>(""), page_query(size, consistency, selector, &all.continue_token));
            let request = ApiRequest::get(path).expecting(length);
            let request = if is_paged { request.of_at_most(PAGE_BYTES_MAX) } else { request };
            let request = if K::PROTOBUF.is_some() { request.preferring_protobuf() } else { request };
            match self.send_bytes(cluster, &request).await {
                Ok(bytes) => {
                    length = bytes.len() + bytes.len() / 8;
                    size = size_after(size, bytes.len(), most);
                    let page: Listed<T> = pool.during(|| parse(&bytes, cluster)).map_err(|message| ClusterError::Unavailable {
                        cluster: cluster.clone(),
                        what: what.clone(),
                        message,
                    })?;
                    all.items.extend(page.items);
                    all.unreadable.extend(page.unreadable);
                    all.version = page.version;
                    all.continue_token = page.continue_token;
                    if all.continue_token.is_empty() {
                        return Ok(Some(all));
                    }
                }
                Err(failed) if failed.class() == Some(Class::NotFound) => return Ok(None),
                Err(failed) if failed.class() == Some(Class::TooLong) && is_paged && size > PAGE_MIN => {
                    tracing::info!(%cluster, %what, objects = size, "a page is too long: fewer objects are asked for");
                    size = (size / PAGE_SHRINKS_BY).max(PAGE_MIN);
                }
                Err(failed) if failed.class() == Some(Class::Expired) && restarts < RESTARTS_MAX => {
                    restarts += 1;
                    all = Listed::default();
                }
                Err(failed) => return Err(failed.into_error(cluster, &what)),
            }
        }
    }
}

impl<A: ClusterAccess> Clusters<A> {
    /// All objects of a kind; empty when the API server does not serve the kind.
    pub(crate) async fn list<K: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        consistency: Consistency,
        selector: Option<&str>,
    ) -> Result<Listed<K>, ClusterError> {
        Ok(self.list_known(cluster, consistency, selector).await?.unwrap_or_default())
    }

    /// All objects of a kind that can be parsed, for kinds whose unreadable objects can be ignored.
    pub(crate) async fn list_readable<K: Kind + DeserializeOwned + Send>(
        &self,
        cluster: &ClusterName,
        consistency: Consistency,
        selector: Option<&str>,
    ) -> Result<Vec<K>, ClusterError> {
        Ok(self.list(cluster, consistency, selector).await?.items)
    }

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
        Ok(Box::pin(self.list_followed::<K, K>(cluster, parse::<K>)).await?.unwrap_or_default())
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
        let (nodes, seldom, often) = try_join!(self.followed::<Node>(cluster), self.read_seldom(cluster), self.read_often(cluster))?;
        self.keep_seldom(cluster, looked_at, &seldom).await;
        Ok(together(nodes, seldom, often.objects))
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
        let (nodes, mut objects) = try_join!(self.followed::<Node>(cluster), self.read_karpenter(cluster))?;
        objects.nodes = nodes.into_items(&mut objects.unreadable).into_inner();
        Ok(objects)
    }

    async fn read_nodes_and_claims(&self, cluster: &ClusterName) -> Result<ClusterObjects, ClusterError> {
        let (nodes, claims) = try_join!(self.followed::<Node>(cluster), self.list_node_claims(cluster))?;
        let mut objects = ClusterObjects::default();
        match claims {
            Some(claims) => {
                let claims = claims.into_items(&mut objects.unreadable);
                self.convert(cluster, claims, &mut objects);
            }
            None => objects.absent_kinds.push(NodeClaim::KIND.to_owned()),
        }
        objects.nodes = nodes.into_items(&mut objects.unreadable).into_inner();
        Ok(objects)
    }

    async fn read_drain(&self, cluster: &ClusterName, name: &str) -> Result<ClusterObjects, ClusterError> {
        let selector = on_node(name);
        let (node, pods) =
            try_join!(self.one_object::<Node>(cluster, "", name), self.list::<Pod>(cluster, Consistency::Newest, Some(&selector)))?;
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
        let attachments = self.followed::<VolumeAttachment>(cluster).await?;
        let of_node = attachments.items.iter().filter(|attachment| attachment.spec.node_name == name);
        let volume_attachments: Vec<VolumeAttachment> = of_node.cloned().collect();
        let mut unreadable = attachments.unreadable;
        unreadable.retain(|attachment| attachment.node_name == name);
        // Volume claims show which attached volumes belong to pods that are not evicted: needed only while a volume is attached.
        let volume_claims =
            if volume_attachments.is_empty() { vec![] } else { self.claims_on(cluster, name).await?.into_items(&mut unreadable) };
        Ok(ClusterObjects { volume_attachments, volume_claims: volume_claims.into(), unreadable, ..ClusterObjects::default() })
    }

    /// The volume claims of the pods on a node. These are few, and the cluster's may be tens of thousands.
    async fn claims_on(&self, cluster: &ClusterName, node: &str) -> Result<Listed<PersistentVolumeClaim>, ClusterError> {
        let listed = self.list::<Pod>(cluster, Consistency::Newest, Some(&on_node(node))).await?;
        let pods = listed.items.iter().chain(listed.unreadable.iter().filter_map(|odd| odd.pod.as_deref()));
        let named: BTreeSet<(&str, String)> =
            pods.flat_map(|pod| pod.volume_claim_names().map(move |name| (pod.metadata.namespace.as_str(), name))).collect();
        let mut found = Listed::default();
        for (namespace, name) in named {
            let claim = self.one_object::<PersistentVolumeClaim>(cluster, namespace, &name).await?;
            found.items.extend(claim.items);
            found.unreadable.extend(claim.unreadable);
        }
        Ok(found)
    }

    async fn read_pods(&self, cluster: &ClusterName, node: &str) -> Result<ClusterObjects, ClusterError> {
        let mut objects = ClusterObjects::default();
        let pods = self.list::<Pod>(cluster, Consistency::Newest, Some(&on_node(node))).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_reads_are_paged_and_cached_reads_are_not() {
        assert_eq!(page_query(PAGE, Consistency::Newest, None, ""), "limit=2500");
        assert_eq!(page_query(PAGE, Consistency::Newest, None, "eyJ2=="), "limit=2500&continue=eyJ2%3D%3D");
        assert_eq!(
            page_query(PAGE, Consistency::Cached, Some("spec.nodeName=n1"), ""),
            "resourceVersion=0&fieldSelector=spec.nodeName%3Dn1"
        );
    }

    #[test]
    fn pages_grow_again_while_they_are_short_and_never_beyond_the_most() {
        let short = PAGE_BYTES_MAX / 4 - 1;
        assert_eq!([size_after(PAGE, short, PAGE), size_after(PAGE, PAGE_BYTES_MAX, PAGE)], [PAGE, PAGE]);
        assert_eq!([size_after(250, short, PAGE), size_after(250, short + 1, PAGE)], [500, 250]);
        assert_eq!([size_after(2000, short, PAGE), size_after(PAGE_MIN, 0, PAGE)], [PAGE, 2 * PAGE_MIN]);
    }

    #[test]
    fn an_object_that_cannot_be_parsed_is_reported_and_hides_no_other() {
        let text = r#"{"metadata":{"continue":"next"},"items":[{"metadata":{"name":"a"}},
            {"metadata":{"name":"b","uid":"u","labels":[]},"spec":{"providerID":"aws:///z/i-1"}},{"metadata":{"name":"c"}}]}"#;
        let page: Listed<Node> = parse(text.as_bytes(), &ClusterName::new("c")).expect("a list");
        assert_eq!(page.continue_token, "next");
        assert_eq!(page.items.iter().map(|node| node.metadata.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        let [unreadable] = page.unreadable.as_slice() else { panic!("one cannot be parsed: {:?}", page.unreadable) };
        assert_eq!(
            (unreadable.metadata.name.as_str(), unreadable.metadata.uid.as_str(), unreadable.provider_id.as_str()),
            ("b", "u", "aws:///z/i-1")
        );
        assert_eq!(unreadable.field, "metadata.labels");
        assert!(parse::<Node>(br#"{"items":null}"#, &ClusterName::new("c")).expect("an empty list").items.is_empty());
        assert!(parse::<Node>(b"<html>", &ClusterName::new("c")).is_err());
    }

    #[test]
    fn a_pool_with_an_unknown_enum_value_is_reported_as_unreadable() {
        let pool = |policy: &str| {
            format!(
                r#"{{"metadata":{{"name":"{policy}"}},"spec":{{"disruption":{{"consolidationPolicy":"{policy}"}},"template":{{"spec":
                {{"requirements":[],"nodeClassRef":{{"group":"g","kind":"k","name":"n"}},"expireAfter":"99999999999h"}}}}}}}}"#
            )
        };
        let text = format!(r#"{{"items":[{},{}]}}"#, pool("WhenEmpty"), pool("WhenItSuits"));
        let page: Listed<NodePool> = parse(text.as_bytes(), &ClusterName::new("c")).expect("a list");
        assert_eq!(page.items.len(), 1, "a long expireAfter is parsed");
        assert_eq!(page.unreadable.len(), 1);
        assert_eq!(page.unreadable[0].field, "spec.disruption.consolidationPolicy");
        assert!(page.unreadable[0].problem.contains("WhenItSuits"));
    }

    #[test]
    fn a_page_of_v1_has_the_objects_of_v1beta1_as_they_were_written() {
        let reference = |group: &str| format!(r#"{{"requirements":[],"nodeClassRef":{{{group}"kind":"EC2NodeClass","name":"n"}}}}"#);
        let pool = |name: &str, group: &str, policy: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"disruption":{{"consolidationPolicy":"{policy}","consolidateAfter":"0s"}},
                "template":{{"spec":{}}}}}}}"#,
                reference(group)
            )
        };
        let group = r#""group":"karpenter.k8s.aws","#;
        let pools = [pool("new", group, "WhenEmpty"), pool("old", "", "WhenUnderutilized"), pool("odd", group, "WhenUnderutilized")];
        let text = format!(r#"{{"items":[{}]}}"#, pools.join(","));
        let page = parse_versions::<NodePool>(text.as_bytes(), &ClusterName::new("c")).expect("a list");
        let shown: Vec<_> = page.items.iter().map(|object| (object.type_meta().0, object.key())).collect();
        assert_eq!(shown, [("karpenter.sh/v1", "new".to_owned()), ("karpenter.sh/v1beta1", "old".to_owned())]);
        assert_eq!(page.unreadable[0].metadata.name, "odd", "a policy of v1beta1 in an object of v1");

        let class = |spec: &str| format!(r#"{{"metadata":{{"name":"a"}},"spec":{{{spec}}}}}"#);
        let text = format!(r#"{{"items":[{}]}}"#, class(r#""amiFamily":"AL2""#));
        let page = parse_versions::<Ec2NodeClass>(text.as_bytes(), &ClusterName::new("c")).expect("a list");
        assert_eq!(page.items[0].type_meta().0, "karpenter.k8s.aws/v1beta1");
    }
}
