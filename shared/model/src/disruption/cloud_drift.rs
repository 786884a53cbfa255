//! Drift that only the cloud can see, as a value.

/// The result of comparing an instance with its node class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudDrift {
    No,
    NodeClass,
    Ami,
    SecurityGroup,
    Subnet,
    CapacityReservation,
    PlacementGroup,
}

impl CloudDrift {
    /// All results, in the order in which they are looked for.
    pub const ALL: [Self; 7] =
        [Self::No, Self::NodeClass, Self::Ami, Self::SecurityGroup, Self::Subnet, Self::CapacityReservation, Self::PlacementGroup];

    /// The reason of the Drifted condition.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::NodeClass => Some("NodeClassDrift"),
            Self::Ami => Some("AMIDrift"),
            Self::SecurityGroup => Some("SecurityGroupDrift"),
            Self::Subnet => Some("SubnetDrift"),
            Self::CapacityReservation => Some("CapacityReservationDrift"),
            Self::PlacementGroup => Some("PlacementGroupDrift"),
        }
    }
}
