//! What a cluster's API server says.

use super::account::{Eks, list, text};
use crate::programs::{Program, ProgramError};
use serde_json::Value;
use whittle_api::labels;

/// Reads by way of `kubectl`.
#[derive(Clone, Copy)]
pub(crate) struct Kubernetes<'a>(pub(crate) &'a Program);

/// Whether a NodePool is another controller's, such as EKS Auto Mode's.
pub(crate) fn is_anothers_pool(pool: &Value) -> bool {
    is_anothers_group(text(pool, "/spec/template/spec/nodeClassRef/group"))
}

/// Whether a NodeClaim is another controller's.
pub(crate) fn is_anothers_claim(claim: &Value) -> bool {
    is_anothers_group(text(claim, "/spec/nodeClassRef/group"))
}

/// Whether node classes of a group are another controller's. What was written before v1 may name none.
fn is_anothers_group(group: &str) -> bool {
    !group.is_empty() && group != labels::AWS_DOMAIN
}

/// Which API server the context reaches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) address: String,
    /// Base64; empty where the kubeconfig names a file.
    pub(crate) certificate: String,
}

impl Server {
    /// Whether it is the cluster's, by its address or by its certificate authority.
    pub(crate) fn is_of(&self, cluster: &Eks) -> bool {
        let bare = |address: &str| address.trim_end_matches('/').trim_end_matches(":443").to_ascii_lowercase();
        let same = |a: &str, b: &str| !a.is_empty() && a == b;
        same(&bare(&self.address), &bare(&cluster.endpoint)) || same(&self.certificate, &cluster.certificate)
    }
}

impl Kubernetes<'_> {
    /// The server that the context names; nothing is called.
    pub(crate) fn server(&self) -> Result<Server, ProgramError> {
        let view = self.0.json(&["config", "view", "--minify", "--raw", "-o", "json"])?;
        let cluster = list(&view, "/clusters").first().cloned().unwrap_or_default();
        Ok(Server {
            address: text(&cluster, "/cluster/server").to_owned(),
            certificate: text(&cluster, "/cluster/certificate-authority-data").to_owned(),
        })
    }

    /// The names of the objects that these arguments of `kubectl get` find, as `deployment.apps/web`.
    pub(crate) fn names(&self, arguments: &[&str]) -> Result<Vec<String>, ProgramError> {
        let text = self.0.text(&[&["get", "-o", "name", "--ignore-not-found"], arguments].concat())?;
        Ok(String::from_utf8_lossy(&text).split_whitespace().map(str::to_owned).collect())
    }

    /// The kinds in namespaces that the server lists, as `deployments.apps`.
    pub(crate) fn kinds_in_namespaces(&self) -> Result<Vec<String>, ProgramError> {
        let text = self.0.text(&["api-resources", "--verbs=list", "--namespaced", "-o", "name"])?;
        Ok(String::from_utf8_lossy(&text).split_whitespace().map(str::to_owned).collect())
    }

    /// The objects that these arguments of `kubectl get` find; none where the server does not know the kind.
    pub(crate) fn get(&self, arguments: &[&str]) -> Result<Vec<Value>, ProgramError> {
        let answer = match self.0.json(&[&["get", "-o", "json", "--ignore-not-found"], arguments].concat()) {
            Ok(answer) => answer,
            Err(error) if error.says("the server doesn't have a resource type") => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(match answer {
            Value::Null => Vec::new(),
            list if list.get("items").is_some() => list.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default(),
            one => vec![one],
        })
    }
}

/// An object's name.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_the_clusters_by_its_address_or_its_authority() {
        let cluster = Eks { endpoint: "https://ABC.eks.amazonaws.com".into(), certificate: "Q0E=".into(), ..Eks::default() };
        for (address, certificate, expected) in [
            ("https://abc.eks.amazonaws.com/", "", true),
            ("https://ABC.eks.amazonaws.com:443", "", true),
            ("https://localhost:8443", "Q0E=", true),
            ("https://localhost:8443", "", false),
            ("", "", false),
        ] {
            let server = Server { address: address.into(), certificate: certificate.into() };
            assert_eq!(server.is_of(&cluster), expected, "{address}");
        }
        assert!(!Server::default().is_of(&Eks::default()), "nothing is not the same as nothing");
    }
}
