//! The placement group that a class selects (aws 16).

use crate::network::PlacementGroup;
use whittle_api::karpenter::{PlacementGroupSelector, ResolvedPlacementGroup};

/// What EC2 said about the placement group of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlacementGroups {
    /// The class selects none.
    #[default]
    NotSelected,
    /// The groups of the selected name or id, in whatever state.
    Found(Vec<PlacementGroup>),
    /// EC2 refused the question; the text says why. The group that was resolved before stays known.
    Refused(String),
}

/// Why a class has no placement group that machines can be started in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementGroupError {
    #[error("no placement group has the {field} {value:?} that spec.placementGroupSelector gives: create it in this region, or correct it")]
    Missing { field: &'static str, value: String },
    #[error("placement group {name} ({id}) of spec.placementGroupSelector is {state}: name one that is available")]
    Unavailable { name: String, id: String, state: String },
    #[error("spec.placementGroupSelector matches several placement groups ({}): select one by its id", ids.join(", "))]
    Several { ids: Vec<String> },
    #[error("spec.placementGroupSelector cannot be resolved: {0}")]
    Refused(String),
}

impl PlacementGroupError {
    /// Reason of the condition `PlacementGroupReady`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } | Self::Unavailable { .. } => "PlacementGroupNotFound",
            Self::Several { .. } | Self::Refused(_) => "PlacementGroupResolutionFailed",
        }
    }
}

/// The group of a selector; `None` without one. Only an available group counts, and an empty answer is taken as it is.
pub fn choose_placement_group(
    selector: Option<&PlacementGroupSelector>,
    groups: &PlacementGroups,
) -> Result<Option<ResolvedPlacementGroup>, PlacementGroupError> {
    let Some(selector) = selector else { return Ok(None) };
    let missing = || {
        let (field, value) = match (&selector.id, &selector.name) {
            (Some(id), _) => ("id", id.clone()),
            (None, name) => ("name", name.clone().unwrap_or_default()),
        };
        PlacementGroupError::Missing { field, value }
    };
    let found = match groups {
        PlacementGroups::NotSelected => return Err(missing()),
        PlacementGroups::Refused(why) => return Err(PlacementGroupError::Refused(why.clone())),
        PlacementGroups::Found(found) => found,
    };
    let mut available: Vec<&PlacementGroup> = found.iter().filter(|group| group.state == "available").collect();
    available.sort_by(|a, b| a.id.cmp(&b.id));
    match available[..] {
        [group] => Ok(Some(ResolvedPlacementGroup {
            id: group.id.clone(),
            name: group.name.clone(),
            strategy: group.strategy.clone(),
            partition_count: group.partition_count,
        })),
        [] => Err(found.first().map_or_else(missing, |group| PlacementGroupError::Unavailable {
            name: group.name.clone(),
            id: group.id.clone(),
            state: group.state.clone(),
        })),
        _ => Err(PlacementGroupError::Several { ids: available.iter().map(|group| group.id.clone()).collect() }),
    }
}
