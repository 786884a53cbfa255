//! The simulated AWS on a loopback port.

use std::process::ExitCode;

fn main() -> ExitCode {
    whittle_fake_aws::server::main()
}
