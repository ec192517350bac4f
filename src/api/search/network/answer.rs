//! Reads search results of other instances.

use std::collections::BTreeMap;

use serde::de::{Deserialize, IgnoredAny};
use serde_json::{Map, Value};
use shards::facets::distribution::{Distribution, FacetValues};
use shards::runtime::{Checkpoint, Runtime};
use shards::search::federated::{FieldValue, Part, PartHit, Rescored, ScoreValue, values_at};

use crate::api::error::ApiError;
use crate::api::search::members::{Members, Name};
use crate::network::failure::unreadable;

/// The member of a hit that says where it comes from.
const FEDERATION: &str = "_federation";

/// How the hits of an answer are shown.
pub(super) struct Shown<'a> {
    /// The instance that answered.
    pub(super) name: &'a str,
    /// The field of which no value may come twice.
    pub(super) distinct: Option<&'a str>,
}

/// What the members of an answer say.
#[derive(Default)]
struct Body<'a> {
    hits: Option<Vec<Members<'a>>>,
    estimated_total_hits: Option<u64>,
    total_hits: Option<u64>,
    facets_by_index: Map<String, Value>,
    degraded: bool,
    query_vectors: BTreeMap<String, Vec<f32>>,
}

/// Reads an answer.
///
/// # Errors
/// `remote_bad_response`.
pub(super) async fn read(runtime: &dyn Runtime, shown: &Shown<'_>, body: &[u8]) -> Result<Part, ApiError> {
    let body = Body::read(runtime, body).await.map_err(|why| unreadable(shown.name, why))?;
    let hits = body.hits.ok_or_else(|| unreadable(shown.name, "it has no hits"))?;
    let total = body.estimated_total_hits.or(body.total_hits);
    let total = total.ok_or_else(|| unreadable(shown.name, "it has no total"))?;
    let facets = body.facets_by_index.iter().map(|(uid, facets)| Some((uid.clone(), distribution(facets)?)));
    let facets: Option<Vec<(String, Distribution)>> = facets.collect();
    let facets = facets.ok_or_else(|| unreadable(shown.name, "its facets are no counts"))?;
    let vectors = body.query_vectors.into_iter().filter_map(|(query, vector)| Some((query.parse().ok()?, vector)));
    let query_vectors = vectors.collect();
    let mut part = Part {
        hits: Vec::with_capacity(hits.len()),
        total,
        facets,
        degraded: body.degraded,
        query_vectors,
        ..Part::default()
    };
    let mut checkpoint = Checkpoint::default();
    for hit in hits {
        let read = hit_of(shown, &part.facets, &hit).map_err(|why| unreadable(shown.name, why))?;
        part.hits.push(read);
        checkpoint.look(runtime).await;
    }
    Ok(part)
}

impl<'a> Body<'a> {
    /// Reads the members one by one, and the hits one by one, as there may be many.
    async fn read(runtime: &dyn Runtime, text: &'a [u8]) -> Result<Self, String> {
        let (mut body, mut text) = (Self::default(), Json(text));
        text.expect(b'{')?;
        let mut is_end = text.skip(b'}');
        while !is_end {
            let name = text.value::<Name<'a>>()?.0;
            text.expect(b':')?;
            match &*name {
                "hits" => body.hits = Some(text.hits(runtime).await?),
                "estimatedTotalHits" => body.estimated_total_hits = text.value()?,
                "totalHits" => body.total_hits = text.value()?,
                "facetsByIndex" => body.facets_by_index = text.value()?,
                "degraded" => body.degraded = text.value()?,
                "queryVectors" => body.query_vectors = text.value()?,
                _ => {
                    text.value::<IgnoredAny>()?;
                }
            }
            is_end = text.is_last(b'}')?;
        }
        match text.0.trim_ascii_start() {
            [] => Ok(body),
            _ => Err("something follows it".into()),
        }
    }
}

/// What is left to read of a JSON text.
struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// The value that comes next.
    fn value<T: Deserialize<'a>>(&mut self) -> Result<T, String> {
        let mut values = serde_json::Deserializer::from_slice(self.0).into_iter();
        let value = values.next().ok_or("it ends too early")?.map_err(|error| error.to_string())?;
        self.0 = &self.0[values.byte_offset()..];
        Ok(value)
    }

    /// Passes over a sign, if it comes next.
    fn skip(&mut self, sign: u8) -> bool {
        self.0 = self.0.trim_ascii_start();
        let rest = self.0.strip_prefix(&[sign]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, sign: u8) -> Result<(), String> {
        if self.skip(sign) { Ok(()) } else { Err(format!("it lacks a `{}`", char::from(sign))) }
    }

    /// Whether the list or object ends here; another item comes otherwise.
    fn is_last(&mut self, end: u8) -> Result<bool, String> {
        if self.skip(b',') { Ok(false) } else { self.expect(end).map(|()| true) }
    }

    async fn hits(&mut self, runtime: &dyn Runtime) -> Result<Vec<Members<'a>>, String> {
        let (mut hits, mut checkpoint) = (Vec::new(), Checkpoint::default());
        self.expect(b'[')?;
        let mut is_end = self.skip(b']');
        while !is_end {
            hits.push(self.value()?);
            checkpoint.look(runtime).await;
            is_end = self.is_last(b']')?;
        }
        Ok(hits)
    }
}

fn distribution(facets: &Value) -> Option<Distribution> {
    let stats = facets.get("stats").and_then(Value::as_object);
    let facet = |(name, values): (&String, &Value)| {
        let values: Option<Vec<(String, u64)>> =
            values.as_object()?.iter().map(|(key, count)| Some((key.clone(), count.as_u64()?))).collect();
        let range = stats.and_then(|stats| stats.get(name));
        let range = range.and_then(|range| Some((range.get("min")?.as_f64()?, range.get("max")?.as_f64()?)));
        Some(FacetValues { name: name.clone(), values: values?, stats: range })
    };
    let facets = facets.get("distribution")?.as_object()?.iter().map(facet).collect::<Option<Vec<_>>>();
    Some(Distribution { facets: facets? })
}

/// One hit, without what only instances tell each other.
fn hit_of(shown: &Shown<'_>, facets: &[(String, Distribution)], hit: &Members<'_>) -> Result<PartHit, String> {
    let mark = hit.get(FEDERATION).ok_or("a hit has no `_federation`")?;
    let mut mark: Members<'_> =
        serde_json::from_str(mark.get()).map_err(|_| "the `_federation` of a hit is no object")?;
    let values = mark.take("weightedScoreValues").ok_or("a hit has no `weightedScoreValues`")?;
    let values = serde_json::from_str::<Vec<Value>>(values.get()).ok();
    let values: Option<Vec<ScoreValue>> = values.and_then(|values| values.iter().map(ScoreValue::from_json).collect());
    let values = values.ok_or("the `weightedScoreValues` of a hit cannot be read")?;
    let score = mark.read::<f64>("weightedRankingScore").ok_or("a hit has no `weightedRankingScore`")?;
    let hidden: Option<Members<'_>> =
        mark.take("extra_document").and_then(|hidden| serde_json::from_str(hidden.get()).ok());
    let pinned = mark.take("pinnedPosition").and_then(|place| serde_json::from_str::<u32>(place.get()).ok());
    let index_uid = mark.read::<String>("indexUid").unwrap_or_default();
    let position = mark.read::<u64>("queriesPosition").unwrap_or_default();
    mark.take("remote");
    let fields = match shown.distinct {
        Some(distinct) if pinned.is_none() => fields(hit, hidden.as_ref(), distinct, &index_uid, facets),
        _ => Vec::new(),
    };
    let mut shown_mark = Vec::with_capacity(128);
    mark.write(&mut shown_mark, &[], &[("remote", &Value::from(shown.name).to_string())]);
    let mut json = Vec::with_capacity(hit.0.iter().map(|(_, value)| value.get().len() + 24).sum());
    hit.write(&mut json, &[(FEDERATION, shown_mark)], &[]);
    Ok(PartHit {
        json,
        index_uid: index_uid.into(),
        position,
        score,
        values,
        pinned,
        fields,
        rank: None,
        nearness: None,
    })
}

/// A hit as it is shown with another score; `None` for one that is no object.
pub(super) fn with_score(hit: &[u8], rescored: &Rescored) -> Option<Vec<u8>> {
    let hit: Members<'_> = serde_json::from_slice(hit).ok()?;
    let mut others: Vec<(&str, Vec<u8>)> = Vec::with_capacity(3);
    if let Some(mark) = hit.get(FEDERATION).and_then(|mark| serde_json::from_str::<Members<'_>>(mark.get()).ok()) {
        let weighted = Value::from(rescored.weighted).to_string();
        let mut shown = Vec::with_capacity(128);
        mark.write(&mut shown, &[("weightedRankingScore", weighted.into_bytes())], &[]);
        others.push((FEDERATION, shown));
    }
    others.extend(rescored.score.map(|score| ("_rankingScore", Value::from(score).to_string().into_bytes())));
    let details = rescored.details.as_ref().and_then(|details| serde_json::to_vec(details).ok());
    others.extend(details.map(|details| ("_rankingScoreDetails", details)));
    let mut json = Vec::with_capacity(hit.0.iter().map(|(_, value)| value.get().len() + 24).sum());
    hit.write(&mut json, &others, &[]);
    Some(json)
}

/// The values of the distinct field and of the facets of the index.
fn fields(
    members: &Members<'_>,
    hidden: Option<&Members<'_>>,
    distinct: &str,
    uid: &str,
    facets: &[(String, Distribution)],
) -> Vec<(String, Vec<FieldValue>)> {
    let hidden = hidden.map_or(&[][..], |hidden| &hidden.0);
    let is_hidden = |name: &str| hidden.iter().any(|(other, _)| other == name);
    let own = facets.iter().filter(|(other, _)| other == uid).flat_map(|(_, facets)| &facets.facets);
    let paths = std::iter::once(distinct).chain(own.map(|facet| facet.name.as_str()).filter(|name| *name != distinct));
    let values = |path: &str| {
        let open = members.0.iter().filter(|(name, _)| !is_hidden(name));
        let all = open.chain(hidden).map(|(name, value)| (&**name, value.get().as_bytes()));
        (path.to_owned(), values_at(all, path))
    };
    paths.map(values).collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use futures_lite::future::block_on;
    use serde_json::json;
    use storage_engine::io::mem::MemDisk;

    use super::*;
    use crate::control::testing::TestRuntime;

    fn hit(text: &str, distinct: Option<&str>) -> Result<PartHit, String> {
        hit_of(&Shown { name: "far", distinct }, &[], &serde_json::from_str(text).unwrap())
    }

    fn read_all(body: &str) -> Result<Part, ApiError> {
        let runtime = TestRuntime::new(Rc::new(MemDisk::new()));
        block_on(read(&runtime, &Shown { name: "far", distinct: None }, body.as_bytes()))
    }

    /// However an answer is written, its hits are found; one that is cut off or goes on is refused.
    #[test]
    fn answers_are_read_member_by_member() {
        let mark = r#"{"weightedRankingScore":0.5,"weightedScoreValues":[]}"#;
        let hit = |at: usize| format!(r#"{{"n": [{at}, "]}}"], "_federation":{mark}}}"#);
        let dense = format!(r#"{{"hits":[{},{}],"other":{{"hits":[1]}},"totalHits":7}}"#, hit(0), hit(1));
        let loose = format!(
            " {{ \"estimatedTotalHits\" : 7 ,\n\"totalHits\":null, \"degraded\":true, \"hits\" : [ {} , {} ] }}\n",
            hit(0),
            hit(1)
        );
        for body in [&dense, &loose] {
            let part = read_all(body).unwrap();
            assert_eq!((part.total, part.hits.len(), part.degraded), (7, 2, body == &loose));
            assert!(part.hits[1].json.starts_with(br#"{"n":[1, "]}"],"#));
        }
        for length in 0..dense.len() {
            assert!(read_all(&dense[..length]).is_err(), "{length} bytes");
        }
        for body in
            [&*format!("{dense}x"), "[]", r#"{"totalHits":1}"#, r#"{"hits":[]}"#, r#"{"hits":[],"totalHits":1,}"#]
        {
            assert!(read_all(body).is_err(), "{body}");
        }
        assert_eq!(read_all(r#"{"hits":[],"totalHits":0}"#).unwrap(), Part::default());
    }

    #[test]
    fn a_hit_keeps_its_text_and_loses_what_instances_tell_each_other() {
        let mark = r#"{"indexUid":"a","queriesPosition":2,"weightedRankingScore":0.5,
            "weightedScoreValues":[{"sort":{"asc":true,"value":null}}],"extra_document":{"g":["Red"]},"pinnedPosition":null}"#;
        let text = format!(r#"{{"big":12345678901234567890123,"e\n":1.10,"_federation":{mark}}}"#);
        let hit = hit(&text, Some("g")).unwrap();
        let shown = String::from_utf8(hit.json.clone()).unwrap();
        assert!(shown.starts_with(r#"{"big":12345678901234567890123,"e\n":1.10,"_federation":{"#), "{shown}");
        let parsed: Value = serde_json::from_slice(&hit.json).unwrap();
        let mark = json!({"indexUid": "a", "queriesPosition": 2, "weightedRankingScore": 0.5, "remote": "far"});
        assert_eq!(parsed["_federation"], mark);
        assert_eq!((hit.position, hit.score, hit.fields[0].1.len()), (2, 0.5, 1));
    }

    #[test]
    fn another_score_takes_the_place_of_the_first() {
        let hit = br#"{"n":1.10,"_federation":{"indexUid":"a","weightedRankingScore":0.5,"remote":"far"},"_rankingScore":0.5}"#;
        let rescored = Rescored { place: (0, 0), weighted: 0.25, score: Some(0.125), details: None };
        let shown = with_score(hit, &rescored).unwrap();
        let wanted = r#"{"n":1.10,"_federation":{"indexUid":"a","weightedRankingScore":0.25,"remote":"far"},"_rankingScore":0.125}"#;
        assert_eq!(String::from_utf8(shown).unwrap(), wanted);
        assert!(with_score(b"3", &rescored).is_none());
    }

    #[test]
    fn what_cannot_be_merged_is_refused() {
        for text in [
            "{}",
            r#"{"_federation": 3}"#,
            r#"{"_federation": {"weightedRankingScore": 1}}"#,
            r#"{"_federation": {"weightedScoreValues": []}}"#,
            r#"{"_federation": {"weightedScoreValues": [{"other": 1}], "weightedRankingScore": 1}}"#,
        ] {
            assert!(hit(text, None).is_err(), "{text}");
        }
    }
}
