//! The instance types that a plan sees after `refresh`.

use super::stage::refusal;
use super::{Case, Outcome, Stage, stem};
use serde_json::{Map, Value, json};
use std::path::Path;
use whittle_api::karpenter::{NodePool, NodePoolSpec, Operator, Requirement, ResolvedAmi};
use whittle_api::labels;
use whittle_api::meta::ObjectMeta;
use whittle_units::Resources;

/// CPU in millicores, everything else in whole units.
fn amounts(resources: &Resources) -> Value {
    let entries = resources.iter().filter(|(_, amount)| !amount.is_zero());
    Value::Object(
        entries.map(|(name, amount)| (name.to_owned(), json!(if name == "cpu" { amount.milli() } else { amount.units_ceil() }))).collect(),
    )
}

/// The allocatable of a machine smaller than its overhead is zero here, and negative in Karpenter.
fn without_negatives(expected: &Value) -> Value {
    let entries = expected.as_object().into_iter().flatten().filter(|(_, amount)| amount.as_i64().unwrap_or_default() > 0);
    Value::Object(entries.map(|(name, amount)| (name.clone(), amount.clone())).collect())
}

fn labels_of(requirements: &[Requirement]) -> Value {
    let values = |requirement: &Requirement| match requirement.operator {
        Operator::DoesNotExist => Value::Null,
        _ => json!(requirement.values),
    };
    Value::Object(requirements.iter().map(|requirement| (requirement.key.clone(), values(requirement))).collect())
}

/// Unknown zone ids are omitted here, and empty strings in Karpenter.
fn without_empty_zone_ids(expected: &Value) -> Value {
    let mut labels: Map<String, Value> = expected.as_object().cloned().unwrap_or_default();
    if let Some(Value::Array(ids)) = labels.get_mut(labels::ZONE_ID) {
        ids.retain(|id| id != "");
        if ids.is_empty() {
            labels.remove(labels::ZONE_ID);
        }
    }
    Value::Object(labels)
}

/// Classes with an `efa-only` interface on the first card, and a type whose first card takes none: EC2 refuses what Karpenter launches.
const LAUNCHED_BY_KARPENTER_ALONE: [(&str, &str); 2] =
    [("interfaces-and-reserved-enis", "p6-b300.48xlarge"), ("interfaces-efa-only", "p6-b300.48xlarge")];

pub(super) fn compare(path: &Path) -> Result<Outcome, String> {
    let case = Case::read(path)?;
    let text = std::fs::read_to_string(path.with_extension("json")).map_err(|error| format!("no answer: {error}"))?;
    let expected: Value = serde_json::from_str(&text).map_err(|error| format!("no JSON: {error}"))?;
    let (stage, record) = Stage::refreshed(&case)?;
    if expected.get("error").is_some() {
        let refused = !record.problems.is_empty();
        return Ok(Outcome::of(if refused { Vec::new() } else { vec![format!("the class {} is ready", stem(path))] }));
    }
    if let Some(why) = refusal(&record) {
        return Ok(Outcome::Skipped(why));
    }
    if !record.problems.is_empty() {
        return Err(format!("the class is not ready: {}", record.problems.join("; ")));
    }
    let pool = NodePool {
        metadata: ObjectMeta { name: "default".to_owned(), ..ObjectMeta::default() },
        spec: pool_of(&case),
        ..NodePool::default()
    };
    let now = stage.simulation.world().now();
    stage.simulation.world().cluster.objects.create(pool, now);
    let snapshot = stage.snapshot().map_err(|error| error.to_string())?;
    let types = snapshot.catalog.get("default").ok_or("the NodePool has no types")?;
    let mut differences = Vec::new();
    let expected = expected.as_object().ok_or("the answer is no list of types")?;
    for (name, wanted) in expected.iter().filter(|(name, _)| types.iter().all(|each| each.name != **name)) {
        // A type for which the class has no image is left out here. Karpenter plans with it, and fails to launch it.
        if record.amis.iter().any(|ami| fits(ami, &wanted["requirements"])) {
            differences.push(format!("{name} is missing"));
        }
    }
    for instance_type in types.iter() {
        let Some(wanted) = expected.get(&instance_type.name) else {
            differences.push(format!("{} is no type of Karpenter's", instance_type.name));
            continue;
        };
        let mut differ = |what: &str, ours: Value, theirs: Value| {
            if ours != theirs {
                differences.push(format!("{} {what} {ours} and not {theirs}", instance_type.name));
            }
        };
        differ("capacity", amounts(&instance_type.capacity), wanted["capacity"].clone());
        differ("allocatable", amounts(&instance_type.allocatable()), without_negatives(&wanted["allocatable"]));
        let is_refused = LAUNCHED_BY_KARPENTER_ALONE.contains(&(stem(path).as_str(), instance_type.name.as_str()));
        let launchable = if is_refused { json!(false) } else { wanted["launchable"].clone() };
        differ("launchable", json!(instance_type.offerings.iter().any(|offering| offering.available)), launchable);
        if let Some(labels) = wanted.get("requirements") {
            differ("requirements", labels_of(&instance_type.requirements), without_empty_zone_ids(labels));
        }
    }
    Ok(Outcome::of(differences))
}

/// Whether an image serves a type with these labels.
fn fits(ami: &ResolvedAmi, labels: &Value) -> bool {
    ami.requirements.iter().all(|requirement| {
        let values = labels[&requirement.key].as_array();
        match requirement.operator {
            Operator::DoesNotExist => values.is_none(),
            Operator::Exists => values.is_some(),
            _ => values.into_iter().flatten().any(|value| requirement.values.iter().any(|wanted| value == wanted)),
        }
    })
}

fn pool_of(case: &Case) -> NodePoolSpec {
    let mut spec = NodePoolSpec::default();
    let class = &mut spec.template.spec.node_class_ref;
    (class.group, class.kind, class.name) = ("karpenter.k8s.aws".to_owned(), "EC2NodeClass".to_owned(), case.class.metadata.name.clone());
    spec
}
