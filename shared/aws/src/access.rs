//! Access to a cluster: the endpoint of its API server, and a bearer token.

use crate::clusters::describe_cluster;
use crate::errors::incomplete;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign};
use aws_sigv4::sign::v4;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{Clock, CloudError, ClusterAccess};
use whittle_units::{ClusterName, Partition, Region};

/// Takes the endpoint from EKS, and signs the token with the function's credentials.
#[derive(Clone)]
pub struct EksAccess {
    eks: aws_sdk_eks::Client,
    credentials: SharedCredentialsProvider,
    region: Region,
    clock: Arc<dyn Clock + Send>,
}

/// How long the presigned URL is valid: EKS accepts no more. The token itself is valid for 15 minutes.
const EXPIRES_IN: Duration = Duration::from_secs(60);
const CALL: &str = "GetCallerIdentity";

impl EksAccess {
    /// Access to the clusters of a region with the credentials of the invocation.
    pub fn new(eks: aws_sdk_eks::Client, credentials: SharedCredentialsProvider, region: Region, clock: Arc<dyn Clock + Send>) -> Self {
        Self { eks, credentials, region, clock }
    }
}

impl ClusterAccess for EksAccess {
    async fn endpoint(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        describe_cluster(&self.eks, &*self.clock, cluster).await
    }

    async fn bearer_token(&self, cluster: &ClusterName) -> Result<String, CloudError> {
        let credentials =
            self.credentials.provide_credentials().await.map_err(|error| incomplete(CALL, format!("no credentials: {error}")))?;
        let seconds = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let url = presigned(&self.region, cluster, &credentials.into(), now).map_err(|problem| incomplete(CALL, problem))?;
        Ok(format!("k8s-aws-v1.{}", URL_SAFE_NO_PAD.encode(url)))
    }
}

/// A presigned URL of GetCallerIdentity, bound to one cluster: EKS calls it to learn who presents the token.
fn presigned(
    region: &Region,
    cluster: &ClusterName,
    identity: &aws_smithy_runtime_api::client::identity::Identity,
    now: SystemTime,
) -> Result<String, String> {
    let host = format!("sts.{region}.{}", Partition::of(region.as_str()).dns_suffix);
    let url = format!("https://{host}/?Action={CALL}&Version=2011-06-15");
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(EXPIRES_IN);
    let parameters = v4::SigningParams::builder()
        .identity(identity)
        .region(region.as_str())
        .name("sts")
        .time(now)
        .settings(settings)
        .build()
        .map_err(|error| error.to_string())?;
    // EKS adds the same header to its call, so a token for one cluster is not valid for another.
    let headers = [("host", host.as_str()), ("x-k8s-aws-id", cluster.as_str())];
    let request = SignableRequest::new("GET", &url, headers.into_iter(), SignableBody::Bytes(&[])).map_err(|error| error.to_string())?;
    let (instructions, _) = sign(request, &parameters.into()).map_err(|error| error.to_string())?.into_parts();
    let mut signed = http::Request::builder().method("GET").uri(&url).body(()).map_err(|error| error.to_string())?;
    instructions.apply_to_request_http1x(&mut signed);
    Ok(signed.uri().to_string())
}
