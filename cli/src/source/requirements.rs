//! Requirements of NodePools that no instance type can meet, or that are probably misspelt. An API server accepts them, and so does
//! Karpenter: the pool is ready, and launches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::karpenter::{NodeOverlay, NodePool, Operator, Requirement};
use whittle_api::labels;
use whittle_ec2::facts::offline;
use whittle_model::pods::is_restricted;
use whittle_model::requirements::{Allowed, canonical_key, from_requirements};
use whittle_model::scheduling::{Known, meant_key, meant_values};

/// Everything that makes a NodePool launch nothing, or nothing of what it says.
pub(crate) fn faults(pool: &NodePool) -> Vec<FieldError> {
    let mut found = contradictions(pool);
    for (index, requirement) in pool.spec.template.spec.requirements.iter().enumerate() {
        found.extend(misspelt(requirement, &of_requirements().index(index)));
    }
    for (key, value) in &pool.spec.template.metadata.labels {
        let (path, is) = (of_labels().key(key), Requirement::is_in(key, [value]));
        found.extend(misspelt(&is, &path));
    }
    found
}

/// Values of a NodeOverlay's requirements that no instance type has, and that are near to others: it changes nothing of these.
pub(crate) fn misspelt_values(overlay: &NodeOverlay) -> impl Iterator<Item = FieldError> {
    let well_known = |requirement: &Requirement| labels::WELL_KNOWN.contains(&canonical_key(&requirement.key));
    let requirements = overlay.spec.requirements.iter().enumerate().filter(move |(_, requirement)| well_known(requirement));
    requirements.flat_map(|(index, requirement)| misspelt(requirement, &FieldPath::of("spec.requirements").index(index)))
}

fn of_requirements() -> FieldPath {
    FieldPath::of("spec.template.spec.requirements")
}

fn of_labels() -> FieldPath {
    FieldPath::of("spec.template.metadata.labels")
}

/// Keys for which the template allows no value.
fn contradictions(pool: &NodePool) -> Vec<FieldError> {
    let template = &pool.spec.template;
    let mut by_key: BTreeMap<&str, Vec<(FieldPath, Requirement)>> = BTreeMap::new();
    for (index, requirement) in template.spec.requirements.iter().enumerate() {
        let path = of_requirements().index(index);
        by_key.entry(canonical_key(&requirement.key)).or_default().push((path, requirement.clone()));
    }
    for (key, value) in &template.metadata.labels {
        by_key.entry(canonical_key(key)).or_default().push((of_labels().key(key), Requirement::is_in(key, [value])));
    }
    let mut found = Vec::new();
    for (key, parts) in by_key.into_iter().filter(|(_, parts)| 1 < parts.len()) {
        let allowed_by = |requirement: &Requirement| from_requirements(std::slice::from_ref(requirement)).remove(key);
        let all: Vec<Allowed<String>> = parts.iter().filter_map(|(_, requirement)| allowed_by(requirement)).collect();
        let Some(together) = all.iter().cloned().reduce(|one, other| one.intersect(&other)) else { continue };
        // One that allows nothing by itself is an error already.
        if !together.is_contradiction() || all.iter().any(Allowed::is_contradiction) {
            continue;
        }
        let said: Vec<String> = parts.iter().map(|(path, requirement)| format!("{} ({path})", text(requirement))).collect();
        let effect = match labels::WELL_KNOWN.contains(&key) {
            true => "no instance type meets them, and the NodePool launches nothing",
            false => "no node can have such a label, and no pod that asks for it is placed",
        };
        let message = format!("{key} {} exclude each other: {effect}; keep those that are meant", said.join(" and "));
        found.push(FieldError::new(of_requirements(), message));
    }
    found
}

/// A requirement without its key, as it is written.
pub(crate) fn text(requirement: &Requirement) -> String {
    let operator = requirement.operator.as_str();
    if requirement.values.is_empty() { operator.to_owned() } else { format!("{operator} [{}]", requirement.values.join(" ")) }
}

const CAPACITY_TYPES: [&str; 3] = [labels::CAPACITY_ON_DEMAND, labels::CAPACITY_SPOT, labels::CAPACITY_RESERVED];

/// Keys and values that are near to others, and are none that instance types have.
fn misspelt(requirement: &Requirement, path: &FieldPath) -> Vec<FieldError> {
    let key = canonical_key(&requirement.key);
    if !labels::WELL_KNOWN.contains(&key) {
        let remark = |meant| {
            // For a key that may not be set there is an error already.
            let own = if is_restricted(key, |_| false) { "" } else { ", so that nodes get it as a label of their own" };
            FieldError::new(path.clone(), format!("no instance type has the label {key}{own}: did you mean {meant}?"))
        };
        return meant_key(key).into_iter().map(remark).collect();
    }
    // Where no value is one, that is an error.
    let is_error = key == labels::CAPACITY_TYPE && !requirement.values.iter().any(|value| CAPACITY_TYPES.contains(&value.as_str()));
    if requirement.operator != Operator::In || is_error {
        return Vec::new();
    }
    requirement.values.iter().filter_map(|value| meant(key, value)).map(|message| FieldError::new(path.clone(), message)).collect()
}

/// That no instance type has a value of a label, and what was probably meant; `None` if some type may have it.
pub(crate) fn meant(key: &str, value: &str) -> Option<String> {
    static NONE: BTreeSet<String> = BTreeSet::new();
    let key = canonical_key(key);
    let known = match key {
        labels::INSTANCE_TYPE => &names().types,
        labels::INSTANCE_FAMILY => &names().families,
        labels::INSTANCE_SIZE => &names().sizes,
        labels::ZONE => &names().zones,
        labels::ARCH | labels::OS | labels::CAPACITY_TYPE => &NONE,
        // Values of the others are judged where the object is.
        _ => return None,
    };
    if known.contains(value) {
        return None;
    }
    let meant = meant_values(key, value, known.iter().map(String::as_str), Known::Some);
    (!meant.is_empty()).then(|| format!("no instance type has {key} {value:?}: did you mean {}?", meant.join(" or ")))
}

/// Whether a value of a well-known label is near to others, and none that instance types have.
pub(crate) fn is_misspelt(key: &str, value: &str) -> bool {
    !misspelt(&Requirement::is_in(key, [value]), &FieldPath::root()).is_empty()
}

/// Whether the built-in tables know every value that a requirement names, if they list those of its key.
pub(crate) fn is_known(requirement: &Requirement) -> bool {
    let known = match canonical_key(&requirement.key) {
        labels::INSTANCE_TYPE => &names().types,
        labels::INSTANCE_FAMILY => &names().families,
        labels::INSTANCE_SIZE => &names().sizes,
        labels::ZONE => &names().zones,
        _ => return true,
    };
    requirement.values.iter().all(|value| known.contains(value))
}

/// What the built-in tables know by name, of all their regions.
#[derive(Default)]
struct Names {
    types: BTreeSet<String>,
    families: BTreeSet<String>,
    sizes: BTreeSet<String>,
    zones: BTreeSet<String>,
}

fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names = Names { types: offline::types().into_iter().map(|facts| facts.name).collect(), ..Names::default() };
        for (family, size) in names.types.iter().filter_map(|name| name.split_once('.')) {
            names.families.insert(family.to_owned());
            names.sizes.insert(size.to_owned());
        }
        let tables = offline::REGIONS.iter().filter_map(|region| offline::catalog(region));
        names.zones = tables.flat_map(|tables| tables.zones).map(|zone| zone.name).collect();
        names
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(labels: Value, requirements: &[(&str, &str, &[&str])]) -> NodePool {
        let requirements: Vec<Value> =
            requirements.iter().map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values})).collect();
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"});
        let template = json!({"metadata": {"labels": labels}, "spec": {"nodeClassRef": class, "requirements": requirements}});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"template": template}})).unwrap()
    }

    fn said(labels: Value, requirements: &[(&str, &str, &[&str])]) -> Vec<String> {
        faults(&pool(labels, requirements)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn requirements_and_labels_that_exclude_each_other_are_named_with_their_fields() {
        let family = labels::INSTANCE_FAMILY;
        let found = said(json!({}), &[(family, "In", &["m5"]), (family, "NotIn", &["m5"])]);
        assert_eq!(
            found,
            [
                "spec.template.spec.requirements: karpenter.k8s.aws/instance-family In [m5] (spec.template.spec.requirements[0]) and NotIn [m5] \
              (spec.template.spec.requirements[1]) exclude each other: no instance type meets them, and the NodePool launches nothing; keep those \
              that are meant"
            ]
        );
        let cpu = said(json!({}), &[(labels::INSTANCE_CPU, "Gt", &["5"]), (labels::INSTANCE_CPU, "Lt", &["3"])]);
        assert!(cpu.len() == 1 && cpu[0].contains("Gt [5]") && cpu[0].contains("Lt [3]"), "{cpu:?}");
        // A deprecated key is the same label.
        let arch = said(json!({"kubernetes.io/arch": "arm64"}), &[("beta.kubernetes.io/arch", "In", &["amd64"])]);
        assert!(arch.len() == 1 && arch[0].contains("In [arm64] (spec.template.metadata.labels[kubernetes.io/arch])"), "{arch:?}");
        let own = said(json!({"team": "a"}), &[("team", "In", &["b"])]);
        assert!(own.len() == 1 && own[0].contains("no node can have such a label"), "{own:?}");
    }

    #[test]
    fn requirements_that_narrow_each_other_are_no_contradiction() {
        let cpu = labels::INSTANCE_CPU;
        assert_eq!(said(json!({}), &[(cpu, "Gt", &["3"]), (cpu, "Lt", &["5"]), (cpu, "Exists", &[])]), Vec::<String>::new());
        assert_eq!(said(json!({"team": "a"}), &[("team", "In", &["a", "b"])]), Vec::<String>::new());
        assert_eq!(
            said(json!({}), &[("team", "NotIn", &["a"]), ("team", "DoesNotExist", &[])]),
            Vec::<String>::new(),
            "no label is allowed"
        );
        // What allows nothing by itself is an error of its own.
        assert_eq!(said(json!({}), &[("team", "In", &[]), ("team", "Exists", &[])]), Vec::<String>::new());
    }

    #[test]
    fn misspelt_keys_and_values_name_what_was_meant() {
        let values = |key: &'static str, value: &'static str| said(json!({}), &[(key, "In", &[value])]);
        for (key, value, meant) in [
            (labels::ARCH, "x86_64", "amd64"),
            (labels::INSTANCE_TYPE, "m5.larg", "m5.large"),
            (labels::INSTANCE_FAMILY, "M5", "m5"),
            (labels::INSTANCE_SIZE, "xlareg", "xlarge"),
            (labels::ZONE, "us-east1a", "us-east-1a"),
        ] {
            let found = values(key, value);
            assert!(found.len() == 1 && found[0].contains("requirements[0]"), "{found:?}");
            assert!(found[0].ends_with(&format!("no instance type has {key} {value:?}: did you mean {meant}?")), "{found:?}");
        }
        let key = values("topology.kubernetes.io/zones", "us-east-1a");
        assert!(key.len() == 1 && key[0].ends_with("did you mean topology.kubernetes.io/zone?"), "{key:?}");
        assert!(key[0].contains("so that nodes get it as a label of their own"), "{key:?}");
        // No node gets a key of Karpenter's domains.
        let restricted = values("karpenter.k8s.aws/instance-catgory", "m");
        let wanted = "no instance type has the label karpenter.k8s.aws/instance-catgory: did you mean karpenter.k8s.aws/instance-category?";
        assert!(restricted.len() == 1 && restricted[0].ends_with(wanted), "{restricted:?}");
        let label = said(json!({"kubernetes.io/arch": "arm"}), &[]);
        assert!(label.len() == 1 && label[0].ends_with("did you mean arm64?"), "{label:?}");
        for (key, value) in
            [(labels::ZONE, "eu-central-1a"), (labels::ZONE, "us-west-2-lax-1a"), (labels::INSTANCE_TYPE, "m99.large"), ("team", "a")]
        {
            assert_eq!(values(key, value), Vec::<String>::new(), "{key} {value}");
        }
    }
}
