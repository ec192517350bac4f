//! Tests of the page store as a whole.

mod crash;
mod damage;
mod model;
