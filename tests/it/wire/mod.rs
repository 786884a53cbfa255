//! What the adapters send to AWS, through the real SDK: held against AWS's own models of its services, and against Karpenter's requests.

mod calls;
mod launches;

use std::path::Path;
use std::process::Command;
use whittle_tests::fake_aws::Sent;
use whittle_tests::tools;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Runs the models over these lines: whether they have nothing against them, and what they print.
pub(crate) fn judged(name: &str, lines: &[String], golden: Option<&Path>) -> Option<(bool, String)> {
    let environment = tools::find(tools::MODELS)?;
    let file = std::env::temp_dir().join(format!("whittle-{}-{name}.jsonl", std::process::id()));
    std::fs::write(&file, lines.join("\n")).unwrap();
    let mut command = Command::new(environment.join("bin/python"));
    command.arg("-B").arg(root().join("tests/python/aws_models.py")).arg(&file).args(golden);
    let output = command.output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), said))
}

pub(crate) fn lines(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(|sent| sent.as_line().to_string()).collect()
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A check that finds nothing must be able to find something.
#[test]
fn the_models_of_aws_catch_planted_faults() {
    let launched = launches::sent_for("001-on-demand");
    let fleet = launched.iter().find(|sent| sent.request.body.contains("Action=CreateFleet")).unwrap();
    let ssm = calls::sent().into_iter().find(|sent| sent.request.service == "ssm").unwrap();
    let planted = |from: &Sent, change: &dyn Fn(&str) -> String| {
        let mut sent = from.clone();
        sent.request.body = change(&from.request.body);
        assert_ne!(sent.request.body, from.request.body, "the fault is planted");
        sent
    };
    let without = |body: &str, part: &str| body.split('&').filter(|field| !field.contains(part)).collect::<Vec<_>>().join("&");
    let all = [
        (planted(fleet, &|body| body.replace("SubnetId", "SubnetID")), "SubnetID is not in the model"),
        (planted(fleet, &|body| body.replace("Type=instant&", "Type=instantly&")), "'instantly', which is none of"),
        (planted(fleet, &|body| without(body, "TotalTargetCapacity")), "Missing required parameter"),
        (planted(fleet, &|body| body.replace("TotalTargetCapacity=1", "TotalTargetCapacity=one")), "cannot be read"),
        (planted(fleet, &|body| body.replace("Action=CreateFleet&", "Action=CreateFleets&")), "no operation 'CreateFleets'"),
        (planted(fleet, &|_| "Action=DescribeInstanceTypes&Version=2016-11-15&MaxResults=101".to_owned()), "at most 100"),
        (planted(&ssm, &|_| "{}".to_owned()), "Missing required parameter"),
        (planted(&ssm, &|body| body.replacen('{', "{\"WithDecription\":true,", 1)), "WithDecription is not in the model"),
    ];
    let sent: Vec<Sent> = all.iter().map(|(sent, _)| sent.clone()).collect();
    let Some((passed, said)) = judged("planted", &lines(&sent), None) else { return };
    assert!(!passed, "{said}");
    for (number, (_, expected)) in all.iter().enumerate() {
        let start = format!("line {} ", number + 1);
        let finding = said.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{expected} is not found:\n{said}"));
        assert!(finding.contains(expected), "{finding}");
    }
}

/// A launch that differs from Karpenter's in one field is found.
#[test]
fn a_launch_that_asks_for_something_else_than_karpenter_is_caught() {
    let golden = root().join("tests/golden/cloud/launch");
    let mut sent = launches::sent_for("001-on-demand");
    for each in &mut sent {
        each.request.body = each.request.body.replace("HttpTokens=required", "HttpTokens=optional");
    }
    let Some((passed, said)) = judged("different", &lines(&sent), Some(&golden)) else { return };
    assert!(!passed && said.contains("MetadataOptions.HttpTokens is 'optional' and not 'required'"), "{said}");
}
