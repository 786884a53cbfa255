//! Lambda glue: configuration, deadlines, messages, telemetry, wiring.
