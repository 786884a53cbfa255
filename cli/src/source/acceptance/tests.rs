use super::*;
use whittle_api::manifest;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a}}\nspec:\n  containers: [{name: c}]\n";

/// What is said of a text with one object.
#[track_caller]
fn said(text: &str) -> Vec<String> {
    let read = manifest::read("a.yaml", text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    faults(&read[0], REPLICAS_MAX).iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect()
}

/// Every line of a spec makes the one error that begins so.
#[track_caller]
fn refused(cases: &[(&str, &str)]) {
    for (line, wanted) in cases {
        let found = said(&format!("{POD}  {line}\n"));
        assert!(matches!(&found[..], [one] if one.starts_with(wanted)), "{line}\n{found:#?}");
    }
}

#[track_caller]
fn accepted(lines: &[&str]) {
    for line in lines {
        assert_eq!(said(&format!("{POD}  {line}\n")), [""; 0], "{line}");
    }
}

/// The same pod with other containers.
fn with_containers(containers: &str) -> String {
    POD.replace("[{name: c}]", containers)
}

#[test]
fn requests_and_limits_that_no_server_has_are_refused() {
    let of = |resources: &str| with_containers(&format!("[{{name: c, resources: {resources}}}]"));
    for (resources, wanted) in [
        ("{requests: {cpu: -1}}", "requests.cpu: -1 is less than nothing"),
        ("{limits: {memory: -1Gi}}", "limits.memory: -1Gi is less than nothing"),
        ("{requests: {cpu: 2}, limits: {cpu: 1}}", "requests.cpu: 2 is more than the limit, 1"),
        ("{requests: {gpu: 1}}", "requests: \"gpu\" is no resource of a container"),
        ("{requests: {CPU: 1}}", "requests: \"CPU\" is no resource"),
        ("{limits: {nvidia.com/gpu: 1.5}}", "limits.[nvidia.com/gpu]: 1500m is no whole number"),
        ("{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}", "requests.[nvidia.com/gpu]: 1 is less than the limit, 2"),
    ] {
        let found = said(&of(resources));
        let wanted = format!("spec.containers[0].resources.{wanted}").replace(".[", "[");
        assert!(matches!(&found[..], [one] if one.starts_with(&wanted)), "{resources}\n{found:#?}");
    }
    for resources in [
        "{requests: {cpu: 500m, memory: 1Gi, ephemeral-storage: 1Gi}, limits: {memory: 1Gi}}",
        "{limits: {nvidia.com/gpu: 1}}",
        "{requests: {nvidia.com/gpu: 1}}",
        "{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}}",
        "{requests: {hugepages-2Mi: 4Mi, cpu: 0}, limits: {hugepages-2Mi: 4Mi}}",
    ] {
        assert_eq!(said(&of(resources)), [""; 0], "{resources}");
    }
    refused(&[
        ("resources: {requests: {cpu: -1}}", "spec.resources.requests.cpu: -1 is"),
        ("overhead: {cpu: -1}", "spec.overhead.cpu: -1 is"),
    ]);
}

#[test]
fn containers_have_names_and_ports_of_their_own() {
    for (containers, wanted) in [
        ("[]", "spec.containers: missing: a pod needs a container"),
        ("[{image: i}]", "spec.containers[0].name: missing"),
        ("[{name: A}]", "spec.containers[0].name: \"A\" is no name"),
        ("[{name: c}, {name: c}]", "spec.containers[1].name: \"c\" is there twice"),
        ("[{name: c, ports: [{hostPort: 80}]}]", "spec.containers[0].ports[0].containerPort: 0 is no port"),
        ("[{name: c, ports: [{containerPort: 80, hostPort: 70000}]}]", "spec.containers[0].ports[0].hostPort: 70000 is no port"),
        ("[{name: c, ports: [{containerPort: 80, protocol: tcp}]}]", "spec.containers[0].ports[0].protocol: \"tcp\" is none"),
        (
            "[{name: c, ports: [{containerPort: 80, hostPort: 80}]}, {name: d, ports: [{containerPort: 81, hostPort: 80}]}]",
            "spec.containers[1].ports[0].hostPort: port 80 of the node is taken",
        ),
    ] {
        let found = said(&with_containers(containers));
        assert!(matches!(&found[..], [one] if one.starts_with(wanted)), "{containers}\n{found:#?}");
    }
    let fine = "[{name: c, ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]}, {name: d, ports: [{containerPort: 80}]}]";
    assert_eq!(said(&with_containers(fine)), [""; 0], "ports of the pod may be named twice");
    refused(&[
        ("initContainers: [{name: i, restartPolicy: always}]", "spec.initContainers[0].restartPolicy: \"always\" is none of its values"),
        ("initContainers: [{name: c}]", "spec.initContainers[0].name: \"c\" is there twice"),
    ]);
}

#[test]
fn affinity_that_means_nothing_is_refused() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let of_nodes = |expression: &str| {
        format!("affinity: {{nodeAffinity: {{{required}: {{nodeSelectorTerms: [{{matchExpressions: [{expression}]}}]}}}}}}")
    };
    let at = format!("spec.affinity.nodeAffinity.{required}.nodeSelectorTerms[0].matchExpressions[0]");
    for (expression, wanted) in [
        ("{key: a, operator: Is, values: [b]}", "operator: \"Is\" is no operator: write In, NotIn, Exists, DoesNotExist, Gt or Lt"),
        ("{key: a, values: [b]}", "operator: missing: write In"),
        ("{key: a, operator: In}", "values: In without values"),
        ("{key: a, operator: Exists, values: [b]}", "values: Exists takes no values"),
        ("{key: a, operator: Gt, values: ['1', '2']}", "values: Gt compares with one number"),
        ("{key: a/b/c, operator: Exists}", "key: \"a/b/c\" is no label key"),
        ("{operator: Exists}", "key: missing"),
    ] {
        refused(&[(&of_nodes(expression), &format!("{at}.{wanted}"))]);
    }
    accepted(&[&of_nodes("{key: a, operator: Gt, values: ['1']}"), &of_nodes("{key: a, operator: DoesNotExist}")]);
    let field = |field: &str| format!("affinity: {{nodeAffinity: {{{required}: {{nodeSelectorTerms: [{{matchFields: [{field}]}}]}}}}}}");
    accepted(&[&field("{key: metadata.name, operator: In, values: [worker]}")]);
    let at = at.replace("matchExpressions", "matchFields");
    refused(&[
        (
            &format!("affinity: {{nodeAffinity: {{{required}: {{}}}}}}"),
            &format!("spec.affinity.nodeAffinity.{required}.nodeSelectorTerms: missing"),
        ),
        (&field("{key: metadata.uid, operator: In, values: [worker]}"), &format!("{at}.key: \"metadata.uid\" is no field")),
        (&field("{key: metadata.name, operator: In, values: [worker, other]}"), &format!("{at}.values: a field is matched with one value")),
        (
            &format!("affinity: {{nodeAffinity: {{{preferred}: [{{weight: 0, preference: {{}}}}]}}}}"),
            &format!("spec.affinity.nodeAffinity.{preferred}[0].weight: 0 is no weight"),
        ),
    ]);
    let of_pods = |term: &str| format!("affinity: {{podAntiAffinity: {{{required}: [{term}]}}}}");
    let at = format!("spec.affinity.podAntiAffinity.{required}[0]");
    for (term, wanted) in [
        ("{labelSelector: {}}", "topologyKey: missing"),
        (
            "{topologyKey: z, labelSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}}",
            "labelSelector.matchExpressions[0].operator: \"Gt\" is no operator: write In, NotIn, Exists or DoesNotExist",
        ),
        ("{topologyKey: z, labelSelector: {matchLabels: {a: b c}}}", "labelSelector.matchLabels.a: \"b c\" is no label value"),
        ("{topologyKey: z, labelSelector: {}, namespaces: [A]}", "namespaces[0]: \"A\" is no namespace"),
        ("{topologyKey: z, matchLabelKeys: [a]}", "matchLabelKeys: it adds to a labelSelector"),
    ] {
        refused(&[(&of_pods(term), &format!("{at}.{wanted}"))]);
    }
    accepted(&[&of_pods(
        "{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [pod-template-hash]}",
    )]);
}

#[test]
fn spread_that_means_nothing_is_refused() {
    let of = |constraint: &str| format!("topologySpreadConstraints: [{constraint}]");
    let zone = "topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}";
    for (constraint, wanted) in [
        (format!("{{maxSkew: 0, {zone}}}"), "maxSkew: 0 is no difference"),
        (format!("{{{zone}}}"), "maxSkew: 0 is no difference"),
        ("{maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}".to_owned(), "topologyKey: missing"),
        ("{maxSkew: 1, topologyKey: z}".to_owned(), "whenUnsatisfiable: missing"),
        ("{maxSkew: 1, topologyKey: z, whenUnsatisfiable: Never}".to_owned(), "whenUnsatisfiable: \"Never\" is none of its values"),
        (format!("{{maxSkew: 1, minDomains: 0, {zone}}}"), "minDomains: 0 domains are none"),
        ("{maxSkew: 1, minDomains: 2, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}".to_owned(), "minDomains: it only counts with"),
        (format!("{{maxSkew: 1, nodeTaintsPolicy: Honour, {zone}}}"), "nodeTaintsPolicy: \"Honour\" is none of its values"),
        (format!("{{maxSkew: 1, matchLabelKeys: [app], {zone}}}"), "matchLabelKeys[0]: \"app\" is in the labelSelector, too"),
    ] {
        refused(&[(&of(&constraint), &format!("spec.topologySpreadConstraints[0].{wanted}"))]);
    }
    let one = format!("{{maxSkew: 1, {zone}}}");
    refused(&[(&of(&format!("{one}, {one}")), "spec.topologySpreadConstraints[1].topologyKey: z is spread over twice")]);
    let soft = one.replace("DoNotSchedule", "ScheduleAnyway");
    accepted(&[
        &of(&format!("{one}, {soft}")),
        &of(&format!("{{maxSkew: 1, minDomains: 3, matchLabelKeys: [pod-template-hash], {zone}}}")),
    ]);
}

#[test]
fn tolerations_selectors_and_volumes_that_mean_nothing_are_refused() {
    refused(&[
        ("tolerations: [{key: a, operator: Is}]", "spec.tolerations[0].operator: \"Is\" is none of its values: write Equal or Exists"),
        ("tolerations: [{key: a, operator: Exists, effect: NoRun}]", "spec.tolerations[0].effect: \"NoRun\" is none of its values"),
        ("tolerations: [{key: a, operator: Exists, value: b}]", "spec.tolerations[0].value: Exists takes no value"),
        ("tolerations: [{value: b}]", "spec.tolerations[0].key: missing"),
        ("tolerations: [{key: a/b/c, operator: Exists}]", "spec.tolerations[0].key: \"a/b/c\" is no key of a taint"),
        (
            "tolerations: [{key: a, operator: Exists, tolerationSeconds: 5}]",
            "spec.tolerations[0].effect: with tolerationSeconds only NoExecute",
        ),
        ("nodeSelector: {a/b/c: d}", "spec.nodeSelector: \"a/b/c\" is no label key"),
        ("nodeSelector: {a: d e}", "spec.nodeSelector.a: \"d e\" is no label value"),
        ("volumes: [{name: v}, {name: v}]", "spec.volumes[1].name: \"v\" is there twice"),
        ("volumes: [{name: v, persistentVolumeClaim: {}}]", "spec.volumes[0].persistentVolumeClaim.claimName: missing"),
        ("volumes: [{name: v, ephemeral: {}}]", "spec.volumes[0].ephemeral.volumeClaimTemplate: missing"),
        ("restartPolicy: always", "spec.restartPolicy: \"always\" is none"),
        ("preemptionPolicy: never", "spec.preemptionPolicy: \"never\" is none"),
        ("priorityClassName: High Priority", "spec.priorityClassName: \"High Priority\" is no name"),
        ("runtimeClassName: g Visor", "spec.runtimeClassName: \"g Visor\" is no name"),
        ("terminationGracePeriodSeconds: -1", "spec.terminationGracePeriodSeconds: -1 is less than nothing"),
    ]);
    accepted(&[
        "tolerations: [{operator: Exists}, {key: a}, {key: a, value: b, effect: NoSchedule}]",
        "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]",
        "volumes: [{name: v, emptyDir: {}}, {name: w, persistentVolumeClaim: {claimName: c}}]",
        "nodeSelector: {kubernetes.io/arch: arm64, empty: ''}",
    ]);
}

#[test]
fn every_kind_with_a_template_is_judged_and_selects_its_own_pods() {
    let template = "template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, resources: {requests: {cpu: -1}}}]}}";
    for (version, kind, selector) in [
        ("apps/v1", "Deployment", "selector: {matchLabels: {app: a}}, "),
        ("apps/v1", "ReplicaSet", "selector: {matchLabels: {app: a}}, "),
        ("apps/v1", "StatefulSet", "selector: {matchLabels: {app: a}}, "),
        ("apps/v1", "DaemonSet", "selector: {matchLabels: {app: a}}, "),
        ("v1", "ReplicationController", ""),
        ("batch/v1", "Job", ""),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{selector}{template}}}\n");
        let found = said(&text);
        assert!(
            matches!(&found[..], [one] if one.starts_with("spec.template.spec.containers[0].resources.requests.cpu: -1")),
            "{kind}: {found:?}"
        );
        assert_eq!(said(&text.replace("cpu: -1", "cpu: 1")), [""; 0], "{kind}");
        if !selector.is_empty() {
            let text = text.replace("cpu: -1", "cpu: 1");
            let found = said(&text.replace(selector, ""));
            assert!(matches!(&found[..], [one] if one.starts_with("spec.selector: missing")), "{kind}: {found:?}");
            let found = said(&text.replace("{matchLabels: {app: a}}", "{matchLabels: {app: b}}"));
            assert!(
                matches!(&found[..], [one] if one.starts_with("spec.selector: the labels of the template do not match")),
                "{kind}: {found:?}"
            );
        }
    }
    let job =
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {parallelism: -1, template: {spec: {containers: [{name: c}]}}}\n";
    assert_eq!(said(job), ["spec.parallelism: -1 pods at a time cannot be: write 0 or more"]);
}

#[test]
fn other_kinds_are_judged_where_decisions_read_them() {
    for (text, wanted) in [
        (
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {minAvailable: 1, selector: {matchExpressions: [{key: a, operator: Is}]}}\n",
            "spec.selector.matchExpressions[0].operator: \"Is\" is no operator",
        ),
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {taints: [{key: a b, effect: NoSchedule}]}\n",
            "spec.taints[0].key: \"a b\" is no key of a taint",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selector: {app: a b}}\n",
            "spec.selector.app: \"a b\" is no label value",
        ),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {a b: c}}\n", "metadata.labels: \"a b\" is no label key"),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, annotations: {a b: c}}\n",
            "metadata.annotations: \"a b\" is no annotation key",
        ),
        (
            "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nvolumeBindingMode: Later\n",
            "volumeBindingMode: \"Later\" is none of its values",
        ),
        (
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {nodeAffinity: {required: {nodeSelectorTerms: []}}}\n",
            "spec.nodeAffinity.required.nodeSelectorTerms: missing",
        ),
        (
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a}\nvalue: 2000000000\n",
            "value: 2000000000 is kept for the system",
        ),
    ] {
        let found = said(text);
        assert!(matches!(&found[..], [one] if one.starts_with(wanted)), "{text}{found:#?}");
    }
}

#[test]
fn names_are_those_that_a_server_accepts_of_the_kind() {
    let long = |length: usize| "a".repeat(length);
    let named = |kind: &str, metadata: &str| {
        let text = match kind {
            "Pod" => format!("apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec: {{containers: [{{name: c}}]}}\n"),
            _ => format!("apiVersion: v1\nkind: {kind}\nmetadata: {{{metadata}}}\n"),
        };
        said(&text)
    };
    for kind in ["Pod", "Node", "Service", "Namespace"] {
        for name in ["a/b", "..", ".", "Upper", "a_b", "-a", "a-", "a..b", "a%b", &long(254)] {
            let found = named(kind, &format!("name: {name:?}"));
            assert!(matches!(&found[..], [one] if one.starts_with(&format!("metadata.name: {name:?} is no name"))), "{kind} {found:#?}");
        }
        assert!(named(kind, "namespace: default").iter().any(|fault| fault == "metadata.name: missing: give the object a name"), "{kind}");
        assert_eq!(named(kind, &format!("name: {}", long(63))), [""; 0], "{kind}");
    }
    for name in ["a.b", "ip-10-0-3-12.eu-west-1.compute.internal", &long(253)] {
        assert_eq!([named("Pod", &format!("name: {name}")), named("Node", &format!("name: {name}"))], [[""; 0]; 2]);
        for kind in ["Namespace", "Service"] {
            let found = named(kind, &format!("name: {name}"));
            assert!(matches!(&found[..], [one] if one.contains(&format!("is no name of a {kind}: use lower-case"))), "{found:#?}");
        }
    }
}

#[test]
fn what_a_name_is_generated_from_begins_a_name() {
    let pod = |metadata: &str| said(&POD.replace("name: a, labels", &format!("{metadata}, labels")));
    for prefix in ["web-", "web.", "web"] {
        assert_eq!(pod(&format!("name: a, generateName: {prefix}")).is_empty(), prefix != "web.", "{prefix}");
    }
    for prefix in ["Web-", "a/b-", "-"] {
        let found = pod(&format!("name: a, generateName: {prefix:?}"));
        let wanted = format!("metadata.generateName: {prefix:?} begins no name: ");
        assert!(matches!(&found[..], [one] if one.starts_with(&wanted)), "{found:#?}");
    }
    let found = pod("generateName: web-");
    assert!(matches!(&found[..], [one] if one.starts_with("metadata.name: missing: a server makes one of generateName")), "{found:#?}");
}
