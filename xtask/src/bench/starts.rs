//! The part of a cold start that is ours: a process's start until it asks for its first event.

use crate::artifacts::{self, FUNCTIONS};
use crate::{dist, workspace};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Options {
    /// A folder with `relay/bootstrap` and so on, for this machine, to measure instead of building them
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let root = workspace::root();
    let folder = match &options.built {
        Some(folder) => folder.clone(),
        None => {
            artifacts::check(&root)?;
            artifacts::folder(&root)?
        }
    };
    let functions: Vec<(&str, PathBuf)> = FUNCTIONS.iter().map(|name| (*name, folder.join(name).join("bootstrap"))).collect();
    dist::start::table(&functions, std::env::consts::ARCH, None)
}
