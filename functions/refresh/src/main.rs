//! Entry point of the refresh function. Wiring only.

use whittle_runtime::{Function, Work, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(Function::Refresh, async |shell, work| match work {
        Work::Cluster(cluster) => whittle_refresh::handle(shell.ports(&shell.discovery()), &shell.settings, cluster).await,
        other => Err(other.refused()),
    })
    .await
}
