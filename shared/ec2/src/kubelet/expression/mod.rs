//! Arithmetic in kubelet settings (aws 3.5): the part of CEL that computes with numbers, booleans, texts and lists of them. Types are
//! checked before anything is evaluated, as Karpenter's environment does (ADR 0064). There are no loops, no macros and no types of a
//! user's own, and length and nesting are bounded: evaluation always ends, and soon.

mod operations;
mod parser;

use std::collections::BTreeMap;
use std::fmt;

/// What a variable or a part of an expression is worth.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Double(f64),
    Bool(bool),
    Text(String),
    List(Vec<Value>),
}

/// Variables by name.
pub type Variables = BTreeMap<&'static str, Value>;

/// The variables, and what they are on every instance type.
const VARIABLES: &[(&str, Kind)] = &[
    ("vcpus", Kind::Int),
    ("memory_mib", Kind::Int),
    ("default_enis", Kind::Int),
    ("ips_per_eni", Kind::Int),
    ("max_pods", Kind::Int),
    ("instance_type", Kind::Text),
];

/// Several times what a list of all families takes. cel-go reads 100,000 characters, on machines of its own.
pub const LENGTH_MAX: usize = 4096;

/// The type of a variable, and of what is in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Double,
    Bool,
    Text,
}

/// The type of a part of an expression, which is known before it is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Single(Kind),
    /// A list, and of what: of an empty one nothing is known.
    List(Option<Kind>),
}

impl Type {
    const INT: Self = Self::Single(Kind::Int);
    const DOUBLE: Self = Self::Single(Kind::Double);
    const BOOL: Self = Self::Single(Kind::Bool);
    const TEXT: Self = Self::Single(Kind::Text);

    const fn is_number(self) -> bool {
        matches!(self, Self::Single(Kind::Int | Kind::Double))
    }
}

/// In CEL's words.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kind: &Kind| match kind {
            Kind::Int => "int",
            Kind::Double => "double",
            Kind::Bool => "bool",
            Kind::Text => "string",
        };
        match self {
            Self::Single(kind) => f.write_str(name(kind)),
            Self::List(None) => f.write_str("empty list"),
            Self::List(Some(kind)) => write!(f, "list of {}", name(kind)),
        }
    }
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("the expression is empty: write a number or a formula, or leave the field out")]
    Empty,
    #[error("the expression has {length} bytes: at most {} are read", LENGTH_MAX)]
    TooLong { length: usize },
    /// Characters are counted from 1.
    #[error("the expression does not parse at character {at}: {problem}")]
    Syntax { at: usize, problem: String },
    #[error("unknown variable {0:?}: use vcpus, memory_mib, default_enis, ips_per_eni, max_pods or instance_type")]
    UnknownVariable(String),
    #[error("{0}")]
    Types(String),
    #[error("the pattern {pattern:?} of matches() cannot be used: {problem}")]
    Pattern { pattern: String, problem: String },
    #[error("{text:?} is not {wanted}")]
    NotConvertible { text: String, wanted: &'static str },
    #[error("there is no item {index} in a list of {count}: they are counted from 0")]
    NoSuchItem { index: i64, count: usize },
    #[error("division by zero: take max(1, …) of what may be 0")]
    DivisionByZero,
    #[error("the number leaves the range of 64 bits")]
    Overflow,
    #[error("the result is not a finite number")]
    NotFinite,
    #[error("the result is a {0}, not a number")]
    NotANumber(&'static str),
}

/// A parsed expression whose types fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Literal(Value),
    Variable(&'static str),
    List(Vec<Node>),
    Item(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    AnyOf(Vec<Node>),
    AllOf(Vec<Node>),
    /// From the left to the right. A long sum is no deep tree, so that it takes no stack.
    Chain(Box<Node>, Vec<(Operator, Node)>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

/// What stands between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    AtMost,
    AtLeast,
    Less,
    Greater,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    const fn text(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Less => "<",
            Self::Greater => ">",
            Self::In => "in",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

/// CEL's functions on these types, and Karpenter's `min` and `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Min,
    Max,
    Int,
    Double,
    Text,
    Size,
    StartsWith,
    EndsWith,
    Contains,
    Matches,
}

impl Function {
    const ALL: [Self; 10] = [
        Self::Min,
        Self::Max,
        Self::Int,
        Self::Double,
        Self::Text,
        Self::Size,
        Self::StartsWith,
        Self::EndsWith,
        Self::Contains,
        Self::Matches,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
            Self::Size => "size",
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Contains => "contains",
            Self::Matches => "matches",
        }
    }

    /// How it is written, for people.
    const fn usage(self) -> &'static str {
        match self {
            Self::Min => "min(a, b)",
            Self::Max => "max(a, b)",
            Self::Int => "int(a)",
            Self::Double => "double(a)",
            Self::Text => "string(a)",
            Self::Size => "size(a)",
            Self::StartsWith => "text.startsWith(part)",
            Self::EndsWith => "text.endsWith(part)",
            Self::Contains => "text.contains(part)",
            Self::Matches => "text.matches(pattern)",
        }
    }

    /// How many values it takes, a method's receiver included.
    const fn arity(self) -> usize {
        match self {
            Self::Int | Self::Double | Self::Text | Self::Size => 1,
            Self::Min | Self::Max | Self::StartsWith | Self::EndsWith | Self::Contains | Self::Matches => 2,
        }
    }

    const fn may_be_a_method(self) -> bool {
        matches!(self, Self::Size | Self::StartsWith | Self::EndsWith | Self::Contains | Self::Matches)
    }

    const fn may_stand_alone(self) -> bool {
        !matches!(self, Self::StartsWith | Self::EndsWith | Self::Contains)
    }
}

impl Expression {
    /// Parses and checks names and types. What only some values make fail, such as a division, is found by evaluation.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > LENGTH_MAX {
            return Err(ExpressionError::TooLong { length: text.len() });
        }
        if text.trim().is_empty() {
            return Err(ExpressionError::Empty);
        }
        match parser::parse(text)? {
            (node, Type::Single(Kind::Int | Kind::Double)) => Ok(Self(node)),
            (_, Type::Single(Kind::Bool)) => Err(ExpressionError::NotANumber("boolean")),
            (_, Type::Single(Kind::Text)) => Err(ExpressionError::NotANumber("text")),
            (_, Type::List(_)) => Err(ExpressionError::NotANumber("list")),
        }
    }

    /// The value of the expression, doubles truncated.
    pub fn number(&self, variables: &Variables) -> Result<i64, ExpressionError> {
        match operations::evaluate(&self.0, variables)? {
            Value::Int(number) => Ok(number),
            Value::Double(number) => operations::truncate(number),
            Value::Bool(_) => Err(ExpressionError::NotANumber("boolean")),
            Value::Text(_) => Err(ExpressionError::NotANumber("text")),
            Value::List(_) => Err(ExpressionError::NotANumber("list")),
        }
    }
}

#[cfg(test)]
mod tests;
