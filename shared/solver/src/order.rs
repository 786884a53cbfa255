//! The order of equals: instance types with the same price, claims with the same number of pods.
//!
//! Karpenter sorts by price (or by pods) alone with Go's unstable sort, so ties end up in the order that its algorithm
//! (pattern-defeating quicksort) produces. Lists are compared with Karpenter's entry by entry, so the same steps are taken
//! here: the result is deterministic, and sorted, whatever the ties.

/// Sorts by the first of each pair; ties as Go's unstable sort leaves them.
pub fn with_ties<T>(items: &mut [(u64, T)]) {
    let limit = usize::BITS - items.len().leading_zeros();
    let mut sort = Sort { v: items };
    let end = sort.v.len();
    sort.run(0, end, limit);
}

/// Slices up to this length use insertion sort.
const SHORT: usize = 12;
/// From this length on, pivots are chosen from nine candidates, and nearly sorted slices are repaired.
const LONG: usize = 50;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hint {
    Unknown,
    Ascending,
    Descending,
}

struct Sort<'v, T> {
    v: &'v mut [(u64, T)],
}

impl<T> Sort<'_, T> {
    fn less(&self, a: usize, b: usize) -> bool {
        self.v[a].0 < self.v[b].0
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.v.swap(a, b);
    }

    fn run(&mut self, mut a: usize, mut b: usize, mut limit: u32) {
        let (mut balanced, mut in_order) = (true, true);
        loop {
            let length = b - a;
            if length <= SHORT {
                return self.insertion(a, b);
            }
            if limit == 0 {
                return self.heap(a, b);
            }
            if !balanced {
                self.shuffle(a, b);
                limit -= 1;
            }
            let (mut pivot, mut hint) = self.pivot(a, b);
            if hint == Hint::Descending {
                self.v[a..b].reverse();
                pivot = (b - 1) - (pivot - a);
                hint = Hint::Ascending;
            }
            if balanced && in_order && hint == Hint::Ascending && self.repair(a, b) {
                return;
            }
            if a > 0 && !self.less(a - 1, pivot) {
                a = self.part_equal(a, b, pivot);
                continue;
            }
            let (middle, already) = self.part(a, b, pivot);
            in_order = already;
            let (left, right) = (middle - a, b - middle);
            balanced = left.min(right) >= length / 8;
            if left < right {
                self.run(a, middle, limit);
                a = middle + 1;
            } else {
                self.run(middle + 1, b, limit);
                b = middle;
            }
        }
    }

    fn insertion(&mut self, a: usize, b: usize) {
        for i in a + 1..b {
            let mut j = i;
            while j > a && self.less(j, j - 1) {
                self.swap(j, j - 1);
                j -= 1;
            }
        }
    }

    fn heap(&mut self, a: usize, b: usize) {
        let length = b - a;
        for root in (0..=(length - 1) / 2).rev() {
            self.sift(root, length, a);
        }
        for end in (0..length).rev() {
            self.swap(a, a + end);
            self.sift(0, end, a);
        }
    }

    fn sift(&mut self, mut root: usize, end: usize, first: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= end {
                return;
            }
            if child + 1 < end && self.less(first + child, first + child + 1) {
                child += 1;
            }
            if !self.less(first + root, first + child) {
                return;
            }
            self.swap(first + root, first + child);
            root = child;
        }
    }

    /// Swaps three entries around the middle with pseudo-random ones, seeded by the length.
    fn shuffle(&mut self, a: usize, b: usize) {
        let length = b - a;
        if length < 8 {
            return;
        }
        let mut random = length as u64;
        let mask = (1u64 << (usize::BITS - length.leading_zeros())) - 1;
        let middle = a + length / 4 * 2;
        for at in middle - 1..=middle + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let other = usize::try_from(random & mask).unwrap_or(0);
            self.swap(at, a + if other >= length { other - length } else { other });
        }
    }

    fn pivot(&self, a: usize, b: usize) -> (usize, Hint) {
        let length = b - a;
        let (mut i, mut j, mut k) = (a + length / 4, a + length / 4 * 2, a + length / 4 * 3);
        let mut swaps = 0;
        if length >= 8 {
            if length >= LONG {
                i = self.median(i - 1, i, i + 1, &mut swaps);
                j = self.median(j - 1, j, j + 1, &mut swaps);
                k = self.median(k - 1, k, k + 1, &mut swaps);
            }
            j = self.median(i, j, k, &mut swaps);
        }
        let hint = match swaps {
            0 => Hint::Ascending,
            12 => Hint::Descending,
            _ => Hint::Unknown,
        };
        (j, hint)
    }

    fn median(&self, a: usize, b: usize, c: usize, swaps: &mut u32) -> usize {
        let mut ordered = |a: usize, b: usize| {
            if self.less(b, a) {
                *swaps += 1;
                (b, a)
            } else {
                (a, b)
            }
        };
        let (a, b) = ordered(a, b);
        let (b, _) = ordered(b, c);
        ordered(a, b).1
    }

    /// Repairs a slice that is nearly sorted; returns whether it is sorted now.
    fn repair(&mut self, a: usize, b: usize) -> bool {
        let mut i = a + 1;
        for _ in 0..5 {
            while i < b && !self.less(i, i - 1) {
                i += 1;
            }
            if i == b {
                return true;
            }
            if b - a < LONG {
                return false;
            }
            self.swap(i, i - 1);
            if i - a >= 2 {
                for j in (1..i).rev() {
                    if !self.less(j, j - 1) {
                        break;
                    }
                    self.swap(j, j - 1);
                }
            }
            if b - i >= 2 {
                for j in i + 1..b {
                    if !self.less(j, j - 1) {
                        break;
                    }
                    self.swap(j, j - 1);
                }
            }
        }
        false
    }

    /// Partitions into less and not less than the pivot; returns the position of the pivot and whether nothing had to move.
    fn part(&mut self, a: usize, b: usize, pivot: usize) -> (usize, bool) {
        self.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        let close = |s: &Self, i: &mut usize, j: &mut usize| {
            while *i <= *j && s.less(*i, a) {
                *i += 1;
            }
            while *i <= *j && !s.less(*j, a) {
                *j -= 1;
            }
        };
        close(self, &mut i, &mut j);
        if i > j {
            self.swap(j, a);
            return (j, true);
        }
        while i <= j {
            self.swap(i, j);
            i += 1;
            j -= 1;
            close(self, &mut i, &mut j);
        }
        self.swap(j, a);
        (j, false)
    }

    /// Moves what equals the pivot to the front; returns where the rest begins.
    fn part_equal(&mut self, a: usize, b: usize, pivot: usize) -> usize {
        self.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        loop {
            while i <= j && !self.less(a, i) {
                i += 1;
            }
            while i <= j && self.less(a, j) {
                j -= 1;
            }
            if i > j {
                return i;
            }
            self.swap(i, j);
            i += 1;
            j -= 1;
        }
    }
}
