//! A Node that ends may have a successor of its name: what is deleted and let go is the Node that was read.

use super::NODE;
use super::over_sim::{Scene, ending, planned, serving};
use crate::LastPlanned;
use futures::executor::block_on;
use std::sync::Mutex;
use whittle_api::k8s::Node;
use whittle_claims::{DeletionReason, Event};
use whittle_ec2::instance::InstanceState;
use whittle_ports::{ClusterError, NodePatch, Settings};
use whittle_testkit::{InterceptedApiServer, Interceptor, after, at, deletion};

/// The uids of the Nodes that are deleted, and of those that lose their finalizer.
#[derive(Default)]
struct Recorder {
    deleted: Mutex<Vec<String>>,
    released: Mutex<Vec<String>>,
}

impl Interceptor for Recorder {
    fn patch_node(&self, _: &str, _: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        if patch.remove_finalizer.is_some() {
            self.released.lock().unwrap().push(patch.uid.clone());
        }
        Ok(())
    }
    fn delete_node(&self, _: &str, uid: &str) -> Result<(), ClusterError> {
        self.deleted.lock().unwrap().push(uid.to_owned());
        Ok(())
    }
}

/// The uids of the Nodes that a run deletes, and of those that it lets go.
fn uids_of_a_run(scene: &Scene) -> (Vec<String>, Vec<String>) {
    let ports = scene.simulation.ports();
    let server = InterceptedApiServer { ports: &ports, interceptor: Recorder::default() };
    block_on(crate::handle(server.adapters(), &Settings::default(), &LastPlanned::default(), &planned().key)).unwrap();
    let Recorder { deleted, released } = server.interceptor;
    (deleted.into_inner().unwrap(), released.into_inner().unwrap())
}

fn uid(scene: &Scene) -> String {
    let uid = scene.get::<Node>(NODE).unwrap().metadata.uid;
    assert!(!uid.is_empty());
    uid
}

#[test]
fn a_drain_deletes_the_node_that_it_has_read_and_no_other_of_its_name() {
    let scene = Scene::of(&ending(None));
    let uid = uid(&scene);
    assert_eq!(uids_of_a_run(&scene), (vec![uid], Vec::new()));
}

#[test]
fn the_node_of_an_ended_machine_is_let_go_and_no_other_of_its_name() {
    let requested = Event::DeletionRequested(deletion(DeletionReason::Underutilized, at(0)));
    let scene = Scene::of(&after(&serving(), &[requested, Event::TerminationSent], at(0)));
    scene.set_state(InstanceState::Terminated);
    let uid = uid(&scene);
    assert_eq!(uids_of_a_run(&scene), (vec![uid.clone()], vec![uid]));
    assert!(scene.get::<Node>(NODE).is_none());
}
