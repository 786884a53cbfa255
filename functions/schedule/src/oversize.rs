//! Machines whose claims are too large to be stored. Because of a single one the table would refuse all claims of a request, again and
//! again. They are set aside first, and the rest of the plan is executed. This is rare, since templates and pods are bounded. Pure.

use crate::set_aside::{leave_waiting, set_aside};
use serde::Serialize;
use whittle_claims::{ClaimSpec, oversize};
use whittle_model::scheduling::{NewClaim, Plan, Reason};
use whittle_ports::Report;
use whittle_snapshot::{Snapshot, claim_of};
use whittle_units::ClusterName;

/// Takes machines out of a plan whose claims cannot be stored. Their pods are left out, and so are those that could not be bound without
/// them: a machine that is launched for these alone would be removed as empty, and launched again.
pub(crate) fn too_large(plan: &mut Plan, snapshot: &Snapshot, cluster: &ClusterName, report: &mut Report) {
    let reasons: Vec<Option<Reason>> = plan.claims.iter().map(|new| against(new, snapshot, cluster, report)).collect();
    if reasons.iter().all(Option::is_none) {
        return;
    }
    let (input, whole) = (snapshot.input(), plan.clone());
    let mut reasons = reasons.into_iter();
    set_aside(plan, |_| reasons.next().flatten());
    loop {
        let stranded = whittle_checker::stranded(&input, &whole, plan);
        if stranded.is_empty() {
            return;
        }
        leave_waiting(plan, &stranded, &Reason::AwaitsTooLarge);
    }
}

/// Why a machine's claim cannot be stored; `None` if it can.
fn against(new: &NewClaim, snapshot: &Snapshot, cluster: &ClusterName, report: &mut Report) -> Option<Reason> {
    // Its name and uid have a few bytes.
    let claim = claim_of(new, snapshot, cluster, String::new);
    let size = oversize(&claim)?;
    let (node_pool, field, kib) = (new.node_pool.clone(), largest_field(&claim.spec), size.div_ceil(1024));
    tracing::error!(%cluster, nodepool = %node_pool, pods = new.pods.len(), kib, field, "a claim is too large to be stored");
    report.count("claims_too_large");
    Some(Reason::TooLarge { node_pool, field, kib })
}

/// The field of a NodeClaim that takes most room.
fn largest_field(spec: &ClaimSpec) -> &'static str {
    let fields = [
        ("metadata.labels", length(&spec.labels)),
        ("metadata.annotations", length(&spec.annotations)),
        ("spec.taints", length(&spec.taints)),
        ("spec.startupTaints", length(&spec.startup_taints)),
        ("spec.requirements", length(&spec.requirements)),
    ];
    fields.into_iter().max_by_key(|(_, length)| *length).map_or("spec", |(field, _)| field)
}

/// Bytes of a value as JSON.
fn length(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |json| json.len())
}
