//! Faults that a scenario injects at a chosen moment; the same occur at random as `Faults`.

use super::World;
use crate::story::LineKind;
use jiff::{SignedDuration, Timestamp};
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodeClassReference, NodePool};
use whittle_api::{ConditionStatus, ObjectMeta, conditions, labels};
use whittle_claims::{Claim, ClaimKey, LeftNodes, Revision, Uninstall};
use whittle_ec2::instance::Instance;
use whittle_units::InstanceId;

/// Machines that are younger count as just started.
const YOUNG: SignedDuration = SignedDuration::from_secs(30);

impl World {
    /// EC2 terminates the youngest machine at once, without notice. False if none runs.
    pub fn end_newest(&mut self) -> bool {
        let alive = self.region.machines.values().map(|machine| &machine.instance).filter(|instance| instance.is_alive());
        let newest = alive.max_by_key(|instance| (instance.launched_at, instance.id.clone())).map(|instance| instance.id.clone());
        let Some(id) = newest else { return false };
        self.log(LineKind::Fault, format!("EC2 takes machine {id} away"));
        self.terminate(&id);
        true
    }

    /// Hides the youngest machine from EC2's listings for `span`, as long as answers lag. False if none runs.
    pub fn unlist_newest(&mut self, span: SignedDuration) -> bool {
        let alive = self.region.machines.values().map(|machine| &machine.instance).filter(|instance| instance.is_alive());
        let newest = alive.max_by_key(|instance| (instance.launched_at, instance.id.clone())).map(|instance| instance.id.clone());
        let Some(id) = newest else { return false };
        self.log(LineKind::Fault, format!("EC2 does not list machine {id}"));
        self.unlist(&id, span);
        true
    }

    /// Hides machines that EC2 has just started for `span`, as EC2's eventual consistency may do.
    pub fn hide_new_machines(&mut self, span: SignedDuration) {
        let now = self.now();
        let instances = self.region.machines.values().map(|machine| &machine.instance);
        let young = instances.filter(|instance| instance.is_alive() && now.duration_since(instance.launched_at) < YOUNG);
        let ids: Vec<InstanceId> = young.map(|instance| instance.id.clone()).collect();
        self.log(LineKind::Fault, format!("EC2 does not show {} new machines", ids.len()));
        for id in ids {
            self.lag.hide_new_machine(id, now, span);
        }
    }

    /// Makes all live claims unreadable until [`Self::mend_claims`].
    pub fn spoil_claims(&mut self) {
        let cluster = self.name();
        let live = self.store.claims(&cluster).map(|stored| &stored.value).filter(|claim| claim.is_live());
        let keys: Vec<ClaimKey> = live.map(|claim: &Claim| claim.key.clone()).collect();
        self.log(LineKind::Fault, format!("{} claims cannot be read", keys.len()));
        for key in keys {
            self.store.spoil_claim(&key);
        }
    }

    /// All claims can be read again.
    pub fn mend_claims(&mut self) {
        self.log(LineKind::Fault, "all claims can be read again");
        let kept = [self.history.table.as_mut(), self.history.copy.as_mut()];
        for table in kept.into_iter().flatten().chain([&mut self.store]) {
            table.show_hidden(Timestamp::MAX, true);
        }
    }

    /// Keeps the table as it is now for [`Self::restore_table`].
    pub fn copy_table(&mut self) {
        self.history.copy = Some(self.store.clone());
    }

    /// Restores the copied table, or an empty one if there is no copy.
    pub fn restore_table(&mut self) {
        let as_was = self.history.copy.as_ref().map_or("empty, as it was never copied", |_| "restored from its copy");
        self.log(LineKind::Fault, format!("the table is {as_was}"));
        let was = self.history.copy.clone().unwrap_or_default();
        self.replace_table(was);
    }

    /// Requests the uninstallation of the cluster, as `whittle uninstall` does.
    pub fn uninstall(&mut self, nodes: LeftNodes) {
        let (cluster, now) = (self.name(), self.now());
        let known = self.store.read::<Uninstall>(&cluster, Uninstall::NAME, now).ok().flatten();
        let expected = known.map_or(Revision::ABSENT, |known| known.revision);
        let written = self.store.write(&cluster, &Uninstall { asked_at: now, nodes }, expected, now);
        if written.is_ok() && nodes.keep_running() {
            self.observe_nodes_kept();
        }
    }

    /// Adds an orphaned machine with our tags, alone or with a Node that accepts pods. False if there is no
    /// machine to copy.
    pub fn orphan(&mut self, with_node: bool) -> bool {
        if with_node {
            return self.orphan_node().is_some();
        }
        let now = self.now();
        let id = self.region.orphan(None, now, &mut self.dice);
        if let Some(id) = &id {
            self.log(LineKind::Step, format!("machine {id} appears without a claim"));
        }
        id.is_some()
    }

    /// Adds an orphaned machine with a Node, copied from one of ours.
    fn orphan_node(&mut self) -> Option<(InstanceId, Node)> {
        let now = self.now();
        let nodes = &self.cluster.objects.nodes;
        let with = |instance: &Instance| {
            let provider = instance.provider_id();
            // An initialized one: the start of a copy would never finish.
            let is_initialized = |node: &&Node| node.metadata.label(labels::INITIALIZED) == Some("true");
            nodes.values().find(|node| node.spec.provider_id == provider.as_str()).filter(is_initialized).cloned()
        };
        let alive = self.region.machines.values().map(|machine| &machine.instance).filter(|instance| instance.is_alive());
        let (like, node) = alive.into_iter().find_map(|instance| Some((instance.id.clone(), with(instance)?)))?;
        let id = self.region.orphan(Some(&like), now, &mut self.dice)?;
        let machine = self.region.machines.get(&id)?;
        let (name, provider) = (machine.instance.private_dns_name.clone(), machine.instance.provider_id());
        let mut metadata = ObjectMeta::named(&name);
        metadata.labels.clone_from(&node.metadata.labels);
        metadata.labels.insert("kubernetes.io/hostname".to_owned(), name);
        metadata.finalizers.clone_from(&node.metadata.finalizers);
        let mut own = Node { metadata, ..node };
        own.spec.provider_id = provider.as_str().to_owned();
        own.spec.taints.retain(|taint| taint.key != labels::DISRUPTED_TAINT);
        // Its own kubelet reports, whatever that of the original does.
        conditions::set(&mut own.status.conditions, conditions::READY, ConditionStatus::True, "KubeletReady", "", now);
        self.cluster.objects.create(own.clone(), now);
        self.touch_cluster();
        self.log(LineKind::Step, format!("machine {id} appears with its node and without a claim"));
        Some((id, own))
    }

    /// Adds a machine of Karpenter's, with its NodeClaim and a Node that accepts pods, copied from one of ours. False if
    /// there is none.
    pub fn karpenter_node(&mut self) -> bool {
        let Some((id, node)) = self.orphan_node() else { return false };
        let now = self.now();
        let Some(machine) = self.region.machines.get_mut(&id) else { return false };
        machine.instance.tags.remove(labels::TAG_LAUNCH);
        let mut object = NodeClaim { metadata: ObjectMeta::named(format!("karpenter-{id}")), ..NodeClaim::default() };
        object.metadata.labels.clone_from(&node.metadata.labels);
        object.metadata.finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
        let class = node.metadata.label(labels::EC2_NODE_CLASS).unwrap_or_default().to_owned();
        object.spec.node_class_ref =
            NodeClassReference { group: labels::AWS_DOMAIN.to_owned(), kind: Ec2NodeClass::KIND.to_owned(), name: class };
        let pool = node.metadata.label(labels::NODE_POOL).unwrap_or_default();
        if let Some(pool) = self.cluster.objects.get::<NodePool>(pool) {
            object.spec.expire_after.clone_from(&pool.spec.template.spec.expire_after);
        }
        object.status.provider_id = machine.instance.provider_id().as_str().to_owned();
        object.status.node_name.clone_from(&node.metadata.name);
        self.cluster.objects.create(object, now);
        self.observe_karpenter(id);
        self.touch_cluster();
        true
    }
}
