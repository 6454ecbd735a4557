use clap::Args;
use super::report::Report;
#[derive(Debug, Args)]
pub struct DiskArgs {
    #[arg(long)]
    pub(super) json: bool,
}
pub fn run(_args: &DiskArgs) -> Result<Report, String> {
    Ok(Report::new("disk", String::new()))
}
