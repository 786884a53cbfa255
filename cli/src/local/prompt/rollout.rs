//! `rollout`: the pods of a Deployment come, and are replaced.

use super::command_line::RolloutArgs;
use super::{Prompt, advance, delete};
use crate::local::kinds;
use crate::local::rows::{self, Progress};
use crate::printing::say;
use whittle_api::k8s::Deployment;
use whittle_sim::World;

/// The annotation by which `kubectl rollout restart` changes a template.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

impl Prompt {
    /// Lets time pass until every Deployment has its pods, and says how far it has come whenever that changes.
    pub(super) fn rollout_status(&mut self, args: &RolloutArgs, namespace: Option<&str>) -> Result<String, String> {
        let limit = self.session.now().checked_add(advance::span(&args.timeout)?).map_err(|error| error.to_string())?;
        let mut text = String::new();
        for (key, name) in self.deployments(args, namespace)? {
            let mut said = String::new();
            loop {
                let state = state(&self.session.simulation.world(), &key, &name)?;
                if state != said {
                    text.push_str(&self.news());
                    text.push_str(&format!("{state}\n"));
                    said.clone_from(&state);
                }
                if state.ends_with("rolled out") {
                    break;
                }
                let seen = self.session.simulation.world().cluster.objects.workloads();
                let (_, stopped) = self.pass(limit, |world| world.cluster.objects.workloads() != seen);
                if stopped || limit <= self.session.now() {
                    say!("{text}");
                    let why = if stopped { "stopped".to_owned() } else { format!("timed out after {}", args.timeout) };
                    return Err(format!("{why}: {state}; `get pods -o wide` and `explain POD` say why pods wait"));
                }
            }
        }
        Ok(text)
    }

    /// Changes the template, so that all pods are replaced.
    pub(super) fn rollout_restart(&mut self, args: &RolloutArgs, namespace: Option<&str>) -> Result<String, String> {
        let mut text = String::new();
        let deployments = self.deployments(args, namespace)?;
        let mut world = self.session.simulation.world();
        let now = world.now().to_string();
        for (key, name) in deployments {
            world.cluster.objects.change::<Deployment>(&key, |deployment| {
                deployment.spec.template.metadata.annotations.insert(RESTARTED_AT.to_owned(), now.clone());
            });
            text.push_str(&format!("deployment/{name} restarted\n"));
        }
        world.touch_cluster();
        Ok(text)
    }

    /// Key and name of the Deployments of a command; all of them are there.
    fn deployments(&self, args: &RolloutArgs, namespace: Option<&str>) -> Result<Vec<(String, String)>, String> {
        let world = self.session.simulation.world();
        let mut found = Vec::new();
        for target in delete::deployments(&args.objects)? {
            let name = target.name.clone().ok_or("name the deployment: `rollout status deployment NAME`")?;
            let key = target.key(&name, namespace.unwrap_or("default"));
            if !world.cluster.objects.deployments.contains_key(&key) {
                let near = kinds::find("deployment").map(|entry| kinds::did_you_mean(&world, entry, &name)).unwrap_or_default();
                return Err(format!("there is no deployment {key:?}{near}"));
            }
            found.push((key, name));
        }
        Ok(found)
    }
}

/// What kubectl says about a rollout.
fn state(world: &World, key: &str, name: &str) -> Result<String, String> {
    let deployment = world.cluster.objects.deployments.get(key).ok_or_else(|| format!("deployment {key:?} was deleted"))?;
    let Progress { wanted, there, updated, updated_ready, .. } = rows::progress(world, deployment);
    let waits = |why: String| format!("Waiting for deployment {name:?} rollout to finish: {why}...");
    Ok(if updated < wanted {
        waits(format!("{updated} out of {wanted} new replicas have been updated"))
    } else if updated < there {
        waits(format!("{} old replicas are pending termination", there - updated))
    } else if updated_ready < updated {
        waits(format!("{updated_ready} of {updated} updated replicas are available"))
    } else {
        format!("deployment {name:?} successfully rolled out")
    })
}
