//! The rig as somebody outside sees and changes it.

use crate::deploy::{Deployment, STACK};
use crate::emulator::Emulator;
use crate::roles;
use crate::supervisor::client_of;
use anyhow::{Context, Result, bail, ensure};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A policy that was taken from its role.
pub(crate) struct Policy {
    role: String,
    name: String,
    document: String,
}

impl Policy {
    pub(crate) async fn give_back(&self, rig: &Outside) -> Result<()> {
        let put = [
            ("Action", "PutRolePolicy"),
            ("Version", "2010-05-08"),
            ("RoleName", &self.role),
            ("PolicyName", &self.name),
            ("PolicyDocument", &self.document),
        ];
        rig.emulator().query("iam", &put).await.map(drop)
    }
}

pub(crate) struct Outside {
    client: Client,
    folder: PathBuf,
    state: Value,
}

impl Outside {
    pub(crate) async fn of(folder: &Path) -> Result<Self> {
        let file = folder.join("state.json");
        let text = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read: is the rig up?", file.display()))?;
        let state: Value = serde_json::from_str(&text)?;
        let kubeconfig = state["kubeconfig"].as_str().context("state.json names no kubeconfig")?;
        Ok(Self { client: client_of(Path::new(kubeconfig)).await?, folder: folder.to_owned(), state })
    }

    pub(crate) fn cluster(&self) -> &str {
        self.state["cluster"].as_str().unwrap_or_default()
    }

    pub(crate) fn ministack_process(&self) -> u32 {
        self.state["ministackProcess"].as_u64().and_then(|process| u32::try_from(process).ok()).unwrap_or_default()
    }

    /// Takes the policy of a role of the stack away.
    pub(crate) async fn take_policy(&self, role: &str, policy: &str) -> Result<Policy> {
        let emulator = self.emulator();
        let roles = emulator.resources(STACK).await?;
        let role = roles.get(role).with_context(|| format!("the stack has no {role}"))?.clone();
        let document = roles::policies(&emulator, &role).await?.remove(policy);
        let document = document.with_context(|| format!("{role} has no policy {policy}"))?.to_string();
        let taken = [("Action", "DeleteRolePolicy"), ("Version", "2010-05-08"), ("RoleName", &role), ("PolicyName", policy)];
        emulator.query("iam", &taken).await?;
        Ok(Policy { role, name: policy.to_owned(), document })
    }

    pub(crate) fn emulator(&self) -> Emulator {
        Emulator::new(self.state["ministack"].as_str().unwrap_or_default().to_owned())
    }

    /// What a new deployment into this rig needs to know.
    pub(crate) fn deployment(&self, sam: &Path) -> Deployment {
        let text = |field: &str| self.state[field].as_str().unwrap_or_default().to_owned();
        Deployment {
            sam: sam.to_owned(),
            folder: self.folder.clone(),
            cluster: text("cluster"),
            is_watched: false,
            parameters: Vec::new(),
            endpoint: text("ministack"),
            aws: text("fakeAws"),
        }
    }

    /// The rig's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    #[expect(clippy::unused_self, reason = "what is said is said of this rig")]
    pub(crate) fn say(&self, what: &str, took: Duration) {
        println!("{:>7.2} s  {what}", took.as_secs_f64());
    }

    /// Waits for a condition, and says how long that took.
    pub(crate) async fn until(&self, what: &str, most: Duration, condition: impl AsyncFn(&Self) -> Result<bool>) -> Result<Duration> {
        self.until_looking_every(LOOK_EVERY, what, most, condition).await
    }

    /// The same for what does not last.
    pub(crate) async fn until_looking_every(
        &self,
        pause: Duration,
        what: &str,
        most: Duration,
        condition: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let mut interval = tokio::time::interval(pause);
        let mut problem = None;
        while begun.elapsed() < most {
            interval.tick().await;
            match condition(self).await {
                Ok(true) => return Ok(begun.elapsed()),
                Ok(false) => problem = None,
                Err(error) => problem = Some(error),
            }
        }
        let seen = format!(
            "machines {:?}, nodes {:?}, claims {:?}, bound {:?}",
            self.running().await?,
            self.nodes().await?.keys().collect::<Vec<_>>(),
            self.claims().await?.keys().collect::<Vec<_>>(),
            self.bound().await?
        );
        bail!("not within {} s: {what}; there are {seen}{}", most.as_secs(), problem.map_or(String::new(), |error| format!("; {error:#}")))
    }

    async fn call(&self, method: Method, path: &str, body: &Value, content: &str) -> Result<Value> {
        let request = Request::builder().method(method).uri(path).header("content-type", content).body(body.to_string().into_bytes())?;
        Ok(self.client.request::<Value>(request).await?)
    }

    async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list: Value = self.client.request(Request::get(path).body(Vec::new())?).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Applies objects of Whittle's kinds.
    pub(crate) async fn apply(&self, objects: &str) -> Result<()> {
        for object in serde_json::from_str::<Vec<Value>>(objects)? {
            let (version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
            let plural = if kind.ends_with('s') { format!("{}es", kind.to_lowercase()) } else { format!("{}s", kind.to_lowercase()) };
            let path = format!(
                "/apis/{version}/{plural}/{}?fieldManager=walk&force=true",
                object["metadata"]["name"].as_str().unwrap_or_default()
            );
            self.call(Method::PATCH, &path, &object, "application/apply-patch+yaml").await.with_context(|| format!("{kind} is refused"))?;
        }
        Ok(())
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        self.call(Method::DELETE, path, &json!({}), "application/json").await.map(drop)
    }

    /// A ReplicaSet of this size.
    pub(crate) async fn scale(&self, name: &str, replicas: usize, affinity: &Value) -> Result<()> {
        let path = format!("/apis/apps/v1/namespaces/default/replicasets/{name}");
        if replicas == 0 {
            // Whatever its pods are.
            let none = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"replicas": 0}});
            return self.call(Method::PATCH, &path, &none, "application/merge-patch+json").await.map(drop);
        }
        let requests = json!({"cpu": "500m", "memory": "512Mi"});
        let mut pod = json!({"terminationGracePeriodSeconds": 0, "affinity": affinity,
            "containers": [{"name": name, "image": name, "resources": {"requests": requests}}]});
        if affinity == &json!({}) {
            pod["affinity"] = Value::Null;
        }
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod}}});
        self.call(Method::PATCH, &format!("{path}?fieldManager=walk&force=true"), &set, "application/apply-patch+yaml").await.map(drop)
    }

    pub(crate) async fn is_class_ready(&self) -> Result<bool> {
        let classes = self.list("/apis/karpenter.k8s.aws/v1/ec2nodeclasses").await?;
        Ok(!classes.is_empty() && classes.iter().all(|class| is_true(class, "Ready")))
    }

    /// The node of each pod that has one and is not on its way out.
    pub(crate) async fn bound(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.list("/api/v1/namespaces/default/pods").await?;
        let stays = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(stays.filter_map(|pod| Some((name(pod), pod["spec"]["nodeName"].as_str()?.to_owned()))).collect())
    }

    /// Names and provider ids.
    pub(crate) async fn nodes(&self) -> Result<BTreeMap<String, String>> {
        let nodes = self.list("/api/v1/nodes").await?;
        Ok(nodes.iter().map(|node| (name(node), node["spec"]["providerID"].as_str().unwrap_or_default().to_owned())).collect())
    }

    /// Names and provider ids.
    pub(crate) async fn claims(&self) -> Result<BTreeMap<String, String>> {
        let claims = self.list("/apis/karpenter.sh/v1/nodeclaims").await?;
        Ok(claims.iter().map(|claim| (name(claim), claim["status"]["providerID"].as_str().unwrap_or_default().to_owned())).collect())
    }

    pub(crate) async fn ready_claims(&self) -> Result<Vec<String>> {
        let claims = self.list("/apis/karpenter.sh/v1/nodeclaims").await?;
        Ok(claims.iter().filter(|claim| is_true(claim, "Ready")).map(name).collect())
    }

    /// Everything that EC2 ever started and still remembers.
    pub(crate) async fn machines(&self) -> Result<BTreeSet<String>> {
        self.machines_with(|_| true).await
    }

    /// What costs money.
    pub(crate) async fn running(&self) -> Result<BTreeSet<String>> {
        self.machines_with(|state| state == "pending" || state == "running").await
    }

    async fn machines_with(&self, wanted: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
        let state = self.control_page("").await?;
        let machines = state["machines"].as_array().into_iter().flatten();
        let wanted = machines.filter(|machine| wanted(machine["state"].as_str().unwrap_or_default()));
        Ok(wanted.filter_map(|machine| machine["id"].as_str().map(str::to_owned)).collect())
    }

    /// Whether there is no machine, no Node and no NodeClaim.
    pub(crate) async fn is_bare(&self) -> Result<bool> {
        Ok(self.running().await?.is_empty() && self.nodes().await?.is_empty() && self.claims().await?.is_empty())
    }

    /// Changes the simulated AWS.
    pub(crate) async fn control(&self, change: &Value) -> Result<()> {
        self.ask(Method::POST, "", &change.to_string()).await.map(drop)
    }

    /// What the owner of the simulated AWS sees; without a path its state.
    pub(crate) async fn control_page(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, "").await
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> Result<Value> {
        let address = self.state["fakeAws"].as_str().context("state.json names no simulated AWS")?;
        let http = Http::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let request = Request::builder().method(method).uri(format!("{address}/_control{path}")).body(Full::from(body.to_owned()))?;
        let answer = http.request(request).await?;
        let (status, body) = (answer.status(), answer.into_body().collect().await?.to_bytes());
        ensure!(status.is_success(), "the simulated AWS refuses {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }

    /// Machines, Nodes and NodeClaims are the same: one of each for each.
    pub(crate) async fn check_books(&self) -> Result<()> {
        let running = self.running().await?;
        let ids = |objects: BTreeMap<String, String>| {
            objects.into_values().map(|id| id.rsplit('/').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        for (kind, mut ids) in [("Nodes", ids(self.nodes().await?)), ("NodeClaims", ids(self.claims().await?))] {
            ids.sort();
            ensure!(ids.iter().eq(running.iter()), "machines {running:?} run, and there are {kind} of {ids:?}");
        }
        Ok(())
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn is_true(object: &Value, condition: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == condition && one["status"] == "True")
}
