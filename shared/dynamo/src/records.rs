//! Records other than claims.

use crate::DynamoStore;
use crate::call::{Condition, Put};
use crate::errors::{self, Class};
use crate::item::{self, Item, attribute, number};
use crate::keys;
use whittle_claims::{Record, Revision, Stored};
use whittle_ports::{RecordReader, RecordRemoval, Records, StoreError};
use whittle_units::ClusterName;

fn what<R: Record>(cluster: &ClusterName, name: &str) -> String {
    format!("{} {cluster}/{name}", R::KIND)
}

fn decode<R: Record>(item: &Item, what: &str) -> Result<Stored<R>, StoreError> {
    let revision = item::revision_of(item, what)?;
    Ok(Stored { value: item::value_of(item, R::VERSION, what)?, revision })
}

impl RecordReader for DynamoStore {
    async fn read<R: Record>(&self, cluster: &ClusterName, name: &str) -> Result<Option<Stored<R>>, StoreError> {
        let what = what::<R>(cluster, name);
        self.get_item(&keys::record(cluster, R::KIND, name), &what).await?.map(|item| decode(&item, &what)).transpose()
    }

    async fn read_all<R: Record>(&self, cluster: &ClusterName) -> Result<Vec<Stored<R>>, StoreError> {
        let mut records = Vec::new();
        for item in self.query(&keys::records(cluster, R::KIND), &format!("the {} records of {cluster}", R::KIND)).await? {
            let name = item::text_of(&item, attribute::SK).unwrap_or_default();
            match decode(&item, &what::<R>(cluster, name)) {
                Ok(record) => records.push(record),
                Err(error) => tracing::error!(%error, "a stored record is skipped"),
            }
        }
        Ok(records)
    }
}

impl Records for DynamoStore {
    async fn write<R: Record>(&self, cluster: &ClusterName, record: &R, expected: Revision) -> Result<Revision, StoreError> {
        let name = record.name();
        let what = what::<R>(cluster, &name);
        let revision = expected.next();
        let item = item::of_value_at_rest(&keys::record(cluster, R::KIND, &name), R::VERSION, record);
        let item = item::with_revision(item, revision, &self.write_id(), record.expires_at());
        match self.put_if(item, Condition::revision(expected, self.clock.now()), &what).await? {
            Put::Written => Ok(revision),
            Put::Refused(_) => Err(StoreError::Conflict { what }),
        }
    }
}

impl RecordRemoval for DynamoStore {
    async fn remove<R: Record>(&self, cluster: &ClusterName, name: &str, expected: Revision) -> Result<(), StoreError> {
        let what = what::<R>(cluster, name);
        let answer = self
            .client
            .delete_item()
            .table_name(self.table())
            .set_key(Some(item::of_key(&keys::record(cluster, R::KIND, name))))
            // Removing what does not exist is a success: a repeated removal is no conflict.
            .condition_expression("attribute_not_exists(#pk) OR #rev = :rev")
            .expression_attribute_names("#pk", attribute::PK)
            .expression_attribute_names("#rev", attribute::REV)
            .expression_attribute_values(":rev", number(expected.0))
            .customize()
            .config_override(self.limits(&what)?)
            .send()
            .await;
        match answer {
            Ok(_) => Ok(()),
            Err(error) if errors::class(&error) == Class::ConditionFailed => Err(StoreError::Conflict { what }),
            Err(error) => Err(errors::store_error(error, &what)),
        }
    }
}
