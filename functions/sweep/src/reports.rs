//! What users are told of NodeClaims that have no machine: an Event on each, and a reminder every few hours.

use crate::compare::{Findings, SweepInput};
use crate::sightings::{SIGHTING_INTERVAL, Sightings};
use crate::{adopt, standalone};
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus};
use whittle_api::labels;
use whittle_ports::{ClusterEvent, Involved};
use whittle_units::SignedDuration;

/// How often users are reminded of a machine or a NodeClaim that is left alone.
pub(crate) const REMIND_INTERVAL: SignedDuration = SignedDuration::from_hours(6);
/// NodeClaims of which one run begins to say the same: a backup may have restored thousands.
const BEGUN_PER_RUN_MAX: usize = 20;

/// The reports that a run makes for one cause.
pub(crate) struct Reports {
    /// What is said of the NodeClaims, as sightings have it.
    what: &'static str,
    /// How many NodeClaims this run has begun to report.
    begun: usize,
}

impl Reports {
    pub(crate) const fn of(what: &'static str) -> Self {
        Self { what, begun: 0 }
    }

    /// Whether a NodeClaim is reported now: once, and then at each reminder.
    pub(crate) fn are_due(&mut self, node_claim: &NodeClaim, sightings: &mut Sightings<'_>) -> bool {
        self.begin(node_claim, sightings).is_some_and(|reported| sightings.is_due(reported, REMIND_INTERVAL))
    }

    /// The same of one that nothing has confirmed yet: at its second sighting.
    fn are_due_once_confirmed(&mut self, node_claim: &NodeClaim, sightings: &mut Sightings<'_>) -> bool {
        let sighted = format!("nodeclaim/{} of {} is {}", node_claim.metadata.name, node_claim.metadata.uid, self.what);
        self.begin(node_claim, sightings)
            .is_some_and(|reported| sightings.is_confirmed(sighted, SIGHTING_INTERVAL) && sightings.is_due(reported, REMIND_INTERVAL))
    }

    /// The subject of the sighting that a NodeClaim was reported, if that is not known and this run may begin with it.
    fn begin(&mut self, node_claim: &NodeClaim, sightings: &mut Sightings<'_>) -> Option<String> {
        let reported = format!("nodeclaim/{} of {} reported as {}", node_claim.metadata.name, node_claim.metadata.uid, self.what);
        if sightings.is_known(&reported) {
            sightings.retain(reported);
            return None;
        }
        self.begun += 1;
        (self.begun <= BEGUN_PER_RUN_MAX).then_some(reported)
    }
}

/// Reports NodeClaims that nothing is launched for, with what users can do about it. They get an Event and no condition: one with a status
/// counts as launched, so that it would stay unlaunched after it was corrected.
pub(crate) fn find_unlaunched(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    let mut reports = Reports::of("not launched");
    for node_claim in input.objects.node_claims.iter().filter(|node_claim| standalone::is_unlaunched(node_claim)) {
        let Some(message) = obstacle_of(node_claim, input) else { continue };
        if reports.are_due_once_confirmed(node_claim, sightings) {
            out.events.push(ClusterEvent::warning(Involved::object(node_claim), "NotLaunched", message));
        }
    }
}

/// Why nothing is launched for a NodeClaim, if users have to know.
fn obstacle_of(node_claim: &NodeClaim, input: &SweepInput<'_>) -> Option<String> {
    let name = &node_claim.metadata.name;
    // One that is marked as ours is adopted, launched again or released.
    if input.index.has_claim(name) || adopt::is_marked(node_claim) {
        return None;
    }
    if let Some(instance) = standalone::unclaimed_machine(name, input) {
        // A machine of ours is adopted or terminated; one of Karpenter's whose NodeClaim has the finalizer is reported with it.
        let is_handled = adopt::is_ours(instance, &input.index) || adopt::has_finalizer(&node_claim.metadata);
        return (!is_handled).then(|| {
            format!(
                "no machine is launched for it: instance {} has its name in the tag {}. Terminate the instance, or give the NodeClaim \
                 another name",
                instance.id,
                labels::TAG_NODE_CLAIM
            )
        });
    }
    let marks = standalone::marks_of(node_claim);
    let (show, those) = if marks.len() == 1 { ("shows", "that") } else { ("show", "those") };
    let message = || {
        format!(
            "no machine is launched for it: {} {show} that a controller made it, or what it was copied or restored from, and a machine \
             may run for that. If you made this NodeClaim, remove {those}, and it gets a machine that belongs to no NodePool; if not, \
             delete it",
            marks.join(", ")
        )
    };
    (!marks.is_empty()).then(message)
}

/// Reports NodeClaims of another controller without a machine. Karpenter would delete them; it does not run, and they are not ours.
pub(crate) fn find_left(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    let is_left = |node_claim: &&NodeClaim| {
        let is_launched = node_claim.status != NodeClaimStatus::default();
        is_launched && adopt::is_of_aws(node_claim) && !adopt::is_marked(node_claim) && !node_claim.metadata.is_deleting()
    };
    let mut reports = Reports::of("without a machine");
    for node_claim in input.objects.node_claims.iter().filter(is_left) {
        let name = &node_claim.metadata.name;
        // EC2 not showing a machine of a shifted zone proves nothing.
        if input.index.has_claim(name) || adopt::has_machine(node_claim, input) || input.shifted.are_of(&node_claim.metadata.labels) {
            continue;
        }
        if reports.are_due_once_confirmed(node_claim, sightings) {
            let message = format!(
                "EC2 shows no running machine of it, and no controller takes care of it: Karpenter does not run, and Whittle has not \
                 adopted it. Delete it: kubectl delete nodeclaim {name}. Whittle then removes its finalizer, and its Node goes with it"
            );
            out.events.push(ClusterEvent::warning(Involved::object(node_claim), "NoMachine", message));
        }
    }
}

/// Says why a NodeClaim is deleted: users copy them with what marks them as Whittle's.
pub(crate) fn abandonment(node_claim: &NodeClaim) -> ClusterEvent {
    let marks: Vec<String> = std::iter::once(format!("annotation {}", labels::MANAGED)).chain(standalone::marks_of(node_claim)).collect();
    let message = format!(
        "it is marked as Whittle's, which has neither a claim nor a machine for it: it is deleted as soon as EC2 confirms that it has no \
         machine. If you copied it from another NodeClaim, apply it without {}, and it gets a machine that belongs to no NodePool",
        marks.join(", ")
    );
    ClusterEvent::warning(Involved::object(node_claim), "Abandoned", message)
}
