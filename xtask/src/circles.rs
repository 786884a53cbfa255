//! Modules that use each other, directly or through others, have no order of reading: none may, in the crates listed here.
//!
//! Paths are read from the syntax tree. What only tests use does not count, nor that a module hands on names of its parts.

use crate::workspace;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::Visit;

/// Sources of crates whose circles have been opened.
const CRATES: &[&str] = &["shared/units/src/", "shared/model/src/", "shared/solver/src/", "shared/disruption/src/", "shared/checker/src/"];

/// A module by its path from the root of its crate, whose own is empty.
type Module = Vec<String>;

/// One sentence for each circle.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let files = workspace::files(root)?;
    let mut found = Vec::new();
    for folder in CRATES {
        let mut sources = BTreeMap::new();
        for name in files.iter().filter(|name| name.starts_with(folder) && name.ends_with(".rs")) {
            let text = std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"))?;
            let file = syn::parse_file(&text).with_context(|| format!("{name} cannot be parsed"))?;
            sources.insert(module_of(&name[folder.len()..]), file);
        }
        let circles = circles(&uses(&sources));
        found.extend(circles.iter().map(|circle| {
            let modules: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            format!("{folder}: these modules use each other in a circle, so that none can be read first: {}", modules.join(", "))
        }));
    }
    Ok(found)
}

/// `a/b.rs` and `a/b/mod.rs` are both `a::b`.
fn module_of(file: &str) -> Module {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Module::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// What a module names of its crate.
#[derive(Default)]
struct Names {
    /// Paths, from the root of the crate.
    paths: Vec<Module>,
    /// Names that it hands on, and where they come from.
    handed_on: BTreeMap<String, Module>,
    /// Its parts that only tests have.
    of_tests: BTreeSet<String>,
}

/// Reads the paths of one module.
struct Reader<'a> {
    module: &'a Module,
    names: Names,
}

impl Reader<'_> {
    /// A path from the root of the crate, where it begins there or here.
    fn absolute(&self, segments: &[String]) -> Option<Module> {
        let (first, mut rest) = segments.split_first()?;
        let mut at = match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => self.module.clone(),
            "super" => self.module[..self.module.len().checked_sub(1)?].to_vec(),
            _ => return None,
        };
        while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
            at.pop()?;
            rest = after;
        }
        at.extend_from_slice(rest);
        Some(at)
    }

    fn read_use(&mut self, tree: &syn::UseTree, before: &mut Vec<String>, hands_on: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.read_use(&path.tree, before, hands_on);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.read_use(tree, before, hands_on)),
            syn::UseTree::Name(name) => self.used(before, &name.ident, &name.ident, hands_on),
            syn::UseTree::Rename(rename) => self.used(before, &rename.ident, &rename.rename, hands_on),
            syn::UseTree::Glob(_) => self.names.paths.extend(self.absolute(before)),
        }
    }

    fn used(&mut self, before: &[String], name: &syn::Ident, known_as: &syn::Ident, hands_on: bool) {
        let mut segments = before.to_vec();
        segments.push(name.to_string());
        if hands_on {
            // Names of its parts need no `self`.
            let of_parts = || [self.module.as_slice(), &segments].concat();
            let origin = self.absolute(&segments).unwrap_or_else(of_parts);
            self.names.handed_on.insert(known_as.to_string(), origin);
        } else {
            self.names.paths.extend(self.absolute(&segments));
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if let syn::Item::Mod(part) = item
            && is_for_tests(&part.attrs)
        {
            self.names.of_tests.insert(part.ident.to_string());
            return;
        }
        if !is_for_tests(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let hands_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.read_use(&item.tree, &mut Vec::new(), hands_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.names.paths.extend(self.absolute(&segments));
        syn::visit::visit_path(self, path);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    };
    attributes.iter().any(is_test)
}

/// From each module to those that it uses.
fn uses(sources: &BTreeMap<Module, syn::File>) -> BTreeMap<Module, BTreeSet<Module>> {
    let read = |(module, file): (&Module, &syn::File)| {
        let mut reader = Reader { module, names: Names::default() };
        reader.visit_file(file);
        (module.clone(), reader.names)
    };
    let mut names: BTreeMap<Module, Names> = sources.iter().map(read).collect();
    let tests: Vec<Module> = names
        .iter()
        .flat_map(|(module, names)| names.of_tests.iter().map(move |part| [module.as_slice(), std::slice::from_ref(part)].concat()))
        .collect();
    names.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    let of = |module: &Module, own: &Names| {
        let used = own.paths.iter().filter_map(|path| origin(path, &names)).filter(|used| used != module).collect();
        (module.clone(), used)
    };
    names.iter().map(|(module, own)| of(module, own)).collect()
}

/// The module in which what a path names is written.
fn origin(path: &Module, names: &BTreeMap<Module, Names>) -> Option<Module> {
    let mut path = path.clone();
    // A name is handed on through few modules; more would be a circle of names.
    for _ in 0..10 {
        let length = (0..=path.len()).rev().find(|&length| names.contains_key(&path[..length]))?;
        let next = path.get(length).and_then(|name| names[&path[..length]].handed_on.get(name));
        match next {
            Some(next) => path = next.iter().chain(&path[length + 1..]).cloned().collect(),
            None => return Some(path[..length].to_vec()),
        }
    }
    None
}

/// Modules that reach each other; each circle once.
fn circles(uses: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<Module>> {
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for used in uses.get(module).into_iter().flatten() {
                if seen.insert(used) {
                    next.push(used);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = uses.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &&Module| -> BTreeSet<Module> {
        reach[*module]
            .iter()
            .filter(|other| reach.get(**other).is_some_and(|back| back.contains(*module)))
            .map(|&other| other.clone())
            .collect()
    };
    reach.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files.iter().map(|(name, text)| (module_of(name), syn::parse_file(text).expect("it is Rust"))).collect();
        circles(&uses(&sources)).iter().map(|circle| circle.iter().map(|m| m.join("::")).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_found_through_others_and_through_names_handed_on() {
        let parts = ("room/mod.rs", "mod a; mod b; mod c; pub use c::Name;");
        assert!(found(&[parts, ("room/a.rs", "use super::b::f;"), ("room/b.rs", "use super::Name;"), ("room/c.rs", "")]).is_empty());
        assert_eq!(
            found(&[
                parts,
                ("room/a.rs", "use super::b::f;"),
                ("room/b.rs", "use super::Name;"),
                ("room/c.rs", "fn f() { super::a::g() }")
            ]),
            ["room::a room::b room::c"]
        );
    }

    #[test]
    fn what_tests_use_does_not_count() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            ("a.rs", "use crate::b::f; #[cfg(test)] mod tests { use super::*; }"),
            ("b.rs", "#[cfg(test)] use crate::a::g;"),
            ("tests.rs", "use crate::a::g;"),
        ];
        assert!(found(&files).is_empty());
    }
}
