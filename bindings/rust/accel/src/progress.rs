//! Progress bars around iterators.
use crate::builders::ProgressOptions;
use crate::call::made;
use crate::callback::{closure, hand_over, run, Exclusive};
use crate::error::{text, Result};
use crate::options::optional;
use crate::state::StateReader;
use crate::strings::c_string;
use crate::tracking::ProgressBar;
use accel_sys as sys;
use std::ffi::c_void;
use std::os::raw::c_char;

// SAFETY: all its functions are of the kind `any`.
unsafe impl Sync for ProgressBar {}

impl Clone for ProgressBar {
    fn clone(&self) -> Self {
        // SAFETY: the handle is alive, and the reference that is added belongs to the new owner.
        unsafe { Self::from_raw(sys::accel_progress_bar_retain(self.as_raw())) }
    }
}

unsafe extern "C" fn show<F>(line: *const c_char, is_last: i32, user_data: *mut c_void)
where
    F: FnMut(&str, bool) + Send + 'static,
{
    run(|| {
        closure::<Exclusive<F>>(user_data).with(|show| {
            show(&text(line), is_last == 1);
            Ok(())
        })
    });
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
        let (label, options) = (c_string(label)?, options.into());
        let (total, options) = (total.into().unwrap_or(sys::ACCEL_UNSET_INT64), optional(&options)?);
        let nothing = std::ptr::null_mut();
        made(|out| unsafe {
            sys::accel_progress_begin(self.as_raw(), label.as_ptr(), total, options, None, nothing, None, out)
        })
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
        let (label, options) = (c_string(label)?, options.into());
        let (total, options) = (total.into().unwrap_or(sys::ACCEL_UNSET_INT64), optional(&options)?);
        let (data, destroy) = hand_over(Exclusive::new(show));
        let show = Some(self::show::<F> as sys::accel_progress_fn);
        made(|out| unsafe {
            sys::accel_progress_begin(self.as_raw(), label.as_ptr(), total, options, show, data, destroy, out)
        })
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
