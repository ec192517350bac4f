//! The textbook edit-distance table, which the automata are tested against.

/// The edits between the first characters of `word` and of `term`, for each number of these. A swap of neighbours is one edit, and no
/// part is edited twice.
fn table(word: &str, term: &str) -> Vec<Vec<usize>> {
    let (word, term): (Vec<char>, Vec<char>) = (word.chars().collect(), term.chars().collect());
    let mut table = vec![vec![0; term.len() + 1]; word.len() + 1];
    for i in 0..=word.len() {
        for j in 0..=term.len() {
            if i == 0 || j == 0 {
                table[i][j] = i + j;
                continue;
            }
            let substituted = table[i - 1][j - 1] + usize::from(word[i - 1] != term[j - 1]);
            let mut least = substituted.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            if i > 1 && j > 1 && word[i - 1] == term[j - 2] && word[i - 2] == term[j - 1] {
                least = least.min(table[i - 2][j - 2] + 1);
            }
            table[i][j] = least;
        }
    }
    table
}

/// The edits between a word and a term, if they are at most `typos`; for a prefix those to the first part of the term to which no
/// part of the word is nearer, or else to all of it.
pub fn distance(word: &str, prefix: bool, typos: usize, term: &str) -> Option<usize> {
    let table = table(word, term);
    let whole = table.last()?;
    let settles = |read: &usize| whole[*read] <= typos && table.iter().all(|part| part[*read] >= whole[*read]);
    let settled = (0..whole.len()).find(|read| prefix && settles(read));
    Some(whole[settled.unwrap_or(whole.len() - 1)]).filter(|edits| *edits <= typos)
}

/// The recorded server's answers for these terms.
#[test]
fn prefixes_are_settled_where_no_more_of_the_word_could_be_nearer() {
    let of = |term| distance("result", true, 2, term);
    for (term, edits) in [("result", 0), ("results", 0), ("resul", 1), ("reslt", 1), ("esulting", 1)] {
        assert_eq!(of(term), Some(edits), "{term}");
    }
    for term in ["rest", "restitution", "resistance", "resort", "reltxx", "rexxlt"] {
        assert_eq!(of(term), Some(2), "{term}");
    }
    for term in ["resting", "restor", "restoration", "restu", "restxyz"] {
        assert_eq!(of(term), None, "{term}");
    }
}
