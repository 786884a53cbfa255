//! `annotate`, `label`, `taint`, `cordon` and `uncordon`: what users change of objects without a manifest.

use super::command_line::ChangeArgs;
use super::delete::{Choice, Chosen};
use super::{Prompt, refused};
use crate::local::kinds::{self, Target};
use crate::local::session::SessionError;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ObjectMeta;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::runtime::{KEY_FORM, LABEL_VALUE_FORM, is_label_value, is_qualified_name};

/// What becomes of one key: its value, or nothing.
type Pair = (String, Option<String>);

/// The annotations of an object, or its labels.
type Map = fn(&mut ObjectMeta) -> &mut BTreeMap<String, String>;

/// What becomes of another value that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherValue {
    /// It stays, and the command is refused.
    Stays,
    IsOverwritten,
}

impl OtherValue {
    fn of(args: &ChangeArgs) -> Self {
        if args.overwrite { Self::IsOverwritten } else { Self::Stays }
    }
}

impl Prompt {
    pub(super) fn annotate(&mut self, args: &ChangeArgs, namespace: Option<&str>) -> Result<String, String> {
        let (objects, pairs) = pairs(&args.words, |key, _| {
            // Capital letters in the domain of an annotation do no harm.
            let fine = is_qualified_name(&key.to_lowercase());
            if fine { Ok(()) } else { Err(format!("{key:?} is no annotation key: write {KEY_FORM}")) }
        })?;
        let choice = Choice::of("annotate", args, &objects, namespace);
        self.change(&choice, &pairs, OtherValue::of(args), |meta| &mut meta.annotations, "annotated")
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
        self.change(&Choice::of("label", args, &objects, namespace), &pairs, OtherValue::of(args), |meta| &mut meta.labels, word)
    }

    /// Changes every chosen object, or none if one has another value already.
    fn change(&mut self, choice: &Choice<'_>, pairs: &[Pair], other: OtherValue, map: Map, word: &str) -> Result<String, String> {
        let mut errors = Vec::new();
        let mut wanted: Vec<(Chosen, ObjectMeta)> = Vec::new();
        for one in self.chosen(choice)? {
            let mut meta = self.metadata(&one)?;
            let before = map(&mut meta).clone();
            let differs = |(key, value): &&Pair| value.is_some() && before.get(key).is_some_and(|known| Some(known) != value.as_ref());
            if let Some((key, _)) = pairs.iter().find(differs).filter(|_| other == OtherValue::Stays) {
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
        once_each(&changes)?;
        let objects: Vec<String> = objects.into_iter().cloned().collect();
        let chosen = self.chosen(&Choice::of("taint", args, &objects, None))?;
        let mut changed = Vec::new();
        for one in &chosen {
            if one.entry.kind != "Node" {
                return Err(format!("{} have no taints: name a node", one.entry.plural));
            }
            let taints = self.session.simulation.world().cluster.objects.nodes.get(&one.key).map(|node| node.spec.taints.clone());
            let taints = changed_taints(taints.unwrap_or_default(), &changes, OtherValue::of(args));
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

    /// Closes nodes to new pods.
    pub(super) fn cordon(&mut self, nodes: &[String]) -> Result<String, String> {
        self.set_unschedulable(nodes, true)
    }

    /// Opens them again.
    pub(super) fn uncordon(&mut self, nodes: &[String]) -> Result<String, String> {
        self.set_unschedulable(nodes, false)
    }

    fn set_unschedulable(&mut self, words: &[String], closed: bool) -> Result<String, String> {
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
    let mut first = BTreeMap::new();
    if let Some((key, _)) = changes.iter().find(|(key, value)| *first.entry(key).or_insert(value) != value) {
        return Err(format!("{key:?} is changed twice, and not to the same: write it once"));
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
}

/// Two taints of one key and effect cannot both be added, even with one value.
fn once_each(changes: &[Tainting]) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for change in changes {
        if let Tainting::Add(taint) = change
            && !known.insert((&taint.key, taint.effect))
        {
            return Err(format!("duplicate key and effect {}:{} in one command: write the taint once", taint.key, taint.effect));
        }
    }
    Ok(())
}

/// The taints of a node after all changes.
fn changed_taints(taints: Vec<Taint>, changes: &[Tainting], other: OtherValue) -> Result<Vec<Taint>, String> {
    let mut taints: Vec<Option<Taint>> = taints.into_iter().map(Some).collect();
    // Where the taints of a key are: there may be as many keys as changes.
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, taint) in taints.iter().enumerate() {
        taint.iter().for_each(|taint| places.entry(taint.key.clone()).or_default().push(at));
    }
    for change in changes {
        match change {
            Tainting::Add(new) => {
                let places = places.entry(new.key.clone()).or_default();
                let same = places.iter().copied().find(|at| taints[*at].as_ref().is_some_and(|known| known.same(new)));
                match same.and_then(|at| taints[at].as_mut()) {
                    Some(known) if known.value != new.value && other == OtherValue::Stays => {
                        return Err(format!("it has {known} already: add --overwrite to replace it"));
                    }
                    Some(known) => known.value.clone_from(&new.value),
                    None => {
                        places.push(taints.len());
                        taints.push(Some(new.clone()));
                    }
                }
            }
            Tainting::Remove { key, effect } => {
                let doomed = |taint: &Option<Taint>| taint.as_ref().is_some_and(|known| effect.is_none_or(|effect| known.effect == effect));
                let found: Vec<usize> = places.get(key).into_iter().flatten().copied().filter(|at| doomed(&taints[*at])).collect();
                if found.is_empty() {
                    let effect = effect.map(|effect| format!(":{effect}")).unwrap_or_default();
                    return Err(format!("it has no taint {key}{effect}"));
                }
                found.into_iter().for_each(|at| taints[at] = None);
            }
        }
    }
    Ok(taints.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::OtherValue::{IsOverwritten, Stays};
    use super::*;
    use std::time::{Duration, Instant};

    /// A fifth of them took seconds when each was compared with all others.
    #[test]
    fn a_hundred_thousand_changes_are_read_at_once() {
        let started = Instant::now();
        let words: Vec<String> = ["node", "x"].map(str::to_owned).into_iter().chain((0..100_000).map(|n| format!("k{n}=b"))).collect();
        let (objects, found) = pairs(&words, |_, _| Ok(())).unwrap();
        assert_eq!((objects.len(), found.len()), (2, 100_000));
        let same: Vec<String> = vec!["a=b".to_owned(); 100_000];
        assert_eq!(pairs(&same, |_, _| Ok(())).unwrap().1.len(), 100_000);
        let add: Vec<Tainting> = (0..100_000).map(|n| Tainting::parse(&format!("k{n}=b:NoSchedule")).unwrap()).collect();
        once_each(&add).unwrap();
        let taints = changed_taints(Vec::new(), &add, Stays).unwrap();
        let remove: Vec<Tainting> = (0..100_000).map(|n| Tainting::parse(&format!("k{n}-")).unwrap()).collect();
        assert_eq!((taints.len(), changed_taints(taints, &remove, Stays)), (100_000, Ok(Vec::new())));
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }

    #[test]
    fn a_key_is_changed_to_one_value_alone() {
        let found = |words: &[&str]| pairs(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), |_, _| Ok(()));
        assert_eq!(found(&["a=b", "c=d", "a=b"]).unwrap().1.len(), 3, "the same twice does no harm");
        for words in [["a=b", "c=d", "a=c"], ["a=b", "c=d", "a-"], ["a-", "c=d", "a=b"]] {
            assert_eq!(found(&words).unwrap_err(), "\"a\" is changed twice, and not to the same: write it once");
        }
    }

    #[test]
    fn taints_are_added_replaced_and_removed_in_their_order() {
        let changed = |before: &[&str], words: &[&str], other| {
            let parsed = |words: &[&str]| words.iter().map(|word| Tainting::parse(word).unwrap()).collect::<Vec<_>>();
            let before = changed_taints(Vec::new(), &parsed(before), Stays).unwrap();
            let taints = changed_taints(before, &parsed(words), other)?;
            Ok::<_, String>(taints.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let before = ["a=1:NoSchedule", "b=1:NoSchedule", "a=1:PreferNoSchedule"];
        assert_eq!(
            changed(&before, &["a:NoSchedule-", "c=1:NoSchedule"], Stays).unwrap(),
            ["b=1:NoSchedule", "a=1:PreferNoSchedule", "c=1:NoSchedule"]
        );
        assert_eq!(changed(&before, &["a-"], Stays).unwrap(), ["b=1:NoSchedule"]);
        assert_eq!(
            changed(&before, &["b=2:NoSchedule"], IsOverwritten).unwrap(),
            ["a=1:NoSchedule", "b=2:NoSchedule", "a=1:PreferNoSchedule"]
        );
        assert!(changed(&before, &["b=2:NoSchedule"], Stays).unwrap_err().contains("it has b=1:NoSchedule already: add --overwrite"));
        assert_eq!(changed(&before, &["a-", "a-"], Stays).unwrap_err(), "it has no taint a");
    }

    #[test]
    fn one_key_and_effect_is_added_once_in_a_command() {
        let told = |words: &[&str]| once_each(&words.iter().map(|word| Tainting::parse(word).unwrap()).collect::<Vec<_>>());
        let twice = Err("duplicate key and effect a:NoSchedule in one command: write the taint once".to_owned());
        assert_eq!(told(&["a=b:NoSchedule", "a=c:NoSchedule"]), twice);
        assert_eq!(told(&["a=b:NoSchedule", "a=b:NoSchedule"]), twice, "as kubectl");
        assert_eq!(told(&["a=b:NoSchedule", "a=c:PreferNoSchedule", "b=c:NoSchedule", "a:NoSchedule-"]), Ok(()));
    }
}
