//! Who may call what: the rights that a call needs, and whether the policies of its principal grant them.
//!
//! A right is an action on a resource, with the condition keys that AWS's service authorization reference has for that action and
//! that kind of resource. A principal without policies is an administrator.

mod launch;
mod needs;

pub use needs::{Need, Stage};
pub(crate) use needs::{of as needs_of, request_tags, resources};

use crate::control::ChangeError;
use crate::errors::Fault;
use crate::params::Params;
use crate::zonal_shift;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use whittle_iam::{Decision, Request, Statement, decide};

/// Rights that no action of [`crate::api::ACTIONS`] is named after.
const IMPLIED: &[&str] = &["iam:PassRole", "iam:TagInstanceProfile"];

/// The condition keys that calls have; of those that end in a slash each has its own.
const KEYS: &[&str] = &[
    "arc-zonal-shift:ResourceIdentifier",
    "aws:RequestedRegion",
    "aws:RequestTag/",
    "aws:ResourceTag/",
    "aws:TagKeys",
    "ec2:CreateAction",
    "ec2:Region",
    "ec2:ResourceTag/",
    "iam:PassedToService",
];

/// Tags by kind of resource.
pub(crate) type TagsByKind = BTreeMap<String, BTreeMap<String, String>>;

/// The policies of principals, and what launch templates add to the tags of a launch.
#[derive(Debug, Default)]
pub struct Access {
    /// Statements by principal: an access key, or the name that the owner of the region gives its holder.
    policies: BTreeMap<String, Vec<Statement>>,
    /// The names of the statements that allowed a call, by principal.
    used: BTreeMap<String, BTreeSet<String>>,
    /// What the data of a launch template tag, by its name.
    pub(crate) template_tags: BTreeMap<String, TagsByKind>,
}

/// A right that a principal lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) need: Need,
    /// Whether a statement refuses it, rather than none allowing it.
    explicit: bool,
}

impl Access {
    /// Gives a principal these policy documents in place of those it had; `None` makes it an administrator.
    ///
    /// # Errors
    ///
    /// An element, operator or condition key that is not known here. Then nothing has changed.
    pub fn set_policies(&mut self, principal: &str, documents: Option<&[Value]>) -> Result<(), ChangeError> {
        let statements = documents.map(|documents| statements(principal, documents)).transpose()?;
        match statements {
            Some(statements) => self.policies.insert(principal.to_owned(), statements),
            None => self.policies.remove(principal),
        };
        Ok(())
    }

    /// Remembers what a call that succeeded says of later launches.
    pub(crate) fn note(&mut self, service: &str, action: &str, fields: &BTreeMap<String, String>) {
        let mut params = Params::of(fields);
        let name = params.text("LaunchTemplateName").unwrap_or_default();
        match (service, action) {
            ("ec2", "CreateLaunchTemplate") => {
                let tags = params.structure("LaunchTemplateData").map(|mut data| specified(&mut data)).unwrap_or_default();
                self.template_tags.insert(name, tags);
            }
            ("ec2", "DeleteLaunchTemplate") => {
                self.template_tags.remove(&name);
            }
            _ => {}
        }
    }

    /// The principals that have policies.
    pub(crate) fn principals(&self) -> Vec<String> {
        self.policies.keys().cloned().collect()
    }

    /// The statements that allowed calls so far, by principal.
    pub(crate) fn used(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.used.clone()
    }

    /// The first of these rights that the principal lacks. Notes which statements give the others.
    pub(crate) fn lacking(&mut self, principal: &str, needs: &[Need]) -> Option<Denial> {
        let statements = self.policies.get(principal)?;
        for need in needs {
            let request = request(need);
            let decision = decision(statements, need, &request);
            if decision != Decision::Allowed {
                return Some(Denial { need: need.clone(), explicit: decision == Decision::Denied });
            }
            let giving = statements.iter().filter(|statement| statement.allows && statement.applies(&request));
            self.used.entry(principal.to_owned()).or_default().extend(giving.map(|statement| statement.sid.clone()));
        }
        None
    }
}

fn request(need: &Need) -> Request {
    Request { service: String::new(), action: need.action.clone(), resource: need.resource.clone(), context: need.context.clone() }
}

fn decision(statements: &[Statement], need: &Need, request: &Request) -> Decision {
    let decision = decide(statements, request);
    // What does not exist is not found, unless no tags could ever allow the call.
    let could = || statements.iter().any(|statement| statement.allows && statement.is_about(request));
    if decision == Decision::NotAllowed && need.missing && could() { Decision::Allowed } else { decision }
}

/// Reads policy documents; the error names the statement.
pub(crate) fn statements(principal: &str, documents: &[Value]) -> Result<Vec<Statement>, ChangeError> {
    let mut found = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let place = format!("policies.{principal}[{number}]");
        let statements = match &document["Statement"] {
            Value::Array(statements) => statements.iter().collect(),
            Value::Null => return Err(ChangeError::new(place, "a policy document has statements, in the field Statement")),
            one => vec![one],
        };
        for (number, statement) in statements.into_iter().enumerate() {
            let place = format!("{place}.Statement[{number}]");
            let statement = Statement::parse(statement).map_err(|error| ChangeError::new(&place, error.to_string()))?;
            check_keys(&place, &statement)?;
            found.push(statement);
        }
    }
    Ok(found)
}

/// Refuses a condition that could never be judged here.
fn check_keys(place: &str, statement: &Statement) -> Result<(), ChangeError> {
    let served = crate::api::ACTIONS.iter().flat_map(|(service, actions)| actions.iter().map(move |action| format!("{service}:{action}")));
    let all = served.chain(IMPLIED.iter().map(|&action| action.to_owned()));
    let Some(action) = all.into_iter().find(|action| statement.names_action(action)) else { return Ok(()) };
    let known = |key: &str| {
        KEYS.iter().any(|known| {
            let start = key.get(..known.len()).unwrap_or_default();
            start.eq_ignore_ascii_case(known) && (known.ends_with('/') || key.len() == known.len())
        })
    };
    match statement.conditions.iter().find(|condition| !known(&condition.key)) {
        Some(condition) => {
            let problem = format!("calls of {action} have no condition key {} here; known are {}", condition.key, KEYS.join(", "));
            Err(ChangeError::new(format!("{place}.Condition"), problem))
        }
        None => Ok(()),
    }
}

impl Denial {
    /// The sentence that AWS ends its refusals with.
    fn reason(&self, principal: &str) -> String {
        let Need { action, resource, .. } = &self.need;
        let why = if self.explicit {
            "with an explicit deny in an identity-based policy".to_owned()
        } else {
            format!("because no identity-based policy allows the {action} action")
        };
        let user = format!("arn:aws:sts::{}:assumed-role/{principal}/session", crate::ec2::ACCOUNT);
        format!("User: {user} is not authorized to perform: {action} on resource: {resource} {why}")
    }

    /// EC2's message, for calls and for pools of a fleet.
    pub(crate) fn of_ec2(&self, principal: &str) -> String {
        format!("You are not authorized to perform this operation. {}", self.reason(principal))
    }

    /// The refusal in the words of a service.
    pub(crate) fn fault(&self, service: &str, principal: &str) -> Fault {
        match service {
            "ec2" => Fault::new(UNAUTHORIZED, self.of_ec2(principal)).with_status(403),
            "iam" => Fault::new("AccessDenied", self.reason(principal)).with_status(403),
            "eks" | zonal_shift::SERVICE => Fault::new("AccessDeniedException", self.reason(principal)).with_status(403),
            _ => Fault::new("AccessDeniedException", self.reason(principal)),
        }
    }
}

/// EC2's code for a refused call, and for pools of a fleet whose launch is refused.
pub(crate) const UNAUTHORIZED: &str = "UnauthorizedOperation";

/// The tags of a request's tag specifications. What is malformed is left to the action, which refuses it.
pub(crate) fn specified(params: &mut Params) -> TagsByKind {
    let mut found = TagsByKind::new();
    for mut specification in params.list("TagSpecification").unwrap_or_default() {
        let kind = specification.text("ResourceType").unwrap_or_default();
        found.insert(kind, listed(&mut specification, "Tag"));
    }
    found
}

/// The tags of a list.
pub(crate) fn listed(params: &mut Params, name: &str) -> BTreeMap<String, String> {
    let tags = params.list(name).unwrap_or_default().into_iter();
    tags.filter_map(|mut tag| Some((tag.text("Key")?, tag.text("Value").unwrap_or_default()))).collect()
}

#[cfg(test)]
mod tests;
