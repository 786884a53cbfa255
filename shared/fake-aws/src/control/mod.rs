//! What an owner sees and changes of a simulated AWS, as HTTP below a path that no service of AWS has.
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /_control` | the state: time, machines, limits, faults that wait |
//! | `POST /_control` | applies a [`Change`] as a whole, or nothing of it, and answers as `GET` does |
//! | `GET /_control/journal` | all calls so far, oldest first |
//! | `GET /_control/events` | the EventBridge events since the last request for them |
//!
//! Bodies are JSON. An error is `{"error": "PLACE: what is wrong"}`, where PLACE is the field of the change.

mod change;
mod state;

pub use change::Change;
pub use state::State;

use crate::api::{Api, Response};
use crate::place::Lone;
use serde::Serialize;
use serde_json::{Value, json};

/// The path of the control API.
pub const CONTROL_PATH: &str = "/_control";

/// Whether a path belongs to the control API rather than to a service.
pub fn is_control(path: &str) -> bool {
    path.strip_prefix(CONTROL_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request of the owner.
pub fn control(api: &mut Api, lone: &mut Lone, method: &str, path: &str, body: &str) -> Response {
    match (method, path.strip_prefix(CONTROL_PATH).unwrap_or(path)) {
        ("GET", "" | "/") => success(&State::of(api, lone)),
        ("POST", "" | "/") => match Change::parse(body).and_then(|change| change.apply(api, lone)) {
            Ok(()) => success(&State::of(api, lone)),
            Err(error) => answer(400, json!({"error": error.to_string()})),
        },
        ("GET", "/journal") => success(&api.journal),
        ("GET", "/events") => {
            let events = std::mem::take(&mut lone.events);
            // The region writes them as JSON, without saying which it is.
            let mut parsed: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
            parsed.iter_mut().for_each(|event| event["region"] = json!(lone.region.name()));
            success(&parsed)
        }
        (_, "" | "/" | "/journal" | "/events") => answer(405, json!({"error": format!("{method} {path}: the method is not allowed here")})),
        _ => answer(404, json!({"error": format!("{path}: there is {CONTROL_PATH} with /journal and /events")})),
    }
}

fn success(value: &impl Serialize) -> Response {
    match serde_json::to_value(value) {
        Ok(value) => answer(200, value),
        Err(error) => answer(500, json!({"error": error.to_string()})),
    }
}

fn answer(status: u16, body: Value) -> Response {
    Response { status, content_type: "application/json", error_type: None, body: body.to_string() }
}

/// Why a change was not applied: the field at fault and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeError {
    /// As in `pools[0].zone`.
    pub field: String,
    pub problem: String,
}

impl std::fmt::Display for ChangeError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ChangeError {}

impl ChangeError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

#[cfg(test)]
mod tests;
