//! EC2 and related services.

use super::{EC2, SimPorts};
use crate::mutants::Mutant;
use crate::region::{Allocation, ProfileOrigin};
use std::collections::BTreeMap;
use whittle_api::karpenter::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use whittle_claims::ZoneShift;
use whittle_ec2::fleet::{FleetAnswer, FleetRequest, LaunchTemplate};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ec2::interruption::InstanceStatus;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, PlacementGroup, SecurityGroup, Subnet};
use whittle_ec2::node_class::ssm_images;
use whittle_ports::{
    CatalogRead, ClassProfile, CloudError, CloudErrorKind, Discovery, DryRuns, Fleets, InstanceChecks, InstanceRun, InstanceTags,
    Instances, LaunchTemplateCleanup, LaunchTemplates, Terminator, ZonalShifts,
};
use whittle_units::{ClusterName, InstanceId};

/// The tags that EC2 takes of an instance, without those of AWS itself.
const TAGS_MAX: usize = 50;

fn invalid(call: &'static str, code: &str, message: String) -> CloudError {
    CloudError { kind: CloudErrorKind::Invalid, call, code: code.to_owned(), message }
}

impl LaunchTemplates for SimPorts {
    async fn ensure_launch_template(&self, template: &LaunchTemplate) -> Result<(), CloudError> {
        self.call(EC2, "CreateLaunchTemplate", |world| {
            world.region.launch_templates.entry(template.name.clone()).or_insert_with(|| template.clone());
            Ok(())
        })
        .await
    }
}

impl LaunchTemplateCleanup for SimPorts {
    async fn launch_templates(&self, cluster: &ClusterName) -> Result<Vec<String>, CloudError> {
        self.call(EC2, "DescribeLaunchTemplates", |world| {
            let own = |template: &&LaunchTemplate| {
                template.tags.get(whittle_api::labels::TAG_CLUSTER).is_some_and(|tag| *tag == cluster.as_str())
            };
            Ok(world.region.launch_templates.values().filter(own).map(|template| template.name.clone()).collect())
        })
        .await
    }
    async fn delete_launch_template(&self, name: &str) -> Result<(), CloudError> {
        self.call(EC2, "DeleteLaunchTemplate", |world| {
            world.region.launch_templates.remove(name);
            Ok(())
        })
        .await
    }
}

impl Fleets for SimPorts {
    async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetAnswer, CloudError> {
        self.call(EC2, "CreateFleet", |world| world.start_fleet(request, Allocation::of(request))).await
    }
    async fn fleet(&self, id: &str, _: &FleetRequest) -> Result<Option<FleetAnswer>, CloudError> {
        self.call(EC2, "DescribeFleets", |world| Ok(world.fleet_seen(id))).await
    }
}

impl DryRuns for SimPorts {
    async fn ensure_tried_template(&self, template: &LaunchTemplate) -> Result<(), CloudError> {
        self.ensure_launch_template(template).await
    }
    async fn dry_run_fleet(&self, _: &FleetRequest) -> Result<(), CloudError> {
        self.call(EC2, "CreateFleet", |world| world.region.permits("CreateFleet")).await
    }
    async fn dry_run_instance(&self, _: &InstanceRun<'_>) -> Result<(), CloudError> {
        self.call(EC2, "RunInstances", |world| world.region.permits("RunInstances")).await
    }
}

impl Instances for SimPorts {
    async fn of_cluster(&self, cluster: &ClusterName) -> Result<Vec<Instance>, CloudError> {
        self.call(EC2, "DescribeInstances", |world| {
            let ours = |instance: &&Instance| {
                let owned = format!("{}{cluster}", whittle_api::labels::TAG_CLUSTER_OWNED_PREFIX);
                let tagged = instance.tags.get(whittle_api::labels::TAG_CLUSTER).is_some_and(|tag| *tag == cluster.to_string());
                instance.state != InstanceState::Terminated && (tagged || instance.tags.contains_key(&owned))
            };
            world.observe_listed();
            let seen = world.machines_seen(|instance| ours(&instance));
            Ok(world.listed(seen))
        })
        .await
    }
    async fn instance(&self, id: &InstanceId) -> Result<Option<Instance>, CloudError> {
        self.call(EC2, "DescribeInstances", |world| {
            let mut found = world.machines_seen(|instance| instance.id == *id).pop();
            if let Some(instance) = found.as_mut().filter(|_| world.is(Mutant::TerminationUnconfirmed))
                && instance.state == InstanceState::ShuttingDown
            {
                instance.state = InstanceState::Terminated;
            }
            Ok(found)
        })
        .await
    }
    async fn tagged(&self, key: &str, value: &str) -> Result<Vec<Instance>, CloudError> {
        self.call(EC2, "DescribeInstances", |world| {
            Ok(world.machines_seen(|instance| instance.tags.get(key).is_some_and(|there| there == value)))
        })
        .await
    }
}

impl InstanceChecks for SimPorts {
    async fn failing(&self, instances: &[InstanceId]) -> Result<Vec<InstanceStatus>, CloudError> {
        // Nothing is asked about nothing.
        if instances.is_empty() {
            return Ok(Vec::new());
        }
        self.call(EC2, "DescribeInstanceStatus", |world| {
            let mut found = world.region.failing();
            found.retain(|status| instances.contains(&status.instance));
            Ok(found)
        })
        .await
    }
}

impl ZonalShifts for SimPorts {
    async fn zone_shifts(&self, cluster_arn: &str) -> Result<Vec<ZoneShift>, CloudError> {
        self.call(EC2, "GetManagedResource", |world| {
            world.region.permits("GetManagedResource")?;
            let missing = || CloudError {
                kind: CloudErrorKind::NotFound,
                call: "GetManagedResource",
                code: "ResourceNotFoundException".to_owned(),
                message: format!("The resource {cluster_arn} was not found."),
            };
            let is_known = world.region.cluster_arn(&world.name()) == cluster_arn;
            is_known.then(|| world.region.zone_shifts.clone()).ok_or_else(missing)
        })
        .await
    }
}

impl InstanceTags for SimPorts {
    async fn tag(&self, id: &InstanceId, tags: &[(String, String)]) -> Result<(), CloudError> {
        self.call(EC2, "CreateTags", |world| {
            let missing = || CloudError {
                kind: CloudErrorKind::NotFound,
                call: "CreateTags",
                code: "InvalidInstanceID.NotFound".to_owned(),
                message: format!("The instance ID '{id}' does not exist"),
            };
            world.region.permits("CreateTags")?;
            let machine = world.region.machines.get_mut(id).ok_or_else(missing)?;
            let mut tagged = machine.instance.tags.clone();
            tagged.extend(tags.iter().cloned());
            if tagged.keys().filter(|key| !key.starts_with("aws:")).count() > TAGS_MAX {
                return Err(invalid("CreateTags", "TagLimitExceeded", format!("The maximum number of Tags for '{id}' has been reached.")));
            }
            machine.instance.tags = tagged;
            Ok(())
        })
        .await
    }
}

impl Terminator for SimPorts {
    async fn terminate(&self, id: &InstanceId) -> Result<(), CloudError> {
        self.call(EC2, "TerminateInstances", |world| match world.terminate_on_request(id) {
            // It counts as ended.
            Err(error) if error.kind == CloudErrorKind::NotFound => Ok(()),
            answer => answer,
        })
        .await
    }
}

impl Discovery for SimPorts {
    async fn cluster_info(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        self.call(EC2, "DescribeCluster", |world| {
            world.cluster_info(cluster).ok_or_else(|| CloudError {
                kind: CloudErrorKind::NotFound,
                call: "DescribeCluster",
                code: "ResourceNotFoundException".to_owned(),
                message: format!("No cluster found for name: {cluster}."),
            })
        })
        .await
    }
    async fn subnets(&self, terms: &[SubnetSelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        self.call(EC2, "DescribeSubnets", |world| Ok(world.region.network.subnets(terms))).await
    }
    async fn security_groups(&self, terms: &[SecurityGroupSelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        self.call(EC2, "DescribeSecurityGroups", |world| Ok(world.region.network.security_groups(terms))).await
    }
    async fn images(&self, terms: &[AmiSelectorTerm], kubernetes_version: &str) -> Result<Vec<Image>, CloudError> {
        self.call(EC2, "DescribeImages", |world| {
            for alias in terms.iter().filter_map(|term| term.alias.as_deref()) {
                ssm_images(alias, kubernetes_version).map_err(|error| invalid("GetParameter", "UnsupportedAlias", error.to_string()))?;
            }
            Ok(world.region.network.images(terms))
        })
        .await
    }
    async fn capacity_reservations(&self, terms: &[CapacityReservationSelectorTerm]) -> Result<Vec<CapacityReservation>, CloudError> {
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        self.call(EC2, "DescribeCapacityReservations", |world| Ok(world.region.reservations_of(terms))).await
    }
    async fn placement_groups(&self, selector: &PlacementGroupSelector) -> Result<Vec<PlacementGroup>, CloudError> {
        self.call(EC2, "DescribePlacementGroups", |world| Ok(world.region.placement_groups_of(selector))).await
    }
    fn instance_profile_name(&self, cluster: &ClusterName, class: &str, _: &str) -> String {
        format!("{cluster}_{class}")
    }
    async fn ensure_instance_profile(
        &self,
        cluster: &ClusterName,
        class: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String, CloudError> {
        self.call(EC2, "CreateInstanceProfile", |world| {
            let name = format!("{cluster}_{class}");
            let network = &mut world.region.network;
            if network.profiles.insert(name.clone(), role.to_owned()).is_none() {
                let origin = ProfileOrigin { path: "/".to_owned(), tags: tags.clone(), created_at: None };
                network.profile_origins.insert(name.clone(), origin);
            }
            Ok(name)
        })
        .await
    }
    async fn profile_role(&self, profile: &str) -> Result<Option<String>, CloudError> {
        self.call(EC2, "GetInstanceProfile", |world| {
            // Profiles that were not created here have a role of the same name.
            let known = world.region.network.profiles.get(profile);
            Ok(Some(known.map_or(profile, String::as_str).to_owned()))
        })
        .await
    }
    async fn profiles(&self, cluster: &ClusterName) -> Result<Vec<ClassProfile>, CloudError> {
        self.call(EC2, "ListInstanceProfiles", |world| {
            let own = |(name, role): (&String, &String)| {
                let class = name.strip_prefix(&format!("{cluster}_"))?.to_owned();
                Some(ClassProfile { name: name.clone(), arn: name.clone(), class, role: role.clone() })
            };
            Ok(world.region.network.profiles.iter().filter_map(own).collect())
        })
        .await
    }
    async fn delete_profile(&self, profile: &ClassProfile) -> Result<bool, CloudError> {
        self.call(EC2, "DeleteInstanceProfile", |world| {
            let is_unused = !world.region.runs_with(&profile.name);
            if is_unused {
                world.region.network.profiles.remove(&profile.name);
                world.region.network.profile_origins.remove(&profile.name);
            }
            Ok(is_unused)
        })
        .await
    }
    async fn release_class(&self, cluster: &ClusterName, class: &str) -> Result<Vec<String>, CloudError> {
        self.call(EC2, "DeleteInstanceProfile", |world| {
            let of_class = |tags: &BTreeMap<String, String>| tags.get(whittle_api::labels::EC2_NODE_CLASS).is_some_and(|tag| tag == class);
            world.region.launch_templates.retain(|_, template| !of_class(&template.tags));
            let profile = format!("{cluster}_{class}");
            if world.region.runs_with(&profile) {
                return Ok(vec![profile]);
            }
            world.region.network.profiles.remove(&profile);
            world.region.network.profile_origins.remove(&profile);
            Ok(Vec::new())
        })
        .await
    }
    async fn catalog(&self, known: Option<&[u8]>) -> Result<CatalogRead, CloudError> {
        self.call(EC2, "DescribeInstanceTypes", |world| {
            let prices_failed = world.region.permits("GetProducts").err();
            let blob = if prices_failed.is_some() { world.region.catalog_with_old_prices(known) } else { world.region.catalog_over(known) };
            Ok(CatalogRead { blob, prices_failed })
        })
        .await
    }
    async fn with_spot_prices(&self, known: &[u8]) -> Result<Vec<u8>, CloudError> {
        self.call(EC2, "DescribeSpotPriceHistory", |world| {
            // No code of EC2: the request is never made.
            world.region.with_spot_prices(known).map_err(|error| invalid("DescribeSpotPriceHistory", "", error.to_string()))
        })
        .await
    }
}
