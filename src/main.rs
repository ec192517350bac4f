//! The Skerry server binary.
fn main() {}
