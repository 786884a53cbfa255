//! Tolerations and taints, each list stored once.

use super::hash::Map;
use super::ids::{TaintsId, TolerationId};
use whittle_api::k8s::{Taint, Toleration};

/// Lists of tolerations and of taints, with their numbers.
#[derive(Debug, Default)]
pub(crate) struct TaintTable {
    pub(crate) tolerations: Vec<Vec<Toleration>>,
    toleration_of: Map<Vec<Toleration>, TolerationId>,
    pub(crate) taints: Vec<Vec<Taint>>,
    taints_of: Map<Vec<Taint>, TaintsId>,
}

impl TaintTable {
    pub(crate) fn tolerations(&mut self, list: &[Toleration]) -> TolerationId {
        if let Some(id) = self.toleration_of.get(list) {
            return *id;
        }
        let id = TolerationId(u32::try_from(self.tolerations.len()).expect("fewer than 2^32 lists of tolerations"));
        self.tolerations.push(list.to_vec());
        self.toleration_of.insert(list.to_vec(), id);
        id
    }

    pub(crate) fn taints(&mut self, list: &[Taint]) -> TaintsId {
        if let Some(id) = self.taints_of.get(list) {
            return *id;
        }
        let id = TaintsId(u32::try_from(self.taints.len()).expect("fewer than 2^32 lists of taints"));
        self.taints.push(list.to_vec());
        self.taints_of.insert(list.to_vec(), id);
        id
    }

    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        let tolerations = &self.tolerations[tolerations.0 as usize];
        self.taints[taints.0 as usize].iter().all(|t| whittle_model::pods::tolerates(tolerations, t))
    }
}

/// By tolerations, then taints: whether all the taints are tolerated.
pub(crate) struct ToleranceTable(Vec<Vec<bool>>);

impl ToleranceTable {
    /// For all pairs of lists in `table`.
    pub(crate) fn of(table: &TaintTable) -> Self {
        let row = |tolerations: usize| {
            (0..table.taints.len()).map(|taints| table.tolerated(TolerationId(tolerations as u32), TaintsId(taints as u32))).collect()
        };
        Self((0..table.tolerations.len()).map(row).collect())
    }

    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        self.0[tolerations.0 as usize][taints.0 as usize]
    }
}
