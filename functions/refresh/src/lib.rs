//! Refreshes the region's catalog, resolves node classes, and updates the status of NodePools.

mod catalog_age; // which parts of the catalog are read again

// Node classes.
mod classes; // looks up what they select, and stores it
mod unanswered; // parts that could not be looked up stay as they were
mod missing_classes; // a class is gone only when a second look says so
mod dry_runs; // requests those that `launch` makes
mod profiles; // instance profiles that no class uses
mod deletion; // held while a claim uses the class

mod blocks; // when the capacity blocks of claims end

#[cfg(test)]
mod tests;

use deletion::ClassDeletions;
use std::sync::Arc;
use unanswered::FailedCall;
use whittle_api::ClusterObjects;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::runtime::has_expressions;
use whittle_claims::{Claim, Doorbell, Function, FunctionHealth, LeftNodes, NodeClassRecord, PoolHealth, Record, Stored, Uninstall};
use whittle_ec2::facts::Catalog;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{
    CatalogWriter, ClaimStore, Clock, CloudError, ClusterError, ClusterReader, ClusterRecord, DecisionLog, Discovery, HandleError, Listing,
    Mode, Queues, RecordReader, RecordRemoval, Records, RegionStore, Report, Scope, Settings, StatusWriter, Update, note_health,
    publish_event, publish_events, rights, unless_conflict, update_record, write_pool_statuses,
};
use whittle_snapshot::{PoolFacts, pool_status, warm};
use whittle_units::{ClusterName, SignedDuration};

rights! {
    /// What `refresh` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Records + RecordRemoval + RegionStore + CatalogWriter + DecisionLog,
    Cloud: Discovery,
    Cluster: ClusterReader + StatusWriter,
    Queues: Queues,
}

/// How long a deleted class is closed to launches before its users are checked.
const CLOSE_DELAY: SignedDuration = SignedDuration::from_secs(15);

/// One run for a cluster: its ports and settings.
pub(crate) struct Run<'a, P> {
    ports: P,
    settings: &'a Settings,
    cluster: &'a ClusterName,
}

/// What a run has done, and which functions have to run after it.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) report: Report,
    /// Pending pods may schedule after what has changed: `schedule` runs.
    changed: bool,
    /// A static pool is ready for what its `replicas` say: `consolidate` runs.
    static_pools_changed: bool,
    /// A class was closed or missing: this function runs again.
    classes_wait: bool,
    /// Dry runs are pending: `launch` runs.
    dry_runs_wait: bool,
    /// Why the region's on-demand prices, or some of them, could not be read.
    prices_failed: Option<String>,
}

impl Done {
    fn change(&mut self) {
        self.report.count("changed");
        self.changed = true;
    }
    fn request_dry_runs(&mut self) {
        self.report.count("dry_runs_pending");
        self.dry_runs_wait = true;
    }
    /// More is decided about a class once launches with it have been stored.
    pub(crate) fn wait_for(&mut self, what: &'static str) {
        self.report.count(what);
        self.classes_wait = true;
    }
}

/// Refreshes catalog, cluster facts, classes and pools. Each part continues when another fails; the first error is returned at
/// the end.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let mut outcome = refresh(ports, settings, cluster).await;
    let ended_well = outcome.is_ok();
    // `sweep` tells of failures that last.
    let next = move |known: Option<&FunctionHealth>, now| FunctionHealth::after_run(known, Function::Refresh, ended_well, now);
    let noted = note_health(ports, cluster, Function::Refresh, next).await;
    if let Ok(report) = &mut outcome {
        noted.count_failure(report, "health_not_kept");
    }
    outcome
}

async fn refresh<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let mut done = Done::default();
    let run = Run { ports, settings, cluster };
    let (catalog, info) = futures::join!(run.refresh_catalog(&mut done), ports.cloud().cluster_info(cluster));
    let info = info.map_err(|error| ClusterError::of_access(cluster, &error))?;
    run.store_if_changed(&ClusterRecord { info: info.clone() }, &mut done).await?;
    // The objects last: a catalog may take a minute to be read.
    let (uninstalling, objects) =
        futures::join!(ports.store().read::<Uninstall>(cluster, Uninstall::NAME), ports.cluster().read(cluster, Scope::Karpenter, None));
    let objects = objects?;
    // Statuses and finalizers are Karpenter's to write while it runs.
    let karpenter_runs = objects.running_karpenter(ports.clock().now()).is_some();
    let mode = if karpenter_runs { Mode::Shadow } else { settings.mode };
    let settings = &Settings { mode, ..settings.clone() };
    let run = Run { settings, ..run };
    let (mut failure, mut images) = (None, classes::FoundImages::default());
    let uninstalling = uninstalling?.map(|record| record.value.nodes);
    for class in objects.node_classes.iter().filter(|class| uninstalling.is_none() && !class.metadata.is_deleting()) {
        let class = classes::with_defaults(class, settings);
        // Before the lookup in EC2: an instance that is started meanwhile is then in EC2's count or in ours.
        let started_at = ports.clock().now();
        let lookup = classes::look_up(ports.cloud(), cluster, &info, &class, settings, &mut images, started_at).await;
        if let Some(error) = run.report_failed(&class, &lookup.failed, &mut done).await {
            failure.get_or_insert(HandleError::Cloud(error));
        }
        run.resolve(&info, &class, lookup, &objects, &mut done).await?;
        run.report_prices(&class, &done).await;
    }
    let records = ports.store().read_all::<NodeClassRecord>(cluster).await?;
    // After the records: a claim that was launched with one of them is seen.
    let Listing { claims, unreadable } = ports.store().listing(cluster).await?;
    if uninstalling.is_none()
        && let Err(error) = run.look_up_blocks(&claims, &mut done).await
    {
        failure.get_or_insert(error);
    }
    let deletions =
        ClassDeletions { run: &run, objects: &objects, claims: &claims, unreadable: &unreadable, records: &records, uninstalling };
    // Karpenter has a finalizer of the same name, and continues with what is handed over.
    if uninstalling != Some(LeftNodes::HandOver)
        && let Err(error) = deletions.run(&mut done).await
    {
        failure.get_or_insert(error);
    }
    if uninstalling.is_none()
        && let Err(error) = run.collect_profiles(&objects, &mut done).await
    {
        done.report.count("profiles_failed");
        failure.get_or_insert(error);
    }
    // Classes are not resolved any more; `sweep` writes the statuses of pools until the records are deleted.
    if uninstalling.is_none() {
        run.update_pools(&objects, &claims, &mut done).await?;
    }
    run.ring(&done).await?;
    catalog?;
    failure.map_or(Ok(done.report), Err)
}

impl<P: Rights> Run<'_, P> {
    /// Rings the functions that have to run after this run.
    async fn ring(&self, done: &Done) -> Result<(), HandleError> {
        let (queues, cluster) = (self.ports.queues(), self.cluster);
        if done.classes_wait {
            // By then decisions that used the class before it was closed have been stored.
            queues.send(Doorbell::Refresh { cluster: cluster.clone() }, CLOSE_DELAY).await?;
        }
        if done.dry_runs_wait {
            queues.send_now(Doorbell::Launch { cluster: cluster.clone(), claims: Vec::new() }).await?;
        }
        if done.static_pools_changed {
            queues.send_now(Doorbell::Consolidate { cluster: cluster.clone() }).await?;
        }
        if done.changed {
            queues.send_now(Doorbell::Schedule { cluster: cluster.clone() }).await?;
        }
        Ok(())
    }

    /// Stores a record if it differs from the stored one.
    async fn store_if_changed<R: Record + PartialEq>(&self, record: &R, done: &mut Done) -> Result<(), HandleError> {
        let next = |known: Option<R>, _| (known.as_ref() != Some(record)).then(|| record.clone());
        if let Update::Written(_) = update_record(self.ports, self.cluster, &record.name(), 1, next).await? {
            done.change();
        }
        Ok(())
    }

    async fn resolve(
        &self,
        info: &ClusterInfo,
        class: &Ec2NodeClass,
        lookup: classes::Lookup,
        objects: &ClusterObjects,
        done: &mut Done,
    ) -> Result<(), HandleError> {
        let known = self.ports.store().read::<NodeClassRecord>(self.cluster, &NodeClassRecord::name_of(class)).await?;
        let stored = known.as_ref().map(|known| &known.value).filter(|known| known.is_of(class));
        if stored.is_some_and(|stored| unanswered::keeps_record(class, stored, &lookup.failed)) {
            return Ok(());
        }
        for remark in classes::new_remarks(class, stored) {
            tracing::warn!(cluster = %self.cluster, class = %class.metadata.name, "{remark}");
        }
        let region = self.region_of(class).await?;
        let pools = dry_runs::pools_of(class, objects);
        let context = classes::ClassContext { settings: self.settings, info, region: region.as_deref(), pools: &pools };
        let resolved = classes::resolve(class, lookup, &context, stored);
        if let Some(news) = classes::left_out_reservations(&resolved.0, stored) {
            tracing::warn!(cluster = %self.cluster, class = %class.metadata.name, "{news}");
        }
        let (updated, record) = self.after_dry_run(class, resolved, objects, done).await?;
        let only_time_differs =
            |known: &Stored<NodeClassRecord>| NodeClassRecord { resolved_at: known.value.resolved_at, ..record.clone() } == known.value;
        match known.filter(only_time_differs) {
            // Only machines that started after EC2's count are subtracted from it, so its time must be current.
            Some(known) if !record.free_reserved.is_empty() && record != known.value => {
                unless_conflict(self.ports.store().write(self.cluster, &record, known.revision).await)?;
            }
            Some(_) => {}
            None => self.store_if_changed(&record, done).await?,
        }
        for event in classes::events(class, &updated).into_iter().filter(|_| !self.settings.is_shadow()) {
            let _ = publish_event(self.ports.cluster(), self.cluster, &event).await;
        }
        let updated = if self.settings.is_shadow() { updated } else { deletion::with_finalizer(&updated) };
        if updated != *class && !self.settings.is_shadow() {
            match self.ports.cluster().write_node_class_status(self.cluster, &updated).await {
                Ok(()) => publish_events(self.ports, self.cluster, &classes::changes(class, &updated), &mut done.report).await,
                Err(_) => done.report.count("statuses_failed"),
            }
        }
        done.report.count(if record.is_ready() { "classes_ready" } else { "classes_not_ready" });
        Ok(())
    }

    /// Says which calls about a class failed, and returns the first error. The next run asks again.
    async fn report_failed(&self, class: &Ec2NodeClass, failed: &[FailedCall], done: &mut Done) -> Option<CloudError> {
        let first = failed.first()?;
        done.report.count("classes_failed");
        let refused = failed.iter().filter(|_| !self.settings.is_shadow());
        let events: Vec<_> = refused.filter_map(|call| unanswered::refused_event(class, &call.error)).collect();
        for event in &events {
            publish_event(self.ports.cluster(), self.cluster, event).await;
        }
        Some(first.error.clone())
    }

    /// The region's types, if a class computes something from them.
    async fn region_of(&self, class: &Ec2NodeClass) -> Result<Option<Arc<Catalog>>, HandleError> {
        if !has_expressions(class.spec.kubelet.as_ref()) {
            return Ok(None);
        }
        let blob = self.ports.store().catalog().await?;
        Ok(blob.and_then(|blob| warm::catalog(&blob.value).ok()))
    }

    /// Writes the statuses of NodePools that changed; those for which there is no time `sweep` writes.
    async fn update_pools(&self, objects: &ClusterObjects, claims: &[Stored<Claim>], done: &mut Done) -> Result<(), HandleError> {
        if self.settings.is_shadow() {
            return Ok(());
        }
        let store = self.ports.store();
        // The records of classes once more: this run may have closed some.
        let (classes, health) = futures::join!(store.read_all::<NodeClassRecord>(self.cluster), store.read_all::<PoolHealth>(self.cluster));
        let classes: Vec<NodeClassRecord> = classes?.into_iter().map(|stored| stored.value).collect();
        let health: Vec<PoolHealth> = health?.into_iter().map(|stored| stored.value).collect();
        // `sweep` counts what they have, by their Nodes.
        let facts = PoolFacts { objects, classes: &classes, claims, health: &health, nodes: None };
        let now = self.ports.clock().now();
        let managed: Vec<&NodePool> = objects.node_pools.iter().filter(|pool| pool.is_managed()).collect();
        let wanted: Vec<NodePool> = managed.iter().map(|pool| pool_status(pool, facts, now)).collect();
        let all = wanted.iter().zip(managed.iter().copied());
        let changed: Vec<(&NodePool, &NodePool)> = all.filter(|(wanted, pool)| wanted.status != pool.status).collect();
        for (wanted, pool) in write_pool_statuses(self.ports, self.cluster, &changed, &mut done.report).await {
            // A pool that became ready, or was edited, may take pending pods, and a static one machines.
            done.change();
            done.static_pools_changed |= pool.is_static() && wanted.status.conditions != pool.status.conditions;
        }
        Ok(())
    }
}
