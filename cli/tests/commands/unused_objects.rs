//! NodePools and NodeOverlays of which nothing comes: a plan says so, and why.

use crate::{err, out, tests, whittle};
use std::process::Output;

const PODS: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: a}\nspec: {containers: [{name: c, image: i, resources: {requests: {cpu: \"1\"}}}]}\n";

fn pool(requirement: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{template: {{spec: {{nodeClassRef: {{group: \
         karpenter.k8s.aws, kind: EC2NodeClass, name: c}}, requirements: [{requirement}]}}}}}}\n"
    )
}

fn overlay(name: &str, price: &str, weight: u32) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {{name: {name}}}\nspec: {{{price}, weight: {weight}, \
         requirements: [{{key: kubernetes.io/os, operator: In, values: [linux]}}]}}\n"
    )
}

/// What a command says of manifests with a small catalog: a debug build takes half a second for the tables of a region.
fn answered(command: &[&str], manifests: &str) -> Output {
    let catalog = tests().join("golden/catalog.json").display().to_string();
    whittle(&[command, &["-f", "-", "--instance-types", &catalog]].concat(), manifests)
}

fn planned(manifests: &str) -> Output {
    answered(&["plan"], manifests)
}

/// What the plan costs, in dollars an hour.
fn price(output: &Output) -> f64 {
    let text = out(output);
    let price = text.split_once(", $").and_then(|(_, rest)| rest.split_once("/h")).unwrap_or_default().0;
    price.parse().unwrap_or_else(|_| panic!("{text}{}", err(output)))
}

/// A class that is there and refused is not missing, and its error says what to write.
#[test]
fn a_class_that_is_refused_is_told_as_such_with_what_to_write() {
    let class = |size: &str| {
        format!(
            "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: c}}\nspec: {{amiSelectorTerms: [{{alias: \
             al2023@latest}}], role: r, subnetSelectorTerms: [{{id: subnet-1}}], securityGroupSelectorTerms: [{{id: sg-1}}], \
             blockDeviceMappings: [{{deviceName: /dev/xvda, ebs: {{volumeSize: {size}}}}}]}}\n"
        )
    };
    let refused =
        "NodePool \"p\", spec.template.spec.nodeClassRef: EC2NodeClass \"c\" is refused, and without it no node is launched: correct it";
    for (size, written) in [("20", "text is needed here, not 20: "), ("'20'", "\"20\" does not have the form ")] {
        let input = format!("{PODS}{}{}", pool(""), class(size));
        for words in [&["check", "-f", "-"][..], &["plan", "-f", "-", "--region", "us-east-1"]] {
            let output = whittle(words, &input);
            let said = format!("{}{}", out(&output), err(&output));
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(refused) && !said.contains("is missing"), "{said}");
            assert!(said.contains(written) && said.contains(": write a size with its unit, such as 20Gi"), "{said}");
        }
    }
    // One that is given twice, and differently, counts in neither form.
    let twice = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &format!("{PODS}{}{}{}", pool(""), class("20Gi"), class("30Gi")));
    assert!(err(&twice).contains(refused) && !err(&twice).contains("is missing"), "{}", err(&twice));
    let missing = whittle(&["check", "-f", "-"], &pool(""));
    let said = format!("{}{}", out(&missing), err(&missing));
    assert!(said.contains("EC2NodeClass \"c\" is missing, and without it no node is launched: add it, or correct the name\n"), "{said}");
    let near = format!("{}{}", pool("").replace("name: c}", "name: defualt}"), class("20Gi").replace("name: c}", "name: default}"));
    let near = whittle(&["check", "-f", "-"], &near);
    let said = format!("{}{}", out(&near), err(&near));
    let wanted =
        "EC2NodeClass \"defualt\" is missing, and without it no node is launched: add it, or correct the name (did you mean \"default\"?)";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn what_is_planned_otherwise_than_it_may_come_is_said() {
    let pods = |spec: &str| PODS.replace("spec: {", &format!("spec: {{{spec}, "));
    let volcano = planned(&format!("{}{}", pods("schedulerName: volcano"), pool("")));
    assert!(out(&volcano).starts_with("1 of 1 pods placed"), "{}", out(&volcano));
    assert!(
        err(&volcano).contains("note: 1 pod waits for the scheduler \"volcano\" (spec.schedulerName): planned as if"),
        "{}",
        err(&volcano)
    );
    for (class, told) in [("gold", true), ("system-cluster-critical", false)] {
        let named = planned(&format!("{}{}", pods(&format!("priorityClassName: {class}")), pool("")));
        let note = format!("note: PriorityClass \"{class}\" is not given: 1 pod that names it counts as of priority 0");
        assert_eq!((err(&named).contains(&note), out(&named).starts_with("1 of 1 pods placed")), (told, true), "{}", err(&named));
    }
    let boxed = pods("runtimeClassName: boxed");
    let unknown = planned(&format!("{boxed}{}", pool("")));
    let note = "note: RuntimeClass \"boxed\" is not given: 1 pod that names it lacks what it adds";
    assert!(err(&unknown).contains(note) && out(&unknown).starts_with("1 of 1 pods placed"), "{}", err(&unknown));
    let class = "---\n{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: boxed}, handler: h, \
                 scheduling: {nodeSelector: {box: a}}}\n";
    let deployment = "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {selector: {matchLabels: {a: b}}, template: \
                      {metadata: {labels: {a: b}}, spec: {runtimeClassName: boxed, containers: [{name: c, image: i}]}}}}\n";
    let known = planned(&format!("{boxed}{}{class}{deployment}", pool("")));
    assert!(out(&known).starts_with("0 of 2 pods placed"), "no NodePool has its label: {}{}", out(&known), err(&known));
    assert!(!err(&known).contains("RuntimeClass"), "{}", err(&known));
    let terms = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}";
    let empty = planned(&format!("{}{}", pods(terms), pool("")));
    assert!(out(&empty).starts_with("0 of 1 pods placed") && out(&empty).contains("an empty term matches no node"), "{}", out(&empty));
    let checked = whittle(&["check", "-f", "-"], &pods(terms));
    let warning = "warning: Pod \"a\", spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: an \
                   empty term matches no node, so that its pods never run";
    assert!(out(&checked).contains(warning), "{}", out(&checked));
}

#[test]
fn a_class_with_more_pods_than_a_kubelet_counts_launches_nothing() {
    let class = "---\n{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: c}, spec: {role: r, kubelet: {maxPods: 2147483648}, \
                 amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}]}}\n";
    let planned = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &format!("{PODS}{}{class}", pool("")));
    assert!(out(&planned).starts_with("0 of 1 pods placed"), "{}", out(&planned));
    assert!(err(&planned).contains("spec.kubelet.maxPods: 2147483648 is beyond 32 bits: at most 2147483647"), "{}", err(&planned));
}

/// A class of a family, with some more of its spec.
fn class(family: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {{name: c}}, spec: {{role: r, {spec}, amiSelectorTerms: \
         [{{alias: {family}@latest}}], subnetSelectorTerms: [{{tags: {{a: b}}}}], securityGroupSelectorTerms: [{{tags: {{a: b}}}}]}}}}\n"
    )
}

/// Whether `check` and `plan` warn of it in a class.
#[track_caller]
fn check_warned(class: &str, warning: &str, warned: bool) {
    let checked = whittle(&["check", "-f", "-"], class);
    let planned = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &format!("{PODS}{}{class}", pool("")));
    assert!(checked.status.success(), "{}", err(&checked));
    for text in [out(&checked), err(&planned)] {
        assert_eq!(text.contains(&format!("warning: EC2NodeClass \"c\", {warning}")), warned, "{text}");
    }
}

#[test]
fn a_plan_with_a_class_without_a_spec_says_that_nothing_is_launched() {
    let class = "---\n{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: c}}\n";
    let planned = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &format!("{PODS}{}{class}", pool("")));
    let wanted = "warning: EC2NodeClass \"c\", spec: missing: it selects no subnet, no security group and no image, so that no node is";
    assert!(err(&planned).contains(wanted), "{}", err(&planned));
}

#[test]
fn a_setting_of_a_class_that_its_nodes_do_not_follow_is_warned_of() {
    for family in ["windows2022", "al2023"] {
        let class = class(family, "instanceStorePolicy: RAID0");
        check_warned(&class, "spec.instanceStorePolicy: RAID0 does nothing on nodes of Windows2022", family == "windows2022");
    }
    for (setting, warned) in [("max-pod", true), ("log-level", false)] {
        let class = class("bottlerocket", &format!("userData: \"[settings.kubernetes]\\n{setting} = 4\\n\""));
        check_warned(&class, "spec.userData: settings.kubernetes.max-pod is left out of what nodes are given", warned);
    }
}

#[test]
fn a_provisioner_and_a_node_pool_of_one_name_are_remarked() {
    let both =
        pool("") + "---\n{apiVersion: karpenter.sh/v1alpha5, kind: Provisioner, metadata: {name: p}, spec: {providerRef: {name: c}}}\n";
    let checked = whittle(&["check", "-f", "-"], &both);
    assert!(out(&checked).contains("warning: NodePool \"p\", Provisioner \"p\" has its name: both launch nodes"), "{}", out(&checked));
}

#[test]
fn an_invalid_pool_launches_nothing_and_says_which_field_is_wrong() {
    let good = planned(&format!("{PODS}{}", pool("")));
    assert!(good.status.success() && out(&good).starts_with("1 of 1 pods placed"), "{}{}", out(&good), err(&good));
    let odd = planned(&format!("{PODS}{}", pool("{key: team, operator: In, values: [\"a\\nFORGED\"]}")));
    let (out, err) = (out(&odd), err(&odd));
    assert_eq!(odd.status.code(), Some(1), "{err}");
    assert!(out.starts_with("0 of 1 pods placed") && out.contains("NodePool \"p\" is not ready: NodePoolValidationFailed"), "{out}");
    assert!(err.contains("NodePool \"p\", spec.template.spec.requirements[0].values[0]: \"a\\nFORGED\" is no label value"), "{err}");
    assert!(!out.lines().chain(err.lines()).any(|line| line.starts_with("FORGED")), "{out}{err}");
}

#[test]
fn a_node_with_a_label_that_no_server_takes_is_refused() {
    let node = |value: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: m, labels: {{node.kubernetes.io/instance-type: {value}}}}}\nspec: {{}}\n"
        )
    };
    let good = planned(&format!("{PODS}{}{}", pool(""), node("m5.large")));
    assert!(good.status.success(), "{}", err(&good));
    let odd = planned(&format!("{PODS}{}{}", pool(""), node("\"m5.large\\nFORGED\"")));
    assert_eq!(odd.status.code(), Some(1));
    let wanted = "Node \"m\", metadata.labels[node.kubernetes.io/instance-type]: \"m5.large\\nFORGED\" is no label value";
    assert!(err(&odd).contains(wanted) && !out(&odd).contains("FORGED"), "{}{}", err(&odd), out(&odd));
}

#[test]
fn a_value_that_no_line_can_hold_is_shown_with_escapes() {
    let odd = planned(&format!("{PODS}{}", pool("").replace("spec: {template", "spec: {limits: {cpu: \"1\\u2028FORGED\"}, template")));
    assert!(err(&odd).contains("spec.limits.cpu: \"1\\u{2028}FORGED\" is no quantity"), "{}", err(&odd));
}

#[test]
fn what_a_server_refuses_of_a_pool_is_told_once() {
    let taints = pool("").replace("requirements", "taints: [{key: \"a b\", effect: NoSchedule}], requirements");
    let output = planned(&format!("{PODS}{taints}"));
    assert_eq!(err(&output).lines().filter(|line| line.contains("taints[0].key")).count(), 1, "{}", err(&output));
}

#[test]
fn a_plan_has_the_prices_of_node_overlays_as_the_functions_do() {
    let manifests = format!("{PODS}{}", pool(""));
    let without = price(&planned(&manifests));
    let doubled = planned(&format!("{manifests}{}", overlay("a", "priceAdjustment: +100%", 1)));
    assert!((price(&doubled) - 2.0 * without).abs() < 0.001, "{}", out(&doubled));
    assert!(!err(&doubled).contains("NodeOverlay"), "{}", err(&doubled));
    let off = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {featureGates: NodeOverlay=false}\n";
    let gated = planned(&format!("{manifests}{}{off}", overlay("a", "priceAdjustment: +100%", 1)));
    assert!((price(&gated) - without).abs() < 0.001, "{}", out(&gated));
    assert!(
        err(&gated).contains("NodeOverlay \"a\" has no effect: plan-settings turns the feature gate NodeOverlay off"),
        "{}",
        err(&gated)
    );
}

#[test]
fn an_overlay_in_conflict_has_no_effect_and_says_with_which() {
    let both = format!("{PODS}{}{}{}", pool(""), overlay("a", "price: '0.5'", 1), overlay("b", "price: '0.1'", 1));
    let output = planned(&both);
    let wanted = "NodeOverlay \"a\" has no effect: NodeOverlay \"b\" of the same weight changes the same: give one of them another weight";
    assert!(err(&output).contains(wanted), "{}", err(&output));
    assert!((price(&output) - 0.1).abs() < 0.001, "{}", out(&output));
}

#[test]
fn an_overlay_that_no_instance_type_meets_has_no_effect_and_says_so() {
    let misspelt = overlay("a", "price: '0.5'", 1)
        .replace("kubernetes.io/os, operator: In, values: [linux]", "node.kubernetes.io/instance-type, operator: In, values: [m5.lagre]");
    let output = planned(&format!("{PODS}{}{misspelt}", pool("")));
    let wanted = "NodeOverlay \"a\" has no effect: no instance type that a NodePool is offered meets spec.requirements: compare";
    assert!(err(&output).contains(wanted), "{}", err(&output));
    assert_eq!(out(&output), out(&planned(&format!("{PODS}{}", pool("")))));
}

#[test]
fn check_names_limits_and_budgets_that_hold_nothing_back() {
    let odd = pool("").replace(
        "spec: {template",
        "spec: {limits: {CPU: 5, cpu: 9}, disruption: {budgets: [{nodes: '0', schedule: 0 0 30 2 *, duration: 1h}]}, template",
    );
    let output = whittle(&["check", "-f", "-"], &odd);
    let told = format!("{}{}", out(&output), err(&output));
    assert!(told.contains("spec.limits.CPU: no node has a resource \"CPU\"") && !told.contains("spec.limits.cpu"), "{told}");
    assert!(told.contains("spec.disruption.budgets[0].schedule: \"0 0 30 2 *\" names a day that no year has"), "{told}");
}

/// The scheduler looks at no pod with gates, and Karpenter launches nothing for it.
#[test]
fn a_gated_pod_is_planned_once_its_gates_are_gone() {
    let pod = |more: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: g}}\nspec: {{{more}containers: [{{name: c}}]}}\n");
    let told = |command: &[&str], more: &str| out(&answered(command, &format!("{}{}", pod(more), pool(""))));
    let gates = "schedulingGates: [{name: quota}], ";
    let nothing = "0 of 0 pods placed, 0 new machines, $0.0000/h: there is no pod to place\n";
    assert!(told(&["plan"], gates).starts_with(nothing), "{}", told(&["plan"], gates));
    assert!(!told(&["plan"], "").contains("no pod to place"), "{}", told(&["plan"], ""));
    let noted = err(&planned(&format!("{}{}", pod(gates), pool(""))));
    assert!(noted.contains("note: 1 pod is held back by spec.schedulingGates: nothing is planned"), "{noted}");
    assert!(told(&["explain", "g"], gates).contains("its spec.schedulingGates hold it back"), "{}", told(&["explain", "g"], gates));
    assert!(told(&["plan"], "").starts_with("1 of 1 pods placed"), "{}", told(&["plan"], ""));
}

/// Such pods were in no part of the output, and `explain` said of some what is not so.
#[test]
fn pods_that_are_neither_planned_nor_on_a_known_node_are_told() {
    let pod = |name: &str, metadata: &str, spec: &str, status: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}{metadata}}}, spec: {{containers: [{{name: c}}]{spec}}}, status: {{{status}}}}}\n"
        )
    };
    let owned = ", ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: u}]";
    let waits = "phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: ";
    let pods = [
        pod("nominated", "", "", &format!("{waits}Unschedulable}}], nominatedNodeName: gone")),
        pod("away", "", ", nodeName: missing", "phase: Running"),
        pod("away-too", "", ", nodeName: another", "phase: Running"),
        pod("daemon", owned, "", "phase: Pending"),
        pod("failed", "", "", &format!("{waits}SchedulerError}}]")),
        pod("done", "", ", nodeName: missing", "phase: Succeeded"),
        pod("kruise", &owned.replace("apps/v1", "apps.kruise.io/v1alpha1"), "", &format!("{waits}Unschedulable}}]")),
        pod("going", ", deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [a.b/c]", "", &format!("{waits}Unschedulable}}]")),
        pod("ended", "", "", &format!("{waits}Unschedulable}}]").replace("Pending", "Failed")),
    ];
    let given = format!("{}{}", pool(""), pods.concat());
    let told = err(&planned(&given));
    for reason in [
        "note: left aside: default/nominated: it waits for room on gone (status.nominatedNodeName), a node that is not among the objects",
        "note: left aside: default/away-too, default/away: on nodes that are not among the objects",
        "note: left aside: default/daemon: a DaemonSet owns it that is not among the objects: it is counted on no machine",
        "note: left aside: default/failed: the scheduler has not marked it unschedulable",
    ] {
        assert!(told.contains(reason), "{reason}\n{told}");
    }
    assert!(["done", "going", "ended"].iter().all(|name| !told.contains(&format!("default/{name}"))), "{told}");
    for (name, why) in [
        ("kruise", "a DaemonSet of apps.kruise.io/v1alpha1 owns it, whose controller places it"),
        ("going", "it is being deleted: nothing binds it to a node any more"),
        ("ended", "it has ended (status.phase Failed): nothing binds it to a node any more"),
    ] {
        let explained = out(&answered(&["explain", name], &given));
        assert!(explained.contains(why), "{explained}");
    }
    let node = "---\n{apiVersion: v1, kind: Node, metadata: {name: gone}, status: {capacity: {cpu: '4', memory: 8Gi, pods: '9'}}}\n";
    let there = format!("{given}{node}");
    let told = err(&planned(&there));
    assert!(!told.contains("default/nominated"), "it counts there: {told}");
    let explained = out(&answered(&["explain", "nominated"], &there));
    assert!(explained.contains("kube-scheduler has chosen gone for it (status.nominatedNodeName), where it counts"), "{explained}");
    let another = format!("{given}{}", node.replace("name: gone", "name: another-node"));
    let output = planned(&another);
    let (placed, noted) = (out(&output), err(&output));
    assert!(placed.starts_with("1 of 1 pods placed") && !noted.contains("default/nominated"), "{placed}{noted}");
    let explained = out(&answered(&["explain", "daemon"], &given));
    assert!(explained.contains("it is counted on no machine"), "{explained}");
    let set = "---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: \
               {labels: {a: b}}, spec: {containers: [{name: c}]}}}}\n";
    let counted = out(&answered(&["explain", "daemon"], &format!("{given}{set}")));
    assert!(counted.contains("it is counted on every machine that it would run on"), "{counted}");
}

#[test]
fn without_a_node_pool_a_plan_says_what_to_add() {
    let output = planned(PODS);
    assert!(out(&output).contains("no dynamic nodepools found\n  there is no NodePool, or only such with replicas"), "{}", out(&output));
    assert!(!out(&planned(&format!("{PODS}{}", pool("")))).contains("there is no NodePool"));
}

#[test]
fn machines_that_run_cost_what_an_overlay_says_as_those_to_buy_do() {
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: m, labels: {karpenter.sh/nodepool: p, node.kubernetes.io/instance-type: m5.large, \
                topology.kubernetes.io/zone: us-east-1a, karpenter.sh/capacity-type: on-demand}}\nspec: {providerID: aws:///us-east-1a/i-1}\n";
    let now = |more: &str| {
        let output = whittle(&["plan", "-f", "-", "--region", "us-east-1"], &format!("{}{node}{more}", pool("")));
        out(&output).lines().find(|line| line.starts_with("now ")).unwrap_or_default().to_owned()
    };
    assert!(now("").starts_with("now $0.0960/h (1 node)"), "{}", now(""));
    let half = overlay("a", "priceAdjustment: -50%", 1);
    assert!(now(&half).starts_with("now $0.0480/h (1 node)"), "{}", now(&half));
}

#[test]
fn a_price_of_an_overlay_that_no_machine_has_is_refused_and_never_added_up() {
    let without = out(&planned(&format!("{PODS}{}", pool(""))));
    for price in ["price: '99999999999'", "priceAdjustment: '+99999999999999%'", "priceAdjustment: '+18446744074'"] {
        let output = planned(&format!("{PODS}{}{}", pool(""), overlay("a", price, 1)));
        assert!(
            err(&output).contains("NodeOverlay \"a\" has no effect: ") && err(&output).contains("is no price"),
            "{price}: {}",
            err(&output)
        );
        assert_eq!(out(&output), without, "{price}");
    }
}

#[test]
fn a_feature_gate_that_is_none_is_named_and_one_that_is_known_is_not() {
    let gates = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {featureGates: \"SpotToSpot=true,StaticCapacity=true\"}\n";
    let output = planned(&format!("{PODS}{}{gates}", pool("")));
    let wanted = "has no effect: feature gate \"SpotToSpot\" of plan-settings: write one of CapacityBuffer, NodeClassCEL, NodeOverlay, ReservedCapacity, SpotToSpotConsolidation, ";
    assert!(output.status.success() && err(&output).contains(wanted), "{}", err(&output));
    assert!(!err(&output).contains("gate \"StaticCapacity\""), "{}", err(&output));
}

#[test]
fn a_class_that_says_it_is_not_ready_launches_nothing_and_one_without_conditions_does() {
    let class = |status: &str| {
        format!(
            "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: c}}\nspec: {{amiSelectorTerms: [{{alias: al2023@latest}}], role: r, \
             subnetSelectorTerms: [{{id: subnet-1}}], securityGroupSelectorTerms: [{{id: sg-1}}]}}\n{status}"
        )
    };
    let told = |command: &[&str], status: &str| {
        let output = whittle(&[command, &["-f", "-", "--region", "eu-west-1"]].concat(), &format!("{PODS}{}{}", pool(""), class(status)));
        out(&output)
    };
    let refused = "status: {conditions: [{type: SubnetsReady, status: \"False\", reason: SubnetsNotFound, message: none}, \
                   {type: Ready, status: \"False\", reason: x, message: z}]}\n";
    assert!(told(&["plan"], "").starts_with("1 of 1 pods placed"), "{}", told(&["plan"], ""));
    let text = told(&["plan"], refused);
    assert!(text.starts_with("0 of 1 pods placed") && text.contains("EC2NodeClass \"c\" is not ready: SubnetsNotFound: none"), "{text}");
    let text = told(&["explain", "a"], refused);
    assert!(
        text.contains("what it would take (nodepool p): EC2NodeClass \"c\", ready: correct what its conditions report as SubnetsNotFound"),
        "{text}"
    );
}

/// Karpenter marks the second, and leaves it aside; an API server takes both.
#[test]
fn check_names_overlays_of_one_weight_that_change_the_same() {
    let checked = |other: u32| {
        let both = format!("{}{}", overlay("a", "priceAdjustment: -50%", 1), overlay("b", "priceAdjustment: -10%", other));
        let output = whittle(&["check", "-f", "-"], &both);
        format!("{}{}", out(&output), err(&output))
    };
    assert!(checked(1).contains("give one of them another weight"), "{}", checked(1));
    assert!(!checked(2).contains("give one of them another weight"), "{}", checked(2));
}

#[test]
fn check_names_requirements_that_no_type_meets_together() {
    let class = "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: c}\nspec: {role: r, amiSelectorTerms: [{alias: \
                 al2023@latest}], subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}\n";
    let checked = |requirements: &str| {
        let output = whittle(&["check", "-f", "-"], &format!("{}{class}", pool(requirements)));
        format!("{}{}", out(&output), err(&output))
    };
    let arm = "{key: kubernetes.io/arch, operator: In, values: [arm64]}";
    let of = |key: &str, value: &str| format!("{arm}, {{key: {key}, operator: In, values: [{value}]}}");
    let both = checked(&of("node.kubernetes.io/instance-type", "m5.large"));
    assert!(both.contains("no instance type of us-east-1 meets all of them, and the NodePool launches nothing: "), "{both}");
    assert!(both.contains("instance-type In [m5.large] rules out ") && both.contains("arch In [arm64] rules out "), "{both}");
    let there = checked(
        &of("topology.kubernetes.io/zone", "eu-west-1a")
            .replace("arm64]}", "arm64]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5]}"),
    );
    assert!(there.contains("no instance type of eu-west-1 meets all"), "{there}");
    // Types, and markets, of which the tables know nothing, and what another region sells.
    for fine in [
        "{key: karpenter.k8s.aws/instance-family, operator: In, values: [trn2]}".to_owned(),
        "{key: karpenter.k8s.aws/instance-gpu-manufacturer, operator: In, values: [amd]}".to_owned(),
        of("node.kubernetes.io/instance-type", "m5.large, m6g.large"),
        of("node.kubernetes.io/instance-type", "m99g.large"),
        of("karpenter.sh/capacity-type", "reserved"),
        of("topology.kubernetes.io/zone", "us-west-2-lax-1a"),
    ] {
        assert!(!checked(&fine).contains("meets all of them"), "{}", checked(&fine));
    }
    let overlay =
        overlay("a", "price: '0.1'", 1).replace("kubernetes.io/os", "node.kubernetes.io/instance-type").replace("[linux]", "[m5.larg]");
    let output = whittle(&["check", "-f", "-"], &overlay);
    let output = format!("{}{}", out(&output), err(&output));
    assert!(
        output.contains("NodeOverlay \"a\", spec.requirements[0]: no instance type has") && output.contains("did you mean m5.large?"),
        "{output}"
    );
}

/// A class whose kubelet settings no node can have launches nothing, and the pods of other classes are planned all the same.
#[test]
fn a_class_that_launches_nothing_whatever_ec2_has_is_told_by_plan_and_check() {
    let class = |name: &str, kubelet: &str| {
        format!(
            "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: {name}}}\nspec: {{role: r, amiSelectorTerms: [{{alias: \
             al2023@latest}}], kubelet: {{{kubelet}}}, subnetSelectorTerms: [{{id: subnet-1}}], securityGroupSelectorTerms: [{{id: sg-1}}]}}\n"
        )
    };
    let other = pool("").replace("name: p}", "name: other}").replace("name: c}", "name: good}");
    let gate = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: plan-settings}\ndata: {featureGates: NodeClassCEL=true}\n";
    for (kubelet, says, checked, with_gate) in [
        ("maxPods: -1", "spec.kubelet.maxPods: -1 is negative: at least 0", "spec.kubelet.maxPods: -1 is negative", 0),
        ("maxPods: \"yes\"", "spec.kubelet.maxPods holds an expression", "unknown variable \"yes\"", 0),
        ("maxPods: \"max_pods - 1\"", "spec.kubelet.maxPods holds an expression", "NodeClassExpressions is true", 1),
    ] {
        let manifests = format!("{PODS}{}{}", pool(""), class("c", kubelet));
        let plan = |manifests: &str| whittle(&["plan", "-f", "-", "--region", "eu-west-1"], manifests);
        let alone = plan(&manifests);
        assert_eq!(alone.status.code(), Some(1), "{kubelet}: {}{}", out(&alone), err(&alone));
        assert!(err(&alone).contains(&format!("error: refused: EC2NodeClass \"c\", {says}")), "{kubelet}: {}", err(&alone));
        assert!(out(&alone).contains("0 of 1 pods placed") && out(&alone).contains(says), "{kubelet}: {}", out(&alone));
        let beside = plan(&format!("{manifests}{other}{}", class("good", "maxPods: 20")));
        assert!(out(&beside).contains("1 of 1 pods placed") && out(&beside).contains(" other "), "{kubelet}: {}", out(&beside));
        let on = plan(&format!("{manifests}{gate}"));
        assert!(out(&on).contains(&format!("{with_gate} of 1 pods placed")), "{kubelet}: {}", out(&on));
        let judged = whittle(&["check", "-f", "-"], &manifests);
        assert!(format!("{}{}", out(&judged), err(&judged)).contains(checked), "{kubelet}: {}{}", out(&judged), err(&judged));
        assert_eq!(judged.status.success(), with_gate == 1, "{kubelet}");
    }
}

#[test]
fn messages_of_conditions_print_no_lines_of_their_own() {
    let pool = |status: &str| {
        format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: few}}\nspec: {{template: {{spec: {{nodeClassRef: {{group: \
             karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, requirements: []}}}}}}\n{status}---\napiVersion: v1\nkind: Pod\n\
             metadata: {{name: web}}\nspec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}\n"
        )
    };
    let hostile = "status: {conditions: [{type: Ready, status: \"False\", reason: \"R\\nFORGED 1\", message: \"m\\nFORGED 2\", \
                   lastTransitionTime: \"2026-01-01T00:00:00Z\"}]}\n";
    let class = format!(
        "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: default}}\nspec: {{role: r, amiSelectorTerms: \
                         [{{alias: al2023@latest}}], subnetSelectorTerms: [{{id: subnet-1}}], securityGroupSelectorTerms: [{{id: sg-1}}]}}\n{hostile}"
    );
    for input in [pool(hostile), format!("{}{class}", pool(""))] {
        let said = whittle(&["explain", "nodepool/few", "-f", "-", "--region", "us-east-1"], &input);
        let text = out(&said);
        assert!(text.contains("FORGED"), "{text}{}", err(&said));
        assert!(!text.lines().any(|line| line.trim_start().starts_with("FORGED")), "{text}");
    }
}

/// EKS Auto Mode has NodePools beside ours, perhaps with classes of the same names.
#[test]
fn node_pools_of_another_controller_are_left_out_with_a_note_by_every_command() {
    let theirs =
        pool("").replace("karpenter.k8s.aws, kind: EC2NodeClass", "eks.amazonaws.com, kind: NodeClass").replace("{name: p}", "{name: q}");
    let note = "NodePool \"q\" is managed by another controller (its node class is eks.amazonaws.com/NodeClass \"c\")";
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: old, labels: {karpenter.sh/nodepool: q, karpenter.sh/capacity-type: on-demand, \
                node.kubernetes.io/instance-type: c5.large, topology.kubernetes.io/zone: us-east-1a}}\n\
                spec: {providerID: 'aws:///us-east-1a/i-1'}\nstatus: {allocatable: {cpu: 2, memory: 4Gi, pods: 29}}\n---\napiVersion: v1\nkind: Pod\n\
                metadata: {name: there}\nspec: {nodeName: old, containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}\n";
    let with = |command: &[&str], manifests: &str| {
        let ran = whittle(&[command, &["-f", "-", "--region", "us-east-1"]].concat(), manifests);
        assert!(err(&ran).contains(&format!("note: {note}: it is not planned for")), "{command:?}: {}{}", out(&ran), err(&ran));
        out(&ran)
    };
    let alone = with(&["plan"], &format!("{PODS}{theirs}"));
    assert!(alone.starts_with("0 of 1 pods placed") && !alone.contains("nodepool q"), "{alone}");
    let both = with(&["plan"], &format!("{PODS}{theirs}{}", pool("")));
    assert!(both.starts_with("1 of 1 pods placed") && both.contains("new machine from nodepool p"), "{both}");
    let consolidated = with(&["consolidate"], &format!("{PODS}{theirs}{}{node}", pool("")));
    assert!(consolidated.contains("old  kept: it has no NodeClaim of ours"), "{consolidated}");
    let compared = with(&["compare"], &format!("{PODS}{theirs}{}{node}", pool("")));
    assert!(compared.starts_with("You pay "), "{compared}");
    let none = whittle(&["compare", "-f", "-", "--region", "us-east-1"], &format!("{PODS}{theirs}{node}"));
    assert!(err(&none).contains("there is no NodePool") && err(&none).contains(note), "{}", err(&none));
    let named = with(&["explain", "nodepool/q"], &format!("{PODS}{theirs}"));
    assert_eq!(named.trim_end(), format!("{note}: it is not planned for"));
    let selecting = PODS.replace("spec: {", "spec: {nodeSelector: {karpenter.sh/nodepool: q}, ");
    let explained = with(&["explain", "a"], &format!("{selecting}{theirs}{}", pool("")));
    assert!(explained.contains(&format!("{note}: it is not planned for, and its node selector asks for it")), "{explained}");
    let checked = whittle(&["check", "-f", "-"], &theirs);
    assert!(
        out(&checked).contains(&format!("note: {note}: it is not looked at")) && !out(&checked).contains("fine\n"),
        "{}",
        out(&checked)
    );
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn daemon_sets_without_room_on_nodes_that_run_are_told() {
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: full, labels: {team: a}}\nspec: {providerID: 'aws:///us-east-1a/i-1'}\n\
                status: {allocatable: {cpu: 2, memory: 8Gi, pods: 10}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: there}\nspec: {nodeName: full, \
                containers: [{name: c, image: i, resources: {requests: {cpu: 1500m}}}]}\n";
    let daemons = |spec: &str| {
        format!(
            "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: agent, namespace: kube-system}}\nspec: {{selector: {{matchLabels: {{app: agent}}}}, \
             template: {{metadata: {{labels: {{app: agent}}}}, spec: {{{spec}}}}}}}\n"
        )
    };
    let large = "containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]";
    let told = |spec: &str| {
        err(&planned(&format!("{PODS}{}{node}{}", pool(""), daemons(spec))))
            .contains("DaemonSet kube-system/agent: no room for its pod on full (cpu)")
    };
    assert!(told(large));
    assert!(!told("containers: [{name: c, image: i, resources: {requests: {cpu: 500m}}}]"), "it has room");
    assert!(!told(&format!("nodeSelector: {{team: b}}, {large}")), "it does not run there");
}
