//! Entry point of the consolidate function. Wiring only.

use whittle_runtime::{Function, Work, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(Function::Consolidate, async |shell, work| match work {
        Work::Cluster(cluster) => whittle_consolidate::handle(shell.ports(&()), &shell.settings, cluster).await,
        other => Err(other.refused()),
    })
    .await
}
