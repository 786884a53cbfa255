//! One request to any service, served by the region.

use crate::errors::Fault;
use crate::journal::Entry;
use crate::limits::Limits;
use crate::params::Params;
use crate::place::Place;
use crate::{ec2, eks, iam, pricing, ssm, xml};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A request, independent of server and client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Service and access key from the signature.
    pub service: String,
    pub principal: String,
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The header `x-amz-target`; empty without one.
    pub target: String,
    pub body: String,
}

impl Request {
    /// Access key and service of a signature version 4 `Authorization` header.
    pub fn signed_for(authorization: &str) -> Option<(&str, &str)> {
        let scope = authorization.split("Credential=").nth(1)?.split(',').next()?;
        let mut parts = scope.split('/');
        let (key, _, _, service) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some((key, service))
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub content_type: &'static str,
    /// The header `x-amzn-errortype`, if the protocol has one.
    pub error_type: Option<String>,
    pub body: String,
}

/// The server side of all calls, apart from the region itself.
#[derive(Debug, Default)]
pub struct Api {
    /// All calls so far.
    pub journal: Vec<Entry>,
    pub limits: Limits,
    /// Errors to return for the next calls of an action: status and code.
    pub refusals: BTreeMap<String, Vec<(u16, String)>>,
}

impl Api {
    /// Serves a request.
    pub fn answer(&mut self, place: &mut dyn Place, request: &Request) -> Response {
        let (action, parameters, outcome) = match request.service.as_str() {
            "ec2" | "iam" => self.query(place, request),
            _ => self.json(place, request),
        };
        self.journal.push(Entry {
            at: place.now(),
            service: request.service.clone(),
            action: action.clone(),
            principal: request.principal.clone(),
            parameters,
            refused: outcome.as_ref().err().map(|fault| fault.code.clone()),
        });
        written(&request.service, &action, outcome)
    }

    /// The number of calls of an action.
    pub fn calls(&self, action: &str) -> usize {
        self.journal.iter().filter(|entry| entry.action == action).count()
    }

    fn query(&mut self, place: &mut dyn Place, request: &Request) -> (String, BTreeMap<String, String>, Result<Value, Fault>) {
        let mut params = match Params::parse(&request.body) {
            Ok(params) => params,
            Err(fault) => return (String::new(), BTreeMap::new(), Err(fault)),
        };
        let given = params.fields().clone();
        let action = params.text("Action").unwrap_or_default();
        let outcome = self.admit(place, &action).and_then(|()| {
            let version = params.text("Version").unwrap_or_default();
            let known = if request.service == "ec2" { "2016-11-15" } else { "2010-05-08" };
            if version != known {
                return Err(Fault::new("InvalidAction", format!("The action {action} is not valid for version {version}.")));
            }
            if request.service == "ec2" { ec2::call(place, &action, params) } else { iam::call(place, &action, params) }
        });
        (action, given, outcome)
    }

    fn json(&mut self, place: &mut dyn Place, request: &Request) -> (String, BTreeMap<String, String>, Result<Value, Fault>) {
        let action = match request.service.as_str() {
            "eks" => eks::action(request).to_owned(),
            _ => request.target.rsplit('.').next().unwrap_or_default().to_owned(),
        };
        let body: Value = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        let fields = body.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.to_string())).collect();
        let outcome = self.admit(place, &action).and_then(|()| match request.service.as_str() {
            "eks" => eks::call(place, request),
            "ssm" => ssm::call(place, &action, body),
            "pricing" => pricing::call(place, &action, body),
            other => Err(Fault::new("UnknownOperationException", format!("there is no service {other}"))),
        });
        (action, fields, outcome)
    }

    /// Rejects a call that exceeds its limit, or that is to fail.
    fn admit(&mut self, place: &mut dyn Place, action: &str) -> Result<(), Fault> {
        if let Some(next) = self.refusals.get_mut(action).filter(|next| !next.is_empty()) {
            let (status, code) = next.remove(0);
            return Err(Fault::new(&code, "as the test has it").with_status(status));
        }
        if self.limits.grants(action, place.now()) { Ok(()) } else { Err(Fault::throttled()) }
    }
}

/// The response in the service's protocol.
fn written(service: &str, action: &str, outcome: Result<Value, Fault>) -> Response {
    match service {
        "ec2" => xml_answer(match outcome {
            Ok(mut value) => {
                value["requestId"] = json!(REQUEST_ID);
                (200, xml::document(&format!("{action}Response"), &value, &xml::EC2))
            }
            Err(Fault { status, code, message }) => {
                // Here a list of errors has its own element name.
                let errors = json!({"Errors": {"Error": {"Code": code, "Message": message}}, "RequestID": REQUEST_ID});
                (status, xml::document("Response", &errors, &xml::EC2))
            }
        }),
        "iam" => xml_answer(match outcome {
            Ok(value) => {
                let content = json!({format!("{action}Result"): value, "ResponseMetadata": {"RequestId": REQUEST_ID}});
                (200, xml::document(&format!("{action}Response"), &content, &xml::IAM))
            }
            Err(Fault { status, code, message }) => {
                let error = json!({"Error": {"Type": "Sender", "Code": code, "Message": message}, "RequestId": REQUEST_ID});
                (status, xml::document("ErrorResponse", &error, &xml::IAM))
            }
        }),
        _ => {
            let content_type = if service == "eks" { "application/json" } else { "application/x-amz-json-1.1" };
            match outcome {
                Ok(value) => Response { status: 200, content_type, error_type: None, body: value.to_string() },
                Err(Fault { status, code, message }) => {
                    let body = json!({"__type": code, "message": message}).to_string();
                    Response { status, content_type, error_type: Some(code), body }
                }
            }
        }
    }
}

/// The actions that are answered, by service.
pub(crate) const ACTIONS: &[(&str, &[&str])] = &[
    ("ec2", ec2::ACTIONS),
    ("iam", iam::ACTIONS),
    ("ssm", &["GetParameter"]),
    ("eks", &["DescribeCluster"]),
    ("pricing", &["GetProducts"]),
];

/// Whether some service here answers this action.
pub(crate) fn is_known(action: &str) -> bool {
    ACTIONS.iter().any(|(_, actions)| actions.contains(&action))
}

const REQUEST_ID: &str = "00000000-0000-4000-8000-000000000000";

fn xml_answer((status, body): (u16, String)) -> Response {
    Response { status, content_type: "text/xml;charset=UTF-8", error_type: None, body }
}
