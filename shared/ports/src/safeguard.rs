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
    /// interrupt: a notice is judged anew when somebody wrote its claim at the same moment
    NoticeTriedAgain,
    /// interrupt: a claim that ends already is told the earlier deadline of a notice
    DeadlineTightened,
    /// terminate: a machine is not lost while its kubelet speaks, whatever EC2 says
    KubeletAsked,
    /// terminate: a machine is not lost while EC2 says that it runs, although its kubelet is silent
    Ec2Asked,
    /// terminate: a Node that one answer lacks is there as long as the same answer has its pods
    PodsContradict,
    /// terminate: a claim that knows no Node looks for one before its machine ends
    NodeLookedFor,
    /// terminate: a Node that no list shows is asked for by the name that EC2 gave its machine
    NodeAskedByName,
    /// terminate: nodes are closed to new pods before their pods leave
    ClosedBeforeDrain,
    /// terminate: pods leave in groups, those of the system last
    GroupsInOrder,
    /// terminate: pods whose owner asked for it are not evicted
    OwnersAsked,
    /// terminate: pods stay until they are planned for, or until their next machine is ready if it is in time
    HeldForPlan,
    /// terminate: pods are deleted without asking their budgets only when the deadline leaves just their grace
    ForcedOnlyWhenDue,
    /// terminate: an empty node is watched for a while before its machine ends
    EmptyNodeWatched,
    /// terminate: volumes are detached before their machine ends
    VolumesDetached,
    /// terminate: a machine that EC2 does not show yet may have only just started
    YoungMachineAwaited,
    /// terminate: a machine that EC2 does not show is missed for a while before it has ended
    EndSeenTwice,
    /// terminate: a launch that is given up is waited for
    LaunchSettles,
    /// terminate: a NodeClaim that shows a machine stays when a claim ends that never knew of one
    ShownMachinesKept,
    /// terminate: a doorbell that is due anyway is not rung again
    EndingRungOnce,
    /// terminate: evictions of a cluster share a rate
    EvictionsShared,
    /// sweep: a claim whose machine EC2 does not list is looked at twice
    LossSeenTwice,
    /// sweep: a machine that EC2 does not list is asked for by its id
    LossAskedByName,
    /// sweep: an object that stood for a machine is let go only if EC2, asked by name, has no such machine
    ReleasesAskedByName,
    /// sweep: a machine is not gone while its kubelet speaks
    SilenceNeeded,
    /// sweep: a claim that knows less than the cluster shows waits for its machine
    BehindAwaited,
    /// sweep: machines of a launch that is under way are nobody's orphans
    LaunchUnderWay,
    /// sweep: machines that another claim may have are no orphans while a claim cannot be read
    UnreadableClaimsHold,
    /// sweep: a machine of ours that no claim knows is taken back at its second sight
    AdoptedAtSecondSight,
    /// sweep: what Karpenter started is Karpenter's
    KarpenterSpared,
    /// sweep: who leaves a cluster and its machines waits for those on their way
    LeavingAwaitsLaunches,
    /// sweep: a machine whose Node is being deleted is not left without it
    LeavingNodesDrained,
    /// sweep: a machine is marked as nobody's before it is let go
    LetGoMarked,
    /// sweep: nothing is judged that is about to be nobody's
    LeftUnjudged,
    /// register: a node gets the finalizer with its name
    FinalizerSet,
    /// register: a node is not initialized while it lacks something
    InitializedWhenReady,
    /// register: the next look is rung once
    LookRungOnce,
    /// launch: fleet calls share a rate
    CallsRated,
    /// launch: the next try is rung once
    TryRungOnce,
    /// launch: what a plan that waited may have brought already is looked for before it is bought
    OldPlansLookFirst,
    /// launch: while EC2 has not told what became of a call, nothing is bought in its place
    OpenCallsAwaited,
    /// launch: a machine that has ended is given to nobody
    EndedGivenToNobody,
    /// consolidate: nodes are closed to new pods before a command begins
    ClosedBeforeCommand,
    /// consolidate: what came to a node before it was closed is looked at once more
    LookedAtClosed,
    /// consolidate: old machines end only when the new ones are ready
    ReplacementsReady,
    /// consolidate: nodes of a command that was given up are opened again
    StraysOpened,
    /// consolidate: a static pool of which machines cannot be counted buys none
    StaticsCounted,
    /// consolidate: a static pool whose launches failed rests for a while
    StaticsRest,
    /// refresh: a class that an answer lacks is looked for twice
    ClassMissedTwice,
    /// refresh: a class stays while claims use it
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
    fn without_the_feature_every_protection_answers_what_it_is_given() {
        for one in Safeguard::ALL {
            assert!(one.stops(true) && !one.stops(false));
            assert!(one.permits(true) && !one.permits(false));
            assert!(one.text().contains(": "), "{one:?} names its function");
        }
    }
}
