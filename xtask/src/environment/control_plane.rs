//! kube-apiserver, etcd, scheduler, controllers, kubectl and kwok, built once from Go modules.

use super::{go, lock};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The Kubernetes version, which also names the folder.
const KUBERNETES: &str = "v1.37.1";
const ETCD: &str = "v3.6.16";
const KWOK: &str = "v0.8.0";

const BINARIES: &[&str] = &["kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "etcd", "kwok"];
/// Programs that the start script calls.
const NEEDED: &[&str] = &["bash", "curl", "openssl", "python3", "setsid"];

/// The folder with the binaries.
pub(super) fn set_up(root: &Path, cache: &Path) -> Result<PathBuf> {
    for program in NEEDED {
        if !on_path(program) {
            bail!("`{program}` is not installed: the control plane's scripts need it");
        }
    }
    let parent = cache.join("control-plane");
    let folder = parent.join(KUBERNETES);
    if is_complete(&folder) {
        return Ok(folder);
    }
    let _lock = lock(&parent, KUBERNETES)?;
    if is_complete(&folder) {
        return Ok(folder);
    }
    eprintln!("building the control plane {KUBERNETES} in {} (8 to 15 minutes, once)", folder.display());
    let work = parent.join(format!("building-{KUBERNETES}"));
    let built = work.join("bin");
    // Go's caches survive an interruption, so that finished packages are not built again.
    std::fs::create_dir_all(&built).with_context(|| format!("{} cannot be made", built.display()))?;
    let script = root.join("tests/control-plane/make.sh");
    let mut make = shell::command(root, "bash", &[&script.to_string_lossy(), KUBERNETES, ETCD, KWOK]);
    make.env("CP_BIN", &built)
        .env("CP_WORK", &work)
        .env("GOMODCACHE", work.join("modules"))
        .env("GOCACHE", work.join("build"))
        // Read-only modules could not be deleted.
        .env("CP_GOFLAGS", "-modcacherw");
    let go = go::set_up(root, cache)?;
    if let Some(bin) = go.parent().filter(|bin| !bin.as_os_str().is_empty()) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(bin.to_path_buf()).chain(std::env::split_paths(&path));
        make.env("PATH", std::env::join_paths(paths)?);
    }
    shell::read(make).context("the control plane cannot be built: is the Go module proxy reachable?")?;
    if !is_complete(&built) {
        bail!("{} lacks a binary after the build; delete {} and try again", built.display(), work.display());
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::rename(&built, &folder)?;
    std::fs::remove_dir_all(&work).with_context(|| format!("{} cannot be removed", work.display()))?;
    Ok(folder)
}

fn is_complete(folder: &Path) -> bool {
    BINARIES.iter().all(|name| folder.join(name).metadata().is_ok_and(|file| file.len() > 0))
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
