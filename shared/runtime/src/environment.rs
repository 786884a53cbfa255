//! The environment variables that a deployment sets, each documented here and nowhere else.

use whittle_api::objective::{self, MachineCostError, Objective, ObjectiveError, machine_cost};
use whittle_api::scheduler_config::{SchedulerConfigError, default_spread};
use whittle_api::settings::share;
use whittle_aws::{Isolation, QueueUrls};
use whittle_ports::metrics::{self, Level};
use whittle_ports::{Batching, Expressions, Mode, NamePatterns, NamePatternsError, Scheduling, Settings, names_of};
use whittle_units::{ClusterName, SignedDuration};

/// Name of the DynamoDB table.
pub const TABLE: &str = "WHITTLE_TABLE";
/// Names of the EKS clusters that the deployment serves, separated by commas.
pub const CLUSTERS: &str = "WHITTLE_CLUSTERS";
/// `active`, or `shadow` to decide and record without changing anything. Active when unset.
pub const MODE: &str = "WHITTLE_MODE";
/// URL of the FIFO queue that wakes `schedule`.
pub const QUEUE_PLAN: &str = "WHITTLE_QUEUE_PLAN";
/// Delivery delay of that queue in seconds. Optional; 0 when unset, which merges no doorbells.
pub(crate) const PLAN_DELAY_SECONDS: &str = "WHITTLE_PLAN_DELAY_SECONDS";
/// Seconds that a plan waits at most while pods arrive. Optional; 0 when unset.
pub(crate) const PLAN_DELAY_MAX_SECONDS: &str = "WHITTLE_PLAN_DELAY_MAX_SECONDS";
/// URL of the FIFO queue that wakes `consolidate`.
pub const QUEUE_CONSOLIDATE: &str = "WHITTLE_QUEUE_CONSOLIDATE";
/// URL of the queue that wakes `launch`.
pub const QUEUE_LAUNCH: &str = "WHITTLE_QUEUE_LAUNCH";
/// URL of the queue that wakes `terminate`.
pub const QUEUE_TERMINATE: &str = "WHITTLE_QUEUE_TERMINATE";
/// URL of the queue that wakes `register`.
pub const QUEUE_NODES: &str = "WHITTLE_QUEUE_NODES";
/// URL of the queue that wakes `refresh`.
pub const QUEUE_REFRESH: &str = "WHITTLE_QUEUE_REFRESH";
/// URL of the queue that wakes `sweep`.
pub const QUEUE_SWEEP: &str = "WHITTLE_QUEUE_SWEEP";
/// Role for node classes converted from alpha templates that name none. Optional.
pub const DEFAULT_NODE_ROLE: &str = "WHITTLE_DEFAULT_NODE_ROLE";
/// Instance profile for such classes; takes precedence over the role. Optional.
pub const DEFAULT_INSTANCE_PROFILE: &str = "WHITTLE_DEFAULT_INSTANCE_PROFILE";
/// Name of the SSM parameter with the secret from which the relay's paths are derived. Optional; without it only signed
/// requests are accepted.
pub const RELAY_SECRET: &str = "WHITTLE_RELAY_SECRET";
/// How the relay's URL authenticates callers: `NONE` by the secret, `AWS_IAM` by signature alone. `NONE` when unset.
pub(crate) const RELAY_AUTH: &str = "WHITTLE_RELAY_AUTH";
/// Roles whose signed requests are accepted for a cluster, as in `prod=relay-prod;dev=relay-dev-*`. Optional; any role when unset.
pub(crate) const RELAY_CALLERS: &str = "WHITTLE_RELAY_CALLERS";
/// Names of the roles that nodes may have, separated by commas, with `*` and `?`. Optional; only IAM restricts them when unset.
pub(crate) const NODE_ROLES: &str = "WHITTLE_NODE_ROLES";
/// The same for single clusters, as in `prod=web-*,batch;dev=dev-nodes`. Optional.
pub(crate) const CLUSTER_NODE_ROLES: &str = "WHITTLE_CLUSTER_NODE_ROLES";
/// `true` where services without an endpoint in the VPC (IAM, the price list) cannot be reached. Optional.
pub(crate) const ISOLATED_VPC: &str = "WHITTLE_ISOLATED_VPC";
/// `true` lets spot nodes be replaced by cheaper spot nodes. Optional.
pub const SPOT_TO_SPOT: &str = "WHITTLE_SPOT_TO_SPOT";
/// `true` terminates a node on a rebalance recommendation. Optional.
pub const ACT_ON_REBALANCE: &str = "WHITTLE_ACT_ON_REBALANCE";
/// `true` replaces nodes that have reported themselves unhealthy for too long. Optional.
pub const NODE_REPAIR: &str = "WHITTLE_NODE_REPAIR";
/// `true` avoids the zones that a zonal shift moves traffic away from. Optional.
pub(crate) const ZONAL_SHIFT: &str = "WHITTLE_ZONAL_SHIFT";
/// `full` makes metrics of everything that is measured, `basic` of what alarms need. Optional.
pub(crate) const METRICS: &str = "WHITTLE_METRICS";
/// CloudWatch's namespace of the metrics, which the stack's alarms ask. Optional; `Whittle` when unset.
pub(crate) const METRICS_NAMESPACE: &str = "WHITTLE_METRICS_NAMESPACE";
/// Instance types and families whose offerings have gauges, separated by commas. Optional.
pub(crate) const OFFERING_METRICS: &str = "WHITTLE_OFFERING_METRICS";
/// `false` ignores NodePools with `replicas`; `true` when unset. Optional.
pub(crate) const STATIC_CAPACITY: &str = "WHITTLE_STATIC_CAPACITY";
/// Network interfaces that pod density leaves out, for those that other software attaches. Optional; 0 when unset.
pub(crate) const RESERVED_ENIS: &str = "WHITTLE_RESERVED_ENIS";
/// Share of a type's memory that its hypervisor takes, until nodes of it have been measured. Optional; 0.075 when unset.
pub(crate) const VM_MEMORY_OVERHEAD_PERCENT: &str = "WHITTLE_VM_MEMORY_OVERHEAD_PERCENT";
/// `true` lets node classes compute `maxPods` and reserved resources by expressions. Optional.
pub(crate) const NODE_CLASS_EXPRESSIONS: &str = "WHITTLE_NODE_CLASS_EXPRESSIONS";
/// `false` asks EC2 for no dry runs with node classes; `true` when unset. Optional.
pub(crate) const NODE_CLASS_DRY_RUNS: &str = "WHITTLE_NODE_CLASS_DRY_RUNS";
/// Minutes after which instance types, zones and on-demand prices are read again. Optional; 720 when unset.
pub(crate) const CATALOG_REFRESH_MINUTES: &str = "WHITTLE_CATALOG_REFRESH_MINUTES";
/// The same for spot prices. Optional; 5 when unset.
pub(crate) const SPOT_PRICE_REFRESH_MINUTES: &str = "WHITTLE_SPOT_PRICE_REFRESH_MINUTES";
/// `Ignore` gives pods' preferences no effect; `Respect` when unset.
pub const PREFERENCE_POLICY: &str = "WHITTLE_PREFERENCE_POLICY";
/// `BestEffort` lowers `minValues` that cannot be met; `Strict` when unset.
pub const MIN_VALUES_POLICY: &str = "WHITTLE_MIN_VALUES_POLICY";
/// Which plan is preferred: `cheapest`, `balanced` or `fewest`. Optional.
pub(crate) const OBJECTIVE: &str = "WHITTLE_OBJECTIVE";
/// What a machine costs besides its price and its volumes, in dollars per hour. Optional.
pub(crate) const MACHINE_COST: &str = "WHITTLE_MACHINE_COST";
/// Spread constraints of pods that have none of their own, in the format of Karpenter's `SCHEDULER_CONFIG`: YAML or JSON.
/// Optional.
pub(crate) const SCHEDULER_CONFIG: &str = "WHITTLE_SCHEDULER_CONFIG";

/// The environment of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    pub table: String,
    pub queues: QueueUrls,
    /// Name of the SSM parameter, not the secret itself; `None` where callers sign their requests.
    pub relay_secret_parameter: Option<String>,
    pub isolation: Isolation,
    /// All settings but the relay's secret, which has to be fetched.
    pub settings: Settings,
}

/// A variable that is missing or has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    #[error("{0} is not set: deploy the function with template.yaml, which sets it")]
    Missing(&'static str),
    #[error("{name} is {value:?}, which is not one of {allowed}")]
    Unknown { name: &'static str, value: String, allowed: String },
    #[error("{name} is {value:?}, which is not a whole number of seconds from 0 to 900")]
    NoSeconds { name: &'static str, value: String },
    #[error("{name} is {value:?}, which is not a whole number from {least} to {most}: correct the stack's parameter {parameter}")]
    NoCount { name: &'static str, value: String, least: u32, most: u32, parameter: &'static str },
    #[error("{name} cannot be used: {reason}; correct the stack's parameter VmMemoryOverheadPercent")]
    NoShare { name: &'static str, reason: String },
    #[error(
        "{name} is {value:?}: a namespace has up to {NAMESPACE_MAX} letters, digits, dots, hyphens, underscores, slashes and number signs, \
         begins with a letter or digit, and not with AWS/; correct the stack's parameter MetricsNamespace"
    )]
    NoNamespace { name: &'static str, value: String },
    #[error("WHITTLE_OBJECTIVE cannot be used")]
    Objective(#[from] ObjectiveError),
    #[error("WHITTLE_MACHINE_COST cannot be used")]
    MachineCost(#[from] MachineCostError),
    #[error("{name} cannot be used")]
    Names {
        name: &'static str,
        #[source]
        source: NamePatternsError,
    },
    #[error("WHITTLE_SCHEDULER_CONFIG cannot be used")]
    SchedulerConfig(#[source] SchedulerConfigError),
}

/// The longest delay of a queue.
const DELAY_SECONDS_MAX: u16 = 900;

fn seconds(name: &'static str, value: Option<String>) -> Result<SignedDuration, EnvironmentError> {
    let Some(value) = value else { return Ok(SignedDuration::ZERO) };
    match value.parse::<u16>() {
        Ok(seconds) if seconds <= DELAY_SECONDS_MAX => Ok(SignedDuration::from_secs(i64::from(seconds))),
        _ => Err(EnvironmentError::NoSeconds { name, value }),
    }
}

/// No machine has more interfaces.
const RESERVED_ENIS_MAX: u32 = 100;
/// Each part of the region's catalog is read at least twice a day, and at most every five minutes.
const CATALOG_REFRESH_MINUTES_RANGE: (u32, u32) = (5, 720);

/// A whole number within a range; `usual` when unset.
fn count(value: Option<String>, usual: u32, of: CountOf) -> Result<u32, EnvironmentError> {
    let CountOf { name, parameter, range: (least, most) } = of;
    let Some(value) = value else { return Ok(usual) };
    match value.parse::<u32>() {
        Ok(count) if (least..=most).contains(&count) => Ok(count),
        _ => Err(EnvironmentError::NoCount { name, value, least, most, parameter }),
    }
}

/// A variable that is a count, and the parameter of the stack that sets it.
struct CountOf {
    name: &'static str,
    parameter: &'static str,
    range: (u32, u32),
}

const RESERVED_ENIS_COUNT: CountOf = CountOf { name: RESERVED_ENIS, parameter: "ReservedEnis", range: (0, RESERVED_ENIS_MAX) };
const CATALOG_REFRESH_COUNT: CountOf =
    CountOf { name: CATALOG_REFRESH_MINUTES, parameter: "CatalogRefreshMinutes", range: CATALOG_REFRESH_MINUTES_RANGE };
const SPOT_PRICE_REFRESH_COUNT: CountOf =
    CountOf { name: SPOT_PRICE_REFRESH_MINUTES, parameter: "SpotPriceRefreshMinutes", range: CATALOG_REFRESH_MINUTES_RANGE };

/// A duration in whole minutes; `usual` when unset.
fn minutes(value: Option<String>, usual: SignedDuration, of: CountOf) -> Result<SignedDuration, EnvironmentError> {
    let usual = u32::try_from(usual.as_mins()).unwrap_or(of.range.1);
    Ok(SignedDuration::from_mins(i64::from(count(value, usual, of)?)))
}

/// CloudWatch's limit for the length of a namespace.
const NAMESPACE_MAX: usize = 255;

/// A namespace that can be in quotes in the alarms' queries. CloudWatch takes none of its own, which begin with `AWS/`.
fn namespace(value: Option<String>) -> Result<String, EnvironmentError> {
    let Some(value) = value else { return Ok(metrics::NAMESPACE.to_owned()) };
    let is_taken = value.chars().all(|letter| letter.is_ascii_alphanumeric() || "._/#-".contains(letter));
    let begins_well = value.starts_with(|first: char| first.is_ascii_alphanumeric()) && !value.starts_with("AWS/");
    if is_taken && begins_well && value.len() <= NAMESPACE_MAX {
        Ok(value)
    } else {
        Err(EnvironmentError::NoNamespace { name: METRICS_NAMESPACE, value })
    }
}

/// The variables, by a function that gives their values. An empty one counts as unset, because CloudFormation sets an empty parameter that
/// way.
struct Variables<G>(G);

impl<G: Fn(&str) -> Option<String>> Variables<G> {
    fn optional(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn required(&self, name: &'static str) -> Result<String, EnvironmentError> {
        self.optional(name).ok_or(EnvironmentError::Missing(name))
    }

    /// One of two values by its word; `usual` when unset.
    fn choice<T: Copy>(&self, name: &'static str, usual: T, values: [(&str, T); 2]) -> Result<T, EnvironmentError> {
        let Some(value) = self.optional(name) else { return Ok(usual) };
        match values.iter().find(|(word, _)| *word == value) {
            Some((_, found)) => Ok(*found),
            None => Err(EnvironmentError::Unknown { name, value, allowed: values.map(|(word, _)| word).join(", ") }),
        }
    }

    /// Whether a variable is `true`; `usual` when unset.
    fn is_true(&self, name: &'static str, usual: bool) -> Result<bool, EnvironmentError> {
        self.choice(name, usual, [("true", true), ("false", false)])
    }

    fn patterns(&self, name: &'static str) -> Result<NamePatterns, EnvironmentError> {
        let text = self.optional(name).unwrap_or_default();
        NamePatterns::parse(&text).map_err(|source| EnvironmentError::Names { name, source })
    }

    fn clusters(&self) -> Result<Vec<ClusterName>, EnvironmentError> {
        let text = self.required(CLUSTERS)?;
        let clusters: Vec<ClusterName> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(ClusterName::new).collect();
        if clusters.is_empty() { Err(EnvironmentError::Missing(CLUSTERS)) } else { Ok(clusters) }
    }

    /// The queues, of which none may be missing to which doorbells are sent.
    fn queue_urls(&self) -> Result<QueueUrls, EnvironmentError> {
        Ok(QueueUrls {
            plan: self.required(QUEUE_PLAN)?,
            consolidate: self.required(QUEUE_CONSOLIDATE)?,
            launch: self.required(QUEUE_LAUNCH)?,
            terminate: self.required(QUEUE_TERMINATE)?,
            nodes: self.required(QUEUE_NODES)?,
            refresh: self.required(QUEUE_REFRESH)?,
            sweep: self.required(QUEUE_SWEEP)?,
            plan_delay: seconds(PLAN_DELAY_SECONDS, self.optional(PLAN_DELAY_SECONDS))?,
        })
    }

    fn settings(&self) -> Result<Settings, EnvironmentError> {
        let usual = Settings::default();
        Ok(Settings {
            clusters: self.clusters()?,
            cluster_node_roles: self.patterns(CLUSTER_NODE_ROLES)?,
            relay_callers: self.patterns(RELAY_CALLERS)?,
            node_roles: names_of(&self.optional(NODE_ROLES).unwrap_or_default()),
            mode: self.choice(MODE, Mode::Active, [("active", Mode::Active), ("shadow", Mode::Shadow)])?,
            default_instance_profile: self.optional(DEFAULT_INSTANCE_PROFILE),
            default_node_role: self.optional(DEFAULT_NODE_ROLE),
            spot_to_spot: self.is_true(SPOT_TO_SPOT, false)?,
            act_on_rebalance: self.is_true(ACT_ON_REBALANCE, false)?,
            node_repair: self.is_true(NODE_REPAIR, false)?,
            metrics: self.choice(METRICS, Level::Basic, [("basic", Level::Basic), ("full", Level::Full)])?,
            metrics_namespace: namespace(self.optional(METRICS_NAMESPACE))?,
            offering_metrics: names_of(&self.optional(OFFERING_METRICS).unwrap_or_default()).into_iter().collect(),
            zonal_shift: self.is_true(ZONAL_SHIFT, false)?,
            static_capacity: self.is_true(STATIC_CAPACITY, true)?,
            reserved_enis: count(self.optional(RESERVED_ENIS), usual.reserved_enis, RESERVED_ENIS_COUNT)?,
            vm_memory_overhead_ppm: self.vm_memory_overhead_ppm(usual.vm_memory_overhead_ppm)?,
            node_class_expressions: self.expressions()?,
            node_class_dry_runs: self.is_true(NODE_CLASS_DRY_RUNS, true)?,
            catalog_refresh: minutes(self.optional(CATALOG_REFRESH_MINUTES), usual.catalog_refresh, CATALOG_REFRESH_COUNT)?,
            spot_price_refresh: minutes(self.optional(SPOT_PRICE_REFRESH_MINUTES), usual.spot_price_refresh, SPOT_PRICE_REFRESH_COUNT)?,
            scheduling: self.scheduling()?,
            batching: self.batching()?,
            ..usual
        })
    }

    fn expressions(&self) -> Result<Expressions, EnvironmentError> {
        let (on, off) = (Expressions::Evaluated, Expressions::Ignored);
        self.choice(NODE_CLASS_EXPRESSIONS, off, [("true", on), ("false", off)])
    }

    fn vm_memory_overhead_ppm(&self, usual: u32) -> Result<u32, EnvironmentError> {
        let Some(value) = self.optional(VM_MEMORY_OVERHEAD_PERCENT) else { return Ok(usual) };
        share(&value).map_err(|reason| EnvironmentError::NoShare { name: VM_MEMORY_OVERHEAD_PERCENT, reason })
    }

    fn scheduling(&self) -> Result<Scheduling, EnvironmentError> {
        let spread = self.optional(SCHEDULER_CONFIG).unwrap_or_default();
        Ok(Scheduling {
            ignore_preferences: self.choice(PREFERENCE_POLICY, false, [("Respect", false), ("Ignore", true)])?,
            lower_min_values: self.choice(MIN_VALUES_POLICY, false, [("Strict", false), ("BestEffort", true)])?,
            default_spread: default_spread(&spread).map_err(EnvironmentError::SchedulerConfig)?,
            objective: self.optional(OBJECTIVE).map_or(Ok(Objective::default()), |text| text.parse())?,
            machine_cost: self.optional(MACHINE_COST).map_or(Ok(objective::MACHINE_COST), |text| machine_cost(&text))?,
            ..Scheduling::default()
        })
    }

    /// How long plans wait for more pods.
    fn batching(&self) -> Result<Batching, EnvironmentError> {
        let idle = seconds(PLAN_DELAY_SECONDS, self.optional(PLAN_DELAY_SECONDS))?;
        Ok(Batching { idle, max: seconds(PLAN_DELAY_MAX_SECONDS, self.optional(PLAN_DELAY_MAX_SECONDS))? })
    }
}

impl Environment {
    /// Reads the environment through `get`, which gives the value of a variable.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let variables = Variables(get);
        let settings = variables.settings()?;
        let signed_only = variables.choice(RELAY_AUTH, false, [("NONE", false), ("AWS_IAM", true)])?;
        let is_isolated = variables.is_true(ISOLATED_VPC, false)?;
        Ok(Self {
            table: variables.required(TABLE)?,
            queues: variables.queue_urls()?,
            relay_secret_parameter: variables.optional(RELAY_SECRET).filter(|_| !signed_only),
            isolation: if is_isolated { Isolation::Isolated } else { Isolation::Reachable },
            settings,
        })
    }

    /// Entries that are for clusters which are not served, each with its variable.
    pub fn unserved_entries(&self) -> Vec<(&'static str, ClusterName)> {
        let settings = &self.settings;
        let all = [(CLUSTER_NODE_ROLES, &settings.cluster_node_roles), (RELAY_CALLERS, &settings.relay_callers)];
        all.into_iter()
            .flat_map(|(name, entries)| entries.unserved(&settings.clusters).map(move |cluster| (name, cluster.clone())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use whittle_units::Price;

    fn complete() -> BTreeMap<&'static str, &'static str> {
        let queues = [QUEUE_PLAN, QUEUE_CONSOLIDATE, QUEUE_LAUNCH, QUEUE_TERMINATE, QUEUE_NODES, QUEUE_REFRESH, QUEUE_SWEEP];
        let mut variables: BTreeMap<_, _> = queues.into_iter().map(|name| (name, "https://sqs/queue")).collect();
        variables.extend([
            (TABLE, "whittle"),
            (CLUSTERS, "a, b"),
            (MODE, "shadow"),
            (DEFAULT_NODE_ROLE, ""),
            (RELAY_SECRET, "/whittle/relay"),
        ]);
        variables
    }

    fn read(variables: &BTreeMap<&'static str, &'static str>) -> Result<Environment, EnvironmentError> {
        Environment::read(|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn a_complete_environment_is_read() {
        let environment = read(&complete()).expect("it is complete");
        assert_eq!(environment.settings.clusters, [ClusterName::new("a"), ClusterName::new("b")]);
        assert!(environment.settings.is_shadow());
        assert_eq!(environment.settings.default_node_role, None, "an empty parameter counts as unset");
        assert_eq!(environment.relay_secret_parameter.as_deref(), Some("/whittle/relay"));
        assert!(environment.settings.static_capacity, "it is enabled by default");
        let mut disabled = complete();
        disabled.insert(STATIC_CAPACITY, "false");
        assert!(!read(&disabled).expect("it is complete").settings.static_capacity);
    }

    #[test]
    fn the_error_of_a_missing_variable_names_it() {
        for name in complete().into_keys().filter(|name| ![MODE, DEFAULT_NODE_ROLE, RELAY_SECRET].contains(name)) {
            let mut variables = complete();
            variables.remove(name);
            assert_eq!(read(&variables), Err(EnvironmentError::Missing(name)));
            variables.insert(name, " ");
            assert_eq!(read(&variables), Err(EnvironmentError::Missing(name)));
        }
    }

    #[test]
    fn default_spread_constraints_are_read_and_a_typo_in_them_is_an_error() {
        let mut variables = complete();
        assert_eq!(read(&variables).expect("they are optional").settings.scheduling.default_spread, []);
        let config = r#"{"podTopologySpread":{"defaultConstraints":[{"maxSkew":2,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule"}]}}"#;
        variables.insert(SCHEDULER_CONFIG, config);
        assert_eq!(read(&variables).expect("it is valid").settings.scheduling.default_spread[0].max_skew, 2);
        variables.insert(SCHEDULER_CONFIG, r#"{"podTopologySpred":{}}"#);
        assert!(matches!(read(&variables), Err(EnvironmentError::SchedulerConfig(_))));
    }

    #[test]
    fn objective_and_machine_cost_are_read_and_an_invalid_value_is_an_error() {
        let mut variables = complete();
        let read_plan = |variables: &_| read(variables).map(|environment| environment.settings.scheduling);
        let default = read_plan(&variables).expect("both are optional");
        assert_eq!((default.objective, default.machine_cost), (Objective::Balanced, Scheduling::default().machine_cost));
        variables.extend([(OBJECTIVE, "cheapest"), (MACHINE_COST, "0.02")]);
        let set = read_plan(&variables).expect("it is valid");
        assert_eq!((set.objective, set.machine_cost), (Objective::Cheapest, Price::from_dollars(0.02)));
        for invalid in ["-0.1", "101", "NaN", "a lot"] {
            variables.insert(MACHINE_COST, invalid);
            assert!(matches!(read_plan(&variables), Err(EnvironmentError::MachineCost(_))), "{invalid}");
        }
        variables.extend([(OBJECTIVE, "least"), (MACHINE_COST, "")]);
        assert!(matches!(read_plan(&variables), Err(EnvironmentError::Objective(_))));
    }

    #[test]
    fn settings_of_instance_types_are_read_and_an_error_names_variable_and_remedy() {
        let mut variables = complete();
        let usual = read(&variables).expect("all are optional").settings;
        assert_eq!(usual.instance_types(), Settings::default().instance_types());
        assert_eq!((usual.catalog_refresh, usual.spot_price_refresh), (SignedDuration::from_hours(12), SignedDuration::from_mins(5)));
        variables.extend([
            (RESERVED_ENIS, "2"),
            (VM_MEMORY_OVERHEAD_PERCENT, "0.05"),
            (NODE_CLASS_EXPRESSIONS, "true"),
            (NODE_CLASS_DRY_RUNS, "false"),
            (CATALOG_REFRESH_MINUTES, "60"),
            (SPOT_PRICE_REFRESH_MINUTES, "10"),
        ]);
        let set = read(&variables).expect("it is valid").settings;
        assert!(usual.node_class_dry_runs && !set.node_class_dry_runs);
        let types = set.instance_types();
        assert_eq!((types.reserved_enis, types.vm_memory_overhead_ppm, types.expressions), (2, 50_000, Expressions::Evaluated));
        assert_eq!((set.catalog_refresh, set.spot_price_refresh), (SignedDuration::from_hours(1), SignedDuration::from_mins(10)));
        for (name, value, parameter) in [
            (RESERVED_ENIS, "-1", "ReservedEnis"),
            (RESERVED_ENIS, "many", "ReservedEnis"),
            (VM_MEMORY_OVERHEAD_PERCENT, "7.5", "VmMemoryOverheadPercent"),
            (VM_MEMORY_OVERHEAD_PERCENT, "-0.1", "VmMemoryOverheadPercent"),
            (CATALOG_REFRESH_MINUTES, "4", "CatalogRefreshMinutes"),
            (CATALOG_REFRESH_MINUTES, "721", "CatalogRefreshMinutes"),
            (SPOT_PRICE_REFRESH_MINUTES, "4", "SpotPriceRefreshMinutes"),
            (SPOT_PRICE_REFRESH_MINUTES, "721", "SpotPriceRefreshMinutes"),
            (NODE_CLASS_EXPRESSIONS, "yes", "true, false"),
            (NODE_CLASS_DRY_RUNS, "yes", "true, false"),
        ] {
            let mut invalid = variables.clone();
            invalid.insert(name, value);
            let error = read(&invalid).expect_err("a typo stops the function").to_string();
            assert!(error.contains(name) && error.contains(value) && error.contains(parameter), "{error}");
        }
    }

    #[test]
    fn the_namespace_of_metrics_is_read_and_the_error_of_an_invalid_one_names_variable_and_remedy() {
        let mut variables = complete();
        let of = |variables: &_| read(variables).map(|environment| environment.settings.metrics_namespace);
        assert_eq!(of(&variables).as_deref(), Ok("Whittle"), "it is optional");
        for valid in ["Whittle/dev", "a", "Team-1_x.y#2", "AWSome"] {
            variables.insert(METRICS_NAMESPACE, valid);
            assert_eq!(of(&variables).as_deref(), Ok(valid));
        }
        for invalid in ["Whittle\"", "{Whittle}", "my metrics", "a:b", "/dev", "AWS/Lambda", "${X}", "ü"] {
            variables.insert(METRICS_NAMESPACE, invalid);
            let error = of(&variables).expect_err("its alarms would find nothing").to_string();
            let names_all = error.contains("WHITTLE_METRICS_NAMESPACE is ") && error.contains("255") && error.contains("MetricsNamespace");
            assert!(names_all, "{error}");
        }
        assert_eq!(namespace(Some("a".repeat(255))), Ok("a".repeat(255)));
        assert!(namespace(Some("a".repeat(256))).is_err());
    }

    #[test]
    fn the_delay_of_the_plan_queue_is_read_in_seconds() {
        let mut variables = complete();
        assert_eq!(read(&variables).expect("it is optional").queues.plan_delay, SignedDuration::ZERO);
        variables.insert(PLAN_DELAY_SECONDS, "2");
        variables.insert(PLAN_DELAY_MAX_SECONDS, "20");
        let environment = read(&variables).expect("they are numbers");
        assert_eq!(environment.queues.plan_delay, SignedDuration::from_secs(2));
        let batching = Batching { idle: SignedDuration::from_secs(2), max: SignedDuration::from_secs(20) };
        assert_eq!(environment.settings.batching, batching);
        for invalid in ["1.5", "-1", "901", "soon"] {
            variables.insert(PLAN_DELAY_SECONDS, invalid);
            assert!(matches!(read(&variables), Err(EnvironmentError::NoSeconds { .. })), "{invalid}");
        }
    }

    #[test]
    fn a_relay_with_iam_authentication_needs_no_secret() {
        let mut variables = complete();
        variables.insert(RELAY_AUTH, "NONE");
        assert!(read(&variables).expect("it is complete").relay_secret_parameter.is_some());
        variables.insert(RELAY_AUTH, "AWS_IAM");
        assert_eq!(read(&variables).expect("it is complete").relay_secret_parameter, None);
        variables.insert(RELAY_AUTH, "IAM");
        assert!(matches!(read(&variables), Err(EnvironmentError::Unknown { .. })), "a typo disables no authentication");
    }

    #[test]
    fn role_patterns_are_read_and_a_cluster_that_is_not_served_in_them_stops_nothing() {
        let mut variables = complete();
        variables.extend([(NODE_ROLES, "KarpenterNodeRole-*, web"), (CLUSTER_NODE_ROLES, "a=web"), (ISOLATED_VPC, "true")]);
        let environment = read(&variables).expect("it is valid");
        assert_eq!(environment.isolation, Isolation::Isolated);
        let permits = |cluster: &str, role: &str| environment.settings.permits_node_role(&cluster.into(), role);
        assert!(permits("a", "web") && permits("b", "KarpenterNodeRole-b"));
        assert!(!permits("b", "web") && !permits("a", "KarpenterNodeRole-a"));
        for name in [CLUSTER_NODE_ROLES, RELAY_CALLERS] {
            let with = |value| variables.clone().into_iter().chain([(name, value)]).collect();
            assert!(matches!(read(&with("elsewhere")), Err(EnvironmentError::Names { .. })), "{name}");
            assert_eq!(read(&variables).expect("it is valid").unserved_entries(), []);
            let unserved = read(&with("a=web;elsewhere=web")).expect("an entry of a cluster that was taken out is valid");
            assert_eq!(unserved.unserved_entries(), [(name, "elsewhere".into())]);
        }
    }

    #[test]
    fn a_misspelled_mode_is_an_error_and_not_active() {
        let mut variables = complete();
        variables.insert(MODE, "shadwo");
        let error = read(&variables).expect_err("the mode does not exist");
        assert_eq!(error.to_string(), "WHITTLE_MODE is \"shadwo\", which is not one of active, shadow");
    }
}
