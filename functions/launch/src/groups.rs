//! The calls of new groups: several at once, and those for most machines first, because EC2 lets few through.

use crate::batch::Batch;
use crate::call::Call;
use crate::plan::{self, Group};
use crate::{ABANDONED_AFTER, Rights, Run, complete_writes, has_time, oldest, unstored_call};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use whittle_claims::{Bucket, BucketName, Event, Revision};
use whittle_ec2::fleet::LaunchTemplate;
use whittle_ports::{Clock, HandleError, Records, Report, Safeguard, StoreError, TokenBuckets, advance, concurrently, unless_conflict};
use whittle_units::ClaimName;

/// Rate limit of CreateFleet per account and region: two per second with a burst of five.
const BUCKET: &str = "CreateFleet";
const BUCKET_SIZE: u32 = 5;
const BUCKET_RATE: u32 = 2;

impl<P: Rights> Run<'_, P> {
    /// Makes the calls of new groups, as many at once as the rate limit allows. The claims of the others have to wait.
    pub(crate) async fn launch_groups(&mut self, mut groups: Vec<Group>) -> Result<Vec<ClaimName>, HandleError> {
        groups.sort_by_key(|group| Reverse(group.claims.len()));
        let mut waiting = VecDeque::from(groups);
        while !waiting.is_empty() {
            if !has_time(self.ports.clock()) {
                self.report.hand_over();
                break;
            }
            // Before the tokens: what lies between a token and its call makes calls come faster than they were permitted.
            let next = waiting.make_contiguous();
            self.ensure_shared_templates(&next[..next.len().min(BUCKET_SIZE as usize)]).await;
            let permitted = self.take_tokens(waiting.len()).await?;
            if permitted == 0 {
                waiting.iter().for_each(|_| self.report.count("no_token"));
                break;
            }
            self.begin_all(waiting.drain(..permitted).collect()).await?;
        }
        Ok(waiting.into_iter().flat_map(|group| group.claims).map(|claim| claim.value.key.name).collect())
    }

    /// Takes a token for each of so many calls, in one request if there are as many. Returns how many calls may be made: all invocations
    /// of the account share the bucket.
    async fn take_tokens(&self, calls: usize) -> Result<usize, HandleError> {
        let (name, now) = (BucketName(BUCKET.to_owned()), self.ports.clock().now());
        let full = Bucket::full(BUCKET_SIZE, BUCKET_RATE, now);
        let wanted = u32::try_from(calls).unwrap_or(BUCKET_SIZE).min(BUCKET_SIZE);
        for count in (1..=wanted).rev() {
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

    /// Begins groups beside each other, each as a part of this run. All of them end, whatever becomes of the others: what EC2 has started
    /// is assigned.
    async fn begin_all(&mut self, groups: Vec<Group>) -> Result<(), HandleError> {
        // One doorbell for what is launched at the same time.
        let is_register_rung = Arc::new(AtomicBool::new(false));
        let parts = groups.into_iter().map(|group| {
            let mut part = Run {
                ports: self.ports,
                cluster: self.cluster,
                facts: Arc::clone(&self.facts),
                templates: self.templates.clone(),
                is_register_rung: Arc::clone(&is_register_rung),
                report: Report::default(),
            };
            async move {
                let outcome = part.begin(group).await;
                (outcome, part.templates, part.report)
            }
        });
        let (mut all, mut known, mut is_gone) = (Ok(()), BTreeSet::new(), false);
        for (outcome, templates, report) in concurrently(parts).await {
            // A part forgets all of them when one may be gone.
            is_gone |= !templates.is_superset(&self.templates);
            known.extend(templates);
            self.report.absorb(report);
            all = all.and(outcome);
        }
        self.templates = if is_gone { BTreeSet::new() } else { known };
        all
    }

    /// Creates the launch templates that several groups have in common, each once. A group whose templates cannot be created meets the same
    /// error again, and says so.
    async fn ensure_shared_templates(&mut self, groups: &[Group]) {
        let mut users: BTreeMap<&str, u32> = BTreeMap::new();
        for template in groups.iter().flat_map(|group| &group.launch.templates) {
            *users.entry(&template.name).or_default() += 1;
        }
        for group in groups {
            let shared = group.launch.templates.iter().filter(|template| users.get(template.name.as_str()).is_some_and(|users| *users > 1));
            let shared: Vec<LaunchTemplate> = shared.cloned().collect();
            if self.ensure_templates(&group.node_class, &shared).await.is_err() {
                break;
            }
        }
    }

    /// Takes the token of one call.
    pub(crate) async fn take_token(&self) -> Result<bool, HandleError> {
        Ok(self.take_tokens(1).await? == 1)
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
        self.call(&batch, which, (which == Call::First).then_some(claims)).await
    }

    /// Stores a new call. `None` if another run stored it first: that run makes it.
    pub(crate) async fn store_batch(&self, batch: Batch, which: Call) -> Result<Option<Batch>, HandleError> {
        let batch = Batch { looks_first: which != Call::First, ..batch };
        let written = unless_conflict(self.ports.store().write(self.cluster, &batch, Revision::ABSENT).await)?;
        Ok(written.map(|_| batch))
    }
}
