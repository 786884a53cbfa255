//! Input and result of a scheduling decision.

mod changes;
mod input;
mod instance_types;
mod meant;
mod plan;
mod reason;
mod remedy;
mod unready;

pub use changes::{Change, Changes, ClassChange, OwnRule};
pub use input::{Input, MinValuesPolicy, Options, Packing, PreferencePolicy, ReservedMode, Settled, Simulation};
pub use instance_types::InstanceTypes;
pub use meant::{Known, Meant, meant_key, meant_values};
pub use plan::{Cursor, LeftOut, MachineCosts, NarrowerPlan, NewClaim, Placement, Plan, PodRef, TypeNames};
pub use reason::{
    Cause, ClaimWhy, EBS_VOLUMES, Finding, Follows, LimitLeft, NearestMiss, Offer, PoolRejection, PortTaken, Reason, RuledOut,
    opt_out_fault,
};
pub use remedy::Remedy;
pub use unready::{Unready, unmet};
