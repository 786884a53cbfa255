//! Single requirements of NodePools that no instance type meets, as far as the built-in tables know. That several exclude each other, or
//! that a value is near to another, `source::requirements` says; that no type meets all of them, `pools`.

use super::pools::INSTANCE;
use crate::listing::first_named;
use crate::source::Offers;
use crate::source::requirements::{is_misspelt, text};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::karpenter::{NodePool, Operator, Requirement};
use whittle_api::labels;
use whittle_ec2::facts::offline;
use whittle_model::requirements::{Allowed, canonical_key, from_requirements};

/// How many of the values that there are a message names.
const NAMED_MAX: usize = 24;
/// Sells nearly all types, so that it is asked first.
const LARGEST: &str = "us-east-1";

/// The values that instance types have, by the key of the label.
type Values = BTreeMap<String, BTreeSet<String>>;

/// The values of each region, read from its tables when they are asked for.
#[derive(Debug, Default)]
pub(super) struct Tables(BTreeMap<&'static str, Values>);

/// What new types bring that none before them had. Sizes of the others, such as their CPUs, were mostly there before.
const NEW_WITH_TYPES: [&str; 6] = [
    labels::INSTANCE_TYPE,
    labels::INSTANCE_FAMILY,
    labels::INSTANCE_GENERATION,
    labels::INSTANCE_SIZE,
    labels::INSTANCE_GPU_NAME,
    labels::INSTANCE_ACCELERATOR_NAME,
];

/// What is said of a NodePool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unmet {
    /// What nothing meets.
    pub(super) warnings: Vec<String>,
    /// What types may have that are newer than the tables, and what is sold in other regions than the one that is named: new ones come
    /// every few weeks, and whether this is one of them is not known here.
    pub(super) notes: Vec<String>,
}

/// What is said of a requirement.
enum Said {
    Warning(String),
    Note(String),
}

impl Tables {
    /// What is unmet of a NodePool's requirements.
    pub(super) fn unmet(&mut self, pool: &NodePool) -> Unmet {
        let mut found = Unmet::default();
        let regions = regions_of(pool);
        for (index, requirement) in pool.spec.template.spec.requirements.iter().enumerate() {
            let path = FieldPath::of("spec.template.spec.requirements").index(index);
            let told = |message: String| FieldError::new(path.clone(), message).to_string();
            match canonical_key(&requirement.key) {
                labels::ZONE => found.warnings.extend(self.unknown_zones(requirement).into_iter().map(told)),
                key if key == labels::INSTANCE_TYPE || is_of_types(key) => match self.judged(key, requirement, &regions) {
                    Some(Said::Warning(message)) => found.warnings.push(told(message)),
                    Some(Said::Note(message)) => found.notes.push(told(message)),
                    None => {}
                },
                _ => {}
            }
        }
        found
    }

    /// That none of these regions has a type that meets a requirement; `None` if one has, or if something else is said of it.
    fn judged(&mut self, key: &str, requirement: &Requirement, regions: &[&'static str]) -> Option<Said> {
        let Requirement { operator, values, .. } = requirement;
        let compares = matches!(operator, Operator::In | Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte);
        if !compares || values.iter().any(|value| is_misspelt(key, value)) {
            return None;
        }
        let allowed = from_requirements(std::slice::from_ref(requirement)).remove(key)?;
        if allowed.is_contradiction() || regions.iter().copied().any(|region| self.has(region, key, &allowed)) {
            return None;
        }
        let (whose, first) = match regions {
            [region] => (format!("the built-in tables of {region}"), *region),
            _ => ("the built-in tables".to_owned(), LARGEST),
        };
        let said = format!("no instance type of {whose} has {key} {}", text(requirement));
        if NEW_WITH_TYPES.contains(&key) || offline::REGIONS.iter().copied().any(|region| self.has(region, key, &allowed)) {
            let remedy = format!("`whittle catalog --region {first}` prints those that they have");
            return Some(Said::Note(format!("{said}: unless it is newer than these, the NodePool launches nothing; {remedy}")));
        }
        let there = there_are(key, self.values(first).get(key)?);
        Some(Said::Warning(format!("{said}: {there}; until it is corrected, the NodePool launches nothing")))
    }

    /// Whether a type of a region has an allowed value.
    fn has(&mut self, region: &'static str, key: &str, allowed: &Allowed<String>) -> bool {
        self.values(region).get(key).is_some_and(|values| values.iter().any(|value| allowed.has(value)))
    }

    /// Zones that a region does not have whose zones are known. There may be other zones by the name of a region, such as local ones.
    fn unknown_zones(&mut self, requirement: &Requirement) -> Vec<String> {
        let mut found = Vec::new();
        for value in requirement.values.iter().filter(|_| requirement.operator == Operator::In) {
            let Some(region) = region_of(value) else { continue };
            let Some(zones) = self.values(region).get(labels::ZONE).filter(|zones| !zones.contains(value)) else { continue };
            let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
            let named = first_named(&zones, NAMED_MAX);
            found.push(format!("{region} has no zone {value:?}, so that nothing is launched there: it has {named}"));
        }
        found
    }

    fn values(&mut self, region: &'static str) -> &Values {
        self.0.entry(region).or_insert_with(|| values_of(region))
    }
}

/// Whether a label is one of those that say what a type is.
fn is_of_types(key: &str) -> bool {
    key.starts_with(INSTANCE) && key != labels::INSTANCE_TENANCY && labels::WELL_KNOWN.contains(&key)
}

/// The region of a zone such as us-east-1a, if it is known which zones it has.
fn region_of(zone: &str) -> Option<&'static str> {
    let is_zone = |rest: &str| rest.len() == 1 && rest.starts_with(|letter: char| letter.is_ascii_lowercase());
    let has_it = |region: &&'static str| offline::has_zones(region) && zone.strip_prefix(*region).is_some_and(is_zone);
    offline::REGIONS.iter().copied().find(has_it)
}

/// The regions in which a type may be: the one whose zones the NodePool names alone, or all that have tables.
fn regions_of(pool: &NodePool) -> Vec<&'static str> {
    let is_zone = |requirement: &&Requirement| canonical_key(&requirement.key) == labels::ZONE && requirement.operator == Operator::In;
    let zones = pool.spec.template.spec.requirements.iter().filter(is_zone).flat_map(|requirement| &requirement.values);
    let named: Option<BTreeSet<&'static str>> = zones.map(|zone| region_of(zone)).collect();
    match named.iter().flatten().collect::<Vec<_>>()[..] {
        [region] => vec![*region],
        _ => std::iter::once(LARGEST).chain(offline::REGIONS.iter().copied().filter(|region| *region != LARGEST)).collect(),
    }
}

/// What the types of a region have.
fn values_of(region: &str) -> Values {
    let mut values = Values::new();
    for of_type in Offers::of_region(region).unwrap_or_default() {
        for Requirement { key, values: more, .. } in of_type.requirements {
            if is_of_types(&key) || [labels::INSTANCE_TYPE, labels::ZONE].contains(&key.as_str()) {
                values.entry(key).or_default().extend(more);
            }
        }
    }
    values
}

/// Which values there are: the least and the largest number with its unit, or names.
fn there_are(key: &str, values: &BTreeSet<String>) -> String {
    let numbers: Vec<u64> = values.iter().filter_map(|value| value.parse().ok()).collect();
    if let (Some(least), Some(largest)) = (numbers.iter().min(), numbers.iter().max())
        && numbers.len() == values.len()
    {
        return format!("there are types from {least} to {largest}{}", unit(key));
    }
    let names: Vec<&str> = values.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    format!("there are {}", first_named(&names, NAMED_MAX))
}

/// What the numbers of a label count; nothing if that is plain.
fn unit(key: &str) -> &'static str {
    match key {
        labels::INSTANCE_MEMORY | labels::INSTANCE_GPU_MEMORY => " MiB",
        labels::INSTANCE_LOCAL_NVME => " GB",
        labels::INSTANCE_EBS_BANDWIDTH | labels::INSTANCE_NETWORK_BANDWIDTH => " Mbit/s",
        labels::INSTANCE_CPU_SPEED => " MHz",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CPU: &str = labels::INSTANCE_CPU;

    fn unmet(requirements: &[(&str, &str, &[&str])]) -> Unmet {
        let requirements: Vec<Value> =
            requirements.iter().map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values})).collect();
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"});
        let template = json!({"spec": {"nodeClassRef": class, "requirements": requirements}});
        let pool: NodePool = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"template": template}})).unwrap();
        Tables::default().unmet(&pool)
    }

    /// Checks that this requirement alone is warned of, and that the warning ends so.
    #[track_caller]
    fn warned(requirement: (&str, &str, &[&str]), ends: &str) {
        let found = unmet(&[(labels::ARCH, "In", &["amd64"]), requirement]);
        let [warning] = &found.warnings[..] else { panic!("{requirement:?}: {found:?}") };
        assert!(warning.starts_with("spec.template.spec.requirements[1]: ") && warning.ends_with(ends), "{warning}");
        assert_eq!(found.notes, Vec::<String>::new(), "{requirement:?}");
    }

    #[test]
    fn a_requirement_that_no_type_meets_is_named_with_what_there_is() {
        let nothing = "; until it is corrected, the NodePool launches nothing";
        // Memory is counted in MiB, and is often written in GiB.
        let memory = unmet(&[(labels::INSTANCE_MEMORY, "In", &["16"])]).warnings;
        assert!(memory.len() == 1 && memory[0].contains("karpenter.k8s.aws/instance-memory In [16]: there are types from "), "{memory:?}");
        assert!(memory[0].ends_with(&format!(" MiB{nothing}")), "{memory:?}");
        warned((labels::INSTANCE_MEMORY, "Lt", &["64"]), nothing);
        warned((CPU, "In", &["7"]), nothing);
        warned((CPU, "Gt", &["100000"]), nothing);
        warned((labels::INSTANCE_CPU_MANUFACTURER, "In", &["arm"]), &format!("there are amd, aws, intel{nothing}"));
        warned((labels::INSTANCE_GPU_MANUFACTURER, "In", &["intel"]), nothing);
    }

    #[test]
    fn a_zone_that_a_region_lacks_is_named_and_those_of_others_are_not() {
        warned((labels::ZONE, "In", &["us-west-2a", "us-west-2z"]), "it has us-west-2a, us-west-2b, us-west-2c, us-west-2d");
        warned(("failure-domain.beta.kubernetes.io/zone", "In", &["eu-west-1q"]), "it has eu-west-1a, eu-west-1b, eu-west-1c");
        // Which zones these have, no table says.
        for zone in ["eu-central-1z", "us-west-2-lax-1a", "cn-north-1d", "us-west-2"] {
            assert_eq!(unmet(&[(labels::ZONE, "In", &[zone])]), Unmet::default(), "{zone}");
        }
        assert_eq!(unmet(&[(labels::ZONE, "NotIn", &["us-west-2z"])]), Unmet::default(), "excluding it is no mistake");
    }

    /// There are new ones before there are new tables, and --strict must not refuse them.
    #[test]
    fn what_types_may_have_that_are_newer_than_the_tables_is_noted() {
        for (key, value) in [
            (labels::INSTANCE_TYPE, "m99.large"),
            (labels::INSTANCE_FAMILY, "m99g"),
            (labels::INSTANCE_GENERATION, "99"),
            (labels::INSTANCE_SIZE, "999xlarge"),
            (labels::INSTANCE_GPU_NAME, "h9000"),
            (labels::INSTANCE_ACCELERATOR_NAME, "trainium99"),
        ] {
            let found = unmet(&[(key, "In", &[value])]);
            assert!(found.warnings.is_empty() && found.notes.len() == 1, "{found:?}");
            assert!(found.notes[0].contains(&format!("has {key} In [{value}]: unless it is newer than these")), "{found:?}");
        }
        assert_eq!(unmet(&[(labels::INSTANCE_TYPE, "In", &["m99.large", "m5.large"])]), Unmet::default(), "one will do");
    }

    #[test]
    fn what_a_type_meets_or_others_speak_of_is_not_remarked() {
        let met: &[(&str, &str, &[&str])] = &[
            (CPU, "In", &["8", "7"]),
            (CPU, "NotIn", &["7"]),
            (CPU, "Exists", &[]),
            (CPU, "DoesNotExist", &[]),
            (labels::INSTANCE_CATEGORY, "In", &["c", "m", "r"]),
            (labels::INSTANCE_GENERATION, "Gt", &["2"]),
            (labels::INSTANCE_GPU_COUNT, "Gte", &["1"]),
            (labels::INSTANCE_TENANCY, "In", &["dedicated"]),
            (labels::INSTANCE_HYPERVISOR, "In", &["nitro"]),
            // Named already, as what is near to something else, or as an error.
            (labels::INSTANCE_TYPE, "In", &["m5.larg"]),
            (CPU, "In", &[]),
            ("example.com/team", "In", &["a"]),
            ("karpenter.k8s.aws/instance-famly", "In", &["m5"]),
        ];
        for requirement in met {
            assert_eq!(unmet(&[*requirement]), Unmet::default(), "{requirement:?}");
        }
    }

    #[test]
    fn a_type_that_the_named_region_does_not_sell_is_noted_with_it() {
        let sold = |region: &str| values_of(region).remove(labels::INSTANCE_TYPE).unwrap_or_default();
        let (near, far) = (sold("us-east-1"), sold("ap-southeast-1"));
        let elsewhere = [near.difference(&far).next().unwrap().as_str()];
        let by_type = (labels::INSTANCE_TYPE, "In", &elsewhere[..]);
        let found = unmet(&[by_type, (labels::ZONE, "In", &["ap-southeast-1a"])]);
        assert!(found.notes.len() == 1 && found.notes[0].contains("the built-in tables of ap-southeast-1 has"), "{found:?}");
        assert_eq!(unmet(&[by_type]), Unmet::default());
        assert_eq!(unmet(&[by_type, (labels::ZONE, "In", &["ap-southeast-1a", "us-east-1a"])]), Unmet::default());
    }

    /// Regions begin to sell types that others have sold for long, which tables do not tell either.
    #[test]
    fn what_types_of_other_regions_have_is_noted_and_what_none_has_is_warned_of() {
        let had = |region: &str| values_of(region).remove(CPU).unwrap_or_default();
        let zone = (labels::ZONE, "In", &["ap-southeast-1a"][..]);
        let elsewhere = had("us-east-1").difference(&had("ap-southeast-1")).next().cloned();
        if let Some(count) = elsewhere {
            let found = unmet(&[zone, (CPU, "In", &[count.as_str()])]);
            assert!(found.warnings.is_empty() && found.notes.len() == 1, "{found:?}");
        }
        let gpus = |region: &str| values_of(region).remove(labels::INSTANCE_GPU_MANUFACTURER).unwrap_or_default();
        assert!(gpus("ap-southeast-1").contains("nvidia"));
        let found = unmet(&[zone, (labels::INSTANCE_GPU_MANUFACTURER, "In", &["intel"])]);
        assert!(found.notes.is_empty() && found.warnings.len() == 1, "{found:?}");
        assert!(found.warnings[0].contains("the built-in tables of ap-southeast-1 has"), "{found:?}");
    }
}
