//! How long a function needs from the start of its process until it asks for its first event, as Lambda's initialization does.

use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Starts of each function, of which the middle one counts.
const STARTS: usize = 7;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Settings of a deployment. No call is made before the first event but for the relay's secret, which signed calls do without.
const SETTINGS: &[(&str, &str)] = &[
    ("AWS_ACCESS_KEY_ID", "none"),
    ("AWS_SECRET_ACCESS_KEY", "none"),
    ("AWS_REGION", "us-east-1"),
    ("AWS_LAMBDA_FUNCTION_NAME", "function"),
    ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
    ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
    ("AWS_LAMBDA_LOG_GROUP_NAME", "group"),
    ("AWS_LAMBDA_LOG_STREAM_NAME", "stream"),
    ("WHITTLE_CLUSTERS", "shop"),
    ("WHITTLE_TABLE", "table"),
    ("WHITTLE_QUEUE_PLAN", "http://127.0.0.1:9/plan.fifo"),
    ("WHITTLE_QUEUE_CONSOLIDATE", "http://127.0.0.1:9/consolidate.fifo"),
    ("WHITTLE_QUEUE_LAUNCH", "http://127.0.0.1:9/launch"),
    ("WHITTLE_QUEUE_TERMINATE", "http://127.0.0.1:9/terminate"),
    ("WHITTLE_QUEUE_NODES", "http://127.0.0.1:9/nodes"),
    ("WHITTLE_QUEUE_REFRESH", "http://127.0.0.1:9/refresh"),
    ("WHITTLE_QUEUE_SWEEP", "http://127.0.0.1:9/sweep"),
    ("WHITTLE_NODE_ROLES", "KarpenterNodeRole-*"),
    ("WHITTLE_RELAY_AUTH", "AWS_IAM"),
    ("WHITTLE_RELAY_SECRET", "/whittle/relay-secret"),
];

/// What one function needed.
struct Started {
    /// The middle one of several starts.
    time: Duration,
    /// Resident memory when it asked for its first event.
    resident_kib: u64,
}

/// Starts each function and prints what it needed; how long an emulator needs says nothing.
pub(crate) fn table(functions: &[(&str, PathBuf)], architecture: &str, emulator: Option<(&Path, &Path)>) -> Result<()> {
    println!("\nfunction     arch     until its first request   resident");
    for (name, path) in functions {
        let started = measure(path, emulator)?;
        let time = format!("{:.1} ms", started.time.as_secs_f64() * 1000.0);
        let memory = format!("{} MiB", started.resident_kib.div_ceil(1024));
        let (time, memory) = if emulator.is_some() { ("asks, emulated".to_owned(), "-".to_owned()) } else { (time, memory) };
        println!("{name:<12} {architecture:<8} {time:>23} {memory:>10}");
    }
    Ok(())
}

/// Starts a program several times. With `emulator`, that program runs it, with its arguments; then once is enough.
fn measure(program: &Path, emulator: Option<(&Path, &Path)>) -> Result<Started> {
    let count = if emulator.is_some() { 1 } else { STARTS };
    let mut starts = (0..count).map(|_| start(program, emulator)).collect::<Result<Vec<_>>>()?;
    starts.sort_by_key(|start| start.time);
    starts.into_iter().nth(count / 2).ok_or_else(|| anyhow!("nothing was started"))
}

/// Starts a program beside a Runtime API that answers nothing, and ends it at its first request for an event.
fn start(program: &Path, emulator: Option<(&Path, &Path)>) -> Result<Started> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port on loopback is free")?;
    let address = listener.local_addr()?.to_string();
    let mut command = match emulator {
        None => Command::new(program),
        Some((emulator, libraries)) => {
            let mut command = Command::new(emulator);
            command.arg("-L").arg(libraries).arg(program);
            command
        }
    };
    command.env_clear().envs(SETTINGS.iter().copied()).env("AWS_LAMBDA_RUNTIME_API", &address);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let asked = listen(listener);
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("{} could not be started", program.display()))?;
    let answer = wait(&asked, &mut child, begin).with_context(|| format!("{} did not ask for an event", program.display()));
    // While its connection is open it waits; without one it may end, and a process that has ended has no memory.
    let resident_kib = resident_kib(child.id());
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
    let (at, _connection) = answer?;
    Ok(Started { time: at.duration_since(begin), resident_kib: resident_kib? })
}

/// What a function said first: when it asked for an event, or that it could not start.
type Said = Result<(Instant, TcpStream), String>;

/// Accepts connections until a function has said something.
fn listen(listener: TcpListener) -> Receiver<Said> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let Some(said) = hear(connection) else { continue };
            // Nobody listens any more after a time-out.
            let _ = sender.send(said);
            return;
        }
    });
    receiver
}

/// Reads one request.
fn hear(connection: TcpStream) -> Option<Said> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let now = Instant::now();
    if line.starts_with("GET ") && line.contains("/runtime/invocation/next ") {
        return Some(Ok((now, reader.into_inner())));
    }
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = String::new();
    reader.by_ref().take(length).read_to_string(&mut body).ok()?;
    reader.into_inner().write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").ok()?;
    Some(Err(format!("it posted {} {body}", line.trim())))
}

/// When the function asked for an event, and the connection on which it waits for one.
fn wait(asked: &Receiver<Said>, child: &mut Child, begin: Instant) -> Result<(Instant, TcpStream)> {
    loop {
        match asked.recv_timeout(Duration::from_millis(50)) {
            Ok(Ok(asked)) => return Ok(asked),
            Ok(Err(said)) => bail!("{said}"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("its requests could not be read"),
        }
        if let Some(status) = child.try_wait()? {
            let mut said = String::new();
            if let Some(stderr) = &mut child.stderr {
                stderr.read_to_string(&mut said)?;
            }
            bail!("it ended: {status}\n{}", said.trim_end());
        }
        if TIMEOUT < begin.elapsed() {
            bail!("{} seconds are over", TIMEOUT.as_secs());
        }
    }
}

/// The resident memory of a process.
fn resident_kib(id: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("/proc has no such process")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).context("the process has ended and has no memory")?;
    number.parse().with_context(|| format!("`{number}` is no number of kilobytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program that says something to the Runtime API.
    fn program(name: &str, script: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("whittle-start-{name}-{}", std::process::id()));
        std::fs::write(&path, format!("#!/bin/bash\n{script}\n")).expect("it can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        path
    }

    /// Opens a connection and writes a request.
    fn say(request: &str) -> String {
        format!("exec 3<>/dev/tcp/${{AWS_LAMBDA_RUNTIME_API/://}}; printf '{request}' >&3; read -r -t 20 <&3")
    }

    #[test]
    fn the_first_request_for_an_event_ends_the_start() {
        let asks = program("asks", &say("GET /2018-06-01/runtime/invocation/next HTTP/1.1\\r\\n\\r\\n"));
        let started = measure(&asks, None).expect("it asks");
        assert!(started.time < TIMEOUT && 0 < started.resident_kib);
        std::fs::remove_file(&asks).expect("it is ours");
    }

    #[test]
    fn a_function_that_does_not_start_is_quoted() {
        let request = "POST /2018-06-01/runtime/init/error HTTP/1.1\\r\\nContent-Length: 9\\r\\n\\r\\nno table!";
        let (posts, ends) = (program("posts", &say(request)), program("ends", "echo WHITTLE_TABLE is not set >&2; exit 3"));
        for (path, expected) in [(&posts, "no table!"), (&ends, "WHITTLE_TABLE is not set")] {
            let error = format!("{:#}", measure(path, None).err().expect("it does not start"));
            assert!(error.contains(expected) && error.contains("did not ask for an event"), "{error}");
            std::fs::remove_file(path).expect("it is ours");
        }
        let error = measure(Path::new("/nowhere/bootstrap"), None).err().expect("there is none");
        assert!(error.to_string().contains("could not be started"), "{error}");
    }
}
