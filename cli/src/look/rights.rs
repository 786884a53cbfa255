//! What a user may not list and would have to, and how somebody else can allow it.

use super::kinds::Kind;
use std::fmt;

/// Kinds without which an answer would be wrong, and which may not be listed.
#[derive(Debug, PartialEq, Eq)]
pub struct Forbidden {
    resources: Vec<&'static str>,
    /// What may not be listed either.
    others: Vec<&'static str>,
    /// As the API server calls whoever asked.
    user: Option<String>,
}

/// How many kinds are named; the command names all.
const NAMED: usize = 4;

impl Forbidden {
    pub(super) fn of(kinds: &[&Kind], others: &[&Kind], said: &[String]) -> Self {
        let user = said.iter().find_map(|line| line.split_once("User \"")?.1.split('"').next().map(str::to_owned));
        let names = |kinds: &[&Kind]| kinds.iter().map(|kind| kind.resource).collect();
        Self { resources: names(kinds), others: names(others), user }
    }

    /// The option of `kubectl create clusterrolebinding` for the user.
    fn subject(&self) -> String {
        let Some(user) = &self.user else { return "--user=NAME".to_owned() };
        if let Some(account) = user.strip_prefix("system:serviceaccount:") {
            return format!("--serviceaccount={account}");
        }
        let option = format!("--user={user}");
        shlex::try_quote(&option).map_or_else(|_| "--user=NAME".to_owned(), |quoted| quoted.into_owned())
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.resources.iter().chain(&self.others).copied().collect::<Vec<_>>().join(",");
        let more = match self.resources.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} other kinds"),
        };
        let names = self.resources.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let user = self.user.as_deref().unwrap_or("you");
        write!(
            f,
            "{user} may not list {names}{more} of this cluster, and without that the answer would be wrong; \
             who administers it can allow it:\n  \
             kubectl create clusterrole whittle-look --verb=get,list --resource={all}\n  \
             kubectl create clusterrolebinding whittle-look --clusterrole=whittle-look {}",
            self.subject()
        )
    }
}

impl std::error::Error for Forbidden {}
