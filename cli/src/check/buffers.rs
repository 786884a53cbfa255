//! CapacityBuffers that ask for more than they get.

use whittle_api::k8s::{PodSource, PodTemplate};
use whittle_api::karpenter::CapacityBuffer;
use whittle_solver::buffers::resolve;
use whittle_units::Timestamp;

/// That a buffer has fewer pods than its `spec.replicas`. How many its limits leave, and what a percentage comes to, the object with its
/// pods says; without limits no such object makes less of them.
pub(super) fn too_large(buffer: &CapacityBuffer) -> Option<String> {
    let any = PodSource { template: PodTemplate::default(), replicas: 0, generation: None };
    let resolved = buffer.spec.limits.is_empty().then(|| resolve(buffer, Ok(&any), Timestamp::UNIX_EPOCH))?;
    (!resolved.shortfall.is_empty()).then(|| format!("spec.replicas: {}", resolved.shortfall))
}
