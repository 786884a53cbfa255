//! The order in which a fleet uses its pools, by its allocation strategy.

use super::Region;
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_ec2::fleet::{FleetConfig, FleetInstance, FleetOverride, FleetRequest};
use whittle_units::Price;

/// A fleet's allocation strategy, as EC2 describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// The cheapest pool; for spot whatever it has left.
    #[default]
    LowestPrice,
    /// The pool with the lowest priority.
    Prioritized,
    /// The pool with most capacity left.
    CapacityOptimized,
    /// A pool with capacity for the whole fleet, of these the one with the lowest priority.
    CapacityOptimizedPrioritized,
    /// A pool with capacity for the whole fleet, of these the cheapest.
    PriceCapacityOptimized,
    /// All pools in equal parts.
    Diversified,
}

impl Allocation {
    /// The strategies of spot fleets.
    pub const SPOT: [Self; 5] =
        [Self::PriceCapacityOptimized, Self::CapacityOptimizedPrioritized, Self::CapacityOptimized, Self::LowestPrice, Self::Diversified];
    /// The strategies of on-demand fleets.
    pub const ON_DEMAND: [Self; 2] = [Self::LowestPrice, Self::Prioritized];

    /// EC2's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowestPrice => "lowest-price",
            Self::Prioritized => "prioritized",
            Self::CapacityOptimized => "capacity-optimized",
            Self::CapacityOptimizedPrioritized => "capacity-optimized-prioritized",
            Self::PriceCapacityOptimized => "price-capacity-optimized",
            Self::Diversified => "diversified",
        }
    }

    /// The strategy that a request of ours names.
    pub fn of(request: &FleetRequest) -> Self {
        let name = if request.capacity_type == labels::CAPACITY_SPOT { request.spot_strategy() } else { request.on_demand_strategy() };
        let known = Self::SPOT.into_iter().chain(Self::ON_DEMAND);
        known.into_iter().find(|one| Some(one.name()) == name).unwrap_or_default()
    }

    /// Whether the priorities of the request count instead of prices.
    pub const fn is_prioritized(self) -> bool {
        matches!(self, Self::Prioritized | Self::CapacityOptimizedPrioritized)
    }
}

/// A pool of a request, with its launch template.
pub(super) type Pool<'a> = (&'a FleetConfig, &'a FleetOverride);

impl Region {
    /// The pools of a fleet, the first choice first. Pools that are equally good are in the order of type and zone.
    pub(super) fn pools_by_choice<'a>(&self, request: &'a FleetRequest, allocation: Allocation) -> Vec<Pool<'a>> {
        let mut pools: Vec<Pool<'a>> =
            request.configs.iter().flat_map(|config| config.overrides.iter().map(move |pool| (config, pool))).collect();
        pools.sort_by_cached_key(|(_, pool)| {
            let left = self.left_in(pool, &request.capacity_type);
            let lacks = match allocation {
                Allocation::LowestPrice | Allocation::Prioritized | Allocation::Diversified => 0,
                Allocation::CapacityOptimized => u32::MAX - left,
                Allocation::CapacityOptimizedPrioritized | Allocation::PriceCapacityOptimized => u32::from(left < request.target_capacity),
            };
            (lacks, self.rank(request, allocation, pool), pool.instance_type.clone(), pool.zone.clone())
        });
        pools
    }

    /// The same while a fleet starts machines: a diversified one turns to the pools that it used least.
    pub(super) fn turn<'a>(pools: &[Pool<'a>], allocation: Allocation, started: &[FleetInstance]) -> Vec<Pool<'a>> {
        let mut pools = pools.to_vec();
        if allocation == Allocation::Diversified {
            let mut used: BTreeMap<(&str, &str), u32> = BTreeMap::new();
            for machine in started {
                *used.entry((&machine.instance_type, &machine.subnet_id)).or_default() += 1;
            }
            pools.sort_by_key(|(_, pool)| used.get(&(pool.instance_type.as_str(), pool.subnet_id.as_str())).copied().unwrap_or_default());
        }
        pools
    }

    /// Machines that a pool can still start; the most that there are if it is not finite.
    fn left_in(&self, pool: &FleetOverride, capacity_type: &str) -> u32 {
        let key = (pool.instance_type.clone(), pool.zone.clone(), capacity_type.to_owned());
        self.supply.pools.get(&key).copied().unwrap_or(u32::MAX)
    }

    /// The rank of a pool among equally deep ones: the lowest is used first.
    fn rank(&self, request: &FleetRequest, allocation: Allocation, pool: &FleetOverride) -> Price {
        let by_own_price = self.supply.own_prices && !allocation.is_prioritized();
        if by_own_price { self.market_price(pool, &request.capacity_type) } else { pool.price }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use jiff::Timestamp;
    use whittle_ec2::fleet::LaunchTemplate;

    const TYPES: [(&str, f64, u32); 3] = [("m5.large", 0.04, 2), ("m6i.large", 0.05, 20), ("c5.large", 0.06, 30)];

    /// The types of the machines that a spot fleet of this size starts. The cheaper a pool, the less capacity it has, and the
    /// higher is its priority's number.
    fn started(allocation: Allocation, count: u32) -> Vec<String> {
        let mut region = Region::new("us-east-1", &"demo".into());
        region.launch_templates.insert("lt".into(), LaunchTemplate { name: "lt".into(), ..LaunchTemplate::default() });
        let pool = |(name, price, left): (&str, f64, u32)| {
            region.supply.pools.insert((name.to_owned(), "us-east-1a".to_owned(), labels::CAPACITY_SPOT.to_owned()), left);
            let price = if allocation.is_prioritized() { 1.0 - price } else { price };
            let (price, zone, subnet_id) = (Price::from_dollars(price), "us-east-1a".to_owned(), "subnet-1".to_owned());
            FleetOverride { instance_type: name.to_owned(), zone, price, subnet_id, image_id: String::new() }
        };
        let overrides = TYPES.map(pool).to_vec();
        let request = FleetRequest {
            client_token: "t".into(),
            target_capacity: count,
            capacity_type: labels::CAPACITY_SPOT.into(),
            reservation: None,
            configs: vec![FleetConfig { launch_template: "lt".into(), overrides }],
            tags: BTreeMap::new(),
            prioritized: allocation.is_prioritized(),
            context: None,
        };
        let answer = region.create_fleet(&request, allocation, false, Timestamp::UNIX_EPOCH, &mut Dice::new(1)).unwrap();
        answer.instances.into_iter().map(|machine| machine.instance_type).collect()
    }

    #[test]
    fn each_strategy_uses_the_pools_that_ec2_would() {
        let only = |name: &str, count: usize| vec![name.to_owned(); count];
        assert_eq!(started(Allocation::LowestPrice, 3), [only("m5.large", 2), only("m6i.large", 1)].concat());
        assert_eq!(started(Allocation::PriceCapacityOptimized, 3), only("m6i.large", 3), "the cheapest has not enough for all");
        assert_eq!(started(Allocation::PriceCapacityOptimized, 2), only("m5.large", 2));
        assert_eq!(started(Allocation::CapacityOptimized, 2), only("c5.large", 2));
        assert_eq!(started(Allocation::Prioritized, 2), only("c5.large", 2));
        assert_eq!(started(Allocation::CapacityOptimizedPrioritized, 25), only("c5.large", 25));
        assert_eq!(started(Allocation::Diversified, 4), ["m5.large", "m6i.large", "c5.large", "m5.large"]);
    }

    #[test]
    fn a_fleet_that_no_pool_can_fill_alone_takes_from_several() {
        let counts = started(Allocation::PriceCapacityOptimized, 40);
        assert_eq!(counts.len(), 40);
        assert_eq!(counts.iter().filter(|name| *name == "m5.large").count(), 2, "no pool has 40, so the cheapest comes first");
    }
}
