//! Chat templates, rendered as transformers renders them.
//!
//! transformers uses Jinja2's sandbox with trim_blocks, lstrip_blocks, loop controls and its own `generation` tag, and
//! adds `raise_exception`, `strftime_now` and a `tojson` that does not escape HTML.

use std::sync::LazyLock;

use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};
use regex::Regex;

use crate::python;
use crate::Failure;

const NAME: &str = "chat_template";
/// Marks an error as the template's own; minijinja has no error kind for that.
const RAISED: &str = "raise_exception: ";

pub struct Template {
    environment: Environment<'static>,
    variables: serde_json::Map<String, serde_json::Value>,
}

impl Template {
    /// `variables`: a JSON object with what every rendering sees.
    pub fn new(source: &str, variables: &str) -> Result<Self, Failure> {
        let variables = serde_json::from_str(variables).map_err(Failure::failed)?;
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(python::format);
        environment.add_filter("tojson", tojson);
        environment.add_filter("length", python::length);
        environment.add_filter("count", python::length);
        environment.add_test("sequence", python::is_sequence);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        let source = without_generation_tags(source);
        environment.add_template_owned(NAME, source).map_err(|e| failure(&e))?;
        Ok(Template { environment, variables })
    }

    /// `context`: a JSON object whose members are variables too; they win over those given to `new`.
    pub fn render(&self, context: &str) -> Result<String, Failure> {
        let context: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(context).map_err(Failure::failed)?;
        let mut variables = self.variables.clone();
        variables.extend(context);
        let template = self.environment.get_template(NAME).map_err(|e| failure(&e))?;
        template.render(Value::from_serialize(&variables)).map_err(|e| failure(&e))
    }
}

fn failure(error: &Error) -> Failure {
    // An error in a macro arrives wrapped once per level.
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(current) = cause {
        let detail = current.downcast_ref::<Error>().and_then(Error::detail);
        if let Some(message) = detail.and_then(|text| text.strip_prefix(RAISED)) {
            return Failure::Raised(message.to_string());
        }
        cause = current.source();
    }
    Failure::Failed(format!("{error:#}").replace('\n', " "))
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// The time now, in the server's time zone.
fn strftime_now(format: String) -> Result<String, Error> {
    use std::fmt::Write;
    let mut text = String::new();
    write!(text, "{}", chrono::Local::now().format(&format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: bad format {format:?}")))?;
    Ok(text)
}

/// `json.dumps(value, ensure_ascii=False, indent=..., separators=..., sort_keys=...)`.
fn tojson(_state: &State, value: Value, options: Kwargs) -> Result<Value, Error> {
    let _ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let layout = python::JsonLayout {
        indent: options.get::<Option<usize>>("indent")?,
        separators: options.get::<Option<Vec<String>>>("separators")?,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let json = serde_json::to_value(&value)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, "tojson: cannot serialize").with_source(e))?;
    Ok(Value::from(python::json_dumps(&json, &layout)))
}

/// `{% generation %}` marks what a training loss covers; it renders its body.
fn without_generation_tags(source: &str) -> String {
    static TAG: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").ok());
    let Some(tag) = TAG.as_ref() else {
        return source.to_string();
    };
    let replace = |found: &regex::Captures| {
        let body = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {} {}%}}", &found[1], body, &found[3])
    };
    tag.replace_all(source, replace).into_owned()
}
