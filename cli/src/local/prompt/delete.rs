//! `delete` and `scale`.

use super::command_line::{Cascade, DeleteArgs, ScaleArgs};
use super::get::{Scope, Selector};
use super::{Prompt, apply, refused};
use crate::local::kinds::{self, KindEntry, Target};
use crate::source::files::File;

impl Prompt {
    pub(super) fn delete(&mut self, args: &DeleteArgs, namespace: Option<&str>, body: Option<String>) -> Result<String, String> {
        if args.cascade == Cascade::Orphan {
            return Err(
                "--cascade=orphan is not simulated: what owned objects would do without their owner is nothing of Whittle's".to_owned()
            );
        }
        let mut text = String::new();
        let files: Result<Vec<File>, String> = apply::read(&args.files, body).into_iter().collect();
        for file in files? {
            for message in self.session.delete_text(&file.name, &file.text).map_err(refused)? {
                text.push_str(&format!("{message}\n"));
            }
        }
        if !args.objects.is_empty() {
            for (entry, namespace, name) in self.chosen(args, namespace)? {
                self.delete_one(args, entry, &namespace, &name)?;
                let place = if namespace.is_empty() || namespace == "default" { String::new() } else { format!("{namespace}/") };
                text.push_str(&format!("{}/{place}{name} deleted\n", entry.singular()));
            }
        }
        Ok(text)
    }

    /// Kind, namespace and name of every object to delete; all of them are there.
    fn chosen(&self, args: &DeleteArgs, namespace: Option<&str>) -> Result<Vec<(&'static KindEntry, String, String)>, String> {
        let selector = args.selector.as_deref().map(Selector::parse).transpose()?;
        let scope = Scope { namespace: namespace.unwrap_or("default"), all: false, selector: selector.as_ref() };
        let world = self.session.simulation.world();
        let mut chosen = Vec::new();
        for target in kinds::targets(&args.objects)? {
            if target.name.is_none() && selector.is_none() && !args.all {
                let singular = target.entry.singular();
                return Err(format!("name what to delete, such as `delete {singular} NAME`, or add --all or -l LABELS"));
            }
            let rows = match scope.listed(&world, &target) {
                Err(_) if args.ignore_not_found => Vec::new(),
                listed => listed?,
            };
            chosen.extend(rows.into_iter().map(|row| (target.entry, row.namespace, row.name)));
        }
        Ok(chosen)
    }

    fn delete_one(&mut self, args: &DeleteArgs, entry: &KindEntry, namespace: &str, name: &str) -> Result<(), String> {
        let kind = entry.singular();
        let key = if entry.namespaced { format!("{namespace}/{name}") } else { name.to_owned() };
        let grace = if args.now { Some(1) } else { args.grace_period.filter(|seconds| 0 <= *seconds) };
        match (entry.kind, grace) {
            ("NodePool" | "Provisioner", _) if args.cascade == Cascade::Foreground => {
                self.session.delete_in_foreground(&kind, &key).map_err(refused)
            }
            ("Pod", Some(_)) => {
                let mut world = self.session.simulation.world();
                let now = world.now();
                world.cluster.delete_pod(&key, grace, now);
                world.touch_cluster();
                Ok(())
            }
            _ => self.session.delete(&kind, &key).map_err(refused),
        }
    }

    pub(super) fn scale(&mut self, args: &ScaleArgs, namespace: Option<&str>) -> Result<String, String> {
        let number = &args.replicas;
        let replicas: i32 = number.parse().map_err(|_| format!("{number:?} is no number of replicas: write one such as 5"))?;
        let namespace = namespace.unwrap_or("default");
        let mut text = String::new();
        for target in deployments(&args.objects)? {
            let name = target.name.clone().ok_or("name the deployment: `scale deployment NAME --replicas 5`")?;
            self.session.scale(&target.key(&name, namespace), replicas).map_err(refused)?;
            text.push_str(&format!("deployment/{name} scaled\n"));
        }
        Ok(text)
    }
}

/// The Deployments that words name. A single word, or `namespace/name`, is the name of one.
pub(super) fn deployments(words: &[String]) -> Result<Vec<Target>, String> {
    let deployment = kinds::find("deployment")?;
    let bare = |word: &str| word.split_once('/').map_or(words.len() == 1, |(kind, _)| kinds::find(kind).is_err());
    let words: Vec<String> = match words {
        [word] if bare(word) && kinds::find(word).is_err() => vec![format!("deployment/{word}")],
        words => words.to_vec(),
    };
    let targets = kinds::targets(&words)?;
    match targets.iter().find(|target| target.entry.kind != deployment.kind) {
        Some(other) => Err(format!("{} have no pods here: name a deployment", other.entry.plural)),
        None => Ok(targets),
    }
}
