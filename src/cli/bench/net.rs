use clap::Args;
use super::report::Report;
#[derive(Debug, Args)]
pub struct NetArgs {
    #[arg(long)]
    pub(super) json: bool,
}
pub fn run(_args: &NetArgs) -> Result<Report, String> {
    Ok(Report::new("net", String::new()))
}
