//! How many requests to the table wait for each other: of a store whose every answer takes as many polls.

use super::over_sim::world;
use super::pod;
use std::task::{Context, Poll, Waker};
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{Adapters, ClaimStore, Settings};
use whittle_testkit::key;

/// A future's output, and how often it had to wait until then.
fn waited<T>(future: impl Future<Output = T>) -> (T, usize) {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut waits = 0;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, waits);
        }
        waits += 1;
    }
}

#[test]
fn a_snapshot_takes_as_long_as_the_claims_and_one_more_read() {
    let (world, cluster) = (world(), key("a").cluster);
    let ports = world.ports();
    let slow = || Faulty::scripted(&ports, [Some(Fault::SlowReply); 20]);
    let (one, all) = (slow(), slow());
    let adapters = Adapters { store: &all, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let (snapshot, waits) = waited(whittle_snapshot::load(adapters, &Settings::default(), &cluster));
    assert!(snapshot.is_ok());
    assert_eq!(waits, 2 * waited(one.listing(&cluster)).1);
}

/// The lease, the claims, what else is known, what is remembered, and the lease again; then that it has ended well, which is read and,
/// every few minutes, written.
#[test]
fn a_run_that_plans_waits_for_the_table_five_times_and_twice_without_the_lease() {
    let (world, cluster) = (world(), key("a").cluster);
    world.create(pod("waits", 1));
    let ports = world.ports();
    let slow = || Faulty::scripted(&ports, [Some(Fault::SlowReply); 40]);
    let (one, all) = (slow(), slow());
    let adapters = Adapters { store: &all, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let (report, waits) = waited(crate::handle(adapters, &Settings::default(), &cluster));
    assert_eq!(report.unwrap().counted("nothing_pending"), 0);
    assert_eq!(waits, 7 * waited(one.listing(&cluster)).1);
}
