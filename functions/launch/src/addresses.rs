//! Subnet addresses that launches have used since EC2 last counted them: the count is minutes old, a launch takes seconds.

use crate::batch::Batch;
use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_api::karpenter::ResolvedSubnet;
use whittle_claims::{NodeClassRecord, Record};
use whittle_ec2::fleet::FleetInstance;
use whittle_ports::{HandleError, update_record};
use whittle_units::{SignedDuration, Timestamp};

/// By then every class has been refreshed, and EC2's count includes what was used before.
const RETENTION: SignedDuration = SignedDuration::from_mins(10);
/// EC2's count may lag this far behind the instances that it has just started.
const EC2_COUNT_LAG: SignedDuration = SignedDuration::from_secs(5);
/// Entries of the record; older ones make no difference to the choice of a subnet.
const USES_MAX: usize = 200;
/// Write attempts against concurrent runs; after that the entry is dropped.
const WRITE_ATTEMPTS_MAX: usize = 3;

/// The addresses that the instances of one call use in one subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) batch: String,
    pub(crate) subnet: String,
    pub(crate) addresses: u32,
    pub(crate) at: Timestamp,
}

/// The most recent uses. Written by `launch` alone, and only where a class has a choice of subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubnetUse {
    pub(crate) recent: Vec<Use>,
}

impl SubnetUse {
    pub(crate) const NAME: &'static str = "recent";
}

impl Record for SubnetUse {
    const KIND: &'static str = "subnet-use";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.recent.iter().map(|one| one.at).max()?.checked_add(RETENTION).ok()
    }
}

/// Whether a class has several subnets in one zone; otherwise there is nothing to choose.
pub(crate) fn has_choice(subnets: &[ResolvedSubnet]) -> bool {
    subnets.iter().enumerate().any(|(at, one)| subnets.iter().skip(at + 1).any(|other| other.zone == one.zone))
}

/// The free addresses of a class's subnets, by id: what EC2 counted, less what has been used since.
pub(crate) fn free_addresses(class: &NodeClassRecord, uses: &[Use]) -> BTreeMap<String, u32> {
    let mut free = class.free_addresses.clone();
    for one in uses {
        let since = class.resolved_at.duration_since(one.at) < EC2_COUNT_LAG;
        if let Some(count) = free.get_mut(&one.subnet).filter(|_| since) {
            *count = count.saturating_sub(one.addresses);
        }
    }
    free
}

impl<P: Rights> Run<'_, P> {
    /// Records in which subnets the instances of a call started. Losing the entry only makes the next choice slightly worse.
    pub(crate) async fn record_addresses(&self, batch: &Batch, instances: &[FleetInstance]) -> Result<(), HandleError> {
        let chooses = self.facts.class(&batch.node_class).is_some_and(|class| has_choice(&class.subnets));
        if !chooses || instances.is_empty() || batch.addresses == 0 {
            return Ok(());
        }
        let mut by_subnet: BTreeMap<&str, u32> = BTreeMap::new();
        for instance in instances {
            *by_subnet.entry(&instance.subnet_id).or_default() += batch.addresses;
        }
        let next = |known: Option<SubnetUse>, now: Timestamp| {
            let mut next = known.unwrap_or_default();
            if next.recent.iter().any(|one| one.batch == batch.id) {
                return None;
            }
            next.recent.retain(|one| now.duration_since(one.at) < RETENTION);
            let uses = by_subnet.iter().map(|(subnet, addresses)| {
                let (batch, subnet) = (batch.id.clone(), (*subnet).to_owned());
                Use { batch, subnet, addresses: *addresses, at: now }
            });
            next.recent.extend(uses);
            let surplus = next.recent.len().saturating_sub(USES_MAX);
            next.recent.drain(..surplus);
            Some(next)
        };
        update_record(self.ports, self.cluster, SubnetUse::NAME, WRITE_ATTEMPTS_MAX, next).await?;
        Ok(())
    }
}
