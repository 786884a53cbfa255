//! What a decision from files is made of: manifests, what can be bought, and the time.

use super::ObjectiveArg;
use super::input::{self, Manifests, ReadError, When};
use super::offers::{Offered, Offers};
use clap::Args;
use jiff::Timestamp;
use std::path::PathBuf;
use whittle_api::objective::machine_cost;
use whittle_units::Price;

/// The input of `plan`, `consolidate` and `explain`.
#[derive(Args, Debug, Clone, Default)]
pub struct Source {
    /// Manifests: a file, a directory (its *.yaml and *.yml) or - for standard input; may be given more than once. What
    /// `kubectl get -o yaml` prints will do.
    #[arg(short = 'f', long = "filename", required = true, value_name = "MANIFESTS")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub offers: Offers,
    /// The time at which to decide, such as 2026-01-01T00:00:00Z. Without it: key `now` of a ConfigMap `plan-settings` among the
    /// manifests, else the present (with --instance-types 2026-01-01T00:00:00Z, so that the same files give the same answer).
    #[arg(long, value_name = "TIME")]
    pub now: Option<Timestamp>,
    /// Which plan is the best of those that place as many pods. Without it: key `objective` of `plan-settings`, else balanced
    #[arg(long, value_enum)]
    pub objective: Option<ObjectiveArg>,
    /// What a machine costs besides its price and its volumes, in dollars per hour, for the objective balanced. Without it: key
    /// `machineCost` of `plan-settings`, else 0.05
    #[arg(long, value_name = "DOLLARS", value_parser = machine_cost)]
    pub machine_cost: Option<Price>,
}

impl Source {
    /// One file and a catalog.
    #[must_use]
    pub fn of_case(manifests: PathBuf, instance_types: PathBuf) -> Self {
        let offers = Offers { instance_types: Some(instance_types), region: None };
        Self { files: vec![manifests], offers, ..Self::default() }
    }

    /// Reads all of it; says on standard error which objects have no effect on `command`.
    ///
    /// # Errors
    /// What cannot be read, with its place.
    pub(crate) fn read(&self, command: &str) -> Result<(Manifests, Offered), ReadError> {
        let from_catalog = self.offers.instance_types.is_some();
        let when = match self.now {
            Some(now) => When::At(now),
            None if from_catalog => When::ordinary(),
            None => When::Otherwise(Timestamp::now()),
        };
        let mut read = input::read(&self.files, when)?;
        if let Some(asked) = self.objective {
            read.settings.objective = asked.objective();
        }
        read.settings.machine_cost = self.machine_cost.unwrap_or(read.settings.machine_cost);
        let offered = self.offers.read(&read)?;
        super::tell(command, &read);
        for class in read.node_classes.iter().filter(|_| from_catalog) {
            eprintln!("whittle {command}: skipped EC2NodeClass {}: its effect is in the catalog", class.metadata.name);
        }
        Ok((read, offered))
    }
}
