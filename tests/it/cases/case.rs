//! One case: a node class, for most a NodeClaim, and the facts of the region and of the cluster.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use whittle_api::karpenter::{CapacityReservationSelectorTerm, Ec2NodeClass, Ec2NodeClassStatus, NodeClaim};
use whittle_api::labels;
use whittle_claims::{Claim, ClaimKey, ClaimSpec, OverlaidPrice};
use whittle_ec2::facts::describe::from_describe;
use whittle_ec2::facts::{Catalog, InstanceTypeFacts, Zone, tables};
use whittle_ec2::kubelet::Expressions;
use whittle_ec2::network::{ClusterInfo, PlacementGroup};
use whittle_ports::Settings;
use whittle_sim::region::VPC;
use whittle_units::{ClusterName, Price, Timestamp};

/// A YAML file of `launch/`, `types/variants/` or `userdata/`.
pub(crate) struct Case {
    /// As `refresh` finds it in the cluster: without a status.
    pub(crate) class: Ec2NodeClass,
    /// What Karpenter was given as the result of its lookups.
    pub(crate) resolved: Ec2NodeClassStatus,
    pub(crate) claim: Option<NodeClaim>,
    pub(crate) facts: Value,
    folder: PathBuf,
}

impl Case {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| format!("no YAML: {error}"))?;
        let of = |kind: &str| documents.iter().find(|document| document["kind"] == kind).cloned();
        let parsed = |error: serde_json::Error| error.to_string();
        let mut class: Ec2NodeClass = serde_json::from_value(of("EC2NodeClass").ok_or("no EC2NodeClass")?).map_err(parsed)?;
        let claim = of("NodeClaim").map(serde_json::from_value).transpose().map_err(parsed)?;
        let resolved = std::mem::take(&mut class.status);
        if class.spec.capacity_reservation_selector_terms.is_none() && !resolved.capacity_reservations.is_empty() {
            let by_id =
                |id: &String| CapacityReservationSelectorTerm { id: Some(id.clone()), ..CapacityReservationSelectorTerm::default() };
            class.spec.capacity_reservation_selector_terms =
                Some(resolved.capacity_reservations.iter().map(|each| by_id(&each.id)).collect());
        }
        let facts = of("Facts").ok_or("no Facts")?;
        Ok(Self { class, resolved, claim, facts, folder: path.parent().unwrap_or(path).to_owned() })
    }

    /// A case without types of its own.
    pub(super) fn without_files(class: Ec2NodeClass, facts: Value) -> Self {
        Self { class, resolved: Ec2NodeClassStatus::default(), claim: None, facts, folder: PathBuf::new() }
    }

    pub(crate) fn text(&self, pointer: &str) -> String {
        self.facts.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        self.facts[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub(crate) fn counts(&self, name: &str) -> BTreeMap<String, u32> {
        let given = self.facts[name].as_object().into_iter().flatten();
        given.filter_map(|(id, count)| Some((id.clone(), u32::try_from(count.as_u64()?).ok()?))).collect()
    }

    pub(crate) fn cluster(&self) -> ClusterName {
        ClusterName::new(self.text("/cluster/name"))
    }

    /// As the case says, or one for which EKS publishes images of the class's alias.
    pub(crate) fn kubernetes_version(&self) -> String {
        let alias = self.class.spec.ami_selector_terms.iter().find_map(|term| term.alias.as_deref()).unwrap_or_default();
        match (self.text("/cluster/version"), alias.split('@').next().unwrap_or_default()) {
            (given, _) if !given.is_empty() => given,
            (_, "al2") => "1.32".to_owned(),
            (_, "windows2025") => "1.35".to_owned(),
            _ => "1.33".to_owned(),
        }
    }

    pub(crate) fn cluster_info(&self) -> ClusterInfo {
        ClusterInfo {
            name: self.cluster(),
            endpoint: self.text("/cluster/endpoint"),
            certificate_authority: self.text("/cluster/caBundle"),
            version: self.kubernetes_version(),
            service_cidr: self.text("/cluster/serviceCIDR"),
            ipv6: self.text("/cluster/serviceCIDR").contains(':'),
            vpc: VPC.to_owned(),
            arn: String::new(),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        let given = &self.facts["settings"];
        let mut settings = Settings::default();
        settings.scheduling.lower_min_values = given["minValuesPolicy"] == "BestEffort";
        settings.scheduling.reserved_capacity = given["reservedCapacity"].as_bool().unwrap_or(true);
        settings.reserved_enis = given["reservedENIs"].as_u64().map_or(0, |count| u32::try_from(count).expect("a small number"));
        if let Some(percent) = given["vmMemoryOverheadPercent"].as_f64() {
            settings.vm_memory_overhead_ppm = format!("{:.0}", percent * 1e6).parse().expect("a share");
        }
        settings.node_class_expressions = if given["nodeClassCEL"] == true { Expressions::Evaluated } else { Expressions::Ignored };
        settings
    }

    /// The region's types, zones and prices. A case without prices gets the same for all, one without types those of the offline region.
    pub(crate) fn catalog(&self) -> Catalog {
        let file = self.text("/typesFile");
        if file.is_empty() {
            return whittle_ec2::facts::offline::catalog(&self.text("/region")).expect("an offline region");
        }
        // Beside the case, or in the folder above.
        let beside = [self.folder.join(&file), self.folder.join("..").join(&file)];
        let file = beside.iter().find(|path| path.exists()).expect("the file of types exists");
        let all = std::fs::read_to_string(file).expect("the file of types can be read");
        let all: Vec<Value> = serde_json::from_str(&all).expect("types as EC2 describes them");
        let wanted = self.texts("types");
        let types: Vec<InstanceTypeFacts> =
            all.iter().map(from_describe).filter(|facts| wanted.is_empty() || wanted.contains(&facts.name)).collect();
        let (region, zones) = (self.text("/region"), self.texts("zones"));
        let offered = |name: &str| match self.facts["offered"][name].as_array() {
            Some(some) => some.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            None => zones.clone(),
        };
        let zone_id = |zone: &str| self.resolved.subnets.iter().find(|subnet| subnet.zone == zone).map(|subnet| subnet.zone_id.clone());
        let mut catalog = Catalog {
            region: region.as_str().into(),
            zones: zones.iter().map(|zone| Zone { name: zone.clone(), id: zone_id(zone).unwrap_or_default() }).collect(),
            offered: types.iter().map(|facts| (facts.name.clone(), offered(&facts.name))).collect(),
            ..Catalog::default()
        };
        self.set_prices(&mut catalog, &types, &zones);
        catalog.types = types;
        let mut catalog = catalog.normalized();
        // As in the price list of a region.
        catalog.on_demand.entry("m5.metal".to_owned()).or_insert(Price::from_dollars(4.608));
        catalog
    }

    fn set_prices(&self, catalog: &mut Catalog, types: &[InstanceTypeFacts], zones: &[String]) {
        let Some(on_demand) = self.facts["onDemandPrices"].as_object() else {
            let one = Price::from_dollars(1.0);
            catalog.on_demand = types.iter().map(|facts| (facts.name.clone(), one)).collect();
            let everywhere: BTreeMap<String, Price> = zones.iter().map(|zone| (zone.clone(), one)).collect();
            catalog.spot = types.iter().map(|facts| (facts.name.clone(), everywhere.clone())).collect();
            return;
        };
        let dollars = |value: &Value| Price::from_dollars(value.as_f64().expect("a price"));
        catalog.on_demand = tables::static_on_demand_prices(&self.text("/region"));
        catalog.on_demand.extend(on_demand.iter().map(|(name, price)| (name.clone(), dollars(price))));
        let spot = self.facts["spotPrices"].as_object().into_iter().flatten();
        let by_zone = |of: &Value| of.as_object().into_iter().flatten().map(|(zone, price)| (zone.clone(), dollars(price))).collect();
        catalog.spot = spot.map(|(name, of)| (name.clone(), by_zone(of))).collect();
    }

    pub(crate) fn placement_groups(&self) -> Vec<PlacementGroup> {
        let text = |group: &Value, name: &str| group[name].as_str().unwrap_or_default().to_owned();
        let partitions = |group: &Value| u32::try_from(group["PartitionCount"].as_u64().unwrap_or_default()).expect("a small number");
        let group = |group: &Value| PlacementGroup {
            id: text(group, "GroupId"),
            name: text(group, "GroupName"),
            strategy: text(group, "Strategy"),
            partition_count: partitions(group),
            state: text(group, "State"),
        };
        self.facts["placementGroups"].as_array().into_iter().flatten().map(group).collect()
    }

    /// What a plan stores with a claim whose prices are overlaid. A case says only that they are, and its prices are EC2's own.
    fn overlaid_prices(&self) -> Vec<OverlaidPrice> {
        let is_overlaid = self.claim.as_ref().is_some_and(|claim| claim.metadata.annotations.contains_key(labels::PRICE_OVERLAY_APPLIED));
        let instance_types = self.catalog().types.iter().map(|facts| facts.name.clone()).collect();
        let unchanged = OverlaidPrice { price: "+0".to_owned(), instance_types, offerings: BTreeSet::new() };
        is_overlaid.then_some(unchanged).into_iter().collect()
    }

    /// The claim of one attempt: each is another claim of the same content.
    pub(crate) fn planned(&self, attempt: usize, now: Timestamp) -> Claim {
        let claim = self.claim.as_ref().expect("a NodeClaim");
        let asked = &claim.spec;
        let spec = ClaimSpec {
            node_pool: claim.node_pool().unwrap_or_default().to_owned(),
            node_class: asked.node_class_ref.clone(),
            labels: claim.metadata.labels.clone().into_inner(),
            annotations: claim.metadata.annotations.clone().into_inner(),
            requirements: asked.requirements.clone(),
            taints: asked.taints.clone(),
            startup_taints: asked.startup_taints.clone(),
            requests: asked.resources.requests.clone(),
            overlaid_prices: self.overlaid_prices(),
            ..ClaimSpec::default()
        };
        let name = format!("{}-{attempt}", claim.metadata.name);
        Claim::planned(ClaimKey { cluster: self.cluster(), name: name.as_str().into() }, format!("uid-{attempt}"), spec, now)
    }
}
