//! The DynamoDB table, in memory.

use crate::meter;
use jiff::{SignedDuration, Timestamp};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use whittle_claims::{
    Bucket, BucketName, CatalogReads, Claim, ClaimKey, DecisionRecord, FencingToken, Lease, OfferingKey, Phase, Record, Revision, StockOut,
    Stored,
};
use whittle_ports::StoreError;
use whittle_units::{ClaimName, ClusterName, InstanceId};

/// A stored record: a JSON value with its kind's version.
#[derive(Clone, Debug)]
struct Row {
    version: u32,
    revision: Revision,
    value: serde_json::Value,
    expires_at: Option<Timestamp>,
    /// The value as its readers have it: the functions of a quiet cluster read the same few records every minute.
    decoded: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// The claim of an instance, and until when it is remembered after the claim's end.
#[derive(Clone, Debug)]
struct Pointer {
    claim: ClaimKey,
    deletable_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub struct Store {
    claims: BTreeMap<ClaimKey, Stored<Claim>>,
    pointers: BTreeMap<InstanceId, Pointer>,
    /// Ended claims by the second in which they expire.
    ended: BTreeSet<(i64, ClaimKey)>,
    now: Timestamp,
    /// Claims that are unreadable for a while, and until when.
    hidden: BTreeMap<ClaimKey, (Stored<Claim>, Timestamp)>,
    /// When a claim became readable again.
    shown_at: BTreeMap<ClaimKey, Timestamp>,
    leases: BTreeMap<ClusterName, Lease>,
    /// The newest token ever given: it outlives the lease.
    tokens: BTreeMap<ClusterName, FencingToken>,
    records: BTreeMap<(ClusterName, String, String), Row>,
    stock_outs: BTreeMap<OfferingKey, StockOut>,
    buckets: BTreeMap<BucketName, Bucket>,
    catalog: Option<Stored<Vec<u8>>>,
    pub catalog_reads: Option<CatalogReads>,
    decisions: BTreeMap<ClusterName, Vec<DecisionRecord>>,
    /// Checks of the fencing token are skipped: a mutant that the checkers must catch.
    pub ignore_fencing: bool,
}

impl Store {
    pub fn claim(&self, key: &ClaimKey) -> Option<&Stored<Claim>> {
        self.claims.get(key)
    }
    pub fn claims(&self, cluster: &ClusterName) -> impl Iterator<Item = &Stored<Claim>> {
        self.claims.iter().filter(move |(key, _)| key.cluster == *cluster).map(|(_, claim)| claim)
    }
    /// Names of all claims of a cluster, ended and unreadable ones included.
    pub(crate) fn claim_names<'s>(&'s self, cluster: &'s ClusterName) -> impl Iterator<Item = &'s ClaimName> {
        self.claims.keys().chain(self.hidden.keys()).filter(move |key| key.cluster == *cluster).map(|key| &key.name)
    }
    /// Names of items that cannot be read.
    pub fn unreadable(&self, cluster: &ClusterName) -> Vec<String> {
        let hidden = self.hidden.keys().filter(|key| key.cluster == *cluster).map(|key| key.name.to_string());
        hidden.collect()
    }
    /// Whether a claim exists and is unreadable.
    pub(crate) fn is_hidden(&self, key: &ClaimKey) -> bool {
        self.hidden.contains_key(key)
    }
    /// When an unreadable claim became readable again.
    pub(crate) fn shown_at(&self, key: &ClaimKey) -> Option<Timestamp> {
        self.shown_at.get(key).copied()
    }
    /// The unreadable claim of a machine.
    pub(crate) fn hidden_owner(&self, id: &InstanceId) -> Option<String> {
        let names = |claim: &Claim| claim.machine().is_some_and(|machine| machine.instance_id == *id);
        self.hidden.values().find(|(stored, _)| names(&stored.value)).map(|(stored, _)| stored.value.key.name.to_string())
    }
    /// The claim of a machine, readable or not.
    pub(crate) fn owner(&self, id: &InstanceId) -> Option<&Claim> {
        let names = |claim: &&Claim| claim.machine().is_some_and(|machine| machine.instance_id == *id);
        let all = self.claims.values().chain(self.hidden.values().map(|(stored, _)| stored));
        all.map(|stored| &stored.value).find(names)
    }
    /// All claims of a cluster, including unreadable ones.
    pub(crate) fn claims_with_hidden(&self, cluster: &ClusterName) -> impl Iterator<Item = &Stored<Claim>> {
        let hidden = self.hidden.iter().filter(move |(key, _)| key.cluster == *cluster).map(|(_, (stored, _))| stored);
        self.claims(cluster).chain(hidden)
    }
    /// Makes a claim unreadable for a while, as if a newer release had written it.
    pub(crate) fn hide(&mut self, key: &ClaimKey, until: Timestamp) {
        if let Some(stored) = self.claims.remove(key) {
            self.hidden.insert(key.clone(), (stored, until));
        }
    }
    /// Makes claims readable again that are due, or all.
    pub(crate) fn show_hidden(&mut self, now: Timestamp, all: bool) {
        let back: Vec<ClaimKey> = self
            .hidden
            .iter()
            .filter(|(_, (_, until))| all && *until < Timestamp::MAX || *until <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in back {
            if let Some((stored, _)) = self.hidden.remove(&key) {
                self.shown_at.insert(key.clone(), self.now);
                self.claims.insert(key, stored);
            }
        }
    }
    /// The claim of a machine, as long as it refers to it.
    pub fn by_instance(&self, id: &InstanceId) -> Option<&Stored<Claim>> {
        let pointer = self.pointers.get(id).filter(|pointer| !is_past(pointer.deletable_at, self.now))?;
        self.claims.get(&pointer.claim).filter(|stored| stored.value.machine().is_some_and(|machine| machine.instance_id == *id))
    }

    /// A record as it is stored.
    pub(crate) fn record(&self, cluster: &ClusterName, kind: &str, name: &str) -> Option<&serde_json::Value> {
        self.records.get(&(cluster.clone(), kind.to_owned(), name.to_owned())).map(|row| &row.value)
    }

    /// Names of the records of a kind, including expired ones.
    pub(crate) fn names_of<'a>(&'a self, cluster: &'a ClusterName, kind: &'a str) -> impl Iterator<Item = &'a str> {
        self.records.keys().filter(move |(of, known, _)| of == cluster && known == kind).map(|(.., name)| name.as_str())
    }

    /// Bytes of all claims with their pointers, records and the catalog; decisions are left out.
    pub(crate) fn bytes(&self) -> u64 {
        let claims = self
            .claims
            .values()
            .map(|stored| meter::at_rest_size(&stored.value) + meter::value_size(0, 0, 0, true) + 2 * meter::pointer_size(&stored.value));
        let records = self.records.iter().map(|((cluster, kind, name), row)| {
            meter::value_size(cluster.as_str().len() + kind.len(), name.len(), meter::at_rest_size(&row.value), true)
        });
        let catalog = self.catalog.as_ref().map_or(0, |stored| u64::try_from(stored.value.len()).unwrap_or(u64::MAX));
        claims.chain(records).sum::<u64>() + catalog
    }

    /// The size of a record's item, and of all items of its kind: that of their keys alone if there are none.
    pub(crate) fn record_size(&self, cluster: &ClusterName, kind: &str, name: Option<&str>) -> u64 {
        let of = |(of, known, own): &(ClusterName, String, String)| of == cluster && known == kind && name.is_none_or(|name| name == own);
        let pk = "RECORD##".len() + cluster.as_str().len() + kind.len();
        let size = |((_, _, own), row): (&(ClusterName, String, String), &Row)| {
            meter::value_size(pk, own.len(), meter::at_rest_size(&row.value), row.expires_at.is_some())
        };
        self.records.iter().filter(|(key, _)| of(key)).map(size).sum()
    }

    /// Advances time: expired claims and pointers count as absent.
    pub fn pass(&mut self, now: Timestamp) {
        self.now = now;
        while let Some(due) = self.ended.first().filter(|(second, _)| *second <= now.as_second()).cloned() {
            self.ended.remove(&due);
            if self.claims.get(&due.1).is_some_and(|claim| is_past(claim.value.deletable_at(), now)) {
                self.claims.remove(&due.1);
            }
        }
    }

    /// Whether a newer lease than this one was acquired.
    pub fn is_stale(&self, lease: &Lease) -> bool {
        self.tokens.get(&lease.cluster).is_some_and(|newest| *newest > lease.token)
    }

    /// Stores new claims under the lease: all, or none.
    pub fn create(&mut self, lease: &Lease, claims: &[Claim]) -> Result<(), StoreError> {
        if !self.ignore_fencing && self.is_stale(lease) {
            return Err(StoreError::Fenced { cluster: lease.cluster.clone() });
        }
        for claim in claims {
            if self.claims.contains_key(&claim.key) || self.hidden.contains_key(&claim.key) {
                return Err(StoreError::Conflict { what: format!("claim {}", claim.key) });
            }
            let instance = claim.instance();
            if let Some(instance) = instance.filter(|instance| !self.may_point(instance, claim, true)) {
                return Err(StoreError::Conflict { what: format!("the owner of instance {instance}") });
            }
        }
        for claim in claims {
            if let Some(instance) = claim.instance() {
                self.point(instance, claim, true)?;
            }
            self.keep(claim, Revision::ABSENT.next());
        }
        Ok(())
    }

    /// Replaces a claim if it still has the expected revision.
    pub fn update(&mut self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        let conflict = || StoreError::Conflict { what: format!("claim {}", claim.key) };
        // An unreadable claim still owns its machine.
        if let Some(machine) = claim.machine().filter(|machine| self.hidden_owner(&machine.instance_id).is_some()) {
            return Err(StoreError::Conflict { what: format!("the owner of instance {}", machine.instance_id) });
        }
        let stored = self.claims.get(&claim.key).filter(|stored| stored.revision == expected).ok_or_else(conflict)?;
        // A launch sets the instance for the first time, an end gives the pointer its expiry.
        let points = |instance: &&InstanceId| {
            matches!(claim.phase, Phase::Launched { .. } | Phase::Gone { .. }) || stored.value.instance() != Some(*instance)
        };
        if let Some(instance) = claim.instance().filter(points) {
            self.point(instance, claim, claim.deletion.is_some())?;
        }
        self.keep(claim, expected.next());
        Ok(expected.next())
    }

    fn keep(&mut self, claim: &Claim, revision: Revision) {
        self.ended.extend(claim.deletable_at().map(|at| (at.as_second(), claim.key.clone())));
        self.claims.insert(claim.key.clone(), Stored { value: claim.clone(), revision });
    }

    /// A machine has one claim: the first that refers to it. The pointer of an ended claim may be replaced.
    fn may_point(&self, instance: &InstanceId, claim: &Claim, after_ended: bool) -> bool {
        let makes_way = |pointer: &Pointer| {
            pointer.claim == claim.key || if after_ended { pointer.deletable_at.is_some() } else { is_past(pointer.deletable_at, self.now) }
        };
        self.pointers.get(instance).is_none_or(makes_way)
    }

    fn point(&mut self, instance: &InstanceId, claim: &Claim, after_ended: bool) -> Result<(), StoreError> {
        if !self.may_point(instance, claim, after_ended) {
            return Err(StoreError::Conflict { what: format!("the owner of instance {instance}") });
        }
        self.pointers.insert(instance.clone(), Pointer { claim: claim.key.clone(), deletable_at: claim.deletable_at() });
        Ok(())
    }

    /// Increments a claim's revision, like a concurrent writer of an irrelevant field.
    pub(crate) fn touch(&mut self, key: &ClaimKey) {
        if let Some(stored) = self.claims.get_mut(key) {
            stored.revision = stored.revision.next();
        }
    }

    /// Acquires the lease of a cluster, with a newer token than any before.
    pub fn acquire(&mut self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> Result<Lease, StoreError> {
        let until = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
        if let Some(held) = self.leases.get(cluster).filter(|held| held.expires_at > now && held.owner != owner) {
            return Err(StoreError::Held { cluster: cluster.clone(), until: held.expires_at });
        }
        let token = FencingToken(self.tokens.get(cluster).copied().unwrap_or_default().0 + 1);
        let lease = Lease { cluster: cluster.clone(), owner: owner.to_owned(), token, expires_at: until };
        self.tokens.insert(cluster.clone(), token);
        self.leases.insert(cluster.clone(), lease.clone());
        Ok(lease)
    }

    /// Acquires the lease although another may hold it, with the existing token: for the mutant that ignores leases.
    pub(crate) fn acquire_shared(&mut self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> Lease {
        let token = *self.tokens.entry(cluster.clone()).or_insert(FencingToken(1));
        let lease =
            Lease { cluster: cluster.clone(), owner: owner.to_owned(), token, expires_at: now.checked_add(ttl).unwrap_or(Timestamp::MAX) };
        self.leases.insert(cluster.clone(), lease.clone());
        lease
    }

    /// Releases a lease; a newer one stays.
    pub fn release(&mut self, lease: &Lease) {
        if self.leases.get(&lease.cluster).is_some_and(|held| held.token == lease.token) {
            self.leases.remove(&lease.cluster);
        }
    }

    /// One record, unless it has expired.
    pub fn read<R: Record>(&self, cluster: &ClusterName, name: &str, now: Timestamp) -> Result<Option<Stored<R>>, StoreError> {
        let key = (cluster.clone(), R::KIND.to_owned(), name.to_owned());
        self.records.get(&key).filter(|row| row.lives(now)).map(|row| row.decode(name)).transpose()
    }

    /// All records of a kind that can be read, by name.
    pub fn read_all<R: Record>(&self, cluster: &ClusterName, now: Timestamp) -> Vec<Stored<R>> {
        let of_kind = self.records.iter().filter(|((c, kind, _), row)| c == cluster && kind == R::KIND && row.lives(now));
        of_kind.filter_map(|((_, _, name), row)| row.decode(name).ok()).collect()
    }
    /// Makes a claim unreadable, as if a newer release had written it.
    pub fn spoil_claim(&mut self, key: &ClaimKey) {
        self.hide(key, Timestamp::MAX);
    }

    /// Writes a record over the expected revision.
    pub fn write<R: Record>(
        &mut self,
        cluster: &ClusterName,
        record: &R,
        expected: Revision,
        now: Timestamp,
    ) -> Result<Revision, StoreError> {
        let name = record.name();
        let key = (cluster.clone(), R::KIND.to_owned(), name.clone());
        // An expired record counts as absent.
        self.records.retain(|known, row| *known != key || row.lives(now));
        self.expect_revision(&key, expected)?;
        let value = serde_json::to_value(record)
            .map_err(|error| StoreError::Unreadable { what: format!("{} {name}", R::KIND), reason: error.to_string() })?;
        let row = Row { version: R::VERSION, revision: expected.next(), value, expires_at: record.expires_at(), decoded: OnceLock::new() };
        self.records.insert(key, row);
        Ok(expected.next())
    }

    /// Removes a record of the expected revision; an absent one is no error.
    pub fn remove<R: Record>(&mut self, cluster: &ClusterName, name: &str, expected: Revision) -> Result<(), StoreError> {
        let key = (cluster.clone(), R::KIND.to_owned(), name.to_owned());
        if !self.records.contains_key(&key) {
            return Ok(());
        }
        self.expect_revision(&key, expected)?;
        self.records.remove(&key);
        Ok(())
    }

    fn expect_revision(&self, key: &(ClusterName, String, String), expected: Revision) -> Result<(), StoreError> {
        let there = self.records.get(key).map_or(Revision::ABSENT, |row| row.revision);
        if there == expected { Ok(()) } else { Err(StoreError::Conflict { what: format!("{} {}", key.1, key.2) }) }
    }

    /// Stock-outs that are active at `now` or ended recently.
    pub fn stock_outs(&self, now: Timestamp) -> Vec<StockOut> {
        self.stock_outs.values().filter(|stock_out| stock_out.is_remembered(now)).cloned().collect()
    }
    /// Keeps the stock-out with the later end.
    pub fn put_stock_out(&mut self, stock_out: &StockOut) {
        let known = self.stock_outs.get(&stock_out.offering);
        if known.is_none_or(|known| known.until <= stock_out.until) {
            self.stock_outs.insert(stock_out.offering.clone(), stock_out.clone());
        }
    }
    /// Takes tokens; false when there are too few.
    pub fn take_tokens(&mut self, name: &BucketName, full: &Bucket, count: u32, now: Timestamp) -> bool {
        let bucket = self.buckets.get(name).unwrap_or(full).clone().leaving(full.reserve);
        match bucket.take(count, now) {
            Some(less) => {
                self.buckets.insert(name.clone(), less);
                true
            }
            None => false,
        }
    }
    pub fn catalog(&self) -> Option<Stored<Vec<u8>>> {
        self.catalog.clone()
    }
    /// Replaces the catalog blob of the expected revision.
    pub fn put_catalog(&mut self, blob: &[u8], expected: Revision) -> Result<Revision, StoreError> {
        let there = self.catalog.as_ref().map_or(Revision::ABSENT, |stored| stored.revision);
        if there != expected {
            return Err(StoreError::Conflict { what: "the catalog".to_owned() });
        }
        self.catalog = Some(Stored { value: blob.to_vec(), revision: expected.next() });
        Ok(expected.next())
    }

    /// Erases a cluster: ended claims, records of these kinds, decisions. Fencing tokens keep growing.
    pub fn erase(&mut self, cluster: &ClusterName, kinds: &[&str]) -> u64 {
        let before = self.claims.len() + self.records.len();
        self.claims.retain(|key, claim| key.cluster != *cluster || claim.value.is_live());
        self.pointers.retain(|_, pointer| pointer.claim.cluster != *cluster || self.claims.contains_key(&pointer.claim));
        self.records.retain(|(of, kind, _), _| of != cluster || !kinds.contains(&kind.as_str()));
        let decisions = self.decisions.remove(cluster).map_or(0, |decisions| decisions.len());
        u64::try_from(before - self.claims.len() - self.records.len() + decisions).unwrap_or(u64::MAX)
    }

    /// Adds to the decision log.
    pub fn append(&mut self, cluster: &ClusterName, decisions: &[DecisionRecord]) {
        self.decisions.entry(cluster.clone()).or_default().extend_from_slice(decisions);
    }
    /// The decision log, oldest first.
    pub fn decisions(&self, cluster: &ClusterName) -> &[DecisionRecord] {
        self.decisions.get(cluster).map_or(&[], Vec::as_slice)
    }
}

/// Expiry times are whole seconds in the table.
fn is_past(end: Option<Timestamp>, now: Timestamp) -> bool {
    end.is_some_and(|end| end.as_second() <= now.as_second())
}

impl Row {
    fn lives(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| end > now)
    }
    fn decode<R: Record>(&self, name: &str) -> Result<Stored<R>, StoreError> {
        let unreadable = |reason: String| StoreError::Unreadable { what: format!("{} {name}", R::KIND), reason };
        if self.version > R::VERSION {
            return Err(unreadable(format!("it has version {}, this reader knows up to {}", self.version, R::VERSION)));
        }
        if let Some(known) = self.decoded.get().and_then(|known| known.downcast_ref::<R>()) {
            return Ok(Stored { value: known.clone(), revision: self.revision });
        }
        let value = R::deserialize(&self.value).map_err(|error| unreadable(error.to_string()))?;
        // A reader of another release of the kind decodes for itself.
        let _ = self.decoded.set(Arc::new(value.clone()));
        Ok(Stored { value, revision: self.revision })
    }
}
