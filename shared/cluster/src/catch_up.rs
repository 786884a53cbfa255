//! Lists that are kept between looks, and brought up to date by a watch.

use crate::Clusters;
use crate::connection::ApiRequest;
use crate::kept::{Awaited, Changes, Followed, Kept, Newest};
use crate::pages::{Consistency, Parse};
use crate::path;
use crate::watch::{Change, Encoding, WatchEvent};
use futures::try_join;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use whittle_api::k8s::Kind;
use whittle_api::{Pool, Shared, Unreadable};
use whittle_ports::{ClusterAccess, ClusterError};
use whittle_units::ClusterName;

/// A watch that tells nothing for so long has told what it knows. Servers send known changes at once, and learn of new ones within
/// milliseconds.
const SILENCE: Duration = Duration::from_millis(50);
/// How long changes that are known to be missing are waited for, before the whole list is read: at least, and for each object in it.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_FOR_EACH: Duration = Duration::from_micros(25);

/// All objects of a kind.
pub(crate) struct All<T> {
    pub(crate) items: Shared<Vec<T>>,
    pub(crate) unreadable: Vec<Unreadable>,
    /// They are those of the look before.
    pub(crate) is_unchanged: bool,
}

impl<T> Default for All<T> {
    fn default() -> Self {
        Self { items: Shared::new(), unreadable: Vec::new(), is_unchanged: false }
    }
}

impl<T: 'static> All<T> {
    /// The objects; those that cannot be parsed are added to `unreadable`.
    pub(crate) fn into_items(self, unreadable: &mut Vec<Unreadable>) -> Shared<Vec<T>> {
        unreadable.extend(self.unreadable);
        self.items
    }
}

/// A list of metadata. `remainingItemCount` is missing where the server does not know it.
#[derive(Deserialize)]
struct Summary {
    metadata: SummaryMeta,
    /// `null` where there is none.
    items: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SummaryMeta {
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: String,
    remaining_item_count: Option<usize>,
}

/// How often lists were read, in each of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListsRead {
    /// As a whole.
    pub whole: u64,
    /// By a watch from what was kept.
    pub caught_up: u64,
}

impl<A: ClusterAccess> Clusters<A> {
    /// How the lists of the followed kinds were read since the start.
    #[must_use]
    pub fn lists_read(&self) -> ListsRead {
        ListsRead { whole: self.keeper.whole.load(Ordering::Relaxed), caught_up: self.keeper.caught_up.load(Ordering::Relaxed) }
    }

    /// All objects of a kind, `None` where it is not served: what was kept of the last look, brought up to date, or the whole list.
    pub(crate) async fn list_followed<K: Kind, T: Followed>(
        &self,
        cluster: &ClusterName,
        parse: Parse<T>,
    ) -> Result<Option<All<T>>, ClusterError> {
        let kinds = self.keeper.of(cluster);
        // Taken out: whatever interrupts this look leads to a whole list at the next.
        let mut slot = T::slot(&kinds).lock().await;
        let endpoint = self.endpoint(cluster).await?;
        let looked_at = self.clock.now();
        if let Some(mut kept) = slot.take().filter(|kept| kept.can_be_followed(looked_at, &endpoint)) {
            match self.changes::<K, T>(cluster, &mut kept, parse).await {
                Ok(changes) => {
                    let is_unchanged = changes.has_none();
                    kept.apply(changes);
                    (kept.seen_at, kept.confirmed_at) = (looked_at, looked_at);
                    self.keeper.caught_up.fetch_add(1, Ordering::Relaxed);
                    let all = All { items: kept.items.clone(), unreadable: kept.unreadable.clone(), is_unchanged };
                    *slot = self.keeper.admits(cluster, K::PLURAL, kept.len()).then_some(kept);
                    return Ok(Some(all));
                }
                Err(why) => tracing::info!(%cluster, kind = K::PLURAL, why, "the whole list is read"),
            }
        }
        let mut pool = Pool::default();
        let Some(listed) = self.list_pages::<K, T>(cluster, Consistency::Newest, None, parse, &mut pool).await? else { return Ok(None) };
        self.keeper.whole.fetch_add(1, Ordering::Relaxed);
        let version = listed.version.parse().ok();
        let all = All { items: listed.items.into(), unreadable: listed.unreadable, is_unchanged: false };
        let count = all.items.len() + all.unreadable.len();
        let is_still_there = self.endpoint(cluster).await.is_ok_and(|now| now == endpoint);
        if let Some(version) = version.filter(|_| is_still_there && self.keeper.admits(cluster, K::PLURAL, count)) {
            let (items, unreadable) = (all.items.clone(), all.unreadable.clone());
            let endpoint = endpoint.as_ref().to_owned();
            let (listed_at, seen_at, confirmed_at) = (looked_at, looked_at, looked_at);
            let departures = BTreeMap::new();
            *slot = Some(Kept { items, unreadable, version, listed_at, seen_at, confirmed_at, endpoint, pool, departures });
        }
        Ok(Some(all))
    }

    /// All changes since what was kept.
    ///
    /// # Errors
    /// Whatever happens, described: nothing is lost but time.
    async fn changes<K: Kind, T: Followed>(
        &self,
        cluster: &ClusterName,
        kept: &mut Kept<T>,
        parse: Parse<T>,
    ) -> Result<Changes<T>, String> {
        let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion={}", kept.version);
        let opened = async {
            let opened = self.watch(cluster, format!("{}?{query}", path::collection::<K>("")), Encoding::of::<K>()).await;
            opened.map_err(|failed| failed.into_error(cluster, "a watch").to_string())
        };
        let (mut watch, newest, awaited) = try_join!(opened, self.newest::<K>(cluster), self.awaited::<K, T>(cluster, parse))?;
        if newest.version < kept.version {
            return Err("the API server's version is older than that of the last look".to_owned());
        }
        let mut changes = Changes::since(kept.version);
        let until = Instant::now() + PATIENCE + PATIENCE_FOR_EACH * u32::try_from(kept.len()).unwrap_or(u32::MAX);
        while !changes.is_complete(newest, awaited.as_ref()) {
            match tokio::time::timeout(SILENCE, watch.next()).await {
                Ok(Ok(Some(change))) => kept.pool.during(|| note::<K, T>(&mut changes, &change))?,
                Ok(Ok(None)) => return Err("its watch ended".to_owned()),
                Ok(Err(failure)) => return Err(failure.message),
                Err(_silent) if changes.is_plausible(kept, newest, awaited.as_ref()) => break,
                Err(_silent) if Instant::now() < until => {}
                Err(_silent) => return Err("its watch lacks changes".to_owned()),
            }
        }
        // A request that failed meanwhile may have led to another cluster of the same name.
        match self.endpoint(cluster).await {
            Ok(endpoint) if *endpoint == *kept.endpoint => Ok(changes),
            Ok(_) => Err("its endpoint has changed".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The newest version of a kind, with the number of objects.
    pub(crate) async fn newest<K: Kind>(&self, cluster: &ClusterName) -> Result<Newest, String> {
        let request = ApiRequest::get(format!("{}?limit=1", path::collection::<K>(""))).for_metadata();
        let asked: Result<Summary, _> = self.send(cluster, &request).await;
        let Summary { metadata, items } = asked.map_err(|failed| failed.into_error(cluster, "its newest version").to_string())?;
        let left = if metadata.continue_token.is_empty() { Some(0) } else { metadata.remaining_item_count };
        let left = left.ok_or("the API server does not say how many objects there are")?;
        Ok(Newest { version: number(&metadata.resource_version)?, count: items.map_or(0, |items| items.len()) + left })
    }

    /// The objects that have to be exact, of a kind that has such.
    async fn awaited<K: Kind, T: Followed>(&self, cluster: &ClusterName, parse: Parse<T>) -> Result<Option<Awaited>, String> {
        let Some(selector) = T::AWAITED else { return Ok(None) };
        let listed = self.list_pages::<K, T>(cluster, Consistency::Newest, Some(selector), parse, &mut Pool::default()).await;
        let listed = listed.map_err(|error| error.to_string())?.ok_or("the kind is not served")?;
        Ok(Some(Awaited::of(number(&listed.version)?, listed.items.iter())))
    }
}

/// Notes an event of a watch.
fn note<K: Kind, T: Followed>(changes: &mut Changes<T>, change: &Change) -> Result<(), String> {
    let identity = |object: &Result<T, Box<Unreadable>>| {
        let meta = object.as_ref().map_or_else(|odd| &odd.metadata, Followed::meta);
        Ok::<_, String>(((meta.namespace.clone(), meta.name.clone()), number(&meta.resource_version)?))
    };
    let noted = match change.read::<T>()? {
        WatchEvent::Applied(object) => {
            let (key, version) = identity(&object)?;
            changes.note(key, version, Some(object.map_err(|odd| *odd)))
        }
        WatchEvent::Deleted(object) => {
            let (key, version) = identity(&object)?;
            if let Ok(gone) = &object {
                changes.note_departure(gone);
            }
            changes.note(key, version, None)
        }
        WatchEvent::Bookmark(version) => changes.reach(number(&version)?),
        WatchEvent::Error(why) => return Err(format!("its watch ended: {why}")),
    };
    noted.map_err(|why| format!("{why} of {}", K::PLURAL))
}

/// A resource version as a number: Kubernetes promises that it is one, and that later ones are larger.
fn number(version: &str) -> Result<u64, String> {
    version.parse().map_err(|_| format!("the resource version {version:?} is no number"))
}
