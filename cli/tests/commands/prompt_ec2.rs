//! `ec2` at the prompt of `whittle local`: what the walkthroughs do to AWS, and see there.

use crate::{err, out, seed, whittle};

const CHINA: [&str; 7] = ["local", "--cluster", "testkarpenter", "--region", "cn-north-1", "--kubernetes-version", "1.23"];

fn answered(place: &[&str], lines: &str) -> String {
    let session = whittle(place, lines);
    assert_eq!(session.status.code(), Some(0), "{}{}", out(&session), err(&session));
    out(&session)
}

/// S1.22, S1.23: the free pod goes to the other zone, the pinned one waits until EC2 has the type again.
#[test]
fn s1_22_ec2_runs_out_of_a_type_in_a_zone_and_has_it_again() {
    let [daemons, default, p3, pods] = ["001-state-daemonsets", "001-provisioner-default", "001-provisioner-p3", "001-workload-p3"]
        .map(|name| seed(&format!("{name}.yaml")));
    let lines = format!(
        "apply -f {daemons} -f {default} -f {p3}\nadvance 30s\nec2 stock-out p3.8xlarge --zone cn-north-1a\napply -f {pods}\nadvance 2m\n\
         ec2 show stock-outs\nget pods\nec2 restock p3.8xlarge --zone cn-north-1a\nadvance 5m\nget pods\n"
    );
    let text = answered(&CHINA, &lines);
    assert!(text.contains("EC2 runs out of p3.8xlarge in cn-north-1a\n"), "{text}");
    assert!(text.contains("p3.8xlarge  cn-north-1a  *"), "{text}");
    let (before, after) = text.split_once("EC2 has p3.8xlarge in cn-north-1a again").unwrap();
    let line = |of: &str, text: &str| text.lines().rev().find(|line| line.starts_with(of)).unwrap_or_default().to_owned();
    assert!(line("gpu-pinned", before).contains("Pending"), "{text}");
    assert!(line("gpu-free", before).contains("Running"), "{text}");
    assert!(line("gpu-pinned", after).contains("Running"), "{text}");
}

/// S1.22: in every zone, the reason names the type, what EC2 answered, and each zone, also in the Event, before all requirements.
#[test]
fn s1_22_a_pod_whose_only_type_is_out_of_stock_everywhere_says_so() {
    let pool = format!("{}/src/local/demo/pool.yaml", env!("CARGO_MANIFEST_DIR"));
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: pinned}\nspec: {nodeSelector: {node.kubernetes.io/instance-type: m5.large}, \
               containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}\nEOF\n";
    let lines = format!("apply -f {pool}\nadvance 30s\nec2 stock-out m5.large\napply -f -\n{pod}advance 2m\nget events\nexplain pinned\n");
    let text = answered(&["local"], &lines);
    let why = "EC2 answered InsufficientInstanceCapacity for spot m5.large in us-east-1a, us-east-1b; tried again from ";
    for begin in ["pod/default/pinned: ", "Failed to schedule pod, "] {
        assert!(text.contains(&format!("{begin}{why}")), "{begin}: {text}");
    }
    let explained = text.lines().any(|line| line.trim_start().starts_with("00:00:0") && line.contains(&format!("  {why}")));
    assert!(explained, "{text}");
}

#[test]
fn stock_that_ec2_has_or_does_not_sell_is_refused() {
    for (command, says) in [
        ("ec2 stock-out m5.nonsense", "no instance type \"m5.nonsense\" in us-east-1"),
        ("ec2 stock-out m5.large --zone mars-1a", "no zone \"mars-1a\" in us-east-1"),
        ("ec2 restock m5.large", "EC2 has not run out of m5.large in all zones"),
        ("ec2 announce rebalance nowhere", "no node \"nowhere\""),
        ("ec2 announce rebalance i-00000000000000000", "no node \"i-00000000000000000\""),
        ("ec2 terminate nowhere", "no node \"nowhere\""),
        ("ec2 image x", "\"x\" is no id of an image"),
        ("ec2 image ami-1 --tag x", "write KEY=VALUE"),
        ("ec2 image ami-1 --age -5m", "time only goes forward"),
        ("ec2 image ami-1 --delete", "there is no image ami-1"),
        ("ec2 image ami-1 --architecture mips", "mips"),
        ("ec2 show everything", "everything"),
    ] {
        let session = whittle(&["local"], &format!("{command}\n"));
        assert_eq!(session.status.code(), Some(2), "{command}");
        assert!(err(&session).contains(says), "{command}: {}", err(&session));
    }
}

/// S1.18, S1.20, S3.11: an image by its id, whose architecture chooses the types, and of two images the newer.
#[test]
fn s1_18_images_of_the_account_are_used_by_id_and_the_newest_by_tags() {
    let template = seed("001-awsnodetemplate-ami.yaml");
    let pool = seed("001-provisioner-default.yaml");
    let pods = seed("001-deployment-inflate.yaml");
    let begin = format!("apply -f {pool}\napply -f {template}\nadvance 10s\nget awsnodetemplates\n");
    let missing = answered(&CHINA, &format!("{begin}describe awsnodetemplate default\n"));
    assert!(missing.contains("AMINotFound"), "{missing}");
    let with = format!(
        "ec2 image ami-08f2bf224b42c81da --architecture x86_64 --name mine\n{begin}advance 6m\napply -f {pods}\nscale deployment inflate --replicas 3\n\
         advance 3m\nec2 show instances\n"
    );
    let text = answered(&CHINA, &with);
    let machine = text.lines().find(|line| line.starts_with("i-")).unwrap_or_else(|| panic!("no machine: {text}"));
    assert!(machine.contains("ami-08f2bf224b42c81da") && machine.contains("running"), "{machine}");

    let tagged = std::env::temp_dir().join(format!("whittle-tagged-{}.yaml", std::process::id()));
    let by_tags = std::fs::read_to_string(&template).unwrap().replace("aws-ids: \"ami-08f2bf224b42c81da\"", "team: \"data\"");
    std::fs::write(&tagged, by_tags).unwrap();
    let two = format!(
        "ec2 image ami-0000000000000000a --tag team=data --age 2d\nec2 image ami-0000000000000000b --tag team=data --age 1d\napply -f {pool}\n\
         apply -f {}\nadvance 10s\napply -f {pods}\nscale deployment inflate --replicas 3\nadvance 3m\nec2 show instances\n",
        tagged.display()
    );
    let text = answered(&CHINA, &two);
    let machine = text.lines().find(|line| line.starts_with("i-")).unwrap_or_else(|| panic!("no machine: {text}"));
    assert!(machine.contains("ami-0000000000000000b"), "the newer one: {machine}");
    std::fs::remove_file(tagged).unwrap();
}

/// S1.21: without its tag no subnet is found and nothing is launched; with it again, in that subnet alone.
#[test]
fn s1_21_subnets_lose_their_tag_and_get_it_back() {
    let demo = |name: &str| format!("{}/src/local/demo/{name}", env!("CARGO_MANIFEST_DIR"));
    let subnets = "subnet-00000000000000001 subnet-00000000000000002 subnet-00000000000000003";
    let lines = format!(
        "apply -f {} -f {}\naws ec2 delete-tags --resources {subnets} --tags Key=karpenter.sh/discovery\nadvance 6m\n\
         scale deploy inflate --replicas 2\nadvance 2m\nget ec2nodeclasses\nec2 show instances\n\
         aws ec2 create-tags --resources subnet-00000000000000002 --tags Key=karpenter.sh/discovery,Value=demo Key=more,Value=\n\
         advance 8m\nget ec2nodeclasses\nec2 show instances\n",
        demo("pool.yaml"),
        demo("inflate.yaml")
    );
    let text = answered(&["local"], &lines);
    let (before, after) = text.split_once("subnet-00000000000000002 tagged\n").unwrap_or_else(|| panic!("{text}"));
    assert!(before.contains("False (SubnetsNotFound)") && before.ends_with("\nthere are no instances\n"), "{before}");
    assert!(before.contains("EC2NodeClass \"default\" is not ready: SubnetsNotFound"), "{before}");
    let hint = format!(
        "hint: no subnet matches spec.subnetSelectorTerms[0] of EC2NodeClass \"default\": `ec2 create-tags --resources {subnets} --tags \
         Key=karpenter.sh/discovery,Value=demo` tags those that there are; `ec2 show subnets` lists their tags"
    );
    assert_eq!(before.matches(&hint).count(), 1, "{before}");
    assert!(after.contains("default  True ") && after.contains("us-east-1b"), "{after}");
    assert!(!after.contains("in us-east-1a") && !after.contains("in us-east-1c"), "{after}");
    for (command, says) in [
        ("ec2 create-tags --resources subnet-1 --tags Key=a,Value=b", "no subnet, security group or image \"subnet-1\""),
        ("ec2 create-tags --resources subnet-00000000000000001 --tags a=b", "write Key=KEY,Value=VALUE"),
        ("aws ec2 describe-instances", "the account is simulated"),
    ] {
        let session = whittle(&["local"], &format!("{command}\n"));
        assert_eq!(session.status.code(), Some(2), "{command}");
        assert!(err(&session).contains(says), "{command}: {}", err(&session));
    }
}

/// A class that selects nothing says which command, or which field, mends that, whatever it selects by.
#[test]
fn terms_that_select_nothing_have_a_hint_that_mends_them() {
    let demo = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/local/demo/pool.yaml")).unwrap();
    let tags = "[{tags: {karpenter.sh/discovery: demo}}]";
    let file = std::env::temp_dir().join(format!("whittle-terms-{}.yaml", std::process::id()));
    let hinted = |field: &str, term: &str, then: &str| {
        let line = format!("{field}: ");
        let text: Vec<String> =
            demo.lines().map(|one| if one.trim().starts_with(&line) { one.replace(tags, term) } else { one.to_owned() }).collect();
        assert_ne!(text.join("\n"), demo.trim_end(), "{demo}");
        std::fs::write(&file, text.join("\n")).unwrap();
        answered(&["local"], &format!("apply -f {}\nadvance 10s\n{then}\nadvance 6m\nget ec2nodeclasses\n", file.display()))
    };
    let team = hinted("subnetSelectorTerms", "[{tags: {team: a}}]", "get nodes");
    let subnets = "subnet-00000000000000001 subnet-00000000000000002 subnet-00000000000000003";
    let command = format!("ec2 create-tags --resources {subnets} --tags Key=team,Value=a");
    assert!(team.contains(&format!("`{command}` tags those that there are")), "{team}");
    let mended = hinted("subnetSelectorTerms", "[{tags: {team: a}}]", &command);
    assert!(mended.contains("default  True "), "{mended}");
    let by_id = hinted("subnetSelectorTerms", "[{id: subnet-1}]", "get nodes");
    assert!(by_id.contains("spec.subnetSelectorTerms[0] of EC2NodeClass \"default\": correct its id; there are subnet-"), "{by_id}");
    let named = hinted("securityGroupSelectorTerms", "[{name: web}]", "get nodes");
    assert!(named.contains("`ec2 security-group sg-0123456789abcdef0 --name web` makes one"), "{named}");
    let mended = hinted("securityGroupSelectorTerms", "[{name: web}]", "ec2 security-group sg-0123456789abcdef0 --name web");
    assert!(mended.contains("default  True "), "{mended}");
    std::fs::remove_file(file).unwrap();
}

/// What EC2 had nothing of is named by a few, and the others are counted.
#[test]
fn a_region_without_any_machine_left_is_told_in_short_lines() {
    let demo = |name: &str| format!("{}/src/local/demo/{name}", env!("CARGO_MANIFEST_DIR"));
    let (pool, pods) = (demo("pool.yaml"), demo("inflate.yaml"));
    let lines = format!("ec2 stock-out\napply -f {pool} -f {pods}\nscale deploy inflate --replicas 5\nadvance 30s\nget pods\n");
    let text = answered(&["local"], &lines);
    assert!(text.contains(" more of InsufficientInstanceCapacity"), "{text}");
    assert!(text.contains("EC2 has nothing of ") && !text.contains("Running"), "{text}");
    let longest = text.lines().map(str::len).max().unwrap_or_default();
    assert!(longest < 1_500, "a line of {longest} letters: {text}");
}

/// The ReplicaSet of a Deployment goes with its pods, and the Deployment makes both again.
#[test]
fn a_replica_set_that_is_listed_can_be_deleted() {
    let pods = format!("{}/src/local/demo/inflate.yaml", env!("CARGO_MANIFEST_DIR"));
    let begin = format!("apply -f {pods}\nscale deploy inflate --replicas 2\nadvance 5s\n");
    let listed = answered(&["local"], &format!("{begin}get rs -o name\nget pods -o name\n"));
    let names = |text: &str, kind: &str| text.lines().filter(|line| line.starts_with(kind)).map(str::to_owned).collect::<Vec<_>>();
    let sets = names(&listed, "replicaset");
    assert_eq!((sets.len(), names(&listed, "pod/").len()), (1, 2), "{listed}");
    let (_, set) = sets[0].split_once('/').unwrap();
    let deleted = answered(&["local"], &format!("{begin}delete rs {set}\nadvance 5s\nget pods -o name\n"));
    assert!(deleted.contains(&format!("replicaset/{set} deleted")), "{deleted}");
    let again = names(&deleted, "pod/");
    assert!(again.len() == 2 && names(&listed, "pod/").iter().all(|old| !again.contains(old)), "{deleted}");
    let missing = whittle(&["local"], &format!("{begin}delete rs nope\n"));
    assert!(missing.status.code() == Some(2) && err(&missing).contains("nope"), "{}", err(&missing));
}

/// Every line of what `ec2 describe` says of the only node that some commands lead to, without what is in front.
fn described(place: &[&str], begun: &str) -> Vec<String> {
    let listed = answered(place, &format!("{begun}get nodes\n"));
    let node = listed.lines().rev().find(|line| line.contains(" Provisioner/")).and_then(|line| line.split(' ').next());
    let node = node.unwrap_or_else(|| panic!("no node: {listed}"));
    let text = answered(place, &format!("{begun}ec2 describe {node}\n"));
    let mut lines = text.lines().skip_while(|line| !line.starts_with("i-")).map(|line| line.trim().to_owned());
    assert!(lines.next().is_some(), "{text}");
    lines.collect()
}

#[track_caller]
fn check_lines(lines: &[String], expected: &[&str]) {
    for line in expected {
        assert!(lines.iter().any(|known| known.starts_with(line)), "{line:?} is missing in:\n{}", lines.join("\n"));
    }
}

/// S1.1, S1.9, S1.18: what a machine was launched with, user data included, as it reads them.
#[test]
fn s1_18_a_machine_shows_each_field_of_its_template() {
    let begun = format!(
        "ec2 image ami-0aaaaaaaaaaaaaaaa --name own --tag karpenter.sh/discovery=testkarpenter\napply -f {} -f {}\n\
         scale deploy inflate --replicas 1\nadvance 3m\n",
        seed("001-awsnodetemplate-fields.yaml"),
        seed("001-deployment-inflate.yaml")
    );
    let lines = described(&CHINA, &begun);
    check_lines(
        &lines,
        &[
            "arn: arn:aws-cn:ec2:cn-north-1:000000000000:instance/i-",
            "price: ¥",
            "imageId: ami-0aaaaaaaaaaaaaaaa",
            "iamInstanceProfile: KarpenterNodeInstanceProfile-testkarpenter",
            "volumeSize: 100Gi",
            "encrypted: true",
            "httpTokens: required",
            "team: team-a",
            "userData, decoded:",
        ],
    );
    let at = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {}", lines.join("\n")));
    assert!(at("before the kubelet starts") < at("/etc/eks/bootstrap.sh 'testkarpenter' --apiserver-endpoint 'https://"));
    let arguments = &lines[at("--kubelet-extra-args")];
    for part in ["karpenter.sh/capacity-type=on-demand", "karpenter.sh/provisioner-name=default", "--register-with-taints="] {
        assert!(arguments.contains(part), "{part}: {arguments}");
    }
    assert!(at("--b64-cluster-ca") <= at("--kubelet-extra-args"));
    assert!(lines.iter().any(|line| line.contains(".cn-north-1.eks.amazonaws.com.cn'")), "{}", lines.join("\n"));
    let by_beginning = answered(&CHINA, &format!("{begun}ec2 describe i-\n"));
    assert!(by_beginning.lines().map(str::trim).any(|line| line == lines[0]), "{by_beginning}");
    let absent = whittle(&["local"], "ec2 describe i-1\n");
    assert!(err(&absent).contains("no node, instance or launch template \"i-1\""), "{}", err(&absent));
}

/// S0.13: the metadata options of a Windows node.
#[test]
fn s0_13_a_machine_shows_its_metadata_options() {
    let [daemons, pool, pods] =
        ["001-state-daemonsets", "000-provisioner-windows2022", "000-deployment-iis-2022"].map(|name| seed(&format!("{name}.yaml")));
    let deployment = std::fs::read_to_string(&pods).unwrap();
    let name = deployment.lines().find_map(|line| line.trim().strip_prefix("name: ")).unwrap().to_owned();
    let begun = format!("apply -f {daemons} -f {pool} -f {pods}\nscale deploy {name} --replicas 2\nadvance 8m\n");
    let place = ["local", "--cluster", "windows-karpenter-demo", "--kubernetes-version", "1.27"];
    let options = ["httpEndpoint: enabled", "httpProtocolIPv6: disabled", "httpPutResponseHopLimit: 2", "httpTokens: required"];
    check_lines(&described(&place, &begun), &options);
}

/// S3.10, S3.11: terms are alternatives; groups by id, name and tags, and images by name and owner.
#[test]
fn s3_10_groups_and_images_of_any_term_are_found() {
    let place = ["local", "--cluster", "karpenter-demo", "--kubernetes-version", "1.28"];
    let class = seed("003-ec2nodeclass-selector-terms.yaml");
    let lines = format!(
        "ec2 security-group sg-0abc0123456789def --name by-its-id\nec2 security-group sg-00000000000000a02 --name tagged --tag key=value\n\
         ec2 security-group sg-00000000000000a03 --name other --tag key=other\nec2 image ami-00000000000000b01 --name my-name1 --owner 000123456789 --age 9d\n\
         ec2 image ami-00000000000000b03 --name my-name1 --owner 999999999999 --age 1d\napply -f {class}\nadvance 1m\nget ec2nodeclasses -o yaml\n"
    );
    let text = answered(&place, &lines);
    for (id, is_found) in [("sg-0abc0123456789def", true), ("sg-00000000000000a02", true), ("sg-00000000000000a03", false)] {
        let described = text.rsplit("status:").next().unwrap_or_default();
        assert_eq!(described.contains(id), is_found, "{id}: {text}");
    }
    assert!(text.contains("ami-00000000000000b01") && !text.rsplit("status:").next().unwrap_or_default().contains("b03"), "{text}");
}

/// S1.11, S3.8, S3.9, S3.21: what is made in EC2 has tags, and goes again.
#[test]
fn s3_9_tags_templates_and_profiles_can_be_seen_and_go_with_their_class() {
    let place = ["local", "--cluster", "karpenter-demo", "--kubernetes-version", "1.28"];
    let files = ["003-ec2nodeclass-v1beta1", "003-nodepool-v1beta1", "003-workload-rolling"].map(|name| seed(&format!("{name}.yaml")));
    let begin = format!("apply -f {} -f {} -f {}\nadvance 3m\n", files[0], files[1], files[2]);
    let shown = "ec2 show instances\nec2 show launch-templates\nec2 show instance-profiles\n";
    let gone = format!("delete -f {} -f {} -f {}\nadvance 5m\n", files[2], files[1], files[0]);
    let text = answered(&place, &format!("{begin}{shown}{gone}ec2 show launch-templates\nec2 show instance-profiles\n"));
    let machine = text.lines().find(|line| line.starts_with("i-")).unwrap_or_else(|| panic!("no machine: {text}"));
    for tag in ["eks:eks-cluster-name=karpenter-demo", "karpenter.sh/nodepool=default", "karpenter.k8s.aws/ec2nodeclass=default"] {
        assert!(machine.contains(tag), "{tag}: {machine}");
    }
    assert!(text.lines().any(|line| line.starts_with("karpenter.k8s.aws/")), "a launch template: {text}");
    assert!(text.lines().any(|line| line.starts_with("karpenter-demo_")), "an instance profile: {text}");
    assert!(
        text.contains("\nthere are no launch templates: ") && text.lines().last().unwrap().starts_with("there are no instance profiles: "),
        "{text}"
    );
}

/// S0.18: how many types and which subnets there are.
#[test]
fn s0_18_types_and_subnets_are_counted() {
    let text = answered(
        &["local", "--region", "ap-southeast-1"],
        "ec2 show types m5.\nec2 show types c6a.large\nec2 show subnets\nec2 show security-groups\n",
    );
    assert!(text.contains("c6a.large  ap-southeast-1a,") && text.contains("\n1 of "), "{text}");
    assert!(text.contains("karpenter.sh/discovery=demo\n3 of 3\n"), "{text}");
}

/// S4.10: what AWS announces, and what somebody else does to a machine.
#[test]
fn s4_10_events_of_ec2_and_health_reach_the_functions() {
    let demo = |name: &str| format!("{}/src/local/demo/{name}", env!("CARGO_MANIFEST_DIR"));
    let begin = format!(
        "apply -f {} -f {}\nscale deployment inflate --replicas 2\nadvance 3m\nget nodes\n",
        demo("pool.yaml"),
        demo("inflate.yaml")
    );
    let text = answered(&["local"], &begin);
    let node = text.lines().find(|line| line.starts_with("ip-")).and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned();
    let text = answered(&["local"], &format!("{begin}ec2 announce scheduled-change {node}\nadvance 4m\nget deployments\nget nodes\n"));
    assert!(text.contains("EventBridge delivers a scheduled change") && text.contains("2/2"), "{text}");
    assert!(!text.rsplit("STATUS").next().unwrap_or_default().contains(&node), "replaced: {text}");
    let lines = format!(
        "{begin}ec2 announce rebalance {node}\nadvance 1m\nget nodes\nec2 terminate node/{node}\nadvance 3m\nget deployments\nget nodes\n"
    );
    let text = answered(&["local"], &lines);
    let (before, after) = text.split_once("EC2 terminates").unwrap();
    assert!(before.rsplit("STATUS").next().unwrap_or_default().contains(&node), "a recommendation moves nothing by default: {text}");
    assert!(after.contains("2/2") && !after.rsplit("STATUS").next().unwrap_or_default().contains(&node), "{text}");
    let lines = format!("{begin}ec2 stop {node}\nec2 show instances\nadvance 4m\nget deployments\nec2 show instances\nget nodes\n");
    let text = answered(&["local"], &lines);
    let (_, after) = text.split_once("EC2 stops").unwrap();
    assert!(after.contains("stopping") && after.contains("2/2"), "{text}");
    assert!(!after.rsplit("STATUS").next().unwrap_or_default().contains(&node), "its claim has ended: {text}");
    assert!(after.contains("terminated"), "nobody would start it again: {text}");
    let (_, stopped) = after.split_once(" (").unwrap();
    let (id, _) = stopped.split_once(')').unwrap();
    // A machine may be named by its id, too; events about one come late.
    let late =
        format!("{begin}ec2 terminate {id}\nadvance 90m\nec2 show instances\nec2 announce rebalance {id}\nadvance 1m\nget deployments\n");
    let late = answered(&["local"], &late);
    let listed = late.lines().filter(|line| line.starts_with(id)).count();
    assert_eq!(listed, 0, "EC2 has forgotten it: {late}");
    assert!(late.contains(&format!("a rebalance recommendation for {id}")) && late.contains("2/2"), "a late event harms nothing: {late}");
}

#[test]
fn a_release_of_images_that_the_region_has_not_is_told_the_one_that_it_has() {
    let class = |alias: &str| {
        format!(
            "apply -f -\n{{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {{name: default}}, spec: {{role: r, amiSelectorTerms: \
             [{{alias: '{alias}'}}], subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: demo}}}}], securityGroupSelectorTerms: [{{tags: \
             {{karpenter.sh/discovery: demo}}}}]}}}}\nEOF\nadvance 1m\nget ec2nodeclass\n"
        )
    };
    let told = answered(&["local"], &class("al2023@v20990101"));
    assert!(
        told.contains("hint: the simulated region has no release v20990101 of al2023: `al2023@latest` in spec.amiSelectorTerms"),
        "{told}"
    );
    let followed = answered(&["local"], &class("al2023@latest"));
    assert!(!followed.contains("hint: ") && !followed.contains("AMINotFound"), "{followed}");
}

#[test]
fn a_class_without_an_image_is_told_the_command_that_makes_one() {
    let class = "apply -f -\n{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {amiFamily: AL2023, role: r, \
                 amiSelectorTerms: [{tags: {team: 'a b'}, name: base-*}], subnetSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}], \
                 securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]}}\nEOF\n";
    let told = answered(&["local"], &format!("{class}advance 1m\n"));
    let hint = told.lines().find(|line| line.starts_with("hint: ")).unwrap_or_else(|| panic!("{told}"));
    let command = hint.split('`').nth(1).unwrap_or_default();
    assert_eq!(command, "ec2 image ami-0123456789abcdef0 --name base-1 --tag 'team=a b'");
    let told = answered(&["local"], &format!("{class}advance 1m\n{command}\nadvance 6m\nget ec2nodeclasses\n"));
    assert!(told.lines().last().is_some_and(|line| line.contains("True")), "{told}");
}
