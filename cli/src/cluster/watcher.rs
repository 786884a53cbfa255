//! The watcher, which rings the relay from inside the cluster: its stack in the account, and its objects in the cluster.

use super::facts::{Facts, Wanted};
use super::manifests::{self, contains, is_marked, marked, reference};
use super::step::{Action, MARK, State, Step};
use crate::live::deployment::Stack;
use serde_json::Value;
use whittle_ports::{NamePatterns, Settings};
use whittle_units::ClusterName;

/// `infra/watcher/stack.yaml`, which is below the 51,200 bytes that CloudFormation takes without a bucket.
const TEMPLATE: &str = include_str!("../../../infra/watcher/stack.yaml");
/// Outputs of that stack, and what stands for them in `infra/watcher/watcher.yaml`.
const OUTPUTS: &[(&str, &str)] = &[("Url", manifests::WATCHER_URL), ("RoleArn", manifests::WATCHER_ROLE)];
/// The add-on by which pods get roles where the cluster's OIDC issuer has no provider in IAM.
pub(super) const AGENT: &str = "eks-pod-identity-agent";
pub(super) const STACK_STEP: &str = "watcher-stack";

/// What is there of it, and what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watcher {
    /// Its stack; none if there is none.
    pub(super) stack: Option<Stack>,
    /// Whether IAM has a provider for the cluster's OIDC issuer.
    pub(super) has_provider: bool,
    /// Whether the cluster has the agent of EKS Pod Identity; none if that is not known.
    pub(super) has_agent: Option<bool>,
    /// Objects of others in its namespace.
    pub(super) neighbours: Vec<String>,
}

/// The name of its stack. Stacks' names have no underscores.
pub(super) fn stack_name(deployment: &str, cluster: &str) -> String {
    format!("{deployment}-watcher-{}", cluster.replace('_', "-"))
}

/// The steps of `cluster add`.
pub(super) fn add(facts: &Facts, wanted: &Wanted, image: &str) -> [Step; 2] {
    [stack(facts, wanted), objects(facts, wanted, image)]
}

fn stack(facts: &Facts, wanted: &Wanted) -> Step {
    let name = stack_name(&facts.stack.name, &wanted.cluster);
    let mut actions = Vec::new();
    let state = match &facts.watcher.stack {
        Some(stack) => state_of(stack),
        None => cannot_be_made(facts, wanted).unwrap_or_else(|| {
            actions = creation(facts, wanted, &name);
            State::ToDo
        }),
    };
    let what = format!("stack {name}: the watcher's URL and role");
    Step::new(STACK_STEP, what, "the watcher posts to the one by the other", state).needs(&["stack"]).by(actions)
}

fn state_of(stack: &Stack) -> State {
    match stack.status.as_str() {
        status if status.starts_with("ROLLBACK") || status.ends_with("_FAILED") => State::blocked(
            format!("stack {} is in state {status}", stack.name),
            format!("aws cloudformation delete-stack --stack-name {}, once its events say what was wrong; then run this again", stack.name),
        ),
        status if !status.ends_with("_COMPLETE") || status.starts_with("DELETE") => {
            State::blocked(format!("stack {} is in state {status}", stack.name), "wait for it to end; then run this again")
        }
        _ => State::Exists,
    }
}

/// Why there can be no such stack, if that is so.
fn cannot_be_made(facts: &Facts, wanted: &Wanted) -> Option<State> {
    let cluster = wanted.cluster.as_str();
    if cluster.bytes().all(|letter| letter.is_ascii_digit()) {
        let why = format!("the relay's alias would be called {cluster}, and no alias has a name of digits alone");
        return Some(State::blocked(why, "use the webhook: leave --relay out"));
    }
    if facts.stack.has_no_relay() {
        let remedy = "leave --relay out: pods without a node wait for the tick, up to a minute";
        return Some(State::blocked("the stack's RelayAuth is OFF: its region has no Function URLs, and the watcher needs one", remedy));
    }
    if facts.stack.output("RelayFunction").is_empty() {
        let why = format!("stack {} has no output RelayFunction", facts.stack.name);
        return Some(State::blocked(why, "deploy this release of Whittle again"));
    }
    if !facts.watcher.has_provider && facts.watcher.has_agent == Some(false) {
        let why =
            "its pods would get no role: IAM has no provider for the cluster's OIDC issuer, and the cluster no agent of EKS Pod Identity";
        let remedy = format!("aws eks create-addon --cluster-name {cluster} --addon-name {AGENT} --region {}", facts.stack.region);
        return Some(State::blocked(why, remedy));
    }
    let pattern = format!("{}-Role-*", stack_name(&facts.stack.name, cluster));
    let callers = facts.stack.parameter("RelayCallers");
    (!permits(facts, cluster, &pattern)).then(|| {
        let why = format!("the parameter RelayCallers of stack {} does not let the watcher's role ring for {cluster}", facts.stack.name);
        State::blocked(why, format!("deploy with an entry for it: RelayCallers='{callers};{cluster}={pattern}'"))
    })
}

/// Whether the relay takes posts of such a role for the cluster. What cannot be read is for the functions to complain about.
fn permits(facts: &Facts, cluster: &str, role: &str) -> bool {
    let clusters: Vec<ClusterName> = facts.stack.clusters().iter().map(ClusterName::new).collect();
    let Ok(relay_callers) = NamePatterns::parse(facts.stack.parameter("RelayCallers")) else { return true };
    let arn = format!("arn:aws:sts::1:assumed-role/{}/pod", role.replace('*', "x"));
    Settings { relay_callers, clusters, ..Settings::default() }.permits_caller(cluster, &arn)
}

fn creation(facts: &Facts, wanted: &Wanted, name: &str) -> Vec<Action> {
    let parameter = |name: &str, value: &str| format!("ParameterKey={name},ParameterValue={value}");
    let mut parameters = vec![parameter("Cluster", &wanted.cluster), parameter("RelayFunction", facts.stack.output("RelayFunction"))];
    if facts.watcher.has_provider {
        parameters.push(parameter("OidcIssuer", facts.eks.issuer.trim_start_matches("https://")));
    }
    let boundary = facts.stack.parameter("PermissionsBoundary");
    if !boundary.is_empty() {
        parameters.push(parameter("PermissionsBoundary", boundary));
    }
    let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
    let tag = format!("Key={MARK},Value={}", wanted.cluster);
    let create = ["cloudformation", "create-stack", "--stack-name", name, "--template-body", "file:///dev/stdin"];
    let how = ["--capabilities", "CAPABILITY_IAM", "--tags", &tag, "--parameters"];
    let create = Action::aws(&[&create[..], &how, &parameters].concat()).reads(TEMPLATE.to_owned(), "infra/watcher/stack.yaml");
    vec![create.done_if("AlreadyExistsException"), Action::aws(&["cloudformation", "wait", "stack-create-complete", "--stack-name", name])]
}

/// The Deployment with what belongs to it. As long as its stack is not there, URL and role are filled in when that has been made.
fn objects(facts: &Facts, wanted: &Wanted, image: &str) -> Step {
    let (what, why) = ("watcher", "two pods ring the relay for pods without a node; without them these wait for the tick, a minute");
    let made = facts.watcher.stack.as_ref();
    let filled = |name: &str, place: &str| made.map_or_else(|| place.to_owned(), |stack| stack.output(name).to_owned());
    let [url, role] = [OUTPUTS[0], OUTPUTS[1]].map(|(name, place)| filled(name, place));
    let all = manifests::watcher(&wanted.cluster, &url, &role, image);
    let differ: Vec<Value> = all
        .into_iter()
        .filter(|object| !facts.object(object).is_some_and(|has| contains(has, object)))
        .map(|object| if facts.object(&object).is_none_or(is_marked) { marked(object) } else { object })
        .collect();
    let state = if differ.is_empty() { State::Exists } else { State::ToDo };
    let name = stack_name(&facts.stack.name, &wanted.cluster);
    let apply = manifests::apply(&differ, "infra/watcher/watcher.yaml", true);
    let apply = if made.is_some() { apply } else { apply.filled_from(&name, OUTPUTS) };
    Step::new("watcher", what, why, state).needs(&[STACK_STEP]).by([apply])
}

/// The steps of `cluster remove`: the objects first, so that nothing posts to what is gone.
pub(super) fn remove(facts: &Facts, wanted: &Wanted, needs: &[&'static str]) -> Vec<Step> {
    let there: Vec<&Value> = facts.objects.iter().filter(|object| is_of_watcher(object)).collect();
    let ours: Vec<&Value> = there.iter().copied().filter(|object| is_marked(object)).collect();
    let (namespaces, objects): (Vec<&Value>, Vec<&Value>) = ours.iter().copied().partition(|object| object["kind"] == "Namespace");
    let mut steps = Vec::new();
    if !objects.is_empty() {
        let step = Step::new("watcher", "watcher", "nothing rings the relay for the cluster any more", State::ToDo);
        steps.push(step.needs(needs).by([manifests::delete(&objects)]));
    } else if there.iter().any(|object| object["kind"] != "Namespace") {
        let why = State::LeftAlone("cluster add did not make it".to_owned());
        steps.push(Step::new("watcher", "watcher", "nothing rings the relay for the cluster any more", why));
    }
    if !namespaces.is_empty() {
        // It takes everything in it away.
        let state = if facts.watcher.neighbours.is_empty() {
            State::ToDo
        } else {
            State::LeftAlone(format!("others have objects in it: {}", facts.watcher.neighbours.join(", ")))
        };
        let step = Step::new("watcher-namespace", "namespace of the watcher", "nothing is left in it", state);
        steps.push(step.needs(needs).by([manifests::delete(&namespaces)]));
    }
    steps.extend(remove_stack(facts, wanted, needs));
    steps
}

fn is_of_watcher(object: &Value) -> bool {
    manifests::watcher("", "", "", "").iter().any(|one| reference(one) == reference(object))
}

fn remove_stack(facts: &Facts, wanted: &Wanted, needs: &[&'static str]) -> Option<Step> {
    let stack = facts.watcher.stack.as_ref()?;
    let name = stack.name.as_str();
    let state = if stack.tags.get(MARK) == Some(&wanted.cluster) {
        State::ToDo
    } else {
        State::LeftAlone("cluster add did not make it for this cluster".to_owned())
    };
    let actions = [
        Action::aws(&["cloudformation", "delete-stack", "--stack-name", name]),
        Action::aws(&["cloudformation", "wait", "stack-delete-complete", "--stack-name", name]),
    ];
    Some(Step::new(STACK_STEP, format!("stack {name}"), "no watcher posts any more", state).needs(needs).by(actions))
}

#[cfg(test)]
mod tests {
    use super::TEMPLATE;

    /// The functions that CloudFormation documents for the rules of a template. It refuses the template for another, whatever its
    /// parameters are; neither cfn-lint nor an emulated account says so.
    const OF_RULES: [&str; 11] =
        ["Ref", "And", "Contains", "EachMemberEquals", "EachMemberIn", "Equals", "Not", "Or", "RefAll", "ValueOf", "ValueOfAll"];

    #[test]
    fn the_rules_of_the_stack_have_only_functions_that_rules_may_have() {
        let (_, from_rules) = TEMPLATE.split_once("\nRules:\n").expect("the template has rules");
        let (rules, _) = from_rules.split_once("\nConditions:\n").expect("conditions follow");
        let code = rules.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
        let of_mark = |mark: &str| -> Vec<&str> {
            let names = code.split(mark).skip(1).filter_map(|rest| rest.split(|letter: char| !letter.is_ascii_alphabetic()).next());
            names.collect()
        };
        let functions = [of_mark("!"), of_mark("Fn::")].concat();
        assert!(functions.contains(&"EachMemberEquals"), "{functions:?}");
        let others: Vec<&&str> = functions.iter().filter(|name| !OF_RULES.contains(*name)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}
