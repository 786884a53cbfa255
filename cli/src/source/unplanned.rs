//! Objects of kinds that are not read here, whose controllers make pods: CronJobs, Rollouts, Services of Knative; kinds of operators, such
//! as Prometheus and Kafka; and what deploys manifests from elsewhere. Without a word the plan of a file would lack these pods.

use super::documents::Document;
use super::remarks::{NAMED_MAX, Remark};
use crate::listing::first_named;
use serde_json::Value;
use std::collections::BTreeMap;

/// How deep below `spec` a template of pods, or a sign of pods, may be: that of a CronJob is at `jobTemplate.spec.template`, others are in
/// lists.
const DEPTH: usize = 6;

/// Groups whose objects have templates that pods are compared with, or changed by, and of which none is made.
const POLICIES: &str = "kyverno.io";

/// Groups of operators, and their kinds that have pods without a template of these. Other kinds of these groups have none.
const OPERATORS: &[(&str, &[&str])] = &[
    ("acid.zalan.do", &["postgresql"]),
    ("argoproj.io", &["ArgoCD", "CronWorkflow", "EventBus", "EventSource", "Sensor", "Workflow"]),
    ("cassandra.datastax.com", &["CassandraDatacenter"]),
    ("clickhouse.altinity.com", &["ClickHouseInstallation"]),
    ("elasticsearch.k8s.elastic.co", &["Elasticsearch"]),
    ("flink.apache.org", &["FlinkDeployment"]),
    ("k8s.keycloak.org", &["Keycloak"]),
    ("kafka.strimzi.io", &["Kafka", "KafkaBridge", "KafkaConnect", "KafkaMirrorMaker", "KafkaMirrorMaker2", "KafkaNodePool"]),
    ("kibana.k8s.elastic.co", &["Kibana"]),
    ("minio.min.io", &["Tenant"]),
    ("monitoring.coreos.com", &["Alertmanager", "Prometheus", "PrometheusAgent", "ThanosRuler"]),
    ("opensearch.opster.io", &["OpenSearchCluster"]),
    ("opentelemetry.io", &["OpenTelemetryCollector"]),
    ("postgres-operator.crunchydata.com", &["PostgresCluster"]),
    ("postgresql.cnpg.io", &["Cluster", "Pooler"]),
    ("rabbitmq.com", &["RabbitmqCluster"]),
    ("ray.io", &["RayCluster", "RayJob", "RayService"]),
    ("serving.kserve.io", &["InferenceService"]),
    ("spark.apache.org", &["SparkApplication", "SparkCluster"]),
    ("sparkoperator.k8s.io", &["ScheduledSparkApplication", "SparkApplication"]),
    ("tekton.dev", &["PipelineRun", "TaskRun"]),
];

/// Groups whose objects deploy manifests that are elsewhere, and their kinds.
const DEPLOYERS: &[(&str, &[&str])] = &[
    ("argoproj.io", &["Application", "ApplicationSet"]),
    ("helm.cattle.io", &["HelmChart"]),
    ("helm.toolkit.fluxcd.io", &["HelmRelease"]),
    ("kustomize.toolkit.fluxcd.io", &["Kustomization"]),
];

/// Groups whose objects have no pods, though their fields may look like it: replicas of tables and machines, images to watch. Groups that
/// end in these are meant, too.
const WITHOUT_PODS: &[&str] = &[
    "amazonaws.com",
    "cert-manager.io",
    "crossplane.io",
    "gatekeeper.sh",
    "istio.io",
    "k8s.aws",
    "k8s.io",
    "karpenter.sh",
    "keda.sh",
    "toolkit.fluxcd.io",
    "upbound.io",
    "x-k8s.io",
    POLICIES,
];

/// Which manifests there are to add, so that the pods of an object are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Missing {
    /// A Job of its template, for one run.
    Run,
    /// A workload with its template.
    Template,
    /// A workload like its pods, or these: only its controller knows them.
    Pods,
    /// What it deploys.
    Manifests,
}

impl Missing {
    /// What is missing for an object of a kind that is not read; `None` for kinds without pods.
    fn of(document: &Document) -> Option<Self> {
        let (group, kind) = (document.version().split_once('/').map_or("", |(group, _)| group), document.kind());
        let spec = document.value.get("spec").unwrap_or(&Value::Null);
        if has_kind(DEPLOYERS, group, kind) {
            return Some(Self::Manifests);
        }
        if !group.ends_with(POLICIES) && any_field(spec, DEPTH, &is_template) {
            return Some(if (group, kind) == ("batch", "CronJob") { Self::Run } else { Self::Template });
        }
        if has_kind(OPERATORS, group, kind) {
            return Some(Self::Pods);
        }
        let is_within = |of: &str| group.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        // Groups of others have a domain.
        let is_known = !group.contains('.') || OPERATORS.iter().any(|(of, _)| *of == group) || WITHOUT_PODS.iter().copied().any(is_within);
        (!is_known && any_field(spec, DEPTH, &is_of_pods)).then_some(Self::Pods)
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Run => "add a Job with its spec.jobTemplate.spec to plan for a run",
            Self::Template => "add a Deployment with its template and replicas to plan them",
            Self::Pods => {
                "only its controller knows its pods: add a Deployment with their requests and number, or the pods themselves, as \
                 `kubectl get pods -o yaml` prints them where it runs"
            }
            Self::Manifests => {
                "add the manifests that it deploys, as `helm template`, `kubectl kustomize` or `argocd app manifests` print them"
            }
        }
    }
}

/// Objects whose pods are not planned, by version, kind and what lacks.
#[derive(Clone, Debug, Default)]
pub(super) struct Unplanned(BTreeMap<(String, String, Missing), Vec<String>>);

impl Unplanned {
    /// Adds an object; returns whether pods are made for it. What a cluster has is left alone: its pods are among the others, if it has
    /// made any.
    pub(super) fn add(&mut self, document: &Document) -> bool {
        let is_new = !document.live && document.value.pointer("/metadata/uid").is_none();
        let Some(missing) = Missing::of(document).filter(|_| is_new) else { return false };
        let namespace = document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
        let name = format!("{namespace}/{}", document.shown_name());
        self.0.entry((document.version().to_owned(), document.kind().to_owned(), missing)).or_default().push(name);
        true
    }

    /// A warning for each kind.
    pub(super) fn remarks(&self) -> impl Iterator<Item = Remark> {
        self.0.iter().map(|((version, kind, missing), names)| {
            let (named, remedy) = (first_named(names, NAMED_MAX), missing.remedy());
            Remark::warning(format!("no pods are planned for {version} {kind} {named}, which is of no kind that is read here: {remedy}"))
        })
    }
}

/// Whether a kind is among those of some groups.
fn has_kind(kinds: &[(&str, &[&str])], group: &str, kind: &str) -> bool {
    kinds.iter().any(|(of, kinds)| *of == group && kinds.contains(&kind))
}

/// Whether a field is a template of pods, with containers.
fn is_template(key: &str, value: &Value) -> bool {
    let containers = || value.pointer("/spec/containers").and_then(Value::as_array);
    key.to_ascii_lowercase().ends_with("template") && containers().is_some_and(|containers| !containers.is_empty())
}

/// Whether almost only objects that create pods have a field like this.
fn is_of_pods(key: &str, value: &Value) -> bool {
    match key {
        "replicas" => value.is_u64(),
        "image" => value.as_str().is_some_and(|image| !image.is_empty()),
        "tolerations" => value.as_array().is_some_and(|tolerations| !tolerations.is_empty()),
        _ => false,
    }
}

/// Whether a field of a value, or one up to so deep in it, is such a one.
fn any_field(value: &Value, depth: usize, is_such: &dyn Fn(&str, &Value) -> bool) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match value {
        Value::Object(fields) => fields.iter().any(|(key, field)| is_such(key, field) || any_field(field, depth, is_such)),
        Value::Array(elements) => elements.iter().any(|element| any_field(element, depth, is_such)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ParsedDocuments;

    const TEMPLATE: &str = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}";

    /// What is said of these objects.
    fn said(documents: &[String]) -> Vec<String> {
        let mut found = ParsedDocuments::default();
        found.add_text("in.yaml", &documents.join("\n---\n"));
        let mut unplanned = Unplanned::default();
        found.documents.iter().for_each(|document| {
            unplanned.add(document);
        });
        unplanned.remarks().map(|remark| remark.text).collect()
    }

    fn object(version: &str, kind: &str, metadata: &str, spec: &str) -> String {
        format!("{{apiVersion: {version}, kind: {kind}, metadata: {metadata}, spec: {spec}}}")
    }

    #[test]
    fn objects_that_make_pods_are_told_by_kind() {
        let rollout = |name: &str| object("argoproj.io/v1alpha1", "Rollout", &format!("{{name: {name}}}"), &format!("{{{TEMPLATE}}}"));
        let all = [
            object("batch/v1", "CronJob", "{name: nightly, namespace: etl}", &format!("{{jobTemplate: {{spec: {{{TEMPLATE}}}}}}}")),
            object("ray.io/v1", "RayCluster", "{name: ray}", &format!("{{workerGroupSpecs: [{{replicas: 2, {TEMPLATE}}}]}}")),
            rollout("a"),
            rollout("b"),
            rollout("c"),
            rollout("d"),
        ];
        let begins = [
            "no pods are planned for argoproj.io/v1alpha1 Rollout default/a, default/b, default/c and 1 more, which",
            "no pods are planned for batch/v1 CronJob etl/nightly, which",
            "no pods are planned for ray.io/v1 RayCluster default/ray, which",
        ];
        let said = said(&all);
        assert_eq!(said.len(), begins.len(), "{said:?}");
        said.iter().zip(begins).for_each(|(text, begin)| assert!(text.starts_with(begin), "{text}"));
        assert!(said[1].ends_with("add a Job with its spec.jobTemplate.spec to plan for a run"), "{}", said[1]);
    }

    /// Checks what is said of one object, if anything is.
    #[track_caller]
    fn check(version: &str, kind: &str, spec: &str, wanted: Option<&str>) {
        let said = said(&[object(version, kind, "{name: a, namespace: b}", spec)]);
        assert_eq!(said.len(), usize::from(wanted.is_some()), "{version} {kind}: {said:?}");
        for (text, wanted) in said.iter().zip(wanted) {
            assert!(text.starts_with(&format!("no pods are planned for {version} {kind} b/a, which")), "{text}");
            assert!(text.contains(wanted), "{text} does not say {wanted:?}");
        }
    }

    #[test]
    fn kinds_of_operators_have_pods_that_only_these_know() {
        let pods = Some("or the pods themselves, as `kubectl get pods -o yaml` prints them");
        for (version, kind, spec) in [
            ("monitoring.coreos.com/v1", "Prometheus", "{}"),
            ("kafka.strimzi.io/v1", "Kafka", "{kafka: {listeners: []}}"),
            ("sparkoperator.k8s.io/v1beta2", "SparkApplication", "{executor: {instances: 2}}"),
            ("argoproj.io/v1alpha1", "Workflow", "{templates: [{name: a, container: {image: i}}]}"),
            ("ray.io/v1", "RayService", "{}"),
            // Nobody has heard of these.
            ("example.com/v1", "Gadget", "{size: {replicas: 3}}"),
            ("example.com/v1", "Gadget", "{image: registry.example.com/gadget}"),
            ("example.com/v1", "Gadget", "{placement: {tolerations: [{operator: Exists}]}}"),
        ] {
            check(version, kind, spec, pods);
        }
        check("ray.io/v1", "RayCluster", &format!("{{headGroupSpec: {{{TEMPLATE}}}}}"), Some("add a Deployment with its template"));
    }

    #[test]
    fn what_deploys_manifests_is_told_to_give_them() {
        let manifests = Some("add the manifests that it deploys");
        check("argoproj.io/v1alpha1", "Application", "{}", manifests);
        check("helm.toolkit.fluxcd.io/v2", "HelmRelease", "{values: {replicas: 2}}", manifests);
        check("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "{path: ./apps}", manifests);
    }

    #[test]
    fn kinds_without_pods_are_not_told_whatever_they_look_like() {
        for (version, kind, spec) in [
            ("v1", "Service", "{replicas: 1}"),
            ("networking.k8s.io/v1", "Ingress", "{replicas: 1}"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "{replicas: 1}"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", "{}"),
            ("karpenter.sh/v1", "NodePool", "{replicas: 1}"),
            ("karpenter.k8s.aws/v1", "EC2NodeClass", "{image: i}"),
            ("eks.amazonaws.com/v1", "NodeClass", "{replicas: 1}"),
            ("dynamodb.services.k8s.aws/v1alpha1", "Table", "{replicas: 1}"),
            ("cluster.x-k8s.io/v1beta1", "MachineDeployment", "{replicas: 3}"),
            ("monitoring.coreos.com/v1", "ServiceMonitor", "{replicas: 1}"),
            ("kafka.strimzi.io/v1", "KafkaTopic", "{partitions: 3, replicas: 3}"),
            ("argoproj.io/v1alpha1", "WorkflowTemplate", "{templates: [{name: a, container: {image: i}}]}"),
            ("tekton.dev/v1", "Task", "{steps: [{image: i}]}"),
            ("image.toolkit.fluxcd.io/v1", "ImageRepository", "{image: i}"),
            ("cert-manager.io/v1", "ClusterIssuer", "{acme: {solvers: [{podTemplate: {tolerations: [{operator: Exists}]}}]}}"),
            ("example.com/v1", "Gadget", "{replicas: {min: 1, max: 2}, image: {tag: a}, tolerations: []}"),
            ("example.com/v1", "Gadget", "{size: large}"),
        ] {
            check(version, kind, spec, None);
        }
    }

    #[test]
    fn a_name_that_a_server_generates_is_told_by_its_beginning() {
        let said = said(&[object("argoproj.io/v1alpha1", "Workflow", "{generateName: train-}", "{}")]);
        assert!(said[0].contains("argoproj.io/v1alpha1 Workflow default/train-, which"), "{said:?}");
    }

    #[test]
    fn what_makes_no_pods_or_has_made_them_is_not_told() {
        let spec = format!("{{{TEMPLATE}}}");
        let nothing = [
            object("argoproj.io/v1alpha1", "Rollout", "{name: a, uid: u-1}", &spec),
            object("monitoring.coreos.com/v1", "Prometheus", "{name: a, uid: u-1}", "{replicas: 2}"),
            object("argoproj.io/v1alpha1", "Rollout", "{name: a}", "{workloadRef: {kind: Deployment, name: web}}"),
            object("example.com/v1", "Gadget", "{name: a}", "{template: {spec: {containers: []}}}"),
            object("example.com/v1", "Gadget", "{name: a}", "{template: text, containers: [{name: c}]}"),
            object("example.com/v1", "Gadget", "{name: a}", "none"),
            // What pods of others have to be like.
            object("kyverno.io/v1", "ClusterPolicy", "{name: a}", &format!("{{rules: [{{validate: {{pattern: {{spec: {spec}}}}}}}]}}")),
            object("policies.kyverno.io/v1", "MutatingPolicy", "{name: a}", &spec),
        ];
        assert_eq!(said(&nothing), Vec::<String>::new());
    }
}
