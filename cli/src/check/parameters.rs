//! Settings of a Karpenter installation, and the parameters of the stack that correspond to them (docs/parameters.md).

use std::fmt;
use whittle_api::settings::GlobalSettings;
use whittle_api::words;

/// A setting, by its name in the environment.
#[derive(Debug)]
pub(super) struct Setting {
    key: &'static str,
    value: String,
    /// What to set here instead.
    instead: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.key, words::printable(&self.value), self.instead)
    }
}

/// The settings that are present, in a fixed order.
pub(super) fn describe(settings: &GlobalSettings) -> Vec<Setting> {
    let given = [
        ("CLUSTER_NAME", settings.cluster_name.clone()),
        ("CLUSTER_ENDPOINT", settings.cluster_endpoint.clone()),
        ("CLUSTER_CA_BUNDLE", settings.cluster_ca_bundle.clone()),
        ("INTERRUPTION_QUEUE", settings.interruption_queue.clone()),
        ("WHITTLE_DEFAULT_INSTANCE_PROFILE", settings.default_instance_profile.clone()),
        ("ISOLATED_VPC", settings.isolated_vpc.map(|on| on.to_string())),
        ("VM_MEMORY_OVERHEAD_PERCENT", settings.vm_memory_overhead_ppm.map(|ppm| (f64::from(ppm) / 1e6).to_string())),
        ("RESERVED_ENIS", settings.reserved_enis.map(|count| count.to_string())),
        ("BATCH_MAX_DURATION", settings.batch_max_duration.as_ref().map(ToString::to_string)),
        ("BATCH_IDLE_DURATION", settings.batch_idle_duration.as_ref().map(ToString::to_string)),
    ];
    let given = given.into_iter().filter_map(|(key, value)| Some(Setting { key, value: value?, instead: instead_of(key) }));
    given.chain(gates(settings)).collect()
}

/// The feature gates, which are one variable of the environment.
fn gates(settings: &GlobalSettings) -> Option<Setting> {
    let gates = &settings.feature_gates;
    let value: Vec<String> = gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
    let instead: Vec<String> = gates.keys().map(|name| format!("{}: {}", words::printable(name), of_gate(name))).collect();
    (!gates.is_empty()).then(|| Setting { key: "FEATURE_GATES", value: value.join(","), instead: instead.join("; ") })
}

/// What stands for a setting here.
fn instead_of(key: &str) -> String {
    let parameter = match key {
        "CLUSTER_NAME" => "Clusters",
        "WHITTLE_DEFAULT_INSTANCE_PROFILE" => "DefaultInstanceProfile",
        "ISOLATED_VPC" => "IsolatedVpc",
        "VM_MEMORY_OVERHEAD_PERCENT" => "VmMemoryOverheadPercent",
        "RESERVED_ENIS" => "ReservedEnis",
        "BATCH_MAX_DURATION" => "PlanDelayMaxSeconds",
        "BATCH_IDLE_DURATION" => "PlanDelaySeconds",
        "INTERRUPTION_QUEUE" => return "nothing to set: EventBridge invokes a function of the stack".to_owned(),
        // It counts in the hash of a node class, and the NodeClaims have the hash with Karpenter's.
        "CLUSTER_CA_BUNDLE" => {
            let drift = "if this is another one, all nodes of Karpenter drift when they are adopted, and are replaced within the budgets";
            return format!("nothing to set: the certificate authority of the cluster is looked up in EKS; {drift}");
        }
        _ => return "nothing to set: it is looked up".to_owned(),
    };
    format!("the stack's parameter {parameter}")
}

fn of_gate(name: &str) -> String {
    let parameter = match name {
        "SpotToSpotConsolidation" => "SpotToSpot",
        "NodeRepair" => "NodeRepair",
        "StaticCapacity" => "StaticCapacity",
        "Drift" | "NodeOverlay" | "CapacityBuffer" | "ReservedCapacity" => return "always on".to_owned(),
        _ => return "not known here".to_owned(),
    };
    format!("the stack's parameter {parameter}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use whittle_api::settings::from_environment;

    fn shown(variables: &[(&str, &str)]) -> Vec<String> {
        let variables: BTreeMap<String, String> = variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        describe(&from_environment(&variables).unwrap().settings).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_setting_names_the_parameter_of_the_stack_or_that_there_is_nothing_to_set() {
        assert_eq!(shown(&[("BATCH_IDLE_DURATION", "1s")]), ["BATCH_IDLE_DURATION = 1s (the stack's parameter PlanDelaySeconds)"]);
        let gates = shown(&[("FEATURE_GATES", "Drift=false,SpotToSpotConsolidation=true,Other=true")]);
        let wanted = "FEATURE_GATES = Drift=false,Other=true,SpotToSpotConsolidation=true (Drift: always on; Other: not known here; \
                      SpotToSpotConsolidation: the stack's parameter SpotToSpot)";
        assert_eq!(gates, [wanted]);
        let looked_up = shown(&[("CLUSTER_ENDPOINT", "https://a"), ("INTERRUPTION_QUEUE", "q")]);
        assert!(looked_up.len() == 2 && looked_up.iter().all(|line| line.contains(" (nothing to set: ")), "{looked_up:?}");
        let bundle = shown(&[("CLUSTER_CA_BUNDLE", "YQ==")]);
        assert!(bundle[0].contains("(nothing to set: ") && bundle[0].contains("drift when they are adopted"), "{bundle:?}");
        assert!(shown(&[]).is_empty());
    }

    #[test]
    fn the_stack_has_each_parameter_that_is_named() {
        let template = include_str!("../../../template.yaml");
        let all = [
            ("CLUSTER_NAME", "a"),
            ("ISOLATED_VPC", "true"),
            ("VM_MEMORY_OVERHEAD_PERCENT", "0.1"),
            ("RESERVED_ENIS", "1"),
            ("BATCH_MAX_DURATION", "10s"),
            ("BATCH_IDLE_DURATION", "1s"),
            ("FEATURE_GATES", "SpotToSpotConsolidation=true,NodeRepair=true,StaticCapacity=true"),
        ];
        let lines = [shown(&all), vec![instead_of("WHITTLE_DEFAULT_INSTANCE_PROFILE")]].concat().join("\n");
        let named: Vec<&str> =
            lines.split("the stack's parameter ").skip(1).filter_map(|rest| rest.split([')', ';', '\n']).next()).collect();
        assert_eq!(named.len(), 10, "{lines}");
        for name in named {
            assert!(template.contains(&format!("\n  {name}:\n    Type: ")), "template.yaml has no parameter {name:?}");
        }
    }
}
