//! Each remedy is followed, and then the reason holds no more.

use super::super::tests::Files;
use crate::source::Format;

const CATALOG: &str = r#"[
  {"name": "small", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "2", "memory": "4Gi"},
    "offerings": [
      {"Price": 0.1, "Requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                                      {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]},
      {"Price": 0.04, "Requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                                       {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}]},
  {"name": "large", "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"},
    "offerings": [
      {"Price": 0.4, "Requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                                      {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}]"#;

/// What is explained of a pod, of which and of whose NodePool a part is given.
fn of_pod(pool: (&str, &str), pod: &str) -> String {
    of_pod_with(pool, pod, "")
}

/// The same, beside other objects.
fn of_pod_with((spec, template): (&str, &str), pod: &str, others: &str) -> String {
    let pool = format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: default}}, spec: {{{spec} template: {{{template} \
         nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}}}}}}}\n---\n"
    );
    let pod = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p, labels: {{app: p}}}}, spec: {{{pod}}}}}\n");
    Files::of("remedies", &(pool + &pod + others), CATALOG).explain("p", Format::Text).unwrap()
}

/// A remedy, before and after it was followed: the NodePool's spec and template, and the pod's spec.
#[track_caller]
fn helps(remedy: &str, before: ((&str, &str), &str), after: ((&str, &str), &str)) {
    let told = of_pod(before.0, before.1);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("what it would take")).collect();
    assert!(lines.len() == 1 && lines[0].contains(remedy), "{told}");
    let told = of_pod(after.0, after.1);
    assert!(told.contains("needs a new machine") && !told.contains("what it would take"), "{told}");
}

const PLAIN: (&str, &str) = ("", "spec: {requirements: [],");
const POD: &str = "containers: [{name: c, resources: {requests: {cpu: '1'}}}]";
const LARGE_POD: &str = "containers: [{name: c, resources: {requests: {cpu: '4'}}}]";

fn requiring(key: &str, values: &str) -> String {
    format!("spec: {{requirements: [{{key: {key}, operator: In, values: [{values}]}}],")
}

#[test]
fn a_nodepool_that_there_is_not_is_told_also_of_a_node_affinity() {
    let of = |terms: &str| {
        let required = format!("requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}");
        of_pod(PLAIN, &format!("affinity: {{nodeAffinity: {{{required}}}}}, {POD}"))
    };
    let term = |names: &str| format!("{{matchExpressions: [{{key: karpenter.sh/nodepool, operator: In, values: [{names}]}}]}}");
    let told = of(&format!("{}, {}", term("gpu"), term("big")));
    assert!(told.contains("no NodePool is called \"gpu\" or \"big\", which its node affinity asks for: there is default"), "{told}");
    let by_other_means = of(&format!("{}, {{matchExpressions: [{{key: team, operator: Exists}}]}}", term("gpu")));
    assert!(by_other_means.starts_with("not placed") && !by_other_means.contains("no NodePool is called"), "{by_other_means}");
    assert!(of(&term("gpu, default")).contains("needs a new machine"));
}

#[test]
fn a_pod_has_a_place_once_what_it_takes_is_done() {
    let tainted = ("", "spec: {requirements: [], taints: [{key: team, value: a, effect: NoSchedule}],");
    let tolerant = format!("tolerations: [{{key: team, operator: Exists}}], {POD}");
    helps("(nodepool default): a pod that tolerates team=a:NoSchedule", (tainted, POD), (tainted, &tolerant));
    helps("its spec.template.spec.taints without it", (tainted, POD), (PLAIN, POD));

    let of_team = format!("nodeSelector: {{team: a}}, {POD}");
    let labelled = ("", "metadata: {labels: {team: a}}, spec: {requirements: [],");
    helps("the label team in its spec.template.metadata.labels", (PLAIN, &of_team), (labelled, &of_team));
    helps("or the pod's node selector or affinity without it", (PLAIN, &of_team), (PLAIN, POD));

    let spot = format!("nodeSelector: {{karpenter.sh/capacity-type: spot}}, {POD}");
    let [one, both] = ["on-demand", "on-demand, spot"].map(|values| requiring("karpenter.sh/capacity-type", values));
    helps("its spec.template allowing karpenter.sh/capacity-type In [spot]", (("", &one), &spot), (("", &both), &spot));

    let [one, both] = ["small", "small, large"].map(|values| requiring("node.kubernetes.io/instance-type", values));
    helps("or requirements that larger types meet", (("", &one), LARGE_POD), (("", &both), LARGE_POD));
    helps("requests of at most 1900m cpu", (("", &one), LARGE_POD), (("", &one), POD));
    let twice = format!(
        "nodeSelector: {{topology.kubernetes.io/zone: a}}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
        {{nodeSelectorTerms: [{{matchExpressions: [{{key: topology.kubernetes.io/zone, operator: In, values: [b]}}]}}]}}}}}}, {POD}"
    );
    helps("): the pod's node selector or affinity without topology.kubernetes.io/zone", (PLAIN, &twice), (PLAIN, POD));
    let gpu = "containers: [{name: c, resources: {limits: {nvidia.com/gpu: '1'}}}]";
    helps("requirements that types with nvidia.com/gpu meet", (("", &one), gpu), (("", &both), gpu));
}

#[test]
fn limits_and_min_values_are_raised_and_lowered() {
    let limited = |cpu: u32| format!("limits: {{cpu: {cpu}}},");
    let template = PLAIN.1;
    helps("(nodepool default): a higher spec.limits.cpu", ((&limited(1), template), POD), ((&limited(2), template), POD));
    let needs_more = ((&*limited(3), template), LARGE_POD);
    helps("a higher spec.limits.cpu, of which a machine takes all that it has", needs_more, ((&limited(8), template), LARGE_POD));
    helps("a higher spec.limits.nodes", (("limits: {nodes: 0},", template), POD), (("limits: {nodes: 1},", template), POD));

    let varied =
        |count: u32| format!("spec: {{requirements: [{{key: node.kubernetes.io/instance-type, operator: Exists, minValues: {count}}}],");
    helps("a lower minValues for node.kubernetes.io/instance-type", (("", &varied(3)), POD), (("", &varied(2)), POD));
}

#[test]
fn places_apart_and_together_need_another_domain() {
    let [one, both] = ["a", "a, b"].map(|values| requiring("topology.kubernetes.io/zone", values));
    let together = |kind: &str, zone: &str| {
        format!(
            "affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: topology.kubernetes.io/zone, \
             labelSelector: {{matchLabels: {{app: {zone}}}}}}}]}}}}, {POD}"
        )
    };
    // Nothing is selected: no requirement of the NodePool changes that.
    let lonely = of_pod(("", &one), &together("podAffinity", "other"));
    assert!(lonely.contains("what it would take (nodepool default): a pod that all terms of its affinity select"), "{lonely}");
    assert!(!lonely.contains("and besides"), "{lonely}");
    let large =
        of_pod(("", &one), &together("podAffinity", "other").replace(POD, "containers: [{name: c, resources: {requests: {cpu: 5000}}}]"));
    assert!(large.contains("its requirements allow; and besides requests of at most"), "{large}");
    let told = of_pod(("", &both), &together("podAntiAffinity", "other"));
    assert!(told.contains("needs a new machine"), "{told}");
}

#[test]
fn a_pool_with_nothing_to_buy_names_no_price_of_a_machine_for_no_pod() {
    let none = requiring("node.kubernetes.io/instance-type", "m9z.large");
    for pod in [POD, LARGE_POD] {
        let told = of_pod(("", &none), pod);
        assert!(told.contains("not requiring node.kubernetes.io/instance-type") && !told.contains("then from $"), "{told}");
    }
}

#[test]
fn a_pool_that_is_being_deleted_is_named() {
    let told = of_pod_with(PLAIN, POD, "");
    assert!(!told.contains("being deleted"), "{told}");
    let pool = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: \
                [karpenter.sh/termination]}, spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: \
                EC2NodeClass, name: default}}}}}\n---\n";
    let pod = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{POD}}}}}\n");
    let told = Files::of("deleting", &(pool.to_owned() + &pod), CATALOG).explain("p", Format::Text).unwrap();
    assert!(told.contains("nodepool default is being deleted, and launches nothing"), "{told}");
}

#[test]
fn volumes_that_no_node_reaches_together_are_named() {
    let volume = |name: &str, zone: &str| {
        format!(
            "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}, namespace: default, annotations: \
             {{pv.kubernetes.io/bind-completed: 'yes'}}}}\nspec: {{volumeName: v-{name}}}\n---\napiVersion: v1\nkind: PersistentVolume\n\
             metadata: {{name: v-{name}}}\nspec: {{csi: {{driver: ebs.csi.aws.com}}, nodeAffinity: {{required: {{nodeSelectorTerms: \
             [{{matchExpressions: [{{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}]}}]}}}}}}\n"
        )
    };
    let pod = format!(
        "{POD}, volumes: [{{name: one, persistentVolumeClaim: {{claimName: one}}}}, {{name: two, persistentVolumeClaim: {{claimName: two}}}}]"
    );
    let told = |zones: [&str; 2]| of_pod_with(PLAIN, &pod, &(volume("one", zones[0]) + &volume("two", zones[1])));
    let apart = told(["a", "b"]);
    let wanted = "no node reaches both its volumes: that of persistentvolumeclaim one (topology.kubernetes.io/zone In [a]) and that of two \
                  (topology.kubernetes.io/zone In [b])";
    assert!(apart.contains(wanted), "{apart}");
    assert!(!told(["a", "a"]).contains("no node reaches"));
}

#[test]
fn of_what_passes_or_is_meant_nothing_is_said() {
    let elsewhere = format!("nodeSelector: {{karpenter.sh/nodepool: other}}, {POD}");
    let told = of_pod(PLAIN, &elsewhere);
    assert!(told.starts_with("not placed") && !told.contains("what it would take"), "{told}");
    let opted_out = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: \
                     [{key: karpenter.sh/nodepool, operator: DoesNotExist}]}]}}}";
    let told = of_pod(PLAIN, &format!("{opted_out}, {POD}"));
    assert!(told.contains("what it would take: a pod without the requirement that karpenter.sh/nodepool does not exist"), "{told}");
}
