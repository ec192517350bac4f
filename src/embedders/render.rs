//! Renders the templates of documents and compares the texts with those embedded before.

use std::collections::BTreeMap;

use serde_json::Value;
use shards::document::RawDocument;
use shards::document::names::VECTORS;
use shards::ids::FieldId;
use shards::settings::{EmbedderConfig, EmbedderInput};
use shards::vectors::{EmbedContext, EmbedDocument, EmbedRequest, TemplateField};

use super::template::{JsonTemplate, TextTemplate};
use super::view::{DocumentGlobals, Entries, FieldView, Globals, NIL, View};

/// What is to be done for a document.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Everything renders as before.
    Unchanged,
    /// These are embedded and take the place of all there were; rising by slot.
    Replace(Vec<(u16, Value)>),
    /// These are embedded, or lose their vector; others stay. By name of the fragment.
    Patch(Vec<(u16, Option<Value>)>),
    /// The template cannot be rendered: why.
    Failed(String),
}

/// The templates of an embedder.
enum Templates {
    Text(TextTemplate),
    Fragments(BTreeMap<String, JsonTemplate>),
}

/// Decides for each document of a request. Takes long, and as long as a template likes: for side threads.
///
/// # Errors
/// A template of the settings cannot be read.
pub(super) fn plan(request: &EmbedRequest) -> Result<Vec<Plan>, String> {
    let now = Renderer::new(&request.context)?;
    // Settings of an earlier version that cannot be read any more made something else.
    let before = Renderer::new(&request.before).ok();
    Ok(request.documents.iter().map(|document| one(request, document, &now, before.as_ref())).collect())
}

/// Renders a template for each of some documents. Takes as long as the template likes: for side threads.
///
/// # Errors
/// Why the template cannot be read, or cannot be rendered for a document.
pub fn render_documents(
    template: &str,
    fields: &[TemplateField],
    documents: &[RawDocument],
) -> Result<Vec<String>, String> {
    let template = TextTemplate::parse(template)?;
    let names: Names<'_> = fields.iter().map(|field| (field.id, &*field.name)).collect();
    let render = |document| {
        let view = DocumentView::new(document, &names, &names);
        template.render(&view.globals(fields))
    };
    documents.iter().map(render).collect()
}

fn one(request: &EmbedRequest, document: &EmbedDocument, now: &Renderer<'_>, before: Option<&Renderer<'_>>) -> Plan {
    let view = DocumentView::new(&document.document, &now.names, &now.names);
    let earlier = document.before.as_ref().zip(before);
    let earlier =
        earlier.map(|(document, renderer)| (DocumentView::new(document, &renderer.names, &now.names), renderer));
    match &now.templates {
        Templates::Text(template) => {
            let text = match template.render(&view.globals(&request.context.fields)) {
                Ok(text) => text,
                Err(why) => return Plan::Failed(why),
            };
            if let Some((view, Renderer { templates: Templates::Text(template), .. })) = &earlier
                && template.render(&view.globals(&request.before.fields)).is_ok_and(|earlier| earlier == text)
            {
                return Plan::Unchanged;
            }
            Plan::Replace(vec![(0, text.into())])
        }
        Templates::Fragments(fragments) => {
            // A fragment that cannot be rendered is not for this document.
            let render = |fragments: &BTreeMap<String, JsonTemplate>, name: &str, view: &DocumentView| {
                fragments.get(name).and_then(|fragment| fragment.render(&Globals(vec![("doc", &view.doc)])).ok())
            };
            let slots = request.slots.iter();
            let rendered = slots.map(|(name, slot)| (name, *slot, render(fragments, name, &view)));
            let Some((earlier, Renderer { templates: Templates::Fragments(old), .. })) = &earlier else {
                return Plan::Replace(rendered.filter_map(|(_, slot, value)| Some((slot, value?))).collect());
            };
            let differs = |(name, _, value): &(&String, u16, Option<Value>)| *value != render(old, name, earlier);
            let patch: Vec<_> = rendered.filter(differs).map(|(_, slot, value)| (slot, value)).collect();
            if patch.is_empty() { Plan::Unchanged } else { Plan::Patch(patch) }
        }
    }
}

struct Renderer<'r> {
    templates: Templates,
    names: Names<'r>,
}

/// The names of fields by their numbers.
type Names<'r> = BTreeMap<FieldId, &'r str>;

impl<'r> Renderer<'r> {
    fn new(context: &'r EmbedContext) -> Result<Self, String> {
        let templates = match EmbedderConfig::of(&context.embedder).input {
            EmbedderInput::Nothing => Templates::Fragments(BTreeMap::new()),
            EmbedderInput::Template(text) => Templates::Text(TextTemplate::parse(&text)?),
            EmbedderInput::Fragments(fragments) => {
                let parsed = fragments.into_iter().map(|(name, value)| Ok((name, JsonTemplate::parse(&value)?)));
                Templates::Fragments(parsed.collect::<Result<_, String>>()?)
            }
        };
        let names = context.fields.iter().map(|field| (field.id, &*field.name)).collect();
        Ok(Self { templates, names })
    }
}

/// A document as templates see it.
struct DocumentView {
    doc: View,
    /// The places of its fields in `doc`, by number.
    places: BTreeMap<FieldId, usize>,
}

impl DocumentView {
    fn new(document: &RawDocument, names: &Names<'_>, other_names: &Names<'_>) -> Self {
        let (mut entries, mut places) = (Entries::default(), BTreeMap::new());
        for (field, bytes) in &document.fields {
            let Some(name) = names.get(field).or_else(|| other_names.get(field)).filter(|name| **name != VECTORS)
            else {
                continue;
            };
            let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
            places.insert(*field, entries.0.len());
            entries.0.push(((*name).to_owned(), value.into()));
        }
        Self { doc: View::Entries(entries), places }
    }

    fn value(&self, field: FieldId) -> &View {
        match (&self.doc, self.places.get(&field)) {
            (View::Entries(entries), Some(place)) => entries.0.get(*place).map_or(&NIL, |(_, value)| value),
            _ => &NIL,
        }
    }

    /// `doc` and `fields`.
    fn globals<'d>(&'d self, fields: &'d [TemplateField]) -> DocumentGlobals<'d> {
        // Names from within objects are fields to the index, but not to templates.
        let is_shown = |field: &&TemplateField| !field.name.contains('.') || self.places.contains_key(&field.id);
        let fields = fields.iter().filter(is_shown).map(|field| FieldView {
            name: &field.name,
            value: self.value(field.id),
            is_searchable: field.is_searchable,
        });
        DocumentGlobals { doc: &self.doc, fields: fields.collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use serde_json::json;
    use shards::ids::DocId;

    const NAMES: [&str; 5] = ["id", "title", "price", "late", "author.name"];

    fn context(embedder: Value, searchable: &[&str]) -> EmbedContext {
        let field = |(id, name): (usize, &&str)| TemplateField {
            id: FieldId(id as u16),
            name: (*name).into(),
            is_searchable: searchable.contains(name),
        };
        EmbedContext { embedder: Arc::new(embedder), fields: Arc::new(NAMES.iter().enumerate().map(field).collect()) }
    }

    fn document(value: Value) -> RawDocument {
        let field = |(id, name): (usize, &&str)| {
            Some((FieldId(id as u16), value.get(*name)?.to_string().into_bytes().into_boxed_slice()))
        };
        RawDocument { doc: DocId(0), fields: NAMES.iter().enumerate().filter_map(field).collect() }
    }

    fn plan_of(now: EmbedContext, before: EmbedContext, document_now: Value, document_before: Option<Value>) -> Plan {
        let slots = vec![("a".into(), 1), ("b".into(), 0)];
        let entry =
            EmbedDocument { id: "1".into(), document: document(document_now), before: document_before.map(document) };
        let request =
            EmbedRequest { name: "e".into(), context: now, before, slots: Arc::new(slots), documents: vec![entry] };
        plan(&request).unwrap().remove(0)
    }

    fn text(template: &str) -> Value {
        json!({"source": "rest", "documentTemplate": template})
    }

    #[test]
    fn what_renders_as_before_is_left_alone() {
        let title = || context(text("{{doc.title}}"), &NAMES);
        let (salt, priced) = (json!({"id": 1, "title": "Salt"}), json!({"id": 1, "title": "Salt", "price": 2}));
        assert_eq!(plan_of(title(), title(), priced.clone(), Some(salt.clone())), Plan::Unchanged);
        let again = Plan::Replace(vec![(0, "Salt".into())]);
        assert_eq!(plan_of(title(), title(), priced.clone(), None), again);
        let other = context(text("{{doc.price}}"), &NAMES);
        assert_eq!(plan_of(other.clone(), title(), priced, Some(salt.clone())), Plan::Replace(vec![(0, "2".into())]));
        assert_eq!(
            plan_of(title(), other.clone(), salt.clone(), Some(salt.clone())),
            again,
            "it could not be rendered before"
        );
        assert!(
            matches!(plan_of(other, title(), salt.clone(), Some(salt)), Plan::Failed(why) if why.contains("price"))
        );
    }

    #[test]
    fn the_default_template_follows_the_searchable_fields() {
        let default = |searchable: &[&str]| context(text(crate::api::settings::DEFAULT_TEMPLATE), searchable);
        let salt = json!({"title": "Salt", "price": 9.50, "id": 1});
        let all = Plan::Replace(vec![(0, "id: 1\ntitle: Salt\nprice: 9.5\n".into())]);
        assert_eq!(plan_of(default(&NAMES), default(&NAMES), salt.clone(), None), all);
        let one = Plan::Replace(vec![(0, "title: Salt\n".into())]);
        assert_eq!(plan_of(default(&["title"]), default(&NAMES), salt.clone(), Some(salt)), one);
    }

    #[test]
    fn names_from_within_objects_are_no_fields() {
        let names = context(text("{% for field in fields %}{{field.name}} {% endfor %}"), &NAMES);
        let plan = plan_of(names.clone(), names, json!({"id": 1}), None);
        assert_eq!(plan, Plan::Replace(vec![(0, "id title price late ".into())]));
    }

    #[test]
    fn only_fragments_that_changed_are_embedded() {
        let of = |a: &str, b: &str| {
            let fragments = json!({"a": {"value": {"x": a}}, "b": {"value": [b]}});
            context(json!({"source": "rest", "indexingFragments": fragments}), &NAMES)
        };
        let both = of("{{doc.title}}", "{{doc.price}}");
        let salt = json!({"title": "Salt"});
        assert_eq!(
            plan_of(both.clone(), both.clone(), salt.clone(), None),
            Plan::Replace(vec![(1, json!({"x": "Salt"}))])
        );
        let priced = json!({"title": "Salt", "price": 3});
        assert_eq!(
            plan_of(both.clone(), both.clone(), priced.clone(), Some(salt.clone())),
            Plan::Patch(vec![(0, Some(json!(["3"])))])
        );
        assert_eq!(plan_of(both.clone(), both.clone(), salt.clone(), Some(priced)), Plan::Patch(vec![(0, None)]));
        assert_eq!(plan_of(both.clone(), both, salt.clone(), Some(salt)), Plan::Unchanged);
    }
}
