//! `whittle convert`: converts manifests of versions before v1 to v1, on standard output.

#[cfg(test)]
mod tests;

use crate::printing;
use crate::source::{classes, files};
use clap::ValueEnum;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use whittle_api::karpenter::Ec2NodeClassSpec;
use whittle_api::legacy::{self, ConvertOptions, Converted, Note, Purpose};
use whittle_api::manifest::Object;
use whittle_api::validate;

/// Arguments of `whittle convert`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle convert -f provisioner.yaml -f templates/ > v1.yaml
  kubectl get provisioners,awsnodetemplates -o yaml | whittle convert -f - --default-role KarpenterNodeRole-shop

Exit code: 0 if everything is converted, 1 if the output cannot be written, 2 if something cannot be converted; then nothing is printed.")]
pub struct Args {
    /// Manifests: a file, a directory (its *.yaml, *.yml and *.json) or - for standard input; may be given more than once
    #[arg(short, long = "filename", required = true, value_name = "MANIFESTS")]
    pub filename: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    pub output: Output,
    /// Instance profile for templates without one
    #[arg(long, value_name = "NAME")]
    pub default_instance_profile: Option<String>,
    /// IAM role for templates without an instance profile; without either, a placeholder is written
    #[arg(long, value_name = "NAME")]
    pub default_role: Option<String>,
    /// Do not add the requirements that v1alpha5 added to every Provisioner
    #[arg(long)]
    pub ignore_defaults: bool,
    /// Use AL2023 for templates that mean AL2, which has no images from Kubernetes 1.33 on
    #[arg(long)]
    pub al2023: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Yaml,
    Json,
}

/// Converts, and prints the result to `out` and notes to `err`. Exit code 2 if there is any error in
/// the input; then nothing is printed to `out`.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &Args, stdin: &mut dyn Read, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let refuse = |err: &mut dyn Write, errors: &[String]| -> io::Result<ExitCode> {
        for error in errors {
            writeln!(err, "error: {}", printing::without_numbers(&error.to_string()))?;
        }
        Ok(ExitCode::from(2))
    };
    let located = match files::objects(&args.filename, stdin) {
        Ok(objects) => objects.located,
        Err(errors) => return refuse(err, &errors),
    };
    let (ours, others): (Vec<_>, Vec<_>) = located.into_iter().map(|located| located.value).partition(is_karpenter);
    if ours.is_empty() {
        let hint = "nothing to convert: no Provisioner, AWSNodeTemplate, Machine, NodePool, NodeClaim or EC2NodeClass among the files";
        return refuse(err, &[hint.to_owned()]);
    }
    let converted = legacy::convert(ours, &options(args));
    let errors = faults(&converted);
    if !errors.is_empty() {
        return refuse(err, &errors);
    }
    for other in others {
        writeln!(err, "note: {} {:?} is left out, it has nothing to convert", other.type_meta().1, other.key())?;
    }
    for note in &converted.warnings {
        writeln!(err, "warning: {}: {}", note.object, note.text)?;
    }
    print(args.output, &converted, out)?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &Args) -> ConvertOptions {
    ConvertOptions {
        default_instance_profile: args.default_instance_profile.clone(),
        default_role: args.default_role.clone(),
        ignore_defaults: args.ignore_defaults,
        al2023: args.al2023,
        ..ConvertOptions::new(Purpose::Output)
    }
}

const fn is_karpenter(object: &Object) -> bool {
    matches!(
        object,
        Object::Legacy(_)
            | Object::NodePool(_)
            | Object::NodeClaim(_)
            | Object::NodeClass(_)
            | Object::NodeOverlay(_)
            | Object::CapacityBuffer(_)
    )
}

/// The errors of objects that cannot be converted, and of results that an API server would reject.
fn faults(converted: &Converted) -> Vec<String> {
    let refused = converted.objects.iter().flat_map(|object| {
        let faults = match without_spec(object) {
            Some(missing) => vec![missing.to_owned()],
            None => validate::validate(object).iter().map(ToString::to_string).collect(),
        };
        let whose = title(object);
        faults.into_iter().map(move |fault| format!("{whose} as v1, {fault}"))
    });
    converted.errors.iter().map(ToString::to_string).chain(refused).chain(merged(&converted.objects)).collect()
}

/// What is missing of a node class without a spec: each rule of the spec would say it in another way.
fn without_spec(object: &Object) -> Option<&'static str> {
    match object {
        Object::NodeClass(class) if class.spec == Ec2NodeClassSpec::default() => classes::without_spec(class),
        _ => None,
    }
}

/// Objects of which several would have one name: applied, the last of them alone would remain.
fn merged(objects: &[Object]) -> Vec<String> {
    let mut first: BTreeMap<String, &Object> = BTreeMap::new();
    let mut twice: BTreeSet<String> = BTreeSet::new();
    for object in objects {
        // Karpenter's kinds are in no namespace, whatever a file says.
        let title = format!("{} {:?}", object.type_meta().1, object.key().rsplit('/').next().unwrap_or_default());
        if *first.entry(title.clone()).or_insert(object) != object {
            twice.insert(title);
        }
    }
    let told = |title: String| {
        format!(
            "{title}: several objects of the files become it, such as a Provisioner and a NodePool of one name, and only one could be applied: \
             rename one of them, or convert their files one after the other"
        )
    };
    twice.into_iter().map(told).collect()
}

fn print(output: Output, converted: &Converted, out: &mut dyn Write) -> io::Result<()> {
    let values: Vec<(String, Value)> = converted.objects.iter().filter_map(|object| Some((title(object), manifest(object)?))).collect();
    if output == Output::Json {
        let items: Vec<Value> = values.into_iter().map(|(_, value)| value).collect();
        let list = match items.as_slice() {
            [single] => single.clone(),
            _ => serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}),
        };
        // Such letters are in strings alone, where JSON has these escapes.
        return writeln!(out, "{}", printing::harmless(&format!("{list:#}"), false));
    }
    let notes = notes_by_title(&converted.warnings);
    for (position, (title, value)) in values.iter().enumerate() {
        if 0 < position {
            writeln!(out, "---")?;
        }
        for note in notes.get(title.as_str()).into_iter().flatten() {
            writeln!(out, "# {note}")?;
        }
        let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
        match printing::harmless(&text, false) {
            Cow::Borrowed(as_it_is) => out.write_all(as_it_is.as_bytes())?,
            // What steers a terminal has an escape in JSON, which is YAML as well.
            Cow::Owned(_) => writeln!(out, "{}", printing::harmless(&format!("{value:#}"), false))?,
        }
    }
    Ok(())
}

fn title(object: &Object) -> String {
    format!("{} {:?}", object.type_meta().1, object.key())
}

/// The notes that are printed above objects, by kind and name.
fn notes_by_title(warnings: &[Note]) -> BTreeMap<&str, Vec<&str>> {
    let mut notes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for note in warnings.iter().filter(|note| note.in_output) {
        notes.entry(&note.object).or_default().push(&note.text);
    }
    notes
}

/// The object as a user would write it: no status, no empty blocks.
fn manifest(object: &Object) -> Option<Value> {
    let mut value = object.to_json()?;
    let map = value.as_object_mut()?;
    map.remove("status");
    for (parent, child) in [("/spec/template", "metadata"), ("/spec/resources", "requests"), ("/spec", "resources")] {
        if let Some(Value::Object(parent)) = value.pointer_mut(parent)
            && parent.get(child).is_some_and(|child| child.as_object().is_some_and(serde_json::Map::is_empty))
        {
            parent.remove(child);
        }
    }
    Some(value)
}
