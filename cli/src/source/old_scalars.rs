//! Words and numbers that YAML 1.1, which kubectl reads, and YAML 1.2 read differently: `yes` and `016`.

/// Whether a text may contain one that is not quoted. It may say so in vain, of a line within a block of text.
pub(super) fn any(text: &str) -> bool {
    text.lines().any(|line| line.contains("!!") || line.split([',', '{', '}', '[', ']']).any(of_part))
}

/// A part of a line without the marks of flow collections: keys before colons, and a value behind.
fn of_part(part: &str) -> bool {
    let mut begin = 0;
    let ends = part.bytes().enumerate().filter(|(at, byte)| *byte == b':' && separates(part.as_bytes(), *at)).map(|(at, _)| at);
    for end in ends.chain([part.len()]) {
        if part.get(begin..end).is_some_and(is_old) {
            return true;
        }
        begin = end + 1;
    }
    false
}

/// Whether a colon ends a key: before a blank, at the end, and behind a quoted key.
fn separates(part: &[u8], at: usize) -> bool {
    part.get(at + 1).is_none_or(u8::is_ascii_whitespace) || at.checked_sub(1).is_some_and(|before| matches!(part[before], b'"' | b'\''))
}

fn is_old(scalar: &str) -> bool {
    let scalar = scalar.split_once(" #").map_or(scalar, |(scalar, _)| scalar).trim();
    let scalar = scalar.trim_start_matches("- ").trim_start_matches("? ").trim_start();
    // An anchor or a tag may stand before it.
    let scalar = if scalar.starts_with(['&', '!']) { scalar.rsplit(' ').next().unwrap_or_default() } else { scalar };
    is_word(scalar) || is_number(scalar)
}

/// Booleans of old, and words that only the newer rules, or their readers, take for a boolean or for nothing.
fn is_word(word: &str) -> bool {
    let is_any = |words: &[&str]| words.iter().any(|one| word.eq_ignore_ascii_case(one));
    match word.len() {
        1..=3 => is_any(&["y", "n", "yes", "no", "on", "off"]),
        4..=5 => is_any(&["true", "false", "null"]) && !["true", "false", "null"].contains(&word),
        _ => false,
    }
}

/// Octal numbers, those with a base, an exponent or underscores, and whole ones with a point.
fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(['+', '-']);
    let mut bytes = digits.bytes();
    let Some(first) = bytes.next().filter(u8::is_ascii_digit) else { return false };
    let has_base = first == b'0' && bytes.next().is_some_and(|second| second.is_ascii_alphanumeric() || second == b'_');
    let exponent = digits.contains(['e', 'E']);
    let is_whole = |value: f64| value.fract() == 0.0;
    let is_float = (exponent || digits.contains('.')) && digits.parse().is_ok_and(|value| exponent || is_whole(value));
    is_float || (has_base || digits.contains('_')) && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_read_differently_is_found() {
        let found = [
            "a: yes",
            "- Off",
            "a: {b: [1, no ]}",
            "on: 1",
            "a: &x y",
            "cpu: 016",
            "{cpu: 016, memory: 1Gi}",
            "a: 1_000",
            "a: 0x1F",
            "- b: -017 # octal",
            "- name: a: y",
            "  yes,",
            "{\"cpu\":020}",
            "a:\t016",
            "{on: b}",
            "a: 12.0",
            "a: 1e1",
            "a: tRue",
            "a: nULL",
            "a: !!int \"016\"",
            "\"a\": n",
        ];
        for line in found {
            assert!(any(line), "{line}");
        }
        let plain = [
            "a: 'yes'",
            "a: \"016\"",
            "a: true",
            "a: 0",
            "at: \"2026-01-01T00:00:00Z\"",
            "at: 2026-01-01T00:00:00Z",
            "a: null",
            "podIP: 10.0.0.1",
            "a: 0.5",
            "a: 10",
            "message: no nodes are available",
            "uid: 0f3a-1",
            "a: 2026-01-01",
            "- on-demand",
            "key: not",
            "image: x:010-a",
        ];
        for line in plain {
            assert!(!any(line), "{line}");
        }
    }
}
