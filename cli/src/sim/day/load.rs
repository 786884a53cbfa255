//! The load: Deployments, and their replicas at each minute.

use super::DayArgs;
use crate::sim::manifests;
use clap::ValueEnum;
use std::fmt::Write as _;

/// The shape of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A quarter of the peak at night, the peak at noon
    #[default]
    Diurnal,
    /// A fifth of the peak, with batches up to the peak in the first twenty minutes of each hour
    Batch,
    /// From three tenths of the peak to the peak, in steps of a quarter of an hour
    Growth,
}

/// The memory requests of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Memory {
    /// Applications with one, two, four and seven GiB per core
    #[default]
    Mixed,
    /// Two GiB per core
    Even,
}

/// What may be bought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CapacityType {
    #[default]
    OnDemand,
    Spot,
}

/// The number of Deployments, each with a phase shift.
pub(super) const APPS: u32 = 20;
/// Share of the peak in each hour of a diurnal day, in percent.
const DIURNAL: [u32; 24] = [35, 30, 25, 25, 25, 30, 40, 55, 70, 85, 95, 100, 100, 95, 95, 95, 90, 90, 85, 75, 65, 55, 45, 40];
/// CPU requests of the apps' pods, in millicores.
const SIZES: [u32; 5] = [250, 500, 750, 1_000, 2_000];
/// Cores of the machines in which the peak is expressed.
const CORES: u32 = 8;

impl Kind {
    /// Minutes between two changes of the load.
    pub(super) fn step(self) -> u32 {
        if self == Kind::Batch { 20 } else { 15 }
    }

    /// The default duration, in hours.
    pub(super) fn hours(self) -> u32 {
        if self == Kind::Growth { 7 * 24 } else { 24 }
    }

    /// The app's load at a minute, in percent of its peak.
    fn percent(self, app: u32, minute: u32) -> u32 {
        match self {
            Kind::Diurnal => {
                let shifted = minute + 24 * 60 + app * 9 - 90;
                let at = |hour: u32| DIURNAL[(hour % 24) as usize];
                let (hour, part) = (shifted / 60, shifted % 60);
                (at(hour) * (60 - part) + at(hour + 1) * part) / 60
            }
            Kind::Batch if minute % 60 < 20 => 100,
            Kind::Batch => 20,
            Kind::Growth => (30 + 70 * minute / (Kind::Growth.hours() * 60)).min(100),
        }
    }
}

impl DayArgs {
    /// Cores of one pod of an app, in thousandths, and MiB.
    fn size(&self, app: u32) -> (u32, u32) {
        let size = SIZES[(app % 5) as usize];
        let gib = if self.memory == Memory::Mixed { [1, 2, 4, 7][(app / 5 % 4) as usize] } else { 2 };
        (size, size * gib)
    }

    /// The app's replicas at a minute.
    pub(super) fn replicas(&self, app: u32, minute: u32) -> u32 {
        // Part of a machine is reserved for the system.
        let peak = self.nodes * (CORES * 1_000 - 500) / APPS / self.size(app).0;
        peak * self.kind.percent(app, minute) / 100
    }

    pub(super) fn deployment(&self, app: u32) -> String {
        let (cpu, memory) = self.size(app);
        manifests::deployment(app, 0, cpu, memory)
    }

    pub(super) fn pool(&self) -> String {
        let capacity_type = match self.capacity_type {
            CapacityType::OnDemand => "on-demand",
            CapacityType::Spot => "spot",
        };
        let cores = format!("{{key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: [\"{}\"]}}", self.cores + 1);
        let mut requirements = vec![
            "{key: kubernetes.io/arch, operator: In, values: [amd64]}",
            "{key: kubernetes.io/os, operator: In, values: [linux]}",
            "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}",
            "{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"4\"]}",
        ];
        if self.cores > 0 {
            requirements.push(&cores);
        }
        let disruption = "{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 60s, budgets: [{nodes: 10%}]}";
        manifests::pool(capacity_type, &requirements, disruption)
    }

    /// The pool and all pods of a minute, all of them pending.
    pub(super) fn pending(&self, minute: u32) -> String {
        let mut out = self.pool();
        for app in 0..APPS {
            let (cpu, memory) = self.size(app);
            for pod in 0..self.replicas(app, minute) {
                let _ = write!(
                    out,
                    "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: app-{app}-{pod}, namespace: default, labels: {{app: app-{app}}}}}, spec: \
                     {{containers: [{{name: app, image: app, resources: {{requests: {{cpu: {cpu}m, memory: {memory}Mi}}}}}}]}}}}\n"
                );
            }
        }
        out
    }
}
