//! Where two answers differ.

use serde_json::Value;

/// Scores nearer than this are equal.
const TOLERANCE: f64 = 1e-6;

/// One difference between two answers.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What kind of thing differs.
    pub label: &'static str,
    /// Both sides, for people.
    pub text: String,
}

/// What differs between two answers, each with its status; what matters most first.
pub fn differences(a: &(u16, Value), b: &(u16, Value)) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut note = |label, text: String| found.push(Difference { label, text });
    if a.0 != b.0 || a.1["code"] != b.1["code"] {
        note("status", format!("{} {} against {} {}", a.0, a.1["code"], b.0, b.1["code"]));
        return found;
    }
    let (a, b) = (&a.1, &b.1);
    let hits = |answer: &Value| answer["hits"].as_array().cloned().unwrap_or_default();
    let (left, right) = (hits(a), hits(b));
    let ids = |hits: &[Value]| hits.iter().map(|hit| hit["id"].clone()).collect::<Vec<_>>();
    if ids(&left) != ids(&right) {
        let at = left.iter().zip(&right).take_while(|(a, b)| a["id"] == b["id"]).count();
        let sorted = |hits: &[Value]| {
            let mut ids: Vec<String> = ids(hits).iter().map(Value::to_string).collect();
            ids.sort();
            ids
        };
        let label = if sorted(&left) == sorted(&right) { "order" } else { "hits" };
        let show = |hits: &[Value]| match hits.get(at) {
            Some(hit) => format!("{} scored {}", hit["id"], hit["_rankingScore"]),
            None => "nothing".to_owned(),
        };
        note(label, format!("hit {at} of {}/{}: {} against {}", left.len(), right.len(), show(&left), show(&right)));
    }
    for (label, members) in [
        ("total", &["estimatedTotalHits", "totalHits", "totalPages", "limit", "offset", "page", "hitsPerPage"][..]),
        ("facets", &["facetDistribution"]),
        ("stats", &["facetStats"]),
    ] {
        for member in members {
            if !same(&a[*member], &b[*member]) {
                note(label, first_difference(member, &a[*member], &b[*member]));
            }
        }
    }
    if ids(&left) == ids(&right) {
        for (a, b) in left.iter().zip(&right) {
            for (label, member) in [
                ("score", "_rankingScore"),
                ("details", "_rankingScoreDetails"),
                ("formatted", "_formatted"),
                ("positions", "_matchesPosition"),
                ("distance", "_geoDistance"),
            ] {
                if !same(&a[member], &b[member]) {
                    note(label, format!("hit {}: {}", a["id"], first_difference(member, &a[member], &b[member])));
                }
            }
        }
    }
    found
}

/// Equal but for rounding; objects in the same order where the parser keeps it.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_f64(), y.as_f64()) {
            (Some(x), Some(y)) => (x - y).abs() <= TOLERANCE * x.abs().max(1.0),
            _ => x == y,
        },
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|((name, x), (other, y))| name == other && same(x, y))
        }
        _ => a == b,
    }
}

/// The first place where two values part.
fn first_difference(path: &str, a: &Value, b: &Value) -> String {
    if let (Value::Object(x), Value::Object(y)) = (a, b) {
        for ((name, left), (other, right)) in x.iter().zip(y) {
            if name != other {
                return format!("{path}: member {name} ({left}) against {other} ({right})");
            }
            if !same(left, right) {
                return first_difference(&format!("{path}.{name}"), left, right);
            }
        }
    }
    if let (Value::Array(x), Value::Array(y)) = (a, b)
        && let Some(at) = x.iter().zip(y).position(|(x, y)| !same(x, y))
    {
        return first_difference(&format!("{path}[{at}]"), &x[at], &y[at]);
    }
    format!("{path}: {a:.400} against {b:.400}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_by_what_differs() {
        let label = |a: Value, b: Value| {
            let found = differences(&(200, a), &(200, b));
            found.first().map(|difference| difference.label)
        };
        let hits = |ids: &[u32], score: f64| json!({"hits": ids.iter().map(|id| json!({"id": id, "_rankingScore": score})).collect::<Vec<_>>()});
        assert_eq!(label(hits(&[1, 2], 0.5), hits(&[1, 2], 0.5 + 1e-9)), None);
        assert_eq!(label(hits(&[1, 2], 0.5), hits(&[2, 1], 0.5)), Some("order"));
        assert_eq!(label(hits(&[1, 2], 0.5), hits(&[1, 3], 0.5)), Some("hits"));
        assert_eq!(label(hits(&[1], 0.5), hits(&[1], 0.4)), Some("score"));
        assert_eq!(label(json!({"estimatedTotalHits": 3}), json!({"estimatedTotalHits": 4})), Some("total"));
        assert_eq!(differences(&(200, json!({})), &(400, json!({"code": "x"})))[0].label, "status");
    }
}
