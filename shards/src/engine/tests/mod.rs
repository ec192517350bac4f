//! Whole engines on simulated cores.

mod harness;
mod model;
mod recovery;
mod search;
mod vectors;
