//! Parses user data as a booting machine does: labels, taints, max pods and reserved resources of its kubelet, and what becomes of its
//! local disks.

use std::collections::BTreeMap;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_ec2::kubelet::{Kubelet, MaxPods, TextMap};

/// The kubelet's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Boot {
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// What decides how much of the machine pods can use.
    pub kubelet: Kubelet,
    /// Local disks become one volume, for what pods write.
    pub joins_local_disks: bool,
}

impl Boot {
    fn set_max_pods(&mut self, text: &str) {
        if let Ok(pods) = text.parse() {
            self.kubelet.max_pods = Some(MaxPods::Fixed(pods));
        }
    }

    /// The map of the setting, by its name in the kubelet's configuration, which flags and Bottlerocket's tables write with dashes.
    fn map(&mut self, setting: &str) -> Option<&mut TextMap> {
        match setting {
            "kubeReserved" | "kube-reserved" => Some(&mut self.kubelet.kube_reserved),
            "systemReserved" | "system-reserved" => Some(&mut self.kubelet.system_reserved),
            "evictionHard" | "eviction-hard" => Some(&mut self.kubelet.eviction_hard),
            _ => None,
        }
    }
}

/// Reads user data of every family: flags of bootstrap scripts and nodeadm, Bottlerocket's TOML tables.
pub(super) fn read(user_data: &str) -> Boot {
    let mut boot = Boot { joins_local_disks: joins_local_disks(user_data), ..Boot::default() };
    for value in flag_values(user_data, "--node-labels=") {
        for pair in value.split(',') {
            if let Some((key, value)) = pair.split_once('=') {
                boot.labels.insert(key.to_owned(), value.to_owned());
            }
        }
    }
    for value in flag_values(user_data, "--register-with-taints=") {
        boot.taints.extend(value.split(',').filter_map(taint));
    }
    for value in flag_values(user_data, "--max-pods=").chain(flag_values(user_data, "maxPods: ")) {
        boot.set_max_pods(value);
    }
    for value in flag_values(user_data, "--pods-per-core=").chain(flag_values(user_data, "podsPerCore: ")) {
        boot.kubelet.pods_per_core = value.parse().ok().or(boot.kubelet.pods_per_core);
    }
    for (flag, sign) in [("kube-reserved", '='), ("system-reserved", '='), ("eviction-hard", '<')] {
        for value in flag_values(user_data, &format!("--{flag}=")) {
            let pairs = value.split(',').filter_map(|pair| pair.split_once(sign));
            let pairs = pairs.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
            boot.map(flag).into_iter().for_each(|map| *map = pairs.clone().collect());
        }
    }
    read_nodeadm_maps(user_data, &mut boot);
    read_nodeadm_taints(user_data, &mut boot);
    read_bottlerocket(user_data, &mut boot);
    boot
}

/// AL2's flag, nodeadm's strategy, and Bottlerocket's command that moves what pods write to the local disks.
fn joins_local_disks(user_data: &str) -> bool {
    let words: Vec<&str> = user_data.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| !word.is_empty()).collect();
    [&["--local-disks", "raid0"][..], &["strategy", "RAID0"], &["apiclient", "ephemeral-storage", "init"]]
        .iter()
        .any(|sign| words.windows(sign.len()).any(|found| found == *sign))
}

/// Values behind a flag, up to a blank, a quote or the end of the line.
fn flag_values<'a>(text: &'a str, flag: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(flag).map(move |(at, _)| {
        let rest = text[at + flag.len()..].trim_start_matches(['"', '\'']);
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Option<Taint> {
    let (rest, effect) = text.rsplit_once(':')?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Some(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect_of(effect)?, time_added: None })
}

fn effect_of(word: &str) -> Option<TaintEffect> {
    match word {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        _ => None,
    }
}

/// nodeadm's maps of resources: the lines below the key that are indented further.
fn read_nodeadm_maps(text: &str, boot: &mut Boot) {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(map) = line.trim().strip_suffix(':').and_then(|key| boot.map(key)) else { continue };
        let below = lines.iter().skip(at + 1).take_while(|below| indent(below) > indent(line));
        let bare = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
        map.extend(below.filter_map(|below| below.split_once(": ")).map(|(name, amount)| (bare(name), bare(amount))));
    }
}

/// nodeadm's `registerWithTaints` list: maps with key, effect and perhaps value, in YAML or JSON.
fn read_nodeadm_taints(text: &str, boot: &mut Boot) {
    let Some(at) = text.find("registerWithTaints") else { return };
    let mut current: Option<Taint> = None;
    let mut effect = None;
    for line in text[at..].lines().skip(1) {
        let trimmed = line.trim_start();
        let item = trimmed.strip_prefix("- ");
        let field = item.unwrap_or(trimmed);
        let Some((key, value)) = field.split_once(": ") else { break };
        let value = value.trim().trim_matches('"');
        if item.is_some() {
            boot.taints.extend(finished(current.take(), effect.take()));
        }
        let taint = current.get_or_insert_with(Taint::default);
        match key {
            "key" => value.clone_into(&mut taint.key),
            "value" => value.clone_into(&mut taint.value),
            "effect" => effect = effect_of(value),
            _ => break,
        }
    }
    boot.taints.extend(finished(current, effect));
}

fn finished(taint: Option<Taint>, effect: Option<TaintEffect>) -> Option<Taint> {
    let mut taint = taint.filter(|taint| !taint.key.is_empty())?;
    taint.effect = effect?;
    Some(taint)
}

/// Tables `settings.kubernetes` and those below it of Bottlerocket's TOML.
fn read_bottlerocket(text: &str, boot: &mut Boot) {
    let mut table = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut table);
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().trim_matches(['"', '\'']);
        let value = value.trim();
        let bare = |value: &str| value.trim().trim_matches(['"', '\'']).to_owned();
        match table.as_str() {
            "settings.kubernetes" if key == "max-pods" => boot.set_max_pods(value),
            "settings.kubernetes.node-labels" => {
                boot.labels.insert(key.to_owned(), bare(value));
            }
            "settings.kubernetes.node-taints" => {
                for one in value.trim_matches(['[', ']']).split(',') {
                    let text = format!("{key}={}", bare(one));
                    boot.taints.extend(taint(&text));
                }
            }
            other => {
                if let Some(map) = other.strip_prefix("settings.kubernetes.").and_then(|name| boot.map(name)) {
                    map.insert(key.to_owned(), bare(value));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bootstrap_flags_are_read() {
        let boot = read(
            "/etc/eks/bootstrap.sh 'demo' --kubelet-extra-args '--node-labels=\"a=b,c=d\" --register-with-taints=\"x=y:NoExecute,z:NoSchedule\" --max-pods=20'",
        );
        assert_eq!(boot.labels, BTreeMap::from([("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())]));
        assert_eq!(boot.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x=y:NoExecute", "z:NoSchedule"]);
        assert_eq!(boot.kubelet.max_pods, Some(MaxPods::Fixed(20)));
    }

    #[test]
    fn bottlerocket_tables_are_read() {
        let boot = read(
            "[settings.kubernetes]\nmax-pods = 20\n[settings.kubernetes.node-labels]\n\"a/b\" = \"c\"\n[settings.kubernetes.node-taints]\nx = [\":NoExecute\"]\n",
        );
        assert_eq!(boot.labels.get("a/b").map(String::as_str), Some("c"));
        assert_eq!(boot.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["x:NoExecute"]);
        assert_eq!(boot.kubelet.max_pods, Some(MaxPods::Fixed(20)));
    }

    #[test]
    fn local_disks_are_joined_where_the_family_is_told_so_and_nowhere_else() {
        for joined in [
            "/etc/eks/bootstrap.sh 'demo' \\\n--local-disks raid0",
            "spec:\n  instance:\n    localStorage:\n      strategy: RAID0\n",
            "[settings.bootstrap-commands.000-mount-instance-storage]\ncommands = [['apiclient', 'ephemeral-storage', 'init'], ['apiclient']]\n",
        ] {
            assert!(read(joined).joins_local_disks, "{joined}");
        }
        for apart in ["", "/etc/eks/bootstrap.sh 'demo'", "spec:\n  instance:\n    localStorage: {}\n", "--local-disks mount"] {
            assert!(!read(apart).joins_local_disks, "{apart}");
        }
    }

    #[test]
    fn nodeadm_taints_are_read() {
        let boot = read(
            "kubelet:\n  config:\n    maxPods: 29\n    registerWithTaints:\n    - effect: NoExecute\n      key: karpenter.sh/unregistered\n    - key: a\n      value: b\n      effect: NoSchedule\n  flags:\n  - --node-labels=\"p=q\"\n",
        );
        assert_eq!(
            boot.taints.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["karpenter.sh/unregistered:NoExecute", "a=b:NoSchedule"]
        );
        assert_eq!(boot.labels.get("p").map(String::as_str), Some("q"));
        assert_eq!(boot.kubelet.max_pods, Some(MaxPods::Fixed(29)));
    }

    #[test]
    fn reserved_resources_are_read_in_the_form_of_every_family() {
        let flags = "--kubelet-extra-args '--pods-per-core=4 --system-reserved=\"cpu=100m,memory=100Mi\" --kube-reserved=\"memory=1Gi\" --eviction-hard=\"memory.available<5%\"'";
        let tables = "[settings.kubernetes.system-reserved]\ncpu = \"100m\"\nmemory = '100Mi'\n[settings.kubernetes.kube-reserved]\nmemory = \"1Gi\"\n[settings.kubernetes.eviction-hard]\n\"memory.available\" = \"5%\"\n";
        let yaml = "kubelet:\n  config:\n    evictionHard:\n      memory.available: 5%\n    kubeReserved:\n      memory: 1Gi\n    podsPerCore: 4\n    systemReserved:\n      cpu: 100m\n      memory: \"100Mi\"\n  flags: []\n";
        let map =
            |pairs: &[(&str, &str)]| -> TextMap { pairs.iter().map(|(name, amount)| (name.to_string(), amount.to_string())).collect() };
        for text in [flags, tables, yaml] {
            let Kubelet { system_reserved, kube_reserved, eviction_hard, .. } = read(text).kubelet;
            assert_eq!(system_reserved, map(&[("cpu", "100m"), ("memory", "100Mi")]), "{text}");
            assert_eq!(kube_reserved, map(&[("memory", "1Gi")]), "{text}");
            assert_eq!(eviction_hard, map(&[("memory.available", "5%")]), "{text}");
        }
        for text in [flags, yaml] {
            assert_eq!(read(text).kubelet.pods_per_core, Some(4));
        }
        assert_eq!(read("").kubelet, Kubelet::default());
    }
}
