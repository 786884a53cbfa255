//! Global settings of older Karpenter installations: the ConfigMap `karpenter-global-settings`, Helm values in the layouts of
//! several charts, and environment variables. All are read into one type (api 15.4).

use crate::duration::GoDuration;
use crate::k8s::ConfigMap;
use crate::schema::differing_letters;
use crate::words;
use crate::yaml::{self, Content, Node};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the ConfigMap that the old controller read.
pub const CONFIG_MAP: &str = "karpenter-global-settings";

/// The settings of an installation; absent ones have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalSettings {
    pub cluster_name: Option<String>,
    pub cluster_endpoint: Option<String>,
    /// In base64.
    pub cluster_ca_bundle: Option<String>,
    pub interruption_queue: Option<String>,
    /// For node classes converted from templates without a profile.
    pub default_instance_profile: Option<String>,
    pub isolated_vpc: Option<bool>,
    /// Share of memory that the hypervisor takes, in millionths (0.075 is 75 000).
    pub vm_memory_overhead_ppm: Option<u32>,
    pub reserved_enis: Option<u32>,
    pub batch_max_duration: Option<GoDuration>,
    pub batch_idle_duration: Option<GoDuration>,
    /// Gates by their name in the environment, such as `Drift`.
    pub feature_gates: BTreeMap<String, bool>,
}

/// Settings, and the keys that are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub settings: GlobalSettings,
    pub ignored: Vec<Ignored>,
}

/// An ignored key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is not used: {why}{}", .meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default())]
pub struct Ignored {
    pub key: String,
    pub why: &'static str,
    /// The setting that was probably meant by one that there is not.
    pub meant: Option<&'static str>,
}

/// A setting that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}, {key}: {message}")]
pub struct SettingsError {
    /// The file, the ConfigMap or the environment.
    pub origin: String,
    pub key: String,
    pub message: String,
}

/// Reads the ConfigMap.
///
/// # Errors
/// All values that cannot be parsed.
pub fn from_config_map(map: &ConfigMap) -> Result<Read, Vec<SettingsError>> {
    let origin = format!("ConfigMap {:?}", map.metadata.key());
    collect(&origin, map.data.iter().map(|(key, value)| (key.clone(), value.clone())))
}

/// Reads Helm values: `settings.aws.*` and `settings.*`, or the older layout with the same keys at the top; and the variables of
/// `controller.env` and `controller.envFrom`, the only places for settings that the chart has no key for, such as `SCHEDULER_CONFIG`.
/// `maps` are the ConfigMaps that are known, of those that `controller.envFrom` may name.
///
/// # Errors
/// Text that is not YAML, and all values that cannot be parsed.
pub fn from_helm_values(file: &str, text: &str, maps: &[&ConfigMap]) -> Result<Read, Vec<SettingsError>> {
    let fail = |message: String| vec![SettingsError { origin: file.to_owned(), key: "values".to_owned(), message }];
    let pairs = pairs(text).map_err(|error| fail(format!("line {}: this is no YAML: {error}", error.mark.line)))?;
    let mut pairs = expanded(pairs, maps);
    // Of two variables with one name the last counts.
    pairs.sort_by_key(|(key, _)| rank(key));
    collect(file, pairs.into_iter())
}

/// The names of the ConfigMaps whose keys are variables of the controller, by Helm values. None by a text that is not YAML.
pub fn maps_of_helm_values(text: &str) -> BTreeSet<String> {
    let pairs = pairs(text).unwrap_or_default();
    pairs.iter().filter_map(|(key, _)| named_map(key)).map(str::to_owned).collect()
}

/// Reads environment variables; unknown ones are skipped silently.
///
/// # Errors
/// All values that cannot be parsed.
pub fn from_environment(variables: &BTreeMap<String, String>) -> Result<Read, Vec<SettingsError>> {
    let ours = variables.iter().filter(|(key, _)| ENVIRONMENT.iter().any(|(name, _)| name == key));
    collect("environment", ours.map(|(key, value)| (key.clone(), value.clone())))
}

/// The setting of a key.
#[derive(Clone, Copy)]
enum Meaning {
    ClusterName,
    ClusterEndpoint,
    ClusterCaBundle,
    InterruptionQueue,
    DefaultInstanceProfile,
    IsolatedVpc,
    VmMemoryOverhead,
    ReservedEnis,
    BatchMax,
    BatchIdle,
    /// One gate, by its name.
    Gate(&'static str),
    /// All gates as a list, `Drift=true,…`.
    Gates,
    /// Whether pods with resourceClaims are ignored; Whittle always ignores them. With the remark for the value `false`.
    IgnoreDra(&'static str),
    Nothing(&'static str),
}

const ENVIRONMENT: &[(&str, Meaning)] = &[
    ("CLUSTER_NAME", Meaning::ClusterName),
    ("CLUSTER_ENDPOINT", Meaning::ClusterEndpoint),
    ("CLUSTER_CA_BUNDLE", Meaning::ClusterCaBundle),
    ("INTERRUPTION_QUEUE", Meaning::InterruptionQueue),
    ("ISOLATED_VPC", Meaning::IsolatedVpc),
    ("VM_MEMORY_OVERHEAD_PERCENT", Meaning::VmMemoryOverhead),
    ("RESERVED_ENIS", Meaning::ReservedEnis),
    ("BATCH_MAX_DURATION", Meaning::BatchMax),
    ("BATCH_IDLE_DURATION", Meaning::BatchIdle),
    ("FEATURE_GATES", Meaning::Gates),
    ("PREFERENCE_POLICY", Meaning::Nothing(PREFERENCE_POLICY)),
    ("MIN_VALUES_POLICY", Meaning::Nothing(MIN_VALUES_POLICY)),
    ("SCHEDULER_CONFIG", Meaning::Nothing("set the stack's parameter SchedulerConfig instead")),
    ("ENABLE_ZONAL_SHIFT", Meaning::Nothing(ZONAL_SHIFT)),
    ("DISABLE_DRY_RUN", Meaning::Nothing(DRY_RUNS)),
    ("AMI_REFRESH_INTERVAL", Meaning::Nothing(CLASS_REFRESH)),
    ("SUBNET_REFRESH_INTERVAL", Meaning::Nothing(CLASS_REFRESH)),
    ("AWS_FEATURE_GATES", Meaning::Nothing(EXPRESSIONS)),
    ("IGNORE_DRA_REQUESTS", Meaning::IgnoreDra(DRA_PLANNED)),
    ("LOG_LEVEL", Meaning::Nothing(LOG_LEVEL)),
];

/// Where the values of a chart have variables of the controller's environment: a list of names and values.
const VARIABLES: &str = "controller.env";
/// What the key of a variable ends with whose value is in another object.
const ELSEWHERE: &str = "valueFrom";
/// Where the values of a chart name the objects whose keys are variables of the controller's environment.
const SOURCES: &str = "controller.envFrom";
const OF_MAP: &str = "configMapRef";
const OF_SECRET: &str = "secretRef";
/// Variables that the chart sets in any case, to its own defaults at least: they come before those of other objects.
const OF_CHART: &[&str] = &[
    "CLUSTER_NAME",
    "FEATURE_GATES",
    "AWS_FEATURE_GATES",
    "BATCH_MAX_DURATION",
    "BATCH_IDLE_DURATION",
    "PREFERENCE_POLICY",
    "MIN_VALUES_POLICY",
    "VM_MEMORY_OVERHEAD_PERCENT",
    "RESERVED_ENIS",
    "IGNORE_DRA_REQUESTS",
    "AMI_REFRESH_INTERVAL",
    "SUBNET_REFRESH_INTERVAL",
    "LOG_LEVEL",
];

/// Keys of the ConfigMap and the charts, without `settings.`, and for `clusterName` also without `aws.`.
const KEYS: &[(&str, Meaning)] = &[
    ("clusterName", Meaning::ClusterName),
    ("clusterEndpoint", Meaning::ClusterEndpoint),
    ("clusterCABundle", Meaning::ClusterCaBundle),
    ("interruptionQueueName", Meaning::InterruptionQueue),
    ("interruptionQueue", Meaning::InterruptionQueue),
    ("defaultInstanceProfile", Meaning::DefaultInstanceProfile),
    ("isolatedVPC", Meaning::IsolatedVpc),
    ("vmMemoryOverheadPercent", Meaning::VmMemoryOverhead),
    ("reservedENIs", Meaning::ReservedEnis),
    ("batchMaxDuration", Meaning::BatchMax),
    ("batchIdleDuration", Meaning::BatchIdle),
    ("featureGates.driftEnabled", Meaning::Gate("Drift")),
    ("featureGates.drift", Meaning::Gate("Drift")),
    ("featureGates.spotToSpotConsolidation", Meaning::Gate("SpotToSpotConsolidation")),
    ("assumeRoleARN", Meaning::Nothing("functions run with roles of their own, in the account of the cluster")),
    ("assumeRoleDuration", Meaning::Nothing("functions run with roles of their own, in the account of the cluster")),
    ("enablePodENI", Meaning::Nothing("pod network interfaces are always counted")),
    ("enableENILimitedPodDensity", Meaning::Nothing("the pods that interfaces allow are always counted")),
    ("preferencePolicy", Meaning::Nothing(PREFERENCE_POLICY)),
    ("minValuesPolicy", Meaning::Nothing(MIN_VALUES_POLICY)),
    ("enableZonalShift", Meaning::Nothing(ZONAL_SHIFT)),
    ("disableDryRun", Meaning::Nothing(DRY_RUNS)),
    ("amiRefreshInterval", Meaning::Nothing(CLASS_REFRESH)),
    ("subnetRefreshInterval", Meaning::Nothing(CLASS_REFRESH)),
    ("ignoreDRARequests", Meaning::IgnoreDra(DRA_LEFT_OUT)),
    ("logLevel", Meaning::Nothing(LOG_LEVEL)),
    ("featureGates.nodeRepair", Meaning::Nothing("set the stack's parameter NodeRepair instead")),
    ("featureGates.staticCapacity", Meaning::Nothing("set the stack's parameter StaticCapacity instead, which is true by default")),
    ("featureGates.reservedCapacity", Meaning::Nothing("capacity reservations that node classes select are always used")),
    ("featureGates.nodeOverlay", Meaning::Nothing("NodeOverlays always count")),
    ("featureGates.capacityBuffer", Meaning::Nothing("CapacityBuffers always count")),
    ("awsFeatureGates.nodeClassCEL", Meaning::Nothing(EXPRESSIONS)),
];

// Which parameter of the stack says what a setting of today's Karpenter says (docs/parameters.md).
const PREFERENCE_POLICY: &str = "set the stack's parameter PreferencePolicy instead";
const MIN_VALUES_POLICY: &str = "set the stack's parameter MinValuesPolicy instead";
const ZONAL_SHIFT: &str = "set the stack's parameter ZonalShift instead";
const DRY_RUNS: &str = "set the stack's parameter NodeClassDryRuns instead, which says the opposite";
const CLASS_REFRESH: &str = "set the stack's parameter ClassRefreshMinutes instead";
const EXPRESSIONS: &str = "set the stack's parameter NodeClassExpressions instead";
const LOG_LEVEL: &str = "set the stack's parameter LogLevel instead";

const DRA_IGNORED: &str = "pods with resourceClaims get no node, as by Karpenter's default";
const DRA_PLANNED: &str = "pods with resourceClaims get no node here, while Karpenter launches nodes for them by this setting: keep a node \
                           group for these pods, or ask for the devices as extended resources";
/// A template of Helm takes `false` for a value that is not set; the text is one that is.
const DRA_LEFT_OUT: &str = "pods with resourceClaims get no node here. Nor do they from Karpenter, whose chart passes false on only \
                            as the text \"false\": if yours is, keep a node group for these pods, or ask for the devices as extended \
                            resources";
const VALUE_ELSEWHERE: &str = "its value is in another object: set the stack's parameter that docs/parameters.md names for it, if any";
const MAP_ELSEWHERE: &str = "its keys are variables of Karpenter, and there is not exactly one ConfigMap of this name among the manifests: \
                             name its manifest with -f";
const SECRET_ELSEWHERE: &str = "its keys are variables of Karpenter, and Secrets are not read: set the stack's parameters that \
                                docs/parameters.md names for them, if any";
const SET_BY_CHART: &str = "Karpenter's chart sets this variable itself, which counts";
const NO_CONTROLLER: &str = "there is no controller in the cluster that it could apply to";

fn meaning(key: &str) -> Meaning {
    let find = |table: &[(&str, Meaning)], key: &str| table.iter().find(|(name, _)| *name == key).map(|(_, meaning)| *meaning);
    if let Some(variable) = below(key, VARIABLES) {
        let elsewhere = variable.strip_suffix(ELSEWHERE).and_then(|rest| rest.strip_suffix('.'));
        return match find(ENVIRONMENT, elsewhere.unwrap_or(variable)) {
            None => Meaning::Nothing(NO_CONTROLLER),
            Some(Meaning::Nothing(why)) => Meaning::Nothing(why),
            Some(_) if elsewhere.is_some() => Meaning::Nothing(VALUE_ELSEWHERE),
            Some(meaning) => meaning,
        };
    }
    if let Some(source) = below(key, SOURCES) {
        return match source.split_once('.') {
            Some((OF_MAP, _)) => Meaning::Nothing(MAP_ELSEWHERE),
            Some((OF_SECRET, _)) => Meaning::Nothing(SECRET_ELSEWHERE),
            // The name of a ConfigMap may have dots, and that of a setting has none.
            _ => match source.rsplit('.').next().unwrap_or(source) {
                variable if OF_CHART.contains(&variable) => Meaning::Nothing(SET_BY_CHART),
                variable => find(ENVIRONMENT, variable).unwrap_or(Meaning::Nothing(NO_CONTROLLER)),
            },
        };
    }
    let short = key.strip_prefix("settings.").unwrap_or(key);
    let short = short.strip_prefix("aws.").unwrap_or(short);
    if short.starts_with("tags.") || short == "tags" {
        return Meaning::Nothing("write the tags into each node class");
    }
    find(ENVIRONMENT, key).or_else(|| find(KEYS, short)).unwrap_or(Meaning::Nothing(NO_CONTROLLER))
}

/// The setting that an unknown key is near to. Other values of a chart are many, and none of our business.
fn near(key: &str) -> Option<&'static str> {
    let short = key.strip_prefix("settings.")?;
    let short = short.strip_prefix("aws.").unwrap_or(short);
    let lengths_differ = |name: &str| name.chars().count().abs_diff(short.chars().count());
    KEYS.iter().map(|(name, _)| *name).find(|name| lengths_differ(name) <= 1 && differing_letters(name, short) <= 2)
}

fn collect(origin: &str, pairs: impl Iterator<Item = (String, String)>) -> Result<Read, Vec<SettingsError>> {
    let (mut read, mut errors) = (Read::default(), Vec::new());
    for (key, value) in pairs {
        let meaning = meaning(&key);
        let key = words::printable(&key).into_owned();
        let unused = match meaning {
            Meaning::Nothing(why) => Some(why),
            Meaning::IgnoreDra(told) if value.trim() == "false" => Some(told),
            Meaning::IgnoreDra(_) => Some(DRA_IGNORED),
            _ => None,
        };
        if let Some(why) = unused {
            let meant = if why == NO_CONTROLLER { near(&key) } else { None };
            read.ignored.push(Ignored { key, why, meant });
        } else if let Err(message) = assign(&mut read.settings, meaning, value.trim()) {
            errors.push(SettingsError { origin: origin.to_owned(), key, message });
        }
    }
    if errors.is_empty() { Ok(read) } else { Err(errors) }
}

fn assign(settings: &mut GlobalSettings, meaning: Meaning, value: &str) -> Result<(), String> {
    // The charts write empty strings for unset values.
    if value.is_empty() {
        return Ok(());
    }
    let text = || Some(value.to_owned());
    match meaning {
        Meaning::ClusterName => settings.cluster_name = text(),
        Meaning::ClusterEndpoint => settings.cluster_endpoint = text(),
        Meaning::ClusterCaBundle => settings.cluster_ca_bundle = text(),
        Meaning::InterruptionQueue => settings.interruption_queue = text(),
        Meaning::DefaultInstanceProfile => settings.default_instance_profile = text(),
        Meaning::IsolatedVpc => settings.isolated_vpc = Some(switch(value)?),
        Meaning::VmMemoryOverhead => settings.vm_memory_overhead_ppm = Some(share(value)?),
        Meaning::ReservedEnis => {
            settings.reserved_enis = Some(value.parse().map_err(|_| format!("{value:?} is no count: write 0, 1, …"))?);
        }
        Meaning::BatchMax => settings.batch_max_duration = Some(value.parse().map_err(|error| format!("{error}"))?),
        Meaning::BatchIdle => settings.batch_idle_duration = Some(value.parse().map_err(|error| format!("{error}"))?),
        Meaning::Gate(name) => {
            settings.feature_gates.insert(name.to_owned(), switch(value)?);
        }
        Meaning::Gates => {
            // It is all of them: a gate that it leaves out has its default, whatever the chart's own settings say.
            settings.feature_gates.clear();
            for gate in value.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
                let (name, on) = gate.split_once('=').ok_or_else(|| format!("{gate:?} is no gate: write Name=true"))?;
                settings.feature_gates.insert(name.trim().to_owned(), switch(on.trim())?);
            }
        }
        Meaning::IgnoreDra(_) | Meaning::Nothing(_) => {}
    }
    Ok(())
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{value:?} is neither true nor false")),
    }
}

/// Parses a share from 0 to 1 as millionths. The error says what to write instead.
pub fn share(value: &str) -> Result<u32, String> {
    match value.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok((share * 1e6).round() as u32),
        _ => Err(format!("{value:?} is no share: write a number from 0 to 1, such as 0.075")),
    }
}

/// The dotted paths of Helm values with what they say.
fn pairs(text: &str) -> Result<Vec<(String, String)>, yaml::YamlError> {
    let mut pairs = Vec::new();
    for document in &yaml::documents(text)? {
        flatten(document, "", &mut pairs);
    }
    Ok(pairs)
}

/// The rest of a key below a path.
fn below<'k>(key: &'k str, path: &str) -> Option<&'k str> {
    key.strip_prefix(path)?.strip_prefix('.')
}

/// In which order variables count: those of the container come before those of other objects, and `controller.env`, which the chart
/// writes behind its own variables, before these.
fn rank(key: &str) -> u8 {
    if below(key, SOURCES).is_some() {
        0
    } else if below(key, VARIABLES).is_some() {
        2
    } else {
        1
    }
}

/// The ConfigMap that a key names.
fn named_map(key: &str) -> Option<&str> {
    below(below(key, SOURCES)?, OF_MAP)
}

/// The pairs, with the keys of known ConfigMaps instead of the names of these.
fn expanded(pairs: Vec<(String, String)>, maps: &[&ConfigMap]) -> Vec<(String, String)> {
    let mut out = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let mut named = maps.iter().filter(|map| named_map(&key) == Some(map.metadata.name.as_str()));
        match (named.next(), named.next()) {
            // The value of such a key is a prefix of the variables.
            (Some(map), None) => {
                let variables =
                    map.data.iter().map(|(name, said)| (format!("{SOURCES}.{}.{value}{name}", map.metadata.name), said.clone()));
                out.extend(variables);
            }
            // Those of one name in several namespaces: which of them is Karpenter's is not known.
            _ => out.push((key, value)),
        }
    }
    out
}

/// Adds the leaves of a tree with their dotted paths.
fn flatten(node: &Node, path: &str, pairs: &mut Vec<(String, String)>) {
    match &node.content {
        Content::Scalar(scalar) if !node.is_null() => pairs.push((path.to_owned(), scalar.as_key())),
        Content::Scalar(_) => {}
        Content::List(items) if path == VARIABLES => pairs.extend(items.iter().filter_map(variable)),
        Content::List(items) if path == SOURCES => pairs.extend(items.iter().filter_map(source)),
        // No other setting is a list; its key is named once.
        Content::List(_) => pairs.push((path.to_owned(), String::new())),
        Content::Map(entries) => {
            for entry in entries {
                let below = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                flatten(&entry.value, &below, pairs);
            }
        }
    }
}

/// A variable of the controller's environment and its value; one without a name is none.
fn variable(entry: &Node) -> Option<(String, String)> {
    let key = format!("{VARIABLES}.{}", entry.get("name")?.text()?);
    match entry.get("value").filter(|value| !value.is_null()).map(|value| &value.content) {
        Some(Content::Scalar(scalar)) => Some((key, scalar.as_key())),
        _ if entry.get(ELSEWHERE).is_some() => Some((format!("{key}.{ELSEWHERE}"), String::new())),
        _ => Some((key, String::new())),
    }
}

/// An object whose keys are variables, and what each of these begins with.
fn source(entry: &Node) -> Option<(String, String)> {
    let named = |kind: &'static str| Some((kind, entry.get(kind)?.get("name")?.text()?));
    let (kind, name) = named(OF_MAP).or_else(|| named(OF_SECRET))?;
    let prefix = entry.get("prefix").and_then(Node::text).unwrap_or_default();
    Some((format!("{SOURCES}.{kind}.{name}"), prefix.to_owned()))
}

#[cfg(test)]
mod tests;
