//! Classifies the API server's errors: the only module that reads status codes.

use crate::response::Status;
use std::error::Error;
use std::io;
use std::time::Duration;
use whittle_ports::ClusterError;
use whittle_units::ClusterName;

/// The pause after throttling that states none; API servers usually ask for one second.
const THROTTLED_PAUSE: Duration = Duration::from_secs(1);
/// Longer pauses are not waited for, because the next invocation comes sooner.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The pause after a broken connection, or an error of the server.
const BROKEN_PAUSE: Duration = Duration::from_millis(200);
/// The remedy for an API server that cannot be reached.
const UNREACHABLE: &str =
    "is its endpoint private, or closed to the functions' addresses? Then set the stack's parameters VpcSubnets and VpcSecurityGroups";

/// The remedy where a function lacks a right.
const NO_RIGHT: &str = "has the access entry of the function's role the groups of its row in infra/README.md, and is \
    infra/cluster/rbac.yaml of this release applied?";

/// The field that is refused where a patch states another uid than its object has. Deletions have preconditions, patches have none.
const UID_FIELD: &str = "metadata.uid";

/// The cause that the API server names when it creates nothing in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The cause that the eviction API names when a PodDisruptionBudget forbids an eviction.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

/// How what the eviction API itself says of a budget begins. The authorizer calls them by the plural.
const OF_A_BUDGET: &str = "poddisruptionbudget.policy \"";
/// How a conflict names a budget.
const OF_ANY_BUDGET: &str = "poddisruptionbudgets.policy \"";

/// How a server-side apply is refused of which the definition of the kind lacks a field. The code is 500, though it never succeeds.
const UNDECLARED: &str = "field not declared in schema";

/// What a failed request means for the requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The object, or its kind, does not exist.
    NotFound,
    /// An object of this name exists.
    AlreadyExists,
    /// The object changed since it was read, or is another object of the same name.
    Conflict,
    /// A PodDisruptionBudget does not allow the eviction now.
    Forbidden,
    Throttled,
    /// The request can never succeed as it is, or our role lacks the permission.
    Invalid,
    /// Our token is not accepted (any more).
    Unauthenticated,
    /// A list's continue token has expired.
    Expired,
    /// The response is longer than what is read of one.
    TooLong,
    /// The change may have happened.
    Unknown,
}

/// The class of an error response: HTTP code, Kubernetes' reason, reasons of its causes, message.
pub(crate) fn class_of(code: u16, reason: &str, causes: &[&str], message: &str) -> Class {
    match code {
        _ if is_of_policy(message) => Class::Invalid,
        401 => Class::Unauthenticated,
        404 => Class::NotFound,
        409 if reason == "AlreadyExists" => Class::AlreadyExists,
        // The eviction API counts an eviction in the status of its budget, where others were faster for ten seconds. We write no budgets.
        409 if message.contains(OF_ANY_BUDGET) => Class::Forbidden,
        409 => Class::Conflict,
        410 => Class::Expired,
        // The eviction API returns 429 for a budget as well as for throttling; only the cause distinguishes them. It returns 403, mostly
        // without a cause, for one whose status cannot be: too many evictions that its controller has not seen yet.
        403 | 429 if causes.contains(&DISRUPTION_BUDGET) => Class::Forbidden,
        403 if message.starts_with(OF_A_BUDGET) => Class::Forbidden,
        // The eviction API does not support pods with more than one budget.
        500 if message.contains("more than one PodDisruptionBudget") => Class::Forbidden,
        // It has tried for ten seconds to count the eviction, while others of the same budget were faster.
        504 if message.contains("couldn't update PodDisruptionBudget") => Class::Forbidden,
        500 if message.contains(UNDECLARED) => Class::Invalid,
        // Timeouts: 504 of the server, 408 of a proxy.
        408 | 500 | 502 | 504 => Class::Unknown,
        429 | 503 => Class::Throttled,
        400..500 => Class::Invalid,
        _ => Class::Unknown,
    }
}

/// Whether an admission webhook or a ValidatingAdmissionPolicy refused the request. Either chooses the code itself: 429 is that of webhooks
/// that have pods moved by somebody else, 500 that of some which fail. It says nothing about the API server, nor about other requests.
fn is_of_policy(message: &str) -> bool {
    let of_webhook = message.starts_with("admission webhook ") && message.contains(" denied the request");
    of_webhook || (message.contains("ValidatingAdmissionPolicy '") && message.contains(" denied request"))
}

/// What an error response says. Of a budget only the cause has the name and the numbers.
fn text_of(class: Class, status: &Status) -> String {
    let causes = status.details.as_ref().and_then(|details| details.causes.as_deref()).unwrap_or_default();
    let budget = causes.iter().find(|cause| cause.reason == DISRUPTION_BUDGET && !cause.message.is_empty());
    budget.filter(|_| class == Class::Forbidden).map_or(&status.message, |cause| &cause.message).clone()
}

/// A failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) message: String,
    /// The object that the response names, if any.
    pub(crate) object: Option<String>,
    /// The pause after which a read may be retried.
    pub(crate) retry_after: Option<Duration>,
    /// There was no response.
    is_no_response: bool,
    /// There was none in the time that the request had.
    pub(crate) is_timeout: bool,
    /// The server has read the object, and refuses what it says.
    pub(crate) is_of_validation: bool,
    /// Its namespace is being deleted, so that nothing is created there.
    pub(crate) is_of_deleted_namespace: bool,
}

impl Failure {
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self {
            class: Class::Unknown,
            message: message.into(),
            object: None,
            retry_after: None,
            is_no_response: false,
            is_timeout: false,
            is_of_validation: false,
            is_of_deleted_namespace: false,
        }
    }

    /// A response whose body cannot be read to its end.
    pub(crate) fn of_body(error: &io::Error) -> Self {
        let class = if error.kind() == io::ErrorKind::FileTooLarge { Class::TooLong } else { Class::Unknown };
        Self { class, ..Self::unknown(format!("its response cannot be read: {error}")) }
    }

    /// No response in time.
    pub(crate) fn timeout(limit: Duration) -> Self {
        Self { is_no_response: true, is_timeout: true, ..Self::unknown(format!("no response within {limit:?} ({UNREACHABLE})")) }
    }

    /// The connection failed, or the server does not have the cluster's certificate.
    fn broken(error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = inner.source();
        }
        Self { retry_after: Some(BROKEN_PAUSE), is_no_response: true, ..Self::unknown(format!("{message} ({UNREACHABLE})")) }
    }

    /// Whether another endpoint, certificate or token may help.
    pub(crate) fn is_of_connection(&self) -> bool {
        self.is_no_response || self.class == Class::Unauthenticated
    }

    /// Whether the cluster's definition of the kind lacks a field of what was to be applied.
    pub(crate) fn is_of_definition(&self) -> bool {
        self.class == Class::Invalid && self.message.contains(UNDECLARED)
    }

    /// What a response with this code reports. `pause` is that of its header.
    pub(crate) fn of_status(code: u16, status: &Status, pause: Option<Duration>) -> Self {
        let details = status.details.as_ref();
        let causes = details.and_then(|details| details.causes.as_deref()).unwrap_or_default();
        let reasons: Vec<&str> = causes.iter().map(|cause| cause.reason.as_str()).collect();
        let object = details.map(|details| details.name.clone()).filter(|name| !name.is_empty());
        let is_another = code == 422 && causes.iter().any(|cause| cause.field == UID_FIELD);
        let class = if is_another { Class::Conflict } else { class_of(code, &status.reason, &reasons, &status.message) };
        let retry_after = match class {
            Class::Throttled => {
                let stated = details.map(|details| u64::from(details.retry_after_seconds)).filter(|&seconds| seconds > 0);
                Some(stated.map(Duration::from_secs).or(pause).unwrap_or(THROTTLED_PAUSE)).filter(|pause| *pause <= PAUSE_MAX)
            }
            // A store that elects its leader, a proxy that loses its server: over in a moment.
            Class::Unknown => Some(BROKEN_PAUSE),
            _ => None,
        };
        Self {
            class,
            object,
            retry_after,
            is_of_validation: code == 422 && !is_another,
            is_of_deleted_namespace: code == 403 && reasons.contains(&NAMESPACE_TERMINATING),
            ..Self::unknown(text_of(class, status))
        }
    }

    /// The port's error. `what` names the object, such as `Node "ip-10-0-0-1"`.
    pub(crate) fn into_error(self, cluster: &ClusterName, what: &str) -> ClusterError {
        let (what, message) = (what.to_owned(), self.message);
        match self.class {
            Class::NotFound => ClusterError::NotFound { what },
            Class::AlreadyExists | Class::Conflict => ClusterError::Conflict { what },
            Class::Forbidden => ClusterError::EvictionForbidden { what, message },
            Class::Throttled => ClusterError::Throttled { what },
            // So the authorizer says it; policies and webhooks use the same code.
            Class::Invalid if message.contains(" is forbidden: User ") => {
                ClusterError::Invalid { what, message: format!("{message} ({NO_RIGHT})") }
            }
            Class::Invalid => ClusterError::Invalid { what, message },
            Class::Unauthenticated => {
                let remedy = "does the cluster have an access entry for the function's role?";
                ClusterError::NoAccess { cluster: cluster.clone(), message: format!("{what}: {message} ({remedy})") }
            }
            Class::Expired | Class::TooLong | Class::Unknown => ClusterError::Unavailable { cluster: cluster.clone(), what, message },
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            broken @ (kube::Error::HyperError(_) | kube::Error::Service(_)) => Self::broken(&broken),
            other => Self::unknown(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: u16, reason: &str, causes: &[&str], message: &str, expected: Class) {
        assert_eq!(class_of(code, reason, causes, message), expected, "{code} {reason} {causes:?} {message}");
    }

    #[test]
    fn every_error_response_has_a_class() {
        check(400, "BadRequest", &[], "", Class::Invalid);
        check(401, "Unauthorized", &[], "", Class::Unauthenticated);
        check(403, "Forbidden", &[], "User cannot patch nodes", Class::Invalid);
        check(403, "Forbidden", &["DisruptionBudget"], "", Class::Forbidden);
        check(404, "NotFound", &[], "", Class::NotFound);
        check(404, "", &[], "404 page not found", Class::NotFound);
        check(408, "", &[], "", Class::Unknown);
        check(409, "AlreadyExists", &[], "", Class::AlreadyExists);
        check(409, "Conflict", &["FieldManagerConflict"], "", Class::Conflict);
        check(409, "Conflict", &[], "the UID in the precondition does not match", Class::Conflict);
        check(410, "Expired", &[], "", Class::Expired);
        check(410, "Gone", &[], "", Class::Expired);
        check(422, "Invalid", &["FieldValueInvalid"], "", Class::Invalid);
        check(429, "TooManyRequests", &["DisruptionBudget"], "", Class::Forbidden);
        check(429, "TooManyRequests", &[], "Too many requests, please try again later.", Class::Throttled);
        check(500, "InternalError", &[], "", Class::Unknown);
        check(
            500,
            "",
            &[],
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            Class::Forbidden,
        );
        let lacks = "failed to create typed patch object (/a; karpenter.sh/v1, Kind=NodePool): .status.nodes: field not declared in schema";
        check(500, "", &[], lacks, Class::Invalid);
        check(502, "", &[], "", Class::Unknown);
        check(503, "ServiceUnavailable", &[], "", Class::Throttled);
        check(504, "Timeout", &[], "", Class::Unknown);
        check(504, "Timeout", &[], r#"Timeout: couldn't update PodDisruptionBudget "web" due to conflicts"#, Class::Forbidden);
        check(0, "", &[], "", Class::Unknown);
    }

    #[test]
    fn a_budget_that_cannot_be_counted_in_forbids_the_eviction_and_does_not_mean_that_the_pod_is_gone() {
        let unconfirmed = r#"poddisruptionbudget.policy "web" is forbidden: DisruptedPods map too big - too many evictions not confirmed"#;
        check(403, "Forbidden", &[], unconfirmed, Class::Forbidden);
        let busy = r#"Operation cannot be fulfilled on poddisruptionbudgets.policy "web": the object has been modified"#;
        check(409, "Conflict", &[], busy, Class::Forbidden);
        // What else has these codes.
        let not_ours = r#"poddisruptionbudgets.policy is forbidden: User "whittle" cannot list resource "poddisruptionbudgets""#;
        check(403, "Forbidden", &[], not_ours, Class::Invalid);
        let of_pod = r#"Operation cannot be fulfilled on pods "web": the object has been modified"#;
        check(409, "Conflict", &[], of_pod, Class::Conflict);
    }

    #[test]
    fn what_a_policy_refuses_is_neither_an_outage_nor_throttling() {
        let webhook = r#"admission webhook "drain.example.com" denied the request: the operator moves this pod"#;
        let policy = "pods \"web-1\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: not now";
        for code in [400, 401, 403, 404, 409, 422, 429, 500, 503] {
            check(code, "", &[], webhook, Class::Invalid);
            check(code, "", &[], policy, Class::Invalid);
        }
        // A webhook that does not answer may answer the next request.
        let silent = r#"Internal error occurred: failed calling webhook "drain.example.com": context deadline exceeded"#;
        check(500, "InternalError", &[], silent, Class::Unknown);
        // What others say of webhooks does not count.
        check(429, "TooManyRequests", &["DisruptionBudget"], "Cannot evict pod.", Class::Forbidden);
        check(409, "Conflict", &[], "the object has been modified", Class::Conflict);
    }

    #[test]
    fn a_patch_for_another_uid_is_a_conflict_and_no_other_refused_field_is() {
        let failed = |code: u16, fields: &[&str]| {
            let causes: Vec<_> = fields.iter().map(|field| serde_json::json!({ "reason": "FieldValueInvalid", "field": field })).collect();
            let status = serde_json::json!({ "reason": "Invalid", "details": { "causes": causes } });
            let failure = Failure::of_status(code, &serde_json::from_value(status).expect("a status"), None);
            (failure.class, failure.is_of_validation)
        };
        assert_eq!(failed(422, &["metadata.uid"]), (Class::Conflict, false));
        assert_eq!(failed(422, &["spec.taints[0].key", "metadata.uid"]), (Class::Conflict, false), "whatever else it says");
        assert_eq!(failed(422, &["metadata.labels"]), (Class::Invalid, true));
        assert_eq!(failed(422, &["metadata.ownerReferences[0].uid"]), (Class::Invalid, true));
        assert_eq!(failed(422, &[]), (Class::Invalid, true));
        assert_eq!(failed(400, &["metadata.uid"]), (Class::Invalid, false));
    }

    #[test]
    fn a_refused_eviction_names_its_budget() {
        let failed = |code: u16, reason: &str, said: &str| {
            let causes = serde_json::json!([{ "reason": reason, "message": said }]);
            let status = serde_json::json!({ "message": "Cannot evict pod.", "details": { "causes": causes } });
            Failure::of_status(code, &serde_json::from_value(status).expect("a status"), None).message
        };
        let needs = "The disruption budget web needs 2 healthy pods and has 2 currently";
        assert_eq!(failed(429, "DisruptionBudget", needs), needs);
        assert_eq!(failed(403, "DisruptionBudget", "too many pending evictions"), "too many pending evictions");
        assert_eq!(failed(429, "DisruptionBudget", ""), "Cannot evict pod.");
        assert_eq!(failed(422, "FieldValueInvalid", "must be a number"), "Cannot evict pod.");
    }
}
