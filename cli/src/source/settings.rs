//! The ConfigMap `plan-settings`, and the time of a decision.

use super::documents::Document;
use super::error::ReadError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use whittle_api::k8s::{ConfigMap, TopologySpreadConstraint};
use whittle_api::objective::{MACHINE_COST, Objective, machine_cost};
use whittle_api::scheduler_config::default_spread;
use whittle_model::scheduling::{MinValuesPolicy, PreferencePolicy};
use whittle_units::{Price, Timestamp};

/// The ConfigMap `plan-settings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub now: Timestamp,
    pub preferences: PreferencePolicy,
    pub min_values: MinValuesPolicy,
    /// Which plan is best among those that place the same number of pods.
    pub objective: Objective,
    /// The hourly cost of a machine in addition to its price and its volumes.
    pub machine_cost: Price,
    pub gates: BTreeMap<String, bool>,
    /// Spread constraints of pods that have none of their own.
    pub default_spread: Vec<TopologySpreadConstraint>,
}

/// The feature gate of expressions in the kubelet settings of node classes.
pub(super) const EXPRESSIONS: &str = "NodeClassCEL";

/// The feature gates on which a plan depends.
const GATES: [&str; 6] = ["CapacityBuffer", EXPRESSIONS, "NodeOverlay", "ReservedCapacity", "SpotToSpotConsolidation", "StaticCapacity"];

impl Settings {
    /// Feature gates that are set, and on which nothing depends here: misspelt, or of a part of Karpenter that plans do without.
    pub(super) fn unheeded_gates(&self) -> Vec<String> {
        let unknown = self.gates.keys().filter(|name| !GATES.contains(&name.as_str()));
        unknown.map(|name| format!("feature gate {name:?} of plan-settings: write one of {}", GATES.join(", "))).collect()
    }

    /// Whether a feature gate is on.
    #[must_use]
    pub fn gate(&self, name: &str, default: bool) -> bool {
        self.gates.get(name).copied().unwrap_or(default)
    }
}

/// The time of a decision.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// This time, regardless of the manifests.
    At(Timestamp),
    /// The time in `plan-settings`, or else this one.
    Default(Timestamp),
}

/// The time of golden cases that set none.
const DEFAULT_TIME: &str = "2026-01-01T00:00:00Z";

impl When {
    /// The default of golden cases.
    #[must_use]
    pub fn golden_default() -> Self {
        Self::Default(DEFAULT_TIME.parse().expect("a literal time"))
    }
}

/// What the ConfigMap may say.
const KEYS: &[&str] = &["now", "preferencePolicy", "minValuesPolicy", "objective", "machineCost", "schedulerConfig", "featureGates"];

/// The name of the ConfigMap.
pub(crate) const CONFIG_MAP: &str = "plan-settings";

/// What is wrong with the settings of a ConfigMap.
pub(crate) fn fault(map: &ConfigMap) -> Option<String> {
    let data: Map<String, Value> = map.data.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    of_data(&data, When::golden_default()).err().map(|error| error.to_string())
}

/// Reads the ConfigMap among the documents; without it all settings have their defaults.
pub(super) fn settings(documents: &[Document], when: When) -> Result<Settings, ReadError> {
    let found = documents.iter().find(|document| document.kind() == "ConfigMap" && document.name() == CONFIG_MAP);
    of_data(found.and_then(|document| document.value.get("data")).and_then(Value::as_object).unwrap_or(&Map::new()), when)
}

/// The settings that the data of the ConfigMap state.
fn of_data(data: &Map<String, Value>, when: When) -> Result<Settings, ReadError> {
    let (When::At(now) | When::Default(now)) = when;
    let mut out = Settings {
        now,
        preferences: PreferencePolicy::Respect,
        min_values: MinValuesPolicy::Strict,
        objective: Objective::default(),
        machine_cost: MACHINE_COST,
        gates: BTreeMap::new(),
        default_spread: Vec::new(),
    };
    if let Some(key) = data.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(ReadError::UnknownSetting { key: key.clone(), known: KEYS });
    }
    let text = |key: &str| data.get(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    let wrong = |key, value: String, remedy| ReadError::Setting { key, value, remedy };
    if let Some(now) = text("now").filter(|_| matches!(when, When::Default(_))) {
        out.now = now.parse().map_err(|_| wrong("now", now, "write a time such as 2026-01-01T00:00:00Z"))?;
    }
    if let Some(policy) = text("preferencePolicy") {
        out.preferences = match policy.as_str() {
            "Respect" => PreferencePolicy::Respect,
            "Ignore" => PreferencePolicy::Ignore,
            _ => return Err(wrong("preferencePolicy", policy, "use Respect or Ignore")),
        };
    }
    if let Some(policy) = text("minValuesPolicy") {
        out.min_values = match policy.as_str() {
            "Strict" => MinValuesPolicy::Strict,
            "BestEffort" => MinValuesPolicy::BestEffort,
            _ => return Err(wrong("minValuesPolicy", policy, "use Strict or BestEffort")),
        };
    }
    if let Some(word) = text("objective") {
        out.objective = word.parse().map_err(|_| wrong("objective", word, "use cheapest, balanced or fewest"))?;
    }
    if let Some(cost) = text("machineCost") {
        out.machine_cost = machine_cost(&cost).map_err(|_| wrong("machineCost", cost, "write dollars per hour, such as 0.05"))?;
    }
    if let Some(config) = text("schedulerConfig") {
        out.default_spread = default_spread(&config)?;
    }
    for gate in text("featureGates").unwrap_or_default().split(',').map(str::trim).filter(|g| !g.is_empty()) {
        let (name, value) = gate.split_once('=').unwrap_or((gate, ""));
        let on = value.trim().parse().map_err(|_| wrong("featureGates", gate.to_owned(), "write Name=true or Name=false"))?;
        out.gates.insert(name.trim().to_owned(), on);
    }
    Ok(out)
}
