//! `apply`: manifests from files, directories and the lines of the session.

use super::command_line::{ApplyArgs, DryRun};
use super::{Prompt, refused};
use crate::printing::shortened;
use crate::source::classes;
use crate::source::files::{self, File};
use crate::validate;
use std::path::{Path, PathBuf};
use whittle_api::karpenter::{Ec2NodeClass, NodePool};

impl Prompt {
    pub(super) fn apply(&mut self, args: &ApplyArgs, namespace: Option<&str>, body: Option<String>) -> Result<String, String> {
        if namespace.is_some_and(|namespace| namespace != "default") {
            return Err("manifests are applied to the namespace that they name: write it into `metadata.namespace`".to_owned());
        }
        let files = read(&args.files, body);
        let before = args.dry_run.is_dry().then(|| self.session.checkpoint());
        let applied = self.apply_now(&files, args.dry_run);
        if let Some(before) = before {
            self.session.restore(before);
        }
        applied
    }

    /// Applies files, and says what became of each object and what is missing for it.
    fn apply_now(&mut self, files: &[Result<File, String>], dry_run: DryRun) -> Result<String, String> {
        let messages = self.session.apply_files(files).map_err(refused)?;
        let is_result = |line: &str| !line.starts_with("warning: ");
        let suffix = |line: &str| if is_result(line) { dry_run.suffix() } else { "" };
        let mut text: String = messages.iter().map(|line| format!("{}{}\n", shortened(line), suffix(line))).collect();
        let world = self.session.simulation.world();
        let objects = &world.cluster.objects;
        let node_classes: Vec<Ec2NodeClass> = objects.node_classes.values().cloned().collect();
        for missing in classes::dangling(objects.node_pools.values(), &node_classes) {
            text.push_str(&format!("warning: {missing}\n"));
        }
        for pool in objects.node_pools.values() {
            for fault in validate::runtime::schedules(pool) {
                text.push_str(&format!("warning: NodePool {:?}, {fault}\n", NodePool::given_name(&pool.metadata.name)));
            }
        }
        Ok(text)
    }
}

/// The texts of files and directories, and of the lines that were entered for `-`, or why one cannot be read.
pub(super) fn read(paths: &[PathBuf], body: Option<String>) -> Vec<Result<File, String>> {
    if let Err(error) = files::only_one_stdin(paths) {
        return vec![Err(error.to_string())];
    }
    let body = body.unwrap_or_default();
    let mut read = Vec::new();
    for path in paths {
        if path.to_str().is_some_and(|path| path.contains("://")) {
            read.push(Err(format!("{}: nothing is fetched here: download it and name the file", files::shown(path))));
            continue;
        }
        let files = files::read_each(&at_home(path), &mut body.as_bytes());
        read.extend(files.into_iter().map(|file| file.map_err(|error| error.to_string())));
    }
    read
}

/// `~/x` as a shell would pass it on.
fn at_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}
