//! Arithmetic in kubelet settings (aws 3.5): a subset of CEL over integers and floating-point numbers,
//! booleans and strings. No loops, no macros, no user-defined types; evaluation always terminates.

use std::collections::BTreeMap;

/// The variables of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Double(f64),
    Bool(bool),
    Text(String),
}

/// Variables by name.
pub type Variables = BTreeMap<&'static str, Value>;

/// Names and placeholder values of the variables, for checks before a type is known.
pub const VARIABLES: &[(&str, VariableKind)] = &[
    ("vcpus", VariableKind::Int),
    ("memory_mib", VariableKind::Int),
    ("default_enis", VariableKind::Int),
    ("ips_per_eni", VariableKind::Int),
    ("max_pods", VariableKind::Int),
    ("instance_type", VariableKind::Text),
];

/// The value of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    Int,
    Text,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("the expression is empty")]
    Empty,
    #[error("the expression {expression:?} does not parse at character {at}: {problem}")]
    Syntax { expression: String, at: usize, problem: String },
    #[error("unknown variable {0:?}: use vcpus, memory_mib, default_enis, ips_per_eni, max_pods or instance_type")]
    UnknownVariable(String),
    #[error("{0} cannot be applied to these kinds of values")]
    Types(String),
    #[error("division by zero")]
    DivisionByZero,
    #[error("the number leaves the range of 64 bits")]
    Overflow,
    #[error("the result is not a finite number")]
    NotFinite,
    #[error("the result is a {0}, not a number")]
    NotANumber(&'static str),
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Literal(Value),
    Variable(String),
    List(Vec<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Call(String, Vec<Node>),
}

impl Expression {
    /// Parses and checks names; types are checked during evaluation.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.trim().is_empty() {
            return Err(ExpressionError::Empty);
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let node = parser.choice()?;
        parser.blanks();
        if parser.at < text.len() {
            return Err(parser.problem("this is not expected here"));
        }
        Ok(Self(node))
    }

    /// Whether an expression can be a number on some type: types are checked with placeholders for the variables. What only some
    /// values make fail, such as a division, is not an error here.
    pub fn check(text: &str) -> Result<(), ExpressionError> {
        let placeholder = |kind: VariableKind| match kind {
            VariableKind::Int => Value::Int(1),
            VariableKind::Text => Value::Text("m5.large".to_owned()),
        };
        let variables = VARIABLES.iter().map(|(name, kind)| (*name, placeholder(*kind))).collect();
        match Self::parse(text)?.number(&variables) {
            Ok(_) | Err(ExpressionError::DivisionByZero | ExpressionError::Overflow | ExpressionError::NotFinite) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The value of the expression, doubles truncated.
    pub fn number(&self, variables: &Variables) -> Result<i64, ExpressionError> {
        match evaluate(&self.0, variables)? {
            Value::Int(number) => Ok(number),
            Value::Double(number) => truncate(number),
            Value::Bool(_) => Err(ExpressionError::NotANumber("boolean")),
            Value::Text(_) => Err(ExpressionError::NotANumber("text")),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "truncation is what is asked for; the range is checked first")]
fn truncate(number: f64) -> Result<i64, ExpressionError> {
    if !number.is_finite() {
        return Err(ExpressionError::NotFinite);
    }
    if number.abs() >= 9.2e18 {
        return Err(ExpressionError::Overflow);
    }
    Ok(number as i64)
}

#[expect(clippy::cast_precision_loss, reason = "CEL's conversion to double")]
fn double(number: i64) -> f64 {
    number as f64
}

fn evaluate(node: &Node, variables: &Variables) -> Result<Value, ExpressionError> {
    match node {
        Node::Literal(value) => Ok(value.clone()),
        Node::Variable(name) => variables.get(name.as_str()).cloned().ok_or_else(|| ExpressionError::UnknownVariable(name.clone())),
        Node::List(_) => Err(ExpressionError::Types("a list outside of `in`".to_owned())),
        Node::Not(inner) => Ok(Value::Bool(!truth(inner, variables, "!")?)),
        Node::Negate(inner) => match evaluate(inner, variables)? {
            Value::Int(number) => number.checked_neg().map(Value::Int).ok_or(ExpressionError::Overflow),
            Value::Double(number) => Ok(Value::Double(-number)),
            _ => Err(ExpressionError::Types("-".to_owned())),
        },
        Node::Choice(condition, yes, no) => evaluate(if truth(condition, variables, "?:")? { yes } else { no }, variables),
        Node::Binary("&&", left, right) => Ok(Value::Bool(truth(left, variables, "&&")? && truth(right, variables, "&&")?)),
        Node::Binary("||", left, right) => Ok(Value::Bool(truth(left, variables, "||")? || truth(right, variables, "||")?)),
        Node::Binary("in", left, right) => membership(left, right, variables),
        Node::Binary(operator, left, right) => binary(operator, evaluate(left, variables)?, evaluate(right, variables)?),
        Node::Call(name, arguments) => {
            let values = arguments.iter().map(|argument| evaluate(argument, variables)).collect::<Result<Vec<_>, _>>()?;
            call(name, &values)
        }
    }
}

fn truth(node: &Node, variables: &Variables, operator: &str) -> Result<bool, ExpressionError> {
    match evaluate(node, variables)? {
        Value::Bool(truth) => Ok(truth),
        _ => Err(ExpressionError::Types(operator.to_owned())),
    }
}

fn membership(left: &Node, right: &Node, variables: &Variables) -> Result<Value, ExpressionError> {
    let Node::List(items) = right else { return Err(ExpressionError::Types("in".to_owned())) };
    let wanted = evaluate(left, variables)?;
    for item in items {
        if evaluate(item, variables)? == wanted {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn binary(operator: &str, left: Value, right: Value) -> Result<Value, ExpressionError> {
    let compared = match (&left, &right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Double(b)) => double(*a).partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&double(*b)),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => return Err(ExpressionError::Types(operator.to_owned())),
    };
    match operator {
        "==" => return Ok(Value::Bool(compared.is_some_and(std::cmp::Ordering::is_eq))),
        "!=" => return Ok(Value::Bool(!compared.is_some_and(std::cmp::Ordering::is_eq))),
        "<" => return Ok(Value::Bool(compared.is_some_and(std::cmp::Ordering::is_lt))),
        "<=" => return Ok(Value::Bool(compared.is_some_and(std::cmp::Ordering::is_le))),
        ">" => return Ok(Value::Bool(compared.is_some_and(std::cmp::Ordering::is_gt))),
        ">=" => return Ok(Value::Bool(compared.is_some_and(std::cmp::Ordering::is_ge))),
        _ => {}
    }
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => whole(operator, a, b).map(Value::Int),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(match operator {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            _ => return Err(ExpressionError::Types(operator.to_owned())),
        })),
        (Value::Text(a), Value::Text(b)) if operator == "+" => Ok(Value::Text(a + &b)),
        _ => Err(ExpressionError::Types(operator.to_owned())),
    }
}

fn whole(operator: &str, a: i64, b: i64) -> Result<i64, ExpressionError> {
    let result = match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" | "%" if b == 0 => return Err(ExpressionError::DivisionByZero),
        "/" => a.checked_div(b),
        "%" => a.checked_rem(b),
        _ => return Err(ExpressionError::Types(operator.to_owned())),
    };
    result.ok_or(ExpressionError::Overflow)
}

fn call(name: &str, values: &[Value]) -> Result<Value, ExpressionError> {
    let types = || ExpressionError::Types(format!("{name}()"));
    Ok(match (name, values) {
        ("min" | "max", [left, right]) => {
            let ordering = binary("<=", left.clone(), right.clone())?;
            if matches!((left, right), (Value::Text(_) | Value::Bool(_), _)) {
                return Err(types());
            }
            let chosen = if (ordering == Value::Bool(true)) == (name == "min") { left } else { right };
            match chosen {
                // Of a whole number and a fraction the result is a fraction, whichever it is: the type does not depend on the values.
                Value::Int(number) if matches!((left, right), (Value::Double(_), _) | (_, Value::Double(_))) => {
                    Value::Double(double(*number))
                }
                chosen => chosen.clone(),
            }
        }
        ("int", [Value::Int(number)]) => Value::Int(*number),
        ("int", [Value::Double(number)]) => Value::Int(truncate(*number)?),
        ("int", [Value::Text(text)]) => Value::Int(text.parse().map_err(|_| types())?),
        ("double", [Value::Int(number)]) => Value::Double(double(*number)),
        ("double", [Value::Double(number)]) => Value::Double(*number),
        ("size", [Value::Text(text)]) => Value::Int(i64::try_from(text.chars().count()).map_err(|_| ExpressionError::Overflow)?),
        ("startsWith", [Value::Text(text), Value::Text(part)]) => Value::Bool(text.starts_with(part.as_str())),
        ("endsWith", [Value::Text(text), Value::Text(part)]) => Value::Bool(text.ends_with(part.as_str())),
        ("contains", [Value::Text(text), Value::Text(part)]) => Value::Bool(text.contains(part.as_str())),
        _ => return Err(types()),
    })
}

/// Functions and the number of their arguments, the receiver of a method included.
const FUNCTIONS: &[(&str, usize)] =
    &[("min", 2), ("max", 2), ("int", 1), ("double", 1), ("size", 1), ("startsWith", 2), ("endsWith", 2), ("contains", 2)];
/// Deeper nesting than any real setting has; bounds the recursion.
const MAX_DEPTH: usize = 64;
/// Binary operators by precedence, lowest first; longer spellings before their prefixes.
const LEVELS: &[&[&str]] = &[&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+", "-"], &["*", "/", "%"]];

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }
    fn problem(&self, problem: &str) -> ExpressionError {
        ExpressionError::Syntax { expression: self.text.to_owned(), at: self.at, problem: problem.to_owned() }
    }
    fn take(&mut self, token: &str) -> bool {
        self.blanks();
        let found = self.rest().starts_with(token);
        let word = token.ends_with(|c: char| c.is_ascii_alphabetic());
        if !found || word && self.rest()[token.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return false;
        }
        self.at += token.len();
        true
    }
    fn expect(&mut self, token: &str) -> Result<(), ExpressionError> {
        if self.take(token) { Ok(()) } else { Err(self.problem(&format!("expected {token:?}"))) }
    }
    fn choice(&mut self) -> Result<Node, ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.problem("nested too deeply"));
        }
        let condition = self.level(0)?;
        let node = if self.take("?") {
            let yes = self.level(0)?;
            self.expect(":")?;
            Node::Choice(Box::new(condition), Box::new(yes), Box::new(self.choice()?))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(node)
    }
    fn level(&mut self, level: usize) -> Result<Node, ExpressionError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            left = Node::Binary(operator, Box::new(left), Box::new(self.level(level + 1)?));
        }
        Ok(left)
    }
    fn unary(&mut self) -> Result<Node, ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.problem("nested too deeply"));
        }
        let node = if self.take("!") {
            Node::Not(Box::new(self.unary()?))
        } else if self.take("-") {
            Node::Negate(Box::new(self.unary()?))
        } else {
            self.member()?
        };
        self.depth -= 1;
        Ok(node)
    }
    fn member(&mut self) -> Result<Node, ExpressionError> {
        let mut node = self.primary()?;
        while self.take(".") {
            let name = self.name().ok_or_else(|| self.problem("expected a method"))?;
            self.expect("(")?;
            let mut arguments = vec![node];
            arguments.extend(self.arguments(")")?);
            node = self.function(name, arguments)?;
        }
        Ok(node)
    }
    fn primary(&mut self) -> Result<Node, ExpressionError> {
        if self.take("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return self.arguments("]").map(Node::List);
        }
        self.blanks();
        match self.rest().chars().next() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some(digit) if digit.is_ascii_digit() || digit == '.' => self.numeral(),
            _ => {
                let name = self.name().ok_or_else(|| self.problem("expected a number, a variable or a parenthesis"))?;
                match name {
                    "true" => Ok(Node::Literal(Value::Bool(true))),
                    "false" => Ok(Node::Literal(Value::Bool(false))),
                    _ if self.take("(") => {
                        let arguments = self.arguments(")")?;
                        self.function(name, arguments)
                    }
                    _ if VARIABLES.iter().any(|(known, _)| *known == name) => Ok(Node::Variable(name.to_owned())),
                    _ => Err(ExpressionError::UnknownVariable(name.to_owned())),
                }
            }
        }
    }
    fn function(&self, name: &str, arguments: Vec<Node>) -> Result<Node, ExpressionError> {
        match FUNCTIONS.iter().find(|(known, _)| *known == name) {
            Some((_, count)) if *count == arguments.len() => Ok(Node::Call(name.to_owned(), arguments)),
            Some((_, count)) => Err(self.problem(&format!("{name} takes {count} values"))),
            None => Err(self.problem(&format!("there is no function {name}"))),
        }
    }
    fn arguments(&mut self, end: &str) -> Result<Vec<Node>, ExpressionError> {
        let mut arguments = Vec::new();
        if self.take(end) {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.choice()?);
            if !self.take(",") {
                self.expect(end)?;
                return Ok(arguments);
            }
        }
    }
    fn name(&mut self) -> Option<&'a str> {
        self.blanks();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        self.at += end;
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then_some(name)
    }
    fn quoted(&mut self, quote: char) -> Result<Node, ExpressionError> {
        let body = &self.rest()[1..];
        let end = body.find(quote).ok_or_else(|| self.problem("the text has no end"))?;
        if body[..end].contains('\\') {
            return Err(self.problem("escapes are not supported"));
        }
        self.at += end + 2;
        Ok(Node::Literal(Value::Text(body[..end].to_owned())))
    }
    fn numeral(&mut self) -> Result<Node, ExpressionError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            let exponent_sign = end > 0 && matches!(bytes[end], b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
            if !(bytes[end].is_ascii_digit() || matches!(bytes[end], b'.' | b'e' | b'E') || exponent_sign) {
                break;
            }
            end += 1;
        }
        let digits = &rest[..end];
        let value = if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            Value::Int(digits.parse().map_err(|_| ExpressionError::Overflow)?)
        } else {
            Value::Double(digits.parse().map_err(|_| self.problem("this is not a number"))?)
        };
        self.at += end;
        Ok(Node::Literal(value))
    }
}
