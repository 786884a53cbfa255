//! Detects Karpenter in a cluster: by its lease, and by its Deployment where leader election is off.

use crate::connection::{ApiRequest, Clusters};
use crate::errors::Class;
use futures::try_join;
use serde::Deserialize;
use whittle_api::{KarpenterSign, ObjectMeta};
use whittle_ports::{ClusterAccess, ClusterError};
use whittle_units::{ClusterName, Timestamp};

/// In all namespaces, because Karpenter's chart lets the user choose one.
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3Dkarpenter-leader-election";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Dkarpenter";

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct List<T> {
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Lease {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DeploymentStatus {
    ready_replicas: u32,
}

#[derive(Deserialize)]
struct Deployment {
    metadata: ObjectMeta,
    #[serde(default)]
    status: DeploymentStatus,
}

fn of_lease(lease: Lease) -> Option<KarpenterSign> {
    // A released lease has no holder.
    lease.spec.holder_identity.filter(|holder| !holder.is_empty())?;
    let object = format!("lease/{} in namespace {}", lease.metadata.name, lease.metadata.namespace);
    Some(KarpenterSign { object, renewed_at: Some(lease.spec.renew_time?) })
}

fn of_deployment(deployment: Deployment) -> Option<KarpenterSign> {
    let object = format!("deployment/{} in namespace {}", deployment.metadata.name, deployment.metadata.namespace);
    (deployment.status.ready_replicas > 0).then_some(KarpenterSign { object, renewed_at: None })
}

impl<A: ClusterAccess> Clusters<A> {
    /// The signs that Karpenter runs in the cluster.
    pub(crate) async fn karpenter(&self, cluster: &ClusterName) -> Result<Vec<KarpenterSign>, ClusterError> {
        let (leases, deployments) = try_join!(
            self.list_if_permitted::<Lease>(cluster, LEASES, "the lease of Karpenter"),
            self.list_if_permitted::<Deployment>(cluster, DEPLOYMENTS, "the Deployment of Karpenter"),
        )?;
        Ok(leases.into_iter().filter_map(of_lease).chain(deployments.into_iter().filter_map(of_deployment)).collect())
    }

    /// The objects of a list; empty where our role lacks the permission, so that a cluster whose RBAC is of an older release keeps
    /// working.
    async fn list_if_permitted<T>(&self, cluster: &ClusterName, path: &str, what: &str) -> Result<Vec<T>, ClusterError>
    where
        T: for<'de> Deserialize<'de> + Send,
    {
        match self.send::<List<T>>(cluster, &ApiRequest::get(path.to_owned())).await {
            Ok(list) => Ok(list.items.unwrap_or_default()),
            Err(failed) if failed.class() == Some(Class::NotFound) => Ok(Vec::new()),
            Err(failed) if failed.class() == Some(Class::Invalid) => {
                tracing::warn!(%cluster, "{what} may not be read: apply infra/cluster/rbac.yaml of this release");
                Ok(Vec::new())
            }
            Err(failed) => Err(failed.into_error(cluster, what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(spec: &str) -> Option<KarpenterSign> {
        let text = format!(r#"{{"metadata":{{"name":"karpenter-leader-election","namespace":"kube-system"}},"spec":{spec}}}"#);
        of_lease(serde_json::from_str(&text).expect("a lease"))
    }

    #[test]
    fn a_lease_is_a_sign_of_karpenter_while_it_has_a_holder() {
        let held = lease(r#"{"holderIdentity":"karpenter-7d9","leaseDurationSeconds":15,"renewTime":"2026-11-23T10:00:00.123456Z"}"#);
        let sign = held.expect("it is held");
        assert_eq!(sign.object, "lease/karpenter-leader-election in namespace kube-system");
        assert_eq!(sign.renewed_at, Some("2026-11-23T10:00:00.123456Z".parse().expect("a time")));
        assert_eq!(lease(r#"{"holderIdentity":"","renewTime":"2026-11-23T10:00:00.123456Z"}"#), None);
        assert_eq!(lease("{}"), None);
    }

    #[test]
    fn a_deployment_is_a_sign_of_karpenter_while_it_has_ready_pods() {
        let deployment = |status: &str| {
            let text = format!(r#"{{"metadata":{{"name":"karpenter","namespace":"karpenter"}},"status":{status}}}"#);
            of_deployment(serde_json::from_str(&text).expect("a deployment"))
        };
        assert!(deployment(r#"{"replicas":2,"readyReplicas":2}"#).is_some_and(|sign| sign.renewed_at.is_none()));
        assert_eq!(deployment(r#"{"replicas":0}"#), None);
    }
}
