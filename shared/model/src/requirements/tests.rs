//! The table of pairs, membership, operators and texts.

use super::{Allowed, Conflict, Operator, Requirements, custom_labels, from_requirements, term_requirements};
use whittle_api::SelectorRequirement;
use whittle_api::k8s::NodeSelectorTerm;
use whittle_api::karpenter::{Operator as Word, Requirement};

fn set(text: &str) -> Allowed<String> {
    let (word, values) = text.split_once(' ').unwrap_or((text, ""));
    let values: Vec<String> = values.split_whitespace().map(str::to_owned).collect();
    let requirement = Requirement { key: "key".into(), operator: Word::parse(word).unwrap(), values, min_values: None };
    from_requirements(&[requirement]).get("key").unwrap().clone()
}

const PAIRS: [&str; 14] =
    ["Exists", "DoesNotExist", "In A", "In B", "In A B", "NotIn A", "In 1", "In 9", "In 1 9", "NotIn 1 2", "Gt 1", "Gt 9", "Lt 1", "Lt 9"];

#[track_caller]
fn meet(a: &str, b: &str, expected: &str) {
    assert_eq!(set(a).intersect(&set(b)).text(), expected, "{a} ∩ {b}");
    assert_eq!(set(b).intersect(&set(a)).text(), expected, "{b} ∩ {a}");
}

#[test]
fn intersections_are_those_of_the_table() {
    meet("In A", "In B", "DoesNotExist");
    meet("In A", "NotIn A", "DoesNotExist");
    meet("In A", "Gt 1", "DoesNotExist");
    meet("In A B", "NotIn A", "In [B]");
    meet("NotIn A", "NotIn 1 2", "NotIn [1 2 A]");
    meet("In 1 9", "Gt 1", "In [9]");
    meet("In 1 9", "Lt 9", "In [1]");
    meet("NotIn 1 2", "Gt 1", "NotIn [2] >=2");
    meet("NotIn 1 2", "Gt 9", "Exists >=10");
    meet("NotIn 1 2", "Lt 1", "Exists <=0");
    meet("NotIn 1 2", "Lt 9", "NotIn [1 2] <=8");
    meet("NotIn A", "Gt 1", "Exists >=2");
    meet("Gt 1", "Lt 9", "Exists >=2 <=8");
    meet("Gt 9", "Lt 1", "DoesNotExist");
    meet("Gt 1", "Lt 1", "DoesNotExist");
    meet("Gt 1", "Gt 9", "Exists >=10");
    meet("Lt 1", "Lt 9", "Exists <=0");
    meet("Gt 4", "Gte 5", "Exists >=5");
    meet("Gt 4", "Gte 3", "Exists >=5");
    meet("Lt 9", "Lte 8", "Exists <=8");
    meet("Lt 9", "Lte 5", "Exists <=5");
    meet("Gte 7", "Lte 7", "Exists >=7 <=7");
    for other in PAIRS {
        meet("Exists", other, &set(other).text());
        meet("DoesNotExist", other, "DoesNotExist");
    }
}

/// Values that distinguish the sets, including those around their bounds.
const SAMPLES: [&str; 13] = ["A", "B", "C", "", "-1", "0", "1", "2", "3", "8", "9", "10", "11"];

#[test]
fn an_intersection_allows_exactly_what_both_sides_allow() {
    for a in PAIRS {
        for b in PAIRS {
            let both = set(a).intersect(&set(b));
            for value in SAMPLES.map(str::to_owned) {
                assert_eq!(both.has(&value), set(a).has(&value) && set(b).has(&value), "{value} in {a} ∩ {b}");
            }
            assert_eq!(both.allows_absence(), set(a).allows_absence() && set(b).allows_absence(), "no label at all in {a} ∩ {b}");
        }
    }
}

#[test]
fn intersection_is_commutative_and_associative() {
    for a in PAIRS {
        for b in PAIRS {
            for c in PAIRS {
                let left = set(a).intersect(&set(b)).intersect(&set(c));
                let right = set(a).intersect(&set(b).intersect(&set(c)));
                assert_eq!(left, right, "{a}, {b}, {c}");
                let other_way = set(c).intersect(&set(b)).intersect(&set(a));
                assert_eq!(left, other_way, "{a}, {b}, {c}");
            }
        }
    }
}

#[test]
fn two_sets_overlap_exactly_if_their_intersection_is_not_empty() {
    for a in PAIRS {
        for b in PAIRS {
            let both = set(a).intersect(&set(b));
            assert_eq!(set(a).overlaps(&set(b)), !both.is_empty(), "{a}, {b}");
        }
    }
}

#[test]
fn membership_depends_on_values_and_bounds() {
    let has = |text: &str| ["A", "B", "1", "2", "9"].into_iter().filter(|v| set(text).has(&(*v).to_owned())).collect::<Vec<_>>().join(" ");
    let expected = ["A B 1 2 9", "", "A", "B", "A B", "B 1 2 9", "1", "9", "1 9", "A B 9", "2 9", "", "", "1 2"];
    for (text, expected) in PAIRS.iter().zip(expected) {
        assert_eq!(has(text), expected, "{text}");
    }
}

#[test]
fn bounds_count_as_exists_and_gt_of_the_largest_integer_allows_nothing() {
    assert_eq!(set("Gt 1").operator(), Operator::Exists);
    assert_eq!(set("Gt 9223372036854775807").operator(), Operator::DoesNotExist);
    assert_eq!(set("Gte 2"), set("Gt 1"));
    assert_eq!(set("Lte 8"), set("Lt 9"));
    assert!(set("Gte 0").has(&"0".to_owned()));
}

#[test]
fn the_larger_min_values_are_kept() {
    let with = |n| set("In A B").with_min_values(n);
    assert_eq!(with(Some(2)).intersect(&with(Some(3))).min_values(), Some(3));
    assert_eq!(with(None).intersect(&with(Some(3))).min_values(), Some(3));
    assert_eq!(with(Some(2)).intersect(&set("DoesNotExist")).min_values(), Some(2));
    for (a, b) in PAIRS.iter().flat_map(|a| PAIRS.map(|b| (*a, b))) {
        for (x, y) in [(None, None), (Some(2), None), (None, Some(3)), (Some(2), Some(3)), (Some(4), Some(3))] {
            let both = set(a).with_min_values(x).intersect(&set(b).with_min_values(y));
            assert_eq!(both.min_values(), x.max(y), "{a} {x:?} ∩ {b} {y:?}");
        }
    }
}

#[test]
fn a_contradiction_is_not_absence() {
    let contradiction = set("In A").intersect(&set("In B"));
    assert!(contradiction.is_contradiction());
    assert!(!set("DoesNotExist").is_contradiction());
    let required: Requirements = [("custom".to_owned(), contradiction)].into_iter().collect();
    assert!(Requirements::new().compatible(&required, |_| false).is_err());
}

#[track_caller]
fn check_compatible(offered: Option<&str>, required: &str, may_be_undefined: bool, expected: bool) {
    let offered: Requirements = offered.iter().map(|o| ("key".to_owned(), set(o))).collect();
    let required: Requirements = [("key".to_owned(), set(required))].into_iter().collect();
    assert_eq!(offered.compatible(&required, |_| may_be_undefined).is_ok(), expected, "{offered:?} for {required:?}");
}

#[test]
fn an_undefined_key_is_compatible_only_where_absence_is_allowed() {
    for (required, compatible) in [("Exists", false), ("DoesNotExist", true), ("In A", false), ("NotIn A", true), ("Gt 1", false)] {
        check_compatible(None, required, false, compatible);
        check_compatible(None, required, true, true);
    }
    for (required, compatible) in [("Exists", false), ("DoesNotExist", true), ("In A", false), ("NotIn A", true)] {
        check_compatible(Some("DoesNotExist"), required, false, compatible);
    }
    for (required, compatible) in
        [("Exists", true), ("DoesNotExist", false), ("In A", true), ("In B", false), ("NotIn A", false), ("NotIn B", true)]
    {
        check_compatible(Some("In A"), required, false, compatible);
    }
    for (required, compatible) in [("Exists", true), ("DoesNotExist", true), ("In A", false), ("In B", true), ("NotIn A", true)] {
        check_compatible(Some("NotIn A"), required, false, compatible);
    }
}

#[test]
fn compatibility_follows_the_table() {
    let required = ["Exists", "DoesNotExist", "In 5", "NotIn 5", "Gt 3", "Lt 3"];
    for (offered, compatible) in [
        (None, [false, true, false, true, false, false]),
        (Some("Exists"), [true, false, true, true, true, true]),
        (Some("DoesNotExist"), [false, true, false, true, false, false]),
        (Some("In 5"), [true, false, true, false, true, false]),
        (Some("NotIn 5"), [true, true, false, true, true, true]),
        (Some("Gt 3"), [true, false, true, true, true, false]),
        (Some("Lt 3"), [true, false, false, true, false, true]),
    ] {
        for (required, compatible) in required.iter().zip(compatible) {
            check_compatible(offered, required, false, compatible);
            // A key that instance types will define may be missing; if it is present it still has to match.
            check_compatible(offered, required, true, compatible || offered.is_none());
        }
    }
}

#[test]
fn a_conflict_names_its_keys() {
    let offered: Requirements = [("b".to_owned(), set("In A"))].into_iter().collect();
    let required: Requirements = [("a".to_owned(), set("In A"))].into_iter().collect();
    assert_eq!(offered.compatible(&required, |_| false), Err(Conflict::Undefined("a".to_owned())));
    let required: Requirements = [("b".to_owned(), set("In B"))].into_iter().collect();
    assert_eq!(offered.compatible(&required, |_| false), Err(Conflict::Disjoint(vec!["b".to_owned()])));
}

#[test]
fn legacy_keys_are_read_as_their_successors() {
    for (old, new) in whittle_api::labels::ALIASES {
        let requirement = Requirement::is_in(old, ["x"]);
        assert!(from_requirements(&[requirement]).get(*new).is_some(), "{old}");
    }
}

/// What a term with this one expression requires of its label.
fn term(operator: &str, values: &[&str]) -> Option<Allowed<String>> {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    let expression = SelectorRequirement { key: "key".into(), operator: operator.into(), values };
    term_requirements(&NodeSelectorTerm { match_expressions: vec![expression], ..NodeSelectorTerm::default() }).get("key").cloned()
}

#[test]
fn what_is_no_label_value_is_no_value_of_a_term() {
    let long = "x".repeat(64);
    for odd in ["a b", "a,b=c", "a\nb", "$(id)", "x' ; id ; '", "\"", "-a", "é", &long] {
        let only = term("In", &[odd]).expect("it still requires the label");
        assert!(only.is_contradiction(), "no node can have {odd:?}");
        let any: Requirements = [("key".to_owned(), Allowed::any())].into_iter().collect();
        let required: Requirements = [("key".to_owned(), only)].into_iter().collect();
        assert_eq!(any.compatible(&required, |_| true), Err(Conflict::Disjoint(vec!["key".to_owned()])), "{odd:?}");
        assert!(custom_labels(&required, |_| false).is_empty(), "it never becomes a label: {odd:?}");
        assert_eq!(term("In", &[odd, "b"]).map(|allowed| allowed.text()).as_deref(), Some("In [b]"), "{odd:?}");
        assert_eq!(term("NotIn", &[odd, "b"]).map(|allowed| allowed.text()).as_deref(), Some("NotIn [b]"), "{odd:?}");
        assert_eq!(term("NotIn", &[odd]), None, "every node meets it: {odd:?}");
    }
    for fine in ["", "a", "A-b_c.d", &"x".repeat(63)] {
        assert_eq!(term("In", &[fine]), Some(Allowed::one(fine.to_owned())), "{fine:?}");
        assert_eq!(term("NotIn", &[fine]), Some(Allowed::except([fine.to_owned()])), "{fine:?}");
    }
}

/// The API server looks at no bound in a preference. A NodeClaim with a negative one is refused, and no label value begins with a sign.
#[test]
fn no_number_of_a_term_is_below_zero() {
    for any in [("Gt", "-5"), ("Gte", "-5"), ("Gte", "-1"), ("Gt", "-1"), ("Gte", "0")] {
        assert_eq!(term(any.0, &[any.1]), Some(Allowed::at_least(0)), "{any:?}");
    }
    for none in [("Lt", "0"), ("Lt", "-5"), ("Lte", "-1"), ("Gt", "a"), ("Lt", ""), ("Gte", "99999999999999999999"), ("Lte", "1.5")] {
        assert!(term(none.0, &[none.1]).is_some_and(|allowed| allowed.is_contradiction()), "{none:?}");
    }
    assert!(term("Gt", &[]).is_some_and(|allowed| allowed.is_contradiction()));
    assert_eq!(term("Lt", &["1"]), Some(Allowed::at_most(0)));
    assert_eq!(term("Gt", &["0"]), Some(Allowed::at_least(1)));
}

#[test]
fn bounds_are_written_as_gte_and_lte() {
    let both = Requirement { key: "key".into(), operator: Word::Gt, values: vec!["1".into()], min_values: Some(2) };
    let below = Requirement { key: "key".into(), operator: Word::Lt, values: vec!["9".into()], min_values: None };
    let written = from_requirements(&[both, below]).to_api();
    let shown: Vec<String> = written.iter().map(|r| format!("{} {:?} {:?}", r.operator.as_str(), r.values, r.min_values)).collect();
    assert_eq!(shown, [r#"Gte ["2"] Some(2)"#, r#"Lte ["8"] Some(2)"#]);
    for (text, expected) in [
        ("Gt 1", r#"Gte ["2"]"#),
        ("Gte 1", r#"Gte ["1"]"#),
        ("Lt 9", r#"Lte ["8"]"#),
        ("In b a c", r#"In ["a", "b", "c"]"#),
        ("NotIn 9 10", r#"NotIn ["10", "9"]"#),
        ("Exists", "Exists []"),
        ("DoesNotExist", "DoesNotExist []"),
    ] {
        let reqs: Requirements = [("key".to_owned(), set(text).with_min_values(Some(3)))].into_iter().collect();
        let [only] = &reqs.to_api()[..] else { panic!("{text}") };
        assert_eq!((format!("{} {:?}", only.operator.as_str(), only.values), only.min_values), (expected.to_owned(), Some(3)));
    }
}

#[test]
fn texts_name_five_values_in_order_and_count_the_rest() {
    assert_eq!(set("In g f e d c b a").text(), "In [a b c d e and 2 others]");
    assert_eq!(set("NotIn e d c b a").text(), "NotIn [a b c d e]");
    assert_eq!(set("Gte 2").intersect(&set("NotIn 5")).with_min_values(Some(3)).text(), "NotIn [5] >=2 minValues 3");
}
