//! The rights that each call needs.

use super::{TagsByKind, launch, listed, specified};
use crate::ec2::{ACCOUNT, templates::id_of};
use crate::iam;
use crate::params::Params;
use crate::place::Place;
use crate::zonal_shift;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use whittle_sim::region::Region;
use whittle_units::{InstanceId, Partition};

/// When a right is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Before the call does anything.
    Call,
    /// By EC2 in the caller's name, when a fleet launches: a refusal is an error of its pools.
    Launch,
}

/// A right that a call needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// As in policies: `ec2:RunInstances`.
    pub action: String,
    /// An ARN, or `*` where the action has no resources.
    pub resource: String,
    /// Values by condition key in lower case, which is how keys are compared.
    pub context: BTreeMap<String, Vec<String>>,
    pub stage: Stage,
    /// Whether the resource is named and does not exist.
    pub missing: bool,
}

impl Need {
    pub(super) fn of(region: &Region, action: &str, resource: impl Into<String>) -> Self {
        // IAM has one place in a partition.
        let home = if region.partition() == "aws" { "us-east-1" } else { region.name() };
        let mut context = BTreeMap::new();
        if action.starts_with("ec2:") {
            context.insert("ec2:region".to_owned(), vec![region.name().to_owned()]);
        }
        let asked = if action.starts_with("iam:") { home } else { region.name() };
        context.insert("aws:requestedregion".to_owned(), vec![asked.to_owned()]);
        Self { action: action.to_owned(), resource: resource.into(), context, stage: Stage::Call, missing: false }
    }

    pub(super) fn with(mut self, key: &str, value: &str) -> Self {
        self.context.insert(key.to_ascii_lowercase(), vec![value.to_owned()]);
        self
    }

    /// The tags that the request gives the resource.
    pub(super) fn giving(mut self, tags: &BTreeMap<String, String>) -> Self {
        for (key, value) in tags {
            self.context.insert(format!("aws:requesttag/{}", key.to_ascii_lowercase()), vec![value.clone()]);
        }
        if !tags.is_empty() {
            self.context.insert("aws:tagkeys".to_owned(), tags.keys().cloned().collect());
        }
        self
    }

    /// The tags that the resource has; `None` if it does not exist.
    pub(super) fn having(mut self, tags: Option<&BTreeMap<String, String>>) -> Self {
        self.missing = tags.is_none();
        let prefixes: &[&str] =
            if self.action.starts_with("ec2:") { &["aws:resourcetag/", "ec2:resourcetag/"] } else { &["aws:resourcetag/"] };
        for (key, value) in tags.into_iter().flatten() {
            for prefix in prefixes {
                self.context.insert(format!("{prefix}{}", key.to_ascii_lowercase()), vec![value.clone()]);
            }
        }
        self
    }

    pub(super) fn at_launch(mut self) -> Self {
        self.stage = Stage::Launch;
        self
    }
}

/// The ARN of a resource of EC2, as in `instance/i-1`. Images and snapshots have no account.
pub(super) fn ec2_arn(region: &Region, resource: &str) -> String {
    let account = if resource.starts_with("image/") || resource.starts_with("snapshot/") { "" } else { ACCOUNT };
    format!("arn:{}:ec2:{}:{account}:{resource}", region.partition(), region.name())
}

/// The rights that a call needs, in the order in which AWS asks for them. Parameters are read as far as they make sense: the
/// action itself refuses what does not.
pub(crate) fn of(
    place: &mut dyn Place,
    template_tags: &BTreeMap<String, TagsByKind>,
    service: &str,
    action: &str,
    fields: &BTreeMap<String, String>,
) -> Vec<Need> {
    let mut params = Params::of(fields);
    let named = format!("{service}:{action}");
    if !crate::api::ACTIONS.iter().any(|(known, actions)| *known == service && actions.contains(&action)) {
        return Vec::new();
    }
    match (service, action) {
        ("ec2", "CreateFleet") => launch::fleet(place.region(), template_tags, &mut params),
        ("ec2", "RunInstances") => launch::instance(place.region(), template_tags, &mut params),
        ("ec2", "CreateLaunchTemplate") => created_template(place.region(), &mut params),
        ("ec2", "DeleteLaunchTemplate") => {
            let name = params.text("LaunchTemplateName").unwrap_or_default();
            vec![launch::template(place.region(), &named, &name)]
        }
        ("ec2", "TerminateInstances") => {
            let ids = params.texts("InstanceId").unwrap_or_default();
            ids.iter().map(|id| instance(place, &named, id)).collect()
        }
        ("ec2", "CreateTags") => {
            let (ids, tags) = (params.texts("ResourceId").unwrap_or_default(), listed(&mut params, "Tag"));
            ids.iter().map(|id| instance(place, &named, id).giving(&tags)).collect()
        }
        ("iam", "ListInstanceProfiles") => vec![Need::of(place.region(), &named, "*")],
        ("iam", _) => profile(place.region(), &named, &mut params),
        ("ssm", _) => {
            let region = place.region();
            let name = params.text("Name").unwrap_or_default();
            let (owner, slash) = (if name.starts_with("/aws/") { "" } else { ACCOUNT }, if name.starts_with('/') { "" } else { "/" });
            vec![Need::of(region, &named, format!("arn:{}:ssm:{}:{owner}:parameter{slash}{name}", region.partition(), region.name()))]
        }
        ("eks", _) => {
            let region = place.region();
            let name = params.text("name").unwrap_or_default();
            vec![Need::of(region, &named, format!("arn:{}:eks:{}:{ACCOUNT}:cluster/{name}", region.partition(), region.name()))]
        }
        (zonal_shift::SERVICE, _) => {
            let arn = params.text(zonal_shift::IDENTIFIER).unwrap_or_default();
            let key = format!("{}:{}", zonal_shift::SERVICE, zonal_shift::IDENTIFIER);
            vec![Need::of(place.region(), &named, "*").with(&key, &arn)]
        }
        _ => vec![Need::of(place.region(), &named, "*")],
    }
}

/// The ARNs among some rights, each once, in order.
pub(crate) fn resources(needs: &[Need]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    needs.iter().map(|need| &need.resource).filter(|resource| *resource != "*" && seen.insert(*resource)).cloned().collect()
}

/// The tags that a request gives, by the kind of what gets them.
pub(crate) fn request_tags(service: &str, action: &str, fields: &BTreeMap<String, String>) -> TagsByKind {
    let mut params = Params::of(fields);
    match (service, action) {
        ("ec2", "CreateTags") => TagsByKind::from([("instance".to_owned(), listed(&mut params, "Tag"))]),
        ("ec2", _) => specified(&mut params),
        ("iam", _) => {
            let given = params.structure("Tags").map(|mut given| ("instance-profile".to_owned(), listed(&mut given, "member")));
            given.into_iter().collect()
        }
        _ => TagsByKind::new(),
    }
}

fn instance(place: &mut dyn Place, action: &str, id: &str) -> Need {
    let id = InstanceId::new(id);
    let known = place.knows(&id);
    let region = place.region();
    let tags = region.machines.get(&id).filter(|_| known).map(|machine| &machine.instance.tags);
    Need::of(region, action, ec2_arn(region, &format!("instance/{id}"))).having(tags)
}

fn created_template(region: &Region, params: &mut Params) -> Vec<Need> {
    let tags = specified(params).remove("launch-template").unwrap_or_default();
    let arn = ec2_arn(region, "launch-template/*");
    let mut needs = vec![Need::of(region, "ec2:CreateLaunchTemplate", arn.as_str()).giving(&tags)];
    if !tags.is_empty() {
        needs.push(Need::of(region, "ec2:CreateTags", arn).giving(&tags).with("ec2:CreateAction", "CreateLaunchTemplate"));
    }
    needs
}

fn profile(region: &Region, action: &str, params: &mut Params) -> Vec<Need> {
    let name = params.text("InstanceProfileName").unwrap_or_default();
    if action == "iam:CreateInstanceProfile" {
        let path = params.text("Path").unwrap_or_else(|| "/".to_owned());
        let tags = params.structure("Tags").map(|mut given| listed(&mut given, "member")).unwrap_or_default();
        let arn = format!("arn:{}:iam::{ACCOUNT}:instance-profile{path}{name}", region.partition());
        let mut needs = vec![Need::of(region, action, arn.as_str()).giving(&tags)];
        if !tags.is_empty() {
            // It is tagged with what it is made with.
            needs.push(Need::of(region, "iam:TagInstanceProfile", arn).giving(&tags).having(Some(&tags)));
        }
        return needs;
    }
    let none = BTreeMap::new();
    let exists = region.network.profiles.contains_key(&name);
    let tags = region.network.profile_origins.get(&name).map_or(&none, |origin| &origin.tags);
    let mut needs = vec![Need::of(region, action, iam::arn(region, &name)).having(exists.then_some(tags))];
    if action == "iam:AddRoleToInstanceProfile" {
        needs.push(passed(region, &params.text("RoleName").unwrap_or_default()));
    }
    needs
}

/// The right to give EC2 a role, which its instances then have.
pub(super) fn passed(region: &Region, role: &str) -> Need {
    let service = format!("ec2.{}", Partition::of(region.name()).dns_suffix);
    let arn = format!("arn:{}:iam::{ACCOUNT}:role/{role}", region.partition());
    Need::of(region, "iam:PassRole", arn).with("iam:PassedToService", &service)
}

/// The ARN of a launch template, whose id follows from its name.
pub(super) fn template_arn(region: &Region, name: &str) -> String {
    ec2_arn(region, &format!("launch-template/{}", id_of(name)))
}
