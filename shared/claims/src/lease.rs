//! The right to decide for one cluster.

use serde::{Deserialize, Serialize};
use whittle_units::{ClusterName, Timestamp};

/// Grows with every lease of a cluster. A write of an older token than the stored one is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

/// The right of one invocation to decide for a cluster until it expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub cluster: ClusterName,
    /// The invocation that holds it.
    pub owner: String,
    pub token: FencingToken,
    pub expires_at: Timestamp,
}

impl Lease {
    /// The lease for an invocation that acquires it at `now`: with a newer token if the old lease has expired or is its own,
    /// `None` otherwise.
    pub fn acquire(old: Option<&Self>, cluster: &ClusterName, owner: &str, now: Timestamp, until: Timestamp) -> Option<Self> {
        let token = match old {
            Some(held) if held.expires_at > now && held.owner != owner => return None,
            Some(held) => FencingToken(held.token.0 + 1),
            None => FencingToken(1),
        };
        Some(Self { cluster: cluster.clone(), owner: owner.to_owned(), token, expires_at: until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    /// The token with which an owner gets, at this second, the lease that `a` holds until second 30.
    fn token(owner: &str, now: i64) -> Option<u64> {
        let cluster = ClusterName::new("c");
        let held = Lease::acquire(None, &cluster, "a", at(0), at(30)).expect("nobody has it");
        assert_eq!((held.token, held.expires_at), (FencingToken(1), at(30)));
        Lease::acquire(Some(&held), &cluster, owner, at(now), at(now + 30)).map(|lease| lease.token.0)
    }

    #[test]
    fn nobody_else_gets_a_lease_before_it_expires_and_whoever_gets_it_has_a_newer_token() {
        assert_eq!([0, 29, 30, 31].map(|now| token("b", now)), [None, None, Some(2), Some(2)]);
        assert_eq!([0, 29, 30, 31].map(|now| token("a", now)), [Some(2); 4]);
    }
}
