//! `delete` and `scale`.

use super::command_line::{Cascade, DeleteArgs, ScaleArgs};
use super::get::{Scope, Selector};
use super::{Prompt, apply, refused};
use crate::local::kinds::{self, KindEntry, Target};
use crate::local::session::SessionError;
use std::collections::BTreeSet;

/// An object that a command changes or deletes.
pub(super) struct Chosen {
    pub(super) entry: &'static KindEntry,
    /// `namespace/name`, or the name of what is in no namespace.
    pub(super) key: String,
    /// How messages about the deletion name it.
    pub(super) shown: String,
}

/// How a command chooses objects.
pub(super) struct Choice<'a> {
    /// The command, for what it says if it chooses none.
    pub(super) verb: &'a str,
    pub(super) objects: &'a [String],
    pub(super) selector: Option<&'a str>,
    pub(super) all: bool,
    pub(super) ignore_not_found: bool,
    pub(super) namespace: Option<&'a str>,
}

impl Prompt {
    /// Deletes all that files and words name, once each; nothing of it if something is not there or cannot be deleted.
    pub(super) fn delete(&mut self, args: &DeleteArgs, namespace: Option<&str>, body: Option<String>) -> Result<String, String> {
        if args.cascade == Cascade::Orphan {
            return Err(
                "--cascade=orphan is not simulated: what owned objects would do without their owner is nothing of Whittle's".to_owned()
            );
        }
        let (mut doomed, mut errors) = self.in_files(args, body);
        if !args.objects.is_empty() {
            let choice = Choice {
                verb: "delete",
                objects: &args.objects,
                selector: args.selector.as_deref(),
                all: args.all,
                ignore_not_found: args.ignore_not_found,
                namespace,
            };
            self.chosen(&choice).map_or_else(|error| errors.push(error), |chosen| doomed.extend(chosen));
        }
        let mut seen = BTreeSet::new();
        doomed.retain(|one| seen.insert((one.entry.kind, one.key.clone())));
        if args.all || args.selector.is_some() {
            // What is listed, and went with something else.
            doomed.retain(|one| !matches!(self.session.can_delete(&one.entry.singular(), &one.key), Err(SessionError::Missing(_))));
            // The ReplicaSet of a Deployment goes with it.
            let deployments: BTreeSet<String> =
                doomed.iter().filter(|one| one.entry.kind == "Deployment").map(|one| one.key.clone()).collect();
            let goes = |one: &Chosen| one.key.rsplit_once('-').is_some_and(|(deployment, _)| deployments.contains(deployment));
            doomed.retain(|one| one.entry.kind != "ReplicaSet" || !goes(one));
        }
        for one in &doomed {
            errors.extend(self.session.can_delete(&one.entry.singular(), &one.key).map_err(refused).err());
        }
        if !errors.is_empty() {
            // What is wrong with a kind is the same for all its objects.
            let mut told = BTreeSet::new();
            errors.retain(|error| told.insert(error.clone()));
            return Err(errors.join("\n"));
        }
        if doomed.is_empty() {
            return Ok("No resources found\n".to_owned());
        }
        let mut text = String::new();
        for one in &doomed {
            match self.delete_one(args, one.entry, &one.key) {
                // What went with an object before it is gone as it is meant to be.
                Ok(()) | Err(SessionError::Missing(_)) => text.push_str(&format!("{} deleted\n", one.shown)),
                Err(error) => return Err(format!("{text}{error}")),
            }
        }
        if doomed.iter().any(|one| one.entry.is_of_machines()) {
            self.session.simulation.world().ring_for_deletions();
        }
        Ok(text)
    }

    /// What the files name, and what is wrong with them.
    fn in_files(&self, args: &DeleteArgs, body: Option<String>) -> (Vec<Chosen>, Vec<String>) {
        let (mut doomed, mut errors) = (Vec::new(), Vec::new());
        for file in apply::read(&args.files, body) {
            let named = file.and_then(|file| self.session.named_in(&file.name, &file.text).map_err(refused));
            for (kind, key) in named.unwrap_or_else(|error| {
                errors.push(error);
                Vec::new()
            }) {
                let shown = format!("{kind}/{key}");
                match kinds::find(&kind) {
                    Ok(entry) if entry.namespaced && !key.contains('/') => {
                        doomed.push(Chosen { entry, key: format!("default/{key}"), shown });
                    }
                    Ok(entry) => doomed.push(Chosen { entry, key, shown }),
                    Err(error) => errors.push(error),
                }
            }
        }
        (doomed, errors)
    }

    /// Every object that the words name.
    pub(super) fn chosen(&self, choice: &Choice<'_>) -> Result<Vec<Chosen>, String> {
        if choice.all && choice.selector.is_some() {
            return Err("only one of --all and --selector (-l) chooses what is meant: leave the other out".to_owned());
        }
        let selector = choice.selector.map(Selector::parse).transpose()?;
        let scope = Scope { namespace: choice.namespace.unwrap_or("default"), all: false, selector: selector.as_ref() };
        let world = self.session.simulation.world();
        let mut chosen = Vec::new();
        for target in kinds::targets(choice.objects)? {
            if target.name.is_none() && selector.is_none() && !choice.all {
                let (verb, singular) = (choice.verb, target.entry.singular());
                return Err(format!("name what to {verb}, such as `{verb} {singular} NAME`, or add --all or -l LABELS"));
            }
            let rows = match scope.listed(&world, &target) {
                Err(_) if choice.ignore_not_found => Vec::new(),
                listed => listed?,
            };
            chosen.extend(rows.into_iter().map(|row| {
                let place =
                    if row.namespace.is_empty() || row.namespace == "default" { String::new() } else { format!("{}/", row.namespace) };
                let key = if target.entry.namespaced { format!("{}/{}", row.namespace, row.name) } else { row.name.clone() };
                Chosen { entry: target.entry, key, shown: format!("{}/{place}{}", target.entry.singular(), row.name) }
            }));
        }
        Ok(chosen)
    }

    fn delete_one(&mut self, args: &DeleteArgs, entry: &KindEntry, key: &str) -> Result<(), SessionError> {
        let kind = entry.singular();
        let grace = if args.now { Some(1) } else { args.grace_period.filter(|seconds| 0 <= *seconds) };
        match (entry.kind, grace) {
            ("NodePool" | "Provisioner" | "Deployment" | "DaemonSet", _) if args.cascade == Cascade::Foreground => {
                self.session.delete_in_foreground(&kind, key)
            }
            ("Pod", Some(_)) => {
                let mut world = self.session.simulation.world();
                let now = world.now();
                world.cluster.delete_pod(key, grace, now);
                world.touch_cluster();
                Ok(())
            }
            _ => self.session.delete(&kind, key),
        }
    }

    pub(super) fn scale(&mut self, args: &ScaleArgs, namespace: Option<&str>) -> Result<String, String> {
        let number = &args.replicas;
        let replicas: i32 = number.parse().map_err(|_| format!("{number:?} is no number of replicas: write one such as 5"))?;
        let namespace = namespace.unwrap_or("default");
        let (mut scaled, mut errors) = (Vec::new(), Vec::new());
        for target in deployments(&args.objects)? {
            let name = target.name.clone().ok_or("name the deployment: `scale deployment NAME --replicas 5`")?;
            let key = target.key(&name, namespace);
            errors.extend(self.session.can_scale(&key, replicas).map_err(refused).err());
            scaled.push((key, name));
        }
        if !errors.is_empty() {
            return Err(errors.join("\n"));
        }
        let mut text = String::new();
        for (key, name) in scaled {
            self.session.scale(&key, replicas).map_err(refused)?;
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
