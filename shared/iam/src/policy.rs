//! Evaluates IAM policies for a request: the elements and operators that policies of this field use. What is not known here
//! is an error when a statement is read, never a guess when it is applied.

use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// A service, such as `events.amazonaws.com`; empty for a role.
    pub service: String,
    pub action: String,
    pub resource: String,
    /// Values by condition key in lower case, which is how keys are compared.
    pub context: BTreeMap<String, Vec<String>>,
}

/// A statement with nothing left to resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub sid: String,
    pub allows: bool,
    /// The principal in a resource policy; `None` in a role's policy.
    pub principals: Option<Vec<String>>,
    pub actions: Names,
    pub resources: Names,
    pub conditions: Vec<Condition>,
}

/// The matched values: those listed, or all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    These(Vec<String>),
    AllBut(Vec<String>),
}

/// One key of a statement's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub operator: Operator,
    pub key: String,
    pub values: Vec<String>,
}

/// An operator with its prefix and suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    set: Option<Set>,
    test: Test,
    if_exists: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    All,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Equals,
    NotEquals,
    Like,
    NotLike,
    Arn,
    Bool,
    Null,
}

impl Operator {
    fn parse(text: &str) -> Result<Self> {
        let (set, rest) = match text.split_once(':') {
            Some(("ForAllValues", rest)) => (Some(Set::All), rest),
            Some(("ForAnyValue", rest)) => (Some(Set::Any), rest),
            Some(_) => bail!("condition operator {text} is not known here"),
            None => (None, text),
        };
        let (base, if_exists) = rest.strip_suffix("IfExists").map_or((rest, false), |base| (base, true));
        let test = match base {
            "StringEquals" => Test::Equals,
            "StringNotEquals" => Test::NotEquals,
            "StringLike" => Test::Like,
            "StringNotLike" => Test::NotLike,
            "ArnEquals" | "ArnLike" => Test::Arn,
            "Bool" => Test::Bool,
            "Null" => Test::Null,
            _ => bail!("condition operator {text} is not known here"),
        };
        Ok(Self { set, test, if_exists })
    }
}

impl Condition {
    fn holds(&self, request: &Request) -> bool {
        let Operator { set, test, if_exists } = self.operator;
        let present = request.context.get(&self.key.to_ascii_lowercase()).filter(|values| !values.is_empty());
        if test == Test::Null {
            return self.values.iter().any(|wanted| wanted.eq_ignore_ascii_case("true") == present.is_none());
        }
        let negative = matches!(test, Test::NotEquals | Test::NotLike);
        let Some(present) = present else { return if_exists || negative || set == Some(Set::All) };
        let one = |value: &String| self.values.iter().any(|wanted| test.matches(wanted, value)) != negative;
        match set {
            Some(Set::All) => present.iter().all(one),
            Some(Set::Any) => present.iter().any(one),
            // A key with one value; of several values, a negated test must match none.
            None if negative => present.iter().all(one),
            None => present.iter().any(one),
        }
    }
}

impl Test {
    /// The test without its negation, which the caller applies.
    fn matches(self, wanted: &str, value: &str) -> bool {
        match self {
            Test::Equals | Test::NotEquals => wanted == value,
            Test::Like | Test::NotLike => glob(wanted, value),
            Test::Arn => arn(wanted, value),
            Test::Bool => wanted.eq_ignore_ascii_case(value),
            Test::Null => false,
        }
    }
}

/// Whether `text` matches a pattern with `*` and `?`.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    // The position of the last star, and the end of the text that it matches.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, read));
            at += 1;
        } else if pattern.get(at).is_some_and(|letter| *letter == b'?' || *letter == text[read]) {
            (at, read) = (at + 1, read + 1);
        } else if let Some((back, taken)) = star {
            star = Some((back, taken + 1));
            (at, read) = (back + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

/// The same for ARNs: each of the six parts separately, so that no wildcard crosses a colon.
pub fn arn(pattern: &str, text: &str) -> bool {
    let (wanted, found): (Vec<&str>, Vec<&str>) = (pattern.splitn(6, ':').collect(), text.splitn(6, ':').collect());
    if wanted.len() < 6 {
        return pattern == "*";
    }
    wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, found)| glob(wanted, found))
}

impl Names {
    fn include(&self, matches: impl Fn(&str) -> bool) -> bool {
        match self {
            Names::These(names) => names.iter().any(|name| matches(name)),
            Names::AllBut(names) => !names.iter().any(|name| matches(name)),
        }
    }

    fn parse(statement: &Value, name: &str) -> Result<Option<Self>> {
        let negated = format!("Not{name}");
        Ok(match (statement.get(name), statement.get(&negated)) {
            (Some(names), None) => Some(Names::These(texts(names)?)),
            (None, Some(names)) => Some(Names::AllBut(texts(names)?)),
            (None, None) => None,
            (Some(_), Some(_)) => bail!("a statement has {name} and {negated}"),
        })
    }
}

impl Statement {
    /// Reads a statement.
    ///
    /// # Errors
    ///
    /// An element or operator that is missing, not of its kind or not known here.
    pub fn parse(statement: &Value) -> Result<Self> {
        let allows = match statement["Effect"].as_str() {
            Some("Allow") => true,
            Some("Deny") => false,
            other => bail!("a statement has the effect {other:?}"),
        };
        let Some(actions) = Names::parse(statement, "Action")? else { bail!("a statement has no action") };
        // A trust policy applies to its role.
        let resources = Names::parse(statement, "Resource")?.unwrap_or_else(|| Names::These(vec!["*".to_owned()]));
        let principals = match statement.get("Principal") {
            None => None,
            Some(Value::Object(kinds)) => {
                let named: Result<Vec<Vec<String>>> = kinds.values().map(texts).collect();
                Some(named?.concat())
            }
            Some(anyone) => Some(texts(anyone)?),
        };
        let mut conditions = Vec::new();
        for (operator, keys) in statement["Condition"].as_object().into_iter().flatten() {
            for (key, values) in keys.as_object().into_iter().flatten() {
                conditions.push(Condition { operator: Operator::parse(operator)?, key: key.clone(), values: texts(values)? });
            }
        }
        let sid = statement["Sid"].as_str().unwrap_or("(without a name)").to_owned();
        Ok(Self { sid, allows, principals, actions, resources, conditions })
    }

    /// Whether the statement matches the request.
    pub fn applies(&self, request: &Request) -> bool {
        self.is_about(request) && self.conditions.iter().all(|condition| condition.holds(request))
    }

    /// Whether the statement matches the request but for its conditions.
    pub fn is_about(&self, request: &Request) -> bool {
        let about = self.principals.as_ref().is_none_or(|names| names.iter().any(|name| name == "*" || *name == request.service));
        about && self.names_action(&request.action) && self.resources.include(|name| arn(name, &request.resource))
    }

    /// Whether an action, as in `ec2:RunInstances`, is among the statement's.
    pub fn names_action(&self, action: &str) -> bool {
        let action = action.to_ascii_lowercase();
        self.actions.include(|name| glob(&name.to_ascii_lowercase(), &action))
    }
}

fn texts(value: &Value) -> Result<Vec<String>> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => Ok(items.iter().map(texts).collect::<Result<Vec<_>>>()?.concat()),
        other => bail!("{other} is no text"),
    }
}

/// IAM's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    /// A statement refuses it.
    Denied,
    /// No statement allows it.
    NotAllowed,
}

/// IAM's decision: an explicit deny wins, and the default is not to allow.
pub fn decide<'a>(statements: impl IntoIterator<Item = &'a Statement>, request: &Request) -> Decision {
    let mut decision = Decision::NotAllowed;
    for statement in statements.into_iter().filter(|statement| statement.applies(request)) {
        if !statement.allows {
            return Decision::Denied;
        }
        decision = Decision::Allowed;
    }
    decision
}

#[cfg(test)]
mod tests;
