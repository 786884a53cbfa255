//! Invalid input affects only its own node or pool. In every case NodePool `good` has an oversized
//! node, which is still replaced or deleted.

use super::*;
use crate::source::{Manifests, Paid, catalog};
use serde_json::Value;

const CATALOG: &str = r#"[
  {"name": "small", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2", "memory": "8Gi"}, "offerings": [
    {"Price": 0.1, "Requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]},
  {"name": "large", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "16", "memory": "64Gi"}, "offerings": [
    {"Price": 0.8, "Requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}
]"#;

const CLASS: &str = "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}";

fn pool(name: &str, disruption: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  disruption: {disruption}\n  template: {{spec: {{nodeClassRef: {CLASS}, requirements: []}}}}\n---\n"
    )
}

/// A machine with its Node, a day old.
fn node(name: &str, pool: &str, kind: &str, id: &str) -> String {
    let own = format!(
        "karpenter.sh/nodepool: {pool}, node.kubernetes.io/instance-type: {kind}, topology.kubernetes.io/zone: a, karpenter.sh/capacity-type: on-demand"
    );
    let room = "capacity: {cpu: '16', memory: 64Gi, pods: '110'}";
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: claim-{name}, labels: {{{own}}}}}\nspec: {{nodeClassRef: {CLASS}, requirements: []}}\nstatus: {{providerID: '{id}', {room}}}\n---\n\
         apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{own}, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true'}}}}\nspec: {{providerID: '{id}'}}\nstatus: {{{room}}}\n---\n"
    )
}

fn pod(name: &str, node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{nodeName: {node}, containers: [{{name: a, image: a, resources: {{requests: {{cpu: '1'}}}}}}]}}\n---\n"
    )
}

fn good() -> String {
    pool("good", "{budgets: [{nodes: 100%}]}") + &node("used", "good", "large", "aws:///a/i-used") + &pod("p-used", "used")
}

fn read(text: &str) -> Manifests {
    source::read_text("input.yaml", text).unwrap()
}

fn decided(text: &str, catalog: &str, packing: PackingArg) -> Value {
    let read = read(text);
    let decision = decide(&read, &catalog::for_all_pools(&read.objects, catalog::parse(catalog).unwrap()), packing);
    serde_json::from_str(&output::json(&decision, &Costs::default(), std::time::Duration::ZERO, &[])).unwrap()
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().unwrap()
}

#[track_caller]
fn verdict<'v>(answer: &'v Value, node: &str) -> &'v Value {
    list(answer, "verdicts").iter().find(|verdict| verdict["node"] == node).unwrap_or_else(|| panic!("no verdict on {node}: {answer:#}"))
}

/// Node `bad` is kept with this code and text, and `used` is still disrupted.
#[track_caller]
fn check_kept(text: &str, catalog: &str, code: &str, words: &str) {
    for packing in [PackingArg::Best, PackingArg::Reference] {
        check_kept_by(packing, text, catalog, code, words);
    }
}

#[track_caller]
fn check_kept_by(packing: PackingArg, text: &str, catalog: &str, code: &str, words: &str) {
    let answer = decided(&(good() + text), catalog, packing);
    let bad = verdict(&answer, "bad");
    assert_eq!(bad["code"], code, "{packing:?}: {answer:#}");
    assert!(bad["why"].as_str().unwrap().contains(words), "{packing:?}: {bad:#}");
    let removed: Vec<&Value> = list(&answer, "commands").iter().flat_map(|command| list(command, "candidates")).collect();
    assert_eq!(removed, ["used"], "{packing:?}: {answer:#}");
}

/// A pool with these disruption settings disrupts no node, and the error is reported.
#[track_caller]
fn check_closed(disruption: &str, words: &str) {
    let bad = pool("bad", disruption) + &node("bad", "bad", "large", "aws:///a/i-bad") + &pod("p-bad", "bad");
    check_kept(&bad, CATALOG, "BudgetInvalid", words);
    // An empty node of such a pool is not deleted either.
    let answer = decided(&(pool("bad", disruption) + &node("bad", "bad", "large", "aws:///a/i-bad")), CATALOG, PackingArg::Best);
    assert_eq!(list(&answer, "commands"), [] as [Value; 0]);
    assert_eq!(verdict(&answer, "bad")["code"], "BudgetInvalid", "{answer:#}");
}

/// As for the functions: a node looks empty for as long as the volume of its first pod is being made.
#[test]
fn a_node_that_kube_scheduler_has_chosen_for_a_pod_is_not_disrupted() {
    let empty = pool("bad", "{budgets: [{nodes: 100%}]}") + &node("bad", "bad", "large", "aws:///a/i-bad");
    let waits = |node: &str| {
        pod("waits", "x").replace("nodeName: x, ", "").replace(
            "\n---\n",
            &format!(
                "\nstatus: {{phase: Pending, nominatedNodeName: {node}, conditions: [{{type: PodScheduled, status: 'False', \
                 reason: Unschedulable}}]}}\n---\n"
            ),
        )
    };
    check_kept(&(empty.clone() + &waits("bad")), CATALOG, "Nominated", "pending pod");
    let elsewhere = decided(&(good() + &empty + &waits("gone")), CATALOG, PackingArg::Best);
    let mut removed = list(&elsewhere, "commands").iter().flat_map(|command| list(command, "candidates"));
    assert!(removed.any(|node| node == "bad"), "{elsewhere:#}");
}

#[test]
fn invalid_disruption_settings_block_only_their_own_pool() {
    check_closed("{budgets: [{nodes: '5', schedule: '61 * * * *', duration: 1h}]}", "\"61\" does not fit 0 to 59");
    check_closed("{budgets: [{nodes: '5', schedule: '0 9 * *', duration: 1h}]}", "4 fields");
    check_closed("{budgets: [{nodes: '5', schedule: 'TZ=UTC 0 9 * * *', duration: 1h}]}", "6 fields");
    check_closed("{budgets: [{nodes: '5', schedule: '@daily'}]}", "has no duration: give both or neither");
    check_closed("{budgets: [{nodes: '5', duration: 1h}]}", "has no schedule: give both or neither");
    check_closed("{budgets: [{nodes: '5', schedule: '@daily', duration: -1h}]}", "negative");
    check_closed("{budgets: [{nodes: '5', schedule: '@daily', duration: 1x}]}", "\"1x\" is not a duration");
    check_closed("{budgets: [{nodes: many}]}", "neither a count nor a percentage");
    check_closed("{budgets: [{nodes: 100%}, {nodes: -10%}]}", "-10%");
    check_closed("{budgets: [{nodes: '0', reasons: [Expired]}]}", "\"Expired\" is not one of Underutilized, Empty, Drifted");
    check_closed("{budgets: [{nodes: 100%}], consolidationPolicy: WhenUnderutilized}", "WhenUnderutilized");
    check_closed("{budgets: [{nodes: 100%}], consolidationPolicy: whenempty}", "write one of");
    check_closed("{budgets: [{nodes: 100%}], consolidateAfter: 1hr}", "\"1hr\" is not a duration");
    check_closed("{budgets: [{nodes: 100%}], consolidateAfter: -5m}", "negative");
}

#[test]
fn policies_that_exclude_consolidation_keep_their_nodes() {
    let bad = |disruption| pool("bad", disruption) + &node("bad", "bad", "large", "aws:///a/i-bad") + &pod("p-bad", "bad");
    let never = "{budgets: [{nodes: 100%}], consolidationPolicy: WhenEmpty, consolidateAfter: Never}";
    check_kept(&bad(never), CATALOG, "ConsolidationDisabled", "Never");
    let only_empty = "{budgets: [{nodes: 100%}], consolidationPolicy: WhenEmpty}";
    check_kept(&bad(only_empty), CATALOG, "NotEmpty", "WhenEmpty");
    check_kept(&bad("{budgets: [{nodes: 100%}, {nodes: '0'}]}"), CATALOG, "Budget", "allow no more disruptions");
}

#[test]
fn a_clock_behind_all_objects_keeps_nodes_with_consolidate_after() {
    let now = |at: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: plan-settings}}\ndata: {{now: '{at}'}}\n---\n");
    let bad = |created: &str| {
        let text = node("bad", "bad", "large", "aws:///a/i-bad") + &pod("p-bad", "bad");
        let text = text.replace("{name: claim-bad,", &format!("{{name: claim-bad, creationTimestamp: '{created}',"));
        pool("bad", "{budgets: [{nodes: 100%}], consolidateAfter: 1h}") + &text
    };
    check_kept(&(now("2020-01-01T00:00:00Z") + &bad("2026-01-01T00:00:00Z")), CATALOG, "ConsolidateAfter", "2026-01-01T01:00:00Z");
    let late = decided(&(now("2199-01-01T00:00:00Z") + &bad("2026-01-01T00:00:00Z")), CATALOG, PackingArg::Best);
    assert_eq!(verdict(&late, "bad")["verdict"], "replace", "a clock that jumped ahead is only late: {late:#}");
}

#[test]
fn a_node_of_an_unknown_instance_type_is_not_consolidated() {
    let bad = node("bad", "good", "unheard-of", "aws:///a/i-bad") + &pod("p-bad", "bad");
    // Younger than an hour: the catalog may lag behind, so that is no drift yet.
    let young = "{name: claim-bad, creationTimestamp: '2025-12-31T23:30:00Z',";
    check_kept(&bad.replace("{name: claim-bad,", young), CATALOG, "InstanceTypeUnknown", "\"unheard-of\" not found");
    let old = decided(&(good() + &bad), CATALOG, PackingArg::Best);
    assert_eq!(verdict(&old, "bad")["drifted"], "InstanceTypeNotFound");
    assert_eq!(verdict(&old, "bad")["code"], "Drifted");
}

/// The built-in tables are older than EC2's newest types: such a node was to be deleted, and all others waited for that.
#[test]
fn a_node_that_only_the_tables_do_not_have_has_not_drifted() {
    let text = good() + &node("bad", "good", "unheard-of", "aws:///a/i-bad") + &pod("p-bad", "bad");
    let mut read = read(&text);
    let offered = catalog::for_all_pools(&read.objects, catalog::parse(CATALOG).unwrap());
    let verdict = |read: &Manifests| {
        let decision = decide(read, &offered, PackingArg::Best);
        let of_bad = decision.verdicts.iter().find(|verdict| verdict.node == "bad").unwrap().reason.to_string();
        let removed: Vec<String> = decision.commands.iter().flat_map(|one| &one.removals).map(|removal| removal.node.clone()).collect();
        (of_bad, removed)
    };
    assert!(verdict(&read).1.contains(&"bad".to_owned()), "as by the functions, whose catalog is EC2's own");
    read.unlisted.insert("claim-bad".to_owned());
    let (of_bad, removed) = verdict(&read);
    assert!(of_bad.contains("\"unheard-of\" not found"), "{of_bad}");
    assert_eq!(removed, ["used"]);
}

#[test]
fn a_type_without_a_valid_price_is_never_a_replacement() {
    let catalog_with_price = |price: &str| {
        let catalog = CATALOG.replace("\"name\": \"small\"", "\"name\": \"odd\"").replace("\"Price\": 0.1,", price);
        let catalog = catalog.trim_start_matches('[').split("{\"name\": \"large\"").next().unwrap().to_owned();
        CATALOG.replacen('[', &format!("[{catalog}"), 1)
    };
    let bad = node("bad", "good", "odd", "aws:///a/i-bad") + &pod("p-bad", "bad") + &pod("q-bad", "bad");
    for price in ["", "\"Price\": null,"] {
        let answer = decided(&(good() + &bad), &catalog_with_price(price), PackingArg::Best);
        assert!(!answer["commands"].to_string().contains("\"odd\""), "{price} became a replacement: {answer:#}");
        // Karpenter's search stops at the first command and never considers these nodes.
        let pinned = bad.replace(
            "spec: {nodeName: bad,",
            "spec: {nodeName: bad, nodeSelector: {karpenter.sh/nodepool: good, node.kubernetes.io/instance-type: odd},",
        );
        check_kept_by(PackingArg::Best, &pinned, &catalog_with_price(price), "PodsWouldNotSchedule", "not all pods would schedule");
        let alone = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {}}]}},";
        let isolated = node("bad", "good", "odd", "aws:///a/i-bad")
            + &pod("p-bad", "bad").replace("spec: {nodeName: bad,", &format!("spec: {{nodeName: bad, {alone}"));
        check_kept_by(PackingArg::Best, &isolated, &catalog_with_price(price), "PriceUnknown", "price is not known");
    }
}

#[test]
fn machines_without_a_unique_provider_id_are_kept() {
    let without_id = node("bad", "good", "small", "")
        .replace(", providerID: ''", "")
        .replace("providerID: '', ", "")
        .replace("spec: {providerID: ''}", "spec: {}");
    check_kept(&(without_id + &pod("p-bad", "bad")), CATALOG, "NoProviderId", "no provider ID");
    let twins = node("bad", "good", "small", "aws:///a/i-1") + &node("twin", "good", "small", "aws:///a/i-1") + &pod("p-bad", "bad");
    check_kept(&twins, CATALOG, "ProviderIdTwice", "aws:///a/i-1");
    let answer = decided(&(good() + &twins), CATALOG, PackingArg::Best);
    assert_eq!(verdict(&answer, "twin")["code"], "ProviderIdTwice");
}

#[test]
fn nodes_of_a_deleted_pool_and_an_empty_cluster_are_no_error() {
    check_kept(
        &(node("bad", "gone", "small", "aws:///a/i-bad") + &pod("p-bad", "bad")),
        CATALOG,
        "NodePoolUnknown",
        "NodePool gone does not exist",
    );
    let nothing = decide(&read(""), &InstanceTypesByPool::new(), PackingArg::Best);
    assert_eq!(output::text(&nothing, &Costs::default()), "nothing to do\n");
}

#[test]
fn an_empty_node_that_fits_a_pending_pod_is_kept() {
    let waits = "apiVersion: v1\nkind: Pod\nmetadata: {name: waits}\nspec: {nodeSelector: {node.kubernetes.io/instance-type: small}, containers: [{name: a, image: a, resources: {requests: {cpu: '1'}}}]}\n---\n";
    let text = pool("good", "{budgets: [{nodes: 100%}]}") + &node("bad", "good", "small", "aws:///a/i-bad") + waits;
    let answer = decided(&text, CATALOG, PackingArg::Best);
    assert_eq!(verdict(&answer, "bad")["why"], "kept: empty, but pending pods fit on it: default/waits");
    assert_eq!(list(&answer, "commands"), [] as [Value; 0]);
}

#[test]
fn verdicts_have_a_text_and_structured_details() {
    let budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: api, namespace: web}\nspec: {selector: {matchLabels: {app: api}}}\nstatus: {disruptionsAllowed: 0}\n---\n";
    let pod = pod("p", "bad").replace("metadata: {name: p}", "metadata: {name: p, namespace: web, labels: {app: api}}");
    let text = node("bad", "good", "small", "aws:///a/i-bad") + &pod + budget;
    check_kept(&text, CATALOG, "PodDisruptionBudget", "kept: PDB web/api allows 0 disruptions");
    let answer = decided(&(good() + &text), CATALOG, PackingArg::Best);
    assert_eq!(verdict(&answer, "bad")["detail"], serde_json::json!({"podDisruptionBudgets": ["web/api"]}));
    let used = verdict(&answer, "used");
    assert_eq!((used["verdict"].as_str(), used["detail"]["savings"].as_f64()), (Some("delete"), Some(0.8)));
}

/// A static NodePool that allows only large machines, and its small one.
fn drifted_static() -> String {
    let pool = pool("st", "{budgets: [{nodes: 100%}]}").replace("spec:\n", "spec:\n  replicas: 1\n");
    let large = "requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [large]}]";
    pool.replace("requirements: []", large) + &node("st-0", "st", "small", "aws:///a/i-st")
}

#[test]
fn drift_of_a_static_pool_is_replaced_unless_its_gate_is_off() {
    let answer = decided(&drifted_static(), CATALOG, PackingArg::Best);
    let [command] = list(&answer, "commands") else { panic!("one command: {answer:#}") };
    assert_eq!((command["reason"].as_str(), command["decision"].as_str()), (Some("Drifted"), Some("replace")));
    assert_eq!(command["candidates"], serde_json::json!(["st-0"]));
    let off = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {featureGates: StaticCapacity=false}\n";
    let answer = decided(&(drifted_static() + off), CATALOG, PackingArg::Best);
    assert_eq!(list(&answer, "commands"), [] as [Value; 0]);
    let kept = verdict(&answer, "st-0");
    assert_eq!((kept["code"].as_str(), kept["drifted"].as_str()), (Some("StaticNodePool"), Some("RequirementsDrifted")));
}

#[test]
fn a_replacement_whose_type_is_chosen_at_launch_is_told_as_such() {
    let read = read(&drifted_static());
    let offered = catalog::for_all_pools(&read.objects, catalog::parse(CATALOG).unwrap());
    let text = output::text(&decide(&read, &offered, PackingArg::Best), &Costs::default());
    let told = "  + st, of a type that is chosen at launch: counted at the price of its node\n";
    assert!(text.contains(told) && !text.contains("$0.0000"), "{text}");
}

const BUFFER: &str = "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {name: spare}\nspec: {podTemplateRef: {name: shape}, replicas: 1}\n---\n";
const SHAPE: &str = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: shape}\ntemplate: {spec: {containers: [{name: a, image: a, resources: {requests: {cpu: '10'}}}]}}\n---\n";

#[test]
fn a_node_with_buffer_pods_is_not_empty() {
    let empty = pool("still", "{budgets: [{nodes: 100%}]}") + &node("bad", "still", "large", "aws:///a/i-bad");
    let full = good() + &pod("filler", "used").replace("cpu: '1'", "cpu: '14'");
    let off = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {featureGates: CapacityBuffer=false}\n---\n";
    for packing in [PackingArg::Best, PackingArg::Reference] {
        let answer = decided(&(full.clone() + &empty + BUFFER + SHAPE), CATALOG, packing);
        assert_eq!(verdict(&answer, "bad")["code"], "BufferPods", "{packing:?}: {answer:#}");
        for without in [String::new(), format!("{BUFFER}{SHAPE}{off}"), BUFFER.to_owned()] {
            let answer = decided(&(full.clone() + &empty + &without), CATALOG, packing);
            assert_eq!(verdict(&answer, "bad")["code"], "Empty", "{packing:?}, {without}: {answer:#}");
        }
    }
}

#[test]
fn a_buffer_that_fits_nowhere_keeps_no_node() {
    let huge = SHAPE.replace("'10'", "'99'");
    check_kept(
        &(pool("bad", "{consolidateAfter: Never}") + &node("bad", "bad", "large", "aws:///a/i-bad") + BUFFER + &huge),
        CATALOG,
        "ConsolidationDisabled",
        "Never",
    );
}

#[test]
fn a_node_with_buffer_pods_is_replaced_only_if_they_fit_elsewhere() {
    let answer = decided(&(good() + BUFFER + SHAPE), CATALOG, PackingArg::Best);
    assert_eq!(verdict(&answer, "used")["code"], "NothingCheaper", "both fit on nothing smaller: {answer:#}");
    let small = SHAPE.replace("'10'", "500m");
    let answer = decided(&(good() + BUFFER + &small), CATALOG, PackingArg::Best);
    assert_eq!(verdict(&answer, "used")["verdict"], "replace", "{answer:#}");
}

#[test]
fn a_default_spread_constraint_limits_consolidation() {
    let config = r#"{"podTopologySpread": {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}]}}"#;
    let settings =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: plan-settings}}\ndata: {{schedulerConfig: '{config}'}}\n---\n");
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}}\n---\n";
    let twins = pool("good", "{budgets: [{nodes: 100%}]}")
        + &["a", "b"]
            .map(|name| {
                let labelled = pod(&format!("p-{name}"), name).replace("metadata: {", "metadata: {labels: {app: web}, ");
                node(name, "good", "small", &format!("aws:///a/i-{name}")) + &labelled
            })
            .concat();
    let removed = |text: &str| list(&decided(text, CATALOG, PackingArg::Reference), "commands").len();
    assert_eq!(removed(&twins), 1);
    assert_eq!(removed(&(twins.clone() + &settings)), 1, "no Service selects both pods");
    assert_eq!(removed(&(twins + &settings + service)), 0);
}

#[test]
fn a_dump_without_nodes_is_told() {
    let told = |text: &str| without_nodes(&read(text)).map(|remark| remark.to_string());
    assert_eq!(told(&good()), None);
    let text = told(&pool("good", "{budgets: [{nodes: 100%}]}")).unwrap();
    assert!(text.starts_with("warning: there is no Node among the objects") && text.contains("--context"), "{text}");
    // A pod is bound to a node that is not there.
    assert!(told(&(pool("good", "{budgets: [{nodes: 100%}]}") + &pod("p", "gone"))).is_some());
}

#[test]
fn a_dump_with_nodes_of_node_pools_and_without_node_claims_is_told() {
    let told = |text: &str| without_claims(&read(text)).map(|remark| remark.to_string());
    assert_eq!(told(&good()), None);
    let is_other = |document: &&str| !document.contains("kind: NodeClaim");
    let without = good().split("---\n").filter(is_other).collect::<Vec<_>>().join("---\n");
    let text = told(&without).unwrap();
    assert!(text.starts_with("warning: there is no NodeClaim among the objects") && text.contains("of NodePools: add those"), "{text}");
    assert_eq!(told(&pool("good", "{budgets: [{nodes: 100%}]}")), None);
}

#[test]
fn without_a_budget_in_a_dump_it_is_said_that_pods_are_moved() {
    let told = |text: &str| {
        let read = read(text);
        let offered = catalog::for_all_pools(&read.objects, catalog::parse(CATALOG).unwrap());
        without_budgets(&read, &decide(&read, &offered, PackingArg::Best)).map(|remark| remark.to_string())
    };
    assert!(told(&good()).unwrap().starts_with("note: there is no PodDisruptionBudget among the objects"));
    let budget =
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: other}\nspec: {selector: {matchLabels: {app: other}}}\n";
    assert_eq!(told(&(good() + budget)), None);
    let empty = pool("good", "{budgets: [{nodes: 100%}]}") + &node("used", "good", "large", "aws:///a/i-used");
    assert_eq!(told(&empty), None, "nothing is moved");
}

#[test]
fn a_drifted_node_that_is_kept_for_an_empty_one_says_when_its_turn_comes() {
    let told = |more: &str| {
        let text =
            pool("old", "{budgets: [{nodes: '1'}]}") + &node("old-1", "old", "unheard-of", "aws:///a/i-old") + &pod("p", "old-1") + more;
        let read = read(&text);
        let offered = catalog::for_all_pools(&read.objects, catalog::parse(CATALOG).unwrap());
        let decision = decide(&read, &offered, PackingArg::Best);
        let verdict = decision.verdicts.iter().find(|verdict| verdict.name() == "old-1").unwrap();
        (verdict.reason.to_string(), output::drifted_text(&decision, verdict))
    };
    let turn = "; it is replaced for that after the command of this pass";
    let alone = told("");
    assert!(alone.1.starts_with(" (drifted: ") && !alone.1.contains(turn), "{alone:?}");
    let after = told(&(pool("free", "{budgets: [{nodes: 100%}]}") + &node("free-1", "free", "small", "aws:///a/i-free")));
    assert!(after.0.starts_with("kept: ") && after.1.contains(turn), "{after:?}");
}

#[test]
fn what_is_saved_by_removing_a_node_of_unknown_price_is_not_known() {
    let text = pool("odd", "{budgets: [{nodes: 100%}]}") + &node("odd-1", "odd", "unheard-of", "aws:///a/i-odd");
    let read = read(&text);
    let offered = catalog::for_all_pools(&read.objects, catalog::parse(CATALOG).unwrap());
    let decision = decide(&read, &offered, PackingArg::Best);
    let unpriced = Some("not counted".to_owned());
    let now = Bill { nodes: 1, unpriced: 1, ..Bill::default() };
    let then = output::after(&now, &decision);
    let costs = Costs { then, paid: Paid { staying: now.clone(), now, unpriced }, ..Costs::default() };
    let told = output::text(&decision, &costs);
    assert!(told.starts_with("Empty: delete: [odd-1]") || told.starts_with("Drifted: "), "{told}");
    assert!(told.contains("(what it saves is not known: a price is not)\n"), "{told}");
    assert!(told.contains("together: $0.00 an hour saved, $0.00 a month, without 1 command whose savings are not known"), "{told}");
    assert!(
        told.contains("now $0.0000/h (0 nodes and 1 of unknown price) -> then $0.0000/h (0 nodes): the difference is not known"),
        "{told}"
    );
    assert_eq!(output::command(&decision.commands[0])["savings"], 0.0, "what has no price counts as nothing, as in Karpenter");
}

#[test]
fn workloads_that_only_own_pods_are_no_fault_and_change_nothing() {
    let commands = |text: &str| decided(text, CATALOG, PackingArg::Reference)["commands"].clone();
    let alone = commands(&good());
    assert_eq!(alone.as_array().map(Vec::len), Some(1), "{alone}");
    for kind in ["Deployment", "ReplicaSet", "StatefulSet"] {
        let workload = |spec: &str| format!("apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web, uid: u}}\n{spec}---\n");
        for spec in ["", "spec: {}\n", "spec:\nstatus: {}\n"] {
            let text = good() + &workload(spec);
            let found = read(&text);
            assert!(found.refused.is_empty() && found.blocks_disruption.is_empty(), "{kind} {spec:?}: {:?}", found.refused);
            assert_eq!(found.skipped, [format!("apps/v1 {kind} web")], "{spec:?}");
            assert_eq!(commands(&text), alone, "{kind} {spec:?}");
        }
        // Half of a workload is a mistake.
        for spec in ["spec: {replicas: 2}\n", "spec: {template: {}}\n", "template: {}\n", "spec: []\n"] {
            let found = read(&(good() + &workload(spec)));
            assert!(!found.blocks_disruption.is_empty() && found.skipped.is_empty(), "{kind} {spec:?}");
        }
    }
}
