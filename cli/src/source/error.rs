//! Errors of unreadable input, with position and remedy.

use super::files::FileError;
use crate::look::LiveError;
use whittle_api::scheduler_config::SchedulerConfigError;

/// Why input could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Live(#[from] LiveError),
    /// All errors of a file, one line each.
    #[error("{}", .0.join("\n"))]
    Manifest(Vec<String>),
    #[error("there is nothing to look at: name manifests with -f, as in `whittle {command} -f cluster.json`, or a cluster with --context")]
    Nothing { command: String },
    #[error("there is no object in {}: give manifests, such as `kubectl get -o yaml` prints them", .0.join(", "))]
    NoObjects(Vec<String>),
    /// Refused objects, which were told, might protect pods or nodes, so that nothing can be disrupted safely.
    #[error("nothing is decided, because what is refused may protect pods and nodes: fix it, or leave it out")]
    BlocksDisruption,
    /// Objects of a change are refused, which were told: without them it is another change.
    #[error("nothing is compared, because the change was not read as a whole: fix what is refused of --changed, or leave it out")]
    RefusedChange,
    #[error("{path}, document {document}: {object}{}{field}: {message}", if .field.is_empty() { "" } else { ", " })]
    Object { path: String, document: usize, object: String, field: String, message: String },
    #[error("--replicas {name}: {message}")]
    Replicas { name: String, message: String },
    #[error("plan-settings: schedulerConfig: {0}")]
    SchedulerConfig(#[from] SchedulerConfigError),
    #[error("plan-settings: {key} cannot be {value:?}: {remedy}")]
    Setting { key: &'static str, value: String, remedy: &'static str },
    #[error("plan-settings: {key:?} is no setting, and would not count: known are {}", .known.join(", "))]
    UnknownSetting { key: String, known: &'static [&'static str] },
    #[error("cannot read the catalog {path}: {message}; `whittle catalog` prints one, and its --help explains it")]
    Catalog { path: String, message: String },
    #[error(
        "what there is to buy is not known: name a region with --region (one of {}), or a catalog with --instance-types; nodes with \
         the label topology.kubernetes.io/region name the region too",
        .known.join(", ")
    )]
    NoOffers { known: &'static [&'static str] },
    #[error(
        "there are no tables of region {region}, only of {}: make a catalog, such as with `whittle catalog --region {} --rename {region}`, \
         correct its prices, and name it with --instance-types (`whittle catalog --help`)",
        .known.join(", "), whittle_ec2::facts::tables::price_stand_in(region)
    )]
    NoTables { region: String, known: &'static [&'static str] },
    #[error("EC2NodeClass {name:?}: {message}")]
    NodeClass { name: String, message: String },
}

impl ReadError {
    /// The error, each line of it for itself.
    pub(super) fn lines(self) -> Vec<String> {
        match self {
            Self::Manifest(lines) => lines,
            other => vec![other.to_string()],
        }
    }
}
