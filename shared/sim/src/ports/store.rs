//! The table.

use super::{SimPorts, TABLE};
use crate::Function;
use crate::meter::{self, Meter};
use crate::mutants::Mutant;
use crate::world::World;
use crate::world::store::Store;
use jiff::{SignedDuration, Timestamp};
use whittle_claims::{
    Bucket, BucketName, CatalogReads, Claim, ClaimKey, DecisionRecord, Lease, NodeClassRecord, Phase, Record, Revision, Sighting, StockOut,
    Stored, catalog_parts,
};
use whittle_ports::{
    CLAIMS_PER_REQUEST, CatalogWriter, ClaimStore, DecisionLog, Erase, Leases, Listing, RecordReader, RecordRemoval, Records, RegionStore,
    StoreError, TokenBuckets,
};
use whittle_units::{ClusterName, InstanceId};

impl SimPorts {
    /// Counts units of the calling function, if they are counted.
    fn count(&self, world: &mut World, count: impl FnOnce(&mut Meter, Option<Function>)) {
        let by = self.caller(world);
        world.metered(|meter| count(meter, by));
    }

    /// Counts the reading of a record, or of all of its kind.
    fn count_record(&self, world: &mut World, cluster: &ClusterName, kind: &'static str, name: Option<&str>) {
        if world.meter.is_some() {
            let size = world.store.record_size(cluster, kind, name);
            self.count(world, |meter, by| meter.query(by, kind, size));
        }
    }

    /// The mutant that plans for the pods of terminating nodes only once they are pending: its scheduler does not see deletions.
    fn hide_endings(&self, world: &World, mut claims: Vec<Stored<Claim>>) -> Vec<Stored<Claim>> {
        if world.is(Mutant::ReplacementPlannedLate) && self.caller(world) == Some(Function::Schedule) {
            claims.retain(|claim| claim.value.deletion.is_none());
        }
        claims
    }
}

impl World {
    /// The table as it is now.
    fn table(&mut self) -> &Store {
        let now = self.now();
        self.store.pass(now);
        &self.store
    }

    /// The mutants that need one sighting only: whatever a sweep might see for the first time counts as seen before.
    fn age_sightings(&mut self, cluster: &ClusterName) {
        let mut subjects: Vec<String> = Vec::new();
        if self.is(Mutant::OrphanAtFirstSight) {
            subjects.extend(self.region.machines.keys().map(|id| format!("instance/{id} without claim")));
        }
        if self.is(Mutant::SingleReadTrusted) {
            subjects.extend(self.store.claims(cluster).map(|claim| format!("claim/{} without NodePool", claim.value.key.name)));
            let objects = self.cluster.objects.node_claims.values().map(|object| &object.metadata);
            subjects.extend(objects.map(|meta| format!("nodeclaim/{} of {} made by hand", meta.name, meta.uid)));
        }
        let now = self.now();
        let hour = SignedDuration::from_hours(1);
        for subject in subjects {
            let sighting = Sighting { subject, first_seen_at: now - hour, expires_at: now + hour };
            // An existing one is old enough, or becomes so.
            let _ = self.store.write(cluster, &sighting, Revision::ABSENT, now);
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn stock_out_size(stock_out: &StockOut) -> u64 {
    meter::value_size("OFFERING".len(), stock_out.offering.to_string().len(), meter::json_size(stock_out), true)
}

fn decision_size(cluster: &ClusterName, decision: &DecisionRecord) -> u64 {
    let key = ("DECISION##0".len() + cluster.as_str().len(), "00001767603600000000##00000".len());
    meter::value_size(key.0, key.1, meter::json_size(decision), true) + length(decision.subject.as_bytes())
}

fn unreadable(name: &str) -> StoreError {
    StoreError::Unreadable { what: format!("claim {name}"), reason: "a newer release wrote it".to_owned() }
}

impl ClaimStore for SimPorts {
    async fn get(&self, key: &ClaimKey) -> Result<Option<Stored<Claim>>, StoreError> {
        self.call(TABLE, "a claim", |world| {
            if world.store.is_hidden(key) {
                return Err(unreadable(key.name.as_str()));
            }
            let found = world.table().claim(key).cloned();
            self.count(world, |meter, by| {
                let size = found.as_ref().map_or(0, |found| meter.claim(&found.value, found.revision));
                meter.get(by, "claim", size);
            });
            Ok(found)
        })
        .await
    }
    async fn listing(&self, cluster: &ClusterName) -> Result<Listing, StoreError> {
        self.call(TABLE, "the claims", |world| {
            if self.caller(world) == Some(Function::Consolidate) {
                world.observe_claim_listing();
            }
            world.table();
            let claims = self.hide_endings(world, world.claims_seen(cluster));
            self.count(world, |meter, by| meter.query_claims(by, claims.iter().map(|claim| (&claim.value, claim.revision))));
            Ok(Listing { claims, unreadable: world.store.unreadable(cluster) })
        })
        .await
    }
    async fn by_instance(&self, id: &InstanceId) -> Result<Option<Stored<Claim>>, StoreError> {
        self.call(TABLE, "a claim", |world| match world.store.hidden_owner(id) {
            Some(name) => Err(unreadable(&name)),
            None => {
                let found = world.table().by_instance(id).cloned();
                self.count(world, |meter, by| {
                    meter.get(by, "instance", 0);
                    if let Some(found) = &found {
                        let size = meter.claim(&found.value, found.revision);
                        meter.get(by, "claim", size);
                    }
                });
                Ok(found)
            }
        })
        .await
    }
    async fn create(&self, lease: &Lease, claim: &Claim) -> Result<Revision, StoreError> {
        self.create_all(lease, std::slice::from_ref(claim)).await.map(|()| Revision::ABSENT.next())
    }
    async fn create_all(&self, lease: &Lease, claims: &[Claim]) -> Result<(), StoreError> {
        for together in claims.chunks(CLAIMS_PER_REQUEST) {
            self.call(TABLE, "a new claim", |world| {
                if self.caller(world).is_some() && world.delays_claims(lease, together) {
                    let reason = "the writer gave up before the table received it".to_owned();
                    return Err(StoreError::Unavailable { what: "a new claim".to_owned(), reason });
                }
                self.count(world, |meter, by| {
                    meter.transact(by, "lease", 0);
                    for claim in together {
                        let size = meter.claim(claim, Revision::ABSENT.next());
                        meter.transact(by, "claim", size);
                        if claim.instance().is_some() {
                            meter.transact(by, "instance", meter::pointer_size(claim));
                        }
                    }
                });
                world.create_claims(lease, together)
            })
            .await?;
        }
        Ok(())
    }
    async fn update(&self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        self.race(TABLE, "a claim", |world| {
            if self.caller(world).is_some() {
                world.write_concurrently(&claim.key);
            }
            self.count(world, |meter, by| {
                let size = meter.claim(claim, expected.next());
                // The transaction with the instance's pointer.
                if claim.instance().is_some() && matches!(claim.phase, Phase::Launched { .. } | Phase::Gone { .. }) {
                    meter.transact(by, "claim", size);
                    meter.transact(by, "instance", meter::pointer_size(claim));
                } else {
                    meter.put(by, "claim", size);
                }
            });
            world.update_claim(claim, expected)
        })
        .await
    }
}

impl Leases for SimPorts {
    async fn acquire(&self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> Result<Lease, StoreError> {
        self.call(TABLE, "the lease", |world| {
            self.count(world, |meter, by| {
                meter.get(by, "lease", 0);
                meter.put(by, "lease", 0);
            });
            let held = world.is(Mutant::LeaseIgnored);
            let lease =
                if held { world.store.acquire_shared(cluster, owner, now, ttl) } else { world.store.acquire(cluster, owner, now, ttl)? };
            world.observe_lease(&lease);
            Ok(lease)
        })
        .await
    }
    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.call(TABLE, "the lease", |world| {
            self.count(world, |meter, by| meter.put(by, "lease", 0));
            world.store.release(lease);
            world.observe_release(lease);
            Ok(())
        })
        .await
    }
}

impl RecordReader for SimPorts {
    async fn read<R: Record>(&self, cluster: &ClusterName, name: &str) -> Result<Option<Stored<R>>, StoreError> {
        self.call(TABLE, R::KIND, |world| {
            self.count_record(world, cluster, R::KIND, Some(name));
            world.store.read(cluster, name, world.now())
        })
        .await
    }
    async fn read_all<R: Record>(&self, cluster: &ClusterName) -> Result<Vec<Stored<R>>, StoreError> {
        self.call(TABLE, R::KIND, |world| {
            if R::KIND == Sighting::KIND {
                world.age_sightings(cluster);
            }
            self.count_record(world, cluster, R::KIND, None);
            Ok(world.store.read_all(cluster, world.now()))
        })
        .await
    }
}

impl Records for SimPorts {
    async fn write<R: Record>(&self, cluster: &ClusterName, record: &R, expected: Revision) -> Result<Revision, StoreError> {
        self.race(TABLE, R::KIND, |world| {
            let now = world.now();
            if R::KIND == NodeClassRecord::KIND {
                world.observe_class_record(&serde_json::to_value(record).unwrap_or_default());
            }
            if world.is_too_large(record) {
                return Err(StoreError::Unavailable {
                    what: record.name(),
                    reason: "Item size has exceeded the maximum allowed size".to_owned(),
                });
            }
            self.count(world, |meter, by| {
                let pk = "RECORD##".len() + cluster.as_str().len() + R::KIND.len();
                let size = meter::value_size(pk, record.name().len(), meter::at_rest_size(record), record.expires_at().is_some());
                meter.put(by, R::KIND, size);
            });
            world.store.write(cluster, record, expected, now)
        })
        .await
    }
}

impl RecordRemoval for SimPorts {
    async fn remove<R: Record>(&self, cluster: &ClusterName, name: &str, expected: Revision) -> Result<(), StoreError> {
        self.race(TABLE, R::KIND, |world| {
            if world.meter.is_some() {
                let size = world.store.record_size(cluster, R::KIND, Some(name));
                self.count(world, |meter, by| meter.put(by, R::KIND, size));
            }
            world.store.remove::<R>(cluster, name, expected)
        })
        .await
    }
}

impl Erase for SimPorts {
    async fn erase(&self, cluster: &ClusterName, kinds: &[&str]) -> Result<u64, StoreError> {
        self.call(TABLE, "the cluster's items", |world| Ok(world.store.erase(cluster, kinds))).await
    }
}

impl RegionStore for SimPorts {
    async fn stock_outs(&self, now: Timestamp) -> Result<Vec<StockOut>, StoreError> {
        self.call(TABLE, "stock-outs", |world| {
            let found = world.store.stock_outs(now);
            self.count(world, |meter, by| meter.query(by, "stock-out", found.iter().map(stock_out_size).sum()));
            Ok(found)
        })
        .await
    }
    async fn put_stock_outs(&self, stock_outs: &[StockOut]) -> Result<(), StoreError> {
        self.call(TABLE, "stock-outs", |world| {
            self.count(world, |meter, by| stock_outs.iter().for_each(|one| meter.put(by, "stock-out", stock_out_size(one))));
            stock_outs.iter().for_each(|stock_out| world.store.put_stock_out(stock_out));
            Ok(())
        })
        .await
    }
    async fn catalog(&self) -> Result<Option<Stored<Vec<u8>>>, StoreError> {
        self.call(TABLE, "the catalog", |world| {
            let found = world.store.catalog();
            self.count(world, |meter, by| {
                meter.get(by, "catalog", 0);
                if let (Some(found), Some(function)) = (&found, by)
                    && meter.is_new_catalog(function, found.revision)
                {
                    meter.get(by, "catalog", length(&found.value));
                }
            });
            Ok(found)
        })
        .await
    }
}

impl TokenBuckets for SimPorts {
    async fn take_tokens(&self, name: &BucketName, full: &Bucket, count: u32, now: Timestamp) -> Result<bool, StoreError> {
        self.call(TABLE, "a token bucket", |world| {
            if name.0 == "CreateFleet" {
                world.neighbours_launch(name, full, now);
            }
            let taken = world.store.take_tokens(name, full, count, now);
            self.count(world, |meter, by| {
                meter.get(by, "bucket", 0);
                if taken {
                    meter.put(by, "bucket", 0);
                }
            });
            if taken {
                world.observe_tokens(name, count);
            }
            Ok(taken)
        })
        .await
    }
}

impl CatalogWriter for SimPorts {
    async fn put_catalog(&self, blob: &[u8], expected: Revision) -> Result<Revision, StoreError> {
        self.call(TABLE, "the catalog", |world| {
            let before = world.store.catalog().map(|stored| stored.value).unwrap_or_default();
            self.count(world, |meter, by| {
                // The head is read and replaced; changed parts are written, and the old ones deleted.
                meter.get(by, "catalog", 0);
                meter.put(by, "catalog", 0);
                let (old, new) = (catalog_parts(&before), catalog_parts(blob));
                new.iter().filter(|part| !old.contains(part)).for_each(|part| meter.put(by, "catalog", length(part)));
                old.iter().filter(|part| !new.contains(part)).for_each(|part| meter.put(by, "catalog", length(part)));
            });
            world.store.put_catalog(blob, expected)
        })
        .await
    }
    async fn catalog_reads(&self) -> Result<Option<CatalogReads>, StoreError> {
        self.call(TABLE, "the times of the catalog", |world| {
            self.count(world, |meter, by| meter.get(by, "catalog", 0));
            Ok(world.store.catalog_reads.clone())
        })
        .await
    }
    async fn put_catalog_reads(&self, reads: &CatalogReads) -> Result<(), StoreError> {
        self.call(TABLE, "the times of the catalog", |world| {
            self.count(world, |meter, by| meter.put(by, "catalog", 0));
            world.store.catalog_reads = Some(reads.clone());
            Ok(())
        })
        .await
    }
}

impl DecisionLog for SimPorts {
    async fn append(&self, cluster: &ClusterName, decisions: &[DecisionRecord]) -> Result<(), StoreError> {
        self.call(TABLE, "the decision log", |world| {
            self.count(world, |meter, by| decisions.iter().for_each(|one| meter.put(by, "decision", decision_size(cluster, one))));
            world.record_decisions(cluster, decisions);
            Ok(())
        })
        .await
    }
    async fn recent(&self, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> Result<Vec<DecisionRecord>, StoreError> {
        self.call(TABLE, "the decision log", |world| {
            // A request for each partition of the log, or for that of the subject.
            self.count(world, |meter, by| (0..if subject.is_some() { 1 } else { 8 }).for_each(|_| meter.query(by, "decision", 0)));
            let about = |decision: &&DecisionRecord| subject.is_none_or(|subject| decision.subject == subject);
            Ok(world.store.decisions(cluster).iter().rev().filter(about).take(limit).cloned().collect())
        })
        .await
    }
}
