//! Kinds from before v1, and their conversion to v1 (api 12 to 16).
//!
//! Conversion is a pure function over a set of objects: a pool's kubelet settings move to the class that it refers to, so both
//! have to be converted together.

mod class;
mod kubelet;
mod pool;
mod selector;
mod stored;
#[cfg(test)]
mod tests;
mod types;

use crate::labels;
use crate::manifest::Object;
use crate::meta::ObjectMeta;
pub use stored::Versioned;
pub use stored::version_before;
pub use types::{
    AwsNodeTemplate, AwsNodeTemplateSpec, BetaConsolidationPolicy, BetaDisruption, BetaNodeClaim, BetaNodeClaimSpec, BetaNodeClass,
    BetaNodePool, BetaNodePoolSpec, BetaTemplate, Consolidation, Kubelet, LegacyBlockDevice, LegacyBlockDeviceMapping, LegacyObject,
    LegacyReference, Provisioner, ProvisionerLimits, ProvisionerSpec,
};

/// Placeholder if neither a role nor a profile is known; the user has to replace it.
pub const ROLE_PLACEHOLDER: &str = "$KARPENTER_NODE_ROLE";
/// JSON of the kubelet settings that a pool or claim had.
pub const KUBELET_ANNOTATION: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
/// JSON of the reference as in the old object.
pub const REFERENCE_ANNOTATION: &str = "compatibility.karpenter.sh/v1beta1-nodeclass-reference";
/// The changes that were made for Ubuntu, comma-separated.
pub const UBUNTU_ANNOTATION: &str = "compatibility.karpenter.k8s.aws/v1beta1-ubuntu";

/// The use of the converted objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For decisions, in place of the old objects: they are marked with their origin, keep all metadata, and
    /// get no placeholders.
    OnRead,
    /// To be printed and applied instead of the old objects: clean manifests.
    Output,
}

/// Options of the conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertOptions {
    pub purpose: Purpose,
    /// For classes converted from templates without a profile.
    pub default_instance_profile: Option<String>,
    /// The same with a role; the profile takes precedence.
    pub default_role: Option<String>,
    /// Omit the requirements that v1alpha5 added to every Provisioner.
    pub ignore_defaults: bool,
    /// Use AL2023 for templates without AMIs, which would be AL2.
    pub al2023: bool,
}

impl ConvertOptions {
    /// The default options.
    pub const fn new(purpose: Purpose) -> Self {
        Self { purpose, default_instance_profile: None, default_role: None, ignore_defaults: false, al2023: false }
    }
}

/// A remark for the owner of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Kind and name of the converted object, `NodePool "default"`.
    pub object: String,
    pub text: String,
    /// Whether the text is printed in the manifest as well.
    pub in_output: bool,
}

/// An old object that has no equivalent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}, {field}: {message}")]
pub struct ConvertError {
    /// Kind and name of the old object.
    pub object: String,
    pub field: String,
    pub message: String,
}

/// The outcome of a conversion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Converted {
    /// All objects in the order of the input, old ones converted.
    pub objects: Vec<Object>,
    pub warnings: Vec<Note>,
    /// Old objects that cannot be converted and are omitted.
    pub errors: Vec<ConvertError>,
}

/// Converts the old objects of a set; all others pass through.
pub fn convert(objects: Vec<Object>, options: &ConvertOptions) -> Converted {
    let mut work = Work { options, slots: Vec::new(), claims: Vec::new(), out: Converted::default() };
    for object in objects {
        match object {
            Object::Legacy(old) => work.take(old),
            other => work.slots.push(Slot { object: other, origin: None, kubelet: None }),
        }
    }
    work.set_expiry_of_claims();
    kubelet::move_to_classes(&mut work);
    work.out.objects = work.slots.into_iter().map(|slot| slot.object).collect();
    work.out
}

/// An object during conversion.
struct Slot {
    object: Object,
    /// Its kind before the conversion.
    origin: Option<&'static str>,
    /// The kubelet block of a pool, to be moved to its class.
    kubelet: Option<serde_json::Value>,
}

struct Work<'a> {
    options: &'a ConvertOptions,
    slots: Vec<Slot>,
    /// Positions of claims whose expiry is that of their pool, with the origin of the pool.
    claims: Vec<(usize, Option<&'static str>)>,
    out: Converted,
}

impl Work<'_> {
    fn take(&mut self, old: LegacyObject) {
        let (_, kind) = old.type_meta();
        let name = format!("{kind} {:?}", old.meta().name);
        let converted = match old {
            LegacyObject::Provisioner(old) => self.provisioner(*old),
            LegacyObject::AwsNodeTemplate(old) => self.template(*old),
            LegacyObject::NodePool(old) => {
                self.beta_pool(*old);
                Ok(())
            }
            LegacyObject::NodeClaim(old) => {
                self.claim(*old, None);
                Ok(())
            }
            LegacyObject::Machine(old) => {
                self.claim(*old, Some("Provisioner"));
                Ok(())
            }
            LegacyObject::NodeClass(old) => self.beta_class(*old),
        };
        for (field, message) in converted.err().into_iter().flatten() {
            self.out.errors.push(ConvertError { object: name.clone(), field, message });
        }
    }

    fn push(&mut self, object: Object, origin: Option<&'static str>, kubelet: Option<serde_json::Value>) {
        self.slots.push(Slot { object, origin, kubelet });
    }

    /// The metadata of a converted object.
    fn metadata(&self, old: ObjectMeta, origin: Option<&'static str>) -> ObjectMeta {
        let mut metadata = match self.options.purpose {
            Purpose::OnRead => old,
            Purpose::Output => ObjectMeta {
                name: old.name,
                namespace: old.namespace,
                labels: old.labels,
                annotations: old.annotations,
                finalizers: old.finalizers,
                ..ObjectMeta::default()
            },
        };
        if let (Purpose::OnRead, Some(origin)) = (self.options.purpose, origin) {
            metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), origin.to_owned());
        }
        metadata
    }

    fn note(&mut self, kind: &str, name: &str, text: impl Into<String>) {
        self.out.warnings.push(Note { object: format!("{kind} {name:?}"), text: text.into(), in_output: false });
    }

    fn note_in_output(&mut self, kind: &str, name: &str, text: impl Into<String>) {
        self.out.warnings.push(Note { object: format!("{kind} {name:?}"), text: text.into(), in_output: true });
    }
}

/// Why an object cannot be converted: field and message of each cause. For an object that is only read, users see the first one alone.
type Refusal = Vec<(String, String)>;
