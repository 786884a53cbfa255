//! What was probably meant by the key of a label, or by a value of a well-known label that no instance type has.

use std::fmt::{self, Display};
use whittle_api::labels;

/// How many values that may have been meant are named at most.
const NAMED_MAX: usize = 6;

/// A value that no instance type has, and what was probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    pub key: String,
    /// As it was written.
    pub value: String,
    /// Values that there are, equally near; at least one.
    pub values: Vec<String>,
    /// Whether the pod asks for it, or its NodePool.
    pub by_pod: bool,
}

impl Display for Meant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} instead of {}", self.key, self.values.join(" or "), self.value)
    }
}

/// Which values of a label are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// All that there are.
    All,
    /// Those of some regions: a value that is near to one of them may be that of another region.
    Some,
}

/// Values that need no instance type to be known.
const FIXED: &[(&str, &[&str])] = &[
    (labels::ARCH, &["amd64", "arm64"]),
    (labels::OS, &["linux", "windows"]),
    (labels::CAPACITY_TYPE, &[labels::CAPACITY_ON_DEMAND, labels::CAPACITY_SPOT, labels::CAPACITY_RESERVED]),
    (labels::INSTANCE_TENANCY, &["dedicated", "default"]),
];

/// Other words for values, without marks between their letters.
const SYNONYMS: &[(&str, &[&str], &str)] = &[
    (labels::ARCH, &["amd", "intel", "x64", "x86", "x8664"], "amd64"),
    (labels::ARCH, &["aarch64", "arm", "armv8", "arm64v8", "graviton"], "arm64"),
    (labels::OS, &["al2", "al2023", "bottlerocket"], "linux"),
    (labels::OS, &["win", "windows2019", "windows2022"], "windows"),
];

/// The values that were probably meant by one that is none of `known`; none if it is one of them, or near to none.
#[must_use]
pub fn meant_values<'a>(key: &str, value: &str, known: impl IntoIterator<Item = &'a str>, of: Known) -> Vec<String> {
    let key = labels::normalized(key);
    let fixed = FIXED.iter().find(|(of, _)| *of == key).map_or(&[][..], |(_, values)| values);
    let mut all: Vec<&str> = known.into_iter().chain(fixed.iter().copied()).collect();
    if all.contains(&value) {
        return Vec::new();
    }
    all.sort_unstable();
    all.dedup();
    let plain = letters(value);
    if let Some((.., meant)) = SYNONYMS.iter().find(|(of, words, _)| *of == key && words.contains(&plain.as_str())) {
        return vec![(*meant).to_owned()];
    }
    let mut near: Vec<&str> = all.iter().copied().filter(|known| letters(known) == plain).collect();
    if near.is_empty() {
        near = match key {
            labels::INSTANCE_TYPE => misspelt_sizes(value, &all),
            labels::INSTANCE_SIZE => nearest(value, all.into_iter().filter(|known| digits(known) == digits(value))),
            labels::ZONE if of == Known::All => nearest(value, all),
            // A region in the place of a zone.
            labels::ZONE => all
                .into_iter()
                .filter(|known| known.strip_prefix(value).is_some_and(|rest| rest.len() == 1 && !rest.starts_with(char::is_numeric)))
                .collect(),
            _ if !fixed.is_empty() => nearest(value, all),
            _ => Vec::new(),
        };
    }
    near.into_iter().take(NAMED_MAX).map(str::to_owned).collect()
}

/// The well-known key that was probably mistyped as `key`.
#[must_use]
pub fn meant_key(key: &str) -> Option<&'static str> {
    nearest(key, labels::WELL_KNOWN.iter().copied()).first().copied()
}

/// Its letters and digits, in lower case.
fn letters(word: &str) -> String {
    word.chars().filter(|letter| letter.is_alphanumeric()).map(|letter| letter.to_ascii_lowercase()).collect()
}

fn digits(word: &str) -> String {
    word.chars().filter(char::is_ascii_digit).collect()
}

/// The types of the same family whose sizes are near to one that no type has. Another family may well be meant, only elsewhere.
fn misspelt_sizes<'a>(value: &str, all: &[&'a str]) -> Vec<&'a str> {
    let Some((family, size)) = value.split_once('.') else { return Vec::new() };
    if all.iter().any(|known| known.split_once('.').is_some_and(|(_, known)| known == size)) {
        return Vec::new();
    }
    let of_family = all.iter().copied().filter(|known| known.split_once('.').is_some_and(|(known, _)| known == family));
    nearest(value, of_family.filter(|known| digits(known) == digits(value)))
}

/// Those of `known` with the fewest typing errors: one in a short word, two in a longer one.
fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let count = word.chars().count();
    let most = if count <= 5 { 1 } else { 2 };
    let close = known.into_iter().filter(|known| known.chars().count().abs_diff(count) <= most);
    let scored: Vec<(usize, &str)> = close.map(|known| (strsim::osa_distance(word, known), known)).collect();
    let least = scored.iter().map(|(distance, _)| *distance).min().filter(|least| *least <= most);
    scored.into_iter().filter(|(distance, _)| Some(*distance) == least).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &[&str] = &["m5.large", "m5.xlarge", "m5.2xlarge", "m6g.large"];
    const ZONES: &[&str] = &["us-east-1a", "us-east-1b"];

    #[track_caller]
    fn check(key: &str, value: &str, known: &[&str], meant: &[&str]) {
        assert_eq!(meant_values(key, value, known.iter().copied(), Known::All), meant, "{key} {value}");
    }

    #[test]
    fn other_words_marks_and_typing_errors_are_seen_through() {
        for (written, meant) in [("x86_64", "amd64"), ("AMD64", "amd64"), ("arm", "arm64"), ("aarch64", "arm64"), ("arm_64", "arm64")] {
            check(labels::ARCH, written, &["amd64"], &[meant]);
        }
        check("beta.kubernetes.io/arch", "x86-64", &[], &["amd64"]);
        for written in ["ondemand", "on_demand", "OnDemand", "on-demnd"] {
            check(labels::CAPACITY_TYPE, written, &[], &["on-demand"]);
        }
        check(labels::CAPACITY_TYPE, "spto", &[], &["spot"]);
        check(labels::OS, "Linux", &["linux"], &["linux"]);
        for written in ["m5.larg", "M5.Large", "m5large", "m5-large", "m5.lagre"] {
            check(labels::INSTANCE_TYPE, written, TYPES, &["m5.large"]);
        }
        check(labels::INSTANCE_FAMILY, "M5", &["m5", "m6g"], &["m5"]);
        check(labels::INSTANCE_SIZE, "xlareg", &["large", "xlarge", "2xlarge"], &["xlarge"]);
    }

    #[test]
    fn what_another_region_may_have_is_no_typing_error() {
        check(labels::ARCH, "arm64", &["amd64"], &[]);
        check(labels::OS, "windows", &["linux"], &[]);
        check(labels::CAPACITY_TYPE, "reserved", &["spot"], &[]);
        check(labels::INSTANCE_TYPE, "m7g.large", TYPES, &[]);
        check(labels::INSTANCE_TYPE, "m5.4xlarge", TYPES, &[]);
        check(labels::INSTANCE_TYPE, "m5.large", TYPES, &[]);
        check(labels::INSTANCE_FAMILY, "m7g", &["m5", "m6g"], &[]);
        check(labels::INSTANCE_SIZE, "3xlarge", &["large", "xlarge", "2xlarge"], &[]);
        check(labels::ZONE, "eu-west-1a", ZONES, &[]);
        check("team", "blu", &["blue"], &[]);
    }

    #[test]
    fn zones_are_near_only_where_all_are_known() {
        check(labels::ZONE, "us-east1a", ZONES, &["us-east-1a"]);
        check(labels::ZONE, "us-east-1x", ZONES, ZONES);
        check(labels::ZONE, "us-east-1", ZONES, ZONES);
        let some = |value| meant_values(labels::ZONE, value, ZONES.iter().copied(), Known::Some);
        assert_eq!(some("us-east-2a"), Vec::<String>::new());
        assert_eq!(
            (some("us-east1a"), some("us-east-1")),
            (vec!["us-east-1a".to_owned()], ZONES.iter().map(ToString::to_string).collect())
        );
    }

    #[test]
    fn a_key_is_meant_by_one_that_is_near() {
        assert_eq!(meant_key("topology.kubernetes.io/zones"), Some(labels::ZONE));
        assert_eq!(meant_key("karpenter.sh/capacitytype"), Some(labels::CAPACITY_TYPE));
        assert_eq!(meant_key("example.com/team"), None);
    }
}
