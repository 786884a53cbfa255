//! Where pending pods go: onto nodes that exist, onto new NodeClaims, or nowhere, with the reasons.
//!
//! What comes in and what goes out are the values of [`whittle_model::scheduling`]. The groups below are in the order of reading:
//! the problem in the solver's own terms, placing one pod, packing all of them, explaining the result. No two modules use each
//! other, directly or through others.

// Around a solve: what is offered to it and asked of it, what machines cost, and what it leaves behind.
pub mod buffers; // room kept free for pods that do not exist yet
mod memory; // which pods need not be evaluated again
mod objective; // what a machine costs on top of its price
pub mod overlays; // changes of prices and capacities

// Building blocks.
mod bits; // sets of small numbers
mod hash; // hash tables that are never iterated
mod ids; // numbers for pods, machines, types and the like, and lists that only they index
mod intern; // label keys, values and requirement sets as numbers
mod meter; // work units, for budgets
pub mod order; // Karpenter's order of equals
mod taints; // tolerations and taints as numbers
mod tally; // pods of a group by machine

// Instance types.
mod catalog; // a list of types in the numbers of one problem
mod catalog_index; // what follows from a list of types alone

// The problem: everything interned, equal pods joined, counts taken; in the order in which `assemble` builds it.
mod assemble; // builds it
mod builder; // what is collected meanwhile
mod pods_to_place; // which pods take part
mod pod_classes; // from pods to classes
mod counted_machines; // what nodes that exist contribute to topology
mod avoided_daemons; // DaemonSets that pods must not be beside
mod groups; // the topology groups
mod class_groups; // which groups count which class
mod pools; // NodePools as templates
mod topology_domains; // the domains that templates provide
mod topology_membership; // which machines count for which group
mod machines; // nodes that exist
mod queue; // the order of the pods
mod problem; // the result: what a solve works on

// What problems consist of.
mod defaults; // cluster-default spread constraints
mod pod; // pods as classes, and the relaxations of a class
mod future_daemons; // where pods of DaemonSets will be
mod relaxation; // which preference is dropped next
mod selectors; // which label sets a selector selects
mod shares; // which selectors are matched where all would take too long
mod topology; // spread, affinity and anti-affinity

// Placing pods.
mod aim; // the type that a machine is filled up to
mod cheapest_fit; // the machine whose price grows least
mod first_fit; // Karpenter's first fit decreasing
mod fit; // whether a pod fits a machine
mod limits; // what NodePool limits allow
mod packing_run; // one run over the queue
mod price_index; // the cheapest type with room for given requests
mod state; // what has been decided so far

// Packing all pods, and improving on it.
mod affinity_check; // required affinity where all pods have ended up
mod bound; // what no plan can cost less than
mod few_sizes; // how many pods of each of a few sizes every machine takes
mod grid; // what machines are best filled with, exactly
mod knapsack; // what one machine is best filled with
mod packing; // several packings compete
mod patterns; // the same for some dozens of sizes
mod refill; // fills a few machines again
mod repack; // pods move between new machines
mod simplex; // how many machines of each pattern

// The result.
mod alone; // a pod alone on a new machine
mod changes; // what of the requirements would have to change
mod explain_topology; // which rule of topology leaves no domain
mod explain_types; // what instance types lack
mod explain; // why a pod has no place
mod misspelt_values; // which labels and values no instance type has, and what was meant
mod finish; // from decisions to the plan

// Entry points.
mod preferences; // what soft preferences add to the price
mod prepared; // many simulations of one moment
mod solve; // from the input to the plan

#[cfg(test)]
mod tests;

pub use memory::{Memory, VALID_FOR};
pub use objective::{machine_cost_fault, volume_cost};
pub use preferences::{PreferenceCost, preference_cost};
pub use prepared::{Prepared, RecentNodes};
pub use solve::solve;
