//! `whittle cluster list`: the clusters of a deployment, and whether its functions may enter them.

use super::Output;
use crate::live::account::{Account, Entry};
use crate::live::deployment::{FUNCTIONS, Stack};
use crate::live::{DeploymentArgs, cluster_name};
use crate::programs::ProgramError;
use crate::schema::Document;
use crate::table::table;
use crate::threads::joined;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

/// Arguments of `whittle cluster list`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle cluster list
  whittle cluster list --stack whittle --region eu-west-1 -o json

Exit code: 0 if it could look, 1 if a cluster cannot be read or is not open to all functions, or the output cannot be
written, 2 if there is no stack.")]
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
    /// Functions that have an access entry with their groups; none if it is not known.
    open_to: Option<usize>,
    fault: Option<String>,
}

fn row(account: Account<'_>, stack: &Stack, name: String) -> Row {
    let blank = |status: &str, fault: Option<String>| Row {
        name: name.clone(),
        status: status.to_owned(),
        version: "-".to_owned(),
        open_to: None,
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
                // A stack of an older release may have no such role.
                let arn = stack.output(output);
                let entry = if arn.is_empty() { Ok(None) } else { account.entry(name, arn) };
                is_open(entry, groups)
            })
        };
        let asked: Vec<_> = FUNCTIONS.iter().map(|(_, output, groups)| ask(output, *groups)).collect();
        let answers = asked.into_iter().map(joined);
        how_many(answers.collect::<Vec<_>>())
    });
    let (open_to, fault) = entries.map_or_else(|fault| (None, Some(fault)), |open| (Some(open), None));
    Row { name, status: cluster.status, version: cluster.version, open_to, fault }
}

/// Whether an access entry lets a function in, with its groups.
fn is_open(entry: Result<Option<Entry>, ProgramError>, groups: [&str; 2]) -> Result<bool, String> {
    match entry {
        // A cluster in mode CONFIG_MAP has no access entries.
        Err(error) if error.says("authentication mode") => Ok(false),
        Err(error) => Err(format!("its access entries cannot be read: {error}")),
        Ok(entry) => Ok(entry.is_some_and(|entry| groups.iter().all(|group| entry.groups.contains(*group)))),
    }
}

/// How many functions are let in. One entry that cannot be read makes it unknown.
fn how_many(answers: Vec<Result<bool, String>>) -> Result<usize, String> {
    let open = answers.into_iter().collect::<Result<Vec<bool>, String>>()?;
    Ok(open.into_iter().filter(|open| *open).count())
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
        Output::Json => writeln!(out, "{:#}", document(&stack.name, &stack.region, &rows))?,
        Output::Text => {
            let open = |row: &Row| row.open_to.map_or_else(|| "unknown".to_owned(), |open| format!("{open} of {all}"));
            let cells = |row: &Row| vec![row.name.clone(), row.status.clone(), row.version.clone(), open(row)];
            write!(out, "{}", table(&["NAME", "STATUS", "VERSION", "FUNCTIONS WITH ACCESS"], rows.iter().map(cells)))?;
        }
    }
    for row in &rows {
        if let Some(fault) = &row.fault {
            writeln!(err, "error: cluster {}: {fault}", row.name)?;
        } else if row.open_to.is_some_and(|open| open < all) {
            let add = args.deployment.add_line(&row.name);
            writeln!(err, "warning: cluster {} is not open to all functions: {add}", row.name)?;
        }
    }
    let fine = rows.iter().all(|row| row.fault.is_none() && row.open_to == Some(all));
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The list as JSON.
fn document(stack: &str, region: &str, rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let Row { name, status, version, open_to, fault } = row;
        json!({"name": name, "status": status, "version": version, "functionsWithAccess": open_to, "error": fault})
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    Document::ClusterList.versioned(json!({"stack": stack, "region": region, "functions": FUNCTIONS.len(), "clusters": rows}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tests::assert_valid;

    #[test]
    fn the_list_is_as_its_schema_says() {
        let row = |open_to, fault: Option<&str>| Row {
            name: "shop".to_owned(),
            status: "ACTIVE".to_owned(),
            version: "1.33".to_owned(),
            open_to,
            fault: fault.map(str::to_owned),
        };
        let list = document("whittle", "eu-west-1", &[row(Some(9), None), row(None, Some("its access entries cannot be read"))]);
        assert_valid(Document::ClusterList, &list);
        assert_valid(Document::ClusterList, &document("whittle", "eu-west-1", &[]));
        assert_eq!((&list["clusters"][0]["functionsWithAccess"], &list["clusters"][1]["functionsWithAccess"]), (&json!(9), &Value::Null));
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_a_fault_and_no_missing_access() {
        let failed = |said: &str| Err(ProgramError::Failed { command: "aws eks describe-access-entry".into(), said: said.into() });
        let groups = ["whittle:read", "whittle:plan"];
        let entry = |of: &[&str]| Ok(Some(Entry { groups: of.iter().map(|group| (*group).to_owned()).collect(), ..Entry::default() }));
        for (answer, expected) in [
            (Ok(None), Ok(false)),
            (entry(&groups), Ok(true)),
            (entry(&groups[..1]), Ok(false)),
            (failed("The cluster's authentication mode must be set to one of [API]"), Ok(false)),
            (failed("AccessDeniedException: eks:DescribeAccessEntry"), Err("AccessDeniedException")),
        ] {
            match (is_open(answer, groups), expected) {
                (Err(fault), Err(words)) => assert!(fault.contains(words), "{fault}"),
                (is, expected) => assert_eq!(is, expected.map_err(str::to_owned)),
            }
        }
        assert_eq!(how_many(vec![Ok(true), Ok(false), Ok(true)]), Ok(2));
        assert_eq!(how_many(vec![Ok(true), Err("first".into()), Err("second".into())]), Err("first".into()));
    }
}
