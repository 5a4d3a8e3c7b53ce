// SPDX-License-Identifier: Apache-2.0
//! Texts to rows of ids.

use crate::guard::{fail, invalid, text_of, Failure, Result};
use crate::vocabulary::{tokens_of_template, Mode, Vocabulary};
use crate::Text;
use std::os::raw::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use tokenizers::{EncodeInput, Encoding, Tokenizer};

/// A text, or with `is_pair` a pair.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Texts {
    first: Text,
    second: Text,
    is_pair: c_int,
}

#[repr(C)]
pub struct Options {
    add_special_tokens: c_int,
    parse_special_tokens: c_int,
    truncates_left: c_int,
    /// 0: none, 1: bytes, 2: code points.
    offsets: c_int,
    max_length: usize,
    threads: usize,
}

/// A function of the caller that takes a row: its ids, the numbers of their texts, and two offsets for each or NULL. It throws nothing.
#[repr(C)]
pub struct RowsSink {
    write: unsafe extern "C" fn(
        context: *mut c_void,
        count: usize,
        ids: *const u32,
        type_ids: *const u32,
        offsets: *const usize,
    ),
    context: *mut c_void,
    with_offsets: c_int,
}

/// Below so many bytes for each, one thread less is faster.
const BYTES_OF_THREAD: usize = 32 * 1024;
/// Texts that a thread takes at once.
const TEXTS_AT_ONCE: usize = 32;

/// # Safety
/// The texts live as long as the call.
pub unsafe fn encode(vocabulary: &Vocabulary, texts: &[Texts], options: &Options) -> Result<Vec<Encoding>> {
    let mut inputs = Vec::with_capacity(texts.len());
    let mut bytes = 0;
    for (row, text) in texts.iter().enumerate() {
        let name = if texts.len() == 1 { "the text".to_string() } else { format!("text {row}") };
        let first = text_of(text.first, &name)?;
        let second = if text.is_pair != 0 { Some(text_of(text.second, &name)?) } else { None };
        bytes += first.len() + second.map_or(0, str::len);
        inputs.push((first, second));
    }
    let mode = Mode {
        max_length: options.max_length,
        truncates_left: options.truncates_left != 0,
        parses_special_tokens: options.parse_special_tokens != 0,
    };
    let threads = options.threads.min(bytes / BYTES_OF_THREAD).min(inputs.len().div_ceil(TEXTS_AT_ONCE));
    vocabulary.with_mode(mode, |tokenizer| {
        if options.max_length > 0 && options.add_special_tokens != 0 {
            for is_pair in [false, true] {
                let added = tokens_of_template(tokenizer, is_pair);
                if added > options.max_length && inputs.iter().any(|(_, second)| second.is_some() == is_pair) {
                    return fail(
                        Failure::Invalid,
                        format_args!(
                            "max_length is {}; expected at least the {added} special tokens",
                            options.max_length
                        ),
                    );
                }
            }
        }
        if threads > 1 {
            encode_in_threads(tokenizer, &inputs, options, threads)
        } else {
            inputs.iter().map(|input| encode_one(tokenizer, *input, options)).collect()
        }
    })
}

fn encode_one(tokenizer: &Tokenizer, (first, second): (&str, Option<&str>), options: &Options) -> Result<Encoding> {
    let input: EncodeInput = match second {
        Some(second) => (first, second).into(),
        None => first.into(),
    };
    let special = options.add_special_tokens != 0;
    match options.offsets {
        0 => tokenizer.encode_fast(input, special),
        1 => tokenizer.encode(input, special),
        _ => tokenizer.encode_char_offsets(input, special),
    }
    .map_err(invalid)
}

fn encode_in_threads(
    tokenizer: &Tokenizer,
    inputs: &[(&str, Option<&str>)],
    options: &Options,
    threads: usize,
) -> Result<Vec<Encoding>> {
    type Part = (usize, Result<Vec<Encoding>>);
    let next = AtomicUsize::new(0);
    let parts: Mutex<Vec<Part>> = Mutex::new(Vec::new());
    let work = || loop {
        let begin = next.fetch_add(TEXTS_AT_ONCE, Ordering::Relaxed);
        if begin >= inputs.len() {
            return;
        }
        let part = &inputs[begin..inputs.len().min(begin + TEXTS_AT_ONCE)];
        let rows: Result<Vec<Encoding>> = part.iter().map(|input| encode_one(tokenizer, *input, options)).collect();
        parts.lock().unwrap_or_else(|poison| poison.into_inner()).push((begin, rows));
    };
    // A thread that cannot be had is done without: this one works too. A panic of one is this one's at the end of the scope.
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = std::thread::Builder::new().name("accel-tokens".to_string()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut parts = parts.into_inner().unwrap_or_else(|poison| poison.into_inner());
    parts.sort_by_key(|(begin, _)| *begin);
    let mut rows = Vec::with_capacity(inputs.len());
    for (_, part) in parts {
        rows.extend(part?);
    }
    Ok(rows)
}

/// # Safety
/// The sink is as its type says.
pub unsafe fn hand_over(rows: &[Encoding], sink: &mut RowsSink) -> Result<()> {
    let mut flat = Vec::new();
    for row in rows {
        let mut offsets = std::ptr::null();
        if sink.with_offsets != 0 {
            flat.clear();
            flat.extend(row.get_offsets().iter().flat_map(|(begin, end)| [*begin, *end]));
            offsets = flat.as_ptr();
        }
        (sink.write)(sink.context, row.len(), row.get_ids().as_ptr(), row.get_type_ids().as_ptr(), offsets);
    }
    Ok(())
}
