//! Tests of the page store as a whole.

mod copy;
mod crash;
mod damage;
mod free;
mod model;
