// SPDX-License-Identifier: Apache-2.0
//! Progress bars around iterators.
use crate::error::Result;
use crate::state::StateReader;
use crate::tracking::ProgressBar;

impl StateReader {
    /// The items of an iterator, with a progress bar that counts them and ends with them:
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// # let state = accel::StateOptions::new().cpu(true).build()?;
    /// let mut sum = 0;
    /// for item in state.progress_of("sum", 0..100)? {
    ///     sum += item;
    /// }
    /// # assert_eq!(sum, 4950);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// InvalidArgument.
    pub fn progress_of<I: IntoIterator>(&self, label: &str, items: I) -> Result<Progress<I::IntoIter>> {
        let items = items.into_iter();
        let total = match items.size_hint() {
            (least, Some(most)) if least == most => i64::try_from(most).ok(),
            _ => None,
        };
        Ok(self.progress_bar(label, total, None)?.wrap(items))
    }
}

impl ProgressBar {
    /// The items of an iterator, which this bar counts. It ends with them.
    pub fn wrap<I: IntoIterator>(self, items: I) -> Progress<I::IntoIter> {
        Progress { items: items.into_iter(), bar: self, in_use: false }
    }
}

/// An iterator with a progress bar: [`StateReader::progress_of`]. An item is done when the next one is asked for.
#[derive(Debug)]
pub struct Progress<I> {
    items: I,
    bar: ProgressBar,
    in_use: bool,
}

impl<I> Progress<I> {
    /// The bar, for what stands behind the rate.
    pub fn bar(&self) -> &ProgressBar {
        &self.bar
    }
}

impl<I: Iterator> Iterator for Progress<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        // A bar that has ended, or whose terminal is gone, does not end the loop.
        if self.in_use {
            let _ = self.bar.inc(1);
        }
        let item = self.items.next();
        self.in_use = item.is_some();
        if item.is_none() {
            let _ = self.bar.finish();
        }
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for Progress<I> {}
