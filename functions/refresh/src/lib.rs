//! What there is to buy, and for whom: the region's catalog, node classes resolved, pools judged.

mod classes;
mod ending;
mod looked;
mod missed;
#[cfg(test)]
mod tests;

use ending::{Ending, unless_changed};
use whittle_claims::{Doorbell, NodeClassRecord, PoolHealth, Record, Revision, Stored, Uninstall};
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{
    CatalogWriter, ClaimStore, Clock, CloudErrorKind, ClusterError, ClusterReader, ClusterRecord, DecisionLog, Discovery, HandleError,
    Listing, Queues, RecordRemoval, Records, RegionStore, Report, Scope, Settings, StatusWriter, StoreError, rights,
};
use whittle_snapshot::{PoolFacts, pool_status};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

rights! {
    /// What `refresh` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Records + RecordRemoval + RegionStore + CatalogWriter + DecisionLog,
    Cloud: Discovery,
    Cluster: ClusterReader + StatusWriter,
    Queues: Queues,
}

/// How long a class that is to end has been closed to launches before it is looked whether anything uses it.
const CLOSED_FOR: SignedDuration = SignedDuration::from_secs(15);

/// One run for a cluster: its ports and settings.
pub(crate) struct Run<'a, P> {
    ports: P,
    settings: &'a Settings,
    cluster: &'a ClusterName,
}

/// What a run has done, and who has to look at it.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) report: Report,
    /// Pods that wait may start with what has changed: `schedule` runs.
    changed: bool,
    /// A class was closed or missed: this function runs again.
    classes_wait: bool,
}

impl Done {
    fn change(&mut self) {
        self.report.count("changed");
        self.changed = true;
    }
    /// A class of which more is decided once launches with it have been stored.
    pub(crate) fn wait_for(&mut self, what: &'static str) {
        self.report.count(what);
        self.classes_wait = true;
    }
}

/// Refreshes catalog, cluster facts, classes and pools. Each part goes on when another fails; the first error is given back
/// at the end.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let mut done = Done::default();
    let run = Run { ports, settings, cluster };
    let catalog = run.catalog(&mut done).await;
    let info = ports.cloud().cluster_info(cluster).await.map_err(|error| ClusterError::of_access(cluster, &error))?;
    run.keep(&ClusterRecord { info: info.clone() }, &mut done).await?;
    let objects = ports.cluster().read(cluster, Scope::Nodes, None).await?;
    // Statuses and finalizers are Karpenter's to write while it runs.
    let beside = objects.running_karpenter(ports.clock().now()).is_some();
    let settings = &Settings { shadow: settings.shadow || beside, ..settings.clone() };
    let run = Run { settings, ..run };
    let mut failure = None;
    let leaves = ports.store().read::<Uninstall>(cluster, Uninstall::NAME).await?.map(|asked| asked.value.nodes);
    for class in objects.node_classes.iter().filter(|class| leaves.is_none() && !class.metadata.is_deleting()) {
        let class = classes::with_defaults(class, settings);
        // Before EC2 is asked: what is started meanwhile is then surely not left out of both its count and ours.
        let asked_at = ports.clock().now();
        match classes::find(ports.cloud(), cluster, &info, &class, settings).await {
            Ok(looked) => run.resolve(&info, &class, (looked, asked_at), &mut done).await?,
            // What was known of the class stays; the next run asks again.
            Err(error) => {
                done.report.count("classes_failed");
                if error.kind == CloudErrorKind::Unauthorized && !settings.shadow {
                    // That nobody can be told stops nothing.
                    let _ = ports.cluster().publish(cluster, &classes::lookup_refused(&class, &error)).await;
                }
                failure.get_or_insert(HandleError::Cloud(error));
            }
        }
    }
    let records = ports.store().read_all::<NodeClassRecord>(cluster).await?;
    // After the records: a claim that was made with one of them is seen.
    let Listing { claims, unreadable } = ports.store().listing(cluster).await?;
    let ending = Ending { run: &run, objects: &objects, claims: &claims, unreadable: &unreadable, records: &records, leaves };
    if let Err(error) = ending.run(&mut done).await {
        failure.get_or_insert(error);
    }
    run.judge_pools(&objects, &mut done).await?;
    if done.classes_wait {
        // What was decided with the class before it was closed has been stored by then.
        ports.queues().ring(Doorbell::Refresh { cluster: cluster.clone() }, CLOSED_FOR).await?;
    }
    if done.changed {
        ports.queues().ring(Doorbell::Schedule { cluster: cluster.clone() }, SignedDuration::ZERO).await?;
    }
    catalog?;
    failure.map_or(Ok(done.report), Err)
}

impl<P: Rights> Run<'_, P> {
    /// Reads the region's catalog, unless that was done not long ago, and stores it if it differs. A twin of this run that stored
    /// it first stored the same.
    async fn catalog(&self, done: &mut Done) -> Result<(), HandleError> {
        if self.is_fresh().await? {
            done.report.count("catalog_fresh");
            return Ok(());
        }
        let at = self.ports.clock().now();
        let known = self.ports.store().catalog().await?;
        let blob = self.ports.cloud().catalog(known.as_ref().map(|known| known.value.as_slice())).await?;
        if known.as_ref().is_none_or(|known| known.value != blob) {
            let expected = known.map_or(Revision::ABSENT, |known| known.revision);
            match self.ports.store().put_catalog(&blob, expected).await {
                Ok(_) => done.change(),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.note_look(at).await
    }

    /// Stores a record if it differs from the stored one.
    async fn keep<R: Record + PartialEq>(&self, record: &R, done: &mut Done) -> Result<(), HandleError> {
        let known = self.ports.store().read::<R>(self.cluster, &record.name()).await?;
        if known.as_ref().is_some_and(|known| known.value == *record) {
            return Ok(());
        }
        let expected = known.map_or(Revision::ABSENT, |known| known.revision);
        match self.ports.store().write(self.cluster, record, expected).await {
            Ok(_) => done.change(),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn resolve(
        &self,
        info: &ClusterInfo,
        class: &whittle_api::karpenter::Ec2NodeClass,
        (looked, asked_at): (classes::Looked, Timestamp),
        done: &mut Done,
    ) -> Result<(), HandleError> {
        let (shown, record) = classes::resolved(class, self.settings, info, looked, asked_at);
        let known = self.ports.store().read::<NodeClassRecord>(self.cluster, &record.name()).await?;
        let only_time_differs =
            |known: &Stored<NodeClassRecord>| NodeClassRecord { resolved_at: known.value.resolved_at, ..record.clone() } == known.value;
        match known.filter(only_time_differs) {
            // Machines are taken off what EC2 says is free only if they started after it said so.
            Some(known) if !record.free_reserved.is_empty() => {
                unless_changed(self.ports.store().write(self.cluster, &record, known.revision).await)?;
            }
            Some(_) => {}
            None => self.keep(&record, done).await?,
        }
        let shown = if self.settings.shadow { shown } else { ending::held(&shown) };
        if shown != *class && !self.settings.shadow && self.ports.cluster().write_node_class_status(self.cluster, &shown).await.is_err() {
            done.report.count("statuses_failed");
        }
        done.report.count(if record.is_ready() { "classes_ready" } else { "classes_not_ready" });
        Ok(())
    }

    async fn judge_pools(&self, objects: &whittle_api::ClusterObjects, done: &mut Done) -> Result<(), HandleError> {
        let classes: Vec<NodeClassRecord> =
            self.ports.store().read_all(self.cluster).await?.into_iter().map(|stored| stored.value).collect();
        let claims = self.ports.store().list(self.cluster).await?;
        let health: Vec<PoolHealth> = self.ports.store().read_all(self.cluster).await?.into_iter().map(|stored| stored.value).collect();
        let facts = PoolFacts { objects, classes: &classes, claims: &claims, health: &health };
        for pool in &objects.node_pools {
            let judged = pool_status(pool, facts, self.ports.clock().now());
            if judged.status == pool.status || self.settings.shadow {
                continue;
            }
            match self.ports.cluster().write_node_pool_status(self.cluster, &judged).await {
                // A pool that became ready may take pods that wait.
                Ok(()) => done.change(),
                Err(_) => done.report.count("statuses_failed"),
            }
        }
        Ok(())
    }
}
