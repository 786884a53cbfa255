//! AMI families, one row of a table each (aws 12.1).
//!
//! A new family is a variant and a row here, its images in `ec2/node_class/images.rs` and its bootstrap in
//! `ec2/user_data`. Older API versions have lists of their own, which never grow.

use super::{BlockDevice, BlockDeviceMapping, Ec2NodeClassSpec};

/// The operating system of a node class's images, and how its nodes are bootstrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AmiFamily {
    Al2,
    Al2023,
    Bottlerocket,
    Custom,
    Windows2019,
    Windows2022,
    Windows2025,
}

/// What a family implies.
struct Row {
    family: AmiFamily,
    /// The value of `spec.amiFamily`.
    name: &'static str,
    /// The part of an alias before the `@`.
    alias: Option<&'static str>,
    /// Value of the label `node.kubernetes.io/windows-build`.
    windows_build: Option<&'static str>,
    honours_pods_per_core: bool,
    reserves_memory_by_interfaces: bool,
    /// The device that holds pods' writable layers.
    ephemeral_device: Option<&'static str>,
    /// Default devices and their sizes.
    default_volumes: &'static [(&'static str, &'static str)],
}

const LINUX: Row = Row {
    family: AmiFamily::Al2,
    name: "AL2",
    alias: Some("al2"),
    windows_build: None,
    honours_pods_per_core: true,
    reserves_memory_by_interfaces: true,
    ephemeral_device: Some("/dev/xvda"),
    default_volumes: &[("/dev/xvda", "20Gi")],
};

const WINDOWS: Row =
    Row { reserves_memory_by_interfaces: false, ephemeral_device: Some("/dev/sda1"), default_volumes: &[("/dev/sda1", "50Gi")], ..LINUX };

/// In the order of the enum.
const ROWS: &[Row] = &[
    LINUX,
    Row { family: AmiFamily::Al2023, name: "AL2023", alias: Some("al2023"), ..LINUX },
    Row {
        family: AmiFamily::Bottlerocket,
        name: "Bottlerocket",
        alias: Some("bottlerocket"),
        honours_pods_per_core: false,
        reserves_memory_by_interfaces: false,
        ephemeral_device: Some("/dev/xvdb"),
        default_volumes: &[("/dev/xvda", "4Gi"), ("/dev/xvdb", "20Gi")],
        ..LINUX
    },
    Row { family: AmiFamily::Custom, name: "Custom", alias: None, ephemeral_device: None, default_volumes: &[], ..LINUX },
    Row { family: AmiFamily::Windows2019, name: "Windows2019", alias: Some("windows2019"), windows_build: Some("10.0.17763"), ..WINDOWS },
    Row { family: AmiFamily::Windows2022, name: "Windows2022", alias: Some("windows2022"), windows_build: Some("10.0.20348"), ..WINDOWS },
    Row { family: AmiFamily::Windows2025, name: "Windows2025", alias: Some("windows2025"), windows_build: Some("10.0.26100"), ..WINDOWS },
];

impl AmiFamily {
    /// All values of `spec.amiFamily`.
    pub const NAMES: [&str; ROWS.len()] = {
        let mut names = [""; ROWS.len()];
        let mut at = 0;
        while at < ROWS.len() {
            names[at] = ROWS[at].name;
            at += 1;
        }
        names
    };

    /// All families.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.family)
    }
    const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
    /// The family of a value of `spec.amiFamily`.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|family| family.name() == name)
    }
    /// The family of an alias such as `al2023@latest`, or of its part before the `@`; case-insensitive.
    pub fn of_alias(alias: &str) -> Option<Self> {
        let word = alias.split('@').next()?;
        Self::all().find(|family| family.alias().is_some_and(|alias| alias.eq_ignore_ascii_case(word)))
    }
    /// The value of `spec.amiFamily`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }
    /// The part of an alias before the `@`; `None` for Custom.
    pub const fn alias(self) -> Option<&'static str> {
        self.row().alias
    }
    /// The build label of Windows nodes; `None` elsewhere.
    pub const fn windows_build(self) -> Option<&'static str> {
        self.row().windows_build
    }
    /// Whether nodes run Windows.
    pub const fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }
    /// Whether the number of pods follows from network interfaces; 110 otherwise.
    pub const fn limits_pods_by_interfaces(self) -> bool {
        !self.is_windows()
    }
    /// Whether `podsPerCore` is honoured.
    pub const fn honours_pods_per_core(self) -> bool {
        self.row().honours_pods_per_core
    }
    /// Whether reserved memory follows from network interfaces even if `maxPods` is set.
    pub const fn reserves_memory_by_interfaces(self) -> bool {
        self.row().reserves_memory_by_interfaces
    }
    /// Whether `instanceStorePolicy: RAID0` makes local disks the storage of pods; of Custom the user's own data do that.
    pub const fn joins_local_disks(self) -> bool {
        !self.is_windows()
    }
    /// The device that holds pods' writable layers; `None` for Custom.
    pub const fn ephemeral_device(self) -> Option<&'static str> {
        self.row().ephemeral_device
    }
    /// The volumes of a class that specifies none.
    pub fn default_volumes(self) -> Vec<BlockDeviceMapping> {
        let volume = |(device, size): &(&str, &str)| BlockDeviceMapping {
            device_name: Some((*device).to_owned()),
            ebs: Some(BlockDevice {
                encrypted: Some(true),
                volume_type: Some("gp3".to_owned()),
                volume_size: Some((*size).to_owned()),
                ..BlockDevice::default()
            }),
            root_volume: false,
        };
        self.row().default_volumes.iter().map(volume).collect()
    }
}

impl Ec2NodeClassSpec {
    /// The AMI family: `spec.amiFamily`, else that of the alias, else Custom. An unknown value behaves as AL2.
    pub fn family(&self) -> AmiFamily {
        AmiFamily::named(self.family_name()).unwrap_or(AmiFamily::Al2)
    }
    /// The value of `spec.amiFamily`, if it is no family.
    pub fn unknown_family(&self) -> Option<&str> {
        self.ami_family.as_deref().filter(|name| AmiFamily::named(name).is_none())
    }
    /// The family's name for the hash of the class: as written, if `spec.amiFamily` is set.
    pub(crate) fn family_name(&self) -> &str {
        let of_alias = || self.alias().and_then(|(family, _)| AmiFamily::of_alias(family));
        self.ami_family.as_deref().unwrap_or_else(|| of_alias().unwrap_or(AmiFamily::Custom).name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_enum() {
        for (at, family) in AmiFamily::all().enumerate() {
            assert_eq!(family as usize, at, "{family:?}");
            assert_eq!(AmiFamily::named(family.name()), Some(family));
            assert_eq!(family.alias().is_none(), family == AmiFamily::Custom);
            assert!(family.alias().is_none_or(|alias| AmiFamily::of_alias(alias) == Some(family)));
        }
    }

    #[test]
    fn the_family_of_a_class_is_the_written_one_then_that_of_its_alias_then_custom() {
        let of = |written: Option<&str>, alias: Option<&str>| {
            let mut class = Ec2NodeClassSpec { ami_family: written.map(str::to_owned), ..Ec2NodeClassSpec::default() };
            class.ami_selector_terms = alias
                .iter()
                .map(|alias| crate::karpenter::AmiSelectorTerm { alias: Some((*alias).to_owned()), ..Default::default() })
                .collect();
            class.family()
        };
        assert_eq!(of(Some("Custom"), Some("al2@latest")), AmiFamily::Custom);
        assert_eq!(of(None, Some("Bottlerocket@v1.40.0")), AmiFamily::Bottlerocket);
        assert_eq!(of(None, None), AmiFamily::Custom);
        assert_eq!(of(None, Some("beos@latest")), AmiFamily::Custom);
        assert_eq!(of(Some("BeOS"), None), AmiFamily::Al2);
    }
}
