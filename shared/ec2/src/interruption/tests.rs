use super::*;

const GOLDEN: &str = include_str!("../../../../tests/golden/cloud/events.json");

#[test]
fn every_event_is_parsed_as_karpenter_does() {
    let cases: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    assert_eq!(cases.len(), 35);
    for case in cases {
        let (body, expected) = (case["in"].as_str().unwrap(), &case["out"]);
        let answer = parse(body);
        assert_eq!(answer.is_err(), expected["error"] == true, "{body}");
        let Ok(answer) = answer else { continue };
        // States are compared case-insensitively, unlike in Karpenter: aws 28, quirk 12.
        if body.contains("\"Stopped\"") {
            assert_eq!(answer.unwrap().kind, InterruptionKind::InstanceStopped);
            continue;
        }
        assert_eq!(answer.as_ref().map_or("no_op", |notice| notice.kind.as_str()), expected["kind"], "{body}");
        let instances: Vec<&str> = answer.iter().flat_map(|notice| &notice.instances).map(InstanceId::as_str).collect();
        assert_eq!(serde_json::json!(instances), expected["instances"], "{body}");
        if let Some(notice) = &answer {
            assert_eq!(notice.time.unwrap().to_string(), expected["time"].as_str().unwrap(), "{body}");
        }
    }
}

#[test]
fn status_checks_count_after_two_minutes_and_scheduled_events_at_once() {
    let now: Timestamp = "2026-03-01T12:02:00Z".parse().unwrap();
    let at = |text: &str| Some(text.parse().unwrap());
    let status = |instance, system, event| InstanceStatus {
        instance: "i-1".into(),
        instance_impaired_since: instance,
        system_impaired_since: system,
        has_scheduled_event: event,
    };
    assert_eq!(unhealthy(&status(at("2026-03-01T12:00:00Z"), None, false), now), [InterruptionKind::InstanceStatus]);
    assert_eq!(unhealthy(&status(at("2026-03-01T12:00:01Z"), None, true), now), [InterruptionKind::EventStatus]);
    assert_eq!(unhealthy(&status(None, at("2026-03-01T11:00:00Z"), false), now), [InterruptionKind::SystemStatus]);
    assert_eq!(unhealthy(&status(None, None, false), now), []);
}

fn health_event(detail: &str) -> String {
    let of_ec2 = r#""service":"EC2","eventTypeCategory":"scheduledChange""#;
    format!(r#"{{"version":"0","source":"aws.health","detail-type":"AWS Health Event","detail":{{{of_ec2},{detail}}}}}"#)
}

/// AWS Health sends an event for each change of it. Karpenter ends the nodes of all of them.
#[test]
fn a_scheduled_change_that_is_over_ends_no_instance() {
    let instances = |detail: &str| {
        let notice = parse(&health_event(detail)).unwrap();
        notice.map(|notice| notice.instances.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>())
    };
    let one = r#""affectedEntities":[{"entityValue":"i-1"}]"#;
    for status in ["open", "upcoming", "", "somethingNew"] {
        assert_eq!(instances(&format!(r#""statusCode":"{status}",{one}"#)), Some(vec!["i-1".to_owned()]), "{status:?}");
    }
    for odd in ["null", "7"] {
        assert_eq!(instances(&format!(r#""statusCode":{odd},{one}"#)), Some(vec!["i-1".to_owned()]), "{odd}");
    }
    for status in ["closed", "Closed"] {
        assert_eq!(instances(&format!(r#""statusCode":"{status}",{one}"#)), None, "{status}");
    }
    let of_two = |status: &str| {
        let first = format!(r#"{{"entityValue":"i-1","status":"{status}"}}"#);
        instances(&format!(r#""affectedEntities":[{first},{{"entityValue":"i-2","status":"PENDING"}}]"#))
    };
    assert_eq!(of_two("RESOLVED"), Some(vec!["i-2".to_owned()]), "the user has seen to the other");
    for status in ["PENDING", "IMPAIRED", "UNIMPAIRED", "UNKNOWN", ""] {
        assert_eq!(of_two(status), Some(vec!["i-1".to_owned(), "i-2".to_owned()]), "{status:?}");
    }
}

/// EC2's page on interruptible reservations and Karpenter give the warning different names.
#[test]
fn a_reservation_warning_is_known_by_both_names() {
    for name in
        ["EC2 Capacity Reservation Instance Interruption Warning", "EC2 Interruptible Capacity Reservation Instance Interruption Warning"]
    {
        let body = format!(r#"{{"version":"0","source":"aws.ec2","detail-type":"{name}","detail":{{"instance-id":"i-1"}}}}"#);
        let notice = parse(&body).unwrap().expect("it is a notice");
        assert_eq!((notice.kind, notice.instances), (InterruptionKind::CapacityReservationInterrupted, vec!["i-1".into()]));
    }
}
