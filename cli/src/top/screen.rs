//! A cluster as lines of text: a head, nodes as rows with bars, and what waits.

use super::Sort;
use crate::look::view::{Machine, State, View};
use crate::money::{HOURS_A_MONTH, counted};
use crate::printing::{harmless, in_line};
use jiff::Timestamp;
use std::cmp::Reverse;
use whittle_units::Resources;

/// How wide a bar is.
const BAR: usize = 10;
/// The most reasons for waiting that are shown.
const WAITING_MAX: usize = 20;

/// How text is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// With colours.
    pub(super) paint: bool,
    /// The width of the terminal that lines are cut to.
    pub(super) columns: Option<usize>,
    pub(super) now: Timestamp,
}

/// A colour of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ink {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
}

impl Ink {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Blue => "34",
        }
    }
}

/// A piece of a line.
type Piece = (String, Ink);

/// A line that is not painted yet.
type Line = Vec<Piece>;

fn plain(text: impl Into<String>) -> Piece {
    (text.into(), Ink::Plain)
}

/// Parts of a screen: what stays, what scrolls, and what follows it.
pub(super) struct Parts {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<String>,
    pub(super) waiting: Vec<String>,
}

impl Screen {
    /// Everything, from top to bottom.
    pub(super) fn whole(self, view: &View, sort: Sort) -> String {
        let Parts { head, rows, waiting } = self.parts(view, sort);
        let lines: Vec<String> = head.into_iter().chain(rows).chain(waiting).collect();
        format!("{}\n", lines.join("\n"))
    }

    /// The lines of each part.
    pub(super) fn parts(self, view: &View, sort: Sort) -> Parts {
        let mut rows = self.rows(view, sort);
        let mut head: Vec<Line> = head(view);
        head.push(Vec::new());
        if view.machines.is_empty() {
            rows.clear();
            head.push(vec![plain("there are no nodes")]);
        } else {
            head.push(rows.remove(0));
        }
        let paint = |lines: Vec<Line>| lines.into_iter().map(|line| self.painted(line)).collect();
        Parts { head: paint(head), rows: paint(rows), waiting: paint(self.waiting(view)) }
    }

    /// A line of text without colours.
    pub(super) fn line(self, text: &str) -> String {
        self.painted(vec![plain(text)])
    }

    /// A line, cut to the width and painted, without what could act on a terminal.
    fn painted(self, line: Line) -> String {
        let mut left = self.columns.unwrap_or(usize::MAX);
        let mut out = String::new();
        for (text, ink) in line {
            // Letters that are not seen are written out here: they have to count.
            let text: String = harmless(&in_line(&text), false).chars().take(left).collect();
            left -= text.chars().count();
            if self.paint && ink != Ink::Plain && !text.is_empty() {
                out.push_str(&format!("\u{1b}[{}m{text}\u{1b}[0m", ink.code()));
            } else {
                out.push_str(&text);
            }
        }
        if self.paint { out } else { out.trim_end().to_owned() }
    }

    /// A header and a row for each node, in columns.
    fn rows(self, view: &View, sort: Sort) -> Vec<Line> {
        let mut machines: Vec<&Machine> = view.machines.iter().collect();
        match sort {
            Sort::Name => {}
            Sort::Price => machines.sort_by_key(|machine| Reverse(machine.price)),
            Sort::Cpu => machines.sort_by_key(|machine| per_mille(machine, "cpu")),
            Sort::Memory => machines.sort_by_key(|machine| per_mille(machine, "memory")),
            Sort::Age => machines.sort_by_key(|machine| (machine.created.is_none(), machine.created)),
        }
        let names = ["NODE", "CPU", "", "MEMORY", "", "PODS", "TYPE", "CAPACITY", "ZONE", "NODEPOOL", "PRICE", "AGE", "STATE"];
        let header: Line = names.iter().map(|name| ((*name).to_owned(), Ink::Bold)).collect();
        let mut cells: Vec<Line> = vec![header];
        cells.extend(machines.into_iter().map(|machine| self.row(machine, view)));
        let widths: Vec<usize> = (0..names.len())
            .map(|column| cells.iter().filter_map(|row| Some(row.get(column)?.0.chars().count())).max().unwrap_or(0))
            .collect();
        let pad = |(column, (text, ink)): (usize, Piece)| {
            let width = widths.get(column).copied().unwrap_or(0);
            // A bar and its share belong together.
            let space = if ["CPU", "MEMORY"].contains(&names[column]) { 1 } else { 2 };
            let fill = " ".repeat((width - text.chars().count()) + space);
            [(text, ink), plain(fill)]
        };
        cells.into_iter().map(|row| row.into_iter().enumerate().flat_map(pad).collect()).collect()
    }

    fn row(self, machine: &Machine, view: &View) -> Line {
        let dash = |text: &str| plain(if text.is_empty() { "-" } else { text });
        let price = machine.price.map_or_else(|| "-".to_owned(), |price| view.currency.shown(price.to_string()));
        let [cpu, memory] = ["cpu", "memory"].map(|resource| share(&machine.requested, &machine.allocatable, resource));
        let ink = match machine.state {
            State::Ready => Ink::Green,
            State::NotReady => Ink::Red,
            State::Launching | State::Joining | State::Starting => Ink::Blue,
            State::Cordoned | State::Disrupting | State::Deleting => Ink::Yellow,
        };
        vec![
            plain(&machine.name),
            bar(cpu),
            plain(per_cent(cpu)),
            bar(memory),
            plain(per_cent(memory)),
            plain(machine.pods.to_string()),
            dash(&machine.instance_type),
            dash(&machine.capacity_type),
            dash(&machine.zone),
            dash(&machine.pool),
            plain(price),
            plain(machine.created.map_or_else(|| "-".to_owned(), |created| age(created, self.now))),
            (machine.state.as_str().to_owned(), ink),
        ]
    }

    /// What waits, and why.
    fn waiting(self, view: &View) -> Vec<Line> {
        let mut lines = Vec::new();
        if view.waiting.is_empty() {
            return lines;
        }
        lines.push(Vec::new());
        lines.push(vec![(format!("{} for a node", waits(view.pending())), Ink::Yellow)]);
        for group in view.waiting.iter().take(WAITING_MAX) {
            let since = group.since.map_or_else(String::new, |since| format!(", the first for {}", age(since, self.now)));
            lines.push(vec![plain(format!("  {} of {}{since}: ", group.count, group.owner)), (group.reason.clone(), Ink::Dim)]);
        }
        let more = view.waiting.len().saturating_sub(WAITING_MAX);
        if more > 0 {
            lines.push(vec![plain(format!("  and {more} other reasons"))]);
        }
        lines
    }
}

/// `1 pod waits`, `2 pods wait`.
fn waits(count: usize) -> String {
    format!("{} {}", counted(count, "pod"), if count == 1 { "waits" } else { "wait" })
}

/// How many nodes and pods there are, what is requested of them, and what they cost.
fn head(view: &View) -> Vec<Line> {
    let bill = &view.bill;
    let month = bill.price.dollars() * HOURS_A_MONTH;
    let mut cost = format!("{} (${month:.2} a month)", bill.price);
    if bill.unpriced > 0 {
        cost.push_str(&format!(", without {} of unknown price", counted(bill.unpriced, "node")));
    }
    if bill.price.dollars() > 0.0 {
        cost.push_str(&format!(", {:.0} % of it for spot", view.spot.dollars() / bill.price.dollars() * 100.0));
    }
    let states = states(view);
    let nodes = format!("{}{states}, {}; ", counted(view.machines.len(), "node"), counted(view.pods, "pod"));
    let mut lines = vec![vec![(nodes, Ink::Bold), (view.currency.shown(cost), Ink::Bold)]];
    let assumptions = view.assumptions.iter().filter(|_| bill.price.dollars() > 0.0);
    lines.extend(assumptions.map(|told| vec![(format!("  {told}"), Ink::Dim)]));
    for (resource, what, unit) in [("cpu", "CPU   ", ""), ("memory", "memory", " GiB")] {
        let part = share(&view.requested, &view.allocatable, resource);
        let amount = |resources: &Resources| {
            #[expect(clippy::cast_precision_loss, reason = "output")]
            let whole = resources.get(resource).milli() as f64 / 1000.0;
            if resource == "cpu" { whole } else { whole / f64::from(1 << 30) }
        };
        let of = format!(" {}: {:.1} of {:.1}{unit} requested", per_cent(part), amount(&view.requested), amount(&view.allocatable));
        lines.push(vec![plain(format!("{what} ")), bar(part), plain(of)]);
    }
    lines
}

/// The nodes that are not ready, by state.
fn states(view: &View) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for machine in view.machines.iter().filter(|machine| machine.state != State::Ready) {
        *counts.entry(machine.state).or_insert(0_usize) += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {}", state.as_str())).collect();
    if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
}

/// Which part of a resource is requested, in thousandths; `None` if there is none.
fn share(requested: &Resources, allocatable: &Resources, resource: &str) -> Option<i64> {
    let all = allocatable.get(resource).milli();
    (all > 0).then(|| i64::try_from(i128::from(requested.get(resource).milli()) * 1000 / i128::from(all)).unwrap_or(i64::MAX))
}

/// The same for sorting: a machine without the resource is full.
fn per_mille(machine: &Machine, resource: &str) -> i64 {
    share(&machine.requested, &machine.allocatable, resource).unwrap_or(i64::MAX)
}

fn per_cent(share: Option<i64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:>3} %", (share + 5) / 10))
}

/// A bar, in the colour of how well a machine is used.
fn bar(share: Option<i64>) -> Piece {
    let Some(share) = share else { return plain(" ".repeat(BAR)) };
    let full = usize::try_from((share * 10 + 500) / 1000).unwrap_or(0).min(BAR);
    let ink = match share {
        ..250 => Ink::Red,
        250..600 => Ink::Yellow,
        _ => Ink::Green,
    };
    (format!("{}{}", "█".repeat(full), "░".repeat(BAR - full)), ink)
}

/// An age as kubectl shows it: `45s`, `12m`, `7h`, `3d`.
pub(super) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
