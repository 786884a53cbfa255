//! The limits of a region: finite pools, subnet addresses, quotas, and the lag with which EC2 and IAM show new resources.

use super::{Machine, Region};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_ec2::fleet::{FleetOverride, FleetPoolError};
use whittle_ec2::instance_types::quota_of;

/// The limits of a region; by default there are none.
#[derive(Clone, Debug, Default)]
pub struct Supply {
    /// Machines that can still be started, by type, zone and capacity type. Other pools are unlimited.
    pub pools: BTreeMap<(String, String, String), u32>,
    /// Whether machines use up the addresses of their subnet.
    pub counts_addresses: bool,
    /// vCPUs that may run at once, by quota (such as `Standard`) and capacity type.
    pub vcpus: BTreeMap<(String, String), u32>,
    /// Whether EC2 ranks pools by its own prices; otherwise by the priorities of the request.
    pub own_prices: bool,
    /// Errors of certain pools, the first of which counts.
    pub refusals: Vec<PoolRefusal>,
    /// Whether a fleet reports the errors of all its pools although it started machines.
    pub reports_all_errors: bool,
    /// How long DescribeInstances does not show a new machine.
    pub describe_lag: SignedDuration,
    /// How long EC2 does not know a new instance profile.
    pub profile_lag: SignedDuration,
    /// How long IAM itself does not show a new instance profile.
    pub iam_lag: SignedDuration,
    /// How long a machine takes from its launch until its kubelet registers; by default that differs, and is half a minute or so.
    pub boot: Option<SignedDuration>,
}

/// The error of all pools of an instance type and zone; an empty name stands for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolRefusal {
    pub instance_type: String,
    pub zone: String,
    pub code: String,
    pub message: String,
    /// How many machines its pools still start before they report it: with some, a fleet is filled in part.
    pub after: u32,
}

impl PoolRefusal {
    /// Whether it is about pools of this type and zone.
    fn concerns(&self, instance_type: &str, zone: &str) -> bool {
        let fits = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        fits(&self.instance_type, instance_type) && fits(&self.zone, zone)
    }
}

fn pool_error(pool: &FleetOverride, code: &str, message: String) -> FleetPoolError {
    FleetPoolError { code: code.to_owned(), message, instance_type: pool.instance_type.clone(), zone: pool.zone.clone() }
}

impl Region {
    /// Whether DescribeInstances shows a machine by now.
    pub fn is_described(&self, machine: &Machine, now: Timestamp) -> bool {
        now.duration_since(machine.instance.launched_at) >= self.supply.describe_lag
    }

    /// Whether IAM shows an instance profile by now.
    pub fn shows_profile(&self, name: &str, now: Timestamp) -> bool {
        let made = self.network.profile_origins.get(name).and_then(|origin| origin.created_at);
        made.is_none_or(|at| now.duration_since(at) >= self.supply.iam_lag)
    }

    /// The error of a pool whose request breaks a limit of the account.
    pub(super) fn limit_error(&self, profile: &str, pool: &FleetOverride, capacity_type: &str, now: Timestamp) -> Option<FleetPoolError> {
        let refused = |refusal: &&PoolRefusal| refusal.after == 0 && refusal.concerns(&pool.instance_type, &pool.zone);
        if let Some(refusal) = self.supply.refusals.iter().find(refused) {
            return Some(pool_error(pool, &refusal.code, refusal.message.clone()));
        }
        let made = self.network.profile_origins.get(profile).and_then(|origin| origin.created_at);
        if made.is_some_and(|at| now.duration_since(at) < self.supply.profile_lag) {
            let text = format!("Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name");
            return Some(pool_error(pool, "InvalidParameterValue", text));
        }
        if self.supply.vcpus.is_empty() {
            return None;
        }
        let quota = quota_of(&pool.instance_type).to_owned();
        let limit = *self.supply.vcpus.get(&(quota.clone(), capacity_type.to_owned()))?;
        let vcpus = |instance_type: &str| self.catalog.facts(instance_type).map_or(0, |facts| facts.vcpus);
        let counted = self.machines.values().map(|machine| &machine.instance).filter(|instance| {
            instance.is_alive() && instance.capacity_type == capacity_type && quota_of(&instance.instance_type) == quota
        });
        let used: u32 = counted.map(|instance| vcpus(&instance.instance_type)).sum();
        if used + vcpus(&pool.instance_type) <= limit {
            return None;
        }
        Some(if capacity_type == labels::CAPACITY_SPOT {
            pool_error(pool, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded".to_owned())
        } else {
            let text = format!(
                "You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the instance bucket that the specified instance type belongs to."
            );
            pool_error(pool, "VcpuLimitExceeded", text)
        })
    }

    /// Whether a finite pool is exhausted.
    pub(super) fn is_drained(&self, instance_type: &str, zone: &str, capacity_type: &str) -> bool {
        let key = (instance_type.to_owned(), zone.to_owned(), capacity_type.to_owned());
        !self.supply.pools.is_empty() && self.supply.pools.get(&key) == Some(&0)
    }

    /// Takes the capacity and the address of a machine that starts, or returns them when it ends.
    pub(super) fn occupy(&mut self, machine: &Machine, starts: Occupancy) {
        let instance = &machine.instance;
        let change = |count: &mut u32| match starts {
            Occupancy::Taken => *count = count.saturating_sub(1),
            Occupancy::Returned => *count += 1,
        };
        if starts == Occupancy::Taken {
            let concerned = self.supply.refusals.iter_mut().filter(|refusal| refusal.concerns(&instance.instance_type, &instance.zone));
            concerned.for_each(|refusal| refusal.after = refusal.after.saturating_sub(1));
        }
        let key = (instance.instance_type.clone(), instance.zone.clone(), instance.capacity_type.clone());
        if let Some(left) = self.supply.pools.get_mut(&key) {
            change(left);
        }
        if self.supply.counts_addresses {
            self.network
                .subnets
                .iter_mut()
                .filter(|subnet| subnet.id == instance.subnet_id)
                .for_each(|subnet| change(&mut subnet.free_addresses));
        }
    }
}

/// Whether a machine starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupancy {
    Taken,
    Returned,
}
