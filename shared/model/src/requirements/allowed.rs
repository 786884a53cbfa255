//! The values that one label may take.

use std::fmt::{self, Display, Write as _};

/// A label value that may also be read as an integer, for bounds.
pub trait Value: Clone + Ord {
    /// The value as an integer, if it is one.
    fn as_int(&self) -> Option<i64>;
}

impl Value for String {
    fn as_int(&self) -> Option<i64> {
        self.parse().ok()
    }
}

/// The operator that a set of allowed values corresponds to. Bounds alone count as `Exists`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// One of the listed values.
    In,
    /// Any value except the listed ones, or none.
    NotIn,
    /// Any value.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Operator {
    /// The spelling of the Kubernetes API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
        }
    }
}

/// The values that one label may take: a finite set or the complement of one, with inclusive integer bounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allowed<V> {
    complement: bool,
    /// Whether a node without the label satisfies this. `Exists`, `In` and bounds require a label, and still do after
    /// every intersection: an empty set that requires one is a contradiction, unlike a deliberate `DoesNotExist`.
    absence: bool,
    values: Vec<V>,
    gte: Option<i64>,
    lte: Option<i64>,
    min_values: Option<u32>,
}

impl<V: Value> Allowed<V> {
    /// `Exists`: any value.
    #[must_use]
    pub fn any() -> Self {
        Self { complement: true, absence: false, values: Vec::new(), gte: None, lte: None, min_values: None }
    }

    /// `DoesNotExist`: the label is absent.
    #[must_use]
    pub fn none() -> Self {
        Self { complement: false, absence: true, ..Self::any() }
    }

    /// Requires a label, but allows no value.
    fn never() -> Self {
        Self { complement: false, ..Self::any() }
    }

    /// `In [value]`.
    #[must_use]
    pub fn one(value: V) -> Self {
        Self { complement: false, values: vec![value], ..Self::any() }
    }

    /// `In values`.
    #[must_use]
    pub fn one_of(values: impl IntoIterator<Item = V>) -> Self {
        Self { complement: false, absence: false, ..Self::except(values) }
    }

    /// `NotIn values`.
    #[must_use]
    pub fn except(values: impl IntoIterator<Item = V>) -> Self {
        let mut values: Vec<V> = values.into_iter().collect();
        values.sort();
        values.dedup();
        Self { values, absence: true, ..Self::any() }
    }

    /// `Gte bound`.
    #[must_use]
    pub fn at_least(bound: i64) -> Self {
        Self { gte: Some(bound), ..Self::any() }
    }

    /// `Lte bound`.
    #[must_use]
    pub fn at_most(bound: i64) -> Self {
        Self { lte: Some(bound), ..Self::any() }
    }

    /// `Gt bound`; nothing is above the largest integer.
    #[must_use]
    pub fn above(bound: i64) -> Self {
        bound.checked_add(1).map_or_else(Self::never, Self::at_least)
    }

    /// `Lt bound`; nothing is below the smallest integer.
    #[must_use]
    pub fn below(bound: i64) -> Self {
        bound.checked_sub(1).map_or_else(Self::never, Self::at_most)
    }

    /// The same values with this `minValues`.
    #[must_use]
    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// `minValues`: how many distinct values a set of instance types must keep.
    #[must_use]
    pub fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// The listed values: the members of `In`, the excluded ones of `NotIn`.
    #[must_use]
    pub fn listed(&self) -> &[V] {
        &self.values
    }

    /// The allowed values, if the set is finite.
    #[must_use]
    pub fn members(&self) -> Option<&[V]> {
        (!self.complement).then_some(&self.values[..])
    }

    /// The only allowed value, if there is exactly one.
    #[must_use]
    pub fn single(&self) -> Option<&V> {
        match (self.complement, &self.values[..]) {
            (false, [only]) => Some(only),
            _ => None,
        }
    }

    /// The inclusive bounds.
    #[must_use]
    pub fn bounds(&self) -> (Option<i64>, Option<i64>) {
        (self.gte, self.lte)
    }

    /// Whether the label is required but no value is allowed.
    #[must_use]
    pub fn is_contradiction(&self) -> bool {
        self.is_empty() && !self.absence
    }

    /// Whether no value is allowed: `DoesNotExist` or a contradiction.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.complement && self.values.is_empty()
    }

    /// The operator that this corresponds to.
    #[must_use]
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// Whether a node without the label satisfies this.
    #[must_use]
    pub fn allows_absence(&self) -> bool {
        self.absence
    }

    /// Whether `value` satisfies this.
    #[must_use]
    pub fn has(&self, value: &V) -> bool {
        self.complement != self.values.binary_search(value).is_ok() && within(value, self.gte, self.lte)
    }

    /// The values that satisfy both, with the larger `minValues`.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let gte = self.gte.max(other.gte);
        let lte = smaller(self.lte, other.lte);
        let min_values = self.min_values.max(other.min_values);
        let mut out = Self {
            complement: self.complement && other.complement,
            absence: self.absence && other.absence,
            values: Vec::new(),
            gte,
            lte,
            min_values,
        };
        if matches!((gte, lte), (Some(low), Some(high)) if low > high) {
            out.complement = false;
        } else {
            out.values = match (self.complement, other.complement) {
                (true, true) => Self::except(self.values.iter().chain(&other.values).cloned()).values,
                (true, false) => difference(&other.values, &self.values),
                (false, true) => difference(&self.values, &other.values),
                (false, false) => self.values.iter().filter(|v| other.values.binary_search(v).is_ok()).cloned().collect(),
            };
            out.values.retain(|v| within(v, gte, lte));
        }
        if !out.complement {
            out.gte = None;
            out.lte = None;
        }
        out
    }

    /// Whether some value satisfies both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (gte, lte) = (self.gte.max(other.gte), smaller(self.lte, other.lte));
        if matches!((gte, lte), (Some(low), Some(high)) if low > high) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => self.share_an_integer(other, gte, lte),
            (false, _) => self.values.iter().any(|v| within(v, gte, lte) && other.has(v)),
            (true, false) => other.values.iter().any(|v| within(v, gte, lte) && self.has(v)),
        }
    }

    /// Whether two complements have a value in common: always, unless the bounds are so narrow that all integers are
    /// excluded.
    fn share_an_integer(&self, other: &Self, gte: Option<i64>, lte: Option<i64>) -> bool {
        let (Some(low), Some(high)) = (gte, lte) else { return true };
        let excluded = (self.values.len() + other.values.len()) as u64;
        if high.abs_diff(low) >= excluded {
            return true;
        }
        let out: Vec<i64> = self.values.iter().chain(&other.values).filter_map(Value::as_int).collect();
        (low..=high).any(|n| !out.contains(&n))
    }

    /// Converts every value.
    #[must_use]
    pub fn map<W: Value>(&self, mut to: impl FnMut(&V) -> W) -> Allowed<W> {
        let mut values: Vec<W> = self.values.iter().map(&mut to).collect();
        values.sort();
        Allowed { complement: self.complement, absence: self.absence, values, gte: self.gte, lte: self.lte, min_values: self.min_values }
    }
}

impl<V: Value + Display> Allowed<V> {
    /// As in messages: `In [a b]`, `Exists >=2 <=8`, `NotIn [x] minValues 3`. At most five values are listed.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = self.operator().as_str().to_owned();
        if !self.values.is_empty() {
            let mut names: Vec<String> = self.values.iter().map(ToString::to_string).collect();
            names.sort();
            let more = names.len().saturating_sub(5);
            names.truncate(5);
            out.push_str(" [");
            out.push_str(&names.join(" "));
            if more > 0 {
                let _ = write!(out, " and {more} others");
            }
            out.push(']');
        }
        for (sign, bound) in [(">=", self.gte), ("<=", self.lte)] {
            if let Some(bound) = bound {
                let _ = write!(out, " {sign}{bound}");
            }
        }
        if let Some(n) = self.min_values {
            let _ = write!(out, " minValues {n}");
        }
        out
    }
}

impl<V: Value + Display> Display for Allowed<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

fn within<V: Value>(value: &V, gte: Option<i64>, lte: Option<i64>) -> bool {
    if gte.is_none() && lte.is_none() {
        return true;
    }
    value.as_int().is_some_and(|n| gte.is_none_or(|low| n >= low) && lte.is_none_or(|high| n <= high))
}

fn smaller(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn difference<V: Value>(from: &[V], out: &[V]) -> Vec<V> {
    from.iter().filter(|v| out.binary_search(v).is_err()).cloned().collect()
}
