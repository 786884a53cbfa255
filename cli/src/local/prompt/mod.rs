//! The interactive session: a prompt, or commands from standard input.

mod advance;
mod apply;
mod command_line;
mod completion;
mod delete;
mod describe;
mod explain;
mod get;
mod lines;
mod rollout;

use super::session::{Place, Session, SessionError};
use crate::money::Currency;
use crate::printing::{self, complain, say};
use crate::savings;
use command_line::{Line, RolloutCommand, Verb};
use jiff::{SignedDuration, Timestamp};
use lines::{Editor, Entered, Lines, Piped};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads commands until the end. A wrong command from a pipe ends the session with status 2; a line of it that is no text is an error
/// for itself.
pub fn main(place: &Place) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    let mut prompt = Prompt { stop: Arc::clone(&stop), ..Prompt::new(place) };
    if !std::io::stdin().is_terminal() {
        return run(&mut prompt, &mut Piped::new(std::io::stdin().lock()), false);
    }
    // While a command runs, Ctrl-C stops it and not the session; while a line is edited, the editor reads it as a key.
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGINT, stop) {
        complain!("warning: Ctrl-C ends the session: {error}");
    }
    match Editor::new() {
        Ok(mut editor) => {
            say!("A simulated cluster {} in {}; nothing here is real. `help` lists the commands.\n", place.cluster, place.region);
            run(&mut prompt, &mut editor, true)
        }
        Err(error) => {
            complain!("error: the terminal cannot be used: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(prompt: &mut Prompt, lines: &mut dyn Lines, interactive: bool) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    loop {
        lines.offer(&|| completion::Names::of(&prompt.session.simulation.world()));
        let line = match lines.next(true) {
            Entered::Line(line) => line,
            Entered::Dropped => continue,
            Entered::Unreadable(error) => {
                printing::errors(&error);
                status = ExitCode::from(2);
                continue;
            }
            Entered::End => return status,
        };
        prompt.stop.store(false, Ordering::Relaxed);
        match prompt.command(&line, lines) {
            Ok(Some(text)) => say!("{}", prompt.currency().shown(text)),
            Ok(None) => return status,
            Err(error) => {
                printing::errors(&error);
                if !interactive {
                    return ExitCode::from(2);
                }
            }
        }
    }
}

/// A session, and how much of its timeline was printed.
pub struct Prompt {
    session: Session,
    printed_lines: usize,
    /// Set to stop the running command.
    stop: Arc<AtomicBool>,
}

impl Prompt {
    /// A session for commands that come from elsewhere.
    pub fn new(place: &Place) -> Self {
        Self { session: Session::new(place), printed_lines: 0, stop: Arc::new(AtomicBool::new(false)) }
    }

    /// Runs one command, which may take further lines. `None` ends the session.
    fn command(&mut self, line: &str, lines: &mut dyn Lines) -> Result<Option<String>, String> {
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
            Verb::Get(args) => get::get(&self.session.simulation.world(), &args, namespace)?,
            Verb::Describe(args) => describe::describe(&self.session.simulation.world(), &args, namespace)?,
            Verb::Rollout { command: RolloutCommand::Status(args) } => self.rollout_status(&args, namespace)?,
            Verb::Rollout { command: RolloutCommand::Restart(args) } => self.rollout_restart(&args, namespace)?,
            Verb::Advance { span } => self.advance(&span)?,
            Verb::Interrupt { node } => {
                let node = node.strip_prefix("node/").unwrap_or(&node);
                let id = self.session.interrupt(node).map_err(|error| error.to_string())?;
                format!("EC2 announces that it takes {node} ({id}) back in two minutes\n")
            }
            Verb::Explain { name } => explain::explain(&self.session.simulation.world(), &name.join("/"))?,
            Verb::Savings => self.savings(),
            Verb::Other(words) => return Err(command_line::refusal(&words)),
        };
        Ok(Some(text))
    }

    fn currency(&self) -> Currency {
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
