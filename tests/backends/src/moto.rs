//! moto, another project's model of AWS, as one process on a free loopback port.

use crate::ministack::{CHECK_EVERY, START_MAX, free_port, read_lossy};
use crate::tools;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A running moto server; stopped when dropped.
pub struct Moto {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Moto {
    /// Starts moto; `None` if the test is to be skipped.
    ///
    /// # Panics
    ///
    /// If it does not respond, with its log; or as [`tools::find`].
    #[must_use]
    pub fn start() -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let environment = tools::find(tools::MODELS)?;
        let unique = format!("whittle-moto-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let port = free_port();
        let log = File::create(folder.join("log")).expect("the temporary folder can be written");
        let process = Command::new(environment.join("bin/python"))
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .current_dir(&folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file can be shared"))
            .stderr(log)
            .spawn()
            .expect("the Python environment is complete; delete it and run `cargo xtask env` if not");
        let moto = Self { process, port, folder };
        moto.wait();
        Some(moto)
    }

    /// The endpoint for SDKs.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn wait(&self) {
        let (start, address) = (Instant::now(), SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)));
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < START_MAX, "moto did not start:\n{}", read_lossy(&self.folder.join("log")));
            // tidy: allow(sleep), because a process that starts sends no event
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
