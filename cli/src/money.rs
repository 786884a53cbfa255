//! Money as it is printed: in which currency, by the hour and by the month, and what a change makes of a bill.

use whittle_units::Price;

/// As prices per month are usually given.
pub(crate) const HOURS_A_MONTH: f64 = 730.0;

/// The currency in which AWS bills the regions of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Currency {
    /// US dollars.
    #[default]
    Usd,
    /// Yuan, in the regions of China.
    Cny,
}

impl Currency {
    /// The currency of a region.
    pub(crate) fn of_region(region: &str) -> Self {
        if region.starts_with("cn-") { Self::Cny } else { Self::Usd }
    }

    /// The currency of the region that a node's name ends with, as in `ip-10-0-1-7.cn-north-1.compute.internal`.
    pub(crate) fn of_node(name: &str) -> Self {
        Self::of_region(name.split('.').nth(1).unwrap_or_default())
    }

    /// Its code of ISO 4217.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Usd => "USD",
            Self::Cny => "CNY",
        }
    }

    /// Its sign.
    pub(crate) const fn sign(self) -> char {
        match self {
            Self::Usd => '$',
            Self::Cny => '¥',
        }
    }

    /// Shows the amounts of a text in this currency. Decisions write `$` whatever the region is, as Karpenter does in its events, so
    /// this is done once, where a text is printed.
    pub(crate) fn shown(self, text: String) -> String {
        if self == Self::Usd || !text.contains('$') {
            return text;
        }
        let mut out = String::with_capacity(text.len());
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            // `$-0.49`, as Karpenter's events write a loss.
            let mut ahead = letters.clone();
            let first = ahead.next().and_then(|first| if first == '-' { ahead.next() } else { Some(first) });
            let amount = letter == '$' && first.is_some_and(|first| first.is_ascii_digit());
            out.push(if amount { self.sign() } else { letter });
        }
        out
    }
}

/// A number of nodes and what they cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bill {
    pub(crate) nodes: usize,
    /// Nodes among them whose price is not known.
    pub(crate) unpriced: usize,
    /// Per hour, of the others.
    pub(crate) price: Price,
}

impl Bill {
    /// With more nodes.
    pub(crate) fn plus(&self, nodes: usize, price: Price) -> Self {
        Self { nodes: self.nodes + nodes, price: self.price + price, ..self.clone() }
    }

    /// With a node of this price, if it is known.
    pub(crate) fn with(&self, price: Option<Price>) -> Self {
        let more = self.plus(1, price.unwrap_or_default());
        Self { unpriced: more.unpriced + usize::from(price.is_none()), ..more }
    }

    /// Adds another bill.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { nodes, unpriced, price } = other;
        (self.nodes, self.unpriced, self.price) = (self.nodes + nodes, self.unpriced + unpriced, self.price + *price);
    }

    /// How many nodes it is for: `3 nodes`, `2 nodes and 1 of unknown price`.
    pub(crate) fn of_nodes(&self) -> String {
        let priced = counted(self.nodes - self.unpriced, "node");
        if self.unpriced == 0 { priced } else { format!("{priced} and {} of unknown price", self.unpriced) }
    }
}

/// One line: what is paid now, what would be paid then, and the difference in per cent and by the month.
pub(crate) fn change(now: &Bill, then: &Bill) -> String {
    let per_cent = match percentage(now.price, then.price) {
        Some(per_cent) => format!("{per_cent:+.0} %, "),
        None => String::new(),
    };
    let bill = |bill: &Bill| format!("{} ({})", bill.price, bill.of_nodes());
    let difference = match now.unpriced == then.unpriced {
        true => format!("{per_cent}{} a month", signed(a_month(now.price, then.price))),
        false => "the difference is not known".to_owned(),
    };
    format!("now {} -> then {}: {difference}", bill(now), bill(then))
}

/// What there is more or less in another bill: machines, and money by the hour and by the month.
pub(crate) fn difference(before: &Bill, after: &Bill) -> String {
    let (more, fewer) = (after.nodes.saturating_sub(before.nodes), before.nodes.saturating_sub(after.nodes));
    let machines = if 0 < fewer { format!("-{}", counted(fewer, "machine")) } else { format!("+{}", counted(more, "machine")) };
    if (before.nodes, before.price) == (after.nodes, after.price) {
        return "no difference in machines or price".to_owned();
    }
    let hour = after.price.dollars() - before.price.dollars();
    // What is too little to be seen is neither more nor less.
    let hour = if hour.abs() < 0.00005 { 0.0 } else { hour };
    let sign = if hour < 0.0 { '-' } else { '+' };
    format!("{machines}, {sign}${:.4}/h, {} a month", hour.abs(), signed(cents(hour * HOURS_A_MONTH)))
}

/// The change of a price in per cent; `None` if there was none to speak of.
pub(crate) fn percentage(now: Price, then: Price) -> Option<f64> {
    (now >= Price::from_nanos(50_000)).then(|| (then.dollars() / now.dollars() - 1.0) * 100.0)
}

/// What a change of the price per hour makes in a month.
pub(crate) fn a_month(now: Price, then: Price) -> f64 {
    (then.dollars() - now.dollars()) * HOURS_A_MONTH
}

/// Rounded to cents, for programs.
pub(crate) fn cents(amount: f64) -> f64 {
    // Without the sign of a zero.
    (amount * 100.0).round() / 100.0 + 0.0
}

/// A change of money, with its sign and with cents.
pub(crate) fn signed(amount: f64) -> String {
    let sign = if amount < 0.0 { '-' } else { '+' };
    format!("{sign}${:.2}", amount.abs())
}

/// `1 node`, `2 nodes`.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_amounts_change_their_currency() {
        let text = "saves $0.38 an hour, +$2.00 a month (savings: $-0.49); ${NAME}, $-x and cost$".to_owned();
        assert_eq!(Currency::of_region("us-east-1").shown(text.clone()), text);
        let yuan = Currency::of_node("ip-10-0-1-7.cn-north-1.compute.internal");
        assert_eq!((yuan, yuan.code()), (Currency::Cny, "CNY"));
        assert_eq!(yuan.shown(text), "saves ¥0.38 an hour, +¥2.00 a month (savings: ¥-0.49); ${NAME}, $-x and cost$");
        assert_eq!(Currency::of_node("ip-10-0-1-7.ec2.internal"), Currency::Usd);
    }

    #[test]
    fn a_difference_is_of_machines_and_of_money() {
        let bill = |nodes, dollars| Bill { nodes, price: Price::from_dollars(dollars), ..Bill::default() };
        assert_eq!(difference(&bill(1, 0.1), &bill(3, 0.25)), "+2 machines, +$0.1500/h, +$109.50 a month");
        assert_eq!(difference(&bill(3, 0.25), &bill(2, 0.1)), "-1 machine, -$0.1500/h, -$109.50 a month");
        assert_eq!(difference(&bill(3, 0.1), &bill(2, 0.2)), "-1 machine, +$0.1000/h, +$73.00 a month");
        assert_eq!(difference(&bill(2, 0.1), &bill(1, 0.099_99)), "-1 machine, +$0.0000/h, +$0.00 a month");
        assert!(cents(-0.001).is_sign_positive());
        assert_eq!(difference(&bill(2, 0.1), &bill(2, 0.1)), "no difference in machines or price");
    }

    #[test]
    fn a_change_has_its_sign_its_share_and_its_month() {
        let bill = |nodes, dollars| Bill { nodes, price: Price::from_dollars(dollars), ..Bill::default() };
        let less = change(&bill(4, 2.0), &bill(1, 0.5));
        assert_eq!(less, "now $2.0000/h (4 nodes) -> then $0.5000/h (1 node): -75 %, -$1095.00 a month");
        let first = change(&bill(0, 0.0), &bill(2, 0.1));
        assert_eq!(first, "now $0.0000/h (0 nodes) -> then $0.1000/h (2 nodes): +$73.00 a month");
        assert!(change(&bill(1, 0.1), &bill(1, 0.1)).ends_with("+0 %, +$0.00 a month"));
        let partly = bill(2, 0.2).with(None);
        assert_eq!(
            change(&partly, &bill(1, 0.1)),
            "now $0.2000/h (2 nodes and 1 of unknown price) -> then $0.1000/h (1 node): the difference is not known"
        );
    }
}
