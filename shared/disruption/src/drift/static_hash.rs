//! Whether the NodePool's template has changed since the claim was created (disruption 13.1).

use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::labels::{NODE_POOL_HASH, NODE_POOL_HASH_VERSION};

/// Both sides must have a hash of the same version; otherwise there is no drift.
pub(super) fn has_drifted(claim: &NodeClaim, pool: &NodePool) -> bool {
    let both = |key| Some((pool.metadata.annotation(key)?, claim.metadata.annotation(key)?));
    match (both(NODE_POOL_HASH_VERSION), both(NODE_POOL_HASH)) {
        (Some((version, claim_version)), Some((hash, claim_hash))) => version == claim_version && hash != claim_hash,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pool: [Option<&str>; 2], claim: [Option<&str>; 2], want: bool) {
        let annotate = |values: [Option<&str>; 2]| {
            let keys = [NODE_POOL_HASH, NODE_POOL_HASH_VERSION];
            keys.into_iter().zip(values).filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect()
        };
        let (mut node_pool, mut node_claim) = (NodePool::default(), NodeClaim::default());
        node_pool.metadata.annotations = annotate(pool);
        node_claim.metadata.annotations = annotate(claim);
        assert_eq!(has_drifted(&node_claim, &node_pool), want, "pool {pool:?}, claim {claim:?}");
    }

    #[test]
    fn only_two_hashes_of_one_version_can_differ() {
        check([Some("1"), Some("v3")], [Some("2"), Some("v3")], true);
        check([Some("1"), Some("v3")], [Some("1"), Some("v3")], false);
        check([Some("1"), Some("v4")], [Some("2"), Some("v3")], false);
        check([Some("1"), Some("v3")], [Some("2"), None], false);
        check([Some("1"), None], [Some("2"), Some("v3")], false);
        check([None, Some("v3")], [Some("2"), Some("v3")], false);
        check([Some("1"), Some("v3")], [None, Some("v3")], false);
    }
}
