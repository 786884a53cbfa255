//! Words and numbers that YAML 1.1, which kubectl reads, and YAML 1.2 read differently: `yes` and `016`.

/// Whether a text may contain one that is not quoted. It may say so in vain, of a line within a block of text.
pub(super) fn any(text: &str) -> bool {
    text.lines().any(of_line)
}

fn of_line(line: &str) -> bool {
    line.split([',', '{', '}', '[', ']']).any(|part| {
        let part = part.trim_start_matches(['-', ' ', '?']);
        // A colon separates where a space or the end of the line follows it.
        match part.split_once(": ") {
            Some((key, value)) => is_old(key) || is_old(value) || value.contains(": ") && of_line(value),
            None => is_old(part.trim_end().trim_end_matches(':')),
        }
    })
}

fn is_old(scalar: &str) -> bool {
    let scalar = scalar.split_once(" #").map_or(scalar, |(scalar, _)| scalar).trim();
    // An anchor or a tag may stand before it.
    let scalar = if scalar.starts_with(['&', '!']) { scalar.rsplit(' ').next().unwrap_or_default() } else { scalar };
    is_boolean(scalar) || is_number(scalar)
}

fn is_boolean(word: &str) -> bool {
    word.len() <= 3 && ["y", "n", "yes", "no", "on", "off"].iter().any(|old| word.eq_ignore_ascii_case(old))
}

/// Octal numbers, those with a base, and those with underscores.
fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(['+', '-']);
    let mut bytes = digits.bytes();
    let Some(first) = bytes.next().filter(u8::is_ascii_digit) else { return false };
    let has_base = first == b'0' && bytes.next().is_some_and(|second| second.is_ascii_alphanumeric() || second == b'_');
    (has_base || digits.contains('_')) && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
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
