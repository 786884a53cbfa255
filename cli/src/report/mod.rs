//! Reports for others to read: Markdown for a pull request or the summary of a job, or one HTML file without scripts.

pub(crate) mod chart;
mod html;
#[cfg(test)]
mod tests;

pub(crate) use html::html;

use std::fmt::Write as _;

/// A report. What was asked comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) title: String,
    /// The answer in a few lines.
    pub(crate) lead: Vec<String>,
    pub(crate) sections: Vec<Section>,
}

/// A part of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) text: Vec<String>,
    pub(crate) table: Option<Table>,
    /// Drawings as SVG; Markdown leaves them out.
    pub(crate) charts: Vec<String>,
}

/// A table. Every row has a cell for each column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The file format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Markdown,
    Html,
}

impl Kind {
    /// The format that the name of a file asks for.
    pub(crate) fn of_file(name: &std::path::Path) -> Result<Self, String> {
        match name.extension().and_then(|extension| extension.to_str()) {
            Some("md" | "markdown") => Ok(Self::Markdown),
            Some("html" | "htm") => Ok(Self::Html),
            _ => Err(format!("{}: a report is Markdown or HTML, so its name ends in .md or .html", crate::source::files::shown(name))),
        }
    }

    pub(crate) fn render(self, report: &Report) -> String {
        match self {
            Self::Markdown => markdown(report),
            Self::Html => html(report),
        }
    }
}

impl Section {
    /// A section with a table; `None` if it would be empty.
    pub(crate) fn of_table(title: &str, header: &[&'static str], rows: Vec<Vec<String>>) -> Option<Self> {
        let table = Table { header: header.to_vec(), rows };
        (!table.rows.is_empty()).then(|| Self { title: title.to_owned(), table: Some(table), ..Self::default() })
    }
}

/// The report as Markdown with GitHub's tables.
pub(crate) fn markdown(report: &Report) -> String {
    let mut out = format!("# {}\n", escaped(&report.title));
    paragraphs(&mut out, &report.lead);
    for section in &report.sections {
        let _ = write!(out, "\n## {}\n", escaped(&section.title));
        paragraphs(&mut out, &section.text);
        if let Some(table) = &section.table {
            let row = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
            out.push('\n');
            out.push_str(&row(&mut table.header.iter().map(|name| escaped(name))));
            out.push_str(&row(&mut table.header.iter().map(|_| "---".to_owned())));
            for cells in &table.rows {
                out.push_str(&row(&mut cells.iter().map(|cell| escaped(cell))));
            }
        }
    }
    out
}

fn paragraphs(out: &mut String, lines: &[String]) {
    for line in lines {
        let _ = write!(out, "\n{}\n", escaped(line));
    }
}

/// Text that Markdown shows as it is, on one line: names and messages are others' words.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.trim().chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' | '&' | '@' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}
