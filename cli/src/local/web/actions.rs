//! What the page can do to a session.

use super::clock::Clock;
use crate::local::kinds::{self, KindEntry};
use crate::local::prompt::{Prompt, advance};
use crate::local::session::{Pool, Session};
use serde::Deserialize;
use std::sync::atomic::Ordering;

const POOL: &str = include_str!("../demo/pool.yaml");
const INFLATE: &str = include_str!("../demo/inflate.yaml");

/// The speeds of the clock that can be chosen: simulated seconds in a second.
const SPEEDS: [u32; 4] = [0, 1, 10, 60];

/// A request of the page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, tag = "do")]
pub(super) enum Action {
    /// A line of the prompt, and the lines that belong to it.
    Command {
        line: String,
    },
    Scale {
        deployment: String,
        replicas: i32,
    },
    Interrupt {
        node: String,
    },
    Delete {
        kind: String,
        name: String,
    },
    /// EC2 runs out of a type in a zone, or has it again.
    #[serde(rename_all = "camelCase")]
    Stock {
        instance_type: String,
        zone: String,
        capacity_type: String,
        available: bool,
    },
    Apply {
        text: String,
    },
    /// The manifests of `whittle demo`, with some pods.
    Example,
    Advance {
        span: String,
    },
    Speed {
        speed: u32,
    },
    Stop,
}

impl Action {
    /// Carries it out; the answer is what the prompt would print.
    pub(super) fn run(self, prompt: &mut Prompt, clock: &Clock) -> Result<String, String> {
        prompt.changes += 1;
        let session = &mut prompt.session;
        match self {
            Self::Command { line } => match shlex::split(&line).as_deref() {
                // The clock of the page does it, so that the page shows what happens on the way.
                Some([verb, span]) if verb == "advance" => begin(session, clock, span),
                _ => prompt.answer(&line),
            },
            Self::Scale { deployment, replicas } => {
                session.scale(&deployment, replicas).map_err(|error| error.to_string())?;
                session.log(&format!("scale deployment {deployment} --replicas {replicas}"));
                Ok(format!("deployment/{deployment} scaled to {replicas}"))
            }
            Self::Interrupt { node } => {
                let id = session.interrupt(&node).map_err(|error| error.to_string())?;
                session.log(&format!("spot interruption of {node} ({id}), two minutes from now"));
                Ok(format!("EC2 announces that it takes {node} ({id}) back in two minutes"))
            }
            Self::Delete { kind, name } => {
                session.delete(&kind, &name).map_err(|error| error.to_string())?;
                if kinds::find(&kind).is_ok_and(KindEntry::is_of_machines) {
                    session.simulation.world().ring_for_deletions();
                }
                session.log(&format!("delete {kind} {name}"));
                Ok(format!("{kind}/{name} deleted"))
            }
            Self::Stock { instance_type, zone, capacity_type, available } => {
                let pool = Pool { instance_type, zone, capacity_type };
                session.set_stock(&pool, available).map_err(|error| error.to_string())
            }
            Self::Apply { text } => {
                let messages = session.apply_text("the pasted manifest", &text).map_err(|error| error.to_string())?;
                Ok(messages.join("\n"))
            }
            Self::Example => example(session),
            Self::Advance { span } => begin(session, clock, &span),
            Self::Speed { speed } if SPEEDS.contains(&speed) => {
                clock.set_speed(speed);
                Ok(String::new())
            }
            Self::Speed { speed } => Err(format!("speed {speed} cannot be chosen: there are {SPEEDS:?} simulated seconds in a second")),
            Self::Stop => {
                clock.stop();
                Ok("stopped".to_owned())
            }
        }
    }

    /// Whether it ends what runs, and so must not wait for it.
    pub(super) const fn stops(&self) -> bool {
        matches!(self, Self::Stop)
    }
}

/// Ends the running command of the prompt, and the clock.
pub(super) fn stop(stops: &std::sync::atomic::AtomicBool, clock: &Clock) {
    stops.store(true, Ordering::Relaxed);
    clock.stop();
}

fn begin(session: &Session, clock: &Clock, span: &str) -> Result<String, String> {
    let until = clock.advance(session.now(), advance::span(span)?)?;
    Ok(format!("time passes until {until}"))
}

fn example(session: &mut Session) -> Result<String, String> {
    let mut messages = Vec::new();
    for (name, text) in [("demo/pool.yaml", POOL), ("demo/inflate.yaml", INFLATE)] {
        messages.extend(session.apply_text(name, text).map_err(|error| error.to_string())?);
    }
    session.scale("inflate", 5).map_err(|error| error.to_string())?;
    session.log("scale deployment inflate --replicas 5");
    messages.push("deployment/inflate scaled to 5".to_owned());
    Ok(messages.join("\n"))
}
