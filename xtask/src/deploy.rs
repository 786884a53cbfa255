//! Deploys the application for real, if small: into an AWS emulator that starts the functions' own binaries.

use crate::{artifacts, environment, shell, template};
use anyhow::{Context, Result, bail};
use std::path::Path;
use whittle_backends::ministack::Ministack;

const STACK: &str = "whittle";
/// No cluster has this name anywhere.
const CLUSTER: &str = "test-cluster";
/// What the relay compares the path with; `tests/python/deployed.py` knows it too.
const SECRET: &str = "test-secret";
const SECRET_NAME: &str = "/whittle/relay-secret";

/// Builds with SAM, deploys, starts every function by its own events, deletes the stack.
pub(crate) fn check(root: &Path) -> Result<()> {
    let sam = environment::sam(root)?;
    let ministack = environment::ministack(root)?;
    let built = environment::cache()?.join("sam-build");
    build(root, &sam, &built)?;

    let cloud = Ministack::start_in(&ministack);
    let endpoint = cloud.endpoint();
    let aws = |program: &str, arguments: &[&str]| {
        let mut command = template::tool(root, &sam, program, arguments);
        command.env("AWS_ENDPOINT_URL", &endpoint);
        command
    };
    shell::run(aws("python", &["-c", PUT_SECRET, SECRET_NAME, SECRET]))?;
    let template = built.join("template.yaml");
    let overrides = format!("Clusters={CLUSTER} Architecture=x86_64 TestEndpoint={endpoint} RelaySecret={SECRET_NAME}");
    shell::run(aws(
        "sam",
        &[
            "deploy",
            "--template-file",
            &template.to_string_lossy(),
            "--stack-name",
            STACK,
            "--resolve-s3",
            "--capabilities",
            "CAPABILITY_IAM",
            "--no-confirm-changeset",
            "--no-progressbar",
            "--parameter-overrides",
            &overrides,
        ],
    ))?;
    let answered = shell::run(aws("python", &["tests/python/deployed.py", STACK, &endpoint, CLUSTER]));
    if answered.is_err() {
        println!("the emulator said:\n{}", tail(&cloud.log()));
    }
    answered?;
    shell::run(aws("sam", &["delete", "--stack-name", STACK, "--no-prompts", "--region", Ministack::REGION]))?;
    let left = shell::read(aws("python", &["-c", LIST_FUNCTIONS]))?;
    if !left.trim().is_empty() {
        bail!("the deleted stack left functions behind: {left}");
    }
    Ok(())
}

const PUT_SECRET: &str = "import boto3, sys; \
    boto3.client('ssm').put_parameter(Name=sys.argv[1], Value=sys.argv[2], Type='SecureString')";
const LIST_FUNCTIONS: &str = "import boto3; \
    print(*[f['FunctionName'] for f in boto3.client('lambda').list_functions()['Functions']])";

/// `sam build`, with nothing that could fetch a toolchain.
fn build(root: &Path, sam: &Path, built: &Path) -> Result<()> {
    let mut command = template::tool(
        root,
        sam,
        "sam",
        &[
            "build",
            "-t",
            template::TEMPLATE,
            "--build-dir",
            &built.to_string_lossy(),
            "--parameter-overrides",
            &format!("Clusters={CLUSTER} Architecture=x86_64"),
        ],
    );
    artifacts::hermetic(&mut command, sam)?;
    shell::run(command).with_context(|| format!("{} does not build", template::TEMPLATE))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
