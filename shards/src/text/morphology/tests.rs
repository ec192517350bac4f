//! Tokenizers with small dictionaries, made here.

#![expect(clippy::disallowed_methods, reason = "tests may block")]

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use charabia::{Language, Token};
use lindera::dictionary::{DictionaryBuilder, Metadata};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::settings::Settings;
use crate::text::TextTokenizer;

const METADATA: &str = r#"{
    "name": "small", "encoding": "UTF-8", "default_word_cost": -10000, "default_left_context_id": 0,
    "default_right_context_id": 0, "default_field_value": "*", "flexible_csv": false, "skip_invalid_cost_or_id": false,
    "normalize_details": false,
    "dictionary_schema": {"fields": ["surface", "left_context_id", "right_context_id", "cost", "kind"]},
    "user_dictionary_schema": {"fields": ["surface", "kind"]}
}"#;
const CHARACTERS: &str = "DEFAULT 0 1 0\nSPACE 0 1 0\nKANJI 0 0 2\nHIRAGANA 0 1 2\nKATAKANA 1 1 2\nHANGUL 0 1 2\n\
    0x0020 SPACE\n0x3041..0x309F HIRAGANA\n0x30A0..0x30FF KATAKANA\n0x4E00..0x9FA5 KANJI\n0xAC00..0xD7A3 HANGUL\n";

fn built(words: &[(&str, i32)]) -> TempDir {
    let (sources, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |name: &str, text: String| fs::write(sources.path().join(name), text).unwrap();
    write("words.csv", words.iter().map(|(word, cost)| format!("{word},0,0,{cost},*\n")).collect());
    write("matrix.def", "1 1\n0 0 0\n".into());
    write("char.def", CHARACTERS.into());
    let kinds = ["DEFAULT", "SPACE", "KANJI", "HIRAGANA", "KATAKANA", "HANGUL"];
    write("unk.def", kinds.iter().map(|kind| format!("{kind},0,0,20000,*\n")).collect());
    let metadata: Metadata = serde_json::from_str(METADATA).unwrap();
    DictionaryBuilder::new(metadata).build_dictionary(sources.path(), folder.path()).unwrap();
    folder
}

static SMALL: LazyLock<Arc<Morphology>> = LazyLock::new(|| {
    let words = ["関西", "国際", "空港", "すもも", "もも", "も", "の", "うち", "東京", "京都", "都", "に", "住む"];
    let japanese = built(&words.map(|word| (word, 5000)));
    let korean = built(&["한국어", "의", "형태", "을", "배우", "다"].map(|word| (word, 5000)));
    Arc::new(Morphology::load(Some(japanese.path()), Some(korean.path())).unwrap())
});

fn tokenizer(settings: &Settings) -> TextTokenizer {
    TextTokenizer::with_morphology(settings, Some(SMALL.clone()))
}

fn written<'t>(text: &'t str, tokens: &[Token<'_>]) -> Vec<&'t str> {
    tokens.iter().map(|token| &text[token.byte_start..token.byte_end]).collect()
}

#[test]
fn texts_are_cut_into_the_words_of_the_dictionaries() {
    let tokenizer = tokenizer(&Settings::default());
    for (text, wanted) in [
        ("すもももももももものうち", "すもも|もも|もも|もも|の|うち"),
        ("関西国際空港に、住む。", "関西|国際|空港|に|、|住む|。"),
        ("東京都に住むmanと2024年のうち", "東京|都|に|住む|man|と|2024|年|の|うち"),
        ("한국어의형태 한국어을 배우다", "한국어|의|형태| |한국어|을| |배우|다"),
        ("한국어의すももも", "한국어|의|すもも|も"),
    ] {
        assert_eq!(written(text, &tokenizer.tokens(text, None)).join("|"), wanted);
        assert_eq!(written(text, &tokenizer.shown_tokens(text, None).collect::<Vec<_>>()).join("|"), wanted);
        assert_eq!(written(text, &tokenizer.first_tokens(text, None, 3)).join("|"), first(wanted, 3));
    }
    let without = TextTokenizer::with_morphology(&Settings::default(), None);
    assert_eq!(written("東京都", &without.tokens("東京都", Some(&[Language::Jpn]))), ["東京都"]);
}

fn first(pieces: &str, count: usize) -> String {
    pieces.split('|').take(count).collect::<Vec<_>>().join("|")
}

#[test]
fn languages_that_are_told_decide() {
    let tokenizer = tokenizer(&Settings::default());
    let text = "東京都";
    assert_eq!(written(text, &tokenizer.tokens(text, Some(&[Language::Jpn]))), ["東京", "都"]);
    let chinese = tokenizer.tokens(text, Some(&[Language::Cmn]));
    assert_eq!(
        chinese,
        TextTokenizer::with_morphology(&Settings::default(), None).tokens(text, Some(&[Language::Cmn]))
    );
}

#[test]
fn words_and_separators_of_the_settings_come_first() {
    let settings = Settings {
        dictionary: ["国際空".to_owned()].into(),
        separator_tokens: ["も".to_owned()].into(),
        non_separator_tokens: ["、".to_owned()].into(),
        ..Settings::default()
    };
    let tokenizer = tokenizer(&settings);
    let text = "関西国際空港にすももの、うち";
    let tokens = tokenizer.tokens(text, None);
    assert_eq!(written(text, &tokens).join("|"), "関西|国際空|港|に|す|も|も|の|、|うち");
    assert_eq!(tokens.iter().filter(|token| token.is_separator()).count(), 2);
}

#[test]
fn long_runs_are_cut_in_parts() {
    let (tokenizer, text) = (tokenizer(&Settings::default()), "すもも".repeat(RUN_BYTES_MAX / 4));
    let tokens = tokenizer.tokens(&text, None);
    assert_eq!(written(&text, &tokens).concat(), text);
    assert!(tokens.iter().filter(|token| token.lemma() == "すもも").count() > tokens.len() - 10);
}

#[test]
fn other_folders_are_refused() {
    let failure = |path: &Path| Morphology::load(Some(path), None).map(drop).unwrap_err().to_string();
    assert!(failure(Path::new("/nowhere")).contains("`/nowhere` cannot be used"));
    let empty = tempfile::tempdir().unwrap();
    assert!(failure(empty.path()).contains("metadata"), "{}", failure(empty.path()));
    let cut_off = built(&[("都", 1)]);
    fs::remove_file(cut_off.path().join("matrix.mtx")).unwrap();
    assert!(failure(cut_off.path()).contains("matrix"), "{}", failure(cut_off.path()));
}

#[test]
fn dictionaries_are_told_apart_by_what_they_hold() {
    let identity = |words: &[(&str, i32)]| Morphology::load(None, Some(built(words).path())).unwrap().identity;
    let (one, other) = (identity(&[("의", 1)]), identity(&[("을", 1)]));
    assert!(one.starts_with("ko:small:") && one != other, "{one} {other}");
    assert_eq!(one, identity(&[("의", 1)]));
}

proptest! {
    /// Whatever is cut anew, the tokens are the text, and know where they are in it.
    #[test]
    fn the_tokens_are_the_text(text in "[東京都住にすもうち関西ー한국어의ㅋ１ａ a1.,。、年\u{0}-]{0,30}", dictionary in any::<bool>()) {
        let words = if dictionary { ["京都".to_owned(), "어의".to_owned()].into() } else { Default::default() };
        let tokenizer = tokenizer(&Settings { dictionary: words, ..Settings::default() });
        let tokens = tokenizer.tokens(&text, None);
        prop_assert_eq!(written(&text, &tokens).concat(), text.as_str());
        let (mut bytes, mut chars) = (0, 0);
        for token in &tokens {
            prop_assert_eq!((token.byte_start, token.char_start), (bytes, chars));
            (bytes, chars) = (token.byte_end, token.char_end);
            prop_assert!(token.char_end - token.char_start == text[token.byte_start..token.byte_end].chars().count());
        }
    }
}
