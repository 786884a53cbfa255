//! A region in which lookups find what the case says that Karpenter found.

use super::case::Case;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::karpenter::{AmiSelectorTerm, ResolvedAmi};
use whittle_api::labels;
use whittle_ec2::network::{CapacityReservation, Image, ImageVariant, SecurityGroup, Subnet};
use whittle_ec2::node_class::ssm_images;
use whittle_sim::region::{PoolRefusal, Region, Reservation, VPC};
use whittle_units::Timestamp;

impl Case {
    /// Puts the resources of the case into a region.
    pub(crate) fn add_resources(&self, region: &mut Region) {
        region.catalog = Arc::new(self.catalog());
        region.supply.reports_all_errors = true;
        region.supply.refusals = self.refusals();
        for group in self.placement_groups() {
            region.place(group);
        }
        for reservation in self.reservations() {
            region.reserve(reservation);
        }
        let spec = &self.class.spec;
        let free = self.counts("freeIPs");
        let tags = spec.subnet_selector_terms.iter().find_map(|term| term.tags.as_ref());
        let network = &mut region.network;
        network.subnets = (self.resolved.subnets.iter())
            .map(|subnet| Subnet {
                id: subnet.id.clone(),
                zone: subnet.zone.clone(),
                zone_id: subnet.zone_id.clone(),
                free_addresses: free.get(&subnet.id).copied().unwrap_or(1000),
                vpc: VPC.to_owned(),
                outpost: None,
                tags: selected_by(tags),
            })
            .collect();
        let tags = spec.security_group_selector_terms.iter().find_map(|term| term.tags.as_ref());
        let group =
            |id: &String, name: &String| SecurityGroup { id: id.clone(), name: name.clone(), vpc: VPC.to_owned(), tags: selected_by(tags) };
        network.groups = self.resolved.security_groups.iter().map(|found| group(&found.id, &found.name)).collect();
        network.roles.extend(spec.role.clone());
        if let Some(profile) = &spec.instance_profile {
            network.profiles.insert(profile.clone(), "node-role".to_owned());
        }
        network.images.clear();
        network.parameters.clear();
        for term in &spec.ami_selector_terms {
            self.publish(region, term);
        }
    }

    fn refusals(&self) -> Vec<PoolRefusal> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let errors = self.facts["fleetErrors"].as_array().into_iter().flatten();
        let refusal = |error: &serde_json::Value| PoolRefusal {
            instance_type: text(&error["type"]),
            zone: text(&error["zone"]),
            code: text(&error["code"]),
            message: text(&error["message"]),
            after: 0,
        };
        errors.map(refusal).collect()
    }

    fn reservations(&self) -> Vec<Reservation> {
        let free = self.counts("reservations");
        let reservation = |each: &whittle_api::karpenter::ResolvedCapacityReservation| Reservation {
            described: CapacityReservation {
                id: each.id.clone(),
                zone: each.availability_zone.clone(),
                instance_type: each.instance_type.clone(),
                owner: each.owner_id.clone(),
                match_criteria: each.instance_match_criteria.clone(),
                kind: each.reservation_type.clone(),
                interruptible: each.interruptible,
                state: "active".to_owned(),
                ..CapacityReservation::default()
            },
            total: free.get(&each.id).copied().unwrap_or_default(),
        };
        self.resolved.capacity_reservations.iter().map(reservation).collect()
    }

    /// The images that a term selects. One image of a case may serve both architectures, which no image in EC2 does: the one for
    /// arm64 gets an id of its own ([`twin_for_arm`]).
    fn publish(&self, region: &mut Region, term: &AmiSelectorTerm) {
        let Some(alias) = &term.alias else {
            return self.publish_own(region, term);
        };
        // A refused alias has no images; `refresh` says so.
        for queried in ssm_images(alias, &self.kubernetes_version()).unwrap_or_default() {
            let arch = if queried.parameter.contains("arm64") { "arm64" } else { "amd64" };
            let Some(found) = self.resolved.amis.iter().find(|ami| serves(ami, arch, queried.variant)) else { continue };
            let id = if arch == "arm64" && serves(found, "amd64", queried.variant) { twin_for_arm(&found.id) } else { found.id.clone() };
            region.network.parameters.insert(queried.parameter, id.clone());
            let image = Image { variant: queried.variant, ..image(&id, &found.name, "602401143452", arch) };
            if region.network.images.iter().all(|known| known.id != id) {
                region.network.images.push(image);
            }
        }
    }

    fn publish_own(&self, region: &mut Region, term: &AmiSelectorTerm) {
        let Some(first) = self.resolved.amis.first() else { return };
        let id = term.id.clone().unwrap_or_else(|| first.id.clone());
        let known = self.resolved.amis.iter().find(|ami| ami.id == id).unwrap_or(first);
        let arch = if serves(known, "amd64", ImageVariant::Any) { "amd64" } else { "arm64" };
        let owner = term.owner.clone().unwrap_or_else(|| "self".to_owned());
        let name = term.name.clone().unwrap_or_else(|| known.name.clone());
        if region.network.images.iter().all(|other| other.id != id) {
            region.network.images.push(Image { tags: selected_by(term.tags.as_ref()), ..image(&id, &name, &owner, arch) });
        }
    }
}

/// The id of an image for arm64, where the case has one image for both architectures.
pub(crate) fn twin_for_arm(id: &str) -> String {
    format!("{}a", &id[..id.len() - 1])
}

/// Whether an image serves machines of an architecture, with the accelerators of a variant.
fn serves(ami: &ResolvedAmi, arch: &str, variant: ImageVariant) -> bool {
    let values = |key: &str| ami.requirements.iter().find(|requirement| requirement.key == key);
    let exists = |key: &str| values(key).map(|requirement| requirement.operator == whittle_api::karpenter::Operator::Exists);
    let fits = |key: &str, wanted: bool| exists(key).is_none_or(|exists| exists == wanted);
    let (gpu, accelerator) = match variant {
        ImageVariant::Nvidia | ImageVariant::Accelerated => (true, false),
        ImageVariant::Neuron => (false, true),
        ImageVariant::Any | ImageVariant::Standard => (false, false),
    };
    values(labels::ARCH).is_none_or(|requirement| requirement.values.iter().any(|value| value == arch))
        && fits(labels::INSTANCE_GPU_COUNT, gpu)
        && fits(labels::INSTANCE_ACCELERATOR_COUNT, accelerator)
}

/// Tags that a selector with these tags selects.
fn selected_by(tags: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let value = |value: &String| if value == "*" { "any".to_owned() } else { value.clone() };
    tags.into_iter().flatten().map(|(key, wanted)| (key.clone(), value(wanted))).collect()
}

fn image(id: &str, name: &str, owner: &str, arch: &str) -> Image {
    Image {
        id: id.to_owned(),
        name: name.to_owned(),
        owner: owner.to_owned(),
        architecture: if arch == "arm64" { "arm64" } else { "x86_64" }.to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
        deprecated: false,
        variant: ImageVariant::Any,
        tags: BTreeMap::new(),
    }
}
