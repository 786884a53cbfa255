//! What the watcher is told.

use clap::Parser;
use std::net::SocketAddr;
use whittle_units::{ClusterName, Region};

/// Watches a cluster's unschedulable pods and its nodes, and tells Whittle's relay when there is something to look at.
///
/// It takes its credentials for AWS from its environment (IAM roles for service accounts, EKS Pod Identity, or variables) and those for
/// the cluster from its service account; outside of a cluster from the file that KUBECONFIG names. RUST_LOG sets how much it logs.
#[derive(Clone, Debug, Parser)]
#[command(name = "whittle-watcher", version)]
pub struct Arguments {
    /// Name of the EKS cluster, as in the stack's parameter Clusters
    #[arg(long, env = "WHITTLE_CLUSTER")]
    pub cluster: String,
    /// The relay's URL for this cluster: the output Url of the watcher's stack
    #[arg(long, env = "WHITTLE_RELAY_URL")]
    pub url: String,
    /// Region of the relay; by default the one in its URL
    #[arg(long, env = "WHITTLE_RELAY_REGION")]
    pub region: Option<String>,
    /// Where the probes /livez and /readyz are answered
    #[arg(long, env = "WHITTLE_LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
}

/// The settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub cluster: ClusterName,
    /// The URL with the path that names the cluster.
    pub url: http::Uri,
    pub region: Region,
    pub listen: SocketAddr,
}

/// What cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("--cluster (WHITTLE_CLUSTER) is {0:?}: give the cluster's name, of letters, digits, - and _")]
    Cluster(String),
    #[error("--url (WHITTLE_RELAY_URL) is {0:?}: give the output Url of the watcher's stack, as in https://ID.lambda-url.REGION.on.aws/")]
    Url(String),
    #[error("--url (WHITTLE_RELAY_URL) is {0:?}, which is not encrypted: only https is used, but on this machine itself")]
    NotEncrypted(String),
    #[error("the region is not part of {0:?}: give it by --region (WHITTLE_RELAY_REGION)")]
    NoRegion(String),
}

impl TryFrom<Arguments> for Settings {
    type Error = SettingsError;

    fn try_from(given: Arguments) -> Result<Self, SettingsError> {
        let is_name = |name: &str| name.len() <= 100 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if given.cluster.is_empty() || !is_name(&given.cluster) {
            return Err(SettingsError::Cluster(given.cluster));
        }
        let invalid = || SettingsError::Url(given.url.clone());
        let base: http::Uri = given.url.trim().parse().map_err(|_| invalid())?;
        let (Some(scheme), Some(authority), "/" | "", None) = (base.scheme_str(), base.authority(), base.path(), base.query()) else {
            return Err(invalid());
        };
        let host = authority.host();
        match scheme {
            "https" => {}
            "http" if ["127.0.0.1", "localhost", "[::1]"].contains(&host) => {}
            "http" => return Err(SettingsError::NotEncrypted(given.url)),
            _ => return Err(invalid()),
        }
        let region = given.region.or_else(|| region_in(host)).ok_or_else(|| SettingsError::NoRegion(given.url.clone()))?;
        let url = format!("{scheme}://{authority}/{}", given.cluster).parse().map_err(|_| invalid())?;
        Ok(Self { cluster: ClusterName::new(given.cluster), url, region: Region::new(region), listen: given.listen })
    }
}

/// The region in the host of a Function URL, `ID.lambda-url.REGION.on.aws`, in every partition.
fn region_in(host: &str) -> Option<String> {
    let mut parts = host.split('.').skip_while(|part| *part != "lambda-url");
    parts.next()?;
    parts.next().filter(|region| region.contains('-')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cluster: &str, url: &str, region: Option<&str>) -> Result<Settings, SettingsError> {
        let arguments = ["whittle-watcher", "--cluster", cluster, "--url", url].into_iter();
        Arguments::parse_from(arguments.chain(region.into_iter().flat_map(|region| ["--region", region]))).try_into()
    }

    #[test]
    fn the_region_and_the_path_follow_from_the_url() {
        for url in ["https://abc.lambda-url.eu-central-1.on.aws/", "https://abc.lambda-url.eu-central-1.on.aws"] {
            let settings = read("prod", url, None).expect("it is valid");
            assert_eq!(settings.url.to_string(), "https://abc.lambda-url.eu-central-1.on.aws/prod");
            assert_eq!(settings.region.as_str(), "eu-central-1");
        }
        assert_eq!(read("prod", "https://relay.example.com", Some("us-west-2")).expect("it is valid").region.as_str(), "us-west-2");
        assert!(read("prod", "http://127.0.0.1:8080", Some("us-west-2")).is_ok());
    }

    #[test]
    fn an_invalid_setting_is_refused_with_its_name_and_the_remedy() {
        for (cluster, url, error) in [
            ("", "https://a.lambda-url.us-west-2.on.aws/", "WHITTLE_CLUSTER"),
            ("a/b", "https://a.lambda-url.us-west-2.on.aws/", "WHITTLE_CLUSTER"),
            ("prod", "a.lambda-url.us-west-2.on.aws", "WHITTLE_RELAY_URL"),
            ("prod", "https://a.lambda-url.us-west-2.on.aws/secret/prod", "output Url"),
            ("prod", "https://a.lambda-url.us-west-2.on.aws/?x=1", "output Url"),
            ("prod", "ftp://a.lambda-url.us-west-2.on.aws/", "output Url"),
            ("prod", "http://a.lambda-url.us-west-2.on.aws/", "not encrypted"),
            ("prod", "https://relay.example.com/", "--region"),
        ] {
            let found = read(cluster, url, None).expect_err(url).to_string();
            assert!(found.contains(error), "{url}: {found}");
        }
    }
}
