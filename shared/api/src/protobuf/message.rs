//! The messages that we read: for each field its number in Kubernetes' `generated.proto`, its name in JSON, and its shape.
//!
//! A field of a slim type needs a row here, or it is not read from protobuf; a test compares the two. Rows are in the order of their
//! numbers. Servers write fields that are no pointers always, JSON omits them when they are zero: so do we, unless the row says
//! that zero is a value (pointers, and fields without `omitempty`).

use Shape::{Flag, Inline, List, Map, Number, Quantity, Text, Time};

/// Larger than the numbers of all fields that we read.
const NUMBERS: usize = 48;
/// The place of a number without a row.
const NO_ROW: u8 = u8::MAX;

/// A message's fields.
#[derive(Debug)]
pub struct Message {
    /// In the order of their numbers.
    pub(super) rows: &'static [Row],
    /// Where the row of each number is: most fields on the wire have none, and pods have a hundred of them.
    places: [u8; NUMBERS],
}

impl Message {
    const fn of(rows: &'static [Row]) -> Self {
        let mut places = [NO_ROW; NUMBERS];
        let mut place = 0;
        while place < rows.len() {
            places[rows[place].number as usize] = place as u8;
            place += 1;
        }
        Self { rows, places }
    }

    /// The row of a field, if we read it.
    #[inline]
    pub(super) fn row(&self, number: u32) -> Option<&'static Row> {
        let place = *self.places.get(number as usize)?;
        self.rows.get(usize::from(place))
    }
}

/// A field.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) number: u32,
    /// In JSON. Empty for a message whose fields JSON has in place of it.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) keeps_zero: bool,
}

/// How a field is written.
#[derive(Debug)]
pub(super) enum Shape {
    Text,
    Number,
    Flag,
    /// Seconds since the epoch in a message of their own.
    Time,
    /// Text in a message of its own.
    Quantity,
    Message(&'static Message),
    /// A message whose fields JSON has among those of the message around it.
    Inline(&'static Message),
    List(&'static Shape),
    /// A map from text.
    Map(&'static Shape),
}

/// A field that JSON omits when it is zero.
const fn row(number: u32, name: &'static str, shape: Shape) -> Row {
    Row { number, name, shape, keeps_zero: false }
}

/// A field whose zero JSON shows.
const fn kept(number: u32, name: &'static str, shape: Shape) -> Row {
    Row { number, name, shape, keeps_zero: true }
}

const TEXTS: Shape = List(&Text);
const TEXT_BY_NAME: Shape = Map(&Text);
const AMOUNTS: Shape = Map(&Quantity);

static OWNER_REFERENCE: Message = Message::of(&[
    kept(1, "kind", Text),
    kept(3, "name", Text),
    kept(4, "uid", Text),
    kept(5, "apiVersion", Text),
    kept(6, "controller", Flag),
    kept(7, "blockOwnerDeletion", Flag),
]);

static METADATA: Message = Message::of(&[
    row(1, "name", Text),
    row(2, "generateName", Text),
    row(3, "namespace", Text),
    row(5, "uid", Text),
    row(6, "resourceVersion", Text),
    row(7, "generation", Number),
    row(8, "creationTimestamp", Time),
    row(9, "deletionTimestamp", Time),
    kept(10, "deletionGracePeriodSeconds", Number),
    row(11, "labels", TEXT_BY_NAME),
    row(12, "annotations", TEXT_BY_NAME),
    row(13, "ownerReferences", List(&Shape::Message(&OWNER_REFERENCE))),
    row(14, "finalizers", TEXTS),
]);

/// Requirements of label and node selectors have the same fields.
static REQUIREMENT: Message = Message::of(&[kept(1, "key", Text), kept(2, "operator", Text), row(3, "values", TEXTS)]);
const REQUIREMENTS: Shape = List(&Shape::Message(&REQUIREMENT));

static LABEL_SELECTOR: Message = Message::of(&[row(1, "matchLabels", TEXT_BY_NAME), row(2, "matchExpressions", REQUIREMENTS)]);

static NODE_SELECTOR_TERM: Message = Message::of(&[row(1, "matchExpressions", REQUIREMENTS), row(2, "matchFields", REQUIREMENTS)]);
static NODE_SELECTOR: Message = Message::of(&[row(1, "nodeSelectorTerms", List(&Shape::Message(&NODE_SELECTOR_TERM)))]);
static PREFERRED_TERM: Message = Message::of(&[kept(1, "weight", Number), row(2, "preference", Shape::Message(&NODE_SELECTOR_TERM))]);

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

static NODE_AFFINITY: Message =
    Message::of(&[row(1, REQUIRED, Shape::Message(&NODE_SELECTOR)), row(2, PREFERRED, List(&Shape::Message(&PREFERRED_TERM)))]);

static POD_AFFINITY_TERM: Message = Message::of(&[
    row(1, "labelSelector", Shape::Message(&LABEL_SELECTOR)),
    row(2, "namespaces", TEXTS),
    kept(3, "topologyKey", Text),
    row(4, "namespaceSelector", Shape::Message(&LABEL_SELECTOR)),
    row(5, "matchLabelKeys", TEXTS),
    row(6, "mismatchLabelKeys", TEXTS),
]);
static WEIGHTED_TERM: Message = Message::of(&[kept(1, "weight", Number), row(2, "podAffinityTerm", Shape::Message(&POD_AFFINITY_TERM))]);
/// Affinity and anti-affinity have the same fields.
static POD_AFFINITY: Message =
    Message::of(&[row(1, REQUIRED, List(&Shape::Message(&POD_AFFINITY_TERM))), row(2, PREFERRED, List(&Shape::Message(&WEIGHTED_TERM)))]);

static AFFINITY: Message = Message::of(&[
    row(1, "nodeAffinity", Shape::Message(&NODE_AFFINITY)),
    row(2, "podAffinity", Shape::Message(&POD_AFFINITY)),
    row(3, "podAntiAffinity", Shape::Message(&POD_AFFINITY)),
]);

static TOLERATION: Message = Message::of(&[
    row(1, "key", Text),
    row(2, "operator", Text),
    row(3, "value", Text),
    row(4, "effect", Text),
    kept(5, "tolerationSeconds", Number),
]);

static SPREAD_CONSTRAINT: Message = Message::of(&[
    kept(1, "maxSkew", Number),
    kept(2, "topologyKey", Text),
    kept(3, "whenUnsatisfiable", Text),
    row(4, "labelSelector", Shape::Message(&LABEL_SELECTOR)),
    kept(5, "minDomains", Number),
    kept(6, "nodeAffinityPolicy", Text),
    kept(7, "nodeTaintsPolicy", Text),
    row(8, "matchLabelKeys", TEXTS),
]);

static RESOURCE_CLAIM: Message = Message::of(&[kept(1, "name", Text), row(2, "request", Text)]);
static RESOURCE_REQUIREMENTS: Message =
    Message::of(&[row(1, "limits", AMOUNTS), row(2, "requests", AMOUNTS), row(3, "claims", List(&Shape::Message(&RESOURCE_CLAIM)))]);

static CONTAINER_PORT: Message =
    Message::of(&[row(2, "hostPort", Number), kept(3, "containerPort", Number), row(4, "protocol", Text), row(5, "hostIP", Text)]);

pub(super) static CONTAINER: Message = Message::of(&[
    kept(1, "name", Text),
    row(6, "ports", List(&Shape::Message(&CONTAINER_PORT))),
    row(8, "resources", Shape::Message(&RESOURCE_REQUIREMENTS)),
    kept(24, "restartPolicy", Text),
]);

static CLAIM_SOURCE: Message = Message::of(&[kept(1, "claimName", Text)]);
static VOLUME_RESOURCES: Message = Message::of(&[row(2, "requests", AMOUNTS)]);
static VOLUME_CLAIM_SPEC: Message = Message::of(&[
    row(1, "accessModes", TEXTS),
    row(2, "resources", Shape::Message(&VOLUME_RESOURCES)),
    row(3, "volumeName", Text),
    row(4, "selector", Shape::Message(&LABEL_SELECTOR)),
    kept(5, "storageClassName", Text),
    kept(6, "volumeMode", Text),
]);
static VOLUME_CLAIM_TEMPLATE: Message = Message::of(&[row(2, "spec", Shape::Message(&VOLUME_CLAIM_SPEC))]);
static EPHEMERAL_SOURCE: Message = Message::of(&[row(1, "volumeClaimTemplate", Shape::Message(&VOLUME_CLAIM_TEMPLATE))]);
static VOLUME_SOURCE: Message = Message::of(&[
    row(10, "persistentVolumeClaim", Shape::Message(&CLAIM_SOURCE)),
    row(29, "ephemeral", Shape::Message(&EPHEMERAL_SOURCE)),
]);
static VOLUME: Message = Message::of(&[kept(1, "name", Text), row(2, "", Inline(&VOLUME_SOURCE))]);

static SCHEDULING_GATE: Message = Message::of(&[kept(1, "name", Text)]);
static POD_RESOURCE_CLAIM: Message =
    Message::of(&[kept(1, "name", Text), kept(3, "resourceClaimName", Text), kept(4, "resourceClaimTemplateName", Text)]);

static POD_SPEC: Message = Message::of(&[
    row(1, "volumes", List(&Shape::Message(&VOLUME))),
    row(2, "containers", List(&Shape::Message(&CONTAINER))),
    row(3, "restartPolicy", Text),
    kept(4, "terminationGracePeriodSeconds", Number),
    row(7, "nodeSelector", TEXT_BY_NAME),
    row(10, "nodeName", Text),
    row(11, "hostNetwork", Flag),
    row(18, "affinity", Shape::Message(&AFFINITY)),
    row(19, "schedulerName", Text),
    row(20, "initContainers", List(&Shape::Message(&CONTAINER))),
    row(22, "tolerations", List(&Shape::Message(&TOLERATION))),
    row(24, "priorityClassName", Text),
    kept(25, "priority", Number),
    kept(29, "runtimeClassName", Text),
    kept(31, "preemptionPolicy", Text),
    row(32, "overhead", AMOUNTS),
    row(33, "topologySpreadConstraints", List(&Shape::Message(&SPREAD_CONSTRAINT))),
    row(38, "schedulingGates", List(&Shape::Message(&SCHEDULING_GATE))),
    row(39, "resourceClaims", List(&Shape::Message(&POD_RESOURCE_CLAIM))),
    row(40, "resources", Shape::Message(&RESOURCE_REQUIREMENTS)),
]);

static POD_CONDITION: Message = Message::of(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    row(4, "lastTransitionTime", Time),
    row(5, "reason", Text),
    row(6, "message", Text),
]);

static CONTAINER_STATUS: Message = Message::of(&[
    kept(1, "name", Text),
    row(10, "allocatedResources", AMOUNTS),
    row(11, "resources", Shape::Message(&RESOURCE_REQUIREMENTS)),
]);

static EXTENDED_RESOURCE_REQUEST: Message = Message::of(&[kept(2, "resourceName", Text)]);
static EXTENDED_RESOURCE_CLAIM: Message = Message::of(&[row(1, "requestMappings", List(&Shape::Message(&EXTENDED_RESOURCE_REQUEST)))]);

static POD_STATUS: Message = Message::of(&[
    row(1, "phase", Text),
    row(2, "conditions", List(&Shape::Message(&POD_CONDITION))),
    row(7, "startTime", Time),
    row(8, "containerStatuses", List(&Shape::Message(&CONTAINER_STATUS))),
    row(10, "initContainerStatuses", List(&Shape::Message(&CONTAINER_STATUS))),
    row(11, "nominatedNodeName", Text),
    row(18, "extendedResourceClaimStatus", Shape::Message(&EXTENDED_RESOURCE_CLAIM)),
    row(19, "allocatedResources", AMOUNTS),
    row(20, "resources", Shape::Message(&RESOURCE_REQUIREMENTS)),
]);

/// A Pod.
pub(crate) static POD: Message = Message::of(&[
    row(1, "metadata", Shape::Message(&METADATA)),
    row(2, "spec", Shape::Message(&POD_SPEC)),
    row(3, "status", Shape::Message(&POD_STATUS)),
]);

static TAINT: Message = Message::of(&[kept(1, "key", Text), row(2, "value", Text), kept(3, "effect", Text), row(4, "timeAdded", Time)]);

static NODE_SPEC: Message =
    Message::of(&[row(3, "providerID", Text), row(4, "unschedulable", Flag), row(5, "taints", List(&Shape::Message(&TAINT)))]);

/// Of a node; `observedGeneration` is not among its fields.
static NODE_CONDITION: Message = Message::of(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    row(4, "lastTransitionTime", Time),
    row(5, "reason", Text),
    row(6, "message", Text),
]);

static NODE_INFO: Message =
    Message::of(&[kept(7, "kubeletVersion", Text), kept(9, "operatingSystem", Text), kept(10, "architecture", Text)]);
static ATTACHED_VOLUME: Message = Message::of(&[kept(1, "name", Text), kept(2, "devicePath", Text)]);

static NODE_STATUS: Message = Message::of(&[
    row(1, "capacity", AMOUNTS),
    row(2, "allocatable", AMOUNTS),
    row(4, "conditions", List(&Shape::Message(&NODE_CONDITION))),
    row(7, "nodeInfo", Shape::Message(&NODE_INFO)),
    row(10, "volumesAttached", List(&Shape::Message(&ATTACHED_VOLUME))),
]);

/// A Node.
pub(crate) static NODE: Message = Message::of(&[
    row(1, "metadata", Shape::Message(&METADATA)),
    row(2, "spec", Shape::Message(&NODE_SPEC)),
    row(3, "status", Shape::Message(&NODE_STATUS)),
]);

pub(crate) static NODE_METADATA: Message = Message::of(&[row(1, "metadata", Shape::Message(&METADATA))]);

static STATUS_CAUSE: Message = Message::of(&[row(1, "reason", Text), row(2, "message", Text), row(3, "field", Text)]);
static STATUS_DETAILS: Message = Message::of(&[
    row(1, "name", Text),
    row(2, "group", Text),
    row(3, "kind", Text),
    row(4, "causes", List(&Shape::Message(&STATUS_CAUSE))),
    row(5, "retryAfterSeconds", Number),
    row(6, "uid", Text),
]);

/// The API server's answer to a request that fails.
pub(super) static STATUS: Message = Message::of(&[
    row(2, "status", Text),
    row(3, "message", Text),
    row(4, "reason", Text),
    row(5, "details", Shape::Message(&STATUS_DETAILS)),
    row(6, "code", Number),
]);
