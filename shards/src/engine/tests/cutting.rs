//! What cuts the texts of an index is made once, and long lists of words hold no core.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use futures_lite::future::{poll_once, zip};
use serde_json::json;
use storage_engine::Disk;
use storage_engine::io::mem::MemDisk;

use super::harness::*;
use super::pauses::pauses;
use crate::engine::*;
use crate::ids::PartitionNo;
use crate::search::SearchRequest;
use crate::settings::Settings;
use crate::text::{TextTokenizer, shared};
use crate::timestamp::Timestamp;

fn words(count: usize) -> BTreeSet<String> {
    (0..count).map(|number| format!("word{number}")).collect()
}

fn settings(settings: Settings) -> Batch {
    Batch { settings: Some(Arc::new(settings)), ..batch(vec![]) }
}

async fn total(bench: &Bench, view: &IndexView, query: &str) -> u64 {
    let request = SearchRequest { query: Some(query.to_owned()), ..SearchRequest::default() };
    bench.engine.search(view, request).await.unwrap().total
}

/// An automaton of many words takes long to build: all cores use the one that came with the settings, until what it is made of
/// changes, also after a start.
#[test]
fn an_index_has_one_tokenizer() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let with_dictionary = Settings { dictionary: words(300), stop_words: words(1), ..Settings::default() };
    let kept = with_dictionary.clone();
    run(&disk, 1, 3, config(Some(3), 0), move |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let documents = json!([{"id": 1, "text": "aword7b"}, {"id": 2, "text": "b c"}, {"id": 3, "text": "word"}]);
        let (view, _) = bench.batch(&view, batch(vec![add(Method::Replace, &documents)])).await;
        assert_eq!(total(&bench, &view, "word7").await, 1, "by its typos");
        let (view, _) = bench.batch(&view, settings(with_dictionary.clone())).await;
        assert_eq!(total(&bench, &view, "\"word7\"").await, 1);
        let is_shared = |view: &IndexView| {
            let of_partitions = (0..3).map(|number| bench.reader(view, PartitionNo(number)).tokenizer().clone());
            of_partitions.into_iter().all(|tokenizer| Arc::ptr_eq(&tokenizer, &view.tokenizer))
        };
        assert!(is_shared(&view));
        let (other, _) = bench.batch(&view, batch(vec![add(Method::Replace, &json!([{"id": 4, "text": "d"}]))])).await;
        assert!(is_shared(&other) && Arc::ptr_eq(&other.tokenizer, &view.tokenizer));
        let shown = Settings { displayed_attributes: vec!["id".into()], ..with_dictionary.clone() };
        let (other, _) = bench.batch(&other, settings(shown)).await;
        assert!(is_shared(&other) && Arc::ptr_eq(&other.tokenizer, &view.tokenizer));
        let (changed, _) =
            bench.batch(&other, settings(Settings { dictionary: words(299), ..with_dictionary.clone() })).await;
        assert!(is_shared(&changed) && !Arc::ptr_eq(&changed.tokenizer, &view.tokenizer));
        bench.batch(&changed, settings(with_dictionary)).await;
    });
    run(&disk, 2, 2, config(Some(3), 0), move |bench| async move {
        let (view, _) = bench.engine.open_index(INDEX).await.unwrap();
        assert_eq!(*view.settings, kept);
        assert!((0..3).all(|at| Arc::ptr_eq(bench.reader(&view, PartitionNo(at)).tokenizer(), &view.tokenizer)));
        assert_eq!(total(&bench, &view, "\"word7\"").await, 1);
    });
}

/// Each setting that changes how texts are cut has another tokenizer; no other setting has.
#[test]
fn a_tokenizer_lasts_as_long_as_what_it_is_made_of() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 0), |bench| async move {
        let runtime = bench.engine.runtime.clone();
        let plain = Arc::new(Settings::default());
        let known = Arc::new(TextTokenizer::new(&plain));
        let some = || BTreeSet::from(["x".to_owned()]);
        let rules = serde_json::from_value(json!([{"attributePatterns": ["a"], "locales": ["jpn"]}])).unwrap();
        let default = Settings::default;
        let cut_otherwise = [
            Settings { stop_words: some(), ..default() },
            Settings { stop_words: words(10_000), ..default() },
            Settings { dictionary: some(), ..default() },
            Settings { separator_tokens: some(), ..default() },
            Settings { non_separator_tokens: some(), ..default() },
            Settings { localized_attributes: Some(rules), ..default() },
        ];
        for other in cut_otherwise.map(Arc::new) {
            let made = shared::tokenizer(&*runtime, &other, Some((&plain, &known))).await.unwrap();
            assert!(!Arc::ptr_eq(&made, &known), "{other:?}");
            let again = shared::tokenizer(&*runtime, &Arc::new((*other).clone()), Some((&other, &made))).await.unwrap();
            assert!(Arc::ptr_eq(&made, &again));
        }
        let same = Settings { synonyms: [("a".into(), vec!["b".into()])].into(), ..default() };
        let made = shared::tokenizer(&*runtime, &Arc::new(same), Some((&plain, &known))).await.unwrap();
        assert!(Arc::ptr_eq(&made, &known));
    });
}

/// Long lists are read on side threads, short ones at once.
#[test]
fn many_words_are_read_aside() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 0), |bench| async move {
        let runtime = bench.engine.runtime.clone();
        for (settings, is_aside) in [
            (Settings::default(), false),
            (Settings { stop_words: words(200), ..Settings::default() }, false),
            (Settings { stop_words: words(2_000), ..Settings::default() }, true),
            (Settings { dictionary: words(2_000), ..Settings::default() }, true),
            (Settings { separator_tokens: words(2_000), ..Settings::default() }, true),
        ] {
            let settings = Arc::new(settings);
            let (made, paused) = pauses(shared::tokenizer(&*runtime, &settings, None)).await;
            assert_eq!((made.is_ok(), paused > 0), (true, is_aside));
        }
    });
}

/// The planner of an index with many synonyms is made aside, by the first search for all that come meanwhile, also when that one
/// is given up.
#[test]
fn searches_share_a_planner_that_is_being_made() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    run(&disk, 1, 1, config(None, 0), |bench| async move {
        let view = bench.engine.create_index(INDEX, Timestamp(0)).await.unwrap();
        let synonyms = |count| (0..count).map(|number| (format!("word{number}"), vec![format!("boat{number}")]));
        let documents = json!([{"id": 1, "text": "boat4 y"}]);
        let few = Settings { synonyms: synonyms(5).collect(), ..Settings::default() };
        let (few, _) = bench.batch(&view, Batch { ops: vec![add(Method::Replace, &documents)], ..settings(few) }).await;
        let (planners, runtime) = (&bench.engine.planners, &bench.engine.runtime);
        assert_eq!(pauses(planners.get(&few, runtime)).await.1, 0);
        assert_eq!((total(&bench, &few, "word4").await, total(&bench, &few, "word400").await), (1, 0));
        let many = Settings { synonyms: synonyms(5_000).collect(), ..Settings::default() };
        let (many, _) = bench.batch(&few, settings(many)).await;
        assert!(poll_once(planners.get(&many, runtime)).await.is_none(), "it is not made here");
        let (one, other) = zip(planners.get(&many, runtime), planners.get(&many, runtime)).await;
        assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()));
        assert_eq!(pauses(planners.get(&many, runtime)).await.1, 0, "it is kept");
        assert_eq!((total(&bench, &many, "word4").await, total(&bench, &many, "y").await), (1, 1));
    });
}
