//! Nodes without the finalizer of ours, which keeps a Node and its pods until they are drained.

use super::NODE;
use super::over_sim::{Scene, budget, ending, planned, running};
use crate::LastPlanned;
use futures::executor::block_on;
use std::sync::Mutex;
use whittle_api::k8s::{Node, Pod};
use whittle_ports::{ClusterError, NodePatch, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, at};

/// What is asked of the API server for the Node, in this order.
#[derive(Default)]
struct Recorder(Mutex<Vec<&'static str>>);

impl Interceptor for Recorder {
    fn patch_node(&self, _: &str, _: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        self.0.lock().unwrap().push(if patch.add_finalizer.is_some() { "guarded" } else { "changed" });
        Ok(())
    }
    fn delete_node(&self, _: &str, _: &str) -> Result<(), ClusterError> {
        self.0.lock().unwrap().push("deleted");
        Ok(())
    }
}

/// What the first run of a drain asks for the Node, after this change of it. A budget holds the only pod.
fn asked(change: fn(&mut Node)) -> (Scene, Vec<&'static str>) {
    let scene = Scene::of(&ending(None));
    scene.create(budget());
    scene.create(running("web-0"));
    scene.change::<Node>(NODE, change);
    let ports = scene.simulation.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: Recorder::default() };
    block_on(crate::handle(server.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
    let asked = server.interceptor.0.into_inner().unwrap();
    (scene, asked)
}

/// As one that joined when its claim was being deleted already. The API server would let it go at once, and its pods with it.
#[test]
fn a_node_is_guarded_before_it_is_deleted_and_stays_with_its_pods() {
    let (scene, asked) = asked(|node| node.metadata.finalizers.clear());
    assert_eq!(asked, ["guarded", "deleted"]);
    assert!(scene.is_held(), "it stays until its machine has ended");
    assert!(!scene.get::<Pod>("default/web-0").unwrap().metadata.is_deleting());
}

#[test]
fn a_node_that_is_guarded_already_is_not_guarded_again() {
    assert_eq!(asked(|_| ()).1, ["changed", "deleted"]);
}

/// The API server takes no finalizer for an object that is being deleted: the drain would never begin.
#[test]
fn a_node_that_somebody_else_guards_while_it_is_deleted_gets_no_finalizer() {
    let (_, asked) = asked(|node| {
        node.metadata.finalizers = vec!["example.com/theirs".into()];
        node.metadata.deletion_timestamp = Some(at(0));
    });
    assert_eq!(asked, ["changed"]);
}
