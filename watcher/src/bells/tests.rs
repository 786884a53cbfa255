use super::*;
use proptest::prelude::*;
use whittle_claims::Doorbell;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + millis).expect("in range")
}

fn kinds(kinds: &[PostKind]) -> BTreeSet<PostKind> {
    kinds.iter().copied().collect()
}

#[test]
fn the_first_bell_is_posted_at_once_and_the_next_in_the_first_slot_after_a_second() {
    for (first, next) in [(0, 1_100), (50, 1_100), (100, 1_100), (101, 1_100), (150, 1_100), (151, 2_100), (950, 2_100), (1_099, 2_100)] {
        let mut bells = Bells::default();
        assert_eq!(bells.next(at(first)), Next::Idle);
        bells.ring(PostKind::Pods);
        assert_eq!(bells.next(at(first)), Next::Post(kinds(&[PostKind::Pods])));
        bells.begin(kinds(&[PostKind::Pods]), at(first));
        bells.ring(PostKind::Pods);
        assert_eq!(bells.next(at(first)), Next::Idle, "one post is under way");
        bells.delivered();
        assert_eq!(bells.next(at(first)), Next::Wait(at(next)), "{first}");
        assert_eq!(bells.next(at(next)), Next::Post(kinds(&[PostKind::Pods])));
    }
}

#[test]
fn one_post_tells_all_kinds_that_may_be_told() {
    let mut bells = Bells::default();
    bells.ring(PostKind::Nodes);
    bells.begin(kinds(&[PostKind::Nodes]), at(0));
    bells.delivered();
    for kind in PostKind::ALL {
        bells.ring(kind);
    }
    assert_eq!(
        bells.next(at(10)),
        Next::Post(kinds(&[PostKind::Pods, PostKind::Deletions, PostKind::Pools])),
        "nodes were told less than a second ago"
    );
    assert_eq!(bells.next(at(1_100)), Next::Post(kinds(&PostKind::ALL)));
    assert_eq!(bells.last(), kinds(&PostKind::ALL), "at the end nothing waits");
}

#[test]
fn a_bell_that_rings_during_a_post_is_told_by_the_next_one() {
    let mut bells = Bells::default();
    bells.ring(PostKind::Pods);
    bells.begin(kinds(&[PostKind::Pods]), at(0));
    bells.ring(PostKind::Pods);
    bells.delivered();
    assert!(!bells.is_quiet());
    assert_eq!(bells.next(at(5_000)), Next::Post(kinds(&[PostKind::Pods])));
}

#[track_caller]
fn check_waits(failure: Failure, jitter: u32, waits_ms: &[i64]) {
    let mut bells = Bells::default();
    bells.ring(PostKind::Pods);
    // Long after the last one, so that the interval does not count.
    for (number, wait) in waits_ms.iter().enumerate() {
        let now = at(i64::try_from(number).expect("few") * 100_000);
        bells.begin(kinds(&[PostKind::Pods]), now - INTERVAL * 10);
        bells.failed(failure, now, Jitter::new(jitter));
        assert_eq!(bells.next(now), Next::Wait(now + SignedDuration::from_millis(*wait)), "failure {number}");
    }
}

#[test]
fn the_wait_after_failures_doubles_up_to_sixteen_seconds_less_a_random_half() {
    check_waits(Failure::Unavailable, 1000, &[1_000, 2_000, 4_000, 8_000, 16_000, 16_000]);
    check_waits(Failure::Unavailable, 0, &[500, 1_000, 2_000, 4_000, 8_000, 8_000]);
    check_waits(Failure::Refused, 1000, &[16_000, 16_000]);
}

#[test]
fn a_success_ends_the_waits() {
    let mut bells = Bells::default();
    bells.ring(PostKind::Pods);
    bells.begin(kinds(&[PostKind::Pods]), at(0));
    bells.failed(Failure::Refused, at(0), Jitter::new(1000));
    assert_eq!(bells.failures(), 1);
    bells.begin(kinds(&[PostKind::Pods]), at(16_000));
    bells.delivered();
    assert!(bells.is_quiet() && bells.failures() == 0);
    bells.ring(PostKind::Nodes);
    assert_eq!(bells.next(at(16_001)), Next::Post(kinds(&[PostKind::Nodes])));
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut bells = Bells::default();
    bells.ring(PostKind::Pods);
    bells.begin(kinds(&[PostKind::Pods]), at(3_600_000));
    bells.failed(Failure::Unavailable, at(3_600_000), Jitter::new(1000));
    assert_eq!(bells.next(at(0)), Next::Post(kinds(&[PostKind::Pods])));
}

/// A watcher and a relay on a virtual clock.
#[derive(Default)]
struct World {
    bells: Bells,
    /// The time at which the post under way ends, and whether it succeeds.
    ends: Option<(Timestamp, bool)>,
    /// Begin and kinds of every post that succeeded.
    told: Vec<(Timestamp, BTreeSet<PostKind>)>,
    begun: Vec<(Timestamp, BTreeSet<PostKind>)>,
    /// A post begins so many milliseconds after it may, as timers do; `since` it may.
    late: i64,
    since: Option<Timestamp>,
}

impl World {
    /// Lets time pass in steps of a millisecond. Every post takes from `answers` how long it takes and whether it succeeds; when they
    /// are used up all succeed at once.
    fn pass(&mut self, from: i64, until: i64, answers: &mut impl Iterator<Item = (i64, bool)>) {
        for now in (from..until).map(at) {
            if let Some((_, success)) = self.ends.take_if(|(end, _)| *end <= now) {
                if success {
                    self.told.extend(self.begun.last().cloned());
                    self.bells.delivered();
                } else {
                    self.bells.failed(Failure::Unavailable, now, Jitter::new(500));
                }
            }
            let Next::Post(kinds) = self.bells.next(now) else {
                self.since = None;
                continue;
            };
            if *self.since.get_or_insert(now) + SignedDuration::from_millis(self.late) <= now {
                self.since = None;
                let (takes, success) = answers.next().unwrap_or((0, true));
                self.begun.push((now, kinds.clone()));
                self.bells.begin(kinds, now);
                self.ends = Some((now + SignedDuration::from_millis(takes), success));
            }
        }
    }
}

fn any_bell() -> impl Strategy<Value = (i64, PostKind)> {
    (0..8_000i64, prop::sample::select(PostKind::ALL.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the relay answers, and however long that takes: every bell is told by a post that began after it, and no kind is
    /// posted twice within a second.
    #[test]
    fn no_bell_is_lost_and_none_is_posted_too_often(
        mut bells in prop::collection::vec(any_bell(), 1..60),
        answers in prop::collection::vec((0..3_000i64, any::<bool>()), 0..8),
        late in 0..30i64,
    ) {
        bells.sort_unstable();
        let mut world = World { late, ..World::default() };
        let mut answers = answers.into_iter();
        let mut now = 0;
        for (rung, kind) in &bells {
            world.pass(now, *rung, &mut answers);
            now = *rung;
            world.bells.ring(*kind);
        }
        // Eight failures with the longest waits and answers, and a slot more.
        world.pass(now, now + 90_000, &mut answers);
        prop_assert!(world.bells.is_quiet());
        for (rung, kind) in &bells {
            let told = world.told.iter().any(|(begun, kinds)| *begun >= at(*rung) && kinds.contains(kind));
            prop_assert!(told, "{kind:?} rung at {rung}: told {:?}", world.told);
        }
        for kind in PostKind::ALL {
            let begun: Vec<Timestamp> = world.begun.iter().filter(|(_, kinds)| kinds.contains(&kind)).map(|(begun, _)| *begun).collect();
            let gaps = begun.windows(2).map(|pair| pair[1].duration_since(pair[0]));
            // Retries too.
            prop_assert!(gaps.min().is_none_or(|gap| gap >= INTERVAL - LATE_MAX), "{kind:?}: {begun:?}");
        }
    }

    /// Ten thousand bells in ten seconds, told by two watchers whose clocks and ways differ, are at most fifteen messages of the plan
    /// queue.
    #[test]
    fn a_storm_seen_by_two_watchers_is_few_messages(
        start in 0..2_000i64,
        skew in -50..50i64,
        first_ways in prop::collection::vec(5..150i64, 16),
        second_ways in prop::collection::vec(5..150i64, 16),
        late in 0..4i64,
    ) {
        let doorbell = Doorbell::Schedule { cluster: "demo".into() };
        let mut ids = BTreeSet::new();
        for (skew, ways) in [(0, first_ways), (skew, second_ways)] {
            let mut world = World { late, ..World::default() };
            let mut answers = ways.iter().map(|way| (*way, true));
            for bell in 0..10_000 {
                let now = start + skew + bell;
                world.bells.ring(PostKind::Pods);
                world.pass(now, now + 1, &mut answers);
            }
            world.pass(start + skew + 10_000, start + skew + 15_000, &mut answers);
            // Once a second, though timers are late.
            prop_assert!(world.bells.is_quiet() && (10..=12).contains(&world.begun.len()), "{} posts", world.begun.len());
            for ((begun, _), way) in world.begun.iter().zip(&ways) {
                let arrived = *begun - SignedDuration::from_millis(skew) + SignedDuration::from_millis(*way);
                ids.insert(doorbell.deduplication_id(SignedDuration::from_secs(1), arrived, String::new));
            }
        }
        // Each watcher alone posts eleven or twelve times, and 16 ids are all that there are in this time.
        prop_assert!(ids.len() <= 16, "{ids:?}");
    }
}
