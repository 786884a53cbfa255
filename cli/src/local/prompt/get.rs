//! `get`: objects as tables, YAML, JSON or names.

use super::command_line::{Format, GetArgs};
use crate::local::kinds::{self, KindEntry, Target};
use crate::local::rows::Listed;
use crate::table::table;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_api::runtime::{is_label_value, is_qualified_name};
use whittle_sim::World;
use whittle_units::Quantity;

/// What `get` prints.
pub(super) fn get(world: &World, args: &GetArgs, namespace: Option<&str>) -> Result<String, String> {
    let targets = kinds::targets(&args.objects)?;
    let selector = args.selector.as_deref().map(Selector::parse).transpose()?;
    let scope = Scope { namespace: namespace.unwrap_or("default"), all: args.all_namespaces, selector: selector.as_ref() };
    let mut groups: Vec<(&'static KindEntry, Vec<Listed<'_>>)> = Vec::new();
    for target in &targets {
        let listed = scope.listed(world, target)?;
        match groups.last_mut().filter(|(entry, _)| entry.kind == target.entry.kind) {
            Some((_, rows)) => rows.extend(listed),
            None => groups.push((target.entry, listed)),
        }
    }
    if let Some(field) = args.sort_by.as_deref().map(Field::parse).transpose()? {
        groups.iter_mut().for_each(|(_, rows)| rows.sort_by_cached_key(|row| field.of(&(row.json)())));
    }
    let named = targets.iter().any(|target| target.name.is_some());
    let text = match args.output {
        Some(Format::Json) => format!("{:#}\n", as_list(&groups, named)),
        Some(Format::Yaml) => serde_saphyr::to_string(&as_list(&groups, named)).map_err(|error| error.to_string())?,
        Some(Format::Name) => names(&groups),
        None | Some(Format::Wide) => tables(world, args, &scope, &groups),
    };
    let remark = "the clock stands still, so that nothing more is to be seen: `advance 1m` prints what changes, and then `get` again\n";
    Ok(if args.watch { format!("{text}{remark}") } else { text })
}

/// Which objects a command is about.
pub(super) struct Scope<'a> {
    pub(super) namespace: &'a str,
    pub(super) all: bool,
    pub(super) selector: Option<&'a Selector>,
}

impl Scope<'_> {
    /// The objects of a target. One that is named and not there is an error.
    pub(super) fn listed<'a>(&self, world: &'a World, target: &Target) -> Result<Vec<Listed<'a>>, String> {
        let entry = target.entry;
        let namespace = target.namespace.as_deref().unwrap_or(self.namespace);
        let everywhere = self.all || !entry.namespaced;
        let in_it = |row: &Listed<'_>| everywhere || row.namespace == namespace;
        let named = |row: &Listed<'_>| target.name.as_ref().is_none_or(|name| row.name == *name);
        let labelled = |row: &Listed<'_>| self.selector.is_none_or(|selector| selector.matches(row.labels));
        let mut rows = (entry.list)(world);
        let others: Vec<String> = rows.iter().filter(|row| !in_it(row) && named(row)).map(|row| row.namespace.clone()).collect();
        rows.retain(|row| in_it(row) && named(row) && labelled(row));
        match &target.name {
            Some(name) if rows.is_empty() => {
                let elsewhere = others.first().map(|namespace| format!("; there is one in namespace {namespace}: add -n {namespace}"));
                let successor = || same_name(world, entry, name).map(|other| format!("; there is {other}"));
                let remedy = elsewhere.or_else(successor).unwrap_or_else(|| kinds::did_you_mean(world, entry, name));
                Err(format!("there is no {} {name:?}{remedy}", entry.singular()))
            }
            _ => Ok(rows),
        }
    }
}

impl Scope<'_> {
    /// The same, where a name may be begun if only one object of the kind begins so.
    pub(super) fn listed_by_beginning<'a>(&self, world: &'a World, target: &Target) -> Result<Vec<Listed<'a>>, String> {
        let exact = self.listed(world, target);
        let (Err(missing), Some(begun)) = (&exact, &target.name) else { return exact };
        let all = Target { name: None, ..target.clone() };
        let mut rows = self.listed(world, &all)?;
        rows.retain(|row| row.name.starts_with(begun.as_str()));
        match rows.len() {
            0 => Err(missing.clone()),
            1 => Ok(rows),
            several => {
                let names: Vec<&str> = rows.iter().take(5).map(|row| row.name.as_str()).collect();
                let more = if several > names.len() { ", …" } else { "" };
                Err(format!("{several} {} begin with {begun:?}: name one of {}{more}", target.entry.plural, names.join(", ")))
            }
        }
    }
}

/// Kinds under whose name the same is looked for that an older or newer version calls otherwise.
const SUCCESSORS: [(&str, &str); 4] = [
    ("nodepools", "provisioners"),
    ("provisioners", "nodepools"),
    ("ec2nodeclasses", "awsnodetemplates"),
    ("awsnodetemplates", "ec2nodeclasses"),
];

/// An object of this name of the kind that took the place of another, or whose place it takes, as `provisioner/default`.
pub(super) fn same_name(world: &World, entry: &KindEntry, name: &str) -> Option<String> {
    let (_, other) = SUCCESSORS.iter().find(|(plural, _)| *plural == entry.plural)?;
    let other = kinds::find(other).ok()?;
    (other.list)(world).iter().any(|row| row.name == name).then(|| format!("{}/{name}", other.singular()))
}

/// That there are objects of the kind that took the place of another, or whose place it takes.
fn elsewhere(world: &World, groups: &[(&'static KindEntry, Vec<Listed<'_>>)]) -> String {
    let other = |(entry, _): &(&'static KindEntry, Vec<Listed<'_>>)| {
        let (_, other) = SUCCESSORS.iter().find(|(plural, _)| *plural == entry.plural)?;
        let found = (kinds::find(other).ok()?.list)(world).len();
        (found > 0).then(|| format!("; there {} {found} in `get {other}`", if found == 1 { "is" } else { "are" }))
    };
    groups.iter().filter_map(other).collect()
}

/// Labels that objects must have: `app=web,tier!=db,canary`, as after `-l`.
pub(super) struct Selector(Vec<Term>);

enum Term {
    Is(String, String),
    IsNot(String, String),
    Exists(String),
    Lacks(String),
}

impl Selector {
    /// Reads the value of `-l`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let term = |part: &str| {
            let (key, found): (&str, fn(String, String) -> Term) = match part.split_once('=') {
                Some((key, _)) if key.ends_with('!') => (&key[..key.len() - 1], Term::IsNot),
                Some((key, _)) => (key, Term::Is),
                None if part.starts_with('!') => (&part[1..], |key, _| Term::Lacks(key)),
                None => (part, |key, _| Term::Exists(key)),
            };
            let value = part.split_once('=').map_or("", |(_, value)| value);
            // `==` is the same as `=`, and there is no `!==`.
            let value = if part.contains("!=") { value } else { value.strip_prefix('=').unwrap_or(value) };
            let (key, value) = (key.trim(), value.trim());
            if !is_qualified_name(key) || !is_label_value(value) {
                return Err(format!("{text:?} is no selector here: write app=web, app!=web, app or !app, with commas between"));
            }
            Ok(found(key.to_owned(), value.to_owned()))
        };
        text.split(',').map(str::trim).map(term).collect::<Result<Vec<_>, _>>().map(Self)
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| match term {
            Term::Is(key, value) => labels.get(key) == Some(value),
            Term::IsNot(key, value) => labels.get(key) != Some(value),
            Term::Exists(key) => labels.contains_key(key),
            Term::Lacks(key) => !labels.contains_key(key),
        })
    }
}

/// A field of objects, as after `--sort-by`: the keys on the way to it.
struct Field(Vec<String>);

/// What a field has, in the order of a list: objects without it first, amounts by size, anything else by its letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sorted {
    Absent,
    Amount(Quantity),
    Text(String),
}

impl Field {
    /// Reads `.metadata.name`, `{.metadata.name}`, or `.metadata.labels.karpenter\.sh/nodepool`.
    fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let path = bare.strip_prefix('.').unwrap_or(bare);
        let keys: Vec<String> = path.replace("\\.", "\0").split('.').map(|key| key.replace('\0', ".")).collect();
        if keys.iter().any(|key| key.is_empty() || key.contains(['[', ']', '{', '}', '*', '?'])) {
            return Err(format!("--sort-by {text:?} names no field: write keys alone, such as .metadata.creationTimestamp"));
        }
        Ok(Self(keys))
    }

    fn of(&self, object: &Value) -> Sorted {
        match self.0.iter().fold(object, |value, key| &value[key.as_str()]) {
            Value::Null => Sorted::Absent,
            Value::String(text) => text.parse().map_or_else(|_| Sorted::Text(text.clone()), Sorted::Amount),
            other => other.to_string().parse().map_or_else(|_| Sorted::Text(other.to_string()), Sorted::Amount),
        }
    }
}

/// One named object, or a List of all.
fn as_list(groups: &[(&KindEntry, Vec<Listed<'_>>)], named: bool) -> Value {
    let mut items: Vec<Value> = groups.iter().flat_map(|(_, rows)| rows.iter().map(|row| (row.json)())).collect();
    if named && items.len() == 1 {
        return items.remove(0);
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn names(groups: &[(&KindEntry, Vec<Listed<'_>>)]) -> String {
    let lines = groups.iter().flat_map(|(entry, rows)| rows.iter().map(move |row| format!("{}/{}\n", entry.singular(), row.name)));
    lines.collect()
}

fn tables(world: &World, args: &GetArgs, scope: &Scope<'_>, groups: &[(&'static KindEntry, Vec<Listed<'_>>)]) -> String {
    let shown: Vec<String> = groups
        .iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(entry, rows)| {
            let prefix = if 1 < groups.len() { format!("{}/", entry.singular()) } else { String::new() };
            one_table(world.now(), args, entry, rows, &prefix)
        })
        .collect();
    if !shown.is_empty() {
        return shown.join("\n");
    }
    let plurals: Vec<&str> = groups.iter().map(|(entry, _)| entry.plural).collect();
    let plurals = plurals.join(", ");
    let namespaced = groups.iter().any(|(entry, _)| entry.namespaced);
    if scope.all || !namespaced {
        return format!("there are no {plurals}{}\n", elsewhere(world, groups));
    }
    let elsewhere = groups.iter().any(|(entry, _)| !(entry.list)(world).is_empty());
    let remedy = if elsewhere && scope.selector.is_none() { "; there are some in others: add -A" } else { "" };
    format!("there are no {plurals} in namespace {}{remedy}\n", scope.namespace)
}

fn one_table(now: Timestamp, args: &GetArgs, entry: &KindEntry, rows: &[Listed<'_>], prefix: &str) -> String {
    let events = entry.kind == "Event";
    let wide = args.output == Some(Format::Wide);
    let mut header: Vec<&str> = Vec::new();
    if entry.namespaced && args.all_namespaces {
        header.push("NAMESPACE");
    }
    header.push(if events { "LAST-SEEN" } else { "NAME" });
    header.extend(entry.columns);
    if !events {
        header.push("AGE");
    }
    if wide {
        header.extend(entry.wide);
    }
    let columns: Vec<String> = args.label_columns.iter().map(|key| key.rsplit('/').next().unwrap_or(key).to_uppercase()).collect();
    header.extend(columns.iter().map(String::as_str));
    if args.show_labels {
        header.push("LABELS");
    }
    let row = |row: &Listed<'_>| {
        let (cells, more) = (row.cells)();
        let age = row.since.map_or("-".to_owned(), |since| age(since, now));
        let mut line = Vec::new();
        if entry.namespaced && args.all_namespaces {
            line.push(row.namespace.clone());
        }
        line.push(if events { age.clone() } else { format!("{prefix}{}", row.name) });
        line.extend(cells);
        if !events {
            line.push(age);
        }
        if wide {
            line.extend(more);
        }
        line.extend(
            args.label_columns.iter().map(|key| row.labels.get(key).filter(|value| !value.is_empty()).cloned().unwrap_or("-".to_owned())),
        );
        if args.show_labels {
            let labels: Vec<String> = row.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            line.push(if labels.is_empty() { "-".to_owned() } else { labels.join(",") });
        }
        line
    };
    table(if args.no_headers { &[] } else { &header }, rows.iter().map(row))
}

/// How long ago something was, in kubectl's steps: 90s, 5m30s, 3h, 2d.
pub(super) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (minutes, hours, days) {
        (0..2, ..) => format!("{seconds}s"),
        (2..10, ..) if seconds % 60 == 0 => format!("{minutes}m"),
        (2..10, ..) => format!("{minutes}m{}s", seconds % 60),
        (10..180, ..) => format!("{minutes}m"),
        (_, 3..8, _) if minutes % 60 == 0 => format!("{hours}h"),
        (_, 3..8, _) => format!("{hours}h{}m", minutes % 60),
        (_, 8..48, _) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn ages_are_as_coarse_as_kubectls() {
        let of = |seconds: i64| age(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds));
        let ages = [0, 119, 120, 330, 3_600, 10_800, 14_700, 90_000, 180_000].map(of);
        assert_eq!(ages, ["0s", "119s", "2m", "5m30s", "60m", "3h", "4h5m", "25h", "2d"]);
        assert_eq!(age(Timestamp::MAX, Timestamp::UNIX_EPOCH), "0s", "an object from the future is new");
    }

    #[test]
    fn fields_sort_amounts_by_size_and_texts_by_letters() {
        let of = |field: &str, object: Value| Field::parse(field).unwrap().of(&object);
        let cpu = |amount: Value| of(".status.capacity.cpu", json!({"status": {"capacity": {"cpu": amount}}}));
        assert!(cpu(json!("900m")) < cpu(json!("2")) && cpu(json!("2")) < cpu(json!(16)), "by size");
        assert!(of("{.metadata.name}", json!({})) < cpu(json!("1")), "those without it first");
        let label = json!({"metadata": {"labels": {"karpenter.sh/nodepool": "default"}}});
        assert_eq!(of(".metadata.labels.karpenter\\.sh/nodepool", label), Sorted::Text("default".to_owned()));
        for wrong in ["", ".items[0]", "{range .items[*]}", "..name"] {
            assert!(Field::parse(wrong).is_err_and(|error| error.contains(".metadata.creationTimestamp")), "{wrong}");
        }
    }

    #[test]
    fn selectors_choose_by_labels() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("tier", "front")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let matches = |text: &str| Selector::parse(text).map(|selector| selector.matches(&labels));
        for text in ["app=web", "app==web,tier", "app!=db", "!gpu", "app=web, tier=front"] {
            assert_eq!(matches(text), Ok(true), "{text}");
        }
        for text in ["app=db", "app!=web", "gpu", "!tier", "app=web,tier=back"] {
            assert_eq!(matches(text), Ok(false), "{text}");
        }
        for text in ["app in (web, db)", "", "app=web=x", "app===web", "app!==web", "app=web,", "=web", "a b=web", "app=we b"] {
            assert!(matches(text).is_err_and(|error| error.contains("is no selector here")), "{text}");
        }
    }
}
