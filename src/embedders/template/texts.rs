//! Blocks that render into a text of their own: what they hold is bounded.

use std::io::Write;

use liquid_core::error::{Error, Result};
use liquid_core::model::{KString, Value};
use liquid_core::parser::{BlockReflection, Language, ParseBlock, TagBlock, TagTokenIter};
use liquid_core::runtime::{Renderable, Runtime, Template};

use super::Bounded;

/// `capture`: the text becomes a variable.
#[derive(Clone)]
pub(super) struct CaptureBlock;

/// `ifchanged`: the text is shown where it is not that of the block before.
#[derive(Clone)]
pub(super) struct IfChangedBlock;

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

impl BlockReflection for CaptureBlock {
    fn start_tag(&self) -> &str {
        "capture"
    }

    fn end_tag(&self) -> &str {
        "endcapture"
    }

    fn description(&self) -> &str {
        ""
    }
}

impl ParseBlock for CaptureBlock {
    fn parse(
        &self,
        mut arguments: TagTokenIter<'_>,
        mut block: TagBlock<'_, '_>,
        options: &Language,
    ) -> Result<Box<dyn Renderable>> {
        let name = arguments.expect_next("Identifier expected")?.expect_identifier().into_result()?;
        let name = KString::from_ref(name);
        arguments.expect_nothing()?;
        let content = Template::new(block.parse_all(options)?);
        block.assert_empty();
        Ok(Box::new(Capture { name, content }))
    }

    fn reflection(&self) -> &dyn BlockReflection {
        self
    }
}

impl BlockReflection for IfChangedBlock {
    fn start_tag(&self) -> &str {
        "ifchanged"
    }

    fn end_tag(&self) -> &str {
        "endifchanged"
    }

    fn description(&self) -> &str {
        ""
    }
}

impl ParseBlock for IfChangedBlock {
    fn parse(
        &self,
        mut arguments: TagTokenIter<'_>,
        mut block: TagBlock<'_, '_>,
        options: &Language,
    ) -> Result<Box<dyn Renderable>> {
        arguments.expect_nothing()?;
        let content = Template::new(block.parse_all(options)?);
        block.assert_empty();
        Ok(Box::new(IfChanged(content)))
    }

    fn reflection(&self) -> &dyn BlockReflection {
        self
    }
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
