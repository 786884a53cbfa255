//! A plan as text.

use super::output::Costs;
use crate::money::{HOURS_A_MONTH, counted};
use crate::table::table;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use whittle_api::words;
use whittle_model::scheduling::{LeftOut, MachineCosts, NarrowerPlan, NewClaim, Plan, PodRef, PoolRejection, Reason};
use whittle_solver::PreferenceCost;
use whittle_units::Price;

/// The maximum number of pods that are named; more are only counted.
pub(crate) const NAMED: usize = 5;

pub(crate) fn text(plan: &Plan, preference_cost: Option<&PreferenceCost>, costs: &Costs) -> String {
    let mut out = lead(plan, preference_cost, costs).iter().map(|line| format!("{line}\n")).collect::<String>();
    for rejection in &plan.unusable_pools {
        let _ = writeln!(out, "\nnodepool {} has nothing to buy: {}", rejection.node_pool, words::printable(&rejection.cause.to_string()));
        ruled_out(&mut out, rejection);
    }
    if !plan.claims.is_empty() {
        let (header, rows) = to_launch(&plan.claims);
        let _ = write!(out, "\n{}", table(header, rows));
    }
    for alike in alike(&plan.claims, |claim| of_machine(claim, 1, &[])) {
        let pods: Vec<&PodRef> = alike.iter().flat_map(|claim| &claim.pods).collect();
        out.push_str(&of_machine(alike[0], alike.len(), &pods));
    }
    for placement in &plan.placements {
        let _ = writeln!(out, "\nexisting node {}\n  pods: {}", placement.node, names(placement.pods.iter()));
    }
    for alike in alike(&plan.left_out, why_not) {
        let _ = write!(out, "\nnot placed: {}\n{}", names(alike.iter().map(|left| &left.pod)), why_not(alike[0]));
    }
    if plan.left_out.iter().any(|left| !left.reason.remedies().is_empty()) {
        out.push_str("\nwhat it would take to place a pod: `whittle explain POD` with the same arguments\n");
    }
    out
}

/// What the plan is, in a few lines.
pub(super) fn lead(plan: &Plan, preference_cost: Option<&PreferenceCost>, costs: &Costs) -> Vec<String> {
    let besides = plan.machine_costs.filter(|besides| besides.cost > Price::ZERO);
    let with = besides.map(|besides| format!("; {} with what machines cost besides", plan.price() + besides.cost)).unwrap_or_default();
    let machines = counted(plan.claims.len(), "new machine");
    let none = if plan.pods == 0 { ": there is no pod to place" } else { "" };
    let mut lines = vec![format!("{} of {} pods placed, {machines}, {}{with}{none}", plan.scheduled(), plan.pods, plan.price())];
    lines.extend(costs.text().lines().map(str::to_owned));
    lines.extend(plan.lower_bound.filter(|_| !plan.claims.is_empty()).map(|bound| at_least(plan.price(), bound, besides)));
    lines.extend(plan.narrower.map(|other| passed_over(&other)));
    lines.extend(preference_cost.map(|cost| {
        let (with, without) = cost.machines;
        format!(
            "preferences of {} are respected: {} for {}; without them it would be {without} for {}",
            counted(cost.pods, "pod"),
            counted(with, "new machine"),
            cost.price,
            cost.without
        )
    }));
    lines
}

/// A plan that would cost less, and why it is not this one.
fn passed_over(other: &NarrowerPlan) -> String {
    let NarrowerPlan { machines, price, types, .. } = other;
    format!(
        "passed over: {} for {price}, {} with what machines cost besides: one of its claims would be left {}, and with so few a launch \
         fails, or a spot machine is interrupted, sooner",
        counted(*machines, "machine"),
        other.with_machines(),
        counted(*types, "instance type"),
    )
}

/// The lower bound, what it is, and how far the plan is from it.
fn at_least(price: Price, bound: Price, besides: Option<MachineCosts>) -> String {
    let (all, least) = besides.map_or((price, bound), |besides| (price + besides.cost, besides.lower_bound));
    let with = besides.map(|besides| format!(", {} with what machines cost besides", besides.lower_bound)).unwrap_or_default();
    let share = (all.dollars() / least.dollars() - 1.0) * 100.0;
    let so_far = if besides.is_some() { "with both, " } else { "" };
    let distance = match least {
        Price::ZERO => String::new(),
        _ if share < 0.05 => "; this one costs just that".to_owned(),
        _ => format!("; {so_far}this one costs at most {share:.1} % more than the cheapest"),
    };
    format!("lower bound {bound}{with}: no plan for these pods can cost less, and perhaps none costs as little{distance}")
}

/// Items with the same text together, in the order of the first of each.
pub(super) fn alike<T>(items: &[T], text: impl Fn(&T) -> String) -> Vec<Vec<&T>> {
    let (mut groups, mut numbers): (Vec<Vec<&T>>, BTreeMap<String, usize>) = Default::default();
    for item in items {
        let number = *numbers.entry(text(item)).or_insert(groups.len());
        match groups.get_mut(number) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}

/// What is to be launched, a row for each NodePool and offering, the dearest first.
pub(super) fn to_launch(claims: &[NewClaim]) -> (&'static [&'static str], Vec<Vec<String>>) {
    let mut rows: BTreeMap<[&str; 4], (usize, Price)> = BTreeMap::new();
    for claim in claims {
        let offer = claim.why.cheapest.as_ref();
        let of_offer = offer.map_or(["", "", ""], |offer| [&offer.instance_type, &offer.capacity_type, &offer.zone]);
        let row = rows.entry([&claim.node_pool, of_offer[0], of_offer[1], of_offer[2]]).or_default();
        *row = (row.0 + 1, row.1 + claim.cheapest_price);
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, (_, price))| std::cmp::Reverse(*price));
    let cells = |(names, (machines, price)): &([&str; 4], (usize, Price))| {
        let mut row = vec![machines.to_string()];
        row.extend(names.iter().map(|name| (*name).to_owned()));
        row.extend([price.to_string(), format!("${:.2}", price.dollars() * HOURS_A_MONTH)]);
        row
    };
    (&["LAUNCH", "NODEPOOL", "TYPE", "CAPACITY", "ZONE", "TOGETHER", "A MONTH"], rows.iter().map(cells).collect())
}

/// An unplaced pod, with the reason.
pub(crate) fn not_placed(out: &mut String, left: &LeftOut) {
    let _ = write!(out, "\nnot placed: {}\n{}", left.pod.key(), why_not(left));
}

/// The lines with the reason why a pod is not placed: one for each NodePool, however many there are, and below it what rules out its types.
/// An Event has no room for that, and joins them.
pub(super) fn why_not(left: &LeftOut) -> String {
    let mut out = String::new();
    match &left.reason {
        Reason::Pools(rejections) if !rejections.is_empty() => {
            rejections.iter().for_each(|rejection| refusal(&mut out, rejection, &rejection.to_string()));
        }
        Reason::NoTemplates(rejections) => {
            line(&mut out, &Reason::NoTemplates(Vec::new()).to_string());
            rejections.iter().for_each(|rejection| refusal(&mut out, rejection, &rejection.cause.to_string()));
        }
        Reason::NoNodePools => {
            line(&mut out, &left.reason.to_string());
            out.push_str(
                "  there is no NodePool, or only such with replicas, which launch nothing for pods, or that are being deleted or were \
                 refused: add one to the manifests, or correct it\n",
            );
        }
        other => line(&mut out, &other.to_string()),
    }
    out
}

/// Why a NodePool does not take a pod.
fn refusal(out: &mut String, rejection: &PoolRejection, why: &str) {
    line(out, &format!("nodepool {}: {why}", rejection.node_pool));
    ruled_out(out, rejection);
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "  {}", words::printable(text));
}

/// The constraints that rule out a pool's types, with their numbers.
fn ruled_out(out: &mut String, rejection: &PoolRejection) {
    for ruled in rejection.ruled_out.iter().take(NAMED) {
        let _ = writeln!(
            out,
            "  nodepool {}: {} rules out {} of {} instance types",
            rejection.node_pool,
            words::printable(&ruled.constraint.to_string()),
            ruled.types,
            ruled.of
        );
    }
}

/// A machine to launch, with the reason for its choice.
pub(crate) fn new_machine(out: &mut String, claim: &NewClaim) {
    out.push_str(&of_machine(claim, 1, &claim.pods.iter().collect::<Vec<_>>()));
}

/// Machines that differ in nothing but their pods.
fn of_machine(claim: &NewClaim, machines: usize, pods: &[&PodRef]) -> String {
    let mut out = String::new();
    let (count, each) = if machines == 1 { (String::new(), "") } else { (format!("{machines} "), " each") };
    let machine = if machines == 1 { "new machine" } else { "new machines" };
    let first = claim.instance_types.first().map_or("no type", String::as_str);
    let more = claim.instance_types.len().saturating_sub(1);
    let or = if more == 0 { String::new() } else { format!(", or one of {}", counted(more, "other type")) };
    let _ = writeln!(out, "\n{count}{machine} from nodepool {}: {first} at {}{each}{or}", claim.node_pool, claim.cheapest_price);
    if let Some(offer) = &claim.why.cheapest {
        let _ = writeln!(out, "  cheapest: {offer}; {} offerings to launch from", claim.offerings);
    }
    if let Some(offer) = &claim.why.next_offer {
        let _ = writeln!(out, "  next best offering: {offer}");
    }
    if let Some((name, price)) = &claim.why.next_best {
        let _ = writeln!(out, "  next best type: {name} at {price}");
    }
    for rejection in &claim.why.passed_over {
        let _ = writeln!(out, "  nodepool {} comes first, but: {}", rejection.node_pool, rejection.cause);
    }
    for narrowed in &claim.why.narrowed {
        let _ = writeln!(out, "  narrowed by its pods: {narrowed}");
    }
    let asks: Vec<String> = claim.requests.iter().map(|(name, amount)| format!("{name} {}", amount.text_of(name))).collect();
    let _ = writeln!(out, "  requests{}: {}", if machines == 1 { "" } else { " of each" }, asks.join(", "));
    let _ = writeln!(out, "  pods: {}", names(pods.iter().copied()));
    out
}

pub(super) fn names<'p>(pods: impl ExactSizeIterator<Item = &'p PodRef>) -> String {
    let more = pods.len().saturating_sub(NAMED);
    let mut list: Vec<String> = pods.take(NAMED).map(PodRef::key).collect();
    if more > 0 {
        list.push(format!("and {more} more"));
    }
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_model::scheduling::{Cause, RuledOut};

    fn refused(node_pool: &str) -> PoolRejection {
        PoolRejection::of_name(node_pool, Cause::NodeLimit { node_pool: node_pool.to_owned() })
    }

    #[track_caller]
    fn check_lines(reason: Reason, wanted: &str) {
        assert_eq!(why_not(&LeftOut { pod: PodRef::default(), reason }), wanted);
    }

    /// Ten and more stood in one line, and what ruled out their types far below.
    #[test]
    fn each_nodepool_has_a_line_of_its_own_and_below_it_what_rules_out_its_types() {
        let ruled_out = vec![RuledOut { constraint: "cpu".to_owned(), types: 3, of: 4, of_volume: false }];
        let pools = |more: &[&str]| {
            let first = PoolRejection { ruled_out: ruled_out.clone(), ..refused("a") };
            std::iter::once(first).chain(more.iter().map(|name| refused(name))).collect::<Vec<_>>()
        };
        let limit = |name: &str| format!("  nodepool {name}: node limits have been exhausted for nodepool (NodePool={name})\n");
        let of_a = limit("a") + "  nodepool a: cpu rules out 3 of 4 instance types\n";
        check_lines(Reason::Pools(pools(&["b"])), &format!("{of_a}{}", limit("b")));
        check_lines(
            Reason::NoTemplates(pools(&["b"])),
            &format!("  nodepool requirements filtered out all available instance types\n{of_a}{}", limit("b")),
        );
        let names: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
        let many: String = names.iter().map(|name| limit(name)).collect();
        check_lines(Reason::Pools(pools(&names.iter().map(String::as_str).collect::<Vec<_>>())), &format!("{of_a}{many}"));
        check_lines(Reason::ResourceClaims, &format!("  {}\n", Reason::ResourceClaims));
    }

    #[track_caller]
    fn check(price: f64, bound: f64, besides: Option<(f64, f64)>, wanted: &str) {
        let of = |dollars: f64| Price::from_dollars(dollars);
        let besides = besides.map(|(cost, bound)| MachineCosts { cost: of(cost), lower_bound: of(bound) });
        assert_eq!(at_least(of(price), of(bound), besides), wanted);
    }

    #[test]
    fn the_lower_bound_says_what_it_is_and_how_far_the_plan_may_be_from_the_cheapest() {
        let what = "no plan for these pods can cost less, and perhaps none costs as little";
        check(0.62, 0.5, None, &format!("lower bound $0.5000/h: {what}; this one costs at most 24.0 % more than the cheapest"));
        check(0.5, 0.5, None, &format!("lower bound $0.5000/h: {what}; this one costs just that"));
        check(
            0.62,
            0.5,
            Some((0.05, 0.6)),
            &format!(
                "lower bound $0.5000/h, $0.6000/h with what machines cost besides: {what}; with both, this one costs at most 11.7 % more \
                 than the cheapest"
            ),
        );
        check(0.0, 0.0, None, &format!("lower bound $0.0000/h: {what}"));
    }
}
