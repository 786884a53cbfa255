//! Logs and metrics of the functions. A log line is JSON; what a run prints is in `whittle_ports::telemetry`.

use crate::Function;
use crate::events::Work;
use serde_json::Value;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use whittle_aws::BegunBatch;
use whittle_ports::metrics;
use whittle_ports::telemetry::{self, Telemetry};
use whittle_ports::{HandleError, Report, Settings};
use whittle_units::{SignedDuration, Timestamp};

/// Logs as JSON lines on standard output, at the level of `RUST_LOG` (`info` when unset).
pub fn init_logs() {
    let (filter, fault) = filter(std::env::var(EnvFilter::DEFAULT_ENV).ok().as_deref());
    // A second call (tests) keeps the first subscriber.
    let _ = tracing_subscriber::fmt().json().with_env_filter(filter).with_current_span(false).with_ansi(false).without_time().try_init();
    if let Some(reason) = fault {
        tracing::warn!(%reason, "the parameter LogLevel cannot be read, and info is used: deploy with a level, such as info or warn");
    }
}

/// The filter that is asked for, `info` where none is; and why it cannot be used, which is then `info` as well.
fn filter(asked: Option<&str>) -> (EnvFilter, Option<String>) {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return (EnvFilter::new("info"), None) };
    match EnvFilter::try_new(asked) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(format!("{asked:?}: {error}"))),
    }
}

/// Adds sizes and waits of batches of calls to EC2.
pub(crate) fn add_batches(report: &mut Report, batches: &[BegunBatch]) {
    for batch in batches {
        let (batcher, size) = (batch.batcher, u64::try_from(batch.size).unwrap_or(u64::MAX));
        report.observe(metrics::BatchSize { batcher }, size);
        report.observe(metrics::BatchTime { batcher }, SignedDuration::try_from(batch.waited).unwrap_or(SignedDuration::MAX));
    }
}

/// The lines of one work item, which may be left to the next tick if it fails: one with its outcome, and one per set of labels. The
/// settings name the metrics that CloudWatch gets, and their namespace.
pub fn lines(
    (at, settings): (Timestamp, &Settings),
    function: Function,
    (work, is_alone): (&Work, bool),
    took: Duration,
    outcome: &Result<Report, HandleError>,
) -> Vec<Value> {
    let cluster = work.cluster().map_or("all", |cluster| cluster.as_str());
    let run = Telemetry { at, function, cluster, level: settings.metrics, namespace: &settings.metrics_namespace, is_alone };
    telemetry::lines(&run, took, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_ports::metrics::Level;

    #[test]
    fn a_run_for_no_single_cluster_is_of_all() {
        let settings = Settings::default();
        let of = |work: &Work| {
            let lines =
                lines((Timestamp::UNIX_EPOCH, &settings), Function::Interrupt, (work, false), Duration::ZERO, &Ok(Report::default()));
            lines[0]["cluster"].clone()
        };
        assert_eq!(of(&Work::Notice(String::new())), "all");
        assert_eq!(of(&Work::Cluster("prod".into())), "prod");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_told_and_logs_what_the_default_does() {
        for (asked, used) in [(None, "info"), (Some(""), "info"), (Some("warn"), "warn"), (Some("kube=debug"), "kube=debug")] {
            let (filter, fault) = filter(asked);
            assert_eq!((filter.to_string().as_str(), fault), (used, None), "{asked:?}");
        }
        let (filter, fault) = filter(Some("info,whittle_aws=loud"));
        assert_eq!(filter.to_string(), "info");
        assert!(fault.is_some_and(|fault| fault.starts_with("\"info,whittle_aws=loud\": ")));
    }

    /// To the filter a word that is no level is a module: a misspelt level would leave the logs without errors, and so would levels of
    /// modules alone.
    #[test]
    fn the_template_takes_a_level_for_all_modules() {
        assert_eq!(filter(Some("inof")).1, None, "the functions cannot tell");
        let template = include_str!("../../../template.yaml");
        let (_, parameter) = template.split_once("\n  LogLevel:\n").expect("it has the parameter");
        let (_, pattern) = parameter.split_once("AllowedPattern: '").expect("it has a pattern");
        let (pattern, _) = pattern.split_once('\'').expect("it ends");
        let (_, levels) = pattern.split_once("+=(").expect("it lists levels");
        let (levels, _) = levels.split_once(')').expect("the list ends");
        let (module, any) = ("[A-Za-z0-9_:-]+=", format!("({levels})"));
        assert_eq!(pattern, format!("^({module}{any},)*{any}(,({module})?{any})*$"), "one level is for all modules");
        for level in levels.split('|') {
            assert!(level.parse::<tracing::level_filters::LevelFilter>().is_ok(), "{level}");
        }
        assert!(parameter.find("AllowedPattern") < parameter.find("LogRetentionDays"), "it is that of LogLevel");
    }

    #[test]
    fn the_settings_name_level_and_namespace_of_the_metrics() {
        let printed = |settings: &Settings| {
            let failed = Err(HandleError::PlanRefused { cluster: "prod".to_owned(), reason: "r".to_owned() });
            let work = Work::Cluster("prod".into());
            let lines = lines((Timestamp::UNIX_EPOCH, settings), Function::Launch, (&work, false), Duration::ZERO, &failed);
            lines.iter().filter_map(|line| Some(line["_aws"]["CloudWatchMetrics"][0]["Namespace"].as_str()?.to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(printed(&Settings::default()), ["Whittle"]);
        let own = Settings { metrics: Level::Full, metrics_namespace: "Whittle/dev".to_owned(), ..Settings::default() };
        assert_eq!(printed(&own), ["Whittle/dev", "Whittle/dev"]);
    }
}
