//! Filters and pages of Describe calls.

use crate::errors::Fault;
use crate::params::Params;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The limit of values over all filters of a call.
const VALUES_MAX: usize = 200;
/// The maximum page of a call without a page size.
const PAGE: usize = 1000;

/// The filters of a call.
pub(super) struct Filters(Vec<(String, Vec<String>)>);

impl Filters {
    /// The filters, all of which must be known; `tag:KEY` and `tag-key` are known for resources with tags.
    pub(super) fn take(params: &mut Params, known: &[&str], tagged: bool) -> Result<Self, Fault> {
        let mut filters = Vec::new();
        for mut filter in params.list("Filter")? {
            let (name, values) = (filter.required("Name")?, filter.texts("Value")?);
            filter.finish()?;
            let of_tag = tagged && (name == "tag-key" || name.starts_with("tag:"));
            if !of_tag && !known.contains(&name.as_str()) {
                return Err(Fault::new("InvalidParameterValue", format!("The filter '{name}' is invalid")));
            }
            if values.is_empty() {
                return Err(Fault::new("InvalidParameterValue", format!("The filter '{name}' has no value")));
            }
            filters.push((name, values));
        }
        if filters.iter().map(|(_, values)| values.len()).sum::<usize>() > VALUES_MAX {
            return Err(Fault::new("FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200"));
        }
        Ok(Self(filters))
    }

    /// Whether a resource with these tags matches all of them. `values` returns its values for a filter.
    pub(super) fn match_all(&self, tags: &BTreeMap<String, String>, values: impl Fn(&str) -> Vec<String>) -> bool {
        self.0.iter().all(|(name, wanted)| {
            let found: Vec<String> = match name.strip_prefix("tag:") {
                Some(key) => tags.get(key).cloned().into_iter().collect(),
                None if name == "tag-key" => tags.keys().cloned().collect(),
                None => values(name),
            };
            found.iter().any(|value| wanted.iter().any(|pattern| whittle_sim::region::glob(pattern, value)))
        })
    }
}

/// One page of the results, and the token of the next.
pub(super) fn page<T>(params: &mut Params, all: Vec<T>, sizes: RangeInclusive<usize>) -> Result<(Vec<T>, Option<String>), Fault> {
    let size = params.parsed::<usize>("MaxResults")?;
    if let Some(size) = size.filter(|size| !sizes.contains(size)) {
        let text =
            format!("Value ({size}) for parameter maxResults is invalid. Expecting a value between {} and {}.", sizes.start(), sizes.end());
        return Err(Fault::new("InvalidParameterValue", text));
    }
    let size = size.unwrap_or(PAGE).min(PAGE);
    let start = match params.text("NextToken").filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => {
            offset(&token).ok_or_else(|| Fault::new("InvalidPaginationToken", "The specified pagination token is not valid."))?
        }
    };
    let end = start.saturating_add(size);
    let next = (all.len() > end).then(|| STANDARD.encode(format!("from {end}")));
    Ok((all.into_iter().skip(start).take(size).collect(), next))
}

fn offset(token: &str) -> Option<usize> {
    String::from_utf8(STANDARD.decode(token).ok()?).ok()?.strip_prefix("from ")?.parse().ok()
}
