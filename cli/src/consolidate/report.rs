//! A disruption decision as a report.

use super::output::{CHOSEN_AT_LAUNCH, together};
use crate::money::counted;
use crate::plan::output::Costs;
use crate::report::{Report, Section};
use crate::source::remarks::{self, Remark};
use whittle_disruption::Decision;
use whittle_model::disruption::Command;

pub(super) fn report(decision: &Decision, costs: &Costs, remarks: &[Remark]) -> Report {
    let mut lead = vec![match decision.commands.len() {
        0 => "Nothing to do".to_owned(),
        commands => format!("{}: {}", counted(commands, "command"), together(decision)),
    }];
    lead.extend(costs.text().lines().map(str::to_owned));
    let nodes =
        decision.verdicts.iter().map(|verdict| vec![verdict.name().to_owned(), verdict.node_pool.clone(), verdict.reason.to_string()]);
    let header = ["Reason", "What", "Replacements", "Saves an hour"];
    let sections = [
        Section::of_table("Commands", &header, decision.commands.iter().map(command).collect()),
        Section::of_table("In shadow mode", &header, decision.shadow.iter().map(command).collect()),
        Section::of_table("Nodes", &["Node", "NodePool", "Verdict"], nodes.collect()),
    ];
    Report { title: "Consolidation".to_owned(), lead, sections: remarks::around(remarks, sections.into_iter().flatten()) }
}

fn command(command: &Command) -> Vec<String> {
    let replacements = command.replacements.iter().map(|claim| match claim.instance_types.first() {
        Some(first) => format!("{first} from nodepool {} at {}", claim.node_pool, claim.cheapest_price),
        None => format!("one from nodepool {}, {CHOSEN_AT_LAUNCH}", claim.node_pool),
    });
    let replacements = replacements.collect::<Vec<_>>().join("; ");
    let savings = command.known_savings().map_or_else(|| "not known".to_owned(), |savings| savings.to_string());
    vec![command.method.reason().to_string(), command.to_string(), replacements, savings]
}
