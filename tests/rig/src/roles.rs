//! Who calls the simulated AWS and the cluster: the roles of the deployed stack, with the policies that they have now. The emulator keeps
//! both, and is asked at each call.

use crate::emulator::{ACCOUNT, Emulator, text_of};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use whittle_fake_aws::server::{Identified, Identities, Identity};

/// IAM's version of its API.
const VERSION: (&str, &str) = ("Version", "2010-05-08");

/// The roles of the stack, by what the emulator gave the functions to sign with; clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    emulator: Emulator,
    /// Roles by access key: a key never changes hands.
    keys: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Roles {
    pub(crate) fn new(emulator: Emulator) -> Self {
        Self { emulator, keys: Arc::default() }
    }

    /// The role that signs with a key.
    async fn of_key(&self, key: &str) -> Result<String> {
        let kept = self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if let Some(role) = kept {
            return Ok(role);
        }
        let caller = self.emulator.look(&format!("/_rig/caller?key={key}"), &[]).await?;
        let caller: Value = serde_json::from_str(&caller)?;
        let role = caller["arn"].as_str().and_then(role_of).with_context(|| format!("nobody has the access key {key}"))?;
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), role.clone());
        Ok(role)
    }
}

impl Identities for Roles {
    fn of(&self, access_key: String) -> Identified {
        let roles = self.clone();
        Box::pin(async move {
            // The rig itself, and who deploys.
            if access_key == ACCOUNT {
                return Ok(None);
            }
            let identity = async {
                let name = roles.of_key(&access_key).await?;
                let policies = policies(&roles.emulator, &name).await?.into_values().collect();
                anyhow::Ok(Identity { name, policies })
            };
            identity.await.map(Some).map_err(|error| format!("{error:#}"))
        })
    }
}

/// The policy documents of a role, by name.
pub(crate) async fn policies(emulator: &Emulator, role: &str) -> Result<BTreeMap<String, Value>> {
    let listed = emulator.query("iam", &[("Action", "ListRolePolicies"), VERSION, ("RoleName", role)]).await?;
    let mut found = BTreeMap::new();
    for name in listed.split("<member>").skip(1).filter_map(|member| member.split_once("</")).map(|(name, _)| name) {
        let asked = [("Action", "GetRolePolicy"), VERSION, ("RoleName", role), ("PolicyName", name)];
        let got = emulator.query("iam", &asked).await?;
        let document = text_of(&got, "PolicyDocument").with_context(|| format!("the policy {name} of {role} has no document"))?;
        let Some(document) = form_urlencoded::parse(document.as_bytes()).map(|(document, _)| document.into_owned()).next() else {
            bail!("the policy {name} of {role} is empty");
        };
        found.insert(name.to_owned(), serde_json::from_str(&document)?);
    }
    Ok(found)
}

/// The role of a session, as in `arn:aws:sts::1:assumed-role/NAME/SESSION`.
pub(crate) fn role_of(session: &str) -> Option<String> {
    session.split_once(":assumed-role/")?.1.split('/').next().map(str::to_owned)
}

/// The ARN by which an access entry names a role.
pub(crate) fn arn(role: &str) -> String {
    format!("arn:aws:iam::{ACCOUNT}:role/{role}")
}
