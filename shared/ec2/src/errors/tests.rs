use super::*;
use serde_json::Value;

/// 48 error responses with Karpenter's classification of each.
const GOLDEN: &str = include_str!("../../../../tests/golden/cloud/errors.json");

/// Karpenter has predicates for these as well. Here the error's reason says the first three, and an exhausted reservation is unavailable as
/// any other offering is.
const WITHOUT_PREDICATE: [&str; 4] = ["rateLimited", "unauthorized", "userDataTooLarge", "reservationExceeded"];

fn predicates(error: &ApiError) -> Vec<&'static str> {
    let all = [
        ("alreadyExists", error.is_already_exists()),
        ("dryRun", error.is_dry_run_success()),
        ("instanceProfileNotFound", error.is_instance_profile_missing()),
        ("launchTemplateNotFound", error.is_launch_template_not_found()),
        ("notFound", error.is_not_found()),
        ("server", error.is_server()),
        ("serviceLinkedRole", error.is_service_linked_role_missing()),
        ("spreadGroupLimit", error.is_spread_group_limit()),
        ("subnetFull", error.is_subnet_full()),
        ("unfulfillableCapacity", error.is_unfulfillable()),
    ];
    all.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect()
}

#[test]
fn every_error_is_classified_as_karpenter_does() {
    let cases: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    assert_eq!(cases.len(), 48);
    for case in cases {
        let error: ApiError = serde_json::from_value(case["in"].clone()).unwrap();
        let named = case["out"]["is"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        let expected: Vec<&str> = named.filter(|name| !WITHOUT_PREDICATE.contains(name)).collect();
        assert_eq!(predicates(&error), expected, "{error:?}");
        assert_eq!(error.create_reason().as_str(), case["out"]["reason"].as_str().unwrap(), "{error:?}");
        assert_eq!(error.create_reason().as_str(), case["out"]["fleetReason"].as_str().unwrap(), "{error:?}");
    }
}

#[test]
fn a_public_address_for_several_interfaces_is_refused_with_the_field_and_a_remedy() {
    let text = "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.";
    let reason = ApiError::client("InvalidParameterCombination", text).create_reason();
    assert_eq!((reason, reason.as_str()), (CreateReason::PublicAddressRefused, "LaunchFailed"));
    assert!(reason.advice().contains("spec.associatePublicIPAddress") && reason.advice().contains("leave it out"));
    assert_eq!(ApiError::client("InvalidParameterCombination", "another").create_reason(), CreateReason::LaunchFailed);
}

#[test]
fn refusals_that_last_have_a_remedy_of_their_own_and_karpenters_reason() {
    let small = "Volume of size 8GB is smaller than snapshot 'snap-1', expect size >= 20GB";
    for (code, message, reason, remedy) in [
        ("InvalidBlockDeviceMapping", small, CreateReason::VolumeTooSmall, "spec.blockDeviceMappings"),
        ("VolumeTypeNotAvailableInZone", "The zone has none.", CreateReason::VolumeTypeNotInZone, "spec.blockDeviceMappings"),
        ("OptInRequired", "In order to use this AWS Marketplace product you need to subscribe.", CreateReason::NotSubscribed, "subscribe"),
        ("Blocked", "This account is currently blocked.", CreateReason::AccountBlocked, "AWS Support"),
        (
            "SecurityGroupsPerInstanceLimitExceeded",
            "The maximum number of security groups per instance has been reached.",
            CreateReason::TooManySecurityGroups,
            "spec.securityGroupSelectorTerms",
        ),
        (
            "SecurityGroupsPerInterfaceLimitExceeded",
            "The maximum number of security groups per interface has been reached.",
            CreateReason::TooManySecurityGroups,
            "spec.securityGroupSelectorTerms",
        ),
        ("TagPolicyViolation", "The tag policy does not allow the specified value for the tag key.", CreateReason::TagRefused, "spec.tags"),
    ] {
        let found = ApiError::client(code, message).create_reason();
        assert_eq!((found, found.as_str()), (reason, "LaunchFailed"), "{code}");
        assert!(found.advice().contains(remedy), "{code}");
    }
}

#[test]
fn what_passes_by_itself_is_no_rejection() {
    let is_rejected = |code: &str, message: &str| ApiError::client(code, message).is_rejected();
    assert!(is_rejected("InvalidParameterCombination", "The parameter iops is not supported for gp2 volumes."));
    assert!(is_rejected("InvalidBlockDeviceMapping", "Invalid device name"));
    assert!(is_rejected("InstanceLimitExceeded", "You have requested more instances than your current instance limit of 2 allows."));
    assert!(is_rejected("LaunchTemplateLimitExceeded", "You have too many."));
    assert!(is_rejected("SomethingNew", "EC2 has a reason that nobody knows yet."));
    assert!(!is_rejected("InvalidParameterValue", "Invalid IAM Instance Profile name"), "it may be new");
    assert!(!is_rejected("InvalidParameterValue", "Value (p) for parameter iamInstanceProfile.name is invalid."));
    assert!(!is_rejected("InvalidParameter", "They belong to different networks"), "it has a reason of its own");
    let passing = ["InvalidLaunchTemplateName.NotFoundException", "InsufficientInstanceCapacity", "Unavailable", "InternalError", ""];
    let elsewhere = ["InsufficientHostCapacity", "IdempotentParameterMismatch", "InvalidCapacityReservationId.NotFound"];
    for code in passing.iter().chain(&elsewhere).chain(PASSING).chain(IN_TROUBLE).chain(UNFULFILLABLE).chain(THROTTLES) {
        assert!(!is_rejected(code, "x"), "{code}");
    }
}

#[test]
fn an_ec2_that_is_busy_in_trouble_or_silent_has_refused_nothing() {
    let reason = |code: &str, fault: Fault| ApiError { fault, ..ApiError::client(code, "x") }.launch_reason();
    for code in IN_TROUBLE.iter().chain(&["", "SomethingNew"]) {
        assert_eq!(reason(code, Fault::Server), CreateReason::InternalError, "{code}");
    }
    for code in IN_TROUBLE.iter().chain(&[""]) {
        assert_eq!(reason(code, Fault::Client), CreateReason::InternalError, "{code}: as of a fleet's pool");
    }
    for code in THROTTLES {
        assert_eq!(reason(code, Fault::Client), CreateReason::RequestLimitExceeded, "{code}");
    }
    for code in ["SomethingNew", "InvalidParameterValue", "InvalidSubnetID.NotFound", "InvalidBlockDeviceMapping"] {
        assert_eq!(reason(code, Fault::Client), CreateReason::LaunchFailed, "{code}");
    }
    assert_eq!(reason("UnauthorizedOperation", Fault::Server), CreateReason::Unauthorized, "what EC2 says is not overruled");
    assert_eq!(ApiError::client("Unavailable", "x").create_reason(), CreateReason::LaunchFailed, "as Karpenter");
}

#[test]
fn an_object_that_iam_changes_for_somebody_else_is_asked_for_again() {
    for code in CONTENDED {
        let error = ApiError::client(*code, "x");
        assert!(error.is_transient() && !error.is_rejected() && !error.is_throttle(), "{code}");
    }
    for code in ["LimitExceeded", "UnmodifiableEntity", "InvalidInput"] {
        assert!(!ApiError::client(code, "x").is_transient(), "{code}: it is refused again until somebody does something");
    }
}

#[test]
fn what_was_just_made_and_a_busy_ec2_pass_soon() {
    let is_over_soon = |code: &str, message: &str| ApiError::client(code, message).is_over_soon();
    for (code, message) in [
        ("InvalidParameterValue", "Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"),
        ("InvalidParameterValue", "IAM Instance Profile \"arn:aws:iam::1:instance-profile/p\" has no associated IAM Roles"),
        ("InvalidLaunchTemplateName.NotFoundException", "It does not exist."),
        ("InvalidLaunchTemplateId.NotFound", "It does not exist."),
        ("InvalidLaunchTemplateId.VersionNotFound", "Could not find the version."),
        ("RequestLimitExceeded", "Request limit exceeded."),
        ("InternalError", "An internal error has occurred"),
    ] {
        assert!(is_over_soon(code, message), "{code}");
        assert!(!ApiError::client(code, message).is_rejected(), "{code}: nobody has to do anything");
    }
    for code in ["UnauthorizedOperation", "MaxFleetCountExceeded", "InsufficientInstanceCapacity", "InvalidParameterValue", "Blocked"] {
        assert!(!is_over_soon(code, "x"), "{code}");
    }
}

#[test]
fn what_ec2_says_of_an_instance_profile_is_told_apart() {
    for (message, reason) in [
        ("Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", "InstanceProfileNameInvalid"),
        ("IAM Instance Profile \"arn:aws:iam::1:instance-profile/p\" has no associated IAM Roles", "LaunchFailed"),
        ("Invalid IAM Instance Profile name", "LaunchFailed"),
    ] {
        let error = ApiError::client("InvalidParameterValue", message);
        assert!(error.is_of_instance_profile() && error.is_over_soon() && !error.is_rejected(), "{message}");
        assert_eq!(error.create_reason().as_str(), reason, "{message}");
    }
    let empty = CreateReason::of("IAM Instance Profile \"p\" has no associated IAM Roles");
    assert!(empty.advice().contains("add one to the profile that spec.instanceProfile of the node class names"), "{}", empty.advice());
    for (code, message) in [("InvalidParameterValue", "Volume size"), ("UnauthorizedOperation", "iam:PassRole"), ("Unavailable", "x")] {
        assert!(!ApiError::client(code, message).is_of_instance_profile(), "{code}");
    }
}

/// Karpenter calls the first a lack of capacity from the release after 1.14 on, and tries the second again for as long as the claim exists.
#[test]
fn a_market_that_is_too_dear_or_that_a_zone_lacks_is_no_capacity() {
    let price = "Your Spot request price of 2.24208 is lower than the minimum required Spot request fulfillment price of 2.2421.";
    let zone = "Your requested instance type (r5d.4xlarge) is not supported in your requested Availability Zone (us-east-1-dfw-1a).";
    for (code, message) in [("SpotMaxPriceTooLow", price), ("InvalidFleetConfiguration", zone)] {
        let error = ApiError::client(code, message);
        assert!(error.is_unfulfillable() && !error.is_unsupported() && !error.is_vcpu_quota(), "{code}");
        assert!(!error.is_rejected() && !error.is_over_soon(), "{code}");
    }
    assert!(!ApiError::client("InvalidFleetConfiguration", "The launch template has no image.").is_unfulfillable(), "another would not do");
}

/// Karpenter tries them again for as long as the claim exists.
#[test]
fn a_subnet_without_prefixes_and_a_type_without_ipv6_are_no_capacity() {
    let prefix = "The specified subnet does not have enough free cidr blocks to satisfy the request.";
    let neither = "There aren't sufficient free Ipv4 addresses or prefixes";
    for (code, message) in [("InsufficientCidrBlocks", prefix), ("InvalidParameterValue", neither)] {
        let error = ApiError::client(code, message);
        assert!(error.is_subnet_full() && error.is_unfulfillable() && !error.is_unsupported(), "{code}");
        assert!(!error.is_rejected() && !error.is_over_soon(), "{code}");
        assert_eq!(error.create_reason(), CreateReason::InsufficientFreeAddressesInSubnet, "{code}");
    }
    let error = ApiError::client("UnsupportedOperation", "IPv6 is not supported for the instance type 'm3.medium'.");
    assert!(error.is_unfulfillable() && error.is_unsupported() && !error.is_subnet_full() && !error.is_rejected());
    let other = ApiError::client("UnsupportedOperation", "The request has an unsupported operation.");
    assert!(!other.is_unfulfillable() && other.is_rejected(), "another type would not do");
    let other = ApiError::client("InvalidParameterValue", "There is no such thing.");
    assert!(!other.is_unfulfillable() && !other.is_subnet_full());
}

#[test]
fn a_volume_type_that_a_zone_lacks_is_had_elsewhere_and_somebody_may_change_it() {
    let error = ApiError::client("VolumeTypeNotAvailableInZone", "The specified Availability Zone does not support the volume type.");
    assert!(error.is_unfulfillable() && error.is_unsupported() && error.create_reason().needs_user_action());
    assert!(!error.is_rejected() && !error.is_over_soon() && !error.is_subnet_full());
    let other = ApiError::client("InvalidBlockDeviceMapping", "Invalid device name");
    assert!(!other.is_unfulfillable() && !other.is_unsupported(), "no zone takes it");
}

#[test]
fn throttling_is_never_a_stock_out() {
    for code in THROTTLES {
        let error = ApiError::client(*code, "slow down");
        assert!(error.is_throttle() && error.is_transient() && !error.is_unfulfillable(), "{code}");
    }
}

#[test]
fn a_lost_connection_is_transient() {
    assert!(ApiError { message: "connection reset".into(), ..ApiError::default() }.is_transient());
    assert!(!ApiError::client("InvalidParameterValue", "x").is_transient());
}

#[test]
fn what_a_person_has_to_change_is_told_by_the_reason_of_a_condition_unless_others_share_it() {
    for reason in [CreateReason::Unauthorized, CreateReason::AmiNotFound, CreateReason::SubnetResolutionFailed] {
        assert!(reason.needs_user_action() && CreateReason::tells_of_user_action(reason.as_str()), "{reason}");
    }
    assert!(CreateReason::VolumeTooSmall.needs_user_action());
    assert!(!CreateReason::tells_of_user_action(CreateReason::VolumeTooSmall.as_str()), "it is that of any failure");
    for reason in [
        CreateReason::LaunchFailed,
        CreateReason::RequestLimitExceeded,
        CreateReason::InternalError,
        CreateReason::FleetQuotaExceeded,
        CreateReason::SpotQuotaExceeded,
        CreateReason::VcpuLimitExceeded,
        CreateReason::InsufficientFreeAddressesInSubnet,
        CreateReason::InstanceProfileNameInvalid,
        CreateReason::InstanceProfileEmpty,
        CreateReason::LaunchTemplateNotFound,
        CreateReason::NodeClassReadinessUnknown,
    ] {
        assert!(!reason.needs_user_action() && !CreateReason::tells_of_user_action(reason.as_str()), "{reason}");
    }
    assert!(!CreateReason::tells_of_user_action("AwaitingReconciliation"));
}
