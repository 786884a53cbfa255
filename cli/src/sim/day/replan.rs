//! The cost of one moment's pods if all of them were planned at once, on new machines: the difference to a day's cost
//! is what consolidation does not, or may not, save.

use super::DayArgs;
use crate::local::session::{Place, SessionError};
use crate::plan::decide;
use crate::source::{self, Offers, PackingArg};
use whittle_units::Price;

/// Costs per hour of new plans for one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Replanned {
    pub(super) ours: Price,
    pub(super) reference: Price,
    /// A lower bound for any plan.
    pub(super) bound: Price,
}

impl Replanned {
    pub(super) fn at(args: &DayArgs, minute: u32) -> Result<Self, SessionError> {
        let refused = |error: source::ReadError| SessionError::Refused(error.to_string());
        let read = source::read_text("day", &args.pending(minute)).map_err(refused)?;
        let offers = Offers { instance_types: None, region: Some(Place::default().region) };
        let offered = offers.read(&read).map_err(refused)?.types;
        let plan = |packing| decide(&read, offered.clone(), packing).plan;
        let ours = plan(PackingArg::Best);
        let bound = ours.lower_bound.unwrap_or_default();
        Ok(Self { ours: ours.price(), reference: plan(PackingArg::Reference).price(), bound })
    }
}
