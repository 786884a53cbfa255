//! What EKS says about a cluster: `refresh` stores it, and whoever calls a cluster's API server takes the endpoint from it.

use crate::budget::limits;
use crate::errors::{cloud_error, incomplete, of_resource};
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{Clock, CloudError};
use whittle_units::ClusterName;

const CALL: &str = "DescribeCluster";

pub(crate) async fn describe_cluster(eks: &aws_sdk_eks::Client, clock: &dyn Clock, name: &ClusterName) -> Result<ClusterInfo, CloudError> {
    let settings = aws_sdk_eks::config::Builder::new().timeout_config(limits(clock, CALL)?);
    let answer = eks.describe_cluster().name(name.as_str()).customize().config_override(settings).send().await;
    let answer = answer.map_err(|error| of_resource(cloud_error(CALL, error)))?;
    cluster_info(name, answer.cluster)
}

/// What nodes and Whittle need to know about a cluster. One that is being created has no endpoint yet.
fn cluster_info(name: &ClusterName, cluster: Option<aws_sdk_eks::types::Cluster>) -> Result<ClusterInfo, CloudError> {
    let lacks = |what: &str| incomplete(CALL, format!("cluster {name} has no {what} yet"));
    let cluster = cluster.ok_or_else(|| lacks("description"))?;
    let network = cluster.kubernetes_network_config;
    let cidr = network.as_ref().and_then(|network| network.service_ipv4_cidr.clone().or_else(|| network.service_ipv6_cidr.clone()));
    let family = network.as_ref().and_then(|network| network.ip_family.clone());
    Ok(ClusterInfo {
        name: name.clone(),
        endpoint: cluster.endpoint.ok_or_else(|| lacks("endpoint"))?,
        certificate_authority: cluster
            .certificate_authority
            .and_then(|authority| authority.data)
            .ok_or_else(|| lacks("certificate authority"))?,
        version: cluster.version.unwrap_or_default(),
        service_cidr: cidr.unwrap_or_default(),
        ipv6: family == Some(aws_sdk_eks::types::IpFamily::Ipv6),
        arn: cluster.arn.unwrap_or_default(),
        vpc: cluster.resources_vpc_config.and_then(|config| config.vpc_id).unwrap_or_default(),
    })
}
