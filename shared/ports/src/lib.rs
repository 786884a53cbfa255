//! Everything that Whittle asks of the world, as small traits.
