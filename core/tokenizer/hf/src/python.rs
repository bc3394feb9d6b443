//! Values written as Python writes them: what `{{ value }}` and `tojson` print in Jinja2.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State};
use serde_json::Value as Json;

/// minijinja's formatter: what `str(value)` gives.
pub fn format(output: &mut Output, _state: &State, value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Ok(());
    }
    match value.as_str() {
        Some(text) => Ok(output.write_str(text)?),
        None => Ok(write_repr(output, value)?),
    }
}

/// `repr(value)`; a tuple counts as a list.
fn write_repr(output: &mut dyn Write, value: &Value) -> std::fmt::Result {
    match value.kind() {
        ValueKind::None => output.write_str("None"),
        ValueKind::Bool => output.write_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => write_quoted(output, value.as_str().unwrap_or_default()),
        ValueKind::Seq => {
            output.write_char('[')?;
            for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
                output.write_str(if index > 0 { ", " } else { "" })?;
                write_repr(output, &item)?;
            }
            output.write_char(']')
        }
        ValueKind::Map => {
            output.write_char('{')?;
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                output.write_str(if index > 0 { ", " } else { "" })?;
                write_repr(output, &key)?;
                output.write_str(": ")?;
                write_repr(output, &value.get_item(&key).unwrap_or_default())?;
            }
            output.write_char('}')
        }
        _ => write!(output, "{value}"),
    }
}

fn write_quoted(output: &mut dyn Write, text: &str) -> std::fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    output.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => output.write_str("\\\\")?,
            '\n' => output.write_str("\\n")?,
            '\r' => output.write_str("\\r")?,
            '\t' => output.write_str("\\t")?,
            c if c == quote => write!(output, "\\{c}")?,
            c if c < ' ' || c == '\x7f' => write!(output, "\\x{:02x}", c as u32)?,
            c => output.write_char(c)?,
        }
    }
    output.write_char(quote)
}

/// The `length` filter: `len(value)`, which is 0 for what is undefined.
pub fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value
        .len()
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("object of type {} has no len()", value.kind())))
}

/// The `sequence` test: whatever has a length and items.
pub fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
}

#[derive(Default)]
pub struct JsonLayout {
    pub indent: Option<usize>,
    /// Item and key separators; `json.dumps` has ", " and ": ", and "," with an indent.
    pub separators: Option<Vec<String>>,
    pub sort_keys: bool,
}

/// `json.dumps` with ensure_ascii off.
pub fn json_dumps(value: &Json, layout: &JsonLayout) -> String {
    let default_item = if layout.indent.is_some() { "," } else { ", " };
    let separator = |index: usize, default: &'static str| {
        layout.separators.as_ref().and_then(|s| s.get(index)).map_or(default.to_string(), String::clone)
    };
    let mut writer = JsonWriter {
        text: String::new(),
        item: separator(0, default_item),
        key: separator(1, ": "),
        indent: layout.indent,
        sort_keys: layout.sort_keys,
    };
    writer.value(value, 0);
    writer.text
}

struct JsonWriter {
    text: String,
    item: String,
    key: String,
    indent: Option<usize>,
    sort_keys: bool,
}

impl JsonWriter {
    fn value(&mut self, value: &Json, depth: usize) {
        match value {
            Json::Array(items) if !items.is_empty() => {
                self.text.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.separate(index, depth + 1);
                    self.value(item, depth + 1);
                }
                self.new_line(depth);
                self.text.push(']');
            }
            Json::Object(members) if !members.is_empty() => {
                let mut members: Vec<_> = members.iter().collect();
                if self.sort_keys {
                    members.sort_by(|a, b| a.0.cmp(b.0));
                }
                self.text.push('{');
                for (index, (key, item)) in members.into_iter().enumerate() {
                    self.separate(index, depth + 1);
                    self.string(key);
                    self.text.push_str(&self.key);
                    self.value(item, depth + 1);
                }
                self.new_line(depth);
                self.text.push('}');
            }
            Json::String(text) => self.string(text),
            other => self.text.push_str(&other.to_string()),
        }
    }

    fn separate(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.text.push_str(&self.item);
        }
        self.new_line(depth);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                c if c < ' ' => self.control(c),
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }

    fn control(&mut self, c: char) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, "\\u{:04x}", c as u32);
    }
}
