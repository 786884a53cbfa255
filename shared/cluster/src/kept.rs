//! The objects of a kind as an execution environment saw them last, and how they are brought up to date. Pure.
//!
//! A list is as new as its resource version. A watch from there tells every later change, in order, but not when it has told all. So
//! two things are asked beside it: the newest version with the number of objects ([`Newest`]), and, of pods, those that wait for a
//! machine ([`Awaited`]). What was kept is up to date once the watch has reached those versions; or once it has been silent for a
//! while, and the number and the waiting pods are what was told. Everything else leads to a whole list (ADR 0049).

use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;
use whittle_api::k8s::{CsiNode, Kind, Node, Pod, PodDisruptionBudget, VolumeAttachment};
use whittle_api::karpenter::NodeClaim;
use whittle_api::legacy::Versioned;
use whittle_api::manifest::Object;
use whittle_api::{ClusterObjects, ObjectMeta, Pool, Shared, Unreadable, protobuf};
use whittle_units::{SignedDuration, Timestamp};

/// An object whose changes are followed.
pub(crate) trait Followed: Clone + Send + Sync + 'static {
    /// The whole list is read again after this, whatever a watch says: a restored etcd may tell of versions that are not ours. Two
    /// functions at most look at a kind of a quiet cluster, where nothing else is said: it is listed once an hour.
    const LISTED_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(2);
    /// What was seen this long ago is listed again instead of followed: a watch would tell more than a compressed list has.
    const FOLLOWED_FOR: Option<SignedDuration> = None;
    /// The field selector of those that have to be exact before anything is decided.
    const AWAITED: Option<&'static str> = None;

    fn meta(&self) -> &ObjectMeta;
    /// Whether the selector of awaited objects would list it.
    fn is_awaited(&self) -> bool {
        false
    }
    /// The node of an object that is gone, and when something last happened to it, where that matters.
    fn departure(&self) -> Option<(&str, Timestamp)> {
        None
    }
    /// Parses an object.
    fn read(object: &serde_json::Value) -> Result<Self, Box<Unreadable>>;
    /// Parses an object in protobuf; for kinds that are not asked for in it, an error.
    fn read_protobuf(_: &[u8]) -> Result<Result<Self, Box<Unreadable>>, protobuf::Error> {
        Err(protobuf::Error::Malformed("the kind is not read from protobuf"))
    }
    fn slot(kept: &KeptKinds) -> &Mutex<Option<Kept<Self>>>;
}

/// Parses an object of a kind that is read from protobuf.
fn read_protobuf<K: Kind + DeserializeOwned>(object: &[u8]) -> Result<Result<K, Box<Unreadable>>, protobuf::Error> {
    let message = K::PROTOBUF.ok_or(protobuf::Error::Malformed("the kind is not read from protobuf"))?;
    protobuf::read_object(object, message)
}

/// What is kept of a cluster: kinds of which there are many objects or whose changes count, and what seldom changes.
#[derive(Default)]
pub(crate) struct KeptKinds {
    pods: Mutex<Option<Kept<Pod>>>,
    nodes: Mutex<Option<Kept<Node>>>,
    csi_nodes: Mutex<Option<Kept<CsiNode>>>,
    node_claims: Mutex<Option<Kept<Object>>>,
    disruption_budgets: Mutex<Option<Kept<PodDisruptionBudget>>>,
    volume_attachments: Mutex<Option<Kept<VolumeAttachment>>>,
    pub(crate) seldom: Mutex<Option<Seldom>>,
}

impl Followed for Pod {
    const AWAITED: Option<&'static str> = Some("spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed");

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn is_awaited(&self) -> bool {
        !self.is_bound() && !self.is_terminal()
    }
    fn departure(&self) -> Option<(&str, Timestamp)> {
        let at = self.last_event().filter(|_| !self.is_daemon() && !self.is_static())?;
        Some((self.spec.node_name.as_str(), at))
    }
    fn read(object: &serde_json::Value) -> Result<Self, Box<Unreadable>> {
        Unreadable::read::<Self>(object)
    }
    fn read_protobuf(object: &[u8]) -> Result<Result<Self, Box<Unreadable>>, protobuf::Error> {
        read_protobuf(object)
    }
    fn slot(kept: &KeptKinds) -> &Mutex<Option<Kept<Self>>> {
        &kept.pods
    }
}

impl Followed for Node {
    /// Each Node is written every five minutes, though nothing about it changes.
    const FOLLOWED_FOR: Option<SignedDuration> = Some(SignedDuration::from_mins(3));

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn read(object: &serde_json::Value) -> Result<Self, Box<Unreadable>> {
        Unreadable::read::<Self>(object)
    }
    fn read_protobuf(object: &[u8]) -> Result<Result<Self, Box<Unreadable>>, protobuf::Error> {
        read_protobuf(object)
    }
    fn slot(kept: &KeptKinds) -> &Mutex<Option<Kept<Self>>> {
        &kept.nodes
    }
}

impl Followed for PodDisruptionBudget {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn read(object: &serde_json::Value) -> Result<Self, Box<Unreadable>> {
        Unreadable::read::<Self>(object)
    }
    fn slot(kept: &KeptKinds) -> &Mutex<Option<Kept<Self>>> {
        &kept.disruption_budgets
    }
}

impl Followed for CsiNode {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn read(object: &serde_json::Value) -> Result<Self, Box<Unreadable>> {
        Unreadable::read::<Self>(object)
    }
    fn slot(kept: &KeptKinds) -> &Mutex<Option<Kept<Self>>> {
        &kept.csi_nodes
    }
}

/// Each node that waits for its volumes to be detached is looked at every second, and there is no list of those of one node.
impl Followed for VolumeAttachment {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn read(object: &serde_json::Value) -> Result<Self, Box<Unreadable>> {
        Unreadable::read::<Self>(object)
    }
    fn slot(kept: &KeptKinds) -> &Mutex<Option<Kept<Self>>> {
        &kept.volume_attachments
    }
}

/// NodeClaims, in the version in which each was written.
impl Followed for Object {
    /// Three functions look at them.
    const LISTED_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(3);

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::NodeClaim(claim) => claim.meta(),
            Self::Legacy(old) => old.meta(),
            _ => ObjectMeta::EMPTY,
        }
    }
    fn read(object: &serde_json::Value) -> Result<Self, Box<Unreadable>> {
        if NodeClaim::is_before(object) {
            Unreadable::read::<<NodeClaim as Versioned>::Before>(object).map(NodeClaim::before_into_object)
        } else {
            Unreadable::read::<NodeClaim>(object).map(NodeClaim::into_object)
        }
    }
    fn slot(kept: &KeptKinds) -> &Mutex<Option<Kept<Self>>> {
        &kept.node_claims
    }
}

/// Objects of a kind, as of a resource version.
pub(crate) struct Kept<T> {
    pub(crate) items: Shared<Vec<T>>,
    pub(crate) unreadable: Vec<Unreadable>,
    pub(crate) version: u64,
    /// When the whole list was read.
    pub(crate) listed_at: Timestamp,
    /// When it was up to date.
    pub(crate) seen_at: Timestamp,
    /// When its metadata were.
    pub(crate) confirmed_at: Timestamp,
    /// Where it was read.
    pub(crate) endpoint: String,
    /// What new objects share with the others.
    pub(crate) pool: Pool,
    /// When something last happened to an object that is gone, by its node, since the whole list was read.
    pub(crate) departures: BTreeMap<String, Timestamp>,
}

/// Objects that seldom change, or whose changes come with those of pods, as of a whole look.
pub(crate) struct Seldom {
    pub(crate) objects: Arc<ClusterObjects>,
    pub(crate) seen_at: Timestamp,
    pub(crate) endpoint: Arc<str>,
}

/// The newest version of a kind, and how many objects there are at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) version: u64,
    pub(crate) count: usize,
}

/// Objects that have to be exact, by namespace and name, each with its version, and the version of their list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) version: u64,
    pub(crate) versions: BTreeMap<(String, String), String>,
}

impl Awaited {
    pub(crate) fn of<'t, T: Followed>(version: u64, items: impl Iterator<Item = &'t T>) -> Self {
        Self { version, versions: awaited(items) }
    }
}

/// The versions of the awaited objects among these.
fn awaited<'t, T: Followed>(items: impl Iterator<Item = &'t T>) -> BTreeMap<(String, String), String> {
    let version = |meta: &ObjectMeta| ((meta.namespace.clone(), meta.name.clone()), meta.resource_version.clone());
    items.filter(|item| item.is_awaited()).map(|item| version(item.meta())).collect()
}

/// The state of an object after a change; `None` if it is gone.
pub(crate) type State<T> = Option<Result<T, Unreadable>>;

/// Changes since a version, as a watch tells them.
pub(crate) struct Changes<T> {
    /// The latest state of each object that changed, by namespace and name.
    states: BTreeMap<String, BTreeMap<String, State<T>>>,
    /// The version that the watch has reached.
    version: u64,
    /// When something last happened to an object that is gone, by its node.
    departures: BTreeMap<String, Timestamp>,
}

/// Notes the time of something at a node, unless a later one is known.
fn note_latest(times: &mut BTreeMap<String, Timestamp>, node: String, at: Timestamp) {
    let known = times.entry(node).or_insert(at);
    *known = (*known).max(at);
}

/// Nodes at which the time of something is kept. A pod may name any node, also one that never existed.
const DEPARTURES_MAX: usize = 20_000;

/// Leaves the latest `most` times.
fn keep_latest(times: &mut BTreeMap<String, Timestamp>, most: usize) {
    if times.len() <= most {
        return;
    }
    let mut latest: Vec<(Timestamp, String)> = std::mem::take(times).into_iter().map(|(node, at)| (at, node)).collect();
    latest.sort_unstable_by(|a, b| b.cmp(a));
    latest.truncate(most);
    times.extend(latest.into_iter().map(|(at, node)| (node, at)));
}

impl<T: Followed> Changes<T> {
    pub(crate) const fn since(version: u64) -> Self {
        Self { states: BTreeMap::new(), version, departures: BTreeMap::new() }
    }

    /// Notes the last state of an object that is gone, which may have come since the version as well.
    pub(crate) fn note_departure(&mut self, gone: &T) {
        if let Some((node, at)) = gone.departure() {
            note_latest(&mut self.departures, node.to_owned(), at);
        }
    }

    /// Notes the state of an object at a version.
    ///
    /// # Errors
    /// The watch cannot be relied on.
    pub(crate) fn note(&mut self, (namespace, name): (String, String), version: u64, state: State<T>) -> Result<(), &'static str> {
        self.reach(version)?;
        self.states.entry(namespace).or_default().insert(name, state);
        Ok(())
    }

    /// Notes that everything up to a version was told.
    ///
    /// # Errors
    /// The watch cannot be relied on.
    pub(crate) fn reach(&mut self, version: u64) -> Result<(), &'static str> {
        if version < self.version {
            return Err("its watch went back to an older version");
        }
        self.version = version;
        Ok(())
    }

    /// Whether the watch has told all changes up to the newest version, and to that of the awaited objects.
    pub(crate) fn is_complete(&self, newest: Newest, awaited: Option<&Awaited>) -> bool {
        self.version >= newest.version && awaited.is_none_or(|awaited| self.version >= awaited.version)
    }

    /// Whether nothing contradicts that a silent watch has told all changes.
    pub(crate) fn is_plausible(&self, kept: &Kept<T>, newest: Newest, expected: Option<&Awaited>) -> bool {
        let untouched = kept.items.iter().filter(|item| !self.has(item.meta()));
        let changed = self.states.values().flat_map(BTreeMap::values).flatten();
        let unreadable = kept.unreadable.iter().filter(|object| !self.has(&object.metadata)).count();
        if self.has_none() {
            let exact = expected.is_none_or(|expected| awaited(kept.items.iter()) == expected.versions);
            return exact && kept.len() == newest.count;
        }
        let count = untouched.clone().count() + unreadable + changed.clone().count();
        let readable = changed.filter_map(|state| state.as_ref().ok());
        count == newest.count && expected.is_none_or(|expected| awaited(untouched.chain(readable)) == expected.versions)
    }

    pub(crate) fn has_none(&self) -> bool {
        self.states.is_empty()
    }

    fn has(&self, meta: &ObjectMeta) -> bool {
        self.states.get(&meta.namespace).is_some_and(|names| names.contains_key(&meta.name))
    }

    fn take(&mut self, meta: &ObjectMeta) -> Option<State<T>> {
        self.states.get_mut(&meta.namespace)?.remove(&meta.name)
    }
}

impl<T: Followed> Kept<T> {
    /// Whether a watch from here is worth it.
    pub(crate) fn can_be_followed(&self, now: Timestamp, endpoint: &str) -> bool {
        let age = |since: Timestamp| now.duration_since(since);
        let is_fresh = !age(self.listed_at).is_negative() && age(self.listed_at) < T::LISTED_AGAIN_AFTER;
        self.endpoint == endpoint && is_fresh && T::FOLLOWED_FOR.is_none_or(|longest| age(self.seen_at) < longest)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() + self.unreadable.len()
    }

    /// Brings it up to date.
    pub(crate) fn apply(&mut self, mut changes: Changes<T>) {
        self.version = changes.version;
        for (node, at) in std::mem::take(&mut changes.departures) {
            note_latest(&mut self.departures, node, at);
        }
        keep_latest(&mut self.departures, DEPARTURES_MAX);
        if changes.has_none() {
            return;
        }
        self.unreadable.retain(|object| !changes.has(&object.metadata));
        let unreadable = &mut self.unreadable;
        self.items.retain_mut(|item| match changes.take(item.meta()) {
            Some(Some(Ok(next))) => {
                *item = next;
                true
            }
            Some(Some(Err(odd))) => {
                unreadable.push(odd);
                false
            }
            Some(None) => false,
            None => true,
        });
        for state in changes.states.into_values().flat_map(BTreeMap::into_values).flatten() {
            match state {
                Ok(item) => self.items.push(item),
                Err(odd) => self.unreadable.push(odd),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_name_any_node_use_up_no_memory() {
        let at = |seconds| Timestamp::from_second(seconds).expect("in range");
        let mut times: BTreeMap<String, Timestamp> = BTreeMap::new();
        for (node, seconds) in [("a", 3), ("b", 1), ("c", 2), ("d", 2)] {
            note_latest(&mut times, node.to_owned(), at(seconds));
        }
        let names = |times: &BTreeMap<String, Timestamp>| times.keys().cloned().collect::<Vec<_>>().join("");
        keep_latest(&mut times, 4);
        assert_eq!(names(&times), "abcd");
        keep_latest(&mut times, 2);
        assert_eq!(names(&times), "ad");
    }
}
