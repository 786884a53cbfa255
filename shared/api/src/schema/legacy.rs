//! Schemas of the versions before v1 (api 12 to 14): shapes, unknown fields and meaningless combinations are rejected; the converted
//! objects are validated as v1.

use super::parts::{self, has, str_of};
use super::{
    Field, Kind, Schema, Shape, boolean, int32, int64, kubelet, list, map, may, need, node_class, object, one_of, quantities, quantity,
    text,
};
use serde_json::{Value, json};

const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];

pub(super) fn kinds() -> Vec<Kind> {
    let kind = |api_version, kind, spec| Kind { api_version, kind, spec, spec_required: true, status: None };
    vec![
        kind("karpenter.sh/v1alpha5", "Provisioner", provisioner()),
        kind("karpenter.sh/v1alpha5", "Machine", claim("machineTemplateRef")),
        kind("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate", template(true)),
        kind("karpenter.sh/v1beta1", "NodePool", beta_pool()),
        kind("karpenter.sh/v1beta1", "NodeClaim", claim("nodeClassRef")),
        kind("karpenter.k8s.aws/v1beta1", "EC2NodeClass", beta_class()),
    ]
}

fn requirements() -> Schema {
    list(object([
        need("key", text().pattern(parts::KEY_PATTERN).about("the label key that the requirement is about")),
        need("operator", one_of(OPERATORS).about("how the label's value and the values relate")),
        may("values", list(text())),
        may("minValues", int32().range(1, 50)),
    ]))
    .max(100)
    .rule(
        "self.all(r, r.operator != 'In' || (has(r.values) && r.values.size() != 0))",
        "an In requirement without values matches nothing: give values, or use Exists",
        |list| {
            parts::items(list)
                .iter()
                .all(|r| str_of(r, "operator") != "In" || r.get("values").is_some_and(|values| !parts::items(values).is_empty()))
        },
    )
    .rule(
        "self.all(r, !(r.operator in ['Gt', 'Lt']) || (has(r.values) && r.values.size() == 1 && int(r.values[0]) >= 0))",
        "Gt and Lt compare with one whole number that is not negative: give exactly one, in quotes",
        |list| {
            parts::items(list).iter().filter(|r| matches!(str_of(r, "operator"), "Gt" | "Lt")).all(|r| {
                let values = r.get("values").map_or(&[] as &[Value], parts::items);
                matches!(values, [Value::String(text)] if text.parse::<i64>().is_ok_and(|number| 0 <= number))
            })
        },
    )
}

fn reference() -> Schema {
    object([may("apiVersion", text()), may("kind", text()), need("name", text().min(1).about("name of the class or template"))])
}

fn provisioner() -> Schema {
    let consolidation = object([may("enabled", boolean())]);
    object([
        may("annotations", parts::texts()),
        may("labels", map(text())),
        may("taints", parts::taints()),
        may("startupTaints", parts::taints()),
        may("requirements", requirements()),
        may("kubeletConfiguration", kubelet::block(true)),
        may("provider", inline_provider()),
        may("providerRef", reference()),
        may("ttlSecondsAfterEmpty", int64().range(0, None)),
        may("ttlSecondsUntilExpired", int64().range(0, None)),
        may("consolidation", consolidation),
        may("limits", object([may("resources", quantities())])),
        may("weight", int32().range(1, 100)),
    ])
    .rule("!(has(self.provider) && has(self.providerRef))", "provider and providerRef exclude each other: keep providerRef", |spec| {
        !(has(spec, "provider") && has(spec, "providerRef"))
    })
    .rule(
        "!(has(self.ttlSecondsAfterEmpty) && has(self.consolidation) && has(self.consolidation.enabled) && self.consolidation.enabled)",
        "ttlSecondsAfterEmpty and consolidation exclude each other: consolidation removes empty nodes too",
        |spec| !(has(spec, "ttlSecondsAfterEmpty") && spec.pointer("/consolidation/enabled") == Some(&Value::Bool(true))),
    )
}

fn claim(reference_field: &'static str) -> Schema {
    object([
        need("requirements", requirements()),
        need(reference_field, reference()),
        may("taints", parts::taints()),
        may("startupTaints", parts::taints()),
        may("kubelet", kubelet::block(reference_field != "nodeClassRef")),
        may("resources", object([may("requests", quantities())])),
    ])
}

fn selector() -> Schema {
    map(text().min(1)).rule("self.all(k, k != '')", "a selector has no empty keys: name the tag", |selector| {
        parts::all_keys(selector, |key| !key.is_empty())
    })
}

fn template_fields() -> Vec<Field> {
    let families: &[&str] = &["AL2", "AL2023", "Bottlerocket", "Ubuntu", "Windows2019", "Windows2022", "Custom"];
    vec![
        may("subnetSelector", selector()),
        may("securityGroupSelector", selector()),
        may("amiSelector", selector()),
        may("amiFamily", one_of(families)),
        may("instanceProfile", text().min(1)),
        may("userData", text()),
        may("context", text()),
        may("detailedMonitoring", boolean()),
        may("tags", parts::texts()),
        may("launchTemplate", text()),
        may("metadataOptions", node_class::metadata_options(2)),
        may("blockDeviceMappings", block_devices()),
    ]
}

fn block_devices() -> Schema {
    let ebs = object([
        may("deleteOnTermination", boolean()),
        may("encrypted", boolean()),
        may("iops", int64()),
        may("kmsKeyID", text()),
        may("snapshotID", text()),
        may("throughput", int64()),
        may("volumeSize", quantity()),
        may("volumeType", text()),
    ]);
    list(object([may("deviceName", text()), may("ebs", ebs)]))
}

fn template(standalone: bool) -> Schema {
    Schema::new(Shape::Object(template_fields()))
        .rule(
            "has(self.subnetSelector)",
            "subnetSelector is missing: say which subnets, such as karpenter.sh/discovery: <cluster>",
            move |spec| parts::has(spec, "subnetSelector"),
        )
        .rule(
            "has(self.securityGroupSelector) || has(self.launchTemplate)",
            if standalone {
                "securityGroupSelector is missing: say which security groups, such as karpenter.sh/discovery: <cluster>"
            } else {
                "provider.securityGroupSelector is missing: say which security groups"
            },
            |spec| has(spec, "securityGroupSelector") || has(spec, "launchTemplate"),
        )
        .rule(
            "!has(self.amiFamily) || self.amiFamily != 'Custom' || has(self.amiSelector) || has(self.launchTemplate)",
            "amiFamily Custom has no images of its own: name them in amiSelector",
            |spec| str_of(spec, "amiFamily") != "Custom" || has(spec, "amiSelector") || has(spec, "launchTemplate"),
        )
}

fn inline_provider() -> Schema {
    let mut schema = template(false);
    if let Shape::Object(fields) = &mut schema.shape {
        fields.extend([may("apiVersion", text()), may("kind", text())]);
    }
    schema
}

fn beta_pool() -> Schema {
    let spec = object([
        need("requirements", requirements()),
        need("nodeClassRef", reference()),
        may("taints", parts::taints()),
        may("startupTaints", parts::taints()),
        may("kubelet", kubelet::block(false)),
        may("resources", object([may("requests", quantities())])),
    ]);
    let template = object([may("metadata", object([may("labels", map(text())), may("annotations", parts::texts())])), need("spec", spec)]);
    let budget = object([
        may("nodes", text().default(json!("10%"))),
        may("schedule", text()),
        may("duration", text()),
        may("reasons", list(text())),
    ]);
    let disruption = object([
        may("consolidationPolicy", one_of(&["WhenEmpty", "WhenUnderutilized"]).default(json!("WhenUnderutilized"))),
        may("consolidateAfter", text().pattern(parts::NILLABLE_DURATION)),
        may("expireAfter", text().pattern(parts::NILLABLE_DURATION).default(json!("720h"))),
        may("budgets", list(budget).max(50).default(json!([{"nodes": "10%"}]))),
    ])
    // The stored version's default, 0s, comes back with an object that has no consolidateAfter: the CEL lets it pass.
    .rule(
        "(has(self.consolidationPolicy) && self.consolidationPolicy == 'WhenEmpty') || !has(self.consolidateAfter) || \
         self.consolidateAfter in ['Never', '0s']",
        "consolidateAfter goes with WhenEmpty only: leave it out, or write consolidationPolicy WhenEmpty",
        |d| str_of(d, "consolidationPolicy") == "WhenEmpty" || !has(d, "consolidateAfter") || str_of(d, "consolidateAfter") == "Never",
    )
    .rule(
        "!has(self.consolidationPolicy) || self.consolidationPolicy != 'WhenEmpty' || has(self.consolidateAfter)",
        "WhenEmpty needs consolidateAfter: say how long a node stays empty",
        |d| str_of(d, "consolidationPolicy") != "WhenEmpty" || has(d, "consolidateAfter"),
    );
    object([
        need("template", template),
        may("disruption", disruption.default(json!({"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"}))),
        may("limits", quantities()),
        may("weight", int32().range(1, 100)),
    ])
}

fn beta_class() -> Schema {
    let families: &[&str] =
        &["AL2", "AL2023", "Bottlerocket", "Ubuntu", "Ubuntu2004", "Ubuntu2204", "Custom", "Windows2019", "Windows2022"];
    let terms = list(Schema::new(Shape::Object(node_class::ami_term_fields()))).max(30).rule(
        "self.all(t, has(t.id) ? !(has(t.tags) || has(t.name) || has(t.owner)) : (has(t.tags) || has(t.name)))",
        "a term needs tags, an id or a name; an id excludes everything else in its term",
        |list| {
            parts::items(list).iter().all(|term| {
                let others = ["tags", "name", "owner"].iter().any(|field| has(term, field));
                if has(term, "id") { !others } else { has(term, "tags") || has(term, "name") }
            })
        },
    );
    object([
        need("amiFamily", one_of(families).about("the family decides how nodes are bootstrapped")),
        may("amiSelectorTerms", terms),
        need("subnetSelectorTerms", node_class::subnet_terms()),
        need("securityGroupSelectorTerms", node_class::security_group_terms()),
        may("role", text().min(1)),
        may("instanceProfile", text().min(1)),
        may("userData", text()),
        may("tags", node_class::tags()),
        may("associatePublicIPAddress", boolean()),
        may("detailedMonitoring", boolean()),
        may("context", text()),
        may("instanceStorePolicy", one_of(&["RAID0"])),
        may("blockDeviceMappings", node_class::block_devices()),
        may("metadataOptions", node_class::metadata_options(2).default(json!({}))),
    ])
    .rule("has(self.role) != has(self.instanceProfile)", "give exactly one of role and instanceProfile", |spec| {
        has(spec, "role") != has(spec, "instanceProfile")
    })
    .rule(
        "self.amiFamily != 'Custom' || (has(self.amiSelectorTerms) && self.amiSelectorTerms.size() != 0)",
        "amiFamily Custom has no images of its own: name them in amiSelectorTerms",
        |spec| str_of(spec, "amiFamily") != "Custom" || spec.get("amiSelectorTerms").is_some_and(|terms| !parts::items(terms).is_empty()),
    )
}
