//! State that is a function of a log's batches: producers, epochs. The log keeps snapshots of it
//! and replays what came after.

use super::batch_view::BatchView;

/// State that follows from the batches of one log, in order.
///
/// The log asks for a snapshot at its own end: whenever it calls
/// [`encode_snapshot`](Self::encode_snapshot), the state must reflect exactly the batches appended
/// so far. So a batch is appended first and applied to the state right after, without an await in
/// between, and nobody holds the state borrowed mutably during an append.
pub trait DerivedState: 'static {
    /// The state in bytes, as the `.snapshot` file holds it.
    fn encode_snapshot(&self) -> Vec<u8>;

    /// Replaces the state by a snapshot's.
    ///
    /// # Errors
    /// The reason why the bytes are no snapshot; the log tries an older one then.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String>;

    /// Applies a batch that recovery found: whole, and with the right checksum.
    fn replay(&mut self, batch: &BatchView<'_>);

    /// Recovery has verified that the log holds `batch`. Called for every batch that recovery
    /// scans, whether the state reflects it already or not, and before
    /// [`replay`](Self::replay): for what is kept outside the snapshot, as leader epochs are.
    fn scanned(&mut self, batch: &BatchView<'_>) {
        let _ = batch;
    }

    /// Back to the state of an empty log.
    fn clear(&mut self);
}

/// For logs of which nothing is derived.
impl DerivedState for () {
    fn encode_snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn replay(&mut self, _: &BatchView<'_>) {}

    fn clear(&mut self) {}
}
