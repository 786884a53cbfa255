use super::*;
use crate::manifest::{self, Object};

fn config_map() -> Read {
    let text = include_str!("../../../../tests/seeds/001-configmap-global-settings.yaml");
    let Object::ConfigMap(map) = manifest::read("f", text).unwrap().remove(0).value else { panic!("a ConfigMap") };
    assert_eq!(map.metadata.name, CONFIG_MAP);
    from_config_map(&map).unwrap()
}

#[test]
fn s1_2_all_forms_of_the_settings_give_the_same_configuration() {
    let expected = GlobalSettings {
        cluster_name: Some("${CLUSTER_NAME}".to_owned()),
        cluster_endpoint: Some("${CLUSTER_ENDPOINT}".to_owned()),
        default_instance_profile: Some("KarpenterNodeInstanceProfile-${CLUSTER_NAME}".to_owned()),
        interruption_queue: Some("${CLUSTER_NAME}".to_owned()),
        ..GlobalSettings::default()
    };
    assert_eq!(config_map().settings, expected);
    let new = from_helm_values("new", include_str!("../../../../tests/seeds/001-helm-values.yaml"), &[]).unwrap();
    assert_eq!(new.settings, expected);
    let old = from_helm_values("old", include_str!("../../../../tests/seeds/001-helm-values-v0.18.yaml"), &[]).unwrap();
    assert_eq!(old.settings, GlobalSettings { interruption_queue: None, ..expected.clone() }, "the old chart had no queue");
    let variables = [("CLUSTER_NAME", "${CLUSTER_NAME}"), ("CLUSTER_ENDPOINT", "${CLUSTER_ENDPOINT}"), ("PATH", "/bin")];
    let environment = from_environment(&variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into()).unwrap();
    let named =
        GlobalSettings { cluster_name: expected.cluster_name, cluster_endpoint: expected.cluster_endpoint, ..GlobalSettings::default() };
    assert_eq!(environment, Read { settings: named, ignored: Vec::new() });
}

#[test]
fn s1_2_unused_keys_are_reported_and_ignored() {
    let read = from_helm_values("f", include_str!("../../../../tests/seeds/000-helm-values.yaml"), &[]).unwrap();
    let keys: Vec<&str> = read.ignored.iter().map(|ignored| ignored.key.as_str()).collect();
    assert!(keys.contains(&"serviceAccount.annotations.eks.amazonaws.com/role-arn"), "{keys:?}");
    assert!(keys.contains(&"controller.resources.requests.cpu"), "{keys:?}");
    assert!(read.ignored[0].to_string().contains("is not used"));
    for text in [include_str!("../../../../tests/seeds/002-helm-values.yaml"), include_str!("../../../../tests/seeds/004-helm-values.yaml")]
    {
        assert!(from_helm_values("f", text, &[]).unwrap().settings.cluster_name.is_some());
    }
}

#[test]
fn a_misspelt_setting_names_the_one_that_was_meant() {
    let told = |text: &str| -> Vec<String> { from_helm_values("f", text, &[]).unwrap().ignored.iter().map(ToString::to_string).collect() };
    let wanted = |key: &str, meant: &str| format!("settings.{key} is not used: {NO_CONTROLLER}; did you mean {meant}?");
    assert_eq!(told("settings: {batchMaxDuraton: 10s}\n"), [wanted("batchMaxDuraton", "batchMaxDuration")]);
    assert_eq!(told("settings: {aws: {isolatedVpc: true}}\n"), [wanted("aws.isolatedVpc", "isolatedVPC")]);
    // What is near to none, and what is no setting.
    assert_eq!(told("settings: {eksControlPlane: true}\n"), [format!("settings.eksControlPlane is not used: {NO_CONTROLLER}")]);
    assert_eq!(told("batchMaxDuraton: 10s\n"), [format!("batchMaxDuraton is not used: {NO_CONTROLLER}")]);
}

#[test]
fn all_values_that_cannot_be_parsed_are_reported() {
    let text = "settings:\n  batchMaxDuration: soon\n  aws: {vmMemoryOverheadPercent: 7.5, reservedENIs: -1, isolatedVPC: maybe}\n";
    let errors: Vec<String> = from_helm_values("values.yaml", text, &[]).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(errors[0].starts_with("values.yaml, settings.batchMaxDuration: "), "{errors:?}");
    assert!(from_helm_values("values.yaml", "a: [", &[]).unwrap_err()[0].message.contains("line 1"));
}

#[test]
fn every_setting_is_validated() {
    let text = "settings:\n  batchMaxDuration: 10s\n  featureGates: {driftEnabled: false}\n  aws: {vmMemoryOverheadPercent: 0.075, \
                reservedENIs: \"1\", isolatedVPC: true, tags: {a: b}}\n";
    let read = from_helm_values("values.yaml", text, &[]).unwrap();
    assert_eq!(read.settings.vm_memory_overhead_ppm, Some(75_000));
    assert_eq!((read.settings.reserved_enis, read.settings.isolated_vpc), (Some(1), Some(true)));
    assert_eq!(read.settings.feature_gates, [("Drift".to_owned(), false)].into());
    assert_eq!(read.settings.batch_max_duration.unwrap().to_string(), "10s");
    assert_eq!(read.ignored[0].key, "settings.aws.tags.a");
}

#[test]
fn a_setting_of_todays_karpenter_names_the_parameter_that_stands_for_it() {
    let template = include_str!("../../../../template.yaml");
    let parameters = ENVIRONMENT.iter().filter(|(_, meaning)| !matches!(meaning, Meaning::IgnoreDra(_)));
    let variables: BTreeMap<String, String> = parameters.map(|(name, _)| ((*name).to_owned(), String::new())).collect();
    let chart = "logLevel: debug\nsettings:\n  preferencePolicy: Ignore\n  minValuesPolicy: BestEffort\n  enableZonalShift: true\n  \
                 disableDryRun: true\n  amiRefreshInterval: 5m\n  featureGates: {nodeRepair: true, staticCapacity: true}\n  \
                 awsFeatureGates: {nodeClassCEL: true}\n";
    for read in [from_helm_values("f", chart, &[]).unwrap(), from_environment(&variables).unwrap()] {
        assert_eq!(read.ignored.len(), 9, "{:?}", read.ignored);
        for Ignored { key, why, .. } in &read.ignored {
            let name = why.strip_prefix("set the stack's parameter ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            assert!(template.contains(&format!("\n  {name}:\n    Type: ")), "{key}: template.yaml has no parameter {name:?}");
        }
    }
}

#[test]
fn what_is_always_on_is_not_said_to_need_a_controller() {
    let chart = "settings: {featureGates: {reservedCapacity: true, nodeOverlay: true, capacityBuffer: true}}\ncontroller: {resources: 1}\n";
    let read = from_helm_values("f", chart, &[]).unwrap();
    let told: Vec<(&str, bool)> = read.ignored.iter().map(|ignored| (ignored.key.as_str(), ignored.why == NO_CONTROLLER)).collect();
    let want = [
        ("settings.featureGates.reservedCapacity", false),
        ("settings.featureGates.nodeOverlay", false),
        ("settings.featureGates.capacityBuffer", false),
        ("controller.resources", true),
    ];
    assert_eq!(told, want);
}

#[test]
fn variables_of_the_controller_are_settings_and_those_of_the_chart_give_way_to_them() {
    let chart = "controller:\n  env:\n    - {name: SCHEDULER_CONFIG, value: 'podTopologySpread: {}'}\n    \
                 - {name: RESERVED_ENIS, value: \"1\"}\n    \
                 - {name: FEATURE_GATES, value: SpotToSpotConsolidation=true}\n    - {name: AWS_REGION, value: eu-west-1}\n    \
                 - {name: BATCH_MAX_DURATION}\n    - {value: none}\n\
                 settings: {reservedENIs: \"0\", batchMaxDuration: 20s, featureGates: {spotToSpotConsolidation: false}}\n";
    let read = from_helm_values("f", chart, &[]).unwrap();
    assert_eq!(read.settings.reserved_enis, Some(1));
    assert_eq!(read.settings.feature_gates, [("SpotToSpotConsolidation".to_owned(), true)].into());
    assert_eq!(read.settings.batch_max_duration.unwrap().to_string(), "20s", "an empty one says nothing");
    let told: Vec<String> = read.ignored.iter().map(ToString::to_string).collect();
    let scheduler = "controller.env.SCHEDULER_CONFIG is not used: set the stack's parameter SchedulerConfig instead";
    assert_eq!(told, [scheduler.to_owned(), format!("controller.env.AWS_REGION is not used: {NO_CONTROLLER}")]);
    assert_eq!(from_helm_values("f", "controller: {env: []}\n", &[]).unwrap(), Read::default(), "the chart's default says nothing");
}

#[test]
fn the_variable_with_all_gates_leaves_none_to_the_chart() {
    let chart = "controller: {env: [{name: FEATURE_GATES, value: NodeRepair=true}]}\n\
                 settings: {featureGates: {spotToSpotConsolidation: true}}\n";
    let gates = from_helm_values("f", chart, &[]).unwrap().settings.feature_gates;
    assert_eq!(gates, [("NodeRepair".to_owned(), true)].into());
}

/// A ConfigMap with these keys.
fn map_of(namespace: &str, name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ConfigMap { metadata: crate::ObjectMeta::namespaced(namespace, name), data }
}

#[test]
fn variables_of_a_known_config_map_are_settings_that_give_way_to_those_of_the_container() {
    let chart = "controller:\n  envFrom: [{configMapRef: {name: a.env}}, {prefix: VM_, configMapRef: {name: b}}]\n  \
                 env: [{name: CLUSTER_ENDPOINT, value: 'https://env'}]\nsettings: {interruptionQueue: of-the-chart}\n";
    let of_a = [
        ("BATCH_IDLE_DURATION", "5s"),
        ("CLUSTER_ENDPOINT", "https://map"),
        ("INTERRUPTION_QUEUE", "of-the-map"),
        ("ISOLATED_VPC", "true"),
        ("SCHEDULER_CONFIG", "{}"),
    ];
    let (a, b) = (map_of("x", "a.env", &of_a), map_of("x", "b", &[("MEMORY_OVERHEAD_PERCENT", "0.5"), ("OTHER", "1")]));
    let other = map_of("x", "other", &[("CLUSTER_NAME", "wrong")]);
    let read = from_helm_values("f", chart, &[&a, &other, &b]).unwrap();
    let told = &read.settings;
    assert_eq!((told.isolated_vpc, told.cluster_endpoint.as_deref()), (Some(true), Some("https://env")));
    assert_eq!((told.interruption_queue.as_deref(), told.cluster_name.as_deref()), (Some("of-the-chart"), None));
    assert_eq!((told.batch_idle_duration.as_ref(), told.vm_memory_overhead_ppm), (None, None), "the chart has values of its own");
    let ignored: Vec<(&str, &str)> = read.ignored.iter().map(|ignored| (ignored.key.as_str(), ignored.why)).collect();
    let wanted = [
        ("controller.envFrom.a.env.BATCH_IDLE_DURATION", SET_BY_CHART),
        ("controller.envFrom.a.env.SCHEDULER_CONFIG", "set the stack's parameter SchedulerConfig instead"),
        ("controller.envFrom.b.VM_MEMORY_OVERHEAD_PERCENT", SET_BY_CHART),
        ("controller.envFrom.b.VM_OTHER", NO_CONTROLLER),
    ];
    assert_eq!(ignored, wanted);
    assert_eq!(maps_of_helm_values(chart), ["a.env".to_owned(), "b".to_owned()].into());
}

#[test]
fn objects_whose_variables_are_not_known_are_told_by_name() {
    let chart = "controller: {envFrom: [{configMapRef: {name: env}}, {secretRef: {name: hidden}}]}\n";
    let (here, there) = (map_of("a", "env", &[("ISOLATED_VPC", "true")]), map_of("b", "env", &[]));
    let known: [Vec<&ConfigMap>; 2] = [Vec::new(), vec![&here, &there]];
    for maps in known {
        let read = from_helm_values("f", chart, &maps).unwrap();
        let told: Vec<(&str, &str)> = read.ignored.iter().map(|ignored| (ignored.key.as_str(), ignored.why)).collect();
        let wanted = [("controller.envFrom.configMapRef.env", MAP_ELSEWHERE), ("controller.envFrom.secretRef.hidden", SECRET_ELSEWHERE)];
        assert_eq!((told, &read.settings), (wanted.to_vec(), &GlobalSettings::default()));
    }
    assert_eq!(from_helm_values("f", "controller: {envFrom: []}\n", &[]).unwrap(), Read::default(), "the chart's default says nothing");
}

#[test]
fn variables_whose_value_is_in_another_object_are_told() {
    let secret = "valueFrom: {secretKeyRef: {name: s, key: k}}";
    let chart = format!("controller: {{env: [{{name: RESERVED_ENIS, {secret}}}, {{name: SCHEDULER_CONFIG, {secret}}}]}}\n");
    let read = from_helm_values("f", &chart, &[]).unwrap();
    assert_eq!(read.settings, GlobalSettings::default());
    let told: Vec<(&str, &str)> = read.ignored.iter().map(|ignored| (ignored.key.as_str(), ignored.why)).collect();
    let scheduler = "set the stack's parameter SchedulerConfig instead";
    let wanted = [("controller.env.RESERVED_ENIS.valueFrom", VALUE_ELSEWHERE), ("controller.env.SCHEDULER_CONFIG.valueFrom", scheduler)];
    assert_eq!(told, wanted);
}

#[test]
fn who_has_nodes_for_resource_claims_is_told_that_there_are_none_here() {
    let why = |chart: &str| from_helm_values("f", chart, &[]).unwrap().ignored[0].why;
    assert_eq!(why("settings: {ignoreDRARequests: true}\n"), DRA_IGNORED);
    assert_eq!(why("settings: {ignoreDRARequests: false}\n"), DRA_LEFT_OUT, "Karpenter's chart does not pass it on");
    assert_eq!(why("controller: {env: [{name: IGNORE_DRA_REQUESTS, value: \"false\"}]}\n"), DRA_PLANNED);
}
