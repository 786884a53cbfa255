//! The double of EC2 and IAM.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use whittle_api::karpenter::{CapacityReservationSelectorTerm, PlacementGroupSelector};
use whittle_ec2::network::{ClusterInfo, Image, PlacementGroup, SecurityGroup, Subnet};
use whittle_ports::{CatalogRead, CatalogWriter, ClassProfile, CloudError, Discovery, RegionStore};
use whittle_sim::SimPorts;

/// EC2 and IAM of the simulation, with counted reads, and with the errors that its fields ask for.
pub(super) struct Counting<'a> {
    pub(super) ec2: &'a SimPorts,
    pub(super) catalogs: AtomicU32,
    pub(super) spot_prices: AtomicU32,
    pub(super) reservations: AtomicU32,
    /// Reads of images, failed ones included.
    pub(super) images: AtomicU32,
    pub(super) refuses_images: Option<CloudErrorKind>,
    pub(super) refuses_groups: bool,
    pub(super) refuses_types: bool,
    pub(super) refuses_prices: bool,
    pub(super) refuses_reservations: bool,
    pub(super) lacks_profiles: bool,
    /// IAM may not be asked for the roles of profiles.
    pub(super) hides_roles: bool,
    /// What IAM answers instead of making or showing a profile.
    pub(super) profile_error: Option<CloudError>,
    /// Calls that fail for now.
    pub(super) unanswered: Vec<&'static str>,
    /// The catalog of a concurrent run, which is stored while types are read.
    pub(super) stores_meanwhile: Option<Vec<u8>>,
}

impl<'a> Counting<'a> {
    pub(super) fn over(ec2: &'a SimPorts) -> Self {
        Self {
            ec2,
            catalogs: AtomicU32::new(0),
            spot_prices: AtomicU32::new(0),
            reservations: AtomicU32::new(0),
            images: AtomicU32::new(0),
            refuses_images: None,
            refuses_groups: false,
            refuses_types: false,
            refuses_prices: false,
            refuses_reservations: false,
            lacks_profiles: false,
            hides_roles: false,
            profile_error: None,
            unanswered: Vec::new(),
            stores_meanwhile: None,
        }
    }
    fn ask(&self, call: &'static str) -> Result<(), CloudError> {
        if self.unanswered.contains(&call) { Err(no_answer(call)) } else { Ok(()) }
    }
    /// The number of reads of types, of spot prices and of reservations.
    pub(super) fn counts(&self) -> [u32; 3] {
        [&self.catalogs, &self.spot_prices, &self.reservations].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Discovery for Counting<'_> {
    async fn cluster_info(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        self.ec2.cluster_info(cluster).await
    }
    async fn subnets(&self, terms: &[SubnetSelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        self.ask("DescribeSubnets")?;
        self.ec2.subnets(terms).await
    }
    async fn security_groups(&self, terms: &[SecurityGroupSelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        self.ask("DescribeSecurityGroups")?;
        self.ec2.security_groups(terms).await
    }
    async fn images(&self, terms: &[AmiSelectorTerm], kubernetes_version: &str) -> Result<Vec<Image>, CloudError> {
        self.images.fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = self.refuses_images {
            let (code, message) = ("Refused".to_owned(), "SSM parameter /mine: no".to_owned());
            return Err(CloudError { kind, call: "GetParameter", code, message });
        }
        self.ask("DescribeImages")?;
        self.ec2.images(terms, kubernetes_version).await
    }
    async fn capacity_reservations(&self, terms: &[CapacityReservationSelectorTerm]) -> Result<Vec<CapacityReservation>, CloudError> {
        self.reservations.fetch_add(1, Ordering::Relaxed);
        self.ask("DescribeCapacityReservations")?;
        if self.refuses_reservations { Err(no_answer("DescribeCapacityReservations")) } else { self.ec2.capacity_reservations(terms).await }
    }
    async fn placement_groups(&self, selector: &PlacementGroupSelector) -> Result<Vec<PlacementGroup>, CloudError> {
        if self.refuses_groups {
            let (code, message) = ("UnauthorizedOperation".to_owned(), "no".to_owned());
            return Err(CloudError { kind: whittle_ports::CloudErrorKind::Unauthorized, call: "DescribePlacementGroups", code, message });
        }
        self.ask("DescribePlacementGroups")?;
        self.ec2.placement_groups(selector).await
    }
    fn instance_profile_name(&self, cluster: &ClusterName, class: &str, role: &str) -> String {
        self.ec2.instance_profile_name(cluster, class, role)
    }
    async fn ensure_instance_profile(
        &self,
        cluster: &ClusterName,
        class: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String, CloudError> {
        self.ask("CreateInstanceProfile")?;
        match &self.profile_error {
            Some(error) => Err(error.clone()),
            None => self.ec2.ensure_instance_profile(cluster, class, role, tags).await,
        }
    }
    async fn profile_role(&self, profile: &str) -> Result<Option<String>, CloudError> {
        if let Some(error) = &self.profile_error {
            return Err(error.clone());
        }
        if self.lacks_profiles {
            let message = format!("Instance Profile {profile} cannot be found.");
            return Err(CloudError {
                kind: CloudErrorKind::NotFound,
                call: "GetInstanceProfile",
                code: "NoSuchEntity".to_owned(),
                message,
            });
        }
        if self.hides_roles { Ok(None) } else { self.ec2.profile_role(profile).await }
    }
    async fn profiles(&self, cluster: &ClusterName) -> Result<Vec<ClassProfile>, CloudError> {
        self.ec2.profiles(cluster).await
    }
    async fn delete_profile(&self, profile: &ClassProfile) -> Result<bool, CloudError> {
        self.ec2.delete_profile(profile).await
    }
    async fn release_class(&self, cluster: &ClusterName, class: &str) -> Result<Vec<String>, CloudError> {
        self.ec2.release_class(cluster, class).await
    }
    async fn catalog(&self, known: Option<&[u8]>) -> Result<CatalogRead, CloudError> {
        self.catalogs.fetch_add(1, Ordering::Relaxed);
        if let Some(other) = &self.stores_meanwhile {
            let revision = RegionStore::catalog(self.ec2).await.unwrap().unwrap().revision;
            self.ec2.put_catalog(other, revision).await.unwrap();
        }
        if self.refuses_types { Err(no_answer("DescribeInstanceTypes")) } else { Discovery::catalog(self.ec2, known).await }
    }
    async fn with_spot_prices(&self, known: &[u8]) -> Result<Vec<u8>, CloudError> {
        self.spot_prices.fetch_add(1, Ordering::Relaxed);
        if self.refuses_prices { Err(no_answer("DescribeSpotPriceHistory")) } else { self.ec2.with_spot_prices(known).await }
    }
}

fn no_answer(call: &'static str) -> CloudError {
    let kind = whittle_ports::CloudErrorKind::Unknown;
    CloudError { kind, call, code: "InternalError".to_owned(), message: "no".to_owned() }
}

/// The simulation's adapters, with this double for AWS.
pub(super) fn over<'a>(ports: &'a SimPorts, ec2: &'a Counting<'a>) -> Adapters<'a, SimPorts, Counting<'a>, SimPorts, SimPorts, SimPorts> {
    Adapters { store: ports, cloud: ec2, cluster: ports, queues: ports, clock: ports }
}
