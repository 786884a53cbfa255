//! The interactive session: a prompt, or commands from standard input.

pub(super) mod advance;
mod apply;
mod change;
pub(super) mod command_line;
mod completion;
mod delete;
mod describe;
mod ec2;
mod ec2_describe;
mod ec2_tags;
pub(super) mod explain;
mod get;
mod hints;
mod lines;
mod rollout;

use super::session::{Place, Session, SessionError};
use super::web::{self, PageArgs};
use crate::money::Currency;
use crate::printing::{self, complain, say};
use crate::savings;
use command_line::{ApplyArgs, Line, Mode, RolloutCommand, Verb};
use jiff::{SignedDuration, Timestamp};
use lines::{Editor, Entered, Lines, Piped};
use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use whittle_sim::World;

/// Applies `files`, serves a page if there is to be one, and reads commands until the end. A wrong command from a pipe ends the session
/// with status 2; a line of it that is no text is an error for itself. A page goes on after the last command from a pipe.
pub(super) fn main(place: &Place, mode: Mode, files: &[PathBuf], page: &PageArgs) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    let mut prompt = Prompt { stop: Arc::clone(&stop), paints: printing::paints(), ..Prompt::new(place) };
    prompt.session.set_mode(mode.into());
    match prompt.begin_with(files) {
        Ok(text) => say!("{text}"),
        Err(error) => {
            printing::errors(&error);
            return ExitCode::from(2);
        }
    }
    let prompt = Arc::new(Mutex::new(prompt));
    let served = match web::serve(page, &prompt) {
        Ok(served) => served,
        Err(error) => {
            printing::errors(&error);
            return ExitCode::from(2);
        }
    };
    if let Some(address) = &served {
        say!("{}", web::greeting(page, address));
    }
    if !std::io::stdin().is_terminal() {
        let (status, ended) = run(&prompt, &mut Piped::new(std::io::stdin().lock()), false);
        while served.is_some() && ended == Ending::NoMoreLines {
            std::thread::park();
        }
        return status;
    }
    // While a command runs, Ctrl-C stops it and not the session; while a line is edited, the editor reads it as a key.
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGINT, stop) {
        complain!("warning: Ctrl-C ends the session: {error}");
    }
    match Editor::new() {
        Ok(mut editor) => {
            say!("A simulated cluster {} in {}; nothing here is real. `help` lists the commands.\n", place.cluster, place.region);
            run(&prompt, &mut editor, true).0
        }
        Err(error) => {
            complain!("error: the terminal cannot be used: {error}");
            ExitCode::from(2)
        }
    }
}

/// Why no more commands are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    NoMoreLines,
    Told,
}

fn run(prompt: &Mutex<Prompt>, lines: &mut dyn Lines, interactive: bool) -> (ExitCode, Ending) {
    let mut status = ExitCode::SUCCESS;
    loop {
        lines.offer(&|| completion::Names::of(&hold(prompt).session.simulation.world()));
        let line = match lines.next(true) {
            Entered::Line(line) => line,
            Entered::Dropped => continue,
            Entered::Unreadable(error) => {
                printing::errors(&error);
                status = ExitCode::from(2);
                continue;
            }
            Entered::End => return (status, Ending::NoMoreLines),
        };
        let mut prompt = hold(prompt);
        prompt.stop.store(false, Ordering::Relaxed);
        match prompt.command(&line, lines) {
            Ok(Some(text)) => say!("{}", prompt.currency().shown(text)),
            Ok(None) => return (status, Ending::Told),
            Err(error) => {
                printing::errors(&error);
                if !interactive {
                    return (ExitCode::from(2), Ending::Told);
                }
            }
        }
    }
}

/// The session, when nobody else uses it. A command that failed half-way left it as consistent as any other.
pub(super) fn hold(prompt: &Mutex<Prompt>) -> MutexGuard<'_, Prompt> {
    prompt.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session, and how much of its timeline was printed.
pub struct Prompt {
    pub(super) session: Session,
    printed_lines: usize,
    /// What was told of arguments of `whittle local` already.
    hinted: BTreeSet<String>,
    /// Whether lines of the timeline are coloured.
    paints: bool,
    /// Set to stop the running command.
    pub(super) stop: Arc<AtomicBool>,
    /// Counts what may have changed the session.
    pub(super) changes: u64,
    /// Sees the world while a command lets time pass.
    pub(super) glance: Option<Glance>,
}

/// What sees a world between two of its events.
pub(super) type Glance = Box<dyn FnMut(&World) + Send>;

impl Prompt {
    /// A session for commands that come from elsewhere.
    pub fn new(place: &Place) -> Self {
        Self {
            session: Session::new(place),
            printed_lines: 0,
            hinted: BTreeSet::new(),
            paints: false,
            stop: Arc::default(),
            changes: 0,
            glance: None,
        }
    }

    /// Applies the files that a session begins with.
    fn begin_with(&mut self, files: &[PathBuf]) -> Result<String, String> {
        if files.is_empty() {
            return Ok(String::new());
        }
        let args = ApplyArgs::of(files);
        if args.reads_lines() {
            return Err("-f -: standard input has the commands of the session: name a file, or begin with `apply -f -`".to_owned());
        }
        self.apply(&args, None, None)
    }

    /// Runs a command from elsewhere than the terminal, with the lines that belong to it, and returns what it would print. What was not
    /// printed at the terminal yet will still be.
    pub(super) fn answer(&mut self, text: &str) -> Result<String, String> {
        let (paints, printed, hinted) = (self.paints, self.printed_lines, self.hinted.clone());
        (self.paints, self.printed_lines) = (false, self.session.simulation.world().story.lines().len());
        let mut lines = Piped::new(text.as_bytes());
        let answer = match lines.next(true) {
            Entered::Line(line) => self.command(&line, &mut lines),
            _ => Ok(Some(String::new())),
        };
        (self.paints, self.printed_lines, self.hinted) = (paints, printed, hinted);
        let ends_here = "the session ends at its terminal: `quit` or Ctrl-D there, or Ctrl-C";
        answer?.map(|text| self.currency().shown(text)).ok_or_else(|| ends_here.to_owned())
    }

    /// Runs one command, which may take further lines. `None` ends the session.
    fn command(&mut self, line: &str, lines: &mut dyn Lines) -> Result<Option<String>, String> {
        self.changes += 1;
        let Some(parsed) = command_line::split(line)? else { return Ok(Some(String::new())) };
        let Line { verb, namespace } = match command_line::parse(&parsed.words)? {
            Ok(line) => line,
            Err(help) => return Ok(Some(help)),
        };
        let namespace = namespace.as_deref();
        let text = match verb {
            Verb::Quit => return Ok(None),
            Verb::Apply(args) => {
                let body = if args.reads_lines() { Some(lines::body(lines, parsed.until.as_deref())?) } else { None };
                self.apply(&args, namespace, body)?
            }
            Verb::Delete(args) => {
                let body = if args.reads_lines() { Some(lines::body(lines, parsed.until.as_deref())?) } else { None };
                self.delete(&args, namespace, body)?
            }
            Verb::Scale(args) => self.scale(&args, namespace)?,
            Verb::Annotate(args) => self.annotate(&args, namespace)?,
            Verb::Label(args) => self.label(&args, namespace)?,
            Verb::Taint(args) => self.taint(&args)?,
            Verb::Cordon(args) => self.cordon(&args.nodes)?,
            Verb::Uncordon(args) => self.uncordon(&args.nodes)?,
            Verb::Mode { mode } => self.mode(mode),
            Verb::Get(args) => get::get(&self.session.simulation.world(), &args, namespace)?,
            Verb::Describe(args) => describe::describe(&self.session.simulation.world(), &args, namespace)?,
            Verb::Rollout { command: RolloutCommand::Status(args) } => self.rollout_status(&args, namespace)?,
            Verb::Rollout { command: RolloutCommand::Restart(args) } => self.rollout_restart(&args, namespace)?,
            Verb::Advance { span } => self.advance(&span)?,
            Verb::Interrupt { node } => {
                let node = command_line::node_named(&node)?;
                let id = self.session.interrupt(node).map_err(|error| error.to_string())?;
                format!("EC2 announces that it takes {node} ({id}) back in two minutes\n")
            }
            Verb::Ec2 { command } => ec2::run(&mut self.session, &command)?,
            Verb::Explain { name } => {
                let (world, name) = (self.session.simulation.world(), name.join("/"));
                namespace.map_or_else(|| explain::explain(&world, &name), |namespace| explain::explain_in(&world, namespace, &name))?
            }
            Verb::Savings => self.savings(),
            Verb::Other(words) => return Err(command_line::refusal(&words)),
        };
        Ok(Some(text))
    }

    /// Switches shadow mode on or off, and says which it is.
    fn mode(&mut self, mode: Option<Mode>) -> String {
        if let Some(mode) = mode {
            self.session.set_mode(mode.into());
        }
        if self.session.settings().is_shadow() {
            return "shadow: Whittle decides and reports, and changes nothing; `mode active` ends that\n".to_owned();
        }
        "active: Whittle acts on what it decides\n".to_owned()
    }

    pub(super) fn currency(&self) -> Currency {
        Currency::of_region(self.session.simulation.world().region.name())
    }

    fn savings(&self) -> String {
        let world = self.session.simulation.world();
        // Include commands executed at this moment.
        let until = world.now().checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
        savings::of_decisions(world.store.decisions(&world.name()), until)
    }
}

fn refused(error: SessionError) -> String {
    error.to_string()
}
