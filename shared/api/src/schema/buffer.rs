//! CapacityBuffer `autoscaling.x-k8s.io/v1beta1` (api 10).

use super::parts::{self, has};
use super::{Kind, Schema, int32, int64, may, need, object, quantities, text};
use serde_json::json;

pub(super) fn kind() -> Kind {
    let scalable = object([
        may("apiGroup", text().about("API group of the workload; empty for the core group")),
        need("kind", text().min(1).about("kind of the workload")),
        need("name", text().min(1).about("name of the workload")),
    ]);
    let spec = object([
        may("podTemplateRef", template_ref().about("the pods that room is kept for")),
        may("scalableRef", scalable.about("the workload whose pods room is kept for")),
        may("replicas", int32().range(0, None).about("how many pods room is kept for")),
        may("percentage", int32().range(0, None).about("the same as a share of the workload's replicas")),
        may("limits", quantities().about("most of each resource that the buffer may take")),
        may("provisioningStrategy", text().default(json!("buffer.x-k8s.io/active-capacity")).about("how room is kept")),
    ])
    .about("what room is kept")
    .rule(
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "with podTemplateRef say how much: give replicas or limits",
        |spec| !has(spec, "podTemplateRef") || has(spec, "replicas") || has(spec, "limits"),
    )
    .rule(
        "!(has(self.podTemplateRef) && has(self.scalableRef))",
        "podTemplateRef and scalableRef exclude each other: keep one",
        |spec| !(has(spec, "podTemplateRef") && has(spec, "scalableRef")),
    );
    Kind { api_version: "autoscaling.x-k8s.io/v1beta1", kind: "CapacityBuffer", spec, spec_required: true, status: Some(status()) }
}

fn template_ref() -> Schema {
    object([need("name", text().min(1).about("name of a PodTemplate in the same namespace"))])
}

fn status() -> Schema {
    object([
        may("conditions", parts::conditions().keyed_by("type")),
        may("podTemplateRef", template_ref().about("the template in use")),
        may("podTemplateGeneration", int64().about("its generation")),
        may("provisioningStrategy", text().about("the strategy in use")),
        may("replicas", int32().about("how many pods room is kept for")),
    ])
    .about("what room there is")
}
