//! Converts the SDK's described resources to our types.

use aws_sdk_ec2::types as sdk;
use aws_smithy_types::DateTime;
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_ec2::instance::{Instance, InstanceState, StateReason};
use whittle_ec2::interruption::InstanceStatus;
use whittle_ec2::network::{CapacityReservation, Image, ImageVariant, PlacementGroup, SecurityGroup, Subnet};
use whittle_units::{InstanceId, Timestamp};

pub(crate) fn tags(tags: &[sdk::Tag]) -> BTreeMap<String, String> {
    tags.iter().filter_map(|tag| Some((tag.key.clone()?, tag.value.clone().unwrap_or_default()))).collect()
}

fn timestamp(moment: &DateTime) -> Option<Timestamp> {
    Timestamp::from_second(moment.secs()).ok()
}

/// An instance; `None` for an entry without id, state or launch time, which EC2 does not send.
pub(crate) fn instance(entry: &sdk::Instance) -> Option<Instance> {
    let state = match entry.state()?.name()? {
        sdk::InstanceStateName::Pending => InstanceState::Pending,
        sdk::InstanceStateName::Running => InstanceState::Running,
        sdk::InstanceStateName::Stopping => InstanceState::Stopping,
        sdk::InstanceStateName::Stopped => InstanceState::Stopped,
        sdk::InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        sdk::InstanceStateName::Terminated => InstanceState::Terminated,
        _ => return None,
    };
    Some(Instance {
        id: InstanceId::new(entry.instance_id.clone()?),
        state,
        instance_type: entry.instance_type().map(|name| name.as_str().to_owned()).unwrap_or_default(),
        zone: entry.placement().and_then(sdk::Placement::availability_zone).unwrap_or_default().to_owned(),
        capacity_type: capacity_type(entry).to_owned(),
        image_id: entry.image_id.clone().unwrap_or_default(),
        subnet_id: entry.subnet_id.clone().unwrap_or_default(),
        security_groups: security_groups(entry),
        reservation: entry.capacity_reservation_id.clone().filter(|id| !id.is_empty()),
        placement_group: entry.placement().and_then(sdk::Placement::group_id).filter(|id| !id.is_empty()).map(str::to_owned),
        partition: entry.placement().and_then(sdk::Placement::partition_number).and_then(partition),
        private_dns_name: entry.private_dns_name.clone().unwrap_or_default(),
        state_reason: entry.state_reason().and_then(state_reason),
        launched_at: timestamp(entry.launch_time()?)?,
        tags: tags(entry.tags()),
    })
}

fn state_reason(entry: &sdk::StateReason) -> Option<StateReason> {
    let code = entry.code().filter(|code| !code.is_empty())?.to_owned();
    Some(StateReason { code, message: entry.message().unwrap_or_default().to_owned() })
}

/// The checks of an instance that fail, and whether one of the `events` is in the future; `None` for an entry without id, which EC2
/// does not send.
pub(crate) fn status(entry: &sdk::InstanceStatus, events: &[&str]) -> Option<InstanceStatus> {
    let since = |summary: Option<&sdk::InstanceStatusSummary>| {
        let details = summary.map(sdk::InstanceStatusSummary::details).unwrap_or_default().iter();
        let failed = details.filter(|detail| detail.status() == Some(&sdk::StatusType::Failed));
        failed.filter_map(|detail| detail.impaired_since().and_then(timestamp)).min()
    };
    let is_due = |event: &sdk::InstanceStatusEvent| {
        let is_known = event.code().is_some_and(|code| events.contains(&code.as_str()));
        // EC2 shows an event for a week after its end, marked only in its description.
        let over = ["[Completed]", "[Canceled]"].iter().any(|word| event.description().unwrap_or_default().starts_with(word));
        is_known && !over
    };
    Some(InstanceStatus {
        instance: InstanceId::new(entry.instance_id.clone()?),
        instance_impaired_since: since(entry.instance_status()),
        system_impaired_since: since(entry.system_status()),
        has_scheduled_event: entry.events().iter().any(is_due),
    })
}

/// EC2 numbers partitions from 1, and reports 0 while it has chosen none.
fn partition(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}

fn security_groups(entry: &sdk::Instance) -> Vec<String> {
    let mut ids: Vec<String> = entry.security_groups().iter().filter_map(|group| group.group_id.clone()).collect();
    ids.sort();
    ids
}

/// The capacity type (aws 9). An instance that EC2 matched to an open reservation counts as on-demand.
fn capacity_type(entry: &sdk::Instance) -> &'static str {
    if entry.spot_instance_request_id().is_some_and(|id| !id.is_empty()) {
        return labels::CAPACITY_SPOT;
    }
    let preference =
        entry.capacity_reservation_specification().and_then(sdk::CapacityReservationSpecificationResponse::capacity_reservation_preference);
    let reservations_only = preference == Some(&sdk::CapacityReservationPreference::CapacityReservationsOnly);
    if reservations_only && entry.capacity_reservation_id().is_some_and(|id| !id.is_empty()) {
        labels::CAPACITY_RESERVED
    } else {
        labels::CAPACITY_ON_DEMAND
    }
}

pub(crate) fn subnet(entry: &sdk::Subnet) -> Option<Subnet> {
    Some(Subnet {
        id: entry.subnet_id.clone()?,
        zone: entry.availability_zone.clone()?,
        zone_id: entry.availability_zone_id.clone().unwrap_or_default(),
        free_addresses: entry.available_ip_address_count.and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
        vpc: entry.vpc_id.clone().unwrap_or_default(),
        outpost: entry.outpost_arn.clone().filter(|arn| !arn.is_empty()),
        tags: tags(entry.tags()),
    })
}

pub(crate) fn security_group(entry: &sdk::SecurityGroup) -> Option<SecurityGroup> {
    Some(SecurityGroup {
        id: entry.group_id.clone()?,
        name: entry.group_name.clone().unwrap_or_default(),
        vpc: entry.vpc_id.clone().unwrap_or_default(),
        tags: tags(entry.tags()),
    })
}

/// A reservation; `None` for an entry without id, which EC2 does not send. A negative count counts as zero.
pub(crate) fn capacity_reservation(entry: &sdk::CapacityReservation) -> Option<CapacityReservation> {
    let free = entry.available_instance_count.and_then(|count| u32::try_from(count).ok());
    Some(CapacityReservation {
        id: entry.capacity_reservation_id.clone()?,
        zone: entry.availability_zone.clone().unwrap_or_default(),
        instance_type: entry.instance_type.clone().unwrap_or_default(),
        owner: entry.owner_id.clone().unwrap_or_default(),
        match_criteria: entry.instance_match_criteria().map(|value| value.as_str().to_owned()).unwrap_or_default(),
        kind: entry.reservation_type().map(|value| value.as_str().to_owned()).unwrap_or_default(),
        interruptible: entry.interruptible.unwrap_or_default(),
        platform: entry.instance_platform().map(|value| value.as_str().to_owned()).unwrap_or_default(),
        tenancy: entry.tenancy().map(|value| value.as_str().to_owned()).unwrap_or_default(),
        placement_group: entry.placement_group_arn.clone().filter(|arn| !arn.is_empty()),
        outpost: entry.outpost_arn.clone().filter(|arn| !arn.is_empty()),
        state: entry.state().map(|value| value.as_str().to_owned()).unwrap_or_default(),
        ends_at: entry.end_date().and_then(timestamp),
        free: free.unwrap_or_default(),
        tags: tags(entry.tags()),
    })
}

/// A placement group; `None` for an entry without id, which EC2 does not send.
pub(crate) fn placement_group(entry: &sdk::PlacementGroup) -> Option<PlacementGroup> {
    Some(PlacementGroup {
        id: entry.group_id.clone()?,
        name: entry.group_name.clone().unwrap_or_default(),
        strategy: entry.strategy().map(|value| value.as_str().to_owned()).unwrap_or_default(),
        partition_count: entry.partition_count.and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
        state: entry.state().map(|value| value.as_str().to_owned()).unwrap_or_default(),
    })
}

/// An image; `now` decides whether its deprecation has begun.
pub(crate) fn image(entry: &sdk::Image, variant: ImageVariant, now: Timestamp) -> Option<Image> {
    let moment = |text: Option<&str>| text.and_then(|text| text.parse::<Timestamp>().ok());
    Some(Image {
        id: entry.image_id.clone()?,
        name: entry.name.clone().unwrap_or_default(),
        owner: entry.owner_id.clone().unwrap_or_default(),
        architecture: entry.architecture()?.as_str().to_owned(),
        created_at: moment(entry.creation_date()).unwrap_or(Timestamp::UNIX_EPOCH),
        deprecated: moment(entry.deprecation_time()).is_some_and(|since| since <= now),
        variant,
        tags: tags(entry.tags()),
    })
}
