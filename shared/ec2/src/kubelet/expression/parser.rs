//! From text to a tree whose parts have types, after the grammar of CEL.

use super::operations::{common, pattern, type_of_call, type_of_operation, unfit};
use super::{ExpressionError, Function, Kind, Node, Operator, Type, VARIABLES, Value};

/// Deeper nesting than any real setting has; bounds the recursion here and during evaluation.
const DEPTH_MAX: usize = 64;

/// Operators by precedence, lowest first; longer ones before their beginnings.
const LEVELS: &[&[Operator]] = &[
    &[Operator::Or],
    &[Operator::And],
    &[Operator::Equal, Operator::NotEqual, Operator::AtMost, Operator::AtLeast, Operator::Less, Operator::Greater, Operator::In],
    &[Operator::Add, Operator::Subtract],
    &[Operator::Multiply, Operator::Divide, Operator::Remainder],
];

type Typed = (Node, Type);

/// The whole text as one expression.
pub(super) fn parse(text: &str) -> Result<Typed, ExpressionError> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let typed = parser.choice()?;
    parser.blanks();
    if parser.at < text.len() {
        return Err(parser.problem("this is not expected here"));
    }
    Ok(typed)
}

struct Parser<'a> {
    text: &'a str,
    /// Up to where it is read: always between two characters.
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Reads what CEL takes for blanks, and comments.
    fn blanks(&mut self) {
        loop {
            let mut rest = self.rest().trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']);
            let comment = rest.starts_with("//");
            if comment {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
            }
            self.at = self.text.len() - rest.len();
            if !comment {
                return;
            }
        }
    }

    fn problem(&self, problem: &str) -> ExpressionError {
        ExpressionError::Syntax { at: self.text[..self.at].chars().count() + 1, problem: problem.to_owned() }
    }

    fn enter(&mut self) -> Result<(), ExpressionError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.problem("nested too deeply")) } else { Ok(()) }
    }

    fn take(&mut self, token: &str) -> bool {
        self.blanks();
        let Some(after) = self.rest().strip_prefix(token) else { return false };
        let word = token.ends_with(|c: char| c.is_ascii_alphabetic());
        if word && after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return false;
        }
        self.at += token.len();
        true
    }

    fn expect(&mut self, token: &str) -> Result<(), ExpressionError> {
        if self.take(token) { Ok(()) } else { Err(self.problem(&format!("expected {token:?}"))) }
    }

    fn choice(&mut self) -> Result<Typed, ExpressionError> {
        self.enter()?;
        let (condition, kind) = self.level(0)?;
        let typed = if self.take("?") {
            let (yes, one) = self.level(0)?;
            self.expect(":")?;
            let (no, other) = self.choice()?;
            if kind != Type::BOOL {
                return Err(unfit("? :", "a bool before it", &[kind]));
            }
            let result = common(one, other).ok_or_else(|| unfit("? :", "two values of one type", &[one, other]))?;
            (Node::Choice(Box::new(condition), Box::new(yes), Box::new(no)), result)
        } else {
            (condition, kind)
        };
        self.depth -= 1;
        Ok(typed)
    }

    fn level(&mut self, level: usize) -> Result<Typed, ExpressionError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let (first, mut kind) = self.level(level + 1)?;
        let mut rest = Vec::new();
        while let Some(operator) = operators.iter().copied().find(|operator| self.take(operator.text())) {
            let (node, other) = self.level(level + 1)?;
            kind = type_of_operation(operator, kind, other)?;
            rest.push((operator, node));
        }
        Ok((chain(first, rest), kind))
    }

    fn unary(&mut self) -> Result<Typed, ExpressionError> {
        self.enter()?;
        let typed = if self.take("!") {
            let (inner, kind) = self.unary()?;
            if kind != Type::BOOL {
                return Err(unfit("!", "a bool", &[kind]));
            }
            (Node::Not(Box::new(inner)), kind)
        } else if self.take("-") {
            self.negative()?
        } else {
            self.member()?
        };
        self.depth -= 1;
        Ok(typed)
    }

    /// After a minus, which belongs to a numeral: the lowest number has no positive counterpart.
    fn negative(&mut self) -> Result<Typed, ExpressionError> {
        self.blanks();
        if self.rest().starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.numeral(true);
        }
        let (inner, kind) = self.unary()?;
        if kind.is_number() { Ok((Node::Negate(Box::new(inner)), kind)) } else { Err(unfit("-", "an int or a double", &[kind])) }
    }

    fn member(&mut self) -> Result<Typed, ExpressionError> {
        let mut typed = self.primary()?;
        loop {
            if self.take(".") {
                let name = self.name().ok_or_else(|| self.problem("expected a method"))?;
                self.expect("(")?;
                typed = self.call(name, Some(typed))?;
            } else if self.take("[") {
                typed = self.item(typed)?;
            } else {
                return Ok(typed);
            }
        }
    }

    fn item(&mut self, (list, kind): Typed) -> Result<Typed, ExpressionError> {
        let (index, number) = self.choice()?;
        self.expect("]")?;
        match (kind, number) {
            (Type::List(Some(kind)), Type::INT) => Ok((Node::Item(Box::new(list), Box::new(index)), Type::Single(kind))),
            _ => Err(unfit("[ ]", "a list with items and an int", &[kind, number])),
        }
    }

    fn primary(&mut self) -> Result<Typed, ExpressionError> {
        if self.take("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return self.list();
        }
        self.blanks();
        let mut ahead = self.rest().chars();
        match (ahead.next(), ahead.next()) {
            (Some(quote @ ('"' | '\'')), _) => self.quoted(quote, false),
            (Some('r' | 'R'), Some(quote @ ('"' | '\''))) => {
                self.at += 1;
                self.quoted(quote, true)
            }
            (Some('0'..='9'), _) | (Some('.'), Some('0'..='9')) => self.numeral(false),
            (Some('{'), _) => Err(self.problem("maps are not supported: decide with ? :")),
            _ => self.named(),
        }
    }

    fn named(&mut self) -> Result<Typed, ExpressionError> {
        let Some(name) = self.name() else {
            return Err(self.problem("expected a number, a text, a list, a variable or a parenthesis"));
        };
        match name {
            "true" | "false" => Ok((Node::Literal(Value::Bool(name == "true")), Type::BOOL)),
            _ if self.take("(") => self.call(name, None),
            _ => match VARIABLES.iter().find(|(known, _)| *known == name) {
                Some((known, kind)) => Ok((Node::Variable(known), Type::Single(*kind))),
                None => Err(ExpressionError::UnknownVariable(name.to_owned())),
            },
        }
    }

    /// A call whose parenthesis is open.
    fn call(&mut self, name: &str, receiver: Option<Typed>) -> Result<Typed, ExpressionError> {
        let Some(function) = Function::ALL.into_iter().find(|function| function.name() == name) else {
            let known = Function::ALL.map(Function::name).join(", ");
            return Err(self.problem(&format!("there is no function {name}: use one of {known}")));
        };
        let usage = || format!("{name} is written {}", function.usage());
        let fits = if receiver.is_some() { function.may_be_a_method() } else { function.may_stand_alone() };
        if !fits {
            return Err(self.problem(&usage()));
        }
        let mut given: Vec<Typed> = receiver.into_iter().collect();
        given.extend(self.arguments(")")?);
        if given.len() != function.arity() {
            return Err(self.problem(&usage()));
        }
        let (nodes, kinds): (Vec<Node>, Vec<Type>) = given.into_iter().unzip();
        let kind = type_of_call(function, &kinds)?;
        if function == Function::Matches
            && let [_, Node::Literal(Value::Text(text))] = nodes.as_slice()
        {
            pattern(text)?;
        }
        Ok((Node::Call(function, nodes), kind))
    }

    /// A list whose bracket is open.
    fn list(&mut self) -> Result<Typed, ExpressionError> {
        let mut items = Vec::new();
        let mut of: Option<Kind> = None;
        for (node, kind) in self.arguments("]")? {
            match kind {
                Type::Single(kind) if of.is_none_or(|known| known == kind) => of = Some(kind),
                _ => return Err(self.problem("the items of a list are ints, doubles, strings or bools, all of one type")),
            }
            items.push(node);
        }
        Ok((Node::List(items), Type::List(of)))
    }

    /// Up to and with the end; a list may have a comma before it.
    fn arguments(&mut self, end: &str) -> Result<Vec<Typed>, ExpressionError> {
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
            if end == "]" && self.take(end) {
                return Ok(arguments);
            }
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        self.blanks();
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return None;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        Some(&rest[..end])
    }

    fn quoted(&mut self, quote: char, raw: bool) -> Result<Typed, ExpressionError> {
        if self.rest().starts_with(if quote == '"' { "\"\"\"" } else { "'''" }) {
            return Err(self.problem("texts in three quotes are not supported: write one"));
        }
        self.at += quote.len_utf8();
        let mut text = String::new();
        loop {
            let Some(next) = self.rest().chars().next().filter(|next| !matches!(next, '\n' | '\r')) else {
                return Err(self.problem("the text has no end on its line"));
            };
            self.at += next.len_utf8();
            match next {
                _ if next == quote => return Ok((Node::Literal(Value::Text(text)), Type::TEXT)),
                '\\' if !raw => text.push(self.escaped()?),
                _ => text.push(next),
            }
        }
    }

    /// What an escape stands for; its backslash is read.
    fn escaped(&mut self) -> Result<char, ExpressionError> {
        let rest = self.rest();
        let (character, length) = match rest.chars().next() {
            Some('a') => (Some('\u{7}'), 1),
            Some('b') => (Some('\u{8}'), 1),
            Some('f') => (Some('\u{c}'), 1),
            Some('n') => (Some('\n'), 1),
            Some('r') => (Some('\r'), 1),
            Some('t') => (Some('\t'), 1),
            Some('v') => (Some('\u{b}'), 1),
            Some(same @ ('"' | '\'' | '\\' | '?' | '`')) => (Some(same), 1),
            Some('x' | 'X') => (coded(rest.get(1..3), 16), 3),
            Some('u') => (coded(rest.get(1..5), 16), 5),
            Some('U') => (coded(rest.get(1..9), 16), 9),
            Some('0'..='3') => (coded(rest.get(..3), 8), 3),
            _ => (None, 0),
        };
        let Some(character) = character else {
            return Err(self.problem("there is no such escape: write a backslash twice, or an r before the text"));
        };
        self.at += length;
        Ok(character)
    }

    fn numeral(&mut self, negative: bool) -> Result<Typed, ExpressionError> {
        let rest = self.rest();
        let sign = if negative { "-" } else { "" };
        if let Some(hex) = rest.strip_prefix("0x") {
            let digits = &hex[..leading(hex, u8::is_ascii_hexdigit)];
            if digits.is_empty() {
                return Err(self.problem("this is not a number"));
            }
            let number = i64::from_str_radix(&format!("{sign}{digits}"), 16).map_err(|_| ExpressionError::Overflow)?;
            self.at += "0x".len() + digits.len();
            return self.ended(Value::Int(number), Type::INT);
        }
        let whole = leading(rest, u8::is_ascii_digit);
        let fraction = rest[whole..].strip_prefix('.').map_or(0, |digits| leading(digits, u8::is_ascii_digit));
        let point = whole + if fraction > 0 { ".".len() + fraction } else { 0 };
        if point == 0 {
            return Err(self.problem("this is not a number"));
        }
        let end = point + exponent(&rest[point..]);
        let written = format!("{sign}{}", &rest[..end]);
        self.at += end;
        if end == whole {
            let number = written.parse().map_err(|_| ExpressionError::Overflow)?;
            return self.ended(Value::Int(number), Type::INT);
        }
        match written.parse::<f64>() {
            Ok(number) if number.is_finite() => self.ended(Value::Double(number), Type::DOUBLE),
            _ => Err(ExpressionError::Overflow),
        }
    }

    /// A number, unless a suffix makes it one of a type that is not supported.
    fn ended(&self, value: Value, kind: Type) -> Result<Typed, ExpressionError> {
        if self.rest().starts_with(['u', 'U']) {
            return Err(self.problem("unsigned numbers are not supported: leave out the suffix"));
        }
        Ok((Node::Literal(value), kind))
    }
}

/// How many of the first bytes are such digits.
fn leading(text: &str, is_digit: fn(&u8) -> bool) -> usize {
    text.bytes().take_while(is_digit).count()
}

/// The length of an exponent, if there is one.
fn exponent(text: &str) -> usize {
    let Some(after) = text.strip_prefix(['e', 'E']) else { return 0 };
    let sign = usize::from(after.starts_with(['+', '-']));
    match leading(&after[sign..], u8::is_ascii_digit) {
        0 => 0,
        digits => "e".len() + sign + digits,
    }
}

/// A character by its code.
fn coded(digits: Option<&str>, radix: u32) -> Option<char> {
    let digits = digits.filter(|digits| digits.chars().all(|digit| digit.is_digit(radix)))?;
    char::from_u32(u32::from_str_radix(digits, radix).ok()?)
}

/// One node of what is at one level of precedence.
fn chain(first: Node, rest: Vec<(Operator, Node)>) -> Node {
    let Some(operator) = rest.first().map(|(operator, _)| *operator) else { return first };
    if !matches!(operator, Operator::Or | Operator::And) {
        return Node::Chain(Box::new(first), rest);
    }
    let parts = std::iter::once(first).chain(rest.into_iter().map(|(_, node)| node)).collect();
    if operator == Operator::Or { Node::AnyOf(parts) } else { Node::AllOf(parts) }
}
