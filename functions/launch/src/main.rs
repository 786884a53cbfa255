//! Entry point of the launch function. Wiring only.

use whittle_runtime::{Function, Work, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(Function::Launch, async |shell, work| match work {
        Work::Launch(cluster, claims) => whittle_launch::handle(shell.ports(&shell.machines()), &shell.settings, cluster, claims).await,
        other => Err(other.refused()),
    })
    .await
}
