//! Generates the tables of `docs/iam.md` from the template that SAM has transformed: what each role may do, on what, and under which
//! conditions, in the words of a security review.

use crate::template::{self, TEMPLATE};
use crate::workspace;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// The page with the rights.
const PAGE: &str = "docs/iam.md";
/// The marker above the tables.
const BEGIN: &str = "<!-- roles -->\n";
/// The marker below the tables.
const END: &str = "<!-- end of roles -->";
const HEAD: &str = "| what for | | actions | on | only if |\n|---|---|---|---|---|\n";

/// What each statement is for, by its Sid.
const PURPOSES: &[(&str, &str)] = &[
    ("ChangeProfiles", "put the role of a node class into its instance profile, and delete the profile"),
    ("CheckLease", "decide for a cluster only while no other run does"),
    ("ClusterEndpoint", "find the API server and its certificate; what it may do there is RBAC's (`infra/cluster/rbac.yaml`)"),
    ("Consume", "receive the messages of its queue"),
    ("DataKey", "read and write queues and table with a key of yours"),
    ("FindProfile", "see which role an instance profile has that a node class names"),
    ("ForgetState", "delete records"),
    ("ForgetTemplates", "delete launch templates that are not used any more"),
    ("GiveUp", "keep events for which every invocation failed; Lambda sends them, not the function's code"),
    ("Images", "find AWS's images"),
    ("LaunchFrom", "start machines from images, in subnets and with what else they use"),
    ("LaunchFromTemplate", "start machines from its own launch templates"),
    ("LaunchTagged", "make machines, volumes, interfaces and launch templates, all of them tagged"),
    ("ListProfiles", "find instance profiles that it made"),
    ("LogDecisions", "write the decision log"),
    ("Logs", "write its log"),
    ("Look", "read what there is"),
    ("LookAtShifts", "see whether traffic is moved out of a zone"),
    ("MakeProfiles", "make an instance profile for a node class that names a role"),
    ("MarkMachine", "adopt a machine, hand it over or let it go"),
    ("NetworkIsLambdas", "keep the code of the function from what Lambda needs for its network"),
    ("NodeRole", "give nodes their role"),
    ("OwnImages", "find images by parameters of yours"),
    ("Prices", "read on-demand prices"),
    ("ReadState", "read the table"),
    ("Secret", "read the secret that the webhooks' paths follow from"),
    ("SecretKey", "decrypt that secret"),
    ("Send", "ring for other functions, and for itself"),
    ("TagAtLaunch", "tag what it makes, while it is made"),
    ("TagNode", "tag a machine with the names of its Node and NodeClaim"),
    ("TagProfiles", "tag the instance profiles that it makes"),
    ("Terminate", "terminate machines that Whittle launched or adopted"),
    ("Tick", "start functions once a minute, and `refresh` more rarely"),
    ("Wake", "call functions once a day that may have nothing to do for weeks"),
    ("WriteState", "write the table"),
];

/// In which deployments a statement is there, by the template's condition.
const CONDITIONS: &[(&str, &str)] = &[
    ("HasDataKey", "with the parameter `DataKey`"),
    ("HasImageParameters", "with the parameter `ImageParameters`"),
    ("HasSecretKey", "with the parameter `SecretKey`"),
    ("HasVpc", "with the parameter `VpcSubnets`"),
    ("ShiftsZones", "with the parameter `ZonalShift`"),
];

/// Writes the tables of the page.
pub(crate) fn write() -> Result<()> {
    let root = workspace::root();
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| format!("{PAGE} cannot be read"))?;
    let filled = filled(&page, &template::transformed(&root)?)?;
    std::fs::write(&path, filled).with_context(|| format!("{PAGE} cannot be written"))
}

/// A sentence if the page differs from the transformed template.
pub(crate) fn check(root: &Path, template: &Value) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("{PAGE} cannot be read"))?;
    let differs = filled(&page, template)? != page;
    Ok(Vec::from_iter(differs.then(|| format!("{PAGE}: its tables differ from {TEMPLATE}; `cargo xtask iam` regenerates them"))))
}

/// The page with regenerated tables; the rest is unchanged.
fn filled(page: &str, template: &Value) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE}: there is no line `{}`", BEGIN.trim()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE}: there is no line `{END}`"))?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", tables(template)?))
}

/// A section for each role of the template, in its order of names.
fn tables(template: &Value) -> Result<String> {
    let resources = template["Resources"].as_object().context("the template has no resources")?;
    let mut out = String::new();
    let mut used = BTreeSet::new();
    for (name, role) in resources.iter().filter(|(_, resource)| resource["Type"] == "AWS::IAM::Role") {
        let holder = name.strip_suffix("Role").unwrap_or(name);
        let does = text(&resources.get(holder).unwrap_or(&Value::Null)["Properties"]["Description"]);
        let does = if does.is_empty() { "The schedules, which start functions".to_owned() } else { does };
        out.push_str(&format!("\n## `{}`\n\n{does}.\n\n{HEAD}", holder.to_lowercase()));
        for policy in items(&role["Properties"]["Policies"]) {
            for statement in items(&policy["PolicyDocument"]["Statement"]) {
                let (statement, deployments) = within(statement)?;
                used.insert(text(&statement["Sid"]));
                out.push_str(&row(statement, deployments).with_context(|| format!("role {name}"))?);
            }
        }
    }
    out.push('\n');
    if let Some((unused, _)) = PURPOSES.iter().find(|(sid, _)| !used.contains(*sid)) {
        bail!("xtask/src/iam.rs says what {unused} is for, and no statement of {TEMPLATE} has that Sid: take it out");
    }
    Ok(out)
}

/// A statement, and in which deployments it is there.
fn within(statement: &Value) -> Result<(&Value, &'static str)> {
    let Some([condition, then, _]) = statement["Fn::If"].as_array().map(Vec::as_slice) else { return Ok((statement, "")) };
    let known = CONDITIONS.iter().find(|(name, _)| condition == name);
    let (_, words) = known.with_context(|| format!("say in xtask/src/iam.rs what the condition {condition} of {TEMPLATE} means"))?;
    Ok((then, words))
}

fn row(statement: &Value, deployments: &str) -> Result<String> {
    let sid = text(&statement["Sid"]);
    let known = PURPOSES.iter().find(|(name, _)| *name == sid);
    let (_, purpose) = known.with_context(|| format!("say in xtask/src/iam.rs what the statement {sid:?} of {TEMPLATE} is for"))?;
    let purpose = if deployments.is_empty() { (*purpose).to_owned() } else { format!("{purpose}; {deployments}") };
    let effect = if statement["Effect"] == "Deny" { "**may not**" } else { "may" };
    let actions: Vec<String> = items(&statement["Action"]).map(|action| format!("`{}`", text(action))).collect();
    let resources: Vec<String> = items(&statement["Resource"]).map(resource).collect();
    let conditions = statement["Condition"].as_object().map(conditions).unwrap_or_default();
    Ok(format!("| {purpose} | {effect} | {} | {} | {conditions} |\n", actions.join(", "), resources.join(", ")))
}

/// One value, or each of a list.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    let one = (!value.is_null() && !value.is_array()).then_some(value);
    value.as_array().into_iter().flatten().chain(one)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A resource in words where it is one of the stack's, otherwise the pattern of its ARN.
fn resource(value: &Value) -> String {
    let logical = value["Fn::GetAtt"][0].as_str();
    match logical {
        Some("Table") => "the table".to_owned(),
        Some(name) if name.ends_with("Logs") => "its log group".to_owned(),
        Some(name) => match (name.strip_suffix("Queue"), name.strip_suffix("DeadLetters")) {
            (Some(queue), _) => format!("the queue {queue}"),
            (_, Some(queue)) => format!("the dead-letter queue {queue}"),
            _ => format!("the function {name}"),
        },
        None if value == "*" => "anything".to_owned(),
        None if value["Ref"].is_string() => format!("the key of the parameter `{}`", text(&value["Ref"])),
        None => words(value),
    }
}

/// A value with placeholders for what the stack puts in.
fn words(value: &Value) -> String {
    if let Some(name) = value["Ref"].as_str() {
        return match name.strip_prefix("AWS::") {
            Some("Region") => "REGION".to_owned(),
            Some("AccountId") => "ACCOUNT".to_owned(),
            Some(other) => format!("`{other}`"),
            None => format!("those of the parameter `{name}`"),
        };
    }
    if let Some([condition, then, other]) = value["Fn::If"].as_array().map(Vec::as_slice) {
        let mut others: Vec<String> = items(other).map(words).collect();
        // Names that differ in other partitions only.
        others.dedup();
        return if condition == "MakesTable" { resource(then) } else { others.join(", ") };
    }
    if let Some(pattern) = value["Fn::Sub"].as_str() {
        return format!("`{}`", shortened(pattern));
    }
    // A list of names from a parameter, each with the same beginning.
    if let Some([start, names]) = value["Fn::Split"][1]["Fn::Join"][1].as_array().map(Vec::as_slice) {
        let name = text(&names["Fn::Join"][1]["Ref"]);
        return format!("`{}NAME` for each NAME of the parameter `{name}`", shortened(&text(start)));
    }
    let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("`{plain}`")
}

/// A pattern with short names of what differs between deployments.
fn shortened(pattern: &str) -> String {
    [("${AWS::Partition}", "aws"), ("${AWS::Region}", "REGION"), ("${AWS::AccountId}", "ACCOUNT"), ("${AWS::URLSuffix}", "amazonaws.com")]
        .iter()
        .fold(pattern.to_owned(), |text, (name, short)| text.replace(name, short))
}

/// Conditions, all of which have to hold.
fn conditions(all: &Map<String, Value>) -> String {
    let mut out = Vec::new();
    for (operator, keys) in all {
        for (key, values) in keys.as_object().into_iter().flatten() {
            let mut values: Vec<String> = items(values).map(words).collect();
            values.dedup();
            out.push(match (operator.as_str(), &values[..]) {
                ("StringLike", [any]) if any == "`*`" => format!("`{key}` is there"),
                ("StringLike", [any]) if any == "`?*`" => format!("`{key}` is there, and not empty"),
                ("StringEquals", [one]) if !one.starts_with("those") => format!("`{key}` is {one}"),
                _ => format!("`{key}` {} {}", verb(operator), values.join(", ")),
            });
        }
    }
    out.join("; ")
}

/// An operator in words.
fn verb(operator: &str) -> &str {
    match operator {
        "StringEquals" => "is one of",
        "StringLike" | "ArnLike" => "is like",
        "StringEqualsIfExists" => "is absent, or one of",
        "ForAllValues:StringEquals" => "has nothing but",
        "ForAllValues:StringLike" => "has nothing but what is like",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(statement: &Value) -> Value {
        let policies = json!([{"PolicyDocument": {"Statement": [statement]}}]);
        json!({"Resources": {
            "Launch": {"Type": "AWS::Lambda::Function", "Properties": {"Description": "Launches"}},
            "LaunchRole": {"Type": "AWS::IAM::Role", "Properties": {"Policies": policies}}
        }})
    }

    #[track_caller]
    fn check_row(statement: &Value, expected: &str) {
        let (inner, deployments) = within(statement).unwrap();
        assert_eq!(row(inner, deployments).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn a_statement_is_a_row_in_words() {
        let statement = json!({"Sid": "Terminate", "Effect": "Allow", "Action": "ec2:TerminateInstances",
            "Resource": {"Fn::Sub": "arn:${AWS::Partition}:ec2:${AWS::Region}:${AWS::AccountId}:instance/*"},
            "Condition": {"StringEquals": {"aws:ResourceTag/a": {"Ref": "Clusters"}}, "StringLike": {"aws:ResourceTag/b": "?*"}}});
        let expected = "| terminate machines that Whittle launched or adopted | may | `ec2:TerminateInstances` | \
             `arn:aws:ec2:REGION:ACCOUNT:instance/*` | `aws:ResourceTag/a` is one of those of the parameter `Clusters`; `aws:ResourceTag/b` is there, \
             and not empty |";
        check_row(&statement, expected);
        let conditional = json!({"Fn::If": ["HasSecretKey", {"Sid": "SecretKey", "Effect": "Deny", "Action": ["kms:Decrypt"],
            "Resource": [{"Ref": "SecretKey"}, {"Fn::GetAtt": ["PlanQueue", "Arn"]}]}, {"Ref": "AWS::NoValue"}]});
        let expected = "| decrypt that secret; with the parameter `SecretKey` | **may not** | `kms:Decrypt` | the key of the parameter \
             `SecretKey`, \
             the queue Plan |  |";
        check_row(&conditional, expected);
    }

    #[test]
    fn a_statement_without_a_purpose_is_an_error_and_a_purpose_without_a_statement_too() {
        let unknown = json!({"Sid": "Mine", "Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"});
        let told = format!("{:#}", tables(&template(&unknown)).unwrap_err());
        assert!(told.contains("what the statement \"Mine\"") && told.contains("role LaunchRole"), "{told}");
        let known = json!({"Sid": "Logs", "Effect": "Allow", "Action": "logs:PutLogEvents", "Resource": "*"});
        let told = tables(&template(&known)).unwrap_err().to_string();
        assert!(told.contains("no statement of template.yaml has that Sid"), "{told}");
    }

    #[test]
    fn a_page_without_its_markers_is_an_error() {
        let template = template(&json!({"Sid": "Logs", "Effect": "Allow", "Action": "a:b", "Resource": "*"}));
        for page in ["# t\n", "# t\n<!-- roles -->\n"] {
            assert!(filled(page, &template).is_err(), "{page}");
        }
    }
}
