use super::state::state_of;
use super::{PageArgs, greeting, serve};
use crate::local::prompt::{Prompt, hold};
use crate::local::session::Place;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";

fn prompt() -> Prompt {
    let mut prompt = Prompt::new(&Place::default());
    for text in [include_str!("../demo/pool.yaml"), include_str!("../demo/inflate.yaml")] {
        prompt.session.apply_text("demo", text).unwrap();
    }
    prompt
}

fn shown(prompt: &Prompt) -> Value {
    serde_json::to_value(state_of(&prompt.session.simulation.world())).unwrap()
}

/// Every state that a node is shown in while time passes.
fn states_during(prompt: &mut Prompt, seconds: u32) -> BTreeSet<String> {
    let mut states = BTreeSet::new();
    for _ in 0..seconds {
        prompt.session.advance(SignedDuration::from_secs(1));
        let nodes = shown(prompt)["nodes"].clone();
        let claims: BTreeSet<&str> = nodes.as_array().unwrap().iter().map(|node| node["claim"].as_str().unwrap()).collect();
        assert_eq!(claims.len(), nodes.as_array().unwrap().len(), "a machine and its Node are shown once: {nodes}");
        states.extend(nodes.as_array().unwrap().iter().map(|node| node["state"].as_str().unwrap().to_owned()));
    }
    states
}

fn set(states: &[&str]) -> BTreeSet<String> {
    states.iter().map(|state| (*state).to_owned()).collect()
}

#[test]
fn a_node_is_shown_from_its_plan_to_its_end() {
    let mut prompt = prompt();
    prompt.session.scale("inflate", 3).unwrap();
    assert_eq!(states_during(&mut prompt, 120), set(&["launching", "starting", "ready"]));
    let state = shown(&prompt);
    let node = &state["nodes"][0];
    assert_eq!(node["pods"].as_array().unwrap().len(), 3);
    assert!(node["pods"].as_array().unwrap().iter().all(|pod| pod[2] == "running"), "{node}");
    assert_eq!(node["cpu"][0], 3_000);
    assert_eq!(node["price"], prompt.session.simulation.world().region.cost().nanos());
    assert_eq!((&node["pool"], &node["capacity"]), (&json!("default"), &json!("spot")));
    let workload = &state["workloads"][0];
    assert_eq!((&workload["name"], &workload["wanted"], &workload["running"]), (&json!("inflate"), &json!(3), &json!(3)));
    prompt.session.scale("inflate", 0).unwrap();
    let ending = states_during(&mut prompt, 240);
    assert!(ending.is_superset(&set(&["ready", "draining", "terminating"])), "{ending:?}");
    assert_eq!(shown(&prompt)["nodes"], json!([]));
}

#[test]
fn waiting_pods_are_grouped_by_reason_and_quoted_as_they_are() {
    let mut prompt = prompt();
    // A node selector has label values alone.
    let room = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "example.com/room", "operator": "In", "values": [HOSTILE]}]}]}}});
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"affinity": room, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        })
    };
    for name in ["a", "b"] {
        prompt.session.apply_text("pods", &pod(name).to_string()).unwrap();
    }
    prompt.session.advance(SignedDuration::from_secs(30));
    let waiting = shown(&prompt)["waiting"].clone();
    assert_eq!(waiting.as_array().unwrap().len(), 2, "each bare pod is a workload of its own: {waiting}");
    assert_eq!((&waiting[0]["pod"], &waiting[0]["count"]), (&json!("default/a"), &json!(1)));
    assert!(waiting[0]["answer"].as_str().unwrap().contains(HOSTILE), "{waiting}");
    assert!(waiting[0]["answer"].as_str().unwrap().contains("example.com/room"), "{waiting}");
    prompt.session.scale("inflate", 200).unwrap();
    prompt.session.advance(SignedDuration::from_secs(5));
    let waiting = shown(&prompt)["waiting"].clone();
    let group = waiting.as_array().unwrap().iter().find(|group| group["count"] == 200);
    assert!(group.is_some(), "pods of one workload and one reason are one group: {waiting}");
}

/// A served session.
struct Served {
    prompt: Arc<Mutex<Prompt>>,
    at: SocketAddr,
    token: String,
}

impl Served {
    fn new() -> Self {
        let prompt = Arc::new(Mutex::new(prompt()));
        let args = PageArgs { web: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), ..PageArgs::default() };
        let address = serve(&args, &prompt).unwrap().unwrap();
        let (at, token) = address.strip_prefix("http://").unwrap().split_once("/#").unwrap();
        Self { at: at.parse().unwrap(), token: token.to_owned(), prompt }
    }

    /// The status, the headers and the body of the answer to a request as it goes over the wire.
    fn raw(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        let (at, token) = (self.at, &self.token);
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nX-Whittle-Token: {token}\r\nConnection: close\r\n\r\n"))
    }

    fn post(&self, headers: &str, body: &str) -> (u16, String, String) {
        let (at, length) = (self.at, body.len());
        self.raw(&format!("POST /act HTTP/1.1\r\nHost: {at}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"))
    }

    /// The answer to an action, text or error.
    fn act(&self, action: &Value) -> Result<String, String> {
        let (status, _, body) = self.post(&format!("X-Whittle-Token: {}\r\n", self.token), &action.to_string());
        let body: Value = serde_json::from_str(&body).unwrap();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        if status == 200 { Ok(text("text")) } else { Err(text("error")) }
    }

    fn explain(&self, name: &str) -> String {
        let body: Value = serde_json::from_str(&self.get(&format!("/explain?name=node%2F{name}")).2).unwrap();
        body["text"].as_str().unwrap().to_owned()
    }

    fn state(&self, query: &str) -> Value {
        serde_json::from_str(&self.get(&format!("/state{query}")).2).unwrap()
    }

    /// Waits until the clock of the page has reached what it was told.
    fn until_still(&self) -> Value {
        let begun = Instant::now();
        loop {
            let state = self.state("");
            if state["busy"] == false && state["until"].is_null() {
                return state;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "time passes for too long: {}", state["clock"]);
        }
    }
}

#[test]
fn the_page_is_served_with_a_policy_that_runs_nothing_else() {
    let served = Served::new();
    for (path, kind) in [("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css"), ("/icon.svg", "image/svg+xml")] {
        let (status, head, body) = served.raw(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.at));
        assert_eq!(status, 200, "{path}");
        assert!(head.contains(&format!("content-type: {kind}")) && !body.is_empty(), "{path}: {head}");
        for header in ["default-src 'none'", "frame-ancestors 'none'", "x-content-type-options: nosniff", "cache-control: no-store"] {
            assert!(head.contains(header), "{path} without {header}: {head}");
        }
        assert!(!body.contains(&served.token), "the token is in nobody's page");
    }
}

#[test]
fn requests_of_others_are_refused() {
    let served = Served::new();
    let (at, token) = (served.at, &served.token);
    let rebound =
        format!("GET /state HTTP/1.1\r\nHost: rebound.example:{}\r\nX-Whittle-Token: {token}\r\nConnection: close\r\n\r\n", at.port());
    assert_eq!(served.raw(&rebound).0, 421);
    let twice = format!("GET / HTTP/1.1\r\nHost: {at}\r\nHost: rebound.example\r\nConnection: close\r\n\r\n");
    assert_eq!(served.raw(&twice).0, 421);
    let stop = json!({"do": "speed", "speed": 60}).to_string();
    let (status, _, body) = served.post("", &stop);
    assert!(status == 403 && body.contains("the token of this session is missing or wrong"), "{status} {body}");
    assert_eq!(served.post("X-Whittle-Token: 00000000000000000000000000000000\r\n", &stop).0, 403);
    assert_eq!(served.post(&format!("X-Whittle-Token: {token}\r\nOrigin: http://127.0.0.1:1\r\n"), &stop).0, 403);
    assert_eq!(served.raw(&format!("GET /state HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")).0, 403);
    assert_eq!(served.state("")["speed"], 0, "nothing was done");
    assert_eq!(served.post(&format!("X-Whittle-Token: {token}\r\nOrigin: http://{at}\r\n"), &stop).0, 200);
}

#[test]
fn what_is_not_there_or_not_understood_says_so() {
    let served = Served::new();
    for path in ["/state/", "/../Cargo.toml", "/page.js/..", "/secret", "http://rebound.example/state"] {
        assert_eq!(served.get(path).0, 404, "{path}");
    }
    let (status, head, _) = served.get("/act");
    assert!(status == 405 && head.contains("allow: post"), "{head}");
    let delete = format!("DELETE / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.at);
    assert_eq!(served.raw(&delete).0, 405);
    let headers = format!("X-Whittle-Token: {}\r\n", served.token);
    for wrong in ["", "{", "[]", r#"{"do":"format"}"#, r#"{"do":"scale","deployment":"inflate"}"#, r#"{"do":"speed","speed":1,"now":1}"#] {
        let (status, _, body) = served.post(&headers, wrong);
        assert!(status == 400 && body.contains("the request is no action"), "{wrong}: {status} {body}");
    }
    let large = format!("POST /act HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: 5000000\r\nConnection: close\r\n\r\n", served.at);
    let mut stream = TcpStream::connect(served.at).unwrap();
    stream.write_all(large.as_bytes()).unwrap();
    let mut answer = [0_u8; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413", "before the body is sent");
}

#[test]
fn the_buttons_do_what_the_prompt_does() {
    let served = Served::new();
    assert_eq!(
        served.act(&json!({"do": "scale", "deployment": "default/inflate", "replicas": 4})).unwrap(),
        "deployment/default/inflate scaled to 4"
    );
    served.act(&json!({"do": "advance", "span": "3m"})).unwrap();
    let state = served.until_still();
    let node = state["state"]["nodes"][0].clone();
    assert_eq!(node["pods"].as_array().unwrap().len(), 4, "{state}");
    assert!(state["cost"].as_u64().unwrap() > 0 && state["spent"].as_u64().unwrap() > 0);
    let name = node["name"].as_str().unwrap();
    let explained = served.explain(name);
    assert_eq!(explained, hold(&served.prompt).answer(&format!("explain {name}")).unwrap(), "as at the prompt");
    assert!(explained.contains("of nodepool default"), "{explained}");
    assert!(served.act(&json!({"do": "command", "line": "get nodes"})).unwrap().contains(name));
    let stock = json!({"do": "stock", "instanceType": node["type"], "zone": "", "capacityType": "spot", "available": false});
    assert!(served.act(&stock).unwrap().contains("in all zones"));
    served.act(&json!({"do": "interrupt", "node": name})).unwrap();
    served.act(&json!({"do": "command", "line": "advance 5m"})).unwrap();
    let state = served.until_still();
    let after = &state["state"]["nodes"][0];
    assert_ne!(after["name"], node["name"]);
    assert_ne!(after["type"], node["type"], "EC2 has no more of them");
    assert_eq!(state["state"]["out_of_stock"], json!([[node["type"], "*", "spot"]]));
}

#[test]
fn refusals_are_those_of_the_prompt() {
    let served = Served::new();
    for (action, part) in [
        (json!({"do": "scale", "deployment": "default/none", "replicas": 1}), "default/none"),
        (json!({"do": "scale", "deployment": "inflate", "replicas": -1}), "write 0 or more"),
        (json!({"do": "advance", "span": "-5m"}), "time only goes forward"),
        (json!({"do": "speed", "speed": 7}), "speed 7 cannot be chosen"),
        (json!({"do": "interrupt", "node": HOSTILE}), "there is no node"),
        (json!({"do": "apply", "text": "kind: ["}), "the pasted manifest"),
        (json!({"do": "command", "line": "quit"}), "the session ends at its terminal"),
        (json!({"do": "command", "line": "logs x"}), "no containers run here"),
    ] {
        let error = served.act(&action).unwrap_err();
        assert!(error.contains(part), "{action}: {error}");
    }
    let body = "apply -f -\napiVersion: v1\nkind: Pod\nmetadata: {name: web-0}\nspec: {containers: [{name: c}]}\n";
    assert_eq!(served.act(&json!({"do": "command", "line": body})).unwrap(), "pod/web-0 created\n");
}

#[test]
fn a_page_that_has_everything_gets_nothing() {
    let served = Served::new();
    let first = served.state("");
    let number = |name: &str| first[name].as_u64().unwrap();
    let seen = |clock: &str| {
        let (version, lines, costs) = (number("version"), number("lines"), number("costs"));
        format!("/state?version={version}&lines={lines}&costs={costs}&clock={clock}")
    };
    assert_eq!(served.get(&seen(first["clock"].as_str().unwrap())).0, 204);
    let (status, _, body) = served.get(&seen("1.0.0"));
    assert!(status == 200 && !body.contains("\"state\""), "only the clock: {body}");
    served.act(&json!({"do": "scale", "deployment": "inflate", "replicas": 2})).unwrap();
    let changed = served.get(&seen(first["clock"].as_str().unwrap()));
    assert!(changed.0 == 200 && changed.2.contains("\"wanted\":2"), "{changed:?}");
}

#[test]
fn a_look_does_not_wait_for_a_long_command() {
    let served = Served::new();
    served.act(&json!({"do": "scale", "deployment": "inflate", "replicas": 2})).unwrap();
    let held = hold(&served.prompt);
    let state = served.state("");
    assert_eq!((&state["busy"], &state["version"]), (&json!(true), &json!(0)), "nothing was seen yet");
    drop(held);
    assert_eq!(served.state("")["busy"], false);
}

#[test]
fn a_command_of_the_prompt_is_seen_while_it_runs() {
    let served = Served::new();
    served.act(&json!({"do": "scale", "deployment": "inflate", "replicas": 2})).unwrap();
    let prompt = Arc::clone(&served.prompt);
    let command = std::thread::spawn(move || hold(&prompt).answer("advance 300d"));
    let mut seen = BTreeSet::new();
    let begun = Instant::now();
    while seen.len() < 3 && begun.elapsed() < Duration::from_secs(120) {
        let state = served.state("");
        if state["busy"] == true {
            seen.insert(state["now"].as_i64());
        }
    }
    assert!(2 < seen.len(), "time passes on the page: {seen:?}");
    assert_eq!(served.act(&json!({"do": "stop"})).unwrap(), "stopped");
    let text = command.join().unwrap().unwrap();
    assert!(text.contains("stopped after"), "{text}");
}

#[test]
fn addresses_that_others_reach_are_served_only_on_demand() {
    let prompt = Arc::new(Mutex::new(prompt()));
    let everywhere = PageArgs { web: Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), ..PageArgs::default() };
    let error = serve(&everywhere, &prompt).unwrap_err();
    assert!(error.contains("--web=0.0.0.0: other machines may reach this address") && error.contains("--web-allow-remote"), "{error}");
    let asked = PageArgs { web_allow_remote: true, ..everywhere };
    let address = serve(&asked, &prompt).unwrap().unwrap();
    assert!(address.starts_with("http://0.0.0.0:"));
    let text = greeting(&asked, &address);
    assert!(text.contains("--web=0.0.0.0: whoever reaches this machine") && text.contains("nothing is encrypted"), "{text}");
    let usual = PageArgs { web: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), ..PageArgs::default() };
    assert_eq!(greeting(&usual, "http://127.0.0.1:1/#a").lines().count(), 1);
    assert_eq!(serve(&PageArgs::default(), &prompt), Ok(None));
}

/// A connection that has sent this much of a request, and waits.
fn stalled(served: &Served, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(served.at).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn whoever_has_no_token_cannot_keep_the_page_from_others() {
    let served = Served::new();
    let at = served.at;
    for length in ["2000", "100000000000000", "4611686018427387904", "18446744073709551615", "-1", "x"] {
        let headers = format!("POST /act HTTP/1.1\r\nHost: {at}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        let (status, ..) = served.raw(&headers);
        assert!([400, 403, 431].contains(&status), "{length}: {status}");
    }
    let waits = format!("POST /act HTTP/1.1\r\nHost: {at}\r\nContent-Length: 2000\r\n\r\n");
    let held: Vec<TcpStream> = (0..20).flat_map(|_| [stalled(&served, &waits), stalled(&served, "GET / HT")]).collect();
    assert_eq!(served.get("/page.css").0, 200, "{} connections wait", held.len());
    let head = format!("GET / HTTP/1.1\r\nHost: {at}\r\nX-Long: {}\r\nConnection: close\r\n\r\n", "a".repeat(1 << 20));
    let mut stream = TcpStream::connect(at).unwrap();
    // It is closed, or told so, before all of it was sent.
    let mut told = Vec::new();
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.read_to_end(&mut told));
    assert!(sent.is_err() || told.is_empty() || told.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&told));
    served.state("");
}
