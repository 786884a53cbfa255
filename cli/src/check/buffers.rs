//! CapacityBuffers that ask for more than they get.

use whittle_api::k8s::{PodSource, PodTemplate};
use whittle_api::karpenter::CapacityBuffer;
use whittle_solver::buffers::resolve;
use whittle_units::Timestamp;

/// The message about a buffer whose `spec.replicas` exceeds what a buffer may have. Only buffers without limits are judged: limits and
/// percentages depend on the object that the buffer refers to.
pub(super) fn too_large(buffer: &CapacityBuffer) -> Option<String> {
    let any = PodSource { template: PodTemplate::default(), replicas: 0, generation: None };
    let resolved = buffer.spec.limits.is_empty().then(|| resolve(buffer, Ok(&any), Timestamp::UNIX_EPOCH))?;
    (!resolved.shortfall.is_empty()).then(|| format!("spec.replicas: {}", resolved.shortfall))
}
