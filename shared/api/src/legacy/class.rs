//! Node classes.

use super::{AwsNodeTemplate, AwsNodeTemplateSpec, BetaNodeClass, Purpose, ROLE_PLACEHOLDER, Refusal, UBUNTU_ANNOTATION, Work, selector};
use crate::karpenter::{AmiSelectorTerm, BlockDevice, BlockDeviceMapping, Ec2NodeClass, Ec2NodeClassSpec, MetadataOptions};
use crate::labels;
use crate::manifest::Object;
use crate::meta::ObjectMeta;

/// Origin of a class that was converted from an AWSNodeTemplate.
const TEMPLATE: &str = "AWSNodeTemplate";
/// The version of the alias that a class of v1 has: Karpenter writes it into the v1beta1 view of the class, which has no aliases.
const ALIAS_VERSION_ANNOTATION: &str = "compatibility.karpenter.k8s.aws/v1-alias-version";

impl Work<'_> {
    pub(super) fn template(&mut self, old: AwsNodeTemplate) -> Result<(), Refusal> {
        let metadata = self.metadata(old.metadata, Some(TEMPLATE));
        let class = self.class_from_template(metadata, old.spec, "spec")?;
        self.push(class, Some(TEMPLATE), None);
        Ok(())
    }

    /// The class of a Provisioner with inline AWS settings.
    pub(super) fn inline_class(&mut self, name: &str, provider: AwsNodeTemplateSpec) -> Result<Object, Refusal> {
        let metadata = self.metadata(ObjectMeta::named(name), Some(TEMPLATE));
        self.class_from_template(metadata, provider, "spec.provider")
    }

    pub(super) fn beta_class(&mut self, old: BetaNodeClass) -> Result<(), Refusal> {
        let mut metadata = self.metadata(old.metadata, None);
        let mut spec = old.spec;
        images_to_v1(&mut metadata, &mut spec, "spec")?;
        defaults_before_v1(&mut spec);
        self.warn_of_al2(&metadata.name, &spec);
        self.push(Object::NodeClass(Box::new(Ec2NodeClass { metadata, spec, ..Ec2NodeClass::default() })), None, None);
        Ok(())
    }

    fn class_from_template(&mut self, mut metadata: ObjectMeta, old: AwsNodeTemplateSpec, field: &str) -> Result<Object, Refusal> {
        if let Some(template) = &old.launch_template {
            let message = format!(
                "launch template {template:?} is the user's own, which node classes do not support: write what it holds (AMI, user data, \
                 groups, disks) into the class"
            );
            return Err(vec![(format!("{field}.launchTemplate"), message)]);
        }
        let mixed = mixed_selectors(&old, field);
        if self.options.purpose == Purpose::Output && !mixed.is_empty() {
            return Err(mixed);
        }
        let mappings = match &old.block_device_mappings {
            None => None,
            Some(mappings) => {
                let mappings: Result<Vec<_>, _> = mappings.iter().map(super::LegacyBlockDeviceMapping::to_v1).collect();
                Some(mappings.map_err(|error| vec![(format!("{field}.blockDeviceMappings"), format!("{error}: write it as v1 has it"))])?)
            }
        };
        let mut spec = Ec2NodeClassSpec {
            subnet_selector_terms: selector::subnets(&old.subnet_selector),
            security_group_selector_terms: selector::security_groups(&old.security_group_selector),
            ami_selector_terms: selector::images(&old.ami_selector),
            ami_family: Some(old.ami_family.unwrap_or_else(|| "AL2".to_owned())),
            user_data: old.user_data,
            instance_profile: old.instance_profile,
            tags: old.tags,
            context: old.context,
            detailed_monitoring: old.detailed_monitoring,
            metadata_options: old.metadata_options,
            block_device_mappings: mappings,
            ..Ec2NodeClassSpec::default()
        };
        if self.options.al2023 && spec.ami_family.as_deref() == Some("AL2") && spec.ami_selector_terms.is_empty() {
            spec.ami_family = Some("AL2023".to_owned());
        }
        images_to_v1(&mut metadata, &mut spec, field)?;
        defaults_before_v1(&mut spec);
        self.identify(&metadata.name, &mut spec);
        self.drop_restricted_tags(&metadata.name, &mut spec);
        self.warn_of_al2(&metadata.name, &spec);
        Ok(Object::NodeClass(Box::new(Ec2NodeClass { metadata, spec, ..Ec2NodeClass::default() })))
    }

    /// Sets role or profile: the template's own profile, else the global default, else a placeholder in printed manifests.
    fn identify(&mut self, name: &str, spec: &mut Ec2NodeClassSpec) {
        if spec.instance_profile.is_some() {
            return;
        }
        spec.instance_profile.clone_from(&self.options.default_instance_profile);
        if spec.instance_profile.is_some() {
            return;
        }
        spec.role.clone_from(&self.options.default_role);
        if spec.role.is_none() && self.options.purpose == Purpose::Output {
            spec.role = Some(ROLE_PLACEHOLDER.to_owned());
            let text = format!("spec.role is the placeholder {ROLE_PLACEHOLDER}: replace it by the role of your nodes before applying");
            self.note("EC2NodeClass", name, text);
        }
    }

    fn drop_restricted_tags(&mut self, name: &str, spec: &mut Ec2NodeClassSpec) {
        let Some(tags) = &mut spec.tags else { return };
        let restricted = |key: &String| {
            [labels::TAG_CLUSTER, labels::NODE_POOL, labels::TAG_NODE_CLAIM, labels::EC2_NODE_CLASS, labels::PROVISIONER_NAME]
                .contains(&key.as_str())
                || key == "karpenter.sh/managed-by"
                || key.starts_with("kubernetes.io/cluster")
        };
        let dropped: Vec<String> = tags.keys().filter(|key| restricted(key)).cloned().collect();
        tags.retain(|key, _| !restricted(key));
        if !dropped.is_empty() {
            self.note("EC2NodeClass", name, format!("spec.tags: {} left out, those tags are set by the system", dropped.join(", ")));
        }
    }

    fn warn_of_al2(&mut self, name: &str, spec: &Ec2NodeClassSpec) {
        if self.options.purpose == Purpose::Output && spec.alias().is_some_and(|(family, _)| family == "al2") {
            self.note("EC2NodeClass", name, "there are no AL2 images from Kubernetes 1.33 on: --al2023 writes the newer family instead");
        }
    }
}

/// The selectors of a template that no terms of v1 can stand for: a server would refuse these, and who converts has not written them. What
/// is read and not printed selects by both.
fn mixed_selectors(old: &AwsNodeTemplateSpec, field: &str) -> Refusal {
    let selectors = [
        ("subnetSelector", &old.subnet_selector),
        ("securityGroupSelector", &old.security_group_selector),
        ("amiSelector", &old.ami_selector),
    ];
    let refused = selectors.into_iter().filter_map(|(name, selector)| {
        let (ids, other) = selector::mixed(selector)?;
        let message = format!(
            "{ids} stands beside {other}, and both have to match, which no term of v1 can say: an id excludes everything else; keep {ids} \
             alone, or leave it out"
        );
        Some((format!("{field}.{name}"), message))
    });
    refused.collect()
}

/// The images as in v1: an alias if the family's own images are meant, with the version that the annotation keeps for it.
fn images_to_v1(metadata: &mut ObjectMeta, spec: &mut Ec2NodeClassSpec, field: &str) -> Result<(), Refusal> {
    let version = metadata.annotations.remove(ALIAS_VERSION_ANNOTATION);
    let family = spec.ami_family.take().unwrap_or_default();
    let bare = spec.ami_selector_terms.is_empty();
    match family.as_str() {
        "AL2" | "AL2023" | "Bottlerocket" | "Windows2019" | "Windows2022" if bare => {
            let alias = format!("{}@{}", family.to_ascii_lowercase(), version.as_deref().unwrap_or("latest"));
            spec.ami_selector_terms.push(AmiSelectorTerm { alias: Some(alias), ..AmiSelectorTerm::default() });
        }
        "AL2" | "AL2023" | "Bottlerocket" | "Windows2019" | "Windows2022" => spec.ami_family = Some(family),
        "Ubuntu" | "Ubuntu2004" | "Ubuntu2204" => ubuntu_to_v1(metadata, spec),
        _ if bare => {
            let message = format!("amiFamily {family:?} has no images of its own: name the images in an AMI selector");
            return Err(vec![(format!("{field}.amiSelector"), message)]);
        }
        _ => spec.ami_family = Some("Custom".to_owned()),
    }
    Ok(())
}

/// Ubuntu is no longer a family: it is bootstrapped as AL2, with its own root volume, and its images must be specified.
fn ubuntu_to_v1(metadata: &mut ObjectMeta, spec: &mut Ec2NodeClassSpec) {
    let mut changes = vec!["amiFamily"];
    spec.ami_family = Some("AL2".to_owned());
    if spec.block_device_mappings.is_none() {
        changes.push("blockDeviceMappings");
        let ebs = BlockDevice {
            encrypted: Some(true),
            volume_size: Some("20Gi".to_owned()),
            volume_type: Some("gp3".to_owned()),
            ..BlockDevice::default()
        };
        let device_name = Some("/dev/sda1".to_owned());
        spec.block_device_mappings = Some(vec![BlockDeviceMapping { device_name, ebs: Some(ebs), root_volume: true }]);
    }
    if spec.ami_selector_terms.is_empty() {
        changes.push("incompatible");
        spec.ami_selector_terms.push(AmiSelectorTerm { id: Some("ami-placeholder".to_owned()), ..AmiSelectorTerm::default() });
    }
    metadata.annotations.insert(UBUNTU_ANNOTATION.to_owned(), changes.join(","));
}

/// Before v1 the hop limit was 2 by default; v1's default is 1, so it is written out.
fn defaults_before_v1(spec: &mut Ec2NodeClassSpec) {
    let options = spec.metadata_options.get_or_insert_default();
    let MetadataOptions { http_endpoint, http_protocol_ipv6, http_put_response_hop_limit, http_tokens } = options;
    http_endpoint.get_or_insert_with(|| "enabled".to_owned());
    http_protocol_ipv6.get_or_insert_with(|| "disabled".to_owned());
    http_put_response_hop_limit.get_or_insert(2);
    http_tokens.get_or_insert_with(|| "required".to_owned());
}
