use super::*;
use crate::{InstanceCalls, Machines};
use futures::{FutureExt, StreamExt};
use whittle_api::labels;
use whittle_ec2::fleet::{FleetConfig, FleetOverride, FleetRequest, LaunchTemplate, ReservationKind, ReservationTarget, TemplateInterface};
use whittle_ec2::instance::InstanceState;
use whittle_ports::{
    CloudErrorKind, DryRuns, Fleets, InstanceChecks, InstanceTags, Instances, LaunchTemplateCleanup, LaunchTemplates, Terminator,
};
use whittle_units::{InstanceId, Price};

fn machines(wire: &Wire) -> Machines {
    Machines::new(aws_sdk_ec2::Client::new(&wire.config()), clock())
}

fn request() -> FleetRequest {
    let pool = |zone: &str, subnet: &str| FleetOverride {
        instance_type: "m5.large".into(),
        zone: zone.into(),
        subnet_id: subnet.into(),
        image_id: "ami-1".into(),
        price: Price::from_dollars(0.096),
    };
    FleetRequest {
        client_token: "token-1".into(),
        target_capacity: 2,
        capacity_type: "spot".into(),
        reservation: None,
        configs: vec![FleetConfig {
            launch_template: "karpenter.k8s.aws/1".into(),
            overrides: vec![pool("us-east-1a", "subnet-a"), pool("us-east-1b", "subnet-b")],
        }],
        tags: BTreeMap::from([("karpenter.sh/nodepool".to_owned(), "default".to_owned())]),
        prioritized: false,
        context: Some("ctx-1".into()),
    }
}

const PARTIAL: &str = r#"<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>r-1</requestId><fleetId>fleet-1</fleetId>
  <errorSet><item>
    <errorCode>InsufficientInstanceCapacity</errorCode><errorMessage>none left</errorMessage><lifecycle>spot</lifecycle>
    <launchTemplateAndOverrides><overrides>
      <instanceType>m5.large</instanceType><availabilityZone>us-east-1b</availabilityZone><subnetId>subnet-b</subnetId>
    </overrides></launchTemplateAndOverrides>
  </item></errorSet>
  <fleetInstanceSet><item>
    <instanceIds><item>i-1</item></instanceIds><instanceType>m5.large</instanceType><lifecycle>spot</lifecycle>
    <launchTemplateAndOverrides><overrides>
      <instanceType>m5.large</instanceType><availabilityZone>us-east-1a</availabilityZone><subnetId>subnet-a</subnetId><imageId>ami-1</imageId>
    </overrides></launchTemplateAndOverrides>
  </item></fleetInstanceSet>
</CreateFleetResponse>"#;

#[test]
fn create_fleet_sends_the_client_token_and_returns_instances_and_errors() {
    let wire = Wire::answering([(200, PARTIAL)]);
    let answer = run(machines(&wire).create_fleet(&request())).unwrap();
    let form = wire.form(0);
    for (field, value) in [
        ("Action", "CreateFleet"),
        ("ClientToken", "token-1"),
        ("Type", "instant"),
        ("Context", "ctx-1"),
        ("TargetCapacitySpecification.TotalTargetCapacity", "2"),
        ("TargetCapacitySpecification.DefaultTargetCapacityType", "spot"),
        ("SpotOptions.AllocationStrategy", "price-capacity-optimized"),
        ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "karpenter.k8s.aws/1"),
        ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "$Latest"),
        ("LaunchTemplateConfigs.1.Overrides.2.InstanceType", "m5.large"),
        ("LaunchTemplateConfigs.1.Overrides.2.SubnetId", "subnet-b"),
        ("LaunchTemplateConfigs.1.Overrides.2.AvailabilityZone", "us-east-1b"),
        ("LaunchTemplateConfigs.1.Overrides.2.ImageId", "ami-1"),
        ("LaunchTemplateConfigs.1.Overrides.2.Priority", "0.096"),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.2.ResourceType", "volume"),
        ("TagSpecification.3.ResourceType", "fleet"),
        ("TagSpecification.3.Tag.1.Key", "karpenter.sh/nodepool"),
    ] {
        assert_eq!(form.get(field).map(String::as_str), Some(value), "{field}");
    }
    assert!(!form.keys().any(|field| field.starts_with("OnDemandOptions") || field.starts_with("ReservedCapacityOptions")));
    assert_eq!((answer.fleet_id.as_str(), answer.instances.len(), answer.errors.len()), ("fleet-1", 1, 1));
    let machine = &answer.instances[0];
    assert_eq!((machine.id.as_str(), machine.zone.as_str(), machine.subnet_id.as_str()), ("i-1", "us-east-1a", "subnet-a"));
    assert_eq!((machine.image_id.as_str(), machine.capacity_type.as_str()), ("ami-1", "spot"));
    let error = &answer.errors[0];
    assert_eq!(
        (error.code.as_str(), error.instance_type.as_str(), error.zone.as_str()),
        ("InsufficientInstanceCapacity", "m5.large", "us-east-1b")
    );
}

#[test]
fn describe_fleets_returns_what_create_fleet_returned() {
    const FLEETS: &str = "<DescribeFleetsResponse><fleetSet><item><fleetId>fleet-1</fleetId>\
        <fleetInstanceSet><item><launchTemplateAndOverrides><overrides><subnetId>subnet-a</subnetId><availabilityZone>us-east-1a</availabilityZone>\
        <imageId>ami-1</imageId></overrides></launchTemplateAndOverrides><lifecycle>spot</lifecycle><instanceType>m5.large</instanceType>\
        <instanceIds><item>i-1</item><item>i-2</item></instanceIds></item></fleetInstanceSet>\
        <errorSet><item><errorCode>UnfulfillableCapacity</errorCode><launchTemplateAndOverrides><overrides><instanceType>m5.large</instanceType>\
        <availabilityZone>us-east-1b</availabilityZone></overrides></launchTemplateAndOverrides></item></errorSet></item></fleetSet></DescribeFleetsResponse>";
    const NONE: &str = "<DescribeFleetsResponse><fleetSet/></DescribeFleetsResponse>";
    let wire = Wire::answering([(200, FLEETS), (200, NONE), (400, &refusal("InvalidFleetId.NotFound"))]);
    let machines = machines(&wire);
    let fleet = run(machines.fleet("fleet-1", &request())).unwrap().unwrap();
    assert_eq!(wire.form(0).get("FleetId.1").map(String::as_str), Some("fleet-1"));
    let ids: Vec<_> =
        fleet.instances.iter().map(|instance| (instance.id.as_str(), instance.zone.as_str(), instance.capacity_type.as_str())).collect();
    assert_eq!(ids, [("i-1", "us-east-1a", "spot"), ("i-2", "us-east-1a", "spot")]);
    assert_eq!((fleet.errors[0].code.as_str(), fleet.errors[0].zone.as_str()), ("UnfulfillableCapacity", "us-east-1b"));
    assert_eq!(run(machines.fleet("fleet-1", &request())).unwrap(), None);
    assert_eq!(run(machines.fleet("fleet-1", &request())).unwrap(), None);
}

#[test]
fn a_fleet_for_reservations_names_their_kind() {
    let kinds = [
        (ReservationKind::Ordinary, "on-demand", Some("lowest-price"), None),
        (ReservationKind::CapacityBlock, "capacity-block", None, None),
        (ReservationKind::Interruptible, "reserved-capacity", None, Some("interruptible-capacity-reservation")),
    ];
    for (kind, target, on_demand, reserved) in kinds {
        let wire = Wire::answering([(200, PARTIAL)]);
        let reserving = FleetRequest { capacity_type: "reserved".into(), reservation: Some(kind), ..request() };
        run(machines(&wire).create_fleet(&reserving)).unwrap();
        let form = wire.form(0);
        let field = |name: &str| form.get(name).map(String::as_str);
        assert_eq!(field("TargetCapacitySpecification.DefaultTargetCapacityType"), Some(target));
        assert_eq!(field("OnDemandOptions.AllocationStrategy"), on_demand, "{kind:?}");
        assert_eq!(field("ReservedCapacityOptions.ReservationType.1"), reserved, "{kind:?}: {form:?}");
        assert_eq!(field("SpotOptions.AllocationStrategy"), None);
    }
}

#[test]
fn a_failed_create_fleet_is_classified_and_not_retried() {
    for (code, status, kind) in [
        ("RequestLimitExceeded", 503, CloudErrorKind::Throttled),
        ("IdempotentParameterMismatch", 400, CloudErrorKind::IdempotencyMismatch),
        ("UnauthorizedOperation", 403, CloudErrorKind::Unauthorized),
        ("InternalError", 500, CloudErrorKind::Unknown),
        ("InvalidParameterValue", 400, CloudErrorKind::Invalid),
        ("InsufficientInstanceCapacity", 400, CloudErrorKind::InsufficientCapacity),
        ("InvalidLaunchTemplateName.NotFoundException", 400, CloudErrorKind::NotFound),
    ] {
        let wire = Wire::answering([(status, &refusal(code))]);
        let error = run(machines(&wire).create_fleet(&request())).unwrap_err();
        assert_eq!((error.kind, error.code.as_str(), error.call), (kind, code, "CreateFleet"));
        assert_eq!(wire.bodies().len(), 1, "{code}");
    }
}

fn template() -> LaunchTemplate {
    LaunchTemplate {
        image_id: "ami-1".into(),
        user_data: "#!/bin/sh".into(),
        instance_profile: "profile".into(),
        security_group_ids: vec!["sg-1".into()],
        interfaces: vec![TemplateInterface { associate_public_ip: Some(false), ..TemplateInterface::default() }],
        tenancy: "default".into(),
        reservation: Some(ReservationTarget::Only("cr-1".into())),
        spot: true,
        tags: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        ..LaunchTemplate::default()
    }
    .named()
}

const CREATED: &str = r"<CreateLaunchTemplateResponse><launchTemplate><launchTemplateId>lt-1</launchTemplateId></launchTemplate></CreateLaunchTemplateResponse>";

#[test]
fn a_template_that_was_made_is_not_made_again_until_a_fleet_may_lack_it() {
    let mismatched = PARTIAL.replace("InsufficientInstanceCapacity", "InvalidLaunchTemplateId.VersionNotFound");
    for (status, fleet, again) in [
        (200, PARTIAL.to_owned(), false),
        (200, mismatched, true),
        (400, refusal("InvalidLaunchTemplateName.NotFoundException"), true),
        (503, refusal("RequestLimitExceeded"), false),
        (500, refusal("InternalError"), true),
    ] {
        let wire = Wire::answering([(200, CREATED), (status, &fleet), (200, CREATED)]);
        let made = Arc::default();
        let invocation = || machines(&wire).remembering(Arc::clone(&made));
        run(invocation().ensure_launch_template(&template())).unwrap();
        run(invocation().ensure_launch_template(&template())).unwrap();
        assert_eq!(wire.bodies().len(), 1, "another invocation knows it");
        let _ = run(invocation().create_fleet(&request()));
        run(invocation().ensure_launch_template(&template())).unwrap();
        assert_eq!(wire.bodies().len(), 2 + usize::from(again), "{fleet}");
    }
}

#[test]
fn a_dry_run_asks_for_its_template_although_it_was_just_made() {
    let wire = Wire::answering([(200, CREATED), (403, refusal("UnauthorizedOperation").as_str())]);
    let machines = machines(&wire).remembering(Arc::default());
    run(machines.ensure_launch_template(&template())).unwrap();
    let refused = run(machines.ensure_tried_template(&template())).unwrap_err();
    assert_eq!((refused.kind, wire.bodies().len()), (CloudErrorKind::Unauthorized, 2), "the role may not make it any more");
}

#[test]
fn a_template_that_could_not_be_made_is_tried_again() {
    let wire = Wire::answering([(403, refusal("UnauthorizedOperation").as_str()), (200, CREATED)]);
    let machines = machines(&wire).remembering(Arc::default());
    assert_eq!(run(machines.ensure_launch_template(&template())).unwrap_err().kind, CloudErrorKind::Unauthorized);
    run(machines.ensure_launch_template(&template())).unwrap();
    assert_eq!(wire.bodies().len(), 2);
}

#[test]
fn a_launch_template_is_sent_in_full_and_one_that_exists_is_success() {
    let wire = Wire::answering([(200, CREATED), (400, &refusal("InvalidLaunchTemplateName.AlreadyExistsException"))]);
    let machines = machines(&wire);
    run(machines.ensure_launch_template(&template())).unwrap();
    run(machines.ensure_launch_template(&template())).unwrap();
    let form = wire.form(0);
    let name = template().name;
    for (field, value) in [
        ("LaunchTemplateName", name.as_str()),
        ("LaunchTemplateData.ImageId", "ami-1"),
        ("LaunchTemplateData.UserData", "IyEvYmluL3No"),
        ("LaunchTemplateData.IamInstanceProfile.Name", "profile"),
        ("LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1", "sg-1"),
        ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
        ("LaunchTemplateData.NetworkInterface.1.AssociatePublicIpAddress", "false"),
        ("LaunchTemplateData.MetadataOptions.InstanceMetadataTags", "disabled"),
        ("LaunchTemplateData.Placement.Tenancy", "default"),
        ("LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", "cr-1"),
        ("LaunchTemplateData.TagSpecification.1.ResourceType", "network-interface"),
        ("LaunchTemplateData.TagSpecification.2.ResourceType", "spot-instances-request"),
        ("TagSpecification.1.ResourceType", "launch-template"),
    ] {
        assert_eq!(form.get(field).map(String::as_str), Some(value), "{field} in {form:?}");
    }
    assert!(!form.keys().any(|field| field.starts_with("LaunchTemplateData.SecurityGroup")), "groups belong to the interfaces");
}

fn instances_page(ids: &[(&str, &str)], next: &str) -> String {
    let item = |(id, more): &(&str, &str)| {
        format!(
            "<item><instancesSet><item><instanceId>{id}</instanceId><instanceState><code>16</code><name>running</name></instanceState>\
             <instanceType>m5.large</instanceType><launchTime>2026-03-01T11:00:00.000Z</launchTime>\
             <placement><availabilityZone>us-east-1a</availabilityZone></placement>{more}\
             <tagSet><item><key>karpenter.sh/nodepool</key><value>default</value></item></tagSet></item></instancesSet></item>"
        )
    };
    let items: String = ids.iter().map(item).collect();
    format!("<DescribeInstancesResponse><reservationSet>{items}</reservationSet><nextToken>{next}</nextToken></DescribeInstancesResponse>")
}

#[test]
fn instances_of_a_cluster_are_read_from_all_pages() {
    const SPOT: &str = "<spotInstanceRequestId>sir-1</spotInstanceRequestId>";
    const OPEN: &str = "<capacityReservationId>cr-1</capacityReservationId><capacityReservationSpecification><capacityReservationPreference>open</capacityReservationPreference></capacityReservationSpecification>";
    const ONLY: &str = "<capacityReservationId>cr-1</capacityReservationId><capacityReservationSpecification><capacityReservationPreference>capacity-reservations-only</capacityReservationPreference></capacityReservationSpecification><groupSet><item><groupId>sg-2</groupId></item><item><groupId>sg-1</groupId></item></groupSet>";
    const PLACED: &str =
        "<placement><availabilityZone>us-east-1a</availabilityZone><groupId>pg-1</groupId><partitionNumber>2</partitionNumber></placement>";
    const ENDED: &str = "<stateReason><code>Client.VolumeLimitExceeded</code><message>Client.VolumeLimitExceeded: Volume limit exceeded</message></stateReason>";
    let open = format!("{OPEN}{ENDED}");
    let (first, second) = (instances_page(&[("i-1", SPOT), ("i-2", PLACED)], "more"), instances_page(&[("i-3", &open), ("i-4", ONLY)], ""));
    let wire = Wire::answering([(200, &first), (200, &second)]);
    let found = run(machines(&wire).of_cluster(&"demo".into())).unwrap();
    let capacity_types: Vec<_> = found.iter().map(|machine| (machine.id.as_str(), machine.capacity_type.as_str())).collect();
    assert_eq!(capacity_types, [("i-1", "spot"), ("i-2", "on-demand"), ("i-3", "on-demand"), ("i-4", "reserved")]);
    let reservations: Vec<_> = found.iter().map(|machine| machine.reservation.as_deref()).collect();
    assert_eq!(reservations, [None, None, Some("cr-1"), Some("cr-1")], "an open reservation counts as on-demand");
    let reasons: Vec<_> = found.iter().map(|machine| machine.state_reason.as_ref().map(ToString::to_string)).collect();
    assert_eq!(reasons, [None, None, Some("Client.VolumeLimitExceeded: Volume limit exceeded".to_owned()), None]);
    assert_eq!(found[3].security_groups, ["sg-1", "sg-2"]);
    assert_eq!((found[1].placement_group.as_deref(), found[1].partition), (Some("pg-1"), Some(2)));
    assert_eq!((found[0].placement_group.as_deref(), found[0].partition), (None, None));
    assert_eq!(found[0].provider_id().as_str(), "aws:///us-east-1a/i-1");
    assert_eq!(found[0].launched_at, "2026-03-01T11:00:00Z".parse().unwrap());
    assert_eq!((found[0].state, found[0].tags.get(labels::NODE_POOL).map(String::as_str)), (InstanceState::Running, Some("default")));
    let (first, second) = (wire.form(0), wire.form(1));
    assert_eq!((first.get("NextToken"), second.get("NextToken").map(String::as_str)), (None, Some("more")));
    let filters: BTreeMap<&str, &str> = (1..=4)
        .map(|number| (first[&format!("Filter.{number}.Value.1")].as_str(), first[&format!("Filter.{number}.Name")].as_str()))
        .collect();
    assert_eq!(filters.get("karpenter.sh/nodepool"), Some(&"tag-key"));
    assert_eq!(filters.get("karpenter.k8s.aws/ec2nodeclass"), Some(&"tag-key"));
    assert_eq!(filters.get("demo"), Some(&"tag:eks:eks-cluster-name"));
    assert_eq!(first.get("MaxResults").map(String::as_str), Some("1000"));
    let states: Vec<&String> = first.iter().filter(|(key, _)| key.starts_with("Filter.4.Value")).map(|(_, value)| value).collect();
    assert_eq!(states, ["pending", "running", "stopping", "stopped", "shutting-down"], "terminated instances are left out");
}

#[test]
fn an_unknown_instance_is_none_and_a_response_about_another_instance_an_error() {
    let wire = Wire::answering([
        (400, &refusal("InvalidInstanceID.NotFound")),
        (200, &instances_page(&[("i-2", "")], "")),
        (200, &instances_page(&[("i-1", "")], "")),
        (200, &instances_page(&[], "")),
    ]);
    let machines = machines(&wire);
    assert_eq!(run(machines.instance(&"i-1".into())), Ok(None));
    assert_eq!(run(machines.instance(&"i-1".into())).unwrap_err().kind, CloudErrorKind::Unknown);
    assert_eq!(run(machines.instance(&"i-1".into())).unwrap().unwrap().id.as_str(), "i-1");
    assert_eq!(run(machines.instance(&"i-1".into())), Ok(None));
}

#[test]
fn an_instance_that_ec2_does_not_know_hides_no_other_of_its_call() {
    let wire = Wire::answering([
        (200, &instances_page(&[("i-1", ""), ("i-2", "")], "")),
        (400, &refusal("InvalidInstanceID.NotFound")),
        (200, &instances_page(&[("i-1", "")], "")),
        (400, &refusal("InvalidInstanceID.NotFound")),
        (503, &refusal("RequestLimitExceeded")),
    ]);
    let machines = machines(&wire);
    let both = || ["i-1", "i-2"].map(Into::into).to_vec();
    assert_eq!(run(machines.existing(both())).unwrap().len(), 2);
    let form = wire.form(0);
    assert_eq!((form["InstanceId.2"].as_str(), form.get("MaxResults")), ("i-2", None));
    let states: Vec<&str> = form.iter().filter(|(field, _)| field.starts_with("Filter.1.Value")).map(|(_, state)| state.as_str()).collect();
    assert_eq!(form["Filter.1.Name"], "instance-state-name", "without a filter EC2 permits half as many calls");
    assert_eq!(states, ["pending", "running", "stopping", "stopped", "shutting-down", "terminated"], "none is left out");
    let known = run(machines.existing(both())).unwrap();
    assert_eq!(known.iter().map(|instance| instance.id.as_str()).collect::<Vec<_>>(), ["i-1"]);
    assert_eq!(
        run(machines.existing(both())).unwrap_err().kind,
        CloudErrorKind::Throttled,
        "a throttled call does not mean that the instances are absent"
    );
}

/// Looks up these instances concurrently; returns the ids of each call, and how many lookups failed because `refused` was among them.
fn look_up(instance_calls: &InstanceCalls, ids: &[&'static str], refused: &'static str) -> (Vec<Vec<String>>, usize) {
    let lookups = Arc::clone(&instance_calls.lookups);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let answers = run(futures::future::join_all(ids.iter().map(|id| {
        let (lookups, calls) = (Arc::clone(&lookups), Arc::clone(&calls));
        async move {
            let describe = move |ids: Vec<whittle_units::InstanceId>| async move {
                calls.lock().unwrap().push(ids.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>());
                tokio::task::yield_now().await;
                if ids.iter().any(|id| id.as_str() == refused) {
                    Err(crate::errors::incomplete("DescribeInstances", "no"))
                } else {
                    Ok(Vec::new())
                }
            };
            lookups.join(&(*id).into(), describe).await
        }
    })));
    let calls = calls.lock().unwrap().clone();
    let begun: Vec<usize> = instance_calls.take_begun().iter().map(|batch| batch.size).collect();
    let mut sizes: Vec<usize> = calls.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!((begun, instance_calls.take_begun().len()), (sizes, 0), "each batch is counted once");
    (calls, answers.iter().filter(|answer| answer.is_err()).count())
}

#[test]
fn lookups_during_a_call_share_the_next_call() {
    let look_up = |ids: &[&'static str], refused| look_up(&InstanceCalls::default(), ids, refused);
    let (calls, failed) = look_up(&["i-1", "i-2", "i-3", "i-2"], "none");
    assert_eq!((calls, failed), (vec![vec!["i-1".to_owned()], vec!["i-2".to_owned(), "i-3".to_owned()]], 0));
    assert_eq!(look_up(&["i-1"], "none").0.len(), 1);
    assert_eq!(look_up(&["i-1", "i-2", "i-3"], "i-3").1, 2, "a failed call fails the lookups that share it, and no others");
}

#[test]
fn lookups_during_the_pause_before_a_call_share_it() {
    // Everybody who waits for the call polls its pause once in each round.
    let pause = || futures::stream::iter(0..20).for_each(|_| tokio::task::yield_now()).boxed();
    let gathering = InstanceCalls::gathering(pause);
    let (calls, failed) = look_up(&gathering, &["i-1", "i-2", "i-3", "i-2"], "none");
    assert_eq!((calls, failed), (vec![vec!["i-1".to_owned(), "i-2".to_owned(), "i-3".to_owned()]], 0));
    assert_eq!(look_up(&gathering, &["i-1"], "i-2"), (vec![vec!["i-1".to_owned()]], 0), "one alone is looked up as well");
    assert_eq!(look_up(&gathering, &["i-1", "i-2", "i-3"], "i-3").1, 3);
}

#[test]
fn terminating_an_instance_that_does_not_exist_is_success() {
    let ended = "<TerminateInstancesResponse><instancesSet/></TerminateInstancesResponse>";
    let wire = Wire::answering([(200, ended), (400, &refusal("InvalidInstanceID.NotFound")), (403, &refusal("UnauthorizedOperation"))]);
    let machines = machines(&wire);
    assert_eq!(run(machines.terminate(&"i-1".into())), Ok(()));
    assert_eq!(run(machines.terminate(&"i-1".into())), Ok(()));
    assert_eq!(run(machines.terminate(&"i-1".into())).unwrap_err().kind, CloudErrorKind::Unauthorized);
    assert_eq!(wire.form(0).get("InstanceId.1").map(String::as_str), Some("i-1"));
}

/// The instances of each TerminateInstances call, in order.
fn terminations(wire: &Wire) -> Vec<Vec<String>> {
    (0..wire.bodies().len())
        .map(|call| wire.form(call).into_iter().filter(|(name, _)| name.starts_with("InstanceId.")).map(|(_, id)| id).collect())
        .collect()
}

fn terminated(ids: &[&str]) -> String {
    let items = ids.iter().map(|id| format!("<item><instanceId>{id}</instanceId></item>")).collect::<String>();
    format!("<TerminateInstancesResponse><instancesSet>{items}</instancesSet></TerminateInstancesResponse>")
}

fn terminate_together(wire: &Wire, ids: &[&str]) -> Vec<Option<CloudErrorKind>> {
    let machines = machines(wire);
    let ids: Vec<whittle_units::InstanceId> = ids.iter().map(|id| (*id).into()).collect();
    let results = run(futures::future::join_all(ids.iter().map(|id| machines.terminate(id))));
    results.into_iter().map(|result| result.err().map(|error| error.kind)).collect()
}

#[test]
fn instances_that_are_terminated_together_share_a_call() {
    let wire = Wire::answering([(200, &terminated(&["i-1"])), (200, &terminated(&["i-2", "i-3"]))]);
    assert_eq!(terminate_together(&wire, &["i-1", "i-2", "i-3", "i-2"]), [None; 4]);
    assert_eq!(terminations(&wire), [vec!["i-1"], vec!["i-2", "i-3"]], "no call names an instance that nobody terminates");
}

#[test]
fn an_instance_that_cannot_be_terminated_keeps_no_other_of_its_call_alive() {
    let wire = Wire::answering([
        (200, &terminated(&["i-1"])),
        (400, &refusal("OperationNotPermitted")),
        (400, &refusal("OperationNotPermitted")),
        (200, &terminated(&["i-3"])),
    ]);
    assert_eq!(terminate_together(&wire, &["i-1", "i-2", "i-3"]), [None, Some(CloudErrorKind::Invalid), None]);
    assert_eq!(terminations(&wire)[1..], [vec!["i-2", "i-3"], vec!["i-2"], vec!["i-3"]]);
}

#[test]
fn an_instance_that_the_answer_does_not_name_is_terminated_alone() {
    let wire = Wire::answering([(200, &terminated(&["i-1"])), (200, &terminated(&["i-2"])), (200, &terminated(&["i-3"]))]);
    assert_eq!(terminate_together(&wire, &["i-1", "i-2", "i-3"]), [None; 3]);
    assert_eq!(terminations(&wire)[2], ["i-3"]);
}

#[test]
fn a_throttled_termination_fails_for_each_of_its_instances_and_is_not_repeated_at_once() {
    let wire = Wire::answering([(200, &terminated(&["i-1"])), (503, &refusal("RequestLimitExceeded"))]);
    let throttled = Some(CloudErrorKind::Throttled);
    assert_eq!(terminate_together(&wire, &["i-1", "i-2", "i-3"]), [None, throttled, throttled]);
    assert_eq!(terminations(&wire).len(), 2);
}

#[test]
fn no_call_starts_when_no_time_is_left() {
    let wire = Wire::default();
    let machines = Machines::new(aws_sdk_ec2::Client::new(&wire.config()), Arc::new(StoppedClock { left: SignedDuration::ZERO }));
    assert_eq!(run(machines.create_fleet(&request())).unwrap_err().kind, CloudErrorKind::Unknown);
    assert_eq!(run(machines.terminate(&"i-1".into())).unwrap_err().kind, CloudErrorKind::Unknown);
    assert!(wire.bodies().is_empty());
}

#[test]
fn instances_are_tagged_and_launch_templates_listed_and_deleted() {
    let listed = "<DescribeLaunchTemplatesResponse><launchTemplates><item><launchTemplateName>b</launchTemplateName></item><item><launchTemplateName>a</launchTemplateName></item></launchTemplates></DescribeLaunchTemplatesResponse>";
    let wire = Wire::answering([
        (200, "<CreateTagsResponse><return>true</return></CreateTagsResponse>"),
        (200, listed),
        (400, &refusal("InvalidLaunchTemplateName.NotFoundException")),
    ]);
    let machines = machines(&wire);
    run(machines.tag(&"i-1".into(), &[("Name".to_owned(), "node-1".to_owned())])).unwrap();
    assert_eq!(run(machines.launch_templates(&"demo".into())).unwrap(), ["a", "b"]);
    run(machines.delete_launch_template("a")).unwrap();
    let tagged = wire.form(0);
    assert_eq!((tagged["ResourceId.1"].as_str(), tagged["Tag.1.Key"].as_str(), tagged["Tag.1.Value"].as_str()), ("i-1", "Name", "node-1"));
}

fn statuses_page(items: &str, next: &str) -> String {
    format!(
        "<DescribeInstanceStatusResponse><instanceStatusSet>{items}</instanceStatusSet><nextToken>{next}</nextToken></DescribeInstanceStatusResponse>"
    )
}

fn status_item(id: &str, more: &str) -> String {
    format!("<item><instanceId>{id}</instanceId>{more}</item>")
}

fn status_check(name: &str, status: &str) -> String {
    format!(
        "<{name}><status>impaired</status><details><item><name>reachability</name><status>{status}</status>\
         <impairedSince>2026-03-01T11:50:00.000Z</impairedSince></item></details></{name}>"
    )
}

/// The ids `i-1`, `i-2` and so on.
fn numbered(count: usize) -> Vec<InstanceId> {
    (1..=count).map(|number| InstanceId::new(format!("i-{number}"))).collect()
}

/// The instances of an answer.
fn ids_of(found: &[whittle_ec2::interruption::InstanceStatus]) -> Vec<&str> {
    found.iter().map(|status| status.instance.as_str()).collect()
}

#[test]
fn checks_of_some_hundred_machines_are_asked_for_by_their_ids() {
    let failed = status_check("instanceStatus", "failed");
    let first = statuses_page(&(status_item("i-1", "") + &status_item("i-2", &failed)), "");
    let second = statuses_page(&status_item("i-101", &failed), "");
    let wire = Wire::answering([(200, &first), (200, &second)]);
    let found = run(machines(&wire).failing(&numbered(101))).unwrap();
    assert_eq!(ids_of(&found), ["i-101", "i-2"], "what is sound is not listed");
    let (first, second) = (wire.form(0), wire.form(1));
    assert_eq!((first["InstanceId.1"].as_str(), first["InstanceId.100"].as_str()), ("i-1", "i-100"));
    assert_eq!((second["InstanceId.1"].as_str(), second.get("InstanceId.2")), ("i-101", None));
    for form in [first, second] {
        assert_eq!(form.get("MaxResults"), None, "EC2 refuses ids together with a size of pages: {form:?}");
        let filter = ["Filter.1.Name", "Filter.1.Value.1"].map(|field| form[field].as_str());
        assert_eq!(filter, ["instance-state-name", "running"], "without a filter EC2 permits fewer calls");
    }
    let wire = Wire::answering([]);
    assert_eq!(run(machines(&wire).failing(&[])), Ok(vec![]), "nothing is asked about nothing");
    assert!(wire.bodies().is_empty());
}

/// EC2 refuses the call as a whole.
#[test]
fn an_instance_that_ec2_does_not_know_hides_no_failing_check_of_another() {
    let known = statuses_page(&status_item("i-1", &status_check("instanceStatus", "failed")), "");
    let others = statuses_page(&status_item("i-9", &status_check("systemStatus", "failed")), "");
    let none = statuses_page("", "");
    let unknown = refusal("InvalidInstanceID.NotFound");
    let wire = Wire::answering([(400, &unknown), (200, &known), (200, &others), (200, &none)]);
    let found = run(machines(&wire).failing(&numbered(2))).unwrap();
    assert_eq!(ids_of(&found), ["i-1"], "that of another cluster is not asked for");
    let throttled = refusal("RequestLimitExceeded");
    let wire = Wire::answering([(503, &throttled)]);
    let error = run(machines(&wire).failing(&numbered(2))).unwrap_err();
    assert_eq!(error.kind, CloudErrorKind::Throttled, "a throttled call is not followed by three more");
}

#[test]
fn failed_checks_and_future_events_are_merged_from_three_scans() {
    let event =
        |code: &str, text: &str| format!("<eventsSet><item><code>{code}</code><description>{text}</description></item></eventsSet>");
    let retired = status_item("i-4", &event("instance-retirement", "to be retired"));
    let (first, second, third, fourth) = (
        statuses_page(&status_item("i-1", &status_check("instanceStatus", "failed")), "more"),
        statuses_page(&status_item("i-2", &status_check("instanceStatus", "passed")), ""),
        statuses_page(&(status_item("i-3", &status_check("systemStatus", "failed")) + &retired), ""),
        statuses_page(&(retired + &status_item("i-5", &event("instance-stop", "[Completed] stopped"))), ""),
    );
    let wire = Wire::answering([(200, &first), (200, &second), (200, &third), (200, &fourth)]);
    let found = run(machines(&wire).failing(&numbered(301))).unwrap();
    let states: Vec<_> = found
        .iter()
        .map(|one| {
            let checks = (one.instance_impaired_since.is_some(), one.system_impaired_since.is_some());
            (one.instance.as_str(), checks, one.has_scheduled_event)
        })
        .collect();
    assert_eq!(states, [("i-1", (true, false), false), ("i-3", (false, true), false), ("i-4", (false, false), true)]);
    assert_eq!(found[0].instance_impaired_since, Some("2026-03-01T11:50:00Z".parse().unwrap()));
    let scanned: Vec<String> = [0, 2, 3].map(|index: usize| wire.form(index)["Filter.1.Name"].clone()).into();
    assert_eq!(scanned, ["instance-status.status", "system-status.status", "event.code"]);
    assert_eq!(wire.form(1)["NextToken"], "more");
}
