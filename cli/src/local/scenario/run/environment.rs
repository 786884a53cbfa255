//! Steps that change what is around the cluster: EC2, messages, settings, faults.

use super::{Played, Player};
use crate::local::scenario::{Annotation, FaultChange, NewImage, Notice, NoticeKind, SettingsChange, Step, Stock, Tags, Target};
use whittle_api::k8s::{Kind, Node};
use whittle_ec2::network::{Image, ImageVariant, SecurityGroup};
use whittle_ports::Mode;
use whittle_units::InstanceId;

impl Player<'_> {
    /// Steps that change the environment of the cluster.
    pub(super) fn change_environment(&mut self, step: &Step) -> Played {
        match step {
            Step::Interrupt(target) => return self.interrupt(target),
            Step::Notice(notice) => return self.notice(notice),
            Step::StockOut(stock) => {
                self.session.log(&format!("EC2 runs out of {} in {}", stock.instance_type, stock.zone));
                self.session.simulation.world().region.out_of_stock.insert(pool_of(stock));
            }
            Step::Restock(stock) => {
                self.session.log(&format!("EC2 has {} in {} again", stock.instance_type, stock.zone));
                self.session.simulation.world().region.out_of_stock.remove(&pool_of(stock));
            }
            Step::ZonalShift(shift) => self.shift(shift),
            Step::CancelZonalShifts => {
                self.session.log("the zonal shifts of the cluster are cancelled");
                self.session.simulation.world().region.zone_shifts.clear();
            }
            Step::Reserve(wanted) => return self.reserve(wanted),
            Step::EndReservation(id) => return self.end_reservation(id),
            Step::Tags(tags) => self.tags(tags),
            Step::Settings(change) => self.change_settings(change),
            Step::Faults(change) => self.faults(change),
            Step::Image(image) => self.image(image),
            Step::SecurityGroup(group) => {
                let vpc = whittle_sim::region::VPC.to_owned();
                let group = SecurityGroup { id: group.id.clone(), name: group.name.clone(), vpc, tags: group.tags.clone() };
                self.session.simulation.world().region.network.groups.push(group);
            }
            Step::Ticks(span) => self.session.simulation.world().set_tick(span.span()),
            Step::Annotate(annotation) => return Ok(self.annotate(annotation)),
            other => return self.inject_fault(other),
        }
        Ok(Ok(()))
    }

    fn change_settings(&self, change: &SettingsChange) {
        let mut settings = self.session.settings();
        settings.mode = match change.shadow {
            Some(true) => Mode::Shadow,
            Some(false) => Mode::Active,
            None => settings.mode,
        };
        settings.spot_to_spot = change.spot_to_spot.unwrap_or(settings.spot_to_spot);
        settings.act_on_rebalance = change.act_on_rebalance.unwrap_or(settings.act_on_rebalance);
        settings.node_repair = change.node_repair.unwrap_or(settings.node_repair);
        settings.zonal_shift = change.zonal_shift.unwrap_or(settings.zonal_shift);
        if let Some(spread) = &change.default_spread {
            settings.scheduling.default_spread.clone_from(spread);
        }
        self.session.set(settings);
    }

    /// Annotates the first node of a pool, or the first with such a pod.
    fn annotate(&self, annotation: &Annotation) -> Result<(), String> {
        let nodes = self.nodes(&Target { pool: Some(annotation.pool.clone()), ..Target::default() });
        let mut world = self.session.simulation.world();
        let carries = |node: &&String| {
            let mut pods = world.cluster.objects.pods_on(node);
            annotation.under.as_ref().is_none_or(|prefix| pods.any(|pod| pod.metadata.name.starts_with(prefix.as_str())))
        };
        let Some(node) = nodes.iter().find(carries) else { return Err(format!("pool {} has no such node", annotation.pool)) };
        world.cluster.objects.change::<Node>(node, |node| {
            node.metadata.annotations.insert(annotation.key.clone(), annotation.value.clone());
        });
        world.touch_cluster();
        Ok(())
    }

    /// Steps that inject a fault once.
    fn inject_fault(&mut self, step: &Step) -> Played {
        match step {
            Step::UnshowYoung(span) => self.session.simulation.world().hide_new_machines(span.span()),
            Step::UnlistNewest(span) => {
                let done = self.session.simulation.world().unlist_newest(span.span());
                return Ok(self.step_result(done, "no machine runs"));
            }
            Step::HideFirstNode(target) => {
                let nodes = self.nodes(target);
                let Some(node) = nodes.first() else { return Ok(self.step_result(false, "there is no such node to hide")) };
                self.session.log(&format!("lists do not show node/{node}"));
                self.session.simulation.world().hide_always(Node::KIND, node, false);
            }
            Step::ShowAll => self.session.simulation.world().show_all(),
            Step::SpoilClaims => self.session.simulation.world().spoil_claims(),
            Step::MendClaims => self.session.simulation.world().mend_claims(),
            Step::CopyTable => self.session.simulation.world().copy_table(),
            Step::RestoreTable => self.session.simulation.world().restore_table(),
            Step::Uninstall(nodes) => {
                self.session.log(&format!("uninstall, nodes: {nodes:?}"));
                self.session.simulation.world().uninstall(*nodes);
            }
            Step::Finish(pod) => {
                let mut world = self.session.simulation.world();
                let now = world.now();
                let done = world.cluster.finish_pod(pod, now);
                world.touch_cluster();
                drop(world);
                return Ok(self.step_result(done, "no such pod runs"));
            }
            Step::EndNewest => {
                let done = self.session.simulation.world().end_newest();
                return Ok(self.step_result(done, "no machine runs"));
            }
            Step::Stray => {
                let done = self.session.simulation.world().orphan(false);
                return Ok(self.step_result(done, "no machine runs"));
            }
            Step::StrayNode => {
                let done = self.session.simulation.world().orphan(true);
                return Ok(self.step_result(done, "no machine has a Node"));
            }
            Step::KarpenterNode => {
                let done = self.session.simulation.world().karpenter_node();
                return Ok(self.step_result(done, "no machine has a Node"));
            }
            _ => {}
        }
        Ok(Ok(()))
    }

    /// With random faults there may be no target for a step at this moment.
    fn step_result(&self, done: bool, why_not: &str) -> Result<(), String> {
        if done || self.lenient { Ok(()) } else { Err(why_not.to_owned()) }
    }

    fn interrupt(&mut self, target: &Target) -> Played {
        let nodes = self.nodes(target);
        let Some(node) = nodes.first() else {
            // With random faults it may be gone already.
            return Ok(if self.lenient { Ok(()) } else { Err("there is no such node to interrupt".to_owned()) });
        };
        self.session.log(&format!("EC2 announces: spot node {node} is taken back in two minutes"));
        // With random faults its machine may be terminated already.
        if let Err(error) = self.session.interrupt(node)
            && !self.lenient
        {
            return Err(error);
        }
        Ok(Ok(()))
    }

    fn notice(&mut self, notice: &Notice) -> Played {
        let id = match (&notice.instance, &notice.pool) {
            (Some(id), _) => InstanceId::new(id.clone()),
            (None, pool) => {
                let nodes = self.nodes(&Target { pool: pool.clone(), ..Target::default() });
                let Some(node) = nodes.first() else { return Ok(Err("there is no such node to send a notice about".to_owned())) };
                self.session.machine_of(node)?
            }
        };
        self.session.log(&format!("EventBridge delivers {:?} about {id}, {} time(s)", notice.kind, notice.times));
        let mut world = self.session.simulation.world();
        let now = world.now();
        if matches!(notice.kind, NoticeKind::Spot) && world.region.machines.contains_key(&id) {
            world.take_back(&id);
        }
        for _ in 0..notice.times {
            let subject = world.region.subject(&id);
            let text = match notice.kind {
                NoticeKind::Spot => subject.spot_interruption(now),
                NoticeKind::Rebalance => subject.rebalance(now),
                NoticeKind::ScheduledChange => subject.scheduled_change(now),
                NoticeKind::Stopping => subject.state_change("stopping", now),
                NoticeKind::Stopped => subject.state_change("stopped", now),
                NoticeKind::Terminated => subject.state_change("terminated", now),
            };
            world.notice(text);
        }
        Ok(Ok(()))
    }

    fn tags(&mut self, tags: &Tags) {
        let mut world = self.session.simulation.world();
        let cluster = world.name();
        if let Some(present) = tags.subnets {
            world.region.network.tag_subnets(present.then_some(&cluster));
        }
        if let Some(present) = tags.groups {
            world.region.network.tag_groups(present.then_some(&cluster));
        }
    }

    fn faults(&mut self, change: &FaultChange) {
        let mut world = self.session.simulation.world();
        let now = world.now();
        let until = |span: &whittle_api::GoDuration| now.checked_add(span.span()).unwrap_or(now);
        let faults = &mut world.faults;
        faults.throttles = change.throttles.unwrap_or(faults.throttles);
        faults.lost_replies = change.lost_replies.unwrap_or(faults.lost_replies);
        faults.lost_fleets = change.lost_fleets.unwrap_or(faults.lost_fleets);
        faults.claim_refusals = change.claim_refusals.unwrap_or(faults.claim_refusals);
        faults.webhook_refusals = change.webhook_refusals.unwrap_or(faults.webhook_refusals);
        faults.lost_messages = change.lost_messages.unwrap_or(faults.lost_messages);
        faults.repeated_messages = change.repeated_messages.unwrap_or(faults.repeated_messages);
        faults.late_messages = change.late_messages.unwrap_or(faults.late_messages);
        faults.crashes = change.crashes.unwrap_or(faults.crashes);
        faults.slow_replies = change.slow_replies.unwrap_or(faults.slow_replies);
        faults.conflicts = change.conflicts.unwrap_or(faults.conflicts);
        faults.busy_writers = change.busy_writers.unwrap_or(faults.busy_writers);
        faults.stale_reads = change.stale_reads.unwrap_or(faults.stale_reads);
        faults.partial_reads = change.partial_reads.unwrap_or(faults.partial_reads);
        faults.fleets_throttled_until = change.fleets_throttled.as_ref().map(until).or(faults.fleets_throttled_until);
        faults.api_server_down_until = change.api_server_down.as_ref().map(until).or(faults.api_server_down_until);
        faults.table_throttled_until = change.table_throttled.as_ref().map(until).or(faults.table_throttled_until);
        if let Some(mute) = change.mute_launches {
            world.region.launches_never_join = mute;
        }
    }

    fn image(&mut self, image: &NewImage) {
        let mut world = self.session.simulation.world();
        let images = &mut world.region.network.images;
        images.retain(|known| known.id != image.id);
        if !image.gone {
            images.push(Image {
                id: image.id.clone(),
                name: image.name.clone(),
                owner: image.owner.clone().unwrap_or_else(|| "000000000000".to_owned()),
                architecture: image.architecture.clone(),
                created_at: image.created,
                deprecated: false,
                variant: ImageVariant::Any,
                tags: image.tags.clone(),
            });
        }
    }
}

fn pool_of(stock: &Stock) -> (String, String, String) {
    (stock.instance_type.clone(), stock.zone.clone(), stock.capacity_type.clone())
}
