//! Lists of objects, page by page.

use crate::connection::{ApiRequest, Clusters};
use crate::errors::Class;
use crate::path;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use whittle_api::k8s::Kind;
use whittle_api::legacy::Versioned;
use whittle_api::manifest::Object;
use whittle_api::protobuf::{self, Page};
use whittle_api::{Pool, Unreadable};
use whittle_ports::{ClusterAccess, ClusterError};
use whittle_units::ClusterName;

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
    pub(crate) continue_token: String,
}

impl<K> Default for Listed<K> {
    fn default() -> Self {
        Self { items: Vec::new(), unreadable: Vec::new(), version: String::new(), continue_token: String::new() }
    }
}

impl<K> Listed<K> {
    pub(crate) fn map<T>(self, of: impl Fn(K) -> T) -> Listed<T> {
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
pub(crate) fn parse_versions<K: Versioned>(page: &[u8], cluster: &ClusterName) -> Result<Listed<Object>, String> {
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

    /// All objects of a kind; `None` when the API server does not serve the kind.
    pub(crate) async fn list_known<K: Kind + DeserializeOwned + Send>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::k8s::Node;
    use whittle_api::karpenter::{Ec2NodeClass, NodePool};

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
