//! Random numbers: one seed and a stream for each purpose, so that a new draw in one place changes nothing elsewhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The purpose of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Names of objects, claims and machines.
    Names,
    /// Durations of calls, boots and starts.
    Latency,
    /// Faults.
    Faults,
}

/// One generator per stream.
#[derive(Debug)]
pub struct Dice {
    names: ChaCha8Rng,
    latency: ChaCha8Rng,
    faults: ChaCha8Rng,
}

impl Dice {
    /// Generators of a seed.
    pub fn new(seed: u64) -> Self {
        let stream = |number| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number);
            rng
        };
        Self { names: stream(1), latency: stream(2), faults: stream(3) }
    }

    fn draw(&mut self, stream: Stream) -> u64 {
        match stream {
            Stream::Names => self.names.next_u64(),
            Stream::Latency => self.latency.next_u64(),
            Stream::Faults => self.faults.next_u64(),
        }
    }

    /// A number below `bound` (at least 1).
    pub fn below(&mut self, stream: Stream, bound: u64) -> u64 {
        self.draw(stream) % bound.max(1)
    }

    /// A number from `low` to `high`, inclusive.
    pub fn between(&mut self, stream: Stream, low: u64, high: u64) -> u64 {
        low + self.below(stream, high.saturating_sub(low) + 1)
    }

    /// True in `per_mille` of a thousand draws; no draw at all for zero.
    pub fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(Stream::Faults, 1000) < u64::from(per_mille)
    }

    /// `length` letters and digits, as in Kubernetes' generated names (no vowels, no digits that look like letters).
    pub fn suffix(&mut self, length: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..length).map(|_| char::from(ALPHABET[usize::try_from(self.below(Stream::Names, 27)).unwrap_or(0)])).collect()
    }

    /// `length` hexadecimal digits.
    pub fn hex(&mut self, length: usize) -> String {
        (0..length).map(|_| char::from_digit(u32::try_from(self.below(Stream::Names, 16)).unwrap_or(0), 16).unwrap_or('0')).collect()
    }
}
