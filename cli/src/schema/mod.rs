//! `whittle schema`: the JSON Schemas of what commands print with `-o json`, and the versions of these forms.

#[cfg(test)]
pub(crate) mod tests;

use crate::table::table;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

/// What several schemas refer to.
const DEFINITIONS: &str = include_str!("../../schemas/definitions.json");
/// Where a schema refers to a definition.
const DEFINED: &str = "#/$defs/";

/// Arguments of `whittle schema`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The schemas are of JSON Schema, draft 2020-12. Every document names the version of its form as formatVersion; docs/json.md says what
stays the same within a version.

Examples:
  whittle schema
  whittle schema plan > plan.schema.json

Exit code: 0 if it is printed, 1 if the output cannot be written, 2 if there is no such schema.")]
pub struct SchemaArgs {
    /// The command whose output is described; without one, they are listed
    #[arg(value_enum, value_name = "NAME", hide_possible_values = true)]
    pub name: Option<Document>,
}

/// A command's output for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Document {
    /// `whittle plan`
    Plan,
    /// `whittle consolidate`
    Consolidate,
    /// `whittle compare`
    Compare,
    /// `whittle explain`
    Explain,
    /// `whittle status`
    Status,
    /// `whittle doctor`
    Doctor,
    /// `whittle validate`
    Validate,
    /// `whittle check`
    Check,
    /// `whittle savings`
    Savings,
    /// `whittle cost`
    Cost,
    /// `whittle cluster list`
    ClusterList,
    /// `whittle local run`
    LocalRun,
}

impl Document {
    /// The version of its form. It grows when something is removed, renamed or means something else.
    const fn version(self) -> u32 {
        match self {
            Self::Plan
            | Self::Consolidate
            | Self::Compare
            | Self::Explain
            | Self::Status
            | Self::Doctor
            | Self::Validate
            | Self::Check
            | Self::Savings
            | Self::Cost
            | Self::ClusterList
            | Self::LocalRun => 1,
        }
    }

    /// Its schema without the definitions that it shares with others.
    const fn own_schema(self) -> &'static str {
        match self {
            Self::Plan => include_str!("../../schemas/plan.json"),
            Self::Consolidate => include_str!("../../schemas/consolidate.json"),
            Self::Compare => include_str!("../../schemas/compare.json"),
            Self::Explain => include_str!("../../schemas/explain.json"),
            Self::Status => include_str!("../../schemas/status.json"),
            Self::Doctor => include_str!("../../schemas/doctor.json"),
            Self::Validate => include_str!("../../schemas/validate.json"),
            Self::Check => include_str!("../../schemas/check.json"),
            Self::Savings => include_str!("../../schemas/savings.json"),
            Self::Cost => include_str!("../../schemas/cost.json"),
            Self::ClusterList => include_str!("../../schemas/cluster-list.json"),
            Self::LocalRun => include_str!("../../schemas/local-run.json"),
        }
    }

    /// A document with the version of its form.
    pub(crate) fn versioned(self, mut value: Value) -> Value {
        if let Some(fields) = value.as_object_mut() {
            fields.insert("formatVersion".to_owned(), json!(self.version()));
        }
        value
    }

    /// Its name on the command line.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its whole schema.
    fn schema(self) -> serde_json::Result<Value> {
        let mut schema: Map<String, Value> = serde_json::from_str(self.own_schema())?;
        let shared: Map<String, Value> = serde_json::from_str(DEFINITIONS)?;
        let mut definitions = match schema.remove("$defs") {
            Some(Value::Object(own)) => own,
            _ => Map::new(),
        };
        let mut wanted = BTreeSet::new();
        schema.values().chain(definitions.values()).for_each(|part| references(part, &mut wanted));
        while let Some(name) = wanted.pop_first() {
            if let Some(found) = shared.get(&name).filter(|_| !definitions.contains_key(&name)) {
                references(found, &mut wanted);
                definitions.insert(name, found.clone());
            }
        }
        schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        schema.insert("$id".to_owned(), json!(format!("urn:whittle:{}:{}", self.name(), self.version())));
        if !definitions.is_empty() {
            schema.insert("$defs".to_owned(), Value::Object(definitions));
        }
        Ok(Value::Object(schema))
    }
}

/// Adds the definitions that a part of a schema refers to.
fn references(part: &Value, found: &mut BTreeSet<String>) {
    match part {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix(DEFINED)).map(str::to_owned));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// Prints a schema, or which ones there are.
///
/// # Errors
/// Only when `out` cannot be written.
pub fn run(args: &SchemaArgs, out: &mut dyn Write) -> io::Result<ExitCode> {
    match args.name {
        Some(document) => writeln!(out, "{:#}", document.schema()?)?,
        None => {
            let row = |document: &Document| {
                let schema = document.schema()?;
                let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                Ok(vec![document.name(), document.version().to_string(), text("description")])
            };
            let rows = Document::value_variants().iter().map(row).collect::<serde_json::Result<Vec<Vec<String>>>>()?;
            out.write_all(table(&["NAME", "VERSION", "WHAT IT SAYS"], rows).as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
