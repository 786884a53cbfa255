//! The map from the rules' test rows to tests is complete and true.

#[test]
fn every_row_of_the_rules_has_a_test_or_a_reason() {
    crate::rows::check(include_str!("map.txt"), 364);
}
