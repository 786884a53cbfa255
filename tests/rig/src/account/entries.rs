//! The access entries of clusters, as EKS keeps them: who may enter, with which groups.

use super::Answer;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const GROUPS: &str = "kubernetesGroups";

/// By cluster and principal; clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessEntries(Arc<Mutex<BTreeMap<(String, String), Value>>>);

impl AccessEntries {
    /// Entries by which the functions enter with these groups, and nodes join.
    pub(crate) fn of_installed(cluster: &str, groups: &[&str]) -> Self {
        let entries = Self::of_nodes(cluster);
        entries.let_in(cluster, "functions", &groups.iter().map(|group| (*group).to_owned()).collect());
        entries
    }

    /// Entries by which nodes join, and nobody enters.
    pub(crate) fn of_nodes(cluster: &str) -> Self {
        let entries = Self::default();
        let _ = entries.create(cluster, "nodes", &json!({"principalArn": "nodes", "type": "EC2_LINUX"}));
        entries
    }

    /// Lets a role enter with these groups.
    pub(crate) fn let_in(&self, cluster: &str, role: &str, groups: &BTreeSet<String>) {
        let _ = self.create(cluster, role, &json!({GROUPS: groups, "principalArn": role}));
    }

    /// The groups of a role; `None` if no entry lets it in.
    pub(crate) fn groups_of(&self, role: &str) -> Option<BTreeSet<String>> {
        let all = self.kept();
        let entry = all.values().find(|entry| entry["principalArn"] == role)?;
        Some(entry[GROUPS].as_array().into_iter().flatten().filter_map(|group| group.as_str().map(str::to_owned)).collect())
    }

    /// The groups that the functions have where the emulator gives all of them one identity: those of all entries.
    pub(crate) fn groups(&self) -> BTreeSet<String> {
        let groups = |entry: &Value| entry[GROUPS].as_array().cloned().unwrap_or_default();
        self.kept().values().flat_map(groups).filter_map(|group| group.as_str().map(str::to_owned)).collect()
    }

    /// Whether nodes may join.
    pub(crate) fn let_nodes_join(&self) -> bool {
        self.kept().values().any(|entry| entry["type"] == "EC2_LINUX")
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<(String, String), Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a call of EKS.
    pub(super) fn call(&self, method: &Method, cluster: &str, arn: Option<&str>, body: &[u8]) -> Answer {
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        match (method.as_str(), arn) {
            ("GET", None) => {
                let all = self.kept();
                let arns: Vec<&str> = all.keys().filter(|(of, _)| of == cluster).map(|(_, arn)| arn.as_str()).collect();
                Answer::ok(json!({"accessEntries": arns}))
            }
            ("POST", None) => self.create(cluster, asked["principalArn"].as_str().unwrap_or_default(), &asked),
            (_, None) => Answer::fault(StatusCode::METHOD_NOT_ALLOWED, "InvalidRequestException", "There is no such call."),
            (_, Some(arn)) => self.of_one(method, cluster, arn, &asked),
        }
    }

    fn create(&self, cluster: &str, arn: &str, asked: &Value) -> Answer {
        let key = (cluster.to_owned(), arn.to_owned());
        if self.kept().contains_key(&key) {
            return Answer::fault(StatusCode::CONFLICT, "ResourceInUseException", "The specified access entry resource is already in use.");
        }
        let mut entry = json!({"clusterName": cluster, "type": "STANDARD", GROUPS: [], "tags": {}});
        for field in ["principalArn", "type", GROUPS, "tags", "username"] {
            if !asked[field].is_null() {
                entry[field] = asked[field].clone();
            }
        }
        self.kept().insert(key, entry.clone());
        Answer::ok(json!({"accessEntry": entry}))
    }

    fn of_one(&self, method: &Method, cluster: &str, arn: &str, asked: &Value) -> Answer {
        let key = (cluster.to_owned(), arn.to_owned());
        let mut all = self.kept();
        let Some(entry) = all.get_mut(&key) else {
            let message = format!("The specified principalArn could not be found: {arn}");
            return Answer::fault(StatusCode::NOT_FOUND, "ResourceNotFoundException", &message);
        };
        match *method {
            Method::POST if !asked[GROUPS].is_null() => entry[GROUPS] = asked[GROUPS].clone(),
            Method::DELETE => {
                all.remove(&key);
                return Answer::ok(json!({}));
            }
            _ => {}
        }
        Answer::ok(json!({"accessEntry": entry}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_enter_and_nodes_join_by_entries_alone() {
        let entries = AccessEntries::default();
        let call = |method: Method, arn: Option<&str>, body: &Value| {
            let answer = entries.call(&method, "shop", arn, body.to_string().as_bytes());
            (answer.status.as_u16(), answer.body)
        };
        assert!(entries.groups().is_empty() && !entries.let_nodes_join());
        let role = "arn:aws:iam::1:role/launch";
        assert_eq!(call(Method::GET, Some(role), &Value::Null).0, 404);
        let asked = json!({"principalArn": role, GROUPS: ["whittle:read"]});
        assert_eq!(call(Method::POST, None, &asked).0, 200);
        assert_eq!(call(Method::POST, None, &asked).0, 409, "it is there");
        assert_eq!(call(Method::POST, Some(role), &json!({GROUPS: ["whittle:plan"]})).0, 200);
        assert_eq!(entries.groups(), BTreeSet::from(["whittle:plan".to_owned()]));
        assert_eq!((entries.groups_of(role), entries.groups_of("another")), (Some(entries.groups()), None));
        assert!(!entries.let_nodes_join(), "no node has that role");
        assert_eq!(call(Method::POST, None, &json!({"principalArn": "nodes", "type": "EC2_LINUX"})).0, 200);
        assert!(entries.let_nodes_join());
        assert_eq!(call(Method::GET, None, &Value::Null).1, json!({"accessEntries": [role, "nodes"]}));
        assert_eq!(call(Method::DELETE, Some(role), &Value::Null).0, 200);
        assert!(entries.groups().is_empty());
    }
}
