//! The contracts of the ports of EC2 and IAM.

use crate::{
    CloudErrorKind, Discovery, DryRuns, Fleets, InstanceChecks, InstanceRun, InstanceTags, Instances, LaunchTemplateCleanup,
    LaunchTemplates, Terminator, ZonalShifts,
};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{SecurityGroupSelectorTerm, SubnetSelectorTerm};
use whittle_api::labels;
use whittle_claims::{ShiftState, ZoneShift};
use whittle_ec2::fleet::{FleetConfig, FleetOverride, FleetRequest, LaunchTemplate, TemplateInterface};
use whittle_ec2::instance::InstanceState;
use whittle_ec2::interruption::InstanceStatus;
use whittle_ec2::network::{SecurityGroup, Subnet};
use whittle_units::{ClusterName, InstanceId, Price, SignedDuration, Timestamp};

/// A region in which instances can be launched.
#[derive(Clone, Debug)]
pub struct CloudPlace {
    pub cluster: ClusterName,
    /// Subnets in different zones, with the same tag of one key, and a group with that tag too.
    pub subnets: Vec<Subnet>,
    pub group: SecurityGroup,
    pub image_id: String,
    /// Offered in the zones of all subnets.
    pub instance_type: String,
}

/// The ports that launch, describe and terminate instances.
pub trait Machinery: LaunchTemplates + LaunchTemplateCleanup + Fleets + Instances + InstanceTags + Terminator {}
impl<C: LaunchTemplates + LaunchTemplateCleanup + Fleets + Instances + InstanceTags + Terminator> Machinery for C {}

impl CloudPlace {
    fn tags(&self, batch: &str) -> BTreeMap<String, String> {
        let pairs = [
            (labels::TAG_CLUSTER, self.cluster.as_str()),
            (labels::NODE_POOL, "default"),
            (labels::EC2_NODE_CLASS, "default"),
            (labels::TAG_LAUNCH, batch),
        ];
        let owned = (format!("{}{}", labels::TAG_CLUSTER_OWNED_PREFIX, self.cluster), "owned".to_owned());
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).chain([owned]).collect()
    }

    /// A launch template of the place.
    pub fn template(&self, batch: &str) -> LaunchTemplate {
        LaunchTemplate {
            image_id: self.image_id.clone(),
            user_data: format!("#!/bin/sh\n# {batch}"),
            security_group_ids: vec![self.group.id.clone()],
            interfaces: vec![TemplateInterface::default()],
            tenancy: "default".to_owned(),
            tags: self.tags(batch),
            ..LaunchTemplate::default()
        }
        .named()
    }

    /// A fleet request with that template, for on-demand machines in every subnet.
    pub fn request(&self, batch: &str, template: &LaunchTemplate, count: u32) -> FleetRequest {
        let pool = |subnet: &Subnet| FleetOverride {
            instance_type: self.instance_type.clone(),
            zone: subnet.zone.clone(),
            subnet_id: subnet.id.clone(),
            image_id: self.image_id.clone(),
            price: Price::from_dollars(0.096),
        };
        FleetRequest {
            client_token: batch.to_owned(),
            target_capacity: count,
            capacity_type: labels::CAPACITY_ON_DEMAND.to_owned(),
            reservation: None,
            configs: vec![FleetConfig { launch_template: template.name.clone(), overrides: self.subnets.iter().map(pool).collect() }],
            tags: self.tags(batch),
            prioritized: false,
            context: None,
        }
    }
}

/// Launch templates, fleets and instances. `wait` lets a minute pass in EC2.
///
/// # Panics
///
/// If the adapter violates the contracts.
pub async fn machinery(cloud: &impl Machinery, place: &CloudPlace, wait: &mut dyn FnMut()) {
    a_template_is_created_once_and_deleted_once(cloud, place).await;
    a_fleet_launches_what_it_returns(cloud, place, wait).await;
    an_instance_takes_tags_and_terminates(cloud, place, wait).await;
    missing_instances_are_no_failure(cloud).await;
}

/// Zonal shifts of the cluster with this ARN: what `set` makes them is what is read. `now` is on a full second, as the service answers.
///
/// # Panics
///
/// Where the adapter breaks the contract.
pub async fn zonal_shifts(cloud: &impl ZonalShifts, arn: &str, now: Timestamp, set: &mut dyn FnMut(Vec<ZoneShift>)) {
    let read = async || cloud.zone_shifts(arn).await.expect("shifts are read");
    assert_eq!(read().await, [], "a cluster without shifts is no error");
    let shift = |zone: &str, minutes: i64, state| {
        let ends_at = now.checked_add(SignedDuration::from_mins(minutes)).expect("minutes from now are in range");
        ZoneShift { away_from: zone.to_owned(), ends_at, state }
    };
    let shifts = vec![shift("use1-az1", 60, ShiftState::Applied), shift("use1-az2", 90, ShiftState::NotApplied)];
    set(shifts.clone());
    assert_eq!(read().await, shifts, "applied or not");
    set(Vec::new());
    assert_eq!(read().await, []);
    let missing = cloud.zone_shifts(&format!("{arn}-2")).await.expect_err("a cluster that is not registered is an error");
    assert_eq!(missing.kind, CloudErrorKind::NotFound, "{missing}");
}

/// Launch templates: created once, listed by cluster, deleted once.
///
/// # Panics
///
/// Where the adapter breaks the contract.
pub async fn a_template_is_created_once_and_deleted_once(cloud: &impl Machinery, place: &CloudPlace) {
    let template = place.template("contract-template");
    for _ in 0..2 {
        cloud.ensure_launch_template(&template).await.expect("a template that exists is no error");
    }
    let listed = async |cluster: &ClusterName| cloud.launch_templates(cluster).await.expect("templates are listed");
    assert_eq!(listed(&place.cluster).await.iter().filter(|name| **name == template.name).count(), 1);
    let other = ClusterName::new("another-cluster");
    assert!(!listed(&other).await.contains(&template.name), "only the cluster's own templates are listed");
    for _ in 0..2 {
        cloud.delete_launch_template(&template.name).await.expect("a template that is gone is no error");
    }
    assert!(!listed(&place.cluster).await.contains(&template.name));
}

/// Fleets: what they return is launched, tagged and listed.
///
/// # Panics
///
/// Where the adapter breaks the contract.
pub async fn a_fleet_launches_what_it_returns(cloud: &impl Machinery, place: &CloudPlace, wait: &mut dyn FnMut()) {
    let template = place.template("contract-fleet");
    cloud.ensure_launch_template(&template).await.expect("the template is created");
    let answer = cloud.create_fleet(&place.request("contract-fleet", &template, 3)).await.expect("the fleet is created");
    assert_eq!(answer.errors, []);
    let ids: BTreeSet<InstanceId> = answer.instances.iter().map(|instance| instance.id.clone()).collect();
    assert_eq!(ids.len(), 3, "{answer:?}");
    for instance in &answer.instances {
        let subnet = place.subnets.iter().find(|subnet| subnet.id == instance.subnet_id);
        assert_eq!(subnet.map(|subnet| &subnet.zone), Some(&instance.zone), "an instance is in one of the named subnets");
        assert_eq!((instance.instance_type.as_str(), instance.image_id.as_str()), (place.instance_type.as_str(), place.image_id.as_str()));
        assert_eq!(instance.capacity_type, labels::CAPACITY_ON_DEMAND);
    }
    wait();
    let tagged = cloud.tagged(labels::TAG_LAUNCH, "contract-fleet").await.expect("instances are described");
    assert_eq!(tagged.iter().map(|instance| instance.id.clone()).collect::<BTreeSet<_>>(), ids, "a launch finds its instances by its tag");
    let listed = cloud.of_cluster(&place.cluster).await.expect("instances are described");
    for known in &answer.instances {
        let described = listed.iter().find(|instance| instance.id == known.id).expect("the cluster's instances are listed");
        assert!(described.is_alive() && described.capacity_type == known.capacity_type, "{described:?}");
        assert_eq!(
            (&described.zone, &described.subnet_id, &described.instance_type),
            (&known.zone, &known.subnet_id, &known.instance_type)
        );
        assert_eq!(described.image_id, place.image_id);
        let tags = place.tags("contract-fleet");
        assert!(tags.iter().all(|(key, value)| described.tags.get(key) == Some(value)), "{:?}", described.tags);
        assert!(!described.private_dns_name.is_empty());
    }
    let others = cloud.of_cluster(&ClusterName::new("another-cluster")).await.expect("instances are described");
    assert!(others.iter().all(|instance| !ids.contains(&instance.id)), "no other cluster lists them");
}

/// Instances: tagged, and terminated as often as one likes.
///
/// # Panics
///
/// Where the adapter breaks the contract.
pub async fn an_instance_takes_tags_and_terminates(cloud: &impl Machinery, place: &CloudPlace, wait: &mut dyn FnMut()) {
    let template = place.template("contract-end");
    cloud.ensure_launch_template(&template).await.expect("the template is created");
    let answer = cloud.create_fleet(&place.request("contract-end", &template, 1)).await.expect("the fleet is created");
    let [machine] = answer.instances.as_slice() else { panic!("one instance was requested: {answer:?}") };
    wait();
    let named = [("Name".to_owned(), "default/contract".to_owned())];
    cloud.tag(&machine.id, &named).await.expect("an instance takes tags");
    let described = async || cloud.instance(&machine.id).await.expect("an instance is described");
    assert_eq!(described().await.and_then(|instance| instance.tags.get("Name").cloned()).as_deref(), Some("default/contract"));
    for _ in 0..2 {
        cloud.terminate(&machine.id).await.expect("an instance that terminates may be terminated again");
    }
    wait();
    // EC2 stops showing it after a while.
    let gone = described().await.is_none_or(|instance| instance.state == InstanceState::Terminated);
    assert!(gone, "a terminated instance ends within a minute");
    let listed = cloud.of_cluster(&place.cluster).await.expect("instances are described");
    assert!(listed.iter().all(|instance| instance.id != machine.id), "a terminated instance counts as absent");
}

/// What does not exist: described as nothing, terminated, and not tagged.
///
/// # Panics
///
/// Where the adapter breaks the contract.
pub async fn missing_instances_are_no_failure(cloud: &impl Machinery) {
    let missing = InstanceId::new("i-0123456789abcdef0");
    assert_eq!(cloud.instance(&missing).await.expect("EC2 responds"), None);
    assert_eq!(cloud.tagged(labels::TAG_LAUNCH, "no such launch").await.expect("EC2 responds"), []);
    cloud.terminate(&missing).await.expect("terminating a missing instance succeeds");
    let refused = cloud.tag(&missing, &[("a".to_owned(), "b".to_owned())]).await.expect_err("a missing instance cannot be tagged");
    assert_eq!(refused.kind, CloudErrorKind::NotFound);
}

/// Dry runs: success where the launch would succeed, and nothing is launched.
///
/// # Panics
///
/// Where the adapter breaks the contract.
pub async fn dry_runs<C: Machinery + DryRuns>(cloud: &C, place: &CloudPlace) {
    let template = place.template("contract-dry-run");
    for _ in 0..2 {
        cloud.ensure_tried_template(&template).await.expect("the template is there");
    }
    let request = place.request("contract-dry-run", &template, 1);
    cloud.dry_run_fleet(&request).await.expect("the fleet may be created");
    let subnet_id = &place.subnets[0].id;
    let run = InstanceRun { template: &template, instance_type: &place.instance_type, subnet_id, tags: &request.tags };
    cloud.dry_run_instance(&run).await.expect("an instance may be started");
    let tagged = cloud.tagged(labels::TAG_LAUNCH, "contract-dry-run").await.expect("instances are described");
    assert_eq!(tagged.len(), 0, "a dry run launches nothing");
}

/// EC2's guarantees for client tokens, missing templates and instant fleets.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn fleet_tokens(cloud: &impl Machinery, place: &CloudPlace) {
    let template = place.template("contract-token");
    let request = place.request("contract-token", &template, 2);
    let early = cloud.create_fleet(&request).await.expect_err("the template does not exist yet");
    assert_eq!(early.kind, CloudErrorKind::NotFound, "{early}");
    cloud.ensure_launch_template(&template).await.expect("the template is created");
    let first = cloud.create_fleet(&request).await.expect("a rejected call does not use up the token");
    let ids =
        |answer: &whittle_ec2::fleet::FleetAnswer| answer.instances.iter().map(|instance| instance.id.clone()).collect::<BTreeSet<_>>();
    let again = cloud.create_fleet(&request).await.expect("a call may be repeated");
    assert!(ids(&again).is_subset(&ids(&first)), "a repeated call launches nothing");
    let larger = FleetRequest { target_capacity: 3, ..request.clone() };
    let mismatch = cloud.create_fleet(&larger).await.expect_err("a token is bound to its parameters");
    assert_eq!(mismatch.kind, CloudErrorKind::IdempotencyMismatch, "{mismatch}");
    let known = cloud.fleet(&first.fleet_id, &request).await.expect("a fleet is described").expect("it exists");
    assert_eq!(ids(&known), ids(&first), "a fleet is described with all its instances");
    assert_eq!(cloud.fleet("fleet-00000000-0000-0000-0000-000000000000", &request).await.expect("EC2 responds"), None);
}

/// Subnets and security groups by their terms.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn network(cloud: &impl Discovery, place: &CloudPlace) {
    let (key, value) = place.group.tags.iter().next().expect("the place has a tag");
    let tags = |value: &str| Some(BTreeMap::from([(key.clone(), value.to_owned())]));
    let all: Vec<Subnet> = place.subnets.clone();
    for (tags, expected) in [(tags(value), all.len()), (tags("*"), all.len()), (tags("no such value"), 0)] {
        let terms = [SubnetSelectorTerm { tags: tags.clone(), ..SubnetSelectorTerm::default() }];
        let found = cloud.subnets(&terms).await.expect("subnets are described");
        assert_eq!(found.len(), expected, "subnets with {tags:?}: {found:?}");
        assert!(found.iter().all(|subnet| all.iter().any(|known| known.id == subnet.id && known.zone == subnet.zone)), "{found:?}");
        assert!(found.iter().all(|subnet| subnet.free_addresses > 0 && !subnet.vpc.is_empty()), "{found:?}");
        let terms = [SecurityGroupSelectorTerm { tags: tags.clone(), ..SecurityGroupSelectorTerm::default() }];
        let groups = cloud.security_groups(&terms).await.expect("groups are described");
        assert_eq!(groups.len(), usize::from(expected > 0), "groups with {tags:?}: {groups:?}");
    }
    let by_id = [SubnetSelectorTerm { id: Some(all[0].id.clone()), ..SubnetSelectorTerm::default() }];
    let found = cloud.subnets(&by_id).await.expect("subnets are described");
    assert_eq!(found.iter().map(|subnet| &subnet.id).collect::<Vec<_>>(), [&all[0].id]);
    let unknown = [SubnetSelectorTerm { id: Some("subnet-0123456789abcdef0".to_owned()), ..SubnetSelectorTerm::default() }];
    assert_eq!(cloud.subnets(&unknown).await.expect("a missing subnet is no failure"), []);
    let named = [SecurityGroupSelectorTerm { name: Some(place.group.name.clone()), ..SecurityGroupSelectorTerm::default() }];
    let groups = cloud.security_groups(&named).await.expect("groups are described");
    assert_eq!(groups.iter().map(|group| &group.id).collect::<Vec<_>>(), [&place.group.id]);
}

/// Instance profiles: created once, with the role of the class, and deleted with it.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn instance_profiles(cloud: &impl Discovery, cluster: &ClusterName) {
    let tags = BTreeMap::from([("team".to_owned(), "a b/c".to_owned())]);
    let ensure = async |role: &str| cloud.ensure_instance_profile(cluster, "contract", role, &tags).await.expect("a profile is ensured");
    let name = ensure("contract-role").await;
    assert_eq!(name, cloud.instance_profile_name(cluster, "contract", "contract-role"));
    assert_eq!(ensure("contract-role").await, name, "ensuring it is idempotent");
    assert_eq!(cloud.profile_role(&name).await.expect("IAM responds").as_deref(), Some("contract-role"));
    let listed = async |cluster: &ClusterName| {
        let found = cloud.profiles(cluster).await.expect("profiles are listed");
        found.into_iter().find(|profile| profile.name == name)
    };
    let found = listed(cluster).await.expect("the cluster's profiles are listed");
    assert_eq!((found.class.as_str(), found.role.as_str()), ("contract", "contract-role"));
    assert_eq!(listed(&ClusterName::new("another-cluster")).await, None);
    for _ in 0..2 {
        assert!(cloud.delete_profile(&found).await.expect("deleting a profile is idempotent"), "no instance uses it");
    }
    assert_eq!(listed(cluster).await, None);
    ensure("contract-role").await;
    for _ in 0..2 {
        let kept = cloud.release_class(cluster, "contract").await.expect("releasing a class is idempotent");
        assert_eq!(kept, [""; 0], "no instance uses the profile");
    }
}

/// EC2's checks of a machine: listed while they fail or an event is due, and while the machine runs, for who asks for this machine,
/// whatever else is asked for. `set` makes EC2 find this.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn instance_checks<C: Machinery + InstanceChecks>(
    cloud: &C,
    place: &CloudPlace,
    now: Timestamp,
    wait: &mut dyn FnMut(),
    set: &mut dyn FnMut(InstanceStatus),
) {
    let template = place.template("contract-checks");
    cloud.ensure_launch_template(&template).await.expect("the template is created");
    let answer = cloud.create_fleet(&place.request("contract-checks", &template, 2)).await.expect("the fleet is created");
    let [machine, other] = answer.instances.as_slice() else { panic!("two instances were requested: {answer:?}") };
    wait();
    let ids = [machine.id.clone(), other.id.clone()];
    let listed = async || cloud.failing(&ids).await.expect("checks are described");
    let sound = InstanceStatus { instance: machine.id.clone(), ..InstanceStatus::default() };
    assert_eq!(listed().await, [], "what is sound is not listed");
    for failing in [
        InstanceStatus { instance_impaired_since: Some(now), ..sound.clone() },
        InstanceStatus { system_impaired_since: Some(now), ..sound.clone() },
        InstanceStatus { has_scheduled_event: true, ..sound.clone() },
        InstanceStatus { instance_impaired_since: Some(now), has_scheduled_event: true, ..sound.clone() },
    ] {
        set(failing.clone());
        assert_eq!(listed().await, [failing]);
    }
    let late = InstanceStatus { instance: other.id.clone(), system_impaired_since: Some(now), ..InstanceStatus::default() };
    set(late.clone());
    assert_eq!(listed().await.len(), 2, "each that fails is listed once");
    assert_eq!(
        cloud.failing(&ids[1..]).await.expect("checks are described"),
        std::slice::from_ref(&late),
        "those of others are not asked for"
    );
    assert_eq!(cloud.failing(&[]).await.expect("nothing is asked"), []);
    let unknown = [InstanceId::new("i-0123456789abcdef0"), other.id.clone()];
    assert_eq!(
        cloud.failing(&unknown).await.expect("checks are described"),
        std::slice::from_ref(&late),
        "one that does not exist hides no other"
    );
    set(sound);
    assert_eq!(listed().await, [late], "what is sound again is not listed");
    for machine in [machine, other] {
        cloud.terminate(&machine.id).await.expect("an instance terminates");
    }
    wait();
    assert_eq!(listed().await, [], "what has ended is not checked");
}
