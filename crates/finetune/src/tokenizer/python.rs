//! The environment of chat templates: functions and syntax of `transformers`.

use super::{operators, today};
use minijinja::{Environment, Error, ErrorKind};

/// Returns an environment with the functions and methods of `transformers`.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    operators::install(&mut environment);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    today::formatted(format)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

/// Replaces `generation` tags, which mark assistant messages and are not part of Jinja, with
/// conditions that are always true. Keeps the whitespace around them.
pub(super) fn without_generation_tags(template: &str) -> String {
    let mut pieces = template.split("{%");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push_str("{%");
        let tag = piece.split("%}").next().unwrap_or_default();
        let replacement = match tag.trim_matches(['-', '+']).trim() {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        };
        plain.push_str(&replacement);
        plain.push_str(&piece[tag.len()..]);
    }
    plain
}

#[cfg(test)]
mod tests {
    use minijinja::Value;

    use super::super::template::Template;

    fn rendered(template: &str) -> String {
        let value: Value =
            serde_json::from_str(r#"{ "b": [1, 2.5, "<é>"], "a": { "x": null } }"#).unwrap();
        let template = Template::compile("t".as_ref(), template).unwrap();
        template.render(minijinja::context! { value }, 1).unwrap()
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let expected = r#"{"b": [1, 2.5, "<é>"], "a": {"x": null}}"#;
        assert_eq!(rendered("{{ value | tojson }}"), expected);
        assert_eq!(rendered("{{ value.a | tojson(indent=2) }}"), "{\n  \"x\": null\n}");
        assert_eq!(rendered("{{ value.b | tojson(ensure_ascii=false) }}"), r#"[1, 2.5, "<é>"]"#);
    }

    #[test]
    fn the_date_is_always_the_same() {
        let template = r#"{{ strftime_now("%d %b %Y") }} {{ strftime_now("%Y-%m-%d") }}"#;
        assert_eq!(rendered(template), "26 Jul 2024 2024-07-26");
    }

    #[test]
    fn methods_of_strings_and_lists_are_there() {
        let template = r#"{{ " a b ".strip().split(" ")[-1] }}{{ "xy".startswith("x") }}"#;
        assert_eq!(rendered(template), "bTrue");
        assert_eq!(rendered("{% for x in value.b[::-1] %}{{ x }},{% break %}{% endfor %}"), "<é>,");
        assert_eq!(rendered("{% for k, v in value.items() %}{{ k }}{% endfor %}"), "ba");
    }

    #[test]
    fn whitespace_around_blocks_is_that_of_transformers() {
        assert_eq!(rendered("a\n  {% if true %}\nb\n  {% endif %}\nc"), "a\nb\nc");
        let marked = "a {%- generation -%} b {%- endgeneration %} c";
        assert_eq!(rendered(marked), "ab c");
    }
}
