// SPDX-License-Identifier: Apache-2.0
//! The plugin libaccel_tokenizers.so: a C layer over the crates `tokenizers` and `minijinja`. `../plugin.hpp` declares the other side.
//!
//! It exports one function, which gives a table of functions. No panic leaves them: it becomes an error. Texts are handed to functions of the
//! caller, so that no memory is freed on the other side.

mod chat;
mod encode;
mod guard;
mod python_text;
mod vocabulary;

use guard::{fail, guarded, text_of, Failure, Sink};
use std::os::raw::{c_char, c_int};
use vocabulary::Vocabulary;

/// The number of this interface; `../plugin.hpp` has the same.
const INTERFACE: u32 = 1;

/// Text of the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    data: *const c_char,
    size: usize,
}

#[repr(C)]
pub struct Functions {
    interface: u32,
    parse: unsafe extern "C" fn(json: Text, error: Sink) -> *mut Vocabulary,
    destroy: unsafe extern "C" fn(vocabulary: *mut Vocabulary),
    add_tokens: unsafe extern "C" fn(vocabulary: *mut Vocabulary, json: Text, error: Sink) -> c_int,
    describe: unsafe extern "C" fn(vocabulary: *const Vocabulary, out: Sink, error: Sink) -> c_int,
    encode: unsafe extern "C" fn(
        vocabulary: *const Vocabulary,
        texts: *const encode::Texts,
        count: usize,
        options: *const encode::Options,
        out: *mut encode::RowsSink,
        error: Sink,
    ) -> c_int,
    decode: unsafe extern "C" fn(
        vocabulary: *const Vocabulary,
        ids: *const u32,
        count: usize,
        skip_special_tokens: c_int,
        out: Sink,
        error: Sink,
    ) -> c_int,
    token_to_id: unsafe extern "C" fn(vocabulary: *const Vocabulary, token: Text) -> i64,
    id_to_token: unsafe extern "C" fn(vocabulary: *const Vocabulary, id: u32, out: Sink) -> c_int,
    render: unsafe extern "C" fn(template: Text, variables: Text, fuel: u64, out: Sink, error: Sink) -> c_int,
}

static FUNCTIONS: Functions = Functions {
    interface: INTERFACE,
    parse,
    destroy,
    add_tokens,
    describe,
    encode: encode_texts,
    decode,
    token_to_id,
    id_to_token,
    render,
};

/// The plugin's one function.
#[no_mangle]
pub extern "C" fn accel_tokenizers_functions() -> *const Functions {
    guard::silence_panics();
    // No pool of threads, which a fork would lose: `encode` has threads of its own.
    tokenizers::utils::parallelism::set_parallelism(false);
    &FUNCTIONS
}

unsafe extern "C" fn parse(json: Text, error: Sink) -> *mut Vocabulary {
    let mut made = std::ptr::null_mut();
    guarded(error, || {
        made = Box::into_raw(Box::new(Vocabulary::parse(text_of(json, "the tokenizer's JSON")?)?));
        Ok(())
    });
    made
}

unsafe extern "C" fn destroy(vocabulary: *mut Vocabulary) {
    // A panic here would be one of a destructor, of which these crates have none that can.
    if !vocabulary.is_null() {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(Box::from_raw(vocabulary))));
    }
}

unsafe extern "C" fn add_tokens(vocabulary: *mut Vocabulary, json: Text, error: Sink) -> c_int {
    guarded(error, || (*vocabulary).add_tokens(text_of(json, "the added tokens")?))
}

unsafe extern "C" fn describe(vocabulary: *const Vocabulary, out: Sink, error: Sink) -> c_int {
    guarded(error, || {
        out.write(&(*vocabulary).describe());
        Ok(())
    })
}

unsafe extern "C" fn encode_texts(
    vocabulary: *const Vocabulary,
    texts: *const encode::Texts,
    count: usize,
    options: *const encode::Options,
    out: *mut encode::RowsSink,
    error: Sink,
) -> c_int {
    guarded(error, || {
        let texts = if count == 0 { &[] } else { std::slice::from_raw_parts(texts, count) };
        let rows = encode::encode(&*vocabulary, texts, &*options)?;
        encode::hand_over(&rows, &mut *out)
    })
}

unsafe extern "C" fn decode(
    vocabulary: *const Vocabulary,
    ids: *const u32,
    count: usize,
    skip_special_tokens: c_int,
    out: Sink,
    error: Sink,
) -> c_int {
    guarded(error, || {
        let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
        out.write(&(*vocabulary).decode(ids, skip_special_tokens != 0)?);
        Ok(())
    })
}

/// The id, or -1.
unsafe extern "C" fn token_to_id(vocabulary: *const Vocabulary, token: Text) -> i64 {
    let mut found = -1;
    guarded(Sink::none(), || {
        found = (*vocabulary).token_to_id(text_of(token, "the token")?).map_or(-1, i64::from);
        Ok(())
    });
    found
}

unsafe extern "C" fn id_to_token(vocabulary: *const Vocabulary, id: u32, out: Sink) -> c_int {
    guarded(Sink::none(), || match (*vocabulary).id_to_token(id) {
        Some(token) => {
            out.write(&token);
            Ok(())
        }
        None => fail(Failure::Invalid, "no such id"),
    })
}

unsafe extern "C" fn render(template: Text, variables: Text, fuel: u64, out: Sink, error: Sink) -> c_int {
    guarded(error, || {
        let (template, variables) = (text_of(template, "the chat template")?, text_of(variables, "the variables")?);
        // Some broken templates make the parser panic.
        match std::panic::catch_unwind(|| chat::render(template, variables, fuel)) {
            Ok(text) => out.write(&text?),
            Err(panic) => return fail(Failure::Invalid, guard::panic_message(&*panic)),
        }
        Ok(())
    })
}
