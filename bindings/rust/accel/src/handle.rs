// SPDX-License-Identifier: Apache-2.0
//! Owners of the library's objects.

/// A type that owns one handle, and releases it in the end.
macro_rules! handle {
    ($(#[$text:meta])* $name:ident($raw:ident), $release:ident) => {
        $crate::handle::handle! { $(#[$text])* $name($raw), $release, it has a Debug of its own }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.debug_tuple(stringify!($name)).field(&self.0).finish()
            }
        }
    };
    ($(#[$text:meta])* $name:ident($raw:ident), $release:ident, shared by $retain:ident) => {
        $crate::handle::handle! { $(#[$text])* $name($raw), $release }

        // SAFETY: all its functions are of the kind `any`.
        unsafe impl Sync for $name {}

        impl Clone for $name {
            fn clone(&self) -> Self {
                // SAFETY: the handle is alive, and the reference that is added belongs to the new owner.
                unsafe { Self::from_raw(accel_sys::$retain(self.as_raw())) }
            }
        }
    };
    ($(#[$text:meta])* $name:ident($raw:ident), $release:ident, it has a Debug of its own) => {
        $(#[$text])*
        #[repr(transparent)]
        pub struct $name(std::ptr::NonNull<accel_sys::$raw>);

        impl $name {
            /// Owns what a successful call gave.
            ///
            /// # Safety
            /// A handle of this kind whose owner the caller is.
            #[allow(dead_code)]
            pub(crate) unsafe fn from_raw(raw: *mut accel_sys::$raw) -> Self {
                $name(std::ptr::NonNull::new(raw).expect("a call that succeeded gives an object"))
            }

            #[inline]
            pub(crate) fn as_raw(&self) -> *mut accel_sys::$raw {
                self.0.as_ptr()
            }
        }

        impl $crate::call::Made for $name {
            type Raw = *mut accel_sys::$raw;
            const EMPTY: Self::Raw = std::ptr::null_mut();

            #[inline]
            unsafe fn of(raw: Self::Raw) -> $crate::error::Result<Self> {
                Ok(Self::from_raw(raw))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                unsafe { accel_sys::$release(self.as_raw()) }
            }
        }

        // SAFETY: any thread may own it. Only types whose every shared function is of the kind `any` are Sync besides.
        unsafe impl Send for $name {}
    };
}

/// A callback's argument, which it only borrows. It is never lent for changes: whoever has a `&mut` can take the object out and
/// leave another one.
pub(crate) struct Lent<T>(std::mem::ManuallyDrop<T>);

impl<T> Lent<T> {
    pub(crate) fn new(object: T) -> Self {
        Lent(std::mem::ManuallyDrop::new(object))
    }
}

impl<T> std::ops::Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

pub(crate) use handle;

/// The length of an array for the library: NULL for an empty one.
pub(crate) fn array<T>(items: &[T]) -> (*const T, usize) {
    (crate::call::first(items), items.len())
}
