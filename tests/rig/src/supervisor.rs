//! Starts everything in order, holds it together, and ends it.

use crate::access::{self, Gate};
use crate::account::AccessEntries;
use crate::catalog::Sizes;
use crate::deploy::{self, Deployment, SECRET, SECRET_NAME, STACK};
use crate::empty::{self, Way};
use crate::emulator::Emulator;
use crate::events::Bus;
use crate::options::Options;
use crate::roles::{self, Roles};
use crate::signed_url::{self, Caller};
use crate::state::State;
use crate::tls::Certificates;
use crate::watcher::{self, Watcher};
use crate::{catalog, kubelets, relay};
use anyhow::{Context, Result, bail};
use http::HeaderValue;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use whittle_backends::control_plane::ControlPlane;
use whittle_backends::groups;
use whittle_backends::ministack::Ministack;
use whittle_fake_aws::Lone;
use whittle_fake_aws::server::{self, Shared};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// The version that EKS says the cluster has: the newest that the simulated region has images for.
const KUBERNETES: &str = "1.33";
/// How long node classes that exist already may take to become ready.
const CLASSES_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the rig until it is told to end.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.folder.exists() {
        bail!("{} exists: end the rig that uses it (`cargo xtask e2e down`), or name another folder", options.folder.display());
    }
    fs::create_dir_all(&options.folder).with_context(|| format!("{} cannot be made", options.folder.display()))?;
    let folder = options.folder.canonicalize()?;
    let options = Options { folder: folder.clone(), ..options.clone() };
    let certificates = Certificates::make(&options.folder.join("pki"))?;
    let ministack =
        if options.check_access { Ministack::start_checking(&options.ministack) } else { Ministack::start_in(&options.ministack) };
    let way = options.empty.then(|| Way::open(&certificates)).transpose()?;
    let environment = way.as_ref().map(Way::environment).unwrap_or_default();
    let plane = (options.kubeconfig.is_none())
        .then(|| ControlPlane::start_with(options.control_plane.clone(), "kcm scheduler kwok", "", &environment));
    let guard = Guard::start(&options, &ministack, plane.as_ref())?;
    let kubeconfig = match (&options.kubeconfig, &plane) {
        (Some(given), _) => given.canonicalize().with_context(|| format!("{} cannot be read", given.display()))?,
        (None, Some(plane)) => plane.kubeconfig().to_owned(),
        (None, None) => bail!("there is no control plane"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            outcome = serve(&options, &ministack, &kubeconfig, certificates, way) => outcome,
            _ = terminated.recv() => Ok(()),
            _ = interrupted.recv() => Ok(()),
        }
    });
    if ended.is_err() {
        eprintln!("the emulator said:\n{}", ministack.end_of_log());
    }
    runtime.shutdown_background();
    drop((ministack, plane));
    drop(guard);
    ended
}

/// Starts what belongs to this process, deploys if that is asked for, and serves for good.
async fn serve(options: &Options, ministack: &Ministack, kubeconfig: &Path, certificates: Certificates, way: Option<Way>) -> Result<()> {
    let client = client_of(kubeconfig).await?;
    let emulator = Emulator::new(ministack.endpoint());
    let (fake, endpoint) = (listener(0).await?, listener(0).await?);
    let (aws, endpoint_address) = (format!("http://{}", fake.local_addr()?), endpoint.local_addr()?.to_string());
    let (lone, sizes) = region(options, &endpoint_address, &certificates.authority)?;
    let mut region = Shared::new(lone);
    let entries = match options {
        Options { empty: true, .. } => AccessEntries::default(),
        Options { check_access: true, cluster, .. } => AccessEntries::of_nodes(cluster),
        Options { cluster, .. } => AccessEntries::of_installed(cluster, &access::GROUPS),
    };
    let gate = if options.check_access {
        region = region.identified_by(Arc::new(Roles::new(emulator.clone())));
        Gate::checking(client.clone(), entries.clone(), emulator.clone(), (&options.cluster, &options.folder))
    } else {
        Gate::trusting(client.clone(), entries.clone())
    };
    tokio::spawn(server::serve(fake, region.clone(), std::future::pending()));
    tokio::spawn(gate.serve(endpoint, certificates.acceptor.clone()));
    tokio::spawn(kubelets::run(region.clone(), sizes, client.clone(), entries.clone()));
    let rig = Rig { options, kubeconfig, client, emulator, certificates, region, aws };
    // The watcher is ended with this function.
    let (account, _watcher) = match way {
        Some(way) => {
            way.serve(&rig.emulator, &rig.certificates).await?;
            (Some(empty::serve(&rig.emulator, rig.aws.clone(), &rig.region, entries).await?), None)
        }
        None => (None, rig.install(&entries).await?),
    };

    let ready = listener(options.ready_port).await?;
    State {
        process: std::process::id(),
        ministack_process: ministack.process(),
        kubeconfig: kubeconfig.display().to_string(),
        ministack: ministack.endpoint(),
        account,
        fake_aws: rig.aws,
        endpoint: format!("https://{endpoint_address}"),
        cluster: options.cluster.clone(),
        stack: STACK.to_owned(),
        ready: format!("http://{}/ready", ready.local_addr()?),
    }
    .write(&options.folder)?;
    answer_ready(ready).await;
    Ok(())
}

/// What everything is installed into.
struct Rig<'a> {
    options: &'a Options,
    kubeconfig: &'a Path,
    client: Client,
    emulator: Emulator,
    certificates: Certificates,
    region: Shared,
    /// Address of the simulated AWS.
    aws: String,
}

impl Rig<'_> {
    /// Deploys, and prepares the cluster; the watcher where one is asked for.
    async fn install(&self, entries: &AccessEntries) -> Result<Option<Watcher>> {
        let (options, emulator) = (self.options, &self.emulator);
        let built = options.built.clone().context("nothing is built that could be deployed")?;
        let deployment = Deployment {
            sam: options.sam.clone(),
            folder: options.folder.clone(),
            cluster: options.cluster.clone(),
            is_watched: options.watcher.is_some(),
            parameters: options.parameters.clone(),
            endpoint: emulator.endpoint().to_owned(),
            aws: self.aws.clone(),
        };
        tokio::task::spawn_blocking(move || deploy::stack(&deployment, &built)).await??;
        if options.check_access {
            let stack = emulator.resources(STACK).await?;
            for (role, groups) in groups::of_roles(&options.root)? {
                let name = stack.get(&role).with_context(|| format!("the stack has no {role}"))?;
                entries.let_in(&options.cluster, &roles::arn(name), &groups);
            }
        }
        let listener = listener(0).await?;
        let relay_address = listener.local_addr()?;
        let caller = Caller::watcher();
        if options.watcher.is_some() {
            let function = emulator.output(STACK, "RelayFunction").await?;
            tokio::spawn(signed_url::serve(listener, emulator.clone(), function, caller.clone()));
        } else {
            let host = emulator.output(STACK, "RelayUrl").await?;
            let host = host.split('/').nth(2).with_context(|| format!("the relay's URL is {host}"))?;
            let host = HeaderValue::from_str(host)?;
            let (owned_emulator, acceptor) = (emulator.clone(), self.certificates.acceptor.clone());
            tokio::spawn(async move { relay::serve(listener, acceptor, &owned_emulator, Some(host)).await });
        }
        tokio::spawn(Bus::read(emulator).await?.deliver(self.region.clone()));
        let (owned, config, authority) = (options.clone(), self.kubeconfig.to_owned(), self.certificates.authority.clone());
        let relay = relay_address.to_string();
        tokio::task::spawn_blocking(move || deploy::manifests(&owned, &config, &relay, &authority)).await??;
        let watcher = match &options.watcher {
            Some(binary) => Some(watcher::start(options, binary, self.kubeconfig, relay_address, &caller)?),
            None => None,
        };
        prepare_classes(options, emulator, &self.client).await?;
        Ok(watcher)
    }
}

/// A client of the control plane that a file names, which is on this machine.
pub(crate) async fn client_of(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("{} is no kubeconfig", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let host = config.cluster_url.host().unwrap_or_default().to_owned();
    if !["127.0.0.1", "localhost", "[::1]"].contains(&host.as_str()) {
        bail!("{} is about {host}: the rig works on control planes of this machine alone", kubeconfig.display());
    }
    Ok(Client::try_from(config)?)
}

async fn listener(port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.with_context(|| format!("port {port} of 127.0.0.1 cannot be taken"))
}

/// The simulated region, whose EKS knows one cluster.
fn region(options: &Options, endpoint: &str, authority: &str) -> Result<(Lone, Sizes)> {
    let cluster = ClusterName::new(options.cluster.clone());
    let mut lone = Lone::new(Ministack::REGION, &cluster, Timestamp::now());
    lone.region.supply.boot = Some(SignedDuration::from_millis((options.boot_seconds * 1000.0).round() as i64));
    if options.empty {
        empty::clear(&mut lone);
    } else {
        lone.region.network.parameters.insert(SECRET_NAME.to_owned(), SECRET.to_owned());
    }
    let mut info = lone.region.cluster_info(&cluster, KUBERNETES);
    info.endpoint = format!("https://{endpoint}");
    authority.clone_into(&mut info.certificate_authority);
    lone.clusters.insert(cluster, info);
    let mut sizes = Sizes::new();
    if let Some(file) = &options.instance_types {
        let zones = lone.region.zones();
        let goods = catalog::read(file, &lone.region.catalog, &zones)?;
        lone.region.catalog = Arc::new(goods.catalog);
        sizes = goods.sizes;
    }
    Ok((lone, sizes))
}

/// Has the classes that exist already resolved: a doorbell of theirs rang before there was anybody to hear it.
async fn prepare_classes(options: &Options, emulator: &Emulator, client: &Client) -> Result<()> {
    let queues = emulator.resources(STACK).await?;
    let queue = queues.get("RefreshQueue").context("the stack has no RefreshQueue")?;
    emulator.enqueue(queue, &serde_json::json!({"bell": "refresh", "cluster": options.cluster}).to_string()).await?;
    let path = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses";
    let mut waiting = Vec::new();
    let mut interval = tokio::time::interval(LOOK_EVERY);
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < CLASSES_MAX {
        interval.tick().await;
        // Of CRDs that were applied a moment ago the server may not know yet.
        let Ok(list) = client.request::<Value>(http::Request::get(path).body(Vec::new())?).await else { continue };
        waiting = list["items"].as_array().into_iter().flatten().filter(|class| !is_ready(class)).cloned().collect();
        if waiting.is_empty() {
            return Ok(());
        }
    }
    for class in waiting {
        eprintln!("EC2NodeClass {} is not ready: {}", class["metadata"]["name"], class["status"]["conditions"]);
    }
    Ok(())
}

fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Answers everybody who asks that the rig is ready, for good.
async fn answer_ready(listener: TcpListener) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nready\n").await;
        let _ = stream.shutdown().await;
    }
}

/// A process that ends the rest when this one ends, however that happens: its input then closes.
struct Guard(Child);

impl Guard {
    fn start(options: &Options, ministack: &Ministack, plane: Option<&ControlPlane>) -> Result<Self> {
        let mut script = format!("read -r _; kill -KILL -- -{} 2>/dev/null", ministack.process());
        if let Some(plane) = plane {
            let run = options.root.join("tests/control-plane/run.sh");
            script.push_str(&format!("; CP_DIR='{}' bash '{}' stop", plane.folder().display(), run.display()));
        }
        script.push_str(&format!("; kill $(cat '{}/{}' 2>/dev/null) 2>/dev/null", options.folder.display(), watcher::PROCESS));
        // Last: whoever waits for the end waits for this.
        script.push_str(&format!("; rm -rf '{}' '{}'", ministack.folder().display(), options.folder.display()));
        let process = Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("bash cannot be started")?;
        Ok(Self(process))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
