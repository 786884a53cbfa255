//! The rig: the application deployed as users deploy it, with everything around it on loopback.
//!
//! An emulator runs the functions' own binaries from the unchanged template; the simulated AWS is a server; the control plane is a
//! real one. This process holds them together: it is the EC2 machines that join the cluster, EventBridge for AWS's own events, and
//! the API server's side of EKS (endpoint, access entries, a way to the relay by https).

mod access;
mod account;
mod catalog;
mod deploy;
mod empty;
mod emulator;
mod events;
mod http_server;
mod kubelets;
mod options;
mod proxy;
mod relay;
mod roles;
mod signed_url;
mod state;
mod supervisor;
mod tls;
mod walk;
mod watcher;

use clap::Parser;
use std::process::ExitCode;

/// Whittle as users deploy it, on loopback.
#[derive(Parser)]
#[command(name = "whittle-rig")]
enum Command {
    Serve(Box<options::Options>),
    Walk(walk::Walk),
    Upgrade(walk::upgrade::Upgrade),
    Alarms(walk::alarms::Alarms),
}

fn main() -> ExitCode {
    // Only one may be the process's own, and more than one crate brings one.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let outcome = match Command::parse() {
        Command::Serve(options) => supervisor::run(&options),
        Command::Walk(walk) => walk::run(&walk),
        Command::Upgrade(upgrade) => walk::upgrade::run(&upgrade),
        Command::Alarms(alarms) => walk::alarms::run(&alarms),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("whittle-rig: {error:#}");
            ExitCode::FAILURE
        }
    }
}
