//! The groups of Kubernetes that functions have, as the table in `infra/README.md` tells users to give them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// By the role's name in the template, as in `ScheduleRole`; `root` is that of the repository.
///
/// # Errors
///
/// The page cannot be read, or a row of its table has not two columns.
pub fn of_roles(root: &Path) -> io::Result<BTreeMap<String, BTreeSet<String>>> {
    let text = std::fs::read_to_string(root.join("infra/README.md"))?;
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut all = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with('|') && line.contains("RoleArn`")) {
        let [_, roles, groups, _] = row.split('|').collect::<Vec<_>>()[..] else {
            return Err(io::Error::other(format!("infra/README.md: a row of roles and groups has two columns: {row}")));
        };
        for output in quoted(roles) {
            all.insert(output.trim_end_matches("Arn").to_owned(), quoted(groups).into_iter().collect());
        }
    }
    Ok(all)
}
