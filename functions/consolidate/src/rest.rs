//! A tick of a quiet cluster, on what is kept of an earlier look (ADR 0059).

use crate::state::Disruptions;
use crate::statics::static_pool_changes;
use crate::{Rights, Run};
use crate::{decide, metrics, observe, publish, quiet, strays};
use std::collections::BTreeMap;
use whittle_claims::Stored;
use whittle_ports::{ClusterReader, HandleError, Mode, Records};
use whittle_snapshot::load_kept;
use whittle_units::ClusterName;

impl<P: Rights> Run<'_, P> {
    /// Whether everything is as the last pass left it, so that this one has nothing to do. It is decided with the Nodes of an earlier look.
    /// If there may be something to do, the pass goes on and decides by newly read objects.
    pub(crate) async fn rests(&mut self, cluster: &ClusterName, known: Stored<Disruptions>) -> Result<bool, HandleError> {
        let Stored { value: before, revision } = known;
        let is_quiet = before.is_idle() && before.nominated.is_empty() && before.shadow_commands.is_empty();
        // A pass that rang for the next one knows of something.
        if self.settings.is_shadow() || !is_quiet || before.next_look_at.is_some() {
            return Ok(false);
        }
        let Some(snapshot) = load_kept(self.ports, self.settings, cluster).await? else { return Ok(false) };
        let departures = self.ports.cluster().departures(cluster).await;
        let has_same_pods = observe::changed_pods(&snapshot, &departures).is_empty();
        let is_same = has_same_pods && static_pool_changes(self.settings, &snapshot, &before).is_empty();
        // What a failed write of the last pass left closed is known to no record.
        if snapshot.why_paused(self.settings).is_some() || !is_same || strays::has_strays(&snapshot, &before) {
            return Ok(false);
        }
        let mut after = Disruptions { static_reasons: BTreeMap::new(), ..before.clone() };
        after.track_moves(&snapshot);
        let (decision, took) = decide(self.settings, &snapshot, &after, self.ports.clock());
        after.memory = decision.memory.clone();
        if !quiet::is_quiet(&snapshot, &before, &after, &decision) {
            return Ok(false);
        }
        self.report.count("rested");
        metrics::evaluation(&mut self.report, &decision, &took);
        self.gauge(&snapshot, &decision, &mut after).await;
        publish::store_verdicts(self.ports, cluster, &snapshot, &decision, Mode::Active, &mut self.report).await?;
        if after != before {
            self.ports.store().write(cluster, &after, revision).await?;
        }
        self.record_decisions().await;
        Ok(true)
    }
}
