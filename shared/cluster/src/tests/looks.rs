//! What a look at a node, at its volumes or at a buffer's template reads, and what does not follow from an answer without them.

use super::{Answer, Server, access_to, clusters};
use Answer::{Body, Failed, Status};
use whittle_api::k8s::{Kind, Node, PodSourceKind};
use whittle_ports::{ClusterError, ClusterReader, Disposition, HandleError, Scope, WorkloadReader};

/// An API server with a node that has a pod, and with volumes that are attached to it and to another.
fn with_volumes() -> Server {
    let attachments = r#"{"items":[
        {"metadata":{"name":"mine"},"spec":{"nodeName":"n1","source":{"persistentVolumeName":"pv-1"}}},
        {"metadata":{"name":"odd","labels":[]},"spec":{"nodeName":"n1"}},
        {"metadata":{"name":"odd-too","labels":[]},"spec":{"nodeName":"n2"}},
        {"metadata":{"name":"other"},"spec":{"nodeName":"n2","source":{"persistentVolumeName":"pv-2"}}}]}"#;
    Server::answering(move |_, head| match head {
        head if head.starts_with("GET /api/v1/nodes/") => Body("", br#"{"metadata":{"name":"n1"}}"#.to_vec()),
        head if head.starts_with("GET /api/v1/pods?") => {
            let volumes = r#"[{"name":"token"},{"name":"v","persistentVolumeClaim":{"claimName":"data"}},{"name":"w","ephemeral":{}}]"#;
            let pod = format!(r#"{{"metadata":{{"name":"p","namespace":"a"}},"spec":{{"nodeName":"n1","volumes":{volumes}}}}}"#);
            Body("", format!(r#"{{"items":[{pod}]}}"#).into_bytes())
        }
        head if head.starts_with("GET /apis/storage.k8s.io/v1/volumeattachments?") => Body("", attachments.as_bytes().to_vec()),
        head if head.starts_with("GET /api/v1/namespaces/a/persistentvolumeclaims/data ") => {
            Body("", br#"{"metadata":{"name":"data","namespace":"a"},"spec":{"volumeName":"pv-1"}}"#.to_vec())
        }
        _ => Status(404, 0),
    })
}

#[tokio::test]
async fn a_look_of_a_drain_lists_nothing_of_the_whole_cluster() {
    let server = with_volumes();
    let objects = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Drain, Some("n1")).await.expect("it answers");
    assert_eq!((objects.nodes.len(), objects.pods.len()), (1, 1));
    let heads = server.heads.lock().expect("the lock is not poisoned");
    let is_of_node = |head: &String| head.starts_with("GET /api/v1/nodes/n1 ") || head.contains("fieldSelector=spec.nodeName%3Dn1");
    assert!(heads.len() == 2 && heads.iter().all(is_of_node), "{heads:?}");
}

#[tokio::test]
async fn from_an_api_server_without_pods_it_does_not_follow_that_a_node_has_none() {
    let server = Server::answering(|_, head| match head.starts_with("GET /api/v1/nodes/") {
        true => Body("", br#"{"metadata":{"name":"n1"}}"#.to_vec()),
        false => Failed(404, b"404 page not found".to_vec()),
    });
    for scope in [Scope::Drain, Scope::Pods] {
        let error = clusters(&access_to(&[&server.url])).read(&"demo".into(), scope, Some("n1")).await.expect_err("nothing is known");
        assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater, "{scope:?}");
    }
}

/// Whoever finds no Node of a machine ends it, or keeps it for as long as the kind is not served.
#[tokio::test]
async fn from_an_api_server_without_nodes_it_does_not_follow_that_any_is_gone() {
    for (nodes, is_absent) in [(Some("{\"items\":[]}"), false), (None, true)] {
        let server = Server::answering(move |_, head| match nodes.filter(|_| head.starts_with("GET /api/v1/nodes?")) {
            Some(list) => Body("", list.as_bytes().to_vec()),
            None => Failed(404, b"404 page not found".to_vec()),
        });
        for scope in [Scope::Nodes, Scope::NodesAndClaims, Scope::All] {
            let objects = clusters(&access_to(&[&server.url])).read(&"demo".into(), scope, None).await.expect("it answers");
            assert_eq!((objects.nodes.len(), objects.lacks_kind(Node::KIND)), (0, is_absent), "{scope:?}");
        }
    }
}

/// A machine ends once no volume is attached to it.
#[tokio::test]
async fn from_an_api_server_without_attachments_it_does_not_follow_that_all_volumes_are_detached() {
    let server = Server::answering(|_, _| Failed(404, b"404 page not found".to_vec()));
    let error = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Volumes, Some("n1")).await.expect_err("nothing is known");
    assert_eq!(HandleError::Cluster(error).disposition(), Disposition::RetryLater);
}

#[tokio::test]
async fn attachments_are_newest_and_claims_of_volumes_are_read_only_beside_them() {
    let server = with_volumes();
    let volumes_of = async |node: &'static str| {
        let read = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Volumes, Some(node)).await;
        let objects = read.expect("it answers");
        let attached = objects.volume_attachments.iter().map(|one| one.metadata.name.clone());
        (attached.chain(objects.unreadable.iter().map(|odd| odd.metadata.name.clone())).collect::<Vec<_>>(), objects.volume_claims.len())
    };
    assert_eq!(volumes_of("n1").await, (vec!["mine".to_owned(), "odd".to_owned()], 1), "one that cannot be read is not left out");
    assert_eq!(volumes_of("n3").await, (vec![], 0));
    let heads = server.heads.lock().expect("the lock is not poisoned");
    let attachments: Vec<&String> = heads.iter().filter(|head| head.contains("/volumeattachments?")).collect();
    // Beside them the pods of n1, and the claims of these by their names: one of them does not exist.
    assert_eq!((attachments.len(), heads.len()), (2, 5), "{heads:?}");
    assert!(heads.iter().any(|head| head.contains("/persistentvolumeclaims/p-w ")), "{heads:?}");
    assert!(!heads.iter().any(|head| head.contains("/persistentvolumeclaims?")), "a cluster has tens of thousands: {heads:?}");
    assert!(!attachments.iter().any(|head| head.contains("resourceVersion=0")), "a stale list could end the wait early");
}

/// The list of attachments, with the volume v at n1.
fn one_attached() -> Answer {
    Body("", br#"{"items":[{"metadata":{"name":"a"},"spec":{"nodeName":"n1","source":{"persistentVolumeName":"v"}}}]}"#.to_vec())
}

/// The list of pods, with one on n1 that has these volumes, in JSON and separated by commas.
fn one_pod(volumes: &str) -> Answer {
    let pod = format!(r#"{{"metadata":{{"name":"p","namespace":"a"}},"spec":{{"nodeName":"n1","volumes":[{volumes}]}}}}"#);
    Body("", format!(r#"{{"items":[{pod}]}}"#).into_bytes())
}

/// Each would be a request, and the look would not end before the invocation does: the machine would run for ever.
#[tokio::test]
async fn of_a_pod_that_names_thousands_of_claims_those_of_attached_volumes_are_read() {
    let server = Server::answering(|_, head| match head {
        head if head.starts_with("GET /apis/storage.k8s.io/v1/volumeattachments?") => one_attached(),
        head if head.starts_with("GET /api/v1/pods?") => {
            let volume = |number: usize| format!(r#"{{"name":"v{number}","persistentVolumeClaim":{{"claimName":"c{number}"}}}}"#);
            let volumes = (0..5000).map(volume).collect::<Vec<_>>().join(",");
            one_pod(&volumes)
        }
        head if head.starts_with("GET /api/v1/persistentvolumes/v ") => {
            Body("", br#"{"metadata":{"name":"v"},"spec":{"claimRef":{"namespace":"a","name":"c7"}}}"#.to_vec())
        }
        head if head.starts_with("GET /api/v1/namespaces/a/persistentvolumeclaims/c7 ") => {
            Body("", br#"{"metadata":{"name":"c7","namespace":"a"},"spec":{"volumeName":"v"}}"#.to_vec())
        }
        _ => Status(404, 0),
    });
    let volumes = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::Volumes, Some("n1")).await.expect("it answers");
    assert_eq!(volumes.volume_claims.iter().map(|claim| claim.metadata.name.as_str()).collect::<Vec<_>>(), ["c7"]);
    let heads = server.heads.lock().expect("the lock is not poisoned");
    assert_eq!(heads.len(), 4, "{heads:?}");
}

#[tokio::test]
async fn a_look_for_a_decision_lists_no_attachments() {
    let server = with_volumes();
    let objects = clusters(&access_to(&[&server.url])).read(&"demo".into(), Scope::All, None).await.expect("it answers");
    assert!(objects.volume_attachments.is_empty() && objects.unreadable.is_empty());
    let heads = server.heads.lock().expect("the lock is not poisoned");
    let lists = |kind: &str| heads.iter().filter(|head| head.contains(&format!("/{kind}?"))).count();
    assert_eq!((lists("volumeattachments"), lists("persistentvolumeclaims"), lists("persistentvolumes")), (0, 1, 1), "{heads:?}");
}

/// An API server accepts any text as the name of a pod's claim, and of a buffer's template.
#[tokio::test]
async fn what_cannot_be_a_name_is_that_of_an_absent_object_and_no_address() {
    let server = Server::answering(|_, head| match head {
        head if head.starts_with("GET /apis/storage.k8s.io/v1/volumeattachments?") => one_attached(),
        head if head.starts_with("GET /api/v1/pods?") => {
            let volume = |name: &str, claim: &str| format!(r#"{{"name":"{name}","persistentVolumeClaim":{{"claimName":"{claim}"}}}}"#);
            let volumes = [volume("v", "my data"), volume("w", "../../b/secrets/x"), volume("x", &"x".repeat(70_000))].join(",");
            one_pod(&volumes)
        }
        _ => Status(404, 0),
    });
    let clusters = clusters(&access_to(&[&server.url]));
    let volumes = clusters.read(&"demo".into(), Scope::Volumes, Some("n1")).await.expect("it answers");
    assert_eq!((volumes.volume_attachments.len(), volumes.volume_claims.len()), (1, 0), "a drain can go on");
    // No request has an address of more than 64 KiB.
    let long = "x".repeat(70_000);
    for name in ["my template?watch=1", "../../b/podtemplates/x", long.as_str()] {
        let source = clusters.pod_source(&"demo".into(), PodSourceKind::PodTemplate, "a", name).await;
        assert!(matches!(source, Ok(None)), "{name}: a plan can go on");
    }
    let heads = server.heads.lock().expect("the lock is not poisoned");
    let asked: Vec<&str> = heads.iter().filter_map(|head| head.split(' ').nth(1)).filter(|path| path.contains("/namespaces/")).collect();
    let names = ["persistentvolumeclaims/my%20data", "podtemplates/my%20template%3Fwatch%3D1"];
    assert_eq!(asked, names.map(|name| format!("/api/v1/namespaces/a/{name}")));
}

#[tokio::test]
async fn a_template_that_cannot_be_read_is_the_matter_of_its_buffer_alone() {
    let server = Server::answering(|_, _| Body("", br#"{"metadata":{"name":"a"},"template":{"spec":{"containers":"any"}}}"#.to_vec()));
    let read = clusters(&access_to(&[&server.url])).pod_source(&"demo".into(), PodSourceKind::PodTemplate, "a", "a").await;
    let Ok(Some(Err(what))) = &read else { panic!("{read:?}") };
    assert!(what.contains("containers: "), "{what}");
}

/// Each buffer may name another template, and the answer to all of them is the same.
#[tokio::test]
async fn a_refusal_of_templates_is_no_matter_of_one_of_them() {
    let server = Server::answering(|_, _| Status(403, 0));
    let read = clusters(&access_to(&[&server.url])).pod_source(&"demo".into(), PodSourceKind::PodTemplate, "a", "a").await;
    assert!(matches!(&read, Err(ClusterError::Invalid { what, .. }) if what == "PodTemplate a/a"), "{read:?}");
}
