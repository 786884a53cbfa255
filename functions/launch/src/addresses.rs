//! Addresses that launches have taken of subnets since EC2 counted them: the count is minutes old, a launch takes seconds.

use crate::batch::Batch;
use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_api::karpenter::ResolvedSubnet;
use whittle_claims::{NodeClassRecord, Record, Revision};
use whittle_ec2::fleet::FleetInstance;
use whittle_ports::{Clock, HandleError, Records, StoreError};
use whittle_units::{SignedDuration, Timestamp};

/// By then every class has been looked at again, and EC2 has counted what was taken before.
const KEPT: SignedDuration = SignedDuration::from_mins(10);
/// EC2's count may lag behind the machines that it has just started by this much.
const CATCHES_UP: SignedDuration = SignedDuration::from_secs(5);
/// What is noted at once; more is of no use to anybody.
const USES_MAX: usize = 200;
/// Runs that note theirs at the same moment; whoever loses more often leaves it.
const TRIED_MAX: usize = 3;

/// What the machines of one call take of one subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) batch: String,
    pub(crate) subnet: String,
    pub(crate) addresses: u32,
    pub(crate) at: Timestamp,
}

/// The latest of them. Written by `launch` alone, and only where a class has a choice of subnets.
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
        self.recent.iter().map(|one| one.at).max()?.checked_add(KEPT).ok()
    }
}

/// Whether a class has several subnets in one zone: elsewhere there is nothing to choose.
pub(crate) fn has_choice(subnets: &[ResolvedSubnet]) -> bool {
    subnets.iter().enumerate().any(|(at, one)| subnets.iter().skip(at + 1).any(|other| other.zone == one.zone))
}

/// The addresses that are left of a class's subnets, by id: what EC2 counted, less what was taken since.
pub(crate) fn left(class: &NodeClassRecord, uses: &[Use]) -> BTreeMap<String, u32> {
    let mut free = class.free_addresses.clone();
    for one in uses {
        let since = class.resolved_at.duration_since(one.at) < CATCHES_UP;
        if let Some(count) = free.get_mut(&one.subnet).filter(|_| since) {
            *count = count.saturating_sub(one.addresses);
        }
    }
    free
}

impl<P: Rights> Run<'_, P> {
    /// Notes where the machines of a call came up. Losing that only makes the next choice a little worse.
    pub(crate) async fn note_addresses(&self, batch: &Batch, instances: &[FleetInstance]) -> Result<(), HandleError> {
        let chooses = self.facts.class(&batch.node_class).is_some_and(|class| has_choice(&class.subnets));
        if !chooses || instances.is_empty() || batch.addresses == 0 {
            return Ok(());
        }
        let mut by_subnet: BTreeMap<&str, u32> = BTreeMap::new();
        for instance in instances {
            *by_subnet.entry(&instance.subnet_id).or_default() += batch.addresses;
        }
        for _ in 0..TRIED_MAX {
            let now = self.ports.clock().now();
            let known = self.ports.store().read::<SubnetUse>(self.cluster, SubnetUse::NAME).await?;
            let expected = known.as_ref().map_or(Revision::ABSENT, |known| known.revision);
            let mut next = known.map(|known| known.value).unwrap_or_default();
            if next.recent.iter().any(|one| one.batch == batch.id) {
                return Ok(());
            }
            next.recent.retain(|one| now.duration_since(one.at) < KEPT);
            let uses = by_subnet.iter().map(|(subnet, addresses)| {
                let (batch, subnet) = (batch.id.clone(), (*subnet).to_owned());
                Use { batch, subnet, addresses: *addresses, at: now }
            });
            next.recent.extend(uses);
            let surplus = next.recent.len().saturating_sub(USES_MAX);
            next.recent.drain(..surplus);
            match self.ports.store().write(self.cluster, &next, expected).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
