//! Templates: Liquid texts that turn documents and queries into the text to embed.
//!
//! They come from anyone who may change settings, and are parsed where requests are handled. So their nesting ([`source_limits`],
//! [`language`]) and the cost of rendering them ([`meter`]) are bounded.

mod block;
mod captures;
mod filters;
mod language;
mod lists;
mod loops;
mod meter;
mod panics;
mod scope;
mod source_limits;

use std::io::{self, Write};
use std::sync::LazyLock;

use liquid_core::parser::Language;
use liquid_core::runtime::{Renderable, RuntimeBuilder, Template};
use liquid_core::{Error, ObjectView};
use serde_json::Value;

use meter::Metered;
use scope::Root;

/// Bytes that one text may have when it is rendered: a loop in a template must not fill the memory.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// A Liquid text.
pub struct TextTemplate(Template);

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
        static LANGUAGE: LazyLock<Language> = LazyLock::new(language::bounded);
        source_limits::check(text)?;
        let elements = liquid_core::parser::parse(text, &LANGUAGE).map_err(|error| one_line(&error))?;
        Ok(Self(Template::new(elements)))
    }

    /// Renders it.
    ///
    /// # Errors
    /// What cannot be rendered, in one line.
    pub(super) fn render(&self, globals: &dyn ObjectView) -> Result<String, String> {
        let mut text = Bounded(Vec::new());
        let runtime = Metered(Root::new(RuntimeBuilder::new().build(), globals));
        let rendered = panics::caught(|| self.0.render_to(&mut text, &runtime).and_then(|()| runtime.check()));
        rendered.map_err(|error| one_line(&error))?;
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
fn one_line(error: &Error) -> String {
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

    use super::super::view::{FieldView, Globals, NIL, View};
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
            FieldView { name: "title", value: &NIL, is_searchable: true },
            FieldView { name: "doc", value: &document, is_searchable: false },
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

    /// The order was another each time, so that documents were taken for changed.
    #[test]
    fn objects_keep_their_order() {
        let document: View = json!({"zeta": "Z", "alpha": 1, "o": {"z": 1, "b": [1, {"y": 2, "a": 3}], "k": {}, "c": 4},
            "people": [{"name": "T", "age": 3, "in": "x"}, {"name": "I", "age": 2, "in": "y"}, {"name": "T", "age": 3, "in": "x"}]})
        .into();
        let fields = [FieldView { name: "o", value: &document, is_searchable: true }];
        let fields = fields.into_iter().collect::<Vec<_>>();
        let globals = Globals(vec![("doc", &document), ("fields", &fields)]);
        let (o, people) = ("z1b1y2a3kc4", "nameTage3inxnameIage2inynameTage3inx");
        let doc = format!("zetaZalpha1o{o}people{people}");
        let field = format!("nameovalue{doc}is_searchabletrue");
        for (text, wanted) in [
            ("{{doc}}", &*doc),
            ("{{doc.o}}", o),
            ("{{fields}}", &field),
            ("{% for f in fields %}{{f}}{{f.value.alpha}}{% endfor %}", &format!("{field}1")),
            ("{% for p in doc %}{{p[0]}}={{p[1]}};{% endfor %}", &format!("zeta=Z;alpha=1;o={o};people={people};")),
            ("{% for p in doc.o %}{{p.first}} {{p.last}};{% endfor %}", "z 1;b 1y2a3;k ;c 4;"),
            ("{% for p in doc %}{% for q in p[1] %}{{q[0]}}{% endfor %}{% break %}{% endfor %}", "!"),
            (
                "{% for p in doc %}{% if p[0] == 'o' %}{{p[1].b[1].a}}{% for q in p[1] %}{{q[0]}}{% endfor %}{% endif %}{% endfor %}",
                "3zbkc",
            ),
            (
                "{% tablerow p in doc.o limit:1 %}{{p}}{% endtablerow %}",
                "<tr class=\"row1\"><td class=\"col1\">z1</td></tr>",
            ),
            ("{% assign x = doc.o %}{{x}} {{x.z}}{{x.b[1]}}{{x.size}}{{x.k | size}}", &format!("{o} 1y2a340")),
            ("{% assign x = doc.o %}{% for p in x reversed %}{{p[0]}}{% endfor %}", "ckbz"),
            ("{% assign x = doc.o %}{% if x contains 'z' %}y{% endif %}{% if x contains 4 %}n{% endif %}", "y"),
            ("{% assign x = doc.o %}{% if x == doc.o %}y{% endif %}{% assign x = 1 %}{{x}}", "y1"),
            ("{% assign x = doc.people %}{% for p in x %}{{p.name}}{% endfor %}{{x}}", &format!("TIT{people}")),
            ("{{doc.o | default: 'x'}}{{doc.o.k | default: doc.o}}", &format!("{o}{o}")),
            ("{{doc.o | size}}{{doc.o | default: 'x' | size}}{{doc | size}}", "444"),
            ("{{doc.people | first}}{{doc.people | last}}", "nameTage3inxnameTage3inx"),
            ("{{doc.people | reverse | map: 'name' | join}}", "T I T"),
            ("{{doc.people | where: 'age', 2}}", "nameIage2iny"),
            ("{{doc.people | where: 'age', 2 | map: 'in'}}", "y"),
            ("{{doc.people | sort: 'name'}}", "nameIage2inynameTage3inxnameTage3inx"),
            ("{{doc.people | reverse | sort_natural: 'in' | map: 'in'}}", "xxy"),
            ("{{doc.people | sort: 'age' | first}}", "nameIage2iny"),
            ("{{doc.people | uniq | size}}{{doc.people | reverse | uniq | size}}", "22"),
            ("{{doc.people | compact: 'age' | slice: 1 | map: 'name'}}", "I"),
            ("{{doc.people | concat: doc.people | map: 'age'}}", "323323"),
            ("{{doc.o.b | join: '-'}} {{doc.o | append: '!'}}", &format!("1-y2a3 {o}!")),
            ("{% capture x %}{{doc.o}}{% endcapture %}{{x}}", o),
            (
                "{% for i in (1..1) %}{{forloop}}{% endfor %}",
                "length1index00index1rindex00rindex1firsttruelasttrueparentloop",
            ),
        ] {
            // Each time anew: the library's objects have an order of their own each.
            for _ in 0..3 {
                let rendered = TextTemplate::parse(text).unwrap().render(&globals);
                assert_eq!(rendered.unwrap_or_else(|_| "!".into()), wanted, "{text}");
            }
        }
    }

    /// The task of such a document failed as if the server were at fault.
    #[test]
    fn what_the_library_panics_of_is_an_error() {
        let document: View = json!({"least": i64::MIN, "one": -1}).into();
        let globals = Globals(vec![("doc", &document)]);
        for text in ["{{doc.least | divided_by: doc.one}}", "{{doc.least | modulo: doc.one}}"] {
            let why = TextTemplate::parse(text).unwrap().render(&globals).unwrap_err();
            assert!(why.contains("overflow"), "{why}");
        }
        assert_eq!(render("{{doc.one | divided_by: 1}}"), "1");
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

    /// A template of 27 KB once ended the process: each level of it was some calls deeper on the stack.
    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let nested = |open: &str, close: &str, depth: usize| format!("{}x{}", open.repeat(depth), close.repeat(depth));
        let (tag, end) = ("{% if true %}", "{% endif %}");
        assert_eq!(render(&nested(tag, end, 100)), "x");
        let chained = |word: &str, count: usize| {
            format!("{{% if true{} %}}x{{% endif %}}", format!(" {word} true").repeat(count))
        };
        assert_eq!(render(&chained("and", 500)), "x");
        for (what, text) in [
            ("blocks", nested(tag, end, 1300)),
            ("blocks in a comment", format!("{{% comment %}}{}{{% endcomment %}}{{% nope %}}", nested(tag, end, 1300))),
            ("loops", nested("{%- for a in doc.list -%}", "{%endfor%}", 1300)),
            ("indexes", format!("{{{{ {}", "a[".repeat(5000))),
            ("indexes in a tag", format!("{{% if {}1{} %}}{{% endif %}}", "a[".repeat(5000), "]".repeat(5000))),
            ("after a text", format!("{{{{ '{{' | append: {}", "a[".repeat(5000))),
            ("conditions", chained("or", 501)),
            ("branches", format!("{{% if no %}}{}{{% endif %}}", "{% elsif no %}".repeat(2000))),
            ("numbers", "{{ 99999999999999999999 }}".into()),
            ("blanks", format!("{}x", " ".repeat(50_000))),
            ("length", "x".repeat(200_000)),
        ] {
            assert!(TextTemplate::parse(&text).is_err(), "{what}");
        }
    }

    /// A task whose template does not end survived every restart.
    #[test]
    fn rendering_is_bounded() {
        let doubled = "{% assign a = a | append: a %}".repeat(40);
        let empty = |depth: usize| {
            let open = "{% for a in (1..10000) %}".repeat(depth);
            format!("{open}{}", "{% endfor %}".repeat(depth))
        };
        for text in [
            "{% for i in (1..100000000000) %}{% endfor %}".to_owned(),
            "{% for i in (-922337203685477580..922337203685477580) %}{% endfor %}".into(),
            "{% assign n = 100000000 %}{% tablerow i in (1..n) %}{% endtablerow %}".into(),
            "{% tablerow i in (1..3) cols:0 %}{% endtablerow %}".into(),
            format!("{{% assign a = 'text' %}}{doubled}"),
            format!("{{% assign a = 'text' %}}{}", "{% capture a %}{{a}}{{a}}{% endcapture %}".repeat(40)),
            format!("{{% assign a = 'xxxxxxxxxx' %}}{}", "{% assign a = a | replace: 'x', a %}".repeat(20)),
            format!("{{% assign a = 'x' | split: '' %}}{}", "{% assign a = a | concat: a %}".repeat(40)),
            empty(3),
            empty(3).replace("for", "tablerow"),
            format!("{{% ifchanged %}}{}{{% endifchanged %}}", empty(4).replace("for", "tablerow")),
        ] {
            assert_eq!(render(&text), "!", "{text}");
        }
    }

    #[test]
    fn loops_and_their_variables() {
        for (text, wanted) in [
            ("{% for i in (1..3) %}{{i}}{{forloop.first}} {% endfor %}", "1true 2false 3false "),
            ("{% for i in (3..1) %}x{% else %}none{% endfor %}", "none"),
            ("{% for i in (1..9) reversed limit:2 offset:1 %}{{i}}{% endfor %}", "32"),
            ("{% for i in (1..9) %}{% if i == 3 %}{% break %}{% endif %}{% continue %}x{% endfor %}y", "y"),
            (
                "{% for a in (1..2) %}{% for b in (1..2) %}{{forloop.parentloop.index}}{{b}} {% endfor %}{% endfor %}",
                "11 12 21 22 ",
            ),
            (
                "{% tablerow i in (1..3) cols:2 %}{{i}}{{tablerow.col_last}}{% endtablerow %}",
                concat!(
                    "<tr class=\"row1\"><td class=\"col1\">1false</td><td class=\"col2\">2true</td></tr>",
                    "<tr class=\"row2\"><td class=\"col1\">3true</td></tr>"
                ),
            ),
            ("{% capture a %}{{doc.title}}!{% endcapture %}{{a}}{{a | size}}", "Salt!5"),
            ("{% for a in doc.list %}{% ifchanged %}{{doc.title}}{% endifchanged %}{% endfor %}", "Salt"),
            ("{{ 'a,b' | split: ',' | join: '-' | replace: '-', '+' }}", "a+b"),
        ] {
            assert_eq!(render(text), wanted, "{text}");
        }
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
