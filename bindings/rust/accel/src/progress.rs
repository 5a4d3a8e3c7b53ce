//! Progress bars around iterators.
use crate::builders::ProgressOptions;
use crate::call::made;
use crate::callback::{nothing, Callback};
use crate::error::Result;
use crate::options::optional;
use crate::state::StateReader;
use crate::strings::c_string;
use crate::tracking::{closures, ProgressBar};
use accel_sys as sys;

// SAFETY: all its functions are of the kind `any`.
unsafe impl Sync for ProgressBar {}

impl Clone for ProgressBar {
    fn clone(&self) -> Self {
        // SAFETY: the handle is alive, and the reference that is added belongs to the new owner.
        unsafe { Self::from_raw(sys::accel_progress_bar_retain(self.as_raw())) }
    }
}

impl StateReader {
    /// Opens a progress bar on stderr, below those that are open.
    ///
    /// * `total`: How many there are; `None`: unknown.
    /// * `options`: `None`: defaults.
    ///
    /// # Errors
    /// InvalidArgument.
    pub fn progress_bar(
        &self,
        label: &str,
        total: impl Into<Option<i64>>,
        options: impl Into<Option<ProgressOptions>>,
    ) -> Result<ProgressBar> {
        new_bar(self, label, total.into(), options.into(), nothing)
    }

    /// The same, whose lines `show` gets instead of stderr, and whether it is the last one.
    ///
    /// # Errors
    /// InvalidArgument.
    pub fn progress_bar_with<F>(
        &self,
        label: &str,
        total: impl Into<Option<i64>>,
        options: impl Into<Option<ProgressOptions>>,
        show: F,
    ) -> Result<ProgressBar>
    where
        F: FnMut(&str, bool) + Send + 'static,
    {
        new_bar(self, label, total.into(), options.into(), || closures::progress(show))
    }

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

fn new_bar(
    state: &StateReader,
    label: &str,
    total: Option<i64>,
    options: Option<ProgressOptions>,
    show: impl FnOnce() -> Callback<sys::accel_progress_fn>,
) -> Result<ProgressBar> {
    let (label, total) = (c_string(label)?, total.unwrap_or(sys::ACCEL_UNSET_INT64));
    let options = optional(&options)?;
    let (call, data, destroy) = show();
    made(|out| unsafe {
        sys::accel_progress_begin(state.as_raw(), label.as_ptr(), total, options, call, data, destroy, out)
    })
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
