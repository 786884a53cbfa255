//! The typed kubelet block that pools had before v1 (api 12.1).

use super::parts::has;
use super::{Schema, boolean, int32, list, may, one_of, quantity, text};
use crate::schema::map;

/// The block; v1alpha5 had one more field.
pub(super) fn block(alpha: bool) -> Schema {
    let mut fields = vec![
        may("clusterDNS", list(text()).about("addresses of the cluster's DNS")),
        may("maxPods", int32().range(0, None).about("most pods on a node")),
        may("podsPerCore", int32().range(0, None).about("most pods for each core")),
        may("systemReserved", map(quantity()).about("kept back for the system")),
        may("kubeReserved", map(quantity()).about("kept back for the kubelet")),
        may("evictionHard", map(text()).about("thresholds of eviction")),
        may("evictionSoft", map(text()).about("thresholds of eviction after a time")),
        may("evictionSoftGracePeriod", map(text()).about("the times")),
        may("evictionMaxPodGracePeriod", int32().about("most seconds that an evicted pod gets")),
        may("imageGCHighThresholdPercent", int32().range(0, 100).about("disk use above which images go")),
        may("imageGCLowThresholdPercent", int32().range(0, 100).about("disk use down to which images go")),
        may("cpuCFSQuota", boolean().about("whether CPU limits are enforced")),
    ];
    if alpha {
        fields.push(may("containerRuntime", one_of(&["containerd", "dockerd"]).about("has no effect any more")));
    }
    Schema::new(super::Shape::Object(fields)).rule("!(has(self.imageGCHighThresholdPercent) && has(self.imageGCLowThresholdPercent)) || self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent", "imageGCHighThresholdPercent must be above imageGCLowThresholdPercent", |kubelet| {
        let percent = |key: &str| kubelet.get(key).and_then(serde_json::Value::as_i64);
        !(has(kubelet, "imageGCHighThresholdPercent") && has(kubelet, "imageGCLowThresholdPercent"))
            || percent("imageGCLowThresholdPercent") < percent("imageGCHighThresholdPercent")
    })
}
