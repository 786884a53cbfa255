//! The calls of new groups: several at once, and those for most machines first, because EC2 lets few through.

use crate::batch::{Batch, MadeFrom};
use crate::call::Call;
use crate::plan::{self, Group};
use crate::{ABANDONED_AFTER, Rights, Run, complete_writes, has_time, oldest, unstored_call};
use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use whittle_claims::{Bucket, BucketName, Event, Revision};
use whittle_ec2::fleet::LaunchTemplate;
use whittle_ports::{Clock, CloudError, HandleError, Records, Report, Safeguard, StoreError, TokenBuckets, advance, unless_conflict};
use whittle_units::ClaimName;

/// Rate limit of EC2's mutating actions, of which CreateFleet is one, for each of them per account and region: five per second with a
/// burst of fifty. (RunInstances, which nothing here calls, has two per second with a burst of five.)
const BUCKET: &str = "CreateFleet";
const BUCKET_SIZE: u32 = 50;
const BUCKET_RATE: u32 = 5;
/// Calls of a run that are under way at once. A call takes one to three seconds, so that this many keep up with the rate.
const CALLS_MAX: usize = 20;
/// How many tokens a run that has made calls leaves to other clusters of the deployment: those of one second.
pub(crate) const LEFT_TO_OTHERS: u32 = BUCKET_RATE;

/// The outcome of one of several concurrent calls.
struct Part {
    outcome: Result<(), HandleError>,
    /// The launch templates that the run knew when the call began, and those that are known after it.
    templates: (BTreeSet<String>, BTreeSet<String>),
    /// Whether EC2 has throttled it, and how the creation of one of its launch templates.
    is_throttled: bool,
    templates_throttled: Option<CloudError>,
    report: Report,
}

impl Part {
    /// Begins a group as a part of a run.
    async fn begin<P: Rights>(mut part: Run<'_, P>, group: Group) -> Self {
        let before = part.templates.clone();
        let outcome = part.begin(group).await;
        let Run { templates, is_throttled, templates_throttled, report, .. } = part;
        Self { outcome, templates: (before, templates), is_throttled, templates_throttled, report }
    }
}

/// Waits for `awaited` while calls continue. Those that end meanwhile are added to `ended`.
async fn beside<T>(calls: &mut FuturesUnordered<impl Future<Output = Part>>, ended: &mut Vec<Part>, awaited: impl Future<Output = T>) -> T {
    let mut awaited = pin!(awaited);
    while !calls.is_empty() {
        match select(awaited.as_mut(), calls.next()).await {
            Either::Left((done, _)) => return done,
            Either::Right((part, _)) => ended.extend(part),
        }
    }
    awaited.await
}

/// `count`, half of it, and so on, down to one. Empty if `count` is zero.
fn halves(count: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(count), |count| Some(count / 2)).take_while(|count| *count > 0)
}

impl<P: Rights> Run<'_, P> {
    /// Makes the calls of new groups, as many at once as the rate limit allows: the next one begins when any of them ends. All that were
    /// begun end, whatever becomes of the others: what EC2 has started is assigned. None begins after EC2 has throttled one of the run:
    /// others use the account's rate too, or it is lower there. Once it has throttled a launch template, only groups begin whose templates
    /// are there. Returns the claims that have to wait.
    pub(crate) async fn launch_groups(&mut self, mut groups: Vec<Group>) -> Result<Vec<ClaimName>, HandleError> {
        groups.sort_by_key(|group| Reverse(group.claims.len()));
        let (mut waiting, mut set_aside) = (VecDeque::from(groups), Vec::new());
        let (mut calls, mut outcome, mut is_in_time) = (FuturesUnordered::new(), Ok(()), true);
        let mut reserve = 0;
        loop {
            let free = CALLS_MAX.saturating_sub(calls.len());
            let mut ended = Vec::new();
            if is_in_time && outcome.is_ok() && !self.is_throttled && free > 0 && !waiting.is_empty() {
                let permitted = self.permitted(&mut waiting, &mut set_aside, free, reserve);
                let permitted = beside(&mut calls, &mut ended, permitted).await;
                match permitted {
                    // The tokens that were taken meanwhile are not there: the bucket is emptied below.
                    Ok(Some(_)) if ended.iter().any(|part| part.is_throttled) => {}
                    Ok(Some(count)) => {
                        calls.extend(waiting.drain(..count).map(|group| Part::begin(self.part(), group)));
                        // This run asks whenever a call ends and would get every new token; runs of other clusters ask much less often.
                        if count > 0 {
                            reserve = self.facts.left_to_others;
                        }
                    }
                    Ok(None) => is_in_time = false,
                    Err(error) => outcome = Err(error),
                }
            }
            if ended.is_empty() {
                ended.extend(calls.next().await);
            }
            if ended.is_empty() {
                break;
            }
            for part in ended {
                if part.is_throttled && !self.is_throttled {
                    self.is_throttled = true;
                    self.empty_bucket().await;
                }
                outcome = outcome.and(self.absorb(part));
            }
        }
        outcome?;
        waiting.extend(set_aside);
        if is_in_time {
            waiting.iter().for_each(|_| self.report.count("no_token"));
        }
        Ok(waiting.into_iter().flat_map(|group| group.claims).map(|claim| claim.value.key.name).collect())
    }

    /// How many of the next calls may be made now. `None` if there is no time left for any. Groups that wait for launch templates, whose
    /// creation EC2 has throttled, are set aside.
    async fn permitted(
        &mut self,
        waiting: &mut VecDeque<Group>,
        set_aside: &mut Vec<Group>,
        free: usize,
        reserve: u32,
    ) -> Result<Option<usize>, HandleError> {
        if !has_time(self.ports.clock()) {
            self.report.hand_over();
            return Ok(None);
        }
        // Before the tokens are taken: a delay between tokens and their calls would make calls come in bursts above the permitted rate.
        self.ensure_shared_templates(waiting.make_contiguous(), free).await;
        if self.templates_throttled.is_some() {
            let is_ready = |group: &Group| group.launch.templates.iter().all(|template| self.has_template(template));
            let (ready, others): (VecDeque<Group>, VecDeque<Group>) = std::mem::take(waiting).into_iter().partition(is_ready);
            *waiting = ready;
            set_aside.extend(others);
        }
        self.take_tokens(waiting.len().min(free), reserve).await.map(Some)
    }

    /// A part of this run, with a report of its own.
    fn part(&self) -> Self {
        Self {
            ports: self.ports,
            cluster: self.cluster,
            facts: Arc::clone(&self.facts),
            templates: self.templates.clone(),
            register_rung_at: Arc::clone(&self.register_rung_at),
            is_throttled: false,
            templates_throttled: self.templates_throttled.clone(),
            report: Report::default(),
        }
    }

    fn absorb(&mut self, part: Part) -> Result<(), HandleError> {
        self.report.absorb(part.report);
        if part.templates_throttled.is_some() {
            self.templates_throttled = part.templates_throttled;
        }
        let (before, after) = part.templates;
        // A part forgets all of them when one may be gone.
        if after.is_superset(&before) {
            self.templates.extend(after.difference(&before).cloned());
        } else {
            self.templates.clear();
        }
        part.outcome
    }

    /// Takes tokens for `calls` calls, or for half as many, and so on, so that at least `reserve` are left. Returns how many calls may be
    /// made: all invocations of the account share the bucket.
    pub(crate) async fn take_tokens(&self, calls: usize, reserve: u32) -> Result<usize, HandleError> {
        let (name, now) = (BucketName(BUCKET.to_owned()), self.ports.clock().now());
        let full = Bucket::full(BUCKET_SIZE, BUCKET_RATE, now).leaving(reserve);
        for count in halves(u32::try_from(calls).unwrap_or(BUCKET_SIZE).min(BUCKET_SIZE)) {
            match self.ports.store().take_tokens(&name, &full, count, now).await {
                Ok(taken) if Safeguard::CallsRated.permits(taken) => return Ok(count as usize),
                Ok(_) => {}
                // Lost the race for tokens: retry later.
                Err(StoreError::Conflict { .. } | StoreError::Throttled { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }

    /// Takes nearly all tokens that are left, since EC2 has none: calls of all clusters go on as fast as tokens are refilled.
    pub(crate) async fn empty_bucket(&self) {
        let (name, now) = (BucketName(BUCKET.to_owned()), self.ports.clock().now());
        let full = Bucket::full(BUCKET_SIZE, BUCKET_RATE, now);
        for count in halves(BUCKET_SIZE) {
            // What is left in it costs a throttled call at most.
            let _ = self.ports.store().take_tokens(&name, &full, count, now).await;
        }
    }

    /// Creates the launch templates of the next groups that other groups need too, each once. A group whose templates cannot be created
    /// meets the same error again, and says so.
    async fn ensure_shared_templates(&mut self, waiting: &[Group], next: usize) {
        let mut users: BTreeMap<&str, u32> = BTreeMap::new();
        for template in waiting.iter().flat_map(|group| &group.launch.templates) {
            *users.entry(&template.name).or_default() += 1;
        }
        for group in waiting.iter().take(next) {
            let shared = group.launch.templates.iter().filter(|template| users.get(template.name.as_str()).is_some_and(|users| *users > 1));
            let shared: Vec<LaunchTemplate> = shared.cloned().collect();
            if self.ensure_templates(&group.node_class, &shared).await.is_err() {
                break;
            }
        }
    }

    /// Takes the token of one call.
    pub(crate) async fn take_token(&self) -> Result<bool, HandleError> {
        Ok(self.take_tokens(1, 0).await? == 1)
    }

    /// Stores the call of a new group, then makes it.
    async fn begin(&mut self, group: Group) -> Result<(), HandleError> {
        let tokens: Vec<ClaimName> = group.claims.iter().map(|claim| plan::token_of(&claim.value)).collect();
        let id = plan::id_of(self.cluster, &tokens);
        let begun = Event::LaunchBegun { client_token: id.clone() };
        let now = self.ports.clock().now();
        let moved = group.claims.iter().map(|claim| advance(self.ports.store(), claim, &begun, now)).collect();
        // Claims that were deleted meanwhile, or that another run took, are left out of the call.
        let claims = complete_writes(moved, &mut self.report).await?;
        if claims.is_empty() {
            return Ok(());
        }
        let members: Vec<ClaimName> = claims.iter().map(|claim| claim.value.key.name.clone()).collect();
        // A claim is launched within seconds of being planned. One that waited longer may have been launched before the table was
        // restored.
        let oldest = oldest(&group.claims, now);
        let which = if Safeguard::OldPlansLookFirst.stops(oldest >= ABANDONED_AFTER) { unstored_call(oldest) } else { Call::First };
        let batch = plan::batch(&id, members, &group.node_class, &group.launch, self.ports.clock().now());
        let Some(batch) = self.store_batch(batch, which).await? else { return Ok(()) };
        self.call(&batch, which, Some(claims)).await
    }

    /// Stores a new call. `None` if another run stored it first: that run makes it.
    pub(crate) async fn store_batch(&self, batch: Batch, which: Call) -> Result<Option<Batch>, HandleError> {
        let made_from = self.facts.class(&batch.node_class).map(MadeFrom::of);
        let batch = Batch { looks_first: which != Call::First, made_from, ..batch };
        let written = unless_conflict(self.ports.store().write(self.cluster, &batch, Revision::ABSENT).await)?;
        Ok(written.map(|_| batch))
    }
}
