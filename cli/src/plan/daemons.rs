//! DaemonSets that decide how large the machines of a plan are.

use super::later::cheapest;
use crate::money::counted;
use crate::source::{InstanceTypesByPool, Manifests, Remark, daemons};
use whittle_api::k8s::Pod;
use whittle_model::pods;
use whittle_model::scheduling::Plan;
use whittle_units::Quantity;

/// A note for each DaemonSet whose pod takes more than half of each planned machine that it runs on, as the cheapest that this may be.
pub(super) fn remarks(read: &Manifests, offered: &InstanceTypesByPool, plan: &Plan) -> Vec<Remark> {
    let sets = pods::daemon_pods(&read.objects.daemon_sets, &read.objects.pods);
    if sets.is_empty() {
        return Vec::new();
    }
    // One of a type that nobody knows may be large enough.
    let all = plan.claims.iter().map(|claim| cheapest(claim, offered).map(|(labels, found)| (labels, &claim.taints, found)));
    let Some(machines) = all.collect::<Option<Vec<_>>>() else { return Vec::new() };
    let told = |daemon: &Pod| {
        let suited = machines.iter().filter(|(labels, taints, _)| daemons::suits(daemon, labels, taints));
        let types: Vec<_> = suited.map(|(_, _, found)| *found).collect();
        let requests = pods::effective_requests(daemon);
        let asked: Vec<(&str, Quantity)> = requests.iter().filter(|(name, amount)| *name != "pods" && !amount.is_zero()).collect();
        let is_most = |name: &str, amount: Quantity| types.iter().all(|one| one.allocatable_of(name).milli() / 2 < amount.milli());
        let (most, _) = asked.iter().find(|(name, amount)| is_most(name, *amount)).filter(|_| !types.is_empty())?;
        let asked: Vec<String> = asked.iter().map(|(name, amount)| format!("{name} {}", amount.text_of(name))).collect();
        Some(Remark::note(format!(
            "DaemonSet {} has a pod with requests of {} on {}, more than half of the {most} of each: it decides how large these are, and \
             most of their price; lower its requests, or keep it off them by its nodeSelector or affinity, if that is not meant",
            daemons::key(daemon),
            asked.join(", "),
            counted(types.len(), "new machine")
        )))
    };
    sets.iter().filter_map(told).collect()
}
