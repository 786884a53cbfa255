//! A release that takes the place of another one, on a rig that is up with the older: functions of both on one table, and back again.

use super::outside::Outside;
use super::{APART, BOUND_MAX, GONE_MAX, POOL, REPEATED_MAX, apart};
use crate::deploy;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Upgrades a rig that is up with an older release, goes back, and upgrades it again; the cluster must be empty of pods.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Upgrade {
    /// The folder of the rig
    #[arg(long)]
    folder: PathBuf,
    /// Python environment with the SAM command line
    #[arg(long, env = "WHITTLE_SAM")]
    sam: PathBuf,
    /// What `sam build` has built of the older release, which is deployed
    #[arg(long)]
    from: PathBuf,
    /// The same of the newer release
    #[arg(long)]
    to: PathBuf,
}

/// How long both releases work together: three ticks, so that whatever is seen twice would be acted on.
const TOGETHER: Duration = Duration::from_secs(190);
/// The functions that write what the others read: those of the newer release come first.
const WRITERS: [&str; 3] = ["Schedule", "Launch", "Register"];

pub(crate) fn run(upgrade: &Upgrade) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let rig = Outside::of(&upgrade.folder).await?;
        rig.apply(&POOL.replace("CLUSTER", rig.cluster())).await?;
        rig.until("the class is ready", BOUND_MAX, async |rig| rig.is_class_ready().await).await?;
        Release { rig: &rig, upgrade }.take_turns().await
    })
}

struct Release<'a> {
    rig: &'a Outside,
    upgrade: &'a Upgrade,
}

impl Release<'_> {
    async fn take_turns(&self) -> Result<()> {
        let (rig, Upgrade { from, to, .. }) = (self.rig, self.upgrade);
        self.pods(APART).await?;
        // An upgrade that stops after the first function: what it plans, nobody of the older release can read.
        self.deploy("the newer schedule beside the older release", &self.mixed(&WRITERS[..1])?).await?;
        self.ask_for(APART * 2).await?;
        self.nothing_is_lost_for(TOGETHER).await?;
        self.deploy("what writes is newer, what reads is older", &self.mixed(&WRITERS)?).await?;
        self.pods(APART * 2).await?;
        self.nothing_is_lost_for(TOGETHER).await?;
        self.deploy("the newer release", to).await?;
        self.pods(APART * 3).await?;
        self.books_are_right().await?;
        self.deploy("the older release again", from).await?;
        self.nothing_is_lost_for(TOGETHER).await?;
        self.deploy("the newer release again", to).await?;
        self.pods(APART * 3 + 1).await?;
        self.books_are_right().await?;
        self.ask_for(0).await?;
        let took = rig.until("nothing is left", GONE_MAX, Outside::is_bare);
        rig.say("everything goes again", took.await?);
        Ok(())
    }

    /// The older release with these functions of the newer one.
    fn mixed(&self, newer: &[&str]) -> Result<PathBuf> {
        let Upgrade { folder, from, to, .. } = self.upgrade;
        let mixed = folder.join(format!("mixed-{}", newer.len()));
        fs::create_dir_all(&mixed)?;
        fs::copy(from.join("template.yaml"), mixed.join("template.yaml"))?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            let source = if newer.iter().any(|function| name == *function) { to } else { from };
            let binary = source.join(&name).join("bootstrap");
            if binary.is_file() {
                fs::create_dir_all(mixed.join(&name))?;
                fs::copy(&binary, mixed.join(&name).join("bootstrap")).with_context(|| format!("{} cannot be copied", binary.display()))?;
            }
        }
        Ok(mixed)
    }

    async fn deploy(&self, what: &str, built: &Path) -> Result<()> {
        let (deployment, built, begun) = (self.rig.deployment(&self.upgrade.sam), built.to_owned(), Instant::now());
        tokio::task::spawn_blocking(move || deploy::stack(&deployment, &built)).await??;
        self.rig.say(what, begun.elapsed());
        Ok(())
    }

    /// Asks for so many pods, none of which goes beside another.
    async fn ask_for(&self, pods: usize) -> Result<()> {
        self.rig.scale("apart", pods, &apart()).await
    }

    /// The same, and waits until each has its node.
    async fn pods(&self, pods: usize) -> Result<()> {
        self.ask_for(pods).await?;
        let took = self.rig.until("all pods are bound", REPEATED_MAX, async |rig| Ok(rig.bound().await?.len() == pods)).await?;
        let running = self.rig.running().await?.len();
        ensure!(running == pods, "{running} machines run for {pods} pods");
        self.rig.say(&format!("{pods} pods have their nodes"), took);
        Ok(())
    }

    /// Each machine has its Node and its NodeClaim. While both releases are at work, NodeClaims of launches that were given up stay: the
    /// older release leaves alone what it cannot read.
    async fn books_are_right(&self) -> Result<()> {
        self.rig.until("each machine has its claim", REPEATED_MAX, async |rig| Ok(rig.check_books().await.is_ok())).await.map(drop)
    }

    /// No pod moves, and no machine ends.
    async fn nothing_is_lost_for(&self, time: Duration) -> Result<()> {
        let (bound, running) = (self.rig.bound().await?, self.rig.running().await?);
        let begun = Instant::now();
        let mut interval = tokio::time::interval(Duration::from_secs(1));
        while begun.elapsed() < time {
            interval.tick().await;
            let (now, left) = (self.rig.bound().await?, self.rig.running().await?);
            let moved: Vec<&String> = bound.iter().filter(|(pod, node)| now.get(*pod) != Some(node)).map(|(pod, _)| pod).collect();
            ensure!(moved.is_empty(), "pods lost their nodes after {} s: {moved:?}", begun.elapsed().as_secs());
            let ended: Vec<&String> = running.difference(&left).collect();
            ensure!(ended.is_empty(), "machines ended after {} s: {ended:?}", begun.elapsed().as_secs());
        }
        self.rig.say("no pod moved, no machine ended", begun.elapsed());
        Ok(())
    }
}
