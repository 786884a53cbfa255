//! Checks that a function may read, write and delete exactly the kinds of items that its code accesses, according to the ports in its
//! block `rights!` and the methods of these that it calls.

use super::promises::{one_or_many, statements};
use crate::rights;
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const CLAIM: &str = "CLAIM#*";
const INSTANCE: &str = "INSTANCE#*";
const LEASE: &str = "LEASE#*";
const RECORD: &str = "RECORD#*";
const OFFERING: &str = "OFFERING";
const BUCKET: &str = "BUCKET#*";
const CATALOG: &str = "CATALOG";
const DECISION: &str = "DECISION#*";

/// The calls for reading: the adapter reads single items and whole partitions.
const READ: &[&str] = &["dynamodb:GetItem", "dynamodb:Query"];
const CHECK: &[&str] = &["dynamodb:ConditionCheckItem"];
const WRITE: &[&str] = &["dynamodb:PutItem"];
const BATCH: &[&str] = &["dynamodb:BatchWriteItem"];
const DELETE: &[&str] = &["dynamodb:DeleteItem"];

/// Rights that a function needs for a trait of the store.
struct Need {
    port: &'static str,
    /// The methods of which it calls one; none if the bound suffices.
    methods: &'static [&'static str],
    calls: &'static [&'static str],
    kinds: &'static [&'static str],
}

impl Need {
    const fn of(port: &'static str, calls: &'static [&'static str], kinds: &'static [&'static str]) -> Self {
        Self { port, methods: &[], calls, kinds }
    }

    /// Needed only by a function that calls one of these.
    const fn when_calling(self, methods: &'static [&'static str]) -> Self {
        Self { methods, ..self }
    }

    fn is_of(&self, bounds: &BTreeSet<&str>, source: &str) -> bool {
        bounds.contains(self.port) && (self.methods.is_empty() || self.methods.iter().any(|method| source.contains(method)))
    }
}

const NEEDS: &[Need] = &[
    Need::of("ClaimStore", READ, &[CLAIM, INSTANCE]),
    Need::of("ClaimStore", WRITE, &[CLAIM, INSTANCE]).when_calling(&["save(", "advance(", ".update(", ".create(", ".create_all("]),
    Need::of("Leases", READ, &[LEASE]),
    Need::of("Leases", CHECK, &[LEASE]),
    Need::of("Leases", WRITE, &[LEASE]),
    Need::of("RecordReader", READ, &[RECORD]),
    Need::of("Records", READ, &[RECORD]),
    Need::of("Records", WRITE, &[RECORD]),
    Need::of("RecordRemoval", DELETE, &[RECORD]),
    Need::of("RegionStore", READ, &[OFFERING, CATALOG]),
    Need::of("RegionStore", WRITE, &[OFFERING]).when_calling(&["put_stock_outs("]),
    Need::of("TokenBuckets", READ, &[BUCKET]),
    Need::of("TokenBuckets", WRITE, &[BUCKET]),
    Need::of("CatalogWriter", WRITE, &[CATALOG]),
    Need::of("CatalogWriter", DELETE, &[CATALOG]),
    Need::of("DecisionLog", BATCH, &[DECISION]),
    Need::of("DecisionLog", WRITE, &[DECISION]),
    Need::of("DecisionLog", READ, &[DECISION]).when_calling(&[".recent("]),
    Need::of("Erase", READ, &[CLAIM, DECISION, RECORD]),
    Need::of("Erase", DELETE, &[CLAIM, INSTANCE, DECISION, RECORD]),
];

/// A DynamoDB call on a kind of items.
type Right = (String, String);

/// One sentence for each right that a function lacks, or has and does not use.
pub(super) fn check(root: &Path, template: &Value, functions: &[&str]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for function in functions {
        let source = super::queues::source(&root.join("functions").join(function).join("src"))?;
        let allowed = allowed(template, function);
        let needed = needed(&source);
        broken.extend(needed.difference(&allowed).map(|(call, kind)| format!("{function} needs {call} on {kind}, and its role may not")));
        broken.extend(
            allowed.difference(&needed).map(|(call, kind)| format!("{function} may {call} on {kind}, and nothing in it asks for that")),
        );
    }
    Ok(broken)
}

/// The ports of the store among the function's rights.
fn bounds(source: &str) -> BTreeSet<&str> {
    rights::block(source).and_then(|mut block| block.remove("Store")).unwrap_or_default()
}

fn needed(source: &str) -> BTreeSet<Right> {
    let bounds = bounds(source);
    let needs = NEEDS.iter().filter(|need| need.is_of(&bounds, source));
    let rights = needs.flat_map(|need| need.calls.iter().flat_map(move |call| need.kinds.iter().map(move |kind| (*call, *kind))));
    rights.map(|(call, kind)| (call.to_owned(), kind.to_owned())).collect()
}

fn allowed(template: &Value, function: &str) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for statement in statements(template).iter().filter(|statement| statement.function.eq_ignore_ascii_case(function)) {
        let kinds = one_or_many(&statement.whole["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]);
        // Without the condition all kinds are allowed.
        let kinds = if kinds.is_empty() { vec!["*"] } else { kinds };
        for call in statement.actions.iter().filter(|action| action.starts_with("dynamodb:")) {
            rights.extend(kinds.iter().map(|kind| ((*call).to_owned(), (*kind).to_owned())));
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rights_follow_ports_and_calls() {
        let of = |ports: &str, code: &str| {
            let source = format!("//! Text.\n\nrights! {{\n    /// Doc.\n    {ports},\n}}\n{code}");
            needed(&source).into_iter().map(|(call, kind)| format!("{call} {kind}")).collect::<Vec<_>>()
        };
        assert_eq!(of("Store: ClaimStore", "").len(), 4);
        assert!(!of("Store: ClaimStore", "").contains(&"dynamodb:PutItem CLAIM#*".to_owned()), "who only reads claims writes none");
        assert!(of("Store: ClaimStore", "save(store)").contains(&"dynamodb:PutItem CLAIM#*".to_owned()));
        assert!(of("Store: Records + RecordRemoval", "").contains(&"dynamodb:DeleteItem RECORD#*".to_owned()));
        assert_eq!(of("Store: DecisionLog", ""), ["dynamodb:BatchWriteItem DECISION#*", "dynamodb:PutItem DECISION#*"]);
        assert_eq!(of("Cloud: Records", "take_tokens("), Vec::<String>::new());
    }

    #[test]
    fn missing_and_unused_rights_are_reported() {
        let with = |condition: Value| {
            json!({"Resources": {
                "Sweep": {"Type": "AWS::Lambda::Function", "Properties": {"Role": {"Fn::GetAtt": ["SweepRole", "Arn"]}}},
                "SweepRole": {"Properties": {"Policies": [{"PolicyDocument": {"Statement": [
                    {"Action": "dynamodb:PutItem", "Condition": condition}]}}]}}}})
        };
        let narrow = with(json!({"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["LEASE#*"]}}));
        assert_eq!(allowed(&narrow, "sweep"), BTreeSet::from([("dynamodb:PutItem".to_owned(), "LEASE#*".to_owned())]));
        assert_eq!(allowed(&with(json!({})), "sweep"), BTreeSet::from([("dynamodb:PutItem".to_owned(), "*".to_owned())]));
        assert_eq!(allowed(&narrow, "launch"), BTreeSet::new());
    }
}
