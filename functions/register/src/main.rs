//! Entry point of the register function. Wiring only.

use whittle_runtime::{Function, Work, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(Function::Register, async |shell, work| match work {
        Work::Cluster(cluster) | Work::Tick(cluster) => {
            whittle_register::handle(shell.ports(&shell.machines()), &shell.settings, cluster).await
        }
        Work::Deletions(cluster) => whittle_register::deletions(shell.ports(&shell.machines()), &shell.settings, cluster).await,
        other => Err(other.refused()),
    })
    .await
}
