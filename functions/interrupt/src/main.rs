//! Entry point of the interrupt function. Wiring only.

use whittle_runtime::{Function, Work, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve(Function::Interrupt, async |shell, work| match work {
        Work::Notice(body) => whittle_interrupt::handle(shell.ports(&()), &shell.settings, &shell.has_launches, body).await,
        other => Err(other.refused()),
    })
    .await
}
