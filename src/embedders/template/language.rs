//! The language of templates: the standard tags and filters, within bounds.

use std::cell::Cell;

use liquid_core::error::{Error, Result};
use liquid_core::parser::{BlockReflection, Language, ParseBlock, ParseFilter, ParseTag, TagBlock, TagTokenIter};
use liquid_core::runtime::Renderable;
use liquid_lib::stdlib;

use super::captures::{CAPTURE, IF_CHANGED};
use super::filters::BoundedFilter;
use super::loops::{FOR, TABLE_ROW};

/// Blocks within each other: each is parsed and rendered some calls deeper.
const BLOCK_DEPTH_MAX: usize = 100;

/// Gives each of these as a boxed plugin.
macro_rules! boxed {
    ($($plugin:expr),+ $(,)?) => { [$(Box::new($plugin)),+] };
}

/// The standard language.
pub(super) fn bounded() -> Language {
    let tags: [Box<dyn ParseTag>; 8] = boxed![
        stdlib::AssignTag,
        stdlib::BreakTag,
        stdlib::ContinueTag,
        stdlib::CycleTag,
        stdlib::IncludeTag,
        stdlib::IncrementTag,
        stdlib::DecrementTag,
        stdlib::RenderTag,
    ];
    let blocks: [Box<dyn ParseBlock>; 9] = boxed![
        stdlib::RawBlock,
        stdlib::IfBlock,
        stdlib::UnlessBlock,
        stdlib::CommentBlock,
        stdlib::CaseBlock,
        FOR,
        TABLE_ROW,
        CAPTURE,
        IF_CHANGED,
    ];
    let mut language = Language::empty();
    for tag in tags {
        language.tags.register(tag.reflection().tag().to_owned(), tag);
    }
    for block in blocks {
        language.blocks.register(block.reflection().start_tag().to_owned(), Box::new(Nested(block)));
    }
    for filter in filters() {
        language.filters.register(filter.reflection().name().to_owned(), Box::new(BoundedFilter(filter)));
    }
    language
}

fn filters() -> Vec<Box<dyn ParseFilter>> {
    let of_values: [Box<dyn ParseFilter>; 24] = boxed![
        stdlib::Abs,
        stdlib::AtLeast,
        stdlib::AtMost,
        stdlib::Ceil,
        stdlib::Compact,
        stdlib::Concat,
        stdlib::Date,
        stdlib::Default,
        stdlib::DividedBy,
        stdlib::First,
        stdlib::Floor,
        stdlib::Join,
        stdlib::Last,
        stdlib::Map,
        stdlib::Minus,
        stdlib::Modulo,
        stdlib::Plus,
        stdlib::Reverse,
        stdlib::Round,
        stdlib::Sort,
        stdlib::SortNatural,
        stdlib::Times,
        stdlib::Uniq,
        stdlib::Where,
    ];
    let of_texts: [Box<dyn ParseFilter>; 24] = boxed![
        stdlib::Append,
        stdlib::Capitalize,
        stdlib::Downcase,
        stdlib::Escape,
        stdlib::EscapeOnce,
        stdlib::Lstrip,
        stdlib::NewlineToBr,
        stdlib::Prepend,
        stdlib::Remove,
        stdlib::RemoveFirst,
        stdlib::Replace,
        stdlib::ReplaceFirst,
        stdlib::Rstrip,
        stdlib::Size,
        stdlib::Slice,
        stdlib::Split,
        stdlib::Strip,
        stdlib::StripHtml,
        stdlib::StripNewlines,
        stdlib::Truncate,
        stdlib::TruncateWords,
        stdlib::Upcase,
        stdlib::UrlDecode,
        stdlib::UrlEncode,
    ];
    of_values.into_iter().chain(of_texts).collect()
}

/// A block that is refused where it stands within too many others.
#[derive(Clone)]
struct Nested(Box<dyn ParseBlock>);

impl ParseBlock for Nested {
    fn parse(
        &self,
        arguments: TagTokenIter<'_>,
        block: TagBlock<'_, '_>,
        options: &Language,
    ) -> Result<Box<dyn Renderable>> {
        let _level = Level::enter()?;
        self.0.parse(arguments, block, options)
    }

    fn reflection(&self) -> &dyn BlockReflection {
        self.0.reflection()
    }
}

thread_local! {
    /// Blocks that are being parsed on this thread.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// One block that is being parsed.
struct Level;

impl Level {
    fn enter() -> Result<Self> {
        if OPEN.get() >= BLOCK_DEPTH_MAX {
            return Err(Error::with_msg(format!("blocks are nested more than {BLOCK_DEPTH_MAX} deep")));
        }
        OPEN.set(OPEN.get() + 1);
        Ok(Self)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        OPEN.set(OPEN.get() - 1);
    }
}
