//! `annotate`, `label`, `taint`, `cordon` and `uncordon`: what users change of objects without a manifest.

use super::command_line::ChangeArgs;
use super::delete::{Choice, Chosen};
use super::{Prompt, refused};
use crate::local::kinds::{self, Target};
use crate::local::session::SessionError;
use std::collections::BTreeMap;
use whittle_api::ObjectMeta;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::runtime::{KEY_FORM, LABEL_VALUE_FORM, is_label_value, is_qualified_name};

/// What becomes of one key: its value, or nothing.
type Pair = (String, Option<String>);

/// The annotations of an object, or its labels.
type Map = fn(&mut ObjectMeta) -> &mut BTreeMap<String, String>;

impl Prompt {
    pub(super) fn annotate(&mut self, args: &ChangeArgs, namespace: Option<&str>) -> Result<String, String> {
        let (objects, pairs) = pairs(&args.words, |key, _| {
            // Capital letters in the domain of an annotation do no harm.
            let fine = is_qualified_name(&key.to_lowercase());
            if fine { Ok(()) } else { Err(format!("{key:?} is no annotation key: write {KEY_FORM}")) }
        })?;
        self.change(&Choice::of("annotate", args, &objects, namespace), &pairs, args.overwrite, |meta| &mut meta.annotations, "annotated")
    }

    pub(super) fn label(&mut self, args: &ChangeArgs, namespace: Option<&str>) -> Result<String, String> {
        let (objects, pairs) = pairs(&args.words, |key, value| {
            if !is_qualified_name(key) {
                return Err(format!("{key:?} is no label key: write {KEY_FORM}"));
            }
            let fine = value.is_none_or(is_label_value);
            if fine { Ok(()) } else { Err(format!("{:?} is no label value: write {LABEL_VALUE_FORM}", value.unwrap_or_default())) }
        })?;
        let word = if pairs.iter().all(|(_, value)| value.is_none()) { "unlabeled" } else { "labeled" };
        self.change(&Choice::of("label", args, &objects, namespace), &pairs, args.overwrite, |meta| &mut meta.labels, word)
    }

    /// Changes every chosen object, or none if one has another value already.
    fn change(&mut self, choice: &Choice<'_>, pairs: &[Pair], overwrite: bool, map: Map, word: &str) -> Result<String, String> {
        let mut errors = Vec::new();
        let mut wanted: Vec<(Chosen, ObjectMeta)> = Vec::new();
        for one in self.chosen(choice)? {
            let mut meta = self.metadata(&one)?;
            let before = map(&mut meta).clone();
            let other = |(key, value): &&Pair| value.is_some() && before.get(key).is_some_and(|known| Some(known) != value.as_ref());
            if let Some((key, _)) = pairs.iter().find(other).filter(|_| !overwrite) {
                errors.push(format!("{} has {key}={} already: add --overwrite to replace it", one.shown, before[key]));
            }
            wanted.push((one, meta));
        }
        if !errors.is_empty() {
            return Err(errors.join("\n"));
        }
        let apply = |meta: &mut ObjectMeta| {
            for (key, value) in pairs {
                match value {
                    Some(value) => map(meta).insert(key.clone(), value.clone()),
                    None => map(meta).remove(key),
                };
            }
        };
        let mut text = String::new();
        for (one, before) in wanted {
            let mut after = before.clone();
            apply(&mut after);
            self.relabel(&one, &apply)?;
            text.push_str(&format!("{} {}\n", one.shown, if after == before { "unchanged" } else { word }));
        }
        self.session.simulation.world().touch_cluster();
        Ok(text)
    }

    /// The metadata of an object.
    fn metadata(&self, one: &Chosen) -> Result<ObjectMeta, String> {
        let found = std::cell::RefCell::new(ObjectMeta::default());
        self.relabel(one, &|meta| found.borrow_mut().clone_from(meta))?;
        Ok(found.into_inner())
    }

    fn relabel(&self, one: &Chosen, change: &dyn Fn(&mut ObjectMeta)) -> Result<(), String> {
        let Some(relabel) = one.entry.access.and_then(|access| access.relabel) else {
            return Err(format!("{} are not changed in place: change the manifest and `apply` it again", one.entry.plural));
        };
        relabel(&mut self.session.simulation.world().cluster, &one.key, change).map_err(|error| refused(SessionError::from(error)))
    }

    pub(super) fn taint(&mut self, args: &ChangeArgs) -> Result<String, String> {
        let (changes, objects): (Vec<&String>, Vec<&String>) = args.words.iter().partition(|word| is_change(word) || word.contains(':'));
        let changes = changes.into_iter().map(|word| Tainting::parse(word)).collect::<Result<Vec<_>, _>>()?;
        if changes.is_empty() {
            return Err("say which taint, such as `taint node NAME team=a:NoSchedule`, or `taint node NAME team-` to remove it".to_owned());
        }
        let objects: Vec<String> = objects.into_iter().cloned().collect();
        let chosen = self.chosen(&Choice::of("taint", args, &objects, None))?;
        let mut changed = Vec::new();
        for one in &chosen {
            if one.entry.kind != "Node" {
                return Err(format!("{} have no taints: name a node", one.entry.plural));
            }
            let taints = self.session.simulation.world().cluster.objects.nodes.get(&one.key).map(|node| node.spec.taints.clone());
            let taints = changes.iter().try_fold(taints.unwrap_or_default(), |taints, change| change.of(taints, args.overwrite));
            changed.push(taints.map_err(|problem| format!("{}: {problem}", one.shown))?);
        }
        let word = if changes.iter().all(|change| matches!(change, Tainting::Remove { .. })) { "untainted" } else { "tainted" };
        let mut world = self.session.simulation.world();
        let mut text = String::new();
        for (one, taints) in chosen.iter().zip(changed) {
            world.cluster.objects.change::<Node>(&one.key, |node| node.spec.taints = taints);
            text.push_str(&format!("{} {word}\n", one.shown));
        }
        world.touch_cluster();
        Ok(text)
    }

    /// Closes nodes to new pods, or opens them.
    pub(super) fn cordon(&mut self, words: &[String], closed: bool) -> Result<String, String> {
        let entry = kinds::find("node")?;
        let bare = |word: &String| word.strip_prefix("node/").or_else(|| word.strip_prefix("nodes/")).unwrap_or(word).to_owned();
        let nodes: Vec<Target> = words.iter().map(|word| Target { entry, namespace: None, name: Some(bare(word)) }).collect();
        let mut world = self.session.simulation.world();
        let scope = super::get::Scope { namespace: "default", all: false, selector: None };
        for node in &nodes {
            scope.listed(&world, node)?;
        }
        let word = if closed { "cordoned" } else { "uncordoned" };
        let mut text = String::new();
        for name in nodes.into_iter().filter_map(|node| node.name) {
            let already = world.cluster.objects.nodes.get(&name).is_some_and(|node| node.spec.unschedulable == closed);
            world.cluster.objects.change::<Node>(&name, |node| node.spec.unschedulable = closed);
            text.push_str(&format!("node/{name} {}{word}\n", if already { "already " } else { "" }));
        }
        world.touch_cluster();
        Ok(text)
    }
}

impl<'a> Choice<'a> {
    fn of(verb: &'a str, args: &'a ChangeArgs, objects: &'a [String], namespace: Option<&'a str>) -> Self {
        Self { verb, objects, selector: args.selector.as_deref(), all: args.all, ignore_not_found: false, namespace }
    }
}

/// Whether a word says what to change, and names no object.
fn is_change(word: &str) -> bool {
    word.contains('=') || word.ends_with('-')
}

/// The words that name objects, and what the others change.
fn pairs(words: &[String], check: impl Fn(&str, Option<&str>) -> Result<(), String>) -> Result<(Vec<String>, Vec<Pair>), String> {
    let (changes, objects): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| is_change(word));
    if changes.is_empty() {
        return Err("say what to change: KEY=VALUE adds, and KEY- removes".to_owned());
    }
    let pair = |word: &String| {
        let (key, value) = word.split_once('=').map_or_else(|| (&word[..word.len() - 1], None), |(key, value)| (key, Some(value)));
        check(key, value)?;
        Ok::<Pair, String>((key.to_owned(), value.map(str::to_owned)))
    };
    let changes: Vec<Pair> = changes.into_iter().map(pair).collect::<Result<_, _>>()?;
    let twice = |at: usize| changes[..at].iter().any(|(key, value)| *key == changes[at].0 && *value != changes[at].1);
    if let Some(at) = (0..changes.len()).find(|at| twice(*at)) {
        return Err(format!("{:?} is changed twice, and not to the same: write it once", changes[at].0));
    }
    Ok((objects.into_iter().cloned().collect(), changes))
}

/// A change of taints.
enum Tainting {
    Add(Taint),
    Remove { key: String, effect: Option<TaintEffect> },
}

impl Tainting {
    /// `KEY=VALUE:EFFECT`, `KEY:EFFECT`, `KEY:EFFECT-` or `KEY-`.
    fn parse(word: &str) -> Result<Self, String> {
        let (text, removed) = word.strip_suffix('-').map_or((word, false), |text| (text, true));
        let (pair, effect) = text.split_once(':').map_or((text, None), |(pair, effect)| (pair, Some(effect)));
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !is_qualified_name(key) {
            return Err(format!("{key:?} is no key of a taint: write {KEY_FORM}"));
        }
        if !is_label_value(value) {
            return Err(format!("{value:?} is no value of a taint: write {LABEL_VALUE_FORM}"));
        }
        let effect = match effect {
            None => None,
            Some("NoSchedule") => Some(TaintEffect::NoSchedule),
            Some("PreferNoSchedule") => Some(TaintEffect::PreferNoSchedule),
            Some("NoExecute") if removed => Some(TaintEffect::NoExecute),
            Some("NoExecute") => {
                return Err("no pod is evicted here because of NoExecute: write NoSchedule, and delete the pods that should go".to_owned());
            }
            Some(other) => return Err(format!("{other:?} is no effect of a taint: write NoSchedule or PreferNoSchedule")),
        };
        match effect {
            effect if removed => Ok(Self::Remove { key: key.to_owned(), effect }),
            Some(effect) => Ok(Self::Add(Taint { value: value.to_owned(), ..Taint::new(key, effect) })),
            None => Err(format!("{word:?} has no effect: write {key}={value}:NoSchedule, or {key}- to remove it")),
        }
    }

    /// The taints after the change.
    fn of(&self, mut taints: Vec<Taint>, overwrite: bool) -> Result<Vec<Taint>, String> {
        match self {
            Self::Add(new) => match taints.iter_mut().find(|known| known.same(new)) {
                Some(known) if known.value != new.value && !overwrite => {
                    return Err(format!("it has {known} already: add --overwrite to replace it"));
                }
                Some(known) => known.value.clone_from(&new.value),
                None => taints.push(new.clone()),
            },
            Self::Remove { key, effect } => {
                let before = taints.len();
                taints.retain(|known| known.key != *key || effect.is_some_and(|effect| known.effect != effect));
                if taints.len() == before {
                    let effect = effect.map(|effect| format!(":{effect}")).unwrap_or_default();
                    return Err(format!("it has no taint {key}{effect}"));
                }
            }
        }
        Ok(taints)
    }
}
