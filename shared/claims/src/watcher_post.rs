//! What the watcher of a cluster posts to the relay. It says where to look, and nothing of what is there but a version.

use crate::Doorbell;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// The version of [`WatcherPost`] that is written and understood.
pub const POST_VERSION: u32 = 1;
/// Larger ones are refused unread. One of a cluster with the longest name that EKS allows has less than 250 bytes.
pub const POST_BYTES_MAX: usize = 1024;
/// One that was made longer ago, or this far ahead of the reader's clock, is refused: what somebody recorded cannot be sent again later.
pub const POST_AGE_MAX: SignedDuration = SignedDuration::from_secs(60);
/// Versions of objects are decimal numbers of 64 bits; a longer text is none.
const SEEN_MAX: usize = 32;

/// What there is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PostKind {
    /// Pods that the scheduler finds no node for.
    Pods,
    /// Nodes that have joined, or have changed before they were ready for pods.
    Nodes,
    /// Nodes that somebody deletes, or that are gone, and NodeClaims that somebody deletes.
    Deletions,
    /// NodePools and node classes that somebody makes, edits or deletes.
    Pools,
}

impl PostKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pods, Self::Nodes, Self::Deletions, Self::Pools];

    /// The word in a message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::Deletions => "deletions",
            Self::Pools => "pools",
        }
    }

    /// The doorbell of those who look.
    pub const fn doorbell(self, cluster: ClusterName) -> Doorbell {
        match self {
            Self::Pods => Doorbell::Schedule { cluster },
            Self::Nodes => Doorbell::register(cluster),
            Self::Deletions => Doorbell::sweep(cluster),
            Self::Pools => Doorbell::Refresh { cluster },
        }
    }
}

/// The message. Fields that a later version of the watcher adds are ignored; one that means something else has another `version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatcherPost {
    pub version: u32,
    pub cluster: ClusterName,
    pub sent_at: Timestamp,
    /// Words of [`PostKind`]. Others are ignored, as those of a later watcher.
    pub kinds: BTreeSet<String>,
    /// The version of the newest pod that it tells of. Two watchers of a cluster that have seen the same say the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

impl WatcherPost {
    /// A message of this version.
    pub fn new(cluster: ClusterName, sent_at: Timestamp, kinds: impl IntoIterator<Item = PostKind>) -> Self {
        let kinds = kinds.into_iter().map(|kind| kind.as_str().to_owned()).collect();
        Self { version: POST_VERSION, cluster, sent_at, kinds, seen: None }
    }

    /// What was seen of pods, if it is a version.
    pub fn seen(&self) -> Option<&str> {
        let is_version = |seen: &&str| (1..=SEEN_MAX).contains(&seen.len()) && seen.bytes().all(|byte| byte.is_ascii_digit());
        self.seen.as_deref().filter(is_version)
    }

    /// The kinds that are known.
    pub fn known_kinds(&self) -> impl Iterator<Item = PostKind> + '_ {
        PostKind::ALL.into_iter().filter(|kind| self.kinds.contains(kind.as_str()))
    }

    /// Whether it was made about now.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.sent_at).abs() <= POST_AGE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    #[test]
    fn a_post_on_the_wire_has_its_documented_form() {
        let post = WatcherPost::new("prod".into(), at(0), [PostKind::Nodes, PostKind::Pods]);
        let text = r#"{"version":1,"cluster":"prod","sentAt":"2027-01-15T08:00:00Z","kinds":["nodes","pods"]}"#;
        assert_eq!(serde_json::to_string(&post).expect("it has a text"), text);
        assert_eq!(serde_json::from_str::<WatcherPost>(text).expect("it is valid"), post);
    }

    #[test]
    fn only_a_version_counts_as_seen() {
        for (seen, expected) in [(Some("4711"), true), (None, false), (Some(""), false), (Some("x"), false), (Some("-1"), false)] {
            let post = WatcherPost { seen: seen.map(str::to_owned), ..WatcherPost::new("prod".into(), at(0), [PostKind::Pods]) };
            assert_eq!(post.seen().is_some(), expected, "{seen:?}");
        }
        let post = WatcherPost { seen: Some("1".repeat(33)), ..WatcherPost::new("prod".into(), at(0), [PostKind::Pods]) };
        assert_eq!(post.seen(), None);
    }

    #[test]
    fn what_a_later_watcher_adds_is_ignored() {
        let text = r#"{"version":1,"cluster":"prod","sentAt":"2027-01-15T08:00:00Z","kinds":["pods","volumes"],"replica":"b"}"#;
        let post: WatcherPost = serde_json::from_str(text).expect("it is valid");
        assert_eq!(post.known_kinds().collect::<Vec<_>>(), [PostKind::Pods]);
    }

    #[test]
    fn the_longest_post_is_far_smaller_than_the_limit() {
        let post = WatcherPost::new(ClusterName::new("c".repeat(100)), at(0), PostKind::ALL);
        let bytes = serde_json::to_vec(&post).expect("it has a text").len();
        assert!(bytes < 250 && bytes * 4 <= POST_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn a_post_is_fresh_for_a_minute_either_way() {
        let post = WatcherPost::new("prod".into(), at(0), [PostKind::Pods]);
        for (seconds, expected) in [(-61, false), (-60, true), (0, true), (60, true), (61, false)] {
            assert_eq!(post.is_fresh(at(seconds)), expected, "{seconds}");
        }
    }
}
