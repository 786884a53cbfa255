//! NodeOverlay `karpenter.sh/v1alpha1` (api 7).

use super::parts::{self, Keys};
use super::{Kind, Schema, int32, may, need, object, quantities, text};

pub(super) const PRICE: &str = r"^\d+(\.\d+)?$";
pub(super) const ADJUSTMENT: &str = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$";

pub(super) fn kind() -> Kind {
    let capacity = quantities().about("extended resources that the types have besides their own").rule(
        "self.all(k, !(k in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
        "cpu, memory, ephemeral-storage and pods are facts of the type: only extended resources can be added",
        |capacity| parts::all_keys(capacity, |key| !matches!(key, "cpu" | "memory" | "ephemeral-storage" | "pods")),
    );
    let spec = object([
        need("requirements", parts::requirements(Keys::Overlay)),
        may("price", text().pattern(PRICE).about("price per hour instead of the known one")),
        may("priceAdjustment", text().pattern(ADJUSTMENT).about("signed amount or percentage by which the price is changed, +0.1 or -10%")),
        may("capacity", capacity),
        may("weight", int32().range(1, 10_000).about("overlays of higher weight win")),
    ])
    .about("what types it changes, and how")
    .rule("!has(self.price) || !has(self.priceAdjustment)", "price and priceAdjustment exclude each other: keep one", |spec| {
        !parts::has(spec, "price") || !parts::has(spec, "priceAdjustment")
    });
    Kind { api_version: "karpenter.sh/v1alpha1", kind: "NodeOverlay", spec, spec_required: true, status: Some(status()) }
}

fn status() -> Schema {
    object([may("conditions", parts::conditions().keyed_by("type"))]).about("whether it is used")
}
