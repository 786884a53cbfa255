//! Karpenter's kinds in their served versions.

mod ami_family;
mod buffer;
mod node_claim;
mod node_class;
mod node_overlay;
mod node_pool;

pub use ami_family::AmiFamily;
pub use buffer::{BufferReference, CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
pub use node_claim::{NodeClaim, NodeClaimResources, NodeClaimSpec, NodeClaimStatus};
pub use node_class::{
    AmiSelectorTerm, BlockDevice, BlockDeviceMapping, CapacityReservationSelectorTerm, ConnectionTracking, CpuOptions, Ec2NodeClass,
    Ec2NodeClassSpec, Ec2NodeClassStatus, MetadataOptions, NetworkInterface, PlacementGroupSelector, ResolvedAmi,
    ResolvedCapacityReservation, ResolvedPlacementGroup, ResolvedSecurityGroup, ResolvedSubnet, SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
};
pub use node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus, adjusted_price};
pub use node_pool::{
    Budget, ConsolidationPolicy, Disruption, NodeClaimTemplate, NodeClaimTemplateSpec, NodeClassReference, NodePool, NodePoolSpec,
    NodePoolStatus, Operator, Requirement, TemplateMeta,
};
