//! Builds the query graph and completes it with what the dictionaries know of its words.

use std::sync::Arc;

use super::Gather;
use crate::query::{FieldTable, NodeFacts, QueryGraph, QueryWords};
use crate::runtime::steps::doing;
use crate::search::answer::SearchError;
use crate::search::ask::unexpected;
use crate::search::known::SharedFacts;
use crate::search::messages::{PartQuestion, PartReply};
use crate::search::plan;
use crate::search::steps::Step;

/// A query that was looked up in the dictionaries.
pub(in crate::search) struct Resolved {
    /// All that may match.
    pub(in crate::search) graph: QueryGraph,
    /// What this instance knows of its words, where others ask for that.
    pub(in crate::search) words: Option<QueryWords>,
}

impl Gather<'_> {
    /// Draws the graph and completes it from the dictionaries of all partitions, or from those of all instances of a network.
    pub(in crate::search) async fn resolved_graph(&self) -> Result<Resolved, SearchError> {
        let settings = self.index.settings;
        doing("query");
        let mut graph = self.index.planner.sketch_aside(self.request, settings, self.index.fields, self.pacer).await;
        self.end_step(Step::Tokenize);
        if graph.term_count == 0 {
            return Ok(Resolved { words: self.request.share.as_ref().map(|_| QueryWords::default()), graph });
        }
        let fields = Arc::new(self.field_table());
        let facts = self.facts(&graph, &fields).await?;
        let given = self.request.share.as_ref().and_then(|share| share.words.as_deref());
        let shows_matches = self.request.format.shows_matches();
        match given.and_then(|words| words.facts(&graph)) {
            Some(of_network) => {
                graph.complete(&[of_network], shows_matches);
                graph.is_shared = true;
            }
            None => graph.complete(&facts, shows_matches),
        }
        let mut counts = Vec::new();
        if plan::needs_counts(self.request, &graph) {
            counts = self.count_terms(&graph, &fields).await?;
            graph.rank_by_frequency(given.and_then(|words| words.counts(graph.term_count)).unwrap_or(&counts));
        }
        let words = self.request.share.as_ref().map(|_| QueryWords::new(&graph, &facts, counts));
        self.end_step(Step::Resolve);
        Ok(Resolved { graph, words })
    }

    /// What the partitions know of each node of the graph; those are asked about nodes that no search of this core has asked
    /// about before.
    async fn facts(
        &self,
        graph: &QueryGraph,
        fields: &Arc<FieldTable>,
    ) -> Result<Vec<Vec<Arc<NodeFacts>>>, SearchError> {
        let by_attribute = plan::by_attribute(self.index.settings);
        let questions = graph.questions(self.request.share.as_ref().map(|share| &share.shard));
        let mut found: Vec<Option<SharedFacts>> =
            questions.iter().map(|question| self.index.known.get(question, by_attribute)).collect();
        let missing: Vec<usize> = (0..questions.len()).filter(|at| found[*at].is_none()).collect();
        if !missing.is_empty() {
            let nodes = Arc::new(missing.iter().map(|at| questions[*at].clone()).collect::<Vec<_>>());
            let question = || PartQuestion::Resolve { nodes: nodes.clone(), fields: fields.clone(), by_attribute };
            let mut replies = Vec::with_capacity(usize::from(self.index.partitions));
            for reply in self.ask_all(question).await? {
                let PartReply::Facts(found) = reply else { return Err(unexpected()) };
                replies.push(found);
            }
            for (number, at) in missing.into_iter().enumerate() {
                let facts: SharedFacts = replies.iter().filter_map(|found| found.get(number).cloned()).collect();
                self.index.known.keep(questions[at].clone(), by_attribute, &facts);
                found[at] = Some(facts);
            }
        }
        let of = |partition: usize| found.iter().flatten().map(|facts| facts.get(partition).cloned()).collect();
        let facts: Option<Vec<Vec<_>>> = (0..usize::from(self.index.partitions)).map(of).collect();
        facts.ok_or_else(unexpected)
    }

    /// How many documents match each term.
    async fn count_terms(&self, graph: &QueryGraph, fields: &FieldTable) -> Result<Vec<u64>, SearchError> {
        let shard = self.request.share.as_ref().map(|share| share.shard.clone());
        let plan = Arc::new(plan::rank_plan(self.request, self.index.settings, graph.clone(), fields.clone(), 0));
        let mut counts = vec![0; usize::from(graph.term_count)];
        for reply in self.ask_all(|| PartQuestion::CountTerms { plan: plan.clone(), shard: shard.clone() }).await? {
            let PartReply::Counts(found) = reply else { return Err(unexpected()) };
            counts.iter_mut().zip(found).for_each(|(sum, count)| *sum += count);
        }
        Ok(counts)
    }
}
