//! The `skerry` program.

use std::process::ExitCode;

mod memory;

fn main() -> ExitCode {
    memory::give_back_aside();
    skerry::server::run_process()
}
