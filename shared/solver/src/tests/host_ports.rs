//! Host ports: which pods cannot share a machine.

use super::world::{World, all, left};
use serde_json::{Value, json};

#[test]
fn host_ports_clash_by_port_protocol_and_address() {
    let clash = |a: Value, b: Value| {
        let mut world = World::new();
        world.pod("a", json!({"ports": [a]}));
        world.pod("b", json!({"ports": [b]}));
        world.plan().claims.len() == 2
    };
    let port = |port: i32, protocol: &str, ip: &str| json!({"containerPort": 80, "hostPort": port, "protocol": protocol, "hostIP": ip});
    assert!(clash(port(80, "TCP", ""), port(80, "TCP", "")));
    assert!(clash(port(80, "TCP", "1.1.1.1"), port(80, "TCP", "1.1.1.1")));
    assert!(clash(port(80, "TCP", "0.0.0.0"), port(80, "TCP", "1.1.1.1")));
    assert!(clash(port(80, "TCP", "fd00::1"), port(80, "TCP", "::")));
    assert!(!clash(port(80, "TCP", ""), port(80, "UDP", "")));
    assert!(!clash(port(80, "TCP", ""), port(81, "TCP", "")));
    assert!(!clash(port(80, "TCP", "1.1.1.1"), port(80, "TCP", "2.2.2.2")));
    let mut world = World::new();
    world.pod("own", json!({"ports": [port(80, "TCP", ""), port(80, "TCP", "1.1.1.1")]}));
    assert!(left(&world.plan()).is_empty(), "a pod does not clash with itself");
}

#[test]
fn host_ports_of_sidecars_clash_and_those_of_other_init_containers_do_not() {
    let machines = |restart_policy: &str| {
        let mut world = World::new();
        let ports = json!([{"containerPort": 9100, "hostPort": 9100}]);
        let init = json!({"initContainers": [{"name": "s", "restartPolicy": restart_policy, "ports": ports}]});
        world.pods("web", 2, &all(&[json!({"cpu": "100m"}), init]));
        world.plan().claims.len()
    };
    assert_eq!((machines("Always"), machines("")), (2, 1));
}
