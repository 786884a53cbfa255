//! The whittle command.

<<<<<<< HEAD
pub mod convert;
pub mod input;
=======
pub mod plan;
>>>>>>> f1726c1 (wip2)
