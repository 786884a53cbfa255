//! The simulated AWS on a socket, driven by AWS's own library for Python.

use super::root;
use std::process::Command;
use whittle_fake_aws::Lone;
use whittle_fake_aws::server::{Shared, serve};
use whittle_tests::tools;
use whittle_units::{ClusterName, Timestamp};

#[test]
fn boto3_reads_what_the_simulated_aws_answers() {
    let Some(environment) = tools::find(tools::MODELS) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let lone = Lone::new("us-east-1", &ClusterName::new("demo"), Timestamp::now());
    let served = std::thread::spawn(move || {
        runtime.block_on(serve(listener, Shared::new(lone), async {
            let _ = stopped.await;
        }));
    });
    let mut command = Command::new(environment.join("bin/python"));
    command.arg("-B").arg(root().join("tests/python/fake_aws.py")).arg(format!("http://{address}"));
    let output = command.env_remove("AWS_PROFILE").env("AWS_EC2_METADATA_DISABLED", "true").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{said}");
    stop.send(()).unwrap();
    served.join().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "a server that has ended listens no more");
}
