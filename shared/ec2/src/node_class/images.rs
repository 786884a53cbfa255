//! Images: the resolution of aliases (aws 11.1) and the image of a node (aws 11.3).

use crate::facts::kubernetes_arch;
use crate::network::{Image, ImageVariant};
use std::cmp::Ordering;
use whittle_api::karpenter::AmiFamily;
use whittle_api::karpenter::{Operator, Requirement, ResolvedAmi};
use whittle_api::labels;

/// An SSM parameter with an image id, and the machines for which the image is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SsmImage {
    pub parameter: String,
    pub variant: ImageVariant,
}

/// An alias without images.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    #[error("alias {alias} has no images for Kubernetes {version}: use al2023 or bottlerocket")]
    TooNew { alias: String, version: String },
    #[error("alias {alias} has no images for Kubernetes {version}: it needs 1.35")]
    TooOld { alias: String, version: String },
    #[error("alias {0} is not known")]
    Unknown(String),
}

/// There are no AL2 images from this minor version of Kubernetes on.
const AL2_ENDS_AT: u32 = 33;
/// Windows Server 2025 images exist from this one on.
const WINDOWS2025_BEGINS_AT: u32 = 35;

/// The parameters of an alias such as `al2023@latest` for a Kubernetes version such as `1.33`.
pub fn ssm_images(alias: &str, kubernetes: &str) -> Result<Vec<SsmImage>, AliasError> {
    let (family, version) = alias.split_once('@').unwrap_or((alias, "latest"));
    let minor: u32 = kubernetes.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or_default();
    let of = |parameter: String, variant| SsmImage { parameter, variant };
    let Some(known) = AmiFamily::of_alias(family).filter(|known| known.alias() == Some(family)) else {
        return Err(AliasError::Unknown(alias.to_owned()));
    };
    match known {
        AmiFamily::Al2 if minor >= AL2_ENDS_AT => Err(AliasError::TooNew { alias: alias.to_owned(), version: kubernetes.to_owned() }),
        AmiFamily::Al2 => Ok(al2(kubernetes, version).map(|(parameter, variant)| of(parameter, variant)).to_vec()),
        AmiFamily::Al2023 => Ok(al2023(kubernetes, version)),
        AmiFamily::Bottlerocket => Ok(bottlerocket(kubernetes, version)),
        AmiFamily::Windows2025 if minor < WINDOWS2025_BEGINS_AT => {
            Err(AliasError::TooOld { alias: alias.to_owned(), version: kubernetes.to_owned() })
        }
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            let year = family.trim_start_matches("windows");
            let name = format!("Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}");
            Ok(vec![of(format!("/aws/service/ami-windows-latest/{name}/image_id"), ImageVariant::Any)])
        }
        AmiFamily::Custom => Err(AliasError::Unknown(alias.to_owned())),
    }
}

fn al2(kubernetes: &str, version: &str) -> [(String, ImageVariant); 3] {
    let path = |folder: &str, name: &str| {
        let name = if version == "latest" { "recommended".to_owned() } else { format!("amazon-eks{name}-node-{kubernetes}-{version}") };
        format!("/aws/service/eks/optimized-ami/{kubernetes}/{folder}/{name}/image_id")
    };
    [
        (path("amazon-linux-2", ""), ImageVariant::Standard),
        (path("amazon-linux-2-arm64", "-arm64"), ImageVariant::Standard),
        (path("amazon-linux-2-gpu", "-gpu"), ImageVariant::Accelerated),
    ]
}

fn al2023(kubernetes: &str, version: &str) -> Vec<SsmImage> {
    let path = |arch: &str, variant: &str| {
        let name = if version == "latest" {
            "recommended".to_owned()
        } else {
            format!("amazon-eks-node-al2023-{arch}-{variant}-{kubernetes}-{version}")
        };
        format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{arch}/{variant}/{name}/image_id")
    };
    let all = [
        ("x86_64", "standard", ImageVariant::Standard),
        ("x86_64", "nvidia", ImageVariant::Nvidia),
        ("x86_64", "neuron", ImageVariant::Neuron),
        ("arm64", "standard", ImageVariant::Standard),
        ("arm64", "nvidia", ImageVariant::Nvidia),
    ];
    all.map(|(arch, word, variant)| SsmImage { parameter: path(arch, word), variant }).to_vec()
}

fn bottlerocket(kubernetes: &str, version: &str) -> Vec<SsmImage> {
    let version = version.trim_start_matches('v');
    let path = |flavour: &str, arch: &str| format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{flavour}/{arch}/{version}/image_id");
    // The plain x86 image also drives Neuron devices.
    let all = [
        ("", "x86_64", ImageVariant::Standard),
        ("", "x86_64", ImageVariant::Neuron),
        ("", "arm64", ImageVariant::Standard),
        ("-nvidia", "x86_64", ImageVariant::Nvidia),
        ("-nvidia", "arm64", ImageVariant::Nvidia),
    ];
    all.map(|(flavour, arch, variant)| SsmImage { parameter: path(flavour, arch), variant }).to_vec()
}

/// The images of a class in the order in which types are matched, newest first. Of images for the same machines only
/// the preferred one is kept.
pub fn choose_images(images: &[Image], family: AmiFamily) -> Vec<ResolvedAmi> {
    let mut best: Vec<(Vec<Requirement>, &Image)> = Vec::new();
    for image in images {
        let Some(arch) = kubernetes_arch(&image.architecture) else { continue };
        for requirements in requirements(image.variant, arch, family) {
            match best.iter_mut().find(|(known, _)| *known == requirements) {
                Some(entry) if preference(image, entry.1).is_gt() => entry.1 = image,
                Some(_) => {}
                None => best.push((requirements, image)),
            }
        }
    }
    best.sort_by(|a, b| b.1.created_at.cmp(&a.1.created_at).then_with(|| a.1.id.cmp(&b.1.id)).then_with(|| a.0.cmp(&b.0)));
    let resolved = |(requirements, image): (Vec<Requirement>, &Image)| ResolvedAmi {
        id: image.id.clone(),
        name: image.name.clone(),
        deprecated: image.deprecated,
        requirements,
    };
    best.into_iter().map(resolved).collect()
}

/// The order of preference among images for the same machines: not deprecated, then newer, then larger name.
fn preference(a: &Image, b: &Image) -> Ordering {
    b.deprecated.cmp(&a.deprecated).then(a.created_at.cmp(&b.created_at)).then_with(|| a.name.cmp(&b.name))
}

/// The requirements of an image's machines, keys by length and then by name. Image tags never count.
fn requirements(variant: ImageVariant, arch: &str, family: AmiFamily) -> Vec<Vec<Requirement>> {
    let of = |key: &str, operator| Requirement { key: key.to_owned(), operator, ..Requirement::default() };
    let none = |key| of(key, Operator::DoesNotExist);
    let some = |key| of(key, Operator::Exists);
    let sets = match variant {
        ImageVariant::Any => vec![Vec::new()],
        ImageVariant::Standard => vec![vec![none(labels::INSTANCE_ACCELERATOR_COUNT), none(labels::INSTANCE_GPU_COUNT)]],
        ImageVariant::Nvidia => vec![vec![some(labels::INSTANCE_GPU_COUNT)]],
        ImageVariant::Neuron => vec![vec![some(labels::INSTANCE_ACCELERATOR_COUNT)]],
        ImageVariant::Accelerated => vec![vec![some(labels::INSTANCE_ACCELERATOR_COUNT)], vec![some(labels::INSTANCE_GPU_COUNT)]],
    };
    sets.into_iter()
        .map(|mut set| {
            set.push(Requirement::is_in(labels::ARCH, [arch]));
            if let Some(build) = family.windows_build() {
                set.push(Requirement::is_in(labels::OS, ["windows"]));
                set.push(Requirement::is_in(labels::WINDOWS_BUILD, [build]));
            }
            set.sort_by(|a, b| a.key.len().cmp(&b.key.len()).then_with(|| a.key.cmp(&b.key)));
            set
        })
        .collect()
}
