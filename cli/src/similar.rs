//! Words and names that were probably meant by mistyped ones.

/// The known word that a mistyped one is most similar to, if it is similar enough.
pub(crate) fn nearest(word: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    let apart = |known: &String| strsim::osa_distance(word, known);
    let letters = word.chars().count();
    // A third of the letters may be wrong, but not all.
    let similar = |distance: usize| distance * 3 <= letters + 2 && distance < letters;
    // At least as many are wrong as one is longer.
    let known = known.into_iter().filter(|known| similar(letters.abs_diff(known.chars().count())));
    let scored = known.map(|known| (apart(&known), known)).filter(|(distance, _)| similar(*distance));
    scored.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// The known name that a mistyped one is most similar to. Names that differ in a number are those of different objects.
pub(crate) fn nearest_name(name: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    let numbers = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    let wanted = numbers(name);
    let most = if wanted.is_empty() { (name.chars().count() / 5).max(2) } else { 2 };
    let near = nearest(name, known.into_iter().filter(|known| numbers(known) == wanted))?;
    (strsim::osa_distance(name, &near) <= most).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_near_another_that_was_probably_meant() {
        let near = |name: &str, known: &[&str]| nearest_name(name, known.iter().map(|one| (*one).to_owned()));
        assert_eq!(near("cluster-autoscalr", &["coredns", "cluster-autoscaler"]).as_deref(), Some("cluster-autoscaler"));
        assert_eq!(near("karpenter-controler-mangr", &["karpenter-controller-manager"]).as_deref(), Some("karpenter-controller-manager"));
        assert_eq!(near("pol-1", &["pool-1", "pool-2"]).as_deref(), Some("pool-1"));
        assert_eq!(near("defualt", &["default"]).as_deref(), Some("default"));
    }

    #[test]
    fn the_name_of_a_node_that_is_gone_is_near_no_other_node() {
        let living = "ip-192-168-72-11.us-east-1.compute.internal".to_owned();
        for gone in ["ip-192-168-62-181.us-east-1.compute.internal", "ip-192-168-72-12.us-east-1.compute.internal"] {
            assert_eq!(nearest_name(gone, [living.clone()]), None, "{gone}");
        }
        assert_eq!(nearest_name("web-7d4f8-x2k9p", ["web-7d4f8-abcde".to_owned()]), None, "another pod of the ReplicaSet");
        assert_eq!(nearest_name("frontend", ["backend".to_owned()]), None, "another word");
    }
}
