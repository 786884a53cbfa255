//! Hashes as `refresh` writes them on a class, and as a plan reads them from a pool.

use super::{Case, Outcome, Stage};
use serde_json::{Value, json};
use std::path::Path;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::labels;
use whittle_ports::error_chain;

pub(super) fn compare(path: &Path) -> Result<Outcome, String> {
    let name = super::stem(path);
    let all = std::fs::read_to_string(path.with_file_name("expected.json")).map_err(|error| format!("no answers: {error}"))?;
    let all: Value = serde_json::from_str(&all).map_err(|error| format!("no JSON: {error}"))?;
    let expected = all.get(&name).ok_or("no answer")?;
    // Karpenter's main branch counts, where its release differs.
    let wanted = expected.get("main").filter(|main| main.is_object()).unwrap_or(expected);
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| error.to_string())?;
    let object = documents.into_iter().find(|document| !document.is_null()).ok_or("no object")?;
    let annotations = if object["kind"] == "NodePool" { of_pool(object)? } else { of_class(object, expected)? };
    let (hash, version) = annotations;
    let mut differences = Vec::new();
    for (what, ours, theirs) in [("hash", hash, &wanted["hash"]), ("version", version, &wanted["version"])] {
        if ours.as_deref() != theirs.as_str() {
            differences.push(format!("{what} {} and not {theirs}", ours.unwrap_or_default()));
        }
    }
    Ok(Outcome::of(differences))
}

/// Hash and version.
type Annotations = (Option<String>, Option<String>);

fn of_class(object: Value, expected: &Value) -> Result<Annotations, String> {
    let class: Ec2NodeClass = serde_json::from_value(object).map_err(|error| error.to_string())?;
    let stage = Stage::new(&Case::of_class(class, expected["caBundle"].as_str().unwrap_or_default()));
    stage.refresh().map_err(|error| format!("refresh: {}", error_chain(&error)))?;
    let class = stage.class();
    let annotation = |key: &str| class.metadata.annotation(key).map(str::to_owned);
    Ok((annotation(labels::NODE_CLASS_HASH), annotation(labels::NODE_CLASS_HASH_VERSION)))
}

fn of_pool(object: Value) -> Result<Annotations, String> {
    let pool: NodePool = serde_json::from_value(object).map_err(|error| error.to_string())?;
    let stage = Stage::new(&Case::of_class(Ec2NodeClass::default(), ""));
    let name = pool.metadata.name.clone();
    let now = stage.simulation.world().now();
    stage.simulation.world().cluster.objects.create(pool, now);
    let snapshot = stage.snapshot().map_err(|error| error.to_string())?;
    let pool = snapshot.objects.node_pools.iter().find(|pool| pool.metadata.name == name).ok_or("a plan does not see the pool")?;
    let annotation = |key: &str| pool.metadata.annotation(key).map(str::to_owned);
    Ok((annotation(labels::NODE_POOL_HASH), annotation(labels::NODE_POOL_HASH_VERSION)))
}

impl Case {
    /// A case of a class alone, in a cluster with this certificate.
    fn of_class(mut class: Ec2NodeClass, certificate: &str) -> Self {
        if class.metadata.name.is_empty() {
            class.metadata.name = "default".to_owned();
        }
        let cluster = json!({"name": "demo", "endpoint": "https://demo", "caBundle": certificate, "serviceCIDR": "10.100.0.0/16"});
        Self::without_files(class, json!({"cluster": cluster, "region": "us-east-1", "zones": ["us-east-1a"]}))
    }
}
