//! The state of a region, for its owner.

use crate::api::{Api, NextError};
use crate::place::{Lone, Place};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use whittle_sim::region::Machine;

/// What an owner can see, in the words of [`super::Change`] where there are any.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The region's time.
    pub now: String,
    pub region: String,
    pub clusters: Vec<String>,
    /// Including those that have ended lately.
    pub machines: Vec<MachineState>,
    pub launch_templates: Vec<String>,
    /// The role of each instance profile; empty without one.
    pub instance_profiles: BTreeMap<String, String>,
    /// Machines that finite pools still have.
    pub pools: Vec<PoolState>,
    /// Limits of the account, in vCPUs.
    pub quotas: Vec<QuotaState>,
    pub refusals: Vec<RefusalState>,
    /// Who has policies; everybody else may do everything.
    pub principals: Vec<String>,
    /// The statements of their policies that allowed calls so far, by `Sid`.
    pub used_statements: BTreeMap<String, BTreeSet<String>>,
    /// Answers that wait, by action.
    pub next_answers: BTreeMap<String, Vec<AnswerState>>,
    pub counts_addresses: bool,
    pub own_prices: bool,
    pub describe_lag_seconds: i64,
    pub profile_lag_seconds: i64,
    pub iam_lag_seconds: i64,
    /// Calls in the journal.
    pub calls: usize,
    /// Events that no request has returned yet.
    pub events: usize,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineState {
    pub id: String,
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    /// EC2's word: `running`.
    pub state: &'static str,
    pub launched_at: String,
    /// Dollars per hour.
    pub price: f64,
    pub tags: BTreeMap<String, String>,
}

/// A pool that may run dry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolState {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    pub left: u32,
}

/// A quota, by the name of its group of families.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaState {
    pub quota: String,
    pub capacity_type: String,
    pub vcpus: u32,
}

/// The error of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalState {
    pub instance_type: String,
    pub zone: String,
    pub code: String,
    pub message: String,
    pub after: u32,
}

/// An answer that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerState {
    pub status: u16,
    pub code: String,
    pub message: String,
}

impl State {
    /// The state now.
    pub fn of(api: &Api, lone: &Lone) -> Self {
        let (region, supply) = (&lone.region, &lone.region.supply);
        let waiting = |(action, answers): (&String, &Vec<NextError>)| {
            let answers = answers.iter().map(|NextError { status, code, message }| AnswerState {
                status: *status,
                code: code.clone(),
                message: message.clone(),
            });
            (action.clone(), answers.collect())
        };
        Self {
            now: lone.now().to_string(),
            region: region.name().to_owned(),
            clusters: lone.clusters.keys().map(ToString::to_string).collect(),
            machines: region.machines.values().map(machine).collect(),
            launch_templates: region.launch_templates.keys().cloned().collect(),
            instance_profiles: region.network.profiles.clone(),
            pools: supply
                .pools
                .iter()
                .map(|((instance_type, zone, capacity_type), left)| PoolState {
                    instance_type: instance_type.clone(),
                    zone: zone.clone(),
                    capacity_type: capacity_type.clone(),
                    left: *left,
                })
                .collect(),
            quotas: supply
                .vcpus
                .iter()
                .map(|((quota, capacity_type), vcpus)| QuotaState {
                    quota: quota.clone(),
                    capacity_type: capacity_type.clone(),
                    vcpus: *vcpus,
                })
                .collect(),
            refusals: supply
                .refusals
                .iter()
                .map(|refusal| RefusalState {
                    instance_type: refusal.instance_type.clone(),
                    zone: refusal.zone.clone(),
                    code: refusal.code.clone(),
                    message: refusal.message.clone(),
                    after: refusal.after,
                })
                .collect(),
            principals: api.access.principals(),
            used_statements: api.access.used(),
            next_answers: api.refusals.iter().filter(|(_, answers)| !answers.is_empty()).map(waiting).collect(),
            counts_addresses: supply.counts_addresses,
            own_prices: supply.own_prices,
            describe_lag_seconds: supply.describe_lag.as_secs(),
            profile_lag_seconds: supply.profile_lag.as_secs(),
            iam_lag_seconds: supply.iam_lag.as_secs(),
            calls: api.journal.len(),
            events: lone.events.len(),
        }
    }
}

fn machine(machine: &Machine) -> MachineState {
    let instance = &machine.instance;
    MachineState {
        id: instance.id.to_string(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        capacity_type: instance.capacity_type.clone(),
        state: instance.state.as_str(),
        launched_at: instance.launched_at.to_string(),
        price: machine.price.dollars(),
        tags: instance.tags.clone(),
    }
}
