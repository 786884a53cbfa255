//! What in node classes is valid, and hardly meant.

use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::runtime;
use whittle_ec2::instance_types::Settings;
use whittle_ec2::kubelet::{Expressions, Kubelet};
use whittle_ec2::node_class;

/// The digits of an account id.
const ACCOUNT_DIGITS: usize = 12;

/// Remarks about a node class, each of which a user should act on.
pub(super) fn remarks(class: &Ec2NodeClass) -> Vec<String> {
    let number = |owner: &&String| !owner.is_empty() && owner.chars().all(|letter| letter.is_ascii_digit());
    let terms = class.spec.ami_selector_terms.iter().enumerate();
    let owners = terms.filter_map(|(at, term)| Some((at, term.owner.as_ref().filter(number)?)));
    let odd = owners.filter(|(_, owner)| owner.len() != ACCOUNT_DIGITS);
    let text = |(at, owner): (usize, &String)| {
        format!(
            "spec.amiSelectorTerms[{at}].owner: {owner:?} has {} digits and an account id {ACCOUNT_DIGITS}, so it selects no image: \
             write all digits, leading zeros too",
            owner.len()
        )
    };
    odd.map(text).chain(node_class::remarks(class)).collect()
}

/// Why no node of a class is launched, whatever is found for it in EC2: what an API server accepts all the same.
pub(super) fn faults(class: &Ec2NodeClass) -> Vec<String> {
    let violations: Vec<String> = runtime::kubelet_violations(class.spec.kubelet.as_ref()).iter().map(ToString::to_string).collect();
    if !violations.is_empty() {
        return violations;
    }
    node_class::refusal(class, &Settings { expressions: Expressions::Evaluated, ..Settings::standard() }).into_iter().collect()
}

/// That expressions of a class count only where they are switched on.
pub(super) fn expressions(class: &Ec2NodeClass) -> Option<String> {
    let kubelet = Kubelet::parse(class.spec.kubelet.as_ref()).ok()?;
    let first = kubelet.expressions().first()?.field.clone();
    Some(format!("spec.kubelet.{first} holds an expression: nodes are launched only if the stack's parameter NodeClassExpressions is true"))
}
