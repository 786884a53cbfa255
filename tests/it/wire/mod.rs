//! Validates the adapters' requests, sent through the real SDK, against AWS's service models and against Karpenter's requests.

mod bad_input;
mod boto3;
mod calls;
mod faults;
mod launches;
mod limits;
mod moto;
mod posts;
mod roles;
mod scenarios;
mod server;
mod tokens;

pub(crate) use roles::rendered;
use std::path::Path;
use std::process::Command;
use whittle_fake_aws::Lone;
use whittle_ports::contracts::CloudPlace;
use whittle_tests::fake_aws::Sent;
use whittle_tests::tools;
use whittle_units::ClusterName;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Validates these lines with the models: whether all are valid, and the output.
pub(crate) fn validate(name: &str, lines: &[String], golden: Option<&Path>) -> Option<(bool, String)> {
    let environment = tools::find(tools::MODELS)?;
    let file = std::env::temp_dir().join(format!("whittle-{}-{name}.jsonl", std::process::id()));
    std::fs::write(&file, lines.join("\n")).unwrap();
    let mut command = Command::new(environment.join("bin/python"));
    command.arg("-B").arg(root().join("tests/python/aws_models.py")).arg(&file).args(golden);
    let output = command.output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text))
}

pub(crate) fn lines(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(|sent| sent.as_line().to_string()).collect()
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Where the contracts of the cloud's ports start their machines.
fn place_in(lone: &Lone, cluster: &ClusterName) -> CloudPlace {
    let network = &lone.region.network;
    CloudPlace {
        cluster: cluster.clone(),
        subnets: network.subnets.clone(),
        group: network.groups[0].clone(),
        image_id: network.images[3].id.clone(),
        instance_type: "m5.large".to_owned(),
    }
}

/// Ensures that the check can fail.
#[test]
fn the_models_of_aws_detect_invalid_requests() {
    let launched = launches::sent_for("001-on-demand");
    let fleet = launched.iter().find(|sent| sent.request.body.contains("Action=CreateFleet")).unwrap();
    let ssm = calls::sent().into_iter().find(|sent| sent.request.service == "ssm").unwrap();
    let changed = |from: &Sent, change: &dyn Fn(&str) -> String| {
        let mut sent = from.clone();
        sent.request.body = change(&from.request.body);
        assert_ne!(sent.request.body, from.request.body, "the request was changed");
        sent
    };
    let without = |body: &str, part: &str| body.split('&').filter(|field| !field.contains(part)).collect::<Vec<_>>().join("&");
    let all = [
        (changed(fleet, &|body| body.replace("SubnetId", "SubnetID")), "SubnetID is not in the model"),
        (changed(fleet, &|body| body.replace("Type=instant&", "Type=instantly&")), "'instantly', which is none of"),
        (changed(fleet, &|body| without(body, "TotalTargetCapacity")), "Missing required parameter"),
        (changed(fleet, &|body| body.replace("TotalTargetCapacity=1", "TotalTargetCapacity=one")), "cannot be read"),
        (changed(fleet, &|body| body.replace("Action=CreateFleet&", "Action=CreateFleets&")), "no operation 'CreateFleets'"),
        (changed(fleet, &|_| "Action=DescribeInstanceTypes&Version=2016-11-15&MaxResults=101".to_owned()), "at most 100"),
        (changed(&ssm, &|_| "{}".to_owned()), "Missing required parameter"),
        (changed(&ssm, &|body| body.replacen('{', "{\"WithDecription\":true,", 1)), "WithDecription is not in the model"),
    ];
    let sent: Vec<Sent> = all.iter().map(|(sent, _)| sent.clone()).collect();
    let Some((passed, output)) = validate("changed", &lines(&sent), None) else { return };
    assert!(!passed, "{output}");
    for (number, (_, expected)) in all.iter().enumerate() {
        let start = format!("line {} ", number + 1);
        let finding = output.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{expected} is not found:\n{output}"));
        assert!(finding.contains(expected), "{finding}");
    }
}

/// A launch that differs from Karpenter's in one field is detected.
#[test]
fn a_launch_that_differs_from_karpenters_is_detected() {
    let golden = root().join("tests/golden/cloud/launch");
    let mut sent = launches::sent_for("001-on-demand");
    for each in &mut sent {
        each.request.body = each.request.body.replace("HttpTokens=required", "HttpTokens=optional");
    }
    let Some((passed, output)) = validate("different", &lines(&sent), Some(&golden)) else { return };
    assert!(!passed && output.contains("MetadataOptions.HttpTokens is 'optional' and not 'required'"), "{output}");
}
