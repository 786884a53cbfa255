//! EC2NodeClass `karpenter.k8s.aws/v1` (api 8).

use super::parts::{self, has, items, str_of};
use super::{Kind, Schema, boolean, int32, int64, list, may, need, object, one_of, text, time};
use crate::karpenter::AmiFamily;
use serde_json::{Value, json};

pub(super) const VOLUME_SIZE: &str = r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$";

pub(super) fn kind() -> Kind {
    Kind { api_version: "karpenter.k8s.aws/v1", kind: "EC2NodeClass", spec: spec(), spec_required: false, status: Some(status()) }
}

fn spec() -> Schema {
    let mut fields = vec![
        need("subnetSelectorTerms", subnet_terms()),
        need("securityGroupSelectorTerms", security_group_terms()),
        may("capacityReservationSelectorTerms", reservation_terms()),
        may("placementGroupSelector", placement_group()),
        need("amiSelectorTerms", ami_terms()),
        may("amiFamily", one_of(&AmiFamily::NAMES).about("how the nodes are bootstrapped; taken from an alias if there is one")),
        may("role", identity("IAM role of the nodes; a profile is made for it")),
        may("instanceProfile", identity("instance profile of the nodes, instead of a role")),
        may("kubelet", parts::anything().about("settings of the kubelet, as its configuration file has them")),
        may("ipPrefixCount", int32().range(0, None).about("number of IPv4 prefixes of the primary interface")),
    ];
    fields.extend(common_fields());
    identity_rules(family_rules(Schema::new(super::Shape::Object(fields)).about("what machines are started, and how")))
}

/// Fields that v1beta1 has as well.
pub(super) fn common_fields() -> Vec<super::Field> {
    let metadata =
        json!({"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required"});
    let nested = object([may("nestedVirtualization", one_of(&["enabled", "disabled"]).about("whether machines can run in the machine"))]);
    vec![
        may("associatePublicIPAddress", boolean().about("whether nodes get public addresses; the subnet decides without it")),
        may("userData", text().about("put in front of what bootstraps the node")),
        may("tags", tags()),
        may("blockDeviceMappings", block_devices()),
        may("instanceStorePolicy", one_of(&["RAID0"]).about("what becomes of local disks")),
        may("networkInterfaces", network_interfaces()),
        may("detailedMonitoring", boolean().about("whether EC2 reports figures every minute")),
        may("metadataOptions", metadata_options(1).default(metadata)),
        may("connectionTracking", connection_tracking()),
        may("context", text().about("a field that EC2 reserves")),
        may("cpuOptions", nested.about("options of the processor")),
    ]
}

fn identity(about: &'static str) -> Schema {
    text().about(about).rule("self != ''", "may not be empty: name it, or leave the field out", |name| name != "")
}

fn identity_rules(spec: Schema) -> Schema {
    spec.rule("has(self.role) != has(self.instanceProfile)", "give exactly one of role and instanceProfile", |spec| {
        has(spec, "role") != has(spec, "instanceProfile")
    })
}

fn aliases(spec: &Value) -> impl Iterator<Item = &str> {
    spec.get("amiSelectorTerms").map_or(&[] as &[Value], items).iter().filter_map(|term| term.get("alias").and_then(Value::as_str))
}

fn alias_family(alias: &str) -> &str {
    alias.split('@').next().unwrap_or_default()
}

fn family_rules(spec: Schema) -> Schema {
    // An object that was written as v1beta1 may have no terms.
    spec.rule(
        "has(self.amiFamily) || !has(self.amiSelectorTerms) || self.amiSelectorTerms.exists(t, has(t.alias))",
        "without an alias the family is not known: give amiFamily, or an alias such as al2023@latest",
        |spec| has(spec, "amiFamily") || aliases(spec).next().is_some(),
    )
    .rule(
        "!has(self.amiFamily) || self.amiFamily == 'Custom' || !has(self.amiSelectorTerms) || \
         !self.amiSelectorTerms.exists(t, has(t.alias)) || \
         self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.split('@')[0] == self.amiFamily.lowerAscii())",
        "amiFamily is not the family of the alias: leave amiFamily out, or write the alias's family or Custom",
        |spec| {
            let family = str_of(spec, "amiFamily").to_ascii_lowercase();
            family.is_empty()
                || family == "custom"
                || aliases(spec).next().is_none()
                || aliases(spec).any(|alias| alias_family(alias) == family)
        },
    )
}

/// Whether each term has one of the fields.
fn each_has_one(list: &Value, fields: &[&str]) -> bool {
    items(list).iter().all(|term| fields.iter().any(|field| has(term, field)))
}

/// Whether some term does not mix `id` (or the like) with other fields; false for an empty list.
fn not_all_mix(list: &Value, alone: &str, others: &[&str]) -> bool {
    !items(list).iter().all(|term| has(term, alone) && others.iter().any(|field| has(term, field)))
}

pub(super) fn subnet_terms() -> Schema {
    list(object([may("tags", parts::selecting_tags()), may("id", text().pattern("subnet-[0-9a-z]+").about("id of a subnet"))]))
        .max(30)
        .about("subnets for the nodes; one that matches any term is used")
        .rule("self.size() != 0", "name at least one subnet: give a term with tags or an id", |list| {
            list.as_array().is_none_or(|l| !l.is_empty())
        })
        .rule("self.all(t, has(t.tags) || has(t.id))", "a term that says nothing selects nothing: give tags or an id", |list| {
            each_has_one(list, &["tags", "id"])
        })
        .rule("!self.all(t, has(t.id) && has(t.tags))", "an id needs no tags: split the term in two, or remove one of them", |list| {
            not_all_mix(list, "id", &["tags"])
        })
}

pub(super) fn security_group_terms() -> Schema {
    list(object([
        may("tags", parts::selecting_tags()),
        may("id", text().pattern("sg-[0-9a-z]+").about("id of a security group")),
        may("name", text().about("name of a security group, not its Name tag")),
    ]))
    .max(30)
    .about("security groups of the nodes; each that matches any term is used")
    .rule("self.size() != 0", "name at least one security group: give a term with tags, an id or a name", |list| {
        list.as_array().is_none_or(|l| !l.is_empty())
    })
    .rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name))",
        "a term that says nothing selects nothing: give tags, an id or a name",
        |list| each_has_one(list, &["tags", "id", "name"]),
    )
    .rule(
        "!self.all(t, has(t.id) && (has(t.tags) || has(t.name)))",
        "an id excludes tags and a name: write each in a term of its own",
        |list| not_all_mix(list, "id", &["tags", "name"]),
    )
    .rule(
        "!self.all(t, has(t.name) && (has(t.tags) || has(t.id)))",
        "a name excludes tags and an id: write each in a term of its own",
        |list| not_all_mix(list, "name", &["tags", "id"]),
    )
}

fn reservation_terms() -> Schema {
    list(object([
        may("tags", parts::selecting_tags()),
        may("id", text().pattern("^cr-[0-9a-z]+$").about("id of a capacity reservation")),
        may("ownerID", text().pattern("^[0-9]{12}$").about("account that owns it")),
        may("instanceMatchCriteria", one_of(&["open", "targeted"]).about("who may use it")),
    ]))
    .max(30)
    .about("capacity reservations that are used; one that matches any term is")
    .rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.instanceMatchCriteria))",
        "a term that says nothing selects nothing: give tags, an id or instanceMatchCriteria",
        |list| each_has_one(list, &["tags", "id", "instanceMatchCriteria"]),
    )
    .rule(
        "!self.all(t, has(t.id) && (has(t.tags) || has(t.ownerID) || has(t.instanceMatchCriteria)))",
        "an id excludes everything else in its term, and an empty list selects nothing: split the term, or leave the list out",
        |list| not_all_mix(list, "id", &["tags", "ownerID", "instanceMatchCriteria"]),
    )
}

fn placement_group() -> Schema {
    object([
        may("name", text().min(1).about("name of a placement group")),
        may("id", text().pattern("^pg-[0-9a-z]+$").about("id of a placement group")),
    ])
    .about("the placement group that instances are started in")
    .rule("has(self.name) || has(self.id)", "name the placement group: give its name or its id", |group| {
        has(group, "name") || has(group, "id")
    })
    .rule("!(has(self.name) && has(self.id))", "name and id exclude each other: keep one", |group| {
        !(has(group, "name") && has(group, "id"))
    })
}

/// Fields of both versions.
pub(super) fn ami_term_fields() -> Vec<super::Field> {
    vec![
        may("tags", parts::selecting_tags()),
        may("id", text().pattern("ami-[0-9a-z]+").about("id of an image")),
        may("name", text().about("name of images, * and ? stand for other letters")),
        may("owner", text().about("account id or alias (self, amazon) that owns the images")),
    ]
}

fn ami_terms() -> Schema {
    let mut fields = ami_term_fields();
    fields.push(may("alias", alias()));
    fields.push(may("ssmParameter", text().about("name of an SSM parameter that holds an image id")));
    list(Schema::new(super::Shape::Object(fields)))
        .min(1)
        .max(30)
        .about("images for the nodes; of those that match any term the newest that fits is used")
        .rule(
            "self.all(t, has(t.tags) || has(t.id) || has(t.name) || has(t.alias) || has(t.ssmParameter))",
            "a term needs tags, an id, a name, an alias or an ssmParameter; an owner alone is not enough",
            |list| each_has_one(list, &["tags", "id", "name", "alias", "ssmParameter"]),
        )
        .rule(
            "!self.exists(t, has(t.id) && (has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",
            "an id excludes alias, tags, name and owner: write each in a term of its own",
            |list| !items(list).iter().any(|t| has(t, "id") && ["alias", "tags", "name", "owner"].iter().any(|f| has(t, f))),
        )
        .rule(
            "!self.exists(t, has(t.alias) && (has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",
            "an alias excludes id, tags, name and owner: leave them out",
            |list| !items(list).iter().any(|t| has(t, "alias") && ["id", "tags", "name", "owner"].iter().any(|f| has(t, f))),
        )
        .rule("!(self.exists(t, has(t.alias)) && self.size() != 1)", "an alias must be the only term: remove the others", |list| {
            !(items(list).iter().any(|t| has(t, "alias")) && items(list).len() != 1)
        })
}

fn alias() -> Schema {
    let families: Vec<&str> = AmiFamily::all().filter_map(AmiFamily::alias).collect();
    let (last, others) = families.split_last().expect("a family has images of its own");
    text()
        .max(30)
        .about("images of a family in a version, al2023@latest")
        .rule("self.matches('^[a-zA-Z0-9]+@.+$')", "an alias is a family, an @ and a version, such as al2023@latest", |alias| {
            alias.as_str().is_none_or(|alias| super::check::matches("^[a-zA-Z0-9]+@.+$", alias))
        })
        .rule(
            format!("self.split('@')[0] in ['{}']", families.join("', '")),
            format!("there is no such family: {} and {last} have aliases", others.join(", ")),
            |alias| {
                let known = |word| AmiFamily::all().any(|family| family.alias() == Some(word));
                alias.as_str().is_none_or(|alias| known(alias_family(alias)))
            },
        )
        .rule("!self.startsWith('windows') || self.endsWith('@latest')", "Windows images cannot be pinned: write @latest", |alias| {
            alias.as_str().is_none_or(|alias| !alias.starts_with("windows") || alias.ends_with("@latest"))
        })
}

pub(super) fn tags() -> Schema {
    let system = "self.all(k, !(k in ['eks:eks-cluster-name', 'karpenter.sh/nodepool', 'karpenter.sh/nodeclaim', \
                  'karpenter.k8s.aws/ec2nodeclass']) && !k.startsWith('kubernetes.io/cluster'))";
    parts::texts()
        .about("tags of everything that is made for the nodes")
        .rule("self.all(k, k != '')", "a tag needs a key: remove the entry with the empty one", |tags| {
            parts::all_keys(tags, |key| !key.is_empty())
        })
        .rule(system, "tags of the cluster, the pool, the claim and the class are set by the system: leave them out", |tags| {
            parts::all_keys(tags, |key| {
                let system = ["eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"];
                !system.contains(&key) && !key.starts_with("kubernetes.io/cluster")
            })
        })
}

pub(super) fn block_devices() -> Schema {
    let volume_types: &[&str] = &["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"];
    let ebs = object([
        may("deleteOnTermination", boolean().about("whether the volume goes with the instance")),
        may("encrypted", boolean().about("whether it is encrypted")),
        may("iops", int64().about("operations a second")),
        may("kmsKeyID", text().about("key that encrypts it")),
        may("snapshotID", text().about("snapshot that it is made from")),
        may("throughput", int64().about("MiB a second, gp3 only")),
        may("volumeInitializationRate", int32().range(100, 300).about("MiB a second at which the snapshot is fetched")),
        may("volumeSize", text().pattern(VOLUME_SIZE).about("size, 1Gi to 64T")),
        may("volumeType", one_of(volume_types).about("kind of volume")),
    ])
    .about("an EBS volume")
    .rule("has(self.snapshotID) || has(self.volumeSize)", "the size is not known: give volumeSize, or a snapshotID", |ebs| {
        has(ebs, "snapshotID") || has(ebs, "volumeSize")
    })
    .rule(
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "volumeInitializationRate needs a snapshotID",
        |ebs| !has(ebs, "volumeInitializationRate") || !str_of(ebs, "snapshotID").is_empty(),
    );
    list(object([
        may("deviceName", text().about("name of the device, /dev/xvda")),
        may("ebs", ebs),
        may("rootVolume", boolean().about("whether it is the root volume, whose size pods can use")),
    ]))
    .max(50)
    .about("disks of the nodes; the family's own without it")
    .rule(
        "self.filter(m, has(m.rootVolume) && m.rootVolume).size() <= 1",
        "there is one root volume: set rootVolume on one mapping only",
        |list| items(list).iter().filter(|mapping| mapping.get("rootVolume") == Some(&Value::Bool(true))).count() <= 1,
    )
}

fn network_interfaces() -> Schema {
    list(object([
        need("networkCardIndex", int32().range(0, None).about("network card that it is on")),
        need("deviceIndex", int32().range(0, None).about("its place on the card")),
        need("interfaceType", one_of(&["interface", "efa-only"]).about("interface, or efa-only for one without addresses")),
    ]))
    .max(150)
    .about("network interfaces of the nodes")
    .rule(
        "self.size() == 0 || self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && i.interfaceType == 'interface')",
        "the primary interface is missing: add networkCardIndex 0, deviceIndex 0 of interfaceType interface",
        |list| items(list).is_empty() || items(list).iter().any(|nic| place(nic) == (0, 0) && str_of(nic, "interfaceType") == "interface"),
    )
    .rule(
        "self.all(i, self.filter(j, j.networkCardIndex == i.networkCardIndex && (j.deviceIndex == i.deviceIndex || \
         (i.interfaceType == 'efa-only' && j.interfaceType == 'efa-only'))).size() == 1)",
        "two interfaces are in one place, or a card has two efa-only interfaces: give each its own place, and a card one efa-only",
        |list| {
            let clash = |a: &Value, b: &Value| {
                let both_efa = [a, b].iter().all(|nic| str_of(nic, "interfaceType") == "efa-only");
                place(a).0 == place(b).0 && (place(a).1 == place(b).1 || both_efa)
            };
            items(list).iter().all(|a| items(list).iter().filter(|b| clash(a, b)).count() == 1)
        },
    )
}

fn place(nic: &Value) -> (i64, i64) {
    let number = |key: &str| nic.get(key).and_then(Value::as_i64).unwrap_or(-1);
    (number("networkCardIndex"), number("deviceIndex"))
}

pub(super) fn metadata_options(hop_limit: i64) -> Schema {
    let switch: &[&str] = &["enabled", "disabled"];
    object([
        may("httpEndpoint", one_of(switch).default(json!("enabled")).about("whether the endpoint answers")),
        may("httpProtocolIPv6", one_of(switch).default(json!("disabled")).about("whether it answers over IPv6")),
        may("httpPutResponseHopLimit", int64().range(1, 64).default(json!(hop_limit)).about("network hops that an answer may take")),
        may("httpTokens", one_of(&["required", "optional"]).default(json!("required")).about("whether callers need a session token")),
    ])
    .about("the instance metadata service")
}

fn connection_tracking() -> Schema {
    object([
        may("tcpEstablishedTimeout", int32().range(60, 432_000).about("seconds for idle TCP connections")),
        may("udpStreamTimeout", int32().range(60, 180).about("seconds for UDP streams")),
        may("udpTimeout", int32().range(30, 60).about("seconds for single UDP packets")),
    ])
    .about("when security groups forget idle connections")
    .rule(
        "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
        "give at least one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout, or leave connectionTracking out",
        |tracking| ["tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout"].iter().any(|field| has(tracking, field)),
    )
}

fn status() -> Schema {
    object([
        may("subnets", list(object([need("id", text()), need("zone", text()), may("zoneID", text())])).about("subnets that were found")),
        may("securityGroups", list(object([need("id", text()), may("name", text())])).about("security groups that were found")),
        may("capacityReservations", list(reservation()).about("capacity reservations that were found")),
        may("amis", list(image()).about("images that were found, newest first")),
        may("instanceProfile", text().about("profile that nodes are started with")),
        may("conditions", parts::conditions()),
    ])
    .about("what was found for the class")
}

fn reservation() -> Schema {
    object([
        need("id", text()),
        need("availabilityZone", text()),
        need("instanceMatchCriteria", one_of(&["open", "targeted"])),
        need("instanceType", text()),
        need("ownerID", text()),
        may("reservationType", one_of(&["default", "capacity-block"]).default(json!("default"))),
        may("state", one_of(&["active", "expiring"]).default(json!("active"))),
        may("interruptible", parts::yes_no("whether EC2 may take it back")),
        may("endTime", time()),
    ])
}

fn image() -> Schema {
    object([need("id", text()), may("name", text()), may("deprecated", boolean()), need("requirements", parts::resolved_requirements())])
}
