//! `whittle validate`: judges manifests as an API server with our CRDs would, without one.

mod judge;
mod output;
pub(crate) mod runtime;
#[cfg(test)]
mod tests;

use crate::source::files;
use clap::ValueEnum;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use whittle_api::manifest;

pub use judge::{Changes, Judgement, Verdict, judge};

/// Arguments of `whittle validate`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Kinds from before v1 are judged as `whittle convert` prints them; kinds that are not Karpenter's are left alone.

Examples:
  whittle validate -f pools/ --strict
  whittle validate --update -f before.yaml -f after.yaml

Exit code: 0 if everything is accepted, 1 if something is refused or the output cannot be written, 2 if something cannot be read.")]
pub struct Args {
    /// Manifests: a file, a directory (its *.yaml, *.yml and *.json) or - for standard input; may be given more than once
    #[arg(short, long = "filename", required = true, value_name = "MANIFESTS")]
    pub filename: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Judge further documents of one object as changes of it, instead of each for itself
    #[arg(long)]
    pub update: bool,
    /// Refuse what causes a warning: objects that a server accepts and that do not work
    #[arg(long)]
    pub strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// Judges all objects. Verdicts are printed to `out`, errors and warnings as text to `err`. Exit code 0 if all are accepted, 1 if one is
/// refused, 2 if a file or document cannot be read; the readable ones are judged nevertheless.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &Args, stdin: &mut dyn Read, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let (mut documents, mut unreadable, mut empty) = (Vec::new(), Vec::new(), Vec::new());
    for file in files::read_all(&args.filename, stdin) {
        match file {
            Ok(file) => {
                let found = manifest::documents(&file.name, &file.text);
                if found.is_empty() {
                    empty.push(file.name);
                }
                for found in found {
                    match found {
                        Ok(document) => documents.push(document),
                        Err(error) => unreadable.push(error.to_string()),
                    }
                }
            }
            Err(error) => unreadable.push(error.to_string()),
        }
    }
    if documents.is_empty() && unreadable.is_empty() {
        unreadable.push("there is nothing to judge: the input has no object".to_owned());
    }
    for file in empty.iter().filter(|_| !documents.is_empty()) {
        writeln!(err, "note: {file} has no object: nothing of it is judged")?;
    }
    for error in &unreadable {
        writeln!(err, "error: {}", crate::printing::without_numbers(&error.to_string()))?;
    }
    let changes = if args.update { Changes::Judged } else { Changes::Apart };
    let mut judgements = judge(&documents, changes);
    if args.strict {
        judgements.iter_mut().for_each(Judgement::refuse_warnings);
    }
    match args.output {
        Output::Text => output::text(&judgements, out, err)?,
        Output::Json => output::json(&judgements, out, err)?,
    }
    Ok(if !unreadable.is_empty() {
        ExitCode::from(2)
    } else if judgements.iter().any(|judgement| judgement.verdict == Verdict::Refused) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}
