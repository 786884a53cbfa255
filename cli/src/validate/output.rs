//! Printing judgements.

use super::{Judgement, Verdict};
use crate::printing::shortened;
use crate::schema::Document;
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use whittle_api::field::FieldError;

/// One line for each object to `out`; errors and warnings with their positions to `err`, after the line of their object where both are one
/// terminal.
pub(super) fn text(judgements: &[Judgement<'_>], out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for judgement in judgements {
        let title = judgement.document.title();
        let title = shortened(&title);
        match judgement.verdict {
            Verdict::Accepted => writeln!(out, "{title}: accepted")?,
            Verdict::Refused => writeln!(out, "{title}: refused")?,
            Verdict::NotJudged => writeln!(out, "{}", shortened(&not_judged(judgement)))?,
        }
        if !judgement.errors.is_empty() || judgement.remarks().next().is_some() {
            out.flush()?;
        }
        for error in &judgement.errors {
            writeln!(err, "error: {}", judgement.document.error(error.clone()))?;
        }
        for warning in judgement.remarks() {
            writeln!(err, "warning: {}", judgement.document.error(warning.clone()))?;
        }
    }
    out.flush()
}

fn not_judged(judgement: &Judgement<'_>) -> String {
    let (api_version, kind) = judgement.document.type_meta();
    format!("note: {} is not judged: {kind} of {api_version} is no kind of Karpenter's", judgement.document.title())
}

/// The judgements to `out`, in the order of the input, without the objects that are not judged: those are noted in `err`.
pub(super) fn json(judgements: &[Judgement<'_>], out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
    for judgement in judgements.iter().filter(|judgement| judgement.verdict == Verdict::NotJudged) {
        writeln!(err, "{}", not_judged(judgement))?;
    }
    let judged = judgements.iter().filter(|judgement| judgement.verdict != Verdict::NotJudged);
    let objects: Vec<Value> = judged
        .map(|judgement| {
            json!({
                "object": judgement.document.title(),
                "accepted": judgement.verdict == Verdict::Accepted,
                "errors": faults(judgement.errors.iter()),
                "warnings": faults(judgement.remarks()),
                "defaulted": judgement.defaulted,
            })
        })
        .collect();
    let mut out = BufWriter::new(out);
    serde_json::to_writer_pretty(&mut out, &Document::Validate.versioned(json!({ "objects": objects })))?;
    writeln!(out)?;
    out.flush()
}

fn faults<'a>(errors: impl Iterator<Item = &'a FieldError>) -> Vec<Value> {
    errors.map(|error| json!({"field": error.path.to_string(), "message": error.message})).collect()
}
