//! Commands that look at a cluster that runs, on a real API server with the real kubectl. Without their binaries
//! (`eval "$(cargo xtask env)"`) the test says that it is skipped.

use super::console::Console;
use super::{err, out, tests};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const OBJECTS: &str = r#"
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
---
apiVersion: v1
kind: Node
metadata:
  name: ip-10-0-0-1.eu-west-1.compute.internal
  labels:
    kubernetes.io/arch: amd64
    kubernetes.io/os: linux
    node.kubernetes.io/instance-type: m5.large
    topology.kubernetes.io/region: eu-west-1
    topology.kubernetes.io/zone: eu-west-1a
    karpenter.sh/capacity-type: on-demand
spec: {providerID: "aws:///eu-west-1a/i-0123456789abcdef0"}
status:
  capacity: {cpu: "2", memory: 8Gi, pods: "29"}
  allocatable: {cpu: "2", memory: 8Gi, pods: "29"}
  conditions: [{type: Ready, status: "True", reason: KubeletReady, message: ""}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: team}
spec: {limits: [{type: Container, defaultRequest: {cpu: 2000m}}]}
"#;

fn pod(name: &str, cpu: &str, node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  nodeName: {node:?}\n  \
         containers: [{{name: c, image: app, resources: {{requests: {{cpu: {cpu:?}}}}}}}]\n---\n"
    )
}

/// An API server of its own, which ends with this value.
struct Server {
    binaries: PathBuf,
    folder: PathBuf,
}

impl Server {
    fn script(binaries: &Path, folder: &Path, verb: &str) -> Output {
        Command::new("bash")
            .arg(tests().join("control-plane/run.sh"))
            .arg(verb)
            .envs([("CP_BIN", binaries), ("CP_DIR", folder)])
            .envs([("CP_PARTS", ""), ("CP_USERS", "ann=nobody")])
            .output()
            .unwrap()
    }

    /// `None` where there are no binaries.
    fn start() -> Option<Self> {
        let binaries = PathBuf::from(std::env::var_os("WHITTLE_CONTROL_PLANE")?);
        let folder = std::env::temp_dir().join(format!("whittle-live-{}", std::process::id()));
        let server = Self { binaries, folder };
        let started = Self::script(&server.binaries, &server.folder, "start");
        assert!(started.status.success(), "{}", err(&started));
        Some(server)
    }

    fn kubeconfig(&self) -> String {
        self.folder.join("kubeconfig").display().to_string()
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        let program = self.binaries.join("kubectl");
        Command::new(program).args(["--kubeconfig", &self.kubeconfig()]).args(arguments).output().unwrap()
    }

    fn apply(&self, name: &str, text: &str) {
        let file = self.folder.join(name);
        std::fs::write(&file, text).unwrap();
        let applied = self.kubectl(&["apply", "--server-side", "-f", &file.display().to_string()]);
        assert!(applied.status.success(), "{}", err(&applied));
    }

    fn whittle(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whittle"));
        command.args(arguments).env("WHITTLE_KUBECTL", self.binaries.join("kubectl")).env("KUBECONFIG", self.kubeconfig());
        command.output().unwrap()
    }

    /// The same cluster with other words in the kubeconfig.
    fn otherwise(&self, name: &str, change: impl Fn(&str) -> String) -> String {
        let file = self.folder.join(name);
        std::fs::write(&file, change(&std::fs::read_to_string(self.kubeconfig()).unwrap())).unwrap();
        file.display().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        Self::script(&self.binaries, &self.folder, "stop");
    }
}

#[test]
fn a_cluster_that_runs_is_looked_at_with_kubectl_and_not_changed() {
    let Some(server) = Server::start() else {
        eprintln!("skipped: WHITTLE_CONTROL_PLANE names no control plane");
        return;
    };
    let crds = tests().join("../infra/crds").display().to_string();
    let applied = server.kubectl(&["apply", "--server-side", "-f", &crds]);
    assert!(applied.status.success(), "{}", err(&applied));
    let established = server.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]);
    assert!(established.status.success(), "{}", err(&established));
    server.apply("objects.yaml", OBJECTS);
    let node = "ip-10-0-0-1.eu-west-1.compute.internal";
    server.apply("pods.yaml", &format!("{}{}", pod("bound", "500m", node), pod("waits", "3", "")));
    let before = server.kubectl(&["get", "all,nodes,nodepools,ec2nodeclasses,nodeclaims", "-A", "-o", "json"]).stdout;

    planned(&server);
    shown(&server, node);
    served(&server, node);
    refused(&server);

    let after = server.kubectl(&["get", "all,nodes,nodepools,ec2nodeclasses,nodeclaims", "-A", "-o", "json"]).stdout;
    assert_eq!(String::from_utf8_lossy(&before), String::from_utf8_lossy(&after), "nothing was changed");
}

/// The pod that waits gets a machine; a file's pod of its name counts instead of it.
fn planned(server: &Server) {
    let plan = |more: &[&str]| {
        let output = server.whittle(&[&["plan", "--context", "c", "-o", "json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let live = plan(&[]);
    assert_eq!((&live["nodeClaims"][0]["pods"], &live["nodeClaims"][0]["requests"]["cpu"]), (&["default/waits"].into(), &"3".into()));
    assert_eq!(live["costs"]["now"]["nodes"], 1);
    let larger = server.folder.join("larger.yaml");
    std::fs::write(&larger, pod("waits", "20", "")).unwrap();
    let changed = plan(&["-f", &larger.display().to_string()]);
    assert_eq!((changed["totals"]["nodes"].as_u64(), &changed["nodeClaims"][0]["requests"]["cpu"]), (Some(1), &"20".into()));
    // A LimitRange of the cluster gives the pods of a file what they lack.
    let bare = server.folder.join("bare.yaml");
    let template = "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: app}]}}";
    let web = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: team}}\n\
         spec: {{selector: {{matchLabels: {{app: web}}}}, template: {template}}}\n"
    );
    std::fs::write(&bare, web).unwrap();
    let given = plan(&["-f", &bare.display().to_string()]);
    assert_eq!((given["totals"]["nodes"].as_u64(), &given["nodeClaims"][0]["requests"]["cpu"]), (Some(1), &"5".into()));
}

fn shown(server: &Server, node: &str) {
    let top = server.whittle(&["top", "--context"]);
    let text = out(&top);
    assert!(top.status.success() && text.contains(node) && text.contains("m5.large"), "{text}{}", err(&top));
    assert!(text.contains("1 pod waits"), "{text}");
    let why = server.whittle(&["explain", "waits", "--context"]);
    assert!(why.status.success() && out(&why).contains("nodepool default"), "{}{}", out(&why), err(&why));
    let page = server.whittle(&["consolidate", "--context", "-o", "html"]);
    assert!(page.status.success() && out(&page).contains(node), "{}{}", out(&page), err(&page));
}

/// The page of the cluster, and what it says of the pod that waits.
fn served(server: &Server, node: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whittle"));
    command.args(["console", "--context"]).env("WHITTLE_KUBECTL", server.binaries.join("kubectl")).env("KUBECONFIG", server.kubeconfig());
    let console = Console::started(&mut command, server.folder.join("console"));
    let state = console.state()["state"].clone();
    assert_eq!((&state["nodes"][0]["name"], &state["nodes"][0]["type"]), (&node.into(), &"m5.large".into()), "{state}");
    assert_eq!((&state["waiting"][0]["pod"], &state["pools"][0]["name"]), (&"default/waits".into(), &"default".into()), "{state}");
    assert!(state["version"].as_str().unwrap().starts_with("v1."), "{state}");
    let (status, why) = console.own("GET", "/explain?name=pod%2Fdefault%2Fwaits");
    assert!(status == 200 && why.contains("needs a new machine"), "{status} {why}");
}

/// Nothing is decided by whoever may not see everything, or sees nothing.
fn refused(server: &Server) {
    let token = |text: &str| text.replace("token: \"admin-", "token: \"ann-");
    let nobody = server.otherwise("nobody", token);
    let output = server.whittle(&["consolidate", "--kubeconfig", &nobody]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{}", err(&output));
    assert!(err(&output).contains("may not list") && err(&output).contains("kubectl create clusterrole"), "{}", err(&output));
    let away = server.otherwise("away", |text| text.replace("https://127.0.0.1:", "https://127.0.0.1:1/"));
    for (kubeconfig, context) in [(away.as_str(), "c"), (server.kubeconfig().as_str(), "other")] {
        let output = server.whittle(&["plan", "--kubeconfig", kubeconfig, "--context", context]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{}", err(&output));
        assert!(err(&output).starts_with("error: the cluster cannot be read: "), "{}", err(&output));
    }
}
