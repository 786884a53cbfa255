//! Deploys the application into an AWS emulator that runs the functions' own binaries.

use crate::{artifacts, environment, shell, template};
use anyhow::{Context, Result, bail};
use std::path::Path;
use whittle_backends::ministack::Ministack;

const STACK: &str = "whittle";
/// A second stack beside the first one.
const SECOND: &str = "whittle-second";
/// Not the name of a real cluster.
const CLUSTER: &str = "test-cluster";
/// The secret from which the relay's paths are derived; `tests/python/deployed.py` uses it too.
const SECRET: &str = "test-secret";
const SECRET_NAME: &str = "/whittle/relay-secret";

/// Builds with SAM, deploys, invokes every function by its events, and deletes the stack.
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
    let template = template.to_string_lossy();
    let deploy = |stack: &str| {
        let mut arguments = vec!["deploy", "--template-file", &template, "--stack-name", stack, "--resolve-s3"];
        arguments.extend(["--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset", "--no-progressbar"]);
        arguments.extend(["--no-fail-on-empty-changeset", "--parameter-overrides", &overrides]);
        shell::run(aws("sam", &arguments))
    };
    let resources = || shell::read(aws("python", &["-c", LIST_RESOURCES, STACK]));
    deploy(STACK)?;
    // S0.1: a second deployment succeeds and changes nothing.
    let first = resources()?;
    deploy(STACK)?;
    if resources()? != first {
        bail!("the second deployment of the same template changed the stack");
    }
    let answered = shell::run(aws("python", &["tests/python/deployed.py", STACK, &endpoint, CLUSTER]));
    if answered.is_err() {
        println!("the emulator said:\n{}", cloud.end_of_log());
    }
    answered?;
    // No resource of the template has a name that must be unique in a region.
    deploy(SECOND)?;
    // S0.19: deleting a deleted stack succeeds too. The table with the claims outlives the stack, as the template specifies.
    let delete = |stack: &str| shell::run(aws("sam", &["delete", "--stack-name", stack, "--no-prompts", "--region", Ministack::REGION]));
    delete(SECOND)?;
    delete(STACK)?;
    delete(STACK)?;
    let left = shell::read(aws("python", &["-c", LIST_LEFT]))?;
    if !left.trim().is_empty() {
        bail!("the deleted stack left something behind: {left}");
    }
    Ok(())
}

const PUT_SECRET: &str = "import boto3, sys; \
    boto3.client('ssm').put_parameter(Name=sys.argv[1], Value=sys.argv[2], Type='SecureString')";
/// Lists all resources with the time of their last change.
const LIST_RESOURCES: &str = "import boto3, sys; \
    pages = boto3.client('cloudformation').get_paginator('list_stack_resources').paginate(StackName=sys.argv[1]); \
    print(*sorted(str((r['LogicalResourceId'], r['PhysicalResourceId'], str(r['LastUpdatedTimestamp']))) \
    for page in pages for r in page['StackResourceSummaries']), sep='\\n')";
const LIST_LEFT: &str = "import boto3; \
    kinds = [('lambda', 'list_functions', 'Functions'), ('sqs', 'list_queues', 'QueueUrls'), ('iam', 'list_roles', 'Roles'), \
    ('events', 'list_rules', 'Rules'), ('scheduler', 'list_schedules', 'Schedules'), ('logs', 'describe_log_groups', 'logGroups'), \
    ('cloudwatch', 'describe_alarms', 'MetricAlarms')]; \
    print(*[found for kind, call, key in kinds for found in getattr(boto3.client(kind), call)().get(key, [])])";

/// `sam build`, without access to a toolchain installer.
pub(crate) fn build(root: &Path, sam: &Path, built: &Path) -> Result<()> {
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
    artifacts::hermetic(&mut command, root, sam)?;
    shell::run(command).with_context(|| format!("{} does not build", template::TEMPLATE))
}
