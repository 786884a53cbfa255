//! A report as one HTML file, which loads nothing and runs nothing.

use super::{Report, Section, Table};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("report.css");

/// The report as a page; every text is escaped.
pub(crate) fn html(report: &Report) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (report.title) }
                    @for line in &report.lead { p.lead { (line) } }
                    @for section in &report.sections { (part(section)) }
                }
            }
        }
    };
    page.into_string()
}

fn part(section: &Section) -> Markup {
    html! {
        section {
            h2 { (section.title) }
            @for line in &section.text { p { (line) } }
            @for chart in &section.charts { figure { (PreEscaped(chart)) } }
            @if let Some(table) = &section.table { (rows(table)) }
        }
    }
}

fn rows(table: &Table) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { @for name in &table.header { th scope="col" { (name) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for cell in row { td class=[is_number(cell).then_some("number")] { (cell) } } }
                    }
                }
            }
        }
    }
}

/// Whether a cell is aligned as a number.
fn is_number(cell: &str) -> bool {
    let digits = cell.trim_start_matches(['-', '+', '$', '¥']);
    digits.starts_with(|letter: char| letter.is_ascii_digit())
        && digits.chars().all(|letter| letter.is_ascii_digit() || ".,/h%".contains(letter))
}
