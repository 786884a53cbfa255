//! Schema parts shared by several kinds (api 4).

use super::{MapType, Schema, boolean, int64, list, map, may, need, object, one_of, open, text, time};
use crate::labels;
use serde_json::Value;

/// Keys of labels, with an optional domain.
pub(super) const KEY_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
pub(super) const LABEL_VALUE_PATTERN: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
pub(super) const NILLABLE_DURATION: &str = "^(([0-9]+(s|m|h))+|Never)$";
pub(super) const DURATION: &str = "^([0-9]+(s|m|h))+$";

const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];

/// Which keys a kind's requirements may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    Pool,
    Claim,
    Overlay,
}

/// The text of a string; empty for anything else.
pub(super) fn str_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Elements of a list; none for anything else.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether a field is present, even if it is empty.
pub(super) fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|value| !value.is_null())
}

fn domain(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

fn aws_keys() -> impl Iterator<Item = &'static str> {
    labels::WELL_KNOWN.iter().copied().filter(|key| domain(key) == labels::AWS_DOMAIN)
}

fn karpenter_key_is_allowed(key: &str) -> bool {
    matches!(key, labels::CAPACITY_TYPE | labels::NODE_POOL) || !domain(key).ends_with(labels::KARPENTER_DOMAIN)
}

fn aws_key_is_allowed(key: &str) -> bool {
    key == labels::EC2_NODE_CLASS || aws_keys().any(|known| known == key) || !domain(key).ends_with(labels::AWS_DOMAIN)
}

/// Keys that overlays cannot use, because they are not properties of an instance type.
const NOT_IN_OVERLAYS: &[&str] = &[
    labels::INSTANCE_TENANCY,
    labels::RESERVATION_ID,
    labels::RESERVATION_TYPE,
    labels::RESERVATION_INTERRUPTIBLE,
    labels::PLACEMENT_GROUP_ID,
    labels::PLACEMENT_GROUP_PARTITION,
];

fn overlay_aws_key_is_allowed(key: &str) -> bool {
    aws_key_is_allowed(key) && !NOT_IN_OVERLAYS.contains(&key)
}

/// How many keys that may have been meant are named at most.
const MEANT_MAX: usize = 6;

/// The name of a key, without its domain.
fn name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// What was probably meant by a key of the domain that is none, or by one of those of a map.
fn meant_aws_key(value: &Value) -> Option<String> {
    meant_key(value, aws_key_is_allowed)
}

fn meant_overlay_key(value: &Value) -> Option<String> {
    meant_key(value, overlay_aws_key_is_allowed)
}

fn meant_key(value: &Value, is_allowed: fn(&str) -> bool) -> Option<String> {
    let written: Vec<&str> = match value {
        Value::Object(map) => map.keys().map(String::as_str).collect(),
        other => other.as_str().into_iter().collect(),
    };
    written.into_iter().filter(|key| !is_allowed(key)).find_map(|key| {
        let meant = nearest_keys(key, is_allowed);
        (!meant.is_empty()).then(|| format!("there is no key {key}: did you mean {}?", meant.join(" or ")))
    })
}

/// The well-known keys that are near to one that is none: of its name, but of another domain; of a name that begins so; or of a name with
/// few letters that differ.
fn nearest_keys(written: &str, is_allowed: fn(&str) -> bool) -> Vec<&'static str> {
    let written = name(written).to_ascii_lowercase();
    let of_all = labels::WELL_KNOWN.iter().copied().filter(|key| is_allowed(key) && *key != labels::NODE_POOL);
    let same: Vec<&str> = of_all.filter(|key| name(key) == written).collect();
    if !same.is_empty() {
        return same;
    }
    let begins = format!("{written}-");
    let known: Vec<&str> = aws_keys().filter(|key| is_allowed(key)).collect();
    let longer: Vec<&str> = known.iter().copied().filter(|key| name(key).starts_with(&begins)).collect();
    if (1..=MEANT_MAX).contains(&longer.len()) {
        return longer;
    }
    let scored = known.into_iter().map(|key| (strsim::osa_distance(name(key), &written), key));
    scored.filter(|(differing, _)| *differing <= 2).min().map(|(_, key)| key).into_iter().collect()
}

fn quoted<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    keys.map(|key| format!("'{key}'")).collect::<Vec<_>>().join(", ")
}

const KARPENTER_KEYS: &str =
    "keys of the domain karpenter.sh belong to the system: use karpenter.sh/capacity-type, or a domain of your own";
const AWS_KEYS: &str = "there is no such key in the domain karpenter.k8s.aws: use one of its well-known keys, or a domain of your own";
const HOSTNAME_KEY: &str = "kubernetes.io/hostname names a single node: leave it out";
const POOL_KEY: &str = "karpenter.sh/nodepool is set by the system: leave it out";

/// CEL that a key (bound to `variable`) is not restricted.
fn key_cel(variable: &str, domain: &str, allowed: &str) -> String {
    format!("{variable} in [{allowed}] || !{variable}.split('/')[0].endsWith('{domain}')")
}

fn aws_cel_keys(keys: Keys) -> String {
    let known = aws_keys().filter(|key| keys != Keys::Overlay || !NOT_IN_OVERLAYS.contains(key));
    quoted(known.chain([labels::EC2_NODE_CLASS]))
}

fn requirement_key(keys: Keys) -> Schema {
    let allowed = quoted([labels::CAPACITY_TYPE, labels::NODE_POOL].into_iter());
    let schema = text()
        .max(316)
        .pattern(KEY_PATTERN)
        .about("the label key that the requirement is about")
        .rule(key_cel("self", labels::KARPENTER_DOMAIN, &allowed), KARPENTER_KEYS, |key| key.as_str().is_none_or(karpenter_key_is_allowed))
        .rule("self != 'kubernetes.io/hostname'", HOSTNAME_KEY, |key| key != labels::HOSTNAME);
    let cel = key_cel("self", labels::AWS_DOMAIN, &aws_cel_keys(keys));
    match keys {
        Keys::Overlay => schema.rule(cel, AWS_KEYS, |key| key.as_str().is_none_or(overlay_aws_key_is_allowed)).hint(meant_overlay_key),
        Keys::Claim => schema.rule(cel, AWS_KEYS, |key| key.as_str().is_none_or(aws_key_is_allowed)).hint(meant_aws_key),
        Keys::Pool => schema.rule(cel, AWS_KEYS, |key| key.as_str().is_none_or(aws_key_is_allowed)).hint(meant_aws_key).rule(
            "self != 'karpenter.sh/nodepool'",
            POOL_KEY,
            |key| key != labels::NODE_POOL,
        ),
    }
}

/// `spec.requirements` of pools, claims and overlays.
pub(super) fn requirements(keys: Keys) -> Schema {
    let values = list(text()).atomic().about("values for In and NotIn; one number for Gt, Lt, Gte, Lte; none otherwise");
    let mut fields =
        vec![need("key", requirement_key(keys)), need("operator", one_of(OPERATORS).about("how the label's value and the values relate"))];
    if keys == Keys::Overlay {
        fields.push(may("values", values.default(Value::Array(Vec::new()))));
    } else {
        let at_least = super::int32().range(1, 50).about("so many different values at least must stay possible");
        fields.extend([may("values", values), may("minValues", at_least)]);
    }
    let schema = list(Schema::new(super::Shape::Object(fields)))
        .max(100)
        .atomic()
        .about("constraints on the labels of nodes, all of which hold")
        .rule(
            "self.all(r, r.operator != 'In' || (has(r.values) && r.values.size() != 0))",
            "an In requirement without values matches nothing: give values, or use Exists",
            |list| items(list).iter().all(|r| str_of(r, "operator") != "In" || !values_of(r).is_empty()),
        )
        .rule(
            "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && r.values.size() == 1 && int(r.values[0]) >= 0))",
            "Gt, Lt, Gte and Lte compare with one whole number that is not negative: give exactly one, in quotes",
            |list| items(list).iter().all(has_one_number),
        );
    match keys {
        Keys::Overlay => schema.rule(
            "self.all(r, r.operator != 'NotIn' || (has(r.values) && r.values.size() != 0))",
            "a NotIn requirement without values says nothing: give values, or leave it out",
            |list| items(list).iter().all(|r| str_of(r, "operator") != "NotIn" || !values_of(r).is_empty()),
        ),
        _ => schema.rule(
            "self.all(r, !(r.operator == 'In' && has(r.minValues)) || (has(r.values) && r.values.size() >= r.minValues))",
            "minValues asks for more values than the In requirement lists: list more values or lower it",
            |list| items(list).iter().all(has_enough_values),
        ),
    }
}

fn values_of(requirement: &Value) -> &[Value] {
    requirement.get("values").map_or(&[], items)
}

fn has_one_number(requirement: &Value) -> bool {
    if !matches!(str_of(requirement, "operator"), "Gt" | "Lt" | "Gte" | "Lte") {
        return true;
    }
    match values_of(requirement) {
        [Value::String(text)] => text.parse::<i64>().is_ok_and(|number| 0 <= number),
        _ => false,
    }
}

fn has_enough_values(requirement: &Value) -> bool {
    let least = requirement.get("minValues").and_then(Value::as_u64).unwrap_or(0);
    str_of(requirement, "operator") != "In" || least <= values_of(requirement).len() as u64
}

/// Labels of a pool's template.
pub(super) fn template_labels() -> Schema {
    let allowed = quoted([labels::CAPACITY_TYPE, labels::NODE_POOL].into_iter());
    let karpenter = format!("self.all(k, {})", key_cel("k", labels::KARPENTER_DOMAIN, &allowed));
    let aws = format!("self.all(k, {})", key_cel("k", labels::AWS_DOMAIN, &aws_cel_keys(Keys::Pool)));
    map(text().max(63).pattern(LABEL_VALUE_PATTERN))
        .max(100)
        .map_type(MapType::Atomic)
        .about("labels of the nodes")
        .rule(karpenter, KARPENTER_KEYS, |labels| all_keys(labels, karpenter_key_is_allowed))
        .rule("self.all(k, k != 'karpenter.sh/nodepool')", POOL_KEY, |labels| all_keys(labels, |key| key != labels::NODE_POOL))
        .rule("self.all(k, k != 'kubernetes.io/hostname')", HOSTNAME_KEY, |labels| all_keys(labels, |key| key != labels::HOSTNAME))
        .rule(aws, AWS_KEYS, |labels| all_keys(labels, aws_key_is_allowed))
        .hint(meant_aws_key)
}

pub(super) fn all_keys(map: &Value, holds: fn(&str) -> bool) -> bool {
    map.as_object().is_none_or(|map| map.keys().all(|key| holds(key)))
}

/// `taints` and `startupTaints`.
pub(super) fn taints() -> Schema {
    list(object([
        need("key", text().min(1).pattern(KEY_PATTERN).about("the key of the taint")),
        may("value", text().pattern(KEY_PATTERN).about("the value of the taint; leave it out where there is none")),
        need("effect", one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]).about("what it does to pods that do not tolerate it")),
        may("timeAdded", time().about("when it was put on the node")),
    ]))
    .atomic()
}

/// `nodeClassRef` of a pool or claim.
pub(super) fn node_class_ref() -> Schema {
    object([
        need(
            "group",
            text()
                .about("API group of the class, such as karpenter.k8s.aws")
                .rule("self != ''", "the group may not be empty: write karpenter.k8s.aws", |group| group != "")
                .rule("!self.contains('/')", "a group has no version behind it: write karpenter.k8s.aws", |group| {
                    !group.as_str().is_some_and(|group| group.contains('/'))
                })
                .max(253),
        ),
        need(
            "kind",
            text().max(253).about("kind of the class, such as EC2NodeClass").rule(
                "self != ''",
                "the kind may not be empty: write EC2NodeClass",
                |kind| kind != "",
            ),
        ),
        need(
            "name",
            text().max(253).about("name of the class").rule("self != ''", "the name may not be empty: name the class", |name| name != ""),
        ),
    ])
    .about("the class that describes the machines")
}

/// `status.conditions`. Whether its writers share it is up to the kind, as in Karpenter's definitions.
pub(super) fn conditions() -> Schema {
    list(object([
        need("type", text().max(316).about("what the condition is about")),
        need("status", one_of(&["True", "False", "Unknown"]).about("whether it holds")),
        may("reason", text().max(1024).about("the cause in one word")),
        may("message", text().max(32768).about("the cause for people")),
        may("lastTransitionTime", time().about("when the status last changed")),
        may("observedGeneration", int64().about("generation of the object that was looked at")),
    ]))
    .about("what is known about the object")
}

/// A resolved requirement of an AMI, in a status.
pub(super) fn resolved_requirements() -> Schema {
    list(object([need("key", text()), need("operator", text()), may("values", list(text()).atomic()), may("minValues", super::int32())]))
}

/// A map of free text, such as annotations.
pub(super) fn texts() -> Schema {
    map(text())
}

/// Tags of a selector: neither keys nor values may be empty.
pub(super) fn selecting_tags() -> Schema {
    map(text()).max(20).about("tags that all have to match; * matches any value").rule(
        "self.all(k, k != '' && self[k] != '')",
        "an empty tag key or value selects nothing: write * for any value",
        |tags| tags.as_object().is_none_or(|tags| tags.iter().all(|(key, value)| !key.is_empty() && value != "")),
    )
}

pub(super) fn yes_no(about: &'static str) -> Schema {
    boolean().about(about)
}

pub(super) fn anything() -> Schema {
    open()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::document;
    use serde_json::json;

    /// The errors of a NodePool, or of another kind, with a requirement about this key.
    fn said(api_version: &str, kind: &str, key: &str) -> Vec<String> {
        let requirements = json!([{"key": key, "operator": "Exists"}]);
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"});
        let spec = match kind {
            "NodePool" => json!({"template": {"spec": {"requirements": requirements, "nodeClassRef": class}}}),
            _ => json!({"requirements": requirements, "price": "1.0"}),
        };
        let errors = document(api_version, kind, &json!({"metadata": {"name": "a"}, "spec": spec}));
        errors.iter().map(|error| error.message.clone()).collect()
    }

    #[test]
    fn a_key_that_is_nearly_one_of_the_domain_is_told_as_what_was_meant() {
        for (name, meant) in [
            ("instance-famly", "karpenter.k8s.aws/instance-family"),
            ("instance_family", "karpenter.k8s.aws/instance-family"),
            ("Instance-Family", "karpenter.k8s.aws/instance-family"),
            ("instance-catgeory", "karpenter.k8s.aws/instance-category"),
            ("instance-type", labels::INSTANCE_TYPE),
            ("capacity-type", labels::CAPACITY_TYPE),
            ("zone", labels::ZONE),
            (
                "instance-accelerator",
                "karpenter.k8s.aws/instance-accelerator-name or karpenter.k8s.aws/instance-accelerator-manufacturer or \
                 karpenter.k8s.aws/instance-accelerator-count",
            ),
        ] {
            let key = format!("{}/{name}", labels::AWS_DOMAIN);
            assert_eq!(said("karpenter.sh/v1", "NodePool", &key), [format!("there is no key {key}: did you mean {meant}?")], "{name}");
        }
    }

    #[test]
    fn a_key_that_is_near_to_none_is_told_what_there_is() {
        for name in ["team", "instance", "nodepool", "instance-colour"] {
            assert_eq!(said("karpenter.sh/v1", "NodePool", &format!("{}/{name}", labels::AWS_DOMAIN)), [AWS_KEYS], "{name}");
        }
        // What an overlay cannot use is not what was meant.
        let tenancy = format!("{}-y", labels::INSTANCE_TENANCY);
        assert_eq!(said("karpenter.sh/v1alpha1", "NodeOverlay", &tenancy), [AWS_KEYS]);
        assert!(said("karpenter.sh/v1", "NodePool", &tenancy)[0].ends_with(&format!("did you mean {}?", labels::INSTANCE_TENANCY)));
        assert_eq!(said("karpenter.sh/v1", "NodePool", labels::INSTANCE_FAMILY), [""; 0]);
    }

    #[test]
    fn the_label_of_a_template_that_is_misspelt_is_named() {
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"});
        let labels = json!({"team": "a", "karpenter.k8s.aws/instance-famly": "m5"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"requirements": [], "nodeClassRef": class}});
        let errors = document("karpenter.sh/v1", "NodePool", &json!({"metadata": {"name": "a"}, "spec": {"template": template}}));
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let wanted = "spec.template.metadata.labels: there is no key karpenter.k8s.aws/instance-famly: did you mean \
                      karpenter.k8s.aws/instance-family?";
        assert_eq!(told, [wanted]);
    }
}
