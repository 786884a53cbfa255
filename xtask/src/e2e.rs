//! The rig: the deployed application on loopback, started, looked after by a process of its own, and ended.

use crate::{artifacts, deploy, dist, environment, shell, template, workspace};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A start takes a minute on two busy cores; what hangs for longer will not come.
const START_MAX: Duration = Duration::from_secs(240);
const END_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub(crate) enum E2e {
    /// Starts the rig, leaves it running, and prints KUBECONFIG and addresses.
    Up(Up),
    /// Ends the rig that `up` started.
    Down(Down),
    /// Starts the rig, walks through what users meet, and ends it.
    Run(Up),
    /// Starts the rig, makes every alarm of the template go off by a cause of its own, and ends it.
    Alarms(Up),
    /// Starts the rig with an older release, upgrades it with both at work at once, goes back, upgrades it again, and ends it.
    Upgrade(Upgrade),
    /// From an empty account to running pods with the commands of a page of the documentation, and back.
    FirstPod(FirstPod),
}

/// How the rig is started.
#[derive(Args, Clone, Default)]
pub(crate) struct Up {
    /// A control plane that runs already, on loopback
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// What the region sells: a catalog as `whittle plan` reads it; by default what AWS sells
    #[arg(long)]
    instance_types: Option<PathBuf>,
    /// Where the state of the rig is kept; one folder is one rig
    #[arg(long)]
    folder: Option<PathBuf>,
    /// A folder that `sam build` has filled, instead of building
    #[arg(long)]
    built: Option<PathBuf>,
    /// The rig's own binary, instead of building it
    #[arg(long)]
    rig: Option<PathBuf>,
    /// What rings for pods without a node
    #[arg(long, value_enum, default_value_t)]
    doorbell: Doorbell,
    /// Install nothing: an account and a cluster for `sam`, `aws`, `whittle` and `kubectl`, whose variables are printed
    #[arg(long, conflicts_with_all = ["kubeconfig", "built", "doorbell", "watcher"])]
    empty: bool,
    /// The watcher's own binary, instead of building it
    #[arg(long)]
    watcher: Option<PathBuf>,
    /// Stay in the foreground until SIGTERM or Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Passed on to the rig: `whittle-rig --help` lists what there is
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// What rings for pods without a node.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Doorbell {
    /// The API server's webhook
    #[default]
    Webhook,
    /// The watcher, as a process beside the cluster
    Watcher,
}

/// The rig's package and binary.
const RIG: &str = "whittle-rig";

/// The pages that say how a release and how the sources are deployed, and the headings above the commands.
const RELEASE_PAGE: (&str, &str) = ("docs/guide/prebuilt.md", "Deploy");
const SOURCES_PAGE: (&str, &str) = ("README.md", "Deploy it");

/// What is installed, and by which page.
#[derive(Args)]
pub(crate) struct FirstPod {
    /// What `cargo xtask dist --arch x86_64` has made, with the command `whittle`; by default a fresh clone of this repository, which is
    /// compiled
    #[arg(long)]
    release: Option<PathBuf>,
    /// The page with the commands; by default that of a release, or README.md
    #[arg(long, requires = "heading")]
    page: Option<PathBuf>,
    /// The heading above the commands
    #[arg(long, requires = "page")]
    heading: Option<String>,
    /// Also breaks the installation in ten ways, and repairs it each time as `whittle doctor` says
    #[arg(long = "break")]
    breaks: bool,
    /// Also hands everything over to Karpenter and adopts it again, by docs/guide/migrate-from-karpenter.md
    #[arg(long)]
    migrate: bool,
    /// The rig's own binary, instead of building it
    #[arg(long)]
    rig: Option<PathBuf>,
}

/// From which release.
#[derive(Args)]
pub(crate) struct Upgrade {
    /// A checkout of the older release
    #[arg(long)]
    from: PathBuf,
    /// A folder that `sam build` has filled with it, instead of building
    #[arg(long)]
    from_built: Option<PathBuf>,
    /// A folder that `sam build` has filled with this release, instead of building
    #[arg(long)]
    built: Option<PathBuf>,
    /// The rig's own binary, instead of building it
    #[arg(long)]
    rig: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Down {
    /// The folder that `up` was given
    #[arg(long)]
    folder: Option<PathBuf>,
}

pub(crate) fn run(what: &E2e) -> Result<()> {
    match what {
        E2e::Up(options) => up(options),
        E2e::Down(options) => down(&folder(options.folder.as_deref())?),
        E2e::Run(options) => on_rig(options, &[], &[OsStr::new("walk")]),
        E2e::Alarms(options) => alarms(options),
        E2e::Upgrade(options) => upgrade(options),
        E2e::FirstPod(options) => first_pod(options),
    }
}

fn folder(given: Option<&Path>) -> Result<PathBuf> {
    given.map_or_else(|| Ok(environment::cache()?.join("e2e")), |given| Ok(given.to_owned()))
}

fn up(options: &Up) -> Result<()> {
    let folder = folder(options.folder.as_deref())?;
    let mut rig = command(&workspace::root(), options, &folder)?;
    if options.foreground {
        return Err(rig.exec()).context("the rig cannot be started");
    }
    let log = folder.with_extension("log");
    let mut process = detached(&rig, &folder, &log)?;
    let state = wait(&mut process, &folder, &log)?;
    print(&state);
    Ok(())
}

/// The alarms of the template as it is here, on a rig that has them all.
fn alarms(options: &Up) -> Result<()> {
    let file = environment::cache()?.join("alarms.json");
    std::fs::write(&file, template::transformed(&workspace::root())?.to_string())?;
    on_rig(options, &["--parameter", "Alarms=full"], &[OsStr::new("alarms"), OsStr::new("--template"), file.as_os_str()])
}

/// A walk with these arguments on a rig that checks access.
fn on_rig(options: &Up, more: &[&str], arguments: &[&OsStr]) -> Result<()> {
    let folder = folder(options.folder.as_deref())?;
    let mut rig = command(&workspace::root(), options, &folder)?;
    rig.arg("--check-access").args(more);
    let mut walk = Command::new(rig.get_program());
    walk.args(arguments).arg("--folder").arg(&folder).stdin(Stdio::null());
    run_beside(&rig, &folder, walk)
}

/// Runs a program while a rig runs, which ends whatever became of the program.
fn run_beside(rig: &Command, folder: &Path, program: Command) -> Result<()> {
    let log = folder.with_extension("log");
    let mut process = detached(rig, folder, &log)?;
    wait(&mut process, folder, &log)?;
    let outcome = shell::run(program);
    down(folder)?;
    outcome
}

/// A rig with the older release and what it has for a cluster, the upgrade, and the end of the rig.
fn upgrade(options: &Upgrade) -> Result<()> {
    let root = workspace::root();
    let folder = folder(None)?.with_file_name("e2e-upgrade");
    let sam = environment::set_up(&root)?.sam;
    let build = |of: &Path, given: &Option<PathBuf>, name: &str| match given {
        Some(built) => Ok(built.clone()),
        None => {
            let built = environment::cache()?.join(name);
            deploy::build(of, &sam, &built).map(|()| built)
        }
    };
    let from_root = options.from.canonicalize().with_context(|| format!("{} is no checkout", options.from.display()))?;
    let (from, to) = (build(&from_root, &options.from_built, "sam-build-from")?, build(&root, &options.built, "sam-build")?);
    let up = Up { built: Some(from.clone()), rig: options.rig.clone(), ..Up::default() };
    let rig = command_of(&root, &from_root, &up, &folder)?;
    let mut walk = Command::new(rig.get_program());
    walk.arg("upgrade").args([Path::new("--folder"), &folder, Path::new("--sam"), &sam]);
    walk.args([Path::new("--from"), &from, Path::new("--to"), &to]).stdin(Stdio::null());
    run_beside(&rig, &folder, walk)
}

/// An empty rig, the page's commands on it, and its end.
fn first_pod(options: &FirstPod) -> Result<()> {
    let root = workspace::root();
    let folder = folder(None)?.with_file_name("e2e-first-pod");
    let (python, control_plane) = environment::installation(&root)?;
    let sam = environment::set_up(&root)?.sam;
    let empty = Up { empty: true, rig: options.rig.clone(), rest: vec!["--cluster".to_owned(), "shop".to_owned()], ..Up::default() };
    let rig = command(&root, &empty, &folder)?;
    let mut script = Command::new(python.join("bin/python"));
    let (usual_page, usual_heading) = if options.release.is_some() { RELEASE_PAGE } else { SOURCES_PAGE };
    let page = options.page.as_deref().unwrap_or(Path::new(usual_page));
    let heading = options.heading.as_deref().unwrap_or(usual_heading);
    let from = options.release.as_deref().unwrap_or(&root);
    script.arg("tests/e2e/first_pod.py").args([&folder.join("state.json"), from, page]).arg(heading);
    script.args(options.breaks.then_some("--break")).args(options.migrate.then_some("--migrate")).env("PYTHONDONTWRITEBYTECODE", "1");
    artifacts::hermetic(&mut script, &root, &sam)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    // cargo-lambda asks the first Python for zig.
    let places = [sam.join("bin"), python.join("bin"), control_plane].into_iter().chain(std::env::split_paths(&path));
    script.current_dir(&root).env("PATH", std::env::join_paths(places)?).stdin(Stdio::null());
    run_beside(&rig, &folder, script)
}

/// What CI tries: a user's way from an empty account to running pods, to Karpenter and back, and to nothing, with what it has built.
pub(crate) fn check(root: &Path) -> Result<()> {
    let functions = artifacts::build(root)?;
    let command = built_binary(root, None, "whittle-cli")?.with_file_name("whittle");
    shell::run(shell::command(root, "cargo", &["build", "--locked", "--quiet", "-p", RIG]))?;
    let release = environment::cache()?.join("release");
    dist::for_this_machine(root, &release, &functions, &command)?;
    let rig = workspace::target(root)?.join("debug").join(RIG);
    first_pod(&FirstPod { release: Some(release), page: None, heading: None, breaks: false, migrate: true, rig: Some(rig) })
}

/// The rig's command line, with everything built that it needs.
fn command(root: &Path, options: &Up, folder: &Path) -> Result<Command> {
    command_of(root, root, options, folder)
}

/// The same, where the cluster is prepared with the manifests of another checkout.
fn command_of(root: &Path, manifests: &Path, options: &Up, folder: &Path) -> Result<Command> {
    let tools = environment::set_up(root)?;
    let built = match &options.built {
        Some(built) => Some(built.clone()),
        None if options.empty => None,
        None => {
            let built = environment::cache()?.join("sam-build");
            deploy::build(root, &tools.sam, &built)?;
            Some(built)
        }
    };
    let binary = built_binary(root, options.rig.as_deref(), RIG)?;
    let watcher = match options.doorbell {
        Doorbell::Webhook => None,
        Doorbell::Watcher => Some(built_binary(root, options.watcher.as_deref(), "whittle-watcher")?),
    };
    let mut rig = Command::new(binary);
    rig.arg("serve").arg("--root").arg(manifests).arg("--folder").arg(folder).envs(tools.variables()).stdin(Stdio::null());
    let given = [
        ("--built", &built),
        ("--kubeconfig", &options.kubeconfig),
        ("--instance-types", &options.instance_types),
        ("--watcher", &watcher),
    ];
    for (flag, value) in given {
        if let Some(value) = value {
            rig.arg(flag).arg(value);
        }
    }
    if options.empty {
        rig.arg("--empty");
    }
    rig.args(&options.rest);
    Ok(rig)
}

/// A binary that is given, or else is built.
fn built_binary(root: &Path, given: Option<&Path>, package: &str) -> Result<PathBuf> {
    if let Some(binary) = given {
        return Ok(binary.to_owned());
    }
    shell::run(shell::command(root, "cargo", &["build", "--release", "--locked", "--quiet", "-p", package]))?;
    Ok(workspace::target(root)?.join("release").join(package))
}

/// Starts the rig in a session of its own, so that it outlives this process and its terminal.
fn detached(rig: &Command, folder: &Path, log: &Path) -> Result<Child> {
    if let Some(parent) = log.parent() {
        std::fs::create_dir_all(parent)?;
    }
    vacate(folder)?;
    let output = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
    let mut session = Command::new("setsid");
    session.arg(rig.get_program()).args(rig.get_args());
    for (name, value) in rig.get_envs() {
        if let Some(value) = value {
            session.env(name, value);
        }
    }
    session.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    session.spawn().context("setsid cannot be started")
}

/// The process that a folder says is its rig.
struct RigProcess {
    id: u32,
    /// False for a rig that was killed, which leaves its folder behind.
    runs: bool,
}

fn process_of(folder: &Path) -> Result<Option<RigProcess>> {
    let Ok(text) = std::fs::read_to_string(folder.join("state.json")) else { return Ok(None) };
    let state: Value = serde_json::from_str(&text).context("state.json is no JSON")?;
    let id = state["process"].as_u64().and_then(|process| u32::try_from(process).ok()).context("state.json names no process")?;
    Ok(Some(RigProcess { id, runs: Path::new("/proc").join(id.to_string()).exists() }))
}

/// Makes room for a rig in a folder.
fn vacate(folder: &Path) -> Result<()> {
    match process_of(folder)? {
        Some(RigProcess { id, runs: true }) => {
            bail!("a rig runs in {} (process {id}): end it with `cargo xtask e2e down`", folder.display())
        }
        Some(RigProcess { runs: false, .. }) => {
            std::fs::remove_dir_all(folder).with_context(|| format!("{} cannot be removed", folder.display()))
        }
        None => Ok(()),
    }
}

/// The state of a rig that has come up.
fn wait(process: &mut Child, folder: &Path, log: &Path) -> Result<Value> {
    let begun = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(folder.join("state.json")) {
            return serde_json::from_str(&text).context("state.json is no JSON");
        }
        if let Some(status) = process.try_wait()? {
            bail!("the rig ended ({status}):\n{}", std::fs::read_to_string(log).unwrap_or_default());
        }
        if begun.elapsed() > START_MAX {
            end(process.id());
            bail!("the rig is not ready after {} s; its log is {}", START_MAX.as_secs(), log.display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn print(state: &Value) {
    let text = |name: &str| state[name].as_str().unwrap_or_default().to_owned();
    if let Some(account) = state["account"].as_str() {
        println!(
            "export AWS_ENDPOINT_URL={account} AWS_DEFAULT_REGION=us-west-2 AWS_ACCESS_KEY_ID=AKIARIGUSER AWS_SECRET_ACCESS_KEY=testing"
        );
        println!("# the cluster `{}`; add to the stack's parameters: TestEndpoint={}", text("cluster"), text("fakeAws"));
        println!("# `cargo xtask e2e down` ends it");
        return;
    }
    println!("export KUBECONFIG={}", text("kubeconfig"));
    println!("export AWS_ENDPOINT_URL={}  # the functions, queues, table and rules of the stack `{}`", text("ministack"), text("stack"));
    let services = text("fakeAws");
    println!(
        "# EC2, SSM, Pricing, IAM and EKS of the cluster `{}`: {services}, and its owner's API at {services}/_control",
        text("cluster")
    );
    println!("# `cargo xtask e2e down` ends it");
}

/// Asks a process to end.
fn end(process: u32) {
    let _ = Command::new("kill").args(["-TERM", &process.to_string()]).stderr(Stdio::null()).status();
}

fn down(folder: &Path) -> Result<()> {
    let Some(RigProcess { id, runs }) = process_of(folder)? else {
        println!("no rig runs in {}", folder.display());
        return Ok(());
    };
    if !runs {
        std::fs::remove_dir_all(folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
        println!("the rig in {} had ended; its folder is removed", folder.display());
        return Ok(());
    }
    end(id);
    // The last thing that its guard does is to remove the folder.
    let begun = Instant::now();
    while folder.exists() {
        if begun.elapsed() > END_MAX {
            bail!("{} is still there: does process {id} run?", folder.display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    println!("the rig in {} has ended", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_killed_rig_is_taken_and_that_of_a_running_one_never() {
        let folder = std::env::temp_dir().join(format!("whittle-rig-{}", std::process::id()));
        let left_by = |process: u32| {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("state.json"), format!(r#"{{"process": {process}}}"#)).unwrap();
        };
        vacate(&folder).unwrap();
        left_by(std::process::id());
        let error = vacate(&folder).unwrap_err().to_string();
        assert!(error.contains("end it with `cargo xtask e2e down`") && folder.exists(), "{error}");
        left_by(u32::MAX);
        vacate(&folder).unwrap();
        assert!(!folder.exists());
        left_by(u32::MAX);
        down(&folder).unwrap();
        assert!(!folder.exists());
    }
}
