//! FNV with 64 bits: hashes that are the same in every process, build and machine, which the standard library's are not.
//!
//! They make names and distribute items over shards and pages; they are not cryptographic.

use std::hash::Hasher;

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// FNV-1a, byte by byte.
#[derive(Clone, Debug)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(OFFSET_BASIS)
    }
}

impl Fnv1a {
    /// Hashes a whole word at once, unlike standard FNV: for fingerprints that are compared and never stored.
    pub const fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(PRIME);
        self.0 ^= self.0 >> 29;
    }
}

impl Hasher for Fnv1a {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

/// FNV-1a of some bytes.
#[must_use]
pub fn fnv1a(bytes: impl AsRef<[u8]>) -> u64 {
    let mut hash = Fnv1a::default();
    hash.write(bytes.as_ref());
    hash.finish()
}

/// FNV-1 of some bytes, which multiplies before it XORs: Karpenter uses it for names and hashes.
#[must_use]
pub fn fnv1(bytes: impl AsRef<[u8]>) -> u64 {
    bytes.as_ref().iter().fold(OFFSET_BASIS, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of FNV's authors.
    #[test]
    fn hashes_match_the_published_test_vectors() {
        let vectors = [
            ("", 0xcbf2_9ce4_8422_2325, 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_bd4c_8601_b7be, 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x340d_8765_a4dd_a9c2, 0x8594_4171_f739_67e8),
        ];
        for (text, older, newer) in vectors {
            assert_eq!((fnv1(text), fnv1a(text)), (older, newer), "{text}");
        }
    }
}
