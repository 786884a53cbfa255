//! The region's subnets, security groups, images and profiles.

use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{AmiFamily, AmiSelectorTerm, NetworkInterface, SecurityGroupSelectorTerm, SubnetSelectorTerm};
use whittle_ec2::facts::Zone;
use whittle_ec2::fleet::TemplateInterface;
use whittle_ec2::network::{Image, ImageVariant, SecurityGroup, Subnet};
use whittle_units::ClusterName;

/// The tag that the seeds' selectors use.
const DISCOVERY: &str = whittle_api::labels::TAG_DISCOVERY;

/// The cluster's VPC.
pub const VPC: &str = "vpc-00000000000000001";

/// Subnets, groups and images of a region.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub subnets: Vec<Subnet>,
    pub groups: Vec<SecurityGroup>,
    pub images: Vec<Image>,
    /// Role by instance profile; empty for one without a role.
    pub profiles: BTreeMap<String, String>,
    /// How instance profiles were created, where known.
    pub profile_origins: BTreeMap<String, ProfileOrigin>,
    /// The roles that exist; empty means any.
    pub roles: BTreeSet<String>,
    /// The user's own SSM parameters.
    pub parameters: BTreeMap<String, String>,
}

/// How an instance profile was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileOrigin {
    pub path: String,
    pub tags: BTreeMap<String, String>,
    pub created_at: Option<Timestamp>,
}

fn tags_match(wanted: &BTreeMap<String, String>, tags: &BTreeMap<String, String>) -> bool {
    let has = |key: &str, value: &str| match value {
        // A filter by keys, which may have wildcards.
        "*" => tags.keys().any(|known| glob(key, known)),
        _ => tags.get(key).is_some_and(|there| value.is_empty() || glob(value, there)),
    };
    wanted.iter().all(|(key, value)| has(key, value))
}

/// Matches `*` and `?` like EC2's filters.
pub fn glob(pattern: &str, text: &str) -> bool {
    match pattern.as_bytes() {
        [] => text.is_empty(),
        [b'*', ..] => (0..=text.len()).any(|cut| text.is_char_boundary(cut) && glob(&pattern[1..], &text[cut..])),
        [b'?', ..] => !text.is_empty() && glob(&pattern[1..], &text[1..]),
        [first, ..] => text.as_bytes().first() == Some(first) && glob(&pattern[1..], &text[1..]),
    }
}

impl Network {
    /// One tagged subnet in each of three zones, one tagged security group, the images of the EKS families.
    pub fn of_cluster(cluster: &ClusterName, zones: &[Zone], kubernetes_version: &str) -> Self {
        let tagged = || BTreeMap::from([(DISCOVERY.to_owned(), cluster.to_string())]);
        let subnets = zones.iter().enumerate().map(|(number, zone)| Subnet {
            id: format!("subnet-{:017x}", number + 1),
            zone: zone.name.clone(),
            zone_id: zone.id.clone(),
            free_addresses: 8000,
            vpc: VPC.to_owned(),
            outpost: None,
            tags: tagged(),
        });
        let group =
            SecurityGroup { id: format!("sg-{:017x}", 1), name: format!("eks-cluster-sg-{cluster}"), vpc: VPC.to_owned(), tags: tagged() };
        let mut network = Self { subnets: subnets.collect(), groups: vec![group], images: Vec::new(), ..Self::default() };
        network.images = family_images(kubernetes_version);
        network
    }

    /// Replaces the images of the EKS families by those for a version of Kubernetes, whose names say it.
    pub(crate) fn publish_images(&mut self, kubernetes_version: &str) {
        self.images = family_images(kubernetes_version);
    }

    /// Subnets that match one of the terms.
    pub fn subnets(&self, terms: &[SubnetSelectorTerm]) -> Vec<Subnet> {
        let matches = |subnet: &&Subnet| {
            terms.iter().any(|term| match (&term.id, &term.tags) {
                (Some(id), _) => *id == subnet.id,
                (None, Some(tags)) => tags_match(tags, &subnet.tags),
                (None, None) => false,
            })
        };
        self.subnets.iter().filter(matches).cloned().collect()
    }

    /// Security groups that match one of the terms.
    pub fn security_groups(&self, terms: &[SecurityGroupSelectorTerm]) -> Vec<SecurityGroup> {
        let matches = |group: &&SecurityGroup| {
            terms.iter().any(|term| {
                let something = term.id.is_some() || term.name.is_some() || term.tags.is_some();
                something
                    && term.id.as_ref().is_none_or(|id| *id == group.id)
                    && term.name.as_ref().is_none_or(|name| glob(name, &group.name))
                    && term.tags.as_ref().is_none_or(|tags| tags_match(tags, &group.tags))
            })
        };
        self.groups.iter().filter(matches).cloned().collect()
    }

    /// Images that match one of the terms, aliases followed.
    pub fn images(&self, terms: &[AmiSelectorTerm]) -> Vec<Image> {
        let matches = |image: &&Image| {
            terms.iter().any(|term| match &term.ssm_parameter {
                Some(name) if term.id.is_none() && term.alias.is_none() => self.parameter(name) == Some(image.id.as_str()),
                _ => image_matches(image, term),
            })
        };
        self.images.iter().filter(matches).cloned().collect()
    }

    pub fn profile_path(&self, profile: &str) -> &str {
        self.profile_origins.get(profile).map_or("/", |origin| origin.path.as_str())
    }

    /// Whether a role exists.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.is_empty() || self.roles.contains(role)
    }

    /// Whether an image is one of Amazon's.
    pub fn is_amazons(&self, image: &Image) -> bool {
        image.owner == AMAZON
    }

    /// The value of an SSM parameter: the user's own, or a public one of Amazon's images.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let public =
            || self.images.iter().filter(|image| self.is_amazons(image)).find(|image| public_parameters(image).contains(&name.to_owned()));
        self.parameters.get(name).map(String::as_str).or_else(|| public().map(|image| image.id.as_str()))
    }

    /// Gives all subnets the discovery tag of a cluster, or takes it off.
    pub fn tag_subnets(&mut self, cluster: Option<&ClusterName>) {
        self.subnets.iter_mut().for_each(|subnet| set_discovery(&mut subnet.tags, cluster));
    }

    /// The same for all security groups.
    pub fn tag_groups(&mut self, cluster: Option<&ClusterName>) {
        self.groups.iter_mut().for_each(|group| set_discovery(&mut group.tags, cluster));
    }
}

fn set_discovery(tags: &mut BTreeMap<String, String>, cluster: Option<&ClusterName>) {
    match cluster {
        Some(cluster) => {
            tags.insert(DISCOVERY.to_owned(), cluster.to_string());
        }
        None => {
            tags.remove(DISCOVERY);
        }
    }
}

fn image_matches(image: &Image, term: &AmiSelectorTerm) -> bool {
    if let Some(alias) = &term.alias {
        let (family, release) = alias.split_once('@').unwrap_or((alias, "latest"));
        let number = |text: &str| text.trim_start_matches('v').to_owned();
        let is_of_release = || release == "latest" || image.name.rsplit('-').next().map(number) == Some(number(release));
        return image.tags.get(FAMILY_TAG) == Some(&family.to_ascii_lowercase()) && is_of_release();
    }
    let owned = |owner: &String| {
        *owner == image.owner || owner == "amazon" && image.tags.contains_key(FAMILY_TAG) || owner == "self" && image.owner == ACCOUNT
    };
    let something = term.id.is_some() || term.name.is_some() || term.tags.is_some();
    something
        && term.id.as_ref().is_none_or(|id| *id == image.id)
        && term.name.as_ref().is_none_or(|name| glob(name, &image.name))
        && term.tags.as_ref().is_none_or(|tags| tags_match(tags, &image.tags))
        && term.owner.as_ref().is_none_or(owned)
}

/// The images that each alias stands for, in clusters of Kubernetes 1.33.
pub const ALIASES: &[(&str, &[&str])] = &[
    ("al2023@latest", &["ami-00000000000000004", "ami-00000000000000005", "ami-00000000000000006", "ami-00000000000000007"]),
    ("al2023@v20250601", &["ami-00000000000000004", "ami-00000000000000005", "ami-00000000000000006", "ami-00000000000000007"]),
    ("bottlerocket@latest", &["ami-00000000000000008", "ami-00000000000000009", "ami-0000000000000000a"]),
    ("bottlerocket@v1.40.0", &["ami-00000000000000008", "ami-00000000000000009", "ami-0000000000000000a"]),
    ("windows2019@latest", &["ami-0000000000000000b"]),
    ("windows2022@latest", &["ami-0000000000000000c"]),
];

/// The account of the cluster.
pub const ACCOUNT: &str = "000000000000";

/// The account that owns Amazon's images for EKS.
const AMAZON: &str = "602401143452";

/// The tag with the alias family of an image.
const FAMILY_TAG: &str = "sim/family";

/// The family of an image; AL2 by default.
pub(super) fn family_of(image: &Image) -> AmiFamily {
    image.tags.get(FAMILY_TAG).and_then(|alias| AmiFamily::of_alias(alias)).unwrap_or(AmiFamily::Al2)
}

/// The interfaces that a node class named, as its machines' template has them; `None` if it named none.
pub(super) fn named_interfaces(interfaces: &[TemplateInterface]) -> Option<Vec<NetworkInterface>> {
    let index = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let named = |interface: &TemplateInterface| {
        let interface_type = interface.interface_type.clone().filter(|kind| kind != "efa")?;
        let network_card_index = index(interface.card_index?);
        Some(NetworkInterface { network_card_index, device_index: index(interface.device_index), interface_type })
    };
    let named: Vec<NetworkInterface> = interfaces.iter().filter_map(named).collect();
    (!named.is_empty()).then_some(named)
}

/// The public parameters that hold an image, as AWS publishes them: its release, and the latest.
fn public_parameters(image: &Image) -> Vec<String> {
    let words: Vec<&str> = image.name.split('-').collect();
    let eks = |version: &str, rest: &str| format!("/aws/service/eks/optimized-ami/{version}/{rest}/image_id");
    match words.as_slice() {
        ["amazon", "eks", "node", "al2023", arch, variant, version, release] => {
            let folder = format!("amazon-linux-2023/{arch}/{variant}");
            vec![
                eks(version, &format!("{folder}/recommended")),
                eks(version, &format!("{folder}/amazon-eks-node-al2023-{arch}-{variant}-{version}-{release}")),
            ]
        }
        ["amazon", "eks", kind @ .., "node", version, release] => {
            let suffix = kind.first().map(|kind| format!("-{kind}")).unwrap_or_default();
            let folder = format!("amazon-linux-2{suffix}");
            let latest = eks(version, &format!("{folder}/recommended"));
            vec![latest, eks(version, &format!("{folder}/amazon-eks{suffix}-node-{version}-{release}"))]
        }
        ["bottlerocket", "aws", "k8s", version, flavour @ .., arch, release] => {
            let suffix = flavour.first().map(|flavour| format!("-{flavour}")).unwrap_or_default();
            let arch = if *arch == "aarch64" { "arm64" } else { arch };
            let folder = format!("/aws/service/bottlerocket/aws-k8s-{version}{suffix}/{arch}");
            vec![format!("{folder}/latest/image_id"), format!("{folder}/{}/image_id", release.trim_start_matches('v'))]
        }
        [windows @ .., _release] if image.name.starts_with("Windows_Server") => {
            vec![format!("/aws/service/ami-windows-latest/{}/image_id", windows.join("-"))]
        }
        _ => Vec::new(),
    }
}

fn family_images(version: &str) -> Vec<Image> {
    let date = "2025-06-01T00:00:00Z".parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let image = |number: u32, family: AmiFamily, architecture: &str, name: String| Image {
        id: format!("ami-{number:017x}"),
        owner: AMAZON.to_owned(),
        architecture: architecture.to_owned(),
        created_at: date,
        deprecated: false,
        variant: match family {
            _ if family.is_windows() => ImageVariant::Any,
            _ if name.contains("-gpu-") => ImageVariant::Accelerated,
            _ if name.contains("-nvidia-") => ImageVariant::Nvidia,
            _ if name.contains("-neuron-") => ImageVariant::Neuron,
            _ => ImageVariant::Standard,
        },
        name,
        tags: BTreeMap::from([(FAMILY_TAG.to_owned(), family.alias().unwrap_or_default().to_owned())]),
    };
    vec![
        image(1, AmiFamily::Al2, "x86_64", format!("amazon-eks-node-{version}-v20250601")),
        image(2, AmiFamily::Al2, "arm64", format!("amazon-eks-arm64-node-{version}-v20250601")),
        image(3, AmiFamily::Al2, "x86_64", format!("amazon-eks-gpu-node-{version}-v20250601")),
        image(4, AmiFamily::Al2023, "x86_64", format!("amazon-eks-node-al2023-x86_64-standard-{version}-v20250601")),
        image(5, AmiFamily::Al2023, "arm64", format!("amazon-eks-node-al2023-arm64-standard-{version}-v20250601")),
        image(6, AmiFamily::Al2023, "x86_64", format!("amazon-eks-node-al2023-x86_64-nvidia-{version}-v20250601")),
        image(7, AmiFamily::Al2023, "x86_64", format!("amazon-eks-node-al2023-x86_64-neuron-{version}-v20250601")),
        image(8, AmiFamily::Bottlerocket, "x86_64", format!("bottlerocket-aws-k8s-{version}-x86_64-v1.40.0")),
        image(9, AmiFamily::Bottlerocket, "arm64", format!("bottlerocket-aws-k8s-{version}-aarch64-v1.40.0")),
        image(10, AmiFamily::Bottlerocket, "x86_64", format!("bottlerocket-aws-k8s-{version}-nvidia-x86_64-v1.40.0")),
        image(11, AmiFamily::Windows2019, "x86_64", format!("Windows_Server-2019-English-Core-EKS_Optimized-{version}-2025.06.01")),
        image(12, AmiFamily::Windows2022, "x86_64", format!("Windows_Server-2022-English-Core-EKS_Optimized-{version}-2025.06.01")),
        image(13, AmiFamily::Windows2025, "x86_64", format!("Windows_Server-2025-English-Core-EKS_Optimized-{version}-2025.06.01")),
    ]
}
