//! `whittle console`, as its users and as others see it. A script stands for kubectl, for clusters that no real one can be made to be.

use super::page::{browser, check_sound, document};
use super::{err, whittle};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What would be markup, if any text became markup.
const HOSTILE: &str = "<img src=x onerror=document.title='taken'>";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands").join(name)
}

fn node(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {
            "node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/region": "eu-west-1",
            "topology.kubernetes.io/zone": "eu-west-1a", "karpenter.sh/capacity-type": "on-demand", "karpenter.sh/nodepool": pool,
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "karpenter.sh/initialized": "true",
        }},
        "spec": {"providerID": format!("aws:///eu-west-1a/i-{name}")},
        "status": {
            "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "29"}, "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn pod(name: &str, node: &str) -> Value {
    let message = format!("0/1 nodes: {HOSTILE}");
    let waits = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"pod-template-hash": "5c9"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5c9", "uid": "u", "controller": true},
        ]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]},
        "status": if node.is_empty() { json!({"phase": "Pending", "conditions": waits}) } else { json!({"phase": "Running"}) },
    })
}

fn class_and_pool() -> [Value; 2] {
    [
        json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": {
            "role": "nodes", "amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
        }}),
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
        }}}}),
    ]
}

/// The lists of a cluster.
struct Lists {
    nodes: Vec<Value>,
    pods: Vec<Value>,
    events: Vec<Value>,
    /// In the table of the deployment.
    decisions: Vec<Value>,
}

impl Lists {
    fn write(&self, folder: &Path) {
        let list = |name: &str, kind: &str, items: &[Value]| {
            let text = json!({"kind": kind, "apiVersion": "v1", "items": items}).to_string();
            std::fs::write(folder.join(name), text).unwrap();
        };
        list("nodes.json", "List", &self.nodes);
        list("pods.json", "PodList", &self.pods);
        list("events.json", "List", &self.events);
        let stored = |(number, decision): (usize, &Value)| {
            let (number, decision) = (number.to_string(), decision.to_string());
            json!({"pk": {"S": "DECISION#shop#0"}, "sk": {"S": number}, "data": {"S": decision}})
        };
        let items: Vec<Value> = self.decisions.iter().enumerate().map(stored).collect();
        std::fs::write(folder.join("decisions.json"), json!({ "Items": items }).to_string()).unwrap();
    }
}

/// One node with two pods, a pod that waits, and what Whittle said about it.
fn lists() -> Lists {
    let event = json!({
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web-5c9-c"}, "lastTimestamp": "2026-01-02T00:00:00Z",
        "reason": "FailedScheduling", "message": format!("no instance type fits {HOSTILE}"),
    });
    Lists {
        nodes: class_and_pool().into_iter().chain([node("ip-10-0-0-1", "default")]).collect(),
        pods: vec![pod("web-5c9-a", "ip-10-0-0-1"), pod("web-5c9-b", "ip-10-0-0-1"), pod("web-5c9-c", "")],
        events: vec![event],
        decisions: Vec::new(),
    }
}

/// A console, which ends with the test.
pub(super) struct Console {
    process: Child,
    folder: PathBuf,
    at: SocketAddr,
    token: String,
}

impl Console {
    fn new(name: &str, lists: &Lists, more: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("whittle-console-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        lists.write(&folder);
        let mut command = Command::new(env!("CARGO_BIN_EXE_whittle"));
        command.args(["console", "--context", "shop"]).args(more).env("CLUSTER", &folder);
        command.env("WHITTLE_KUBECTL", script("kubectl.sh")).env("WHITTLE_AWS", script("aws.sh"));
        Self::started(&mut command, folder)
    }

    /// The console that a command is.
    pub(super) fn started(command: &mut Command, folder: PathBuf) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("The page of this cluster: http://").unwrap_or_else(|| panic!("{line:?}"));
        let (at, token) = address.split_once("/#").unwrap();
        Self { process, folder, at: at.parse().unwrap(), token: token.to_owned() }
    }

    /// The status, the head and the body of the answer to a request.
    fn send(&self, method: &str, path: &str, host: &str, headers: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.at).unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The same with all that a page of ours says.
    pub(super) fn own(&self, method: &str, path: &str) -> (u16, String) {
        self.send(method, path, &self.at.to_string(), &format!("X-Whittle-Token: {}\r\n", self.token))
    }

    pub(super) fn state(&self) -> Value {
        serde_json::from_str(&self.own("GET", "/state").1).unwrap()
    }

    fn mood(&self, mood: &str) {
        std::fs::write(self.folder.join("mood"), mood).unwrap();
    }

    fn asked(&self) -> Vec<String> {
        let asked = std::fs::read_to_string(self.folder.join("asked")).unwrap();
        asked.lines().map(str::to_owned).collect()
    }

    /// Asks until the answer is as it should be.
    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let state = self.state();
            if holds(&state) {
                return state;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not come: {state}");
        }
    }

    fn page(&self, browser: &Path, wishes: &str) -> (String, String) {
        document(browser, &self.folder, &format!("http://{}/#{}&{wishes}", self.at, self.token))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_cluster_is_shown_with_reasons() {
    let console = Console::new("shown", &lists(), &[]);
    let all = console.state();
    let state = &all["state"];
    assert_eq!((&state["cluster"], &state["region"], &state["version"]), (&json!("shop"), &json!("eu-west-1"), &json!("v1.33.4")));
    let node = &state["nodes"][0];
    assert_eq!((&node["name"], &node["type"], &node["state"]), (&json!("ip-10-0-0-1"), &json!("m5.large"), &json!("ready")));
    assert_eq!((node["pods"].as_array().unwrap().len(), &node["cpu"]), (2, &json!([1_000, 2_000])), "{node}");
    assert!(all["cost"].as_u64().unwrap() > 0 && all["cost"] == node["price"], "{all}");
    let waits = &state["waiting"][0];
    assert_eq!((&waits["pod"], &waits["reason"]), (&json!("default/web-5c9-c"), &json!(format!("0/1 nodes: {HOSTILE}"))));
    assert!(waits["answer"].as_str().unwrap().contains("no instance type fits"), "{waits}");
    assert!(all["told"].to_string().contains("pod/default/web-5c9-c: FailedScheduling: no instance type fits"), "{all}");
    let reason = |name: &str| {
        let (status, body) = console.own("GET", &format!("/explain?name={name}"));
        (status, body)
    };
    for (name, part) in [
        ("pod%2Fdefault%2Fweb-5c9-c", "default/web-5c9-c goes to the existing node ip-10-0-0-1"),
        ("ip-10-0-0-1", "ip-10-0-0-1"),
        ("deployment%2Fdefault%2Fweb", "2 pods on 1 node: ip-10-0-0-1"),
        ("nodepool%2Fdefault", "nodepool default"),
    ] {
        let (status, body) = reason(name);
        assert!(status == 200 && body.contains(part), "{name}: {status} {body}");
    }
    let (status, body) = reason("gone");
    assert!(status == 422 && body.contains("gone is not in the cluster any more"), "{status} {body}");
}

#[test]
fn decisions_of_a_deployment_are_told_with_their_reasons() {
    let decision = |second: u32, kind: &str, subject: &str, message: &str| {
        let at = format!("2026-01-01T00:00:{second:02}Z");
        json!({"at": at, "kind": kind, "subject": subject, "message": message})
    };
    let decisions = vec![
        decision(1, "disrupted", "node/ip-10-0-0-9", "Underutilized: delete"),
        decision(2, "terminated", "node/ip-10-0-0-9", "instance i-9 has terminated"),
        decision(3, "unschedulable", "pod/default/web-5c9-c", "no pool takes it"),
        decision(4, "unschedulable", "pod/default/web-5c9-c", "no pool takes it"),
    ];
    let console = Console::new("stack", &Lists { decisions, ..lists() }, &["--stack", "whittle"]);
    let all = console.state();
    let told: Vec<(&str, &str)> =
        all["told"].as_array().unwrap().iter().map(|line| (line[1].as_str().unwrap(), line[2].as_str().unwrap())).collect();
    let expected = [
        ("decision", "node/ip-10-0-0-9: Underutilized: delete"),
        ("decision", "node/ip-10-0-0-9: instance i-9 has terminated"),
        ("decision", "pod/default/web-5c9-c: no pool takes it"),
        ("cluster", "the cluster was looked at first: 1 node with 2 pods, and 1 waiting"),
    ];
    assert_eq!(told, expected, "what repeats is told once");
    assert_eq!(all["state"]["waiting"][0]["answer"], "no pool takes it");
    let (status, body) = console.own("GET", "/explain?name=ip-10-0-0-9");
    let why = "ip-10-0-0-9 went at 2026-01-01 00:00:02 UTC, because it was decided at 2026-01-01 00:00:01: Underutilized: delete";
    assert!(status == 200 && body.contains(why), "{status} {body}");
}

#[test]
fn nothing_can_be_done_to_the_cluster() {
    let console = Console::new("readonly", &lists(), &["--interval", "1"]);
    for path in ["/act", "/apply", "/scale", "/delete", "/command", "/interrupt", "/session.js", "/console", "/secret"] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(console.own(method, path).0, 404, "{method} {path}");
        }
    }
    for path in ["/", "/state", "/explain?name=ip-10-0-0-1", "/page.js", "/console.js"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            assert_eq!(console.own(method, path).0, 405, "{method} {path}");
        }
        assert_eq!(console.own("GET", path).0, 200, "{path}");
    }
    let (_, html) = console.own("GET", "/");
    for part in ["session.js", "speeds", "+10m", "Apply", "Stock", "manifest", "whittle&gt;", "EC2NodeClass", "You</button>"] {
        assert!(!html.contains(part), "{part}: {html}");
    }
    for script in ["/console.js", "/page.js", "/grid.js", "/chart.js", "/texts.js"] {
        let (_, text) = console.own("GET", script);
        assert!(!text.contains("/act") && !text.contains("POST"), "{script}");
    }
    let first = console.state()["asOf"].clone();
    console.until("another look", |state| state["asOf"] != first);
    let asked = console.asked();
    let reads = |line: &&String| ["get ", "config view ", "api-resources "].iter().any(|verb| line.starts_with(verb));
    assert!(asked.len() > 10 && asked.iter().filter(reads).count() == asked.len(), "{asked:?}");
}

#[test]
fn many_pages_are_one_look() {
    let console = Console::new("once", &lists(), &["--interval", "3600"]);
    for _ in 0..50 {
        assert_eq!(console.own("GET", "/state").0, 200);
    }
    let pods = console.asked().iter().filter(|line| line.contains("/api/v1/pods")).count();
    assert_eq!(pods, 1, "{:?}", console.asked());
}

#[test]
fn requests_of_others_are_refused() {
    let console = Console::new("others", &lists(), &[]);
    let (at, token) = (console.at.to_string(), format!("X-Whittle-Token: {}\r\n", console.token));
    for path in ["/state", "/explain?name=ip-10-0-0-1"] {
        assert_eq!(console.send("GET", path, &at, "").0, 403);
        assert_eq!(console.send("GET", path, &at, "X-Whittle-Token: 00000000000000000000000000000000\r\n").0, 403);
        assert_eq!(console.send("GET", path, &at, &format!("{token}Origin: http://rebound.example\r\n")).0, 403);
        assert_eq!(console.send("GET", path, &format!("rebound.example:{}", console.at.port()), &token).0, 421);
    }
    assert_eq!(console.send("GET", "/", "rebound.example", "").0, 421);
    for path in ["/explain", "/explain?name=", "/explain?name=%ff", "/explain?nom=a"] {
        assert!([400, 422].contains(&console.own("GET", path).0), "{path}");
    }
}

#[test]
fn what_was_seen_stays_while_the_cluster_cannot_be_read() {
    let console = Console::new("moods", &lists(), &["--interval", "1", "--timeout", "2"]);
    let first = console.state();
    for (mood, part) in [
        ("denies", "You must be logged in to the server"),
        ("garbage", "not JSON"),
        ("dies", "the cluster cannot be read"),
        ("hangs", "no answer within 2 s"),
    ] {
        console.mood(mood);
        let state = console.until(mood, |state| state["failure"].as_str().is_some_and(|failure| failure.contains(part)));
        assert!(state["failure"].as_str().unwrap().contains("kubectl"), "{state}");
        assert_eq!(state["state"]["nodes"], first["state"]["nodes"], "{mood}: what was seen is still there");
        let (status, body) = console.own("GET", "/explain?name=ip-10-0-0-1");
        assert!([409, 422].contains(&status) && !body.is_empty(), "{mood}: {status} {body}");
    }
    console.mood("");
    let mut more = lists();
    more.nodes.push(node("ip-10-0-0-2", "default"));
    more.write(&console.folder);
    // A look that began before may have read some of it still in the mood of then.
    let is_whole = |state: &Value| state["state"]["nodes"].as_array().unwrap().len() == 2 && state["failure"].is_null();
    let state = console.until("the cluster", is_whole);
    assert!(state["told"].to_string().contains("ip-10-0-0-2 (m5.large, on-demand, eu-west-1a): new, ready"), "{state}");
    assert!(state["steps"].as_array().unwrap().len() == 2 && state["asOf"] != first["asOf"], "{state}");
}

#[test]
fn without_a_cluster_the_error_is_that_of_top() {
    let folder = std::env::temp_dir().join(format!("whittle-console-none-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("mood"), "denies").unwrap();
    for program in [Path::new("/nonexistent/kubectl"), &script("kubectl.sh")] {
        let run = |command: &str| {
            let mut whittle = Command::new(env!("CARGO_BIN_EXE_whittle"));
            whittle.args([command, "--context", "shop"]).env("WHITTLE_KUBECTL", program).env("CLUSTER", &folder);
            whittle.output().unwrap()
        };
        let (console, top) = (run("console"), run("top"));
        assert_eq!((console.status.code(), console.stdout.len()), (Some(2), 0));
        assert_eq!(err(&console), err(&top));
    }
    let _ = std::fs::remove_dir_all(&folder);
    let remote = whittle(&["console", "--address", "0.0.0.0"], "");
    assert!(remote.status.code() == Some(2) && err(&remote).contains("--allow-remote"), "{}", err(&remote));
}

#[test]
fn a_browser_shows_it_and_runs_no_text() {
    let Some(browser) = browser() else { return };
    let mut hostile = lists();
    hostile.nodes.push(node(HOSTILE, HOSTILE));
    hostile.pods.push(pod(HOSTILE, HOSTILE));
    let console = Console::new("browser", &hostile, &[]);
    let nodes = console.page(&browser, "tab=nodes&select=1");
    check_sound(&nodes);
    assert!(nodes.0.contains("<td>ready</td>") && nodes.0.contains("shop · eu-west-1 · v1.33.4"), "{}", nodes.0);
    for tab in ["nodes", "waiting", "timeline", "workloads", "pools"] {
        let shown = console.page(&browser, &format!("tab={tab}"));
        check_sound(&shown);
        let (document, _) = &shown;
        assert!(!document.contains("<img src=\"x\"") && document.contains("<title>Whittle</title>"), "{tab}: {document}");
        for acts in ["Interrupt", "Delete", "Stock-out", "Apply", "stepper", "<form id=\"console\"", "id=\"speeds\""] {
            assert!(!document.contains(acts), "{tab} has {acts}: {document}");
        }
    }
    let waiting = console.page(&browser, "tab=waiting").0;
    assert!(waiting.contains("0/1 nodes: &lt;img src=x onerror=document.title='taken'&gt;"), "{waiting}");
    let none = Console::new("empty", &Lists { nodes: Vec::new(), pods: Vec::new(), events: Vec::new(), decisions: Vec::new() }, &[]);
    let shown = none.page(&browser, "tab=nodes");
    check_sound(&shown);
    assert!(shown.0.contains("There are no nodes."), "{}", shown.0);
}
