//! Sets up tools that are not in the repository: Python tools, Go, a Kubernetes control plane, a browser, compilers for arm64.
//!
//! Everything is in a cache folder outside the tree, in folders whose names depend on the pinned
//! versions. A tool is used only if complete; an interrupted set-up starts again.

mod arm64;
mod browser;
mod control_plane;
mod debian;
mod go;
mod machete;
mod python;

use anyhow::{Context, Result, anyhow};
use std::fs::File;
use std::path::{Path, PathBuf};

pub(crate) use arm64::Arm64;

/// Paths of the tools that the slow tests and the deployment steps need.
pub(crate) struct Environment {
    /// Folder with the binaries of the control plane.
    pub(crate) control_plane: PathBuf,
    /// Python environment with the AWS emulator.
    pub(crate) ministack: PathBuf,
    /// Python environment with the SAM command line, cfn-lint and cargo-lambda.
    pub(crate) sam: PathBuf,
    /// Python environment with the models of AWS's services.
    pub(crate) models: PathBuf,
}

impl Environment {
    /// The variables by which tests find the tools.
    pub(crate) fn variables(&self) -> [(&'static str, &Path); 4] {
        [
            ("WHITTLE_CONTROL_PLANE", &self.control_plane),
            ("WHITTLE_MINISTACK", &self.ministack),
            ("WHITTLE_SAM", &self.sam),
            ("WHITTLE_MODELS", &self.models),
        ]
    }
}

/// Sets up all tools that are missing. Progress goes to stderr.
pub(crate) fn set_up(root: &Path) -> Result<Environment> {
    let (ministack, sam) = (ministack(root)?, sam(root)?);
    let models = python::set_up(root, &cache()?, "models")?;
    let control_plane = control_plane::set_up(root, &cache()?)?;
    Ok(Environment { control_plane, ministack, sam, models })
}

/// The Python environment with the AWS emulator.
pub(crate) fn ministack(root: &Path) -> Result<PathBuf> {
    python::set_up(root, &cache()?, "ministack")
}

/// The Python environment with the SAM command line, cfn-lint and cargo-lambda.
pub(crate) fn sam(root: &Path) -> Result<PathBuf> {
    python::set_up(root, &cache()?, "sam")
}

/// The Python environment with AWS's service authorization reference.
pub(crate) fn policies(root: &Path) -> Result<PathBuf> {
    python::set_up(root, &cache()?, "policies")
}

/// The Python environment with the schema of bills of materials.
pub(crate) fn materials(root: &Path) -> Result<PathBuf> {
    python::set_up(root, &cache()?, "materials")
}

/// The Python environment with AWS's command line and an emulated account, and the binaries of the control plane.
pub(crate) fn installation(root: &Path) -> Result<(PathBuf, PathBuf)> {
    Ok((python::set_up(root, &cache()?, "installation")?, control_plane::set_up(root, &cache()?)?))
}

/// Compilers for arm64.
pub(crate) fn arm64(root: &Path) -> Result<Arm64> {
    arm64::set_up(root, &cache()?)
}

/// The program that runs binaries for arm64.
pub(crate) fn qemu(root: &Path) -> Result<PathBuf> {
    Ok(debian::set_up(root, &cache()?, "qemu")?.join("usr/bin/qemu-aarch64-static"))
}

/// The variable and the path by which tests of pages find a browser; none where there is none and none can be had.
pub(crate) fn browser(root: &Path) -> Result<Option<(&'static str, PathBuf)>> {
    Ok(browser::set_up(root, &cache()?)?.map(|program| (browser::VARIABLE, program)))
}

/// cargo-machete.
pub(crate) fn machete(root: &Path) -> Result<PathBuf> {
    machete::set_up(root, &cache()?)
}

/// The cache folder.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .ok_or_else(|| anyhow!("neither XDG_CACHE_HOME nor HOME is set: name a folder for tools in XDG_CACHE_HOME"))?;
    Ok(base.join("whittle"))
}

/// Waits until no other process sets up the same tool; released when dropped, or when the process ends.
fn lock(folder: &Path, name: &str) -> Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made: make it writable", folder.display()))?;
    let path = folder.join(format!(".{name}.lock"));
    let file = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    file.lock().with_context(|| format!("{} cannot be locked", path.display()))?;
    Ok(file)
}

/// A short hash of a file's contents; not cryptographic.
fn fingerprint(bytes: &[u8]) -> String {
    format!("{:016x}", whittle_units::fnv1a(bytes))
}
