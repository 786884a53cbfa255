//! Launch templates.

use super::selection::{Filters, page};
use super::{ACCOUNT, tag_set, tag_specifications, tags_of};
use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use whittle_api::karpenter::{BlockDevice, BlockDeviceMapping, ConnectionTracking, MetadataOptions};
use whittle_ec2::fleet::{LaunchTemplate, ReservationTarget, TemplateInterface};

/// The size limit of user data, in bytes before encoding.
const USER_DATA_MAX: usize = 16 * 1024;
const SWITCH: &[&str] = &["enabled", "disabled"];

pub(super) fn not_found(name: &str) -> Fault {
    let text = format!("At least one of the launch templates specified in the request does not exist: {name}");
    Fault::new("InvalidLaunchTemplateName.NotFoundException", text)
}

/// The template name of a request, validated as in EC2.
fn name_of(params: &mut Params) -> Result<String, Fault> {
    let name = params.required("LaunchTemplateName")?;
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "().-/_".contains(letter);
    if !(3..=128).contains(&name.len()) || !name.chars().all(allowed) {
        let text = "Launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.";
        return Err(Fault::new("InvalidLaunchTemplateName.MalformedException", text));
    }
    Ok(name)
}

fn described(template: &LaunchTemplate) -> Value {
    json!({
        "launchTemplateId": id_of(&template.name),
        "launchTemplateName": template.name,
        "createTime": "2026-01-01T00:00:00.000Z",
        "createdBy": format!("arn:aws:iam::{ACCOUNT}:root"),
        "defaultVersionNumber": 1,
        "latestVersionNumber": 1,
        "tagSet": tag_set(&template.tags),
    })
}

/// An id derived from the name.
pub(crate) fn id_of(name: &str) -> String {
    format!("lt-{:017x}", whittle_units::fnv1a(name.as_bytes()))
}

pub(super) fn create(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let name = name_of(params)?;
    let _ = (params.text("ClientToken"), params.text("VersionDescription"));
    let mut tags = tag_specifications(params, &["launch-template"])?;
    let Some(mut given) = params.structure("LaunchTemplateData") else { return Err(Fault::missing("LaunchTemplateData")) };
    let mut template = data(&mut given)?;
    given.finish()?;
    std::mem::take(params).finish()?;
    template.name.clone_from(&name);
    template.tags = tags.remove("launch-template").unwrap_or_default();
    let known = &mut place.region().launch_templates;
    if known.contains_key(&name) {
        return Err(Fault::new("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use."));
    }
    let answer = json!({"launchTemplate": described(&template)});
    known.insert(name, template);
    Ok(answer)
}

pub(super) fn describe(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let names = params.texts("LaunchTemplateName")?;
    let filters = Filters::take(params, &["launch-template-name", "create-time"], true)?;
    let known = &place.region().launch_templates;
    if let Some(missing) = names.iter().find(|name| !known.contains_key(*name)) {
        return Err(not_found(missing));
    }
    let named = known.values().filter(|template| names.is_empty() || names.contains(&template.name));
    let matching = named.filter(|template| filters.match_all(&template.tags, |_| vec![template.name.clone()]));
    let (found, next) = page(params, matching.collect(), 1..=200)?;
    Ok(json!({"launchTemplates": found.into_iter().map(described).collect::<Vec<_>>(), "nextToken": next}))
}

pub(super) fn delete(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let name = name_of(params)?;
    let removed = place.region().launch_templates.remove(&name).ok_or_else(|| not_found(&name))?;
    Ok(json!({"launchTemplate": described(&removed)}))
}

/// The data of a template.
fn data(given: &mut Params) -> Result<LaunchTemplate, Fault> {
    let mut template = LaunchTemplate {
        image_id: given.text("ImageId").unwrap_or_default(),
        user_data: user_data(given)?,
        tenancy: "default".to_owned(),
        ..LaunchTemplate::default()
    };
    for mut mapping in given.list("BlockDeviceMapping")? {
        template.block_device_mappings.push(volume(&mut mapping)?);
        mapping.finish()?;
    }
    for mut one in given.list("NetworkInterface")? {
        template.security_group_ids = one.texts("SecurityGroupId")?;
        template.interfaces.push(interface(&mut one)?);
        one.finish()?;
    }
    options(given, &mut template)?;
    for mut specification in given.list("TagSpecification")? {
        let kind = specification.required("ResourceType")?;
        let known = ["instance", "volume", "spot-instances-request", "network-interface"];
        if !known.contains(&kind.as_str()) {
            return Err(Fault::value("TagSpecification.ResourceType", &kind));
        }
        template.spot |= kind == "spot-instances-request";
        tags_of(&mut specification)?;
        specification.finish()?;
    }
    Ok(template)
}

fn user_data(given: &mut Params) -> Result<String, Fault> {
    let Some(encoded) = given.text("UserData") else { return Ok(String::new()) };
    let malformed = || Fault::new("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.");
    let bytes = STANDARD.decode(encoded).map_err(|_| malformed())?;
    if bytes.len() > USER_DATA_MAX {
        return Err(Fault::new("InvalidParameterValue", format!("User data is limited to {USER_DATA_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// A structure, parsed by `read`.
fn within<T: Default>(given: &mut Params, name: &str, read: impl FnOnce(&mut Params) -> Result<T, Fault>) -> Result<T, Fault> {
    let Some(mut inner) = given.structure(name) else { return Ok(T::default()) };
    let found = read(&mut inner)?;
    inner.finish()?;
    Ok(found)
}

fn options(given: &mut Params, template: &mut LaunchTemplate) -> Result<(), Fault> {
    template.instance_profile = within(given, "IamInstanceProfile", |inner| Ok(inner.text("Name").unwrap_or_default()))?;
    template.detailed_monitoring = within(given, "Monitoring", |inner| Ok(inner.parsed("Enabled")?.unwrap_or_default()))?;
    template.enclave = within(given, "EnclaveOptions", |inner| Ok(inner.parsed("Enabled")?.unwrap_or_default()))?;
    template.metadata_options = within(given, "MetadataOptions", metadata)?;
    template.nested_virtualization = within(given, "CpuOptions", |inner| inner.word("NestedVirtualization", SWITCH))?;
    template.market_type = within(given, "InstanceMarketOptions", |inner| {
        inner.word("MarketType", &["spot", "capacity-block", "interruptible-capacity-reservation"])
    })?;
    template.reservation = within(given, "CapacityReservationSpecification", reservation)?;
    if let Some(mut inner) = given.structure("Placement") {
        template.tenancy = inner.word("Tenancy", &["default", "dedicated", "host"])?.unwrap_or_else(|| "default".to_owned());
        template.placement_group_id = inner.text("GroupId");
        template.partition = inner.parsed("PartitionNumber")?;
        inner.finish()?;
    }
    Ok(())
}

fn metadata(given: &mut Params) -> Result<MetadataOptions, Fault> {
    given.word("InstanceMetadataTags", SWITCH)?;
    let hops = given.parsed("HttpPutResponseHopLimit")?;
    if hops.is_some_and(|hops: i64| !(1..=64).contains(&hops)) {
        return Err(Fault::value("HttpPutResponseHopLimit", &hops.unwrap_or_default().to_string()));
    }
    Ok(MetadataOptions {
        http_endpoint: given.word("HttpEndpoint", SWITCH)?,
        http_protocol_ipv6: given.word("HttpProtocolIpv6", SWITCH)?,
        http_put_response_hop_limit: hops,
        http_tokens: given.word("HttpTokens", &["optional", "required"])?,
    })
}

fn reservation(given: &mut Params) -> Result<Option<ReservationTarget>, Fault> {
    let preference = given.word("CapacityReservationPreference", &["capacity-reservations-only", "open", "none"])?;
    let target = within(given, "CapacityReservationTarget", |inner| Ok(inner.text("CapacityReservationId")))?;
    match (preference.as_deref(), target) {
        (Some("none"), None) => Ok(Some(ReservationTarget::None)),
        (Some("capacity-reservations-only"), Some(id)) => Ok(Some(ReservationTarget::Only(id))),
        (None | Some("open"), None) => Ok(None),
        (Some("none"), Some(_)) => Err(Fault::combination("A capacity reservation target cannot be named with the preference none")),
        (_, target) => Err(Fault::value("CapacityReservationSpecification", &target.unwrap_or_default())),
    }
}

fn volume(given: &mut Params) -> Result<BlockDeviceMapping, Fault> {
    let device_name = given.text("DeviceName");
    let ebs = within(given, "Ebs", |ebs| {
        Ok(Some(BlockDevice {
            delete_on_termination: ebs.parsed("DeleteOnTermination")?,
            encrypted: ebs.parsed("Encrypted")?,
            iops: ebs.parsed("Iops")?,
            kms_key_id: ebs.text("KmsKeyId"),
            snapshot_id: ebs.text("SnapshotId"),
            throughput: ebs.parsed("Throughput")?,
            volume_initialization_rate: ebs.parsed("VolumeInitializationRate")?,
            volume_size: ebs.parsed::<u32>("VolumeSize")?.map(|size| format!("{size}Gi")),
            volume_type: ebs.word("VolumeType", &["gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"])?,
        }))
    })?;
    Ok(BlockDeviceMapping { device_name, ebs, root_volume: false })
}

pub(super) fn interface(given: &mut Params) -> Result<TemplateInterface, Fault> {
    let timeouts = |inner: &mut Params| {
        Ok(Some(ConnectionTracking {
            tcp_established_timeout: inner.parsed("TcpEstablishedTimeout")?,
            udp_stream_timeout: inner.parsed("UdpStreamTimeout")?,
            udp_timeout: inner.parsed("UdpTimeout")?,
        }))
    };
    Ok(TemplateInterface {
        card_index: given.parsed("NetworkCardIndex")?,
        device_index: given.parsed("DeviceIndex")?.ok_or_else(|| Fault::missing("NetworkInterface.DeviceIndex"))?,
        interface_type: given.word("InterfaceType", &["interface", "efa", "efa-only"])?,
        associate_public_ip: given.parsed("AssociatePublicIpAddress")?,
        ipv4_prefix_count: given.parsed("Ipv4PrefixCount")?,
        ipv6_prefix_count: given.parsed("Ipv6PrefixCount")?,
        ipv6_address_count: given.parsed("Ipv6AddressCount")?,
        primary_ipv6: given.parsed("PrimaryIpv6")?,
        connection_tracking: within(given, "ConnectionTrackingSpecification", timeouts)?,
    })
}
