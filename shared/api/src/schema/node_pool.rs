//! NodePool `karpenter.sh/v1` (api 5).

use super::parts::{self, Keys, items, str_of};
use super::{Kind, MapType, Schema, int32, int64, list, may, need, object, one_of, quantities, text};
use serde_json::{Value, json};

pub(super) const BUDGET_NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";
pub(super) const SCHEDULE: &str = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";
pub(super) const BUDGET_DURATION: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";

pub(super) fn kind() -> Kind {
    Kind { api_version: "karpenter.sh/v1", kind: "NodePool", spec: spec(), spec_required: true, status: Some(status()) }
}

fn spec() -> Schema {
    object([
        need("template", template()),
        may("disruption", disruption()),
        may("limits", quantities().about("most of each resource that the pool's nodes may have together; nodes counts the nodes")),
        may("weight", int32().range(1, 100).about("pools of higher weight are tried first")),
        may(
            "replicas",
            int64().range(0, i64::from(i32::MAX)).about("makes the pool static: it keeps so many nodes, whatever the pods need"),
        ),
    ])
    .about("what nodes the pool makes, and how many")
    .rule(
        "!has(self.replicas) || !has(self.limits) || self.limits.all(k, k == 'nodes')",
        "a static pool may limit nodes only: remove the other limits or replicas",
        |spec| !parts::has(spec, "replicas") || spec.get("limits").is_none_or(|limits| parts::all_keys(limits, |key| key == "nodes")),
    )
    .rule("!has(self.replicas) || !has(self.weight)", "a static pool has no weight, no pod chooses it: remove weight or replicas", |spec| {
        !parts::has(spec, "replicas") || !parts::has(spec, "weight")
    })
    .change(
        "has(self.replicas) == has(oldSelf.replicas)",
        "a pool stays static or dynamic: make a new pool instead of adding or removing replicas",
        |old, new| parts::has(old, "replicas") == parts::has(new, "replicas"),
    )
}

fn template() -> Schema {
    object([
        may(
            "metadata",
            object([
                may("labels", parts::template_labels()),
                may("annotations", parts::texts().map_type(MapType::Granular).about("annotations of the nodes")),
            ])
            .about("what the nodes are marked with"),
        ),
        need("spec", template_spec()),
    ])
    .about("what each node looks like")
}

fn template_spec() -> Schema {
    // Neither has to be there in an object that was written as v1beta1.
    let reference = parts::node_class_ref()
        .change(
            "!has(self.group) || !has(oldSelf.group) || self.group == oldSelf.group",
            "the group of the class cannot change: make a new pool",
            |old, new| str_of(old, "group") == str_of(new, "group"),
        )
        .change(
            "!has(self.kind) || !has(oldSelf.kind) || self.kind == oldSelf.kind",
            "the kind of the class cannot change: make a new pool",
            |old, new| str_of(old, "kind") == str_of(new, "kind"),
        );
    object([
        need("requirements", parts::requirements(Keys::Pool)),
        need("nodeClassRef", reference),
        may("taints", parts::taints().about("taints of the nodes")),
        may("startupTaints", parts::taints().about("taints of new nodes that somebody takes away; pods need not tolerate them")),
        may(
            "expireAfter",
            text().pattern(parts::NILLABLE_DURATION).default(json!("720h")).about("age at which a node is replaced, or Never"),
        ),
        may(
            "terminationGracePeriod",
            text().pattern(parts::DURATION).about("time after which draining is forced; without it draining waits as long as it takes"),
        ),
    ])
    .about("the node's constraints, class and life")
}

fn disruption() -> Schema {
    let policies: &[&str] = &["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"];
    object([
        may(
            "consolidateAfter",
            text()
                .pattern(parts::NILLABLE_DURATION)
                .default(json!("0s"))
                .about("time without pod changes before a node may be consolidated, or Never"),
        ),
        may("consolidationPolicy", one_of(policies).default(json!("WhenEmptyOrUnderutilized")).about("which nodes may be consolidated")),
        may("budgets", budgets()),
    ])
    .default(json!({"consolidateAfter": "0s"}))
    .about("when nodes may be removed or replaced")
}

fn budgets() -> Schema {
    let reasons = list(one_of(&["Underutilized", "Empty", "Drifted"])).max(50).set().about("the reasons that it is for; all without it");
    list(object([
        need("nodes", text().pattern(BUDGET_NODES).default(json!("10%")).about("most nodes at a time, a count or a percentage")),
        may("schedule", text().pattern(SCHEDULE).about("when it begins to apply: five cron fields or a name such as @daily, in UTC")),
        may("duration", text().pattern(BUDGET_DURATION).about("how long it applies from then on, in hours and minutes")),
        may("reasons", reasons),
    ]))
    .max(50)
    .atomic()
    .default(json!([{"nodes": "10%"}]))
    .about("limits to how many nodes are disrupted at a time; the smallest that applies counts")
    .rule("self.all(b, has(b.schedule) == has(b.duration))", "schedule and duration go together: give both or neither", |list| {
        items(list).iter().all(|budget| parts::has(budget, "schedule") == parts::has(budget, "duration"))
    })
}

fn status() -> Schema {
    object([
        may("resources", quantities().about("capacity of all nodes together")),
        may("nodes", int64().default(Value::from(0)).about("number of nodes")),
        may("nodeClassObservedGeneration", int64().about("generation of the class last seen")),
        may("conditions", parts::conditions().keyed_by("type")),
    ])
    .about("what the pool has")
}
