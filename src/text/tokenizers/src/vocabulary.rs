// SPDX-License-Identifier: Apache-2.0
//! A tokenizer of the crate, and its settings for each call.

use crate::guard::{fail, invalid, panic_message, Failure, Result};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokenizers::{
    AddedToken, ModelWrapper, PostProcessor, Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy,
};

/// What a call sets about encoding, which the crate keeps in its tokenizer.
#[derive(Clone, Copy, PartialEq)]
pub struct Mode {
    /// 0: no truncation.
    pub max_length: usize,
    pub truncates_left: bool,
    pub parses_special_tokens: bool,
}

struct State {
    tokenizer: Tokenizer,
    mode: Mode,
}

pub struct Vocabulary {
    state: RwLock<State>,
}

impl Vocabulary {
    pub fn parse(json: &str) -> Result<Vocabulary> {
        // Broken files can make the crate panic where it looks up what they name.
        let parsed = catch_unwind(AssertUnwindSafe(|| json.parse::<Tokenizer>()));
        let mut tokenizer = match parsed {
            Ok(Ok(tokenizer)) => tokenizer,
            Ok(Err(error)) => return fail(Failure::Invalid, error),
            Err(panic) => return fail(Failure::Invalid, panic_message(&*panic)),
        };
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(invalid)?;
        tokenizer.set_encode_special_tokens(false);
        let mode = Mode { max_length: 0, truncates_left: false, parses_special_tokens: true };
        Ok(Vocabulary { state: RwLock::new(State { tokenizer, mode }) })
    }

    /// `json` is a list of added tokens, as in a tokenizer.json but without ids.
    pub fn add_tokens(&mut self, json: &str) -> Result<()> {
        let items: Vec<serde_json::Value> = serde_json::from_str(json).map_err(invalid)?;
        let state = self.state.get_mut().unwrap_or_else(|poison| poison.into_inner());
        for item in items {
            let token: AddedToken = serde_json::from_value(item).map_err(invalid)?;
            let tokenizer = &mut state.tokenizer;
            let added =
                if token.special { tokenizer.add_special_tokens([token]) } else { tokenizer.add_tokens([token]) };
            added.map_err(invalid)?;
        }
        Ok(())
    }

    pub fn describe(&self) -> String {
        let state = self.read();
        let model = match state.tokenizer.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        };
        let mut added: Vec<_> = state.tokenizer.get_added_tokens_decoder().into_iter().collect();
        added.sort_by_key(|(id, _)| *id);
        serde_json::json!({
            "model": model,
            "vocabulary_size": state.tokenizer.get_vocab_size(true),
            "added_tokens": added.into_iter().map(|(_, token)| token.content).collect::<Vec<_>>(),
        })
        .to_string()
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String> {
        self.read().tokenizer.decode(ids, skip_special_tokens).map_err(invalid)
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.read().tokenizer.token_to_id(token)
    }

    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.read().tokenizer.id_to_token(id)
    }

    /// Runs with the tokenizer in this mode. Calls with the mode of the latest one run beside each other.
    pub fn with_mode<T>(&self, mode: Mode, run: impl FnOnce(&Tokenizer) -> Result<T>) -> Result<T> {
        {
            let state = self.read();
            if state.mode == mode {
                return run(&state.tokenizer);
            }
        }
        let mut state = self.write();
        set_mode(&mut state, mode)?;
        run(&state.tokenizer)
    }

    // A panic of a call leaves the tokenizer as it was: only set_mode() changes it.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(|poison| poison.into_inner())
    }
    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(|poison| poison.into_inner())
    }
}

fn set_mode(state: &mut State, mode: Mode) -> Result<()> {
    let truncation = (mode.max_length > 0).then(|| TruncationParams {
        direction: if mode.truncates_left { TruncationDirection::Left } else { TruncationDirection::Right },
        max_length: mode.max_length,
        strategy: TruncationStrategy::LongestFirst,
        stride: 0,
    });
    state.tokenizer.with_truncation(truncation).map_err(invalid)?;
    state.tokenizer.set_encode_special_tokens(!mode.parses_special_tokens);
    state.mode = mode;
    Ok(())
}

/// The number of tokens that a template adds to a text or a pair.
pub fn tokens_of_template(tokenizer: &Tokenizer, is_pair: bool) -> usize {
    tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(is_pair))
}
