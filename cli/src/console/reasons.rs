//! Why something is as it is: what `whittle explain` says of the same cluster.

use super::looks::Served;
use crate::explain::{self, ExplainError, history};
use crate::look::{Live, Purpose};
use crate::page::Refusal;
use crate::source::{self, Expansion, Manifests, Market, Offers, ReadError, When};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long a question waits for the one before it; the page asks again.
const PATIENCE: Duration = Duration::from_millis(150);

/// Answers, and what they are made of.
pub(super) struct Reasons {
    live: Live,
    offers: Offers,
    served: Option<Served>,
    /// How long what was read is good enough.
    fresh: Duration,
    kept: Mutex<Option<Kept>>,
}

/// The objects of a cluster, and the answers that were made of them.
struct Kept {
    read_at: Instant,
    read: Manifests,
    market: Market,
    texts: BTreeMap<String, String>,
}

impl Reasons {
    pub(super) fn new(live: Live, offers: Offers, served: Option<Served>, fresh: Duration) -> Self {
        Self { live, offers, served, fresh, kept: Mutex::default() }
    }

    /// The answer about a name; one question at a time is answered.
    pub(super) fn explain(&self, name: &str) -> Result<String, Refusal> {
        let begun = Instant::now();
        let mut kept = loop {
            match self.kept.try_lock() {
                Ok(kept) => break kept,
                Err(TryLockError::Poisoned(kept)) => break PoisonError::into_inner(kept),
                Err(TryLockError::WouldBlock) if PATIENCE <= begun.elapsed() => {
                    return Err(Refusal::Busy("another question is being answered".to_owned()));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if kept.as_ref().is_none_or(|kept| self.fresh <= kept.read_at.elapsed()) {
            // What is old is not kept beside what is new: a large cluster would be in memory twice.
            *kept = None;
            *kept = Some(self.read().map_err(|error| Refusal::Failed(error.to_string()))?);
        }
        let Some(kept) = kept.as_mut() else { return Err(Refusal::Busy("the cluster is being read".to_owned())) };
        if let Some(text) = kept.texts.get(name) {
            return Ok(text.clone());
        }
        let text = self.explained(name, kept)?;
        kept.texts.insert(name.to_owned(), text.clone());
        Ok(text)
    }

    fn read(&self) -> Result<Kept, ReadError> {
        let cluster = self.live.read(Purpose::Decide)?;
        let mut read = source::read_over(Some(cluster), &[], When::Default(Timestamp::now()), Expansion::Missing(&[]))?;
        read.leave_others_aside();
        let market = self.offers.read_of(&read, || self.live.region())?;
        read.unlisted.clone_from(&market.unlisted);
        Ok(Kept { read_at: Instant::now(), read, market, texts: BTreeMap::new() })
    }

    fn explained(&self, name: &str, kept: &Kept) -> Result<String, Refusal> {
        let history = self.served.as_ref().map(|served| history::about(&served.deployment, &served.clusters, name)).transpose();
        let history = history.map_err(|error| Refusal::Failed(error.to_string()))?;
        explain::text_about(name, kept.read.clone(), kept.market.clone(), history).map_err(|error| {
            Refusal::Failed(match error {
                ExplainError::Unknown(name, _) => {
                    format!("{name} is not in the cluster any more; with --stack NAME the console shows what was decided about it")
                }
                error => error.to_string(),
            })
        })
    }
}
