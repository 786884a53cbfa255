//! Objectives of plans, as configured by deployments, commands and NodePools.

use std::str::FromStr;
use whittle_units::Price;

/// Which of several plans that place the same number of pods is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The one whose machines cost least per hour.
    Cheapest,
    /// The one that costs least per hour, including the cost of each machine besides its price.
    #[default]
    Balanced,
    /// The one with the fewest machines; of those, the cheapest.
    Fewest,
}

/// A value that is not an objective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no objective: use cheapest, balanced or fewest")]
pub struct ObjectiveError(pub String);

impl FromStr for Objective {
    type Err = ObjectiveError;
    fn from_str(word: &str) -> Result<Self, ObjectiveError> {
        match word {
            "cheapest" => Ok(Self::Cheapest),
            "balanced" => Ok(Self::Balanced),
            "fewest" => Ok(Self::Fewest),
            other => Err(ObjectiveError(other.to_owned())),
        }
    }
}

/// The hourly cost of a machine besides its price and its volumes, unless a deployment or a NodePool sets another.
pub const MACHINE_COST: Price = Price::from_nanos(50_000_000);

/// The highest valid machine cost, in dollars per hour.
const MACHINE_COST_MAX: f64 = 100.0;

/// A text that is not a machine cost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no cost of a machine: write dollars per hour from 0 to 100, such as 0.05")]
pub struct MachineCostError(pub String);

/// Parses the cost of a machine besides its price, in dollars per hour.
///
/// # Errors
/// The text is no number, or out of range.
pub fn machine_cost(text: &str) -> Result<Price, MachineCostError> {
    let dollars = text.trim().parse::<f64>().ok().filter(|dollars| (0.0..=MACHINE_COST_MAX).contains(dollars));
    dollars.map(Price::from_dollars).ok_or_else(|| MachineCostError(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_number_of_dollars() {
        assert_eq!(machine_cost(" 0.2 "), Ok(Price::from_dollars(0.2)));
        assert_eq!(machine_cost("0"), Ok(Price::ZERO));
        for odd in ["", "-1", "NaN", "inf", "1e9", "101", "much"] {
            assert_eq!(machine_cost(odd), Err(MachineCostError(odd.to_owned())));
        }
    }

    #[test]
    fn objectives_are_parsed_by_name() {
        let read = ["cheapest", "balanced", "fewest"].map(str::parse);
        assert_eq!(read, [Ok(Objective::Cheapest), Ok(Objective::Balanced), Ok(Objective::Fewest)]);
        assert_eq!(Objective::default(), Objective::Balanced);
        assert!("Balanced".parse::<Objective>().is_err());
    }
}
