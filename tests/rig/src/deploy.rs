//! What a user does to install: the stack, and what is applied to the cluster.

use crate::emulator::ACCOUNT;
use crate::options::Options;
use anyhow::{Context, Result, bail};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use whittle_backends::ministack::Ministack;

pub(crate) const STACK: &str = "whittle";
pub(crate) const SECRET_NAME: &str = "/whittle/relay-secret";
pub(crate) const SECRET: &str = "rig-secret";

/// What a deployment needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    /// The Python environment with the SAM command line.
    pub sam: PathBuf,
    /// Where it runs.
    pub folder: PathBuf,
    pub cluster: String,
    /// Whether a watcher rings, not the webhook.
    pub is_watched: bool,
    /// More parameters of the stack.
    pub parameters: Vec<String>,
    /// Address of the emulator.
    pub endpoint: String,
    /// Address of the simulated AWS.
    pub aws: String,
}

/// `sam deploy` of what was built; nothing happens if that is deployed already.
pub(crate) fn stack(options: &Deployment, built: &Path) -> Result<()> {
    let mut overrides = vec![
        format!("Clusters={}", options.cluster),
        "Architecture=x86_64".to_owned(),
        format!("TestEndpoint={}", options.aws),
        format!("RelaySecret={SECRET_NAME}"),
    ];
    if options.is_watched {
        overrides.push("RelayAuth=AWS_IAM".to_owned());
    }
    overrides.extend(options.parameters.iter().cloned());
    let mut deploy = Command::new(options.sam.join("bin/sam"));
    deploy
        .args(["deploy", "--stack-name", STACK, "--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset"])
        .args(["--no-progressbar", "--no-fail-on-empty-changeset", "--template-file"])
        .arg(built.join("template.yaml"))
        .arg("--parameter-overrides")
        .args(overrides)
        .current_dir(&options.folder)
        .env("AWS_ENDPOINT_URL", &options.endpoint)
        .env("AWS_DEFAULT_REGION", Ministack::REGION)
        .env("AWS_ACCESS_KEY_ID", ACCOUNT)
        .env("AWS_SECRET_ACCESS_KEY", "testing")
        .env_remove("AWS_PROFILE")
        .env("SAM_CLI_TELEMETRY", "0")
        .stdin(Stdio::null());
    let output = deploy.output().context("sam cannot be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        bail!("`sam deploy` failed: {said}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The manifests of `infra`, in the order of its README; `authority` signs the relay's certificate, which is served at `relay`.
pub(crate) fn manifests(options: &Options, kubeconfig: &Path, relay: &str, authority: &str) -> Result<()> {
    let infra = options.root.join("infra");
    let own = |names: &[&str]| names.iter().map(|name| infra.join("cluster").join(name)).collect::<Vec<PathBuf>>();
    apply(options, kubeconfig, &["--server-side", "--field-manager=whittle"], &read(&[infra.join("crds")])?)?;
    apply(options, kubeconfig, &[], &read(&own(&["rbac.yaml", "guard.yaml", "flow.yaml"]))?)?;
    if options.watcher.is_some() {
        // Its pods, and what is for these, are not made: they would ask for nodes, and run nowhere.
        let watcher = read(&[infra.join("watcher/watcher.yaml")])?;
        let is_right = |document: &&str| ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"].contains(&kind_of(document));
        let rights: Vec<&str> = watcher.split("\n---\n").filter(is_right).collect();
        return apply(options, kubeconfig, &[], &rights.join("\n---\n"));
    }
    let secret = path_secret(&options.cluster);
    let given = format!("clientConfig: {{caBundle: {authority}, url: \"https://{relay}/{secret}/{}\"}}", options.cluster);
    let webhook = read(&own(&["webhook.yaml"]))?;
    let asked = "clientConfig: {url: \"https://RELAY-HOST/SECRET/CLUSTER\"}";
    anyhow::ensure!(webhook.contains(asked), "infra/cluster/webhook.yaml has no `{asked}`");
    apply(options, kubeconfig, &[], &webhook.replace(asked, &given))
}

/// The kind of a manifest's object.
fn kind_of(document: &str) -> &str {
    document.lines().find_map(|line| line.strip_prefix("kind:")).map(str::trim).unwrap_or_default()
}

/// The cluster's own part of the webhook's path.
fn path_secret(cluster: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(cluster.as_bytes());
    mac.finalize().into_bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// All manifests of files and folders as one text.
fn read(places: &[PathBuf]) -> Result<String> {
    let mut text = String::new();
    for place in places {
        let mut files = vec![place.clone()];
        if place.is_dir() {
            files = std::fs::read_dir(place)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
            files.sort();
        }
        for file in files {
            let one = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            text.push_str(&one);
            text.push_str("\n---\n");
        }
    }
    Ok(text)
}

fn apply(options: &Options, kubeconfig: &Path, flags: &[&str], manifests: &str) -> Result<()> {
    let mut kubectl = Command::new(options.control_plane.join("kubectl"))
        .args(["apply", "-f", "-"])
        .args(flags)
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", &options.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("kubectl cannot be started")?;
    kubectl.stdin.take().context("kubectl has an input")?.write_all(manifests.as_bytes())?;
    let output = kubectl.wait_with_output()?;
    if !output.status.success() {
        bail!("kubectl refuses manifests of infra: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clusters_secret_is_the_one_that_the_readme_has_users_make() {
        // printf %s rig | openssl dgst -sha256 -hmac rig-secret -r
        assert_eq!(path_secret("rig"), "8d6ffa851060e6a7c98cb22c5ad912373a91acb95ef3ad20c5fa326802700a53");
    }
}
