//! Posts of the watcher, compared with what AWS's own client signs.

use super::root;
use aws_credential_types::Credentials;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, SystemTime};
use whittle_tests::tools;
use whittle_units::Region;
use whittle_watcher::post::signed;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A signed post, with what it was made from.
fn post(url: &str, region: &str, session: Option<&str>, body: &str) -> Value {
    let credentials = Credentials::new("AKIDEXAMPLE", SECRET, session.map(str::to_owned), None, "tests");
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let request = signed(&url.parse().unwrap(), &Region::new(region), body.as_bytes().to_vec(), &credentials, now).unwrap();
    let headers: BTreeMap<&str, &str> = request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    json!({"url": url, "region": region, "body": body, "headers": headers, "accessKey": "AKIDEXAMPLE", "secret": SECRET, "session": session})
}

/// Checks these posts: whether all are right, and the output.
fn check(name: &str, posts: &[Value]) -> Option<(bool, String)> {
    let environment = tools::find(tools::MODELS)?;
    let file = std::env::temp_dir().join(format!("whittle-{}-{name}.jsonl", std::process::id()));
    std::fs::write(&file, posts.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")).unwrap();
    let mut command = Command::new(environment.join("bin/python"));
    let output = command.arg("-B").arg(root().join("tests/python/posts.py")).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text))
}

#[test]
fn posts_are_signed_as_aws_signs_them() {
    let body = r#"{"version":1,"cluster":"prod","sentAt":"2027-01-15T08:00:00Z","kinds":["pods"]}"#;
    let posts = [
        post("https://abc.lambda-url.us-west-2.on.aws/prod", "us-west-2", Some("IQoJb3JpZ2luX2VjEJr//+/=&x y"), body),
        post("https://abc.lambda-url.cn-north-1.on.amazonwebservices.com.cn/a-cluster_with-name", "cn-north-1", None, body),
        post("http://127.0.0.1:8080/prod", "us-west-2", None, ""),
    ];
    let Some((passed, output)) = check("posts", &posts) else { return };
    println!("{output}");
    assert!(passed, "{output}");
}

#[test]
fn a_post_with_another_body_cluster_or_secret_is_detected() {
    let good = || post("https://abc.lambda-url.us-west-2.on.aws/prod", "us-west-2", None, "{}");
    for (number, (key, value)) in
        [("body", "{ }"), ("url", "https://abc.lambda-url.us-west-2.on.aws/dev"), ("secret", "another"), ("region", "us-east-1")]
            .into_iter()
            .enumerate()
    {
        let mut changed = good();
        changed[key] = json!(value);
        let Some((passed, output)) = check(&format!("changed-post-{number}"), &[changed]) else { return };
        assert!(!passed && output.contains("Signature is"), "{key}: {output}");
    }
}
