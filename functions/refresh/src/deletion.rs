//! Deletion of node classes: held while a claim uses them, then created resources are deleted, then the finalizer is removed (aws
//! 18).

use crate::{Done, Rights, Run, classes};
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim};
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{Claim, DecisionKind, LeftNodes, NodeClassRecord, Record, Stored};
use whittle_ports::{
    Clock, ClusterEvent, ClusterReader, DecisionLog, Discovery, HandleError, Involved, ObjectKind, Presence, RecordRemoval, Records,
    Report, Safeguard, StatusWriter, publish_event, publish_events, unless_conflict,
};

/// Claims that an Event names.
const NAMES_MAX: usize = 5;

/// The class with our finalizer, unless it needs none: objects of legacy kinds never had one.
pub(crate) fn with_finalizer(class: &Ec2NodeClass) -> Ec2NodeClass {
    let mut held = class.clone();
    let meta = &mut held.metadata;
    let has = meta.finalizers.iter().any(|finalizer| finalizer == labels::NODE_CLASS_FINALIZER);
    if !has && !meta.is_deleting() && !class.is_converted_template() {
        held.metadata.finalizers.push(labels::NODE_CLASS_FINALIZER.to_owned());
    }
    held
}

/// Whether a class of the other kind has the same name as the one of `record`: a legacy and a current object may share theirs.
fn has_namesake(record: &str, objects: &ClusterObjects) -> bool {
    let name = NodeClassRecord::class_name(record);
    objects.node_classes.iter().any(|class| class.metadata.name == name && NodeClassRecord::name_of(class) != record)
}

/// Whether the class of a record may exist although it cannot be read.
fn is_hidden(record: &str, objects: &ClusterObjects) -> bool {
    let name = NodeClassRecord::class_name(record);
    let kind = if name == record { Ec2NodeClass::KIND } else { "AWSNodeTemplate" };
    objects.lacks_kind(kind) || objects.is_unreadable(kind, name)
}

/// Names of the claims that use the class of a record, including those of other controllers, and those that may: `unreadable` are
/// claims in the table that cannot be read.
pub(crate) fn users(record: &str, claims: &[Stored<Claim>], unreadable: &[String], objects: &ClusterObjects) -> Vec<String> {
    let (class, twin) = (NodeClassRecord::class_name(record), has_namesake(record, objects));
    let converted = class != record;
    let uses = |claim: &&Claim| claim.spec.node_class.name == class && (!twin || (claim.spec.owner.kind == "Provisioner") == converted);
    let ours = claims.iter().map(|claim| &claim.value).filter(|claim| claim.is_live()).filter(uses);
    let mut names: Vec<String> = ours.map(|claim| claim.key.name.to_string()).collect();
    let known = |name: &str| claims.iter().any(|claim| claim.value.key.name.as_str() == name);
    let refers = |shown: &NodeClaim| shown.spec.node_class_ref.is_managed() && shown.spec.node_class_ref.name == class;
    let shown = objects.node_claims.iter().filter(|shown| refers(shown) && !known(&shown.metadata.name));
    names.extend(shown.map(|shown| shown.metadata.name.clone()));
    // The class of an unreadable NodeClaim is unknown.
    let hidden = objects.unreadable_of(NodeClaim::KIND).filter(|odd| !known(&odd.metadata.name));
    names.extend(hidden.map(|odd| odd.metadata.name.clone()));
    let is_shown = |name: &str| objects.node_claims.iter().any(|shown| shown.metadata.name == name);
    names.extend(unreadable.iter().filter(|name| !is_shown(name)).cloned());
    names.sort();
    names.dedup();
    names
}

/// The record of a class that is closed to launches: launches in flight still read it.
fn closed(known: &NodeClassRecord, class: Option<&Ec2NodeClass>, now: whittle_units::Timestamp) -> NodeClassRecord {
    let mut record = known.clone();
    let deleted_at = class.and_then(|class| class.metadata.deletion_timestamp).or(known.class.metadata.deletion_timestamp).unwrap_or(now);
    record.class.metadata.deletion_timestamp = Some(deleted_at);
    record.problems = vec![if class.is_some() { "the class is being deleted" } else { "the class no longer exists" }.to_owned()];
    record
}

/// What the deletion of classes depends on.
pub(crate) struct ClassDeletions<'a, P> {
    pub(crate) run: &'a Run<'a, P>,
    pub(crate) objects: &'a ClusterObjects,
    pub(crate) claims: &'a [Stored<Claim>],
    /// Names of claims that cannot be read.
    pub(crate) unreadable: &'a [String],
    pub(crate) records: &'a [Stored<NodeClassRecord>],
    /// Whittle is being uninstalled from the cluster: every class is released.
    pub(crate) uninstalling: Option<LeftNodes>,
}

impl<P: Rights> ClassDeletions<'_, P> {
    fn record(&self, name: &str) -> Option<&Stored<NodeClassRecord>> {
        self.records.iter().find(|known| known.value.name() == name)
    }

    /// Classes that are being deleted, and records of classes that no longer exist.
    fn deleted_classes(&self) -> Vec<(String, Option<&Ec2NodeClass>)> {
        let classes = &self.objects.node_classes;
        let ends = |class: &&Ec2NodeClass| self.uninstalling.is_some() || class.metadata.is_deleting();
        let there = |name: &str| classes.iter().any(|class| NodeClassRecord::name_of(class) == name && !ends(&class));
        let deleting = classes.iter().filter(ends).filter(|class| !there(&NodeClassRecord::name_of(class)));
        let mut names: Vec<_> = deleting.map(|class| (NodeClassRecord::name_of(class), Some(class))).collect();
        for known in self.records {
            let name = known.value.name();
            if !is_hidden(&name, self.objects) && !there(&name) && !names.iter().any(|(known, _)| *known == name) {
                names.push((name, None));
            }
        }
        names
    }

    /// Whether a class was missing from two lists, and is gone according to a request by name.
    async fn is_gone(&self, name: &str) -> Result<bool, HandleError> {
        if !self.run.is_missing_twice(name).await? {
            return Ok(false);
        }
        let given = NodeClassRecord::class_name(name);
        let kind = if given == name { ObjectKind::NodeClass } else { ObjectKind::NodeTemplate };
        Ok(self.run.ports.cluster().look_up(self.run.cluster, kind, given).await? == Presence::NotFound)
    }

    /// Advances the deletion of every such class. A failure does not block the others.
    pub(crate) async fn run(&self, done: &mut Done) -> Result<(), HandleError> {
        let listed = |name: &str| self.objects.node_classes.iter().any(|class| NodeClassRecord::name_of(class) == name);
        let is_there = |name: &str| listed(name) || is_hidden(name, self.objects);
        self.run.remove_found(is_there).await?;
        let mut failure = None;
        for (name, class) in self.deleted_classes() {
            if let Err(error) = self.delete(&name, class, done).await {
                done.report.count("classes_failed");
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn delete(&self, name: &str, class: Option<&Ec2NodeClass>, done: &mut Done) -> Result<(), HandleError> {
        // First the class is closed to launches, then its users are checked.
        let now = self.run.ports.clock().now();
        if let Some(known) = self.record(name) {
            let record = closed(&known.value, class, now);
            if record != known.value {
                if class.is_none() && self.uninstalling.is_none() && Safeguard::ClassMissedTwice.stops(!self.is_gone(name).await?) {
                    done.wait_for("classes_missed");
                    return Ok(());
                }
                unless_conflict(self.run.ports.store().write(self.run.cluster, &record, known.revision).await)?;
                done.wait_for("classes_closed");
                return Ok(());
            }
        }
        let users = users(name, self.claims, self.unreadable, self.objects);
        if Safeguard::ClassHeldByClaims.stops(!users.is_empty()) {
            done.report.count("classes_held");
            if let Some(class) = class.filter(|_| !self.run.settings.is_shadow()) {
                publish_event(self.run.ports.cluster(), self.run.cluster, &waiting_event(class, &users)).await;
            }
            return Ok(());
        }
        if self.run.settings.is_shadow() {
            return Ok(());
        }
        // Created resources are found by the class's name: those of a namesake are kept.
        let mut stay = Vec::new();
        if !has_namesake(name, self.objects) {
            stay = self.run.ports.cloud().release_class(self.run.cluster, NodeClassRecord::class_name(name)).await?;
        }
        // A machine without a claim may be an orphan that is about to be terminated; those that are kept on purpose keep their
        // profile.
        if !stay.is_empty() && !self.uninstalling.is_some_and(LeftNodes::keep_running) {
            done.report.count("classes_held");
            if let Some(class) = class {
                publish_event(self.run.ports.cluster(), self.run.cluster, &in_use_event(class, &stay)).await;
            }
            return Ok(());
        }
        if let Some(class) = class {
            self.release(class, &mut done.report).await?;
        }
        if let Some(known) = self.record(name) {
            unless_conflict(self.run.ports.store().remove::<NodeClassRecord>(self.run.cluster, name, known.revision).await)?;
        }
        done.report.count("classes_ended");
        let mut deleted = Report::default();
        let text = match stay.as_slice() {
            [] => "no claim uses it; its resources have been deleted".to_owned(),
            stay => format!("no claim uses it; instance profile {} is kept, because machines run with it", stay.join(", ")),
        };
        deleted.decide(now, DecisionKind::Collected, format!("ec2nodeclass/{name}"), text);
        self.run.ports.store().append(self.run.cluster, &deleted.decisions).await?;
        done.report.absorb(deleted);
        Ok(())
    }

    /// Removes our finalizer from a class, if it has it.
    async fn release(&self, class: &Ec2NodeClass, report: &mut Report) -> Result<(), HandleError> {
        let mut released = class.clone();
        released.metadata.finalizers.retain(|held| held != labels::NODE_CLASS_FINALIZER);
        if released != *class {
            self.run.ports.cluster().write_node_class_status(self.run.cluster, &released).await?;
            publish_events(self.run.ports, self.run.cluster, &classes::changes(class, &released), report).await;
        }
        Ok(())
    }
}

fn waiting_event(class: &Ec2NodeClass, users: &[String]) -> ClusterEvent {
    let shown = users.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = users.len().saturating_sub(NAMES_MAX);
    let rest = if more == 0 { String::new() } else { format!(" and {more} other(s)") };
    let message = format!("Waiting on NodeClaim termination for {shown}{rest}");
    ClusterEvent::normal(Involved::object(class), "WaitingOnNodeClaimTermination", message)
}

fn in_use_event(class: &Ec2NodeClass, profiles: &[String]) -> ClusterEvent {
    let message = format!("machines still run with instance profile {}: terminate them, or replace their profile", profiles.join(", "));
    ClusterEvent::normal(Involved::object(class), "InstanceProfileInUse", message)
}
