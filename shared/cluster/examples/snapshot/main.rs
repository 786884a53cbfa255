//! The cost of a snapshot, cold and warm: the adapter reads 5,000 nodes and 100,000 pods.
//!
//! `cargo run --release -p whittle-cluster --example snapshot [NODES PODS]` reads them from a server on loopback, a process of its own that
//! has its answers ready. `… --example snapshot real [NODES PODS]` reads them from a real API server: that of the variables which
//! `tests/control-plane/run.sh start` prints, into whose etcd it writes them first.
//!
//! Both print wall and processor time, the peak of the process's memory, and what is sent.

mod etcd;
mod objects;
mod server;
mod wire;

use base64::Engine;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use whittle_api::k8s::Pod;
use whittle_api::legacy::{ConvertOptions, Purpose};
use whittle_cluster::Clusters;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{Clock, CloudError, ClusterAccess, ClusterReader, Deadline, Scope};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Any valid certificate: the server on loopback speaks plain HTTP and never presents it.
const CERTIFICATE: &str = include_str!("../../fixtures/ca.pem");
/// Linux counts processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone)]
struct Loopback {
    endpoint: String,
    /// PEM.
    authority: String,
    token: String,
}

impl ClusterAccess for Loopback {
    async fn endpoint(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        Ok(ClusterInfo {
            name: cluster.clone(),
            endpoint: self.endpoint.clone(),
            certificate_authority: base64::engine::general_purpose::STANDARD.encode(&self.authority),
            ..ClusterInfo::default()
        })
    }

    async fn bearer_token(&self, _: &ClusterName) -> Result<String, CloudError> {
        Ok(self.token.clone())
    }
}

struct FiveMinutes(Timestamp);

impl Clock for FiveMinutes {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
    fn deadline(&self) -> Deadline {
        Deadline(self.0 + SignedDuration::from_mins(5))
    }
    fn unique(&self) -> String {
        String::new()
    }
}

/// This program once more, doing something else.
struct Other {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    input: ChildStdin,
}

impl Other {
    fn start(arguments: &[String]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        let mut child =
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program starts once more");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let input = child.stdin.take().expect("it is piped");
        Self { child, lines, input }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("it goes on").expect("it prints text")
    }

    fn ask(&mut self) -> String {
        writeln!(self.input).expect("it reads");
        self.line()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A server of nodes and pods.
enum Server {
    Canned { _process: Other },
    Real { wire: Other, etcd: String, api_server: String },
}

impl Server {
    async fn real(nodes: usize, pods: usize) -> (Self, Loopback) {
        let variable =
            |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: see tests/control-plane/run.sh start"));
        let begun = Instant::now();
        etcd::fill(&variable("CP_ETCD"), nodes, pods).await;
        println!("{nodes} nodes, {pods} pods: written in {:.0} s", begun.elapsed().as_secs_f64());
        let mut wire = Other::start(&["forward".to_owned(), variable("CP_SERVER")]);
        let authority = std::fs::read_to_string(variable("CP_CA")).expect("the certificate can be read");
        let access = Loopback { endpoint: wire.line(), authority, token: variable("CP_TOKEN") };
        let folder = std::path::PathBuf::from(variable("KUBECONFIG"));
        let api_server = std::fs::read_to_string(folder.with_file_name("pid").join("apiserver")).expect("the API server runs");
        (Self::Real { wire, etcd: variable("CP_ETCD"), api_server: api_server.trim().to_owned() }, access)
    }

    fn canned(nodes: usize, pods: usize) -> (Self, Loopback) {
        let mut server = Other::start(&["serve".to_owned(), nodes.to_string(), pods.to_string()]);
        let access = Loopback { endpoint: server.line(), authority: CERTIFICATE.to_owned(), token: "token".to_owned() };
        println!("{nodes} nodes, {pods} pods: {}", server.line());
        (Self::Canned { _process: server }, access)
    }

    /// Bytes on the wire and processor seconds of the API server until now, if they are counted.
    fn usage(&mut self) -> Option<(u64, f64)> {
        let Self::Real { wire, api_server, .. } = self else { return None };
        Some((wire.ask().parse().expect("a number"), processor_seconds(api_server)))
    }

    /// A server that was just filled collects its garbage during the first.
    const fn cold_looks(&self) -> usize {
        match self {
            Self::Canned { .. } => 1,
            Self::Real { .. } => 4,
        }
    }

    /// The canned server tells of changes whenever it is asked for them.
    async fn change(&self, pods: usize) {
        if let Self::Real { etcd, .. } = self {
            etcd::change(etcd, pods).await;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = arguments.first().filter(|first| first.parse::<usize>().is_err()).cloned();
    if mode.is_some() {
        arguments.remove(0);
    }
    if mode.as_deref() == Some("forward") {
        return wire::forward(arguments.first().expect("a server's address"));
    }
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (nodes, pods) = (number(0, 5_000), number(1, 100_000));
    let (mut server, access) = match mode.as_deref() {
        Some("serve") => return server::serve(nodes, pods),
        Some("real") => Server::real(nodes, pods).await,
        Some(other) => panic!("{other}: give `real`, or numbers of nodes and of pods"),
        None => Server::canned(nodes, pods),
    };
    let mib = |key| memory_kib(key) as f64 / 1024.0;
    let environment = || Clusters::new(access.clone(), ConvertOptions::new(Purpose::OnRead), Arc::new(FiveMinutes(Timestamp::now())));
    let mut clusters = environment();
    for _ in 0..server.cold_looks() {
        clusters = environment();
        let (cold, _) = look(&clusters, &mut server, (nodes, pods)).await;
        println!("cold: {cold}; peak {:.0} MiB, then {:.0} MiB", mib("VmHWM:"), mib("VmRSS:"));
    }
    server.change(pods).await;
    let (warm, changed) = look(&clusters, &mut server, (nodes, pods)).await;
    assert_eq!(changed, server::CHANGES.min(pods), "all changes were told");
    println!("warm, {} pods changed: {warm}; {:.0} MiB", server::CHANGES, mib("VmRSS:"));
}

/// Reads everything; returns what it took, and how many changes of pods are seen.
async fn look(clusters: &Clusters<Loopback>, server: &mut Server, (nodes, pods): (usize, usize)) -> (String, usize) {
    let (begun, before, usage) = (Instant::now(), processor_seconds("self"), server.usage());
    let objects = clusters.read(&ClusterName::new("bench"), Scope::All, None).await.expect("the server answers");
    let (wall, processor) = (begun.elapsed().as_secs_f64(), processor_seconds("self") - before);
    assert_eq!((objects.nodes.len(), objects.pods.len(), objects.unreadable.len()), (nodes, pods, 0));
    let mut took = format!("{processor:.2} s of one core, {wall:.2} s in all");
    if let (Some((bytes, theirs)), Some((bytes_now, theirs_now))) = (usage, server.usage()) {
        took += &format!(", {:.2} MB on the wire, {:.2} s of the API server", (bytes_now - bytes) as f64 / 1e6, theirs_now - theirs);
    }
    let is_changed = |version: &str, team: Option<&str>| {
        team == Some("orders")
            || version.parse().is_ok_and(|version| (objects::VERSION + 1..=objects::VERSION + server::CHANGES).contains(&version))
    };
    let team = |pod: &Pod| pod.metadata.labels.get("team").map(|team| team.to_string());
    let changed = objects.pods.iter().filter(|pod| is_changed(&pod.metadata.resource_version, team(pod).as_deref())).count();
    (took, changed)
}

/// User and system time of a process, or of this one by `self`.
fn processor_seconds(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    let after_name = stat.rsplit(')').next().expect("there is text");
    let ticks = |at: usize| after_name.split_whitespace().nth(at).and_then(|text| text.parse::<f64>().ok()).expect("a number");
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

fn memory_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("Linux says it");
    line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}
