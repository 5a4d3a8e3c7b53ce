// SPDX-License-Identifier: Apache-2.0
//! An order of items for each epoch.
use crate::handle::handle;

handle! {
    /// An order of items for each epoch.
    Sampler(accel_sampler_t), accel_sampler_release
}

impl Sampler {
    /// Whether nothing is drawn.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
