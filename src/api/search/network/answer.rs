//! Reading what another instance has found.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use shards::facets::distribution::{Distribution, FacetValues};
use shards::runtime::{Checkpoint, Runtime};
use shards::search::federated::{FieldValue, Part, PartHit, ScoreValue, values_at};

use crate::api::error::ApiError;
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

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    hits: Vec<&'a RawValue>,
    #[serde(default)]
    estimated_total_hits: Option<u64>,
    #[serde(default)]
    total_hits: Option<u64>,
    #[serde(default)]
    facets_by_index: Map<String, Value>,
    #[serde(default)]
    degraded: bool,
}

/// Reads an answer.
///
/// # Errors
/// `remote_bad_response`.
pub(super) async fn read(runtime: &dyn Runtime, shown: &Shown<'_>, body: &[u8]) -> Result<Part, ApiError> {
    let body: Body<'_> = serde_json::from_slice(body).map_err(|error| unreadable(shown.name, error))?;
    let total = body.estimated_total_hits.or(body.total_hits);
    let total = total.ok_or_else(|| unreadable(shown.name, "it has no total"))?;
    let facets = body.facets_by_index.iter().map(|(uid, facets)| Some((uid.clone(), distribution(facets)?)));
    let facets: Option<Vec<(String, Distribution)>> = facets.collect();
    let facets = facets.ok_or_else(|| unreadable(shown.name, "its facets are no counts"))?;
    let mut part = Part { hits: Vec::with_capacity(body.hits.len()), total, facets, degraded: body.degraded };
    let mut checkpoint = Checkpoint::default();
    for hit in body.hits {
        let read = hit_of(shown, &part.facets, hit).map_err(|why| unreadable(shown.name, why))?;
        part.hits.push(read);
        checkpoint.look(runtime).await;
    }
    Ok(part)
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
fn hit_of(shown: &Shown<'_>, facets: &[(String, Distribution)], hit: &RawValue) -> Result<PartHit, String> {
    let members: Members<'_> = serde_json::from_str(hit.get()).map_err(|error| error.to_string())?;
    let mark = members.0.iter().find(|(name, _)| name == FEDERATION).ok_or("a hit has no `_federation`")?;
    let Ok(Value::Object(mut mark)) = serde_json::from_str::<Value>(mark.1.get()) else {
        return Err("the `_federation` of a hit is no object".into());
    };
    let values = mark.remove("weightedScoreValues").ok_or("a hit has no `weightedScoreValues`")?;
    let values: Option<Vec<ScoreValue>> =
        values.as_array().and_then(|values| values.iter().map(ScoreValue::from_json).collect());
    let values = values.ok_or("the `weightedScoreValues` of a hit cannot be read")?;
    let score = mark.get("weightedRankingScore").and_then(Value::as_f64);
    let score = score.ok_or("a hit has no `weightedRankingScore`")?;
    let hidden = mark.remove("extra_document");
    let pinned = mark.remove("pinnedPosition");
    let pinned = pinned.and_then(|place| place.as_u64()).and_then(|place| u32::try_from(place).ok());
    let index_uid = mark.get("indexUid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let position = mark.get("queriesPosition").and_then(Value::as_u64).unwrap_or_default();
    mark.insert("remote".into(), shown.name.into());
    let fields = match shown.distinct {
        Some(distinct) if pinned.is_none() => fields(&members, hidden.as_ref(), distinct, &index_uid, facets),
        _ => Vec::new(),
    };
    let json = members.written(&Value::Object(mark));
    Ok(PartHit { json, index_uid: index_uid.into(), position, score, values, pinned, fields })
}

/// The values of the distinct field and of the facets of the index.
fn fields(
    members: &Members<'_>,
    hidden: Option<&Value>,
    distinct: &str,
    uid: &str,
    facets: &[(String, Distribution)],
) -> Vec<(String, Vec<FieldValue>)> {
    let hidden: Vec<(String, String)> = hidden
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    let is_hidden = |name: &str| hidden.iter().any(|(other, _)| other == name);
    let own = facets.iter().filter(|(other, _)| other == uid).flat_map(|(_, facets)| &facets.facets);
    let paths = std::iter::once(distinct).chain(own.map(|facet| facet.name.as_str()).filter(|name| *name != distinct));
    let values = |path: &str| {
        let open = members.0.iter().filter(|(name, _)| !is_hidden(name));
        let open = open.map(|(name, value)| (name.as_str(), value.get().as_bytes()));
        let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        (path.to_owned(), values_at(open.chain(hidden), path))
    };
    paths.map(values).collect()
}

/// The members of an object in order, with their text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl Members<'_> {
    /// The object with another `_federation`.
    fn written(&self, federation: &Value) -> Vec<u8> {
        let mut out = vec![b'{'];
        for (at, (name, value)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
            out.push(b':');
            if name == FEDERATION {
                out.extend_from_slice(federation.to_string().as_bytes());
            } else {
                out.extend_from_slice(value.get().as_bytes());
            }
        }
        out.push(b'}');
        out
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object).map(Members)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hit(text: &str, distinct: Option<&str>) -> Result<PartHit, String> {
        let raw = RawValue::from_string(text.into()).unwrap();
        hit_of(&Shown { name: "far", distinct }, &[], &raw)
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
