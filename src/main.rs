//! The `ringmain` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringmain::cli::main()
}
