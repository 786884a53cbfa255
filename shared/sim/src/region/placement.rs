//! Placement groups: where their machines may start, and which partition they get.

use super::Region;
use whittle_api::karpenter::PlacementGroupSelector;
use whittle_ec2::fleet::{FleetOverride, FleetPoolError, LaunchTemplate};
use whittle_ec2::network::PlacementGroup;

/// Running machines of a spread placement group in one zone: EC2's limit.
const SPREAD_MAX: usize = 7;

impl Region {
    /// Creates a placement group, or changes its state.
    pub fn place(&mut self, group: PlacementGroup) {
        self.placement_groups.insert(group.id.clone(), group);
    }

    /// The answer of DescribePlacementGroups.
    pub fn placement_groups_of(&self, selector: &PlacementGroupSelector) -> Vec<PlacementGroup> {
        let is_meant = |group: &&PlacementGroup| match (&selector.id, &selector.name) {
            (Some(id), _) => *id == group.id,
            (None, Some(name)) => *name == group.name,
            (None, None) => false,
        };
        self.placement_groups.values().filter(is_meant).cloned().collect()
    }

    /// EC2's error if a machine cannot be started in the placement group of its template.
    pub(super) fn group_refuses(&self, template: &LaunchTemplate, pool: &FleetOverride) -> Option<FleetPoolError> {
        let id = template.placement_group_id.as_deref()?;
        let refused = |code: &str, message: String| {
            let (code, instance_type, zone) = (code.to_owned(), pool.instance_type.clone(), pool.zone.clone());
            Some(FleetPoolError { code, message, instance_type, zone })
        };
        let Some(group) = self.placement_groups.get(id).filter(|group| group.state == "available") else {
            return refused("InvalidPlacementGroup.Unknown", format!("The Placement Group '{id}' is unknown."));
        };
        if group.strategy == "spread" && self.placed(id, |instance| instance.zone == pool.zone) >= SPREAD_MAX {
            let message = format!("You've reached the limit of instances in this spread placement group in {}.", pool.zone);
            return refused("InsufficientInstanceCapacity", message);
        }
        if template.partition.is_some_and(|wanted| wanted > group.partition_count) {
            let message = format!("The partition number is out of range for placement group '{id}'.");
            return refused("InvalidParameterValue", message);
        }
        None
    }

    /// The partition of a new machine: the template's, or the one with the fewest machines.
    pub(super) fn partition_for(&self, template: &LaunchTemplate) -> Option<u32> {
        let group = self.placement_groups.get(template.placement_group_id.as_deref()?)?;
        if group.strategy != "partition" {
            return None;
        }
        let used = |number: u32| self.placed(&group.id, |instance| instance.partition == Some(number));
        template.partition.or_else(|| (1..=group.partition_count).min_by_key(|number| used(*number)))
    }

    fn placed(&self, group: &str, counts: impl Fn(&whittle_ec2::instance::Instance) -> bool) -> usize {
        let here = self.machines.values().map(|machine| &machine.instance);
        here.filter(|instance| instance.is_alive() && instance.placement_group.as_deref() == Some(group) && counts(instance)).count()
    }
}
