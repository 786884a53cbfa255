//! Machines whose claims do not know the Node: where it is looked for, and what is not believed.

use super::NODE;
use super::over_sim::{Scene, budget, ending, own_machine, running, unnamed};
use whittle_api::k8s::{Kind as _, Node, Pod};
use whittle_api::karpenter::NodeClaim;
use whittle_claims::Claim;
use whittle_ec2::instance::InstanceState;
use whittle_testkit::at;

#[test]
fn a_machine_is_drained_although_its_claim_does_not_know_the_node() {
    let mut scene = Scene::of(&unnamed());
    scene.create(budget());
    scene.create(running("web-0"));
    for seconds in [0, 1, 2, 30, 60] {
        scene.set_time(seconds);
        scene.run();
        assert_eq!(scene.state(), InstanceState::Running, "at {seconds}");
        assert!(!scene.get::<Pod>("default/web-0").unwrap().metadata.is_deleting(), "its budget holds at {seconds}");
    }
    assert_eq!((scene.claim().phase.name(), scene.claim().node_name()), ("Draining", Some(NODE)));
}

/// The Node of a machine that no claim names is found although no list has it, and its machine is not ended under its pods.
#[track_caller]
fn check_found_unlisted(change: impl FnOnce(&Scene)) {
    let mut scene = Scene::of(&unnamed());
    scene.create(running("web-0"));
    scene.simulation.world().hide_always(Node::KIND, NODE, false);
    change(&scene);
    for seconds in [0, 5, 10, 30, 60] {
        scene.set_time(seconds);
        scene.run();
        assert_eq!(scene.state(), InstanceState::Running, "at {seconds}");
    }
    assert_eq!(scene.claim().node_name(), Some(NODE));
}

#[test]
fn an_unlisted_node_is_looked_up_by_the_name_in_the_nodeclaim() {
    check_found_unlisted(|scene| scene.change::<NodeClaim>("default-1", |shown| shown.status.node_name = NODE.into()));
}

#[test]
fn an_unlisted_node_is_looked_up_by_its_dns_name() {
    check_found_unlisted(|_| ());
}

/// It was missing a minute ago, and the API server has shown it by name since: one more answer without it proves nothing.
#[test]
fn a_node_that_was_found_by_name_is_not_gone_by_the_next_answer_that_lacks_it() {
    for is_named in [false, true] {
        let mut scene = Scene::of(&Claim { node_missing_since: Some(at(-60)), ..unnamed() });
        scene.simulation.world().hide_always(Node::KIND, NODE, false);
        if is_named {
            scene.change::<NodeClaim>("default-1", |shown| shown.status.node_name = NODE.into());
        }
        assert_eq!(scene.run().counted("node_found"), 1);
        for second in [1, 10] {
            scene.set_time(second);
            let report = scene.run();
            assert_eq!((report.counted("node_not_seen"), report.counted("termination_sent")), (1, 0), "at {second}");
        }
        assert_eq!((scene.claim().node_missing_since, scene.state()), (Some(at(1)), InstanceState::Running));
    }
}

#[test]
fn a_nodeclaims_node_of_another_machine_is_ignored() {
    let scene = Scene::of(&unnamed());
    scene.simulation.world().hide_always(Node::KIND, NODE, false);
    scene.change::<Node>(NODE, |node| node.spec.provider_id = "aws:///z/i-2".into());
    scene.change::<NodeClaim>("default-1", |shown| {
        shown.status.node_name = "of-another".into();
        shown.status.provider_id = "aws:///z/i-2".into();
    });
    scene.run();
    assert_eq!((scene.claim().node_name(), scene.state()), (None, InstanceState::Running));
}

#[test]
fn a_node_that_is_not_the_machines_is_not_believed_whatever_its_nodeclaim_says() {
    for (name, its_machine) in [("nowhere", None), ("no name/..", None), ("of-another", Some("aws:///z/i-2"))] {
        let mut scene = Scene::of(&unnamed());
        scene.create(budget());
        scene.create(running("web-0"));
        scene.simulation.world().hide_always(Node::KIND, NODE, false);
        scene.change::<NodeClaim>("default-1", |shown| shown.status.node_name = name.into());
        if let Some(id) = its_machine {
            let mut another = scene.get::<Node>(NODE).unwrap();
            (another.metadata.name, another.spec.provider_id) = (name.into(), id.into());
            scene.simulation.world().cluster.objects.nodes.insert(name.into(), another);
        }
        for seconds in [0, 5, 10, 30, 60] {
            scene.set_time(seconds);
            scene.run();
            assert_eq!(scene.state(), InstanceState::Running, "{name} at {seconds}");
        }
        assert_eq!(scene.claim().node_name(), Some(NODE), "it is found by the name that EC2 gives it");
    }
}

/// How many terminations these looks send, while the only Node of the cluster, which has this provider id, cannot be read, and EC2 does not
/// tell the name of the machine's.
fn sent_beside_unreadable(claim: &Claim, provider_id: &str, looks: [i64; 3]) -> [u64; 3] {
    let mut scene = Scene::of(claim);
    scene.world().region.machines.get_mut(&own_machine().instance_id).unwrap().instance.private_dns_name.clear();
    scene.change::<Node>(NODE, |node| node.spec.provider_id = provider_id.into());
    scene.world().hide_always(Node::KIND, NODE, true);
    looks.map(|second| {
        scene.set_time(second);
        scene.run().counted("termination_sent")
    })
}

#[test]
fn a_node_that_cannot_be_read_holds_its_machine_until_the_deadline_and_no_other_machine() {
    let own = own_machine().provider_id;
    assert_eq!(sent_beside_unreadable(&unnamed(), own.as_str(), [0, 10, 3600]), [0, 0, 0]);
    assert_eq!(sent_beside_unreadable(&unnamed(), "", [0, 10, 3600]), [0, 0, 0], "it may be the machine's");
    assert_eq!(sent_beside_unreadable(&unnamed(), "aws:///z/i-2", [0, 9, 10]), [0, 0, 1]);
    let due = Claim { phase: unnamed().phase, ..ending(Some(at(60))) };
    assert_eq!(sent_beside_unreadable(&due, own.as_str(), [0, 60, 61]), [0, 0, 1]);
}

/// What is missing in EC2's answers may be there a moment later, and with it the name of the Node.
#[test]
fn a_machine_that_ec2_does_not_show_either_is_looked_for_longer_before_it_is_ended() {
    let mut scene = Scene::of(&unnamed());
    scene.world().cluster.objects.nodes.clear();
    scene.world().region.machines.clear();
    for (second, sent) in [(0, 0), (10, 0), (59, 0), (60, 1)] {
        scene.set_time(second);
        assert_eq!(scene.run().counted("termination_sent"), sent, "at {second}");
    }
}
