//! A fast hash for tables that are only looked up, never iterated.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

/// A look-up table. It is never iterated, so its order cannot influence a result.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Multiplicative mixing, as compilers use for their own tables; not for keys that an attacker chooses freely at scale.
#[derive(Default, Clone, Copy)]
pub(crate) struct Mix(u64);

impl Mix {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x51_7c_c1_b7_27_22_0a_95);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // The upper bits are mixed best, but tables use the lower ones.
        self.0.rotate_left(26)
    }
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("chunks of eight")));
        }
        let mut last = [0; 8];
        let rest = chunks.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
    }
    fn write_u8(&mut self, n: u8) {
        self.mix(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }
}

/// A key that is expensive to hash, with its hash: a growing table needs it again and again.
#[derive(PartialEq, Eq)]
pub(crate) struct Hashed<T> {
    hash: u64,
    pub(crate) value: T,
}

impl<T: Hash> Hashed<T> {
    pub(crate) fn of(value: T) -> Self {
        Self { hash: BuildHasherDefault::<Mix>::default().hash_one(&value), value }
    }
}

impl<T> Hash for Hashed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
