use super::*;
use serde_json::json;

fn m5_large() -> InstanceTypeFacts {
    static FACTS: LazyLock<InstanceTypeFacts> =
        LazyLock::new(|| crate::facts::offline::types().into_iter().find(|facts| facts.name == "m5.large").unwrap());
    FACTS.clone()
}

#[track_caller]
fn value(text: &str) -> i64 {
    Expression::parse(text).unwrap().number(&variables(&m5_large(), 29)).unwrap()
}

#[track_caller]
fn failure(text: &str) -> ExpressionError {
    Expression::parse(text).and_then(|expression| expression.number(&variables(&m5_large(), 29))).unwrap_err()
}

#[test]
fn expressions_are_evaluated_over_the_facts_of_a_type() {
    for (text, expected) in [
        ("min(110, max_pods * 2)", 58),
        ("1 + 2 * 3 - 4 / 2", 5),
        ("(1 + 2) * 3 % 4", 1),
        ("-vcpus + 10", 8),
        ("max(10, double(default_enis) * 2.7)", 10),
        ("max(1, 2.9)", 2),
        ("max(1, 0.5) * 2.0", 2),
        ("max(0.5, 1) * 2.0", 2),
        ("min(1, 2.5) * 10.0", 10),
        ("min(2.5, 1) * 10.0", 10),
        ("int(2.9) * 2", 4),
        ("instance_type.startsWith('m5') ? 1000 : ips_per_eni * 3", 1000),
        ("instance_type in [\"m5.large\", \"m5.xlarge\"] && vcpus < 4 ? 1 : 2", 1),
        ("!(vcpus == 2) || memory_mib >= 9000 ? 1 : 2", 2),
        ("size(instance_type)", 8),
        ("1e3", 1000),
    ] {
        let value: Result<i64, _> = Expression::parse(text).and_then(|expression| expression.number(&variables(&m5_large(), 29)));
        assert_eq!(value, Ok(expected), "{text}");
    }
}

#[test]
fn an_expression_without_a_numeric_value_is_an_error() {
    assert_eq!(failure(" "), ExpressionError::Empty);
    assert_eq!(failure("vcpus / 0"), ExpressionError::DivisionByZero);
    assert_eq!(failure("vcpus % (2 - 2)"), ExpressionError::DivisionByZero);
    assert_eq!(failure("1.0 / 0.0"), ExpressionError::NotFinite);
    assert_eq!(failure("9223372036854775807 + 1"), ExpressionError::Overflow);
    assert_eq!(failure("vcpus > 1"), ExpressionError::NotANumber("boolean"));
    assert_eq!(failure("instance_type"), ExpressionError::NotANumber("text"));
    assert_eq!(failure("cores * 2"), ExpressionError::UnknownVariable("cores".into()));
    assert!(matches!(failure("vcpus * 1.5"), ExpressionError::Types(_)), "CEL does not mix integers and doubles");
    assert!(matches!(failure("vcpus +"), ExpressionError::Syntax { .. }));
    assert!(matches!(failure("floor(2.5)"), ExpressionError::Syntax { .. }));
    assert!(matches!(failure(&"(".repeat(1000)), ExpressionError::Syntax { .. }));
    assert_eq!(value("vcpus"), 2);
}

fn resolved(document: serde_json::Value, gate: Expressions) -> Result<Resolved, KubeletError> {
    let kubelet = Kubelet::parse(Some(&document))?;
    resolve(&kubelet, &m5_large(), AmiFamily::Al2023, 3, gate)
}

#[test]
fn reserved_amounts_are_rounded_up_in_the_unit_of_their_resource() {
    let document = json!({"maxPods": 20, "kubeReserved": {"cpu": "80 + vcpus", "memory": "255 + 11 * max_pods", "pid": "vcpus"},
        "systemReserved": {"ephemeral-storage": "vcpus * 2", "cpu": "1", "memory": "0 * vcpus"}});
    let resolved = resolved(document, Expressions::Evaluated).unwrap();
    assert_eq!(resolved.kube_reserved, text_map(&[("cpu", "90m"), ("memory", "480Mi"), ("pid", "2")]));
    assert_eq!(resolved.system_reserved, text_map(&[("cpu", "1"), ("ephemeral-storage", "4Gi"), ("memory", "0Mi")]));
}

fn text_map(entries: &[(&str, &str)]) -> TextMap {
    entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn invalid_entries_are_dropped_and_the_others_kept() {
    let document = json!({"kubeReserved": {"cpu": "0 - vcpus", "memory": "1Gi", "pid": "vcpus / 0"}});
    assert_eq!(resolved(document.clone(), Expressions::Evaluated).unwrap().kube_reserved, text_map(&[("memory", "1Gi")]));
    assert_eq!(resolved(document, Expressions::Ignored).unwrap().kube_reserved, text_map(&[("memory", "1Gi")]));
}

/// What is reserved is taken away: a negative amount would promise more than a machine has, and no kubelet starts with one.
#[test]
fn a_negative_amount_is_never_reserved() {
    let document = json!({"kubeReserved": {"cpu": "-1", "memory": "1Gi"}, "systemReserved": {"memory": "-1Gi", "cpu": "0"}});
    for gate in [Expressions::Evaluated, Expressions::Ignored] {
        let resolved = resolved(document.clone(), gate).unwrap();
        assert_eq!(resolved.kube_reserved, text_map(&[("memory", "1Gi")]));
        assert_eq!(resolved.system_reserved, text_map(&[("cpu", "0")]));
    }
}

#[test]
fn max_pods_out_of_range_is_an_error_that_names_the_type() {
    let error = resolved(json!({"maxPods": "max_pods - 30"}), Expressions::Evaluated).unwrap_err();
    assert!(matches!(&error, KubeletError::MaxPodsRange { pods: -1, instance_type, .. } if instance_type == "m5.large"), "{error}");
    assert!(matches!(resolved(json!({"maxPods": "1 / 0"}), Expressions::Evaluated), Err(KubeletError::MaxPods { .. })));
    assert_eq!(resolved(json!({"maxPods": "max_pods - 30"}), Expressions::Ignored).unwrap().pods, 29);
}

/// A condition holds what a message quotes.
#[test]
fn a_message_quotes_the_beginning_of_a_long_expression() {
    let quoted = |text: &str| FieldExpression { field: "maxPods".to_owned(), text }.quoted();
    assert_eq!(quoted("vcpus\n+"), "\"vcpus\\n+\"");
    assert_eq!(quoted(&"\u{e9}".repeat(200)), format!("\"{}\"", "\u{e9}".repeat(200)));
    assert_eq!(quoted(&"\u{e9}".repeat(201)), format!("\"{}\"…", "\u{e9}".repeat(200)));
}

#[test]
fn documents_that_do_not_decode_are_errors() {
    for document in [
        json!([]),
        json!({"maxPods": -1}),
        json!({"maxPods": 1.5}),
        json!({"kubeReserved": {"cpu": 1}}),
        json!({"clusterDNS": "10.0.0.10"}),
    ] {
        assert!(matches!(Kubelet::parse(Some(&document)), Err(KubeletError::Undecodable { .. })), "{document}");
    }
    assert_eq!(Kubelet::parse(Some(&json!(null))).unwrap(), Kubelet::default());
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let read = Kubelet::parse(Some(&json!({"maxPods": 110.0, "podsPerCore": 4.0}))).unwrap();
    assert_eq!(read, Kubelet::parse(Some(&json!({"maxPods": 110, "podsPerCore": 4}))).unwrap());
    assert!(Kubelet::parse(Some(&json!({"maxPods": 1e300}))).is_err());
    for field in ["maxPods", "podsPerCore"] {
        assert!(Kubelet::parse(Some(&json!({field: i32::MAX}))).is_ok());
        let error = Kubelet::parse(Some(&json!({field: i64::from(i32::MAX) + 1}))).unwrap_err().to_string();
        assert!(error.starts_with(&format!("spec.kubelet.{field}: ")) && error.contains("2147483647"), "{error}");
    }
}

#[test]
fn a_field_that_does_not_decode_is_named_in_plain_words() {
    let said = |document| Kubelet::parse(Some(&document)).unwrap_err().to_string();
    assert_eq!(
        said(json!({"podsPerCore": "ten"})),
        "spec.kubelet.podsPerCore: a whole number from 0 to 2147483647 is needed here, not \"ten\""
    );
    let of_pods = "spec.kubelet.maxPods: a whole number from 0 to 2147483647, or an expression, is needed here";
    assert_eq!((said(json!({"maxPods": 1.5})), said(json!({"maxPods": -1}))), (of_pods.to_owned(), of_pods.to_owned()));
    assert_eq!(said(json!([])), "spec.kubelet: it must be an object");
}
