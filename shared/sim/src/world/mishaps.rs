//! What a scenario does to the world at a moment of its own choosing; by chance the same happens as faults.

use super::World;
use crate::story::LineKind;
use jiff::{SignedDuration, Timestamp};
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodeClassReference};
use whittle_api::{ConditionStatus, ObjectMeta, conditions, labels};
use whittle_claims::{Claim, ClaimKey, LeftNodes, Revision, Uninstall};
use whittle_ec2::instance::Instance;
use whittle_units::InstanceId;

/// Machines that are younger count as started a moment ago.
const YOUNG: SignedDuration = SignedDuration::from_secs(30);

impl World {
    /// EC2 takes the youngest machine away at once, without notice. False where none runs.
    pub fn end_newest(&mut self) -> bool {
        let alive = self.region.machines.values().map(|machine| &machine.instance).filter(|instance| instance.is_alive());
        let newest = alive.max_by_key(|instance| (instance.launched_at, instance.id.clone())).map(|instance| instance.id.clone());
        let Some(id) = newest else { return false };
        self.tell(LineKind::Fault, format!("EC2 takes machine {id} away"));
        self.terminate(&id);
        true
    }

    /// EC2's listings leave out the youngest machine for so long, while its answers lag at all. False where none runs.
    pub fn unlist_newest(&mut self, span: SignedDuration) -> bool {
        let alive = self.region.machines.values().map(|machine| &machine.instance).filter(|instance| instance.is_alive());
        let newest = alive.max_by_key(|instance| (instance.launched_at, instance.id.clone())).map(|instance| instance.id.clone());
        let Some(id) = newest else { return false };
        self.tell(LineKind::Fault, format!("EC2 does not list machine {id}"));
        self.unlist(&id, span);
        true
    }

    /// EC2 does not show the machines that it has just started for so long, as it may not for a while after their launch.
    pub fn unshow_young(&mut self, span: SignedDuration) {
        let now = self.now();
        let instances = self.region.machines.values().map(|machine| &machine.instance);
        let young = instances.filter(|instance| instance.is_alive() && now.duration_since(instance.launched_at) < YOUNG);
        let ids: Vec<InstanceId> = young.map(|instance| instance.id.clone()).collect();
        self.tell(LineKind::Fault, format!("EC2 does not show {} young machines", ids.len()));
        for id in ids {
            self.lag.unshow(id, now, span);
        }
    }

    /// No claim that lives can be read until [`Self::mend_claims`].
    pub fn spoil_claims(&mut self) {
        let cluster = self.name();
        let live = self.store.claims(&cluster).map(|stored| &stored.value).filter(|claim| claim.is_live());
        let keys: Vec<ClaimKey> = live.map(|claim: &Claim| claim.key.clone()).collect();
        self.tell(LineKind::Fault, format!("{} claims cannot be read", keys.len()));
        for key in keys {
            self.store.spoil_claim(&key);
        }
    }

    /// All claims can be read again.
    pub fn mend_claims(&mut self) {
        self.tell(LineKind::Fault, "all claims can be read again");
        let kept = [self.past.table.as_mut(), self.past.copy.as_mut()];
        for table in kept.into_iter().flatten().chain([&mut self.store]) {
            table.show_hidden(Timestamp::MAX, true);
        }
    }

    /// Keeps the table as it is now for [`Self::restore_table`].
    pub fn copy_table(&mut self) {
        self.past.copy = Some(self.store.clone());
    }

    /// Puts the table back as it was when it was copied, or an empty one where it never was.
    pub fn restore_table(&mut self) {
        let as_was = self.past.copy.as_ref().map_or("empty: it was never copied", |_| "as it was when it was copied");
        self.tell(LineKind::Fault, format!("the table is {as_was}"));
        let was = self.past.copy.clone().unwrap_or_default();
        self.replace_table(was);
    }

    /// Whittle is asked to leave the cluster, as `whittle uninstall` asks `sweep`.
    pub fn uninstall(&mut self, nodes: LeftNodes) {
        let (cluster, now) = (self.name(), self.now());
        let known = self.store.read::<Uninstall>(&cluster, Uninstall::NAME, now).ok().flatten();
        let expected = known.map_or(Revision::ABSENT, |known| known.revision);
        let asked = self.store.write(&cluster, &Uninstall { asked_at: now, nodes }, expected, now);
        if asked.is_ok() && nodes == LeftNodes::Keep {
            self.watch_kept();
        }
    }

    /// A machine with our tags appears that no claim asked for, by itself or with a Node that takes pods. False where there is no
    /// machine that it could be like.
    pub fn stray(&mut self, with_node: bool) -> bool {
        if with_node {
            return self.stray_node().is_some();
        }
        let now = self.now();
        let id = self.region.stray(None, now, &mut self.dice);
        if let Some(id) = &id {
            self.tell(LineKind::Step, format!("machine {id} appears, and no claim asked for it"));
        }
        id.is_some()
    }

    /// One with a Node, made after one of ours.
    fn stray_node(&mut self) -> Option<(InstanceId, Node)> {
        let now = self.now();
        let nodes = &self.cluster.objects.nodes;
        let with = |instance: &Instance| {
            let provider = instance.provider_id();
            // One that takes pods: nobody would finish the start of a copy.
            let serves = |node: &&Node| node.metadata.label(labels::INITIALIZED) == Some("true");
            nodes.values().find(|node| node.spec.provider_id == provider.as_str()).filter(serves).cloned()
        };
        let alive = self.region.machines.values().map(|machine| &machine.instance).filter(|instance| instance.is_alive());
        let (like, node) = alive.into_iter().find_map(|instance| Some((instance.id.clone(), with(instance)?)))?;
        let id = self.region.stray(Some(&like), now, &mut self.dice)?;
        let machine = self.region.machines.get(&id)?;
        let (name, provider) = (machine.instance.private_dns_name.clone(), machine.instance.provider_id());
        let mut metadata = ObjectMeta::named(&name);
        metadata.labels.clone_from(&node.metadata.labels);
        metadata.labels.insert("kubernetes.io/hostname".to_owned(), name);
        metadata.finalizers.clone_from(&node.metadata.finalizers);
        let mut own = Node { metadata, ..node };
        own.spec.provider_id = provider.as_str().to_owned();
        own.spec.taints.retain(|taint| taint.key != labels::DISRUPTED_TAINT);
        // Whatever the kubelet does from which it was copied, its own speaks.
        conditions::set(&mut own.status.conditions, conditions::READY, ConditionStatus::True, "KubeletReady", "", now);
        self.cluster.objects.create(own.clone(), now);
        self.touch_cluster();
        self.tell(LineKind::Step, format!("machine {id} appears with its node, and no claim asked for it"));
        Some((id, own))
    }

    /// A machine that Karpenter once started, with its NodeClaim and a Node that takes pods, made after one of ours. False where
    /// there is none.
    pub fn karpenter_node(&mut self) -> bool {
        let Some((id, node)) = self.stray_node() else { return false };
        let now = self.now();
        let Some(machine) = self.region.machines.get_mut(&id) else { return false };
        machine.instance.tags.remove(labels::TAG_LAUNCH);
        let mut object = NodeClaim { metadata: ObjectMeta::named(format!("karpenter-{id}")), ..NodeClaim::default() };
        object.metadata.labels.clone_from(&node.metadata.labels);
        object.metadata.finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
        let class = node.metadata.label(labels::EC2_NODE_CLASS).unwrap_or_default().to_owned();
        object.spec.node_class_ref =
            NodeClassReference { group: labels::AWS_DOMAIN.to_owned(), kind: Ec2NodeClass::KIND.to_owned(), name: class };
        object.status.provider_id = machine.instance.provider_id().as_str().to_owned();
        object.status.node_name.clone_from(&node.metadata.name);
        self.cluster.objects.create(object, now);
        self.watch_karpenter(id);
        self.touch_cluster();
        true
    }
}
