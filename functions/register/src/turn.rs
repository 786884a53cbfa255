//! One run at a time for a cluster: while machines join, doorbells come faster than runs end, and concurrent runs would patch the same
//! Nodes.

use crate::Rights;
use crate::silence::{Looked, Silence};
use serde::{Deserialize, Serialize};
use whittle_claims::Record;
use whittle_ports::{Clock, HandleError, Safeguard, Update, update_record};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// A run that has not ended its turn after this time no longer excludes others: two at once do no harm.
const TURN_MAX: SignedDuration = SignedDuration::from_secs(10);
/// How often writing the record is tried when other runs write it too.
const WRITE_ATTEMPTS_MAX: usize = 5;

/// Which run has the turn for the cluster, and whether a doorbell came since it began to read. Written by `register` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// Unique to a run; empty once it has ended its turn.
    owner: String,
    until: Timestamp,
    /// Whether a doorbell came while the run worked: it has to read again before it ends.
    again: bool,
    /// When the API server did not answer earlier runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    silence: Option<Silence>,
    /// Whether the run before did not end its turn. Not stored.
    #[serde(skip)]
    taken_over: bool,
}

impl Record for Turn {
    const KIND: &'static str = "register-turn";
    fn name(&self) -> String {
        "turn".to_owned()
    }
}

impl Turn {
    fn of(owner: &str, now: Timestamp) -> Self {
        Self { owner: owner.to_owned(), until: now.checked_add(TURN_MAX).unwrap_or(now), again: false, silence: None, taken_over: false }
    }

    /// Whether another run has the turn, and a mark in the record makes it read again. Called before the claims are listed, because while
    /// machines join most doorbells come while a run works. A failed read or write is ignored: [`Turn::take`] meets it again.
    pub(crate) async fn is_left_to_another<P: Rights>(ports: P, cluster: &ClusterName) -> bool {
        let mut is_others = false;
        let next = |known: Option<Self>, now| {
            is_others = Self::is_taken(known.as_ref(), now);
            known.filter(|turn| is_others && !turn.again).map(|turn| Self { again: true, ..turn })
        };
        let told = update_record(ports, cluster, "turn", WRITE_ATTEMPTS_MAX, next).await;
        let is_told = told.is_ok_and(|update| !matches!(update, Update::Lost));
        is_others && is_told
    }

    /// Whether a run has the turn, so that others have to leave their work to it.
    fn is_taken(known: Option<&Self>, now: Timestamp) -> bool {
        Safeguard::LookRungOnce.stops(known.is_some_and(|turn| !turn.owner.is_empty() && turn.until > now))
    }

    /// Takes the turn. `None` if another run has it, which will read again. A run that cannot write the record works without a turn: two at
    /// once do no harm.
    pub(crate) async fn take<P: Rights>(ports: P, cluster: &ClusterName) -> Option<Self> {
        let owner = ports.clock().unique();
        let (mut is_others, mut taken_over, mut silence) = (false, false, None);
        let next = |known: Option<Self>, now| {
            is_others = Self::is_taken(known.as_ref(), now);
            taken_over = known.as_ref().is_some_and(|turn| !turn.owner.is_empty());
            silence = known.as_ref().and_then(|turn| turn.silence);
            match known {
                Some(turn) if is_others => (!turn.again).then_some(Self { again: true, ..turn }),
                _ => Some(Self { silence, ..Self::of(&owner, now) }),
            }
        };
        let is_told = match update_record(ports, cluster, "turn", WRITE_ATTEMPTS_MAX, next).await {
            Ok(update) => !matches!(update, Update::Lost),
            Err(error) => {
                tracing::warn!(%cluster, %error, "the turn cannot be written: working without one");
                false
            }
        };
        let is_left = is_others && is_told;
        (!is_left).then(|| Self { silence, taken_over, ..Self::of(&owner, ports.clock().now()) })
    }

    /// Whether the run before did not end its turn, so that doorbells which came for it may have been missed.
    pub(crate) const fn is_taken_over(&self) -> bool {
        self.taken_over
    }

    /// The time in which the API server did not answer before this run.
    pub(crate) const fn silence(&self) -> Option<Silence> {
        self.silence
    }

    /// Ends the turn if no doorbell came since this run read the cluster; otherwise keeps it, and the run has to read again.
    pub(crate) async fn end<P: Rights>(&self, ports: P, cluster: &ClusterName) -> Result<Ended, HandleError> {
        let mut ended = Ended::Quiet;
        let next = |known: Option<Self>, now| {
            let own = known.filter(|turn| turn.owner == self.owner)?;
            ended = if own.again { Ended::RungAgain } else { Ended::Quiet };
            let owner = if own.again { self.owner.as_str() } else { "" };
            Some(Self { silence: Silence::after(own.silence, Looked::Answered, now), ..Self::of(owner, now) })
        };
        match update_record(ports, cluster, "turn", WRITE_ATTEMPTS_MAX, next).await? {
            Update::Lost => Ok(Ended::RungAgain),
            Update::Written(_) | Update::Unchanged => Ok(ended),
        }
    }

    /// Ends the turn even if a doorbell came, because this run cannot read again.
    pub(crate) async fn give_back<P: Rights>(&self, ports: P, cluster: &ClusterName, looked: Looked) {
        let next = |known: Option<Self>, now| {
            let own = known.filter(|turn| turn.owner == self.owner)?;
            Some(Self { silence: Silence::after(own.silence, looked, now), ..Self::of("", now) })
        };
        // If this write fails, the turn expires.
        let _ = update_record(ports, cluster, "turn", WRITE_ATTEMPTS_MAX, next).await;
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No doorbell came since the run read the cluster.
    Quiet,
    /// A doorbell came: the run keeps the turn.
    RungAgain,
}
