//! Limits on a template's source, checked before parsing: the parser recurses for each level of nesting within a tag, and some of
//! its steps take quadratic time.

/// Bytes of one template.
const TEXT_BYTES_MAX: usize = 100 << 10;
/// White space that stands together: before each piece of it the parser looks for the end of all of it.
const WHITE_BYTES_MAX: usize = 1000;
/// How deep `a[b[c]]` goes.
const INDEX_DEPTH_MAX: usize = 100;
/// `and` and `or` in one condition, each of which is one call deeper when it is evaluated.
const CONJUNCTIONS_MAX: usize = 500;
/// `elsif` in one template; each is parsed within the one before.
const BRANCHES_MAX: usize = 200;
/// Digits of a number: the parser takes for granted that a longer one cannot be.
const DIGITS_MAX: usize = 18;

/// Refuses a text that the parser could not get through.
///
/// # Errors
/// What there is too much of, in one line.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("a template has at most {TEXT_BYTES_MAX} bytes"));
    }
    let is_white = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r');
    if text.as_bytes().split(|byte| !is_white(byte)).any(|run| run.len() > WHITE_BYTES_MAX) {
        return Err(format!("a template has at most {WHITE_BYTES_MAX} blanks and line ends together"));
    }
    let mut branches = 0;
    // What looks like the begin of a tag may stand within another, or within what is no tag after all.
    for (at, _) in text.match_indices('{') {
        let Some(inside) = text[at + 1..].strip_prefix(['{', '%']) else { continue };
        let inside = inside.strip_prefix('-').unwrap_or(inside);
        check_inside(inside)?;
        branches += usize::from(inside.trim_start().starts_with("elsif"));
    }
    if branches > BRANCHES_MAX {
        return Err(format!("a template has at most {BRANCHES_MAX} times `elsif`"));
    }
    Ok(())
}

/// Looks at the tokens up to the end of the tag, or to what cannot stand in one.
fn check_inside(text: &str) -> Result<(), String> {
    let (mut depth, mut conjunctions) = (0_usize, 0);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '\'' | '"' => match rest[1..].find(first) {
                Some(end) => end + 2,
                None => return Ok(()),
            },
            '0'..='9' => {
                let digits = run(rest, |c| c.is_ascii_digit());
                if digits > DIGITS_MAX {
                    return Err(format!("a number has at most {DIGITS_MAX} digits"));
                }
                digits
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let name = run(rest, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
                conjunctions += usize::from(matches!(&rest[..name], "and" | "or"));
                name
            }
            '[' => {
                depth += 1;
                1
            }
            ']' => {
                depth = depth.saturating_sub(1);
                1
            }
            ' ' | '\n' | '\r' | '.' | ',' | ':' | '|' | '(' | ')' | '=' | '!' | '<' | '>' | '+' | '-' => 1,
            _ => return Ok(()),
        };
        if depth > INDEX_DEPTH_MAX {
            return Err(format!("`[` is nested more than {INDEX_DEPTH_MAX} deep"));
        }
        if conjunctions > CONJUNCTIONS_MAX {
            return Err(format!("a condition has at most {CONJUNCTIONS_MAX} times `and` and `or`"));
        }
        rest = &rest[len..];
    }
    Ok(())
}

/// Bytes at the begin of a text that are of a kind.
fn run(text: &str, is_one: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_one(c)).unwrap_or(text.len())
}
