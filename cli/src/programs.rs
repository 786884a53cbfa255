//! The programs that call a live account and a live cluster for us: `aws` and `kubectl`. A user who can run them has set up credentials
//! already (profiles, single sign-on, exec plugins, proxies), so that this command needs none of its own, and no SDK (ADR 0051).

mod slots;

use crate::printing::on_one_line;
use crate::wait_notice::WaitNotice;
use serde_json::Value;
use slots::Slots;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A program, and the arguments that are the same for every call of it.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
    /// Its name for messages and for what is printed to be run by hand.
    name: &'static str,
    fixed: Vec<String>,
    /// How long it may run.
    limit: Option<Duration>,
    /// The most bytes that are read of what it prints.
    largest: u64,
    /// Whether nothing is said while it runs for long.
    silent: bool,
}

/// How long a program may run unless a command says otherwise: the lists of a large cluster come in less.
const LIMIT: Duration = Duration::from_secs(120);

/// The most that is read of one answer: the list of 100,000 pods has some hundred megabytes.
const LARGEST: u64 = 512 << 20;

/// The most that is read of all programs that run at the same time.
const LARGEST_TOGETHER: u64 = 1 << 30;

/// The most that is read of what a program says beside its answer.
const SAID_MAX: u64 = 16 << 20;

/// The most programs that run at the same time. A deployment of 50 clusters has hundreds of questions, and an `aws` takes a processor for a
/// second, and some 100 MB.
const AT_ONCE: usize = 16;

/// Every running program holds one of these slots.
static SLOTS: Slots = Slots::new(AT_ONCE);

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("the {name} command cannot be run ({error}): install it, or put it into PATH")]
    Missing { name: &'static str, error: io::Error },
    #[error(
        "{name} gave no answer within {} s: it may wait for a sign-in, or for a server that does not answer\n  (from: {command})",
        .limit.as_secs()
    )]
    Late { name: &'static str, command: String, limit: Duration },
    #[error(
        "{name} printed too much: no more than {} MiB are read of one answer, and {} MiB of all that are read at once\n  (from: {command})",
        .largest >> 20,
        LARGEST_TOGETHER >> 20
    )]
    TooMuch { name: &'static str, command: String, largest: u64 },
    #[error("{said}\n  (from: {command})")]
    Failed {
        command: String,
        /// What it printed on standard error, without blank lines at its ends; never empty.
        said: String,
    },
    #[error("the answer is not JSON ({error})\n  (from: {command})")]
    NotJson { command: String, error: serde_json::Error },
    /// It printed nothing, or JSON of another form than it was asked for.
    #[error("{what}\n  (from: {command})")]
    Unusable { command: String, what: &'static str },
}

impl ProgramError {
    /// Whether the program ran and its words contain `text`, such as AWS's name of an error.
    #[must_use]
    pub fn says(&self, text: &str) -> bool {
        matches!(self, Self::Failed { said, .. } if said.contains(text))
    }
}

/// What a program printed, whether it failed or not.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) text: Vec<u8>,
    /// On standard error, without blank lines at its ends.
    pub(crate) said: String,
    name: &'static str,
    command: String,
    /// With which exit code, if it failed.
    failed: Option<String>,
}

impl Words {
    /// Whether it ended with another exit code than 0.
    pub(crate) fn failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The error of an answer that is no JSON.
    pub(crate) fn into_not_json(self, error: serde_json::Error) -> ProgramError {
        ProgramError::NotJson { command: self.command, error }
    }

    /// The error of an answer that is nothing that could be used.
    pub(crate) fn into_unusable(self, what: &'static str) -> ProgramError {
        ProgramError::Unusable { command: self.command, what }
    }

    /// The error that its words are.
    pub(crate) fn into_failure(self) -> ProgramError {
        let name = self.name;
        let silent = || self.failed.unwrap_or_else(|| format!("{name} ended with exit code 0, and without an answer"));
        ProgramError::Failed { command: self.command, said: if self.said.is_empty() { silent() } else { self.said } }
    }
}

/// What a program said, without the log lines of kubectl's client library, if it said anything else.
fn without_log(words: &str) -> String {
    let is_log = |line: &&str| {
        let mut letters = line.chars();
        letters.next().is_some_and(|first| "IWEF".contains(first))
            && letters.by_ref().take(4).all(|digit| digit.is_ascii_digit())
            && line.contains(".go:")
    };
    let kept: Vec<&str> = words.lines().filter(|line| !is_log(line)).collect();
    let kept = kept.join("\n").trim().to_owned();
    if kept.is_empty() { words.trim().to_owned() } else { kept }
}

/// The message if `aws` does not know a command or an option. Its own message lists everything that it knows, in hundreds of lines.
const TOO_OLD: &str =
    "this aws does not know the command, or one of its options: install a newer AWS CLI (`aws --version` says which this one is)";

/// Whether the AWS CLI says that it does not know a command or an option, in the words of both its generations.
fn is_of_unknown(words: &str) -> bool {
    ["argument operation: Invalid choice", "argument command: Invalid choice", "Found invalid choice", "Unknown options: "]
        .iter()
        .any(|start| words.contains(start))
}

/// What is said beside AWS's words when it does not know the credentials, or not any more.
const SIGN_IN: &str = "the credentials of aws are not valid, or have expired: sign in again (aws sso login), or name another profile by \
                       --profile, until `aws sts get-caller-identity` answers";

/// Whether AWS refuses whoever asks, whatever is asked for.
fn is_of_credentials(words: &str) -> bool {
    ["(ExpiredToken", "(RequestExpired)", "(InvalidClientTokenId)", "(UnrecognizedClientException)"].iter().any(|code| words.contains(code))
}

impl Program {
    /// AWS's command. Empty profile and region are its own defaults; `WHITTLE_AWS` names another program.
    #[must_use]
    pub fn aws(region: Option<&str>, profile: Option<&str>) -> Self {
        Self::new("aws", "WHITTLE_AWS", [("--region", region), ("--profile", profile), ("--output", Some("json"))])
    }

    /// Kubernetes' command. Without context and file it works on the current context; `WHITTLE_KUBECTL` names another program.
    #[must_use]
    pub fn kubectl(context: Option<&str>, kubeconfig: Option<&str>) -> Self {
        Self::new("kubectl", "WHITTLE_KUBECTL", [("--context", context), ("--kubeconfig", kubeconfig), ("", None)])
    }

    fn new(name: &'static str, variable: &str, options: [(&str, Option<&str>); 3]) -> Self {
        let path = std::env::var_os(variable).filter(|path| !path.is_empty()).unwrap_or_else(|| name.into());
        let given = options.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value?.to_owned()]));
        Self { path, name, fixed: given.flatten().collect(), limit: Some(LIMIT), largest: LARGEST, silent: false }
    }

    /// The same with another file for the program.
    #[must_use]
    pub fn at(self, path: impl Into<OsString>) -> Self {
        Self { path: path.into(), ..self }
    }

    /// The same, ended if it runs for longer.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The same, without a limit: what it waits for takes as long as it takes.
    #[must_use]
    pub fn unlimited(self) -> Self {
        Self { limit: None, ..self }
    }

    /// The same; nothing is said on standard error while it runs.
    #[must_use]
    pub fn silent(self) -> Self {
        Self { silent: true, ..self }
    }

    /// Why it could not be run to its end.
    fn unended(&self, arguments: &[&str], error: io::Error) -> ProgramError {
        match self.limit {
            _ if error.kind() == io::ErrorKind::FileTooLarge => {
                ProgramError::TooMuch { name: self.name, command: self.shown(arguments), largest: self.largest }
            }
            Some(limit) if error.kind() == io::ErrorKind::TimedOut => {
                ProgramError::Late { name: self.name, command: self.shown(arguments), limit }
            }
            _ => ProgramError::Missing { name: self.name, error },
        }
    }

    /// The command line, quoted for a shell.
    #[must_use]
    pub fn shown(&self, arguments: &[&str]) -> String {
        let words = std::iter::once(self.name).chain(arguments.iter().copied()).chain(self.fixed.iter().map(String::as_str));
        on_one_line(&shlex::try_join(words.clone()).unwrap_or_else(|_| words.collect::<Vec<_>>().join(" ")))
    }

    /// The same for a person, who reads what it prints in whatever form.
    #[must_use]
    pub fn by_hand(&self, arguments: &[&str]) -> String {
        let fixed = self.fixed.chunks(2).filter(|option| option.first().is_none_or(|name| name != "--output"));
        Self { fixed: fixed.flatten().cloned().collect(), ..self.clone() }.shown(arguments)
    }

    /// What it prints.
    ///
    /// # Errors
    /// It cannot be run, or ends with another exit code than 0.
    pub fn text(&self, arguments: &[&str]) -> Result<Vec<u8>, ProgramError> {
        self.run(arguments, None)
    }

    /// What it prints, even if it fails: some of what was asked for may be there.
    ///
    /// # Errors
    /// It cannot be run.
    pub(crate) fn answer(&self, arguments: &[&str]) -> Result<Words, ProgramError> {
        let output = self.output(arguments, None).map_err(|error| self.unended(arguments, error))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let failed = (!output.status.success()).then(|| format!("{} ended with {}", self.name, output.status));
        Ok(Words { text: output.stdout, said, name: self.name, command: self.shown(arguments), failed })
    }

    /// What it prints, as JSON; null where it prints nothing.
    ///
    /// # Errors
    /// As `text`, or it printed something else.
    pub fn json(&self, arguments: &[&str]) -> Result<Value, ProgramError> {
        let text = self.text(arguments)?;
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&text).map_err(|error| ProgramError::NotJson { command: self.shown(arguments), error })
    }

    /// What it prints when `input` is its standard input.
    ///
    /// # Errors
    /// As `text`.
    pub fn feed(&self, arguments: &[&str], input: &str) -> Result<Vec<u8>, ProgramError> {
        self.run(arguments, Some(input))
    }

    fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<Vec<u8>, ProgramError> {
        let output = self.output(arguments, input).map_err(|error| self.unended(arguments, error))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let words = without_log(&String::from_utf8_lossy(&output.stderr));
        let words = if self.name == "aws" && is_of_unknown(&words) { TOO_OLD.to_owned() } else { words };
        let words = if self.name == "aws" && is_of_credentials(&words) { format!("{words}\n  ({SIGN_IN})") } else { words };
        let said = if words.is_empty() { format!("{} ended with {}", self.name, output.status) } else { words };
        Err(ProgramError::Failed { command: self.shown(arguments), said })
    }

    fn output(&self, arguments: &[&str], input: Option<&str>) -> io::Result<Output> {
        let _notice = if self.silent { WaitNotice::silent() } else { WaitNotice::with(format!("waiting for {}", self.name)) };
        // Its time begins when it runs.
        let _slot = SLOTS.take();
        let mut command = Command::new(&self.path);
        command.args(arguments).args(&self.fixed).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() }).spawn()?;
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input.map(str::to_owned)) {
            // Written beside reading, because either pipe may be full. A program that does not read its input says itself what is wrong.
            std::thread::spawn(move || pipe.write_all(input.as_bytes()));
        }
        output_within(child, self.limit, self.largest)
    }
}

/// How often a program is looked at that has closed its output and still runs.
const ENDING_PAUSE: Duration = Duration::from_millis(5);

/// What a program prints until it ends; after `limit`, or when it has printed more than `largest` bytes, it is ended.
fn output_within(mut child: Child, limit: Option<Duration>, largest: u64) -> io::Result<Output> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let (sender, printed) = mpsc::channel();
    read_aside(child.stdout.take(), largest, true, &sender);
    read_aside(child.stderr.take(), largest.min(SAID_MAX), false, &sender);
    drop(sender);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    // Both pipes end, or time does; what another process keeps open is not waited for.
    for _ in 0..2 {
        let next = match deadline {
            Some(deadline) => printed.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
            None => printed.recv().ok(),
        };
        match next {
            Some((true, Ok(bytes))) => stdout = bytes,
            Some((false, Ok(bytes))) => stderr = bytes,
            Some((_, Err(error))) => return ended(child, error),
            None => return ended(child, io::ErrorKind::TimedOut.into()),
        }
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Output { status, stdout, stderr });
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return ended(child, io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(ENDING_PAUSE);
    }
}

/// Ends a program that has run for too long, or printed too much.
fn ended(mut child: Child, why: io::Error) -> io::Result<Output> {
    child.kill()?;
    child.wait()?;
    Err(why)
}

/// Reads a pipe to its end, in a thread of its own; more than `largest` bytes are an error.
fn read_aside(
    pipe: Option<impl io::Read + Send + 'static>,
    largest: u64,
    is_output: bool,
    sender: &mpsc::Sender<(bool, io::Result<Vec<u8>>)>,
) {
    let Some(pipe) = pipe else { return };
    let sender = sender.clone();
    std::thread::spawn(move || {
        // Nobody waits for it any more if the time is over.
        let _ = sender.send((is_output, read_within(pipe, largest, &TOGETHER, LARGEST_TOGETHER)));
    });
}

/// How many bytes are held of pipes that are not at their end yet.
static TOGETHER: AtomicU64 = AtomicU64::new(0);

/// How much is read of a pipe at a time.
const CHUNK: usize = 1 << 16;

/// What a pipe has, unless that is more than `largest` bytes, or more than `most` together with what others hold.
fn read_within(mut pipe: impl io::Read, largest: u64, together: &AtomicU64, most: u64) -> io::Result<Vec<u8>> {
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    let mut held = 0;
    let read = loop {
        let read = match pipe.read(&mut chunk) {
            Ok(0) => break Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break Err(error),
        };
        bytes.extend_from_slice(&chunk[..read]);
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        held += read;
        let all = together.fetch_add(read, Ordering::Relaxed).saturating_add(read);
        if largest < held || most < all {
            break Err(io::ErrorKind::FileTooLarge.into());
        }
    };
    together.fetch_sub(held, Ordering::Relaxed);
    read.map(|()| bytes)
}

#[cfg(test)]
mod tests;
