//! The stack and what runs of it.

use super::super::facts::{Facts, Function, Queue, Running};
use super::{Finding, in_region, known};
use crate::live::deployment::Stack;
use crate::money::counted;

const RUNBOOKS: &str = "docs/runbooks.md";

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = vec![known("account", &facts.caller, |caller| Finding::ok("account", format!("signed in as {caller}")))];
    match &facts.stack {
        Err(why) if facts.is_stack_missing => all.push(missing(facts, why)),
        Err(why) => all.push(Finding::unknown("stack", why.clone())),
        Ok(stack) => all.extend([status(stack), version(stack), served(facts, stack), mode(stack), concurrency(facts, stack)]),
    }
    match &facts.running {
        Err(why) => all.push(Finding::unknown("functions", why.clone())),
        Ok(running) => {
            all.extend([functions(facts, running), stopped(facts, running), dead_letters(facts, running), rules(running), alarms(running)]);
        }
    }
    all
}

/// The stack is not there: it was never deployed, or is somewhere else.
fn missing(facts: &Facts, why: &str) -> Finding {
    let remedy = format!(
        "deploy it: sam build, sam deploy --parameter-overrides Clusters={} (infra/README.md); if it has another name, add --stack, if it \
         is in another region or account, --region or --profile",
        facts.cluster
    );
    Finding::problem("stack", format!("{why} in this account and region"), remedy)
}

fn status(stack: &Stack) -> Finding {
    let what = format!("stack {} in {} of account {} is in state {}", stack.name, stack.region, stack.account, stack.status);
    match stack.repair() {
        Some(repair) => Finding::problem("stack", what, repair),
        None if stack.status.ends_with("ROLLBACK_COMPLETE") => Finding::warning(
            "stack",
            format!("{what}: the last deployment failed and was taken back"),
            "deploy again: sam build, sam deploy",
        ),
        None => Finding::ok("stack", what),
    }
}

/// Numbers of a version; nothing if it is none.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    let all = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(all)
}

fn version(stack: &Stack) -> Finding {
    let (theirs, ours) = (stack.output("Version"), env!("CARGO_PKG_VERSION"));
    let remedy = "deploy the functions of this release: sam build, sam deploy";
    match (numbers(theirs), numbers(ours)) {
        _ if theirs.is_empty() => {
            let what = format!("the stack has no output Version: its functions are of a release before {ours}, which this command is of");
            Finding::problem("version", what, remedy)
        }
        (Some(old), Some(new)) if old < new => {
            Finding::problem("version", format!("the functions are of release {theirs}, this command is of {ours}"), remedy)
        }
        _ if theirs == ours => Finding::ok("version", format!("release {theirs}")),
        _ => {
            let what = format!("the functions are of release {theirs}, this command is of {ours}: it may find fault with what is right");
            Finding::warning("version", what, format!("use the command of release {theirs}"))
        }
    }
}

/// The name among others that was probably meant.
fn nearest<'a>(name: &str, among: &'a [String]) -> Option<&'a String> {
    let near = |other: &&String| strsim::damerau_levenshtein(&name.to_lowercase(), &other.to_lowercase()) <= 2;
    among.iter().filter(near).min_by_key(|other| strsim::damerau_levenshtein(name, other))
}

fn served(facts: &Facts, stack: &Stack) -> Finding {
    let check = "clusters";
    let clusters = stack.clusters();
    let exists = facts.eks.as_ref().ok().map(Option::is_some);
    if clusters.contains(&facts.cluster) {
        let others: Vec<&String> = facts.names.iter().flat_map(|names| clusters.iter().filter(|name| !names.contains(name))).collect();
        return match others.first() {
            Some(other) if exists == Some(true) => Finding::warning(
                check,
                format!("the stack's parameter Clusters names {other}, which EKS does not have in {}", stack.region),
                "correct the name, or take it out; each of its ticks fails",
            ),
            _ => Finding::ok(check, format!("the stack serves {}", clusters.join(", "))),
        };
    }
    let instead = nearest(&facts.cluster, &clusters);
    let what = match instead {
        Some(near) => format!("the stack's parameter Clusters names {near}, not {}", facts.cluster),
        None => format!("the stack's parameter Clusters does not name {}: {}", facts.cluster, clusters.join(", ")),
    };
    // A name that EKS does not have is replaced by the one that was meant.
    let unknown = |name: &String| facts.names.as_ref().is_ok_and(|names| !names.contains(name)) && instead == Some(name);
    let kept = clusters.iter().filter(|name| !unknown(name)).cloned();
    let wanted: Vec<String> = kept.chain([facts.cluster.clone()]).collect();
    Finding::problem(check, what, stack.deploy_line(&wanted))
}

fn mode(stack: &Stack) -> Finding {
    if stack.is_shadow() {
        let what = "the stack's Mode is shadow: it decides and logs, and changes nothing";
        return Finding::warning("mode", what, "deploy with Mode=active when it is to act");
    }
    Finding::ok("mode", "active")
}

fn concurrency(facts: &Facts, stack: &Stack) -> Finding {
    known("concurrency", &facts.concurrency, |&limit| {
        let what = format!("the account may run {} at once", counted(usize::try_from(limit).unwrap_or(usize::MAX), "function"));
        if limit < 100 && stack.parameter("SmallAccount") != "true" {
            let remedy = "raise the quota Concurrent executions of Lambda to 1,000, which costs nothing, or deploy with SmallAccount=true";
            return Finding::warning("concurrency", what, remedy);
        }
        Finding::ok("concurrency", what)
    })
}

fn functions(facts: &Facts, running: &Running) -> Finding {
    let check = "functions";
    known(check, &running.functions, |functions| {
        let broken = |function: &&Function| {
            let idle = function.state == "Inactive" || function.state.is_empty();
            (function.state != "Active" && !idle) || function.update == "Failed"
        };
        if let Some(function) = functions.iter().find(broken) {
            let Function { name, state, update, reason, .. } = function;
            return Finding::problem(
                check,
                format!("{name} is in state {state}, its last update {update}: {reason}"),
                "correct what the reason names and deploy again: sam build, sam deploy",
            );
        }
        let behind = functions.iter().find(|one| {
            let served = one.clusters.split(',').any(|name| name.trim() == facts.cluster);
            !served && facts.stack.as_ref().is_ok_and(|stack| stack.clusters().contains(&facts.cluster))
        });
        if let Some(function) = behind {
            let what = format!("{} is set to serve {:?}, which is not what the stack says", function.name, function.clusters);
            return Finding::problem(check, what, "deploy again: somebody changed the function outside the stack");
        }
        match functions.len() {
            9 => Finding::ok(check, "9 functions, each active and deployed"),
            some => Finding::problem(check, format!("the stack has {}, not 9", counted(some, "function")), "deploy this release again"),
        }
    })
}

/// Functions that somebody stopped, as the runbooks say, and did not start again.
fn stopped(facts: &Facts, running: &Running) -> Finding {
    let check = "stopped functions";
    known(check, &running.stopped, |stopped| {
        if stopped.is_empty() {
            return Finding::ok(check, "none has a reserved concurrency of zero");
        }
        let names: Vec<&str> = stopped.iter().map(|(name, _)| name.as_str()).collect();
        let go_on = |(name, id): &(String, String)| {
            let stack = facts.stack.as_ref().ok().filter(|stack| stack.parameter("SmallAccount") != "true");
            match stack.map_or("", |stack| stack.parameter(&format!("{name}Concurrency"))) {
                "" | "0" => format!("aws lambda delete-function-concurrency --function-name {id}"),
                kept => format!("aws lambda put-function-concurrency --function-name {id} --reserved-concurrent-executions {kept}"),
            }
        };
        let region = in_region(facts);
        let remedy = stopped.iter().map(|one| go_on(one) + &region).collect::<Vec<_>>().join("; ");
        let what = format!("a reserved concurrency of zero, with which Lambda never starts a function: {}", names.join(", "));
        Finding::problem(check, what, format!("unless it is to stay stopped: {remedy}"))
    })
}

/// The queue of what `interrupt` could not handle.
const LOST_NOTICES: &str = "InterruptionDeadLetters";

fn dead_letters(facts: &Facts, running: &Running) -> Finding {
    let check = "dead letters";
    known(check, &running.queues, |queues| {
        let full: Vec<&Queue> = queues.iter().filter(|queue| queue.name.ends_with("DeadLetters") && 0 < queue.messages).collect();
        if full.is_empty() {
            let waiting: u64 = queues.iter().map(|queue| queue.messages).sum();
            return Finding::ok(
                check,
                format!(
                    "none; {waiting} messages wait in {} queues",
                    queues.iter().filter(|one| !one.name.ends_with("DeadLetters")).count()
                ),
            );
        }
        let count = |queue: &Queue| counted(usize::try_from(queue.messages).unwrap_or(usize::MAX), "message");
        let what: Vec<String> = full.iter().map(|queue| format!("{} in {}", count(queue), queue.name)).collect();
        let region = in_region(facts);
        let purges: Vec<String> = full.iter().map(|queue| format!("aws sqs purge-queue --queue-url {}{region}", queue.url)).collect();
        let again = if full.iter().any(|queue| queue.name == LOST_NOTICES) {
            "no tick repeats what EC2 told, so read the messages first; ticks do all other work again"
        } else {
            "ticks do the work again"
        };
        let remedy = format!(
            "the function's log says what failed; once that is fixed, {}; {again} ({RUNBOOKS}, \"A message is in the dead-letter queue\")",
            purges.join("; ")
        );
        Finding::problem(check, what.join(", "), remedy)
    })
}

fn rules(running: &Running) -> Finding {
    known("rules and ticks", &running.disabled, |disabled| {
        if disabled.is_empty() {
            return Finding::ok("rules and ticks", "all enabled, and so are the mappings of queues");
        }
        let remedy = "enable them: aws events enable-rule, for ticks the console of EventBridge Scheduler, for mappings of queues aws \
                      lambda update-event-source-mapping --enabled; ticks find again what is lost";
        Finding::problem("rules and ticks", format!("disabled: {}", disabled.join(", ")), remedy)
    })
}

fn alarms(running: &Running) -> Finding {
    known("alarms", &running.alarms, |alarms| {
        if alarms.is_empty() {
            return Finding::ok("alarms", "none is raised");
        }
        let named: Vec<String> =
            alarms.iter().map(|alarm| format!("{} ({})", alarm.name, alarm.description.trim_end_matches('.'))).collect();
        Finding::problem("alarms", named.join("; "), format!("{RUNBOOKS} has a section for each"))
    })
}
