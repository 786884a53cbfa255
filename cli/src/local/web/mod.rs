//! A page for a browser, served on loopback: what `whittle local` prints and takes, to be seen and clicked.
//!
//! The page and the terminal use one session, one after the other. What is served without the token of the session is the page itself,
//! which is the same for everybody; whoever has the token may do whatever the prompt may.

mod actions;
mod back_end;
mod clock;
mod state;
#[cfg(test)]
mod tests;

use super::prompt::Prompt;
use crate::numbers;
use crate::page::{self, Bound, address};
use back_end::SessionBackEnd;
use clap::Args;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// The page of a session.
#[derive(Debug, Default, Args)]
pub struct PageArgs {
    /// Serve a page of the session for a browser, on this address: nodes and pods, costs, decisions and their reasons, with buttons.
    /// Both the page and the prompt work; after the end of piped commands the page goes on, and Ctrl-C ends it
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "127.0.0.1", value_parser = address)]
    pub web: Option<IpAddr>,
    /// Port of the page; 0 takes a free one
    #[arg(long, requires = "web", value_name = "PORT", default_value_t = 0)]
    #[arg(value_parser = numbers::within::<u16>(0..=65_535), allow_negative_numbers = true)]
    pub web_port: u16,
    /// Serve the page on an address that other machines reach. It is not encrypted
    #[arg(long, requires = "web")]
    pub web_allow_remote: bool,
}

/// Serves the page from threads of its own, if there is to be one. Returns its address, with the token of the session.
pub(super) fn serve(args: &PageArgs, prompt: &Arc<Mutex<Prompt>>) -> Result<Option<String>, String> {
    let Some(ip) = args.web else { return Ok(None) };
    if !ip.is_loopback() && !args.web_allow_remote {
        return Err(format!(
            "--web={ip}: other machines may reach this address, and the page is not encrypted: leave out the address, or add \
             --web-allow-remote"
        ));
    }
    let wanted = SocketAddr::new(ip, args.web_port);
    let Bound { listener, guard, address } = page::bind(wanted, "--web", "--web-port")?;
    let back_end = Arc::new(SessionBackEnd::new(Arc::clone(prompt)));
    let failed = |error: std::io::Error| format!("--web: {wanted} cannot be served: {error}");
    page::start(listener, guard, Arc::clone(&back_end)).map_err(failed)?;
    back_end.let_time_pass().map_err(failed)?;
    Ok(Some(address))
}

/// What is printed about the page's address when it starts.
pub(super) fn greeting(args: &PageArgs, address: &str) -> String {
    let mut text = format!("The page of this session: {address}\n");
    if let Some(ip) = args.web.filter(|ip| !ip.is_loopback()) {
        let _ = writeln!(
            text,
            "--web={ip}: whoever reaches this machine there and has the address may do what the prompt may; nothing is encrypted."
        );
    }
    text
}
