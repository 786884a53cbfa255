//! `whittle check`: validates manifests, those of a cluster, and settings.

mod buffers;
mod classes;
mod findings;
mod overlays;
mod parameters;
mod pools;
mod protection;
#[cfg(test)]
mod tests;
mod unmet;
mod workloads;

use crate::local::Output;
use crate::look::ClusterArgs;
use crate::mapping;
use crate::source::files::{self, Readable};
use crate::source::settings as plan_settings;
use crate::source::{self, acceptance, served};
use crate::validate;
use findings::{Findings, Level, Printed};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use whittle_api::aws_auth;
use whittle_api::k8s::ConfigMap;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::legacy::{self, ConvertOptions, Purpose};
use whittle_api::manifest::{Located, Object};
use whittle_api::settings;
use whittle_api::words;

/// Arguments of `whittle check`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "\
Errors go to standard error, everything else to standard output.

Examples:
  whittle check -f manifests/ --quiet --strict       (in CI or before a commit)
  whittle check -f aws-auth.yaml --node-role KarpenterNodeRole-shop
  whittle check --context prod -f new.yaml --quiet   (NodePools, EC2NodeClasses and workloads that are there, or would be)
  whittle check --values values.yaml --environment -o json

Exit code: 0 if everything is valid, 1 if something would not work (with --strict also if something is warned of), --node-role could not
be looked up or the output cannot be written, 2 if the input cannot be read, such as a file that is no YAML.")]
pub struct Args {
    /// Manifests: a file, a directory (its *.yaml, *.yml and *.json) or - for standard input; may be given more than once. With --context
    /// these objects count instead of those in the cluster
    #[arg(short, long = "filename", value_name = "MANIFESTS")]
    pub filename: Vec<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Helm values of an older installation, whose settings are shown, with those in the ConfigMaps of its controller.envFrom, if these
    /// are among the manifests
    #[arg(long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// Show the settings in the environment variables of an older installation
    #[arg(long)]
    pub environment: bool,
    /// Show whether nodes of this role may join, according to the aws-auth ConfigMap in the manifests, which is needed for it
    #[arg(long, value_name = "NAME")]
    pub node_role: Option<String>,
    /// Print warnings and errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// Take warnings for errors
    #[arg(long)]
    pub strict: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Checks, and prints valid objects to `out` and errors to `err`. Exit code 0 if everything is valid, 1 if something would not
/// work, 2 if the input cannot be read. `environment` are the variables to check.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(
    args: &Args,
    environment: &BTreeMap<String, String>,
    stdin: &mut dyn Read,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    let Input { located, given, empty, refused, values } = match Input::read(args, stdin) {
        Ok(input) => input,
        Err(errors) => {
            for error in errors {
                writeln!(err, "error: {}", crate::printing::without_numbers(&error.to_string()))?;
            }
            return Ok(ExitCode::from(2));
        }
    };
    let mut found = Findings::default();
    found.add(Level::Note, empty.iter().map(|file| format!("{file} has no object: nothing of it is checked")));
    found.add(Level::Error, refused);
    found.add(Level::Error, repeated(&located));
    let mut objects = Vec::new();
    for (at, object) in located.into_iter().enumerate() {
        // What a cluster has was accepted.
        let faults = if at < given { acceptance::faults(&object, acceptance::REPLICAS_MAX) } else { Vec::new() };
        if faults.is_empty() {
            objects.push(object.value);
        }
        found.add(Level::Error, faults.iter().map(ToString::to_string));
    }
    let named: BTreeSet<String> = values.iter().flat_map(|(_, text)| settings::maps_of_helm_values(text)).collect();
    let is_named = |object: &Object| map_of(object).is_some_and(|map| named.contains(&map.metadata.name));
    let (sources, objects): (Vec<Object>, Vec<Object>) = objects.into_iter().partition(is_named);
    found.objects(objects, args.node_role.as_deref());
    let maps: Vec<&ConfigMap> = sources.iter().filter_map(map_of).collect();
    for (name, text) in values {
        found.settings(&name, settings::from_helm_values(&name, &text, &maps));
    }
    if args.environment {
        found.settings("environment", settings::from_environment(environment));
    }
    if args.strict {
        found.refuse_warnings();
    }
    let printed = if args.quiet { Printed::Faults } else { Printed::All };
    match args.output {
        Output::Text => found.text(printed, out, err)?,
        Output::Json => found.json(printed, out)?,
    }
    Ok(if found.count(Level::Error) == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What is checked, but for the variables of the environment.
struct Input {
    /// The objects of the files, and then those of a cluster.
    located: Vec<Located<Object>>,
    /// How many of them are of files.
    given: usize,
    /// The names of files without an object.
    empty: Vec<String>,
    /// What is wrong with objects that cannot be checked further.
    refused: Vec<String>,
    /// Helm values, and the names of their files.
    values: Vec<(String, String)>,
}

impl Input {
    /// Reads everything that is named.
    ///
    /// # Errors
    /// All that cannot be read, or that there is nothing; objects that are refused are none.
    fn read(args: &Args, stdin: &mut dyn Read) -> Result<Self, Vec<String>> {
        let Readable { mut located, empty, mut refused, mut unreadable } = Readable::of(&args.filename, stdin);
        let live = args.cluster.live();
        if args.filename.is_empty() && live.is_none() && args.values.is_empty() && !args.environment {
            let ways = "name manifests with -f, a cluster with --context, Helm values with --values, or use --environment";
            unreadable.push(format!("there is nothing to check: {ways}"));
        }
        let given = located.len();
        match live.map(|live| live.written()) {
            Some(Ok(read)) => {
                add_live(&mut located, read.located);
                refused.extend(read.refused);
                unreadable.extend(read.unreadable);
            }
            Some(Err(error)) => unreadable.push(error.to_string()),
            None => {}
        }
        let mut values = Vec::new();
        for file in &args.values {
            match files::text(file) {
                Ok(text) => match no_values(&text) {
                    Some(fault) => unreadable.push(format!("--values {}: {fault}", files::shown(file))),
                    None => values.push((files::shown(file), text)),
                },
                Err(error) => unreadable.push(error.to_string()),
            }
        }
        let nothing = located.is_empty() && refused.is_empty() && values.is_empty() && !args.environment;
        if nothing && unreadable.is_empty() {
            unreadable.push("there is nothing to check: no file has an object".to_owned());
        }
        if unreadable.is_empty() {
            return Ok(Self { located, given, empty, refused, values });
        }
        unreadable.extend(refused);
        Err(unreadable)
    }
}

/// Group, kind and name of an object, of which an API server has only one.
fn identity(object: &Object) -> (String, String, String) {
    let (version, kind) = object.type_meta();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    // A namespaced object without a namespace is in the default one; the others have none.
    let key = object.key();
    (group.to_owned(), kind.to_owned(), key.strip_prefix("default/").map_or(key.clone(), str::to_owned))
}

/// Adds the objects of a cluster, but for those that are among the files.
fn add_live(located: &mut Vec<Located<Object>>, objects: Vec<Located<Object>>) {
    let given: BTreeSet<_> = located.iter().map(|one| identity(&one.value)).collect();
    located.extend(objects.into_iter().filter(|one| !given.contains(&identity(&one.value))));
}

/// Errors about objects that are given twice, and differently: which of them counts would depend on the order. Kinds that are not read are
/// not compared.
fn repeated(located: &[Located<Object>]) -> Vec<String> {
    let mut first: BTreeMap<_, &Located<Object>> = BTreeMap::new();
    let mut found = Vec::new();
    for one in located.iter().filter(|one| !one.value.key().is_empty()) {
        let before = *first.entry(identity(&one.value)).or_insert(one);
        if before.value != one.value {
            let place = |one: &Located<Object>| format!("{}, document {}", one.file, one.document);
            let places = match (place(before), place(one)) {
                (first, second) if first == second => format!("two items of the list in {first}, lines {} and {}", before.line, one.line),
                (first, second) => format!("in {first} and in {second}"),
            };
            let (kind, key) = (one.value.type_meta().1, one.value.key());
            found.push(format!("{kind} {key:?} is given twice, and differently: {places}; leave one of them out"));
        }
    }
    found
}

impl Findings {
    fn objects(&mut self, objects: Vec<Object>, node_role: Option<&str>) {
        let converted = legacy::convert(objects, &ConvertOptions::new(Purpose::OnRead));
        self.add(Level::Error, converted.errors.iter().map(ToString::to_string));
        self.add(Level::Note, converted.warnings.iter().map(|note| format!("{}: {}", note.object, note.text)));
        if let Some(role) = node_role.filter(|_| !converted.objects.iter().any(is_aws_auth)) {
            self.add(Level::Error, [unjudged(role)]);
        }
        let classes: Vec<Ec2NodeClass> = converted.objects.iter().filter_map(class_of).cloned().collect();
        let conflicts = overlay_conflicts(&converted.objects);
        let node_pools: Vec<&NodePool> = converted.objects.iter().filter_map(pool_of).collect();
        let without_types = pools::without_types(&node_pools, &classes);
        let mut tables = unmet::Tables::default();
        for object in &converted.objects {
            let name = format!("{} {:?}", object.type_meta().1, object.key());
            match object {
                Object::NodePool(pool) if let Some(whose) = source::others::whose(pool) => {
                    self.add(Level::Note, [format!("{whose}: it is not looked at")]);
                }
                Object::NodePool(pool) => {
                    let unmet = tables.unmet(pool);
                    self.add(Level::Note, unmet.notes.iter().map(|note| format!("{name}, {note}")));
                    let of_pool = pools::remarks(pool, &node_pools, &without_types);
                    let remarks = [unmet.warnings, of_pool, pools::without_subnet(pool, &classes)].concat();
                    self.node_pool(&name, pool, &classes, &remarks);
                }
                Object::NodeOverlay(overlay) => {
                    let conflict = conflicts.get(&overlay.metadata.name).cloned();
                    let misspelt = source::requirements::misspelt_values(overlay).map(|remark| remark.to_string());
                    self.judged(&name, object, conflict.into_iter().chain(misspelt).collect());
                }
                Object::NodeClaim(_) => self.judged(&name, object, Vec::new()),
                Object::CapacityBuffer(buffer) => self.judged(&name, object, buffers::too_large(buffer).into_iter().collect()),
                Object::NodeClass(class) => {
                    let remarks = classes::remarks(class);
                    self.add(Level::Warning, remarks.iter().map(|remark| format!("{name}, {remark}")));
                    let notes = classes::expressions(class).into_iter().chain(classes::placeholders(class));
                    self.add(Level::Note, notes.map(|note| format!("{name}, {note}")));
                    self.verdict(&name, classes::faults(class).into_iter());
                }
                Object::ConfigMap(map) => self.config_map(&name, map, node_role),
                Object::Unknown { api_version, kind, .. } => match served::warning(api_version, kind, &object.key()) {
                    Some(warning) => self.add(Level::Warning, [warning]),
                    None => self.add(Level::Note, [format!("{name} is not looked at: {kind} of {api_version}")]),
                },
                _ => {
                    let remarks = workloads::remarks(object);
                    self.add(Level::Warning, remarks.iter().map(|remark| format!("{name}, {remark}")));
                    if remarks.is_empty() {
                        self.verdict(&name, std::iter::empty());
                    }
                }
            }
        }
    }

    /// Checks a NodePool; without a finding or a remark it is fine.
    fn node_pool(&mut self, name: &str, pool: &NodePool, classes: &[Ec2NodeClass], remarks: &[String]) {
        let found = validate::runtime::node_pool(pool);
        self.add(Level::Note, found.notes.iter().map(|note| format!("{name}, {note}")));
        let missing = source::classes::dangling([pool], classes);
        let missing: Vec<String> = missing.iter().map(|missing| missing.beside(self.errors())).collect();
        self.add(Level::Warning, missing.iter().cloned());
        self.add(Level::Warning, remarks.iter().map(|remark| format!("{name}, {remark}")));
        if missing.is_empty() && remarks.is_empty() || !found.errors.is_empty() {
            self.verdict(name, found.errors.iter().map(ToString::to_string));
        }
    }

    /// An object that is judged as at runtime, and what else there is to warn of. It is fine if nothing is said of it.
    fn judged(&mut self, name: &str, object: &Object, remarks: Vec<String>) {
        let found = validate::runtime::findings(object);
        self.add(Level::Note, found.notes.iter().map(|note| format!("{name}, {note}")));
        self.add(Level::Warning, remarks.iter().map(|remark| format!("{name}, {remark}")));
        if remarks.is_empty() || !found.errors.is_empty() {
            self.verdict(name, found.errors.iter().map(ToString::to_string));
        }
    }

    fn verdict(&mut self, name: &str, faults: impl Iterator<Item = String>) {
        let before = self.count(Level::Error);
        self.add(Level::Error, faults.map(|fault| format!("{name}, {fault}")));
        if self.count(Level::Error) == before {
            self.add(Level::Fine, [format!("{name}: fine")]);
        }
    }

    fn config_map(&mut self, name: &str, map: &ConfigMap, node_role: Option<&str>) {
        if map.metadata.name == settings::CONFIG_MAP {
            self.settings(name, settings::from_config_map(map));
        } else if map.metadata.name == AWS_AUTH {
            let diagnosis = aws_auth::diagnose(map);
            let joins = if diagnosis.is_read() { "joins" } else { "would join, were the list read," };
            let mappings = diagnosis.mappings.iter();
            self.add(Level::Shown, mappings.map(|mapping| format!("{name}: {} {joins} as {}", mapping.rolearn, mapping.username)));
            if let Some(role) = node_role.filter(|role| !diagnosis.may_join(role)) {
                let role = words::printable(role);
                let fault = format!("{name}: nodes of role {role} may not join: map it to {} in mapRoles", aws_auth::NODE_USERNAME);
                self.add(Level::Error, [fault]);
            }
            self.verdict(name, diagnosis.faults.into_iter());
        } else if map.metadata.name == plan_settings::CONFIG_MAP {
            self.verdict(name, plan_settings::fault(map).into_iter());
        } else {
            self.add(Level::Note, [format!("{name} is not looked at")]);
        }
    }

    fn settings(&mut self, origin: &str, read: Result<settings::Read, Vec<settings::SettingsError>>) {
        match read {
            Ok(read) => {
                let shown = parameters::describe(&read.settings);
                self.add(Level::Shown, shown.iter().map(|setting| format!("{origin}: {setting}")));
                if read == settings::Read::default() {
                    self.add(Level::Note, [format!("{origin}: no setting is in it")]);
                }
                self.add(Level::Note, read.ignored.iter().map(|ignored| format!("{origin}: {ignored}")));
            }
            Err(errors) => self.add(Level::Error, errors.iter().map(ToString::to_string)),
        }
    }
}

/// Why a text is no values of a chart; `None` if it is.
fn no_values(text: &str) -> Option<String> {
    if !mapping::is_yaml(text) {
        let errors = settings::from_helm_values("", text, &[]).err()?;
        return errors.into_iter().next().map(|error| error.message);
    }
    let wanted = "values of a chart are a mapping, as `helm get values -o yaml` prints it";
    match mapping::other(text) {
        // So `helm get values` prints that there are none.
        Some(_) if text.trim() == "null" => None,
        Some(is) => Some(format!("the file {is}: {wanted}")),
        None if mapping::is_manifest(text) => Some(format!("the file is a manifest: name it with -f; {wanted}")),
        None => None,
    }
}

/// The ConfigMap that says which roles' nodes may join.
const AWS_AUTH: &str = "aws-auth";

fn is_aws_auth(object: &Object) -> bool {
    matches!(object, Object::ConfigMap(map) if map.metadata.name == AWS_AUTH)
}

/// The error that a role could not be looked up.
fn unjudged(role: &str) -> String {
    let role = words::printable(role);
    format!(
        "--node-role {role}: whether its nodes may join is not checked, because the ConfigMap {AWS_AUTH} is not among the manifests: add it \
         with -f, as `kubectl get configmap {AWS_AUTH} -n kube-system -o yaml` prints it; where access entries alone let nodes join, \
         `whittle doctor` looks at these"
    )
}

/// The NodeOverlays that are left aside because of others, and why.
fn overlay_conflicts(objects: &[Object]) -> BTreeMap<String, String> {
    let of_overlay = |object: &Object| match object {
        Object::NodeOverlay(overlay) => Some((**overlay).clone()),
        _ => None,
    };
    let overlays: Vec<_> = objects.iter().filter_map(of_overlay).collect();
    let pools: Vec<_> = objects.iter().filter_map(pool_of).cloned().collect();
    overlays::conflicts(&overlays, &pools)
}

fn map_of(object: &Object) -> Option<&ConfigMap> {
    match object {
        Object::ConfigMap(map) => Some(map),
        _ => None,
    }
}

fn pool_of(object: &Object) -> Option<&NodePool> {
    match object {
        Object::NodePool(pool) => Some(pool),
        _ => None,
    }
}

fn class_of(object: &Object) -> Option<&Ec2NodeClass> {
    match object {
        Object::NodeClass(class) => Some(class),
        _ => None,
    }
}
