//! `whittle check`: validates manifests and settings without a cluster.

mod classes;
#[cfg(test)]
mod tests;
mod workloads;

use crate::source::{self, acceptance, files};
use crate::validate;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use whittle_api::k8s::ConfigMap;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::legacy::{self, ConvertOptions, Purpose};
use whittle_api::manifest::Object;
use whittle_api::settings::{self, GlobalSettings};
use whittle_api::{aws_auth, runtime};

/// Arguments of `whittle check`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit code: 0 if everything is valid, 1 if something would not work, 2 if the input cannot be read.")]
pub struct Args {
    /// Manifests: a file, a directory (its *.yaml and *.yml), or - for standard input
    #[arg(short, long = "filename")]
    pub filename: Vec<PathBuf>,
    /// Helm values of an older installation, whose settings are shown
    #[arg(long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// Show the settings in the environment variables of an older installation
    #[arg(long)]
    pub environment: bool,
    /// Show whether nodes of this role may join, according to the aws-auth ConfigMap in the manifests
    #[arg(long, value_name = "NAME")]
    pub node_role: Option<String>,
}

/// The result of a check: lines to print, errors among them.
#[derive(Default)]
struct Findings {
    lines: Vec<String>,
    faults: Vec<String>,
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
    let mut found = Findings::default();
    let located = match files::objects(&args.filename, stdin) {
        Ok(located) => located,
        Err(errors) => {
            for error in errors {
                writeln!(err, "error: {error}")?;
            }
            return Ok(ExitCode::from(2));
        }
    };
    let mut objects = Vec::new();
    for object in located {
        let faults = acceptance::faults(&object, acceptance::REPLICAS_MAX);
        if faults.is_empty() {
            objects.push(object.value);
        }
        found.faults.extend(faults.iter().map(ToString::to_string));
    }
    found.objects(objects, args.node_role.as_deref());
    for file in &args.values {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => found.settings(&name, settings::from_helm_values(&name, &text)),
            Err(error) => found.faults.push(format!("{name}: cannot be read: {error}")),
        }
    }
    if args.environment {
        found.settings("environment", settings::from_environment(environment));
    }
    for line in &found.lines {
        writeln!(out, "{line}")?;
    }
    for fault in &found.faults {
        writeln!(err, "error: {fault}")?;
    }
    Ok(if found.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Findings {
    fn objects(&mut self, objects: Vec<Object>, node_role: Option<&str>) {
        let converted = legacy::convert(objects, &ConvertOptions::new(Purpose::OnRead));
        self.faults.extend(converted.errors.iter().map(ToString::to_string));
        self.lines.extend(converted.warnings.iter().map(|note| format!("note: {}: {}", note.object, note.text)));
        let classes: Vec<Ec2NodeClass> = converted.objects.iter().filter_map(class_of).cloned().collect();
        for object in &converted.objects {
            let name = format!("{} {:?}", object.type_meta().1, object.key());
            match object {
                Object::NodePool(pool) => {
                    let found = validate::runtime::node_pool(pool);
                    self.lines.extend(found.notes.iter().map(|note| format!("note: {name}, {note}")));
                    let missing = source::classes::dangling([&**pool], &classes);
                    self.lines.extend(missing.iter().map(|missing| format!("warning: {missing}")));
                    if missing.is_empty() || !found.errors.is_empty() {
                        self.verdict(&name, found.errors.iter().map(ToString::to_string));
                    }
                }
                Object::NodeClass(class) => {
                    let remarks = classes::remarks(class);
                    self.lines.extend(remarks.iter().map(|remark| format!("warning: {name}, {remark}")));
                    self.verdict(&name, runtime::kubelet_violations(class.spec.kubelet.as_ref()).iter().map(ToString::to_string));
                }
                Object::ConfigMap(map) => self.config_map(&name, map, node_role),
                Object::Unknown { api_version, kind, .. } => {
                    self.lines.push(format!("note: {name} is not looked at: {kind} of {api_version}"))
                }
                _ => {
                    let remarks = workloads::remarks(object);
                    self.lines.extend(remarks.iter().map(|remark| format!("warning: {name}, {remark}")));
                    if remarks.is_empty() {
                        self.verdict(&name, std::iter::empty());
                    }
                }
            }
        }
    }

    fn verdict(&mut self, name: &str, faults: impl Iterator<Item = String>) {
        let before = self.faults.len();
        self.faults.extend(faults.map(|fault| format!("{name}, {fault}")));
        if self.faults.len() == before {
            self.lines.push(format!("{name}: fine"));
        }
    }

    fn config_map(&mut self, name: &str, map: &ConfigMap, node_role: Option<&str>) {
        if map.metadata.name == settings::CONFIG_MAP {
            self.settings(name, settings::from_config_map(map));
        } else if map.metadata.name == "aws-auth" {
            let diagnosis = aws_auth::diagnose(map);
            self.lines
                .extend(diagnosis.mappings.iter().map(|mapping| format!("{name}: {} joins as {}", mapping.rolearn, mapping.username)));
            if let Some(role) = node_role.filter(|role| !diagnosis.may_join(role)) {
                self.faults.push(format!("{name}: nodes of role {role} may not join: map it to {} in mapRoles", aws_auth::NODE_USERNAME));
            }
            self.verdict(name, diagnosis.faults.into_iter());
        } else {
            self.lines.push(format!("note: {name} is not looked at"));
        }
    }

    fn settings(&mut self, origin: &str, read: Result<settings::Read, Vec<settings::SettingsError>>) {
        match read {
            Ok(read) => {
                self.lines.extend(describe(&read.settings).into_iter().map(|(key, value)| format!("{origin}: {key} = {value}")));
                self.lines.extend(read.ignored.iter().map(|ignored| format!("note: {origin}: {ignored}")));
            }
            Err(errors) => self.faults.extend(errors.iter().map(ToString::to_string)),
        }
    }
}

fn class_of(object: &Object) -> Option<&Ec2NodeClass> {
    match object {
        Object::NodeClass(class) => Some(class),
        _ => None,
    }
}

/// The settings that are present, in a fixed order, by their names in the environment.
fn describe(settings: &GlobalSettings) -> Vec<(&'static str, String)> {
    let gates: Vec<String> = settings.feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
    let given = [
        ("CLUSTER_NAME", settings.cluster_name.clone()),
        ("CLUSTER_ENDPOINT", settings.cluster_endpoint.clone()),
        ("CLUSTER_CA_BUNDLE", settings.cluster_ca_bundle.clone()),
        ("INTERRUPTION_QUEUE", settings.interruption_queue.clone()),
        ("WHITTLE_DEFAULT_INSTANCE_PROFILE", settings.default_instance_profile.clone()),
        ("ISOLATED_VPC", settings.isolated_vpc.map(|on| on.to_string())),
        ("VM_MEMORY_OVERHEAD_PERCENT", settings.vm_memory_overhead_ppm.map(|ppm| (f64::from(ppm) / 1e6).to_string())),
        ("RESERVED_ENIS", settings.reserved_enis.map(|count| count.to_string())),
        ("BATCH_MAX_DURATION", settings.batch_max_duration.as_ref().map(ToString::to_string)),
        ("BATCH_IDLE_DURATION", settings.batch_idle_duration.as_ref().map(ToString::to_string)),
        ("FEATURE_GATES", (!gates.is_empty()).then(|| gates.join(","))),
    ];
    given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}
