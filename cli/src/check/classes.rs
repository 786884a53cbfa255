//! What in node classes is valid, and hardly meant.

use whittle_api::karpenter::Ec2NodeClass;

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
    odd.map(text).collect()
}
