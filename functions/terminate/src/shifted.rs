//! Terminations that wait for the end of a zonal shift (aws 23).

use crate::{Rights, Run, SHIFTED_DELAY};
use whittle_claims::{Machine, ZoneShifts};
use whittle_ports::{Clock, ClusterEvent, HandleError, Instances, Involved, RecordReader, publish_event};
use whittle_units::SignedDuration;

impl<P: Rights> Run<'_, P> {
    /// Whether a zonal shift holds the termination of the machine.
    pub(crate) async fn is_held_by_shift(&self, machine: &Machine) -> Result<bool, HandleError> {
        if !self.zonal_shift {
            return Ok(false);
        }
        let known = self.ports.store().read::<ZoneShifts>(&self.claim.value.key.cluster, ZoneShifts::NAME).await?;
        if !known.is_some_and(|known| known.value.shifted(self.ports.clock().now()).have(machine)) {
            return Ok(false);
        }
        // An instance that EC2 shows as ended has ended; one that it does not show may run.
        let instance = self.ports.cloud().instance(&machine.instance_id).await?;
        Ok(instance.is_none_or(|instance| instance.is_alive()))
    }

    /// When to check again whether the machine's instance may be terminated; `None`: now. During a zonal shift AWS advises against changes
    /// in the zone, and its answers about the zone may be wrong. Pods are drained as usual: whoever had the node deleted wants them
    /// elsewhere.
    pub(crate) async fn shift_delay(&mut self, machine: &Machine) -> Result<Option<SignedDuration>, HandleError> {
        if !self.is_held_by_shift(machine).await? {
            return Ok(None);
        }
        let cluster = &self.claim.value.key.cluster;
        self.report.count("held_by_zonal_shift");
        let message = format!(
            "Instance {} is terminated after the zonal shift away from its zone {}: cancel the shift to terminate it now",
            machine.instance_id, machine.zone
        );
        let event = ClusterEvent::warning(Involved::claim(&self.claim.value), "TerminationHeld", message);
        publish_event(self.ports.cluster(), cluster, &event).await;
        Ok(Some(SHIFTED_DELAY))
    }
}
