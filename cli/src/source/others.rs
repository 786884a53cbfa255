//! NodePools of other controllers, such as EKS Auto Mode. Only these plan for them, and know what their classes launch.

use super::manifests::Manifests;
use whittle_api::karpenter::NodePool;
use whittle_api::words;

/// Whose NodePool it is, if it is not one of ours.
pub(crate) fn whose(pool: &NodePool) -> Option<String> {
    let reference = &pool.spec.template.spec.node_class_ref;
    let kind = if reference.group.is_empty() { reference.kind.clone() } else { format!("{}/{}", reference.group, reference.kind) };
    let remark = || {
        let (name, kind) = (&pool.metadata.name, words::printable(&kind));
        format!("NodePool {name:?} is managed by another controller (its node class is {kind} {:?})", reference.name)
    };
    (!pool.is_managed()).then(remark)
}

impl Manifests {
    /// Leaves out the NodePools of other controllers, as the functions do. Their nodes, and the pods on them, stay.
    pub(crate) fn leave_others_aside(&mut self) {
        let remark = |pool: &NodePool| Some((pool.metadata.name.clone(), format!("{}: it is not planned for", whose(pool)?)));
        self.others = self.objects.node_pools.iter().filter_map(remark).collect();
        self.objects.node_pools.retain(NodePool::is_managed);
    }
}
