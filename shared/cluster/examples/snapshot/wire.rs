//! A wire that counts: forwards connections to a server, in a process of its own.

use std::io::{BufRead, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Forwards to the server until the process is ended. Prints its address, and for each line that it reads the bytes of both directions
/// until then, with those of TLS.
pub(crate) fn forward(server: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    println!("https://{}", listener.local_addr().expect("it is bound"));
    let (bytes, server) = (Arc::new(AtomicU64::new(0)), server.trim_start_matches("https://").to_owned());
    let counted = Arc::clone(&bytes);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, there) = (client.expect("a connection"), TcpStream::connect(&server).expect("the server listens"));
            let copies = [(&client, &there), (&there, &client)].map(|(from, to)| (shared(from), shared(to)));
            for (from, to) in copies {
                let bytes = Arc::clone(&counted);
                std::thread::spawn(move || copy(from, to, &bytes));
            }
        }
    });
    for _ in std::io::stdin().lock().lines() {
        println!("{}", bytes.load(Ordering::Relaxed));
    }
}

fn shared(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a socket can be shared")
}

fn copy(mut from: TcpStream, mut to: TcpStream, bytes: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        bytes.fetch_add(length as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Write);
}
