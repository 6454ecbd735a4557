//! The command line: one file a command.

pub mod bench;
pub mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kafka-compatible broker for Linux: one core, one ring, one log.
#[derive(Debug, Parser)]
#[command(name = "ringmain", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Bench(bench::BenchArgs),
}

/// How a command failed: one line for the person, and the exit code.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    /// Something went wrong while running.
    pub fn run(message: impl ToString) -> Self {
        Self {
            message: message.to_string(),
            code: 1,
        }
    }

    /// The command line or the configuration is wrong.
    pub fn usage(message: impl ToString) -> Self {
        Self {
            message: message.to_string(),
            code: 2,
        }
    }
}

/// Runs the command that the process was called with.
pub fn main() -> ExitCode {
    let result = Cli::try_parse()
        .map_err(bad_command_line)
        .and_then(|cli| match cli.command {
            Command::Serve(args) => serve::run(args),
            Command::Bench(args) => bench::run(args).map_err(Failure::run),
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ringmain: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

/// One line of what clap says in several; help and version are printed as they are.
fn bad_command_line(error: clap::Error) -> Failure {
    if !error.use_stderr() {
        error.exit();
    }
    let rendered = error.to_string();
    let mut lines = rendered.lines();
    let reason = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ");
    let tip = lines.find_map(|line| line.trim().strip_prefix("tip: "));
    let tip = tip.unwrap_or("`ringmain --help` and `ringmain COMMAND --help` list what there is");
    Failure::usage(format!("{reason}; {tip}"))
}
