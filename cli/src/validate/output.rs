//! Printing judgements.

use super::{Judgement, Verdict};
use crate::printing::shortened;
use crate::schema::Document;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use whittle_api::field::FieldError;

/// One line for each object to `out`; errors and warnings with their positions to `err`, after the line of their object where both are one
/// terminal.
pub(super) fn text(judgements: &[Judgement<'_>], out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let mut others = NotJudged::among(judgements);
    for judgement in judgements {
        let title = judgement.document.title();
        let title = shortened(&title);
        match judgement.verdict {
            Verdict::Accepted => writeln!(out, "{title}: accepted")?,
            Verdict::Refused => writeln!(out, "{title}: refused")?,
            Verdict::NotJudged => others.line(judgement).iter().try_for_each(|line| writeln!(out, "{}", shortened(line)))?,
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

/// How many objects of one kind that are not judged are named; more are counted.
const NAMED: usize = 3;

/// How many objects are not judged, by version and kind, without those that the output names already.
struct NotJudged<'d>(BTreeMap<(&'d str, &'d str), usize>);

impl<'d> NotJudged<'d> {
    fn among(judgements: &[Judgement<'d>]) -> Self {
        let mut counts: BTreeMap<(&'d str, &'d str), usize> = BTreeMap::new();
        for judgement in judgements.iter().filter(|judgement| judgement.verdict == Verdict::NotJudged) {
            *counts.entry(judgement.document.type_meta()).or_default() += 1;
        }
        Self(counts)
    }

    /// What is said of an object: of many of one kind, such as the pods of a dump, it is said at the first of them.
    fn line(&mut self, judgement: &Judgement<'d>) -> Option<String> {
        let (api_version, kind) = judgement.document.type_meta();
        let count = self.0.get_mut(&(api_version, kind))?;
        match *count {
            0 => None,
            many if NAMED < many => {
                *count = 0;
                Some(format!("note: {many} objects are not judged: {kind} of {api_version} is no kind of Karpenter's"))
            }
            _ => {
                let title = judgement.document.title();
                Some(format!("note: {title} is not judged: {kind} of {api_version} is no kind of Karpenter's"))
            }
        }
    }
}

/// The judgements to `out`, in the order of the input, without the objects that are not judged: those are noted in `err`.
pub(super) fn json(judgements: &[Judgement<'_>], out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
    let mut others = NotJudged::among(judgements);
    for line in judgements.iter().filter(|judgement| judgement.verdict == Verdict::NotJudged).filter_map(|one| others.line(one)) {
        writeln!(err, "{line}")?;
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
