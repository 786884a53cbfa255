//! A quiet and a busy stretch of a cluster, simulated with the real functions, and what each hour of them uses.

use super::bill::SPOT_PRICE_MINUTES;
use super::metered::{Metered, Printed, level};
use super::{Interrupted, Size};
use crate::local::session::{Place, Session, SessionError};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use whittle_ports::Settings;
use whittle_sim::cluster::PodCounts;
use whittle_sim::{Function, Invoked, Meter, Units};

/// Between the last change and the first quiet minute: passes of consolidation end, and every verdict is written.
const SETTLING: SignedDuration = SignedDuration::from_mins(12);
/// How long it is observed: spot prices are read once in that time.
const QUIET_MINUTES: u32 = 30;
/// Minutes of a wave: its pods come at the beginning and go in the middle.
const WAVE_MINUTES: u32 = 10;
/// Waves of the busy stretch.
const WAVES: u32 = 3;
/// How long a cluster may take to get all its nodes.
const FILLING_MINUTES: u32 = 60;

/// What an hour of a stretch uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Hourly {
    pub(super) functions: BTreeMap<Function, Rates>,
    /// Units by function and kind of item.
    pub(super) table: BTreeMap<(Function, &'static str), (f64, f64)>,
    /// Metrics that were reported.
    pub(super) series: f64,
    pub(super) violations: Vec<String>,
}

/// What a function does in an hour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) invocations: f64,
    pub(super) ticks: f64,
    pub(super) runs: f64,
    pub(super) waited_seconds: f64,
    /// Of this process, for a run.
    pub(super) processor_ms: f64,
    pub(super) messages: f64,
    pub(super) batches: f64,
    pub(super) log_bytes: f64,
}

/// Both stretches, and the table's size.
#[derive(Clone, Debug, Default)]
pub(super) struct Simulated {
    pub(super) quiet: Hourly,
    pub(super) busy: Hourly,
    /// Nodes and pods at the end.
    pub(super) left: (usize, usize),
    pub(super) table_bytes: u64,
}

/// Simulates a cluster of this size. `progress` is told what is being done.
pub(super) fn simulate(size: &Size, progress: &mut dyn FnMut(&str)) -> Result<Simulated, Interrupted> {
    let printed = Arc::new(Mutex::new(Printed::default()));
    let kept = Arc::clone(&printed);
    let place = Place { region: size.region.clone(), ..Place::default() };
    let mut session = Session::with_functions(&place, |handlers| Arc::new(Metered::new(handlers, kept)));
    let spot_price_refresh = SignedDuration::from_mins(i64::from(SPOT_PRICE_MINUTES));
    session.set(Settings { metrics: level(size.all_metrics), spot_price_refresh, ..session.settings() });
    session.simulation.world().faults.ticks_work = size.clusters == 1;
    let mut cluster = Cluster { session: &mut session, printed: &printed, size };
    progress("filling the cluster");
    cluster.fill()?;
    cluster.session.advance(SETTLING);
    progress("a quiet stretch");
    let quiet = cluster.observe(QUIET_MINUTES, false)?;
    progress("a busy stretch");
    let busy = if size.launches > 0 { cluster.observe(WAVES * WAVE_MINUTES, true)? } else { quiet.clone() };
    let world = session.simulation.world();
    let table_bytes = world.table_bytes();
    Ok(Simulated { quiet, busy, left: (world.cluster.objects.nodes.len(), world.cluster.objects.pods.len()), table_bytes })
}

struct Cluster<'a> {
    session: &'a mut Session,
    printed: &'a Mutex<Printed>,
    size: &'a Size,
}

impl Cluster<'_> {
    /// Starts the nodes, and then their pods.
    fn fill(&mut self) -> Result<(), Interrupted> {
        let size = self.size;
        for pool in 0..size.pools {
            self.session.apply_text("pool.yaml", &node_pool(pool))?;
        }
        self.session.apply_text("class.yaml", CLASS)?;
        for pool in 0..size.pools {
            self.session.apply_text("base.yaml", &deployment("base", pool, share(size.nodes, pool, size.pools), LARGE))?;
            self.session.apply_text("wave.yaml", &deployment("wave", pool, 0, LARGE))?;
        }
        self.wait(size.nodes)?;
        let small = size.pods.saturating_sub(size.nodes);
        for pool in 0..size.pools {
            self.session.apply_text("small.yaml", &deployment("small", pool, share(small, pool, size.pools), SMALL))?;
        }
        self.wait(size.pods.max(size.nodes))
    }

    /// Waits until this many pods run.
    fn wait(&mut self, pods: u32) -> Result<(), Interrupted> {
        for _ in 0..FILLING_MINUTES * 6 {
            self.session.advance(SignedDuration::from_secs(10));
            let world = self.session.simulation.world();
            if world.cluster.pod_counts(|_| true) == PodCounts::all_running(pods as usize) {
                return Ok(());
            }
        }
        Err(Interrupted::NotFilled { nodes: self.size.nodes, minutes: FILLING_MINUTES })
    }

    fn observe(&mut self, minutes: u32, waves: bool) -> Result<Hourly, SessionError> {
        *self.printed.lock().unwrap_or_else(PoisonError::into_inner) = Printed::default();
        self.session.simulation.world().meter = Some(Box::default());
        for minute in 0..minutes {
            if waves && minute % (WAVE_MINUTES / 2) == 0 {
                let up = minute % WAVE_MINUTES == 0;
                for pool in 0..self.size.pools {
                    let all = (self.size.launches * WAVE_MINUTES).div_ceil(60);
                    let replicas = if up { share(all, pool, self.size.pools) } else { 0 };
                    self.session.scale(&format!("wave-{pool}"), i32::try_from(replicas).unwrap_or(i32::MAX))?;
                }
            }
            self.session.advance(SignedDuration::from_mins(1));
        }
        let mut world = self.session.simulation.world();
        let meter = world.meter.take().unwrap_or_default();
        let printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(hourly(&meter, &printed, f64::from(minutes) / 60.0, world.violations.clone()))
    }
}

/// What an hour uses, from what a stretch of `hours` did.
fn hourly(meter: &Meter, printed: &Printed, hours: f64, violations: Vec<String>) -> Hourly {
    let rate = |count: u64| real(count) / hours;
    let of = |(function, invoked): (&Function, &Invoked)| {
        let rates = Rates {
            invocations: rate(invoked.invocations),
            ticks: rate(invoked.ticks),
            runs: rate(invoked.runs),
            waited_seconds: invoked.waited.as_secs_f64() / hours,
            processor_ms: if invoked.runs == 0 { 0.0 } else { invoked.processor.as_secs_f64() * 1e3 / real(invoked.runs) },
            messages: rate(invoked.messages),
            batches: rate(invoked.batches),
            log_bytes: rate(printed.bytes.get(function).copied().unwrap_or(0)),
        };
        (*function, rates)
    };
    let units = |(key, units): (&(Function, &'static str), &Units)| (*key, (rate(units.reads), rate(units.writes)));
    Hourly {
        functions: meter.functions().iter().map(of).collect(),
        table: meter.table().iter().map(units).collect(),
        series: real(u64::try_from(printed.series.len()).unwrap_or(u64::MAX)),
        violations,
    }
}

/// A count to calculate with.
#[expect(clippy::cast_precision_loss, reason = "a bill has fewer digits")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// The part of a number that a pool gets.
fn share(all: u32, pool: u32, pools: u32) -> u32 {
    all / pools + u32::from(pool < all % pools)
}

/// Requests of a pod that no other of its kind fits beside on a machine of eight cores.
const LARGE: (u32, u32) = (5_000, 5_000);
/// Requests of the other pods.
const SMALL: (u32, u32) = (50, 50);

const CLASS: &str = "apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: KarpenterNodeRole-demo
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
";

fn node_pool(pool: u32) -> String {
    format!(
        "apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: pool-{pool}}}
spec:
  limits: {{cpu: \"100000\"}}
  template:
    spec:
      requirements:
        - {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}
        - {{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}}
        - {{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"4\"]}}
        - {{key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"8\"]}}
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
      expireAfter: Never
  disruption: {{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 30s, budgets: [{{nodes: 100%}}]}}
"
    )
}

fn deployment(kind: &str, pool: u32, replicas: u32, (cpu, memory): (u32, u32)) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {kind}-{pool}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {kind}-{pool}}}}}
  template:
    metadata: {{labels: {{app: {kind}-{pool}}}}}
    spec:
      nodeSelector: {{karpenter.sh/nodepool: pool-{pool}}}
      containers:
        - {{name: app, image: app, resources: {{requests: {{cpu: {cpu}m, memory: {memory}Mi}}}}}}
"
    )
}
