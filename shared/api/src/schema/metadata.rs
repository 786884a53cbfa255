//! ObjectMeta, which the schema of a CRD does not describe: the API server decodes it for every kind alike.

use super::{Schema, boolean, int64, list, map, may, object, open, text};
use std::sync::LazyLock;

/// The fields that metadata may have, with their types. Which values are allowed is for `validate` to say.
pub(crate) fn object_meta() -> &'static Schema {
    static META: LazyLock<Schema> = LazyLock::new(|| {
        object([
            may("name", text()),
            may("labels", map(text())),
            may("annotations", map(text())),
            may("generateName", text()),
            may("namespace", text()),
            may("finalizers", list(text())),
            may("ownerReferences", list(owner())),
            may("uid", text()),
            may("resourceVersion", text()),
            may("generation", int64()),
            may("creationTimestamp", text()),
            may("deletionTimestamp", text()),
            may("deletionGracePeriodSeconds", int64()),
            may("selfLink", text()),
            may("managedFields", list(managed_fields())),
        ])
    });
    &META
}

fn owner() -> Schema {
    object([
        may("apiVersion", text()),
        may("kind", text()),
        may("name", text()),
        may("uid", text()),
        may("controller", boolean()),
        may("blockOwnerDeletion", boolean()),
    ])
}

fn managed_fields() -> Schema {
    object([
        may("manager", text()),
        may("operation", text()),
        may("apiVersion", text()),
        may("time", text()),
        may("fieldsType", text()),
        may("fieldsV1", open()),
        may("subresource", text()),
    ])
}
