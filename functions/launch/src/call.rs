//! One fleet call: its instances are looked up before it is repeated, and when its response does not account for all of them.

use crate::answer::{OUTCOME_TIMEOUT, Outcome};
use crate::batch::Batch;
use crate::machine;
use crate::{Rights, Run};
use futures::future::join_all;
use std::collections::BTreeSet;
use whittle_api::labels;
use whittle_claims::{Claim, Stored};
use whittle_ec2::fleet::{FleetAnswer, FleetInstance, LaunchTemplate};
use whittle_ec2::instance::Instance;
use whittle_ports::{
    Clock, CloudError, CloudErrorKind, Fleets, HandleError, Instances, LaunchTemplates, RecordReader, Records, Safeguard, metrics,
    unless_conflict, update_record,
};
use whittle_units::{InstanceId, SignedDuration, Timestamp};

/// Launch templates that are created concurrently: EC2 allows few such calls per second.
const TEMPLATE_CONCURRENCY: usize = 5;
/// Time between two lookups of the instances of a lost call.
const LOOKUP_INTERVAL: SignedDuration = SignedDuration::from_secs(28);
/// A lookup that was longer ago counts no more: EC2 may have shown the instances since, and omit them once more.
const LOOKUP_EXPIRES_AFTER: SignedDuration = SignedDuration::from_secs(90);

/// Whether this call may have been made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    First,
    /// The stored call, made again.
    Repeat,
    /// Not in the store. Instances with its token are looked up first: another call with that token may have been made.
    New,
    /// Not in the store, and so old that a call may have been lost when the table was restored: EC2 is checked twice.
    Lost,
}

impl<P: Rights> Run<'_, P> {
    /// Creates the launch templates, then the fleet, then settles its response. `just_stored` are the members as this run has just stored
    /// them, if nobody has made the stored call before.
    pub(crate) async fn call(&mut self, batch: &Batch, which: Call, just_stored: Option<Vec<Stored<Claim>>>) -> Result<(), HandleError> {
        let known = match which {
            Call::First => FoundInstances::default(),
            Call::Repeat | Call::New | Call::Lost => match self.look_before(batch, which).await? {
                Some(found) => found,
                None => return Ok(()),
            },
        };
        if let Err(error) = self.ensure_templates(&batch.node_class, &batch.templates).await {
            return self.failed(batch, error, &known.alive, just_stored.as_deref()).await;
        }
        let mut is_fresh = which == Call::First;
        let answer = match self.ports.cloud().create_fleet(&batch.request).await {
            Ok(answer) => answer,
            // A call with this token was made, and with other parameters: by another version of Whittle, which writes them in another way,
            // or before the table was restored. EC2 starts nothing now. What it started then is found by its tag, and until that would
            // have been found nothing is started in its place.
            Err(error) if error.kind == CloudErrorKind::IdempotencyMismatch => {
                tracing::warn!(%error, batch = %batch.id, "its token was used for another call: the instances of that are looked for");
                self.report.count("token_used");
                is_fresh = false; // the members may have instances of that call
                FleetAnswer::default()
            }
            Err(error) => {
                self.is_throttled |= error.kind == CloudErrorKind::Throttled;
                // It may have failed because a template was deleted.
                self.templates.clear();
                return self.failed(batch, error, &known.alive, just_stored.as_deref()).await;
            }
        };
        let (mut answer, since) = self.complete_response(batch, answer).await?;
        answer.instances.retain(|instance| !Safeguard::EndedGivenToNobody.stops(known.ended.contains(&instance.id)));
        let accounted_for = answer.instances.len() + known.ended.len();
        let is_open = answer.errors.is_empty() && accounted_for < batch.members.len();
        let outcome = if is_open { Outcome::Incomplete { since } } else { Outcome::Complete };
        self.settle(batch, &answer, outcome, just_stored.filter(|_| is_fresh)).await
    }

    /// The instances of a call that may have been made before. `None` if it is not made in this run, because they are all there, those of
    /// another call are, or EC2 has to be asked once more: then its claims have been seen to.
    async fn look_before(&mut self, batch: &Batch, which: Call) -> Result<Option<FoundInstances>, HandleError> {
        let found = self.find_instances(batch).await?;
        if found.is_complete(batch) {
            let answer = FleetAnswer { instances: found.alive, ..FleetAnswer::default() };
            self.settle(batch, &answer, Outcome::Complete, None).await?;
            return Ok(None);
        }
        let was_made = which != Call::Repeat && (found.is_any() || self.has_machine(batch).await?);
        if Safeguard::OldPlansLookFirst.stops(was_made) {
            // That was another call, so EC2 would start instances for all its members again.
            self.adopt_unstored(batch, &found.alive).await?;
            return Ok(None);
        }
        let waits = match which {
            Call::Lost => !self.record_missing(batch).await?,
            Call::New => !self.record_cleared(batch).await?,
            Call::First | Call::Repeat => false,
        };
        if Safeguard::OldPlansLookFirst.stops(waits) {
            self.report.count("looked_for");
            self.retry_lookup(batch).await?;
            return Ok(None);
        }
        Ok(Some(found))
    }

    /// Whether a member has a machine, so that its call was made, even while EC2 lists none of it.
    async fn has_machine(&self, batch: &Batch) -> Result<bool, HandleError> {
        Ok(self.members(batch).await?.iter().any(|claim| claim.value.instance().is_some()))
    }

    /// Creates the launch templates of a class, except those that this run has already ensured. Once EC2 has throttled that, none that
    /// would take another call.
    pub(crate) async fn ensure_templates(&mut self, node_class: &str, templates: &[LaunchTemplate]) -> Result<(), CloudError> {
        let missing: Vec<&LaunchTemplate> = templates.iter().filter(|template| !self.templates.contains(&template.name)).collect();
        for some in missing.chunks(TEMPLATE_CONCURRENCY) {
            if let Some(error) = self.templates_throttled.clone()
                && !some.iter().all(|template| self.has_template(template))
            {
                return Err(error);
            }
            let made = join_all(some.iter().map(|template| self.ports.cloud().ensure_launch_template(template))).await;
            let made = made.into_iter().collect::<Result<(), CloudError>>();
            if let Err(error) = &made
                && error.kind == CloudErrorKind::Throttled
            {
                self.templates_throttled = Some(error.clone());
            }
            made?;
            self.templates.extend(some.iter().map(|template| template.name.clone()));
            for template in some {
                let bytes = u64::try_from(template.user_data.len()).unwrap_or(u64::MAX);
                self.report.gauge(metrics::UserDataBytes { nodeclass: node_class }, bytes);
            }
        }
        Ok(())
    }

    /// Whether a launch template is known to be there.
    pub(crate) fn has_template(&self, template: &LaunchTemplate) -> bool {
        self.templates.contains(&template.name) || self.ports.cloud().has_launch_template(template)
    }

    /// Whether a begun call would only take a token: EC2 has throttled the creation of launch templates in this run, not all of the call's
    /// are known to be there, and none of its instances run. Those need no template, and nobody else gives them to their claims.
    pub(crate) async fn waits_for_templates(&self, id: &str) -> Result<bool, HandleError> {
        if self.templates_throttled.is_none() {
            return Ok(false);
        }
        let Some(stored) = self.ports.store().read::<Batch>(self.cluster, id).await? else { return Ok(true) };
        let batch = stored.value;
        Ok(!batch.templates.iter().all(|template| self.has_template(template)) && !self.find_instances(&batch).await?.is_any())
    }

    /// Records that EC2 shows no instance of a lost call, and returns whether that is for the second time: a single response may be stale.
    /// From then on the call may have been made.
    async fn record_missing(&self, batch: &Batch) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        let earlier = batch.looked_at.map(|at| now.duration_since(at)).filter(|age| *age <= LOOKUP_EXPIRES_AFTER);
        let twice = earlier.is_some_and(|age| age >= LOOKUP_INTERVAL);
        if earlier.is_some() && !twice {
            return Ok(false);
        }
        let Some(stored) = self.ports.store().read::<Batch>(self.cluster, &batch.id).await? else { return Ok(false) };
        if stored.value.looked_at != batch.looked_at {
            return Ok(false); // another run handles it
        }
        let updated = Batch { looked_at: (!twice).then_some(now), looks_first: !twice, ..stored.value };
        let written = unless_conflict(self.ports.store().write(self.cluster, &updated, stored.revision).await)?;
        Ok(twice && written.is_some())
    }

    /// Records that no other call was found, so that a run that resumes this one repeats it. Returns whether that was written.
    async fn record_cleared(&self, batch: &Batch) -> Result<bool, HandleError> {
        let Some(stored) = self.ports.store().read::<Batch>(self.cluster, &batch.id).await? else { return Ok(false) };
        let updated = Batch { looks_first: false, ..stored.value };
        Ok(unless_conflict(self.ports.store().write(self.cluster, &updated, stored.revision).await)?.is_some())
    }

    /// Looks up the instances of a call that was made before. EC2 may not show all of them yet.
    async fn find_instances(&self, batch: &Batch) -> Result<FoundInstances, CloudError> {
        let found = self.ports.cloud().tagged(labels::TAG_LAUNCH, &batch.id).await?;
        let (alive, ended): (Vec<_>, Vec<_>) = found.into_iter().partition(Instance::is_alive);
        Ok(FoundInstances {
            alive: alive.iter().map(machine::as_fleet_instance).collect(),
            ended: ended.into_iter().map(|instance| instance.id).collect(),
        })
    }

    /// A response with too few instances and no errors may be that of a repeated call: then the fleet is described, and the
    /// instances are looked up by tag. What is unknown after that stays open. Also returns since when.
    async fn complete_response(&self, batch: &Batch, mut answer: FleetAnswer) -> Result<(FleetAnswer, Timestamp), HandleError> {
        let since = batch.open_since.unwrap_or_else(|| self.ports.clock().now());
        if answer.instances.len() >= batch.members.len() || !answer.errors.is_empty() {
            return Ok((answer, since));
        }
        if answer.fleet_id.is_empty() {
            answer.fleet_id.clone_from(&batch.fleet_id);
        }
        self.store_open_fleet(batch, &answer.fleet_id, since).await?;
        if !answer.fleet_id.is_empty() {
            match self.ports.cloud().fleet(&answer.fleet_id, &batch.request).await {
                Ok(known) => merge(&mut answer, known.unwrap_or_default()),
                Err(error) => {
                    tracing::warn!(%error, batch = %batch.id, fleet = %answer.fleet_id, "the outcome of a fleet is unknown")
                }
            }
        }
        let alive = self.find_instances(batch).await?.alive;
        merge(&mut answer, FleetAnswer { instances: alive, ..FleetAnswer::default() });
        Ok((answer, since))
    }

    /// Whether the claims of a call that failed may have another one: nothing was started for them, now or before. `just_stored` as for
    /// [`Run::call`]; `waiting` are its members that have no instance.
    pub(crate) async fn has_started_nothing(
        &self,
        batch: &Batch,
        error: &CloudError,
        waiting: &[Stored<Claim>],
        just_stored: Option<&[Stored<Claim>]>,
    ) -> Result<bool, HandleError> {
        match error.kind {
            // From now on something may have been started.
            CloudErrorKind::Unknown => {
                self.store_refusal(batch, None).await?;
                return Ok(false);
            }
            CloudErrorKind::Throttled => return Ok(false),
            _ => {}
        }
        // A run that takes the claims to make the call as well changes them first.
        let is_own = |claim: &Stored<Claim>, own: &Stored<Claim>| own.value.key == claim.value.key && own.revision == claim.revision;
        if just_stored.is_some_and(|just_stored| waiting.iter().all(|claim| just_stored.iter().any(|own| is_own(claim, own)))) {
            return Ok(true);
        }
        // It was made before, and that is not refused in hindsight: until EC2 would show its instances, the same call is made again.
        let now = self.ports.clock().now();
        let since = batch.refused_since.unwrap_or(now);
        self.store_refusal(batch, Some(since)).await?;
        Ok(!Safeguard::OpenCallsAwaited.stops(now.duration_since(since) < OUTCOME_TIMEOUT))
    }

    async fn store_refusal(&self, batch: &Batch, since: Option<Timestamp>) -> Result<(), HandleError> {
        if batch.refused_since == since {
            return Ok(());
        }
        let next = |known: Option<Batch>, _| known.map(|known| Batch { refused_since: since, ..known });
        update_record(self.ports, self.cluster, &batch.id, 1, next).await?;
        Ok(())
    }

    /// Stores since when the instances of a fleet are not all known, and the fleet's id, so that it can be described even if no
    /// later response contains it. It may have started them with this response: what was refused before says nothing of them.
    async fn store_open_fleet(&self, batch: &Batch, fleet_id: &str, since: Timestamp) -> Result<(), HandleError> {
        if batch.fleet_id == fleet_id && batch.open_since == Some(since) && batch.refused_since.is_none() {
            return Ok(());
        }
        let next = |known: Option<Batch>, _| {
            let open = |known: Batch| {
                let open_since = known.open_since.or(Some(since));
                Batch { fleet_id: fleet_id.to_owned(), open_since, refused_since: None, ..known }
            };
            known.map(open)
        };
        // After a conflict: a concurrent run records the same.
        update_record(self.ports, self.cluster, &batch.id, 1, next).await?;
        Ok(())
    }
}

/// The instances that EC2 shows of a call that was made before.
#[derive(Default)]
struct FoundInstances {
    alive: Vec<FleetInstance>,
    ended: BTreeSet<InstanceId>,
}

impl FoundInstances {
    fn is_any(&self) -> bool {
        !self.alive.is_empty() || !self.ended.is_empty()
    }
    /// Whether every instance of the call is known, so that it need not be repeated.
    fn is_complete(&self, batch: &Batch) -> bool {
        self.alive.len() + self.ended.len() >= batch.members.len()
    }
}

/// Merges two responses about one fleet.
fn merge(answer: &mut FleetAnswer, other: FleetAnswer) {
    let known: BTreeSet<InstanceId> = answer.instances.iter().map(|instance| instance.id.clone()).collect();
    answer.instances.extend(other.instances.into_iter().filter(|instance| !known.contains(&instance.id)));
    answer.errors.extend(other.errors);
}
