//! Keys of labels, annotations, taints, finalizers and tags. Sources: Kubernetes' well-known labels and
//! Karpenter's API.

/// Domain of Karpenter's own keys.
pub const KARPENTER_DOMAIN: &str = "karpenter.sh";
/// Domain of the AWS provider's keys.
pub const AWS_DOMAIN: &str = "karpenter.k8s.aws";

pub const NODE_POOL: &str = "karpenter.sh/nodepool";
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub const REGISTERED: &str = "karpenter.sh/registered";
pub const INITIALIZED: &str = "karpenter.sh/initialized";
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
/// Additional label of nodes of a Provisioner, besides [`NODE_POOL`].
pub const PROVISIONER_NAME: &str = "karpenter.sh/provisioner-name";

pub const CAPACITY_ON_DEMAND: &str = "on-demand";
pub const CAPACITY_SPOT: &str = "spot";
pub const CAPACITY_RESERVED: &str = "reserved";

pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// What EKS runs a node on, if not on an instance that somebody else launches: `auto`, `fargate` or `hybrid`.
pub const COMPUTE_TYPE: &str = "eks.amazonaws.com/compute-type";
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
pub const EXCLUDE_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
pub const INSTANCE_CPU_SPEED: &str = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
pub const INSTANCE_ENCRYPTION: &str = "karpenter.k8s.aws/instance-encryption-in-transit-supported";
pub const INSTANCE_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
pub const NITRO_SANDBOX: &str = "karpenter.k8s.aws/nitro-sandbox";
pub const RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
pub const RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
pub const RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
/// The labels that a machine loses when it leaves its reservation.
pub const OF_RESERVATIONS: &[&str] = &[RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE];
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

/// Keys that requirements and pod selectors may use although no template defines them (api 2.1).
pub const WELL_KNOWN: &[&str] = &[
    NODE_POOL,
    CAPACITY_TYPE,
    ZONE,
    REGION,
    ZONE_ID,
    INSTANCE_TYPE,
    ARCH,
    OS,
    WINDOWS_BUILD,
    INSTANCE_TENANCY,
    INSTANCE_CATEGORY,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_SIZE,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_SPEED,
    INSTANCE_MEMORY,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_LOCAL_NVME,
    INSTANCE_HYPERVISOR,
    INSTANCE_ENCRYPTION,
    INSTANCE_FLEX,
    INSTANCE_GPU_NAME,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MEMORY,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_COUNT,
    NITRO_SANDBOX,
    RESERVATION_ID,
    RESERVATION_TYPE,
    RESERVATION_INTERRUPTIBLE,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
];

/// Deprecated keys with their current ones (api 2.2).
pub const ALIASES: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
    ("topology.ebs.csi.aws.com/zone", ZONE),
];

/// The current key for a deprecated one; other keys are returned unchanged.
pub fn normalized(key: &str) -> &str {
    ALIASES.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| new)
}

/// Finalizer on Nodes and NodeClaims.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Finalizer on EC2NodeClasses.
pub const NODE_CLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";

/// Taint of a node that is being disrupted or terminated (NoSchedule, no value).
pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
/// Taint of a node from boot to registration (NoExecute, no value).
pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
/// Taint with which every kubelet of an external cloud provider, as EKS is, registers its Node (NoSchedule).
pub const CLOUD_PROVIDER_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The taint of a cordoned Node, which the node controller sets a moment after `spec.unschedulable`.
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Deprecated forms of [`DO_NOT_DISRUPT`], still honoured.
pub const DO_NOT_EVICT: &str = "karpenter.sh/do-not-evict";
pub const DO_NOT_CONSOLIDATE: &str = "karpenter.sh/do-not-consolidate";
pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
pub const NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
pub const NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// `"true"` on a NodeClaim with a type whose price, or capacity, a NodeOverlay changed.
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
pub const INSTANCE_TAGGED: &str = "karpenter.k8s.aws/tagged";
pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
/// On objects converted from an older version on read: `Provisioner` or `AWSNodeTemplate`.
pub const CONVERTED_FROM: &str = "whittle.dev/converted-from";

/// On a NodePool: the minimum saving of a consolidation of its nodes, in dollars per hour (`"0.02"`). Absent: no minimum.
pub const MINIMUM_SAVING: &str = "whittle.dev/minimum-saving";

/// On a NodePool: the cost of each of its machines besides its price, in dollars per hour (`"0.02"`): volumes, addresses, agents that
/// are paid per host. Absent: the deployment's setting.
pub const MACHINE_COST: &str = "whittle.dev/machine-cost";

/// `"true"` on a NodeClaim that mirrors a claim of ours: Karpenter's have the same labels and the same finalizer.
pub const MANAGED: &str = "whittle.dev/managed";

/// `"true"` on a claim that ended because its machine was handed over to Karpenter: its NodeClaim is not released with it. Only in the
/// table.
pub const HANDED_OVER: &str = "whittle.dev/handed-over";

/// `"true"` on a NodePool or a NodeClaim: machines that Karpenter launched are adopted once Karpenter no longer runs.
pub const ADOPT: &str = "whittle.dev/adopt";

/// `"true"` on a NodePool: disruptions of its nodes are decided and recorded, but not carried out.
pub const SHADOW: &str = "whittle.dev/shadow";

/// On a NodePool: whether a rebalance recommendation terminates a node (`"true"`, `"false"`). Absent: the deployment's setting.
pub const ACT_ON_REBALANCE: &str = "whittle.dev/act-on-rebalance";

/// EC2 tags of everything that we create.
pub const TAG_CLUSTER: &str = "eks:eks-cluster-name";
pub const TAG_NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
/// Prefix of tags that only Whittle sets.
pub const OWN_TAGS: &str = "whittle.dev/";
/// The launch group of an instance, by which a retried launch finds its machines.
pub const TAG_LAUNCH: &str = "whittle.dev/launch";
/// Since when a machine that Whittle launched has been unmanaged; no sweep treats it as an orphan.
pub const TAG_LET_GO: &str = "whittle.dev/let-go";
pub const TAG_NAME: &str = "Name";
/// Prefix of the ownership tag `kubernetes.io/cluster/<cluster>`.
pub const TAG_CLUSTER_OWNED_PREFIX: &str = "kubernetes.io/cluster/";
/// Tag that selectors of subnets and security groups usually use.
pub const TAG_DISCOVERY: &str = "karpenter.sh/discovery";
