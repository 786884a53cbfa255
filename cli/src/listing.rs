//! Lists of names as people read them.

/// The first `most` names of a list, and how many more there are.
pub(crate) fn first_named<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let shown = names.iter().take(most).map(S::as_ref).collect::<Vec<&str>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_counted() {
        assert_eq!(first_named::<&str>(&[], 2), "");
        assert_eq!(first_named(&["a", "b"], 2), "a, b");
        assert_eq!(first_named(&["a".to_owned(), "b".to_owned(), "c".to_owned()], 2), "a, b and 1 more");
    }
}
