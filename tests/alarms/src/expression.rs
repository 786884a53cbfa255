//! What an alarm watches: a metric, metric math over some, or a query.

use crate::Point;
use crate::alarm::Names;
use crate::point::list;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How the values of a period become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistic {
    Sum,
    Maximum,
}

impl Statistic {
    fn of(name: &Value) -> Result<Self> {
        match name.as_str() {
            Some("Sum") => Ok(Self::Sum),
            Some("Maximum") => Ok(Self::Maximum),
            other => bail!("the statistic {other:?} is not known here"),
        }
    }

    fn value(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Sum => (!values.is_empty()).then(|| values.iter().sum()),
            Self::Maximum => values.iter().copied().reduce(f64::max),
        }
    }
}

/// A metric with exactly these dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    namespace: String,
    name: String,
    dimensions: BTreeMap<String, String>,
    statistic: Statistic,
}

impl Metric {
    fn of(metric: &Value, statistic: &Value, names: &Names) -> Result<Self> {
        let mut dimensions = BTreeMap::new();
        for dimension in list(&metric["Dimensions"]) {
            dimensions.insert(names.text(&dimension["Name"])?, names.text(&dimension["Value"])?);
        }
        Ok(Self {
            namespace: names.text(&metric["Namespace"])?,
            name: names.text(&metric["MetricName"])?,
            dimensions,
            statistic: Statistic::of(statistic)?,
        })
    }

    fn value(&self, points: &[&Point]) -> Option<f64> {
        let is_own =
            |point: &&&Point| point.namespace == self.namespace && point.metric == self.name && point.dimensions == self.dimensions;
        let values: Vec<f64> = points.iter().filter(is_own).map(|point| point.value).collect();
        self.statistic.value(&values)
    }
}

/// Metric math over metrics that have names.
#[derive(Clone, Debug, PartialEq)]
enum Math {
    /// `SUM(METRICS())`
    SumOfAll,
    /// `MAX([a / 10, b / 20])`: names and divisors.
    MaximumOf(Vec<(String, f64)>),
}

impl Math {
    fn parse(text: &str) -> Option<Self> {
        if text == "SUM(METRICS())" {
            return Some(Self::SumOfAll);
        }
        let terms = text.strip_prefix("MAX([")?.strip_suffix("])")?.split(", ");
        let term = |term: &str| {
            let (name, divisor) = term.split_once(" / ")?;
            Some((name.to_owned(), divisor.parse::<f64>().ok()?))
        };
        terms.map(term).collect::<Option<_>>().map(Self::MaximumOf)
    }

    fn value(&self, metrics: &BTreeMap<String, Metric>, points: &[&Point]) -> Option<f64> {
        match self {
            Self::SumOfAll => Statistic::Sum.value(&metrics.values().filter_map(|metric| metric.value(points)).collect::<Vec<_>>()),
            Self::MaximumOf(terms) => {
                let quotient = |(name, divisor): &(String, f64)| Some(metrics.get(name)?.value(points)? / divisor);
                Statistic::Maximum.value(&terms.iter().filter_map(quotient).collect::<Vec<_>>())
            }
        }
    }
}

/// A query of Metrics Insights, whose groups are the alarm's contributors.
#[derive(Clone, Debug, PartialEq)]
struct Query {
    namespace: String,
    metric: String,
    dimensions: BTreeSet<String>,
    statistic: Statistic,
    /// Dimensions with the value that they must have.
    wanted: Vec<(String, String)>,
    groups: Vec<String>,
}

impl Query {
    fn parse(text: &str) -> Option<Self> {
        let (function, rest) = text.strip_prefix("SELECT ")?.split_once('(')?;
        let (metric, rest) = rest.split_once(") FROM SCHEMA(")?;
        let (schema, rest) = rest.split_once(')')?;
        let order = format!(" ORDER BY {function}() DESC");
        let (wanted, groups) = rest.strip_suffix(order.as_str())?.split_once(" GROUP BY ")?;
        let mut names = schema.split(", ").map(unquoted);
        let namespace = names.next()??;
        let wanted = match wanted.strip_prefix(" WHERE ") {
            Some(terms) => terms.split(" AND ").map(equality).collect::<Option<Vec<_>>>()?,
            None if wanted.is_empty() => Vec::new(),
            None => return None,
        };
        let statistic = match function {
            "SUM" => Statistic::Sum,
            "MAX" => Statistic::Maximum,
            _ => return None,
        };
        let groups = groups.split(", ").map(unquoted).collect::<Option<Vec<_>>>()?;
        Some(Self { namespace, metric: unquoted(metric)?, dimensions: names.collect::<Option<_>>()?, statistic, wanted, groups })
    }

    fn values(&self, points: &[&Point]) -> BTreeMap<String, f64> {
        let is_own = |point: &&&Point| {
            point.namespace == self.namespace
                && point.metric == self.metric
                && point.dimensions.keys().eq(&self.dimensions)
                && self.wanted.iter().all(|(name, value)| point.dimensions.get(name) == Some(value))
        };
        let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for point in points.iter().filter(is_own) {
            let of_group: Vec<&str> = self.groups.iter().filter_map(|name| point.dimensions.get(name)).map(String::as_str).collect();
            groups.entry(of_group.join(", ")).or_default().push(point.value);
        }
        groups.into_iter().filter_map(|(group, values)| Some((group, self.statistic.value(&values)?))).collect()
    }
}

fn equality(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once(" = ")?;
    Some((unquoted(name)?, value.strip_prefix('\'')?.strip_suffix('\'')?.to_owned()))
}

fn unquoted(name: &str) -> Option<String> {
    Some(name.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

/// What an alarm watches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Watched(Form);

#[derive(Clone, Debug, PartialEq)]
enum Form {
    Metric(Metric),
    Math(Math, BTreeMap<String, Metric>),
    Query(Query),
}

impl Watched {
    /// What an alarm with these properties watches, and the seconds of a period.
    pub(crate) fn of(properties: &Value, names: &Names) -> Result<(Self, i64)> {
        let seconds = |period: &Value| period.as_i64().with_context(|| format!("the period {period} is no number of seconds"));
        if properties["Metrics"].is_null() {
            let metric = Metric::of(properties, &properties["Statistic"], names)?;
            return Ok((Self(Form::Metric(metric)), seconds(&properties["Period"])?));
        }
        let (asked, parts): (Vec<&Value>, Vec<&Value>) = list(&properties["Metrics"]).partition(|part| !part["Expression"].is_null());
        let [asked] = &asked[..] else { bail!("{} expressions; one is known here", asked.len()) };
        let text = names.text(&asked["Expression"])?;
        if parts.is_empty() {
            let query = Query::parse(&text).with_context(|| format!("the query `{text}` is of no form that is known here"))?;
            return Ok((Self(Form::Query(query)), seconds(&asked["Period"])?));
        }
        let math = Math::parse(&text).with_context(|| format!("the expression `{text}` is of no form that is known here"))?;
        let mut metrics = BTreeMap::new();
        let mut periods = BTreeSet::new();
        for part in parts {
            let MetricStat { metric, statistic, period } = MetricStat::of(part)?;
            metrics.insert(names.text(&part["Id"])?, Metric::of(metric, statistic, names)?);
            periods.insert(seconds(period)?);
        }
        if let Math::MaximumOf(terms) = &math {
            let unknown = terms.iter().find(|(name, _)| !metrics.contains_key(name));
            ensure!(unknown.is_none(), "`{text}` names {unknown:?}, which is none of its metrics");
        }
        let period = periods.pop_first().filter(|_| periods.is_empty()).context("its metrics have different periods")?;
        Ok((Self(Form::Math(math, metrics)), period))
    }

    /// The metrics' namespaces.
    pub(crate) fn namespaces(&self) -> BTreeSet<&str> {
        match &self.0 {
            Form::Metric(metric) => BTreeSet::from([metric.namespace.as_str()]),
            Form::Math(_, metrics) => metrics.values().map(|metric| metric.namespace.as_str()).collect(),
            Form::Query(query) => BTreeSet::from([query.namespace.as_str()]),
        }
    }

    /// Whether there is one value, which may be missing, and not one for each contributor.
    pub(crate) const fn is_single(&self) -> bool {
        !matches!(self.0, Form::Query(_))
    }

    /// The values of a period with these points, by contributor; a single one has no name.
    pub(crate) fn values(&self, points: &[&Point]) -> BTreeMap<String, f64> {
        let single = |value: Option<f64>| value.map(|value| (String::new(), value)).into_iter().collect();
        match &self.0 {
            Form::Metric(metric) => single(metric.value(points)),
            Form::Math(math, metrics) => single(math.value(metrics, points)),
            Form::Query(query) => query.values(points),
        }
    }
}

/// A metric of an expression.
struct MetricStat<'a> {
    metric: &'a Value,
    statistic: &'a Value,
    period: &'a Value,
}

impl<'a> MetricStat<'a> {
    fn of(part: &'a Value) -> Result<Self> {
        ensure!(part["ReturnData"] == false, "{} would be watched as well: its ReturnData is not false", part["Id"]);
        let stat = &part["MetricStat"];
        Ok(Self { metric: &stat["Metric"], statistic: &stat["Stat"], period: &stat["Period"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_the_forms_of_the_template_are_understood() {
        assert_eq!(Math::parse("SUM(METRICS())"), Some(Math::SumOfAll));
        let terms = vec![("relay".to_owned(), 50.0), ("sweep".to_owned(), 600.0)];
        assert_eq!(Math::parse("MAX([relay / 50, sweep / 600])"), Some(Math::MaximumOf(terms)));
        for other in ["AVG(METRICS())", "relay + sweep", "MAX([relay, sweep])", "MAX([relay * 2])"] {
            assert_eq!(Math::parse(other), None, "{other}");
        }
    }

    #[test]
    fn queries_of_the_forms_of_the_template_are_understood() {
        let head = r#"SELECT SUM("m") FROM SCHEMA("N", "cluster", "function") WHERE "function" = 'refresh'"#;
        let text = format!(r#"{head} GROUP BY "cluster" ORDER BY SUM() DESC"#);
        let query = Query::parse(&text).unwrap();
        assert_eq!((query.namespace.as_str(), query.metric.as_str(), query.statistic), ("N", "m", Statistic::Sum));
        assert_eq!(query.wanted, [("function".to_owned(), "refresh".to_owned())]);
        assert_eq!(query.groups, ["cluster"]);
        let changes = [("SUM", "AVG"), (" = ", " > "), ("\"m\"", "m"), (" DESC", ""), (" WHERE", " WHEN"), (" GROUP BY \"cluster\"", "")];
        for (part, other) in changes {
            assert_eq!(Query::parse(&text.replace(part, other)), None, "{part} as {other}");
        }
    }
}
