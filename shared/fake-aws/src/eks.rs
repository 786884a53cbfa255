//! EKS: REST paths and JSON.

use crate::api::Request;
use crate::errors::Fault;
use crate::place::Place;
use serde_json::{Value, json};
use whittle_units::ClusterName;

/// The action of a path; empty for an unsupported one.
pub(crate) fn action(request: &Request) -> &'static str {
    match (request.method.as_str(), cluster_of(request)) {
        ("GET", Some(_)) => "DescribeCluster",
        _ => "",
    }
}

/// The cluster that a path names.
pub(crate) fn cluster_of(request: &Request) -> Option<ClusterName> {
    let name = request.path.strip_prefix("/clusters/")?.split('?').next()?;
    (!name.is_empty() && !name.contains('/')).then(|| ClusterName::new(name))
}

pub(crate) fn call(place: &mut dyn Place, request: &Request) -> Result<Value, Fault> {
    let Some(name) = cluster_of(request) else {
        return Err(Fault::new("UnknownOperationException", format!("nothing is at {}", request.path)).with_status(404));
    };
    let Some(info) = place.cluster(&name) else {
        return Err(Fault::new("ResourceNotFoundException", format!("No cluster found for name: {name}.")).with_status(404));
    };
    let network = if info.ipv6 {
        json!({"serviceIpv6Cidr": info.service_cidr, "ipFamily": "ipv6"})
    } else {
        json!({"serviceIpv4Cidr": info.service_cidr, "ipFamily": "ipv4"})
    };
    Ok(json!({"cluster": {
        "name": info.name.as_str(),
        "arn": info.arn,
        "version": info.version,
        "endpoint": info.endpoint,
        "status": "ACTIVE",
        "certificateAuthority": {"data": info.certificate_authority},
        "kubernetesNetworkConfig": network,
        "resourcesVpcConfig": {"vpcId": info.vpc, "endpointPublicAccess": true, "endpointPrivateAccess": true},
    }}))
}
