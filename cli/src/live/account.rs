//! What an account says of a cluster: EKS, IAM, EC2 and SSM.

use crate::programs::{Program, ProgramError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use whittle_claims::{Record as _, Uninstall};

/// The policies that a node's role needs.
pub(crate) const NODE_POLICIES: [&str; 4] =
    ["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore"];

/// The one of them by which the VPC CNI plugin assigns addresses. It has no rights for IPv6.
pub(crate) const CNI_POLICY: &str = "AmazonEKS_CNI_Policy";

/// The command that gives a node's role the rights that EKS documents for IPv6.
pub(crate) fn give_ipv6_rights(role: &str, partition: &str) -> String {
    let reads = ["ec2:DescribeInstances", "ec2:DescribeTags", "ec2:DescribeNetworkInterfaces", "ec2:DescribeInstanceTypes"];
    let assigns = [&["ec2:AssignIpv6Addresses"], &reads[..]].concat();
    let interfaces = format!("arn:{partition}:ec2:*:*:network-interface/*");
    let policy = json!({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": assigns, "Resource": "*"},
        {"Effect": "Allow", "Action": "ec2:CreateTags", "Resource": interfaces},
    ]});
    format!("aws iam put-role-policy --role-name {role} --policy-name AmazonEKS_CNI_IPv6_Policy --policy-document '{policy}'")
}

/// The role with which EC2 starts spot instances.
pub(crate) const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";

/// The tag by which a node class usually finds subnets and security groups.
pub(crate) const DISCOVERY: &str = "karpenter.sh/discovery";

/// Reads by way of `aws`.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a>(pub(crate) &'a Program);

/// A cluster as `describe-cluster` tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Eks {
    pub(crate) status: String,
    pub(crate) version: String,
    pub(crate) endpoint: String,
    pub(crate) certificate: String,
    /// Empty where EKS does not say; then it is one from before access entries.
    pub(crate) authentication: String,
    pub(crate) vpc: String,
    pub(crate) subnets: Vec<String>,
    pub(crate) security_group: String,
    /// The URL of its OIDC issuer.
    pub(crate) issuer: String,
    /// Whether EKS Auto Mode is enabled.
    pub(crate) has_auto_mode: bool,
    /// Whether pods get IPv6 addresses.
    pub(crate) ipv6: bool,
}

impl Eks {
    /// What is to be done while its API server cannot be counted on. None while it serves, as it does while EKS updates it.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        match self.status.as_str() {
            "" | "ACTIVE" | "UPDATING" => None,
            "CREATING" | "PENDING" => Some("wait until EKS has it ACTIVE (aws eks wait cluster-active), then run this again"),
            "DELETING" => Some("wait until EKS has it no more; then whittle cluster remove with --gone takes away what is left of it"),
            "FAILED" => Some("EKS does not repair it: delete it, and create it again; aws eks describe-cluster has what failed"),
            _ => Some("aws eks describe-cluster has what is wrong"),
        }
    }
}

/// An access entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) groups: BTreeSet<String>,
    pub(crate) kind: String,
    pub(crate) tags: BTreeMap<String, String>,
}

impl Entry {
    /// Whether nodes with the role join by it. Type EC2 is that of EKS Auto Mode, and gives no group by which a kubelet could.
    pub(crate) fn lets_nodes_join(&self) -> bool {
        matches!(self.kind.as_str(), "EC2_LINUX" | "EC2_WINDOWS")
    }
}

/// The name by which EC2 assumes roles in most partitions.
pub(crate) const EC2_SERVICE: &str = "ec2.amazonaws.com";

/// The name by which EC2 assumes roles in a partition.
pub(crate) fn ec2_service(partition: &str) -> &'static str {
    if partition == "aws-cn" { "ec2.amazonaws.com.cn" } else { EC2_SERVICE }
}

/// The most letters of a role's name.
pub(crate) const ROLE_NAME_MAX: usize = 64;

/// A node's role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Role {
    pub(crate) arn: String,
    /// Whether EC2 may assume it.
    pub(crate) trusts_ec2: bool,
    /// Names of attached policies.
    pub(crate) policies: BTreeSet<String>,
    /// Their ARNs.
    pub(crate) attached: Vec<String>,
    /// Names of policies that are written into it; known only where they are asked for.
    pub(crate) inline: Vec<String>,
    pub(crate) tags: BTreeMap<String, String>,
    /// Instance profiles that contain it.
    pub(crate) profiles: Vec<String>,
}

impl Role {
    /// The partition of its account.
    pub(crate) fn partition(&self) -> &str {
        self.arn.split(':').nth(1).unwrap_or("aws")
    }

    /// Whether it has policies besides AWS's, which may allow what these do not.
    pub(crate) fn has_own_policies(&self) -> bool {
        !self.inline.is_empty() || self.attached.iter().any(|arn| !arn.contains(":iam::aws:policy/"))
    }
}

/// A subnet or a security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tagged {
    pub(crate) id: String,
    pub(crate) tags: BTreeMap<String, String>,
    /// Whether machines in this subnet get public addresses.
    pub(crate) public: bool,
    /// Free addresses of this subnet.
    pub(crate) free: u64,
}

/// The relay's stored secret. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A record that Whittle was uninstalled from a cluster: while it is there, nothing is launched for the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uninstalled {
    /// When it was asked for; none if the record cannot be read.
    pub(crate) at: Option<jiff::Timestamp>,
    pub(crate) until: Option<jiff::Timestamp>,
}

impl Uninstalled {
    /// The record's key in the deployment's table.
    fn key(cluster: &str) -> String {
        let key = format!("RECORD#{cluster}#{}", Uninstall::KIND);
        json!({"pk": {"S": key}, "sk": {"S": Uninstall::NAME}}).to_string()
    }

    /// The record of an item; none of one that the table has still to delete.
    fn of(item: &Value, now: jiff::Timestamp) -> Option<Self> {
        item.pointer("/Item/pk")?;
        let record: Option<Uninstall> = serde_json::from_str(text(item, "/Item/data/S")).ok();
        let until = text(item, "/Item/ttl/N").parse().ok().and_then(|second| jiff::Timestamp::from_second(second).ok());
        let is_over = until.is_some_and(|until| until <= now);
        (!is_over).then(|| Self { at: record.map(|record| record.asked_at), until })
    }

    /// What it means, for a person.
    pub(crate) fn sentence(&self, cluster: &str) -> String {
        let at =
            |at: Option<jiff::Timestamp>, word: &str| at.map(|at| format!(" {word} {}", at.strftime("%F %H:%M UTC"))).unwrap_or_default();
        let (at, until) = (at(self.at, "on"), at(self.until, "until"));
        format!("Whittle was uninstalled from {cluster}{at}: nothing is launched for it{until}")
    }

    /// How it is taken back.
    pub(crate) fn remedy(aws: &Program, table: &str, cluster: &str) -> String {
        let delete = aws.shown(&["dynamodb", "delete-item", "--table-name", table, "--key", &Self::key(cluster)]);
        format!("once whittle uninstall says that nothing is left of it, delete its record: {delete}")
    }
}

/// The text at a place of an answer; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a place of an answer; empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    value.pointer(at).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn texts(value: &Value, at: &str) -> Vec<String> {
    list(value, at).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The entries of a list in a policy, where one may stand without its list.
fn entries(value: Option<&Value>) -> &[Value] {
    match value {
        Some(Value::Array(all)) => all.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    }
}

/// Whether a trust policy lets a service assume its role.
fn trusts(policy: &Value, service: &str) -> bool {
    let names_it = |statement: &&Value| entries(statement.pointer("/Principal/Service")).iter().any(|name| name.as_str() == Some(service));
    entries(policy.get("Statement")).iter().filter(names_it).any(|statement| text(statement, "/Effect") == "Allow")
}

fn pairs(tags: &[Value]) -> BTreeMap<String, String> {
    tags.iter().map(|tag| (text(tag, "/Key").to_owned(), text(tag, "/Value").to_owned())).collect()
}

fn none_if<T>(answer: Result<T, ProgramError>, words: &str) -> Result<Option<T>, ProgramError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.says(words) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Account<'_> {
    /// An answer of `aws`.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Value, ProgramError> {
        self.0.json(arguments)
    }

    /// The command that has kubectl reach a cluster, in the same region and with the same profile.
    pub(crate) fn kubeconfig_line(&self, cluster: &str) -> String {
        self.0.by_hand(&["eks", "update-kubeconfig", "--name", cluster])
    }

    pub(crate) fn cluster(&self, name: &str) -> Result<Option<Eks>, ProgramError> {
        let answer = none_if(self.ask(&["eks", "describe-cluster", "--name", name]), "ResourceNotFoundException")?;
        Ok(answer.map(|answer| {
            let at = |place: &str| text(&answer, &format!("/cluster/{place}")).to_owned();
            Eks {
                status: at("status"),
                version: at("version"),
                endpoint: at("endpoint"),
                certificate: at("certificateAuthority/data"),
                authentication: at("accessConfig/authenticationMode"),
                vpc: at("resourcesVpcConfig/vpcId"),
                subnets: texts(&answer, "/cluster/resourcesVpcConfig/subnetIds"),
                security_group: at("resourcesVpcConfig/clusterSecurityGroupId"),
                issuer: at("identity/oidc/issuer"),
                has_auto_mode: answer.pointer("/cluster/computeConfig/enabled").and_then(Value::as_bool) == Some(true),
                ipv6: at("kubernetesNetworkConfig/ipFamily") == "ipv6",
            }
        }))
    }

    pub(crate) fn entry(&self, cluster: &str, arn: &str) -> Result<Option<Entry>, ProgramError> {
        let asked = self.ask(&["eks", "describe-access-entry", "--cluster-name", cluster, "--principal-arn", arn]);
        Ok(none_if(asked, "ResourceNotFoundException")?.map(|answer| {
            let tags = answer.pointer("/accessEntry/tags").and_then(Value::as_object).cloned().unwrap_or_default();
            Entry {
                groups: texts(&answer, "/accessEntry/kubernetesGroups").into_iter().collect(),
                kind: text(&answer, "/accessEntry/type").to_owned(),
                tags: tags.into_iter().map(|(key, value)| (key, value.as_str().unwrap_or_default().to_owned())).collect(),
            }
        }))
    }

    /// A role; none also for a name that is too long for one, of which IAM would only say that it is no name.
    pub(crate) fn role(&self, name: &str) -> Result<Option<Role>, ProgramError> {
        if ROLE_NAME_MAX < name.len() {
            return Ok(None);
        }
        let Some(answer) = none_if(self.ask(&["iam", "get-role", "--role-name", name]), "NoSuchEntity")? else { return Ok(None) };
        let attached = self.ask(&["iam", "list-attached-role-policies", "--role-name", name])?;
        let profiles = self.ask(&["iam", "list-instance-profiles-for-role", "--role-name", name])?;
        let names =
            |answer: &Value, at: &str, name: &str| list(answer, at).iter().map(|one| text(one, name).to_owned()).collect::<Vec<_>>();
        let role = Role { arn: text(&answer, "/Role/Arn").to_owned(), ..Role::default() };
        let trust = answer.pointer("/Role/AssumeRolePolicyDocument").unwrap_or(&Value::Null);
        Ok(Some(Role {
            trusts_ec2: trusts(trust, ec2_service(role.partition())),
            policies: names(&attached, "/AttachedPolicies", "/PolicyName").into_iter().collect(),
            attached: names(&attached, "/AttachedPolicies", "/PolicyArn"),
            inline: Vec::new(),
            tags: pairs(list(&answer, "/Role/Tags")),
            profiles: names(&profiles, "/InstanceProfiles", "/InstanceProfileName"),
            ..role
        }))
    }

    /// Names of the policies that are written into a role.
    pub(crate) fn inline_policies(&self, role: &str) -> Result<Vec<String>, ProgramError> {
        Ok(texts(&self.ask(&["iam", "list-role-policies", "--role-name", role])?, "/PolicyNames"))
    }

    /// The roles and users that have an access entry.
    pub(crate) fn principals(&self, cluster: &str) -> Result<Vec<String>, ProgramError> {
        let answer = none_if(self.ask(&["eks", "list-access-entries", "--cluster-name", cluster]), "ResourceNotFoundException")?;
        Ok(answer.map(|answer| texts(&answer, "/accessEntries")).unwrap_or_default())
    }

    /// Whether IAM has a provider for an OIDC issuer.
    pub(crate) fn has_oidc_provider(&self, issuer: &str) -> Result<bool, ProgramError> {
        let bare = issuer.trim_start_matches("https://");
        let providers = self.ask(&["iam", "list-open-id-connect-providers"])?;
        let is_it = |one: &Value| text(one, "/Arn").split_once(":oidc-provider/").is_some_and(|(_, of)| of == bare);
        Ok(!bare.is_empty() && list(&providers, "/OpenIDConnectProviderList").iter().any(is_it))
    }

    /// Whether a cluster has an add-on of EKS.
    pub(crate) fn has_addon(&self, cluster: &str, name: &str) -> Result<bool, ProgramError> {
        let asked = self.ask(&["eks", "describe-addon", "--cluster-name", cluster, "--addon-name", name]);
        Ok(none_if(asked, "ResourceNotFoundException")?.is_some())
    }

    pub(crate) fn has_role(&self, name: &str) -> Result<bool, ProgramError> {
        Ok(none_if(self.ask(&["iam", "get-role", "--role-name", name]), "NoSuchEntity")?.is_some())
    }

    pub(crate) fn subnets(&self, select: &[&str]) -> Result<Vec<Tagged>, ProgramError> {
        let answer = self.ask(&[&["ec2", "describe-subnets"], select].concat())?;
        let subnet = |one: &Value| Tagged {
            id: text(one, "/SubnetId").to_owned(),
            tags: pairs(list(one, "/Tags")),
            public: one.get("MapPublicIpOnLaunch").and_then(Value::as_bool).unwrap_or_default(),
            free: one.get("AvailableIpAddressCount").and_then(Value::as_u64).unwrap_or_default(),
        };
        Ok(list(&answer, "/Subnets").iter().map(subnet).collect())
    }

    pub(crate) fn security_groups(&self, select: &[&str]) -> Result<Vec<Tagged>, ProgramError> {
        let answer = self.ask(&[&["ec2", "describe-security-groups"], select].concat())?;
        let group = |one: &Value| Tagged { id: text(one, "/GroupId").to_owned(), tags: pairs(list(one, "/Tags")), ..Tagged::default() };
        Ok(list(&answer, "/SecurityGroups").iter().map(group).collect())
    }

    /// The stored secret as the relay reads it; none if it is not there, or empty.
    pub(crate) fn secret(&self, parameter: &str) -> Result<Option<Secret>, ProgramError> {
        let answer = none_if(self.ask(&["ssm", "get-parameter", "--name", parameter, "--with-decryption"]), "ParameterNotFound")?;
        let value = answer.map(|answer| text(&answer, "/Parameter/Value").trim().to_owned());
        Ok(value.filter(|value| !value.is_empty()).map(Secret))
    }

    /// Whether Whittle was uninstalled from a cluster. Without a table, as in a stack of an older release, it is not known, and none.
    pub(crate) fn uninstalled(&self, table: &str, cluster: &str) -> Result<Option<Uninstalled>, ProgramError> {
        if table.is_empty() {
            return Ok(None);
        }
        let key = Uninstalled::key(cluster);
        let answer = self.ask(&["dynamodb", "get-item", "--table-name", table, "--key", &key, "--consistent-read"])?;
        Ok(Uninstalled::of(&answer, jiff::Timestamp::now()))
    }

    /// Machines of the deployment in a cluster that are not ended.
    pub(crate) fn machines(&self, cluster: &str) -> Result<Vec<String>, ProgramError> {
        let name = format!("Name=tag:eks:eks-cluster-name,Values={cluster}");
        let states = "Name=instance-state-name,Values=pending,running,stopping,stopped";
        let ours = "Name=tag-key,Values=whittle.dev/launch";
        let answer = self.ask(&["ec2", "describe-instances", "--filters", &name, states, ours])?;
        let of =
            |reservation: &Value| list(reservation, "/Instances").iter().map(|one| text(one, "/InstanceId").to_owned()).collect::<Vec<_>>();
        Ok(list(&answer, "/Reservations").iter().flat_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_join_by_entries_of_their_own_types_only() {
        for (kind, expected) in [
            ("EC2_LINUX", true),
            ("EC2_WINDOWS", true),
            ("EC2", false),
            ("STANDARD", false),
            ("FARGATE_LINUX", false),
            ("HYBRID_LINUX", false),
            ("", false),
        ] {
            assert_eq!(Entry { kind: kind.into(), ..Entry::default() }.lets_nodes_join(), expected, "{kind}");
        }
    }

    #[test]
    fn a_role_trusts_ec2_by_its_exact_name_in_the_partition() {
        let policy = |effect: &str, services: Value| json!({"Statement": [{"Effect": effect, "Principal": {"Service": services}}]});
        let (usual, chinese) = (ec2_service("aws"), ec2_service("aws-cn"));
        assert_eq!((usual, chinese), ("ec2.amazonaws.com", "ec2.amazonaws.com.cn"));
        for (document, by_usual, by_chinese) in [
            (policy("Allow", json!(usual)), true, false),
            (policy("Allow", json!([usual, chinese])), true, true),
            (policy("Allow", json!(["lambda.amazonaws.com", chinese])), false, true),
            (policy("Allow", json!("spot.ec2.amazonaws.com")), false, false),
            (policy("Deny", json!(usual)), false, false),
            (json!({"Statement": {"Effect": "Allow", "Principal": {"Service": usual}}}), true, false),
            (json!({"Statement": [{"Effect": "Allow", "Principal": {"AWS": usual}}]}), false, false),
            (Value::Null, false, false),
        ] {
            assert_eq!((trusts(&document, usual), trusts(&document, chinese)), (by_usual, by_chinese), "{document}");
        }
    }

    #[test]
    fn the_partition_of_a_role_is_that_of_its_arn() {
        let of = |arn: &str| Role { arn: arn.into(), ..Role::default() }.partition().to_owned();
        assert_eq!(of("arn:aws-cn:iam::1:role/nodes"), "aws-cn");
        assert_eq!(of("arn:aws:iam::1:role/nodes"), "aws");
        assert_eq!(of(""), "aws");
    }

    #[test]
    fn only_policies_that_are_not_awss_are_ones_own() {
        let of = |attached: &[&str], inline: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Role { attached: all(attached), inline: all(inline), ..Role::default() }.has_own_policies()
        };
        assert!(!of(&["arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy", "arn:aws-cn:iam::aws:policy/service-role/X"], &[]));
        assert!(of(&["arn:aws:iam::1:policy/AmazonEKS_CNI_IPv6_Policy"], &[]) && of(&[], &["cni"]));
    }

    #[test]
    fn rights_for_ipv6_are_those_that_eks_documents() {
        let command = give_ipv6_rights("nodes", "aws-cn");
        let policy = command.split('\'').nth(1).unwrap();
        let policy: Value = serde_json::from_str(policy).unwrap();
        let [any, interfaces] = list(&policy, "/Statement") else { panic!("{policy}") };
        let expected = ["AssignIpv6Addresses", "DescribeInstances", "DescribeTags", "DescribeNetworkInterfaces", "DescribeInstanceTypes"];
        assert_eq!(texts(any, "/Action"), expected.map(|action| format!("ec2:{action}")));
        assert_eq!(text(any, "/Resource"), "*");
        let named = (text(interfaces, "/Action"), text(interfaces, "/Resource"));
        assert_eq!(named, ("ec2:CreateTags", "arn:aws-cn:ec2:*:*:network-interface/*"));
        assert!(NODE_POLICIES.contains(&CNI_POLICY));
    }

    #[test]
    fn a_record_counts_until_it_is_over_and_its_key_is_the_tables() {
        let now = "2026-01-10T00:00:00Z".parse::<jiff::Timestamp>().unwrap();
        let record = Uninstall { asked_at: "2026-01-01T12:30:00Z".parse().unwrap(), nodes: whittle_claims::LeftNodes::Drain };
        let data = serde_json::to_string(&record).unwrap();
        let until = |second: i64| json!({"Item": {"pk": {"S": "x"}, "data": {"S": data}, "ttl": {"N": second.to_string()}}});
        let second = now.as_second();
        let told = |item: Value| Uninstalled::of(&item, now).map(|found| found.sentence("shop"));
        let is = "Whittle was uninstalled from shop on 2026-01-01 12:30 UTC: nothing is launched for it until 2026-01-10 00:01 UTC";
        assert_eq!(told(until(second + 60)).as_deref(), Some(is));
        assert_eq!(told(until(second)), None);
        assert_eq!(told(Value::Null), None, "no item");
        let odd = "Whittle was uninstalled from shop: nothing is launched for it";
        assert_eq!(told(json!({"Item": {"pk": {"S": "x"}, "data": {"S": "?"}}})).as_deref(), Some(odd));
        assert_eq!(Uninstalled::key("shop"), r#"{"pk":{"S":"RECORD#shop#uninstall"},"sk":{"S":"uninstall"}}"#);
        let keys = include_str!("../../../shared/dynamo/src/keys.rs");
        assert!(keys.contains(r##"format!("RECORD#{cluster}#{kind}")"##), "the adapter's keys have changed");
    }

    #[test]
    fn a_cluster_that_does_not_serve_has_a_remedy_and_an_update_is_no_fault() {
        let of = |status: &str| Eks { status: status.into(), ..Eks::default() }.remedy();
        for serves in ["ACTIVE", "UPDATING", ""] {
            assert_eq!(of(serves), None, "{serves}");
        }
        for (status, words) in [
            ("CREATING", "wait cluster-active"),
            ("PENDING", "wait cluster-active"),
            ("DELETING", "--gone"),
            ("FAILED", "create it again"),
            ("NEW", "describe-cluster"),
        ] {
            assert!(of(status).is_some_and(|remedy| remedy.contains(words)), "{status}");
        }
    }

    #[test]
    fn kubectl_gets_the_cluster_of_the_same_region_and_profile() {
        let line = |region, profile| Account(&Program::aws(region, profile)).kubeconfig_line("shop");
        assert_eq!(line(None, None), "aws eks update-kubeconfig --name shop");
        assert_eq!(line(Some("us-east-1"), Some("a b")), "aws eks update-kubeconfig --name shop --region us-east-1 --profile 'a b'");
    }

    #[test]
    fn iam_is_not_asked_about_a_name_that_no_role_can_have() {
        let aws = Program::aws(None, None).at("/nonexistent/aws");
        let ask = |letters: usize| Account(&aws).role(&"r".repeat(letters)).map(|role| role.is_none());
        assert!(matches!(ask(ROLE_NAME_MAX + 1), Ok(true)));
        assert!(ask(ROLE_NAME_MAX).is_err(), "a name that fits is asked about");
    }
}
