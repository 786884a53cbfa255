//! A plan as JSON.

use super::later::Later;
use crate::money::{self, Bill, Currency};
use crate::schema::Document;
use crate::source::Paid;
use crate::source::remarks::{self, Remark};
use serde_json::{Value, json};
use std::time::Duration;
use whittle_api::karpenter::Requirement;
use whittle_model::scheduling::{Cause, LeftOut, NewClaim, Offer, Plan, PodRef, PoolRejection, Reason};
use whittle_solver::PreferenceCost;
use whittle_units::{Price, Resources};

/// How long the decision took; informative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) elapsed: Duration,
    pub(crate) solve: Duration,
}

/// The nodes that there are, and those that there would be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    pub(crate) currency: Currency,
    pub(crate) paid: Paid,
    pub(crate) then: Bill,
    /// What later passes add to that, if pods wait for one.
    pub(crate) later: Option<Later>,
    /// Without the objects of --changed, if any are given.
    pub(crate) unchanged: Option<Unchanged>,
}

/// What there is without the objects of --changed, beside what there is with them.
#[derive(Clone, Debug)]
pub(crate) enum Unchanged {
    Decided(Box<Difference>),
    /// Why there is nothing to compare with.
    Nothing(String),
}

/// Two decisions, and the bills after them.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The decision without the change, in some words.
    pub(crate) decided: String,
    pub(crate) without: Bill,
    pub(crate) with: Bill,
    /// What else about the decision without it is for programs.
    pub(crate) detail: Value,
    /// Whether others follow.
    pub(crate) at_first: bool,
    /// Who says the rest.
    pub(crate) hint: Option<&'static str>,
}

impl Unchanged {
    fn text(&self) -> String {
        match self {
            Self::Nothing(why) => format!("without --changed there is nothing to compare with: {why}"),
            Self::Decided(difference) => {
                let Difference { decided, without, with, hint, at_first, .. } = &**difference;
                let at_first = if *at_first { "at first " } else { "" };
                let hint = hint.map(|hint| format!("\n  {hint}")).unwrap_or_default();
                format!("without --changed: {decided}; {at_first}the change makes {}{hint}", money::difference(without, with))
            }
        }
    }

    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Nothing(why) => json!({"message": why}),
            Self::Decided(difference) => {
                let Difference { without, with, detail, .. } = &**difference;
                let mut value = json!({
                    "nodes": without.nodes,
                    "price": dollars(without.price),
                    "monthly": money::cents(money::a_month(without.price, with.price)),
                });
                if let (Some(value), Some(detail)) = (value.as_object_mut(), detail.as_object()) {
                    value.extend(detail.clone());
                }
                value
            }
        }
    }
}

impl Costs {
    /// The first lines of a text: what is paid now, and then, and what of it a change makes.
    pub(crate) fn text(&self) -> String {
        let unchanged = self.unchanged.iter().map(|unchanged| format!("{}\n", unchanged.text())).collect::<String>();
        let Paid { now, staying, unpriced } = &self.paid;
        if now.nodes == 0 && self.then.nodes == 0 {
            return unchanged;
        }
        let leaving = now.nodes - staying.nodes;
        let leaving = if leaving == 0 {
            String::new()
        } else {
            format!("  then without what is being deleted: {}\n", money::counted(leaving, "node"))
        };
        let unpriced = unpriced.iter().map(|line| format!("  {line}\n")).collect::<String>();
        let later = self.later.iter().map(|later| format!("{}\n", later.text(now, &self.then))).collect::<String>();
        format!("{}\n{leaving}{unpriced}{later}{unchanged}", money::change(now, &self.then))
    }

    pub(crate) fn json(&self) -> Value {
        let bill = |bill: &Bill| json!({"nodes": bill.nodes, "price": dollars(bill.price)});
        json!({
            "currency": self.currency.code(),
            "now": bill(&self.paid.now),
            "then": bill(&self.then),
            "monthly": money::cents(money::a_month(self.paid.now.price, self.then.price)),
            "leaving": self.paid.now.nodes - self.paid.staying.nodes,
            "unpriced": self.paid.unpriced,
        })
    }
}

pub(crate) fn json(plan: &Plan, preference_cost: Option<&PreferenceCost>, costs: &Costs, times: Times, remarks: &[Remark]) -> String {
    let millis = |d: Duration| (d.as_secs_f64() * 1e5).round() / 100.0;
    let value = json!({
        "engine": concat!("whittle ", env!("CARGO_PKG_VERSION")),
        "elapsed_ms": millis(times.elapsed),
        "solve_ms": millis(times.solve),
        "packing": plan.packing,
        "costs": costs.json(),
        "later": costs.later.as_ref().map(|later| later.json(&costs.then)),
        "unchanged": costs.unchanged.as_ref().map(Unchanged::json),
        "findings": remarks::json(remarks),
        "nodeClaims": plan.claims.iter().map(claim).collect::<Vec<_>>(),
        "existingNodes": plan.placements.iter().map(|p| json!({"name": p.node, "pods": keys(&p.pods)})).collect::<Vec<_>>(),
        "unschedulable": plan.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "emptyNodePools": plan.unusable_pools.iter().map(pool_rejection).collect::<Vec<_>>(),
        "preferences": preference_cost.map(|cost| json!({
            "pods": cost.pods,
            "price": dollars(cost.price),
            "priceWithout": dollars(cost.without),
            "nodes": cost.machines.0,
            "nodesWithout": cost.machines.1,
        })),
        "totals": {
            "pods": plan.pods,
            "scheduled": plan.scheduled(),
            "nodes": plan.claims.len(),
            "price": dollars(plan.price()),
            "lowerBound": plan.lower_bound.map(dollars),
            "besides": plan.machine_costs.map(|besides| json!({"price": dollars(besides.cost), "lowerBound": dollars(besides.lower_bound)})),
            "narrower": plan.narrower.map(|other| json!({
                "nodes": other.machines,
                "price": dollars(other.price),
                "besides": dollars(other.machine_cost),
                "instanceTypes": other.types,
            })),
        },
    });
    format!("{:#}\n", Document::Plan.versioned(value))
}

/// Dollars per hour with six decimals.
pub(crate) fn dollars(price: Price) -> f64 {
    (price.dollars() * 1e6).round() / 1e6
}

fn keys(pods: &[PodRef]) -> Vec<String> {
    pods.iter().map(PodRef::key).collect()
}

/// A NodeClaim in the output format.
#[must_use]
pub(crate) fn claim(claim: &NewClaim) -> Value {
    let requirement = |r: &Requirement| {
        let mut out = json!({"key": r.key, "operator": r.operator.as_str(), "values": r.values});
        if let Some(n) = r.min_values {
            out["minValues"] = json!(n);
        }
        out
    };
    let why = &claim.why;
    json!({
        "nodePool": claim.node_pool,
        "instanceTypes": *claim.instance_types,
        "requirements": claim.requirements.iter().map(requirement).collect::<Vec<_>>(),
        "taints": claim.taints.iter().map(|t| json!({"key": t.key, "value": t.value, "effect": t.effect})).collect::<Vec<_>>(),
        "requests": resources(&claim.requests),
        "pods": keys(&claim.pods),
        "cheapestPrice": dollars(claim.cheapest_price),
        "offerings": claim.offerings,
        "why": {
            "cheapest": why.cheapest.as_ref().map(offer),
            "nextOffer": why.next_offer.as_ref().map(offer),
            "nextBest": why.next_best.as_ref().map(|(t, price)| json!({"instanceType": t, "price": dollars(*price)})),
            "narrowed": why.narrowed,
            "passedOver": why.passed_over.iter().map(pool_rejection).collect::<Vec<_>>(),
        },
    })
}

fn offer(offer: &Offer) -> Value {
    json!({"instanceType": offer.instance_type, "zone": offer.zone, "capacityType": offer.capacity_type, "price": dollars(offer.price)})
}

fn resources(resources: &Resources) -> Value {
    resources.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, amount)| (name.to_owned(), json!(amount.text_of(name)))).collect()
}

/// An unplaced pod in the output format.
pub(crate) fn left_out(left: &LeftOut) -> Value {
    let mut out = json!({"pod": left.pod.key(), "message": left.reason.to_string(), "category": left.reason.category()});
    if let Reason::Pools(rejections) | Reason::NoTemplates(rejections) = &left.reason {
        out["nodePools"] = rejections.iter().map(pool_rejection).collect();
    }
    out
}

fn pool_rejection(rejection: &PoolRejection) -> Value {
    let mut out = json!({"nodePool": rejection.node_pool, "category": rejection.cause.category(), "message": rejection.cause.to_string()});
    if let Cause::Topology { counts, .. } = &rejection.cause {
        out["counts"] = counts.iter().map(|(domain, n)| (domain.clone(), json!(n))).collect();
    }
    if !rejection.ruled_out.is_empty() {
        let entries = rejection.ruled_out.iter().map(|r| json!({"constraint": r.constraint, "instanceTypes": r.types, "of": r.of}));
        out["ruledOut"] = entries.collect();
    }
    if let Some(miss) = &rejection.nearest {
        out["nearest"] = json!({
            "resource": miss.resource,
            "needed": miss.needed.text_of(&miss.resource),
            "largest": miss.largest.text_of(&miss.resource),
            "instanceType": miss.instance_type,
        });
    }
    if !rejection.limits.is_empty() {
        let entries = rejection
            .limits
            .iter()
            .map(|l| json!({"resource": l.resource, "left": l.left.text_of(&l.resource), "instanceTypesLarger": l.types}));
        out["limits"] = entries.collect();
    }
    out
}
