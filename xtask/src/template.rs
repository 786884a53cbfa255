//! Checks `template.yaml` with SAM's own tools, and the transformed template against our requirements.

mod items;
mod prebuilt;
mod promises;
mod queues;
mod rights;
mod rules;

use crate::metric_alarms::EmittedMetrics;
use crate::{artifacts, environment, iam, shell};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The application's template.
pub(crate) const TEMPLATE: &str = "template.yaml";

/// What the watcher of one cluster needs.
const WATCHER: &str = "infra/watcher/stack.yaml";

/// The policies of Karpenter's manual walkthrough.
const REFERENCE: &str = "tests/seeds/002-iam-policies.yaml";

/// A program of the SAM environment, without account and telemetry.
pub(crate) fn tool(root: &Path, sam: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = shell::command(root, &sam.join("bin").join(program).to_string_lossy(), arguments);
    command
        .env("AWS_DEFAULT_REGION", "us-west-2")
        .env("AWS_ACCESS_KEY_ID", "testing")
        .env("AWS_SECRET_ACCESS_KEY", "testing")
        .env_remove("AWS_PROFILE")
        .env("SAM_CLI_TELEMETRY", "0");
    command
}

/// The template as SAM transforms it.
pub(crate) fn transformed(root: &Path) -> Result<Value> {
    let sam = environment::sam(root)?;
    let printed = shell::read(tool(root, &sam, "python", &["tests/python/transform.py", TEMPLATE]))?;
    serde_json::from_str(&printed).context("the transformed template is no JSON")
}

/// Runs every check; each catches mistakes that the others miss.
pub(crate) fn check(root: &Path) -> Result<()> {
    let sam = environment::sam(root)?;
    shell::run(tool(root, &sam, "sam", &["validate", "-t", TEMPLATE]))?;
    shell::run(tool(root, &sam, "sam", &["validate", "--lint", "-t", TEMPLATE]))?;
    shell::run(tool(root, &sam, "cfn-lint", &[WATCHER]))?;
    let value = transformed(root)?;
    let transformed = environment::cache()?.join("transformed.json");
    std::fs::write(&transformed, value.to_string())?;
    shell::run(tool(root, &sam, "cfn-lint", &[&transformed.to_string_lossy()]))?;
    let mut broken = promises::broken(&value);
    broken.extend(promises::without_reservations(&value));
    broken.extend(rules::broken(&value));
    broken.extend(EmittedMetrics::of(root)?.unmatched(&value));
    broken.extend(promises::wider_than(&value, &std::fs::read_to_string(root.join(REFERENCE))?));
    broken.extend(queues::check(root, &value, artifacts::FUNCTIONS)?);
    broken.extend(items::check(root, &value, artifacts::FUNCTIONS)?);
    broken.extend(iam::check(root, &value)?);
    broken.extend(prebuilt::check(root, &sam, &value)?);
    let answers = rights::ask(&value)?;
    let statements = environment::cache()?.join("statements.json");
    std::fs::write(&statements, answers.statements.to_string())?;
    broken.extend(answers.broken);
    for line in &broken {
        println!("{line}");
    }
    let reference = environment::policies(root)?;
    let compared = shell::run(tool(
        root,
        &reference,
        "python",
        &["tests/python/policies.py", &statements.to_string_lossy(), &transformed.to_string_lossy()],
    ));
    if !broken.is_empty() {
        bail!("{TEMPLATE} breaks {} promises", broken.len());
    }
    compared?;
    println!("{TEMPLATE}: {}", promises::summary(&value));
    println!("{TEMPLATE}: {}", answers.summary);
    Ok(())
}
