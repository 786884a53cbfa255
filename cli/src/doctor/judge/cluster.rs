//! What the cluster's API server has.

use super::super::facts::{Facts, InAccount, InCluster};
use super::{Finding, add, known};
use crate::cluster::manifests::{self, contains, reference};
use crate::listing::first_named;
use crate::live::account::{list, text};
use crate::live::deployment::Stack;
use crate::live::kubernetes::{is_anothers_pool, name};
use crate::money::counted;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use whittle_api::{conditions, labels};

/// How many NodePools are named.
const NAMED: usize = 3;

/// What fixes a refusal for want of rights.
const DENIED: &str = "allow it: a service control policy, a permissions boundary or the role of launch denies it (docs/runbooks.md, \
                      \"EC2 refuses launches\")";

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    match &facts.inside {
        Err(why) => vec![Finding::unknown("inside the cluster", why.clone())],
        Ok(inside) => vec![
            crds(facts, inside),
            roles(facts, inside),
            doorbell(facts, inside),
            classes(facts, inside),
            pools(facts, inside),
            launches(facts, inside),
            karpenter(facts, inside),
        ],
    }
}

fn crds(facts: &Facts, inside: &InCluster) -> Finding {
    let check = "CRDs";
    known(check, &inside.crds, |has| {
        let wanted = manifests::crds();
        let missing: Vec<&str> = wanted.iter().filter(|crd| !has.iter().any(|one| reference(one) == reference(crd))).map(name).collect();
        let needed = ["nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws", "nodeclaims.karpenter.sh"];
        let serves_v1 = |crd: &&Value| {
            let served = |version: &Value| text(version, "/name") == "v1" && version["served"] == true;
            list(crd, "/spec/versions").iter().any(served)
        };
        if let Some(crd) = missing.iter().find(|crd| needed.contains(crd)) {
            return Finding::problem(check, format!("missing: {} (nothing works without {crd})", missing.join(", ")), add(facts));
        }
        if let Some(old) = has.iter().filter(|crd| needed.contains(&name(crd))).find(|crd| !serves_v1(crd)) {
            let remedy = "upgrade Karpenter's CRDs to a release that serves v1, then run this again";
            return Finding::problem(check, format!("{} does not serve v1", name(old)), remedy);
        }
        if !missing.is_empty() {
            let what = format!("missing: {}; objects of these kinds cannot be made", missing.join(", "));
            return Finding::warning(check, what, add(facts));
        }
        let older = wanted.iter().filter(|crd| has.iter().any(|one| reference(one) == reference(crd) && !contains(one, crd))).count();
        let what = format!("{}, {older} of them not those of this release", counted(has.len(), "CRD"));
        Finding::ok(check, if older == 0 { counted(has.len(), "CRD") } else { what })
    })
}

fn roles(facts: &Facts, inside: &InCluster) -> Finding {
    let check = "rights in the cluster";
    known(check, &inside.objects, |has| {
        let wanted = [manifests::rbac(), manifests::flow()].concat();
        let differs = |wanted: &&Value| !has.iter().any(|one| reference(one) == reference(wanted) && contains(one, wanted));
        let faults: Vec<String> =
            wanted.iter().filter(differs).map(|object| format!("{} {}", text(object, "/kind"), name(object))).collect();
        if faults.is_empty() {
            return Finding::ok(check, format!("{} as this release has them", counted(wanted.len(), "object")));
        }
        Finding::problem(check, format!("missing, or not as this release has them: {}", faults.join(", ")), add(facts))
    })
}

/// What of a webhook's address is wrong.
fn wrong_address(facts: &Facts, account: &InAccount, url: &str) -> Result<(), Finding> {
    let check = "doorbell";
    let stack = facts.stack.as_ref().map_err(|why| Finding::unknown(check, why.clone()))?;
    let mut parts = url.trim_start_matches("https://").splitn(3, '/');
    let (host, secret, cluster) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if Some(host) != stack.relay_host() {
        let relay = stack.relay_host().unwrap_or("unknown");
        return Err(Finding::problem(check, format!("the webhook calls {host}, and the host of the relay is {relay}"), add(facts)));
    }
    if cluster != facts.cluster {
        return Err(Finding::problem(check, format!("the webhook rings for {cluster:?}, not for {}", facts.cluster), add(facts)));
    }
    match &account.secret {
        Err(why) => Err(Finding::unknown(check, format!("whether the webhook has the right secret: {why}"))),
        Ok(None) => {
            let what = format!("the SSM parameter {} is not there or empty: the relay cannot start", stack.secret_parameter());
            Err(Finding::problem(check, what, add(facts)))
        }
        Ok(Some(stored)) if whittle_relay::cluster_secret(&stored.0, &facts.cluster) == secret => Ok(()),
        Ok(Some(_)) => {
            let what = format!(
                "the secret in the webhook's path does not follow from the SSM parameter {}: the relay refuses it",
                stack.secret_parameter()
            );
            Err(Finding::problem(check, what, add(facts)))
        }
    }
}

/// The stack that acts in a cluster of which this one is a shadow.
fn acting_beside(facts: &Facts) -> Option<&str> {
    let others = facts.account.as_ref().ok()?.other_stacks.as_ref().ok()?;
    let is_shadow = facts.stack.as_ref().is_ok_and(Stack::is_shadow);
    others.first().filter(|_| is_shadow).map(String::as_str)
}

fn doorbell(facts: &Facts, inside: &InCluster) -> Finding {
    let check = "doorbell";
    let watched = inside.watchers.as_ref().ok().and_then(|all| all.first());
    let ready = watched.and_then(|one| one.pointer("/status/readyReplicas")).and_then(Value::as_u64).unwrap_or_default();
    if let Some(other) = acting_beside(facts) {
        return Finding::ok(check, format!("it is for stack {other}, which serves the cluster; a shadow looks once a minute"));
    }
    known(check, &inside.objects, |has| {
        let Some(hook) = has.iter().find(|one| name(one) == "whittle-doorbell") else {
            return match watched {
                Some(_) if 0 < ready => Finding::ok(check, "a watcher"),
                Some(_) => {
                    let remedy =
                        "kubectl -n whittle describe deployment whittle-watcher, and docs/runbooks.md, \"The watcher sends no doorbells\"";
                    Finding::problem(check, "no pod of the watcher is ready, and there is no webhook", remedy)
                }
                None if facts.stack.as_ref().is_ok_and(Stack::has_no_relay) => {
                    Finding::ok(check, "none (RelayAuth=OFF): pods wait for the tick, up to a minute")
                }
                None => Finding::warning(check, "neither a webhook nor a watcher: pods wait for the tick, up to a minute", add(facts)),
            };
        };
        if !facts.stack.as_ref().is_ok_and(|stack| stack.takes_webhooks()) {
            let remedy = "use the watcher (infra/README.md) and delete the webhook, or deploy with RelayAuth=NONE";
            return Finding::problem(check, "the relay takes signed calls only (RelayAuth), and refuses the webhook", remedy);
        }
        let Ok(account) = &facts.account else { return Finding::unknown(check, "the relay's secret cannot be read") };
        let urls = list(hook, "/webhooks").iter().map(|one| text(one, "/clientConfig/url"));
        let fault = urls.map(|url| wrong_address(facts, account, url)).find_map(Result::err);
        fault.unwrap_or_else(|| judge_parts(check, hook, facts))
    })
}

/// Whether a webhook with the right address calls the relay for all that this release rings for.
fn judge_parts(check: &'static str, hook: &Value, facts: &Facts) -> Finding {
    let has: Vec<&str> = list(hook, "/webhooks").iter().map(|one| text(one, "/name")).collect();
    let ours = manifests::webhook("", "", "");
    let wanted = ours.iter().flat_map(|ours| list(ours, "/webhooks")).map(|one| text(one, "/name"));
    let missing: Vec<&str> = wanted.filter(|name| !has.contains(name)).collect();
    if missing.is_empty() {
        return Finding::ok(check, "a webhook with the relay's host and the right secret");
    }
    let what = format!("the webhook is of an earlier release: it lacks {}, and what these report waits for the tick", missing.join(", "));
    Finding::warning(check, what, add(facts))
}

/// What is said in place of the readiness of objects where Whittle does not write their conditions. In shadow mode the conditions are old;
/// where Karpenter runs, they are Karpenter's.
fn unwritten(facts: &Facts, inside: &InCluster, check: &'static str, objects: &[Value]) -> Option<Finding> {
    let shadow = facts.stack.as_ref().is_ok_and(Stack::is_shadow);
    let karpenter = inside.karpenter.as_ref().is_ok_and(|signs| running(facts, signs).is_some());
    (shadow && !karpenter && !objects.is_empty()).then(|| {
        let what = "shadow mode writes no conditions: `whittle status --context --stack` shows what is decided with them";
        Finding::ok(check, format!("{} there; {what}", objects.len()))
    })
}

/// Name, reason and message of a condition that is not true.
fn unready(object: &Value) -> Option<String> {
    let conditions = list(object, "/status/conditions");
    let of = |kind: &str| conditions.iter().find(|one| text(one, "/type") == kind);
    let ready = of("Ready");
    if ready.is_some_and(|ready| text(ready, "/status") == "True") {
        return None;
    }
    let Some(ready) = ready else { return Some(format!("{} has no condition Ready yet", name(object))) };
    // The condition that Ready sums up has the words.
    let why = conditions.iter().find(|one| text(one, "/status") == "False" && text(one, "/type") != "Ready").unwrap_or(ready);
    let message = Some(text(why, "/message")).filter(|message| !message.is_empty()).unwrap_or_else(|| text(ready, "/message"));
    Some(format!("{} is not ready: {} {message}", name(object), text(why, "/type")).trim_end().to_owned())
}

fn classes(facts: &Facts, inside: &InCluster) -> Finding {
    let check = "node classes";
    known(check, &inside.classes, |classes| {
        if let Some(finding) = unwritten(facts, inside, check, classes) {
            return finding;
        }
        let faults: Vec<String> = classes.iter().filter_map(unready).collect();
        if classes.is_empty() {
            return Finding::warning(check, "there is none: no pod gets a node", add(facts));
        }
        if faults.is_empty() {
            return few_addresses(check, classes).unwrap_or_else(|| Finding::ok(check, format!("{} ready", classes.len())));
        }
        let denied = faults.iter().any(|fault| is_denied(fault));
        let remedy = if denied {
            DENIED
        } else {
            "correct what the message names; refresh looks every five minutes, its log (function refresh) says what it tried"
        };
        Finding::problem(check, faults.join("; "), remedy)
    })
}

/// What the condition about subnets says while it is true: of zones in which pods may get no addresses.
fn few_addresses(check: &'static str, classes: &[Value]) -> Option<Finding> {
    let told = |class: &Value| {
        let is_told = |one: &&Value| text(one, "/type") == conditions::SUBNETS_READY && text(one, "/status") == "True";
        let condition = list(class, "/status/conditions").iter().find(is_told)?;
        let message = text(condition, "/message");
        (!message.is_empty()).then(|| format!("{}: {message}", name(class)))
    };
    let told: Vec<String> = classes.iter().filter_map(told).collect();
    let remedy = "what the message names; `aws ec2 describe-subnets` shows AvailableIpAddressCount, and refresh looks every five minutes";
    (!told.is_empty()).then(|| Finding::warning(check, told.join("; "), remedy))
}

fn pools(facts: &Facts, inside: &InCluster) -> Finding {
    let check = "NodePools";
    known(check, &inside.pools, |pools| {
        let (others, pools): (Vec<Value>, Vec<Value>) = pools.iter().cloned().partition(is_anothers_pool);
        if pools.is_empty() && !others.is_empty() {
            let what = format!("there is none but {} of another controller: no pod gets a node of Whittle's", others.len());
            return Finding::warning(check, what, "make one with taints of its own (docs/guide/beside-others.md)");
        }
        if let Some(both) = overlap(&pools, &others) {
            return both;
        }
        if let Some(finding) = unwritten(facts, inside, check, &pools) {
            return finding;
        }
        let faults: Vec<String> = pools.iter().filter_map(unready).collect();
        if pools.is_empty() {
            return Finding::warning(check, "there is none: no pod gets a node", add(facts));
        }
        if faults.is_empty() {
            return in_shadow(check, &pools).unwrap_or_else(|| Finding::ok(check, format!("{} ready", pools.len())));
        }
        let remedy = "make its node class ready, or name one that is there in spec.template.spec.nodeClassRef";
        Finding::problem(check, faults.join("; "), remedy)
    })
}

/// NodePools whose nodes are not disrupted for as long as they have the annotation, which is easily forgotten.
fn in_shadow(check: &'static str, pools: &[Value]) -> Option<Finding> {
    let is_shadow = |pool: &&Value| pool["metadata"]["annotations"][labels::SHADOW] == "true";
    let names: Vec<&str> = pools.iter().filter(is_shadow).map(name).collect();
    let first = names.first()?;
    let what = format!(
        "in shadow mode: {} (annotation {}); disruptions of their nodes are recorded and not carried out",
        first_named(&names, NAMED),
        labels::SHADOW
    );
    Some(Finding::warning(
        check,
        what,
        format!("kubectl annotate nodepool {first} {}-, once they are to be disrupted again", labels::SHADOW),
    ))
}

/// NodePools of two controllers that take any pod: both launch for it.
fn overlap(pools: &[Value], others: &[Value]) -> Option<Finding> {
    let is_open = |pool: &&Value| list(pool, "/spec/template/spec/taints").is_empty();
    let (ours, theirs) = (name(pools.iter().find(is_open)?), name(others.iter().find(is_open)?));
    let what = format!("neither {ours} nor {theirs}, which is another controller's, has taints: both launch for the same pods");
    let remedy = "give one of them taints, or requirements and labels that the pods select (docs/guide/beside-others.md)";
    Some(Finding::warning("NodePools", what, remedy))
}

fn is_denied(message: &str) -> bool {
    ["UnauthorizedOperation", "not authorized", "AccessDenied", "AuthFailure"].iter().any(|words| message.contains(words))
}

fn launches(facts: &Facts, inside: &InCluster) -> Finding {
    let check = "launches";
    known(check, &inside.refusals, |events| {
        let at = |event: &Value| {
            let times = ["/lastTimestamp", "/series/lastObservedTime", "/eventTime", "/metadata/creationTimestamp"];
            times.iter().find_map(|place| text(event, place).parse::<Timestamp>().ok())
        };
        let recent = |event: &&Value| at(event).is_none_or(|at| facts.now.duration_since(at) < SignedDuration::from_hours(1));
        let is_quota = |event: &Value| text(event, "/reason") == "QuotaExceeded";
        // What has to be changed before what may pass.
        let Some(event) = events.iter().filter(recent).max_by_key(|event| (!is_quota(event), at(event))) else {
            return Finding::ok(check, "no Event says that EC2 refused one in the last hour");
        };
        let message = text(event, "/message");
        let of = format!("{} {}", text(event, "/involvedObject/kind"), text(event, "/involvedObject/name"));
        if is_quota(event) {
            let remedy =
                "request more in Service Quotas (Amazon EC2); new accounts may run few vCPUs, and machines are tried down to the smallest";
            return Finding::warning(check, format!("a quota of the account limits those for {of}: {message}"), remedy);
        }
        let remedy = if is_denied(message) { DENIED } else { "docs/runbooks.md, \"EC2 refuses launches\", has what to do for each reason" };
        Finding::problem(check, format!("EC2 refused launches for {of}: {message}"), remedy)
    })
}

/// What shows that a Karpenter runs.
fn running<'a>(facts: &Facts, signs: &'a [Value]) -> Option<&'a Value> {
    signs.iter().find(|sign| {
        if text(sign, "/kind") == "Deployment" {
            return 0 < sign.pointer("/status/readyReplicas").and_then(Value::as_u64).unwrap_or_default();
        }
        let renewed = text(sign, "/spec/renewTime").parse::<Timestamp>();
        let fresh = renewed.is_ok_and(|at| facts.now.duration_since(at) < SignedDuration::from_mins(2));
        fresh && !text(sign, "/spec/holderIdentity").is_empty()
    })
}

fn karpenter(facts: &Facts, inside: &InCluster) -> Finding {
    let check = "Karpenter";
    known(check, &inside.karpenter, |signs| {
        let Some(sign) = running(facts, signs) else { return Finding::ok(check, "none runs in the cluster") };
        let namespace = text(sign, "/metadata/namespace");
        let what =
            format!("it runs ({} {} in namespace {namespace}): Whittle changes nothing in this cluster", text(sign, "/kind"), name(sign));
        let remedy = format!(
            "kubectl -n {namespace} scale deployment karpenter --replicas=0, or deploy with Mode=shadow to compare (docs/runbooks.md)"
        );
        Finding::problem(check, what, remedy)
    })
}
