// SPDX-License-Identifier: Apache-2.0
//! Chat templates: Jinja as transformers sets it up, with the texts that Python would make of values.

use crate::guard::{fail, invalid, Failure, Result};
use crate::python_text::{json_text, python_text, JsonForm};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};

const NAME: &str = "chat_template";
/// Deeper calls of macros end with an error; they take stack of the caller's thread.
const MOST_NESTED: usize = 60;
/// Spaces of a level of JSON, which are written without a step of the template.
const MOST_INDENT: usize = 64;

/// Renders a template with an object of variables in JSON.
pub fn render(template: &str, variables: &str, fuel: u64) -> Result<String> {
    let variables: serde_json::Value = serde_json::from_str(variables).map_err(invalid)?;
    let source = without_generation_marks(template);
    let mut environment = Environment::new();
    set_up(&mut environment, fuel)?;
    environment.add_template(NAME, &source).map_err(|error| invalid(line_of(&error)))?;
    let parsed = environment.get_template(NAME).map_err(|error| invalid(line_of(&error)))?;
    match parsed.render(Value::from(Serde(&variables))) {
        Ok(text) => Ok(text),
        Err(error) => fail(Failure::Invalid, line_of(&error)),
    }
}

fn set_up(environment: &mut Environment, fuel: u64) -> Result<()> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| invalid(line_of(&error)))?);
    environment.set_fuel(Some(fuel));
    environment.set_recursion_limit(MOST_NESTED);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, _state, value| {
        if !value.is_undefined() {
            out.write_str(&python_text(value)).map_err(Error::from)?;
        }
        Ok(())
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| python_text(value));
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_sequence);
    environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", strftime_now);
    Ok(())
}

/// As in Python, where a text can be iterated over, and a dict has a length and items.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::String | ValueKind::Map)
}

fn tojson(value: &Value, options: Kwargs) -> std::result::Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if indent.is_some_and(|spaces| spaces > MOST_INDENT) {
        let message = format!("tojson: indent is {}; expected at most {MOST_INDENT}", indent.unwrap_or(0));
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    let form = JsonForm {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        separators: match separators.as_deref() {
            None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
            Some([item, key]) => (item.clone(), key.clone()),
            Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators are not two texts")),
        },
    };
    options.assert_all_used()?;
    json_text(value, &form).map(Value::from_safe_string)
}

/// The time of the host's zone, by the format of strftime.
fn strftime_now(format: &str) -> std::result::Result<String, Error> {
    let wrong =
        || Error::new(ErrorKind::InvalidOperation, format!("strftime_now: the format {format:?} gives no text"));
    if format.is_empty() {
        return Ok(String::new());
    }
    let format = std::ffi::CString::new(format).map_err(|_| wrong())?;
    let mut text = [0u8; 512];
    // SAFETY: the buffers are as large as said.
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return Err(wrong());
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &parts)
    };
    match std::str::from_utf8(&text[..size]) {
        Ok(text) if size > 0 => Ok(text.to_string()),
        _ => Err(wrong()),
    }
}

/// `{% generation %}` marks what a model has said, for masks of losses. Text is the same without, so it becomes a condition that holds.
fn without_generation_marks(template: &str) -> String {
    let mut result = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(begin) = rest.find("{%") {
        let Some(length) = rest[begin..].find("%}") else { break };
        let inside = &rest[begin + 2..begin + length];
        let (left, word) = match inside.strip_prefix(['-', '+']) {
            Some(word) => (&inside[..1], word),
            None => ("", inside),
        };
        let (word, right) = match word.strip_suffix('-') {
            Some(word) => (word, "-"),
            None => (word, ""),
        };
        let replacement = match word.trim() {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match replacement {
            Some(replacement) => {
                result.push_str(&rest[..begin]);
                result.push_str(&format!("{{%{left} {replacement} {right}%}}"));
                rest = &rest[begin + length + 2..];
            }
            None => {
                result.push_str(&rest[..begin + 2]);
                rest = &rest[begin + 2..];
            }
        }
    }
    result.push_str(rest);
    result
}

/// One line that says what is wrong and where.
fn line_of(error: &Error) -> String {
    let mut text = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    if error.kind() == ErrorKind::OutOfFuel {
        text = "it takes too many steps or too much memory, and may not end".to_string();
    }
    if let Some(line) = error.line() {
        text += &format!(", line {line}");
    }
    text
}
