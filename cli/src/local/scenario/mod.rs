//! Scenario files: steps, waits and expectations.

mod conditions;
mod random_events;
mod reservations;
mod run;

pub use run::{MachineSpan, Outcome, Play, play, play_with, run};

use crate::mapping;
use crate::place;
use crate::source::files::{self, FileError};
use conditions::Condition;
pub use reservations::Reserve;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use whittle_api::{GoDuration, labels, words};
use whittle_claims::LeftNodes;
use whittle_units::SignedDuration;

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    pub name: String,
    /// Ids of the walkthrough outcomes that it demonstrates.
    #[serde(default)]
    pub shows: Vec<String>,
    /// One sentence for readers.
    #[serde(default)]
    pub story: String,
    #[serde(default)]
    pub cluster: ClusterSpec,
    #[serde(default = "one")]
    pub seed: u64,
    /// The directory of its files, relative to the scenario's own.
    #[serde(default)]
    pub files: PathBuf,
    /// Applied before the first step. An eksctl ClusterConfig among them describes the cluster.
    #[serde(default)]
    pub setup: Vec<String>,
    pub steps: Vec<Spanned<Step>>,
}

const fn one() -> u64 {
    1
}

/// The cluster, unless an eksctl file describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClusterSpec {
    pub name: Option<String>,
    pub region: Option<String>,
    pub version: Option<String>,
}

/// One step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    Say(String),
    Apply(Vec<String>),
    ApplyText(String),
    ApplyEdited(Edited),
    /// `kind/name`.
    Delete(Vec<String>),
    /// Deletes pools, `kind/name`, with foreground cascading: each is kept until its last node is deleted.
    DeleteInForeground(Vec<String>),
    DeleteFiles(Vec<String>),
    /// Deletes the first Node of a pool.
    DeleteFirst(Target),
    /// Deletes the oldest NodeClaim of a pool that is not being deleted.
    DeleteFirstClaim(Target),
    /// Deletes the newest one.
    DeleteNewestClaim(Target),
    /// Adds an orphaned machine with our tags.
    Stray,
    /// The same, with a Node that accepts pods.
    StrayNode,
    /// Adds a node of Karpenter's, with its NodeClaim.
    KarpenterNode,
    /// The containers of a running pod, `namespace/name`, end; the pod stays.
    Finish(String),
    /// EC2 terminates the newest machine.
    EndNewest,
    /// Hides newly launched machines from EC2's responses for a time.
    UnshowYoung(GoDuration),
    /// Hides the newest machine from EC2's listings for a time, if responses lag.
    UnlistNewest(GoDuration),
    /// Omits the first Node of a pool from lists until `show-all`.
    HideFirstNode(Target),
    ShowAll,
    /// Live claims are unreadable until `mend-claims`.
    SpoilClaims,
    MendClaims,
    /// Keeps a copy of the table for `restore-table`.
    CopyTable,
    RestoreTable,
    /// Uninstalls Whittle from the cluster, draining or keeping its machines.
    Uninstall(LeftNodes),
    Scale(Scale),
    Resize(Resize),
    Advance(GoDuration),
    Wait(Wait),
    Expect(Condition),
    /// A condition that must hold throughout a span.
    Stays(Stays),
    /// A condition that must hold from here on.
    Always(Condition),
    Interrupt(Target),
    Notice(Notice),
    StockOut(Stock),
    /// Shifts traffic of the cluster away from a zone.
    ZonalShift(Shift),
    /// Cancels all zonal shifts of the cluster.
    CancelZonalShifts,
    Restock(Stock),
    /// Creates or changes a capacity reservation.
    Reserve(Reserve),
    /// Cancels a reservation; its machines keep running.
    EndReservation(String),
    Tags(Tags),
    Settings(SettingsChange),
    Faults(FaultChange),
    Image(NewImage),
    SecurityGroup(NewGroup),
    Annotate(Annotation),
    /// Changes the interval of scheduled doorbells. Long idle spans are simulated faster.
    Ticks(GoDuration),
}

/// A file with texts replaced.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edited {
    pub file: String,
    pub replace: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    pub deployment: String,
    pub replicas: i32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    pub group: String,
    pub min: usize,
    pub max: usize,
    pub desired: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    pub until: Condition,
    #[serde(default = "five_minutes")]
    pub within: GoDuration,
}

fn five_minutes() -> GoDuration {
    GoDuration::from_secs(300)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stays {
    pub state: Condition,
    #[serde(rename = "for")]
    pub span: GoDuration,
}

/// Nodes of a pool, or one node by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    pub pool: Option<String>,
    /// Of a pool that came from a Provisioner, or of one that did not.
    pub converted: Option<bool>,
    /// Of a machine that was adopted from Karpenter, or of one that was launched.
    pub adopted: Option<bool>,
    pub node: Option<String>,
}

/// An event of EventBridge.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notice {
    pub kind: NoticeKind,
    #[serde(default)]
    pub pool: Option<String>,
    /// An unknown instance id, instead of a pool's node.
    #[serde(default)]
    pub instance: Option<String>,
    #[serde(default = "one")]
    pub times: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    Spot,
    Rebalance,
    ScheduledChange,
    Stopping,
    Stopped,
    Terminated,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stock {
    #[serde(rename = "type", default = "any")]
    pub instance_type: String,
    #[serde(default = "any")]
    pub zone: String,
    #[serde(default = "any")]
    pub capacity_type: String,
}

fn any() -> String {
    "*".to_owned()
}

/// A zonal shift of the cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shift {
    /// The zone's name.
    pub zone: String,
    #[serde(rename = "for")]
    pub span: GoDuration,
}

/// Whether subnets and security groups have the discovery tag.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tags {
    pub subnets: Option<bool>,
    pub groups: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SettingsChange {
    pub shadow: Option<bool>,
    pub spot_to_spot: Option<bool>,
    pub act_on_rebalance: Option<bool>,
    pub node_repair: Option<bool>,
    pub zonal_shift: Option<bool>,
    pub default_spread: Option<Vec<whittle_api::k8s::TopologySpreadConstraint>>,
}

/// Changes the injected faults.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct FaultChange {
    pub throttles: Option<u32>,
    pub lost_replies: Option<u32>,
    pub lost_fleets: Option<u32>,
    pub webhook_refusals: Option<u32>,
    pub claim_refusals: Option<u32>,
    pub lost_messages: Option<u32>,
    pub repeated_messages: Option<u32>,
    pub late_messages: Option<u32>,
    pub crashes: Option<u32>,
    pub slow_replies: Option<u32>,
    pub conflicts: Option<u32>,
    pub busy_writers: Option<u32>,
    pub stale_reads: Option<u32>,
    pub partial_reads: Option<u32>,
    /// How long CreateFleet is throttled.
    pub fleets_throttled: Option<GoDuration>,
    /// How long the API server is unavailable.
    pub api_server_down: Option<GoDuration>,
    /// How long the table is unavailable.
    pub table_throttled: Option<GoDuration>,
    /// Machines launched from here on never join.
    pub mute_launches: Option<bool>,
}

/// An image that appears in the account.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewImage {
    pub id: String,
    pub name: String,
    pub architecture: String,
    pub created: whittle_units::Timestamp,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The owner account; ours if absent.
    #[serde(default)]
    pub owner: Option<String>,
    /// Removes the image instead.
    #[serde(default)]
    pub gone: bool,
}

/// A security group that appears in the region.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// Annotates a Node of a pool: the one of a pod, or the first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotation {
    /// Prefix of the name of a pod.
    #[serde(default)]
    pub under: Option<String>,
    pub pool: String,
    pub key: String,
    pub value: String,
}

/// A scenario that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path}: {message}")]
    Parse { path: String, message: String },
    #[error("{path}:{line}: {message}")]
    Step { path: String, line: u64, message: String },
}

/// Reads a scenario and checks that the files it names exist.
pub fn read(path: &Path) -> Result<Scenario, ScenarioError> {
    let shown = files::shown(path);
    let text = files::text(path)?;
    if let Some(is) = mapping::other(&text) {
        let message = format!("the file {is}, and no scenario, which is a mapping: write the keys name and steps");
        return Err(ScenarioError::Parse { path: shown, message });
    }
    if mapping::is_manifest(&text) {
        let message =
            format!("the file is a manifest, and no scenario: `whittle local -f {shown}` applies it, or a step `apply` of a scenario");
        return Err(ScenarioError::Parse { path: shown, message });
    }
    let mut scenario: Scenario = serde_saphyr::from_str(&text)
        .map_err(|error| ScenarioError::Parse { path: shown.clone(), message: first_line(&error.to_string()) })?;
    if let Some(message) = forged(&text).or_else(|| fault_of_head(&scenario)) {
        return Err(ScenarioError::Parse { path: shown, message });
    }
    scenario.files = path.parent().unwrap_or(Path::new(".")).join(&scenario.files);
    for step in &scenario.steps {
        let line = step.referenced.line();
        if let Some(message) = step.value.fault() {
            return Err(ScenarioError::Step { path: shown, line, message });
        }
        let named: Vec<&String> = match &step.value {
            Step::Apply(files) | Step::DeleteFiles(files) => files.iter().collect(),
            Step::ApplyEdited(edited) => vec![&edited.file],
            _ => Vec::new(),
        };
        if let Some(missing) = named.into_iter().find(|file| !scenario.file(file).exists()) {
            let message = format!("there is no file {}", files::shown(&scenario.file(missing)));
            return Err(ScenarioError::Step { path: shown, line, message });
        }
    }
    if let Some(missing) = scenario.setup.iter().find(|file| !scenario.file(file).exists()) {
        let message = format!("setup names {}, which does not exist", files::shown(&scenario.file(missing)));
        return Err(ScenarioError::Parse { path: shown, message });
    }
    Ok(scenario)
}

/// What a parser says, without the excerpt of the file below it.
fn first_line(said: &str) -> String {
    let line = said.lines().next().unwrap_or_default();
    let line = line.split_once(", set DuplicateKeyPolicy").map_or(line, |(line, _)| line);
    let line = line.strip_prefix("error: ").unwrap_or(line);
    // `line 2 column 17: expected sequence start`
    let placed = line.strip_prefix("line ").and_then(|rest| rest.split_once(": ")).zip(line.split_once(": ").map(|(place, _)| place));
    match placed {
        Some(((_, said), place)) => format!("{place}: {}", in_words(said).map_or_else(|| words::plain(said), str::to_owned)),
        None => words::plain(line),
    }
}

/// What the parser says of the form of YAML, in the words of scenario files.
fn in_words(said: &str) -> Option<&'static str> {
    Some(match said {
        "expected sequence start" => "a list is needed here",
        "expected mapping start" => "a map of fields is needed here",
        "expected string scalar" => "a text, or a step with its value, is needed here",
        "expected end of mapping after enum variant value" => "a step has one key: write an item of the list for each",
        "invalid u8" | "invalid u16" | "invalid u32" | "invalid u64" | "invalid usize" => "a whole number from 0 on is needed here",
        "invalid i8" | "invalid i16" | "invalid i32" | "invalid i64" | "invalid isize" => "a whole number is needed here",
        "invalid f32" | "invalid f64" | "invalid floating point value" => "a number is needed here",
        "invalid boolean" | "invalid bool" => "true or false is needed here",
        _ => return None,
    })
}

/// The steps whose texts are manifests, or parts of them.
const MANIFESTS: [&str; 2] = ["apply-text", "apply-edited"];

/// A text that would end the line in which it is printed, or steer the terminal. Manifests alone have lines.
fn forged(text: &str) -> Option<String> {
    fn first(value: &Value) -> Option<String> {
        match value {
            Value::String(text) if !words::is_printable(text) => Some(text.clone()),
            Value::Array(items) => items.iter().find_map(first),
            Value::Object(entries) => {
                let named = entries.keys().find(|key| !words::is_printable(key)).cloned();
                let mut printed = entries.iter().filter(|(key, _)| !MANIFESTS.contains(&key.as_str()));
                named.or_else(|| printed.find_map(|(_, value)| first(value)))
            }
            _ => None,
        }
    }
    let odd = first(&serde_saphyr::from_str(text).ok()?)?;
    Some(format!("{} would be printed in one line, which it ends or turns around: write it without such letters", words::printable(&odd)))
}

/// How often a notice may be delivered.
const TIMES_MAX: u64 = 10_000;

/// What is wrong with what a scenario says of itself and its cluster.
fn fault_of_head(scenario: &Scenario) -> Option<String> {
    let cluster = &scenario.cluster;
    let check = |field: &str, value: &Option<String>, parse: fn(&str) -> Result<String, String>| {
        let value = value.as_deref()?;
        parse(value).err().map(|fault| format!("cluster.{field} {}: {fault}", words::printable(value)))
    };
    check("name", &cluster.name, place::cluster)
        .or_else(|| check("region", &cluster.region, place::region))
        .or_else(|| check("version", &cluster.version, place::kubernetes_version))
}

/// The longest span of a step.
pub(crate) const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);

impl Step {
    /// What is wrong with it, whatever was done before.
    fn fault(&self) -> Option<String> {
        let sold_as = |stock: &Stock| {
            let known = ["*", labels::CAPACITY_SPOT, labels::CAPACITY_ON_DEMAND, labels::CAPACITY_RESERVED];
            (!known.contains(&stock.capacity_type.as_str()))
                .then(|| format!("capacity-type {:?}: write spot, on-demand or reserved", stock.capacity_type))
        };
        match self {
            Self::Notice(notice) if TIMES_MAX < notice.times => return Some(format!("times {}: at most {TIMES_MAX}", notice.times)),
            Self::StockOut(stock) | Self::Restock(stock) if let Some(fault) = sold_as(stock) => return Some(fault),
            _ => {}
        }
        self.spans().into_iter().find_map(|span| match span.span() {
            time if time.is_negative() => Some(format!("{span}: time only goes forward: leave out the minus")),
            time if LONGEST < time => Some(format!("{span} is too long: at most {} hours, 366 days", LONGEST.as_hours())),
            _ => None,
        })
    }

    /// The spans of time in it.
    fn spans(&self) -> Vec<&GoDuration> {
        match self {
            Self::Advance(span) | Self::UnshowYoung(span) | Self::UnlistNewest(span) | Self::Ticks(span) => vec![span],
            Self::Wait(wait) => vec![&wait.within],
            Self::Stays(stays) => vec![&stays.span],
            Self::ZonalShift(shift) => vec![&shift.span],
            Self::Reserve(reserve) => reserve.ends_in.iter().collect(),
            Self::Faults(faults) => {
                [&faults.fleets_throttled, &faults.api_server_down, &faults.table_throttled].into_iter().flatten().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Scenario {
    /// The path of a file; `.yaml` may be omitted.
    pub fn file(&self, name: &str) -> PathBuf {
        let plain = self.files.join(name);
        if plain.extension().is_some() { plain } else { self.files.join(format!("{name}.yaml")) }
    }
}
