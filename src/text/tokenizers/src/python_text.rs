// SPDX-License-Identifier: Apache-2.0
//! The texts that Python makes of values: templates were written for it.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Deeper values are errors, because they would exhaust the stack.
const DEEPEST: usize = 200;

/// As str() of Python.
pub fn python_text(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_string(),
        ValueKind::Undefined => String::new(),
        _ => {
            let mut out = String::new();
            append_repr(&mut out, value, 0);
            out
        }
    }
}

fn append_repr(out: &mut String, value: &Value, depth: usize) {
    if depth > DEEPEST {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number_text(value)),
        ValueKind::String => append_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => append_items(out, value, depth),
        ValueKind::Map => append_members(out, value, depth),
        _ => out.push_str(&value.to_string()),
    }
}

fn append_items(out: &mut String, value: &Value, depth: usize) {
    let Ok(items) = value.try_iter() else {
        out.push_str(&value.to_string());
        return;
    };
    out.push('[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        append_repr(out, &item, depth + 1);
    }
    out.push(']');
}

fn append_members(out: &mut String, value: &Value, depth: usize) {
    let Ok(keys) = value.try_iter() else {
        out.push_str(&value.to_string());
        return;
    };
    out.push('{');
    for (index, key) in keys.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        append_repr(out, &key, depth + 1);
        out.push_str(": ");
        append_repr(out, &value.get_item(&key).unwrap_or_default(), depth + 1);
    }
    out.push('}');
}

/// As repr() of a text: in the quotes that it has not inside.
fn append_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for letter in text.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if letter == quote => {
                out.push('\\');
                out.push(letter);
            }
            '\0'..='\x1f' | '\x7f'..='\u{a0}' | '\u{ad}' => out.push_str(&format!("\\x{:02x}", letter as u32)),
            _ => out.push(letter),
        }
    }
    out.push(quote);
}

/// As repr() of an int or a float.
fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else { return value.to_string() };
    if number.is_nan() {
        return "nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

/// The settings of json.dumps().
pub struct JsonForm {
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    pub indent: Option<usize>,
    pub separators: (String, String),
}

/// As json.dumps() of Python.
pub fn json_text(value: &Value, form: &JsonForm) -> Result<String, Error> {
    let mut out = String::new();
    append_json(&mut out, value, form, 0)?;
    Ok(out)
}

fn append_json(out: &mut String, value: &Value, form: &JsonForm, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&match number_text(value).as_str() {
            "nan" => "NaN".to_string(),
            "inf" => "Infinity".to_string(),
            "-inf" => "-Infinity".to_string(),
            text => text.to_string(),
        }),
        ValueKind::String => append_json_string(out, value.as_str().unwrap_or_default(), form.ensure_ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            append_list(out, &items, ('[', ']'), form, depth, |out, item| append_json(out, item, form, depth + 1))?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if form.sort_keys {
                keys.sort();
            }
            append_list(out, &keys, ('{', '}'), form, depth, |out, key| {
                append_json_string(out, &python_text(key), form.ensure_ascii);
                out.push_str(&form.separators.1);
                append_json(out, &value.get_item(key)?, form, depth + 1)
            })?;
        }
        kind => {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a value of kind {kind} has no JSON")));
        }
    }
    Ok(())
}

fn append_list(
    out: &mut String,
    items: &[Value],
    brackets: (char, char),
    form: &JsonForm,
    depth: usize,
    mut append: impl FnMut(&mut String, &Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let new_line = |out: &mut String, depth: usize| {
        if let Some(indent) = form.indent {
            out.push('\n');
            out.extend(std::iter::repeat(' ').take(indent * depth));
        }
    };
    out.push(brackets.0);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&form.separators.0);
        }
        new_line(out, depth + 1);
        append(out, item)?;
    }
    if !items.is_empty() {
        new_line(out, depth);
    }
    out.push(brackets.1);
    Ok(())
}

fn append_json_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\x1f' => out.push_str(&format!("\\u{:04x}", letter as u32)),
            _ if ensure_ascii && !letter.is_ascii() => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}
