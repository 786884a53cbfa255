//! The bill of materials: every crate that is compiled into an artefact, in the format CycloneDX 1.5.

use crate::{environment, shell, template};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The part of `cargo metadata` that is needed here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    /// Absent for packages of the workspace.
    source: Option<String>,
    license: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// Absent for what is compiled in; `dev` or `build` otherwise.
    kind: Option<String>,
}

/// Cargo's lock file, for the checksums.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The bill for these packages with their features, on these targets.
pub(super) fn bill(root: &Path, packages: &[String], features: &str, targets: &[&str]) -> Result<Value> {
    let mut graph = Graph::default();
    for target in targets {
        let arguments = ["metadata", "--format-version", "1", "--locked", "--features", features, "--filter-platform", target];
        let printed = shell::read(shell::command(root, "cargo", &arguments))?;
        graph.add(serde_json::from_str(&printed).context("the output of `cargo metadata` has an unknown shape")?, packages);
    }
    let lock: Lock = toml::from_str(&std::fs::read_to_string(root.join("Cargo.lock"))?).context("Cargo.lock has an unknown shape")?;
    let checksums = lock.package.into_iter().filter_map(|one| Some(((one.name, one.version), one.checksum?))).collect();
    Ok(graph.document(packages, &checksums, env!("CARGO_PKG_VERSION")))
}

/// Has the schema's own validator judge a document in a file.
pub(super) fn validate(root: &Path, file: &Path) -> Result<()> {
    let python = environment::materials(root)?;
    shell::run(template::tool(root, &python, "python", &["tests/python/materials.py", &file.to_string_lossy()]))
}

/// The packages that are compiled in, with what each uses.
#[derive(Default)]
struct Graph {
    packages: BTreeMap<String, Package>,
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Adds everything that the named packages are compiled from.
    fn add(&mut self, metadata: Metadata, roots: &[String]) {
        let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let is_root = |package: &&Package| package.source.is_none() && roots.contains(&package.name);
        let mut waiting: Vec<&str> = metadata.packages.iter().filter(is_root).map(|package| package.id.as_str()).collect();
        let mut seen: BTreeSet<&str> = waiting.iter().copied().collect();
        while let Some(id) = waiting.pop() {
            let uses = self.uses.entry(id.to_owned()).or_default();
            let dependencies = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
            for one in dependencies.iter().filter(|one| one.dep_kinds.iter().any(|kind| kind.kind.is_none())) {
                uses.insert(one.pkg.clone());
                if seen.insert(&one.pkg) {
                    waiting.push(&one.pkg);
                }
            }
        }
        let seen: BTreeSet<String> = seen.into_iter().map(str::to_owned).collect();
        self.packages.extend(metadata.packages.into_iter().filter(|one| seen.contains(&one.id)).map(|one| (one.id.clone(), one)));
    }

    /// The document; it has no time and no random number, so that equal sources give equal bytes.
    fn document(&self, roots: &[String], checksums: &BTreeMap<(String, String), String>, version: &str) -> Value {
        let reference = |id: &str| self.packages.get(id).map_or_else(|| id.to_owned(), Package::reference);
        let mut sorted: Vec<&Package> = self.packages.values().collect();
        sorted.sort_by_key(|package| package.reference());
        let is_root = |package: &Package| package.source.is_none() && roots.contains(&package.name);
        let components: Vec<Value> = sorted.iter().map(|package| component(package, is_root(package), checksums)).collect();
        let whole = format!("whittle@{version}");
        let artefacts = sorted.iter().filter(|package| is_root(package)).map(|package| package.reference()).collect::<Vec<_>>();
        let mut dependencies = vec![json!({"ref": whole, "dependsOn": artefacts})];
        dependencies.extend(sorted.iter().map(|package| {
            let uses: BTreeSet<String> = self.uses.get(&package.id).into_iter().flatten().map(|id| reference(id)).collect();
            json!({"ref": package.reference(), "dependsOn": uses})
        }));
        json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": whole,
                    "name": "whittle",
                    "version": version,
                    "licenses": [{"expression": "Apache-2.0"}],
                },
            },
            "components": components,
            "dependencies": dependencies,
        })
    }
}

impl Package {
    /// The name within the document: for crates of the registry the name that they have everywhere.
    fn reference(&self) -> String {
        let Self { name, version, .. } = self;
        // A version may have a plus sign, which is a space in a package URL.
        if self.source.is_some() { format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")) } else { format!("{name}@{version}") }
    }
}

fn component(package: &Package, is_artefact: bool, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut value = json!({
        "type": if is_artefact { "application" } else { "library" },
        "bom-ref": package.reference(),
        "name": package.name,
        "version": package.version,
    });
    if let Some(license) = &package.license {
        value["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if package.source.is_some() {
        value["purl"] = package.reference().into();
        if let Some(checksum) = checksums.get(&(package.name.clone(), package.version.clone())) {
            value["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn a_bill_has_what_is_compiled_in_and_nothing_else() {
        let dependency = |id: &str, kind: Option<&str>| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let package =
            |id: &str, source: Option<&str>| json!({"id": id, "name": id, "version": "1.0.0+x", "source": source, "license": "MIT/Zlib"});
        let metadata = json!({
            "packages": [package("command", None), package("used", Some("r")), package("below", Some("r")), package("tests", Some("r")),
                package("unused", Some("r"))],
            "resolve": {"nodes": [
                {"id": "command", "deps": [dependency("used", None), dependency("tests", Some("dev"))]},
                {"id": "used", "deps": [dependency("below", None), dependency("unused", Some("build"))]},
                {"id": "below", "deps": []}, {"id": "tests", "deps": []}, {"id": "unused", "deps": []},
            ]},
        });
        let mut graph = Graph::default();
        let roots = ["command".to_owned()];
        graph.add(serde_json::from_value(metadata).expect("it has the shape"), &roots);
        let checksums = BTreeMap::from([(("below".to_owned(), "1.0.0+x".to_owned()), "ab".repeat(32))]);
        let bill = graph.document(&roots, &checksums, "2.0.0");
        let names: Vec<&str> = bill["components"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["command", "below", "used"]);
        assert_eq!(bill["components"][1]["purl"], "pkg:cargo/below@1.0.0%2Bx");
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "ab".repeat(32));
        assert_eq!(bill["components"][2]["licenses"][0]["expression"], "MIT OR Zlib");
        assert_eq!(bill["dependencies"][0], json!({"ref": "whittle@2.0.0", "dependsOn": ["command@1.0.0+x"]}));
        assert_eq!(bill["dependencies"][1]["dependsOn"], json!(["pkg:cargo/used@1.0.0%2Bx"]));
    }

    #[test]
    fn every_crate_of_the_registry_has_its_checksum_and_licence() {
        let packages = ["whittle-relay".to_owned(), "whittle-cli".to_owned()];
        let bill = bill(&workspace::root(), &packages, "whittle-relay/lambda", &["x86_64-unknown-linux-gnu"]).expect("it is made");
        let components = bill["components"].as_array().expect("a list");
        let of_registry: Vec<&Value> = components.iter().filter(|one| one["purl"].is_string()).collect();
        assert!(of_registry.iter().all(|one| one["hashes"][0]["content"].as_str().is_some_and(|hash| hash.len() == 64)));
        assert!(components.iter().all(|one| one["licenses"][0]["expression"].is_string()));
        let has = |name: &str| components.iter().any(|one| one["name"] == name);
        assert!(has("aws-sdk-sqs") && has("clap") && has("whittle-solver") && !has("proptest") && !has("xtask"));
    }
}
