//! One request to any service, served by the region.

use crate::access::{self, Access, Denial, Stage};
use crate::errors::Fault;
use crate::journal::Entry;
use crate::limits::Limits;
use crate::params::Params;
use crate::place::Place;
use crate::{ec2, eks, iam, pricing, ssm, xml, zonal_shift};
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
    /// Who may call what; by default everybody everything.
    pub access: Access,
    /// Errors to return for the next calls of an action.
    pub refusals: BTreeMap<String, Vec<NextError>>,
}

/// An error in place of an action's own response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextError {
    /// The status of HTTP.
    pub status: u16,
    pub code: String,
    pub message: String,
}

/// What a request asks for.
#[derive(Debug, Default)]
struct Call {
    action: String,
    /// Parameters by name: those in query form, or the fields of a JSON body.
    fields: BTreeMap<String, String>,
}

impl Api {
    /// Serves a request.
    pub fn answer(&mut self, place: &mut dyn Place, request: &Request) -> Response {
        let service = request.service.as_str();
        let (call, mut outcome) = match Call::read(request) {
            Ok(call) => (call, None),
            Err(fault) => (Call::default(), Some(Err(fault))),
        };
        let Call { action, fields } = &call;
        let needs = access::needs_of(place, &self.access.template_tags, service, action, fields);
        let denial = self.access.lacking(&request.principal, &needs);
        let lacks = denial.as_ref().map(|denial| format!("{} on {}", denial.need.action, denial.need.resource));
        let outcome = outcome.take().unwrap_or_else(|| self.execute(place, request, &call, denial));
        if outcome.is_ok() {
            self.access.note(service, action, fields);
        }
        let refused = outcome.as_ref().err().map(|fault| fault.code.clone());
        let response = written(service, action, outcome);
        self.journal.push(Entry {
            at: place.now(),
            service: service.to_owned(),
            action: action.clone(),
            principal: request.principal.clone(),
            resources: access::resources(&needs),
            tags: access::request_tags(service, action, fields),
            parameters: call.fields,
            status: response.status,
            refused,
            lacks,
        });
        response
    }

    /// The number of calls of an action.
    pub fn calls(&self, action: &str) -> usize {
        self.journal.iter().filter(|entry| entry.action == action).count()
    }

    fn execute(&mut self, place: &mut dyn Place, request: &Request, call: &Call, denial: Option<Denial>) -> Result<Value, Fault> {
        let (service, action) = (request.service.as_str(), call.action.as_str());
        self.admit(place, call)?;
        let launch_refused = match denial {
            Some(denial) if denial.need.stage == Stage::Call => return Err(denial.fault(service, &request.principal)),
            Some(denial) => Some(denial.of_ec2(&request.principal)),
            None => None,
        };
        let body = || serde_json::from_str(&request.body).unwrap_or(Value::Null);
        match service {
            "ec2" | "iam" => {
                let mut params = Params::of(&call.fields);
                let (_, version) = (params.text("Action"), params.text("Version").unwrap_or_default());
                let known = if service == "ec2" { "2016-11-15" } else { "2010-05-08" };
                if version != known {
                    return Err(Fault::new("InvalidAction", format!("The action {action} is not valid for version {version}.")));
                }
                // A dry run of a fleet does not try its launches.
                let is_dry_run = call.fields.get("DryRun").is_some_and(|value| value == "true");
                match launch_refused.filter(|_| !is_dry_run) {
                    Some(message) => ec2::refused_fleet(place, params, &message),
                    None if service == "ec2" => ec2::call(place, action, params),
                    None => iam::call(place, action, params),
                }
            }
            "eks" => eks::call(place, request),
            zonal_shift::SERVICE => zonal_shift::call(place, request),
            "ssm" => ssm::call(place, action, body()),
            "pricing" => pricing::call(place, action, body()),
            other => Err(Fault::new("UnknownOperationException", format!("there is no service {other}"))),
        }
    }

    /// Rejects a call that exceeds its limit, or that is to fail.
    fn admit(&mut self, place: &mut dyn Place, call: &Call) -> Result<(), Fault> {
        let Call { action, fields } = call;
        if let Some(next) = self.refusals.get_mut(action).filter(|next| !next.is_empty()) {
            let NextError { status, code, message } = next.remove(0);
            return Err(Fault::new(&code, message).with_status(status));
        }
        if self.limits.grants(action, fields, place.now()) { Ok(()) } else { Err(Fault::throttled()) }
    }
}

impl Call {
    fn read(request: &Request) -> Result<Self, Fault> {
        if matches!(request.service.as_str(), "ec2" | "iam") {
            let fields = Params::parse(&request.body)?.fields().clone();
            return Ok(Self { action: fields.get("Action").cloned().unwrap_or_default(), fields });
        }
        if request.service == "eks" {
            let name = eks::cluster_of(request).map(|name| ("name".to_owned(), name.to_string()));
            return Ok(Self { action: eks::action(request).to_owned(), fields: name.into_iter().collect() });
        }
        if request.service == zonal_shift::SERVICE {
            let arn = zonal_shift::resource_of(request).map(|arn| (zonal_shift::IDENTIFIER.to_owned(), arn));
            return Ok(Self { action: zonal_shift::action(request).to_owned(), fields: arn.into_iter().collect() });
        }
        let action = request.target.rsplit('.').next().unwrap_or_default().to_owned();
        let body: Value = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let fields = body.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect();
        Ok(Self { action, fields })
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
            let content_type =
                if matches!(service, "eks" | zonal_shift::SERVICE) { "application/json" } else { "application/x-amz-json-1.1" };
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
    (zonal_shift::SERVICE, &["GetManagedResource"]),
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
