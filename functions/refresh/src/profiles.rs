//! Instance profiles that no class uses any more: those of a class's former role, and those of classes whose record was lost.

use crate::{Done, Rights, Run};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_api::ClusterObjects;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_claims::{DecisionKind, NodeClassRecord, Record, Revision};
use whittle_ports::{ClassProfile, Clock, DecisionLog, Discovery, HandleError, RecordReader, Records, Report, unless_conflict};
use whittle_units::{SignedDuration, Timestamp};

/// Time between two looks at all profiles of a cluster (aws 17). A profile is deleted at the second look that finds it unused: a launch
/// with the one before has ended by then, and its machine is one that EC2 shows.
pub(crate) const LOOK_INTERVAL: SignedDuration = SignedDuration::from_mins(30);

/// The unused profiles of the latest look. Written by `refresh` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnusedProfiles {
    pub(crate) at: Timestamp,
    pub(crate) names: BTreeSet<String>,
}

impl UnusedProfiles {
    pub(crate) const NAME: &'static str = "latest";
}

impl Record for UnusedProfiles {
    const KIND: &'static str = "unused-profiles";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

impl<P: Rights> Run<'_, P> {
    /// Deletes the profiles that two looks have found unused. Only those that Whittle made for this cluster are looked at.
    pub(crate) async fn collect_profiles(&self, objects: &ClusterObjects, done: &mut Done) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        if self.settings.is_shadow() || !is_complete(objects) {
            return Ok(());
        }
        let known = self.ports.store().read::<UnusedProfiles>(self.cluster, UnusedProfiles::NAME).await?;
        let age = known.as_ref().map(|known| now.duration_since(known.value.at));
        if age.is_some_and(|age| age >= SignedDuration::ZERO && age < LOOK_INTERVAL) {
            return Ok(());
        }
        let profiles = self.ports.cloud().profiles(self.cluster).await?;
        // After the list: a profile that was made meanwhile is in the record of its class.
        let records = self.ports.store().read_all::<NodeClassRecord>(self.cluster).await?;
        let records: Vec<NodeClassRecord> = records.into_iter().map(|stored| stored.value).collect();
        let unused: Vec<ClassProfile> = profiles.into_iter().filter(|profile| !self.is_used(profile, objects, &records)).collect();
        let names = unused.iter().map(|profile| profile.name.clone()).collect();
        let expected = known.as_ref().map_or(Revision::ABSENT, |known| known.revision);
        let written = self.ports.store().write(self.cluster, &UnusedProfiles { at: now, names }, expected).await;
        let Some(_) = unless_conflict(written)? else { return Ok(()) };
        let before = known.map(|known| known.value.names).unwrap_or_default();
        let mut deleted = Report::default();
        for profile in unused.into_iter().filter(|profile| before.contains(&profile.name)) {
            if !self.ports.cloud().delete_profile(&profile).await? {
                done.report.count("profiles_in_use");
                continue;
            }
            deleted.count("profiles_deleted");
            let text = format!("instance profile {} with role {}: its class does not use it any more", profile.name, profile.role);
            deleted.decide(now, DecisionKind::Collected, format!("ec2nodeclass/{}", profile.class), text);
        }
        if !deleted.decisions.is_empty() {
            self.ports.store().append(self.cluster, &deleted.decisions).await?;
        }
        done.report.absorb(deleted);
        Ok(())
    }

    /// Whether a class names the profile, in its spec, its status or its record, or would get it for its role.
    fn is_used(&self, profile: &ClassProfile, objects: &ClusterObjects, records: &[NodeClassRecord]) -> bool {
        let by_class = |class: &Ec2NodeClass| {
            let named = [&class.spec.instance_profile, &class.status.instance_profile].into_iter().flatten();
            let of_role = class
                .spec
                .role
                .as_ref()
                .or(self.settings.default_node_role.as_ref())
                .map(|role| self.ports.cloud().instance_profile_name(self.cluster, &class.metadata.name, role));
            named.cloned().chain(of_role).any(|name| name == profile.name)
        };
        let by_record = |record: &NodeClassRecord| record.instance_profile == profile.name || by_class(&record.class);
        objects.node_classes.iter().any(by_class) || records.iter().any(by_record)
    }
}

/// Whether all classes of the cluster were read: one that cannot be read may use any profile.
fn is_complete(objects: &ClusterObjects) -> bool {
    !objects.lacks_kind(Ec2NodeClass::KIND)
        && [Ec2NodeClass::KIND, "AWSNodeTemplate"].iter().all(|kind| objects.unreadable_of(kind).next().is_none())
}
