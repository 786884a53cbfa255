//! A comparison as text and as JSON.

use super::fresh::{Comparison, Row, Use};
use crate::listing::first_named;
use crate::money::{Bill, HOURS_A_MONTH, a_month, cents, counted, percentage, signed};
use crate::plan::output::dollars;
use crate::schema::Document;
use crate::source::remarks::{self, Remark};
use crate::table::table;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use whittle_units::Price;

/// How many kept nodes are named for each reason.
const NAMED: usize = 3;

pub(super) fn text(comparison: &Comparison) -> String {
    let mut out = format!("{}\n", sum(comparison));
    let because = because(comparison);
    if !because.is_empty() {
        let _ = writeln!(out, "{}", planned_afresh(comparison));
        because.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    }
    let pools = comparison.by_pool.iter().map(|(name, row)| cells(&[name], row));
    let _ = write!(out, "\n{}", table(&["NODEPOOL", "NODES NOW", "THEN", "COST NOW", "THEN", "A MONTH"], pools));
    let types = comparison.by_type.iter().map(|((name, capacity_type), row)| cells(&[name, capacity_type], row));
    let _ = write!(out, "\n{}", table(&["TYPE", "CAPACITY", "NODES NOW", "THEN", "COST NOW", "THEN", "A MONTH"], types));
    for (why, nodes) in kept(comparison) {
        let are = if nodes.len() == 1 { "it is" } else { "they are" };
        let _ = writeln!(out, "\nkept as {are}: {}\n  {why}", first_named(&nodes, NAMED));
    }
    out.push_str("\nnot known, or not counted:\n");
    comparison.caveats.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
    out
}

/// What is paid, what would be, and the difference.
pub(super) fn sum(comparison: &Comparison) -> String {
    let Row { now, then } = &comparison.total;
    let change = percentage(now.price, then.price).map(|change| format!(" ({change:+.0} %)")).unwrap_or_default();
    format!(
        "You pay {} for {}; Whittle would pay {}{change} for {}, which is {} a month.",
        now.price,
        now.of_nodes(),
        then.price,
        then.of_nodes(),
        signed(a_month(now.price, then.price))
    )
}

/// The pods that the difference comes from.
pub(super) fn planned_afresh(comparison: &Comparison) -> String {
    let of_change = comparison.pods_of_change;
    let and = if of_change > 0 { format!(" and {} of the change", counted(of_change, "pod")) } else { String::new() };
    format!("Because of {}{and} planned afresh:", counted(comparison.pods_moved, "running pod"))
}

/// Kept nodes by the reason.
pub(super) fn kept(comparison: &Comparison) -> BTreeMap<String, Vec<&str>> {
    let mut out: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, why) in &comparison.kept {
        out.entry(why.to_string()).or_default().push(node);
    }
    out
}

/// Why the prices differ.
pub(super) fn because(comparison: &Comparison) -> Vec<String> {
    let (now, then) = &comparison.used;
    let both = |share: &dyn Fn(&Use) -> Option<f64>| Some((share(now)?, share(then)?));
    let mut lines = Vec::new();
    for (resource, name) in [("cpu", "CPU"), ("memory", "memory")] {
        if let Some((now, then)) = both(&|used| used.share(resource)) {
            lines.push(format!(
                "requests fill {now:.0} % of the {name} of the nodes that are replaced, and {then:.0} % of that of the new ones"
            ));
        }
    }
    if let Some((now, then)) = both(&Use::spot_share).filter(|(now, then)| 0.0 < now + then) {
        lines.push(format!("{now:.0} % of their cost is for spot capacity now, {then:.0} % then"));
    }
    lines
}

/// The row of a table.
pub(super) fn cells(names: &[&str], row: &Row) -> Vec<String> {
    let mut out: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let cost = |price: Price| if price == Price::ZERO { "-".to_owned() } else { price.to_string() };
    out.extend([row.now.nodes.to_string(), row.then.nodes.to_string(), cost(row.now.price), cost(row.then.price)]);
    out.push(signed(a_month(row.now.price, row.then.price)));
    out
}

pub(super) fn json(comparison: &Comparison, remarks: &[Remark]) -> String {
    let side = |bill: &Bill| {
        let Bill { nodes, unpriced, price } = bill;
        json!({"nodes": nodes, "unpriced": unpriced, "price": dollars(*price), "monthly": cents(price.dollars() * HOURS_A_MONTH)})
    };
    let row = |row: &Row| json!({"now": side(&row.now), "then": side(&row.then)});
    let with = |mut value: Value, names: &[(&str, &str)]| {
        names.iter().for_each(|(key, name)| value[*key] = json!(name));
        value
    };
    let used = |used: &Use| {
        let share = |share: Option<f64>| share.map(cents);
        json!({"cpu": share(used.share("cpu")), "memory": share(used.share("memory")), "spotCost": share(used.spot_share())})
    };
    let total = &comparison.total;
    let value = json!({
        "engine": concat!("whittle ", env!("CARGO_PKG_VERSION")),
        "currency": comparison.currency.code(),
        "total": row(total),
        "change": {
            "percent": percentage(total.now.price, total.then.price).map(cents),
            "monthly": cents(a_month(total.now.price, total.then.price)),
        },
        "podsPlanned": comparison.pods_moved,
        "percentUsed": {"now": used(&comparison.used.0), "then": used(&comparison.used.1)},
        "byNodePool": comparison.by_pool.iter().map(|(name, of)| with(row(of), &[("nodePool", name)])).collect::<Vec<_>>(),
        "byInstanceType": comparison.by_type.iter()
            .map(|((name, capacity_type), of)| with(row(of), &[("instanceType", name), ("capacityType", capacity_type)]))
            .collect::<Vec<_>>(),
        "kept": comparison.kept.iter().map(|(node, why)| json!({"node": node, "why": why.to_string()})).collect::<Vec<_>>(),
        "caveats": comparison.caveats,
        "findings": remarks::json(remarks),
    });
    format!("{:#}\n", Document::Compare.versioned(value))
}
