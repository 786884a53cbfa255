//! Running machines of which the built-in tables know no offering. EC2 sells what runs: the tables may lack its newest types, and do not
//! know the letters that zones have in the account.

use std::collections::BTreeMap;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_ec2::facts::Catalog;

/// What helps where types, prices or zones are not known.
pub(super) const OTHERS: &str = "`whittle catalog --help` says how to give others";

/// How many of them are named; more are counted.
const NAMED: usize = 3;

/// The tables, with the zones in which their types run: where a dump tells no ids of zones, a type may run in one that is another here. Its
/// spot price is that of the dearest of the others.
pub(super) fn with_zones_of(objects: &ClusterObjects, mut tables: Catalog) -> Catalog {
    let nodes = objects.nodes.iter().map(|node| &node.metadata);
    let claims = objects.node_claims.iter().map(|claim| &claim.metadata);
    for (instance_type, zone) in nodes.chain(claims).filter_map(place) {
        let is_known = tables.zones.iter().any(|known| known.name == zone);
        let Some(zones) = tables.offered.get_mut(instance_type).filter(|_| is_known) else { continue };
        if !zones.iter().any(|sold| sold == zone) {
            zones.push(zone.to_owned());
            zones.sort();
            // Without a price there, nothing could be said of what runs.
            if let Some(prices) = tables.spot.get_mut(instance_type)
                && let Some(dearest) = prices.values().max().copied()
            {
                prices.entry(zone.to_owned()).or_insert(dearest);
            }
        }
    }
    tables
}

/// Type and zone of a machine.
fn place(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    Some((metadata.label(labels::INSTANCE_TYPE)?, metadata.label(labels::ZONE)?))
}

/// NodeClaims whose machines run what the tables do not have: newer types, and zones of another region. By their names, with type and zone.
pub(super) fn unlisted(objects: &ClusterObjects, tables: &Catalog) -> BTreeMap<String, String> {
    let is_listed =
        |(instance_type, zone): (&str, &str)| tables.offered.get(instance_type).is_some_and(|zones| zones.iter().any(|sold| sold == zone));
    let places = objects.node_claims.iter().filter_map(|claim| Some((&claim.metadata.name, place(&claim.metadata)?)));
    places.filter(|(_, at)| !is_listed(*at)).map(|(name, (of, zone))| (name.clone(), format!("{of} in {zone}"))).collect()
}

/// The note about `unlisted` machines; `None` if there are none.
pub(super) fn assumption(unlisted: &BTreeMap<String, String>, region: &str) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    unlisted.values().for_each(|place| *counts.entry(place.as_str()).or_default() += 1);
    let mut shown: Vec<String> = counts.iter().take(NAMED).map(|(place, machines)| format!("{place} ({machines})")).collect();
    shown.extend(counts.len().checked_sub(NAMED).filter(|more| 0 < *more).map(|more| format!("{more} more")));
    (!unlisted.is_empty()).then(|| {
        format!(
            "machines run that the built-in tables of {region} do not have: {}; since EC2 has what runs, that is no drift here \
             (InstanceTypeNotFound); {OTHERS}",
            shown.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read_text;
    use whittle_ec2::facts::offline;

    fn machine(kind: &str, name: &str, instance_type: &str, zone: &str) -> String {
        let version = if kind == "Node" { "v1" } else { "karpenter.sh/v1" };
        let claim = "spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}";
        let spec = if kind == "Node" { "spec: {}" } else { claim };
        format!(
            "---\n{{apiVersion: {version}, kind: {kind}, metadata: {{name: {name}, labels: {{node.kubernetes.io/instance-type: \
             {instance_type}, topology.kubernetes.io/zone: {zone}}}}}, {spec}}}\n"
        )
    }

    #[test]
    fn a_type_is_sold_in_each_zone_of_the_region_in_which_it_runs() {
        let mut tables = offline::catalog("us-east-1").unwrap();
        tables.offered.insert("m5.large".to_owned(), vec!["us-east-1b".to_owned()]);
        let price = tables.on_demand["m5.large"];
        tables.spot.insert("m5.large".to_owned(), ["a", "b", "c"].map(|letter| (format!("us-east-1{letter}"), price)).into());
        let running = machine("Node", "node-1", "m5.large", "us-east-1c")
            + &machine("NodeClaim", "c", "m5.large", "us-east-1a")
            + &machine("Node", "again", "m5.large", "us-east-1b")
            + &machine("Node", "abroad", "m5.large", "eu-west-1a")
            + &machine("Node", "new", "m99.large", "us-east-1a");
        let objects = read_text("in.yaml", &running).unwrap().objects;
        let found = with_zones_of(&objects, tables.clone());
        assert_eq!(found.offered["m5.large"], ["us-east-1a", "us-east-1b", "us-east-1c"]);
        assert!(!found.offered.contains_key("m99.large"), "nothing else is known of it");
        tables.offered.insert("m5.large".to_owned(), found.offered["m5.large"].clone());
        assert_eq!(found, tables, "nothing else is another");
    }

    #[test]
    fn spot_machines_in_a_zone_that_the_tables_do_not_have_for_their_type_have_a_price() {
        let mut tables = offline::catalog("us-east-1").unwrap();
        tables.offered.insert("m5.large".to_owned(), vec!["us-east-1a".to_owned(), "us-east-1b".to_owned()]);
        let prices = tables.spot.get_mut("m5.large").unwrap();
        prices.retain(|zone, _| zone == "us-east-1a" || zone == "us-east-1b");
        let dearest = prices.values().max().copied();
        let objects = read_text("in.yaml", &machine("Node", "node-1", "m5.large", "us-east-1c")).unwrap().objects;
        let found = with_zones_of(&objects, tables.clone());
        assert_eq!(found.spot_price("m5.large", "us-east-1c"), dearest);
        assert_eq!(found.spot_price("m5.large", "us-east-1a"), tables.spot_price("m5.large", "us-east-1a"));
    }

    #[test]
    fn machines_that_the_tables_do_not_have_are_told_by_type_and_zone() {
        let tables = offline::catalog("us-east-1").unwrap();
        let running = machine("NodeClaim", "known", "m5.large", "us-east-1a")
            + &machine("NodeClaim", "new-1", "m99.large", "us-east-1a")
            + &machine("NodeClaim", "new-2", "m99.large", "us-east-1a")
            + &machine("NodeClaim", "abroad", "m5.large", "eu-west-1a");
        let objects = read_text("in.yaml", &running).unwrap().objects;
        let found = unlisted(&objects, &tables);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["abroad", "new-1", "new-2"]);
        let said = assumption(&found, "us-east-1").unwrap();
        assert!(said.contains("tables of us-east-1 do not have: m5.large in eu-west-1a (1), m99.large in us-east-1a (2); since"), "{said}");
        assert_eq!(assumption(&BTreeMap::new(), "us-east-1"), None);
        let many = (0..5).map(|at| (format!("c{at}"), format!("m{at}.large in a"))).collect();
        assert!(
            assumption(&many, "us-east-1").unwrap().contains("m2.large in a (1), 2 more; since"),
            "{:?}",
            assumption(&many, "us-east-1")
        );
    }
}
