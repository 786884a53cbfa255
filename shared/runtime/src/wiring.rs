//! The adapters of a function. Clients are created once per execution environment; each invocation sets its own deadline.

use crate::Function;
use crate::clock::{InvocationClock, SharedClock};
use crate::environment::{Environment, EnvironmentError};
use crate::secrets::RelaySecrets;
use aws_config::{BehaviorVersion, SdkConfig};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use whittle_api::legacy::{ConvertOptions, Purpose};
use whittle_aws::{Accepted, BegunBatch, Ec2Discovery, EksAccess, InstanceCalls, Isolation, Machines, MadeTemplates, SqsQueues};
use whittle_cluster::Clusters;
use whittle_dynamo::DynamoStore;
use whittle_ports::{Adapters, Cached, CloudError, Once, Settings};
use whittle_units::{Region, Timestamp};

/// How long instances gather before a call about them begins. The messages of an invocation begin together, and each has read its claim by
/// then; a call of EC2 takes ten times as long.
const GATHER: Duration = Duration::from_millis(15);

/// Why a function does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("AWS_REGION is not set: Lambda sets it, tests must set it")]
    NoRegion,
    #[error("there are no credentials: Lambda provides those of the function's role, tests must set AWS_ACCESS_KEY_ID")]
    NoCredentials,
    #[error("the relay's secret, SSM parameter {parameter:?}, cannot be read")]
    Secret {
        parameter: String,
        #[source]
        source: CloudError,
    },
}

/// What lives as long as the execution environment.
pub(crate) struct Connections {
    environment: Environment,
    config: SdkConfig,
    region: Region,
    dynamo: aws_sdk_dynamodb::Client,
    sqs: aws_sdk_sqs::Client,
    accepted: Arc<Accepted>,
    templates: Arc<MadeTemplates>,
    last_planned: Arc<Cached<Option<Timestamp>>>,
    clusters: Clusters<EksAccess>,
}

impl Connections {
    /// Creates the clients, without calling any service.
    pub(crate) async fn open(environment: Environment) -> Result<Self, StartError> {
        let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
        let region = Region::new(config.region().ok_or(StartError::NoRegion)?.as_ref());
        let credentials = config.credentials_provider().ok_or(StartError::NoCredentials)?;
        for (variable, cluster) in environment.unserved_entries() {
            tracing::warn!(variable, %cluster, "an entry is for a cluster that is not served: remove it, or correct its name");
        }
        let clock = Arc::new(SharedClock);
        let convert = ConvertOptions {
            default_instance_profile: environment.settings.default_instance_profile.clone(),
            default_role: environment.settings.default_node_role.clone(),
            ..ConvertOptions::new(Purpose::OnRead)
        };
        let access = EksAccess::new(aws_sdk_eks::Client::new(&config), credentials, region.clone(), clock.clone());
        Ok(Self {
            dynamo: aws_sdk_dynamodb::Client::new(&config),
            sqs: aws_sdk_sqs::Client::new(&config),
            accepted: Arc::default(),
            templates: Arc::default(),
            last_planned: Arc::default(),
            clusters: Clusters::new(access, convert, clock),
            region,
            config,
            environment,
        })
    }

    /// The relay's secret, whose parameter the environment names; `None` where callers sign their requests.
    pub(crate) async fn relay_secrets(&self) -> Result<Option<RelaySecrets>, StartError> {
        let Some(parameter) = self.environment.relay_secret_parameter.clone() else { return Ok(None) };
        let secrets = RelaySecrets::open(self.config.clone(), parameter.clone()).await;
        secrets.map(Some).map_err(|source| StartError::Secret { parameter, source })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.environment.settings
    }

    /// The adapters for one invocation of `function`, which begins now.
    pub(crate) fn shell(&self, function: Function, clock: InvocationClock) -> Shell {
        let shared = Arc::new(clock);
        let queues = SqsQueues::new(self.sqs.clone(), self.environment.queues.clone(), shared.clone());
        Shell {
            store: DynamoStore::new(self.dynamo.clone(), &self.environment.table, shared),
            cluster: self.clusters.with_clock(Arc::new(clock.for_clusters(function, Timestamp::now()))),
            queues: queues.remembering(Arc::clone(&self.accepted)).shared_by(self.settings().clusters.len()),
            settings: self.environment.settings.clone(),
            clock,
            config: self.config.clone(),
            region: self.region.clone(),
            isolation: self.environment.isolation,
            has_launches: Once::default(),
            last_planned: Arc::clone(&self.last_planned),
            instance_calls: Arc::new(InstanceCalls::gathering(|| tokio::time::sleep(GATHER).boxed())),
            templates: Arc::clone(&self.templates),
        }
    }
}

/// The ports of a handler that calls EC2 through `C`.
pub type ShellPorts<'a, C> = Adapters<'a, DynamoStore, C, Clusters<EksAccess>, SqsQueues, InvocationClock>;

/// The adapters of one invocation.
pub struct Shell {
    pub store: DynamoStore,
    pub cluster: Clusters<EksAccess>,
    pub queues: SqsQueues,
    pub clock: InvocationClock,
    pub settings: Settings,
    /// Whether any claim waits for its instance, once a notice has asked: see `interrupt`.
    pub has_launches: Once<bool>,
    /// When the last of a cluster's starting machines was planned, for as long as that is new enough: see `terminate`.
    pub last_planned: Arc<Cached<Option<Timestamp>>>,
    config: SdkConfig,
    region: Region,
    isolation: Isolation,
    instance_calls: Arc<InstanceCalls>,
    templates: Arc<MadeTemplates>,
}

impl Shell {
    /// The batches of calls to EC2 that have begun since this was last asked. Messages of one invocation share batches: each is
    /// counted for the one that is asked first.
    pub(crate) fn take_begun_batches(&self) -> Vec<BegunBatch> {
        self.instance_calls.take_begun()
    }

    /// The ports of a handler; `cloud` is `&()` for one that does not call EC2.
    pub fn ports<'a, C>(&'a self, cloud: &'a C) -> ShellPorts<'a, C> {
        Adapters { store: &self.store, cloud, cluster: &self.cluster, queues: &self.queues, clock: &self.clock }
    }

    /// The EC2 adapter for instances. A function that does not call this does not link it.
    pub fn machines(&self) -> Machines {
        Machines::new(aws_sdk_ec2::Client::new(&self.config), Arc::new(self.clock))
            .with_calls(Arc::clone(&self.instance_calls))
            .remembering(Arc::clone(&self.templates))
    }

    /// The same, which also reads zonal shifts, for `sweep`.
    pub fn watched_machines(&self) -> Machines {
        self.machines().with_zonal_shift(aws_sdk_arczonalshift::Client::new(&self.config))
    }

    /// The discovery adapter, for `refresh`.
    pub fn discovery(&self) -> Ec2Discovery {
        Ec2Discovery::new(&self.config, self.region.clone(), self.isolation, Arc::new(self.clock))
    }
}
