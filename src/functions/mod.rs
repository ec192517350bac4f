//! Document-editing functions: JavaScript from users, run once per document, each time in a fresh scope.
//!
//! The script is a list of statements. It finds the document in the variable `doc`, which it may change or assign, and the
//! request's object in the constant `context`. Afterwards `doc` decides: null deletes the document, an object replaces it. There
//! is no clock, randomness, file, network, module or timer, so the same function gives the same documents everywhere. Operations,
//! memory and depth are bounded, so an endless function ends as an error.
//!
//! Inside one native call the JavaScript engine counts no operations and cannot be interrupted. Therefore compiling (which can
//! run code around the function) and running happen on threads that can be abandoned: see [`mod@apart`].

mod apart;
mod outcome;

use std::cell::Cell;
use std::rc::Rc;

use rquickjs::context::intrinsic::{Eval, Json, MapSet, Promise, RegExp, RegExpCompiler, TypedArrays};
use rquickjs::{CatchResultExt, Context, Ctx, Runtime};
use serde_json::{Map, Value};
use shards::error::UserError;

pub use apart::{FunctionError, apart};
pub use outcome::Edit;

/// Memory that one document's run may use, in bytes, and the copy of what it leaves, too.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Stack that one document's run may use, in bytes: about a thousand nested calls.
const STACK_BYTES_MAX: usize = 512 << 10;
/// The engine asks whether to go on about every ten thousand operations; after this many questions the answer is no,
/// which makes a million operations for one document.
const INTERRUPTS_MAX: u32 = 100;
/// Items that one array or object of a document may hold afterwards.
const ITEMS_MAX: usize = 10_000;
/// How deep values may be nested in a document afterwards.
const DEPTH_MAX: usize = 100;

// Promises are there because the engine makes them for `async` and `import()`; what they would do later never runs.
type Intrinsics = (Eval, RegExpCompiler, RegExp, Json, MapSet, TypedArrays, Promise);

/// Taken out of each fresh scope: what would make two runs differ.
const HARDEN: &str = "delete Math.random; delete globalThis.performance;";

/// A function that compiles, ready to run on documents.
pub struct EditFunction {
    runtime: Runtime,
    /// The source as a JavaScript string literal.
    quoted: String,
    context: Option<String>,
    interrupts: Rc<Cell<u32>>,
    is_unwanted: Rc<dyn Fn() -> bool>,
}

fn failed(message: impl Into<String>) -> UserError {
    UserError::new("edit_documents_by_function_error", message)
}

/// A text as a JavaScript literal. JSON is a subset of JavaScript, strings included.
fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn describe(error: &rquickjs::CaughtError<'_>) -> String {
    match error {
        rquickjs::CaughtError::Exception(exception) => {
            exception.message().unwrap_or_else(|| "an exception without a message".into())
        }
        rquickjs::CaughtError::Value(value) => {
            value.as_string().and_then(|text| text.to_string().ok()).unwrap_or_else(|| "a value was thrown".into())
        }
        rquickjs::CaughtError::Error(error) => error.to_string(),
    }
}

impl EditFunction {
    /// Compiles `source`. `context` is the request's object; without one the name is undefined. Once `is_unwanted` says so, what
    /// runs ends as an error.
    ///
    /// # Errors
    /// `bad_request` when the source is not JavaScript.
    pub fn compile(
        source: &str,
        context: Option<&Map<String, Value>>,
        is_unwanted: impl Fn() -> bool + 'static,
    ) -> Result<Self, UserError> {
        let no_engine = |error: rquickjs::Error| failed(format!("the JavaScript engine could not start: {error}"));
        let runtime = Runtime::new().map_err(no_engine)?;
        runtime.set_memory_limit(MEMORY_BYTES_MAX);
        runtime.set_max_stack_size(STACK_BYTES_MAX);
        let interrupts = Rc::new(Cell::new(0));
        let counted = interrupts.clone();
        let is_unwanted: Rc<dyn Fn() -> bool> = Rc::new(is_unwanted);
        let asked = is_unwanted.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || {
            counted.set(counted.get() + 1);
            counted.get() > INTERRUPTS_MAX || asked()
        })));
        let context = context.map(|object| Value::Object(object.clone()).to_string());
        let function = Self { runtime, quoted: quote(source), context, interrupts, is_unwanted };
        let scope = Context::custom::<Intrinsics>(&function.runtime).map_err(no_engine)?;
        scope.with(|ctx| {
            let checked = ctx.eval::<(), _>(format!("void new Function({});", function.quoted)).catch(&ctx);
            checked.map_err(|error| {
                let text = format!("The function does not compile as JavaScript: {}", describe(&error));
                UserError::new("bad_request", text)
            })
        })?;
        Ok(function)
    }

    /// Runs the function on one document and says what is to become of it.
    ///
    /// # Errors
    /// `edit_documents_by_function_error` when the function throws, passes a limit, or leaves something that is neither
    /// null nor an object that JSON can hold.
    pub fn run(&self, document: &Map<String, Value>) -> Result<Edit, UserError> {
        self.interrupts.set(0);
        let scope = Context::custom::<Intrinsics>(&self.runtime).map_err(|error| failed(error.to_string()))?;
        let text = Value::Object(document.clone()).to_string();
        let left = scope.with(|ctx| self.run_in(&ctx, &text))?;
        outcome::of(left, document)
    }

    fn run_in(&self, ctx: &Ctx<'_>, document: &str) -> Result<Option<Value>, UserError> {
        let evaluate = |source: String| ctx.eval::<(), _>(source).catch(ctx).map_err(|error| failed(describe(&error)));
        evaluate(HARDEN.into())?;
        if let Some(context) = &self.context {
            evaluate(format!("const context = JSON.parse({});", quote(context)))?;
        }
        // `var`, not `let`: a script that declares the name itself meets its own error, not an odd one of ours.
        evaluate(format!("var doc = JSON.parse({});", quote(document)))?;
        evaluate(format!("(new Function({}))();", self.quoted))?;
        let left: rquickjs::Value<'_> = ctx.globals().get("doc").map_err(|error| failed(error.to_string()))?;
        if left.is_null() || left.is_undefined() {
            return Ok(None);
        }
        outcome::Copier::new(&*self.is_unwanted).copy(&left, 0).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(source: &str, document: Value, context: Option<Value>) -> Result<Edit, UserError> {
        let context = context.and_then(|c| c.as_object().cloned());
        let document = document.as_object().cloned().expect("a test gives an object");
        EditFunction::compile(source, context.as_ref(), || false)?.run(&document)
    }

    #[test]
    fn a_changed_document_replaces_the_stored_one() {
        let edit = run(
            "doc.title = doc.title.toUpperCase(); delete doc.old",
            json!({"id": 1, "title": "dune", "old": 2}),
            None,
        );
        assert_eq!(edit, Ok(Edit::Replace(json!({"id": 1, "title": "DUNE"}).as_object().cloned().expect("an object"))));
        let edit = run("doc = {id: doc.id, n: context.by + 1}", json!({"id": 1}), Some(json!({"by": 2})));
        assert_eq!(edit, Ok(Edit::Replace(json!({"id": 1, "n": 3}).as_object().cloned().expect("an object"))));
    }

    #[test]
    fn null_deletes_and_no_change_keeps() {
        assert_eq!(run("doc = null", json!({"id": 1}), None), Ok(Edit::Delete));
        assert_eq!(run("doc = undefined", json!({"id": 1}), None), Ok(Edit::Delete));
        assert_eq!(run("doc.a = 1 + 1", json!({"id": 1, "a": 2.0}), None), Ok(Edit::Keep));
    }

    /// A number too large for JavaScript must not be rounded in a document of which another field was changed.
    #[test]
    fn untouched_large_integers_keep_every_digit() {
        let big = 18_446_744_073_709_551_615u64;
        let edit = run("doc.a = 2", json!({"id": big, "a": 1, "deep": {"n": [big]}}), None);
        assert_eq!(
            edit,
            Ok(Edit::Replace(
                json!({"id": big, "a": 2, "deep": {"n": [big]}}).as_object().cloned().expect("an object")
            ))
        );
    }

    #[test]
    fn what_json_cannot_hold_is_an_error() {
        for source in [
            "doc = 3",
            "doc = []",
            "doc = () => 1",
            "doc.a = NaN",
            "doc.a = 1n",
            "doc.a = () => 1",
            "doc.a = doc",
            "throw 1",
            "throw new Error('no')",
            "unknown.b",
            "context.x",
            "doc.a = [undefined]",
            "doc.a = Symbol()",
        ] {
            let error = run(source, json!({"id": 1}), None).expect_err(source);
            assert_eq!(error.code, "edit_documents_by_function_error", "{source}");
        }
    }

    #[test]
    fn endless_work_ends_as_an_error() {
        for source in [
            "for (;;) {}",
            "function f() { f() } f()",
            "let a = []; for (;;) a.push('x'.repeat(1000000))",
            "doc.a = new Array(20000).fill(1)",
        ] {
            let error = run(source, json!({"id": 1}), None).expect_err(source);
            assert_eq!(error.code, "edit_documents_by_function_error", "{source}");
        }
    }

    #[test]
    fn what_nobody_wants_ends_before_its_operations_do() {
        let asked = Rc::new(Cell::new(0));
        let counted = asked.clone();
        let is_unwanted = move || counted.replace(counted.get() + 1) > 1;
        let function = EditFunction::compile("for (;;) {}", None, is_unwanted).expect("it compiles");
        assert!(function.run(&Map::new()).is_err());
        assert_eq!(asked.get(), 3);
    }

    /// Within the engine these take next to nothing, since it shares what is held twice; written out they once took all memory.
    #[test]
    fn values_held_many_times_count_as_often() {
        for source in [
            "let a = [1]; for (let i = 0; i < 40; i++) a = [a, a]; doc.a = a",
            "doc.a = new Array(10000).fill('x'.repeat(1000000))",
            "let a = {}; for (let i = 0; i < 40; i++) a = {l: a, r: a}; doc.a = a",
            "let a = {['n'.repeat(1000000)]: 1}; doc.a = new Array(10000).fill(a)",
        ] {
            let error = run(source, json!({"id": 1}), None).expect_err(source);
            assert_eq!(error.code, "edit_documents_by_function_error", "{source}");
            assert!(error.message.contains("takes more than"), "{source}: {}", error.message);
        }
    }

    /// The engine asks nobody while its values are copied.
    #[test]
    fn what_nobody_wants_is_not_copied_to_its_end() {
        let run = |source: &str, asked_max: u32| {
            let asked = Rc::new(Cell::new(0));
            let counted = asked.clone();
            let is_unwanted = move || counted.replace(counted.get() + 1) >= asked_max;
            let left = EditFunction::compile(source, None, is_unwanted).expect("it compiles").run(&Map::new());
            (left.is_ok(), asked.get())
        };
        let large = "doc.a = new Array(300).fill(new Array(300).fill(1))";
        let (_, asked_by_the_engine) = run("doc.a = 1", u32::MAX);
        assert!(run(large, u32::MAX).0);
        assert_eq!(run(large, asked_by_the_engine + 2), (false, asked_by_the_engine + 3));
    }

    #[test]
    fn nothing_is_carried_from_one_document_to_the_next_and_nothing_is_random() {
        let source = "globalThis.n = (globalThis.n || 0) + 1; doc.n = n";
        let function = EditFunction::compile(source, None, || false).expect("it compiles");
        for _ in 0..2 {
            let document = json!({"id": 1}).as_object().cloned().expect("an object");
            let wanted = json!({"id": 1, "n": 1}).as_object().cloned().expect("an object");
            assert_eq!(function.run(&document), Ok(Edit::Replace(wanted)));
        }
        for source in
            ["doc.a = Math.random()", "doc.a = Date.now()", "doc.a = performance.now()", "setTimeout(() => 1, 1)"]
        {
            assert!(run(source, json!({"id": 1}), None).is_err(), "{source}");
        }
    }

    /// The engine aborts the process when it is closed while something of it is still held: no source may cause that.
    #[test]
    fn promises_that_never_end_hold_nothing_back() {
        for source in [
            "import('x')",
            "(async () => { await 1; doc = null })()",
            "new Promise(() => doc)",
            "(function* () { yield doc })().next()",
        ] {
            assert_eq!(run(source, json!({"id": 1}), None), Ok(Edit::Keep), "{source}");
        }
    }

    #[test]
    fn text_that_does_not_compile_is_a_bad_request() {
        for source in ["let let", "doc.a = ", "}"] {
            assert_eq!(run(source, json!({"id": 1}), None).expect_err(source).code, "bad_request", "{source}");
        }
    }
}
