//! `whittle cluster list`: the clusters of a deployment, and whether its functions may enter them.

use super::Output;
use crate::live::account::Account;
use crate::live::deployment::{FUNCTIONS, Stack};
use crate::live::{DeploymentArgs, cluster_name};
use crate::table::table;
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

/// Arguments of `whittle cluster list`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle cluster list
  whittle cluster list --stack whittle --region eu-west-1 -o json

Exit code: 0 if it could look, 1 if a cluster cannot be read or is not open to all functions, 2 if there is no stack.")]
pub struct ListArgs {
    #[command(flatten)]
    pub deployment: DeploymentArgs,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// A cluster of the deployment.
struct Row {
    name: String,
    status: String,
    version: String,
    /// Functions that have an access entry with their groups.
    open_to: usize,
    fault: Option<String>,
}

fn row(account: Account<'_>, stack: &Stack, name: String) -> Row {
    let blank = |status: &str, fault: Option<String>| Row {
        name: name.clone(),
        status: status.to_owned(),
        version: "-".to_owned(),
        open_to: 0,
        fault,
    };
    if let Err(why) = cluster_name(&name) {
        return blank("invalid name", Some(why));
    }
    let cluster = match account.cluster(&name) {
        Ok(Some(cluster)) => cluster,
        Ok(None) => return blank("not found", Some(format!("EKS has no such cluster in {}", stack.region))),
        Err(error) => return blank("unknown", Some(error.to_string())),
    };
    let entries = thread::scope(|threads| {
        let ask = |output: &'static str, groups: [&'static str; 2]| {
            let name = &name;
            threads.spawn(move || {
                let entry = account.entry(name, stack.output(output)).ok().flatten();
                entry.is_some_and(|entry| groups.iter().all(|group| entry.groups.contains(*group)))
            })
        };
        let asked: Vec<_> = FUNCTIONS.iter().map(|(_, output, groups)| ask(output, *groups)).collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or_default()).filter(|open| *open).count()
    });
    Row { name, status: cluster.status, version: cluster.version, open_to: entries, fault: None }
}

/// Lists them.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub(super) fn run(args: &ListArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let aws = args.deployment.program();
    let account = Account(&aws);
    let stack = match Stack::read(&account, &args.deployment.stack) {
        Ok(stack) => stack,
        Err(fault) => {
            writeln!(err, "error: {fault}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let rows: Vec<Row> = thread::scope(|threads| {
        let asked: Vec<_> = stack.clusters().into_iter().map(|name| threads.spawn(|| row(account, &stack, name))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let all = FUNCTIONS.len();
    match args.output {
        Output::Json => {
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    let Row { name, status, version, open_to, fault } = row;
                    json!({"name": name, "status": status, "version": version, "functionsWithAccess": open_to, "error": fault})
                })
                .collect();
            writeln!(out, "{:#}", json!({"stack": stack.name, "region": stack.region, "functions": all, "clusters": rows}))?;
        }
        Output::Text => {
            let cells = |row: &Row| vec![row.name.clone(), row.status.clone(), row.version.clone(), format!("{} of {all}", row.open_to)];
            write!(out, "{}", table(&["NAME", "STATUS", "VERSION", "FUNCTIONS WITH ACCESS"], rows.iter().map(cells)))?;
        }
    }
    for row in &rows {
        if let Some(fault) = &row.fault {
            writeln!(err, "error: cluster {}: {fault}", row.name)?;
        } else if row.open_to < all {
            writeln!(err, "warning: cluster {} is not open to all functions: whittle cluster add {}", row.name, row.name)?;
        }
    }
    let fine = rows.iter().all(|row| row.fault.is_none() && row.open_to == all);
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
