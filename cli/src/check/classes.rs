//! Settings of node classes that are valid, but probably not intended.

use crate::source::classes;
use serde_json::Value;
use whittle_api::field::FieldPath;
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
    if let Some(missing) = classes::without_spec(class) {
        return vec![missing.to_owned()];
    }
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

/// The fields by which a class names or selects what AWS has. User data, and the tags of machines, may hold any text.
const NAMING: [&str; 7] = [
    "role",
    "instanceProfile",
    "subnetSelectorTerms",
    "securityGroupSelectorTerms",
    "amiSelectorTerms",
    "capacityReservationSelectorTerms",
    "placementGroupSelector",
];

/// That a class still has placeholders of a template where it names or selects something: nothing in AWS is called so, and a server takes
/// the text as it is. Whoever applies the manifest may have them filled in first, so this is no warning.
pub(super) fn placeholders(class: &Ec2NodeClass) -> Option<String> {
    let spec = serde_json::to_value(&class.spec).ok()?;
    let mut found = Vec::new();
    for field in NAMING {
        if let Some(value) = spec.get(field) {
            unfilled(value, &FieldPath::of("spec").key(field), &mut found);
        }
    }
    let (field, text) = found.first()?;
    let all = if found.len() == 1 { String::new() } else { format!(", one of {} in this class", found.len()) };
    Some(format!(
        "{field}: {text:?} has a placeholder{all}: fill it in before this is applied, as with envsubst, Terraform or Flux; as it is, \
         nothing of that name is found, and no node is launched"
    ))
}

/// Adds the texts of a value that have placeholders, the keys of maps among them, with their fields.
fn unfilled(value: &Value, path: &FieldPath, found: &mut Vec<(FieldPath, String)>) {
    match value {
        Value::String(text) if has_placeholder(text) => found.push((path.clone(), text.clone())),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| unfilled(item, &path.index(index), found)),
        Value::Object(fields) => {
            for (key, field) in fields {
                let path = path.key(key);
                if has_placeholder(key) {
                    found.push((path.clone(), key.clone()));
                }
                unfilled(field, &path, found);
            }
        }
        _ => {}
    }
}

/// `${NAME}`, `$NAME`, `$(NAME)`, `<name>` or `{{ name }}`.
fn has_placeholder(text: &str) -> bool {
    let begins = |rest: &str| rest.starts_with(['{', '(']) || rest.starts_with(|first: char| first.is_ascii_uppercase());
    let has_variable = text.split('$').skip(1).any(begins);
    let is_in_angles = text.find('<').is_some_and(|at| text[at..].contains('>'));
    has_variable || is_in_angles || text.contains("{{")
}
