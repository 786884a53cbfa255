//! CustomResourceDefinitions of our kinds, generated from the schemas that also validate files.
//!
//! A definition serves the current version of its kind, which is the stored one, and the version before v1 where there was one
//! (ADR 0040). Kinds that v1 replaced by others have definitions of their own.

mod kept;

use crate::schema::{self, Kind};
use serde_json::{Value, json};

/// A printer column.
struct Column {
    name: &'static str,
    type_: &'static str,
    /// A JSON path.
    path: &'static str,
    /// Shown with `-o wide` alone.
    is_hidden: bool,
}

impl Column {
    const READY: Self = Self::shown("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#);
    const AGE: Self = Self::shown("Age", "date", ".metadata.creationTimestamp");

    const fn shown(name: &'static str, type_: &'static str, path: &'static str) -> Self {
        Self { name, type_, path, is_hidden: false }
    }

    const fn hidden(name: &'static str, type_: &'static str, path: &'static str) -> Self {
        Self { name, type_, path, is_hidden: true }
    }
}

/// Names and subresources of a kind, which its schema does not contain.
struct Names {
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    category: &'static str,
    namespaced: bool,
    /// Paths of desired and actual count for the scale subresource.
    scale: Option<(&'static str, &'static str)>,
    columns: &'static [Column],
}

const NAMES: &[Names] = &[
    Names {
        kind: "NodePool",
        plural: "nodepools",
        singular: "nodepool",
        short: &[],
        category: "karpenter",
        namespaced: false,
        scale: Some((".spec.replicas", ".status.nodes")),
        columns: &[
            Column::shown("NodeClass", "string", ".spec.template.spec.nodeClassRef.name"),
            Column::shown("Nodes", "string", ".status.nodes"),
            Column::READY,
            Column::AGE,
            Column::hidden("Weight", "integer", ".spec.weight"),
            Column::hidden("CPU", "string", ".status.resources.cpu"),
            Column::hidden("Memory", "string", ".status.resources.memory"),
        ],
    },
    Names {
        kind: "NodeClaim",
        plural: "nodeclaims",
        singular: "nodeclaim",
        short: &[],
        category: "karpenter",
        namespaced: false,
        scale: None,
        columns: &[
            Column::shown("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type"),
            Column::shown("Capacity", "string", r".metadata.labels.karpenter\.sh/capacity-type"),
            Column::shown("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone"),
            Column::shown("Node", "string", ".status.nodeName"),
            Column::READY,
            Column::AGE,
            Column::hidden("ImageID", "string", ".status.imageID"),
            Column::hidden("ID", "string", ".status.providerID"),
            Column::hidden("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool"),
            Column::hidden("NodeClass", "string", ".spec.nodeClassRef.name"),
            Column::hidden("Drifted", "string", r#".status.conditions[?(@.type=="Drifted")].status"#),
        ],
    },
    Names {
        kind: "NodeOverlay",
        plural: "nodeoverlays",
        singular: "nodeoverlay",
        short: &["overlays"],
        category: "karpenter",
        namespaced: false,
        scale: None,
        columns: &[Column::READY, Column::AGE, Column::hidden("Weight", "integer", ".spec.weight")],
    },
    Names {
        kind: "EC2NodeClass",
        plural: "ec2nodeclasses",
        singular: "ec2nodeclass",
        short: &["ec2nc", "ec2ncs"],
        category: "karpenter",
        namespaced: false,
        scale: None,
        columns: &[Column::READY, Column::AGE, Column::hidden("Role", "string", ".spec.role")],
    },
    Names {
        kind: "CapacityBuffer",
        plural: "capacitybuffers",
        singular: "capacitybuffer",
        short: &["cb"],
        category: "autoscaling",
        namespaced: true,
        scale: Some((".spec.replicas", ".status.replicas")),
        columns: &[
            Column::shown("Strategy", "string", ".spec.provisioningStrategy"),
            Column::shown("PodTemplate", "string", ".status.podTemplateRef.name"),
            Column::shown("Replicas", "integer", ".status.replicas"),
            Column::shown("ReadyForProvisioning", "string", r#".status.conditions[?(@.type=="ReadyForProvisioning")].status"#),
            Column::shown("Provisioning", "string", r#".status.conditions[?(@.type=="Provisioning")].status"#),
            Column::AGE,
        ],
    },
    Names {
        kind: "Provisioner",
        plural: "provisioners",
        singular: "provisioner",
        short: &[],
        category: "karpenter",
        namespaced: false,
        scale: None,
        columns: &[
            Column::shown("Template", "string", ".spec.providerRef.name"),
            Column::AGE,
            Column::hidden("Weight", "integer", ".spec.weight"),
        ],
    },
    Names {
        kind: "AWSNodeTemplate",
        plural: "awsnodetemplates",
        singular: "awsnodetemplate",
        short: &[],
        category: "karpenter",
        namespaced: false,
        scale: None,
        columns: &[Column::AGE],
    },
];

/// All definitions, by file name (`karpenter.sh_nodepools.yaml`), ready to apply.
pub fn all() -> Vec<(String, Value)> {
    NAMES
        .iter()
        .filter_map(|names| {
            // The current version comes first among the schemas.
            let versions: Vec<&Kind> = schema::kinds().iter().filter(|kind| kind.kind == names.kind).collect();
            let stored = versions.first()?;
            Some((format!("{}_{}.yaml", stored.group(), names.plural), definition(stored, &versions, names)))
        })
        .collect()
}

/// Whether objects of a kind belong to a namespace; false for kinds that are not ours.
pub fn is_namespaced(kind: &str) -> bool {
    NAMES.iter().any(|names| names.kind == kind && names.namespaced)
}

/// Whether a kind has the scale subresource: in the version that is stored.
pub(crate) fn is_scalable(kind: &Kind) -> bool {
    kind.status.is_some() && NAMES.iter().any(|names| names.kind == kind.kind && names.scale.is_some())
}

fn definition(stored: &Kind, versions: &[&Kind], names: &Names) -> Value {
    let group = stored.group();
    let mut annotations = json!({});
    if group.ends_with("x-k8s.io") {
        // API groups of the Kubernetes project must link their approval; the definition is the cluster autoscaler's.
        annotations["api-approved.kubernetes.io"] = "https://github.com/kubernetes/autoscaler/pull/8151".into();
    }
    let mut spec_names = json!({
        "kind": names.kind,
        "listKind": format!("{}List", names.kind),
        "plural": names.plural,
        "singular": names.singular,
        "categories": [names.category],
    });
    if !names.short.is_empty() {
        spec_names["shortNames"] = json!(names.short);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{group}", names.plural), "annotations": annotations},
        "spec": {
            "group": group,
            "names": spec_names,
            "scope": if names.namespaced { "Namespaced" } else { "Cluster" },
            "versions": versions.iter().map(|kind| version(kind, stored, versions, names)).collect::<Vec<_>>(),
        },
    })
}

fn version(kind: &Kind, stored: &Kind, versions: &[&Kind], names: &Names) -> Value {
    let is_stored = kind.api_version == stored.api_version;
    let mut spec = schema::openapi(&kind.spec);
    for other in versions.iter().filter(|other| other.api_version != kind.api_version) {
        kept::add_fields(&mut spec, &schema::openapi(&other.spec), other.api_version);
    }
    // A status is shown in every version as it is stored; Karpenter's own of the replaced kinds is kept as it is.
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let status = stored.status.as_ref().map_or_else(open, schema::openapi);
    let required: &[&str] = if kind.spec_required { &["metadata", "spec"] } else { &["metadata"] };
    let mut subresources = json!({"status": {}});
    if let (Some((wanted, actual)), true) = (names.scale, is_stored) {
        subresources["scale"] = json!({"specReplicasPath": wanted, "statusReplicasPath": actual});
    }
    let mut version = json!({
        "name": kind.api_version.split_once('/').map_or(kind.api_version, |(_, version)| version),
        "served": true,
        "storage": is_stored,
        "subresources": subresources,
        "additionalPrinterColumns": names.columns.iter().map(printer_column).collect::<Vec<_>>(),
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": spec,
                "status": status,
            },
            "required": required,
        }},
    });
    if kind.status.is_none() {
        version["deprecated"] = true.into();
        version["deprecationWarning"] = format!(
            "{} {} is from before v1: it is read as v1, and `whittle convert` prints what it is read as",
            kind.api_version, kind.kind
        )
        .into();
    }
    version
}

fn printer_column(column: &Column) -> Value {
    let Column { name, type_, path, is_hidden } = column;
    let mut printed = json!({"name": name, "type": type_, "jsonPath": path});
    if *is_hidden {
        printed["priority"] = 1.into();
    }
    printed
}

/// A definition as YAML, with a header comment that names its source.
///
/// # Errors
/// Never for what [`all`] returns; the serializer's signature has them.
pub fn yaml(definition: &Value) -> Result<String, serde_saphyr::ser::Error> {
    Ok(format!(
        "# Made from shared/api/src/schema; `WHITTLE_BLESS=1 cargo test -p whittle-api crd` writes it anew.\n{}",
        serde_saphyr::to_string(definition)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_committed_crds_equal_the_generated_ones() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/crds");
        let all = all();
        assert_eq!(all.len(), 7);
        for (name, definition) in &all {
            let (file, text) = (directory.join(name), yaml(definition).unwrap());
            if std::env::var_os("WHITTLE_BLESS").is_some() {
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(&file, &text).unwrap();
            }
            let committed = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(committed, text, "{} is stale: WHITTLE_BLESS=1 cargo test -p whittle-api crd", file.display());
            // Parsed as a server does: no string becomes a boolean or a number.
            assert_eq!(crate::yaml::documents(&text).unwrap()[0].to_json(), *definition, "{name}");
        }
    }

    #[test]
    fn every_rule_of_a_served_kind_has_a_cel_expression() {
        for (name, definition) in all() {
            assert!(!definition.to_string().contains(r#""rule":"""#), "{name}");
        }
    }

    /// How the writers of lists and maps share them, of which Karpenter's definitions say it.
    fn shared(schema: &Value, path: &str, into: &mut Vec<String>) {
        let field = schema["x-kubernetes-list-map-keys"][0].as_str().map_or_else(String::new, |field| format!(" by {field}"));
        let how = ["x-kubernetes-list-type", "x-kubernetes-map-type"].iter().filter_map(|key| schema[*key].as_str());
        into.extend(how.map(|how| format!("{path} {how}{field}")));
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            shared(field, &format!("{path}.{name}"), into);
        }
        if schema["items"].is_object() {
            shared(&schema["items"], path, into);
        }
    }

    #[test]
    fn lists_and_maps_are_shared_as_in_karpenters_definitions() {
        let mut all = Vec::new();
        for (_, definition) in super::all() {
            let kind = definition["spec"]["names"]["kind"].as_str().expect("it has a kind");
            shared(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], kind, &mut all);
        }
        let expected = [
            "NodePool.spec.disruption.budgets atomic",
            "NodePool.spec.disruption.budgets.reasons set",
            "NodePool.spec.template.metadata.annotations granular",
            "NodePool.spec.template.metadata.labels atomic",
            "NodePool.spec.template.spec.requirements atomic",
            "NodePool.spec.template.spec.requirements.values atomic",
            "NodePool.spec.template.spec.startupTaints atomic",
            "NodePool.spec.template.spec.taints atomic",
            "NodePool.status.conditions map by type",
            "NodeClaim.spec.requirements atomic",
            "NodeClaim.spec.requirements.values atomic",
            "NodeClaim.spec.startupTaints atomic",
            "NodeClaim.spec.taints atomic",
            "NodeClaim.status.conditions map by type",
            "NodeOverlay.spec.requirements atomic",
            "NodeOverlay.spec.requirements.values atomic",
            "NodeOverlay.status.conditions map by type",
            "EC2NodeClass.status.amis.requirements.values atomic",
            "CapacityBuffer.status.conditions map by type",
            "Provisioner.spec.startupTaints atomic",
            "Provisioner.spec.taints atomic",
        ];
        assert_eq!(all, expected);
    }
}
