//! The ports of a handler, and how its crate states which calls it may make.
//!
//! Every function's library has `pub async fn handle<P: Rights>(ports: P, settings: &Settings, ..) -> Result<Report, HandleError>`:
//! `schedule`, `consolidate`, `register`, `refresh` and `sweep` take `cluster: &ClusterName`; `launch` takes `cluster` and
//! `claims: &[ClaimName]` (empty: all that are due); `terminate` takes `claim: &ClaimKey`; `interrupt` takes the message's
//! `body: &str`; `relay` takes a `Request` and also returns a `Response`. Handlers append to the decision log themselves;
//! the report is for the caller's log, metrics and timeline.

use crate::Clock;

/// The adapters of one invocation. The bounds on the associated types are the holder's rights: see [`rights!`](crate::rights).
pub trait Ports: Copy + Send + Sync {
    /// State at rest.
    type Store: Sync;
    /// EC2 and its neighbours.
    type Cloud: Sync;
    /// The Kubernetes API.
    type Cluster: Sync;
    type Queues: Sync;
    /// The clock is not a right: every function has one.
    type Clock: Clock;

    fn store(&self) -> &Self::Store;
    fn cloud(&self) -> &Self::Cloud;
    fn cluster(&self) -> &Self::Cluster;
    fn queues(&self) -> &Self::Queues;
    fn clock(&self) -> &Self::Clock;
}

/// The adapters of one invocation, each of its own type: what the runtime, the simulator and tests hand to a handler.
#[derive(Debug)]
pub struct Adapters<'a, S, C, K, Q, T> {
    pub store: &'a S,
    /// `&()` for a function that does not call EC2.
    pub cloud: &'a C,
    pub cluster: &'a K,
    pub queues: &'a Q,
    pub clock: &'a T,
}

impl<S, C, K, Q, T> Clone for Adapters<'_, S, C, K, Q, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, C, K, Q, T> Copy for Adapters<'_, S, C, K, Q, T> {}

impl<'a, A> Adapters<'a, A, A, A, A, A> {
    /// One adapter that implements every port, as the simulator's does.
    pub fn all(adapter: &'a A) -> Self {
        Self { store: adapter, cloud: adapter, cluster: adapter, queues: adapter, clock: adapter }
    }
}

impl<S: Sync, C: Sync, K: Sync, Q: Sync, T: Clock> Ports for Adapters<'_, S, C, K, Q, T> {
    type Store = S;
    type Cloud = C;
    type Cluster = K;
    type Queues = Q;
    type Clock = T;

    fn store(&self) -> &S {
        self.store
    }
    fn cloud(&self) -> &C {
        self.cloud
    }
    fn cluster(&self) -> &K {
        self.cluster
    }
    fn queues(&self) -> &Q {
        self.queues
    }
    fn clock(&self) -> &T {
        self.clock
    }
}

/// Declares the trait `Rights` of a function: the ports that its steps may use. A call without the right does not compile, and
/// `cargo xtask ci --only edges` compares the block with the statements of the function's role.
#[macro_export]
macro_rules! rights {
    ($(#[$doc:meta])* $($port:ident: $first:ident $(+ $more:ident)*),+ $(,)?) => {
        $(#[$doc])*
        pub trait Rights: $crate::Ports<$($port: $first $(+ $more)*),+> {}
        impl<P: $crate::Ports<$($port: $first $(+ $more)*),+>> Rights for P {}
    };
}
