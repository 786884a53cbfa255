//! AMI families and what they imply (aws 12.1).

use whittle_api::karpenter::{BlockDevice, BlockDeviceMapping, Ec2NodeClassSpec};

/// The operating system that a node class's images hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Al2,
    Al2023,
    Bottlerocket,
    Windows2019,
    Windows2022,
    Windows2025,
    Custom,
}

impl Family {
    /// The family of a class; an unknown word behaves as AL2.
    pub fn of(class: &Ec2NodeClassSpec) -> Self {
        match class.family() {
            "AL2023" => Self::Al2023,
            "Bottlerocket" => Self::Bottlerocket,
            "Windows2019" => Self::Windows2019,
            "Windows2022" => Self::Windows2022,
            "Windows2025" => Self::Windows2025,
            "Custom" => Self::Custom,
            _ => Self::Al2,
        }
    }
    /// The build label of Windows nodes; `None` elsewhere.
    pub const fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            _ => None,
        }
    }
    /// Whether nodes run Windows.
    pub const fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }
    /// Whether the number of pods follows from network interfaces; 110 otherwise.
    pub const fn limits_pods_by_interfaces(self) -> bool {
        !self.is_windows()
    }
    /// Whether `podsPerCore` counts.
    pub const fn honours_pods_per_core(self) -> bool {
        !matches!(self, Self::Bottlerocket)
    }
    /// Whether reserved memory follows from interfaces even where `maxPods` says otherwise.
    pub const fn reserves_memory_by_interfaces(self) -> bool {
        matches!(self, Self::Al2 | Self::Al2023 | Self::Custom)
    }
    /// The device that holds pods' writable layers; `None` for Custom.
    pub const fn ephemeral_device(self) -> Option<&'static str> {
        match self {
            Self::Al2 | Self::Al2023 => Some("/dev/xvda"),
            Self::Bottlerocket => Some("/dev/xvdb"),
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => Some("/dev/sda1"),
            Self::Custom => None,
        }
    }
    /// Volumes of a class that names none.
    pub fn default_volumes(self) -> Vec<BlockDeviceMapping> {
        let sizes: &[(&str, &str)] = match self {
            Self::Al2 | Self::Al2023 => &[("/dev/xvda", "20Gi")],
            Self::Bottlerocket => &[("/dev/xvda", "4Gi"), ("/dev/xvdb", "20Gi")],
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => &[("/dev/sda1", "50Gi")],
            Self::Custom => &[],
        };
        sizes
            .iter()
            .map(|(device, size)| BlockDeviceMapping {
                device_name: Some((*device).to_owned()),
                ebs: Some(BlockDevice {
                    encrypted: Some(true),
                    volume_type: Some("gp3".to_owned()),
                    volume_size: Some((*size).to_owned()),
                    ..BlockDevice::default()
                }),
                root_volume: false,
            })
            .collect()
    }
}
