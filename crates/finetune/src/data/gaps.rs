//! Answers without text, such as tool calls, located between the messages around them.
//!
//! Sentinels cannot enclose such an answer. The template therefore renders the conversation once
//! more with sentinels around the text of all other messages. The gap between two of these texts
//! has the end of one message, the header of the answer, the answer, and the start of the next
//! message. Three answers are searched individually; they determine the text before and after an
//! answer in its gap. Answers in gaps with other text are searched individually.

use std::collections::BTreeMap;
use std::ops::Range;

use super::marks::FEW;
use super::turns::Search;
use crate::hub::HubError;
use crate::tokenizer::ASSISTANT;

/// An index into the list of answers, and the range between its neighbours.
type Gap = (usize, Range<usize>);

impl Search<'_> {
    /// Adds the ranges that gaps locate for `answers` that have no range yet.
    pub(super) fn find_in_gaps(
        &self,
        answers: &[usize],
        ranges: &mut [Option<Range<usize>>],
    ) -> Result<(), HubError> {
        // Templates may render the first and the last answer differently.
        let inner = 1..answers.len().saturating_sub(1);
        let missing: Vec<usize> = inner.filter(|at| ranges[*at].is_none()).collect();
        if missing.len() < FEW {
            return Ok(());
        }
        let Some(texts) = self.texts_of_others()? else { return Ok(()) };
        // The text around an answer depends on the roles of the messages before and after it.
        let mut groups: BTreeMap<[Option<String>; 2], Vec<Gap>> = BTreeMap::new();
        for at in missing {
            let [before, after] = [answers[at] - 1, answers[at] + 1];
            if let (Some(left), Some(right)) = (&texts[before], &texts[after]) {
                let roles = [before, after].map(|index| self.conversation.role(index));
                groups.entry(roles).or_default().push((at, left.end..right.start));
            }
        }
        groups.values().try_for_each(|gaps| self.find_alike(answers, gaps, ranges))
    }

    /// Returns the ranges of the texts of other roles. `None` if sentinels change other text.
    fn texts_of_others(&self) -> Result<Option<Vec<Option<Range<usize>>>>, HubError> {
        let role = |index: usize| self.conversation.role(index);
        let all = 0..self.conversation.len();
        let others: Vec<usize> = all.filter(|at| role(*at).as_deref() != Some(ASSISTANT)).collect();
        let contents = self.contents(&others);
        let Some(marked) = self.marks(&others, &contents)? else { return Ok(None) };
        let mut texts = vec![None; self.conversation.len()];
        for (index, marked) in others.iter().zip(marked) {
            texts[*index] = marked.map(|marked| marked.text);
        }
        Ok(Some(texts))
    }

    /// Locates the answers in gaps between messages of the same roles.
    fn find_alike(
        &self,
        answers: &[usize],
        gaps: &[Gap],
        ranges: &mut [Option<Range<usize>>],
    ) -> Result<(), HubError> {
        if gaps.len() < FEW {
            return Ok(());
        }
        let mut around: Option<[&str; 2]> = None;
        for (at, gap) in [0, gaps.len() / 2, gaps.len() - 1].map(|example| &gaps[example]) {
            let range = self.range(answers[*at])?;
            ranges[*at] = Some(range.clone());
            if range.start < gap.start || range.end > gap.end {
                return Ok(());
            }
            let found = [&self.whole[gap.start..range.start], &self.whole[range.end..gap.end]];
            if *around.get_or_insert(found) != found {
                return Ok(());
            }
        }
        let Some([before, after]) = around else { return Ok(()) };
        for (at, gap) in gaps {
            let text = &self.whole[gap.clone()];
            let answer = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            if let (None, Some(answer)) = (&ranges[*at], answer) {
                let start = gap.start + before.len();
                ranges[*at] = Some(start..start + answer.len());
            }
        }
        Ok(())
    }
}
