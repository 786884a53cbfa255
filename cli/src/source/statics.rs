//! NodePools with `replicas`, which keep that many machines whatever the pods: a plan for pods launches none of these.

use super::offers::InstanceTypesByPool;
use super::remarks::Remark;
use super::{Manifests, static_pools_apply};
use crate::money::{HOURS_A_MONTH, counted};
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_model::requirements::{from_labels, from_requirements};
use whittle_model::scheduling::InstanceTypes;
use whittle_units::Price;

/// A note for each static NodePool that has more or fewer machines than it keeps; none where the feature gate is off.
pub(super) fn remarks(read: &Manifests, types: &InstanceTypesByPool) -> Vec<Remark> {
    if !static_pools_apply(read) {
        return Vec::new();
    }
    let objects = &read.objects;
    let remark = |pool: &NodePool| {
        let keeps = usize::try_from(pool.spec.replicas?).unwrap_or_default();
        let name = &pool.metadata.name;
        let has = machines(objects, name, |metadata| !metadata.is_deleting());
        if has == keeps || pool.metadata.is_deleting() {
            return None;
        }
        let begins = format!("NodePool {name:?} keeps {} (spec.replicas) and has {has}", counted(keeps, "machine"));
        if keeps < has {
            let surplus = counted(has - keeps, "machine");
            return Some(Remark::note(format!("{begins}: {surplus} to remove, which the sums here do not count")));
        }
        let missing = keeps - has;
        let launched = missing.min(room(objects, pool));
        let price = types.get(name).and_then(|types| cheapest(pool, types)).map(|price| cost(price, launched));
        let price = price.filter(|_| 0 < launched).unwrap_or_default();
        let uncounted = format!("{} more to launch, which the sums here do not count{price}", counted(launched, "machine"));
        Some(match (launched == missing, launched) {
            (true, _) => Remark::note(format!("{begins}: {uncounted}")),
            (false, 0) => Remark::warning(format!("{begins}: spec.limits.nodes lets no more be launched: {RAISE}")),
            (false, _) => Remark::warning(format!("{begins}: {uncounted}; spec.limits.nodes lets no others be launched: {RAISE}")),
        })
    };
    objects.node_pools.iter().filter_map(remark).collect()
}

/// What helps a NodePool whose limit is below what it keeps.
const RAISE: &str = "raise it, or lower spec.replicas";

/// How many machines a NodePool has for which a condition holds.
fn machines(objects: &ClusterObjects, pool: &str, holds: impl Fn(&ObjectMeta) -> bool) -> usize {
    let is_counted = |metadata: &&ObjectMeta| metadata.label(labels::NODE_POOL) == Some(pool) && holds(metadata);
    let nodes = objects.nodes.iter().map(|node| &node.metadata).filter(is_counted).count();
    let claims = objects.node_claims.iter().map(|claim| &claim.metadata).filter(is_counted).count();
    nodes.max(claims)
}

/// How many more machines the limit of a NodePool lets be launched; those that are being deleted count against it, too.
fn room(objects: &ClusterObjects, pool: &NodePool) -> usize {
    let taken = || machines(objects, &pool.metadata.name, |_| true);
    let limit = pool.spec.limits.0.get("nodes");
    limit.map_or(usize::MAX, |limit| usize::try_from(limit.units_floor()).unwrap_or_default().saturating_sub(taken()))
}

/// The least that a machine of a NodePool costs.
fn cheapest(pool: &NodePool, types: &InstanceTypes) -> Option<Price> {
    let template = &pool.spec.template;
    let mut wanted = from_labels(&template.metadata.labels);
    wanted.add_all(&from_requirements(&template.spec.requirements));
    let fits = |requirements| from_requirements(requirements).intersects(&wanted).is_ok();
    let of_type = types.iter().filter(|one| fits(&one.requirements)).flat_map(|one| &one.offerings);
    let offered = of_type.filter(|offering| offering.available && offering.price > Price::ZERO && fits(&offering.requirements));
    offered.map(|offering| offering.price).min()
}

fn cost(price: Price, machines: usize) -> String {
    let all: Price = std::iter::repeat_n(price, machines.min(1_000_000)).sum();
    format!(": {price} each at least, {all} together, ${:.2} a month", all.dollars() * HOURS_A_MONTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Offers, read_text};
    use std::sync::Arc;

    /// The remarks on a NodePool with `keeps` replicas and `has` machines.
    fn remarks_on(keeps: usize, has: usize) -> Vec<String> {
        remarks_with(&format!("replicas: {keeps}"), has)
    }

    /// The same of a NodePool with these fields.
    fn remarks_with(fields: &str, has: usize) -> Vec<String> {
        remarks_beside(fields, has, "")
    }

    /// The same beside other manifests.
    fn remarks_beside(fields: &str, has: usize, others: &str) -> Vec<String> {
        let pool = format!(
            "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: st}}, spec: {{{fields}, template: {{spec: \
             {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}, requirements: [{{key: \
             node.kubernetes.io/instance-type, operator: In, values: [m5.xlarge]}}, {{key: karpenter.sh/capacity-type, operator: In, \
             values: [on-demand]}}]}}}}}}}}\n"
        );
        let node =
            |n: usize| format!("---\n{{apiVersion: v1, kind: Node, metadata: {{name: n-{n}, labels: {{karpenter.sh/nodepool: st}}}}}}\n");
        let read = read_text("pool.yaml", &(pool + &(0..has).map(node).collect::<String>() + others)).unwrap();
        let types = InstanceTypesByPool::from([("st".to_owned(), Arc::new(Offers::of_region("us-east-1").unwrap().into()))]);
        remarks(&read, &types).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_static_pool_launches_or_removes_is_told() {
        assert_eq!(
            remarks_on(3, 0),
            [
                "note: NodePool \"st\" keeps 3 machines (spec.replicas) and has 0: 3 machines more to launch, which the sums here do not count: \
              $0.1920/h each at least, $0.5760/h together, $420.48 a month"
            ]
        );
        let fewer =
            "note: NodePool \"st\" keeps 1 machine (spec.replicas) and has 3: 2 machines to remove, which the sums here do not count";
        assert_eq!(remarks_on(1, 3), [fewer]);
        assert!(remarks_on(3, 3).is_empty() && remarks_on(0, 0).is_empty());
    }

    #[test]
    fn a_static_pool_that_a_gate_turns_off_launches_nothing() {
        let gate = |on: bool| {
            let settings = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: plan-settings}, data: {featureGates: ";
            remarks_beside("replicas: 3", 0, &format!("{settings}StaticCapacity={on}}}}}\n"))
        };
        assert!(gate(false).is_empty());
        assert_eq!(gate(true), remarks_on(3, 0));
    }

    #[test]
    fn no_more_is_told_to_launch_than_the_limit_allows() {
        let limited = |nodes: usize, has: usize| remarks_with(&format!("limits: {{nodes: {nodes}}}, replicas: 3"), has);
        let two = "warning: NodePool \"st\" keeps 3 machines (spec.replicas) and has 0: 2 machines more to launch, which the sums \
                   here do not count: $0.1920/h each at least, $0.3840/h together, $280.32 a month; spec.limits.nodes lets no others \
                   be launched: raise it, or lower spec.replicas";
        assert_eq!(limited(2, 0), [two]);
        let none = "warning: NodePool \"st\" keeps 3 machines (spec.replicas) and has 2: spec.limits.nodes lets no more be launched: \
                    raise it, or lower spec.replicas";
        assert_eq!(limited(2, 2), [none]);
        assert_eq!(limited(3, 0), remarks_on(3, 0));
        assert!(limited(2, 3).is_empty());
    }
}
