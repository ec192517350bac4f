//! Templates: Liquid texts that turn documents and queries into what is embedded.

use std::io::{self, Write};
use std::sync::LazyLock;

use liquid::ObjectView;
use serde_json::Value;

/// Bytes that one text may have when it is rendered: a loop in a template must not fill the memory.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// A Liquid text.
pub struct TextTemplate(liquid::Template);

/// A JSON value in which every string is a Liquid text.
pub(super) enum JsonTemplate {
    Text(TextTemplate),
    List(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
    Plain(Value),
}

impl TextTemplate {
    /// Reads a template, with the standard tags and filters.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        static PARSER: LazyLock<Option<liquid::Parser>> =
            LazyLock::new(|| liquid::ParserBuilder::with_stdlib().build().ok());
        let parser = PARSER.as_ref().ok_or("templates are not available")?;
        parser.parse(text).map(Self).map_err(|error| one_line(&error))
    }

    /// Renders it.
    ///
    /// # Errors
    /// What cannot be rendered, in one line.
    pub(super) fn render(&self, globals: &dyn ObjectView) -> Result<String, String> {
        let mut text = Bounded(Vec::new());
        self.0.render_to(&mut text, globals).map_err(|error| one_line(&error))?;
        String::from_utf8(text.0).map_err(|_| "the text is not UTF-8".into())
    }
}

impl JsonTemplate {
    /// Reads a value with its templates.
    ///
    /// # Errors
    /// As [`TextTemplate::parse`].
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => Self::Text(TextTemplate::parse(text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| Ok((name.clone(), Self::parse(value)?));
                Self::Object(fields.iter().map(field).collect::<Result<_, String>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Plain(value.clone()),
        })
    }

    /// Renders all of its texts.
    ///
    /// # Errors
    /// As [`TextTemplate::render`].
    pub(super) fn render(&self, globals: &dyn ObjectView) -> Result<Value, String> {
        Ok(match self {
            Self::Text(text) => text.render(globals)?.into(),
            Self::List(items) => items.iter().map(|item| item.render(globals)).collect::<Result<_, _>>()?,
            Self::Object(fields) => {
                let field = |(name, value): &(String, Self)| Ok((name.clone(), value.render(globals)?));
                Value::Object(fields.iter().map(field).collect::<Result<_, String>>()?)
            }
            Self::Plain(value) => value.clone(),
        })
    }
}

/// The cause, with the variable and the index that it is about.
fn one_line(error: &liquid::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(6).collect::<Vec<_>>().join(" ")
}

/// A text of bounded size.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > TEXT_BYTES_MAX {
            return Err(io::Error::other("the text is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::view::{FieldView, FlatView, Globals, NIL, View};
    use super::*;

    fn document() -> View {
        json!({"title": "Salt", "o": {"z": 1, "b": [1, {"y": 2, "a": 3}]}, "list": ["a", "b"], "price": 9.50, "one": 1.0,
            "big": u64::MAX, "no": false, "nil": null, "empty": "",
            "people": [{"name": "I"}, {"name": "T"}]})
        .into()
    }

    /// The rendering, or `!`.
    fn render(text: &str) -> String {
        let document = document();
        let fields = vec![
            FieldView { name: "title", value: FlatView(&NIL), is_searchable: true },
            FieldView { name: "doc", value: FlatView(&document), is_searchable: false },
        ];
        let globals = Globals(vec![("doc", &document), ("fields", &fields)]);
        TextTemplate::parse(text).unwrap().render(&globals).unwrap_or_else(|_| "!".into())
    }

    #[test]
    fn values_render_as_documented() {
        for (text, wanted) in [
            ("{{doc.title}} {{doc['title']}} {{doc.o.b[0]}} {{doc.list.last}} {{doc.list.size}}", "Salt Salt 1 b 2"),
            ("{{doc.price}} {{doc.one}} {{doc.big}} {{doc.no}} [{{doc.nil}}]", "9.5 1 18446744073709551615 false []"),
            (
                "{{doc.list}} {{fields.last.value}}",
                "ab titleSaltoz1b1y2a3listabprice9.5one1big18446744073709551615nofalsenilemptypeoplenameInameT",
            ),
            ("{{doc.size}} {{fields.size}} {{doc.title.size}}", "10 2 4"),
            ("{{doc.missing}}", "!"),
            ("{{doc.missing | default: 'x'}}", "!"),
            ("{{doc.list[7]}}", "!"),
            ("{% if doc.missing == nil %}y{% endif %}", "!"),
            ("{% if doc.missing %}y{% else %}n{% endif %}", "n"),
            ("{{doc.nil | default: 'x'}}{{doc.no | default: 'y'}}{{doc.empty | default: 'z'}}", "xyz"),
            ("{% if doc.empty %}t{% endif %}{% if doc.empty == blank %}b{% endif %}", "tb"),
            ("{% if doc.no != nil %}y{% else %}n{% endif %}", "n"),
            ("{{ doc.one | divided_by: 0 }}", "!"),
            ("{{doc.list | join: '-'}} {{doc.title | upcase}}", "a-b SALT"),
            ("{% for x in doc.o.b %}{{x.y | default: x}};{% endfor %}", "!"),
            ("{{fields.last.value.o.z}} {{doc.people | map: 'name' | join: '+'}}", "1 I+T"),
            (
                "{% for f in fields %}{{f.name}}{{f.is_searchable}}{% if f.value == nil %}?{% endif %} {% endfor %}",
                "titletrue? docfalse ",
            ),
            ("{{other}}", "!"),
            ("{% include 'x' %}", "!"),
            ("{{ '2024-05-06' | date: '%Y' }}", "2024-05-06"),
        ] {
            assert_eq!(render(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["{{doc.t", "{{ doc.t | no_such_filter }}", "{% echo 'x' %}", "{{ doc.t | upcase: 1 }}", "{% if %}"]
        {
            assert!(TextTemplate::parse(text).is_err(), "{text}");
        }
        assert!(TextTemplate::parse(crate::api::settings::DEFAULT_TEMPLATE).is_ok());
    }

    #[test]
    fn a_text_is_bounded() {
        let endless = "{% for a in (1..10000) %}{% for b in (1..10000) %}text{% endfor %}{% endfor %}";
        assert_eq!(render(endless), "!");
    }

    #[test]
    fn every_string_of_a_value_is_rendered() {
        let document = document();
        let globals = Globals(vec![("doc", &document)]);
        let rendered = |value: Value| JsonTemplate::parse(&value).unwrap().render(&globals);
        let value = json!({"a": ["{{doc.title}}", 3, null], "{{doc.title}}": {"b": "x"}});
        assert_eq!(rendered(value), Ok(json!({"a": ["Salt", 3, null], "{{doc.title}}": {"b": "x"}})));
        assert!(rendered(json!(["{{doc.missing}}"])).is_err());
        assert!(JsonTemplate::parse(&json!(["{{doc.t"])).is_err());
    }
}
