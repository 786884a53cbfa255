//! NodeOverlays: what a user knows better about prices and extra resources of instance types. Pure.
//!
//! Overlays are taken by weight, the heaviest first, then by name from the end. A heavier one wins per offering (price)
//! and per resource (capacity); lighter ones fill in what is still untouched. Two of equal weight that would change the
//! same thing are a conflict: the later one is not used at all.

use crate::pods;
use crate::requirements::{Allowed, Requirements, from_labels, from_requirements};
use crate::schedule::{InstanceTypes, NewClaim};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::{NodeOverlay, NodePool};
use whittle_api::labels;
use whittle_units::{Price, Quantity, Resources};

/// Resources that are facts of a type, on AWS with its own devices.
const FACTS: [&str; 9] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "vpc.amazonaws.com/pod-eni",
    "vpc.amazonaws.com/efa",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "habana.ai/gaudi",
];

type Types = BTreeMap<String, Arc<InstanceTypes>>;

/// What became of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Used,
    /// Its spec makes no sense: what is wrong.
    Invalid(String),
    /// It changes what the named overlay of the same weight changes.
    Conflict(String),
}

/// Catalogs as overlays leave them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlaid {
    /// By NodePool; NodePools that nothing changes keep their list.
    pub catalog: Types,
    /// By overlay.
    pub verdicts: BTreeMap<String, Verdict>,
    /// By NodePool: types with a changed price.
    priced: BTreeMap<String, BTreeSet<String>>,
    /// By NodePool and type: what was changed of its capacity.
    resized: BTreeMap<String, BTreeMap<String, Resources>>,
}

impl Overlaid {
    /// The annotations of a claim, which say whether some type that it may become was changed.
    #[must_use]
    pub fn annotations(&self, claim: &NewClaim) -> BTreeMap<String, String> {
        let mut out = claim.annotations.clone();
        let priced = self.priced.get(&claim.node_pool).is_some_and(|types| types.iter().any(|name| may_become(claim, name)));
        let resized = self.resized.get(&claim.node_pool).is_some_and(|types| types.keys().any(|name| may_become(claim, name)));
        for (changed, key) in [(priced, labels::PRICE_OVERLAY_APPLIED), (resized, labels::CAPACITY_OVERLAY_APPLIED)] {
            if changed {
                out.insert(key.to_owned(), "true".to_owned());
            }
        }
        out
    }

    /// What was changed of the capacity of types that a claim may become: the changes, each with its types by name.
    #[must_use]
    pub fn resized(&self, claim: &NewClaim) -> Vec<(Resources, Vec<String>)> {
        let mut out: Vec<(Resources, Vec<String>)> = Vec::new();
        for (name, resources) in self.resized.get(&claim.node_pool).into_iter().flatten().filter(|(name, _)| may_become(claim, name)) {
            match out.iter_mut().find(|(known, _)| known == resources) {
                Some((_, names)) => names.push(name.clone()),
                None => out.push((resources.clone(), vec![name.clone()])),
            }
        }
        out
    }
}

/// A claim of a static pool names no types: it may become any of its pool's.
fn may_become(claim: &NewClaim, instance_type: &str) -> bool {
    claim.instance_types.is_empty() || claim.instance_types.iter().any(|name| name == instance_type)
}

/// What one overlay would change of one NodePool.
struct Touch {
    pool: String,
    /// Positions of types, each with those of its offerings that match.
    types: Vec<(usize, Vec<usize>)>,
}

/// Applies overlays to what the NodePools can buy.
#[must_use]
pub fn apply(overlays: &[NodeOverlay], pools: &[NodePool], catalog: Types) -> Overlaid {
    let mut order: Vec<&NodeOverlay> = overlays.iter().filter(|o| !o.metadata.is_deleting()).collect();
    order.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| b.metadata.name.cmp(&a.metadata.name)));
    let mut out = Overlaid { catalog, ..Overlaid::default() };
    // Who touched what last: prices by NodePool, type and offering, capacities by NodePool, type and resource.
    let mut prices: BTreeMap<(String, usize, usize), &NodeOverlay> = BTreeMap::new();
    let mut capacities: BTreeMap<(String, usize, String), &NodeOverlay> = BTreeMap::new();
    for overlay in order {
        let name = overlay.metadata.name.clone();
        if let Some(fault) = fault(overlay) {
            out.verdicts.insert(name, Verdict::Invalid(fault));
            continue;
        }
        let touches: Vec<Touch> = pools.iter().filter_map(|pool| touch(overlay, pool, out.catalog.get(&pool.metadata.name)?)).collect();
        if let Some(other) = conflict(overlay, &touches, &prices, &capacities) {
            out.verdicts.insert(name, Verdict::Conflict(other));
            continue;
        }
        for touch in &touches {
            change(overlay, touch, &mut out, &mut prices, &mut capacities);
        }
        out.verdicts.insert(name, Verdict::Used);
    }
    out
}

fn weight(overlay: &NodeOverlay) -> i32 {
    overlay.spec.weight.unwrap_or(0)
}

fn fault(overlay: &NodeOverlay) -> Option<String> {
    for r in &overlay.spec.requirements {
        // Restricted keys are fine here: NodePools are chosen by their label.
        if let Some(fault) = pods::requirement_faults(&r.key, r.operator.as_str(), &r.values, |_| true).pop() {
            return Some(fault);
        }
        if r.operator.as_str() == "NotIn" && r.values.is_empty() {
            return Some(format!("key {} with operator NotIn must have a value", r.key));
        }
    }
    if let Some((name, _)) = overlay.spec.capacity.iter().find(|(name, _)| FACTS.contains(name)) {
        return Some(format!("capacity {name} is a fact of the type and cannot be changed"));
    }
    let readable = |text: &String| adjusted(Price::ZERO, text).is_some();
    let texts = [&overlay.spec.price, &overlay.spec.price_adjustment];
    texts.into_iter().flatten().find(|t| !readable(t)).map(|t| format!("{t:?} is no price: write 0.5, +0.1 or -10%"))
}

/// The types and offerings of a NodePool that the overlay is about.
fn touch(overlay: &NodeOverlay, pool: &NodePool, types: &[InstanceType]) -> Option<Touch> {
    let asked = from_requirements(&overlay.spec.requirements);
    let mut template = from_labels(&pool.spec.template.metadata.labels);
    template.replace(labels::NODE_POOL.to_owned(), Allowed::one(pool.metadata.name.clone()));
    let mut out = Vec::new();
    for (at, t) in types.iter().enumerate() {
        let mut offered: Requirements = template.clone();
        offered.add_all(&from_requirements(&t.requirements));
        if offered.compatible(&asked, |_| false).is_err() {
            continue;
        }
        let matching = t.offerings.iter().enumerate().filter(|(_, o)| from_requirements(&o.requirements).intersects(&asked).is_ok());
        let matching: Vec<usize> = matching.map(|(n, _)| n).collect();
        if !matching.is_empty() {
            out.push((at, matching));
        }
    }
    (!out.is_empty()).then(|| Touch { pool: pool.metadata.name.clone(), types: out })
}

fn has_price(overlay: &NodeOverlay) -> bool {
    [&overlay.spec.price, &overlay.spec.price_adjustment].into_iter().flatten().any(|t| !t.is_empty())
}

/// An overlay of the same weight that changes the same price or resource.
fn conflict(
    overlay: &NodeOverlay,
    touches: &[Touch],
    prices: &BTreeMap<(String, usize, usize), &NodeOverlay>,
    capacities: &BTreeMap<(String, usize, String), &NodeOverlay>,
) -> Option<String> {
    let equal = |other: &&&NodeOverlay| weight(other) == weight(overlay);
    for touch in touches {
        for (at, offerings) in &touch.types {
            let mut by_price = offerings.iter().filter(|_| has_price(overlay)).filter_map(|n| prices.get(&(touch.pool.clone(), *at, *n)));
            let mut by_capacity =
                overlay.spec.capacity.iter().filter_map(|(name, _)| capacities.get(&(touch.pool.clone(), *at, name.to_owned())));
            if let Some(other) = by_price.find(equal).or_else(|| by_capacity.find(equal)) {
                return Some(other.metadata.name.clone());
            }
        }
    }
    None
}

fn change<'o>(
    overlay: &'o NodeOverlay,
    touch: &Touch,
    out: &mut Overlaid,
    prices: &mut BTreeMap<(String, usize, usize), &'o NodeOverlay>,
    capacities: &mut BTreeMap<(String, usize, String), &'o NodeOverlay>,
) {
    let Some(types) = out.catalog.get_mut(&touch.pool) else { return };
    // Lists are shared between NodePools until one of them is changed.
    let types = Arc::make_mut(types).change();
    let text = overlay.spec.price.as_ref().or(overlay.spec.price_adjustment.as_ref()).filter(|_| has_price(overlay));
    for (at, offerings) in &touch.types {
        let t = &mut types[*at];
        for n in offerings {
            let untouched = !prices.contains_key(&(touch.pool.clone(), *at, *n));
            if let (Some(text), true) = (text, untouched)
                && let Some(price) = adjusted(t.offerings[*n].price, text)
            {
                t.offerings[*n].price = price;
                prices.insert((touch.pool.clone(), *at, *n), overlay);
                out.priced.entry(touch.pool.clone()).or_default().insert(t.name.clone());
            }
        }
        for (name, amount) in overlay.spec.capacity.iter() {
            let key = (touch.pool.clone(), *at, name.to_owned());
            if let Entry::Vacant(untouched) = capacities.entry(key) {
                t.capacity.set(name, amount.max(Quantity::ZERO));
                untouched.insert(overlay);
                out.resized.entry(touch.pool.clone()).or_default().entry(t.name.clone()).or_default().set(name, amount.max(Quantity::ZERO));
            }
        }
    }
}

/// `price` as `text` changes it: empty leaves it, `0.5` replaces it, `+0.1`, `-0.1`, `+10%` and `-10%` change it, not
/// below zero. Nothing for a text that is none of these.
#[must_use]
pub fn adjusted(price: Price, text: &str) -> Option<Price> {
    if text.is_empty() {
        return Some(price);
    }
    let (sign, rest) = match text.as_bytes()[0] {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => (0, text),
    };
    let (number, percent) = rest.strip_suffix('%').map_or((rest, false), |number| (number, true));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |t: &str| t.len() <= 18 && t.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) || (percent && sign == 0) {
        return None;
    }
    // Billionths, of a dollar or of a per cent; what is smaller is cut.
    let nanos: i128 = format!("{whole}{fraction:0<9.9}").parse().ok()?;
    let before = i128::from(price.nanos());
    let after = match (sign, percent) {
        (0, _) => nanos,
        (sign, false) => before + sign * nanos,
        (sign, true) => before + sign * (before * nanos / 100_000_000_000),
    };
    Some(Price::from_nanos(u64::try_from(after.max(0)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::{Overlaid, Verdict, adjusted, apply};
    use crate::schedule::NewClaim;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use whittle_api::catalog::{InstanceType, Offering};
    use whittle_api::karpenter::{NodePool, Requirement};
    use whittle_api::labels;
    use whittle_units::{Price, Quantity, Resources};

    #[test]
    fn prices_are_replaced_or_changed_and_never_negative() {
        let of = |text: &str| adjusted(Price::from_dollars(2.0), text).map(Price::dollars);
        for (text, expected) in [
            ("", 2.0),
            ("0.5", 0.5),
            ("3", 3.0),
            ("+0.1", 2.1),
            ("-0.1", 1.9),
            ("-5", 0.0),
            ("+10%", 2.2),
            ("-10%", 1.8),
            ("-100%", 0.0),
            ("+.5", 2.5),
            ("-12.5%", 1.75),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
        for text in ["x", "1%", "+", "-%", "1.2.3", "+1e3", "9999999999999999999"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    fn overlay(name: &str, weight: i32, spec: &Value) -> Value {
        let mut spec = spec.clone();
        spec["weight"] = json!(weight);
        json!({"metadata": {"name": name}, "spec": spec})
    }

    fn r(key: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": "In", "values": values})
    }

    /// Types `a` and `b`, each on-demand and spot in zones x and y for one dollar, for pools `one` and `two` (labelled).
    fn with(overlays: Value) -> Overlaid {
        let offering = |zone: &str, capacity_type: &str| Offering {
            requirements: vec![Requirement::is_in(labels::ZONE, [zone]), Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type])],
            price: Price::from_dollars(1.0),
            available: true,
            reservation_capacity: None,
        };
        let of_type = |name: &str| InstanceType {
            name: name.into(),
            requirements: vec![
                Requirement::is_in(labels::INSTANCE_TYPE, [name]),
                Requirement::is_in(labels::ZONE, ["x", "y"]),
                Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"]),
            ],
            offerings: ["x", "y"].iter().flat_map(|z| [offering(z, "on-demand"), offering(z, "spot")]).collect(),
            ..InstanceType::default()
        };
        let types: Arc<super::InstanceTypes> = Arc::new(vec![of_type("a"), of_type("b")].into());
        let catalog = ["one", "two"].iter().map(|p| ((*p).to_owned(), Arc::clone(&types))).collect();
        let pools: Vec<NodePool> = serde_json::from_value(json!([
            {"metadata": {"name": "one"}, "spec": {"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}}},
            {"metadata": {"name": "two"}, "spec": {"template": {"metadata": {"labels": {"team": "t"}}, "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}}}
        ]))
        .unwrap();
        apply(&serde_json::from_value::<Vec<_>>(overlays).unwrap(), &pools, catalog)
    }

    /// `pool/type/zone/capacity-type` of all offerings that do not cost one dollar, with their price.
    fn changed(out: &Overlaid) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        for (pool, types) in &out.catalog {
            for t in types.iter() {
                for o in t.offerings.iter().filter(|o| o.price != Price::from_dollars(1.0)) {
                    found.insert(format!("{pool}/{}/{}/{}", t.name, o.zone(), o.capacity_type()), o.price.dollars());
                }
            }
        }
        found
    }

    #[test]
    fn without_overlays_nothing_is_copied() {
        let out = with(json!([]));
        assert!(changed(&out).is_empty() && Arc::ptr_eq(&out.catalog["one"], &out.catalog["two"]));
    }

    #[test]
    fn an_overlay_changes_exactly_what_it_names() {
        let count = |requirements: Value| {
            let out = with(json!([overlay("o", 1, &json!({"requirements": requirements, "price": "5"}))]));
            assert_eq!(out.verdicts["o"], Verdict::Used);
            changed(&out).len()
        };
        assert_eq!(count(json!([])), 16);
        assert_eq!(count(json!([r(labels::NODE_POOL, &["one"])])), 8);
        assert_eq!(count(json!([r("team", &["t"])])), 8);
        assert_eq!(count(json!([r(labels::ZONE, &["x"])])), 8);
        assert_eq!(count(json!([r(labels::CAPACITY_TYPE, &["spot"]), r(labels::INSTANCE_TYPE, &["a"]), r(labels::ZONE, &["y"])])), 2);
        assert_eq!(count(json!([r("unknown", &["v"])])), 0);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_changes_nothing() {
        for spec in [
            json!({"requirements": [{"key": labels::ZONE, "operator": "NotIn", "values": []}], "price": "5"}),
            json!({"requirements": [{"key": "integer", "operator": "Gt", "values": ["x"]}], "price": "5"}),
            json!({"requirements": [], "capacity": {"cpu": "4"}}),
            json!({"requirements": [], "capacity": {"vpc.amazonaws.com/efa": "4"}}),
            json!({"requirements": [], "price": "much"}),
        ] {
            let out = with(json!([overlay("o", 1, &spec)]));
            assert!(matches!(out.verdicts["o"], Verdict::Invalid(_)) && changed(&out).is_empty(), "{spec}");
        }
    }

    #[test]
    fn equal_weights_on_the_same_thing_are_a_conflict_for_the_later_one() {
        let both = |a: Value, b: Value, weights: (i32, i32)| {
            let out = with(json!([overlay("a", weights.0, &a), overlay("b", weights.1, &b)]));
            out.verdicts.values().filter(|v| matches!(v, Verdict::Conflict(_))).count()
        };
        let price = |requirements: Value, price: &str| json!({"requirements": requirements, "price": price});
        let all = json!([]);
        assert_eq!(both(price(all.clone(), "5"), price(all.clone(), "6"), (1, 1)), 1);
        assert_eq!(both(price(all.clone(), "5"), price(all.clone(), "5"), (1, 1)), 1, "the same price is a conflict too");
        assert_eq!(both(price(json!([r(labels::ZONE, &["x"])]), "5"), price(json!([r(labels::CAPACITY_TYPE, &["spot"])]), "5"), (1, 1)), 1);
        assert_eq!(both(price(json!([r(labels::ZONE, &["x"])]), "5"), price(json!([r(labels::ZONE, &["y"])]), "5"), (1, 1)), 0);
        assert_eq!(both(price(all.clone(), "5"), price(all.clone(), "6"), (1, 2)), 0);
        let capacity = |name: &str| json!({"requirements": [], "capacity": {name: "4"}});
        assert_eq!(both(capacity("x/a"), capacity("x/a"), (1, 1)), 1);
        assert_eq!(both(capacity("x/a"), capacity("x/b"), (1, 1)), 0);
        assert_eq!(both(capacity("x/a"), price(all, "5"), (1, 1)), 0);
        let out = with(json!([overlay("a", 1, &price(json!([r(labels::ZONE, &["x"])]), "5")), overlay("b", 1, &price(json!([]), "7"))]));
        assert_eq!((&out.verdicts["a"], &out.verdicts["b"]), (&Verdict::Conflict("b".into()), &Verdict::Used), "names count from the end");
        assert!(changed(&out).values().all(|p| *p == 7.0), "it changes nothing at all");
    }

    #[test]
    fn heavier_overlays_win_per_offering_and_per_resource_and_lighter_ones_fill_in() {
        let out = with(json!([
            overlay("heavy", 10, &json!({"requirements": [r(labels::ZONE, &["x"])], "price": "5", "capacity": {"x/a": "1"}})),
            overlay("light", 1, &json!({"requirements": [], "priceAdjustment": "+100%", "capacity": {"x/a": "2", "x/b": "3"}})),
        ]));
        let prices = changed(&out);
        assert_eq!((prices["one/a/x/spot"], prices["one/a/y/spot"]), (5.0, 2.0));
        let capacity = &out.catalog["two"][1].capacity;
        assert_eq!((capacity.get("x/a"), capacity.get("x/b")), (Quantity::from_units(1), Quantity::from_units(3)));
    }

    #[test]
    fn a_claim_says_what_was_changed_of_the_types_that_it_may_become_and_of_no_others() {
        let out = with(json!([
            overlay(
                "a",
                2,
                &json!({"requirements": [r(labels::INSTANCE_TYPE, &["a"]), r(labels::NODE_POOL, &["one"])], "capacity": {"x/a": "1"}})
            ),
            overlay("b", 1, &json!({"requirements": [r(labels::NODE_POOL, &["one"])], "capacity": {"x/a": "2", "x/b": "3"}})),
        ]));
        let claim = |pool: &str, types: &[&str]| NewClaim {
            node_pool: pool.to_owned(),
            instance_types: types.iter().map(|name| (*name).to_owned()).collect(),
            ..NewClaim::default()
        };
        let of = |a, b| Resources::from([("x/a", Quantity::from_units(a)), ("x/b", Quantity::from_units(b))]);
        assert_eq!(out.resized(&claim("one", &["b"])), [(of(2, 3), vec!["b".to_owned()])]);
        assert_eq!(out.resized(&claim("one", &[])).len(), 2, "a static pool's may become any");
        assert!(out.resized(&claim("two", &["a", "b"])).is_empty() && out.resized(&claim("one", &["c"])).is_empty());
        assert!(out.annotations(&claim("one", &["a"])).contains_key(labels::CAPACITY_OVERLAY_APPLIED));
        assert!(out.annotations(&claim("two", &["a"])).is_empty());
    }
}
