//! `whittle sim burst`: many pods at once in a cluster without nodes, planned by the schedule function, with the peak memory of
//! the process. The simulated cluster and region are part of the process, so the figure is an upper bound.

use super::manifests;
use crate::local::session::{Place, Session, SessionError};
use crate::numbers;
use clap::Args;
use jiff::SignedDuration;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use whittle_sim::World;

/// `whittle sim burst`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim burst --pods 2000

Exit code: 0 if every limit and invariant held, 1 if one did not or the output cannot be written, 2 if the input is invalid.")]
pub struct BurstArgs {
    /// Pods that are created at once
    #[arg(long, default_value_t = 14_800, value_parser = numbers::within::<u32>(1..=1_000_000), allow_negative_numbers = true)]
    pub pods: u32,
    /// Fail above this peak of the process's memory, in megabytes
    #[arg(long, default_value_t = 512, value_parser = numbers::within::<u64>(1..=u64::MAX), allow_negative_numbers = true)]
    pub megabytes: u64,
}

/// Sizes of pods in millicores; each is a Deployment of its own.
const SIZES: [u32; 10] = [100, 250, 250, 500, 500, 500, 1_000, 1_000, 2_000, 4_000];
/// The maximum duration of planning.
const MINUTES_MAX: u32 = 10;

/// The outcome of a burst.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Burst {
    pub pods: usize,
    /// Pods with a claim.
    pub planned: usize,
    pub claims: usize,
    /// Seconds from the first pod to the last planned one.
    pub virtual_seconds: u32,
    pub violations: Vec<String>,
}

/// The burst as a line, with its violations.
///
/// # Errors
/// The manifests are refused.
pub fn run(args: &BurstArgs) -> Result<(String, Vec<String>), SessionError> {
    let burst = burst(args.pods)?;
    let mut wrong = burst.violations.clone();
    if burst.planned < burst.pods {
        wrong.push(format!("{} of {} pods were planned for", burst.planned, burst.pods));
    }
    let peak = peak_megabytes();
    if peak.is_some_and(|peak| peak > args.megabytes) {
        wrong.push(format!("the process took more than {} MB", args.megabytes));
    }
    let mut line = format!(
        "pods: {}, planned: {}, machines asked for: {}, virtual seconds: {}",
        burst.pods, burst.planned, burst.claims, burst.virtual_seconds
    );
    if let Some(peak) = peak {
        let _ = write!(line, ", peak of the process: {peak} MB");
    }
    Ok((line, wrong))
}

/// The peak memory of this process, if the system provides it.
fn peak_megabytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

/// Plans `pods` pods from zero nodes, with the real functions.
///
/// # Errors
/// The manifests are refused.
pub fn burst(pods: u32) -> Result<Burst, SessionError> {
    let mut session = Session::new(&Place::default());
    session
        .apply_text("pool.yaml", &manifests::pool("on-demand", &REQUIREMENTS, "{consolidationPolicy: WhenEmpty, consolidateAfter: 1h}"))?;
    // The node class is resolved first, so that only planning is measured.
    session.advance(SignedDuration::from_mins(1));
    let share = pods / u32::try_from(SIZES.len()).unwrap_or(1);
    for (app, size) in (0..).zip(SIZES) {
        let rest = if app == 0 { pods - share * u32::try_from(SIZES.len()).unwrap_or(1) } else { 0 };
        session.apply_text("app.yaml", &manifests::deployment(app, share + rest, size, size * 2))?;
    }
    let mut out = Burst::default();
    for second in 1..=MINUTES_MAX * 60 {
        session.advance(SignedDuration::from_secs(1));
        let world = session.simulation.world();
        (out.pods, out.planned, out.claims) = counts(&world);
        out.virtual_seconds = second;
        if out.pods >= pods as usize && out.planned == out.pods {
            break;
        }
    }
    out.violations.clone_from(&session.simulation.world().violations);
    Ok(out)
}

/// The number of pods, of pods with a claim, and of claims.
fn counts(world: &World) -> (usize, usize, usize) {
    let name = world.name();
    let claims: Vec<_> = world.store.claims(&name).map(|stored| &stored.value).filter(|claim| claim.is_live()).collect();
    let planned: BTreeSet<&str> = claims.iter().flat_map(|claim| &claim.spec.pods).map(|pod| pod.uid.as_str()).collect();
    let pods = world.cluster.objects.pods.values().filter(|pod| !pod.is_daemon());
    let (mut all, mut found) = (0, 0);
    for pod in pods {
        all += 1;
        found += usize::from(pod.is_bound() || planned.contains(pod.metadata.uid.as_str()));
    }
    (all, found, claims.len())
}

/// Machines of any size.
const REQUIREMENTS: [&str; 2] = [
    "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}",
    "{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: [\"4\"]}",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_of_a_burst_is_planned_once_from_zero_nodes() {
        let burst = burst(203).unwrap();
        assert_eq!((burst.pods, burst.planned), (203, 203));
        assert_eq!(burst.violations, Vec::<String>::new());
        assert!(burst.claims > 0 && burst.claims < 203, "{burst:?}");
    }
}
