//! An API server that has its lists ready, compressed.

use crate::objects;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// As the adapter asks for.
const PAGE: usize = 2_500;

/// Pods that change between two looks.
pub(crate) const CHANGES: usize = 100;

/// The pages of nodes and of pods, and how many objects are on them.
struct Pages {
    nodes: Vec<Vec<u8>>,
    pods: Vec<Vec<u8>>,
    counts: (usize, usize),
}

/// Serves the lists until the process is ended. Prints its address, then what it sends.
pub(crate) fn serve(nodes: usize, pods: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut sizes = (0, 0);
    let mut pages = |count: usize, kind: &str, object: fn(usize) -> Vec<u8>| {
        let starts = (0..count.max(1)).step_by(PAGE);
        let page = |start: usize| {
            let end = count.min(start + PAGE);
            let token = if end < count { end.to_string() } else { String::new() };
            let list = objects::list(kind, (start..end).map(object), &token);
            let compressed = gzipped(&list);
            sizes = (sizes.0 + list.len(), sizes.1 + compressed.len());
            compressed
        };
        starts.map(page).collect()
    };
    let pages = Arc::new(Pages {
        nodes: pages(nodes, "NodeList", objects::node),
        pods: pages(pods, "PodList", objects::pod),
        counts: (nodes, pods),
    });
    println!("http://{}", listener.local_addr().expect("it is bound"));
    println!("{:.1} MB of protobuf, {:.1} MB with gzip", sizes.0 as f64 / 1e6, sizes.1 as f64 / 1e6);
    for stream in listener.incoming() {
        let pages = Arc::clone(&pages);
        std::thread::spawn(move || answer_all(&pages, stream.expect("a connection")));
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    // As API servers do.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(4));
    encoder.write_all(bytes).expect("memory has room");
    encoder.finish().expect("memory has room")
}

fn answer_all(pages: &Pages, mut stream: TcpStream) {
    let mut requests = BufReader::new(stream.try_clone().expect("a socket can be shared")).lines();
    let mut line = String::new();
    while let Some(Ok(header)) = requests.next() {
        if header.starts_with("GET ") {
            line = header;
        } else if header.is_empty() {
            answer(pages, &line, &mut stream);
        }
    }
}

fn answer(pages: &Pages, request: &str, stream: &mut TcpStream) {
    let start =
        request.split("continue=").nth(1).map_or(0, |rest| rest.split([' ', '&']).next().and_then(|text| text.parse().ok()).unwrap_or(0));
    let of = |path: &str| request.starts_with(&format!("GET {path}?"));
    let count = if of("/api/v1/pods") {
        pages.counts.1
    } else if of("/api/v1/nodes") {
        pages.counts.0
    } else {
        0
    };
    if request.contains("watch=true") {
        let _ = watch(if of("/api/v1/pods") { CHANGES.min(count) } else { 0 }, stream);
        return;
    }
    if request.contains("limit=1 ") || request.contains("fieldSelector=") {
        let count = if request.contains("fieldSelector=") { 0 } else { count };
        let _ = summary(count, stream);
        return;
    }
    let page = match () {
        () if of("/api/v1/nodes") => pages.nodes.get(start / PAGE),
        () if of("/api/v1/pods") => pages.pods.get(start / PAGE),
        () => None,
    };
    let (headers, body) = match page {
        Some(page) => ("content-type: application/vnd.kubernetes.protobuf\r\ncontent-encoding: gzip", &page[..]),
        None => ("content-type: application/json", &b"{\"items\":[]}"[..]),
    };
    let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\ncontent-length: {}\r\n\r\n", body.len());
    // The other side ends when it has measured.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// How many objects there are, at the version after the changes.
fn summary(count: usize, stream: &mut TcpStream) -> std::io::Result<()> {
    let (items, token) = if count == 0 { ("", "") } else { ("{}", "next") };
    let version = objects::VERSION + CHANGES;
    let left = count.saturating_sub(1);
    let metadata = format!(r#"{{"resourceVersion":"{version}","continue":"{token}","remainingItemCount":{left}}}"#);
    let body = format!(r#"{{"metadata":{metadata},"items":[{items}]}}"#);
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Changes of the first pods; then the watch is silent.
fn watch(changes: usize, stream: &mut TcpStream) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
    for number in 0..changes {
        let line = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", objects::pod_in_json(number, objects::VERSION + 1 + number));
        write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
    }
    Ok(())
}
