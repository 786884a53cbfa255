//! Hooks of Helm in rendered charts, as `helm template` prints them: objects that are created at an event of a release, and are no part of
//! it.

use super::documents::{Document, ParsedDocuments};
use super::remarks::NAMED_MAX;
use crate::listing::first_named;

/// The annotation that makes an object a hook; its value is a list of events.
const HOOK: &str = "helm.sh/hook";
/// The events besides those of an installation and of an upgrade.
const LATER: [&str; 7] = ["test", "test-success", "test-failure", "pre-delete", "post-delete", "pre-rollback", "post-rollback"];

/// Takes away what no installation and no upgrade creates: tests, and what cleans up. What a cluster has is there, whatever has created it.
/// Returns notes, also about what ends with the installation and is planned as if it stayed.
pub(super) fn set_aside(found: &mut ParsedDocuments) -> Vec<String> {
    let (mut later, mut brief) = (Vec::new(), Vec::new());
    found.documents.retain(|document| {
        let Some(events) = hook(document).filter(|events| !events.is_empty() && !document.is_of_cluster()) else { return true };
        let shown = document.identity().map_or_else(|| document.kind().to_owned(), |identity| identity.shown());
        // Helm reads them whatever their case.
        if events.split(',').all(|event| LATER.contains(&event.trim().to_ascii_lowercase().as_str())) {
            later.push(shown);
            return false;
        }
        // Other kinds that are hooks mostly stay.
        if document.pod.is_some() || document.kind() == "Job" {
            brief.push(shown);
        }
        true
    });
    let noted = |names: &[String], what: &str| (!names.is_empty()).then(|| format!("{} {what}", first_named(names, NAMED_MAX)));
    let later = noted(
        &later,
        "left aside: by the annotation helm.sh/hook Helm creates this for a test, a rollback or a deletion alone; without that it counts",
    );
    let brief = noted(
        &brief,
        "planned as if it stayed: by the annotation helm.sh/hook it ends with the installation or upgrade; leave it out to plan what stays",
    );
    later.into_iter().chain(brief).collect()
}

/// The events of which an object is a hook.
fn hook(document: &Document) -> Option<&str> {
    match &document.pod {
        Some(pod) => pod.metadata.annotation(HOOK),
        None => document.value.pointer("/metadata/annotations")?.get(HOOK)?.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that are left, and what is said.
    fn left(documents: &[String]) -> (Vec<String>, String) {
        let mut found = ParsedDocuments::default();
        found.add_text("in.yaml", &documents.join("---\n"));
        assert_eq!(found.len(), documents.len(), "all are read");
        let notes = set_aside(&mut found);
        let names = found.documents.iter().filter_map(Document::identity).map(|identity| identity.shown());
        (names.collect(), notes.join("\n"))
    }

    fn hook_of(kind: &str, name: &str, events: &str, more: &str) -> String {
        let pod = "{containers: [{name: c, image: i}], restartPolicy: Never}";
        let (version, spec) = match kind {
            "Job" => ("batch/v1", format!("{{template: {{spec: {pod}}}}}")),
            _ => ("v1", pod.to_owned()),
        };
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}{more}, annotations: {{helm.sh/hook: '{events}'}}}}\n\
             spec: {spec}\n"
        )
    }

    #[test]
    fn what_no_installation_creates_is_left_aside_and_said_so() {
        for (kind, events) in
            [("Pod", "test"), ("Pod", "Test"), ("Job", "test-success"), ("Job", "pre-delete, post-delete"), ("Pod", "post-rollback")]
        {
            let (names, notes) = left(&[hook_of(kind, "h", events, ""), hook_of("Pod", "web", "", "")]);
            assert_eq!(names, ["Pod \"web\""], "{kind} {events}");
            assert!(notes.starts_with(&format!("{kind} \"h\" left aside: by the annotation helm.sh/hook ")), "{notes}");
            assert_eq!(notes.lines().count(), 1, "{notes}");
        }
    }

    #[test]
    fn what_an_installation_runs_is_planned_and_said_to_end() {
        for events in ["pre-install", "post-upgrade", "pre-install,test", "something-new"] {
            let (names, notes) = left(&[hook_of("Job", "migrate", events, "")]);
            assert_eq!(names, ["Job \"migrate\""], "{events}");
            assert!(notes.starts_with("Job \"migrate\" planned as if it stayed: "), "{events}: {notes}");
        }
    }

    #[test]
    fn what_a_cluster_has_is_there() {
        for more in [", uid: u1", ", uid: u1, namespace: team"] {
            let (names, notes) = left(&[hook_of("Pod", "h", "test", more), hook_of("Job", "h", "test", more)]);
            assert_eq!((names.len(), notes.as_str()), (2, ""), "{more}");
        }
        let bound = hook_of("Pod", "h", "test", "").replace("spec: {", "spec: {nodeName: n1, ");
        assert_eq!(left(&[bound]).0.len(), 1);
        let seen = hook_of("Job", "h", "test", "") + "status: {active: 1}\n";
        assert_eq!(left(&[seen]).0.len(), 1);
    }
}
