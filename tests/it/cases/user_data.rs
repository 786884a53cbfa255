//! The user data of the template that `launch` creates for a machine.

use super::stage::refusal;
use super::{Case, Outcome, Stage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::path::Path;
use whittle_api::karpenter::Requirement;
use whittle_api::{conditions, labels};
use whittle_ports::error_chain;

pub(super) fn compare(path: &Path) -> Result<Outcome, String> {
    let mut case = Case::read(path)?;
    let name = super::stem(path);
    let sibling = |ending: &str| std::fs::read_to_string(path.with_file_name(format!("{name}.{ending}"))).ok();
    let capacity_type = case.text("/capacityType");
    let class = case.class.metadata.name.clone();
    let claim = case.claim.as_mut().ok_or("no NodeClaim")?;
    claim.spec.node_class_ref.name.clone_from(&class);
    claim.spec.requirements.push(Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type.as_str()]));
    // The address of the cluster's DNS is the tenth of the service range, in every cluster of EKS.
    if case.text("/cluster/dnsIP").is_empty() && case.cluster_info().dns_address().is_some() && sibling("error").is_none() {
        return Ok(Outcome::Skipped("no cluster of EKS has a service range without an address of DNS".to_owned()));
    }
    let (stage, record) = Stage::refreshed(&case)?;
    let is_error = sibling("main.error").or_else(|| sibling("error")).is_some();
    if let Some(why) = refusal(&record).filter(|_| !is_error) {
        return Ok(Outcome::Skipped(why));
    }
    let claim = case.planned(1, stage.simulation.world().now());
    stage.store(std::slice::from_ref(&claim));
    stage.aws.label("launch");
    stage.launch(std::slice::from_ref(&claim.key.name)).map_err(|error| format!("launch: {}", error_chain(&error)))?;
    let sent = stage.aws.sent();
    let fields = sent.iter().flat_map(|sent| form_urlencoded::parse(sent.request.body.as_bytes()));
    let ours = fields.filter(|(name, _)| name == "LaunchTemplateData.UserData").map(|(_, text)| text.into_owned()).next();
    let decoded = ours.map(|text| STANDARD.decode(text).map_err(|error| error.to_string())).transpose()?;
    let ours = decoded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let Some(theirs) = sibling("main.txt").or_else(|| sibling("txt")) else {
        let Some(error) = sibling("main.error").or_else(|| sibling("error")) else { return Err("no answer".to_owned()) };
        let claim = stage.claim(&claim.key.name).ok_or("the claim is gone")?;
        let said =
            claim.conditions.iter().find(|condition| condition.type_ == conditions::LAUNCHED).map(|condition| condition.message.clone());
        return match (ours, said) {
            (Some(_), _) => Err(format!("it is launched, where Karpenter says {error}")),
            (None, None) => Err("it is not launched, and no condition says why".to_owned()),
            (None, Some(_)) => Ok(Outcome::Same),
        };
    };
    // A template without user data is one with none.
    let is_launched = stage.claim(&claim.key.name).is_some_and(|claim| claim.machine().is_some());
    let ours = ours.or_else(|| is_launched.then(String::new)).ok_or_else(|| not_launched(&stage, &claim.key.name))?;
    let (ours, theirs) = (without_layout(&ours, &class)?, without_layout(&theirs, &class)?);
    Ok(Outcome::of(if ours == theirs { Vec::new() } else { vec![format!("user data {ours:?} and not {theirs:?}")] }))
}

fn not_launched(stage: &Stage, name: &whittle_units::ClaimName) -> String {
    let claim = stage.claim(name);
    format!("nothing is launched: {:?}", claim.map(|claim| (claim.phase, claim.conditions)))
}

/// User data as data, whose layout does not count. Karpenter labels only nodes of its own NodeClaims with their class.
fn without_layout(text: &str, class: &str) -> Result<Vec<Value>, String> {
    let text = text.replace(&format!("karpenter.k8s.aws/ec2nodeclass={class},"), "");
    if text.contains("[settings") {
        let mut table: toml::Table = text.parse().map_err(|error| format!("no TOML: {error}"))?;
        let labels = table.get_mut("settings").and_then(|settings| settings.get_mut("kubernetes")?.get_mut("node-labels")?.as_table_mut());
        labels.map(|labels| labels.remove("karpenter.k8s.aws/ec2nodeclass"));
        return Ok(vec![serde_json::to_value(table).map_err(|error| error.to_string())?]);
    }
    if !text.starts_with("MIME-Version") {
        return Ok(vec![Value::String(text.clone())]);
    }
    let part = |part: &str| match part.split_once("\n\n") {
        Some((headers, body)) if headers.contains("application/node.eks.aws") => {
            serde_saphyr::from_str(body).map_err(|error| format!("no YAML: {error}"))
        }
        _ => Ok(Value::String(part.trim().to_owned())),
    };
    text.split("--//").map(part).collect()
}
