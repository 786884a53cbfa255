//! Tolerations and taints, each list stored once.

use super::hash::Map;
use super::ids::{IdVec, TaintsId, TolerationId};
use whittle_api::k8s::{Taint, Toleration};

/// Lists of tolerations and of taints, with their numbers.
#[derive(Debug, Default)]
pub(crate) struct TaintTable {
    pub(crate) tolerations: IdVec<TolerationId, Vec<Toleration>>,
    toleration_of: Map<Vec<Toleration>, TolerationId>,
    pub(crate) taints: IdVec<TaintsId, Vec<Taint>>,
    taints_of: Map<Vec<Taint>, TaintsId>,
}

impl TaintTable {
    pub(crate) fn tolerations(&mut self, list: &[Toleration]) -> TolerationId {
        if let Some(id) = self.toleration_of.get(list) {
            return *id;
        }
        let id = self.tolerations.push(list.to_vec());
        self.toleration_of.insert(list.to_vec(), id);
        id
    }

    pub(crate) fn taints(&mut self, list: &[Taint]) -> TaintsId {
        if let Some(id) = self.taints_of.get(list) {
            return *id;
        }
        let id = self.taints.push(list.to_vec());
        self.taints_of.insert(list.to_vec(), id);
        id
    }

    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        let tolerations = &self.tolerations[tolerations];
        self.taints[taints].iter().all(|t| whittle_model::pods::tolerates(tolerations, t))
    }
}

/// By tolerations, then taints: whether all the taints are tolerated.
pub(crate) struct ToleranceTable(IdVec<TolerationId, IdVec<TaintsId, bool>>);

impl ToleranceTable {
    /// For all pairs of lists in `table`.
    pub(crate) fn of(table: &TaintTable) -> Self {
        let row = |tolerations| table.taints.ids().map(|taints| table.tolerated(tolerations, taints)).collect();
        Self(table.tolerations.ids().map(row).collect())
    }

    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        self.0[tolerations][taints]
    }
}
