//! `whittle catalog`: the built-in tables of a region in the form of `--instance-types`, to be corrected and used elsewhere.

use crate::similar::nearest_name;
use crate::source::{Offers, catalog};
use clap::Args;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

/// Arguments of `whittle catalog`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The types are as nodes of an EC2NodeClass with all defaults have them. On-demand prices are published ones, of us-east-1
where the tables have none of the region; spot prices are made up.

To decide with other types, zones or prices, print the catalog of a region that resembles yours, correct it, and name it with
--instance-types: it stands for the tables then, and for what EC2NodeClasses make of types. Each type has its offerings, one for each
zone and capacity type: Price is that of an hour, and what is not sold has \"Available\": false, or is left out.

Examples:
  whittle catalog --region eu-west-1 > catalog.json
  whittle catalog --region eu-west-1 --rename eu-central-1 --type m7i.large --type m7i.xlarge > catalog.json
  whittle plan -f cluster.json --instance-types catalog.json

Exit code: 0 if the catalog is printed, 1 if the output cannot be written, 2 if there is no such region or type.")]
pub struct CatalogArgs {
    /// The region whose tables are printed
    #[arg(long, value_name = "REGION", value_parser = crate::place::region)]
    pub region: String,
    /// Only this instance type; may be given more than once
    #[arg(long = "type", value_name = "NAME")]
    pub types: Vec<String>,
    /// Name the zones after another region, for which there are no tables; its prices are to be corrected
    #[arg(long, value_name = "REGION", value_parser = crate::place::region)]
    pub rename: Option<String>,
}

/// Prints the catalog.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &CatalogArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let mut types = match Offers::of_region(&args.region) {
        Ok(types) => types,
        Err(error) => {
            writeln!(err, "error: {error}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let known: BTreeSet<String> = types.iter().map(|one| one.name.clone()).collect();
    let unknown: Vec<&String> = args.types.iter().filter(|name| !known.contains(*name)).collect();
    for name in &unknown {
        let remedy = match nearest_name(name, known.iter().cloned()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("`whittle catalog --region {}` prints those that it has", args.region),
        };
        writeln!(err, "error: --type {name}: the tables of {} do not have this instance type: {remedy}", args.region)?;
    }
    if !unknown.is_empty() {
        return Ok(ExitCode::from(2));
    }
    types.retain(|one| args.types.is_empty() || args.types.contains(&one.name));
    let renamed = args.rename.as_deref().map(|to| (args.region.as_str(), to));
    serde_json::to_writer_pretty(&mut *out, &catalog::written(&types, renamed))?;
    writeln!(out)?;
    Ok(ExitCode::SUCCESS)
}
