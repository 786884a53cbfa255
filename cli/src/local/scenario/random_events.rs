//! Random events after the last step of a scenario, for storms that last hours or days.

use super::run::Player;
use crate::local::session::SessionError;
use jiff::SignedDuration;
use whittle_api::k8s::Deployment;
use whittle_sim::Stream;
use whittle_units::Timestamp;

/// The pause between two events, in seconds.
const PAUSE: (u64, u64) = (60, 1200);

impl Player<'_> {
    /// Scales Deployments, interrupts spot machines, deletes Nodes and NodeClaims, and adds orphaned machines.
    /// At the end every Deployment has its original size.
    pub(super) fn play_random_events(&mut self, span: SignedDuration) -> Result<(), SessionError> {
        let wanted: Vec<(String, i32)> = {
            let world = self.session.simulation.world();
            let deployments: Vec<(&String, &Deployment)> = world.cluster.objects.deployments.iter().collect();
            deployments.into_iter().map(|(key, one)| (key.clone(), one.spec.replicas.unwrap_or(1))).collect()
        };
        let until = self.session.now().checked_add(span).unwrap_or(Timestamp::MAX);
        while self.session.now() < until {
            let pause = self.draw(PAUSE.0, PAUSE.1);
            self.run_for(SignedDuration::from_secs(i64::try_from(pause).unwrap_or(0)));
            self.random_event(&wanted)?;
        }
        for (deployment, replicas) in &wanted {
            self.session.scale(deployment, *replicas)?;
        }
        self.run_for(SignedDuration::from_mins(5));
        Ok(())
    }

    fn draw(&mut self, low: u64, high: u64) -> u64 {
        self.session.simulation.world().dice.between(Stream::Faults, low, high)
    }

    fn chosen<V: Clone>(&mut self, all: &[V]) -> Option<V> {
        let at = usize::try_from(self.draw(0, 1_000_000)).unwrap_or(0);
        all.get(at % all.len().max(1)).cloned()
    }

    fn random_event(&mut self, wanted: &[(String, i32)]) -> Result<(), SessionError> {
        let nodes: Vec<String> = {
            let world = self.session.simulation.world();
            let ours = world.cluster.objects.nodes.values().filter(|node| node.metadata.label("karpenter.sh/registered").is_some());
            ours.filter(|node| !node.metadata.is_deleting()).map(|node| node.metadata.name.clone()).collect()
        };
        match self.draw(0, 10) {
            10 => {
                let with_node = self.draw(0, 1) == 1;
                self.session.simulation.world().orphan(with_node);
            }
            0 => {
                if let Some(node) = self.chosen(&nodes) {
                    self.session.delete("node", &node)?;
                }
            }
            1 => {
                let claims: Vec<String> = self.session.simulation.world().cluster.objects.node_claims.keys().cloned().collect();
                if let Some(claim) = self.chosen(&claims) {
                    self.session.delete("nodeclaim", &claim)?;
                }
            }
            2 | 3 => {
                if let Some(node) = self.chosen(&nodes) {
                    // A node whose machine EC2 no longer returns is not interrupted.
                    let _ = self.session.interrupt(&node);
                }
            }
            _ => {
                if let Some((deployment, most)) = self.chosen(wanted) {
                    let most = u64::try_from(most.max(3)).unwrap_or(3);
                    let replicas = i32::try_from(self.draw(0, most + 2)).unwrap_or(0);
                    self.session.scale(&deployment, replicas)?;
                }
            }
        }
        Ok(())
    }
}
