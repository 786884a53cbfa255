//! Plain scalars by the rules of YAML 1.1, as kubectl and the API server's tools parse them.

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use serde_json::{Number, Value};

/// Base64 as Go decodes it: with padding, whatever the bits after the last byte are.
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// Parses an unquoted scalar. NaN and infinities are rejected, because JSON cannot express them.
    pub(crate) fn plain(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => Self::Bool(true),
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" => {
                return Err(format!("{text} is no number that an object can hold: quote it if text is meant"));
            }
            _ => number(text).unwrap_or_else(|| Self::Text(text.to_owned())),
        })
    }

    /// Decodes what is tagged as `!!binary`. Each byte that is not UTF-8 becomes a replacement character, because JSON cannot express it.
    pub(crate) fn binary(text: &str) -> Result<Self, String> {
        let letters: String = text.chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
        let bytes = BASE64.decode(letters).map_err(|error| format!("what is tagged as binary is no base64: {error}"))?;
        let replaced = |invalid: &[u8]| invalid.iter().map(|_| char::REPLACEMENT_CHARACTER).collect::<String>();
        Ok(Self::Text(bytes.utf8_chunks().map(|chunk| chunk.valid().to_owned() + &replaced(chunk.invalid())).collect()))
    }

    /// The scalar as the key of a map.
    pub(crate) fn as_key(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    /// The scalar as JSON: whole numbers become integers, however they were written.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => i64::try_from(*value)
                .map(Number::from)
                .or_else(|_| u64::try_from(*value).map(Number::from))
                .map_or_else(|_| float(*value as f64), Value::Number),
            Self::Float(value) => float(*value),
            Self::Text(text) => Value::String(text.clone()),
        }
    }
}

fn float(value: f64) -> Value {
    // Beyond 2^53 a float does not represent a single integer.
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn number(text: &str) -> Option<Scalar> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain = text.replace('_', "");
    if let Some(value) = integer(&plain) {
        return Some(Scalar::Int(value));
    }
    if is_float(&plain) {
        return plain.parse().ok().filter(|value: &f64| value.is_finite()).map(Scalar::Float);
    }
    None
}

/// Decimal, `0x`, `0b`, `0o` and octal with a leading zero.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match prefix.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // The integer parser would accept a second sign.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        None => digits(mantissa),
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
    };
    mantissa_fits && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}
