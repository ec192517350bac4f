//! Blocks that render into a text of their own: what they hold is bounded.

use std::io::Write;

use liquid_core::error::{Error, Result};
use liquid_core::model::{KString, Value};
use liquid_core::parser::{Language, TagBlock, TagTokenIter};
use liquid_core::runtime::{Renderable, Runtime, Template};

use super::Bounded;
use super::block::Block;

/// The text becomes a variable.
pub(super) const CAPTURE: Block = Block { start: "capture", end: "endcapture", parse: parse_capture };
/// The text is shown where it is not that of the block before.
pub(super) const IF_CHANGED: Block = Block { start: "ifchanged", end: "endifchanged", parse: parse_if_changed };

#[derive(Debug)]
struct Capture {
    name: KString,
    content: Template,
}

#[derive(Debug)]
struct IfChanged(Template);

/// What the last `ifchanged` came to.
#[derive(Default)]
struct LastText(Option<String>);

fn parse_capture(
    mut arguments: TagTokenIter<'_>,
    block: &mut TagBlock<'_, '_>,
    options: &Language,
) -> Result<Box<dyn Renderable>> {
    let name = arguments.expect_next("Identifier expected")?.expect_identifier().into_result()?;
    let name = KString::from_ref(name);
    arguments.expect_nothing()?;
    Ok(Box::new(Capture { name, content: Template::new(block.parse_all(options)?) }))
}

fn parse_if_changed(
    mut arguments: TagTokenIter<'_>,
    block: &mut TagBlock<'_, '_>,
    options: &Language,
) -> Result<Box<dyn Renderable>> {
    arguments.expect_nothing()?;
    Ok(Box::new(IfChanged(Template::new(block.parse_all(options)?))))
}

impl Renderable for Capture {
    fn render_to(&self, _: &mut dyn Write, runtime: &dyn Runtime) -> Result<()> {
        let text = rendered(&self.content, runtime)?;
        runtime.set_global(self.name.clone(), Value::scalar(text));
        Ok(())
    }
}

impl Renderable for IfChanged {
    fn render_to(&self, writer: &mut dyn Write, runtime: &dyn Runtime) -> Result<()> {
        let text = rendered(&self.0, runtime)?;
        let before = runtime.registers().get_mut::<LastText>().0.replace(text.clone());
        if before.as_ref() == Some(&text) {
            return Ok(());
        }
        writer.write_all(text.as_bytes()).map_err(|error| Error::with_msg(error.to_string()))
    }
}

fn rendered(content: &Template, runtime: &dyn Runtime) -> Result<String> {
    let mut text = Bounded(Vec::new());
    content.render_to(&mut text, runtime)?;
    String::from_utf8(text.0).map_err(|_| Error::with_msg("the text is not UTF-8"))
}
