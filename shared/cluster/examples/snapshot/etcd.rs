//! Objects of a real API server, written into its etcd: 100,000 pods take seconds there, and minutes through the server.

use crate::{objects, server};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Operations of one transaction; etcd takes 128, and a request of 1.5 MiB.
const WRITES: usize = 64;

/// Writes of keys in the etcd at this address, as in `http://127.0.0.1:2379`.
struct Etcd {
    authority: String,
    stream: BufReader<TcpStream>,
}

impl Etcd {
    fn new(address: &str) -> Self {
        let authority = address.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let stream = BufReader::new(TcpStream::connect(&authority).expect("etcd listens"));
        Self { authority, stream }
    }

    /// Writes these objects in one transaction.
    fn put(&mut self, objects: &[(String, Vec<u8>)]) {
        let put = |(key, value): &(String, Vec<u8>)| json!({"requestPut": {"key": STANDARD.encode(key), "value": STANDARD.encode(value)}});
        let body = json!({"success": objects.iter().map(put).collect::<Vec<Value>>()}).to_string();
        let head = format!("POST /v3/kv/txn HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n", self.authority, body.len());
        self.stream
            .get_mut()
            .write_all(head.as_bytes())
            .and_then(|()| self.stream.get_mut().write_all(body.as_bytes()))
            .expect("etcd reads");
        let (mut line, mut length, mut status) = (String::new(), 0, String::new());
        loop {
            line.clear();
            assert_ne!(self.stream.read_line(&mut line).expect("etcd answers"), 0, "etcd has closed the connection");
            match line.trim().to_ascii_lowercase() {
                end if end.is_empty() => break,
                first if status.is_empty() => status = first,
                header => {
                    if let Some(text) = header.strip_prefix("content-length:") {
                        length = text.trim().parse().expect("a number");
                    }
                }
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).expect("etcd answers");
        assert!(status.contains(" 200 "), "{status}: {}", String::from_utf8_lossy(&answer));
    }

    fn put_all(&mut self, objects: impl Iterator<Item = (String, Vec<u8>)>) {
        let mut waiting = Vec::new();
        for object in objects {
            waiting.push(object);
            if waiting.len() == WRITES {
                self.put(&waiting);
                waiting.clear();
            }
        }
        if !waiting.is_empty() {
            self.put(&waiting);
        }
    }
}

fn pod(number: usize, team: &str) -> (String, Vec<u8>) {
    let (namespace, name) = objects::pod_name(number);
    (format!("/registry/pods/{namespace}/{name}"), objects::stored("Pod", &objects::pod_with(number, team)))
}

/// Writes the nodes and the pods.
pub(crate) fn fill(address: &str, nodes: usize, pods: usize) {
    let mut etcd = Etcd::new(address);
    let node = |number| (format!("/registry/minions/{}", objects::node_name(number)), objects::stored("Node", &objects::node(number)));
    etcd.put_all((0..nodes).map(node));
    etcd.put_all((0..pods).map(|number| pod(number, "payments")));
}

/// Changes a label of the first pods, as many as the server of this example changes.
pub(crate) fn change(address: &str, pods: usize) {
    Etcd::new(address).put_all((0..server::CHANGES.min(pods)).map(|number| pod(number, "orders")));
}
