//! CreateFleet: idempotent by client token, with configurable capacity shortages.

use super::allocation::Pool;
use super::{Allocation, Change, Fleet, Machine, Region};
use crate::dice::{Dice, Stream};
use jiff::{SignedDuration, Timestamp};
use whittle_ec2::fleet::{FleetAnswer, FleetConfig, FleetInstance, FleetOverride, FleetPoolError, FleetRequest, ReservationTarget};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{CloudError, CloudErrorKind};
use whittle_units::{InstanceId, Price};

/// How long EC2 remembers a client token.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(48);

/// An error of CreateFleet.
fn failed(kind: CloudErrorKind, code: &str, message: impl Into<String>) -> CloudError {
    CloudError { kind, call: "CreateFleet", code: code.to_owned(), message: message.into() }
}

/// EC2's error for a pool without capacity.
fn short_of(pool: &FleetOverride) -> FleetPoolError {
    FleetPoolError {
        code: "InsufficientInstanceCapacity".to_owned(),
        message: format!(
            "We currently do not have sufficient {} capacity in the Availability Zone you requested ({}).",
            pool.instance_type, pool.zone
        ),
        instance_type: pool.instance_type.clone(),
        zone: pool.zone.clone(),
    }
}

impl Region {
    /// Whether the caller's policies allow a call, as a dry run of it answers.
    pub fn permits(&self, call: &'static str) -> Result<(), CloudError> {
        if !self.denied.contains(call) {
            return Ok(());
        }
        let message = "You are not authorized to perform this operation.".to_owned();
        Err(CloudError { kind: CloudErrorKind::Unauthorized, call, code: "UnauthorizedOperation".to_owned(), message })
    }

    /// Whether a pool has capacity.
    fn in_stock(&self, instance_type: &str, zone: &str, capacity_type: &str) -> bool {
        let wild = |given: &str, value: &str| given == "*" || given == value;
        let out = self.out_of_stock.iter().any(|(t, z, c)| wild(t, instance_type) && wild(z, zone) && wild(c, capacity_type));
        !out && !self.is_drained(instance_type, zone, capacity_type)
    }

    /// Whether a fleet was created with this token: another call with it starts no machine.
    pub fn repeats(&self, client_token: &str, now: Timestamp) -> bool {
        self.fleets.get(client_token).is_some_and(|fleet| self.remembers(fleet.at, now))
    }

    /// Whether EC2 still knows a client token of that time.
    fn remembers(&self, at: Timestamp, now: Timestamp) -> bool {
        !self.forget_tokens && now.duration_since(at) < TOKEN_LIFE
    }

    /// The first answer of a fleet, by its id.
    pub fn fleet(&self, id: &str) -> Option<&FleetAnswer> {
        self.fleets.values().map(|fleet| &fleet.answer).find(|answer| answer.fleet_id == id)
    }

    pub fn fleet_request(&self, id: &str) -> Option<&FleetRequest> {
        self.fleets.values().find(|fleet| fleet.answer.fleet_id == id).map(|fleet| &fleet.request)
    }

    /// Starts machines. The same token answers with the same machines; with other parameters it is an error.
    /// A partial fleet starts one machine less than requested, and reports an error.
    pub fn create_fleet(
        &mut self,
        request: &FleetRequest,
        allocation: Allocation,
        partial: bool,
        now: Timestamp,
        dice: &mut Dice,
    ) -> Result<FleetAnswer, CloudError> {
        self.permits("CreateFleet")?;
        if let Some(known) = self.fleets.get(&request.client_token).filter(|known| self.remembers(known.at, now)) {
            if known.request != *request || known.allocation != allocation {
                let text = "the client token was used with other parameters before";
                return Err(failed(CloudErrorKind::IdempotencyMismatch, "IdempotentParameterMismatch", text));
            }
            return Ok(known.answer.clone());
        }
        if let Some(missing) = request.configs.iter().find(|config| !self.launch_templates.contains_key(&config.launch_template)) {
            let text = format!("launch template {} does not exist", missing.launch_template);
            return Err(failed(CloudErrorKind::NotFound, "InvalidLaunchTemplateName.NotFoundException", text));
        }
        self.fleet_sequence += 1;
        let mut answer = FleetAnswer { fleet_id: format!("fleet-{:017x}", self.fleet_sequence), ..FleetAnswer::default() };
        let pools = self.pools_by_choice(request, allocation);
        let pool = self.first_in_stock(request, &pools, now, &mut answer.errors);
        if let Some((_, pool)) = pool {
            // Errors of other pools do not matter if one pool has capacity.
            answer.errors.clear();
            if self.supply.reports_all_errors {
                let pools = request.configs.iter().flat_map(|config| config.overrides.iter().map(move |pool| (config, pool)));
                answer.errors.extend(pools.filter_map(|(config, pool)| self.pool_error(request, config, pool, now)));
            }
            let missing = u32::from(partial);
            if partial {
                answer.errors.push(short_of(pool));
            }
            for _ in 0..request.target_capacity.saturating_sub(missing) {
                // Reservations fill up while the fleet takes from them.
                let mut errors = Vec::new();
                let pools = Self::turn(&pools, allocation, &answer.instances);
                let Some((config, pool)) = self.first_in_stock(request, &pools, now, &mut errors) else {
                    answer.errors.extend(errors);
                    break;
                };
                let started = self.start_machine(request, config, pool, now, dice);
                answer.instances.push(started);
            }
        }
        let fleet = Fleet { request: request.clone(), allocation, answer: answer.clone(), at: now };
        self.fleets.insert(request.client_token.clone(), fleet);
        Ok(answer)
    }

    /// The first pool with capacity; an error for each before it.
    fn first_in_stock<'a>(
        &self,
        request: &FleetRequest,
        pools: &[Pool<'a>],
        now: Timestamp,
        errors: &mut Vec<FleetPoolError>,
    ) -> Option<Pool<'a>> {
        for (config, pool) in pools {
            match self.pool_error(request, config, pool, now) {
                None => return Some((config, pool)),
                Some(error) => errors.push(error),
            }
        }
        None
    }

    /// Why no machine can be started in a pool.
    fn pool_error(&self, request: &FleetRequest, config: &FleetConfig, pool: &FleetOverride, now: Timestamp) -> Option<FleetPoolError> {
        let template = self.launch_templates.get(&config.launch_template);
        if let Some(error) = template.and_then(|template| self.group_refuses(template, pool)) {
            return Some(error);
        }
        if self.refusal.is_some() || self.is_full(&pool.subnet_id) {
            return Some(self.refused(pool));
        }
        let profile = template.map_or("", |template| template.instance_profile.as_str());
        let over_limit = self.limit_error(profile, pool, &request.capacity_type, now);
        over_limit.or_else(|| match template.and_then(|template| Some((template.reservation.as_ref()?, template.tenancy.as_str()))) {
            Some((ReservationTarget::Only(id), tenancy)) => self.reservation_refuses(id, tenancy, pool, now),
            _ if self.in_stock(&pool.instance_type, &pool.zone, &request.capacity_type) => None,
            _ => Some(short_of(pool)),
        })
    }

    /// Whether a subnet has no free address.
    fn is_full(&self, subnet: &str) -> bool {
        self.network.subnets.iter().any(|known| known.id == subnet && known.free_addresses == 0)
    }

    /// The configured error of every pool, or that its subnet is full.
    fn refused(&self, pool: &FleetOverride) -> FleetPoolError {
        let (code, message) = self.refusal.clone().unwrap_or_else(|| {
            let text =
                format!("There are not enough free addresses in subnet '{}' to satisfy the requested number of instances.", pool.subnet_id);
            ("InsufficientFreeAddressesInSubnet".to_owned(), text)
        });
        FleetPoolError { code, message, instance_type: pool.instance_type.clone(), zone: pool.zone.clone() }
    }

    fn start_machine(
        &mut self,
        request: &FleetRequest,
        config: &FleetConfig,
        pool: &FleetOverride,
        now: Timestamp,
        dice: &mut Dice,
    ) -> FleetInstance {
        let id = InstanceId::new(format!("i-{}", dice.hex(17)));
        let template = self.launch_templates.get(&config.launch_template).cloned().unwrap_or_default();
        let image_id = if pool.image_id.is_empty() { template.image_id.clone() } else { pool.image_id.clone() };
        let mut tags = template.tags.clone();
        tags.extend(request.tags.clone());
        let instance = Instance {
            id: id.clone(),
            state: InstanceState::Pending,
            instance_type: pool.instance_type.clone(),
            zone: pool.zone.clone(),
            capacity_type: request.capacity_type.clone(),
            image_id: image_id.clone(),
            subnet_id: pool.subnet_id.clone(),
            security_groups: template.security_group_ids.clone(),
            reservation: match &template.reservation {
                Some(ReservationTarget::Only(id)) => Some(id.clone()),
                _ => None,
            },
            placement_group: template.placement_group_id.clone(),
            partition: self.partition_for(&template),
            private_dns_name: self.private_name(dice),
            state_reason: None,
            launched_at: now,
            tags,
        };
        let market = self.market_price(pool, &request.capacity_type);
        let times = if self.overcharge { u64::try_from(self.started).unwrap_or(u64::MAX).saturating_mul(30).saturating_add(1) } else { 1 };
        let price = Price::from_nanos(market.nanos().saturating_mul(times));
        let machine = Machine { instance, launch_template: template, price, never_joins: self.launches_never_join, ended_at: None };
        self.occupy(&machine, super::supply::Occupancy::Taken);
        self.machines.insert(id.clone(), machine);
        self.started += 1;
        let seconds = dice.between(Stream::Latency, 6, 12);
        match self.supply.boot {
            Some(_) => self.plan(now, &id, Change::Run),
            None => self.plan_after(now, seconds, &id, Change::Run),
        }
        FleetInstance {
            id,
            instance_type: pool.instance_type.clone(),
            zone: pool.zone.clone(),
            subnet_id: pool.subnet_id.clone(),
            image_id,
            capacity_type: request.capacity_type.clone(),
        }
    }

    pub(super) fn market_price(&self, pool: &FleetOverride, capacity_type: &str) -> Price {
        let price = match capacity_type {
            "spot" => self.catalog.spot_price(&pool.instance_type, &pool.zone),
            // Reserved capacity is paid for whether it is used or not.
            "reserved" => Some(pool.price),
            _ => self.catalog.on_demand_price(&pool.instance_type),
        };
        price.unwrap_or(pool.price)
    }
}
