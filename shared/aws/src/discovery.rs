//! Discovery for node classes: cluster, subnets, security groups, images, capacity reservations, placement groups, instance
//! profiles (aws 11, 14 to 17). Only `refresh` uses it.

use crate::budget::send;
use crate::catalog::with_latest;
use crate::clusters::describe_cluster;
use crate::describe;
use crate::errors::incomplete;
use crate::machines::{Machines, filter};
use aws_sdk_ec2::types as sdk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::karpenter::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use whittle_api::labels;
use whittle_ec2::errors::ApiError;
use whittle_ec2::facts::Catalog;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, ImageVariant, PlacementGroup, SecurityGroup, Subnet};
use whittle_ec2::node_class::{
    InstanceProfile, Query, capacity_reservation_queries, class_of_profile, cluster_path, image_queries, instance_profile, matches_tags,
    profile_path, security_group_queries, ssm_images, ssm_parameters, subnet_queries,
};
use whittle_ports::{CatalogRead, ClassProfile, Clock, CloudError, CloudErrorKind, Discovery, LaunchTemplateCleanup};
use whittle_units::{ClusterName, Region};

/// The clients that discovery needs.
#[derive(Clone)]
pub struct Ec2Discovery {
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) eks: aws_sdk_eks::Client,
    pub(crate) ssm: aws_sdk_ssm::Client,
    pub(crate) iam: aws_sdk_iam::Client,
    /// The client of the Price List API; `None` where it cannot be reached.
    pub(crate) pricing: Option<aws_sdk_pricing::Client>,
    /// Whether IAM can be reached.
    pub(crate) isolation: Isolation,
    pub(crate) region: Region,
    pub(crate) clock: Arc<dyn Clock + Send>,
}

/// Page size of subnets and groups.
const PAGE: i32 = 500;
const IMAGE_PAGE: i32 = 1000;
const RESERVATION_PAGE: i32 = 1000;
/// States in which an instance still needs its instance profile.
const STATES_WITH_PROFILE: &[&str] = &["pending", "running", "stopping", "stopped"];

/// An instance profile as IAM lists it.
struct FoundProfile {
    name: String,
    arn: String,
    path: String,
    roles: Vec<String>,
}

fn filters(query: &Query) -> Vec<sdk::Filter> {
    let one = |(name, values): (&String, &Vec<String>)| sdk::Filter::builder().name(name).set_values(Some(values.clone())).build();
    query.filters.iter().map(one).collect()
}

impl Ec2Discovery {
    /// The clients of one region, from a loaded SDK configuration. Prices come from the built-in tables where `isolation` says that
    /// services without an endpoint in the VPC cannot be reached.
    pub fn new(config: &aws_config::SdkConfig, region: Region, isolation: Isolation, clock: Arc<dyn Clock + Send>) -> Self {
        let pricing = match (isolation, whittle_ec2::facts::tables::pricing_region(region.as_str())) {
            (Isolation::Reachable, Some(home)) => {
                let home = aws_sdk_pricing::config::Region::new(home);
                Some(aws_sdk_pricing::Client::from_conf(aws_sdk_pricing::config::Builder::from(config).region(home).build()))
            }
            _ => None,
        };
        Self {
            ec2: aws_sdk_ec2::Client::new(config),
            eks: aws_sdk_eks::Client::new(config),
            ssm: aws_sdk_ssm::Client::new(config),
            iam: aws_sdk_iam::Client::new(config),
            isolation,
            pricing,
            region,
            clock,
        }
    }

    /// The image id in a parameter; `None` when the parameter does not exist or holds something else.
    async fn parameter(&self, name: &str) -> Result<Option<String>, CloudError> {
        match send!(self, aws_sdk_ssm, "GetParameter", self.ssm.get_parameter().name(name)) {
            Err(error) if error.kind == CloudErrorKind::NotFound => Ok(None),
            Err(error) => Err(CloudError { message: format!("SSM parameter {name}: {}", error.message), ..error }),
            Ok(answer) => {
                let value = answer.parameter.and_then(|parameter| parameter.value);
                Ok(value.filter(|value| value.starts_with("ami-")))
            }
        }
    }

    /// Images of a query, deprecated ones included.
    async fn describe_images(&self, query: &Query) -> Result<Vec<sdk::Image>, CloudError> {
        let mut all = filters(query);
        all.push(sdk::Filter::builder().name("state").values("available").build());
        let owners = (!query.owners.is_empty()).then(|| query.owners.clone());
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let request = self.ec2.describe_images().set_filters(Some(all.clone())).set_owners(owners.clone());
            let request = request.include_deprecated(true).max_results(IMAGE_PAGE).set_next_token(next);
            let page = send!(self, aws_sdk_ec2, "DescribeImages", request)?;
            next = page.next_token.filter(|token| !token.is_empty());
            found.extend(page.images.unwrap_or_default().into_iter().filter(|image| matches_tags(query, &describe::tags(image.tags()))));
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Capacity reservations of a query. An id that does not exist finds nothing. EC2 rejects a page size together with ids.
    async fn describe_capacity_reservations(&self, query: &Query) -> Result<Vec<sdk::CapacityReservation>, CloudError> {
        let ids = (!query.ids.is_empty()).then(|| query.ids.clone());
        let page_size = ids.is_none().then_some(RESERVATION_PAGE);
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let request = self.ec2.describe_capacity_reservations().set_filters(Some(filters(query)));
            let request = request.set_capacity_reservation_ids(ids.clone()).set_max_results(page_size).set_next_token(next);
            let page = match send!(self, aws_sdk_ec2, "DescribeCapacityReservations", request) {
                Err(error) if error.kind == CloudErrorKind::NotFound => return Ok(found),
                answer => answer?,
            };
            next = page.next_token.filter(|token| !token.is_empty());
            found.extend(page.capacity_reservations.unwrap_or_default());
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Image ids of an alias with the machines that each is for. A parameter that does not exist is skipped.
    async fn alias(&self, alias: &str, kubernetes_version: &str) -> Result<BTreeMap<String, BTreeSet<ImageVariant>>, CloudError> {
        let unsupported = |message: String| CloudError {
            kind: CloudErrorKind::Invalid,
            call: "GetParameter",
            code: "UnsupportedAlias".to_owned(),
            message,
        };
        let wanted = ssm_images(alias, kubernetes_version).map_err(|error| unsupported(error.to_string()))?;
        let mut found: BTreeMap<String, BTreeSet<ImageVariant>> = BTreeMap::new();
        let mut read: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for image in &wanted {
            if !read.contains_key(image.parameter.as_str()) {
                let value = self.parameter(&image.parameter).await?;
                read.insert(&image.parameter, value);
            }
            if let Some(Some(id)) = read.get(image.parameter.as_str()) {
                found.entry(id.clone()).or_default().insert(image.variant);
            }
        }
        Ok(found)
    }
}

/// Whether services outside the VPC's endpoints can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Reachable,
    Isolated,
}

impl Discovery for Ec2Discovery {
    async fn cluster_info(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        describe_cluster(&self.eks, &*self.clock, cluster).await
    }

    async fn subnets(&self, terms: &[SubnetSelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        let mut found = BTreeMap::new();
        for query in subnet_queries(terms) {
            let mut next = None;
            loop {
                let request = self.ec2.describe_subnets().set_filters(Some(filters(&query))).max_results(PAGE).set_next_token(next);
                let page = send!(self, aws_sdk_ec2, "DescribeSubnets", request)?;
                let subnets = page.subnets().iter().filter_map(describe::subnet).filter(|subnet| matches_tags(&query, &subnet.tags));
                found.extend(subnets.map(|subnet| (subnet.id.clone(), subnet)));
                next = page.next_token.filter(|token| !token.is_empty());
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(found.into_values().collect())
    }

    async fn security_groups(&self, terms: &[SecurityGroupSelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        let mut found = BTreeMap::new();
        for query in security_group_queries(terms) {
            let mut next = None;
            loop {
                let request = self.ec2.describe_security_groups().set_filters(Some(filters(&query))).max_results(PAGE).set_next_token(next);
                let page = send!(self, aws_sdk_ec2, "DescribeSecurityGroups", request)?;
                let groups =
                    page.security_groups().iter().filter_map(describe::security_group).filter(|group| matches_tags(&query, &group.tags));
                found.extend(groups.map(|group| (group.id.clone(), group)));
                next = page.next_token.filter(|token| !token.is_empty());
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(found.into_values().collect())
    }

    async fn images(&self, terms: &[AmiSelectorTerm], kubernetes_version: &str) -> Result<Vec<Image>, CloudError> {
        let now = self.clock.now();
        let mut named = Vec::new();
        for parameter in ssm_parameters(terms) {
            named.extend(self.parameter(parameter).await?);
        }
        let mut found = BTreeMap::new();
        for query in image_queries(terms, &named) {
            for entry in self.describe_images(&query).await? {
                found.extend(describe::image(&entry, ImageVariant::Any, now).map(|image| ((image.id.clone(), image.variant), image)));
            }
        }
        for alias in terms.iter().filter_map(|term| term.alias.as_deref()) {
            let variants = self.alias(alias, kubernetes_version).await?;
            if variants.is_empty() {
                continue;
            }
            let ids = variants.keys().cloned().collect();
            let query = Query { filters: BTreeMap::from([("image-id".to_owned(), ids)]), ..Query::default() };
            for entry in self.describe_images(&query).await? {
                let of = entry.image_id().and_then(|id| variants.get(id)).into_iter().flatten();
                found.extend(
                    of.filter_map(|variant| describe::image(&entry, *variant, now)).map(|image| ((image.id.clone(), image.variant), image)),
                );
            }
        }
        Ok(found.into_values().collect())
    }

    async fn capacity_reservations(&self, terms: &[CapacityReservationSelectorTerm]) -> Result<Vec<CapacityReservation>, CloudError> {
        let mut found = BTreeMap::new();
        for query in capacity_reservation_queries(terms) {
            let reservations = self.describe_capacity_reservations(&query).await?;
            let reservations = reservations.iter().filter_map(describe::capacity_reservation);
            let matching = reservations.filter(|reservation| matches_tags(&query, &reservation.tags));
            found.extend(matching.map(|reservation| (reservation.id.clone(), reservation)));
        }
        Ok(found.into_values().collect())
    }

    async fn placement_groups(&self, selector: &PlacementGroupSelector) -> Result<Vec<PlacementGroup>, CloudError> {
        // An id excludes a name; EC2 does not page this answer.
        let request = match (&selector.id, &selector.name) {
            (Some(id), _) => self.ec2.describe_placement_groups().group_ids(id),
            (None, Some(name)) => self.ec2.describe_placement_groups().group_names(name),
            (None, None) => return Ok(Vec::new()),
        };
        match send!(self, aws_sdk_ec2, "DescribePlacementGroups", request) {
            Err(error) if error.kind == CloudErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(answer) => Ok(answer.placement_groups().iter().filter_map(describe::placement_group).collect()),
        }
    }

    fn instance_profile_name(&self, cluster: &ClusterName, class: &str, role: &str) -> String {
        instance_profile(cluster.as_str(), self.region.as_str(), class, role).name
    }

    async fn ensure_instance_profile(
        &self,
        cluster: &ClusterName,
        class: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String, CloudError> {
        let wanted = instance_profile(cluster.as_str(), self.region.as_str(), class, role).with_tags(tags);
        let (path, roles) = match self.profile_roles(&wanted).await? {
            Some(known) => known,
            None => {
                self.create_profile(&wanted).await?;
                (wanted.path.clone(), Vec::new())
            }
        };
        if roles.contains(&wanted.role) {
            return Ok(wanted.name);
        }
        if path != wanted.path {
            // Its instances would get another role.
            let message =
                format!("instance profile {} of {path} was created for something else; rename the class or its role", wanted.name);
            return Err(CloudError {
                kind: CloudErrorKind::Invalid,
                call: "GetInstanceProfile",
                code: "EntityAlreadyExists".to_owned(),
                message,
            });
        }
        for other in &roles {
            let request = self.iam.remove_role_from_instance_profile().instance_profile_name(&wanted.name).role_name(other);
            send!(self, aws_sdk_iam, "RemoveRoleFromInstanceProfile", request)?;
        }
        let request = self.iam.add_role_to_instance_profile().instance_profile_name(&wanted.name).role_name(&wanted.role);
        match send!(self, aws_sdk_iam, "AddRoleToInstanceProfile", request) {
            Err(error) if ApiError::client(error.code.as_str(), error.message.as_str()).is_profile_full() => {
                self.added_meanwhile(&wanted, error).await?;
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        Ok(wanted.name)
    }

    async fn profile_role(&self, profile: &str) -> Result<Option<String>, CloudError> {
        if self.isolation == Isolation::Isolated {
            return Ok(None);
        }
        match send!(self, aws_sdk_iam, "GetInstanceProfile", self.iam.get_instance_profile().instance_profile_name(profile)) {
            Err(error) if error.kind == CloudErrorKind::Unauthorized => Ok(None),
            Err(error) => Err(error),
            Ok(answer) => {
                let roles = answer.instance_profile.map(|profile| profile.roles).unwrap_or_default();
                Ok(Some(roles.into_iter().next().map(|role| role.role_name).unwrap_or_default()))
            }
        }
    }

    async fn release_class(&self, cluster: &ClusterName, class: &str) -> Result<Vec<String>, CloudError> {
        let of_class = vec![
            filter(format!("tag:{}", labels::TAG_CLUSTER), &[cluster.as_str()]),
            filter(format!("tag:{}", labels::EC2_NODE_CLASS), &[class]),
        ];
        let machines = Machines::new(self.ec2.clone(), Arc::clone(&self.clock));
        for template in machines.template_names(of_class).await? {
            machines.delete_launch_template(&template).await?;
        }
        if self.isolation == Isolation::Isolated {
            // IAM cannot be reached: a profile from before the isolation stays.
            return Ok(Vec::new());
        }
        let path = profile_path(cluster.as_str(), self.region.as_str(), class);
        let mut in_use = Vec::new();
        for profile in self.profiles_under(&path).await? {
            if !self.delete_unused_profile(&profile.name, &profile.arn, &profile.roles).await? {
                in_use.push(profile.name);
            }
        }
        Ok(in_use)
    }

    async fn profiles(&self, cluster: &ClusterName) -> Result<Vec<ClassProfile>, CloudError> {
        if self.isolation == Isolation::Isolated {
            return Ok(Vec::new());
        }
        let (cluster, region) = (cluster.as_str(), self.region.as_str());
        let found = self.profiles_under(&cluster_path(cluster, region)).await?;
        let own = |found: FoundProfile| {
            let role = found.roles.into_iter().next()?;
            let class = class_of_profile(cluster, region, &found.name, &found.path, &role)?.to_owned();
            Some(ClassProfile { name: found.name, arn: found.arn, class, role })
        };
        Ok(found.into_iter().filter_map(own).collect())
    }

    async fn delete_profile(&self, profile: &ClassProfile) -> Result<bool, CloudError> {
        self.delete_unused_profile(&profile.name, &profile.arn, std::slice::from_ref(&profile.role)).await
    }

    async fn catalog(&self, known: Option<&[u8]>) -> Result<CatalogRead, CloudError> {
        let known = known.and_then(|blob| Catalog::decode(blob).ok());
        let (catalog, prices_failed) = self.read_catalog(known.as_ref()).await?;
        Ok(CatalogRead { blob: catalog.encode(), prices_failed })
    }

    async fn with_spot_prices(&self, known: &[u8]) -> Result<Vec<u8>, CloudError> {
        const CALL: &str = "DescribeSpotPriceHistory";
        let known = Catalog::decode(known).map_err(|error| incomplete(CALL, format!("no catalog for the prices: {error}")))?;
        let spot = with_latest(self.spot_prices().await?, &known);
        Ok(Catalog { spot, ..known }.normalized().encode())
    }
}

/// Deleting what does not exist is a success.
fn ignore_not_found<T>(outcome: Result<T, CloudError>) -> Result<(), CloudError> {
    match outcome {
        Err(error) if error.kind != CloudErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Ec2Discovery {
    /// Whether an instance that is not terminating uses a profile.
    async fn is_profile_in_use(&self, profile_arn: &str) -> Result<bool, CloudError> {
        let filters = vec![filter("iam-instance-profile.arn", &[profile_arn]), filter("instance-state-name", STATES_WITH_PROFILE)];
        let mut next = None;
        loop {
            let request = self.ec2.describe_instances().set_filters(Some(filters.clone())).max_results(PAGE).set_next_token(next);
            let page = send!(self, aws_sdk_ec2, "DescribeInstances", request)?;
            let mut instances = page.reservations().iter().flat_map(sdk::Reservation::instances);
            if instances.any(|instance| instance.iam_instance_profile().and_then(|profile| profile.arn()) == Some(profile_arn)) {
                return Ok(true);
            }
            next = page.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(false);
            }
        }
    }

    /// Deletes a profile and takes its roles out, unless an instance uses it. Whether it is gone.
    async fn delete_unused_profile(&self, name: &str, arn: &str, roles: &[String]) -> Result<bool, CloudError> {
        if self.is_profile_in_use(arn).await? {
            return Ok(false);
        }
        for role in roles {
            let request = self.iam.remove_role_from_instance_profile().instance_profile_name(name).role_name(role);
            ignore_not_found(send!(self, aws_sdk_iam, "RemoveRoleFromInstanceProfile", request))?;
        }
        let request = self.iam.delete_instance_profile().instance_profile_name(name);
        ignore_not_found(send!(self, aws_sdk_iam, "DeleteInstanceProfile", request))?;
        Ok(true)
    }

    /// The instance profiles under a path.
    async fn profiles_under(&self, path: &str) -> Result<Vec<FoundProfile>, CloudError> {
        let mut found = Vec::new();
        let mut next = None;
        loop {
            let request = self.iam.list_instance_profiles().path_prefix(path).set_marker(next);
            let page = send!(self, aws_sdk_iam, "ListInstanceProfiles", request)?;
            next = page.marker.filter(|_| page.is_truncated);
            found.extend(page.instance_profiles.into_iter().map(|profile| FoundProfile {
                name: profile.instance_profile_name,
                arn: profile.arn,
                path: profile.path,
                roles: profile.roles.into_iter().map(|role| role.role_name).collect(),
            }));
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Path and roles of a profile; `None` when it does not exist.
    async fn profile_roles(&self, profile: &InstanceProfile) -> Result<Option<(String, Vec<String>)>, CloudError> {
        match send!(self, aws_sdk_iam, "GetInstanceProfile", self.iam.get_instance_profile().instance_profile_name(&profile.name)) {
            Err(error) if error.kind == CloudErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(answer) => {
                let known = answer.instance_profile.map(|profile| (profile.path, profile.roles)).unwrap_or_default();
                Ok(Some((known.0, known.1.into_iter().map(|role| role.role_name).collect())))
            }
        }
    }

    /// Accepts that a profile has the role that was to be added: several runs may see to a new class at once, and IAM shows what one has
    /// added only some seconds later. While it does not, nothing is known of the profile, and the next run asks again.
    async fn added_meanwhile(&self, profile: &InstanceProfile, error: CloudError) -> Result<(), CloudError> {
        match self.profile_roles(profile).await? {
            Some((_, roles)) if roles.contains(&profile.role) => Ok(()),
            _ => Err(CloudError { kind: CloudErrorKind::Unknown, ..error }),
        }
    }

    async fn create_profile(&self, profile: &InstanceProfile) -> Result<(), CloudError> {
        const CALL: &str = "CreateInstanceProfile";
        let tag = |(key, value): (&String, &String)| aws_sdk_iam::types::Tag::builder().key(key).value(value).build();
        let tags = profile.tags.iter().map(tag).collect::<Result<Vec<_>, _>>().map_err(|error| incomplete(CALL, error.to_string()))?;
        let request = self.iam.create_instance_profile().instance_profile_name(&profile.name).path(&profile.path).set_tags(Some(tags));
        match send!(self, aws_sdk_iam, "CreateInstanceProfile", request) {
            Err(error) if error.kind == CloudErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }
}
