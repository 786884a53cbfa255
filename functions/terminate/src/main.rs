//! Entry point of the terminate function. Wiring only.

use whittle_runtime::{Function, Work, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(Function::Terminate, async |shell, work| match work {
        Work::Terminate(claim) => {
            whittle_terminate::handle(shell.ports(&shell.machines()), &shell.settings, &shell.last_planned, claim).await
        }
        other => Err(other.refused()),
    })
    .await
}
