//! How the rig is to be.

use clap::Parser;
use std::path::PathBuf;

/// Deploys Whittle into an AWS emulator beside a Kubernetes control plane, and holds the rig together until SIGTERM or Ctrl-C.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The repository
    #[arg(long)]
    pub root: PathBuf,
    /// A folder that does not exist yet, for certificates, logs and the addresses of everything (state.json)
    #[arg(long)]
    pub folder: PathBuf,
    /// What `sam build` has built; it is deployed, and the cluster prepared for it
    #[arg(long, required_unless_present = "empty")]
    pub built: Option<PathBuf>,
    /// Nothing is installed: an account, and a cluster in it, for whoever installs by `sam`, `aws`, `kubectl` and `whittle`
    #[arg(long, conflicts_with_all = ["built", "kubeconfig", "watcher"])]
    pub empty: bool,
    /// Python environment with the AWS emulator
    #[arg(long, env = "WHITTLE_MINISTACK")]
    pub ministack: PathBuf,
    /// Python environment with the SAM command line
    #[arg(long, env = "WHITTLE_SAM")]
    pub sam: PathBuf,
    /// Folder with the binaries of the control plane, of which kubectl is used in any case
    #[arg(long, env = "WHITTLE_CONTROL_PLANE")]
    pub control_plane: PathBuf,
    /// A control plane that runs already, on loopback; the user of this file has all rights in it
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The watcher's binary: it rings for pods without a node, and the webhook is not installed
    #[arg(long)]
    pub watcher: Option<PathBuf>,
    /// What the region sells: a catalog as `whittle plan` reads it; by default what AWS sells
    #[arg(long)]
    pub instance_types: Option<PathBuf>,
    /// Name of the EKS cluster
    #[arg(long, default_value = "rig")]
    pub cluster: String,
    /// Seconds from a launch until the machine's kubelet registers
    #[arg(long, default_value_t = 0.0)]
    pub boot_seconds: f64,
    /// Port of 127.0.0.1 that answers /ready once everything runs
    #[arg(long, default_value_t = 0)]
    pub ready_port: u16,
    /// The emulator verifies signatures, and answers each function what its role allows alone
    #[arg(long, conflicts_with = "empty")]
    pub check_access: bool,
    /// More parameters of the stack, as in PlanDelaySeconds=0
    #[arg(long = "parameter")]
    pub parameters: Vec<String>,
}
