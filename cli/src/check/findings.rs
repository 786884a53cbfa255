//! What a check finds, and how it is printed.

use crate::money::counted;
use crate::printing::shortened;
use crate::schema::Document;
use crate::source::remarks::{NAMED_MAX, TOLD_EACH_MAX};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use whittle_api::k8s::{Kind as _, Pod};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// An object in which nothing is wrong.
    Fine,
    /// A value that was asked for.
    Shown,
    Note,
    /// It works, but probably not as intended.
    Warning,
    /// It would not work.
    Error,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Shown => "shown",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Which findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Printed {
    All,
    /// Warnings and errors.
    Faults,
}

/// Findings in the order in which they were made.
#[derive(Default)]
pub(super) struct Findings(Vec<(Level, String)>);

impl Findings {
    pub(super) fn add(&mut self, level: Level, texts: impl IntoIterator<Item = String>) {
        self.0.extend(texts.into_iter().map(|text| (level, text)));
    }

    pub(super) fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|(of, _)| *of == level).count()
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter(|(level, _)| *level == Level::Error).map(|(_, text)| text)
    }

    /// Takes warnings for errors.
    pub(super) fn refuse_warnings(&mut self) {
        self.0.iter_mut().filter(|(level, _)| *level == Level::Warning).for_each(|(level, _)| *level = Level::Error);
    }

    /// Errors to `err`, the rest to `out`, with a sum if there are several objects.
    pub(super) fn text(&self, which: Printed, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<()> {
        let mut alike = Alike::among(self.printed(which));
        for (level, text) in self.printed(which).filter(|(level, _)| *level != Level::Error) {
            let Some(text) = alike.line(*level, text) else { continue };
            match level {
                Level::Shown => writeln!(out, "{text}")?,
                Level::Fine => writeln!(out, "{}", shortened(&text))?,
                _ => writeln!(out, "{}: {}", level.as_str(), shortened(&text))?,
            }
        }
        out.flush()?;
        for (level, text) in self.0.iter().filter(|(level, _)| *level == Level::Error) {
            let Some(text) = alike.line(*level, text) else { continue };
            writeln!(err, "error: {text}")?;
        }
        let (fine, warnings, errors) = (self.count(Level::Fine), self.count(Level::Warning), self.count(Level::Error));
        if which == Printed::All && 1 < fine + warnings + errors {
            writeln!(out, "{} fine, {}, {}", counted(fine, "object"), counted(warnings, "warning"), counted(errors, "error"))?;
        }
        Ok(())
    }

    /// All findings, errors too, and their numbers.
    pub(super) fn json(&self, which: Printed, out: &mut dyn Write) -> io::Result<()> {
        let findings: Vec<_> = self.printed(which).map(|(level, text)| json!({"level": level.as_str(), "message": text})).collect();
        let summary = json!({
            "fine": self.count(Level::Fine),
            "notes": self.count(Level::Note),
            "warnings": self.count(Level::Warning),
            "errors": self.count(Level::Error),
        });
        writeln!(out, "{:#}", Document::Check.versioned(json!({"findings": findings, "summary": summary})))
    }

    fn printed(&self, which: Printed) -> impl Iterator<Item = &(Level, String)> {
        self.0.iter().filter(move |(level, _)| which == Printed::All || matches!(level, Level::Warning | Level::Error))
    }
}

/// How many findings say the same of objects of one kind, by that kind and what they say: a dump has thousands of pods that are fine, or
/// wrong for one reason, whose lines would hide all others.
struct Alike<'f>(BTreeMap<(&'f str, &'f str), usize>);

impl<'f> Alike<'f> {
    fn among(findings: impl Iterator<Item = &'f (Level, String)>) -> Self {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for said in findings.filter_map(|(level, text)| Self::said(*level, text)) {
            *counts.entry(said).or_default() += 1;
        }
        Self(counts)
    }

    /// The kind of the object, and what is said of it, where that says nothing else about the object than its name. What is wrong with
    /// pods is counted so; of other kinds each object is to be edited, and is told.
    fn said(level: Level, text: &str) -> Option<(&str, &str)> {
        let (before, rest) = text.split_once(" \"")?;
        if matches!(level, Level::Warning | Level::Error) {
            // Where it is, and its kind.
            let is_of_pod = before.rsplit(' ').next() == Some(Pod::KIND);
            let (_, said) = rest.split_once('"')?;
            return (is_of_pod && said.starts_with(", ")).then_some((Pod::KIND, said));
        }
        let (_, said) = rest.rsplit_once('"')?;
        let is_alike = match level {
            Level::Fine => said == ": fine",
            Level::Note => said.starts_with(" is not looked at"),
            Level::Shown | Level::Warning | Level::Error => false,
        };
        is_alike.then_some((before, said))
    }

    /// How many are told each. What is not looked at tells less than what is fine, and `validate` names as few of its others.
    const fn each_max(level: Level) -> usize {
        if matches!(level, Level::Note) { NAMED_MAX } else { TOLD_EACH_MAX }
    }

    /// The line of a finding. What many say is one line, that of the first of them.
    fn line(&mut self, level: Level, text: &'f str) -> Option<Cow<'f, str>> {
        let Some((kind, said)) = Self::said(level, text) else { return Some(Cow::Borrowed(text)) };
        match self.0.get_mut(&(kind, said)) {
            Some(0) => None,
            Some(count) if Self::each_max(level) < *count => {
                let many = std::mem::take(count);
                Some(Cow::Owned(match text.strip_suffix(said) {
                    Some(first) if matches!(level, Level::Warning | Level::Error) => format!("{first} and {} more{said}", many - 1),
                    _ => format!("{many} objects of kind {kind}{}", said.replacen(" is ", " are ", 1)),
                }))
            }
            _ => Some(Cow::Borrowed(text)),
        }
    }
}
