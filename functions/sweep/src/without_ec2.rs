//! What a sweep does while EC2 does not answer, such as when other callers of the account use up its rate limit. The cluster shows which
//! NodeClaims and Nodes a user has deleted, and their pods are drained without EC2: as with Karpenter, neither waits for it.

use crate::Rights;
use crate::compare::{Findings, is_termination_overdue, requested};
use crate::execute::Executor;
use crate::index::Index;
use whittle_claims::{Claim, Stored, serves};
use whittle_ports::{ClaimStore, Clock, CloudError, CloudErrorKind, ClusterReader, HandleError, Listing, Report, Scope, record_decisions};
use whittle_units::{ClusterName, Timestamp};

/// Does what needs no answer of EC2. Best effort: the sweep fails in any case, so that an alarm is raised.
pub(crate) async fn sweep<P: Rights>(ports: P, cluster: &ClusterName) {
    let mut report = Report::default();
    let outcome = honour_requests(ports, cluster, &mut report).await;
    let recorded = record_decisions(ports.store(), cluster, &report.decisions).await;
    recorded.count_failure(&mut report, "decisions_unrecorded");
    match outcome {
        Ok(()) => tracing::warn!(%cluster, "EC2 does not answer: only what users have deleted is drained"),
        Err(error) => tracing::warn!(%cluster, %error, "EC2 does not answer, nor does what else a sweep needs"),
    }
}

async fn honour_requests<P: Rights>(ports: P, cluster: &ClusterName, report: &mut Report) -> Result<(), HandleError> {
    let Listing { claims, .. } = ports.store().listing(cluster).await?;
    let objects = ports.cluster().read(cluster, Scope::Nodes, None).await?;
    let now = ports.clock().now();
    if objects.running_karpenter(now).is_some() {
        return Ok(());
    }
    let index = Index::of(&claims, &[], &objects, &[]);
    let findings = find(&claims, &index, now);
    Executor { ports, cluster, index: &index, sightings: &[], failure: None }.run_requests(&findings, report).await
}

/// What claims and objects show without EC2. Pure.
fn find(claims: &[Stored<Claim>], index: &Index<'_>, now: Timestamp) -> Findings {
    let all = || claims.iter().map(|stored| &stored.value);
    // The table may be older than the cluster: a claim without machine or Node waits until EC2 shows the machine.
    let end = all().filter(|claim| serves(claim)).filter_map(|claim| requested(claim, index)).collect();
    let terminate = all().filter(|claim| is_termination_overdue(claim, now)).map(|claim| claim.key.name.clone()).collect();
    Findings { end, terminate, ..Findings::default() }
}

/// The launch templates that there are; none while EC2 does not list them, because they are only deleted, and later will do.
pub(crate) fn templates(listed: Result<Vec<String>, CloudError>) -> Result<Vec<String>, CloudError> {
    match listed {
        Err(error) if !matches!(error.kind, CloudErrorKind::Unauthorized | CloudErrorKind::Invalid) => {
            tracing::warn!(%error, "unused launch templates are not looked for");
            Ok(Vec::new())
        }
        listed => listed,
    }
}
