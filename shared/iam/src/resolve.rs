//! Resolves a template's intrinsic functions, for given parameters.

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use whittle_units::Partition;

/// The stack's name.
const STACK: &str = "whittle";

/// Where a stack is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment<'a> {
    pub account: &'a str,
    pub region: &'a str,
}

impl Deployment<'_> {
    /// The partition of the region.
    pub fn partition(self) -> &'static str {
        Partition::of(self.region).name
    }
}

/// A template with a value for each of its parameters.
pub struct Resolver<'a> {
    template: &'a Value,
    deployment: Deployment<'a>,
    parameters: BTreeMap<String, Value>,
}

impl<'a> Resolver<'a> {
    /// Parameters that are not in `given` have their defaults.
    ///
    /// # Errors
    ///
    /// A parameter that the template does not have, or one without a value.
    pub fn new(template: &'a Value, deployment: Deployment<'a>, given: &BTreeMap<String, String>) -> Result<Self> {
        let declared = template["Parameters"].as_object().context("the template has no parameters")?;
        if let Some(unknown) = given.keys().find(|name| !declared.contains_key(*name)) {
            bail!("the template has no parameter {unknown}");
        }
        let mut parameters = BTreeMap::new();
        for (name, parameter) in declared {
            let default = match &parameter["Default"] {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            let value = given.get(name).cloned().or(default).ok_or_else(|| anyhow!("parameter {name} has no value"))?;
            let value = if parameter["Type"] == "CommaDelimitedList" { json!(value.split(',').collect::<Vec<_>>()) } else { json!(value) };
            parameters.insert(name.clone(), value);
        }
        Ok(Self { template, deployment, parameters })
    }

    /// The resolved value; `None` for `AWS::NoValue`.
    ///
    /// # Errors
    ///
    /// A function or name that is not known here.
    pub fn resolve(&self, value: &Value) -> Result<Option<Value>> {
        Ok(Some(match value {
            Value::Array(items) => {
                let items = items.iter().filter_map(|item| self.resolve(item).transpose());
                Value::Array(items.collect::<Result<_>>()?)
            }
            Value::Object(fields) => match fields.iter().next() {
                Some((name, argument)) if fields.len() == 1 && (name == "Ref" || name.starts_with("Fn::")) => {
                    return self.function(name, argument);
                }
                _ => self.fields(fields)?,
            },
            plain => plain.clone(),
        }))
    }

    fn fields(&self, fields: &Map<String, Value>) -> Result<Value> {
        let mut resolved = Map::new();
        for (name, field) in fields {
            if let Some(field) = self.resolve(field)? {
                resolved.insert(name.clone(), field);
            }
        }
        Ok(Value::Object(resolved))
    }

    fn function(&self, name: &str, argument: &Value) -> Result<Option<Value>> {
        let value = match name {
            "Ref" => return self.reference(argument.as_str().context("Ref names nothing")?),
            "Fn::GetAtt" => json!(self.attribute(argument)?),
            "Fn::Sub" => json!(self.substituted(argument)?),
            "Fn::Join" => json!(self.texts(&argument[1])?.join(argument[0].as_str().context("Fn::Join has no delimiter")?)),
            "Fn::Split" => {
                let delimiter = argument[0].as_str().context("Fn::Split has no delimiter")?;
                json!(self.text(&argument[1])?.split(delimiter).collect::<Vec<_>>())
            }
            "Fn::Select" => {
                let index = self.text(&argument[0])?.parse::<usize>().context("Fn::Select has no index")?;
                json!(self.texts(&argument[1])?.get(index).context("Fn::Select selects nothing")?)
            }
            "Fn::If" => {
                let holds = self.condition(argument[0].as_str().context("Fn::If names no condition")?)?;
                return self.resolve(&argument[if holds { 1 } else { 2 }]);
            }
            other => bail!("{other} is not known here"),
        };
        Ok(Some(value))
    }

    fn text(&self, value: &Value) -> Result<String> {
        match self.resolve(value)? {
            Some(Value::String(text)) => Ok(text),
            Some(Value::Number(number)) => Ok(number.to_string()),
            other => bail!("{value} comes to {other:?}, which is no text"),
        }
    }

    fn texts(&self, value: &Value) -> Result<Vec<String>> {
        let Some(Value::Array(items)) = self.resolve(value)? else { bail!("{value} is no list") };
        items.iter().map(|item| item.as_str().map(str::to_owned).with_context(|| format!("{item} is no text"))).collect()
    }

    fn reference(&self, name: &str) -> Result<Option<Value>> {
        let pseudo = match name {
            "AWS::NoValue" => return Ok(None),
            "AWS::AccountId" => self.deployment.account,
            "AWS::Region" => self.deployment.region,
            "AWS::Partition" => self.deployment.partition(),
            "AWS::URLSuffix" => Partition::of(self.deployment.region).dns_suffix,
            "AWS::StackName" => STACK,
            _ => "",
        };
        if !pseudo.is_empty() {
            return Ok(Some(json!(pseudo)));
        }
        if let Some(value) = self.parameters.get(name) {
            return Ok(Some(value.clone()));
        }
        let kind = self.resource(name)?["Type"].as_str().unwrap_or_default();
        let Deployment { account, region } = self.deployment;
        Ok(Some(json!(match kind {
            "AWS::SQS::Queue" => format!("https://sqs.{region}.amazonaws.com/{account}/{STACK}-{name}"),
            _ => format!("{STACK}-{name}"),
        })))
    }

    fn resource(&self, name: &str) -> Result<&'a Value> {
        self.template["Resources"].get(name).with_context(|| format!("{name} is neither parameter nor resource"))
    }

    fn attribute(&self, argument: &Value) -> Result<String> {
        let dotted = argument.as_str().unwrap_or_default();
        let (name, attribute) = match argument.as_array().map(Vec::as_slice) {
            Some([name, attribute]) => (name.as_str().unwrap_or_default(), attribute.as_str().unwrap_or_default()),
            _ => dotted.split_once('.').with_context(|| format!("Fn::GetAtt of {argument}"))?,
        };
        let resource = self.resource(name)?;
        let kind = resource["Type"].as_str().unwrap_or_default();
        let Deployment { account, region } = self.deployment;
        let partition = self.deployment.partition();
        let arn = |service: &str, rest: &str| format!("arn:{partition}:{service}:{region}:{account}:{rest}{STACK}-{name}");
        Ok(match (kind, attribute) {
            ("AWS::SQS::Queue", "Arn") => arn("sqs", ""),
            ("AWS::SQS::Queue", "QueueName") => format!("{STACK}-{name}"),
            ("AWS::DynamoDB::Table", "Arn") => arn("dynamodb", "table/"),
            ("AWS::Lambda::Function", "Arn") => arn("lambda", "function:"),
            ("AWS::Events::Rule", "Arn") => arn("events", "rule/"),
            ("AWS::IAM::Role", "Arn") => format!("arn:{partition}:iam::{account}:role/{STACK}-{name}"),
            ("AWS::Logs::LogGroup", "Arn") => {
                format!("arn:{partition}:logs:{region}:{account}:log-group:{}:*", self.text(&resource["Properties"]["LogGroupName"])?)
            }
            _ => bail!("{attribute} of {name}, {kind}, is not known here"),
        })
    }

    /// The text of `Fn::Sub` with each `${…}` replaced.
    fn substituted(&self, argument: &Value) -> Result<String> {
        let (text, own) = match argument {
            Value::Array(parts) => (parts[0].as_str(), parts.get(1)),
            plain => (plain.as_str(), None),
        };
        let mut rest = text.context("Fn::Sub has no text")?;
        let mut done = String::new();
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').context("Fn::Sub has an open brace")?;
            done.push_str(before);
            done.push_str(&match own.and_then(|own| own.get(name)) {
                Some(value) => self.text(value)?,
                None if name.contains('.') => self.attribute(&json!(name))?,
                None => self.text(&json!({ "Ref": name }))?,
            });
            rest = after;
        }
        Ok(done + rest)
    }

    /// Whether a named condition holds.
    fn condition(&self, name: &str) -> Result<bool> {
        self.holds(self.template["Conditions"].get(name).with_context(|| format!("there is no condition {name}"))?)
    }

    fn holds(&self, condition: &Value) -> Result<bool> {
        let Some((name, argument)) = condition.as_object().and_then(|fields| fields.iter().next()) else {
            bail!("{condition} is no condition");
        };
        let all = || argument.as_array().into_iter().flatten().map(|one| self.holds(one)).collect::<Result<Vec<bool>>>();
        Ok(match name.as_str() {
            "Condition" => self.condition(argument.as_str().unwrap_or_default())?,
            "Fn::Equals" => self.text(&argument[0])? == self.text(&argument[1])?,
            "Fn::Not" => !self.holds(&argument[0])?,
            "Fn::And" => all()?.into_iter().all(|holds| holds),
            "Fn::Or" => all()?.into_iter().any(|holds| holds),
            other => bail!("condition {other} is not known here"),
        })
    }
}

/// The statements of the inline policies of all roles, by the role's name in the template.
///
/// # Errors
///
/// As [`Resolver::resolve`].
pub fn statements_of_roles(template: &Value, resolver: &Resolver<'_>) -> Result<BTreeMap<String, Vec<Value>>> {
    let resources = template["Resources"].as_object().context("the template has no resources")?;
    let mut roles = BTreeMap::new();
    for (name, resource) in resources.iter().filter(|(_, resource)| resource["Type"] == "AWS::IAM::Role") {
        let policies = resolver.resolve(&resource["Properties"]["Policies"])?.unwrap_or_default();
        let documents = policies.as_array().into_iter().flatten().map(|policy| &policy["PolicyDocument"]["Statement"]);
        roles.insert(name.clone(), documents.filter_map(Value::as_array).flatten().cloned().collect());
    }
    Ok(roles)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Deployment<'_> = Deployment { account: "111122223333", region: "us-west-2" };

    fn template() -> Value {
        json!({
            "Parameters": {
                "Names": {"Type": "CommaDelimitedList"}, "Extra": {"Type": "CommaDelimitedList", "Default": ""},
                "Count": {"Type": "Number", "Default": 0}
            },
            "Conditions": {
                "HasExtra": {"Fn::Not": [{"Fn::Equals": [{"Fn::Join": ["", {"Ref": "Extra"}]}, ""]}]},
                "Counts": {"Fn::And": [{"Condition": "HasExtra"}, {"Fn::Not": [{"Fn::Equals": [{"Ref": "Count"}, 0]}]}]}
            },
            "Resources": {
                "Queue": {"Type": "AWS::SQS::Queue"},
                "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": {"Fn::Sub": "/w/${AWS::StackName}"}}}
            }
        })
    }

    #[track_caller]
    fn check(given: &[(&str, &str)], value: Value, expected: Value) {
        let template = template();
        let mut parameters = BTreeMap::from([("Names".to_owned(), "a,b".to_owned())]);
        parameters.extend(given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let resolver = Resolver::new(&template, HERE, &parameters).expect("the template is sound");
        assert_eq!(resolver.resolve(&value).expect("it can be resolved"), Some(expected));
    }

    #[test]
    fn references_and_substitutions_are_resolved() {
        check(&[], json!({"Ref": "Names"}), json!(["a", "b"]));
        check(&[], json!({"Ref": "Queue"}), json!("https://sqs.us-west-2.amazonaws.com/111122223333/whittle-Queue"));
        check(&[], json!({"Fn::GetAtt": ["Queue", "Arn"]}), json!("arn:aws:sqs:us-west-2:111122223333:whittle-Queue"));
        check(&[], json!({"Fn::GetAtt": "Logs.Arn"}), json!("arn:aws:logs:us-west-2:111122223333:log-group:/w/whittle:*"));
        check(&[], json!({"Fn::Sub": ["${x}-${AWS::Region}!${Queue.QueueName}", {"x": 1}]}), json!("1-us-west-2!whittle-Queue"));
        check(&[], json!({"Fn::Select": [1, {"Ref": "Names"}]}), json!("b"));
    }

    #[test]
    fn a_list_parameter_is_expanded() {
        let each = json!({"Fn::Split": [",", {"Fn::Join": ["", ["p/", {"Fn::Join": [",p/", {"Ref": "Names"}]}]]}]});
        check(&[], each, json!(["p/a", "p/b"]));
    }

    #[test]
    fn values_excluded_by_a_condition_are_removed() {
        let list = json!(["a", {"Fn::If": ["Counts", "b", {"Ref": "AWS::NoValue"}]}]);
        check(&[("Extra", "x"), ("Count", "2")], list.clone(), json!(["a", "b"]));
        check(&[("Extra", "x")], list.clone(), json!(["a"]));
        check(&[("Count", "2")], list, json!(["a"]));
    }

    #[test]
    fn unknown_functions_and_names_are_errors() {
        let template = template();
        let given = BTreeMap::from([("Names".to_owned(), "a".to_owned())]);
        let resolver = Resolver::new(&template, HERE, &given).expect("the template is sound");
        for value in [json!({"Ref": "Nobody"}), json!({"Fn::Cidr": []}), json!({"Fn::GetAtt": ["Queue", "Colour"]})] {
            assert!(resolver.resolve(&value).is_err(), "{value}");
        }
        assert!(Resolver::new(&template, HERE, &BTreeMap::new()).is_err(), "a parameter without a value");
        let more = BTreeMap::from([("Names".to_owned(), String::new()), ("Other".to_owned(), String::new())]);
        assert!(Resolver::new(&template, HERE, &more).is_err(), "a parameter that does not exist");
    }
}
