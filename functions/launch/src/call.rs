//! A fleet call: looked for before it is repeated, and asked after where its answer leaves machines open.

use crate::answer::Told;
use crate::batch::Batch;
use crate::machine;
use crate::{Rights, Run};
use futures::future::join_all;
use std::collections::BTreeSet;
use whittle_api::labels;
use whittle_ec2::fleet::{FleetAnswer, FleetInstance};
use whittle_ec2::instance::Instance;
use whittle_ports::{Clock, CloudError, Fleets, HandleError, Instances, LaunchTemplates, Records, Safeguard, StoreError};
use whittle_units::{InstanceId, SignedDuration, Timestamp};

/// Launch templates that are made at once: EC2 takes few such calls a second.
const TEMPLATES_AT_ONCE: usize = 5;
/// Between two looks for the machines of a call that was lost.
const BETWEEN_LOOKS: SignedDuration = SignedDuration::from_secs(28);

/// Whether this call may have been made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    First,
    /// The same was stored before.
    Repeat,
    /// Nothing is stored of it. What runs under its name is looked for: another with that name may have been made.
    New,
    /// The same, and so long after its claims began that a call may well have been lost with its table: EC2 is asked twice.
    Lost,
}

impl<P: Rights> Run<'_, P> {
    /// Templates, then the fleet, then what its answer means.
    pub(crate) async fn call(&mut self, batch: &Batch, which: Call) -> Result<(), HandleError> {
        let mut ended = BTreeSet::new();
        if which != Call::First {
            let shown = self.shown(batch).await?;
            if shown.is_complete(batch) {
                let answer = FleetAnswer { instances: shown.alive, ..FleetAnswer::default() };
                return self.settle(batch, &answer, Told::InFull).await;
            }
            if which != Call::Repeat && Safeguard::OldPlansLookFirst.stops(shown.is_any()) {
                // It was another call, so that EC2 would start machines for all its members once more.
                return self.of_another(batch, &shown.alive).await;
            }
            if which == Call::Lost && Safeguard::OldPlansLookFirst.stops(!self.looked_twice(batch).await?) {
                self.report.count("looked_for");
                return self.look_again(batch).await;
            }
            ended = shown.ended;
        }
        for some in batch.templates.chunks(TEMPLATES_AT_ONCE) {
            let made = join_all(some.iter().map(|template| self.ports.cloud().ensure_launch_template(template))).await;
            if let Some(error) = made.into_iter().find_map(Result::err) {
                return self.failed(batch, error).await;
            }
        }
        match self.ports.cloud().create_fleet(&batch.request).await {
            Ok(answer) => {
                let (mut answer, since) = self.told_in_full(batch, answer).await?;
                answer.instances.retain(|instance| !Safeguard::EndedGivenToNobody.stops(ended.contains(&instance.id)));
                let known = answer.instances.len() + ended.len();
                let is_open = answer.errors.is_empty() && known < batch.members.len();
                let told = if is_open { Told::InPart { since } } else { Told::InFull };
                self.settle(batch, &answer, told).await
            }
            Err(error) => self.failed(batch, error).await,
        }
    }

    /// Whether EC2 shows no machine of a lost call for the second time: one answer may be behind. From then on the call may have been
    /// made.
    async fn looked_twice(&self, batch: &Batch) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        let twice = batch.looked_at.is_some_and(|at| now.duration_since(at) >= BETWEEN_LOOKS);
        if batch.looked_at.is_some() && !twice {
            return Ok(false);
        }
        let Some(stored) = self.ports.store().read::<Batch>(self.cluster, &batch.id).await? else { return Ok(false) };
        if stored.value.looked_at != batch.looked_at {
            return Ok(false); // another run is at it
        }
        let noted = Batch { looked_at: (!twice).then_some(now), ..stored.value };
        match self.ports.store().write(self.cluster, &noted, stored.revision).await {
            Ok(_) => Ok(twice),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks for the machines of a call that was made before. EC2 may not show all of them yet.
    async fn shown(&self, batch: &Batch) -> Result<Shown, CloudError> {
        let found = self.ports.cloud().tagged(labels::TAG_LAUNCH, &batch.id).await?;
        let (alive, ended): (Vec<_>, Vec<_>) = found.into_iter().partition(Instance::is_alive);
        Ok(Shown {
            alive: alive.iter().map(machine::as_answered).collect(),
            ended: ended.into_iter().map(|instance| instance.id).collect(),
        })
    }

    /// An answer that names too few machines and does not say why may be that of a repeat: then the fleet itself is asked, and the
    /// machines by their tag. What nobody knows yet stays open. Tells since when that is so, too.
    async fn told_in_full(&self, batch: &Batch, mut answer: FleetAnswer) -> Result<(FleetAnswer, Timestamp), HandleError> {
        let since = batch.open_since.unwrap_or_else(|| self.ports.clock().now());
        if answer.instances.len() >= batch.members.len() || !answer.errors.is_empty() {
            return Ok((answer, since));
        }
        if answer.fleet_id.is_empty() {
            answer.fleet_id.clone_from(&batch.fleet_id);
        }
        self.note_open(batch, &answer.fleet_id, since).await?;
        if !answer.fleet_id.is_empty() {
            match self.ports.cloud().fleet(&answer.fleet_id, &batch.request).await {
                Ok(known) => join(&mut answer, known.unwrap_or_default()),
                Err(error) => {
                    tracing::warn!(%error, batch = %batch.id, fleet = %answer.fleet_id, "EC2 does not tell what became of a fleet")
                }
            }
        }
        let alive = self.shown(batch).await?.alive;
        join(&mut answer, FleetAnswer { instances: alive, ..FleetAnswer::default() });
        Ok((answer, since))
    }

    /// Keeps since when the machines of a fleet are not all known, and its name, so that it can be asked after even if no answer
    /// names it again.
    async fn note_open(&self, batch: &Batch, fleet_id: &str, since: Timestamp) -> Result<(), HandleError> {
        if batch.fleet_id == fleet_id && batch.open_since == Some(since) {
            return Ok(());
        }
        let Some(stored) = self.ports.store().read::<Batch>(self.cluster, &batch.id).await? else { return Ok(()) };
        let noted = Batch { fleet_id: fleet_id.to_owned(), open_since: stored.value.open_since.or(Some(since)), ..stored.value };
        match self.ports.store().write(self.cluster, &noted, stored.revision).await {
            // A twin of this run notes the same.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What EC2 shows of a call that was made before.
struct Shown {
    alive: Vec<FleetInstance>,
    ended: BTreeSet<InstanceId>,
}

impl Shown {
    fn is_any(&self) -> bool {
        !self.alive.is_empty() || !self.ended.is_empty()
    }
    /// Every machine of the call is known, so that it need not be repeated.
    fn is_complete(&self, batch: &Batch) -> bool {
        self.alive.len() + self.ended.len() >= batch.members.len()
    }
}

/// What two answers say about one fleet.
fn join(answer: &mut FleetAnswer, other: FleetAnswer) {
    let known: BTreeSet<InstanceId> = answer.instances.iter().map(|instance| instance.id.clone()).collect();
    answer.instances.extend(other.instances.into_iter().filter(|instance| !known.contains(&instance.id)));
    answer.errors.extend(other.errors);
}
