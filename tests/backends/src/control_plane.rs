//! A real Kubernetes control plane on loopback: API server, etcd, scheduler, controller manager, and kwok for kubelets.

use crate::tools;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A running control plane; its processes and data are removed when it is dropped.
pub struct ControlPlane {
    folder: PathBuf,
    binaries: PathBuf,
    variables: BTreeMap<String, String>,
}

impl ControlPlane {
    /// Starts all components (about 5 s); `None` if the test is to be skipped.
    ///
    /// # Panics
    ///
    /// If a component does not start, with the reason; or as [`tools::find`].
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with_parts("kcm scheduler kwok")
    }

    /// Starts the API server and etcd, and of the others only the named ones (`kcm`, `scheduler`, `kwok`).
    ///
    /// # Panics
    ///
    /// As [`ControlPlane::start`].
    #[must_use]
    pub fn with_parts(parts: &str) -> Option<Self> {
        Self::with_users(parts, "")
    }

    /// The same with more users, each with its groups, as in `ann=dev,ops bob=dev`.
    ///
    /// # Panics
    ///
    /// As [`ControlPlane::start`].
    #[must_use]
    pub fn with_users(parts: &str, users: &str) -> Option<Self> {
        Some(Self::start_in(tools::find(tools::CONTROL_PLANE)?, parts, users))
    }

    /// The same, with binaries from this folder.
    ///
    /// # Panics
    ///
    /// If a component does not start, with the reason.
    #[must_use]
    pub fn start_in(binaries: PathBuf, parts: &str, users: &str) -> Self {
        Self::start_with(binaries, parts, users, &[])
    }

    /// The same with more variables in the environment of all components.
    ///
    /// # Panics
    ///
    /// If a component does not start, with the reason.
    #[must_use]
    pub fn start_with(binaries: PathBuf, parts: &str, users: &str, environment: &[(&str, &OsStr)]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let unique = format!("whittle-cp-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(unique);
        let output = script("start", &binaries, &folder)
            .env("CP_PARTS", parts)
            .env("CP_USERS", users)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("bash is installed");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the control plane did not start: {message}");
        let variables = variables(&String::from_utf8_lossy(&output.stdout));
        Self { folder, binaries, variables }
    }

    /// Its processes, data and certificates; `run.sh stop` with this folder ends it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The API server's address, as in `https://127.0.0.1:40001`.
    #[must_use]
    pub fn server(&self) -> &str {
        self.variable("CP_SERVER")
    }

    /// The address of its etcd, as in `http://127.0.0.1:40002`.
    #[must_use]
    pub fn etcd(&self) -> &str {
        self.variable("CP_ETCD")
    }

    /// A bearer token with all permissions.
    #[must_use]
    pub fn token(&self) -> &str {
        self.variable("CP_TOKEN")
    }

    /// The bearer token of one of the users that it was started with.
    ///
    /// # Panics
    ///
    /// If the start script printed no token.
    #[must_use]
    pub fn token_of(&self, user: &str) -> String {
        let unique = self.token().strip_prefix("admin").expect("it is the administrator's");
        format!("{user}{unique}")
    }

    /// The file with the API server's CA certificate, PEM.
    #[must_use]
    pub fn ca(&self) -> &Path {
        Path::new(self.variable("CP_CA"))
    }

    /// The files with the certificate, which that CA has signed, and the key of a server on 127.0.0.1.
    #[must_use]
    pub fn loopback_identity(&self) -> (&Path, &Path) {
        (Path::new(self.variable("CP_WEBHOOK_CERT")), Path::new(self.variable("CP_WEBHOOK_KEY")))
    }

    /// A kubeconfig file with all permissions.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        Path::new(self.variable("KUBECONFIG"))
    }

    /// `kubectl` for this cluster.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(self.binaries.join("kubectl"));
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", &self.folder).stdin(Stdio::null());
        command
    }

    fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map(String::as_str).expect("the start script prints every variable")
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = script("stop", &self.binaries, &self.folder).stdout(Stdio::null()).status();
    }
}

fn script(verb: &str, binaries: &Path, folder: &Path) -> Command {
    let mut command = Command::new("bash");
    let script = run_script();
    command.arg(script).arg(verb).env("CP_BIN", binaries).env("CP_DIR", folder);
    command
}

/// The script of this checkout. Read at run time: two checkouts with one target folder share one library.
fn run_script() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let places = package.ancestors().map(|folder| folder.join("tests/control-plane/run.sh"));
    places.into_iter().find(|script| script.is_file()).unwrap_or_else(|| "tests/control-plane/run.sh".into())
}

/// Parses lines like `export A=1 B=2`.
fn variables(printed: &str) -> BTreeMap<String, String> {
    printed
        .lines()
        .filter_map(|line| line.strip_prefix("export "))
        .flat_map(str::split_whitespace)
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
