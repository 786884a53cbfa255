use super::screen::Screen;
use super::*;
use crate::money::Currency;
use crate::source::{Manifests, PriceList};

const CLUSTER: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: a, creationTimestamp: "2025-12-01T00:00:00Z", labels: {
  topology.kubernetes.io/region: eu-west-1, topology.kubernetes.io/zone: eu-west-1a, node.kubernetes.io/instance-type: m5.large,
  karpenter.sh/capacity-type: on-demand, karpenter.sh/nodepool: default, karpenter.sh/initialized: "true"}},
  spec: {providerID: "aws:///eu-west-1a/i-1"}, status: {allocatable: {cpu: 2, memory: 8Gi, pods: 10}}}
---
{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: default-1, deletionTimestamp: "2026-01-02T00:00:00Z"},
  spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []},
  status: {providerID: "aws:///eu-west-1a/i-1", nodeName: a}}
---
{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: default-2, labels: {karpenter.sh/nodepool: default}},
  spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []},
  status: {conditions: [{type: Launched, status: Unknown}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: b}, spec: {unschedulable: true}, status: {allocatable: {cpu: 4, memory: 8Gi}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 1500m, memory: 1Gi}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: done}, spec: {nodeName: a, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Succeeded}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, creationTimestamp: "2026-01-03T00:00:00Z", labels: {pod-template-hash: 5c9},
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5c9, uid: u, controller: true}]},
  spec: {containers: [{name: c}]}, status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable,
  message: "0/2 nodes are\e[31m available"}]}}
"#;

fn read() -> Manifests {
    crate::source::read_text("cluster.yaml", CLUSTER).unwrap()
}

fn view() -> View {
    let read = read();
    let Market { prices, currency, .. } = Offers::default().prices(&read, || None).unwrap();
    View::of(&read, &prices, currency)
}

fn screen() -> Screen {
    Screen { paint: false, columns: None, now: "2026-01-03T00:01:00Z".parse().unwrap() }
}

#[test]
fn every_machine_has_its_state_its_use_and_its_price() {
    let view = view();
    let text = screen().whole(&view, Sort::Name);
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    let of_a = row("a ");
    assert!(of_a.contains("████████░░  75 %") && of_a.contains("█░░░░░░░░░  13 %"), "{text}");
    assert!(of_a.contains("m5.large  on-demand  eu-west-1a  default") && of_a.contains("$0.0960/h  33d  deleting"), "{text}");
    assert!(row("b ").ends_with("cordoned") && !row("b ").contains("on-demand"), "{text}");
    assert!(row("default-2").ends_with("launching"), "{text}");
    assert!(view.machines.iter().all(|machine| machine.created.is_some() == (machine.name == "a")), "no age is invented: {view:?}");
    assert!(text.starts_with("3 nodes (1 launching, 1 cordoned, 1 deleting), 1 pod; $0.0960/h ($70.08 a month), without 1 node"), "{text}");
    assert!(text.contains("CPU    ███░░░░░░░  25 %: 1.5 of 6.0 requested"), "{text}");
}

#[test]
fn what_waits_says_why_and_cannot_act_on_a_terminal() {
    let text = screen().whole(&view(), Sort::Name);
    assert!(
        text.contains("1 pod waits for a node\n  1 of Deployment default/web, the first for 60s: 0/2 nodes are [31m available"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    let painted = Screen { paint: true, ..screen() }.whole(&view(), Sort::Name);
    assert!(painted.contains("\u{1b}[33mdeleting\u{1b}[0m") && !painted.contains("\u{1b}[31m available"), "{painted:?}");
}

#[test]
fn an_owner_that_nothing_is_called_like_is_one_short_line() {
    let owner = |name: &str| {
        let text = CLUSTER.replace("name: web-5c9, uid: u", &format!("name: {name:?}, uid: u"));
        let read = crate::source::read_text("cluster.yaml", &text).unwrap();
        let Market { prices, currency, .. } = Offers::default().prices(&read, || None).unwrap();
        View::of(&read, &prices, currency).waiting[0].owner.clone()
    };
    assert_eq!(owner("web-5c9"), "Deployment default/web");
    assert_eq!(owner("a\nerror: the cluster is lost"), "ReplicaSet default/a error: the cluster is lost");
    let long = owner(&"x".repeat(100_000));
    assert!(long.starts_with("ReplicaSet default/xxx") && long.contains('…') && long.chars().count() < 500, "{long}");
    let name = "x".repeat(253);
    assert_eq!(owner(&name), format!("ReplicaSet default/{name}"), "names of Kubernetes stay whole");
}

#[test]
fn rows_are_sorted_by_the_column_that_is_asked_for() {
    let order = |sort| {
        let text = screen().whole(&view(), sort);
        let rows = text.lines().skip_while(|line| !line.starts_with("NODE")).skip(1).take_while(|line| !line.is_empty());
        rows.map(|row| row.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(order(Sort::Name), ["a", "b", "default-2"]);
    assert_eq!(order(Sort::Price)[0], "a");
    assert_eq!(order(Sort::Cpu), ["b", "a", "default-2"]);
    assert_eq!(order(Sort::Age)[0], "a");
    let all = <Sort as ValueEnum>::value_variants();
    let around = std::iter::successors(Some(Sort::Name), |sort| Some(sort.next())).take(all.len() + 1).collect::<Vec<_>>();
    assert!(all.iter().all(|sort| around.contains(sort)) && around.last() == Some(&Sort::Name), "{around:?}");
}

#[test]
fn lines_are_cut_to_the_terminal() {
    let narrow = Screen { columns: Some(20), ..screen() };
    let text = narrow.whole(&view(), Sort::Name);
    assert!(text.lines().all(|line| line.chars().count() <= 20), "{text}");
    let turned = narrow.line("a\u{202e}b, and more than fits");
    assert_eq!((turned.as_str(), turned.chars().count()), ("a\\u202eb, and more t", 20), "as it is shown");
    let empty = crate::source::read_text("pools.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: a}}").unwrap();
    let text = screen().whole(&View::of(&empty, &PriceList::default(), Currency::default()), Sort::Age);
    assert!(text.ends_with("there are no nodes\n"), "{text}");
}
