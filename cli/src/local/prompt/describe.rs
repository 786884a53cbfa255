//! `describe`: everything about an object that the cluster knows.

use super::command_line::DescribeArgs;
use super::get::{Scope, Selector, age};
use crate::local::kinds::{self, KindEntry};
use crate::local::rows::{self, Listed};
use crate::table::table;
use serde_json::Value;
use std::fmt::Write as _;
use whittle_sim::World;

/// What `describe` prints.
pub(super) fn describe(world: &World, args: &DescribeArgs, namespace: Option<&str>) -> Result<String, String> {
    let selector = args.selector.as_deref().map(Selector::parse).transpose()?;
    let scope = Scope { namespace: namespace.unwrap_or("default"), all: args.all_namespaces, selector: selector.as_ref() };
    let mut texts = Vec::new();
    for target in kinds::targets(&args.objects)? {
        for row in scope.listed_by_beginning(world, &target)? {
            texts.push(one(world, target.entry, &row)?);
        }
    }
    if texts.is_empty() {
        return Ok(format!("there is nothing of that kind in namespace {}\n", scope.namespace));
    }
    Ok(texts.join("\n"))
}

fn one(world: &World, entry: &KindEntry, row: &Listed<'_>) -> Result<String, String> {
    let mut value = (row.json)();
    let mut text = format!("{}/{}\n", entry.singular(), row.name);
    let header: Vec<&str> = entry.columns.iter().chain(entry.wide).copied().collect();
    let (cells, wide) = (row.cells)();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {:<20} {value}", format!("{name}:"));
    };
    if entry.namespaced {
        line("namespace", &row.namespace);
    }
    for (name, cell) in header.iter().zip(cells.iter().chain(&wide)).filter(|(_, cell)| *cell != "-") {
        line(&name.to_lowercase(), cell);
    }
    if let Some(since) = row.since {
        line("age", &age(since, world.now()));
    }
    let conditions = value.pointer_mut("/status/conditions").map(Value::take);
    for field in ["labels", "annotations"] {
        if let Some(map) = value.pointer(&format!("/metadata/{field}")).and_then(Value::as_object) {
            text.push_str(&format!("  {field}:\n"));
            map.iter().for_each(|(key, value)| text.push_str(&format!("    {key}={}\n", value.as_str().unwrap_or_default())));
        }
    }
    for field in ["spec", "status"] {
        if let Some(Value::Object(mut map)) = value.get_mut(field).map(Value::take) {
            map.retain(|_, value| !is_empty(value));
            if !map.is_empty() {
                let yaml = serde_saphyr::to_string(&map).map_err(|error| error.to_string())?;
                text.push_str(&format!("  {field}:\n{}", indented(&yaml)));
            }
        }
    }
    text.push_str(&conditions_of(conditions.as_ref()));
    if entry.kind == "Node" {
        text.push_str(&pods_on(world, &row.name));
    }
    text.push_str(&events_of(world, entry, row));
    Ok(text)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

fn conditions_of(conditions: Option<&Value>) -> String {
    let Some(list) = conditions.and_then(Value::as_array).filter(|list| !list.is_empty()) else { return String::new() };
    let field = |condition: &Value, name: &str| match condition.get(name).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => "-".to_owned(),
    };
    let row = |condition: &Value| ["type", "status", "reason", "message"].map(|name| field(condition, name)).to_vec();
    format!("  conditions:\n{}", indented(&table(&["TYPE", "STATUS", "REASON", "MESSAGE"], list.iter().map(row))))
}

fn pods_on(world: &World, node: &str) -> String {
    let row = |pod: &whittle_api::k8s::Pod| {
        let requests = whittle_model::pods::effective_requests(pod);
        let amounts = ["cpu", "memory"].map(|name| requests.get(name).text_of(name));
        vec![pod.metadata.namespace.clone(), pod.metadata.name.clone(), rows::pod_status(pod)].into_iter().chain(amounts).collect()
    };
    let rows: Vec<Vec<String>> = world.cluster.objects.pods_on(node).map(row).collect();
    if rows.is_empty() {
        return "  pods: none\n".to_owned();
    }
    format!("  pods:\n{}", indented(&table(&["NAMESPACE", "NAME", "STATUS", "CPU", "MEMORY"], rows)))
}

fn events_of(world: &World, entry: &KindEntry, row: &Listed<'_>) -> String {
    // A pool or class that was converted publishes its events as what it became.
    let kinds = match entry.kind {
        "Provisioner" => ["Provisioner", "NodePool"],
        "AWSNodeTemplate" => ["AWSNodeTemplate", "EC2NodeClass"],
        kind => [kind, kind],
    };
    let about = kinds.map(|kind| format!("{}/{}", kind.to_lowercase(), row.name));
    let mut lines = Vec::new();
    let namespace = if row.namespace.is_empty() { "default" } else { &row.namespace };
    for event in rows::events(world).iter().filter(|event| event.name == row.name && event.namespace == namespace) {
        let (cells, _) = (event.cells)();
        if let [object, rest @ ..] = cells.as_slice()
            && about.contains(object)
        {
            let seen = event.since.map_or("-".to_owned(), |since| age(since, world.now()));
            lines.push(std::iter::once(seen).chain(rest.iter().cloned()).collect());
        }
    }
    if lines.is_empty() {
        return "  events: none\n".to_owned();
    }
    format!("  events:\n{}", indented(&table(&["LAST-SEEN", "TYPE", "REASON", "MESSAGE"], lines)))
}
