use super::report::Report;
use clap::Args;
#[derive(Debug, Args)]
pub struct DiskArgs {
    #[arg(long)]
    pub(super) json: bool,
}
pub fn run(_args: &DiskArgs) -> Result<Report, String> {
    Ok(Report::new("disk", String::new()))
}
