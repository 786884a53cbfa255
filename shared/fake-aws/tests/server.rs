//! The program, as a process.
#![allow(clippy::unwrap_used, reason = "everything here is a test, its helpers too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_whittle-fake-aws");

struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(PROGRAM).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").expect("it prints its address").to_owned();
        Self { process, output, address }
    }

    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_listens_on_loopback_alone_and_ends_well_when_it_is_told_to() {
    let mut server = Server::start();
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
    let unsigned = server.ask("POST / HTTP/1.1", "Action=DescribeSubnets&Version=2016-11-15");
    assert!(unsigned.starts_with("HTTP/1.1 403") && unsigned.contains("not signed"), "{unsigned}");
    let signed = "POST / HTTP/1.1\r\nauthorization: AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0";
    let subnets = server.ask(signed, "Action=DescribeSubnets&Version=2016-11-15");
    assert!(subnets.starts_with("HTTP/1.1 200") && subnets.contains("<subnetSet>"), "{subnets}");
    let wrong = server.ask("POST /_control HTTP/1.1", r#"{"colour": 1}"#);
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("unknown field `colour`"), "{wrong}");
    assert!(server.ask("GET /_control/journal HTTP/1.1", "").contains("DescribeSubnets"));
    let ended = Command::new("kill").args(["-INT", &server.process.id().to_string()]).status().unwrap();
    assert!(ended.success());
    assert_eq!(server.process.wait().unwrap().code(), Some(0), "an interruption is no failure");
    let mut rest = String::new();
    server.output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "it prints its address and nothing else");
}

#[test]
fn its_clock_is_put_on_and_then_goes_on() {
    let server = Server::start();
    let time = |answer: &str| {
        let (_, state) = answer.split_once("\r\n\r\n").unwrap();
        let state: serde_json::Value = serde_json::from_str(state).unwrap();
        state["now"].as_str().unwrap().parse::<whittle_units::Timestamp>().unwrap()
    };
    let before = time(&server.ask("GET /_control HTTP/1.1", ""));
    let put_on = time(&server.ask("POST /_control HTTP/1.1", r#"{"advanceSeconds": 3600}"#));
    let after = time(&server.ask("GET /_control HTTP/1.1", ""));
    let hour = whittle_units::SignedDuration::from_hours(1);
    assert!(put_on.duration_since(before) >= hour && after >= put_on, "{before} {put_on} {after}");
}

#[test]
fn a_port_that_is_taken_and_arguments_that_are_wrong_have_codes_of_their_own() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = Command::new(PROGRAM).args(["--port", &port]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(&port) && said.contains("--port"), "{said}");
    assert_eq!(Command::new(PROGRAM).arg("--prot").output().unwrap().status.code(), Some(2));
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    let said = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.code() == Some(0) && said.contains("GET /_control/journal") && said.contains("Exit codes"), "{said}");
}
