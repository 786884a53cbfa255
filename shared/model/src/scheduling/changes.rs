//! Which changes of requirements would give a pod a machine: each was tried.

use whittle_api::labels;
use whittle_units::Price;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Alternatives, each of which is enough; none if no change of requirements alone is.
    pub enough: Vec<Change>,
    /// What is asked for and could be had if the node class were another.
    pub of_class: Vec<ClassChange>,
    /// Whether a type that EC2 is out of for now would do as everything is.
    pub waits: bool,
    /// Whether a type would do if the pod's volumes were anywhere.
    pub another_volume: bool,
    /// Whether there are types in a domain of the topology that refuses the pod which the NodePool excludes.
    pub other_domain: bool,
    /// A key of a topology spread and its domains without pods, of which the NodePool has no type for the pod: pods are spread over the
    /// other domains if it excludes these.
    pub excluded: Option<(String, Vec<String>)>,
    /// Whether a type would do if its spreads did not count domains with tainted nodes alone, which it does not tolerate.
    pub honored_taints: bool,
    /// Whether it is the pod's own spread, or its own anti-affinity, that leaves only domains without a type for it.
    pub own_rule: Option<OwnRule>,
    /// Resources of which the NodePool's limits leave too little for all types that these changes are about.
    pub limits: Vec<String>,
}

/// A rule of a pod about its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnRule {
    Spread,
    AntiAffinity,
}

/// Requirements that have to go, or to allow more, all together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Keys of the pod's node selector or affinity that have to go.
    pub pod: Vec<String>,
    /// Keys and values that the NodePool's requirements or labels should allow: what the pod asks for.
    pub allow: Vec<(String, String)>,
    /// Keys and values that it should not require.
    pub drop: Vec<(String, String)>,
    /// The price of the cheapest machine for the pod after the change.
    pub price: Option<Price>,
}

/// A node class that offers what this one does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassChange {
    /// Its images are for this operating system.
    Os(String),
    /// It selects capacity reservations.
    Reservations,
    /// It selects a subnet in this zone of its region.
    Zone(String),
}

impl ClassChange {
    /// What a class would have to offer for a value that no instance type has; `None` where the class does not decide about it. `zones` are
    /// those of types that there are.
    #[must_use]
    pub fn of<'a>(key: &str, value: &str, mut zones: impl Iterator<Item = &'a str>) -> Option<Self> {
        match (key, value) {
            (labels::OS, "windows" | "linux") => Some(Self::Os(value.to_owned())),
            (labels::CAPACITY_TYPE, labels::CAPACITY_RESERVED) => Some(Self::Reservations),
            (labels::ZONE, zone) => zones.any(|known| are_of_one_region(known, zone)).then(|| Self::Zone(zone.to_owned())),
            _ => None,
        }
    }
}

/// Whether two availability zones differ in their last letter alone.
fn are_of_one_region(a: &str, b: &str) -> bool {
    let region = |zone: &str| {
        let mut letters = zone.chars();
        let last = letters.next_back()?;
        (last.is_ascii_lowercase() && letters.as_str().ends_with(|before: char| before.is_ascii_digit()))
            .then(|| letters.as_str().to_owned())
    };
    region(a).is_some_and(|of| Some(of) == region(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_decides_about_systems_reservations_and_zones_of_its_region() {
        let of = |key, value| ClassChange::of(key, value, ["us-east-1a", "us-east-1-bos-1a"].into_iter());
        assert_eq!(of(labels::OS, "windows"), Some(ClassChange::Os("windows".into())));
        assert_eq!(of(labels::OS, "plan9"), None);
        assert_eq!(of(labels::CAPACITY_TYPE, "reserved"), Some(ClassChange::Reservations));
        assert_eq!(of(labels::CAPACITY_TYPE, "spot"), None);
        assert_eq!(of(labels::ZONE, "us-east-1f"), Some(ClassChange::Zone("us-east-1f".into())));
        for elsewhere in ["eu-west-1a", "us-east-2a", "us-east-1", "us-east-11", "", "é"] {
            assert_eq!(of(labels::ZONE, elsewhere), None, "{elsewhere}");
        }
        assert_eq!(of(labels::ARCH, "arm64"), None);
    }
}
