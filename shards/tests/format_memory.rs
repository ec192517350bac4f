//! What it takes of memory to show a long text. Alone in its process, since it counts all of its memory.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use shards::fields::FieldsMap;
use shards::format::{FormatPlan, HitExtras, HitWriter, MatchWords};
use shards::query::{Derivations, Node, QueryGraph};
use shards::search::{FormatRequest, SearchRequest};
use shards::settings::Settings;
use shards::text::TextTokenizer;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's memory, counted.
struct Counted;

fn grow(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call is passed on as it is to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if new_size > layout.size() {
            grow(new_size - layout.size());
        } else {
            HELD.fetch_sub(layout.size() - new_size, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static MEMORY: Counted = Counted;

const TEXT_BYTES: usize = 4 << 20;
/// Bytes for each byte of the text: it is held in the hit and as it is shown, and a crop needs the places of all words.
const TIMES_MAX: usize = 16;

fn words(word: &str) -> MatchWords {
    let derivations = Derivations { text: word.into(), word: true, ..Derivations::default() };
    let node = Node { first: 0, len: 1, position: 0, last_position: 0, derivations };
    let graph = QueryGraph { nodes: vec![node], term_count: 1, drop_ranks: vec![None], ..QueryGraph::default() };
    MatchWords::of(&graph)
}

/// To highlight or crop a text of 10 MB took 0.7 GB, as all of its tokens were in memory at once; where most words match, the
/// positions of these took more.
#[test]
fn a_long_text_is_shown_in_a_few_times_its_memory() {
    let names = || Some(vec!["t".to_owned()]);
    let highlight = FormatRequest { attributes_to_highlight: names(), ..FormatRequest::default() };
    let crop = FormatRequest { attributes_to_crop: names(), ..FormatRequest::default() };
    let positions = FormatRequest { show_matches_position: true, ..FormatRequest::default() };
    let settings = Settings::default();
    let tokenizer = TextTokenizer::new(&settings);
    let mut fields = FieldsMap::default();
    let field = fields.insert("t").unwrap();
    for (what, format) in [("highlight", highlight), ("crop", crop), ("positions", positions)] {
        // Plain text takes a short cut that accents do not take.
        for (text, times_max) in
            [("winter is coming ", TIMES_MAX), ("été was warm ", TIMES_MAX), ("winter ", 2 * TIMES_MAX)]
        {
            let json = serde_json::to_vec(&text.repeat(TEXT_BYTES / text.len())).unwrap();
            let request = SearchRequest { format: format.clone(), ..SearchRequest::default() };
            let plan = FormatPlan::new(&request, &settings, &fields, words("winter"));
            let mut hit = Vec::new();
            let before = HELD.load(Ordering::Relaxed);
            MOST.store(before, Ordering::Relaxed);
            HitWriter::new(&plan, &fields, &tokenizer).write(
                [(field, json.as_slice())].into_iter(),
                HitExtras::default(),
                &mut hit,
            );
            let most = MOST.load(Ordering::Relaxed) - before;
            let times = most.div_ceil(TEXT_BYTES);
            assert!(times <= times_max, "{what} of `{text}` takes {times} times the text");
            assert!(hit.len() > TEXT_BYTES);
        }
    }
}
