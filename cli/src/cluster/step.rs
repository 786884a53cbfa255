//! The steps of a plan: what is there, what is to be done, and by which commands.

use crate::live::account;
use crate::money::counted;
use crate::programs::{Program, ProgramError};
use serde_json::{Value, json};
use std::io::{self, Write};

/// The tag, and the label, of what `cluster add` made.
pub(super) const MARK: &str = "whittle.dev/cluster-add";

/// How a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Exists,
    ToDo,
    /// It is not as `cluster add` would make it, and stays so.
    LeftAlone(String),
    Blocked {
        why: String,
        remedy: String,
    },
}

impl State {
    pub(super) fn blocked(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Blocked { why: why.into(), remedy: remedy.into() }
    }

    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::ToDo => "to do",
            Self::LeftAlone(_) => "left alone",
            Self::Blocked { .. } => "blocked",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Aws,
    Kubectl,
}

/// A command of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) tool: Tool,
    pub(super) arguments: Vec<String>,
    pub(super) input: Option<Input>,
    /// Words of an error that means that there is nothing to do any more.
    pub(super) done_if: Option<&'static str>,
    /// Words of an error that passes by itself within seconds.
    pub(super) again_if: Option<&'static str>,
}

/// What a command reads, and what it is called where the command is shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) text: String,
    pub(super) shown: String,
    /// Outputs of a stack that an earlier action makes.
    pub(super) outputs: Option<Outputs>,
}

/// Outputs of a stack, and what stands for them in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outputs {
    stack: String,
    places: &'static [(&'static str, &'static str)],
}

impl Input {
    /// The text, with the outputs as they are now.
    fn filled(&self, aws: &Program) -> Result<String, ProgramError> {
        let Some(Outputs { stack, places }) = &self.outputs else { return Ok(self.text.clone()) };
        let asked = ["cloudformation", "describe-stacks", "--stack-name", stack];
        let answer = aws.json(&asked)?;
        let failed = |said| ProgramError::Failed { command: aws.shown(&asked), said };
        filled(&self.text, places, &answer).map_err(|name| failed(format!("stack {stack} has no output {name}")))
    }
}

/// A text with the outputs of a stack as CloudFormation tells them; an error is the name of one that is missing.
fn filled<'a>(text: &str, places: &[(&'a str, &str)], answer: &Value) -> Result<String, &'a str> {
    let outputs = account::list(answer, "/Stacks/0/Outputs");
    places.iter().try_fold(text.to_owned(), |filled, (name, place)| {
        let found = outputs.iter().find(|output| account::text(output, "/OutputKey") == *name);
        let value = found.map(|output| account::text(output, "/OutputValue")).filter(|value| !value.is_empty());
        Ok(filled.replace(place, value.ok_or(*name)?))
    })
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|word| (*word).to_owned()).collect()
}

impl Action {
    pub(super) fn aws(arguments: &[&str]) -> Self {
        Self { tool: Tool::Aws, arguments: owned(arguments), input: None, done_if: None, again_if: None }
    }

    pub(super) fn kubectl(arguments: &[&str]) -> Self {
        Self { tool: Tool::Kubectl, ..Self::aws(arguments) }
    }

    pub(super) fn reads(self, text: String, shown: &str) -> Self {
        Self { input: Some(Input { text, shown: shown.to_owned(), outputs: None }), ..self }
    }

    /// What stands for a stack's outputs in the input is replaced by them just before it is read.
    pub(super) fn filled_from(self, stack: &str, places: &'static [(&'static str, &'static str)]) -> Self {
        let outputs = Some(Outputs { stack: stack.to_owned(), places });
        Self { input: self.input.map(|input| Input { outputs, ..input }), ..self }
    }

    pub(super) fn done_if(self, words: &'static str) -> Self {
        Self { done_if: Some(words), ..self }
    }

    pub(super) fn again_if(self, words: &'static str) -> Self {
        Self { again_if: Some(words), ..self }
    }

    /// The command line for a shell; input is named after it.
    pub(super) fn line(&self, tools: Tools<'_>) -> String {
        let words: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let line = tools.of(self.tool).shown(&words);
        self.input.as_ref().map_or_else(|| line.clone(), |input| format!("{line}   # reads {}", input.shown))
    }

    pub(super) fn run(&self, tools: Tools<'_>) -> Result<(), ProgramError> {
        let words: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let program = tools.of(self.tool).clone();
        // A stack is waited for as long as the program itself does.
        let program = if words.contains(&"wait") { program.unlimited() } else { program };
        let input = self.input.as_ref().map(|input| input.filled(tools.aws)).transpose()?;
        let once = || match &input {
            Some(input) => program.feed(&words, input),
            None => program.text(&words),
        };
        let mut answer = once();
        for _ in 0..10 {
            if !answer.as_ref().is_err_and(|error| self.again_if.is_some_and(|words| error.says(words))) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_secs(2));
            answer = once();
        }
        match answer {
            Err(error) if self.done_if.is_some_and(|words| error.says(words)) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// The two programs.
#[derive(Clone, Copy)]
pub(super) struct Tools<'a> {
    pub(super) aws: &'a Program,
    pub(super) kubectl: &'a Program,
}

impl<'a> Tools<'a> {
    const fn of(self, tool: Tool) -> &'a Program {
        match tool {
            Tool::Aws => self.aws,
            Tool::Kubectl => self.kubectl,
        }
    }
}

/// One thing that is to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) what: String,
    pub(super) why: &'static str,
    pub(super) state: State,
    /// Steps without which this one is not tried.
    pub(super) needs: Vec<&'static str>,
    pub(super) actions: Vec<Action>,
}

impl Step {
    pub(super) fn new(id: impl Into<String>, what: impl Into<String>, why: &'static str, state: State) -> Self {
        Self { id: id.into(), what: what.into(), why, state, needs: Vec::new(), actions: Vec::new() }
    }

    pub(super) fn needs(self, needs: &[&'static str]) -> Self {
        Self { needs: needs.to_vec(), ..self }
    }

    pub(super) fn by(self, actions: impl IntoIterator<Item = Action>) -> Self {
        Self { actions: actions.into_iter().collect(), ..self }
    }
}

/// How many steps are in a state.
pub(super) fn count(steps: &[Step], word: &str) -> usize {
    steps.iter().filter(|step| step.state.word() == word).count()
}

/// Whether something is to do that nothing blocks.
pub(super) fn is_possible(steps: &[Step]) -> bool {
    let is_blocked = |need: &&str| steps.iter().any(|step| step.id == **need && matches!(step.state, State::Blocked { .. }));
    steps.iter().any(|step| step.state == State::ToDo && !step.needs.iter().any(&is_blocked))
}

/// A plan as text: what is to do with its commands, the rest in short.
pub(super) fn text(steps: &[Step], tools: Tools<'_>, commands: bool, out: &mut dyn Write) -> io::Result<()> {
    let of = |word: &'static str| steps.iter().filter(move |step| step.state.word() == word);
    if of("to do").next().is_some() {
        writeln!(out, "To do:")?;
    }
    if commands {
        for step in of("to do") {
            writeln!(out, "  {}: {}", step.what, step.why)?;
            for action in &step.actions {
                writeln!(out, "      {}", action.line(tools))?;
            }
        }
    } else {
        let all: Vec<&Step> = of("to do").collect();
        for alike in all.chunk_by(|a, b| a.why == b.why) {
            let what: Vec<&str> = alike.iter().map(|step| step.what.as_str()).collect();
            writeln!(out, "  {}: {}", what.join(", "), alike.first().map_or("", |step| step.why))?;
        }
    }
    let exist: Vec<&str> = of("exists").map(|step| step.what.as_str()).collect();
    if !exist.is_empty() {
        writeln!(out, "There already: {}", exist.join(", "))?;
    }
    for step in steps {
        match &step.state {
            State::LeftAlone(why) => writeln!(out, "Left alone: {}: {why}", step.what)?,
            State::Blocked { why, remedy } => writeln!(out, "Blocked: {}: {why}\n  remedy: {remedy}", step.what)?,
            State::Exists | State::ToDo => {}
        }
    }
    writeln!(
        out,
        "{} to do, {} there already, {} left alone, {} blocked",
        count(steps, "to do"),
        count(steps, "exists"),
        count(steps, "left alone"),
        count(steps, "blocked")
    )
}

/// What became of a step that was to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Failed(String),
    /// The step that it needs is not done.
    Skipped(String),
}

/// Runs what is to do, in order. Steps whose needs are not met are skipped, the others go on. `report` gets each at once.
pub(super) fn execute(
    steps: &[Step],
    tools: Tools<'_>,
    hidden: &[String],
    report: &mut dyn FnMut(&Step, &Outcome) -> io::Result<()>,
) -> io::Result<Vec<(String, Outcome)>> {
    let mut outcomes: Vec<(String, Outcome)> = Vec::new();
    for step in steps.iter().filter(|step| step.state == State::ToDo) {
        let unmet = step.needs.iter().find(|need| {
            let blocked = steps.iter().any(|other| other.id == **need && matches!(other.state, State::Blocked { .. }));
            blocked || outcomes.iter().any(|(id, outcome)| id == *need && *outcome != Outcome::Done)
        });
        let outcome = match unmet {
            Some(need) => {
                Outcome::Skipped(steps.iter().find(|other| other.id == **need).map_or_else(String::new, |step| step.what.clone()))
            }
            None => match step.actions.iter().try_for_each(|action| action.run(tools)) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(hide(error.to_string(), hidden)),
            },
        };
        report(step, &outcome)?;
        outcomes.push((step.id.clone(), outcome));
    }
    Ok(outcomes)
}

/// A text without secrets: an API server quotes what it refuses.
fn hide(text: String, hidden: &[String]) -> String {
    hidden.iter().filter(|secret| !secret.is_empty()).fold(text, |text, secret| text.replace(secret, "(secret)"))
}

/// A line of what became of a step.
pub(super) fn print_outcome(step: &Step, outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    match outcome {
        Outcome::Done => writeln!(out, "  done: {}", step.what)?,
        Outcome::Skipped(need) => writeln!(out, "  skipped: {}: it needs what failed or is blocked: {need}", step.what)?,
        Outcome::Failed(why) => writeln!(out, "  failed: {}: {}", step.what, why.replace('\n', "\n    "))?,
    }
    out.flush()
}

/// A plan, and what became of it, for programs.
pub(super) fn as_json(cluster: &str, steps: &[Step], tools: Tools<'_>, outcomes: &[(String, Outcome)]) -> Value {
    let shown = |step: &Step| {
        let mut shown = json!({"id": step.id, "what": step.what, "why": step.why, "state": step.state.word()});
        match &step.state {
            State::LeftAlone(why) => shown["reason"] = json!(why),
            State::Blocked { why, remedy } => (shown["reason"], shown["remedy"]) = (json!(why), json!(remedy)),
            State::ToDo => shown["commands"] = step.actions.iter().map(|action| action.line(tools)).collect(),
            State::Exists => {}
        }
        match outcomes.iter().find(|(id, _)| *id == step.id).map(|(_, outcome)| outcome) {
            Some(Outcome::Done) => shown["outcome"] = json!("done"),
            Some(Outcome::Failed(why)) => (shown["outcome"], shown["error"]) = (json!("failed"), json!(why)),
            Some(Outcome::Skipped(need)) => (shown["outcome"], shown["error"]) = (json!("skipped"), json!(format!("needs {need}"))),
            None => {}
        }
        shown
    };
    json!({
        "cluster": cluster,
        "steps": steps.iter().map(shown).collect::<Vec<_>>(),
        "summary": {
            "toDo": count(steps, "to do"),
            "exists": count(steps, "exists"),
            "leftAlone": count(steps, "left alone"),
            "blocked": count(steps, "blocked"),
            "done": outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Done).count(),
        },
    })
}

/// The last line after steps were run.
pub(super) fn summary(outcomes: &[(String, Outcome)], steps: &[Step]) -> String {
    let done = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Done).count();
    let not = outcomes.len() - done;
    let blocked = count(steps, "blocked");
    format!("{} done, {not} failed or skipped, {blocked} blocked", counted(done, "step"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_step_made_is_filled_in_or_named_as_missing() {
        const PLACES: &[(&str, &str)] = &[("Url", "RELAY-URL"), ("RoleArn", "ROLE-ARN")];
        let text = "url: RELAY-URL, role: ROLE-ARN, again: RELAY-URL";
        let (url, role) = (json!({"OutputKey": "Url", "OutputValue": "https://u/"}), json!({"OutputKey": "RoleArn", "OutputValue": "arn"}));
        let stack = |outputs: Value| json!({"Stacks": [{"StackName": "w", "Outputs": outputs}]});
        assert_eq!(filled(text, PLACES, &stack(json!([url, role]))).as_deref(), Ok("url: https://u/, role: arn, again: https://u/"));
        assert_eq!(filled(text, PLACES, &stack(json!([url]))), Err("RoleArn"));
        let empty = json!({"OutputKey": "RoleArn", "OutputValue": ""});
        assert_eq!(filled(text, PLACES, &stack(json!([url, empty]))), Err("RoleArn"), "no manifest gets an empty role");
        assert_eq!(filled(text, PLACES, &Value::Null), Err("Url"));
    }
}
