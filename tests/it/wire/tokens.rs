//! Tokens for API servers, compared with what AWS's own client signs and sent to another project's model of AWS.

use super::{root, run};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};
use whittle_aws::EksAccess;
use whittle_fake_aws::Lone;
use whittle_ports::ClusterAccess;
use whittle_tests::clock::FixedClock;
use whittle_tests::fake_aws::FakeAws;
use whittle_tests::tools;
use whittle_units::ClusterName;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A token for a cluster, with what it was made from.
fn token(region: &str, cluster: &str, session: Option<&str>) -> Value {
    let clock = Arc::new(FixedClock::new());
    let name = ClusterName::new(cluster);
    let aws = FakeAws::new(Arc::new(Mutex::new(Lone::new(region, &name, clock.now))));
    let credentials = Credentials::new("AKIDEXAMPLE", SECRET, session.map(str::to_owned), None, "tests");
    let credentials = SharedCredentialsProvider::new(credentials);
    let access = EksAccess::new(aws_sdk_eks::Client::new(&aws.config(region)), credentials, region.to_owned().into(), clock);
    let token = run(access.bearer_token(&name)).unwrap();
    json!({"token": token, "region": region, "cluster": cluster, "accessKey": "AKIDEXAMPLE", "secret": SECRET, "session": session})
}

/// Checks these tokens: whether all are right, and the output.
fn check(name: &str, tokens: &[Value]) -> Option<(bool, String)> {
    let environment = tools::find(tools::MODELS)?;
    let file = std::env::temp_dir().join(format!("whittle-{}-{name}.jsonl", std::process::id()));
    std::fs::write(&file, tokens.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")).unwrap();
    let mut command = Command::new(environment.join("bin/python"));
    let output = command.arg("-B").arg(root().join("tests/python/tokens.py")).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text))
}

#[test]
fn tokens_are_what_aws_signs_in_every_partition() {
    // Some characters of a session token are escaped in a query.
    let session = Some("IQoJb3JpZ2luX2VjEJr//+/=&x y");
    let mut tokens: Vec<Value> =
        ["us-east-1", "eu-central-1", "cn-north-1", "us-gov-west-1", "us-iso-east-1", "us-isob-east-1", "eusc-de-east-1"]
            .into_iter()
            .map(|region| token(region, "demo", session))
            .collect();
    tokens.push(token("us-west-2", "a-cluster_with.name", None));
    let Some((passed, output)) = check("tokens", &tokens) else { return };
    println!("{output}");
    assert!(passed, "{output}");
}

#[test]
fn a_token_of_another_cluster_moment_or_secret_is_detected() {
    let mut changed = [token("us-east-1", "demo", None), token("us-east-1", "demo", None), token("us-east-1", "demo", None)];
    changed[0]["cluster"] = json!("other");
    changed[1]["secret"] = json!("another");
    changed[2]["region"] = json!("us-east-2");
    for (number, token) in changed.iter().enumerate() {
        let Some((passed, output)) = check(&format!("changed-{number}"), std::slice::from_ref(token)) else { return };
        assert!(!passed && output.contains("X-Amz-Signature is"), "{number}: {output}");
    }
}
