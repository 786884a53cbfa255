//! Tools that are too large for every test run, found through environment variables that `cargo xtask ci` sets.

use std::path::PathBuf;

/// Folder with kube-apiserver, etcd, kube-scheduler, kube-controller-manager, kubectl and kwok.
pub const CONTROL_PLANE: &str = "WHITTLE_CONTROL_PLANE";
/// Python environment with MiniStack, the AWS emulator.
pub const MINISTACK: &str = "WHITTLE_MINISTACK";
/// Python environment with the SAM command line, cfn-lint and cargo-lambda.
pub const SAM: &str = "WHITTLE_SAM";
/// Python environment with the models of AWS's services: botocore and moto.
pub const MODELS: &str = "WHITTLE_MODELS";
/// Set to `1` where every slow test must run.
pub const SLOW: &str = "WHITTLE_SLOW";

/// The folder that `variable` names.
///
/// `None` means that the test is to be skipped, which has been printed.
///
/// # Panics
///
/// If tests must not be skipped (`CI=true` or `WHITTLE_SLOW=1`) and the variable is unset.
#[must_use]
pub fn find(variable: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(variable) {
        return Some(PathBuf::from(folder));
    }
    let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|given| given == value);
    let remedy = format!("{variable} is unset; run `eval \"$(cargo xtask env)\"` first");
    assert!(!set("CI", "true") && !set(SLOW, "1"), "{remedy}");
    println!("skipped: {remedy}");
    None
}
