//! Sets of small numbers, as words of bits.

use super::ids::{Id, TypeId};
use std::marker::PhantomData;

/// A set of numbers below a fixed size, which stand for things of one kind, by default for instance types. All sets that meet in an
/// operation have the same size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bits<I = TypeId> {
    words: Vec<u64>,
    kind: PhantomData<fn(I) -> I>,
}

impl<I> Default for Bits<I> {
    fn default() -> Self {
        Self { words: Vec::new(), kind: PhantomData }
    }
}

impl<I: Id> Bits<I> {
    /// The empty set of numbers below `size`.
    pub(crate) fn none(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)], kind: PhantomData }
    }

    /// The set of all numbers below `size`.
    pub(crate) fn all(size: usize) -> Self {
        let mut out = Self::none(size);
        for n in 0..size {
            out.insert(I::at(n));
        }
        out
    }

    pub(crate) fn insert(&mut self, id: I) {
        let n = id.position();
        self.words[n / 64] |= 1 << (n % 64);
    }

    pub(crate) fn remove(&mut self, id: I) {
        let n = id.position();
        self.words[n / 64] &= !(1 << (n % 64));
    }

    pub(crate) fn has(&self, id: I) -> bool {
        let n = id.position();
        self.words.get(n / 64).is_some_and(|word| word >> (n % 64) & 1 == 1)
    }

    /// The members, 64 to a word.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn intersect_with(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= theirs;
        }
    }

    /// Removes the members of `other`.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= !theirs;
        }
    }

    pub(crate) fn union_with(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.words.clear();
        self.words.extend_from_slice(&other.words);
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// How many members are also in `other`.
    pub(crate) fn intersection_count(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(mine, theirs)| (mine & theirs).count_ones() as usize).sum()
    }

    /// Whether all members are in `other`.
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(mine, theirs)| mine & !theirs == 0)
    }

    /// Grows the size of the set, keeping its members.
    pub(crate) fn grow(&mut self, size: usize) {
        let words = size.div_ceil(64);
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
    }

    pub(crate) fn first(&self) -> Option<I> {
        self.iter().next()
    }

    /// The first member at or after position `from` that is not in `out` and, if given, is in `only`. Sizes may differ.
    // For every machine that a pod is tried on: not inlined, a full cluster takes a seventh more instructions.
    #[inline(always)]
    pub(crate) fn next_without(&self, out: &Self, only: Option<&Self>, from: usize) -> Option<I> {
        let word = |set: &Self, at: usize| set.words.get(at).copied().unwrap_or(0);
        let mut at = from / 64;
        let mut mask = u64::MAX << (from % 64);
        while at < self.words.len() {
            let rest = self.words[at] & mask & !word(out, at) & only.map_or(u64::MAX, |o| word(o, at));
            if rest != 0 {
                return Some(I::at(at * 64 + rest.trailing_zeros() as usize));
            }
            mask = u64::MAX;
            at += 1;
        }
        None
    }

    /// Adds the members of `other`, growing if necessary.
    pub(crate) fn absorb(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.union_with(other);
    }

    /// The members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = I> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors((word != 0).then_some(word), |rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |rest| I::at(at * 64 + rest.trailing_zeros() as usize))
        })
    }
}
