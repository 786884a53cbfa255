//! Entry point of the sweep function. Wiring only.

use whittle_runtime::{Function, Work, serve};
use whittle_sweep::Looks;

/// What earlier invocations of this environment saw.
static LOOKS: Looks = Looks::new();

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(Function::Sweep, async |shell, work| match work {
        Work::Cluster(cluster) => whittle_sweep::handle(shell.ports(&shell.watched_machines()), &shell.settings, cluster).await,
        Work::Tick(cluster) => whittle_sweep::tick(shell.ports(&shell.watched_machines()), &shell.settings, &LOOKS, cluster).await,
        Work::Uninstall(request) => whittle_sweep::uninstall(shell.ports(&shell.machines()), &shell.settings, request).await,
        other => Err(other.refused()),
    })
    .await
}
