//! A comparison as a report.

use super::fresh::Comparison;
use super::output::{because, cells, kept, planned_afresh, sum};
use crate::report::{Report, Section};
use crate::source::remarks::{self, Remark};

pub(super) fn report(comparison: &Comparison, remarks: &[Remark]) -> Report {
    let mut lead = vec![sum(comparison)];
    let because = because(comparison);
    if !because.is_empty() {
        lead.push(planned_afresh(comparison));
        lead.extend(because);
    }
    let pools = comparison.by_pool.iter().map(|(name, row)| cells(&[name], row));
    let types = comparison.by_type.iter().map(|((name, capacity_type), row)| cells(&[name, capacity_type], row));
    let kept = kept(comparison).into_iter().map(|(why, nodes)| vec![nodes.len().to_string(), nodes.join(", "), why]);
    let sections = [
        Section::of_table("NodePools", &["NodePool", "Nodes now", "Then", "Cost now", "Then", "A month"], pools.collect()),
        Section::of_table("Types", &["Type", "Capacity", "Nodes now", "Then", "Cost now", "Then", "A month"], types.collect()),
        Section::of_table("Kept as they are", &["Nodes", "Which", "Why"], kept.collect()),
        // Prices that are made up are among them: a sum that is passed on without these says too much.
        Some(Section { title: "Not known, or not counted".to_owned(), text: comparison.caveats.clone(), ..Section::default() }),
    ];
    Report { title: "Comparison".to_owned(), lead, sections: remarks::around(remarks, sections.into_iter().flatten()) }
}
