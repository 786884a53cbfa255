//! The watcher beside the cluster: a process with the rights of its service account, as its pods have them.

use crate::options::Options;
use crate::signed_url::Caller;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use whittle_backends::ministack::Ministack;

const NAMESPACE: &str = "whittle";
const ACCOUNT: &str = "whittle-watcher";
/// Holds the number of its process, for whoever ends the rig.
pub(crate) const PROCESS: &str = "watcher.pid";

/// The process; it ends with this value.
pub(crate) struct Watcher(Child);

impl Drop for Watcher {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it; `url` is the relay's.
///
/// Errors when it cannot be started. What goes wrong then is in `watcher.log`.
pub(crate) fn start(options: &Options, binary: &Path, kubeconfig: &Path, url: SocketAddr, caller: &Caller) -> Result<Watcher> {
    let own = own_kubeconfig(options, kubeconfig)?;
    let log = File::create(options.folder.join("watcher.log"))?;
    let mut watcher = Command::new(binary);
    watcher
        .env("KUBECONFIG", own)
        .env("WHITTLE_CLUSTER", &options.cluster)
        .env("WHITTLE_RELAY_URL", format!("http://{url}/"))
        .env("WHITTLE_RELAY_REGION", Ministack::REGION)
        .env("WHITTLE_LISTEN", "127.0.0.1:0")
        .env("AWS_ACCESS_KEY_ID", caller.credentials.access_key_id())
        .env("AWS_SECRET_ACCESS_KEY", caller.credentials.secret_access_key())
        .env_remove("AWS_PROFILE")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let child = watcher.spawn().with_context(|| format!("{} cannot be started", binary.display()))?;
    fs::write(options.folder.join(PROCESS), child.id().to_string())?;
    Ok(Watcher(child))
}

/// A kubeconfig with a token of the watcher's service account, instead of an administrator's rights.
fn own_kubeconfig(options: &Options, kubeconfig: &Path) -> Result<PathBuf> {
    let kubectl = |words: &[&str]| -> Result<String> {
        let mut command = Command::new(options.control_plane.join("kubectl"));
        let output = command.args(words).env("KUBECONFIG", kubeconfig).env("HOME", &options.folder).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("kubectl {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    let token = kubectl(&["create", "token", ACCOUNT, "--namespace", NAMESPACE, "--duration", "24h"])?;
    let mut config: Value = serde_json::from_str(&kubectl(&["config", "view", "--minify", "--raw", "--flatten", "-o", "json"])?)?;
    config["users"] = json!([{"name": ACCOUNT, "user": {"token": token.trim()}}]);
    config["contexts"][0]["context"]["user"] = json!(ACCOUNT);
    let path = options.folder.join("watcher.kubeconfig");
    fs::write(&path, config.to_string())?;
    Ok(path)
}
