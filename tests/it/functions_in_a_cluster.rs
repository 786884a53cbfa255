//! The functions in a cluster, as the repository states them: the groups of their access entries, and the ports that they use.

use crate::real_admission::root;
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::Function;
use whittle_cluster::Clusters;
use whittle_tests::control_plane::ControlPlane;
use whittle_tests::groups::of_roles;
use whittle_tests::kubernetes::{TestAccess, clusters_as};

/// The table of groups in `infra/README.md`, by function.
pub(crate) fn groups() -> BTreeMap<Function, BTreeSet<String>> {
    let function_of = |(role, groups): (String, BTreeSet<String>)| {
        let function = Function::ALL.into_iter().find(|function| role.to_lowercase() == format!("{function}role"));
        (function.unwrap_or_else(|| panic!("{role} is of no function")), groups)
    };
    let all: BTreeMap<_, _> = of_roles(&root()).expect("the page has the table").into_iter().map(function_of).collect();
    assert_eq!(all.len(), Function::ALL.len() - 1, "all functions but relay have an access entry: {all:?}");
    all
}

/// The ports of the cluster that a function uses, as its block `rights!` lists them.
pub(crate) fn ports(function: Function) -> BTreeSet<String> {
    let source = root().join(format!("functions/{function}/src/lib.rs"));
    let source = std::fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let block = source.split("\nrights! {\n").nth(1).and_then(|rest| rest.split("\n}").next()).expect("every function states its rights");
    let cluster = block.lines().find_map(|line| line.trim().strip_prefix("Cluster: "));
    cluster.map(|ports| ports.trim_end_matches(',').split(" + ").map(str::to_owned).collect()).unwrap_or_default()
}

/// The functions that use a port of the cluster.
pub(crate) fn holders(port: &str) -> Vec<Function> {
    let all: Vec<Function> = Function::ALL.into_iter().filter(|function| ports(*function).contains(port)).collect();
    assert!(!all.is_empty(), "no function has the port {port}");
    all
}

/// A control plane with an access entry of each function, and the rights of `infra/cluster`.
pub(crate) fn plane() -> Option<ControlPlane> {
    plane_with("kcm scheduler kwok")
}

/// The same with only these components beside the API server.
pub(crate) fn plane_with(parts: &str) -> Option<ControlPlane> {
    let entry = |(function, groups): (Function, BTreeSet<String>)| format!("{function}={}", Vec::from_iter(groups).join(","));
    let users: Vec<String> = groups().into_iter().map(entry).collect();
    let plane = ControlPlane::with_users(parts, &users.join(" "))?;
    for file in ["rbac", "guard", "flow"] {
        let path = root().join(format!("infra/cluster/{file}.yaml"));
        let applied = plane.kubectl().args(["apply", "-f"]).arg(&path).output().expect("kubectl runs");
        assert!(applied.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&applied.stderr));
    }
    Some(plane)
}

/// The adapter with the token of a function.
pub(crate) fn clusters_of(plane: &ControlPlane, function: Function) -> Clusters<TestAccess> {
    clusters_as(plane, &plane.token_of(function.name()))
}
