//! MiniStack, an AWS emulator, as one process on a free loopback port.

use crate::tools;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest that its start may take: 0.3 s on an idle machine.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);
/// The number of free ports to try.
const STARTS_MAX: u32 = 3;
/// How many lines of its log a failure shows.
const LINES_OF_END: usize = 40;
/// The interval of readiness checks.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Whose calls it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Everybody's.
    Open,
    /// Of functions those that their roles allow.
    Checked,
}

/// MiniStack that knows who calls. The template refuses calls without TLS, which AWS's endpoints have and those on loopback have not:
/// this says that they had it, and tells the rig whose an access key is and what was decided.
const CHECKED: &str = include_str!("../../python/checked_emulator.py");

/// A running MiniStack; stopped with all its child processes when dropped.
///
/// State is kept per account, and a 12-digit access key is the account: tests that share a process are
/// isolated by using one key each.
pub struct Ministack {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Ministack {
    /// The region of all its resources.
    pub const REGION: &'static str = "us-west-2";

    /// Starts MiniStack; `None` if the test is to be skipped.
    ///
    /// # Panics
    ///
    /// If it does not respond, with the end of its log; or as [`tools::find`].
    #[must_use]
    pub fn start() -> Option<Self> {
        Some(Self::start_in(&tools::find(tools::MINISTACK)?))
    }

    /// Starts MiniStack from this Python environment.
    ///
    /// # Panics
    ///
    /// If it does not respond, with the end of its log.
    #[must_use]
    pub fn start_in(environment: &Path) -> Self {
        Self::start_as(environment, Access::Open)
    }

    /// Starts MiniStack so that functions are who they are: it verifies what they sign, and decides by the policies of their roles. A
    /// client with an account's number for its access key may do everything there.
    ///
    /// # Panics
    ///
    /// As [`Self::start_in`].
    #[must_use]
    pub fn start_checking(environment: &Path) -> Self {
        Self::start_as(environment, Access::Checked)
    }

    fn start_as(environment: &Path, access: Access) -> Self {
        // Another process may bind the free port first; then another port is tried.
        let started = (0..STARTS_MAX).find_map(|_| Self::spawn(environment, access).wait().ok());
        started.expect("MiniStack starts; its log is printed above")
    }

    fn spawn(environment: &Path, access: Access) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let unique = format!("whittle-ministack-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let port = free_port();
        let log = File::create(folder.join("log")).expect("the temporary folder can be written");
        let endpoint = format!("http://127.0.0.1:{port}");
        let application = match access {
            Access::Open => "ministack.app:app",
            Access::Checked => {
                std::fs::write(folder.join("checked_emulator.py"), CHECKED).expect("the temporary folder can be written");
                "checked_emulator:app"
            }
        };
        let process = Command::new(environment.join("bin/python"))
            .args(["-m", "hypercorn", "--bind", &format!("127.0.0.1:{port}"), application])
            .current_dir(&folder)
            // Functions inherit its environment, so it gets none of ours.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &folder)
            .env("TMPDIR", &folder)
            .env("GATEWAY_PORT", port.to_string())
            .env("MINISTACK_HOST", "127.0.0.1")
            .env("MINISTACK_REGION", Self::REGION)
            .env("IOT_MTLS_ENABLED", "0")
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AUTH", (access == Access::Checked).to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file can be shared"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("the Python environment is complete; delete it and run `cargo xtask env` if not");
        Self { process, port, folder }
    }

    /// The endpoint for SDKs, as in `AWS_ENDPOINT_URL`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process, the leader of the process group of all its children.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Its working folder, which it is started in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its output so far.
    #[must_use]
    pub fn log(&self) -> String {
        read_lossy(&self.folder.join("log"))
    }

    /// The last lines of its output, for a failure that it may explain.
    #[must_use]
    pub fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES_OF_END)..].join("\n")
    }

    /// Waits until it responds.
    fn wait(mut self) -> Result<Self, ()> {
        let start = Instant::now();
        loop {
            let ended = self.process.try_wait().expect("our own child can be asked");
            if ended.is_some() || start.elapsed() > START_MAX {
                println!("MiniStack did not start ({ended:?}):\n{}", self.log());
                return Err(());
            }
            if healthy(self.port) {
                return Ok(self);
            }
            // tidy: allow(sleep), because a process that starts sends no event
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

impl Drop for Ministack {
    fn drop(&mut self) {
        // Its functions run as processes of the same group.
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

fn healthy(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { return false };
    let request = b"GET /_ministack/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let mut answer = [0; 12];
    stream.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
        && stream.write_all(request).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer.ends_with(b"200")
}

pub(crate) fn read_lossy(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
