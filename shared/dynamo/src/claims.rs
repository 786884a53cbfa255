//! Claims, and the items that point from instances to claims.

use crate::DynamoStore;
use crate::call::{Condition, Put};
use crate::errors::Class;
use crate::item::{self, Item, attribute, number, text};
use crate::keys;
use aws_sdk_dynamodb::types::{ConditionCheck, Put as PutAction, TransactWriteItem};
use futures::future::try_join_all;
use whittle_claims::{AtRest, Claim, ClaimKey, Lease, Phase, Revision, SHARDS, Stored};
use whittle_ports::{CLAIMS_PER_REQUEST, ClaimStore, Listing, StoreError};
use whittle_units::{ClusterName, InstanceId};

/// Raised when an older release would misread a stored claim.
pub(crate) const VERSION: u32 = 1;

/// A claim as it is stored: the version of its schema, and JSON, which is compressed in its item. The golden files of each release are
/// written and checked with it.
pub fn encode_claim(claim: &Claim) -> (u32, String) {
    (VERSION, serde_json::to_string(claim).expect("a claim is plain data, which JSON can always express"))
}

/// Bytes of claims in one transaction. DynamoDB allows 4 MB, keys and other attributes included.
const TRANSACTION_MAX: usize = 3 * 1024 * 1024;

/// The claims in their order, divided into what one transaction can hold.
fn batches(claims: &[Claim]) -> Vec<&[Claim]> {
    let (mut out, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, claim) in claims.iter().enumerate() {
        let size = encode_claim(claim).1.len();
        if at > from && (at - from == CLAIMS_PER_REQUEST || bytes + size > TRANSACTION_MAX) {
            out.push(&claims[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += size;
    }
    out.extend((from < claims.len()).then(|| &claims[from..]));
    out
}

fn what(key: &ClaimKey) -> String {
    format!("claim {key}")
}

fn claim_item(claim: &Claim, revision: Revision, write: &str) -> Item {
    let (version, json) = encode_claim(claim);
    let item = item::of_json(&keys::claim(&claim.key), version, AtRest::of(json));
    let mut item = item::with_revision(item, revision, write, claim.deletable_at());
    if let Some(instance) = claim.instance() {
        item.insert(attribute::INSTANCE.to_owned(), text(instance.as_str()));
    }
    item
}

fn pointer_item(instance: &InstanceId, claim: &Claim) -> Item {
    let mut item = item::of_key(&keys::instance(instance));
    item.insert(attribute::CLUSTER.to_owned(), text(claim.key.cluster.as_str()));
    item.insert(attribute::NAME.to_owned(), text(claim.key.name.as_str()));
    if let Some(at) = claim.deletable_at() {
        item.insert(attribute::TTL.to_owned(), number(at.as_second()));
    }
    item
}

/// The instance has a claim already.
fn owned(instance: &InstanceId) -> StoreError {
    StoreError::Conflict { what: format!("the owner of instance {instance}") }
}

fn decode(item: &Item, what: &str) -> Result<Stored<Claim>, StoreError> {
    let revision = item::revision_of(item, what)?;
    Ok(Stored { value: item::value_of(item, VERSION, what)?, revision })
}

/// Decodes items of a cluster's claims. One that cannot be read is logged.
fn decode_all(cluster: &ClusterName, items: Vec<Item>) -> Listing {
    let mut listing = Listing::default();
    for item in items {
        match decode(&item, &format!("claim {cluster}/{}", name_of(&item))) {
            Ok(claim) => listing.claims.push(claim),
            Err(error) => {
                tracing::error!(%error, "a stored claim is skipped");
                listing.unreadable.push(name_of(&item));
            }
        }
    }
    listing
}

/// The name of the claim that is stored in an item, from its key.
fn name_of(item: &Item) -> String {
    item::text_of(item, attribute::SK).unwrap_or_default().to_owned()
}

impl DynamoStore {
    /// The items of all claims of a cluster, or of those that lack an attribute.
    async fn claim_items(&self, cluster: &ClusterName, lacking: Option<&str>) -> Result<Vec<Item>, StoreError> {
        let what = format!("the claims of {cluster}");
        let shards = (0..SHARDS).map(|shard| keys::claim_shard(cluster, shard));
        let queries = shards.map(|shard| {
            let what = &what;
            async move { self.query_lacking(&shard, lacking, what).await }
        });
        let mut items: Vec<Item> = try_join_all(queries).await?.into_iter().flatten().collect();
        items.sort_by_cached_key(name_of);
        Ok(items)
    }

    fn lease_check(&self, lease: &Lease) -> TransactWriteItem {
        let check = ConditionCheck::builder()
            .table_name(self.table())
            .set_key(Some(item::of_key(&keys::lease(&lease.cluster))))
            .condition_expression("#token = :token")
            .expression_attribute_names("#token", attribute::TOKEN)
            .expression_attribute_values(":token", number(lease.token.0))
            .build()
            .expect("table, key and condition are set");
        TransactWriteItem::builder().condition_check(check).build()
    }

    fn put_action(&self, item: Item, condition: Condition) -> TransactWriteItem {
        let mut put = PutAction::builder().table_name(self.table()).set_item(Some(item)).condition_expression(condition.expression);
        for (placeholder, name) in condition.names {
            put = put.expression_attribute_names(placeholder, name);
        }
        for (placeholder, value) in condition.values {
            put = put.expression_attribute_values(placeholder, value);
        }
        TransactWriteItem::builder().put(put.build().expect("table and item are set")).build()
    }

    /// Writes the pointer from an instance to its claim, unless it points to another claim. With `replace_ended`, for claims that
    /// are being deleted or adopted, the pointer of an ended claim is overwritten; a launched claim conflicts with it until
    /// its TTL expires.
    fn pointer_put(&self, claim: &Claim, instance: &InstanceId, replace_ended: bool) -> TransactWriteItem {
        let mut condition = Condition {
            expression: "attribute_not_exists(#pk) OR (#cluster = :cluster AND #name = :name) OR #ttl <= :now",
            names: vec![("#pk", attribute::PK), ("#cluster", attribute::CLUSTER), ("#name", attribute::NAME), ("#ttl", attribute::TTL)],
            values: vec![
                (":cluster", text(claim.key.cluster.as_str())),
                (":name", text(claim.key.name.as_str())),
                (":now", number(self.clock.now().as_second())),
            ],
        };
        if replace_ended {
            // Only the pointers of ended claims have a TTL.
            condition.expression = "attribute_not_exists(#pk) OR (#cluster = :cluster AND #name = :name) OR attribute_exists(#ttl)";
            condition.values.pop();
        }
        self.put_action(pointer_item(instance, claim), condition)
    }

    /// Creates claims in one transaction, with the pointers from their instances.
    async fn create_together(&self, lease: &Lease, claims: &[Claim]) -> Result<(), StoreError> {
        let what = match claims {
            [only] => what(&only.key),
            _ => format!("{} new claims of {}", claims.len(), lease.cluster),
        };
        let mut actions = vec![self.lease_check(lease)];
        // What it means that the condition of an action does not hold, in the order of actions.
        let mut refusals = vec![StoreError::Fenced { cluster: lease.cluster.clone() }];
        for claim in claims {
            let item = claim_item(claim, Revision::ABSENT.next(), &self.write_id());
            actions.push(self.put_action(item, Condition::revision(Revision::ABSENT, self.clock.now())));
            refusals.push(StoreError::Conflict { what: self::what(&claim.key) });
            if let Some(instance) = claim.instance() {
                actions.push(self.pointer_put(claim, instance, true));
                refusals.push(owned(instance));
            }
        }
        let Some(classes) = self.transact(actions, &what).await? else { return Ok(()) };
        let refused = classes.iter().position(|class| *class == Some(Class::ConditionFailed));
        Err(refused.and_then(|at| refusals.into_iter().nth(at)).unwrap_or(StoreError::Conflict { what }))
    }

    /// Replaces a claim and writes the pointer from its instance in one transaction. It is a conflict when the instance
    /// belongs to another claim.
    async fn update_with_pointer(&self, claim: &Claim, instance: &InstanceId, expected: Revision) -> Result<Revision, StoreError> {
        let what = what(&claim.key);
        let revision = expected.next();
        let claim_put = self.put_action(
            claim_item(claim, revision, &self.write_id()),
            Condition { expression: "#rev = :rev", names: vec![("#rev", attribute::REV)], values: vec![(":rev", number(expected.0))] },
        );
        let pointer_put = self.pointer_put(claim, instance, claim.deletion.is_some());
        match self.transact(vec![claim_put, pointer_put], &what).await?.as_deref() {
            None => Ok(revision),
            Some([Some(Class::ConditionFailed), ..]) => Err(StoreError::Conflict { what }),
            Some(_) => Err(owned(instance)),
        }
    }
}

impl ClaimStore for DynamoStore {
    async fn get(&self, key: &ClaimKey) -> Result<Option<Stored<Claim>>, StoreError> {
        let what = what(key);
        self.get_item(&keys::claim(key), &what).await?.map(|item| decode(&item, &what)).transpose()
    }

    async fn listing(&self, cluster: &ClusterName) -> Result<Listing, StoreError> {
        Ok(decode_all(cluster, self.claim_items(cluster, None).await?))
    }

    async fn has_claims(&self, cluster: &ClusterName) -> Result<bool, StoreError> {
        let what = &format!("the claims of {cluster}");
        // One partition by itself first: where there are many claims it has some, and all of them cost eight times as much.
        for shards in [0..1, 1..SHARDS] {
            let queries = shards.map(|shard| async move { self.has_items(&keys::claim_shard(cluster, shard), what).await });
            if try_join_all(queries).await?.contains(&true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn without_instance(&self, cluster: &ClusterName) -> Result<Vec<Stored<Claim>>, StoreError> {
        let items = self.claim_items(cluster, Some(attribute::INSTANCE)).await?;
        let mut claims = decode_all(cluster, items).claims;
        // An item that an earlier release wrote may lack the attribute although its claim has a machine.
        claims.retain(|claim| claim.value.instance().is_none());
        Ok(claims)
    }

    async fn by_instance(&self, id: &InstanceId) -> Result<Option<Stored<Claim>>, StoreError> {
        let what = format!("the claim of instance {id}");
        let Some(pointer) = self.get_item(&keys::instance(id), &what).await? else { return Ok(None) };
        let name = |name| item::text_of(&pointer, name).ok_or_else(|| item::unreadable(&what, format!("the pointer has no {name}")));
        let key = ClaimKey { cluster: name(attribute::CLUSTER)?.into(), name: name(attribute::NAME)?.into() };
        // The pointer outlives the machine by a day.
        Ok(self.get(&key).await?.filter(|stored| stored.value.machine().is_some_and(|machine| machine.instance_id == *id)))
    }

    async fn create(&self, lease: &Lease, claim: &Claim) -> Result<Revision, StoreError> {
        self.create_together(lease, std::slice::from_ref(claim)).await.map(|()| Revision::ABSENT.next())
    }

    async fn create_all(&self, lease: &Lease, claims: &[Claim]) -> Result<(), StoreError> {
        for together in batches(claims) {
            self.create_together(lease, together).await?;
        }
        Ok(())
    }

    async fn update(&self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        let what = what(&claim.key);
        if expected == Revision::ABSENT {
            // Only `create` creates claims, because it checks the lease.
            return Err(StoreError::Conflict { what });
        }
        let revision = expected.next();
        let instance = claim.instance();
        // A launch adds the instance, and an ended claim sets the TTL of the pointer: both need the transaction.
        if let Some(instance) = instance.filter(|_| matches!(claim.phase, Phase::Launched { .. } | Phase::Gone { .. })) {
            return self.update_with_pointer(claim, instance, expected).await;
        }
        let mut condition = Condition::revision(expected, self.clock.now());
        if let Some(instance) = instance {
            condition.expression = "#rev = :rev AND #instance = :instance";
            condition.names.push(("#instance", attribute::INSTANCE));
            condition.values.push((":instance", text(instance.as_str())));
        }
        let item = claim_item(claim, revision, &self.write_id());
        match (self.put_if(item, condition, &what).await?, instance) {
            (Put::Written, _) => Ok(revision),
            // The stored claim has no such instance yet, so the pointer is missing as well.
            (Put::Refused(Some(old)), Some(instance)) if item::number_of(&old, attribute::REV) == Some(expected.0) => {
                self.update_with_pointer(claim, instance, expected).await
            }
            (Put::Refused(_), _) => Err(StoreError::Conflict { what }),
        }
    }
}
