//! Finds modules that depend on each other in a cycle, which leaves them without an order of reading. The crates listed here may have
//! none.
//!
//! Paths are read from the syntax tree. Uses in tests and re-exports of a module's own submodules do not count.

use crate::workspace;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::Visit;

/// Sources of the crates that are checked.
const CRATES: &[&str] = &["shared/units/src/", "shared/model/src/", "shared/solver/src/", "shared/disruption/src/", "shared/checker/src/"];

/// The path of a module from the root of its crate; empty for the root.
type Module = Vec<String>;

/// One sentence for each cycle.
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

/// The names of its crate that a module uses.
#[derive(Default)]
struct Names {
    /// Paths, from the root of the crate.
    paths: Vec<Module>,
    /// Names that it re-exports, with their paths.
    reexports: BTreeMap<String, Module>,
    /// Its submodules that exist only in tests.
    test_modules: BTreeSet<String>,
}

/// Collects the paths of one module.
struct Reader<'a> {
    module: &'a Module,
    names: Names,
}

impl Reader<'_> {
    /// The path from the root of the crate; `None` for a path to another crate.
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

    fn read_use(&mut self, tree: &syn::UseTree, before: &mut Vec<String>, is_reexport: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.read_use(&path.tree, before, is_reexport);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.read_use(tree, before, is_reexport)),
            syn::UseTree::Name(name) => self.used(before, &name.ident, &name.ident, is_reexport),
            syn::UseTree::Rename(rename) => self.used(before, &rename.ident, &rename.rename, is_reexport),
            syn::UseTree::Glob(_) => self.names.paths.extend(self.absolute(before)),
        }
    }

    fn used(&mut self, before: &[String], name: &syn::Ident, known_as: &syn::Ident, is_reexport: bool) {
        let mut segments = before.to_vec();
        segments.push(name.to_string());
        if is_reexport {
            // Paths to its submodules need no `self`.
            let of_parts = || [self.module.as_slice(), &segments].concat();
            let origin = self.absolute(&segments).unwrap_or_else(of_parts);
            self.names.reexports.insert(known_as.to_string(), origin);
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
            self.names.test_modules.insert(part.ident.to_string());
            return;
        }
        if !is_for_tests(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_reexport = !matches!(item.vis, syn::Visibility::Inherited);
        self.read_use(&item.tree, &mut Vec::new(), is_reexport);
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

/// The modules that each module uses.
fn uses(sources: &BTreeMap<Module, syn::File>) -> BTreeMap<Module, BTreeSet<Module>> {
    let read = |(module, file): (&Module, &syn::File)| {
        let mut reader = Reader { module, names: Names::default() };
        reader.visit_file(file);
        (module.clone(), reader.names)
    };
    let mut names: BTreeMap<Module, Names> = sources.iter().map(read).collect();
    let tests: Vec<Module> = names
        .iter()
        .flat_map(|(module, names)| names.test_modules.iter().map(move |part| [module.as_slice(), std::slice::from_ref(part)].concat()))
        .collect();
    names.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    let of = |module: &Module, own: &Names| {
        let used = own.paths.iter().filter_map(|path| origin(path, &names)).filter(|used| used != module).collect();
        (module.clone(), used)
    };
    names.iter().map(|(module, own)| of(module, own)).collect()
}

/// The module that defines the item of a path.
fn origin(path: &Module, names: &BTreeMap<Module, Names>) -> Option<Module> {
    let mut path = path.clone();
    // Re-exports have few steps; more would be a cycle.
    for _ in 0..10 {
        let length = (0..=path.len()).rev().find(|&length| names.contains_key(&path[..length]))?;
        let next = path.get(length).and_then(|name| names[&path[..length]].reexports.get(name));
        match next {
            Some(next) => path = next.iter().chain(&path[length + 1..]).cloned().collect(),
            None => return Some(path[..length].to_vec()),
        }
    }
    None
}

/// Groups of modules that reach each other.
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
    fn cycles_are_found_through_other_modules_and_reexports() {
        let parts = ("parts/mod.rs", "mod a; mod b; mod c; pub use c::Name;");
        assert!(found(&[parts, ("parts/a.rs", "use super::b::f;"), ("parts/b.rs", "use super::Name;"), ("parts/c.rs", "")]).is_empty());
        assert_eq!(
            found(&[
                parts,
                ("parts/a.rs", "use super::b::f;"),
                ("parts/b.rs", "use super::Name;"),
                ("parts/c.rs", "fn f() { super::a::g() }")
            ]),
            ["parts::a parts::b parts::c"]
        );
    }

    #[test]
    fn uses_in_tests_do_not_count() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            ("a.rs", "use crate::b::f; #[cfg(test)] mod tests { use super::*; }"),
            ("b.rs", "#[cfg(test)] use crate::a::g;"),
            ("tests.rs", "use crate::a::g;"),
        ];
        assert!(found(&files).is_empty());
    }
}
