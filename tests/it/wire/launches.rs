//! The requests of launches.

use super::root;
use crate::cases::launched;
use std::path::PathBuf;
use whittle_tests::fake_aws::Sent;

fn golden() -> PathBuf {
    root().join("tests/golden/cloud/launch")
}

/// What the launches of a golden case send.
pub(super) fn sent_for(name: &str) -> Vec<Sent> {
    launched(&golden().join(format!("{name}.yaml"))).unwrap().sent
}
