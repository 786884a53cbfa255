//! Options of several commands.

use super::manifests::Manifests;
use clap::ValueEnum;
use whittle_api::objective::Objective;
use whittle_model::scheduling::{Options, Packing};

/// How a decision is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For programs
    Json,
    /// For people
    Text,
}

/// How a decision is printed that can be a report as well.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// For programs
    Json,
    /// For people
    Text,
    /// A report for a pull request or the summary of a job
    Markdown,
    /// A report as one file for a browser
    Html,
}

/// `--packing`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackingArg {
    /// The cheapest of several searches, Karpenter's among them
    Best,
    /// As Karpenter decides
    Reference,
}

impl PackingArg {
    /// The solver's value.
    #[must_use]
    pub fn packing(self) -> Packing {
        match self {
            PackingArg::Best => Packing::Best,
            PackingArg::Reference => Packing::Reference,
        }
    }
}

/// `--objective`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveArg {
    /// The lowest price per hour
    Cheapest,
    /// The lowest price including the machine cost
    Balanced,
    /// The fewest machines, then the lowest price
    Fewest,
}

impl ObjectiveArg {
    pub(crate) fn objective(self) -> Objective {
        match self {
            ObjectiveArg::Cheapest => Objective::Cheapest,
            ObjectiveArg::Balanced => Objective::Balanced,
            ObjectiveArg::Fewest => Objective::Fewest,
        }
    }
}

/// The solver's options, from `plan-settings`.
pub(crate) fn options(read: &Manifests, packing: PackingArg) -> Options {
    Options {
        packing: packing.packing(),
        preferences: read.settings.preferences,
        min_values: read.settings.min_values,
        objective: read.settings.objective,
        machine_cost: read.settings.machine_cost,
        reserved_capacity: read.settings.gate("ReservedCapacity", true),
        default_spread: read.settings.default_spread.clone(),
        ..Options::provisioning()
    }
}
