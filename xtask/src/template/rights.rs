//! Checks what the rendered policies allow and deny: a table of questions, each statement weakened in every way, which the
//! questions must notice, and the statements in a form for another tool.

mod questions;

use anyhow::{Context, Result, bail};
use questions::{Question, Section};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_iam::{Decision, Deployment, Names, Request, Resolver, Statement, decide, statements_of_roles};

/// Where the questions stand.
const HERE: Deployment<'_> = Deployment { account: "111122223333", region: "us-west-2" };

/// The table; its header explains the format.
const QUESTIONS: &str = include_str!("rights/questions.txt");

/// IAM's limit on the characters of all inline policies of a role.
const POLICY_MAX: usize = 10_240;
/// How many clusters with names of ten letters fit into every role, as `infra/README.md` says.
const CLUSTERS_FIT: usize = 50;

/// The end of the one managed policy of AWS's that roles have, and what it allows: a function's network in a VPC.
const NETWORK: &str = "policy/service-role/AWSLambdaENIManagementAccess";
/// The name of its statement, which is not weakened because it is not ours.
const OF_AWS: &str = "(AWS's own)";
const NETWORK_CALLS: &[&str] = &[
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
];

/// The holder of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// The role of this function, or `tick`.
    Role(String),
    /// Queues, by ARN.
    Queues(Vec<String>),
    /// The trust policy of the role with this ARN.
    Trust(String),
}

/// A statement with its holder.
#[derive(Clone, Debug)]
struct Held {
    holder: Holder,
    statement: Statement,
}

impl Held {
    fn concerns(&self, question: &Question) -> bool {
        match &self.holder {
            Holder::Role(name) => *name == question.who,
            Holder::Queues(queues) => queues.contains(&question.request.resource),
            Holder::Trust(role) => question.request.action == "sts:AssumeRole" && *role == question.request.resource,
        }
    }
}

/// The result of all questions.
pub(super) struct Answers {
    /// One sentence for each wrong answer, and for each weakened statement that no question notices.
    pub(super) broken: Vec<String>,
    /// A summary in one line.
    pub(super) summary: String,
    /// Every statement of every role with every parameter set, for other tools.
    pub(super) statements: Value,
}

/// Answers all questions.
pub(super) fn ask(template: &Value) -> Result<Answers> {
    let sections = questions::parse(QUESTIONS)?;
    let mut answers = Answers { broken: Vec::new(), summary: String::new(), statements: json!({}) };
    let (mut permissions, mut refusals) = (0, 0);
    let mut weakened: BTreeMap<String, bool> = BTreeMap::new();
    for (index, Section { parameters, questions }) in sections.iter().enumerate() {
        let resolver = Resolver::new(template, HERE, parameters)?;
        let held = held(template, &resolver)?;
        permissions += questions.iter().filter(|question| question.allowed).count();
        refusals += questions.iter().filter(|question| !question.allowed).count();
        answers.broken.extend(wrong(&held, questions));
        if index == 0 {
            answers.statements = json!(statements_of_roles(template, &resolver)?);
        }
        // A right that a parameter grants as well is tested without the parameter.
        for (variant, noticed) in mutations(&held, questions) {
            *weakened.entry(variant).or_default() |= noticed;
        }
    }
    answers.broken.extend(unnoticed(&weakened));
    answers.broken.extend(too_long(template)?);
    if refusals < permissions {
        answers.broken.push(format!("{permissions} questions expect a permission and only {refusals} a refusal"));
    }
    answers.summary = format!(
        "{} questions to the policies, {permissions} permissions and {refusals} refusals; {} weakened statements noticed",
        permissions + refusals,
        weakened.values().filter(|noticed| **noticed).count()
    );
    Ok(answers)
}

/// Every statement of the template, resolved.
fn held(template: &Value, resolver: &Resolver<'_>) -> Result<Vec<Held>> {
    let mut held = Vec::new();
    for (name, resource) in super::promises::resources(template) {
        let properties = &resource["Properties"];
        match resource["Type"].as_str() {
            Some("AWS::IAM::Role") => {
                let who = name.strip_suffix("Role").unwrap_or(name).to_ascii_lowercase();
                for policy in properties["Policies"].as_array().into_iter().flatten() {
                    add(&mut held, &Holder::Role(who.clone()), resolver, &policy["PolicyDocument"])?;
                }
                managed(&mut held, &Holder::Role(who), resolver, &properties["ManagedPolicyArns"])?;
                let arn = resolver.resolve(&json!({ "Fn::GetAtt": [name, "Arn"] }))?.unwrap_or_default();
                let trust = Holder::Trust(arn.as_str().unwrap_or_default().to_owned());
                add(&mut held, &trust, resolver, &properties["AssumeRolePolicyDocument"])?;
            }
            Some("AWS::SQS::QueuePolicy") => {
                let queues = properties["Queues"].as_array().into_iter().flatten().filter_map(super::promises::target);
                let arn = |queue: &str| format!("arn:aws:sqs:{}:{}:whittle-{queue}", HERE.region, HERE.account);
                add(&mut held, &Holder::Queues(queues.map(arn).collect()), resolver, &properties["PolicyDocument"])?;
            }
            _ => {}
        }
    }
    Ok(held)
}

fn add(held: &mut Vec<Held>, holder: &Holder, resolver: &Resolver<'_>, document: &Value) -> Result<()> {
    let document = resolver.resolve(document)?.context("a policy without a document")?;
    for statement in document["Statement"].as_array().into_iter().flatten() {
        let statement = Statement::parse(statement).with_context(|| format!("{holder:?}: {statement}"))?;
        held.push(Held { holder: holder.clone(), statement });
    }
    Ok(())
}

/// The statements of AWS-managed policies. An unknown policy is an error.
fn managed(held: &mut Vec<Held>, holder: &Holder, resolver: &Resolver<'_>, arns: &Value) -> Result<()> {
    let arns = resolver.resolve(arns)?.unwrap_or_default();
    for arn in arns.as_array().into_iter().flatten() {
        if !arn.as_str().is_some_and(|arn| arn.ends_with(NETWORK)) {
            bail!("{holder:?} has {arn}; what that allows is not known here");
        }
        let whole = json!({"Sid": OF_AWS, "Effect": "Allow", "Action": NETWORK_CALLS, "Resource": "*"});
        held.push(Held { holder: holder.clone(), statement: Statement::parse(&whole)? });
    }
    Ok(())
}

/// Roles whose policies would exceed IAM's size limit with many clusters.
fn too_long(template: &Value) -> Result<Vec<String>> {
    let clusters: Vec<String> = (0..CLUSTERS_FIT).map(|number| format!("cluster-{number:02}")).collect();
    let resolver = Resolver::new(template, HERE, &BTreeMap::from([("Clusters".to_owned(), clusters.join(","))]))?;
    let mut found = Vec::new();
    for (name, resource) in super::promises::of_type(template, "AWS::IAM::Role") {
        let policies = resolver.resolve(&resource["Properties"]["Policies"])?.unwrap_or_default();
        let documents = policies.as_array().into_iter().flatten().map(|policy| policy["PolicyDocument"].to_string().len());
        let length: usize = documents.sum();
        if length > POLICY_MAX {
            found.push(format!("the policies of {name} have {length} characters for {CLUSTERS_FIT} clusters; IAM takes {POLICY_MAX}"));
        }
    }
    Ok(found)
}

fn allowed<'a>(statements: impl IntoIterator<Item = &'a Statement>, request: &Request) -> bool {
    decide(statements, request) == Decision::Allowed
}

fn answer(held: &[Held], question: &Question) -> bool {
    allowed(held.iter().filter(|one| one.concerns(question)).map(|one| &one.statement), &question.request)
}

fn wrong(held: &[Held], questions: &[Question]) -> Vec<String> {
    let wrong = questions.iter().filter(|question| answer(held, question) != question.allowed);
    let sentence = |question: &Question| {
        let (expected, found) = if question.allowed { ("allowed", "refused") } else { ("refused", "allowed") };
        format!("question of line {}, {question}: must be {expected} and is {found}", question.line)
    };
    wrong.map(sentence).collect()
}

/// Weakens each statement in every way, or removes it. Returns each change with whether an answer changed.
fn mutations(held: &[Held], questions: &[Question]) -> Vec<(String, bool)> {
    let mut tried = Vec::new();
    for (index, one) in held.iter().enumerate().filter(|(_, one)| one.statement.sid != OF_AWS) {
        let concerned: Vec<&Question> = questions.iter().filter(|question| one.concerns(question)).collect();
        for (what, changed) in variants(&one.statement) {
            let others = held.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
            let changed = changed.map(|statement| Held { holder: one.holder.clone(), statement });
            let all: Vec<&Held> = others.chain(changed.as_ref()).collect();
            let differs = |question: &&Question| {
                let mine = all.iter().filter(|held| held.concerns(question)).map(|held| &held.statement);
                allowed(mine, &question.request) != question.allowed
            };
            tried.push((format!("{:?}, {} {what}", one.holder, one.statement.sid), concerned.iter().any(differs)));
        }
    }
    tried
}

fn unnoticed(tried: &BTreeMap<String, bool>) -> Vec<String> {
    tried.iter().filter(|(_, noticed)| !**noticed).map(|(variant, _)| format!("no question notices {variant}")).collect()
}

/// The statement without one of its parts, and widened; `None` for the removed statement.
fn variants(statement: &Statement) -> Vec<(String, Option<Statement>)> {
    let mut variants = vec![("gone".to_owned(), None)];
    let mut add = |what: String, change: &dyn Fn(&mut Statement)| {
        let mut changed = statement.clone();
        change(&mut changed);
        variants.push((what, Some(changed)));
    };
    for (index, condition) in statement.conditions.iter().enumerate() {
        add(format!("without its condition on {}", condition.key), &|changed| {
            changed.conditions.remove(index);
        });
        for (at, value) in condition.values.iter().enumerate().filter(|_| condition.values.len() > 1) {
            add(format!("without {value} in its condition on {}", condition.key), &|changed| {
                changed.conditions[index].values.remove(at);
            });
        }
    }
    let one_less = |names: &Names, at: usize| match names {
        Names::These(names) => {
            Names::These(names.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, name)| name.clone()).collect())
        }
        Names::AllBut(names) => Names::AllBut(names.clone()),
    };
    if let Names::These(names) = &statement.resources {
        if names != &["*"] {
            add("on every resource".to_owned(), &|changed| changed.resources = Names::These(vec!["*".to_owned()]));
        }
        for (at, name) in names.iter().enumerate().filter(|_| names.len() > 1) {
            add(format!("without the resource {name}"), &|changed| changed.resources = one_less(&statement.resources, at));
        }
    }
    if let Names::These(names) = &statement.actions {
        for (at, name) in names.iter().enumerate().filter(|_| names.len() > 1) {
            add(format!("without the action {name}"), &|changed| changed.actions = one_less(&statement.actions, at));
        }
    }
    if statement.principals.as_ref().is_some_and(|names| names != &["*"]) {
        add("for everybody".to_owned(), &|changed| changed.principals = Some(vec!["*".to_owned()]));
    }
    variants
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that one function may send to, and only encrypted.
    fn template(statement: Value) -> Value {
        json!({"Parameters": {}, "Resources": {
            "Queue": {"Type": "AWS::SQS::Queue"},
            "LaunchRole": {"Type": "AWS::IAM::Role", "Properties": {"Policies": [{"PolicyDocument": {"Statement": [statement]}}]}},
            "Policy": {"Type": "AWS::SQS::QueuePolicy", "Properties": {"Queues": [{"Ref": "Queue"}], "PolicyDocument": {"Statement": [
                {"Sid": "Plain", "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*",
                    "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}}}
        }})
    }

    const ASKED: &str = "parameters\n\
        allow launch sqs:SendMessage arn:aws:sqs:us-west-2:111122223333:whittle-Queue\n\
        deny launch sqs:SendMessage arn:aws:sqs:us-west-2:111122223333:whittle-Queue aws:SecureTransport=false\n";
    const OTHER: &str = "deny launch sqs:SendMessage arn:aws:sqs:us-west-2:111122223333:whittle-Other\n";

    fn found(statement: Value, questions_text: &str) -> Vec<String> {
        let template = template(statement);
        let sections = questions::parse(questions_text).expect("the questions are sound");
        let resolver = Resolver::new(&template, HERE, &sections[0].parameters).expect("the template is sound");
        let held = held(&template, &resolver).expect("the policies are sound");
        let mut found = wrong(&held, &sections[0].questions);
        found.extend(unnoticed(&mutations(&held, &sections[0].questions).into_iter().collect()));
        found
    }

    #[test]
    fn missing_and_excessive_permissions_are_reported() {
        let sends = |resource: Value| json!({"Sid": "Send", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": resource});
        let sound = sends(json!({"Fn::GetAtt": ["Queue", "Arn"]}));
        let questions_text = format!("{ASKED}{OTHER}");
        assert_eq!(found(sound, &questions_text), Vec::<String>::new());
        let wide = found(sends(json!("*")), &questions_text);
        assert!(wide.len() == 1 && wide[0].contains("must be refused and is allowed"), "{wide:?}");
        let missing = found(sends(json!("arn:aws:sqs:us-west-2:111122223333:elsewhere")), &questions_text);
        assert!(missing[0].contains("must be allowed and is refused"), "{missing:?}");
    }

    #[test]
    fn a_part_of_a_statement_without_a_question_is_reported() {
        let sound = json!({"Sid": "Send", "Effect": "Allow", "Action": ["sqs:SendMessage", "sqs:PurgeQueue"],
            "Resource": {"Fn::GetAtt": ["Queue", "Arn"]}, "Condition": {"StringEqualsIfExists": {"a:k": "v"}}});
        assert_eq!(
            found(sound, ASKED),
            [
                "no question notices Role(\"launch\"), Send on every resource",
                "no question notices Role(\"launch\"), Send without its condition on a:k",
                "no question notices Role(\"launch\"), Send without the action sqs:PurgeQueue",
            ]
        );
    }
}
