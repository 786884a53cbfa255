//! NodeOverlays: prices and extra resources of instance types that users override. Pure.
//!
//! Overlays are applied by descending weight, then by descending name. An overlay of higher weight wins for each
//! offering (price) and each resource (capacity); lower ones fill in what is still unchanged. Two overlays of equal
//! weight that set the same thing conflict, even where one of higher weight wins: the later one is not applied at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::{NodeOverlay, NodePool, Requirement, adjusted_price};
use whittle_api::labels;
use whittle_model::pods;
use whittle_model::requirements::{Allowed, Requirements, canonical_key, from_labels, from_requirements};
use whittle_model::scheduling::{InstanceTypes, NewClaim};
use whittle_units::{Price, Quantity, Resources};

/// Resources that overlays must not change, because EC2 determines them.
const INTRINSIC_RESOURCES: [&str; 9] = [
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

/// What is made free costs this much an hour, for a price of zero is one that is not known.
const FREE: Price = Price::from_nanos(1);

type Types = BTreeMap<String, Arc<InstanceTypes>>;

/// The result of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayStatus {
    Used,
    /// It is valid, and no instance type that a NodePool is offered meets its requirements.
    Unmatched,
    /// Its spec is invalid; the message says why.
    Invalid(String),
    /// It conflicts with the named overlay of the same weight.
    Conflict(String),
}

/// Offerings whose price overlays change in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceChange {
    /// As in a NodeOverlay: `0.5`, `+0.1` or `-10%`.
    pub price: String,
    /// By name.
    pub instance_types: Vec<String>,
    /// Capacity type and zone of the offerings; empty for all.
    pub offerings: Offerings,
}

type Offerings = BTreeSet<(String, String)>;

/// The catalogs with all overlays applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlaid {
    /// By NodePool; lists that no overlay changes remain shared.
    pub catalog: Types,
    /// By name of the overlay.
    pub statuses: BTreeMap<String, OverlayStatus>,
    /// By NodePool and type: the offerings with a changed price, and how it changed.
    priced: BTreeMap<String, BTreeMap<String, Vec<(String, Offerings)>>>,
    /// By NodePool and type: the changed part of its capacity.
    resized: BTreeMap<String, BTreeMap<String, Resources>>,
}

impl Overlaid {
    /// The claim's annotations, which state whether an overlay changed any of its types. `types` are those of its pool, here and below.
    #[must_use]
    pub fn annotations(&self, claim: &NewClaim, types: &[InstanceType]) -> BTreeMap<String, String> {
        let mut out = claim.annotations.clone();
        let (priced, resized) = (self.priced.get(&claim.node_pool), self.resized.get(&claim.node_pool));
        // Most clusters have no overlays, and a claim has hundreds of types.
        if priced.is_none() && resized.is_none() {
            return out;
        }
        let usable = types_of(claim, types);
        let priced = priced.is_some_and(|types| types.keys().any(|name| usable.contains(name.as_str())));
        let resized = resized.is_some_and(|types| types.keys().any(|name| usable.contains(name.as_str())));
        for (changed, key) in [(priced, labels::PRICE_OVERLAY_APPLIED), (resized, labels::CAPACITY_OVERLAY_APPLIED)] {
            if changed {
                out.insert(key.to_owned(), "true".to_owned());
            }
        }
        out
    }

    /// The changed prices of the claim's types.
    #[must_use]
    pub fn priced(&self, claim: &NewClaim, types: &[InstanceType]) -> Vec<PriceChange> {
        let Some(changed) = self.priced.get(&claim.node_pool) else { return Vec::new() };
        let (usable, mut out) = (types_of(claim, types), Vec::<PriceChange>::new());
        for (name, changes) in changed.iter().filter(|(name, _)| usable.contains(name.as_str())) {
            for (price, offerings) in changes {
                match out.iter_mut().find(|known| known.price == *price && known.offerings == *offerings) {
                    Some(known) => known.instance_types.push(name.clone()),
                    None => {
                        out.push(PriceChange { price: price.clone(), instance_types: vec![name.clone()], offerings: offerings.clone() });
                    }
                }
            }
        }
        out
    }

    /// The changed capacities of the claim's types, each with the names of its types.
    #[must_use]
    pub fn resized(&self, claim: &NewClaim, types: &[InstanceType]) -> Vec<(Resources, Vec<String>)> {
        let Some(changed) = self.resized.get(&claim.node_pool) else { return Vec::new() };
        let (usable, mut out) = (types_of(claim, types), Vec::<(Resources, Vec<String>)>::new());
        for (name, resources) in changed.iter().filter(|(name, _)| usable.contains(name.as_str())) {
            match out.iter_mut().find(|(known, _)| known == resources) {
                Some((_, names)) => names.push(name.clone()),
                None => out.push((resources.clone(), vec![name.clone()])),
            }
        }
        out
    }
}

/// The types that a claim may be launched with. That of a static pool lists none: any of its pool's `types` that its requirements
/// allow.
fn types_of<'a>(claim: &'a NewClaim, types: &'a [InstanceType]) -> BTreeSet<&'a str> {
    if !claim.instance_types.is_empty() {
        return claim.instance_types.iter().map(String::as_str).collect();
    }
    let allowed = from_requirements(&claim.requirements);
    let usable = types.iter().filter(|each| from_requirements(&each.requirements).intersects(&allowed).is_ok());
    usable.map(|each| each.name.as_str()).collect()
}

/// The types and offerings of one NodePool that an overlay selects.
struct OverlayMatch {
    pool: String,
    /// Positions of types, each with the positions of its matching offerings.
    types: Vec<(usize, Vec<usize>)>,
}

/// The overlay that named each thing last. A thing that is absent is still unchanged: the first overlay that names it changes it.
#[derive(Default)]
struct Named<'o> {
    /// By NodePool, type and offering.
    prices: BTreeMap<(String, usize, usize), &'o NodeOverlay>,
    /// By NodePool, type and resource.
    capacities: BTreeMap<(String, usize, String), &'o NodeOverlay>,
}

/// The prices that overlays give to types of which EC2 publishes none, such as previews: those of overlays with an absolute price and
/// nothing but type names in their requirements (aws 4.4).
#[must_use]
pub fn missing_prices(overlays: &[NodeOverlay]) -> BTreeMap<String, Price> {
    let mut prices = BTreeMap::new();
    for overlay in by_weight(overlays).into_iter().filter(|overlay| spec_error(overlay).is_none()) {
        let ([requirement], Some(text)) = (overlay.spec.requirements.as_slice(), &overlay.spec.price) else { continue };
        let names_types = requirement.key == labels::INSTANCE_TYPE && requirement.operator.as_str() == "In";
        let Some(price) = adjusted_price(Price::ZERO, text).filter(|_| names_types && !text.is_empty()) else { continue };
        for name in &requirement.values {
            prices.entry(name.clone()).or_insert(price);
        }
    }
    prices
}

/// The overlays that are not being deleted, in the order in which they apply.
fn by_weight(overlays: &[NodeOverlay]) -> Vec<&NodeOverlay> {
    let mut order: Vec<&NodeOverlay> = overlays.iter().filter(|o| !o.metadata.is_deleting()).collect();
    order.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| b.metadata.name.cmp(&a.metadata.name)));
    order
}

/// Applies overlays to the catalogs of the NodePools.
#[must_use]
pub fn apply(overlays: &[NodeOverlay], pools: &[NodePool], catalog: Types) -> Overlaid {
    let has_types = |pool: &NodePool| catalog.get(&pool.metadata.name).is_some_and(|types| !types.is_empty());
    // A pool whose types are not known yet may have those that an overlay is for.
    let all_known = pools.iter().any(has_types) && pools.iter().all(|pool| has_types(pool) || !pool.is_managed());
    let mut out = Overlaid { catalog, ..Overlaid::default() };
    let mut named = Named::default();
    for overlay in by_weight(overlays) {
        let name = overlay.metadata.name.clone();
        if let Some(error) = spec_error(overlay) {
            out.statuses.insert(name, OverlayStatus::Invalid(error));
            continue;
        }
        let matches: Vec<OverlayMatch> =
            pools.iter().filter_map(|pool| match_overlay(overlay, pool, out.catalog.get(&pool.metadata.name)?)).collect();
        if let Some(other) = conflict(overlay, &matches, &named) {
            out.statuses.insert(name, OverlayStatus::Conflict(other));
            continue;
        }
        for matched in &matches {
            apply_overlay(overlay, matched, &mut out, &mut named);
        }
        let status = if matches.is_empty() && all_known { OverlayStatus::Unmatched } else { OverlayStatus::Used };
        out.statuses.insert(name, status);
    }
    out
}

fn weight(overlay: &NodeOverlay) -> i32 {
    overlay.spec.weight.unwrap_or(0)
}

fn spec_error(overlay: &NodeOverlay) -> Option<String> {
    for requirement in &overlay.spec.requirements {
        // Restricted keys are allowed, since overlays select NodePools by label.
        if let Some(error) = pods::requirement_errors(&requirement.key, requirement.operator.as_str(), &requirement.values, |_| true).pop()
        {
            return Some(error);
        }
        if requirement.operator.as_str() == "NotIn" && requirement.values.is_empty() {
            return Some(format!("key {} with operator NotIn must have a value", requirement.key));
        }
    }
    if let Some((name, _)) = overlay.spec.capacity.iter().find(|(name, _)| INTRINSIC_RESOURCES.contains(name)) {
        return Some(format!("capacity {name} is a fact of the type and cannot be changed"));
    }
    let is_price = |text: &String| adjusted_price(Price::ZERO, text).is_some();
    let texts = [&overlay.spec.price, &overlay.spec.price_adjustment];
    texts
        .into_iter()
        .flatten()
        .find(|t| !is_price(t))
        .map(|t| format!("{t:?} is no price: write 0.5, +0.1 or -10%, and at most 1000000 an hour"))
}

/// The types and offerings of a NodePool that the overlay selects.
fn match_overlay(overlay: &NodeOverlay, pool: &NodePool, types: &[InstanceType]) -> Option<OverlayMatch> {
    let selected = from_requirements(&overlay.spec.requirements);
    let mut template = from_labels(&pool.spec.template.metadata.labels);
    template.replace(labels::NODE_POOL.to_owned(), Allowed::one(pool.metadata.name.clone()));
    let mut out = Vec::new();
    // Of the dozens of keys of each type only those count that the overlay names.
    let asked = |given: &[Requirement]| {
        let asked: Vec<Requirement> = given.iter().filter(|one| selected.get(canonical_key(&one.key)).is_some()).cloned().collect();
        from_requirements(&asked)
    };
    for (position, instance_type) in types.iter().enumerate() {
        let mut offered: Requirements = template.clone();
        offered.add_all(&asked(&instance_type.requirements));
        if offered.compatible(&selected, |_| false).is_err() {
            continue;
        }
        let matching = instance_type.offerings.iter().enumerate().filter(|(_, o)| asked(&o.requirements).intersects(&selected).is_ok());
        let matching: Vec<usize> = matching.map(|(n, _)| n).collect();
        if !matching.is_empty() {
            out.push((position, matching));
        }
    }
    (!out.is_empty()).then(|| OverlayMatch { pool: pool.metadata.name.clone(), types: out })
}

fn has_price(overlay: &NodeOverlay) -> bool {
    [&overlay.spec.price, &overlay.spec.price_adjustment].into_iter().flatten().any(|t| !t.is_empty())
}

/// An overlay of the same weight that sets the same price or resource.
fn conflict(overlay: &NodeOverlay, matches: &[OverlayMatch], named: &Named<'_>) -> Option<String> {
    let Named { prices, capacities } = named;
    let equal = |other: &&&NodeOverlay| weight(other) == weight(overlay);
    for matched in matches {
        for (at, offerings) in &matched.types {
            let mut by_price = offerings.iter().filter(|_| has_price(overlay)).filter_map(|n| prices.get(&(matched.pool.clone(), *at, *n)));
            let mut by_capacity =
                overlay.spec.capacity.iter().filter_map(|(name, _)| capacities.get(&(matched.pool.clone(), *at, name.to_owned())));
            if let Some(other) = by_price.find(equal).or_else(|| by_capacity.find(equal)) {
                return Some(other.metadata.name.clone());
            }
        }
    }
    None
}

fn apply_overlay<'o>(overlay: &'o NodeOverlay, matched: &OverlayMatch, out: &mut Overlaid, named: &mut Named<'o>) {
    let Some(types) = out.catalog.get_mut(&matched.pool) else { return };
    // Lists are shared between NodePools until one of them is changed.
    let types = Arc::make_mut(types).change();
    let text = overlay.spec.price.as_ref().or(overlay.spec.price_adjustment.as_ref()).filter(|_| has_price(overlay));
    for (at, offerings) in &matched.types {
        let instance_type = &mut types[*at];
        let mut changed = Offerings::new();
        for n in offerings {
            let Some(text) = text else { break };
            let unchanged = named.prices.insert((matched.pool.clone(), *at, *n), overlay).is_none();
            if unchanged && let Some(price) = adjusted_price(instance_type.offerings[*n].price, text) {
                let offering = &mut instance_type.offerings[*n];
                let is_known = overlay.spec.price.is_some() || offering.price > Price::ZERO;
                offering.price = if is_known { price.max(FREE) } else { price };
                changed.insert((offering.capacity_type().to_owned(), offering.zone().to_owned()));
            }
        }
        if let Some(text) = text.filter(|_| !changed.is_empty()) {
            let all: Offerings =
                instance_type.offerings.iter().map(|each| (each.capacity_type().to_owned(), each.zone().to_owned())).collect();
            let changed = if changed == all { Offerings::new() } else { changed };
            let of_type = out.priced.entry(matched.pool.clone()).or_default().entry(instance_type.name.clone()).or_default();
            of_type.push((text.clone(), changed));
        }
        for (name, amount) in overlay.spec.capacity.iter() {
            let unchanged = named.capacities.insert((matched.pool.clone(), *at, name.to_owned()), overlay).is_none();
            if unchanged {
                instance_type.capacity.set(name, amount.max(Quantity::ZERO));
                out.resized
                    .entry(matched.pool.clone())
                    .or_default()
                    .entry(instance_type.name.clone())
                    .or_default()
                    .set(name, amount.max(Quantity::ZERO));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Overlaid, OverlayStatus, PriceChange, apply, missing_prices};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use whittle_api::catalog::{InstanceType, Offering};
    use whittle_api::karpenter::{NodeOverlay, NodePool, Requirement};
    use whittle_api::labels;
    use whittle_model::scheduling::NewClaim;
    use whittle_units::{Price, Quantity, Resources};

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
            assert_eq!(out.statuses["o"], OverlayStatus::Used);
            changed(&out).len()
        };
        assert_eq!(count(json!([])), 16);
        assert_eq!(count(json!([r(labels::NODE_POOL, &["one"])])), 8);
        assert_eq!(count(json!([r("team", &["t"])])), 8);
        assert_eq!(count(json!([r(labels::ZONE, &["x"])])), 8);
        assert_eq!(count(json!([r(labels::CAPACITY_TYPE, &["spot"]), r(labels::INSTANCE_TYPE, &["a"]), r(labels::ZONE, &["y"])])), 2);
    }

    #[test]
    fn an_overlay_that_no_type_of_any_pool_meets_is_unmatched_once_all_types_are_known() {
        let spec = |requirement: Value| json!([overlay("o", 1, &json!({"requirements": [requirement], "price": "5"}))]);
        for (key, value) in [("unknown", "v"), (labels::INSTANCE_TYPE, "c"), (labels::ZONE, "z"), (labels::NODE_POOL, "three")] {
            let requirement = r(key, &[value]);
            let out = with(spec(requirement.clone()));
            assert_eq!(out.statuses["o"], OverlayStatus::Unmatched, "{requirement}");
            assert!(changed(&out).is_empty() && Arc::ptr_eq(&out.catalog["one"], &out.catalog["two"]), "{requirement}");
        }
        let overlays: Vec<NodeOverlay> = serde_json::from_value(spec(r("unknown", &["v"]))).unwrap();
        let of_pools = |pools: Value, with_types: &[&str]| {
            let pools: Vec<NodePool> = serde_json::from_value(pools).unwrap();
            let types = with(json!([])).catalog["one"].clone();
            let catalog = with_types.iter().map(|pool| ((*pool).to_owned(), Arc::clone(&types))).collect();
            apply(&overlays, &pools, catalog).statuses["o"].clone()
        };
        let pool = |name: &str, class: Value| json!({"metadata": {"name": name}, "spec": {"template": {"spec": {"nodeClassRef": class}}}});
        let ours = |name: &str| pool(name, json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "n"}));
        let auto = pool("auto", json!({"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "n"}));
        assert_eq!(of_pools(json!([]), &[]), OverlayStatus::Used, "nothing says what it is for");
        assert_eq!(of_pools(json!([ours("one")]), &[]), OverlayStatus::Used);
        assert_eq!(of_pools(json!([ours("one"), ours("two")]), &["one"]), OverlayStatus::Used, "the class of the other is not ready");
        assert_eq!(of_pools(json!([ours("one"), ours("two")]), &["one", "two"]), OverlayStatus::Unmatched);
        assert_eq!(of_pools(json!([ours("one"), auto]), &["one"]), OverlayStatus::Unmatched, "EKS Auto Mode's never has types");
    }

    #[test]
    fn what_is_made_free_has_a_known_price() {
        for free in [json!({"price": "0"}), json!({"priceAdjustment": "-100%"}), json!({"priceAdjustment": "-7"})] {
            let mut spec = free.clone();
            spec["requirements"] = json!([r(labels::INSTANCE_TYPE, &["a"])]);
            let prices = changed(&with(json!([overlay("o", 1, &spec)])));
            assert!(prices.len() == 8 && prices.values().all(|price| 0.0 < *price && *price < 1e-6), "{free}: {prices:?}");
        }
    }

    #[test]
    fn invalid_overlays_are_rejected_and_change_nothing() {
        for spec in [
            json!({"requirements": [{"key": labels::ZONE, "operator": "NotIn", "values": []}], "price": "5"}),
            json!({"requirements": [{"key": "integer", "operator": "Gt", "values": ["x"]}], "price": "5"}),
            json!({"requirements": [], "capacity": {"cpu": "4"}}),
            json!({"requirements": [], "capacity": {"vpc.amazonaws.com/efa": "4"}}),
            json!({"requirements": [], "price": "much"}),
        ] {
            let out = with(json!([overlay("o", 1, &spec)]));
            assert!(matches!(out.statuses["o"], OverlayStatus::Invalid(_)) && changed(&out).is_empty(), "{spec}");
        }
    }

    #[test]
    fn equal_weights_on_the_same_thing_are_a_conflict_for_the_later_one() {
        let both = |a: Value, b: Value, weights: (i32, i32)| {
            let out = with(json!([overlay("a", weights.0, &a), overlay("b", weights.1, &b)]));
            out.statuses.values().filter(|v| matches!(v, OverlayStatus::Conflict(_))).count()
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
        assert_eq!(
            (&out.statuses["a"], &out.statuses["b"]),
            (&OverlayStatus::Conflict("b".into()), &OverlayStatus::Used),
            "names count from the end"
        );
        assert!(changed(&out).values().all(|p| *p == 7.0), "it changes nothing at all");
    }

    #[test]
    fn equal_weights_are_a_conflict_even_where_a_heavier_overlay_decides() {
        let price = |types: &[&str], price: &str| json!({"requirements": [r(labels::INSTANCE_TYPE, types)], "price": price});
        let capacity = |amount: &str| json!({"requirements": [], "capacity": {"x/a": amount}});
        let three = |heavy: Value, first: Value, second: Value| {
            with(json!([overlay("heavy", 10, &heavy), overlay("z-first", 5, &first), overlay("a-second", 5, &second)]))
        };
        for out in
            [three(price(&["a"], "5"), price(&["a", "b"], "4"), price(&["a"], "2")), three(capacity("1"), capacity("2"), capacity("3"))]
        {
            let statuses = ["heavy", "z-first", "a-second"].map(|name| &out.statuses[name]);
            assert_eq!(statuses, [&OverlayStatus::Used, &OverlayStatus::Used, &OverlayStatus::Conflict("z-first".into())]);
        }
        let out = three(price(&["a"], "5"), price(&["a", "b"], "4"), price(&["a", "b"], "2"));
        let prices = changed(&out);
        assert_eq!((prices["one/a/x/spot"], prices["one/b/x/spot"]), (5.0, 4.0), "the later one changes nothing");
        let apart = three(price(&["a", "b"], "5"), price(&["a"], "4"), price(&["b"], "2"));
        assert!(apart.statuses.values().all(|status| *status == OverlayStatus::Used), "{:?}", apart.statuses);
    }

    #[test]
    fn overlays_of_higher_weight_win_per_offering_and_per_resource() {
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
    fn types_without_a_price_get_that_of_an_absolute_overlay_that_names_them_alone() {
        let overlays: Vec<NodeOverlay> = serde_json::from_value(json!([
            overlay("light", 1, &json!({"requirements": [r(labels::INSTANCE_TYPE, &["a", "b"])], "price": "2"})),
            overlay("heavy", 10, &json!({"requirements": [r(labels::INSTANCE_TYPE, &["b"])], "price": "3"})),
            overlay("relative", 9, &json!({"requirements": [r(labels::INSTANCE_TYPE, &["c"])], "priceAdjustment": "+3"})),
            overlay("zonal", 9, &json!({"requirements": [r(labels::INSTANCE_TYPE, &["d"]), r(labels::ZONE, &["x"])], "price": "3"})),
            overlay("family", 9, &json!({"requirements": [r("karpenter.k8s.aws/instance-family", &["e"])], "price": "3"})),
            overlay("bad", 9, &json!({"requirements": [r(labels::INSTANCE_TYPE, &["f"])], "price": "much"})),
        ]))
        .unwrap();
        let found: Vec<_> = missing_prices(&overlays).into_iter().map(|(name, price)| (name, price.dollars())).collect();
        assert_eq!(found, [("a".to_owned(), 2.0), ("b".to_owned(), 3.0)]);
    }

    #[test]
    fn a_claim_gets_the_price_changes_of_its_types_grouped_by_offerings() {
        let out = with(json!([
            overlay("heavy", 10, &json!({"requirements": [r(labels::ZONE, &["x"]), r(labels::CAPACITY_TYPE, &["spot"])], "price": "5"})),
            overlay("light", 1, &json!({"requirements": [r(labels::INSTANCE_TYPE, &["a"])], "priceAdjustment": "-10%"})),
            overlay("other", 1, &json!({"requirements": [r(labels::INSTANCE_TYPE, &["b"]), r(labels::NODE_POOL, &["two"])], "price": "2"})),
        ]));
        let of = |pool: &str, types: &[&str]| {
            let instance_types = types.iter().map(|name| (*name).to_owned()).collect();
            out.priced(&NewClaim { node_pool: pool.into(), instance_types, ..NewClaim::default() }, &[])
        };
        let change = |price: &str, types: &[&str], offerings: &[(&str, &str)]| PriceChange {
            price: price.to_owned(),
            instance_types: types.iter().map(|name| (*name).to_owned()).collect(),
            offerings: offerings.iter().map(|(capacity_type, zone)| ((*capacity_type).to_owned(), (*zone).to_owned())).collect(),
        };
        let rest = [("on-demand", "x"), ("on-demand", "y"), ("spot", "y")];
        let heavy = |types| change("5", types, &[("spot", "x")]);
        assert_eq!(of("one", &["a", "b"]), [heavy(&["a", "b"]), change("-10%", &["a"], &rest)]);
        assert_eq!(of("one", &["b"]), [heavy(&["b"])]);
        assert_eq!(of("two", &["b"]), [heavy(&["b"]), change("2", &["b"], &rest)]);
        assert_eq!(of("three", &["a"]), []);
        let all = with(json!([overlay("all", 1, &json!({"requirements": [], "price": "2"}))]));
        let types = &all.catalog["one"];
        let of_static = |requirements| all.priced(&NewClaim { node_pool: "one".into(), requirements, ..NewClaim::default() }, types);
        assert_eq!(of_static(Vec::new()), [change("2", &["a", "b"], &[])]);
        let only_b = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["b"])];
        assert_eq!(of_static(only_b), [change("2", &["b"], &[])], "the others are never launched");
    }

    #[test]
    fn a_claims_annotations_name_the_changes_of_its_types_only() {
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
        assert_eq!(out.resized(&claim("one", &["b"]), &[]), [(of(2, 3), vec!["b".to_owned()])]);
        assert_eq!(out.resized(&claim("one", &[]), &out.catalog["one"]).len(), 2, "a static pool's may become any");
        assert!(out.resized(&claim("two", &["a", "b"]), &[]).is_empty() && out.resized(&claim("one", &["c"]), &[]).is_empty());
        assert!(out.annotations(&claim("one", &["a"]), &[]).contains_key(labels::CAPACITY_OVERLAY_APPLIED));
        assert!(out.annotations(&claim("two", &["a"]), &[]).is_empty());
    }
}
