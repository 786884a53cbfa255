//! The table of questions.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt;
use whittle_iam::Request;

/// One question with its expected answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) line: usize,
    pub(super) allowed: bool,
    /// A function, `tick`, or empty for a service.
    pub(super) who: String,
    pub(super) request: Request,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { service, action, resource, context } = &self.request;
        write!(f, "{}{service} {action} {resource}", self.who)?;
        context.iter().try_for_each(|(key, values)| write!(f, " {key}={}", values.join("|")))
    }
}

/// Questions to a stack with these parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) questions: Vec<Question>,
}

/// Parses the table; its header explains the format.
pub(super) fn parse(text: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let at = || format!("line {} of the questions", index + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "let" => {
                let (name, value) = rest.split_once(" = ").with_context(at)?;
                let value = expand(value, &names).with_context(at)?;
                names.insert(name, value);
            }
            "parameters" => {
                let given = rest.split_whitespace().map(|pair| pair.split_once('=').with_context(at));
                let given: Result<BTreeMap<_, _>> =
                    given.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
                sections.push(Section { parameters: given?, questions: Vec::new() });
            }
            "allow" | "deny" => {
                let section = sections.last_mut().with_context(at)?;
                let rest = expand(rest, &names).with_context(at)?;
                section.questions.extend(parse_questions(index + 1, word == "allow", &rest).with_context(at)?);
            }
            other => bail!("{}: {other} is none of let, parameters, allow and deny", at()),
        }
    }
    Ok(sections)
}

/// The text with every `{NAME}` replaced, except `{who}`.
fn expand(text: &str, names: &BTreeMap<&str, String>) -> Result<String> {
    let mut rest = text;
    let mut done = String::new();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').context("a brace is open")?;
        done.push_str(before);
        match names.get(name) {
            Some(value) => done.push_str(value),
            None if name == "who" => done.push_str("{who}"),
            None => bail!("{{{name}}} is not defined before"),
        }
        rest = after;
    }
    Ok(done + rest)
}

/// A question for each combination of principal, action and resource.
fn parse_questions(line: usize, allowed: bool, rest: &str) -> Result<Vec<Question>> {
    let mut words = rest.split_whitespace();
    let (Some(who), Some(actions), Some(resources)) = (words.next(), words.next(), words.next()) else {
        bail!("a question needs who, action and resource");
    };
    let mut context: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for word in words {
        let (key, values) = word.split_once('=').with_context(|| format!("{word} has no value"))?;
        context.insert(key.to_ascii_lowercase(), values.split('|').map(str::to_owned).collect());
    }
    let mut questions = Vec::new();
    for who in who.split(',') {
        let service = who.strip_prefix("service:").unwrap_or_default();
        for action in actions.split(',') {
            for resource in resources.split(',') {
                questions.push(Question {
                    line,
                    allowed,
                    who: if service.is_empty() { who.to_owned() } else { String::new() },
                    request: Request {
                        service: service.to_owned(),
                        action: action.to_owned(),
                        resource: resource.replace("{who}", who),
                        context: context.clone(),
                    },
                });
            }
        }
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_question_for_each_principal_action_and_resource() {
        let text = "# a comment\nlet R = r/x\nlet T = Aws:Tag=a|b\nparameters Clusters=a,b\nallow launch,sweep s:A,s:B {R},{who} {T}\ndeny service:e.com s:A *\n";
        let sections = parse(text).expect("the text is sound");
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].parameters["Clusters"], "a,b");
        let shown: Vec<String> = sections[0].questions.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 9);
        assert_eq!(shown[0], "launch s:A r/x aws:tag=a|b");
        assert_eq!(shown[7], "sweep s:B sweep aws:tag=a|b");
        assert_eq!((shown[8].as_str(), sections[0].questions[8].allowed, sections[0].questions[8].line), ("e.com s:A *", false, 6));
    }

    #[test]
    fn a_line_without_a_question_is_an_error() {
        for wrong in
            ["allow launch s:A *", "parameters\nallow launch s:A", "parameters\nmaybe x", "parameters\ndeny launch s:A {R}", "let R r"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
