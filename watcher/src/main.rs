//! Entry point of the watcher. Wiring only.

use anyhow::Context;
use aws_config::{BehaviorVersion, Region};
use clap::Parser;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;
use whittle_watcher::post::Poster;
use whittle_watcher::settings::{Arguments, Settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let settings = match Settings::try_from(Arguments::parse()) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match serve(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    // What kube warns of is said in words of our own, and not once a second.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_runtime=error"));
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).init();
    // Only one may be the process's own, and both kube and the SDK can bring one.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let region = Region::new(settings.region.to_string());
    let config = aws_config::defaults(BehaviorVersion::latest()).region(region).load().await;
    let provider = config.credentials_provider().context("there is no source of credentials for AWS")?;
    let poster =
        Poster::new(settings.url, settings.cluster.clone(), settings.region, provider).context("no root certificates were found")?;
    let cluster = kube::Config::infer().await.context("the cluster cannot be reached: run it in a pod, or set KUBECONFIG")?;
    let client =
        whittle_watcher::client(cluster).context("the cluster cannot be reached: its address or its certificates cannot be used")?;
    tracing::info!(cluster = %settings.cluster, version = env!("CARGO_PKG_VERSION"), "started");
    whittle_watcher::run(client, poster, settings.listen, Box::pin(stopped(terminate, interrupt))).await
}

/// Completes when the process is told to stop.
async fn stopped(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
