//! What parsers say of a value that does not fit, in the words of manifests instead of those of a programming language.

use std::borrow::Cow;

/// Whether a word can be shown as it is: it has no letter that ends a line, steers a terminal, changes the direction of writing or
/// is not seen.
#[must_use]
pub fn is_printable(word: &str) -> bool {
    !word.contains(|letter: char| letter.is_control() || is_unseen(letter))
}

/// Whether a letter is not seen, or changes the direction of writing: what Unicode calls default ignorable and format characters, and
/// separators of lines.
#[must_use]
pub const fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffc}' | '\u{110bd}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}'
    )
}

/// A word as it is, or in quotes with such letters written as escapes.
#[must_use]
pub fn printable(word: &str) -> Cow<'_, str> {
    if is_printable(word) { Cow::Borrowed(word) } else { Cow::Owned(format!("{word:?}")) }
}

/// The same message, for somebody who wrote the value. What is no message of a parser stays as it is.
#[must_use]
pub fn plain(message: &str) -> String {
    let (said, place) = message.rfind(" at line ").map_or((message, ""), |at| message.split_at(at));
    let clear =
        misplaced(said).or_else(|| unknown(said)).or_else(|| of_yaml(said)).or_else(|| of_text(said)).unwrap_or_else(|| said.to_owned());
    match place.strip_prefix(" at line ").and_then(|place| place.split_once(" column ")) {
        Some((line, column)) => format!("{clear} (line {line}, column {column})"),
        None => format!("{clear}{place}"),
    }
}

/// `invalid type: map, expected a sequence`, and the same of values and lengths.
fn misplaced(said: &str) -> Option<String> {
    let rest = ["invalid type: ", "invalid value: ", "invalid length "].iter().find_map(|start| said.strip_prefix(start))?;
    let (found, wanted) = rest.rsplit_once(", expected ")?;
    let is_value = said.starts_with("invalid value");
    let found = if said.starts_with("invalid length") { format!("{found} of them").into() } else { shown(found) };
    Some(format!("{} is needed here, not {found}", needed(wanted, is_value)))
}

/// What was expected; of a number that is one the range matters.
fn needed(wanted: &str, is_value: bool) -> Cow<'_, str> {
    let range = match wanted {
        "i8" => "a whole number from -128 to 127",
        "i16" => "a whole number from -32768 to 32767",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number from 0 on",
        _ => "a smaller whole number",
    };
    Cow::Borrowed(match wanted {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" if is_value => range,
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" if is_value => range,
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number from 0 on",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" | "string" | "str" | "identifier" => "text",
        "a sequence" => "a list",
        "unit" | "null" => "nothing",
        struct_or_map if struct_or_map == "a map" || struct_or_map.starts_with("struct ") => "a map of fields",
        tuple if tuple.starts_with("tuple ") => "a list",
        kinds if kinds.starts_with("enum ") || kinds.contains(" enum ") || kinds == "string or map" => "one of the words for it",
        other => return Cow::Borrowed(other),
    })
}

/// What is there instead.
fn shown(found: &str) -> Cow<'_, str> {
    let quoted = |of: &str| found.strip_prefix(of).map(|rest| rest.trim_matches('`').to_owned());
    match found {
        "map" => "a map of fields".into(),
        "sequence" => "a list".into(),
        "null" | "unit value" | "Option value" => "nothing".into(),
        _ => ["integer ", "floating point ", "boolean "]
            .iter()
            .find_map(|of| quoted(of))
            .map(Cow::Owned)
            .or_else(|| found.strip_prefix("string ").map(|text| Cow::Owned(format!("the text {text}"))))
            .unwrap_or(Cow::Borrowed(found)),
    }
}

/// `unknown variant`, `unknown field`, `missing field`, `duplicate field`.
fn unknown(said: &str) -> Option<String> {
    let named = |of: &str| {
        let (name, rest) = said.strip_prefix(of)?.strip_prefix('`')?.split_once('`')?;
        let known = rest.strip_prefix(", expected ").unwrap_or_default();
        Some((name, known.trim_start_matches("one of ").replace(" or ", ", ").replace('`', "")))
    };
    if let Some((name, known)) = named("unknown variant ") {
        let known = if known.is_empty() { String::new() } else { format!(": write one of {known}") };
        return Some(format!("{name:?} is no value for this{known}"));
    }
    if let Some((name, known)) = named("unknown field ") {
        let known = if known.is_empty() { String::new() } else { format!("; there are {known}") };
        return Some(format!("there is no field {name:?} here{known}"));
    }
    if let Some((name, _)) = named("missing field ") {
        return Some(format!("the field {name:?} is missing: write it"));
    }
    let (name, _) = named("duplicate field ")?;
    Some(format!("the field {name:?} stands twice: keep one of them"))
}

/// What the YAML parser says of a value of another kind.
fn of_yaml(said: &str) -> Option<String> {
    let told = [
        ("cannot deserialize null into string", "text is needed here, not nothing"),
        ("expected string key for externally tagged enum", "one of the words for it is needed here"),
        (
            "externally tagged enum expected scalar or mapping",
            "one of the words for it is needed here, or a map of one of them, not a list",
        ),
        ("unexpected value for unit", "nothing is needed here: write the word alone"),
    ];
    told.iter().find(|(of, _)| said.starts_with(of)).map(|(_, told)| (*told).to_owned())
}

/// What was read of a text: a number or a time.
fn of_text(said: &str) -> Option<String> {
    let is_number = [
        "invalid digit found in string",
        "number too large to fit in target type",
        "number too small to fit in target type",
        "cannot parse integer from empty string",
        "number out of range",
    ];
    if is_number.iter().any(|words| said.contains(words)) {
        return Some("this is no number that fits here: write a whole number, in digits, and not too large".to_owned());
    }
    let is_time = ["failed to parse", "failed to find offset", "parsed datetime", "expected time zone offset", "expected separator"];
    let words_of_times = ["year", "month", "day", "hour", "minute", "second", "date", "time", "offset", "Zulu", "timestamp"];
    let told = is_time.iter().any(|words| said.contains(words)) && words_of_times.iter().any(|word| said.contains(word));
    told.then(|| "this is no time: write one such as 2026-01-01T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectMeta;
    use crate::k8s::PodSpec;
    use serde::de::DeserializeOwned;

    #[track_caller]
    fn check<T: DeserializeOwned>(text: &str, wanted: &str) {
        let error = serde_json::from_str::<T>(text).err().unwrap();
        let said = plain(&error.to_string());
        assert!(said.starts_with(wanted), "{error}: {said}");
        for word in ["struct", "expected", "variant", "i32", "u32", "sequence", "invalid"] {
            assert!(!said.contains(word), "{said}");
        }
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Fields {
        size: u8,
        state: Option<State>,
    }

    #[derive(Debug, serde::Deserialize)]
    enum State {
        On,
        Off,
    }

    #[test]
    fn messages_of_the_parser_say_what_is_needed_and_what_is_there() {
        check::<ObjectMeta>("5", "a map of fields is needed here, not 5 (line 1, column 1)");
        check::<PodSpec>(r#"{"containers": {}}"#, "a list is needed here, not a map of fields (line 1, column");
        check::<i32>(r#""x""#, "a whole number is needed here, not the text \"x\"");
        check::<i32>("5000000000", "a whole number from -2147483648 to 2147483647 is needed here, not 5000000000");
        check::<u32>("1.5", "a whole number from 0 on is needed here, not 1.5");
        check::<bool>("null", "true or false is needed here, not nothing");
        check::<String>("[]", "text is needed here, not a list");
        check::<Fields>(r#"{"size": 300}"#, "a whole number from 0 to 255 is needed here, not 300");
        check::<Fields>(r#"{"sise": 3}"#, "there is no field \"sise\" here; there are size, state");
        check::<Fields>("{}", "the field \"size\" is missing: write it");
        check::<Fields>(r#"{"size": 1, "size": 2}"#, "the field \"size\" stands twice");
        check::<Fields>(r#"{"size": 1, "state": "Onn"}"#, "\"Onn\" is no value for this: write one of On, Off");
        check::<jiff::Timestamp>(r#""yesterday""#, "this is no time: write one such as 2026-01-01T00:00:00Z");
        check::<jiff::Timestamp>(r#""2026-13-01T00:00:00Z""#, "this is no time");
        for (said, wanted) in [
            ("cannot deserialize null into string; use Option<String>", "text is needed here, not nothing"),
            ("externally tagged enum expected scalar or mapping", "one of the words for it is needed here, or a map of one of them"),
        ] {
            assert!(plain(said).starts_with(wanted), "{}", plain(said));
        }
        for text in ["x", "", "99999999999"] {
            assert!(plain(&text.parse::<i32>().unwrap_err().to_string()).starts_with("this is no number"), "{text}");
        }
    }

    #[test]
    fn words_that_people_understand_stay_as_they_are() {
        for said in ["a whole number, or text such as 10%, is needed", "there is no kind Nod", ""] {
            assert_eq!(plain(said), said);
        }
    }
}
