//! The input of `plan`, `consolidate` and `explain`: manifests, a cluster, instance types, and the time.
//!
//! The groups below are in the order of reading: arguments become documents, documents the objects of a cluster, these get what its API
//! server and controllers would add, and instance types are found for them.

// From arguments to documents.
pub mod files; // the one reader of files
mod documents; // splits texts, and finds the errors of each document separately
pub(crate) mod unique; // JSON in which no key stands twice
mod error; // errors of unreadable input

// From documents to the objects of a cluster.
mod manifests; // kind by kind
mod workloads; // what has pods, and what selects them
mod identity; // the same object twice
mod replacement; // files over a cluster, `--changed` over both
pub(crate) mod settings; // the ConfigMap `plan-settings`, and the time
mod options; // options of several commands

// What an API server would refuse or add.
pub(crate) mod acceptance; // errors in kinds of Kubernetes
pub(crate) mod served; // misspelt kinds
pub(crate) mod immutable; // fields that keep their first value
mod complete; // defaults
mod runtime_classes; // what RuntimeClasses add to pods
mod limit_ranges; // the requests that containers lack

// What controllers would make.
mod expansion; // pods of workloads; of changed ones, those after their rollout
mod autoscalers; // how many pods a workload has
mod stateful; // volumes of StatefulSets
mod ephemeral; // claims for ephemeral volumes
mod budgets; // the status of new PodDisruptionBudgets
mod drift; // of machines whose NodePool or class is changed
mod unplanned; // kinds that make pods and are not read
mod hooks; // what Helm creates for a moment, or for tests

// What can be bought.
pub mod catalog; // from a file
mod offers; // or from a region's tables, by NodePool
mod zones; // the names of zones in the account
mod running; // what running machines say of these tables
mod market; // with prices of running nodes

// What is remarked on.
pub(crate) mod remarks; // how remarks are printed
mod input_remarks; // those on all kinds of objects, by what they are about
pub(crate) mod classes; // node classes that are missing, or partly without effect
pub(crate) mod requirements; // those of NodePools that no type can meet
pub(crate) mod others; // NodePools of other controllers
mod statics; // NodePools with `replicas`
pub(crate) mod daemons; // pods without room on running nodes
pub(crate) mod left_aside; // pods that are neither planned nor on a known node
pub(crate) mod preferences; // those of pods that were dropped
pub(crate) mod protections; // annotations that protect nothing
mod incomplete; // kinds that the dump lacks

mod answer; // what a command prints, and its exit code

pub(crate) use answer::Answer;
pub(crate) use documents::ParsedDocuments;
pub use error::ReadError;
pub(crate) use expansion::planned_deployment;
pub use expansion::{Added, Replicas};
use manifests::Layers;
#[cfg(test)]
pub(crate) use manifests::read_stored;
pub use manifests::{Expansion, Manifests, read, read_text};
pub(crate) use manifests::{assumed_creation, read_over};
pub(crate) use market::{Market, Paid, PriceList};
pub use offers::Offers;
use offers::refuse_classes;
pub(crate) use offers::{InstanceTypesByPool, prices_missing};
pub(crate) use options::options;
pub use options::{Format, ObjectiveArg, PackingArg, ReportFormat};
pub use remarks::{Importance, Remark};
pub use settings::When;

use crate::look::{ClusterArgs, Live, Purpose};
use crate::printing::complain;
use clap::Args;
use jiff::Timestamp;
use std::path::PathBuf;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;
use whittle_api::objective::machine_cost;
use whittle_api::{ConditionStatus, conditions};
use whittle_solver::buffers::Buffer;
use whittle_solver::overlays::{self, OverlayStatus};
use whittle_units::Price;

/// The input of `plan`, `consolidate` and `explain`.
#[derive(Args, Debug, Clone, Default)]
pub struct Source {
    /// Manifests: a file, a directory (its *.yaml, *.yml and *.json) or - for standard input; may be given more than once. What
    /// `kubectl get -o yaml` prints will do. With --context these objects count instead of those in the cluster
    #[arg(short = 'f', long = "filename", value_name = "MANIFESTS")]
    pub files: Vec<PathBuf>,
    /// What if: manifests that count instead of the objects of the same names in -f, or in the cluster of --context, as if they were
    /// applied; may be given more than once
    #[arg(long, value_name = "MANIFESTS")]
    pub changed: Vec<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub offers: Offers,
    /// The time at which to decide, such as 2026-01-01T00:00:00Z. Without it: key `now` of a ConfigMap `plan-settings` among the
    /// manifests, else the present (with --instance-types 2026-01-01T00:00:00Z, so that the same files give the same answer).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub now: Option<Timestamp>,
    /// What if: another number of replicas for a workload of the manifests, such as web=20; may be given more than once. Pods that are not
    /// among the manifests are planned as pending. Only for `plan` and `explain`
    #[arg(long, value_name = "NAME=N")]
    pub replicas: Vec<Replicas>,
    /// Which plan is best among those that place the same number of pods. Without it: key `objective` of `plan-settings`, else balanced
    #[arg(long, value_enum)]
    pub objective: Option<ObjectiveArg>,
    /// What a machine costs besides its price and its volumes, in the region's currency per hour, for the objective balanced. Without it:
    /// key `machineCost` of `plan-settings`, else 0.05
    #[arg(long, value_name = "PRICE", value_parser = machine_cost, allow_negative_numbers = true)]
    pub machine_cost: Option<Price>,
}

/// A time of the command line.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    let is_date = |text: &str| text.trim_end_matches(['Z', 'z']).parse::<jiff::civil::DateTime>().is_ok();
    text.parse().map_err(|_| match text.ends_with(['Z', 'z']) && is_date(text) {
        true => format!("no time so far away is computed with: write one up to {}", Timestamp::MAX.strftime("%FT%TZ")),
        false => "write date, time and zone, as in 2026-01-01T00:00:00Z".to_owned(),
    })
}

impl Source {
    /// One file and a catalog.
    #[must_use]
    pub fn of_case(manifests: PathBuf, instance_types: PathBuf) -> Self {
        let offers = Offers { instance_types: Some(instance_types), region: None };
        Self { files: vec![manifests], offers, ..Self::default() }
    }

    /// Reads everything; prints on standard error which objects have no effect, and keeps that for reports.
    ///
    /// # Errors
    /// Unreadable input, with its position.
    pub(crate) fn read(&self, command: &str) -> Result<(Manifests, Market), ReadError> {
        self.read_in(command, None)
    }

    /// The same; `region` counts where neither an option nor a node nor the API server's address names one.
    pub(crate) fn read_in(&self, command: &str, region: Option<&str>) -> Result<(Manifests, Market), ReadError> {
        let (reading, layers) = self.begin(command, region)?;
        let read = reading.complete(layers)?;
        read.0.remarks.iter().for_each(|remark| complain!("{remark}"));
        Ok(read)
    }

    /// The same, and what there is without the objects of --changed, if any are given and none of them is refused.
    pub(crate) fn read_with_unchanged(&self, command: &str) -> Result<(Manifests, Market, Option<Unchanged>), ReadError> {
        let (mut reading, mut layers) = self.begin(command, None)?;
        let (unchanged, refused) = (layers.without_changes(), layers.change_is_refused());
        let (read, market) = reading.complete(layers)?;
        read.remarks.iter().for_each(|remark| complain!("{remark}"));
        // What is to have other numbers may be new.
        let known: Vec<Replicas> = self.replicas.iter().map(Replicas::if_there).collect();
        if matches!(reading.expansion, Expansion::Missing(_)) {
            reading.expansion = Expansion::Missing(&known);
        }
        let unchanged = unchanged.map(|unchanged| if refused { Err(ReadError::RefusedChange) } else { reading.complete(unchanged) });
        Ok((read, market, unchanged))
    }

    /// Reads files and the cluster.
    fn begin<'a>(&'a self, command: &str, region: Option<&'a str>) -> Result<(Reading<'a>, Layers), ReadError> {
        let live = self.cluster.live();
        let from_catalog = self.offers.instance_types.is_some();
        let when = match self.now {
            Some(now) => When::At(now),
            None if from_catalog && live.is_none() => When::golden_default(),
            None => When::Default(Timestamp::now()),
        };
        if live.is_none() && self.files.is_empty() {
            return Err(ReadError::Nothing { command: command.to_owned() });
        }
        let expansion = self.expansion(command)?;
        let cluster = live.as_ref().map(|live| live.read(Purpose::Decide)).transpose()?;
        let layers = Layers::read(cluster, &self.files, &self.changed)?;
        Ok((Reading { source: self, live, when, expansion, region }, layers))
    }
}

/// What there is without changes, if it can be used.
pub(crate) type Unchanged = Result<(Manifests, Market), ReadError>;

/// How documents become the input of a decision.
struct Reading<'a> {
    source: &'a Source,
    live: Option<Live>,
    when: When,
    expansion: Expansion<'a>,
    region: Option<&'a str>,
}

impl Reading<'_> {
    /// The objects of documents, what may be bought for them, and what there is to say of them.
    fn complete(&self, layers: Layers) -> Result<(Manifests, Market), ReadError> {
        let Self { source, live, .. } = self;
        let from_catalog = source.offers.instance_types.is_some();
        let mut found = layers.assemble(self.when, self.expansion)?;
        found.leave_others_aside();
        if let Some(objective) = source.objective {
            found.settings.objective = objective.objective();
        }
        found.settings.machine_cost = source.machine_cost.unwrap_or(found.settings.machine_cost);
        let elsewhere = || live.as_ref().and_then(Live::region).or_else(|| self.region.map(str::to_owned));
        // A catalog has what a class makes of its types already.
        let refused = if from_catalog { Vec::new() } else { refuse_classes(&mut found) };
        found.refused.extend(refused);
        let mut market = source.offers.read_of(&found, elsewhere)?;
        found.unlisted.clone_from(&market.unlisted);
        let invalid = without_invalid_pools(&mut found.objects.node_pools, &mut market.types, found.settings.now);
        // What a schema refuses has a warning with its place already.
        let told = |(field, _): &(String, String)| found.warnings.iter().any(|warning| warning.contains(field));
        let untold: Vec<_> = invalid.into_iter().filter(|fault| !told(fault)).collect();
        found.refused.extend(untold.into_iter().map(|(field, why)| format!("{field}: {why}; until then nothing is launched for it")));
        let mut remarks = input_remarks::of_objects(&found);
        if live.is_none() {
            remarks.extend(incomplete::remarks(&found.objects));
        }
        remarks.extend(market.assumptions.iter().cloned().map(Remark::note));
        if found.objects.node_overlays.is_empty() {
            remarks.extend(statics::remarks(&found, &market.types));
        } else {
            let overlaid = with_overlays(&found, market.types.clone());
            remarks.extend(unused_overlays(&found, &market.types));
            remarks.extend(statics::remarks(&found, &overlaid));
            market.prices = market.prices.overlaid(&overlaid);
        }
        if !from_catalog {
            remarks.extend(input_remarks::of_classes(&found));
            if live.is_some() {
                remarks.extend(input_remarks::assumed_subnets(&found));
            }
        }
        remarks.extend(input_remarks::of_pools(&found.objects.node_pools));
        if from_catalog {
            remarks.extend(input_remarks::skipped_classes(&found));
        }
        found.remarks = remarks;
        Ok((found, market))
    }
}

impl Source {
    /// Pods that no node runs matter to what is launched. To what is removed they do not: a workload without pods in a dump has none.
    fn expansion(&self, command: &str) -> Result<Expansion<'_>, ReadError> {
        match (command, self.replicas.first()) {
            ("consolidate" | "compare", None) => Ok(Expansion::Off),
            ("consolidate" | "compare", Some(replicas)) => Err(ReadError::Replicas {
                name: replicas.to_string(),
                message: format!("{command} decides about the pods that there are: use plan or explain, or leave this out"),
            }),
            _ => Ok(Expansion::Missing(&self.replicas)),
        }
    }
}

/// Capacity buffers, and messages for those that cannot be resolved; none where the feature gate is off.
fn buffers(read: &Manifests) -> (Vec<Buffer>, Vec<String>) {
    if read.settings.gate("CapacityBuffer", true) { read.workloads.resolved(read.settings.now) } else { Default::default() }
}

/// Capacity buffers and all their virtual pods.
pub(crate) fn buffers_with_pods(read: &Manifests) -> (Vec<Buffer>, Vec<Pod>) {
    let (buffers, _) = buffers(read);
    let pods = buffers.iter().flat_map(|buffer| buffer.pods.iter().cloned()).collect();
    (buffers, pods)
}

/// Takes the types from pools whose templates are invalid, as the functions do, and says which field of which pool is wrong, and why.
fn without_invalid_pools(pools: &mut [NodePool], offered: &mut InstanceTypesByPool, now: Timestamp) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for pool in pools {
        let faults = whittle_api::runtime::node_pool(pool).errors;
        if faults.is_empty() {
            continue;
        }
        offered.remove(&pool.metadata.name);
        let conditions = &mut pool.status.conditions;
        let (type_, reason) = (conditions::VALIDATION_SUCCEEDED, conditions::POOL_INVALID);
        let message: Vec<String> = faults.iter().map(ToString::to_string).collect();
        conditions::set(conditions, type_, ConditionStatus::False, reason, &message.join("; "), now);
        let name = NodePool::given_name(&pool.metadata.name);
        all.extend(faults.into_iter().map(|fault| (format!("NodePool {name:?}, {}", fault.path), fault.message)));
    }
    all
}

/// The NodeOverlays that change nothing, and why.
fn unused_overlays(read: &Manifests, offered: &InstanceTypesByPool) -> Vec<Remark> {
    let remark = |(name, why): (&str, String)| Remark::warning(format!("NodeOverlay {name:?} has no effect: {why}"));
    if !overlays_apply(read) {
        let off = || "plan-settings turns the feature gate NodeOverlay off".to_owned();
        return read.objects.node_overlays.iter().map(|overlay| remark((&overlay.metadata.name, off()))).collect();
    }
    let statuses = overlays::apply(&read.objects.node_overlays, &read.objects.node_pools, offered.clone()).statuses;
    let why = |status: &OverlayStatus| match status {
        OverlayStatus::Used => None,
        OverlayStatus::Unmatched => Some(
            "no instance type that a NodePool is offered meets spec.requirements: compare their keys and values with the labels of the \
             NodePools' templates, and with those of the types, as `whittle catalog` prints them"
                .to_owned(),
        ),
        OverlayStatus::Invalid(error) => Some(error.clone()),
        OverlayStatus::Conflict(other) => {
            Some(format!("NodeOverlay {other:?} of the same weight changes the same: give one of them another weight"))
        }
    };
    statuses.iter().filter_map(|(name, status)| Some(remark((name, why(status)?)))).collect()
}

fn overlays_apply(read: &Manifests) -> bool {
    read.settings.gate("NodeOverlay", true)
}

/// Whether NodePools with `replicas` keep that many machines: by default, as in a cluster (ADR 0014).
pub(crate) fn static_pools_apply(read: &Manifests) -> bool {
    read.settings.gate("StaticCapacity", true)
}

/// The instance types with NodeOverlays applied, unless their feature gate is off.
pub(crate) fn with_overlays(read: &Manifests, offered: InstanceTypesByPool) -> InstanceTypesByPool {
    if !overlays_apply(read) {
        return offered;
    }
    overlays::apply(&read.objects.node_overlays, &read.objects.node_pools, offered).catalog
}
