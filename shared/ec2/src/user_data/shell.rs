//! Scripts: AL2's shell (aws 12.4) and Windows' PowerShell (aws 12.7).

use super::mime::{self, Part};
use super::{Bootstrap, UserDataError, kubelet_args};
use std::fmt::Write;

/// Content type of a shell script part.
pub(super) const SHELL: &str = "text/x-shellscript; charset=\"us-ascii\"";

/// What EC2 puts around PowerShell commands, in any case.
const TAGS: &[&str] = &["<powershell>", "</powershell>"];

/// A MIME archive: the user's parts first, then the call of the image's bootstrap script.
pub(super) fn al2(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let mut parts = match bootstrap.custom() {
        None => Vec::new(),
        Some(text) if mime::looks_like(text) => {
            mime::parse(text).map_err(|problem| UserDataError::Mime { class: bootstrap.class_name(), problem })?
        }
        Some(text) => vec![Part::new(SHELL, text)],
    };
    parts.push(Part::new(SHELL, bootstrap_script(bootstrap)));
    Ok(mime::render(&parts))
}

fn bootstrap_script(bootstrap: &Bootstrap<'_>) -> String {
    let cluster = bootstrap.cluster;
    let bundle = cluster.ca_bundle.as_ref().map(|bundle| format!("--b64-cluster-ca '{bundle}'")).unwrap_or_default();
    let mut lines = vec![format!("/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}' {bundle}", cluster.name, cluster.endpoint)];
    if let Some(address) = bootstrap.dns_servers().first() {
        if address.parse::<std::net::Ipv4Addr>().is_err() {
            lines.push("--ip-family ipv6".to_owned());
        }
        lines.push(format!("--dns-cluster-ip '{address}'"));
    }
    lines.push("--use-max-pods false".to_owned());
    lines.push(format!("--kubelet-extra-args '{}'", kubelet_args::render(bootstrap)));
    if bootstrap.uses_local_disks() {
        lines.push("--local-disks raid0".to_owned());
    }
    // The second line keeps the output, to diagnose why a node did not join.
    let head = "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n";
    format!("{head}{}", lines.join(" \\\n"))
}

/// One PowerShell block, the user's lines first. With a tag among them PowerShell would not get as far as ours.
pub(super) fn windows(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let cluster = bootstrap.cluster;
    let mut text = "<powershell>\n".to_owned();
    if let Some(custom) = bootstrap.custom() {
        let lower = custom.to_ascii_lowercase();
        if TAGS.iter().any(|tag| lower.contains(tag)) {
            return Err(UserDataError::Tag { class: bootstrap.class_name() });
        }
        text.push_str(custom);
        text.push('\n');
    }
    text.push_str("[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n");
    let mut add = |part: std::fmt::Arguments<'_>| text.write_fmt(part).expect("writing to a String does not fail");
    add(format_args!("& $EKSBootstrapScriptFile -EKSClusterName '{}' -APIServerEndpoint '{}'", cluster.name, cluster.endpoint));
    if let Some(bundle) = &cluster.ca_bundle {
        add(format_args!(" -Base64ClusterCA '{bundle}'"));
    }
    add(format_args!(" -KubeletExtraArgs '{}'", kubelet_args::render(bootstrap)));
    if let Some(address) = bootstrap.dns_servers().first() {
        add(format_args!(" -DNSClusterIP '{address}'"));
    }
    text.push_str("\n</powershell>");
    Ok(text)
}
