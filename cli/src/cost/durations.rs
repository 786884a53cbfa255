//! How long a run keeps the processor busy, by function and size of the cluster.

use whittle_sim::Function;

/// Nodes of the clusters of [`PROCESSOR_MS`].
pub(super) const SIZES: [u32; 4] = [0, 10, 100, 1_000];

/// Milliseconds of a whole processor that a run takes, on average over the quiet and the busy stretch.
///
/// Twice what `whittle cost --measure` printed on 29 November 2026 (optimized as the functions are, on a quiet machine of two cores, with
/// the simulated services in the same process), because Lambda's processors are slower, and five for requests that are signed and
/// encrypted. Launches of an idle deployment are those of ten nodes.
const PROCESSOR_MS: [(Function, [f64; 4]); 9] = [
    (Function::Relay, [2.0, 2.0, 2.0, 2.0]),
    (Function::Schedule, [5.1, 5.6, 12.3, 103.0]),
    (Function::Launch, [31.0, 31.0, 35.3, 116.0]),
    (Function::Register, [5.1, 5.5, 10.3, 119.0]),
    (Function::Consolidate, [5.4, 9.4, 51.0, 775.0]),
    (Function::Interrupt, [5.1, 5.1, 5.1, 5.1]),
    (Function::Terminate, [5.7, 5.7, 5.8, 9.8]),
    (Function::Refresh, [5.8, 6.5, 15.5, 177.0]),
    (Function::Sweep, [5.3, 6.4, 23.9, 319.0]),
];

/// Milliseconds of a processor that the invocation of a schedule takes, and one of the relay.
pub(super) const TICK_MS: f64 = 3.0;

/// Megabytes of memory that come with a whole processor, as AWS documents.
const MEMORY_OF_A_PROCESSOR: f64 = 1_769.0;

/// A function's memory in megabytes, as in the template.
pub(super) const fn memory(function: Function) -> u32 {
    match function {
        Function::Relay => 128,
        Function::Launch | Function::Register | Function::Interrupt | Function::Terminate => 512,
        Function::Schedule | Function::Consolidate | Function::Refresh | Function::Sweep => 1_024,
    }
}

/// Milliseconds of a processor that a run takes in a cluster of this many nodes: on a line between the measured ones.
pub(super) fn processor_ms(function: Function, nodes: u32) -> f64 {
    let Some((_, measured)) = PROCESSOR_MS.iter().find(|(of, _)| *of == function) else { return 0.0 };
    let points: Vec<(f64, f64)> = SIZES.iter().map(|size| f64::from(*size)).zip(measured.iter().copied()).collect();
    let nodes = f64::from(nodes);
    let above = points.windows(2).find(|pair| matches!(pair, [_, (size, _)] if nodes <= *size)).or_else(|| points.windows(2).last());
    match above {
        Some([(low, from), (high, to)]) => from + (to - from) * (nodes - low) / (high - low),
        _ => 0.0,
    }
}

/// Milliseconds that take the processor for so long last with the function's share of one.
pub(super) fn stretched(function: Function, processor_ms: f64) -> f64 {
    processor_ms * (MEMORY_OF_A_PROCESSOR / f64::from(memory(function))).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_measured_sizes_a_duration_grows_evenly() {
        let at = |nodes| processor_ms(Function::Consolidate, nodes);
        assert!(at(10) < at(55) && at(55) < at(100), "{} {} {}", at(10), at(55), at(100));
        assert!((at(55) - (at(10) + at(100)) / 2.0).abs() < 1e-9);
        assert!(at(2_000) > at(1_000), "beyond the largest it goes on growing");
        assert!(stretched(Function::Relay, 1.0) > 13.0 && stretched(Function::Sweep, 1.0) < 2.0);
    }
}
