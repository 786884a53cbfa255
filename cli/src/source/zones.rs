//! The names of zones in one account: letters differ between accounts, ids do not, and the tables name zones after their ids.

use super::manifests::Manifests;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::{ObjectMeta, labels};
use whittle_ec2::facts::{Catalog, Zone};

/// The tables of a region with the names that zones have in the account of these manifests, as far as they tell: a type that runs in
/// us-east-1c may be sold there, though it is not in use1-az3, after which the tables name that zone.
pub(super) fn named_as_in(manifests: &Manifests, mut tables: Catalog) -> Catalog {
    let names = names(&tables.zones, known_zones(manifests));
    if names.iter().all(|(table, account)| table == account) {
        return tables;
    }
    let name = |zone: &str| names.get(zone).cloned().unwrap_or_else(|| zone.to_owned());
    for zone in &mut tables.zones {
        zone.name = name(&zone.name);
    }
    for zone in tables.offered.values_mut().flatten() {
        *zone = name(zone);
    }
    for prices in tables.spot.values_mut() {
        *prices = std::mem::take(prices).into_iter().map(|(zone, price)| (name(&zone), price)).collect();
    }
    tables.normalized()
}

/// Zones of which the manifests tell both name and id; what EC2 said of subnets first.
fn known_zones(manifests: &Manifests) -> impl Iterator<Item = Zone> {
    let subnets = manifests.node_classes.iter().flat_map(|class| &class.status.subnets);
    let of_subnets = subnets.map(|subnet| Zone { name: subnet.zone.clone(), id: subnet.zone_id.clone() });
    let nodes = manifests.objects.nodes.iter().map(|node| &node.metadata);
    let claims = manifests.objects.node_claims.iter().map(|claim| &claim.metadata);
    of_subnets.chain(nodes.chain(claims).filter_map(of_labels))
}

fn of_labels(metadata: &ObjectMeta) -> Option<Zone> {
    let label = |key| metadata.label(key).map(str::to_owned);
    Some(Zone { name: label(labels::ZONE)?, id: label(labels::ZONE_ID)? })
}

/// The account's name of each zone, by its name in the tables. A zone whose name in the account is unknown keeps its own, unless
/// another has it.
fn names(zones: &[Zone], known: impl Iterator<Item = Zone>) -> BTreeMap<String, String> {
    let mut by_id: BTreeMap<String, String> = BTreeMap::new();
    for Zone { name, id } in known {
        let is_of_region = !name.is_empty() && zones.iter().any(|zone| zone.id == id);
        // Two names of an id, or two ids of a name, are of two accounts: the first counts.
        if is_of_region && !by_id.contains_key(&id) && by_id.values().all(|other| *other != name) {
            by_id.insert(id, name);
        }
    }
    let mut free: BTreeSet<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
    by_id.values().for_each(|name| _ = free.remove(name.as_str()));
    let mut names = BTreeMap::new();
    let mut displaced = Vec::new();
    for zone in zones {
        match by_id.get(&zone.id) {
            Some(name) => _ = names.insert(zone.name.clone(), name.clone()),
            None if free.remove(zone.name.as_str()) => _ = names.insert(zone.name.clone(), zone.name.clone()),
            None => displaced.push(zone.name.clone()),
        }
    }
    // As many names are free as zones have lost theirs, or more.
    names.extend(displaced.into_iter().zip(free.into_iter().map(str::to_owned)));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Offers, read_text};
    use whittle_api::catalog::Offering;
    use whittle_ec2::facts::offline;

    /// A node of an account in which us-east-1c is use1-az1, and a class with a subnet in us-east-1a, which is use1-az4 there.
    const ACCOUNT: &str = "
apiVersion: v1
kind: Node
metadata:
  name: node-1
  labels:
    topology.kubernetes.io/region: us-east-1
    topology.kubernetes.io/zone: us-east-1c
    topology.k8s.aws/zone-id: use1-az1
    karpenter.sh/capacity-type: spot
    node.kubernetes.io/instance-type: m5.large
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: a}
spec:
  role: r
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
status:
  subnets:
  - {id: subnet-1, zone: us-east-1a, zoneID: use1-az4}
  - {id: subnet-2, zone: us-east-1c, zoneID: use1-az1}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}, requirements: []}}}
";

    fn zone(name: &str, id: &str) -> Zone {
        Zone { name: name.to_owned(), id: id.to_owned() }
    }

    #[track_caller]
    fn check(told: &[(&str, &str)], want: &[(&str, &str)]) {
        let zones = [zone("a", "az1"), zone("b", "az2"), zone("c", "az3")];
        let named = names(&zones, told.iter().map(|(name, id)| zone(name, id)));
        let want: BTreeMap<String, String> = want.iter().map(|(table, account)| ((*table).to_owned(), (*account).to_owned())).collect();
        assert_eq!(named, want);
    }

    #[test]
    fn zones_have_the_names_that_are_told_and_no_two_the_same() {
        let same = [("a", "a"), ("b", "b"), ("c", "c")];
        check(&[], &same);
        check(&[("b", "az2")], &same);
        check(&[("c", "az1")], &[("a", "c"), ("b", "b"), ("c", "a")]);
        check(&[("c", "az1"), ("a", "az2")], &[("a", "c"), ("b", "a"), ("c", "b")]);
        check(&[("d", "az1")], &[("a", "d"), ("b", "b"), ("c", "c")]);
    }

    #[test]
    fn what_contradicts_or_is_of_another_region_counts_for_nothing() {
        let swapped = [("a", "c"), ("b", "b"), ("c", "a")];
        check(&[("c", "az1"), ("b", "az1"), ("c", "az2")], &swapped);
        check(&[("x", "bos1-az1"), ("", "az2"), ("c", "az1"), ("b", "")], &swapped);
    }

    #[test]
    fn tables_are_renamed_as_a_whole() {
        let read = read_text("account.yaml", ACCOUNT).unwrap();
        let tables = offline::catalog("us-east-1").unwrap();
        let named = named_as_in(&read, tables.clone());
        let ids = |tables: &Catalog| tables.zones.iter().map(|zone| zone.id.clone()).collect::<BTreeSet<_>>();
        assert_eq!((named.zone_id("us-east-1c"), named.zone_id("us-east-1a"), ids(&named)), ("use1-az1", "use1-az4", ids(&tables)));
        let sold =
            |tables: &Catalog| tables.offered["m5.large"].iter().map(|name| tables.zone_id(name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(sold(&named), sold(&tables));
        assert_eq!(named.spot_price("m5.large", "us-east-1c"), tables.spot_price("m5.large", "us-east-1a"));
        assert!(named.offered.values().all(|zones| zones.is_sorted()));
        // An account that names its zones as the tables do, or a dump that does not tell.
        let untold = read_text("untold.yaml", &ACCOUNT.replace("topology.k8s.aws/zone-id", "example.com/other").replace("zoneID", "other"));
        assert_eq!(named_as_in(&untold.unwrap(), tables.clone()), tables);
    }

    /// Nodes in a zone of that name were told to have drifted, `InstanceTypeNotFound`, and spot prices of them were not known.
    #[test]
    fn a_type_is_sold_in_the_zone_in_which_it_runs() {
        let read = read_text("account.yaml", ACCOUNT).unwrap();
        let market = Offers::default().read(&read).unwrap();
        let large = market.types["p"].find("m5.large").unwrap();
        let zones: BTreeSet<&str> = large.offerings.iter().map(Offering::zone).collect();
        assert_eq!(zones, BTreeSet::from(["us-east-1a", "us-east-1c"]));
        let ids = large.offerings.iter().filter(|offering| offering.zone() == "us-east-1c").filter_map(|one| one.label(labels::ZONE_ID));
        assert_eq!(ids.collect::<BTreeSet<_>>(), BTreeSet::from(["use1-az1"]));
    }
}
