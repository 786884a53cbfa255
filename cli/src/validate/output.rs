//! Printing judgements.

use super::{Judgement, Verdict};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use whittle_api::field::FieldError;

/// One line for each object to `out`; errors and warnings with their positions to `err`.
pub(super) fn text(judgements: &[Judgement<'_>], out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for judgement in judgements {
        let title = judgement.document.title();
        match judgement.verdict {
            Verdict::Accepted => writeln!(out, "{title}: accepted")?,
            Verdict::Refused => writeln!(out, "{title}: refused")?,
            Verdict::NotJudged => {
                let (api_version, kind) = judgement.document.type_meta();
                writeln!(out, "note: {title} is not judged: {kind} of {api_version} is no kind of Karpenter's")?;
            }
        }
        for error in &judgement.errors {
            writeln!(err, "error: {}", judgement.document.error(error.clone()))?;
        }
        for warning in &judgement.warnings {
            writeln!(err, "warning: {}", judgement.document.error(warning.clone()))?;
        }
    }
    out.flush()
}

/// `{"objects": […]}`, in the order of the input, without the objects that are not judged.
pub(super) fn json(judgements: &[Judgement<'_>], out: &mut dyn Write) -> io::Result<()> {
    let judged = judgements.iter().filter(|judgement| judgement.verdict != Verdict::NotJudged);
    let objects: Vec<Value> = judged
        .map(|judgement| {
            json!({
                "object": judgement.document.title(),
                "accepted": judgement.verdict == Verdict::Accepted,
                "errors": faults(&judgement.errors),
                "warnings": faults(&judgement.warnings),
                "defaulted": judgement.defaulted,
            })
        })
        .collect();
    let mut out = BufWriter::new(out);
    serde_json::to_writer_pretty(&mut out, &json!({ "objects": objects }))?;
    writeln!(out)?;
    out.flush()
}

fn faults(errors: &[FieldError]) -> Vec<Value> {
    errors.iter().map(|error| json!({"field": error.path.to_string(), "message": error.message})).collect()
}
