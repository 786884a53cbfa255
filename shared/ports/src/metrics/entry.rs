//! The catalogue entry of a metric, and how an entry becomes a type.

use crate::Amount;
use std::collections::BTreeMap;
use whittle_claims::Function;

/// What a value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Events of one run, to be summed.
    Counter,
    /// A state, or a duration; of several values of one run the last.
    Gauge,
    /// Every value of a run, where Karpenter has a histogram: CloudWatch computes its percentiles.
    Distribution,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Milliseconds,
    Seconds,
    Bytes,
    /// The unit of the resource that a label names.
    Resource,
    /// A number without a unit.
    Score,
    DollarsPerHour,
}

impl Unit {
    /// As in the documentation.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Milliseconds => "Milliseconds",
            Self::Seconds => "Seconds",
            Self::Bytes => "Bytes",
            Self::Resource => "the resource's (CPUs, bytes, pods)",
            Self::Score => "a score",
            Self::DollarsPerHour => "dollars an hour",
        }
    }
    /// CloudWatch's name.
    pub const fn cloudwatch(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Milliseconds => "Milliseconds",
            Self::Seconds => "Seconds",
            Self::Bytes => "Bytes",
            Self::Resource | Self::Score | Self::DollarsPerHour => "None",
        }
    }
}

/// A dimension besides `cluster`, which all metrics have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    /// The values that it may have, as Markdown; empty if its name is sufficient.
    pub values: &'static str,
}

/// All properties of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its type in [`crate::metrics`].
    pub type_name: &'static str,
    pub name: &'static str,
    /// The table of `docs/metrics.md` that lists it.
    pub section: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub labels: &'static [Label],
    /// As Markdown, without a full stop.
    pub help: &'static str,
    /// The functions that emit it.
    pub writers: &'static [Function],
}

impl Entry {
    /// Whether every function writes it.
    pub const fn is_of_every_function(&self) -> bool {
        self.writers.len() == Function::ALL.len()
    }
}

/// A metric with the values of its labels.
pub trait Metric {
    const ENTRY: Entry;
    /// The values of the labels, by their names.
    fn labels(&self) -> BTreeMap<&'static str, String>;
}

/// A metric for [`crate::Report::metric`].
pub trait CounterMetric: Metric {}

/// A metric for [`crate::Report::gauge`].
pub trait GaugeMetric: Metric {
    /// The type of its value.
    type Value: Into<Amount>;
}

/// A metric for [`crate::Report::observe`].
pub trait DistributionMetric: Metric {
    /// The type of its values.
    type Value: Into<Amount>;
}

/// Generates a type for each entry, with a field for every label, and the list [`super::ALL`] of all entries:
///
/// ```text
/// section {
///     /// Help.
///     counter TypeName = "metric_name" from [Function, …] { /// Values.
///         label, … }
///     gauge(Unit) TypeName = "metric_name" from [Function, …] { … }
///     distribution(Unit) TypeName = "metric_name" from [Function, …] { … }
/// }
/// ```
///
/// `from every` means all functions; a `timer` is written by the runtime alone.
macro_rules! catalogue {
    ($($section:ident { $(
        $(#[doc = $help:literal])+
        $kind:ident $(($unit:ident))? $metric:ident = $name:literal from $writers:tt { $($labels:tt)* }
    )* })*) => {
        $($(
            $crate::metrics::entry::metric! {
                $metric { $($labels)* }
                help [$($help)+] kind [$kind $($unit)?] name [$name] section [$section] from $writers
            }
        )*)*
        /// The whole catalogue, in the order of the documentation.
        pub const ALL: &[Entry] = &[$($( <$metric as Metric>::ENTRY, )*)*];
    };
}

macro_rules! metric {
    ($metric:ident {} help [$($help:literal)+] $($rest:tt)*) => {
        $(#[doc = $help])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $metric;
        $crate::metrics::entry::implement! { $metric [$metric] [] help [$($help)+] $($rest)* }
    };
    ($metric:ident { $($(#[doc = $values:literal])* $label:ident),+ $(,)? } help [$($help:literal)+] $($rest:tt)*) => {
        $(#[doc = $help])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $metric<'a> {
            $($(#[doc = $values])* pub $label: &'a str,)+
        }
        $crate::metrics::entry::implement! { $metric [$metric<'_>] [$($label [$($values)*])+] help [$($help)+] $($rest)* }
    };
}

macro_rules! implement {
    (
        $metric:ident [$type:ty] [$($label:ident [$($values:literal)*])*]
        help [$($help:literal)+] kind [$kind:ident $($unit:ident)?] name [$name:literal] section [$section:ident] from $writers:tt
    ) => {
        impl Metric for $type {
            const ENTRY: Entry = Entry {
                type_name: stringify!($metric),
                name: $name,
                section: stringify!($section),
                kind: $crate::metrics::entry::kind!($kind),
                unit: $crate::metrics::entry::unit!($($unit)?),
                labels: &[$(Label { name: stringify!($label), values: concat!($($values),*) },)*],
                help: concat!($($help),+),
                writers: $crate::metrics::entry::writers!($writers),
            };
            fn labels(&self) -> BTreeMap<&'static str, String> {
                BTreeMap::from([$((stringify!($label), self.$label.to_owned()),)*])
            }
        }
        $crate::metrics::entry::written! { $kind [$type] $($unit)? }
    };
}

macro_rules! kind {
    (counter) => {
        Kind::Counter
    };
    (gauge) => {
        Kind::Gauge
    };
    (timer) => {
        Kind::Gauge
    };
    (distribution) => {
        Kind::Distribution
    };
}

macro_rules! unit {
    () => {
        Unit::Count
    };
    ($unit:ident) => {
        Unit::$unit
    };
}

macro_rules! writers {
    (every) => {
        &Function::ALL
    };
    ([$($function:ident),*]) => {
        &[$(Function::$function),*]
    };
}

macro_rules! written {
    (counter [$type:ty]) => {
        impl CounterMetric for $type {}
    };
    (gauge [$type:ty] $unit:ident) => {
        impl GaugeMetric for $type {
            type Value = $crate::metrics::entry::value!($unit);
        }
    };
    (distribution [$type:ty] $unit:ident) => {
        impl DistributionMetric for $type {
            type Value = $crate::metrics::entry::value!($unit);
        }
    };
    (timer [$type:ty] Milliseconds) => {};
}

macro_rules! value {
    (Count) => {
        u64
    };
    (Bytes) => {
        u64
    };
    (Seconds) => {
        SignedDuration
    };
    (Resource) => {
        Quantity
    };
    (Score) => {
        Quantity
    };
    (DollarsPerHour) => {
        Price
    };
}

pub(super) use catalogue;
pub(crate) use {implement, kind, metric, unit, value, writers, written};
