//! What operators and functions make of types, and of values: as cel-go does with the types that are supported here.

use super::{ExpressionError, Function, Kind, Node, Operator, Type, Value, Variables};
use regex_lite::{Regex, RegexBuilder};
use std::cmp::Ordering;

/// A pattern that is larger when it is compiled is refused: some 2,000 characters, or fewer that are repeated.
const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// The first double beyond 64 bits; its negative is the lowest whole number.
const WHOLE_END: f64 = 9_223_372_036_854_775_808.0;

/// The type that two values have in common.
pub(super) fn common(one: Type, other: Type) -> Option<Type> {
    match (one, other) {
        (Type::List(None), Type::List(of)) | (Type::List(of), Type::List(None)) => Some(Type::List(of)),
        _ => (one == other).then_some(one),
    }
}

/// The type of what an operator makes of two values.
pub(super) fn type_of_operation(operator: Operator, left: Type, right: Type) -> Result<Type, ExpressionError> {
    let both = common(left, right);
    let result = match operator {
        Operator::Or | Operator::And => both.filter(|both| *both == Type::BOOL),
        Operator::Equal | Operator::NotEqual => both.map(|_| Type::BOOL),
        Operator::AtMost | Operator::AtLeast | Operator::Less | Operator::Greater => {
            both.filter(|both| !matches!(both, Type::List(_))).map(|_| Type::BOOL)
        }
        Operator::In => match right {
            Type::List(of) => of.is_none_or(|of| left == Type::Single(of)).then_some(Type::BOOL),
            Type::Single(_) => None,
        },
        Operator::Add => both.filter(|both| *both != Type::BOOL),
        Operator::Subtract | Operator::Multiply | Operator::Divide => both.filter(|both| both.is_number()),
        Operator::Remainder => both.filter(|both| *both == Type::INT),
    };
    let takes = match operator {
        Operator::Or | Operator::And => "two bools",
        Operator::Equal | Operator::NotEqual => "two values of one type",
        Operator::AtMost | Operator::AtLeast | Operator::Less | Operator::Greater => "two ints, doubles, strings or bools",
        Operator::In => "a value and a list of its type",
        Operator::Add => "two ints, doubles, strings or lists",
        Operator::Subtract | Operator::Multiply | Operator::Divide => "two ints or two doubles",
        Operator::Remainder => "two ints",
    };
    result.ok_or_else(|| unfit(operator.text(), takes, &[left, right]))
}

/// The type of what a function makes of its arguments, of which there are as many as it takes.
pub(super) fn type_of_call(function: Function, given: &[Type]) -> Result<Type, ExpressionError> {
    let (result, takes) = match (function, given) {
        (Function::Min | Function::Max, [left, right]) => {
            let numbers = left.is_number() && right.is_number();
            (numbers.then_some(if left == right { *left } else { Type::DOUBLE }), "two numbers")
        }
        (Function::Int, [of]) => (is_readable(*of).then_some(Type::INT), "an int, a double or a string"),
        (Function::Double, [of]) => (is_readable(*of).then_some(Type::DOUBLE), "an int, a double or a string"),
        (Function::Text, [of]) => {
            let fits = matches!(of, Type::Single(Kind::Int | Kind::Bool | Kind::Text));
            (fits.then_some(Type::TEXT), "an int, a bool or a string")
        }
        (Function::Size, [of]) => (matches!(*of, Type::TEXT | Type::List(_)).then_some(Type::INT), "a string or a list"),
        _ => (given.iter().all(|of| *of == Type::TEXT).then_some(Type::BOOL), "strings"),
    };
    result.ok_or_else(|| unfit(&format!("{}()", function.name()), takes, given))
}

const fn is_readable(of: Type) -> bool {
    matches!(of, Type::Single(Kind::Int | Kind::Double | Kind::Text))
}

/// That something is given what it does not take, and what helps.
pub(super) fn unfit(what: &str, takes: &str, given: &[Type]) -> ExpressionError {
    let names: Vec<String> = given.iter().map(ToString::to_string).collect();
    let mixed = given.contains(&Type::INT) && given.contains(&Type::DOUBLE);
    let remedy = if mixed { ": convert one with int() or double()" } else { "" };
    ExpressionError::Types(format!("{what} takes {takes}, not {}{remedy}", names.join(" and ")))
}

/// A value of another type than it was checked for: a variable is not what it is declared to be.
fn mismatch(what: &str) -> ExpressionError {
    ExpressionError::Types(format!("{what} cannot be applied to these kinds of values"))
}

pub(super) fn evaluate(node: &Node, variables: &Variables) -> Result<Value, ExpressionError> {
    match node {
        Node::Literal(value) => Ok(value.clone()),
        Node::Variable(name) => variables.get(name).cloned().ok_or_else(|| ExpressionError::UnknownVariable((*name).to_owned())),
        Node::List(items) => Ok(Value::List(all(items, variables)?)),
        Node::Item(list, index) => item(&evaluate(list, variables)?, &evaluate(index, variables)?),
        Node::Not(inner) => Ok(Value::Bool(!truth(inner, variables)?)),
        Node::Negate(inner) => match evaluate(inner, variables)? {
            Value::Int(number) => number.checked_neg().map(Value::Int).ok_or(ExpressionError::Overflow),
            Value::Double(number) => Ok(Value::Double(-number)),
            _ => Err(mismatch("-")),
        },
        Node::AnyOf(parts) => decided(parts, true, variables),
        Node::AllOf(parts) => decided(parts, false, variables),
        Node::Chain(first, rest) => {
            rest.iter().try_fold(evaluate(first, variables)?, |left, (operator, right)| apply(*operator, left, evaluate(right, variables)?))
        }
        Node::Choice(condition, yes, no) => evaluate(if truth(condition, variables)? { yes } else { no }, variables),
        Node::Call(function, arguments) => call(*function, &all(arguments, variables)?),
    }
}

fn all(nodes: &[Node], variables: &Variables) -> Result<Vec<Value>, ExpressionError> {
    nodes.iter().map(|node| evaluate(node, variables)).collect()
}

fn truth(node: &Node, variables: &Variables) -> Result<bool, ExpressionError> {
    match evaluate(node, variables)? {
        Value::Bool(truth) => Ok(truth),
        _ => Err(mismatch("a condition")),
    }
}

/// `||` and `&&`: one part that decides is enough, on whichever side of one that fails.
fn decided(parts: &[Node], decisive: bool, variables: &Variables) -> Result<Value, ExpressionError> {
    let mut failure = None;
    for part in parts {
        match truth(part, variables) {
            Ok(truth) if truth == decisive => return Ok(Value::Bool(decisive)),
            Ok(_) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(Value::Bool(!decisive)), Err)
}

fn item(list: &Value, index: &Value) -> Result<Value, ExpressionError> {
    let (Value::List(items), Value::Int(index)) = (list, index) else { return Err(mismatch("[ ]")) };
    let found = usize::try_from(*index).ok().and_then(|at| items.get(at));
    found.cloned().ok_or(ExpressionError::NoSuchItem { index: *index, count: items.len() })
}

fn apply(operator: Operator, left: Value, right: Value) -> Result<Value, ExpressionError> {
    match operator {
        Operator::Equal => Ok(Value::Bool(left == right)),
        Operator::NotEqual => Ok(Value::Bool(left != right)),
        Operator::AtMost => order(&left, &right).map(|order| Value::Bool(order.is_le())),
        Operator::AtLeast => order(&left, &right).map(|order| Value::Bool(order.is_ge())),
        Operator::Less => order(&left, &right).map(|order| Value::Bool(order.is_lt())),
        Operator::Greater => order(&left, &right).map(|order| Value::Bool(order.is_gt())),
        Operator::In => match right {
            Value::List(items) => Ok(Value::Bool(items.contains(&left))),
            _ => Err(mismatch("in")),
        },
        Operator::Or | Operator::And => Err(mismatch(operator.text())),
        Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => computed(operator, left, right),
    }
}

fn order(left: &Value, right: &Value) -> Result<Ordering, ExpressionError> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => Ok(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b).ok_or(ExpressionError::NotFinite),
        (Value::Text(a), Value::Text(b)) => Ok(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        _ => Err(mismatch("a comparison")),
    }
}

fn computed(operator: Operator, left: Value, right: Value) -> Result<Value, ExpressionError> {
    match (operator, left, right) {
        (_, Value::Int(a), Value::Int(b)) => whole(operator, a, b).map(Value::Int),
        (Operator::Add, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Operator::Subtract, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Operator::Multiply, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (Operator::Divide, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        (Operator::Add, Value::Text(a), Value::Text(b)) => Ok(Value::Text(a + &b)),
        (Operator::Add, Value::List(mut a), Value::List(b)) => {
            a.extend(b);
            Ok(Value::List(a))
        }
        _ => Err(mismatch(operator.text())),
    }
}

fn whole(operator: Operator, a: i64, b: i64) -> Result<i64, ExpressionError> {
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide | Operator::Remainder if b == 0 => return Err(ExpressionError::DivisionByZero),
        Operator::Divide => a.checked_div(b),
        Operator::Remainder => a.checked_rem(b),
        _ => return Err(mismatch(operator.text())),
    };
    result.ok_or(ExpressionError::Overflow)
}

fn call(function: Function, values: &[Value]) -> Result<Value, ExpressionError> {
    Ok(match (function, values) {
        (Function::Min, [Value::Int(a), Value::Int(b)]) => Value::Int(*a.min(b)),
        (Function::Max, [Value::Int(a), Value::Int(b)]) => Value::Int(*a.max(b)),
        // Of a whole number and a fraction the result is a fraction, whichever it is: the type does not depend on the values.
        (Function::Min | Function::Max, [left, right]) => {
            let (a, b) = (as_double(left)?, as_double(right)?);
            let is_first = if function == Function::Min { a < b } else { a > b };
            Value::Double(if is_first { a } else { b })
        }
        (Function::Int, [Value::Int(number)]) => Value::Int(*number),
        (Function::Int, [Value::Double(number)]) => Value::Int(truncate(*number)?),
        (Function::Int, [Value::Text(text)]) => Value::Int(text.parse().map_err(|_| unreadable(text, "an int of 64 bits"))?),
        (Function::Double, [Value::Text(text)]) => Value::Double(text.parse().map_err(|_| unreadable(text, "a double"))?),
        (Function::Double, [number]) => Value::Double(as_double(number)?),
        (Function::Text, [Value::Int(number)]) => Value::Text(number.to_string()),
        (Function::Text, [Value::Bool(truth)]) => Value::Text(truth.to_string()),
        (Function::Text, [Value::Text(text)]) => Value::Text(text.clone()),
        (Function::Size, [Value::Text(text)]) => size(text.chars().count())?,
        (Function::Size, [Value::List(items)]) => size(items.len())?,
        (Function::StartsWith, [Value::Text(text), Value::Text(part)]) => Value::Bool(text.starts_with(part.as_str())),
        (Function::EndsWith, [Value::Text(text), Value::Text(part)]) => Value::Bool(text.ends_with(part.as_str())),
        (Function::Contains, [Value::Text(text), Value::Text(part)]) => Value::Bool(text.contains(part.as_str())),
        (Function::Matches, [Value::Text(text), Value::Text(wanted)]) => Value::Bool(pattern(wanted)?.is_match(text)),
        _ => return Err(mismatch(&format!("{}()", function.name()))),
    })
}

fn unreadable(text: &str, wanted: &'static str) -> ExpressionError {
    ExpressionError::NotConvertible { text: text.to_owned(), wanted }
}

fn size(count: usize) -> Result<Value, ExpressionError> {
    i64::try_from(count).map(Value::Int).map_err(|_| ExpressionError::Overflow)
}

/// A pattern of `matches`, which takes time in proportion to itself and its text.
pub(super) fn pattern(text: &str) -> Result<Regex, ExpressionError> {
    let built = RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
    built.map_err(|error| ExpressionError::Pattern { pattern: text.to_owned(), problem: error.to_string() })
}

#[expect(clippy::cast_precision_loss, reason = "CEL's conversion to double")]
fn as_double(value: &Value) -> Result<f64, ExpressionError> {
    match value {
        Value::Int(number) => Ok(*number as f64),
        Value::Double(number) => Ok(*number),
        _ => Err(mismatch("double()")),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "truncation is what is asked for; the range is checked first")]
pub(super) fn truncate(number: f64) -> Result<i64, ExpressionError> {
    if !number.is_finite() {
        return Err(ExpressionError::NotFinite);
    }
    if !(-WHOLE_END..WHOLE_END).contains(&number) {
        return Err(ExpressionError::Overflow);
    }
    Ok(number as i64)
}
