// SPDX-License-Identifier: Apache-2.0
//! Sequences that get their tokens together, and guesses of a smaller model.
use crate::builders::GenerateOptions;
use crate::call::made;
use crate::callback::CallbackResult;
use crate::error::Result;
use crate::handle::handle;
use crate::memory;
use crate::module::{closures, Model};
use crate::options::Options;
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ptr;

handle! {
    /// Sequences that get their tokens together, and join and leave while others go on. Added, ended and asked on any thread; one
    /// at a time runs a step.
    GenerationBatch(accel_generation_batch_t), accel_generation_batch_release
}

/// The library's struct with the model that guesses, for a call while both live. A model is not `Sync`, so a builder that held one
/// could not be: two threads with clones of it would run the model at once.
fn raw_with(options: &GenerateOptions, draft: &Model) -> Result<sys::accel_generate_options_t> {
    // SAFETY: the options give a pointer to a struct that lives as long as they do.
    let mut raw = unsafe { *options.as_raw()? };
    raw.draft_model = draft.as_raw();
    Ok(raw)
}

/// Guesses of a smaller decoder.
impl Model {
    /// Same as [`Model::generate_with`], while `draft`, a smaller decoder with the same vocabulary, guesses the next
    /// tokens, all of which one call of this model checks. Greedy tokens do not change by it, and drawn ones keep their
    /// probabilities.
    ///
    /// # Errors
    /// Same as [`Model::generate_with`].
    pub fn generate_by_draft<'a, F>(
        &self,
        draft: &Model,
        input_ids: &Tensor,
        attention_mask: impl Into<Option<&'a Tensor>>,
        options: GenerateOptions,
        on_tokens: F,
    ) -> Result<Value>
    where
        F: FnMut(&Tensor) -> CallbackResult<Option<Value>> + Send + 'static,
    {
        let mask = attention_mask.into();
        let raw = raw_with(&options, draft)?;
        memory::reads(input_ids)?;
        memory::reads(&mask)?;
        let (call, data, destroy) = closures::generated(on_tokens);
        let mask = mask.map_or(ptr::null(), |one| one.as_raw() as *const _);
        made(|out| unsafe {
            sys::accel_module_generate(self.as_raw(), input_ids.as_raw(), mask, &raw, call, data, destroy, out)
        })
    }
}
