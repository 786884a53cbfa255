//! One look at a cluster that runs: what is there, what it costs, and what was decided.

use super::state::{Place, state_of};
use crate::live::deployment::{Asked, Deployment};
use crate::look::view::View;
use crate::look::{Live, Purpose};
use crate::page::view::State;
use crate::printing::shortened;
use crate::source::{self, Expansion, Market, Offers, ReadError, When};
use crate::status::{self, Decided};
use crate::threads::joined;
use jiff::Timestamp;
use std::time::{Duration, Instant};

/// How often the decisions of a deployment are read: that takes a process for each partition of its table.
const DECISIONS_EVERY: Duration = Duration::from_secs(30);
/// How many of them.
const DECISIONS_MAX: usize = 300;
/// How many objects that cannot be used are named.
const REFUSED_MAX: usize = 5;

/// The way to a cluster, and to the deployment that serves it.
pub(super) struct Looks {
    pub(super) live: Live,
    pub(super) offers: Offers,
    pub(super) place: Place,
    pub(super) served: Option<Served>,
}

/// A deployment, and which of its clusters is meant.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) deployment: Deployment,
    pub(super) clusters: Vec<String>,
    read: Option<(Instant, Vec<Decided>)>,
}

/// What was seen.
pub(super) struct Look {
    pub(super) at: Timestamp,
    pub(super) state: State,
    pub(super) view: View,
    /// The oldest first.
    pub(super) decided: Vec<Decided>,
    /// What could not be read besides.
    pub(super) complaint: Option<String>,
}

impl Served {
    pub(super) fn new(deployment: Deployment, clusters: Vec<String>) -> Self {
        Self { deployment, clusters, read: None }
    }

    /// The last decisions, the oldest first; those of the last read if they are new enough.
    fn decisions(&mut self) -> Result<Vec<Decided>, String> {
        if let Some((at, decided)) = &self.read
            && at.elapsed() < DECISIONS_EVERY
        {
            return Ok(decided.clone());
        }
        let (decisions, _) = self.deployment.decisions(&self.clusters, Asked::Last(DECISIONS_MAX)).map_err(|error| error.to_string())?;
        let decided = decisions.into_iter().map(|one| Decided { at: one.at, about: one.subject, message: one.message });
        let decided: Vec<Decided> = decided.collect();
        self.read = Some((Instant::now(), decided.clone()));
        Ok(decided)
    }
}

impl Looks {
    /// Looks at the cluster, and at its deployment at the same time.
    ///
    /// # Errors
    /// The cluster cannot be read; what is wrong, and the remedy.
    pub(super) fn look(&mut self) -> Result<Look, ReadError> {
        let Self { live, offers, place, served } = self;
        let at = Timestamp::now();
        let (decided, looked) = std::thread::scope(|threads| {
            let decided = threads.spawn(|| match served {
                Some(served) => served.decisions(),
                None => events(live),
            });
            let looked = live.read(Purpose::Show);
            (joined(decided), looked)
        });
        let read = source::read_over(Some(looked?), &[], When::Default(at), Expansion::Off)?;
        let Market { prices, currency, assumptions, .. } = offers.prices(&read, || live.region())?;
        let view = View { assumptions, ..View::of(&read, &prices, currency) };
        let (decided, unread) = match decided {
            Ok(decided) => (decided, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let complaints: Vec<String> = [unread, left_out(&view.refused)].into_iter().flatten().collect();
        let complaint = (!complaints.is_empty()).then(|| complaints.join("\n"));
        Ok(Look { at, state: state_of(place, &read, &view, &decided), view, decided, complaint })
    }
}

/// Which objects could not be used, and why: a page gets it with each answer.
pub(super) fn left_out(refused: &[String]) -> Option<String> {
    let named = refused.iter().take(REFUSED_MAX).map(|one| shortened(one).into_owned());
    let more = refused.len().saturating_sub(REFUSED_MAX);
    let more = (more > 0).then(|| format!("and {more} more: whittle top names them"));
    (!refused.is_empty()).then(|| format!("objects are left out: {}", named.chain(more).collect::<Vec<_>>().join("; ")))
}

/// What Whittle said in Events of the last hour, the oldest first.
fn events(live: &Live) -> Result<Vec<Decided>, String> {
    let events = live.events().map_err(|error| format!("Events cannot be read, so that none are shown: {error}"))?;
    let mut events: Vec<Decided> = events.iter().filter_map(status::decided).collect();
    events.sort_by_key(|one| one.at);
    Ok(events)
}
