//! Converts a planned machine to its claim. Pure.

use crate::{Snapshot, name_clashes};
use whittle_api::OwnerReference;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::NodePool;
use whittle_claims::{Claim, ClaimKey, ClaimSpec, ExtraCapacity, OverlaidPrice, PodKey};
use whittle_model::scheduling::{NewClaim, PodRef};
use whittle_solver::overlays::PriceChange;
use whittle_units::{ClaimName, ClusterName, Resources};

/// The claim of a planned machine, which serves no disruption command. `unique` is asked for the end of its name, and for its uid.
pub fn claim_of(new: &NewClaim, snapshot: &Snapshot, cluster: &ClusterName, unique: impl Fn() -> String) -> Claim {
    let pool = snapshot.objects.node_pools.iter().find(|pool| pool.metadata.name == new.node_pool);
    let given = NodePool::given_name(&new.node_pool);
    let types = snapshot.catalog.get(&new.node_pool).map_or(&[][..], |types| types);
    let key = ClaimKey { cluster: cluster.clone(), name: ClaimName::new(format!("{given}-{}", unique())) };
    let spec = ClaimSpec {
        node_pool: given.to_owned(),
        owner: pool.map(owner_of).unwrap_or_default(),
        node_class: new.node_class_ref.clone(),
        labels: name_clashes::plain_labels(&new.labels),
        annotations: snapshot.overlaid.annotations(new, types),
        requirements: name_clashes::plain_requirements(new.requirements_with_types()),
        instance_types: new.instance_types.to_vec(),
        taints: new.taints.clone(),
        startup_taints: new.startup_taints.clone(),
        // A pod may ask for none of any number of resources.
        requests: new.requests.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, amount)| (name.to_owned(), amount)).collect(),
        expire_after: new.expire_after.clone(),
        termination_grace_period: new.termination_grace_period.clone(),
        pods: new.pods.iter().map(pod_key).collect(),
        price: new.cheapest_price,
        replaces: None,
        standalone_uid: None,
        extra_capacity: snapshot.overlaid.resized(new, types).into_iter().map(extra_capacity).collect(),
        overlaid_prices: snapshot.overlaid.priced(new, types).into_iter().map(overlaid_price).collect(),
        is_awaited: false,
    };
    Claim::planned(key, unique(), spec, snapshot.now)
}

fn extra_capacity((resources, instance_types): (Resources, Vec<String>)) -> ExtraCapacity {
    ExtraCapacity { instance_types, resources }
}

fn overlaid_price(PriceChange { price, instance_types, offerings }: PriceChange) -> OverlaidPrice {
    OverlaidPrice { price, instance_types, offerings }
}

/// The owner of the pool's NodeClaims: for a converted pool the user's Provisioner.
fn owner_of(pool: &NodePool) -> OwnerReference {
    let (api_version, kind) =
        if pool.is_converted_provisioner() { ("karpenter.sh/v1alpha5", "Provisioner") } else { (NodePool::API_VERSION, NodePool::KIND) };
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: NodePool::given_name(&pool.metadata.name).to_owned(),
        uid: pool.metadata.uid.clone(),
        controller: None,
        block_owner_deletion: Some(true),
    }
}

/// The key of a planned pod in claims and events.
#[must_use]
pub fn pod_key(pod: &PodRef) -> PodKey {
    PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}
