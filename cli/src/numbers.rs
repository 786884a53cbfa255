//! Whole numbers of the command line.

use std::ops::RangeInclusive;

/// A parser of whole numbers within `range`; its error names the range.
pub(crate) fn within<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let read = text.parse().ok().filter(|number| range.contains(number));
        let refuse = || format!("write a whole number from {} to {}, in digits", range.start(), range.end());
        read.and_then(|number| T::try_from(number).ok()).ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_no_number_of_the_range_is_told_the_range() {
        let clusters = within::<u32>(1..=100);
        assert_eq!([clusters("1"), clusters("100")], [Ok(1), Ok(100)]);
        for wrong in ["0", "101", "-1", "1e9", "1.5", "", " 1", "18446744073709551615", "18446744073709551616"] {
            assert_eq!(clusters(wrong).unwrap_err(), "write a whole number from 1 to 100, in digits", "{wrong:?}");
        }
    }
}
