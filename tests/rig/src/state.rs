//! Where everything is, for people and for `cargo xtask e2e`.

use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// The addresses of a rig that runs, as in state.json.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    /// The process that holds the rig together; SIGTERM ends it all.
    pub process: u32,
    /// The emulator's process, the leader of a group of its own.
    pub ministack_process: u32,
    pub kubeconfig: String,
    /// Functions, queues, table and rules.
    pub ministack: String,
    /// All services as a user's tools reach them; only of an empty account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// EC2, SSM, Pricing, IAM, EKS, and its owner's API below /_control.
    pub fake_aws: String,
    /// The cluster's endpoint as EKS names it.
    pub endpoint: String,
    pub cluster: String,
    pub stack: String,
    pub ready: String,
}

impl State {
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let file = folder.join("state.json");
        let text = serde_json::to_string_pretty(self)?;
        // At once or not at all: somebody waits for it.
        let new = folder.join("state.json.new");
        std::fs::write(&new, text + "\n")
            .and_then(|()| std::fs::rename(&new, &file))
            .with_context(|| format!("{} cannot be written", file.display()))
    }
}
