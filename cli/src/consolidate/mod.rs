//! `whittle consolidate`: which nodes would be disrupted now, decided from files alone.

pub(crate) mod output;
#[cfg(test)]
mod tests;

use crate::plan::offers::Offered;
use crate::plan::source::Source;
use crate::plan::{Format, PackingArg, input};
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use whittle_core::disruption::{self, Decision, Gate, Memory};
use whittle_core::schedule::{Input, Options, Workloads};
use whittle_core::state::ClusterState;

/// One pass of the disruption loop over a cluster given as manifests.
#[derive(Args, Debug, Clone)]
pub struct ConsolidateArgs {
    #[command(flatten)]
    pub source: Source,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// How moves are looked for: as the reference does, or also for moves that save more.
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
}

/// Runs the command. The status is 0 whenever a decision was made, even if it is to do nothing.
#[must_use]
pub fn run(args: &ConsolidateArgs) -> ExitCode {
    match render(args) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("whittle consolidate: {error}");
            ExitCode::from(2)
        }
    }
}

/// The output of the command.
///
/// # Errors
/// Input that cannot be read.
pub fn render(args: &ConsolidateArgs) -> Result<String, input::ReadError> {
    let (read, offered) = args.source.read("consolidate")?;
    if !read.refused.is_empty() {
        // What a pod or a budget that cannot be read would have protected must not be removed for that.
        return Err(input::ReadError::Manifest(read.refused));
    }
    let started = Instant::now();
    let decision = decide(&read, &offered, args.packing);
    Ok(match args.output {
        Format::Json => output::json(&decision, started.elapsed()),
        Format::Text => output::text(&decision),
    })
}

/// The decision for manifests and what can be bought.
#[must_use]
pub fn decide(read: &input::Manifests, offered: &Offered, packing: PackingArg) -> Decision {
    let state = ClusterState::of(&read.objects);
    let gate = |name| if read.settings.gate(name, false) { Gate::On } else { Gate::Off };
    let settings = disruption::Settings {
        solve: Options {
            packing: packing.packing(),
            preferences: read.settings.preferences,
            min_values: read.settings.min_values,
            reserved_capacity: read.settings.gate("ReservedCapacity", true),
            ..Options::provisioning()
        },
        spot_to_spot: gate("SpotToSpotConsolidation"),
        static_capacity: gate("StaticCapacity"),
        closed: read.closed.clone(),
        ..disruption::Settings::standard()
    };
    let cluster = Input {
        now: read.settings.now,
        objects: &read.objects,
        nodes: &state.nodes,
        catalog: offered,
        virtual_pods: &[],
        workloads: &Workloads::default(),
    };
    let (facts, memory) = (BTreeMap::new(), Memory::default());
    disruption::decide(disruption::Input { cluster, facts: &facts, memory: &memory, settings: &settings })
}
