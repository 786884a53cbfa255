//! How the claims and the decisions of a cluster are spread over partitions of the table.

/// Partitions per cluster: each allows 1,000 writes per second, and a burst of launches writes each claim a few times.
/// It must never change, because the shard is part of a stored key.
pub const SHARDS: u32 = 8;

/// The shard of a claim by its name, or of a decision by its subject.
///
/// FNV-1a: spreads names evenly, and is the same in every build.
pub fn shard_of(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // The low bits alone are weak in FNV: fold the high ones in.
    (hash ^ (hash >> 16)) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_of_a_name_never_changes() {
        // Stored keys depend on these numbers: a change would hide every stored claim.
        let shards: Vec<u32> = ["default-x7k2p", "default-0", "gpu-abcde", ""].into_iter().map(shard_of).collect();
        assert_eq!(shards, [4, 3, 4, 1]);
    }

    #[test]
    fn names_are_distributed_over_all_shards() {
        let mut counts = [0_u32; SHARDS as usize];
        for number in 0..8000 {
            counts[shard_of(&format!("default-{number:05}")) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
