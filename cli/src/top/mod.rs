//! `whittle top`: the nodes of a cluster, what is requested of them, what they cost, and the pods that wait.

mod screen;
mod terminal;
#[cfg(test)]
mod tests;
mod watch;

use crate::look::view::View;
use crate::look::{ClusterArgs, Live, Purpose};
use crate::numbers;
use crate::printing::{self, complain, say};
use crate::source::{self, Expansion, Market, Offers, ReadError, When};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use screen::Screen;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `whittle top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Bars are what pods request of the allocatable CPU and memory, not what they use. Prices are those of the list: on demand as published (`whittle catalog --help`),
spot made up, without savings plans and discounts; --instance-types takes yours.

With --watch: q or Ctrl-C ends it, s sorts by the next column, the arrow keys scroll, and r reads at once.

Examples:
  whittle top                                      (the current context)
  whittle top --context prod --watch --sort price
  whittle top -f cluster.json

Exit code: 0 if the cluster is shown, 1 if objects of it cannot be read or the output cannot be written, 2 if nothing can be shown.")]
pub struct TopArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The dump of a cluster instead: a file, a directory or - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "MANIFESTS")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub offers: Offers,
    /// By which column the nodes are sorted
    #[arg(long, value_enum, default_value_t, value_name = "COLUMN")]
    pub sort: Sort,
    /// Look again every few seconds, until q or Ctrl-C
    #[arg(short, long, conflicts_with = "files")]
    pub watch: bool,
    /// How long to wait between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, requires = "watch", allow_negative_numbers = true)]
    #[arg(value_parser = numbers::within::<u64>(1..=3_600))]
    pub every: u64,
}

/// The columns to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By name
    #[default]
    Name,
    /// The most expensive first
    Price,
    /// The least requested CPU first
    Cpu,
    /// The least requested memory first
    Memory,
    /// The oldest first
    Age,
}

impl Sort {
    /// Its name on the command line.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Price => "price",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Age => "age",
        }
    }

    /// The next one.
    fn next(self) -> Self {
        match self {
            Self::Name => Self::Price,
            Self::Price => Self::Cpu,
            Self::Cpu => Self::Memory,
            Self::Memory => Self::Age,
            Self::Age => Self::Name,
        }
    }
}

/// How the cluster is looked at.
#[derive(Clone, Debug)]
struct Looking {
    live: Option<Live>,
    files: Vec<PathBuf>,
    offers: Offers,
}

impl Looking {
    /// The same, without a word on standard error.
    fn quiet(&self) -> Self {
        Self { live: self.live.clone().map(Live::quiet), ..self.clone() }
    }

    /// One look.
    fn look(&self) -> Result<View, ReadError> {
        let cluster = self.live.as_ref().map(|live| live.read(Purpose::Show)).transpose()?;
        let read = source::read_over(cluster, &self.files, When::Default(Timestamp::now()), Expansion::Off)?;
        let Market { prices, currency, assumptions, .. } = self.offers.prices(&read, || self.live.as_ref()?.region())?;
        Ok(View { assumptions, ..View::of(&read, &prices, currency) })
    }
}

/// Runs `whittle top`.
pub fn run(args: &TopArgs) -> ExitCode {
    let live = if args.files.is_empty() { Some(args.cluster.current()) } else { args.cluster.live() };
    let looking = Looking { live, files: args.files.clone(), offers: args.offers.clone() };
    if args.watch {
        return watch::run(&looking, args.sort, Duration::from_secs(args.every));
    }
    match looking.look() {
        Ok(view) => {
            view.refused.iter().for_each(|refused| complain!("error: refused: {refused}"));
            let screen = Screen { paint: printing::paints(), columns: None, now: Timestamp::now() };
            say!("{}", screen.whole(&view, args.sort));
            ExitCode::from(u8::from(!view.refused.is_empty()))
        }
        Err(error) => {
            printing::errors(&error);
            ExitCode::from(2)
        }
    }
}
