//! NodeClaim `karpenter.sh/v1` (api 6).

use super::parts::{self, Keys};
use super::{Kind, Schema, may, need, object, quantities, text, time};
use serde_json::json;

pub(super) fn kind() -> Kind {
    let spec = object([
        need("requirements", parts::requirements(Keys::Claim)),
        need("nodeClassRef", parts::node_class_ref()),
        may("resources", object([may("requests", quantities().about("what the node has to have at least"))]).about("what pods need on it")),
        may("taints", parts::taints().about("taints of the node")),
        may("startupTaints", parts::taints().about("taints of the new node that somebody takes away")),
        may(
            "expireAfter",
            text().pattern(parts::NILLABLE_DURATION).default(json!("720h")).about("age at which the node is replaced, or Never"),
        ),
        may("terminationGracePeriod", text().pattern(parts::DURATION).about("time after which draining is forced")),
    ])
    .about("the node that is wanted")
    .change("self == oldSelf", "the spec of a claim never changes: delete it and let its pool make another", |old, new| old == new);
    Kind { api_version: "karpenter.sh/v1", kind: "NodeClaim", spec, spec_required: true, status: Some(status()) }
}

fn status() -> Schema {
    object([
        may("nodeName", text().about("the Node that it became")),
        may("providerID", text().about("the instance as Kubernetes names it")),
        may("imageID", text().about("the image it was started from")),
        may("capacity", quantities().about("what the machine has")),
        may("allocatable", quantities().about("what pods can use of it")),
        may("lastPodEventTime", time().about("when a pod last came or went")),
        may("conditions", parts::conditions().keyed_by("type")),
    ])
    .about("how far it has come")
}
