//! Safeguards of handlers by name, so that a test can disable one and check that the violation is detected.
//!
//! A handler calls [`Safeguard::stops`] where a safeguard prevents an action and [`Safeguard::permits`] where one allows it.
//! Without the feature `mutants`, which only the simulator enables, both return their argument and compile to nothing. With it, a
//! safeguard that the running thread has switched off behaves as if it did not exist.

macro_rules! safeguards {
    ($($(#[doc = $text:literal])+ $name:ident,)*) => {
        /// What prevents a handler from terminating, launching, evicting or publishing too much.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Safeguard {
            $($(#[doc = $text])+ $name,)*
        }

        impl Safeguard {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its description, in a sentence.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($text),+),)*
                }
            }
        }
    };
}

safeguards! {
    /// interrupt: a notice is handled again after a concurrent write of its claim
    NoticeTriedAgain,
    /// interrupt: a deleted claim gets the earlier deadline of a notice
    DeadlineTightened,
    /// terminate: a machine is not lost while its kubelet is alive, whatever EC2 reports
    KubeletAsked,
    /// terminate: a machine is not lost while EC2 reports it running, although its kubelet is silent
    Ec2Asked,
    /// terminate: a Node that a response lacks exists if the response has its pods
    PodsContradict,
    /// terminate: the Node of a claim without one is searched before its machine is terminated
    NodeLookedFor,
    /// terminate: an unlisted Node is looked up by its instance's DNS name
    NodeAskedByName,
    /// terminate: nodes are tainted before their pods are evicted
    ClosedBeforeDrain,
    /// terminate: pods are evicted in groups, critical ones last
    GroupsInOrder,
    /// terminate: pods that their owners protect are not evicted
    OwnersAsked,
    /// terminate: pods stay until they are planned, or their replacement is ready in time
    HeldForPlan,
    /// terminate: pods are deleted regardless of budgets only if the deadline leaves just their grace period
    ForcedOnlyWhenDue,
    /// terminate: an empty node is watched for a while before its machine is terminated
    EmptyNodeWatched,
    /// terminate: volumes are detached before their machine is terminated
    VolumesDetached,
    /// terminate: a machine that EC2 does not show yet may have just started
    YoungMachineAwaited,
    /// terminate: a machine has to be missing in EC2 for a while to count as terminated
    EndSeenTwice,
    /// terminate: a launch in progress of a deleted claim is awaited
    LaunchSettles,
    /// terminate: a NodeClaim with a machine is kept when a claim without one ends
    ShownMachinesKept,
    /// terminate: a doorbell that is due anyway is not sent again
    EndingRungOnce,
    /// terminate: evictions of a cluster share a rate
    EvictionsShared,
    /// sweep: a claim whose machine EC2 does not list is deleted only at the second sighting
    LossSeenTwice,
    /// sweep: a machine that EC2 does not list is looked up by its id
    LossAskedByName,
    /// sweep: an object is released only if EC2 denies its machine in a lookup by id
    ReleasesAskedByName,
    /// sweep: a machine is not gone while its kubelet is alive
    SilenceNeeded,
    /// sweep: a claim that lacks the machine that the cluster shows waits for it
    BehindAwaited,
    /// sweep: machines of a launch in progress are no orphans
    LaunchUnderWay,
    /// sweep: machines are no orphans while a claim cannot be read
    UnreadableClaimsHold,
    /// sweep: a serving machine without a claim is adopted at the second sighting
    AdoptedAtSecondSight,
    /// sweep: machines of Karpenter are left alone
    KarpenterSpared,
    /// sweep: an uninstallation with kept machines awaits launches in progress
    LeavingAwaitsLaunches,
    /// sweep: a machine whose Node is being deleted is not released
    LeavingNodesDrained,
    /// sweep: a machine is tagged as released before it is released
    LetGoMarked,
    /// sweep: machines that are being released are not compared
    LeftUnjudged,
    /// register: a node gets the finalizer with its registration
    FinalizerSet,
    /// register: a node is not initialized while it lacks a requirement
    InitializedWhenReady,
    /// register: the next run is requested once
    LookRungOnce,
    /// launch: fleet calls share a rate
    CallsRated,
    /// launch: the next attempt is requested once
    TryRungOnce,
    /// launch: instances of a plan that waited long are looked up before it is launched
    OldPlansLookFirst,
    /// launch: a call with an unknown outcome is not replaced
    OpenCallsAwaited,
    /// launch: an ended machine is not assigned
    EndedGivenToNobody,
    /// consolidate: nodes are tainted before a command begins
    ClosedBeforeCommand,
    /// consolidate: pods that were bound before the taint are checked again
    LookedAtClosed,
    /// consolidate: old nodes are deleted only after their replacements are ready
    ReplacementsReady,
    /// consolidate: nodes of a command that was rolled back are untainted
    StraysOpened,
    /// consolidate: a static pool with unreadable claims launches none
    StaticsCounted,
    /// consolidate: a static pool whose launches failed backs off
    StaticsRest,
    /// refresh: a class has to be missing from two responses
    ClassMissedTwice,
    /// refresh: a class is kept while claims use it
    ClassHeldByClaims,
}

#[cfg(feature = "mutants")]
thread_local! {
    static SWITCHED_OFF: std::cell::Cell<Option<Safeguard>> = const { std::cell::Cell::new(None) };
}

impl Safeguard {
    /// Whether it prevents the action for `reason`.
    #[must_use]
    pub fn stops(self, reason: bool) -> bool {
        reason && !self.is_off()
    }

    /// Whether it allows the action, given the required `proof`.
    #[must_use]
    pub fn permits(self, proof: bool) -> bool {
        proof || self.is_off()
    }

    #[cfg(not(feature = "mutants"))]
    #[allow(clippy::unused_self)]
    const fn is_off(self) -> bool {
        false
    }

    #[cfg(feature = "mutants")]
    fn is_off(self) -> bool {
        SWITCHED_OFF.get().is_some_and(|off| off == self || off.twin() == Some(self))
    }

    /// The safeguard that covers the same harm, where either one alone is enough: a test disables both.
    #[must_use]
    pub const fn twin(self) -> Option<Self> {
        match self {
            Self::SilenceNeeded => Some(Self::LossAskedByName),
            Self::LossAskedByName => Some(Self::SilenceNeeded),
            _ => None,
        }
    }

    /// Switches off one safeguard, and its twin, or none, for what this thread runs from now on.
    #[cfg(feature = "mutants")]
    pub fn switch_off(one: Option<Self>) {
        SWITCHED_OFF.set(one);
    }
}

#[cfg(all(test, not(feature = "mutants")))]
mod tests {
    use super::Safeguard;

    #[test]
    fn without_the_feature_every_safeguard_returns_its_argument() {
        for one in Safeguard::ALL {
            assert!(one.stops(true) && !one.stops(false));
            assert!(one.permits(true) && !one.permits(false));
            assert!(one.text().contains(": "), "{one:?} names its function");
        }
    }
}
