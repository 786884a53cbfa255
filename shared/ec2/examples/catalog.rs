//! Size of a region's catalog at rest, and the time to read it back: one line of JSON. `cargo xtask bench catalog` runs it.

use std::time::Instant;
use whittle_ec2::facts::{Catalog, offline};

/// Readings of which the best counts.
const READINGS: usize = 10;

fn main() {
    let catalog = offline::catalog("us-east-1").expect("an offline region");
    let blob = catalog.encode();
    let milliseconds = (0..READINGS).map(|_| {
        let start = Instant::now();
        let read = Catalog::decode(&blob).expect("what was just encoded");
        assert_eq!(read.types.len(), catalog.types.len());
        start.elapsed().as_secs_f64() * 1000.0
    });
    let best = milliseconds.fold(f64::INFINITY, f64::min);
    println!("{{\"types\": {}, \"bytes\": {}, \"read_milliseconds\": {best:.2}}}", catalog.types.len(), blob.len());
}
