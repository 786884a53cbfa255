//! The rights that a fleet needs: its own, and those to run instances with which EC2 launches in the caller's name.

use super::needs::{Need, ec2_arn, passed, template_arn};
use super::{TagsByKind, specified};
use crate::params::Params;
use std::collections::{BTreeMap, BTreeSet};
use whittle_ec2::fleet::{LaunchTemplate, ReservationTarget};
use whittle_sim::region::Region;

/// The right to an action on a launch template.
pub(super) fn template(region: &Region, action: &str, name: &str) -> Need {
    let tags = region.launch_templates.get(name).map(|template| &template.tags);
    Need::of(region, action, template_arn(region, name)).having(tags)
}

/// What a fleet names, as far as it can be read.
#[derive(Default)]
struct Named {
    templates: BTreeSet<String>,
    images: BTreeSet<String>,
    subnets: BTreeSet<String>,
}

impl Named {
    fn read(region: &Region, params: &mut Params) -> Self {
        let mut named = Self::default();
        for mut config in params.list("LaunchTemplateConfigs").unwrap_or_default() {
            let specification = config.structure("LaunchTemplateSpecification");
            let name = specification.and_then(|mut given| given.text("LaunchTemplateName")).unwrap_or_default();
            let of_template = region.launch_templates.get(&name).map(|template| template.image_id.clone());
            for mut entry in config.list("Overrides").unwrap_or_default() {
                let image = entry.text("ImageId").or_else(|| of_template.clone());
                named.images.extend(image.filter(|id| !id.is_empty()));
                named.subnets.extend(entry.text("SubnetId"));
            }
            named.templates.insert(name);
        }
        named
    }

    fn of_instance(region: &Region, params: &mut Params) -> Self {
        let specification = params.structure("LaunchTemplate");
        let name = specification.and_then(|mut given| given.text("LaunchTemplateName")).unwrap_or_default();
        let of_template = region.launch_templates.get(&name).map(|template| template.image_id.clone());
        let interfaces = params.list("NetworkInterface").unwrap_or_default();
        let subnets = interfaces.into_iter().filter_map(|mut interface| interface.text("SubnetId")).chain(params.text("SubnetId"));
        let images = params.text("ImageId").or(of_template).filter(|id| !id.is_empty());
        Self { images: images.into_iter().collect(), subnets: subnets.collect(), templates: [name].into() }
    }

    /// The tags of what is launched: a template adds to those of the request, which win.
    fn with_tags(&self, template_tags: &BTreeMap<String, TagsByKind>, given: &TagsByKind) -> TagsByKind {
        let mut launched = TagsByKind::new();
        for tags in self.templates.iter().filter_map(|name| template_tags.get(name)).chain([given]) {
            for (kind, tags) in tags {
                launched.entry(kind.clone()).or_default().extend(tags.clone());
            }
        }
        launched
    }

    fn templates<'a>(&'a self, region: &'a Region) -> impl Iterator<Item = &'a LaunchTemplate> {
        self.templates.iter().filter_map(|name| region.launch_templates.get(name))
    }
}

pub(super) fn fleet(region: &Region, template_tags: &BTreeMap<String, TagsByKind>, params: &mut Params) -> Vec<Need> {
    let spot = params.fields().get("TargetCapacitySpecification.DefaultTargetCapacityType").is_some_and(|kind| kind == "spot");
    let tags = specified(params);
    let named = Named::read(region, params);
    let mut needs = fleet_itself(region, &tags, &named);
    needs.extend(run(region, &named.with_tags(template_tags, &tags), &named, spot).into_iter().map(Need::at_launch));
    needs
}

/// The rights that RunInstances needs, from a launch template.
pub(super) fn instance(region: &Region, template_tags: &BTreeMap<String, TagsByKind>, params: &mut Params) -> Vec<Need> {
    let tags = specified(params);
    let named = Named::of_instance(region, params);
    run(region, &named.with_tags(template_tags, &tags), &named, false)
}

/// The rights to CreateFleet, for each kind of resource that it is checked for.
fn fleet_itself(region: &Region, tags: &TagsByKind, named: &Named) -> Vec<Need> {
    const ACTION: &str = "ec2:CreateFleet";
    let none = BTreeMap::new();
    let mut needs = Vec::new();
    for kind in ["fleet", "instance", "volume"] {
        let tags = tags.get(kind).unwrap_or(&none);
        needs.push(Need::of(region, ACTION, ec2_arn(region, &format!("{kind}/*"))).giving(tags));
    }
    needs.extend(named.templates.iter().map(|name| template(region, ACTION, name)));
    needs.extend(existing(region, ACTION, named, Checked::ByFleet));
    if let Some(tags) = tags.get("fleet").filter(|tags| !tags.is_empty()) {
        let arn = ec2_arn(region, "fleet/*");
        needs.push(Need::of(region, "ec2:CreateTags", arn).giving(tags).with("ec2:CreateAction", "CreateFleet"));
    }
    needs
}

/// The rights to RunInstances, to tag what it makes and to pass the role of the instances.
fn run(region: &Region, tags: &TagsByKind, named: &Named, spot: bool) -> Vec<Need> {
    const ACTION: &str = "ec2:RunInstances";
    let none = BTreeMap::new();
    let mut needs = Vec::new();
    for kind in ["instance", "volume", "network-interface", "spot-instances-request"] {
        if kind == "spot-instances-request" && !spot {
            continue;
        }
        let (arn, tags) = (ec2_arn(region, &format!("{kind}/*")), tags.get(kind).unwrap_or(&none));
        needs.push(Need::of(region, ACTION, arn.as_str()).giving(tags));
        if !tags.is_empty() {
            needs.push(Need::of(region, "ec2:CreateTags", arn).giving(tags).with("ec2:CreateAction", "RunInstances"));
        }
    }
    needs.extend(named.templates.iter().map(|name| template(region, ACTION, name)));
    needs.extend(existing(region, ACTION, named, Checked::ByRun));
    let profiles: BTreeSet<&String> = named.templates(region).map(|template| &template.instance_profile).collect();
    let roles = profiles.into_iter().filter_map(|profile| region.network.profiles.get(profile)).filter(|role| !role.is_empty());
    needs.extend(roles.map(|role| passed(region, role)));
    needs
}

/// For which action resources are named: CreateFleet is checked for fewer kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    ByFleet,
    ByRun,
}

/// The rights to use what exists.
fn existing(region: &Region, action: &str, named: &Named, checked: Checked) -> Vec<Need> {
    let network = &region.network;
    let mut needs = Vec::new();
    let mut add = |resource: String, tags: Option<&BTreeMap<String, String>>| {
        needs.push(Need::of(region, action, ec2_arn(region, &resource)).having(tags));
    };
    for id in &named.images {
        add(format!("image/{id}"), network.images.iter().find(|image| image.id == *id).map(|image| &image.tags));
    }
    for id in &named.subnets {
        add(format!("subnet/{id}"), network.subnets.iter().find(|subnet| subnet.id == *id).map(|subnet| &subnet.tags));
    }
    let untagged = BTreeMap::new();
    let placed: BTreeSet<&String> = named.templates(region).filter_map(|template| template.placement_group_id.as_ref()).collect();
    for id in placed {
        let group = region.placement_groups.get(id);
        add(format!("placement-group/{}", group.map_or(id, |group| &group.name)), group.map(|_| &untagged));
    }
    if checked == Checked::ByFleet {
        return needs;
    }
    let groups: BTreeSet<&String> = named.templates(region).flat_map(|template| &template.security_group_ids).collect();
    for id in groups {
        add(format!("security-group/{id}"), network.groups.iter().find(|group| group.id == *id).map(|group| &group.tags));
    }
    let reserved: BTreeSet<&String> = named
        .templates(region)
        .filter_map(|template| match &template.reservation {
            Some(ReservationTarget::Only(id)) => Some(id),
            Some(ReservationTarget::None) | None => None,
        })
        .collect();
    for id in reserved {
        add(format!("capacity-reservation/{id}"), region.reservations.get(id).map(|known| &known.described.tags));
    }
    let volumes = named.templates(region).flat_map(|template| &template.block_device_mappings);
    let snapshots: BTreeSet<&String> = volumes.filter_map(|mapping| mapping.ebs.as_ref()?.snapshot_id.as_ref()).collect();
    for id in snapshots {
        add(format!("snapshot/{id}"), Some(&untagged));
    }
    needs
}
