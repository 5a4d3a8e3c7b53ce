// SPDX-License-Identifier: Apache-2.0
//! Loops over batches that the program reads itself.
use crate::handle::handle;

handle! {
    /// A loop over batches that the program reads itself, with a loader of its own. It ends when it is dropped.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{EndOfDataLoader, Loop, StateOptions};
    /// let state = StateOptions::new().cpu(true).process_index(0).num_processes(1).build()?;
    /// let batches = Loop::begin(&state)?;
    /// batches.set_batch(&[4], 2, EndOfDataLoader::No)?; // the last one will have 2 rows
    /// assert!(state.in_dataloader() && !state.end_of_dataloader());
    /// batches.set_batch(&[2], 2, EndOfDataLoader::Yes)?;
    /// assert_eq!(state.remainder(), Some(2));
    /// drop(batches);
    /// assert!(!state.in_dataloader());
    /// # state.end_training() }
    /// ```
    Loop(accel_loop_t), accel_loop_release
}
