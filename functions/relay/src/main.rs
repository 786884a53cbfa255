//! Entry point of the relay function. Wiring only.

use whittle_relay::{BODY_BYTES_MAX, Recent, Request};
use whittle_runtime::{Function, UrlAnswer, serve_url};

/// What this environment sent in earlier invocations.
static RECENT: Recent = Recent::new();

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    serve_url(Function::Relay, BODY_BYTES_MAX, async |shell, call| {
        let (signed_by, alias) = (call.signed_by.as_deref(), call.alias.as_deref());
        let request = Request { path: &call.path, body: &call.body, signed_by, alias };
        let (response, report) = whittle_relay::handle(shell.ports(&()), &shell.settings, &RECENT, request).await?;
        Ok((UrlAnswer { status: response.status, body: response.body }, report))
    })
    .await
}
