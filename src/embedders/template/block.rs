//! Block tags that replace those of the library.

use liquid_core::error::Result;
use liquid_core::parser::{BlockReflection, Language, ParseBlock, TagBlock, TagTokenIter};
use liquid_core::runtime::Renderable;

/// A block by its tags, and how what is between them is read.
#[derive(Clone)]
pub(super) struct Block {
    /// The tag that opens it.
    pub start: &'static str,
    /// The tag that closes it.
    pub end: &'static str,
    /// Reads the arguments of the first tag, and the content to its end.
    pub parse: fn(TagTokenIter<'_>, &mut TagBlock<'_, '_>, &Language) -> Result<Box<dyn Renderable>>,
}

impl BlockReflection for Block {
    fn start_tag(&self) -> &str {
        self.start
    }

    fn end_tag(&self) -> &str {
        self.end
    }

    fn description(&self) -> &str {
        ""
    }
}

impl ParseBlock for Block {
    fn parse(
        &self,
        arguments: TagTokenIter<'_>,
        mut block: TagBlock<'_, '_>,
        options: &Language,
    ) -> Result<Box<dyn Renderable>> {
        let read = (self.parse)(arguments, &mut block, options)?;
        block.assert_empty();
        Ok(read)
    }

    fn reflection(&self) -> &dyn BlockReflection {
        self
    }
}
