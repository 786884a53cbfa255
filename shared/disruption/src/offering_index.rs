//! The offerings of a list of instance types by their requirements: computed once for any number of decisions.

use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::Requirement;
use whittle_model::requirements::{Requirements, from_requirements};

/// The kinds of the offerings in one list of instance types.
#[derive(Debug)]
pub(super) struct OfferingIndex {
    pub(super) kinds: Vec<Requirements>,
    /// For each kind, whether it is for dedicated machines alone.
    pub(super) dedicated: Vec<bool>,
    /// For each type, the kinds of its offerings.
    pub(super) kinds_of_type: Vec<Vec<usize>>,
}

impl OfferingIndex {
    pub(super) fn new(types: &[InstanceType]) -> Self {
        let mut distinct: Vec<&[Requirement]> = Vec::new();
        let mut dedicated = Vec::new();
        let mut kinds_of_type = Vec::with_capacity(types.len());
        for instance_type in types {
            let mut kinds = Vec::with_capacity(instance_type.offerings.len());
            for offering in &instance_type.offerings {
                let known = distinct.iter().position(|known| *known == &offering.requirements[..]);
                kinds.push(known.unwrap_or_else(|| {
                    distinct.push(&offering.requirements);
                    dedicated.push(offering.is_dedicated());
                    distinct.len() - 1
                }));
            }
            kinds_of_type.push(kinds);
        }
        Self { kinds: distinct.into_iter().map(from_requirements).collect(), dedicated, kinds_of_type }
    }
}
