//! Numbers that stand for the things of a solve, with a type for each kind, and lists that only numbers of their kind index.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A number that stands for one of many things: its position in a list of them.
pub(crate) trait Id: Copy {
    fn at(position: usize) -> Self;
    fn position(self) -> usize;
}

/// Not all that is counted has a type of its own.
impl Id for usize {
    fn at(position: usize) -> Self {
        position
    }
    fn position(self) -> usize {
        self
    }
}

/// No list is longer: [`IdVec`] sees to it, so that a position needs no check of its own.
const LENGTH_MAX: usize = u32::MAX as usize;

macro_rules! ids {
    ($($(#[$about:meta])* $name:ident;)+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(u32);

        impl Id for $name {
            fn at(position: usize) -> Self {
                debug_assert!(position <= LENGTH_MAX);
                Self(position as u32)
            }
            fn position(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

ids! {
    /// A label key.
    Key;
    /// A label value.
    ValId;
    /// A requirement set.
    SetId;
    /// A namespace with a set of labels: all that selectors see of a pod.
    LabelsId;
    /// A list of tolerations.
    TolerationId;
    /// A list of taints.
    TaintsId;
    /// A NodePool that can create nodes, in trial order.
    PoolId;
    /// An instance type of a list, in the order in which the solver tries them.
    TypeId;
    /// An instance type, in the order of prices.
    RankId;
    /// A kind of offerings of a list.
    KindId;
    /// A list of instance types.
    CatalogId;
    /// A capacity reservation.
    ReservationId;
    /// A relaxation of a class, over all classes.
    RelaxationId;
    /// A machine, as topology counts: the nodes of the input in their order, then the claims.
    HostId;
    /// An existing machine that accepts pods.
    MachineId;
    /// A new NodeClaim; dropping empty ones renumbers those behind them.
    ClaimId;
    /// A pod to place.
    PodId;
    /// Pods that repacking does not distinguish.
    PodGroupId;
    /// A class of pods.
    ClassId;
    /// A host group that counts pods while claims are repacked.
    SlotId;
    /// A rule about which nodes count for a spread constraint.
    FilterId;
    /// The domains that groups with the same key, filter and tolerations know.
    DomainsId;
    /// A topology group.
    GroupId;
}

/// A list that the numbers of its kind index.
pub(crate) struct IdVec<I, T> {
    items: Vec<T>,
    kind: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> IdVec<I, T> {
    pub(crate) fn new() -> Self {
        Self::from(Vec::new())
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self::from(Vec::with_capacity(capacity))
    }

    /// Appends a thing and returns its number.
    pub(crate) fn push(&mut self, item: T) -> I {
        let id = self.next_id();
        assert!(self.items.len() < LENGTH_MAX, "fewer than 2^32 of a kind");
        self.items.push(item);
        id
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number that the next thing will have.
    pub(crate) fn next_id(&self) -> I {
        I::at(self.items.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The numbers of all things, ascending.
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.items.len()).map(I::at)
    }

    /// All things with their numbers.
    pub(crate) fn enumerate(&self) -> impl Iterator<Item = (I, &T)> {
        self.items.iter().enumerate().map(|(position, item)| (I::at(position), item))
    }

    /// All things with their numbers.
    pub(crate) fn enumerate_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.items.iter_mut().enumerate().map(|(position, item)| (I::at(position), item))
    }

    /// All things with their numbers.
    pub(crate) fn into_enumerate(self) -> impl Iterator<Item = (I, T)> {
        self.items.into_iter().enumerate().map(|(position, item)| (I::at(position), item))
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.position())
    }

    /// Drops things; those behind them get other numbers.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.items.retain(keep);
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.position())
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }
}

impl<I: Id, T: Clone> IdVec<I, T> {
    /// The same thing for each number of `ids`.
    pub(crate) fn filled<U>(item: T, like: &IdVec<I, U>) -> Self {
        vec![item; like.len()].into()
    }

    /// Makes the list one of `length` copies of `item`.
    pub(crate) fn reset(&mut self, length: usize, item: T) {
        self.items.clear();
        self.items.resize(length, item);
    }

    /// Appends copies of `item` until `id` has one.
    pub(crate) fn grow_to(&mut self, id: I, item: T) {
        if self.items.len() <= id.position() {
            self.items.resize(id.position() + 1, item);
        }
    }
}

impl<I, T> From<Vec<T>> for IdVec<I, T> {
    fn from(items: Vec<T>) -> Self {
        assert!(items.len() <= LENGTH_MAX, "fewer than 2^32 of a kind");
        Self { items, kind: PhantomData }
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.position()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.position()]
    }
}

impl<I, T> IntoIterator for IdVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'v, I, T> IntoIterator for &'v IdVec<I, T> {
    type Item = &'v T;
    type IntoIter = std::slice::Iter<'v, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'v, I, T> IntoIterator for &'v mut IdVec<I, T> {
    type Item = &'v mut T;
    type IntoIter = std::slice::IterMut<'v, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter_mut()
    }
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<I, T: Clone> Clone for IdVec<I, T> {
    fn clone(&self) -> Self {
        self.items.clone().into()
    }
    fn clone_from(&mut self, source: &Self) {
        self.items.clone_from(&source.items);
    }
}

impl<I, T: PartialEq> PartialEq for IdVec<I, T> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<I, T: Eq> Eq for IdVec<I, T> {}

impl<I, T: fmt::Debug> fmt::Debug for IdVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.items.fmt(f)
    }
}
