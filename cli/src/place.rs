//! What EKS accepts as the place of a cluster: its name, region and version.

/// The longest name of a cluster.
const NAME_MAX: usize = 100;

/// The name of a cluster.
pub(crate) fn cluster(text: &str) -> Result<String, String> {
    let first = text.chars().next().is_some_and(|letter| letter.is_ascii_alphanumeric());
    let all = text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_');
    let valid = first && all && text.len() <= NAME_MAX;
    valid.then(|| text.to_owned()).ok_or_else(|| {
        format!("no cluster has this name: use letters, digits, - and _, beginning with a letter or digit, at most {NAME_MAX}")
    })
}

/// The name of a region, such as `us-east-1` or `us-gov-west-1`.
pub(crate) fn region(text: &str) -> Result<String, String> {
    let mut parts: Vec<&str> = text.split('-').collect();
    let number = parts.pop().is_some_and(|part| part.len() == 1 && part.chars().all(|digit| digit.is_ascii_digit()));
    let words = parts.iter().all(|part| !part.is_empty() && part.chars().all(|letter| letter.is_ascii_lowercase()));
    let valid = number && words && 1 < parts.len() && parts.first().is_some_and(|area| (2..=4).contains(&area.len()));
    valid.then(|| text.to_owned()).ok_or_else(|| "no region has this name: write it as in us-east-1".to_owned())
}

/// A version of Kubernetes, such as `1.33`.
pub(crate) fn kubernetes_version(text: &str) -> Result<String, String> {
    let minor = text.strip_prefix("1.").and_then(|minor| minor.parse::<u8>().ok());
    let valid = minor.is_some_and(|minor| text == format!("1.{minor}"));
    valid.then(|| text.to_owned()).ok_or_else(|| "EKS has no such version: write it as in 1.33, without the patch level".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_eks_has_is_accepted_and_nothing_else() {
        for text in ["demo", "A-1_b", "0"] {
            assert_eq!(cluster(text).as_deref(), Ok(text));
        }
        for text in ["", "a b", "ü", "-a", &"a".repeat(101)] {
            assert!(cluster(text).is_err(), "{text:?}");
        }
        for text in ["us-east-1", "cn-north-1", "us-gov-west-1", "ap-southeast-5", "eusc-de-east-1"] {
            assert_eq!(region(text).as_deref(), Ok(text));
        }
        for text in ["", "mars-1", "us-east", "us-east-1a", "US-east-1", "us--east-1"] {
            assert!(region(text).is_err(), "{text:?}");
        }
        for text in ["1.23", "1.33"] {
            assert_eq!(kubernetes_version(text).as_deref(), Ok(text));
        }
        for text in ["", "banana", "1.33.2", "1.", "2.0", "1.033", "v1.33"] {
            assert!(kubernetes_version(text).is_err(), "{text:?}");
        }
    }
}
